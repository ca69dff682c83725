"""``finetune``: train a backbone on one partition, or find it trained, and return one row per image."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from phoebi_lib import workspace
from phoebi_lib.baselines.finetune import checkpoint
from phoebi_lib.baselines.finetune.inputs import Plan, code_sha256, images_key, inputs_key, open_inputs, plans
from phoebi_lib.baselines.finetune.network import Backbone, Classifier, registered
from phoebi_lib.baselines.finetune.recipes import Recipe
from phoebi_lib.baselines.finetune.train import Pictures, as_thresholds, scores, train
from phoebi_lib.compat import choice
from phoebi_lib.content import content_hashes
from phoebi_lib.devices import checked_device
from phoebi_lib.folders import row_positions
from phoebi_lib.manifest import checked_seed
from phoebi_lib.pool import canonical_json
from phoebi_lib.row_files import read_rows, slug, write_rows
from phoebi_lib.workspace import text_sha256

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset

PARTS = ("train", "val", "test")
# the library's own sources that decide a training, besides those that the key of its inputs covers
_SOURCES = (
    *(f"baselines/finetune/{name}.py" for name in ("augment", "checkpoint", "identity", "network", "train")),
    *("decoders/thresholds.py", "encoder_records.py", "encoders.py", "metrics.py", "weights.py"),
)
_LIBRARIES = ("numpy", "timm", "torch")


def finetune(
    dataset: Dataset,
    parts: Mapping[str, np.ndarray],
    *,
    encoder: str | Backbone,
    recipe: Recipe,
    seed: int,
    store: str | Path | None = None,
    device: str | None = None,
    profile: str = "",
    partition: str = "",
    progress: bool = True,
) -> pd.DataFrame:
    """Train on the train part, choose on validation, and return the rows of validation and test.

    Rows are kept under ``store`` and found again by a key over the images by content, the parts, the network
    (:attr:`Backbone.identity`), the recipe, the seed, the library's code and the versions below it. Prepared pictures
    and the training itself are kept under ``finetune`` in the folder of pools: a training that was killed goes on, a
    finished one is not repeated where only its rows are gone, and a second process waits for the first.

    Args:
        dataset: labelled images; K species.
        parts: row positions or boolean masks ``{"train", "val", "test"}``, as :mod:`phoebi_lib.splits` gives them.
        encoder: name in the registry, or a network of your own. One whose identity is None is trained anew each time.
        recipe: from :func:`recipe`, perhaps :func:`capped`.
        seed: of the head, the order of images, crops, flips and dropout.
        store: folder of rows, ``results/rows`` by default.
        device: a torch device; by default the one that ``PHOEBI_DEVICE`` names, else the CPU.
        profile, partition: names for the rows. Rows say ``grouping`` as the recipe's way has it.
        progress: report progress.

    Returns:
        The columns of :func:`phoebi_lib.protocols.run_partition`, so that the same summaries take them, and
        ``best_update``, ``best_epoch``, ``val_f1`` (of the best state), ``train_f1_images`` (how many training images
        ``train_f1`` is measured on), ``seconds`` of training and ``history`` (see :func:`history`).

    Raises:
        ValueError: parts that are missing, empty or share an image; unlabelled or unreadable images (named); an unknown
            encoder, weights that do not fit, a wrong ``dim``; a device that is not here; damaged files of a training.
        TypeError: an argument of another kind, a seed or row positions that are not whole numbers; the part is named.
        IndexError: row positions outside the data set; the part is named.
        WeightsNotFoundError: no weights on this machine.
        FloatingPointError: the loss is no longer finite; says what to lower.
        OSError: no room for the prepared pictures.
    """
    _check_kinds(parts, encoder, recipe)
    parts, seed, chosen = _checked(dataset, parts), checked_seed(seed), checked_device(device)
    backbone = registered(encoder) if isinstance(encoder, str) else encoder
    labels, hashes = dataset.Y, content_hashes(dataset)
    images = images_key(dataset, hashes)
    for_training, for_evaluation = plans(recipe)
    training_key = _training_key(dataset, parts, hashes, backbone, recipe, seed, chosen)
    facts = {
        "dataset": dataset.name, "encoder": backbone.name, "evidence": _evidence(dataset, backbone),
        "profile": profile, "partition": partition, "seed": seed, "compat": recipe.compat,
        "grouping": choice("lco_grouping", recipe.compat), "pool_key": inputs_key(images, for_evaluation),
        "simulation": str(dataset.facts.get("parameters_sha256") or ""),
    }  # fmt: skip
    rows_of = {part: parts[part].tolist() for part in ("val", "test")}
    described = dataset.manifest[["path", "combination", "frame"]].to_json(orient="values")
    # without a key nothing is found again
    named = training_key or secrets.token_hex()
    key = text_sha256(canonical_json({"training": named, "facts": facts, "rows": rows_of, "images": described}))
    path = (workspace.results_dir() / "rows" if store is None else Path(store)) / _file_name(facts, recipe)
    found = read_rows(path, key)
    if found is not None:
        return found
    own = workspace.pools_dir() / "finetune"
    sample = _evenly(parts["train"], recipe.train_images)
    wanted = {for_training: parts["train"]}
    wanted[for_evaluation] = np.concatenate([wanted.get(for_evaluation, sample), parts["val"], parts["test"]])
    arrays = open_inputs(dataset, images, wanted, own / "inputs", progress)

    def pictures(rows: np.ndarray, plan: Plan = for_evaluation) -> Pictures:
        return Pictures(arrays[plan], rows, labels[rows])

    with _folder(own / "trainings", training_key) as folder, checkpoint.claim(folder):
        outcome = checkpoint.finished(folder, labels.shape[1])
        if outcome is None:
            outcome = train(
                backbone, recipe, pictures(parts["train"], for_training), pictures(sample), pictures(parts["val"]),
                seed=seed, device=chosen, folder=folder, progress=progress,
            )  # fmt: skip
        model = Classifier(backbone, labels.shape[1], recipe.side, seed)
        model.load_state_dict(checkpoint.load_best(folder))
    model = model.to(chosen, memory_format=torch.channels_last)
    pieces = []
    for part in ("val", "test"):
        evaluated = pictures(parts[part])
        pieces.append(_rows(dataset, part, evaluated, scores(model, evaluated, chosen), outcome, recipe, facts))
    rows = pd.concat(pieces, ignore_index=True)
    write_rows(path, key, rows)
    return rows


def left_rows(like: pd.DataFrame, encoder: str, recipe: Recipe, store: str | Path | None = None) -> pd.DataFrame | None:
    """Return the rows that an earlier run left for another network on the pictures of ``like``, None without any.

    ``like`` holds rows of one training, which say images by content, profile, partition and seed. The weights and the
    library's code are those of that run, perhaps on another machine. Stand-in weights do not count.
    """
    facts = {**like.iloc[0].to_dict(), "encoder": encoder}
    path = (workspace.results_dir() / "rows" if store is None else Path(store)) / _file_name(facts, recipe)
    try:
        rows = pd.read_parquet(path)
    except (OSError, ValueError):  # none, or damaged: whoever asks for that network trains it again
        return None
    same = rows["pool_key"].iloc[0] == facts["pool_key"] and rows["id"].tolist() == like["id"].tolist()
    return rows if same and rows["evidence"].iloc[0] != "stand-in" else None


def history(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line per training and evaluation: what names the run, ``updates, epoch, loss, val_f1, best``.

    ``loss`` is the mean training loss since the last evaluation; ``best`` marks the state that was kept.
    """
    runs = ["dataset", "encoder", "profile", "compat", "partition", "seed", "method"]
    lines = []
    for (*names, text, best), _ in rows.groupby([*runs, "history", "best_update"], sort=False):
        entries = json.loads(text)
        lines += [
            {**dict(zip(runs, names, strict=True)), **entry, "best": entry["updates"] == best} for entry in entries
        ]
    return pd.DataFrame(lines)


