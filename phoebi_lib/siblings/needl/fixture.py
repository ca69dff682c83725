"""A synthetic NEEDL-Bench of twelve tiles: rings and discs on stripes, in the planned layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.siblings.drawing import looks, picture, save
from phoebi_lib.siblings.needl.layout import CLASSES, KINDS, SIZE, SPLITS

RADIUS, BOX = 11, 36
# file name: split file, split, needle, number of stomata, number of pseudothecia
TILES = {
    "benchtop/needle01_a.png": ("benchtop_random", "train", "01", 5, 2),
    "benchtop/needle01_b.png": ("benchtop_random", "train", "01", 3, 4),
    "benchtop/needle02_a.png": ("benchtop_random", "train", "02", 2, 5),
    "benchtop/needle03_a.png": ("benchtop_random", "train", "03", 0, 0),
    "benchtop/needle04_a.png": ("benchtop_random", "val", "04", 4, 4),
    "benchtop/needle03_b.png": ("benchtop_random", "test", "03", 4, 3),
    "benchtop/needle05_a.png": ("benchtop_diversity", "val", "05", 3, 4),
    "benchtop/needle06_a.png": ("benchtop_diversity", "test", "06", 2, 5),
    "handheld/needle07_a.png": ("handheld_random", "train", "07", 5, 3),
    "handheld/needle08_a.png": ("handheld_random", "train", "08", 4, 4),
    "handheld/needle09_a.png": ("handheld_random", "val", "09", 5, 0),
    "handheld/needle10_a.png": ("handheld_random", "test", "10", 5, 2),
}
PAIR = "benchtop/needle01_a.png"  # its first two stomata lie 30 px apart


def write(folder: Path) -> None:
    """Write the fixture: images, annotations of both kinds, splits, a raw capture, detector files, feature points."""
    for name in ("splits", "features", "predictions", *(f"annotations/{kind}" for kind in KINDS)):
        (folder / name).mkdir(parents=True)
    tiles = pd.DataFrame([(name, *line[:3]) for name, line in TILES.items()],
                         columns=["file_name", "set", "split", "needle_id"])  # fmt: skip
    for name, part in tiles.groupby("set"):
        part.drop(columns="set").to_csv(folder / "splits" / f"{name}.csv", index=False)
    rng = np.random.default_rng(2026)
    points = {name: _points(name, stomata + blocked, rng) for name, (*_, stomata, blocked) in TILES.items()}
    colours = {source: (hue, 0.1, 0.0) for source, (hue, *_) in zip(("benchtop", "handheld"), looks(2), strict=True)}
    for name, (*_, stomata, _) in TILES.items():
        stripes = picture(colours[name.split("/")[0]], rng, SIZE).mean(axis=2)
        save(_dots(stripes, points[name], stomata), folder / "images" / name)
    save(picture(looks(1)[0], rng, 800)[:600], folder / "raw" / "capture_180px_per_mm.png")
    results, boxes = [], []
    for i, split in enumerate(SPLITS):
        images = [{"id": 100 * i + k, "file_name": name, "width": SIZE, "height": SIZE}
                  for k, name in enumerate(tiles["file_name"][tiles["split"] == split])]  # fmt: skip
        for kind, key in KINDS.items():
            # the numbers of the categories differ between files: only their names can be trusted
            first = 1 if (kind, split) == ("keypoints", "train") else 0
            annotations = [
                {"image_id": image["id"], "category_id": first + (j >= TILES[image["file_name"]][3]),
                 key: [x, y, 2] if kind == "keypoints" else [x - BOX / 2, y - BOX / 2, BOX, BOX]}
                for image in images for j, (x, y) in enumerate(points[image["file_name"]].tolist())
            ]  # fmt: skip
            coco = {"images": images, "annotations": [{"id": n} | entry for n, entry in enumerate(annotations)],
                    "categories": [{"id": first + k, "name": name} for k, name in enumerate(CLASSES)]}  # fmt: skip
            (folder / "annotations" / kind / f"{split}.json").write_text(json.dumps(coco, indent=1))
        for image in images if split != "train" else []:
            name = image["file_name"]
            for x, y, label, score in _detections(points[name], TILES[name][3], rng):
                results.append({"image_id": image["id"], "category_id": label, "keypoints": [x, y, 1], "score": score})
                boxes.append((name, CLASSES[label], score, round(x - 18, 1), round(y - 18, 1), BOX, BOX))
    (folder / "predictions" / "keypoints.json").write_text(json.dumps(results, indent=1))
    boxes = pd.DataFrame(boxes, columns=["file_name", "class", "score", "x0", "y0", "w", "h"])
    boxes.to_csv(folder / "predictions" / "boxes.csv", index=False)
    spread = np.concatenate([rng.normal(0, 0.6, (200, 2)), rng.uniform(-4, 4, (56, 2))]).round(4)
    names = pd.Index([f"tile{i:03d}" for i in range(256)], name="tile_id")
    pd.DataFrame(spread, names, columns=["a", "b"]).to_csv(folder / "features" / "points.csv")


def _points(name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``n`` points (x, y), whole px, at least 52 px apart, except for the one close pair."""
    points = [(60, 200), (60, 230)] if name == PAIR else []
    while len(points) < n:
        point = rng.integers(18, SIZE - 18, 2)
        if all(np.hypot(*(point - other)) >= 52 for other in points):
            points.append(tuple(point))
    return np.array(points, dtype=float).reshape(-1, 2)


def _dots(tile: np.ndarray, points: np.ndarray, stomata: int) -> np.ndarray:
    """Draw a dark ring round a bright centre for each of the first ``stomata`` points, a dark disc for the others."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    # faint stripes, so that five tiles of dots are enough to learn from
    tile = 150 + 0.3 * (tile - tile.mean())
    for i, (x, y) in enumerate(points):
        distance = np.hypot(columns - x, rows - y)
        tile[distance <= RADIUS] = 25
        if i < stomata:
            tile[distance <= RADIUS - 4] = 245
    return tile.clip(0, 255).round().astype(np.uint8)


def _detections(points: np.ndarray, stomata: int, rng: np.random.Generator) -> list[tuple[float, float, int, float]]:
    """Return ``x, y, label, score`` of a made-up detector: hits, a double and a far hit, and one miss."""
    hits = [(point + rng.normal(0, 8, 2), int(j >= stomata), rng.uniform(0.5, 1)) for j, point in enumerate(points)][1:]
    found = [*hits, (hits[0][0] + 2, hits[0][1], 0.55), (np.array([4.0, 4.0]), 1, 0.3)]
    return [(*point.round(1).tolist(), label, round(float(score), 3)) for point, label, score in found]
