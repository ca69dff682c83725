"""Pictures as training wants them, decoded once: uint8 on disk, read back as a memory map by every epoch and recipe.

A whole image is kept as torchvision's resize of a PIL picture gives it, which is uint8 anyway. The front-end's tiles
are float32; they are kept rounded to whole grey levels, a quarter of the bytes for an error of at most half a level
(0.29 root mean square), less than that of the JPEG they come from. An image takes 0.15 MB at 224 px, 0.2 MB at 256 px,
2.4 MB as 16 tiles of 224 px: all 120,000 published images 18 to 24 GB, or 289 GB as tiles.
"""

from __future__ import annotations

import ast
import errno
import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate

from phoebi_lib.baselines.finetune.checkpoint import claim
from phoebi_lib.baselines.finetune.recipes import Recipe
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.pool import canonical_json
from phoebi_lib.progress import track
from phoebi_lib.workspace import text_sha256

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset

PICTURES, DONE = "pictures.npy", "done"
_HERE = "baselines/finetune/inputs.py"
_JPEG = {"format": "JPEG", "quality": 90, "optimize": True}
# frames in flight between the threads that decode and the one that writes
_AHEAD = 32


@dataclass(frozen=True)
class Plan:
    """How an image becomes pictures: ``size`` is their side in px; the rest as in :class:`Recipe`."""

    kind: str
    size: int
    copy: int | None = None
    tile: int = 0
    grid: int = 1
    padding: str = ""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of one image's pictures, (units, 3, size, size)."""
        return (self.grid**2, 3, self.size, self.size)


def plans(recipe: Recipe) -> tuple[Plan, Plan]:
    """Return how images are prepared for training and for evaluation."""
    if recipe.kind == "pipeline":
        tiles = Plan("pipeline", recipe.side, tile=recipe.load, grid=recipe.grid, padding=recipe.padding)
        return tiles, tiles
    return Plan("whole", recipe.load, recipe.copy), Plan("whole", recipe.side, recipe.copy)


def prepare(frame: np.ndarray, plan: Plan) -> np.ndarray:
    """Return the pictures (units, 3, size, size), uint8, of a frame uint8 (3, H, W).

    ``whole``: the JPEG copy where the plan has one (bicubic, quality 90), resized bilinearly and antialiased; a frame
    that is not square is stretched. ``pipeline``: corrected tiles, resized where the plan's size differs.

    Raises:
        ValueError: the frame is smaller than a tile.
    """
    if plan.kind == "whole":
        image = Image.fromarray(np.ascontiguousarray(frame.transpose(1, 2, 0)))
        if plan.copy is not None:
            stream = io.BytesIO()
            image.resize((plan.copy, plan.copy), Image.Resampling.BICUBIC).save(stream, **_JPEG)
            image = Image.open(stream)
        image = image.resize((plan.size, plan.size), Image.Resampling.BILINEAR)
        return np.asarray(image).transpose(2, 0, 1)[None]
    tiles = FrontEnd(tile_size=plan.tile, grid=plan.grid, padding=plan.padding).tiles(torch.from_numpy(frame)[None])[0]
    if plan.size != plan.tile:
        tiles = interpolate(tiles, (plan.size, plan.size), mode="bilinear", antialias=True)
    return tiles.round_().clamp_(0, 255).to(torch.uint8).numpy()


def images_key(dataset: Dataset, hashes: Sequence[str]) -> str:
    """Return a hash of the images by content and order, and of the change they are seen through."""
    return text_sha256(canonical_json({"images": list(hashes), "change": dataset.facts.get("transform", "")}))


def inputs_key(images: str, plan: Plan) -> str:
    """Return the key of prepared pictures, 64 hexadecimal digits."""
    facts = {"images": images, "plan": asdict(plan), "versions": [version("Pillow"), version("torch").split("+")[0]]}
    return text_sha256(canonical_json({**facts, "code": code_sha256(("images.py", "frontend.py", _HERE))}))


@cache
def code_sha256(names: tuple[str, ...]) -> str:
    """Return a hash of source files of the library, named relative to it; comments do not count."""
    package = Path(__file__).parents[2]
    return text_sha256("\n".join(ast.unparse(ast.parse((package / name).read_text())) for name in names))


