"""What is wrong with a request or an item is said, in the item that is wrong; the others are served."""
import base64
import json
import os
import struct
import zlib

import ec_server
import pytest
from conftest import global_cache, picture, settle


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("media")
    (folder / "good.png").write_bytes(picture("good"))
    (folder / "large.bin").write_bytes(bytes(3_000_000))
    (folder / "inside.png").symlink_to("good.png")
    (folder / "outside.png").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture(scope="module")
def server(start, root, tmp_path_factory):
    flags = ("--max-items", 8, "--max-body-mb", 2, "--max-pixels", 1_000_000, "--media-root", root)
    with start(*global_cache(tmp_path_factory.mktemp("store")), *flags) as running:
        yield running


def bombs_png(width, height):
    """A PNG that claims a size."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def data(content):
    return base64.b64encode(content).decode()


GOOD = ec_server.image_item(picture("good"))
JPEG = picture("jpeg", size=(200, 100), kind="JPEG")
BAD_ITEMS = {
    "empty": (ec_server.image_item(b""), 400, "INVALID", "empty"),
    "not an image": (ec_server.image_item(b"<html>hello</html>"), 400, "INVALID", ""),
    "truncated": (ec_server.image_item(JPEG[: len(JPEG) // 2]), 400, "INVALID", "jpeg"),
    "almost nothing of a jpeg": (ec_server.image_item(JPEG[:20]), 400, "INVALID", ""),
    "without its end": (ec_server.image_item(JPEG[:-128]), 400, "INVALID", "jpeg"),
    "too many pixels": (ec_server.image_item(bombs_png(20_000, 20_000)), 413, "RESOURCE_EXHAUSTED", "1000000"),
    "absurd size": (ec_server.image_item(bombs_png(2**31 - 1, 2**31 - 1)), (400, 413), None, ""),
    "no base64": ({"type": "image", "data": "@@@@"}, 400, "INVALID", "character 0"),
    "cut base64": ({"type": "image", "data": "AAAAA"}, 400, "INVALID", "cut short"),
    "no type": ({"data": data(JPEG)}, 400, "INVALID", "'type' is missing"),
    "unknown type": ({"type": "smell", "data": data(JPEG)}, 400, "INVALID", "'smell'"),
    "type of a kind that no model serves": ({"type": "video", "data": data(JPEG)}, 415, "UNIMPLEMENTED", "'video'"),
    "no source": ({"type": "image"}, 400, "INVALID", "data, url, path"),
    "two sources": ({"type": "image", "data": data(JPEG), "path": "good.png"}, 400, "INVALID", "only one"),
    "unknown field": ({"type": "image", "data": data(JPEG), "colour": 1}, 400, "INVALID", "'colour'"),
    "data of another type": ({"type": "image", "data": 7}, 400, "INVALID", "'data' has to be a string"),
    "no object": ("image", 400, "INVALID", "has to be an object"),
    "null": (None, 400, "INVALID", "has to be an object"),
    "unknown option": (ec_server.image_item(JPEG, options={"blur": 1}), 400, "INVALID", "blur"),
    "wrong option value": (ec_server.image_item(JPEG, options={"background": "green"}), 400, "INVALID", "background"),
    "options of another type": (ec_server.image_item(JPEG, options=[]), 400, "INVALID", "'options'"),
    "sha256 that is none": (ec_server.image_item(JPEG, sha256="12"), 400, "INVALID", "'sha256'"),
    "sha256 of other bytes": (ec_server.image_item(JPEG, sha256="ab" * 32), 400, "INVALID", "abab"),
    "url that is fetched": ({"type": "image", "url": "http://127.0.0.1:9/x.png"}, 400, "INVALID", "data: URL"),
    "url of a file": ({"type": "image", "url": "file:///etc/passwd"}, 400, "INVALID", "data: URL"),
    "data url without base64": ({"type": "image", "url": "data:image/png,abc"}, 400, "INVALID", "base64"),
    "path that is not there": ({"type": "image", "path": "nothing.png"}, 400, "INVALID", "--media-root"),
    "path outside": ({"type": "image", "path": "/etc/passwd"}, 400, "INVALID", "--media-root"),
    "path that climbs": ({"type": "image", "path": "../../../../etc/passwd"}, 400, "INVALID", "--media-root"),
    "path that a link leads outside": ({"type": "image", "path": "outside.png"}, 400, "INVALID", "--media-root"),
    "path of a pipe": ({"type": "image", "path": "pipe"}, 400, "INVALID", "--media-root"),
    "path of a folder": ({"type": "image", "path": "."}, 400, "INVALID", "--media-root"),
    "path with a zero": ({"type": "image", "path": "good.png\0"}, 400, "INVALID", "--media-root"),
    "path of a large file": ({"type": "image", "path": "large.bin"}, 413, "RESOURCE_EXHAUSTED", "2000000"),
}


@pytest.mark.parametrize("name", BAD_ITEMS)
def test_a_bad_item_alone_fails_the_request_with_its_error(server, name):
    item, status, code, part = BAD_ITEMS[name]
    answer = server.encode(item)
    assert answer.status in (status if isinstance(status, tuple) else (status,))
    error = answer.json()["error"]
    assert code is None or error["code"] == code
    assert error["message"].startswith("item 0: ")
    assert part in error["message"]
    assert answer.json()["items"][0]["error"] == error
    tensors = server.encode(item, accept="*/*")
    assert tensors.status == answer.status
    assert tensors.headers["Content-Type"] == "application/json"
    assert tensors.json()["error"] == error


def test_bad_items_leave_the_others_alone(server):
    for bad, *_ in BAD_ITEMS.values():
        answer = server.encode(GOOD, bad, GOOD, accept="*/*")
        assert answer.status == 200
        items, tensors = ec_server.read_safetensors(answer.body)
        assert "error" not in items[0] and "error" not in items[2]
        assert items[1]["error"]["message"].startswith("item 1: ")
        assert sorted(tensors) == ["item_0", "item_2"]


def test_what_cannot_be_decoded_is_not_cached(server):
    item = ec_server.image_item(JPEG[: len(JPEG) // 3])
    inserted = server.metric("embercache_insert_total")
    entries = server.request("GET", "/v1/stats").json()["pools"][0]["entries"]
    for _ in range(3):
        assert server.encode(item).status == 400
    assert server.metric("embercache_insert_total") == inserted
    assert server.request("GET", "/v1/stats").json()["pools"][0]["entries"] == entries


def test_a_bad_image_that_comes_twice_has_the_same_error_twice(server):
    answer = server.encode(*[ec_server.image_item(JPEG[:-200])] * 2)
    first, second = (item["error"] for item in answer.json()["items"])
    assert first["code"] == second["code"] == "INVALID"
    assert first["message"].replace("item 0", "") == second["message"].replace("item 1", "")


def test_paths_inside_the_media_root_are_served(server, root):
    answer = server.encode(*({"type": "image", "path": p} for p in ("good.png", "inside.png", str(root / "good.png"))))
    assert [item.get("error") for item in answer.json()["items"]] == [None] * 3


def test_without_a_media_root_paths_are_refused(start):
    with start() as server:
        answer = server.encode({"type": "image", "path": "/etc/passwd"})
        assert answer.status == 400
        assert "no --media-root" in answer.json()["error"]["message"]


BAD_BODIES = {
    "nothing": (b"", "not JSON"),
    "no JSON": (b"hello", "JSON"),
    "cut off": (b'{"items":[{"type":"image","data":"AAAA"', "not JSON"),
    "two values": (b'{"items":[]} {}', "not JSON"),
    "no UTF-8": (b'{"items":[],"model":"\xff"}', "not JSON"),
    "array": (b"[]", "object"),
    "no items": (b"{}", "'items'"),
    "empty items": (b'{"items":[]}', "'items'"),
    "items of another type": (b'{"items":{}}', "'items' has to be an array"),
    "unknown field": (b'{"items":[],"images":[]}', "'images'"),
    "field twice": (b'{"items":[],"items":[]}', "twice"),
    "request_id of another type": (b'{"request_id":5,"items":[]}', "'request_id' has to be a string"),
    "request_id with a line break": (b'{"request_id":"a\\r\\nX: y","items":[{}]}', "'request_id'"),
    "unknown model": (b'{"model":"gpt","items":[{}]}', "det16"),
    "deep nesting": (b'{"items":' + b"[" * 5000 + b"]" * 5000 + b"}", ""),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused_as_a_whole(server, name):
    body, part = BAD_BODIES[name]
    answer = server.request("POST", "/v1/encode", body)
    assert answer.status == 400
    assert set(answer.json()["error"]) == {"code", "message"}
    assert answer.json()["error"]["code"] == "INVALID"
    assert part in answer.json()["error"]["message"]


@pytest.mark.parametrize("count", [9, 1000])
def test_too_many_files_of_a_form_are_refused(server, count):
    part = b'--X\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nx\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=X"}
    answer = server.request("POST", "/v1/encode", part * count + b"--X--\r\n", headers)
    assert (answer.status, answer.json()["error"]["code"]) == (413, "RESOURCE_EXHAUSTED")


def test_a_long_value_is_not_repeated_in_full(server):
    answer = server.encode(GOOD, model="m" * 100_000 + "n")
    assert answer.status == 400
    assert len(answer.body) < 1000
    assert "'mmm" in answer.json()["error"]["message"] and "mn'; it has to be one of det16" in answer.json()["error"]["message"]


def test_too_many_items_are_refused(server):
    answer = server.encode(*[GOOD] * 9)
    assert answer.status == 413
    assert answer.json()["error"]["code"] == "RESOURCE_EXHAUSTED"
    assert "8" in answer.json()["error"]["message"]
    assert server.encode(*[GOOD] * 8).status == 200


def test_a_request_with_every_fault_at_once_still_answers_per_item(server):
    names = list(BAD_ITEMS)
    for i in range(0, len(names), 8):
        items = [BAD_ITEMS[name][0] for name in names[i : i + 8]]
        answer = server.encode(*items)
        assert len(answer.json()["items"]) == len(items)
        assert answer.json()["error"] == answer.json()["items"][0]["error"]


def test_the_server_is_well_after_all_that(server):
    assert server.encode(GOOD).status == 200
    settle(server)
    assert json.loads(server.request("GET", "/health").body) == {"status": "ok"}
