"""From rows (one per image and method) to metrics: every number of a table is recomputed here, without torch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from phoebi_lib.metrics import exact_match, macro_f1, per_class_f1, per_sample_f1

#: A trained row whose in-distribution F1 stays under this supports no conclusion about held-out combinations.
FITTED_F1 = 0.95

_SETTING = ["dataset", "encoder", "evidence", "profile", "compat", "grouping"]
_RUN = [*_SETTING, "pool_key", "simulation", "partition", "seed"]
_GROUP = [*_SETTING, "kind", "method", "part"]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line per (run, method, part) of the rows of :func:`~phoebi_lib.protocols.run_partition`.

    Columns beside those that name the run: ``n_images``, ``n_frames`` (distinct frames, the independent n),
    ``n_combinations``; ``f1`` (per sample), ``macro_f1``, ``exact_match``, ``f1_<code>``; ``constant_f1`` and
    ``constant_macro_f1``, the all-present predictor on the same images, and ``margin``, ``margin_macro`` over it;
    ``delta_f1`` (validation minus test F1 of the run, on test lines); ``updates``, ``train_f1``; ``fitted``, for
    gradient-trained methods whether validation F1 reaches 0.95, else missing.

    Raises ``ValueError`` for rows without predictions, or with a row key (run, method, part, id) that occurs twice.
    """
    if not any(column.startswith("pred_") for column in rows.columns) or rows.empty:
        raise ValueError("rows must hold one row per image and method, with y_<code> and pred_<code> columns")
    run = [column for column in _RUN if column in rows.columns]
    keys = [*run, "method", "part"]
    if rows.duplicated([*keys, "id"]).any():
        twice = rows.loc[rows.duplicated([*keys, "id"]), [*keys, "id"]].iloc[0].to_dict()
        raise ValueError(f"rows hold the same image twice for one run, method and part: {twice}")
    lines = [
        {**dict(zip(keys, values, strict=True)), **_metrics(group)}
        for values, group in rows.groupby(keys, sort=False, dropna=False)
    ]
    table = pd.DataFrame(lines)
    own = [*run, "method"]
    validation = table.loc[table["part"] == "val", [*own, "f1"]].rename(columns={"f1": "_val_f1"})
    table = table.merge(validation, on=own, how="left", validate="many_to_one")
    table["delta_f1"] = np.where(table["part"] == "test", table["_val_f1"] - table["f1"], np.nan)
    if "updates" in table.columns:
        known = (table["updates"] > 0) & table["_val_f1"].notna()
        table["fitted"] = (table["_val_f1"] >= FITTED_F1).astype("boolean").where(known)
    return table.drop(columns="_val_f1")


def over_partitions(summary: pd.DataFrame) -> pd.DataFrame:
    """Return mean and population standard deviation (ddof 0) of every metric over the (partition, seed) runs.

    One line per data set, encoder, way, kind of partition (``random``, ``lco``, ``dev``, ``loso``), method and part;
    ``n_runs``, ``n_partitions``, then ``<metric>_mean`` and ``<metric>_std``. A margin is taken within its own
    partition before it is averaged, because the constant predictor differs between partitions (Table 6 averages
    three). ``fitted`` holds only where every run is fitted.
    """
    table = summary.assign(kind=summary["partition"].str.split("-").str[0])
    group = [column for column in _GROUP if column in table.columns]
    metrics = [c for c in table.columns if c not in {*_RUN, *_GROUP, "fitted"} and not c.startswith("n_")]
    grouped = table.groupby(group, sort=False, dropna=False)
    lines = []
    for values, runs in grouped:
        line = {
            **dict(zip(group, values, strict=True)),
            "n_runs": len(runs),
            "n_partitions": runs["partition"].nunique(),
        }
        for metric in metrics:
            numbers = runs[metric].to_numpy(dtype=float)
            line[f"{metric}_mean"], line[f"{metric}_std"] = numbers.mean(), numbers.std(ddof=0)
        if "fitted" in runs:
            line["fitted"] = pd.NA if runs["fitted"].isna().any() else bool(runs["fitted"].all())
        lines.append(line)
    result = pd.DataFrame(lines)
    return result.astype({"fitted": "boolean"}) if "fitted" in result else result


def _metrics(group: pd.DataFrame) -> dict[str, float]:
    # rows of data sets with other species leave columns of missing values when tables are joined
    codes = [c[2:] for c in group.columns if c.startswith("y_") and group[c].notna().all()]
    true = group[[f"y_{code}" for code in codes]].to_numpy(dtype=np.int64)
    predicted = group[[f"pred_{code}" for code in codes]].to_numpy(dtype=np.int64)
    constant = np.ones_like(true)
    line: dict[str, float] = {
        "n_images": len(group),
        "n_frames": len(group[["combination", "frame"]].drop_duplicates()),
        "n_combinations": group["combination"].nunique(),
        "f1": float(per_sample_f1(true, predicted)),
        "macro_f1": float(macro_f1(true, predicted)),
        "exact_match": float(exact_match(true, predicted)),
        **{f"f1_{c}": float(value) for c, value in zip(codes, per_class_f1(true, predicted), strict=True)},
        "constant_f1": float(per_sample_f1(true, constant)),
        "constant_macro_f1": float(macro_f1(true, constant)),
    }
    line["margin"] = line["f1"] - line["constant_f1"]
    line["margin_macro"] = line["macro_f1"] - line["constant_macro_f1"]
    for name in ("updates", "train_f1"):
        if name in group.columns:
            line[name] = group[name].iloc[0]
    return line
