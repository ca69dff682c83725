"""The seven data sets, each in the folder and layout in which it is published: one row per image."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.siblings.tables import allow, inside, keyed, read_csv

#: FishNet's nine labels, in the order in which all of them have to be right.
LABELS = ("FeedingPath", "Tropical", "Temperate", "Subtropical", "Boreal", "Polar", "freshwater", "saltwater",
          "brackish")  # fmt: skip
_FEEDING = {"pelagic": 1, "benthic": 0, "": np.nan}
_PRESENT = {"1": 1, "1.0": 1, "0": 0, "0.0": 0, "": np.nan}
#: Number of Herbarium19's species; the Old ones of the published split ship with the library.
SPECIES = 683


def fishnet(root: str | Path) -> pd.DataFrame:
    """Return FishNet's images: ``path`` (below ``root``), ``split`` (train, test) and the nine ``LABELS``, 0/1.

    Rows without all nine labels are left out, of either split. An ``image`` that is a web address stands for the file
    after its last slash.

    Raises:
        FileNotFoundError: ``train.csv`` or ``test.csv`` is not there.
        ValueError: a missing column, another value than the labels can have, or a split without a labelled row; a
            labelled row without image or Folder, or with a path that leaves the root or is given twice.
    """
    parts = []
    for split in ("train", "test"):
        file = Path(root) / f"{split}.csv"
        table = read_csv(file, ("image", "Folder", *LABELS))
        for label in LABELS:
            known = _FEEDING if label == "FeedingPath" else _PRESENT
            table[label] = allow(table[label], known, file).map(known)
        table["image"] = table["image"].str.split("/").str[-1]
        table = table.assign(path="Image_Library/" + table["Folder"] + "/" + table["image"], split=split)
        labelled = table.dropna(subset=list(LABELS)).astype(dict.fromkeys(LABELS, np.int64))
        if (bad := labelled.index[(labelled["image"] == "") | (labelled["Folder"] == "")]).size:
            raise ValueError(f"{file}: data row {bad[0] + 1} has labels, and no image or no Folder")
        parts.append(keyed(labelled, f"{file}, rows with all labels"))
    return keyed(pd.concat(parts), f"{root}: train.csv and test.csv")[["path", "split", *LABELS]]


def newt(root: str | Path) -> pd.DataFrame:
    """Return NeWT's images: ``path, task, cluster, subcluster`` (may be ""), ``split``, ``label`` (0/1) and the rest.

    Raises:
        FileNotFoundError: ``newt2021_labels.csv`` is not there.
        ValueError: a missing column or cell, a label other than 0 and 1, another split than train and test, a task in
            two clusters, or an id that leaves the root or is given twice.
    """
    file = Path(root) / "newt2021_labels.csv"
    table = read_csv(file, ("id", "task_cluster", "task_subcluster", "task", "label", "split"))
    label = allow(table["label"], ("0", "1"), file).astype(np.int64)
    allow(table["split"], ("train", "test"), file)
    table = table.assign(path="newt2021_images/" + table["id"] + ".jpg", label=label, cluster=table["task_cluster"],
                         subcluster=table["task_subcluster"])  # fmt: skip
    clusters = table.groupby("task")["cluster"].nunique()
    if (clusters > 1).any():
        raise ValueError(f"{file}: task {clusters.idxmax()!r} lies in several clusters; expected one task_cluster each")
    return keyed(table, file, filled=("id", "task", "cluster"))


def few_shot(root: str | Path) -> pd.DataFrame:
    """Return a species set: ``path``, ``class`` and the further columns of its CSV (ranks, ``common_name``) as texts.

    Raises:
        FileNotFoundError: ``metadata.csv`` is not there.
        ValueError: a missing column or cell, or a path that leaves the root or is given twice.
    """
    file = Path(root) / "metadata.csv"
    raw = read_csv(file, ("filepath", "class"))
    return keyed(raw.assign(path=raw["filepath"]), file, filled=("class",))


def intra_species(root: str | Path) -> pd.DataFrame:
    """Return variants within species (life stages or sexes): ``path, species, variant`` and the rest.

    No layout of this data is published: ``metadata.csv`` has the columns ``image_path, species, variant`` (``ours``).

    Raises:
        FileNotFoundError: ``metadata.csv`` is not there.
        ValueError: a missing column or cell, not two variants in all, a species that lacks one of them, or a path that
            leaves the root or is given twice.
    """
    file = Path(root) / "metadata.csv"
    raw = read_csv(file, ("image_path", "species", "variant"))
    names = {name: raw[name].str.strip() for name in ("species", "variant")}
    table = keyed(raw.assign(path=raw["image_path"], **names), file, filled=names)
    if len(names := sorted(table["variant"].unique())) != 2:
        raise ValueError(f"{file}: expected two variants, found {', '.join(names)}")
    variants = table.groupby("species")["variant"].nunique()
    if (variants < 2).any():
        raise ValueError(f"{file}: species {variants.idxmin()!r} has one variant; leave it out or add the other")
    return table


def awa2(root: str | Path) -> pd.DataFrame:
    """Return AwA2's images: ``path, class, split, lists`` and an integer column, 0/1, per attribute of the class.

    The authors' five unseen classes are published nowhere that we know, so none ship here: the class lists on disk say
    which are unseen. ``lists`` tells of what kind those are, by their lengths: ``paper_shape`` (45 classes seen, 5
    unseen), ``official`` (40, 10) or ``custom``. Lines of ``classes.txt`` may be bare names or ``number TAB name``; a
    name holds no blank (``polar+bear``).

    Raises:
        FileNotFoundError: a text file or the folder of a class is not there.
        ValueError: class lists that overlap, are empty or name an unknown class; a matrix of another shape or with
            other values than 0 and 1; a line that is no name or occurs twice; a class without pictures.
    """
    root = Path(root)
    classes, attributes, seen, unseen = (
        _names(root / f"{name}.txt") for name in ("classes", "predicates", "trainclasses", "testclasses")
    )
    if both := [name for name in seen if name in unseen]:
        raise ValueError(f"{root}: {both[0]!r} is in trainclasses.txt and in testclasses.txt; unseen means in one only")
    if unknown := [name for name in (*seen, *unseen) if name not in classes]:
        raise ValueError(f"{root}: class {unknown[0]!r} of the class lists is not in classes.txt")
    file, shape = root / "predicate-matrix-binary.txt", (len(classes), len(attributes))
    what = f"{file}: expected {shape[0]} x {shape[1]} numbers 0 or 1, as classes and predicates have lines"
    # numpy warns of an empty file, which is refused below
    with _expected(what), warnings.catch_warnings(action="ignore"):
        matrix = np.loadtxt(file, ndmin=2, encoding="utf-8-sig")
        if matrix.shape != shape or not np.isin(matrix, (0, 1)).all():
            raise ValueError(f"found {matrix.shape}, values {np.unique(matrix)[:5].tolist()}")
    table = _pictures(root, "JPEGImages", [*seen, *unseen])
    kind = {(45, 5): "paper_shape", (40, 10): "official"}.get((len(seen), len(unseen)), "custom")
    table = table.assign(split=np.where(table["class"].isin(seen), "train", "test"), lists=kind)
    if clash := set(attributes) & set(table):
        raise ValueError(f"{root / 'predicates.txt'}: an attribute must not be called {min(clash)!r}; rename it")
    table = keyed(table.join(pd.DataFrame(matrix.astype(np.int64), classes, attributes), on="class"), root)
    table.attrs["attributes"] = tuple(attributes)
    return table


def herbarium19(root: str | Path) -> pd.DataFrame:
    """Return Herbarium19's training images: ``path, class, position, old``; validation images are not scored.

    ``position`` is the place of the class's folder in lexicographic order ("0", "1", "10", "100", ...), not the number
    it is called; ``old`` says whether that position is known. Old positions come from ``splits.json`` (``{"old": [...],
    "new": [...]}``) where the folder has one, else from the published list, which fits 683 species only.

    Raises:
        FileNotFoundError: neither ``small-train`` nor ``train`` is there.
        ValueError: no list fits, ``splits.json`` is none or does not name each position once, or a class without
            pictures.
    """
    root = Path(root)
    folder = next((name for name in ("small-train", "train") if (root / name).is_dir()), None)
    if folder is None:
        raise FileNotFoundError(f"{root}: neither small-train/ nor train/ is there")
    table = _pictures(root, folder)
    position, n = table.groupby("class").ngroup(), table["class"].nunique()
    if (file := root / "splits.json").is_file():
        with _expected(f'{file}: expected {{"old": [numbers], "new": [numbers]}} that name each position 0 to {n - 1} '
                       "once, neither list empty"):  # fmt: skip
            split = json.loads(file.read_text(encoding="utf-8-sig"))
            old, new = list(split["old"]), list(split["new"])
            if not old or not new or sorted(old + new) != list(range(n)):
                raise ValueError(f"found {old[:5]} and {new[:5]}")
    elif n == SPECIES:
        old = old_positions()
    else:
        raise ValueError(f"{root}: {n} species, but the published list has {SPECIES}; "
                         'write splits.json with {"old": [positions], "new": [positions]}')  # fmt: skip
    return keyed(table.assign(position=position, old=position.isin(old)), root)


def old_positions() -> list[int]:
    """Return the 341 positions, 0..682 in lexicographic order of folders, of Herbarium19's published Old species."""
    return pd.read_csv(Path(__file__).with_name("herbarium19_old.csv"))["position"].tolist()


