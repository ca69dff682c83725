"""FungiTastic's baselines on frozen features: neighbours, centroids, the linear probe, open-set scores and floors.

Features are (N, D), rows in the order of their labels. All scores are higher for the likelier class.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.metrics import pairwise_distances_argmin_min

from phoebi_lib import workspace

_BLOCK = 1024


def prepare(X: ArrayLike, *, quantise_uint8: bool = False) -> np.ndarray:
    """Return rows of unit norm, float64; a row of zeros stays.

    ``quantise_uint8``: as the reference stores them, ``q = floor((e + 1) 127.5)``, read back as ``q / 255 * 2 - 1``.

    Raises ValueError for features that are not (N, D) or not finite (rows named).
    """
    X = _finite(X)
    unit = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(float).tiny)
    return np.floor((unit + 1) * 127.5).clip(0, 255) / 255 * 2 - 1 if quantise_uint8 else unit


def nearest_neighbour(X_train: np.ndarray, y_train: ArrayLike, X: np.ndarray) -> np.ndarray:
    """Return the label of the training row with the largest inner product, (N,); the lowest label among equals."""
    y_train = np.asarray(y_train)
    order = np.argsort(y_train, kind="stable")
    bank, y_train = X_train[order], y_train[order]
    return np.concatenate([y_train[(X[i : i + _BLOCK] @ bank.T).argmax(axis=1)] for i in range(0, len(X), _BLOCK)])


def class_means(X: np.ndarray, y: ArrayLike, n_classes: int) -> np.ndarray:
    """Return the mean feature of each class, (C, D); zeros for a class without a row."""
    y, sums = np.asarray(y), np.zeros((n_classes, X.shape[1]))
    if y.min() < 0 or y.max() >= n_classes:
        raise ValueError(f"training labels must lie in 0..{n_classes - 1}, got {y.min()}..{y.max()}")
    np.add.at(sums, y, X)
    return sums / np.maximum(np.bincount(y, minlength=n_classes), 1)[:, None]


def centroid_scores(prototypes: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the cosine of each row to each prototype, (N, C); 0 for a prototype or row of zeros."""
    return prepare(X) @ prepare(prototypes).T


class LinearProbe:
    """One linear layer, cross-entropy, Adam; the paper's open-set probe (P2), whose last epoch is taken.

    Parameters
    ----------
    epochs, learning_rate, batch_size : as published.
    min_updates : go on for whole epochs until there were so many steps; 30 epochs of a few images are hardly any.
    seed : of initial weights and order of rows. device : torch device of the training, the project's by default.

    Learned: ``weight_`` (C, D), ``bias_`` (C,), ``updates_``, ``train_accuracy_`` in 0..1.
    """

    def __init__(self, *, epochs: int = 30, learning_rate: float = 1e-4, batch_size: int = 64, min_updates: int = 0,
                 seed: int = 0, device: str | None = None):  # fmt: skip
        self.epochs, self.learning_rate, self.batch_size = epochs, learning_rate, batch_size
        self.min_updates, self.seed, self.device = min_updates, seed, device

    def fit(self, X: ArrayLike, y: ArrayLike, n_classes: int) -> LinearProbe:
        """Train. Raises ValueError for features that are not finite, or labels outside 0..C-1."""
        device = self.device or workspace.device()
        inputs = torch.from_numpy(_finite(X).astype(np.float32)).to(device)
        labels = torch.from_numpy(np.array(y, dtype=np.int64)).to(device)
        if not 0 <= labels.min() <= labels.max() < n_classes:
            raise ValueError(f"training labels must lie in 0..{n_classes - 1}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            layer = torch.nn.Linear(inputs.shape[1], n_classes).to(device)
        optimiser = torch.optim.Adam(layer.parameters(), lr=self.learning_rate)
        order = torch.Generator().manual_seed(self.seed)
        epoch = self.updates_ = 0
        while epoch < self.epochs or self.updates_ < self.min_updates:
            epoch += 1
            for rows in torch.randperm(len(inputs), generator=order).to(device).split(self.batch_size):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(layer(inputs[rows]), labels[rows]).backward()
                optimiser.step()
                self.updates_ += 1
        self.weight_ = layer.weight.detach().cpu().numpy().astype(np.float64)
        self.bias_ = layer.bias.detach().cpu().numpy().astype(np.float64)
        self.train_accuracy_ = float((self.logits(X).argmax(axis=1) == np.asarray(y)).mean())
        return self

    def logits(self, X: ArrayLike) -> np.ndarray:
        """Return (N, C) float64. Raises ValueError for features that are not finite."""
        return _finite(X) @ self.weight_.T + self.bias_


def open_scores(logits: np.ndarray, X: np.ndarray, means: np.ndarray) -> dict[str, np.ndarray]:
    """Return the three published scores of how known an image is, (N,), higher = more likely known.

    ``MSP`` largest softmax probability; ``MLS`` largest logit; ``NM`` minus the Euclidean distance of the raw feature
    to the nearest class mean.
    """
    distance = pairwise_distances_argmin_min(X, means)[1]
    return {"MSP": softmax(logits, axis=1).max(axis=1), "MLS": logits.max(axis=1), "NM": -distance}


def floor_scores(y_train: ArrayLike, n_images: int, n_classes: int, kind: str, seed: int = 0) -> np.ndarray:
    """Return scores (N, C) that see no picture: training frequencies (``majority``) or uniform draws (``random``)."""
    if kind == "majority":
        counts = np.bincount(np.asarray(y_train), minlength=n_classes)
        return np.broadcast_to(counts.astype(np.float64), (n_images, n_classes))
    if kind != "random":
        raise ValueError(f"unknown floor {kind!r}; known: majority, random")
    return np.random.default_rng(seed).random((n_images, n_classes))


def _finite(X: ArrayLike) -> np.ndarray:
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or not X.size:
        raise ValueError(f"features must have shape (N, D), at least one row; got {X.shape}")
    if (bad := ~np.isfinite(X).all(axis=1)).any():
        raise ValueError(f"features of rows {np.flatnonzero(bad)[:5].tolist()} are not finite")
    return X
