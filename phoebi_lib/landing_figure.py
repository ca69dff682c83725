"""The drawing of the landing page: one panel for each kind of evidence, made to be read on a phone as well.

A panel holds a slope chart (F1 on mixtures that training saw, F1 on new ones) over a strip of AUROCs (is there a
stranger?). What stands in it comes from a :class:`Panel`; nothing here knows a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phoebi_lib import plots, workspace
from phoebi_lib.rounding import at_digits

CONSTANT, ANCHORS, FITTED, UNFITTED = "constant", "anchors", "fitted", "not fitted"
NEIGHBOURS, PROTOTYPES = "neighbours", "prototypes"
ABSENT = "not computed here"
# a light ground of its own: the panel is then the same on the light and on the dark page
_GROUND, _BELOW, _GREY = "#F6F4EE", "#F2E0D3", "#606060"
# colour, line style, width: no group is told by its colour alone
_STYLES = {
    FITTED: ("#C24E00", "-", 1.7), UNFITTED: (_GREY, ":", 1.6), ANCHORS: ("#0072B2", "-", 2.8),
    CONSTANT: ("#000000", "--", 1.8), NEIGHBOURS: ("#0072B2", "-", 0), PROTOTYPES: (_GREY, "-", 0),
}  # fmt: skip
_WORDS = {
    FITTED: "fine-tuned networks", UNFITTED: "networks, not fitted", ANCHORS: "anchored decoders",
    CONSTANT: "all present", NEIGHBOURS: "nearest tiles", PROTOTYPES: "anchors alone",
}  # fmt: skip
_BOLD = (FITTED, ANCHORS)
# heights of labels of one and of two lines, in units of the height of the chart
_ONE_LINE, _TWO_LINES = 0.085, 0.15


@dataclass(frozen=True)
class Panel:
    """One panel: where its numbers come from, and the numbers.

    Attributes:
        title: whose numbers they are.
        ground: what they rest on.
        slopes: columns ``name, group, start, end``; F1 in distribution and held out, group one of ``CONSTANT``,
            ``ANCHORS``, ``FITTED``, ``UNFITTED``.
        scores: columns ``name, group, auroc``, group ``NEIGHBOURS`` or ``PROTOTYPES``.
    """

    title: str
    ground: str
    slopes: pd.DataFrame
    scores: pd.DataFrame


def extent(numbers: pd.Series) -> str:
    """Return the range of some numbers as text with two decimals: "0.44 to 0.61", or "0.65" where both ends agree."""
    ends = list(dict.fromkeys(at_digits(value, 2) for value in (numbers.min(), numbers.max())))
    return " to ".join(ends)


def limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return the limits of F1 that all panels share, so that slopes look as steep as they are."""
    values = pd.concat([panel.slopes[["start", "end"]].stack() for panel in panels])
    return min(0.4, values.min() if len(values) else 1.0) - 0.04, 1.04


