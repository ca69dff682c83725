"""FungiTastic's published layout: names, folders, columns, masks and captions, whole and broken."""

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.siblings.fungitastic import baselines, fixture, fungiclef, layout, segmentation
from phoebi_lib.siblings.printed import printed

COLUMNS = """eventDate year month day habitat countryCode scientificName kingdom phylum class order family genus
specificEpithet hasCoordinate species iucnRedListCategory substrate latitude longitude coorUncert observationID region
district filename category_id metaSubstrate poisonous elevation landcover biogeographicalRegion captions""".split()
SIZES = {"all train closed": 40, "all val closed": 10, "all test closed": 10, "all val open": 14, "all test open": 14,
         "all dna closed": 4, "FewShot train closed": 19, "FewShot val closed": 6, "FewShot test closed": 6,
         "Mini train closed": 8, "Mini val closed": 4, "Mini test closed": 4, "Mini dna closed": 2}  # fmt: skip
TRAIN, MASKS = "metadata/FungiTastic/FungiTastic-Train.csv", "masks/FungiTastic-Mini-TestMasks.parquet"
CLEF, POISON = "FungiCLEF2023_val_metadata_PRODUCTION.csv", "poison.csv"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fungi")
    fixture.write(folder)
    return folder


@pytest.fixture
def copied(root, tmp_path):
    """A copy of the fixture without the pictures of the full set, and files of FungiCLEF 2023: all to be broken."""
    for name in ("metadata", "masks", "FungiTastic-Mini"):
        shutil.copytree(root / name, tmp_path / name)
    (tmp_path / "DF21_300").mkdir()
    for name in ("A.JPG", "b.jpg"):
        (tmp_path / "DF21_300" / name).touch()
    (tmp_path / CLEF).write_text("image_path,class_id,observationID\nA.JPG,0,1\nb.JPG,-1,2\n")
    (tmp_path / POISON).write_text("class_id,poisonous\n2,1\n0,0\n")
    return tmp_path


def test_the_fixture_has_the_counts_and_oddities_of_the_layout(root):
    assert {key: len(layout.read_split(root, *key.split())) for key in SIZES} == SIZES
    train, shots = layout.read_split(root, "all", "train"), layout.read_split(root, "FewShot", "train")
    assert list(train.columns) == COLUMNS and train["landcover"].isna().sum() == 1
    assert sorted(set(layout.labels(layout.read_split(root, "all", "test")))) == [0, 1, 2, 4]
    assert set(layout.labels(layout.read_split(root, "all", "test", "open"))) == {-1, 0, 1, 2, 4}
    assert layout.poisonous(train, 6).tolist() == [False, True, False, False, True, False]
    assert shots.groupby("category_id")["observationID"].nunique().tolist() == [1, 2, 2, 3, 4, 2]
    assert shots["category_id"].value_counts().max() == 5
    said = layout.size_warnings(train, "all", "train")
    assert said[1] == "all closed train: 40 images, printed 433701" and len(said) == 3
    almost = pd.DataFrame({"observationID": np.arange(7819) % 4293, "species": np.arange(7819) % 2410})
    assert layout.size_warnings(almost, "FewShot", "train") == []
    assert "7700 images, printed 7819" in layout.size_warnings(almost[:7700], "FewShot", "train")[0]


def test_the_fixture_is_the_same_every_time(root, tmp_path):
    fixture.write(tmp_path)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        assert (tmp_path / path.relative_to(root)).read_bytes() == path.read_bytes(), path


