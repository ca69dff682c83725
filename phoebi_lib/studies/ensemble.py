"""An ensemble of decoders (Appendix C.3): scores on one scale, combined, cut at one threshold.

The paper names the combination, a soft OR, and one threshold for all species; how scores were brought to one scale and
the threshold was searched it does not say. Both are our own definition here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from phoebi_lib.decoders.thresholds import GRID
from phoebi_lib.metrics import per_sample_f1


def unit_scale(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return ``scores`` (n, K) with the range of each column of ``reference`` (m, K) taken to 0..1, clipped there.

    A column that is constant in ``reference`` gives 0 up to that constant and 1 above it.
    """
    low, high = reference.min(axis=0), reference.max(axis=0)
    spread = np.where(high > low, high - low, np.finfo(float).tiny)
    return np.clip((scores - low) / spread, 0.0, 1.0)


def soft_or(members: Sequence[np.ndarray]) -> np.ndarray:
    """Return ``1 - prod(1 - s)`` over members (n, K) in 0..1: present if any member says so, were they independent."""
    return 1.0 - np.prod([1.0 - member for member in members], axis=0)


def average(members: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean over members (n, K)."""
    return np.mean(members, axis=0)


def one_threshold(scores: np.ndarray, Y: np.ndarray, grid: np.ndarray = GRID) -> float:
    """Return the point of ``grid`` with the highest per-sample F1 of ``scores > point``; ties go to the lowest."""
    return float(grid[np.argmax([per_sample_f1(Y, (scores > point).astype(int)) for point in grid])])


def ensemble(
    val: Sequence[np.ndarray], Y: np.ndarray, test: Sequence[np.ndarray], combine: Callable = soft_or
) -> tuple[float, dict[str, np.ndarray]]:
    """Return the threshold and the combined scores of both parts, ``{"val", "test"}`` (n, K).

    Each member's scores are scaled by its own validation scores, species by species; the threshold is searched on
    validation images with labels ``Y`` (m, K).
    """
    combined = {
        "val": combine([unit_scale(scores, scores) for scores in val]),
        "test": combine([unit_scale(scores, own) for scores, own in zip(test, val, strict=True)]),
    }
    return one_threshold(combined["val"], Y), combined
