"""A training in seconds: pictures whose species are coloured spots, and a backbone of two layers."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import nn

from phoebi_lib.baselines.finetune import Backbone, Recipe
from phoebi_lib.catalogue import CODES, parse_combination
from phoebi_lib.datasets import open_dataset

_COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255), (0, 255, 255)]
NAMES = (*CODES, "bs_mx", "bt_ka", "mx_fj", "ka_fj_pf", "bs_bt_mx_ka_fj_pf")
MEAN, STD, DIM = (0.5, 0.4, 0.3), (0.5, 0.6, 0.7), 24


def write(folder, names=NAMES, codes=CODES, frames=7, side=32):
    """Write pictures with six spots of each member's colour, and open them."""
    rng = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for frame in range(1, frames + 1):
            pixels = np.full((side, side, 3), 90, dtype=np.uint8)
            for code in parse_combination(name, codes):
                for top, left in rng.integers(0, side - 4, size=(6, 2)):
                    pixels[top : top + 4, left : left + 4] = _COLOURS[codes.index(code)]
            Image.fromarray(pixels).save(folder / name / f"{frame:05d}.png")
    return open_dataset(folder, codes=codes)


def parts(dataset):
    """The last frame of each combination is test, the two before are validation, the others train."""
    left = dataset.manifest.groupby("combination")["frame"].transform("max") - dataset.manifest["frame"]
    chosen = {"train": left > 2, "val": left.isin([1, 2]), "test": left == 0}
    return {part: np.flatnonzero(which) for part, which in chosen.items()}


def network(dropout=0.0):
    # no bias before the normalisation: its gradient is rounding alone, and AdamW's first step is the gradient's sign
    first = (nn.Conv2d(3, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    second = (nn.Conv2d(16, DIM, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout))
    return nn.Sequential(*first, *second)


def backbone(dropout=0.0, sha256="toy"):
    def build(side):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            made = network(dropout)
        return made, made

    return Backbone("toy", build, DIM, MEAN, STD, sha256)


def whole(**changes):
    values = {"kind": "whole", "compat": "corrected", "updates": 8, "batch": 10, "load": 32, "side": 24,
              "crop": "resized", "lr_backbone": 1e-2, "lr_head": 1e-2}  # fmt: skip
    return Recipe(**{**values, **changes})


def pipeline(**changes):
    return whole(**{"kind": "pipeline", "crop": "none", "load": 16, "side": 16, "grid": 2, **changes})
