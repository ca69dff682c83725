"""What a GPU does with this library: does it agree with the CPU, and how long does each costly step take on it?

Usage: ``python benchmarks/gpu_check.py [--device cuda] [--frames 256] [--encoder NAME]...``. Prints, for the
front-end, the embedding of each encoder and one epoch of fine-tuning: time on the device, how far its results are from
those of the CPU, and what the published images would take at that speed. Encoders without weights on this machine get
stand-in weights of the same architecture, which cost the same time. Ends with status 1 where device and CPU disagree by
more than the bounds below. Without a GPU the same steps run on the CPU with one small encoder, and the output says so.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from frontend import write_frame

from phoebi_lib.baselines.finetune import finetune, recipe
from phoebi_lib.catalogue import COMBINATIONS
from phoebi_lib.datasets import Dataset, open_dataset
from phoebi_lib.devices import checked_device
from phoebi_lib.encoders import WeightsNotFoundError, get_record, load_encoder, write_stand_in
from phoebi_lib.features import embed
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.pool import unit_norm

ENCODERS = {"cpu": ("efficientnet_lite0",), "cuda": ("efficientnet_lite0", "vit_small_patch14_dinov2.lvd142m")}
IMAGES, TRAINING_IMAGES = 120_000, 96_000
# grey levels of a tile; features of unit norm: as rounding differs, and TF32 convolutions and half floats more so
BOUNDS = {"front-end": 0.05, "float32": 5e-3, "float16": 2e-2}
COMPARED = 4


class Report:
    """Lines on standard output, and whether a bound was broken."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def compare(self, what: str, difference: float, bound: float) -> None:
        verdict = "within" if difference <= bound else "BEYOND"
        print(f"  {what}: most {difference:.2g} apart from the CPU, {verdict} the bound of {bound:g}")
        if not difference <= bound:
            self.broken.append(what)

    @staticmethod
    def speed(what: str, seconds: float, images: int, of: int = IMAGES) -> None:
        each = seconds / images
        print(f"  {what}: {1e3 * each:.2f} ms an image; {of:,} images: {each * of / 60:.1f} min")


def seconds_of(device: torch.device, work: Callable[[], object]) -> float:
    """Return how long ``work`` takes, what it queues on a GPU included."""
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def write_frames(folder: Path, n: int) -> Dataset:
    """Write ``n`` textured frames of the published size, in turn into eight combinations that hold every species.

    Eight pictures are drawn; the others are copies, since only their number matters here.
    """
    drawn: list[bytes] = []
    for i in range(n):
        path = folder / COMBINATIONS[-1 - i % 8] / f"{i // 8 + 1:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if len(drawn) < 8:
            write_frame(path, seed=i)
            drawn.append(path.read_bytes())
        else:
            # bytes after the end of the picture keep the files apart: none counts as a copy of another
            path.write_bytes(drawn[i % 8] + str(i).encode())
    return open_dataset(folder)


def check_front_end(dataset: Dataset, device: torch.device, report: Report) -> torch.Tensor:
    """Compare and time tiles; return those of the compared frames, from the CPU."""
    print("front-end, 1024 px frames to 16 tiles, decoded beforehand")
    frames = torch.stack([torch.from_numpy(dataset.read(i)) for i in range(8)])
    front_end = FrontEnd()
    here, there = front_end.tiles(frames[:COMPARED]), front_end.tiles(frames[:COMPARED].to(device)).cpu()
    report.compare("grey levels", float((here - there).abs().max()), BOUNDS["front-end"])
    for name in dict.fromkeys((device, torch.device("cpu"))):
        moved = frames.to(name)
        front_end.tiles(moved)
        taken = [seconds_of(name, lambda moved=moved: front_end.tiles(moved)) for _ in range(3)]
        report.speed(f"on {name}", min(taken), len(frames))
    return here


@contextmanager
def weights(name: str, hub: Path) -> Iterator[Path | None]:
    """Yield None where the encoder's weights are on this machine, else a file of stand-ins."""
    try:
        load_encoder(name)
        yield None
    except WeightsNotFoundError:
        yield write_stand_in(name, hub)


