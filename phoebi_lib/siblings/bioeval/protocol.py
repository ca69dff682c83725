"""What the protocols share: both splits of a table with their features, one shape for results, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from phoebi_lib.siblings.embedding import features_of


def splits(table: pd.DataFrame, features: pd.DataFrame, task: str) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """Yield the rows of train, then of test, each with its raw features, float64 (N, D), joined by path.

    Raises ValueError for a split without an image, and for features missing, given twice or not finite.
    """
    for split in ("train", "test"):
        rows = table[table["split"] == split]
        if rows.empty:
            raise ValueError(f"{task}: no {split} image; the protocol needs both splits")
        yield rows, features_of(features, rows["path"], task)


def summary(task: str, records: Iterable[tuple[str, str, float, int]], **more: object) -> pd.DataFrame:
    """Return one line per variant and metric: mean over runs, population deviation (``spread``) and number of runs.

    Args:
        task: what was measured.
        records: ``variant, metric, value, n_images`` of each run, fold or species; a value of NaN is not counted.
        more: further columns.
    """
    columns = ["variant", "metric", "value", "n_images"]
    runs = pd.DataFrame(records, columns=columns).groupby(["variant", "metric"], sort=False)
    table = runs["value"].agg(value="mean", spread=lambda values: values.std(ddof=0), runs="count")
    return table.assign(n_images=runs["n_images"].first()).reset_index().assign(task=task, **more)


def shown(frame: pd.DataFrame, heads: Mapping[str, str], digits: int = 2) -> pd.DataFrame:
    """Return the columns that ``heads`` names, renamed, as texts: numbers at fixed digits, a dash for none.

    The spread of a single run is none.
    """
    if "spread" in frame:
        frame = frame.assign(spread=frame["spread"].where(frame["runs"] > 1))

    def text(value: object) -> str:
        if pd.isna(value):
            return "–"
        return f"{value:.{digits}f}" if isinstance(value, float) else str(value)

    return pd.DataFrame({head: frame[name].map(text) for name, head in heads.items()})
