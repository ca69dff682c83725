"""Variants of SimplexUnmix (Appendix C.3): learned temperatures, repulsion, absent-mass penalty, learned subspace."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import normalize

from phoebi_lib.decoders import SimplexUnmix, sparsemax
from phoebi_lib.decoders.checks import blocks, check_number
from phoebi_lib.decoders.prototypes import hybrid_prototypes
from phoebi_lib.decoders.simplex_unmix import RECIPES
from phoebi_lib.decoders.training import minimise, seeds, tile_rows

# units from which the starting subspace is computed, as published
_SVD_UNITS = 200_000


def repulsion(prototypes: torch.Tensor, tau: float = 0.1) -> torch.Tensor:
    """Return the mean of ``exp(P_i . P_j / tau)`` over ordered pairs i != j of unit rows (K, D); 0 for a single row."""
    k = len(prototypes)
    if k < 2:
        return prototypes.new_zeros(())
    apart = ~torch.eye(k, dtype=torch.bool, device=prototypes.device)
    return torch.exp((prototypes @ prototypes.T)[apart] / tau).mean()


def absent_mass(weights: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean over units of the mixture weight (B, K) that falls on species which ``labels`` (B, K) lack."""
    return (weights * (1.0 - labels)).sum(dim=-1).mean()


def mean_cosine(prototypes: np.ndarray) -> float:
    """Return the mean cosine over pairs of different rows of ``prototypes`` (K, D); rows of zeros are left out."""
    length = np.linalg.norm(prototypes, axis=1, keepdims=True)
    unit = (prototypes / np.where(length > 0, length, 1.0))[length[:, 0] > 0]
    k = len(unit)
    return float(((unit @ unit.T).sum() - k) / (k * (k - 1))) if k > 1 else float("nan")


def reconstruction_loss(decoder: SimplexUnmix, X: np.ndarray) -> float:
    """Return the mean squared length of ``z - P^T w`` over the units of ``X`` (N, T, D), without a subspace."""
    total = 0.0
    for rows, block in blocks(X, "reconstruction_loss"):
        total += ((block - decoder.tile_scores(X[rows]) @ decoder.prototypes_) ** 2).sum()
    return float(total / (X.shape[0] * X.shape[1]))


def orthonormal_rows(free: torch.Tensor) -> torch.Tensor:
    """Return the rows of ``free`` (d, D), d <= D, made orthonormal in turn (Gram-Schmidt, through a Cholesky factor).

    Differentiable, and the identity on rows that are orthonormal already, so that any gradient step on ``free`` stays
    on the set of orthonormal rows. torch's own parametrisation by Householder reflections takes seconds a step here.
    """
    lower = torch.linalg.cholesky(free @ free.T)
    return torch.linalg.solve_triangular(lower, free, upper=False)


