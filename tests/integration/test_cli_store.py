"""get, stat, ls, verify and scrub: what they print, write, remove, and how they end."""
import json
import os
import shutil
import socket
import subprocess
import time

import ec_server
import numpy
import pytest
import safetensors
from conftest import PROGRAM, global_cache, picture, run


@pytest.fixture
def folder(filled, tmp_path):
    """A copy of a file store with three embeddings."""
    return shutil.copytree(filled, tmp_path / "store")


@pytest.fixture(scope="session")
def filled(start, tmp_path_factory):
    store = tmp_path_factory.mktemp("filled")
    with start(*global_cache(store)) as server:
        answer = server.encode(*[ec_server.image_item(picture(f"stored {i}")) for i in range(3)])
        assert answer.status == 200
        server.wait_metric(3, "embercache_published_total", result="stored")
        server.stop()
    return store


def listed(*store):
    return json.loads(run("ls", *store, "--json").stdout)


def objects(folder):
    return sorted(folder.glob("*/*/*.emb"))


def damage(path):
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def test_ls_lists_each_object_with_its_size(folder):
    listing = listed("--file-store-dir", folder)
    sizes = {f"emb_{path.stem}": path.stat().st_size for path in objects(folder)}
    assert {o["id"]: o["object_bytes"] for o in listing["objects"]} == sizes
    assert (listing["count"], listing["bytes"]) == (3, sum(sizes.values()))
    lines = run("ls", "--file-store-dir", folder).stdout.splitlines()
    assert dict(line.split(" ") for line in lines[:-1]) == {k: str(v) for k, v in sizes.items()}
    assert lines[-1].startswith("3 objects, ")


def test_ls_of_an_empty_store_is_empty(tmp_path):
    assert listed("--file-store-dir", tmp_path)["objects"] == []


def test_get_writes_what_the_server_served(start, tmp_path):
    item = ec_server.image_item(picture("got"))
    store = tmp_path / "store"
    with start(*global_cache(store)) as server:
        items, tensors = ec_server.read_safetensors(server.encode(item, accept="*/*").body)
        server.stop()
    key = items[0]["key"]
    run("get", key, "-o", tmp_path / "e.safetensors", "--file-store-dir", store)
    run("get", f"emb_{key}", "-o", tmp_path / "e.npy", "--file-store-dir", store)
    array = numpy.load(tmp_path / "e.npy")
    assert array.dtype == numpy.float32 and list(array.shape) == items[0]["shape"]
    assert array.tobytes() == tensors["item_0"]
    with safetensors.safe_open(tmp_path / "e.safetensors", "numpy") as file:
        assert list(file.keys()) == ["embedding"]
        assert numpy.array_equal(file.get_tensor("embedding"), array)
        assert file.metadata()["key"] == key
        assert json.loads(file.metadata()["metadata"]) == items[0]["metadata"]


def test_get_tells_as_json_what_it_wrote(folder, tmp_path):
    [first, *_] = listed("--file-store-dir", folder)["objects"]
    output = tmp_path / "e.npy"
    told = json.loads(run("get", first["id"], "-o", output, "--file-store-dir", folder, "--json").stdout)
    assert told["output"] == str(output)
    assert told["shape"] == list(numpy.load(output).shape)


def test_stat_tells_what_an_object_is(folder):
    [first, *_] = listed("--file-store-dir", folder)["objects"]
    told = json.loads(run("stat", first["id"], "--file-store-dir", folder, "--json").stdout)
    assert told["id"] == first["id"] and told["object_bytes"] == first["object_bytes"]
    assert (told["state"], told["dtype"], told["modality"]) == ("good", "F32", "image")
    assert told["bytes"] == told["shape"][0] * told["shape"][1] * 4
    assert told["metadata"]["width"] == 64
    text = run("stat", told["key"], "--file-store-dir", folder).stdout
    assert all(word in text for word in (told["key"], "good", "F32", told["namespace"]))


