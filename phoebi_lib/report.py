"""Tables with the paper's number beside ours: one tidy schema, checked, written as CSV, shown as plain columns.

A tidy table has one line per number. ``value`` is always computed here; what the paper prints goes into ``paper`` and
nowhere else, with the number of its printed decimals in ``digits``. The margin over the constant predictor of a column
``x`` is the column ``x_margin``. A line without a number says why in ``missing``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from phoebi_lib import workspace
from phoebi_lib.paper import cells, quoted
from phoebi_lib.provenance import EVIDENCE, Banner, banner
from phoebi_lib.rounding import agreement, at_digits, double_rounded, equal_at_printed_digits, round_half_up

__all__ = [
    "ALLOWED_MISSING", "COLUMNS", "EVIDENCE", "KEYS", "MARGIN", "NOT_COMPARABLE", "Banner", "add_paper", "add_quoted",
    "agreement", "at_digits", "banner", "book_table", "compare", "double_rounded", "equal_at_printed_digits",
    "printed_constant", "round_half_up", "table", "validate", "write_table",
]  # fmt: skip

_TEXTS = ("table", "row", "column", "evidence", "profile", "dataset", "encoder", "partition")
_NUMBERS = ("value", "low", "high", "paper")
_COUNTS = ("seed", "n_images", "n_frames", "n_combinations", "updates", "digits")
COLUMNS = (
    "table", "row", "column", "value", "low", "high", "paper", "evidence", "profile", "dataset", "encoder", "partition",
    "seed", "n_images", "n_frames", "n_combinations", "updates", "digits", "missing",
)  # fmt: skip
#: What a line is known by; no two lines of a table may agree in all of them.
KEYS = ("table", "row", "column", "encoder", "partition", "seed", "profile", "dataset")
#: The only reasons for a line without a number.
ALLOWED_MISSING = ("weights not on this machine", "needs the published images")
NOT_COMPARABLE = "not comparable"
MARGIN = "_margin"
_COMPARABLE = ("exact", "paper")
_NOTHING = "–"
_CONSTANT_ROW = "All-present predictor (constant)"
# Tables 4 and 8 print no constant row; theirs is the one that Table 3 prints for the same random test images
_CONSTANTS = {
    3: (3, {name: name for name in ("random_f1", "random_macro_f1", "random_em", "in_dist_f1", "heldout_f1",
                                    "heldout_macro_f1", "heldout_em")}),
    4: (3, {"per_sample_f1": "random_f1", "macro_f1": "random_macro_f1", "exact_match": "random_em"}),
    6: (6, {name: name for name in ("in_dist_val_f1", "heldout_f1", "heldout_macro_f1")}),
    8: (3, {"per_sample_f1": "random_f1", "macro_f1": "random_macro_f1", "exact_match": "random_em"}),
}  # fmt: skip


def table(lines: Iterable[Mapping[str, Any]] | pd.DataFrame, **common: Any) -> pd.DataFrame:
    """Return ``lines`` as a checked tidy table with the columns ``COLUMNS``.

    Args:
        lines: one mapping per number, with any of the columns; what is left out is empty.
        common: columns that are the same in every line (``profile="smoke"``); a line's own value wins.

    Raises:
        ValueError: as :func:`validate`, or a column that the schema does not have.
    """
    given = pd.DataFrame(lines)
    for name, value in common.items():
        given[name] = given[name].where(given[name].notna(), value) if name in given else value
    frame = given.reindex(columns=[*COLUMNS, *(name for name in given.columns if name not in COLUMNS)])
    for name in (*_TEXTS, "missing"):
        # a column that no line has is one of floats
        frame[name] = frame[name].astype(object).fillna("").astype(str)
    for name in _NUMBERS:
        frame[name] = pd.to_numeric(frame[name]).astype("float64")
    for name in _COUNTS:
        frame[name] = pd.to_numeric(frame[name]).astype("Int64")
    return validate(frame)


def validate(frame: pd.DataFrame) -> pd.DataFrame:
    """Return ``frame`` unchanged if it is a sound tidy table.

    Raises:
        ValueError: a column is missing or unknown; no table, row or column name; unknown evidence; a line without a
            number that gives no allowed reason (or with both); an infinite number; an interval upside down; two lines
            with the same keys; or printed numbers standing where computed ones belong (of the lines that are not exact,
            more than half, and at least two, repeat the printed number to the last bit).
    """
    missing, unknown = set(COLUMNS) - set(frame.columns), set(frame.columns) - set(COLUMNS)
    if missing or unknown:
        raise ValueError(f"a tidy table has the columns {', '.join(COLUMNS)}; missing: {sorted(missing) or 'none'}, "
                         f"unknown: {sorted(unknown) or 'none'}")  # fmt: skip
    for name in ("table", "row", "column"):
        _refuse(frame, frame[name] == "", f"every line needs a {name}")
    absent, reason = frame["value"].isna(), frame["missing"]
    _refuse(frame, ~reason.isin(("", *ALLOWED_MISSING)), f"the reasons for a missing number are {ALLOWED_MISSING}")
    _refuse(frame, absent & (reason == ""), f"no number and no reason; the reasons are {ALLOWED_MISSING}")
    _refuse(frame, ~absent & (reason != ""), "a number and a reason why there is none")
    _refuse(frame, ~absent & ~frame["evidence"].isin(EVIDENCE), f"unknown evidence; known: {', '.join(EVIDENCE)}")
    _refuse(frame, absent & (frame["evidence"] != ""), "evidence without a number; leave it empty")
    for name in _NUMBERS:
        _refuse(frame, frame[name].abs() == math.inf, f"{name} is infinite")
    _refuse(frame, frame["low"] > frame["high"], "the interval is upside down")
    _refuse(frame, frame["low"].isna() != frame["high"].isna(), "an interval has two ends")
    _refuse(frame, frame.duplicated(list(KEYS), keep=False), f"the same {', '.join(KEYS)} as another line")
    both = frame["value"].notna() & frame["paper"].notna() & (frame["evidence"] != "exact")
    same = both & (frame["value"] == frame["paper"]) & ~frame["paper"].isin((0.0, 1.0))
    if same.sum() >= 2 and 2 * same.sum() > both.sum():
        _refuse(frame, same, "the printed number stands where the computed one belongs")
    return frame


def _refuse(frame: pd.DataFrame, bad: pd.Series, why: str) -> None:
    if bad.any():
        first = frame.loc[bad].iloc[0]
        more = f" (and {int(bad.sum()) - 1} more)" if bad.sum() > 1 else ""
        raise ValueError(f"table {first['table']!r}, row {first['row']!r}, column {first['column']!r}{more}: {why}")


@cache
def printed_constant(n: int, column: str) -> float | None:
    """Return what the constant predictor scores in print in a column of Table ``n``; None without such a number."""
    source, names = _CONSTANTS.get(n, (0, {}))
    if column not in names:
        return None
    printed = cells(source)
    (value,) = printed.loc[(printed["row"] == _CONSTANT_ROW) & (printed["column"] == names[column]), "value"]
    return float(value)


def add_paper(
    frame: pd.DataFrame, n: int, rows: Mapping[str, str] | None = None, columns: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return ``frame`` with the printed numbers of Table ``n`` in its columns ``paper`` and ``digits``.

    A line gets the number whose row and column in ``phoebi_lib.paper.cells(n)`` have the names of the line, after
    translation by ``rows`` and ``columns`` (ours -> printed). ``x_std`` takes the printed spread of ``x``, ``x_low``
    and ``x_high`` the ends of its interval or range; ``x_margin`` takes the printed number minus the printed constant.
    Lines that the paper does not have keep an empty ``paper``.

    Raises:
        ValueError: a translation leads to a row or column that Table ``n`` does not have.
    """
    rows, columns = dict(rows or {}), dict(columns or {})
    printed = cells(n)
    for what, names in (("row", rows), ("column", columns)):
        for name in names.values():
            if name not in set(printed[what]):
                close = difflib.get_close_matches(name, sorted(set(printed[what])), n=1, cutoff=0.0)
                raise ValueError(f"Table {n} has no {what} {name!r}; the closest is {close[0]!r}")
    values = {(line["row"], line["column"]): line for line in printed.to_dict("records")}

    def number(row: str, column: str) -> tuple[float, int | None]:
        line = values.get((rows.get(row, row), columns.get(column, column)))
        if line is not None:
            return line["value"], line["digits"]
        stem, _, ending = column.rpartition("_")
        stem = columns.get(stem, stem)
        line = values.get((rows.get(row, row), stem))
        if line is not None and ending in ("std", "low", "high"):
            return line[ending], line["digits"]
        constant = printed_constant(n, stem) if line is not None and f"_{ending}" == MARGIN else None
        if line is None or constant is None:
            return float("nan"), None
        return round(line["value"] - constant, line["digits"]), line["digits"]

    found = [number(row, column) for row, column in zip(frame["row"], frame["column"], strict=True)]
    return validate(frame.assign(paper=[value for value, _ in found],
                                 digits=pd.array([digits for _, digits in found], dtype="Int64")))  # fmt: skip


