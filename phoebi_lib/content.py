"""Hashes of image files by content, remembered so that unchanged files are not read again."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from phoebi_lib import workspace

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset

# a file written a moment ago could change again without changing its times
_RACY_SECONDS = 2.0


def content_hashes(dataset: Dataset, store: Path | None = None) -> list[str]:
    """Return the SHA-256 of each image's bytes, 64 hexadecimal digits each, in the order of the manifest.

    A file's hash is remembered under ``store`` (the folder of pools by default) by its size and times. Raises
    ValueError naming a listed file that cannot be read.
    """
    store = workspace.pools_dir() if store is None else store
    memory = store / "hashes" / f"{workspace.text_sha256(str(dataset.images.resolve()))[:16]}.json"
    known = _remembered(memory)
    hashes, changed, now = [], False, time.time()
    for i, name in enumerate(dataset.manifest["path"]):
        path = dataset.file(i)
        try:
            stat = path.stat()
            identity = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
            if name in known and known[name][:-1] == identity:
                hashes.append(known[name][-1])
                continue
            hashes.append(workspace.file_sha256(path))
        except OSError as error:
            raise ValueError(f"{path}: listed by {dataset.name!r}, unreadable ({error.strerror})") from error
        changed |= known.pop(name, None) is not None
        if max(stat.st_mtime, stat.st_ctime) < now - _RACY_SECONDS:
            known[name] = [*identity, hashes[-1]]
            changed = True
    if changed:
        # on a read-only or full disk the files are read again next time
        with contextlib.suppress(OSError), workspace.atomic_path(memory) as temporary:
            temporary.write_text(json.dumps(known))
    return hashes


def _remembered(memory: Path) -> dict[str, list]:
    """Return what is remembered of each path, [size, modified, changed, hash]; nothing where that is damaged."""
    try:
        known = json.loads(memory.read_text())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    entries = known.items() if isinstance(known, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, list) and entry and isinstance(entry[-1], str)}
