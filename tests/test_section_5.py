"""Differences between decoders on the same images, against two-line references."""

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.intervals import bootstrap
from phoebi_lib.metrics import exact_match, macro_f1, sample_f1
from phoebi_lib.studies import section_5

CODES = ("a", "b")
METHODS = sorted({m for pair in (*section_5.HELD_OUT_PAIRS.values(), *section_5.IN_DISTRIBUTION_PAIRS.values())
                  for m in pair})  # fmt: skip


def rows(partitions=("lco-1", "lco-2"), methods=METHODS, seed=0, images=4):
    rng = np.random.default_rng(seed)
    lines = []
    for partition in partitions:
        for part in ("val", "test"):
            for combination, y in (("a", (1, 0)), ("b", (0, 1)), ("a_b", (1, 1))):
                for i in range(images):
                    for method in methods:
                        pred = (1, 1) if method == "AllPresent" else tuple(int(x) for x in rng.random(2) > 0.4)
                        lines.append({
                            "id": f"{combination}/{part}{i}", "combination": combination, "frame": i, "part": part,
                            "method": method, "partition": partition, "updates": 7, "profile": "smoke",
                            "dataset": "sim:smoke", "encoder": "e", "evidence": "simulated",
                            "y_a": y[0], "y_b": y[1], "pred_a": pred[0], "pred_b": pred[1]})  # fmt: skip
    return pd.DataFrame(lines)


def f1(table):
    hits = (table["y_a"] & table["pred_a"]) + (table["y_b"] & table["pred_b"])
    total = table[["y_a", "y_b", "pred_a", "pred_b"]].sum(axis=1)
    return (2 * hits / total).mean()


def test_held_out_pairs_are_differences_of_means():
    table = rows()
    found = section_5.held_out_pairs(table, CODES, n=50).set_index(["row", "column"])
    for row, (first, second) in section_5.HELD_OUT_PAIRS.items():
        for part, column in (("val", "val_f1"), ("test", "heldout_f1")):
            mine = table[table["part"] == part]
            expected = f1(mine[mine["method"] == first]) - f1(mine[mine["method"] == second])
            line = found.loc[(row, column)]
            assert line["value"] == pytest.approx(expected)
            assert line["low"] <= line["value"] <= line["high"]
            assert (line["n_images"], line["n_combinations"], line["updates"]) == (24, 3, 7)


def test_a_combination_of_two_partitions_is_two_units():
    """The interval is that of a bootstrap over (partition, combination) pairs."""
    table = rows(images=1)
    found = section_5.held_out_pairs(table, CODES, n=300).set_index(["row", "column"])
    test = table[table["part"] == "test"].assign(f1=lambda t: sample_f1(t[["y_a", "y_b"]], t[["pred_a", "pred_b"]]))
    wide = test.pivot(index=["partition", "combination", "id"], columns="method", values="f1").reset_index()
    wide["d"] = wide["ProtoMatch"] - wide["ChannelGroup"]
    expected = bootstrap(wide, "d", ["partition", "combination"], n=300)
    line = found.loc[("ProtoMatch minus ChannelGroup", "heldout_f1")]
    assert line[["value", "low", "high"]].tolist() == pytest.approx(expected)


def test_methods_must_have_seen_the_same_images():
    table = rows()
    lacking = table.drop(table.index[(table["method"] == "ProtoMatch") & (table["part"] == "test")][0])
    with pytest.raises(ValueError, match="ProtoMatch was asked about other images"):
        section_5.held_out_pairs(lacking, CODES, n=5)


def test_a_method_against_its_copy_differs_by_nothing():
    table = rows()
    trained = table[table["method"] == "SimplexUnmix (init only)"].assign(method="SimplexUnmix")
    table = pd.concat([table[table["method"] != "SimplexUnmix"], trained])
    found = section_5.held_out_pairs(table, CODES, n=50).set_index("row")
    same = found.loc["SimplexUnmix trained minus untrained"]
    assert (same[["value", "low", "high"]] == 0).all(axis=None)


def test_the_order_of_images_does_not_matter():
    table = rows()
    shuffled = table.sample(frac=1, random_state=1).sort_values("partition", kind="stable")
    one, two = (section_5.held_out_pairs(t, CODES, n=30) for t in (table, shuffled))
    pd.testing.assert_frame_equal(one, two)


def test_in_distribution_pairs_by_three_metrics():
    table = rows(partitions=("random",))
    found = section_5.in_distribution_pairs(table, CODES, n=30).set_index(["row", "column"])
    test = table[table["part"] == "test"]
    for row, pair in section_5.IN_DISTRIBUTION_PAIRS.items():
        one, two = (test[test["method"] == name] for name in pair)
        y, a, b = (t[[f"{k}_a", f"{k}_b"]].to_numpy() for t, k in ((one, "y"), (one, "pred"), (two, "pred")))
        assert found.loc[(row, "per_sample_f1"), "value"] == pytest.approx(f1(one) - f1(two))
        assert found.loc[(row, "macro_f1"), "value"] == pytest.approx(macro_f1(y, a) - macro_f1(y, b))
        assert found.loc[(row, "exact_match"), "value"] == pytest.approx(exact_match(y, a) - exact_match(y, b))


def test_species_f1_by_hand():
    table = rows(partitions=("random",), methods=["ProtoMatch"])
    found = section_5.species(table, CODES, n=30).set_index(["row", "column"])["value"]
    test = table[table["part"] == "test"]
    hits = (test["y_b"] & test["pred_b"]).sum()
    assert found["ProtoMatch", "f1_b"] == pytest.approx(2 * hits / (test["y_b"].sum() + test["pred_b"].sum()))
    assert ("SimplexUnmix", "f1_b") not in found.index
    assert found["ProtoMatch", "f1_b_margin"] == pytest.approx(found["ProtoMatch", "f1_b"] - 2 * 8 / (8 + 12))


def test_tile_counts_and_what_the_fit_explains():
    sweep = pd.DataFrame({"method": "ProtoMatch", "tiles": [1, 4, 8, 16], "f1": [0.5, 0.6, 0.62, 0.65]})
    fits = pd.DataFrame({"method": ["ProtoMatch"], "a": [0.7], "c": [0.2], "rmse": [0.01]})
    table = rows(partitions=("random",))
    found = section_5.tile_counts(sweep, fits, table).set_index(["row", "column"])["value"]
    assert found["ProtoMatch", "f1_8"] == 0.62 and found["ProtoMatch", "a"] == 0.7
    assert found["ProtoMatch", "share_explained"] == pytest.approx(1 - 0.0001 / np.var([0.5, 0.6, 0.62, 0.65]))
    flat = section_5.tile_counts(sweep.assign(f1=0.5), fits, table)
    assert "share_explained" not in set(flat["column"])
