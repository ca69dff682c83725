"""FishNet and AwA2: many yes/no labels from a small head on frozen features."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from phoebi_lib import workspace
from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.metrics import exact_match, macro_f1, per_class_f1
from phoebi_lib.siblings.bioeval.layout import LABELS
from phoebi_lib.siblings.bioeval.protocol import splits, summary
from phoebi_lib.siblings.vectors import finite

#: The published training of both heads, beside its rate: images a batch, epochs, hidden units, share dropped.
BATCH, EPOCHS, HIDDEN, DROPOUT = 256, 50, 512, 0.5
#: How a logit becomes a label: (threshold that it must exceed, whether dropout is left on).
SCORING = {"paper": (0.0, False), "reference_code": (0.5, True)}
#: Fewer updates than these are taken for a set too small for the published epochs; ours makes them at this rate.
UPDATES, FITTING_RATE = 300, 1e-4


def fit_head(X: np.ndarray, Y: np.ndarray, rate: float, epochs: int = EPOCHS, seed: int = 0) -> torch.nn.Sequential:
    """Return the head Linear-Dropout-Linear, without a non-linearity, trained on features (N, D), labels (N, K) 0/1.

    Adam at ``rate``, which is halved after every two fifths of the epochs (20 of the published 50); no validation, the
    last epoch counts. Raises ValueError for features that are not finite.
    """
    device = workspace.device()
    X, Y = (torch.tensor(values, dtype=torch.float32, device=device) for values in (finite(X), Y))
    # the weights, the batches and the dropout come from the seed; the caller's generators stay as they are
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = torch.nn.Sequential(torch.nn.Linear(X.shape[1], HIDDEN), torch.nn.Dropout(DROPOUT),
                                   torch.nn.Linear(HIDDEN, Y.shape[1])).to(device)  # fmt: skip
        optimiser = torch.optim.Adam(head.parameters(), lr=rate)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, max(1, 2 * epochs // 5), 0.5)
        for _ in range(epochs):
            for rows in torch.randperm(len(X)).to(device).split(BATCH):
                optimiser.zero_grad()
                torch.nn.functional.binary_cross_entropy_with_logits(head(X[rows]), Y[rows]).backward()
                optimiser.step()
            schedule.step()
    return head.eval()


def predict(head: torch.nn.Sequential, X: np.ndarray, variant: str = "paper", seed: int = 0) -> np.ndarray:
    """Return the labels (N, K), 0/1, of features (N, D).

    ``paper``: a label is present where its logit exceeds 0, that is probability 0.5. ``reference_code``: where it
    exceeds 0.5 (probability 0.62), with dropout left on, drawn from ``seed``. Raises as :func:`fit_head`.
    """
    threshold, dropout = SCORING[variant]
    X = torch.tensor(finite(X), dtype=torch.float32, device=next(head.parameters()).device)
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(seed)
        logits = head.train(dropout)(X).cpu().numpy()
    head.eval()
    return (logits > threshold).astype(np.int64)


def fishnet_scores(Y: np.ndarray, P: np.ndarray) -> dict[str, float]:
    """Return FishNet's metrics, 0..1, of labels and predictions (N, 9); all but the first are secondary."""
    each = (Y == P).mean(axis=0)
    return {"all nine right": exact_match(Y, P), "macro-F1 of the labels": macro_f1(Y, P),
            "label accuracy, mean": each.mean(),
            **{f"label accuracy, {name}": value for name, value in zip(LABELS, each, strict=True)}}  # fmt: skip


def awa2_scores(Y: np.ndarray, P: np.ndarray) -> dict[str, float]:
    """Return AwA2's metrics, 0..1, of labels and predictions (N, K attributes).

    An attribute that occurs neither in truth nor in prediction scores 0, so the mean over all of them has a ceiling:
    the share of attributes with a positive test image. The published code averages the ``first two attributes`` only.
    """
    each, present = per_class_f1(Y, P), Y.any(axis=0)
    return {"macro-F1": each.mean(), "ceiling of macro-F1": present.mean(),
            "macro-F1, present attributes": each[present].mean() if present.any() else float("nan"),
            "F1, first two attributes": each[:2].mean()}  # fmt: skip


#: Of each task the published rate, the metrics, and the one that tells on training images whether a head is fitted.
TASKS = {"FishNet": (1e-4, fishnet_scores, "all nine right"),
         "AwA2": (1e-5, awa2_scores, "macro-F1, present attributes")}  # fmt: skip


def labels_of(task: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the label columns of a table of :mod:`~phoebi_lib.siblings.bioeval.layout`, in their published order."""
    return table[list(LABELS if task == "FishNet" else table.attrs["attributes"])]


def many_labels(task: str, table: pd.DataFrame, features: pd.DataFrame, *, fitted: bool = False, runs: int = 3,
                seed: int = 0) -> pd.DataFrame:  # fmt: skip
    """Return the results of FishNet or AwA2, one line per variant and metric, over ``runs`` heads.

    AwA2's ``reference_code`` has a third defect, see :func:`awa2_scores`.

    Args:
        task: FishNet or AwA2.
        table: from :mod:`~phoebi_lib.siblings.bioeval.layout`.
        features: raw, indexed by path.
        fitted: where the published epochs are fewer than ``UPDATES`` updates, as many epochs as that, without the
            published defects: variant ``ours``.
        runs: heads with seeds from ``seed`` on.

    Raises:
        ValueError: an unknown task, no train or test image, or features missing, given twice or not finite.
    """
    check_choice("many_labels", "task", task, tuple(TASKS))
    rate, scores, fit = TASKS[task]
    (train, X), (test, Z) = splits(table, features, task)
    Y, truth = (labels_of(task, rows).to_numpy() for rows in (train, test))
    epochs, batches = EPOCHS, -(-len(X) // BATCH)
    if longer := fitted and epochs * batches < UPDATES:
        rate, epochs = FITTING_RATE, UPDATES
    records = []
    for run in range(seed, seed + runs):
        head = fit_head(X, Y, rate, epochs, run)
        for variant in SCORING:
            for metric, value in scores(truth, predict(head, Z, variant, run)).items():
                records.append((variant, metric, value, len(Z)))
        records.append(("paper", f"{fit}, training images", scores(Y, predict(head, X))[fit], len(X)))
    lines = summary(task, records, updates=epochs * batches)
    if task == "AwA2":
        # the mean of two columns is the published code's score, and the mean over all is not
        two = lines["metric"] == "F1, first two attributes"
        lines = lines[two == (lines["variant"] == "reference_code")].reset_index(drop=True)
        lines = lines.assign(lists=table["lists"].iloc[0])
    return lines[lines["variant"] == "paper"].assign(variant="ours") if longer else lines
