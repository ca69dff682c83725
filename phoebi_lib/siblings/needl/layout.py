"""The planned layout of NEEDL-Bench, read into two tables: one row per tile and one row per annotation.

Nobody outside has seen the published files; the reader is thin, and everything else works on the two tables.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from phoebi_lib.siblings.tables import read_csv

CLASSES = ("stomata", "pseudothecia")
SPLITS = ("train", "val", "test")
SIZE = 256  # px, width and height of a tile
#: name of a split file -> source, sampling
SETS = {
    "benchtop_random": ("benchtop", "random"), "benchtop_diversity": ("benchtop", "diversity"),
    "handheld_random": ("handheld", "random"),
}  # fmt: skip
GEOMETRY = {"keypoint": ["x", "y"], "box": ["x0", "y0", "w", "h"]}
COLUMNS = ["tile_id", "class", *GEOMETRY["keypoint"], *GEOMETRY["box"]]
_KEYS = {"keypoints": 3, "bbox": 4}
_ID = int | float | str


@dataclass(frozen=True)
class Needl:
    """The benchmark's two tables.

    Attributes:
        root: folder of the data.
        tiles: ``tile_id`` (file below ``images/``), ``path`` (below ``root``), ``source``, ``sampling``, ``split``,
            ``needle_id`` ("" where unknown).
        annotations: ``tile_id, class`` and, in px of the tile, ``x, y`` of a point or ``x0, y0, w, h`` of a box; what a
            line does not give is NaN. Points and boxes come from two files and stay two lines.
    """

    root: Path
    tiles: pd.DataFrame
    annotations: pd.DataFrame

    def ids(self, split: str, where: str = "full") -> list[str]:
        """Return the tiles of a split, of all sources ("full") or of one of ``SETS``.

        Raises ValueError for an unknown name, or where there is no such tile.
        """
        if split not in SPLITS or where not in ("full", *SETS):
            raise ValueError(f"no tiles {where!r}, {split!r}; known: full, {', '.join(SETS)}; {', '.join(SPLITS)}")
        rows = self.tiles["split"] == split
        if where != "full":
            rows &= (self.tiles["source"] + "_" + self.tiles["sampling"]) == where
        if not rows.any():
            raise ValueError(f"{self.root}: no tiles of {where} in {split}; choose another set or split")
        return self.tiles.loc[rows, "tile_id"].tolist()

    def truth(self, rule: str) -> pd.DataFrame:
        """Return the annotations that are points (rule "keypoint") or boxes (rule "box")."""
        return self.annotations.dropna(subset=GEOMETRY[rule])


def load(root: str | Path, *, needle_pattern: str = r"needle[_-]?([A-Za-z0-9]+)") -> Needl:
    """Read ``annotations/{keypoints,bboxes}/{train,val,test}.json`` (one folder is enough) and ``splits/*.csv``.

    Args:
        root: folder of the data.
        needle_pattern: where a split file has no ``needle_id``, its first group in the file name is the needle.

    Raises:
        FileNotFoundError: no annotations, no split file, or one of the three annotation files of a folder missing.
        ValueError: a file that is not in the layout, a name that leaves ``images/``, a tile listed twice, in two
            splits or in one kind of file only, a class or split of another name, an image that is not 256 x 256 px,
            numbers that are not finite, or a point or the centre of a box outside the tile.
    """
    root, in_json, parts = Path(root), {}, []
    kinds = {kind: key for kind, key in (("keypoints", "keypoints"), ("bboxes", "bbox"))
             if (root / "annotations" / kind).is_dir()}  # fmt: skip
    if not kinds:
        raise FileNotFoundError(f"{root}: neither annotations/keypoints nor annotations/bboxes; is it the data folder?")
    for split in SPLITS:
        listed = {}
        for kind, key in kinds.items():
            path = root / "annotations" / kind / f"{split}.json"
            files, names, entries = read_coco(path)
            listed[path] = set(files.values())
            for tile in files.values():
                if in_json.setdefault(tile, split) != split:
                    raise ValueError(f"{path}: {tile} is also a tile of {in_json[tile]}; a tile has one split")
            lines = [row_of(entry, key, files, names, f"{path}, annotation {i}") for i, entry in enumerate(entries)]
            parts.append(pd.DataFrame(lines, columns=COLUMNS).astype(dict.fromkeys(COLUMNS[2:], float)))
            check_inside(parts[-1], path)
        if unequal := set.union(*listed.values()) - set.intersection(*listed.values()):
            tile = min(unequal)
            lacks, has = sorted(listed, key=lambda path: tile in listed[path])
            raise ValueError(f"{lacks}: {tile} stands in {has} only ({len(unequal)} such); a tile is listed under "
                             "'images' in both kinds of files, with or without annotations")  # fmt: skip
    tiles = _tiles(root, in_json, needle_pattern)
    return Needl(root, tiles, pd.concat(parts, ignore_index=True))


def read_coco(path: Path) -> tuple[dict[Any, str], dict[Any, str], list[dict]]:
    """Return tile by image id, class by category id (by the category's *name*), and the annotations as they stand."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; a folder of annotations has {', '.join(SPLITS)}, .json each")
    data = read_json(path)
    for part, fields in (("images", ("id", "file_name")), ("categories", ("id", "name")), ("annotations", ())):
        if not isinstance(data, Mapping) or not isinstance(data.get(part), list):
            raise ValueError(f"{path}: expected a list {part!r}, as COCO files have")
        if not all(isinstance(entry, Mapping) and set(fields) <= set(entry) for entry in data[part]):
            raise ValueError(f"{path}: an entry of {part!r} is no object, or lacks one of {', '.join(fields)}")
        if bad := [entry["id"] for entry in data[part] if fields and not isinstance(entry["id"], _ID)]:
            raise ValueError(f"{path}: an id in {part!r} is {bad[0]!r}; expected a number or a text")
    for entry in data["images"]:
        size = entry.get("width", SIZE), entry.get("height", SIZE)
        if size != (SIZE, SIZE):
            raise ValueError(f"{path}: {entry['file_name']} is declared as {size[0]} x {size[1]} px; "
                             f"expected tiles of {SIZE} x {SIZE} px, and places in px of the tile")  # fmt: skip
    files = {entry["id"]: inside_images(entry["file_name"], path) for entry in data["images"]}
    if len(files) < len(data["images"]) or len(set(files.values())) < len(files):
        raise ValueError(f"{path}: an image id or file name stands twice in 'images'")
    names = {entry["id"]: str(entry["name"]).strip().lower() for entry in data["categories"]}
    if sorted(names.values()) != sorted(CLASSES):
        raise ValueError(f"{path}: categories {sorted(names.values())}, expected the names {', '.join(CLASSES)}")
    return files, names, data["annotations"]


def read_json(path: Path) -> Any:
    """Return what a JSON file holds. ValueError, naming it, where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not a readable JSON file ({error}); write it again") from error


def row_of(entry: Mapping, key: str, files: Mapping, names: Mapping, where: str) -> dict[str, Any]:
    """Return tile, class and geometry of a COCO entry; ``key`` is "keypoints" ([x, y, v]) or "bbox" ([x, y, w, h])."""
    for field, known in (("image_id", files), ("category_id", names)):
        if not isinstance(entry.get(field), _ID) or entry[field] not in known:
            raise ValueError(f"{where}: {field} {entry.get(field)!r} is not listed in the annotation file")
    numbers = entry.get(key)
    if (not isinstance(numbers, list) or len(numbers) != _KEYS[key]
            or not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)):  # fmt: skip
        raise ValueError(f"{where}: {key} must be {_KEYS[key]} finite numbers, got {numbers!r}")
    row = {"tile_id": files[entry["image_id"]], "class": names[entry["category_id"]]}
    if key == "bbox":
        if min(numbers[2:]) < 0:
            raise ValueError(f"{where}: a box of negative size, {numbers!r}; bbox is [x_min, y_min, width, height]")
        return row | dict(zip(GEOMETRY["box"], numbers, strict=True))
    if numbers[2] == 0:
        raise ValueError(f"{where}: visibility 0 means 'not labelled' in COCO; leave the point out or give it 1 or 2")
    return row | dict(zip(GEOMETRY["keypoint"], numbers[:2], strict=True))


def check_inside(table: pd.DataFrame, where: str | Path) -> None:
    """Raise ValueError, naming tile and row, where a point or the centre of a box lies outside the tile."""
    boxes = table["x0"] + table["w"] / 2, table["y0"] + table["h"] / 2
    for what, x, y in (("a point", table["x"], table["y"]), ("the centre of a box", *boxes)):
        outside = ((x < 0) | (x > SIZE) | (y < 0) | (y > SIZE)).to_numpy()
        if outside.any():
            at = int(outside.argmax())
            raise ValueError(f"{where}: entry {at}, {what} at ({x.iloc[at]:g}, {y.iloc[at]:g}), lies outside "
                             f"{table['tile_id'].iloc[at]}; places are px of the tile, 0 to {SIZE}")  # fmt: skip


def inside_images(name: Any, where: Path) -> str:
    """Return a file name below ``images/`` in its plain form. ValueError if it is none or leaves that folder."""
    path = PurePosixPath(str(name).strip())
    if not path.name or path.is_absolute() or ".." in path.parts or "\\" in str(name) or ":" in str(name):
        raise ValueError(f"{where}: file name {name!r} leaves the folder images/ or is empty; give a path inside it")
    return str(path)


def _tiles(root: Path, in_json: Mapping[str, str], needle_pattern: str) -> pd.DataFrame:
    paths = sorted((root / "splits").glob("*.csv"))
    if not paths:
        raise FileNotFoundError(f"{root / 'splits'}: no split file; expected some of {', '.join(SETS)}, .csv each")
    tiles = pd.concat([_split_file(path) for path in paths], ignore_index=True)
    if repeated := tiles.loc[tiles["tile_id"].duplicated(), "tile_id"].tolist():
        raise ValueError(f"{root / 'splits'}: {repeated[0]} is listed twice; a tile has one split")
    if unequal := set(tiles["tile_id"]) ^ set(in_json):
        raise ValueError(f"{root}: {len(unequal)} tiles, such as {min(unequal)}, stand in the split files or in the "
                         "annotation files only; a tile without annotations is listed under 'images' too")  # fmt: skip
    known = tiles["tile_id"].map(in_json)
    wrong = (tiles["split"] != "") & (tiles["split"] != known)
    if wrong.any():
        raise ValueError(f"{root}: {tiles.loc[wrong, 'tile_id'].iloc[0]} has one split in its split file and another "
                         "in the annotation files")  # fmt: skip
    parsed = tiles["tile_id"].map(lambda name: found[1] if (found := re.search(needle_pattern, name)) else "")
    tiles["needle_id"] = tiles["needle_id"].where(tiles["needle_id"] != "", parsed)
    return tiles.assign(split=known, path="images/" + tiles["tile_id"])[
        ["tile_id", "path", "source", "sampling", "split", "needle_id"]
    ]


def _split_file(path: Path) -> pd.DataFrame:
    """Read columns ``file_name`` and, if there, ``split`` and ``needle_id``; or one file name a line, no header."""
    if path.stem not in SETS:
        raise ValueError(f"{path}: the file's name tells source and sampling; expected one of {', '.join(SETS)}")
    table = read_csv(path).rename(columns=str.strip)
    if len(table.columns) == 1 and PurePosixPath(table.columns[0]).suffix:
        table = pd.DataFrame({"file_name": [table.columns[0], *table.iloc[:, 0]]})
    if "file_name" not in table:
        raise ValueError(f"{path}: no column file_name (it has {', '.join(table)}), and not one file name a line")
    source, sampling = SETS[path.stem]
    names = [inside_images(name, path) for name in table["file_name"]]
    split = table["split"].str.strip().str.lower() if "split" in table else ""
    rows = pd.DataFrame({"tile_id": [name if "/" in name else f"{source}/{name}" for name in names]})
    needle = table["needle_id"].str.strip() if "needle_id" in table else ""
    rows = rows.assign(source=source, sampling=sampling, split=split, needle_id=needle)
    if bad := set(rows["split"]) - {*SPLITS, *(() if "split" in table else ("",))}:
        raise ValueError(f"{path}: split {min(bad)!r}; expected {', '.join(SPLITS)}")
    return rows


def leakage(tiles: pd.DataFrame) -> pd.DataFrame:
    """Return the needles whose tiles lie in more than one split: ``source, needle_id, splits, n_tiles``; warn of them.

    The paper does not say whether a needle stays in one split. Needles are counted within a source; tiles whose needle
    is not known cannot be checked, and a warning says how many they are.
    """
    known = tiles[tiles["needle_id"] != ""]
    needles = known.groupby(["source", "needle_id"])["split"].agg(
        splits=lambda split: ", ".join(name for name in SPLITS if name in set(split)), n_tiles="size"
    )
    shared = needles[needles["splits"].str.contains(",")].reset_index()
    if len(known) < len(tiles):
        warnings.warn(f"{len(tiles) - len(known)} tiles without needle_id: leakage cannot be ruled out", stacklevel=2)
    if len(shared):
        warnings.warn(f"{len(shared)} of {len(needles)} needles lie in more than one split: scores are optimistic",
                      stacklevel=2)  # fmt: skip
    return shared
