"""A client that behaves as Mooncake's does, over files in FAKE_MOONCAKE_DIR, and fails as it is told:
the file `fault.<operation>` there is {"kind": …, "times": n}."""
import ctypes
import hashlib
import json
import os
import signal
import threading
import time

FOLDER = os.environ["FAKE_MOONCAKE_DIR"]
NO_ROOM, INVALID, NOT_FOUND, TRANSFER_FAIL = -200, -600, -704, -800


def fault(op):
    """The fault that strikes this call, or None."""
    path = f"{FOLDER}/fault.{op}"
    try:
        with open(path) as file:
            told = json.load(file)
    except FileNotFoundError:
        return None
    told["times"] -= 1
    if told["times"] > 0:
        with open(f"{path}.new", "w") as file:
            json.dump(told, file)
        os.rename(f"{path}.new", path)
    else:
        os.unlink(path)
    return told


def write_late(parts):
    time.sleep(0.3)
    for address, size in parts:
        ctypes.memset(address, 0xEE, size)


def strike(told, count, parts=()):
    """The answers of a struck call; None when it is to be served."""
    kind = told["kind"]
    if kind == "code":
        return [told["code"]] * count
    if kind == "short":
        return [0] * (count - 1)
    if kind == "late":
        threading.Thread(target=write_late, args=(list(parts),), daemon=True).start()
        return [TRANSFER_FAIL] * count
    if kind == "hang":
        time.sleep(3600)
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(3600)
    if kind == "raise":
        raise RuntimeError("told to raise")
    if kind == "slow":
        time.sleep(told["seconds"])
    return None


class MooncakeDistributedStore:
    def setup(self, *arguments, **named):
        with open(f"{FOLDER}/setup.json", "w") as file:
            json.dump([arguments, named], file)
        if told := fault("setup"):
            if (codes := strike(told, 1)) is not None:
                return codes[0]
        self.busy = set()
        return 0

    def register_buffer(self, address, size):
        return 0

    def unregister_buffer(self, address):
        return 0

    @staticmethod
    def _place(key):
        return f"{FOLDER}/{hashlib.sha256(key).hexdigest()}.object"

    def _put(self, key, addresses, sizes):
        if not addresses or key in self.busy:
            return INVALID  # the second: two puts of a key at once in one process
        self.busy.add(key)
        try:
            if told := fault("put_one"):
                strike(told, 1)
            path = self._place(key)
            if os.path.exists(path):
                return 0
            own = f"{path}.{os.getpid()}.{threading.get_ident()}"
            with open(own, "wb") as file:
                for address, size in zip(addresses, sizes):
                    file.write(ctypes.string_at(address, size))
            try:
                os.link(own, path)
            except FileExistsError:
                pass
            os.unlink(own)
            return 0
        finally:
            self.busy.discard(key)

    def batch_put_from_multi_buffers(self, keys, addresses, sizes):
        if told := fault("put"):
            if (codes := strike(told, len(keys))) is not None:
                return codes
        return [self._put(*item) for item in zip(keys, addresses, sizes)]

    def _get(self, key, addresses, sizes):
        try:
            with open(self._place(key), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return NOT_FOUND
        if sum(sizes) != len(data):
            return INVALID if sum(sizes) < len(data) else TRANSFER_FAIL
        start = 0
        for address, size in zip(addresses, sizes):
            ctypes.memmove(address, data[start : start + size], size)
            start += size
        return len(data)

    def batch_get_into_multi_buffers(self, keys, addresses, sizes):
        if told := fault("get"):
            if told["kind"] == "flip":
                codes = [self._get(*item) for item in zip(keys, addresses, sizes)]
                ctypes.memset(addresses[0][0], 0xEE, 1)
                return codes
            parts = [part for item in zip(addresses, sizes) for part in zip(*item)]
            if (codes := strike(told, len(keys), parts)) is not None:
                return codes
        return [self._get(*item) for item in zip(keys, addresses, sizes)]

    def batch_is_exist(self, keys):
        told = fault("exist")
        if told and (codes := strike(told, len(keys))) is not None:
            return codes
        answers = [int(os.path.exists(self._place(key))) for key in keys]
        if told and told["kind"] == "vanish":
            for key, answer in zip(keys, answers):
                if answer:
                    os.unlink(self._place(key))
        return answers

    def get_size(self, key):
        if told := fault("size"):
            if (codes := strike(told, 1)) is not None:
                return codes[0]
        try:
            return os.path.getsize(self._place(key))
        except FileNotFoundError:
            return NOT_FOUND

    def remove(self, key):
        if told := fault("remove"):
            if (codes := strike(told, 1)) is not None:
                return codes[0]
        try:
            os.unlink(self._place(key))
            return 0
        except FileNotFoundError:
            return NOT_FOUND
