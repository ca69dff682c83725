"""The data sets that come as one folder per class: AwA2, Herbarium19 and PlantDoc."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.siblings.bioeval.layout import keyed

#: Number of Herbarium19's species; the Old ones of the published split ship with the library.
SPECIES = 683


@dataclass(frozen=True)
class Animals:
    """AwA2: one row per image (``path, split, class`` and a 0/1 column per attribute), the attributes, the split."""

    table: pd.DataFrame
    attributes: tuple[str, ...]
    #: paper_shape (45 classes seen, 5 unseen), official (40, 10) or custom: which lists were found, by their lengths
    split: str


def awa2(root: str | Path) -> Animals:
    """Return AwA2; each image has the attributes of its class, and the class lists on disk say which are unseen.

    The authors' five unseen classes are published nowhere that we know, so none ship here. Lines of ``classes.txt`` may
    be bare names or ``number TAB name``; a name holds no blank (``polar+bear``).

    Raises:
        FileNotFoundError: a text file or the folder of a class is not there.
        ValueError: class lists that overlap, are empty or name an unknown class; a matrix of another shape or with
            other values than 0 and 1; a line that is no name or occurs twice; a class without pictures.
    """
    root = Path(root)
    classes, attributes, seen, unseen = (
        _names(root / f"{name}.txt") for name in ("classes", "predicates", "trainclasses", "testclasses")
    )
    if both := sorted(set(seen) & set(unseen)):
        raise ValueError(f"{root}: {both[0]!r} is in trainclasses.txt and in testclasses.txt; unseen means in one only")
    if unknown := [name for name in (*seen, *unseen) if name not in classes]:
        raise ValueError(f"{root}: class {unknown[0]!r} of the class lists is not in classes.txt")
    file = _present(root / "predicate-matrix-binary.txt")
    expected = (f"{file}: expected {len(classes)} x {len(attributes)} numbers 0 or 1, as classes.txt and "
                "predicates.txt have lines")  # fmt: skip
    try:
        matrix = np.loadtxt(file, ndmin=2, encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"{expected}; {error}") from error
    if matrix.shape != (len(classes), len(attributes)) or not np.isin(matrix, (0, 1)).all():
        raise ValueError(f"{expected}; found {matrix.shape}")
    labels = pd.DataFrame(matrix.astype(np.int64), classes, attributes)
    parts = []
    for split, names in (("train", seen), ("test", unseen)):
        images = _pictures(root, "JPEGImages", names)
        of_class = labels.loc[images["class"]].reset_index(drop=True)
        parts.append(pd.concat([images.assign(split=split), of_class], axis=1))
    split = {(45, 5): "paper_shape", (40, 10): "official"}.get((len(seen), len(unseen)), "custom")
    return Animals(keyed(pd.concat(parts), str(root)), tuple(attributes), split)


def herbarium19(root: str | Path) -> pd.DataFrame:
    """Return Herbarium19's training images: ``path, class, position, old``; validation images are not scored.

    ``position`` is the place of the class's folder in lexicographic order ("0", "1", "10", "100", ...), not the number
    it is called; ``old`` says whether that position is known. Old positions come from ``splits.json`` (``{"old": [...],
    "new": [...]}``) where the folder has one, else from the published list, which fits 683 species only.

    Raises:
        FileNotFoundError: neither ``small-train`` nor ``train`` is there.
        ValueError: no list fits, ``splits.json`` is none, or it does not name each position once.
    """
    root = Path(root)
    folder = next((name for name in ("small-train", "train") if (root / name).is_dir()), None)
    if folder is None:
        raise FileNotFoundError(f"{root}: neither small-train/ nor train/ is there")
    classes = _classes(root / folder)
    table = _pictures(root, folder, classes)
    if (root / "splits.json").is_file():
        old = _old_of(root / "splits.json", len(classes))
    elif len(classes) == SPECIES:
        old = old_positions()
    else:
        raise ValueError(f"{root}: {len(classes)} species, but the published list has {SPECIES}; "
                         'write splits.json with {"old": [positions], "new": [positions]}')  # fmt: skip
    position = table["class"].map({name: i for i, name in enumerate(classes)})
    return keyed(table.assign(position=position, old=position.isin(old)), str(root))


def old_positions() -> list[int]:
    """Return the 341 positions, 0..682 in lexicographic order of folders, of Herbarium19's published Old species."""
    return pd.read_csv(Path(__file__).with_name("herbarium19_old.csv"))["position"].tolist()


