"""SGLang's classes over our core, as SGLang's encode server calls them."""
import asyncio
import enum
import gc
import logging
import time

import numpy as np
import pytest
import sglang_stores
from conftest import HIDDEN, PATIENT_S, rows, settles

from embercache import errors
from embercache.sglang import (
    EmbeddingCacheController,
    EmbeddingStore,
    EmbeddingStoreFactory,
    EntryState,
    FileEmbeddingStore,
    MemoryEmbeddingStore,
    MooncakeEmbeddingStore,
)


class Modality(enum.Enum):
    """As SGLang's."""

    IMAGE = enum.auto()
    VIDEO = enum.auto()
    AUDIO = enum.auto()


POOL_GB = 8 / 1024
DIMS = {Modality.IMAGE: HIDDEN, Modality.VIDEO: HIDDEN}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("EMBERCACHE_LOOKUP_TIMEOUT_MS", str(PATIENT_S * 1000))
    monkeypatch.setenv("EMBERCACHE_LOG_LEVEL", "error")
    monkeypatch.delenv("EMBERCACHE_NAMESPACE", raising=False)


@pytest.fixture
def make(request):
    made = []

    def make_(store, *, dims=DIMS, dtype="float32", **settings):
        made.append(EmbeddingCacheController(store, POOL_GB, dims, dtype=dtype, **settings))
        return made[-1]

    yield make_
    gc.collect()
    for controller in made:
        # Publications under way hold pins too; a leak stays.
        if not settles(lambda: controller._core.closed or not controller.get_stats()["num_pinned"]):
            pytest.exit(f"{request.node.nodeid} leaked pins: {controller.get_stats()}", returncode=1)
        controller.close(PATIENT_S)


def exist(controller, hashes):
    return asyncio.run(controller.batch_is_exist(hashes))


def encode(controller, hashes, arrays, modality=Modality.IMAGE):
    controller.wait_store_to_pool(controller.store_to_pool_async(hashes, arrays, modality))
    controller.insert_batch(hashes, modality)


def fetch(controller, hashes, tokens, req_id="r1"):
    controller.prefetch(req_id, hashes, tokens, Modality.IMAGE)
    assert controller.wait_prefetch(req_id, PATIENT_S)


def assemble(controller, hashes):
    """What the encode server does with hits."""
    views = controller.get_pool_views(hashes)
    arrays = [None if parts is None else np.concatenate([np.asarray(p) for p in parts])
              for parts in views]
    del views
    controller.release_pool_views(hashes)
    return arrays


def wait_until(condition):
    assert settles(condition)


@pytest.mark.parametrize("kind", ["file", "python"])
def test_what_one_node_computed_another_gets_with_equal_bytes(make, tmp_path, kind):
    objects = {}

    def node():
        if kind == "python":
            return make(sglang_stores.DictStore(objects))
        return make(FileEmbeddingStore(dir=str(tmp_path), namespace="m"))

    a, b = node(), node()
    assert exist(a, ["1", "2"]) == [False, False]
    encode(a, ["1", "2"], [rows(1), rows(2, tokens=700)])
    assert exist(a, ["1", "2", "3"]) == [True, True, False]
    wait_until(lambda: exist(b, ["1", "2"]) == [True, True])
    assert not b.has_local_embedding("1")
    fetch(b, ["1", "2"], [10, 700])
    assert b.has_local_embedding("1") and b.has_local_embedding("2")
    one, two = assemble(b, ["1", "2"])
    np.testing.assert_array_equal(one, rows(1))
    np.testing.assert_array_equal(two, rows(2, tokens=700))


def test_a_python_store_gets_payloads_alone_under_the_keys_it_makes(make):
    store = sglang_stores.DictStore()
    encode(make(store), ["1"], [rows(1)])
    wait_until(lambda: store.objects)
    assert store.objects == {"emb_1": rows(1).tobytes()}
    assert sum(store.registered) > 0


@pytest.mark.parametrize("how", ["none", "short", "raises"])
def test_a_python_store_that_answers_wrongly_costs_only_hits(make, how):
    controller = make(sglang_stores.Broken(how))
    assert exist(controller, ["1", "2"]) == [False, False]
    fetch(controller, ["1", "2"], [10, 10])
    assert not controller.has_local_embedding("1")
    encode(controller, ["1", "2"], [rows(1), rows(2)])
    assert controller.has_local_embedding("1")
    assert controller.get_stats()["num_cached"] == 2


