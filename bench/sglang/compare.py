"""compare.py [--rounds PERCENT]: SGLang's EmbeddingCacheController and ours, side by side on a CPU.

Run it with a Python that has torch and SGLang 0.5.23 (docs/python.md), and our package on its path, as `run` does:

    SGLANG_PYTHON=/opt/sglang/bin/python bench/sglang/run

Both controllers live in this process, get the same calls with the same tensors (bfloat16), and take
turns, each round the other one first. torch uses one thread. The figures are medians in
microseconds, and theirs divided by ours. SGLang has no path for a CPU, so its class is patched, each
time around its own code:

- get_parallel() answers one rank;
- pools are not pinned, and reserve no memory that is not touched (the index of 100,000 entries
  spans 25 GB here as there, of which a row an entry is touched);
- store_to_pool_async, which refuses CPU tensors, gets them in a wrapper that says "cuda", and copies
  at once, in the caller's thread, where a GPU would copy beside it.

A request waits for its prefetch as SGLang's encode server does, asking each 5 ms, and with ours in a
thread that is woken (wait_prefetch). One row asks both each 5 ms, as the server does with our
controller in place of its own. `wait_load_to_device` needs CUDA there; its row has their views and
copies on the left."""
import argparse
import asyncio
import contextlib
import ctypes
import functools
import gc
import mmap
import os
import random
import statistics
import sys
import threading
import time
import types
import unittest.mock
import warnings

os.environ["EMBERCACHE_LOOKUP_TIMEOUT_MS"] = "60000"
os.environ["EMBERCACHE_LOG_LEVEL"] = "error"
warnings.simplefilter("ignore")
try:
    import numpy
    import sglang
    import sglang.srt.mem_cache.embedding_cache_controller as their_module
    import torch
    from sglang.srt import runtime_context
    from sglang.srt.managers.schedule_batch import Modality
    from sglang.srt.mem_cache.embedding_store import EmbeddingStore
except ImportError as fault:
    print(f"compare.py: {sys.executable} has no SGLang ({fault}); see docs/python.md", file=sys.stderr)
    sys.exit(2)
try:
    import embercache
    from embercache import _core
    from embercache import sglang as our_module
except ImportError as fault:
    print(f"compare.py: {fault}; set PYTHONPATH=build/release/python", file=sys.stderr)
    sys.exit(2)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = 256 * KIB
HIDDEN = 2048
NARROW = 64  # of the index: a row is 128 bytes, and an entry has one
SIZES = [256 * KIB, MIB, 4 * MIB, 16 * MIB]
POLL_S = 0.005
MAP_NORESERVE = 0x4000  # Linux's; the module has the name from Python 3.13 on

loop = asyncio.new_event_loop()
numbers = iter(range(10**18, 2 * 10**18, 7919))


def new_hashes(count):
    """Decimal digits of 64 bits, as SGLang's are, that were not given before."""
    return [str(next(numbers)) for _ in range(count)]


def size_text(nbytes):
    return f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // KIB} KiB"


def tensor_of(nbytes, hidden=HIDDEN):
    tokens = nbytes // (2 * hidden)
    values = torch.arange(tokens * hidden, dtype=torch.int32).mul_(7).remainder_(251)
    return values.to(torch.bfloat16).reshape(tokens, hidden)


class DictionaryStore(EmbeddingStore):
    """Objects in this process's memory, for both controllers."""

    def __init__(self):
        self.objects = {}
        self.putting = threading.Event()

    def batch_get(self, hashes, ptrs, sizes):
        return self.batch_get_into_multi_buffers(hashes, [[p] for p in ptrs], [[s] for s in sizes])

    def batch_put(self, hashes, ptrs, sizes):
        return self.batch_put_from_multi_buffers(hashes, [[p] for p in ptrs], [[s] for s in sizes])

    def batch_get_into_multi_buffers(self, hashes, ptrs, sizes):
        for mm_hash, addresses, lengths in zip(hashes, ptrs, sizes):
            source = self.objects[mm_hash].ctypes.data
            for address, length in zip(addresses, lengths):
                ctypes.memmove(address, source, length)
                source += length
        return [True] * len(hashes)

    def batch_put_from_multi_buffers(self, hashes, ptrs, sizes):
        self.putting.set()
        for mm_hash, addresses, lengths in zip(hashes, ptrs, sizes):
            made = numpy.empty(sum(lengths), numpy.uint8)
            target = made.ctypes.data
            for address, length in zip(addresses, lengths):
                ctypes.memmove(target, address, length)
                target += length
            self.objects[mm_hash] = made
        return [True] * len(hashes)

    def batch_is_exist(self, hashes):
        return [mm_hash in self.objects for mm_hash in hashes]


