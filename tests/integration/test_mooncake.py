"""Servers on a Mooncake client that fails as it is told: its C library is that of
tests/unit/store_mooncake/fake, over a folder."""
import json
import os
import pathlib
import time

import ec_server
import pytest
from conftest import picture, run, wait_until

LIBRARY = os.environ["FAKE_MOONCAKE_LIBRARY"]
LOOKUP_TIMEOUT_S = 1
# What else a request does, on a machine however busy; a bridge is given far longer than that.
SLACK_S = 30
BRIDGE_TIMEOUT_S = 600


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def start_node(start, folder):
    def start_one():
        node = start(
            *("--enable-mm-global-cache", "--mm-global-cache-backend", "mooncake"),
            *("--mm-global-cache-config", config()),
            *("--mm-global-cache-size-gb", 0.1, "--lookup-timeout-ms", LOOKUP_TIMEOUT_S * 1000),
            *("--request-timeout-ms", 120000),
            env=os.environ | {"FAKE_MOONCAKE_DIR": str(folder)},
        )
        wait_until(lambda: store_of(node)["state"] == "up")
        return node

    return start_one


def config(**more):
    return json.dumps({"bridge": "library", "library": LIBRARY, "bridge_timeout": f"{BRIDGE_TIMEOUT_S}s"} | more)


def store_of(node):
    return node.request("GET", "/v1/stats").json()["store"]


def tell(folder, operation, times=1, **fault):
    told = folder / "told"
    told.write_text(json.dumps(fault | {"times": times}))
    told.rename(folder / f"fault.{operation}")


def ask(node, image):
    answer = node.encode(ec_server.image_item(image), accept="*/*")
    assert answer.status == 200, answer.body
    [item], tensors = ec_server.read_safetensors(answer.body)
    return item["source"], tensors["item_0"]


def publish(node, images):
    before = node.metric("embercache_published_total", result="accepted")
    tensors = [ask(node, image)[1] for image in images]
    node.wait_metric(before + len(images), "embercache_published_total", result="accepted")
    return tensors


def test_the_stats_say_what_is_in_use(start_node):
    with start_node() as node:
        in_use = store_of(node)["description"]
        assert in_use["bridge"] == "library"
        assert pathlib.Path(in_use["client"]) == pathlib.Path(LIBRARY)
        assert in_use["protocol"] == "tcp"
        assert in_use["format"] == "envelope"


@pytest.mark.parametrize("kind", ["hang", "crash", "short", "late", "raise"])
def test_a_client_that_fails_costs_a_request_no_more_than_the_lookup(start_node, folder, kind):
    images = [picture(f"mooncake-{kind}-{i}") for i in range(3)]
    with start_node() as writer, start_node() as reader:
        tensors = publish(writer, images)
        assert ask(reader, images[0]) == ("global", tensors[0])
        tell(folder, "get", kind=kind)
        begun = time.monotonic()
        source, tensor = ask(reader, images[1])
        assert time.monotonic() - begun < LOOKUP_TIMEOUT_S + SLACK_S
        assert (source, tensor) == ("computed", tensors[1])
        if kind != "hang":  # which lasts for as long as the bridge is allowed to
            assert ask(reader, images[2])[1] == tensors[2]


def test_hits_return_by_themselves_after_a_crash(start_node, folder):
    with start_node() as writer, start_node() as reader:
        for round_ in range(100):
            images = [picture(f"return-{round_}-{i}") for i in range(2)]
            tensors = publish(writer, images)
            if round_ == 0:
                tell(folder, "get", kind="crash")
            answers = [ask(reader, image) for image in images]
            assert [tensor for _, tensor in answers] == tensors
            if round_ > 0 and all(source == "global" for source, _ in answers):
                return
            time.sleep(0.1)
        raise AssertionError("no hit returns")


def test_raw_format_is_refused_where_media_are_named_by_their_bytes(folder):
    done = run(
        *("ls", "--mm-global-cache-backend", "mooncake", "--mm-global-cache-config", config(format="raw")),
        exit_code=2,
        env={"FAKE_MOONCAKE_DIR": str(folder)},
    )
    assert "format is 'raw'" in done.stderr