@pytest.mark.parametrize("hits", ["local", "global"])
def test_hits_stay_until_the_request_has_read_them(make, hits):
    """SGLang's can be evicted by the misses of their own request, which then fails."""
    objects = {f"emb_{i}": rows(i, tokens=256).tobytes() for i in range(2)}
    controller = make(sglang_stores.DictStore(objects))
    if hits == "local":
        encode(controller, ["0", "1"], [rows(i, tokens=256) for i in range(2)])
        wait_until(lambda: controller.get_stats()["num_pinned"] == 0)
    fetch(controller, ["0", "1"], [256, 256])
    assert controller.get_stats()["num_pinned"] == 2
    for i in range(2, 40):  # more than the pool holds
        encode(controller, [f"n{i}"], [rows(i, tokens=256)])
    assert controller.has_local_embedding("0") and controller.has_local_embedding("1")
    assemble(controller, ["0", "1"])
    wait_until(lambda: controller.get_stats()["num_pinned"] == 0)  # publications hold some too


def test_a_request_may_fetch_several_times_and_each_reader_lets_go_of_the_oldest(make):
    objects = {f"emb_{i}": rows(i).tobytes() for i in range(3)}
    controller = make(sglang_stores.DictStore(objects))
    controller.prefetch("r", ["0", "1"], [10, 10], Modality.IMAGE)
    controller.prefetch("r", ["2", "x"], [10, 10], Modality.IMAGE)
    assert controller.wait_prefetch("r", PATIENT_S)
    fetch(controller, ["0"], [10], "other")
    assert controller._core.stats()["requests"] == 3
    assemble(controller, ["2"])
    assert controller._core.stats()["requests"] == 2
    assemble(controller, ["0", "1"])
    assert controller._core.stats()["requests"] == 1
    assert controller.get_stats()["num_pinned"] == 1
    assemble(controller, ["0"])
    assert controller._core.stats()["requests"] == 0


def test_requests_that_are_never_read_are_forgotten(open_cache):
    cache = open_cache(request_ttl_s=0.01)
    cache.store_to_pool(["a"], [rows(1)]).wait()

    def begin(number, end):
        cache.prefetch_until_used(str(number), ["a"], [10])
        if end:
            assert cache.prefetch_ended(str(number), PATIENT_S)
        return cache.stats()["requests"]

    for end in (False, True):
        begin(1, end)
        time.sleep(0.05)
        assert begin(2, end) <= 1


def test_a_lost_handle_leaves_nothing_filling(make):
    controller = make(sglang_stores.DictStore())
    controller.store_to_pool_async(["1"], [rows(1)], Modality.IMAGE)
    wait_until(lambda: controller.has_local_embedding("1"))


def test_filling_entries_are_not_published(make):
    store = sglang_stores.DictStore({"emb_1": rows(1).tobytes()})
    controller = make(store)
    store.gate.clear()
    controller.prefetch("r", ["1"], [10], Modality.IMAGE)
    assert not controller.check_prefetch_progress("r")
    controller.insert_batch(["1"], Modality.IMAGE)
    store.gate.set()
    assert controller.wait_prefetch("r", PATIENT_S)
    assert [name for name, _ in store.calls] == ["get"]
    assemble(controller, ["1"])


def test_what_was_waited_for_is_held_no_longer(make):
    controller = make(None)
    handles = controller.store_to_pool_async(["1", "2"], [rows(1), rows(2)], Modality.IMAGE)
    controller.wait_store_to_pool(handles)
    assert controller.get_stats()["num_pinned"] == 0
    controller.wait_store_to_pool(handles)
    assert [entry.state for entry, _ in handles] == [EntryState.READY] * 2


def test_loads_go_straight_into_the_requests_buffer(make):
    controller = make(None)
    encode(controller, ["1", "2"], [rows(1), rows(2)])
    buffer = np.zeros((20, HIDDEN), np.float32)
    handles = [controller.load_to_device_async("1", buffer, 0),
               controller.load_to_device_async("2", buffer, 10)]
    controller.wait_load_to_device(handles)
    np.testing.assert_array_equal(buffer, np.concatenate([rows(1), rows(2)]))
    assert controller.load_to_device_async("3", buffer, 0) is None


