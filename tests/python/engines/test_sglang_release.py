"""Our package against the real SGLang 0.5.23 with torch, on a CPU; by hand: make test-engines."""
import asyncio
import contextlib
import ctypes
import os
import subprocess
import sys
import time
import types

import pytest
import torch

os.environ.setdefault("EMBERCACHE_LOOKUP_TIMEOUT_MS", "60000")
os.environ.setdefault("EMBERCACHE_LOG_LEVEL", "error")

import sglang.srt.mem_cache.embedding_cache_controller as theirs  # noqa: E402
import stores as shared_stores  # noqa: E402
from sglang.srt.managers.schedule_batch import Modality  # noqa: E402
from sglang.srt.mem_cache.embedding_store import EmbeddingStore  # noqa: E402

import embercache  # noqa: E402
from embercache import sglang as ours  # noqa: E402

HIDDEN = 256
POOL_GB = 8 / 1024
DIMS = {Modality.IMAGE: HIDDEN, Modality.VIDEO: HIDDEN}


@pytest.fixture(autouse=True)
def quiet_core():
    embercache.set_log_level("error")


@pytest.fixture
def one_rank(monkeypatch):
    group = types.SimpleNamespace(cpu_group=None)
    parallel = types.SimpleNamespace(tp_size=1, tp_rank=0, tp_group=group)
    monkeypatch.setattr(theirs, "get_parallel", lambda: parallel)
    monkeypatch.setattr(sys.modules["sglang.srt.runtime_context"], "get_parallel", lambda: parallel)


@pytest.fixture
def their_controller(one_rank, monkeypatch):
    """SGLang's own class, with what it lacks without an accelerator: unpinned pools, CPU copies."""
    create = theirs.EmbeddingPool.create.__func__

    def unpinned(cls, modality, dim, size, dtype=torch.float32, pin_memory=True):
        return create(cls, modality, dim, size, dtype, False)

    monkeypatch.setattr(theirs.EmbeddingPool, "create", classmethod(unpinned))

    class OnCpu(theirs.EmbeddingCacheController):
        def put(self, mm_hash, tensor):
            pool = self.vision_pool
            runs = pool.allocator.allocate(len(tensor), pool.page_size)
            entry = theirs.EmbeddingCacheEntry(mm_hash, Modality.IMAGE, len(tensor), HIDDEN, runs,
                                               theirs.EntryState.FILLING)
            self._copy_embedding_page_runs(tensor, pool.tensor, entry, pool, src_is_pool=False)
            self.entries[mm_hash] = entry
            self._mark_ready(entry)
            self.insert_batch([mm_hash], Modality.IMAGE)

    made = []

    def make(store):
        made.append(OnCpu(store, POOL_GB, DIMS, dtype=torch.bfloat16))
        return made[-1]

    yield make
    for controller in made:
        controller.stop_event.set()
        controller.io_thread.join()


@pytest.fixture
def our_controller(one_rank):
    made = []

    def make(store):
        made.append(ours.EmbeddingCacheController(store, POOL_GB, DIMS, dtype=torch.bfloat16))
        return made[-1]

    yield make
    for controller in made:
        controller.close(60)


def rows(tag, tokens=10):
    return torch.arange(tokens * HIDDEN).mul(7).add(tag * 1009).remainder(251).to(
        torch.bfloat16).reshape(tokens, HIDDEN)


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def exist(controller, hashes):
    return asyncio.run(controller.batch_is_exist(hashes))


def fetched(controller, mm_hash, tokens):
    """What the server does with a hit: prefetch, poll, views."""
    controller.prefetch("r", [mm_hash], [tokens], Modality.IMAGE)
    wait_until(lambda: controller.check_prefetch_progress("r"))
    if not controller.has_local_embedding(mm_hash):
        return None
    [views] = controller.get_pool_views([mm_hash])
    tensor = torch.cat(views)
    del views
    controller.release_pool_views([mm_hash])
    return tensor


def test_torch_tensors_go_in_and_come_out_as_they_were(our_controller):
    controller = our_controller(None)
    handles = controller.store_to_pool_async(["1", "2"], [rows(1), rows(2, 600)], Modality.IMAGE)
    controller.wait_store_to_pool(handles)
    [views] = controller.get_pool_views(["2"])
    assert all(view.dtype is torch.bfloat16 for view in views)
    assert torch.equal(torch.cat(views), rows(2, 600))
    del views
    controller.release_pool_views(["2"])
    buffer = torch.zeros(12, HIDDEN, dtype=torch.bfloat16)
    controller.wait_load_to_device([controller.load_to_device_async("1", buffer, 2)])
    assert torch.equal(buffer[2:], rows(1)) and not buffer[:2].any()
    assert controller.get_stats()["num_pinned"] == 0


@pytest.fixture
def make_store(tmp_path):
    """Opens stores of one kind that all meet; each has handles of its own."""
    with contextlib.ExitStack() as stack:
        meeting_places = {}

        def make(kind):
            if kind == "memory":
                return meeting_places.setdefault(kind, ours.MemoryEmbeddingStore(namespace="m"))
            if kind not in meeting_places:
                meeting_places[kind] = stack.enter_context(shared_stores.STORES[kind](tmp_path))
            store = ours.EmbeddingStoreFactory.create_backend(
                kind, namespace="m", **meeting_places[kind].config)
            probe = rows(0)
            wait_until(lambda: store.batch_put(["0"], [probe.data_ptr()], [probe.nbytes]) == [True])
            return store

        yield make


