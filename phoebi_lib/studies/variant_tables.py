"""The tables of Appendix C.3: which printed number belongs beside which of ours, and how a table is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from phoebi_lib import report

#: Columns of the tables, in their order, and how a page heads them.
HEADINGS = {
    "heldout_f1": "F1", "heldout_macro_f1": "macro F1", "heldout_f1_margin": "margin in F1",
    "heldout_macro_f1_margin": "margin in macro F1", "mean_auroc": "mean AUROC", "f1_gain": "F1 gain",
    "auroc_gain": "AUROC gain",
}  # fmt: skip
READINGS = ("three partitions", "one list, three seeds")
#: (row, column) -> id of the number in the running text, and which field of it where that is not its value.
PRINTED: dict[tuple[str, str], str | tuple[str, str]] = {
    ("SimplexUnmix", "heldout_f1"): "ensemble_alone",
    ("soft OR of two", "heldout_f1"): "ensemble_f1",
    ("absent-mass penalty 1", "heldout_f1"): "penalty_1_f1",
    ("absent-mass penalty 1", "heldout_macro_f1"): "penalty_1_macro",
    ("absent-mass penalty 10", "mean_auroc"): "penalty_10_auroc",
    ("learned subspaces", "highest_dev_auroc"): "subspace_dev_auroc",
    ("learned subspaces", "lowest_auroc"): ("subspace_auroc", "low"),
    ("learned subspaces", "highest_auroc"): ("subspace_auroc", "high"),
    ("calibration rules", "highest_f1"): "calibration_f1",
}
for _reading in READINGS:
    for _row, _when in (("SimplexUnmix", "before"), ("temperatures", "after")):
        _line = f"{_row}, {_reading}"
        PRINTED[_line, "delta_f1"] = f"temperature_delta_{_when}"
        for _column, _part in (("val_f1", "val"), ("heldout_f1", "heldout")):
            PRINTED[_line, _column] = f"temperature_{_part}_{_when}"
            PRINTED[_line, f"{_column}_std"] = (f"temperature_{_part}_{_when}", "std")
    PRINTED |= {(f"repulsion {weight}, {_reading}", "heldout_f1"): f"repulsion_f1_{weight.replace('.', '')}"
                for weight in ("0.01", "0.1", "1")}  # fmt: skip
    PRINTED[f"SimplexUnmix, {_reading}", "prototype_cosine"] = "repulsion_cosine_0"
    PRINTED[f"repulsion 1, {_reading}", "prototype_cosine"] = "repulsion_cosine_1"
#: The same for the page on units and mosaics.
PRINTED_UNITS: dict[tuple[str, str], str | tuple[str, str]] = {
    ("closed-form configurations", "lowest_auroc"): ("unit_auroc", "low"),
    ("closed-form configurations", "highest_auroc"): ("unit_auroc", "high"),
    ("pooled 224, cosine, mean", "mean_auroc"): "unit_auroc_paper",
    ("mosaic training", "lowest_auroc"): ("mosaic_auroc", "low"),
    ("mosaic training", "highest_auroc"): ("mosaic_auroc", "high"),
    ("real images", "mean_auroc"): "mosaic_real_auroc",
    ("mosaic training", "largest_f1_change"): "mosaic_f1_within",
}
_DASH, _NBSP = "–", "\u00a0"


def references(methods: Iterable[str]) -> dict[str, str]:
    """Return the default that each variant changes: SimplexUnmix in the same setting, which ends the variant's name.

    A calibration rule ("ProtoMatch, nested, F1 search on validation") is set against its own decoder's published rule.
    Other decoders have no default.
    """
    methods, found = list(methods), {}
    for method in methods:
        ending = next((e for e in (*READINGS, "2,000 updates", "nested") if method.endswith(f", {e}")), "")
        base = f"SimplexUnmix, {ending}" if ending else "SimplexUnmix"
        if ", nested, " in method:
            base = method.partition(", nested, ")[0] + ", nested"
        elif method.startswith(("SimplexUnmix", "ProtoMatch", "ChannelGroup")):
            continue
        if base not in methods:
            raise ValueError(f"{method!r} is to be compared with {base!r}, which has no rows")
        found[method] = base
    return found


def shown(frame: pd.DataFrame, columns: Mapping[str, str] = HEADINGS, places: int = 3) -> pd.DataFrame:
    """Return a tidy table as it is read: one line per row of ours, under it the printed numbers; texts only.

    Margins and gains carry their 95 % interval. ``updates`` and ``images`` say how long was trained and what was
    scored; the last column is the difference to the printed number, where both rest on the same images or labels.
    """
    table = []
    for row, group in frame.groupby("row", sort=False):
        lines = {line["column"]: line for _, line in group.iterrows()}
        if not set(columns) & set(lines):
            continue
        first, compared = group.iloc[0], _DASH
        cells = {heading: _cell(lines.get(column), places) for column, heading in columns.items()}
        with_paper = group[group["paper"].notna() & group["column"].isin(list(columns))]
        if len(with_paper):
            compared = report.compare(with_paper, places)["difference"].iloc[0]
        table.append({"variant": row, "numbers": f"here ({first['evidence']})", **cells,
                      "updates": f"{first['updates']:,}" if first["updates"] else _DASH,
                      "images": f"{first['n_images']:,}", "difference": compared})  # fmt: skip
        if len(with_paper):
            printed = {heading: _printed(lines.get(column)) for column, heading in columns.items()}
            table.append({"variant": row, "numbers": "paper", **printed, "updates": _DASH, "images": _DASH,
                          "difference": _DASH})  # fmt: skip
    return pd.DataFrame(table)


def _cell(line: pd.Series | None, places: int) -> str:
    if line is None:
        return _DASH
    if not line["column"].endswith(("_margin", "_gain")):
        return report.at_digits(line["value"], places)
    ends = [report.at_digits(line[end], places, sign=True) for end in ("value", "low", "high")]
    return f"{ends[0]} [{ends[1]},{_NBSP}{ends[2]}]"


def _printed(line: pd.Series | None) -> str:
    return _DASH if line is None or np.isnan(line["paper"]) else report.at_digits(line["paper"], int(line["digits"]))