def test_tensors_of_another_width_or_dtype_are_left_out(make, caplog):
    controller = make(None)
    arrays = [rows(1), rows(2, hidden=8), rows(3, dtype=np.float64)]
    handles = controller.store_to_pool_async(["1", "2", "3"], arrays, Modality.IMAGE)
    controller.wait_store_to_pool(handles)
    assert [entry.hash for entry, _ in handles] == ["1"]
    assert handles[0][0].state is EntryState.READY
    assert "dim mismatch for 2" in caplog.text and "dtype mismatch for 3" in caplog.text


def test_unknown_modalities_are_skipped_with_a_warning(make, caplog):
    controller = make(None)
    controller.prefetch("r", ["1"], [10], "smell")
    controller.insert_batch(["1"], "smell")
    assert controller.check_prefetch_progress("r")
    assert caplog.text.count("unknown modality smell") == 2


def test_the_earlier_insert_batch_copies_what_it_is_given(make):
    store = sglang_stores.DictStore()
    make(store).insert_batch(["1"], [rows(1)])
    wait_until(lambda: store.objects == {"emb_1": rows(1).tobytes()})


def test_both_constructor_forms_mean_the_same():
    later = EmbeddingCacheController(None, POOL_GB, DIMS, False, True, 7, "bfloat16")
    earlier = EmbeddingCacheController(0, 1, None, POOL_GB, DIMS, None, False, True, 7, "bfloat16")
    named = EmbeddingCacheController(tp_rank=0, tp_size=1, embedding_store=None,
                                     max_pool_size_gb=POOL_GB, hidden_dims={"IMAGE": HIDDEN})
    for controller in (later, earlier):
        assert controller.max_eviction_batch == 7 and controller.element_size == 2
        assert controller.get_stats()["total_mb"] == pytest.approx(8, abs=0.5)
    assert named.get_embedding_dim("IMAGE") == HIDDEN
    for controller in (later, earlier, named):
        controller.close()
    with pytest.raises(TypeError):
        EmbeddingCacheController(None, nosuch=1)
    with pytest.raises(errors.InvalidError, match="hidden_dims"):
        EmbeddingCacheController(None, POOL_GB)


def test_audio_has_a_fifth_and_vision_shares_the_rest(make):
    controller = make(None, dims={"image": HIDDEN, "audio": 64})
    vision, audio = controller.vision_pool, controller.audio_pool
    assert (vision.dim, audio.dim) == (HIDDEN, 64)
    assert audio.pool_size_bytes < vision.pool_size_bytes
    stats = controller.get_stats()
    assert stats["vision_free_pages"] == vision.num_pages
    assert stats["audio_free_pages"] == audio.num_pages
    assert controller.get_embedding_dim(Modality.AUDIO) == 64
    assert make(None).get_embedding_dim(Modality.AUDIO) == HIDDEN


def test_get_stats_has_sglangs_names(make):
    stats = make(None).get_stats()
    assert set(stats) == {
        "total_allocated", "total_evicted", "eviction_count", "allocation_failures", "num_cached",
        "num_pinned", "allocated_mb", "free_mb", "total_mb", "vision_free_pages", "audio_free_pages"}


def test_get_stats_counts_bytes_of_copies_and_prefetches_and_of_what_was_evicted(make):
    controller = make(sglang_stores.DictStore({"emb_p": rows(0, tokens=300).tobytes()}))
    row, pages = 4 * HIDDEN, controller.get_stats()["vision_free_pages"]  # of 256 rows each
    encode(controller, ["1"], [rows(1)])
    fetch(controller, ["p"], [300])
    assemble(controller, ["p"])
    stats = controller.get_stats()
    assert (stats["total_allocated"], stats["total_evicted"]) == (310 * row, 0)
    wait_until(lambda: controller.get_stats()["num_pinned"] == 0)
    encode(controller, ["all"], [rows(2, tokens=256 * pages)])
    stats = controller.get_stats()
    assert stats["total_allocated"] == (310 + 256 * pages) * row
    assert (stats["total_evicted"], stats["eviction_count"]) == (310 * row, 1)


