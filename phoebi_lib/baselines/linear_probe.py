"""LinearProbe: one linear layer on single tiles, the learning rate chosen on validation images (Table 4)."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import expit
from torch.nn.functional import binary_cross_entropy_with_logits

from phoebi_lib.baselines.chosen import ChosenOnValidation, first_best
from phoebi_lib.decoders.checks import check_number
from phoebi_lib.decoders.thresholds import GRID, grid_thresholds
from phoebi_lib.decoders.training import minimise, seeds, tile_rows


class LinearProbe(ChosenOnValidation):
    """Logits ``W z + b`` of a tile; image score = mean over tiles of their sigmoids.

    Every tile carries its image's labels; binary cross-entropy; SGD with Nesterov momentum at a constant rate. One
    probe is trained for each learning rate, from the same initial weights on the same batches; the one with the highest
    per-sample F1 on ``validation``, at thresholds chosen there, is kept, the smallest rate among equals.

    Parameters
    ----------
    learning_rates : what to choose from, one or more different numbers above 0, in any order.
    epochs, updates, batch_size, momentum, weight_decay : of the training; ``updates`` steps in place of ``epochs``;
        ``batch_size`` counts tiles.
    fallback : threshold of a class that no point of the grid finds in a validation image: it has none, or scores all of
        them at 0.01 or less. ``"never"``, ``"max+1"`` or a number; the published search starts at 0.5 and stays there.
    device : torch device of the training; scoring is done on the CPU in float64.
    random_state : seed of initialisation and shuffling, each with its own CPU generator.

    Learned: ``weight_`` (K, D), ``bias_`` (K,) float64; ``learning_rate_``, and ``validation_f1_`` one number per rate,
    in the order of ``learning_rates``; ``losses_`` mean loss per epoch and ``updates_``, both of the chosen rate;
    ``n_parameters_`` = K (D + 1). Image scores lie in 0..1; ``tile_scores`` are logits.
    """

    _arrays = ("bias_", "losses_", "validation_f1_", "weight_")
    _facts = ("learning_rate_", "n_parameters_", "updates_")

    def __init__(
        self,
        learning_rates: tuple[float, ...] = (0.01, 0.03, 0.1),
        epochs: int = 10,
        updates: int | None = None,
        batch_size: int = 4096,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        fallback: str | float = "never",
        device: str = "cpu",
        random_state: int = 0,
    ):
        self.learning_rates = learning_rates
        self.epochs = epochs
        self.updates = updates
        self.batch_size = batch_size
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.fallback = fallback
        self.device = device
        self.random_state = random_state

    def aggregate(self, tile_scores: np.ndarray) -> np.ndarray:
        """Return image scores (N, K) in 0..1 from tile logits (N, T, K): the mean of their sigmoids."""
        return expit(tile_scores).mean(axis=1)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        rates = self.learning_rates
        for rate in rates if isinstance(rates, (tuple, list)) else ():
            check_number(self._owner, "each of learning_rates", rate, 0, strict=True)
        if not isinstance(rates, (tuple, list)) or not rates or len(set(rates)) != len(rates):
            raise ValueError(
                f"{self._owner}: learning_rates must be a tuple of different numbers > 0, one at least; found {rates!r}"
            )
        check_number(self._owner, "epochs", self.epochs, 1, integer=True)
        if self.updates is not None:
            check_number(self._owner, "updates", self.updates, 1, integer=True)
        check_number(self._owner, "batch_size", self.batch_size, 1, integer=True)
        # Nesterov's step is not defined without momentum
        check_number(self._owner, "momentum", self.momentum, 0, 1, strict=True)
        check_number(self._owner, "weight_decay", self.weight_decay, 0)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "weight_": (self.n_classes_, self.n_features_in_),
            "bias_": (self.n_classes_,),
            "losses_": (len(self.losses_),),
            "validation_f1_": (len(self.learning_rates),),
        }

    def _fit(self, X: np.ndarray, Y: np.ndarray, X_val: np.ndarray, Y_val: np.ndarray) -> None:
        self._warn_absent(Y)
        rows = tile_rows(X, self.device)
        labels = torch.from_numpy(np.repeat(Y, X.shape[1], axis=0)).to(self.device, torch.float32)
        rates, f1, trained = sorted(self.learning_rates), {}, {}
        for rate in rates:
            trained[rate] = self._train(rows, labels, rate)
            self.weight_, self.bias_, *_ = trained[rate]
            f1[rate] = self._validation_f1(X_val, Y_val, Y.any(axis=0))
        chosen = rates[first_best([f1[rate] for rate in rates])]
        self.weight_, self.bias_, self.losses_, self.updates_ = trained[chosen]
        self.learning_rate_ = float(chosen)
        self.validation_f1_ = np.array([f1[rate] for rate in self.learning_rates])
        self.n_parameters_ = self.weight_.size + self.bias_.size

    def _train(
        self, rows: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        start, shuffle = seeds(self.random_state, 2)
        generator = torch.Generator().manual_seed(start)
        # a linear layer's usual start: weights and bias uniform on +-1/sqrt(fan-in)
        bound = rows.shape[1] ** -0.5
        weight = torch.empty(labels.shape[1], rows.shape[1]).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(labels.shape[1]).uniform_(-bound, bound, generator=generator)
        weight, bias = (parameter.to(self.device).requires_grad_() for parameter in (weight, bias))
        optimiser = torch.optim.SGD(
            [weight, bias], lr=rate, momentum=self.momentum, nesterov=True, weight_decay=self.weight_decay
        )

        def gradient(tiles: torch.Tensor, index: torch.Tensor | slice) -> torch.Tensor:
            loss = binary_cross_entropy_with_logits(tiles @ weight.T + bias, labels[index])
            loss.backward()
            return loss.detach()

        training = {"batch": self.batch_size, "epochs": self.epochs, "updates": self.updates, "seed": shuffle}
        try:
            losses, updates = minimise(rows, gradient, optimiser, **training)
        except FloatingPointError as error:
            raise FloatingPointError(f"{self._owner}: learning rate {rate:g} of learning_rates: {error}") from error
        return weight.detach().cpu().double().numpy(), bias.detach().cpu().double().numpy(), losses, updates

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        return block @ self.weight_.T + self.bias_

    def _choose_thresholds(self, scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
        # a class that no point finds gets no say: the published search keeps its start there, not the lowest point
        found = ((scores > GRID[0]) & (Y == 1)).any(axis=0)
        return grid_thresholds(scores, np.where(found, Y, 0), fallback=self.fallback)
