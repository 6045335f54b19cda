"""The plain API: what a cache answers, and what it raises."""
import concurrent.futures
import threading

import numpy as np
import pytest
from conftest import HIDDEN, PATIENT_S, rows

import embercache
from embercache import errors


def test_what_was_computed_once_is_local_then_global_with_equal_bytes(open_cache, tmp_path):
    a = open_cache("file", {"dir": str(tmp_path)})
    b = open_cache("file", {"dir": str(tmp_path)})
    computed = a.get_or_compute("h", lambda: rows(1), metadata='{"grid":[1,2]}')
    assert (computed.source, computed.shape, computed.dtype) == ("computed", (10, HIDDEN), "F32")
    assert a.get_or_compute("h", pytest.fail).source == "local"
    a.close(PATIENT_S)  # waits for the publication
    fetched = b.get("h")
    assert fetched.source == "global"
    assert fetched.metadata == '{"grid":[1,2]}'
    np.testing.assert_array_equal(fetched.numpy(), rows(1))


def test_a_miss_is_none_and_so_is_a_store_that_is_down(open_cache):
    assert open_cache().get("nobody") is None
    down = open_cache("redis", {"url": "redis://127.0.0.1:1"}, lookup_timeout_s=0.2)
    assert down.get_many(["a", "b"]) == [None, None]
    assert down.get_or_compute("a", lambda: rows(1)).source == "computed"


def test_batches_answer_each_key_in_order(open_cache):
    cache = open_cache()
    cache.store_to_pool(["a", "c"], [rows(1), rows(3, tokens=4)]).wait()
    a, b, c = cache.get_many(["a", "b", cache.key("c")], expected_tokens=[10, 5, -1])
    assert b is None
    assert (a.shape[0], c.shape[0]) == (10, 4)
    assert cache.exists(["a", "b", "c"]) == [True, False, True]
    assert cache.has_local("a") and not cache.has_local("b")
    assert cache.pin("b") is None


def test_a_key_twice_in_a_batch_is_answered_twice(open_cache):
    cache = open_cache()
    assert cache.get_many(["a", "a"], timeout_s=PATIENT_S) == [None, None]
    cache.store_to_pool(["a"], [rows(1)]).wait()
    assert [found.shape[0] for found in cache.get_many(["a", "a"])] == [10, 10]


def test_one_of_many_computes_and_the_others_wait(open_cache):
    cache = open_cache()
    started, go = threading.Event(), threading.Event()
    calls = []

    def compute():
        calls.append(1)
        started.set()
        assert go.wait(PATIENT_S)
        return rows(1)

    with concurrent.futures.ThreadPoolExecutor(5) as threads:
        first = threads.submit(cache.get_or_compute, "h", compute)
        assert started.wait(PATIENT_S)
        others = [threads.submit(cache.get_or_compute, "h", compute) for _ in range(4)]
        go.set()
        found = [first.result(), *(other.result() for other in others)]
    assert len(calls) == 1
    assert {f.source for f in found} <= {"computed", "joined", "local"}
    for f in found:
        np.testing.assert_array_equal(f.numpy(), rows(1))


