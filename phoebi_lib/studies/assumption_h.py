"""What Section 4 builds on, as numbers: tiles of one culture are alike, means over tiles settle, absent species get 0.

The paper shows twenty pairs of crops in each regime; here every pair counts, since the mean cosine of all pairs of two
sets of unit vectors is the product of their mean vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib import report
from phoebi_lib.tile_counts import COUNTS

if TYPE_CHECKING:
    from phoebi_lib.decoders import SimplexUnmix
    from phoebi_lib.decoders.base import Decoder
    from phoebi_lib.pool import Pool

REGIMES = ("same image", "same species", "other species")


def pair_cosines(X: np.ndarray, species: Sequence[int], frames: Sequence[int]) -> np.ndarray:
    """Return the mean cosine of two tiles in each regime by species, (S, 3) in the order of ``REGIMES``.

    Args:
        X: tile features of images of pure cultures, (N, T, D), unit norm, T at least 2.
        species: class of each image (N,), S of them at least 2, in sorted order in the result.
        frames: frame of each image (N,); two images of a species count as two only if they are of two frames.

    Raises:
        ValueError: a species has one frame alone, there is one species, or one tile.
    """
    species, frames = np.asarray(species), np.asarray(frames)
    kinds, tiles = np.unique(species), X.shape[1]
    if len(kinds) < 2 or tiles < 2:
        raise ValueError(f"the three regimes need two species and two tiles; found {len(kinds)} and {tiles}")
    means = X.mean(axis=1, dtype=np.float64)
    # all ordered pairs of an image's tiles, less the pairs of a tile with itself, whose cosine is 1
    within = (tiles * (means**2).sum(axis=1) - 1) / (tiles - 1)
    centre = np.array([means[species == kind].mean(axis=0) for kind in kinds])
    result = np.empty((len(kinds), 3))
    for i, kind in enumerate(kinds):
        mine = species == kind
        _, frame, size = np.unique(frames[mine], return_inverse=True, return_counts=True)
        pairs = mine.sum() ** 2 - (size**2).sum()
        if not pairs:
            raise ValueError(f"species {kind} has one frame; two images of a species need two")
        sums = np.zeros((len(size), means.shape[1]))
        np.add.at(sums, frame, means[mine])
        apart = ((sums.sum(axis=0) ** 2).sum() - (sums**2).sum()) / pairs
        others = means[~mine].mean(axis=0)
        result[i] = within[mine].mean(), apart, centre[i] @ others
    return result


def homogeneity(pool: Pool, rows: np.ndarray, *, n: int = 2000, seed: int = 0, **run: Any) -> pd.DataFrame:
    """Return the tidy table "4 homogeneity" of the pure-culture images at ``rows``: column ``cosine``.

    Rows are the regimes and the differences "same image minus same species" and "same species minus other species".
    The 95 % intervals resample the species, all images of each together: they say how far the result rests on which
    species there are.
    """
    part = pool.manifest.iloc[rows]
    labels = pool.Y[rows]
    if (labels.sum(axis=1) != 1).any():
        raise ValueError("homogeneity compares pure cultures: every image must have one species")
    table = pair_cosines(pool.take(rows), labels.argmax(axis=1), part["frame"].to_numpy())
    draws = np.random.default_rng(seed).integers(len(table), size=(n, len(table)))
    values, drawn = table.mean(axis=0), table[draws].mean(axis=1)
    differences = {f"{REGIMES[i]} minus {REGIMES[i + 1]}": (values[i] - values[i + 1], drawn[:, i] - drawn[:, i + 1])
                   for i in range(2)}  # fmt: skip
    quantities = {name: (values[i], drawn[:, i]) for i, name in enumerate(REGIMES)} | differences
    sizes = {"n_images": len(part), "n_frames": len(part[["combination", "frame"]].drop_duplicates()),
             "n_combinations": len(table)}  # fmt: skip
    lines = []
    for row, (value, resampled) in quantities.items():
        low, high = np.percentile(resampled, [2.5, 97.5])
        lines.append({"row": row, "column": "cosine", "value": value, "low": low, "high": high, **sizes})
    return report.table(lines, table="4 homogeneity", evidence=pool.evidence, **run)


def rate(tiles: np.ndarray, combinations: Sequence[str], counts: Sequence[int] = COUNTS, draws: int = 32,
         seed: int = 0) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the scatter of mean tile scores by combination, (C, len(counts)), and its degrees of freedom (C,).

    For each number of tiles of ``counts``, so many are drawn from every image without replacement, and the squared
    deviations of their mean from the combination's mean are summed over images and averaged over species and ``draws``.
    Their sum over combinations, divided by the sum of the degrees of freedom, is the variance that
    :func:`phoebi_lib.tile_counts.score_variance` calls "images of one combination", averaged over species.

    Args:
        tiles: tile scores (N, T, K).
        combinations: of each image (N,); those with one image have no scatter and are left out.
        counts: numbers of tiles, at most T.
    """
    generator = np.random.default_rng(seed)
    names, group, size = np.unique(np.asarray(combinations), return_inverse=True, return_counts=True)
    scatter = np.zeros((len(names), len(counts)))
    for column, count in enumerate(counts):
        for _ in range(draws):
            order = generator.permuted(np.tile(np.arange(tiles.shape[1]), (len(tiles), 1)), axis=1)[:, :count, None]
            means = np.take_along_axis(tiles, order, axis=1).mean(axis=1)
            for g in range(len(names)):
                mine = means[group == g]
                scatter[g, column] += ((mine - mine.mean(axis=0)) ** 2).sum(axis=0).mean() / draws
    kept = size > 1
    return scatter[kept], size[kept] - 1


