"""Matching of predictions to truths, precision, recall and F1 at a threshold, and severity (NEEDL-Bench, metrics).

Precision, recall and F1 are in 0..1; scores of predictions are any finite numbers, larger = surer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from scipy.spatial.distance import cdist
from torchvision import ops

from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.siblings.needl.layout import CLASSES, GEOMETRY, Needl, check

TOLERANCE = 36.0  # px: 0.1 mm at 360 px/mm
OVERLAP = 0.5
_ROUNDING = 1e-9  # exactly the tolerance, or exactly half, is a hit
_KEYS, _COUNTS = ["tile_id", "class"], ["tp", "n", "n_true"]


def match_keypoints(points: np.ndarray, scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return for each point (P, 2) of one tile and class the truth (T, 2) that it is paired with: (P,) int, -1 if none.

    All pairs compete by distance, the nearest first, each end once; a pair farther than 36 px is no pair (one at
    exactly that distance is). Ties: higher score, then lower index of the point, then of the truth.
    """
    return _match("keypoint", cdist(points, truth), scores)


def match_boxes(boxes: np.ndarray, scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return for each box (P, 4) of one tile and class the truth (T, 4) that it finds, (P,) int, -1 for none.

    By falling score (ties: lower index) each box takes the free truth of the highest IoU, if that is at least one half
    (PASCAL VOC). Boxes are x, y, width, height in continuous coordinates.
    """
    return _match("box", box_iou(boxes, truth), scores)


def box_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the overlaps (A, B), 0..1, of boxes x, y, width, height; 0 where a box has no area."""
    corners = [ops.box_convert(torch.tensor(boxes, dtype=torch.float64), "xywh", "xyxy") for boxes in (a, b)]
    return ops.box_iou(*corners).nan_to_num().numpy()


_MEASURES = {"keypoint": cdist, "box": box_iou}


def _match(rule: str, measure: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return for each prediction the truth that it is paired with by a rule; ``measure`` (P, T): distance or IoU."""
    allowed = measure <= TOLERANCE + _ROUNDING if rule == "keypoint" else measure >= OVERLAP - _ROUNDING
    rows, columns = np.nonzero(allowed)
    surest, value = -scores[rows], measure[allowed]
    keys = (value, surest, rows) if rule == "keypoint" else (surest, rows, -value)
    matched, free = np.full(measure.shape[0], -1), np.ones(measure.shape[1], dtype=bool)
    # pairs are served by the first key, ties by the next; of all equal, pairs stand by row and column already
    for pair in np.lexsort(keys[::-1]):
        if matched[rows[pair]] < 0 and free[columns[pair]]:
            matched[rows[pair]], free[columns[pair]] = columns[pair], False
    return matched


def matches(predictions: pd.DataFrame, needl: Needl, rule: str, tiles: Sequence[str] | None = None) -> pd.DataFrame:
    """Return ``tile_id, class, threshold, tp, n, n_true``: what hits, predictions and truths each threshold adds.

    Matching happens after the threshold t (score at or above it stays): the sum over the rows from t up is what stands
    at t. A tile's hits change at its own scores only, so they are matched once per score of the tile; truths stand at
    every threshold, in a row at infinity. ``tiles`` are those to look at, all by default.

    Raises ValueError for another rule, a table that :func:`~phoebi_lib.siblings.needl.layout.check` refuses, or one
    that lacks what the rule needs.
    """
    check_choice("NEEDL-Bench", "rule", rule, tuple(_MEASURES))
    predictions, columns = check(predictions, "predictions", needl.tiles["tile_id"]), GEOMETRY[rule]
    if predictions[columns].isna().any(axis=None):
        raise ValueError(f"rule {rule!r} needs {', '.join(columns)} of every prediction; choose the other rule")
    tiles = needl.tiles["tile_id"] if tiles is None else tiles
    predicted, true = (table[table["tile_id"].isin(tiles)] for table in (predictions, needl.truth(rule)))
    truth = {key: part[columns].to_numpy() for key, part in true.groupby(_KEYS)}
    rows = [(*key, np.inf, 0, 0, len(shapes)) for key, shapes in truth.items()]
    for key, part in predicted.groupby(_KEYS):
        scores, before = part["score"].to_numpy(), 0
        measure = _MEASURES[rule](part[columns].to_numpy(), truth.get(key, np.empty((0, len(columns)))))
        for score in np.unique(scores)[::-1]:
            kept = scores >= score
            hits = int((_match(rule, measure[kept], scores[kept]) >= 0).sum())
            rows.append((*key, score, hits - before, int((scores == score).sum()), 0))
            before = hits
    return pd.DataFrame(rows, columns=[*_KEYS, "threshold", *_COUNTS])


def _scored(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``fp, fn, precision, recall, f1`` beside ``tp, n, n_true``; NaN where nothing is defined."""
    tp, n, n_true = (rows[name].astype(float) for name in _COUNTS)
    return rows.assign(fp=n - tp, fn=n_true - tp, precision=tp / n, recall=tp / n_true, f1=2 * tp / (n + n_true))


def f1_curve(matched: pd.DataFrame, tiles: Sequence[str]) -> pd.DataFrame:
    """Return counts and F1 of :func:`matches` at each distinct score, thresholds falling within a class."""
    rows = matched[matched["tile_id"].isin(tiles)].groupby(["class", "threshold"])[_COUNTS].sum()
    curve = _scored(rows.sort_index(ascending=False).groupby("class").cumsum()).reset_index()
    return curve[curve["threshold"] < np.inf]


def best_thresholds(matched: pd.DataFrame, tiles: Sequence[str]) -> dict[str, float]:
    """Return for each class the score of the largest F1 on these tiles; the highest of several, infinity if none."""
    curve = f1_curve(matched, tiles)
    best = curve.loc[curve.groupby("class")["f1"].idxmax()].set_index("class")["threshold"]
    return best.reindex(CLASSES, fill_value=np.inf).to_dict()


def counts(matched: pd.DataFrame, tiles: Sequence[str], thresholds: Mapping[str, float]) -> pd.DataFrame:
    """Return one row per tile and class: ``tile_id, class, tp, n, n_true`` at the class's threshold.

    Raises ValueError for no tile, or a class without a threshold.
    """
    if not len(tiles) or not set(CLASSES) <= set(thresholds):
        raise ValueError(f"{len(tiles)} tiles and thresholds of {', '.join(thresholds)}; expected tiles, and one of "
                         f"each of {', '.join(CLASSES)}")  # fmt: skip
    kept = matched[matched["threshold"] >= matched["class"].map(thresholds)].groupby(_KEYS)[_COUNTS].sum()
    return kept.reindex(pd.MultiIndex.from_product([tiles, CLASSES], names=_KEYS), fill_value=0).reset_index()


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return scores of the rows of :func:`counts`, a row per class and one of their mean.

    Columns: ``class, tp, n, n_true, fp, fn, precision, recall, f1, n_images``.

    F1 = 2 TP / (2 TP + FP + FN). NaN where nothing is defined: precision without a prediction, recall without a truth,
    F1 without either. The class mean is over the classes with an F1; it is ours, since the printed "average F1" does
    not follow from the printed class scores.
    """
    total = _scored(rows.groupby("class")[_COUNTS].sum().reindex(CLASSES))
    total.loc["class mean"] = total.loc[total["f1"].notna(), ["precision", "recall", "f1"]].mean()
    return total.assign(n_images=rows["tile_id"].nunique()).reset_index()


def detection_scores(
    predictions: pd.DataFrame, needl: Needl, rule: str, *, variant: str = "honest", where: str = "full"
) -> pd.DataFrame:
    """Return :func:`summary` of the test tiles of a set with ``variant, rule, where, threshold`` beside it.

    Variants (the paper says "optimal F1 threshold" and no more): "honest", each class's threshold chosen on the val
    tiles of the same set; "oracle", chosen on the scored tiles themselves, as detector tools do and as the printed
    numbers probably are. A class without a truth on val ties at every threshold and gets its highest score there.

    Raises ValueError as :func:`matches` does, for an unknown variant or set, and for "honest" where test tiles have
    predictions and no val tile has.
    """
    check_choice("NEEDL-Bench", "variant", variant, ("honest", "oracle"))
    tiles = needl.ids("test", where)
    chosen_on = needl.ids("val", where) if variant == "honest" else tiles
    matched = matches(predictions, needl, rule, [*tiles, *chosen_on])
    if predictions["tile_id"].isin(tiles).any() and not predictions["tile_id"].isin(chosen_on).any():
        raise ValueError(f"no prediction on any of the {len(chosen_on)} validation tiles ({where}): thresholds cannot "
                         'be chosen; give predictions for validation too, or use variant="oracle"')  # fmt: skip
    chosen = best_thresholds(matched, chosen_on)
    table = summary(counts(matched, tiles, chosen))
    return table.assign(variant=variant, rule=rule, where=where, threshold=table["class"].map(chosen))


def severity(rows: pd.DataFrame, needl: Needl, unit: str = "tile") -> pd.DataFrame:
    """Return ``unit_id, truth, predicted`` per tile or needle: pseudothecia / (pseudothecia + stomata), 0..1 (ours).

    ``rows`` are of :func:`counts`. NaN where nothing was annotated, or nothing predicted. A needle is all its tiles
    together, within its source. Raises ValueError for another unit, and for needles that are not known.
    """
    check_choice("NEEDL-Bench", "unit", unit, ("tile", "needle"))
    rows = rows.merge(needl.tiles, on="tile_id")
    if unit == "needle" and (rows["needle_id"] == "").any():
        raise ValueError("tiles without needle_id: severity by needle is not defined; score by tile")
    rows["unit_id"] = rows["tile_id"] if unit == "tile" else rows["source"] + " " + rows["needle_id"]
    blocked, every = (part.groupby("unit_id")[["n_true", "n"]].sum()
                      for part in (rows[rows["class"] == "pseudothecia"], rows))  # fmt: skip
    return (blocked / every).set_axis(["truth", "predicted"], axis=1).reset_index()


def severity_scores(rows: pd.DataFrame) -> dict[str, float]:
    """Return ``mae, pearson_r, n, n_skipped`` of the rows of :func:`severity`; units with a NaN are skipped, counted.

    Pearson's r is NaN for fewer than two units or where one side does not vary.
    """
    whole = rows.dropna()
    return {
        "mae": float((whole["truth"] - whole["predicted"]).abs().mean()),
        "pearson_r": float(whole[["truth", "predicted"]].corr().iloc[0, 1]),
        "n": len(whole), "n_skipped": len(rows) - len(whole),
    }  # fmt: skip
