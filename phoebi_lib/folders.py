"""List the pictures of a folder on disk: which combination, which file, which frame. Nothing is decoded here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from phoebi_lib.catalogue import CODES, parse_combination
from phoebi_lib.images import SUFFIXES
from phoebi_lib.manifest_files import ManifestError, read_json
from phoebi_lib.splits import PARTITION_SEEDS, dropped_folders

_NUMBER = re.compile(r"[0-9]{1,9}")


def find_images(root: Path, names: Sequence[str] = ("images",)) -> Path:
    """Return the folder that holds the combination folders: ``<root>/images``, ``<root>/data/images`` or the root."""
    for candidate in (*(root / name for name in names), *(root / "data" / name for name in names)):
        if candidate.is_dir():
            return candidate
    return root


def around(root: Path, images: Path) -> Path:
    """Return the folder that holds dataset.json and the manifest files: the one around ``images``, else the root."""
    return images.parent if images != root or images.name.startswith("images") else root


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what ``dataset.json`` of a folder says, {} without one.

    Raises:
        ManifestError: not a JSON object, a number that is not finite, or ``crops_per_frame`` or ``codes`` are not what
            they should be.
    """
    path = folder / "dataset.json"
    if not path.is_file():
        return {}
    facts = read_json(path)
    try:
        json.dumps(facts, allow_nan=False)
    except ValueError as error:
        raise ManifestError(f"{path}: holds NaN or an infinite number, which is not JSON; use null") from error
    crops, codes = facts.get("crops_per_frame", 1), facts.get("codes", list(CODES))
    if type(crops) is not int or crops < 1:
        raise ManifestError(f"{path}: crops_per_frame must be an integer from 1 on, got {crops!r}")
    if not isinstance(codes, list) or not codes or not all(isinstance(code, str) and code for code in codes):
        raise ManifestError(f"{path}: codes must be a list of species codes, got {codes!r}")
    return facts


def list_images(images: Path, root: Path, codes: Sequence[str], crops_per_frame: int) -> tuple[pd.DataFrame, list[str]]:
    """Return the manifest of a folder and notes on what was left out.

    Combination folders give one row per picture, sorted by combination and name; a folder of pictures without
    subfolders of pictures gives rows with an empty combination (labels unknown). Hidden files are ignored.

    Args:
        images: the folder to list.
        root: no file may lie outside it, not even through a link.
        codes: the known codes in class order.
        crops_per_frame: image number n comes from frame ``ceil(n / crops_per_frame)``.

    Returns:
        Columns ``path`` (relative to ``images``, with ``/``), ``combination``, ``frame`` and ``crop`` (both from 1).

    Raises:
        FileNotFoundError: there is no picture.
        ValueError: a folder with an unknown code, an empty combination folder, pictures both beside and inside
            combination folders, two pictures of one name, a link that leaves the root, or file names that do not tell
            the frame although ``crops_per_frame`` is above 1; a path that is not valid UTF-8.
    """
    if not images.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{images} is a link that leaves {root}; open the folder that it points to")
    top, folders, other = _listing(images, root)
    inside = {name: _listing(images / name, root) for name in folders}
    filled = [name for name in folders if inside[name][0]]
    if not top and not filled:
        raise FileNotFoundError(
            f"{images} holds no pictures ({', '.join(SUFFIXES)}), neither itself nor in combination folders"
        )
    notes = [_left_out(images.name, other)] if other else []
    if not filled:
        _check_names(images, top)
        return _table([("", file) for file in top], crops_per_frame, images), notes
    if top:
        raise ValueError(
            f"{images} holds pictures both beside ({top[0]}) and inside ({filled[0]}/) combination folders; "
            "move them into one kind of place"
        )
    entries: list[tuple[str, str]] = []
    for name in folders:
        files, nested, ignored = inside[name]
        parse_combination(name, codes)
        if not files:
            raise ValueError(f"combination folder {images / name} holds no pictures; remove it or restore its images")
        _check_names(images / name, files)
        entries += [(name, file) for file in files]
        if nested or ignored:
            notes.append(_left_out(name, [*nested, *ignored]))
    return _table(entries, crops_per_frame, images), notes