class NoStore(DictionaryStore):
    """What SGLang's controller needs where nothing is shared; ours gets None."""


class SaysCuda:
    device = types.SimpleNamespace(type="cuda")

    def __init__(self, tensor):
        self.tensor = tensor
        self.ndim = tensor.ndim
        self.shape = tensor.shape


class OnCpu(their_module.EmbeddingCacheController):
    def store_to_pool_async(self, mm_hashes, tensors, modality=None):
        return super().store_to_pool_async(mm_hashes, [SaysCuda(t) for t in tensors], modality)

    def _copy_tensor_to_pool(self, tensor, entry, pool):
        self._copy_embedding_page_runs(tensor.tensor, pool.tensor, entry, pool, src_is_pool=False)
        return their_module.AsyncCopyHandle(event=None, entry_hash=entry.hash)


def their_pool(touch, modality, dim, size_bytes, dtype=torch.bfloat16, pin_memory=True):
    page_tokens = their_module.compute_page_size(dim, 2)
    pages = size_bytes // (2 * dim) // page_tokens
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, pages * page_tokens * dim * 2, flags=flags)
    tensor = torch.frombuffer(memory, dtype=dtype).reshape(-1, dim)
    if touch and modality == "vision":
        tensor.zero_()
    return their_module.EmbeddingPool(
        modality, dim, dtype, page_tokens, tensor, pages, their_module.RangePageAllocator(pages),
        page_tokens * dim * 2, size_bytes, False,
    )


class Theirs:
    def __init__(self, store, pages, hidden, touch):
        dims = {Modality.IMAGE: hidden, Modality.VIDEO: hidden}
        gigabytes = (pages + 0.5) * PAGE / their_module.VISION_POOL_RATIO / GIB
        create = functools.partial(their_pool, touch)
        with unittest.mock.patch.object(their_module.EmbeddingPool, "create", create):
            self.controller = OnCpu(store or NoStore(), gigabytes, dims, dtype=torch.bfloat16)

    async def wait(self, request):
        while not self.controller.check_prefetch_progress(request):
            await asyncio.sleep(POLL_S)

    def remove(self, hashes):
        controller = self.controller
        with controller.lock:
            entries = [controller.entries.pop(mm_hash) for mm_hash in hashes]
            for mm_hash in hashes:
                controller.vision_pool.evictable.remove(mm_hash)
            controller.vision_pool.allocator.free([r for entry in entries for r in entry.page_runs])

    def close(self):
        self.controller.stop_event.set()
        self.controller.io_thread.join()
        del self.controller


class Ours:
    def __init__(self, store, pages, hidden, touch):
        dims = {Modality.IMAGE: hidden, Modality.VIDEO: hidden}
        gigabytes = (pages + 0.5) * (PAGE + 4 * KIB) / GIB  # each page has a block for its checksum
        core = functools.partial(_core.Cache, prefault=touch)
        with unittest.mock.patch.object(_core, "Cache", core):
            self.controller = our_module.EmbeddingCacheController(
                store, gigabytes, dims, dtype=torch.bfloat16)

    async def wait(self, request):
        if not self.controller.check_prefetch_progress(request):
            await asyncio.to_thread(self.controller.wait_prefetch, request)

    def remove(self, hashes):
        """From the pool; only for controllers without a store."""
        for mm_hash in hashes:
            self.controller._core.remove(mm_hash)

    def close(self):
        self.controller.close(60)
        del self.controller


