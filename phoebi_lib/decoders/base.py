"""The contract every decoder and baseline keeps: fit, decision_function, calibrate, predict, save, load."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from phoebi_lib.decoders.checks import blocks, check_features, check_labels, check_number, check_values
from phoebi_lib.decoders.storage import read_state, write_state
from phoebi_lib.decoders.thresholds import NEVER, check_fallback
from phoebi_lib.devices import checked_device


class Decoder(BaseEstimator):
    """Base of all estimators on tile features.

    ``X`` is (N, T, D): N images of T tiles with D features, floating point, finite, unit norm per tile within 1e-3; a
    memory map will do and is read in blocks. ``Y`` is (N, K) with 0 and 1, classes in the order of the data set's
    codes. The number of tiles may differ between calls.

    The constructor only stores its parameters. ``fit`` learns everything whose name ends in ``_`` and forgets what an
    earlier ``fit`` or ``calibrate`` learned. ``calibrate`` chooses ``thresholds_`` (K,) on images kept out of training.
    ``predict`` says present where score > threshold, strictly, in float64.

    A class without a training image is warned about and never predicted. Labels in which no image holds any class are
    refused, by the baselines too: there is nothing to learn from them, and every estimator sees the same labels.

    A subclass implements ``_fit(X, Y)``; ``_score_tiles(block)``, (n, T, D) float64 -> (n, T, K); and
    ``_choose_thresholds(scores, Y)``, (N, K) -> (K,), for which :mod:`phoebi_lib.decoders.thresholds` has the two
    published rules. It may override ``aggregate``, and names what it learns in ``_arrays`` (saved as tensors) and
    ``_facts`` (saved as JSON), in any order. One that chooses among what it has trained sets ``_needs_validation`` and
    implements ``_fit(X, Y, X_val, Y_val)``.
    """

    _arrays: tuple[str, ...] = ()
    _facts: tuple[str, ...] = ()
    _needs_validation = False

    def fit(self, X: np.ndarray, Y: np.ndarray, *, validation: tuple[np.ndarray, np.ndarray] | None = None) -> Self:
        """Learn from training images.

        ``validation=(X_val, Y_val)``, images kept out of training, is required by the estimators that choose on it
        (:class:`~phoebi_lib.baselines.LinearProbe`, :class:`~phoebi_lib.baselines.AttentionMIL`) and is ignored, hence
        not looked at, by the decoders.

        Raises ``TypeError`` or ``ValueError`` naming what was found for features, labels or parameters out of range;
        ``ValueError`` too where no image holds any class, or where a needed ``validation`` is missing.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self._check_parameters()
        X = check_features(X, self._owner)
        Y = check_labels(Y, self._owner, len(X))
        if not Y.any():
            raise ValueError(f"{self._owner}: Y is zero throughout, no image holds any class; pass the images' labels")
        kept_out = self._check_validation(validation, X, Y) if self._needs_validation else ()
        if "device" in self._get_param_names():
            checked_device(self.device)
        check_values(X, self._owner)
        self._fit(X, Y, *kept_out)
        self.present_ = Y.any(axis=0)
        self.n_classes_ = Y.shape[1]
        # set last: a fit that fails half-way leaves an estimator that says it is not fitted
        self.n_features_in_ = X.shape[2]
        return self

    def tile_scores(self, X: np.ndarray) -> np.ndarray:
        """Return the scores of single tiles, (N, T, K) float64; :meth:`aggregate` turns them into image scores."""
        X = self._check_scorable(X)
        scores = np.empty((*X.shape[:2], self.n_classes_))
        for rows, block in blocks(X, self._owner):
            scores[rows] = self._score_tiles(block)
        return scores

    def aggregate(self, tile_scores: np.ndarray) -> np.ndarray:
        """Return image scores (N, K) from tile scores (N, T, K): their mean over tiles."""
        return tile_scores.mean(axis=1)

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return image scores, (N, K) float64, higher = more likely present.

        Raises ``NotFittedError`` before ``fit``.
        """
        X = self._check_scorable(X)
        scores = np.empty((len(X), self.n_classes_))
        for rows, block in blocks(X, self._owner):
            scores[rows] = self.aggregate(self._score_tiles(block))
        return scores

    def calibrate(self, X: np.ndarray, Y: np.ndarray) -> Self:
        """Choose ``thresholds_`` (K,) float64 on images kept out of training, normally the validation part."""
        return self.calibrate_scores(self.decision_function(X), Y)

    def calibrate_scores(self, scores: np.ndarray, Y: np.ndarray) -> Self:
        """As :meth:`calibrate`, from image scores (N, K) that are already at hand.

        Raises ``ValueError`` for scores of another shape or that are not finite, and for labels as in :meth:`fit`,
        except that a class, or all of them, may lack positives.
        """
        scores = self._check_scores(scores)
        thresholds = self._choose_thresholds(scores, check_labels(Y, self._owner, len(scores), self.n_classes_))
        self.thresholds_ = np.where(self.present_, thresholds, NEVER)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return presence, (N, K) int64 of 0 and 1. Raises ``NotFittedError`` before ``calibrate``."""
        return self.predict_scores(self.decision_function(X))

    def predict_scores(self, scores: np.ndarray) -> np.ndarray:
        """As :meth:`predict`, from image scores (N, K) that are already at hand.

        Raises ``ValueError`` for scores of another shape or that are not finite.
        """
        scores = self._check_scores(scores)
        if not hasattr(self, "thresholds_"):
            raise NotFittedError(f"{self._owner} has no thresholds yet; call calibrate(X, Y) on validation images")
        return (scores > self.thresholds_).astype(np.int64)

    def save(self, folder: str | Path) -> None:
        """Write parameters, learned state and thresholds to ``folder`` as safetensors and JSON, all or nothing."""
        self._check_fitted()
        arrays = {name: getattr(self, name) for name in (*self._arrays, "present_")}
        if hasattr(self, "thresholds_"):
            arrays["thresholds_"] = self.thresholds_
        facts = {name: getattr(self, name) for name in (*self._facts, "n_classes_", "n_features_in_")}
        write_state(Path(folder), self._owner, self.get_params(deep=False), arrays, facts)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what :meth:`save` wrote; ``Decoder.load`` reads any kind.

        Raises ``ValueError`` for another class, unknown parameters or damaged state.
        """
        kinds = {kind.__name__: kind for kind in (cls, *_descendants(cls))}
        name, parameters, arrays, facts = read_state(Path(folder), tuple(kinds))
        kind = kinds[name]
        expected = set(kind._get_param_names())
        if set(parameters) != expected:
            raise ValueError(
                f"{folder}: parameters of {name} must be {sorted(expected)}; found {sorted(parameters)}; "
                "it was saved by another version, fit it again"
            )
        wanted = {*kind._arrays, "present_"}
        if set(arrays) - {"thresholds_"} != wanted or set(facts) != {*kind._facts, "n_classes_", "n_features_in_"}:
            raise ValueError(f"{folder}: the state of {name} is incomplete; found {sorted(arrays)} and {sorted(facts)}")
        # JSON has lists only; a parameter of several values is a tuple
        decoder = kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()})
        decoder._check_parameters()
        for key, value in {**facts, **arrays}.items():
            setattr(decoder, key, value)
        decoder._check_state(str(folder))
        return decoder

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_features_in_"):
            raise NotFittedError(f"{self._owner} is not fitted yet; call fit(X, Y) first")

    def _check_scorable(self, X: np.ndarray) -> np.ndarray:
        self._check_fitted()
        return check_features(X, self._owner, self.n_features_in_)

    def _check_validation(self, validation: Any, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``validation`` checked as ``X`` and ``Y`` are, and for the same D and K."""
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            found = "none" if validation is None else f"a {type(validation).__name__}"
            raise ValueError(
                f"{self._owner} chooses among what it trains by F1 on images kept out of training; call "
                f"fit(X, Y, validation=(X_val, Y_val)) with the validation part; found {found}"
            )
        owner = f"{self._owner}, validation"
        X_val = check_features(validation[0], owner)
        if X_val.shape[2] != X.shape[2]:
            raise ValueError(
                f"{owner}: X has {X_val.shape[2]} features per tile, but the training images have {X.shape[2]}; "
                "use features of the same encoder"
            )
        Y_val = check_labels(validation[1], owner, len(X_val))
        if Y_val.shape[1] != Y.shape[1]:
            raise ValueError(f"{owner}: Y has {Y_val.shape[1]} classes, but the training images have {Y.shape[1]}")
        if not Y_val.any():
            raise ValueError(f"{owner}: Y is zero throughout, no image holds any class to choose on")
        check_values(X_val, owner)
        return X_val, Y_val

    def _check_scores(self, scores: np.ndarray) -> np.ndarray:
        """Return ``scores`` as float64. Raises ``ValueError`` unless they are (N, K) of the fitted K, and finite."""
        self._check_fitted()
        scores = np.asarray(scores, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.n_classes_ or not len(scores):
            raise ValueError(
                f"{self._owner}: scores must have shape (N, {self.n_classes_}), images by the classes of fit; "
                f"found shape {scores.shape}"
            )
        bad = ~np.isfinite(scores)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise ValueError(
                f"{self._owner}: scores must be finite, but scores[{row}, {column}] is {scores[row, column]}"
            )
        return scores

    def _check_parameters(self) -> None:
        parameters = self.get_params(deep=False)
        if "random_state" in parameters:
            check_number(self._owner, "random_state", self.random_state, 0, integer=True)
        if "fallback" in parameters:
            check_fallback(self._owner, self.fallback)

    def _check_state(self, where: str) -> None:
        """Raise ``ValueError`` where loaded arrays do not fit the loaded sizes, or hold values that are not numbers."""
        for name in ("n_classes_", "n_features_in_"):
            check_number(where, name, getattr(self, name), 1, integer=True)
        shapes = {"present_": (self.n_classes_,), "thresholds_": (self.n_classes_,), **self._shapes()}
        for name, shape in shapes.items():
            value = getattr(self, name, None)
            if value is None:
                continue
            if value.shape != shape or np.isnan(value).any():
                raise ValueError(f"{where}: {name} must be a {shape} array of numbers; found shape {value.shape}")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape each array of ``_arrays`` must have."""
        return {}

    def _warn_absent(self, Y: np.ndarray) -> None:
        for k in np.flatnonzero(~Y.any(axis=0)):
            warnings.warn(f"{self._owner}: class {k} is in no training image and is never predicted", stacklevel=4)

    def _fit(self, X: np.ndarray, Y: np.ndarray, *validation: np.ndarray) -> Any:
        raise TypeError(f"{self._owner} must define _fit(X, Y)")

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        raise TypeError(f"{self._owner} must define _score_tiles(block): (n, T, D) float64 -> (n, T, K) float64")

    def _choose_thresholds(self, scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
        raise TypeError(f"{self._owner} must define _choose_thresholds(scores, Y) -> (K,)")


def _descendants(kind: type) -> list[type]:
    return [found for child in kind.__subclasses__() for found in (child, *_descendants(child))]
