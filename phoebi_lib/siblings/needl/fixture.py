"""A synthetic NEEDL-Bench of twelve tiles: rings and discs on stripes, in the planned layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.siblings.drawing import looks, picture, save

SIZE, RADIUS, BOX = 256, 11, 36
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
    rng = np.random.default_rng(2026)
    points = {name: _points(name, line[3] + line[4], rng) for name, line in TILES.items()}
    look = {source: (hue, 0.1, 0.0) for source, (hue, *_) in zip(("benchtop", "handheld"), looks(2), strict=True)}
    for name, (_, _, _, stomata, _) in TILES.items():
        tile = picture(look[name.split("/")[0]], rng, SIZE).mean(axis=2)
        save(_dots(tile, points[name], stomata), folder / "images" / name)
    save(picture(looks(1)[0], rng, 800)[:600], folder / "raw" / "capture_180px_per_mm.png")
    for i, split in enumerate(("train", "val", "test")):
        for kind in ("keypoints", "bboxes"):
            # the numbers of the categories differ between files: only their names can be trusted
            first = 1 if (kind, split) == ("keypoints", "train") else 0
            data = _coco(kind, split, points, 100 * i, first)
            path = folder / "annotations" / kind / f"{split}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(data, indent=1))
    table = pd.DataFrame([(name, *line[:3]) for name, line in TILES.items()],
                         columns=["file_name", "set", "split", "needle_id"])  # fmt: skip
    (folder / "splits").mkdir()
    for name, part in table.groupby("set"):
        part.drop(columns="set").to_csv(folder / "splits" / f"{name}.csv", index=False)
    _detectors(folder, points, rng)
    spread = np.concatenate([rng.normal(0, 0.6, (200, 2)), rng.uniform(-4, 4, (56, 2))]).round(4)
    (folder / "features").mkdir()
    pd.DataFrame({"tile_id": [f"tile{i:03d}" for i in range(256)], "a": spread[:, 0], "b": spread[:, 1]}).to_csv(
        folder / "features" / "points.csv", index=False
    )


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


def _coco(kind: str, split: str, points: dict[str, np.ndarray], start: int, first: int) -> dict:
    names = [name for name, line in TILES.items() if line[1] == split]
    images = [{"id": start + i, "file_name": name, "width": SIZE, "height": SIZE} for i, name in enumerate(names)]
    annotations = []
    for image in images:
        for i, point in enumerate(points[image["file_name"]].tolist()):
            box = [*(value - BOX / 2 for value in point), BOX, BOX]
            what = {"keypoints": [*point, 2]} if kind == "keypoints" else {"bbox": box}
            label = first + int(i >= TILES[image["file_name"]][3])
            annotations.append({"id": len(annotations), "image_id": image["id"], "category_id": label, **what})
    categories = [{"id": first, "name": "stomata"}, {"id": first + 1, "name": "pseudothecia"}]
    return {"images": images, "annotations": annotations, "categories": categories}


def _detectors(folder: Path, points: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Write a made-up detector's files for val and test: hits, a double and a far hit a tile, and one miss a tile."""
    results, boxes = [], []
    for i, split in enumerate(("val", "test")):
        names = [name for name, line in TILES.items() if line[1] == split]
        for k, name in enumerate(names):
            stomata = TILES[name][3]
            hits = [(point + rng.normal(0, 8, 2), int(j >= stomata), rng.uniform(0.5, 1))
                    for j, point in enumerate(points[name])][1:]  # fmt: skip
            double = (hits[0][0] + 2, hits[0][1], 0.55)
            for point, label, score in [*hits, double, (np.array([4.0, 4.0]), 1, 0.3)]:
                x, y = point.round(1).tolist()
                results.append({"image_id": 100 * (i + 1) + k, "category_id": label, "keypoints": [x, y, 1],
                                "score": round(float(score), 3)})  # fmt: skip
                label = ("stomata", "pseudothecia")[label]
                boxes.append((name, label, round(float(score), 3), round(x - 18, 1), round(y - 18, 1), 36, 36))
    (folder / "predictions").mkdir()
    (folder / "predictions" / "keypoints.json").write_text(json.dumps(results, indent=1))
    columns = ["file_name", "class", "score", "x0", "y0", "w", "h"]
    pd.DataFrame(boxes, columns=columns).to_csv(folder / "predictions" / "boxes.csv", index=False)