@pytest.mark.parametrize("command", [("get", "-o", "x.npy"), ("stat",), ("verify",)])
def test_what_is_not_there_ends_with_3(folder, tmp_path, command):
    verb, *rest = command
    done = run(verb, "0" * 64, *rest, "--file-store-dir", folder, exit_code=3, cwd=tmp_path)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x.npy").exists()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("get", "0" * 64, "-o", "x.txt"), ".safetensors or .npy"),
        (("get", "0" * 64), "--output"),
        (("ls", "--mm-global-cache-backend", "nosuch"), "nosuch"),
        (("ls", "--mm-global-cache-config", '{"dri":"x"}'), "dri"),
        (("ls", "--mm-global-cache-config", "/nowhere.json"), "/nowhere.json"),
        (("ls", "--file-store-dir", "a", "--mm-global-cache-config", "{}"), "exclude"),
        (("ls", "--port", "1"), "--port"),
        (("ls", "--config", "/nowhere.toml"), "/nowhere.toml"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_what_is_wrong(arguments, words, tmp_path):
    done = run(*arguments, exit_code=2, cwd=tmp_path)
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_folder_that_cannot_be_made_ends_with_1(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("bench", "--file-store-dir", tmp_path / "file/store", exit_code=1)
    assert str(tmp_path) in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("ls",), ("verify",), ("scrub",), ("stat", "x"), ("get", "x", "-o", "x.npy")])
def test_a_store_that_is_looked_into_is_not_made(tmp_path, command):
    for store in (("--file-store-dir", "stoer"), ("--mm-global-cache-config", '{"dir":"stoer"}')):
        done = run(*command, *store, exit_code=3, cwd=tmp_path)
        assert "no store folder 'stoer'" in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_down_ends_with_1():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        config = json.dumps({"url": f"redis://127.0.0.1:{closed.getsockname()[1]}"})
        done = run("ls", "--mm-global-cache-backend", "redis", "--mm-global-cache-config", config, exit_code=1)
    assert "redis" in done.stderr


def test_the_store_may_be_named_by_environment_and_by_a_file_of_serve(folder, tmp_path):
    env = {"EMBERCACHE_FILE_STORE_DIR": str(folder)}
    assert json.loads(run("ls", "--json", env=env).stdout)["count"] == 3
    toml = tmp_path / "embercache.toml"
    toml.write_text(f'model = "m"\nport = 1\nenable_mm_global_cache = true\nfile_store_dir = "{folder}"\n')
    assert listed("--config", toml)["count"] == 3
    toml.write_text('fiel_store_dir = "x"\n')
    assert "fiel_store_dir" in run("ls", "--config", toml, exit_code=2).stderr


def test_verify_finds_nothing_in_a_good_store(folder):
    report = json.loads(run("verify", "--file-store-dir", folder, "--json").stdout)
    assert (report["good"], report["corrupt"], report["bad"]) == (3, 0, [])


def test_verify_names_what_is_damaged_and_leaves_it(folder):
    bad, short, good = objects(folder)
    damage(bad)
    short.write_bytes(short.read_bytes()[:-100])
    done = run("verify", "--file-store-dir", folder, exit_code=1)
    assert f"emb_{bad.stem} corrupt: the payload's checksum is wrong" in done.stdout
    assert f"emb_{short.stem} corrupt" in done.stdout
    assert good.stem not in done.stdout and "1 good, 2 corrupt" in done.stdout
    assert done.stderr == "embercache: 2 corrupt, 0 could not be checked\n"
    assert bad.exists() and short.exists()
    assert run("get", bad.stem, "-o", folder / "x.npy", "--file-store-dir", folder, exit_code=1)
    assert not (folder / "x.npy").exists()


LOOKS = [("ls",), ("verify",), ("stat", "KEY"), ("get", "KEY", "-o", "OUTPUT")]


