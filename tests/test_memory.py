"""Freed memory is kept for the next step, unless the user has said how memory is to be kept."""

import os
import platform
import subprocess
import sys

import pytest

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep freed blocks")

# three arrays of 20 MB, freed together and made again; counts the pages that the system had to hand out for them
FAULTS = """
import resource, sys
import numpy as np
from phoebi_lib.memory import keep_freed_blocks
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [np.ones(20 << 17) for _ in range(3)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
before = faults()
print(keep_freed_blocks(), faults() < before / 5 if before else "uncounted")
"""


def answers(**variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    command = [sys.executable, "-c", FAULTS]
    return subprocess.run(command, env=kept | variables, capture_output=True, text=True, check=True).stdout.split()


@glibc
def test_freed_blocks_are_used_again():
    kept, fewer = answers()
    assert kept == "True"
    if fewer == "uncounted":
        pytest.skip("this system does not count page faults")
    assert fewer == "True"


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_what_the_user_asks_for_stands(name):
    assert answers(**{name: "2" if name != "GLIBC_TUNABLES" else "glibc.malloc.arena_max=2"})[0] == "False"
