"""The published manifest files (JSON beside the images): written for a layout, and read with distrust.

``splits.json`` random split, ``splits_lco.json`` seed-1337 leave-combinations-out partition, ``lco_dev_folds.json``
development folds, ``splits_4class.json`` random split of the four-species subset. Their keys are those of the release.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from phoebi_lib.catalogue import label_matrix, parse_combination
from phoebi_lib.splits import (
    HELDOUT_COUNTS,
    N_FOLDS,
    PARTITION_SEEDS,
    dev_folds,
    lco_split,
    random_split,
    select_heldout,
)
from phoebi_lib.workspace import atomic_path

PARTS = ("train", "val", "test")
_FRACTIONS = {"train_frac": 0.8, "val_frac": 0.1, "test_frac": 0.1}
_IMAGE_FOLDERS = ("images", "images_4class", "images_256")
_PREFIX = {"images": "data/images", "images_4class": "images_4class"}
_FOLD_RULES = (
    "pure cultures are never held out",
    "train on the fold's training combinations (training images of the partition)",
    "calibrate on the same combinations (validation images of the partition)",
    "evaluate on all images of the development combinations, pooled over folds, with intervals over combinations",
    "select by pooled mean per-species AUROC, then by macro-F1 margin over the all-present predictor",
)


class ManifestError(ValueError):
    """A manifest file is not what it should be; the message names the file and the entry."""


def random_manifest(manifest: pd.DataFrame, codes: Sequence[str], folder: str = "images") -> dict[str, Any]:
    """Return the content of ``splits.json`` (or ``splits_4class.json``) for a manifest."""
    head = {"class_names": list(codes), **_FRACTIONS}
    return head | _entries(manifest, random_split(manifest), codes, folder)


def lco_manifest(manifest: pd.DataFrame, codes: Sequence[str], folder: str = "images") -> dict[str, Any]:
    """Return the content of ``splits_lco.json``: seed 1337, published (image-level) shuffle."""
    seed = PARTITION_SEEDS[0]
    held, trained = select_heldout(manifest["combination"], seed, codes=codes)
    head = {
        "class_names": list(codes),
        "protocol": "leave_combinations_out",
        "protocol_note": "held-out combinations are in neither train nor val; 10 % of the other images are val",
        "seed": seed,
        "heldout_counts_by_order": {str(size): count for size, count in HELDOUT_COUNTS.items()},
        "heldout_combos": held,
        "trained_combos": trained,
    }
    return head | _entries(manifest, lco_split(manifest, seed, codes=codes), codes, folder)


def folds_manifest(combinations: Sequence[str], codes: Sequence[str]) -> dict[str, Any]:
    """Return the content of ``lco_dev_folds.json`` for the seed-1337 partition."""
    seed = PARTITION_SEEDS[0]
    held, trained = select_heldout(combinations, seed, codes=codes)
    folds = dev_folds(trained, codes=codes)
    without = [_without_pure_culture(fold["train"], codes) for fold in folds]
    return {
        "protocol": "lco_dev_folds",
        "partition_seed": seed,
        "fold_seed": seed,
        "n_folds": N_FOLDS,
        "singletons_held_out": False,
        "species_without_pure_culture_in_every_fold": [c for c in codes if all(c in missing for missing in without)],
        "class_names": list(codes),
        "heldout_test_combos": held,
        "trained_combos": trained,
        "folds": [
            {
                "fold": number,
                "dev_combos": fold["dev"],
                "train_combos": fold["train"],
                "dev_orders": sorted({len(parse_combination(name, codes)) for name in fold["dev"]}),
                "species_without_pure_culture": missing,
            }
            for number, (fold, missing) in enumerate(zip(folds, without, strict=True))
        ],
        "rules": list(_FOLD_RULES),
    }


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a manifest file; it appears whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ManifestError: the file is not valid JSON or not an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: not valid JSON ({error}); fetch or write it again") from error
    if not isinstance(content, dict):
        raise ManifestError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def read_splits(path: Path, codes: Sequence[str], files: Mapping[str, int]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read ``splits.json``, ``splits_lco.json`` or ``splits_4class.json`` and check every entry.

    An entry's last key may be ``combo`` or, in old files, ``video``; its path may start with ``data/`` and an image
    folder or with neither.

    Args:
        path: the file.
        codes: the data set's class order, which the file must share.
        files: relative image path ``<combination>/<file>`` -> row position.

    Returns:
        ``{"train", "val", "test"}``: row positions in the order of the file; and the listed images that are not there.

    Raises:
        ManifestError: a part or key is missing; a path leaves the image folder or is listed twice (also in two
            spellings); a combination is unknown or, like a label, disagrees with the folder name.
    """
    content = read_json(path)
    if content.get("class_names") != list(codes):
        raise ManifestError(f"{path}: class_names is {content.get('class_names')!r}, expected {list(codes)}")
    _check_label_map(path, content, codes)
    splits = content.get("splits")
    if not isinstance(splits, dict) or any(not isinstance(splits.get(part), list) for part in PARTS):
        raise ManifestError(f"{path}: 'splits' must hold the lists train, val and test")
    labels: dict[str, list[int]] = {}
    seen: set[str] = set()
    absent: list[str] = []
    rows: dict[str, np.ndarray] = {}
    for part in PARTS:
        positions = []
        for number, entry in enumerate(splits[part]):
            relative = _checked_entry(entry, codes, labels, f"{path}: splits.{part}[{number}]")
            if relative in seen:
                raise ManifestError(f"{path}: splits.{part}[{number}]: {relative!r} is listed twice")
            seen.add(relative)
            if relative in files:
                positions.append(files[relative])
            else:
                absent.append(relative)
        rows[part] = np.array(positions, dtype=np.int64)
    return rows, absent


