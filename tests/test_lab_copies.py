"""Student copies: no solution in them, stubs that fail kindly, checks that stay, and nobody's work overwritten."""

import ast
import itertools
import re

import matplotlib.pyplot as plt
import nbformat
import pytest
from click.testing import CliRunner

from phoebi_lib import lab_copies, labs, runner, session
from phoebi_lib.cli import main
from tests import lab_world

SOURCES = lab_copies.sources()
FUNCTION = '''# Exercise 2: return the sum of squares
# of all values
def length(values, scale=1):
    """Return one number."""
    squares = (values * scale) ** 2
    return squares.sum()
'''
HEAD = """---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {name: python3, display_name: Python 3, language: python}
---

# Lab 9: small

"""


def tagged(cells, tag):
    return [cell for cell in cells if tag in cell.metadata.get("tags", [])]


def lab(tmp_path, *cells):
    """Write a lab whose code cells are (tags, code); return its path."""
    body = "".join(f"```{{code-cell}} ipython3\n:tags: [{tags}]\n\n{code}\n```\n\n" for tags, code in cells)
    path = tmp_path / "lab_9_small.md"
    path.write_text(HEAD + body)
    return path


def test_there_are_five_labs_of_five_exercises_and_the_runner_knows_them():
    assert len(SOURCES) == 5 and SOURCES.items() <= runner.sources().items()
    for name, source in SOURCES.items():
        solutions = tagged(lab_world.code_cells(source), "solution")
        assert [cell.source.split(":")[0] for cell in solutions] == [f"# Exercise {i}" for i in range(1, 6)], name
        assert all("hide-cell" in cell.metadata["tags"] for cell in solutions), "collapsed in the book"


@pytest.mark.parametrize(("name", "source"), SOURCES.items())
def test_a_copy_keeps_everything_but_the_solutions(name, source):
    copy = lab_copies.student_copy(source)
    cells, code = copy.cells, lab_world.code_cells(source)
    text = "\n".join(cell.source for cell in cells)
    stubs = "\n".join(cell.source for cell in tagged(cells, "exercise"))
    assert stubs.count("raise labs.Unwritten(") + stubs.count("labs.written(") == 5
    assert text.count("labs.check_") == 5 and "require_all" not in text and "Student copy" in cells[1].source
    for solution in tagged(code, "solution"):
        for node in ast.parse(solution.source).body:
            body = node.body[1:] if isinstance(node, ast.FunctionDef) else [node]
            assert not [part for part in map(ast.unparse, body) if part in text], name
    untouched = [cell.source for cell in code if not {"solution", "author"} & set(cell.metadata.get("tags", []))]
    assert [source for source in untouched if source not in text] == []
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)
    nbformat.validate(copy)


@pytest.mark.parametrize(("name", "source"), SOURCES.items())
def test_a_copy_stops_kindly_at_the_first_stub_and_runs_once_it_is_filled(name, source, monkeypatch, capsys):
    monkeypatch.setattr(session, "start", lab_world.start)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    before = plt.rcParams.copy()
    solutions = iter(tagged(lab_world.code_cells(source), "solution"))
    space, met, printed = {}, [], ""
    cells = [cell for cell in lab_copies.student_copy(source).cells if cell.cell_type == "code"]
    for cell, check in itertools.pairwise([*cells, None]):
        try:
            exec(compile(cell.source, name, "exec"), space)
        except labs.Unwritten as error:
            met.append(str(error))
        if cell.source.startswith("# Exercise"):
            printed += capsys.readouterr().out
            exec(check.source, space)
            assert ": not yet. " in capsys.readouterr().out
            exec(next(solutions).source, space)
    plt.rcParams.update(before)
    assert (printed + capsys.readouterr().out).count(": right. ") == 5
    assert all(sentence.startswith("Exercise ") and "replace the dots" in sentence for sentence in met)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "source"), SOURCES.items())
