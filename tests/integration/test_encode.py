"""What becomes of an image: computed once, then local, global or joined, and always the same bytes."""
import base64
import concurrent.futures
import hashlib
import json

import ec_server
import pytest
from conftest import global_cache, picture
from safetensors.numpy import load

TOKENS, HIDDEN = 784, 192


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def server(start, store, media):
    with start(*global_cache(store), "--media-root", media) as running:
        yield running


def stages(server):
    """How often the stages of a miss ran."""
    return [server.metric("embercache_stage_seconds_count", stage=s) for s in ("preprocess", "encode")]


def encode_one(server, content, **fields):
    answer = server.encode(ec_server.image_item(content, **fields), accept="*/*")
    assert answer.status == 200, answer.body
    [item], tensors = ec_server.read_safetensors(answer.body)
    return item, tensors["item_0"]


def test_photographs_are_computed_once_then_local_then_global_with_equal_bytes(
    start, tmp_path, media
):
    photographs = [media / name for name in ("china.jpg", "flower.jpg", "chelsea.png", "coffee.png")]
    items = [ec_server.image_item(p.read_bytes()) for p in photographs]

    def ask(node):
        answer = node.encode(*items, accept="*/*")
        assert answer.status == 200
        described, tensors = ec_server.read_safetensors(answer.body)
        return [item["source"] for item in described], tensors

    with start(*global_cache(tmp_path)) as a, start(*global_cache(tmp_path)) as b:
        computed = ask(a)
        local = ask(a)
        a.wait_metric(len(items), "embercache_published_total", result="stored")
        global_ = ask(b)
        assert computed[0] == ["computed"] * 4
        assert local[0] == ["local"] * 4
        assert global_[0] == ["global"] * 4
        assert computed[1] == local[1] == global_[1]
        assert stages(b) == [0, 0]


def test_a_hit_touches_neither_decoder_nor_encoder(server):
    content = picture("hit")
    encode_one(server, content)
    before = stages(server)
    item, _ = encode_one(server, content)
    assert item["source"] == "local"
    assert stages(server) == before


def test_a_restarted_node_finds_its_embeddings_in_the_store(start, tmp_path):
    content = picture("restart")
    with start(*global_cache(tmp_path)) as first:
        _, computed = encode_one(first, content)
        assert first.stop() == 0
    with start(*global_cache(tmp_path)) as second:
        item, found = encode_one(second, content)
    assert item["source"] == "global"
    assert found == computed


def test_an_image_that_comes_twice_in_a_request_is_computed_once(server):
    content = picture("twice")
    before = stages(server)
    answer = server.encode(*[ec_server.image_item(content)] * 2, accept="*/*")
    items, tensors = ec_server.read_safetensors(answer.body)
    assert sorted(item["source"] for item in items) == ["computed", "joined"]
    assert tensors["item_0"] == tensors["item_1"]
    assert stages(server) == [count + 1 for count in before]


def test_concurrent_requests_for_one_image_compute_it_once(server):
    content = picture("concurrent", size=(640, 480))
    before = stages(server)
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: encode_one(server, content), range(10)))
    assert len({tensor for _, tensor in answers}) == 1
    assert [item["source"] for item, _ in answers].count("computed") == 1
    assert stages(server) == [count + 1 for count in before]


def test_a_json_answer_has_the_fields_of_the_item_and_no_tensor(server):
    content = picture("fields", size=(30, 20))
    answer = server.encode(ec_server.image_item(content), request_id="r-1")
    assert answer.headers["Content-Type"] == "application/json"
    assert list(answer.json()) == ["request_id", "items"]
    assert answer.json()["request_id"] == "r-1"
    [item] = answer.json()["items"]
    assert list(item) == ["key", "source", "shape", "dtype", "bytes", "metadata", "ms"]
    assert len(bytes.fromhex(item["key"])) == 32
    assert item["shape"] == [TOKENS, HIDDEN]
    assert item["dtype"] == "F32"
    assert item["bytes"] == TOKENS * HIDDEN * 4
    assert (item["metadata"]["width"], item["metadata"]["height"]) == (30, 20)
    assert list(item["ms"]) == ["lookup", "fetch", "preprocess", "encode", "total"]
    assert item["ms"]["total"] >= item["ms"]["preprocess"] + item["ms"]["encode"] > 0


def test_any_other_accept_gives_safetensors_that_the_library_reads(server):
    contents = [picture("st-1"), picture("st-2")]
    answer = server.encode(*map(ec_server.image_item, contents), accept="*/*")
    assert answer.headers["Content-Type"] == "application/vnd.safetensors"
    assert int.from_bytes(answer.body[:8], "little") % 8 == 0
    tensors = load(answer.body)
    assert set(tensors) == {"item_0", "item_1"}
    assert all(t.shape == (TOKENS, HIDDEN) and t.dtype == "float32" for t in tensors.values())
    items, raw = ec_server.read_safetensors(answer.body)
    assert [item["bytes"] for item in items] == [len(t) for t in raw.values()]
    keys = [item["key"] for item in server.encode(*map(ec_server.image_item, contents)).json()["items"]]
    assert [item["key"] for item in items] == keys


