"""The C++ core of EmberCache. Use the package embercache."""

from collections.abc import Callable, Mapping, Sequence

import numpy


class Key:
    """
    The identity of an embedding: 256 bits. Made by a cache, or from its 64 hexadecimal digits.
    """

    def __init__(self, hex: str) -> None: ...

    @property
    def hex(self) -> str:
        """64 lower-case hexadecimal digits."""

    @property
    def text(self) -> str:
        """What stores use: ``emb_<hex>``."""

    def __bytes__(self) -> bytes: ...

    def __eq__(self, other: object) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Embedding:
    """
    One embedding: a row-major matrix ``[tokens, hidden]``, read-only.

    Holds the memory it lies in, without a copy, until it is released or collected; so does each array
    made from it, also after the cache was closed. Where the pool had no contiguous room, it lies in several
    runs of rows.
    """

    @property
    def key(self) -> Key:
        """Its key."""

    @property
    def shape(self) -> tuple[int, int]:
        """``(tokens, hidden)``."""

    @property
    def dtype(self) -> str:
        """The name that safetensors uses: ``"F32"``, ``"BF16"``, ..."""

    @property
    def modality(self) -> str:
        """``"image"``, ``"video"`` or ``"audio"``."""

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""

    @property
    def metadata(self) -> str:
        """A JSON object as text, or ``""``."""

    @property
    def source(self) -> str:
        """
        ``"local"`` (host cache), ``"global"`` (store), ``"joined"`` (another call was fetching or computing it)
        or ``"computed"`` (by this call).
        """

    @property
    def cached(self) -> bool:
        """
        False for an embedding that got no room: it lives as long as its views.
        """

    @property
    def contiguous(self) -> bool:
        """Whether all rows lie in one run."""

    @property
    def released(self) -> bool:
        """Whether :meth:`release` was called."""

    def runs(self) -> list[numpy.ndarray]:
        """
        The rows as read-only arrays over the cache's memory, in order, one each run. BF16 comes as ``uint16``,
        since NumPy has none. Raises InvalidError once released.
        """

    def numpy(self, copy: bool | None = None) -> numpy.ndarray:
        """
        One array ``[tokens, hidden]``: over the cache's memory and read-only where the rows are contiguous, else a copy.
        ``copy=False`` raises InvalidError instead of copying, ``copy=True`` always copies. BF16 comes as ``uint16``.
        """

    def __array__(self, dtype: object = None, copy: bool | None = None) -> numpy.ndarray: ...

    def dlpack_runs(self) -> list[object]:
        """
        The runs as objects for ``from_dlpack``, BF16 as such. They share the cache's memory: read them only.
        """

    def dlpack_capsules(self) -> list[object]:
        """The same as DLPack's capsules, each to be taken once."""

    def __dlpack__(self, **kwargs: object) -> object:
        """
        The whole embedding by DLPack, without a copy. BufferError where it is not contiguous.
        """

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def copy_to(self, destination: object, row_offset: int = 0) -> None:
        """
        Copies the rows into ``destination``, a contiguous array ``[rows, hidden]`` of the same dtype in host memory,
        from row ``row_offset`` on, without the GIL. InvalidError where they do not fit.
        """

    def release(self) -> None:
        """
        Gives the hold up. Arrays made before keep theirs. May be called again.
        """

    def __enter__(self) -> Embedding: ...

    def __exit__(self, *exc: object) -> None: ...

    def __len__(self) -> int: ...

    def __repr__(self) -> str: ...

def backend_names() -> list[str]:
    """The built-in backends, sorted."""

def open_store(backend: str, config: str = '{}') -> Store:
    """
    Opens a built-in backend. ``config`` is a JSON object as text. InvalidError for an unknown backend or option lists
    those there are. A remote peer that does not answer is no error.
    """

class Store:
    """A built-in backend that is open. Caches may share it. Thread-safe."""

    @property
    def backend(self) -> str:
        """Its name."""

    @property
    def raw(self) -> bool:
        """
        Whether its objects are rows alone, under the hashes as they are given.
        """

    @property
    def health(self) -> tuple[str, str]:
        """
        ``("up" | "starting" | "down", detail)``, as far as it is known; never waits.
        """

    def describe(self) -> str:
        """What is in use, as JSON, without secrets."""

    def close(self, timeout_s: float = 5.0) -> None:
        """
        Lets its resources go; calls answer CancelledError then. DeadlineExceededError when calls were still running. Idempotent.
        """

