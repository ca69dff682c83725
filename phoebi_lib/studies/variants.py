"""Variants of the decoders side by side (Appendix C.3): rows per image, then one table with paired gains."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from phoebi_lib import report
from phoebi_lib.compat import choice
from phoebi_lib.intervals import Resamples
from phoebi_lib.metrics import sample_f1
from phoebi_lib.progress import track
from phoebi_lib.scoring import mean_defined, scores
from phoebi_lib.splits import nested_dev_split
from phoebi_lib.splits import partition as split
from phoebi_lib.studies.score_rows import score_rows

if TYPE_CHECKING:
    from phoebi_lib.decoders import Decoder
    from phoebi_lib.pool import Pool
    from phoebi_lib.session import Run

_UNIT = ["partition", "combination"]


def set_aside(manifest: pd.DataFrame, parts: Mapping[str, np.ndarray], codes: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the parts of a partition with four of its trained-on combinations set aside: train, val, dev and test.

    ``dev`` holds the training and validation images of the four combinations that
    :func:`phoebi_lib.splits.nested_dev_split` draws; ``train`` and ``val`` are without them. All are row positions.
    """
    names = manifest["combination"].to_numpy()
    seen = np.concatenate([parts["train"], parts["val"]])
    aside = np.isin(names, nested_dev_split(sorted(set(names[seen])), codes=codes)["dev"])
    return {"train": parts["train"][~aside[parts["train"]]], "val": parts["val"][~aside[parts["val"]]],
            "dev": np.sort(seen[aside[seen]]), "test": parts["test"]}  # fmt: skip


def fit_rows(
    pool: Pool, parts: Mapping[str, np.ndarray], decoders: Mapping[str, Decoder], *, partition: str, seed: int
) -> tuple[pd.DataFrame, dict[str, Decoder]]:
    """Fit each decoder on ``train``, calibrate it on ``val``, and return rows of every other part, and the decoders.

    Each is cloned and gets the training seed. Rows carry ``partition``, ``seed`` and ``updates`` (optimiser steps).
    """
    features, labels = {part: pool.take(rows) for part, rows in parts.items()}, pool.Y
    frames, fitted = [], {}
    for name, decoder in track(decoders.items(), total=len(decoders), desc=partition):
        mine = fitted[name] = clone(decoder).set_params(random_state=seed)
        mine.fit(features["train"], labels[parts["train"]])
        found = {part: mine.decision_function(features[part]) for part in parts if part != "train"}
        mine.calibrate_scores(found["val"], labels[parts["val"]])
        facts = {"partition": partition, "seed": seed, "updates": int(mine.updates_)}
        for part, values in found.items():
            called = mine.predict_scores(values)
            frames.append(score_rows(pool, parts[part], values, called, method=name, part=part, **facts))
    return pd.concat(frames, ignore_index=True), fitted


def partition_rows(
    pool: Pool, runs: Iterable[tuple[str, int]], decoders: Mapping[str, Decoder], compat: str
) -> tuple[pd.DataFrame, dict[tuple[str, int], dict[str, Decoder]]]:
    """Return the rows of :func:`fit_rows` over (partition, seed) runs, and the fitted decoders of each run."""
    frames, fitted = [], {}
    for name, seed in runs:
        parts = split(pool.manifest, name, grouping=choice("lco_grouping", compat), codes=pool.codes)
        rows, fitted[name, seed] = fit_rows(pool, parts, decoders, partition=name, seed=seed)
        frames.append(rows)
    return pd.concat(frames, ignore_index=True), fitted


def matrix(rows: pd.DataFrame, kind: str, codes: Sequence[str]) -> np.ndarray:
    """Return the columns ``<kind>_<code>`` of rows as an array (n, K); ``kind`` is "y", "score" or "pred"."""
    return rows[[f"{kind}_{code}" for code in codes]].to_numpy()


def drawn(rows: pd.DataFrame, codes: Sequence[str], n: int) -> dict[str, np.ndarray]:
    """Return F1, mean AUROC and the AUROC of each species of one method's rows, on them and on n resamples (n + 1,).

    Rows are sorted first, so that two methods on the same images see the same resamples and differences are paired.
    """
    rows = rows.sort_values(["partition", "id", "seed"])
    over = Resamples(rows, _UNIT, n)
    each = np.array([over.auroc(rows[f"y_{code}"], rows[f"score_{code}"]) for code in codes])
    f1 = over.ratio(sample_f1(matrix(rows, "y", codes), matrix(rows, "pred", codes)), np.ones(len(rows)))
    return {"f1": f1, "auroc": mean_defined(each), **{f"auroc_{c}": v for c, v in zip(codes, each, strict=True)}}


