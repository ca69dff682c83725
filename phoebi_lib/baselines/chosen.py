"""Base of the baselines that train several states and keep the one with the best F1 on validation images."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from phoebi_lib.decoders.base import Decoder
from phoebi_lib.decoders.checks import blocks
from phoebi_lib.decoders.thresholds import NEVER, grid_thresholds
from phoebi_lib.metrics import per_sample_f1


class ChosenOnValidation(Decoder):
    """A decoder whose ``fit`` needs ``validation``; thresholds are those of the highest F1 on a grid of 99 points.

    A subclass has the parameter ``fallback`` and implements ``_fit(X, Y, X_val, Y_val)``.
    """

    _needs_validation = True

    def _validation_f1(self, X: np.ndarray, Y: np.ndarray, present: np.ndarray) -> float:
        """Return the per-sample F1 of the learned state on images that choose its thresholds, as ``calibrate`` would.

        ``present`` (K,) tells the classes with a training image; the others are not predicted.
        """
        scores = np.concatenate([self.aggregate(self._score_tiles(block)) for _, block in blocks(X, self._owner)])
        with warnings.catch_warnings():
            # calibrate warns of a class without positives, once
            warnings.simplefilter("ignore")
            thresholds = np.where(present, self._choose_thresholds(scores, Y), NEVER)
        return float(per_sample_f1(Y, (scores > thresholds).astype(np.int64)))

    def _choose_thresholds(self, scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return grid_thresholds(scores, Y, fallback=self.fallback)


def first_best(values: Sequence[float]) -> int:
    """Return the position of the highest value, the first of equals: a later state must be strictly better."""
    return int(np.argmax(values))
