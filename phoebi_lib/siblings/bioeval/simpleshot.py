"""PlantDoc and the species sets: a few labelled images per class, nearest centroid after centring (SimpleShot)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.preprocessing import normalize

from phoebi_lib.siblings.bioeval.geometry import centred, nearest
from phoebi_lib.siblings.bioeval.results import result
from phoebi_lib.siblings.embedding import features_of


def simpleshot(support: np.ndarray, classes: ArrayLike, query: np.ndarray) -> np.ndarray:
    """Return the predicted class of each query: the nearest class centroid after centring on the support mean ("CL2N").

    Everything is of unit norm before and after centring; a vector that centring makes zero stays zero; centroids are
    not normed again. Ties, up to rounding, go to the class that sorts first.

    Args:
        support: (S, D) features, raw or of unit norm.
        classes: (S,) their classes.
        query: (Q, D).

    Raises:
        ValueError: fewer than two classes, or support features that are all alike.
    """
    names, codes = np.unique(np.asarray(classes), return_inverse=True)
    support, query = (normalize(np.asarray(part, np.float64)) for part in (support, query))
    if len(names) < 2 or np.ptp(support, axis=0).max() == 0:
        raise ValueError(f"SimpleShot: {len(names)} classes in the support, or features that are all alike; "
                         "expected two classes and two different vectors at least")  # fmt: skip
    mean = support.mean(axis=0)
    support, query = centred(support, mean), centred(query, mean)
    centroids = np.stack([support[codes == code].mean(axis=0) for code in range(len(names))])
    return names[nearest(query, centroids)[0]]


def draw(classes: Sequence, k: int, seed: int) -> np.ndarray:
    """Return which rows are support, (N,) bool: the first ``k`` of each class after a shuffle, or all."""
    rng, classes = np.random.default_rng(seed), np.asarray(classes)
    support = np.zeros(len(classes), bool)
    for name in np.unique(classes):
        support[rng.permutation(np.flatnonzero(classes == name))[:k]] = True
    return support


def plantdoc(table: pd.DataFrame, features: pd.DataFrame, *, k: int = 1, repeats: int = 5,
             seed: int = 0) -> pd.DataFrame:  # fmt: skip
    """Return PlantDoc's accuracy, 0..1, on the whole test folder over ``repeats`` draws of ``k`` images per class.

    Variant ``paper`` has test labels by name, ``reference_code`` with its shift of classes. Arguments as
    :func:`~phoebi_lib.siblings.bioeval.heads.fishnet`; table from ``folders.plantdoc``.

    Raises:
        ValueError: no test image, fewer than two classes, or features missing, given twice or not finite.
    """
    train, test = table[table["split"] == "train"], table[table["split"] == "test"]
    if test.empty:
        raise ValueError("PlantDoc: no test image; expected a folder per class in test/")
    X, Z = (features_of(features, part["path"].tolist(), "PlantDoc") for part in (train, test))
    right: dict[str, list[float]] = {"paper": [], "reference_code": []}
    for run in range(seed, seed + repeats):
        support = draw(train["label"], k, run)
        predicted = simpleshot(X[support], train["label"][support], Z)
        for variant, column in (("paper", "label"), ("reference_code", "label_reference_code")):
            right[variant].append((predicted == test[column]).mean())
    return pd.DataFrame([result("PlantDoc", variant, f"accuracy, {k}-shot", values, len(test))
                         for variant, values in right.items()])  # fmt: skip


def few_shot(table: pd.DataFrame, features: pd.DataFrame, *, shots: Sequence[int] = (1, 5), folds: int = 5,
             seed: int = 0, leave_out: bool = False) -> pd.DataFrame:  # fmt: skip
    """Return the accuracy, 0..1, of species by ``k`` images a class for each ``k`` of ``shots``; all others are tested.

    A class with fewer than ``k`` images is an error, as published; or with ``leave_out`` it is left out, and the line
    is ``ours`` and its metric counts the classes that are missing.

    Raises:
        ValueError: a class with fewer than ``k`` images (named), no image left to test, or unusable features.
    """
    X, lines = features_of(features, table["path"].tolist(), "few-shot"), []
    classes, counts = table["class"].to_numpy(str), table["class"].value_counts()
    for k in shots:
        small = counts[counts < k]
        if small.size and not leave_out:
            raise ValueError(f"few-shot: class {small.index[0]!r} has {small.iloc[0]} images, {k}-shot needs {k}; "
                             "leave the class out or take fewer shots")  # fmt: skip
        kept = ~np.isin(classes, small.index.to_numpy(str))
        if (n := kept.sum() - k * (counts.size - small.size)) == 0:
            raise ValueError(f"few-shot: no image is left to test after {k} of each class")
        X_kept, names, right = X[kept], classes[kept], []
        for fold in range(seed, seed + folds):
            support = draw(names, k, fold)
            right.append((simpleshot(X_kept[support], names[support], X_kept[~support]) == names[~support]).mean())
        variant, note = ("ours", f", {small.size} of {counts.size} classes left out") if small.size else ("paper", "")
        lines.append(result("species few-shot", variant, f"accuracy, {k}-shot{note}", right, n))
    return pd.DataFrame(lines)
