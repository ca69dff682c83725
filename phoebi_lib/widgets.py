"""Sliders for the notebooks: each drives a function that draws a plain figure, so each has a static twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure


def explorer(draw: Callable[[float], Figure], values: Sequence[float], description: str):
    """Return an ipywidgets box with a slider over ``values`` that redraws ``draw(value)``.

    It needs a running kernel; in a rendered page show ``draw`` at a few values instead.
    """
    import ipywidgets
    from IPython.display import display

    def show(value: float) -> None:
        figure = draw(value)
        display(figure)
        plt.close(figure)

    slider = ipywidgets.SelectionSlider(
        options=[(f"{value:.3f}", value) for value in values],
        value=values[len(values) // 2],
        description=description,
        continuous_update=False,
        style={"description_width": "initial"},
        layout={"width": "32em"},
    )
    return ipywidgets.interactive(show, value=slider)


def threshold_figure(scores: np.ndarray, present: np.ndarray, thresholds: Sequence[float], species: str) -> Figure:
    """Draw, for each threshold, the scores of images with and without a species, and what the cut gives.

    ``scores`` (N,) and ``present`` (N,) 0/1 belong to one species. Precision is the share of called images that hold
    the species, recall the share of images that hold it and are called (score > threshold, strictly).
    """
    figure, axes = plt.subplots(1, len(thresholds), figsize=(3.6 * len(thresholds), 2.8), sharey=True, squeeze=False)
    bins = np.linspace(scores.min(), scores.max(), 25)
    for axis, threshold in zip(axes[0], thresholds, strict=True):
        called = scores > threshold
        precision = present[called].mean() if called.any() else 0.0
        recall = called[present == 1].mean()
        axis.hist([scores[present == 1], scores[present == 0]], bins=bins, label=["present", "absent"],
                  color=["#0072B2", "#E69F00"])  # fmt: skip
        axis.axvline(threshold, color="black", linestyle="--")
        axis.set(title=f"threshold {threshold:.3f}\nprecision {precision:.2f}, recall {recall:.2f}",
                 xlabel=f"score of {species}")  # fmt: skip
    axes[0, 0].set_ylabel("images")
    axes[0, -1].legend(frameon=False)
    figure.tight_layout()
    return figure
