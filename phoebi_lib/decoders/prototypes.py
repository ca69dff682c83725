"""Closed-form prototypes: one unit vector per species (protocol of Section 4, hybrid initialisation)."""

from __future__ import annotations

import warnings

import numpy as np

from phoebi_lib.decoders.checks import blocks

PURE, MIXTURE, ABSENT = "pure", "mixture", "absent"


def hybrid_prototypes(X: np.ndarray, Y: np.ndarray, owner: str = "hybrid_prototypes") -> tuple[np.ndarray, list[str]]:
    """Return prototypes (K, D) float64 of unit norm and, per class, where each comes from.

    ``X`` (N, T, D) unit-norm features, ``Y`` (N, K) 0/1. Per species: the normalised mean of all tiles of its pure
    cultures (rows of ``Y`` with a single 1): ``"pure"``. Without a pure culture: the normalised mean of all tiles of
    all images that contain it, dominated by its companions: ``"mixture"``. This is the published rule under
    leave-combinations-out, where one species per partition lacks its pure culture; it is applied to every partition,
    because the published alternative for the random split (k-means for all classes) loses which cluster is which
    class. In no image at all: a row of zeros, ``"absent"``, with a warning; such a class takes part in nothing.

    Raises ``ValueError`` for a mean of zero length, which has no direction.
    """
    order = Y.sum(axis=1)
    pure = (Y == 1) & (order == 1)[:, None]
    member = np.where(pure.any(axis=0), pure, Y == 1)
    sums = np.zeros((Y.shape[1], X.shape[2]))
    for rows, block in blocks(X, owner):
        sums += member[rows].T.astype(np.float64) @ block.sum(axis=1)
    source = np.where(pure.any(axis=0), PURE, np.where(member.any(axis=0), MIXTURE, ABSENT)).tolist()
    prototypes = np.zeros_like(sums)
    for k, kind in enumerate(source):
        if kind == ABSENT:
            warnings.warn(
                f"{owner}: class {k} is in no training image; it gets no prototype and is never predicted",
                UserWarning,
                stacklevel=4,
            )
            continue
        length = np.linalg.norm(sums[k])
        if length < 1e-9 * member[:, k].sum() * X.shape[1]:
            raise ValueError(f"{owner}: the tiles of class {k} average to zero, so its prototype has no direction")
        prototypes[k] = sums[k] / length
    return prototypes, source
