"""Lab 4, leave a combination out yourself: its panel, and the checks of its five exercises."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from phoebi_lib import plots
from phoebi_lib.catalogue import CODES, parse_combination
from phoebi_lib.labs.answers import Hint, array, call, exercise, number, refuse, same, shape_of
from phoebi_lib.labs.explore import Panel

if TYPE_CHECKING:
    from phoebi_lib.pool import Pool


def leave_out_panel(pool: Pool, rows: np.ndarray) -> Panel:
    """Return a panel of ``held_out``: ProtoMatch fitted without that combination, its calls on it, and the constant.

    ``rows`` are the positions of the pool's images that take part. Thresholds come from the last frame of each other
    combination. A combination's result is kept, so that a second look is quick.
    """
    from phoebi_lib.decoders import ProtoMatch

    combination = pool.manifest["combination"].to_numpy()[rows]
    frame = pool.manifest["frame"].to_numpy()[rows]
    X, Y = pool.take(rows), pool.Y[rows]
    last = {name: frame[combination == name].max() for name in set(combination)}
    validation = frame == np.array([last[name] for name in combination])

    @cache
    def calls(held_out: str) -> np.ndarray:
        test = combination == held_out
        decoder = ProtoMatch().fit(X[~test & ~validation], Y[~test & ~validation])
        return decoder.calibrate(X[~test & validation], Y[~test & validation]).predict(X[test])

    def panel(part: Any, held_out: str) -> None:
        axis = part.subplots()
        members, called = parse_combination(held_out, pool.codes), calls(held_out)
        truth = np.array([code in members for code in pool.codes])
        colours = [plots.species_colour(code) if code in members else plots.PALE for code in pool.codes]
        axis.bar(pool.codes, called.mean(axis=0), color=colours, edgecolor=plots.GREY)
        f1 = (2 * (called & truth).sum(axis=1) / (called.sum(axis=1) + truth.sum())).mean()
        constant = plots.all_present_f1(len(members), len(pool.codes))
        axis.set_title(f"{held_out} held out\nF1 {f1:.2f}, constant {constant:.2f}", loc="left")
        axis.set(ylabel="share of its pictures called", ylim=(0, 1.05))

    return panel


@exercise(4, 1, "Every species is still in training, in other company.")
def check_choice(held_out: Any, combinations: Sequence[str], codes: Sequence[str] = CODES) -> None:
    """Check a list of folder names to hold out: known, different, a mixture among them.

    Each species stays in training, in its pure culture and in a mixture.
    """
    if isinstance(held_out, str):
        raise Hint(f"Put the name into a list, also if it is one alone: [{held_out!r}].")
    names, known = list(held_out), sorted(set(combinations))
    if not names:
        raise Hint("The list is empty; name at least one combination.")
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)
            raise Hint(f"There is no combination {name!r}; the closest name is {close[0]!r}.")
    if len(set(names)) < len(names):
        raise Hint("A combination is in the list twice.")
    if all(len(parse_combination(name, codes)) == 1 for name in names):
        raise Hint("Those are pure cultures only; the question of this lab is about mixtures.")
    rest = [name for name in known if name not in names]
    lost = [code for code in codes if not any(code in parse_combination(name, codes) for name in rest)]
    if lost:
        raise Hint(f"Nothing that is left holds {', '.join(lost)}: nobody can learn a species from no picture.")
    mixtures = [members for name in rest if len(members := parse_combination(name, codes)) > 1]
    if not mixtures:
        raise Hint("You hold out every mixture: only pure cultures would train. Leave some mixtures in; the question "
                   "is about new ones, for a decoder that has met others.")  # fmt: skip
    alone = [code for code in codes if not any(code in members for members in mixtures)]
    if alone:
        raise Hint(f"{', '.join(alone)} would be in training alone only; leave a mixture in that holds it.")
    pure = [code for code in codes if code not in rest]
    if pure:
        raise Hint(f"You hold out the pure culture of {', '.join(pure)} too. Keep it for now: without it the anchor "
                   "has to come from mixtures, which is a question of its own.")  # fmt: skip


@exercise(4, 2, "No picture of a held-out combination is in training, and none is lost.")
def check_divide(divide: Any) -> None:
    """Check a function of (combination (N,), held_out) that gives (train, test), row positions or masks."""
    combination = np.repeat(["bs", "ka", "bs_ka", "fj_ka", "bs_fj_ka", "fj"], 3)
    for held_out in (["bs_ka"], ["fj_ka"], ["fj_ka", "bs"]):
        value = _divided(divide, combination, held_out)
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise Hint("Two things are wanted: the rows of training, then those of the test.")
        train, test = (_rows(part, len(combination)) for part in value)
        wanted = {row for row, name in enumerate(combination) if name in held_out}
        if train == wanted:
            raise Hint("The two are the wrong way round: you train on what should be held out.")
        leaked = sorted({str(combination[row]) for row in train & wanted})
        if leaked:
            raise Hint(f"Leak: with {held_out} held out, pictures of {', '.join(leaked)} are in training.")
        extra = sorted({str(combination[row]) for row in test - wanted})
        if extra:
            raise Hint(f"With {held_out} held out, the test holds {', '.join(extra)} too. Names have to be equal; one "
                       "name can be a piece of another.")  # fmt: skip
        if test != wanted:
            raise Hint(f"Of {len(wanted)} pictures to be held out, {len(test)} are in the test.")
        if len(train | test) < len(combination):
            missing = sorted({str(combination[row]) for row in range(len(combination)) if row not in train | test})
            raise Hint(f"Pictures of {', '.join(missing)} are in no part, with {held_out} held out.")


def _divided(divide: Any, combination: np.ndarray, held_out: list[str]) -> Any:
    try:
        return call(divide, combination, held_out)
    except Hint as hint:
        if isinstance(hint.__cause__, ValueError):
            raise Hint(f"{hint} Do you compare with `in` or `==`? Both take the array of names as a whole; each name "
                       "by itself has to be looked up in the list.") from hint  # fmt: skip
        raise


def _rows(part: Any, n: int) -> set[int]:
    rows = np.asarray(part)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "biu"):
        raise Hint("A part is a list of row positions, or a mask with True or False for each picture.")
    if rows.dtype == bool:
        if len(rows) != n:
            raise Hint(f"A mask has {len(rows)} entries, and there are {n} pictures: one True or False for each.")
        return set(np.flatnonzero(rows).tolist())
    found = set(rows.tolist())
    if len(found) < len(rows):
        if found <= {0, 1}:
            raise Hint("A mask of 0 and 1 is read as row positions 0 and 1. Make True and False of it.")
        raise Hint("A row position stands in a part twice.")
    if not found <= set(range(n)):
        raise Hint(f"Row positions go from 0 to {n - 1}; you give {min(found)} to {max(found)}.")
    return found


@exercise(4, 3, "Crops of one frame show the same cells, so a frame goes to one side as a whole.")
def check_last_frames(last_frames: Any) -> None:
    """Check a function of (combination (N,), frame (N,)): a mask of the pictures of each combination's last frame.

    The pictures of the check are three crops of each of four frames, in a shuffled order.
    """
    order = np.random.default_rng(43).permutation(36)
    combination = np.repeat(["bs", "ka", "bs_ka"], 12)[order]
    frame = np.concatenate([start + np.repeat(np.arange(4), 3) for start in (1, 1, 11)])[order]
    value = call(last_frames, combination, frame)
    answer = array("The mask", value, (36,), "True or False for each picture").astype(bool)
    last = frame == np.array([{"bs": 4, "ka": 4, "bs_ka": 14}[name] for name in combination])
    if same(answer, last):
        return
    for name in ("bs", "ka", "bs_ka"):
        here = combination == name
        if not answer[here].any():
            raise Hint(f"No picture of {name} is chosen: the last frame of each combination is wanted, and frames need "
                       "not have the same numbers everywhere.")  # fmt: skip
        both = sorted(set(frame[here & answer]) & set(frame[here & ~answer]))
        if both:
            raise Hint(f"Leak: frame {both[0]} of {name} is on both sides. Its crops show the same cells. The rows may "
                       "be in any order.")  # fmt: skip
    if same(answer, ~last):
        raise Hint("You chose everything but the last frames.")
    raise Hint("Whole frames are chosen, but not the last one of each combination. The rows may be in any order.")


@exercise(4, 4, "One number a picture: hits count twice, and both kinds of fault count against it.")
def check_image_f1(image_f1: Any) -> None:
    """Check a function of truth and called, (N, K) 0/1, that gives the F1 of each picture (N,)."""
    truth = np.array([[1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
    called = np.array([[1, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0]])
    value = call(image_f1, truth, called)
    if shape_of(value) == (6,):
        raise Hint("You give a number for each species: that is the F1 of columns. One for each picture is wanted.")
    if shape_of(value) == ():
        raise Hint("You give one number for all pictures; one for each is wanted, to compare combinations.")
    answer = array("The result", value, (4,), "a number for each picture")
    hits = (truth & called).sum(axis=1)
    f1 = 2 * hits / (truth.sum(axis=1) + called.sum(axis=1))
    if not same(answer, f1):
        mistakes = [
            ((truth == called).mean(axis=1), "That is the share of right answers: the many species that are absent and "
                                             "not called count in it."),
            (hits / called.sum(axis=1), "That is precision: missed species do not count."),
            (hits / truth.sum(axis=1), "That is recall: false calls do not count."),
            (f1 / 2, "Hits count once in yours; they count twice above the line."),
            (hits / (truth | called).sum(axis=1), "That is hits over everything named or present; F1 counts hits twice "
                                                  "above and below the line."),
            ((truth == called).all(axis=1), "That is whether all species are right."),
        ]  # fmt: skip
        refuse(answer, mistakes, f"For a picture with two species, one of them called and two more called wrongly, "
                                 f"you give {answer[0]:.2f}.")  # fmt: skip


@exercise(4, 5, "It looks at no picture, and mixtures of many species raise it.")
def check_constant_f1(constant_f1: Any) -> None:
    """Check a function of (k, K): the F1 of calling all K species on a picture that holds k of them."""
    for k, n_species in ((1, 6), (3, 6), (6, 6), (2, 5)):
        answer = number("The F1", call(constant_f1, k, n_species))
        if not same(answer, plots.all_present_f1(k, n_species)):
            mistakes = [
                (k / n_species, "That is its precision; all species are called, so none is missed."),
                (1.0, "That is its recall: nothing is missed, but much is called wrongly."),
                (2 * k / (k + 6), "The number of species is K, and not always 6."),
                (2 * k / n_species, "The species that are present count below the line too, not only those called."),
                (k / (k + n_species), "Hits count twice above the line."),
                (plots.all_present_f1(k - 1, n_species), "You are off by one species."),
                (plots.all_present_f1(k + 1, n_species), "You are off by one species."),
            ]
            refuse(answer, mistakes, f"For {k} of {n_species} species you give {answer:.3f}. Count hits, false calls "
                                     "and misses.")  # fmt: skip
