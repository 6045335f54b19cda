"""The stores that servers share in the tests, each by a context manager of (folder)."""
import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import socket
import urllib.request
from collections.abc import Callable

from servers import Process, free_port, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[3]
START_S = 120
PUBLISHED_S = 300


@dataclasses.dataclass
class Store:
    config: dict  # the backend's options
    count: Callable[[], int]  # objects that are there

    @property
    def env(self):
        return {"EMBERCACHE_MM_GLOBAL_CACHE_CONFIG": json.dumps(self.config)}

    def wait_for(self, objects):
        wait_until(lambda: self.count() >= objects, PUBLISHED_S, f"no {objects} objects in the store")


@contextlib.contextmanager
def file(folder):
    place = folder / "store"
    shutil.rmtree(place, ignore_errors=True)
    yield Store({"dir": str(place)}, lambda: len(list(place.rglob("*.emb"))))


@contextlib.contextmanager
def redis(folder):
    port = free_port()

    def objects():
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(b"KEYS *\r\nQUIT\r\n")
            with connection.makefile("rb") as answer:
                return len(set(re.findall(rb"emb_[0-9a-f]{64}", answer.read())))

    command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    with Process(command, folder / "redis.log") as server:
        wait_until(lambda: listens(server, port), START_S, "redis-server does not start")
        yield Store({"url": f"redis://127.0.0.1:{port}"}, objects)


@contextlib.contextmanager
def mooncake(folder):
    """A master and the owner of a segment, of the package in .venv, where our bridge finds it too."""
    [programs] = (ROOT / ".venv").glob("lib/python3*/site-packages/mooncake")
    master_port, owner_port, metrics_port = free_port(), free_port(), free_port()
    address = f"127.0.0.1:{master_port}"

    def objects():
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
            [count] = re.findall(r"^master_key_count (\d+)", answer.read().decode(), re.MULTILINE)
            return int(count)

    master = [programs / "mooncake_master", "--rpc_address=127.0.0.1", f"--rpc_port={master_port}",
              "--metrics_host=127.0.0.1", f"--metrics_port={metrics_port}"]
    owner = [programs / "mooncake_client", "--host=127.0.0.1", f"--port={owner_port}",
             "--metadata_server=P2PHANDSHAKE", f"--master_server_address={address}",
             "--global_segment_size=256MB", "--local_buffer_size=16MB"]
    with Process(master, folder / "mooncake_master.log") as first:
        wait_until(lambda: listens(first, master_port), START_S, "mooncake_master does not start")
        with Process(owner, folder / "mooncake_client.log") as second:
            wait_until(lambda: listens(second, owner_port), START_S, "mooncake_client does not start")
            yield Store({"master_server_address": address, "protocol": "tcp",
                         "python": str(ROOT / ".venv/bin/python")}, objects)


def listens(process, port):
    process.check()
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10):
        return True
    return False


STORES = {"file": file, "redis": redis, "mooncake": mooncake}
