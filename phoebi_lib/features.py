"""``embed``: every image is decoded once, and its tile features are kept in a pool on disk.

Rows are cut into batches by their number alone. Whatever the number of workers, and wherever a run was killed and
resumed, the same batches go through the same network with the same number of threads: the files are equal to the byte.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import numpy as np
import torch

from phoebi_lib import workspace
from phoebi_lib.content import content_hashes
from phoebi_lib.encoders import Encoder
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.pool import (
    Pool,
    PoolWriter,
    canonical_json,
    description,
    open_pool,
    pool_key,
    read_header,
    unusable,
)
from phoebi_lib.progress import track
from phoebi_lib.workspace import text_sha256

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.patches import PatchEncoder

__all__ = ["Pool", "embed", "open_pool"]

# Library files whose code decides a pixel or a feature.
_CODE = ("images.py", "frontend.py", "encoders.py", "weights.py", "patches.py", "features.py")


def embed(
    dataset: Dataset,
    encoder: Encoder | PatchEncoder,
    frontend: FrontEnd,
    *,
    store: str | Path | None = None,
    batch_frames: int = 8,
    workers: int | None = None,
    progress: bool = True,
) -> Pool:
    """Return the feature pool of a data set, embedding what is not on disk yet.

    The pool's key covers the images (bytes and order), their manifest and labels, the encoder and its weight file, the
    front-end, dtype, batch boundaries, versions of torch, timm and Pillow, and the library's own code for these steps.
    A first pass hashes the files (results are kept beside the pools by size and times, so it is a stat per file later);
    pixels are decoded once. A killed run resumes; a second process on the same store waits for the first.

    Args:
        dataset: images, manifest and labels; frames may differ in size.
        encoder: from ``load_encoder`` or ``load_patch_encoder``; its ``img_size`` is the front-end's ``tile_size``.
        frontend: illumination and grid.
        store: folder of pools; ``phoebi_lib.workspace.pools_dir()`` by default.
        batch_frames: frames per batch (8, as in the paper's code).
        workers: threads that decode ahead; the number of CPU cores by default. No influence on the features.
        progress: report progress.

    Raises:
        ValueError: sizes that do not fit, an empty data set, an image that is unreadable, smaller than a tile or gives
            NaN or all-zero features (named), or a damaged pool.
        OSError: the disk is full (the unfinished pool is kept, and is not taken for a complete one).
    """
    _check_arguments(dataset, encoder, frontend, batch_frames, workers)
    store = Path(store) if store is not None else workspace.pools_dir()
    store.mkdir(parents=True, exist_ok=True)
    header = _header(dataset, encoder, frontend, store, batch_frames)
    folder = store / header["key"][:16]
    if not _is_complete(folder):  # a complete pool needs no lock, so it opens on a read-only disk too
        with _claim(store / f".{folder.name}.lock", folder):
            if not _is_complete(folder):
                _fill(PoolWriter(folder, header), dataset, encoder, frontend, batch_frames, workers, progress)
    return open_pool(folder)


def _is_complete(folder: Path) -> bool:
    header = read_header(folder)
    return header is not None and header["complete"]


def _check_arguments(dataset, encoder, frontend, batch_frames, workers) -> None:
    if frontend.tile_size != encoder.img_size:
        raise ValueError(
            f"the front-end cuts tiles of {frontend.tile_size} px and the encoder {encoder.record.name} was loaded for "
            f"{encoder.img_size} px; use load_encoder(..., img_size={frontend.tile_size})"
        )
    for name, value in (("batch_frames", batch_frames), ("workers", 1 if workers is None else workers)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if len(dataset) == 0:
        raise ValueError(f"data set {dataset.name!r} holds no images; nothing to embed")


def _header(dataset: Dataset, encoder: Encoder, frontend: FrontEnd, store: Path, batch_frames: int) -> dict:
    """Return everything ``pool.json`` says, key included."""
    header = {
        "format": 1,
        "complete": False,
        "dataset_name": dataset.name,
        "encoder_name": encoder.record.name,
        "evidence": _evidence(dataset, encoder),
        "codes": list(dataset.codes),
        "facts": json.loads(json.dumps(dict(dataset.facts))),
        "labels": dataset.Y.tolist() if dataset.labelled else None,
        "manifest": json.loads(dataset.manifest.to_json(orient="columns", index=True)),
    }
    header["manifest"] = {column: list(values.values()) for column, values in header["manifest"].items()}
    header["ingredients"] = {
        "images": text_sha256("\n".join(content_hashes(dataset, store))),
        "description": text_sha256(canonical_json(description(header))),
        "encoder": encoder.identity,
        "frontend": frontend.parameters,
        "batch_frames": batch_frames,
        "versions": {name: version(name).split("+")[0] for name in ("torch", "timm", "Pillow")},
        "code": _code_sha256(),
    }
    # through JSON, so that the key of a header that was read back is the same
    header["ingredients"] = json.loads(json.dumps(header["ingredients"]))
    header["key"] = pool_key(header["ingredients"])
    header["shape"] = [len(dataset), _units(encoder, frontend), encoder.dim]
    header["run"] = {"device": encoder.device.type, "torch_threads": torch.get_num_threads()}
    return header


def _units(encoder: Encoder | PatchEncoder, frontend: FrontEnd) -> int:
    """Return how many features a frame gives: one per tile, or the patch tokens that the encoder keeps."""
    return getattr(encoder, "units", frontend.n_tiles)


def _evidence(dataset: Dataset, encoder: Encoder) -> str:
    if encoder.stand_in:
        return "stand-in"
    # the paper has numbers for the encoders of its Table 4 alone
    table_4 = encoder.record.paper_params_m is not None
    return "user" if dataset.evidence == "paper" and not table_4 else dataset.evidence


@lru_cache(maxsize=1)
def _code_sha256() -> str:
    """Return a hash of the code behind a feature; comments and docstrings do not count."""
    trees = []
    for name in _CODE:
        tree = ast.parse((Path(__file__).parent / name).read_text())
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                node.body[0] = ast.Pass()
        trees.append(ast.unparse(tree))
    return text_sha256("\n".join(trees))


def _claim(path: Path, folder: Path) -> filelock.BaseFileLock:
    """Return the lock of a pool; it is released when its holder ends, however that happens."""
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
        lock.release()
    except filelock.Timeout:
        if os.environ.get("PHOEBI_QUIET") != "1":
            print(f"another process is filling {folder}; waiting for it", file=sys.stderr, flush=True)
    return lock


def _fill(writer: PoolWriter, dataset, encoder, frontend, batch_frames, workers, progress) -> None:
    """Embed the batches that are not done, and complete the pool."""
    run, device = writer.header["run"], encoder.device.type
    if run["device"] != device:
        writer.close()
        raise ValueError(
            f"{writer.folder}: begun on {run['device']}, and {device} rounds differently; resume it "
            f"on {run['device']}, or delete the folder"
        )
    starts = range(0, len(dataset), batch_frames)
    batches = [slice(start, min(start + batch_frames, len(dataset))) for start in starts]
    todo = [rows for rows in batches if not writer.done[rows].all()]
    threads = torch.get_num_threads()
    torch.set_num_threads(run["torch_threads"])
    try:
        read = _read_ahead(dataset, todo, workers or os.cpu_count() or 1)
        steps = track(read, total=len(todo), desc=f"embed {dataset.name}") if progress else read
        for rows, frames in steps:
            features = _encode(frames, encoder, frontend, dataset, rows)
            _check_features(features, dataset, rows)
            writer.write(rows, features)
        writer.finish()
    except OSError as error:
        advice = "the pool is unfinished; free some space and run again to resume it"
        raise OSError(error.errno, f"{error.strerror}; {advice}", str(writer.folder)) from error
    finally:
        torch.set_num_threads(threads)
        writer.close()


def _read_ahead(dataset: Dataset, batches: list[slice], workers: int) -> Iterator[tuple[slice, list[torch.Tensor]]]:
    """Yield (rows, frames as uint8 tensors (3,H,W)) of each batch; threads decode while the encoder works."""
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as executor:
        ahead: list[tuple[slice, list[Future]]] = []
        rest = iter(batches)
        try:
            while True:
                # one batch in the encoder's hands, and enough decoded ones that no worker waits
                while len(ahead) * (batches[0].stop - batches[0].start if batches else 1) < workers + 8:
                    rows = next(rest, None)
                    if rows is None:
                        break
                    ahead.append((rows, [executor.submit(_read, dataset, i) for i in range(rows.start, rows.stop)]))
                if not ahead:
                    return
                rows, futures = ahead.pop(0)
                yield rows, [future.result() for future in futures]
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def _read(dataset: Dataset, i: int) -> torch.Tensor:
    try:
        return torch.from_numpy(dataset.read(i))
    except Exception as error:
        raise ValueError(f"image {dataset.manifest['path'].iloc[i]!r} of {dataset.name}: {error}") from error


@torch.inference_mode()
def _encode(frames, encoder: Encoder, frontend: FrontEnd, dataset: Dataset, rows: slice) -> np.ndarray:
    """Return raw features (n,T,D) of one batch."""
    if len({frame.shape for frame in frames}) == 1:
        frames = [torch.stack(frames)]
    else:
        frames = [frame[None] for frame in frames]
    tiles = []
    for i, frame in enumerate(frames):
        try:
            tiles.append(frontend.tiles(frame.to(encoder.device)))
        except ValueError as error:
            raise ValueError(f"image {dataset.manifest['path'].iloc[rows.start + i]!r}: {error}") from error
    features = encoder((tiles[0] if len(tiles) == 1 else torch.cat(tiles)).flatten(0, 1))
    return features.reshape(rows.stop - rows.start, _units(encoder, frontend), encoder.dim).cpu().numpy()


def _check_features(features: np.ndarray, dataset: Dataset, rows: slice) -> None:
    bad = unusable(features)
    if bad.any():
        frame, tile = np.argwhere(bad)[0]
        raise ValueError(
            f"image {dataset.manifest['path'].iloc[rows.start + frame]!r} of {dataset.name}: tile {tile} gives NaN, "
            "infinite or all-zero features; look at the picture, or leave it out"
        )
