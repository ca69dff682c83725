"""Where things live on disk, and how files are written so that nothing half-written looks whole."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def project() -> Path:
    """Return the folder of the sources: ``PHOEBI_PROJECT``, else the nearest parent that holds ``_toc.yml``.

    Outside a checkout it is the folder above the package, which an editable install shares with the sources.
    """
    if os.environ.get("PHOEBI_PROJECT"):
        return Path(os.environ["PHOEBI_PROJECT"]).resolve()
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if (folder / "_toc.yml").is_file() and (folder / "notebooks").is_dir():
            return folder
    return Path(__file__).resolve().parent.parent


def root() -> Path:
    """Return the working folder, where images, pools and results go: ``PHOEBI_HOME``, else :func:`project`.

    Notebooks run from several folders (papermill, nbval, JupyterLab), so paths must not depend on the current one.
    """
    value = os.environ.get("PHOEBI_HOME")
    return Path(value).resolve() if value else project()


def _folder(variable: str, default: str) -> Path:
    value = os.environ.get(variable)
    return Path(value).resolve() if value else root() / default


def data_dir() -> Path:
    """Return the folder of images: ``PHOEBI_DATA`` or ``<root>/data``."""
    return _folder("PHOEBI_DATA", "data")


def pools_dir() -> Path:
    """Return the folder of feature pools: ``PHOEBI_POOLS`` or ``<root>/pools``."""
    return _folder("PHOEBI_POOLS", "pools")


def results_dir() -> Path:
    """Return the folder of result rows and tables: ``PHOEBI_RESULTS`` or ``<root>/results``."""
    return _folder("PHOEBI_RESULTS", "results")


def tables_dir() -> Path:
    """Return the folder of tables: ``PHOEBI_TABLES`` (the runner sets it for each notebook) or ``<results>/tables``."""
    value = os.environ.get("PHOEBI_TABLES")
    return Path(value).resolve() if value else results_dir() / "tables"


def absolute_places() -> dict[str, str]:
    """Return those of the environment variables above that are set, each as an absolute path."""
    names = ("PHOEBI_PROJECT", "PHOEBI_HOME", "PHOEBI_DATA", "PHOEBI_POOLS", "PHOEBI_RESULTS")
    return {name: str(Path(value).resolve()) for name in names if (value := os.environ.get(name))}


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` on success, delete it on error.

    The temporary name keeps the suffix, so that writers which choose a format by suffix still work. An OSError that
    names no file (a full disk during a write) or the temporary one is raised anew with the name ``path``.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        # mkstemp makes the file private to its owner; give it the permissions an ordinary open() would have given
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        unnamed = error.filename is None or os.path.basename(error.filename).startswith(f".{path.stem}-")
        if error.errno is None or not unnamed:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def text_sha256(text: str) -> str:
    """Return the SHA-256 of a text's UTF-8 bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def device() -> str:
    """Return the torch device that encoders and trained decoders run on: ``PHOEBI_DEVICE`` (such as cuda), or cpu."""
    return os.environ.get("PHOEBI_DEVICE") or "cpu"
