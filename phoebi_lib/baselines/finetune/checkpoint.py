"""What a training leaves on disk: its whole state while it runs, then its best weights and how it went.

Data only: safetensors and JSON. Each file is replaced in one step, so that a process killed at any moment leaves the
state before or after.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from phoebi_lib.pool import canonical_json
from phoebi_lib.workspace import atomic_path, file_sha256, text_sha256

STATE, BEST, RUN = "state.safetensors", "best.safetensors", "run.json"
_AGAIN = "delete the folder to train again"
# what a training says of itself while it runs, and what it adds at its end
_RUNNING = ("losses", "history", "best", "best_f1", "thresholds", "seconds", "threads")
_FINISHED = ("train_f1", "train_f1_images", "updates")


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


def damaged(path: Path, what: object) -> ValueError:
    """Return the error for a file that is not what a training left there."""
    return ValueError(f"{path}: damaged ({what}); {_AGAIN}")


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
        raise damaged(path, error) from error


def check_facts(
    path: Path, facts: Mapping[str, Any], points: Sequence[int] | None, n_classes: int | None, more: Sequence[str] = ()
) -> None:
    """Raise ValueError, naming ``path``, unless ``facts`` are those of a training.

    Args:
        path: the file they are from. facts: as read.
        points: updates after which validation is scored, None for those that the facts tell.
        n_classes: how many thresholds, None for any number.
        more: names that have to be there besides.
    """
    try:
        wrong = _wrong(facts, points, n_classes, {*_RUNNING, *more})
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise damaged(path, f"facts of the wrong kind: {error!r}") from error
    if wrong:
        raise damaged(path, wrong)


def _wrong(facts: Mapping[str, Any], points: Sequence[int] | None, n_classes: int | None, names: set[str]) -> str:
    """Return what is wrong with facts, an empty text for nothing."""
    if odd := sorted(names ^ set(facts)):
        return f"missing or unknown: {', '.join(odd)}"
    if not isinstance(facts["threads"], int) or isinstance(facts["threads"], bool) or facts["threads"] < 1:
        return f"threads must be a whole number of at least 1, found {facts['threads']!r}"
    losses, history, thresholds = facts["losses"], facts["history"], facts["thresholds"]
    if not (all(map(_finite, (*losses, facts["seconds"], facts["best_f1"]))) and facts["seconds"] >= 0):
        return "a loss, F1 or duration is not a number"
    told = [entry["updates"] for entry in history]
    reached = [point for point in (told if points is None else points) if point <= len(losses)]
    if told != reached:
        return f"evaluations after other updates than {reached}"
    if any(entry.keys() != {"updates", "epoch", "loss", "val_f1"} for entry in history):
        return "an evaluation with other entries than updates, epoch, loss, val_f1"
    if not all(_finite(value) for entry in history for value in entry.values()):
        return "an evaluation holds something else than numbers"
    if not all(value is None or _finite(value) for value in thresholds):
        return "a threshold is not a number"
    expected = (n_classes if n_classes is not None else len(thresholds)) if history else 0
    if len(thresholds) != expected:
        return f"{len(thresholds)} thresholds, expected {expected}"
    f1s = [entry["val_f1"] for entry in history] or [-1.0]
    best = reached[f1s.index(max(f1s))] if history else 0
    if (facts["best"], facts["best_f1"]) != (best, max(f1s)):
        return f"the best state is that of update {best}, found {facts['best']!r}"
    return ""


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def finish(folder: Path, best: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Keep the best weights and the facts of a training; drop optimiser and latest weights."""
    _write(folder / BEST, best, {})
    document = {**facts, "best_sha256": file_sha256(folder / BEST)}
    document["sha256"] = text_sha256(canonical_json(document))
    with atomic_path(folder / RUN) as temporary:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (folder / STATE).unlink(missing_ok=True)


def finished(folder: Path, n_classes: int | None = None) -> dict[str, Any] | None:
    """Return the facts of a finished training of K = ``n_classes``, None where it is not.

    Raises:
        ValueError: damaged or changed files, named.
    """
    path = folder / RUN
    if not path.is_file():
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        as_written = facts.pop("sha256") == text_sha256(canonical_json(facts))
        whole = facts["best_sha256"] == file_sha256(folder / BEST)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(path, error) from error
    for name, unchanged in ((RUN, as_written), (BEST, whole)):
        if not unchanged:
            raise ValueError(f"{folder / name}: has changed since it was written; {_AGAIN}")
    check_facts(path, facts, None, n_classes, (*_FINISHED, "best_sha256"))
    if not facts["updates"] == len(facts["losses"]) == facts["history"][-1]["updates"]:
        raise damaged(path, f"ends after {len(facts['losses'])} updates, not after {facts['updates']!r}")
    return facts


def load_best(folder: Path) -> dict[str, torch.Tensor]:
    """Return the best weights of a finished training, by name."""
    with safe_open(folder / BEST, framework="pt") as stream:
        return {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118


def _write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> None:
    with atomic_path(path) as temporary:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, temporary, metadata)
