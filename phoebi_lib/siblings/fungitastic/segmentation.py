"""Part masks and their metrics, all in 0..1: IoU per picture, mean IoU over parts, COCO's average precision.

A picture's parts are (label, mask), bool (height, width), and predicted ones (label, mask, score); several may have one
label.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.images import read_image
from phoebi_lib.siblings.fungitastic.layout import image_files, read_split, respelt, source
from phoebi_lib.siblings.tables import allow, require

Parts = Sequence[tuple[str, np.ndarray]]
Scored = Sequence[tuple[str, np.ndarray, float]]
PARTS = ("cap", "gills", "pores", "ring", "stem")
LABELS = (*PARTS, "fruiting_body")
FILES = {"train": "TrainMasks", "val": "ValidationMasks", "test": "TestMasks"}
_OVERLAPS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_MAX_PER_PICTURE = 100


class Lazy(Mapping):
    """Values by file name, made anew at each look: the masks of a whole split would fill the memory."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Any]) -> None:
        self._names, self._make = dict.fromkeys(names), make

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_masks(root: str | Path, split: str) -> Mapping[str, Parts]:
    """Return the parts of each picture of Mini's table that has masks, in the order of the masks' file.

    Masks find their picture without regard to case. Warns of those whose picture is not in the table.

    Raises FileNotFoundError for a missing file; ValueError for one that is damaged, a missing column, an unknown label,
    or if no mask has its picture; when the parts of a picture are looked at, for numbers that are not whole or that
    :func:`decode` refuses, and masks of several sizes.
    """
    check_choice("FungiTastic masks", "split", split, tuple(FILES))
    path = Path(root) / "masks" / f"FungiTastic-Mini-{FILES[split]}.parquet"
    try:
        table = pd.read_parquet(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # the readers of damaged files share no type of error
        raise ValueError(f"{path}: cannot be read ({error}); expected a Parquet file as published") from error
    allow(require(table, ("file_name", "label", "width", "height", "rle"), path)["label"], LABELS, path)
    if not table["label"].isin(PARTS).any():
        raise ValueError(f"{path}: no mask of a part; expected some of {', '.join(PARTS)}")
    pictures, given = read_split(root, "Mini", split), table["file_name"].fillna("").astype(str)
    names = pd.Series([(fits or [None])[0] for fits in respelt(given, pictures["filename"])], table.index)
    if len(lost := given[names.isna()].unique()):
        text = f"{path}: {len(lost)} names of no picture in {source(pictures)}: {', '.join(lost[:5])}"
        if names.isna().all():
            raise ValueError(f"{text}; no mask is left, expected those of its pictures")
        warnings.warn(f"{text}; their masks are left out", stacklevel=3)
    rows = dict(list(table.groupby(names, sort=False)))

    def parts_of(name: str) -> Parts:
        try:
            parts = [(row.label, decode(*_whole(row.rle, row.width, row.height))) for row in rows[name].itertuples()]
            if len({mask.shape for _, mask in parts}) > 1:
                raise ValueError("masks of several sizes")
        except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError) as error:
            raise ValueError(f"{path}: {name}: {error}; expected in rle runs, then left, top, right, bottom") from error
        return parts

    return Lazy(rows, parts_of)


def _whole(rle: object, width: object, height: object) -> tuple[list[int], int, int]:
    numbers = [float(value) for value in (ast.literal_eval(rle) if isinstance(rle, str) else rle)]
    if not all(number.is_integer() for number in (*numbers, float(width), float(height))):
        raise ValueError("rle, width and height must be whole numbers")
    return list(map(int, numbers)), int(width), int(height)


def decode(rle: Sequence[int], width: int, height: int, over: str | None = None) -> np.ndarray:
    """Return a mask, bool (height, width), of run lengths followed by ``left, top, right, bottom`` (inclusive).

    Runs alternate 0, 1, 0, ... from 0, row by row (COCO's go column by column).

    Args:
        over: what the runs cover, "box" or "frame", missing ones being 0: the reference has a decoder for each and no
            rule between them. By default the one whose area they add up to, the box if both.

    Raises ValueError for a box outside the frame, a negative run or a sum that fits neither.
    """
    *runs, left, top, right, bottom = map(int, rle)
    check_choice("decode", "over", over, (None, "box", "frame"))
    mask = np.zeros((height, width), dtype=bool)
    views = {"box": mask[max(top, 0) : bottom + 1, max(left, 0) : right + 1], "frame": mask}
    total, areas = sum(runs), {name: view.size for name, view in views.items()}
    over = over or next((name for name, area in areas.items() if area == total), None)
    is_inside = 0 <= left <= right < width and 0 <= top <= bottom < height
    if not (is_inside or over == "frame") or min(runs, default=0) < 0 or over is None or total > areas[over]:
        raise ValueError(f"runs from {min(runs, default=0)} up add up to {total}; expected none below 0, and the area "
                         f"of the box {left, top, right, bottom} or of all {width} x {height} px")  # fmt: skip
    pixels = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    views[over].flat = np.pad(pixels, (0, areas[over] - total))
    return mask


