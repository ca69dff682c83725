"""Tables and pictures of the discovery study: what the paper prints beside ours, and what it does not print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phoebi_lib import plots, report
from phoebi_lib.scoring import mean_defined
from phoebi_lib.studies.decoder_tables import side_by_side
from phoebi_lib.studies.discovery_scores import Tally, over_folds
from phoebi_lib.studies.discovery_study import HEADS, K1, PATCHES, SIMGCD_GRID, TRANSDUCTIVE, Fold, simgcd_row

#: Numbers of the running text: (row, column) -> their name among the quoted numbers.
QUOTED: dict[tuple[str, str], str] = {
    (K1, "cluster_acc"): "sinkhorn_accuracy", (K1, "delta_f1_known"): "sinkhorn_drift",
    ("UNO-style, 1 slot", "cluster_acc"): "uno_accuracy", ("UNO-style, 1 slot", "delta_f1_known"): "uno_drift",
    ("UNO-style, 4 slots", "cluster_acc"): "uno_4_accuracy",
    (HEADS[3].row, "cluster_acc"): "crkd_accuracy", (HEADS[3].row, "delta_f1_known"): "crkd_drift",
    (HEADS[4].row, "recall"): "crkd_recall_high",
    (simgcd_row(0.0, 0), "cluster_acc"): "simgcd_zero_epochs",
    **{(simgcd_row(rate, epochs), "cluster_acc"): "simgcd_trained" for rate, looks in SIMGCD_GRID.items()
       for epochs in looks},
    ("normalised residual", "cluster_acc"): "gate_normalised",
    (f"normalised residual, {PATCHES}", "cluster_acc"): "gate_patch",
}  # fmt: skip
PRINTED = {"cluster_acc": "cluster acc", "recall": "recall", "purity": "purity", "delta_f1_known": "ΔF1 known"}
_DASH, _NBSP = "–", "\u00a0"


def add_quoted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a tidy table with the numbers of the running text (``QUOTED``) that belong to its rows."""
    rows = set(frame["row"])
    return report.add_quoted(frame, {key: name for key, name in QUOTED.items() if key[0] in rows})


def printed_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the printed quantities as read: ours and under it the paper's, mean ± spread over folds.

    ``prototypes`` is their mean number; ``± over seeds`` the standard deviation over seeds of our cluster accuracy,
    with the updates of a trained row.
    """
    shown = side_by_side(frame, PRINTED).rename(columns={"decoder": "primitive"})
    cells = frame.set_index(["row", "column"])

    def cell(line: pd.Series, column: str, places: int) -> str:
        which = "paper" if line["numbers"] == "paper" else "value"
        value = cells[which].get((line["primitive"], column), float("nan"))
        return _DASH if np.isnan(value) else report.at_digits(value, places)

    def updates(line: pd.Series) -> str:
        number = int(cells["updates"].get((line["primitive"], "cluster_acc"), 0))
        return f"{number:,}" if number and line["numbers"] != "paper" else _DASH

    shown.insert(2, "prototypes", [cell(line, "n_proto", 1) for _, line in shown.iterrows()])
    seeds = [cell(line, "cluster_acc_seed_std", 3) for _, line in shown.iterrows()]
    shown.insert(shown.columns.get_loc("difference"), "± over seeds", seeds)
    shown.insert(shown.columns.get_loc("difference"), "updates", [updates(line) for _, line in shown.iterrows()])
    return shown


def interval_cell(lines: Mapping[str, pd.Series], column: str, sign: bool = False) -> str:
    """Return "value [low, high]" of a tidy line, or a dash where there is none."""
    if column not in lines:
        return _DASH
    line = lines[column]
    text = report.at_digits(line["value"], 3, sign)
    if np.isnan(line["low"]):
        return text
    return f"{text} [{report.at_digits(line['low'], 3, sign)},{_NBSP}{report.at_digits(line['high'], 3, sign)}]"


def honest_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what recall alone does not show, one line per row and setting, with 95 % intervals over combinations."""
    shown = []
    for row, group in frame.groupby("row", sort=False):
        lines = {line["column"]: line for _, line in group.iterrows()}
        for setting, suffix in (("transductive", ""), ("inductive", "_inductive")):
            if f"recall{suffix}" not in lines:
                continue
            shown.append({
                "primitive": row, "setting": setting, "recall": interval_cell(lines, f"recall{suffix}"),
                "share of known-only images": interval_cell(lines, f"false_share{suffix}"),
                "recall above it": interval_cell(lines, f"lift{suffix}", sign=True),
                "AUROC": interval_cell(lines, f"auroc{suffix}"), "F1": interval_cell(lines, f"f1{suffix}"),
                "above assigning all": interval_cell(lines, f"f1_margin{suffix}", sign=True),
                "F1 of blind dealing": interval_cell(lines, f"f1_blind{suffix}"),
            })  # fmt: skip
    return pd.DataFrame(shown)


