"""Opening data sets: the layouts that are known, what is enforced and reported, and what is refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phoebi_lib import published, simulate
from phoebi_lib.catalogue import CODES, COMBINATIONS, FOUR_CLASS_CODES, FOUR_CLASS_COMBINATIONS
from phoebi_lib.datasets import Dataset, ImageError, open_dataset, write_manifests
from phoebi_lib.manifest_files import ManifestError, relative_image_path
from phoebi_lib.splits import dev_folds, lco_split, random_split, select_heldout


def fill(folder: Path, names=COMBINATIONS, n=9, side=8) -> Path:
    """Write ``n`` tiny pictures per combination; picture i of a folder has value i."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(1, n + 1):
            Image.fromarray(np.full((side, side), i, np.uint8)).save(folder / name / f"{i:05d}.jpg")
    return folder


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """A published layout with nine images per combination and all manifest files; tests must not change it."""
    root = tmp_path_factory.mktemp("published")
    fill(root / "images")
    fill(root / "images_4class", FOUR_CLASS_COMBINATIONS)
    outcome = write_manifests(root)
    assert outcome == dict.fromkeys(
        ("splits.json", "splits_lco.json", "lco_dev_folds.json", "splits_4class.json"), "written"
    )
    return root


@pytest.fixture
def small_release(monkeypatch):
    monkeypatch.setattr(published, "IMAGES_PER_COMBINATION", 9)
    monkeypatch.setattr("phoebi_lib.datasets.IMAGE_SIZE", 8)


def copy(layout: Path, target: Path) -> Path:
    """Return a copy that a test may damage; images are hard links."""
    for path in layout.rglob("*"):
        new = target / path.relative_to(layout)
        if path.is_dir():
            new.mkdir(parents=True, exist_ok=True)
        elif path.suffix == ".jpg":
            os.link(path, new)
        else:
            new.write_bytes(path.read_bytes())
    return target


