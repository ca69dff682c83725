"""What several protocols do with vectors: centring to unit norm, and the nearest centre."""

from __future__ import annotations

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

# of differences between vectors of unit norm; below it only rounding is left
_NOTHING = 1e-12
# of the squared norms; squared distances that differ by less are equal but for rounding
_ROUNDING = 1e-12


def centred(X: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the rows of ``X`` (N, D) minus ``mean``, of unit norm; a row equal to the mean becomes zero."""
    moved = X - mean
    norm = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.where(norm > _NOTHING, moved / np.maximum(norm, _NOTHING), 0.0)


def nearest(X: np.ndarray, centres: np.ndarray, block: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest of ``centres`` (K, D) for each row of ``X`` (N, D), ties to the first, and squared distances.

    Distances that differ by rounding alone are a tie. Memory is bounded by ``block`` rows times K distances.
    """
    index, distance = np.empty(len(X), np.int64), np.empty(len(X))
    longest = (centres**2).sum(axis=1).max()
    for start in range(0, len(X), block):
        rows = slice(start, start + block)
        squared = euclidean_distances(X[rows], centres, squared=True)
        distance[rows] = squared.min(axis=1)
        slack = _ROUNDING * ((X[rows] ** 2).sum(axis=1) + longest)
        index[rows] = (squared <= (distance[rows] + slack)[:, None]).argmax(axis=1)
    return index, distance
