"""`embercache conformance` and `bench` on the example plugin, on plugins with faults, and on stores."""
import json

import pytest
from conftest import PLUGINS, run


def plugin(name):
    config = json.dumps({"path": str(PLUGINS / f"{name}.so")})
    return ("--mm-global-cache-backend", "plugin", "--mm-global-cache-config", config)


def test_the_example_plugin_conforms():
    done = run("conformance", *plugin("memory_plugin"))
    assert "FAILED" not in done.stdout and done.stderr == ""
    passed, _, total, *_ = done.stdout.splitlines()[-1].split()
    assert passed == total and int(total) > 20


def test_a_plugin_that_loses_bytes_does_not_conform_and_is_told_where():
    done = run("conformance", *plugin("forgets"), "--json", exit_code=1)
    assert "does not conform" in done.stderr and done.stderr.count("\n") == 1
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert not checks["ObjectsOfAllSizesComeBackWhole"]["ok"]
    assert "1048576 bytes come back changed" in checks["ObjectsOfAllSizesComeBackWhole"]["failures"]
    assert checks["AbsentKeysAreMisses"]["ok"]
    assert report["failed"] == sum(not check["ok"] for check in checks.values())


def test_a_plugin_that_hangs_ends_the_run():
    done = run("conformance", *plugin("hangs"), "--check-timeout-s", 1, exit_code=1)
    assert "hangs" in done.stderr


def test_a_plugin_that_does_not_load_is_named():
    done = run("conformance", *plugin("nosuch"), exit_code=2)
    assert "nosuch.so" in done.stderr and done.stderr.count("\n") == 1


def test_what_a_store_does_not_offer_is_told_as_such():
    done = run("conformance", "--mm-global-cache-backend", "memory")
    lines = dict(line.rsplit("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    told = {check.strip(): word.strip() for check, word in lines.items()}
    assert told["WhatOneStorePutsAnotherGets"] == "not offered"
    assert told["ObjectsOfAllSizesComeBackWhole"] == "ok"
    report = json.loads(run("conformance", "--mm-global-cache-backend", "memory", "--json").stdout)
    offered = {check["name"]: check["offered"] for check in report["checks"]}
    assert not offered["WhatOneStorePutsAnotherGets"] and offered["ObjectsOfAllSizesComeBackWhole"]
    assert report["not_offered"] == sum(not value for value in offered.values())
    assert report["passed"] + report["not_offered"] == len(offered) and report["failed"] == 0
    assert f"{report['not_offered']} not offered" in done.stdout.splitlines()[-1]


def nothing_is_left_in(store):
    """No object, and no folder that was made for one."""
    return [path.name for path in store.iterdir()] == [".embercache"]


def test_the_file_store_conforms_and_is_left_clean(tmp_path):
    done = run("conformance", "--file-store-dir", tmp_path)
    assert "shared between two stores: yes" in done.stdout
    assert nothing_is_left_in(tmp_path)


QUICK = ("--sizes", "64KiB,1MiB", "--batches", "1,2", "--threads", "1,2", "--time", "1ms")
OPS = ["copy", "put", "get", "cache get", "host hit"]


@pytest.mark.parametrize("backend", ["file", "memory", "plugin"])
def test_bench_measures_every_way_of_use(backend, tmp_path):
    store = {
        "file": ("--file-store-dir", tmp_path / "store"),
        "memory": ("--mm-global-cache-backend", "memory"),
        "plugin": plugin("memory_plugin"),
    }[backend]
    output = tmp_path / "bench.json"
    done = run("bench", *store, *QUICK, "--json", output)
    report = json.loads(output.read_text())
    assert report["backend"] == backend
    found = [(m["op"], m["bytes"], m["batch"], m["threads"]) for m in report["measures"]]
    assert found == [(op, b, n, t) for b in (65536, 1 << 20) for n in (1, 2) for t in (1, 2) for op in OPS]
    for measure in report["measures"]:
        assert measure["calls"] >= 5 * measure["threads"]
        assert (measure["p99_ms"] is None) == (measure["calls"] < 100)
        assert 0 < measure["p50_ms"] <= (measure["p99_ms"] or measure["p50_ms"])
        assert (measure["gb_per_s"] > 0) == (measure["op"] != "host hit")
    assert report["says"] and all(sentence in done.stdout for sentence in report["says"])
    if backend == "file":
        assert nothing_is_left_in(tmp_path / "store")


def test_bench_says_when_a_store_loses_bytes(tmp_path):
    done = run("bench", *plugin("forgets"), *QUICK, exit_code=1)
    assert "cache get" in done.stderr


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--sizes", "1000"), "4096"),
        (("--sizes", "1Gig"), "'1Gig' is not a size"),
        (("--sizes", "1GiB", "--batches", "8"), "at once"),
        (("--time", "5"), "'5' is not a duration"),
        (("--time", "0ms"), "--time '0ms' has to be 1ms to 1h"),
        (("--time", "nan"), "'nan' is not a duration"),
        (("--sizes", "inf"), "'inf' is not a size"),
        (("--threads", "0"), "--threads"),
        (("--batches", "9999999999"), "from 1 to 1024"),
    ],
)
def test_bench_refuses_what_makes_no_sense(flags, words):
    done = run("bench", "--mm-global-cache-backend", "memory", *flags, exit_code=2)
    assert words in done.stderr and done.stderr.count("\n") == 1
