#!/usr/bin/env python3
"""compare.py [--rounds N] [--bench PROGRAM] [--server PROGRAM]

Starts a redis-server, runs redis_bench (a bare socket, hiredis, our backend without and with
XXH3-128 over the payload) and redis-py on it, and prints one table. redis-py runs after the others,
not between them; all else alternates.
"""
import argparse
import os
import resource
import socket
import statistics
import subprocess
import tempfile
import time

import redis

KIB = 1024
MIB = 1024 * KIB
SHAPES = [(256 * KIB, 1), (MIB, 1), (4 * MIB, 1), (16 * MIB, 1), (256 * KIB, 4), (MIB, 4)]
ROUND_BYTES = 128 * MIB


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(program, port, folder):
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    client = redis.Redis(port=port)
    for _ in range(500):
        try:
            client.ping()
            return server, client
        except redis.ConnectionError:
            time.sleep(0.02)
    server.kill()
    raise SystemExit("compare.py: the server does not start")


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def get(client, keys, pages):
    """Into memory that the caller has, as the other clients do."""
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.get(key)
    for page, value in zip(pages, pipeline.execute() if len(keys) > 1 else [client.get(keys[0])]):
        page[:] = value


def put(client, keys, pages):
    if len(keys) == 1:
        client.set(keys[0], bytes(pages[0]))
        return
    pipeline = client.pipeline(transaction=False)
    for key, page in zip(keys, pages):
        pipeline.set(key, bytes(page))
    pipeline.execute()


def time_redis_py(client, rounds):
    for size, batch in SHAPES:
        keys = [f"py_{i}" for i in range(batch)]
        pages = [bytearray(size) for _ in keys]
        put(client, keys, pages)
        for name, operation in (("GET", get), ("SET", put)):
            rates, costs = [], []
            for _ in range(rounds):
                batches = min(200, max(4, ROUND_BYTES // (size * batch)))
                seconds = cpu = 0.0
                for _ in range(batches):
                    if name == "SET":
                        client.delete(*keys)
                    cpu_before, start = cpu_seconds(), time.perf_counter()
                    operation(client, keys, pages)
                    seconds += time.perf_counter() - start
                    cpu += cpu_seconds() - cpu_before
                total = batches * size * batch
                rates.append(total / seconds / 1e9)
                costs.append(cpu / total * 2**30)
            yield (name, size // KIB, batch, "redis-py", statistics.median(rates),
                   statistics.median(costs))


def run_bench(program, port, rounds):
    output = subprocess.run([program, str(port), str(rounds)], check=True, capture_output=True,
                            text=True).stdout
    for line in output.splitlines()[1:]:
        op, kib, batch, client, rate, cost = line.split("\t")
        yield op, int(kib), int(batch), client, float(rate), float(cost)


def print_table(rows):
    cells = {}
    for op, kib, batch, client, rate, cost in rows:
        cells.setdefault((op, kib, batch), {})[client] = (rate, cost)
    clients = ["bare socket", "hiredis", "redis-py", "ours", "ours+xxh3"]
    print("GB/s (client CPU seconds a GiB); the last columns compare ours+xxh3\n")
    print("| op | objects | " + " | ".join(clients) +
          " | × hiredis | × redis-py | of bare socket | CPU of hiredis' |")
    print("|---" * (len(clients) + 6) + "|")
    for (op, kib, batch), row in cells.items():
        size = f"{batch} × " * (batch > 1) + (f"{kib // KIB} MiB" if kib >= KIB else f"{kib} KiB")
        shown = [f"{row[c][0]:.2f} ({row[c][1]:.2f})" for c in clients]
        ours, cpu = row["ours+xxh3"]
        ratios = [f"{ours / row['hiredis'][0]:.2f}", f"{ours / row['redis-py'][0]:.2f}",
                  f"{100 * ours / row['bare socket'][0]:.0f} %",
                  f"{100 * cpu / row['hiredis'][1]:.0f} %"]
        print(f"| {op} | {size} | " + " | ".join(shown + ratios) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bench", default="build/release/bin/redis_bench")
    parser.add_argument("--server", default="redis-server")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        server, client = start_server(arguments.server, port, folder)
        try:
            info = client.info("server")
            version = info.get("valkey_version") or info["redis_version"]
            print(f"server {version}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
                  f"redis-py {redis.__version__}\n")
            rows = list(run_bench(arguments.bench, port, arguments.rounds))
            rows += time_redis_py(client, arguments.rounds)
        finally:
            server.kill()
            server.wait()
    print_table(rows)


if __name__ == "__main__":
    main()