def test_a_blank_copy_run_to_its_end_says_what_to_write_and_nothing_else(name, source, monkeypatch, capsys):
    """A student may skip exercises: every later cell runs or says which exercise it needs, and progress is counted."""
    monkeypatch.setattr(session, "start", lab_world.start)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    before = plt.rcParams.copy()
    space, met = {}, []
    cells = [cell for cell in lab_copies.student_copy(source).cells if cell.cell_type == "code"]
    for cell in cells:
        try:
            exec(compile(cell.source, name, "exec"), space)
        except labs.Unwritten as error:
            met.append(str(error))
    plt.rcParams.update(before)
    assert met and all(re.match(r"Exercise \d: replace the dots: |Write exercises? [1-5]", text) for text in met), met
    printed = capsys.readouterr().out
    assert printed.count(": not yet. ") == 5
    assert f"Lab {name[4]}: 0 of 5 exercises solved. Still open: 1, 2, 3, 4, 5." in printed
    assert cells[-1].source == f"labs.progress({name[4]})", "alone in its cell, so that no skipped exercise stops it"


def test_the_stub_of_a_function_keeps_its_head_and_says_what_to_write():
    text, hidden = lab_copies.stub(FUNCTION, "lab.md")
    assert text.splitlines()[:4] == FUNCTION.splitlines()[:4]
    assert hidden == ["(values * scale) ** 2", "squares.sum()"]
    space = {"labs": labs}
    exec(text, space)
    with pytest.raises(labs.Unwritten, match="^Exercise 2: replace the dots: return the sum of squares of all values$"):
        space["length"]([1])


def test_the_stub_of_a_value_stops_until_the_dots_are_gone():
    text, hidden = lab_copies.stub('# Exercise 1: name one\nchosen = ["bs_ka", "mx"]\n', "lab.md")
    assert hidden == ["['bs_ka', 'mx']"]
    with pytest.raises(labs.Unwritten, match="^Exercise 1: replace the dots: name one$"):
        exec(text, {"labs": labs})
    exec(text.replace("chosen = ...", "chosen = 3"), {"labs": labs})


@pytest.mark.parametrize(
    ("solution", "fault"),
    [
        ("x = 1\n", "starts with '# Exercise N"),
        ("# Exercise 1: nothing\n", "empty"),
        ("# Exercise 1: a\nimport numpy\n", "found: import numpy"),
        ("# Exercise 1: a\ndef f(x):\n    return x\n", "functions with a docstring"),
        ("# Exercise 1: a\nx.y = 1\n", r"found: x\.y = 1"),
    ],
)
def test_a_solution_that_cannot_become_a_stub_is_refused(solution, fault):
    with pytest.raises(lab_copies.LabError, match=fault):
        lab_copies.stub(solution, "lab.md")


def test_a_solution_needs_its_check(tmp_path):
    with pytest.raises(lab_copies.LabError, match="no cell tagged exercise follows '# Exercise 2"):
        lab_copies.student_copy(lab(tmp_path, ("solution", FUNCTION), ("", "print(length)")))


@pytest.mark.parametrize("leak", ["total = squares.sum()", "y = (values*scale)**2"])
def test_a_solution_that_stands_in_another_cell_is_refused(tmp_path, leak):
    source = lab(tmp_path, ("solution", FUNCTION), ("exercise", "print(1)"), ("", leak))
    with pytest.raises(lab_copies.LabError, match="stands in another cell too"):
        lab_copies.student_copy(source)
    source.write_text(source.read_text().replace(leak, "total = 0"))
    assert "squares.sum" not in "".join(cell.source for cell in lab_copies.student_copy(source).cells)


def test_captions_are_kept_as_text(tmp_path):
    source = lab(tmp_path, ("solution", FUNCTION), ("exercise", "print(1)"))
    metadata = "---\nmystnb:\n  figure:\n    name: f\n    caption: |\n      Two\n      rods.\n---\n"
    source.write_text(f"{source.read_text()}```{{code-cell}} ipython3\n{metadata}plot()\n```\n")
    assert lab_copies.student_copy(source).cells[-1].source == "Figure: Two rods."


