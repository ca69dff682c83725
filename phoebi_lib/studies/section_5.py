"""What the running text of Section 5 says of the decoders, as differences on the same images with intervals.

Tables 6 and 8 print one number a decoder. The claims are about orders and changes, and those are sharper image by
image: what two decoders share, the mixture and the picture, cancels (Appendix C.1 has the unit of resampling).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from phoebi_lib import report
from phoebi_lib.intervals import Resamples
from phoebi_lib.metrics import sample_f1
from phoebi_lib.scoring import scores

#: Rows of "6 paired": (first, second) method, first minus second.
HELD_OUT_PAIRS: Mapping[str, tuple[str, str]] = {
    "SimplexUnmix trained minus untrained": ("SimplexUnmix", "SimplexUnmix (init only)"),
    "ChannelGroup trained minus untrained": ("ChannelGroup", "ChannelGroup (init only)"),
    "ChannelGroup, 2,000 updates, minus untrained": ("ChannelGroup (2,000 updates)", "ChannelGroup (init only)"),
    "SimplexUnmix minus ChannelGroup": ("SimplexUnmix", "ChannelGroup"),
    "ProtoMatch minus ChannelGroup": ("ProtoMatch", "ChannelGroup"),
    "SimplexUnmix untrained minus constant": ("SimplexUnmix (init only)", "AllPresent"),
    "ProtoMatch minus constant": ("ProtoMatch", "AllPresent"),
}
#: Rows of "8 paired".
IN_DISTRIBUTION_PAIRS: Mapping[str, tuple[str, str]] = {
    "ChannelGroup minus SimplexUnmix": ("ChannelGroup", "SimplexUnmix"),
    "ChannelGroup minus ProtoMatch": ("ChannelGroup", "ProtoMatch"),
}
SPECIES_METHODS = ("SimplexUnmix", "ProtoMatch", "ChannelGroup")


def held_out_pairs(rows: pd.DataFrame, codes: Sequence[str], n: int = 2000) -> pd.DataFrame:
    """Return the tidy table "6 paired": mean F1 of one method minus another's, columns ``val_f1`` and ``heldout_f1``.

    ``rows`` holds the methods of ``HELD_OUT_PAIRS`` on one or more partitions, pooled; resampled are (partition,
    combination) pairs, ``n`` times.
    """
    lines = []
    for part, column in (("val", "val_f1"), ("test", "heldout_f1")):
        mine = rows[rows["part"] == part]
        calls = _calls(mine, codes)
        resamples = Resamples(calls["AllPresent"].index.to_frame(index=False), ["partition", "combination"], n)
        for row, (first, second) in HELD_OUT_PAIRS.items():
            one, two = (_metrics(resamples, calls[name])["per_sample_f1"] for name in (first, second))
            updates = int(mine.loc[mine["method"] == first, "updates"].iloc[0])
            lines.append({"row": row, "column": column, "updates": updates, **_sizes(mine),
                          **_interval(resamples, one - two)})  # fmt: skip
    return _tidy(lines, "6 paired", rows)


def in_distribution_pairs(rows: pd.DataFrame, codes: Sequence[str], n: int = 2000) -> pd.DataFrame:
    """Return the tidy table "8 paired": per-sample F1, macro F1 and exact match of one method minus another's.

    ``rows`` holds the methods of ``IN_DISTRIBUTION_PAIRS`` on the random split; of these the test images count.
    Combinations are resampled, ``n`` times. Columns are named as in Table 8.
    """
    test = rows[rows["part"] == "test"]
    calls = _calls(test, codes)
    resamples = Resamples(next(iter(calls.values())).index.to_frame(index=False), "combination", n)
    lines = []
    for row, (first, second) in IN_DISTRIBUTION_PAIRS.items():
        one, two = (_metrics(resamples, calls[name]) for name in (first, second))
        updates = int(test.loc[test["method"] == first, "updates"].iloc[0])
        lines += [{"row": row, "column": column, "updates": updates, **_sizes(test),
                   **_interval(resamples, one[column] - two[column])} for column in one]  # fmt: skip
    return _tidy(lines, "8 paired", rows)


def species(rows: pd.DataFrame, codes: Sequence[str], n: int = 2000) -> pd.DataFrame:
    """Return the tidy table "Figure 6 species": F1 of each species on test images, columns ``f1_<code>``.

    Rows are the decoders of ``SPECIES_METHODS`` among ``rows``; margins over the constant predictor come with them.
    """
    lines = []
    names = [f"f1_{code}" for code in codes]
    for method in SPECIES_METHODS:
        mine = rows[(rows["method"] == method) & (rows["part"] == "test")]
        if mine.empty:
            continue
        common = {"row": method, **_sizes(mine), "updates": int(mine["updates"].iloc[0])}
        for column, (value, low, high) in scores(mine, names, codes=codes, n=n).items():
            lines.append({**common, "column": column, "value": value, "low": low, "high": high})
    return _tidy(lines, "Figure 6 species", rows)


def tile_counts(sweep: pd.DataFrame, fits: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the tidy table "Figure 6 tiles": F1 at each number of tiles, ``f1_<T>``, and the fit's ``a``, ``c``.

    ``share_explained`` is the share of the variance of F1 over the tile counts that the fit ``a - c / sqrt(T)``
    explains; it is left out where F1 does not vary or there are fewer than three counts.

    Args:
        sweep, fits: from ``protocols.tile_count_sweep`` and ``protocols.fit_tile_curve``.
        rows: any rows of the same run; they say what it rests on.
    """
    lines = []
    test = rows[rows["part"] == "test"]
    for method, points in sweep.groupby("method", sort=False):
        fit = fits.set_index("method").loc[method]
        found = {f"f1_{tiles}": f1 for tiles, f1 in zip(points["tiles"], points["f1"], strict=True)}
        found |= {"a": fit["a"], "c": fit["c"]}
        total = float(np.var(points["f1"]))
        if len(points) > 2 and total > 0:
            found["share_explained"] = 1 - fit["rmse"] ** 2 / total
        lines += [{"row": method, "column": column, "value": value, **_sizes(test)} for column, value in found.items()]
    return _tidy(lines, "Figure 6 tiles", rows)


