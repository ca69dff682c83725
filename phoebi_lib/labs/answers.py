"""Answers of students: dots that were left, faults put in a sentence, and which exercises are solved."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# lab -> exercise -> whether its last check was passed in this kernel; filled with False as checks are defined
_SOLVED: dict[int, dict[int, bool]] = {}


class Unwritten(NotImplementedError):
    """An exercise whose dots have not been replaced yet. A notebook shows its one sentence and no traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks an exception for this before it makes a traceback
        return [str(self)]


class Hint(Exception):
    """What is wrong with an answer, in a sentence for the student."""


def written(what: str, *values: object) -> None:
    """Raise :class:`Unwritten` with the sentence ``what`` while one of ``values`` is still ``...``."""
    if any(value is ... for value in values):
        raise Unwritten(what)


def exercise(lab: int, number: int, insight: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the decorator of a check: it prints "right" with ``insight``, or "not yet" with the check's hint.

    The check raises :class:`Hint`. A stub that was not written and code that stops with an error become hints too.
    """
    _SOLVED.setdefault(lab, {})[number] = False

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(check)
        def shown(*args: Any, **kwargs: Any) -> None:
            fault = ""
            try:
                written("The dots are still there: run the cell above once you have replaced them.", *args)
                check(*args, **kwargs)
            except Unwritten as error:
                fault = str(error).removeprefix(f"Exercise {number}: ")
                fault = fault[:1].upper() + fault[1:]
            except Hint as error:
                fault = str(error)
            except Exception as error:  # an answer of a kind that no check thought of
                fault = f"The check cannot read this answer ({type(error).__name__}: {error}); look at its type."
            _SOLVED[lab][number] = not fault
            print(f"Exercise {number}: " + (f"not yet. {fault}" if fault else f"right. {insight}"))

        return shown

    return decorate


def progress(lab: int) -> None:
    """Print how many exercises of a lab are solved in this kernel, and which are open."""
    exercises = _SOLVED[lab]
    open_ones = _open(lab)
    rest = f" Still open: {', '.join(map(str, open_ones))}." if open_ones else ""
    print(f"Lab {lab}: {len(exercises) - len(open_ones)} of {len(exercises)} exercises solved.{rest}")


def require_all(lab: int) -> None:
    """Raise ValueError unless every exercise of a lab is solved: the guard at the end of a source with solutions."""
    if _open(lab):
        raise ValueError(f"lab {lab}: the checks of exercises {_open(lab)} refuse the solutions; see what they print")


def _open(lab: int) -> list[int]:
    return sorted(number for number, solved in _SOLVED[lab].items() if not solved)


def call(function: Any, *args: Any) -> Any:
    """Return ``function(*args)`` on copies of the arrays and lists.

    Raises:
        Hint: not a function, it stopped with an error, gave nothing back, or changed what it was given.
    """
    if not callable(function):
        raise Hint(f"Pass the function itself, without brackets; this is {_kind(function)}.")
    given = [argument.copy() if isinstance(argument, (np.ndarray, list)) else argument for argument in args]
    try:
        answer = function(*given)
    except Unwritten:
        raise
    except Exception as error:
        shapes = ", ".join(_kind(argument) for argument in args)
        raise Hint(f"Your function stopped with {type(error).__name__}: {error}. It was given {shapes}.") from error
    if answer is None:
        raise Hint("Your function gives nothing back: it has to end with return and the result.")
    if answer is ...:
        raise Hint("Your function gives the dots back: replace them by the result.")
    for argument, copy in zip(args, given, strict=True):
        if isinstance(argument, np.ndarray) and not np.array_equal(argument, copy):
            raise Hint("Your function changes the array that it was given; work on a new one.")
        if isinstance(argument, list) and argument != copy:
            raise Hint("Your function changes the list that it was given; work on a new one.")
    return answer


def array(name: str, value: Any, shape: Sequence[int], meaning: str) -> np.ndarray:
    """Return ``value`` as an array of numbers of ``shape``; ``meaning`` says in words what its axes are.

    Raises:
        Hint: not numbers, another shape, or not finite.
    """
    if callable(value):
        raise Hint(f"{name} is a function; call it, with brackets, to get its result.")
    try:
        found = np.asarray(value)
    except ValueError:
        raise Hint(f"{name} holds pieces of different sizes; expected {meaning}, shape {tuple(shape)}.") from None
    if found.dtype.kind not in "biuf":
        raise Hint(f"{name} holds {_kind(value)}; expected numbers: {meaning}.")
    if found.shape != tuple(shape):
        turned = found.ndim == 2 and found.shape[::-1] == tuple(shape)
        more = " The two axes are the wrong way round." if turned else ""
        raise Hint(f"{name} has shape {found.shape}; expected {tuple(shape)}: {meaning}.{more}")
    if not np.isfinite(found.astype(float)).all():
        raise Hint(f"{name} holds values that are not finite numbers; is something divided by zero?")
    return found


def number(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> float:
    """Return ``value`` as a float in ``low`` to ``high``.

    Raises:
        Hint: not one number, not finite, or out of range.
    """
    shape = shape_of(value)
    if shape is None or np.prod(shape, dtype=int) != 1:
        raise Hint(f"{name} holds {_kind(value)}; expected a single number.")
    found = float(array(name, value, shape, "a single number").reshape(()))
    if not low <= found <= high:
        raise Hint(f"{name} is {found:.3g}; it should lie between {low:g} and {high:g}.")
    return found


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of numbers or of nested lists of them; None for lists of different lengths."""
    try:
        return np.shape(value)
    except ValueError:
        return None


def same(answer: Any, other: Any) -> bool:
    """Tell whether two arrays or numbers agree in shape and, to rounding, in value."""
    return shape_of(answer) == np.shape(other) and np.allclose(answer, other, rtol=1e-5, atol=1e-7)


def refuse(answer: Any, mistakes: Sequence[tuple[Any, str]], otherwise: str) -> None:
    """Raise the :class:`Hint` of the first of ``mistakes``, (value, sentence), that ``answer`` agrees with.

    Where it agrees with none, the sentence ``otherwise``.
    """
    for value, sentence in mistakes:
        if same(answer, value):
            raise Hint(sentence)
    raise Hint(otherwise)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if shape else " ".join(f"{type(value).__name__} {value!r}".split())[:60]
