"""Per-class presence thresholds, chosen on validation images. A class is present where score > threshold, strictly."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

GRID = np.arange(1, 100) / 100.0
NEVER = np.inf


def check_fallback(owner: str, fallback: Any) -> None:
    """Raise ``ValueError`` unless ``fallback`` is ``"never"``, ``"max+1"`` or a finite number."""
    is_number = isinstance(fallback, (int, float, np.integer, np.floating)) and not isinstance(fallback, bool)
    if not (np.isfinite(fallback) if is_number else isinstance(fallback, str) and fallback in ("never", "max+1")):
        raise ValueError(f"{owner}: fallback must be 'never', 'max+1' or a finite number; found {fallback!r}")


def quantile_thresholds(
    scores: np.ndarray, Y: np.ndarray, quantile: float = 0.05, fallback: str | float = "never"
) -> np.ndarray:
    """Return, per class, the ``quantile`` (linear interpolation) of the scores of the images that contain it.

    ``scores`` (N, K) float, ``Y`` (N, K) 0/1; returns (K,) float64. Published for SimplexUnmix and ProtoMatch with
    quantile 0.05: nineteen of twenty validation positives are accepted.

    A class without positives is warned about and gets the ``fallback``: ``"never"`` is infinity, ``"max+1"`` the
    largest score plus one (published for leave-combinations-out), a number is that number (published for the random
    split: 0.05 for SimplexUnmix, 0.5 for ProtoMatch). Raises ``ValueError`` for any other.
    """
    check_fallback("quantile_thresholds", fallback)
    scores = np.asarray(scores, dtype=np.float64)
    thresholds = np.empty(scores.shape[1])
    for k in range(scores.shape[1]):
        positive = Y[:, k] == 1
        if positive.any():
            thresholds[k] = np.quantile(scores[positive, k], quantile)
        else:
            thresholds[k] = _fallback(fallback, scores[:, k])
            _warn(k, thresholds[k])
    return thresholds


def grid_thresholds(
    scores: np.ndarray, Y: np.ndarray, grid: np.ndarray = GRID, fallback: str | float = "never"
) -> np.ndarray:
    """Return, per class, the point of ``grid`` with the highest F1 of ``score > point``; ties go to the lowest point.

    ``scores`` (N, K) in 0..1, ``Y`` (N, K) 0/1; returns (K,) float64. Published for ChannelGroup and the gradient
    baselines with the 99 points 0.01, 0.02, ..., 0.99.

    A class without positives has F1 0 at every point, so the published search keeps 0.01 and the class fires almost
    always. Here it is warned about and gets the ``fallback`` of :func:`quantile_thresholds`; pass 0.01 for the
    published behaviour.
    """
    check_fallback("grid_thresholds", fallback)
    scores = np.asarray(scores, dtype=np.float64)
    thresholds = np.empty(scores.shape[1])
    for k in range(scores.shape[1]):
        positive = Y[:, k] == 1
        if not positive.any():
            thresholds[k] = _fallback(fallback, scores[:, k])
            _warn(k, thresholds[k])
            continue
        # counts of scores strictly above each point, without an (N, 99) table
        predicted = len(scores) - np.searchsorted(np.sort(scores[:, k]), grid, side="right")
        hits = positive.sum() - np.searchsorted(np.sort(scores[positive, k]), grid, side="right")
        thresholds[k] = grid[np.argmax(2.0 * hits / (predicted + positive.sum()))]
    return thresholds


def _fallback(fallback: str | float, scores: np.ndarray) -> float:
    if fallback == "never":
        return NEVER
    if fallback == "max+1":
        return float(scores.max()) + 1.0
    return float(fallback)


def _warn(k: int, threshold: float) -> None:
    warnings.warn(
        f"class {k} has no positive image to choose a threshold on; its threshold is {threshold:g}"
        + (", so it is never predicted" if threshold == NEVER else ""),
        UserWarning,
        stacklevel=4,
    )