def _training_key(
    dataset: Dataset,
    parts: dict[str, np.ndarray],
    hashes: list[str],
    backbone: Backbone,
    recipe: Recipe,
    seed: int,
    device: torch.device,
) -> str | None:
    """Return the key of a training, None where its network cannot be told; test images are no part of it."""
    identity = backbone.identity
    if identity is None:
        return None
    return text_sha256(canonical_json({
        "images": {part: [hashes[row] for row in parts[part]] for part in ("train", "val")},
        "labels": {part: dataset.Y[parts[part]].tolist() for part in ("train", "val")},
        "inputs": [inputs_key("", plan) for plan in plans(recipe)], "change": dataset.facts.get("transform", ""),
        "backbone": identity, "recipe": asdict(recipe), "seed": seed,
        "device": device.type, "code": code_sha256(_SOURCES),
        "libraries": {name: version(name).split("+")[0] for name in _LIBRARIES},
    }))  # fmt: skip


@contextmanager
def _folder(trainings: Path, key: str | None) -> Iterator[Path]:
    """Yield the folder of a training; one without a key is deleted afterwards."""
    if key is not None:
        yield trainings / key[:16]
        return
    trainings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="anew-", dir=trainings) as folder:
        yield Path(folder) / "training"


def _evenly(rows: np.ndarray, n: int | None) -> np.ndarray:
    """Return ``n`` of the rows, evenly spaced, or all."""
    n = len(rows) if n is None else min(n, len(rows))
    return rows[np.arange(n) * len(rows) // n]


def _rows(
    dataset: Dataset,
    part: str,
    pictures: Pictures,
    found: np.ndarray,
    outcome: dict[str, Any],
    recipe: Recipe,
    facts: dict[str, Any],
) -> pd.DataFrame:
    thresholds = as_thresholds(outcome["thresholds"])
    manifest = dataset.manifest.iloc[pictures.rows]
    table: dict[str, Any] = {
        "id": manifest["path"].to_numpy(), "combination": manifest["combination"].to_numpy(),
        "frame": manifest["frame"].to_numpy(), "part": part, "method": recipe.method,
    }  # fmt: skip
    for k, code in enumerate(dataset.codes):
        table[f"y_{code}"] = pictures.labels[:, k].astype(np.int8)
        table[f"score_{code}"] = found[:, k]
        table[f"threshold_{code}"] = thresholds[k]
        table[f"pred_{code}"] = (found[:, k] > thresholds[k]).astype(np.int8)
    best = next(entry for entry in outcome["history"] if entry["updates"] == outcome["best"])
    more = {
        "updates": outcome["updates"], "train_f1": outcome["train_f1"], "train_f1_images": outcome["train_f1_images"],
        "best_update": best["updates"], "best_epoch": best["epoch"], "val_f1": best["val_f1"],
        "seconds": outcome["seconds"], "history": json.dumps(outcome["history"]),
    }  # fmt: skip
    return pd.DataFrame({**table, **facts, **more})


def _check_kinds(parts: Any, encoder: Any, recipe: Any) -> None:
    if not isinstance(parts, Mapping):
        raise TypeError(f"parts must map {', '.join(PARTS)} to row positions, as phoebi_lib.splits does; got {parts!r}")
    if not isinstance(encoder, (str, Backbone)):
        known = "a name of phoebi_lib.encoders.list_encoders() or a Backbone"
        raise TypeError(f"encoder must be {known}, got {encoder!r}")
    if not isinstance(recipe, Recipe):
        known = 'a Recipe, such as recipe("whole", "random", "corrected")'
        raise TypeError(f"recipe must be {known}, got {recipe!r}")



def _checked(dataset: Dataset, parts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {}
    for part in PARTS:
        try:
            arrays[part] = row_positions(parts.get(part, ()), len(dataset))
        except (TypeError, ValueError, IndexError) as error:
            raise type(error)(f"part {part!r}: {error}") from error
    if absent := [part for part in PARTS if not len(arrays[part])]:
        raise ValueError(f"finetune needs row positions for {', '.join(PARTS)}; nothing for {', '.join(absent)}")
    every = np.concatenate(list(arrays.values()))
    if len(np.unique(every)) < len(every):
        twice = dataset.manifest["path"].iloc[np.flatnonzero(np.bincount(every) > 1)[0]]
        raise ValueError(f"an image may be in one part, once; {twice!r} is there twice")
    return arrays


def _evidence(dataset: Dataset, backbone: Backbone) -> str:
    if backbone.stand_in:
        return "stand-in"
    return "user" if dataset.evidence == "paper" and not backbone.in_paper else dataset.evidence


def _file_name(facts: dict[str, Any], recipe: Recipe) -> Path:
    """Return a readable name, different for different runs and recipes; other code or images replace the file."""
    identity = [facts[k] for k in ("profile", "dataset", "encoder", "partition", "seed", "compat")]
    digest = text_sha256(json.dumps([*identity, asdict(recipe)]))[:8]
    words = [facts["encoder"], facts["partition"], f"seed {facts['seed']}", facts["compat"], recipe.method, digest]
    return Path(slug(facts["dataset"])) / ("-".join(slug(word) for word in words) + ".parquet")
