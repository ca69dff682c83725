"""The fixture: one folder per data set in the published layouts, with drawn pictures. Nothing here was ever alive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from phoebi_lib.siblings.bioeval.layout import LABELS
from phoebi_lib.siblings.drawing import looks, picture, save

#: Path of a picture, its look, and the file and line that tell of it ("" where the path tells all).
Image = tuple[str, tuple[float, float, float], str, str]
_ANIMALS = ("wide+hoop", "fine+hoop", "dotted+band", "plain+band", "spotted+plate", "bare+plate")
_FISHNET = (",Unnamed: 0,species,image,SpecCode,Genus,Subfamily,Family,Order,Class,SuperClass,source,Folder,Troph,"
            f"{','.join(LABELS)},NewOrder,Frequency")  # fmt: skip


def write(folder: Path) -> None:
    """Write all seven data sets below ``folder``, the same bytes each time."""
    texts = {
        "fishnet/train.csv": [_FISHNET], "fishnet/test.csv": [_FISHNET],
        "newt/newt2021_labels.csv": ["id,task_cluster,task_subcluster,task,label,text_label,split,height,width"],
        "herbarium19/splits.json": ['{"old": [0, 1], "new": [2, 3]}'],
        "few_shot/metadata.csv": [",filepath,class,kingdom,phylum,cls,order,family,genus,species,common_name"],
        "intra_species/metadata.csv": ["image_path,species,variant"], **_awa2_texts(),
    }  # fmt: skip
    for seed, images in enumerate((_fishnet, _newt, _awa2, _herbarium19, _plantdoc, _few_shot, _intra_species)):
        name, rng = images.__name__[1:], np.random.default_rng(seed)
        for path, look, file, line in images():
            save(picture(look, rng, size=64), folder / name / path)
            if file:
                texts[f"{name}/{file}"].append(line)
    for file, lines in texts.items():
        (folder / file).write_text("\n".join(lines) + "\n")


def _fishnet() -> Iterator[Image]:
    """Three ways of life, one look each; the last row of either split has no labels, one image is a web address."""
    lives = ("benthic,1.0,0.0,1.0,0.0,0.0,0.0,1.0,0.0", "benthic,1.0,1.0,1.0,0.0,0.0,0.0,1.0,0.0",
             "pelagic,0.0,1.0,0.0,1.0,0.0,1.0,0.0,1.0")  # fmt: skip
    for split, n in (("train", 24), ("test", 10)):
        for i in range(n):
            name, family = f"{split}_{i}.jpg", ("Gobiidae", "Cichlidae")[i % 2]
            image, source = (f"https://example.org/fish/{name}", "fishbase") if i == 1 else (name, "inat")
            labels = "," * 8 if i == n - 1 else lives[i % 3]
            yield f"Image_Library/{family}/{name}", looks(3)[i % 3], f"{split}.csv", (
                f"{i},{i},synthetic {i},{image},{i},Synthetica,,{family},Perciformes,Actinopterygii,Osteichthyes,"
                f"{source},{family},3.0,{labels},,1")  # fmt: skip


def _newt() -> Iterator[Image]:
    """Three tasks of 10 training and 6 test images; one without a subcluster, one with 7 against 3 in training."""
    tasks = ("appearance,age,ml_age_synthetic", "appearance,species,fgvcx_synthetic", "behavior,,ml_bio_synthetic")
    for number, task in enumerate(tasks):
        for i in range(16):
            label, name = int(i % 10 < 3) if number == 1 else i % 2, f"n{number}_{i:02d}"
            text, split = ("" if label else "not_") + task.split(",")[2], "train" if i < 10 else "test"
            yield (f"newt2021_images/{name}.jpg", looks(12)[3 + 2 * number + label], "newt2021_labels.csv",
                   f"{name},{task},{label},{text},{split},64,64")  # fmt: skip


def _awa2() -> Iterator[Image]:
    """Six classes of four images."""
    for name, look in zip(_ANIMALS, looks(6), strict=True):
        for i in range(4):
            yield f"JPEGImages/{name}/{name}_{i}.jpg", look, "", ""


def _awa2_texts() -> dict[str, list[str]]:
    """Return AwA2's lists; an attribute says that hue, fineness or spots of a class's look lie above a threshold."""
    thresholds = np.linspace(0.05, 0.95, 85)
    matrix = [[int(look[j % 3] > threshold) for j, threshold in enumerate(thresholds)] for look in looks(6)]
    attributes = ["black", "white", *(f"synthetic{j}" for j in range(3, 86))]
    texts = {
        "classes": [f"{i:8d}\t{name}" for i, name in enumerate(_ANIMALS, 1)], "classes_bare": _ANIMALS,
        "predicates": [f"{i:8d}\t{name}" for i, name in enumerate(attributes, 1)],
        "predicate-matrix-binary": [" ".join(map(str, row)) for row in matrix],
        "predicate-matrix-continuous": [" ".join(f"{100.0 * value:.2f}" for value in row) for row in matrix],
        "trainclasses": _ANIMALS[:4], "testclasses": _ANIMALS[4:],
    }  # fmt: skip
    return {f"awa2/{name}.txt": lines for name, lines in texts.items()}


def _herbarium19() -> Iterator[Image]:
    """Species "0", "1", "2", "10"; in lexicographic order "10" is position 2, and positions 2 and 3 are New."""
    for name, look in zip(("0", "1", "2", "10"), looks(10)[6:], strict=True):
        for split, n in (("small-train", 6), ("small-validation", 1)):
            for i in range(n):
                yield f"{split}/{name}/{name}_{i}.jpg", look, "", ""


def _plantdoc() -> Iterator[Image]:
    """Four classes; "Tomato two spotted spider mites leaf" has no test image and "grape leaf" sorts after it."""
    classes = {"Apple leaf": (6, 5), "Corn rust leaf": (6, 5), "Tomato two spotted spider mites leaf": (2, 0),
               "grape leaf": (6, 5)}  # fmt: skip
    ends = ("0.jpg", "a%20leaf.jpeg", "2.JPG.jpg", "3&4.png", "5.jpg", "6.jpg")
    for (name, sizes), look in zip(classes.items(), looks(14)[10:], strict=True):
        for split, n in zip(("train", "test"), sizes, strict=True):
            for end in ends[:n]:
                yield f"{split}/{name}/{split}_{end}", look, "", ""


def _few_shot() -> Iterator[Image]:
    """Three classes of 8 images and one of 4, which is too few for five shots and a test."""
    ranks = "Syntheta,Drawnophyta,Drawnopsida,Drawnales,Drawnaceae,Synthetica"
    for number, (name, n) in enumerate((("alba", 8), ("brevis", 8), ("crassa", 8), ("densa", 4))):
        for i in range(n):
            path = f"images/{name}_{i}.jpg"
            line = f"{8 * number + i},{path},Synthetica {name},{ranks},{name},drawn {name}"
            yield path, looks(18)[14 + number], "metadata.csv", line


def _intra_species() -> Iterator[Image]:
    """Four species by hue and fineness; the variants of each differ in the number of spots."""
    for number, (hue, fineness, _) in enumerate(looks(22)[18:]):
        for variant, spots in (("adult", 0.1), ("juvenile", 0.9)):
            for i in range(12):
                path = f"images/species{number}_{variant}_{i:02d}.jpg"
                yield path, (hue, fineness, spots), "metadata.csv", f"{path},species{number},{variant}"
