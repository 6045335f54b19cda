#!/usr/bin/env python3
"""Makes the media files of media/ and golden.json: for each of them and several preprocessor
configurations, what Pillow, numpy and Python's onnxruntime make of it.

  make_golden.py MODEL_FOLDER     a folder made by scripts/demo-model --small

Needs numpy, Pillow and onnxruntime (.venv has them), and for new files cjpeg (libjpeg-turbo-progs). The files are committed; run it again only to add
to them, and look at what changes: a digest that was there before must stay.
"""

import argparse
import hashlib
import io
import json
import pathlib
import struct
import subprocess

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
    coarse = wide[..., 0] & 0xc000
    yield "grey_16_trns.png", p.png(coarse, p.GREY, 16, trns=b"\x80\0")
    yield "one_pixel.png", p.png(rgb[:1, :1], p.RGB, 8)
    yield "wide.png", p.png(photograph(600, 2, 8), p.RGB, 8)
    for orientation in (3, 6, 7):
        yield f"orientation_{orientation}.png", p.png(rgb, p.RGB, 8, exif=orientation_exif(orientation))


def without_adobe_marker(data):
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2:at + 4], "big"):]


def with_adobe_transform(data, transform):
    at = data.index(b"Adobe") + 11
    return data[:at] + bytes([transform]) + data[at + 1:]


def cjpeg(array, *arguments):
    """With libjpeg-turbo's own program, for what Pillow does not write."""
    pnm = io.BytesIO()
    Image.fromarray(array).save(pnm, "PPM")
    return subprocess.run(["cjpeg", "-quality", "85", *arguments], input=pnm.getvalue(), check=True,
                          stdout=subprocess.PIPE).stdout


def colour_space_jpegs():
    rgb = photograph(90, 70, 9)
    four = np.dstack([rgb, photograph(90, 70, 10)[..., 0]])
    cmyk = jpeg(four, "CMYK")
    yield "cmyk_adobe.jpg", cmyk
    yield "cmyk_no_adobe.jpg", without_adobe_marker(cmyk)
    yield "ycck_adobe.jpg", with_adobe_transform(cmyk, 2)
    yield "cmyk_progressive.jpg", jpeg(four, "CMYK", progressive=True)
    yield "cmyk_420.jpg", jpeg(four, "CMYK", subsampling="4:2:0")
    yield "rgb_adobe.jpg", jpeg(rgb, keep_rgb=True)
    yield "rgb_no_adobe.jpg", without_adobe_marker(jpeg(rgb, keep_rgb=True))
    yield "grey_progressive.jpg", jpeg(rgb[..., 0], progressive=True)
    for sampling in ("4x1", "1x2", "4x2", "2x2,2x1,1x2"):
        name = sampling.replace(",", "_")
        yield f"sampling_{name}.jpg", cjpeg(photograph(91, 67, 11), "-sample", sampling)
    yield "arithmetic.jpg", cjpeg(rgb, "-arithmetic")


def webp(array, **options):
    out = io.BytesIO()
    Image.fromarray(array).save(out, "WEBP", **options)
    return out.getvalue()


def webps():
    rgb = photograph(80, 55, 12)
    alpha = np.clip(photograph(80, 55, 13)[..., 0].astype(int) * 2 - 128, 0, 255).astype(np.uint8)
    rgba = np.dstack([rgb, alpha])
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6
    yield "lossy.webp", webp(rgb, quality=80)
    yield "lossless.webp", webp(rgb, lossless=True)
    yield "lossy_alpha.webp", webp(rgba, quality=80)
    yield "lossless_alpha.webp", webp(rgba, lossless=True, exact=True)
    yield "orientation_6.webp", webp(rgb, quality=80, exif=exif)
    yield "one_pixel.webp", webp(rgb[:1, :1], lossless=True)
    frames = [Image.fromarray(rgba), Image.fromarray(rgba[::-1])]
    out = io.BytesIO()
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], duration=100, quality=80)
    yield "animated.webp", out.getvalue()
    yield "first_frame_inside.webp", webp_canvas(webp(rgb[:30, :40], lossless=True), 80, 55, 12, 8)


