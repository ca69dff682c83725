"""NeWT: 164 yes/no questions, each with an SVM of its own."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from scipy.stats import loguniform
from sklearn.model_selection import RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from phoebi_lib.decoders.checks import check_number
from phoebi_lib.siblings.bioeval.protocol import splits, summary
from phoebi_lib.siblings.vectors import centred, unit

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
        ValueError: no task or run, a task without a test image or with one class in training (named), or unusable
            features.
    """
    check_number("NeWT", "runs", runs, 1, integer=True)
    parts = []
    for task, rows in table.groupby("task"):
        (train, X), (test, Z) = splits(rows, features, f"NeWT task {task!r}")
        if train["label"].nunique() < 2:
            raise ValueError(f"NeWT task {task!r}: expected training images of both classes")
        mean = unit(X).mean(axis=0)
        X, Z = centred(unit(X), mean), centred(unit(Z), mean)
        for run in range(seed, seed + runs):
            svm, classifier = fit_svm(X, train["label"].to_numpy(), draws=draws, seed=run)
            parts.append(test.assign(prediction=svm.predict(Z), classifier=classifier, run=run))
    if not parts:
        raise ValueError(f"NeWT: no task among {len(table)} rows; expected one at least")
    return pd.concat(parts, ignore_index=True)


def newt_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies, 0..1, of the rows of :func:`newt`.

    ``micro`` pools the test images of all tasks, as BioCLIP 2 does; ``macro`` is the mean over tasks, as the data set's
    authors have it. Further lines give each cluster, and the ``ml_age`` tasks, the public stand-in for life stage.
    """
    rows = rows.assign(right=rows["label"] == rows["prediction"])
    fast = rows["classifier"] == FAST
    variant, records = "ours" if fast.all() else "paper", []
    for _, run in rows.groupby("run"):
        macro = run.groupby("task")["right"].mean().mean()
        subsets = dict(iter(run.groupby("cluster")))
        if (age := run["task"].str.startswith("ml_age_")).any():
            subsets["ml_age tasks"] = run[age]
        records += [(variant, "micro accuracy", run["right"].mean(), len(run)),
                    (variant, "macro accuracy", macro, len(run))]  # fmt: skip
        records += [(variant, f"micro accuracy, {name}", part["right"].mean(), len(part))
                    for name, part in subsets.items()]  # fmt: skip
    return summary("NeWT", records, n_fast_tasks=rows.loc[fast, "task"].nunique())
