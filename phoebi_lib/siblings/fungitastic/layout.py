"""Where FungiTastic keeps its tables and pictures, and what its columns mean; names of older releases are found too.

One row is one image, known by ``filename``. Tables and features are joined by that name, never by position.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.siblings.printed import printed
from phoebi_lib.siblings.tables import allow, keyed, read_csv, require

SUBSETS = {"all": "FungiTastic", "Mini": "FungiTastic-Mini", "FewShot": "FungiTastic-FewShot"}
SPLITS = {"train": "Train", "val": "Val", "test": "Test", "dna": "DNA-Test"}
TASKS = {"closed": "ClosedSet-", "open": "OpenSet-"}
UNKNOWN = -1


class Split(NamedTuple):
    """Rows of a table, one per image, with their features (N, D) and labels (N,), -1 for unknown."""

    table: pd.DataFrame
    X: np.ndarray
    y: np.ndarray


def metadata_path(root: str | Path, subset: str, split: str, task: str = "closed") -> Path:
    """Return the table of a split.

    The words ClosedSet and OpenSet stand in the name only where a subset has both tasks, in val and test of the full
    set; older releases wrote them for Mini too, which also had an open set then.

    Args:
        root: folder that holds ``metadata/``.
        subset: all, Mini or FewShot.
        split: train, val, test or dna.
        task: closed or open.

    Raises:
        ValueError: an unknown name, or a split that the subset does not have.
        FileNotFoundError: no file under either name.
    """
    for name, value, known in (("subset", subset, SUBSETS), ("split", split, SPLITS), ("task", task, TASKS)):
        check_choice("FungiTastic", name, value, tuple(known))
    few = subset == "FewShot"
    if (few and split == "dna") or (task == "open" and (few or split not in ("val", "test"))):
        raise ValueError(f"FungiTastic has no {task} {split} split of {subset!r}; open sets are val and test of 'all'")
    both, old = (subset == name and split in ("val", "test") for name in ("all", "Mini"))
    words = [TASKS[task]] if both or task == "open" else ["", TASKS[task]] if old else [""]
    names = [f"{SUBSETS[subset]}-{word}{SPLITS[split]}.csv" for word in words]
    folder = Path(root) / "metadata" / SUBSETS[subset]
    if not (found := [folder / name for name in names if (folder / name).is_file()]):
        raise FileNotFoundError(f"{folder}: expected {' or '.join(names)}; give the folder that holds metadata/")
    return found[0]


def read_split(root: str | Path, subset: str, split: str, task: str = "closed") -> pd.DataFrame:
    """Return the checked table of a split, one row per image, in the order of the file.

    What a protocol needs besides ``filename`` and ``observationID``, it asks for. Without ``category_id`` (older test
    tables) pictures can be embedded, and :func:`labels` refuses to score.

    Raises as :func:`metadata_path` and :func:`read_table`; ValueError also for -1 outside an open set, and for training
    classes that are not 0..C-1, C at least 2, without a gap.
    """
    path = metadata_path(root, subset, split, task)
    table = read_table(path)
    if "category_id" in table:
        seen = np.unique(labels(table))
        if task == "closed" and UNKNOWN in seen:
            raise ValueError(f"{path}: category_id -1 (unknown) belongs into an open set only")
        if split == "train" and (len(seen) < 2 or not np.array_equal(seen, np.arange(len(seen)))):
            gaps = np.setdiff1d(np.arange(len(seen)), seen)[:5].tolist()
            raise ValueError(f"{path}: training classes must be 0..C-1, two or more, without a gap; found {len(seen)}, "
                             f"up to {seen[-1]}, without {gaps}")  # fmt: skip
    return table


def read_table(path: str | Path, key: str = "filename") -> pd.DataFrame:
    """Return a CSV file with a row per image, known by ``key``; :func:`source` knows its file.

    Raises FileNotFoundError; ValueError as :func:`~.tables.read_csv` and :func:`~.tables.keyed`, and for an image
    without ``observationID``.
    """
    table = keyed(read_csv(path, text=[key]), path, key, ["observationID"])
    table.attrs["file"] = str(path)
    return table


def source(table: pd.DataFrame) -> str:
    """Return the file that a table came from, for messages, or "table"."""
    return table.attrs.get("file", "table")


def column(table: pd.DataFrame, name: str) -> pd.Series:
    """Return a column. Raises ValueError, naming the file, where it is missing."""
    return require(table, [name], source(table))[name]


def labels(table: pd.DataFrame, name: str = "category_id") -> np.ndarray:
    """Return ``category_id`` as int64 (N,); -1 is unknown. Raises ValueError if it is missing or no whole number."""
    given = require(table, [name], f"{source(table)}: nothing can be scored")[name]
    ids = pd.to_numeric(given, errors="coerce")
    if (bad := ~((ids % 1 == 0) & (ids >= UNKNOWN) & (ids < 2**53)).to_numpy()).any():
        raise ValueError(f"{source(table)}: {name} must be a whole number of at least -1; data row "
                         f"{bad.argmax() + 1} is not, {given.iloc[bad.argmax()]}")  # fmt: skip
    return ids.to_numpy(np.int64)


def poisonous(table: pd.DataFrame, n_classes: int) -> np.ndarray:
    """Return which classes are poisonous, bool (C,), from training rows; False for a class without a row.

    A class whose rows disagree counts as poisonous, with a warning. Raises ValueError for a value other than 0 and 1.
    """
    flags = allow(pd.to_numeric(column(table, "poisonous"), errors="coerce"), (0, 1), source(table))
    each = flags.groupby(labels(table)).agg(["min", "max"])
    if (mixed := each.index[each["min"] != each["max"]]).size:
        warnings.warn(f"classes {mixed.tolist()} are poisonous in some rows only; taken as poisonous", stacklevel=2)
    return each["max"].reindex(range(n_classes), fill_value=0).to_numpy() == 1


def dates(table: pd.DataFrame) -> pd.Series:
    """Return the day of each row: of ``eventDate``, else of year, month and day, else NaT.

    Warns of an ``eventDate`` that is there and cannot be read; raises ValueError where no row has a day.
    """
    given = column(table, "eventDate")
    days = pd.to_datetime(given.astype(str).str[:10], format="%Y-%m-%d", errors="coerce")
    if {"year", "month", "day"} <= set(table):
        days = days.fillna(pd.to_datetime(table[["year", "month", "day"]], errors="coerce"))
    unread = given[days.isna() & given.notna()]
    text = f"{source(table)}: {days.isna().sum()} of {len(table)} rows have no date; expected eventDate like 2023-06-15"
    text += f", found {unread.iloc[0]!r}" if len(unread) else ""
    if days.isna().all():
        raise ValueError(f"{text}; correct it, or give year, month and day")
    if len(unread):
        warnings.warn(f"{text}; they come last", stacklevel=2)
    return days


def size_warnings(table: pd.DataFrame, subset: str, split: str, task: str = "closed") -> list[str]:
    """Return a sentence for each count that differs by more than 1 % from the paper's Table 9.

    The published tables disagree among themselves by a few rows, so the counts are not asserted.
    """
    name, sizes = f"{subset} {task} {split}", printed("fungitastic")
    wanted = sizes[(sizes["table"] == "sizes") & (sizes["row"] == name)].set_index("column")["value"]
    found = {"observations": table["observationID"].nunique(), "images": len(table)}
    if "species" in table:
        found["classes"] = table["species"].nunique()
    return [f"{name}: {n} {what}, printed {wanted[what]:.0f}" for what, n in found.items()
            if what in wanted and abs(n - wanted[what]) > 0.01 * wanted[what]]  # fmt: skip


def image_files(root: str | Path, table: pd.DataFrame, subset: str, split: str, size: int | str = 300) -> list[str]:
    """Return the pictures of a table's rows, in its order, relative to ``root``.

    Folders are found without regard to case, of DNA as ``dna`` or ``dna-test``, of full size as ``fullsize`` or
    ``fullsizep``, and below ``images/`` as FungiCLEF 2025 has them; files as :func:`on_disk` says.

    Raises FileNotFoundError for a folder or picture that is missing; ValueError for a name that fits several files.
    """
    root = Path(root)
    sizes = ["fullsize", "fullsizep"] if size == "fullsize" else [f"{size}p"]
    levels = [[SUBSETS[subset]], ["dna", "dna-test"] if split == "dna" else [split], sizes]
    for folder in (root, root / "images"):
        for names in levels:
            there = {path.name.lower(): path for path in sorted(folder.glob("*")) if path.is_dir()}
            folder = next((there[name.lower()] for name in names if name.lower() in there), folder / names[0])
        if folder.is_dir():
            return [(folder / name).relative_to(root).as_posix() for name in on_disk(folder, table["filename"])]
    raise FileNotFoundError(f"{root}: no folder {'/'.join(' or '.join(names) for names in levels)} of pictures")


def on_disk(folder: Path, names: Sequence[str]) -> list[str]:
    """Return each name as it is spelt below ``folder``, found without regard to case. Raises as :func:`image_files`,
    and ValueError for two names of one file.
    """
    found = respelt(names, (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()))
    taken: dict[str, str] = {}
    for name, fits in zip(names, found, strict=True):
        if not fits:
            raise FileNotFoundError(f"{folder / name}: no such picture; download this split at this size")
        if len(fits) > 1:
            raise ValueError(f"{folder}: {name!r} fits {', '.join(sorted(fits))}; keep one of them")
        if (other := taken.setdefault(fits[0], name)) != name:
            raise ValueError(f"{folder / fits[0]}: the picture of both {other!r} and {name!r}; expected one for each")
    return [fits[0] for fits in found]


def respelt(names: Iterable[str], there: Iterable[str]) -> list[list[str]]:
    """Return, for each name, itself alone if it is ``there``, else all that differ from it in case only."""
    spelt = defaultdict(list)
    for name in there:
        spelt[name.lower()].append(name)
    return [[name] if name in spelt[name.lower()] else spelt[name.lower()] for name in names]
