"""FungiTastic's published layout: names, folders, columns, masks and captions, whole and broken."""

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.siblings.fungitastic import fixture, fungiclef, fusion, layout, masks, segmentation
from phoebi_lib.siblings.printed import printed


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fungi")
    fixture.write(folder)
    return folder


@pytest.fixture
def tables(root, tmp_path):
    """A copy of the tables alone, to be broken."""
    shutil.copytree(root / "metadata", tmp_path / "metadata")
    return tmp_path


def rewrite(path, change):
    table = pd.read_csv(path)
    change(table).to_csv(path, index=False)


def test_the_fixture_has_the_counts_and_oddities_of_the_layout(root):
    keys = [("all", "train"), ("all", "val"), ("all", "test"), ("all", "val", "open"), ("all", "test", "open")]
    keys += [("all", "dna"), ("FewShot", "train"), ("FewShot", "val"), ("FewShot", "test")]
    keys += [("Mini", "train"), ("Mini", "val"), ("Mini", "test"), ("Mini", "dna")]
    assert [len(layout.read_split(root, *key)) for key in keys] == [40, 10, 10, 14, 14, 4, 19, 6, 6, 8, 4, 4, 2]
    train, test = layout.read_split(root, "all", "train"), layout.read_split(root, "all", "test")
    assert tuple(train.columns) == layout.COLUMNS and train["landcover"].isna().sum() == 1
    assert sorted(set(layout.labels(test))) == [0, 1, 2, 4]
    assert set(layout.labels(layout.read_split(root, "all", "test", "open"))) == {-1, 0, 1, 2, 4}
    assert layout.poisonous(train, 5).tolist() == [False, True, False, False, True]
    shots = layout.read_split(root, "FewShot", "train")
    assert shots.groupby("category_id")["observationID"].nunique().tolist() == [1, 2, 2, 3, 4, 2]
    assert shots["category_id"].value_counts().max() == 5


def test_the_fixture_is_the_same_every_time(root, tmp_path):
    fixture.write(tmp_path)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        assert (tmp_path / path.relative_to(root)).read_bytes() == path.read_bytes(), path


def test_names_of_tables(root, tables):
    name = {
        key: layout.metadata_path(root, *key).name
        for key in (
            ("all", "train"),
            ("all", "val"),
            ("all", "test", "open"),
            ("all", "dna"),
            ("Mini", "val"),
            ("FewShot", "test"),
        )
    }
    assert list(name.values()) == [
        "FungiTastic-Train.csv", "FungiTastic-ClosedSet-Val.csv", "FungiTastic-OpenSet-Test.csv",
        "FungiTastic-DNA-Test.csv", "FungiTastic-Mini-Val.csv", "FungiTastic-FewShot-Test.csv"]  # fmt: skip
    (tables / "metadata/FungiTastic-Mini/FungiTastic-Mini-Val.csv").unlink()
    assert layout.metadata_path(tables, "Mini", "val").name == "FungiTastic-Mini-ClosedSet-Val.csv"
    for key in (
        ("all", "train", "open"),
        ("FewShot", "val", "open"),
        ("FewShot", "dna"),
        ("full", "val"),
        ("all", "dev"),
    ):
        with pytest.raises(ValueError, match="FungiTastic has no|unknown"):
            layout.metadata_path(root, *key)
    with pytest.raises(FileNotFoundError, match="OpenSet-Val"):
        layout.metadata_path(root, "Mini", "val", "open")


@pytest.mark.parametrize(("change", "message"), [
    (lambda t: t.drop(columns="filename"), "'filename' is missing"),
    (lambda t: t.drop(columns="observationID"), "'observationID' is missing"),
    (lambda t: t.iloc[:0], "no row"),
    (lambda t: t.assign(filename=[t["filename"][1], *t["filename"][1:]]), "given twice"),
    (lambda t: t.assign(filename=["../0.JPG", *t["filename"][1:]]), "leaves the folder"),
    (lambda t: t.assign(filename=["/etc/0.JPG", *t["filename"][1:]]), "leaves the folder"),
    (lambda t: t.assign(filename=[None, *t["filename"][1:]]), "without filename"),
    (lambda t: t.assign(category_id=[np.nan, *t["category_id"][1:]]), "Train.csv: .*row 0 is not, nan"),
    (lambda t: t.assign(category_id=[0.5, *t["category_id"][1:]]), "row 0 is not"),
    (lambda t: t.assign(category_id=-1), "open set only"),
    (lambda t: t[t["category_id"] != 2], r"without a gap; \[2\]"),
    (lambda t: t.assign(category_id=[10**12, *t["category_id"][1:]]), r"Train.csv: .*\[5\] .* 1000000000000"),
])  # fmt: skip
def test_damaged_tables_are_refused(tables, change, message):
    rewrite(tables / "metadata/FungiTastic/FungiTastic-Train.csv", change)
    with pytest.raises(ValueError, match=message):
        layout.read_split(tables, "all", "train")


