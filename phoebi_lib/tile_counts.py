"""What the number of tiles buys: the F1 curve of Figure 6 (right) and the variance of image scores (Section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from phoebi_lib.compat import choice
from phoebi_lib.metrics import macro_f1, per_sample_f1
from phoebi_lib.splits import partition as split

if TYPE_CHECKING:
    from phoebi_lib.decoders import Decoder
    from phoebi_lib.features import Pool

COUNTS = (1, 4, 8, 16)
CLOSED_FORM, TRAINED = "closed form", "trained prototypes"


def tile_count_sweep(
    pool: Pool,
    seed: int = 0,
    counts: Sequence[int] = COUNTS,
    *,
    partition: str = "random",
    compat: str = "corrected",
    training_seed: int = 1337,
    device: str = "cpu",
) -> pd.DataFrame:
    """Return test F1 against the number of tiles per image: columns ``method, tiles, f1, macro_f1, constant_f1,
    n_images, partition, compat, seed``.

    Decoders are trained once, on all tiles (SimplexUnmix with its ablation recipe). For each count in ascending order
    that many tiles of each image are drawn without replacement, validation images first, then test images, from one
    generator seeded ``seed``; thresholds are chosen again on validation. Counts above the pool's tiles are left out.

    ``ProtoMatch`` scores against closed-form prototypes, or under ``compat="reference"`` against SimplexUnmix's trained
    ones, as published; the other variant is shown under its own name.
    """
    from phoebi_lib.decoders import ChannelGroup, ProtoMatch, SimplexUnmix

    n_tiles = pool.raw.shape[1]
    counts = _check_counts(counts, n_tiles)
    parts = split(pool.manifest, partition, grouping=choice("lco_grouping", compat), codes=pool.codes)
    all_labels = pool.Y
    labels = {part: all_labels[rows] for part, rows in parts.items()}
    train = pool.take(parts["train"])
    simplex = SimplexUnmix(recipe="ablation", random_state=training_seed, device=device).fit(train, labels["train"])
    closed = ProtoMatch().fit(train, labels["train"])
    trained = ProtoMatch().fit(train, labels["train"])
    trained.prototypes_ = simplex.prototypes_
    aggregation = choice("channel_group_aggregation", compat)
    heads = ChannelGroup(aggregation=aggregation, random_state=training_seed, device=device).fit(train, labels["train"])
    del train
    if choice("sweep_prototypes", compat) == CLOSED_FORM:
        first, second, name = closed, trained, f"ProtoMatch ({TRAINED})"
    else:
        first, second, name = trained, closed, f"ProtoMatch ({CLOSED_FORM})"
    decoders = {"SimplexUnmix": simplex, "ProtoMatch": first, "ChannelGroup": heads, name: second}
    tiles = {
        part: {key: decoder.tile_scores(X) for key, decoder in decoders.items()}
        for part, X in ((part, pool.take(parts[part])) for part in ("val", "test"))
    }
    constant = float(per_sample_f1(labels["test"], np.ones_like(labels["test"])))
    rng = np.random.default_rng(seed)
    lines = []
    for count in counts:
        chosen = {part: _draw(rng, len(parts[part]), n_tiles, count) for part in ("val", "test")}
        for key, decoder in decoders.items():
            scores = {p: decoder.aggregate(np.take_along_axis(tiles[p][key], chosen[p], axis=1)) for p in chosen}
            decoder.calibrate_scores(scores["val"], labels["val"])
            predicted = decoder.predict_scores(scores["test"])
            lines.append(
                {
                    "method": key,
                    "tiles": count,
                    "f1": float(per_sample_f1(labels["test"], predicted)),
                    "macro_f1": float(macro_f1(labels["test"], predicted)),
                }
            )
    run = {"constant_f1": constant, "n_images": len(parts["test"])}
    return pd.DataFrame(lines).assign(**run, partition=partition, compat=compat, seed=seed)


def fit_tile_curve(sweep: pd.DataFrame) -> pd.DataFrame:
    """Return per method the least-squares fit of ``f1 = a - c / sqrt(tiles)``: columns ``method, a, c, rmse``.

    The form follows from scores whose variance falls as 1 / T. Needs two different tile counts per method; two counts
    fit exactly, so ``rmse`` says something from three on.
    """
    lines = []
    for method, points in sweep.groupby("method", sort=False):
        tiles = points["tiles"].to_numpy(dtype=float)
        (a, c), rmse = _least_squares(-1.0 / np.sqrt(tiles), points["f1"].to_numpy(dtype=float), str(method))
        lines.append({"method": method, "a": a, "c": c, "rmse": rmse})
    return pd.DataFrame(lines)


def score_variance(
    decoder: Decoder,
    X: np.ndarray,
    combinations: Sequence[str],
    codes: Sequence[str],
    *,
    counts: Sequence[int] = COUNTS,
    draws: int = 32,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the variance of mean tile scores against the number of tiles: columns ``source, code, tiles, variance``.

    ``source`` is one of two questions. ``"tiles of one image"``: tiles drawn with replacement from one image, variance
    over ``draws`` draws, averaged over images; it falls as 1 / T by construction and shows the rate. ``"images of one
    combination"``: the same number of tiles drawn without replacement from every image, variance over the images of a
    combination (ddof 1), pooled over combinations and averaged over draws; were tiles independent given the
    combination, it would fall as 1 / T too, and what remains at large T is what the tiles of one image share.

    For ChannelGroup the tile scores are logits. Combinations with one image have no variance and are left out of the
    second source. Raises ``ValueError`` for counts outside 1..T or where no combination has two images.
    """
    tiles = decoder.tile_scores(X)
    counts = _check_counts(counts, tiles.shape[1])
    names, group, size = np.unique(np.asarray(combinations), return_inverse=True, return_counts=True)
    if len(group) != len(tiles) or (size < 2).all():
        raise ValueError("combinations must name one combination per image, at least one of them with two images")
    rng = np.random.default_rng(seed)
    lines = []
    for count in counts:
        means = np.empty((draws, len(tiles), tiles.shape[2]))
        between = np.zeros(tiles.shape[2])
        for draw in range(draws):
            index = rng.integers(0, tiles.shape[1], size=(len(tiles), count, 1))
            means[draw] = np.take_along_axis(tiles, index, axis=1).mean(axis=1)
            apart = np.take_along_axis(tiles, _draw(rng, *tiles.shape[:2], count), axis=1).mean(axis=1)
            centre = np.stack([apart[group == g].mean(axis=0) for g in range(len(names))])
            between += ((apart - centre[group]) ** 2).sum(axis=0) / (size - 1).sum() / draws
        within = means.var(axis=0, ddof=1).mean(axis=0)
        for source, values in (("tiles of one image", within), ("images of one combination", between)):
            for code, value in zip(codes, values, strict=True):
                lines.append({"source": source, "code": code, "tiles": count, "variance": value})
    return pd.DataFrame(lines)


