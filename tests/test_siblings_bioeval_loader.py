"""BioCLIP 2's evaluation, loaders: the published layouts, read from the fixture and refused where they are broken."""

from __future__ import annotations

import hashlib
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.siblings import printed
from phoebi_lib.siblings.bioeval import fixture, layout
from phoebi_lib.siblings.bioeval.layout import LABELS, LOADERS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bioeval")
    fixture.write(folder)
    return folder


@pytest.fixture
def copy(data, tmp_path):
    return lambda name: shutil.copytree(data / name, tmp_path / name)


def test_the_fixture_is_the_same_each_time(data, tmp_path):
    fixture.write(tmp_path)
    first, again = (
        {str(f.relative_to(root)): hashlib.md5(f.read_bytes()).hexdigest() for f in root.rglob("*") if f.is_file()}
        for root in (data, tmp_path)
    )
    assert first == again and len(first) == 306


@pytest.mark.parametrize(("name", "by", "counts"), [
    ("fishnet", ["split"], [9, 23]), ("newt", ["task", "split"], [6, 10] * 3), ("awa2", ["split", "class"], [4] * 6),
    ("herbarium19", ["class"], [6] * 4), ("plantdoc", ["split", "class"], [5, 5, 5, 6, 6, 2, 6]),
    ("few_shot", ["class"], [8, 8, 8, 4]), ("intra_species", ["species", "variant"], [12] * 8),
])  # fmt: skip
def test_each_image_is_there_and_has_a_row(data, name, by, counts):
    table = LOADERS[name](data / name)
    assert table.groupby(by).size().tolist() == counts and table.index.tolist() == list(range(sum(counts)))
    assert all((data / name / path).is_file() for path in table["path"]) and table["path"].is_unique


def test_fishnet_finds_columns_by_name(data, copy):
    table = layout.fishnet(data / "fishnet")
    assert "Image_Library/Cichlidae/train_1.jpg" in table["path"].tolist(), "named by a web address"
    assert table.iloc[2][list(LABELS)].tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 1], "pelagic is 1"
    assert table.iloc[0]["FeedingPath"] == 0
    file = copy("fishnet") / "train.csv"
    assert file.read_text().startswith(",Unnamed: 0,species,image,SpecCode,"), "the first column has no name"
    raw = pd.read_csv(file, dtype=str, keep_default_na=False)
    raw[sorted(raw.columns)].to_csv(file, index=False)
    pd.testing.assert_frame_equal(layout.fishnet(file.parent), table)


def test_newt_has_a_task_without_subcluster_and_an_unbalanced_one(data):
    table = layout.newt(data / "newt")
    assert table["subcluster"].eq("").sum() == 16 and set(table["cluster"]) == {"appearance", "behavior"}
    assert table[(table["task"] == "fgvcx_synthetic") & (table["split"] == "train")]["label"].sum() == 3


def test_awa2_reads_both_forms_of_its_class_list_and_a_byte_order_mark(data, copy):
    table = layout.awa2(data / "awa2")
    labels = table.select_dtypes("integer")
    assert labels.shape == (24, 85) and list(labels)[:2] == ["black", "white"]
    row = (data / "awa2/predicate-matrix-binary.txt").read_text().splitlines()[1].split()
    assert labels[table["class"] == "fine+hoop"].astype(str).eq(row).all(axis=None)
    assert (~labels[table["split"] == "test"].any()).any(), "an attribute without a positive among unseen classes"
    root = copy("awa2")
    shutil.copy(root / "classes_bare.txt", root / "classes.txt")
    for file in root.glob("*.txt"):
        file.write_text(file.read_text(), encoding="utf-8-sig")
    pd.testing.assert_frame_equal(layout.awa2(root), table)


@pytest.mark.parametrize(("seen", "unseen", "name"), [(45, 5, "paper_shape"), (40, 10, "official"), (44, 6, "custom")])
def test_awa2_names_the_split_by_its_sizes(tmp_path, seen, unseen, name):
    classes = [f"animal+{i}" for i in range(50)]
    texts = {"classes": classes, "predicates": ["1\tblack", "2\twhite"], "trainclasses": classes[:seen],
             "testclasses": classes[50 - unseen:], "predicate-matrix-binary": ["0 1"] * 50}  # fmt: skip
    for file, lines in texts.items():
        (tmp_path / f"{file}.txt").write_text("\n".join(lines))
    for one in classes:
        (tmp_path / "JPEGImages" / one).mkdir(parents=True)
        (tmp_path / "JPEGImages" / one / "a.jpg").touch()
    assert set(layout.awa2(tmp_path)["lists"]) == {name}


def test_herbarium19_counts_positions_in_the_order_of_texts(data):
    table = layout.herbarium19(data / "herbarium19")
    first = table.groupby("class")[["position", "old"]].first().to_numpy().tolist()
    assert first == [[0, True], [1, True], [2, False], [3, False]] and list(table["class"].unique())[2] == "10"
    assert table["path"].str.startswith("small-train/").all()


