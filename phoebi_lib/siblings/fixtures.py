"""The fixtures on disk: small synthetic data sets in the published layouts, made whole or not at all."""

from __future__ import annotations

import importlib
import json
import shutil
import tempfile
from pathlib import Path

import filelock

from phoebi_lib import workspace
from phoebi_lib.siblings.printed import BENCHMARKS

NOTE = "fixture.json"
STATEMENT = "Synthetic pictures: they show that the software runs, and nothing about fungi, needles, fish or plants."


def fixture(benchmark: str) -> Path:
    """Return the folder of a benchmark's fixture, made first where it is missing or was made by another version.

    Raises ValueError for an unknown benchmark.
    """
    if benchmark not in BENCHMARKS:
        raise ValueError(f"unknown benchmark {benchmark!r}; known: {', '.join(BENCHMARKS)}")
    module = importlib.import_module(f"phoebi_lib.siblings.{benchmark}.fixture")
    folder = workspace.data_dir() / "siblings" / f"synthetic_{benchmark}"
    sources = [Path(module.__file__), Path(__file__).with_name("drawing.py")]
    note = {"statement": STATEMENT, "made_by": workspace.text_sha256("".join(path.read_text() for path in sources))}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.with_name(f".{folder.name}.lock")):
        written = folder / NOTE
        if not written.is_file() or written.read_text() != json.dumps(note, indent=1) + "\n":
            temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                module.write(temporary)
                (temporary / NOTE).write_text(json.dumps(note, indent=1) + "\n")
                temporary.chmod(0o755)
                shutil.rmtree(folder, ignore_errors=True)
                temporary.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder
