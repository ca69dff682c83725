"""All tasks of the evaluation with one encoder: a line per task and main metric, with what an empty answer gets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from phoebi_lib.metrics import macro_f1
from phoebi_lib.siblings.bioeval import discovery, folders, heads, intra_species, layout, newt, simpleshot
from phoebi_lib.siblings.run import SiblingRun

Line = tuple[pd.DataFrame, str, float]


def evaluate(run: SiblingRun) -> pd.DataFrame:
    """Return ``task, metric, variant, value, floor, n_images``, one line per task and main metric; values 0..1.

    Every data set whose folder is below ``run.root`` is evaluated, from features of ``run``'s encoder; one head or
    clustering each. Heads of small sets train longer than published, NeWT takes its fast SVM, and five shots leave out
    classes with fewer images, which the metric counts: ``ours``. Zero-shot needs text features and is not here.

    ``floor`` is the best constant answer on the same test images; for the share between species, what a random
    direction has (there smaller is better); NaN for the Fisher ratio, which has no upper end either.

    Raises:
        FileNotFoundError: no data set is there.
        ValueError: as the loaders and protocols.
    """
    present = {name: lines for name, lines in _TASKS.items() if (run.root / name).is_dir()}
    if not present:
        raise FileNotFoundError(f"{run.root}: holds none of the folders {', '.join(_TASKS)}")
    table = [
        {**frame[frame["metric"] == metric].iloc[0].to_dict(), "floor": floor}
        for lines in present.values() for frame, metric, floor in lines(run)
    ]  # fmt: skip
    return pd.DataFrame(table)[["task", "metric", "variant", "value", "floor", "n_images"]]


def features(run: SiblingRun, name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the raw features of a data set's images, indexed by path."""
    return run.features(table["path"].tolist(), folder=name)


def _fishnet(run: SiblingRun) -> Iterator[Line]:
    table = layout.fishnet(run.root / "fishnet")
    test = table[table["split"] == "test"]
    recipe = heads.FISHNET.fitting(len(table) - len(test))
    frame = heads.fishnet(table, features(run, "fishnet", table), recipe, runs=1, seed=run.seed)
    constant = test[list(layout.LABELS)].value_counts().max() / len(test)
    yield _ours(frame, recipe != heads.FISHNET), "all nine right", constant


def _awa2(run: SiblingRun) -> Iterator[Line]:
    animals = folders.awa2(run.root / "awa2")
    test = animals.table[animals.table["split"] == "test"]
    recipe = heads.AWA2.fitting(len(animals.table) - len(test))
    frame = heads.awa2(animals, features(run, "awa2", animals.table), recipe, runs=1, seed=run.seed)
    labels = test[list(animals.attributes)].to_numpy()
    yield _ours(frame, recipe != heads.AWA2), "macro-F1", macro_f1(labels, np.ones_like(labels))


def _newt(run: SiblingRun) -> Iterator[Line]:
    table = layout.newt(run.root / "newt")
    rows = newt.newt(table, features(run, "newt", table), draws=0, runs=1)
    constant = rows.groupby("task")["label"].agg(lambda label: label.value_counts().max()).sum() / len(rows)
    yield newt.newt_scores(rows), "micro accuracy", constant


def _herbarium19(run: SiblingRun) -> Iterator[Line]:
    table = folders.herbarium19(run.root / "herbarium19")
    frame = discovery.herbarium19(table, features(run, "herbarium19", table), runs=1, seed=run.seed)
    scored = table[~discovery.labelled_rows(table["old"])]
    # one cluster for everything may be matched to one Old and to one New species
    largest = scored.groupby("old")["position"].agg(lambda position: position.value_counts().max()).sum()
    yield frame, "accuracy, all", largest / len(scored)


def _plantdoc(run: SiblingRun) -> Iterator[Line]:
    table = folders.plantdoc(run.root / "plantdoc")
    frame = simpleshot.plantdoc(table, features(run, "plantdoc", table), seed=run.seed)
    yield frame, "accuracy, 1-shot", _largest(table.loc[table["split"] == "test", "label"])


def _few_shot(run: SiblingRun) -> Iterator[Line]:
    table = layout.few_shot(run.root / "few_shot")
    counts = table["class"].value_counts()
    if (lone := counts[counts < 2]).size:
        raise ValueError(f"{run.root}/few_shot/metadata.csv: class {lone.index[0]!r} has 1 image; expected one to "
                         "learn from and one to test at least; add images or take its row out")  # fmt: skip
    shots = (1, 5)
    frame = simpleshot.few_shot(table, features(run, "few_shot", table), shots=shots, seed=run.seed, leave_out=True)
    for k, metric in zip(shots, frame["metric"], strict=True):
        left = counts[counts >= k] - k
        yield frame, metric, left.max() / left.sum()


def _intra_species(run: SiblingRun) -> Iterator[Line]:
    table = layout.intra_species(run.root / "intra_species")
    frame = intra_species.intra_species(table, features(run, "intra_species", table), seed=run.seed)
    counts = pd.crosstab(table["species"], table["variant"])
    enough = counts[counts.min(axis=1) >= intra_species.ENOUGH]
    chance = frame.loc[frame["metric"] == "share between species, chance", "value"].item()
    yield frame, "Diff, accuracy of SimpleShot", (enough.max(axis=1) / enough.sum(axis=1)).mean()
    yield frame, "Align, accuracy", (counts.max() / counts.sum()).mean()
    yield frame, "Fisher ratio", float("nan")
    yield frame, "share between species", chance


def _largest(classes: pd.Series) -> float:
    return float(classes.value_counts(normalize=True).max())


def _ours(frame: pd.DataFrame, longer: bool) -> pd.DataFrame:
    """Return the lines without the published defects, called ours where the head trained longer than published."""
    return frame[frame["variant"] == "paper"].assign(variant="ours" if longer else "paper")


_TASKS = {"fishnet": _fishnet, "newt": _newt, "awa2": _awa2, "herbarium19": _herbarium19, "plantdoc": _plantdoc,
          "few_shot": _few_shot, "intra_species": _intra_species}  # fmt: skip
