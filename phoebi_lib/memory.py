"""Keeping the memory that torch frees on a CPU, so that the next step does not have to ask for it again."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

# Names of glibc's mallopt(3) and what is asked for, in bytes. A block of up to 32 MiB comes from the heap, of which up
# to 128 MiB stay when all of it is free; larger blocks, such as whole arrays of features, go back at once as before.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = {_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 128 << 20}


@cache
def keep_freed_blocks() -> bool:
    """Have glibc keep freed blocks of activations and gradients for this process; return whether it does.

    Otherwise it returns each to the system, and the next step pays a page fault for every 4 KiB of the same size: about
    a third of the time of a small encoder on a CPU (``benchmarks/memory.py``). No result changes. Nothing is done
    with another C library, or where ``GLIBC_TUNABLES`` or a ``MALLOC_`` variable says how memory is to be kept.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    return all([ctypes.CDLL(None).mallopt(name, value) for name, value in _KEPT.items()])
