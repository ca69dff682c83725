"""Bootstrap intervals over combinations (Appendix C.1).

Every image of a combination carries the same label, so the unit that is resampled is the combination, or the pair
(partition, combination) when several partitions are pooled, never the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral

import numpy as np
import pandas as pd

Metric = Callable[[pd.DataFrame], float]


def bootstrap(
    rows: pd.DataFrame, metric: Metric | str, unit: str | Sequence[str], n: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Return a metric with its 95 % percentile interval.

    Each resample draws as many units as there are, with replacement (``numpy.random.default_rng(seed).choice`` over the
    sorted unit names), and takes all rows of each drawn unit, as often as it was drawn. Two calls with the same units,
    ``n`` and ``seed`` see the same resamples, so a metric and its margin can be compared.

    Args:
        rows: one row per image (and method).
        metric: a function of such a table that returns a number; or the name of a numeric column, for its mean over
            rows, which is computed from sums per unit (thousands of times faster, equal up to rounding).
        unit: the column that names the unit, or several columns that name it together.
        n: number of resamples.
        seed: of the generator.

    Returns:
        ``(value, low, high)``: the metric on all rows, and the 2.5 and 97.5 percentiles (linear) over the resamples in
        which it is defined; NaN where it is defined in none.

    Raises:
        TypeError: ``unit`` names cannot be sorted, or ``metric`` is neither a function nor a column name.
        ValueError: no rows, a missing column, a missing unit name, or ``n`` below 1.
    """
    if not len(rows):
        raise ValueError("bootstrap needs at least one row")
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        raise ValueError(f"n, the number of resamples, must be an integer from 1 on, got {n!r}")
    positions = list(_units(rows, [unit] if isinstance(unit, str) else list(unit)).values())
    generator = np.random.default_rng(seed)
    draws = [generator.choice(len(positions), size=len(positions), replace=True) for _ in range(n)]
    if isinstance(metric, str):
        value, values = _means(rows, metric, positions, np.array(draws))
    elif callable(metric):
        value = float(metric(rows))
        values = np.array([float(metric(rows.iloc[np.concatenate([positions[u] for u in draw])])) for draw in draws])
    else:
        raise TypeError(f"metric must be a function of the rows or the name of a column, got {metric!r}")
    values = values[~np.isnan(values)]
    if not values.size:
        return value, float("nan"), float("nan")
    low, high = np.percentile(values, [2.5, 97.5])
    return value, float(low), float(high)


def _units(rows: pd.DataFrame, columns: list[str]) -> dict[tuple, np.ndarray]:
    """Return row positions by unit, units in sorted order."""
    missing = [column for column in columns if column not in rows.columns]
    if missing or not columns:
        raise ValueError(f"rows lack the unit column {', '.join(missing) or '(none given)'}; pass columns they have")
    if rows[columns].isna().any(axis=None):
        raise ValueError(f"a row has no {' or '.join(columns)}, so it belongs to no unit")
    groups: dict[tuple, list[int]] = {}
    for position, key in enumerate(zip(*(rows[column].tolist() for column in columns), strict=True)):
        groups.setdefault(key, []).append(position)
    return {key: np.array(groups[key]) for key in sorted(groups)}


def _means(rows: pd.DataFrame, column: str, positions: list[np.ndarray], draws: np.ndarray) -> tuple[float, np.ndarray]:
    if column not in rows.columns:
        raise ValueError(f"rows lack the column {column!r}; pass a column they have, or a function")
    values = rows[column].to_numpy(dtype=np.float64)
    sums = np.array([values[unit].sum() for unit in positions])
    sizes = np.array([unit.size for unit in positions])
    return float(values.mean()), sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)


def unit_counts(n_units: int, n: int, seed: int = 0) -> np.ndarray:
    """Return how often each unit is drawn, (n + 1, U) float64: ones (the table itself), then ``n`` resamples.

    The draws are those of :func:`bootstrap` over as many units in sorted order.
    """
    generator = np.random.default_rng(seed)
    draws = [generator.choice(n_units, size=n_units, replace=True) for _ in range(n)]
    return np.array([np.ones(n_units), *(np.bincount(draw, minlength=n_units) for draw in draws)])


