"""Files of rows: parquet, written whole, found again by a key over everything that decides their content."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from phoebi_lib.workspace import atomic_path

_KEY = b"phoebi_key"


def slug(text: str) -> str:
    """Return ``text`` as a piece of a file name: lower case, other characters than letters, digits and dots as "_"."""
    return re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_.") or "unnamed"


def read_rows(path: Path, key: str) -> pd.DataFrame | None:
    """Return the stored rows, or None where there is no file or it was made from other inputs."""
    try:
        if not path.is_file() or (pq.read_schema(path).metadata or {}).get(_KEY) != key.encode():
            return None
        return pd.read_parquet(path)
    except (pa.ArrowInvalid, OSError):
        # damaged from outside: our own writes are atomic. The run is made again and replaces it.
        return None


def write_rows(path: Path, key: str, rows: pd.DataFrame) -> None:
    """Write rows under their key, whole or not at all."""
    table = pa.Table.from_pandas(rows, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: key.encode()})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)
