"""`embercache encode` gives what the server gives, to files and to a store."""
import json
import os
import pathlib
import pty
import subprocess

import ec_server
import numpy
import pytest
import safetensors.numpy
from conftest import PROGRAM, global_cache, picture, run


@pytest.fixture
def photos(tmp_path):
    """Two images and something else, one of them in a folder below."""
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    (folder / "a.png").write_bytes(picture("a"))
    (folder / "more/b.JPG").write_bytes(picture("b", kind="JPEG"))
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.fixture
def encode(model):
    def run_encode(*arguments, **keywords):
        return run("encode", *arguments, "--model", model, **keywords)

    return run_encode


def items_of(done):
    return json.loads(done.stdout)["items"]


def test_it_gives_what_the_server_gives(start, encode, photos):
    with start() as server:
        item = ec_server.image_item((photos / "a.png").read_bytes())
        served, tensors = ec_server.read_safetensors(server.encode(item, accept="*/*").body)
    [item] = items_of(encode(photos / "a.png", "-o", photos / "a.npy", "--json"))
    assert item["file"] == str(photos / "a.png") and item["output"] == str(photos / "a.npy")
    assert {k: item[k] for k in ("key", "shape", "dtype", "bytes", "metadata")} == {
        k: served[0][k] for k in ("key", "shape", "dtype", "bytes", "metadata")
    }
    array = numpy.load(photos / "a.npy")
    assert array.tobytes() == tensors["item_0"] and list(array.shape) == item["shape"]


def test_a_folder_becomes_a_folder(encode, photos, tmp_path):
    out = tmp_path / "out"
    done = encode(photos, "-o", out)
    lines = done.stdout.splitlines()
    assert [line.split("  ")[-1] for line in lines] == [str(photos / "a.png"), str(photos / "more/b.JPG")]
    written = sorted(path for path in out.rglob("*") if path.is_file())
    assert written == [out / "a.png.safetensors", out / "more/b.JPG.safetensors"]
    tensor = safetensors.numpy.load_file(written[0])["embedding"]
    encode(photos / "a.png", "-o", tmp_path / "a.npy")
    assert numpy.array_equal(tensor, numpy.load(tmp_path / "a.npy"))
    encode(photos, "-o", out, "--format", "npy")
    assert numpy.array_equal(tensor, numpy.load(out / "a.png.npy"))


def test_patterns_are_its_own_to_expand(encode, photos):
    items = items_of(encode(photos / "*.png", photos / "*/*.J[PQ]G", "--json"))
    assert [pathlib.Path(item["file"]).name for item in items] == ["a.png", "b.JPG"]


def test_a_store_keeps_what_was_computed_for_the_next_one_and_for_servers(start, encode, photos, tmp_path):
    store = tmp_path / "store"
    wait = ("--lookup-timeout-ms", 20000)
    first = items_of(encode(photos, "--file-store-dir", store, *wait, "--json"))
    assert [item["source"] for item in first] == ["computed", "computed"]
    again = items_of(encode(photos, "--file-store-dir", store, *wait, "--json"))
    assert [item["source"] for item in again] == ["global", "global"]
    assert [item["key"] for item in again] == [item["key"] for item in first]
    with start(*global_cache(store)) as server:
        answer = server.encode(ec_server.image_item((photos / "a.png").read_bytes())).json()
    assert (answer["items"][0]["source"], answer["items"][0]["key"]) == ("global", first[0]["key"])


def test_another_epoch_does_not_find_it(encode, photos, tmp_path):
    store = ("--file-store-dir", tmp_path / "store", "--lookup-timeout-ms", 20000)
    encode(photos / "a.png", *store)
    [item] = items_of(encode(photos / "a.png", *store, "--epoch", 1, "--json"))
    assert item["source"] == "computed"


def test_one_bad_file_fails_alone_and_is_named(encode, photos, tmp_path):
    out = tmp_path / "out"
    files = (photos / "a.png", photos / "notes.txt", photos / "more/b.JPG")
    done = encode(*files, "-o", out, exit_code=1)
    assert done.stderr.startswith(f"embercache: {photos / 'notes.txt'}: ") and done.stderr.count("\n") == 1
    assert "item 0" not in done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["a.png.safetensors", "b.JPG.safetensors"]
    told = json.loads(encode(*files, "--json", exit_code=1).stdout)
    assert (told["encoded"], told["failed"]) == (2, 1)
    assert told["items"][1]["error"]["code"] == "INVALID"


def test_many_files_come_in_their_order(encode, tmp_path):
    files = [tmp_path / f"{i:02}.png" for i in range(20)]
    for i, file in enumerate(files):
        file.write_bytes(picture(f"many {i % 15}"))
    items = items_of(encode(*files, "--json"))
    assert [item["file"] for item in items] == [str(file) for file in files]
    assert items[0]["key"] == items[15]["key"] and items[15]["source"] in ("local", "joined")


@pytest.mark.parametrize(
    "arguments, exit_code, words",
    [
        (("missing.png",), 3, "missing.png"),
        (("*.tiff",), 3, "*.tiff"),
        (("empty",), 3, "empty"),
        (("photos", "-o", "all.npy"), 2, "name a folder"),
        (("photos/a.png", "photos/../photos/a.png", "-o", "out"), 2, "both be written"),
        (("photos/a.png", "-o", "a.png/x.npy", "--format", "tiff"), 2, "tiff"),
        (("photos/a.png", "--file-store-dir", "s", "--mm-global-cache-backend", "redis"), 2, "redis"),
        (("photos/a.png", "-o", "x.txt"), 2, "x.txt/"),
        ((), 2, "FILE"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(encode, photos, tmp_path, arguments, exit_code, words):
    (tmp_path / "empty").mkdir()
    done = encode(*arguments, exit_code=exit_code, cwd=tmp_path)
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_model_is_needed_and_has_to_be_one(photos, tmp_path):
    assert "--model" in run("encode", photos, exit_code=2).stderr
    assert "one --model" in run("encode", photos, "--model", "a", "--model", "b", exit_code=2).stderr
    assert run("encode", photos, "--model", tmp_path, exit_code=1).stderr.count("\n") == 1


def test_a_place_that_cannot_be_written_fails(encode, photos, tmp_path):
    (tmp_path / "file").write_text("")
    done = encode(photos / "a.png", "-o", tmp_path / "file/a.npy", exit_code=1)
    assert "file" in done.stderr and done.stderr.count("\n") == 1


def test_progress_is_shown_on_a_terminal_only(model, photos):
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [PROGRAM, "encode", photos, "--model", model], stdout=subprocess.DEVNULL, stderr=follower
    ) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the other side is closed
                break
            shown += part
        os.close(leader)
        assert process.wait(ec_server.START_SECONDS) == 0
    assert b"encoding [" in shown and b"50 %" in shown
    assert run("encode", photos, "--model", model).stderr == ""
