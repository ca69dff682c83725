"""The data sets that come with a CSV: FishNet, NeWT, the species few-shot sets and the variants within species."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from phoebi_lib.siblings.tables import read_csv

#: FishNet's nine labels, in the order in which all of them have to be right.
LABELS = ("FeedingPath", "Tropical", "Temperate", "Subtropical", "Boreal", "Polar", "freshwater", "saltwater",
          "brackish")  # fmt: skip
_FEEDING = {"pelagic": 1.0, "benthic": 0.0, "": np.nan}


def fishnet(root: str | Path) -> pd.DataFrame:
    """Return FishNet's images: ``path`` (below ``root``), ``split`` (train, test) and the nine ``LABELS``, 0/1.

    Rows without all nine labels are left out, of either split. Columns are found by name. An ``image`` that is a web
    address stands for the file after its last slash.

    Raises:
        FileNotFoundError: ``train.csv`` or ``test.csv`` is not there.
        ValueError: a missing column, another value than the labels can have, a path that leaves the root or occurs
            twice, or a split without a labelled row.
    """
    parts = []
    for split in ("train", "test"):
        file = Path(root) / f"{split}.csv"
        raw = read_table(file, ("image", "Folder", *LABELS))
        _allow(file, raw["FeedingPath"], _FEEDING)
        labels = raw[list(LABELS)].assign(FeedingPath=raw["FeedingPath"].map(_FEEDING))
        for label in LABELS[1:]:
            labels[label] = pd.to_numeric(raw[label], errors="coerce")
            _allow(file, labels[label].where(raw[label] != "", 0.0), (0.0, 1.0))
        base = raw["image"].str.rpartition("/")[2]
        if (empty := (base == "") | (raw["Folder"] == "")).any():
            raise ValueError(f"{file}: data row {int(empty.argmax()) + 1} names no image or no Folder")
        part = labels.assign(path="Image_Library/" + raw["Folder"] + "/" + base, split=split).dropna()
        if part.empty:
            raise ValueError(f"{file}: no row has all of {', '.join(LABELS)}")
        parts.append(part)
    table = pd.concat(parts, ignore_index=True).astype(dict.fromkeys(LABELS, np.int64))
    return keyed(table[["path", "split", *LABELS]], f"{root}: train.csv and test.csv")


def newt(root: str | Path) -> pd.DataFrame:
    """Return NeWT's images: ``path``, ``task``, ``cluster``, ``subcluster`` (may be ""), ``split`` and ``label``, 0/1.

    Raises:
        FileNotFoundError: ``newt2021_labels.csv`` is not there.
        ValueError: a missing column, a label other than 0 and 1, another split than train and test, a task in two
            clusters, or an id that leaves the root or occurs twice.
    """
    file = Path(root) / "newt2021_labels.csv"
    raw = read_table(file, ("id", "task_cluster", "task_subcluster", "task", "label", "split"))
    _allow(file, raw["label"], ("0", "1"))
    _allow(file, raw["split"], ("train", "test"))
    if bad := raw.groupby("task")["task_cluster"].nunique().loc[lambda n: n > 1].index.tolist():
        raise ValueError(f"{file}: task {bad[0]!r} lies in several clusters; expected one task_cluster a task")
    return keyed(
        pd.DataFrame({
            "path": "newt2021_images/" + raw["id"] + ".jpg", "task": raw["task"], "cluster": raw["task_cluster"],
            "subcluster": raw["task_subcluster"], "split": raw["split"], "label": raw["label"].astype(np.int64),
        }), str(file),
    )  # fmt: skip


def few_shot(root: str | Path, file: str = "metadata.csv") -> pd.DataFrame:
    """Return a species set: ``path``, ``class`` and the further columns of its CSV (ranks, ``common_name``) as texts.

    Raises:
        FileNotFoundError: ``file`` is not there.
        ValueError: a missing column, a row without a class, or a path that leaves the root or occurs twice.
    """
    raw = read_table(Path(root) / file, ("filepath", "class"))
    return keyed(raw.rename(columns={"filepath": "path"}), str(Path(root) / file), filled=("class",))


def intra_species(root: str | Path, file: str = "metadata.csv") -> pd.DataFrame:
    """Return a table of variants within species (life stages or sexes): ``path``, ``species`` and ``variant``.

    No layout of this data is published: the CSV has the columns ``image_path, species, variant`` (variant ``ours``).

    Raises:
        FileNotFoundError: ``file`` is not there.
        ValueError: a missing column or name, not two variants in all, a species that lacks one of them, or a path that
            leaves the root or occurs twice.
    """
    raw = read_table(Path(root) / file, ("image_path", "species", "variant"))
    table = raw[["image_path", "species", "variant"]].rename(columns={"image_path": "path"})
    table = keyed(table, str(Path(root) / file), filled=("species", "variant"))
    if table["variant"].nunique() != 2:
        raise ValueError(f"{root}/{file}: expected two variants, found {', '.join(sorted(table['variant'].unique()))}")
    if bad := table.groupby("species")["variant"].nunique().loc[lambda n: n < 2].index.tolist():
        raise ValueError(f"{root}/{file}: species {bad[0]!r} has one variant only; leave it out or add the other")
    return table


def read_table(file: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return a CSV as texts, an empty cell as "".

    Raises FileNotFoundError without the file; ValueError for a file that is not UTF-8 or has rows of another length
    than its head, a missing column or a file without rows.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there; expected the folder of one data set in its published layout")
    table = read_csv(file)
    if missing := [name for name in columns if name not in table.columns]:
        raise ValueError(f"{file}: no column {', '.join(missing)}; it has {', '.join(map(str, table.columns))}")
    if table.empty:
        raise ValueError(f"{file}: has no rows")
    return table


def keyed(table: pd.DataFrame, source: str, filled: Sequence[str] = ()) -> pd.DataFrame:
    """Return ``table`` with fresh row numbers if its ``path`` can serve as the key of its rows.

    Raises ValueError for a path that is absolute or leaves the root, one that occurs twice, and an empty cell in one of
    the columns ``filled``.
    """
    for name in filled:
        if (empty := table[name] == "").any():
            raise ValueError(f"{source}: no {name} for {table['path'][empty].iloc[0]!r}; expected one in each row")
    for path in table["path"]:
        if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{source}: path {path!r} leaves the root; expected a file below it")
    if (twice := table["path"].duplicated()).any():
        raise ValueError(f"{source}: {table['path'][twice].iloc[0]!r} occurs twice; expected one row an image")
    return table.reset_index(drop=True)


def _allow(file: Path, column: pd.Series, known: Sequence | dict) -> None:
    if (bad := ~column.isin(list(known))).any():
        row = int(bad.argmax())
        raise ValueError(f"{file}: data row {row + 1} has {column.name} {column.iloc[row]!r}; expected one of "
                         f"{', '.join(repr(value) for value in known)}")  # fmt: skip
