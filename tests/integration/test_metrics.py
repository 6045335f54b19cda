"""The metrics of docs/operations.md: their names, and that they add up."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil

import ec_server
import pytest
from conftest import global_cache, picture, run, wait_until

GOLDEN = pathlib.Path(__file__).parent / "metrics.txt"


@pytest.fixture
def server(start, tmp_path):
    with start(*global_cache(tmp_path)) as running:
        yield running


def test_the_families_are_those_of_the_golden_list(server):
    server.encode(ec_server.image_item(picture("metrics")), ec_server.image_item(b"bad"))
    server.encode(ec_server.image_item(picture("metrics")))
    server.wait_metric(1, "embercache_published_total")
    text = server.request("GET", "/metrics").body.decode()
    families = sorted(line[7:] for line in text.splitlines() if line.startswith("# TYPE "))
    assert families == GOLDEN.read_text().splitlines()
    assert all(f"# HELP {family.split()[0]} " in text for family in families)


def test_known_requests_give_known_counters(server):
    a, b = picture("count-a"), picture("count-b")
    server.encode(ec_server.image_item(a), ec_server.image_item(b))
    server.encode(ec_server.image_item(a), ec_server.image_item(b))
    server.encode(ec_server.image_item(a), ec_server.image_item(b"bad"), {"type": "image"})
    server.encode(ec_server.image_item(b"bad"))
    server.request("GET", "/health")
    server.request("GET", "/nowhere")
    server.wait_metric(5, "embercache_published_total")
    expected = {
        ("embercache_requests_total", "route", "/v1/encode", "code", "200"): 3,
        ("embercache_requests_total", "route", "/v1/encode", "code", "400"): 1,
        ("embercache_requests_total", "route", "/health", "code", "200"): 1,
        ("embercache_requests_total", "route", "other", "code", "404"): 1,
        ("embercache_items_total", "source", "computed", "modality", "image"): 2,
        ("embercache_items_total", "source", "local", "modality", "image"): 3,
        ("embercache_item_errors_total", "code", "INVALID"): 3,
        ("embercache_insert_total", "kind", "new"): 2,
        ("embercache_insert_total", "kind", "existing"): 3,
        ("embercache_insert_total", "kind", "skipped"): 0,
        ("embercache_published_total", "result", "stored"): 2,
        ("embercache_published_total", "result", "already_present"): 3,
        ("embercache_stage_seconds_count", "stage", "encode"): 2,
        ("embercache_stage_seconds_count", "stage", "preprocess"): 4,
        ("embercache_pinned_entries", "pool", "vision/768"): 0,
        ("embercache_queue_depth", "queue", "decode"): 0,
        ("embercache_queue_depth", "queue", "encode"): 0,
        ("embercache_queue_depth", "queue", "put"): 0,
        ("embercache_breaker_open", "lane", "get"): 0,
        ("embercache_info", "model", "det16", "epoch", "0"): 1,
    }
    for (name, *labels), value in expected.items():
        assert server.metric(name, **dict(zip(labels[::2], labels[1::2]))) == value, (name, labels)
    pages = [server.metric("embercache_pool_pages", pool="vision/768", state=s) for s in ("free", "filling", "ready", "quarantined")]
    [pool] = [p for p in server.request("GET", "/v1/stats").json()["pools"] if p["name"] == "vision/768"]
    assert sum(pages) == pool["pages"]["total"]
    assert pages[2] == 2 * 3


def test_probes_and_idling_change_nothing_but_their_own_counter(server):
    server.encode(ec_server.image_item(picture("idle")))
    server.wait_metric(1, "embercache_published_total")
    before = server.metrics()
    for path in ("/health", "/ready", "/v1/stats"):
        assert server.request("GET", path).status == 200
    after = server.metrics()
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert {name.split("{")[0] for name in changed} == {"embercache_requests_total"}


def test_health_and_metrics_answer_while_the_encoder_works(server):
    items = [ec_server.image_item(picture(f"busy-{i}", size=(448, 448))) for i in range(60)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(server.encode, *items)
        server.wait_metric(1, "embercache_stage_seconds_count", stage="encode")
        probes = 0
        while not answer.done() and probes < 5:
            assert server.request("GET", "/health").status == 200
            assert server.metric("embercache_stage_seconds_count", stage="encode") > 0
            probes += 1
        assert not answer.done(), "the probes waited for the encoder"
        assert answer.result().status == 200


def test_hits_add_up_what_the_encoder_was_saved(server):
    content = picture("saved")
    server.encode(ec_server.image_item(content))
    assert server.metric("embercache_encoder_saved_seconds_total") == 0
    server.encode(ec_server.image_item(content))
    assert server.metric("embercache_encoder_saved_seconds_total") > 0


def test_the_configuration_in_force_is_logged_once_at_the_start(start, model):
    with start("--queue-items", 7) as server:
        server.encode(ec_server.image_item(picture("configuration")))
        [line] = [line for line in server.log_text().splitlines() if "configuration: " in line]
    configuration = json.loads(line.split("configuration: ", 1)[1])
    assert configuration["queue_items"] == 7
    assert configuration["models"] == [str(model)]


def test_the_configuration_in_force_has_the_real_port_the_log_and_the_store_without_secrets(start, tmp_path):
    env = os.environ | {"EMBERCACHE_NAMESPACE": "hunter2"}
    with start(*global_cache(tmp_path), "--log-format", "json", env=env) as server:
        configuration = server.request("GET", "/v1/stats").json()["configuration"]
        [record] = [r for r in map(json.loads, server.log_text().splitlines()) if "configuration: " in r["message"]]
        assert json.loads(record["message"].split("configuration: ", 1)[1]) == configuration
        assert server.url.endswith(f":{configuration['port']}")
        assert "hunter2" not in server.log_text()
    assert (configuration["log_level"], configuration["log_format"]) == ("info", "json")
    assert configuration["namespace"] == "***"
    assert configuration["mm_global_cache_config"] == {"dir": str(tmp_path)}


@pytest.mark.parametrize("level", ["info", "error"])
def test_trouble_of_the_store_is_one_recent_error_a_kind_as_the_log_has_it(start, tmp_path, level):
    store = tmp_path / "store"
    with start(*global_cache(store), "--log-level", level) as server:
        shutil.rmtree(store)
        store.write_text("no folder any more")
        for i in range(3):
            assert server.encode(ec_server.image_item(picture(f"store trouble {i}"))).status == 200

        def told():
            errors = server.request("GET", "/v1/stats").json()["recent_errors"]
            return [error["message"] for error in errors if str(store) in error["message"]]

        wait_until(told)
        [message] = told()
        lines = server.log_text().splitlines()
        shown = run("top", server.url, "--once").stdout
    assert message.startswith("store file: calls that failed: ")
    # In the log of level "error" there is no warning.
    assert any(line.endswith(message) for line in lines) == (level == "info")
    assert re.search(r"UNAVAILABLE store file: calls that failed: ", shown) and "()" not in shown


def test_trouble_of_one_kind_is_one_line_for_a_while(start):
    with start("--queue-items", 2) as server:
        items = [ec_server.image_item(picture("trouble"))] * 3
        for i in range(20):
            assert server.encode(*items, headers={"X-Request-Id": f"t-{i}"}).status == 503
            assert server.encode(ec_server.image_item(b"bad")).status == 400
        lines = [line for line in server.log_text().splitlines() if "RESOURCE_EXHAUSTED" in line]
        errors = server.request("GET", "/v1/stats").json()["recent_errors"]
    # A machine that is slow enough for more lines has them 10 s apart; each says how many it is for.
    assert 1 <= len(lines) < 10
    assert "times: 1" in lines[0] and "t-0" in lines[0]
    assert "INVALID" not in "".join(lines)
    assert len(errors) == 20
    assert (errors[1]["code"], errors[1]["request_id"]) == ("RESOURCE_EXHAUSTED", "t-19")
    assert "--queue-items" in errors[1]["message"]


def test_each_request_logs_one_cache_check(server):
    content = picture("log")
    server.encode(ec_server.image_item(content), ec_server.image_item(picture("log-2")))
    server.encode(ec_server.image_item(content), ec_server.image_item(picture("log-3")))
    checks = [line.split("=== ", 1)[1] for line in server.log_text().splitlines() if "Multi-Level" in line]
    assert checks == [
        "Multi-Level Cache Check === Total: 2 | Local Hits: 0 | Global Hits: 0 | Misses (GPU Work): 2",
        "Multi-Level Cache Check === Total: 2 | Local Hits: 1 | Global Hits: 0 | Misses (GPU Work): 1",
    ]
