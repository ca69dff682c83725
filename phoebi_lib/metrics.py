"""The paper's metrics on labels ``(N, K)`` 0/1, predictions ``(N, K)`` 0/1 and scores (Section 5, Appendix D).

Nothing here knows a threshold: it is applied before (score strictly above threshold = present), in float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, roc_curve


def sample_f1(y_true: ArrayLike, y_pred: ArrayLike) -> np.ndarray:
    """Return the F1 of each image ``(N,)``: ``2 TP / (2 TP + FP + FN)`` over its K species.

    An image whose label and prediction are both empty scores 1: nothing was missed and nothing invented.

    Raises:
        ValueError: shapes differ, not ``(N, K)``, no image, or a value other than 0 and 1.
    """
    true, pred = _labels(y_true, y_pred)
    hits, total = (true & pred).sum(axis=1), true.sum(axis=1) + pred.sum(axis=1)
    return np.where(total == 0, 1.0, 2 * hits / np.maximum(total, 1))


def per_sample_f1(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the mean over images of :func:`sample_f1`; 0..1. Raises as that function."""
    return float(sample_f1(y_true, y_pred).mean())


def per_class_f1(y_true: ArrayLike, y_pred: ArrayLike) -> np.ndarray:
    """Return the F1 of each species over all images, ``(K,)``; 0 where a species is neither present nor predicted.

    Raises:
        ValueError: as :func:`sample_f1`.
    """
    true, pred = _labels(y_true, y_pred)
    hits, total = (true & pred).sum(axis=0), true.sum(axis=0) + pred.sum(axis=0)
    return 2 * hits / np.maximum(total, 1)


