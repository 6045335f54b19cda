"""SGLang's names for the parts of a host cache, for code that looks at them.

The core has its own allocator, index and eviction in C++; ``EmbeddingPool`` and
``EmbeddingCacheEntry`` show what it holds. ``RangePageAllocator`` and ``EvictableLRU`` work on their
own, with the behaviour that SGLang's have.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
from collections.abc import KeysView
from typing import Any


class EntryState(enum.Enum):
    FILLING = enum.auto()
    READY = enum.auto()


@dataclasses.dataclass(frozen=True)
class PageRun:
    """``length`` pages from page ``start`` on."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length

    def page_ids(self) -> list[int]:
        return list(range(self.start, self.end))


class RangePageAllocator:
    """Hands out runs of pages: one contiguous run where there is one, else several in physical
    order. Adjacent free ranges are one. Not thread-safe."""

    def __init__(self, num_pages: int) -> None:
        self.free_ranges: list[tuple[int, int]] = [(0, num_pages)] if num_pages > 0 else []

    @property
    def free_pages(self) -> int:
        return sum(length for _, length in self.free_ranges)

    def allocate(self, num_tokens: int, page_size: int) -> list[PageRun] | None:
        """Pages for ``num_tokens`` rows, ``page_size`` a page; None when there are too few."""
        needed = -(-num_tokens // page_size)
        if needed <= 0:
            return []
        fit = next((i for i, (_, length) in enumerate(self.free_ranges) if length >= needed), None)
        if fit is not None:
            return [self._take(fit, needed)]
        if self.free_pages < needed:
            return None
        runs = []
        while needed > 0:
            runs.append(self._take(0, min(needed, self.free_ranges[0][1])))
            needed -= runs[-1].length
        return runs

    def free(self, runs: list[PageRun]) -> None:
        for run in runs or ():
            if run.length > 0:
                self._give(run.start, run.length)

    def _take(self, index: int, pages: int) -> PageRun:
        start, length = self.free_ranges[index]
        if pages == length:
            del self.free_ranges[index]
        else:
            self.free_ranges[index] = (start + pages, length - pages)
        return PageRun(start, pages)

    def _give(self, start: int, length: int) -> None:
        index = bisect.bisect_left(self.free_ranges, (start, 0))
        self.free_ranges.insert(index, (start, length))
        if index + 1 < len(self.free_ranges):
            self._join(index)
        if index > 0:
            self._join(index - 1)

    def _join(self, index: int) -> None:
        """Makes the range at ``index`` and the next one one where they touch."""
        start, length = self.free_ranges[index]
        next_start, next_length = self.free_ranges[index + 1]
        if start + length >= next_start:
            end = max(start + length, next_start + next_length)
            self.free_ranges[index : index + 2] = [(start, end - start)]


class EvictableLRU:
    """Hashes in the order of their last use. Not thread-safe."""

    def __init__(self) -> None:
        self._hashes: dict[str, None] = {}

    def touch(self, mm_hash: str) -> None:
        self._hashes.pop(mm_hash, None)
        self._hashes[mm_hash] = None

    def remove(self, mm_hash: str) -> None:
        self._hashes.pop(mm_hash, None)

    def pop_oldest(self) -> str | None:
        oldest = next(iter(self._hashes), None)
        if oldest is not None:
            del self._hashes[oldest]
        return oldest

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, mm_hash: object) -> bool:
        return mm_hash in self._hashes

    def keys(self) -> KeysView[str]:
        return self._hashes.keys()


@dataclasses.dataclass
class EmbeddingCacheEntry:
    """What a controller says of one embedding on its way into the pool."""

    hash: str
    modality: object
    num_tokens: int
    dim: int
    page_runs: list[PageRun]
    state: EntryState
    ref_count: int = 0

    @property
    def page_ids(self) -> list[int]:
        return [page for run in self.page_runs for page in run.page_ids()]

    def pin(self) -> None:
        self.ref_count += 1

    def unpin(self) -> None:
        self.ref_count = max(0, self.ref_count - 1)

    def is_evictable(self) -> bool:
        return self.state == EntryState.READY and self.ref_count == 0


@dataclasses.dataclass(frozen=True)
class EmbeddingPool:
    """One pool of a controller. ``page_size`` is in rows, ``pool_size_bytes`` what was asked for."""

    modality: str
    dim: int
    dtype: Any
    page_size: int
    num_pages: int
    page_bytes: int
    pool_size_bytes: int
    free_pages: int
