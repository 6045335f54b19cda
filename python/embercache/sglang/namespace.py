"""What keeps embeddings of different models apart: where a namespace comes from.

In this order: the argument ``namespace``; the variable ``EMBERCACHE_NAMESPACE``; SGLang's own server
arguments, after ``install()``. Without any of them a shared store is refused, since two models would
exchange their embeddings there.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import sys
from typing import Any, BinaryIO

from .. import _core
from ..errors import InvalidError

# Set by install(): SGLang's arguments count only then.
use_server_arguments = False

# What decides the bytes of an embedding besides the weights, as model folders name it.
_PROCESSOR_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "image_processor_config.json",
)
# How much of weights is read: of each tensor, or at so many places of a file of another kind.
_SAMPLE_BYTES = 4096
_SAMPLES = 1024
_MAX_HEADER_BYTES = 100_000_000
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def namespace_of(
    given: str | bytes | None, backend: str, *, dtype: str = "F32", tp_size: int = 1
) -> bytes:
    """The 32 bytes of a namespace; InvalidError, with the ways out, where there is none."""
    if isinstance(given, bytes):
        return given
    text = given or os.environ.get("EMBERCACHE_NAMESPACE", "")
    if text:
        return _core.namespace_digest(text)
    if use_server_arguments:
        found = _from_server_arguments()
        if found is not None:
            return found
    raise InvalidError(
        f"the store '{backend}' is shared, and there is no namespace to keep this model's "
        "embeddings apart from others'; set EMBERCACHE_NAMESPACE to a text that changes with "
        "model, weights and preprocessing, or pass namespace=, or start SGLang with "
        "EMBERCACHE_SGLANG=1, which takes it from the server's arguments"
    )


def local_namespace() -> bytes:
    """For what is shared with nobody."""
    return _core.namespace_digest("embercache.sglang.local")


def _from_server_arguments() -> bytes | None:
    """From the model's folder, revision, dtype and tensor-parallel size; None outside a server."""
    arguments = _server_arguments()
    if arguments is None:
        return None
    model_path, revision, dtype, tp_size = arguments
    folder = _model_folder(model_path, revision)
    if folder is None:
        return None
    return digest_of_model(folder, revision=revision, dtype=dtype, tp_size=tp_size)


def digest_of_model(
    folder: pathlib.Path, *, revision: str | None, dtype: str, tp_size: int
) -> bytes:
    """Over config.json, the weights' index, names, sizes and the beginning of each tensor, the
    processor's files, and the rest: two trainings of one model are two namespaces.

    The folder's own path is not part of it: nodes keep models in different places.
    """
    weights = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name.endswith(_WEIGHT_SUFFIXES):
            weights.update(f"{path.name}\0{path.stat().st_size}\0".encode() + _sample_of(path))
        elif path.name.endswith(".index.json"):
            weights.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    processor = hashlib.sha256()
    for name in _PROCESSOR_FILES:
        path = folder / name
        if path.is_file():
            processor.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    config = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    return _core.namespace_digest(
        f"sglang config={config} revision={revision or ''} dtype={dtype}",
        weights_sha256=weights.hexdigest(),
        preprocess_fingerprint=f"sglang {processor.hexdigest()}",
        tensor_parallel_size=tp_size,
    )


def _sample_of(path: pathlib.Path) -> bytes:
    """A digest of some of a file of weights: training changes all of a tensor, and reading all of
    many gigabytes would take minutes."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with path.open("rb") as file:
        offsets = _tensor_offsets(file, size) or range(0, size, max(1, size // _SAMPLES))
        for offset in offsets:
            file.seek(offset)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.digest()


def _tensor_offsets(file: BinaryIO, size: int) -> list[int]:
    """Where the tensors of a safetensors file begin; empty for any other file."""
    header_bytes = int.from_bytes(file.read(8), "little")
    if not 2 <= header_bytes <= min(size - 8, _MAX_HEADER_BYTES):
        return []
    try:
        tensors = json.loads(file.read(header_bytes))
        starts = [tensors[name]["data_offsets"][0] for name in tensors if name != "__metadata__"]
        return sorted(8 + header_bytes + int(start) for start in starts)
    except (ValueError, TypeError, KeyError, IndexError):
        return []


def _server_arguments() -> tuple[str, str | None, str, int] | None:
    context = sys.modules.get("sglang.srt.runtime_context")
    try:
        if context is not None and hasattr(context, "get_model"):
            model = context.get_model()
            tp_size = int(context.get_parallel().tp_size)
            return str(model.model_path), model.revision, str(model.dtype), tp_size
        arguments: Any = sys.modules["sglang.srt.server_args"].get_global_server_args()
        return (
            str(arguments.model_path),
            arguments.revision,
            str(arguments.dtype),
            int(arguments.tp_size),
        )
    except (AttributeError, KeyError, RuntimeError, ValueError, AssertionError):
        return None  # no server in this process


def _model_folder(model_path: str, revision: str | None) -> pathlib.Path | None:
    folder = pathlib.Path(model_path)
    if not folder.is_dir():
        try:
            from huggingface_hub import snapshot_download

            folder = pathlib.Path(
                snapshot_download(model_path, revision=revision, local_files_only=True)
            )
        except Exception:  # not there, or no such name: whatever the hub's client raises
            return None
    return folder if (folder / "config.json").is_file() else None
