"""Where settings come from: flags, then the environment, then the file."""
import json
import os
import signal
import subprocess
import time

import ec_server
import pytest
from conftest import PROGRAM, picture, run


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


@pytest.mark.parametrize(
    "line, value, right",
    [
        ("model = [1]", "[ 1 ]", "a string, or an array of strings"),
        ("model = []", "[]", "a string, or an array of strings"),
        ("model = true", "true", "a string, or an array of strings"),
        ('enable_mm_global_cache = "yes"', "yes", "true or false"),
        ("insecure = 1", "1", "true or false"),
        ('max_items = "5"', "5", "a number, without quotes"),
        ("max_items = true", "true", "a number, without quotes"),
        ("port = [1]", "[ 1 ]", "a number, without quotes"),
        ("host = 127", "127", "a string, in quotes"),
        ('host = ["::1"]', "::1", "a string, in quotes"),
        ("namespace = {a = 1}", "a = 1", "a string, in quotes"),
        ("mm_global_cache_config = [1]", "[ 1 ]", "a table, or a string"),
        ('config = "other.toml"', "", "cannot name another"),
        ("max_items = 0", "0", "from 1 to 100000"),
        ("max_items = 1.5", "1.5", "a whole number from 1 to 100000"),
        ("port = 99999", "99999", "from 0 to 65535"),
        ("mm_global_cache_size_gb = nan", "nan", "from 0 to 100000"),
        ("mm_global_cache_size_gb = inf", "inf", "from 0 to 100000"),
        ("max_pixels = 9000000000000000000", "9000000000000000000", "from 1 to 4000000000"),
    ],
)
def test_a_value_of_the_wrong_type_or_size_is_refused_with_line_key_value_and_what_is_right(file, line, value, right):
    key = line.split(" ")[0]
    message = config("--config", file("\n" + line + "\n"))
    assert message.count("\n") == 1
    assert f"embercache.toml line 2: key '{key}'" in message
    assert value in message and right in message


def test_a_type_is_checked_also_where_a_flag_wins(file):
    assert "key 'port'" in config("--model", "m", "--port", 1, "--config", file('port = "x"\n'))


def test_the_options_of_the_store_may_be_a_string_as_on_the_command_line(file):
    settings = config("--config", file('model = "m"\nenable_mm_global_cache = true\nmm_global_cache_config = \'{"dir":"d"}\'\n'))
    assert json.loads(settings["mm_global_cache_config"][0]) == {"dir": "d"}


@pytest.mark.parametrize("value, expected", [("yes", "true"), ("0", "false"), ("True", "true"), ("off", "false")])
def test_a_switch_in_the_environment_is_true_or_false(value, expected):
    assert config("--model", "m", env={"EMBERCACHE_INSECURE": value})["insecure"] == (expected, "environment")


def test_a_switch_in_the_environment_that_is_neither_is_refused():
    message = config("--model", "m", env={"EMBERCACHE_INSECURE": "maybe"})
    assert "EMBERCACHE_INSECURE" in message and "'maybe'" in message


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path):
    message = config("--config", "/nowhere/x.toml")
    assert "/nowhere/x.toml" in message and "No such file" in message and "line" not in message
    message = config("--config", tmp_path)
    assert str(tmp_path) in message and "is a folder" in message


