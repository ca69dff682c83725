"""Metrics and their margins over the constant predictor with intervals, from rows: fast for any number of images.

Intervals resample whole combinations (Appendix C.1). The margin of a metric is its value minus that of the predictor
that marks every species, on the same images and in the same resamples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from phoebi_lib.catalogue import CODES
from phoebi_lib.intervals import Resamples
from phoebi_lib.metrics import sample_f1
from phoebi_lib.report import MARGIN

#: Mean per-sample F1, share of exact matches, mean of the species' F1; besides these, ``f1_<code>`` of one species.
METRICS = ("f1", "em", "macro_f1")


def scores(
    rows: pd.DataFrame,
    metrics: Iterable[str] = METRICS,
    *,
    unit: str | Sequence[str] = "combination",
    codes: Sequence[str] = CODES,
    n: int = 2000,
    seed: int = 0,
) -> dict[str, tuple[float, float, float]]:
    """Return ``{metric: (value, low, high)}`` of the rows of one method and part, and the same for ``<metric>_margin``.

    Values, resamples and percentiles are those of :func:`phoebi_lib.intervals.bootstrap`; but the resamples are drawn
    on sums per unit and all at once, so that no resample touches the images again.

    Args:
        rows: one row per image, with ``y_<code>``, ``pred_<code>`` (0/1) and the columns of ``unit``.
        metrics: names out of ``METRICS``, or ``f1_<code>``.
        unit: the column, or columns, that name what is resampled.
        codes: species in class order.
        n, seed: number of resamples and seed of their generator.

    Raises:
        ValueError: no rows, an unknown metric, a missing column, or rows of more than one method or part.
    """
    units = [unit] if isinstance(unit, str) else list(unit)
    needed = [*units, *(f"{kind}_{code}" for kind in ("y", "pred") for code in codes)]
    if missing := [name for name in needed if name not in rows]:
        raise ValueError(f"rows lack the columns {', '.join(missing)}; pass the rows of a protocol")
    if not len(rows):
        raise ValueError("scores need at least one row")
    for name in ("method", "part"):
        if name in rows and rows[name].nunique() > 1:
            raise ValueError(f"rows of one {name} are scored at a time; found {', '.join(sorted(set(rows[name])))}")
    known = (*METRICS, *(f"f1_{code}" for code in codes))
    wanted = list(metrics)
    if unknown := [metric for metric in wanted if metric not in known]:
        raise ValueError(f"unknown metric {', '.join(unknown)}; known: {', '.join(known)}")
    sums = _sums(rows, units, codes)
    whole = np.arange(len(sums))
    generator = np.random.default_rng(seed)
    draws = np.array([generator.choice(len(sums), size=len(sums), replace=True) for _ in range(n)])
    found = {}
    for metric in wanted:
        species = list(codes) if metric == "macro_f1" else [metric.removeprefix("f1_")]
        for name, against in ((metric, 0.0), (metric + MARGIN, 1.0)):
            value, resampled = (
                _score(sums, metric, species, chosen) - against * _score(sums, metric, species, chosen, "every_")
                for chosen in (whole, draws)
            )
            low, high = np.percentile(resampled, [2.5, 97.5])
            found[name] = (float(value), float(low), float(high))
    return found


def _sums(rows: pd.DataFrame, units: list[str], codes: Sequence[str]) -> pd.DataFrame:
    """Return per unit, in sorted order, the sums from which every metric of any resample of whole units follows.

    Columns that start with ``every_`` are those of the predictor that marks every species.
    """
    true = rows[[f"y_{code}" for code in codes]].to_numpy().astype(int)
    pred = rows[[f"pred_{code}" for code in codes]].to_numpy().astype(int)
    every = np.ones_like(true)
    sums = {"images": np.ones(len(rows)), "f1": sample_f1(true, pred), "every_f1": sample_f1(true, every),
            "em": (true == pred).all(axis=1), "every_em": true.all(axis=1)}  # fmt: skip
    for k, code in enumerate(codes):
        sums |= {f"hits_{code}": true[:, k] & pred[:, k], f"either_{code}": true[:, k] + pred[:, k],
                 f"every_hits_{code}": true[:, k], f"every_either_{code}": true[:, k] + every[:, k]}  # fmt: skip
    return pd.concat([rows[units], pd.DataFrame(sums, index=rows.index).astype(float)], axis=1).groupby(units).sum()


def _score(sums: pd.DataFrame, metric: str, species: list[str], chosen: np.ndarray, predictor: str = "") -> np.ndarray:
    """Return a metric of the units ``chosen`` (..., U) as an array (...)."""

    def over(name: str) -> np.ndarray:
        return sums[name].to_numpy()[chosen].sum(axis=-1)

    if metric in ("f1", "em"):
        return over(predictor + metric) / over("images")
    # a species that is neither present nor predicted scores 0, as in phoebi_lib.metrics
    each = [2 * over(f"{predictor}hits_{code}") / np.maximum(over(f"{predictor}either_{code}"), 1) for code in species]
    return np.mean(each, axis=0)


def auroc_scores(
    rows: pd.DataFrame,
    *,
    unit: str | Sequence[str] = "combination",
    codes: Sequence[str] = CODES,
    n: int = 2000,
    seed: int = 0,
) -> dict[str, tuple[float, float, float]]:
    """Return ``{"auroc": (value, low, high)}``, the mean over species, and ``"auroc_<code>"`` of each (Appendix C.1).

    The mean is over the species that have images with and without them in the resample; a species for which that fails
    is left out of its own interval there. Values and resamples are those of :func:`phoebi_lib.intervals.bootstrap`.

    Args:
        rows: one row per image, with ``y_<code>``, ``score_<code>`` and the columns of ``unit``.
        unit, codes, n, seed: as in :func:`scores`.

    Raises:
        ValueError: no rows, or a missing column.
    """
    if missing := [f"{kind}_{code}" for kind in ("y", "score") for code in codes if f"{kind}_{code}" not in rows]:
        raise ValueError(f"rows lack the columns {', '.join(missing)}; pass the rows of a protocol")
    resamples = Resamples(rows, unit, n, seed)
    each = np.array([resamples.auroc(rows[f"y_{code}"], rows[f"score_{code}"]) for code in codes])
    found = {"auroc": resamples.interval(mean_defined(each))}
    return found | {f"auroc_{code}": resamples.interval(line) for code, line in zip(codes, each, strict=True)}


def mean_defined(each: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Return the mean over the first axis of what is not NaN, NaN where nothing is."""
    each = np.asarray(each, dtype=np.float64)
    defined = ~np.isnan(each)
    count = defined.sum(axis=0)
    total = np.where(defined, each, 0.0).sum(axis=0)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