def test_ranks_other_than_the_first_have_no_memory_and_no_store():
    class Group:
        pass

    import embercache.sglang.controller as module

    original, module._gloo_group = module._gloo_group, lambda group: group
    try:
        store = sglang_stores.DictStore({"emb_1": rows(1).tobytes()})
        rank1 = EmbeddingCacheController(1, 2, store, POOL_GB, DIMS, Group())
        assert rank1.get_stats()["total_mb"] == 0
        assert exist(rank1, ["1"]) == [False] and not store.calls
        assert rank1.prefetch_tp_group is not None
        rank1.close()
        with pytest.raises(ValueError, match="tp_group"):
            EmbeddingCacheController(1, 2, store, POOL_GB, DIMS)
    finally:
        module._gloo_group = original


# --- Namespaces


def test_a_shared_store_without_a_namespace_is_refused_with_the_ways_out(tmp_path, monkeypatch):
    store = FileEmbeddingStore(dir=str(tmp_path))
    with pytest.raises(errors.InvalidError, match="EMBERCACHE_NAMESPACE.*namespace="):
        EmbeddingCacheController(store, POOL_GB, DIMS)
    with pytest.raises(errors.InvalidError, match="EMBERCACHE_NAMESPACE"):
        store.batch_is_exist(["1"])
    monkeypatch.setenv("EMBERCACHE_NAMESPACE", "m")
    EmbeddingCacheController(store, POOL_GB, DIMS).close()
    assert store.batch_is_exist(["1"]) == [False]


def test_two_models_on_one_store_never_meet(make, tmp_path):
    a = make(FileEmbeddingStore(dir=str(tmp_path)), namespace="model-a")
    b = make(FileEmbeddingStore(dir=str(tmp_path)), namespace="model-b")
    encode(a, ["1"], [rows(1)])
    wait_until(lambda: list(tmp_path.rglob("*.emb")))
    assert exist(b, ["1"]) == [False]
    fetch(b, ["1"], [10])
    assert not b.has_local_embedding("1")


# --- Our stores under somebody else's controller


def buffers(*arrays):
    return [[a.ctypes.data] for a in arrays], [[a.nbytes] for a in arrays]


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_our_stores_answer_exactly_one_bool_a_key(tmp_path, kind):
    store = (FileEmbeddingStore(dir=str(tmp_path), namespace="m") if kind == "file"
             else MemoryEmbeddingStore(namespace="m"))
    one, two = rows(1), rows(2, tokens=33)
    assert store.batch_put_from_multi_buffers(["1", "2", "1"], *buffers(one, two, one)) == [True] * 3
    assert store.batch_is_exist(["1", "x", "2"]) == [True, False, True]
    target, wrong = np.zeros_like(two), np.zeros((5, HIDDEN), np.float32)
    halves = ([[target.ctypes.data, target.ctypes.data + 4096]], [[4096, target.nbytes - 4096]])
    assert store.batch_get_into_multi_buffers(["2"], *halves) == [True]
    np.testing.assert_array_equal(target, two)
    assert store.batch_get_into_multi_buffers(["1", "x"], *buffers(wrong, wrong)) == [False, False]
    assert store.batch_get(["1"], [target.ctypes.data], [one.nbytes]) == [True]
    assert target.tobytes()[:one.nbytes] == one.tobytes()
    assert store.batch_is_exist([]) == []
    with pytest.raises(errors.InvalidError, match="one of each"):
        store.batch_get_into_multi_buffers(["1"], [], [])
    store.close()


def test_a_damaged_object_is_a_miss_and_is_replaced(tmp_path):
    store = FileEmbeddingStore(dir=str(tmp_path), namespace="m")
    one, target = rows(1), rows(0)
    store.batch_put_from_multi_buffers(["1"], *buffers(one))
    [path] = tmp_path.rglob("*.emb")
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    assert store.batch_get_into_multi_buffers(["1"], *buffers(target)) == [False]
    assert store.batch_put_from_multi_buffers(["1"], *buffers(one)) == [True]
    assert store.batch_get_into_multi_buffers(["1"], *buffers(target)) == [True]
    np.testing.assert_array_equal(target, one)


