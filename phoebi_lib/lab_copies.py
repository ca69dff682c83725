"""Student copies of the labs, made from the one source: a stub stands where the source has the solution.

In a source a code cell tagged ``solution`` holds a worked exercise: a comment ``# Exercise N: what to write``, then
functions with docstrings or assignments. The next code cell, tagged ``exercise``, checks it. A cell tagged ``author``
is for the source alone.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat

from phoebi_lib import parameters, workspace

_HEADER = re.compile(r"# Exercise (\d+): (.+(?:\n# .+)*)\n")
# a notebook outside the book has no glossary: of {term}`tiles <tile>` the word is left
_TERM = re.compile(r"\{term\}`([^`<]+?)(?: <[^`>]+>)?`")
_KEPT_TAGS = ("parameters", "exercise")
_NOTE = """\
**Student copy.** Write your code in the place of the dots `...`, run the cell (Shift+Enter), then run the check below \
it. A check says in a sentence what is wrong; run it as often as you like. If a cell asks for an earlier exercise, \
write that one first."""
# shorter pieces of code, such as a name, say nothing about a solution
_TELLING = 12


class LabError(ValueError):
    """A lab's source from which no student copy can be made."""


def sources() -> dict[str, Path]:
    """Return the labs' sources by name, in order. Raises FileNotFoundError where there is none."""
    folder = workspace.project() / "notebooks" / "labs"
    found = {path.stem: path for path in sorted(folder.glob("*.md"))}
    if not found:
        raise FileNotFoundError(f"no labs in {folder}; run phoebi inside a checkout, or set PHOEBI_PROJECT to one")
    return found


def titles() -> dict[str, str]:
    """Return the first heading of each lab, by name."""
    return {
        name: parameters.read_notebook(path).cells[0].source.splitlines()[0].removeprefix("# ")
        for name, path in sources().items()
    }


def write_student_copies(out: Path, *, keep: bool = False) -> list[Path]:
    """Write a student copy of every lab, ``<name>.ipynb``, into the folder ``out``; return the files.

    With ``keep`` a file that is there already stays as it is, and those that are missing are written. A line on
    standard error names each kept copy that was begun from another version of its lab.

    Raises:
        LabError: as :func:`student_copy`; nothing is written then.
        FileExistsError: a file of that name holds something else, perhaps somebody's work; nothing is written
            (never with ``keep``).
    """
    copies = {out / f"{name}.ipynb": student_copy(path) for name, path in sources().items()}
    texts = {path: nbformat.writes(copy) + "\n" for path, copy in copies.items()}
    missing = {path: text for path, text in texts.items() if not path.exists()}
    for path in (path for path in texts if path not in missing):
        if not keep and not (path.is_file() and path.read_bytes() == texts[path].encode()):
            raise FileExistsError(f"{path} is there already and may hold somebody's work; "
                                  "name another folder, or add --keep")  # fmt: skip
        if keep and _version(path) not in (None, copies[path].metadata["phoebi"]["lab"]):
            print(f"{path} is kept as it is: it was begun from another version of this lab. To begin it anew, give it "
                  "another name and run this again", file=sys.stderr)  # fmt: skip
    for path, text in missing.items():
        with workspace.atomic_path(path) as temporary:
            temporary.write_text(text)
    return list(texts)


