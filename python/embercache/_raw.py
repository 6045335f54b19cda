"""What the core calls for stores written in Python."""

from __future__ import annotations

import ctypes
import sys


def register_buffer(store: object, address: int, nbytes: int) -> None:
    """Announces pool memory to a store: as a torch tensor where torch is there, which is what
    SGLang's stores expect, else as a NumPy array. Not called for stores that inherit the default."""
    method = getattr(store, "register_buffer", None)
    if method is None or getattr(method, "__func__", None) in _defaults():
        return
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    torch = sys.modules.get("torch")
    if torch is not None:
        method(torch.frombuffer(memory, dtype=torch.uint8))
    else:
        import numpy

        method(numpy.frombuffer(memory, dtype=numpy.uint8))


def _defaults() -> list[object]:
    """The methods that do nothing, ours and SGLang's."""
    methods = []
    for name in ("embercache.sglang.store", "sglang.srt.mem_cache.embedding_store"):
        cls = getattr(sys.modules.get(name), "EmbeddingStore", None)
        if cls is not None:
            methods.append(cls.register_buffer)
    return methods
