"""The tidy table of all runs, gathered from the rows that the protocols leave behind, one row per image and method."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd

from phoebi_lib import workspace

KEYS = ["profile", "dataset", "encoder", "compat", "partition", "seed", "method", "part", "pool_key"]


def collect(results: Path) -> Path | None:
    """Summarise every rows file under ``results/rows`` into ``results/results.csv``; return it, or None without rows.

    The columns ``KEYS`` name a line and are unique; of two files with the same key, made by different versions of the
    library, the newer one counts.
    """
    from phoebi_lib.protocols import summarise

    files = sorted((results / "rows").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        return None
    # summarised file by file: the rows of a full-size sweep need not fit into memory together
    table = pd.concat([summarise(pd.read_parquet(path)) for path in files], ignore_index=True)
    keys = [key for key in KEYS if key in table.columns]
    table = table.drop_duplicates(keys, keep="last").sort_values(keys, ignore_index=True)
    with workspace.atomic_path(results / "results.csv") as temporary:
        table.to_csv(temporary, index=False)
    return results / "results.csv"


def copy_tables(results: Path, out: Path) -> None:
    """Copy the display form of each table to ``out/tables``, where the book's pages look for it."""
    for path in sorted((results / "tables").glob("*.display.csv")):
        target = out / "tables" / path.name.replace(".display.csv", ".csv")
        with workspace.atomic_path(target) as temporary:
            shutil.copyfile(path, temporary)
