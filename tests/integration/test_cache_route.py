"""GET, HEAD and DELETE /v1/cache/{key}: one embedding by its key."""
import ec_server
import pytest
from conftest import global_cache, picture, wait_until
from test_http import Wire, head

NOBODYS = "0" * 64


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def server(start, store):
    with start(*global_cache(store)) as running:
        yield running


@pytest.fixture(scope="module")
def other(start, store):
    """A node of the same store, which has encoded nothing."""
    with start(*global_cache(store)) as running:
        yield running


def encode(server, seed):
    """The item and the bytes of an embedding that is in the store now."""
    stored = server.metric("embercache_published_total")
    answer = server.encode(ec_server.image_item(picture(seed)), accept="*/*")
    assert answer.status == 200
    server.wait_metric(stored + 1, "embercache_published_total")
    [item], tensors = ec_server.read_safetensors(answer.body)
    return item, tensors["item_0"]


def test_the_bytes_are_those_that_were_computed_here_and_on_another_node(server, other):
    item, tensor = encode(server, "get")
    for node, source in ((server, "local"), (other, "global"), (other, "global")):
        answer = node.request("GET", f"/v1/cache/{item['key']}")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/vnd.safetensors")
        [described], tensors = ec_server.read_safetensors(answer.body)
        assert tensors["item_0"] == tensor
        same = ("key", "shape", "dtype", "bytes", "metadata")
        assert [described[field] for field in same] == [item[field] for field in same]
        assert described["source"] == source


def test_a_read_inserts_nothing(server, other):
    item, _ = encode(server, "insert nothing")
    assert other.request("GET", f"/v1/cache/{item['key']}").status == 200

    def pools():
        return other.request("GET", "/v1/stats").json()["pools"]

    assert [pool["entries"]["ready"] for pool in pools()] == [0, 0]
    # The arena has its memory back when the answer is sent.
    wait_until(lambda: all(pool["pages"]["free"] == pool["pages"]["total"] for pool in pools()))


def test_json_describes_without_the_tensor(server):
    item, tensor = encode(server, "json")
    answer = server.request(
        "GET", f"/v1/cache/{item['key']}", headers={"Accept": "application/json", "X-Request-Id": "r-7"}
    )
    assert answer.headers["X-Request-Id"] == answer.json()["request_id"] == "r-7"
    [described] = answer.json()["items"]
    assert (described["key"], described["bytes"]) == (item["key"], len(tensor))


def test_head_has_the_length_and_no_body(server):
    item, tensor = encode(server, "head")
    with Wire(server) as wire:
        wire.send(head("HEAD", f"/v1/cache/{item['key']}", Accept="*/*"))
        answer = wire.read(has_body=False)
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) > len(tensor)
        wire.send(head("GET", "/health"))
        assert wire.read().json() == {"status": "ok"}


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_a_key_that_nobody_has_is_404(server, method):
    answer = server.request(method, f"/v1/cache/{NOBODYS}")
    assert answer.status == 404
    if method != "HEAD":
        assert answer.json()["error"]["code"] == "NOT_FOUND"
        assert NOBODYS in answer.json()["error"]["message"]


@pytest.mark.parametrize("key", ["", "abc", "g" * 64, "0" * 63, "0" * 65, "../" + "0" * 61, "emb_" + "0" * 64])
def test_a_key_that_is_none_is_400_and_says_what_would_be_right(server, key):
    answer = server.request("GET", f"/v1/cache/{key}")
    assert answer.status == 400
    assert "64 hexadecimal digits" in answer.json()["error"]["message"]


def test_delete_takes_it_out_of_the_host_cache_and_the_store(server, other):
    item, _ = encode(server, "delete")
    assert server.request("DELETE", f"/v1/cache/{item['key']}").status == 204
    for node in (server, other):
        assert node.request("GET", f"/v1/cache/{item['key']}").status == 404
    assert server.request("DELETE", f"/v1/cache/{item['key']}").status == 404
    again, _ = encode(server, "delete")
    assert (again["source"], again["key"]) == ("computed", item["key"])


def test_an_embedding_of_another_namespace_is_404_and_stays(server, start, store):
    item, tensor = encode(server, "foreign")
    with start(*global_cache(store), "--namespace", "another tenant") as foreign:
        for method in ("GET", "DELETE"):
            assert foreign.request(method, f"/v1/cache/{item['key']}").status == 404
        assert foreign.metric("embercache_corruptions_total") == 0
    answer = server.request("GET", f"/v1/cache/{item['key']}")
    assert ec_server.read_safetensors(answer.body)[1]["item_0"] == tensor


def test_without_a_store_the_host_cache_alone_is_read(start):
    with start() as server:
        [item] = server.encode(ec_server.image_item(picture("alone"))).json()["items"]
        assert server.request("GET", f"/v1/cache/{item['key']}").status == 200
        assert server.request("GET", f"/v1/cache/{NOBODYS}").status == 404
        assert server.request("DELETE", f"/v1/cache/{item['key']}").status == 204
        assert server.request("GET", f"/v1/cache/{item['key']}").status == 404


def test_reads_are_no_items_of_encode_requests(server):
    item, _ = encode(server, "counted")
    before = server.metric("embercache_items_total")
    requests = server.metric("embercache_requests_total", route="/v1/cache", code="200")
    assert server.request("GET", f"/v1/cache/{item['key']}").status == 200
    assert server.metric("embercache_items_total") == before
    assert server.metric("embercache_requests_total", route="/v1/cache", code="200") == requests + 1
