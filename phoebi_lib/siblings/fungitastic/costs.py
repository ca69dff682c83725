"""Classification beyond 0-1 loss: matrices of what an answer costs, and the answer that is expected to cost least.

A cost matrix is (C+1, C+1): rows the truth, columns the answer, the last of each for unknown, so that -1 indexes it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from phoebi_lib.siblings.fungitastic.metrics import ids, row_labels

_TIE = 1e-12


def poison_costs(poisonous: ArrayLike, missed: float = 100.0, alarm: float = 1.0) -> np.ndarray:
    """Return the costs of the wrong edibility: ``missed`` for poisonous taken for edible, ``alarm`` for the reverse.

    Args:
        poisonous: bool (C,). Unknown counts as edible, as truth and as answer: the paper does not say, the code does.

    Raises ValueError for a flag other than 0 and 1.
    """
    if not np.isin(poisonous, (0, 1)).all():
        raise ValueError("poisonous must be True or False (1 or 0) for each class")
    flags = np.append(poisonous, 0).astype(bool)
    return np.where(np.outer(flags, ~flags), missed, np.where(np.outer(~flags, flags), alarm, 0.0))


def error_costs(n_classes: int, unknown_as_known: float = 1.0, known_as_unknown: float = 1.0) -> np.ndarray:
    """Return 1 for each error; of the errors about unknown what is given (the competition's code has 10 and 0.1)."""
    costs = 1.0 - np.eye(n_classes + 1)
    costs[-1, :-1], costs[:-1, -1] = unknown_as_known, known_as_unknown
    return costs


def user_loss_costs(poisonous: ArrayLike, *, unknown: bool = False) -> np.ndarray:
    """Return error plus poison costs: the plain error, or (``unknown``, BioBench's copy) the one of 10 and 0.1."""
    return poison_costs(poisonous) + error_costs(len(poisonous), *((10.0, 0.1) if unknown else ()))


def mean_cost(y: ArrayLike, predicted: ArrayLike, costs: np.ndarray) -> float:
    """Return the mean cost per image, in the unit of ``costs``; lower is better.

    Raises ValueError as :func:`~.metrics.ids`, or for a label or answer outside -1..C-1.
    """
    y, predicted = ids(y, predicted)
    if min(y.min(), predicted.min()) < -1 or max(y.max(), predicted.max()) > len(costs) - 2:
        raise ValueError(f"labels and answers must lie in -1..{len(costs) - 2}")
    return float(costs[y, predicted].mean())


def user_score(y: ArrayLike, predicted: ArrayLike, costs: np.ndarray) -> float:
    """Return BioBench's ``1 - loss / worst loss``, 0..1; the worst answer to each image is the dearest of its row."""
    cost, worst = mean_cost(y, predicted, costs), float(costs[ids(y)[0]].max(axis=1).mean())
    if not worst > 0:
        raise ValueError(f"user_score needs an answer that costs something; the worst here cost {worst} per image")
    return 1.0 - cost / worst


def best_constant(y: ArrayLike, costs: np.ndarray) -> np.ndarray:
    """Return the one answer that costs least when given to every image, -1 for unknown, (N,): a floor without pictures.

    It is chosen on the labels themselves, -1..C-1, so no other answer that sees no picture is better.
    """
    columns = [*range(len(costs) - 1), -1]
    return np.full(len(y), min(columns, key=lambda answer: mean_cost(y, np.full(len(y), answer), costs)))


def least_expected_cost(probabilities: ArrayLike, costs: np.ndarray, *, may_reject: bool = False) -> np.ndarray:
    """Return the answer ``argmin_d sum_c p(c|x) W(c, d)`` of each image, (N,) ids, -1 for unknown.

    Answers that are expected to cost the same, as all edible ones do under :func:`poison_costs`, are told apart by
    their probability, then by the lower id.

    Args:
        probabilities: (N, C), or (N, C+1) with that of unknown last; calibrated, rows sum to 1.
        may_reject: whether unknown may be the answer.

    Raises ValueError for probabilities that are none or do not fit ``costs``.
    """
    p, n = np.asarray(probabilities, dtype=np.float64), len(costs) - 1
    if p.ndim != 2 or p.shape[1] not in (n, n + 1) or (p < 0).any() or not np.allclose(p.sum(axis=1), 1, atol=1e-5):
        raise ValueError(f"expected probabilities (N, {n}) or (N, {n + 1}), at least 0, of sum 1 a row; got {p.shape}")
    p = np.pad(p, ((0, 0), (0, n + 1 - p.shape[1])))
    answers = n + may_reject
    expected = (p @ costs)[:, :answers]
    least = expected.min(axis=1, keepdims=True)
    chosen = np.where(expected <= least + _TIE * (1 + least), p[:, :answers], -1.0).argmax(axis=1)
    return np.where(chosen == n, -1, chosen)


def temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """Return the T, 0.01..100, for which ``softmax(logits / T)`` has the highest likelihood on labels 0..C-1, (N,).

    Raises ValueError for other labels, none, or not one for each row, and for logits that are not finite.
    """
    if np.ndim(logits) != 2 or not np.isfinite(logits).all():
        raise ValueError(f"temperature needs logits (N, C), all finite; got {np.shape(logits)}")
    y = row_labels(logits, y, logits.shape[1])

    def loss(log_t: float) -> float:
        return -log_softmax(logits / np.exp(log_t), axis=1)[np.arange(len(y)), y].mean()

    return float(np.exp(minimize_scalar(loss, bounds=np.log([0.01, 100.0]), method="bounded").x))
