"""Where settings come from: flags, then the environment, then the file."""
import json
import os
import signal
import subprocess
import time

import ec_server
import pytest
from conftest import PROGRAM, picture


def config(*flags, env=None):
    """The settings in force, each as (value, origin); or what is wrong."""
    done = subprocess.run(
        [PROGRAM, "config", "--json", *map(str, flags)], capture_output=True, text=True, env=os.environ | (env or {})
    )
    if done.returncode != 0:
        assert done.returncode == 2
        return done.stderr
    return {name: (s["value"], s["origin"]) for name, s in json.loads(done.stdout).items()}


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "embercache.toml"
        path.write_text(text)
        return path

    return write


def test_flags_win_over_the_environment_which_wins_over_the_file(file):
    path = file('model = ["a", "b=c"]\nmax_items = 1\nqueue_items = 1\nport = 1\n')
    env = {"EMBERCACHE_MAX_ITEMS": "2", "EMBERCACHE_QUEUE_ITEMS": "2"}
    settings = config("--config", path, "--max-items", 3, env=env)
    assert settings["max_items"] == ("3", "flag")
    assert settings["queue_items"] == ("2", "environment")
    assert settings["port"] == ("1", "file")
    assert settings["model"] == ("a, b=c", "file")
    assert settings["max_body_mb"] == ("64", "default")


def test_the_file_may_be_named_by_the_environment(file):
    settings = config(env={"EMBERCACHE_CONFIG": str(file('model = "m"\n'))})
    assert settings["model"] == ("m", "file")


def test_a_file_may_hold_every_type_of_setting(file):
    settings = config(
        "--config",
        file(
            'model = "m"\nenable_mm_global_cache = true\nmm_global_cache_size_gb = 0.5\nhost = "localhost"\n'
            '[mm_global_cache_config]\ndir = "d"\n'
        ),
    )
    assert settings["enable_mm_global_cache"] == ("true", "file")
    assert settings["mm_global_cache_size_gb"] == ("0.5", "file")
    assert json.loads(settings["mm_global_cache_config"][0]) == {"dir": "d"}


@pytest.mark.parametrize(
    "text, parts",
    [
        ('model = "m"\nmax_itmes = 1\n', ["embercache.toml", "'max_itmes'"]),
        ('model = "m"\nmax_items = "many"\n', ["embercache.toml", "'max_items'", "many"]),
        ('model = "m"\nmax_items = 1979-05-27\n', ["embercache.toml", "'max_items'"]),
        ('model = "m"\nmax_items = \n', ["embercache.toml line 2"]),
    ],
)
def test_what_is_wrong_in_the_file_is_named(file, text, parts):
    message = config("--config", file(text))
    assert message.count("\n") == 1
    assert all(part in message for part in parts)


def test_a_file_that_is_missing_is_named():
    assert "/nowhere/x.toml" in config("--config", "/nowhere/x.toml")


def test_a_wrong_variable_is_named():
    assert "EMBERCACHE_PORT" in config("--model", "m", env={"EMBERCACHE_PORT": "high"})


def test_settings_are_checked_as_serve_checks_them():
    assert "--model is required" in config()
    assert "--insecure" in config("--model", "m", "--host", "0.0.0.0")


def test_sighup_reloads_limits_and_log_level_and_keeps_them_when_the_file_is_wrong(start, file):
    def wait_log(server, text, times):
        deadline = time.monotonic() + ec_server.START_SECONDS
        while server.log_text().count(text) < times:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def max_items(server):
        return server.request("GET", "/v1/stats").json()["configuration"]["max_items"]

    path = file("max_items = 5\n")
    with start("--config", path) as server:
        assert max_items(server) == 5
        file("max_items = 2\nmax_body_mb = 1\n")
        server.process.send_signal(signal.SIGHUP)
        wait_log(server, "reloaded", 1)
        assert max_items(server) == 2
        item = ec_server.image_item(picture("hup"))
        assert server.encode(*[item] * 3).status == 413
        assert server.request("POST", "/v1/encode", b" " * 1_500_000).status == 413
        file("max_items = 0\n")
        server.process.send_signal(signal.SIGHUP)
        wait_log(server, "nothing was reloaded", 1)
        assert max_items(server) == 2
        file('log_level = "warning"\n')
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + ec_server.START_SECONDS
        while max_items(server) != 64:
            assert time.monotonic() < deadline
        before = server.log_text()
        server.encode(item)
        assert server.log_text() == before


def test_json_logs_are_an_object_a_line(start):
    with start("--log-format", "json") as server:
        server.encode(ec_server.image_item(picture("json log")))
        records = [json.loads(line) for line in server.log_text().splitlines()]
    assert {tuple(record) for record in records} == {("time", "level", "message")}
    assert any("Multi-Level Cache Check" in record["message"] for record in records)
    [configuration] = [r["message"] for r in records if r["message"].startswith("configuration: ")]
    assert json.loads(configuration.removeprefix("configuration: "))["max_items"] == 64