def plantdoc(root: str | Path) -> pd.DataFrame:
    """Return PlantDoc's images: ``path, class, split, label, label_reference_code``.

    ``label`` is the place of the class among the training folders. ``label_reference_code`` is its place among the
    folders of its own split, as the published code has it: with a class that has no test image, all test classes that
    sort after it get the wrong number.

    Raises:
        FileNotFoundError: ``train`` or ``test`` is not there.
        ValueError: a test class that is not in training, or a class without pictures.
    """
    parts = []
    for split in ("train", "test"):
        part = _pictures(Path(root), split)
        parts.append(part.assign(split=split, label_reference_code=part.groupby("class").ngroup()))
    table, known = pd.concat(parts), pd.Index(parts[0]["class"].unique())
    allow(parts[1]["class"], known, Path(root) / "test")
    return keyed(table.assign(label=known.get_indexer(table["class"])), root)


def _names(file: Path) -> list[str]:
    """Return the name on each line that is not empty."""
    with _expected(f"{file}: expected UTF-8 text, a name a line, each once, without blanks, alone or after a number"):
        lines = pd.Series(file.read_text(encoding="utf-8-sig").splitlines(), dtype=object)
        lines = lines[lines.str.strip() != ""]
        names = lines.str.extract(r"^\s*(?:\d+\s+)?(\S+)\s*$", expand=False)
        bad = names.isna() | names.duplicated()
        if names.empty or bad.any():
            raise ValueError(f"found {lines[bad].tolist()[:3]}")
    return names.tolist()