def webp_canvas(still, width, height, x, y):
    """An animation whose one frame, a lossless picture, lies at (x, y) of a larger canvas."""
    def chunk(name, data):
        return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def three(number):
        return struct.pack("<I", number)[:3]

    picture = still[12:]
    inner = Image.open(io.BytesIO(still)).size
    frame = three(x // 2) + three(y // 2) + three(inner[0] - 1) + three(inner[1] - 1) + three(100) + b"\0"
    body = (b"WEBP" + chunk(b"VP8X", b"\x12\0\0\0" + three(width - 1) + three(height - 1))
            + chunk(b"ANIM", b"\xff\0\0\xff\0\0") + chunk(b"ANMF", frame + picture))
    return b"RIFF" + struct.pack("<I", len(body)) + body


def gif_blocks(data):
    return b"".join(bytes([len(part)]) + part
                    for part in (data[i:i + 255] for i in range(0, len(data), 255))) + b"\0"


def lzw(indices, bits):
    """GIF's LZW without compression: a clear code before the codes grow longer."""
    clear, size = 1 << bits, bits + 1
    codes = []
    for i, index in enumerate(indices):
        if i % (clear - 2) == 0:
            codes.append(clear)
        codes.append(int(index))
    codes.append(clear + 1)
    stream = 0
    for i, code in enumerate(codes):
        stream |= code << (i * size)
    return bytes([bits]) + gif_blocks(stream.to_bytes((len(codes) * size + 7) // 8, "little"))


def gif(indices, canvas, at=(0, 0), palette=None, local=None, transparent=None, interlaced=False,
        background=0, more=b""):
    """indices: [height, width] below 16; palettes of 16 colours, global and of the frame."""
    height, width = indices.shape
    out = b"GIF89a" + struct.pack("<HHBBB", *canvas, 0xf3 if palette is not None else 0x70, background, 0)
    if palette is not None:
        out += palette.tobytes()
    if transparent is not None:
        out += b"!\xf9\x04" + struct.pack("<BHBB", 1, 10, transparent, 0)
    flags = (0x83 if local is not None else 0) | (0x40 if interlaced else 0)
    out += b"," + struct.pack("<HHHHB", *at, width, height, flags)
    if local is not None:
        out += local.tobytes()
    order = [y for first, step in ((0, 8), (4, 8), (2, 4), (1, 2)) for y in range(first, height, step)]
    rows = indices[order] if interlaced else indices
    return out + lzw(rows.ravel(), 4) + more + b";"


def gifs():
    indices = photograph(33, 21, 14)[..., 1] >> 4
    palette = photograph(16, 1, 15)[0]
    other = photograph(16, 1, 16)[0]
    size = (33, 21)
    yield "plain.gif", gif(indices, size, palette=palette)
    yield "interlaced.gif", gif(indices, size, palette=palette, interlaced=True)
    yield "local_palette.gif", gif(indices, size, palette=palette, local=other)
    yield "no_palette.gif", gif(indices, size)
    yield "transparent.gif", gif(indices, size, palette=palette, transparent=int(indices[3, 3]))
    yield "frame_inside.gif", gif(indices, (50, 40), at=(5, 7), palette=palette, background=9)
    yield "frame_inside_transparent.gif", gif(indices, (50, 40), at=(5, 7), palette=palette, transparent=3)
    yield "frame_outside.gif", gif(indices, (20, 10), at=(4, 2), palette=palette)
    out = io.BytesIO()
    frames = [Image.fromarray(photograph(40, 30, seed)).quantize(32) for seed in (17, 18)]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=100)
    yield "animated.gif", out.getvalue()


MAKERS = (jpegs, pngs, colour_space_jpegs, webps, gifs)

DEMO = {
    "image_processor_type": "ViTImageProcessor", "size": {"height": 448, "width": 448}, "resample": 3,
    "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}
# The resized pixels themselves.
SMALL = {"image_processor_type": "ViTImageProcessor", "size": {"height": 31, "width": 47}, "resample": 3,
         "do_rescale": False, "do_normalize": False}
CONFIGS = {
    "demo": DEMO,
    "small": SMALL,
    # As the models' files say it, with sizes that keep the tests quick.
    "vit": {"image_processor_type": "ViTImageProcessor", "do_normalize": True, "do_resize": True,
            "size": 96, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
    "clip": {"feature_extractor_type": "CLIPFeatureExtractor", "crop_size": 84, "do_center_crop": True,
             "do_normalize": True, "do_resize": True, "resample": 3, "size": 84,
             "image_mean": [0.48145466, 0.4578275, 0.40821073],
             "image_std": [0.26862954, 0.26130258, 0.27577711]},
    "siglip": {"do_normalize": True, "do_rescale": True, "do_resize": True, "resample": 3,
               "image_processor_type": "SiglipImageProcessor", "rescale_factor": 0.00392156862745098,
               "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
               "size": {"height": 84, "width": 84}},
    "dinov2": {"crop_size": {"height": 70, "width": 70}, "do_center_crop": True, "do_convert_rgb": True,
               "do_normalize": True, "do_rescale": True, "do_resize": True, "resample": 3,
               "image_processor_type": "BitImageProcessor", "rescale_factor": 0.00392156862745098,
               "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
               "size": {"shortest_edge": 82}},
    # Crops that are larger than the picture, by an odd number of pixels too.
    "padded": {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 40},
               "crop_size": {"height": 75, "width": 64}},
    "cropped_only": {"image_processor_type": "CLIPImageProcessor", "do_resize": False,
                     "crop_size": {"height": 51, "width": 64}},
    "long": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 33},
             "do_center_crop": False},
    "bgr": {**DEMO, "size": 40, "do_flip_channel_order": True},
    "not_rescaled": {**DEMO, "size": 40, "do_rescale": False},
    "not_normalised": {**DEMO, "size": 40, "do_normalize": False},
}
for number, name in ((0, "nearest"), (1, "lanczos"), (2, "bilinear"), (5, "hamming")):
    CONFIGS[name] = {**SMALL, "resample": number}
OPTIONS = {
    "no_exif": {"apply_exif_orientation": False},
    "dark": {"background": "#102030"},
    "bare": {"background": "none"},
    "clip": {"sixteen_bit": "clip"},
}
OPTION_MEDIA = {
    "no_exif": ["orientation_6.jpg", "orientation_3.png", "orientation_6.webp"],
    "dark": ["rgba_8.png", "palette_8_trns.png", "lossless_alpha.webp", "transparent.gif"],
    "bare": ["rgba_8.png", "palette_8_trns.png", "grey_alpha_8.png", "lossy_alpha.webp",
             "frame_inside_transparent.gif", "first_frame_inside.webp"],
    "clip": ["grey_16.png", "grey_16_small_values.png", "rgb_16.png"],
}


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


# Of every shape and orientation.
SHAPES = ["rgb_420.jpg", "odd_size.jpg", "tall.jpg", "wide.png", "one_pixel.png"] + [
    f"orientation_{number}.jpg" for number in range(1, 9)]


def tensor_case(media, config, options, dtype=np.float32):
    picture = reference.pixels((MEDIA / media).read_bytes(), options)
    tensor = reference.tensor(picture, CONFIGS[config], dtype)
    return {"media": media, "config": config, "options": options, "shape": list(tensor.shape),
            "dtype": "F16" if dtype == np.float16 else "F32",
            "sha256": digest(tensor), "first": tensor.ravel()[:4].tolist()}


def tensors(names):
    for media in names:
        for config in ("demo", "small"):
            yield tensor_case(media, config, {})
    for config in CONFIGS:
        if config not in ("demo", "small"):
            for media in SHAPES:
                yield tensor_case(media, config, {})
    for config in ("vit", "clip", "not_rescaled"):
        yield tensor_case("rgb_420.jpg", config, {}, np.float16)
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
        # What is there stays as it is: other versions of the writers write other bytes.
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