def variance_rate(
    decoder: Decoder, pool: Pool, rows: np.ndarray, name: str, *, n: int = 2000, seed: int = 0, **run: Any
) -> pd.DataFrame:
    """Return the tidy table "4 score variance": how the variance of a score falls with the number of tiles.

    Row ``name`` with the columns ``exponent``, the slope of log variance against log T between images of one
    combination (-1 if tiles are independent given the combination), and ``floor_share``, the share of the variance at
    the largest T that stays in a fit ``floor + slope / T`` when T grows (0 if they are). 95 % intervals over
    combinations.

    ``rows`` should hold one crop of each frame: siblings would hide the differences between images.
    """
    tiles = decoder.tile_scores(pool.take(rows))
    counts = np.array([count for count in COUNTS if count <= tiles.shape[1]])
    part = pool.manifest.iloc[rows]
    scatter, freedom = rate(tiles, part["combination"], counts, seed=seed)
    draws = np.random.default_rng(seed).integers(len(scatter), size=(n, len(scatter)))
    whole = np.arange(len(scatter))[None]
    lines = []
    sizes = {"n_images": len(part), "n_frames": len(part[["combination", "frame"]].drop_duplicates()),
             "n_combinations": len(scatter)}  # fmt: skip
    for column, function in (("exponent", _exponent), ("floor_share", _floor_share)):
        value, resampled = (
            function(scatter[chosen].sum(axis=1) / freedom[chosen].sum(axis=1)[:, None], counts)
            for chosen in (whole, draws)
        )
        low, high = np.percentile(resampled, [2.5, 97.5])
        lines.append({"row": name, "column": column, "value": value[0], "low": low, "high": high, **sizes})
    return report.table(lines, table="4 score variance", evidence=pool.evidence, **run)


def _exponent(variance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.polyfit(np.log(counts), np.log(variance).T, 1)[0]


def _floor_share(variance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    slope, floor = np.polyfit(1 / counts, variance.T, 1)
    return floor / (floor + slope / counts[-1])


def simplex(trained: SimplexUnmix, untrained: SimplexUnmix, pool: Pool, rows: np.ndarray, **run: Any) -> pd.DataFrame:
    """Return the tidy table "4 simplex": the zeros of SimplexUnmix and what training changes, row "SimplexUnmix".

    Columns: ``zero_absent`` and ``zero_present``, the share of tiles in which a species outside (in) the label has a
    weight of exactly 0; ``image_zero_absent``, the share of (image, absent species) with weight 0 in every tile;
    ``residual_fall``, the share by which training shortened what the prototypes leave unexplained of a tile.
    """
    zero = trained.tile_scores(pool.take(rows)) == 0
    absent = pool.Y[rows] == 0
    everywhere = np.broadcast_to(absent[:, None], zero.shape)
    before, after = (decoder.residual(pool.take(rows)).mean() for decoder in (untrained, trained))
    found = {
        "zero_absent": zero[everywhere].mean(),
        "zero_present": zero[~everywhere].mean(),
        "image_zero_absent": zero.all(axis=1)[absent].mean(),
        "residual_fall": 1 - after / before,
    }
    part = pool.manifest.iloc[rows]
    sizes = {"n_images": len(part), "n_frames": len(part[["combination", "frame"]].drop_duplicates()),
             "n_combinations": part["combination"].nunique(), "updates": int(trained.updates_)}  # fmt: skip
    lines = [{"row": "SimplexUnmix", "column": column, "value": value, **sizes} for column, value in found.items()]
    return report.table(lines, table="4 simplex", evidence=pool.evidence, **run)
