"""Where FungiTastic keeps its tables and pictures, and what its columns mean; names of older releases are found too.

One row is one image, known by ``filename``. Tables and features are joined by that name, never by position.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.siblings.printed import printed
from phoebi_lib.siblings.tables import read_csv

SUBSETS = {"all": "FungiTastic", "Mini": "FungiTastic-Mini", "FewShot": "FungiTastic-FewShot"}
TASKS = ("closed", "open")
SPLITS = {"train": "Train", "val": "Val", "test": "Test", "dna": "DNA-Test"}
#: The documented columns, in the order of the published tables; ``captions`` came later.
COLUMNS = (
    "eventDate", "year", "month", "day", "habitat", "countryCode", "scientificName", "kingdom", "phylum", "class",
    "order", "family", "genus", "specificEpithet", "hasCoordinate", "species", "iucnRedListCategory", "substrate",
    "latitude", "longitude", "coorUncert", "observationID", "region", "district", "filename", "category_id",
    "metaSubstrate", "poisonous", "elevation", "landcover", "biogeographicalRegion", "captions",
)  # fmt: skip
UNKNOWN = -1


def metadata_path(root: str | Path, subset: str, split: str, task: str = "closed") -> Path:
    """Return the table of a split.

    The words ClosedSet and OpenSet stand in the name only where a subset has both tasks, in val and test of the full
    set. Older releases wrote them for Mini too; such a name is taken where the plain one is missing.

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
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
    # an open set of Mini existed in older releases only, under the long name
    both, older = (subset == name and split in ("val", "test") for name in ("all", "Mini"))
    if (task == "open" and not (both or older)) or (subset == "FewShot" and split == "dna"):
        raise ValueError(f"FungiTastic has no {task} {split} split of {subset!r}; open sets are val and test of 'all'")
    name, word = SUBSETS[subset], "OpenSet" if task == "open" else "ClosedSet"
    plain, long = f"{name}-{SPLITS[split]}.csv", f"{name}-{word}-{SPLITS[split]}.csv"
    names = [long] if both or task == "open" else [plain, long] if subset == "Mini" else [plain]
    folder = Path(root) / "metadata" / name
    for candidate in names:
        if (folder / candidate).is_file():
            return folder / candidate
    raise FileNotFoundError(f"{folder}: expected {' or '.join(names)}; give the folder that holds metadata/")


def read_split(root: str | Path, subset: str, split: str, task: str = "closed") -> pd.DataFrame:
    """Return the checked table of a split, one row per image, in the order of the file.

    ``filename`` and ``observationID`` are required; what else a protocol needs, :func:`column` asks for. Without
    ``category_id`` (older test tables) pictures can be embedded, and :func:`labels` refuses to score.

    Raises as :func:`metadata_path`, :func:`read_table` and :func:`check_table`; ValueError also for -1 outside an open
    set, and for training classes that are not 0..C-1 without a gap.
    """
    path = metadata_path(root, subset, split, task)
    table = check_table(read_table(path))
    if "category_id" in table:
        ids = labels(table)
        if task == "closed" and (ids == UNKNOWN).any():
            raise ValueError(f"{path}: category_id -1 (unknown) belongs into an open set only")
        seen = np.unique(ids)
        if split == "train" and not np.array_equal(seen, np.arange(len(seen))):
            gaps = np.setdiff1d(np.arange(len(seen)), seen)
            raise ValueError(f"{path}: training classes must be 0..C-1 without a gap; {gaps[:5].tolist()} have no row, "
                             f"yet there is {seen[-1]}")  # fmt: skip
    return table


def read_table(path: str | Path) -> pd.DataFrame:
    """Return a CSV or Parquet file as a table; :func:`source` knows its file.

    Raises FileNotFoundError; ValueError for a damaged file, a CSV as :func:`~phoebi_lib.siblings.tables.read_csv` says.
    """
    if Path(path).suffix != ".parquet":
        table = read_csv(path, text=False)
    else:
        try:
            table = pd.read_parquet(path)
        except ValueError as error:
            raise ValueError(f"{path}: cannot be read ({error}); expected a Parquet file as published") from error
    table.attrs["file"] = str(path)
    return table


def source(table: pd.DataFrame) -> str:
    """Return the file that a table came from, for messages, or "table"."""
    return table.attrs.get("file", "table")


def check_table(table: pd.DataFrame, key: str = "filename") -> pd.DataFrame:
    """Return ``table`` with its key column as text.

    Raises ValueError for an empty table, a missing column, a key that is empty, given twice or leads out of its
    folder, or an observation without a number.
    """
    what = source(table)
    if table.empty:
        raise ValueError(f"{what}: no row")
    names = column(table, key)
    if names.isna().any() or column(table, "observationID").isna().any():
        raise ValueError(f"{what}: a row without {key} or observationID")
    names = names.astype(str)
    if names.duplicated().any():
        raise ValueError(f"{what}: {key} given twice: {', '.join(names[names.duplicated()].unique()[:5])}")
    for name in names:
        if Path(name).is_absolute() or "\\" in name or ".." in Path(name).parts or not Path(name).name:
            raise ValueError(f"{what}: {name!r} leaves the folder of the pictures")
    return table.assign(**{key: names})


