"""One shape for every result of the evaluation, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike


def result(task: str, variant: str, metric: str, values: ArrayLike, n_images: int, **more: object) -> dict:
    """Return one line: the mean of a metric over runs, folds or repeats, their population deviation and their number.

    Args:
        task, variant, metric: what was measured; ``variant`` as in :mod:`phoebi_lib.siblings`.
        values: one number per run.
        n_images: images that each run is scored on; the mean over runs where they differ.
        more: further columns.
    """
    values = np.atleast_1d(np.asarray(values, dtype=np.float64))
    return {"task": task, "variant": variant, "metric": metric, "value": float(values.mean()),
            "spread": float(values.std()), "runs": values.size, "n_images": int(n_images), **more}  # fmt: skip


def shown(frame: pd.DataFrame, heads: Mapping[str, str], digits: int = 2) -> pd.DataFrame:
    """Return the columns that ``heads`` names, renamed, as texts: numbers at fixed digits, a dash for none.

    The spread of a single run is none.
    """
    frame = frame.assign(spread=frame["spread"].where(frame["runs"] > 1)) if "spread" in frame else frame

    def text(value: object) -> str:
        if pd.isna(value):
            return "–"
        return f"{value:.{digits}f}" if isinstance(value, float) else str(value)

    return pd.DataFrame({head: frame[name].map(text, na_action=None) for name, head in heads.items()})