def _calls(rows: pd.DataFrame, codes: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return labels and calls by method, the same images in the same order; an image counts once a partition.

    Raises ValueError where the methods were not asked about the same images.
    """
    columns = [f"{kind}_{code}" for kind in ("y", "pred") for code in codes]
    keys = ["partition", "combination", "id"]
    tables = {name: part.set_index(keys)[columns].sort_index() for name, part in rows.groupby("method", sort=False)}
    first = next(iter(tables.values()))
    for name, table in tables.items():
        if not table.index.equals(first.index):
            raise ValueError(f"{name} was asked about other images than {next(iter(tables))}; compare the same images")
    return tables


def _metrics(resamples: Resamples, calls: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the three metrics of Table 8 on the images and on each of their resamples, (n + 1,)."""
    true, called = (calls.filter(regex=f"^{kind}_").to_numpy().astype(int) for kind in ("y", "pred"))
    one = np.ones(len(calls))
    each = [resamples.ratio(2 * true[:, k] * called[:, k], true[:, k] + called[:, k]) for k in range(true.shape[1])]
    return {
        "per_sample_f1": resamples.ratio(sample_f1(true, called), one),
        "macro_f1": np.nan_to_num(each).mean(axis=0),  # a species neither present nor called scores 0
        "exact_match": resamples.ratio((true == called).all(axis=1), one),
    }


def _interval(resamples: Resamples, values: np.ndarray) -> dict[str, float]:
    return dict(zip(("value", "low", "high"), resamples.interval(values), strict=True))


def _sizes(rows: pd.DataFrame) -> dict[str, int]:
    one = rows[rows["method"] == rows["method"].iloc[0]]
    return {"n_images": len(one), "n_frames": len(one[["combination", "frame"]].drop_duplicates()),
            "n_combinations": one["combination"].nunique()}  # fmt: skip


def _tidy(lines: list[dict[str, Any]], table: str, rows: pd.DataFrame) -> pd.DataFrame:
    run = {name: rows[name].iloc[0] for name in ("profile", "dataset", "encoder", "evidence")}
    return report.table(lines, table=table, partition=", ".join(rows["partition"].unique()), **run)
