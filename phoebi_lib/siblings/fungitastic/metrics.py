"""FungiTastic's metrics of classes and of the open set (arXiv 2408.13632, Sections 3 and 4), all in 0..1.

``y`` and predictions are class ids 0..C-1, or -1 for unknown. A label that training never saw is an error of every
known answer; it is not dropped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import f1_score, roc_curve

from phoebi_lib.decoders.checks import check_choice, check_number
from phoebi_lib.metrics import aupr, auroc, fpr_at_tpr
from phoebi_lib.siblings.fungitastic.layout import UNKNOWN


def ids(*arrays: ArrayLike) -> list[np.ndarray]:
    """Return labels or answers, each (N,), as int64. Raises ValueError for other shapes, no image or part numbers."""
    whole = "labels and answers must be whole numbers below 2**53, -1 for unknown"
    try:
        # text has no sum, where its conversion would take "1" for 1
        arrays = [np.asarray(np.asarray(values) + 0.0, dtype=np.float64) for values in arrays]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{whole}; found {str(arrays):.80}") from error
    shapes = {values.shape for values in arrays}
    if len(shapes) > 1 or arrays[0].ndim != 1 or not arrays[0].size:
        raise ValueError(f"expected labels and answers (N,), at least one; got {', '.join(map(str, shapes))}")
    for values in arrays:
        if (bad := ~(np.abs(values) < 2**53) | (values != np.floor(values))).any():
            raise ValueError(f"{whole}; found {values[bad][0]}")
    return [values.astype(np.int64) for values in arrays]


def row_labels(X: ArrayLike, y: ArrayLike, n_classes: float = np.inf) -> np.ndarray:
    """Return the training label 0..C-1 of each row of ``X``, int64 (N,). Raises ValueError for another, or as `ids`."""
    (y,) = ids(y)
    if len(y) != len(X) or y.min() < 0 or y.max() >= n_classes:
        raise ValueError(f"expected training labels 0..{n_classes - 1}, got {y.min()}..{y.max()}, "
                         f"{len(y)} for {len(X)} rows")  # fmt: skip
    return y


def top_k(scores: ArrayLike, y: ArrayLike, k: int) -> tuple[float, int]:
    """Return the share of images whose label is among the ``k`` highest scores, and the k that was used: at most C.

    Args:
        scores: (N, C), finite; among equal scores the lower class comes first.
        y: (N,) labels.

    Raises ValueError for shapes that do not fit, scores that are not finite, ``k`` that is no whole number of
    at least 1, or as :func:`ids`.
    """
    check_number("top_k", "k", k, 1, integer=True)
    scores, (y,) = np.asarray(scores, dtype=np.float64), ids(y)
    if scores.ndim != 2 or len(scores) != len(y) or not np.isfinite(scores).all():
        raise ValueError(f"top_k needs finite scores (N, C) and labels (N,): {scores.shape}, {y.shape}")
    k = min(k, scores.shape[1])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return float((best == y[:, None]).any(axis=1).mean()), k


def macro_f1(y: ArrayLike, predicted: ArrayLike, n_classes: int, classes: str = "all") -> float:
    """Return the mean over classes of ``2 TP / (2 TP + FP + FN)``, 0 where that is undefined.

    Args:
        classes: "all": the classifier's C classes, as the paper's formula has it, so that test sets which lack classes
            cap it at their share of C; "present": classes that occur as label or answer, as the published fusion
            and metadata code has it.

    Raises ValueError as :func:`ids`, for an answer outside -1..C-1, or unknown ``classes``.
    """
    check_choice("macro_f1", "classes", classes, ("all", "present"))
    y, predicted = ids(y, predicted)
    if predicted.min() < UNKNOWN or predicted.max() >= n_classes:
        raise ValueError(f"answers must lie in -1..{n_classes - 1}, got {predicted.min()}..{predicted.max()}")
    over = np.arange(n_classes) if classes == "all" else np.union1d(y, predicted)
    return float(f1_score(y, predicted, labels=over, average="macro", zero_division=0))


def classification(scores: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Return Top-1, Top-3 (or the k that was used) and both macro-F1 of scores (N, C)."""
    scores, (third, k) = np.asarray(scores), top_k(scores, y, 3)
    f1 = {over: macro_f1(y, scores.argmax(axis=1), scores.shape[1], over) for over in ("all", "present")}
    return {"Top-1": top_k(scores, y, 1)[0], f"Top-{k}": third, **{f"macro-F1 {over}": f1[over] for over in f1}}


def fold_unknown(y: ArrayLike, train_labels: ArrayLike) -> np.ndarray:
    """Return labels with -1 for every class without a training image; that, not -1 alone, is what unknown means."""
    (y,) = ids(y)
    return np.where(np.isin(y, train_labels), y, UNKNOWN)


def open_set(known: ArrayLike, novel: ArrayLike) -> dict[str, float]:
    """Return the metrics of a score that is higher for known images; known is the positive class.

    ``auc``, ties count half. ``tnr95``: the share of novel images that are rejected where 95 % of known ones are
    accepted, at the largest threshold that they reach. ``tnr95_reference_code``: of K known scores the m lowest go, m
    the smallest with (K - m) / K nearest to 0.95, and novel scores under the m-th lowest are rejected, none with fewer
    than ten known images. ``detection_accuracy``: largest mean of the shares of known accepted and novel rejected.
    ``auin`` and ``auout``: average precision with known, and with novel, as positives.

    Raises ValueError for no known or no novel score, or one that is not finite.
    """
    positive, score = _scores(known, novel)
    n = int(positive.sum())
    removed = np.abs(n - 20 * np.arange(n + 1)).argmin()
    threshold = np.append(-np.inf, np.sort(score[positive]))[removed]
    false_rate, true_rate, _ = roc_curve(positive, score)
    return {
        "auc": auroc(positive, score),
        "tnr95": 1 - fpr_at_tpr(positive, score, 0.95),
        "tnr95_reference_code": float((score[~positive] < threshold).mean()),
        "detection_accuracy": float((true_rate + 1 - false_rate).max() / 2),
        "auin": aupr(positive, score),
        "auout": aupr(~positive, -score),
    }


def choose_threshold(known: ArrayLike, novel: ArrayLike) -> float:
    """Return the threshold under which images are called unknown that gives the unknown class its highest F1.

    The paper has no rule for it; this is ours, for the open validation set. The smallest of equally good ones is taken:
    one of the scores, or infinity for calling everything unknown. Raises ValueError as :func:`open_set`.
    """
    positive, score = _scores(known, novel)
    thresholds = np.append(np.unique(score), np.inf)
    rejected, hits = (np.searchsorted(np.sort(part), thresholds) for part in (score, score[~positive]))
    return float(thresholds[(2 * hits / (rejected + len(score[~positive]))).argmax()])


def open_f1(y: ArrayLike, predicted: ArrayLike, n_classes: int) -> dict[str, float]:
    """Return the F1 of the unknown class and the mean F1 over the C known classes, of answers that may be -1."""
    known = macro_f1(y, predicted, n_classes)
    return {"f1_unknown": float(f1_score(y, predicted, labels=[UNKNOWN], average="macro", zero_division=0)),
            "f1_known": known}  # fmt: skip


def _scores(known: ArrayLike, novel: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    known, novel = (np.asarray(values, dtype=np.float64).ravel() for values in (known, novel))
    score = np.concatenate([known, novel])
    if not known.size or not novel.size or not np.isfinite(score).all():
        raise ValueError(f"open-set scores must be finite, of known and of novel images: {known.size}, {novel.size}")
    return np.arange(len(score)) < len(known), score
