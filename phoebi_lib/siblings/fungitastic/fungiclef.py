"""What the FungiCLEF competitions add: captions, tables and baseline of 2023, submissions, scores per observation."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.covariance import LedoitWolf

from phoebi_lib.decoders.checks import check_choice, check_number
from phoebi_lib.siblings.bioeval.simpleshot import simpleshot
from phoebi_lib.siblings.fungitastic.layout import UNKNOWN, column, labels, on_disk, read_table, source
from phoebi_lib.siblings.fungitastic.metrics import row_labels
from phoebi_lib.siblings.tables import read_csv, require
from phoebi_lib.siblings.vectors import class_means, unit

_PICTURES_2023 = {"train": "DF20_300", "val": "DF21_300"}


def clean_caption(text: str) -> str:
    """Return a caption with line breaks as blanks and without double quotes."""
    return " ".join(text.splitlines()).replace('"', "")


def read_captions(root: str | Path, table: pd.DataFrame, broken: Collection[str] = ()) -> pd.Series:
    """Return the cleaned caption of each row, indexed by ``filename``.

    They come from ``captions/**/<filename>.json``, a string or an object with ``caption``, and from the column
    ``captions`` where that folder is missing. Pictures listed in ``broken`` get the empty string.

    Raises ValueError for captions that are missing or no text (named), a file that is no JSON, or two of one name.
    """
    broken = [broken] if isinstance(broken, str) else list(broken)
    read, folder = table[~table["filename"].isin(broken)], Path(root) / "captions"
    if not folder.is_dir():
        texts = column(read, "captions")
    else:
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".json")
        found = {path.stem.lower(): path for path in files}
        if twice := sorted(set(files) - set(found.values())):
            raise ValueError(f"{twice[0]}: a second caption file for {twice[0].stem}")
        texts = [_text(found.get(name.lower())) for name in read["filename"]]
    captions = dict(zip(read["filename"], texts, strict=True))
    if bad := [name for name, text in captions.items() if not isinstance(text, str)]:
        where = f"{folder}: no JSON file with a caption" if folder.is_dir() else f"{source(table)}: no caption"
        raise ValueError(f"{where} for {', '.join(bad[:5])}; list such pictures as broken to go on without theirs")
    return pd.Series({name: clean_caption(captions.get(name, "")) for name in table["filename"]}, name="caption")


def _text(path: Path | None) -> object:
    try:
        text = json.loads(path.read_text(encoding="utf-8-sig")) if path else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON ({error}); list {path.stem} as broken to go on without it") from error
    return text.get("caption") if isinstance(text, dict) else text


def read_2023(root: str | Path, split: str) -> pd.DataFrame:
    """Return the table of FungiCLEF 2023 (train or val) under FungiTastic's names, ``filename`` relative to ``root``.

    Raises FileNotFoundError for a missing table or picture, ValueError as :func:`~.layout.read_table`.
    """
    check_choice("FungiCLEF 2023", "split", split, tuple(_PICTURES_2023))
    table = read_table(Path(root) / f"FungiCLEF2023_{split}_metadata_PRODUCTION.csv", "image_path")
    labels(table, "class_id")
    table = table.drop(columns=["category_id", "filename"], errors="ignore")
    table = table.rename(columns={"class_id": "category_id", "image_path": "filename"})
    names = on_disk(Path(root) / _PICTURES_2023[split], table["filename"])
    return table.assign(filename=[f"{_PICTURES_2023[split]}/{name}" for name in names])


def read_poison_list(path: str | Path, n_classes: int) -> np.ndarray:
    """Return which classes are poisonous, bool (C,), from a CSV ``class_id, poisonous``; others are edible.

    Raises ValueError for a missing column, a class given twice or out of range, or a flag other than 0 and 1.
    """
    table = read_csv(path, ("class_id", "poisonous"), text=False)
    ids, flags = table["class_id"], table["poisonous"]
    if ids.duplicated().any() or not ids.isin(range(n_classes)).all() or not flags.isin((0, 1)).all():
        raise ValueError(f"{path}: expected each class of 0..{n_classes - 1} at most once, with poisonous 0 or 1")
    return np.isin(np.arange(n_classes), ids[flags == 1])


def read_submission(submission: pd.DataFrame, observations: Collection[int]) -> pd.Series:
    """Return the ``class_id`` of each of ``observations``, in their order.

    Raises ValueError unless there is exactly one row per observation and none besides, or as :func:`~.layout.labels`.
    """
    require(submission, ("observationID", "class_id"), "submission")
    answers = submission.assign(class_id=labels(submission, "class_id")).set_index("observationID")["class_id"]
    wanted, given = pd.Index(observations).unique(), answers.index
    odd = {"missing": wanted[~wanted.isin(given)], "surplus": given[~given.isin(wanted)],
           "given twice": given[given.duplicated()]}  # fmt: skip
    if any(map(len, odd.values())):
        raise ValueError(f"submission: expected a row for each of {len(wanted)} observations, got {len(answers)}; "
                         + "; ".join(f"{what}: {its[:5].tolist()}" for what, its in odd.items()))  # fmt: skip
    return answers.loc[wanted]


def by_observation(table: pd.DataFrame, X: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Return one row per observation: its first image's row, and the mean of its L2-normalised features.

    Args:
        table: one row per image; X: (N, D), in the same order.

    Raises ValueError for an observation with several labels, an image without one, or another number of features.
    """
    given = column(table, "observationID")
    if (bad := given.isna().to_numpy() | (pd.factorize(given.map(type))[0] > 0)).any():
        i, found = bad.argmax(), given[bad].tolist()[0]
        raise ValueError(f"{source(table)}: data row {i + 1} has observationID {found!r}; expected one for each image, "
                         "all of them numbers or all text")  # fmt: skip
    groups = table.groupby("observationID")
    if "category_id" in table and (several := groups["category_id"].nunique() > 1).any():
        raise ValueError(f"{source(table)}: observation {several.idxmax()} has images of several classes; it cannot be "
                         "scored as one")  # fmt: skip
    pooled = class_means(unit(X), groups.ngroup().to_numpy(), groups.ngroups)
    return groups.head(1).sort_values("observationID", ignore_index=True), pooled


