"""The k-NN score, exact, against faiss's flat index on the same queries and bank; then its memory on a large bank.

``python benchmarks/knn.py [--queries 4096] [--bank 200000] [--large 1500000]`` prints the seconds of both, taken in
turns in one process on the same threads, their ratio and the largest difference; then the growth of the process's peak
memory while a memory-mapped bank of ``--large`` tiles is searched. faiss (``pip install faiss-cpu``) is no part of the
project; without it the comparison is left out and says so. ``--faiss FOLDER`` takes it from a folder of packages.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from phoebi_lib.openworld.knn import BANK_BLOCK, QUERY_BLOCK, kth_cosine


def unit(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """Return random unit vectors (rows, features), float32."""
    values = rng.standard_normal((rows, features), dtype=np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values


def seconds(call: Callable[[], np.ndarray]) -> tuple[float, float, np.ndarray]:
    """Return the duration of one call, the processor time that it took, and its result."""
    clock, processor = time.perf_counter(), time.process_time()
    result = call()
    return time.perf_counter() - clock, time.process_time() - processor, result


def peak_mb() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def against_faiss(arguments: argparse.Namespace, rng: np.random.Generator) -> None:
    """Print both durations, best of the rounds, and their ratios.

    The ratio of processor times is the one to read on a machine that does other work too.
    """
    queries, bank = unit(rng, arguments.queries, arguments.features), unit(rng, arguments.bank, arguments.features)
    print(f"{len(queries)} queries x {len(bank)} tiles x {arguments.features} features, k = {arguments.k}")
    ours = {"this library": lambda: kth_cosine(queries, bank, arguments.k)}
    try:
        import faiss
    except ImportError:
        print("  faiss is not installed (pip install faiss-cpu): no comparison, this library alone")
    else:
        faiss.omp_set_num_threads(torch.get_num_threads())
        index = faiss.IndexFlatIP(arguments.features)
        index.add(bank)
        ours[f"faiss {faiss.__version__} IndexFlatIP"] = lambda: index.search(queries, arguments.k)[0][:, -1]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ours}
    results = {}
    for _ in range(arguments.rounds):
        for name, call in ours.items():
            *taken, results[name] = seconds(call)
            times[name].append(tuple(taken))
    best = {name: np.min(taken, axis=0) for name, taken in times.items()}
    for name, (duration, processor) in best.items():
        print(f"  {name:26s} {duration:7.2f} s, processor {processor:7.2f} s (best of {arguments.rounds})")
    if len(best) == 2:
        mine, theirs = best.values()
        first, second = results.values()
        print(f"  ratio {theirs[0] / mine[0]:.2f}, of processor times {theirs[1] / mine[1]:.2f} (to reach: 1)")
        print(f"  largest difference of the k-th cosine {np.abs(first - second).max():.1e}")


def bounded_memory(arguments: argparse.Namespace, rng: np.random.Generator) -> None:
    """Print how much memory a search in a bank on disk takes beyond what was taken before."""
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        path = Path(folder) / "bank.raw"
        shape = (arguments.large, arguments.features)
        with path.open("wb") as stream:
            for start in range(0, arguments.large, 10_000):
                stream.write(unit(rng, min(10_000, arguments.large - start), arguments.features).tobytes())
        queries = unit(rng, arguments.large_queries, arguments.features)
        before = peak_mb()
        duration, _, _ = seconds(lambda: kth_cosine(queries, OnDisk(path, shape), arguments.k))
    size = arguments.large * arguments.features * 4 / 2**20
    print(f"{len(queries)} queries x {arguments.large} tiles on disk ({size:.0f} MB)")
    print(f"  {duration:.1f} s; peak memory {before:.0f} MB before, {peak_mb():.0f} MB after")
    held = (QUERY_BLOCK * BANK_BLOCK + (QUERY_BLOCK + BANK_BLOCK) * arguments.features) * 4 / 2**20
    print(f"  cosines and rows held at a time: {held:.0f} MB (blocks of {QUERY_BLOCK} x {BANK_BLOCK})")


class OnDisk:
    """Rows of a file of float32, read when asked for.

    Pages of a mapped file count as resident memory although the system may drop them at any time: mapped as a whole,
    the bank would hide what the search itself needs.
    """

    def __init__(self, path: Path, shape: tuple[int, int]):
        self.path, self.shape = path, shape

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        width = self.shape[1]
        values = np.fromfile(self.path, dtype=np.float32, count=(stop - start) * width, offset=start * width * 4)
        return values.reshape(-1, width)


def main() -> None:
    """Print the comparison and the memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"queries": 4096, "bank": 200_000, "features": 384, "k": 10, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--large", type=int, default=1_500_000, help="tiles of the bank of the memory run; 0 leaves it")
    parser.add_argument("--large-queries", type=int, default=512)
    parser.add_argument("--scratch", help="folder for the large bank (default: the system's)")
    parser.add_argument("--faiss", help="folder of packages that holds faiss")
    arguments = parser.parse_args()
    if arguments.faiss:
        sys.path.append(arguments.faiss)
    rng = np.random.default_rng(0)
    print(f"{torch.get_num_threads()} thread(s)")
    if arguments.large:  # first, so that the other run's arrays are not yet in the peak
        bounded_memory(arguments, rng)
    against_faiss(arguments, rng)


if __name__ == "__main__":
    main()
