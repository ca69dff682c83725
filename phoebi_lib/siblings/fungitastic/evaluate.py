"""One encoder on all of FungiTastic's splits: each picture embedded once, each head trained once, a line per task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.metrics.pairwise import cosine_similarity

from phoebi_lib.decoders.checks import check_choice
from phoebi_lib.siblings.embedding import features_of
from phoebi_lib.siblings.fungitastic import baselines, chronological, costs, layout, metrics, segmentation
from phoebi_lib.siblings.fungitastic.fungiclef import by_observation, class_or_unknown, read_captions
from phoebi_lib.siblings.run import SiblingRun
from phoebi_lib.siblings.vectors import class_means, unit

_SPLITS = (("all", "train", "closed"), ("all", "val", "open"), ("all", "test", "open"), ("all", "dna", "closed"),
           ("FewShot", "train", "closed"), ("FewShot", "val", "closed"), ("FewShot", "test", "closed"),
           ("all", "val", "closed"), ("all", "test", "closed"))  # fmt: skip
_Line = tuple[str, str, str, float, float, int]


@dataclass
class Study:
    """Tables, features and heads of a run. ``size`` is that of the pictures on disk: 300, 500 or "fullsize".

    ``broken_captions`` names pictures that go on without a caption, as sixteen do in the published code.

    Raises ValueError or FileNotFoundError, on first use, for a split that is missing or damaged, or for a closed row
    that the open table lacks or gives another class.
    """

    run: SiblingRun
    size: int | str = 300
    broken_captions: tuple[str, ...] = ()
    _probes: dict = field(default_factory=dict)

    @cached_property
    def _found(self) -> dict[tuple[str, str, str], layout.Split]:
        tables = {key: layout.read_split(self.run.root, *key) for key in _SPLITS}
        files = {key: layout.image_files(self.run.root, tables[key], *key[:2], self.size) for key in _SPLITS}
        features = self.run.features(list(dict.fromkeys(name for names in files.values() for name in names)))
        X = {key: features_of(features, files[key], " ".join(key)) for key in _SPLITS}
        found = {key: layout.Split(table, X[key], layout.labels(table)) for key, table in tables.items()}
        train = found["all", "train", "closed"].y
        for split in ("val", "test"):
            closed, whole = found["all", split, "closed"], found["all", split, "open"]
            y = metrics.fold_unknown(whole.y, train)
            found["all", split, "open"] = whole._replace(y=y)
            other = pd.Series(y, whole.table["filename"], dtype="Int64").reindex(closed.table["filename"])
            if (bad := (other != metrics.fold_unknown(closed.y, train)).fillna(True).to_numpy(bool)).any():
                i, (here, there) = bad.argmax(), (layout.source(part.table) for part in (closed, whole))
                raise ValueError(f"{other.index[i]} has category_id {closed.y[i]} in {here} but {other.iloc[i]} in "
                                 f"{there}, which must hold every closed row; correct one")  # fmt: skip
        return found

    def split(self, subset: str, split: str, task: str = "closed") -> layout.Split:
        """Return a split; in an open one every class without a training picture is -1. ValueError for no such one."""
        check_choice("FungiTastic", "split", (subset, split, task), _SPLITS)
        return self._found[subset, split, task]

    def n_classes(self, subset: str = "all") -> int:
        """Return C, the number of training classes."""
        return int(self.split(subset, "train").y.max()) + 1

    def majority(self, subset: str = "all") -> int:
        """Return the largest training class, the lowest of equals."""
        return int(np.bincount(self.split(subset, "train").y).argmax())

    def centroids(self, subset: str = "all") -> np.ndarray:
        """Return the mean unit feature of each training class, (C, D)."""
        train = self.split(subset, "train")
        return class_means(unit(train.X), train.y, self.n_classes(subset))

    def probe(self, subset: str = "all", updates: int = 2000) -> baselines.LinearProbe:
        """Return a subset's linear probe, trained once; on raw features, of FewShot on those of unit norm.

        ``updates``: least number of steps; the published 30 epochs are hardly any on a few images.
        """
        if (subset, updates) not in self._probes:
            train = self.split(subset, "train")
            probe = baselines.LinearProbe(min_updates=updates, seed=self.run.seed)
            X = unit(train.X) if subset == "FewShot" else train.X
            self._probes[subset, updates] = probe.fit(X, train.y, self.n_classes(subset))
        return self._probes[subset, updates]

    def few_shot(self, method: str, split: str = "test", *, quantise_uint8: bool = False) -> np.ndarray:
        """Return scores (N, C) of ``1-NN`` (1 for the neighbour's class, so no Top-3), ``centroid`` or ``linear``."""
        check_choice("few_shot", "method", method, ("1-NN", "centroid", "linear"))
        prepared, n = baselines.as_bytes if quantise_uint8 else unit, self.n_classes("FewShot")
        train, X = self.split("FewShot", "train"), prepared(self.split("FewShot", split).X)
        if method == "linear":
            return self.probe("FewShot").logits(X)
        if method == "1-NN":
            return np.eye(n)[baselines.nearest_neighbour(prepared(train.X), train.y, X)]
        return cosine_similarity(X, class_means(prepared(train.X), train.y, n))

    def calibrated(self, split: str = "test", task: str = "closed") -> np.ndarray:
        """Return the probe's probabilities at the temperature fitted on closed validation images, (N, C)."""
        logits = self.probe().logits
        return softmax(self._scale(logits) * logits(self.split("all", split, task).X), axis=1)

    def _scale(self, logits: Callable[[np.ndarray], np.ndarray]) -> float:
        # a class that training lacks has no probability whose likelihood could be fitted
        val = self.split("all", "val")
        if not (known := val.y < self.n_classes()).any():
            raise ValueError(f"{layout.source(val.table)}: no image of a training class to fit the temperature on")
        return 1 / costs.temperature(logits(val.X[known]), val.y[known])

    def open_scores(self, split: str = "test") -> dict[str, np.ndarray]:
        """Return MSP, MLS and NM of an open split; see :func:`~.baselines.open_scores`."""
        train, X = self.split("all", "train"), self.split("all", split, "open").X
        return baselines.open_scores(self.probe().logits(X), X, class_means(train.X, train.y, self.n_classes()))

    def open_set(self) -> pd.DataFrame:
        """Return a row per score: the metrics on open test, and F1 at the threshold chosen on open validation."""
        val, test = (self.split("all", split, "open") for split in ("val", "test"))
        for part in (val, test):
            if (share := (part.y >= 0).mean()) in (0, 1):
                raise ValueError(f"{layout.source(part.table)}: an open set needs known and novel images; "
                                 f"all {len(part.y)} here are {'known' if share else 'novel'}")  # fmt: skip
        rows, chosen, known = [], self.open_scores("val"), test.y >= 0
        for name, score in self.open_scores().items():
            threshold = metrics.choose_threshold(chosen[name][val.y >= 0], chosen[name][val.y < 0])
            answers = np.where(score < threshold, layout.UNKNOWN, self.probe().logits(test.X).argmax(axis=1))
            found = metrics.open_set(score[known], score[~known]) | metrics.open_f1(test.y, answers, self.n_classes())
            rows.append({"score": name, **found})
        return pd.DataFrame(rows)

    def chronological(self, adapter: str) -> pd.DataFrame:
        """Return the rows of closed test under an adapter; cosines are scaled as validation images ask for."""
        train, test, centroids = self.split("all", "train"), self.split("all", "test"), self.centroids()
        scale = self._scale(lambda X: cosine_similarity(X, centroids))
        return chronological.chronological(train, test, self.n_classes(), adapter, scale)

    def logits(self, classifier: object = None) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return image and text logits of closed test, by filename; ``classifier`` as in ``baselines.text_logits``."""
        train, test = self.split("all", "train"), self.split("all", "test")
        image = pd.DataFrame(self.probe().logits(test.X), index=test.table["filename"])
        captions = [read_captions(self.run.root, part.table, self.broken_captions) for part in (train, test)]
        return image, baselines.text_logits(captions[0], train.y, captions[1], classifier)

    def with_metadata(self, attributes: str, variant: str = "ours") -> np.ndarray:
        """Return the calibrated probabilities of closed test weighted by attributes such as "H+M"."""
        train, test = self.split("all", "train"), self.split("all", "test")
        return baselines.metadata_prior(train, test, self.calibrated(), attributes, variant)

    def class_or_unknown(self) -> tuple[pd.DataFrame, np.ndarray]:
        """Return a row per observation of open test, and its answers; see :func:`~.fungiclef.class_or_unknown`."""
        train, whole = self.split("all", "train"), self.split("all", "test", "open")
        table, X = by_observation(whole.table.assign(category_id=whole.y), whole.X)
        return table, class_or_unknown(train.X, train.y, X)


def evaluate(run: SiblingRun, broken_captions: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return ``task, metric, variant, value, floor, n_images``: 0..1, costs in their unit.

    ``floor`` is what sees no picture: the largest training class, the answer that costs least if given to all images, a
    constant open-set score, a mask of the whole frame.

    Raises FileNotFoundError or ValueError for data that lack a split or are damaged, as :mod:`~.layout` says.
    """
    study = Study(run, broken_captions=broken_captions)
    return pd.DataFrame(_lines(study), columns=["task", "metric", "variant", "value", "floor", "n_images"])


def _lines(study: Study) -> Iterator[_Line]:
    def line(task: str, metric: str, variant: str, score: Callable, y: np.ndarray, answers: np.ndarray,
             constant: np.ndarray | None = None) -> _Line:  # fmt: skip
        if constant is None:
            constant = np.full(len(y), study.majority("FewShot" if task == "few-shot" else "all"))
        return task, metric, variant, float(score(y, answers)), float(score(y, constant)), len(y)

    def top1(y: np.ndarray, answers: np.ndarray) -> float:
        return np.mean(y == answers)

    # the published probe makes 30 passes and no more; 1-NN and centroid are the paper's own
    heads = [("closed set", f"linear probe, {split}", "ours", study.split("all", split).y,
              study.probe().logits(study.split("all", split).X)) for split in ("test", "dna")]  # fmt: skip
    heads += [("few-shot", name, variant, study.split("FewShot", "test").y, study.few_shot(name))
              for name, variant in (("1-NN", "paper"), ("centroid", "paper"), ("linear", "ours"))]  # fmt: skip
    for task, name, variant, y, scores in heads:
        f1 = partial(metrics.macro_f1, n_classes=scores.shape[1])
        yield line(task, f"Top-1, {name}", variant, top1, y, scores.argmax(axis=1))
        yield line(task, f"macro-F1 all, {name}", variant, f1, y, scores.argmax(axis=1))
    # scores of all images and classes are gigabytes each on the full set
    del heads, scores
    n_open = len(study.split("all", "test", "open").y)
    for row in study.open_set().itertuples():
        yield "open set", f"AUC, {row.score}", "ours", row.auc, 0.5, n_open
        yield "open set", f"TNR95, {row.score}", "ours", row.tnr95, 0.0, n_open
    for adapter, told in chronological.ADAPTERS.items():
        rows, name = study.chronological(adapter), f"Top-1, {adapter}" + " (uses labels)" * told
        yield line("chronological", name, "ours", top1, rows["label"], rows["predicted"])
    train, test, p = study.split("all", "train"), study.split("all", "test"), study.calibrated()
    y, poisonous = metrics.fold_unknown(test.y, train.y), layout.poisonous(train.table, study.n_classes())
    matrices = {"poison cost": costs.poison_costs(poisonous), "user loss": costs.user_loss_costs(poisonous)}
    for name, matrix in matrices.items():
        cost = partial(costs.mean_cost, costs=matrix)
        blind = costs.best_constant(y, matrix)
        yield line("costs", f"{name}, likeliest", "paper", cost, y, p.argmax(axis=1), blind)
        yield line("costs", f"{name}, least expected", "ours", cost, y, costs.least_expected_cost(p, matrix), blind)
    image, text = study.logits()
    for name, scores in (("text", text), ("image + text", baselines.fuse(image, text))):
        yield line("captions", f"Top-1, {name}", "reference_code", top1, test.y, scores.to_numpy().argmax(axis=1))
    del p, image, text, scores
    for variant in ("ours", "reference_code"):
        answers = study.with_metadata("H+M+S", variant).argmax(axis=1)
        yield line("metadata", "Top-1, image + H+M+S", variant, top1, test.y, answers)
    table, X = by_observation(test.table, test.X)
    answers = cosine_similarity(X, study.centroids()).argmax(axis=1)
    yield line("observations", "Top-1, centroid", "ours", top1, layout.labels(table), answers)
    table, answers = study.class_or_unknown()
    y, matrix = layout.labels(table), costs.user_loss_costs(poisonous, unknown=True)
    score, name = partial(costs.user_score, costs=matrix), "user score, SimpleShot and rejection"
    yield line("observations", name, "ours", score, y, answers, costs.best_constant(y, matrix))
    pairs = segmentation.mask_pairs(study.run.root)
    frame = {"binary IoU": float(np.mean([segmentation.merged(truth).mean() for _, truth in pairs.values()]))}
    for metric, value in segmentation.thresholded(pairs).items():
        yield "segmentation", f"{metric}, threshold", "ours", value, frame.get(metric, np.nan), len(pairs)
