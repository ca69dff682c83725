"""BioCLIP 2's evaluation, loaders: the published layouts, read from the fixture and refused where they are broken."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.siblings import printed
from phoebi_lib.siblings.bioeval import fixture, folders, layout


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bioeval")
    fixture.write(folder)
    return folder


@pytest.fixture
def broken(data, tmp_path):
    """Return a function that copies a data set and changes one of its files by a function of its text."""

    def copy(name, file="", change=lambda text: text):
        root = tmp_path / name
        shutil.copytree(data / name, root)
        if file:
            (root / file).write_text(change((root / file).read_text()))
        return root

    return copy


def swap(old, new):
    def change(text):
        assert old in text
        return text.replace(old, new, 1)

    return change


def test_the_fixture_is_the_same_each_time(data, tmp_path):
    fixture.write(tmp_path)
    digests = [
        {str(f.relative_to(root)): hashlib.md5(f.read_bytes()).hexdigest() for f in root.rglob("*") if f.is_file()}
        for root in (data, tmp_path)
    ]
    assert digests[0] == digests[1] and len(digests[0]) == 306


def test_fishnet_drops_rows_without_labels_and_finds_files_of_web_addresses(data):
    table = layout.fishnet(data / "fishnet")
    assert table["split"].value_counts().to_dict() == {"train": 23, "test": 9}
    assert "Image_Library/Cichlidae/train_1.jpg" in table["path"].tolist()
    assert all((data / "fishnet" / path).is_file() for path in table["path"])
    first = table.iloc[2]
    assert first[list(layout.LABELS)].tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 1], "pelagic is 1"
    assert table.iloc[0]["FeedingPath"] == 0
    header = (data / "fishnet/train.csv").read_text().partition("\n")[0]
    assert header == (
        ",Unnamed: 0,species,image,SpecCode,Genus,Subfamily,Family,Order,Class,SuperClass,source,Folder,Troph,"
        "FeedingPath,Tropical,Temperate,Subtropical,Boreal,Polar,freshwater,saltwater,brackish,NewOrder,Frequency"
    )


def test_fishnet_finds_columns_by_name(data, broken):
    root = broken("fishnet")
    raw = pd.read_csv(root / "train.csv", dtype=str, keep_default_na=False)
    raw[sorted(raw.columns)].to_csv(root / "train.csv", index=False)
    pd.testing.assert_frame_equal(layout.fishnet(root), layout.fishnet(data / "fishnet"))


@pytest.mark.parametrize(("change", "message"), [
    (swap(",Boreal,", ",boreal,"), "no column Boreal"),
    (swap("benthic", "demersal"), "data row 1 has FeedingPath 'demersal'"),
    (swap("benthic,1.0", "benthic,2.0"), "Tropical"),
    (swap("benthic,1.0", "benthic,often"), "Tropical"),
    (swap(",inat,Gobiidae,", ",inat,../Gobiidae,"), "leaves the root"),
    (swap("train_2.jpg", "train_0.jpg"), "occurs twice"),
    (swap(",inat,Gobiidae,", ",inat,,"), "row 1 names no image or no Folder"),
    (lambda text: text.partition("\n")[0] + "\n", "has no rows"),
    (lambda text: text.partition("\n")[0] + "\n" + text.splitlines()[-1] + "\n", "no row has all"),
])  # fmt: skip
def test_fishnet_refuses(broken, change, message):
    with pytest.raises(ValueError, match=message):
        layout.fishnet(broken("fishnet", "train.csv", change))


def test_a_label_that_is_no_number_leaves_no_row_out_in_silence(broken):
    """Only an empty cell is a gap."""
    with pytest.raises(ValueError, match="brackish"):
        layout.fishnet(broken("fishnet", "test.csv", lambda text: text.replace(",0.0,,1", ",none,,1", 1)))


def test_newt(data, broken):
    table = layout.newt(data / "newt")
    assert table.groupby(["task", "split"]).size().unstack().to_numpy().tolist() == [[6, 10]] * 3
    assert table["subcluster"].eq("").sum() == 16 and set(table["cluster"]) == {"appearance", "behavior"}
    assert table[(table["task"] == "fgvcx_synthetic") & (table["split"] == "train")]["label"].sum() == 3
    assert all((data / "newt" / path).is_file() for path in table["path"])


@pytest.mark.parametrize(("change", "message"), [
    (swap("task_cluster", "cluster"), "no column task_cluster"),
    (swap(",train,", ",val,"), "split 'val'"),
    (swap("n0_01,", "n0_00,"), "occurs twice"),
    (swap("n0_00,", "../n0_00,"), "leaves the root"),
    (swap("n0_00,appearance", "n0_00,context"), "several clusters"),
    (swap("ml_age_synthetic,0", "ml_age_synthetic,2"), "label '2'"),
])  # fmt: skip
def test_newt_refuses(broken, change, message):
    with pytest.raises(ValueError, match=message):
        layout.newt(broken("newt", "newt2021_labels.csv", change))


def test_awa2_reads_both_forms_of_its_class_list(data, broken):
    animals = folders.awa2(data / "awa2")
    assert len(animals.attributes) == 85 and animals.attributes[:2] == ("black", "white") and animals.split == "custom"
    table = animals.table
    assert table.groupby("split")["class"].nunique().to_dict() == {"test": 2, "train": 4} and len(table) == 24
    row = (data / "awa2/predicate-matrix-binary.txt").read_text().splitlines()[1].split()
    assert table.loc[table["class"] == "fine+hoop", list(animals.attributes)].astype(str).eq(row).all(axis=None)
    unseen = table.loc[table["split"] == "test", list(animals.attributes)]
    assert (~unseen.any()).any(), "an attribute without a positive among unseen classes"
    root = broken("awa2")
    shutil.copy(root / "classes_bare.txt", root / "classes.txt")
    pd.testing.assert_frame_equal(folders.awa2(root).table, table)


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
    assert folders.awa2(tmp_path).split == name


@pytest.mark.parametrize(("file", "change", "message"), [
    ("testclasses.txt", lambda text: text + "wide+hoop\n", "'wide\\+hoop' is in trainclasses.txt and"),
    ("testclasses.txt", swap("bare+plate", "bear"), "class 'bear' of the class lists is not in classes.txt"),
    ("testclasses.txt", lambda text: "", "testclasses.txt: expected UTF-8 text of one name a line"),
    ("classes.txt", swap("fine+hoop", "wide+hoop"), "classes.txt: .* each once, .*; line 2 is '2\\\\twide\\+hoop'"),
    ("classes.txt", swap("fine+hoop", "fine hoop"), "classes.txt: .* line 2 is '2\\\\tfine hoop'"),
    ("trainclasses.txt", swap("fine+hoop", "fine hoop"), "trainclasses.txt: .* line 2 is 'fine hoop'"),
    ("predicate-matrix-binary.txt", swap("0", "no"), "binary.txt: expected 6 x 85 .*'no'"),
    ("predicate-matrix-binary.txt", swap("0 ", ""), "binary.txt: expected 6 x 85 .*columns changed"),
    ("predicate-matrix-binary.txt", swap("1", "3"), "numbers 0 or 1"),
    ("predicate-matrix-binary.txt", lambda text: text.partition("\n")[2], "expected 6 x 85"),
])  # fmt: skip
def test_awa2_refuses(broken, file, change, message):
    with pytest.raises(ValueError, match=message):
        folders.awa2(broken("awa2", file, change))


def test_awa2_reads_a_byte_order_mark_and_refuses_latin_1(data, broken):
    root = broken("awa2")
    for file in root.glob("*.txt"):
        file.write_text(file.read_text(), encoding="utf-8-sig")
    pd.testing.assert_frame_equal(folders.awa2(root).table, folders.awa2(data / "awa2").table)
    (root / "predicates.txt").write_bytes(b"gr\xfcn\n")
    with pytest.raises(ValueError, match="predicates.txt: expected UTF-8"):
        folders.awa2(root)


def test_herbarium19_counts_positions_in_the_order_of_texts(data):
    table = folders.herbarium19(data / "herbarium19")
    assert len(table) == 24 and table["path"].str.startswith("small-train/").all()
    assert table.groupby("class")["position"].first().to_dict() == {"0": 0, "1": 1, "10": 2, "2": 3}
    assert table.groupby("class")["old"].first().to_dict() == {"0": True, "1": True, "10": False, "2": False}


def test_the_published_old_list():
    old = folders.old_positions()
    assert len(old) == len(set(old)) == 341 and old == sorted(old) and (min(old), max(old)) == (0, 682)
    assert old[:8] == [0, 1, 3, 6, 7, 8, 10, 12] and 2 not in old and {589, 597, 680} <= set(old)
    assert hashlib.sha256(json.dumps(old).encode()).hexdigest()[:12] == "f3917b6f2cdb"


def test_herbarium19_takes_the_published_list_for_683_species_only(tmp_path, broken):
    for i in range(683):
        (tmp_path / "real" / "train" / str(i)).mkdir(parents=True)
        (tmp_path / "real" / "train" / str(i) / "a.jpg").touch()
    table = folders.herbarium19(tmp_path / "real")
    assert table["old"].sum() == 341 and table.set_index("class")["old"][["0", "1", "10", "100"]].tolist() == [
        True, True, False, True]  # fmt: skip
    root = broken("herbarium19")
    (root / "splits.json").unlink()
    with pytest.raises(ValueError, match="4 species, but the published list has 683"):
        folders.herbarium19(root)


@pytest.mark.parametrize("split", [{"old": [0, 1], "new": [2]}, {"old": [0, 1], "new": [1, 2, 3]},
                                   {"old": [0, 1, 2, 3], "new": []}, {"old": [0, 1], "new": [2, 4]}])  # fmt: skip
def test_herbarium19_refuses_a_split_that_does_not_name_each_position_once(broken, split):
    with pytest.raises(ValueError, match="each position 0 to 3 once"):
        folders.herbarium19(broken("herbarium19", "splits.json", lambda text: json.dumps(split)))


@pytest.mark.parametrize("text", [
    '{"old": [0, 1', '{"old": [0, 1, 2, 3]}', '{"old": ["0", "1"], "new": ["2", "3"]}', "[[0, 1], [2, 3]]", "7",
    '{"old": 1, "new": 3}', '{"old": [0, "1"], "new": [2, 3]}', "\xff", ""])  # fmt: skip
def test_herbarium19_names_a_split_that_is_none(broken, text):
    root = broken("herbarium19")
    (root / "splits.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match='splits.json: expected {"old": .numbers., "new": .numbers.} that name each'):
        folders.herbarium19(root)


def test_plantdoc_maps_test_classes_through_training(data, broken):
    table = folders.plantdoc(data / "plantdoc")
    test = table[table["split"] == "test"].groupby("class")[["label", "label_reference_code"]].first()
    assert test.loc["grape leaf"].tolist() == [3, 2] and test.loc["Corn rust leaf"].tolist() == [1, 1]
    assert table["split"].value_counts().to_dict() == {"train": 20, "test": 15}
    assert table["path"].str.contains("%20", regex=False).any() and table["path"].str.endswith(".JPG.jpg").any()
    train = table[table["split"] == "train"]
    assert (train["label"] == train["label_reference_code"]).all()
    root = broken("plantdoc")
    (root / "test/grape leaf").rename(root / "test/grapes")
    with pytest.raises(ValueError, match="test class 'grapes' has no training folder"):
        folders.plantdoc(root)


def test_few_shot_and_intra_species(data):
    species, variants = layout.few_shot(data / "few_shot"), layout.intra_species(data / "intra_species")
    assert species["class"].value_counts().tolist() == [8, 8, 8, 4] and "common_name" in species
    assert variants.groupby(["species", "variant"]).size().tolist() == [12] * 8
    assert all((data / "few_shot" / path).is_file() for path in species["path"])


@pytest.mark.parametrize(("name", "load", "change", "message"), [
    ("few_shot", layout.few_shot, swap("filepath", "file"), "no column filepath"),
    ("few_shot", layout.few_shot, swap("images/alba_0.jpg", "/images/alba_0.jpg"), "leaves the root"),
    ("few_shot", layout.few_shot, swap("images/alba_1.jpg", "images/alba_0.jpg"), "occurs twice"),
    ("few_shot", layout.few_shot, swap("_0.jpg,Synthetica alba", "_0.jpg,"), "no class for 'images/alba_0.jpg'"),
    ("intra_species", layout.intra_species, swap("adult\n", "larva\n"), "expected two variants, found adult, juvenile"),
    ("intra_species", layout.intra_species, lambda text: text.replace("species0,juvenile", "species0,adult"),
     "species 'species0' has one variant only"),
    ("intra_species", layout.intra_species, swap("species0,adult", "species0,"), "no variant for"),
])  # fmt: skip
def test_csv_of_species_and_variants_refuse(broken, name, load, change, message):
    with pytest.raises(ValueError, match=message):
        load(broken(name, "metadata.csv", change))


@pytest.mark.parametrize(("content", "message"), [
    (b"", "No columns"), (b"filepath,class\na.jpg,b,c\n", "line 2 has 3 cells, the head 2"),
    (b"filepath,class\na.jpg,b\nc.jpg\n", "line 3 has 1 cells, the head 2"),
    (b"filepath,class\na.jpg,gr\xfcn\n", "can't decode"),
    ("filepath,class\na.jpg,b\n".encode("utf-16"), "can't decode"),
])  # fmt: skip
def test_a_csv_that_cannot_be_read_is_named(tmp_path, content, message):
    (tmp_path / "metadata.csv").write_bytes(content)
    with pytest.raises(ValueError, match=f"metadata.csv: .*{message}.*; expected a CSV in UTF-8"):
        layout.few_shot(tmp_path)


def test_a_csv_may_start_with_a_byte_order_mark(tmp_path):
    (tmp_path / "metadata.csv").write_text("filepath,class\na.jpg,b\n", encoding="utf-8-sig")
    assert layout.few_shot(tmp_path).to_dict("records") == [{"path": "a.jpg", "class": "b"}]


@pytest.mark.parametrize(("name", "load", "gone"), [
    ("fishnet", layout.fishnet, "test.csv"), ("newt", layout.newt, "newt2021_labels.csv"),
    ("awa2", folders.awa2, "predicates.txt"), ("awa2", folders.awa2, "JPEGImages/bare+plate"),
    ("herbarium19", folders.herbarium19, "small-train"), ("plantdoc", folders.plantdoc, "test"),
    ("few_shot", layout.few_shot, "metadata.csv"), ("intra_species", layout.intra_species, "metadata.csv"),
])  # fmt: skip
def test_what_is_missing_is_named(broken, name, load, gone):
    root = broken(name)
    shutil.rmtree(root / gone) if (root / gone).is_dir() else (root / gone).unlink()
    with pytest.raises(FileNotFoundError, match=gone.replace("+", r"\+")):
        load(root)


@pytest.mark.parametrize(("name", "load", "folder"), [
    ("awa2", folders.awa2, "JPEGImages/bare+plate"), ("plantdoc", folders.plantdoc, "test/grape leaf"),
])  # fmt: skip
def test_a_class_without_pictures_is_refused(broken, name, load, folder):
    root = broken(name)
    for file in (root / folder).iterdir():
        file.unlink()
    (root / folder / ".DS_Store").touch()
    with pytest.raises(ValueError, match="holds no picture"):
        load(root)


def test_printed_numbers_agree_with_their_printed_means():
    table = printed("bioeval")
    for name, rows, columns in (("biological tasks", 7, 6), ("zero-shot species Top-1", 5, 11)):
        wide = table[table["table"] == name].pivot(index="row", columns="column", values="value")
        assert wide.shape == (rows, columns) and wide.notna().all(axis=None)
        assert np.abs(wide.drop(columns="mean").mean(axis=1) - wide["mean"]).max() <= 0.05 + 1e-9
    newt = table[table["row"] == "NeWT"].iloc[-8:]["value"].sum()
    assert newt == table.set_index(["row", "column"]).loc[("NeWT", "tasks (number)"), "value"].item() == 164
    assert not table.duplicated(["table", "row", "column"]).any()