def test_the_published_old_list_is_for_683_species(tmp_path, copy):
    old = layout.old_positions()
    assert len(set(old)) == 341 and old == sorted(old) and old[:8] == [0, 1, 3, 6, 7, 8, 10, 12] and old[-1] == 682
    assert hashlib.sha256(json.dumps(old).encode()).hexdigest()[:12] == "f3917b6f2cdb"
    for i in range(683):
        (tmp_path / "real" / "train" / str(i)).mkdir(parents=True)
        (tmp_path / "real" / "train" / str(i) / "a.jpg").touch()
    table = layout.herbarium19(tmp_path / "real").set_index("class")
    assert table["old"].sum() == 341 and table["old"][["0", "1", "10", "100"]].tolist() == [True, True, False, True]
    root = copy("herbarium19")
    (root / "splits.json").unlink()
    with pytest.raises(ValueError, match="4 species, but the published list has 683"):
        layout.herbarium19(root)


def test_plantdoc_maps_test_classes_through_training(data):
    table = layout.plantdoc(data / "plantdoc")
    labels = table.groupby(["split", "class"])[["label", "label_reference_code"]].first().to_numpy().tolist()
    assert labels == [[0, 0], [1, 1], [3, 2], [0, 0], [1, 1], [2, 2], [3, 3]], "grape leaf is shifted in test"
    assert table["path"].str.contains("%20", regex=False).any() and table["path"].str.endswith(".JPG.jpg").any()


FISHNET, NEWT, SPLITS = "fishnet/train.csv", "newt/newt2021_labels.csv", "herbarium19/splits.json"
MATRIX, SPECIES, VARIANTS = "awa2/predicate-matrix-binary.txt", "few_shot/metadata.csv", "intra_species/metadata.csv"
POSITIONS = 'splits.json: expected {"old": .numbers., "new": .numbers.} that name each position 0 to 3 once'
ALL = "(?s).+"


@pytest.mark.parametrize(("file", "old", "new", "message"), [
    (FISHNET, ",Boreal,", ",boreal,", "'Boreal' is missing"),
    (FISHNET, "benthic", "demersal", "data row 1 has FeedingPath 'demersal'"),
    (FISHNET, "benthic,1.0", "benthic,2.0", "data row 1 has Tropical '2.0'"),
    ("fishnet/test.csv", ",0.0,,1", ",none,,1", "brackish 'none'; expected one of '1', '1.0', '0', '0.0', ''"),
    (FISHNET, ",inat,Gobiidae,", ",inat,../Gobiidae,", "leaves its folder"),
    (FISHNET, "train_2.jpg", "train_0.jpg", "path given twice"),
    ("fishnet/test.csv", "test_2.jpg", "train_2.jpg", "train.csv and test.csv: path given twice"),
    (FISHNET, ",inat,Gobiidae,", ",inat,,", "data row 1 has labels, and no image or no Folder"),
    (FISHNET, "train_0.jpg", "fish/", "data row 1 has labels, and no image or no Folder"),
    (FISHNET, "(?s)\n.*", "\n", "no row"),
    (FISHNET, "(?s)\n.*\n(?=.)", "\n", "train.csv, rows with all labels: no row"),
    (NEWT, "task_cluster", "cluster", "'task_cluster' is missing"),
    (NEWT, ",train,", ",val,", "split 'val'"),
    (NEWT, "n0_01,", "n0_00,", "path given twice"),
    (NEWT, "n0_00,", "../n0_00,", "leaves its folder"),
    (NEWT, "n0_00,", ",", "data row 1 is without id"),
    (NEWT, "n0_00,appearance", "n0_00,context", "'ml_age_synthetic' lies in several clusters"),
    (NEWT, "ml_age_synthetic,0", "ml_age_synthetic,2", "label '2'"),
    ("awa2/testclasses.txt", "\\Z", "wide+hoop", "'wide\\+hoop' is in trainclasses.txt and"),
    ("awa2/testclasses.txt", "bare.plate", "bear", "class 'bear' of the class lists is not in classes.txt"),
    ("awa2/testclasses.txt", ALL, "", "testclasses.txt: expected UTF-8 text, a name a line.*found \\[\\]"),
    ("awa2/classes.txt", "fine.hoop", "wide+hoop", "classes.txt: .* each once, .*wide\\+hoop'"),
    ("awa2/classes.txt", "fine.hoop", "fine hoop", "classes.txt: .*fine hoop'"),
    ("awa2/trainclasses.txt", "fine.hoop", "fine hoop", "trainclasses.txt: .*'fine hoop'"),
    ("awa2/predicates.txt", "black", "gr\xfcn", "predicates.txt: expected UTF-8 .*can't decode"),
    (MATRIX, "0", "no", "binary.txt: expected 6 x 85 .*'no'"),
    (MATRIX, "0 ", "", "binary.txt: expected 6 x 85 .*columns changed"),
    (MATRIX, "1", "3", "numbers 0 or 1"),
    (MATRIX, ALL, "", "binary.txt: expected 6 x 85 .*found \\(0, 1\\), values \\[\\]"),
    (MATRIX, ".*\n", "", "expected 6 x 85 .*found \\(5, 85\\)"),
    (SPLITS, ALL, '{"old": [0, 1], "new": [2]}', POSITIONS),
    (SPLITS, ALL, '{"old": [0, 1], "new": [1, 2, 3]}', POSITIONS),
    (SPLITS, ALL, '{"old": [0, 1, 2, 3], "new": []}', POSITIONS),
    (SPLITS, ALL, '{"old": [0, 1', POSITIONS),
    (SPLITS, ALL, "[" * 100_000, f"{POSITIONS}.*RecursionError"),
    (SPLITS, ALL, '{"old": [0, 1, 2, 3]}', f"{POSITIONS}.*'new'"),
    (SPLITS, ALL, '{"old": [0, "1"], "new": [2, 3]}', POSITIONS),
    (SPLITS, ALL, '{"old": 1, "new": 3}', POSITIONS),
    (SPLITS, ALL, "[[0, 1], [2, 3]]", POSITIONS),
    (SPLITS, ALL, "\xff", POSITIONS),
    (SPECIES, "filepath", "file", "'filepath' is missing"),
    (SPECIES, "images/alba_0.jpg", "/images/alba_0.jpg", "leaves its folder"),
    (SPECIES, "images/alba_1.jpg", "images/alba_0.jpg", "path given twice"),
    (SPECIES, "_0.jpg,Synthetica alba", "_0.jpg,", "data row 1 is without class"),
    (SPECIES, "\\Z", "28,a.jpg", "line 30 has 2 cells, the head 11"),
    (VARIANTS, "adult\n", "larva\n", "expected two variants, found adult, juvenile, larva"),
    (VARIANTS, "(.*species0_juvenile.*\n)+", "", "'species0' has one variant"),
    (VARIANTS, "species0,adult", "species0,  ", "data row 1 is without variant"),
    (VARIANTS, "species0,adult", ",adult", "data row 1 is without species"),
])  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_broken_files_are_refused(copy, file, old, new, message):
    name, _, inner = file.partition("/")
    path = copy(name) / inner
    text, changes = re.subn(old, new, path.read_text(), count=1)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        LOADERS[name](path.parent)
    assert changes == 1