def look(command, folder, output, store=None, prefix=()):
    words = [{"KEY": objects(folder)[0].stem, "OUTPUT": str(output)}.get(word, word) for word in command]
    store = store or ("--file-store-dir", folder)
    done = subprocess.run(
        [*prefix, PROGRAM, *words, *map(str, store)], capture_output=True, text=True, timeout=ec_server.START_SECONDS
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", LOOKS)
def test_a_look_at_a_store_changes_nothing_there_whatever_its_limits(folder, tmp_path, command):
    shutil.rmtree(folder / ".embercache")
    before = sorted(folder.rglob("*"))
    used = 1_600_000_000
    for path in objects(folder):
        os.utime(path, (used, path.stat().st_mtime))
    store = ("--mm-global-cache-config", json.dumps({"dir": str(folder), "max_bytes": 4096}))
    look(command, folder, tmp_path / "e.npy", store)
    assert sorted(folder.rglob("*")) == before
    assert {path.stat().st_atime for path in objects(folder)} == {used}


@pytest.mark.parametrize("command", LOOKS)
def test_a_look_at_a_store_works_where_it_cannot_be_written(folder, tmp_path, command):
    own = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && ! touch "$1/x" 2>/dev/null && shift && exec "$@"'
    prefix = ("unshare", "--mount", *own, "sh", "-c", script, "-", folder)
    look(command, folder, tmp_path / "e.npy", prefix=prefix)


def test_verify_takes_keys(folder):
    bad, good, _ = objects(folder)
    damage(bad)
    run("verify", good.stem, "--file-store-dir", folder)
    run("verify", bad.stem, good.stem, "--file-store-dir", folder, exit_code=1)


def test_an_object_under_the_key_of_another_is_corrupt(folder):
    first, second, _ = objects(folder)
    shutil.copyfile(first, second)
    assert second.stem in run("verify", "--file-store-dir", folder, exit_code=1).stdout


def test_scrub_removes_what_is_damaged_and_nothing_else(folder):
    bad, foreign, good = objects(folder)
    damage(bad)
    foreign.write_bytes(b"\1" * 8192)
    report = json.loads(run("scrub", "--file-store-dir", folder, "--json").stdout)
    assert (report["good"], report["corrupt"], report["foreign"], report["removed"]) == (1, 1, 1, 1)
    named = {entry["id"]: (entry["state"], entry.get("removed")) for entry in report["bad"]}
    assert named == {f"emb_{bad.stem}": ("corrupt", True), f"emb_{foreign.stem}": ("foreign", None)}
    assert objects(folder) == sorted([foreign, good])
    assert "0 corrupt" in run("scrub", "--file-store-dir", folder).stdout


def test_there_is_no_progress_line_where_there_is_no_terminal(folder):
    assert run("verify", "--file-store-dir", folder).stderr == ""


@pytest.fixture
def redis(tmp_path):
    path = tmp_path / "redis.sock"
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", tmp_path],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + ec_server.START_SECONDS
    while not path.exists():
        assert server.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    yield ("--mm-global-cache-backend", "redis", "--mm-global-cache-config", json.dumps({"url": f"unix://{path}"}))
    server.kill()
    server.wait()


def test_all_of_it_works_on_redis(redis, model, tmp_path):
    image = tmp_path / "image.png"
    image.write_bytes(picture("redis"))
    encoded = json.loads(run("encode", image, "--model", model, *redis, "--json").stdout)
    key = encoded["items"][0]["key"]
    [listed_object] = listed(*redis)["objects"]
    assert listed_object["id"] == f"emb_{key}"
    assert json.loads(run("stat", key, *redis, "--json").stdout)["state"] == "good"
    run("get", key, "-o", tmp_path / "e.npy", *redis)
    assert list(numpy.load(tmp_path / "e.npy").shape) == encoded["items"][0]["shape"]
    assert "1 good" in run("scrub", *redis).stdout


def test_a_backend_that_holds_nothing_lists_nothing():
    assert "0 objects" in run("ls", "--mm-global-cache-backend", "memory").stdout


