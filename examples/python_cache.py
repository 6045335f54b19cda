#!/usr/bin/env python3
"""Two caches on one folder: what the first one computed, the second one finds.

    pip wheel . && pip install embercache-*.whl
    python examples/python_cache.py

A function that hashes pixels stands for the encoder.
"""
import hashlib
import tempfile

import numpy as np

import embercache

HIDDEN = 1024


def encode(media: bytes) -> np.ndarray:
    """[tokens, HIDDEN] of float32; slow in real life."""
    seed = int.from_bytes(hashlib.sha256(media).digest()[:8], "little")
    return np.random.default_rng(seed).random((256, HIDDEN), np.float32)


def open_cache(folder: str) -> embercache.Cache:
    return embercache.open(
        "file",
        {"dir": folder},
        namespace="example encoder v1",  # another model, other weights: another text
        hidden=HIDDEN,
        dtype="F32",
        max_pool_bytes=64 << 20,
    )


def main() -> None:
    embercache.set_log_level("warning")
    pictures = [b"a cat", b"a dog", b"a cat"]
    with tempfile.TemporaryDirectory() as folder:
        with open_cache(folder) as first:
            for picture in pictures:
                key = first.media_key(picture)
                with first.get_or_compute(key, lambda p=picture: encode(p)) as embedding:
                    print(f"first cache, {picture.decode()}: {embedding.source}")
        # Closing it waited for what it had published.

        with open_cache(folder) as second:
            for picture in pictures:
                found = second.get(second.media_key(picture))
                print(f"second cache, {picture.decode()}: {found.source if found else 'miss'}")
                assert found is not None
                # No copy: the array lies in the cache's memory, and keeps it there.
                assert np.array_equal(found.numpy(), encode(picture))
            array = found.numpy()
        assert array.shape == (256, HIDDEN)  # also after the cache is closed


if __name__ == "__main__":
    main()
