#!/usr/bin/env python3
"""compare.py [--rounds N] [--bench PROGRAM]

Starts a mooncake_master and an owner of a segment in a network namespace of its own, and moves the
same objects by the wheel's multi-buffer calls made bare from Python, and by our backend without and
with verification, in turn. Prints the medians in ms. Run it with an interpreter that has mooncake."""
import argparse
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

KIB, MIB = 1 << 10, 1 << 20
PAGE = 256 * KIB
MEMORY = 512 * MIB
MASTER = "127.0.0.1:50051"
SHAPES = [(256 * KIB, 1), (MIB, 1), (4 * MIB, 1), (16 * MIB, 1), (30 * MIB, 1), (256 * KIB, 4), (MIB, 4), (4 * MIB, 4)]
WAYS = ["bare", "ours", "ours+xxh3"]


def wait_for_port(port):
    for _ in range(3000):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise SystemExit(f"compare.py: nothing listens on port {port}")


@contextlib.contextmanager
def cluster():
    [programs] = pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/mooncake")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    master = [programs / "mooncake_master", "--rpc_address=127.0.0.1", "--rpc_port=50051", "--metrics_host=127.0.0.1"]
    owner = [
        *(programs / "mooncake_client", "--host=127.0.0.1", "--port=50052", "--metadata_server=P2PHANDSHAKE"),
        *(f"--master_server_address={MASTER}", "--global_segment_size=4GB", "--local_buffer_size=64MB"),
    ]
    processes = []
    try:
        for words, port in (master, 50051), (owner, 50052):
            processes.append(subprocess.Popen(words, **quiet))
            wait_for_port(port)
        yield
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


class Bare:
    """The calls as a Python program makes them, on registered memory."""

    def __init__(self):
        from mooncake.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        if code := self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 * MIB, "tcp", "", MASTER):
            raise SystemExit(f"compare.py: setup answers {code}")
        self.memory = mmap.mmap(-1, MEMORY)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        ctypes.memset(self.base, 7, MEMORY)
        if code := self.store.register_buffer(self.base, MEMORY):
            raise SystemExit(f"compare.py: register_buffer answers {code}")

    def run(self, op, size, batch, prefix):
        addresses, sizes, place = [], [], self.base
        for _ in range(batch):
            lengths = [min(PAGE, size - at) for at in range(0, size, PAGE)]
            addresses.append([place + 2 * PAGE * i for i in range(len(lengths))])
            sizes.append(lengths)
            place += 2 * PAGE * len(lengths)
        keys = [f"{prefix}_{i}" for i in range(batch)]
        start = time.perf_counter()
        if op == "put":
            answers = self.store.batch_put_from_multi_buffers(keys, addresses, sizes)
        else:
            answers = self.store.batch_get_into_multi_buffers(keys, addresses, sizes)
        took = time.perf_counter() - start
        if answers != [0 if op == "put" else size] * batch:
            raise SystemExit(f"compare.py: {op} answers {answers}")
        return took


class Ours:
    def __init__(self, program):
        options = json.dumps({"master_server_address": MASTER, "python": sys.executable})
        self.process = subprocess.Popen(
            [program, options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        if self.process.stdout.readline() != "up\n":
            raise SystemExit("compare.py: mooncake_bench does not come up")

    def run(self, op, size, batch, prefix, verify):
        self.process.stdin.write(f"{op} {size} {batch} {prefix} {int(verify)}\n")
        return float(self.process.stdout.readline().split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bench", default="build/release/bin/mooncake_bench")
    options = parser.parse_args()
    if os.environ.get("EMBERCACHE_BENCH_NAMESPACE") is None:  # data ports listen on all interfaces
        os.environ["EMBERCACHE_BENCH_NAMESPACE"] = "own"
        own = ["unshare", "--net"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
        os.execvp(own[0], own + ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv])
    with cluster():
        bare, ours = Bare(), Ours(options.bench)
        print("| bytes | objects | op | " + " | ".join(f"{way} ms" for way in WAYS) + " |")
        print("|---|---|---|" + "---|" * len(WAYS))
        for size, batch in SHAPES:
            took = {(op, way): [] for op in ("put", "get") for way in WAYS}
            for turn in range(options.rounds + 1):
                for op in ("put", "get"):
                    for way in WAYS:
                        prefix = f"{size}_{batch}_{turn}_{way}"
                        if way == "bare":
                            seconds = bare.run(op, size, batch, prefix)
                        else:
                            seconds = ours.run(op, size, batch, prefix, way == "ours+xxh3")
                        if turn > 0:  # the first warms up
                            took[op, way].append(seconds)
            for op in ("put", "get"):
                medians = " | ".join(f"{1000 * statistics.median(took[op, way]):.2f}" for way in WAYS)
                print(f"| {size} | {batch} | {op} | {medians} |", flush=True)


if __name__ == "__main__":
    main()