def test_a_table_without_labels_is_read_and_not_scored(tables):
    rewrite(
        tables / "metadata/FungiTastic-FewShot/FungiTastic-FewShot-Test.csv", lambda t: t.drop(columns="category_id")
    )
    table = layout.read_split(tables, "FewShot", "test")
    assert len(table) == 6
    with pytest.raises(ValueError, match="FewShot-Test.csv: .*nothing can be scored"):
        layout.labels(table)


def test_pictures_are_found_without_regard_to_case_and_under_both_names(root, tmp_path):
    test = layout.read_split(root, "all", "test")
    files = layout.image_files(root, test, "all", "test")
    assert [name.rpartition("/")[2].lower() for name in files] == [name.lower() for name in test["filename"]]
    assert (
        files[0].endswith(".jpg") and test["filename"][0].endswith(".JPG") and all((root / f).is_file() for f in files)
    )
    dna = layout.read_split(root, "all", "dna")
    assert layout.image_files(root, dna, "all", "dna")[0].startswith("FungiTastic/dna-test/300p/")
    name = dna["filename"][0]
    for place in ("FungiTastic/DNA/300p", "images/FungiTastic/dna/fullsize", "FungiTastic/train/fullsizep"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / name).touch()
    one = dna.iloc[:1]
    assert layout.image_files(tmp_path, one, "all", "dna") == [f"FungiTastic/DNA/300p/{name}"]
    assert layout.image_files(tmp_path, one, "all", "dna", "fullsize") == [f"images/FungiTastic/dna/fullsize/{name}"]
    assert layout.image_files(tmp_path, one, "all", "train", "fullsize") == [f"FungiTastic/train/fullsizep/{name}"]
    with pytest.raises(FileNotFoundError, match="500p"):
        layout.image_files(tmp_path, one, "all", "dna", 500)
    with pytest.raises(FileNotFoundError, match="no such picture"):
        layout.image_files(tmp_path, dna, "all", "dna")
    for spelling in (name.lower(), name.title()):
        (tmp_path / "FungiTastic/DNA/300p" / spelling).touch()
    (tmp_path / "FungiTastic/DNA/300p" / name).unlink()
    with pytest.raises(ValueError, match="fits"):
        layout.image_files(tmp_path, one, "all", "dna")


