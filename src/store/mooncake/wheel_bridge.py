"""The process between EmberCache and a Mooncake client: a client of the Python wheel, driven over
Unix sockets (docs/design/mooncake.md has the protocol).

Descriptor 3 is the control socket: set-up, memory, and more sockets, on each of which one thread
serves transfers. Memory is mapped from descriptors that come with the request, so a transfer names
addresses of this process, and no payload crosses a socket. The other side checks keys, sizes and
answers; this one ends when the control socket does.
"""
import ctypes
import json
import mmap
import os
import signal
import socket
import struct
import threading

CONTROL_FD = 3
PUT, GET, EXIST, SIZE, REMOVE, SET_UP, MAP, UNMAP, CHANNEL = range(1, 10)
REQUEST = struct.Struct("<III")  # operation, number of keys, bytes that follow
ANSWER = struct.Struct("<II")  # kind, then how many numbers, or bytes of text, follow
NUMBERS, ERROR, TEXT, ABSENT = range(4)
PR_SET_PDEATHSIG = 1


def read(sock, size):
    """Exactly `size` bytes; None at the end of the stream."""
    data = sock.recv(size, socket.MSG_WAITALL) if size else b""
    while len(data) < size:
        more = sock.recv(size - len(data), socket.MSG_WAITALL)
        if not more:
            return None
        data += more
    return data


def answer(sock, values):
    if isinstance(values, str):
        text = values.encode()
        sock.sendall(ANSWER.pack(TEXT, len(text)) + text)
    else:
        sock.sendall(ANSWER.pack(NUMBERS, len(values)) + struct.pack(f"<{len(values)}q", *values))


def fail(sock, error):
    text = f"{type(error).__name__}: {error}".encode()[:4000]
    kind = ABSENT if isinstance(error, ImportError) else ERROR
    sock.sendall(ANSWER.pack(kind, len(text)) + text)


def split(values, counts):
    lists, start = [], 0
    for count in counts:
        lists.append(list(values[start : start + count]))
        start += count
    return lists


def transfer(store, op, count, body):
    lengths = struct.unpack_from(f"<{count}I", body)
    counts = struct.unpack_from(f"<{count}I", body, 4 * count)
    parts = sum(counts)
    at = 8 * count
    addresses = struct.unpack_from(f"<{parts}Q", body, at)
    sizes = struct.unpack_from(f"<{parts}Q", body, at + 8 * parts)
    at += 16 * parts
    keys = []
    for length in lengths:
        keys.append(body[at : at + length])  # bytes: a key need not be UTF-8
        at += length
    if op == PUT:
        return store.batch_put_from_multi_buffers(keys, split(addresses, counts), split(sizes, counts))
    if op == GET:
        return store.batch_get_into_multi_buffers(keys, split(addresses, counts), split(sizes, counts))
    if op == EXIST:
        return store.batch_is_exist(keys)
    if op == SIZE:
        return [store.get_size(key) for key in keys]
    if op == REMOVE:
        return [store.remove(key) for key in keys]
    raise ValueError(f"operation {op} is not known")


def serve(store, sock):
    while (head := read(sock, REQUEST.size)) is not None:
        op, count, size = REQUEST.unpack(head)
        body = read(sock, size)
        if body is None:
            return
        try:
            answer(sock, transfer(store, op, count, body))
        except Exception as error:
            fail(sock, error)


def local_address(master):
    """The address of this machine that the master is reached from; a UDP socket sends nothing."""
    host, port = master.rsplit(":", 1)
    family, kind, protocol, _, address = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return probe.getsockname()[0]


def ignore_signals():
    """What ends is the control socket: a program that drains needs its store until then."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def check_protocol(protocol, library):
    """A build without a transport stays on another one and fails later, so look first."""
    if protocol == "efa":
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            if text.find(b"EfaTransport") < 0:
                raise RuntimeError(f"protocol efa: {library} is built without it; install a wheel that has it")
    elif protocol == "rdma":
        devices = "/sys/class/infiniband"
        if not os.path.isdir(devices) or not os.listdir(devices):
            raise RuntimeError(f"protocol rdma: there is no RDMA device ({devices} is empty); use tcp")


def describe(module):
    """The package and its version, as its folder's neighbour says."""
    packages = os.path.dirname(os.path.dirname(os.path.abspath(module.__file__)))
    suffix = ".dist-info"
    found = [name[: -len(suffix)] for name in os.listdir(packages) if name.endswith(suffix)]
    names = [name.replace("-", " ") for name in sorted(found) if name.startswith("mooncake")]
    return " ".join(names) or f"the package in {packages}"


class Bridge:
    def __init__(self, control):
        self.control = control
        self.store = None
        self.mappings = {}

    def set_up(self, config):
        import mooncake.store

        check_protocol(config["protocol"], mooncake.store.__file__)
        self.store = mooncake.store.MooncakeDistributedStore()
        # No segment of our own: memory that others store in belongs to a process of its own.
        code = self.store.setup(
            config["local_hostname"] or local_address(config["master_server_address"]),
            config["metadata_server"],
            0,
            config["local_buffer_size"],
            config["protocol"],
            config["device_name"],
            config["master_server_address"],
            **({"tenant_id": config["tenant_id"]} if config["tenant_id"] else {}),
        )
        ignore_signals()  # the client has installed handlers of its own
        if code == 0:
            return describe(mooncake.store)
        self.store = None  # a call on it would crash
        raise RuntimeError(f"setup answers {code}")

    def map(self, fd, size):
        memory = mmap.mmap(fd, size)
        anchor = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(anchor)
        code = self.store.register_buffer(address, size)
        if code == 0:
            self.mappings[address] = (memory, anchor)
        return [code, address]

    def unmap(self, address):
        code = self.store.unregister_buffer(address)
        del self.mappings[address]
        return [code]

    def control_request(self, op, body, fds):
        if op == SET_UP:
            return self.set_up(json.loads(body))
        if self.store is None:
            raise RuntimeError("there is no client: set-up has not succeeded")
        if op == MAP:
            return self.map(fds[0], struct.unpack("<Q", body)[0])
        if op == UNMAP:
            return self.unmap(struct.unpack("<Q", body)[0])
        if op == CHANNEL:
            sock = socket.socket(fileno=os.dup(fds[0]))
            threading.Thread(target=serve, args=(self.store, sock), daemon=True).start()
            return [0]
        raise ValueError(f"operation {op} is not known")

    def run(self):
        while True:
            head, fds, _, _ = socket.recv_fds(self.control, REQUEST.size, 1)
            if len(head) < REQUEST.size:
                return
            op, _, size = REQUEST.unpack(head)
            body = read(self.control, size)
            if body is None:
                return
            try:
                answer(self.control, self.control_request(op, body, fds))
            except Exception as error:
                fail(self.control, error)
            for fd in fds:
                os.close(fd)


def main():
    ignore_signals()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        Bridge(socket.socket(fileno=CONTROL_FD)).run()
    finally:
        os._exit(0)  # the client's own end can hang


main()
