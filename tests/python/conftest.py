import gc
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import embercache

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

HIDDEN = 256
POOL_BYTES = 8 << 20
# Tests of what is there wait for slow machines, not for the default half second.
PATIENT_S = 60.0


@pytest.fixture(autouse=True)
def quiet_core():
    embercache.set_log_level("error")


@pytest.fixture
def open_cache(request):
    """Opens caches for a test, and checks at its end that nothing is left pinned or filling."""
    caches = []

    def open_(backend=None, config=None, **settings):
        defaults = dict(namespace="test", hidden=HIDDEN, max_pool_bytes=POOL_BYTES,
                        lookup_timeout_s=PATIENT_S)
        cache = embercache.open(backend, config, **{**defaults, **settings})
        caches.append(cache)
        return cache

    yield open_
    gc.collect()

    def leaks_of():
        return [pool for cache in caches if not cache.closed for pool in cache.stats()["pools"]
                if pool["pinned_entries"] or pool["filling_entries"]]

    # Publications under way hold pins too; a leak stays.
    leaks = [] if settles(lambda: not leaks_of()) else leaks_of()
    for cache in caches:
        if not cache.closed:
            cache.close(PATIENT_S)
    if leaks:
        pytest.exit(f"{request.node.nodeid} leaked: {leaks}", returncode=1)


def settles(condition):
    """Whether it comes true while one waits for it."""
    end = time.monotonic() + PATIENT_S
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


def rows(tag, tokens=10, hidden=HIDDEN, dtype=np.float32):
    """An embedding that another tag, or another row, does not have."""
    values = np.arange(tokens * hidden, dtype=np.int64) * 7 + tag * 1009
    return (values % 4093).astype(dtype).reshape(tokens, hidden)


WATCH_LEAKS = "import embercache._core\nembercache._core.set_leak_warnings(True)\n"


def run_python(code, *arguments, timeout=240, env=None):
    """Runs a program of its own. After WATCH_LEAKS, objects that outlive it are a failure. One that
    does not end says where it stands, and so do its children."""
    command = [sys.executable, "-B", "-X", "faulthandler", "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True, env={**os.environ, **(env or {})}) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)
            _, errors = process.communicate()
            pytest.fail(f"it did not end in {timeout} s:\n{errors}")
    assert "leaked" not in errors, errors
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
