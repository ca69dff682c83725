"""Classification beyond 0-1 loss: matrices of what an answer costs, and the answer that is expected to cost least.

A cost matrix is (C+1, C+1): rows the truth, columns the answer, the last of each for unknown, so that -1 indexes it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

_TIE = 1e-12


def poison_costs(poisonous: ArrayLike, missed: float = 100.0, alarm: float = 1.0) -> np.ndarray:
    """Return the costs of the wrong edibility: ``missed`` for poisonous taken for edible, ``alarm`` for the reverse.

    Args:
        poisonous: bool (C,). Unknown counts as edible, as truth and as answer: the paper does not say, the code does.

    Raises ValueError for a flag other than 0 and 1.
    """
    if not np.isin(poisonous, (0, 1)).all():
        raise ValueError("poisonous must be True or False (1 or 0) for each class")
    flags = np.append(np.asarray(poisonous, dtype=bool), False)
    return np.where(flags[:, None] & ~flags, missed, np.where(~flags[:, None] & flags, alarm, 0.0))


def error_costs(n_classes: int, unknown_as_known: float = 1.0, known_as_unknown: float = 1.0) -> np.ndarray:
    """Return 1 for each error; of the errors about unknown what is given (the competition's code has 10 and 0.1)."""
    costs = 1.0 - np.eye(n_classes + 1)
    costs[-1, :-1], costs[:-1, -1] = unknown_as_known, known_as_unknown
    return costs


def user_loss_costs(poisonous: ArrayLike, *, unknown: bool = False) -> np.ndarray:
    """Return error plus poison costs: the plain error, or (``unknown``, BioBench's copy) the one of 10 and 0.1."""
    n_classes = len(np.asarray(poisonous))
    errors = error_costs(n_classes, 10.0, 0.1) if unknown else error_costs(n_classes)
    return errors + poison_costs(poisonous)


def mean_cost(y: ArrayLike, predicted: ArrayLike, costs: np.ndarray) -> float:
    """Return the mean cost per image, in the unit of ``costs``; lower is better.

    Raises ValueError for no image, different lengths, or a label or answer outside -1..C-1.
    """
    y, predicted = np.asarray(y), np.asarray(predicted)
    if y.ndim != 1 or y.shape != predicted.shape or not y.size:
        raise ValueError(f"expected labels and answers (N,), at least one; got {y.shape} and {predicted.shape}")
    if min(y.min(), predicted.min()) < -1 or max(y.max(), predicted.max()) > len(costs) - 2:
        raise ValueError(f"labels and answers must lie in -1..{len(costs) - 2}")
    return float(costs[y, predicted].mean())


def user_score(y: ArrayLike, predicted: ArrayLike, costs: np.ndarray) -> float:
    """Return BioBench's ``1 - loss / worst loss``, 0..1; the worst answer to each image is the dearest of its row."""
    worst = float(costs[np.asarray(y)].max(axis=1).mean())
    return 1.0 - mean_cost(y, predicted, costs) / worst


def least_expected_cost(probabilities: ArrayLike, costs: np.ndarray, *, may_reject: bool = False) -> np.ndarray:
    """Return the answer ``argmin_d sum_c p(c|x) W(c, d)`` of each image, (N,) ids, -1 for unknown.

    Answers that are expected to cost the same, as all edible ones do under :func:`poison_costs`, are told apart by
    their probability, then by the lower id.

    Args:
        probabilities: (N, C), or (N, C+1) with that of unknown last; calibrated, rows sum to 1.
        may_reject: whether unknown may be the answer.

    Raises ValueError for probabilities that are none or do not fit ``costs``.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    n_classes = len(costs) - 1
    if p.ndim != 2 or p.shape[1] not in (n_classes, n_classes + 1):
        raise ValueError(f"expected probabilities (N, {n_classes}) or (N, {n_classes + 1}), got {p.shape}")
    if not (p >= 0).all() or not np.allclose(p.sum(axis=1), 1, atol=1e-5):
        raise ValueError("each row of probabilities must be at least 0 and sum to 1")
    p = np.pad(p, ((0, 0), (0, n_classes + 1 - p.shape[1])))
    answers = n_classes + 1 if may_reject else n_classes
    expected = (p @ costs)[:, :answers]
    least = expected.min(axis=1, keepdims=True)
    chosen = np.where(expected <= least + _TIE * (1 + least), p[:, :answers], -1.0).argmax(axis=1)
    return np.where(chosen == n_classes, -1, chosen)


def temperature(logits: ArrayLike, y: ArrayLike) -> float:
    """Return the T for which ``softmax(logits / T)`` has the highest likelihood on validation labels, 0.01..100.

    Raises ValueError for a label outside 0..C-1.
    """
    logits, y = np.asarray(logits, dtype=np.float64), np.asarray(y)
    if not y.size or y.min() < 0 or y.max() >= logits.shape[1]:
        raise ValueError(f"temperature needs labels 0..{logits.shape[1] - 1}, at least one")
    rows = np.arange(len(y))
    found = minimize_scalar(
        lambda log_t: -log_softmax(logits / np.exp(log_t), axis=1)[rows, y].mean(),
        bounds=(np.log(0.01), np.log(100.0)),
        method="bounded",
    )
    return float(np.exp(found.x))
