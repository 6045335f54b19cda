"""Writes PNG files of every kind, Adam7 interlaced ones too, which Pillow reads but cannot write."""

import struct
import zlib

import numpy as np

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def rows(samples, depth):
    """samples: [height, width, channels]. The bytes of its rows, each with filter type 0."""
    height = samples.shape[0]
    flat = samples.reshape(height, -1)
    if depth == 16:
        packed = flat.astype(">u2").view(np.uint8).reshape(height, -1)
    elif depth == 8:
        packed = flat.astype(np.uint8)
    else:
        bits = (flat[:, :, None] >> np.arange(depth - 1, -1, -1)) & 1
        packed = np.packbits(bits.reshape(height, -1).astype(np.uint8), axis=1)
    return b"".join(b"\0" + row.tobytes() for row in packed)


def png(samples, colour_type, depth, palette=None, trns=None, interlaced=False, exif=None):
    samples = np.asarray(samples)
    if samples.ndim == 2:
        samples = samples[:, :, None]
    height, width = samples.shape[:2]
    if interlaced:
        passes = (samples[y::dy, x::dx] for x, y, dx, dy in ADAM7)
        data = b"".join(rows(part, depth) for part in passes if part.size)
    else:
        data = rows(samples, depth)
    out = b"\x89PNG\r\n\x1a\n"
    out += chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, interlaced))
    if palette is not None:
        out += chunk(b"PLTE", np.asarray(palette, np.uint8).tobytes())
    if trns is not None:
        out += chunk(b"tRNS", trns)
    compressed = zlib.compress(data, 9)
    half = len(compressed) // 2
    out += chunk(b"IDAT", compressed[:half]) + chunk(b"IDAT", compressed[half:])
    if exif is not None:
        out += chunk(b"eXIf", exif)
    return out + chunk(b"IEND", b"")
