"""Part masks: the Parquet table and the run lengths in it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.siblings.fungitastic.layout import column, read_table, source

PARTS = ("cap", "gills", "pores", "ring", "stem")
LABELS = (*PARTS, "fruiting_body")
FILES = {"train": "TrainMasks", "val": "ValidationMasks", "test": "TestMasks"}


def read_masks(root: str | Path, split: str) -> pd.DataFrame:
    """Return the parts of Mini's pictures, one row per instance: ``file_name, label, width, height, rle`` (a list).

    Raises FileNotFoundError for a missing file, ValueError for a missing column, an unknown label, a size that is none
    or damaged ``rle``.
    """
    if split not in FILES:
        raise ValueError(f"unknown split {split!r}; masks exist for {', '.join(FILES)}")
    path = Path(root) / "masks" / f"FungiTastic-Mini-{FILES[split]}.parquet"
    table = read_table(path)
    for name in ("file_name", "label", "width", "height", "rle"):
        column(table, name)
    if unknown := sorted(map(str, set(table["label"]) - set(LABELS))):
        raise ValueError(f"{path}: unknown labels {', '.join(unknown)}; known: {', '.join(LABELS)}")
    rows = [f"{path}, row {i}: {name}" for i, name in enumerate(table["file_name"])]
    sizes = table[["width", "height"]].apply(pd.to_numeric, errors="coerce")
    if (bad := ~((sizes >= 1) & (sizes % 1 == 0)).all(axis=1).to_numpy()).any():
        raise ValueError(f"{rows[bad.argmax()]}: width and height must be whole numbers of px, at least 1")
    return table.assign(rle=[_numbers(rle, row) for rle, row in zip(table["rle"], rows, strict=True)])


def _numbers(rle: object, what: str) -> list[int]:
    try:
        values = ast.literal_eval(rle) if isinstance(rle, str) else list(rle)
        numbers = [int(value) for value in values]
    except (ValueError, SyntaxError, TypeError, OverflowError) as error:
        raise ValueError(f"{what}: rle is no list of numbers") from error
    if numbers != list(values) or len(numbers) < 5:
        raise ValueError(f"{what}: rle must hold whole numbers: runs, then left, top, right, bottom")
    return numbers


def decode(rle: Sequence[int], width: int, height: int) -> np.ndarray:
    """Return a mask, bool (height, width), of run lengths followed by ``left, top, right, bottom`` (inclusive).

    Runs alternate 0, 1, 0, ... from 0, row by row (COCO's go column by column). They cover the box if they add up to
    its area, else the whole frame; the reference has a decoder for each and no rule between them.

    Raises ValueError for a box outside the frame, a negative run or any other sum.
    """
    *runs, left, top, right, bottom = map(int, rle)
    if not (0 <= left <= right < width and 0 <= top <= bottom < height) or min(runs, default=0) < 0:
        raise ValueError(f"rle: box {left, top, right, bottom} leaves {width} x {height} px, or a run is negative")
    box = (bottom - top + 1, right - left + 1)
    if sum(runs) == box[0] * box[1]:
        return decode_box(rle, width, height)
    if sum(runs) == width * height:
        return decode_frame(rle, width, height)
    raise ValueError(f"rle: runs add up to {sum(runs)}; expected {box[0] * box[1]} (box) or {width * height} (frame)")


def decode_box(rle: Sequence[int], width: int, height: int) -> np.ndarray:
    """Return the mask whose runs cover the box only; bool (height, width)."""
    *runs, left, top, right, bottom = map(int, rle)
    mask = np.zeros((height, width), dtype=bool)
    mask[top : bottom + 1, left : right + 1] = _pixels(runs).reshape(bottom - top + 1, right - left + 1)
    return mask


def decode_frame(rle: Sequence[int], width: int, height: int) -> np.ndarray:
    """Return the mask whose runs cover the whole frame from its first pixel, missing ones 0; bool (height, width)."""
    pixels = _pixels(list(map(int, rle))[:-4])
    if len(pixels) > width * height:
        raise ValueError(f"rle: runs add up to {len(pixels)}, more than {width} x {height} px")
    return np.pad(pixels, (0, width * height - len(pixels))).reshape(height, width)


def _pixels(runs: Sequence[int]) -> np.ndarray:
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def encode(mask: np.ndarray, *, frame: bool = False) -> list[int]:
    """Return the run lengths of a mask that is not empty, over its bounding box or over the whole ``frame``."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    left, top, right, bottom = columns[0], rows[0], columns[-1], rows[-1]
    pixels = (mask if frame else mask[top : bottom + 1, left : right + 1]).ravel()
    edges = np.flatnonzero(np.diff(np.concatenate([[False], pixels])))
    runs = np.diff(np.concatenate([[0], edges, [pixels.size]]))
    return [int(value) for value in (*runs, left, top, right, bottom)]


def parts_of(masks: pd.DataFrame, file: str) -> list[tuple[str, np.ndarray]]:
    """Return label and mask of each part of a picture, in the order of the table.

    Raises ValueError for a picture without masks, with masks of several sizes or with one that :func:`decode` refuses.
    """
    rows = masks[masks["file_name"] == file]
    if rows.empty:
        raise ValueError(f"{source(masks)}: no masks for {file}")
    if rows[["width", "height"]].drop_duplicates().shape[0] > 1:
        raise ValueError(f"{source(masks)}: masks of {file} have several sizes")
    try:
        return [(row.label, decode(row.rle, int(row.width), int(row.height))) for row in rows.itertuples()]
    except ValueError as error:
        raise ValueError(f"{source(masks)}: {file}: {error}") from error


def merged(parts: Sequence[tuple[str, np.ndarray]], variant: str = "ours") -> np.ndarray:
    """Return the fruiting body: the union of all parts (``ours``), or the last row (``reference_code``)."""
    if variant not in ("ours", "reference_code"):
        raise ValueError(f"unknown variant {variant!r}; known: ours, reference_code")
    return parts[-1][1] if variant == "reference_code" else np.any([mask for _, mask in parts], axis=0)
