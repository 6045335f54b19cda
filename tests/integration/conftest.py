import io
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import ec_server  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("PROGRAM_UNDER_TEST", ec_server.PROGRAM))
PLUGINS = pathlib.Path(os.environ.get("PLUGINS_UNDER_TEST", PROGRAM.parents[1] / "tests/plugins"))


def run(*arguments, exit_code=0, env=None, cwd=None):
    """Runs the program under test to its end; what it printed. A failure is one line on stderr, and becomes `stderr`."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=5 * ec_server.START_SECONDS,
        env=os.environ | (env or {}),
        cwd=cwd,
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="session")
def model():
    return ec_server.ROOT / ".deps/models/det16"


@pytest.fixture(scope="session")
def media():
    return ec_server.ROOT / ".deps/media"


@pytest.fixture(scope="session")
def start(model):
    """Starts a server of the program under test with the small model."""

    def start_server(*flags, **arguments):
        if "--mm-global-cache-size-gb" not in flags:
            flags += ("--mm-global-cache-size-gb", "0.1")
        return ec_server.Server("--model", model, *flags, program=PROGRAM, **arguments)

    return start_server


def global_cache(folder, size_gb=0.1):
    """Flags of a node with a host cache over a file store. The store's answers are waited for, so
    that a busy machine does not turn hits into misses."""
    return (
        *("--enable-mm-global-cache", "--file-store-dir", folder),
        *("--mm-global-cache-size-gb", size_gb, "--lookup-timeout-ms", 20000),
        *("--request-timeout-ms", 120000),
    )


def wait_until(condition):
    deadline = time.monotonic() + ec_server.START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def settle(server):
    """Waits until the server has let go of all requests and their pins: a moment after the answers."""

    def is_settled():
        stats = server.request("GET", "/v1/stats").json()
        held = [pool["entries"][kind] for pool in stats["pools"] for kind in ("pinned", "filling")]
        return stats["items_admitted"] == sum(held) == 0

    wait_until(is_settled)


def picture(seed, size=(64, 48), kind="PNG"):
    """The bytes of an image file; another seed gives another image."""
    pixels = random.Random(seed).randbytes(size[0] * size[1] * 3)
    file = io.BytesIO()
    Image.frombytes("RGB", size, pixels).save(file, kind)
    return file.getvalue()
