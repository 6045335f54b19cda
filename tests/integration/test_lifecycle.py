"""Starting, refusing to start, and stopping."""
import concurrent.futures
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import ec_server
import pytest
from conftest import PROGRAM, global_cache, picture


def run(*arguments, env=None):
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=ec_server.START_SECONDS, env=env
    )
    return done.returncode, done.stdout, done.stderr


def reason(stderr):
    """The line that says why, without the log's."""
    [line] = [line for line in stderr.splitlines() if line.startswith("embercache: ")]
    return line


def test_version():
    code, text, _ = run("version")
    assert (code, text.split()[0]) == (0, "embercache")
    assert run("--version") == (0, text, "")
    code, text, _ = run("version", "--json")
    assert code == 0
    assert '"version":"' in text


USAGE_ERRORS = {
    "no command": ((), "no command"),
    "unknown command": (("bake",), "bake"),
    "no model": (("serve",), "--model"),
    "unknown flag": (("serve", "--model", "m", "--colour", "red"), "--colour"),
    "number that is none": (("serve", "--model", "m", "--queue-items", "many"), "many"),
    "backend without the cache": (("serve", "--model", "m", "--mm-global-cache-backend", "file"), "--enable-mm-global-cache"),
    "store folder without the cache": (("serve", "--model", "m", "--file-store-dir", "d"), "--enable-mm-global-cache"),
    "store folder of another backend": (
        ("serve", "--model", "m", "--enable-mm-global-cache", "--mm-global-cache-backend", "memory", "--file-store-dir", "d"),
        "--file-store-dir",
    ),
    "log level": (("serve", "--model", "m", "--log-level", "loud"), "loud"),
    "address that others reach": (("serve", "--model", "m", "--host", "0.0.0.0"), "--insecure"),
    "config that is no file": (
        ("serve", "--model", "m", "--enable-mm-global-cache", "--mm-global-cache-config", "nowhere.json"),
        "nowhere.json",
    ),
}


@pytest.mark.parametrize("name", USAGE_ERRORS)
def test_usage_errors_are_one_line_and_exit_code_2(name):
    arguments, part = USAGE_ERRORS[name]
    code, _, stderr = run(*arguments)
    assert code == 2
    assert part in reason(stderr)


def start_failure(*flags, exit_code=1):
    """Why the server does not start; before it listens where it is the configuration that is wrong."""
    code, stdout, stderr = run("serve", "--port", "0", *flags)
    assert code == exit_code
    assert exit_code == 1 or stdout == ""
    return reason(stderr)


def test_a_model_folder_that_is_missing_stops_the_start():
    assert "/nowhere/model" in start_failure("--model", "/nowhere/model")


