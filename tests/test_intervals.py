"""The bootstrap over combinations against a plain loop written from its description."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phoebi_lib.intervals import bootstrap
from phoebi_lib.metrics import auroc, macro_f1


def table(seed=0, units=("ka", "bs", "fj", "bs_ka"), partitions=("lco-1337",)):
    rng = np.random.default_rng(seed)
    parts = []
    for partition in partitions:
        for unit in units:
            n = rng.integers(2, 7)
            parts.append(
                pd.DataFrame(
                    {
                        "partition": partition,
                        "combination": unit,
                        "value": rng.normal(size=n),
                        "y_bs": int("bs" in unit),
                        "y_ka": int("ka" in unit),
                        "pred_bs": rng.integers(0, 2, n),
                        "pred_ka": rng.integers(0, 2, n),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True).sample(frac=1, random_state=seed)  # the row order must not matter


def plain(rows, metric, columns, n, seed):
    rng, groups = np.random.default_rng(seed), {key: group for key, group in rows.groupby(columns)}
    names = sorted(groups)
    values = []
    for _ in range(n):
        picked = rng.choice(len(names), size=len(names), replace=True)
        values.append(metric(pd.concat([groups[names[i]] for i in picked])))
    values = np.array(values)[~np.isnan(values)]
    return metric(rows), np.percentile(values, 2.5), np.percentile(values, 97.5)


def macro(rows):
    return macro_f1(rows[["y_bs", "y_ka"]], rows[["pred_bs", "pred_ka"]])


def mean(rows):
    return float(rows["value"].mean())


@pytest.mark.parametrize("metric", [macro, mean])
def test_equals_a_plain_loop(metric):
    rows = table(1)
    assert bootstrap(rows, metric, "combination", n=150, seed=4) == pytest.approx(
        plain(rows, metric, ["combination"], 150, 4)
    )


def test_pairs_of_columns_are_units():
    rows = table(2, partitions=("lco-1338", "lco-1337"))
    pair = bootstrap(rows, macro, ["partition", "combination"], n=150)
    assert pair == pytest.approx(plain(rows, macro, ["partition", "combination"], 150, 0))
    single = bootstrap(rows, macro, "combination", n=150)
    assert single[0] == pair[0] and single[1:] != pair[1:]


def test_hand_worked():
    # two units of one row each: a resample is (0,0), (0,1), (1,0) or (1,1), so the mean is 0, 0.5 or 1
    rows = pd.DataFrame({"combination": ["a", "b"], "value": [0.0, 1.0]})
    assert bootstrap(rows, mean, "combination") == (0.5, 0.0, 1.0)
    # equal units never vary, whatever is drawn
    assert bootstrap(rows.assign(value=3.0), mean, "combination") == (3.0, 3.0, 3.0)
    # one unit: nothing to resample
    assert bootstrap(rows.assign(combination="a"), mean, "combination", n=5) == (0.5, 0.5, 0.5)


def test_the_draw_is_the_published_one():
    names, drawn = np.array(["bs", "fj", "ka"]), []

    def record(rows):
        drawn.append(rows["combination"].tolist())
        return 0.0

    rows = pd.DataFrame({"combination": ["ka", "bs", "fj"]})
    bootstrap(rows, record, "combination", n=20)
    rng = np.random.default_rng(0)
    assert drawn[1:] == [rng.choice(names, size=3, replace=True).tolist() for _ in range(20)]


def test_images_of_a_unit_stay_together():
    rows = pd.DataFrame({"combination": ["a"] * 50 + ["b"] * 50, "value": [0.0] * 50 + [1.0] * 50})
    _, low, high = bootstrap(rows, "value", "combination")
    assert (low, high) == (0.0, 1.0), "resampling images would give about 0.4 to 0.6"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_mean_of_a_column_equals_the_function(seed):
    rows = table(seed)
    fast = bootstrap(rows, "value", "combination", n=60, seed=seed)
    assert fast == pytest.approx(bootstrap(rows, mean, "combination", n=60, seed=seed))
    assert fast[1] <= fast[2]


def test_undefined_resamples_are_dropped():
    rows = pd.DataFrame({"combination": ["bs", "ka", "ka"], "y": [1, 0, 0], "score": [0.9, 0.1, 0.95]})
    value, low, high = bootstrap(rows, lambda table: auroc(table["y"], table["score"]), "combination", n=100)
    assert value == low == high == 0.5
    lonely = bootstrap(rows.iloc[:1], lambda table: auroc(table["y"], table["score"]), "combination", n=10)
    assert np.isnan(lonely).all()


def test_same_seed_same_interval_and_no_global_state():
    rows = table(3)
    np.random.seed(5)  # noqa: NPY002 - to see that the global generator is neither used nor moved
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = bootstrap(rows, macro, "combination", n=50)
    assert first == bootstrap(rows, macro, "combination", n=50) == bootstrap(rows, macro, "combination", 50, 0)
    assert first != bootstrap(rows, macro, "combination", n=50, seed=1)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_refusals():
    rows = table(4)
    with pytest.raises(ValueError, match="lack the unit column session"):
        bootstrap(rows, mean, "session")
    with pytest.raises(ValueError, match="none given"):
        bootstrap(rows, mean, [])
    with pytest.raises(ValueError, match="at least one row"):
        bootstrap(rows.iloc[:0], mean, "combination")
    with pytest.raises(ValueError, match="belongs to no unit"):
        bootstrap(rows.assign(combination=None), mean, "combination")
    with pytest.raises(ValueError, match="lack the column 'f1'"):
        bootstrap(rows, "f1", "combination")
    with pytest.raises(TypeError, match="metric"):
        bootstrap(rows, 3, "combination")
    for n in (0, 2.5, True):
        with pytest.raises(ValueError, match="number of resamples"):
            bootstrap(rows, mean, "combination", n=n)
