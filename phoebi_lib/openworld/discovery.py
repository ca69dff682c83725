"""Discovery: turn tiles of unlabelled images into prototypes of a new species, and say what that does (Section 5).

Three steps. :func:`propose` clusters tiles into prototypes; :func:`assign` asks each image whether it is nearer to a
proposed prototype than to every known species; :func:`known_calls` reads the known species with the proposed rows
appended, so that the drift of their F1 can be told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from phoebi_lib.decoders.checks import blocks, check_choice, check_features, check_number
from phoebi_lib.decoders.simplex_unmix import sparsemax
from phoebi_lib.openworld import heads
from phoebi_lib.openworld.scores import check_prototypes
from phoebi_lib.openworld.sinkhorn import sinkhorn_centroids

MIN_TILES, TILES_PER_CLUSTER = 50, 5
GREEDY_COSINE, GREEDY_SIZE = 0.7, 50
_OWNER = "discovery"


def greedy_centroids(tiles: np.ndarray, threshold: float = GREEDY_COSINE, min_size: int = GREEDY_SIZE) -> np.ndarray:
    """Return the centroids (n, D) float64 of unit norm that greedy cosine clustering finds in ``tiles`` (M, D).

    Again and again the first tile that is not used up is the seed; its neighbours are the tiles not used up whose
    cosine to it is above ``threshold``, itself included. With at least ``min_size`` neighbours their mean is a centroid
    and all are used up; with fewer, the seed alone is. The outcome depends on the order of the tiles.
    """
    centroids = []
    free = tiles
    while len(free):
        near = free @ free[0] > threshold
        near[0] = True
        if near.sum() >= min_size:
            centroids.append(free[near].mean(axis=0, dtype=np.float64))
            free = free[~near]
        else:
            free = free[1:]
    found = np.reshape(centroids, (len(centroids), tiles.shape[1]))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def propose(
    X: np.ndarray,
    method: str = "sinkhorn",
    k: int = 1,
    random_state: int = 0,
    *,
    known: np.ndarray | None = None,
    gate: np.ndarray | None = None,
    labelled: tuple[np.ndarray, np.ndarray] | None = None,
    min_tiles: int = MIN_TILES,
    **settings: Any,
) -> np.ndarray:
    """Return prototypes of new species, (n, D) float64 of unit norm, from tiles of unlabelled images.

    Args:
        X: (N, T, D) unit norm.
        method: ``"greedy"``, as many as :func:`greedy_centroids` finds; ``"sinkhorn"``, ``k`` of
            :func:`~phoebi_lib.openworld.sinkhorn.sinkhorn_centroids`; ``"uno"``, those refined by
            :func:`~phoebi_lib.openworld.heads.uno_centroids`; ``"crkd"``, one refined by
            :func:`~phoebi_lib.openworld.heads.crkd_prototype`; ``"simgcd"``, the novel slot of
            :func:`~phoebi_lib.openworld.heads.simgcd_prototypes` after ``epochs`` (30) or ``updates``.
        k: prototypes asked for; greedy clustering ignores it, Cr-KD and SimGCD have one.
        random_state: of whatever is random in the method.
        known: (K, D) prototypes of the known species; Cr-KD and SimGCD need them.
        gate: (N, T) bool, tiles that may take part (:mod:`phoebi_lib.openworld.gates`); all without it.
        labelled: images (n, T, D) and known labels (n, K); SimGCD needs them.
        min_tiles: with fewer tiles behind the gate, or fewer than five per prototype asked for, nothing is proposed:
            the answer has no rows.
        settings: of the method's function.

    Raises:
        TypeError, ValueError: features, prototypes or labels of another kind or shape or not of unit norm, an unknown
            method, more than one prototype from a method that has one, or missing ``known`` or ``labelled``.
    """
    check_choice(_OWNER, "method", method, ("greedy", *_METHODS))
    check_number(_OWNER, "k", k, 1, integer=True)
    X = check_features(X, _OWNER)
    for _ in blocks(X, _OWNER):
        pass
    if method in ("crkd", "simgcd") and k != 1:
        raise ValueError(f"{_OWNER}: {method} proposes one prototype; found k={k}")
    tiles = np.asarray(X).reshape(-1, X.shape[2])
    if gate is not None:
        gate = np.asarray(gate)
        if gate.shape != X.shape[:2] or gate.dtype != bool:
            raise ValueError(f"{_OWNER}: gate must be bool of shape {X.shape[:2]}; found {gate.dtype} {gate.shape}")
        tiles = tiles[gate.reshape(-1)]
    if len(tiles) < max(min_tiles, TILES_PER_CLUSTER * (1 if method == "greedy" else k)):
        return np.empty((0, X.shape[2]))
    if method == "greedy":
        return greedy_centroids(tiles, **settings)
    if method in ("crkd", "simgcd"):
        if known is None:
            raise ValueError(f"{_OWNER}: {method} starts from the known species; pass known=(K, D)")
        settings["known"] = torch.from_numpy(check_prototypes(known, _OWNER)).float()
    if method == "simgcd":
        if labelled is None:
            raise ValueError(f"{_OWNER}: simgcd trains on labelled images too; pass labelled=(X, Y)")
        settings["labelled"] = labelled_tiles(*labelled)
    return _METHODS[method](torch.from_numpy(np.array(tiles, dtype=np.float32)), k, random_state, **settings).numpy()


def labelled_tiles(X: np.ndarray, Y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tiles of ``X`` (n, T, D) as (n T, D) and the label bits ``Y`` (n, K) of each tile's image, float32."""
    X = check_features(X, _OWNER)
    if len(X) != len(Y):
        raise ValueError(f"{_OWNER}: {len(X)} labelled images and {len(Y)} rows of labels")
    tiles = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32).reshape(-1, X.shape[2]))
    return tiles, torch.from_numpy(np.repeat(np.asarray(Y, dtype=np.float32), X.shape[1], axis=0))


