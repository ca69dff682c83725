"""What keeping freed memory saves: an encoder on a CPU with and without ``keep_freed_blocks``, in turns.

Usage: ``python benchmarks/memory.py [--encoder efficientnet_lite0] [--frames 8] [--rounds 3]``.
Prints seconds and page faults per 1024 px frame (16 tiles of 224 px) of both, and how many times as fast the first is.
Each turn is a process of its own, since a C library that was told to keep memory does so to the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch

from phoebi_lib.encoders import load_encoder

TILES = 16
# a setting without effect, at which keep_freed_blocks leaves everything as the user wants it
UNTOUCHED = {"MALLOC_PERTURB_": "0"}


def measure(name: str, frames: int) -> dict[str, float]:
    """Return seconds and page faults per frame of the encoder on ready tiles."""
    encoder, tiles = load_encoder(name), torch.rand(TILES, 3, 224, 224) * 255
    encoder(tiles)
    faults, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    for _ in range(frames):
        encoder(tiles)
    seconds, faults = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return {"seconds": seconds / frames, "faults": faults / frames}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="efficientnet_lite0")
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="measure in this process, as it is")
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(measure(arguments.encoder, arguments.frames)))
        return
    command = [sys.executable, __file__, "--once", "--encoder", arguments.encoder, "--frames", str(arguments.frames)]
    turns: dict[str, list[dict[str, float]]] = {"kept": [], "as the C library does": []}
    for _ in range(arguments.rounds):
        for name, variables in zip(turns, ({}, UNTOUCHED), strict=True):
            said = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
            turns[name].append(json.loads(said.stdout))
    for name, found in turns.items():
        seconds, faults = (statistics.median(turn[what] for turn in found) for what in ("seconds", "faults"))
        print(f"  {name:24s}{seconds:7.4f} s a frame, {faults:8.0f} page faults")
    ratios = [slow["seconds"] / fast["seconds"] for fast, slow in zip(*turns.values(), strict=True)]
    print(f"with freed memory kept the encoder is {statistics.median(ratios):.2f} times as fast")


if __name__ == "__main__":
    main()
