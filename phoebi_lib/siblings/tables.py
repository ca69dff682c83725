"""Tables from outside: read whole, checked, or refused with the file's name and the first value that is wrong."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

import pandas as pd


def read_csv(path: str | Path, columns: Iterable[str] = (), *, text: bool | Iterable[str] = True) -> pd.DataFrame:
    """Return a CSV file in UTF-8, with or without a byte-order mark, as a table.

    Args:
        path: the file.
        columns: those that it must have.
        text: every cell as text, an empty one as ""; else numbers where a column holds nothing else, NaN where empty,
            but for the columns listed here.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is empty, not in UTF-8, a row has more or fewer cells than the head (file and line are named), a
            column stands there twice, or one is missing.
    """
    types = str if text is True else dict.fromkeys(text or (), str)
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            names = [name.strip() for name in next(reader, [])]
            if twice := [name for name in names if name and names.count(name) > 1]:
                raise ValueError(f"the column {twice[0]!r} stands twice in the head")
            head = len(names)
            # pandas fills short rows and shifts the columns of long ones
            for row in reader:
                if row and len(row) != head:
                    raise ValueError(f"line {reader.line_num} has {len(row)} cells, the head {head}")
        table = pd.read_csv(path, encoding="utf-8-sig", dtype=types, keep_default_na=text is not True, low_memory=False)
    except (ValueError, csv.Error) as error:
        reason = str(error).strip()
        raise ValueError(f"{path}: {reason}; expected a CSV in UTF-8, a head and rows of as many cells") from error
    return require(table, columns, path)


def require(table: pd.DataFrame, columns: Iterable[str], source: object) -> pd.DataFrame:
    """Return ``table`` if it has these columns. Raises ValueError, naming ``source``, if one is missing."""
    if missing := [name for name in columns if name not in table]:
        found = ", ".join(map(str, table.columns[:12]))
        raise ValueError(f"{source}: the column {missing[0]!r} is missing; found {found}")
    return table


def allow(column: pd.Series, known: Collection, source: object) -> pd.Series:
    """Return ``column`` if it holds nothing but ``known`` values. Raises ValueError with the first other one."""
    if (bad := ~column.isin(list(known)).to_numpy()).any():
        found = column[bad].tolist()[0]
        raise ValueError(f"{source}: data row {bad.argmax() + 1} has {column.name} {found!r}; "
                         f"expected one of {', '.join(map(repr, known))}")  # fmt: skip
    return column


def inside(name: object, source: object) -> str:
    """Return a file name in its plain form. Raises ValueError if it is empty or leads out of its folder."""
    path = PurePosixPath(str(name))
    if not path.name.strip() or path.is_absolute() or ".." in path.parts or "\\" in str(name) or ":" in path.parts[0]:
        raise ValueError(f"{source}: file name {name!r} is empty or leaves its folder; expected a path inside it")
    return str(path)


def keyed(table: pd.DataFrame, source: object, key: str = "path", filled: Iterable[str] = ()) -> pd.DataFrame:
    """Return ``table`` with fresh row numbers if the file names in ``key`` can tell its rows apart.

    Raises ValueError for no row, a missing column, an empty cell in ``key`` or ``filled``, a name that leaves its
    folder, or one given twice.
    """
    if table.empty:
        raise ValueError(f"{source}: no row")
    for name in (key, *filled):
        column = require(table, [name], source)[name]
        if (empty := (column.isna() | (column == "")).to_numpy()).any():
            raise ValueError(f"{source}: data row {empty.argmax() + 1} is without {name}")
    names = pd.Series([inside(name, source) for name in table[key]], table.index)
    if (twice := names.duplicated()).any():
        raise ValueError(f"{source}: {key} given twice: {', '.join(names[twice].unique()[:5])}")
    return table.assign(**{key: names}).reset_index(drop=True)
