"""Lab 5, meet a stranger: the panel of an alarm, and the checks of its five exercises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from phoebi_lib.labs.answers import Hint, array, call, exercise, number, refuse, same, shape_of
from phoebi_lib.labs.explore import Panel
from phoebi_lib.labs.unmixing import unit_rows
from phoebi_lib.metrics import auroc as area

_KNOWN, _STRANGER = "#767676", "#D55E00"


def alarm_panel(
    validation: Mapping[str, np.ndarray], test: Mapping[str, np.ndarray], unknown: np.ndarray, stranger: str
) -> Panel:
    """Return a panel of ``score`` and ``false_alarms``: scores of the test, and what an alarm level gives.

    ``validation`` (M,), pictures without a stranger, and ``test`` (N,) are scores by name; ``unknown`` (N,) is 1 where
    the stranger is. ``false_alarms`` is the share of validation pictures that may ring.
    """

    def panel(part: Any, score: str, false_alarms: float) -> None:
        axis = part.subplots()
        level, values = np.quantile(validation[score], 1 - false_alarms), test[score]
        axis.hist([values[unknown == 0], values[unknown == 1]], bins=np.linspace(values.min(), values.max(), 16),
                  label=["known only", f"with {stranger}"], color=[_KNOWN, _STRANGER])  # fmt: skip
        axis.axvline(level, color="black", linestyle="--")
        found, false = (values[unknown == 1] > level).mean(), (values[unknown == 0] > level).mean()
        axis.set_title(f"{score}, {false_alarms:.0%} allowed\nfound {found:.2f}, false alarms {false:.2f}", loc="left")
        axis.set(xlabel="score, higher = more unknown", ylabel="pictures")
        axis.legend(fontsize=7)

    return panel


@exercise(5, 1, "Nobody who trains has seen the stranger, alone or in company.")
def check_without(without: Any) -> None:
    """Check a function of labels (N, K) and a species' column: a mask of the pictures that do not hold it."""
    Y = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    for k in (1, 2):
        value = call(without, Y, k)
        if np.asarray(value).dtype.kind in "iu" and shape_of(value) != (len(Y),):
            raise Hint("You give row positions; a mask is wanted, True or False for each picture.")
        answer = array("The mask", value, (len(Y),), "True or False for each picture").astype(bool)
        leaked = int((answer & (Y[:, k] == 1)).sum())
        if same(answer, Y[:, k] == 1):
            raise Hint("The wrong side: you keep the pictures that hold the stranger.")
        if leaked:
            alone = same(answer, ~((Y[:, k] == 1) & (Y.sum(axis=1) == 1)))
            more = " You dropped its pure cultures only; mixtures hold it too." if alone else ""
            raise Hint(f"Leak: {leaked} of the pictures that you keep hold the stranger.{more}")
        if not same(answer, Y[:, k] == 0):
            raise Hint("No stranger is left, but pictures without it were dropped too.")


@exercise(5, 2, "Nothing is modelled: a tile is strange if even its tenth nearest neighbour is far.")
def check_kth_distance(kth_distance: Any) -> None:
    """Check a function of (z (T, D), bank (M, D), k): mean over tiles of 1 - cosine to the k-th nearest bank tile."""
    rng = np.random.default_rng(52)
    z, bank, k = unit_rows(rng, 5, 8), unit_rows(rng, 12, 8), 3
    distances = np.sort(1 - z @ bank.T, axis=1)
    value = call(kth_distance, z, bank, k)
    if shape_of(value) == (5,):
        raise Hint("You give a number for each tile; a picture's score is their mean.")
    answer = number("The score", value)
    if not same(answer, distances[:, k - 1].mean()):
        mistakes = [
            (distances[:, k].mean(), "Off by one: that is neighbour k + 1, as Python counts from 0."),
            (distances[:, k - 2].mean(), "Off by one: that is neighbour k - 1."),
            (distances[:, :k].mean(), "That is the mean of the k nearest; the k-th alone is wanted."),
            (distances[:, -k].mean(), "That is the k-th farthest tile of the bank, not the k-th nearest."),
            (1 - distances[:, k - 1].mean(), "That is a cosine: higher for familiar tiles. A score of strangeness is "
                                             "higher for strange ones."),
            (distances[:, k - 1].mean() - 1, "The sign is turned, and the 1 is missing."),
            (distances[:, k - 1].max(), "That is the strangest tile; the mean over tiles is wanted."),
            (np.sort(1 - z.mean(axis=0) @ bank.T)[k - 1], "You averaged the tiles first; find each tile's neighbour, "
                                                          "then average."),
            (np.sort(1 - bank @ z.T, axis=1)[:, k - 1].mean(), "You looked for the neighbours of bank tiles among the "
                                                               "picture's tiles, the other way round."),
        ]  # fmt: skip
        refuse(answer, mistakes, "It is not the mean of each tile's distance to its k-th nearest bank tile.")