def drift_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what happens to the known species: their F1 with the proposed rows, its margin, and the change."""
    shown = []
    for row, group in frame.groupby("row", sort=False):
        lines = {line["column"]: line for _, line in group.iterrows()}
        shown.append({
            "primitive": row, "F1 known, after": interval_cell(lines, "f1_known"),
            "above calling all": interval_cell(lines, "f1_known_margin", sign=True),
            "ΔF1 known": interval_cell(lines, "delta_f1_known", sign=True),
            "ΔF1 without images of the stranger alone": interval_cell(lines, "delta_f1_known_labelled", sign=True),
        })  # fmt: skip
    return pd.DataFrame(shown)


def plane(tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the two first principal axes of ``tiles`` (M, D): mean (D,), axes (2, D), share of variance of each (2,).

    From the D x D covariance, so that any number of tiles fits; each axis points to where its largest entry is above 0.
    """
    centre = tiles.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(np.cov(tiles, rowvar=False, dtype=np.float64))
    axes = vectors[:, ::-1][:, :2].T
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])[:, None]
    return centre, axes, values[::-1][:2] / values.sum()


def scatter_fold(axis: Axes, fold: Fold, centre: np.ndarray, axes: np.ndarray, n: int = 800, seed: int = 0) -> None:
    """Draw a fold's test tiles in a plane: grey without the stranger, coloured with it, prototypes as marks.

    At most ``n`` tiles are drawn of each kind, at random.
    """
    rng = np.random.default_rng(seed)
    colour = plots.species_colour(fold.code)
    for holds, shade, label in ((False, plots.PALE, "retained"), (True, colour, f"holds {fold.code}")):
        tiles = fold.X[fold.holds == holds].reshape(-1, fold.X.shape[2])
        some = tiles[rng.choice(len(tiles), min(n, len(tiles)), replace=False)]
        axis.plot(*((some - centre) @ axes.T).T, ".", color=shade, markersize=3, alpha=0.6, label=label, zorder=1)
    for code, row in zip(np.array(fold.pool.codes)[fold.known], fold.prototypes, strict=True):
        x, y = axes @ (row - centre)
        axis.plot(x, y, "s", color=plots.species_colour(code), markeredgecolor="black", markersize=6, zorder=3)
    new = fold.X.reshape(-1, fold.X.shape[2]).mean(axis=0, dtype=np.float64)
    axis.plot(*(axes @ (new / np.linalg.norm(new) - centre)), "*", color="black", markersize=11, zorder=4)
    axis.set_title(f"{fold.code} left out", loc="left")
    axis.set(xticks=[], yticks=[])


def folds_figure(frame: pd.DataFrame, points: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw recall, purity and drift of each primitive: a dot per fold, our mean, and the paper's on its own images.

    ``frame`` is the tidy Table 10; ``points`` maps a column to its values by row (index) and fold (columns).
    """
    rows = list(dict.fromkeys(frame["row"]))
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 0.42 * len(rows) + 1.2), sharey=True)
    for axis, (column, label) in zip(axes, list(PRINTED.items())[1:], strict=True):
        cells = frame[frame["column"] == column].set_index("row")
        for y, row in enumerate(rows):
            values = points[column].loc[row].to_numpy()
            axis.plot(values, np.full(len(values), y), ".", color=plots.GREY, markersize=5)
            if row in cells.index:
                axis.plot(cells.loc[row, "value"], y, "o", color="#0072B2", markersize=7)
                axis.plot(cells.loc[row, "paper"], y, "D", color="none", markeredgecolor="#D55E00", markersize=7)
        axis.axvline(0, color=plots.GREY, linewidth=0.8)
        axis.set_xlabel(label)
    names = [row.split(" (Gu")[0].split(", stranger")[0] for row in rows]
    names = [f"{name}, control" if "control" in row else name for name, row in zip(names, rows, strict=True)]
    axes[0].set_yticks(range(len(rows)), names)
    axes[0].invert_yaxis()
    handles = [axes[0].plot([], [], mark, color=colour, markeredgecolor=edge)[0] for mark, colour, edge in
               ((".", plots.GREY, plots.GREY), ("o", "#0072B2", "#0072B2"), ("D", "none", "#D55E00"))]  # fmt: skip
    names = ["one fold", "mean, here", "mean in print, other images"]
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    return figure


def by_fold(tallies: Sequence[Tally], counts: np.ndarray) -> dict[str, pd.DataFrame]:
    """Return the printed quantities of each fold, transductive, mean over seeds: column -> rows by folds."""
    found: dict[str, dict[str, dict[str, float]]] = {column: {} for column in PRINTED}
    for row in dict.fromkeys(tally.row for tally in tallies):
        mine = [tally for tally in tallies if tally.row == row and tally.setting == TRANSDUCTIVE]
        values, names = over_folds(mine, counts), dict.fromkeys(tally.fold for tally in mine)
        for column in PRINTED:
            found[column][row] = dict(zip(names, mean_defined(values[column][:, :, 0]), strict=True))
    return {column: pd.DataFrame(rows).T for column, rows in found.items()}


def gates_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the gate study as read: the printed quantities and the share of tiles that each gate admits."""
    shown = printed_shown(frame).drop(columns=["updates", "± over seeds"]).rename(columns={"primitive": "gate"})
    cells = frame.set_index(["row", "column"])["value"]

    def admitted(line: pd.Series) -> str:
        ends = [cells.get((line["gate"], f"admitted_{end}"), float("nan")) for end in ("min", "max")]
        return _DASH if line["numbers"] == "paper" else " to ".join(report.at_digits(end, 3) for end in ends)

    shown.insert(2, "tiles admitted", [admitted(line) for _, line in shown.iterrows()])
    return shown