def _old_of(file: Path, n: int) -> list[int]:
    """Return the Old ones of ``n`` positions by a split of one's own."""
    try:
        parts = json.loads(file.read_text(encoding="utf-8-sig"))
        old, new = list(parts["old"]), list(parts["new"])
        if old and new and sorted(old + new) == list(range(n)):
            return old
        found = f"{old[:5]} and {new[:5]}"
    except (KeyError, TypeError, ValueError) as error:
        found = f"{type(error).__name__}: {error}"
    raise ValueError(f'{file}: expected {{"old": [numbers], "new": [numbers]}} that name each position 0 to {n - 1} '
                     f"once, neither list empty; found {found}")  # fmt: skip


def plantdoc(root: str | Path) -> pd.DataFrame:
    """Return PlantDoc's images: ``path, split, class, label, label_reference_code``.

    ``label`` is the place of the class among the training folders. ``label_reference_code`` is its place among the
    folders of its own split, as the published code has it: with a class that has no test image, all test classes that
    sort after it get the wrong number.

    Raises:
        FileNotFoundError: ``train`` or ``test`` is not there.
        ValueError: a test class that is not in training, or a class without pictures.
    """
    root, parts = Path(root), []
    known = {name: i for i, name in enumerate(_classes(root / "train"))}
    for split in ("train", "test"):
        classes = _classes(root / split)
        if unknown := [name for name in classes if name not in known]:
            raise ValueError(f"{root}: test class {unknown[0]!r} has no training folder")
        images, own = _pictures(root, split, classes), {name: i for i, name in enumerate(classes)}
        parts.append(images.assign(split=split, label=images["class"].map(known),
                                   label_reference_code=images["class"].map(own)))  # fmt: skip
    return keyed(pd.concat(parts), str(root))


def _names(file: Path) -> list[str]:
    """Return the last field of each line that is not empty."""
    expected = f"{file}: expected UTF-8 text of one name a line, each once, without blanks, alone or after a number"
    try:
        lines = _present(file).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{expected}; {error}") from error
    names: list[str] = []
    for number, line in enumerate(lines, 1):
        if not (fields := line.split()):
            continue
        *before, name = fields
        if name in names or len(before) > 1 or not all(one.isdigit() for one in before):
            raise ValueError(f"{expected}; line {number} is {line.strip()!r}")
        names.append(name)
    if not names:
        raise ValueError(f"{expected}; it has no line")
    return names


def _present(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; expected the folder of one data set in its published layout")
    return path


def _classes(folder: Path) -> list[str]:
    names = sorted(path.name for path in _present(folder).iterdir() if path.is_dir() and path.name[0] != ".")
    if not names:
        raise ValueError(f"{folder}: holds no folder of a class")
    return names


def _pictures(root: Path, folder: str, classes: Sequence[str]) -> pd.DataFrame:
    """Return ``path`` and ``class`` of each file."""
    # names end in .jpg, .JPG.jpg or in what was once a web query, so endings do not decide
    lines = []
    for name in classes:
        if "/" in name or name == "..":
            raise ValueError(f"{root}: class {name!r} leaves the root; expected the name of a folder")
        files = sorted(path.name for path in _present(root / folder / name).iterdir() if path.is_file())
        if not (files := [file for file in files if file[0] != "."]):
            raise ValueError(f"{root / folder / name}: holds no picture")
        lines += [(f"{folder}/{name}/{file}", name) for file in files]
    return pd.DataFrame(lines, columns=["path", "class"])
