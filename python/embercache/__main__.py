"""Runs the program: ``python -m embercache serve --model DIR`` and all its other commands."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys


def main() -> None:
    """Becomes the program `embercache`, which lies in this package, with the arguments given."""
    program = pathlib.Path(__file__).parent / "bin" / "embercache"
    _name_runtime()
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"embercache: the program {program} does not start: {error.strerror}")


def _name_runtime() -> None:
    """ONNX Runtime of this Python's package, unless the environment names another."""
    if os.environ.get("ONNXRUNTIME_LIBRARY") or os.environ.get("ONNXRUNTIME_ROOT"):
        return
    spec = importlib.util.find_spec("onnxruntime")  # found, not imported
    if spec is None or spec.origin is None:
        return
    for library in sorted(pathlib.Path(spec.origin).parent.glob("capi/libonnxruntime.so.*")):
        os.environ["ONNXRUNTIME_LIBRARY"] = str(library)


if __name__ == "__main__":
    main()