class ByteStore:
    """
    A store for controllers that are not ours and know embeddings only as bytes under a hash: keys of a namespace,
    envelopes without a shape, and verification of all that is read.

    Each call takes for each hash a list of addresses and one of sizes in bytes, and answers exactly one bool a hash.
    """

    def __init__(self, store: Store, namespace_digest: bytes, timeout_s: float = 30.0) -> None: ...

    def get(self, hashes: Sequence[str], pointers: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> list[bool]:
        """Reads into the buffers. True: verified, and there."""

    def put(self, hashes: Sequence[str], pointers: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> list[bool]:
        """
        Stores what the buffers hold, unless the key is there. True: it is in the store.
        """

    def exist(self, hashes: Sequence[str]) -> list[bool]:
        """Whether each is there, as a hint."""

    def key_text(self, hash: str) -> str:
        """The key in the store."""

    def register_buffer(self, address: int, nbytes: int) -> None:
        """Announces memory that later buffers lie in."""

class Copies:
    """Copies under way. Dropping it leaves them to end by themselves."""

    def wait(self, timeout_s: float = 60.0) -> list[str]:
        """
        Waits without the GIL; an outcome an item: ``copied``, ``present`` (it was ready already), ``joined`` (another is
        filling it), ``no_room``, ``missing``, ``failed``, or ``pending`` when the time is over.
        """

class Cache:
    """
    The cache of one model on this node: host memory in front of an optional store.

    Made by :func:`embercache.open`. Thread-safe. All that may block drops the GIL. A key is a :class:`Key`, or a
    caller's hash as a ``str``. Modalities are ``"image"``, ``"video"`` and ``"audio"``. In a forked child every call
    raises ForkError; after close() every call but close() raises CancelledError.
    """

    def __init__(self, store: object | None, namespace_digest: bytes, hidden: Mapping[str, int], dtype: str, max_pool_bytes: int, max_uncached_bytes: int = 268435456, enable_eviction: bool = True, max_eviction_batch: int = 100, lookup_timeout_s: float = 0.5, publish_timeout_s: float = 30.0, publish_confirm_s: float = 0.0, request_ttl_s: float = 600.0, prefault: bool = True, tp: "std::tuple<int, int>" | None = None, reduce: object | None = None) -> None:
        """
        ``store``: a Store, an object with SGLang's EmbeddingStore methods, or None. ``hidden``: elements a row for each
        modality. ``tp``: (rank, size) of ranks that agree on prefetches by ``reduce``, which gets bytes and gives their
        element-wise minimum over the ranks.
        """

    def key(self, hash: str) -> Key:
        """The key of a caller's own name for an item."""

    def media_key(self, media: bytes, modality: str = 'image', options: str = '') -> Key:
        """
        The key of media given as bytes, as they were uploaded. ``options``: canonical text of the options that change the
        result. The encode server uses the same keys.
        """

    def get_many(self, keys: Sequence[Key | str], modality: str = 'image', expected_tokens: Sequence[int] | None = None, timeout_s: float | None = None) -> list[Embedding | None]:
        """
        Looks all keys up here and, in one batch, in the store. None is a miss, also where the store was down or too slow.
        ``expected_tokens``: rows, where they are known, which saves a request to the store; -1 for an item's that are not.
        """

    def get(self, key: Key | str, modality: str = 'image', expected_tokens: int = -1, timeout_s: float | None = None) -> Embedding | None:
        """The one embedding, as by :meth:`get_many`."""

    def get_or_compute(self, key: Key | str, compute: Callable[[], object], modality: str = 'image', expected_tokens: int = -1, wait_s: float = 60.0, publish: bool = True, metadata: str = '') -> Embedding:
        """
        The embedding, from here, from the store, or from ``compute()``, which gives an array ``[tokens, hidden]`` of the
        cache's dtype in host memory (BF16 also as uint16). Of several calls for one key one computes, and the others wait
        for it up to ``wait_s`` seconds (DeadlineExceededError). What ``compute`` raises is raised. With ``publish`` a computed
        one is offered to the store, without waiting.
        """

    def pin(self, key: Key | str) -> Embedding | None:
        """What is in host memory now, or None; never asks the store."""

    def has_local(self, key: Key | str) -> bool:
        """Whether it is in host memory."""

    def exists(self, keys: Sequence[Key | str], timeout_s: float | None = None) -> list[bool]:
        """
        Whether each is here or, as a hint, in the store. A store that does not answer has nothing.
        """

    def exists_here(self, keys: Sequence[Key | str]) -> list[bool] | None:
        """
        What exists answers, where no store has to be asked for it; else None. Never waits.
        """

    def publish(self, keys: Sequence[Key | str]) -> tuple[int, int, int]:
        """
        Offers all that are ready to the store in one batch, and does not wait for it: ``(new, existing, skipped)``,
        where skipped ones are not ready.
        """

    def remove(self, key: Key | str, timeout_s: float = 5.0) -> str:
        """
        From host memory and from the store: ``removed``, ``absent`` or ``changed``; raises what the store said.
        """

    def prefetch(self, req_id: str, keys: Sequence[Key | str], expected_tokens: Sequence[int], modality: str = 'image') -> None:
        """
        Fetches what is not here, for a request, which keeps pins of all that became ready until release_request.
        AlreadyExistsError for a request that is known.
        """

    def prefetch_state(self, req_id: str, wait_s: float = 0.0) -> str:
        """
        ``pending``, ``done`` (also for a request that is not known) or ``expired``; waits for the end up to ``wait_s``.
        """

    def prefetch_outcomes(self, req_id: str) -> list[str]:
        """
        Of each item: ``pending``, ``local``, ``global``, ``joined``, ``missing``, ``no_room`` or ``failed``.
        """

    def release_request(self, req_id: str) -> bool:
        """Gives the request's pins back. False for one that is not known."""

    def prefetch_until_used(self, req_id: str, keys: Sequence[Key | str], expected_tokens: Sequence[int], modality: str = 'image') -> None:
        """
        As prefetch, for a request that is never released: its pins go once each embedding was used, after
        prefetch_ended, or by age. A request may do so several times.
        """

    def prefetch_ended(self, req_id: str, wait_s: float = 0.0) -> bool:
        """
        Whether all that prefetch_until_used began for the request has ended; waits for it up to ``wait_s``.
        """

    def used(self, keys: Sequence[Key | str]) -> None:
        """
        Somebody has read these: of each the oldest request of prefetch_until_used needs it no more.
        """

    def store_to_pool(self, keys: Sequence[Key | str], arrays: Sequence[object], modality: str = 'image', metadata: str = '') -> Copies:
        """
        Copies arrays ``[tokens, hidden]`` of the cache's dtype into host memory, in the background; each is ready once its
        copy is done. The arrays are kept until then.
        """

    def load(self, key: Key | str, destination: object, row_offset: int = 0) -> Copies | None:
        """
        Copies one embedding into a contiguous array ``[rows, hidden]`` from a row on, in the background. None where it is
        not in host memory.
        """

    def store_rows(self, keys: Sequence[Key | str], addresses: Sequence[int], tokens: Sequence[int], owners: Sequence[object], modality: str = 'image') -> Copies:
        """
        store_to_pool, for rows at addresses in host memory that the caller has checked: contiguous, of the cache's width and
        dtype. The owners are kept until the copies are done.
        """

    def load_rows(self, key: Key | str, address: int, rows: int, hidden: int, owner: object) -> Copies | None:
        """
        load, to an address in host memory with room for ``[rows, hidden]`` that the caller has checked as for store_rows.
        """

    def stats(self) -> dict[str, object]:
        """
        Pools (pages, entries, bytes), lanes to the store, the store's state, and the requests of prefetch_until_used
        that run or hold something.
        """

    def regions(self) -> list[tuple[int, int]]:
        """Address and bytes of each pool's memory."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    @property
    def namespace_digest(self) -> bytes:
        """32 bytes."""

    def close(self, timeout_s: float = 5.0) -> None:
        """
        Stops taking work, and waits for publications and fetches under way, then cancels what is left. Views stay good.
        DeadlineExceededError when a store call had not returned; it is left behind. Idempotent.
        """

    def __enter__(self) -> Cache: ...

    def __exit__(self, *exc: object) -> None: ...

def namespace_digest(model_id: str, weights_sha256: str = '', preprocess_fingerprint: str = '', dtype: str = 'F32', tensor_parallel_size: int = 1, tenant: str = '', epoch: int = 0) -> bytes:
    """
    32 bytes that differ wherever two models' embeddings of the same media do (docs/formats.md).
    """

def page_bytes_for(row_bytes: int) -> int:
    """Bytes of a page of a pool with such rows."""

def default_pool_bytes() -> int:
    """
    The smaller of 4 GB and a quarter of the memory that this process may use.
    """

def set_log_level(level: str) -> None:
    """
    ``debug``, ``info``, ``warning`` or ``error``: what the core writes to stderr, for the process.
    """

def set_leak_warnings(on: bool) -> None:
    """
    Whether objects that outlive the interpreter are named on stderr; for tests.
    """

def shut_down(timeout_s: float) -> None:
    """
    At the interpreter's end: closes all caches, and keeps their threads from Python then.
    """