def encode(mask: np.ndarray, *, frame: bool = False) -> list[int]:
    """Return the run lengths of a mask that is not empty, over its bounding box or over the whole ``frame``."""
    if not mask.any():
        raise ValueError(f"encode needs a mask with a pixel; of {mask.shape} none is set")
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    left, top, right, bottom = columns[0], rows[0], columns[-1], rows[-1]
    pixels = (mask if frame else mask[top : bottom + 1, left : right + 1]).ravel()
    edges = np.flatnonzero(np.diff(pixels, prepend=False))
    return [int(value) for value in (*np.diff([0, *edges, pixels.size]), left, top, right, bottom)]


def merged(parts: Parts, variant: str = "ours") -> np.ndarray:
    """Return the fruiting body: the union of all parts (``ours``), or the last row (``reference_code``)."""
    check_choice("merged", "variant", variant, ("ours", "reference_code"))
    if not parts:
        raise ValueError("merged needs a part, got none")
    return parts[-1][1] if variant == "reference_code" else np.any([mask for _, mask in parts], axis=0)


def foreground(picture: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return an 8-bit prediction as a mask of the truth's (height, width): nearest neighbour, then > 0.5."""
    return np.asarray(Image.fromarray(picture).resize(shape[::-1], Image.Resampling.NEAREST)) / 255 > 0.5


def iou(predicted: np.ndarray, truth: np.ndarray, variant: str = "ours") -> float:
    """Return intersection over union of two masks; where both are empty 1 (``ours``) or 0 (``reference_code``).

    Raises ValueError for different shapes or an unknown variant.
    """
    check_choice("iou", "variant", variant, ("ours", "reference_code"))
    if predicted.shape != truth.shape:
        raise ValueError(f"masks of different shapes: {predicted.shape} and {truth.shape}; resize with foreground()")
    union = int((predicted | truth).sum())
    return int((predicted & truth).sum()) / union if union else float(variant == "ours")


def binary(pairs: Iterable[tuple[str, np.ndarray, np.ndarray]], variant: str = "ours") -> pd.DataFrame:
    """Return one row per picture, ``file_name, iou, both_empty``, of (name, predicted, truth).

    The metric is the mean of ``iou``. Raises ValueError for no picture, else as :func:`iou`.
    """
    rows = [(name, iou(p, t, variant), not (p.any() or t.any())) for name, p, t in pairs]
    if not rows:
        raise ValueError("no picture to score")
    return pd.DataFrame(rows, columns=["file_name", "iou", "both_empty"])


def semantic(pairs: Iterable[tuple[Parts, Parts]]) -> pd.DataFrame:
    """Return ``label, intersection, union, iou`` of each part, px summed over the (predicted, true) parts of pictures.

    All masks of a part in a picture are one. The mean IoU is the mean of ``iou``; it is NaN, and left out, for a part
    whose union is empty. Raises ValueError for masks of different shapes in a picture.
    """
    pixels = np.zeros((len(PARTS), 2), dtype=np.int64)
    for picture in pairs:
        if len(shapes := {mask.shape for parts in picture for _, mask in parts}) > 1:
            raise ValueError(f"masks of different shapes: {sorted(shapes)}; resize with foreground()")
        for i, label in enumerate(PARTS):
            # of no mask at all this is a single False, which goes with a mask of any shape
            p, t = (np.any([mask for name, mask in parts if name == label], axis=0) for parts in picture)
            pixels[i] += (p & t).sum(), (p | t).sum()
    table = pd.DataFrame(pixels, columns=["intersection", "union"])
    table.insert(0, "label", PARTS)
    return table.assign(iou=table["intersection"] / table["union"])


def average_precision(pairs: Iterable[tuple[Scored, Parts]]) -> pd.DataFrame:
    """Return COCO's AP of instance masks, ``label, overlap, ap``, for labels that occur in the truth.

    For each label and each least IoU of 0.50, 0.55, ... 0.95: predictions take, by falling score, the free true mask
    they overlap most, at most 100 per picture and label; AP is the mean over 101 recalls of the best precision at or
    beyond them. The metric AP@[.50:.05:.95] is the mean of ``ap``.

    ``pairs`` holds the (predicted, true) parts of each picture. Raises ValueError for no true mask or a score that is
    not finite.
    """
    answers, n_true = defaultdict(list), Counter()
    for guesses, parts in pairs:
        if not np.isfinite([score for *_, score in guesses]).all():
            raise ValueError("scores of predicted masks must be finite")
        n_true.update(label for label, _ in parts)
        for name in {label for label, *_ in guesses}:
            masks = [mask for label, mask in parts if label == name]
            answers[name] += _matched([(mask, score) for label, mask, score in guesses if label == name], masks)
    if not n_true:
        raise ValueError("no picture with a true mask")
    rows = []
    for name in sorted(n_true):
        best_first = sorted(answers[name], key=lambda answer: -answer[0])
        hits = np.array([hit for _, hit in best_first], dtype=bool).reshape(-1, len(_OVERLAPS))
        rows += [(name, round(float(o), 2), _area(hits[:, i], n_true[name])) for i, o in enumerate(_OVERLAPS)]
    return pd.DataFrame(rows, columns=["label", "overlap", "ap"])


def _matched(guesses: list[tuple[np.ndarray, float]], masks: list[np.ndarray]) -> list[tuple[float, np.ndarray]]:
    """Return score, and whether a free true mask is found at each least IoU, of the best predictions in a picture."""
    free, found = np.ones((len(_OVERLAPS), len(masks)), dtype=bool), []
    for guess, score in sorted(guesses, key=lambda answer: -answer[1])[:_MAX_PER_PICTURE]:
        overlaps = np.array([iou(guess, mask) for mask in masks])
        # 1e-10: an overlap that equals the bound up to rounding counts, as in COCO's own evaluation
        fits = free & (overlaps >= _OVERLAPS[:, None] - 1e-10)
        hit = fits.any(axis=1)
        if hit.any():
            free[hit, np.where(fits[hit], overlaps, -1).argmax(axis=1)] = False
        found.append((score, hit))
    return found


def _area(hits: np.ndarray, n_true: int) -> float:
    found = hits.cumsum()
    precision = np.maximum.accumulate((found / np.arange(1, len(hits) + 1))[::-1])[::-1]
    return float(np.append(precision, 0.0)[np.searchsorted(found / n_true, _RECALLS, side="left")].mean())


def threshold_parts(picture: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return a baseline's masks of (height, width): what is brighter than the mean, its upper 60 % cap, the rest stem.

    Args:
        picture: uint8 (3, H, W).
    """
    grey = picture.mean(axis=0)
    body = foreground((255 * (grey > grey.mean())).astype(np.uint8), shape)
    upper = np.arange(shape[0])[:, None] < 0.6 * shape[0]
    return {"cap": body & upper, "stem": body & ~upper, "fruiting_body": body}


def mask_pairs(root: str | Path, split: str = "val", size: int | str = 300) -> Mapping[str, tuple[dict, Parts]]:
    """Return thresholded and true parts of Mini's pictures that have masks, by file name, read and decoded on look-up.

    Raises as :func:`read_masks` and :func:`~.layout.image_files`.
    """
    masks, table = read_masks(root, split), read_split(root, "Mini", split)
    table = table[table["filename"].isin(list(masks))]
    files = dict(zip(table["filename"], image_files(root, table, "Mini", split, size), strict=True))

    def pair(name: str) -> tuple[dict, Parts]:
        truth = masks[name]
        return threshold_parts(read_image(Path(root) / files[name]), truth[0][1].shape), truth

    return Lazy(files, pair)


def thresholded(pairs: Mapping[str, tuple[dict, Parts]], variant: str = "ours") -> dict[str, float]:
    """Return mean binary IoU, mean IoU over parts and AP@[.50:.05:.95] of :func:`mask_pairs`; the score is the area."""
    whole = ((name, p["fruiting_body"], merged(truth, variant)) for name, (p, truth) in pairs.items())
    parts = ((list(p.items()), truth) for p, truth in pairs.values())
    scored = (([(label, mask, float(mask.sum())) for label, mask in p.items()],
               [(label, mask) for label, mask in truth if label in PARTS]) for p, truth in pairs.values())  # fmt: skip
    return {"binary IoU": float(binary(whole, variant)["iou"].mean()),
            "mIoU": float(semantic(parts)["iou"].mean()),
            "AP": float(average_precision(scored)["ap"].mean())}  # fmt: skip
