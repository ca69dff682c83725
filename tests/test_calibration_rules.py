"""Calibration rules and ensembles against plain searches, and by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from phoebi_lib.studies.calibration import POINTS, SEARCHES, range_thresholds, recalibrated
from phoebi_lib.studies.ensemble import average, ensemble, one_threshold, soft_or, unit_scale

CODES = ("bs", "bt")


def scored(seed, n=40, k=2):
    rng = np.random.default_rng(seed)
    Y = rng.integers(0, 2, (n, k))
    Y[0], Y[1] = 1, 0
    return rng.normal(0.3, 0.2, (n, k)) + 0.2 * Y, Y


@given(seed=st.integers(0, 200))
@settings(max_examples=25, deadline=None)
def test_range_search_against_a_plain_one(seed):
    scores, Y = scored(seed)
    found = range_thresholds(scores, Y)
    for k in range(Y.shape[1]):
        low, high = scores[:, k].min(), scores[:, k].max()
        points = [low + (high - low) * i / POINTS for i in range(POINTS)]
        f1 = [f1_score(Y[:, k], scores[:, k] > point, zero_division=0) for point in points]
        assert np.isclose(found[k], points[int(np.argmax(f1))])
    # shifting and stretching the scores shifts and stretches the thresholds
    assert np.allclose(range_thresholds(3 * scores - 1, Y), 3 * found - 1)


def test_range_search_by_hand():
    scores, Y = np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([[0], [1], [0], [1]])
    # four points 0, 1, 2, 3: F1 0.8, 0.5, 2/3, 2/3
    assert range_thresholds(scores, Y, points=4)[0] == 0.0
    assert range_thresholds(scores, np.array([[0], [0], [1], [1]]), points=4)[0] == 1.0
    # a tie goes to the lowest point
    assert range_thresholds(np.array([[0.0], [4.0]]), np.array([[0], [1]]), points=4)[0] == 0.0
    with pytest.warns(UserWarning, match="no positive image"):
        assert range_thresholds(scores, np.zeros((4, 1), dtype=int))[0] == np.inf


def test_rules_use_the_part_they_name():
    frames = []
    for part, seed in (("val", 1), ("dev", 2), ("test", 3)):
        scores, Y = scored(seed)
        table = {f"y_{c}": Y[:, k] for k, c in enumerate(CODES)}
        table |= {f"score_{c}": scores[:, k] for k, c in enumerate(CODES)}
        frames.append(pd.DataFrame(table).assign(part=part, method="m", pred_bs=0, pred_bt=0))
    rows = pd.concat(frames, ignore_index=True)
    found = recalibrated(rows, CODES, {"val": "validation", "dev": "development"})
    assert list(found["method"].unique()) == [f"m, {search} on {name}" for name in ("validation", "development")
                                              for search in ("0.05 quantile", "F1 search")]  # fmt: skip
    scores, _ = scored(3)
    for name, seed in (("validation", 1), ("development", 2)):
        own, Y = scored(seed)
        called = found.loc[found["method"] == f"m, 0.05 quantile on {name}", ["pred_bs", "pred_bt"]].to_numpy()
        cuts = [np.quantile(own[Y[:, k] == 1, k], 0.05) for k in range(2)]
        assert np.array_equal(called, scores > cuts)
        called = found.loc[found["method"] == f"m, F1 search on {name}", ["pred_bs", "pred_bt"]].to_numpy()
        assert np.array_equal(called, scores > range_thresholds(own, Y))
    assert set(found["part"]) == {"test"} and len(SEARCHES) == 2


def test_scaling_by_hand():
    reference = np.array([[0.0, 5.0], [2.0, 5.0]])
    scaled = unit_scale(np.array([[1.0, 5.0], [3.0, 6.0], [-1.0, 4.0]]), reference)
    assert np.array_equal(scaled, [[0.5, 0.0], [1.0, 1.0], [0.0, 0.0]])


@given(seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_combinations_of_members(seed):
    members = list(np.random.default_rng(seed).random((3, 5, 2)))
    a, b, c = members
    assert np.allclose(soft_or(members), a + b + c - a * b - a * c - b * c + a * b * c)
    assert np.allclose(average(members), (a + b + c) / 3)
    assert (soft_or(members) >= np.max(members, axis=0) - 1e-12).all() and (soft_or(members) <= 1).all()
    assert np.allclose(soft_or([b, c, a]), soft_or(members))


def test_one_threshold_against_sklearn():
    scores, Y = scored(7)
    scores = unit_scale(scores, scores)
    points = np.arange(1, 100) / 100
    f1 = [f1_score(Y, scores > point, average="samples", zero_division=1) for point in points]
    assert one_threshold(scores, Y) == points[int(np.argmax(f1))]


def test_ensemble_scales_the_test_scores_by_validation():
    (val, Y), (test, _) = scored(1), scored(2)
    cut, found = ensemble([val, 5 * val + 1], Y, [test, 5 * test + 1])
    low, high = val.min(axis=0), val.max(axis=0)
    s = ((test - low) / (high - low)).clip(0, 1)
    assert np.allclose(found["test"], 1 - (1 - s) ** 2) and 0 < cut < 1
    assert found["val"].min() == 0 and found["val"].max() == 1
