"""Front-end speed: our frame-to-tiles path against the reference's way and against the floor, in one run.

Usage: ``python benchmarks/frontend.py [--frames 12] [--threads 1]``. Prints milliseconds per 1024 px frame, decode
included, and two ratios. The reference's way is written anew from its description: Pillow decode, Pillow and scipy
correction quantised to uint8, one crop and conversion per tile. The floor is a JPEG decode plus one copy of the tiles.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from phoebi_lib.frontend import FrontEnd, tile_offsets
from phoebi_lib.images import read_image

SIZE, TILE, GRID = 1024, 224, 4


def reference(path: Path) -> torch.Tensor:
    """Return tiles (16,3,224,224) in 0..1 the reference's CPU way."""
    pixels = np.asarray(Image.open(path).convert("RGB"), dtype=np.float32)
    background = np.empty_like(pixels)
    for channel in range(3):
        small = Image.fromarray(pixels[..., channel]).resize((SIZE // 8, SIZE // 8), Image.Resampling.BILINEAR)
        blurred = gaussian_filter(np.asarray(small), sigma=8)
        background[..., channel] = np.asarray(Image.fromarray(blurred).resize((SIZE, SIZE), Image.Resampling.BILINEAR))
    even = np.clip(pixels / (background + 1.0) * background.mean(), 0, 255).astype(np.uint8)
    image = Image.fromarray(even)
    offsets = tile_offsets(SIZE, TILE, GRID)
    crops = [image.crop((x, y, x + TILE, y + TILE)) for y in offsets for x in offsets]
    return torch.stack([torch.from_numpy(np.array(crop)).permute(2, 0, 1).contiguous().float() / 255 for crop in crops])


def ours(path: Path, front_end: FrontEnd = FrontEnd()) -> torch.Tensor:  # noqa: B008 (a frozen value)
    """Return tiles (1,16,3,224,224) in 0..255 as ``embed`` makes them."""
    return front_end.tiles(torch.from_numpy(read_image(path))[None])


def floor(path: Path) -> torch.Tensor:
    """Decode, and write as many floats as the tiles have."""
    with Image.open(path) as image:
        image.load()
        np.asarray(image)
    return torch.empty(GRID**2, 3, TILE, TILE).fill_(1.0)


def write_frame(path: Path, seed: int) -> None:
    """Write a JPEG of the published size with the texture and lamp hotspot of a micrograph."""
    rng = np.random.default_rng(seed)
    scene = gaussian_filter(rng.standard_normal((SIZE, SIZE)), 3) * 120 + rng.normal(0, 4, (SIZE, SIZE))
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    cast = np.array([147, 120, 96]) * (1.15 - 0.35 * (x**2 + y**2))[..., None]
    Image.fromarray((cast + scene[..., None]).clip(0, 255).astype(np.uint8)).save(path, quality=92)


def median_ms(functions: dict[str, Callable], paths: list[Path]) -> tuple[dict[str, float], dict[str, float]]:
    """Return median milliseconds of each function, by the clock and by the processor; the functions take turns."""
    clock: dict[str, list[float]] = {name: [] for name in functions}
    processor: dict[str, list[float]] = {name: [] for name in functions}
    for path in [paths[0], *paths]:
        for name, function in functions.items():
            start, used = time.perf_counter(), time.process_time()
            function(path)
            clock[name].append(1e3 * (time.perf_counter() - start))
            processor[name].append(1e3 * (time.process_time() - used))
    # the first turn fills caches
    return tuple({name: statistics.median(ms[1:]) for name, ms in times.items()} for times in (clock, processor))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.jpg" for i in range(arguments.frames)]
        for seed, path in enumerate(paths):
            write_frame(path, seed)
        steps = {"reference": reference, "ours": ours, "of which decode": read_image, "floor": floor}
        clock, processor = median_ms(steps, paths)
        difference = (reference(paths[0]) * 255 - ours(paths[0])[0]).abs()
    print(f"per 1024 px frame, decode included, {arguments.threads} thread(s), median of {arguments.frames} frames")
    print(f"{'':16s} {'clock':>9s} {'processor':>12s}")
    for name in steps:
        print(f"{name:16s} {clock[name]:6.1f} ms {processor[name]:9.1f} ms")
    for times, label in ((clock, "by the clock"), (processor, "by processor time, which a busy machine blurs less")):
        faster, slower = times["reference"] / times["ours"], times["ours"] / times["floor"]
        print(f"{faster:.1f} times the reference's speed (aim: 3), {slower:.1f} times the floor's time, {label}")
    print(f"grey levels apart, truncation included: mean {difference.mean():.2f}, most {difference.max():.2f}")


if __name__ == "__main__":
    main()