def _pictures(root: Path, folder: str, classes: Iterable[str] = ()) -> pd.DataFrame:
    """Return ``path`` and ``class`` of each file in the folders of ``classes``, or of all in the order of texts."""
    rows = []
    for name in classes or _listed(root / folder, folders=True):
        own = inside(f"{folder}/{name}", root)
        if own != f"{folder}/{name}" or "/" in name:
            raise ValueError(f"{root}: class {name!r} is no name of a folder in {folder}/")
        rows += [(f"{own}/{file}", name) for file in _listed(root / own, folders=False)]
    return pd.DataFrame(rows, columns=["path", "class"])


def _listed(folder: Path, folders: bool) -> list[str]:
    # names end in .jpg, .JPG.jpg or in what was once a web query, so endings do not decide
    kind = Path.is_dir if folders else Path.is_file
    names = sorted(path.name for path in folder.iterdir() if kind(path) and path.name[0] != ".")
    if not names:
        raise ValueError(f"{folder}: holds no {'folder of a class' if folders else 'picture'}")
    return names


@contextmanager
def _expected(what: str) -> Iterator[None]:
    """Say what was expected where reading a file fails."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what}; {type(error).__name__}: {error}") from error


#: The loader of each data set, by the name of its folder.
LOADERS = {"fishnet": fishnet, "newt": newt, "awa2": awa2, "herbarium19": herbarium19, "plantdoc": plantdoc,
           "few_shot": few_shot, "intra_species": intra_species}  # fmt: skip
