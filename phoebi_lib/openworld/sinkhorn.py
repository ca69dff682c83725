"""Sinkhorn-Knopp clustering on the sphere: K centroids that share the tiles evenly (Section 5, Table 10)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from phoebi_lib.decoders.checks import check_number

TEMPERATURE, ROUNDS, INNER = 0.05, 30, 3
_FLOOR = 1e-8


def balance(mass: torch.Tensor, rounds: int = INNER) -> torch.Tensor:
    """Return ``mass`` (B, K) scaled towards equal shares: each of the K columns takes the same part of the B rows.

    Sinkhorn and Knopp's alternation, ``rounds`` times: columns to 1 / K, rows to 1 / B; at the end each row is scaled
    to sum to 1, so that a row is the assignment of one tile. ``mass`` holds numbers of at least 0; sums below 1e-8
    count as 1e-8.
    """
    n_rows, n_columns = mass.shape
    mass = mass / mass.sum()
    for _ in range(rounds):
        mass = mass / (n_columns * mass.sum(dim=0, keepdim=True).clamp_min(_FLOOR))
        mass = mass / (n_rows * mass.sum(dim=1, keepdim=True).clamp_min(_FLOOR))
    return mass / mass.sum(dim=1, keepdim=True).clamp_min(_FLOOR)


def spread_out(tiles: torch.Tensor, k: int, rng: np.random.Generator) -> torch.Tensor:
    """Return ``k`` of the ``tiles`` (M, D) as starting centroids (k, D), drawn as in k-means++.

    The first is uniform; each further one has a probability in proportion to (1 - its largest cosine to those drawn)^2.
    Where every tile equals a drawn one, the draw is uniform again.
    """
    chosen = [int(rng.integers(len(tiles)))]
    nearest = tiles @ tiles[chosen[0]]
    while len(chosen) < k:
        weight = (1.0 - nearest.numpy().astype(np.float64)).clip(0.0) ** 2
        total = weight.sum()
        chosen.append(int(rng.choice(len(tiles), p=weight / total if total > 0 else None)))
        nearest = torch.maximum(nearest, tiles @ tiles[chosen[-1]])
    return tiles[chosen]


def sinkhorn_centroids(
    tiles: torch.Tensor, k: int = 1, random_state: int = 0, *, rounds: int = ROUNDS, temperature: float = TEMPERATURE
) -> torch.Tensor:
    """Return ``k`` centroids (k, D) float64 of unit norm of the ``tiles`` (M, D), which have unit norm.

    From spread-out tiles on, ``rounds`` times: cosines to the centroids, ``exp(cosine / temperature)``,
    :func:`balance`, and each centroid becomes the mean of the tiles weighted by its column. One centroid takes every
    tile whole: it is the normalised mean of the tiles wherever it starts. ``random_state`` seeds the start, the only
    random part (the published runs were not seeded).

    Raises:
        ValueError: fewer tiles than centroids, or a parameter out of range.
    """
    check_number("sinkhorn", "k", k, 1, len(tiles), integer=True)
    check_number("sinkhorn", "temperature", temperature, 0, strict=True)
    centroids = spread_out(tiles, k, np.random.default_rng(random_state)).double()
    for _ in range(rounds):
        share = balance(torch.exp((tiles @ centroids.to(tiles).T).double() / temperature))
        # features stay as they are: a float64 copy of all tiles would cost more than the clustering
        sums = (share.to(tiles).T @ tiles).double()
        centroids = F.normalize(sums / (share.sum(dim=0)[:, None] + _FLOOR), dim=1)
    return centroids
