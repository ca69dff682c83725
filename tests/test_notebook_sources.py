"""The sources of the notebooks keep the shape that the runner, the book and nbval rely on."""

import ast
import importlib
import re
import subprocess
import sys

import pytest

from phoebi_lib import parameters, runner, workspace

SOURCES = list(runner.sources().items())
PACKAGES = {
    "jupyter-book": "jupyter_book", "jupytext": "jupytext", "papermill": "papermill", "torch": "torch", "timm": "timm",
    "numpy": "numpy", "pandas": "pandas", "seaborn": "seaborn", "scikit-learn": "sklearn", "ipywidgets": "ipywidgets",
}  # fmt: skip


def code_cells(source):
    return [cell for cell in parameters.read_notebook(source).cells if cell.cell_type == "code"]


def test_there_are_notebooks():
    assert len(SOURCES) >= 7


@pytest.mark.parametrize(("name", "source"), SOURCES)
def test_shape(name, source):
    notebook = parameters.read_notebook(source)
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    values = parameters.defaults(source)
    assert values["profile"] == "smoke"
    smoke = parameters.profile_values("smoke")
    assert all(values[key] == smoke[key] for key in values.keys() & smoke.keys()), "defaults are the smoke profile's"
    checked = [cell for cell in code_cells(source) if "nbval-check-output" in cell.metadata.get("tags", [])]
    assert len(checked) >= 2, "at least two cells with headline numbers are compared by nbval"
    check = code_cells(source)[1].source
    assert "start(" in check and check.splitlines()[-1].lstrip().startswith(("run.banner(", "banner(")), "check cell"


@pytest.mark.parametrize(("name", "source"), SOURCES)
def test_cells_are_short_and_plain(name, source):
    for cell in code_cells(source):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= 30, f"a cell of {len(lines)} lines: {lines[0]}"
        ast.parse(re.sub(r"^%.*$", "", cell.source, flags=re.MULTILINE))


@pytest.mark.parametrize(("name", "source"), SOURCES)
def test_names_of_the_library_exist(name, source):
    """A name that moved is found here in a second, not half an hour into the pages."""
    tree = ast.parse("\n".join(cell.source for cell in code_cells(source)))
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "phoebi_lib":
            for alias in node.names:
                try:
                    found = importlib.import_module(f"{node.module}.{alias.name}")
                except ModuleNotFoundError:
                    found = getattr(importlib.import_module(node.module), alias.name, None)
                assert found is not None, f"{node.module} has no {alias.name}"
                if type(found) is type(ast):
                    modules[alias.asname or alias.name] = found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert hasattr(modules[node.value.id], node.attr), f"{node.value.id} has no {node.attr}"


@pytest.mark.parametrize(("name", "source"), SOURCES)
def test_no_page_shows_where_its_tables_lie(name, source):
    """What writes a table returns its path; last in a cell, a page would show a folder of somebody's machine."""
    for cell in code_cells(source):
        if "remove-output" in cell.metadata.get("tags", []):
            continue
        *_, last = ast.parse(re.sub(r"^%.*$", "", cell.source, flags=re.MULTILINE)).body or [None]
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
            assert not re.search(r"write_table$|book_table$", ast.unparse(last.value.func)), ast.unparse(last)


def test_no_name_is_undefined_or_imported_for_nothing(tmp_path):
    for name, source in SOURCES:
        (tmp_path / f"{name}.py").write_text("\n".join(cell.source for cell in code_cells(source)) + "\n")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F401,F811,F821,F841", str(tmp_path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(("name", "source"), SOURCES)
def test_figures_have_caption_name_and_alternative_text(name, source):
    for cell in code_cells(source):
        meta = cell.metadata.get("mystnb", {})
        if "figure" in meta:
            assert meta["figure"].get("caption") and meta["figure"].get("name"), cell.source
            assert len(meta.get("image", {}).get("alt", "")) > 20, cell.source


def test_every_package_of_the_owners_list_is_pinned_and_used():
    lines = (workspace.project() / "requirements.txt").read_text().splitlines()
    assert set(PACKAGES) <= {line.split("==")[0].lower() for line in lines}
    files = [*(workspace.project() / "phoebi_lib").rglob("*.py"), *(source for _, source in SOURCES)]
    text = "\n".join(path.read_text() for path in files)
    for package, module in PACKAGES.items():
        used = rf"(^|\") *(import|from) {module}\b"
        assert re.search(used, text, re.MULTILINE), f"{package} is pinned but used nowhere"