class UnmixVariant(SimplexUnmix):
    """SimplexUnmix with one thing more: each switch alone is one variant of Appendix C.3; all off, it is SimplexUnmix.

    Parameters beside those of :class:`~phoebi_lib.decoders.SimplexUnmix` (whose projection is sparsemax here):

    learn_temperature : train one log-temperature per prototype, started at ``log(tau)``, with the prototypes.
    repulsion : weight of :func:`repulsion` with temperature ``repulsion_tau`` in the loss. Inference is unchanged.
    absent_mass : weight of :func:`absent_mass` in the loss: the only variant whose training reads labels.
    subspace : dimension d of a subspace with orthonormal rows ``W`` (d, D), trained with the prototypes: a unit becomes
        ``W z / |W z|``. It starts at the leading right singular vectors of the centred units (of at most 200,000 of
        them), the prototypes at the hybrid ones seen through it. None to stay in D.

    Learned beside those of SimplexUnmix: ``temperatures_`` (K,); ``basis_`` (d, D), the identity's place being taken
    by an array of shape (0, D) without a subspace; ``prototypes_`` is (K, d) with one.
    """

    _arrays = ("basis_", "losses_", "prototypes_", "temperatures_")

    def __init__(
        self,
        learn_temperature: bool = False,
        repulsion: float = 0.0,
        repulsion_tau: float = 0.1,
        absent_mass: float = 0.0,
        subspace: int | None = None,
        recipe: str = "lco",
        tau: float = 10.0,
        epochs: int = 30,
        updates: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        quantile: float = 0.05,
        fallback: str | float = "never",
        device: str = "cpu",
        random_state: int = 0,
    ):
        super().__init__(recipe=recipe, tau=tau, epochs=epochs, updates=updates, batch_size=batch_size,
                         learning_rate=learning_rate, quantile=quantile, fallback=fallback, device=device,
                         random_state=random_state)  # fmt: skip
        self.learn_temperature = learn_temperature
        self.repulsion = repulsion
        self.repulsion_tau = repulsion_tau
        self.absent_mass = absent_mass
        self.subspace = subspace

    def residual(self, X: np.ndarray) -> np.ndarray:
        """Return the mean over units of the length of ``z - P^T w``, (N,) float64; with a subspace, inside it."""
        X = self._check_scorable(X)
        residual = np.empty(len(X))
        for rows, block in blocks(X, self._owner):
            units = self._units(block)
            weights = self._weights(units @ self.prototypes_.T)
            residual[rows] = np.linalg.norm(units - weights @ self.prototypes_, axis=2).mean(axis=1)
        return residual

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("repulsion", "absent_mass"):
            check_number(self._owner, name, getattr(self, name), 0)
        check_number(self._owner, "repulsion_tau", self.repulsion_tau, 0, strict=True)
        if self.subspace is not None:
            check_number(self._owner, "subspace", self.subspace, 1, integer=True)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        width = len(self.basis_) or self.n_features_in_
        return {"prototypes_": (self.n_classes_, width), "losses_": (len(self.losses_),),
                "temperatures_": (self.n_classes_,), "basis_": (len(self.basis_), self.n_features_in_)}  # fmt: skip

    def _fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        start, self.prototype_source_ = hybrid_prototypes(X, Y, self._owner)
        present = Y.any(axis=0)
        batch, reduction = RECIPES[self.recipe]
        rows = tile_rows(X, self.device)
        labels = torch.from_numpy(Y[:, present].astype(np.float32)).to(self.device)
        first = torch.tensor(start[present], dtype=torch.float32, device=self.device)
        free = None if self.subspace is None else self._leading(rows).requires_grad_(True)
        raw = (first if free is None else normalize(first @ free.detach().T, dim=1)).requires_grad_(True)
        log_tau = torch.full((len(raw),), float(np.log(self.tau)), device=self.device, requires_grad=True)
        trained = [raw, *([log_tau] if self.learn_temperature else []), *([] if free is None else [free])]
        scale = 1.0 if reduction == "sum" else 1.0 / raw.shape[1]

        def step(tiles: torch.Tensor, index: torch.Tensor | slice) -> torch.Tensor:
            images = torch.arange(len(rows), device=rows.device)[index] // X.shape[1]
            loss = self._loss(tiles, labels[images], raw, log_tau, free, scale)
            loss.backward()
            return loss.detach()

        self.losses_, self.updates_ = minimise(
            rows, step, torch.optim.Adam(trained, lr=self.learning_rate), batch=self.batch_size or batch,
            epochs=self.epochs, updates=self.updates, seed=seeds(self.random_state, 1)[0],
        )  # fmt: skip
        final = normalize(raw.detach(), dim=1).cpu().numpy().astype(np.float64)
        self.prototypes_ = np.zeros((len(present), final.shape[1]))
        self.prototypes_[present] = final / np.linalg.norm(final, axis=1, keepdims=True)
        self.temperatures_ = np.full(len(present), float(self.tau))
        if self.learn_temperature:
            self.temperatures_[present] = log_tau.detach().exp().cpu().numpy()
        basis = rows.new_zeros((0, X.shape[2])) if free is None else orthonormal_rows(free.detach().double())
        self.basis_ = basis.cpu().numpy().astype(np.float64)

    def _loss(self, tiles, labels, raw, log_tau, free, scale: float) -> torch.Tensor:
        z = tiles if free is None else normalize(tiles @ orthonormal_rows(free).T, dim=1)
        P = normalize(raw, dim=1)
        cosines = z @ P.T
        weights = sparsemax(log_tau.exp() * cosines if self.learn_temperature else self.tau * cosines)
        # |z - P'w|^2 of unit z without forming the reconstruction: see SimplexUnmix
        residual = 1.0 + (weights * (weights @ (P @ P.T) - 2.0 * cosines)).sum(dim=1)
        loss = scale * residual.mean()
        if self.repulsion:
            loss = loss + self.repulsion * repulsion(P, self.repulsion_tau)
        if self.absent_mass:
            loss = loss + self.absent_mass * absent_mass(weights, labels)
        return loss

    def _leading(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the leading right singular vectors (d, D) of the centred units ``rows`` (M, D)."""
        d, width = self.subspace, rows.shape[1]
        if d > min(width, len(rows)):
            raise ValueError(f"{self._owner}: subspace must not exceed the {width} features and {len(rows)} units; "
                             f"found {d}")  # fmt: skip
        if len(rows) > _SVD_UNITS:
            generator = torch.Generator().manual_seed(seeds(self.random_state, 2)[1])
            rows = rows[torch.randperm(len(rows), generator=generator)[:_SVD_UNITS].to(rows.device)]
        centred = rows - rows.mean(dim=0)
        # eigenvectors of the (D, D) scatter: the units may be many
        return torch.linalg.eigh((centred.T @ centred).double()).eigenvectors.flip(1)[:, :d].T.float().contiguous()

    def _units(self, block: np.ndarray) -> np.ndarray:
        if not len(self.basis_):
            return block
        seen = block @ self.basis_.T
        # a unit at right angles to the subspace has no direction in it: it stays at zero and matches nothing
        return seen / np.maximum(np.linalg.norm(seen, axis=-1, keepdims=True), 1e-12)

    def _weights(self, cosines: np.ndarray) -> np.ndarray:
        weights = np.zeros_like(cosines)
        logits = torch.from_numpy((self.temperatures_ * cosines)[..., self.present_])
        weights[..., self.present_] = sparsemax(logits).numpy()
        return weights

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        return self._weights(self._units(block) @ self.prototypes_.T)
