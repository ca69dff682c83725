"""The tables of variants: paired gains, spreads over runs, printed numbers beside ours."""

import numpy as np
import pandas as pd
import pytest

from phoebi_lib import report
from phoebi_lib.decoders import ProtoMatch, SimplexUnmix
from phoebi_lib.intervals import bootstrap
from phoebi_lib.metrics import auroc, per_sample_f1
from phoebi_lib.paper import quoted
from phoebi_lib.studies import variant_tables, variants

CODES = ("bs", "bt", "fj")


def rows_of(method, seed, partitions=("p", "q"), part="test"):
    rng = np.random.default_rng(9)
    frames = []
    for name in partitions:
        true = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1]])
        unit = np.repeat(np.arange(5), 4)
        noise = np.random.default_rng(seed + len(frames)).normal(0, 0.6, (20, 3))
        table = {"id": [f"c{u}/{i}" for i, u in enumerate(unit)], "combination": [f"c{u}" for u in unit],
                 "frame": np.arange(20) + 1}  # fmt: skip
        for k, code in enumerate(CODES):
            score = true[unit, k] + noise[:, k]
            table |= {f"y_{code}": true[unit, k], f"score_{code}": score, f"pred_{code}": (score > 0.5).astype(int)}
        facts = {"partition": name, "seed": 1, "method": method, "part": part, "updates": 3, "evidence": "simulated"}
        frames.append(pd.DataFrame(table).assign(**facts).sample(frac=1, random_state=rng.integers(99)))
    return pd.concat(frames, ignore_index=True)


def arrays(rows):
    return tuple(variants.matrix(rows, kind, CODES) for kind in ("y", "score", "pred"))


def test_numbers_and_paired_gains_against_the_plain_bootstrap():
    rows = pd.concat([rows_of("a", 1), rows_of("b", 5), rows_of("a", 7, part="val"), rows_of("b", 8, part="val")])
    lines = {(x["row"], x["column"]): x for x in variants.score_lines(rows, {"b": "a"}, CODES, 40)}
    sort = ["partition", "id"]
    test = rows[rows["part"] == "test"].sort_values(sort)
    a, b = (test[test["method"] == m].reset_index(drop=True) for m in "ab")
    unit = ["partition", "combination"]
    both = pd.concat([a, b.add_prefix("other_")], axis=1)

    def gain(metric, kind):
        def function(table):
            other = table[[c for c in table if c.startswith("other_")]].rename(columns=lambda c: c[6:])
            mine = {"score": 1, "pred": 2}[kind]
            return metric(arrays(other)[0], arrays(other)[mine]) - metric(arrays(table)[0], arrays(table)[mine])
        return bootstrap(both, function, unit, 40)

    for column, expected in {
        "heldout_f1": bootstrap(b, lambda t: per_sample_f1(arrays(t)[0], arrays(t)[2]), unit, 40),
        "mean_auroc": bootstrap(b, lambda t: auroc(*arrays(t)[:2]), unit, 40),
        "f1_gain": gain(per_sample_f1, "pred"),
        "auroc_gain": gain(auroc, "score"),
    }.items():
        line = lines["b", column]
        assert np.allclose([line["value"], line["low"], line["high"]], expected), column
    assert ("a", "f1_gain") not in lines and ("b", "auroc_bt_gain") in lines
    runs = [per_sample_f1(*arrays(b[b["partition"] == p])[::2]) for p in "pq"]
    assert np.isclose(lines["b", "heldout_f1_std"]["value"], np.std(runs))
    val = rows[(rows["method"] == "b") & (rows["part"] == "val")]
    own = [per_sample_f1(*arrays(val[val["partition"] == p])[::2]) for p in "pq"]
    assert np.isclose(lines["b", "val_f1"]["value"], np.mean(own))
    assert np.isclose(lines["b", "delta_f1"]["value"], np.mean(own) - np.mean(runs))
    assert lines["b", "heldout_f1"]["partition"] == "p, q" and lines["b", "heldout_f1"]["n_combinations"] == 5


def test_a_method_gains_nothing_over_itself_and_other_images_are_refused():
    rows = pd.concat([rows_of("a", 1), rows_of("a", 1).assign(method="b")])
    lines = variants.score_lines(rows, {"b": "a"}, CODES, 20)
    gains = [(x["value"], x["low"], x["high"]) for x in lines if x["column"].endswith("_gain")]
    assert gains and np.allclose(gains, 0)
    with pytest.raises(ValueError, match="'b' and 'a' were not scored on the same images"):
        variants.score_lines(rows.iloc[:-1], {"b": "a"}, CODES, 20)