def test_blanks_round_a_variant_are_none_of_it(data, copy):
    file = copy("intra_species") / "metadata.csv"
    file.write_text(file.read_text().replace("species0,adult", " species0 , adult", 3))
    pd.testing.assert_frame_equal(layout.intra_species(file.parent), layout.intra_species(data / "intra_species"))


@pytest.mark.parametrize("gone", [
    "fishnet/test.csv", "newt/newt2021_labels.csv", "awa2/predicates.txt", "awa2/predicate-matrix-binary.txt",
    "awa2/JPEGImages/bare+plate", "herbarium19/small-train", "plantdoc/test", "few_shot/metadata.csv",
    "intra_species/metadata.csv"])  # fmt: skip
def test_what_is_missing_is_named(copy, gone):
    name, _, inner = gone.partition("/")
    root = copy(name)
    (root / inner).rename(root / "elsewhere")
    with pytest.raises(FileNotFoundError, match=re.escape(inner)):
        LOADERS[name](root)


@pytest.mark.parametrize(("folder", "message"), [("awa2/JPEGImages/bare+plate", "holds no picture"),
                                                 ("plantdoc/test/grape leaf", "holds no picture"),
                                                 ("plantdoc/test", "holds no folder of a class")])  # fmt: skip
def test_a_folder_of_hidden_files_alone_is_empty(copy, folder, message):
    name, _, inner = folder.partition("/")
    root = copy(name)
    shutil.rmtree(root / inner)
    (root / inner / ".cache").mkdir(parents=True)
    (root / inner / ".DS_Store").touch()
    with pytest.raises(ValueError, match=f"{re.escape(inner)}: {message}"):
        LOADERS[name](root)


def test_plantdoc_refuses_a_test_class_without_training(copy):
    root = copy("plantdoc")
    (root / "test/grape leaf").rename(root / "test/grapes")
    with pytest.raises(ValueError, match="test: data row 11 has class 'grapes'; expected one of 'Apple leaf', "):
        layout.plantdoc(root)


def test_printed_numbers_agree_with_their_printed_means():
    table = printed("bioeval")
    for name, rows, columns in (("biological tasks", 7, 6), ("zero-shot species Top-1", 5, 11)):
        wide = table[table["table"] == name].pivot(index="row", columns="column", values="value")
        assert wide.shape == (rows, columns) and wide.notna().all(axis=None)
        assert np.abs(wide.drop(columns="mean").mean(axis=1) - wide["mean"]).max() <= 0.05 + 1e-9
    newt = table[table["row"] == "NeWT"].iloc[-8:]["value"].sum()
    assert newt == table.set_index(["row", "column"]).loc[("NeWT", "tasks (number)"), "value"].item() == 164
    assert not table.duplicated(["table", "row", "column"]).any()