def open_inputs(
    dataset: Dataset, images: str, wanted: Mapping[Plan, np.ndarray], store: Path, progress: bool = True
) -> dict[Plan, np.ndarray]:
    """Return, per plan, the pictures of the data set, uint8 (N, units, 3, size, size), as a read-only memory map.

    Only the row positions that ``wanted`` names are filled; what was filled before is kept, and an image that several
    plans lack is decoded once. A killed process leaves what it finished. A second process waits for the first.

    Args:
        dataset: the images. images: their :func:`images_key`.
        wanted: per plan the row positions needed.
        store: folder of prepared pictures.
        progress: report progress.

    Raises:
        ValueError: an image that cannot be read or is smaller than a tile, named.
        OSError: the disk has no room; says how much is needed.
    """
    stores = {plan: _Store(store / inputs_key(images, plan)[:16], len(dataset), plan) for plan in wanted}
    with ExitStack() as stack:
        # one order of locks for all processes
        for folder in sorted(own.folder for own in stores.values()):
            stack.enter_context(claim(folder))
        missing = {plan: np.setdiff1d(rows, np.flatnonzero(stores[plan].done())) for plan, rows in wanted.items()}
        needed = sum(len(rows) * int(np.prod(plan.shape)) for plan, rows in missing.items())
        free = shutil.disk_usage(store).free
        if needed > free:
            what = f"prepared pictures need {needed:,} bytes, the disk has {free:,}; set PHOEBI_POOLS to a larger one"
            raise OSError(errno.ENOSPC, what, str(store))
        lacking: dict[int, list[Plan]] = {}
        for plan, rows in missing.items():
            for row in rows.tolist():
                lacking.setdefault(row, []).append(plan)
        jobs = sorted(lacking.items())
        made = _made(dataset, jobs)
        for row, pictures in track(made, len(jobs), f"prepare {dataset.name}") if progress and jobs else made:
            for plan, values in pictures.items():
                stores[plan].write(row, values)
    return {plan: own.read() for plan, own in stores.items()}


def _made(dataset: Dataset, jobs: list[tuple[int, list[Plan]]]) -> Iterator[tuple[int, dict[Plan, np.ndarray]]]:
    """Yield (row, its pictures by plan), decoded by as many threads as there are cores, a few images ahead."""

    def make(job: tuple[int, list[Plan]]) -> tuple[int, dict[Plan, np.ndarray]]:
        row, needed = job
        try:
            frame = dataset.read(row)
            return row, {plan: prepare(frame, plan) for plan in needed}
        except ValueError as error:
            path = dataset.manifest["path"].iloc[row]
            raise ValueError(f"image {path!r} of {dataset.name}: {error}") from error

    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode") as executor:
        for start in range(0, len(jobs), _AHEAD):
            yield from executor.map(make, jobs[start : start + _AHEAD])


class _Store:
    """One folder of prepared pictures: an .npy file, and a byte per image that says whether it is filled."""

    def __init__(self, folder: Path, n: int, plan: Plan) -> None:
        self.folder, self._shape = folder, (n, *plan.shape)
        self._bytes = int(np.prod(plan.shape))
        self._offset = 0

    def done(self) -> np.ndarray:
        """Return which images are filled, creating the files where there are none."""
        marks = self.folder / DONE
        if not marks.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            np.lib.format.open_memmap(self.folder / PICTURES, "w+", np.uint8, self._shape)
            marks.write_bytes(bytes(self._shape[0]))
        found = self.read()
        self._offset = found.offset
        if found.shape != self._shape or marks.stat().st_size != self._shape[0]:
            raise ValueError(f"{self.folder}: damaged, holds {found.shape} pictures; delete the folder to make it anew")
        return np.fromfile(marks, dtype=np.uint8) == 1

    def write(self, row: int, pictures: np.ndarray) -> None:
        """Write an image's pictures, then its mark. Plain writes: on a full disk they raise, a mapped page kills."""
        for name, data, offset in (
            (PICTURES, np.ascontiguousarray(pictures).tobytes(), self._offset + row * self._bytes),
            (DONE, b"\1", row),
        ):
            with open(self.folder / name, "r+b") as stream:
                stream.seek(offset)
                stream.write(data)

    def read(self) -> np.ndarray:
        """Return all pictures (N, units, 3, size, size) as a read-only memory map; those not filled are black."""
        try:
            return np.load(self.folder / PICTURES, mmap_mode="r")
        except (ValueError, OSError) as error:
            raise ValueError(f"{self.folder}: damaged ({error}); delete the folder to make it anew") from error
