"""A simulated data set on disk: the published layout, written field by field, resumable at any moment."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phoebi_lib import __version__
from phoebi_lib.catalogue import (
    CODES,
    COMBINATIONS,
    FOUR_CLASS_CODES,
    FOUR_CLASS_FOLDER,
    FOUR_CLASS_SPECIES,
    parse_combination,
)
from phoebi_lib.simulate.field import Field, draw_field
from phoebi_lib.simulate.parameters import parameters_sha256
from phoebi_lib.simulate.pool import SimulationError, run_all
from phoebi_lib.simulate.session import WORLDS
from phoebi_lib.workspace import atomic_path

try:
    import fcntl
except ImportError:  # not a POSIX system: two processes then do the same work twice, to the same bytes
    fcntl = None

#: Sizes of the simulated profiles.
SIMULATED = {
    "smoke": {"fields_per_combination": 10, "crops_per_field": 1},
    "default": {"fields_per_combination": 10, "crops_per_field": 3},
}
#: Sizes of the further frames of the pure cultures, one crop each, that only tests look at. Their sessions are those of
#: the profile's pure cultures, and their frames are numbered after its frames.
PURE = {
    "smoke": {"fields_per_combination": 5, "crops_per_field": 1, "first_frame": 11},
    "default": {"fields_per_combination": 20, "crops_per_field": 1, "first_frame": 11},
}
SEED = 1337
#: Of the four-species sets: another day at the microscope, which shares no session with the six-species sets.
FOUR_CLASS_SEED = 4

_COMPLETE, _BEGUN = "dataset.json", ".simulation.json"
_CELL_COLUMNS = ("path", "combination", "frame", "crop")
_SESSION_COLUMNS = (
    "combination", "frame", "session", "focus", "lamp", "loading", "hotspot_height", "hotspot_width",
)  # fmt: skip


class SimulationMismatchError(ValueError):
    """The folder holds something else than what was asked for; nothing was changed."""


def simulate_dataset(
    root: str | Path,
    *,
    name: str,
    fields_per_combination: int,
    crops_per_field: int,
    seed: int = SEED,
    world: str = "combination",
    combinations: Sequence[str] = COMBINATIONS,
    codes: Sequence[str] = CODES,
    first_frame: int = 1,
    workers: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> None:
    """Simulate a data set into ``root``, in the published layout, or finish one that was interrupted.

    Writes ``images/<combination>/<nnnnn>.jpg`` (RGB, ``crop.size`` px a side, numbered so that frame f gives the images
    ``(f - 1) * crops + 1 ...``; of four species ``images_4class``), ``cells.csv`` (cells per image and species, columns
    in the order of ``codes``), ``sessions.csv`` (one row per frame), the published manifests, and last
    ``dataset.json``, which marks the set as complete. Every byte depends on the arguments alone: not on ``workers``,
    nor on where an earlier run was stopped. Images that exist are not made again.

    Args:
        root: the data set's folder.
        name: recorded in ``dataset.json``.
        fields_per_combination: frames per combination, at least 1.
        crops_per_field: images per frame, at least 1.
        seed: of everything random, at least 0.
        world: ``"combination"`` (one session per combination, as published) or ``"shared"`` (a session per frame, from
            a pool that all combinations share).
        combinations: folder names. Each spelling of a species set is a recording of its own.
        codes: that the folder names are spelled with: the six, or the four letters of the four-species subset.
        first_frame: number of the first frame, from 1 on; later numbers give further fields of the same sessions.
        workers: processes; by default as many as this process may use processors.
        overrides: other values of parameters by dotted name, see ``load_parameters``; for tests and experiments.

    Raises:
        ValueError: an argument is out of range.
        SimulationMismatchError: ``root`` holds a set made with other arguments or parameters, or images of unknown
            origin.
        SimulationError: a field failed; the message names combination and frame. What is finished is kept.
    """
    counts = {"fields_per_combination": fields_per_combination, "crops_per_field": crops_per_field,
              "first_frame": first_frame}  # fmt: skip
    for argument, value in counts.items():
        if value < 1:
            raise ValueError(f"{argument} is {value}; expected at least 1")
    if (first_frame - 1 + fields_per_combination) * crops_per_field > 99_999:
        raise ValueError("more than 99,999 images a combination do not fit five-digit file names")
    if seed < 0:
        raise ValueError(f"seed is {seed}; expected 0 or more")
    if world not in WORLDS:
        raise ValueError(f"world is {world!r}; expected one of {', '.join(map(repr, WORLDS))}")
    if not combinations or len(set(combinations)) < len(combinations):
        raise ValueError("combinations must hold at least one name, each once")
    if tuple(codes) not in (CODES, FOUR_CLASS_CODES):
        raise ValueError(f"codes is {tuple(codes)}; expected {CODES} or {FOUR_CLASS_CODES}")
    for combination in combinations:
        parse_combination(combination, codes)

    root = Path(root)
    facts = {
        "name": name,
        "simulated": True,
        "crops_per_frame": crops_per_field,
        "codes": list(codes),
        "parameters_sha256": parameters_sha256(overrides),
        "world": world,
        "seed": seed,
        "fields_per_combination": fields_per_combination,
        "first_frame": first_frame,
        "combinations": list(combinations),
        "library_version": __version__,
    }
    if _is_complete(root, facts):
        return
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root):
        if _is_complete(root, facts):
            return
        if not (root / _COMPLETE).is_file():
            _write_json(root / _BEGUN, facts)
        jobs = [
            (str(root), combination, frame, crops_per_field, seed, world, tuple(codes), dict(overrides or {}))
            for combination in combinations
            for frame in range(first_frame, first_frame + fields_per_combination)
        ]
        rows = run_all(make_field, jobs, workers=workers, desc=f"simulating {name}")
        _remove_leftovers(root)
        _write_table(root / "cells.csv", (*_CELL_COLUMNS, *codes), [row for cells, _ in rows for row in cells])
        columns = (*_SESSION_COLUMNS, *(f"expected_{code}" for code in codes))
        _write_table(root / "sessions.csv", columns, [session for _, session in rows])
        # imported here: datasets itself asks this module for simulated sets
        from phoebi_lib.datasets import write_manifests

        write_manifests(root, crops_per_frame=crops_per_field)
        _write_json(root / _COMPLETE, facts)
        (root / _BEGUN).unlink(missing_ok=True)


def image_path(combination: str, frame: int, crop: int, crops_per_field: int) -> str:
    """Return an image's path under the image folder: frame and crop count from 1."""
    return f"{combination}/{(frame - 1) * crops_per_field + crop:05d}.jpg"


