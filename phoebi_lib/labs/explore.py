"""Sliders and their static twins: one drawing function serves both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from phoebi_lib import widgets

#: Draws one setting into a figure or a part of one: ``panel(part, **setting)``.
Panel = Callable[..., None]


def explorer(panel: Panel, **options: Sequence[Any]):
    """Return a slider or a list for each keyword of ``panel``; a new choice draws the panel again.

    ``options`` gives each keyword its values: numbers become a slider, texts a list, the middle value comes first. Both
    obey the keyboard. It needs a running kernel; in a rendered page :func:`twin` shows the same panel.
    """
    return widgets.controls(lambda **setting: twin(panel, [setting], width=5.2), **options)


def twin(panel: Panel, settings: Sequence[Mapping[str, Any]], *, width: float = 9.6, height: float = 3.2) -> Figure:
    """Return one figure, in inches, with the panel drawn once for each of ``settings``, side by side.

    Raises ValueError without settings.
    """
    if not settings:
        raise ValueError("settings is empty; give the keywords of the panel at least once")
    figure = plt.figure(figsize=(width, height), layout="constrained")
    for part, setting in zip(figure.subfigures(1, len(settings), squeeze=False)[0], settings, strict=True):
        panel(part, **setting)
    return figure


def few(manifest: pd.DataFrame, rows: np.ndarray, n: int) -> np.ndarray:
    """Return the first ``n`` of each combination among the row positions ``rows``, so that a class does not wait."""
    rows = np.asarray(rows)
    return rows[manifest.iloc[rows].groupby("combination").cumcount().to_numpy() < n]