def test_a_caller_without_request_id_gets_one_also_in_the_header(server):
    answer = server.encode(ec_server.image_item(picture("id")))
    assert answer.json()["request_id"]
    assert answer.headers["X-Request-Id"] == answer.json()["request_id"]


def test_the_request_id_of_the_header_comes_back(server):
    answer = server.encode(ec_server.image_item(picture("id")), headers={"X-Request-Id": "abc"})
    assert answer.json()["request_id"] == answer.headers["X-Request-Id"] == "abc"


def test_a_request_may_ask_for_a_shorter_deadline(server):
    items = [ec_server.image_item(picture(f"deadline-{i}", size=(448, 448))) for i in range(60)]
    answer = server.encode(*items, headers={"X-Request-Timeout-Ms": "1"})
    assert answer.status in (503, 504)
    assert server.encode(items[0], headers={"X-Request-Timeout-Ms": "soon"}).status == 400


def test_other_bytes_or_options_have_another_key_and_are_computed(server):
    content = picture("options")
    keys = set()
    for options in ({}, {"background": "#000000"}, {"apply_exif_orientation": False}):
        item, _ = encode_one(server, content, options=options)
        assert item["source"] == "computed"
        keys.add(item["key"])
    item, _ = encode_one(server, content + b"\0")
    keys.add(item["key"])
    assert len(keys) == 4


def test_default_options_have_the_key_of_none(server):
    content = picture("default-options")
    first, _ = encode_one(server, content)
    second, _ = encode_one(server, content, options={"background": "#FFFFFF"})
    assert first["key"] == second["key"]


def test_bytes_in_a_data_url_in_escaped_json_and_from_a_path_are_one_item(server, media):
    content = (media / "china.jpg").read_bytes()
    text = base64.b64encode(content).decode()
    first, tensor = encode_one(server, content)
    url = {"type": "image", "url": "data:image/gif;base64," + text}
    path = {"type": "image", "path": "china.jpg"}
    absolute = {"type": "image", "path": str(media / "china.jpg")}
    items, tensors = ec_server.read_safetensors(server.encode(url, path, absolute, accept="*/*").body)
    escaped = json.dumps({"items": [{"type": "image", "data": text}]}).replace("/", "\\/")
    answer = server.request("POST", "/v1/encode", escaped, {"Accept": "application/json"})
    assert {item["key"] for item in items + answer.json()["items"]} == {first["key"]}
    assert set(tensors.values()) == {tensor}


def test_files_of_a_form_are_items_in_order(server, media):
    contents = [(media / name).read_bytes() for name in ("china.jpg", "flower.jpg")]
    body = b"".join(
        b'--XX\r\nContent-Disposition: form-data; name="f"; filename="liar.txt"\r\n\r\n%s\r\n' % content
        for content in contents
    )
    body += b'--XX\r\nContent-Disposition: form-data; name="request_id"\r\n\r\nform-1\r\n--XX--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=XX", "Accept": "application/json"}
    answer = server.request("POST", "/v1/encode", body, headers)
    assert answer.status == 200
    assert answer.json()["request_id"] == "form-1"
    keys = [item["key"] for item in answer.json()["items"]]
    assert keys == [encode_one(server, content)[0]["key"] for content in contents]


def test_the_declared_sha256_is_checked(server):
    content = picture("sha")
    digest = hashlib.sha256(content).hexdigest()
    encode_one(server, content, sha256=digest)
    encode_one(server, content, sha256=digest.upper())
    answer = server.encode(ec_server.image_item(content, sha256="0" * 64))
    assert answer.status == 400
    assert digest in answer.json()["error"]["message"]


def test_two_models_have_their_own_namespaces(start, model, tmp_path):
    content = picture("models")
    with start("--model", f"second={model}", *global_cache(tmp_path)) as both:
        answers = [both.encode(ec_server.image_item(content), model=m).json()["items"][0] for m in ("det16", "second")]
        assert [a["source"] for a in answers] == ["computed", "computed"]
        assert answers[0]["key"] != answers[1]["key"]
        unnamed = both.encode(ec_server.image_item(content))
        assert unnamed.status == 400
        assert "det16, second" in unnamed.json()["error"]["message"]


@pytest.mark.parametrize("flags", [("--namespace", "tenant-2"), ("--epoch", "2")])
def test_another_namespace_or_epoch_finds_nothing_of_this_one(start, server, store, flags):
    content = picture("tenant")
    first, _ = encode_one(server, content)
    server.wait_metric(1, "embercache_published_total", result="stored")
    with start(*global_cache(store), *flags) as other:
        item, _ = encode_one(other, content)
    assert item["source"] == "computed"
    assert item["key"] != first["key"]


def test_a_size_of_zero_serves_without_a_cache(start):
    content = picture("no cache")
    with start("--mm-global-cache-size-gb", "0", "--request-timeout-ms", "120000") as server:
        first, tensor = encode_one(server, content)
        second, again = encode_one(server, content)
    assert first["source"] == second["source"] == "computed"
    assert tensor == again


def test_without_a_store_hits_are_local(start):
    content = picture("no store")
    with start("--request-timeout-ms", "120000") as server:
        encode_one(server, content)
        assert encode_one(server, content)[0]["source"] == "local"
        assert server.request("GET", "/ready").json()["store"] == "off"
