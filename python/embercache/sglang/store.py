"""Stores as SGLang's controller and ours take them, and the factory that makes them by name."""

from __future__ import annotations

import abc
import dataclasses
import importlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from .. import _core
from ..errors import InvalidError
from .namespace import local_namespace, namespace_of

logger = logging.getLogger(__name__)


class EmbeddingStore(abc.ABC):
    """What a store has to do: five methods, each answering exactly one bool a hash.

    Derive from it, or from SGLang's class of this name, to write a store in Python: it gets the
    bytes of the rows as they are, without an envelope, so what it gives back is not checked.
    Addresses are of host memory, sizes in bytes.
    """

    @abc.abstractmethod
    def batch_get(self, hashes: list[str], ptrs: list[int], sizes: list[int]) -> list[bool]:
        """Reads each object into one buffer."""

    @abc.abstractmethod
    def batch_put(self, hashes: list[str], ptrs: list[int], sizes: list[int]) -> list[bool]:
        """Stores one buffer for each hash that is not there."""

    @abc.abstractmethod
    def batch_get_into_multi_buffers(
        self, hashes: list[str], ptrs: list[list[int]], sizes: list[list[int]]
    ) -> list[bool]:
        """Reads each object into several buffers, one after the other."""

    @abc.abstractmethod
    def batch_put_from_multi_buffers(
        self, hashes: list[str], ptrs: list[list[int]], sizes: list[list[int]]
    ) -> list[bool]:
        """Stores several buffers as one object for each hash that is not there."""

    @abc.abstractmethod
    def batch_is_exist(self, hashes: list[str]) -> list[bool]:
        """Whether each is there."""

    def register_buffer(self, tensor: Any) -> None:
        """Announces memory that later addresses lie in. Does nothing by default."""

    def get_key(self, mm_hash: str) -> str:
        """The key of a hash in the store."""
        return f"emb_{mm_hash}"


class NativeEmbeddingStore(EmbeddingStore):
    """One of EmberCache's own backends. Our controller uses it as it is; for SGLang's it keeps
    namespaces, envelopes and checks by itself, and so shares objects with ours.

    config: the backend's options. Without any, those of ``EMBERCACHE_MM_GLOBAL_CACHE_CONFIG`` (a
        JSON object, or a file with one) and, for the file store, of ``EMBERCACHE_FILE_STORE_DIR``.
    namespace: what keeps a model's embeddings apart from others'; see ``embercache.sglang``.
    """

    backend = ""

    def __init__(
        self,
        storage_config: dict[str, Any] | None = None,
        *,
        namespace: str | bytes | None = None,
        timeout_s: float = 30.0,
        **config: Any,
    ) -> None:
        options = {**(storage_config or {}), **config} or _config_from_environment(self.backend)
        options = {**self._defaults(), **options}
        self.native = _core.open_store(self.backend, json.dumps(options))
        self.namespace = namespace
        self._timeout_s = timeout_s
        self._bytes: _core.ByteStore | None = None

    @staticmethod
    def _defaults() -> dict[str, Any]:
        return {}

    def digest(self, namespace: str | bytes | None = None) -> bytes:
        """The namespace of its objects: the one given here, or the store's own."""
        if self.native.raw:  # whose keys have none
            return local_namespace()
        return namespace_of(namespace or self.namespace, self.backend)

    def _byte_store(self) -> _core.ByteStore:
        # Not at once: our controller has a namespace of its own, and needs none here.
        if self._bytes is None:
            self._bytes = _core.ByteStore(self.native, self.digest(), self._timeout_s)
        return self._bytes

    def batch_get(self, hashes: list[str], ptrs: list[int], sizes: list[int]) -> list[bool]:
        return self.batch_get_into_multi_buffers(hashes, *_as_lists(ptrs, sizes))

    def batch_put(self, hashes: list[str], ptrs: list[int], sizes: list[int]) -> list[bool]:
        return self.batch_put_from_multi_buffers(hashes, *_as_lists(ptrs, sizes))

    def batch_get_into_multi_buffers(
        self, hashes: list[str], ptrs: list[list[int]], sizes: list[list[int]]
    ) -> list[bool]:
        return self._byte_store().get(hashes, ptrs, sizes)

    def batch_put_from_multi_buffers(
        self, hashes: list[str], ptrs: list[list[int]], sizes: list[list[int]]
    ) -> list[bool]:
        return self._byte_store().put(hashes, ptrs, sizes)

    def batch_is_exist(self, hashes: list[str]) -> list[bool]:
        return self._byte_store().exist(hashes)

    def register_buffer(self, tensor: Any) -> None:
        if hasattr(tensor, "data_ptr"):
            address, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        else:
            address, nbytes = tensor.ctypes.data, tensor.nbytes
        self._byte_store().register_buffer(address, nbytes)

    def get_key(self, mm_hash: str) -> str:
        return self._byte_store().key_text(mm_hash)

    def close(self, timeout_s: float = 5.0) -> None:
        self.native.close(timeout_s)


class FileEmbeddingStore(NativeEmbeddingStore):
    """A folder that several processes share. Options: ``dir``, ``max_bytes``, ..."""

    backend = "file"


