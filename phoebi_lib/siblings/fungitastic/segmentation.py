"""Metrics of masks: IoU per picture, mean IoU over parts, and COCO's average precision of instances; all in 0..1."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from phoebi_lib.images import read_image
from phoebi_lib.siblings.fungitastic import layout
from phoebi_lib.siblings.fungitastic.masks import PARTS, merged, parts_of, read_masks

_OVERLAPS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_MAX_PER_PICTURE = 100


def foreground(picture: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return an 8-bit prediction as a mask of the truth's (height, width): nearest neighbour, then > 0.5."""
    height, width = shape
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.NEAREST)) / 255 > 0.5


def iou(predicted: np.ndarray, truth: np.ndarray, variant: str = "ours") -> float:
    """Return intersection over union of two masks; where both are empty 1 (``ours``) or 0 (``reference_code``).

    Raises ValueError for different shapes or an unknown variant.
    """
    if predicted.shape != truth.shape:
        raise ValueError(f"masks of different shapes: {predicted.shape} and {truth.shape}; resize with foreground()")
    if variant not in ("ours", "reference_code"):
        raise ValueError(f"unknown variant {variant!r}; known: ours, reference_code")
    union = int((predicted | truth).sum())
    return int((predicted & truth).sum()) / union if union else float(variant == "ours")


def binary(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]], variant: str = "ours") -> pd.DataFrame:
    """Return one row per picture, ``file_name, iou, both_empty``, of (predicted, truth); the metric is the mean of iou.

    Raises ValueError for no picture, else as :func:`iou`.
    """
    if not pairs:
        raise ValueError("no picture to score")
    rows = [(name, iou(p, t, variant), not (p.any() or t.any())) for name, (p, t) in pairs.items()]
    return pd.DataFrame(rows, columns=["file_name", "iou", "both_empty"])


def semantic(pairs: Iterable[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]) -> pd.DataFrame:
    """Return ``label, intersection, union, iou`` of each part, px summed over all pictures.

    The mean IoU is the mean of ``iou``; it is NaN, and left out, for a part whose union is empty.

    Args:
        pairs: per picture the predicted and the true mask of each part; a part that is not there has none.
    """
    totals = dict.fromkeys(PARTS, (0, 0))
    for predicted, truth in pairs:
        shape = next(iter([*truth.values(), *predicted.values()]), np.zeros((0, 0))).shape
        none = np.zeros(shape, dtype=bool)
        for part, (both, either) in totals.items():
            p, t = predicted.get(part, none), truth.get(part, none)
            totals[part] = (both + int((p & t).sum()), either + int((p | t).sum()))
    rows = [(part, both, either, both / either if either else np.nan) for part, (both, either) in totals.items()]
    return pd.DataFrame(rows, columns=["label", "intersection", "union", "iou"])


def average_precision(
    predicted: Sequence[Sequence[tuple[str, float, np.ndarray]]], truth: Sequence[Sequence[tuple[str, np.ndarray]]]
) -> pd.DataFrame:
    """Return COCO's AP of instance masks, ``label, overlap, ap``, for labels that occur in the truth.

    For each label and each least IoU of 0.50, 0.55, ... 0.95: predictions take, by falling score, the free true mask
    they overlap most, at most 100 per picture and label; AP is the mean over 101 recalls of the best precision at or
    beyond them. The metric AP@[.50:.05:.95] is the mean of ``ap``.

    Args:
        predicted: per picture (label, score, mask); truth: per picture (label, mask).

    Raises ValueError for different numbers of pictures, no true mask or a score that is not finite.
    """
    names = sorted({label for picture in truth for label, _ in picture})
    if len(predicted) != len(truth) or not names:
        raise ValueError(f"{len(predicted)} predictions for {len(truth)} pictures with {len(names)} labels")
    if not np.isfinite([score for picture in predicted for _, score, _ in picture]).all():
        raise ValueError("scores of predicted masks must be finite")
    rows = []
    for name in names:
        scores, hits, n_true = [], [], 0
        for guesses, parts in zip(predicted, truth, strict=True):
            masks = [mask for label, mask in parts if label == name]
            mine = sorted(((s, m) for label, s, m in guesses if label == name), key=lambda g: -g[0])[:_MAX_PER_PICTURE]
            n_true += len(masks)
            scores += [score for score, _ in mine]
            hits += _matched(np.array([[iou(m, t) for t in masks] for _, m in mine]).reshape(len(mine), len(masks)))
        order = np.argsort(-np.array(scores), kind="stable")
        found = np.array(hits, dtype=bool).reshape(-1, len(_OVERLAPS))[order]
        rows += [(name, round(float(o), 2), _area(found[:, i], n_true)) for i, o in enumerate(_OVERLAPS)]
    return pd.DataFrame(rows, columns=["label", "overlap", "ap"])