def test_names_of_tables(root, copied):
    for key, name in (("all train", "Train"), ("all val", "ClosedSet-Val"), ("all test open", "OpenSet-Test"),
                      ("all dna", "DNA-Test"), ("Mini val", "Mini-Val"), ("FewShot test", "FewShot-Test")):  # fmt: skip
        assert layout.metadata_path(root, *key.split()).name == f"FungiTastic-{name}.csv"
    (copied / "metadata/FungiTastic-Mini/FungiTastic-Mini-Val.csv").unlink()
    assert layout.metadata_path(copied, "Mini", "val").name == "FungiTastic-Mini-ClosedSet-Val.csv"
    (copied / "metadata/FungiTastic/FungiTastic-Val.csv").write_text("a name that the full set does not have")
    assert layout.metadata_path(copied, "all", "val").name == "FungiTastic-ClosedSet-Val.csv"
    with pytest.raises(FileNotFoundError, match="OpenSet-Val"):
        layout.metadata_path(root, "Mini", "val", "open")
    for key, message in (("all train open", "has no open train"), ("FewShot val open", "has no open val"),
                         ("FewShot dna", "has no closed dna"), ("full val", "subset must be"),
                         ("all dev", "split must be"), ("all val half", "task must be")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            layout.metadata_path(root, *key.split())


def train(root):
    return layout.read_split(root, "all", "train")


def with_habitat(root):
    part = layout.Split(train(root), None, layout.labels(train(root)))
    return baselines.metadata_prior(part, part, np.full((40, 5), 0.2), "H")


READ = {
    "split": (TRAIN, train), "labels": (TRAIN, lambda root: layout.labels(train(root))),
    "poisonous": (TRAIN, lambda root: layout.poisonous(train(root), 5)), "habitat": (TRAIN, with_habitat),
    "dates": (TRAIN, lambda root: layout.dates(train(root))),
    "pooled": (TRAIN, lambda root: fungiclef.by_observation(train(root), np.ones((40, 5)))),
    "masks": (MASKS, lambda root: dict(segmentation.read_masks(root, "test"))),
    "2023": (CLEF, lambda root: fungiclef.read_2023(root, "val")),
    "poison": (POISON, lambda root: fungiclef.read_poison_list(root / POISON, 4)),
}  # fmt: skip


def to(**values):
    """The change that puts a value into the first row of each column."""
    return lambda table: table.assign(**{name: [value, *table[name][1:]] for name, value in values.items()})


def without(name):
    return lambda table: table.drop(columns=name)


@pytest.mark.parametrize(("what", "change", "message"), [
    ("split", without("filename"), "'filename' is missing"),
    ("split", without("observationID"), "'observationID' is missing"),
    ("split", lambda t: t.iloc[:0], "no row"),
    ("split", lambda t: t.assign(filename=[t["filename"][1], *t["filename"][1:]]), "given twice"),
    ("split", to(filename="../0.JPG"), "leaves its folder"),
    ("split", to(filename="/etc/0.JPG"), "leaves its folder"),
    ("split", to(filename=None), "without filename"),
    ("split", to(observationID=None), "without observationID"),
    ("split", to(category_id=np.nan), "data row 1 is not, nan"),
    ("split", to(category_id=0.5), "data row 1 is not, 0.5"),
    ("split", to(category_id=-2), "data row 1 is not, -2"),
    ("split", to(category_id=1e19), "data row 1 is not, 1e"),
    ("split", to(category_id=-1), "open set only"),
    ("split", lambda t: t.assign(category_id=0), "two or more"),
    ("split", lambda t: t[t["category_id"] != 2], r"without a gap; .* up to 4, without \[2\]"),
    ("split", to(category_id=10**12), r"up to 1000000000000, without \[5\]"),
    ("labels", without("category_id"), "nothing can be scored: .*'category_id' is missing"),
    ("poisonous", without("poisonous"), "'poisonous' is missing"),
    ("poisonous", to(poisonous=2), "data row 1 has poisonous .*2"),
    ("poisonous", to(poisonous=None), "data row 1 has poisonous .*nan"),
    ("dates", without("eventDate"), "'eventDate' is missing"),
    ("habitat", without("habitat"), "'habitat' is missing"),
    ("pooled", lambda t: t.assign(observationID=7), "observation 7 has images of several"),
    ("masks", without("rle"), "'rle' is missing"),
    ("masks", to(label="hat"), "data row 1 has label 'hat'"),
    ("masks", to(label=None), "data row 1 has label"),
    ("masks", to(rle="__import__('os')"), "JPG: malformed"),
    ("masks", to(rle="[1.5, 2, 0, 0, 0, 0]"), "JPG: .*whole numbers"),
    ("masks", to(rle="[1, 2, 3]"), "JPG: not enough values"),
    ("masks", to(rle="[1, 2, 2, 1, 0, 2, 1]"), "JPG: runs from 1 up add up to 5"),
    ("masks", to(rle="[4, -1, 1, 1, 0, 2, 1]"), "JPG: runs from -1 up add up to 4"),
    ("masks", to(rle="[2, 2, 63, 0, 64, 1]"), "JPG: runs .* box .63, 0, 64, 1"),
    ("masks", to(width=0), "JPG: runs"),
    ("masks", to(width=10**9, height=10**9), "JPG: "), ("masks", to(rle=f"[{10**400}]"), "JPG: "),
    ("masks", lambda t: t.iloc[:0], "no mask of a part"),
    ("masks", lambda t: t[t["label"] == "fruiting_body"], "no mask of a part"),
    ("masks", to(height=np.nan), "JPG: .*whole numbers"),
    ("masks", to(width=32, height=128, rle="[4096, 0, 0, 0, 0]"), "JPG: masks of several sizes"),
    ("masks", lambda t: t.assign(file_name="lost.JPG"), "1 names of no picture in .*: lost.JPG; no mask is left"),
    ("2023", to(image_path="../A.JPG"), "leaves its folder"),
    ("2023", without("class_id"), "'class_id' is missing"),
    ("2023", to(class_id=0.5), "class_id must be .* data row 1 is not"),
    ("poison", to(class_id=0), "at most once"),
    ("poison", to(class_id=4), "at most once"),
    ("poison", to(poisonous=2), "poisonous 0 or 1"),
])  # fmt: skip
def test_damaged_tables_are_refused(copied, what, change, message):
    path, read = copied / READ[what][0], READ[what][1]
    if path.suffix == ".csv":
        change(pd.read_csv(path)).to_csv(path, index=False)
    else:
        change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(ValueError, match=f"{path.name}: .*{message}"):
        read(copied)


@pytest.mark.parametrize("content", [b"", "filename\nB\u00f8g\n".encode("latin-1"), "filename\na\n".encode("utf-16"),
                                     b"filename,observationID\na,1\nb,2,3\n", b"filename\na,1\nb,2\n"])  # fmt: skip
@pytest.mark.parametrize("what", ["split", "poison", "masks"])
def test_unreadable_tables_are_named(copied, what, content):
    (copied / READ[what][0]).write_bytes(content)
    with pytest.raises(ValueError, match=f"{READ[what][0]}: .*expected a (CSV in UTF-8|Parquet file)"):
        READ[what][1](copied)


def test_a_table_without_labels_is_read(copied):
    path = copied / "metadata/FungiTastic-FewShot/FungiTastic-FewShot-Test.csv"
    pd.read_csv(path).drop(columns="category_id").to_csv(path, index=False)
    assert len(layout.read_split(copied, "FewShot", "test")) == 6


def test_pictures_are_found_without_regard_to_case_and_under_both_names(root, tmp_path):
    test, dna = layout.read_split(root, "all", "test"), layout.read_split(root, "all", "dna")
    files = layout.image_files(root, test, "all", "test")
    assert [name.rpartition("/")[2].lower() for name in files] == [name.lower() for name in test["filename"]]
    assert files[0].endswith(".jpg") and test["filename"][0].endswith(".JPG") and (root / files[0]).is_file()
    assert layout.image_files(root, dna, "all", "dna")[0].startswith("FungiTastic/dna-test/300p/")
    name, one = dna["filename"][0], dna.iloc[:1]
    folder = tmp_path / "FungiTastic/DNA/300p"
    for split, size, place in (("dna", 300, "FungiTastic/DNA/300p"),
                               ("dna", "fullsize", "images/FungiTastic/dna/fullsize"),
                               ("train", "fullsize", "FungiTastic/train/fullsizep")):  # fmt: skip
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / name).touch()
        assert layout.image_files(tmp_path, one, "all", split, size) == [f"{place}/{name}"]
    for table, size, message in ((one, 500, "500p"), (dna, 300, "no such picture")):
        with pytest.raises(FileNotFoundError, match=message):
            layout.image_files(tmp_path, table, "all", "dna", size)
    for spelling in (name.lower(), name.title()):
        (folder / spelling).touch()
    assert layout.on_disk(folder, [name]) == [name]
    (folder / name).unlink()
    with pytest.raises(ValueError, match="fits"):
        layout.on_disk(folder, [name])


