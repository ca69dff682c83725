"""The battery and the matched arms on tiny pictures: which images, which decoders, and how a change is scored."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from phoebi_lib import intervals, scoring
from phoebi_lib.catalogue import CODES
from phoebi_lib.corruptions import BATTERY, CORRUPTIONS, ILLUMINATION, corrupted
from phoebi_lib.decoders import ProtoMatch
from phoebi_lib.metrics import exact_match, macro_f1, per_sample_f1
from phoebi_lib.paper import printed
from phoebi_lib.protocols import METHODS
from phoebi_lib.splits import partition
from phoebi_lib.studies import battery, paired
from tests.tiny_run import TinyRun, write_pictures


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module", autouse=True)
def tiny():
    """The decoder with 2,000 updates gets 40, and one tile is as small as the tiny pictures."""
    with pytest.MonkeyPatch.context() as patch:
        for name in battery.ONE_TILE:
            patch.setitem(CORRUPTIONS, name, dataclasses.replace(CORRUPTIONS[name], severities=(24,)))
        factory, _ = METHODS["ChannelGroup (2,000 updates)"]
        patch.setitem(METHODS, "ChannelGroup (2,000 updates)", (factory, {"updates": 40}))
        yield


@pytest.fixture(scope="module")
def run(dataset):
    return TinyRun(dataset)


@pytest.fixture(scope="module")
def deployed(run):
    run.embedded.clear()
    rows = battery.deployed(run)
    return rows, dict(run.embedded)


@pytest.fixture(scope="module")
def arms(dataset):
    run = TinyRun(dataset)
    return battery.matched_arms(run), dict(run.embedded)


def made(true, called, ids=None, **facts):
    """Rows by hand: ``true`` and ``called`` are texts such as "bs ka", one per image."""
    n = len(true)
    table = {"id": ids or [f"{i}" for i in range(n)], "combination": [t.replace(" ", "_") for t in true], "frame": 0}
    for code in CODES:
        table[f"y_{code}"] = [int(code in t.split()) for t in true]
        table[f"pred_{code}"] = [int(code in t.split()) for t in called]
    return pd.DataFrame(table).assign(**{"evidence": "simulated", "updates": 0, **facts})


# paired comparisons


def test_means_and_resamples_are_those_of_the_bootstrap():
    rng = np.random.default_rng(0)
    names = rng.choice(["bs", "bs_ka", "fj", "mx_pf"], 40)
    table = pd.DataFrame({"a": rng.random(40), "b": rng.random(40), "combination": names})
    mean = paired.resampled(table.set_index(["combination"]), 300)
    for quantity, function in {
        "a": lambda t: t["a"].mean(),
        "worst": lambda t: min(t["a"].mean(), t["b"].mean()),
        "difference": lambda t: (t["a"] - t["b"]).mean(),
    }.items():
        ours = {"a": mean["a"], "worst": mean.min(axis=1), "difference": mean["a"] - mean["b"]}[quantity]
        expected = intervals.bootstrap(table, function, "combination", n=300)
        assert tuple(paired.interval(ours).values()) == pytest.approx(expected, abs=1e-12), quantity


def test_macro_f1_and_exact_match_are_those_of_the_metrics_in_every_resample():
    true = ["bs", "bs ka", "fj", "mx pf", "ka", "bs ka", "fj"]
    called = ["bs", "bs", "fj", "pf", "ka bs", "bs ka", "ka"]  # bt is neither present nor called: F1 0
    rows = made(true, called)

    def by(metric):
        return lambda t: metric(t[[f"y_{c}" for c in CODES]].to_numpy(), t[[f"pred_{c}" for c in CODES]].to_numpy())

    for found, metric in ((paired.resampled_macro_f1, macro_f1), (paired.resampled_exact_match, exact_match)):
        expected = intervals.bootstrap(rows, by(metric), "combination", n=60)
        assert tuple(paired.interval(found(rows, CODES, 60)).values()) == pytest.approx(expected, abs=1e-12)


def test_images_that_lack_a_condition_are_refused():
    whole = pd.concat([made(["bs", "ka"], ["bs", "ka"], method=m) for m in ("one", "two")])
    assert paired.image_f1(whole, ["method"], CODES).shape == (2, 2)
    with pytest.raises(ValueError, match="'1' was not scored under every condition"):
        paired.image_f1(whole.iloc[:-1], ["method"], CODES)


# by hand


@pytest.fixture
def by_hand(run):
    """Two images; clean calls are right, at severity 12 one image loses a species, at 25 both are called wrong."""
    true = ["bs ka", "fj"]
    called = {("clean", 0.0): true, ("noise", 5.0): true, ("noise", 12.0): ["bs", "fj"], ("noise", 25.0): ["pf", "mx"]}
    called["lamp", 0.7] = ["bs ka", "fj"]
    return pd.concat([made(true, calls, method=method, condition=c, severity=s, arm="with")
                      for (c, s), calls in called.items() for method in ("AllPresent", "ProtoMatch")])  # fmt: skip


def test_changes_by_hand(by_hand, run):
    mean = battery.means(by_hand, run, CODES)
    change = battery.changes(mean, "ProtoMatch", "noise").iloc[0]
    # one of two species found: F1 2/3 in place of 1 on one of two images
    assert change.to_dict() == pytest.approx({5.0: 0.0, 12.0: -1 / 6, 25.0: -1.0})
    assert battery.worst(mean, "ProtoMatch", "noise").iloc[0] == -1.0
    assert battery.worst(mean, "ProtoMatch", "lamp").iloc[0] == 0.0


# which images, which decoders


def test_each_condition_embeds_the_battery_s_images_once(deployed, arms):
    rows, embedded = deployed
    single = [("", 0, ("grid", 1)), ("one_tile", 24, ("grid", 1)),
              ("one_tile_corrected", 24, ("grid", 1), ("illumination", "none"))]  # fmt: skip
    wanted = [*battery.conditions(BATTERY), *single]
    assert embedded == {("", 0): 400} | dict.fromkeys(wanted, 40)
    assert len(battery.conditions(BATTERY)) == 21
    _, embedded = arms
    bare = ("illumination", "none")
    light = battery.conditions(ILLUMINATION)
    assert embedded == {("", 0): 400, ("", 0, bare): 160} | dict.fromkeys(light, 40) | {(*c, bare): 40 for c in light}


def test_the_same_test_images_under_every_condition(deployed, run):
    rows, _ = deployed
    manifest = run.open_dataset().manifest
    test = partition(manifest, "random", grouping="frame")["test"]
    every = rows.groupby(["method", "condition", "severity"])["id"].agg(tuple)
    assert every.nunique() == 1 and list(every.iloc[0]) == manifest["path"].iloc[test].tolist()
    assert len(every) == 5 * (1 + 21 + 3)


def test_decoders_and_thresholds_are_those_of_clean_images(deployed, run):
    rows, _ = deployed
    pool = run.open_pool()
    parts = partition(pool.manifest, "random", grouping="frame")
    decoder = ProtoMatch().fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    decoder.calibrate(pool.take(parts["val"]), pool.Y[parts["val"]])
    changed = run.embed(corrupted(run.open_dataset().select(parts["test"]), "noise", 25.0))
    mine = rows[(rows["method"] == "ProtoMatch") & (rows["condition"] == "noise") & (rows["severity"] == 25)]
    assert np.array_equal(mine[[f"pred_{c}" for c in CODES]].to_numpy(), decoder.predict(changed.X))
    assert (mine["updates"] == 0).all()
    assert (rows.loc[rows["method"] == "ChannelGroup (2,000 updates)", "updates"] == 40).all()


def test_arms_learn_from_the_same_frames_and_see_their_own_front_end(arms, dataset):
    rows, _ = arms
    assert set(rows["condition"]) == {"test", "clean", *ILLUMINATION} and set(rows["arm"]) == {"with", "without"}
    score = rows[(rows["method"] == "ProtoMatch") & (rows["condition"] == "clean")].groupby("arm")["score_bs"]
    assert score.get_group("with").to_numpy() != pytest.approx(score.get_group("without").to_numpy())
    # the correction of the tiny front-end takes a lamp's change away up to its scale, which unit norm takes away
    lamp = rows[(rows["method"] == "ProtoMatch") & (rows["condition"] == "lamp") & (rows["severity"] == 0.55)]
    clean = rows[(rows["method"] == "ProtoMatch") & (rows["condition"] == "clean")]
    moved = {arm: np.abs(lamp.loc[lamp["arm"] == arm, "score_bs"].to_numpy()
                         - clean.loc[clean["arm"] == arm, "score_bs"].to_numpy()).mean()
             for arm in ("with", "without")}  # fmt: skip
    assert moved["with"] < 0.1 * moved["without"]


# tables


def test_table_17_has_the_paper_s_rows_and_the_numbers_of_the_rows(deployed, run):
    rows, _ = deployed
    table = battery.table_17(rows, run, CODES).set_index(["row", "column"])
    for line in printed(17).to_dict("records"):
        for column in ("simplex_unmix", "proto_match", "channel_group"):
            assert table.loc[(line["corruption"], column), "paper"] == line[column]
    assert table.loc[("Clean", "proto_match_f1"), "paper"] == 0.6096
    true, called = {}, {}
    for key, part in rows[rows["method"] == "ProtoMatch"].groupby(["condition", "severity"]):
        true[key], called[key] = (part[[f"{w}_{c}" for c in CODES]].to_numpy() for w in ("y", "pred"))
    clean = per_sample_f1(true["clean", 0], called["clean", 0])
    for name in BATTERY:
        change = [per_sample_f1(true[name, s], called[name, s]) - clean for s in CORRUPTIONS[name].severities]
        assert table.loc[(CORRUPTIONS[name].row, "proto_match"), "value"] == pytest.approx(min(change))
        constant = per_sample_f1(true["clean", 0], np.ones_like(called["clean", 0]))
        margin = table.loc[(CORRUPTIONS[name].row, "proto_match_f1_margin"), "value"]
        assert margin == pytest.approx(clean + min(change) - constant)
        others = [table.loc[(CORRUPTIONS[name].row, c), "value"] for c in ("simplex_unmix", "proto_match")]
        ahead = table.loc[(CORRUPTIONS[name].row, "simplex_unmix_over_proto_match"), "value"]
        assert ahead == pytest.approx(others[0] - others[1])
    assert set(table["n_images"]) == {40} and set(table["n_frames"]) == {40} and set(table["evidence"]) == {"simulated"}


def test_margins_and_intervals_are_those_of_the_other_pages(deployed, run):
    rows, _ = deployed
    table = battery.table_17(rows, run, CODES).set_index(["row", "column"])
    one = rows[(rows["method"] == "ProtoMatch") & (rows["condition"] == "jpeg") & (rows["severity"] == 25)]
    for name, expected in scoring.scores(one, ["f1"], n=50).items():
        line = table.loc[("JPEG re-encoding, 25", name.replace("f1", "proto_match_f1"))]
        assert tuple(line[["value", "low", "high"]]) == pytest.approx(expected, abs=1e-12)


def test_table_9_counts_no_gain_and_names_the_price(arms, run):
    rows, _ = arms
    frame = battery.table_9(rows, run, CODES)
    table = frame.set_index(["row", "column"])
    for line in printed(9).to_dict("records"):
        for name in ("clean", *ILLUMINATION):
            for arm in ("with", "without"):
                assert table.loc[(line["decoder"], f"{name}_{arm}"), "paper"] == line[f"{name}_{arm}"]
    lost = frame[frame["column"].isin([f"{name}_{arm}" for name in ILLUMINATION for arm in ("with", "without")])]
    assert (lost["value"] <= 0).all() and (lost["high"] <= 0).all()
    cost = table.loc[("ProtoMatch", "clean_cost"), "value"]
    f1 = [table.loc[("ProtoMatch", f"clean_{arm}"), "value"] for arm in ("without", "with")]
    assert cost == pytest.approx(f1[0] - f1[1])
    bought = table.loc[("ProtoMatch", "lamp_bought"), "value"]
    assert bought == pytest.approx(
        table.loc[("ProtoMatch", "lamp_with"), "value"] - table.loc[("ProtoMatch", "lamp_without"), "value"]
    )


def test_a_corruption_that_helps_is_no_change_in_table_9_alone(by_hand, run):
    better = by_hand.copy()
    clean = better["condition"] == "clean"
    better.loc[clean, "pred_bs"] = 0
    mean = battery.means(better, run, CODES)
    assert battery.worst(mean, "ProtoMatch", "lamp").iloc[0] > 0
    assert battery.worst(mean, "ProtoMatch", "lamp").clip(upper=0).iloc[0] == 0
