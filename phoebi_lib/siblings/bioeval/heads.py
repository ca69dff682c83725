"""FishNet and AwA2: many yes/no labels from a small head on frozen features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from phoebi_lib import workspace
from phoebi_lib.metrics import exact_match, macro_f1, per_class_f1
from phoebi_lib.siblings.bioeval.folders import Animals
from phoebi_lib.siblings.bioeval.layout import LABELS
from phoebi_lib.siblings.bioeval.results import result
from phoebi_lib.siblings.embedding import features_of

#: How a logit becomes a label: (threshold that it must exceed, whether dropout is left on).
SCORING = {"paper": (0.0, False), "reference_code": (0.5, True)}
#: Fewer updates than these are taken for a set too small for the published epochs.
UPDATES = 300


@dataclass(frozen=True)
class Recipe:
    """How a head is trained; the defaults are the published ones. Adam, and no validation: the last epoch counts."""

    learning_rate: float
    epochs: int = 50
    batch_size: int = 256
    #: epochs after which the learning rate is halved, again and again
    halve_every: int = 20
    hidden: int = 512
    dropout: float = 0.5

    def updates(self, n_images: int) -> int:
        """Return the number of updates made with ``n_images`` training images."""
        return self.epochs * -(-n_images // self.batch_size)

    def fitting(self, n_images: int) -> Recipe:
        """Return this recipe, or for few images ours of ``UPDATES`` updates at 1e-4, which fits a fixture."""
        if self.updates(n_images) >= UPDATES:
            return self
        return replace(self, learning_rate=1e-4, epochs=UPDATES, halve_every=2 * UPDATES // 5)


FISHNET, AWA2 = Recipe(learning_rate=1e-4), Recipe(learning_rate=1e-5)


def fit_head(X: np.ndarray, Y: np.ndarray, recipe: Recipe, seed: int = 0) -> torch.nn.Sequential:
    """Return the head Linear-Dropout-Linear, without a non-linearity, trained on features (N, D), labels (N, K) 0/1."""
    device = workspace.device()
    X, Y = (torch.tensor(values, dtype=torch.float32, device=device) for values in (X, Y))
    # the weights, the batches and the dropout come from the seed; the caller's generators stay as they are
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = torch.nn.Sequential(torch.nn.Linear(X.shape[1], recipe.hidden), torch.nn.Dropout(recipe.dropout),
                                   torch.nn.Linear(recipe.hidden, Y.shape[1])).to(device)  # fmt: skip
        optimiser = torch.optim.Adam(head.parameters(), lr=recipe.learning_rate)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, recipe.halve_every, 0.5)
        for _ in range(recipe.epochs):
            for rows in torch.randperm(len(X)).to(device).split(recipe.batch_size):
                optimiser.zero_grad()
                torch.nn.functional.binary_cross_entropy_with_logits(head(X[rows]), Y[rows]).backward()
                optimiser.step()
            schedule.step()
    return head.eval()


def predict(head: torch.nn.Sequential, X: np.ndarray, variant: str = "paper", seed: int = 0) -> np.ndarray:
    """Return the labels (N, K), 0/1, of features (N, D).

    ``paper``: a label is present where its logit exceeds 0, that is probability 0.5. ``reference_code``: where it
    exceeds 0.5 (probability 0.62), with dropout left on, drawn from ``seed``.
    """
    threshold, dropout = SCORING[variant]
    X = torch.tensor(X, dtype=torch.float32, device=next(head.parameters()).device)
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(seed)
        logits = head.train(dropout)(X).cpu().numpy()
    head.eval()
    return (logits > threshold).astype(np.int64)


def fishnet_scores(Y: np.ndarray, P: np.ndarray) -> dict[str, float]:
    """Return FishNet's metrics, 0..1, of labels and predictions (N, 9); all but the first are secondary."""
    each = (Y == P).mean(axis=0)
    return {"all nine right": exact_match(Y, P), "macro-F1 of the labels": macro_f1(Y, P),
            "label accuracy, mean": float(each.mean()),
            **{f"label accuracy, {name}": float(value) for name, value in zip(LABELS, each, strict=True)}}  # fmt: skip


def awa2_scores(Y: np.ndarray, P: np.ndarray) -> dict[str, float]:
    """Return AwA2's metrics, 0..1, of labels and predictions (N, K attributes).

    An attribute that occurs neither in truth nor in prediction scores 0, so the mean over all of them has a ceiling:
    the share of attributes with a positive test image. The published code averages the ``first two attributes`` only.
    """
    each, present = per_class_f1(Y, P), Y.any(axis=0)
    return {"macro-F1": float(each.mean()), "ceiling of macro-F1": float(present.mean()),
            "macro-F1, present attributes": float(each[present].mean()) if present.any() else float("nan"),
            "F1, first two attributes": float(each[:2].mean())}  # fmt: skip


def fishnet(table: pd.DataFrame, features: pd.DataFrame, recipe: Recipe = FISHNET, *, runs: int = 3,
            seed: int = 0) -> pd.DataFrame:  # fmt: skip
    """Return FishNet's results, one line per variant and metric, over ``runs`` heads with seeds from ``seed`` on.

    Args:
        table: from :func:`~phoebi_lib.siblings.bioeval.layout.fishnet`.
        features: raw, indexed by path.
        recipe: how the head is trained.

    Raises:
        ValueError: no train or test image, or features missing, given twice or not finite.
    """
    return _protocol("FishNet", table, features, LABELS, recipe, fishnet_scores, "all nine right", runs, seed)


def awa2(animals: Animals, features: pd.DataFrame, recipe: Recipe = AWA2, *, runs: int = 3,
         seed: int = 0) -> pd.DataFrame:  # fmt: skip
    """Return AwA2's results, as :func:`fishnet`; its ``reference_code`` has a third defect, see :func:`awa2_scores`."""
    lines = _protocol("AwA2", animals.table, features, animals.attributes, recipe, awa2_scores,
                      "macro-F1, present attributes", runs, seed)  # fmt: skip
    # the mean of two columns is the published code's score, and the mean over all is not
    two = lines["metric"].str.startswith("F1, first two")
    return lines[two == (lines["variant"] == "reference_code")].assign(split=animals.split).reset_index(drop=True)


def _protocol(task, table, features, labels: Sequence[str], recipe, score, fit: str, runs, seed) -> pd.DataFrame:
    """Train and score the heads; ``fit`` names the metric that tells on training images whether a head is fitted."""
    data = {}
    for split in ("train", "test"):
        rows = table[table["split"] == split]
        if rows.empty:
            raise ValueError(f"{task}: no {split} image; the protocol needs both splits")
        data[split] = features_of(features, rows["path"].tolist(), task), rows[list(labels)].to_numpy(np.int64)
    scored: dict[tuple[str, str], list[float]] = {}
    for run in range(seed, seed + runs):
        head = fit_head(*data["train"], recipe, run)
        for variant in SCORING:
            X, Y = data["test"]
            for metric, value in score(Y, predict(head, X, variant, run)).items():
                scored.setdefault((variant, metric), []).append(value)
        X, Y = data["train"]
        scored.setdefault(("paper", f"{fit}, training images"), []).append(score(Y, predict(head, X))[fit])
    sizes, updates = {split: len(X) for split, (X, _) in data.items()}, recipe.updates(len(data["train"][0]))
    return pd.DataFrame([
        result(task, variant, metric, values, sizes["train" if metric.endswith("training images") else "test"],
               updates=updates) for (variant, metric), values in scored.items()
    ])  # fmt: skip
