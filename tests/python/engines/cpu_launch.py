"""Starts SGLang's server, as `python -m sglang.launch_server` does, on a CPU: cpu_launch.py ARGUMENT...

SGLang's multimodal global cache needs two things that a CPU has not: pinned memory, and a CUDA stream to
synchronise. Children that ranks are started in import this module again, and so get the same, and what
embercache.pth does where the package is installed."""
import os
import pathlib
import sys
import types

exec((pathlib.Path(__file__).parents[3] / "python/embercache.pth").read_text())

import torch  # noqa: E402

_empty = torch.empty


def _unpinned_empty(*arguments, pin_memory=False, **settings):
    return _empty(*arguments, **settings)


torch.empty = _unpinned_empty
torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(synchronize=lambda: None)
torch.set_num_threads(1)

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args(sys.argv[1:]))
