"""Is a copy of the published data set what was published? Counts, file names and manifest files against the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.catalogue import COMBINATIONS
from phoebi_lib.manifest_files import ManifestError, folds_manifest, read_json, read_splits
from phoebi_lib.splits import PARTITION_SEEDS, lco_split, random_split

IMAGES_PER_COMBINATION = 3000
CROPS_PER_FRAME = 3
IMAGE_SIZE = 1024

_DIFFERS = "differs from the published rule"


def check_published(manifest: pd.DataFrame, images: Path) -> None:
    """Require the forty combinations with images 00001.jpg to 03000.jpg each.

    The published shuffle runs over all images, so one missing file changes the whole division.

    Raises:
        ValueError: naming missing or extra combinations, or the first folder with missing or extra images.
    """
    names = set(manifest["combination"])
    missing, extra = sorted(set(COMBINATIONS) - names), sorted(names - set(COMBINATIONS))
    if missing or extra:
        raise ValueError(
            f"{images}: phoebi6 holds the forty published combinations; missing: {_some(missing)}; "
            f"not among them: {_some(extra)}. Export the whole data set, or open the folder by its path"
        )
    expected = {f"{number:05d}.jpg" for number in range(1, IMAGES_PER_COMBINATION + 1)}
    for name, paths in manifest.groupby("combination")["path"]:
        found = {path.rpartition("/")[2] for path in paths}
        if found != expected:
            raise ValueError(
                f"{images / str(name)}: {len(found)} images, expected {IMAGES_PER_COMBINATION}, from 00001.jpg on; "
                f"missing: {_some(sorted(expected - found))}; not among them: {_some(sorted(found - expected))}. "
                "Export this combination again"
            )


def compare_manifest_files(
    manifest: pd.DataFrame, codes: Sequence[str], folder: Path, four_class: bool, enforce: bool
) -> list[str]:
    """Read the manifest files in ``folder`` and compare them, entry by entry and in order, with the library's splits.

    Args:
        manifest: the images on disk.
        codes: class order.
        folder: where the files lie; absent ones are noted.
        four_class: look for ``splits_4class.json`` instead of the six-class files.
        enforce: raise where a file differs, instead of noting it.

    Returns:
        One note per file.

    Raises:
        ManifestError: a file is damaged or names images that it must not (always), or differs (with ``enforce``).
    """
    files = {path: row for row, path in enumerate(manifest["path"])}

    def check_splits(path: Path, ours: Callable[[], dict[str, np.ndarray]]) -> str:
        theirs, absent = read_splits(path, codes, files)
        if absent:
            return f"lists {len(absent)} images that are not in the folder ({_some(absent)})"
        try:
            expected = ours()
        except ValueError:  # too few frames or combinations for the rule: whatever the file says is not ours
            return _DIFFERS
        return "" if all(np.array_equal(theirs[part], expected[part]) for part in expected) else _DIFFERS

    def check_folds(path: Path) -> str:
        theirs = read_json(path)
        try:
            ours = folds_manifest(sorted(set(manifest["combination"])), codes)
        except ValueError:
            return _DIFFERS
        folds = [_fold(fold) for fold in _objects(path, theirs.get("folds"))]
        same = all(theirs.get(key) == ours[key] for key in ("heldout_test_combos", "trained_combos"))
        return "" if same and folds == [_fold(fold) for fold in ours["folds"]] else _DIFFERS

    checks = {
        "splits.json": lambda path: check_splits(path, lambda: random_split(manifest)),
        "splits_lco.json": lambda path: check_splits(
            path, lambda: lco_split(manifest, PARTITION_SEEDS[0], codes=codes)
        ),
        "lco_dev_folds.json": check_folds,
    }
    if four_class:
        checks = {"splits_4class.json": checks["splits.json"]}
    notes = []
    for name, check in checks.items():
        path = folder / name
        fault = check(path) if path.is_file() else ""
        if not path.is_file():
            notes.append(f"{name}: absent")
        elif not fault:
            notes.append(f"{name}: agrees with the library's split")
        elif enforce:
            raise ManifestError(f"{path} {fault}; fetch it again or remove it")
        else:
            notes.append(f"{name}: {fault}; the library's split is the one used")
    return notes


def _fold(fold: Mapping[str, object]) -> list[object]:
    return [fold.get(key) for key in ("dev_combos", "train_combos")]


def _objects(path: Path, value: object) -> list[dict]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ManifestError(f"{path}: 'folds' must be a list of objects")
    return value


def _some(names: Sequence[str]) -> str:
    return (", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")) or "none"
