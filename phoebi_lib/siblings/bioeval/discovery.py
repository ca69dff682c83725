"""Herbarium19: new species found by semi-supervised k-means, scored by the best matching of clusters and classes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix
from sklearn.preprocessing import normalize

from phoebi_lib.siblings.bioeval.geometry import nearest
from phoebi_lib.siblings.bioeval.results import result
from phoebi_lib.siblings.embedding import features_of


def matched(truth: ArrayLike, clusters: ArrayLike) -> np.ndarray:
    """Return whether each image (N,) is right under the one-to-one map of clusters to classes that makes most right.

    The mean is the clustering accuracy of generalised category discovery; clusters without a class are wrong.

    Raises:
        ValueError: no image, or another number of clusters than of truths.
    """
    truth, clusters = np.asarray(truth), np.asarray(clusters)
    if truth.ndim != 1 or truth.shape != clusters.shape or not truth.size:
        raise ValueError(f"expected one class and one cluster per image, got {truth.shape} and {clusters.shape}")
    classes, groups = np.unique(truth), np.unique(clusters)
    rows, columns = linear_sum_assignment(contingency_matrix(truth, clusters), maximize=True)
    class_of = dict(zip(groups[columns].tolist(), classes[rows].tolist(), strict=True))
    return np.array([class_of.get(group) for group in clusters.tolist()], dtype=object) == truth


def labelled_rows(old: ArrayLike, share: float = 0.8) -> np.ndarray:
    """Return which images are labelled, (N,) bool: floor(share * n) of the n Old ones (``old``: (N,) bool).

    BioCLIP 2 labels 0.8, the original recipe of category discovery 0.5. The draw is numpy's legacy one with seed 0,
    whatever the seed of the clustering. Raises ValueError for a share outside 0..1 or one that labels no image.
    """
    candidates = np.flatnonzero(np.asarray(old))
    n = int(share * len(candidates))
    if not 0 < share <= 1 or not n:
        raise ValueError(f"share {share!r} of {len(candidates)} Old images labels none; expected above 0, to 1")
    labelled = np.zeros(len(np.asarray(old)), bool)
    labelled[np.random.RandomState(0).choice(candidates, n, replace=False)] = True
    return labelled


def semi_supervised_kmeans(
    labelled: np.ndarray, classes: ArrayLike, unlabelled: np.ndarray, k: int, *, iterations: int = 10,
    tolerance: float = 1e-4, seed: int = 0, block: int = 4096,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """Return the cluster of each unlabelled row, 0..k-1, and the inertia of that clustering.

    The first centres are the means of the labelled classes in sorted order, the others come from the unlabelled rows by
    k-means++. Labelled rows stay in the cluster of their class. Of at most ``iterations`` labellings the one with the
    lowest inertia is kept. An empty cluster keeps its centre; the published code makes it NaN.

    Args:
        labelled, unlabelled: (L, D) and (U, D), features of unit norm.
        classes: (L,).
        k: number of clusters, given.
        tolerance: of the squared sum of the centres' shifts; below it the iterations end.
        seed: of k-means++.
        block: rows whose distances are computed at a time.

    Raises:
        ValueError: no unlabelled row, ``k`` below the number of labelled classes, or no iteration.
    """
    if iterations < 1:
        raise ValueError(f"k-means: iterations = {iterations}; expected one at least")
    names, own = np.unique(np.asarray(classes), return_inverse=True)
    if k < len(names) or not len(unlabelled):
        raise ValueError(f"k = {k} clusters for {len(names)} labelled classes and {len(unlabelled)} unlabelled images; "
                         "expected at least as many clusters as classes, and an image to cluster")  # fmt: skip
    known = np.stack([labelled[own == i].mean(axis=0) for i in range(len(names))])
    centres = _plus_plus(known, unlabelled, k, np.random.default_rng(seed), block)
    best, best_inertia = np.empty(0, np.int64), np.inf
    for _ in range(iterations):
        assigned, squared = nearest(unlabelled, centres, block)
        inertia = float(squared.sum() + ((labelled - centres[own]) ** 2).sum())
        if inertia < best_inertia:
            best, best_inertia = assigned, inertia
        sums, counts = np.zeros_like(centres), np.bincount(np.concatenate([own, assigned]), minlength=k)[:, None]
        np.add.at(sums, own, labelled)
        np.add.at(sums, assigned, unlabelled)
        moved = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
        shift, centres = np.linalg.norm(moved - centres, axis=1).sum(), moved
        if shift**2 < tolerance:
            break
    return best, best_inertia


def _plus_plus(centres: np.ndarray, X: np.ndarray, k: int, rng: np.random.Generator, block: int) -> np.ndarray:
    """Add rows of ``X`` as centres up to ``k``, each drawn by its squared distance to the nearest centre so far."""
    distance = nearest(X, centres, block)[1]
    for _ in range(k - len(centres)):
        total = distance.sum()
        row = X[rng.choice(len(X), p=distance / total if total > 0 else None)]
        centres = np.vstack([centres, row])
        distance = np.minimum(distance, nearest(X, row[None], block)[1])
    return centres


def herbarium19(table: pd.DataFrame, features: pd.DataFrame, *, share: float = 0.8, runs: int = 3, seed: int = 0,
                iterations: int = 10) -> pd.DataFrame:  # fmt: skip
    """Return Herbarium19's accuracy, 0..1, on unlabelled images: all (pooled), Old and New, by two ways of matching.

    ``split`` matches clusters separately for images of Old and of New species, as the published code does, so one
    cluster may serve twice; ``joint`` matches once over all of them. A part without an unlabelled image gives NaN.

    Args:
        table: from :func:`~phoebi_lib.siblings.bioeval.folders.herbarium19`.
        features: raw, indexed by path.
        share: of the Old images that are labelled.
        runs: clusterings with seeds from ``seed`` on.
        iterations: of k-means, at most.

    Raises:
        ValueError: as :func:`labelled_rows` and :func:`semi_supervised_kmeans`, or unusable features.
    """
    X = normalize(features_of(features, table["path"].tolist(), "Herbarium19"))
    truth, old = table["position"].to_numpy(), table["old"].to_numpy(bool)
    known = labelled_rows(old, share)
    true, parts = truth[~known], {"Old": old[~known], "New": ~old[~known]}
    right: dict[str, list[np.ndarray]] = {"split": [], "joint": []}
    for run in range(seed, seed + runs):
        clusters, _ = semi_supervised_kmeans(X[known], truth[known], X[~known], len(np.unique(truth)),
                                             iterations=iterations, seed=run)  # fmt: skip
        right["joint"].append(matched(true, clusters))
        separate = np.zeros(len(true), bool)
        for part in parts.values():
            if part.any():
                separate[part] = matched(true[part], clusters[part])
        right["split"].append(separate)
    parts = {"all": np.ones(len(true), bool), **parts}
    return pd.DataFrame([
        result("Herbarium19", variant, f"accuracy, {name}",
               [run[part].mean() if part.any() else np.nan for run in images], part.sum(), labelled_share=share)
        for variant, images in right.items() for name, part in parts.items()
    ])  # fmt: skip
