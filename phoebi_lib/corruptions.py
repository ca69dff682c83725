"""What may happen to a raw frame before the illumination correction: the acquisition battery and the views (Section 5).

A corruption stands for a variable that differs between microscopes (Appendix B.3); it acts on the 8-bit frame as the
camera gives it. A view is one of the six axis-aligned rotations and flips, which change nothing that a label speaks of.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from phoebi_lib.compat import choice
from phoebi_lib.datasets import Dataset
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.transforms import Transformed, transformed


@dataclass(frozen=True)
class Corruption:
    """One row of Table 17: its name there, what differs between microscopes, its severities in ``unit``, mild first."""

    row: str
    variable: str
    severities: tuple[float, ...]
    unit: str


CORRUPTIONS: Mapping[str, Corruption] = {
    "condenser": Corruption("Condenser gradient", "condenser / Köhler misalignment", (0.15, 0.30, 0.50), "ramp 1 ± s"),
    "vignetting": Corruption("Vignetting", "objective / condenser aperture", (0.2, 0.4, 0.6), "falloff 1 − s r²/2"),
    "lamp": Corruption("Lamp intensity", "lamp voltage, exposure time", (0.85, 0.70, 0.55), "scale"),
    "gamma": Corruption("Detector gamma", "camera response curve", (1.3, 1.6, 2.0), "exponent"),
    "focus": Corruption("Focus drift", "focus", (1.0, 2.0, 3.5), "blur σ, px"),
    "noise": Corruption("Sensor noise", "camera, gain setting", (5.0, 12.0, 25.0), "σ, grey levels"),
    "jpeg": Corruption("JPEG re-encoding", "capture software, archiving", (60, 40, 25), "quality"),
    "one_tile": Corruption("Resize to one tile", "no tiling", (224,), "side, px"),
    "one_tile_corrected": Corruption("Correct, then resize to one tile", "no tiling", (224,), "side, px"),
}
#: The seven corruptions with three severities each, and the three that change the illumination alone.
BATTERY = ("condenser", "vignetting", "lamp", "gamma", "focus", "noise", "jpeg")
ILLUMINATION = ("condenser", "vignetting", "lamp")

#: name -> the turn or flip of a frame (3, H, W).
VIEWS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda frame: frame,
    "rotation by 90°": lambda frame: np.rot90(frame, 1, axes=(1, 2)),
    "rotation by 180°": lambda frame: np.rot90(frame, 2, axes=(1, 2)),
    "rotation by 270°": lambda frame: np.rot90(frame, 3, axes=(1, 2)),
    "horizontal flip": lambda frame: frame[:, :, ::-1],
    "vertical flip": lambda frame: frame[:, ::-1],
}


def corrupt(
    frame: np.ndarray,
    name: str,
    severity: float,
    rng: np.random.Generator | None = None,
    *,
    compat: str = "corrected",
) -> np.ndarray:
    """Return a corrupted copy of a raw frame, uint8 like it and of its shape (the one-tile controls: ``severity`` px).

    Under ``compat="corrected"`` results are rounded to the nearest grey level, blurring reflects at the border with a
    radius of 3 sigma rounded half up, and resizing averages over the pixels that it merges. Under ``"reference"``, as
    published, fractions are cut off, blurring takes the outside for black with the radius rounded half to even (10
    at sigma 3.5), and resizing interpolates between two neighbours along each axis.

    Args:
        frame: uint8 (3, H, W) as the camera gave it, 0..255.
        name: a key of ``CORRUPTIONS``.
        severity: in the unit of the corruption; the published ones are ``CORRUPTIONS[name].severities``.
        rng: source of the sensor noise, needed for that alone; see :func:`generator`.
        compat: ``"corrected"`` or ``"reference"``.

    Raises:
        TypeError: not a uint8 frame of shape (3, H, W), or noise without a generator.
        ValueError: an unknown corruption, or a severity out of its range.
    """
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or len(frame) != 3:
        found = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
        raise TypeError(f"a frame to corrupt must be uint8 of shape (3, H, W); found {found}")
    if name not in CORRUPTIONS:
        raise ValueError(f"unknown corruption {name!r}; known: {', '.join(CORRUPTIONS)}")
    low, high = _RANGES[name]
    if not low <= severity <= high:
        raise ValueError(f"{name}: severity must lie between {low:g} and {high:g} ({CORRUPTIONS[name].unit}); "
                         f"found {severity!r}")  # fmt: skip
    if name == "noise" and rng is None:
        raise TypeError("noise needs a generator; pass rng=generator(path, severity)")
    if name == "jpeg":
        return _jpeg(frame, int(severity))
    published = choice("focus_blur", compat)[0] == "zero"
    values = _WAYS[name](frame.astype(np.float32), severity, rng, published, compat)
    return (values if published else np.rint(values)).clip(0, 255).astype(np.uint8)


def _condenser(frame: np.ndarray, s: float, *_: object) -> np.ndarray:
    return frame * np.linspace(1 - s, 1 + s, frame.shape[2], dtype=np.float32)


def _vignetting(frame: np.ndarray, s: float, *_: object) -> np.ndarray:
    y, x = (np.linspace(-1, 1, n, dtype=np.float32) for n in frame.shape[1:])
    return frame * (1 - s * (x[None, :] ** 2 + y[:, None] ** 2) / 2)


def _lamp(frame: np.ndarray, scale: float, *_: object) -> np.ndarray:
    return frame * np.float32(scale)


def _gamma(frame: np.ndarray, exponent: float, *_: object) -> np.ndarray:
    return 255 * (frame / 255) ** np.float32(exponent)


def _focus(frame: np.ndarray, sigma: float, rng: object, published: bool, *_: object) -> np.ndarray:
    radius = max(1, round(3 * sigma) if published else math.floor(3 * sigma + 0.5))
    mode = "constant" if published else "reflect"
    return gaussian_filter(frame, (0, sigma, sigma), mode=mode, radius=(0, radius, radius))


def _noise(frame: np.ndarray, sigma: float, rng: np.random.Generator, *_: object) -> np.ndarray:
    return frame + np.float32(sigma) * rng.standard_normal(frame.shape, dtype=np.float32)


def _jpeg(frame: np.ndarray, quality: int) -> np.ndarray:
    stream = io.BytesIO()
    Image.fromarray(frame.transpose(1, 2, 0)).save(stream, "JPEG", quality=quality)
    return np.ascontiguousarray(np.asarray(Image.open(stream).convert("RGB")).transpose(2, 0, 1))


def _one_tile(frame: np.ndarray, side: float, rng: object, published: bool, *_: object) -> np.ndarray:
    size = (int(side), int(side))
    picture = torch.from_numpy(frame)[None]
    small = torch.nn.functional.interpolate(picture, size, mode="bilinear", antialias=not published)
    return small[0].numpy()


def _one_tile_corrected(frame: np.ndarray, side: float, rng: object, published: bool, compat: str) -> np.ndarray:
    front_end = FrontEnd(tile_size=int(side), grid=1, padding=choice("illumination", compat))
    even = front_end.correct(torch.from_numpy(frame.astype(np.uint8))[None])[0]
    return _one_tile(even.numpy(), side, rng, published)


_WAYS: Mapping[str, Callable[..., np.ndarray]] = {
    "condenser": _condenser, "vignetting": _vignetting, "lamp": _lamp, "gamma": _gamma, "focus": _focus,
    "noise": _noise, "one_tile": _one_tile, "one_tile_corrected": _one_tile_corrected,
}  # fmt: skip
# beyond these a corruption has no meaning: negative light, a blur of no width, a quality that JPEG does not have
_RANGES = {
    "condenser": (0, 1), "vignetting": (0, 1), "lamp": (0, 10), "gamma": (0.01, 100), "focus": (0.1, 100),
    "noise": (0, 255), "jpeg": (1, 95), "one_tile": (1, 4096), "one_tile_corrected": (1, 4096),
}  # fmt: skip


def generator(path: str, severity: float) -> np.random.Generator:
    """Return the generator of one image's sensor noise, seeded by its path and the severity.

    An image's noise then depends on nothing else: not on the images before it, the threads that read them, or where a
    run was taken up again. :func:`condition_generator` is the published way.
    """
    digest = hashlib.sha256(f"{path}|{float(severity)!r}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def condition_generator(level: int) -> np.random.Generator:
    """Return a generator for all images of one noise condition, with the published seed; ``level`` counts from 0.

    The published run drew from it image after image, so that an image's noise depends on all images before it. Its
    generator was that of the device, which no other device repeats: the seed is the published one, the noise is not.
    """
    return np.random.default_rng(1337 + 97 * level + sum(map(ord, "sensor_noise")))


def corrupted(dataset: Dataset, name: str, severity: float, compat: str = "corrected") -> Transformed:
    """Return the data set with every frame corrupted; noise is drawn per image, whatever ``compat`` says.

    Raises as :func:`corrupt` when a frame is read.
    """
    change = partial(_corrupt_image, name=name, severity=severity, compat=compat)
    return transformed(dataset, change, name, severity=severity, compat=compat)


def _corrupt_image(frame: np.ndarray, path: str, name: str, severity: float, compat: str) -> np.ndarray:
    return corrupt(frame, name, severity, generator(path, severity), compat=compat)


def viewed(dataset: Dataset, view: str) -> Transformed:
    """Return the data set with every frame turned or flipped. ValueError for a name that is not in ``VIEWS``."""
    if view not in VIEWS:
        raise ValueError(f"unknown view {view!r}; known: {', '.join(VIEWS)}")
    return transformed(dataset, partial(_view_image, view=view), view)


def _view_image(frame: np.ndarray, path: str, view: str) -> np.ndarray:
    return np.ascontiguousarray(VIEWS[view](frame))
