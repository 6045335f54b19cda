"""Clients that are slow, or do nothing: they are bounded, and keep nothing for themselves. What takes
longer than a test may (rates, idle connections) is in tests/unit/server with shorter times."""
import json
import resource
import socket
import time

import ec_server
import pytest
from conftest import picture, settle, wait_until
from test_http import Wire, head


@pytest.fixture(scope="module")
def server(start):
    with start("--request-timeout-ms", 120000) as running:
        yield running


def test_a_reader_that_stops_is_cut_at_the_requests_deadline_and_its_pins_go(server):
    items = [ec_server.image_item(picture(f"stop-{i}")) for i in range(40)]
    body = json.dumps({"items": items}).encode()
    assert server.encode(*items).status == 200
    with Wire(server) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # 24 MB of answer, of which the kernel takes a part; then nobody reads.
        wire.send(head(Content_Length=len(body), Accept="*/*", X_Request_Timeout_Ms=10000), body)
        assert wire.file.readline().split()[1] == b"200"
        assert server.metric("embercache_pinned_entries") > 0
        wait_until(lambda: server.metric("embercache_pinned_entries") == 0)
        # Reset, so that the kernel does not go on sending for it either.
        with pytest.raises(ConnectionResetError):
            while wire.socket.recv(1 << 20):
                pass
    settle(server)


def test_a_head_that_never_ends_is_cut_and_others_are_served_meanwhile(server):
    wires = [Wire(server) for _ in range(50)]
    try:
        for wire in wires:
            wire.send("GET /health HTTP/1.1\nHost: localhost\nX: ")
        assert server.encode(ec_server.image_item(picture("loris"))).status == 200
        start = time.monotonic()
        open_wires = set(wires)
        while open_wires:  # a byte now and then does not help
            assert time.monotonic() - start < ec_server.START_SECONDS
            for wire in list(open_wires):
                try:
                    wire.socket.sendall(b"a")
                    wire.socket.settimeout(0.001)
                    if wire.socket.recv(1) == b"":
                        open_wires.remove(wire)
                except TimeoutError:
                    pass
                except ConnectionError:
                    open_wires.remove(wire)
            time.sleep(0.2)
    finally:
        for wire in wires:
            wire.file.close()
            wire.socket.close()


def test_a_client_that_vanishes_within_its_body_leaves_nothing_behind(server):
    before = server.open_files()
    for _ in range(20):
        with Wire(server) as wire:
            wire.send(head(Content_Length=1_000_000), b"{" * 1000)
    wait_until(lambda: server.open_files() <= before)
    settle(server)


def test_a_client_that_closes_its_sending_side_early_is_gone(server):
    body = json.dumps({"items": [ec_server.image_item(picture("half"))]}).encode()
    with Wire(server) as wire:
        wire.send(head(Content_Length=len(body) + 1), body)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.closed()


def test_idle_connections_up_to_the_limit_keep_nobody_out(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with start() as server:
        before = server.open_files()
        wires = []
        try:
            for _ in range(1100):  # the limit is 1024
                wires.append(Wire(server))
            assert server.request("GET", "/health").status == 200
            assert wires[0].file.read() == b""  # idle for the longest
        finally:
            for wire in wires:
                wire.file.close()
                wire.socket.close()
        wait_until(lambda: server.open_files() <= before)
        assert server.request("GET", "/health").status == 200


def test_idle_connections_keep_nobody_out_where_there_are_fewer_descriptors_than_the_limit(start):
    with start(prefix=("prlimit", "--nofile=60:60")) as server:
        wires = []
        try:
            for _ in range(100):
                wires.append(Wire(server))
            assert server.request("GET", "/health").status == 200
        finally:
            for wire in wires:
                wire.file.close()
                wire.socket.close()
