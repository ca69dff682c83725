"""The camera's picture of a field, and the rotated square crops cut from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Crop:
    """A rotated square inside a field: centre (x, y) and side in field pixels, angle in degrees."""

    x: float
    y: float
    side: int
    angle: float

    def corners(self) -> np.ndarray:
        """Return the four corners, shape (4, 2), (x, y) in field pixels."""
        return np.array([self.to_field(u, v) for u, v in ((0, 0), (1, 0), (1, 1), (0, 1))])

    def to_field(self, u: float, v: float) -> tuple[float, float]:
        """Map crop coordinates (0..1 from its upper left corner) to field pixels."""
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        right, down = (u - 0.5) * self.side, (v - 0.5) * self.side
        return self.x + right * cos - down * sin, self.y + right * sin + down * cos

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Return which points, shape (n, 2) in field pixels, lie inside the square, shape (n,), bool."""
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        x, y = points[:, 0] - self.x, points[:, 1] - self.y
        half = self.side / 2.0
        return (np.abs(x * cos + y * sin) < half) & (np.abs(y * cos - x * sin) < half)


def expose(
    intensity: np.ndarray, illumination: np.ndarray, parameters: Mapping[str, Any], rng: np.random.Generator
) -> np.ndarray:
    """Return the camera frame, shape (height, width, 3), uint8 RGB.

    ``intensity`` (relative) times ``illumination`` times the lamp's colour, with shot noise (normal, its variance equal
    to the number of electrons) and read noise, rounded and clipped to 0..255.
    """
    camera = parameters["camera"]
    gain = camera["electrons_per_level"]
    read = np.float32((camera["read_noise"] / gain) ** 2)
    light = intensity * illumination
    frame = np.empty((*light.shape, 3), np.uint8)
    for channel, level in enumerate(camera["colour"]):
        signal = light * np.float32(level)
        noise = rng.standard_normal(signal.shape, dtype=np.float32)
        noise *= np.sqrt(signal * np.float32(1.0 / gain) + read)
        signal += noise
        frame[:, :, channel] = np.clip(np.rint(signal, out=signal), 0.0, 255.0, out=signal)
    return frame


def draw_crop(width: int, height: int, parameters: Mapping[str, Any], rng: np.random.Generator) -> Crop:
    """Draw one crop with the geometry of the published images.

    The side is at least the root of ``crop.minimum_area`` of the field's area. An angle is drawn from 0 to 360 degrees
    until a square of that side fits into the field at this angle (at most ``crop.tries`` times, then 0); the side is
    uniform up to the largest that fits, the centre uniform over the places that keep all corners inside. On a 4:3 field
    the area lies between 0.40 and 0.75 of the field.
    """
    short = min(width, height)
    least = min(math.ceil(math.sqrt(parameters["crop"]["minimum_area"] * width * height)), short - 2)
    for _ in range(parameters["crop"]["tries"]):
        angle = rng.uniform(0.0, 360.0)
        most = math.floor(short / _spread(angle)) - 2
        if most >= least:
            break
    else:
        angle, most = 0.0, short - 2
    side = int(rng.integers(least, most + 1))
    half = side * _spread(angle) / 2.0
    return Crop(rng.uniform(half, width - half), rng.uniform(half, height - half), side, angle)


def _spread(angle: float) -> float:
    """Width of the box around a unit square turned by ``angle`` degrees."""
    return abs(math.cos(math.radians(angle))) + abs(math.sin(math.radians(angle)))


def cut(frame: np.ndarray, crop: Crop, size: int) -> Image.Image:
    """Cut, turn and resize in one pass of bicubic interpolation; return a ``size`` x ``size`` RGB picture.

    Crops are scaled by 0.85 to 1.17, where the optics leaves nothing that a coarser grid could alias, so that a second,
    averaging pass would only blur.
    """
    x0, y0 = crop.to_field(0.0, 0.0)
    x1, y1 = crop.to_field(1.0, 0.0)
    x2, y2 = crop.to_field(0.0, 1.0)
    affine = ((x1 - x0) / size, (x2 - x0) / size, x0, (y1 - y0) / size, (y2 - y0) / size, y0)
    return Image.fromarray(frame).transform((size, size), Image.Transform.AFFINE, affine, Image.Resampling.BICUBIC)
