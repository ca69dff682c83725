"""What Binder reads: the project's own pins, a Python that it supports, and commands that exist."""

import os
import re
import shlex

from click.testing import CliRunner

from phoebi_lib import workspace
from phoebi_lib.cli import main

PROJECT = workspace.project()
BINDER = PROJECT / ".binder"


def test_the_requirements_are_the_pins_of_the_project():
    lines = [line for line in (BINDER / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    options = dict(line.split(maxsplit=1) for line in lines)
    assert options.keys() == {"--extra-index-url", "-r", "-c"}, "no version of its own"
    assert (BINDER / options["-r"]).resolve() == PROJECT / "requirements.txt"
    assert (BINDER / options["-c"]).resolve() == PROJECT / "constraints.txt"


def test_the_python_is_one_that_the_package_takes():
    version = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")
    least = re.search(r'requires-python = ">=([\d.]+)"', (PROJECT / "pyproject.toml").read_text())[1]
    assert [int(part) for part in version.split(".")] >= [int(part) for part in least.split(".")]


def test_the_script_is_executable_and_its_commands_exist():
    script = BINDER / "postBuild"
    assert os.access(script, os.X_OK)
    commands = [shlex.split(line)[1:] for line in script.read_text().splitlines() if line.startswith("phoebi ")]
    assert [words[0] for words in commands] == ["labs", "data", "embed"]
    for words in commands:
        names = [word for word in words if word.isalpha() and word != "my_labs"]
        assert CliRunner().invoke(main, [*names, "--help"]).exit_code == 0, words
        options = [word for word in words if word.startswith("--")]
        assert all(option in CliRunner().invoke(main, [*names, "--help"]).output for option in options), words
