"""What prefetches hold for their requests."""

from __future__ import annotations

import collections
import threading
import time

from .. import _core


class _Held:
    """The pins of one prefetch: given back together, once each embedding was used."""

    __slots__ = ("name", "unused", "since")

    def __init__(self, name: str, unused: set[str]) -> None:
        self.name = name
        self.unused = unused
        self.since = time.monotonic()


class Requests:
    """The pins that prefetches hold: given back once each embedding was used, or by age."""

    def __init__(self, core: _core.Cache, ttl_s: float) -> None:
        self._core = core
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._next = 0
        self._running: dict[str, list[tuple[str, list[str]]]] = {}
        self._holders: dict[str, list[_Held]] = {}  # by hash, the oldest first
        self._ages: collections.deque[_Held] = collections.deque()

    def start(self, req_id: str, hashes: list[str], tokens: list[int], modality: str) -> None:
        """Fetches what is not here. The core takes each name only once, and gets one of ours."""
        with self._lock:
            self._next += 1
            name = f"{req_id}#{self._next}"
        self._core.prefetch(name, hashes, tokens, modality)
        with self._lock:
            self._running.setdefault(req_id, []).append((name, hashes))

    def running(self, req_id: str) -> list[str]:
        running = self._running.get(req_id)
        return [req_id] if running is None else [name for name, _ in running]

    def finish(self, req_id: str) -> None:
        """The request's fetches are over: keeps those that have something for it to read."""
        with self._lock:
            finished = self._running.pop(req_id, ())
        for name, hashes in finished:
            ready = self._core.prefetch_ready(name)
            held = _Held(name, {h for h, is_ready in zip(hashes, ready) if is_ready})
            if not held.unused:
                self._core.release_request(name)
                continue
            with self._lock:
                for mm_hash in held.unused:
                    self._holders.setdefault(mm_hash, []).append(held)
                self._ages.append(held)
                self._forget_old()

    def used(self, hashes: list[str]) -> None:
        """Somebody has read these: their oldest requests need no pins of them any more."""
        for mm_hash in hashes:
            with self._lock:
                holders = self._holders.get(mm_hash)
                if holders is None:
                    continue
                held = holders.pop(0)
                if not holders:
                    del self._holders[mm_hash]
                held.unused.discard(mm_hash)
                if held.unused:
                    continue
            self._core.release_request(held.name)

    def _forget_old(self) -> None:
        """The core gives pins back by age itself. The lock is held."""
        before = time.monotonic() - self._ttl_s
        while self._ages and (self._ages[0].since < before or not self._ages[0].unused):
            held = self._ages.popleft()
            for mm_hash in held.unused:
                holders = self._holders[mm_hash]
                holders.remove(held)
                if not holders:
                    del self._holders[mm_hash]
