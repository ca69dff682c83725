"""Tables 6 and 8: what the decoders score beside what the paper prints, and beside the constant predictor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from phoebi_lib import report
from phoebi_lib.label_only import label_only
from phoebi_lib.metrics import sample_f1
from phoebi_lib.scoring import scores
from phoebi_lib.summaries import over_partitions, summarise

ABSENT = report.ALLOWED_MISSING[0]
EXACT_ROW = "All-present predictor, 120,000 published labels"
ATTENTION_ROW = "Attention MIL (Ilse et al., 2018)"
#: Partition and training seed of the one run that the paper's attention row shows.
ATTENTION_RUN = ("lco-1337", 1337)
#: Rows of Table 6 that belong to networks which a page on frozen features does not train: those of Table 3 as a range,
#: and the control.
RANGE_ROW, CONTROL_ROW = "Image-level e2e (Tab. 3, range)", "DINOv2 e2e via PHOEBI pipeline"
_HEADLINES = ("in_dist_val_f1", "heldout_f1", "heldout_macro_f1", "delta_f1")
#: Our method -> the row of Table 6, and whether the paper averages it over three partitions or shows seed 1337 alone.
TABLE_6 = {
    "AllPresent": ("All-present predictor (constant)", False),
    "AttentionMIL": (ATTENTION_ROW, False),
    "SimplexUnmix": ("SimplexUnmix (simplex unmix), 30 epochs", True),
    "ProtoMatch": ("ProtoMatch (proto match), closed-form", True),
    "ChannelGroup": ("ChannelGroup (UFG channel-grouped), 30 epochs", True),
    "SimplexUnmix (init only)": ("SimplexUnmix (init only, 0 epochs)", False),
    "ProtoMatch (init only)": ("ProtoMatch (init only ≡ closed-form)", False),
    "ChannelGroup (init only)": ("ChannelGroup (init only, 0 epochs)", False),
    "SimplexUnmix (2,000 updates)": ("SimplexUnmix, 2,000 updates (not in the paper)", True),
    "ChannelGroup (2,000 updates)": ("ChannelGroup, 2,000 updates (not in the paper)", True),
}
#: Our method -> the row of Table 8.
TABLE_8 = {
    "AllPresent": "All-present predictor (constant)",
    "SimplexUnmix": "SimplexUnmix (simplex unmix)",
    "ProtoMatch": "ProtoMatch (proto match)",
    "ChannelGroup": "ChannelGroup (UFG channel-grouped, 390 params)",
}
_DASH = "–"
_NBSP = "\u00a0"  # a number and its spread stay on one line


def by_order(rows: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """Return mean and population standard deviation of F1 by number of species (Figure 6, left).

    ``rows`` holds test rows of one or more methods. The mean of a combination in a partition is one observation.
    Columns: ``method, order, mean, std, pairs``.
    """
    true = rows[[f"y_{code}" for code in codes]].to_numpy()
    called = rows[[f"pred_{code}" for code in codes]].to_numpy()
    table = rows.assign(order=true.sum(axis=1), f1=sample_f1(true, called))
    pairs = table.groupby(["method", "order", "partition", "combination"], sort=False)["f1"].mean()
    grouped = pairs.groupby(["method", "order"], sort=False)
    return pd.DataFrame({"mean": grouped.mean(), "std": grouped.std(ddof=0), "pairs": grouped.size()}).reset_index()


def _lines(row: str, table: pd.DataFrame, values: dict, codes: Sequence[str], names: dict[str, str]) -> list[dict]:
    """Return the tidy lines of one method: its means, their spread, and its margins with intervals."""
    first = table.iloc[0]
    common = {
        "row": row, "evidence": first["evidence"], "n_images": len(table), "updates": first["updates"],
        "n_frames": len(table[["combination", "frame"]].drop_duplicates()),
        "n_combinations": table["combination"].nunique(),
        "partition": ", ".join(table["partition"].unique()),
    }  # fmt: skip
    lines = [{**common, "column": column, "value": value} for column, value in values.items()]
    found = scores(table, ["f1", "macro_f1"], unit=["partition", "combination"], codes=codes)
    for name, column in names.items():
        value, low, high = found[name]
        lines.append({**common, "column": column, "value": value, "low": low, "high": high})
    return lines


def table_6(rows: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """Return Table 6 as a tidy table with the printed numbers beside ours.

    ``rows`` holds the methods on the published partitions; a method without rows is left out. As in the paper, trained
    rows are means with population standard deviations over the partitions; the constant and the init-only rows are the
    first partition alone, and the attention row is ``ATTENTION_RUN``, whatever other runs ``rows`` holds. Rows with
    2,000 updates have no printed number. The rows of fine-tuned networks have a reason in place of a number. The first
    row is exact: the constant predictor on the labels of the 120,000 published images, which need no image.
    """
    first = rows["partition"].iloc[0]
    lines = []
    for method, (row, averaged) in TABLE_6.items():
        mine = rows[rows["method"] == method]
        if method == "AttentionMIL":
            partition, seed = ATTENTION_RUN
            mine = mine[(mine["partition"] == partition) & (mine["seed"] == seed)]
        elif not averaged:
            mine = mine[mine["partition"] == first]
        if mine.empty:
            continue
        mean = over_partitions(summarise(mine)).set_index("part")
        values = {
            "in_dist_val_f1": mean.loc["val", "f1_mean"], "heldout_f1": mean.loc["test", "f1_mean"],
            "heldout_macro_f1": mean.loc["test", "macro_f1_mean"], "delta_f1": mean.loc["test", "delta_f1_mean"],
            "train_f1": mean.loc["test", "train_f1_mean"],
        }  # fmt: skip
        if averaged:
            values |= {
                "in_dist_val_f1_std": mean.loc["val", "f1_std"], "heldout_f1_std": mean.loc["test", "f1_std"],
                "heldout_macro_f1_std": mean.loc["test", "macro_f1_std"],
                "delta_f1_std": mean.loc["test", "delta_f1_std"],
            }  # fmt: skip
        names = {"f1_margin": "heldout_f1_margin", "macro_f1_margin": "heldout_macro_f1_margin"}
        lines += _lines(row, mine[mine["part"] == "test"], values, codes, names)
        if method == "AllPresent":
            ends = [f"{column}_{end}" for column in _HEADLINES for end in ("low", "high")]
            for name, columns in ((RANGE_ROW, ends), (CONTROL_ROW, _HEADLINES)):
                lines += [{"row": name, "column": column, "missing": ABSENT} for column in columns]
    # the printed row names its encoder; ours has whichever the column "encoder" says
    printed = {ATTENTION_ROW: "Attention MIL on frozen DINOv2 (Ilse et al., 2018)"}
    ours = report.add_paper(report.table(lines, table="6", **_run(rows)), 6, rows=printed)
    exact = label_only(ours["profile"].iloc[0])
    exact = exact[exact["table"] == "6"].assign(row=EXACT_ROW)
    return report.validate(pd.concat([exact, ours], ignore_index=True))


def table_8(rows: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """Return Table 8 (in distribution, test images) as a tidy table with the printed numbers beside ours."""
    lines = []
    summary = summarise(rows).set_index(["method", "part"])
    for method in dict.fromkeys(rows["method"]):
        test = rows[(rows["method"] == method) & (rows["part"] == "test")]
        line = summary.loc[(method, "test")]
        values = {"per_sample_f1": line["f1"], "macro_f1": line["macro_f1"], "exact_match": line["exact_match"]}
        values["train_f1"] = line["train_f1"]
        names = {"f1_margin": "per_sample_f1_margin", "macro_f1_margin": "macro_f1_margin"}
        lines += _lines(TABLE_8.get(method, f"{method} (not in the paper)"), test, values, codes, names)
    return report.add_paper(report.table(lines, table="8", **_run(rows)), 8)


def _run(rows: pd.DataFrame) -> dict[str, object]:
    return {name: rows[name].iloc[0] for name in ("profile", "dataset", "encoder")}


def _cell(lines: dict[str, pd.Series], column: str, which: str, places: int) -> str:
    if f"{column}_low" in lines and which == "paper":
        return " to ".join(report.at_digits(lines[f"{column}_{end}"][which], 2) for end in ("low", "high"))
    if column not in lines or np.isnan(lines[column][which]):
        return _DASH
    text = report.at_digits(lines[column][which], places)
    spread = lines.get(f"{column}_std")
    if spread is None or np.isnan(spread[which]):
        return text
    return f"{text}{_NBSP}±{_NBSP}{report.at_digits(spread[which], places)}"


def side_by_side(frame: pd.DataFrame, columns: dict[str, str], places: int = 3) -> pd.DataFrame:
    """Return a tidy table as it is read: under each line of ours the line that the paper prints; texts only.

    ``columns`` maps tidy column names to headings. The column ``numbers`` says where a line comes from: the paper, or
    here, with the kind of evidence, or with the reason why there is no number. The last column is the difference in the
    first quantity where both rest on the same images or labels; it is "not comparable" elsewhere.
    """
    shown = []
    for row, group in frame.groupby("row", sort=False):
        lines = {line["column"]: line for _, line in group.iterrows()}
        compared = report.compare(group[group["column"] == next(iter(columns))], places)
        ours = group["missing"].iloc[0] or f"here ({group['evidence'].iloc[0]})"
        difference = compared["difference"].iloc[0] if len(compared) else _DASH
        for which, source in (("value", ours), ("paper", "paper")):
            cells = {heading: _cell(lines, column, which, places) for column, heading in columns.items()}
            if which == "value":
                shown.append({"decoder": row, "numbers": source, **cells, "difference": difference})
            elif set(cells.values()) != {_DASH}:
                shown.append({"decoder": row, "numbers": source, **cells, "difference": _DASH})
    return pd.DataFrame(shown)


def margins_shown(frame: pd.DataFrame, columns: dict[str, str], places: int = 3) -> pd.DataFrame:
    """Return the margins over the constant predictor as read: ours with its interval, and the paper's on its images.

    ``updates`` and the F1 on the training images tell how far a trained row was trained. Rows without margins (those
    computed from labels alone) are left out.
    """
    shown = []
    for row, group in frame.groupby("row", sort=False):
        lines = {line["column"]: line for _, line in group.iterrows()}
        if not set(columns) <= set(lines):
            continue
        cells = {"decoder": row}
        for column, heading in columns.items():
            line = lines[column]
            ends = [report.at_digits(line[end], places, sign=True) for end in ("value", "low", "high")]
            cells[heading] = f"{ends[0]} [{ends[1]},{_NBSP}{ends[2]}]"
            paper = line["paper"]
            cells[f"{heading}, paper"] = _DASH if np.isnan(paper) else report.at_digits(paper, places, sign=True)
        updates = int(group["updates"].iloc[0])
        cells["updates"] = f"{updates:,}" if updates else _DASH
        cells["training F1"] = report.at_digits(lines["train_f1"]["value"], places)
        shown.append(cells)
    return pd.DataFrame(shown)
