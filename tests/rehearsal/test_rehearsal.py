"""The paper's path without its data: published layout, DINOv2 architecture from a hub cache, the same notebooks."""

import os
import subprocess
import sys

import nbformat
import pandas as pd
import pytest

from phoebi_lib import workspace
from phoebi_lib.datasets import open_dataset
from phoebi_lib.rehearsal import prepare
from phoebi_lib.results import KEYS

NOTEBOOKS = ["05_held_out", "05_in_distribution"]


@pytest.fixture(scope="module")
def done():
    """Run the results notebooks under the rehearsal profile; return the folder of copies and that of results."""
    images, hub = prepare()
    out, results = workspace.root() / "rehearsal", workspace.root() / "rehearsal-results"
    environment = {**os.environ, "HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1", "PHOEBI_RESULTS": str(results)}
    command = [sys.executable, "-m", "phoebi_lib.cli", "run", *NOTEBOOKS, "--profile", "rehearsal", "--out", str(out)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    return out, results


def test_the_layout_is_the_published_one():
    images, _ = prepare()
    dataset = open_dataset("sim:rehearsal")
    assert len(dataset) == 360 and dataset.manifest["frame"].max() == 3
    for name in ("splits.json", "splits_lco.json", "splits_4class.json", "lco_dev_folds.json"):
        assert (images / name).is_file(), name
    assert (images / "images_4class" / "b_f_p" / "00009.jpg").is_file()


def test_the_rehearsal_feeds_no_claim(done):
    out, results = done
    table = pd.read_csv(results / "results.csv")
    assert set(table["encoder"]) == {"vit_small_patch14_dinov2.lvd142m"}
    assert set(table["evidence"]) == {"stand-in"}, "no number of a rehearsal may pass for the paper's"
    assert not table.duplicated(KEYS).any()


def test_the_copies_say_so(done):
    out, _ = done
    for name in NOTEBOOKS:
        text = nbformat.writes(nbformat.read(out / f"{name}.ipynb", as_version=4))
        assert "stand-in" in text and "reference" in text
