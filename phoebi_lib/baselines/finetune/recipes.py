"""How a backbone is trained: the published recipes, the corrected one, and the caps of a profile."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from phoebi_lib.compat import WAYS, choice
from phoebi_lib.decoders.thresholds import check_fallback
from phoebi_lib.frontend import PADDING
from phoebi_lib.limits import Limits

KINDS = {"whole": "FineTune whole image", "pipeline": "FineTune pipeline"}
BLOCKS = ("random", "lco")
CROPS = ("random", "resized", "none")
PRECISIONS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training besides images, initial weights and seed. Published defaults.

    Attributes:
        kind: ``whole``, the whole image shrunk to one view; ``pipeline``, the tiles of the front-end.
        compat: the way it belongs to, ``corrected`` or ``reference``.
        epochs: passes over the training images. updates: optimiser steps instead of epochs, None for epochs.
        evaluations: how often validation is scored with ``updates``, evenly; with epochs it is once after each.
        batch: images per update (frames for the pipeline); the last batch of an epoch may be smaller.
        lr_backbone, lr_head, weight_decay: of AdamW, constant.
        copy: side in px of the JPEG copies that training and evaluation start from, None for the images themselves.
        load: side in px of the picture that is cropped (whole), or of a tile as the front-end cuts it (pipeline).
        side: side in px of what the network takes.
        crop: ``random`` cuts ``side`` px; ``resized`` cuts a part of the picture, of area ``scale`` and aspect
            ``ratio``, and resizes it to ``side``; ``none`` leaves the picture. Flips go with all three.
        grid, padding: of the front-end (pipeline).
        fallback: threshold of a class without validation positives, as for ``grid_thresholds``.
        train_images: training images, evenly spaced, on which training F1 is measured; None for all.
        precision: ``float32``, or ``float16`` or ``bfloat16`` to autocast on a GPU; a CPU always computes in float32.

    Raises:
        ValueError: a value out of range, named with what was expected.
    """

    kind: str
    compat: str
    epochs: int = 5
    updates: int | None = None
    evaluations: int = 4
    batch: int = 64
    lr_backbone: float = 1e-4
    lr_head: float = 1e-4
    weight_decay: float = 1e-4
    copy: int | None = None
    load: int = 256
    side: int = 224
    crop: str = "none"
    scale: tuple[float, float] = (0.6, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    grid: int = 4
    padding: str = "reflect"
    fallback: str | float = "never"
    train_images: int | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        known_names = {"kind": tuple(KINDS), "compat": WAYS, "crop": CROPS, "padding": PADDING, "precision": PRECISIONS}
        for name, known in known_names.items():
            if getattr(self, name) not in known:
                raise ValueError(f"Recipe: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        for name in ("epochs", "updates", "evaluations", "batch", "copy", "load", "side", "grid", "train_images"):
            value = getattr(self, name)
            if name in ("updates", "copy", "train_images") and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"Recipe: {name} must be a whole number of at least 1, got {value!r}")
        for name in ("lr_backbone", "lr_head", "weight_decay"):
            value = getattr(self, name)
            if not (_finite(value) and value >= 0):
                raise ValueError(f"Recipe: {name} must be a number of at least 0, got {value!r}")
        for name, highest in (("scale", 1.0), ("ratio", math.inf)):
            value = getattr(self, name)
            pair = isinstance(value, tuple) and len(value) == 2 and all(map(_finite, value))
            if not (pair and 0 < value[0] <= value[1] <= highest):
                bounds = "0 < low <= high" + (" <= 1" if name == "scale" else "")
                raise ValueError(f"Recipe: {name} must be a pair (low, high) with {bounds}, got {value!r}")
        check_fallback("Recipe", self.fallback)
        if self.crop == "random" and self.load < self.side:
            raise ValueError(f"Recipe: a picture of load={self.load} px holds no crop of side={self.side} px")

    @property
    def method(self) -> str:
        """The name in rows and tables; a capped recipe says its updates."""
        name = KINDS[self.kind]
        return name if self.updates is None else f"{name} ({self.updates:,} updates)"


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def recipe(kind: str, block: str, compat: str) -> Recipe:
    """Return the recipe of Tables 3 and 5 for a block of their columns.

    ``compat="reference"`` gives what each published block was trained with. ``whole``, ``random``: images resized to
    256 px, random 224 px crops; ``whole``, ``lco``: crops of area 0.6 to 1 of JPEG copies at 256 px; both flipped,
    learning rate 1e-4, five epochs, batches of 64 (ConvNeXt-B and Florence-2: ``replace(batch=32)``). ``pipeline``:
    frames per batch 32; learning rates of backbone and head 1e-5 and 1e-3 for five epochs (``random``), 1e-4 and 1e-2
    for six (``lco``).

    ``compat="corrected"`` gives one recipe for both blocks, that of the published ``lco`` block with the corrected
    front-end: the claim under test is about held-out combinations, so their block stays as it was trained and the
    in-distribution block, which has to show that this training fits, follows it. For whole images that block is also
    the better one: its crops cover the magnification at which it is evaluated.

    Args:
        kind: ``whole`` or ``pipeline``.
        block: ``random`` (in distribution) or ``lco`` (held-out combinations).
        compat: ``corrected`` or ``reference``.

    Raises:
        ValueError: an unknown kind, block or way.
    """
    for name, value, known in (("kind", kind, tuple(KINDS)), ("block", block, BLOCKS)):
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
    published = "lco" if choice("finetuning_recipe", compat) == "one" else block
    fallback = "never" if choice("missing_positives", compat) == "never" else 0.01
    common = {"kind": kind, "compat": compat, "fallback": fallback}
    if kind == "whole":
        inputs = {"copy": 256, "crop": "resized"} if published == "lco" else {"crop": "random"}
        return Recipe(**common, **inputs)
    rates = {"lr_backbone": 1e-4, "lr_head": 1e-2, "epochs": 6}
    if published == "random":
        rates = {"lr_backbone": 1e-5, "lr_head": 1e-3, "epochs": 5}
    return Recipe(**common, **rates, batch=32, load=224, padding=choice("illumination", compat))


def capped(recipe: Recipe, limits: Limits) -> Recipe:
    """Return the recipe at the size that the caps of a profile allow; without caps, the recipe itself.

    The side of the network's input shrinks, and with it, for random crops, the picture that they are cut from. Learning
    rates that the caps leave open are the recipe's own.
    """
    caps = limits.finetune_whole if recipe.kind == "whole" else limits.finetune_pipeline
    if caps is None:
        return recipe
    values = {name: value for name, value in vars(caps).items() if value is not None}
    if recipe.crop == "random":
        values["load"] = round(recipe.load * caps.side / recipe.side)
    return replace(recipe, **values)
