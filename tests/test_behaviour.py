"""Appendix C.2: the numbers of the page against references in two lines and cases worked by hand."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_curve
from test_intervals_study import TEST, made

from phoebi_lib import report
from phoebi_lib.catalogue import CODES, label_matrix
from phoebi_lib.intervals import bootstrap
from phoebi_lib.metrics import exact_match, per_sample_f1
from phoebi_lib.paper import quoted
from phoebi_lib.scoring import scores
from phoebi_lib.studies import behaviour
from phoebi_lib.studies.decoder_tables import by_order

PARTS = {**TEST, "lco-1339": ["mx", "bt_ka", "bs_bt_ka_fj", "bs_bt_mx_ka_fj_pf"]}
FIRST = ["bt", "bs_pf", "ka_fj", "bs_bt_ka_fj", "bs_bt_mx_ka_fj_pf"]


@pytest.fixture(scope="module")
def pooled():
    return made(PARTS)


@pytest.fixture(scope="module")
def rows():
    return made({"lco-1337": FIRST}, seed=4)


def arrays(table, *kinds):
    return [table[[f"{kind}_{code}" for code in CODES]].to_numpy() for kind in kinds]


def one(table, method="ProtoMatch"):
    return table[table["method"] == method]


def lookup(table):
    return table.set_index(["row", "column"])


def triple(line):
    return (line["value"], line["low"], line["high"])


def test_labels_table():
    found = lookup(behaviour.labels_table())["value"]
    assert found["held-out combinations with bt", "constant_f1"] == pytest.approx((2 / 7 + 8 / 10 + 1) / 3)
    assert found["constant predictor", "delta_f1"] == pytest.approx(0.57149 - 0.65397, abs=1e-5)
    assert found["order of combinations", "smallest_excess_heldout"] == pytest.approx(28 / 9 - 77 / 31)
    assert found["held-out singletons", "that_are_bt"] == 1 and found["held-out singletons", "partitions"] == 3


def test_orders_are_those_of_figure_6_with_intervals_over_pairs(pooled):
    found = lookup(behaviour.order_table(pooled, CODES, 50))
    for line in by_order(pooled, CODES).itertuples():
        ours = found.loc[(line.method, f"f1_order_{line.order}")]
        assert ours["value"] == pytest.approx(line.mean)
        deviation = found.loc[(line.method, f"deviation_order_{line.order}")]
        assert deviation["value"] == pytest.approx(line.mean - 2 * line.order / (line.order + 6))
        assert np.isnan(ours["low"]) == (line.pairs == 1), "one pair has no interval"
        if line.order == 1:
            assert found.loc[(line.method, "std_order_1"), "value"] == pytest.approx(line.std)
    pairs = one(pooled)
    true, called = arrays(pairs, "y", "pred")
    pairs = pairs.assign(f1=[per_sample_f1(t[None], c[None]) for t, c in zip(true, called, strict=True)])
    pairs = pairs[true.sum(axis=1) == 2].groupby(["partition", "combination"])["f1"].mean().reset_index()
    assert triple(found.loc[("ProtoMatch", "f1_order_2")]) == pytest.approx(
        bootstrap(pairs, "f1", ["partition", "combination"], 50)
    )
    spread = found["value"].xs("std_order_1", level="column")
    ratio = spread["ProtoMatch"] / spread["SimplexUnmix"]
    assert spread["ProtoMatch over SimplexUnmix"] == pytest.approx(ratio)


def test_rates_against_a_confusion_matrix_and_the_plain_bootstrap(rows):
    found = lookup(behaviour.error_table(rows, CODES, 50))
    for method, mine in rows.groupby("method"):
        for code in CODES:
            (tn, fp), (fn, tp) = confusion_matrix(mine[f"y_{code}"], mine[f"pred_{code}"])
            assert found.loc[(method, f"fpr_{code}"), "value"] == pytest.approx(fp / (fp + tn))
            assert found.loc[(method, f"fnr_{code}"), "value"] == pytest.approx(fn / (fn + tp))
    mine = one(rows)

    def rate(part):
        absent = part[part["y_bt"] == 0]
        return absent["pred_bt"].mean() if len(absent) else float("nan")

    assert triple(found.loc[("ProtoMatch", "fpr_bt")]) == pytest.approx(bootstrap(mine, rate, "combination", 50))

    def gap(part):
        means = part.groupby("y_bt")["score_bt"].mean()
        return means[1] - means[0] if len(means) == 2 else float("nan")

    assert triple(found.loc[("ProtoMatch", "gap_bt")]) == pytest.approx(bootstrap(mine, gap, "combination", 50))


def test_calls_exact_matches_and_the_species_without_a_pure_culture(rows):
    found = lookup(behaviour.error_table(rows, CODES, 50))
    mine = one(rows)
    true, called = arrays(mine, "y", "pred")
    many = true.sum(axis=1) >= 4
    assert found.loc[("ProtoMatch", "exact_order_4"), "value"] == exact_match(true[many], called[many])
    assert found.loc[("ProtoMatch", "called"), "value"] == pytest.approx(called.sum() / len(mine))
    share = found.loc[("ProtoMatch", "all_called_percent"), "value"]
    assert share == pytest.approx(100 * np.mean([all(line) for line in called]))
    inside = scores(mine[mine["combination"].str.contains("bt")], ["f1"], n=50)
    assert triple(found.loc[("ProtoMatch", "f1_with_bt")]) == pytest.approx(inside["f1"])
    assert triple(found.loc[("ProtoMatch", "f1_with_bt_margin")]) == pytest.approx(inside["f1_margin"])
    margin = scores(mine, ["f1_ka"], n=50)["f1_ka_margin"]
    assert triple(found.loc[("ProtoMatch", "f1_ka_margin")]) == pytest.approx(margin)
    other = one(rows, "ChannelGroup")
    line = found.loc[("ChannelGroup minus ProtoMatch", "called")]
    difference = arrays(other, "pred")[0].sum(axis=1) - called.sum(axis=1)
    plain = bootstrap(mine.assign(d=difference), "d", "combination", 50)
    assert triple(line) == pytest.approx(plain)


def test_thresholds_and_what_is_never_called(rows):
    changed = rows.assign(threshold_bs=np.inf, threshold_ka=0.1)
    found = lookup(behaviour.error_table(changed, CODES, 5))["value"]
    assert ("ProtoMatch", "threshold_bs") not in found.index
    assert found["ProtoMatch", "threshold_ka"] == 0.1 and found["ProtoMatch", "thresholds_up_to_0.05"] == 4


def test_reliability_by_hand():
    rows = pd.DataFrame({"method": "m", "y_bs": [0, 1, 0, 1, 1], "score_bs": [0.1, 0.9, 0.4, 0.2, 0.8]})
    found = behaviour.reliability(rows, ("bs",), bins=2)
    # sorted: 0.1 0.2 0.4 | 0.8 0.9 with labels 0 1 0 | 1 1
    assert found["score"].tolist() == pytest.approx([0.7 / 3, 0.85])
    assert found["positives"].tolist() == pytest.approx([1 / 3, 1.0]) and found["images"].tolist() == [3, 2]


def test_reliability_has_equal_counts_whatever_the_ties(rows):
    found = behaviour.reliability(rows.assign(score_bs=0.5), CODES)
    sizes = found.groupby(["method", "code"])["images"]
    assert (sizes.max() - sizes.min() <= 1).all() and (sizes.sum() == len(one(rows))).all() and found["bin"].max() == 9


def test_calibration_against_a_plain_bootstrap(rows):
    table = lookup(behaviour.calibration_table(rows, CODES, 30, bins=4))
    mine = one(rows).reset_index(drop=True)
    mine["bin"] = 0
    for b, members in enumerate(np.array_split(mine["score_ka"].argsort(kind="stable"), 4)):
        mine.loc[members, "bin"] = b

    def error(part):
        bins = part.groupby("bin")
        return ((bins["score_ka"].mean() - bins["y_ka"].mean()).abs() * bins.size()).sum() / len(part)

    assert triple(table.loc[("ProtoMatch", "error_ka")]) == pytest.approx(bootstrap(mine, error, "combination", 30))

    def slope(part):
        half = part.groupby(part["bin"] >= 2)["y_ka"].mean()
        return half[True] - half[False] if len(half) == 2 else float("nan")

    assert triple(table.loc[("ProtoMatch", "slope_ka")]) == pytest.approx(bootstrap(mine, slope, "combination", 30))
    excess = bootstrap(mine.assign(d=mine["score_ka"] - mine["y_ka"]), "d", "combination", 30)
    assert triple(table.loc[("ProtoMatch", "excess_ka")]) == pytest.approx(excess)
    value = table["value"]
    errors = pd.DataFrame({m: [value[m, f"error_{c}"] for c in CODES] for m in rows["method"].unique()}, index=CODES)
    best = errors.idxmin(axis=1).value_counts()
    for method in errors:
        assert value[method, "best"] == best.get(method, 0)
        assert value[method, "error"] == pytest.approx(errors[method].mean())


def test_a_perfect_score_is_calibrated():
    rows = made({"lco-1337": FIRST}, methods=("ProtoMatch",))
    perfect = rows.assign(**{f"score_{code}": rows[f"y_{code}"].astype(float) for code in CODES})
    found = lookup(behaviour.calibration_table(perfect, CODES, 10))
    assert found.loc[("ProtoMatch", "error"), ["value", "low", "high"]].tolist() == [0.0, 0.0, 0.0]


def test_precision_and_recall(rows):
    found = lookup(behaviour.precision_table(rows, CODES, 30))
    points = behaviour.precision_recall(rows, CODES)
    for code in CODES:
        mine = one(rows)
        precision, recall, _ = precision_recall_curve(mine[f"y_{code}"], mine[f"score_{code}"])
        curve = points[(points["method"] == "ProtoMatch") & (points["code"] == code)]
        assert np.array_equal(curve["precision"], precision) and np.array_equal(curve["recall"], recall)
        expected = recall[precision >= 0.8].max()  # the curve ends at precision 1 and recall 0
        assert found.loc[("ProtoMatch", f"recall_{code}"), "value"] == pytest.approx(expected)
        assert found.loc[("ProtoMatch", f"base_{code}"), "value"] == pytest.approx(mine[f"y_{code}"].mean())

    def best(part):
        if not part["y_fj"].any():
            return float("nan")
        precision, recall, _ = precision_recall_curve(part["y_fj"], part["score_fj"])
        return recall[precision >= 0.8].max()

    plain = bootstrap(one(rows), best, "combination", 30)
    assert triple(found.loc[("ProtoMatch", "recall_fj")]) == pytest.approx(plain)


def test_examples_by_hand():
    names = ["bs", "ka", "bs_ka", "bs_bt_mx_ka_fj_pf"]
    called = label_matrix(["bs_bt_mx_ka_fj_pf", "ka_fj", "pf", "bs_bt_mx_ka_fj_pf"])
    table = {"id": [f"{name}/1.jpg" for name in names], "combination": names}
    for k, code in enumerate(CODES):
        table |= {f"y_{code}": label_matrix(names)[:, k], f"pred_{code}": called[:, k]}
    found = behaviour.examples(pd.DataFrame(table)).set_index("kind")
    assert found.loc["most invented", "id"] == "bs/1.jpg" and found.loc["most invented", "invented"] == "bt fj ka mx pf"
    assert found.loc["most missed", "id"] == "bs_ka/1.jpg" and found.loc["most missed", "missed"] == "bs ka"
    # everything present and everything called is right, and tells nothing
    assert found.loc["best", "id"] == "ka/1.jpg" and found.loc["best", "called"] == "fj ka"
    assert found.loc["best", "missed"] == "none"


def test_quoted_numbers_stand_beside_their_lines(rows):
    table = behaviour.error_table(rows, CODES, 5)
    ids = {("ProtoMatch", "fpr_ka"): "proto_ka_fpr", ("ProtoMatch", "called"): "proto_fpr"}
    found = report.add_quoted(table, ids)
    said = quoted().set_index("id").loc["proto_ka_fpr"]
    line = lookup(found).loc[("ProtoMatch", "fpr_ka")]
    assert (line["paper"], line["digits"]) == (said["value"], said["digits"])
    assert found["paper"].notna().sum() == 1, "a range has no single number"
    with pytest.raises(KeyError):
        report.add_quoted(table, {("ProtoMatch", "fpr_ka"): "no such number"})
