"""What the protocols of all three siblings do with features (N, D): unit norm, class means, centring, the nearest."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.preprocessing import normalize

# of differences between vectors of unit norm; below it only rounding is left
_NOTHING = 1e-12
# of the squared norms; squared distances that differ by less are equal but for rounding
_ROUNDING = 1e-12


def finite(X: ArrayLike) -> np.ndarray:
    """Return features as float64 (N, D). Raises ValueError for another shape, no row, or rows (named) not finite."""
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or not X.size:
        raise ValueError(f"features must have shape (N, D), at least one row; got {X.shape}")
    if (bad := ~np.isfinite(X).all(axis=1)).any():
        raise ValueError(f"features of rows {np.flatnonzero(bad)[:5].tolist()} are not finite")
    return X


def unit(X: ArrayLike) -> np.ndarray:
    """Return rows of unit norm, a row of zeros as it is. Raises as :func:`finite`."""
    X = finite(X)
    Y = normalize(X)
    # rows whose squares over- or underflow
    if (odd := X.any(axis=1) & ~np.isclose(np.einsum("nd,nd->n", Y, Y), 1)).any():
        Y[odd] = normalize(X[odd] / np.abs(X[odd]).max(axis=1, keepdims=True))
    return Y


def class_means(X: np.ndarray, y: ArrayLike, n_classes: int) -> np.ndarray:
    """Return the mean feature of each class 0..C-1, (C, D), zeros without a row. ValueError for other labels."""
    y, sums = np.asarray(y), np.zeros((n_classes, X.shape[1]))
    if y.shape != (len(X),) or not y.size or y.dtype.kind not in "iu":
        raise ValueError(f"expected a whole number as label of each of {len(X)} rows; got {y.dtype} {y.shape}")
    if y.min() < 0 or y.max() >= n_classes:
        raise ValueError(f"training labels must lie in 0..{n_classes - 1}, got {y.min()}..{y.max()}")
    np.add.at(sums, y, X)
    return sums / np.maximum(np.bincount(y, minlength=n_classes), 1)[:, None]


def centred(X: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the rows of ``X`` minus ``mean``, of unit norm; a row equal to the mean becomes zero."""
    moved = X - mean
    norm = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.where(norm > _NOTHING, moved / np.maximum(norm, _NOTHING), 0.0)


def nearest(X: np.ndarray, centres: np.ndarray, block: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest of ``centres`` (K, D) for each row, ties to the first, and squared distances; (N,) both.

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
