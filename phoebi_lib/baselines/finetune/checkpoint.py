"""What a training leaves on disk: its whole state while it runs, then its best weights and how it went.

Data only: safetensors and JSON. Each file is replaced in one step, so that a process killed at any moment leaves the
state before or after.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import filelock
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from phoebi_lib.workspace import atomic_path, file_sha256

STATE, BEST, RUN = "state.safetensors", "best.safetensors", "run.json"
_AGAIN = "delete the folder to train again"


def claim(folder: Path) -> filelock.BaseFileLock:
    """Return the lock of a folder, to be entered; says so on stderr where another process holds it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder.parent / f".{folder.name}.lock")
    try:
        lock.acquire(timeout=0)
        lock.release()
    except filelock.Timeout:
        if os.environ.get("PHOEBI_QUIET") != "1":
            print(f"another process is at work in {folder}; waiting for it", file=sys.stderr, flush=True)
    return lock


def save_state(folder: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Replace the state of an unfinished training: named tensors, and plain values in the same file."""
    _write(folder / STATE, tensors, {"facts": json.dumps(facts)})


def load_state(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """Return the state of an unfinished training, None where there is none. ValueError for a damaged file."""
    path = folder / STATE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as stream:
            return {name: stream.get_tensor(name) for name in stream.keys()}, json.loads(stream.metadata()["facts"])  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: damaged ({error}); {_AGAIN}") from error


def finish(folder: Path, best: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Keep the best weights and the facts of a training; drop optimiser and latest weights."""
    _write(folder / BEST, best, {})
    document = {**facts, "best_sha256": file_sha256(folder / BEST)}
    with atomic_path(folder / RUN) as temporary:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (folder / STATE).unlink(missing_ok=True)


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the facts of a finished training, None where it is not. ValueError for damaged files."""
    path = folder / RUN
    if not path.is_file():
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        whole = facts["best_sha256"] == file_sha256(folder / BEST)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: damaged ({error}); {_AGAIN}") from error
    if not whole:
        raise ValueError(f"{folder / BEST}: has changed since it was written; {_AGAIN}")
    return facts


def load_best(folder: Path) -> dict[str, torch.Tensor]:
    """Return the best weights of a finished training, by name."""
    with safe_open(folder / BEST, framework="pt") as stream:
        return {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118


def _write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> None:
    with atomic_path(path) as temporary:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, temporary, metadata)
