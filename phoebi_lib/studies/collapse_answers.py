"""With what a method answers a mixture that it has never seen: the species themselves, or a mixture that it knows.

An answer is the set of species called in an image. A classifier of combinations in the guise of six yes-or-no questions
answers held-out mixtures with trained-on ones; a detector of species answers with what is in the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from phoebi_lib import plots
from phoebi_lib.catalogue import label_matrix
from phoebi_lib.metrics import sample_f1
from phoebi_lib.studies.paired import counts, interval, lines, resampled
from phoebi_lib.studies.readings import plain, with_interval

NONE, OTHER = "none", "others"


def answers(rows: pd.DataFrame, trained: Sequence[str], codes: Sequence[str]) -> pd.DataFrame:
    """Return what is called in each image, and whether that is a trained-on combination.

    Args:
        rows: one row per image, with ``combination``, ``y_<code>`` and ``pred_<code>``.
        trained: names of the trained-on combinations. codes: species in class order.

    Returns:
        ``rows`` with ``answer``, the set as a name (that of the folder where one holds it, "none" for no species);
        ``trained_on``, 1.0 where it is the set of a trained-on combination; ``right``, 1.0 where it is the image's own;
        ``chance``, the share of the sets with as many species that are trained on: what blind answers of the same sizes
        would reach; and the image's ``f1``.
    """
    true, called = (rows[[f"{kind}_{code}" for code in codes]].to_numpy(dtype=np.int64) for kind in ("y", "pred"))
    # the first of two folders with the same species gives the name
    known = list(dict.fromkeys([*trained, *rows["combination"]]))[::-1]
    spelled = dict(zip(map(tuple, label_matrix(known, codes).tolist()), known, strict=True))
    sets = {tuple(line) for line in label_matrix(trained, codes).tolist()}
    sizes = np.array([sum(sum(members) == k for members in sets) / comb(len(codes), k) for k in range(len(codes) + 1)])

    def name(members: tuple[int, ...]) -> str:
        own = "_".join(code for code, here in zip(codes, members, strict=True) if here)
        return spelled.get(members, own or NONE)

    found = [tuple(line) for line in called.tolist()]
    return rows.assign(
        answer=[name(members) for members in found],
        trained_on=[float(members in sets) for members in found],
        right=(true == called).all(axis=1).astype(float),
        chance=sizes[called.sum(axis=1)],
        f1=sample_f1(true, called),
    )


def answer_lines(
    found: Mapping[str, pd.DataFrame], trained: Sequence[str], codes: Sequence[str], n: int
) -> list[dict[str, Any]]:
    """Return tidy lines by row: how often held-out images are answered with a trained-on combination.

    ``found`` maps rows to validation and test rows of one run. Columns ``trained_on``, ``chance``, ``above_chance``
    (the difference of the two), ``right`` and, on validation images, ``trained_on_val``; with 95 % intervals over
    combinations, ``n`` resamples.
    """
    made = []
    for row, rows in found.items():
        said = answers(rows, trained, codes)
        quantities = ["trained_on", "chance", "right"]
        means = {part: resampled(mine.set_index("combination")[quantities], n) for part, mine in said.groupby("part")}
        test = means["test"]
        cells = {name: interval(test[name]) for name in quantities}
        cells["above_chance"] = interval(test["trained_on"] - test["chance"])
        made += lines(row, cells, counts(rows[rows["part"] == "test"]))
        shared = {"trained_on_val": interval(means["val"]["trained_on"])}
        made += lines(row, shared, counts(rows[rows["part"] == "val"]))
    return made


def answers_read(frame: pd.DataFrame, headings: Mapping[str, str]) -> pd.DataFrame:
    """Return the lines of :func:`answer_lines` as read: one line per row, numbers with their intervals.

    The last column counts images. ``headings`` maps columns to headings, in their order.
    """
    shown = []
    for row, group in frame.groupby("row", sort=False):
        cells = group.set_index("column")
        texts = {}
        for column, heading in headings.items():
            texts[heading] = with_interval(cells.loc[column], sign=column == "above_chance")
        held, val = (cells.loc[column] for column in ("trained_on", "trained_on_val"))
        texts["n"] = f"{held['n_images']} held out, {val['n_images']} validation ({held['evidence']})"
        shown.append({"method": row, **texts})
    return pd.DataFrame(shown)


def confusion(rows: pd.DataFrame, trained: Sequence[str], codes: Sequence[str], most: int = 12) -> pd.DataFrame:
    """Return the share of each answer in each combination of ``rows``, answers by how frequent they are.

    One line per combination, in their order in ``rows``, one column per answer for the ``most`` frequent ones, and
    "others" where there are more. Lines sum to one.
    """
    said = answers(rows, trained, codes)
    frequent = said["answer"].value_counts(sort=False).sort_values(ascending=False, kind="stable").index
    kept = list(frequent[:most])
    shown = said["answer"].where(said["answer"].isin(kept), OTHER)
    table = pd.crosstab(said["combination"], shown, normalize="index")
    columns = [*kept, *([OTHER] if len(frequent) > most else [])]
    return table.loc[list(dict.fromkeys(said["combination"])), columns].rename_axis(index=None, columns=None)


def by_combination(found: Mapping[str, pd.DataFrame], codes: Sequence[str]) -> pd.DataFrame:
    """Return mean F1 of each combination, one column per row of ``found``, and ``order``; sorted by order."""
    table = {}
    for row, rows in found.items():
        true, called = (rows[[f"{kind}_{code}" for code in codes]].to_numpy(dtype=np.int64) for kind in ("y", "pred"))
        f1 = pd.Series(sample_f1(true, called), index=rows["combination"])
        table[row] = f1.groupby(level=0, sort=False).mean()
    frame = pd.DataFrame(table)
    frame.insert(0, "order", label_matrix(frame.index, codes).sum(axis=1))
    return frame.sort_values("order", kind="stable").rename_axis(index=None)


def combination_figure(table: pd.DataFrame, n_species: int) -> Figure:
    """Draw :func:`by_combination`: one marker per method and combination, a dash for the constant predictor."""
    figure, axis = plt.subplots(figsize=(9.6, 3.8))
    colours = [*plots.SPECIES_COLOURS.values(), plots.GREY, plots.INK]
    methods, places = table.columns.drop("order"), np.arange(len(table))
    for i, row in enumerate(methods):
        style = {"marker": "os^Dv<>P"[i % 8], "color": colours[i % 8], "linestyle": "none", "markersize": 5}
        shift = 0.09 * (i - (len(methods) - 1) / 2)
        axis.plot(places + shift, table[row], label=plain(row), **style)
    level = plots.all_present_f1(table["order"].to_numpy(), n_species)
    axis.hlines(level, places - 0.42, places + 0.42, color="black", linestyle="--", linewidth=1.1, label="all present")
    axis.set_xticks(places, table.index, rotation=35, ha="right", fontsize=8)
    axis.set(ylabel="Per-sample F1", ylim=(0, 1.03))
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    return figure