class Resamples:
    """Resamples of whole units, drawn once, on which sums, ratios of sums and AUROCs are computed all at once.

    The draws are those of :func:`bootstrap` for the same rows, ``unit``, ``n`` and ``seed``, so that numbers from both
    may be compared, and differences between numbers from one object are paired. Entry 0 of every result belongs to the
    table itself, entries 1 to ``n`` to the resamples; :meth:`interval` turns such a result into what ``bootstrap``
    returns.

    Attributes:
        unit: (N,) the position of each row's unit among the U units in sorted order.
        counts: (n + 1, U) float64, how often each unit was drawn; ones in entry 0.

    Raises ValueError as :func:`bootstrap`.
    """

    def __init__(self, rows: pd.DataFrame, unit: str | Sequence[str], n: int = 2000, seed: int = 0) -> None:
        if not len(rows):
            raise ValueError("resamples need at least one row")
        if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
            raise ValueError(f"n, the number of resamples, must be an integer from 1 on, got {n!r}")
        positions = list(_units(rows, [unit] if isinstance(unit, str) else list(unit)).values())
        self.unit = np.empty(len(rows), dtype=np.int64)
        for u, members in enumerate(positions):
            self.unit[members] = u
        self.counts = unit_counts(len(positions), n, seed)

    def per_unit(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of ``values`` (N,), one number per row, over the rows of each unit, (U,)."""
        values = np.asarray(values, dtype=np.float64)
        if values.shape != self.unit.shape:
            raise ValueError(f"expected one number for each of {len(self.unit)} rows, got shape {values.shape}")
        return np.bincount(self.unit, weights=values, minlength=self.counts.shape[1])

    def total(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of ``values`` (N,) over the rows of the table and of each resample, (n + 1,)."""
        return self.counts @ self.per_unit(values)

    def ratio(self, numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
        """Return the sum of one (N,) array over the sum of another, (n + 1,): a mean, share or rate. NaN for x / 0."""
        below = self.total(denominator)
        return np.divide(self.total(numerator), below, out=np.full(len(below), np.nan), where=below > 0)

    def auroc(self, true: np.ndarray, score: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the AUROC of ``score`` (M,) for ``true`` (M,) 0/1, (n + 1,); NaN where only one class was drawn.

        Both belong to ``rows`` of the table, by default all: AUROCs of several groups of rows see the same resamples.

        The AUROC is the share of (positive, negative) pairs of images in the right order, ties counting half. Those
        pairs are counted once for every pair of units; a resample weights the counts by how often it drew both units,
        which is exact and needs no new ranking.
        """
        positive, score = np.asarray(true).astype(bool), np.asarray(score, dtype=np.float64)
        unit, n_units = self.unit[rows], self.counts.shape[1]
        pairs = np.zeros((n_units, n_units))
        for u in np.unique(unit[positive]):
            own = np.sort(score[positive & (unit == u)])
            ties_and_below = np.searchsorted(own, score, "left") + np.searchsorted(own, score, "right")
            won = np.where(positive, 0, len(own) - ties_and_below / 2)
            pairs[u] = np.bincount(unit, weights=won, minlength=n_units)
        right = (self.counts @ pairs * self.counts).sum(axis=1)
        holds, lacks = (np.bincount(unit[chosen], minlength=n_units) for chosen in (positive, ~positive))
        every = (self.counts @ holds) * (self.counts @ lacks)
        return np.divide(right, every, out=np.full(len(every), np.nan), where=every > 0)

    @staticmethod
    def interval(values: np.ndarray) -> tuple[float, float, float]:
        """Return ``(value, low, high)`` of a result (n + 1,): entry 0 and the 2.5 and 97.5 percentiles of the others.

        Resamples in which the number is not defined are left out; NaN where it is defined in none.
        """
        value, resampled = float(values[0]), values[1:][~np.isnan(values[1:])]
        if not resampled.size:
            return value, float("nan"), float("nan")
        low, high = np.percentile(resampled, [2.5, 97.5])
        return value, float(low), float(high)