def test_an_object_of_zeros_is_computed_again(make, tmp_path):
    """SGLang's serves one, if it has the length that is asked for."""
    a, b = (make(FileEmbeddingStore(dir=str(tmp_path), namespace="m")) for _ in range(2))
    encode(a, ["1"], [rows(1)])
    wait_until(lambda: list(tmp_path.rglob("*.emb")))
    [path] = tmp_path.rglob("*.emb")
    path.write_bytes(bytes(path.stat().st_size))
    fetch(b, ["1"], [10])
    assert not b.has_local_embedding("1")
    encode(b, ["1"], [rows(1)])
    np.testing.assert_array_equal(assemble(b, ["1"])[0], rows(1))


def test_our_controller_reads_what_another_controller_put_through_our_store(make, tmp_path):
    theirs = FileEmbeddingStore(dir=str(tmp_path), namespace="m")
    one = rows(1)
    theirs.batch_put_from_multi_buffers(["1"], *buffers(one))
    ours = make(FileEmbeddingStore(dir=str(tmp_path), namespace="m"))
    fetch(ours, ["1"], [10])
    np.testing.assert_array_equal(assemble(ours, ["1"])[0], rows(1))
    encode(ours, ["2"], [rows(2)])
    wait_until(lambda: theirs.batch_is_exist(["2"]) == [True])
    target = np.zeros_like(rows(2))
    assert theirs.batch_get_into_multi_buffers(["2"], *buffers(target)) == [True]
    np.testing.assert_array_equal(target, rows(2))


# --- The factory


def test_the_four_ways_a_backend_can_be_wrong_are_four_errors(monkeypatch):
    monkeypatch.setattr(EmbeddingStoreFactory, "_registry", dict(EmbeddingStoreFactory._registry))
    create, register = EmbeddingStoreFactory.create_backend, EmbeddingStoreFactory.register_backend
    register("m", "no.such.module", "C")
    register("c", "sglang_stores", "Missing")
    register("t", "sglang_stores", "NoStore")
    register("x", "sglang_stores", "CannotStart")
    with pytest.raises(ValueError, match="'nosuch'.*file.*memory"):
        create("nosuch")
    with pytest.raises(ImportError, match="'m'.*'no.such.module'.*'C'"):
        create("m")
    with pytest.raises(AttributeError, match="'c'.*'sglang_stores'.*'Missing'"):
        create("c")
    with pytest.raises(TypeError, match="'t'.*'NoStore'.*'sglang_stores'"):
        create("t")
    with pytest.raises(ConnectionRefusedError, match="nobody listens"):
        create("x")


def test_a_name_registered_again_is_replaced_with_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(EmbeddingStoreFactory, "_registry", dict(EmbeddingStoreFactory._registry))
    with caplog.at_level(logging.WARNING):
        EmbeddingStoreFactory.register_backend("file", "sglang_stores", "DictStore")
    assert "'file' is already registered" in caplog.text
    assert isinstance(EmbeddingStoreFactory.create_backend("file"), EmbeddingStore)


def test_a_backend_made_without_arguments_reads_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("EMBERCACHE_FILE_STORE_DIR", str(tmp_path / "a"))
    monkeypatch.setenv("EMBERCACHE_NAMESPACE", "m")
    store = EmbeddingStoreFactory.create_backend("file")
    one = rows(1)
    store.batch_put_from_multi_buffers(["1"], *buffers(one))
    assert list((tmp_path / "a").rglob("*.emb"))
    config = tmp_path / "config.json"
    config.write_text('{"dir": "%s"}' % (tmp_path / "b"))
    monkeypatch.delenv("EMBERCACHE_FILE_STORE_DIR")
    monkeypatch.setenv("EMBERCACHE_MM_GLOBAL_CACHE_CONFIG", str(config))
    EmbeddingStoreFactory.create_backend("file")
    assert (tmp_path / "b").is_dir()
    monkeypatch.setenv("EMBERCACHE_MM_GLOBAL_CACHE_CONFIG", "{nonsense")
    with pytest.raises(errors.InvalidError, match="EMBERCACHE_MM_GLOBAL_CACHE_CONFIG"):
        EmbeddingStoreFactory.create_backend("file")


def test_mooncake_is_a_name_of_the_factory():
    assert "mooncake" in EmbeddingStoreFactory.backend_names()
    assert issubclass(MooncakeEmbeddingStore, EmbeddingStore)