def test_what_compute_raises_is_raised_and_the_next_one_computes(open_cache):
    cache = open_cache()
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compute("h", lambda: 1 // 0)
    assert cache.get_or_compute("h", lambda: rows(1)).source == "computed"


def test_waiting_for_another_ends_with_the_time_given(open_cache):
    cache = open_cache()
    started, go = threading.Event(), threading.Event()

    def compute():
        started.set()
        go.wait(PATIENT_S)
        return rows(1)

    leader = threading.Thread(target=cache.get_or_compute, args=("h", compute))
    leader.start()
    assert started.wait(PATIENT_S)
    with pytest.raises(errors.DeadlineExceededError) as raised:
        cache.get_or_compute("h", pytest.fail, wait_s=0.05)
    assert isinstance(raised.value, TimeoutError) and raised.value.retryable
    go.set()
    leader.join()


@pytest.mark.parametrize("array", [rows(1, hidden=8), rows(1, dtype=np.float64), np.float32(1),
                                   np.zeros((0, HIDDEN), np.float32), np.zeros(HIDDEN, np.float32),
                                   None, [[1.0] * HIDDEN]],
                         ids=["width", "dtype", "scalar", "no rows", "one dimension", "nothing", "a list"])
def test_arrays_that_do_not_fit_are_refused(open_cache, array):
    cache = open_cache()
    with pytest.raises(errors.InvalidError):
        cache.get_or_compute("h", lambda: array)
    assert not cache.has_local("h")


def test_a_key_held_with_other_rows_is_an_error_not_an_answer(open_cache):
    cache = open_cache()
    cache.get_or_compute("h", lambda: rows(1)).release()
    with pytest.raises(errors.InvalidError, match="10 rows.*asked for as 11"):
        cache.get("h", expected_tokens=11)


def test_what_gets_no_room_is_returned_all_the_same(open_cache):
    cache = open_cache(max_pool_bytes=0, max_uncached_bytes=0)
    embedding = cache.get_or_compute("h", lambda: rows(1))
    assert not embedding.cached
    np.testing.assert_array_equal(embedding.numpy(), rows(1))
    assert not cache.has_local("h")


def test_bfloat16_comes_and_goes_as_its_bits(open_cache):
    cache = open_cache(dtype="BF16")
    bits = rows(1, dtype=np.uint16)
    embedding = cache.get_or_compute("h", lambda: bits)
    assert embedding.dtype == "BF16" and embedding.nbytes == bits.nbytes
    np.testing.assert_array_equal(embedding.numpy(), bits)


def test_loads_go_into_the_callers_array_at_a_row(open_cache):
    cache = open_cache()
    cache.store_to_pool(["h"], [rows(1)]).wait()
    target = np.zeros((13, HIDDEN), np.float32)
    assert cache.load("h", target, 2).wait() == ["copied"]
    np.testing.assert_array_equal(target[2:12], rows(1))
    assert not target[:2].any() and not target[12:].any()
    assert cache.load("nobody", target) is None
    with pytest.raises(errors.InvalidError, match="at least 14"):
        cache.load("h", target, 4)
    with pytest.raises(TypeError):
        cache.load("h", target[:, ::2])


def test_prefetches_keep_what_they_fetched_until_released(open_cache, tmp_path):
    a = open_cache("file", {"dir": str(tmp_path)})
    a.get_or_compute("h", lambda: rows(1)).release()
    a.close(PATIENT_S)
    b = open_cache("file", {"dir": str(tmp_path)})
    b.prefetch("r1", ["h", "nobody"], [10, 10])
    assert b.prefetch_state("r1", PATIENT_S) == "done"
    assert b.prefetch_outcomes("r1") == ["global", "missing"]
    assert b.stats()["pools"][0]["pinned_entries"] == 1
    with pytest.raises(errors.AlreadyExistsError):
        b.prefetch("r1", [], [])
    assert b.release_request("r1") and not b.release_request("r1")
    assert b.stats()["pools"][0]["pinned_entries"] == 0
    assert b.prefetch_state("unknown") == "done"


def test_publishing_counts_new_existing_and_skipped(open_cache, tmp_path):
    cache = open_cache("file", {"dir": str(tmp_path)})
    cache.store_to_pool(["a", "b"], [rows(1), rows(2)]).wait()
    assert cache.publish(["a"]) == (1, 0, 0)
    assert cache.publish(["a", "b", "nobody"]) == (1, 1, 1)


def test_removed_means_gone_here_and_in_the_store(open_cache, tmp_path):
    cache = open_cache("file", {"dir": str(tmp_path)})
    cache.store_to_pool(["h"], [rows(1)]).wait()
    cache.publish(["h"])
    while not list(tmp_path.rglob("*.emb")):
        pass
    assert cache.remove("h", PATIENT_S) == "removed"
    assert cache.exists(["h"]) == [False]
    assert not list(tmp_path.rglob("*.emb"))


def test_bad_arguments_name_themselves_and_what_would_be_right():
    with pytest.raises(errors.InvalidError, match="'fil'.*file, memory"):
        embercache.open("fil", namespace="n", hidden=8)
    with pytest.raises(errors.InvalidError, match="nosuch.*dir"):
        embercache.open("file", {"nosuch": 1}, namespace="n", hidden=8)
    with pytest.raises(ValueError, match="'F31'.*F32"):
        embercache.open(namespace="n", hidden=8, dtype="F31")
    with pytest.raises(ValueError, match="'smell'"):
        embercache.open(namespace="n", hidden={"smell": 8})
    with pytest.raises(errors.InvalidError, match="31 bytes"):
        embercache.open(namespace=b"x" * 31, hidden=8)
    with pytest.raises(TypeError):
        embercache.open(namespace="n", hidden=8, nosuch=1)


def test_every_status_code_has_a_class_of_its_own():
    names = ["Invalid", "NotFound", "AlreadyExists", "ResourceExhausted", "Unavailable",
             "DeadlineExceeded", "Cancelled", "Corruption", "Unimplemented", "Internal"]
    classes = {getattr(errors, f"{name}Error") for name in names}
    assert len(classes) == len(names)
    assert all(issubclass(c, errors.EmberCacheError) for c in classes)
