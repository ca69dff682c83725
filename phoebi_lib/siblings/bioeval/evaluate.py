"""All tasks of the evaluation with one encoder: a line per task and main metric, with what an empty answer gets."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from phoebi_lib.metrics import macro_f1
from phoebi_lib.siblings.bioeval import discovery, heads, intra_species, newt, simpleshot
from phoebi_lib.siblings.bioeval.layout import LOADERS
from phoebi_lib.siblings.run import SiblingRun

Scores = tuple[pd.DataFrame, dict[str, float]]


def read_tables(run: SiblingRun) -> dict[str, pd.DataFrame]:
    """Return the table of each data set whose folder is below ``run.root``, by the name of the folder.

    Raises:
        FileNotFoundError: none is there.
        ValueError: as the loaders.
    """
    tables = {name: load(run.root / name) for name, load in LOADERS.items() if (run.root / name).is_dir()}
    if not tables:
        raise FileNotFoundError(f"{run.root}: holds none of the folders {', '.join(LOADERS)}")
    return tables


def evaluate(run: SiblingRun) -> pd.DataFrame:
    """Return ``task, metric, variant, value, floor, n_images``, one line per task and main metric; values 0..1.

    Every data set whose folder is below ``run.root`` is evaluated, from features of ``run``'s encoder; one head or
    clustering each. Heads of small sets train longer than published, NeWT takes its fast SVM, and five shots leave out
    classes with fewer images, which the metric counts: ``ours``. Zero-shot needs text features and is not here.

    ``floor`` is the best constant answer on the same test images; for the share between species, what a random
    direction has (there smaller is better); NaN for the Fisher ratio, which has no upper end either.

    Raises:
        FileNotFoundError: as :func:`read_tables`.
        ValueError: as the loaders and protocols.
    """
    lines = []
    for name, table in read_tables(run).items():
        frame, floors = _TASKS[name](table, run.features(table["path"], folder=name), run.seed)
        # the first line of a metric is the one without defects of the published code
        main = frame[frame["metric"].isin(floors)].drop_duplicates("metric")
        lines.append(main.assign(floor=main["metric"].map(floors)))
    return pd.concat(lines, ignore_index=True)[["task", "metric", "variant", "value", "floor", "n_images"]]


def _constant(groups: pd.Series, labels: pd.Series) -> float:
    """Return the share of images that the most frequent label of each group gets right."""
    return pd.crosstab(groups, labels).max(axis=1).sum() / len(labels)


def _many_labels(task: str, table: pd.DataFrame, features: pd.DataFrame, seed: int) -> Scores:
    labels = heads.labels_of(task, table[table["split"] == "test"])
    floors = {"all nine right": labels.value_counts(normalize=True).max(),
              "macro-F1": macro_f1(labels, np.ones_like(labels))}  # fmt: skip
    return heads.many_labels(task, table, features, fitted=True, runs=1, seed=seed), floors


def _newt(table: pd.DataFrame, features: pd.DataFrame, seed: int) -> Scores:
    rows = newt.newt(table, features, draws=0, runs=1)
    return newt.newt_scores(rows), {"micro accuracy": _constant(rows["task"], rows["label"])}


def _herbarium19(table: pd.DataFrame, features: pd.DataFrame, seed: int) -> Scores:
    scored = table[~discovery.labelled_rows(table["old"])]
    # one cluster for everything may be matched to one Old and to one New species
    floors = {"accuracy, all": _constant(scored["old"], scored["position"])}
    return discovery.herbarium19(table, features, runs=1, seed=seed), floors


def _plantdoc(table: pd.DataFrame, features: pd.DataFrame, seed: int) -> Scores:
    floor = table.loc[table["split"] == "test", "class"].value_counts(normalize=True).max()
    return simpleshot.plantdoc(table, features, seed=seed), {"accuracy, 1-shot": floor}


def _few_shot(table: pd.DataFrame, features: pd.DataFrame, seed: int) -> Scores:
    frame = simpleshot.few_shot(table, features, shots=(1, 5), seed=seed, leave_out=True)
    images = table["class"].value_counts()
    left = [images[images >= k] - k for k in (1, 5)]
    return frame, {metric: tested.max() / tested.sum() for metric, tested in zip(frame["metric"], left, strict=True)}


def _intra_species(table: pd.DataFrame, features: pd.DataFrame, seed: int) -> Scores:
    frame = intra_species.intra_species(table, features, seed=seed)
    counts = pd.crosstab(table["species"], table["variant"])
    enough = counts[counts.min(axis=1) >= intra_species.ENOUGH]
    return frame, {
        "Diff, accuracy of SimpleShot": (enough.max(axis=1) / enough.sum(axis=1)).mean(),
        "Align, accuracy": (counts.max() / counts.sum()).mean(),
        "Fisher ratio": float("nan"),
        "share between species": frame.loc[frame["metric"] == "share between species, chance", "value"].item(),
    }


_TASKS = {"fishnet": partial(_many_labels, "FishNet"), "newt": _newt, "awa2": partial(_many_labels, "AwA2"),
          "herbarium19": _herbarium19, "plantdoc": _plantdoc, "few_shot": _few_shot,
          "intra_species": _intra_species}  # fmt: skip
