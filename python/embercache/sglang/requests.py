"""What prefetches hold for their requests."""

from __future__ import annotations

import collections
import threading
import time

from .. import _core

_READY = ("local", "global", "joined")


class Requests:
    """The pins that prefetches hold: given back once each embedding was used, or by age."""

    def __init__(self, core: _core.Cache, ttl_s: float) -> None:
        self._core = core
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._next = 0
        self._running: dict[str, list[tuple[str, list[str]]]] = {}
        self._unused: dict[str, set[str]] = {}  # by the core's name of a request
        self._holders: dict[str, list[str]] = {}  # by hash
        self._ages: collections.deque[tuple[float, str]] = collections.deque()

    def name(self, req_id: str, hashes: list[str]) -> str:
        """A name for the core, which takes each only once."""
        with self._lock:
            self._next += 1
            name = f"{req_id}#{self._next}"
            self._running.setdefault(req_id, []).append((name, hashes))
            return name

    def running(self, req_id: str) -> list[str]:
        with self._lock:
            return [name for name, _ in self._running.get(req_id, [])] or [req_id]

    def forget(self, req_id: str) -> None:
        with self._lock:
            self._running.pop(req_id, None)

    def finish(self, req_id: str) -> None:
        """The request's fetches are over: keeps those that have something for it to read."""
        with self._lock:
            finished = self._running.pop(req_id, [])
        for name, hashes in finished:
            outcomes = self._core.prefetch_outcomes(name)
            ready = {h for h, outcome in zip(hashes, outcomes) if outcome in _READY}
            if not ready:
                self._core.release_request(name)
                continue
            with self._lock:
                self._unused[name] = ready
                for mm_hash in ready:
                    self._holders.setdefault(mm_hash, []).append(name)
                self._ages.append((time.monotonic(), name))
        self._drop_old()

    def used(self, mm_hash: str) -> None:
        """Somebody has read the embedding: its oldest request needs no pin of it any more."""
        with self._lock:
            holders = self._holders.get(mm_hash)
            if not holders:
                return
            name = holders.pop(0)
            if not holders:
                del self._holders[mm_hash]
            self._unused[name].discard(mm_hash)
            if self._unused[name]:
                return
            del self._unused[name]
        self._core.release_request(name)

    def _drop_old(self) -> None:
        """The core has given such pins back already; this forgets them here."""
        before = time.monotonic() - self._ttl_s
        with self._lock:
            while self._ages and (
                self._ages[0][0] < before or self._ages[0][1] not in self._unused
            ):
                _, name = self._ages.popleft()
                for mm_hash in self._unused.pop(name, ()):
                    holders = self._holders.get(mm_hash, [])
                    holders.remove(name)
                    if not holders:
                        self._holders.pop(mm_hash, None)
