"""SimplexUnmix, LCO recipe: seconds per 200,000 tiles against a per-tile DataLoader with the same batches and losses.

``python benchmarks/simplex_unmix.py [--tiles 200000] [--features 384]`` prints one table; the ratio is what counts,
since both run here, one after the other, on the same threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from phoebi_lib.decoders import SimplexUnmix, sparsemax
from phoebi_lib.decoders.prototypes import hybrid_prototypes
from phoebi_lib.decoders.simplex_unmix import RECIPES
from phoebi_lib.decoders.training import seeds

TILES_PER_IMAGE = 16


class TileDataset(Dataset):
    """One tile an item, the usual way."""

    def __init__(self, X: np.ndarray):
        self.tiles = torch.from_numpy(X.reshape(-1, X.shape[2]))

    def __len__(self) -> int:
        return len(self.tiles)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tiles[index]


class Permutation:
    """A sampler that draws the permutations :class:`SimplexUnmix` draws."""

    def __init__(self, n: int, seed: int):
        self.n, self.generator = n, torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.n

    def __iter__(self):
        return iter(torch.randperm(self.n, generator=self.generator).tolist())


def by_loader(X: np.ndarray, Y: np.ndarray, epochs: int, seed: int, tau: float = 10.0) -> list[float]:
    """Train as published with a per-tile loader and the reconstruction written out; return the loss of each epoch."""
    start, _ = hybrid_prototypes(X, Y)
    raw = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    optimiser = torch.optim.Adam([raw], lr=1e-3)
    loader = DataLoader(
        TileDataset(X), batch_size=RECIPES["lco"][0], sampler=Permutation(X.shape[0] * X.shape[1], seeds(seed, 1)[0])
    )
    history = []
    for _ in range(epochs):
        total = 0.0
        for tiles in loader:
            unit = torch.nn.functional.normalize(raw, dim=1)
            residual = tiles - sparsemax(tau * tiles @ unit.T) @ unit
            loss = residual.square().sum(dim=1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item() * len(tiles)
        history.append(total / len(loader.dataset))
    return history


def features(n_tiles: int, n_features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random mixtures of six directions as X (N, 16, D) of unit norm and their labels Y (N, 6)."""
    rng = np.random.default_rng(seed)
    n_images = n_tiles // TILES_PER_IMAGE
    Y = np.zeros((n_images, 6), dtype=np.int64)
    Y[np.arange(n_images), np.arange(n_images) % 6] = 1
    Y[n_images // 2 :] |= rng.random((n_images - n_images // 2, 6)) < 0.3
    X = (Y @ rng.normal(size=(6, n_features)))[:, None] + rng.normal(size=(n_images, TILES_PER_IMAGE, n_features))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    return X.astype(np.float32), Y


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return (seconds, result) of one call."""
    clock = time.perf_counter()
    result = call()
    return time.perf_counter() - clock, result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    X, Y = features(arguments.tiles, arguments.features)
    by_loader(X[:64], Y[:64], 1, 0)  # the first step of a process pays for imports and memory
    # both start from the same closed-form prototypes, which are not part of an epoch
    start, _ = timed(lambda: SimplexUnmix(epochs=0).fit(X, Y))
    loader, losses = timed(lambda: by_loader(X, Y, arguments.epochs, seed=0))
    ours, decoder = timed(lambda: SimplexUnmix(recipe="lco", epochs=arguments.epochs, random_state=0).fit(X, Y))
    loader, ours = ((seconds - start) / arguments.epochs for seconds in (loader, ours))
    print(f"{arguments.tiles} tiles x {arguments.features} features, {torch.get_num_threads()} thread(s)")
    print(f"  closed-form start   {start:7.3f} s")
    print(f"  per-tile DataLoader {loader:7.3f} s per epoch")
    print(f"  SimplexUnmix        {ours:7.3f} s per epoch")
    print(f"  ratio {loader / ours:.1f} (to reach: 6)")
    print(f"  largest difference of an epoch's loss: {np.abs(decoder.losses_ - losses).max():.1e}")


if __name__ == "__main__":
    main()