def test_seeds_on_one_list_are_resampled_with_their_combination():
    one = rows_of("a", 1, ("p",))
    three = pd.concat([one.assign(seed=s) for s in (1, 2, 3)])
    found, single = (
        {x["column"]: x for x in variants.score_lines(rows, {}, CODES, 60)} for rows in (three, one)
    )
    for column in ("heldout_f1", "mean_auroc"):
        assert np.allclose([found[column][k] for k in ("value", "low", "high")],
                           [single[column][k] for k in ("value", "low", "high")])  # fmt: skip
    assert found["heldout_f1"]["n_images"] == 20 and abs(found["heldout_f1_std"]["value"]) < 1e-12


def test_references_follow_the_setting():
    names = ["SimplexUnmix", "ProtoMatch", "ChannelGroup", "soft OR of two", "absent-mass penalty 1",
             "SimplexUnmix, 2,000 updates", "repulsion 1, 2,000 updates", "SimplexUnmix, three partitions",
             "repulsion 1, three partitions", "SimplexUnmix, one list, three seeds",
             "temperatures, one list, three seeds",
             "SimplexUnmix, nested", "ProtoMatch, nested", "subspace 32, penalty 1, nested",
             "ProtoMatch, nested, F1 search on validation"]  # fmt: skip
    assert variant_tables.references(names) == {
        "soft OR of two": "SimplexUnmix", "absent-mass penalty 1": "SimplexUnmix",
        "repulsion 1, 2,000 updates": "SimplexUnmix, 2,000 updates",
        "repulsion 1, three partitions": "SimplexUnmix, three partitions",
        "temperatures, one list, three seeds": "SimplexUnmix, one list, three seeds",
        "subspace 32, penalty 1, nested": "SimplexUnmix, nested",
        "ProtoMatch, nested, F1 search on validation": "ProtoMatch, nested",
    }  # fmt: skip
    with pytest.raises(ValueError, match="'repulsion 1, nested' is to be compared with 'SimplexUnmix, nested'"):
        variant_tables.references(["SimplexUnmix", "repulsion 1, nested"])


def test_printed_numbers_are_in_the_paper_and_stay_out_of_ours():
    printed = quoted().set_index("id")
    for name in (*variant_tables.PRINTED.values(), *variant_tables.PRINTED_UNITS.values()):
        name, field = name if isinstance(name, tuple) else (name, "value")
        assert not np.isnan(printed.loc[name, field]), name
    frame = report.table([{"row": "r", "column": "heldout_f1", "value": 0.5, "evidence": "simulated", "n_images": 4,
                           "updates": 0}], table="t")  # fmt: skip
    found = report.add_quoted(frame, {("r", "heldout_f1"): "ensemble_f1"})
    assert found["paper"].iloc[0] == printed.loc["ensemble_f1", "value"] and found["value"].iloc[0] == 0.5
    shown = variant_tables.shown(found)
    assert shown["numbers"].tolist() == ["here (simulated)", "paper"] and shown["F1"].tolist() == ["0.500", "0.614"]
    assert shown["difference"].iloc[0] == report.NOT_COMPARABLE
    exact = variant_tables.shown(found.assign(evidence="paper"))
    assert exact["difference"].iloc[0] == "-0.114"
    with pytest.raises(ValueError, match="no row 'r' with a column 'mean_auroc'"):
        report.add_quoted(frame, {("r", "mean_auroc"): "ensemble_f1"})


def test_fitted_rows_are_those_of_the_decoder():
    from test_units import tiny_pool, whole_parts

    pool = tiny_pool()
    parts = whole_parts(pool)
    rows, fitted = variants.fit_rows(
        pool, parts, {"S": SimplexUnmix(epochs=2), "P": ProtoMatch()}, partition="lco-1", seed=4
    )
    alone = SimplexUnmix(epochs=2, random_state=4).fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    alone.calibrate(pool.take(parts["val"]), pool.Y[parts["val"]])
    mine = rows[(rows["method"] == "S") & (rows["part"] == "test")]
    assert np.array_equal(variants.matrix(mine, "pred", pool.codes), alone.predict(pool.take(parts["test"])))
    assert fitted["S"].random_state == 4 and mine["updates"].unique().tolist() == [alone.updates_]
    own = variants.f1_of(rows[rows["part"] == "test"], "S", pool.codes)
    each = variants.f1_by_combination(rows[rows["part"] == "test"], "S", pool.codes)
    assert np.isclose(own, per_sample_f1(pool.Y[parts["test"]], alone.predict(pool.take(parts["test"]))))
    assert np.isclose(own, each.mean()) and len(each) == 4
    line = variants.like([{"row": "a", "value": 1, "low": 0, "n_images": 7}], "a", "c", 2, "b")
    assert line == {"row": "b", "column": "c", "value": 2.0, "n_images": 7}
