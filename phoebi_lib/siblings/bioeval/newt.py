"""NeWT: 164 yes/no questions, each with an SVM of its own."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from scipy.stats import loguniform
from sklearn.model_selection import RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import SVC

from phoebi_lib.siblings.bioeval.geometry import centred
from phoebi_lib.siblings.bioeval.results import result
from phoebi_lib.siblings.embedding import features_of

SPACE = {"svc__C": loguniform(1e-3, 10), "svc__gamma": loguniform(1e-4, 1e-3),
         "svc__kernel": ["rbf", "linear", "sigmoid", "poly"]}  # fmt: skip
FOLDS = 5
SEARCH, FAST = "random search", "newt_fast"


def fit_svm(X: np.ndarray, y: np.ndarray, *, draws: int = 100, seed: int = 0):
    """Return an SVM fitted on features (N, D) and labels (N,), and which one it is.

    The published search draws C, gamma and kernel ``draws`` times, takes the best accuracy of five stratified folds and
    fits again on all rows. Without draws, or where the folds cannot be filled, it is ``newt_fast``: linear with C = 1.
    """
    counts = np.unique(y, return_counts=True)[1]
    if not draws or counts.max() < FOLDS or counts.min() < 2:
        return SVC(kernel="linear", C=1.0).fit(X, y), FAST
    search = RandomizedSearchCV(make_pipeline(StandardScaler(), SVC()), SPACE, n_iter=draws, cv=FOLDS,
                                scoring="accuracy", random_state=seed)  # fmt: skip
    with warnings.catch_warnings():
        # a class with two to four rows is missing from some of the folds, here as in the published code
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        return search.fit(X, y), SEARCH


def newt(table: pd.DataFrame, features: pd.DataFrame, *, draws: int = 100, runs: int = 3,
         seed: int = 0) -> pd.DataFrame:  # fmt: skip
    """Return one row per test image and run: the columns of ``table`` with ``prediction, classifier, run``.

    Args:
        table: from :func:`~phoebi_lib.siblings.bioeval.layout.newt`.
        features: raw, indexed by path; of unit norm first, then centred on the task's training mean and normed again.
        draws: of the random search; 0 for ``newt_fast`` everywhere.
        runs: searches with seeds from ``seed`` on.

    Raises:
        ValueError: a task without a test image or with one class in training (named), or unusable features.
    """
    parts = []
    for task, rows in table.groupby("task", sort=True):
        train, test = rows[rows["split"] == "train"], rows[rows["split"] == "test"]
        if train["label"].nunique() < 2 or test.empty:
            raise ValueError(f"NeWT task {task!r}: expected training images of both classes and a test image")
        X, Z = (normalize(features_of(features, part["path"].tolist(), "NeWT")) for part in (train, test))
        mean = X.mean(axis=0)
        X, Z = centred(X, mean), centred(Z, mean)
        for run in range(seed, seed + runs):
            svm, classifier = fit_svm(X, train["label"].to_numpy(), draws=draws, seed=run)
            parts.append(test.assign(prediction=svm.predict(Z), classifier=classifier, run=run))
    return pd.concat(parts, ignore_index=True)


def newt_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies, 0..1, of the rows of :func:`newt`.

    ``micro`` pools the test images of all tasks, as BioCLIP 2 does; ``macro`` is the mean over tasks, as the data set's
    authors have it. Further lines give each cluster, and the ``ml_age`` tasks, the public stand-in for life stage.
    """
    rows = rows.assign(right=rows["label"] == rows["prediction"])
    metrics = {"micro accuracy": rows.groupby("run")["right"].mean(),
               "macro accuracy": rows.groupby(["run", "task"])["right"].mean().groupby("run").mean()}  # fmt: skip
    subsets = {f"micro accuracy, {name}": part for name, part in rows.groupby("cluster")}
    if (age := rows["task"].str.startswith("ml_age_")).any():
        subsets["micro accuracy, ml_age tasks"] = rows[age]
    metrics |= {name: part.groupby("run")["right"].mean() for name, part in subsets.items()}
    variant = "ours" if (rows["classifier"] == FAST).all() else "paper"
    n_fast = rows.loc[rows["classifier"] == FAST, "task"].nunique()
    sizes = {name: part["path"].nunique() for name, part in subsets.items()}
    return pd.DataFrame([
        result("NeWT", variant, metric, values, sizes.get(metric, rows["path"].nunique()), n_fast_tasks=n_fast)
        for metric, values in metrics.items()
    ])  # fmt: skip
