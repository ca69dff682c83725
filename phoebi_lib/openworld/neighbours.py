"""Nearest training tiles, combination by combination: one search serves every choice of left-out species.

Leaving species out removes whole combinations from the bank. The k nearest tiles within each combination are therefore
enough to know the k-th nearest among any set of combinations, and each pair of tiles is compared once, not once a fold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from phoebi_lib.openworld.knn import largest_cosines
from phoebi_lib.pool import Pool

#: Query tiles searched at a time; with forty combinations and k = 10 their neighbours take 210 MB.
TILES_AT_A_TIME = 2**17


class Banks:
    """The training tiles of a pool, one bank per combination.

    Attributes:
        sizes: number of tiles by combination, in sorted order.
    """

    def __init__(self, pool: Pool, rows: np.ndarray, k: int, device: str = "cpu", cap: int | None = None) -> None:
        """Prepare the tiles of the images ``rows`` for a search of ``k`` neighbours on a torch device.

        ``cap`` keeps so many tiles at most, drawn at random with seed 1337 over all combinations.
        """
        self.pool, self.k, self.device = pool, k, device
        rows = np.asarray(rows)
        n_tiles = pool.raw.shape[1]
        kept = np.ones(len(rows) * n_tiles, dtype=bool)
        if cap is not None and cap < kept.size:
            kept[np.random.default_rng(1337).permutation(kept.size)[cap:]] = False
        kept = kept.reshape(len(rows), n_tiles)
        names = pool.manifest["combination"].to_numpy()[rows]
        self._rows = {name: rows[names == name] for name in sorted(set(names))}
        self._kept = {name: kept[names == name] for name in self._rows}
        self.sizes = {name: int(mask.sum()) for name, mask in self._kept.items()}

    def nearest(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Return, by combination, the k largest cosines of each tile of ``X`` (N, T, D): (N, T, k) or fewer."""
        queries = X.reshape(-1, X.shape[2])
        found = {}
        for name, rows in self._rows.items():
            bank = self.pool.take(rows)[self._kept[name]]
            if len(bank):
                cosines = largest_cosines(queries, bank, self.k, device=self.device)
                found[name] = cosines.reshape(*X.shape[:2], -1)
        return found


def knn_distance(nearest: Mapping[str, np.ndarray], combinations: Collection[str], k: int) -> np.ndarray:
    """Return 1 minus the k-th largest cosine over the tiles of ``combinations``, (N, T) float64.

    ``nearest`` is what :meth:`Banks.nearest` gives. Raises ValueError where these hold fewer than ``k`` tiles.
    """
    chosen = [nearest[name] for name in combinations if name in nearest]
    found = np.concatenate(chosen, axis=2) if chosen else np.empty((0, 0, 0))
    if found.shape[2] < k:
        raise ValueError(f"k-NN: the bank of {len(chosen)} combinations holds fewer than k = {k} tiles; lower k")
    return 1.0 - np.partition(found, found.shape[2] - k, axis=2)[..., found.shape[2] - k].astype(np.float64)