def _matched(overlaps: np.ndarray) -> list[np.ndarray]:
    """Return, for predictions in order of score, whether each finds a free true mask at each least IoU."""
    hits = np.zeros((len(overlaps), len(_OVERLAPS)), dtype=bool)
    for i, least in enumerate(_OVERLAPS):
        free = np.ones(overlaps.shape[1], dtype=bool)
        for row, values in enumerate(overlaps):
            # 1e-10: an overlap that equals the bound up to rounding counts, as in COCO's own evaluation
            fits = np.flatnonzero(free & (values >= least - 1e-10))
            if fits.size:
                free[fits[values[fits].argmax()]] = False
                hits[row, i] = True
    return list(hits)


def _area(hits: np.ndarray, n_true: int) -> float:
    if not hits.size:
        return 0.0
    found = hits.cumsum()
    precision = np.maximum.accumulate((found / np.arange(1, len(hits) + 1))[::-1])[::-1]
    at = np.searchsorted(found / n_true, _RECALLS, side="left")
    return float(np.append(precision, 0.0)[at].mean())


def threshold_parts(picture: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return a baseline's masks of (height, width): what is brighter than the mean, its upper 60 % cap, the rest stem.

    Args:
        picture: uint8 (3, H, W).
    """
    grey = picture.mean(axis=0)
    body = foreground((255 * (grey > grey.mean())).astype(np.uint8), shape)
    upper = np.arange(shape[0])[:, None] < 0.6 * shape[0]
    return {"cap": body & upper, "stem": body & ~upper, "fruiting_body": body}


def mask_pairs(root: str | Path, split: str = "val", size: int | str = 300) -> dict[str, tuple[dict, list]]:
    """Return thresholded and true parts of Mini's pictures, by file name; pictures without masks are left out.

    Masks find their picture without regard to case. Warns of masks whose picture is not in the table; raises ValueError
    if that is so of all.
    """
    table, masks = layout.read_split(root, "Mini", split), read_masks(root, split)
    spelt = {name.lower(): name for name in table["filename"]} | {name: name for name in table["filename"]}
    names = masks["file_name"].map(lambda name: spelt.get(name, spelt.get(str(name).lower())))
    lost = masks["file_name"][names.isna()].astype(str).unique()
    text = f"{layout.source(masks)}: {len(lost)} names of no picture in {layout.source(table)}: {', '.join(lost[:5])}"
    if names.isna().all():
        raise ValueError(f"{text}; no mask is left, expected those of its pictures")
    if len(lost):
        warnings.warn(f"{text}; their masks are left out", stacklevel=2)
    masks = masks.assign(file_name=names)
    table = table[table["filename"].isin(names)]
    pairs = {}
    for name, file in zip(table["filename"], layout.image_files(root, table, "Mini", split, size), strict=True):
        truth = parts_of(masks, name)
        pairs[name] = threshold_parts(read_image(Path(root) / file), truth[0][1].shape), truth
    return pairs


def _united(parts: Iterable[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    masks = {}
    for label, mask in parts:
        masks[label] = masks.get(label, False) | mask
    return masks


def thresholded(pairs: Mapping[str, tuple[dict, list]], variant: str = "ours") -> dict[str, float]:
    """Return mean binary IoU, mean IoU over parts and AP@[.50:.05:.95] of :func:`mask_pairs`; the score is the area.

    For the IoU over parts all instances of a part in a picture are one mask.
    """
    whole = {name: (p["fruiting_body"], merged(truth, variant)) for name, (p, truth) in pairs.items()}
    truths = [[(label, mask) for label, mask in truth if label in PARTS] for _, truth in pairs.values()]
    guesses = [{label: mask for label, mask in p.items() if label in PARTS} for p, _ in pairs.values()]
    scored = [[(label, float(mask.sum()), mask) for label, mask in guess.items()] for guess in guesses]
    return {"binary IoU": float(binary(whole, variant)["iou"].mean()),
            "mIoU": float(semantic(zip(guesses, map(_united, truths), strict=True))["iou"].mean()),
            "AP": float(average_precision(scored, truths)["ap"].mean())}  # fmt: skip
