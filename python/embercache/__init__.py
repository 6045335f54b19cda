"""EmberCache: a shared cache for the embeddings that multimodal encoders compute.

    import embercache

    cache = embercache.open(backend="file", config={"dir": "/var/cache/embercache"},
                            namespace="my-encoder-v1", hidden=1024, dtype="F32")
    embedding = cache.get_or_compute(cache.media_key(image_bytes), lambda: encode(image_bytes))
    array = embedding.numpy()  # [tokens, hidden], over the cache's memory

Importing it needs NumPy at most when arrays are asked for, and neither torch nor an engine. See
docs/python.md.
"""

from __future__ import annotations

import atexit as _atexit
import json as _json
from collections.abc import Mapping as _Mapping

from . import errors
from ._core import (
    Cache,
    Copies,
    Embedding,
    Key,
    Store,
    backend_names,
    namespace_digest,
    open_store,
    set_log_level,
)
from ._core import default_pool_bytes as _default_pool_bytes
from ._core import shut_down as _shut_down
from .errors import EmberCacheError, InvalidError

__version__ = "0.1.0"
__all__ = [
    "Cache",
    "Copies",
    "EmberCacheError",
    "Embedding",
    "Key",
    "Store",
    "backend_names",
    "errors",
    "namespace_digest",
    "open",
    "open_store",
    "set_log_level",
]

# Publications and fetches under way get so long when the interpreter ends.
_EXIT_TIMEOUT_S = 5.0


def open(
    backend: str | Store | None = None,
    config: _Mapping[str, object] | None = None,
    *,
    namespace: str | bytes,
    hidden: int | _Mapping[str, int],
    dtype: str = "F32",
    max_pool_bytes: int | None = None,
    **settings: object,
) -> Cache:
    """Opens the cache of one model on this node.

    backend: the name of a built-in store (``backend_names()``) with its ``config``, an open Store,
        or None for host memory alone.
    namespace: what keeps this model's embeddings apart from others': a text that changes with
        model, weights and preprocessing, or the 32 bytes of ``namespace_digest()``.
    hidden: elements a row, of images, or for each modality: ``{"image": 1024, "audio": 512}``.
    dtype: of all rows, as safetensors names it: ``"F32"``, ``"F16"``, ``"BF16"``, ...
    max_pool_bytes: host memory; by default the smaller of 4 GB and a quarter of the memory. 0:
        nothing is kept here.
    settings: further arguments of ``Cache``, such as ``lookup_timeout_s`` (0.5 seconds).

    Raises InvalidError for wrong values (the message lists those that are known), and what opening
    the store raised.
    """
    if backend is None and config is not None:
        raise InvalidError("config is for a backend; name one of " + ", ".join(backend_names()))
    if isinstance(backend, Store) and config is not None:
        raise InvalidError("config is for a backend's name, and this store is open already")
    store = backend
    if isinstance(backend, str):
        store = open_store(backend, _json.dumps(dict(config or {})))
    digest = namespace if isinstance(namespace, bytes) else namespace_digest(namespace, dtype=dtype)
    widths = {"image": hidden} if isinstance(hidden, int) else dict(hidden)
    pool_bytes = _default_pool_bytes() if max_pool_bytes is None else max_pool_bytes
    return Cache(store, digest, widths, dtype, pool_bytes, **settings)


# At the end, not when modules go: threads of the core may still want the GIL until then.
_atexit.register(_shut_down, _EXIT_TIMEOUT_S)
