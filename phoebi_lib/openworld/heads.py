"""Gradient heads of discovery: UNO-style, SimGCD-style, and class-relation distillation (Section 5, Appendix D.3).

All start from Sinkhorn-Knopp centroids on frozen features and are written after the paper's description; "style" says
that they are adaptations, without the augmentations and the backbone training of the methods they are named after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
import torch.nn.functional as F

from phoebi_lib.decoders.simplex_unmix import sparsemax
from phoebi_lib.openworld.sinkhorn import balance, sinkhorn_centroids

BATCH = 4096
_UNO_SCALE, _SIMGCD_TEMPERATURE, _TAU = 10.0, 0.1, 10.0


def uno_loss(centroids: torch.Tensor, tiles: torch.Tensor, assigned: torch.Tensor) -> torch.Tensor:
    """Return the mean binary cross-entropy between ``10 cosine`` (M, k) and the one-hot ``assigned`` (M, k)."""
    logits = _UNO_SCALE * tiles @ F.normalize(centroids, dim=1).T
    return F.binary_cross_entropy_with_logits(logits, assigned)


def uno_centroids(
    tiles: torch.Tensor, k: int = 1, random_state: int = 0, *, steps: int = 100, learning_rate: float = 1e-2
) -> torch.Tensor:
    """Return ``k`` prototypes (k, D) float64 of unit norm: Sinkhorn centroids refined on their own hard assignments.

    Each tile is assigned once to the centroid of largest cosine; then ``steps`` full-batch Adam steps on
    :func:`uno_loss`. Appendix D.3 speaks of a linear head whose normalised weights are the prototypes: the weights are
    these centroids. With k = 1 every tile is a positive and nothing a negative.
    """
    start = sinkhorn_centroids(tiles, k, random_state).to(tiles)
    assigned = F.one_hot((tiles @ start.T).argmax(dim=1), k).to(tiles)
    return F.normalize(_descend(start, lambda c: uno_loss(c, tiles, assigned), steps, learning_rate).double(), dim=1)


def crkd_loss(row: torch.Tensor, known: torch.Tensor, tiles: torch.Tensor, weight: float) -> torch.Tensor:
    """Return the error of rebuilding ``tiles`` (M, D) from ``known`` (K, D) and a new ``row`` (1, D), plus a penalty.

    Both are read through the simplex: ``w = sparsemax(10 P z)``. The error is the mean over tiles and features of the
    squared residual. The penalty, a distillation, is ``weight`` times the mean over tiles and known species of
    ``gate (w - teacher)^2``: the teacher is the reading without the new row, the gate the tile's share of known species
    divided by its mean over tiles, taken as a constant.
    """
    return _crkd(row, known, tiles, tiles @ known.T, weight)


def _crkd(
    row: torch.Tensor, known: torch.Tensor, tiles: torch.Tensor, cosines: torch.Tensor, weight: float
) -> torch.Tensor:
    P = torch.cat([known, F.normalize(row, dim=1)])
    every = torch.cat([cosines, tiles @ P[-1:].T], dim=1)
    w = sparsemax(_TAU * every)
    # |z - P'w|^2 = |z|^2 - 2 w.Pz + w'PP'w: the reconstruction, D numbers a tile, is never formed
    error = (tiles.square().sum(dim=1) + (w * (w @ (P @ P.T) - 2.0 * every)).sum(dim=1)).mean() / tiles.shape[1]
    kept, teacher = w[:, :-1], sparsemax(_TAU * cosines)
    mass = kept.detach().sum(dim=1, keepdim=True)
    gate = mass / mass.mean().clamp_min(1e-8)
    return error + weight * (gate * (kept - teacher).square()).mean()


def crkd_prototype(
    tiles: torch.Tensor, known: torch.Tensor, *, weight: float = 1e-3, steps: int = 100, learning_rate: float = 1e-3
) -> torch.Tensor:
    """Return one prototype (1, D) float64 of unit norm: the Sinkhorn centroid at K = 1 refined on :func:`crkd_loss`.

    ``steps`` full-batch Adam steps on the new row; the rows of ``known`` (K, D) stay. Nothing is random.
    """
    start = sinkhorn_centroids(tiles, 1).to(tiles)
    known = known.to(tiles)
    cosines = tiles @ known.T
    row = _descend(start, lambda r: _crkd(r, known, tiles, cosines, weight), steps, learning_rate)
    return F.normalize(row.double(), dim=1)


def simgcd_loss(labelled: torch.Tensor, bits: torch.Tensor, unlabelled: torch.Tensor) -> torch.Tensor:
    """Return the SimGCD-style loss from cosines to the head: half supervised, half on balanced pseudo-labels.

    Args:
        labelled: (B, K + 1) cosines of labelled tiles to the K known slots and the novel one.
        bits: (B, K) 0/1, which known species the tile's image holds; the novel slot has no supervised term.
        unlabelled: (U, K + 1) cosines of test tiles. Their pseudo-label is the softmax at temperature 0.1, balanced so
            that the slots share the tiles evenly, taken as a constant.
    """
    supervised = F.binary_cross_entropy_with_logits(labelled[:, :-1] / _SIMGCD_TEMPERATURE, bits)
    with torch.no_grad():
        pseudo = balance(torch.softmax(unlabelled / _SIMGCD_TEMPERATURE, dim=1))
    assigned = -(pseudo * torch.log_softmax(unlabelled / _SIMGCD_TEMPERATURE, dim=1)).sum(dim=1).mean()
    return 0.5 * supervised + 0.5 * assigned


def simgcd_steps(n_tiles: int, batch: int = BATCH) -> int:
    """Return the optimiser steps of one epoch over ``n_tiles`` labelled tiles."""
    return -(-n_tiles // batch)


def simgcd_prototypes(
    tiles: torch.Tensor,
    known: torch.Tensor,
    labelled: tuple[torch.Tensor, torch.Tensor],
    *,
    updates: Iterable[int],
    learning_rate: float = 1e-2,
    random_state: int = 0,
    batch: int = BATCH,
) -> dict[int, torch.Tensor]:
    """Train the SimGCD-style head once and return its novel slot (1, D) float64 of unit norm after so many ``updates``.

    The head's K + 1 rows start at ``known`` (K, D) and at the Sinkhorn centroid of ``tiles`` (M, D), the unlabelled
    test tiles; all are trained with Adam and normalised before use. Each step takes the next ``batch`` of the labelled
    tiles (a new order every epoch) and ``batch`` test tiles drawn with replacement, and descends :func:`simgcd_loss`.
    After 0 updates the slot is the Sinkhorn centroid. The supervised contrastive term of the original needs augmented
    pictures and is left out, as in the paper.

    Args:
        labelled: tiles (L, D) and their known label bits (L, K).
        updates: numbers of steps at which to look; the run is as long as the largest. One epoch is
            :func:`simgcd_steps` of them.
        random_state: of order and draws.
    """
    wanted = sorted(set(updates))
    if not wanted or wanted[0] < 0:
        raise ValueError(f"updates must name at least one number of steps from 0 on; found {wanted}")
    generator = torch.Generator().manual_seed(int(random_state))
    start = torch.cat([known.to(tiles), sinkhorn_centroids(tiles, 1).to(tiles)])
    head = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([head], lr=learning_rate)
    batches = _endless(len(labelled[0]), batch, generator)
    found = {0: start[-1:].clone()} if wanted[0] == 0 else {}
    for done in range(1, wanted[-1] + 1):
        rows = next(batches)
        draw = torch.randint(len(tiles), (batch,), generator=generator)
        unit = F.normalize(head, dim=1)
        # few tiles are read once and then drawn from, many are drawn and then read: the same cosines either way
        unlabelled = (tiles @ unit.T)[draw] if len(tiles) < batch else tiles[draw] @ unit.T
        loss = simgcd_loss(labelled[0][rows] @ unit.T, labelled[1][rows], unlabelled)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if done in wanted:
            found[done] = head.detach()[-1:].clone()
    return {done: F.normalize(row.double(), dim=1) for done, row in found.items()}


def _endless(n: int, batch: int, generator: torch.Generator) -> Iterator[torch.Tensor | slice]:
    """Yield batches of row positions, epoch after epoch in a new order; everything at once is not copied."""
    while True:
        if n <= batch:
            yield slice(None)
        else:
            yield from torch.randperm(n, generator=generator).split(batch)


def _descend(
    start: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor], steps: int, learning_rate: float
) -> torch.Tensor:
    raw = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([raw], lr=learning_rate)
    for step in range(steps):
        optimiser.zero_grad(set_to_none=True)
        value = loss(raw)
        value.backward()
        optimiser.step()
        if not np.isfinite(value.item()):
            raise FloatingPointError(f"the loss became {value.item()} at step {step}; lower learning_rate")
    return raw.detach()
