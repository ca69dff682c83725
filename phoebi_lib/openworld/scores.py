"""Open-set scores: how little an image looks like the known species (Section 5, Appendix D.2).

Every score is taken per tile and averaged over the tiles of an image; higher = more unknown. ``X`` is (N, T, D) with
unit norm per tile, ``prototypes`` (K, D) one unit vector per known species.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.special import logsumexp

from phoebi_lib.decoders.checks import NORM_TOLERANCE, blocks, check_features, check_number, check_values
from phoebi_lib.decoders.simplex_unmix import sparsemax
from phoebi_lib.openworld.knn import BANK_BLOCK, QUERY_BLOCK, Rows, kth_cosine

#: How the scores of an image's tiles (N, T) become one number per image; the paper's tables use the mean.
AGGREGATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda tiles: tiles.mean(axis=1),
    "q90": lambda tiles: np.quantile(tiles, 0.9, axis=1),
    "max": lambda tiles: tiles.max(axis=1),
}


def residual_score(X: np.ndarray, prototypes: np.ndarray, tau: float = 10) -> np.ndarray:
    """Return the mean over tiles of ``|z - P^T sparsemax(tau P z)|``, (N,) float64 in 0..2.

    What SimplexUnmix cannot rebuild from the known species. Raises as :func:`tile_residual`.
    """
    return tile_residual(X, prototypes, tau).mean(axis=1)


def max_cosine_score(X: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
    """Return minus the mean over tiles of the largest cosine to a prototype, (N,) float64 in -1..1.

    Raises as :func:`tile_max_cosine`.
    """
    return tile_max_cosine(X, prototypes).mean(axis=1)


def energy_score(X: np.ndarray, prototypes: np.ndarray, temperature: float) -> np.ndarray:
    """Return the mean over tiles of ``-T log sum_k exp(cosine_k / T)``, (N,) float64; the paper has T = 1 and 0.1.

    Raises as :func:`tile_energy`.
    """
    return tile_energy(X, prototypes, temperature).mean(axis=1)


def knn_score(X: np.ndarray, bank: Rows, k: int = 10, **search: object) -> np.ndarray:
    """Return the mean over tiles of 1 minus the cosine to the ``k``-th nearest tile of ``bank``, (N,) float64 in 0..2.

    Arguments and errors as :func:`tile_knn`.
    """
    return tile_knn(X, bank, k, **search).mean(axis=1)


def tile_residual(X: np.ndarray, prototypes: np.ndarray, tau: float = 10) -> np.ndarray:
    """Return the residual of each tile, (N, T) float64.

    Raises:
        TypeError, ValueError: features or prototypes of another kind or shape, or not of unit norm; ``tau`` not above
            0.
    """
    check_number("residual score", "tau", tau, 0, strict=True)

    def score(block: np.ndarray, P: np.ndarray) -> np.ndarray:
        weights = sparsemax(torch.from_numpy(tau * (block @ P.T))).numpy()
        rest = block - weights @ P
        return np.sqrt(np.einsum("ntd,ntd->nt", rest, rest))

    return _by_prototypes(X, prototypes, "residual score", score)


def tile_max_cosine(X: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
    """Return minus the largest cosine of each tile to a prototype, (N, T) float64.

    Raises:
        TypeError, ValueError: features or prototypes of another kind or shape, or not of unit norm.
    """
    return _by_prototypes(X, prototypes, "max cosine score", lambda block, P: -(block @ P.T).max(axis=2))


def tile_energy(X: np.ndarray, prototypes: np.ndarray, temperature: float) -> np.ndarray:
    """Return the energy of each tile, (N, T) float64.

    Raises:
        TypeError, ValueError: features or prototypes of another kind or shape, or not of unit norm; ``temperature`` not
            above 0.
    """
    check_number("energy score", "temperature", temperature, 0, strict=True)
    return _by_prototypes(
        X, prototypes, "energy score", lambda block, P: -temperature * logsumexp(block @ P.T / temperature, axis=2)
    )


def tile_knn(
    X: np.ndarray,
    bank: Rows,
    k: int = 10,
    *,
    query_block: int = QUERY_BLOCK,
    bank_block: int = BANK_BLOCK,
    device: str = "cpu",
) -> np.ndarray:
    """Return 1 minus the ``k``-th largest cosine of each tile to the tiles of ``bank``, (N, T) float64.

    Args:
        X: (N, T, D) unit norm.
        bank: (M, D) unit-norm training tiles: an array, a memory map, or anything that gives rows by slice.
        k: which neighbour, 1..M; equal tiles count as often as they occur.
        query_block, bank_block, device: see :func:`~phoebi_lib.openworld.knn.kth_cosine`; memory is bounded by them.

    Raises:
        TypeError, ValueError: features or bank of another kind or shape, or not of unit norm; ``k`` out of range.
    """
    X = check_features(X, "k-NN score")
    check_values(X, "k-NN score")
    cosines = kth_cosine(
        X.reshape(-1, X.shape[2]), bank, k, query_block=query_block, bank_block=bank_block, device=device
    )
    return 1.0 - cosines.astype(np.float64).reshape(X.shape[:2])


def check_prototypes(prototypes: np.ndarray, owner: str) -> np.ndarray:
    """Return ``prototypes`` as (K, D) float64. Raises ValueError unless they are that, finite and of unit norm."""
    P = np.asarray(prototypes, dtype=np.float64)
    if P.ndim != 2 or 0 in P.shape:
        raise ValueError(f"{owner}: prototypes must have shape (K, D) with at least one row; found shape {P.shape}")
    norms = np.linalg.norm(P, axis=1)
    bad = ~(np.abs(norms - 1.0) <= NORM_TOLERANCE)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"{owner}: every prototype must have unit norm within {NORM_TOLERANCE}, but row {row} has norm "
            f"{norms[row]:.6g}; normalise it, or leave out a species that has none"
        )
    return P


def _by_prototypes(
    X: np.ndarray, prototypes: np.ndarray, owner: str, score: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    P = check_prototypes(prototypes, owner)
    X = check_features(X, owner, P.shape[1])
    tiles = np.empty(X.shape[:2])
    for rows, block in blocks(X, owner):
        tiles[rows] = score(block, P)
    return tiles
