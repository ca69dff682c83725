"""CSV files from outside: read whole, or refused with the file's name."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd


def read_csv(path: str | Path, *, text: bool = True) -> pd.DataFrame:
    """Return a CSV file in UTF-8, with or without a byte-order mark, as a table.

    Args:
        path: the file.
        text: every cell as text, an empty one as ""; else numbers where a column holds nothing else, NaN where empty.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is empty, not in UTF-8, or a row has more or fewer cells than the head; file and line are named.
    """
    as_text = {"dtype": str, "keep_default_na": False} if text else {"low_memory": False}
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            head = len(next(reader, []))
            # pandas fills short rows and shifts the columns of long ones
            for row in reader:
                if row and len(row) != head:
                    raise ValueError(f"line {reader.line_num} has {len(row)} cells, the head {head}")
        return pd.read_csv(path, encoding="utf-8-sig", **as_text)
    except (ValueError, csv.Error) as error:
        reason = str(error).strip()
        raise ValueError(f"{path}: {reason}; expected a CSV in UTF-8, a head and rows of as many cells") from error
