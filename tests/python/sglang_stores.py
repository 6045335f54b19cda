"""Stores written in Python, as SGLang's users write them, for the tests."""
import ctypes
import threading

from embercache.sglang import EmbeddingStore


class DictStore(EmbeddingStore):
    """Bytes under hashes, in a dictionary that several controllers may share."""

    def __init__(self, objects=None):
        self.objects = {} if objects is None else objects
        self.calls = []
        self.registered = []
        self.gate = threading.Event()
        self.gate.set()

    def _call(self, name, hashes):
        self.calls.append((name, list(hashes)))
        self.gate.wait(60)

    def batch_get(self, hashes, ptrs, sizes):
        return self.batch_get_into_multi_buffers(hashes, [[p] for p in ptrs], [[s] for s in sizes])

    def batch_put(self, hashes, ptrs, sizes):
        return self.batch_put_from_multi_buffers(hashes, [[p] for p in ptrs], [[s] for s in sizes])

    def batch_get_into_multi_buffers(self, hashes, ptrs, sizes):
        self._call("get", hashes)
        found = []
        for mm_hash, addresses, lengths in zip(hashes, ptrs, sizes):
            data = self.objects.get(self.get_key(mm_hash))
            fits = data is not None and len(data) == sum(lengths)
            if fits:
                for address, length in zip(addresses, lengths):
                    ctypes.memmove(address, data[:length], length)
                    data = data[length:]
            found.append(fits)
        return found

    def batch_put_from_multi_buffers(self, hashes, ptrs, sizes):
        self._call("put", hashes)
        for mm_hash, addresses, lengths in zip(hashes, ptrs, sizes):
            parts = [ctypes.string_at(a, n) for a, n in zip(addresses, lengths)]
            self.objects.setdefault(self.get_key(mm_hash), b"".join(parts))
        return [True] * len(hashes)

    def batch_is_exist(self, hashes):
        self._call("exist", hashes)
        return [self.get_key(mm_hash) in self.objects for mm_hash in hashes]

    def register_buffer(self, tensor):
        self.registered.append(tensor.nbytes)


class Broken(DictStore):
    """Answers what no store should: nothing, too little, or an exception."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def _answer(self, hashes):
        if self.how == "raises":
            raise OSError("the disk is gone")
        return None if self.how == "none" else [True] * (len(hashes) - 1)

    def batch_get_into_multi_buffers(self, hashes, ptrs, sizes):
        return self._answer(hashes)

    def batch_put_from_multi_buffers(self, hashes, ptrs, sizes):
        return self._answer(hashes)

    def batch_is_exist(self, hashes):
        return self._answer(hashes)


class NoStore:
    """Is no EmbeddingStore."""


class CannotStart(DictStore):
    def __init__(self):
        raise ConnectionRefusedError("nobody listens")
