#!/usr/bin/env python3
"""Makes the media files of media/ and golden.json: for each of them and several preprocessor
configurations, what Pillow, numpy and Python's onnxruntime make of it.

  make_golden.py MODEL_FOLDER     a folder made by scripts/demo-model --small

Needs numpy, Pillow and onnxruntime (.venv has them). The files are committed; run it again only to add
to them, and look at what changes: a digest that was there before must stay.
"""

import argparse
import hashlib
import io
import json
import pathlib

import numpy as np
import onnxruntime
from PIL import Image

import png_writer as p
import reference

HERE = pathlib.Path(__file__).resolve().parent
MEDIA = HERE / "media"
ORIENTATION_TAG = 0x0112


def photograph(width, height, seed):
    """Something like a photograph: smooth light, edges, some noise; [height, width, 3] bytes."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    out = np.zeros((height, width, 3))
    for channel in range(3):
        for _ in range(6):
            angle, frequency, phase = random.uniform(0, 6.3), random.uniform(2, 30), random.uniform(0, 6.3)
            out[..., channel] += np.sin(frequency * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    for _ in range(8):
        centre = random.uniform(0, 1, 2)
        inside = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < random.uniform(0.002, 0.03)
        out[inside] = random.uniform(-4, 4, 3)
    out += random.normal(0, 0.15, out.shape)
    return np.clip(128 + 32 * out, 0, 255).astype(np.uint8)


def jpeg(array, mode=None, orientation=None, **options):
    image = Image.fromarray(array, mode) if mode else Image.fromarray(array)
    if orientation:
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = orientation
        options["exif"] = exif
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 85, **options})
    return out.getvalue()


def orientation_exif(orientation):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    return exif.tobytes()[6:]


def jpegs():
    rgb = photograph(160, 120, 1)
    yield "rgb_420.jpg", jpeg(rgb)
    yield "rgb_422.jpg", jpeg(rgb, subsampling="4:2:2")
    yield "rgb_444.jpg", jpeg(rgb, subsampling="4:4:4")
    yield "odd_size.jpg", jpeg(photograph(97, 61, 2))
    yield "progressive.jpg", jpeg(rgb, progressive=True)
    yield "restarts.jpg", jpeg(rgb, restart_marker_blocks=3)
    yield "grey.jpg", jpeg(rgb[..., 1])
    yield "one_pixel.jpg", jpeg(rgb[:1, :1])
    yield "tall.jpg", jpeg(photograph(3, 400, 3))
    for orientation in range(1, 9):
        yield f"orientation_{orientation}.jpg", jpeg(photograph(75, 50, 4), orientation=orientation)


def pngs():
    rgb = photograph(70, 45, 5)
    grey = rgb[..., 1]
    alpha = np.clip(photograph(70, 45, 6)[..., 0].astype(int) * 2 - 128, 0, 255).astype(np.uint8)
    wide = (rgb.astype(np.uint16) << 8) | rgb[::-1]
    palette = photograph(16, 1, 7)[0]
    index = grey >> 4
    for interlaced in (False, True):
        end = "_interlaced.png" if interlaced else ".png"
        for depth in (1, 2, 4, 8):
            yield f"grey_{depth}{end}", p.png(grey >> (8 - depth), p.GREY, depth, interlaced=interlaced)
        yield f"grey_16{end}", p.png(wide[..., 0], p.GREY, 16, interlaced=interlaced)
        yield f"rgb_8{end}", p.png(rgb, p.RGB, 8, interlaced=interlaced)
        yield f"palette_4{end}", p.png(index, p.PALETTE, 4, palette=palette, interlaced=interlaced)
        yield f"rgba_8{end}", p.png(np.dstack([rgb, alpha]), p.RGBA, 8, interlaced=interlaced)
    yield "grey_16_small_values.png", p.png(grey.astype(np.uint16) * 2, p.GREY, 16)
    yield "rgb_16.png", p.png(wide, p.RGB, 16)
    yield "rgba_16.png", p.png(np.dstack([wide, alpha.astype(np.uint16) * 257]), p.RGBA, 16)
    yield "grey_alpha_8.png", p.png(np.dstack([grey, alpha]), p.GREY_ALPHA, 8)
    yield "palette_8_trns.png", p.png(index, p.PALETTE, 8, palette=palette, trns=bytes(range(0, 160, 16)))
    yield "rgb_8_trns.png", p.png(rgb // 64 * 64, p.RGB, 8, trns=b"\0\x80\0\x80\0\x80")
    yield "grey_8_trns.png", p.png(grey // 64 * 64, p.GREY, 8, trns=b"\0\x80")
    yield "one_pixel.png", p.png(rgb[:1, :1], p.RGB, 8)
    yield "wide.png", p.png(photograph(600, 2, 8), p.RGB, 8)
    for orientation in (3, 6, 7):
        yield f"orientation_{orientation}.png", p.png(rgb, p.RGB, 8, exif=orientation_exif(orientation))


MAKERS = (jpegs, pngs)

DEMO = {
    "image_processor_type": "ViTImageProcessor", "size": {"height": 448, "width": 448}, "resample": 3,
    "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}
CONFIGS = {
    "demo": DEMO,
    # The resized pixels themselves.
    "small": {"image_processor_type": "ViTImageProcessor", "size": {"height": 31, "width": 47},
              "resample": 3, "do_rescale": False, "do_normalize": False},
}
OPTIONS = {
    "no_exif": {"apply_exif_orientation": False},
    "dark": {"background": "#102030"},
    "bare": {"background": "none"},
    "clip": {"sixteen_bit": "clip"},
}
OPTION_MEDIA = {
    "no_exif": ["orientation_6.jpg", "orientation_3.png"],
    "dark": ["rgba_8.png", "palette_8_trns.png"],
    "bare": ["rgba_8.png", "palette_8_trns.png", "grey_alpha_8.png"],
    "clip": ["grey_16.png", "grey_16_small_values.png", "rgb_16.png"],
}


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def tensor_case(media, config, options):
    tensor = reference.tensor(reference.pixels((MEDIA / media).read_bytes(), options), CONFIGS[config])
    return {"media": media, "config": config, "options": options, "shape": list(tensor.shape),
            "sha256": digest(tensor), "first": tensor.ravel()[:4].tolist()}


def tensors(names):
    for media in names:
        for config in CONFIGS:
            yield tensor_case(media, config, {})
    for option, media in OPTION_MEDIA.items():
        for name in media:
            yield tensor_case(name, "small", OPTIONS[option])


def embeddings(folder):
    """Some values of each embedding: the last bits of a model's output differ between processors."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    for media in ("rgb_420.jpg", "orientation_6.jpg", "rgba_8.png"):
        tensor = reference.tensor(reference.pixels((MEDIA / media).read_bytes()), DEMO)
        output = session.run(None, {session.get_inputs()[0].name: tensor[None]})[0][0]
        every = output.size // 64
        yield {"media": media, "tokens": output.shape[0], "hidden": output.shape[1],
               "every": every, "values": output.ravel()[::every].tolist()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    model = parser.parse_args().model
    MEDIA.mkdir(exist_ok=True)
    files = {name: data for maker in MAKERS for name, data in maker()}
    for name, data in files.items():
        if not (MEDIA / name).exists():
            (MEDIA / name).write_bytes(data)
    golden = {
        "configs": CONFIGS,
        "pixels": [{"media": name, "width": image.shape[1], "height": image.shape[0],
                    "sha256": digest(image)}
                   for name in files for image in [reference.pixels((MEDIA / name).read_bytes())]],
        "tensors": list(tensors(files)),
        "embeddings": list(embeddings(model)),
    }
    lines = []
    for part, value in golden.items():
        body = value if isinstance(value, list) else [{key: item} for key, item in value.items()]
        rows = ",\n  ".join(json.dumps(item) for item in body)
        lines.append(f'"{part}": [\n  {rows}\n]')
    (HERE / "golden.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