def column(table: pd.DataFrame, name: str, what: str = "") -> pd.Series:
    """Return a column. Raises ValueError where it is missing."""
    if name not in table:
        found = ", ".join(map(str, table.columns[:12]))
        raise ValueError(f"{what or source(table)}: the column {name!r} is missing; found {found}")
    return table[name]


def labels(table: pd.DataFrame) -> np.ndarray:
    """Return ``category_id`` as int64 (N,); -1 is unknown. Raises ValueError if it is missing or no whole number."""
    if "category_id" not in table:
        raise ValueError(f"{source(table)}: no category_id; its pictures can be embedded, but nothing can be scored")
    ids = pd.to_numeric(table["category_id"], errors="coerce").to_numpy(dtype=np.float64)
    bad = ~((ids == np.floor(ids)) & (ids >= UNKNOWN) & np.isfinite(ids))
    if bad.any():
        row = bad.argmax()
        raise ValueError(f"{source(table)}: category_id must be a whole number of at least -1; row {row} is not, "
                         f"{table['category_id'].iloc[row]}")  # fmt: skip
    return ids.astype(np.int64)


def image_files(root: str | Path, table: pd.DataFrame, subset: str, split: str, size: int | str = 300) -> list[str]:
    """Return the pictures of a table's rows, in its order, relative to ``root``.

    Folders are found without regard to case, of DNA as ``dna`` or ``dna-test``, of full size as ``fullsize`` or
    ``fullsizep``, and below ``images/`` as FungiCLEF 2025 has them; a file that differs in case only is found too.

    Raises FileNotFoundError for a folder or picture that is missing; ValueError for a name that fits several files.
    """
    root = Path(root)
    sizes = ["fullsize", "fullsizep"] if size == "fullsize" else [f"{size}p"]
    levels = [[SUBSETS[subset]], ["dna", "dna-test"] if split == "dna" else [split], sizes]
    for folder in (root, root / "images"):
        for level in levels:
            folder = _child(folder, level)
        if folder.is_dir():
            return [(folder / name).relative_to(root).as_posix() for name in on_disk(folder, table["filename"])]
    raise FileNotFoundError(f"{root}: no folder {'/'.join(' or '.join(level) for level in levels)} of pictures")


def poisonous(table: pd.DataFrame, n_classes: int) -> np.ndarray:
    """Return which classes are poisonous, bool (C,), from training rows; False for a class without a row.

    A class whose rows disagree counts as poisonous, with a warning. Raises ValueError for a value other than 0 and 1.
    """
    flags = pd.to_numeric(column(table, "poisonous"), errors="coerce")
    if (bad := ~flags.isin((0, 1)).to_numpy()).any():
        raise ValueError(f"{source(table)}: poisonous must be 0 or 1 in every training row; row {bad.argmax()} is not")
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
    if {"year", "month", "day"} <= set(table.columns):
        days = days.fillna(pd.to_datetime(table[["year", "month", "day"]], errors="coerce"))
    unread, undated = given[days.isna() & given.notna()], int(days.isna().sum())
    text = f"{source(table)}: {undated} of {len(table)} rows have no date; expected eventDate like 2023-06-15"
    text += f", found {unread.iloc[0]!r}" if len(unread) else ""
    if undated == len(table):
        raise ValueError(f"{text}; correct it, or give year, month and day")
    if len(unread):
        warnings.warn(f"{text}; they come last", stacklevel=2)
    return days


def size_warnings(table: pd.DataFrame, subset: str, split: str, task: str = "closed") -> list[str]:
    """Return a sentence for each count that differs by more than 1 % from the paper's Table 9.

    The published tables disagree among themselves by a few rows, so the counts are not asserted.
    """
    sizes = printed("fungitastic")
    sizes = sizes[(sizes["table"] == "sizes") & (sizes["row"] == f"{subset} {task} {split}")]
    found = {"observations": table["observationID"].nunique(), "images": len(table)}
    if "species" in table:
        found["classes"] = table["species"].nunique()
    wanted = dict(zip(sizes["column"], sizes["value"], strict=True))
    return [f"{subset} {task} {split}: {n} {name}, printed {wanted[name]:.0f}" for name, n in found.items()
            if name in wanted and abs(n - wanted[name]) > 0.01 * wanted[name]]  # fmt: skip


def _child(folder: Path, names: list[str]) -> Path:
    found = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_dir()} if folder.is_dir() else {}
    return next((found[name.lower()] for name in names if name.lower() in found), folder / names[0])


def on_disk(folder: Path, names: pd.Series) -> list[str]:
    """Return each name as it is spelt below ``folder``. Raises as :func:`image_files`."""
    there = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    exact, spelt = set(there), {}
    for name in there:
        spelt.setdefault(name.lower(), []).append(name)
    found = []
    for name in names:
        fits = [name] if name in exact else spelt.get(str(name).lower(), [])
        if not fits:
            raise FileNotFoundError(f"{folder / name}: no such picture; download this split at this size")
        if len(fits) > 1:
            raise ValueError(f"{folder}: {name!r} fits {', '.join(sorted(fits))}; keep one of them")
        found += fits
    return found
