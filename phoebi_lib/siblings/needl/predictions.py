"""Predictions of any detector, read from a file. YOLO, RF-DETR and the like are run elsewhere, and converted to this.

COCO results, ``.json``: a list of ``{"image_id", "category_id", "score"}`` with ``"keypoints": [x, y, v]`` or
``"bbox": [x_min, y_min, width, height]``. Table, ``.csv``: columns ``file_name, class, score`` with ``x, y`` or
``x0, y0, w, h``. Places are px of the 256 px tile: a detector that looks at 640 px gives them divided by 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from phoebi_lib.siblings.needl.layout import (
    COLUMNS,
    GEOMETRY,
    Needl,
    inside_images,
    read_coco,
    read_json,
    row_of,
)
from phoebi_lib.siblings.needl.metrics import check_predictions
from phoebi_lib.siblings.tables import read_csv


def read_predictions(path: str | Path, needl: Needl, annotation_files: Sequence[str | Path] = ()) -> pd.DataFrame:
    """Return the predictions of a file: ``tile_id, class, x, y, x0, y0, w, h, score``; NaN in columns it does not have.

    Args:
        path: ``.json`` or ``.csv``, see above.
        needl: the tables; every tile named must be among them.
        annotation_files: for JSON, the annotation files (below ``root/annotations``) whose image ids and category ids
            the detector used; of several, no id may mean two things.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix, an unreadable file, a missing column or key, an unknown tile, id or class, a number
            that is not finite, or a place (of a box: its centre) outside the tile.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of predictions")
    if path.suffix not in (".json", ".csv"):
        raise ValueError(f"{path}: predictions are COCO results (.json) or a table (.csv)")
    table = _from_json(path, needl, annotation_files) if path.suffix == ".json" else _from_csv(path)
    try:
        return check_predictions(table.reindex(columns=[*COLUMNS, "score"]), needl)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _from_csv(path: Path) -> pd.DataFrame:
    table = read_csv(path).rename(columns=str.strip).replace("", None)
    kinds = [columns for columns in GEOMETRY.values() if set(columns) <= set(table)]
    if not {"file_name", "class", "score"} <= set(table) or not kinds:
        raise ValueError(f"{path}: expected the columns file_name, class, score and x, y or x0, y0, w, h; "
                         f"it has {', '.join(table)}")  # fmt: skip
    numbers = ["score", *sum(kinds, [])]
    table[numbers] = table[numbers].apply(pd.to_numeric, errors="coerce").astype(float)
    bad = table[["file_name", "class", *numbers]].isna().any(axis=1)
    if bad.any():
        raise ValueError(f"{path}: line {int(bad.to_numpy().argmax()) + 2} has an empty cell or one that is no number")
    table["tile_id"] = [inside_images(name, path) for name in table["file_name"]]
    return table.assign(**{"class": table["class"].str.strip().str.lower()})


def _from_json(path: Path, needl: Needl, annotation_files: Sequence[str | Path]) -> pd.DataFrame:
    if not annotation_files:
        raise ValueError(f"{path}: name the annotation files that give its image and category ids (annotation_files)")
    files: dict = {}
    names: dict = {}
    for file in annotation_files:
        more_files, more_names, _ = read_coco(needl.root / "annotations" / file)
        for known, more in ((files, more_files), (names, more_names)):
            if any(known.get(key, value) != value for key, value in more.items()):
                raise ValueError(f"{path}: an id means two things in {', '.join(map(str, annotation_files))}; "
                                 "read the predictions of each file by themselves")  # fmt: skip
            known.update(more)
    entries = read_json(path)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: COCO results are a list of entries")
    rows = []
    for i, entry in enumerate(entries):
        where = f"{path}, entry {i}"
        if not isinstance(entry.get("score"), int | float):
            raise ValueError(f"{where}: score must be a number, got {entry.get('score')!r}")
        key = "keypoints" if "keypoints" in entry else "bbox"
        rows.append(row_of(entry, key, files, names, where) | {"score": float(entry["score"])})
    return pd.DataFrame(rows, columns=[*COLUMNS, "score"])
