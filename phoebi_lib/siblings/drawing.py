"""Pictures for the fixtures: stripes and spots whose look follows from a few numbers. They show no living thing."""

from __future__ import annotations

import colorsys
from pathlib import Path

import numpy as np
from PIL import Image

from phoebi_lib.workspace import atomic_path


def picture(look: tuple[float, float, float], rng: np.random.Generator, size: int = 96) -> np.ndarray:
    """Return a picture, uint8 (size, size, 3): stripes with spots on them, and noise.

    Args:
        look: three numbers 0..1 that a class shares: hue, fineness of the stripes and number of spots.
        rng: draws what differs between pictures of a class: direction and phase of the stripes, places of the spots.
        size: side in px.
    """
    hue, fineness, spots = look
    rows, columns = np.mgrid[:size, :size] / size
    angle, phase = rng.uniform(0, np.pi), rng.uniform(0, 2 * np.pi)
    stripes = np.sin(2 * np.pi * (2 + 14 * fineness) * (columns * np.cos(angle) + rows * np.sin(angle)) + phase)
    light = 0.6 + 0.15 * stripes
    for row, column in rng.uniform(0, 1, (round(12 * spots), 2)):
        light -= 0.5 * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / 0.002)
    colour = np.array(colorsys.hsv_to_rgb(hue, 0.5, 1.0))
    noisy = light[..., None] * colour + rng.normal(0, 0.05, (size, size, 3))
    return (255 * noisy.clip(0, 1)).round().astype(np.uint8)


def looks(n: int) -> list[tuple[float, float, float]]:
    """Return ``n`` different looks, spread evenly over the three numbers; the first ones stay as ``n`` grows."""
    # the additive recurrence of the plastic number, a low-discrepancy sequence in three dimensions
    root = 1.2207440846057596
    steps = np.array([1 / root, 1 / root**2, 1 / root**3])
    return [tuple(map(float, (0.5 + (i + 1) * steps) % 1.0)) for i in range(n)]


def save(pixels: np.ndarray, path: Path) -> None:
    """Write a picture under the format that its suffix (any case) names; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        Image.fromarray(pixels).save(temporary, quality=92)
