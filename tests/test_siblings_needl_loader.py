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

TEST = ["keypoints/val.json", "keypoints/test.json"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("needl")
    fixture.write(folder)
    return folder


@pytest.fixture
def copy(root, tmp_path):
    """A copy without pictures, to be changed."""
    for part in ("annotations", "splits", "predictions"):
        shutil.copytree(root / part, tmp_path / part)
    return tmp_path


def change(path, edit):
    """Give a file another text or other bytes, edit what it holds, or (None) take it away."""
    if edit is None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif isinstance(edit, str | bytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(edit.encode() if isinstance(edit, str) else edit)
    elif path.suffix == ".csv":
        edit(pd.read_csv(path, dtype=str)).to_csv(path, index=False)
    else:
        data = json.loads(path.read_text())
        edit(data)
        path.write_text(json.dumps(data))


def put(part, row=0, **values):
    """Other values in an entry of a part of a JSON file (None: the file is the list)."""
    return lambda data: (data[part] if part else data)[row].update(values)


def column(**values):
    return lambda table: table.assign(**values)


def test_the_fixture_has_twelve_tiles_whose_classes_go_by_name(root):
    needl = layout.load(root)
    assert needl.tiles["split"].value_counts().to_dict() == {"train": 6, "val": 3, "test": 3}
    assert list(needl.tiles) == ["tile_id", "path", "source", "sampling", "split", "needle_id"]
    assert all((root / path).is_file() for path in needl.tiles["path"])
    texts = [(root / "annotations" / "keypoints" / f"{split}.json").read_text() for split in ("train", "val")]
    assert [json.loads(text)["categories"][0]["id"] for text in texts] == [1, 0]
    for rule in ("keypoint", "box"):
        seen = pd.crosstab(needl.truth(rule)["tile_id"], needl.truth(rule)["class"])[list(layout.CLASSES)]
        assert {tile: tuple(line) for tile, *line in seen.itertuples()} == {
            tile: line[3:] for tile, line in fixture.TILES.items() if any(line[3:])
        }
    pair = needl.truth("keypoint").query("tile_id == @fixture.PAIR")[["x", "y"]].to_numpy()[:2]
    assert np.linalg.norm(pair[0] - pair[1]) == 30
    assert needl.ids("val", "handheld_random") == ["handheld/needle09_a.png"]
    for split, where, message in (("dev", "full", "split must be"), ("val", "handheld", "set must be"),
                                  ("train", "benchtop_diversity", "no tiles of benchtop_div")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            needl.ids(split, where)


def test_a_category_is_known_by_its_name_even_where_the_numbers_are_swapped(copy):
    before = layout.load(copy).annotations
    change(copy / "annotations" / "bboxes" / "val.json", put("categories", 0, name=" Pseudothecia"))
    change(copy / "annotations" / "bboxes" / "val.json", put("categories", 1, name="stomata"))
    after = layout.load(copy).annotations
    val = after["tile_id"].isin(layout.load(copy).ids("val")) & after["x0"].notna()
    assert ((before["class"] != after["class"]) == val).all() and val.sum() == 20


def test_boxes_come_from_their_own_files_and_one_kind_is_enough(copy):
    before = layout.load(copy)
    change(copy / "annotations" / "keypoints" / "val.json", put("annotations", bbox=[1, 1, 9, 9]))
    change(copy / "annotations" / "bboxes" / "val.json", put("annotations", keypoints=[1, 1, 2]))
    assert layout.load(copy).annotations.equals(before.annotations)
    change(copy / "annotations" / "bboxes", None)
    assert layout.load(copy).truth("box").empty and layout.load(copy).tiles.equals(before.tiles)


def test_split_files_may_lack_columns_or_a_header_and_needles_come_from_names_then(copy):
    whole = layout.load(copy).tiles
    change(copy / "splits" / "benchtop_random.csv",
           lambda table: table[["file_name"]].replace("benchtop/", "", regex=True))  # fmt: skip
    names = pd.read_csv(copy / "splits" / "handheld_random.csv")["file_name"]
    change(copy / "splits" / "handheld_random.csv", "\n".join(names) + "\n")
    assert layout.load(copy).tiles.equals(whole)
    assert layout.load(copy, needle_pattern=r"needle(?P<number>\d+)").tiles.equals(whole)
    unknown = layout.load(copy, needle_pattern="(none)").tiles
    for pattern, message in (("(", "unterminated"), ("x", "no capture groups"), (7, "expected a pattern with a group")):
        with pytest.raises(ValueError, match=f"^needle_pattern .*{message}"):
            layout.load(copy, needle_pattern=pattern)
    with pytest.warns(UserWarning, match="10 tiles without needle_id"):
        layout.leakage(unknown)
    benchtop = whole["tile_id"][whole["source"] == "benchtop"]
    change(copy / "splits" / "benchtop_random.csv", " \n".join(["file_name", *benchtop]))
    change(copy / "splits" / "benchtop_diversity.csv", "file_name\n")
    assert set(layout.load(copy).tiles["tile_id"]) == set(whole["tile_id"]), "a pool may be empty"


def test_a_needle_in_two_splits_is_reported_and_warned_of(copy):
    path = copy / "splits" / "benchtop_random.csv"
    change(path, path.read_text().replace("test,03", "test, 03"))
    tiles = layout.load(copy).tiles
    with pytest.warns(UserWarning, match="1 of 10 needles"):
        shared = layout.leakage(tiles)
    assert shared.to_dict("records") == [
        {"source": "benchtop", "needle_id": "03", "splits": "train, test", "n_tiles": 2}
    ]
    # the same number on the other microscope is another needle
    other = tiles.assign(source=np.where(tiles["split"] == "train", "handheld", "benchtop"))
    assert layout.leakage(other).empty


POINTS, BOXES, SPLIT = "annotations/keypoints/val.json", "annotations/bboxes/val.json", "splits/handheld_random.csv"
JSON, CSV = "predictions/keypoints.json", "predictions/boxes.csv"
SMALL = b"P5 9 8 255 " + bytes(72)
SEVEN = "file_name,split\nhandheld/needle07_a.png"


@pytest.mark.parametrize(("file", "edit", "message"), [
    ("annotations", None, "lacks annotations/keypoints"),
    ("splits", None, r"lacks .*splits/\*.csv"),
    (BOXES, None, "bboxes/val.json"),
    (POINTS, "{", "keypoints/val.json: not a readable JSON"),
    (POINTS, "[" * 100_000, "keypoints/val.json: not a readable JSON"),
    (POINTS, "[]", "keypoints/val.json: expected objects with images"),
    (BOXES, lambda data: data.pop("categories"), "'categories': expected objects"),
    (BOXES, lambda data: data["annotations"].append(3), "'annotations': expected objects"),
    (POINTS, put("categories", name="stoma"), "expected the names stomata"),
    (POINTS, put("categories", id=None), "expected the names stomata, pseudothecia, each with an id"),
    (BOXES, put("images", id=101), "an id is given twice"),
    (BOXES, lambda data: data["images"][0].pop("file_name"), "data row 1 is without file_name"),
    (BOXES, put("images", file_name="../secret.png"), "leaves its folder"),
    (BOXES, put("images", file_name="benchtop/needle05_a.png"), "file_name given twice"),
    (POINTS, put("images", width=640), "width 640; expected one of 256"),
    (POINTS, put("images", height=640), "height 640; expected one of 256"),
    (POINTS, put("annotations", 3, category_id=7), "data row 4 has class 'category_id 7'"),
    (POINTS, put("annotations", 3, image_id=[100]), r"data row 4 has .* not listed: .*image_id \[100\]"),
    (POINTS, put("images", id=None), "data row 1 is without id"),
    (POINTS, put("annotations", 3, image_id=None), "data row 4 has .* not listed"),
    ("images/benchtop/needle04_a.png", SMALL, r"needle04_a.png has \(9, 8\) px"),
    *(("images/handheld/needle07_a.png", picture, "needle07_a.png: not a readable picture")
      for picture in (b"", b"junk", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0", b"P5 90000 90000 255 ")),
    (POINTS, put("annotations", 3, keypoints=[1, 2]), r"entry 3: keypoints must .* got \[1, 2\]"),
    (POINTS, put("annotations", keypoints=[1, "2", 2]), "entry 0: keypoints must"),
    (POINTS, put("annotations", keypoints=[1, float("nan"), 2]), "entry 0: keypoints must"),
    (POINTS, put("annotations", keypoints=[0, 0, 0]), "visibility 0 means 'not labelled'"),
    (POINTS, put("annotations", keypoints=[1, 2, float("inf")]), "entry 0: keypoints must"),
    (POINTS, put("annotations", keypoints=[1, 2, 10**400]), "entry 0: keypoints must"),
    (POINTS, put("annotations", 3, keypoints=[5000, -3, 2]), "data row 4 has a place outside the tile.*'x': 5000"),
    (BOXES, put("annotations", bbox=[1, 2, -3, 4]), "negative size"),
    (BOXES, put("annotations", bbox=[250, 9, 36, 36]), "a place outside the tile.*'x0': 250"),
    (BOXES, put("images", file_name="benchtop/new.png"), "needle04_a.png stands in keypoints/val.json val, splits/b"),
    (POINTS, lambda data: data["images"].append({"id": 9, "file_name": "new.png"}), "new.png stands in keypoints/val"),
    (BOXES, put("images", file_name="benchtop/needle01_a.png"), "needle01_a.png .* bboxes/val.json val.* one split"),
    ("splits/other.csv", "file_name\n", "other.csv: the name, .* one of 'benchtop_random'"),
    (SPLIT, f"{SEVEN},train\nhandheld/needle08_a.png,train,08\n", "line 3 has 3 cells, the head 2"),
    (SPLIT, SEVEN.replace("file_name", "name") + ",train\n", "column 'file_name' is missing"),
    (SPLIT, f"file_name, {SEVEN},a,train\n", "random.csv: the column 'file_name' stands twice"),
    (SPLIT, f"{SEVEN},\n", "split ''; expected one of 'train'"),
    (SPLIT, "file_name,split\n,train\n", "random.csv: file name '' is empty"),
    (SPLIT, "file_name,split\n/etc/passwd.png,train\n", "leaves its folder"),
    (SPLIT, "file_name\nneedle07_a.png\nhandheld/needle07_a.png\n", "splits: tile_id given twice: handheld/needle07"),
    (SPLIT, "file_name\nneedle07_a.png\n", "needle08_a.png stands in keypoints/train.json train, bboxes/train.json t"),
    (SPLIT, f"{SEVEN},test\n" + "".join(f"needle{n}_a.png,train\n" for n in ("08", "09", "10")), "random.csv test;"),
    (JSON, None, JSON),
    (JSON, lambda data: data.append(1), "keypoints.json: expected objects with image_id"),
    (JSON, put(None, 3, score="high"), "data row 4 has no number as score"),
    (JSON, put(None, 3, score=float("inf")), "data row 4 has a number that is not finite"),
    (JSON, put(None, 3, score=-(10**400)), "data row 4 has a number that is not finite"),
    (JSON, put(None, 3, category_id=2), "data row 4 has class 'category_id 2'"),
    (JSON, put(None, 3, image_id=7), "data row 4 has .* not listed: .*image_id 7"),
    (JSON, lambda data: data[3].pop("keypoints"), "entry 3: keypoints must"),
    (JSON, put(None, 3, keypoints=[9, -0.1, 1]), "data row 4 has a place outside the tile.*benchtop/"),
    (CSV, None, CSV),
    (CSV, lambda table: table.drop(columns="class"), "column 'class' is missing"),
    (CSV, lambda table: table.drop(columns="w"), "data row 1 has neither a visible point x, y nor a box"),
    (CSV, column(score="x"), "boxes.csv: data row 1 has an empty cell or one that is no number"),
    (CSV, lambda table: table.assign(x=["abc", *table["x0"][1:]], y=9), "data row 1 has an empty cell or one that"),
    (CSV, "file_name,class,x, x,y,score\na.png,stomata,1,1,2,1\n", "boxes.csv: the column 'x' stands twice"),
    (CSV, column(h=-1), "data row 1 has a box of negative size"),
    (CSV, column(file_name="benchtop/none.png"), "not listed: .*benchtop/none.png"),
    (CSV, column(file_name="../a.png"), "leaves its folder"),
    (CSV, b"file_name,class,score,x,y\n\xe9.png,stomata,1,2,3\n", "expected a CSV in UTF-8"),
])  # fmt: skip
def test_what_is_wrong_in_a_file_is_named(copy, file, edit, message):
    change(copy / file, edit)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        layout.read_predictions(copy / file, layout.load(copy), TEST)
    assert str(copy) in str(caught.value)


def test_predictions_of_both_formats_are_one_table(copy):
    needl, path = layout.load(copy), copy / "predictions" / "keypoints.json"
    points = layout.read_predictions(path, needl, TEST)
    boxes = layout.read_predictions(path.with_name("boxes.csv"), needl)
    assert list(points) == list(boxes) == layout.COLUMNS and len(points) == len(boxes) == 47
    assert points[["tile_id", "class", "score"]].equals(boxes[["tile_id", "class", "score"]])
    assert np.allclose(points[["x", "y"]].to_numpy(), boxes[["x0", "y0"]].to_numpy() + 18)
    assert points["x0"].isna().all() and boxes["x"].isna().all()
    change(path, put(None, 3, image_id=100.0, category_id=0.0))
    change(path.with_name("boxes.csv"), path.with_name("boxes.csv").read_text().replace(",stomata,", " , Stomata ,"))
    assert layout.read_predictions(path, needl, TEST)["tile_id"].iloc[3] == "benchtop/needle04_a.png", "100.0 is 100"
    assert layout.read_predictions(path.with_name("boxes.csv"), needl).equals(boxes), (
        "blanks round a cell are none of it"
    )
    for file, nothing in (("keypoints.json", "[]"), ("boxes.csv", "file_name,class, score ,x,y\n")):
        change(path.with_name(file), nothing)
        found = layout.read_predictions(path.with_name(file), needl, TEST)
        assert found.empty and list(found) == layout.COLUMNS, "a detector may find nothing"
    for suffix, splits, message in ((".json", ["train", "test"], "two things"), (".json", [], "annotation files"),
                                    (".txt", ["val"], "one of '.json', '.csv'")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            layout.read_predictions(path.with_suffix(suffix), needl, [f"keypoints/{split}.json" for split in splits])


def test_a_capture_is_rescaled_and_cut_row_by_row(root):
    picture = read_image(root / "raw" / "capture_180px_per_mm.png")
    tiles, corners = sampling.cut_tiles(picture, 180)
    assert tiles.shape == (24, 3, 256, 256) and corners[-1].tolist() == [1280, 768]
    assert corners[:2].tolist() == [[0, 0], [256, 0]], "6 x 4 tiles, x first"
    same, _ = sampling.cut_tiles(picture, 360)
    assert np.array_equal(same[4], picture[:, 256:512, 256:512]), "at the scale itself nothing is resampled"
    flat, _ = sampling.cut_tiles(np.full((3, 640, 960), 77, np.uint8), 450)
    assert flat.shape[0] == 2 * 3 and (flat == 77).all()
    for frame, scale, message in ((picture, 0, "> 5"), (picture, float("nan"), "> 5"), (picture, 1e-9, "2\\^31 px"),
                                  (picture, 1e-320, "found 1e-320"), (picture[0], 360, "uint8"),
                                  (picture, 2000, "less than a tile")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            sampling.cut_tiles(frame, scale)


def test_farthest_points(root):
    points = pd.read_csv(root / "features" / "points.csv")[["a", "b"]].to_numpy()
    order, distances = sampling.farthest_points(points, 256, seed=3)
    assert sorted(order) == list(range(256)) and (np.diff(distances[1:]) <= 1e-9).all() and distances[0] == np.inf
    assert np.array_equal(order, sampling.farthest_points(points, 256, seed=3)[0])
    assert not np.array_equal(order, sampling.farthest_points(points, 256, seed=4)[0])
    for k in range(1, 30):
        nearest = cdist(points, points[order[:k]]).min(axis=1)
        assert order[k] == nearest.argmax() and distances[k] == pytest.approx(nearest.max()), "the definition"
    assert sampling.uncovered(points, order[:29]) == pytest.approx(distances[29])
    equal, zeros = sampling.farthest_points(np.ones((4, 2)), 4)
    assert sorted(equal) == [0, 1, 2, 3] and (zeros[1:] == 0).all(), "no repeats, not even among equals"
    with pytest.raises(ValueError, match="k, of the rows of features, .* <= 256; found 257"):
        sampling.farthest_points(points, 257)
    with pytest.raises(ValueError, match="finite"):
        sampling.farthest_points(np.full((3, 2), np.nan), 2)


def test_the_map_before_sampling_keeps_distances_on_average():
    features = np.random.default_rng(0).normal(size=(40, 2048))
    order, plain = sampling.farthest_points(features, 40)
    mapped = sampling.project(features)
    assert mapped.shape == (40, 256) and np.array_equal(mapped, sampling.project(features))
    assert sampling.farthest_points(mapped, 40)[1][1:].mean() == pytest.approx(plain[1:].mean(), rel=0.1)
    split = sampling.diversity_split(features, n=15)
    assert np.array_equal(np.concatenate([split["test"], split["val"]]), sampling.farthest_points(mapped, 30)[0])


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
