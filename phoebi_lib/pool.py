"""The feature pool on disk: one file of raw features, one of marks, one that says what they are.

A pool folder is named after its key, a SHA-256 over everything that decides the features and the labels. ``pool.json``
says ``complete`` only at the end; until then :func:`open_pool` refuses the folder and ``embed`` resumes it.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.folders import row_positions
from phoebi_lib.workspace import atomic_path, file_sha256, text_sha256

FEATURES, DONE, HEADER = "features.npy", "done.npy", "pool.json"
_SECONDS_BETWEEN_COMMITS = 1.0
_EPSILON = 1e-12
_AGAIN = "delete the folder and run embed() again"
_CHECKED_BYTES = 1 << 26
# what pool.json must hold for anything to be read from it
_FIELDS = {
    "complete": bool, "dataset_name": str, "encoder_name": str, "evidence": str, "codes": list, "facts": dict,
    "labels": (list, type(None)), "manifest": dict, "ingredients": dict, "key": str, "shape": list, "run": dict,
}  # fmt: skip


def canonical_json(value: object) -> str:
    """Return one fixed JSON text for plain values: sorted keys, no spaces, NaN refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def pool_key(ingredients: dict) -> str:
    """Return the key of a pool: the SHA-256 of the canonical JSON of its ingredients."""
    return text_sha256(canonical_json(ingredients))


def description(header: dict) -> dict:
    """Return the part of a header that describes the images; its hash is one of the ingredients of the key."""
    return {key: header[key] for key in ("dataset_name", "codes", "labels", "facts", "evidence", "manifest")}


