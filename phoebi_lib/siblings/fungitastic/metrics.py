"""FungiTastic's metrics of classes and of the open set (arXiv 2408.13632, Sections 3 and 4), all in 0..1.

``y`` and predictions are class ids 0..C-1, or -1 for unknown. A label that training never saw is an error of every
known answer; it is not dropped.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score, roc_curve

from phoebi_lib.siblings.fungitastic.layout import UNKNOWN


def top_k(scores: ArrayLike, y: ArrayLike, k: int) -> tuple[float, int]:
    """Return the share of images whose label is among the ``k`` highest scores, and the k that was used: at most C.

    Args:
        scores: (N, C), finite; among equal scores the lower class comes first.
        y: (N,) labels.

    Raises ValueError for no image, shapes that do not fit, scores that are not finite, labels that are not whole, or
    ``k`` below 1.
    """
    scores, y = np.asarray(scores), _whole(y)
    if scores.ndim != 2 or not scores.size or len(scores) != len(y) or not np.isfinite(scores).all():
        raise ValueError(f"top_k needs finite scores (N, C) and labels (N,), at least one: {scores.shape}, {y.shape}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    k = min(k, scores.shape[1])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return float((best == y[:, None]).any(axis=1).mean()), k


def macro_f1(y: ArrayLike, predicted: ArrayLike, n_classes: int, classes: str = "all") -> float:
    """Return the mean over classes of ``2 TP / (2 TP + FP + FN)``, 0 where that is undefined.

    Args:
        classes: "all": the classifier's C classes, as the paper's formula has it, so that test sets which lack classes
            cap it at their share of C; "present": classes that occur as label or answer, as the published fusion
            and metadata code has it.

    Raises ValueError for no image, different lengths, an answer outside -1..C-1, or unknown ``classes``.
    """
    y, predicted = _answers(y, predicted, n_classes)
    if classes not in ("all", "present"):
        raise ValueError(f"unknown classes {classes!r}; known: all, present")
    over = np.arange(n_classes) if classes == "all" else np.union1d(y, predicted)
    return float(f1_score(y, predicted, labels=over, average="macro", zero_division=0))


def fold_unknown(y: ArrayLike, train_labels: ArrayLike) -> np.ndarray:
    """Return labels with -1 for every class without a training image; that, not -1 alone, is what unknown means."""
    y, seen = _whole(y), np.unique(train_labels)
    return np.where(np.isin(y, seen[seen != UNKNOWN]), y, UNKNOWN)


def tnr95(known: ArrayLike, novel: ArrayLike, variant: str = "ours") -> float:
    """Return the share of novel images that are rejected where 95 % of known ones are accepted; higher score = known.

    ``ours``: the threshold is the largest that at least 95 % of known scores reach, and novel scores under it are
    rejected. ``reference_code``: the m lowest known scores go, m the smallest with (K - m) / K nearest to 0.95; novel
    scores under the m-th lowest are rejected. With fewer than ten known images that is always 0.

    Raises ValueError for no known or no novel score, a score that is not finite, or an unknown variant.
    """
    known, novel = _scores(known, novel)
    n = len(known)
    if variant == "ours":
        return float((novel < np.sort(known)[n - -(-19 * n // 20)]).mean())
    if variant != "reference_code":
        raise ValueError(f"unknown variant {variant!r}; known: ours, reference_code")
    m = int(np.abs(n - 20 * np.arange(n + 1)).argmin())
    return float((novel < np.sort(known)[m - 1]).mean()) if m else 0.0


def open_set(known: ArrayLike, novel: ArrayLike) -> dict[str, float]:
    """Return the metrics of a score that is higher for known images; known is the positive class.

    ``auc`` (ties count half), ``tnr95`` and ``tnr95_reference_code`` (:func:`tnr95`), ``detection_accuracy`` (largest
    mean of the shares of known accepted and novel rejected), ``auin`` and ``auout`` (average precision with known, and
    with novel, as positives).

    Raises ValueError as :func:`tnr95`.
    """
    known, novel = _scores(known, novel)
    positive, score = np.repeat([1, 0], [len(known), len(novel)]), np.concatenate([known, novel])
    false_rate, true_rate, _ = roc_curve(positive, score)
    return {
        "auc": float(roc_auc_score(positive, score)),
        "tnr95": tnr95(known, novel),
        "tnr95_reference_code": tnr95(known, novel, "reference_code"),
        "detection_accuracy": float((true_rate + 1 - false_rate).max() / 2),
        "auin": float(average_precision_score(positive, score)),
        "auout": float(average_precision_score(1 - positive, -score)),
    }


def choose_threshold(scores: ArrayLike, y: ArrayLike) -> float:
    """Return the threshold under which images are called unknown that gives the unknown class its highest F1.

    The paper has no rule for it; this is ours, for the open validation set. The smallest of equally good ones is taken:
    a score of ``scores``, or infinity for calling everything unknown.

    Raises ValueError without known or without unknown labels, or for scores that are not finite.
    """
    scores, novel = np.asarray(scores, dtype=np.float64), _whole(y) == UNKNOWN
    _scores(scores[~novel], scores[novel])
    thresholds, group = np.unique(scores, return_inverse=True)
    rejected = np.concatenate([[0], np.bincount(group).cumsum()])
    hits = np.concatenate([[0], np.bincount(group, weights=novel).cumsum()])
    return float(np.append(thresholds, np.inf)[(2 * hits / (rejected + novel.sum())).argmax()])


def open_f1(y: ArrayLike, predicted: ArrayLike, n_classes: int) -> dict[str, float]:
    """Return the F1 of the unknown class and the mean F1 over the C known classes, of answers that may be -1."""
    y, predicted = _answers(y, predicted, n_classes)
    unknown = float(f1_score(y == UNKNOWN, predicted == UNKNOWN, zero_division=0))
    return {"f1_unknown": unknown, "f1_known": macro_f1(y, predicted, n_classes)}


def classification(scores: ArrayLike, y: ArrayLike) -> pd.DataFrame:
    """Return Top-1, Top-3 and both macro-F1 of scores (N, C), as lines ``metric, variant, value, n_images``."""
    scores, y = np.asarray(scores), np.asarray(y)
    (first, _), (third, k) = top_k(scores, y, 1), top_k(scores, y, 3)
    predicted, n_classes = scores.argmax(axis=1), scores.shape[1]
    lines = [("Top-1", "paper", first), (f"Top-{k}", "paper", third),
             ("macro-F1 all", "paper", macro_f1(y, predicted, n_classes)),
             ("macro-F1 present", "reference_code", macro_f1(y, predicted, n_classes, "present"))]  # fmt: skip
    return pd.DataFrame(lines, columns=["metric", "variant", "value"]).assign(n_images=len(y))


def _whole(y: ArrayLike) -> np.ndarray:
    y = np.asarray(y)
    if not (np.isfinite(y) & (y == np.floor(y))).all():
        raise ValueError("labels and answers must be whole numbers, -1 for unknown")
    return y


def _answers(y: ArrayLike, predicted: ArrayLike, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    y, predicted = _whole(y), _whole(predicted)
    if y.ndim != 1 or y.shape != predicted.shape or not y.size:
        raise ValueError(f"expected labels and answers (N,), at least one; got {y.shape} and {predicted.shape}")
    if predicted.min() < UNKNOWN or predicted.max() >= n_classes:
        raise ValueError(f"answers must lie in -1..{n_classes - 1}, got {predicted.min()}..{predicted.max()}")
    return y, predicted


def _scores(known: ArrayLike, novel: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    known, novel = (np.asarray(values, dtype=np.float64).ravel() for values in (known, novel))
    if not known.size or not novel.size:
        raise ValueError(f"undefined without both: {known.size} known and {novel.size} novel images")
    if not (np.isfinite(known).all() and np.isfinite(novel).all()):
        raise ValueError("open-set scores must be finite")
    return known, novel
