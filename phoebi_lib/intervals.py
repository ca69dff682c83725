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
