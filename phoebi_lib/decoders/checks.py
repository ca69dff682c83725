"""Validation of features and labels, block by block, so that a memory-mapped pool is never copied whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

NORM_TOLERANCE = 1e-3
# 2**18 float64 values are 2 MB: a block stays in a core's cache between its checks and its use, twice as fast as 32 MB
_VALUES_PER_BLOCK = 2**18


def check_features(X: Any, owner: str, n_features: int | None = None) -> np.ndarray:
    """Return ``X`` as an array of shape (N, T, D) without reading its values.

    Raises ``TypeError`` for values that are not floating point and ``ValueError`` for another number of dimensions, an
    empty axis, or a D other than ``n_features``. The values are checked by :func:`blocks`, which reads them once.
    """
    X = np.asanyarray(X)
    if not np.issubdtype(X.dtype, np.floating):
        raise TypeError(f"{owner}: X must hold floating-point features, found dtype {X.dtype}")
    if X.ndim != 3:
        raise ValueError(f"{owner}: X must have shape (N, T, D), images by tiles by features; found shape {X.shape}")
    if 0 in X.shape:
        raise ValueError(f"{owner}: X has an empty axis, found shape {X.shape}; expected at least one image and tile")
    if n_features is not None and X.shape[2] != n_features:
        raise ValueError(
            f"{owner}: X has {X.shape[2]} features per tile, but the estimator was fitted with {n_features}; "
            "use features of the same encoder"
        )
    return X


def blocks(X: np.ndarray, owner: str) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield ``(rows, X[rows] as float64)``, each block checked for finite values and unit norm within 1e-3.

    Scores are computed in float64 so that they depend on neither the batch an image comes in nor the device that
    trained the decoder; a threshold comparison on float32 scores would (defect D33 of the protocol notes).
    """
    step = max(1, _VALUES_PER_BLOCK // (X.shape[1] * X.shape[2]))
    for start in range(0, len(X), step):
        rows = slice(start, min(start + step, len(X)))
        block = np.asarray(X[rows], dtype=np.float64)
        _check_values(block, start, owner)
        yield rows, block


def check_values(X: np.ndarray, owner: str) -> None:
    """Read all of ``X`` once and raise ``ValueError`` as :func:`blocks` does."""
    for _ in blocks(X, owner):
        pass


def _check_values(block: np.ndarray, start: int, owner: str) -> None:
    # a sum of squares is finite only if every value is, so one pass serves both checks
    norms = np.sqrt(np.einsum("ntd,ntd->nt", block, block))
    bad = ~(np.abs(norms - 1.0) <= NORM_TOLERANCE)
    if not bad.any():
        return
    image, tile = np.argwhere(bad)[0]
    where = f"X[{start + image}, {tile}]"
    if not np.isfinite(norms[image, tile]):
        value = block[image, tile][~np.isfinite(block[image, tile])]
        found = value[0] if len(value) else "values too large to square"
        raise ValueError(f"{owner}: {where} is not finite (found {found}); remove or re-embed this image")
    raise ValueError(
        f"{owner}: every tile must have unit norm within {NORM_TOLERANCE}, but {where} has norm "
        f"{norms[image, tile]:.6g}; divide each tile by its norm, as pool.X does"
    )


def check_labels(Y: Any, owner: str, n_images: int, n_classes: int | None = None) -> np.ndarray:
    """Return ``Y`` as an (N, K) array of int64 zeros and ones.

    Raises ``ValueError`` for another shape, another number of images or classes, or any other value.
    """
    Y = np.asarray(Y)
    if Y.ndim != 2 or Y.shape[1] == 0:
        raise ValueError(f"{owner}: Y must have shape (N, K), images by classes; found shape {Y.shape}")
    if len(Y) != n_images:
        raise ValueError(f"{owner}: X holds {n_images} images but Y holds {len(Y)} rows of labels")
    if n_classes is not None and Y.shape[1] != n_classes:
        raise ValueError(f"{owner}: Y has {Y.shape[1]} classes, but the estimator was fitted with {n_classes}")
    bad = ~np.isin(Y, (0, 1))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"{owner}: Y must hold 0 and 1 only, but Y[{row}, {column}] is {Y[row, column]!r}")
    return Y.astype(np.int64)


def check_choice(owner: str, name: str, value: Any, allowed: tuple) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{owner}: {name} must be one of {', '.join(map(repr, allowed))}; found {value!r}")


def check_number(
    owner: str,
    name: str,
    value: Any,
    low: float,
    high: float = np.inf,
    *,
    integer: bool = False,
    strict: bool = False,
) -> None:
    """Raise ``ValueError`` unless ``value`` is a number from ``low`` (``strict``: above it) to ``high``."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not is_number or not (value > low if strict else value >= low) or value > high:
        kind = "an integer" if integer else "a number"
        bound = f"{'>' if strict else '>='} {low}" + (f" and <= {high}" if high < np.inf else "")
        raise ValueError(f"{owner}: {name} must be {kind} {bound}; found {value!r}")
