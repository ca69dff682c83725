"""Three leave-combinations-out partitions on a memory-mapped pool of the published size: peak memory, and seconds.

``python benchmarks/sweep.py [--images 120000] [--epochs 1] [--folder DIR]`` writes a pool of random features
(images x 16 x 384 float32, 2.9 GB at full size) into a temporary folder, runs the protocol on it as the book does, and
prints the peak of the process's memory, mapped pages included. Memory does not depend on the number of epochs; seconds
do, so the default is one.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from phoebi_lib.baselines import AllPresent
from phoebi_lib.catalogue import CODES, label_matrix
from phoebi_lib.decoders import ChannelGroup, ProtoMatch, SimplexUnmix
from phoebi_lib.manifest import published_manifest
from phoebi_lib.pool import Pool
from phoebi_lib.protocols import run_partition

TILES, FEATURES = 16, 384
BLOCK = 1000


def random_pool(folder: Path, images: int) -> Pool:
    """Write random features to ``folder`` and return them as a pool, memory-mapped, with the published manifest."""
    if images % 120:
        raise SystemExit(f"--images must be a multiple of 120 (40 combinations of whole frames), got {images}")
    manifest = published_manifest(images // 40, 3)
    raw = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, (images, TILES, FEATURES))
    rng = np.random.default_rng(0)
    for start in range(0, images, BLOCK):
        stop = min(start + BLOCK, images)
        raw[start:stop] = rng.standard_normal((stop - start, TILES, FEATURES), dtype=np.float32)
    raw.flush()
    del raw
    header = {
        "key": "random features", "dataset_name": "random", "encoder_name": "random", "evidence": "simulated",
        "codes": list(CODES), "facts": {}, "labels": label_matrix(manifest["combination"], CODES).tolist(),
    }  # fmt: skip
    return Pool(np.load(folder / "features.npy", mmap_mode="r"), manifest, header)


def peak_gib() -> float:
    """Return the largest resident size of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Parse the command line and print one line per partition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=120_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the pool is written; a temporary folder by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        start = time.perf_counter()
        pool = random_pool(Path(folder), arguments.images)
        size = pool.raw.nbytes / 2**30
        seconds = time.perf_counter() - start
        print(f"pool of {arguments.images:,} x {TILES} x {FEATURES}: {size:.2f} GiB, {seconds:.0f} s", flush=True)
        methods = {
            "the constant": AllPresent(),
            "prototypes": ProtoMatch(),
            "unmixing": SimplexUnmix(epochs=arguments.epochs),
            "channel groups": ChannelGroup(epochs=arguments.epochs),
        }
        for seed in (1337, 1338, 1339):
            start = time.perf_counter()
            rows = run_partition(pool, f"lco-{seed}", seed=seed, methods=methods, store=Path(folder) / "rows")
            seconds = time.perf_counter() - start
            print(f"lco-{seed}: {len(rows):,} rows, {seconds:.0f} s, peak {peak_gib():.1f} GiB", flush=True)


if __name__ == "__main__":
    main()