def add_quoted(frame: pd.DataFrame, ids: Mapping[tuple[str, str], str | tuple[str, str]]) -> pd.DataFrame:
    """Return ``frame`` with numbers of the paper's running text in its columns ``paper`` and ``digits``.

    Args:
        frame: a tidy table.
        ids: (row, column) -> id of ``phoebi_lib.paper.quoted()``, or (id, field), the field being "value", "std", "low"
            or "high". A column ``x_std`` takes the spread of ``x`` unless it has an entry of its own. A quoted range
            has no value; its line, and those not named, stay as they are.

    Raises:
        KeyError: an id that the paper's quoted numbers do not have.
        ValueError: a row and column that the table does not have.
    """
    said, lines = quoted().set_index("id"), set(zip(frame["row"], frame["column"], strict=True))
    for row, column in ids:
        if (row, column) not in lines:
            raise ValueError(f"the table has no row {row!r} with a column {column!r}")
    places = {key: (name, "value") if isinstance(name, str) else name for key, name in ids.items()}
    spreads = {(row, f"{column}_std"): (name, "std") for (row, column), (name, _) in places.items()}
    numbers = {key: said.loc[name, [field, "digits"]].tolist() for key, (name, field) in {**spreads, **places}.items()}
    frame = frame.copy()
    for i, key in zip(frame.index, zip(frame["row"], frame["column"], strict=True), strict=True):
        if key in numbers and not math.isnan(numbers[key][0]):
            frame.loc[i, ["paper", "digits"]] = numbers[key]
    return validate(frame)


