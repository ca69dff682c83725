"""Claims of the paper as data, and their verdicts from tables of results.

A claim names the numbers it needs as cells of tidy tables (:mod:`phoebi_lib.report`) and a rule that says, from those
numbers alone, whether it is borne out. The kind of evidence behind the numbers then decides how that may be worded: on
simulated images nothing "holds".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

YES, NO, UNCLEAR = "yes", "no", "unclear"
HOLDS, FAILS, NOT_RESOLVED = "holds", "does not hold", "not resolved"
SEEN, NOT_SEEN = "seen in simulation", "not seen"
BUILT_IN, NOT_TESTABLE = "built into the simulation", "not testable"
#: Verdicts that a claim may get, by the kind of evidence.
VERDICTS = {
    "exact": (HOLDS, FAILS, NOT_RESOLVED),
    "paper": (HOLDS, FAILS, NOT_RESOLVED),
    "simulated": (SEEN, NOT_SEEN, BUILT_IN, NOT_RESOLVED, NOT_TESTABLE),
}
SECTIONS = ("Abstract", "4", "5", "6", "A", "B", "C", "D")


@dataclass(frozen=True)
class Number:
    """One number of a results table: value, 95 % interval (NaN without one), evidence and counts."""

    value: float
    low: float = math.nan
    high: float = math.nan
    evidence: str = "simulated"
    n_images: int = 0

    @property
    def has_interval(self) -> bool:
        """Whether the number comes with an interval."""
        return not math.isnan(self.low)


@dataclass(frozen=True)
class Cell:
    """Where a number stands: ``table``, ``row`` and ``column`` of a tidy table.

    ``encoder`` and ``partition`` tell lines apart where a table has several that agree in the other three; empty means
    that it has one.
    """

    table: str
    row: str
    column: str
    encoder: str = ""
    partition: str = ""


Rule = Callable[[Mapping[str, Number]], str]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that numbers can bear out.

    Attributes:
        id: short name, unique.
        section: one of ``SECTIONS``; ``place`` says where in it.
        wording: the claim in our words.
        needs: name -> cell; the rule sees the numbers under these names.
        rule: numbers -> "yes", "no" or "unclear".
        tolerance: why the rule's bounds are what they are.
        label_only: follows from labels and published lists, without any image.
        built_in: follows from a parameter of the simulator, so that simulated images cannot test it.
        page: the notebook that computes the numbers.
    """

    id: str
    section: str
    place: str
    wording: str
    needs: Mapping[str, Cell]
    rule: Rule
    tolerance: str
    label_only: bool = False
    built_in: bool = False
    page: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the results say about one claim."""

    claim: Claim
    verdict: str
    evidence: str
    numbers: Mapping[str, Number]
    missing: tuple[str, ...] = ()


def lookup(results: pd.DataFrame, cell: Cell) -> Number | None:
    """Return the number of a cell, None where the tables lack it (or only say why it is missing).

    Raises:
        ValueError: more than one line fits, so that which number is meant is open.
    """
    fits = (results["table"] == cell.table) & (results["row"] == cell.row) & (results["column"] == cell.column)
    for name in ("encoder", "partition"):
        if getattr(cell, name):
            fits &= results[name] == getattr(cell, name)
    found = results[fits & results["value"].notna()]
    if len(found) > 1:
        raise ValueError(f"{len(found)} lines fit {cell}; name the encoder or the partition")
    if found.empty:
        return None
    line = found.iloc[0]
    n = 0 if pd.isna(line["n_images"]) else int(line["n_images"])
    return Number(float(line["value"]), float(line["low"]), float(line["high"]), line["evidence"], n)


def judge(claim: Claim, results: pd.DataFrame) -> Verdict:
    """Return the verdict on a claim from tidy tables (one frame, any number of tables)."""
    found = {name: lookup(results, cell) for name, cell in claim.needs.items()}
    numbers = {name: number for name, number in found.items() if number is not None}
    missing = tuple(name for name, number in found.items() if number is None)
    kinds = {number.evidence for number in numbers.values()} - {"exact"} or {"exact"}
    evidence = kinds.pop() if len(kinds) == 1 else "mixed"
    if missing or evidence not in VERDICTS:
        return Verdict(claim, NOT_TESTABLE, evidence if numbers else "none", numbers, missing)
    if evidence == "simulated" and claim.built_in:
        return Verdict(claim, BUILT_IN, evidence, numbers)
    outcome = claim.rule(numbers)
    if outcome not in (YES, NO, UNCLEAR):
        raise ValueError(f"claim {claim.id!r}: its rule returned {outcome!r}, not {YES!r}, {NO!r} or {UNCLEAR!r}")
    yes, no = (SEEN, NOT_SEEN) if evidence == "simulated" else (HOLDS, FAILS)
    return Verdict(claim, {YES: yes, NO: no, UNCLEAR: NOT_RESOLVED}[outcome], evidence, numbers)


def above(number: Number, bound: float, tolerance: float = 0.0) -> str:
    """Return whether a number lies above ``bound``.

    With an interval: yes if all of it does, no if none of it does. Without: yes above ``bound + tolerance``, no below
    ``bound - tolerance``, unclear between.
    """
    low, high = _ends(number, tolerance)
    return YES if low > bound else NO if high < bound else UNCLEAR


def below(number: Number, bound: float, tolerance: float = 0.0) -> str:
    """Return whether a number lies below ``bound``; as :func:`above`."""
    return above(Number(-number.value, -number.high, -number.low), -bound, tolerance)


def within(number: Number, low: float, high: float, tolerance: float = 0.0) -> str:
    """Return whether a number lies between two bounds: yes if its interval does, no if it lies outside entirely."""
    return every(above(number, low, tolerance), below(number, high, tolerance))


def close(number: Number, target: float, by: float) -> str:
    """Return whether a number without an interval lies within ``by`` of ``target``: yes or no, never unclear."""
    return YES if abs(number.value - target) <= by else NO


def every(*outcomes: str) -> str:
    """Return yes if all outcomes are, no if one is no, else unclear."""
    return NO if NO in outcomes else UNCLEAR if UNCLEAR in outcomes else YES


def some(*outcomes: str) -> str:
    """Return yes if one outcome is, no if all are no, else unclear."""
    return YES if YES in outcomes else UNCLEAR if UNCLEAR in outcomes else NO


def difference(first: Number, second: Number) -> Number:
    """Return ``first - second`` with the interval of two independent numbers (half-widths added in squares).

    Where a paired interval of the difference can be computed from the rows, put it into a table and use that instead:
    this one is too wide for numbers from the same images.
    """
    value = first.value - second.value
    if not (first.has_interval and second.has_interval):
        return Number(value, evidence=first.evidence)
    down = math.hypot(first.value - first.low, second.high - second.value)
    up = math.hypot(first.high - first.value, second.value - second.low)
    return Number(value, value - down, value + up, first.evidence)


def _ends(number: Number, tolerance: float) -> tuple[float, float]:
    if number.has_interval:
        return number.low, number.high
    return number.value - tolerance, number.value + tolerance


def judge_all(claims: Iterable[Claim], results: pd.DataFrame) -> list[Verdict]:
    """Return the verdicts on several claims, in their order."""
    return [judge(claim, results) for claim in claims]


def record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain values, for the JSON file."""
    claim = verdict.claim
    numbers = {
        name: {"value": n.value, "low": _plain(n.low), "high": _plain(n.high), "evidence": n.evidence,
               "n_images": n.n_images}
        for name, n in verdict.numbers.items()
    }  # fmt: skip
    return {
        "id": claim.id, "section": claim.section, "place": claim.place, "wording": claim.wording,
        "verdict": verdict.verdict, "evidence": verdict.evidence, "tolerance": claim.tolerance,
        "label_only": claim.label_only, "page": claim.page, "numbers": numbers, "missing": list(verdict.missing),
    }  # fmt: skip


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
