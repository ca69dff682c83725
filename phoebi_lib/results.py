"""The tidy table of all runs, gathered from the rows that the protocols leave behind, one row per image and method."""

from __future__ import annotations

import sys
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

    # a name that starts with a dot is a file that some process is writing, or was when it was killed
    files = [path for path in (results / "rows").rglob("*.parquet") if not path.name.startswith(".")]
    # summarised file by file: the rows of a full-size sweep need not fit into memory together
    summaries = []
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
        try:
            summaries.append(summarise(pd.read_parquet(path)))
        except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
            print(f"left out of the results table: {path} is damaged ({error}); delete it", file=sys.stderr)
    if not summaries:
        return None
    table = pd.concat(summaries, ignore_index=True)
    keys = [key for key in KEYS if key in table.columns]
    table = table.drop_duplicates(keys, keep="last").sort_values(keys, ignore_index=True)
    with workspace.atomic_path(results / "results.csv") as temporary:
        table.to_csv(temporary, index=False)
    return results / "results.csv"