def compare(
    frame: pd.DataFrame, digits: int = 3, headings: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return a tidy table as it is shown: one line per row and quantity, every cell a text.

    Columns: ``row``, ``quantity``, ``ours``, ``[low, high]``, ``paper``, ``difference`` and, where the table has
    margins over the constant predictor, ``margin, ours``, ``[low, high] of margin`` and ``margin, paper``. The
    difference is given for exact and paper evidence; elsewhere it reads "not comparable", and the margins, each on its
    own images, are what can be read. Lines keep their order. What all runs share is not shown; what tells them
    apart (partition, seed, encoder) becomes part of ``row``.

    Args:
        frame: a tidy table.
        digits: decimals to show of a number that has no printed counterpart; the others are shown as printed.
        headings: what to call a column in ``quantity``.
    """
    validate(frame)
    headings = dict(headings or {})
    apart = [name for name in ("encoder", "partition", "seed") if frame[name].nunique(dropna=False) > 1]
    margins = {_key(line): line for line in frame.to_dict("records") if line["column"].endswith(MARGIN)}
    shown = []
    for line in frame.to_dict("records"):
        if line["column"].endswith(MARGIN):
            continue
        places = digits if pd.isna(line["digits"]) else int(line["digits"])
        row = " · ".join([line["row"], *(str(line[name]) for name in apart if str(line[name]) not in ("", "<NA>"))])
        cell = {
            "row": row, "quantity": headings.get(line["column"], line["column"]),
            "ours": line["missing"] or at_digits(line["value"], places), "[low, high]": _interval(line, places),
            "paper": _or_nothing(line["paper"], places), "difference": _difference(line, places),
        }  # fmt: skip
        if margins:
            margin = margins.get(_key(line, MARGIN), {})
            cell["margin, ours"] = _or_nothing(margin.get("value"), places, sign=True)
            cell["[low, high] of margin"] = _interval(margin, places, sign=True)
            cell["margin, paper"] = _or_nothing(margin.get("paper"), places, sign=True)
        shown.append(cell)
    return pd.DataFrame(shown)


def _key(line: Mapping[str, Any], ending: str = "") -> tuple[str, ...]:
    return tuple(str(line[name]) + (ending if name == "column" else "") for name in KEYS)


def _or_nothing(value: float | None, places: int, sign: bool = False) -> str:
    return _NOTHING if value is None or math.isnan(value) else at_digits(value, places, sign)


def _interval(line: Mapping[str, Any], places: int, sign: bool = False) -> str:
    low, high = line.get("low"), line.get("high")
    if low is None or math.isnan(low):
        return _NOTHING
    return f"[{at_digits(low, places, sign)}, {at_digits(high, places, sign)}]"


def _difference(line: Mapping[str, Any], places: int) -> str:
    if math.isnan(line["paper"]) or math.isnan(line["value"]):
        return _NOTHING
    if line["evidence"] not in _COMPARABLE:
        return NOT_COMPARABLE
    text = at_digits(line["value"] - line["paper"], places, sign=True)
    if line["evidence"] == "exact" and agreement(line["value"], line["paper"], places) == "equal after double rounding":
        return f"{text} (the printed digit comes from rounding twice)"
    return text


def write_table(frame: pd.DataFrame, name: str) -> Path:
    """Check a tidy table and write it to ``<tables>/<name>.csv``, whole or not at all; return the path."""
    return _write(validate(frame), name, ".csv")


def book_table(frame: pd.DataFrame, name: str) -> Path:
    """Write a table as it is shown to ``<tables>/<name>.display.csv``, for the book's ``csv-table`` directive.

    Returns the path. Raises ValueError for an empty table or cell: a page shows a reason or a dash, never nothing.
    """
    texts = frame.astype(object).where(frame.notna(), "").astype(str)
    for column in texts:
        empty = texts[column].str.strip() == ""
        if empty.any():
            raise ValueError(f"table {name!r}: line {int(empty.argmax())} of column {column!r} is empty; "
                             f"write {_NOTHING!r} or a reason")  # fmt: skip
    if texts.empty:
        raise ValueError(f"table {name!r} has no lines")
    return _write(texts, name, ".display.csv")


def _write(frame: pd.DataFrame, name: str, ending: str) -> Path:
    if not name or Path(name).name != name or name.startswith("."):
        raise ValueError(f"a table's name is a plain file name without a folder, got {name!r}")
    path = workspace.tables_dir() / f"{name}{ending}"
    with workspace.atomic_path(path) as temporary:
        frame.to_csv(temporary, index=False, encoding="utf-8", lineterminator="\n")
    return path
