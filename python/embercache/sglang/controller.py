"""SGLang's EmbeddingCacheController over the C++ core."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from .. import _core
from ..errors import InvalidError
from . import _tensors
from .namespace import local_namespace
from .store import NativeEmbeddingStore
from .views import EmbeddingCacheEntry, EmbeddingPool, EntryState

logger = logging.getLogger(__name__)

_GIB = 1024**3
_MIB = 1024**2
# Copies between host memory and the pool take milliseconds; this only bounds a fault.
_COPY_TIMEOUT_S = 60.0
# Pins of a request that nobody used are given back after so long.
_REQUEST_TTL_S = 600.0
_MODALITIES = {
    form(name): name for name in ("image", "video", "audio") for form in (str.lower, str.upper)
}


@dataclasses.dataclass
class AsyncCopyHandle:
    """One copy under way, for ``wait_store_to_pool`` and ``wait_load_to_device``."""

    entry_hash: str
    copies: Any = None  # of the core
    index: int = 0
    event: Any = None  # of a device's stream
    held: Any = None  # what has to live until the copy is over
    outcome: str = "copied"

    def wait(self) -> str:
        """Waits; the outcome as the core names it."""
        if self.event is not None:
            self.event.synchronize()
        if self.copies is not None:
            self.outcome = self.copies.wait(_COPY_TIMEOUT_S)[self.index]
        # What was copied may be evicted from now on.
        self.copies = self.event = self.held = None
        return self.outcome

    def is_complete(self) -> bool:
        if self.event is not None and not self.event.query():
            return False
        return self.copies is None or self.copies.wait(0)[self.index] != "pending"


def _new_form(
    embedding_store: Any,
    max_pool_size_gb: float = 4.0,
    hidden_dims: dict | None = None,
    all_rank_get: bool = False,
    enable_eviction: bool = True,
    max_eviction_batch: int = 100,
    dtype: Any = None,
    namespace: str | bytes | None = None,
) -> dict[str, Any]:
    return {**locals(), "parallel": _parallel_of_sglang()}


def _old_form(
    tp_rank: int,
    tp_size: int,
    embedding_store: Any,
    max_pool_size_gb: float = 4.0,
    hidden_dims: dict | None = None,
    tp_group: Any = None,
    all_rank_get: bool = False,
    enable_eviction: bool = True,
    max_eviction_batch: int = 100,
    dtype: Any = None,
    namespace: str | bytes | None = None,
) -> dict[str, Any]:
    settings = dict(locals())
    parallel = tuple(settings.pop(name) for name in ("tp_rank", "tp_size", "tp_group"))
    return {**settings, "parallel": parallel}


def _parallel_of_sglang() -> tuple[int, int, Any]:
    """Rank, size and CPU group of the process, where SGLang has set them up; else one rank."""
    context = sys.modules.get("sglang.srt.runtime_context")
    if context is None:
        return 0, 1, None
    parallel = context.get_parallel()
    return parallel.tp_rank, parallel.tp_size, parallel.tp_group.cpu_group


def _gloo_group(group: Any) -> Any:
    """A group of its own for prefetches, so that its collectives meet no others."""
    distributed = _tensors.torch().distributed
    ranks = distributed.get_process_group_ranks(group)
    state = sys.modules.get("sglang.srt.distributed.parallel_state")
    if state is not None and hasattr(state, "create_custom_parallel_group"):
        return state.create_custom_parallel_group(group_ranks=ranks, backend="gloo")
    return distributed.new_group(ranks, backend="gloo")


def _modality_name(modality: Any) -> str | None:
    """"image" of Modality.IMAGE, "IMAGE" or "image"; None for what is no modality."""
    # An enum's `name` is a property in Python, and slower.
    return _MODALITIES.get(getattr(modality, "_name_", modality))


class EmbeddingCacheController:
    """The host cache of one node in front of a shared store, as SGLang's encode server uses it.

    Takes both of SGLang's forms, by position and by keyword::

        (embedding_store, max_pool_size_gb=4.0, hidden_dims=None, all_rank_get=False,
         enable_eviction=True, max_eviction_batch=100, dtype=torch.float32)
        (tp_rank, tp_size, embedding_store, max_pool_size_gb=4.0, hidden_dims=None, tp_group=None,
         all_rank_get=False, enable_eviction=True, max_eviction_batch=100, dtype=torch.float32)

    and ``namespace=`` with either (see ``embercache.sglang.namespace``).

    embedding_store: one of ours, any object with SGLang's EmbeddingStore methods (its objects are
        raw: what it gives back is not checked), or None for host memory alone.
    max_pool_size_gb: host memory in GiB, for vision, and 20 % of it for audio where there is a
        width for it. With several ranks only rank 0 has it, unless ``all_rank_get``.
    hidden_dims: elements a row, by SGLang's Modality or by name. Images and videos share a pool.
    dtype: of all rows; tensors of another one are not taken.

    Tensors are of torch, on any device, or arrays of NumPy; without torch installed views are
    NumPy's. Thread-safe. InvalidError for wrong arguments, TypeError for unknown ones.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        old = "tp_rank" in kwargs or (args and isinstance(args[0], int))
        settings = (_old_form if old else _new_form)(*args, **kwargs)
        self.tp_rank, self.tp_world_size, self.tp_group = settings["parallel"]
        self.all_rank_get = settings["all_rank_get"]
        self.hidden_dims = settings["hidden_dims"] or {}
        self._dtype_name = _tensors.dtype_name(settings["dtype"])
        self.dtype = settings["dtype"] if settings["dtype"] is not None else self._torch_dtype()
        self.element_size = _tensors.itemsize(self._dtype_name)
        self.enable_eviction = settings["enable_eviction"]
        self.max_eviction_batch = settings["max_eviction_batch"]
        self.embedding_store = settings["embedding_store"]
        self.total_pool_size_bytes = int(settings["max_pool_size_gb"] * _GIB)
        self._widths = self._widths_of(self.hidden_dims)
        if "EMBERCACHE_LOG_LEVEL" not in os.environ:
            _core.set_log_level("info")  # operators read the lines of look-ups and inserts
        self.prefetch_tp_group = None
        if self.tp_world_size > 1:
            if self.tp_group is None:
                raise ValueError("tp_group must be provided when tp_size > 1")
            self.prefetch_tp_group = _gloo_group(self.tp_group)
        self._core = self._open_core(settings["namespace"])
        self._lock = threading.Lock()
        self._views: dict[str, list[Any]] = {}
        self._copy_streams: dict[str, Any] = {}
        self._pinned_regions = False

    def _open_core(self, namespace: str | bytes | None) -> _core.Cache:
        collective = self.all_rank_get and self.tp_world_size > 1
        serves = self.tp_rank == 0 or self.all_rank_get
        store: Any = self.embedding_store
        if isinstance(store, NativeEmbeddingStore):
            digest = store.digest(namespace)
            store = store.native
        else:
            digest = local_namespace()
        timeout_ms = float(os.environ.get("EMBERCACHE_LOOKUP_TIMEOUT_MS", "500"))
        return _core.Cache(
            store if serves else None,
            digest,
            self._widths,
            _tensors.short_name(self._dtype_name),
            self.total_pool_size_bytes if serves else 0,
            enable_eviction=self.enable_eviction,
            max_eviction_batch=self.max_eviction_batch,
            lookup_timeout_s=timeout_ms / 1000,
            request_ttl_s=_REQUEST_TTL_S,
            tp=(self.tp_rank, self.tp_world_size) if collective else None,
            reduce=self._reduce_min if collective else None,
        )

    def _reduce_min(self, values: bytes) -> bytes:
        module = _tensors.torch()
        tensor = module.tensor(list(values), dtype=module.int32)
        distributed = module.distributed
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MIN, group=self.prefetch_tp_group)
        return bytes(tensor.tolist())

    def _torch_dtype(self) -> Any:
        module = _tensors.torch()
        return getattr(module, self._dtype_name) if module is not None else self._dtype_name

    @staticmethod
    def _widths_of(hidden_dims: dict) -> dict[str, int]:
        named = {}
        for modality, width in hidden_dims.items():
            name = _modality_name(modality)
            if name is None:
                raise InvalidError(f"hidden_dims names {modality!r}, not IMAGE, VIDEO or AUDIO")
            named[name] = int(width)
        vision = named.get("image") or named.get("video")
        widths = {"image": vision, "video": vision} if vision else {}
        if named.get("audio"):
            widths["audio"] = named["audio"]
        if not widths:
            raise InvalidError("hidden_dims is empty; give a width for IMAGE, VIDEO or AUDIO")
        return widths

    def _known(self, modality: Any, method: str) -> str | None:
        name = _modality_name(modality)
        if name in self._widths:
            return name
        logger.warning("%s: unknown modality %s; skipping.", method, modality)
        return None

    # --- Look-up and fetch

    async def batch_is_exist(self, mm_hashes: Sequence[str]) -> list[bool]:
        """Whether each is here or in the store: one call of it, off the event loop. A store that
        fails, or that does not answer in time, has nothing."""
        hashes = list(mm_hashes)
        found = self._core.exists_here(hashes)
        return await asyncio.to_thread(self._core.exists, hashes) if found is None else found

    def prefetch(
        self,
        req_id: str,
        mm_hashes: Sequence[str],
        expected_tokens: Sequence[int],
        modality: Any = None,
    ) -> None:
        """Fetches what is not here, in one batch, without waiting. All that is or becomes ready
        stays until the request has read it (``release_pool_views``, ``wait_load_to_device``)."""
        name = self._known(modality, "prefetch")
        if name is None:
            return
        hashes = list(mm_hashes)
        tokens = [int(count) for count in expected_tokens]
        self._core.prefetch_until_used(req_id, hashes, tokens, name)
        logger.info("Req %s: Starting global fetch for %d embeddings.", req_id, len(hashes))

    def check_prefetch_progress(self, req_id: str) -> bool:
        """True when the request's fetches have ended, or there were none; which items arrived
        ``has_local_embedding`` tells. With ``all_rank_get`` a collective call, the same on all
        ranks. Never pending beyond the look-up deadline."""
        return self._core.prefetch_ended(req_id)

    def wait_prefetch(self, req_id: str, timeout_s: float = 60.0) -> bool:
        """Waits for the end instead of polling; what ``check_prefetch_progress`` says then."""
        return self._core.prefetch_ended(req_id, timeout_s)

    def has_local_embedding(self, mm_hash: str) -> bool:
        """Whether it is in host memory, ready."""
        return self._core.has_local(mm_hash)

    # --- Into the pool, and to the store

    def store_to_pool_async(
        self, mm_hashes: Sequence[str], tensors: Sequence[Any], modality: Any = None
    ) -> list[tuple[EmbeddingCacheEntry, AsyncCopyHandle]]:
        """Copies tensors ``[tokens, hidden]`` into the pool, in the background; each is ready once
        its copy is done, whatever becomes of its handle. A tensor of another width or dtype is left
        out with a warning; one without room, or that is there already, is left out silently."""
        name = _modality_name(modality)
        if name not in self._widths:
            return []
        taken: list[tuple[str, Any]] = []
        for mm_hash, tensor in zip(mm_hashes, tensors):
            rows = self._rows_for(mm_hash, tensor, self._widths[name])
            if rows is not None:
                taken.append((mm_hash, rows))
        if not taken:
            return []
        hashes, arrays = [h for h, _ in taken], [r for _, r in taken]
        if all(map(_tensors.is_host_tensor, arrays)):
            addresses = [array.data_ptr() for array in arrays]
            tokens = [array.shape[0] for array in arrays]
            copies = self._core.store_rows(hashes, addresses, tokens, arrays, name)
        else:
            copies = self._core.store_to_pool(hashes, arrays, name)
        handles = []
        for index, (mm_hash, rows) in enumerate(taken):
            entry = EmbeddingCacheEntry(
                hash=mm_hash,
                modality=modality,
                num_tokens=int(rows.shape[0]),
                dim=int(rows.shape[1]),
                page_runs=[],
                state=EntryState.FILLING,
            )
            handles.append((entry, AsyncCopyHandle(mm_hash, copies, index)))
        return handles

    def _rows_for(self, mm_hash: str, tensor: Any, width: int) -> Any:
        """The tensor as rows in host memory; None, with a warning, for one that does not fit."""
        if int(tensor.shape[-1]) != width:
            logger.warning(
                "[Rank %s] Embedding dim mismatch for %s: pool.dim=%s, tensor.dim=%s; skipping "
                "pool store", self.tp_rank, mm_hash, width, int(tensor.shape[-1]),
            )
            return None
        if not _tensors.holds_dtype(tensor, self._dtype_name):
            logger.warning(
                "[Rank %s] Embedding dtype mismatch for %s: pool.dtype=%s, tensor.dtype=%s; "
                "skipping pool store", self.tp_rank, mm_hash, self._dtype_name, tensor.dtype,
            )
            return None
        rows = _tensors.as_rows(tensor)
        return rows.to("cpu") if _tensors.is_device_tensor(rows) else rows

    def wait_store_to_pool(
        self, handles: Sequence[tuple[EmbeddingCacheEntry, AsyncCopyHandle]]
    ) -> None:
        """Waits for such copies. Never raises: what could not be copied is not in the pool."""
        for entry, handle in handles:
            outcome = handle.wait()
            if outcome in ("copied", "present"):
                entry.state = EntryState.READY
            elif outcome == "failed":
                logger.warning("[Rank %s] %s was not stored", self.tp_rank, handle.entry_hash)

    def insert_batch(
        self, mm_hashes: Sequence[str], tensors_or_modality: Any = None, modality: Any = None
    ) -> None:
        """Offers all that are ready to the store in one batch, local hits too, without waiting.
        ``insert_batch(hashes, tensors)``, SGLang's earlier form, copies what is not here first."""
        if isinstance(tensors_or_modality, (list, tuple)):
            kind = modality if modality is not None else next(iter(self._widths))
            self.wait_store_to_pool(
                self.store_to_pool_async(mm_hashes, tensors_or_modality, kind)
            )
        else:
            kind = tensors_or_modality if tensors_or_modality is not None else modality
            if self._known(kind, "insert_batch") is None:
                return
        self._core.publish(list(mm_hashes))

    # --- Out of the pool

    def get_pool_views(self, mm_hashes: Sequence[str]) -> list[list[Any] | None]:
        """For each hash None, where it is not ready, or its rows as tensors over the pool's memory,
        one each run. They are not to be written to. Release them with ``release_pool_views``."""
        results: list[list[Any] | None] = []
        for mm_hash in mm_hashes:
            embedding = self._core.pin(mm_hash)
            if embedding is None:
                results.append(None)
                continue
            results.append(_tensors.views_of(embedding))
            with self._lock:
                self._views.setdefault(mm_hash, []).append(embedding)
        return results

    def release_pool_views(self, mm_hashes: Sequence[str]) -> None:
        """Gives the holds of ``get_pool_views`` back; tensors that still live keep theirs."""
        released = []
        with self._lock:
            for mm_hash in mm_hashes:
                held = self._views.get(mm_hash)
                if held is None:
                    continue
                released.append((mm_hash, held.pop()))
                if not held:
                    del self._views[mm_hash]
        for _, embedding in released:
            embedding.release()
        self._core.used([mm_hash for mm_hash, _ in released])

    def load_to_device_async(
        self, mm_hash: str, dst_tensor: Any, dst_token_offset: int
    ) -> AsyncCopyHandle | None:
        """Copies one embedding into ``dst_tensor[dst_token_offset:]``, in the background. None, with
        a warning, where it is not ready. InvalidError where it does not fit."""
        if _tensors.is_device_tensor(dst_tensor):
            return self._load_by_stream(mm_hash, dst_tensor, dst_token_offset)
        if (
            0 <= dst_token_offset <= dst_tensor.shape[0]
            and dst_tensor.ndim == 2
            and _tensors.is_host_tensor(dst_tensor)
            and dst_tensor.is_contiguous()
            and _tensors.holds_dtype(dst_tensor, self._dtype_name)
        ):
            rows, width = dst_tensor.shape
            address = dst_tensor.data_ptr() + dst_token_offset * width * self.element_size
            copies = self._core.load_rows(
                mm_hash, address, rows - dst_token_offset, width, dst_tensor
            )
        else:
            copies = self._core.load(mm_hash, dst_tensor, dst_token_offset)
        if copies is None:
            logger.warning("Hash %s not found in local cache", mm_hash)
            return None
        return AsyncCopyHandle(mm_hash, copies)

    def _load_by_stream(self, mm_hash: str, dst: Any, offset: int) -> AsyncCopyHandle | None:
        embedding = self._core.pin(mm_hash)
        if embedding is None:
            logger.warning("Hash %s not found in local cache", mm_hash)
            return None
        torch = _tensors.torch()
        self._pin_regions(torch)
        stream = self._copy_streams.get(str(dst.device))
        if stream is None:
            stream = self._copy_streams.setdefault(
                str(dst.device), torch.cuda.Stream(device=dst.device)
            )
        stream.wait_stream(torch.cuda.current_stream(dst.device))
        event = torch.cuda.Event()
        with torch.cuda.stream(stream):
            for view in _tensors.views_of(embedding):
                dst[offset : offset + view.shape[0]].copy_(view, non_blocking=True)
                offset += view.shape[0]
            event.record(stream)
        return AsyncCopyHandle(mm_hash, event=event, held=embedding)

    def _pin_regions(self, torch: Any) -> None:
        """Makes the pools' memory pinned for the device, once; without it copies are only slower."""
        with self._lock:
            if self._pinned_regions:
                return
            self._pinned_regions = True
        for address, nbytes in self._core.regions():
            error = torch.cuda.cudart().cudaHostRegister(address, nbytes, 0)
            if int(error) != 0:
                logger.warning("cudaHostRegister of %d bytes: error %s", nbytes, error)

    def wait_load_to_device(self, handles: Sequence[AsyncCopyHandle]) -> None:
        """Waits for such copies, and gives their holds back."""
        failed = []
        for handle in handles:
            if handle.wait() != "copied":
                failed.append(handle.entry_hash)
        self._core.used([handle.entry_hash for handle in handles])
        if failed:
            raise RuntimeError(f"embeddings were not copied: {', '.join(failed)}")

    # --- What there is

    def get_embedding_dim(self, modality: Any = None) -> int:
        """Elements a row. Of audio without a width of its own: that of vision."""
        name = _modality_name(modality)
        if name in self._widths:
            return self._widths[name]
        if name == "audio":
            return self._widths["image"]
        raise InvalidError(f"modality {modality!r} is none of {', '.join(self._widths)}")

    @property
    def vision_pool(self) -> EmbeddingPool | None:
        return self._pool("vision", "image")

    @property
    def audio_pool(self) -> EmbeddingPool | None:
        return self._pool("audio", "audio")

    @property
    def pools(self) -> dict[str, EmbeddingPool | None]:
        return {"vision": self.vision_pool, "audio": self.audio_pool}

    def _pool(self, kind: str, modality: str) -> EmbeddingPool | None:
        for pool in self._core.stats()["pools"]:
            if pool["name"].startswith(kind):
                return EmbeddingPool(
                    modality=kind,
                    dim=self._widths[modality],
                    dtype=self.dtype,
                    page_size=pool["page_bytes"] // pool["row_bytes"],
                    num_pages=pool["pages"],
                    page_bytes=pool["page_bytes"],
                    pool_size_bytes=pool["pages"] * pool["page_bytes"],
                    free_pages=pool["free"],
                )
        return None

    def get_stats(self) -> dict[str, float]:
        """SGLang's figures. ``total_allocated`` and ``total_evicted`` are in bytes of rows: what got
        room in the pool, for copies and for prefetches, and what was evicted. ``eviction_count`` is
        how often room had to be made."""
        pools = [pool for pool in self._core.stats()["pools"] if pool["name"] != "uncached"]

        def total(name: str) -> int:
            return sum(pool[name] for pool in pools)

        def free_pages(kind: str) -> int:
            return sum(pool["free"] for pool in pools if pool["name"].startswith(kind))

        used = sum((pool["pages"] - pool["free"]) * pool["page_bytes"] for pool in pools)
        free = sum(pool["free"] * pool["page_bytes"] for pool in pools)
        return {
            "total_allocated": total("allocated_bytes"),
            "total_evicted": total("evicted_bytes"),
            "eviction_count": total("eviction_rounds"),
            "allocation_failures": total("allocation_failures"),
            "num_cached": total("entries") + total("filling_entries"),
            "num_pinned": total("pinned_entries"),
            "allocated_mb": used / _MIB,
            "free_mb": free / _MIB,
            "total_mb": (used + free) / _MIB,
            "vision_free_pages": free_pages("vision"),
            "audio_free_pages": free_pages("audio"),
        }

    def close(self, timeout_s: float = 5.0) -> None:
        """Stops taking work, waits for transfers under way, and closes the store if it is ours.
        Views that still live stay good. Idempotent."""
        with self._lock:
            views, self._views = self._views, {}
        for held in views.values():
            for embedding in held:
                embedding.release()
        self._core.close(timeout_s)


# For inspect.signature, as SGLang's later form reads.
EmbeddingCacheController.__signature__ = inspect.signature(_new_form)  # type: ignore[attr-defined]
