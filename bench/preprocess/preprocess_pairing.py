#!/usr/bin/env python3
"""Times decode and resize of a 2560x1440 JPEG to 448x448 against Pillow, in pairs of one run.

  preprocess_pairing.py [FILE...]    FILE: photographs; scaled to 2560x1440 where they are not.
                                     Without: some of those that scripts/demo-media brings.

Each side does what it does for a request: from the file's bytes to the resized bytes (ours also splits
the channels into a float tensor). Both run on one thread; times are CPU times, so that other work on the
machine disturbs little. Prints the medians, their quotient, and whether the pixels are equal.
Exits with 1 where they are not equal, or ours takes more than half of Pillow's time.
"""

import io
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

SIZE = (2560, 1440)
TO = (448, 448)
CONFIG = json.dumps({"image_processor_type": "ViTImageProcessor", "resample": 3, "do_rescale": False,
                     "do_normalize": False, "size": {"height": TO[1], "width": TO[0]}})
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "build/release/tools/embercache_preprocess"
PHOTOGRAPHS = [ROOT / ".deps/media" / name for name in ("china.jpg", "coffee.png", "hubble_deep_field.jpg")]
ROUNDS = 7
RUNS_A_ROUND = 5


def photograph(path):
    """The bytes of a 2560x1440 JPEG: those of the file where it is one."""
    data = path.read_bytes()
    image = Image.open(io.BytesIO(data))
    if image.format == "JPEG" and image.size == SIZE:
        return data
    image = image.convert("RGB").resize(SIZE, Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    return out.getvalue()


def pillow(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(image.resize(TO, Image.Resampling.BICUBIC))


def pillow_times(data):
    times = []
    for _ in range(RUNS_A_ROUND):
        start = time.process_time()
        pillow(data)
        times.append(1e3 * (time.process_time() - start))
    return times


def our_times(file):
    run = subprocess.run([TOOL, "time", CONFIG, file, str(RUNS_A_ROUND + 1)], check=True,
                         stdout=subprocess.PIPE)
    return [float(line) for line in run.stdout.split()][1:]  # the first one warms up


def our_pixels(file):
    run = subprocess.run([TOOL, "tensor", CONFIG, file], check=True, stdout=subprocess.PIPE)
    body = run.stdout.partition(b"\n")[2]
    return np.frombuffer(body, np.float32).reshape(3, TO[1], TO[0]).transpose(1, 2, 0)


def pair(name, data):
    with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
        file.write(data)
        file.flush()
        equal = np.array_equal(our_pixels(file.name), pillow(data))
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours += our_times(file.name)
            theirs += pillow_times(data)
    mine, his = statistics.median(ours), statistics.median(theirs)
    print(f"{name}: ours {mine:.1f} ms, Pillow {his:.1f} ms, {mine / his:.2f} of it; "
          f"pixels {'equal' if equal else 'DIFFER'}")
    return equal and mine <= his / 2


def main():
    paths = [pathlib.Path(name) for name in sys.argv[1:]] or PHOTOGRAPHS
    good = [pair(path.name, photograph(path)) for path in paths]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