def test_poisonous_rows_that_disagree_count_as_poisonous():
    table = pd.DataFrame({"category_id": [0, 0, 1], "poisonous": [0, 1, 0]})
    with pytest.warns(UserWarning, match=r"classes \[0\]"):
        assert layout.poisonous(table, 3).tolist() == [True, False, False]
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


def test_run_lengths_of_box_and_frame():
    rle = [1, 2, 1, 1, 0, 2, 1]
    for over, pixels in ((None, [[0, 2], [1, 1]]), ("box", [[0, 2], [1, 1]]), ("frame", [[0, 1], [0, 2]])):
        assert np.argwhere(segmentation.decode(rle, 4, 3, over)).tolist() == pixels
    assert np.argwhere(segmentation.decode([5, 1, 6, 1, 0, 2, 1], 4, 3)).tolist() == [[1, 1]]
    rng = np.random.default_rng(0)
    for i in range(40):
        mask = rng.random((7, 5)) < 0.4
        mask[3, 2] = True
        assert (segmentation.decode(segmentation.encode(mask, frame=i % 2 == 1), 5, 7) == mask).all()
    full = np.ones((3, 4), dtype=bool)
    assert segmentation.encode(full) == segmentation.encode(full, frame=True) == [0, 12, 0, 0, 3, 2]