def _listing(folder: Path, root: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the sorted names of pictures, subfolders and other files in ``folder``, hidden ones left out."""
    pictures, folders, other = [], [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not _is_text(entry.path):
                raise ValueError(f"the path {entry.path!r} is not valid UTF-8; rename the file or folder")
            if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root.resolve()):
                raise ValueError(
                    f"{entry.path} is a link that leaves {root}; copy the file (or the folder) in, or open the folder "
                    "that the link points to"
                )
            if entry.is_dir():
                folders.append(entry.name)
            elif Path(entry.name).suffix.lower() in SUFFIXES:
                pictures.append(entry.name)
            else:
                other.append(entry.name)
    return sorted(pictures), sorted(folders), sorted(other)


def _check_names(folder: Path, files: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for file in files:
        stem = Path(file).stem.casefold()
        key = str(int(stem)) if _NUMBER.fullmatch(stem) else stem
        if key in seen:
            raise ValueError(f"{folder} holds both {seen[key]} and {file}: two pictures of one name; keep one of them")
        seen[key] = file


def _table(entries: Sequence[tuple[str, str]], crops_per_frame: int, images: Path) -> pd.DataFrame:
    combinations = [name for name, _ in entries]
    stems = [file.rpartition(".")[0] for _, file in entries]
    if all(_NUMBER.fullmatch(stem) for stem in stems) and all(int(stem) >= 1 for stem in stems):
        numbers = [int(stem) for stem in stems]
    elif crops_per_frame == 1:
        # names such as Sample000193: one frame a picture, in the order of the names
        numbers = (pd.Series(combinations).groupby(combinations, sort=False).cumcount() + 1).tolist()
    else:
        odd = next(file for (_, file), stem in zip(entries, stems, strict=True) if not _counts(stem))
        raise ValueError(
            f"{images}: {odd!r} is not a number from 1 on, so which frame it was cut from is unknown; "
            "number the files (00001.jpg ...) or pass crops_per_frame=1"
        )
    return pd.DataFrame(
        {
            "path": [f"{name}/{file}" if name else file for name, file in entries],
            "combination": combinations,
            "frame": [(number - 1) // crops_per_frame + 1 for number in numbers],
            "crop": [(number - 1) % crops_per_frame + 1 for number in numbers],
        }
    )


def _counts(stem: str) -> bool:
    return bool(_NUMBER.fullmatch(stem)) and int(stem) >= 1


def _left_out(folder: str, names: Sequence[str], what: str = "entries that are not pictures") -> str:
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{folder}: {len(names)} {what} were left out ({shown})"


def _is_text(name: str) -> bool:
    """Return whether a name from the file system is valid UTF-8; Python keeps other bytes as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def pictures_beside(images: Path, root: Path) -> list[str]:
    """Return a note on each folder between ``root`` and its image folder that holds pictures: they are left out."""
    notes = []
    for folder in dict.fromkeys((images.parent, root)) if images != root else ():
        names = [path.name for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file()]
        shown = sorted(os.fsencode(name).decode(errors="replace") for name in names if not name.startswith("."))
        if shown:
            notes.append(_left_out(folder.name, shown, f"pictures beside {images.name}/"))
    return notes


def repeated_species(combinations: Sequence[str], codes: Sequence[str]) -> list[str]:
    """Return a note on each species set of several folders, and on which of them each published partition leaves out.

    A partition that cannot be drawn from these folders has no note.
    """
    folders: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(combinations):
        folders.setdefault(parse_combination(name, codes), []).append(name)
    notes = [f"{', '.join(names)}: folders of the same species" for names in folders.values() if len(names) > 1]
    for seed in PARTITION_SEEDS if notes else ():
        try:
            dropped = dropped_folders(combinations, seed, codes=codes)
        except ValueError:
            continue
        if dropped:
            notes.append(f"lco-{seed}: in no part, as a held-out folder has the same species: {', '.join(dropped)}")
    return notes


def row_positions(rows: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    """Return int64 positions of rows given as positions or as a boolean mask over ``n`` rows.

    Raises:
        ValueError: a mask of another length, or not one-dimensional. TypeError: not whole numbers.
        IndexError: a position outside 0..n-1 (negative ones would silently count from the end).
    """
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape != (n,):
        raise ValueError(f"a mask must have one entry per image ({n}), got shape {rows.shape}")
    if rows.ndim != 1:
        raise ValueError(f"row positions must be a list of whole numbers, got shape {rows.shape}")
    if rows.size and rows.dtype.kind not in "biu":
        raise TypeError(f"row positions must be whole numbers or a boolean mask, got {rows.dtype}")
    if rows.dtype == bool:
        return np.flatnonzero(rows)
    if rows.size and not (0 <= rows.min() and rows.max() < n):
        raise IndexError(f"row positions must lie in 0..{n - 1}, got {rows.min()}..{rows.max()}")
    return rows.astype(np.int64)
