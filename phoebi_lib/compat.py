"""The one table of choices on which the published code and a corrected implementation differ.

``corrected`` is the default of the smoke and default profiles, ``reference`` of the paper and rehearsal profiles: it
repeats what the published numbers were computed with. Nothing else in the library asks which way is in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WAYS = ("corrected", "reference")


@dataclass(frozen=True)
class Choice:
    """One row: the ``name`` code asks for, the value of each way, and ``why`` they differ."""

    name: str
    corrected: Any
    reference: Any
    why: str


CHOICES: tuple[Choice, ...] = (
    Choice(
        "illumination",
        "reflect",
        "zero",
        "Border and kernel of the background estimate (FrontEnd's padding): the published GPU variant pads with zeros "
        "and brightens twelve of sixteen tiles; reflect, antialiased and cut at 4 sigma leaves a flat field flat.",
    ),
    Choice(
        "lco_grouping",
        "frame",
        "image",
        "Leave-combinations-out train/validation: shuffled by image, 99 % of validation images have a sibling crop of "
        "the same frame in training.",
    ),
    Choice(
        "channel_group_aggregation",
        "logit",
        "sigmoid",
        "Image score of ChannelGroup: the paper averages logits, its numbers average sigmoids.",
    ),
    Choice(
        "finetuning_split",
        "acquisition",
        "shuffled",
        "In-distribution split of the fine-tuned encoders: shuffled, 96 % of test images have a sibling in training.",
    ),
    Choice(
        "finetuning_recipe",
        "one",
        "per block",
        "The published in-distribution and held-out blocks differ in images, crops, learning rates and epochs.",
    ),
    Choice(
        "sweep_prototypes",
        "closed form",
        "trained",
        "Prototypes of the row named ProtoMatch in tile-size and tile-count sweeps: published with SimplexUnmix's.",
    ),
    Choice(
        "dev_thresholds",
        "val",
        "train",
        "Part on which the development folds choose thresholds: the written protocol says validation.",
    ),
    Choice("resamples", 2000, 1000, "Bootstrap resamples: the written development protocol says 2,000."),
    Choice(
        "pooled_units",
        ("distinct combinations", "seed and combination"),
        ("seed and combination",),
        "Units of the pooled interval: the 27 (seed, combination) pairs hold only 19 distinct combinations.",
    ),
    Choice(
        "discovery",
        ("inductive", "transductive"),
        ("transductive",),
        "Species discovery: the published one clusters the tiles it is scored on.",
    ),
    Choice(
        "drift_thresholds",
        "val",
        "train",
        "Part on which thresholds of the drift study are chosen: published on training images.",
    ),
    Choice(
        "focus_blur",
        ("reflect", 11),
        ("zero", 10),
        "Border and radius at sigma 3.5 of the focus corruption: zero padding darkens the border, and rounding half to "
        "even cuts the radius.",
    ),
    Choice(
        "missing_positives",
        "never",
        "published",
        "Threshold of a class without validation positives: published 0.05, 0.5 or the largest score plus one, by "
        "decoder and split, and 0.01 for ChannelGroup, so that it may fire; corrected, it never does.",
    ),
)
_BY_NAME = {row.name: row for row in CHOICES}


def choice(name: str, compat: str) -> Any:
    """Return the value of the row called ``name`` under ``compat`` (``"corrected"`` or ``"reference"``).

    Raises ``ValueError`` for an unknown name or way, listing the known ones.
    """
    if compat not in WAYS:
        raise ValueError(f"unknown compat {compat!r}; known: {', '.join(WAYS)}")
    if name not in _BY_NAME:
        raise ValueError(f"unknown choice {name!r}; known: {', '.join(_BY_NAME)}")
    return getattr(_BY_NAME[name], compat)
