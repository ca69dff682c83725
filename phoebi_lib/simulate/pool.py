"""Many fields on many processors: results in order, errors with their place, no orphans, any caller's script."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TypeVar

from phoebi_lib.progress import track

Job = TypeVar("Job")
Result = TypeVar("Result")


class SimulationError(RuntimeError):
    """A field could not be simulated or written; the message names its combination and frame."""


def run_all(
    function: Callable[[Job], Result], jobs: Sequence[Job], *, workers: int | None = None, desc: str = ""
) -> list[Result]:
    """Return ``function(job)`` for each job, in the order of the jobs.

    ``workers`` processes are started afresh (spawned), so that threads of the calling process cannot be caught half-way
    in a fork; with one worker everything runs in the calling process. Raises ValueError for fewer than one worker, the
    first error of a job as it is, and SimulationError when a worker process dies.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; expected at least 1, or None for one a processor")
    workers = min(workers or _processors(), len(jobs))
    if workers <= 1:
        return [function(job) for job in track(jobs, total=len(jobs), desc=desc)]
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        with _main_hidden():
            futures = [pool.submit(function, job) for job in jobs]
        for future in track(as_completed(futures), total=len(jobs), desc=desc):
            future.result()
        return [future.result() for future in futures]
    except BrokenProcessPool as error:
        raise SimulationError(
            "a worker process ended without a word, most likely for want of memory (each needs about 0.3 GB). "
            "Finished images are kept; run again, with fewer workers if it happens again"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _end_with_parent() -> None:
    """End this worker when its parent is killed; a pool's workers would otherwise wait for work for ever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep spawned workers from running the caller's script again: they need nothing of it.

    Without this a script without ``if __name__ == "__main__":`` would start workers from its workers.
    """
    main = sys.modules["__main__"]
    hidden = {name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)}
    for name in hidden:
        delattr(main, name)
    try:
        # a module without __spec__ breaks spawn; None says that it was not found by import
        main.__spec__ = None
        yield
    finally:
        del main.__spec__
        for name, value in hidden.items():
            setattr(main, name, value)