def test_poisonous_rows_that_disagree_count_as_poisonous():
    table = pd.DataFrame({"category_id": [0, 0, 1], "poisonous": [0, 1, 0]})
    with pytest.warns(UserWarning, match=r"classes \[0\]"):
        assert layout.poisonous(table, 3).tolist() == [True, False, False]
    with pytest.raises(ValueError, match="0 or 1"):
        layout.poisonous(table.assign(poisonous=[0, 2, 0]), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layout.poisonous(table.iloc[1:], 2)


def test_dates_fall_back_to_their_parts(root):
    table = layout.read_split(root, "all", "val")
    assert pd.isna(table["eventDate"].iloc[-1]) and layout.dates(table).iloc[-1] == pd.Timestamp("2022-10-15")
    assert layout.dates(layout.read_split(root, "all", "test")).isna().tolist() == [False] * 9 + [True]
    odd = pd.DataFrame({"eventDate": ["2023-05-06T23:59:00+02:00", "soon", None]})
    odd.attrs["file"] = "Test.csv"
    with pytest.warns(UserWarning, match="Test.csv: 2 of 3 rows have no date; .* found 'soon'"):
        found = layout.dates(odd)
    assert found.tolist()[0] == pd.Timestamp("2023-05-06") and found.isna().sum() == 2
    with pytest.raises(ValueError, match="Test.csv: 3 of 3 .*'15-06-2023'"):
        layout.dates(odd.assign(eventDate="15-06-2023"))


def test_counts_are_compared_and_not_asserted(root):
    said = layout.size_warnings(layout.read_split(root, "all", "train"), "all", "train")
    assert said[1] == "all closed train: 40 images, printed 433701" and len(said) == 3
    almost = pd.DataFrame({"observationID": np.arange(7819) % 4293, "species": np.arange(7819) % 2410})
    assert layout.size_warnings(almost, "FewShot", "train") == []


def test_run_lengths_of_box_and_frame():
    rle = [1, 2, 1, 1, 0, 2, 1]
    expected = np.zeros((3, 4), dtype=bool)
    expected[0, 2] = expected[1, 1] = True
    assert (masks.decode(rle, 4, 3) == expected).all() and (masks.decode_box(rle, 4, 3) == expected).all()
    assert np.argwhere(masks.decode_frame(rle, 4, 3)).tolist() == [[0, 1], [0, 2]]
    whole = [5, 1, 6, 1, 0, 2, 1]
    assert np.argwhere(masks.decode(whole, 4, 3)).tolist() == [[1, 1]]
    rng = np.random.default_rng(0)
    for frame in (False, True):
        for _ in range(20):
            mask = rng.random((7, 5)) < 0.4
            mask[3, 2] = True
            assert (masks.decode(masks.encode(mask, frame=frame), 5, 7) == mask).all()
    full = np.ones((3, 4), dtype=bool)
    assert masks.encode(full) == masks.encode(full, frame=True) == [0, 12, 0, 0, 3, 2]
    for bad, message in (
        ([1, 2, 2, 1, 0, 2, 1], "add up to 5"),
        ([1, 2, 1, 1, 0, 4, 1], "box"),
        ([4, -1, 1, 1, 0, 2, 1], "negative"),
    ):
        with pytest.raises(ValueError, match=message):
            masks.decode(bad, 4, 3)
    with pytest.raises(ValueError, match="add up to 13"):
        masks.decode_frame([13, 0, 0, 1, 1], 4, 3)


def test_masks_of_the_fixture(root, tmp_path):
    table, val = masks.read_masks(root, "val"), layout.read_split(root, "Mini", "val")
    assert table["file_name"].nunique() == 3 and (~val["filename"].isin(table["file_name"])).sum() == 1
    first, third = (masks.parts_of(table, val["filename"][i]) for i in (0, 2))
    assert [label for label, _ in first] == ["cap", "stem", "fruiting_body"] and [label for label, _ in third] == [
        "cap",
        "stem",
    ]
    assert (masks.merged(first) == first[2][1]).all() and (masks.merged(first, "reference_code") == first[2][1]).all()
    assert (masks.merged(third) == third[0][1] | third[1][1]).all()
    assert (masks.merged(third, "reference_code") == third[1][1]).all()
    raw = pd.read_parquet(root / "masks/FungiTastic-Mini-TestMasks.parquet")
    assert isinstance(raw["rle"][0], str) and isinstance(masks.read_masks(root, "test")["rle"][0], list)
    (tmp_path / "masks").mkdir()
    good = raw.iloc[:1]
    for bad, message in (
        (good.drop(columns="rle"), "'rle' is missing"),
        (good.assign(label="hat"), "unknown labels hat"),
        (pd.concat([good.assign(label="hat"), good.assign(label=None)]), "unknown labels .*hat"),
        (good.assign(rle="__import__('os')"), f"row 0: {good['file_name'][0]}: rle"),
        (good.assign(width=0), f"TestMasks.parquet, row 0: {good['file_name'][0]}: width"),
        (good.assign(height=np.nan), "width and height must be whole"),
        (good.assign(rle="[1.5, 2, 3, 4, 5]"), "whole"),
    ):
        bad.to_parquet(tmp_path / "masks/FungiTastic-Mini-TestMasks.parquet")
        with pytest.raises(ValueError, match=message):
            masks.read_masks(tmp_path, "test")
    for rle in ("[1, 2, 2, 1, 0, 2, 1]", "[4, -1, 1, 1, 0, 2, 1]"):
        good.assign(rle=rle).to_parquet(tmp_path / "masks/FungiTastic-Mini-TestMasks.parquet")
        with pytest.raises(ValueError, match=f"TestMasks.parquet: {good['file_name'][0]}: rle"):
            masks.parts_of(masks.read_masks(tmp_path, "test"), good["file_name"][0])
    with pytest.raises(FileNotFoundError):
        masks.read_masks(tmp_path, "val")
    with pytest.raises(ValueError, match="no masks"):
        masks.parts_of(table, "other.JPG")
    with pytest.raises(ValueError, match="several sizes"):
        masks.parts_of(table.assign(file_name="a", width=range(100, 100 + len(table))), "a")
    for call in (lambda: masks.merged(first, "paper"), lambda: masks.read_masks(root, "dna")):
        with pytest.raises(ValueError, match="unknown"):
            call()


def test_masks_find_their_pictures_or_say_so(root, tables):
    shutil.copytree(root / "FungiTastic-Mini", tables / "FungiTastic-Mini")
    raw = pd.read_parquet(root / "masks/FungiTastic-Mini-ValidationMasks.parquet")
    path = tables / "masks/FungiTastic-Mini-ValidationMasks.parquet"
    path.parent.mkdir()
    whole = segmentation.mask_pairs(root)
    raw.assign(file_name=raw["file_name"].str.lower()).to_parquet(path)
    assert list(segmentation.mask_pairs(tables)) == list(whole)
    raw.assign(file_name=raw["file_name"].replace(raw["file_name"][0], "lost.JPG")).to_parquet(path)
    with pytest.warns(UserWarning, match="ValidationMasks.parquet: 1 names of no picture in .*Mini-Val.csv: lost.JPG"):
        assert list(segmentation.mask_pairs(tables)) == list(whole)[1:]
    raw.assign(file_name="lost.JPG").to_parquet(path)
    with pytest.raises(ValueError, match="no mask is left"):
        segmentation.mask_pairs(tables)


@pytest.mark.parametrize("content", [b"", "filename\nB\u00f8g\n".encode("latin-1"), "filename\na\n".encode("utf-16"),
                                     b"filename,observationID\na,1\nb,2,3\n", b"filename\na,1\nb,2\n"])  # fmt: skip
def test_unreadable_tables_are_named(tables, content):
    path = tables / "metadata/FungiTastic/FungiTastic-Train.csv"
    path.write_bytes(content)
    for call in (lambda: layout.read_split(tables, "all", "train"), lambda: fungiclef.read_poison_list(path, 2)):
        with pytest.raises(ValueError, match="Train.csv: .*expected a CSV in UTF-8"):
            call()


def test_errors_of_columns_name_the_table(root):
    train = layout.read_split(root, "all", "train")
    p, bare = np.full((len(train), 5), 0.2), train.drop(columns="habitat")
    for call, message in (
        (lambda: layout.poisonous(train.drop(columns="poisonous"), 5), "'poisonous' is missing"),
        (lambda: layout.poisonous(train.assign(poisonous=2), 5), "row 0 is not"),
        (lambda: fusion.metadata_prior(train, train["category_id"], bare, p, "H"), "'habitat'"),
        (lambda: fungiclef.by_observation(train.assign(observationID=7), p), "observation 7 has images of several"),
    ):
        with pytest.raises(ValueError, match=f"Train.csv: .*{message}"):
            call()


def test_captions_by_file_or_column(root, tmp_path):
    table = layout.read_split(root, "all", "test")
    texts = fungiclef.read_captions(root, table)
    assert texts.index.tolist() == table["filename"].tolist() and not texts.str.contains('"|\n', regex=True).any()
    assert '"' in table["captions"][0] and "\n" in table["captions"][0]
    a, b, c = table["filename"][:3]
    folder = tmp_path / "captions" / "test"
    folder.mkdir(parents=True)
    (folder / f"{a}.json").write_text(json.dumps('a "red"\ncap'))
    (folder / f"{b.lower()}.json").write_text(json.dumps({"caption": "grey"}))
    (folder / f"{c}.json").write_text("{")
    assert fungiclef.read_captions(tmp_path, table[:3], broken={c, "elsewhere"}).tolist() == ["a red cap", "grey", ""]
    with pytest.raises(ValueError, match="no JSON"):
        fungiclef.read_captions(tmp_path, table[:3])
    with pytest.raises(FileNotFoundError, match="list the picture as broken"):
        fungiclef.read_captions(tmp_path, table[3:4])
    (folder / f"{c}.json").write_text("[1]")
    with pytest.raises(ValueError, match="no caption text"):
        fungiclef.read_captions(tmp_path, table[:3])
    (tmp_path / "captions" / f"{a}.json").write_text('"twice"')
    with pytest.raises(ValueError, match="second caption"):
        fungiclef.read_captions(tmp_path, table[:1])
    with pytest.raises(ValueError, match="'captions' is missing"):
        fungiclef.read_captions(root, table.drop(columns="captions"))


def test_the_tables_of_2023(tmp_path):
    table = pd.DataFrame({"image_path": ["A.JPG", "b.JPG"], "class_id": [0, -1], "observationID": [1, 2]})
    path = tmp_path / "FungiCLEF2023_val_metadata_PRODUCTION.csv"
    table.to_csv(path, index=False)
    (tmp_path / "DF21_300").mkdir()
    for name in ("A.JPG", "b.jpg"):
        (tmp_path / "DF21_300" / name).touch()
    found = fungiclef.read_2023(tmp_path, "val")
    assert found["filename"].tolist() == ["DF21_300/A.JPG", "DF21_300/b.jpg"] and found["category_id"].tolist() == [
        0,
        -1,
    ]
    table.assign(image_path=["../A.JPG", "b.JPG"]).to_csv(path, index=False)
    with pytest.raises(ValueError, match="leaves the folder"):
        fungiclef.read_2023(tmp_path, "val")
    with pytest.raises(ValueError, match="train and val"):
        fungiclef.read_2023(tmp_path, "test")
    poison = tmp_path / "poison.csv"
    pd.DataFrame({"class_id": [2, 0], "poisonous": [1, 0]}).to_csv(poison, index=False)
    assert fungiclef.read_poison_list(poison, 4).tolist() == [False, False, True, False]
    with pytest.raises(ValueError, match="at most once"):
        fungiclef.read_poison_list(poison, 2)


def test_submissions_hold_each_observation_once():
    answers = pd.DataFrame({"observationID": [7, 5, 6], "class_id": [1, -1, 0]})
    assert fungiclef.read_submission(answers, [5, 5, 6, 7]).tolist() == [-1, 0, 1]
    for bad in (answers.iloc[:2], pd.concat([answers, answers[:1]]), answers.assign(observationID=[7, 5, 8])):
        with pytest.raises(ValueError, match="a row for each of 3 observations"):
            fungiclef.read_submission(bad, [5, 6, 7])


def test_observations_pool_unit_features(root):
    table = pd.DataFrame({"observationID": [9, 3, 9], "category_id": [1, 0, 1], "filename": list("abc")})
    pooled, X = fungiclef.by_observation(table, np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 5.0]]))
    assert pooled["observationID"].tolist() == [3, 9] and pooled["filename"].tolist() == ["b", "a"]
    np.testing.assert_allclose(X, [[0, 1], [0.5, 0.5]])
    with pytest.raises(ValueError, match="several classes"):
        fungiclef.by_observation(table.assign(category_id=[1, 0, 2]), np.ones((3, 2)))


def test_printed_numbers():
    table = printed("fungitastic")
    assert not table.duplicated(["table", "row", "column", "source"]).any() and table["value"].notna().all()
    assert set(table["source"]) == {"paper", "code", "project page", "derived"}
    cell = table.set_index(["table", "row", "column", "source"])["value"]
    assert cell["closed set", "BEiT-Base/p16", "full 384 macro-F1", "project page"] == 44.5
    assert cell["few-shot", "BioCLIP", "centroid Top-1", "paper"] == 21.8
    assert cell["open set", "DINOv2 MLS", "TNR95", "code"] == 36.8
    assert cell["metadata", "H+M+S", "macro-F1 gain", "paper"] == 7.5
    assert cell["segmentation", "zero-shot box detector + SAM", "Mini mean IoU 300 px", "paper"] == 89.36
    counts = table["table"].value_counts()
    assert counts["closed set"] == 96 and counts["metadata"] == 33 and counts["sizes"] == 48