def test_masks_of_the_fixture(root):
    masks, val = dict(segmentation.read_masks(root, "val")), layout.read_split(root, "Mini", "val")
    assert list(masks) == val["filename"].tolist()[:3] and len(val) == 4
    one, _, third = masks.values()
    assert [label for label, _ in one] == ["cap", "stem", "fruiting_body"] and [p for p, _ in third] == ["cap", "stem"]
    for variant in ("ours", "reference_code"):
        assert (segmentation.merged(one, variant) == one[2][1]).all()
    assert (segmentation.merged(third) == third[0][1] | third[1][1]).all()
    assert (segmentation.merged(third, "reference_code") == third[1][1]).all()
    assert isinstance(pd.read_parquet(root / MASKS)["rle"][0], str)
    assert len(dict(segmentation.read_masks(root, "test"))) == 1
    for call in (lambda: segmentation.merged(one, "paper"), lambda: dict(segmentation.read_masks(root, "dna"))):
        with pytest.raises(ValueError, match="must be one of"):
            call()


def test_masks_find_their_pictures_or_say_so(root, copied):
    path, whole = copied / "masks/FungiTastic-Mini-ValidationMasks.parquet", segmentation.mask_pairs(root)
    raw = pd.read_parquet(path)
    raw.assign(file_name=raw["file_name"].str.lower()).to_parquet(path)
    assert list(segmentation.mask_pairs(copied)) == list(whole)
    raw.assign(file_name=raw["file_name"].replace(raw["file_name"][0], "lost.JPG")).to_parquet(path)
    with pytest.warns(UserWarning, match="ValidationMasks.parquet: 1 names of no picture in .*Mini-Val.csv: lost.JPG"):
        assert list(segmentation.mask_pairs(copied)) == list(whole)[1:]
    raw.assign(rle=[[1]] * 3 + raw["rle"].tolist()[3:]).to_parquet(path)
    pairs, (first, second) = segmentation.mask_pairs(copied), list(whole)[:2]
    assert len(pairs) == len(whole) and (pairs[second][1][0][1] == whole[second][1][0][1]).all()
    with pytest.raises(ValueError, match=f"ValidationMasks.parquet: {first}"):
        pairs[first]  # decoded when looked at, and not before: a split's masks would fill the memory
    assert "lost.JPG" not in pairs
    path.unlink()
    with pytest.raises(FileNotFoundError):
        segmentation.mask_pairs(copied)


