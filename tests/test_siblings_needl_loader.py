"""NEEDL-Bench: the layout on the fixture and on broken copies, predictions from files, tiles of a capture, sampling."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from phoebi_lib.images import read_image
from phoebi_lib.siblings import printed
from phoebi_lib.siblings.needl import fixture, layout, sampling
from phoebi_lib.siblings.needl.predictions import read_predictions

TEST = ["keypoints/val.json", "keypoints/test.json"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("needl")
    fixture.write(folder)
    return folder


@pytest.fixture
def broken(root, tmp_path):
    """A copy without pictures, to be damaged."""
    for part in ("annotations", "splits", "predictions"):
        shutil.copytree(root / part, tmp_path / part)
    return tmp_path


def change(path, edit):
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def test_the_fixture_has_twelve_tiles_whose_classes_go_by_name(root):
    needl = layout.load(root)
    assert needl.tiles["split"].value_counts().to_dict() == {"train": 6, "val": 3, "test": 3}
    assert list(needl.tiles) == ["tile_id", "path", "source", "sampling", "split", "needle_id"]
    assert all((root / path).is_file() for path in needl.tiles["path"])
    numbers = {json.loads((root / "annotations" / "keypoints" / f"{split}.json").read_text())["categories"][0]["id"]
               for split in ("train", "val")}  # fmt: skip
    assert numbers == {0, 1}
    for rule in ("keypoint", "box"):
        seen = needl.truth(rule).groupby(["tile_id", "class"]).size()
        for tile, (*_, stomata, pseudothecia) in fixture.TILES.items():
            assert (seen.get((tile, "stomata"), 0), seen.get((tile, "pseudothecia"), 0)) == (stomata, pseudothecia)
    points = needl.truth("keypoint")
    pair = points[(points["tile_id"] == fixture.PAIR) & (points["class"] == "stomata")][["x", "y"]].to_numpy()
    assert np.linalg.norm(pair[0] - pair[1]) == 30
    assert needl.ids("val", "handheld_random") == ["handheld/needle09_a.png"]


def test_a_category_is_known_by_its_name_even_where_the_numbers_are_swapped(broken):
    def swap(data):
        first, second = data["categories"]
        first["name"], second["name"] = second["name"].title(), first["name"]

    before = layout.load(broken).annotations
    change(broken / "annotations" / "bboxes" / "val.json", swap)
    after = layout.load(broken).annotations
    val = after["tile_id"].isin(layout.load(broken).ids("val")) & after["x0"].notna()
    assert (before.loc[val, "class"] != after.loc[val, "class"]).all() and val.sum() == 20
    assert before.loc[~val, "class"].equals(after.loc[~val, "class"])


def test_split_files_may_lack_columns_or_a_header_and_needles_come_from_names_then(broken):
    whole = layout.load(broken).tiles.set_index("tile_id").sort_index()
    table = pd.read_csv(broken / "splits" / "benchtop_random.csv")
    table["file_name"] = table["file_name"].str.removeprefix("benchtop/")
    table[["file_name"]].to_csv(broken / "splits" / "benchtop_random.csv", index=False)
    names = pd.read_csv(broken / "splits" / "handheld_random.csv")["file_name"]
    (broken / "splits" / "handheld_random.csv").write_text("\n".join(names) + "\n")
    assert layout.load(broken).tiles.set_index("tile_id").sort_index().equals(whole)
    unknown = layout.load(broken, needle_pattern="none").tiles
    assert (unknown["needle_id"] == "").sum() == 10
    with pytest.warns(UserWarning, match="10 tiles without needle_id"):
        layout.leakage(unknown)


def test_blanks_round_a_needle_s_name_hide_no_leakage(broken):
    path = broken / "splits" / "benchtop_random.csv"
    path.write_text(path.read_text().replace("test,03", "test, 03"))
    with pytest.warns(UserWarning, match="1 of 10 needles"):
        layout.leakage(layout.load(broken).tiles)


def test_a_needle_in_two_splits_is_reported_and_warned_of(root):
    tiles = layout.load(root).tiles
    with pytest.warns(UserWarning, match="1 of 10 needles"):
        shared = layout.leakage(tiles)
    assert shared.to_dict("records") == [
        {"source": "benchtop", "needle_id": "03", "splits": "train, test", "n_tiles": 2}
    ]
    # the same number on the other microscope is another needle
    other = tiles.assign(source=np.where(tiles["split"] == "train", "handheld", "benchtop"))
    assert layout.leakage(other).empty


@pytest.mark.parametrize(("file", "edit", "message"), [
    ("keypoints/val", lambda d: d["categories"][0].update(name="stoma"), "expected the names"),
    ("keypoints/val", lambda d: d["annotations"][0].update(category_id=7), "category_id 7"),
    ("keypoints/val", lambda d: d["annotations"][0].update(image_id=7), "image_id 7"),
    ("keypoints/val", lambda d: d["annotations"][0].update(keypoints=[1, 2]), "3 finite numbers"),
    ("keypoints/val", lambda d: d["annotations"][0].update(keypoints=[1, float("nan"), 2]), "3 finite numbers"),
    ("keypoints/val", lambda d: d["annotations"][0].update(keypoints=[0, 0, 0]), "not labelled"),
    ("bboxes/val", lambda d: d["annotations"][0].update(bbox=[1, 2, -3, 4]), "negative size"),
    ("bboxes/val", lambda d: d.pop("categories"), "'categories'"),
    ("bboxes/val", lambda d: d["images"][0].pop("file_name"), "lacks one of id, file_name"),
    ("bboxes/val", lambda d: d["annotations"].append(3), "is no object"),
    ("bboxes/val", lambda d: d["images"][0].update(id=d["images"][1]["id"]), "stands twice"),
    ("bboxes/val", lambda d: d["images"][0].update(file_name="../secret.png"), "leaves the folder"),
    ("bboxes/val", lambda d: d["images"][0].update(file_name="benchtop/new.png"), "needle04_a.png stands in .* only"),
    ("keypoints/val", lambda d: d["images"].append({"id": 9, "file_name": "benchtop/new.png"}), "bboxes.val.*stands"),
    ("keypoints/val", lambda d: d["annotations"][0].update(image_id=[100]), r"image_id \[100\]"),
    ("keypoints/val", lambda d: d["images"][0].update(id=[100]), r"an id in 'images' is \[100\]"),
    ("keypoints/val", lambda d: d["categories"][0].update(id=None), "an id in 'categories' is None"),
    ("keypoints/val", lambda d: d["images"][1].update(width=640, height=640), "declared as 640 x 640"),
    ("keypoints/val", lambda d: d["annotations"][2].update(keypoints=[5000, -3, 2]), r"entry 2, .*\(5000, -3\)"),
    ("bboxes/val", lambda d: d["annotations"][1].update(bbox=[250, 9, 36, 36]), "entry 1, the centre of a box"),
    ("bboxes/val", lambda d: d["images"][0].update(file_name="benchtop/needle01_a.png"), "a tile has one split"),
])  # fmt: skip
def test_broken_annotation_files_are_named(broken, file, edit, message):
    change(broken / "annotations" / f"{file}.json", edit)
    with pytest.raises(ValueError, match=message) as caught:
        layout.load(broken)
    assert str(broken) in str(caught.value)


def test_a_tile_whose_boxes_are_gone_is_no_tile_without_truth(broken):
    def lose(data):
        lost = data["images"].pop(0)["id"]
        data["annotations"] = [entry for entry in data["annotations"] if entry["image_id"] != lost]

    change(broken / "annotations" / "bboxes" / "train.json", lose)
    with pytest.raises(ValueError, match=r"bboxes.train\.json: benchtop/needle01_a\.png stands in .*keypoints.train"):
        layout.load(broken)


@pytest.mark.parametrize(("text", "message"), [
    ("", "handheld_random.csv: .*expected a CSV in UTF-8"),
    ("file_name,split\nhandheld/needle07_a.png,train\nhandheld/needle08_a.png,train,08\n",
     "random.csv: line 3 has 3 cells, the head 2"),
    ("file_name,split\nhandheld/needle07_a.png,train,07\n", "handheld_random.csv: line 2 has 3 cells"),
    ("name,split\nhandheld/needle07_a.png,train\n", "no column file_name"),
    ("file_name,split\nhandheld/needle07_a.png,dev\n", "split 'dev'"),
    ("file_name,split\nhandheld/needle07_a.png,\n", "split ''"),
    ("file_name,split\n,train\n", "empty"),
    ("file_name,split\n/etc/passwd.png,train\n", "leaves the folder"),
    ("file_name\nneedle07_a.png\nhandheld/needle07_a.png\n", "listed twice"),
    ("file_name\nneedle07_a.png\n", "3 tiles"),
    ("file_name,split\n" + "".join(f"needle{n}_a.png,test\n" for n in ("07", "08", "09", "10")), "one split in its"),
])  # fmt: skip
def test_broken_split_files_are_named(broken, text, message):
    (broken / "splits" / "handheld_random.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        layout.load(broken)


def test_missing_files_are_named(broken):
    (broken / "splits" / "other.csv").write_text("file_name\n")
    with pytest.raises(ValueError, match="other.csv"):
        layout.load(broken)
    (broken / "annotations" / "bboxes" / "test.json").write_text("{")
    with pytest.raises(ValueError, match="test.json: not a readable JSON file"):
        layout.load(broken)
    (broken / "annotations" / "bboxes" / "test.json").unlink()
    with pytest.raises(FileNotFoundError, match="test.json"):
        layout.load(broken)
    shutil.rmtree(broken / "annotations" / "bboxes")
    (broken / "splits" / "other.csv").unlink()
    assert layout.load(broken).truth("box").empty, "one kind of annotation is enough"
    shutil.rmtree(broken / "splits")
    with pytest.raises(FileNotFoundError, match="no split file"):
        layout.load(broken)
    with pytest.raises(FileNotFoundError, match="neither"):
        layout.load(broken / "predictions")


def test_unknown_and_empty_sets_are_refused(root):
    needl = layout.load(root)
    for split, where in (("dev", "full"), ("val", "handheld"), ("train", "benchtop_diversity")):
        with pytest.raises(ValueError, match="no tiles"):
            needl.ids(split, where)


def test_predictions_of_both_formats_are_one_table(root):
    needl = layout.load(root)
    points = read_predictions(root / "predictions" / "keypoints.json", needl, TEST)
    boxes = read_predictions(root / "predictions" / "boxes.csv", needl)
    assert list(points) == list(boxes) and len(points) == len(boxes) == 47
    assert points[["tile_id", "class", "score"]].equals(boxes[["tile_id", "class", "score"]])
    assert np.allclose(points[["x", "y"]].to_numpy(), boxes[["x0", "y0"]].to_numpy() + 18)
    assert points["x0"].isna().all() and boxes["x"].isna().all()


@pytest.mark.parametrize(("edit", "message"), [
    (lambda d: d[3].update(score="high"), "entry 3: score"),
    (lambda d: d[3].pop("score"), "entry 3: score"),
    (lambda d: d[3].update(score=float("nan")), "not finite"),
    (lambda d: d[3].update(category_id=2), "category_id 2"),
    (lambda d: d[3].pop("keypoints"), "bbox must be 4"),
    (lambda d: d.append(1), "list of entries"),
    (lambda d: d[3].update(image_id=[100]), r"entry 3: image_id \[100\]"),
    (lambda d: d[3].update(keypoints=[600, 9, 1]), r"entry 3, a point at \(600, 9\), lies outside benchtop/"),
])  # fmt: skip
def test_broken_results_are_named(broken, edit, message):
    path = broken / "predictions" / "keypoints.json"
    change(path, edit)
    with pytest.raises(ValueError, match=message) as caught:
        read_predictions(path, layout.load(broken), TEST)
    assert "keypoints.json" in str(caught.value)


def test_ids_that_mean_two_things_and_files_of_no_kind_are_refused(broken):
    needl, path = layout.load(broken), broken / "predictions" / "keypoints.json"
    with pytest.raises(ValueError, match="two things"):
        read_predictions(path, needl, ["keypoints/train.json", "keypoints/test.json"])
    with pytest.raises(ValueError, match="annotation_files"):
        read_predictions(path, needl)
    with pytest.raises(ValueError, match="COCO results"):
        read_predictions(path.rename(path.with_suffix(".txt")), needl)
    with pytest.raises(FileNotFoundError, match="absent.csv"):
        read_predictions(broken / "absent.csv", needl)
    table = pd.read_csv(broken / "predictions" / "boxes.csv")
    for wrong, message in (
        (table.drop(columns="w"), "expected the columns"), (table.assign(score="x"), "line 2 has"),
        (table.assign(h=-1), "negative"), (table.assign(file_name="benchtop/none.png"), "tile_id 'benchtop/none.png'"),
        (table.assign(**{"class": "hole"}), "class 'hole'"), (table.assign(file_name="../a.png"), "leaves"),
        (table.assign(x0=600), "wrong.csv: .*entry 0, the centre of a box at"),
        (table.assign(**{"class": ["", *table["class"][1:]]}), "line 2 has an empty cell"),
    ):  # fmt: skip
        wrong.to_csv(broken / "wrong.csv", index=False)
        with pytest.raises(ValueError, match=message):
            read_predictions(broken / "wrong.csv", needl)
    header = ",".join(table).encode()
    for content in (b"", header + b"\na,b\n1,2,3,4,5,6,7,8\n", header + b"\n\xe9.png,stomata,1,2,3,4,5\n"):
        (broken / "wrong.csv").write_bytes(content)
        with pytest.raises(ValueError, match=r"wrong\.csv: .*expected a CSV in UTF-8"):
            read_predictions(broken / "wrong.csv", needl)
    (broken / "wrong.csv").write_bytes(header + b"\n")
    assert read_predictions(broken / "wrong.csv", needl).empty, "a detector may find nothing"


def test_a_capture_is_rescaled_and_cut_row_by_row(root):
    picture = read_image(root / "raw" / "capture_180px_per_mm.png")
    tiles, corners = sampling.cut_tiles(picture, 180)
    assert tiles.shape == (24, 3, 256, 256) and corners[-1].tolist() == [1280, 768]
    assert corners[:2].tolist() == [[0, 0], [256, 0]], "6 x 4 tiles, x first"
    same, _ = sampling.cut_tiles(picture, 360)
    assert np.array_equal(same[4], picture[:, 256:512, 256:512]), "at the scale itself nothing is resampled"
    flat, _ = sampling.cut_tiles(np.full((3, 600, 800), 77, np.uint8), 400)
    assert flat.shape[0] == 2 * 2 and (flat == 77).all()
    for scale, message in ((0, "above 0"), (float("nan"), "above 0"), (2000, "less than a tile")):
        with pytest.raises(ValueError, match=message):
            sampling.cut_tiles(picture, scale)
    with pytest.raises(ValueError, match="uint8"):
        sampling.cut_tiles(picture[0], 360)


def test_farthest_points(root):
    points = pd.read_csv(root / "features" / "points.csv")[["a", "b"]].to_numpy()
    order, distances = sampling.farthest_points(points, 256, seed=3)
    assert sorted(order) == list(range(256)) and (np.diff(distances[1:]) <= 1e-9).all() and distances[0] == np.inf
    assert np.array_equal(order, sampling.farthest_points(points, 256, seed=3)[0])
    assert not np.array_equal(order, sampling.farthest_points(points, 256, seed=4)[0])
    plain, _ = sampling.farthest_points(points, 30, seed=3, dim=None)
    for k in range(1, 30):
        assert plain[k] == cdist(points, points[plain[:k]]).min(axis=1).argmax(), "the definition, step by step"
    split = sampling.diversity_split(points, n=50, seed=3)
    assert np.array_equal(np.concatenate([split["test"], split["val"]]), order[:100])
    equal, zeros = sampling.farthest_points(np.ones((4, 2)), 4)
    assert sorted(equal) == [0, 1, 2, 3] and (zeros[1:] == 0).all(), "no repeats, not even among equals"
    with pytest.raises(ValueError, match="257 of 256"):
        sampling.farthest_points(points, 257)
    with pytest.raises(ValueError, match="finite"):
        sampling.farthest_points(np.full((3, 2), np.nan), 2)


def test_the_map_before_sampling_keeps_distances_on_average():
    features = np.random.default_rng(0).normal(size=(40, 2048))
    _, plain = sampling.farthest_points(features, 40, dim=None)
    _, mapped = sampling.farthest_points(features, 40)
    assert mapped[1:].mean() == pytest.approx(plain[1:].mean(), rel=0.1)


def test_printed_sums_hold_and_the_average_is_not_the_class_mean():
    table = printed("needl")
    splits = table[table["table"] == "splits"].pivot(index="row", columns="column", values="value")
    assert splits.drop("total").sum().to_dict() == splits.loc["total"].to_dict()
    value = table.set_index(["table", "row", "column"])["value"]
    assert splits.loc["total"].sum() == value["needles", "total", "number of tiles"]
    mean = value["classes", "RF-DETR (Base)", "mean of the two F1"]
    two = [value["classes", "RF-DETR (Base)", f"F1 {name} Full"] for name in layout.CLASSES]
    assert np.mean(two) == pytest.approx(mean)
    assert abs(mean - value["models", "RF-DETR (Base)", "average F1 Full"]) > 0.04
