"""Random crops and flips of a batch, drawn on the CPU for each update by itself.

A draw depends on (seed, epoch, update within it) alone: a resumed training needs no state of a generator, and a CPU and
a GPU see the same pictures. Distributions are those of torchvision's RandomCrop, RandomResizedCrop and random flips.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import interpolate

from phoebi_lib.baselines.finetune.recipes import Recipe

# purposes of the generators that one training seed feeds
HEAD, ORDER, CROPS, NETWORK = range(4)
_TRIES = 10


@dataclass(frozen=True)
class Draws:
    """What happens to each picture: ``boxes`` (n, 4) top, left, height, width in px; ``flips`` (n, 2): left-right,
    upside down, as booleans."""

    boxes: np.ndarray
    flips: np.ndarray


def generator(purpose: int, seed: int, *where: int) -> np.random.Generator:
    """Return the generator of one purpose at one place of a training, independent of all others."""
    return np.random.default_rng([purpose, int(seed), *where])


def order(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return the permutation of ``n`` training images of an epoch."""
    return generator(ORDER, seed, epoch).permutation(n)


def draw(recipe: Recipe, n: int, length: int, rng: np.random.Generator) -> Draws:
    """Return the crops and flips of ``n`` square pictures of ``length`` px."""
    if recipe.crop == "resized":
        boxes = _resized_boxes(rng, n, length, recipe.scale, recipe.ratio)
    elif recipe.crop == "random":
        corners = rng.integers(0, length - recipe.side + 1, size=(n, 2))
        boxes = np.concatenate([corners, np.full((n, 2), recipe.side)], axis=1)
    else:
        boxes = np.tile([0, 0, length, length], (n, 1))
    return Draws(boxes, rng.random((n, 2)) > 0.5)


def _resized_boxes(
    rng: np.random.Generator, n: int, length: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """Area uniform, aspect log-uniform; of ten tries the first that fits, else the whole picture."""
    area = length**2 * rng.uniform(*scale, size=(n, _TRIES))
    aspect = np.exp(rng.uniform(*np.log(ratio), size=(n, _TRIES)))
    size = np.rint(np.sqrt(np.stack([area / aspect, area * aspect], axis=-1))).astype(np.int64)
    fits = ((size > 0) & (size <= length)).all(axis=-1)
    chosen = np.where(fits.any(axis=1)[:, None], size[np.arange(n), fits.argmax(axis=1)], length)
    # integers() takes one bound per element
    corners = rng.integers(0, length - chosen + 1)
    return np.concatenate([corners, chosen], axis=1)


def apply(pictures: torch.Tensor, draws: Draws, side: int) -> torch.Tensor:
    """Cut, resize and flip uint8 pictures (B, 3, L, L); return float32 (B, 3, side, side) in 0..255, on their device.

    Resizing is bilinear and antialiased. torchvision's on PIL pictures is the same up to rounding to whole grey levels.
    """
    out = torch.empty((len(pictures), 3, side, side), dtype=torch.float32, device=pictures.device)
    for i, (top, left, height, width) in enumerate(draws.boxes.tolist()):
        part = pictures[i : i + 1, :, top : top + height, left : left + width].float()
        if (height, width) != (side, side):
            part = interpolate(part, (side, side), mode="bilinear", antialias=True)
        out[i] = part[0]
    for axis, chosen in ((-1, draws.flips[:, 0]), (-2, draws.flips[:, 1])):
        rows = torch.from_numpy(np.flatnonzero(chosen)).to(out.device)
        out[rows] = out[rows].flip(axis)
    return out
