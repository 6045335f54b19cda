"""Memory stays within what docs/performance.md says."""
import concurrent.futures
import io

import ec_server
from conftest import picture
from PIL import Image

POOL_GB = 0.1
ALLOWED_BYTES = 200_000_000


def test_resident_memory_stays_within_pool_and_model_and_200_mb(start):
    items = [ec_server.image_item(picture(f"rss-{i}", size=(1024, 768))) for i in range(16)]
    with start("--mm-global-cache-size-gb", POOL_GB, "--request-timeout-ms", 120000) as server:
        # The pool is in memory from the start, so it is part of what there is after one warm-up.
        server.encode(items[0])
        warm = server.rss_bytes()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(4):
                for answer in pool.map(lambda i: server.encode(*items[i::4], accept="*/*"), [0, 1, 2, 3] * 2):
                    assert answer.status == 200
        assert server.rss_bytes() - warm < ALLOWED_BYTES


def test_a_picture_of_too_many_pixels_costs_no_memory(start):
    # A few kilobytes that stand for 1.2 GB of pixels.
    file = io.BytesIO()
    Image.new("L", (20000, 20000)).save(file, "PNG")
    huge = file.getvalue()
    with start("--max-pixels", 1_000_000) as server:
        server.encode(ec_server.image_item(picture("small")))
        server.encode(ec_server.image_item(huge))
        before = server.rss_bytes()
        for _ in range(5):
            assert server.encode(ec_server.image_item(huge)).status == 413
        assert server.rss_bytes() - before < 16_000_000


def test_the_host_cache_evicts_and_serves_on_when_it_is_full(start):
    # 0.006 GB is less than 10 embeddings of 0.6 MB.
    contents = [picture(f"evict-{i}") for i in range(30)]
    with start("--mm-global-cache-size-gb", 0.006, "--request-timeout-ms", 120000) as server:
        for content in contents:
            assert server.encode(ec_server.image_item(content)).json()["items"][0]["source"] == "computed"
        assert server.metric("embercache_evictions_total") > 0
        assert server.encode(ec_server.image_item(contents[-1])).json()["items"][0]["source"] == "local"


def test_a_request_larger_than_the_pool_is_served(start):
    items = [ec_server.image_item(picture(f"over-{i}")) for i in range(30)]
    with start("--mm-global-cache-size-gb", 0.003, "--request-timeout-ms", 120000) as server:
        answer = server.encode(*items, accept="*/*")
        described, tensors = ec_server.read_safetensors(answer.body)
        assert [item["source"] for item in described] == ["computed"] * 30
        assert len(set(tensors.values())) == 30
        assert server.metric("embercache_uncached_total") > 0
