"""FungiTastic's baselines: nearest neighbour, linear probe, open-set scores, priors from metadata, captions, floors.

Features are (N, D), rows in the order of their labels. All scores are higher for the likelier class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.pipeline import make_pipeline

from phoebi_lib import workspace
from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.decoders.training import minimise
from phoebi_lib.siblings.fungitastic.layout import Split, column
from phoebi_lib.siblings.fungitastic.metrics import row_labels
from phoebi_lib.siblings.vectors import finite, unit

#: What the paper's Table 5 combines, by its letters.
ATTRIBUTES = {"H": "habitat", "M": "month", "S": "substrate", "MS": "metaSubstrate"}
SETS = ("H", "M", "S", "MS", "H+M", "H+S", "H+MS", "M+S", "M+MS", "H+M+S", "H+M+MS")

_EPOCHS, _BATCH = 30, 64
# of features; Adam squares gradients, in float32
_LARGEST = 1e18


def as_bytes(X: ArrayLike) -> np.ndarray:
    """Return rows of unit norm as the reference stores them, ``q = floor((e + 1) 127.5)``, read as ``q / 255 2 - 1``.

    Raises ValueError as :func:`~phoebi_lib.siblings.vectors.finite`.
    """
    return np.floor((unit(X) + 1) * 127.5).clip(0, 255) / 255 * 2 - 1


def nearest_neighbour(X_train: np.ndarray, y_train: ArrayLike, X: np.ndarray) -> np.ndarray:
    """Return the label of the training row with the largest inner product, (N,); the lowest label among equals."""
    if len(y_train) != len(X_train):
        raise ValueError(f"nearest_neighbour: expected a label for each of {len(X_train)} rows, got {len(y_train)}")
    order = np.argsort(y_train, kind="stable")
    bank, y_train = X_train[order], np.asarray(y_train)[order]
    # block by block: all inner products of a large test set would fill the memory
    return np.concatenate([y_train[(X[i : i + 1024] @ bank.T).argmax(axis=1)] for i in range(0, len(X), 1024)])


@dataclass
class LinearProbe:
    """One linear layer, cross-entropy, Adam, 30 epochs of batches of 64; the paper's open-set probe, its last epoch.

    Parameters
    ----------
    learning_rate : as published.
    min_updates : go on for whole epochs until there were so many steps; 30 epochs of a few images are hardly any.
    seed : of initial weights and order of rows.

    Learned: ``weight_`` (C, D), ``bias_`` (C,), ``updates_``.
    """

    learning_rate: float = 1e-4
    min_updates: int = 0
    seed: int = 0

    def fit(self, X: ArrayLike, y: ArrayLike, n_classes: int) -> LinearProbe:
        """Train on labels 0..C-1. Raises ValueError for features beyond 1e18 or not finite, or another label."""
        X, y = finite(X), row_labels(X, y, n_classes)
        if (largest := np.abs(X).max()) > _LARGEST:
            raise ValueError(f"LinearProbe: features must lie within {_LARGEST:g}, found {largest:g}; scale them")
        rows = torch.from_numpy(X.astype(np.float32)).to(workspace.device())
        labels = torch.tensor(y, dtype=torch.int64, device=rows.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            layer = torch.nn.Linear(rows.shape[1], n_classes).to(rows.device)

        def gradient(batch: torch.Tensor, index: torch.Tensor | slice) -> torch.Tensor:
            loss = torch.nn.functional.cross_entropy(layer(batch), labels[index])
            loss.backward()
            return loss.detach()

        epochs = max(_EPOCHS, math.ceil(self.min_updates / math.ceil(len(rows) / _BATCH)))
        training = {"batch": _BATCH, "epochs": epochs, "updates": None, "seed": self.seed}
        optimiser = torch.optim.Adam(layer.parameters(), lr=self.learning_rate)
        _, self.updates_ = minimise(rows, gradient, optimiser, **training)
        self.weight_, self.bias_ = (values.detach().cpu().double().numpy() for values in layer.parameters())
        return self

    def logits(self, X: ArrayLike) -> np.ndarray:
        """Return (N, C) float64. Raises ValueError for features that are not finite."""
        return finite(X) @ self.weight_.T + self.bias_


def open_scores(logits: np.ndarray, X: np.ndarray, means: np.ndarray) -> dict[str, np.ndarray]:
    """Return the three published scores of how known an image is, (N,), higher = more likely known.

    ``MSP`` largest softmax probability; ``MLS`` largest logit; ``NM`` minus the Euclidean distance of the raw feature
    to the nearest class mean.
    """
    distance = pairwise_distances_argmin_min(X, means)[1]
    return {"MSP": softmax(logits, axis=1).max(axis=1), "MLS": logits.max(axis=1), "NM": -distance}


def floor_scores(y_train: ArrayLike, n_images: int, n_classes: int, kind: str, seed: int = 0) -> np.ndarray:
    """Return scores (N, C) that see no picture: training frequencies (``majority``) or uniform draws (``random``)."""
    check_choice("floor_scores", "kind", kind, ("majority", "random"))
    if kind == "random":
        return np.random.default_rng(seed).random((n_images, n_classes))
    counts = np.bincount(y_train, minlength=n_classes).astype(np.float64)
    return np.broadcast_to(counts, (n_images, n_classes))


def prior_factor(train_values: pd.Series, y_train: np.ndarray, values: pd.Series, n_classes: int) -> np.ndarray:
    """Return ``p(c|a) / p(c)`` of each row's attribute value, (N, C), by counting training rows.

    A value without a training row, or none, gives 1; so does a class without one. ValueError for no training row.
    """
    if not len(y_train):
        raise ValueError("prior_factor needs training rows to count, got 0")
    counts = pd.crosstab(train_values.to_numpy(), y_train).reindex(columns=range(n_classes), fill_value=0)
    given = counts.div(counts.sum(axis=1), axis=0).reindex(values.to_numpy())
    return (given / (np.bincount(y_train, minlength=n_classes) / len(y_train))).fillna(1.0).to_numpy()


def metadata_prior(train: Split, test: Split, p: np.ndarray, attributes: str, variant: str = "ours") -> np.ndarray:
    """Return probabilities (N, C) of the test rows weighted by a set of attributes such as "H+M"; rows sum to 1.

    ``ours``: ``p(c|x) prod_a p(c|a)/p(c)``. ``reference_code`` multiplies by ``p(c|x)`` once more for each attribute.
    A row in which every class is ruled out keeps its probabilities.

    Raises ValueError for an unknown attribute, variant or a missing column.
    """
    check_choice("metadata_prior", "variant", variant, ("ours", "reference_code"))
    letters = attributes.split("+")
    # a softmax of logarithms: powers of small probabilities would vanish
    power = 1 + len(letters) if variant == "reference_code" else 1
    weighted = softmax(power * np.log(np.maximum(p, np.finfo(float).tiny)), axis=1)
    for letter in letters:
        check_choice("metadata_prior", "attributes", letter, tuple(ATTRIBUTES))
        here, there = (column(part.table, ATTRIBUTES[letter]) for part in (train, test))
        weighted *= prior_factor(here, train.y, there, p.shape[1])
    total = weighted.sum(axis=1, keepdims=True)
    return np.where(total > 0, weighted / np.where(total > 0, total, 1.0), p)


def text_logits(train: pd.Series, y_train: np.ndarray, captions: pd.Series, classifier: object = None) -> pd.DataFrame:
    """Return logits of captions, rows by filename, columns by class id.

    Args:
        train, captions: cleaned captions indexed by filename.
        classifier: any scikit-learn classifier of texts; TF-IDF with logistic regression by default (the paper has a
            DistilBERT). Log-probabilities where it has them, which are logits up to a constant per image.
    """
    default = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    model, texts = clone(default if classifier is None else classifier), captions.to_numpy()
    if classifier is None and not train.str.contains(r"\w\w").any():
        raise ValueError(f"none of {len(train)} training captions has a word; expected one of two letters at least")
    model.fit(train.to_numpy(), y_train)
    values = model.predict_log_proba(texts) if hasattr(model, "predict_log_proba") else model.decision_function(texts)
    if values.ndim == 1:
        values = np.stack([-values, values], axis=1) / 2
    return pd.DataFrame(values, index=captions.index, columns=model.classes_)


def fuse(image: pd.DataFrame, text: pd.DataFrame, how: str = "sum") -> pd.DataFrame:
    """Return image plus text logits, (N, C), rows and columns as ``image`` has them.

    ``how``: "sum", as the code has it, or "mean", as the paper says: the same answers, other confidences.

    Raises ValueError for a picture without text, different class ids, a name given twice, or an unknown ``how``.
    """
    check_choice("fuse", "how", how, ("sum", "mean"))
    if image.index.has_duplicates or text.index.has_duplicates:
        raise ValueError("a picture is given twice")
    if missing := image.index.difference(text.index).tolist():
        raise ValueError(f"no text logits for {len(missing)} pictures, such as {', '.join(map(str, missing[:5]))}")
    if other := sorted(set(image.columns) ^ set(text.columns), key=repr):
        raise ValueError(f"image and text know different classes: {other[:5]}")
    total = image + text.loc[image.index, image.columns]
    return total / 2 if how == "mean" else total