def relative_image_path(path: object, where: str) -> str:
    """Return ``<combination>/<file>`` for a path of a manifest file, whatever published prefix it carries.

    Raises:
        ManifestError: not a string, absolute, with a backslash or drive, leaving the root, or of another depth.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise ManifestError(f"{where}: path must be a non-empty string, got {path!r}")
    pieces = [piece for piece in path.split("/") if piece not in ("", ".")]
    if path.startswith("/") or "\\" in path or ":" in path or ".." in pieces:
        raise ManifestError(f"{where}: path {path!r} leaves the data set's folder; expected <combination>/<file>")
    if pieces[:1] == ["data"]:
        pieces = pieces[1:]
    if len(pieces) == 3 and pieces[0] in _IMAGE_FOLDERS:
        pieces = pieces[1:]
    if len(pieces) != 2:
        raise ManifestError(f"{where}: path {path!r} is not [data/][images/]<combination>/<file>")
    return "/".join(pieces)


def _checked_entry(entry: object, codes: Sequence[str], labels: dict[str, list[int]], where: str) -> str:
    if not isinstance(entry, dict):
        raise ManifestError(f"{where}: expected an object with path, label and combo, found {type(entry).__name__}")
    name = entry.get("combo", entry.get("video"))
    relative = relative_image_path(entry.get("path"), where)
    if not isinstance(name, str):
        raise ManifestError(f"{where}: 'combo' (or 'video') must be the combination's name, got {name!r}")
    if name != relative.partition("/")[0]:
        raise ManifestError(f"{where}: combination {name!r} does not match the path {entry['path']!r}")
    if name not in labels:
        labels[name] = _label(name, codes, where)
    if entry.get("label") != labels[name]:
        raise ManifestError(f"{where}: label {entry.get('label')!r}, expected {labels[name]} for {name!r}")
    return relative


def _check_label_map(path: Path, content: Mapping[str, Any], codes: Sequence[str]) -> None:
    key = "video_to_label" if "combo_to_label" not in content and "video_to_label" in content else "combo_to_label"
    mapping = content.get(key)
    if not isinstance(mapping, dict):
        raise ManifestError(f"{path}: 'combo_to_label' (or 'video_to_label') must map combinations to labels")
    for name, label in mapping.items():
        if label != _label(name, codes, f"{path}: {key}"):
            raise ManifestError(f"{path}: {key}[{name!r}] is {label!r}, which is not the label of that name")


def _label(name: str, codes: Sequence[str], where: str) -> list[int]:
    try:
        return label_matrix([name], codes)[0].tolist()
    except ValueError as error:
        raise ManifestError(f"{where}: {error}") from error


def _entries(
    manifest: pd.DataFrame, rows: Mapping[str, np.ndarray], codes: Sequence[str], folder: str
) -> dict[str, Any]:
    names = sorted(set(manifest["combination"]))
    labels = dict(zip(names, label_matrix(names, codes).tolist(), strict=True))
    paths, combinations = manifest["path"].tolist(), manifest["combination"].tolist()
    return {
        "splits": {
            part: [
                {
                    "path": f"{_PREFIX[folder]}/{paths[row]}",
                    "label": labels[combinations[row]],
                    "combo": combinations[row],
                }
                for row in rows[part].tolist()
            ]
            for part in PARTS
        },
        "combo_to_label": labels,
    }


def _without_pure_culture(names: Sequence[str], codes: Sequence[str]) -> list[str]:
    pure = {parse_combination(name, codes)[0] for name in names if len(parse_combination(name, codes)) == 1}
    return [code for code in codes if code not in pure]
