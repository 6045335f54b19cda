"""Puts our classes in SGLang's place: install(), and the same as modules are imported."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import logging
import os
import sys
from types import ModuleType
from typing import Any

import _embercache_sglang as _hook

from ..errors import UnimplementedError
from . import namespace, views
from .store import EmbeddingStoreFactory, NativeEmbeddingStore

logger = logging.getLogger(__name__)

VARIABLE = "EMBERCACHE_SGLANG"
_FLAG = "--mm-global-cache-backend"

# Parameters of SGLang's methods, of each form that is known. What calls them calls ours the same way.
_KNOWN_PARAMETERS = {
    "__init__": (
        (
            "embedding_store",
            "max_pool_size_gb",
            "hidden_dims",
            "all_rank_get",
            "enable_eviction",
            "max_eviction_batch",
            "dtype",
        ),
        (
            "tp_rank",
            "tp_size",
            "embedding_store",
            "max_pool_size_gb",
            "hidden_dims",
            "tp_group",
            "all_rank_get",
            "enable_eviction",
            "max_eviction_batch",
            "dtype",
        ),
        (
            "tp_rank",
            "tp_size",
            "embedding_store",
            "max_pool_size_gb",
            "hidden_dims",
            "tp_group",
            "all_rank_get",
        ),
    ),
    "prefetch": (("req_id", "mm_hashes", "expected_tokens", "modality"),),
    "check_prefetch_progress": (("req_id",),),
    "insert_batch": (("mm_hashes", "modality"), ("mm_hashes", "tensors")),
    "batch_is_exist": (("mm_hashes",),),
    "store_to_pool_async": (("mm_hashes", "tensors", "modality"),),
    "wait_store_to_pool": (("handles",),),
    "load_to_device_async": (("mm_hash", "dst_tensor", "dst_token_offset"),),
    "wait_load_to_device": (("handles",),),
    "get_pool_views": (("mm_hashes",),),
    "release_pool_views": (("mm_hashes",),),
    "has_local_embedding": (("mm_hash",),),
    "get_embedding_dim": (("modality",),),
    "get_stats": ((),),
}
# Earlier releases lack the staging methods.
_REQUIRED = ("__init__", "prefetch", "check_prefetch_progress", "insert_batch", "batch_is_exist")


def install() -> None:
    """Our classes for SGLang's in this process: in modules that are imported already, and in
    others when they are. Also makes our backends choices of ``--mm-global-cache-backend``, whose
    default stays ``mooncake``, and takes namespaces from the server's arguments.

    Children of this process need ``EMBERCACHE_SGLANG=1``, which this sets. UnimplementedError, and
    no change, for a release whose signatures are not known, or where SGLang is not installed.
    """
    if importlib.util.find_spec("sglang") is None:
        raise UnimplementedError("SGLang is not installed in this Python")
    loaded = [sys.modules[name] for name in _hook.MODULES if name in sys.modules]
    for module in loaded:
        check(module)
    for module in loaded:
        patch(module)
    namespace.use_server_arguments = True
    os.environ[VARIABLE] = "1"
    _hook.watch()


def plugin() -> None:
    """SGLang's plugin loader calls this. Installs with ``EMBERCACHE_SGLANG=1``, or where the
    server's command line names one of our backends; not with ``EMBERCACHE_SGLANG=0``."""
    value = os.environ.get(VARIABLE, "")
    if value == "1" or (value != "0" and _names_our_backend(sys.argv)):
        install()


def check(module: ModuleType) -> None:
    """UnimplementedError, which names the method, where the module is of an unknown release."""
    if module.__name__ not in _hook.CONTROLLER_MODULES:
        return
    theirs = getattr(module, "EmbeddingCacheController", None)
    if theirs is None:
        raise UnimplementedError(f"{module.__name__} has no EmbeddingCacheController")
    if theirs.__module__.startswith("embercache."):
        return
    for name, known in _KNOWN_PARAMETERS.items():
        method = getattr(theirs, name, None)
        if method is None:
            if name in _REQUIRED:
                raise UnimplementedError(f"SGLang's EmbeddingCacheController has no {name}()")
            continue
        found = tuple(inspect.signature(method).parameters)[1:]
        if found not in known:
            raise UnimplementedError(
                f"SGLang's EmbeddingCacheController.{name} takes ({', '.join(found)}), which this "
                f"version of embercache does not know; it knows "
                + " and ".join(f"({', '.join(names)})" for names in known)
            )


def patch(module: ModuleType) -> None:
    """Our names for SGLang's in one module. Again: no change."""
    name = module.__name__
    if name in _hook.CONTROLLER_MODULES:
        _patch_controller(module)
    elif name == _hook.STORE_MODULE:
        _patch_stores(module)
    elif name == _hook.ARGUMENTS_MODULE:
        _patch_arguments(module)


def patch_or_warn(module: ModuleType) -> None:
    """For the import hook, where an error would break SGLang's import: leaves SGLang as it is."""
    namespace.use_server_arguments = True
    try:
        check(module)
        patch(module)
    except Exception as error:
        logger.error("EmberCache is not used, and SGLang's own cache is: %s", error)


def _patch_controller(module: ModuleType) -> None:
    from .controller import EmbeddingCacheController

    module.EmbeddingCacheController = EmbeddingCacheController  # type: ignore[attr-defined]
    for name in (
        "EmbeddingCacheEntry",
        "EmbeddingPool",
        "EntryState",
        "EvictableLRU",
        "PageRun",
        "RangePageAllocator",
    ):
        if hasattr(module, name):
            setattr(module, name, getattr(views, name))
    logger.info("EmberCache: its controller is in the place of %s's", module.__name__)


def _patch_stores(module: ModuleType) -> None:
    theirs = module.EmbeddingStoreFactory
    if theirs is EmbeddingStoreFactory:
        return
    # Ours are EmbeddingStores of SGLang's kind too.
    module.EmbeddingStore.register(NativeEmbeddingStore)
    own_mooncake = "mooncake" in _builtin_backends()
    for name, entry in getattr(theirs, "_registry", {}).items():
        if name != "mooncake" or not own_mooncake:
            EmbeddingStoreFactory._registry.pop(name, None)
            EmbeddingStoreFactory.register_backend(name, entry["module_path"], entry["class_name"])
    module.EmbeddingStoreFactory = EmbeddingStoreFactory  # type: ignore[attr-defined]


def _builtin_backends() -> list[str]:
    from .. import _core

    return _core.backend_names()


def _patch_arguments(module: ModuleType) -> None:
    arguments = module.ServerArgs
    original = arguments.add_cli_args
    if getattr(original, "_embercache", False):
        return

    def add_cli_args(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        result = original(parser, *args, **kwargs)
        _extend_choices(parser)
        return result

    add_cli_args._embercache = True  # type: ignore[attr-defined]
    arguments.add_cli_args = staticmethod(add_cli_args)


def _extend_choices(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if _FLAG in action.option_strings and action.choices is not None:
            ours = [name for name in EmbeddingStoreFactory.backend_names()]
            action.choices = list(dict.fromkeys([*action.choices, *ours]))


def _names_our_backend(argv: list[str]) -> bool:
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag == _FLAG:
            name = value if equals else "".join(argv[index + 1 : index + 2])
            return name != "mooncake" and name in EmbeddingStoreFactory.backend_names()
    return False
