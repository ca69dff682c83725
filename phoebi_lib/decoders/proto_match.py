"""ProtoMatch: cosine to one prototype per species, nothing trained (Section 4, Appendix A.1)."""

from __future__ import annotations

import numpy as np

from phoebi_lib.decoders.base import Decoder
from phoebi_lib.decoders.checks import check_number
from phoebi_lib.decoders.prototypes import hybrid_prototypes
from phoebi_lib.decoders.thresholds import quantile_thresholds


class ProtoMatch(Decoder):
    """Score ``s = mean over tiles of P z``: the mean cosine between an image's tiles and each species' prototype.

    Parameters: ``quantile`` of the validation positives' scores used as threshold; ``fallback`` threshold of a class
    without validation positives (see :func:`~phoebi_lib.decoders.thresholds.quantile_thresholds`); ``random_state`` is
    accepted because every estimator has one: the closed form uses no random numbers.

    Learned: ``prototypes_`` (K, D) float64 of unit norm, ``prototype_source_`` per class ``"pure"``, ``"mixture"`` or
    ``"absent"`` (see :func:`~phoebi_lib.decoders.prototypes.hybrid_prototypes`), ``updates_`` = 0. Scores lie in -1..1;
    a class in no training image scores -1.
    """

    _arrays = ("prototypes_",)
    _facts = ("prototype_source_", "updates_")

    def __init__(self, quantile: float = 0.05, fallback: str | float = "never", random_state: int = 0):
        self.quantile = quantile
        self.fallback = fallback
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self._owner, "quantile", self.quantile, 0, 1)

    def _fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        self.prototypes_, self.prototype_source_ = hybrid_prototypes(X, Y, self._owner)
        self.updates_ = 0

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"prototypes_": (self.n_classes_, self.n_features_in_)}

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        scores = block @ self.prototypes_.T
        scores[..., ~self.present_] = -1.0
        return scores

    def _choose_thresholds(self, scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return quantile_thresholds(scores, Y, self.quantile, self.fallback)
