"""The 36 open-set variants of Appendix D.2: unit x score x aggregation, ranked by an inner leave-one-out loop.

For every left-out species each remaining species in turn plays the unknown one on validation images that do not hold
the left-out one; prototypes and bank come from training images that hold neither. The mean AUROC over these 30 pairs
ranks the variants without a look at the test images.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations as subsets

import numpy as np
import pandas as pd

from phoebi_lib.openworld.harness import TAU, K, pure_prototypes, without
from phoebi_lib.openworld.neighbours import TILES_AT_A_TIME, Banks, knn_distance
from phoebi_lib.openworld.scores import AGGREGATIONS, tile_energy, tile_max_cosine, tile_residual
from phoebi_lib.pool import Pool
from phoebi_lib.progress import track

UNITS = ("tile", "patch")
VARIANT_SCORES = ("residual", "max cosine", "energy 0.1", "k-NN", "residual / class", "k-NN / class")
_FLOOR = 1e-6

Tiles = dict[str, np.ndarray]


def variant_rows(
    unit: str,
    train: tuple[Pool, np.ndarray],
    val: tuple[Pool, np.ndarray],
    test: tuple[Pool, np.ndarray],
    *,
    k: int = K,
    cap: int | None = None,
    device: str = "cpu",
) -> pd.DataFrame:
    """Score validation images for every (left-out, inner unknown) pair and test images for every left-out species.

    Args:
        unit: what the axis T of the pools counts, "tile" or "patch"; a name for the rows.
        train, val, test: a pool and the row positions in it that are used; the pools may differ in T.
        k: which neighbour. cap: units in the bank at most. device: torch device of the neighbour search.

    Returns:
        One row per pair or species, variant and image: ``unit, score, aggregation, outer, inner`` (empty for test
        images), ``id, combination, frame, unknown, value``.

    Raises:
        ValueError: a species without a pure culture in the training part, or a bank of fewer than ``k`` units.
    """
    codes = train[0].codes
    prototypes = pure_prototypes(*train)
    banks = Banks(*train, k, device, cap)
    pairs = [frozenset(pair) for pair in subsets(codes, 2)]
    alone = [frozenset({code}) for code in codes]
    references = _references(val, [*pairs, *alone], prototypes, banks)
    inner = [(outer, unknown) for outer in codes for unknown in codes if unknown != outer]
    scored = _image_scores(val, pairs, prototypes, banks, references, f"{unit}, validation images")
    frames = [_table(val, scored[frozenset(pair)], *pair) for pair in inner]
    scored = _image_scores(
        test, [frozenset({code}) for code in codes], prototypes, banks, references, f"{unit}, test images"
    )
    frames += [_table(test, scored[frozenset({code})], code, "") for code in codes]
    return pd.concat(frames, ignore_index=True).assign(unit=unit)


def unit_scores(
    X: np.ndarray, nearest: Tiles, left_out: Iterable[str], prototypes: Tiles, kept: Sequence[str], k: int
) -> tuple[Tiles, np.ndarray]:
    """Return the scores of each unit without the species ``left_out``, and the nearest remaining prototype.

    ``{"residual", "max cosine", "energy 0.1", "k-NN"}`` of shape (N, T) each, and (N, T) positions among the remaining
    species; ``kept`` are the combinations of the bank.
    """
    P = np.stack([prototype for code, prototype in prototypes.items() if code not in left_out])
    scores = {
        "residual": tile_residual(X, P, TAU), "max cosine": tile_max_cosine(X, P),
        "energy 0.1": tile_energy(X, P, 0.1), "k-NN": knn_distance(nearest, kept, k),
    }  # fmt: skip
    return scores, (X @ P.T).argmax(axis=2)


def _references(
    val: tuple[Pool, np.ndarray], sets: Sequence[frozenset], prototypes: Tiles, banks: Banks
) -> dict[frozenset, dict[str, np.ndarray]]:
    """Return per set of left-out species and score the median over the units of each remaining pure culture.

    At least 1e-6, and 1 for a species without a pure culture in the validation part.
    """
    pool, rows = val
    labels = pool.Y[rows]
    found = {left_out: {"residual": [], "k-NN": []} for left_out in sets}
    for column, code in enumerate(pool.codes):
        pure = rows[(labels[:, column] == 1) & (labels.sum(axis=1) == 1)]
        X = pool.take(pure) if len(pure) else None
        nearest = {} if X is None else banks.nearest(X)
        for left_out in (left_out for left_out in sets if code not in left_out):
            scores = {}
            if X is not None:
                kept = without(banks.pool, list(banks.sizes), left_out)
                scores, _ = unit_scores(X, nearest, left_out, prototypes, kept, banks.k)
            for name, medians in found[left_out].items():
                medians.append(max(float(np.median(scores[name])), _FLOOR) if scores else 1.0)
    return {left_out: {name: np.array(m) for name, m in medians.items()} for left_out, medians in found.items()}


def _image_scores(
    part: tuple[Pool, np.ndarray],
    sets: Sequence[frozenset],
    prototypes: Tiles,
    banks: Banks,
    references: dict[frozenset, dict[str, np.ndarray]],
    desc: str,
) -> dict[frozenset, dict[tuple[str, str], np.ndarray]]:
    """Return per set of left-out species and (score, aggregation) the score of each image, (N,)."""
    pool, rows = part
    step = max(1, TILES_AT_A_TIME // pool.raw.shape[1])
    chunks: dict[frozenset, dict[tuple[str, str], list[np.ndarray]]] = {left_out: {} for left_out in sets}
    for start in track(range(0, len(rows), step), desc=desc):
        X = pool.take(rows[start : start + step])
        nearest = banks.nearest(X)
        for left_out in sets:
            kept = without(banks.pool, list(banks.sizes), left_out)
            scores, closest = unit_scores(X, nearest, left_out, prototypes, kept, banks.k)
            for name, medians in references[left_out].items():
                scores[f"{name} / class"] = scores[name] / medians[closest]
            for score in VARIANT_SCORES:
                for aggregation, aggregate in AGGREGATIONS.items():
                    chunks[left_out].setdefault((score, aggregation), []).append(aggregate(scores[score]))
    return {
        left_out: {variant: np.concatenate(pieces) for variant, pieces in variants.items()}
        for left_out, variants in chunks.items()
    }


def _table(
    part: tuple[Pool, np.ndarray], scores: dict[tuple[str, str], np.ndarray], outer: str, inner: str
) -> pd.DataFrame:
    """Return the rows of one pair; images with the left-out species serve only where it is the unknown one."""
    pool, rows = part
    labels = pd.DataFrame(pool.Y[rows], columns=list(pool.codes))
    used = np.ones(len(rows), dtype=bool) if not inner else (labels[outer] == 0).to_numpy()
    manifest = pool.manifest.iloc[rows[used]]
    common = pd.DataFrame({
        "outer": outer, "inner": inner, "id": manifest["path"].to_numpy(),
        "combination": manifest["combination"].to_numpy(), "frame": manifest["frame"].to_numpy(),
        "unknown": labels[inner or outer].to_numpy()[used],
    })  # fmt: skip
    return pd.concat([common.assign(score=score, aggregation=agg, value=v[used]) for (score, agg), v in scores.items()])