def test_folder_of_combinations(tmp_path):
    fill(tmp_path / "slides", ["ka_fj", "bs", "bs_take2"], n=3)
    data = open_dataset(tmp_path / "slides")
    assert (data.name, data.evidence, data.codes, len(data), data.labelled) == ("slides", "user", CODES, 9, True)
    assert data.manifest["path"].tolist()[:4] == ["bs/00001.jpg", "bs/00002.jpg", "bs/00003.jpg", "bs_take2/00001.jpg"]
    assert data.Y[[0, 3, 6]].tolist() == [[1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]
    assert data.manifest["frame"].tolist() == [1, 2, 3] * 3 and data.facts["crops_per_frame"] == 1
    assert data.file(4) == tmp_path / "slides" / "bs_take2" / "00002.jpg" and data.file(4).is_file()
    pixels = data.read(4)
    assert pixels.shape == (3, 8, 8) and pixels.dtype == np.uint8 and (pixels == 2).all()
    assert data.notes[0] == "9 images, 3 combinations, 3 images each"
    assert open_dataset(str(tmp_path / "slides")).manifest.equals(data.manifest)


@pytest.mark.parametrize("inside", ["", "images", "data/images"])
def test_layouts_of_a_folder(tmp_path, inside):
    fill(tmp_path / inside, ["bs", "ka"], n=2)
    data = open_dataset(tmp_path)
    assert data.images == tmp_path / inside and len(data) == 4


def test_frames_of_crops(tmp_path):
    fill(tmp_path, ["bs"], n=7)
    manifest = open_dataset(tmp_path, crops_per_frame=3).manifest
    assert manifest["frame"].tolist() == [1, 1, 1, 2, 2, 2, 3]
    assert manifest["crop"].tolist() == [1, 2, 3, 1, 2, 3, 1]
    (tmp_path / "dataset.json").write_text(json.dumps({"crops_per_frame": 2}))
    assert open_dataset(tmp_path).manifest["frame"].tolist() == [1, 1, 2, 2, 3, 3, 4]
    assert open_dataset(tmp_path, crops_per_frame=7).manifest["frame"].max() == 1
    for wrong in (0, 1.5, True, "3"):
        with pytest.raises(ValueError, match="crops_per_frame"):
            open_dataset(tmp_path, crops_per_frame=wrong)


def test_select(tmp_path):
    data = open_dataset(fill(tmp_path / "a", ["bs", "ka"], n=3))
    some = data.select([4, 0])
    assert some.manifest["path"].tolist() == ["ka/00002.jpg", "bs/00001.jpg"] and len(some) == 2
    assert (some.read(0) == 2).all() and some.Y.shape == (2, 6)
    assert data.select(data.Y[:, 0] == 1).manifest["combination"].unique().tolist() == ["bs"]
    assert len(data.select([])) == 0
    with pytest.raises(IndexError, match=r"0\.\.5"):
        data.select([6])
    with pytest.raises(IndexError):
        data.select([-1])
    for mask in ([True], [True] * 7, np.ones((6, 1), dtype=bool)):
        with pytest.raises(ValueError, match=r"one entry per image \(6\)"):
            data.select(np.array(mask))
    with pytest.raises(TypeError, match="whole numbers.*float64"):
        data.select([0.0, 1.0])
    with pytest.raises(ValueError, match="shape"):
        data.select([[0, 1]])


def test_pictures_without_labels(tmp_path):
    for name in ("slide b.png", "slide a.tif", "slide c.jpg", "notes.txt"):
        path = tmp_path / name
        path.write_text("x") if path.suffix == ".txt" else Image.new("RGB", (5, 4)).save(path)
    data = open_dataset(tmp_path)
    assert data.labelled is False and data.manifest["combination"].tolist() == [""] * 3
    assert data.manifest["path"].tolist() == ["slide a.tif", "slide b.png", "slide c.jpg"]
    assert data.manifest["frame"].tolist() == [1, 2, 3] and data.read(0).shape == (3, 4, 5)
    with pytest.raises(ValueError, match="no labels.*combination folder"):
        _ = data.Y
    assert "labels unknown" in data.notes[0] and "notes.txt" in data.notes[1]
    with pytest.raises(ValueError, match="unlabelled"):
        random_split(data.manifest)


def test_other_species(tmp_path):
    fill(tmp_path, ["b_f", "k"], n=1)
    with pytest.raises(ValueError, match="'b_f': unknown species code 'b', 'f'; known codes: bs, bt"):
        open_dataset(tmp_path)
    assert open_dataset(tmp_path, codes=FOUR_CLASS_CODES).Y.tolist() == [[1, 1, 0, 0], [0, 0, 1, 0]]
    (tmp_path / "dataset.json").write_text(json.dumps({"codes": ["f", "k", "b"]}))
    assert open_dataset(tmp_path).Y.tolist() == [[1, 0, 1], [0, 1, 0]]


# published copies


def test_phoebi6_is_found_in_three_ways(layout, small_release, monkeypatch, tmp_path):
    monkeypatch.setenv("PHOEBI_DATA", str(tmp_path))
    monkeypatch.delenv("PHOEBI_PHOEBI6", raising=False)
    with pytest.raises(FileNotFoundError) as error:
        open_dataset("phoebi6")
    for text in (str(tmp_path / "phoebi6"), "default folder", "sochastic/PHOEBI", "PHOEBI_PHOEBI6", "root="):
        assert text in str(error.value)
    monkeypatch.setenv("PHOEBI_PHOEBI6", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere.*environment variable PHOEBI_PHOEBI6"):
        open_dataset("phoebi6")
    with pytest.raises(FileNotFoundError, match="elsewhere.*argument root"):
        open_dataset("phoebi6", root=tmp_path / "elsewhere")
    by_argument = open_dataset("phoebi6", root=layout)
    monkeypatch.setenv("PHOEBI_PHOEBI6", str(layout))
    by_variable = open_dataset("phoebi6")
    monkeypatch.delenv("PHOEBI_PHOEBI6")
    (tmp_path / "phoebi6" / "data").mkdir(parents=True)
    copy(layout, tmp_path / "phoebi6" / "data")
    by_default = open_dataset("phoebi6")
    assert by_default.images == tmp_path / "phoebi6" / "data" / "images"
    for data in (by_argument, by_variable, by_default):
        assert (data.name, data.evidence, len(data), data.size) == ("phoebi6", "paper", 360, 8)
        assert data.facts["crops_per_frame"] == 3 and data.manifest["frame"].max() == 3
        assert [note.split(":")[1] for note in data.notes[1:]] == [" agrees with the library's split"] * 3
    assert by_default.read(0).shape == (3, 8, 8)


def test_phoebi6_wants_3000_images(layout):
    with pytest.raises(ValueError, match=r"bs: 9 images, expected 3000.*missing: 00010\.jpg.* and 2986 more"):
        open_dataset("phoebi6", root=layout)


@pytest.mark.parametrize(
    "change", ["missing image", "renamed image", "missing folder", "extra folder", "other spelling"]
)
def test_phoebi6_must_be_complete(layout, small_release, tmp_path, change):
    root = copy(layout, tmp_path / "copy")
    folder = root / "images" / "ka_fj"
    if change == "missing image":
        (folder / "00004.jpg").unlink()
        expected = r"ka_fj: 8 images, expected 9.*missing: 00004\.jpg"
    elif change == "renamed image":
        (folder / "00004.jpg").rename(folder / "4.jpg")
        expected = r"missing: 00004\.jpg; not among them: 4\.jpg"
    elif change == "missing folder":
        folder.rename(root / "elsewhere")
        expected = "missing: ka_fj; not among them: none"
    elif change == "extra folder":
        fill(root / "images", ["bs_bt"], n=9)
        expected = "missing: none; not among them: bs_bt"
    else:
        folder.rename(root / "images" / "fj_ka")
        expected = "missing: ka_fj; not among them: fj_ka"
    with pytest.raises(ValueError, match=expected):
        open_dataset("phoebi6", root=root)
    reported = open_dataset(root)  # by its path it is a user's folder: reported, not enforced
    assert reported.evidence == "user" and not any("agrees" in note for note in reported.notes if "splits.json" in note)


def test_phoebi6_image_size(layout, monkeypatch):
    monkeypatch.setattr(published, "IMAGES_PER_COMBINATION", 9)
    data = open_dataset("phoebi6", root=layout)
    with pytest.raises(ImageError, match=r"bs.00001\.jpg: is 8 x 8 px, phoebi6 images are 1024 x 1024"):
        data.read(0)


def test_a_user_folder_cannot_pass_for_the_release(layout, tmp_path, small_release):
    root = copy(layout, tmp_path / "phoebi6")
    data = open_dataset(root)
    assert (data.name, data.evidence, data.size) == ("./phoebi6", "user", None)
    (root / "dataset.json").write_text(json.dumps({"simulated": True, "crops_per_frame": 3, "world": "shared"}))
    assert open_dataset(root).evidence == "simulated"
    assert open_dataset(root).facts["world"] == "shared"
    with pytest.raises(ValueError, match="simulated"):
        open_dataset("phoebi6", root=root)


def test_phoebi4(layout, monkeypatch):
    monkeypatch.setattr("phoebi_lib.datasets._PHOEBI4_IMAGES", 126)
    data = open_dataset("phoebi4", root=layout)
    assert (data.codes, len(data), data.evidence, data.images.name) == (FOUR_CLASS_CODES, 126, "paper", "images_4class")
    assert np.array_equal(data.Y[data.manifest["combination"] == "b_f"], data.Y[data.manifest["combination"] == "f_b"])
    assert data.notes[1] == "splits_4class.json: agrees with the library's split"
    monkeypatch.setenv("PHOEBI_PHOEBI4", str(layout))
    assert len(open_dataset("phoebi4")) == 126


def test_phoebi4_of_other_counts_is_not_the_papers(layout, monkeypatch):
    data = open_dataset("phoebi4", root=layout)
    assert data.evidence == "user"
    assert "not the published 14,000 images in 14 folders: evidence is user" in data.notes
    for images, folders in ((126, 13), (125, 14)):
        monkeypatch.setattr("phoebi_lib.datasets._PHOEBI4_IMAGES", images)
        monkeypatch.setattr("phoebi_lib.datasets._PHOEBI4_FOLDERS", folders)
        assert open_dataset("phoebi4", root=layout).evidence == "user"


# manifest files


def test_written_manifest_files(layout):
    data = open_dataset(layout, crops_per_frame=3)
    splits = json.loads((layout / "splits.json").read_text())
    assert list(splits) == ["class_names", "train_frac", "val_frac", "test_frac", "splits", "combo_to_label"]
    assert splits["class_names"] == list(CODES) and splits["combo_to_label"]["ka_fj"] == [0, 0, 1, 1, 0, 0]
    assert splits["splits"]["val"][0] == {
        "path": "data/images/bs/00004.jpg",
        "label": [1, 0, 0, 0, 0, 0],
        "combo": "bs",
    }
    lco = json.loads((layout / "splits_lco.json").read_text())
    held, trained = select_heldout(COMBINATIONS, 1337)
    assert (lco["seed"], lco["heldout_combos"], lco["trained_combos"]) == (1337, held, trained)
    assert lco["heldout_counts_by_order"] == {"1": 1, "2": 2, "3": 3, "4": 2, "6": 1}
    rows = lco_split(data.manifest, 1337)
    assert [entry["path"] for entry in lco["splits"]["val"]] == [
        f"data/images/{path}" for path in data.manifest["path"].iloc[rows["val"]]
    ]
    folds = json.loads((layout / "lco_dev_folds.json").read_text())
    assert [fold["dev_combos"] for fold in folds["folds"]] == [fold["dev"] for fold in dev_folds(trained)]
    assert folds["species_without_pure_culture_in_every_fold"] == ["bt"] and folds["folds"][1]["dev_orders"] == [2, 3]
    four = json.loads((layout / "splits_4class.json").read_text())
    assert four["class_names"] == list(FOUR_CLASS_CODES)
    assert four["splits"]["test"][0]["path"] == "images_4class/b/00007.jpg"


def test_write_manifests_says_what_it_cannot(tmp_path):
    fill(tmp_path / "images", ["bs", "ka"], n=2)
    outcome = write_manifests(tmp_path, crops_per_frame=1)
    assert "at least 3" in outcome["splits.json"] and "cannot hold out" in outcome["splits_lco.json"]
    assert not list(tmp_path.glob("*.json"))
    (tmp_path / "dataset.json").write_text(json.dumps({"crops_per_frame": 1}))
    fill(tmp_path / "images", ["fj"], n=3)
    for name in ("bs", "ka"):
        Image.new("L", (4, 4)).save(tmp_path / "images" / name / "00003.jpg")
    assert write_manifests(tmp_path)["splits.json"] == "written"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset.json", "images", "splits.json"]


def edit(root: Path, file: str, change) -> Path:
    content = json.loads((root / file).read_text())
    change(content)
    (root / file).write_text(json.dumps(content))
    return root


def test_old_key_spelling_is_accepted(layout, tmp_path, small_release):
    def old(content):
        content["video_to_label"] = content.pop("combo_to_label")
        for entry in (entry for part in content["splits"].values() for entry in part):
            entry["video"] = entry.pop("combo")
            entry["path"] = entry["path"].removeprefix("data/")

    root = edit(copy(layout, tmp_path / "copy"), "splits.json", old)
    assert "splits.json: agrees with the library's split" in open_dataset("phoebi6", root=root).notes


def swap(content):
    content["splits"]["val"], content["splits"]["test"] = content["splits"]["test"], content["splits"]["val"]


def unknown_image(content):
    content["splits"]["test"][1]["path"] = "data/images/bs/00010.jpg"


def reorder(content):
    content["splits"]["train"].reverse()


def drop_fold(content):
    content["folds"].pop()


@pytest.mark.parametrize(
    ("file", "change"), [("splits.json", swap), ("splits_lco.json", reorder), ("lco_dev_folds.json", drop_fold)]
)
def test_other_splits_are_enforced_for_phoebi6_only(layout, tmp_path, small_release, file, change):
    root = edit(copy(layout, tmp_path / "copy"), file, change)
    with pytest.raises(ManifestError, match=f"{file} differs from the published rule"):
        open_dataset("phoebi6", root=root)
    assert any(note.startswith(f"{file}: differs") for note in open_dataset(root, crops_per_frame=3).notes)
    (root / file).unlink()
    assert f"{file}: absent" in open_dataset("phoebi6", root=root).notes


def set_entry(key, value):
    return lambda content: content["splits"]["test"][1].__setitem__(key, value)


FAULTS = {
    "leaves the root": (set_entry("path", "data/images/../../../etc/passwd"), r"test\[1\]: path .* leaves"),
    "absolute": (set_entry("path", "/etc/passwd"), "leaves"),
    "drive": (set_entry("path", "C:\\images\\bs\\00001.jpg"), "leaves"),
    "unknown combination": (
        lambda content: content["splits"]["test"][1].update(path="data/images/zz/00001.jpg", combo="zz"),
        "unknown species code 'zz'",
    ),
    "other combination": (set_entry("combo", "ka"), "does not match the path"),
    "twice": (set_entry("path", "data/images/bs/00007.jpg"), "'bs/00007.jpg' is listed twice"),
    "two spellings": (set_entry("path", "images/bs//./00007.jpg"), "'bs/00007.jpg' is listed twice"),
    "label": (set_entry("label", [0, 1, 0, 0, 0, 0]), r"label .* expected \[1, 0, 0, 0, 0, 0\]"),
    "no path": (set_entry("path", None), "non-empty string"),
    "no combination": (set_entry("combo", None), "'combo'"),
    "entry": (lambda content: content["splits"]["test"].insert(0, "bs/00001.jpg"), "expected an object"),
    "no part": (lambda content: content["splits"].pop("val"), "lists train, val and test"),
    "class order": (lambda content: content["class_names"].reverse(), "class_names"),
    "label map": (lambda content: content["combo_to_label"].update(bs=[0, 1, 0, 0, 0, 0]), r"combo_to_label\['bs'\]"),
    "no label map": (lambda content: content.pop("combo_to_label"), "video_to_label"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_manifest_files_are_refused_everywhere(layout, tmp_path, fault):
    change, text = FAULTS[fault]
    root = edit(copy(layout, tmp_path / "copy"), "splits.json", change)
    with pytest.raises(ManifestError, match=rf"splits\.json.*{text}"):
        open_dataset(root, crops_per_frame=3)


def test_listed_images_that_are_absent(layout, tmp_path, small_release):
    root = edit(copy(layout, tmp_path / "copy"), "splits.json", unknown_image)
    with pytest.raises(
        ManifestError, match=r"splits\.json lists 1 images that are not in the folder \(bs/00010\.jpg\)"
    ):
        open_dataset("phoebi6", root=root)
    assert any("lists 1 images that are not" in note for note in open_dataset(root, crops_per_frame=3).notes)


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "", "[" * 100_000])
def test_manifest_file_that_is_no_object(layout, tmp_path, text):
    root = copy(layout, tmp_path / "copy")
    (root / "splits.json").write_text(text)
    with pytest.raises(ManifestError, match=r"splits\.json"):
        open_dataset(root)


@pytest.mark.parametrize(
    "path", ["bs/00001.jpg", "images/bs/00001.jpg", "data/images/bs/00001.jpg", "data/bs/00001.jpg"]
)
def test_published_prefixes(path):
    assert relative_image_path(path, "here") == "bs/00001.jpg"


@pytest.mark.parametrize(
    "facts",
    [
        {"crops_per_frame": 0},
        {"crops_per_frame": "3"},
        {"codes": "bs"},
        {"codes": [1]},
        [],
        {"focus": float("nan")},
        {"lamps": [{"lamp": float("inf")}]},
        None,
    ],
)
def test_faulty_dataset_json(tmp_path, facts):
    fill(tmp_path, ["bs"], n=1)
    (tmp_path / "dataset.json").write_text('{"codes": [' if facts is None else json.dumps(facts))
    with pytest.raises(ManifestError, match=r"dataset\.json"):
        open_dataset(tmp_path)


# folders that are refused


def test_missing_and_empty_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"sim:smoke, sim:default, phoebi6 or phoebi4.*folder .*nothing"):
        open_dataset(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="holds no pictures"):
        open_dataset(tmp_path)
    (tmp_path / "bs").mkdir()
    (tmp_path / "bs" / "readme.txt").write_text("x")
    with pytest.raises(FileNotFoundError, match="holds no pictures"):
        open_dataset(tmp_path)
    fill(tmp_path, ["ka"], n=1)
    with pytest.raises(ValueError, match="bs holds no pictures; remove it"):
        open_dataset(tmp_path)
    with pytest.raises(ValueError, match="root= goes with"):
        open_dataset(tmp_path, root=tmp_path)


def test_unknown_folder_is_named(tmp_path):
    fill(tmp_path, ["bs", "thumbnails"], n=1)
    with pytest.raises(ValueError, match="'thumbnails': unknown species code.*bs, bt, fj, ka, mx, pf"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("other", ["00001.png", "00001.JPG", "1.jpg", "00001.jpeg"])
def test_two_pictures_of_one_name(tmp_path, other):
    fill(tmp_path, ["bs"], n=2)
    Image.new("RGB", (4, 4)).save(tmp_path / "bs" / other)
    with pytest.raises(ValueError, match=f"holds both .*{other}|holds both {other}"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("other", ["00001.png", "1.jpg"])
def test_two_pictures_of_one_name_without_labels(tmp_path, other):
    for name in ("00001.jpg", other):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    with pytest.raises(ValueError, match="two pictures of one name; keep one of them"):
        open_dataset(tmp_path)


def test_a_name_that_is_not_utf8_is_refused_and_shown(tmp_path):
    fill(tmp_path, ["bs"], n=1)
    odd = os.fsencode(tmp_path / "bs") + b"/caf\xe9.jpg"
    with open(odd, "wb") as stream:
        stream.write((tmp_path / "bs" / "00001.jpg").read_bytes())
    with pytest.raises(ValueError, match=r"bs/caf.udce9\.jpg' is not valid UTF-8; rename") as caught:
        open_dataset(tmp_path)
    assert str(caught.value).isascii()


@pytest.mark.parametrize("inside", ["images", "data/images"])
def test_pictures_beside_the_image_folder_are_noted(tmp_path, inside):
    fill(tmp_path / inside, ["bs"], n=2)
    assert not any("beside" in note for note in open_dataset(tmp_path).notes)
    (tmp_path / "readme.txt").write_text("x")
    for name in ("stray.png", "stray 2.jpg", ".hidden.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    data = open_dataset(tmp_path)
    note = f"{tmp_path.name}: 2 pictures beside images/ were left out (stray 2.jpg, stray.png)"
    assert len(data) == 2 and data.notes.count(note) == 1


def test_pictures_in_two_kinds_of_place(tmp_path):
    fill(tmp_path, ["bs"], n=1)
    Image.new("RGB", (4, 4)).save(tmp_path / "stray.png")
    with pytest.raises(ValueError, match=r"beside \(stray.png\) and inside \(bs/\)"):
        open_dataset(tmp_path)


def test_names_that_do_not_tell_the_frame(tmp_path):
    fill(tmp_path, ["bs"], n=3)
    (tmp_path / "bs" / "00003.jpg").rename(tmp_path / "bs" / "last.jpg")
    assert open_dataset(tmp_path).manifest["frame"].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=r"'last\.jpg' is not a number"):
        open_dataset(tmp_path, crops_per_frame=3)


def test_extra_files_are_noted(tmp_path):
    fill(tmp_path, ["bs"], n=1)
    (tmp_path / "bs" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "bs" / ".hidden.jpg").write_bytes(b"x")
    data = open_dataset(tmp_path)
    assert len(data) == 1 and "bs: 1 entries that are not pictures were left out (Thumbs.db)" in data.notes


@pytest.mark.parametrize("kind", ["image", "folder", "images"])
def test_links_that_leave_the_root(tmp_path, kind):
    outside = fill(tmp_path / "outside", ["bs", "ka"], n=2)
    root = tmp_path / "root"
    root.mkdir()
    if kind == "images":
        (root / "images").symlink_to(outside)
    elif kind == "folder":
        fill(root, ["fj"], n=1)
        (root / "bs").symlink_to(outside / "bs")
    else:
        fill(root, ["fj"], n=1)
        (root / "fj" / "00002.jpg").symlink_to(outside / "bs" / "00001.jpg")
    with pytest.raises(ValueError, match="link that leaves"):
        open_dataset(root)


def test_links_inside_the_root_are_fine(tmp_path):
    fill(tmp_path / "root", ["fj"], n=1)
    (tmp_path / "root" / "fj" / "00002.jpg").symlink_to(tmp_path / "root" / "fj" / "00001.jpg")
    (tmp_path / "link").symlink_to(tmp_path / "root")
    assert len(open_dataset(tmp_path / "link")) == 2


def test_hand_made_manifest_cannot_leave_the_folder(tmp_path):
    data = open_dataset(fill(tmp_path, ["bs"], n=1))
    for path in ("../secret.jpg", "/etc/passwd"):
        with pytest.raises(ValueError, match="leaves the image folder"):
            Dataset("mine", data.images, data.manifest.assign(path=path)).read(0)


def test_verify_lists_every_bad_image(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOEBI_QUIET", "1")
    fill(tmp_path, ["bs", "ka"], n=3, side=64)
    data = open_dataset(tmp_path)
    assert data.verify() == []
    (tmp_path / "bs" / "00002.jpg").write_bytes(b"")
    whole = (tmp_path / "ka" / "00001.jpg").read_bytes()
    (tmp_path / "ka" / "00001.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "ka" / "00003.jpg").unlink()
    problems = data.verify()
    assert len(problems) == 3
    for problem, text in zip(problems, ["00002.jpg: the file is empty", "truncated", "no such file"], strict=True):
        assert text in problem
    with pytest.raises(ImageError, match="empty"):
        data.read(1)


# simulated


@pytest.fixture
def quick_simulator(monkeypatch, tmp_path):
    """Replace the drawing of fields; the calls are what is of interest here."""
    calls = []

    def simulate_dataset(
        root, *, name, fields_per_combination, crops_per_field, world, seed, combinations, codes, first_frame
    ):
        calls.append((name, fields_per_combination, crops_per_field, world))
        start = (first_frame - 1) * crops_per_field
        for combination in combinations:
            (root / "images" / combination).mkdir(parents=True, exist_ok=True)
            for i in range(start + 1, start + fields_per_combination * crops_per_field + 1):
                Image.new("RGB", (4, 4)).save(root / "images" / combination / f"{i:05d}.jpg")
        write_manifests(root, crops_per_frame=crops_per_field)
        facts = {
            "name": name,
            "simulated": True,
            "crops_per_frame": crops_per_field,
            "fields_per_combination": fields_per_combination,
            "first_frame": first_frame,
            "combinations": list(combinations),
            "codes": list(codes),
            "parameters_sha256": simulate.parameters_sha256(),
            "world": world,
            "seed": seed,
        }
        (root / "dataset.json").write_text(json.dumps(facts))

    monkeypatch.setattr(simulate, "simulate_dataset", simulate_dataset)
    sizes = {"smoke": {"fields_per_combination": 3, "crops_per_field": 1}}
    sizes["default"] = {"fields_per_combination": 3, "crops_per_field": 2}
    monkeypatch.setattr(simulate, "SIMULATED", sizes)
    monkeypatch.setenv("PHOEBI_DATA", str(tmp_path))
    return calls


def test_simulated_images_are_made_once(quick_simulator, tmp_path):
    data = open_dataset("sim:default")
    assert quick_simulator == [("sim:default", 3, 2, "combination")]
    assert (data.name, data.evidence, len(data), data.images) == (
        "sim:default",
        "simulated",
        240,
        tmp_path / "sim-default" / "images",
    )
    assert data.manifest["frame"].tolist()[:6] == [1, 1, 2, 2, 3, 3]
    assert data.facts["parameters_sha256"] == simulate.parameters_sha256()
    assert len(open_dataset("sim:default")) == 240 and len(quick_simulator) == 1


@pytest.mark.parametrize("damage", ["image", "dataset.json", "hash", "seed"])
def test_incomplete_simulations_are_finished(quick_simulator, tmp_path, damage):
    open_dataset("sim:smoke")
    folder = tmp_path / "sim-smoke"
    if damage == "image":
        (folder / "images" / "pf" / "00002.jpg").unlink()
    elif damage == "dataset.json":
        (folder / "dataset.json").unlink()
    elif damage == "seed":
        edit(folder, "dataset.json", lambda facts: facts.update(seed=7))
    else:
        edit(folder, "dataset.json", lambda facts: facts.update(parameters_sha256="0" * 64))
    assert open_dataset("sim:smoke").facts["seed"] == 1337
    assert len(open_dataset("sim:smoke")) == 120
    assert len(quick_simulator) == 2


def test_a_set_of_another_seed_does_not_open_by_name(quick_simulator, monkeypatch, tmp_path):
    """The simulator itself refuses to go on in such a folder; it has to be asked."""
    open_dataset("sim:smoke")
    edit(tmp_path / "sim-smoke", "dataset.json", lambda facts: facts.update(seed=7))
    monkeypatch.setattr(simulate, "simulate_dataset", simulate.writer.simulate_dataset)
    with pytest.raises(simulate.SimulationMismatchError, match="seed is 7, asked for 1337"):
        open_dataset("sim:smoke")


def test_worlds_and_roots(quick_simulator, tmp_path):
    shared = open_dataset("sim:smoke:shared", root=tmp_path / "mine")
    assert quick_simulator == [("sim:smoke:shared", 3, 1, "shared")] and shared.facts["world"] == "shared"
    assert shared.images == tmp_path / "mine" / "images"
    open_dataset("sim:smoke:shared")
    assert (tmp_path / "sim-smoke-shared" / "dataset.json").is_file()


def test_further_frames_of_pure_cultures_follow_those_of_the_profile(quick_simulator, monkeypatch, tmp_path):
    monkeypatch.setattr(
        simulate, "PURE", {"smoke": {"fields_per_combination": 2, "crops_per_field": 1, "first_frame": 4}}
    )
    pure = open_dataset("sim:smoke:pure")
    assert quick_simulator == [("sim:smoke:pure", 2, 1, "combination")]
    assert pure.manifest["combination"].unique().tolist() == sorted(CODES)
    assert pure.manifest["frame"].unique().tolist() == [4, 5], "no frame of sim:smoke, which has 1 to 3"
    open_dataset("sim:smoke:pure")
    assert len(quick_simulator) == 1
    (tmp_path / "sim-smoke-pure" / "images" / "ka" / "00005.jpg").unlink()
    open_dataset("sim:smoke:pure")
    assert len(quick_simulator) == 2


@pytest.mark.parametrize("name", ["sim:", "sim", "sim:paper", "sim:smoke:other", "sim:smoke:shared:x"])
def test_unknown_simulations(quick_simulator, name):
    with pytest.raises(ValueError, match="known: sim:smoke, sim:default"):
        open_dataset(name)
    with pytest.raises(ValueError, match="fixed"):
        open_dataset("sim:smoke", codes=("bs",))
    assert not quick_simulator
