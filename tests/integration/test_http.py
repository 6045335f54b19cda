"""HTTP as clients and attackers speak it."""
import json
import socket

import ec_server
import pytest
from conftest import picture

IMAGE = ec_server.image_item(picture("http"))
BODY = json.dumps({"items": [IMAGE]}).encode()
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def server(start):
    with start("--max-body-mb", 2) as running:
        yield running


class Wire:
    """A connection whose bytes the test writes itself."""

    def __init__(self, server):
        self.socket = socket.create_connection((server.host, server.port), timeout=ec_server.START_SECONDS)
        self.file = self.socket.makefile("rb")

    def send(self, text, body=b""):
        self.socket.sendall(text.replace("\n", "\r\n").encode() + body)

    def read(self, has_body=True):
        status = int(self.file.readline().split()[1])
        headers = {}
        while line := self.file.readline().strip().decode():
            name, value = line.split(": ", 1)
            headers[name] = value
        size = int(headers.get("Content-Length", 0)) if has_body else 0
        return ec_server.Answer(status, headers, self.file.read(size))

    def closed(self):
        return self.file.read(1) == b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()


def head(method="POST", path="/v1/encode", **headers):
    fields = {"Host": "localhost", "Accept": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return f"{method} {path} HTTP/1.1\n" + "".join(f"{k}: {v}\n" for k, v in fields.items()) + "\n"


def test_unknown_routes_are_404(server):
    for path in ("//", "/v1", "/v1/cache", "/openapi.yaml", "/v1/encode/", "/v1/encodes", "/health/x", "/%2e%2e"):
        answer = server.request("GET", path)
        assert (answer.status, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "method, path, allow",
    [("GET", "/v1/encode", "POST"), ("PUT", "/v1/encode", "POST"), ("POST", "/health", "GET"), ("DELETE", "/metrics", "GET")],
)
def test_wrong_methods_are_405_with_allow(server, method, path, allow):
    answer = server.request(method, path)
    assert answer.status == 405
    assert allow in answer.headers["Allow"].split(", ")
    assert answer.json()["error"]["code"] == "INVALID"


@pytest.mark.parametrize(
    "method, path, headers, body, status",
    [
        ("GET", "/health", {}, b"", 200),
        ("GET", "/nowhere", {}, b"", 404),
        ("GET", "/v1/encode", {}, b"", 405),
        ("POST", "/v1/encode", {}, b"{", 400),
        ("POST", "/v1/encode", {}, bytes(2 * MEGABYTE + 1), 413),
        ("POST", "/v1/encode", {"Origin": "https://evil.example"}, BODY, 403),
    ],
)
def test_the_request_id_comes_back_whatever_the_answer(server, method, path, headers, body, status):
    answer = server.request(method, path, body, headers | {"X-Request-Id": "trace-7"})
    assert (answer.status, answer.headers["X-Request-Id"]) == (status, "trace-7")


@pytest.mark.parametrize("wrong", [{}, {"X-Request-Id": "a b"}])
def test_a_request_that_is_refused_without_an_id_gets_one(server, wrong):
    answer = server.request("POST", "/v1/encode", b"{", wrong)
    assert answer.status == 400
    assert answer.headers["X-Request-Id"] not in ("", "a b")


def test_head_has_the_headers_of_get_and_no_body(server):
    with Wire(server) as wire:
        wire.send(head("HEAD", "/health"))
        answer = wire.read(has_body=False)
        wire.send(head("GET", "/health"))
        assert (answer.status, answer.headers) == (200, wire.read().headers)


@pytest.mark.parametrize("path", ["/v1/encode", "*"])
def test_options_names_the_methods(server, path):
    answer = server.request("OPTIONS", path)
    assert answer.status == 204
    assert "POST" in answer.headers["Allow"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "169.254.169.254:80"},
        {"Host": "localhost", "Origin": "https://evil.example"},
        {"Host": "localhost", "Origin": "null"},
        {"Host": "localhost", "Origin": "http://localhost.evil.example"},
    ],
)
def test_requests_of_foreign_pages_are_refused(server, headers):
    with Wire(server) as wire:
        wire.send("GET /v1/stats HTTP/1.1\n" + "".join(f"{k}: {v}\n" for k, v in headers.items()) + "\n")
        assert wire.read().status == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:80", "app.localhost"])
def test_requests_of_local_pages_are_served(server, host):
    with Wire(server) as wire:
        wire.send(f"GET /v1/stats HTTP/1.1\nHost: {host}\nOrigin: http://localhost:3000\n\n")
        assert wire.read().status == 200


