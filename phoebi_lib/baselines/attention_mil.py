"""AttentionMIL: gated attention pools an image's tiles before one linear layer (Tables 3 and 6)."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import expit, softmax
from torch.nn.functional import binary_cross_entropy_with_logits

from phoebi_lib.baselines.chosen import ChosenOnValidation, first_best
from phoebi_lib.decoders.checks import blocks, check_number
from phoebi_lib.decoders.training import minimise, seeds, tile_rows

_WEIGHTS = ("V_", "U_", "w_", "head_weight_", "head_bias_")


class AttentionMIL(ChosenOnValidation):
    """Multiple-instance learning with gated attention, after Ilse et al. (2018).

    A tile z has ``e = w . (tanh(V z) * sigmoid(U z))``; attention is the softmax of e over an image's tiles; the image
    is the attention-weighted sum of its tiles, and a linear layer with bias gives the logits. Binary cross-entropy on
    images, AdamW. After each epoch the per-sample F1 on ``validation`` is taken, at thresholds chosen there; the
    weights of the best epoch are kept, the earliest among equals. ``calibrate`` on the same images gives that epoch's
    thresholds.

    Parameters
    ----------
    hidden : rows of V and U.
    epochs, updates, batch_size, learning_rate, weight_decay : of AdamW; ``updates`` steps in place of ``epochs``, the
        last epoch may then be cut short; ``batch_size`` counts images.
    fallback : threshold of a class without validation positives, see
        :func:`~phoebi_lib.decoders.thresholds.grid_thresholds`.
    device : torch device of the training; scoring is done on the CPU in float64.
    random_state : seed of initialisation and of each epoch's permutation, each with its own CPU generator.

    Learned: ``V_``, ``U_`` (hidden, D), ``w_`` (hidden,), ``head_weight_`` (K, D), ``head_bias_`` (K,) float64;
    ``best_epoch_`` counted from 1; ``validation_f1_`` and ``losses_`` per epoch; ``updates_`` of the whole training;
    ``n_parameters_`` = 2 hidden D + hidden + K (D + 1): 100,742 at D = 384 and K = 6.

    Image scores lie in 0..1. A logit of an image is the attention-weighted mean of its tiles' logits; ``tile_scores``
    are those logits times attention times T, whose plain mean is the image's logit. So a tile's score holds only in the
    company of the image's other tiles: score a part of the tiles by passing that part, not by picking tile scores.
    """

    _arrays = (*_WEIGHTS, "losses_", "validation_f1_")
    _facts = ("best_epoch_", "n_parameters_", "updates_")

    def __init__(
        self,
        hidden: int = 128,
        epochs: int = 30,
        updates: int | None = None,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        fallback: str | float = "never",
        device: str = "cpu",
        random_state: int = 0,
    ):
        self.hidden = hidden
        self.epochs = epochs
        self.updates = updates
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.fallback = fallback
        self.device = device
        self.random_state = random_state

    def attention(self, X: np.ndarray) -> np.ndarray:
        """Return the weights of the tiles in their image, (N, T) float64, positive and of sum one over T.

        Raises ``NotFittedError`` before ``fit``.
        """
        X = self._check_scorable(X)
        return np.concatenate([self._attention(block) for _, block in blocks(X, self._owner)])

    def aggregate(self, tile_scores: np.ndarray) -> np.ndarray:
        """Return image scores (N, K) in 0..1 from all the tile scores (N, T, K) of an image: sigmoid of their mean."""
        return expit(tile_scores.mean(axis=1))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("hidden", "epochs", "batch_size"):
            check_number(self._owner, name, getattr(self, name), 1, integer=True)
        if self.updates is not None:
            check_number(self._owner, "updates", self.updates, 1, integer=True)
        check_number(self._owner, "learning_rate", self.learning_rate, 0, strict=True)
        check_number(self._owner, "weight_decay", self.weight_decay, 0)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        epochs = (len(self.losses_),)
        shapes = _shapes(self.hidden, self.n_features_in_, self.n_classes_)
        return {**dict(zip(_WEIGHTS, shapes, strict=True)), "losses_": epochs, "validation_f1_": epochs}

    def _fit(self, X: np.ndarray, Y: np.ndarray, X_val: np.ndarray, Y_val: np.ndarray) -> None:
        self._warn_absent(Y)
        start, shuffle = seeds(self.random_state, 2)
        weights = _initial(_shapes(self.hidden, X.shape[2], Y.shape[1]), X.shape[2], self.hidden, start, self.device)
        optimiser = torch.optim.AdamW(weights, lr=self.learning_rate, weight_decay=self.weight_decay)
        images = tile_rows(X, self.device).reshape(len(X), -1)
        labels = torch.from_numpy(Y).to(self.device, torch.float32)

        def gradient(batch: torch.Tensor, index: torch.Tensor | slice) -> torch.Tensor:
            loss = binary_cross_entropy_with_logits(_logits(batch.reshape(-1, *X.shape[1:]), *weights), labels[index])
            loss.backward()
            return loss.detach()

        steps = math.ceil(len(X) / self.batch_size)
        limit = self.epochs * steps if self.updates is None else self.updates
        losses, f1 = [], []
        for epoch, seed in enumerate(seeds(shuffle, math.ceil(limit / steps))):
            loss, _ = minimise(
                images, gradient, optimiser,
                batch=self.batch_size, epochs=1, updates=min(steps, limit - epoch * steps), seed=seed,
            )  # fmt: skip
            self._keep([weight.detach().cpu().double().numpy() for weight in weights])
            losses.append(loss[0])
            f1.append(self._validation_f1(X_val, Y_val, Y.any(axis=0)))
            if first_best(f1) == epoch:
                best = [getattr(self, name) for name in _WEIGHTS]
        self._keep(best)
        self.best_epoch_ = first_best(f1) + 1
        self.losses_, self.validation_f1_, self.updates_ = np.array(losses), np.array(f1), limit
        self.n_parameters_ = sum(weight.size for weight in best)

    def _keep(self, weights: list[np.ndarray]) -> None:
        for name, weight in zip(_WEIGHTS, weights, strict=True):
            setattr(self, name, weight)

    def _attention(self, block: np.ndarray) -> np.ndarray:
        gated = np.tanh(block @ self.V_.T) * expit(block @ self.U_.T)
        return softmax(gated @ self.w_, axis=1)

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        logits = block @ self.head_weight_.T + self.head_bias_
        return block.shape[1] * self._attention(block)[..., None] * logits


def _shapes(hidden: int, n_features: int, n_classes: int) -> list[tuple[int, ...]]:
    return [(hidden, n_features), (hidden, n_features), (hidden,), (n_classes, n_features), (n_classes,)]


def _initial(shapes: list[tuple[int, ...]], n_features: int, hidden: int, seed: int, device: str) -> list[torch.Tensor]:
    """Return the weights in the order of ``_WEIGHTS``, uniform on +-1/sqrt(fan-in) as linear layers usually start."""
    generator = torch.Generator().manual_seed(seed)
    bounds = [n**-0.5 for n in (n_features, n_features, hidden, n_features, n_features)]
    drawn = [torch.empty(s).uniform_(-b, b, generator=generator) for s, b in zip(shapes, bounds, strict=True)]
    return [weight.to(device).requires_grad_() for weight in drawn]


def _logits(
    tiles: torch.Tensor, V: torch.Tensor, U: torch.Tensor, w: torch.Tensor, head: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    attention = torch.softmax((torch.tanh(tiles @ V.T) * torch.sigmoid(tiles @ U.T)) @ w, dim=1)
    return (attention[..., None] * tiles).sum(dim=1) @ head.T + bias