def test_a_model_file_that_is_missing_stops_the_start(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text("{}")
    assert str(tmp_path) in start_failure("--model", tmp_path)


def test_a_model_file_that_is_broken_stops_the_start(tmp_path, model):
    shutil.copy(model / "preprocessor_config.json", tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    assert "model.onnx" in start_failure("--model", tmp_path)


@pytest.mark.parametrize(
    "variable, right", [("ONNXRUNTIME_LIBRARY", "the library"), ("ONNXRUNTIME_ROOT", "a folder with lib/libonnxruntime.so")]
)
def test_an_onnx_runtime_that_is_none_is_named_with_the_variable_and_what_is_right(tmp_path, model, variable, right):
    (tmp_path / "text.so").write_text("no library")
    for value in ("/nowhere/x", tmp_path / "text.so"):
        other = {"ONNXRUNTIME_LIBRARY", "ONNXRUNTIME_ROOT"} - {variable}
        env = {k: v for k, v in os.environ.items() if k not in other} | {variable: str(value)}
        code, _, stderr = run("serve", "--port", "0", "--model", model, env=env)
        assert code == 1
        message = reason(stderr)
        assert f"{variable} is '{value}'" in message and right in message
        assert "bootstrap" not in message and not any(name in message for name in other)


def test_two_models_of_one_name_stop_the_start(model):
    assert "'m'" in start_failure("--model", f"m={model}", "--model", f"m={model}", exit_code=2)
    same = start_failure("--model", model, "--model", f"{model}/", exit_code=2)
    assert f"'{model.name}'" in same


def test_a_busy_port_stops_the_start(model):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        code, _, stderr = run("serve", "--model", model, "--port", port)
    assert code == 1
    assert str(port) in reason(stderr)


def test_a_store_folder_that_cannot_be_made_stops_the_start(model, tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "store"
    message = start_failure("--model", model, "--enable-mm-global-cache", "--file-store-dir", folder)
    assert str(folder) in message


def test_a_store_folder_that_cannot_be_written_stops_the_start(model):
    # Also root cannot make files there.
    message = start_failure("--model", model, "--enable-mm-global-cache", "--file-store-dir", "/proc/self/fdinfo")
    assert "/proc/self/fdinfo" in message


def test_an_unknown_backend_or_option_stops_the_start_and_lists_those_there_are(model):
    flags = ("--model", model, "--enable-mm-global-cache")
    assert "file" in start_failure(*flags, "--mm-global-cache-backend", "tape", exit_code=2)
    assert "dir" in start_failure(*flags, "--mm-global-cache-config", '{"folder":"x"}', exit_code=2)
    assert "--file-store-dir" in start_failure(*flags, exit_code=2)
    assert "folder" in start_failure(*flags, "--mm-global-cache-config", model, exit_code=2)


@pytest.mark.parametrize("verb", ["serve", "encode", "ls", "bench", "conformance"])
def test_a_wrong_store_is_wrong_usage_in_every_verb(verb, model, tmp_path):
    rest = {"serve": ("--model", model, "--enable-mm-global-cache"), "encode": (tmp_path / "x.png", "--model", model)}
    (tmp_path / "x.png").write_bytes(picture("x"))
    for store in (
        ("--mm-global-cache-backend", "tape"),
        ("--mm-global-cache-config", '{"folder":"x"}'),
        ("--mm-global-cache-config", "{dir"),
        ("--mm-global-cache-backend", "redis", "--mm-global-cache-config", '{"url":"http://x"}'),
        ("--mm-global-cache-backend", "redis", "--mm-global-cache-config", '{"password_file":"/nowhere"}'),
    ):
        code, stdout, stderr = run(verb, *rest.get(verb, ()), *store)
        assert (code, stdout) == (2, ""), stderr
        assert reason(stderr)


def test_a_media_root_that_is_missing_stops_the_start(model):
    assert "/nowhere" in start_failure("--model", model, "--media-root", "/nowhere")


def test_flags_come_from_the_environment_and_flags_win(start, model):
    env = os.environ | {"EMBERCACHE_MAX_ITEMS": "5", "EMBERCACHE_QUEUE_ITEMS": "50", "EMBERCACHE_QUEUE_ITEM": "1"}
    with start("--max-items", 7, env=env) as server:
        configuration = server.request("GET", "/v1/stats").json()["configuration"]
        assert (configuration["max_items"], configuration["queue_items"]) == (7, 50)
        assert "EMBERCACHE_QUEUE_ITEM " in server.log_text()
    code, _, stderr = run("serve", "--model", model, env=os.environ | {"EMBERCACHE_PORT": "high"})
    assert code == 2
    assert "high" in reason(stderr)


def test_the_start_prints_the_address_and_a_command_that_works_when_pasted(start, media):
    with start() as server:
        assert server.process.stdout.readline() == "Ready. Try:\n"
        command = server.process.stdout.readline()
        command = command.replace("IMAGE.jpg", str(media / "china.jpg"))
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ec_server.ROOT)
        assert '"source":"computed"' in done.stdout


def test_health_answers_and_ready_refuses_while_the_server_loads(start):
    with start("--mm-global-cache-size-gb", 1, wait_ready=False) as server:
        assert server.request("GET", "/health").status == 200
        ready = server.request("GET", "/ready")
        if ready.status == 503:
            assert server.encode(ec_server.image_item(picture("early"))).status in (200, 503)
            assert "Retry-After" in ready.headers
        server.wait_ready()
        assert server.request("GET", "/ready").json() == {"status": "ready", "store": "off"}


def many_items(name, count):
    return [ec_server.image_item(picture(f"{name}-{i}", size=(448, 448))) for i in range(count)]


def test_sigterm_finishes_what_runs_publishes_and_exits_0(start, tmp_path):
    items = many_items("sigterm", 40)
    with start(*global_cache(tmp_path)) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(server.encode, *items)
        server.wait_metric(1, "embercache_stage_seconds_count", stage="encode")
        server.process.send_signal(signal.SIGTERM)
        assert answer.result().status == 200
        assert [item["source"] for item in answer.result().json()["items"]] == ["computed"] * len(items)
        assert server.wait() == 0
        assert "stopped" in server.log_text()
    assert len(list(pathlib.Path(tmp_path).rglob("*.emb"))) == len(items)
    with start(*global_cache(tmp_path)) as other:
        sources = [item["source"] for item in other.encode(*items).json()["items"]]
    assert sources == ["global"] * len(items)


def test_a_stopping_server_takes_no_new_connections(start):
    with start("--request-timeout-ms", 120000) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(server.encode, *many_items("stopping", 60))
        server.wait_metric(1, "embercache_stage_seconds_count", stage="encode")
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + ec_server.START_SECONDS
        while True:
            try:
                server.connect().connect()
            except ConnectionRefusedError:
                break
            except ConnectionResetError:
                pass  # the listening socket was closed that very moment
            assert time.monotonic() < deadline
        assert answer.result().status == 200
        assert server.wait() == 0


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_stops_at_once_also_with_open_connections(start, sig):
    with start() as server:
        idle = server.connect()
        idle.request("GET", "/health")
        assert idle.getresponse().read()
        assert server.stop(sig) == 0
        idle.close()


def test_a_second_signal_ends_the_program_at_once(start):
    with start("--request-timeout-ms", 120000) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(server.encode, *many_items("second", 60))
        server.wait_metric(1, "embercache_stage_seconds_count", stage="encode")
        server.process.send_signal(signal.SIGTERM)
        while "stopping" not in server.log_text():
            time.sleep(0.01)
        assert server.stop() == 1
        assert answer.exception() is not None


def test_a_signal_while_loading_ends_the_program(start):
    with start("--mm-global-cache-size-gb", 2, wait_ready=False) as server:
        assert server.stop() == 0


def test_the_runtime_writes_nothing_of_its_own_and_reports_to_nobody(start, tmp_path):
    """ONNX Runtime 1.32 keeps a database of events in the home folder, and sends them to its makers."""
    told = {name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")}
    with start(env={**told, "HOME": str(tmp_path)}) as server:
        assert server.encode(ec_server.image_item(picture("quiet"))).status == 200
        assert not [path for path in server.open_file_names() if "onnxruntime.db" in path]
    assert list(tmp_path.iterdir()) == []