class MemoryEmbeddingStore(NativeEmbeddingStore):
    """This process's memory, for tests."""

    backend = "memory"


class MooncakeEmbeddingStore(NativeEmbeddingStore):
    """A cluster of Mooncake. Options: ``master_server_address``, ``protocol``, ...; its ``MOONCAKE_*``
    variables. This Python has to have its package, unless ``python`` names another that has.
    With ``format="raw"`` it shares a cluster with nodes that run SGLang's own classes: the rows alone,
    under ``emb_<hash>``, checked by their length only."""

    backend = "mooncake"

    @staticmethod
    def _defaults() -> dict[str, Any]:
        # Its configuration file may name another too.
        return {} if "MOONCAKE_CONFIG_PATH" in os.environ else {"python": sys.executable}


class PluginEmbeddingStore(NativeEmbeddingStore):
    """A shared object. Options: ``library``, ``config``."""

    backend = "plugin"


class RedisEmbeddingStore(NativeEmbeddingStore):
    """Redis or Valkey. Options: ``url``, ..."""

    backend = "redis"


@dataclasses.dataclass(frozen=True)
class _Registration:
    module_path: str
    class_name: str


class EmbeddingStoreFactory:
    """Stores by name, imported at their first use."""

    _registry: dict[str, _Registration] = {}

    @classmethod
    def register_backend(cls, name: str, module_path: str, class_name: str) -> None:
        """Makes ``class_name`` of ``module_path`` known under a name; again: replaces, and warns."""
        if name in cls._registry:
            logger.warning("Embedding store backend '%s' is already registered, overwriting", name)
        cls._registry[name] = _Registration(module_path, class_name)

    @classmethod
    def create_backend(cls, backend_name: str, **kwargs: Any) -> Any:
        """Makes a store; ``kwargs`` go to its constructor.

        ValueError for an unknown name lists those there are; ImportError, AttributeError and
        TypeError for a module that does not import, a class that is not in it, and one that is no
        EmbeddingStore. What the constructor raises is raised as it is, with a note.
        """
        registration = cls._registry.get(backend_name)
        if registration is None:
            known = ", ".join(sorted(cls._registry))
            raise ValueError(
                f"Unknown embedding store backend '{backend_name}'. Registered backends: {known}."
            )
        store_class = _load(backend_name, registration)
        where = f"'{backend_name}' ({registration.module_path}.{registration.class_name})"
        logger.info("Creating embedding store backend %s", where)
        try:
            return store_class(**kwargs)
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"while making the embedding store backend {where}")
            logger.error("Embedding store backend %s could not be made: %s", where, error)
            raise

    @classmethod
    def backend_names(cls) -> list[str]:
        return sorted(cls._registry)


def _load(name: str, registration: _Registration) -> type:
    module_path, class_name = registration.module_path, registration.class_name
    try:
        module = importlib.import_module(module_path)
    except ImportError as error:
        raise ImportError(
            f"Embedding store backend '{name}': module '{module_path}' of class '{class_name}' "
            f"cannot be imported: {error}"
        ) from error
    store_class = getattr(module, class_name, None)
    if store_class is None:
        raise AttributeError(
            f"Embedding store backend '{name}': module '{module_path}' has no class '{class_name}'"
        )
    if not (isinstance(store_class, type) and issubclass(store_class, _store_classes())):
        raise TypeError(
            f"Embedding store backend '{name}': '{class_name}' of module '{module_path}' is no "
            f"EmbeddingStore"
        )
    return store_class


def _store_classes() -> tuple[type, ...]:
    theirs = getattr(
        sys.modules.get("sglang.srt.mem_cache.embedding_store"), "EmbeddingStore", None
    )
    return (EmbeddingStore, theirs) if theirs is not None else (EmbeddingStore,)


def _as_lists(ptrs: Sequence[int], sizes: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
    return [[ptr] for ptr in ptrs], [[size] for size in sizes]


def _config_from_environment(backend: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    text = os.environ.get("EMBERCACHE_MM_GLOBAL_CACHE_CONFIG", "")
    if text:
        options = _read_config(text)
    folder = os.environ.get("EMBERCACHE_FILE_STORE_DIR", "")
    if folder and backend == "file":
        options["dir"] = folder
    return options


def _read_config(text: str) -> dict[str, Any]:
    variable = "EMBERCACHE_MM_GLOBAL_CACHE_CONFIG"
    try:
        if not text.lstrip().startswith("{"):
            with open(text, encoding="utf-8") as file:
                text = file.read()
        options = json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidError(
            f"{variable} is neither a JSON object nor a file with one: {error}"
        ) from error
    if not isinstance(options, dict):
        raise InvalidError(f"{variable} holds {type(options).__name__}, not a JSON object")
    return options


for _class in (
    FileEmbeddingStore,
    MemoryEmbeddingStore,
    MooncakeEmbeddingStore,
    PluginEmbeddingStore,
    RedisEmbeddingStore,
):
    EmbeddingStoreFactory.register_backend(_class.backend, __name__, _class.__name__)