def check_embedding(name: str, dataset: Dataset, tiles: torch.Tensor, device: torch.device, folder: Path,
                    report: Report) -> None:  # fmt: skip
    with weights(name, folder / "hub") as file:
        print(f"embedding with {name}{'' if file is None else ' (stand-in weights)'}")
        ours = unit_norm(load_encoder(name, weights=file)(tiles.flatten(0, 1)).numpy())
        for dtype in ("float32", "float16") if device.type == "cuda" else ("float32",):
            encoder = load_encoder(name, weights=file, device=str(device), dtype=dtype)
            theirs = unit_norm(encoder(tiles.flatten(0, 1).to(device)).cpu().numpy())
            report.compare(f"unit-norm features in {dtype}", float(np.abs(ours - theirs).max()), BOUNDS[dtype])
            whole = seconds_of(device, lambda encoder=encoder, dtype=dtype: embed(
                dataset, encoder, FrontEnd(), store=folder / f"pools-{dtype}"))  # fmt: skip
            report.speed(f"files to pool in {dtype}", whole, len(dataset))
            batch = tiles[:1].expand(8, -1, -1, -1, -1).flatten(0, 1).to(device)
            turns = max(1, len(dataset) // 8)
            alone = seconds_of(device, lambda encoder=encoder, batch=batch, turns=turns: [
                encoder(batch) for _ in range(turns)])  # fmt: skip
            report.speed(f"encoder alone in {dtype}", alone, 8 * turns)
            print(f"  throughput of embed is {alone / (8 * turns) * len(dataset) / whole:.2f} of the bare encoder's")


def check_finetuning(dataset: Dataset, device: torch.device, folder: Path, report: Report) -> None:
    """Train one epoch of the published recipe on most of the frames."""
    print("one epoch of fine-tuning EfficientNet-Lite0 on whole images of 224 px, batches of 64")
    held = len(dataset) // 4
    rows = np.arange(len(dataset))
    parts = {"test": rows[:held], "val": rows[held : 2 * held], "train": rows[2 * held :]}
    for precision in ("float32", "float16") if device.type == "cuda" else ("float32",):
        one = replace(recipe("whole", "random", "corrected"), epochs=1, precision=precision, train_images=16)
        found = finetune(dataset, parts, encoder="efficientnet_lite0", recipe=one, seed=0, device=str(device),
                         store=folder / "rows")  # fmt: skip
        taken = float(found["seconds"].iloc[0])
        report.speed(f"an epoch in {precision}, prepared pictures", taken, len(parts["train"]), TRAINING_IMAGES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--frames", type=int, help="256 on a GPU, 16 without one; at least 16")
    parser.add_argument("--encoder", action="append", help=f"may be repeated; by default {', '.join(ENCODERS['cuda'])}")
    arguments = parser.parse_args()
    try:
        device = checked_device(arguments.device)
        for encoder in arguments.encoder or ():
            get_record(encoder)
    except ValueError as error:
        parser.error(str(error))
    frames = arguments.frames if arguments.frames is not None else 256 if device.type == "cuda" else 16
    if frames < 16:
        parser.error(f"--frames must be at least 16, got {frames}")
    os.environ["PHOEBI_QUIET"] = "1"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "NO GPU: the steps run on the CPU"
    cores = f"{torch.get_num_threads()} threads, {os.cpu_count()} cores"
    print(f"{name}; torch {torch.__version__}, {cores}, {frames} frames")
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["PHOEBI_POOLS"] = str(folder / "finetune-pools")
        dataset = write_frames(folder / "images", frames)
        tiles = check_front_end(dataset, device, report)
        for encoder in arguments.encoder or ENCODERS[device.type]:
            check_embedding(encoder, dataset, tiles, device, folder, report)
        check_finetuning(dataset, device, folder, report)
    if report.broken:
        sys.exit(f"device and CPU disagree: {', '.join(report.broken)}")


if __name__ == "__main__":
    main()
