"""The fixture: one folder per data set in the published layouts, with drawn pictures. Nothing here was ever alive."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.siblings.bioeval.layout import LABELS
from phoebi_lib.siblings.drawing import looks, picture, save

Look = tuple[float, float, float]
_HEADER = ("", "Unnamed: 0", "species", "image", "SpecCode", "Genus", "Subfamily", "Family", "Order", "Class",
           "SuperClass", "source", "Folder", "Troph", *LABELS, "NewOrder", "Frequency")  # fmt: skip


def write(folder: Path) -> None:
    """Write all seven data sets below ``folder``, the same bytes each time."""
    for seed, one in enumerate((_fishnet, _newt, _awa2, _herbarium19, _plantdoc, _few_shot, _intra_species)):
        one(folder / one.__name__[1:], np.random.default_rng(seed))


def _draw(path: Path, look: Look, rng: np.random.Generator) -> None:
    save(picture(look, rng, size=64), path)


def _csv(path: Path, rows: list, columns: tuple[str, ...]) -> None:
    pd.DataFrame(rows, columns=list(columns)).to_csv(path, index=False)


def _fishnet(root: Path, rng: np.random.Generator) -> None:
    """Three ways of life, one look each; the last row of either split has no labels, one image is a web address."""
    lives = (("benthic", 1, 0, 1, 0, 0, 0, 1, 0), ("benthic", 1, 1, 1, 0, 0, 0, 1, 0),
             ("pelagic", 0, 1, 0, 1, 0, 1, 0, 1))  # fmt: skip
    for split, n in (("train", 24), ("test", 10)):
        rows = []
        for i in range(n):
            life, family = i % 3, ("Gobiidae", "Cichlidae")[i % 2]
            labels = [""] * 9 if i == n - 1 else [lives[life][0], *map(float, lives[life][1:])]
            name = f"{split}_{i}.jpg"
            _draw(root / "Image_Library" / family / name, looks(3)[life], rng)
            image, source = (f"https://example.org/fish/{name}", "fishbase") if i == 1 else (name, "inat")
            rows.append([i, i, f"synthetic {i}", image, i, "Synthetica", "", family, "Perciformes", "Actinopterygii",
                         "Osteichthyes", source, family, 3.0, *labels, "", 1])  # fmt: skip
        _csv(root / f"{split}.csv", rows, _HEADER)


def _newt(root: Path, rng: np.random.Generator) -> None:
    """Three tasks of 10 training and 6 test images; one without a subcluster, one with 7 against 3 in training."""
    tasks = (("ml_age_synthetic", "appearance", "age"), ("fgvcx_synthetic", "appearance", "species"),
             ("ml_bio_synthetic", "behavior", ""))  # fmt: skip
    rows = []
    for number, (task, cluster, subcluster) in enumerate(tasks):
        for i in range(16):
            split, label = ("train" if i < 10 else "test"), int(i % 10 < 3) if number == 1 else i % 2
            _draw(root / "newt2021_images" / f"n{number}_{i:02d}.jpg", looks(12)[3 + 2 * number + label], rng)
            text = ("not_" if not label else "") + task
            rows.append([f"n{number}_{i:02d}", cluster, subcluster, task, label, text, split, 64, 64])
    _csv(root / "newt2021_labels.csv", rows, ("id", "task_cluster", "task_subcluster", "task", "label", "text_label",
                                              "split", "height", "width"))  # fmt: skip


def _awa2(root: Path, rng: np.random.Generator) -> None:
    """Six classes; an attribute says that hue, fineness or spots of the class's look lie above a threshold."""
    classes = ["wide+hoop", "fine+hoop", "dotted+band", "plain+band", "spotted+plate", "bare+plate"]
    own = dict(zip(classes, looks(6), strict=True))
    thresholds = np.linspace(0.05, 0.95, 85)
    matrix = np.array([[int(own[name][j % 3] > thresholds[j]) for j in range(85)] for name in classes])
    for name in classes:
        for i in range(4):
            _draw(root / "JPEGImages" / name / f"{name}_{i}.jpg", own[name], rng)
    attributes = ["black", "white", *(f"synthetic{j}" for j in range(3, 86))]
    texts = {"classes": "".join(f"{i:8d}\t{name}\n" for i, name in enumerate(classes, 1)),
             "classes_bare": "".join(f"{name}\n" for name in classes),
             "predicates": "".join(f"{i:8d}\t{name}\n" for i, name in enumerate(attributes, 1)),
             "predicate-matrix-binary": "".join(" ".join(map(str, row)) + "\n" for row in matrix),
             "predicate-matrix-continuous": "".join(" ".join(f"{100.0 * v:.2f}" for v in row) + "\n" for row in matrix),
             "trainclasses": "\n".join(classes[:4]) + "\n", "testclasses": "\n".join(classes[4:]) + "\n"}  # fmt: skip
    for name, text in texts.items():
        (root / f"{name}.txt").write_text(text)