@exercise(5, 3, "A stranger whose tiles are mixtures of the known anchors leaves nothing over and stays unnoticed.")
def check_residual(residual: Any) -> None:
    """Check a function of (X (N, T, D), P (K, D), W (N, T, K)): mean over tiles of what the mixture leaves."""
    rng = np.random.default_rng(53)
    X, P = unit_rows(rng, 4, 5, 8), unit_rows(rng, 3, 8)
    W = rng.dirichlet(np.ones(3), (4, 5))
    rest = X - W @ P
    lengths = np.linalg.norm(rest, axis=2)
    value = call(residual, X, P, W)
    if shape_of(value) == (4, 5):
        raise Hint("You give a length for each tile; a picture's score is their mean.")
    if shape_of(value) in ((4, 8), (4, 5, 8)):
        raise Hint("The features are still apart: the length runs over them, the mean over tiles.")
    answer = array("The result", value, (4,), "a score for each picture")
    if not same(answer, lengths.mean(axis=1)):
        mistakes = [
            ((lengths**2).mean(axis=1), "Those are squared lengths."),
            (np.linalg.norm(rest.mean(axis=1), axis=1), "You averaged what is left over first, where tiles cancel; "
                                                        "take lengths, then average."),
            (lengths.sum(axis=1), "You added the tiles; their mean does not depend on how many there are."),
            (np.linalg.norm(rest, axis=(1, 2)), "That is one length over all tiles; take each tile's, then average."),
            (-lengths.mean(axis=1), "The sign is turned: a stranger should score high."),
            (np.linalg.norm(W @ P, axis=2).mean(axis=1), "That is the length of the mixture, not of what it leaves."),
        ]  # fmt: skip
        refuse(answer, mistakes, "It is not the mean over tiles of the length of tile minus mixture.")


@exercise(5, 4, "0.5 is a coin; no threshold enters.")
def check_auroc(auroc: Any) -> None:
    """Check a function of unknown (N,) 0/1 and scores (N,): the share of (stranger, known) pairs in right order."""
    unknown = np.array([1, 1, 1, 0, 0, 0, 0, 0])
    distinct, tied = [0.9, 0.6, 0.2, 0.1, 0.3, 0.4, 0.7, 0.05], [0.9, 0.5, 0.2, 0.5, 0.5, 0.4, 0.7, 0.1]
    for scores in (np.array(distinct), np.array(tied)):
        answer = number("The AUROC", call(auroc, unknown, scores))
        true, pairs = area(unknown, scores), 15
        if same(answer, true):
            continue
        above = (scores[unknown == 1, None] > scores[unknown == 0]).sum()
        equal = (scores[unknown == 1, None] == scores[unknown == 0]).sum()
        mistakes = [
            (1 - true, "The wrong side: you count the pairs in which the known picture scores higher."),
            (above + 0.5 * equal, "That is a count of pairs; a share is wanted."),
            ((above + 0.5 * equal) / 64, "You divided by all pairs of pictures; only pairs of a stranger and a known "
                                         "one count."),
            ((above + 0.5 * equal) / 8, "You divided by the number of pictures, not of pairs."),
        ]  # fmt: skip
        if equal:
            mistakes += [
                (above / pairs, "Pairs of equal scores count nothing in yours; each should count one half."),
                ((above + equal) / pairs, "Pairs of equal scores count whole in yours; each should count one half."),
            ]
        refuse(answer, mistakes, f"Of {pairs} pairs of a stranger and a known picture you find a share of "
                                 f"{answer:.3f} in the right order.")  # fmt: skip


@exercise(5, 5, "The level was set without a single stranger: that is all one has before meeting one.")
def check_alarm_level(alarm_level: Any) -> None:
    """Check a function of (scores (N,) of known pictures, share) that gives the level which that share lies above."""
    scores = np.random.default_rng(55).gamma(3.0, 0.1, 200)
    for share in (0.05, 0.2):
        answer = number("The level", call(alarm_level, scores, share))
        rings = (scores > answer).mean()
        if abs(rings - share) > 0.006:
            mistakes = [
                (np.quantile(scores, share), f"The wrong end: {rings:.0%} of the known pictures ring."),
                (np.percentile(scores, 1 - share), "np.percentile counts to 100, and the share to 1."),
                (1 - share, "That is a share; the level is a score."),
                (scores.max() * (1 - share), "A share of the largest score is not a share of the pictures."),
            ]
            refuse(answer, mistakes, f"{rings:.0%} of the known pictures lie above your level; {share:.0%} should.")
