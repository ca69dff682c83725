"""Changes of frames that the audit of the front-end embeds: one resized tile, random crops, grey (D7, D15, D16).

They stand in a file of their own because the source of this file is part of the key of the pools made from them.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from PIL import Image

from phoebi_lib.frontend import FrontEnd


def shrink(frame: np.ndarray, path: str, *, side: int) -> np.ndarray:
    """Return a whole frame uint8 (3,H,W) at ``side`` px: bilinear, no antialias, cut to whole numbers, as published."""
    del path
    pixels = torch.from_numpy(frame)[None].float()
    small = torch.nn.functional.interpolate(pixels, size=(side, side), mode="bilinear", align_corners=False)
    return small[0].to(torch.uint8).numpy()


def correct_then_shrink(frame: np.ndarray, path: str, *, side: int, padding: str) -> np.ndarray:
    """Return a frame that is corrected at full resolution first and then resized, antialiased, to ``side`` px."""
    del path
    even = FrontEnd(padding=padding).correct(torch.from_numpy(frame)[None])
    options = {"mode": "bilinear", "align_corners": False, "antialias": True}
    small = torch.nn.functional.interpolate(even, size=(side, side), **options)
    return _rounded(small[0])


def random_crops(frame: np.ndarray, path: str, *, side: int, grid: int, padding: str, seed: int) -> np.ndarray:
    """Return ``grid * grid`` crops of a corrected frame at uniform random places, laid side by side in one picture.

    The places follow from ``seed`` and the path, so that every image has its own and has them again in another run.
    Read with ``illumination="none"``, the picture's tiles are these crops.
    """
    even = _rounded(FrontEnd(tile_size=side, padding=padding).correct(torch.from_numpy(frame)[None])[0])
    generator = np.random.default_rng([seed, zlib.crc32(path.encode())])
    height, width = frame.shape[1:]
    picture = np.empty((3, grid * side, grid * side), dtype=np.uint8)
    for row in range(grid):
        for column in range(grid):
            top, left = generator.integers(height - side + 1), generator.integers(width - side + 1)
            crop = even[:, top : top + side, left : left + side]
            picture[:, row * side : (row + 1) * side, column * side : (column + 1) * side] = crop
    return picture


def grey(frame: np.ndarray, path: str) -> np.ndarray:
    """Return the luma of a frame in all three channels (Pillow's conversion "L", as in the grayscale control)."""
    del path
    luma = np.asarray(Image.fromarray(frame.transpose(1, 2, 0)).convert("L"))
    return np.repeat(luma[None], 3, axis=0)


def _rounded(pixels: torch.Tensor) -> np.ndarray:
    return pixels.round().clamp(0, 255).to(torch.uint8).numpy()
