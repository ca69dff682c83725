"""The discovery gate: which tiles may take part in proposing a new species (Section 5, Appendix D.3)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phoebi_lib.openworld.knn import Rows
from phoebi_lib.openworld.scores import tile_knn, tile_residual

RESIDUAL_GATE, QUANTILE = 0.15, 0.95
#: Scores of a tile that a gate may cut, in the order of the study.
GATE_SCORES = ("residual", "normalised residual", "k-NN", "normalised k-NN")
_SMALLEST_REFERENCE = 1e-6


def residual_gate(X: np.ndarray, known: np.ndarray, threshold: float = RESIDUAL_GATE) -> np.ndarray:
    """Return which tiles of ``X`` (N, T, D) leave a residual above ``threshold`` against ``known`` (K, D), (N, T) bool.

    The published gate. Raises as :func:`~phoebi_lib.openworld.scores.tile_residual`.
    """
    return tile_residual(X, known) > threshold


def quantile_gate(scores: np.ndarray, known_scores: np.ndarray, quantile: float = QUANTILE) -> np.ndarray:
    """Return where ``scores`` lie above the ``quantile`` (linear) of ``known_scores``, those of known species' tiles.

    With 0.95 one in twenty tiles without a stranger passes, if they score as those of ``known_scores`` do.
    """
    return np.asarray(scores) > np.quantile(known_scores, quantile)


def nearest_known(X: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the index of the nearest known prototype of each tile, (N, T); ``X`` (N, T, D), ``known`` (K, D)."""
    return (np.asarray(X) @ np.asarray(known, dtype=np.asarray(X).dtype).T).argmax(axis=2)


def class_references(scores: np.ndarray, pure_of: np.ndarray, n_known: int) -> np.ndarray:
    """Return the usual score of each known species' own tiles, (K,): their median over its pure cultures.

    Args:
        scores: (N, T) of validation tiles.
        pure_of: (N,) the known species whose pure culture the image shows, -1 for mixtures.
        n_known: K.

    A reference is at least 1e-6; a species without a pure culture there has 1, which changes nothing.
    """
    medians = [np.median(scores[pure_of == k]) if (pure_of == k).any() else 1.0 for k in range(n_known)]
    return np.maximum(medians, _SMALLEST_REFERENCE)


def tile_scores(X: np.ndarray, known: np.ndarray, bank: Rows, k: int = 10) -> dict[str, np.ndarray]:
    """Return the two raw scores of each tile, ``{"residual", "k-NN"}`` -> (N, T); higher = more unknown."""
    return {"residual": tile_residual(X, known), "k-NN": tile_knn(X, bank, k)}


def with_normalised(
    scores: Mapping[str, np.ndarray], nearest: np.ndarray, references: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return ``scores`` and, per score, its ratio to the reference of each tile's nearest known species.

    ``nearest`` (N, T) as :func:`nearest_known`, ``references`` per score (K,) as :func:`class_references`.
    """
    return {**scores, **{f"normalised {name}": scores[name] / references[name][nearest] for name in scores}}
