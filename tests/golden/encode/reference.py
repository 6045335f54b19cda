"""What EmberCache's preprocessing has to give, written with Pillow and numpy alone: the pixels of a
media file, and the tensor that the slow image processors of Hugging Face transformers make of them."""

import io
import math

import numpy as np
from PIL import Image, ImageOps

CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]
HALVES = [0.5, 0.5, 0.5]

# Class: bare size is square, size, resample, crop, mean, std.
CLASSES = {
    "ViTImageProcessor": (True, 224, 2, False, HALVES, HALVES),
    "CLIPImageProcessor": (False, 224, 3, True, CLIP_MEAN, CLIP_STD),
    "SiglipImageProcessor": (True, 224, 3, False, HALVES, HALVES),
    "BitImageProcessor": (False, 224, 3, True, CLIP_MEAN, CLIP_STD),
}


def pixels(media, options=None):
    """The upright RGB picture [height, width, 3] of a media file's bytes."""
    options = options or {}
    image = Image.open(io.BytesIO(media))
    if options.get("apply_exif_orientation", True):
        image = ImageOps.exif_transpose(image)
    if image.mode == "I;16":
        image = eight_bit_grey(image, options.get("sixteen_bit", "scale"))
    background = options.get("background", "#ffffff")
    if background != "none" and image.has_transparency_data:
        upper = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", upper.size, background), upper)
    return np.asarray(image.convert("RGB"))


def eight_bit_grey(image, how):
    wide = np.asarray(image)
    grey = Image.fromarray((wide >> 8 if how == "scale" else np.minimum(wide, 255)).astype(np.uint8))
    if "transparency" in image.info:
        grey.putalpha(Image.fromarray(np.where(wide == image.info["transparency"], 0, 255).astype(np.uint8)))
    return grey


def both_sides(size):
    return (size, size) if isinstance(size, int) else (size["height"], size["width"])


def resize(image, size, square, resample):
    height, width = image.shape[:2]
    if isinstance(size, int) and not square:
        size = {"shortest_edge": size}
    if not isinstance(size, int) and "shortest_edge" in size:
        edge = size["shortest_edge"]
        longer = int(edge * max(width, height) / min(width, height))
        to = (edge, longer) if width <= height else (longer, edge)
    else:
        to = both_sides(size)[::-1]
    return np.asarray(Image.fromarray(image).resize(to, resample=resample))


def centre_crop(image, size):
    out = np.zeros((*size, 3), np.uint8)
    from_, to = [], []
    for have, want in zip(image.shape, size):
        offset = (have - want) // 2
        pad = max(-offset, 0)
        start = max(offset, 0)
        length = min(have, want)
        from_.append(slice(start, start + length))
        to.append(slice(pad, pad + length))
    out[to[0], to[1]] = image[from_[0], from_[1]]
    return out


def tensor(image, config, dtype=np.float32):
    """[3, height, width] of an RGB picture, by the entries of a preprocessor_config.json."""
    name = config.get("image_processor_type") or config["feature_extractor_type"]
    square, size, resample, crop, mean, std = CLASSES[name.replace("FeatureExtractor", "ImageProcessor")]
    if config.get("do_resize", True):
        image = resize(image, config.get("size", size), square, config.get("resample", resample))
    if config.get("do_center_crop", crop):
        image = centre_crop(image, both_sides(config.get("crop_size", size)))
    values = image
    if config.get("do_rescale", True):
        values = (values.astype(np.float64) * config.get("rescale_factor", 1 / 255)).astype(np.float32)
    if config.get("do_normalize", True):
        values = values.astype(np.float32)
        mean = np.array(config.get("image_mean", mean), np.float32)
        std = np.array(config.get("image_std", std), np.float32)
        values = (values - mean) / std
    if config.get("do_flip_channel_order", False):
        values = values[:, :, ::-1]
    return np.ascontiguousarray(values.transpose(2, 0, 1)).astype(dtype)
