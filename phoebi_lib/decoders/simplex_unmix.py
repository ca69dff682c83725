"""SimplexUnmix: each tile as a sparse mixture of species prototypes (Section 4, Appendix A.1)."""

from __future__ import annotations

import numpy as np
import torch

from phoebi_lib.decoders.base import Decoder
from phoebi_lib.decoders.checks import blocks, check_choice, check_number
from phoebi_lib.decoders.prototypes import hybrid_prototypes
from phoebi_lib.decoders.thresholds import quantile_thresholds
from phoebi_lib.decoders.training import minimise, seeds, tile_rows

# Published recipes: tiles per batch, and whether the squared residual is summed or averaged over the D features.
RECIPES = {"random": (64, "mean"), "lco": (4096, "sum"), "ablation": (256, "mean")}


def sparsemax(logits: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean projection of the last axis of ``logits`` onto the probability simplex.

    Same shape as ``logits``; entries in 0..1 that sum to 1, with exact zeros (Martins and Astudillo, 2016). Autograd
    differentiates it; the Jacobian is :func:`sparsemax_jacobian`.
    """
    # the projection does not change when a constant is added; without the shift "- 1" is lost on large logits
    logits = logits - logits.detach().amax(dim=-1, keepdim=True)
    ordered = logits.sort(dim=-1, descending=True).values
    rank = torch.arange(1, logits.shape[-1] + 1, device=logits.device)
    # (sum of the j largest - 1) / j grows with j inside the support and falls outside: its maximum is the threshold
    threshold = ((ordered.cumsum(dim=-1) - 1.0) / rank).max(dim=-1, keepdim=True).values
    return torch.relu(logits - threshold)


def sparsemax_jacobian(weights: torch.Tensor) -> torch.Tensor:
    """Return the Jacobian of sparsemax at the point that gave ``weights``: ``diag(s) - s s^T / |s|``, (..., K, K).

    ``s`` is the support indicator of ``weights`` (..., K). An absent species gets no gradient (Appendix A.1).
    """
    support = (weights > 0).to(weights.dtype)
    outer = support.unsqueeze(-1) * support.unsqueeze(-2)
    return torch.diag_embed(support) - outer / support.sum(dim=-1, keepdim=True).unsqueeze(-1)


class SimplexUnmix(Decoder):
    """Unmix every tile into species: ``w = sparsemax(tau P z)``, score ``mean over tiles of w``.

    The rows of ``P`` are unit vectors, started at the hybrid prototypes and trained to reconstruct the tiles: minimise
    the squared length of ``z - P^T w`` with Adam. Labels enter through the starting point and the thresholds only.

    Parameters
    ----------
    recipe : batch and loss of the published runs (Appendix A.1): ``"random"`` 64 tiles, mean over batch and D;
        ``"lco"`` 4,096 tiles, mean over the batch of the sum over D; ``"ablation"`` 256 tiles, mean over both.
    tau : scale of the cosines before the projection.
    projection : ``"sparsemax"``, or ``"softmax"`` for the ablation of Table 16.
    epochs : passes over the tiles; 0 keeps the starting prototypes ("init only").
    updates : number of optimiser steps, in place of ``epochs``; None to count in epochs.
    batch_size : tiles per step, in place of the recipe's.
    learning_rate : of Adam, default betas, no weight decay, no schedule.
    quantile, fallback : see :func:`~phoebi_lib.decoders.thresholds.quantile_thresholds`.
    device : torch device of the training; scoring is done on the CPU in float64.
    random_state : seed of the shuffling, the only random part; the published random-split runs were not seeded.

    Learned: ``prototypes_`` (K, D) float64 of unit norm, ``prototype_source_`` per class ``"pure"``, ``"mixture"`` or
    ``"absent"``, ``losses_`` mean loss per epoch, ``updates_``. Scores lie in 0..1 and sum to 1 per image; a class in
    no training image scores 0.
    """

    _arrays = ("losses_", "prototypes_")
    _facts = ("prototype_source_", "updates_")

    def __init__(
        self,
        recipe: str = "lco",
        tau: float = 10.0,
        projection: str = "sparsemax",
        epochs: int = 30,
        updates: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        quantile: float = 0.05,
        fallback: str | float = "never",
        device: str = "cpu",
        random_state: int = 0,
    ):
        self.recipe = recipe
        self.tau = tau
        self.projection = projection
        self.epochs = epochs
        self.updates = updates
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.quantile = quantile
        self.fallback = fallback
        self.device = device
        self.random_state = random_state

    def residual(self, X: np.ndarray) -> np.ndarray:
        """Return the mean over tiles of the length of ``z - P^T w``, (N,) float64 in 0..2: what is left unexplained."""
        X = self._check_scorable(X)
        gram = self.prototypes_ @ self.prototypes_.T
        residual = np.empty(len(X))
        for rows, block in blocks(X, self._owner):
            cosines = block @ self.prototypes_.T
            weights = self._weights(cosines)
            squared = np.einsum("ntd,ntd->nt", block, block) - 2.0 * (weights * cosines).sum(axis=2)
            squared += ((weights @ gram) * weights).sum(axis=2)
            residual[rows] = np.sqrt(np.maximum(squared, 0.0)).mean(axis=1)
        return residual

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self._owner, "recipe", self.recipe, tuple(RECIPES))
        check_choice(self._owner, "projection", self.projection, ("sparsemax", "softmax"))
        check_number(self._owner, "tau", self.tau, 0, strict=True)
        check_number(self._owner, "learning_rate", self.learning_rate, 0, strict=True)
        check_number(self._owner, "epochs", self.epochs, 0, integer=True)
        check_number(self._owner, "quantile", self.quantile, 0, 1)
        for name, least in (("updates", 0), ("batch_size", 1)):
            if getattr(self, name) is not None:
                check_number(self._owner, name, getattr(self, name), least, integer=True)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"prototypes_": (self.n_classes_, self.n_features_in_), "losses_": (len(self.losses_),)}

    def _fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        prototypes, self.prototype_source_ = hybrid_prototypes(X, Y, self._owner)
        present = Y.any(axis=0)
        trained, self.losses_, self.updates_ = self._train(X, prototypes[present])
        prototypes[present] = trained / np.linalg.norm(trained, axis=1, keepdims=True)
        self.prototypes_ = prototypes

    def _train(self, X: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        batch, reduction = RECIPES[self.recipe]
        if self.updates == 0 or (self.updates is None and self.epochs == 0):
            return start, np.empty(0), 0
        rows = tile_rows(X, self.device)
        raw = torch.tensor(start, dtype=torch.float32, device=self.device, requires_grad=True)
        scale = 1.0 if reduction == "sum" else 1.0 / rows.shape[1]
        optimiser = torch.optim.Adam([raw], lr=self.learning_rate)
        losses, updates = minimise(
            rows,
            lambda tiles, _: self._loss_and_gradient(tiles, raw, scale),
            optimiser,
            batch=self.batch_size or batch,
            epochs=self.epochs,
            updates=self.updates,
            seed=seeds(self.random_state, 1)[0],
        )
        return raw.detach().cpu().numpy().astype(np.float64), losses, updates

    @torch.no_grad()
    def _loss_and_gradient(self, tiles: torch.Tensor, raw: torch.Tensor, scale: float) -> torch.Tensor:
        """Return ``scale`` times the mean squared residual of ``tiles`` (B, D) and set ``raw.grad`` (K, D).

        |z - P'w|^2 = |z|^2 - 2 w.Pz + w'PP'w with |z| = 1: the reconstruction, D numbers a tile, is never formed, and
        the features are read twice. Written out, a step on 64 tiles takes a third of autograd's time.
        """
        length = raw.norm(dim=1, keepdim=True)
        unit = raw / length
        cosines = tiles @ unit.T
        weights = self._project(self.tau * cosines)
        mixed = weights @ (unit @ unit.T)
        loss = scale * (1.0 + (weights * (mixed - 2.0 * cosines)).sum(dim=1).mean())
        # through the weights, then through the cosines they come from
        back = self.tau * self._pull_back(weights, 2.0 * (mixed - cosines)) - 2.0 * weights
        gradient = (back.T @ tiles + 2.0 * (weights.T @ weights) @ unit) * (scale / len(tiles))
        # only the part across a row turns it; its length is free
        raw.grad = (gradient - unit * (unit * gradient).sum(dim=1, keepdim=True)) / length
        return loss

    def _pull_back(self, weights: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Return the Jacobian of the projection, which is symmetric, times ``gradient`` (B, K)."""
        share = (weights > 0).to(weights.dtype) if self.projection == "sparsemax" else weights
        mean = (share * gradient).sum(dim=1, keepdim=True) / share.sum(dim=1, keepdim=True)
        return share * (gradient - mean)

    def _project(self, logits: torch.Tensor) -> torch.Tensor:
        return sparsemax(logits) if self.projection == "sparsemax" else torch.softmax(logits, dim=-1)

    def _weights(self, cosines: np.ndarray) -> np.ndarray:
        """Return the mixture weights (n, T, K) for cosines (n, T, K); an absent class takes no part."""
        weights = np.zeros_like(cosines)
        logits = torch.from_numpy(self.tau * cosines[..., self.present_])
        weights[..., self.present_] = self._project(logits).numpy()
        return weights

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        return self._weights(block @ self.prototypes_.T)

    def _choose_thresholds(self, scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return quantile_thresholds(scores, Y, self.quantile, self.fallback)
