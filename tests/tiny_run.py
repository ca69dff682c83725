"""A run without an encoder: tiny pictures on disk, features that are block means of the pixels, pools in memory."""

from __future__ import annotations

import numpy as np
from PIL import Image

from phoebi_lib.catalogue import CODES, COMBINATIONS, parse_combination
from phoebi_lib.datasets import open_dataset
from phoebi_lib.limits import Limits
from phoebi_lib.pool import Pool


def write_pictures(folder, frames=10, side=32):
    """Write ``frames`` pictures of each combination; a species shows as a ripple of its own."""
    rng = np.random.default_rng(0)
    x = np.arange(side)
    ripples = np.stack([np.cos(2 * np.pi * (k + 1) * x[None] / side) * np.ones((side, 1)) for k in range(len(CODES))])
    for name in COMBINATIONS:
        (folder / name).mkdir(parents=True)
        members = [CODES.index(code) for code in parse_combination(name)]
        for frame in range(1, frames + 1):
            picture = 120 + 22 * ripples[members].mean(axis=0) + rng.normal(0, 6, (3, side, side))
            pixels = np.moveaxis(picture.clip(0, 255).astype(np.uint8), 0, 2)
            Image.fromarray(pixels).save(folder / name / f"{frame:05d}.png")
    return open_dataset(folder)


class TinyRun:
    """What a study asks of a run. ``embedded`` counts the frames that were embedded, by what was done to them."""

    profile, dataset, encoder, seed = "smoke", "sim:tiny", "none", 1337

    def __init__(self, dataset, compat="corrected", grid=2, **limits):
        self._dataset, self.compat, self.grid = dataset, compat, grid
        self.limits = Limits(**{"battery": 1, "ablation": (2, 1, 1), "views": 1, "resamples": 50, **limits})
        self.embedded, self._base = {}, None

    def open_dataset(self):
        return self._dataset

    def open_pool(self):
        self._base = self._base or self.embed(self._dataset)
        return self._base

    def embed(self, dataset, **changes):
        change = dataset.facts.get("transform", {})
        key = (change.get("name", ""), change.get("severity", 0), *sorted(changes.items()))
        self.embedded[key] = self.embedded.get(key, 0) + len(dataset)
        raw = np.stack([_features(dataset.read(i), **{"grid": self.grid, **changes}) for i in range(len(dataset))])
        header = {
            "key": str(key), "codes": list(CODES), "labels": dataset.Y.tolist(), "dataset_name": "sim:tiny",
            "encoder_name": "none", "evidence": "simulated", "facts": {},
        }  # fmt: skip
        return Pool(raw.astype(np.float32), dataset.manifest, header)


def _features(frame, grid, illumination="divide", tile_size=224, **_):
    """Features of T = grid * grid tiles: a row of the tile, averaged; the correction takes the frame's mean away."""
    values = frame.astype(float).mean(axis=0)
    values = values - values.mean() if illumination == "divide" else values - 100.0
    bands = np.array_split(values, grid * grid, axis=0)
    columns = np.stack([band.mean(axis=0) for band in bands])
    # every picture gives 24 numbers a tile, whatever its width
    parts = np.stack([part.mean(axis=1) for part in np.array_split(columns, 24, axis=1)], axis=1)
    return parts + 1e-3 * tile_size / 224