def score_lines(rows: pd.DataFrame, against: Mapping[str, str], codes: Sequence[str], n: int) -> list[dict[str, Any]]:
    """Return tidy lines of every method in ``rows``; intervals are over (partition, combination).

    Columns: ``HEADINGS``; ``auroc_<code>``; ``val_f1``, ``delta_f1`` (validation minus test) where there are validation
    rows, and ``heldout_f1_std``, ``val_f1_std`` over several runs. ``f1_gain``, ``auroc_gain`` and
    ``auroc_<code>_gain`` are those over the method that ``against`` names, in the same resamples; methods without a
    name there have none.

    Raises ValueError where the images of two compared methods differ.
    """
    test, values, lines = rows[rows["part"] == "test"], {}, []
    for method, mine in test.groupby("method", sort=False):
        values[method] = drawn(mine, codes, n)
    for method, mine in test.groupby("method", sort=False):
        found = scores(mine, ["f1", "macro_f1"], unit=_UNIT, codes=codes, n=n)
        found = {f"heldout_{name}": numbers for name, numbers in found.items()}
        found |= {"mean_auroc" if name == "auroc" else name: Resamples.interval(numbers)
                  for name, numbers in values[method].items() if name != "f1"}  # fmt: skip
        if other := against.get(method):
            keys = ["partition", "id", "seed"]
            both = (table[keys].sort_values(keys).to_numpy() for table in (mine, test[test["method"] == other]))
            if not np.array_equal(*both):
                raise ValueError(f"{method!r} and {other!r} were not scored on the same images")
            found |= {f"{name}_gain": Resamples.interval(numbers - values[other][name])
                      for name, numbers in values[method].items()}  # fmt: skip
        common = _described(method, mine)
        lines += [{**common, "column": column, "value": value, "low": low, "high": high}
                  for column, (value, low, high) in found.items() if not np.isnan(value)]  # fmt: skip
        lines += [{**common, "column": column, "value": value}
                  for column, value in _over_runs(rows[rows["method"] == method], codes).items()]  # fmt: skip
    return lines


def auroc_lines(rows: pd.DataFrame, column: str, codes: Sequence[str], n: int) -> list[dict[str, Any]]:
    """Return one tidy line a method: the mean AUROC of its rows with its interval, in a column of that name."""
    lines = []
    for method, mine in rows.groupby("method", sort=False):
        value, low, high = Resamples.interval(drawn(mine, codes, n)["auroc"])
        lines.append({**_described(method, mine), "column": column, "value": value, "low": low, "high": high})
    return lines


def like(lines: Sequence[Mapping[str, Any]], row: str, column: str, value: float, name: str = "") -> dict[str, Any]:
    """Return a tidy line with what a line of ``row`` says of its images: another number of it, or of a row ``name``.

    Raises ValueError where no line has that row.
    """
    for line in lines:
        if line["row"] == row:
            kept = {key: item for key, item in line.items() if key not in ("low", "high")}
            return {**kept, "row": name or row, "column": column, "value": float(value)}
    raise ValueError(f"no line has the row {row!r}")


def f1_of(rows: pd.DataFrame, method: str, codes: Sequence[str]) -> float:
    """Return the mean per-sample F1 of one method's rows."""
    mine = rows[rows["method"] == method]
    return float(sample_f1(matrix(mine, "y", codes), matrix(mine, "pred", codes)).mean())


def f1_by_combination(rows: pd.DataFrame, method: str, codes: Sequence[str]) -> pd.Series:
    """Return the mean per-sample F1 of one method's rows for each combination."""
    mine = rows[rows["method"] == method]
    f1 = sample_f1(matrix(mine, "y", codes), matrix(mine, "pred", codes))
    return mine.assign(f1=f1).groupby("combination")["f1"].mean()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warning that a species has no image to choose a threshold on, where the page says so itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(no positive image|in no training image).*")
        yield


def _described(method: str, rows: pd.DataFrame) -> dict[str, Any]:
    return {
        "row": method, "evidence": rows["evidence"].iloc[0], "updates": rows["updates"].iloc[0],
        "n_images": len(rows.drop_duplicates("id")), "n_combinations": rows["combination"].nunique(),
        "n_frames": len(rows[["combination", "frame"]].drop_duplicates()),
        "partition": ", ".join(rows["partition"].unique()),
    }  # fmt: skip


def _over_runs(rows: pd.DataFrame, codes: Sequence[str]) -> dict[str, float]:
    """Return validation F1, its difference to test F1, and population standard deviations over several runs."""
    table = rows.assign(f1=sample_f1(matrix(rows, "y", codes), matrix(rows, "pred", codes)))
    means = table.groupby(["part", "partition", "seed"])["f1"].mean().unstack("part")
    found = {}
    if "val" in means:
        found |= {"val_f1": means["val"].mean(), "delta_f1": (means["val"] - means["test"]).mean()}
    if len(means) > 1:
        found |= {f"{name}_std": means[part].std(ddof=0)
                  for name, part in (("val_f1", "val"), ("heldout_f1", "test")) if part in means}  # fmt: skip
    return found


def tidy(lines: list[dict[str, Any]], name: str, run: Run) -> pd.DataFrame:
    """Return tidy lines as the checked table ``name`` of a run."""
    return report.table(lines, table=name, profile=run.profile, dataset=run.dataset, encoder=run.encoder)
