"""The command line: help for everything, one clear line for what cannot be done."""

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from phoebi_lib import runner
from phoebi_lib.cli import main


def call(*arguments):
    return CliRunner().invoke(main, list(arguments))


COMMANDS = [(), ("data",), ("data", "simulate"), ("data", "verify"), ("data", "rehearse"), ("embed",), ("run",),
            ("export",), ("book",), ("claims",), ("encoders",), ("labs",)]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = call(*command, "--help")
    assert result.exit_code == 0 and "Usage:" in result.output and len(result.output) > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "simulate", "phoebi6"), "not simulated"),
        (("data", "simulate", "sim:huge"), "huge"),
        (("data", "verify", "/nowhere/at/all"), "/nowhere/at/all"),
        (("embed", "/nowhere/at/all"), "/nowhere/at/all"),
        (("run", "nothing"), "no notebook 'nothing'"),
        (("run", "05_held_out", "-p", "sede=3"), "did you mean 'seed'"),
        (("run", "05_held_out", "-p", "seed=three"), "takes int"),
        (("run", "05_held_out", "--profile", "huge"), "unknown profile 'huge'"),
        (("book", "--folder", "/nowhere/at/all"), "/nowhere/at/all"),
        (("claims", "--tables", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments, message):
    result = call(*arguments)
    assert result.exit_code != 0
    assert message in result.output and "Traceback" not in result.output


def test_an_unknown_encoder_names_the_closest(tmp_path):
    from PIL import Image

    Image.new("L", (300, 300), 90).save(tmp_path / "slide.png")
    result = call("embed", str(tmp_path), "--encoder", "efficientnet_lite9")
    assert result.exit_code != 0 and "efficientnet_lite" in result.output and "Traceback" not in result.output


def test_encoders_lists_the_thirteen_and_the_embedded():
    lines = call("encoders").output.splitlines()
    assert len(lines) == 17
    assert sum("gated" in line for line in lines) >= 2


def test_run_list_shows_parameters_with_types():
    output = call("run", "--list").output
    for name in runner.sources():
        assert name in output
    assert "seed = 1337 (int)" in output


def test_a_reader_that_leaves_ends_a_listing_quietly():
    command = [sys.executable, "-m", "phoebi_lib.cli", "encoders"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("folder", "size", "advice"),
    [("E. coli", 300, "in the data set's dataset.json"), ("bs", 100, r"in Python FrontEnd\(tile_size=...\)")],
)
def test_advice_is_what_a_command_can_do(folder, size, advice, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.setenv("PHOEBI_POOLS", str(tmp_path / "pools"))
    slides = tmp_path / "slides"
    (slides / folder).mkdir(parents=True)
    Image.new("L", (size, 300), 90).save(slides / folder / "1.png")
    result = call("embed", str(slides))
    assert result.exit_code == 1 and re.search(advice, result.output)


def test_embed_of_a_folder_of_pictures(tmp_path, monkeypatch):
    import numpy as np
    from PIL import Image

    monkeypatch.setenv("PHOEBI_POOLS", str(tmp_path / "pools"))
    pictures = tmp_path / "slides"
    pictures.mkdir()
    noise = np.random.default_rng(0).integers(80, 160, (240, 260), dtype=np.uint8)
    Image.fromarray(noise).save(pictures / "one.tif")
    result = call("embed", str(pictures), "--grid", "1")
    assert result.exit_code == 0, result.output
    assert "1 images x 1 tiles x 1280 features" in result.output
    (pool,) = (tmp_path / "pools").glob("*/pool.json")
    assert json.loads(pool.read_text())["manifest"]["path"] == ["one.tif"]


def test_claims_are_listed_and_written(tmp_path):
    tables = tmp_path / "tables"
    (tables / "A_colour").mkdir(parents=True)
    (tables / "A_colour" / "broken.csv").write_text("x")
    result = call("claims", "--tables", str(tables), "--json", str(tmp_path / "claims.json"))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert any(line.split()[:3] == ["Abstract", "holds", "exact"] for line in lines), "120,000 images"
    assert any("not testable" in line and "not computed here" in line for line in lines)
    assert "A_colour/broken.csv was left out" in result.output
    saved = json.loads((tmp_path / "claims.json").read_text())
    assert len(saved["claims"]) == sum(saved["verdicts"].values()) >= 50