def fit_variance(variances: pd.DataFrame) -> pd.DataFrame:
    """Return per source and code the least-squares fit of ``variance = floor + slope / tiles``, and its ``rmse``."""
    lines = []
    for (source, code), points in variances.groupby(["source", "code"], sort=False):
        tiles = points["tiles"].to_numpy(dtype=float)
        values = points["variance"].to_numpy(dtype=float)
        (floor, slope), rmse = _least_squares(1.0 / tiles, values, f"{source}, {code}")
        lines.append({"source": source, "code": code, "floor": floor, "slope": slope, "rmse": rmse})
    return pd.DataFrame(lines)


def _least_squares(x: np.ndarray, y: np.ndarray, what: str) -> tuple[np.ndarray, float]:
    if len(np.unique(x)) < 2:
        raise ValueError(f"{what}: a curve of two parameters needs at least two different tile counts")
    design = np.column_stack([np.ones_like(x), x])
    solution = np.linalg.lstsq(design, y, rcond=None)[0]
    return solution, float(np.sqrt(np.mean((design @ solution - y) ** 2)))


def _check_counts(counts: Sequence[int], n_tiles: int) -> list[int]:
    kept = sorted({int(count) for count in counts if count <= n_tiles})
    if not kept or kept[0] < 1:
        raise ValueError(f"tile counts must be between 1 and the {n_tiles} tiles per image; found {list(counts)}")
    return kept


def _draw(rng: np.random.Generator, n_images: int, n_tiles: int, count: int) -> np.ndarray:
    """Return (n_images, count, 1) tile positions, drawn without replacement image by image."""
    return np.stack([rng.choice(n_tiles, size=count, replace=False) for _ in range(n_images)])[:, :, None]
