"""Scores with intervals on sums: the same numbers as the metrics and the plain bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.intervals import bootstrap
from phoebi_lib.metrics import exact_match, macro_f1, per_class_f1, per_sample_f1
from phoebi_lib.scoring import scores

CODES = ("bs", "bt", "fj")


def rows_of(seed: int = 0, n: int = 60) -> pd.DataFrame:
    """Two partitions of six combinations; the species bt is in no image of the first combination."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 2, (6, 3)) | np.eye(3, dtype=int)[np.arange(6) % 3]
    combination = np.sort(rng.integers(0, 6, n))  # of unequal sizes, as validation parts are
    frame = pd.DataFrame({"combination": [f"c{i}" for i in combination], "partition": np.arange(n) % 2})
    pred = rng.integers(0, 2, (n, 3))
    for k, code in enumerate(CODES):
        frame[f"y_{code}"], frame[f"pred_{code}"] = true[combination, k], pred[:, k]
    return frame.sample(frac=1, random_state=seed)


def arrays(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    return rows[[f"y_{c}" for c in CODES]].to_numpy(), rows[[f"pred_{c}" for c in CODES]].to_numpy()


METRICS = {"f1": per_sample_f1, "em": exact_match, "macro_f1": macro_f1, "f1_bt": lambda y, p: per_class_f1(y, p)[1]}


@pytest.mark.parametrize("unit", ["combination", ["partition", "combination"]])
@pytest.mark.parametrize("metric", METRICS)
def test_scores_equal_the_plain_bootstrap(metric, unit):
    rows, function = rows_of(), METRICS[metric]

    def margin(part: pd.DataFrame) -> float:
        true, pred = arrays(part)
        return function(true, pred) - function(true, np.ones_like(true))

    found = scores(rows, [metric], unit=unit, codes=CODES, n=60)
    assert np.allclose(found[metric], bootstrap(rows, lambda part: function(*arrays(part)), unit, 60))
    assert np.allclose(found[f"{metric}_margin"], bootstrap(rows, margin, unit, 60))
    assert set(found) == {metric, f"{metric}_margin"}


def test_by_hand():
    rows = pd.DataFrame({"combination": ["a", "a", "b"], "y_bs": [1, 1, 0], "y_bt": [0, 0, 1], "pred_bs": [1, 0, 1],
                         "pred_bt": [0, 1, 1]})  # fmt: skip
    found = scores(rows, codes=("bs", "bt"), n=10)
    # F1 of the images: 1, 0, 2/3; all-present scores 2/3 on each
    assert math.isclose(found["f1"][0], 5 / 9) and math.isclose(found["f1_margin"][0], 5 / 9 - 2 / 3)
    assert math.isclose(found["em"][0], 1 / 3) and math.isclose(found["em_margin"][0], 1 / 3)
    # bs: 1 hit of 2 true and 2 called; bt: 1 hit of 1 and 2; all-present: 4/5 and 2/4
    assert math.isclose(found["macro_f1"][0], (1 / 2 + 2 / 3) / 2)
    assert math.isclose(found["macro_f1_margin"][0], (1 / 2 + 2 / 3) / 2 - (4 / 5 + 2 / 4) / 2)


def test_the_constant_predictor_has_no_margin():
    rows = rows_of().assign(**{f"pred_{code}": 1 for code in CODES})
    found = scores(rows, codes=CODES, n=50)
    for metric in ("f1", "em", "macro_f1"):
        assert np.allclose(found[f"{metric}_margin"], 0)


def test_a_species_that_is_never_there_and_never_called_scores_nothing():
    rows = rows_of().assign(y_bt=0, pred_bt=0)
    assert scores(rows, ["f1_bt"], codes=CODES, n=20)["f1_bt"] == (0.0, 0.0, 0.0)


def test_what_cannot_be_scored_is_refused():
    rows = rows_of()
    with pytest.raises(ValueError, match="unknown metric f2"):
        scores(rows, ["f2"], codes=CODES)
    with pytest.raises(ValueError, match="lack the columns pred_bs"):
        scores(rows.drop(columns="pred_bs"), codes=CODES)
    with pytest.raises(ValueError, match="at least one row"):
        scores(rows.iloc[:0], codes=CODES)
    with pytest.raises(ValueError, match="one method are scored at a time; found a, b"):
        scores(rows.assign(method=["a", "b"] * (len(rows) // 2)), codes=CODES)
