"""SGLang's names for the parts of a host cache."""
from hypothesis import given
from hypothesis import strategies as st

from embercache.sglang import (
    EmbeddingCacheEntry,
    EntryState,
    EvictableLRU,
    PageRun,
    RangePageAllocator,
)


def test_one_contiguous_run_is_preferred_and_scattered_ones_come_in_physical_order():
    allocator = RangePageAllocator(10)
    runs = [allocator.allocate(2, 1)[0] for _ in range(5)]
    assert allocator.allocate(1, 1) is None
    allocator.free([runs[0], runs[2], runs[3]])
    assert allocator.free_ranges == [(0, 2), (4, 4)]
    assert allocator.allocate(3, 1) == [PageRun(4, 3)]
    assert allocator.allocate(3, 1) == [PageRun(0, 2), PageRun(7, 1)]
    assert allocator.free_pages == 0


def test_rows_are_rounded_up_to_pages_and_none_take_none():
    allocator = RangePageAllocator(3)
    assert allocator.allocate(0, 4) == []
    assert allocator.allocate(9, 4) == [PageRun(0, 3)]
    assert RangePageAllocator(0).allocate(1, 4) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=60))
def test_pages_are_never_given_twice_nor_lost(steps):
    allocator, held = RangePageAllocator(32), []
    for allocate, number in steps:
        if allocate:
            runs = allocator.allocate(number, 1)
            assert (runs is None) == (allocator.free_pages < number) or runs
            held += [runs] if runs else []
        elif held:
            allocator.free(held.pop(number % len(held)))
        pages = [page for runs in held for run in runs for page in run.page_ids()]
        free = [page for start, n in allocator.free_ranges for page in range(start, start + n)]
        assert sorted(pages + free) == list(range(32))
        starts = allocator.free_ranges
        assert all(a + n < b for (a, n), (b, _) in zip(starts, starts[1:]))


def test_the_oldest_hash_goes_first_and_a_touched_one_is_young():
    lru = EvictableLRU()
    for mm_hash in "abc":
        lru.touch(mm_hash)
    lru.touch("a")
    lru.remove("b")
    assert list(lru.keys()) == ["c", "a"] and "b" not in lru and len(lru) == 2
    assert [lru.pop_oldest() for _ in range(3)] == ["c", "a", None]


def test_an_entry_is_evictable_when_ready_and_unpinned():
    entry = EmbeddingCacheEntry("h", "image", 3, 8, [PageRun(1, 2)], EntryState.FILLING)
    assert entry.page_ids == [1, 2] and not entry.is_evictable()
    entry.state = EntryState.READY
    entry.pin()
    assert not entry.is_evictable()
    entry.unpin()
    assert entry.is_evictable()
