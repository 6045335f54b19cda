"""Imported by embercache.pth where EMBERCACHE_SGLANG=1: in every process, so it imports nothing of the
package before SGLang's modules are imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module once that has been imported, whoever imports it."""

    def __init__(self, names: Sequence[str], call: Callable[[ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._call = call

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._names:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, self._call)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, call: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._call = call

    def create_module(self, spec: Any) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self._loader
        self._call(module)


# What install() changes; of these the first two are the old and new homes of each class.
CONTROLLER_MODULES = (
    "sglang.srt.mem_cache.embedding_cache_controller",
    "sglang.srt.mem_cache.storage.mooncake_store.embedding_cache_controller",
)
STORE_MODULE = "sglang.srt.mem_cache.embedding_store"
ARGUMENTS_MODULE = "sglang.srt.server_args"
MODULES = (*CONTROLLER_MODULES, STORE_MODULE, ARGUMENTS_MODULE)


def _patch(module: ModuleType) -> None:
    from embercache.sglang.install import patch_or_warn

    patch_or_warn(module)


def watch() -> None:
    """Changes the modules as they are imported. Once for a process."""
    if not any(isinstance(finder, AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, AfterImport(MODULES, _patch))
