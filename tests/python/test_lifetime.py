"""Views, forks, threads and the interpreter's end."""
import gc
import threading

import numpy as np
import pytest
from conftest import HIDDEN, PATIENT_S, POOL_BYTES, WATCH_LEAKS, rows, run_python

from embercache import errors


def pinned(cache):
    return cache.stats()["pools"][0]["pinned_entries"]


def test_arrays_share_the_caches_memory_and_hold_it(open_cache):
    cache = open_cache()
    embedding = cache.get_or_compute("h", lambda: rows(1))
    assert embedding.contiguous
    arrays = [embedding.numpy(), np.asarray(embedding), np.from_dlpack(embedding), embedding.runs()[0]]
    addresses = {array.__array_interface__["data"][0] for array in arrays}
    assert len(addresses) == 1
    with pytest.raises(ValueError, match="read-only"):
        arrays[0][0, 0] = 1
    embedding.release()
    with pytest.raises(errors.InvalidError, match="released"):
        embedding.numpy()
    gc.collect()
    assert pinned(cache) == 1
    part = arrays.pop(0)[3:5]
    arrays.clear()
    gc.collect()
    assert pinned(cache) == 1
    np.testing.assert_array_equal(part, rows(1)[3:5])
    del part
    gc.collect()
    assert pinned(cache) == 0


def test_a_with_block_releases_and_a_copy_holds_nothing(open_cache):
    cache = open_cache()
    with cache.get_or_compute("h", lambda: rows(1)) as embedding:
        assert pinned(cache) == 1
        copy = embedding.numpy(copy=True)
    assert pinned(cache) == 0
    np.testing.assert_array_equal(copy, rows(1))


def test_views_outlive_the_cache(open_cache):
    cache = open_cache()
    embedding = cache.get_or_compute("h", lambda: rows(1))
    array = embedding.numpy()
    cache.close(PATIENT_S)
    cache.close(PATIENT_S)
    del cache
    gc.collect()
    np.testing.assert_array_equal(array, rows(1))
    np.testing.assert_array_equal(embedding.numpy(), rows(1))


def test_a_closed_cache_says_so(open_cache):
    cache = open_cache()
    cache.close(PATIENT_S)
    for call in (lambda: cache.get("h"), cache.stats, lambda: cache.publish(["h"])):
        with pytest.raises(errors.CancelledError, match="closed"):
            call()


def test_scattered_rows_come_as_runs_or_as_a_copy(open_cache):
    cache = open_cache()  # 31 pages of 256 KiB: 256 rows each
    pages = cache.stats()["pools"][0]["pages"]
    held = [cache.get_or_compute(f"p{i}", lambda i=i: rows(i, tokens=256)) for i in range(pages)]
    for view in held[::2]:
        view.release()
    scattered = cache.get_or_compute("s", lambda: rows(99, tokens=600))
    assert not scattered.contiguous and scattered.cached
    runs = scattered.runs()
    assert len(runs) > 1 and sum(len(run) for run in runs) == 600
    np.testing.assert_array_equal(np.concatenate(runs), rows(99, tokens=600))
    np.testing.assert_array_equal(scattered.numpy(), rows(99, tokens=600))
    with pytest.raises(errors.InvalidError, match="runs"):
        scattered.numpy(copy=False)
    with pytest.raises(BufferError):
        np.from_dlpack(scattered)
    target = np.zeros((601, HIDDEN), np.float32)
    scattered.copy_to(target, 1)
    np.testing.assert_array_equal(target[1:], rows(99, tokens=600))


def test_blocking_calls_let_other_threads_run_and_need_no_gil_to_finish(open_cache):
    cache = open_cache()
    started, go = threading.Event(), threading.Event()

    def compute():
        started.set()
        assert go.wait(PATIENT_S)
        return rows(1)

    leader = threading.Thread(target=lambda: cache.get_or_compute("h", compute).release())
    leader.start()
    assert started.wait(PATIENT_S)
    waiter = threading.Thread(target=lambda: cache.get("h", timeout_s=PATIENT_S))
    waiter.start()  # blocks in the core; if it kept the GIL, nobody could ever set `go`
    go.set()
    leader.join(PATIENT_S)
    waiter.join(PATIENT_S)
    assert not leader.is_alive() and not waiter.is_alive()


