"""The audit of the data, the splits and the counts (D3, D4, D5, D13, D19, D28, D44, D45)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from phoebi_lib.catalogue import COMBINATIONS
from phoebi_lib.decoders.base import Decoder
from phoebi_lib.decoders.thresholds import grid_thresholds, quantile_thresholds
from phoebi_lib.label_only import constant_scores
from phoebi_lib.manifest import rows_by_combination
from phoebi_lib.metrics import sample_f1
from phoebi_lib.paper import cells, quoted
from phoebi_lib.progress import track
from phoebi_lib.splits import PARTITION_SEEDS, select_heldout, shuffled_split, shuffled_tenths
from phoebi_lib.studies.audit import exact, with_margin

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.pool import Pool

BLOCKS = 4  # an image gives BLOCKS x BLOCKS medians per channel


class MeanLogistic(Decoder):
    """Logistic regression per species on an image's mean feature: a flexible reader, for the leak studies only.

    Features are standardised, then fitted with scikit-learn's penalty ``C``. As the logit is linear, the mean of tile
    logits is the logit of the mean feature. Thresholds are those of ChannelGroup.
    """

    _arrays = ("bias_", "weight_")

    def __init__(self, C: float = 1.0, random_state: int = 0):
        self.C = C
        self.random_state = random_state

    def aggregate(self, tile_scores: np.ndarray) -> np.ndarray:
        """Return image scores (N, K) in 0..1 from tile logits (N, T, K)."""
        return 1.0 / (1.0 + np.exp(-tile_scores.mean(axis=1).clip(-500, 500)))

    def _fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        means = mean_features(X)
        self.weight_, self.bias_ = np.zeros((Y.shape[1], X.shape[2])), np.full(Y.shape[1], -500.0)
        for k in np.flatnonzero(Y.any(axis=0)):
            if Y[:, k].all():
                self.bias_[k] = 500.0
                continue
            model = make_pipeline(StandardScaler(), LogisticRegression(C=self.C, max_iter=1000))
            scaler, regression = (step for _, step in model.fit(means, Y[:, k]).steps)
            self.weight_[k] = regression.coef_[0] / scaler.scale_
            self.bias_[k] = regression.intercept_[0] - self.weight_[k] @ scaler.mean_

    def _score_tiles(self, block: np.ndarray) -> np.ndarray:
        return block @ self.weight_.T + self.bias_

    def _choose_thresholds(self, scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return grid_thresholds(scores, Y)


def mean_features(X: np.ndarray) -> np.ndarray:
    """Return the mean over tiles of features (N, T, D), (N, D) float64."""
    return np.asarray(X).mean(axis=1, dtype=np.float64)


def nearest_rows(pool: Pool, train: np.ndarray, asked: np.ndarray, **facts: Any) -> pd.DataFrame:
    """Return one row per image of ``asked`` that calls the species of its nearest training image (mean feature).

    Columns as :func:`~phoebi_lib.studies.audit.with_margin`, and ``sibling``: whether the nearest image is another crop
    of the same frame.
    """
    bank = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(mean_features(pool.take(train)))
    nearest = train[bank.kneighbors(mean_features(pool.take(asked)), return_distance=False)[:, 0]]
    chosen = pool.manifest.iloc[asked].reset_index(drop=True)
    found = pool.manifest.iloc[nearest].reset_index(drop=True)
    labels, called = pool.Y[asked], pool.Y[nearest]
    table: dict[str, Any] = {"id": chosen["path"], "combination": chosen["combination"], "frame": chosen["frame"]}
    for k, code in enumerate(pool.codes):
        table |= {f"y_{code}": labels[:, k], f"pred_{code}": called[:, k]}
    same = (chosen["combination"] == found["combination"]) & (chosen["frame"] == found["frame"])
    rows = pd.DataFrame(table).assign(sibling=same.astype(float), evidence=pool.evidence, **facts)
    return with_margin(rows, pool.codes)


def divisions(manifest: pd.DataFrame, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return two shuffles of a manifest into train, validation and test: by image (published) and by frame."""
    rows = np.concatenate(list(rows_by_combination(manifest).values()))
    part = manifest.iloc[rows]
    frames = part.groupby(["combination", "frame"], sort=False).ngroup().to_numpy()
    whole = shuffled_tenths(int(frames.max()) + 1, seed)
    by_frame = {name: rows[np.isin(frames, chosen)] for name, chosen in whole.items()}
    return {"shuffled by image": shuffled_split(manifest, seed), "shuffled by frame": by_frame}


def background_medians(dataset: Dataset, rows: Iterable[int]) -> np.ndarray:
    """Return what an image tells besides its cells: medians of ``BLOCKS`` x ``BLOCKS`` blocks per channel, (N, 48).

    Cells cover a small part of a block, so its median is the level of the background. Every fourth pixel is read.
    """
    found = []
    for i in track(list(rows), desc="background"):
        frame = dataset.read(int(i))[:, ::4, ::4]
        side = min(frame.shape[1:]) // BLOCKS
        blocks = frame[:, : BLOCKS * side, : BLOCKS * side].reshape(3, BLOCKS, side, BLOCKS, side)
        found.append(np.median(blocks, axis=(2, 4)).ravel())
    return np.array(found)


def probe(features: np.ndarray, names: Sequence[Any], frames: Sequence[int], folds: int = 5) -> np.ndarray:
    """Return, per image, 1.0 where a linear discriminant names the right one of ``names``, else 0.0.

    Each image is asked by a model that saw none of the images with its frame number, so that siblings never help. The
    covariance is shrunk as Ledoit and Wolf do; scikit-learn chooses how much.
    """
    names, frames = np.asarray(names).astype(str), np.asarray(frames)
    model = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"))
    division = GroupKFold(min(folds, len(np.unique(frames))))
    return (cross_val_predict(model, features, names, groups=frames, cv=division) == names).astype(float)