@pytest.mark.parametrize(
    "flags, parts",
    [
        (("--mm-global-cache-size-gb", "nan"), ["--mm-global-cache-size-gb", "'nan'", "from 0 to 100000"]),
        (("--mm-global-cache-size-gb", "inf"), ["'inf'"]),
        (("--mm-global-cache-size-gb", "-1"), ["'-1'"]),
        (("--max-pixels", "1e12"), ["'1e12'", "from 1 to 4000000000"]),
        (("--max-pixels", "9" * 300), ["(300 characters)", "from 1 to 4000000000"]),
        (("--max-items", "4294967296"), ["--max-items", "from 1 to 100000"]),
        (("--max-items", "-3"), ["'-3'", "from 1 to 100000"]),
        (("--port", "99999"), ["--port", "'99999'", "from 0 to 65535"]),
        (("--host", "foo"), ["--host 'foo'", "IP address"]),
        (("--host", ""), ["--host ''", "IP address"]),
        (("--model", ""), ["--model ''", "NAME=DIR"]),
        (("--model", "="), ["--model '='", "NAME=DIR"]),
        (("--model", "a="), ["--model 'a='", "NAME=DIR"]),
        (("--model", "=a"), ["--model '=a'", "NAME=DIR"]),
        (("--model", "a/m"), ["two models are named 'm'"]),
        (("--model", "m=b"), ["two models are named 'm'"]),
    ],
)
def test_a_flag_that_cannot_be_meant_is_refused_in_one_short_line(flags, parts):
    message = config("--model", "m", *flags)
    assert message.count("\n") == 1 and len(message) < 250
    assert all(part in message for part in parts)


def test_a_wrong_variable_is_named():
    assert "EMBERCACHE_PORT" in config("--model", "m", env={"EMBERCACHE_PORT": "high"})


def test_what_no_one_set_is_shown_as_it_would_be_in_force():
    settings = config("--model", "m")
    for name in ("config", "namespace", "media_root", "mm_global_cache_backend", "mm_global_cache_config", "file_store_dir"):
        assert settings[name] == (None, "default"), name
    for name in ("enable_mm_global_cache", "insecure"):
        assert settings[name] == ("false", "default")
    assert settings["host"] == ("127.0.0.1", "default")
    assert all(value != "" for value, _ in settings.values())
    settings = config("--model", "m", "--enable-mm-global-cache", "--file-store-dir", "d")
    assert settings["mm_global_cache_backend"] == ("file", "default")
    assert settings["enable_mm_global_cache"] == ("true", "flag")
    assert settings["file_store_dir"] == ("d", "flag")


def test_the_size_of_the_host_cache_is_told_where_no_one_set_it():
    size, origin = config("--model", "m")["mm_global_cache_size_gb"]
    assert origin == "default" and 0 < float(size) <= 4
    assert config("--model", "m", "--mm-global-cache-size-gb", 0)["mm_global_cache_size_gb"] == ("0", "flag")


def test_as_text_each_setting_has_a_value_and_none_is_said():
    lines = run("config", "--model", "m").stdout.splitlines()
    words = {line.split()[0]: line.split()[1:] for line in lines}
    assert all(len(rest) == 2 for rest in words.values())
    assert words["media_root"] == ["default", "none"]
    assert words["insecure"] == ["default", "false"]


def test_unknown_variables_are_warned_of_as_serve_does_and_those_of_redis_are_known():
    env = {"EMBERCACHE_PROT": "1", "EMBERCACHE_REDIS_PASSWORD": "p", "EMBERCACHE_REDIS_USERNAME": "u"}
    done = run("config", "--model", "m", "--json", env=env)
    assert "EMBERCACHE_PROT" in done.stderr and done.stderr.count("\n") == 1
    json.loads(done.stdout)


def test_passwords_in_the_options_of_a_store_are_not_shown():
    options = json.dumps({"url": "redis://user:hunter2@127.0.0.1:1", "password": "hunter3"})
    for form in (("--json",), ()):
        shown = run(
            "config", "--model", "m", "--enable-mm-global-cache", "--mm-global-cache-backend", "redis",
            "--mm-global-cache-config", options, *form,
        ).stdout
        assert "hunter" not in shown and "127.0.0.1:1" in shown


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
        file('log_format = "json"\nlog_level = "bogus"\n')
        server.process.send_signal(signal.SIGHUP)
        wait_log(server, "nothing was reloaded: log level 'bogus'", 1)
        configuration = server.request("GET", "/v1/stats").json()["configuration"]
        assert (configuration["log_format"], configuration["log_level"]) == ("text", "info")
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
