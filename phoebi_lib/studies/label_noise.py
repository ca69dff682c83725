"""Table 14: how often a culture-level label overstates a field, bounded by miss rates and, in simulation, counted.

A *miss* is an image whose label holds a species that the decoder does not call. In a pure culture every field shows the
species, so that a miss is the decoder's error; in a mixture the species may be absent from the field. Beyond that error
the miss rate in mixtures bounds the share of fields without the species (Appendix A.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import beta

from phoebi_lib import report

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset

#: Tidy columns of Table 14 beside those that the paper prints (``fnr_pure``, ``fnr_mixtures``, ``upper_bound``).
DIFFERENCE, TRUE_MISS, EXCESS = "difference", "true_miss", "difference_minus_true"
_LEVELS = (2.5, 97.5)


def field_counts(dataset: Dataset) -> np.ndarray | None:
    """Return how many cells of each species every image shows, int (N, K), or None where nobody has counted them.

    A simulated data set has the file ``cells.csv`` beside its images; published images have none.

    Raises:
        ValueError: the file does not list every image of the data set, so that it belongs to other images.
    """
    path = Path(dataset.images).parent / "cells.csv"
    if not path.is_file():
        return None
    counts = pd.read_csv(path).set_index("path")[list(dataset.codes)]
    missing = [name for name in dataset.manifest["path"] if name not in counts.index]
    if missing:
        raise ValueError(f"{path} counts no cells for {missing[0]} ({len(missing)} images in all); simulate them again")
    return counts.loc[dataset.manifest["path"]].to_numpy()


def misses(rows: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """Return one line per image and labelled species: ``species, combination, frame, order, missed``.

    ``rows`` has one row per image with ``combination``, ``frame`` and, per species, ``y_<code>`` and ``pred_<code>``.
    ``order`` is the number of species of the image's label, ``missed`` 1 where the species is not called.
    """
    order = rows[[f"y_{code}" for code in codes]].sum(axis=1)
    lines = []
    for code in codes:
        chosen = rows[f"y_{code}"] == 1
        lines.append(rows.loc[chosen, ["combination", "frame"]].assign(
            species=code, order=order[chosen], missed=1 - rows.loc[chosen, f"pred_{code}"]))  # fmt: skip
    return pd.concat(lines, ignore_index=True)


def binomial_interval(rate: float, n: int) -> tuple[float, float]:
    """Return the 95 % Jeffreys interval of a rate seen in ``n`` independent fields; an end at 0 or 1 stays there.

    Unlike a bootstrap it has a width where the rate is 0 or 1. ``rate * n`` need not be whole: the crops of a frame are
    averaged first, and frames are the n.
    """
    hits = rate * n
    low, high = beta.ppf([0.025, 0.975], hits + 0.5, n - hits + 0.5)
    return (0.0 if hits == 0 else float(low)), (1.0 if hits == n else float(high))


def table_14(
    pure: pd.DataFrame,
    mixtures: pd.DataFrame,
    codes: Sequence[str],
    *,
    absent: np.ndarray | None = None,
    n: int = 2000,
    seed: int = 0,
    **run: Any,
) -> pd.DataFrame:
    """Return Table 14 as a tidy table: rows are the species and "mean".

    Columns: ``fnr_pure`` and ``fnr_mixtures``, the miss rates; ``difference``, mixtures minus pure; ``upper_bound``,
    the difference where it is positive, else 0, and in the row "mean" the mean over species of the bounds; with
    ``absent`` also ``true_miss``, the share of the same images of mixtures in which a labelled species has no cell, and
    ``difference_minus_true``. A bound is never below its difference; only the difference can tell whether the bound
    exceeds the true rate, since resamples of a number that cannot be negative lie above 0 by construction.

    Intervals: 95 %. Mixtures are resampled by whole combination, all species together; the rate in pure cultures, where
    one culture gives few fields and often no miss, varies as its Jeffreys posterior over frames. In the row "mean" all
    pure frames together give that posterior, and what it adds to the pooled rate is added to each species' rate. A true
    rate has the Jeffreys interval over frames.

    Args:
        pure, mixtures: rows of images of pure cultures and of mixtures, as for :func:`misses`, with ``evidence``.
        codes: species in class order.
        absent: bool (N, K), of the images of ``mixtures``: the label holds the species and the image has none.
        n, seed: number of resamples and seed of their generator.
        run: ``profile``, ``dataset``, ``encoder`` for the table's lines.

    Raises:
        ValueError: an image of ``pure`` has more than one species or of ``mixtures`` fewer than two, or a species
            lacks images in either.
    """
    alone, mixed = misses(pure, codes), misses(mixtures, codes)
    if (alone["order"] != 1).any() or (mixed["order"] < 2).any():
        raise ValueError("pure must hold images of one species each, mixtures images of two or more")
    for name, table in (("pure", alone), ("mixtures", mixed)):
        if lacking := sorted(set(codes) - set(table["species"])):
            raise ValueError(f"{name} holds no image of {', '.join(lacking)}; pass images of every species")
    frames = {code: part.groupby(["combination", "frame"])["missed"].mean() for code, part in alone.groupby("species")}
    rate_pure = np.array([frames[code].mean() for code in codes])
    n_pure = np.array([len(frames[code]) for code in codes])
    sums = mixed.pivot_table(index="combination", columns="species", values="missed", aggfunc=["sum", "count"])
    missed, positives = (sums[kind].reindex(columns=codes).fillna(0).to_numpy() for kind in ("sum", "count"))
    rate_mixed = missed.sum(axis=0) / positives.sum(axis=0)

    generator = np.random.default_rng(seed)
    draws = np.array([generator.choice(len(missed), size=len(missed), replace=True) for _ in range(n)])
    with np.errstate(invalid="ignore"):  # a species may be in no combination of a resample
        drawn_mixed = missed[draws].sum(axis=1) / positives[draws].sum(axis=1)
    drawn_pure = generator.beta(rate_pure * n_pure + 0.5, (1 - rate_pure) * n_pure + 0.5, size=(n, len(codes)))
    hits, frames_in_all = (rate_pure * n_pure).sum(), n_pure.sum()
    pooled = generator.beta(hits + 0.5, frames_in_all - hits + 0.5, size=(n, 1)) - hits / frames_in_all
    drawn_mean = drawn_mixed - rate_pure - pooled
    bound = np.maximum(rate_mixed - rate_pure, 0)

    common = {"evidence": mixtures["evidence"].iloc[0], "partition": "random"}
    lines = []
    for k, code in enumerate(codes):
        images = mixtures[mixtures[f"y_{code}"] == 1]
        of_pure = {**_sizes(pure[pure[f"y_{code}"] == 1]), "row": code, **common}
        of_mixed = {**_sizes(images), "row": code, **common}
        lines.append({**of_pure, **_value("fnr_pure", rate_pure[k], binomial_interval(rate_pure[k], n_pure[k]))})
        lines.append({**of_mixed, **_value("fnr_mixtures", rate_mixed[k], _ends(drawn_mixed[:, k]))})
        difference = drawn_mixed[:, k] - drawn_pure[:, k]
        lines.append({**of_mixed, **_value(DIFFERENCE, rate_mixed[k] - rate_pure[k], _ends(difference))})
        lines.append({**of_mixed, **_value("upper_bound", bound[k], _ends(np.maximum(difference, 0)))})
        if absent is not None:
            mine = absent[:, k][(mixtures[f"y_{code}"] == 1).to_numpy()]
            lines.append({**of_mixed, **_true(mine.mean(), of_mixed["n_frames"])})
            excess = rate_mixed[k] - rate_pure[k] - mine.mean()
            lines.append({**of_mixed, **_value(EXCESS, excess, _ends(difference - mine.mean()))})
    whole = {**_sizes(mixtures), "row": "mean", **common}
    lines.append({**whole, **_value("upper_bound", bound.mean(), _ends(np.nanmean(np.maximum(drawn_mean, 0), axis=1)))})
    difference, signed = np.nanmean(drawn_mean, axis=1), (rate_mixed - rate_pure).mean()
    lines.append({**whole, **_value(DIFFERENCE, signed, _ends(difference))})
    if absent is not None:
        labelled = mixtures[[f"y_{code}" for code in codes]].to_numpy() == 1
        true = (absent & labelled).sum(axis=0) / labelled.sum(axis=0)
        lines.append({**whole, **_true(true.mean(), whole["n_frames"])})
        lines.append({**whole, **_value(EXCESS, signed - true.mean(), _ends(difference - true.mean()))})
    return report.add_paper(report.table(lines, table="14", **run), 14)


def _true(rate: float, n_frames: int) -> dict[str, Any]:
    return _value(TRUE_MISS, rate, binomial_interval(float(rate), n_frames))


def _value(column: str, value: float, ends: tuple[float, float]) -> dict[str, Any]:
    return {"column": column, "value": float(value), "low": ends[0], "high": ends[1]}


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = np.nanpercentile(values, _LEVELS)
    return float(low), float(high)


def _sizes(rows: pd.DataFrame) -> dict[str, int]:
    return {"n_images": len(rows), "n_frames": len(rows[["combination", "frame"]].drop_duplicates()),
            "n_combinations": rows["combination"].nunique()}  # fmt: skip
