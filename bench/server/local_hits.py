"""Figures of one encode server with the demo model: what a request of four 2560×1440 JPEGs costs as misses and
as local hits, start to /ready, resident memory. Prints a table; exits 1 when a bound is missed.

Run by `make bench`; needs the release build, scripts/demo-model and .venv."""
import io
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import ec_server  # noqa: E402
from PIL import Image  # noqa: E402

PHOTOGRAPHS = ["china.jpg", "flower.jpg", "rocket.jpg", "hubble_deep_field.jpg"]
HIT_ROUNDS = 100
POOL_GB = 1.0


def photographs(media, seed):
    """Four JPEGs of 2560×1440; another seed gives other bytes."""
    items = []
    for name in PHOTOGRAPHS:
        picture = Image.open(media / name).convert("RGB").resize((2560, 1440), Image.Resampling.BICUBIC)
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=90, comment=str(seed))
        items.append(ec_server.image_item(file.getvalue()))
    return items


def timed(server, items):
    start = time.perf_counter()
    answer = server.encode(*items, accept="application/vnd.safetensors")
    client_ms = (time.perf_counter() - start) * 1000
    assert answer.status == 200, answer.body
    described, _ = ec_server.read_safetensors(answer.body)
    return client_ms, max(item["ms"]["total"] for item in described), {i["source"] for i in described}


def start_to_ready_ms(server):
    """From the end of model loading to ready, as the log has it: the pool is made in between."""
    stamps = {}
    for line in server.log_text().splitlines():
        for word in (" model ", " info ready"):
            if word in line:
                clock = line.split("T", 1)[1].split(" ", 1)[0]
                hours, minutes, seconds = clock.split(":")
                stamps[word] = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    return (stamps[" info ready"] - stamps[" model "]) * 1000


def main():
    model = ec_server.folder_of("demo-model")
    media = ec_server.folder_of("demo-media")
    flags = ["--model", model, "--mm-global-cache-size-gb", POOL_GB, "--request-timeout-ms", 120000]
    with ec_server.Server(*flags) as server:
        ready_ms = start_to_ready_ms(server)
        server.encode(*photographs(media, 1))
        warm_rss = server.rss_bytes()
        misses = [timed(server, photographs(media, seed)) for seed in (2, 3, 4)]
        items = photographs(media, 4)
        hits = [timed(server, items) for _ in range(HIT_ROUNDS)]
        grown = server.rss_bytes() - warm_rss
    assert all(sources == {"computed"} for _, _, sources in misses)
    assert all(sources == {"local"} for _, _, sources in hits)
    miss_ms = statistics.median(client for client, _, _ in misses)
    hit_ms = statistics.median(client for client, _, _ in hits)
    server_ms = statistics.median(total for _, total, _ in hits)
    rows = [
        ("4 misses, at the client, p50", f"{miss_ms:.1f} ms", True),
        ("4 local hits, at the client, p50", f"{hit_ms:.2f} ms", True),
        ("misses / hits (at least 50)", f"{miss_ms / hit_ms:.0f}", miss_ms / hit_ms >= 50),
        ("4 local hits, in the server, p50 (below 5 ms)", f"{server_ms:.2f} ms", server_ms < 5),
        ("model loaded to /ready, 1 GB pool (below 3 s)", f"{ready_ms:.0f} ms", ready_ms < 3000),
        ("growth of RSS after one warm-up (at most 200 MB)", f"{grown / 1e6:.0f} MB", grown <= 200e6),
    ]
    for name, value, held in rows:
        print(f"{name:52} {value:>12}{'' if held else '   MISSED'}")
    sys.exit(0 if all(held for _, _, held in rows) else 1)


if __name__ == "__main__":
    main()
