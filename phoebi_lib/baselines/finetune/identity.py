"""What tells one network of a reader's own from another: the source of the function that builds it, and what it uses.

A key over the name and the weights alone would give back the rows of the network that the function built before it was
edited. What cannot be told apart for sure is not guessed at: such a training is run anew each time.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

# stated by name alone: libraries whose versions are in the key, the library itself, what comes with Python
_BY_NAME = {"torch", "timm", "numpy", "phoebi_lib", *sys.stdlib_module_names}


def told(value: Any) -> Any:
    """Return plain values that state a function (source, defaults, whatever it names) or a value that it uses.

    Functions and modules outside the libraries of the key are stated by their source, functions also by what they name,
    classes by their members. Numbers, texts, lists and mappings are stated by themselves.

    Raises:
        TypeError: a value that cannot be stated, such as a tensor, a network or a function without a source.
    """
    return _told(value, set())


def _told(value: Any, seen: set[int]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_told(each, seen) for each in value]
    if isinstance(value, Mapping):
        return [[_told(key, seen), _told(each, seen)] for key, each in value.items()]
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or ""
    inner = isinstance(value, FunctionType) and "<locals>" in value.__qualname__
    if module.partition(".")[0] in _BY_NAME and not inner and hasattr(value, "__name__"):
        return f"{module} {value.__name__}"
    if not isinstance(value, (FunctionType, ModuleType, type)):
        raise TypeError(f"{type(value).__name__} cannot be stated by plain values")
    if id(value) in seen:
        return f"{module} {value.__name__}"
    seen.add(id(value))
    if isinstance(value, type):
        return [value.__name__, _told(value.__bases__, seen), _members(value, seen)]
    try:
        # a function's own code: of a decorated one, inspect would give what lies below the decorator
        source = inspect.getsource(value if isinstance(value, ModuleType) else value.__code__)
    except OSError as error:  # typed into a plain interpreter
        raise TypeError(f"{value!r} has no source") from error
    if isinstance(value, ModuleType):
        return source
    return [source, _told([value.__defaults__, value.__kwdefaults__], seen), _used(value, seen)]


def _members(owner: type, seen: set[int]) -> list:
    """Return methods and attributes of a class: a class of a notebook has no source, its methods do."""
    out = []
    for name, member in vars(owner).items():
        if isinstance(member, (staticmethod, classmethod)):
            member = member.__func__
        if isinstance(member, property):
            member = [member.fget, member.fset, member.fdel]
        elif name.startswith("__") and not isinstance(member, FunctionType):
            continue  # its docstring, module and the like
        out.append([name, _told(member, seen)])
    return out


def _used(function: FunctionType, seen: set[int]) -> list:
    """Return what a function takes from around it, by name; names that it only uses as attributes may be among them."""
    around = dict(function.__globals__)
    named = [name for name in sorted(_names(function.__code__)) if name in around]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    try:
        closed = [[name, cell.cell_contents] for name, cell in cells]
    except ValueError as error:
        raise TypeError("a variable of the function has no value yet") from error
    return _told([*([name, around[name]] for name in named), *closed], seen)


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))