def test_a_request_without_exactly_one_host_is_refused(server):
    for head_lines in ("", "Host: localhost\nHost: localhost\n"):
        with Wire(server) as wire:
            wire.send(f"GET /v1/stats HTTP/1.1\n{head_lines}\n")
            assert wire.read().status == 400


def test_a_target_in_absolute_form_is_served_and_its_host_counts(server):
    with Wire(server) as wire:
        wire.send("GET http://localhost:80/health HTTP/1.1\nHost: evil.example\n\n")
        assert wire.read().json() == {"status": "ok"}
        wire.send("GET http://evil.example/health HTTP/1.1\nHost: localhost\n\n")
        assert wire.read().status == 403


@pytest.mark.parametrize(
    "content_type, part",
    [
        ("multipart/form-data", "without a boundary"),
        ('multipart/form-data; boundary=""', "0 characters"),
        ("multipart/form-data; boundary=" + "a" * 71, "71 characters"),
        ("multipart/mixed; boundary=a", "multipart/mixed"),
    ],
)
def test_a_form_without_a_usable_boundary_is_refused_for_that(server, content_type, part):
    answer = server.request("POST", "/v1/encode", BODY, {"Content-Type": content_type})
    assert answer.status == 400
    assert part in answer.json()["error"]["message"]


def test_a_connection_serves_many_requests(server):
    with Wire(server) as wire:
        for _ in range(3):
            wire.send(head(Content_Length=len(BODY)), BODY)
            assert wire.read().status == 200


def test_pipelined_requests_are_answered_in_order(server):
    with Wire(server) as wire:
        wire.send(head(Content_Length=len(BODY)), BODY + (head("GET", "/health") * 2).replace("\n", "\r\n").encode())
        assert "items" in wire.read().json()
        assert wire.read().json() == {"status": "ok"}
        assert wire.read().json() == {"status": "ok"}


def test_connection_close_is_honoured(server):
    with Wire(server) as wire:
        wire.send(head("GET", "/health", Connection="close"))
        assert wire.read().headers["Connection"] == "close"
        assert wire.closed()


def test_a_chunked_body_is_served(server):
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(BODY[i : i + 1000]), BODY[i : i + 1000]) for i in range(0, len(BODY), 1000))
    with Wire(server) as wire:
        wire.send(head(Transfer_Encoding="chunked"), chunks + b"0\r\n\r\n")
        assert "error" not in wire.read().json()["items"][0]
        wire.send(head("GET", "/health"))
        assert wire.read().status == 200


def test_extensions_and_trailers_of_a_chunked_body_are_passed_over(server):
    with Wire(server) as wire:
        wire.send(head(Transfer_Encoding="chunked", Trailer="X-Sum"), b"%x;a=b\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n" % (len(BODY), BODY))
        assert wire.read().status == 200
        wire.send(head("GET", "/health"))
        assert wire.read().status == 200


@pytest.mark.parametrize("begin", [b"5;", b"0\r\nX-Sum: "], ids=["extension", "trailer"])
def test_an_endless_extension_or_trailer_is_refused_and_takes_no_memory(server, begin):
    before = server.rss_bytes()
    with Wire(server) as wire:
        wire.send(head(Transfer_Encoding="chunked"), begin)
        try:
            for _ in range(100):
                wire.socket.sendall(b"a" * MEGABYTE)
        except ConnectionError:
            pass  # the server has answered and closed
        assert server.rss_bytes() - before < 20 * MEGABYTE
        assert wire.read().status == 400


def test_malformed_chunks_are_refused(server):
    with Wire(server) as wire:
        wire.send(head(Transfer_Encoding="chunked"), b"zz\r\nhello\r\n0\r\n\r\n")
        assert wire.read().status == 400
        assert wire.closed()


def test_a_transfer_coding_that_is_not_served_is_501_and_the_connection_closed(server):
    with Wire(server) as wire:
        wire.send(head(Transfer_Encoding="gzip, chunked"), b"0\r\n\r\n" + head("GET", "/health").encode())
        answer = wire.read()
        assert (answer.status, answer.json()["error"]["code"]) == (501, "UNIMPLEMENTED")
        assert wire.closed()


def test_a_client_that_sends_no_more_gets_its_answer(server):
    with Wire(server) as wire:
        wire.send(head(Content_Length=len(BODY)), BODY)
        wire.socket.shutdown(socket.SHUT_WR)
        answer = wire.read()
        while answer.status == 100:  # whether it is still there
            answer = wire.read()
        assert answer.status == 200
        assert wire.closed()


