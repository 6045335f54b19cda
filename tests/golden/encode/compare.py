#!/usr/bin/env python3
"""Compares what EmberCache makes of files with what Pillow and numpy make of them, and prints a table.

  compare.py [--model FOLDER] TOOL FILE-OR-FOLDER...

TOOL is build/release/tools/embercache_preprocess. For each kind of file: how many there were, and the
largest difference of decoded pixels and of the tensor for a 448x448 bicubic model; with --model, also of
the embedding, against Python's onnxruntime. A file that a side refuses is listed. Exits with 1 unless
every byte is equal and both sides refuse the same files.
"""

import argparse
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


def theirs_tensor(config, path):
    return reference.tensor(reference.pixels(path.read_bytes()), config)


class Model:
    """The embeddings of a model folder, by both sides. --model wants a float32 model of one output."""

    def __init__(self, tool, folder):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.tool, self.folder = tool, pathlib.Path(folder)
        self.config = json.loads((self.folder / "preprocessor_config.json").read_text())
        self.session = onnxruntime.InferenceSession(self.folder / "model.onnx", options)

    def difference(self, path):
        run = subprocess.run([self.tool, "encode", self.folder, path], stdout=subprocess.PIPE, check=True)
        head, _, body = run.stdout.partition(b"\n")
        ours = np.frombuffer(body, np.float32).reshape([int(side) for side in head.split()])
        name = self.session.get_inputs()[0].name
        theirs = self.session.run(None, {name: theirs_tensor(self.config, path)[None]})[0][0]
        return float(np.abs(ours - theirs).max())


def outcome(make, *arguments):
    try:
        return make(*arguments), None
    except Exception as error:  # whatever Pillow raises for a broken file
        return None, f"{type(error).__name__}: {error}"


def compare(tool, config, path):
    """The largest difference, or None where a side refused; and the reasons."""
    expected, their_error = outcome(theirs_tensor, config, path)
    got, our_error = outcome(ours, tool, config, path)
    if expected is None or got is None:
        return None, our_error, their_error
    if expected.shape != got.shape:
        return float("inf"), f"shape {got.shape}", f"shape {expected.shape}"
    return float(np.abs(expected - got).max()), None, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("tool")
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    model = arguments.model and Model(arguments.tool, arguments.model)
    files = [path for root in arguments.paths
             for path in ([root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file()))]
    table = collections.defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    equal = True
    for path in files:
        pixels, our_error, their_error = compare(arguments.tool, PIXELS, path)
        if pixels is None:
            agree = bool(our_error) and bool(their_error)
            equal = equal and agree
            print(f"{path}: {'both refuse' if agree else 'ONE SIDE REFUSES'}: "
                  f"ours: {our_error or 'fine'}; Pillow: {their_error or 'fine'}")
            continue
        tensor, _, _ = compare(arguments.tool, TENSOR, path)
        embedding = model.difference(path) if model else 0.0
        if pixels or tensor or embedding:
            print(f"{path}: pixels differ by {pixels}, tensor by {tensor}, embedding by {embedding}")
        row = table[kind_of(path)]
        row[:] = row[0] + 1, *(max(a, b) for a, b in zip(row[1:], (pixels, tensor, embedding)))
        equal = equal and not (pixels or tensor or embedding)
    print("| kind | files | pixels | tensor | embedding |\n|---|---|---|---|---|")
    for kind, (count, *differences) in sorted(table.items()):
        print(f"| {kind} | {count} | " + " | ".join(f"{difference:g}" for difference in differences) + " |")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
