"""What the FungiCLEF competitions add: captions per image, the tables of 2023, submissions, scores per observation."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.siblings.fungitastic.baselines import class_means, prepare
from phoebi_lib.siblings.fungitastic.layout import check_table, column, labels, on_disk, read_table, source


def clean_caption(text: str) -> str:
    """Return a caption with line breaks as blanks and without double quotes."""
    return " ".join(text.splitlines()).replace('"', "")


def read_captions(root: str | Path, table: pd.DataFrame, broken: Collection[str] = ()) -> pd.Series:
    """Return the cleaned caption of each row, indexed by ``filename``.

    They come from ``captions/**/<filename>.json``, a string or an object with ``caption``, and from the column
    ``captions`` where that folder is missing. Pictures listed in ``broken`` get the empty string.

    Raises:
        FileNotFoundError: a picture without a caption file.
        ValueError: a caption that cannot be read, is no text or has two files; ``broken`` is the way around it.
    """
    folder = Path(root) / "captions"
    if folder.is_dir():
        found = {}
        for path in sorted(folder.rglob("*.json")):
            if path.stem.lower() in found:
                raise ValueError(f"{path}: a second caption file for {path.stem}")
            found[path.stem.lower()] = path
        texts = {name: _read(found.get(name.lower()), name) for name in table["filename"] if name not in broken}
    else:
        texts = dict(zip(table["filename"], column(table, "captions"), strict=True))
    texts |= {name: "" for name in broken if name in set(table["filename"])}
    if bad := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise ValueError(f"no caption text for {', '.join(bad[:5])}; list such pictures as broken to give them none")
    return pd.Series({name: clean_caption(texts[name]) for name in table["filename"]}, name="caption")


def _read(path: Path | None, name: str) -> object:
    if path is None:
        raise FileNotFoundError(f"captions: no file {name}.json; list the picture as broken to go on without it")
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: no JSON ({error}); list {name} as broken to go on without it") from error
    return text.get("caption") if isinstance(text, dict) else text


def read_2023(root: str | Path, split: str) -> pd.DataFrame:
    """Return the table of FungiCLEF 2023 (train or val) under FungiTastic's names, ``filename`` relative to ``root``.

    Raises FileNotFoundError for a missing table or picture, ValueError as :func:`~.layout.check_table`.
    """
    folders = {"train": "DF20_300", "val": "DF21_300"}
    if split not in folders:
        raise ValueError(f"unknown split {split!r}; FungiCLEF 2023 has train and val")
    path = Path(root) / f"FungiCLEF2023_{split}_metadata_PRODUCTION.csv"
    table = check_table(read_table(path), key="image_path")
    column(table, "class_id")
    table = table.rename(columns={"class_id": "category_id", "image_path": "filename"})
    labels(table)
    spelt = on_disk(Path(root) / folders[split], table["filename"])
    return table.assign(filename=[f"{folders[split]}/{name}" for name in spelt])


def read_poison_list(path: str | Path, n_classes: int) -> np.ndarray:
    """Return which classes are poisonous, bool (C,), from a CSV ``class_id, poisonous``; others are edible.

    Raises ValueError for a missing column, a class given twice or out of range, or a flag other than 0 and 1.
    """
    table = read_table(path)
    ids, flags = column(table, "class_id"), column(table, "poisonous")
    if ids.duplicated().any() or not ids.isin(range(n_classes)).all() or not flags.isin((0, 1)).all():
        raise ValueError(f"{path}: expected each class of 0..{n_classes - 1} at most once, with poisonous 0 or 1")
    return np.isin(np.arange(n_classes), ids[flags == 1])


def read_submission(submission: pd.DataFrame, observations: Collection[int]) -> pd.Series:
    """Return the ``class_id`` of each of ``observations``, in their order.

    Raises ValueError unless there is exactly one row per observation and none besides.
    """
    answers = column(submission, "class_id", "submission").set_axis(column(submission, "observationID", "submission"))
    wanted = pd.Index(observations).unique()
    if answers.index.has_duplicates or set(answers.index) != set(wanted):
        missing = wanted.difference(answers.index)
        raise ValueError(f"submission: expected a row for each of {len(wanted)} observations, got {len(answers)}; "
                         f"missing: {missing[:5].tolist()}")  # fmt: skip
    return answers.loc[wanted]


def by_observation(table: pd.DataFrame, X: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Return one row per observation: its first image's row, and the mean of its L2-normalised features.

    Args:
        table: one row per image; X: (N, D), in the same order.

    Raises ValueError for an observation with several labels.
    """
    if "category_id" in table and (several := table.groupby("observationID")["category_id"].nunique() > 1).any():
        raise ValueError(f"{source(table)}: observation {several.idxmax()} has images of several classes; it cannot be "
                         "scored as one")  # fmt: skip
    _, firsts, group = np.unique(table["observationID"].to_numpy(), return_index=True, return_inverse=True)
    return table.iloc[firsts].reset_index(drop=True), class_means(prepare(X), group, len(firsts))
