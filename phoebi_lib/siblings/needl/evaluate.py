"""All tasks of NEEDL-Bench with one encoder: one row per task and metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch

from phoebi_lib import workspace
from phoebi_lib.siblings.needl import keypoints, metrics
from phoebi_lib.siblings.needl.layout import CLASSES, GEOMETRY, SIZE, Needl, load
from phoebi_lib.siblings.needl.networks import TokenHead, token_maps
from phoebi_lib.siblings.needl.sampling import farthest_points, project, uncovered
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
    parts = tokens.split([len(train), len(val), len(test)])
    truth = needl.truth("keypoint")
    network = TokenHead(tokens.shape[1]).to(workspace.device())
    history = keypoints.train(network, parts[0], *keypoints.targets(truth, train),
                              (parts[1], keypoints.targets(truth, val)[1]), epochs=epochs, validate_every=5,
                              seed=run.seed)  # fmt: skip
    heat = keypoints.heat_maps(network, torch.cat(parts[1:]))
    return TrainedHead(tokens, history, [*val, *test], heat, keypoints.predictions(heat, [*val, *test]))


def with_boxes(detections: pd.DataFrame, side: float = 36.0) -> pd.DataFrame:
    """Return point detections with a box of ``side`` px round each, as the paper makes boxes for its pose model."""
    return detections.assign(x0=detections["x"] - side / 2, y0=detections["y"] - side / 2, w=side, h=side)


def grid_detections(tiles: list[str], step: float = 51.2) -> pd.DataFrame:
    """Return the answer that is the same for every tile: both classes on a grid of 25 points, nowhere 37 px away.

    As points; :func:`with_boxes` makes it whole.
    """
    line = np.arange(step / 2, SIZE, step)
    every = pd.MultiIndex.from_product([tiles, CLASSES, line, line], names=["tile_id", "class", "y", "x"])
    return every.to_frame(index=False).assign(score=1.0)


def evaluate(run: SiblingRun, sides: Sequence[int] = (SIZE, 2 * SIZE)) -> pd.DataFrame:
    """Return ``task, metric, variant, value, floor, n_images`` of this run's encoder.

    ``sides``: what tiles are resized to for the encoder, in px; a head is trained for each. Sampling is with the first.

    Values are in 0..1 (r in -1..1), except distances of sampling, in units of the features. Floors: the grid of
    :func:`grid_detections` for F1, 0.5 for an AUROC, the mean severity of the train tiles for the error of a severity,
    the mean of twenty random choices for sampling; NaN where none is defined.
    """
    needl = load(run.root)
    test, rows, sampling = needl.ids("test"), [], []
    _, inside = keypoints.targets(needl.truth("keypoint"), test)
    grid = with_boxes(grid_detections([*needl.ids("val"), *test]))
    for img_size in sides:
        head, name = train_head(run, needl, img_size=img_size), f"{img_size} px"
        area = float(np.nanmean(keypoints.pixel_auroc(head.heat[-len(test) :], inside)))
        rows.append((f"keypoints, {name}", "pixel AUROC, class mean", "ours", area, 0.5, len(test)))
        found = with_boxes(head.detections)
        rules = [rule for rule in GEOMETRY if len(needl.truth(rule))]
        for rule, variant in product(rules, ("honest", "oracle")):
            f1, floors = (metrics.detection_scores(table, needl, rule, variant=variant).set_index("class")["f1"]
                          for table in (found, grid))  # fmt: skip
            task = "keypoints" if rule == "keypoint" else "36 px boxes"
            for label in f1.index if rule == "keypoint" else ["class mean"]:
                rows.append((f"{task}, {name}", f"F1, {label}", variant, f1[label], floors[label], len(test)))
        rows += _severity(found, needl, name)
        sampling = sampling or _sampling(head.tokens, run.seed)
    return pd.DataFrame([*rows, *sampling], columns=["task", "metric", "variant", "value", "floor", "n_images"])


def _severity(detections: pd.DataFrame, needl: Needl, name: str) -> list[tuple]:
    matched = metrics.matches(detections, needl, "keypoint")
    thresholds = metrics.best_thresholds(matched, needl.ids("val"))
    train, test = (metrics.counts(matched, needl.ids(split), thresholds) for split in ("train", "test"))
    mean = metrics.severity(train, needl)["truth"].mean()
    rows = []
    for unit in ("tile", "needle") if (needl.tiles["needle_id"] != "").all() else ("tile",):
        table = metrics.severity(test, needl, unit)
        scores, floor = metrics.severity_scores(table), metrics.severity_scores(table.assign(predicted=mean))["mae"]
        for metric, key, its in (("MAE", "mae", floor), ("Pearson r", "pearson_r", np.nan)):
            rows.append((f"severity by {unit}, {name}", metric, "honest", scores[key], its, scores["n"]))
    return rows


def _sampling(tokens: torch.Tensor, seed: int) -> list[tuple]:
    """Return how far a tile can lie from the tiles (a third, at most fifty) that maximum-diversity sampling chooses."""
    n, rng, rows = len(tokens), np.random.default_rng(seed), []
    k = min(50, max(2, n // 3))
    for variant, values in (("ours", tokens.mean(dim=(2, 3))), ("paper", tokens.flatten(1))):
        features = project(values.numpy(), seed=seed)
        value = uncovered(features, farthest_points(features, k, seed=seed)[0])
        floor = np.mean([uncovered(features, rng.permutation(n)[:k]) for _ in range(20)])
        rows.append(("diversity sampling", f"farthest from the {k} chosen", variant, value, floor, n))
    return rows
