"""What a row allows to be said: whether it is fitted, on which side of zero a difference lies, what it rests on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from phoebi_lib import report
from phoebi_lib.catalogue import parse_combination
from phoebi_lib.summaries import FITTED_F1

FITTED = "fitted"
NOT_FITTED = "not fitted; no conclusion about collapse"
#: Under so many validation images a reading that rests on them says "only".
FEW = 30
_MARK = re.compile(r" \(not in [^()]*\)$")


def plain(row: str) -> str:
    """Return the name of a row without the mark that it is not in the paper, or not in one of its tables."""
    return _MARK.sub("", row)


def reading(in_dist_f1: float, n_images: int, train_f1: float) -> str:
    """Return what a trained row allows: "fitted" from 0.95 on, with the number of images that say so and training F1.

    Args:
        in_dist_f1: F1 on ``n_images`` validation images of trained-on combinations. train_f1: F1 on training images.
    """
    word = FITTED if in_dist_f1 >= FITTED_F1 else NOT_FITTED
    images = f"{n_images} validation images{' only' if n_images < FEW else ''}"
    return f"{word} (on {images}; training F1 {report.at_digits(train_f1, 3)})"


def side(
    line: Mapping[str, Any], above: str = "above", below: str = "below", neither: str = "cannot be told from"
) -> str:
    """Return the word for a difference whose interval lies above zero, below it, or holds it."""
    return above if line["low"] > 0 else below if line["high"] < 0 else neither


def with_interval(line: Mapping[str, Any], places: int = 3, sign: bool = True) -> str:
    """Return a number with its interval as text, ``+0.031 [-0.007, +0.064]``."""
    value, low, high = (report.at_digits(line[end], places, sign=sign) for end in ("value", "low", "high"))
    return f"{value} [{low},\u00a0{high}]"


def always_held_out(unseen: Sequence[str], codes: Sequence[str]) -> str:
    """Return a sentence on what the choice of held-out combinations does to single species.

    It names the species in every combination of ``unseen``, and pure cultures among them: the anchor of such a species
    then comes from mixtures.
    """
    members = [parse_combination(name, codes) for name in unseen]
    every = [code for code in codes if all(code in its for its in members)]
    pure = [its[0] for its in members if len(its) == 1]
    said = f"in all {len(members)} held-out folders: {', '.join(every) or 'no species'}; held-out pure cultures: "
    return said + (f"{', '.join(pure)}, whose anchor then comes from mixtures" if pure else "none")
