"""NEEDL-Bench in two tables: one row per tile, and one row per annotation or prediction.

Nobody outside has seen the published files; the readers are thin, and everything else works on the two tables.

Predictions of any detector (YOLO, RF-DETR and the like are run elsewhere) come as COCO results, ``.json``: a list of
``{"image_id", "category_id", "score"}`` with ``"keypoints": [x, y, v]`` or ``"bbox": [x_min, y_min, width, height]``;
or as a table, ``.csv``: columns ``file_name, class, score`` with ``x, y`` or ``x0, y0, w, h``. Places are px of the
256 px tile: a detector that looks at 640 px gives them divided by 2.5.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.siblings.tables import allow, inside, keyed, read_csv, require

CLASSES = ("stomata", "pseudothecia")
SPLITS = ("train", "val", "test")
SIZE = 256  # px, width and height of a tile
#: names of the split files: source and sampling
SETS = ("benchtop_random", "benchtop_diversity", "handheld_random")
GEOMETRY = {"keypoint": ["x", "y"], "box": ["x0", "y0", "w", "h"]}
COLUMNS = ["tile_id", "class", "x", "y", "x0", "y0", "w", "h", "score"]
#: folder of annotations -> key of a COCO entry; that key -> what its list holds
KINDS = {"keypoints": "keypoints", "bboxes": "bbox"}
LISTS = {"keypoints": ["x", "y", "visibility"], "bbox": GEOMETRY["box"]}
ENTRY = ["image_id", "category_id", *LISTS, "score"]


@dataclass(frozen=True)
class Needl:
    """The benchmark's two tables.

    Attributes:
        root: folder of the data.
        tiles: ``tile_id`` (file below ``images/``), ``path`` (below ``root``), ``source``, ``sampling``, ``split``,
            ``needle_id`` ("" where unknown).
        annotations: ``tile_id, class``, in px of the tile ``x, y`` of a point or ``x0, y0, w, h`` of a box, NaN where
            not given, and ``score`` 1. Points and boxes come from two files and stay two lines.
    """

    root: Path
    tiles: pd.DataFrame
    annotations: pd.DataFrame

    def ids(self, split: str, where: str = "full") -> list[str]:
        """Return the tiles of a split, of all sources ("full") or of one of ``SETS``.

        Raises ValueError for an unknown name, or where there is no such tile.
        """
        check_choice("NEEDL-Bench", "split", split, SPLITS)
        check_choice("NEEDL-Bench", "set", where, ("full", *SETS))
        tiles = self.tiles[self.tiles["split"] == split]
        found = tiles["tile_id"][(tiles["source"] + "_" + tiles["sampling"] == where) | (where == "full")]
        if found.empty:
            raise ValueError(f"{self.root}: no tiles of {where} in {split}; choose another set or split")
        return found.tolist()

    def truth(self, rule: str) -> pd.DataFrame:
        """Return the annotations that are points (rule "keypoint") or boxes (rule "box")."""
        return self.annotations.dropna(subset=GEOMETRY[rule])


def check(table: pd.DataFrame, source: object, tiles: Iterable[str]) -> pd.DataFrame:
    """Return annotations or predictions, ``COLUMNS`` with numbers as float, if each row can be used.

    Raises ValueError, naming ``source`` and row, for a missing column, another class or tile, neither a point nor a
    box, an infinite number or no score, a box of negative size, or a place (of a box: its centre) outside the tile.
    """
    require(table, COLUMNS, source)
    allow(table["class"], CLASSES, source)
    numbers = table[COLUMNS[2:]].astype(float)
    x, y, x0, y0, w, h, score = numbers.to_numpy().T
    places = np.stack([x, y, x0 + w / 2, y0 + h / 2])
    faults = {
        "a tile or image that is not listed": ~table["tile_id"].isin(list(tiles)).to_numpy(),
        "no number as score": np.isnan(score),
        "neither a visible point x, y nor a box x0, y0, w, h in numbers": np.isnan(x + y) & np.isnan(x0 + y0 + w + h),
        "a number that is not finite": np.isinf(numbers.to_numpy()).any(axis=1),
        "a box of negative size": (w < 0) | (h < 0),
        f"a place outside the tile, 0 to {SIZE} px": ((places < 0) | (places > SIZE)).any(axis=0),
    }
    for fault, rows in faults.items():
        if rows.any():
            line = table.iloc[[rows.argmax()]].dropna(axis=1).to_dict("records")[0]
            raise ValueError(f"{source}: data row {rows.argmax() + 1} has {fault}: {line}")
    return pd.concat([table[COLUMNS[:2]], numbers], axis=1).reset_index(drop=True)


def load(root: str | Path, *, needle_pattern: str = r"needle[_-]?([A-Za-z0-9]+)") -> Needl:
    """Read ``annotations/{keypoints,bboxes}/{train,val,test}.json`` (one folder is enough) and ``splits/*.csv``.

    Args:
        root: folder of the data.
        needle_pattern: where a split file has no ``needle_id``, its first group in the file name is the needle.

    Raises:
        FileNotFoundError: no annotations, no split file, or one of the three annotation files of a folder missing.
        ValueError: a file that is not in the layout, a name that leaves ``images/``, a tile listed twice, in two
            splits or in one kind of file only, a class or split of another name, an image that cannot be read or is
            not 256 x 256 px, annotations as :func:`check` refuses them, or a ``needle_pattern`` without a group.
    """
    root, annotations, mentions = Path(root), [], []
    kinds = [kind for kind in KINDS if (root / "annotations" / kind).is_dir()]
    split_files = sorted((root / "splits").glob("*.csv"))
    if not kinds or not split_files:
        what = "splits/*.csv" if kinds else "annotations/keypoints and annotations/bboxes"
        raise FileNotFoundError(f"{root} lacks {what}; is it the folder of the data?")
    for kind in kinds:
        for split in SPLITS:
            path = root / "annotations" / kind / f"{split}.json"
            names, ids, entries = _read_coco(path)
            annotations.append(check(_rows(entries.assign(score=1.0), ids, KINDS[kind], path), path, names))
            mentions.append(pd.DataFrame({"tile_id": names, "split": split, "file": f"{kind}/{path.name}"}))
    tiles = keyed(pd.concat(map(_read_split_file, split_files)), root / "splits", "tile_id")
    mentions = pd.concat([*mentions, tiles]).replace({"split": {"": np.nan}})
    by_tile = mentions.groupby("tile_id")["split"].agg(["first", "size", "nunique"])
    if (wrong := (by_tile["size"] != len(kinds) + 1) | (by_tile["nunique"] != 1)).any():
        found = mentions[mentions["tile_id"] == wrong.idxmax()].fillna("")
        raise ValueError(f"{root}: {wrong.idxmax()} stands in {', '.join(found['file'] + ' ' + found['split'])}; "
                         f"expected it once in {', '.join(kinds)} and splits, with one split")  # fmt: skip
    try:
        parsed = tiles["tile_id"].str.extract(needle_pattern).iloc[:, 0].fillna("")
    except (re.error, TypeError, ValueError) as error:
        raise ValueError(f"needle_pattern {needle_pattern!r}: {error}; expected a pattern with a group") from error
    needle = tiles["needle_id"].where(tiles["needle_id"] != "", parsed)
    tiles = tiles.assign(
        path="images/" + tiles["tile_id"], needle_id=needle, split=tiles["tile_id"].map(by_tile["first"])
    )
    for path in (root / name for name in tiles["path"] if (root / name).is_file()):
        try:
            with Image.open(path) as picture:
                size = picture.size
        except Exception as error:  # readers of foreign bytes raise nearly anything
            raise ValueError(f"{path}: not a readable picture ({error}); copy or export it again") from error
        if size != (SIZE, SIZE):
            raise ValueError(f"{path} has {size} px; expected tiles of {SIZE} x {SIZE} px")
    columns = ["tile_id", "path", "source", "sampling", "split", "needle_id"]
    return Needl(root, tiles[columns], pd.concat(annotations, ignore_index=True))


def read_predictions(path: str | Path, needl: Needl, annotation_files: Sequence[str | Path] = ()) -> pd.DataFrame:
    """Return the predictions of a file, ``COLUMNS``; NaN in columns that it does not have.

    Args:
        path: ``.json`` or ``.csv``, see above.
        needl: the tables; every tile named must be among them.
        annotation_files: for JSON, the annotation files (below ``root/annotations``) whose image ids and category ids
            the detector used; of several, no id may mean two things.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix, an unreadable file, a missing column or key, or rows as :func:`check` refuses them.
    """
    path = Path(path)
    check_choice(str(path), "the suffix of predictions", path.suffix, (".json", ".csv"))
    if path.suffix == ".csv":
        cells = require(read_csv(path).rename(columns=str.strip), ["file_name", "class", "score"], path)
        table = cells.reindex(columns=COLUMNS[2:]).apply(pd.to_numeric, errors="coerce")
        if (bad := table[[name for name in table if name in cells]].isna().any(axis=1).to_numpy()).any():
            raise ValueError(f"{path}: data row {bad.argmax() + 1} has an empty cell or one that is no number")
        table["tile_id"] = [inside(name.strip(), path) for name in cells["file_name"]]
        table["class"] = cells["class"].str.strip().str.lower()
    else:
        ids: dict[str, str] = {}
        for file in annotation_files:
            _, more, _ = _read_coco(needl.root / "annotations" / file)
            if any(ids.get(key, name) != name for key, name in more.items()):
                raise ValueError(f"{path}: an id means two things in {', '.join(map(str, annotation_files))}; "
                                 "read the predictions of each file by themselves")  # fmt: skip
            ids |= more
        if not ids:
            raise ValueError(f"{path}: name the annotation files that give its image and category ids")
        entries = _objects(_read_json(path), ENTRY, path)
        table = _rows(entries, ids, "keypoints" if entries["keypoints"].notna().any() else "bbox", path)
    return check(table, path, needl.tiles["tile_id"])


def _read_coco(path: Path) -> tuple[list[str], dict[str, str], pd.DataFrame]:
    """Return a COCO file's tiles, what its ids stand for, and its annotations as they stand, columns ``ENTRY``.

    Ids are written ``image_id 7`` (stands for a tile) and ``category_id 0`` (for a class, by the category's *name*).
    """
    parts = {"images": ["id", "file_name", "width", "height"], "categories": ["id", "name"], "annotations": ENTRY}
    file = _objects([_read_json(path)], list(parts), path).iloc[0]
    images, categories, annotations = (_objects(file[part], parts[part], f"{path}, {part!r}") for part in parts)
    images = images.assign(file_name=images["file_name"].fillna("").astype(str).str.strip())
    images = keyed(images, f"{path}, 'images'", "file_name", filled=["id"])
    for side in ("width", "height"):
        allow(images[side].fillna(SIZE), [SIZE], f"{path}, 'images' (tiles in px)")
    names = categories["name"].astype(str).str.strip().str.lower()
    if sorted(names) != sorted(CLASSES) or categories["id"].isna().any():
        raise ValueError(f"{path}: categories {list(names)}, expected the names {', '.join(CLASSES)}, each with an id")
    ids = dict(zip(_written("image_id", images["id"]), images["file_name"], strict=True))
    ids |= zip(_written("category_id", categories["id"]), names, strict=True)
    if len(ids) < len(images) + len(CLASSES):
        raise ValueError(f"{path}: an id is given twice in 'images' or in 'categories'")
    return images["file_name"].tolist(), ids, annotations


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a readable JSON file ({error}); write it again") from error


def _objects(found: Any, fields: list[str], source: object) -> pd.DataFrame:
    """Return a list of JSON objects as a table of these fields, NaN where an object lacks one."""
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"{source}: expected objects with {', '.join(fields)}, as COCO files have them")
    return pd.DataFrame(found, columns=fields, dtype=object)


def _written(field: str, cells: pd.Series) -> list[str]:
    """Return ids as text; 7 and 7.0, which some programs make of it, are one."""
    return [f"{field} {int(c) if isinstance(c, float) and c.is_integer() else c!r}" for c in cells]


def _rows(entries: pd.DataFrame, ids: dict[str, str], key: str, source: Path) -> pd.DataFrame:
    """Return COCO entries as ``COLUMNS``, for :func:`check`; an unknown id stays as it is.

    Raises ValueError for a list that holds other than the numbers of ``LISTS``, or a point of visibility 0.
    """
    for i, cell in enumerate(entries[key]):
        # the comparison also refuses NaN, infinity and whole numbers that no float can hold
        numeric = isinstance(cell, list) and all(isinstance(n, int | float) and abs(n) < 1e9 for n in cell)
        if not numeric or len(cell) != len(LISTS[key]) or (key == "keypoints" and cell[2] == 0):
            raise ValueError(f"{source}: entry {i}: {key} must be the numbers {', '.join(LISTS[key])} (visibility 0 "
                             f"means 'not labelled': leave the point out), got {cell!r}")  # fmt: skip
    table = pd.DataFrame(entries[key].tolist(), columns=LISTS[key], dtype=float)
    for column, field in (("tile_id", "image_id"), ("class", "category_id")):
        table[column] = [ids.get(written, written) for written in _written(field, entries[field])]
    # a whole number that no float can hold counts as infinite
    scores = [cell if isinstance(cell, int | float) else np.nan for cell in entries["score"]]
    table["score"] = [np.inf if isinstance(cell, int) and abs(cell) >= 2**1023 else cell for cell in scores]
    return table.reindex(columns=COLUMNS)


def _read_split_file(path: Path) -> pd.DataFrame:
    """Read columns ``file_name`` and, if there, ``split`` and ``needle_id``; or one file name a line, no header."""
    check_choice(str(path), "the name, which tells source and sampling,", path.stem, SETS)
    source, sampling = path.stem.split("_")
    table = read_csv(path).rename(columns=str.strip)
    if len(table.columns) == 1 and PurePosixPath(table.columns[0]).suffix:
        table = pd.DataFrame({"file_name": [*table.columns, *table.iloc[:, 0]]})
    names = [inside(name.strip(), path) for name in require(table, ["file_name"], path)["file_name"]]
    table = table.assign(file_name=pd.Series(names, table.index, dtype=str))
    if "split" in table:
        table["split"] = allow(table["split"].str.strip().str.lower(), SPLITS, path)
    tile, split, needle = (
        table.get(column, pd.Series("", table.index)) for column in ("file_name", "split", "needle_id")
    )
    tile = tile.where(tile.str.contains("/"), f"{source}/" + tile)
    return pd.DataFrame({"tile_id": tile, "source": source, "sampling": sampling, "split": split,
                         "needle_id": needle.str.strip(), "file": f"splits/{path.name}"})  # fmt: skip


def leakage(tiles: pd.DataFrame) -> pd.DataFrame:
    """Return the needles whose tiles lie in more than one split: ``source, needle_id, splits, n_tiles``; warn of them.

    The paper does not say whether a needle stays in one split. Needles are counted within a source; tiles whose needle
    is not known cannot be checked, and a warning says how many they are.
    """
    known = tiles[tiles["needle_id"] != ""]
    needles = known.groupby(["source", "needle_id"])["split"].agg(
        splits=lambda split: ", ".join(sorted(set(split), key=SPLITS.index)), n_tiles="size"
    )
    shared = needles[needles["splits"].str.contains(",")].reset_index()
    if len(known) < len(tiles):
        warnings.warn(f"{len(tiles) - len(known)} tiles without needle_id: leakage cannot be ruled out", stacklevel=2)
    if len(shared):
        warnings.warn(f"{len(shared)} of {len(needles)} needles lie in more than one split: scores are optimistic",
                      stacklevel=2)  # fmt: skip
    return shared
