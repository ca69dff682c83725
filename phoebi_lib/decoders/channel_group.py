"""ChannelGroup: one linear unit per species on its own group of channels (Section 4, Appendix A.1)."""

from __future__ import annotations

import numpy as np
import torch

from phoebi_lib.decoders.base import Decoder
from phoebi_lib.decoders.checks import check_choice, check_number
from phoebi_lib.decoders.thresholds import grid_thresholds
from phoebi_lib.decoders.training import TileMixup, asymmetric_loss, minimise, seeds, tile_rows

LOSSES = {"bce": torch.nn.functional.binary_cross_entropy_with_logits, "asymmetric": asymmetric_loss}


class ChannelGroup(Decoder):
    """Split the D channels into K contiguous groups in class order; logit k is linear in group k alone.

    A group has ``D // K`` channels; the last ``D - K * (D // K)`` channels belong to no group and are unused
    (``unused_channels_``: 0 at D = 384 and K = 6, 2 at D = 1280). There are ``K * (D // K) + K`` parameters
    (``n_parameters_``: 390 at D = 384, 1,542 at 1,536). Every tile carries its image's labels; AdamW, channel dropout
    in training.

    Parameters
    ----------
    aggregation : how tiles become an image score: ``"logit"`` mean of the logits, then the sigmoid, as the paper says;
        ``"sigmoid"`` mean of the sigmoids, as its numbers were computed.
    dropout : probability of dropping a channel, to 1/256, drawn per tile and channel (each channel serves one class
        only); kept values are scaled by 1 / (1 - dropout).
    epochs, updates, batch_size, learning_rate, weight_decay : of AdamW; ``updates`` steps in place of ``epochs``.
    loss : ``"bce"`` binary cross-entropy; ``"asymmetric"`` for the ablation of Appendix B.2, see
        :func:`~phoebi_lib.decoders.training.asymmetric_loss`.
    mixup : alpha of the tile mixup of the same ablation (0.4 there); 0 mixes nothing.
    fallback : threshold of a class without validation positives, see
        :func:`~phoebi_lib.decoders.thresholds.grid_thresholds`.
    device : torch device of the training; scoring is done on the CPU in float64.
    random_state : seed of initialisation, shuffling, dropout and mixup, each with its own CPU generator, so that a CPU
        and a GPU see the same batches and the same masks.

    Learned: ``weight_`` (K, D // K), ``bias_`` (K,) float64, ``losses_`` mean loss per epoch, ``updates_``,
    ``unused_channels_``, ``n_parameters_``. Image scores lie in 0..1; ``tile_scores`` are logits.
    """

    _arrays = ("bias_", "losses_", "weight_")
    _facts = ("n_parameters_", "unused_channels_", "updates_")

    def __init__(
        self,
        aggregation: str = "logit",
        dropout: float = 0.5,
        epochs: int = 30,
        updates: int | None = None,
        batch_size: int = 4096,
        learning_rate: float = 1e-2,
        weight_decay: float = 1e-4,
        loss: str = "bce",
        mixup: float = 0.0,
        fallback: str | float = "never",
        device: str = "cpu",
        random_state: int = 0,
    ):
        self.aggregation = aggregation
        self.dropout = dropout
        self.epochs = epochs
        self.updates = updates
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.loss = loss
        self.mixup = mixup
        self.fallback = fallback
        self.device = device
        self.random_state = random_state

    def aggregate(self, tile_scores: np.ndarray) -> np.ndarray:
        """Return image scores (N, K) in 0..1 from tile logits (N, T, K), in the order ``aggregation`` says."""
        if self.aggregation == "logit":
            return _sigmoid(tile_scores.mean(axis=1))
        return _sigmoid(tile_scores).mean(axis=1)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self._owner, "aggregation", self.aggregation, ("logit", "sigmoid"))
        check_number(self._owner, "dropout", self.dropout, 0, 255 / 256)
        check_number(self._owner, "epochs", self.epochs, 0, integer=True)
        check_number(self._owner, "batch_size", self.batch_size, 1, integer=True)
        check_number(self._owner, "learning_rate", self.learning_rate, 0, strict=True)
        check_number(self._owner, "weight_decay", self.weight_decay, 0)
        check_choice(self._owner, "loss", self.loss, tuple(LOSSES))
        check_number(self._owner, "mixup", self.mixup, 0)
        if self.updates is not None:
            check_number(self._owner, "updates", self.updates, 0, integer=True)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        width = self.n_features_in_ // self.n_classes_
        return {
            "weight_": (self.n_classes_, width),
            "bias_": (self.n_classes_,),
            "losses_": (len(self.losses_),),
        }

    def _fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        self._warn_absent(Y)
        n_classes, width = Y.shape[1], X.shape[2] // Y.shape[1]
        if width == 0:
            raise ValueError(f"{self._owner}: {X.shape[2]} features are too few for {n_classes} groups of channels")
        start, shuffle, *rest = seeds(self.random_state, 4)
        # Kaiming-uniform with a = sqrt(5) is uniform on +-1/sqrt(fan-in); the bias starts at zero
        bound = width**-0.5
        weight = torch.empty(n_classes, width).uniform_(-bound, bound, generator=torch.Generator().manual_seed(start))
        weight = weight.to(self.device).requires_grad_()
        bias = torch.zeros(n_classes, device=self.device, requires_grad=True)
        self.losses_, self.updates_ = np.empty(0), 0
        if self.updates != 0 and (self.updates is not None or self.epochs != 0):
            self.losses_, self.updates_ = self._train(X, Y, weight, bias, shuffle, *rest)
        self.weight_ = weight.detach().cpu().numpy().astype(np.float64)
        self.bias_ = bias.detach().cpu().numpy().astype(np.float64)
        self.unused_channels_ = X.shape[2] - n_classes * width
        self.n_parameters_ = n_classes * width + n_classes

    def _train(
        self, X: np.ndarray, Y: np.ndarray, weight: torch.Tensor, bias: torch.Tensor, shuffle: int, mask: int, pair: int
    ) -> tuple[np.ndarray, int]:
        n_classes, width = weight.shape
        rows = tile_rows(X, self.device)
        labels = torch.from_numpy(np.repeat(Y, X.shape[1], axis=0)).to(self.device, torch.float32)
        drop = _ChannelDropout(min(self.batch_size, len(rows)), rows, self.dropout, mask)
        mix = TileMixup(self.mixup, pair) if self.mixup else lambda tiles, labels: (tiles, labels)
        optimiser = torch.optim.AdamW([weight, bias], lr=self.learning_rate, weight_decay=self.weight_decay)

        def gradient(tiles: torch.Tensor, index: torch.Tensor | slice) -> torch.Tensor:
            tiles, target = mix(tiles, labels[index])
            # one product with a block-diagonal matrix is several times faster than K small ones
            logits = drop(tiles)[:, : n_classes * width] @ torch.block_diag(*weight.unbind()).T / drop.keep + bias
            loss = LOSSES[self.loss](logits, target)
            loss.backward()
            return loss.detach()

        return minimise(
            rows, gradient, optimiser, batch=self.batch_size, epochs=self.epochs, updates=self.updates, seed=shuffle
        )

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        n_classes, width = self.weight_.shape
        groups = block[..., : n_classes * width].reshape(*block.shape[:2], n_classes, width)
        return np.einsum("ntkg,kg->ntk", groups, self.weight_) + self.bias_

    def _choose_thresholds(self, scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return grid_thresholds(scores, Y, fallback=self.fallback)


class _ChannelDropout:
    """Zero each value of a batch with a fixed probability, into buffers kept between batches; no scaling."""

    def __init__(self, batch: int, rows: torch.Tensor, probability: float, seed: int):
        self._generator = np.random.default_rng(seed)
        self._kept_bytes = round((1.0 - probability) * 256)
        self._buffer = rows.new_empty((batch, rows.shape[1]))
        self.keep = self._kept_bytes / 256

    def __call__(self, tiles: torch.Tensor) -> torch.Tensor:
        if self._kept_bytes == 256:
            return tiles
        # a random bit a value at one half, else a random byte: ten times faster than a Bernoulli draw for each
        fair = self._kept_bytes == 128
        words = self._generator.integers(0, 2**64, size=-(-tiles.numel() // (64 if fair else 8)), dtype=np.uint64)
        noise = words.view(np.uint8)
        noise = np.unpackbits(noise) if fair else noise < self._kept_bytes
        mask = self._buffer[: len(tiles)].copy_(torch.from_numpy(noise[: tiles.numel()].reshape(tiles.shape)))
        return mask.mul_(tiles)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    # exp of a large positive number overflows; of a negative one it does not
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)