def save(panel: Panel, path: str | Path, f1: tuple[float, float]) -> Path:
    """Draw a panel into an SVG file, whole or not at all; the same panel gives the same bytes. Returns the path."""
    plots.set_style()
    figure = Figure(figsize=(4.1, 3.95), facecolor=_GROUND, layout="none")
    figure.text(0.035, 0.945, panel.title, fontsize=13, fontweight="bold", color=plots.INK)
    figure.text(0.035, 0.893, panel.ground, fontsize=9, color=plots.INK)
    if panel.slopes.empty and panel.scores.empty:
        figure.text(0.5, 0.5, ABSENT, ha="center", fontsize=13, color=_GREY)
    else:
        _slopes(figure.add_axes((0.135, 0.375, 0.41, 0.485)), panel.slopes, f1)
        _strip(figure.add_axes((0.06, 0.085, 0.88, 0.095)), panel.scores)
    with workspace.atomic_path(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
    return Path(path)


def _slopes(axis: Axes, slopes: pd.DataFrame, f1: tuple[float, float]) -> None:
    axis.set(xlim=(-0.06, 1.06), ylim=f1, facecolor="none")
    axis.set_xticks([0, 1], ["known\nmixtures", "new\nmixtures"], fontsize=9.5)
    axis.set_yticks([0.4, 0.6, 0.8, 1.0], ["0.4", "0.6", "0.8", "F1 1.0"], fontsize=9)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.grid(axis="y", color="white", linewidth=1.4)
    axis.set_axisbelow(True)
    if slopes.empty:
        axis.text(0.5, sum(f1) / 2, ABSENT, ha="center", fontsize=11, color=_GREY)
        return
    for line in slopes[slopes["group"] == CONSTANT].itertuples():
        axis.fill_between([0, 1], f1[0], [line.start, line.end], color=_BELOW, linewidth=0)
        axis.text(0.03, f1[0] + 0.02, "worse than\nall present", fontsize=8.5, va="bottom", color=plots.INK)
    ends = {}
    for group in (UNFITTED, FITTED, CONSTANT, ANCHORS):
        mine = slopes[slopes["group"] == group]
        colour, style, width = _STYLES[group]
        for line in mine.itertuples():
            axis.plot([0, 1], [line.start, line.end], style, color=colour, linewidth=width, marker="o",
                      markersize=0.6 + 2 * width, alpha=0.9, clip_on=False)  # fmt: skip
        if len(mine):
            ends[group] = mine["end"]
    height = f1[1] - f1[0]
    wanted = {group: end.mean() for group, end in ends.items()}
    places = spread(wanted, {group: height * (_ONE_LINE if group == CONSTANT else _TWO_LINES) for group in ends}, f1)
    for group, place in places.items():
        colour, text = _STYLES[group][0], naming(group, ends[group])
        axis.plot([1.04, 1.13], [wanted[group], place], color=colour, linewidth=0.7, clip_on=False)
        axis.text(1.16, place, text, color=colour, fontsize=9.2, va="center", linespacing=1.15,
                  fontweight="bold" if group in _BOLD else "normal")  # fmt: skip


def naming(group: str, ends: pd.Series) -> str:
    """Return the label of a group of lines: how many, what they are, and where they end."""
    if group == CONSTANT:
        return f"{_WORDS[group]} {extent(ends)}"
    words = _WORDS[group].replace("networks", "network") if len(ends) == 1 else _WORDS[group]
    return f"{len(ends)} {words}\n{extent(ends)}"


def spread(
    wanted: Mapping[str, float], heights: Mapping[str, float], between: tuple[float, float]
) -> dict[str, float]:
    """Return the middle of each label: near where it is wanted, in that order, none over another, all in the chart.

    Args:
        wanted: name -> where a label would stand alone. heights: name -> how high it is.
        between: the lowest and the highest place of the chart; all heights together fit in.
    """
    names = sorted(wanted, key=wanted.__getitem__)
    places: list[float] = []
    for i, name in enumerate(names):
        beside = places[-1] + (heights[names[i - 1]] + heights[name]) / 2 if places else wanted[name]
        places.append(max(wanted[name], beside))
    if not places:
        return {}
    # the stack was pushed upwards only: it comes down by the mean push, as far as the chart allows
    shift = sum(wanted[name] - place for name, place in zip(names, places, strict=True)) / len(names)
    shift = min(shift, between[1] - heights[names[-1]] / 2 - places[-1])
    shift = max(shift, between[0] + heights[names[0]] / 2 - places[0])
    return {name: place + shift for name, place in zip(names, places, strict=True)}


def _strip(axis: Axes, scores: pd.DataFrame) -> None:
    low, high = 0.3, 0.9
    if len(scores):
        low, high = min(low, scores["auroc"].min() - 0.05), max(high, scores["auroc"].max() + 0.05)
    axis.set(xlim=(low, high), ylim=(0, 1), yticks=[], facecolor="none")
    axis.set_xticks([0.3, 0.5, 0.7, 0.9], ["0.3", "0.5 = chance", "0.7", "0.9"], fontsize=9)
    axis.tick_params(length=0, pad=2)
    axis.spines[["left", "top", "right"]].set_visible(False)
    axis.spines["bottom"].set_color(_GREY)
    axis.set_title("A stranger among them? AUROC", loc="left", fontsize=10, pad=17, color=plots.INK)
    if scores.empty:
        axis.text((low + high) / 2, 0.45, ABSENT, ha="center", fontsize=10, color=_GREY)
        return
    axis.axvline(0.5, ymax=0.85, color="black", linestyle="--", linewidth=1.2)
    means = scores.groupby("group")["auroc"].mean().sort_values()
    groups = dict(list(scores.groupby("group")["auroc"]))
    leads = len(groups) == 2 and groups[NEIGHBOURS].min() > groups[PROTOTYPES].max()
    # the labels keep to the two ends of the strip, in the order of the marks
    for group, (place, side) in zip(means.index, ((low, "left"), (high, "right")), strict=False):
        mine = scores.loc[scores["group"] == group, "auroc"]
        near = group == NEIGHBOURS
        axis.plot(mine, [0.42] * len(mine), "o" if near else "D", color=_STYLES[group][0], markersize=8 if near else 6,
                  alpha=0.85)  # fmt: skip
        axis.text(place, 1.05, f"{_WORDS[group]} {extent(mine)}", fontsize=9.2, color=_STYLES[group][0], ha=side,
                  fontweight="bold" if near and leads else "normal")  # fmt: skip