def validation_draws(
    names: np.ndarray, scores: np.ndarray, Y: np.ndarray, *, stratified: bool, repeats: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return thresholds (repeats, K) of as many random tenths, and the images a combination got in each, (repeats, C).

    ``names`` (N,) combinations, ``scores`` and ``Y`` (N, K). Stratified: the same number from each combination (at
    least one); else any tenth, as published. Thresholds are the 5 % quantiles of the positives' scores.
    """
    rng = np.random.default_rng(seed)
    levels, group = np.unique(names, return_inverse=True)
    members = [np.flatnonzero(group == g) for g in range(len(levels))]
    thresholds, counts = [], []
    for _ in range(repeats):
        if stratified:
            drawn = [rng.choice(rows, max(1, round(0.1 * len(rows))), replace=False) for rows in members]
            chosen = np.concatenate(drawn)
        else:
            chosen = rng.permutation(len(names))[: int(0.1 * len(names))]
        thresholds.append(quantile_thresholds(scores[chosen], Y[chosen]))
        counts.append(np.bincount(group[chosen], minlength=len(levels)))
    return np.array(thresholds), np.array(counts)


def f1_at(scores: np.ndarray, Y: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the mean per-sample F1 at each line of ``thresholds`` (R, K), (R,)."""
    return np.array([sample_f1(Y, (scores > line).astype(int)).mean() for line in thresholds])


def validation_counts(manifest: pd.DataFrame, division: dict[str, np.ndarray]) -> pd.Series:
    """Return how many validation images of ``division`` each trained-on combination has, zero included."""
    trained = manifest["combination"].iloc[np.concatenate([division["train"], division["val"]])].unique()
    counts = manifest["combination"].iloc[division["val"]].value_counts()
    return counts.reindex(sorted(trained), fill_value=0)


def quoted_lines() -> list[dict[str, Any]]:
    """Return the range quoted for the fine-tunes beside what the cells of Table 3 give (D19); no image is involved."""
    table = cells(3)
    tuned = table[(table["block"] == "fine-tuned") & ~table["row"].str.contains("Florence")]
    low = tuned.groupby("column")["value"].min()
    line = quoted().set_index("id").loc["fine_tune_in_dist"]
    printed = {"paper": line["low"], "digits": int(line["digits"])}
    return [
        exact("lowest F1 of a fine-tune, without Florence-2", "in_dist_f1", low["in_dist_f1"], **printed),
        exact("lowest F1 of a fine-tune, without Florence-2", "random_f1", low["random_f1"], **printed),
    ]


def heldout_lines() -> list[dict[str, Any]]:
    """Return what follows from the held-out lists alone: pairs and distinct combinations (D13), by how many seeds."""
    held = pd.Series([name for seed in PARTITION_SEEDS for name in select_heldout(COMBINATIONS, seed)[0]])
    times = held.value_counts()
    lines = [exact("held-out pairs of partition and combination", "count", len(held), digits=0),
             exact("different combinations among them", "count", len(times), digits=0)]  # fmt: skip
    for n in sorted(times.unique(), reverse=True):
        lines.append(exact(f"combinations held out {n} times", "count", int((times == n).sum()), digits=0))
    return lines


def singletons() -> dict[int, str]:
    """Return the held-out single species of each published partition, which therefore lacks its pure culture (D28)."""
    return {seed: next(name for name in select_heldout(COMBINATIONS, seed)[0] if "_" not in name)
            for seed in PARTITION_SEEDS}  # fmt: skip


def constant_lines(
    published: pd.DataFrame, labels: np.ndarray, divided: dict[int, dict[str, np.ndarray]]
) -> list[dict]:
    """Return the constant predictor's scores on the published partitions, each and averaged, beside Table 6 (D45)."""
    printed = cells(6).set_index(["row", "column"])
    row = "All-present predictor (constant)"
    names = {("val", "f1"): "in_dist_val_f1", ("test", "f1"): "heldout_f1", ("test", "macro_f1"): "heldout_macro_f1"}
    lines = []
    for (part, metric), column in names.items():
        paper = printed.loc[(row, column)]
        common = {"paper": paper["value"], "digits": int(paper["digits"])}
        values = [constant_scores(labels[divided[seed][part]])[metric] for seed in PARTITION_SEEDS]
        for seed, value in zip(PARTITION_SEEDS, values, strict=True):
            n = {"n_images": len(divided[seed][part]),
                 "n_combinations": published["combination"].iloc[divided[seed][part]].nunique()}  # fmt: skip
            lines.append(exact("constant predictor", column, value, partition=f"lco-{seed}", **common, **n))
        lines.append(exact("constant predictor, mean of three partitions", column, float(np.mean(values)), **common))
    return lines


def margin_lines(mean_constant: dict[str, float]) -> list[dict[str, Any]]:
    """Return the margins that Table 6 prints, against the printed constant and against the mean of three (D45)."""
    printed = cells(6).set_index(["row", "column"])
    constant = "All-present predictor (constant)"
    lines = []
    for row in ("SimplexUnmix (simplex unmix), 30 epochs", "ProtoMatch (proto match), closed-form",
                "ChannelGroup (UFG channel-grouped), 30 epochs"):  # fmt: skip
        for column, mean in mean_constant.items():
            value, single = printed.loc[(row, column), "value"], printed.loc[(constant, column), "value"]
            lines.append(exact(f"{row}, against its own constants", f"{column}_margin", value - mean,
                               paper=round(value - single, 3), digits=3))  # fmt: skip
    return lines