def test_publications_and_fetches_go_on_while_a_thread_keeps_the_gil(open_cache, tmp_path):
    """A loop in one bytecode keeps the GIL; the store is written meanwhile by the core's threads."""
    import ctypes

    cache = open_cache("file", {"dir": str(tmp_path)})
    cache.store_to_pool(["h"], [rows(1)]).wait()
    poll = ctypes.PyDLL(None).poll  # PyDLL: with the GIL
    poll.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int]
    cache.publish(["h"])
    for _ in range(int(PATIENT_S * 10)):
        poll(None, 0, 100)
        if list(tmp_path.rglob("*.emb")):
            break
    assert list(tmp_path.rglob("*.emb"))


FORK = f"""
import os, sys, embercache, numpy as np
from embercache import errors
embercache.set_log_level("error")
cache = embercache.open("file", {{"dir": sys.argv[1]}}, namespace="n", hidden={HIDDEN},
                        max_pool_bytes={POOL_BYTES})
embedding = cache.get_or_compute("h", lambda: np.ones((3, {HIDDEN}), np.float32))
child = os.fork()
if child == 0:
    for call in (lambda: cache.get("h"), cache.close, embedding.numpy, cache.stats):
        try:
            call()
        except errors.ForkError as error:
            assert "child" in str(error)
        else:
            os._exit(3)
    fresh = embercache.open("file", {{"dir": sys.argv[1]}}, namespace="n", hidden={HIDDEN},
                            max_pool_bytes={POOL_BYTES}, lookup_timeout_s=60)
    assert fresh.get_or_compute("i", lambda: np.ones((3, {HIDDEN}), np.float32)).shape[0] == 3
    del cache, embedding
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert cache.get("h") is not None
"""


def test_a_forked_child_gets_a_clear_error_and_can_open_its_own(tmp_path):
    done = run_python(WATCH_LEAKS + FORK, tmp_path)
    assert done.returncode == 0, done.stderr


EXIT = f"""
import sys, threading, time, embercache, numpy as np
embercache.set_log_level("error")
class Slow:
    def batch_is_exist(self, hashes): return [False] * len(hashes)
    def batch_get_into_multi_buffers(self, hashes, ptrs, sizes):
        time.sleep(float(sys.argv[1])); return [False] * len(hashes)
    def batch_put_from_multi_buffers(self, hashes, ptrs, sizes):
        time.sleep(float(sys.argv[1])); print("put", flush=True); return [True] * len(hashes)
cache = embercache.open(Slow(), namespace="n", hidden={HIDDEN}, max_pool_bytes={POOL_BYTES})
kept = cache.get_or_compute("h", lambda: np.ones((3, {HIDDEN}), np.float32), expected_tokens=3,
                            publish=False)
cache.prefetch("r", ["x"], [5])
cache.publish(["h"])
threading.Thread(target=lambda: cache.get_many(["y"], expected_tokens=[4]), daemon=True).start()
array = kept.numpy()
"""


def test_the_interpreter_ends_cleanly_with_work_in_flight():
    done = run_python(EXIT, 0.5)
    assert done.returncode == 0, done.stderr
    assert "put" in done.stdout  # what was on its way is finished


def test_the_interpreter_ends_cleanly_while_threads_are_in_calls():
    """Python would end such a thread as it comes back for the GIL, by unwinding our frames."""
    code = f"""
import threading, time, embercache
embercache.set_log_level("error")
cache = embercache.open(namespace="n", hidden={HIDDEN}, max_pool_bytes={POOL_BYTES})
media = bytes(16 << 20)
def work():
    while True: cache.media_key(media)
for _ in range(4): threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_nothing_outlives_the_interpreter(tmp_path):
    code = f"""
import sys, embercache, embercache.sglang, numpy as np
embercache.set_log_level("error")
store = embercache.sglang.FileEmbeddingStore(dir=sys.argv[1], namespace="n")
controller = embercache.sglang.EmbeddingCacheController(store, 0.01, {{"image": {HIDDEN}}})
controller.insert_batch(["h"], [np.ones((3, {HIDDEN}), np.float32)])
views = controller.get_pool_views(["h"])
cache = embercache.open(namespace="n", hidden={HIDDEN}, max_pool_bytes={POOL_BYTES})
array = cache.get_or_compute("h", lambda: np.ones((3, {HIDDEN}), np.float32)).numpy()
"""
    done = run_python(WATCH_LEAKS + code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_interpreter_ends_although_a_store_hangs():
    done = run_python(EXIT, 1000)
    assert done.returncode == 0, done.stderr
