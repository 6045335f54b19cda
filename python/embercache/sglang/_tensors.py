"""Arrays of torch, where it is there, and of NumPy. torch is imported at the first need."""

from __future__ import annotations

import functools
from typing import Any

from ..errors import InvalidError

# Of each element type: the name that safetensors uses, and its bytes.
_DTYPES = {
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "int16": ("I16", 2),
    "int32": ("I32", 4),
    "int64": ("I64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
}


@functools.cache
def torch() -> Any:
    """The module, or None where it is not installed."""
    try:
        import torch as module
    except ImportError:
        return None
    return module


def dtype_name(dtype: Any) -> str:
    """"float32" of torch.float32, numpy.float32, numpy.dtype("float32"), "float32" or "F32"."""
    if dtype is None:
        return "float32"
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    text = text.removeprefix("torch.")
    for name, (short, _) in _DTYPES.items():
        if text in (name, short):
            return name
    raise InvalidError(f"dtype {dtype!r} is none of {', '.join(_DTYPES)}")


def short_name(name: str) -> str:
    return _DTYPES[name][0]


def itemsize(name: str) -> int:
    return _DTYPES[name][1]


def is_device_tensor(array: Any) -> bool:
    device = getattr(array, "device", None)
    return getattr(device, "type", "cpu") not in ("cpu", None)


def is_host_tensor(array: Any) -> bool:
    """Whether it is a tensor of torch in host memory."""
    return getattr(array, "is_cpu", False) is True


def as_rows(array: Any) -> Any:
    """The array as [tokens, hidden], contiguous: itself where it is so already."""
    if array.ndim == 2 and is_host_tensor(array) and array.is_contiguous():
        return array
    if hasattr(array, "detach"):
        array = array.detach()
    if array.ndim != 2:
        array = array.reshape(-1, array.shape[-1])
    if hasattr(array, "contiguous"):
        return array.contiguous()
    if not array.flags["C_CONTIGUOUS"]:
        import numpy

        array = numpy.ascontiguousarray(array)
    return array


def holds_dtype(array: Any, name: str) -> bool:
    """Whether the elements are of that type; NumPy has uint16 for bfloat16."""
    found = str(array.dtype).removeprefix("torch.")
    return found == name or (name == "bfloat16" and found == "uint16")


def views_of(embedding: Any) -> list[Any]:
    """One tensor or, without torch, array for each run of rows, over the cache's memory."""
    module = torch()
    if module is None:
        return embedding.runs()
    # As capsules, which torch takes without asking for devices and versions first.
    return list(map(module.utils.dlpack.from_dlpack, embedding.dlpack_capsules()))
