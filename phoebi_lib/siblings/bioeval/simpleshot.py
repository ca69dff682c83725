"""PlantDoc and the species sets: a few labelled images per class, nearest centroid after centring (SimpleShot)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from phoebi_lib.decoders.checks import check_number
from phoebi_lib.siblings.bioeval.protocol import splits, summary
from phoebi_lib.siblings.embedding import features_of
from phoebi_lib.siblings.vectors import centred, class_means, nearest, unit

#: Draws of the published few-shot protocol.
FOLDS = 5


def simpleshot(support: ArrayLike, classes: ArrayLike, query: ArrayLike) -> np.ndarray:
    """Return the predicted class of each query: the nearest class centroid after centring on the support mean ("CL2N").

    Everything is of unit norm before and after centring; a vector that centring makes zero stays zero; centroids are
    not normed again. Ties, up to rounding, go to the class that sorts first.

    Args:
        support: (S, D) features, raw or of unit norm.
        classes: (S,) their classes.
        query: (Q, D).

    Raises:
        ValueError: shapes that do not fit, classes of kinds that do not sort, fewer than two classes, or support
            features that are all alike.
    """
    support, query, classes = unit(support), unit(query), np.asarray(classes)
    if classes.shape != support.shape[:1] or query.shape[1] != support.shape[1]:
        raise ValueError(f"SimpleShot: support {support.shape}, classes {classes.shape} and query {query.shape} do not "
                         "fit together; expected (S, D), (S,) and (Q, D)")  # fmt: skip
    try:
        names, codes = np.unique(classes, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"SimpleShot: classes {list(classes[:3])}, ...; expected texts or numbers alone") from error
    if len(names) < 2 or np.ptp(support, axis=0).max() < 1e-12:
        raise ValueError(f"SimpleShot: {len(names)} classes in the support, or features that are all alike; "
                         "expected two classes and two different vectors at least")  # fmt: skip
    mean = support.mean(axis=0)
    centroids = class_means(centred(support, mean), codes, len(names))
    return names[nearest(centred(query, mean), centroids)[0]]


def draw(classes: Sequence, k: int, seed: int) -> np.ndarray:
    """Return which rows are support, (N,) bool: the first ``k`` of each class after a shuffle, or all."""
    rng, classes = np.random.default_rng(seed), np.asarray(classes)
    support = np.zeros(len(classes), bool)
    for name in np.unique(classes):
        support[rng.permutation(np.flatnonzero(classes == name))[:k]] = True
    return support


def plantdoc(table: pd.DataFrame, features: pd.DataFrame, *, repeats: int = 5, seed: int = 0) -> pd.DataFrame:
    """Return PlantDoc's accuracy, 0..1, on the whole test folder over ``repeats`` draws of one image per class.

    Variant ``paper`` has test labels by name, ``reference_code`` with its shift of classes. Table from
    :func:`~phoebi_lib.siblings.bioeval.layout.plantdoc`, features raw and indexed by path.

    Raises:
        ValueError: no test image, fewer than two classes, or features missing, given twice or not finite.
    """
    (train, X), (test, Z) = splits(table, features, "PlantDoc")
    check_number("PlantDoc", "repeats", repeats, 1, integer=True)
    records = []
    for run in range(seed, seed + repeats):
        support = draw(train["label"], 1, run)
        predicted = simpleshot(X[support], train["label"][support], Z)
        for variant, column in (("paper", "label"), ("reference_code", "label_reference_code")):
            records.append((variant, "accuracy, 1-shot", (predicted == test[column]).mean(), len(test)))
    return summary("PlantDoc", records)


def few_shot(table: pd.DataFrame, features: pd.DataFrame, *, shots: Sequence[int] = (1, 5), seed: int = 0,
             leave_out: bool = False) -> pd.DataFrame:  # fmt: skip
    """Return the accuracy, 0..1, of species by ``k`` images a class for each ``k`` of ``shots``; all others are tested.

    A class with fewer than ``k`` images is an error, as published; or with ``leave_out`` it is left out, and the line
    is ``ours`` and its metric counts the classes that are missing.

    Raises:
        ValueError: a class with fewer than ``k`` images (named), no image left to test, or unusable features.
    """
    every, counts, records = features_of(features, table["path"], "few-shot"), table["class"].value_counts(), []
    for k in shots:
        check_number("few-shot", "shots", k, 1, integer=True)
        small = counts[counts < k]
        if small.size and not leave_out:
            raise ValueError(f"few-shot: class {small.index[0]!r} has {small.iloc[0]} images, {k}-shot needs {k}; "
                             "leave the class out or take fewer shots")  # fmt: skip
        if counts.max() <= k:
            raise ValueError(f"few-shot: no image is left to test after {k} of each class")
        kept = ~table["class"].isin(small.index)
        X, classes = every[kept], table["class"][kept].to_numpy(str)
        variant, note = ("ours", f", {small.size} of {counts.size} classes left out") if small.size else ("paper", "")
        for fold in range(seed, seed + FOLDS):
            support = draw(classes, k, fold)
            right = simpleshot(X[support], classes[support], X[~support]) == classes[~support]
            records.append((variant, f"accuracy, {k}-shot{note}", right.mean(), right.size))
    return summary("species few-shot", records)
