"""All tasks of NEEDL-Bench with one encoder: one row per task and metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from phoebi_lib import workspace
from phoebi_lib.siblings.needl import keypoints, metrics
from phoebi_lib.siblings.needl.layout import CLASSES, COLUMNS, Needl, load
from phoebi_lib.siblings.needl.networks import keypoint_network, token_maps
from phoebi_lib.siblings.needl.sampling import SIZE, farthest_points, project
from phoebi_lib.siblings.run import SiblingRun


@dataclass(frozen=True)
class TrainedHead:
    """A keypoint head on frozen tokens.

    Attributes:
        tokens: (N, D, g, g) of all tiles, train, val and test one after the other.
        history: of the training, see :func:`~phoebi_lib.siblings.needl.keypoints.train`.
        tiles, heat: names of the val and test tiles, and their heat maps (n, 2, 256, 256).
        detections: decoded from these maps.
    """

    tokens: torch.Tensor
    history: pd.DataFrame
    tiles: list[str]
    heat: torch.Tensor
    detections: pd.DataFrame


def train_head(run: SiblingRun, needl: Needl, *, img_size: int = SIZE, epochs: int = 40) -> TrainedHead:
    """Train the head on the run's encoder, on the train tiles of all sources, at the printed learning rate.

    ``img_size`` is the side that tiles are resized to for the encoder: 512 halves the distance of its places.
    """
    train, val, test = (needl.ids(split) for split in ("train", "val", "test"))
    tokens = token_maps(run.load_encoder(img_size), run.root, [*train, *val, *test], evidence=run.evidence)
    target, inside = keypoints.targets(needl.truth("keypoint"), train)
    validation = tokens[len(train) :][: len(val)], keypoints.targets(needl.truth("keypoint"), val)[1]
    network = keypoint_network("tokens", dim=tokens.shape[1]).to(workspace.device())
    history = keypoints.train(network, tokens[: len(train)], target, inside, validation, epochs=epochs,
                              validate_every=5, seed=run.seed)  # fmt: skip
    heat = keypoints.heat_maps(network, tokens[len(train) :])
    return TrainedHead(tokens, history, [*val, *test], heat, keypoints.predictions(heat, [*val, *test]))


def with_boxes(detections: pd.DataFrame, side: float = 36.0) -> pd.DataFrame:
    """Return point detections with a box of ``side`` px round each, as the paper makes boxes for its pose model."""
    return detections.assign(x0=detections["x"] - side / 2, y0=detections["y"] - side / 2, w=side, h=side)


def grid_detections(tiles: list[str], step: float = 51.2) -> pd.DataFrame:
    """Return the answer that is the same for every tile: both classes on a grid of 25 points, nowhere 37 px away."""
    line = (np.arange(round(SIZE / step)) + 0.5) * step
    rows = [{"tile_id": tile, "class": name, "x": x, "y": y, "score": 1.0}
            for tile in tiles for name in CLASSES for y in line for x in line]  # fmt: skip
    return pd.DataFrame(rows, columns=[*COLUMNS, "score"])


def evaluate(run: SiblingRun, sides: Sequence[int] = (SIZE, 2 * SIZE)) -> pd.DataFrame:
    """Return ``task, metric, variant, value, floor, n_images`` of this run's encoder.

    ``sides``: what tiles are resized to for the encoder, in px; a head is trained for each. Sampling is with the first.

    Values are in 0..1 (r in -1..1), except distances of sampling, in units of the features. Floors: the grid of
    :func:`grid_detections` for F1, 0.5 for an AUROC, the mean severity of the train tiles for the error of a severity,
    the mean of twenty random choices for sampling; NaN where none is defined.
    """
    needl = load(run.root)
    test, rows = needl.ids("test"), []
    _, inside = keypoints.targets(needl.truth("keypoint"), test)
    grid = with_boxes(grid_detections([*needl.ids("val"), *test]))
    for img_size in sides:
        head = train_head(run, needl, img_size=img_size)
        name = f"{img_size} px"
        area = float(np.nanmean(keypoints.pixel_auroc(head.heat[-len(test) :], inside)))
        rows.append((f"keypoints, {name}", "pixel AUROC, class mean", "ours", area, 0.5, len(test)))
        found = with_boxes(head.detections)
        for rule, task in (("keypoint", f"keypoints, {name}"), ("box", f"36 px boxes, {name}")):
            for variant in ("honest", "oracle"):
                scores, floors = (metrics.detection_scores(table, needl, rule, variant=variant).set_index("class")["f1"]
                                  for table in (found, grid))  # fmt: skip
                labels = (*CLASSES, "class mean") if rule == "keypoint" else ("class mean",)
                rows += [(task, f"F1, {label}", variant, scores[label], floors[label], len(test)) for label in labels]
        rows += _severity(head, needl, name)
        if img_size == sides[0]:
            sampling = _sampling(head.tokens, run.seed)
    return pd.DataFrame([*rows, *sampling], columns=["task", "metric", "variant", "value", "floor", "n_images"])


def _severity(head: TrainedHead, needl: Needl, name: str) -> list[tuple]:
    thresholds = metrics.best_thresholds(head.detections, needl, "keypoint", needl.ids("val"))
    train = metrics.severity(head.detections, needl, "keypoint", needl.ids("train"), thresholds)
    rows = []
    for unit in ("tile", "needle") if (needl.tiles["needle_id"] != "").all() else ("tile",):
        table = metrics.severity(head.detections, needl, "keypoint", needl.ids("test"), thresholds, unit=unit)
        scores = metrics.severity_scores(table)
        floor = metrics.severity_scores(table.assign(predicted=train["truth"].mean()))["mae"]
        task, n = f"severity by {unit}, {name}", scores["n"]
        rows.append((task, "MAE", "honest", scores["mae"], floor, n))
        rows.append((task, "Pearson r", "honest", scores["pearson_r"], np.nan, n))
    return rows


def _sampling(tokens: torch.Tensor, seed: int) -> list[tuple]:
    """Return how far a tile can lie from the tiles (a third, at most fifty) that maximum-diversity sampling chooses."""
    n, rng, rows = len(tokens), np.random.default_rng(seed), []
    k = min(50, max(2, n // 3))
    for variant, values in (("ours", tokens.mean(dim=(2, 3))), ("paper", tokens.flatten(1))):
        features = project(values.numpy(), seed=seed)
        chosen, _ = farthest_points(features, k, seed=seed, dim=None)
        value = uncovered(features, chosen)
        floor = np.mean([uncovered(features, rng.permutation(n)[:k]) for _ in range(20)])
        rows.append(("diversity sampling", f"farthest from the {k} chosen", variant, value, floor, n))
    return rows


def uncovered(features: np.ndarray, chosen: np.ndarray) -> float:
    """Return the largest distance of a row of features (N, D) to its nearest chosen row."""
    return float(max(np.linalg.norm(features[chosen] - row, axis=1).min() for row in features))
