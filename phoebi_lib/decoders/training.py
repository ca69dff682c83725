"""The one training loop of the gradient decoders: permuted tile batches gathered from one array, no data loader."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch

from phoebi_lib.memory import keep_freed_blocks


def tile_rows(X: np.ndarray, device: str) -> torch.Tensor:
    """Return the tiles of ``X`` (N, T, D) as an (N*T, D) float32 tensor; on the CPU it shares memory with ``X``."""
    flat = np.ascontiguousarray(X, dtype=np.float32).reshape(-1, X.shape[2])
    with warnings.catch_warnings():
        # a read-only memory map is fine: training never writes to its features
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(flat)).to(device)


def seeds(random_state: int, n: int) -> list[int]:
    """Return ``n`` independent seeds, so that initialisation, shuffling and dropout never share a generator (D34)."""
    return [int(seed) for seed in np.random.SeedSequence(int(random_state)).generate_state(n)]


def asymmetric_loss(
    logits: torch.Tensor, labels: torch.Tensor, gamma: float = 4.0, margin: float = 0.05
) -> torch.Tensor:
    """Return the asymmetric loss of ``logits`` and 0/1 ``labels`` of one shape, mean over elements (Appendix B.2).

    A present class costs ``-log p`` (focusing 0), an absent one ``-q^gamma log(1 - q)`` with
    ``q = max(p - margin, 0)``: easy absences count for nothing. Powers and logarithms are taken of 1e-6 at the least.
    """
    p = torch.sigmoid(logits)
    q = (p - margin).clamp_min(1e-6)
    present = labels * p.clamp_min(1e-6).log()
    absent = (1.0 - labels) * q.pow(gamma) * (1.0 - q).clamp_min(1e-6).log()
    return -(present + absent).mean()


class TileMixup:
    """Mix the tiles of a batch in pairs (Appendix B.2): features in proportion, labels as the union of both.

    Each call draws one proportion from Beta(alpha, alpha) and one permutation of the batch, from a generator of its
    own. Mixed features are not brought back to unit norm.
    """

    def __init__(self, alpha: float, seed: int):
        self._alpha = alpha
        self._generator = np.random.default_rng(seed)

    def __call__(self, tiles: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mixed ``tiles`` (B, D) and ``labels`` (B, K) as new tensors."""
        share = float(self._generator.beta(self._alpha, self._alpha))
        partner = torch.from_numpy(self._generator.permutation(len(tiles))).to(tiles.device)
        return torch.lerp(tiles[partner], tiles, share), torch.maximum(labels, labels[partner])


def minimise(
    rows: torch.Tensor,
    gradient: Callable[[torch.Tensor, torch.Tensor | slice], torch.Tensor],
    optimiser: torch.optim.Optimizer,
    *,
    batch: int,
    epochs: int,
    updates: int | None,
    seed: int,
) -> tuple[np.ndarray, int]:
    """Minimise a loss over shuffled batches and return (mean loss per epoch, number of updates).

    ``gradient(tiles, index)`` returns the loss of a batch, detached, and leaves its gradient in the optimiser's
    parameters. ``rows`` (M, D) holds all tiles; ``index`` says which rows the batch is. ``epochs`` passes are made, or
    exactly ``updates`` steps where that is given. The permutations come from a CPU generator whatever the device, so
    that a CPU and a GPU see the same batches. The last batch of an epoch may be smaller.

    Raises ``FloatingPointError`` where the loss is no longer finite.
    """
    keep_freed_blocks()
    generator = torch.Generator().manual_seed(seed)
    limit = updates if updates is not None else epochs * -(-len(rows) // batch)
    history, done = [], 0
    # one buffer for all batches: a fresh one per step would spend more time on page faults than on copying
    buffer = rows.new_empty((min(batch, len(rows)), rows.shape[1]))
    while done < limit:
        total, seen = torch.zeros((), dtype=torch.float64, device=rows.device), 0
        for index in _batches(len(rows), batch, generator, rows.device):
            if done == limit:
                break
            if isinstance(index, slice):
                tiles = rows
            else:
                tiles = torch.index_select(rows, 0, index, out=buffer[: len(index)])
            optimiser.zero_grad(set_to_none=True)
            total += gradient(tiles, index) * len(tiles)
            optimiser.step()
            seen += len(tiles)
            done += 1
        history.append(float(total / seen))
        if not np.isfinite(history[-1]):
            raise FloatingPointError(f"training loss became {history[-1]} after {done} updates; lower learning_rate")
    return np.asarray(history), done


def _batches(n: int, batch: int, generator: torch.Generator, device: torch.device) -> Iterator[torch.Tensor | slice]:
    if n <= batch:
        yield slice(None)
        return
    order = torch.randperm(n, generator=generator).to(device)
    for start in range(0, n, batch):
        yield order[start : start + batch]
