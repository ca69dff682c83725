"""The audit of the front-end (D2, D15, D16, D47): what it does to an even field, and frames read in other ways."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from phoebi_lib.decoders.base import Decoder
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.studies import audit_frames
from phoebi_lib.studies.audit import called_rows, exact
from phoebi_lib.transforms import transformed

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.pool import Pool
    from phoebi_lib.session import Run

LEVEL = 120  # of the even field, in 0..255; the green channel's mean in the paper
NATIVE = (2592, 1944)  # camera frame, px
RELEASED = 1024
SMALLEST_AREA = 0.4  # of a released crop, as a share of the camera frame


def even_field(side: int, level: int = LEVEL) -> torch.Tensor:
    """Return an evenly lit frame without cells, uint8 (1, 3, side, side)."""
    return torch.full((1, 3, side, side), level, dtype=torch.uint8)


def tile_levels(front_end: FrontEnd, side: int = RELEASED) -> dict[str, float]:
    """Return the mean level of interior, edge and corner tiles of a corrected even field of level 120.

    A grid of fewer than three tiles a side has no interior, and one of a single tile has that alone.
    """
    grid = front_end.grid
    means = front_end.tiles(even_field(side)).mean(dim=(2, 3, 4))[0].reshape(grid, grid).double().numpy()
    border = np.zeros((grid, grid), dtype=int)
    border[[0, -1], :] += 1
    border[:, [0, -1]] += 1
    kinds = {"interior tiles": border == 0, "edge tiles": border == 1, "corner tiles": border == 2}
    return {name: float(means[chosen].mean()) for name, chosen in kinds.items() if chosen.any()}


def place_gains(front_end: FrontEnd, side: int) -> dict[str, float]:
    """Return by how much the correction multiplies an even field at its centre, an edge's middle and a corner.

    The factor is read from the background, before anything is cut at 255.
    """
    background = front_end.background(even_field(side))[0, 0].double().numpy()
    gain = background.mean() / (background + 1.0)
    middle = side // 2
    return {"centre": float(gain[middle, middle]), "middle of an edge": float(gain[0, middle]),
            "corner": float(gain[0, 0])}  # fmt: skip


def native_sigmas(sigma: float) -> dict[str, float]:
    """Return what ``sigma`` px of a released crop are on the camera frame, and the reverse, for both ends of the scale.

    Crops are squares of at least 40 % of the frame, at any angle, the largest as high as the frame; each is resized
    to 1,024 px.
    """
    smallest, largest = math.ceil(math.sqrt(SMALLEST_AREA * NATIVE[0] * NATIVE[1])), min(NATIVE) - 2
    return {
        "smallest crop": sigma * smallest / RELEASED,
        "largest crop": sigma * largest / RELEASED,
        "smallest crop, from camera px": sigma * RELEASED / smallest,
        "largest crop, from camera px": sigma * RELEASED / largest,
    }


def hotspot_left(front_end: FrontEnd, height: float, width: float, side: int = RELEASED) -> float:
    """Return what a central hotspot leaves in an otherwise even field: highest over lowest corrected value, less one.

    ``height`` is relative to the field's level, ``width`` the standard deviation in field widths. The outer quarter is
    left out, so that border effects do not count.
    """
    x = (np.arange(side) + 0.5) / side - 0.5
    spot = np.exp(-0.5 * (x / width) ** 2)
    frame = LEVEL * (1.0 + height * np.outer(spot, spot)) / (1.0 + height)
    pixels = torch.from_numpy(np.repeat(frame.round().astype(np.uint8)[None, None], 3, axis=1))
    inner = slice(side // 4, side - side // 4)
    even = front_end.correct(pixels)[0, 0, inner, inner].double().numpy()
    # means of blocks: a rounded grey level is not a remnant of the lamp
    block = len(even) // 16
    means = even[: 16 * block, : 16 * block].reshape(16, block, 16, block).mean(axis=(1, 3))
    return float(means.max() / means.min() - 1.0)


def similarity(pool: Pool, other: Pool) -> pd.DataFrame:
    """Return rows of the mean cosine, over its tiles, between an image's features in two pools of the same images."""
    cosine = np.einsum("ntd,ntd->nt", pool.X, other.X).mean(axis=1)
    table = pool.manifest[["combination", "frame"]].assign(id=pool.ids)
    return table.assign(cosine=cosine.astype(float), evidence=pool.evidence)


def one_tile_pools(run: Run, dataset: Dataset, side: int) -> dict[str, Pool]:
    """Return the pools of frames resized to one tile: corrected after (two borders) or before the resizing."""
    small = transformed(dataset, partial(audit_frames.shrink, side=side), "one tile, shrunk", side=side)
    settings: dict[str, Any] = {"side": side, "padding": "reflect"}
    change = partial(audit_frames.correct_then_shrink, **settings)
    first = transformed(dataset, change, "one tile, corrected first", **settings)
    return {
        "resized, then corrected, zero padding": run.embed(small, grid=1, padding="zero"),
        "resized, then corrected, reflect padding": run.embed(small, grid=1, padding="reflect"),
        "corrected, then resized": run.embed(first, grid=1, illumination="none"),
    }


def tile_rows(decoder: Decoder, pool: Pool, rows: np.ndarray, **facts: Any) -> pd.DataFrame:
    """Return rows of an image asked by each of its tiles alone: N x T rows, one per image and tile."""
    X = pool.take(rows)
    tables = [called_rows(pool, rows, decoder.decision_function(X[:, [t]]), decoder.thresholds_, tile=t, **facts)
              for t in range(X.shape[1])]  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def grey_rows(decoder: Decoder, pools: Mapping[str, Pool], **facts: Any) -> pd.DataFrame:
    """Return, per pure-culture image and colour, what the grayscale control reads off: columns ``own``, ``best_other``,
    ``passed`` (own score above its threshold) and ``lead`` (own minus best other), with ``colour``.

    ``pools`` maps a colour ("rgb", "grey") to the pool of the same pure-culture images.
    """
    tables = []
    for colour, pool in pools.items():
        scores, own = decoder.decision_function(pool.take(np.arange(len(pool)))), pool.Y.argmax(axis=1)
        mine = scores[np.arange(len(own)), own]
        others = np.where(pool.Y == 1, -np.inf, scores).max(axis=1)
        table = pool.manifest[["combination", "frame"]].assign(id=pool.ids, colour=colour, own=mine, best_other=others)
        passed = (mine > decoder.thresholds_[own]).astype(float)
        tables.append(table.assign(passed=passed, lead=mine - others, evidence=pool.evidence, **facts))
    return pd.concat(tables, ignore_index=True)


def even_field_lines(grid: int, tile_size: int, sigma: float) -> list[dict[str, Any]]:
    """Return the exact lines of D2: tile levels of an even field under both paddings."""
    lines = []
    for padding in ("zero", "reflect"):
        front_end = FrontEnd(tile_size=tile_size, grid=grid, sigma=sigma, padding=padding)
        for place, level in tile_levels(front_end).items():
            lines.append(exact(f"even field of level {LEVEL}, {padding}, {place}", "level", level, digits=1))
    return lines