@contextlib.contextmanager
def sides(pages, store=None, hidden=HIDDEN, touch=True):
    pair = [Theirs(store, pages, hidden, touch), Ours(store, pages, hidden, touch)]

    def free_pages():
        return [side.controller.get_stats()["vision_free_pages"] for side in pair]

    try:
        # A large pool of ours is usable before all of it is there.
        wait_until(lambda: free_pages() == [pages, pages], f"the pools have not {pages} pages each")
        yield pair
    finally:
        for side in pair:
            side.close()
        gc.collect()


class Table:
    def __init__(self, percent):
        self.percent = percent
        print("| | SGLang, µs | ours, µs | SGLang's / ours |")
        print("|---|---|---|---|")

    def row(self, name, rounds, pair, *operations):
        """Runs `operations`, or one for both, as operation(side, round) in turn. Each gives seconds.
        The first round warms up."""
        took = {side: [] for side in pair}
        for turn in range(max(2, rounds * self.percent // 100) + 1):
            for place in (0, 1) if turn % 2 else (1, 0):
                side = pair[place]
                seconds = operations[place % len(operations)](side, turn)
                if turn > 0:
                    took[side].append(1e6 * seconds)
        theirs, ours = (statistics.median(took[side]) for side in pair)
        digits = 3 if theirs < 10 else 0 if theirs > 1000 else 1
        print(f"| {name} | {theirs:,.{digits}f} | {ours:,.{digits}f} | {theirs / ours:.2f} |", flush=True)


def store_to_pool(side, hashes, tensors):
    """Seconds of copying tensors into the pool."""
    start = time.perf_counter()
    handles = side.controller.store_to_pool_async(hashes, tensors, Modality.IMAGE)
    side.controller.wait_store_to_pool(handles)
    return time.perf_counter() - start


def expect(condition, what):
    if not condition:
        raise SystemExit(f"compare.py: {what}")


def wait_until(condition, otherwise):
    end = time.monotonic() + 60
    while not condition():
        expect(time.monotonic() < end, otherwise)
        time.sleep(0.001)


def inserts(table):
    """Into a full pool, so that each evicts others."""
    with sides(640) as pair:
        for size in SIZES:
            tensor = tensor_of(size)
            for side in pair:
                for _ in range(640 * PAGE // size + 1):
                    store_to_pool(side, new_hashes(1), [tensor])

            def operation(side, _):
                [mm_hash] = new_hashes(1)
                seconds = store_to_pool(side, [mm_hash], [tensor])
                expect(side.controller.has_local_embedding(mm_hash), "an insert found no room")
                return seconds

            table.row(f"insert of {size_text(size)}", 100 if size < 16 * MIB else 40, pair, operation)


async def look_up(side, request, hashes, tokens):
    """The server's steps before it assembles the answer."""
    controller = side.controller
    await controller.batch_is_exist(hashes)
    controller.prefetch(request, hashes, tokens, Modality.IMAGE)
    await side.wait(request)
    expect(all(map(controller.has_local_embedding, hashes)), f"{request}: an item is not there")


def assemble_views(side, hashes, out):
    """As the server does where the answer goes out from host memory."""
    offset = 0
    for views in side.controller.get_pool_views(hashes):
        for view in views:
            out[offset : offset + len(view)].copy_(view)
            offset += len(view)
    side.controller.release_pool_views(hashes)


def assemble_loads(side, hashes, out):
    tokens = len(out) // len(hashes)
    load = side.controller.load_to_device_async
    side.controller.wait_load_to_device(
        [load(mm_hash, out, i * tokens) for i, mm_hash in enumerate(hashes)])


def hits(table):
    with sides(640) as pair:
        for size in SIZES:
            tensor = tensor_of(size)
            hashes = new_hashes(4)
            for side in pair:
                store_to_pool(side, hashes, [tensor] * 4)
            whole = torch.cat([tensor] * 4)

            def operation(side, turn, assemble, reused):
                start = time.perf_counter()
                loop.run_until_complete(look_up(side, f"hit {turn}", hashes, [len(tensor)] * 4))
                out = torch.empty_like(whole) if reused is None else reused
                assemble(side, hashes, out)
                seconds = time.perf_counter() - start
                expect(turn > 0 or torch.equal(out, whole), "a hit has wrong bytes")
                return seconds

            views = functools.partial(operation, assemble=assemble_views)
            loads = functools.partial(operation, assemble=assemble_loads)
            for memory, reused in ("reused", torch.empty_like(whole)), ("fresh", None):
                name, rounds = f"local hit of 4 × {size_text(size)} into {memory} memory", 40 if size < 16 * MIB else 15
                table.row(name, rounds, pair, functools.partial(views, reused=reused))
                table.row(f"{name}, ours by load_to_device_async", rounds, pair,
                          functools.partial(views, reused=reused), functools.partial(loads, reused=reused))


def prefetches(table):
    """Four batches of objects in turn, of which the pool holds two: none is local when it is asked
    for."""
    def our_store():
        return our_module.MemoryEmbeddingStore(namespace="compare", max_bytes=GIB)

    for kind, make in ("a dictionary", DictionaryStore), ("our memory store", our_store):
        for size in (256 * KIB, MIB, 16 * MIB):
            name = f"prefetch of 4 × {size_text(size)} from {kind}"
            prefetch(table, name, size, make())
            prefetch(table, f"{name}, both asked each 5 ms", size, make(), Theirs.wait)


def prefetch(table, name, size, store, wait=None):
    tensor = tensor_of(size)
    batches = [new_hashes(4) for _ in range(4)]
    for hashes in batches:
        expect(all(store.batch_put(hashes, [tensor.data_ptr()] * 4, [size] * 4)), "a put failed")

    def operation(side, turn):
        hashes = batches[turn % 4]
        expect(not side.controller.has_local_embedding(hashes[0]), "an item is there already")
        start = time.perf_counter()
        side.controller.prefetch(f"p{turn}", hashes, [len(tensor)] * 4, Modality.IMAGE)
        loop.run_until_complete(wait(side, f"p{turn}") if wait else side.wait(f"p{turn}"))
        seconds = time.perf_counter() - start
        views = side.controller.get_pool_views(hashes)
        expect(None not in views, "a prefetch got nothing")
        expect(turn > 0 or torch.equal(torch.cat(views[0]), tensor), "a prefetch has wrong bytes")
        del views
        side.controller.release_pool_views(hashes)
        return seconds

    with sides(9 * size // PAGE, store) as pair:
        table.row(name, 40 if size < 16 * MIB else 15, pair, operation)


def get_behind_put(table):
    small, large = tensor_of(PAGE), tensor_of(16 * MIB)
    store = DictionaryStore()
    wanted, put = new_hashes(64), new_hashes(4)
    for mm_hash in wanted:
        store.batch_put([mm_hash], [small.data_ptr()], [PAGE])
    # Ours takes no publication while others hold a quarter of the pool.
    with sides(5 * 4 * 64 + len(wanted), store) as pair:
        for side in pair:
            store_to_pool(side, put, [large] * len(put))

        def operation(side, turn):
            controller = side.controller
            store.putting.clear()
            controller.insert_batch(put, Modality.IMAGE)
            expect(store.putting.wait(60), "a put does not begin")
            start = time.perf_counter()
            controller.prefetch(f"g{turn}", [wanted[turn]], [len(small)], Modality.IMAGE)
            loop.run_until_complete(side.wait(f"g{turn}"))
            seconds = time.perf_counter() - start
            expect(controller.has_local_embedding(wanted[turn]), "a get found nothing")
            wait_until(lambda: all(mm_hash in store.objects for mm_hash in put), "a put does not end")
            request_pins = 1 if side is pair[1] else 0
            wait_until(lambda: controller.get_stats()["num_pinned"] <= request_pins, "a put keeps pins")
            [views] = controller.get_pool_views([wanted[turn]])
            del views
            controller.release_pool_views([wanted[turn]])
            for mm_hash in put:
                del store.objects[mm_hash]
            return seconds

        table.row("GET of 256 KiB behind a PUT of 4 × 16 MiB", 20, pair, operation)


def in_threads(threads, work):
    """Seconds from the first thread's start to the last one's end."""
    barrier = threading.Barrier(threads)
    spans = []

    def run():
        barrier.wait()
        start = time.perf_counter()
        work()
        spans.append((start, time.perf_counter()))

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def ask_in_batches(controller, batches):
    async def ask():
        for batch in batches:
            await controller.batch_is_exist(batch)

    asyncio.run(ask())


def index(table, pair, hashes):
    order = random.Random(1).sample(hashes, 10_000)
    entries = f"{len(hashes):,} entries"
    for threads in (1, 2, 4):
        def single(side, _):
            ask = side.controller.has_local_embedding

            def work():
                for mm_hash in order:
                    ask(mm_hash)

            return in_threads(threads, work) / (threads * len(order))

        def batched(side, _, size):
            batches = [order[at : at + size] for at in range(0, len(order), size)]
            seconds = in_threads(threads, lambda: ask_in_batches(side.controller, batches))
            return seconds / (threads * len(order))

        name = f"{entries}, {threads} thread{'s' * (threads > 1)}"
        table.row(f"has_local_embedding, a key; {name}", 10, pair, single)
        for size in (8, 100, 1000):
            table.row(f"batch_is_exist of {size}, a key; {name}", 7, pair, functools.partial(batched, size=size))

    def stats(side, _):
        start = time.perf_counter()
        found = side.controller.get_stats()
        seconds = time.perf_counter() - start
        expect(found["num_cached"] == len(hashes), "get_stats counts wrongly")
        return seconds

    table.row(f"get_stats; {entries}", 20, pair, stats)


def make_holes(side, hashes, holes):
    """Removes every other one of the entries that lie lowest."""
    places = []
    for mm_hash in hashes:
        [[view]] = side.controller.get_pool_views([mm_hash])
        places.append((view.data_ptr(), mm_hash))
        del view
        side.controller.release_pool_views([mm_hash])
    side.remove([mm_hash for _, mm_hash in sorted(places)[: 2 * holes : 2]])


def allocation(table, pair, hashes):
    """Two pages where no two free ones are adjacent."""
    holes = 10_000
    for side in pair:
        make_holes(side, hashes, holes)
        expect(side.controller.get_stats()["vision_free_pages"] == holes, "not as many holes")
    tensor = tensor_of(PAGE + 2 * NARROW, NARROW)

    def operation(side, _):
        made = new_hashes(1)
        seconds = store_to_pool(side, made, [tensor])
        side.remove(made)
        return seconds

    table.row("insert of 2 pages among 10,000 holes", 40, pair, operation)


def index_and_allocation(table):
    row = tensor_of(2 * NARROW, NARROW)
    for entries in (10_000, 100_000):
        hashes = new_hashes(entries)
        with sides(entries, hidden=NARROW, touch=False) as pair:
            for side in pair:
                for at in range(0, entries, 500):
                    store_to_pool(side, hashes[at : at + 500], [row] * 500)
            index(table, pair, hashes)
            if entries == 100_000:
                allocation(table, pair, hashes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, metavar="PERCENT", help="of the usual number (100)")
    options = parser.parse_args()
    embercache.set_log_level("error")
    parallel = types.SimpleNamespace(tp_size=1, tp_rank=0, tp_group=types.SimpleNamespace(cpu_group=None))
    their_module.get_parallel = runtime_context.get_parallel = lambda: parallel
    torch.set_num_threads(1)
    gc.disable()
    print(f"SGLang {sglang.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}, "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    table = Table(options.rounds)
    inserts(table)
    hits(table)
    prefetches(table)
    get_behind_put(table)
    index_and_allocation(table)


if __name__ == "__main__":
    main()
