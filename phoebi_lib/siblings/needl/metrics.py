"""Matching of predictions to truths, precision, recall and F1 at a threshold, and severity (NEEDL-Bench, metrics).

Predictions are tables ``tile_id, class, score`` with ``x, y`` (rule "keypoint") or ``x0, y0, w, h`` (rule "box"), in px
of the tile; scores are any finite numbers, larger = surer. Precision, recall and F1 are in 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from phoebi_lib.siblings.needl.layout import CLASSES, GEOMETRY, Needl, check_inside

TOLERANCE = 36.0  # px: 0.1 mm at 360 px/mm
OVERLAP = 0.5
Groups = dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]


def match_keypoints(
    points: np.ndarray, scores: np.ndarray, truth: np.ndarray, tolerance: float = TOLERANCE
) -> np.ndarray:
    """Return for each point (P, 2) of one tile and class the truth (T, 2) that it is paired with: (P,) int, -1 if none.

    All pairs compete by distance, the nearest first, each end once; a pair farther than ``tolerance`` px is no pair
    (one at exactly that distance is). Ties: higher score, then lower index of the point, then of the truth.
    """
    distance = cdist(points, truth)
    pairs = np.argwhere(distance <= tolerance)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -scores[pairs[:, 0]], distance[tuple(pairs.T)]))
    matched, taken = np.full(len(points), -1), set()
    for point, target in pairs[order].tolist():
        if matched[point] < 0 and target not in taken:
            matched[point] = target
            taken.add(target)
    return matched


def match_boxes(boxes: np.ndarray, scores: np.ndarray, truth: np.ndarray, overlap: float = OVERLAP) -> np.ndarray:
    """Return for each box (P, 4) of one tile and class the truth (T, 4) that it finds, (P,) int, -1 for none.

    By falling score (ties: lower index) each box takes the free truth of the highest IoU, if that is at least
    ``overlap`` (PASCAL VOC). Boxes are x, y, width, height in continuous coordinates.
    """
    matched, iou = np.full(len(boxes), -1), box_iou(boxes, truth)
    for box in np.argsort(-scores, kind="stable"):
        if len(truth) and iou[box].max() >= overlap:
            matched[box] = iou[box].argmax()
            iou[:, matched[box]] = -1.0
    return matched


def box_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the overlaps (A, B), 0..1, of boxes x, y, width, height; 0 where a box has no area."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, :2] + a[:, None, 2:], b[None, :, :2] + b[None, :, 2:])
    common = (high - low).clip(0).prod(axis=2)
    union = a[:, 2:].prod(axis=1)[:, None] + b[:, 2:].prod(axis=1)[None] - common
    return np.divide(common, union, out=np.zeros_like(common), where=union > 0)


_RULES = {"keypoint": match_keypoints, "box": match_boxes}


def _groups(table: pd.DataFrame, rule: str, tiles: Sequence[str], scored: bool) -> Groups:
    """Return geometry (n, 2 or 4) and scores (n,) by tile and class, of these tiles."""
    table = table[table["tile_id"].isin(set(tiles))]
    return {
        key: (part[GEOMETRY[rule]].to_numpy(float), part["score"].to_numpy(float) if scored else np.empty(0))
        for key, part in table.groupby(["tile_id", "class"])
    }


def _pairs(predictions: pd.DataFrame, needl: Needl, rule: str, tiles: Sequence[str]) -> tuple[Groups, Groups]:
    if rule not in _RULES:
        raise ValueError(f"unknown rule {rule!r}; known: {', '.join(_RULES)}")
    if not len(tiles):
        raise ValueError("no tiles to score")
    check_predictions(predictions, needl)
    if predictions[GEOMETRY[rule]].isna().any(axis=None):
        raise ValueError(f"rule {rule!r} needs {', '.join(GEOMETRY[rule])} of every prediction; choose the other rule")
    return _groups(predictions, rule, tiles, True), _groups(needl.truth(rule), rule, tiles, False)


def check_predictions(predictions: pd.DataFrame, needl: Needl) -> pd.DataFrame:
    """Return the table.

    ValueError for a missing column, an unknown tile or class, a number that is not finite, or a place (of a box: its
    centre) outside the tile.
    """
    if absent := {"tile_id", "class", "score", *GEOMETRY["keypoint"], *GEOMETRY["box"]} - set(predictions):
        raise ValueError(f"predictions lack the columns {', '.join(sorted(absent))}")
    for column, known in (("tile_id", set(needl.tiles["tile_id"])), ("class", set(CLASSES))):
        if unknown := set(predictions[column]) - known:
            raise ValueError(f"predictions: {column} {min(map(str, unknown))!r} is unknown ({len(unknown)} such)")
    numbers = predictions[["score", *GEOMETRY["keypoint"], *GEOMETRY["box"]]].astype(float)
    if np.isinf(numbers).any(axis=None) or numbers["score"].isna().any():
        raise ValueError("predictions hold a score or a place that is not finite")
    if (numbers[["w", "h"]] < 0).any(axis=None):
        raise ValueError("predictions hold a box of negative size; boxes are x0, y0, w, h")
    check_inside(numbers.assign(tile_id=predictions["tile_id"]), "predictions")
    return predictions


_NOTHING: tuple[np.ndarray, np.ndarray] = (np.empty(0), np.empty(0))


def f1_curve(predictions: pd.DataFrame, needl: Needl, rule: str, tiles: Sequence[str]) -> pd.DataFrame:
    """Return counts and F1 at each distinct score, ``class, threshold, tp, fp, fn, f1``, thresholds falling.

    Matching happens after the threshold (score at or above it stays). A tile's hits change at its own scores only, so
    they are matched once per score of the tile, and summed.
    """
    found, truth = _pairs(predictions, needl, rule, tiles)
    curves = []
    for name in CLASSES:
        steps = []
        for tile in tiles:
            shapes, scores = found.get((tile, name), _NOTHING)
            target, before = truth.get((tile, name), _NOTHING)[0], 0
            for score in np.unique(scores)[::-1]:
                hits = _hits(rule, shapes, scores, target, score)
                steps.append((score, hits - before, int((scores == score).sum())))
                before = hits
        sums = pd.DataFrame(steps, columns=["threshold", "tp", "n"]).groupby("threshold").sum()
        sums = sums.sort_index(ascending=False).cumsum().reset_index()
        n_truth = sum(len(truth.get((tile, name), _NOTHING)[0]) for tile in tiles)
        curve = sums.assign(**{"class": name}, fp=sums["n"] - sums["tp"], fn=n_truth - sums["tp"])
        curves.append(curve.assign(f1=2 * curve["tp"] / (curve["n"] + n_truth)))
    return pd.concat(curves, ignore_index=True)[["class", "threshold", "tp", "fp", "fn", "f1"]]


def _hits(rule: str, shapes: np.ndarray, scores: np.ndarray, truth: np.ndarray, threshold: float) -> int:
    kept = scores >= threshold
    if not kept.any() or not len(truth):
        return 0
    return int((_RULES[rule](shapes[kept], scores[kept], truth) >= 0).sum())


def best_thresholds(predictions: pd.DataFrame, needl: Needl, rule: str, tiles: Sequence[str]) -> dict[str, float]:
    """Return for each class the score of the largest F1 on these tiles; the highest of several, infinity if none."""
    curve = f1_curve(predictions, needl, rule, tiles)
    best = {name: part.loc[part["f1"].idxmax(), "threshold"] for name, part in curve.groupby("class")}
    return {name: float(best.get(name, np.inf)) for name in CLASSES}


def counts(
    predictions: pd.DataFrame, needl: Needl, rule: str, tiles: Sequence[str], thresholds: Mapping[str, float]
) -> pd.DataFrame:
    """Return one row per tile and class: ``tile_id, class, tp, fp, fn`` at the class's threshold."""
    found, truth = _pairs(predictions, needl, rule, tiles)
    rows = []
    for tile in tiles:
        for name in CLASSES:
            shapes, scores = found.get((tile, name), _NOTHING)
            target = truth.get((tile, name), _NOTHING)[0]
            hits = _hits(rule, shapes, scores, target, thresholds[name])
            rows.append((tile, name, hits, int((scores >= thresholds[name]).sum()) - hits, len(target) - hits))
    return pd.DataFrame(rows, columns=["tile_id", "class", "tp", "fp", "fn"])


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``class, tp, fp, fn, precision, recall, f1, n_images`` of the rows of :func:`counts`, and the class mean.

    F1 = 2 TP / (2 TP + FP + FN). NaN where nothing is defined: precision without a prediction, recall without a truth,
    F1 without either. The class mean is over the classes with an F1; it is ours, since the printed "average F1" does
    not follow from the printed class scores.
    """
    total = rows.groupby("class")[["tp", "fp", "fn"]].sum().reindex(CLASSES, fill_value=0).astype(float)
    total["precision"] = total["tp"] / (total["tp"] + total["fp"])
    total["recall"] = total["tp"] / (total["tp"] + total["fn"])
    total["f1"] = 2 * total["tp"] / (2 * total["tp"] + total["fp"] + total["fn"])
    mean = total.loc[total["f1"].notna(), ["precision", "recall", "f1"]].mean()
    total.loc["class mean"] = mean
    return total.assign(n_images=rows["tile_id"].nunique()).reset_index()


def detection_scores(
    predictions: pd.DataFrame, needl: Needl, rule: str, *, variant: str = "honest", where: str = "full"
) -> pd.DataFrame:
    """Return :func:`summary` of the test tiles of a set with ``variant, rule, where, threshold`` beside it.

    Variants (the paper says "optimal F1 threshold" and no more): "honest", each class's threshold chosen on the val
    tiles of the same set; "oracle", chosen on the scored tiles themselves, as detector tools do and as the printed
    numbers probably are. A class without a truth on val ties at every threshold and gets its highest score there.

    Raises ValueError for an unknown variant, and for "honest" where test tiles have predictions and no val tile has.
    """
    if variant not in ("honest", "oracle"):
        raise ValueError(f"unknown variant {variant!r}; known: honest, oracle")
    tiles = needl.ids("test", where)
    chosen_on = needl.ids("val", where) if variant == "honest" else tiles
    chosen = best_thresholds(predictions, needl, rule, chosen_on)
    if predictions["tile_id"].isin(tiles).any() and not predictions["tile_id"].isin(chosen_on).any():
        raise ValueError(f"no prediction on any of the {len(chosen_on)} validation tiles ({where}): thresholds cannot "
                         'be chosen; give predictions for validation too, or use variant="oracle"')  # fmt: skip
    table = summary(counts(predictions, needl, rule, tiles, chosen))
    return table.assign(variant=variant, rule=rule, where=where, threshold=table["class"].map(chosen))


def severity(
    predictions: pd.DataFrame, needl: Needl, rule: str, tiles: Sequence[str], thresholds: Mapping[str, float], *,
    unit: str = "tile",
) -> pd.DataFrame:  # fmt: skip
    """Return ``unit_id, truth, predicted`` per tile or needle: pseudothecia / (pseudothecia + stomata), 0..1 (ours).

    NaN where nothing was annotated, or nothing predicted. A needle is all its tiles together, within its source.
    Raises ValueError for another unit, and for needles that are not known.
    """
    rows = counts(predictions, needl, rule, tiles, thresholds)
    unit_of = needl.tiles.set_index("tile_id")
    if unit == "needle" and (unit_of.loc[list(tiles), "needle_id"] == "").any():
        raise ValueError("tiles without needle_id: severity by needle is not defined; score by tile")
    if unit not in ("tile", "needle"):
        raise ValueError(f"unknown unit {unit!r}; known: tile, needle")
    names = unit_of["source"] + " " + unit_of["needle_id"]
    rows["unit_id"] = rows["tile_id"] if unit == "tile" else rows["tile_id"].map(names)
    sums = rows.assign(truth=rows["tp"] + rows["fn"], predicted=rows["tp"] + rows["fp"])
    sums = sums.pivot_table(index="unit_id", columns="class", values=["truth", "predicted"], aggfunc="sum")
    share = {key: sums[key]["pseudothecia"] / sums[key].sum(axis=1) for key in ("truth", "predicted")}
    return pd.DataFrame(share).reset_index()


def severity_scores(rows: pd.DataFrame) -> dict[str, float]:
    """Return ``mae, pearson_r, n, n_skipped`` of the rows of :func:`severity`; units with a NaN are skipped, counted.

    Pearson's r is NaN for fewer than two units or where one side does not vary.
    """
    whole = rows.dropna()
    varied = len(whole) > 1 and (whole[["truth", "predicted"]].nunique() > 1).all()
    return {
        "mae": float((whole["truth"] - whole["predicted"]).abs().mean()),
        "pearson_r": float(np.corrcoef(whole["truth"], whole["predicted"])[0, 1]) if varied else float("nan"),
        "n": len(whole), "n_skipped": len(rows) - len(whole),
    }  # fmt: skip