def macro_f1(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the unweighted mean over the K species of :func:`per_class_f1`; 0..1. Raises as that function."""
    return float(per_class_f1(y_true, y_pred).mean())


def exact_match(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the share of images with all K species right; 0..1.

    Raises:
        ValueError: as :func:`sample_f1`.
    """
    true, pred = _labels(y_true, y_pred)
    return float((true == pred).all(axis=1).mean())


def per_class_auroc(y_true: ArrayLike, score: ArrayLike) -> np.ndarray:
    """Return the AUROC of each column, ``(K,)``; NaN where a column holds only one class.

    Args:
        y_true: ``(N, K)`` 0/1.
        score: ``(N, K)``, higher = more likely present; finite.

    Raises:
        ValueError: shapes differ, not 2-D, no row, a label other than 0 and 1, or a score that is not finite.
    """
    true, scores = _scored(y_true, score)
    if true.ndim != 2:
        raise ValueError(f"y_true must have shape (N, K), got {true.shape}")
    return np.array([_mann_whitney(true[:, k], scores[:, k]) for k in range(true.shape[1])])


def auroc(y_true: ArrayLike, score: ArrayLike) -> float:
    """Return the area under the ROC curve: the chance that a positive scores above a negative, ties counting half.

    ``(N,)`` input gives that of one class, NaN if only one class occurs. ``(N, K)`` input gives the mean over the
    columns in which both occur (the paper's mean AUROC), NaN if there is none.

    Raises:
        ValueError: as :func:`per_class_auroc`.
    """
    true, scores = _scored(y_true, score)
    if true.ndim == 1:
        return _mann_whitney(true, scores)
    each = per_class_auroc(true, scores)
    return float(each[~np.isnan(each)].mean()) if not np.isnan(each).all() else float("nan")


def aupr(y_true: ArrayLike, score: ArrayLike) -> float:
    """Return the average precision ``sum (R_i - R_{i-1}) P_i`` of one class (no interpolation); NaN without positives.

    Args:
        y_true: ``(N,)`` 0/1.
        score: ``(N,)``, finite.

    Raises:
        ValueError: as :func:`per_class_auroc`, and for 2-D input.
    """
    true, scores = _one_class(y_true, score)
    return float(average_precision_score(true, scores)) if true.any() else float("nan")


def fpr_at_tpr(y_true: ArrayLike, score: ArrayLike, tpr: float = 0.95) -> float:
    """Return the false-positive rate at the first point of the ROC curve whose true-positive rate reaches ``tpr``.

    Every distinct score is a point of the curve. NaN if only one class occurs.

    Args:
        y_true: ``(N,)`` 0/1; 1 = unknown in the open-world tables.
        score: ``(N,)``, finite.
        tpr: the rate to reach, 0 < tpr <= 1.

    Raises:
        ValueError: as :func:`aupr`, or ``tpr`` outside its range.
    """
    true, scores = _one_class(y_true, score)
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr must lie in (0, 1], got {tpr!r}")
    if true.all() or not true.any():
        return float("nan")
    false_rate, true_rate, _ = roc_curve(true, scores, drop_intermediate=False)
    return float(false_rate[np.argmax(true_rate >= tpr)])


def cluster_scores(y_true: ArrayLike, y_pred: ArrayLike) -> dict[str, float]:
    """Return how well proposed prototypes collect an undiscovered species (Table 10).

    Only images that hold the species count. ``recall``: share of them assigned to a proposed prototype; ``purity``:
    share of those on the most frequent one (NaN if there are none); ``accuracy``: their product (0 if recall is 0).

    Args:
        y_true: ``(N,)`` 0/1, whether the image holds the undiscovered species.
        y_pred: ``(N,)`` integers, index of the proposed prototype that won, or -1 where a known species won.

    Returns:
        The three numbers, all NaN if no image holds the species.

    Raises:
        ValueError: shapes differ, not 1-D, or values outside those ranges.
    """
    true, assigned = np.asarray(y_true), np.asarray(y_pred)
    if true.ndim != 1 or true.shape != assigned.shape:
        raise ValueError(f"y_true and y_pred must both have shape (N,), got {true.shape} and {assigned.shape}")
    _check_binary("y_true", true)
    if assigned.dtype.kind not in "iu" or (assigned < -1).any():
        raise ValueError("y_pred must hold integers: the index of a proposed prototype, or -1 for a known species")
    assigned = assigned[true.astype(bool)]
    if not assigned.size:
        return {"recall": float("nan"), "purity": float("nan"), "accuracy": float("nan")}
    found = assigned[assigned >= 0]
    if not found.size:
        return {"recall": 0.0, "purity": float("nan"), "accuracy": 0.0}
    recall = found.size / assigned.size
    purity = np.unique(found, return_counts=True)[1].max() / found.size
    return {"recall": float(recall), "purity": float(purity), "accuracy": float(recall * purity)}


def cluster_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return ``recall x purity`` of :func:`cluster_scores`; 0..1, NaN if no image holds the species."""
    return cluster_scores(y_true, y_pred)["accuracy"]


def _mann_whitney(true: np.ndarray, scores: np.ndarray) -> float:
    positive = int(true.sum())
    negative = true.size - positive
    if not positive or not negative:
        return float("nan")
    rank_sum = rankdata(scores, method="average")[true.astype(bool)].sum()
    return float((rank_sum - positive * (positive + 1) / 2) / (positive * negative))


def _labels(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    true, pred = np.asarray(y_true), np.asarray(y_pred)
    if true.ndim != 2 or true.shape != pred.shape:
        raise ValueError(f"y_true and y_pred must both have shape (N, K), got {true.shape} and {pred.shape}")
    if not true.size:
        raise ValueError(f"a metric needs at least one image and one species, got shape {true.shape}")
    for name, values in (("y_true", true), ("y_pred", pred)):
        _check_binary(name, values)
    return true.astype(bool), pred.astype(bool)


def _scored(y_true: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    true, scores = np.asarray(y_true), np.asarray(score)
    if true.ndim not in (1, 2) or true.shape != scores.shape:
        raise ValueError(f"y_true and score must have one shape, (N,) or (N, K); got {true.shape} and {scores.shape}")
    if not true.size:
        raise ValueError(f"a metric needs at least one image, got shape {true.shape}")
    _check_binary("y_true", true)
    if scores.dtype.kind not in "fiub" or not np.isfinite(scores).all():
        raise ValueError("score must hold finite numbers; it holds NaN, infinity or something else")
    return true.astype(bool), scores.astype(np.float64)


def _one_class(y_true: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    true, scores = _scored(y_true, score)
    if true.ndim != 1:
        raise ValueError(f"expected one class, shape (N,); got {true.shape}. Pass one column at a time")
    return true, scores


def _check_binary(name: str, values: np.ndarray) -> None:
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise ValueError(f"{name} must hold only 0 and 1; pass thresholded predictions, not scores")
