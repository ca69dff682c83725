"""Life stages or sexes within a species: can they be told apart (Diff), and do they stay one species (Align)?

The evaluation's card names these tasks, and no code, file list or formula for them is public. The paper's idea is that
variants of a species differ in directions orthogonal to those in which species differ. All of this is variant ``ours``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.siblings.bioeval.protocol import summary
from phoebi_lib.siblings.bioeval.simpleshot import simpleshot
from phoebi_lib.siblings.embedding import features_of
from phoebi_lib.siblings.vectors import unit

#: Images of each variant that a species needs for Diff.
ENOUGH = 10
_CLASSIFIERS = {
    "SimpleShot": simpleshot,
    "logistic regression": lambda X, y, query: LogisticRegression(max_iter=1000).fit(X, y).predict(query),
}


def diff(a: np.ndarray, b: np.ndarray, *, classifier: str = "SimpleShot", seed: int = 0) -> float:
    """Return the accuracy, 0..1, of telling the variants of one species apart in five stratified folds.

    Args:
        a, b: features of either variant, (N, D) and (M, D), of unit norm.
        classifier: SimpleShot or logistic regression.
        seed: of the folds.

    Raises ValueError for another classifier, and fewer than five images of a variant.
    """
    check_choice("diff", "classifier", classifier, tuple(_CLASSIFIERS))
    if min(len(a), len(b)) < 5:
        raise ValueError(f"diff: {len(a)} and {len(b)} images of the variants; expected five of each, one per fold")
    X, y = np.concatenate([a, b]), np.repeat([0, 1], [len(a), len(b)])
    told = np.empty_like(y)
    for fit, held in StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y):
        told[held] = _CLASSIFIERS[classifier](X[fit], y[fit], X[held])
    return float((told == y).mean())


def align(X: np.ndarray, species: np.ndarray, variants: np.ndarray) -> float:
    """Return the accuracy, 0..1, of naming the species of one variant by support of the other; mean of both ways."""
    first = variants == min(variants)
    ways = [simpleshot(X[fit], species[fit], X[~fit]) == species[~fit] for fit in (first, ~first)]
    return float(np.mean([way.mean() for way in ways]))


def fisher_ratio(a: np.ndarray, b: np.ndarray) -> float:
    """Return ``|mean a - mean b|^2 / (tr cov a + tr cov b)`` of (N, D) and (M, D); NaN without spread."""
    between, within = ((a.mean(axis=0) - b.mean(axis=0)) ** 2).sum(), a.var(axis=0).sum() + b.var(axis=0).sum()
    return float(between / within) if within > 0 else float("nan")


def orthogonality(means_a: np.ndarray, means_b: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the share of each species' variant difference that lies in the directions between species, and its chance.

    Those directions are the fewest principal ones that hold 90 % of the variance of the species' means (half from each
    variant, so that unequal numbers of images do not tilt them). Shares are 0..1, smaller = more orthogonal, NaN for a
    species whose variants do not differ; a random difference has r / D, directions by dimensions.

    Args:
        means_a, means_b: (S, D), the means of either variant, one row per species.

    Raises:
        ValueError: fewer than three species, or species whose means are all alike.
    """
    means, difference = (means_a + means_b) / 2, means_a - means_b
    if len(means) < 3 or np.ptp(means, axis=0).max() == 0:
        raise ValueError(f"orthogonality: {len(means)} species; expected three at least, with different means")
    _, scale, directions = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    r = int(np.searchsorted(np.cumsum(scale**2) / (scale**2).sum(), 0.9 - 1e-9)) + 1
    total = (difference**2).sum(axis=1)
    inside = ((difference @ directions[:r].T) ** 2).sum(axis=1)
    return np.where(total > 0, inside / np.where(total > 0, total, 1.0), np.nan), r / means.shape[1]


def intra_species(table: pd.DataFrame, features: pd.DataFrame, *, classifier: str = "SimpleShot",
                  seed: int = 0) -> pd.DataFrame:  # fmt: skip
    """Return Diff, Align, Fisher ratio and orthogonality (with its chance); means over species, ``runs`` = species.

    Args:
        table: from :func:`~phoebi_lib.siblings.bioeval.layout.intra_species`.
        features: raw, indexed by path; of unit norm here.
        classifier: of Diff; species with fewer than ten images of a variant are left out of Diff alone.

    Raises:
        ValueError: no species has ten images of each variant, fewer than three species, a species (named) whose images
            are all alike, or unusable features.
    """
    check_choice("intra-species", "classifier", classifier, tuple(_CLASSIFIERS))
    X = unit(features_of(features, table["path"], "intra-species"))
    species, variants = table["species"].to_numpy(str), table["variant"].to_numpy(str)
    first = variants == min(variants)
    pairs = {name: (X[first & (species == name)], X[~first & (species == name)]) for name in np.unique(species)}
    enough = {name: pair for name, pair in pairs.items() if min(map(len, pair)) >= ENOUGH}
    if not enough:
        raise ValueError(f"intra-species: no species has {ENOUGH} images of each variant")
    shares, chance = orthogonality(*(np.stack([pair[side].mean(axis=0) for pair in pairs.values()]) for side in (0, 1)))
    n, n_enough = len(X), sum(len(a) + len(b) for a, b in enough.values())
    records = []
    for name, pair in enough.items():
        try:
            told = diff(*pair, classifier=classifier, seed=seed)
        except ValueError as error:
            raise ValueError(f"intra-species, species {str(name)!r}: {error}") from error
        records.append((f"Diff, accuracy of {classifier}", told, n_enough))
    records += [("Align, accuracy", align(X, species, variants), n)]
    records += [("Fisher ratio", fisher_ratio(*pair), n) for pair in pairs.values()]
    records += [("share between species", share, n) for share in shares]
    records += [("share between species, chance", chance, n)]
    return summary("intra-species", [("ours", *record) for record in records])