@dataclass(frozen=True, eq=False, repr=False)
class Pool:
    """Tile features of a data set, opened as a memory map.

    Attributes:
        raw: features as the encoder gave them, float32 (N,T,D), read-only; tiles in row-major order of the grid.
        manifest: one row per image, as in the data set.
        header: all of ``pool.json``, less the columns of the manifest.
    """

    raw: np.ndarray
    manifest: pd.DataFrame
    header: dict

    def __repr__(self) -> str:
        n, tiles, dim = self.raw.shape
        return (
            f"Pool({self.dataset_name}, {n} images x {tiles} tiles x {dim} features of {self.encoder_name}, "
            f"evidence {self.evidence}, key {self.key[:16]})"
        )

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def X(self) -> np.ndarray:
        """Features of unit norm per tile, float32 (N,T,D); computed at each access, so keep it in a variable."""
        return unit_norm(self.raw)

    def take(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return unit-norm features, float32 (n,T,D), of row positions or a boolean mask; errors: `row_positions`."""
        return unit_norm(self.raw[row_positions(rows, len(self))])

    def select(self, rows: Sequence[int] | np.ndarray) -> Pool:
        """Return a pool in memory of the rows that :meth:`take` takes, in the order given, with a key of its own."""
        positions = row_positions(rows, len(self))
        labels = self.header["labels"]
        header = self.header | {
            "key": text_sha256(self.key + canonical_json(positions.tolist())),
            "shape": [len(positions), *self.raw.shape[1:]],
            "labels": None if labels is None else [labels[i] for i in positions],
        }
        return Pool(self.raw[positions], self.manifest.iloc[positions].reset_index(drop=True), header)

    @property
    def ids(self) -> list[str]:
        """Relative path of each image."""
        return self.manifest["path"].tolist()

    @property
    def labelled(self) -> bool:
        """Whether the images have labels."""
        return self.header["labels"] is not None

    @property
    def Y(self) -> np.ndarray:
        """Labels (N,K), 0/1, in class order of ``codes``. ValueError if the images have none."""
        if not self.labelled:
            raise ValueError(
                f"the pool of {self.dataset_name!r} has no labels: its pictures lie in no combination folder. "
                "It can be predicted on, not fitted or scored"
            )
        return np.array(self.header["labels"], dtype=np.int64).reshape(len(self), len(self.codes))

    @property
    def codes(self) -> tuple[str, ...]:
        """Species codes in class order."""
        return tuple(self.header["codes"])

    @property
    def dataset_name(self) -> str:
        """Name of the data set."""
        return self.header["dataset_name"]

    @property
    def encoder_name(self) -> str:
        """Name of the encoder in the registry."""
        return self.header["encoder_name"]

    @property
    def evidence(self) -> str:
        """``stand-in`` (weights), ``simulated``, ``paper`` (published images, encoder of Table 4) or ``user``."""
        return self.header["evidence"]

    @property
    def key(self) -> str:
        """The pool's key, 64 hexadecimal digits."""
        return self.header["key"]

    @property
    def facts(self) -> dict:
        """What the data set says of itself (simulation parameters, world, crops per frame...)."""
        return dict(self.header["facts"])

    @property
    def provenance(self) -> dict:
        """Encoder, front-end, versions, device and threads that made the features."""
        return {**self.header["ingredients"], **self.header["run"]}


def unit_norm(raw: np.ndarray) -> np.ndarray:
    """Return features (...,D) divided by their Euclidean norm (at least 1e-12), float32."""
    raw = np.asarray(raw, dtype=np.float32)
    norm = np.sqrt(np.einsum("...d,...d->...", raw, raw, dtype=np.float64))
    return raw / np.maximum(norm, _EPSILON)[..., None].astype(np.float32)


def unusable(features: np.ndarray) -> np.ndarray:
    """Return which tiles of raw features (n,T,D) are not finite or all zero, bool (n,T)."""
    return ~(np.isfinite(features).all(axis=2) & (features != 0).any(axis=2))


def open_pool(path: str | Path, *, verify: bool = False) -> Pool:
    """Open a pool folder as a memory map.

    Args:
        path: the folder.
        verify: also read all features and compare their SHA-256 with the recorded one.

    Raises:
        FileNotFoundError: no pool there.
        ValueError: unfinished, damaged, or its contents do not match its key.
    """
    folder = Path(path)
    header = read_header(folder)
    if header is None:
        raise FileNotFoundError(f"{folder}: no feature pool there ({HEADER} is missing); make one with embed()")
    problem = _problem(folder, header, verify)
    if problem:
        raise ValueError(f"{folder}: {problem}")
    columns = header.pop("manifest")
    raw = np.load(folder / FEATURES, mmap_mode="r")
    return Pool(raw, pd.DataFrame(columns), header)


def read_header(folder: Path) -> dict | None:
    """Return ``pool.json`` of a folder, None where there is none.

    Raises:
        ValueError: it is not readable JSON, or lacks what a pool must say of itself.
    """
    try:
        header = json.loads((folder / HEADER).read_text())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder / HEADER}: damaged ({error}); {_AGAIN}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{folder / HEADER}: damaged (expected a JSON object); {_AGAIN}")
    wrong = [name for name, kind in _FIELDS.items() if name not in header or not isinstance(header[name], kind)]
    if wrong or len(header["shape"]) != 3 or not all(type(n) is int and n > 0 for n in header["shape"]):
        raise ValueError(f"{folder / HEADER}: damaged (missing or unusable: {', '.join(wrong or ['shape'])}); {_AGAIN}")
    return header


def _problem(folder: Path, header: dict, verify: bool) -> str:
    if not header["complete"]:
        return "this pool is unfinished; run embed() again with the same arguments to resume it"
    ingredients = header["ingredients"]
    if ingredients.get("description") != text_sha256(canonical_json(description(header))):
        return f"the images or labels listed in {HEADER} are not those the features were made from; {_AGAIN}"
    if pool_key(ingredients) != header["key"] or not header["key"].startswith(folder.name):
        return f"the key {header['key'][:16]} does not match the folder's name or contents; {_AGAIN}"
    path = folder / FEATURES
    expected = _features_size(header["shape"])
    size = path.stat().st_size if path.is_file() else 0
    if size != expected:
        return f"{FEATURES} has {size} bytes, expected {expected}; {_AGAIN}"
    if verify and file_sha256(path) != header.get("features_sha256"):
        return f"{FEATURES} has changed since it was written; {_AGAIN}"
    return ""


