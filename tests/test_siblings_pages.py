"""The siblings' pages on a reader's own folder: what is absent is skipped, and remarks are about the reader's data."""

import json
import shutil

import nbformat
import pandas as pd
import pytest

from phoebi_lib import runner
from phoebi_lib.siblings.bioeval import fixture as bioeval
from phoebi_lib.siblings.needl import fixture as needl


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOEBI_HOME", str(tmp_path / "home"))


def run(name, data, out):
    """Run a page on a folder; return the copy's printed text and the folder of its tables."""
    (copy,) = runner.run(runner.plan([name], "smoke", [f"data={json.dumps(str(data))}"], out))
    cells = nbformat.read(copy, as_version=4).cells
    printed = "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))
    return printed, out / "tables" / copy.stem


def test_absent_sets_of_the_biological_evaluation_are_skipped_and_named(tmp_path):
    bioeval.write(tmp_path / "all")
    shutil.copytree(tmp_path / "all" / "plantdoc", tmp_path / "mine" / "plantdoc")
    printed, tables = run("sib_bioeval", tmp_path / "mine", tmp_path / "out")
    assert "no such folder: fishnet, newt, awa2, herbarium19, few_shot, intra_species" in printed
    overview = pd.read_csv(tables / "bioeval_overview.display.csv").astype(str)
    scored = overview[~overview.apply(lambda row: row.str.contains("no such folder").any(), axis=1)]
    assert set(scored.iloc[:, 0]) == {"PlantDoc", "zero-shot"} and len(overview) == len(scored) + 6


def test_leakage_is_told_of_the_tiles_that_are_scored(tmp_path):
    """Every tile under one needle: of the synthetic set, which the page shows too, it is one of ten."""
    needl.write(tmp_path / "mine")
    for path in (tmp_path / "mine").rglob("*.csv"):
        if "needle_id" in (table := pd.read_csv(path, dtype=str)).columns:
            table.assign(needle_id="A").to_csv(path, index=False)
    printed, _ = run("sib_needl", tmp_path / "mine", tmp_path / "out")
    assert "1 of 10 needles lie in more than one split" in printed
    assert "2 of 2 needles lie in more than one split" in printed
