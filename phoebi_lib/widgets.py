"""Sliders for the notebooks: each drives a function that draws a plain figure, so each has a static twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure


def controls(draw: Callable[..., Figure], **options: Sequence[Any]):
    """Return an ipywidgets box with a slider or a list for each keyword of ``draw``, which redraws ``draw(**choice)``.

    ``options`` gives each keyword its values, the middle one chosen first: numbers become a slider, texts a list. It
    needs a running kernel; in a rendered page show ``draw`` at a few values instead.
    """
    import ipywidgets
    from IPython.display import display

    def show(**choice: Any) -> None:
        figure = draw(**choice)
        display(figure)
        plt.close(figure)

    def control(name: str, values: Sequence[Any]) -> ipywidgets.Widget:
        texts = all(isinstance(value, str) for value in values)
        labels = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in values]
        common = {
            "options": list(zip(labels, values, strict=True)), "value": values[len(values) // 2],
            "description": name.replace("_", " "), "style": {"description_width": "initial"},
            "layout": {"width": "32em"},
        }  # fmt: skip
        return ipywidgets.Dropdown(**common) if texts else ipywidgets.SelectionSlider(**common, continuous_update=False)

    return ipywidgets.interactive(show, **{name: control(name, values) for name, values in options.items()})


def explorer(draw: Callable[[float], Figure], values: Sequence[float], description: str):
    """Return :func:`controls` with the one slider ``description`` over ``values``, for ``draw(value)``."""
    return controls(lambda **choice: draw(choice[description]), **{description: [float(value) for value in values]})


def threshold_figure(scores: np.ndarray, present: np.ndarray, thresholds: Sequence[float], species: str) -> Figure:
    """Draw, for each threshold, the scores of images with and without a species, and what the cut gives.

    ``scores`` (N,) and ``present`` (N,) 0/1 belong to one species. Precision is the share of called images that hold
    the species, recall the share of images that hold it and are called (score > threshold, strictly).
    """
    n = len(thresholds)
    figure, axes = plt.subplots(1, n, figsize=(3.6 * n, 2.8), sharey=True, squeeze=False, layout="constrained")
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
    return figure
