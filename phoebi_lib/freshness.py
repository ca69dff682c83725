"""Is an executed notebook still what its inputs would give? Hashes of source, library, pins, data and parameters."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import nbformat

from phoebi_lib import workspace
from phoebi_lib.parameters import FOLDERS

LIBRARY_SUFFIXES = {".py", ".yaml", ".csv"}
PINS = ("requirements.txt", "constraints.txt")


def _digest(files: list[Path], base: Path) -> str:
    lines = [f"{file.relative_to(base).as_posix()} {workspace.file_sha256(file)}" for file in sorted(files)]
    return workspace.text_sha256("\n".join(lines))


def library_digest() -> str:
    """Return one hash over every source, parameter and data file of the installed ``phoebi_lib``."""
    package = Path(__file__).resolve().parent
    return _digest([p for p in package.rglob("*") if p.suffix in LIBRARY_SUFFIXES and p.is_file()], package)


def pins_digest() -> str:
    """Return one hash over the pinned versions that the project names."""
    base = workspace.project()
    return _digest([base / name for name in PINS if (base / name).is_file()], base)


def data_digest(dataset: str | None) -> str:
    """Return one hash over the bytes of every image of ``dataset``, or "" for a notebook that reads none.

    A file's hash is remembered beside the data by size and modification time, so that only changed files are read.
    """
    if not dataset:
        return ""
    from phoebi_lib.content import content_hashes
    from phoebi_lib.datasets import open_dataset

    opened = open_dataset(dataset)
    lines = [f"{path} {sha}" for path, sha in zip(opened.manifest["path"], content_hashes(opened), strict=True)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def folders_digest(parameters: dict[str, Any]) -> str:
    """Return one hash over names, sizes and times of all files below the folders that ``parameters`` name, "" for none.

    Unlike images of a data set they are not read: the siblings' data are too many files for that.
    """
    named = [Path(parameters[name]) for name in FOLDERS if parameters.get(name)]
    files = [(folder, path, path.stat()) for folder in named for path in sorted(folder.rglob("*")) if path.is_file()]
    lines = [f"{path.relative_to(folder)} {stat.st_size} {stat.st_mtime_ns}" for folder, path, stat in files]
    return workspace.text_sha256("\n".join(lines)) if named else ""


def inputs(source: Path, parameters: dict[str, Any], dataset: str | None) -> dict[str, str]:
    """Return the hash of each input of a run, by name: source, library, pins, data, parameters."""
    return {
        "source": workspace.file_sha256(source),
        "library": library_digest(),
        "pins": pins_digest(),
        "data": data_digest(dataset) + folders_digest(parameters),
        "parameters": workspace.text_sha256(json.dumps(parameters, sort_keys=True)),
    }


def stale(executed: Path, now: dict[str, str]) -> list[str]:
    """Return why ``executed`` has to be made again; an empty list if it is fresh.

    That is the names of the inputs that changed since, and "tables" where a table that it wrote is gone or another;
    ["missing"] or ["damaged"] where there is no copy that can be read.
    """
    if not executed.is_file():
        return ["missing"]
    then = record(executed)
    if not then:
        return ["damaged"]
    reasons = [name for name, value in now.items() if then.get("inputs", {}).get(name) != value]
    return reasons if table_hashes(executed) == then.get("tables", {}) else [*reasons, "tables"]


def record(executed: Path) -> dict[str, Any]:
    """Return what a copy says of how it was made; an empty mapping where it says nothing or cannot be read."""
    try:
        said = dict(nbformat.read(executed, as_version=4).metadata.get("phoebi", {}))
        return said if all(isinstance(said.get(key), dict) for key in ("parameters", "inputs")) else {}
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, ValueError, TypeError, AttributeError, KeyError):
        return {}


def tables_of(executed: Path) -> Path:
    """Return the folder of the tables that the notebook behind ``executed`` writes: each copy has its own."""
    return executed.parent / "tables" / executed.stem


def table_hashes(executed: Path) -> dict[str, str]:
    """Return the SHA-256 of each table of a copy, by file name."""
    return {path.name: workspace.file_sha256(path) for path in sorted(tables_of(executed).glob("*.csv"))}