def assign(X: np.ndarray, known: np.ndarray, proposed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each image which proposed prototype it prefers, and by how much.

    An image goes to the row, known (K, D) or proposed (n, D), with the largest mean cosine over its tiles. A tie goes
    to the known species.

    Returns:
        ``slot`` (N,) int: index of the proposed row, -1 where a known species wins; ``margin`` (N,) float64: best
        proposed minus best known mean cosine, above 0 where a proposed row wins; -2 where nothing was proposed.
    """
    known = check_prototypes(known, _OWNER)
    centre = mean_tiles(X)
    if not len(proposed):
        return np.full(len(centre), -1), np.full(len(centre), -2.0)
    new = centre @ check_prototypes(proposed, _OWNER).T
    margin = new.max(axis=1) - (centre @ known.T).max(axis=1)
    return np.where(margin > 0, new.argmax(axis=1), -1), margin


def mean_tiles(X: np.ndarray) -> np.ndarray:
    """Return the mean over tiles of each image, (N, D) float64: its product with a prototype is the mean cosine."""
    X = check_features(X, _OWNER)
    return np.concatenate([block.mean(axis=1) for _, block in blocks(X, _OWNER)])


def mixture_weights(X: np.ndarray, prototypes: np.ndarray, tau: float = 10.0) -> np.ndarray:
    """Return the image score of SimplexUnmix for any prototypes (R, D): the mean over tiles of ``sparsemax(tau P z)``.

    (N, R) float64 in 0..1, each row sums to 1.
    """
    P = check_prototypes(prototypes, _OWNER)
    X = check_features(X, _OWNER, P.shape[1])
    parts = [sparsemax(torch.from_numpy(tau * (block @ P.T))).mean(dim=1).numpy() for _, block in blocks(X, _OWNER)]
    return np.concatenate(parts)


def known_calls(weights: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return which known species an image is called to hold, (N, K) 0/1: weight strictly above its threshold.

    ``weights`` (N, K + n) with any number of proposed rows after the known ones, ``thresholds`` (K,). Appending rows
    takes weight away from the known species and never adds any, so a call can only be lost.
    """
    return (weights[:, : len(thresholds)] > thresholds).astype(np.int64)


def _simgcd(
    tiles: torch.Tensor, k: int, random_state: int, *, epochs: int = 30, updates: int | None = None, **settings: Any
) -> torch.Tensor:
    if updates is None:
        batch = settings.get("batch", heads.BATCH)
        updates = epochs * heads.simgcd_steps(len(settings["labelled"][0]), batch)
    return heads.simgcd_prototypes(tiles, updates=(updates,), random_state=random_state, **settings)[updates]


_METHODS: dict[str, Callable[..., torch.Tensor]] = {
    "sinkhorn": sinkhorn_centroids,
    "uno": heads.uno_centroids,
    "crkd": lambda tiles, k, random_state, **settings: heads.crkd_prototype(tiles, **settings),
    "simgcd": _simgcd,
}
