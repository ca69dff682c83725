"""The chronological task (P5): pictures in the order of their days; predict a day, then adapt, never the reverse.

The paper gives the rule, at time t everything earlier may be used, and neither baselines nor numbers; the adapters
below are ours. All start from class means of unit features and answer ``softmax(scale * cosine)``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import softmax

from phoebi_lib.siblings.fungitastic.baselines import centroid_scores, class_means, prepare
from phoebi_lib.siblings.fungitastic.layout import dates, labels
from phoebi_lib.siblings.fungitastic.metrics import macro_f1

#: Adapter -> whether it is told the labels of earlier pictures.
ADAPTERS = {"none": False, "prior": False, "drift": False, "online": True}
_EM_ROUNDS = 20


def batches(table: pd.DataFrame) -> tuple[list[np.ndarray], int]:
    """Return the rows of each day in the order of days, and how many rows have no date: they are the last batch.

    Within a day rows go by observation, then by file name.
    """
    days = dates(table)
    keys = pd.DataFrame({"day": days.to_numpy(), "observation": table["observationID"].to_numpy(),
                         "name": table["filename"].to_numpy()})  # fmt: skip
    order = keys.sort_values(["day", "observation", "name"], na_position="last").index.to_numpy()
    grouped = keys.loc[order].groupby("day", dropna=False, sort=False).indices
    return [order[rows] for rows in grouped.values()], int(days.isna().sum())


def chronological(
    train: tuple[np.ndarray, np.ndarray], table: pd.DataFrame, X: np.ndarray, n_classes: int, adapter: str, *,
    scale: float = 100.0, momentum: float = 0.99, confidence: float = 0.9, forgetting: float = 0.99,
) -> pd.DataFrame:  # fmt: skip
    """Return a row per image, by day: ``filename, day, label, predicted, confidence, adapter, uses_labels``.

    Args:
        train: features (M, D) and labels (M,) of training.
        table, X: the test rows and their features (N, D), in one order.
        adapter: ``none``; ``prior``: p(c|x) share(c) / training share(c), shares re-estimated by EM, the weight of an
            image falling by ``forgetting`` with each later one; ``drift``: the predicted class's prototype moves by
            1 - ``momentum`` towards a feature whose largest probability is at least ``confidence``; ``online``: each
            class mean takes in the pictures of past days by their true labels, unknown ones left out.
        scale: of the cosines inside the softmax; 1 / temperature fitted on validation makes it calibrated.

    Raises ValueError for an unknown adapter or a setting out of range.
    """
    if adapter not in ADAPTERS:
        raise ValueError(f"unknown adapter {adapter!r}; known: {', '.join(ADAPTERS)}")
    if not (scale > 0 and 0 <= momentum <= 1 and 0 <= confidence <= 1 and 0 < forgetting < 1):
        raise ValueError("expected scale > 0, momentum and confidence in 0..1, forgetting between 0 and 1")
    X_train, y_train = prepare(train[0]), np.asarray(train[1])
    X, y = prepare(X), labels(table)
    counts = np.bincount(y_train, minlength=n_classes).astype(np.float64)
    prototypes, share = class_means(X_train, y_train, n_classes), counts / counts.sum()
    start, memory = share, share / (1 - forgetting)
    parts = []
    for rows in batches(table)[0]:
        p = softmax(scale * centroid_scores(prototypes, X[rows]), axis=1)
        if adapter == "prior":
            answers = _reweighted(p, share, start)
            memory, share = _em(p, start, share, memory * forgetting ** len(rows))
        else:
            answers = p
        predicted, top = answers.argmax(axis=1), answers.max(axis=1)
        parts.append(pd.DataFrame({"row": rows, "predicted": predicted, "confidence": top}))
        if adapter == "drift":
            for x, c in zip(X[rows][top >= confidence], predicted[top >= confidence], strict=True):
                prototypes[c] = momentum * prototypes[c] + (1 - momentum) * x
        elif adapter == "online":
            for x, c in zip(X[rows], y[rows], strict=True):
                if 0 <= c < n_classes:
                    counts[c] += 1
                    prototypes[c] += (x - prototypes[c]) / counts[c]
    result = pd.concat(parts, ignore_index=True)
    rows = result.pop("row").to_numpy()
    result.insert(0, "filename", table["filename"].to_numpy()[rows])
    result.insert(1, "day", dates(table).to_numpy()[rows])
    result.insert(2, "label", y[rows])
    return result.assign(adapter=adapter, uses_labels=ADAPTERS[adapter])


def _reweighted(p: np.ndarray, share: np.ndarray, start: np.ndarray) -> np.ndarray:
    # a class without a training row has no share to compare with and keeps its probability
    weighted = p * np.divide(share, start, out=np.ones_like(start), where=start > 0)
    return weighted / weighted.sum(axis=1, keepdims=True)


def _em(p: np.ndarray, start: np.ndarray, share: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    for _ in range(_EM_ROUNDS):
        total = memory + _reweighted(p, share, start).sum(axis=0)
        share = total / total.sum()
    return total, share


def summarise(result: pd.DataFrame, frozen: pd.DataFrame, n_classes: int) -> dict[str, object]:
    """Return ``top1, macro_f1, gain_top1, gain_macro_f1, uses_labels, n_images``; gains are over ``frozen``."""
    values = [[(part["label"] == part["predicted"]).mean(), macro_f1(part["label"], part["predicted"], n_classes)]
              for part in (result, frozen)]  # fmt: skip
    (top1, f1), (top1_frozen, f1_frozen) = values
    return {"top1": top1, "macro_f1": f1, "gain_top1": top1 - top1_frozen, "gain_macro_f1": f1 - f1_frozen,
            "uses_labels": bool(result["uses_labels"].iloc[0]), "n_images": len(result)}  # fmt: skip


def by_month(result: pd.DataFrame) -> pd.DataFrame:
    """Return ``month, top1, n_images`` in the order of months; pictures without a date come last as "no date"."""
    months = result["day"].dt.strftime("%Y-%m").fillna("no date").rename("month")
    return (result["label"] == result["predicted"]).groupby(months).agg(top1="mean", n_images="size").reset_index()
