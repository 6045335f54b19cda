"""SGLang's multimodal embedding cache, over EmberCache's core.

The classes have the names, signatures and meanings of SGLang's own. ``install()`` puts them in
SGLang's place; with ``EMBERCACHE_SGLANG=1`` that happens by itself in every process of a server.
torch is imported when it is first needed, SGLang never.
"""

from __future__ import annotations

from .controller import AsyncCopyHandle, EmbeddingCacheController
from .install import install, plugin
from .store import (
    EmbeddingStore,
    EmbeddingStoreFactory,
    FileEmbeddingStore,
    MemoryEmbeddingStore,
    MooncakeEmbeddingStore,
    NativeEmbeddingStore,
    PluginEmbeddingStore,
    RedisEmbeddingStore,
)
from .views import (
    EmbeddingCacheEntry,
    EmbeddingPool,
    EntryState,
    EvictableLRU,
    PageRun,
    RangePageAllocator,
)

__all__ = [
    "AsyncCopyHandle",
    "EmbeddingCacheController",
    "EmbeddingCacheEntry",
    "EmbeddingPool",
    "EmbeddingStore",
    "EmbeddingStoreFactory",
    "EntryState",
    "EvictableLRU",
    "FileEmbeddingStore",
    "MemoryEmbeddingStore",
    "MooncakeEmbeddingStore",
    "NativeEmbeddingStore",
    "PageRun",
    "PluginEmbeddingStore",
    "RangePageAllocator",
    "RedisEmbeddingStore",
    "install",
    "plugin",
]
