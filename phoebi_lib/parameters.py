"""The parameters of a notebook: read without a kernel, checked before one starts, swept as a product."""

from __future__ import annotations

import ast
import contextlib
import difflib
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from phoebi_lib import workspace

PROFILES = ("smoke", "default", "rehearsal", "paper")
#: Parameters that name a folder of a sibling benchmark's data, "" for its synthetic fixture.
FOLDERS = ("data", "fungitastic", "needl", "bioeval")


class ParameterError(ValueError):
    """A parameter that the notebook does not have, or a value of the wrong type."""


def read_notebook(source: Path):
    """Return the notebook in ``source`` (MyST Markdown or ipynb) as an nbformat object."""
    # a second and a half, which no kernel that only checks its parameters has to pay
    import jupytext

    return jupytext.read(source)


def defaults(source: Path) -> dict[str, Any]:
    """Return the names and values of a notebook's one parameters cell, in order.

    Raises ParameterError unless exactly one cell is tagged ``parameters``, it is the first code cell, and it holds
    nothing but ``NAME = literal``: computed values would be invisible to a check that starts no kernel.
    """
    cells = [cell for cell in read_notebook(source).cells if cell.cell_type == "code"]
    tagged = [i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", [])]
    if tagged != [0]:
        raise ParameterError(f"{source.name}: tag the first code cell, and no other, parameters; found {tagged}")
    values: dict[str, Any] = {}
    for statement in ast.parse(cells[0].source).body:
        try:
            (target,) = statement.targets  # type: ignore[attr-defined]
            values[target.id] = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
        except (AttributeError, ValueError) as error:
            found = ast.unparse(statement)
            raise ParameterError(f"{source.name}: parameters must be NAME = literal, not: {found}") from error
    return values


def check(source: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Return ``given`` with its values fitted to the notebook's types.

    Raises ParameterError for a name that the notebook lacks (with the closest one it has) and for a value whose type
    is not that of the default. An int is taken for a float; a bool is never taken for a number.
    """
    known = defaults(source)
    fitted = {}
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ParameterError(f"{source.name} has no parameter {name!r} (it has {', '.join(known)}){hint}")
        wanted = type(known[name])
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise ParameterError(
                f"{source.name}: parameter {name!r} takes {wanted.__name__}, got {type(value).__name__} {value!r}"
            )
        fitted[name] = value
    return fitted


def profile_values(profile: str) -> dict[str, Any]:
    """Return the parameters that ``profiles/<profile>.yaml`` sets. Raises ParameterError for an unknown profile."""
    path = workspace.project() / "profiles" / f"{profile}.yaml"
    if profile not in PROFILES or not path.is_file():
        raise ParameterError(f"unknown profile {profile!r}; known: {', '.join(PROFILES)} (looked for {path})")
    return {"profile": profile, **yaml.safe_load(path.read_text())}


def parse_assignment(text: str) -> tuple[str, list[Any]]:
    """Return the name and the values of ``name=value[,value...]``, read as a YAML list (1337 is an int).

    A text that holds a comma, or would be read as something else, stands in quotes: ``name="a,b"``.
    """
    name, equals, values = text.partition("=")
    if not equals or not name.strip().isidentifier() or not values:
        raise ParameterError(f"expected NAME=VALUE[,VALUE...], got {text!r}")
    try:
        return name.strip(), yaml.safe_load(f"[{values}]")
    except yaml.YAMLError as error:
        raise ParameterError(f"{text!r}: a value that is neither a number, a word nor a quoted text") from error


def assignment(name: str, value: Any) -> str:
    """Return ``name=value`` such that :func:`parse_assignment` gives both back; a text is quoted only if it must be."""
    with contextlib.suppress(ParameterError):
        if isinstance(value, str) and parse_assignment(f"{name}={value}") == (name, [value]):
            return f"{name}={value}"
    return f"{name}={yaml.safe_dump([value], default_flow_style=True, width=1_000_000, allow_unicode=True)[1:-2]}"


def folder(name: str, value: Any) -> str:
    """Return the folder that the parameter ``name`` of :data:`FOLDERS` names, absolute; "" stays.

    Raises ParameterError where there is none: a kernel runs elsewhere, and would look elsewhere.
    """
    if value != "" and not Path(str(value)).is_dir():
        raise ParameterError(f"{name}: {value!r} is no folder; give the folder of the data, or leave it out")
    return value and str(Path(str(value)).resolve())


def sweep(assignments: Iterable[str]) -> list[dict[str, Any]]:
    """Return every combination of the values in ``assignments``, the last one varying fastest; [{}] for none.

    Raises ParameterError for a name given twice.
    """
    parsed = [parse_assignment(text) for text in assignments]
    names = [name for name, _ in parsed]
    if len(set(names)) < len(names):
        raise ParameterError(f"a parameter is given twice: {', '.join(names)}")
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(v for _, v in parsed))]


def for_notebook(source: Path, profile: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the checked parameters of one run: those of the profile that the notebook has, overruled by ``given``."""
    known = defaults(source)
    values = {name: value for name, value in profile_values(profile).items() if name in known}
    return check(source, {**values, **given})