def test_expect_continue_is_answered_before_the_body(server):
    with Wire(server) as wire:
        wire.send(head(Content_Length=len(BODY), Expect="100-continue"))
        assert wire.file.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert wire.file.readline() == b"\r\n"
        wire.socket.sendall(BODY)
        assert wire.read().status == 200


@pytest.mark.parametrize("version, expectation", [("1.0", "100-continue"), ("1.1", "something-else"), ("1.1", "")])
def test_other_expectations_are_passed_over(server, version, expectation):
    with Wire(server) as wire:
        wire.send(head(Content_Length=len(BODY), Expect=expectation).replace("HTTP/1.1", f"HTTP/{version}"), BODY)
        assert wire.read().status == 200


def test_expect_continue_of_a_body_that_is_too_large_is_413_at_once(server):
    with Wire(server) as wire:
        wire.send(head(Content_Length=50 * MEGABYTE, Expect="100-continue"))
        assert wire.read().status == 413
        assert wire.closed()


def test_a_body_of_exactly_the_limit_is_read(server):
    body = BODY + b" " * (2 * MEGABYTE - len(BODY))
    assert server.request("POST", "/v1/encode", body).status == 200
    assert server.request("POST", "/v1/encode", body + b" ").status == 413


@pytest.mark.parametrize("size", [2 * MEGABYTE + 1, 3 * MEGABYTE, 40 * MEGABYTE])
def test_a_body_over_the_limit_is_413_for_a_client_that_sends_it_all_first(server, size):
    with Wire(server) as wire:
        wire.send(head(Content_Length=size))
        try:
            wire.socket.sendall(bytes(size))
        except ConnectionError:
            pass  # the server has answered and closed
        answer = wire.read()
        assert answer.status == 413
        assert answer.json()["error"]["code"] == "RESOURCE_EXHAUSTED"
        assert str(2 * MEGABYTE) in answer.json()["error"]["message"]


def test_an_endless_chunked_body_is_cut_at_the_limit(server):
    chunk = b"%x\r\n%s\r\n" % (100_000, b" " * 100_000)
    with Wire(server) as wire:
        wire.send(head(Transfer_Encoding="chunked"))
        try:
            for _ in range(400):
                wire.socket.sendall(chunk)
        except ConnectionError:
            pass  # the server has answered and closed
        assert wire.read().status == 413


def test_a_body_that_ends_early_is_no_request(server):
    before = server.metric("embercache_items_total")
    with Wire(server) as wire:
        wire.send(head(Content_Length=len(BODY) + 100), BODY)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.closed()
    assert server.metric("embercache_items_total") == before


@pytest.mark.parametrize(
    "text, status",
    [
        ("hello\n\n", 400),
        ("GET /health HTTP/9.9\n\n", 400),
        ("GET /health HTTP/1.1\nHost localhost\n\n", 400),
        ("GET /health HTTP/1.1\nHost: localhost\nX: " + "a" * 20_000 + "\n\n", 431),
        ("POST /v1/encode HTTP/1.1\nHost: localhost\nContent-Length: 5\nContent-Length: 6\n\n", 400),
        ("POST /v1/encode HTTP/1.1\nHost: localhost\nContent-Length: -1\n\n", 400),
        ("POST /v1/encode HTTP/1.1\nHost: localhost\nContent-Length: 99999999999999999999\n\n", 400),
        ("POST /v1/encode HTTP/1.1\nHost: localhost\nContent-Length: 5\nTransfer-Encoding: chunked\n\n", 400),
    ],
)
def test_what_is_no_http_is_refused_and_the_connection_closed(server, text, status):
    with Wire(server) as wire:
        wire.send(text)
        answer = wire.read()
        assert answer.status == status
        assert answer.json()["error"]["code"] == "INVALID"
        assert wire.closed()


def test_a_compressed_body_is_refused(server):
    answer = server.request("POST", "/v1/encode", BODY, {"Content-Encoding": "gzip"})
    assert answer.status == 415
    assert "gzip" in answer.json()["error"]["message"]


def test_a_refused_request_with_a_small_body_leaves_the_connection_usable(server):
    with Wire(server) as wire:
        wire.send(head(path="/nowhere", Content_Length=len(BODY)), BODY)
        assert wire.read().status == 404
        wire.send(head("GET", "/health"))
        assert wire.read().status == 200


def test_a_client_that_leaves_before_its_answer_harms_nobody(server):
    for _ in range(20):
        with Wire(server) as wire:
            wire.send(head(Content_Length=len(BODY)), BODY)
    assert server.encode(IMAGE).status == 200


def test_a_server_on_ipv6_loopback_works(start):
    with start("--host", "::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert server.encode(IMAGE).status == 200