def _herbarium19(root: Path, rng: np.random.Generator) -> None:
    """Species "0", "1", "2", "10"; in lexicographic order "10" is position 2, and positions 2 and 3 are New."""
    for name, look in zip(("0", "1", "2", "10"), looks(10)[6:], strict=True):
        for split, n in (("small-train", 6), ("small-validation", 1)):
            for i in range(n):
                _draw(root / split / name / f"{name}_{i}.jpg", look, rng)
    (root / "splits.json").write_text(json.dumps({"old": [0, 1], "new": [2, 3]}) + "\n")


def _plantdoc(root: Path, rng: np.random.Generator) -> None:
    """Four classes; "Tomato two spotted spider mites leaf" has no test image and "grape leaf" sorts after it."""
    classes = ("Apple leaf", "Corn rust leaf", "Tomato two spotted spider mites leaf", "grape leaf")
    ends = ("0.jpg", "a%20leaf.jpeg", "2.JPG.jpg", "3&4.png", "5.jpg", "6.jpg")
    for name, look in zip(classes, looks(14)[10:], strict=True):
        mites = name.startswith("Tomato")
        for split, n in (("train", 2 if mites else 6), ("test", 0 if mites else 5)):
            for end in ends[:n]:
                _draw(root / split / name / f"{split}_{end}", look, rng)


def _few_shot(root: Path, rng: np.random.Generator) -> None:
    """Three classes of 8 images and one of 4, which is too few for five shots and a test."""
    rows, ranks = [], ("Syntheta", "Drawnophyta", "Drawnopsida", "Drawnales", "Drawnaceae", "Synthetica")
    for number, (epithet, n) in enumerate((("alba", 8), ("brevis", 8), ("crassa", 8), ("densa", 4))):
        for i in range(n):
            _draw(root / "images" / f"{epithet}_{i}.jpg", looks(18)[14 + number], rng)
            rows.append([len(rows), f"images/{epithet}_{i}.jpg", f"Synthetica {epithet}", *ranks, epithet,
                         f"drawn {epithet}"])  # fmt: skip
    _csv(root / "metadata.csv", rows, ("", "filepath", "class", "kingdom", "phylum", "cls", "order", "family", "genus",
                                       "species", "common_name"))  # fmt: skip


def _intra_species(root: Path, rng: np.random.Generator) -> None:
    """Four species by hue and fineness; the variants of each differ in the number of spots."""
    rows = []
    for number, (hue, fineness, _) in enumerate(looks(22)[18:]):
        for variant, spots in (("adult", 0.1), ("juvenile", 0.9)):
            for i in range(12):
                path = f"images/species{number}_{variant}_{i:02d}.jpg"
                _draw(root / path, (hue, fineness, spots), rng)
                rows.append([path, f"species{number}", variant])
    _csv(root / "metadata.csv", rows, ("image_path", "species", "variant"))