def test_copies_are_the_same_each_time_and_work_is_not_overwritten(tmp_path):
    files = lab_copies.write_student_copies(tmp_path / "new" / "folder")
    assert [path.stem for path in files] == list(SOURCES)
    before = [path.read_bytes() for path in files]
    assert lab_copies.write_student_copies(tmp_path / "new" / "folder") == files
    assert [path.read_bytes() for path in files] == before
    files[-1].write_text("my work")
    files[0].unlink()
    with pytest.raises(FileExistsError, match="lab_5_stranger.*somebody's work"):
        lab_copies.write_student_copies(tmp_path / "new" / "folder")
    assert files[-1].read_text() == "my work" and not files[0].exists()
    files[-1].write_bytes(b"\xff\xfe")
    with pytest.raises(FileExistsError, match="lab_5_stranger"):
        lab_copies.write_student_copies(tmp_path / "new" / "folder")
    files[-1].unlink()
    files[-1].mkdir()
    with pytest.raises(FileExistsError, match="lab_5_stranger"):
        lab_copies.write_student_copies(tmp_path / "new" / "folder")


def test_kept_copies_stay_and_missing_ones_are_written(tmp_path):
    files = lab_copies.write_student_copies(tmp_path)
    files[-1].write_text("my work")
    files[0].unlink()
    written = CliRunner().invoke(main, ["labs", "--student", str(tmp_path), "--keep"])
    assert written.exit_code == 0, written.output
    assert files[-1].read_text() == "my work" and nbformat.read(files[0], 4).cells


def test_a_kept_copy_of_another_version_is_named(tmp_path, monkeypatch, capsys):
    source = lab(tmp_path, ("solution", FUNCTION), ("exercise", "print(1)"))
    monkeypatch.setattr(lab_copies, "sources", lambda: {"lab_9_small": source})
    (copy,) = lab_copies.write_student_copies(tmp_path / "out")
    worked = nbformat.read(copy, 4)
    worked.cells[2].source = "my work"
    nbformat.write(worked, copy)
    lab_copies.write_student_copies(tmp_path / "out", keep=True)
    assert capsys.readouterr().err == "", "work alone is no other version"
    source.write_text(source.read_text().replace("# Lab 9: small", "# Lab 9: larger"))
    lab_copies.write_student_copies(tmp_path / "out", keep=True)
    assert f"{copy} is kept as it is: it was begun from another version" in capsys.readouterr().err
    assert nbformat.read(copy, 4) == worked
    for other in ("my work", "[]", '{"metadata": {}}'):
        copy.write_text(other)
        lab_copies.write_student_copies(tmp_path / "out", keep=True)
        assert capsys.readouterr().err == "" and copy.read_text() == other


def test_without_labs_it_says_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOEBI_PROJECT", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no labs in"):
        lab_copies.sources()


def test_the_command_lists_and_writes(tmp_path):
    listed = CliRunner().invoke(main, ["labs"])
    assert listed.exit_code == 0 and all(name in listed.output for name in SOURCES)
    assert "Lab 5: Meet a stranger" in listed.output
    written = CliRunner().invoke(main, ["labs", "--student", str(tmp_path / "out")])
    assert written.exit_code == 0 and len(list((tmp_path / "out").glob("lab_*.ipynb"))) == 5
    (tmp_path / "out" / "lab_1_front_end.ipynb").write_text("mine")
    refused = CliRunner().invoke(main, ["labs", "--student", str(tmp_path / "out")])
    assert refused.exit_code == 1 and "somebody's work" in refused.output and "Traceback" not in refused.output
    assert "Usage" in CliRunner().invoke(main, ["labs", "--help"]).output


def test_a_copy_has_words_in_the_place_of_links_to_the_glossary(tmp_path):
    path = lab(tmp_path, ("author", "1"))
    path.write_text(path.read_text() + "A {term}`tile`, two {term}`Pure cultures <pure culture>`, `{braces}`.\n")
    assert lab_copies.student_copy(path).cells[-1].source == "A tile, two Pure cultures, `{braces}`."
    for source in SOURCES.values():
        assert "{term}" not in "".join(cell.source for cell in lab_copies.student_copy(source).cells)