def _npy_header(shape: Sequence[int], dtype: type) -> bytes:
    stream = io.BytesIO()
    what = {"descr": np.dtype(dtype).newbyteorder("<").str, "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(stream, what)
    return stream.getvalue()


def _features_size(shape: Sequence[int]) -> int:
    return len(_npy_header(shape, np.float32)) + int(np.prod(shape)) * 4


class PoolWriter:
    """Fills a pool folder batch by batch, so that a process killed at any moment loses about a second of work.

    Features go to disk before the mark that says so. Plain writes, not a memory map: on a full disk a write raises an
    error, while touching a mapped page would kill the process.
    """

    def __init__(self, folder: Path, header: dict) -> None:
        self.folder, self.header, self.shape = folder, header, tuple(header["shape"])
        starts = _npy_header(self.shape, np.float32), _npy_header(self.shape[:1], np.uint8)
        self._offset, self._done_offset = map(len, starts)
        old = read_header(folder)
        if old is None:
            self._create()
        elif old["key"] != header["key"] or old["shape"] != header["shape"]:
            raise ValueError(f"{folder}: holds a pool of another key; {_AGAIN}")
        else:
            self.header = old
            sizes = _features_size(self.shape), self._done_offset + self.shape[0]
            for name, start, size in zip((FEATURES, DONE), starts, sizes, strict=True):
                _check_file(folder / name, start, size)
        self.done = np.fromfile(folder / DONE, dtype=np.uint8, offset=self._done_offset)
        self._features, self._marks = (os.open(folder / name, os.O_RDWR) for name in (FEATURES, DONE))
        self._pending: list[slice] = []
        self._last = time.monotonic()

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        needed, free = _features_size(self.shape), shutil.disk_usage(self.folder).free
        if needed > free:
            raise OSError(errno.ENOSPC, f"the pool needs {needed:,} bytes and the disk has {free:,}", str(self.folder))
        for name, shape, dtype in ((FEATURES, self.shape, np.float32), (DONE, self.shape[:1], np.uint8)):
            with open(self.folder / name, "wb") as stream:
                stream.write(_npy_header(shape, dtype))
                stream.truncate(stream.tell() + int(np.prod(shape)) * np.dtype(dtype).itemsize)
        self._write_header()

    def _write_header(self) -> None:
        with atomic_path(self.folder / HEADER) as temporary:
            temporary.write_text(json.dumps(self.header, allow_nan=False))

    def write(self, rows: slice, features: np.ndarray) -> None:
        """Write raw features (n,T,D) of consecutive rows; they are marked as done at the next commit."""
        values = np.ascontiguousarray(features, dtype="<f4")
        _write_all(self._features, values.tobytes(), self._offset + rows.start * int(np.prod(self.shape[1:])) * 4)
        self._pending.append(rows)
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_COMMITS:
            self.commit()

    def commit(self) -> None:
        """Push written features to disk, then mark their rows as done."""
        os.fsync(self._features)
        for rows in self._pending:
            self.done[rows] = 1
            _write_all(self._marks, self.done[rows].tobytes(), self._done_offset + rows.start)
        os.fsync(self._marks)
        self._pending, self._last = [], time.monotonic()

    def finish(self) -> None:
        """Mark the pool as complete.

        Raises:
            ValueError: a row is not done, or holds a tile of non-finite or all-zero features.
        """
        self.commit()
        if not self.done.all():
            raise ValueError(f"{self.folder}: {int((self.done == 0).sum())} images are not embedded yet")
        raw = np.load(self.folder / FEATURES, mmap_mode="r")
        step = max(1, _CHECKED_BYTES // raw[0].nbytes)
        for start in range(0, len(raw), step):
            bad = unusable(raw[start : start + step]).any(axis=1)
            if bad.any():
                raise ValueError(
                    f"{self.folder / FEATURES}: damaged, row {start + int(bad.argmax())} is marked as done and holds "
                    f"NaN, infinite or all-zero features; {_AGAIN}"
                )
        self.header = self.header | {"complete": True, "features_sha256": file_sha256(self.folder / FEATURES)}
        self._write_header()

    def close(self) -> None:
        """Close the files; what was committed stays."""
        os.close(self._features)
        os.close(self._marks)


def _check_file(path: Path, start: bytes, size: int) -> None:
    found = path.stat().st_size if path.is_file() else 0
    if found != size:
        raise ValueError(f"{path}: damaged, {found} bytes where {size} were expected; {_AGAIN}")
    with open(path, "rb") as stream:
        if stream.read(len(start)) != start:
            raise ValueError(f"{path}: damaged, its first bytes are not those of this pool; {_AGAIN}")


def _write_all(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
