"""How much of a study is computed: the caps of a profile, printed on each page; ``caps=off`` lifts them.

The published studies take hundreds of thousands of frames through the encoder. A laptop takes what these numbers say,
always whole combinations and the first frames in acquisition order, so that a larger cap only adds images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from phoebi_lib.splits import partition

_CAPPED = Path(__file__).parent / "baselines" / "finetune" / "capped.yaml"


@dataclass(frozen=True)
class FineTuneLimits:
    """Caps of one supervised training from pixels; the numbers of each profile are in ``capped.yaml``.

    Attributes:
        updates: optimiser steps (published: epochs). batch: images per step. side: px of the network's input.
        evaluations: how often validation is scored.
        grid: tiles per axis of a frame (None: the recipe's). train_images: images on which training F1 is measured.
        lr_backbone, lr_head: learning rates chosen on in-distribution validation (None: the published ones).
    """

    updates: int
    batch: int
    side: int
    evaluations: int
    grid: int | None = None
    train_images: int | None = None
    lr_backbone: float | None = None
    lr_head: float | None = None

    def __str__(self) -> str:
        tiles = "" if self.grid is None else f" of {self.grid**2} tiles"
        return f"{self.updates} updates of {self.batch} images{tiles} at {self.side} px"


@dataclass(frozen=True)
class Limits:
    """Caps; None means the published size.

    Attributes:
        battery: test images per combination that the acquisition battery corrupts (published: 100).
        ablation: train, validation and test images per combination that are embedded again under another front-end or
            in other units (published: all).
        views: test images per combination that are rotated and flipped (published: all).
        mosaics: training mosaics per combination (published: 300).
        patches: patch tokens per image, at fixed random positions (published: 16 for training, 64 for validation and
            512 for test images; under a cap the same number for all).
        bank: units in a nearest-neighbour bank (published: 1,500,000).
        resamples: bootstrap resamples of quantities that need the images (None: what ``compat`` says).
        tile_sizes: sides of the tiles in px that the ablation compares; a frame at 518 px costs as much as six at 224.
        second_world: whether the simulated world with shared sessions is made and embedded beside the first.
        finetune_whole, finetune_pipeline: size of a training from whole images, and from the front-end's tiles
            (published: 6,540 or 7,500 updates of 64 images, 15,000 or 15,696 of 32 frames, at 224 px).
    """

    battery: int | None = None
    ablation: tuple[int, int, int] | None = None
    views: int | None = None
    mosaics: int | None = None
    patches: int | None = None
    bank: int | None = None
    resamples: int | None = None
    tile_sizes: tuple[int, ...] = (168, 224, 336, 518)
    second_world: bool = True
    finetune_whole: FineTuneLimits | None = None
    finetune_pipeline: FineTuneLimits | None = None

    def __str__(self) -> str:
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        capped = {name.replace("_", " "): value for name, (value, none) in values.items() if value != none}
        return ", ".join(f"{name} {value}" for name, value in capped.items()) or "none: the published sizes"


def _finetune(profile: str) -> dict[str, FineTuneLimits]:
    kinds = yaml.safe_load(_CAPPED.read_text(encoding="utf-8"))[profile]
    return {f"finetune_{kind}": FineTuneLimits(**values) for kind, values in kinds.items()}


_LAPTOP = Limits(battery=1, ablation=(2, 1, 1), views=1, mosaics=2, patches=64)
LIMITS: Mapping[str, Limits] = {
    # a test has to end: the two most expensive parts are left to the larger profiles
    "smoke": replace(_LAPTOP, tile_sizes=(168, 224), second_world=False, **_finetune("smoke")),
    "default": replace(_LAPTOP, **_finetune("default")),
    "rehearsal": Limits(battery=1, ablation=(1, 1, 1), views=1, mosaics=1, patches=16, **_finetune("rehearsal")),
    "paper": Limits(),
}


def limits(profile: str, caps: bool = True) -> Limits:
    """Return the caps of a profile, or none with ``caps=False``. Raises ValueError for an unknown profile."""
    if profile not in LIMITS:
        raise ValueError(f"unknown profile {profile!r}; known: {', '.join(LIMITS)}")
    return LIMITS[profile] if caps else Limits()


def first_rows(manifest: pd.DataFrame, rows: Sequence[int] | np.ndarray, n: int | None) -> np.ndarray:
    """Return of ``rows`` the first ``n`` of each combination, one per frame as far as there are frames, sorted.

    A second crop of a frame is taken only after every frame has given one. ``None`` returns all rows, sorted.
    """
    rows = np.sort(np.asarray(rows, dtype=np.int64))
    if n is None:
        return rows
    part = manifest.iloc[rows].reset_index(drop=True)
    turn = part.groupby(["combination", "frame"], sort=False).cumcount()
    order = part.assign(turn=turn).sort_values(["combination", "turn", "frame"], kind="stable")
    return np.sort(rows[order.groupby("combination", sort=False).head(n).index.to_numpy()])


def ablation_rows(manifest: pd.DataFrame, cap: tuple[int, int, int] | None) -> dict[str, np.ndarray]:
    """Return row positions ``{"train", "val", "test"}`` of the random split, so many images per combination."""
    parts = partition(manifest, "random", grouping="frame")
    counts = dict(zip(("train", "val", "test"), cap or (None, None, None), strict=True))
    return {part: first_rows(manifest, parts[part], n) for part, n in counts.items()}


def battery_rows(manifest: pd.DataFrame, cap: int | None) -> np.ndarray:
    """Return the test images that the acquisition battery corrupts, in manifest order.

    Published: 100 per combination, drawn without replacement by ``numpy.random.default_rng(1337)`` over the
    combinations in sorted order. A cap takes the first images of each combination.
    """
    test = partition(manifest, "random", grouping="frame")["test"]
    if cap is not None:
        return first_rows(manifest, test, cap)
    names = manifest["combination"].to_numpy()[test]
    generator = np.random.default_rng(1337)
    each = 4000 // len(set(names))
    pieces = [test[names == name] for name in sorted(set(names))]
    return np.sort(np.concatenate([generator.choice(rows, min(each, len(rows)), replace=False) for rows in pieces]))
