"""Lab 3, thresholds and what a missed species costs: its panel, and the checks of its five exercises."""

from __future__ import annotations

from typing import Any

import numpy as np

from phoebi_lib import plots
from phoebi_lib.labs.answers import Hint, array, call, exercise, number, refuse, same, shape_of
from phoebi_lib.labs.explore import Panel

_PRESENT, _ABSENT = "#0072B2", "#E69F00"
# scores with a tie at 0.5, more of the absent above the middle than of the present below it
_SCORES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9])
_TRUTH = np.array([0, 0, 1, 0, 0, 1, 0, 1, 1, 1])


def cost_panel(scores: np.ndarray, present: np.ndarray, species: str) -> Panel:
    """Return a panel of ``threshold`` and ``cost_of_a_miss``: the scores, the cut, and the cost of every cut.

    ``scores`` and ``present`` (N,) belong to one species; a false alarm costs 1.
    """
    cuts = np.linspace(scores.min() - 0.01 * np.ptp(scores), scores.max(), 200)

    def panel(part: Any, threshold: float, cost_of_a_miss: float) -> None:
        above, below = part.subplots(2, 1, sharex=True)
        bins = np.linspace(scores.min(), scores.max(), 20)
        above.hist([scores[present == 1], scores[present == 0]], bins=bins, label=["present", "absent"],
                   color=[_PRESENT, _ABSENT])  # fmt: skip
        misses = (scores[present == 1, None] <= cuts).sum(axis=0)
        alarms = (scores[present == 0, None] > cuts).sum(axis=0)
        below.plot(cuts, cost_of_a_miss * misses + alarms, "-", color=plots.INK)
        for axis in (above, below):
            axis.axvline(threshold, color="black", linestyle="--")
        missed, false = (scores[present == 1] <= threshold).sum(), (scores[present == 0] > threshold).sum()
        above.set_title(f"a miss costs {cost_of_a_miss:g}\n{missed} missed, {false} false: "
                        f"{cost_of_a_miss * missed + false:g}", loc="left")  # fmt: skip
        above.set_ylabel("pictures")
        above.legend(fontsize=7)
        below.set(xlabel=f"score of {species}", ylabel="cost")

    return panel


def _cost(threshold: float, miss: float, alarm: float) -> float:
    called = _SCORES > threshold
    return float(miss * ((_TRUTH == 1) & ~called).sum() + alarm * ((_TRUTH == 0) & called).sum())


@exercise(3, 1, "A score that only reaches the threshold is not enough: it has to lie above.")
def check_call(call_present: Any) -> None:
    """Check a function of scores (N,) and a threshold: 1 where the score lies strictly above, else 0."""
    answer = call(call_present, _SCORES, 0.5)
    answer = array("The result", answer, _SCORES.shape, "a 0 or 1 for each picture")
    if not same(answer.astype(float), _SCORES > 0.5):
        mistakes = [
            (_SCORES >= 0.5, "Pictures with exactly the threshold's score are called too; only those above should be."),
            (_SCORES < 0.5, "The wrong side: you call the pictures with low scores."),
            (_SCORES <= 0.5, "The wrong side: you call the pictures with low scores."),
            (_SCORES, "Those are the scores still; the answer is yes (1) or no (0)."),
        ]
        refuse(answer.astype(float), mistakes, "Some pictures are on the wrong side of the threshold.")


@exercise(3, 2, "Precision asks about the calls, recall about the pictures that hold the species.")
def check_precision_recall(precision_recall: Any) -> None:
    """Check a function of present (N,) and called (N,), 0/1, that gives (precision, recall)."""
    present = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
    called = np.array([1, 1, 0, 0, 0, 1, 0, 0, 0, 0])
    value = call(precision_recall, present, called)
    if shape_of(value) != (2,):
        raise Hint("Two numbers are wanted, precision first, then recall.")
    answer = array("The result", value, (2,), "precision, recall")
    precision, recall = 2 / 3, 2 / 5
    if not same(answer, (precision, recall)):
        mistakes = [
            ((recall, precision), "The two are the wrong way round."),
            ((2, 2), "Those are counts; both are shares, from 0 to 1."),
            ((0.2, 0.2), "You divided by the number of all pictures. Each share is of its own kind of picture."),
            ((precision, 0.6), "Recall: you have the share of all pictures that are right."),
        ]
        first, second = same(answer[0], precision), same(answer[1], recall)
        half = "Precision is right, recall is not." if first else "Recall is right, precision is not." if second else ""
        refuse(answer, mistakes, half or "With 5 pictures that hold the species, 3 calls and 2 of them right, neither "
                                         "number is what it should be.")  # fmt: skip


