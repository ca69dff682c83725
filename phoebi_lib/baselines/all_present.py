"""AllPresent: the constant predictor every result is measured against (Section 5)."""

from __future__ import annotations

import numpy as np

from phoebi_lib.decoders.base import Decoder
from phoebi_lib.decoders.checks import check_labels


class AllPresent(Decoder):
    """Predict every class in every image, whatever the pixels.

    Its per-sample F1 on an image of ``k`` of ``K`` species is ``2k / (k + K)``. Scores are 1, thresholds 0. A class in
    no training image is predicted too: that is what the constant means. Labels in which no image holds any class are
    refused as by every other estimator. ``random_state`` is accepted because every estimator has one. Learned:
    ``updates_`` = 0.
    """

    _facts = ("updates_",)

    def __init__(self, random_state: int = 0):
        self.random_state = random_state

    def calibrate_scores(self, scores: np.ndarray, Y: np.ndarray) -> AllPresent:
        """Set ``thresholds_`` to zeros; the images make no difference. Raises as for every other estimator."""
        check_labels(Y, self._owner, len(self._check_scores(scores)), self.n_classes_)
        self.thresholds_ = np.zeros(self.n_classes_)
        return self

    def _fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        self.updates_ = 0

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        return np.ones((*block.shape[:2], self.n_classes_))