def student_copy(source: Path) -> nbformat.NotebookNode:
    """Return a lab without outputs, each solution replaced by :func:`stub`, captions written below their figures.

    Its metadata hold a hash of its cells, by which a copy that was worked in still tells which version it was.

    Raises:
        LabError: a solution of another form, without a check behind it, or whose code stands in another cell too.
    """
    made, secrets = [], {}
    cells = parameters.read_notebook(source).cells
    for i, cell in enumerate(cells):
        tags = cell.metadata.get("tags", [])
        if "author" in tags:
            continue
        if "solution" in tags:
            follower = next((c for c in cells[i + 1 :] if c.cell_type == "code"), None)
            if follower is None or "exercise" not in follower.metadata.get("tags", []):
                raise LabError(f"{source.name}: no cell tagged exercise follows {cell.source.splitlines()[0]!r}")
            text, hidden = stub(cell.source, source.name)
            secrets.update(dict.fromkeys(hidden, cell.source.splitlines()[0]))
            made.append(nbformat.v4.new_code_cell(text, metadata={"tags": ["exercise"]}))
            continue
        kept = [tag for tag in tags if tag in _KEPT_TAGS]
        metadata: dict[str, Any] = {"tags": kept} if kept else {}
        if cell.cell_type == "code":
            made.append(nbformat.v4.new_code_cell(cell.source, metadata=metadata))
            caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")
            if caption:
                made.append(nbformat.v4.new_markdown_cell("Figure: " + " ".join(caption.split())))
        else:
            made.append(nbformat.v4.new_markdown_cell(_TERM.sub(r"\1", cell.source)))
    made.insert(1, nbformat.v4.new_markdown_cell(_NOTE))
    _check_secrets(made, secrets, source.name)
    for i, cell in enumerate(made):
        cell["id"] = f"cell-{i:03d}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    lab = workspace.text_sha256("\n".join(cell.source for cell in made))
    return nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "phoebi": {"lab": lab}})


def _version(path: Path) -> str | None:
    """Return the hash that a copy was begun with, None where the file holds none."""
    try:
        return json.loads(path.read_bytes())["metadata"]["phoebi"]["lab"]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def stub(solution: str, where: str) -> tuple[str, list[str]]:
    """Return the stub of a solution cell and the pieces of code that it hides; ``where`` names the source in errors.

    A function keeps its first line and docstring and raises ``labs.Unwritten``, a variable becomes ``...``; both say
    the exercise and what to write.

    Raises:
        LabError: no comment ``# Exercise N: ...`` on top, no answer, or statements of another kind.
    """
    header = _HEADER.match(solution)
    if header is None:
        raise LabError(f"{where}: a solution starts with '# Exercise N: what to write', not {solution[:40]!r}")
    number, task = header[1], " ".join(line.removeprefix("# ") for line in header[2].splitlines())
    ask = f"Exercise {number}: replace the dots: {task}"
    lines, parts, hidden, names = solution.splitlines(), [header[0].rstrip()], [], []
    for node in ast.parse(solution).body:
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and len(node.body) > 1:
            head = lines[node.lineno - 1 : node.body[0].end_lineno]
            parts.append("\n".join([*head, "    ...  # your code", f"    raise labs.Unwritten({ask!r})"]))
            hidden += [_telling(statement) for statement in _statements(node.body[1:])]
        elif isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            names += [target.id for target in node.targets]
            parts.append(f"{' = '.join(names[-len(node.targets):])} = ...")
            hidden.append(_telling(node))
        else:
            raise LabError(f"{where}, exercise {number}: a solution holds functions with a docstring, or NAME = value; "
                           f"found: {ast.unparse(node)[:60]}")  # fmt: skip
    if len(parts) == 1:
        raise LabError(f"{where}, exercise {number}: the solution is empty")
    if names:
        parts.append(f"labs.written({ask!r}, {', '.join(names)})")
    return "\n".join(parts), [code for code in hidden if len(code) >= _TELLING]


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    return [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.stmt)]


def _telling(statement: ast.stmt) -> str:
    """Return the code that would tell a solution: the value of a statement that has one, else the statement."""
    return ast.unparse(getattr(statement, "value", None) or statement)


def _check_secrets(cells: list[nbformat.NotebookNode], secrets: dict[str, str], where: str) -> None:
    for cell in cells:
        code = cell.cell_type == "code"
        text = ast.unparse(ast.parse(cell.source)) if code else " ".join(cell.source.split())
        for secret, header in secrets.items():
            if secret in text:
                raise LabError(f"{where}: code of the solution {header!r} stands in another cell too: {secret}")
