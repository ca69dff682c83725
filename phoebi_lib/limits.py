"""How much of a study is computed: the caps of a profile, printed on each page; ``caps=off`` lifts them.

The published studies take hundreds of thousands of frames through the encoder. A laptop takes what these numbers say,
always whole combinations and the first frames in acquisition order, so that a larger cap only adds images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from phoebi_lib.splits import partition


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

    def __str__(self) -> str:
        none = asdict(Limits())
        capped = {name.replace("_", " "): value for name, value in asdict(self).items() if value != none[name]}
        return ", ".join(f"{name} {value}" for name, value in capped.items()) or "none: the published sizes"


_LAPTOP = Limits(battery=1, ablation=(2, 1, 1), views=1, mosaics=2, patches=64)
LIMITS: Mapping[str, Limits] = {
    # a test has to end: the two most expensive parts are left to the larger profiles
    "smoke": replace(_LAPTOP, tile_sizes=(168, 224, 336), second_world=False),
    "default": _LAPTOP,
    "rehearsal": Limits(battery=1, ablation=(1, 1, 1), views=1, mosaics=1, patches=16),
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
