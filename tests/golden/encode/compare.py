#!/usr/bin/env python3
"""Compares what EmberCache makes of files with what Pillow and numpy make of them, and prints a table.

  compare.py TOOL FILE-OR-FOLDER...      TOOL: build/release/bench/embercache_preprocess

For each kind of file: how many there were, how many bytes of decoded pixels differ and by how much at
most, and likewise for the tensor of a 448x448 bicubic model. A file that one side refuses is listed.
Exits with 1 unless every byte is equal and both sides refuse the same files.
"""

import collections
import json
import pathlib
import subprocess
import sys

import numpy as np
from PIL import Image

import reference

PIXELS = {"do_resize": False, "do_rescale": False, "do_normalize": False,
          "image_processor_type": "ViTImageProcessor"}
TENSOR = {"image_processor_type": "ViTImageProcessor", "size": {"height": 448, "width": 448},
          "resample": 3, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}


def kind_of(path):
    with Image.open(path) as image:
        kind = f"{image.format} {image.mode}"
        if image.info.get("progressive"):
            kind += " progressive"
        if image.info.get("interlace"):
            kind += " interlaced"
        if "transparency" in image.info:
            kind += " transparency"
        return kind


def ours(tool, config, path):
    run = subprocess.run([tool, "tensor", json.dumps(config), path], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, check=False)
    if run.returncode != 0:
        raise ValueError(run.stderr.decode().strip())
    head, _, body = run.stdout.partition(b"\n")
    return np.frombuffer(body, np.float32).reshape([int(side) for side in head.split()])


def theirs(config, path):
    return reference.tensor(reference.pixels(path.read_bytes()), config)


def outcome(make, *arguments):
    try:
        return make(*arguments), None
    except Exception as error:  # whatever Pillow raises for a broken file
        return None, f"{type(error).__name__}: {error}"


def compare(tool, config, path):
    """The largest difference, or None where a side refused; and the reasons."""
    expected, their_error = outcome(theirs, config, path)
    got, our_error = outcome(ours, tool, config, path)
    if expected is None or got is None:
        return None, our_error, their_error
    if expected.shape != got.shape:
        return float("inf"), f"shape {got.shape}", f"shape {expected.shape}"
    return float(np.abs(expected - got).max()), None, None


def main():
    tool, *roots = sys.argv[1:]
    files = [path for root in map(pathlib.Path, roots)
             for path in ([root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file()))]
    table = collections.defaultdict(lambda: [0, 0.0, 0.0])
    equal = True
    for path in files:
        kind, _ = outcome(kind_of, path)
        pixels, our_error, their_error = compare(tool, PIXELS, path)
        if pixels is None:
            agree = bool(our_error) and bool(their_error)
            equal = equal and agree
            print(f"{path}: {'both refuse' if agree else 'ONE SIDE REFUSES'}: "
                  f"ours: {our_error or 'fine'}; Pillow: {their_error or 'fine'}")
            continue
        tensor, our_error, their_error = compare(tool, TENSOR, path)
        if pixels or tensor or our_error:
            print(f"{path}: pixels differ by {pixels}, tensor by {tensor} {our_error or ''} {their_error or ''}")
        row = table[kind]
        row[:] = row[0] + 1, max(row[1], pixels), max(row[2], tensor)
        equal = equal and pixels == 0 and tensor == 0
    print("| kind | files | largest difference of pixels | of tensor |\n|---|---|---|---|")
    for kind, (count, pixels, tensor) in sorted(table.items()):
        print(f"| {kind} | {count} | {pixels:g} | {tensor:g} |")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
