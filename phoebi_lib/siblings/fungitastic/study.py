"""One encoder on all of FungiTastic's splits: each picture embedded once, each head trained once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.special import softmax

from phoebi_lib.siblings.embedding import features_of
from phoebi_lib.siblings.fungitastic import baselines, chronological, costs, fusion, layout, metrics
from phoebi_lib.siblings.fungitastic.fungiclef import read_captions
from phoebi_lib.siblings.run import SiblingRun

_SPLITS = (("all", "train", "closed"), ("all", "val", "open"), ("all", "test", "open"), ("all", "dna", "closed"),
           ("FewShot", "train", "closed"), ("FewShot", "val", "closed"), ("FewShot", "test", "closed"))  # fmt: skip
#: Steps of a probe beside the published 30 epochs, which are hardly any on a few images.
UPDATES = 2000


@dataclass(frozen=True)
class Split:
    """Rows of a table with their features (N, D) and labels (N,), -1 for unknown."""

    table: pd.DataFrame
    X: np.ndarray
    y: np.ndarray


@dataclass
class Study:
    """Tables, features and heads of a run. ``size`` is that of the pictures on disk: 300, 500 or "fullsize".

    Raises ValueError or FileNotFoundError, on first use, for a split that is missing or damaged.
    """

    run: SiblingRun
    size: int | str = 300
    _probes: dict = field(default_factory=dict)

    @cached_property
    def _found(self) -> dict[tuple[str, str, str], Split]:
        tables = {key: layout.read_split(self.run.root, *key) for key in _SPLITS}
        files = {key: layout.image_files(self.run.root, tables[key], *key[:2], self.size) for key in _SPLITS}
        features = self.run.features(list(dict.fromkeys(name for names in files.values() for name in names)))
        return {key: Split(tables[key], features_of(features, files[key], " ".join(key)), layout.labels(tables[key]))
                for key in _SPLITS}  # fmt: skip

    def split(self, subset: str, split: str, task: str = "closed") -> Split:
        """Return a split; closed val and test are the rows of the open ones that the closed table names.

        In an open split every class without a training picture is -1. Raises ValueError for a closed row that the open
        table lacks or gives another class.
        """
        train = self._found[subset, "train", "closed"].y
        whole = self._found.get((subset, split, task))
        if whole is None:
            table, whole = layout.read_split(self.run.root, subset, split), self._found[subset, split, "open"]
            rows = pd.Index(whole.table["filename"]).get_indexer(table["filename"])
            if (rows < 0).any():
                raise ValueError(f"{layout.source(table)}: {table['filename'][rows < 0].iloc[0]} is not in "
                                 f"{layout.source(whole.table)}, which must hold every closed row")  # fmt: skip
            y = layout.labels(table)
            if (other := metrics.fold_unknown(y, train) != metrics.fold_unknown(whole.y[rows], train)).any():
                i = other.argmax()
                raise ValueError(f"{table['filename'].iloc[i]} has category_id {y[i]} in {layout.source(table)} but "
                                 f"{whole.y[rows][i]} in {layout.source(whole.table)}; correct one")  # fmt: skip
            return Split(table, whole.X[rows], y)
        return Split(whole.table, whole.X, metrics.fold_unknown(whole.y, train) if task == "open" else whole.y)

    def n_classes(self, subset: str = "all") -> int:
        """Return C, the number of training classes. Raises ValueError for a single one."""
        train = self.split(subset, "train")
        if not train.y.any():
            raise ValueError(f"{layout.source(train.table)}: training has one class only; the tasks need two or more")
        return int(train.y.max()) + 1

    def majority(self, subset: str = "all") -> int:
        """Return the largest training class, the lowest of equals."""
        return int(np.bincount(self.split(subset, "train").y).argmax())

    def probe(self, subset: str = "all", updates: int = UPDATES) -> baselines.LinearProbe:
        """Return a subset's linear probe, trained once; on raw features, of FewShot on those of unit norm."""
        if (subset, updates) not in self._probes:
            train = self.split(subset, "train")
            X = baselines.prepare(train.X) if subset == "FewShot" else train.X
            probe = baselines.LinearProbe(min_updates=updates, seed=self.run.seed)
            self._probes[subset, updates] = probe.fit(X, train.y, self.n_classes(subset))
        return self._probes[subset, updates]

    def few_shot(self, method: str, split: str = "test", *, quantise_uint8: bool = False) -> np.ndarray:
        """Return scores (N, C) of ``1-NN`` (1 for the neighbour's class, so no Top-3), ``centroid`` or ``linear``."""
        train, test = self.split("FewShot", "train"), self.split("FewShot", split)
        X_train, X = (baselines.prepare(part.X, quantise_uint8=quantise_uint8) for part in (train, test))
        n_classes = self.n_classes("FewShot")
        if method == "1-NN":
            return np.eye(n_classes)[baselines.nearest_neighbour(X_train, train.y, X)]
        if method == "centroid":
            return baselines.centroid_scores(baselines.class_means(X_train, train.y, n_classes), X)
        if method != "linear":
            raise ValueError(f"unknown method {method!r}; known: 1-NN, centroid, linear")
        return self.probe("FewShot").logits(X)

    def calibrated(self, split: str = "test", task: str = "closed") -> np.ndarray:
        """Return the probe's probabilities at the temperature fitted on closed validation images, (N, C).

        Validation images of a class without a training picture are no part of that fit.
        """
        scale = self._scale(self.probe().logits)
        return softmax(scale * self.probe().logits(self.split("all", split, task).X), axis=1)

    def _scale(self, logits: Callable[[np.ndarray], np.ndarray]) -> float:
        # a class that training lacks has no probability whose likelihood could be fitted
        val, n = self.split("all", "val"), self.n_classes()
        if not (known := val.y < n).any():
            raise ValueError(f"{layout.source(val.table)}: no image of a training class to fit the temperature on")
        return 1 / costs.temperature(logits(val.X[known]), val.y[known])

    def open_scores(self, split: str = "test") -> dict[str, np.ndarray]:
        """Return MSP, MLS and NM of an open split; see :func:`~.baselines.open_scores`."""
        train, part = self.split("all", "train"), self.split("all", split, "open")
        means = baselines.class_means(train.X, train.y, self.n_classes())
        return baselines.open_scores(self.probe().logits(part.X), part.X, means)

    def open_set(self) -> pd.DataFrame:
        """Return a row per score: the metrics on open test, and F1 at the threshold chosen on open validation."""
        val, test, n = self.split("all", "val", "open"), self.split("all", "test", "open"), self.n_classes()
        chosen, likeliest = self.open_scores("val"), self.probe().logits(test.X).argmax(axis=1)
        for part in (val, test):
            if (share := (part.y != layout.UNKNOWN).mean()) in (0, 1):
                raise ValueError(f"{layout.source(part.table)}: an open set needs known and novel images; "
                                 f"all {len(part.y)} here are {'known' if share else 'novel'}")  # fmt: skip
        known, rows = test.y != layout.UNKNOWN, {}
        for name, score in self.open_scores().items():
            answers = np.where(score < metrics.choose_threshold(chosen[name], val.y), layout.UNKNOWN, likeliest)
            rows[name] = metrics.open_set(score[known], score[~known]) | metrics.open_f1(test.y, answers, n)
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("score").reset_index()

    def chronological(self, adapter: str) -> pd.DataFrame:
        """Return the rows of closed test under an adapter; cosines are scaled as validation images ask for."""
        train, test = self.split("all", "train"), self.split("all", "test")
        prototypes = baselines.class_means(baselines.prepare(train.X), train.y, self.n_classes())
        scale = self._scale(lambda X: baselines.centroid_scores(prototypes, X))
        start = (train.X, train.y)
        return chronological.chronological(start, test.table, test.X, self.n_classes(), adapter, scale=scale)

    def logits(self, classifier: object = None) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return image and text logits of closed test, by filename; ``classifier`` as in ``fusion.text_logits``."""
        train, test = self.split("all", "train"), self.split("all", "test")
        image = pd.DataFrame(self.probe().logits(test.X), index=test.table["filename"])
        captions = [read_captions(self.run.root, part.table) for part in (train, test)]
        return image, fusion.text_logits(captions[0], train.y, captions[1], classifier)

    def with_metadata(self, attributes: str, variant: str = "ours") -> np.ndarray:
        """Return the calibrated probabilities of closed test weighted by attributes such as "H+M"."""
        train, test = self.split("all", "train"), self.split("all", "test")
        return fusion.metadata_prior(train.table, train.y, test.table, self.calibrated(), attributes, variant)