def test_captions_by_file_or_column(root, tmp_path):
    table = layout.read_split(root, "all", "test")
    texts = fungiclef.read_captions(root, table)
    assert texts.index.tolist() == table["filename"].tolist() and not texts.str.contains('"|\n', regex=True).any()
    assert fungiclef.read_captions(root, table, table["filename"][0]).eq("").tolist()[:2] == [True, False]
    assert '"' in table["captions"][0] and "\n" in table["captions"][0]
    a, b, c, d = table["filename"][:4]
    folder = tmp_path / "captions" / "test"
    folder.mkdir(parents=True)
    for name, text in ((a, '"a \\"red\\"\\ncap"'), (b.lower(), json.dumps({"caption": "grey"})), (c, "{"), (d, "[1]")):
        (folder / f"{name}.json").write_text(text)
    (folder / f"{b.lower()}.json").rename(folder / f"{b.lower()}.JSON")
    (folder / f"{a}.json").write_text((folder / f"{a}.json").read_text(), encoding="utf-8-sig")
    broken = {c, d, "elsewhere"}
    assert fungiclef.read_captions(tmp_path, table[:4], broken).tolist() == ["a red cap", "grey", "", ""]
    for text in ("{", "[" * 100_000):
        (folder / f"{c}.json").write_text(text)
        with pytest.raises(ValueError, match=f"{c}.json: no JSON .*; list {c} as broken"):
            fungiclef.read_captions(tmp_path, table[:5])
    with pytest.raises(ValueError, match=f"captions: .* for {d}, {table['filename'][4]}; list such pictures"):
        fungiclef.read_captions(tmp_path, table[:5], [c])
    with pytest.raises(ValueError, match=f"Test.csv: no caption for {a}"):
        fungiclef.read_captions(root, table.assign(captions=[None, *table["captions"][1:]]))
    (tmp_path / "captions" / f"{a}.json").write_text('"twice"')
    with pytest.raises(ValueError, match="second caption"):
        fungiclef.read_captions(tmp_path, table[:1])
    with pytest.raises(ValueError, match="'captions' is missing"):
        fungiclef.read_captions(root, table.drop(columns="captions"))


def test_files_of_fungiclef_2023(copied):
    found = fungiclef.read_2023(copied, "val")
    assert found["filename"].tolist() == ["DF21_300/A.JPG", "DF21_300/b.jpg"]
    assert found["category_id"].tolist() == [0, -1]
    assert fungiclef.read_poison_list(copied / POISON, 4).tolist() == [False, False, True, False]
    with pytest.raises(ValueError, match="'train', 'val'"):
        fungiclef.read_2023(copied, "test")
    (copied / "DF21_300/0012").touch()
    (copied / CLEF).write_text("image_path,class_id,observationID\n0012,0,1\n")
    assert fungiclef.read_2023(copied, "val")["filename"].tolist() == ["DF21_300/0012"]
    (copied / CLEF).write_text("image_path,class_id,observationID\nA.JPG,0,1\na.jpg,0,2\n")
    with pytest.raises(ValueError, match="A.JPG: the picture of both 'A.JPG' and 'a.jpg'"):
        fungiclef.read_2023(copied, "val")


def test_submissions_hold_each_observation_once():
    answers = pd.DataFrame({"observationID": [7, 5, 6], "class_id": [1, -1, 0]})
    assert fungiclef.read_submission(answers, [5, 5, 6, 7]).tolist() == [-1, 0, 1]
    for bad in (answers.iloc[:2], pd.concat([answers, answers[:1]]), answers.assign(observationID=[7, 5, 8])):
        with pytest.raises(ValueError, match="a row for each of 3 observations"):
            fungiclef.read_submission(bad, [5, 6, 7])
    for bad, message in ((answers.assign(class_id=[np.nan, 1, 1]), "row 1 is not, nan"),
                         (answers.assign(class_id=[0, -9.5, 1]), "row 2 is not, -9.5"),
                         (answers.astype({"observationID": str}), r"missing: \[5, 6, 7\]; surplus: \['7', '5', '6'\]"),
                         (answers.iloc[[0, 0, 1, 2]], r"given twice: \[7\]")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            fungiclef.read_submission(bad, [5, 6, 7])


def test_observations_pool_unit_features():
    table = pd.DataFrame({"observationID": [9, 3, 9], "category_id": [1, 0, 1], "filename": list("abc")})
    pooled, X = fungiclef.by_observation(table, np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 5.0]]))
    assert pooled["observationID"].tolist() == [3, 9] and pooled["filename"].tolist() == ["b", "a"]
    np.testing.assert_allclose(X, [[0, 1], [0.5, 0.5]])
    for bad, features, message in ((table, np.ones((1, 2)), "each of 1 rows"),
                                   (table.assign(observationID=[9, None, 9]), X, "row 2 has observationID nan"),
                                   (table.assign(observationID=[9, 3, "9"]), X, "row 3 has observationID '9'"),
                                   (table.drop(columns="observationID"), X, "'observationID' is missing")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            fungiclef.by_observation(bad, features)


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
