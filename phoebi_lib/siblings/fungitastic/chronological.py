"""The chronological task (P5): pictures in the order of their days; predict a day, then adapt, never the reverse.

The paper gives the rule, at time t everything earlier may be used, and neither baselines nor numbers; the adapters
below are ours. All start from class means of unit features and answer ``softmax(scale * cosine)``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.metrics.pairwise import cosine_similarity

from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.siblings.fungitastic.layout import Split, dates
from phoebi_lib.siblings.fungitastic.metrics import macro_f1
from phoebi_lib.siblings.vectors import class_means, unit

#: Adapter -> whether it is told the labels of earlier pictures.
ADAPTERS = {"none": False, "prior": False, "drift": False, "online": True}
_EM_ROUNDS, _FORGETTING, _MOMENTUM, _CONFIDENCE = 20, 0.99, 0.99, 0.9


def by_day(part: Split) -> pd.DataFrame:
    """Return ``filename, observationID, day, label`` in the order of days; the index is the row in ``part``.

    Within a day rows go by observation, then by file name; those without a date come last.
    """
    rows = part.table[["filename", "observationID"]].assign(day=dates(part.table), label=part.y).reset_index(drop=True)
    return rows.sort_values(["day", "observationID", "filename"], na_position="last")


def chronological(train: Split, test: Split, n_classes: int, adapter: str, scale: float = 100.0) -> pd.DataFrame:
    """Return a row per image, by day: ``filename, day, label, predicted, confidence, adapter, uses_labels``.

    Args:
        train, test: what the prototypes start from, and what is answered.
        adapter: ``none``; ``prior``: p(c|x) share(c) / training share(c), shares re-estimated by EM, the weight of an
            image falling to 0.99 with each later one; ``drift``: the predicted class's prototype moves by 0.01 towards
            a feature whose largest probability is at least 0.9; ``online``: each class mean takes in the pictures of
            past days by their true labels, unknown ones left out.
        scale: of the cosines inside the softmax; 1 / temperature fitted on validation makes it calibrated.

    Raises ValueError for an unknown adapter.
    """
    check_choice("chronological", "adapter", adapter, tuple(ADAPTERS))
    prototypes = class_means(unit(train.X), train.y, n_classes)
    counts = np.bincount(train.y, minlength=n_classes).astype(np.float64)
    start = share = counts / counts.sum()
    memory = share / (1 - _FORGETTING)
    rows = by_day(test)
    X, y = unit(test.X)[rows.index], rows["label"].to_numpy()
    predicted, top = np.zeros(len(X), dtype=np.int64), np.zeros(len(X))
    for day in rows.groupby("day", dropna=False, sort=False).indices.values():
        p = softmax(scale * cosine_similarity(X[day], prototypes), axis=1)
        answers = _reweighted(p, share, start)
        predicted[day], top[day] = answers.argmax(axis=1), answers.max(axis=1)
        if adapter == "prior":
            memory = memory * _FORGETTING ** len(day)
            for _ in range(_EM_ROUNDS):
                total = memory + _reweighted(p, share, start).sum(axis=0)
                share = total / total.sum()
            memory = total
        elif adapter == "drift":
            for i in day[top[day] >= _CONFIDENCE]:
                prototypes[predicted[i]] = _MOMENTUM * prototypes[predicted[i]] + (1 - _MOMENTUM) * X[i]
        elif adapter == "online":
            for i in day[(y[day] >= 0) & (y[day] < n_classes)]:
                counts[y[i]] += 1
                prototypes[y[i]] += (X[i] - prototypes[y[i]]) / counts[y[i]]
    found = {"predicted": predicted, "confidence": top, "adapter": adapter, "uses_labels": ADAPTERS[adapter]}
    return rows.drop(columns="observationID").assign(**found).reset_index(drop=True)


def _reweighted(p: np.ndarray, share: np.ndarray, start: np.ndarray) -> np.ndarray:
    # a class without a training row has no share to compare with and keeps its probability
    weighted = p * np.divide(share, start, out=np.ones_like(start), where=start > 0)
    return weighted / weighted.sum(axis=1, keepdims=True)


def summarise(result: pd.DataFrame, frozen: pd.DataFrame, n_classes: int) -> dict[str, object]:
    """Return ``top1, macro_f1, gain_top1, gain_macro_f1, uses_labels, n_images``; gains are over ``frozen``."""
    (top1, f1), (top1_frozen, f1_frozen) = (
        ((its["label"] == its["predicted"]).mean(), macro_f1(its["label"], its["predicted"], n_classes))
        for its in (result, frozen)
    )
    return {"top1": top1, "macro_f1": f1, "gain_top1": top1 - top1_frozen, "gain_macro_f1": f1 - f1_frozen,
            "uses_labels": bool(result["uses_labels"].iloc[0]), "n_images": len(result)}  # fmt: skip


def by_month(result: pd.DataFrame) -> pd.DataFrame:
    """Return ``month, top1, n_images`` in the order of months; pictures without a date come last as "no date"."""
    months = result["day"].dt.strftime("%Y-%m").fillna("no date").rename("month")
    return (result["label"] == result["predicted"]).groupby(months).agg(top1="mean", n_images="size").reset_index()
