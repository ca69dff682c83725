"""The numbers that the paper prints, as data: its 21 tables, the numbers of its running text, its inconsistencies.

Each table is one file ``tables/tableNN.csv`` that holds the digits as printed ("0.660", "+0.055"), and
``tables/columns.csv`` says what each column is. **One rule for all tables:**

* one line per printed row; a section of the table goes into the column ``block`` (our short name for it, since not
  every section is headed in print);
* key columns are texts and name the row; where the text leaves a cell blank because it repeats the line above, it is
  filled in;
* a number column ``x`` is followed by companions, each only where the table needs it: ``x_std`` (the number after the
  plus-minus sign), ``x_low`` and ``x_high`` (an interval or a range; a range has no ``x``), ``x_bold``, ``x_dagger``;
* an empty cell is one that the table leaves empty or prints as a dash.

The entries of Table 2 are a picture in the text we hold: they are recomputed, and its column ``source`` says
"reconstructed".
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

TABLES = tuple(range(1, 22))
COMPANIONS = ("std", "low", "high", "bold", "dagger")
_FOLDER = Path(__file__).parent / "tables"
_KINDS = {"block", "key", "text", "number", "flag"}


def _read(path: Path) -> pd.DataFrame:
    """Read a CSV as texts; nothing is guessed from its content."""
    return pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")


def _check(n: int) -> int:
    if n not in TABLES:
        raise ValueError(f"the paper has no Table {n}: expected a number from {TABLES[0]} to {TABLES[-1]}")
    return int(n)


def columns(n: int) -> pd.DataFrame:
    """Return the columns of Table ``n``: ``column``, ``kind`` (block, key, text, number, flag) and printed ``heading``.

    Companions are not listed: they belong to the number column whose name they extend. An arrow at the end of a heading
    is the paper's mark for "higher (lower) is better". Raises ValueError for a table that the paper does not have.
    """
    every = _read(_FOLDER / "columns.csv")
    mine = every[every["table"] == str(_check(n))].drop(columns="table").reset_index(drop=True)
    if unknown := set(mine["kind"]) - _KINDS:
        raise ValueError(f"{_FOLDER / 'columns.csv'}: unknown kinds {sorted(unknown)}, expected {sorted(_KINDS)}")
    return mine


def printed_text(n: int) -> pd.DataFrame:
    """Return Table ``n`` with every cell as the text that is printed, so that the number of digits is kept."""
    return _read(_FOLDER / f"table{_check(n):02d}.csv")


def printed(n: int) -> pd.DataFrame:
    """Return Table ``n`` of the paper: numbers as float64 (NaN where empty), marks as bool, texts and keys as str.

    The layout is described at the top of this module. Raises ValueError for a table that the paper does not have.
    """
    table = printed_text(n)
    kinds = dict(columns(n)[["column", "kind"]].itertuples(index=False))
    for column in table.columns:
        stem, _, companion = column.rpartition("_")
        if column in kinds:
            kind = kinds[column]
        elif kinds.get(stem) == "number" and companion in COMPANIONS:
            kind = "flag" if companion in ("bold", "dagger") else "number"
        else:
            raise ValueError(f"Table {n}: column {column!r} is not described in columns.csv")
        if kind == "number":
            table[column] = pd.to_numeric(table[column].where(table[column] != ""), errors="raise").astype("float64")
        elif kind == "flag":
            table[column] = table[column].map({"true": True, "false": False}).astype(bool)
    return table


def decimals(text: str) -> int | None:
    """Return how many digits are printed after the point of ``text`` ("+0.055" -> 3), None for an empty text."""
    return None if text == "" else len(text.partition(".")[2])


def cells(n: int) -> pd.DataFrame:
    """Return the number cells of Table ``n``, one per line.

    Columns: ``table, block, row`` (the keys, joined by " / "), ``column, heading, value, std, low, high, digits, bold,
    dagger``; ``digits`` counts the printed decimals of the value (of the lower end for a range). Empty cells are left
    out.
    """
    numbers, texts, described = printed(n), printed_text(n), columns(n)
    keys = list(described.loc[described["kind"] == "key", "column"])
    lines = []
    for i in range(len(numbers)):
        for column, kind, heading in described.itertuples(index=False):
            if kind != "number":
                continue
            line = {q: numbers.get(f"{column}_{q}", {}).get(i) for q in COMPANIONS}
            text = texts[column][i] or texts.get(f"{column}_low", {}).get(i, "")
            if text == "":
                continue
            lines.append({
                "table": n, "block": texts["block"][i] if "block" in texts else "",
                "row": " / ".join(texts[key][i] for key in keys), "column": column, "heading": heading,
                "value": numbers[column][i],
                **{q: float("nan") if line[q] is None else float(line[q]) for q in ("std", "low", "high")},
                "digits": decimals(text), "bold": bool(line["bold"]), "dagger": bool(line["dagger"]),
            })
    names = ["table", "block", "row", "column", "heading", "value", "std", "low", "high", "digits", "bold", "dagger"]
    return pd.DataFrame(lines, columns=names)


def quoted() -> pd.DataFrame:
    """Return the numbers that the running text quotes: ``id, place, quantity, value, std, low, high, digits, table``.

    ``place`` is the section or appendix, ``quantity`` our wording, ``table`` the table that also prints the number or
    from whose cells it follows (empty if none does). Percentages and points are kept in the unit of the text, which
    ``quantity`` names.
    """
    frame = _read(Path(__file__).parent / "quoted.csv")
    texts = frame["value"].where(frame["value"] != "", frame["low"])
    for column in ("value", "std", "low", "high"):
        frame[column] = pd.to_numeric(frame[column].where(frame[column] != "")).astype("float64")
    frame.insert(frame.columns.get_loc("high") + 1, "digits", texts.map(decimals))
    return frame


def inconsistencies() -> pd.DataFrame:
    """Return where the paper contradicts itself or its own data: ``id, kind, place, printed, found, remark``.

    ``kind`` is "arithmetic" (printed numbers that do not fit each other), "statement" (a sentence against a table or
    another sentence), "mark" (bold type against its caption), "reference" (something pointed at that is not there) or
    "data" (a sentence against what follows from the labels and the published lists alone).
    """
    return _read(_FOLDER / "inconsistencies.csv")
