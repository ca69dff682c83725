"""Species by name: the image feature against the text features of each class; for encoders with a text tower."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.siblings.bioeval.protocol import summary
from phoebi_lib.siblings.tables import require
from phoebi_lib.siblings.vectors import unit

# a column "class" holds the label, so the rank of that name is called cls
RANKS = ("kingdom", "phylum", "cls", "order", "family", "genus", "species")
FORMS = ("asis", "scientific", "taxonomic", "common", "scientific+common", "taxonomic+common")
# of cosines; those that differ by less are equal but for rounding
_ROUNDING = 1e-12


def class_names(table: pd.DataFrame, form: str = "asis") -> pd.Series:
    """Return the name of each row's class, as prompts take it.

    ``asis``: column ``class``; ``scientific``: genus and species; ``taxonomic``: the ranks from kingdom to species that
    the table has, joined by blanks; ``common``: column ``common_name``; ``a+common``: "a with common name common".
    BioCLIP 2 takes ``taxonomic+common`` for camera traps and rare species, ``asis`` elsewhere.

    Raises:
        ValueError: unknown form, a column that it needs is not there, or a cell of it that is no text.
    """
    check_choice("class_names", "form", form, FORMS)
    if form.endswith("+common"):
        return class_names(table, form.partition("+")[0]) + " with common name " + class_names(table, "common")
    ranks = [rank for rank in RANKS if rank in table or rank in RANKS[-2:]]
    columns = {"asis": ["class"], "common": ["common_name"], "scientific": list(RANKS[-2:]), "taxonomic": ranks}[form]
    cells = require(table, columns, f"names of the form {form!r}")[columns]
    if (bad := ~cells.map(lambda cell: isinstance(cell, str)).all(axis=1).to_numpy()).any():
        raise ValueError(f"names of the form {form!r}: data row {bad.argmax() + 1} has {cells[bad].iloc[0].to_dict()}; "
                         "expected texts")  # fmt: skip
    return cells.agg(" ".join, axis=1)


def class_text(prompts: ArrayLike) -> np.ndarray:
    """Return one text feature per class, (C, D) of unit norm: the mean over prompts of features normed before.

    ``prompts`` is (C, P, D), each class in P prompts (80 of ImageNet in the published code). Raises ValueError for
    another shape or values that are not finite.
    """
    prompts = np.asarray(prompts, np.float64)
    if prompts.ndim != 3:
        raise ValueError(f"prompts must have shape (classes, prompts, D); got shape {prompts.shape}")
    return unit([unit(one).mean(axis=0) for one in prompts])


def zero_shot(images: ArrayLike, labels: ArrayLike, text: ArrayLike, task: str = "zero-shot") -> pd.DataFrame:
    """Return Top-1, Top-3 and Top-5 accuracy, 0..1, with the ``k`` used: no more than there are classes.

    The published logit is exp(logit scale) times the cosine; the scale is positive and changes no rank. Ties, up to
    rounding, go to the class that comes first.

    Args:
        images: (N, D) features, raw or of unit norm.
        labels: (N,) positions of the true classes in ``text``.
        text: (C, D), from :func:`class_text`.

    Raises:
        ValueError: no image, shapes that do not fit, features not finite, or a label that is no whole number in 0..C-1.
    """
    images, labels, text = unit(images), np.asarray(labels), unit(text)
    if labels.shape != images.shape[:1] or images.shape[1] != text.shape[1]:
        raise ValueError(f"images {images.shape}, labels {labels.shape} and text {text.shape} do not fit together")
    if (bad := labels[~np.isin(labels, range(len(text)))] if labels.dtype.kind in "iu" else labels).size:
        raise ValueError(f"expected labels from 0 to {len(text) - 1}, whole numbers; got {bad[:5].tolist()}")
    cosine = images @ text.T
    lead = cosine - cosine[np.arange(len(labels)), labels][:, None]
    first = np.arange(len(text)) < labels[:, None]
    ranks = ((lead > _ROUNDING) | (first & (lead >= -_ROUNDING))).sum(axis=1)
    table = summary(task, [("paper", f"Top-{k}", (ranks < k).mean(), len(images)) for k in (1, 3, 5)])
    return table.assign(k=[min(k, len(text)) for k in (1, 3, 5)])
