"""More than the server can do: it refuses at once, answers everything, and recovers."""
import concurrent.futures
import socket
import struct
import time

import ec_server
from conftest import PROGRAM, picture, settle, wait_until
from test_http import Wire, head


def test_a_burst_over_the_queue_is_answered_200_or_503_and_the_server_recovers(start):
    contents = [picture(f"burst-{i}", size=(150, 140)) for i in range(400)]
    slowest = 0

    def ask(content):
        nonlocal slowest
        begun = time.monotonic()
        answer = server.encode(ec_server.image_item(content))
        slowest = max(slowest, time.monotonic() - begun)
        return answer

    with start("--queue-items", 96) as server, concurrent.futures.ThreadPoolExecutor(400) as pool:
        answers = [pool.submit(ask, content) for content in contents]
        probes = 0
        while not all(answer.done() for answer in answers):
            assert server.request("GET", "/health").status == 200
            probes += 1
        statuses = [answer.result().status for answer in answers]
        assert set(statuses) <= {200, 503}
        assert statuses.count(200) > 0 and probes > 0
        assert all("Retry-After" in a.result().headers for a in answers if a.result().status == 503)
        assert slowest < 45  # seconds; the deadline is at 30
        settle(server)
        assert server.metric("embercache_requests_total", route="/v1/encode") == 400
        for content in contents[:10]:
            assert server.encode(ec_server.image_item(content)).status == 200


def test_a_request_over_the_queue_is_refused_whatever_else_runs(start):
    items = [ec_server.image_item(picture(f"over-{i}")) for i in range(5)]
    with start("--queue-items", 4) as server:
        answer = server.encode(*items)
        assert answer.status == 503
        assert answer.json()["error"]["code"] == "RESOURCE_EXHAUSTED"
        assert int(answer.headers["Retry-After"]) >= 1
        assert server.encode(*items[:4]).status == 200


def body_of(*items):
    return ec_server.json.dumps({"items": items}).encode()


def test_a_client_that_leaves_frees_its_place_and_its_pins():
    # The demo model takes a minute and more for them, far longer than it takes to leave.
    items = [ec_server.image_item(picture(f"leave-{i}")) for i in range(200)]
    body = body_of(*items)
    flags = ("--mm-global-cache-size-gb", 0.1, "--request-timeout-ms", 600000, "--max-items", 200, "--queue-items", 200)
    with ec_server.Server("--model", ec_server.ROOT / ".deps/models/dinov2-small", *flags, program=PROGRAM) as server:
        with Wire(server) as wire:
            wire.send(head(Content_Length=len(body)), body)
            server.wait_metric(1, "embercache_stage_seconds_count", stage="encode")
        settle(server)
        assert server.metric("embercache_stage_seconds_count", stage="encode") < len(items)
        assert server.encode(*items[:3]).status == 200


def test_a_reader_that_resets_the_connection_gives_its_pins_back(start):
    items = [ec_server.image_item(picture(f"reset-{i}")) for i in range(40)]
    body = body_of(*items)
    with start("--request-timeout-ms", 120000) as server:
        assert server.encode(*items).status == 200
        for _ in range(5):
            with Wire(server) as wire:  # 24 MB of answer, of which nothing is read
                wire.send(head(Content_Length=len(body), Accept="*/*"), body)
                wire.file.read(10)
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        deadline = time.monotonic() + ec_server.START_SECONDS
        while server.metric("embercache_pinned_entries") > 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_counters_and_gauges_are_back_to_their_start_after_a_soak(start):
    contents = [picture(f"soak-{i}") for i in range(20)]
    with start("--request-timeout-ms", 120000) as server:
        def ask(i):
            items = [ec_server.image_item(contents[(i * k) % len(contents)]) for k in range(1, 5)]
            if i % 5 == 0:
                items.append(ec_server.image_item(b"bad"))
            return server.encode(*items, accept="*/*" if i % 2 else "application/json").status

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(40)))
            descriptors = server.open_files()
            rss = server.rss_bytes()
            assert set(pool.map(ask, range(400))) == {200}
        settle(server)
        wait_until(lambda: server.open_files() <= descriptors)  # the last connection is closing
        assert server.rss_bytes() - rss < 50_000_000
        items = server.metric("embercache_items_total") + server.metric("embercache_item_errors_total")
        assert items == 440 * 4 + 88