@pytest.mark.parametrize("kind", ["file", "memory", "redis", "mooncake"])
def test_their_controller_works_on_each_of_our_stores(their_controller, make_store, kind):
    store = make_store(kind)
    a, b = their_controller(store), their_controller(make_store(kind))
    a.put("1", rows(1))
    a.put("2", rows(2, 600))
    wait_until(lambda: store.batch_is_exist(["1", "2"]) == [True, True])
    assert exist(b, ["1", "x"]) == [True, False]
    assert torch.equal(fetched(b, "1", 10), rows(1))
    assert torch.equal(fetched(b, "2", 600), rows(2, 600))
    assert fetched(b, "x", 10) is None
    assert not [e for e in b.entries.values() if e.state is theirs.EntryState.FILLING]


def file_store(folder):
    return ours.FileEmbeddingStore(dir=str(folder), namespace="m")


def test_their_controller_and_ours_share_one_store(their_controller, our_controller, tmp_path):
    a = their_controller(file_store(tmp_path))
    b = our_controller(file_store(tmp_path))
    a.put("1", rows(1))
    wait_until(lambda: exist(b, ["1"]) == [True])
    assert torch.equal(fetched(b, "1", 10), rows(1))
    b.wait_store_to_pool(b.store_to_pool_async(["2"], [rows(2)], Modality.IMAGE))
    b.insert_batch(["2"], Modality.IMAGE)
    wait_until(lambda: exist(a, ["2"]) == [True])
    assert torch.equal(fetched(a, "2", 10), rows(2))


def test_an_object_of_zeros_is_recomputed_by_their_controller_too(their_controller, tmp_path):
    a, b = their_controller(file_store(tmp_path)), their_controller(file_store(tmp_path))
    a.put("1", rows(1))
    wait_until(lambda: list(tmp_path.rglob("*.emb")))
    [path] = tmp_path.rglob("*.emb")
    path.write_bytes(bytes(path.stat().st_size))
    assert fetched(b, "1", 10) is None


def test_a_store_derived_from_their_class_works_under_our_controller(our_controller):
    class Theirs(EmbeddingStore):
        objects: dict = {}

        def batch_get(self, hashes, ptrs, sizes):
            raise AssertionError("not used")

        batch_put = batch_get

        def batch_get_into_multi_buffers(self, hashes, ptrs, sizes):
            for mm_hash, addresses, lengths in zip(hashes, ptrs, sizes):
                data = self.objects[mm_hash]
                for address, length in zip(addresses, lengths):
                    ctypes.memmove(address, data[:length], length)
                    data = data[length:]
            return [True] * len(hashes)

        def batch_put_from_multi_buffers(self, hashes, ptrs, sizes):
            for mm_hash, addresses, lengths in zip(hashes, ptrs, sizes):
                parts = [ctypes.string_at(a, n) for a, n in zip(addresses, lengths)]
                self.objects[mm_hash] = b"".join(parts)
            return [True] * len(hashes)

        def batch_is_exist(self, hashes):
            return [mm_hash in self.objects for mm_hash in hashes]

    a, b = our_controller(Theirs()), our_controller(Theirs())
    a.wait_store_to_pool(a.store_to_pool_async(["1"], [rows(1, 300)], Modality.IMAGE))
    a.insert_batch(["1"], Modality.IMAGE)
    wait_until(lambda: Theirs.objects)
    assert torch.equal(fetched(b, "1", 300), rows(1, 300))


def test_their_parts_and_ours_behave_alike():
    for module in (theirs, ours):
        allocator = module.RangePageAllocator(10)
        runs = [allocator.allocate(4, 2)[0] for _ in range(5)]
        allocator.free([runs[0], runs[2], runs[3]])
        answers = [allocator.allocate(6, 2), allocator.allocate(6, 2), allocator.allocate(2, 2)]
        shapes = [r if r is None else [(run.start, run.length) for run in r] for r in answers]
        assert shapes == [[(4, 3)], [(0, 2), (7, 1)], None]
        lru = module.EvictableLRU()
        for mm_hash in "abca":
            lru.touch(mm_hash)
        assert [lru.pop_oldest() for _ in range(4)] == ["b", "c", "a", None]


def test_install_takes_the_place_of_the_real_classes():
    code = """
import argparse, embercache.sglang
embercache.sglang.install()
import sglang.srt.mem_cache.embedding_cache_controller as controller
import sglang.srt.mem_cache.embedding_store as store
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
chosen = parser.parse_args(["--model-path", "m", "--mm-global-cache-backend", "file"])
default = parser.parse_args(["--model-path", "m"])
print(controller.EmbeddingCacheController.__module__, store.EmbeddingStoreFactory.__module__,
      chosen.mm_global_cache_backend, default.mm_global_cache_backend)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-4:] == [
        "embercache.sglang.controller", "embercache.sglang.store", "file", "mooncake"]
