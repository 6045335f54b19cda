"""Raw format through Python, on a Mooncake client of ours that keeps objects in a folder."""
import hashlib
import os
import time

import numpy
import pytest

from embercache import sglang

LIBRARY = os.environ["FAKE_MOONCAKE_LIBRARY"]
ROWS = numpy.arange(300 * 64, dtype=numpy.float32).reshape(300, 64)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_MOONCAKE_DIR", str(tmp_path))
    monkeypatch.setenv("EMBERCACHE_LOOKUP_TIMEOUT_MS", "60000")
    monkeypatch.delenv("EMBERCACHE_NAMESPACE", raising=False)
    return tmp_path


@pytest.fixture
def store(folder):
    opened = sglang.MooncakeEmbeddingStore(format="raw", bridge="library", library=LIBRARY)
    wait_until(lambda: opened.native.health[0] == "up")
    yield opened
    opened.close()


def file_of(folder, key):
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}.object"


def test_a_store_puts_and_gets_the_rows_alone_under_the_hash_as_it_is(store, folder):
    assert store.get_key("17") == "emb_17"
    assert store.batch_put(["17"], [ROWS.ctypes.data], [ROWS.nbytes]) == [True]
    assert file_of(folder, "emb_17").read_bytes() == ROWS.tobytes()
    got = numpy.zeros_like(ROWS)
    assert store.batch_is_exist(["17", "18"]) == [True, False]
    assert store.batch_get(["17"], [got.ctypes.data], [got.nbytes]) == [True]
    assert numpy.array_equal(got, ROWS)
    assert store.batch_get(["17"], [got.ctypes.data], [got.nbytes - 256]) == [False]


def test_a_controller_shares_its_rows_with_nodes_that_know_no_envelope(store, folder):
    controller = sglang.EmbeddingCacheController(store, 8 / 1024, {"image": 64}, dtype="F32")
    controller.wait_store_to_pool(controller.store_to_pool_async(["17"], [ROWS], "image"))
    controller.insert_batch(["17"], "image")
    wait_until(file_of(folder, "emb_17").exists)
    assert file_of(folder, "emb_17").read_bytes() == ROWS.tobytes()

    file_of(folder, "emb_18").write_bytes((ROWS + 1).tobytes())  # another node's
    controller.prefetch("request", ["18"], [300], "image")
    wait_until(lambda: controller.check_prefetch_progress("request"))
    views = controller.get_pool_views(["18"])[0]
    assert numpy.array_equal(numpy.concatenate([numpy.asarray(view) for view in views]), ROWS + 1)
    controller.release_pool_views(["18"])