def class_or_unknown(X_train: ArrayLike, y_train: ArrayLike, X: ArrayLike, share: float = 0.95) -> np.ndarray:
    """Return the answers of BioBench's baseline for FungiCLEF 2023, (N,): SimpleShot's class, or -1 for what is far.

    Far is a larger Mahalanobis distance to the nearest class mean than ``share`` of the training rows have. All classes
    share one covariance of unit features about their means, shrunk as Ledoit and Wolf advise; the published amount of
    shrinkage is not known.

    Raises ValueError for a share outside 0..1, labels other than whole numbers of at least 0, another number of labels
    or features, no class with two different images, or as :func:`~phoebi_lib.siblings.bioeval.simpleshot.simpleshot`.
    """
    check_number("class_or_unknown", "share", share, 0, 1)
    train, rows, y = unit(X_train), unit(X), row_labels(X_train, y_train)
    if rows.shape[1] != train.shape[1]:
        raise ValueError(f"class_or_unknown: X has {rows.shape[1]} features; expected the {train.shape[1]} of training")
    _, first, codes = np.unique(y, return_index=True, return_inverse=True)
    if np.abs(train - train[first][codes]).max() < 1e-12:
        raise ValueError(f"class_or_unknown needs a class with two different images: among {len(train)} in "
                         f"{len(first)} classes no spread is known")  # fmt: skip
    means = class_means(train, codes, codes.max() + 1)
    values, vectors = np.linalg.eigh(LedoitWolf(assume_centered=True).fit(train - means[codes]).precision_)
    # in these coordinates the Mahalanobis distance is the Euclidean one
    whiten = vectors * np.sqrt(values.clip(0))

    def distance(block: np.ndarray) -> np.ndarray:
        # of differences: an expanded square cancels where classes are narrow
        index = cdist(block @ whiten, means @ whiten).argmin(axis=1)
        return np.linalg.norm((block - means[index]) @ whiten, axis=1)

    near, asked = (np.concatenate([distance(X[i : i + 4096]) for i in range(0, len(X), 4096)]) for X in (train, rows))
    # a training row is not rejected for what rounding adds to its distance
    far = asked > np.quantile(near, share) * (1 + 1e-9)
    return np.where(far, UNKNOWN, simpleshot(train, y, rows))
