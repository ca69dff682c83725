"""Embedding speed: ``embed`` from JPEG files to a finished pool, against the bare encoder on ready tensors, in one run.

Usage: ``python benchmarks/embedding.py [--encoder efficientnet_lite0] [--frames 16] [--device cpu] [--rounds 3]``.
Prints seconds per 1024 px frame (16 tiles of 224 px) of both, and the ratio of their throughputs (aim: 0.9); on a CPU
also how much faster the encoder is than its network as loaded, 16 tiles a pass. All take turns, so that a busy machine
is busy for each.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from frontend import write_frame

from phoebi_lib.datasets import Dataset, open_dataset
from phoebi_lib.encoders import Encoder, load_encoder
from phoebi_lib.features import embed
from phoebi_lib.frontend import FrontEnd

BATCH = 8


def seconds_embed(dataset: Dataset, encoder: Encoder, store: Path) -> float:
    """Return seconds per frame of ``embed``, from files to a finished pool."""
    start = time.perf_counter()
    embed(dataset, encoder, FrontEnd(), store=store, batch_frames=BATCH)
    return (time.perf_counter() - start) / len(dataset)


def seconds_encoder(tiles: torch.Tensor, encoder: Encoder, frames: int) -> float:
    """Return seconds per frame of the encoder alone, on one batch of tiles over and over, on its device."""
    start = time.perf_counter()
    for _ in range(frames // BATCH):
        encoder(tiles).cpu()
    return (time.perf_counter() - start) / frames


def as_loaded(encoder: Encoder) -> Encoder | None:
    """Return the encoder as plain eager PyTorch: nothing folded, 16 tiles a pass. None where the encoder runs so."""
    if encoder.device.type != "cpu" or not isinstance(encoder._features, torch.nn.Module):
        return None
    eager = copy.copy(encoder)
    eager._features, eager._chunk = encoder._network, 16
    return eager


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="efficientnet_lite0")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--frames", type=int, default=16, help=f"a multiple of {BATCH}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["PHOEBI_QUIET"] = "1"
    encoder = load_encoder(
        arguments.encoder, weights=arguments.weights, device=arguments.device, dtype=arguments.dtype
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "images" / "bs").mkdir(parents=True)
        for i in range(arguments.frames):
            write_frame(folder / "images" / "bs" / f"{i + 1:05d}.jpg", seed=i)
        dataset = open_dataset(folder)
        frames = torch.stack([torch.from_numpy(dataset.read(i)) for i in range(BATCH)])
        tiles = FrontEnd().tiles(frames.to(encoder.device)).flatten(0, 1)
        eager = as_loaded(encoder)
        ends, bare, plain = [], [], []
        for each in filter(None, (encoder, eager)):
            each(tiles)
        for turn in range(arguments.rounds):
            ends.append(seconds_embed(dataset, encoder, folder / f"pools{turn}"))
            bare.append(seconds_encoder(tiles, encoder, arguments.frames))
            if eager is not None:
                plain.append(seconds_encoder(tiles, eager, arguments.frames))
    end, alone = statistics.median(ends), statistics.median(bare)
    print(f"{encoder}, {torch.get_num_threads()} thread(s), {arguments.frames} frames, {arguments.rounds} rounds")
    print(f"  embed, end to end     {end:7.4f} s a frame")
    print(f"  encoder, ready tiles  {alone:7.4f} s a frame")
    ratios = [alone / end for alone, end in zip(bare, ends, strict=True)]
    print(f"throughput of embed is {statistics.median(ratios):.2f} of the bare encoder's (aim: 0.9)")
    if plain:
        faster = statistics.median(slow / alone for alone, slow in zip(bare, plain, strict=True))
        print(f"  network as loaded     {statistics.median(plain):7.4f} s a frame")
        print(f"the bare encoder is {faster:.2f} times as fast as its network as loaded")


if __name__ == "__main__":
    main()
