"""Herbarium19: new species found by semi-supervised k-means, scored by the best matching of clusters and classes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from phoebi_lib.decoders.checks import check_number
from phoebi_lib.siblings.bioeval.protocol import summary
from phoebi_lib.siblings.embedding import features_of
from phoebi_lib.siblings.vectors import class_means, nearest, unit


def matched(truth: ArrayLike, clusters: ArrayLike) -> np.ndarray:
    """Return whether each image (N,) is right under the one-to-one map of clusters to classes that makes most right.

    The mean is the clustering accuracy of generalised category discovery; clusters without a class are wrong.

    Raises:
        ValueError: no image, or another number of clusters than of truths.
    """
    truth, clusters = np.asarray(truth), np.asarray(clusters)
    if truth.ndim != 1 or truth.shape != clusters.shape or not truth.size:
        raise ValueError(f"expected one class and one cluster per image, got {truth.shape} and {clusters.shape}")
    counts = pd.crosstab(truth, clusters)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    class_of = dict(zip(counts.columns[columns], counts.index[rows], strict=True))
    return pd.Series(clusters).map(class_of).to_numpy() == truth


def labelled_rows(old: ArrayLike, share: float = 0.8) -> np.ndarray:
    """Return which images are labelled, (N,) bool: floor(share * n) of the n Old ones (``old``: (N,) bool).

    BioCLIP 2 labels 0.8, the original recipe of category discovery 0.5. The draw is numpy's legacy one with seed 0,
    whatever the seed of the clustering. Raises ValueError for a share outside 0..1 or one that labels no image.
    """
    candidates = np.flatnonzero(old)
    n = int(share * len(candidates)) if 0 < share <= 1 else 0
    if not n:
        raise ValueError(f"share {share!r} of {len(candidates)} Old images labels none; expected above 0, to 1")
    labelled = np.zeros(len(old), bool)
    labelled[np.random.RandomState(0).choice(candidates, n, replace=False)] = True
    return labelled


def semi_supervised_kmeans(
    labelled: np.ndarray, classes: ArrayLike, unlabelled: np.ndarray, k: int, *, iterations: int = 10,
    tolerance: float = 1e-4, seed: int = 0,
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

    Raises:
        ValueError: no labelled or no unlabelled row, ``k`` below the number of labelled classes, or no iteration.
    """
    check_number("semi_supervised_kmeans", "iterations", iterations, 1, integer=True)
    names, own = np.unique(np.asarray(classes), return_inverse=True)
    if not 0 < len(names) <= k or not len(unlabelled):
        raise ValueError(f"k = {k} clusters for {len(names)} labelled classes and {len(unlabelled)} unlabelled images; "
                         "expected a class, at least as many clusters as classes, and an image to cluster")  # fmt: skip
    rng, centres = np.random.default_rng(seed), class_means(labelled, own, len(names))
    distance = nearest(unlabelled, centres)[1]
    for _ in range(k - len(names)):
        total = distance.sum()
        drawn = unlabelled[[rng.choice(len(unlabelled), p=distance / total if total > 0 else None)]]
        centres, distance = np.vstack([centres, drawn]), np.minimum(distance, nearest(unlabelled, drawn)[1])
    X = np.vstack([labelled, unlabelled])
    tries = []
    for _ in range(iterations):
        assigned, squared = nearest(unlabelled, centres)
        tries.append((float(squared.sum() + ((labelled - centres[own]) ** 2).sum()), assigned))
        groups = np.concatenate([own, assigned])
        filled = np.isin(np.arange(k), groups)[:, None]
        moved = np.where(filled, class_means(X, groups, k), centres)
        shift, centres = np.linalg.norm(moved - centres, axis=1).sum(), moved
        if shift**2 < tolerance:
            break
    inertia, clusters = min(tries, key=lambda one: one[0])
    return clusters, inertia


def herbarium19(table: pd.DataFrame, features: pd.DataFrame, *, share: float = 0.8, runs: int = 3,
                seed: int = 0) -> pd.DataFrame:  # fmt: skip
    """Return Herbarium19's accuracy, 0..1, on unlabelled images: all (pooled), Old and New, by two ways of matching.

    ``split`` matches clusters separately for images of Old and of New species, as the published code does, so one
    cluster may serve twice; ``joint`` matches once over all of them. A part without an unlabelled image gives NaN.

    Args:
        table: from :func:`~phoebi_lib.siblings.bioeval.layout.herbarium19`.
        features: raw, indexed by path.
        share: of the Old images that are labelled.
        runs: clusterings with seeds from ``seed`` on.

    Raises:
        ValueError: as :func:`labelled_rows` and :func:`semi_supervised_kmeans`, or unusable features.
    """
    X, known = unit(features_of(features, table["path"], "Herbarium19")), labelled_rows(table["old"], share)
    unlabelled, k = table[~known].reset_index(drop=True), table["position"].nunique()
    records = []
    for run in range(seed, seed + runs):
        clusters, _ = semi_supervised_kmeans(X[known], table["position"][known], X[~known], k, seed=run)
        split = pd.Series(False, unlabelled.index)
        for _, part in unlabelled.groupby("old"):
            split[part.index] = matched(part["position"], clusters[part.index])
        joint = pd.Series(matched(unlabelled["position"], clusters))
        for variant, right in (("split", split), ("joint", joint)):
            for name, part in (("all", right), ("Old", right[unlabelled["old"]]), ("New", right[~unlabelled["old"]])):
                records.append((variant, f"accuracy, {name}", part.mean(), part.size))
    return summary("Herbarium19", records, labelled_share=share)