@exercise(3, 3, "Two kinds of fault, two prices.")
def check_cost(cost: Any) -> None:
    """Check a function of (present, called, miss, alarm) that gives the total cost of the faults."""
    called = (_SCORES > 0.35).astype(int)
    misses, alarms = 1, 3
    answer = number("The cost", call(cost, _TRUTH, called, 10.0, 1.0), low=0)
    if not same(answer, 10.0 * misses + alarms):
        mistakes = [
            (misses + 10.0 * alarms, "The prices are exchanged: a missed species is the one that costs 10 here."),
            (misses + alarms, "The prices do not count: you counted the faults."),
            (10.0 * misses, "False alarms cost too."),
            (float(alarms), "Missed species cost too."),
            ((10.0 * misses + alarms) / len(_TRUTH), "That is the cost per picture; the total is wanted."),
            (10.0 * 4 + 1.0 * 3, "You count the pictures that are called rightly as misses."),
        ]
        refuse(answer, mistakes, f"{misses} missed and {alarms} false alarms at prices 10 and 1 do not cost "
                                 f"{answer:g}.")  # fmt: skip


@exercise(3, 4, "The dearer a miss, the lower the threshold. It was chosen on validation pictures, never on test ones.")
def check_cheapest(cheapest: Any) -> None:
    """Check a function of (scores, present, miss, alarm, candidates) that gives the candidate of the least cost."""
    candidates = np.array([0.05, 0.25, 0.45, 0.65, 0.85])
    for miss, alarm in ((10.0, 1.0), (1.0, 10.0)):
        costs = np.array([_cost(candidate, miss, alarm) for candidate in candidates])
        value = number("The threshold", call(cheapest, _SCORES, _TRUTH, miss, alarm, candidates))
        if same(value, candidates[costs.argmin()]):
            continue
        mistakes = [
            (costs.argmin(), "That is the place of the threshold in the list, not the threshold."),
            (candidates[costs.argmax()], "That is the dearest threshold."),
            (costs.min(), "That is the cost at the best threshold, not the threshold."),
        ]
        told = "not one of the candidates" if value not in candidates else f"its cost is {_cost(value, miss, alarm):g}"
        refuse(value, mistakes, f"With a miss at {miss:g} and a false alarm at {alarm:g} you choose {value:g}: {told}.")


@exercise(3, 5, "One positive in twenty is given up on purpose; how many false calls that buys, the rule never asks.")
def check_quantile_threshold(quantile_threshold: Any) -> None:
    """Check a function of (scores, present, share): the quantile of the scores of pictures that hold the species."""
    rng = np.random.default_rng(35)
    present = np.array([1, 0] * 40)
    scores = rng.normal(0.0, 1.0, 80) + 2.0 * present
    answer = number("The threshold", call(quantile_threshold, scores, present, 0.05))
    if not same(answer, np.quantile(scores[present == 1], 0.05)):
        mistakes = [
            (np.quantile(scores, 0.05), "All pictures count in it; only those that hold the species should."),
            (np.quantile(scores[present == 0], 0.05), "You took the pictures without the species."),
            (np.quantile(scores[present == 1], 0.95), "The wrong end: this threshold gives up nineteen in twenty."),
            (np.quantile(scores[present == 0], 0.95), "That bounds the false alarms; the rule bounds the misses."),
            (np.percentile(scores[present == 1], 0.05), "np.percentile counts to 100, and the share is 0.05."),
        ]
        missed = (scores[present == 1] <= answer).mean()
        refuse(answer, mistakes, f"This threshold gives up {missed:.0%} of the pictures with the species, not 5 %.")
