"""Faults that users of such servers reported, as tests of this one; those of the cache alone are in
tests/unit/bug_reports."""
import concurrent.futures
import io
import json
import os
import pathlib
import signal
import socket
import struct
import threading
import zlib

import ec_server
import pytest
from conftest import picture, settle
from PIL import Image
from test_http import Wire, head

MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def server(start):
    with start("--request-timeout-ms", 120000) as running:
        yield running


def png(width, height, *chunks):
    """Of black pixels, with these chunks before them."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head_of_image = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = zlib.compress(bytes((width + 1) * height), 1)
    more = b"".join(chunk(*c) for c in chunks)
    return b"\x89PNG\r\n\x1a\n" + head_of_image + more + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_the_text_of_an_option_behind_the_bytes_is_not_the_option(server):
    content = picture("option")
    with_option = ec_server.image_item(content, options={"background": "#000000"})
    with_text = [ec_server.image_item(content + text) for text in (b"background=#000000\n", b'{"background":"#000000"}')]
    items = server.encode(with_option, *with_text).json()["items"]
    assert [item["source"] for item in items] == ["computed"] * 3
    assert len({item["key"] for item in items}) == 3


def test_long_files_that_differ_at_their_end_have_each_their_own_embedding(server):
    pixels = bytes(320 * 320 * 3)
    contents = []
    for end in (bytes(3000), b"\xff" * 3000):
        file = io.BytesIO()
        Image.frombytes("RGB", (320, 320), pixels[:-3000] + end).save(file, "PNG", compress_level=0)
        contents.append(file.getvalue())
    first, second = contents
    assert len(first) == len(second) > 300_000 and first[:300_000] == second[:300_000]
    items, tensors = ec_server.read_safetensors(server.encode(*map(ec_server.image_item, contents), accept="*/*").body)
    assert [item["source"] for item in items] == ["computed"] * 2
    assert items[0]["key"] != items[1]["key"] and tensors["item_0"] != tensors["item_1"]


def test_after_one_bad_picture_a_retry_computes_none_of_the_others_again(server):
    items = [ec_server.image_item(content) for content in (picture("a"), picture("b"), picture("c")[:-200], picture("d"))]
    before = server.metric("embercache_stage_seconds_count", stage="encode")
    sources = [[item.get("source") for item in server.encode(*items).json()["items"]] for _ in range(2)]
    assert sources == [["computed", "computed", None, "computed"], ["local", "local", None, "local"]]
    assert server.metric("embercache_stage_seconds_count", stage="encode") == before + 3


@pytest.fixture
def silent():
    """An address where connections are accepted and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = []

        def accept():
            while True:
                try:
                    held.append(listener.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        yield "redis://127.0.0.1:%d" % listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()


def test_probes_are_answered_with_a_full_queue_and_a_store_that_says_nothing(start, silent):
    items = [ec_server.image_item(picture(f"queued-{i}", size=(448, 448))) for i in range(64)]
    store = ("--enable-mm-global-cache", "--mm-global-cache-backend", "redis")
    config = ("--mm-global-cache-config", json.dumps({"url": silent}))
    with start(*store, *config, "--request-timeout-ms", 600000) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(server.encode, *items)
        server.wait_metric(1, "embercache_stage_seconds_count", stage="encode")
        assert server.request("GET", "/health").status == 200
        ready = server.request("GET", "/ready")
        assert (ready.status, ready.json()["store"]) == (200, "down")
        assert not answer.done(), "the probes waited for the encoder"
        for _ in range(100):  # given up before they are answered
            with Wire(server) as wire:
                wire.send(head("GET", "/ready"))
        assert [item["source"] for item in answer.result().json()["items"]] == ["computed"] * 64
        assert server.metric("embercache_items_total") == 64
        assert server.metric("embercache_item_errors_total") == 0
        # What could not be written is counted.
        server.wait_metric(64, "embercache_published_total", result="failed")
        log = server.log_text()
    # What fails for the store is said now and then, not for each item.
    assert 1 <= sum("redis: " in line for line in log.splitlines()) < 10


def peak_bytes(server):
    """The most memory that it has had so far."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def test_bodies_over_the_limit_take_no_memory_and_leave_nothing(start):
    body = json.dumps({"items": [ec_server.image_item(picture("limit"))]}).encode()
    chunk = b"%x\r\n%s\r\n" % (50_000, bytes(50_000))
    with start("--max-body-mb", 1) as server:
        assert server.encode(ec_server.image_item(picture("warm"))).status == 200
        settle(server)
        entries = server.request("GET", "/v1/stats").json()["pools"][0]["entries"]
        before = peak_bytes(server)
        for headers, sent, status in (
            ({"Content_Length": 5 * MEGABYTE}, body.ljust(5 * MEGABYTE), 413),
            ({"Transfer_Encoding": "chunked"}, chunk * 100, 413),
            ({"Transfer_Encoding": "chunked"}, b"ffffffffffffffff\r\n" + bytes(5 * MEGABYTE), 413),
            ({"Content_Length": 10}, bytes(5 * MEGABYTE), 400),
            ({"Content_Length": len(body) + 100}, body, None),
        ):
            with Wire(server) as wire:
                wire.send(head(**headers))
                try:
                    wire.socket.sendall(sent)
                    wire.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # the server has answered and closed
                assert status is None or wire.read().status == status, headers
        settle(server)
        assert peak_bytes(server) - before < 8 * MEGABYTE
        assert server.request("GET", "/v1/stats").json()["pools"][0]["entries"] == entries


def test_pictures_that_unfold_to_much_take_no_memory_also_many_at_once(start):
    frames = io.BytesIO()
    many = [Image.new("P", (1000, 1000), i % 2) for i in range(200)]
    many[0].save(frames, "GIF", save_all=True, append_images=many[1:], disposal=2, optimize=False)
    text = png(500, 400, (b"zTXt", b"a\0\0" + zlib.compress(bytes(256 << 20), 1)))
    contents = {png(15000, 15000): {413}, png(1, 60000): {200}, frames.getvalue(): {200}, text: {200, 400}}
    with start("--max-pixels", 2 * MEGABYTE, "--request-timeout-ms", 120000) as server:
        server.encode(*(ec_server.image_item(picture(f"warm-{i}")) for i in range(8)))
        before = peak_bytes(server)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for content, statuses in contents.items():
                # Each another key, so that each is worked on.
                items = [ec_server.image_item(content, options={"background": f"#00000{i}"}) for i in range(8)]
                assert {answer.status for answer in pool.map(server.encode, items)} <= statuses
        # All of a single one of them would be more.
        assert peak_bytes(server) - before < 150 * MEGABYTE


def test_servers_that_are_killed_leave_no_shared_memory_and_the_next_one_starts(start):
    def segments():
        return sorted(os.listdir("/dev/shm"))

    before = segments()
    for _ in range(3):
        with start() as server:
            assert server.encode(ec_server.image_item(picture("killed"))).status == 200
            files = [os.readlink(file) for file in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()]
            assert not any(file.startswith("/dev/shm/") for file in files)
            server.stop(signal.SIGKILL)
    assert segments() == before
