"""Progress of long work: a bar on a terminal, a plain line now and then in a log, nothing when asked to be quiet."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
_SECONDS_BETWEEN_LINES = 10.0


def track(iterable: Iterable[Item], total: int | None = None, desc: str = "") -> Iterator[Item]:
    """Yield the items of ``iterable`` and report how far it has come.

    ``PHOEBI_QUIET=1`` silences it: notebooks are compared cell by cell, and a progress line would differ each time.
    """
    if total is None and hasattr(iterable, "__len__"):
        total = len(iterable)
    if os.environ.get("PHOEBI_QUIET") == "1":
        yield from iterable
    elif sys.stderr.isatty():
        yield from tqdm(iterable, total=total, desc=desc)
    else:
        yield from _lines(iterable, total, desc)


def _lines(iterable: Iterable[Item], total: int | None, desc: str) -> Iterator[Item]:
    start = last = time.monotonic()
    done = 0
    for item in iterable:
        yield item
        done += 1
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES or done == total:
            last = now
            of = f" of {total}" if total else ""
            left = f", about {(now - start) / done * (total - done):.0f} s left" if total and done < total else ""
            print(f"{desc}: {done}{of} ({now - start:.0f} s{left})", file=sys.stderr, flush=True)