def image_folder(codes: Sequence[str]) -> str:
    """Return the name of the image folder of a set with these codes, as published."""
    return FOUR_CLASS_FOLDER if tuple(codes) == FOUR_CLASS_CODES else "images"


def make_field(job: tuple[str, str, int, int, int, str, tuple[str, ...], dict[str, Any]]) -> tuple[list[list], list]:
    """Write the missing crops of one field; return its rows of ``cells.csv`` and its row of ``sessions.csv``."""
    root, combination, frame, crops, seed, world, codes, overrides = job
    # the order of the pieces is kept: the simulator draws b_f and f_b as two recordings
    drawn = "_".join(FOUR_CLASS_SPECIES.get(piece, piece) for piece in combination.split("_"))
    species = [FOUR_CLASS_SPECIES.get(code, code) for code in codes]
    try:
        field = draw_field(drawn, frame, seed=seed, world=world, crops=crops, overrides=overrides)
        paths = [image_path(combination, frame, crop, crops) for crop in range(1, crops + 1)]
        files = {crop: Path(root, image_folder(codes), path) for crop, path in enumerate(paths, start=1)}
        missing = [crop for crop, file in files.items() if not file.is_file()]
        if missing:
            picture = field.photograph()
            for crop in missing:
                _write_jpeg(files[crop], field, picture, crop)
    except Exception as error:
        raise SimulationError(
            f"combination {combination!r}, frame {frame}: {type(error).__name__}: {error}. Finished images are kept in "
            f"{root}; remove the cause and run again to go on from there"
        ) from error
    counts = {crop: field.counts(crop) for crop in files}
    cells = [
        [path, combination, frame, crop, *(counts[crop][name] for name in species)]
        for crop, path in enumerate(paths, start=1)
    ]
    session, expected = field.session, field.session.expected_cells(parse_combination(drawn), field.parameters)
    numbers = (session.focus, session.lamp, session.loading, session.hotspot_height, session.hotspot_width)
    numbers += tuple(expected.get(name, 0.0) for name in species)
    return cells, [combination, frame, field.session_number, *(f"{number:.6g}" for number in numbers)]


def _write_jpeg(path: Path, field: Field, picture: Any, crop: int) -> None:
    buffer = io.BytesIO()
    quality = field.parameters["crop"]["jpeg_quality"]
    field.cut(picture, crop).save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
    with atomic_path(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def _is_complete(root: Path, facts: Mapping[str, Any]) -> bool:
    """Return whether the set is there in full; refuse a folder that holds anything but this set or a part of it."""
    images = root / image_folder(facts["codes"])
    for record in (root / _COMPLETE, root / _BEGUN):
        if record.is_file():
            _check_same(root, record, facts)
            break
    else:
        if images.is_dir() and any(images.iterdir()):
            raise SimulationMismatchError(
                f"{images} holds files, but {root} has no {_COMPLETE} that says how they were made; "
                f"remove the folder {root} or choose another one"
            )
    if not all((root / file).is_file() for file in (_COMPLETE, "cells.csv", "sessions.csv")):
        return False
    first, frames, crops = facts["first_frame"], facts["fields_per_combination"], facts["crops_per_frame"]
    return all(
        (images / image_path(combination, frame, crop, crops)).is_file()
        for combination in facts["combinations"]
        for frame in range(first, first + frames)
        for crop in range(1, crops + 1)
    )


def _check_same(root: Path, record: Path, facts: Mapping[str, Any]) -> None:
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SimulationMismatchError(f"{record} is not readable JSON ({error}); remove the folder {root}") from error
    ignored = {"name", "library_version"}
    differing = [key for key in facts if key not in ignored and (key not in found or found[key] != facts[key])]
    if differing:
        details = "; ".join(f"{key} is {found.get(key)!r}, asked for {facts[key]!r}" for key in differing)
        raise SimulationMismatchError(
            f"{root} holds a data set made differently ({details}). Nothing was changed: remove the folder to simulate "
            "it anew, or choose another one"
        )


def _write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([columns, *rows])


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _remove_leftovers(root: Path) -> None:
    """Remove the temporary files of runs that were killed while writing (this run holds the lock: none is in use)."""
    for pattern in ("images*/*/.*-*.jpg", ".*-*.csv", ".*-*.json"):
        for leftover in root.glob(pattern):
            leftover.unlink(missing_ok=True)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Let one process at a time work on ``root``; another waits, then finds the set complete."""
    with open(root / ".lock", "w") as stream:
        if fcntl is not None:
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
