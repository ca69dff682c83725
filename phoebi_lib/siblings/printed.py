"""The numbers that the three benchmarks print, as data: one CSV per benchmark in ``printed/``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

BENCHMARKS = ("fungitastic", "needl", "bioeval")
_COLUMNS = ["table", "row", "column", "value", "source"]


def printed(benchmark: str) -> pd.DataFrame:
    """Return the printed numbers of a benchmark, one per line: ``table, row, column, value, source``.

    ``table`` is our short name for where they stand, ``value`` is in the unit of the print (per cent, unless the
    column says otherwise), and ``source`` is ``paper``, ``code``, ``project page`` or ``derived``. A number that no
    source we hold gives is not a line.

    Raises ValueError for an unknown benchmark or a damaged file.
    """
    if benchmark not in BENCHMARKS:
        raise ValueError(f"unknown benchmark {benchmark!r}; known: {', '.join(BENCHMARKS)}")
    path = Path(__file__).parent / "printed" / f"{benchmark}.csv"
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(table.columns) != _COLUMNS:
        raise ValueError(f"{path}: expected the columns {', '.join(_COLUMNS)}")
    table["value"] = pd.to_numeric(table["value"]).astype("float64")
    return table
