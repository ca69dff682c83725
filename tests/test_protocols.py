"""The harness on a small pool: what is fitted on what, what is stored, and the numbers made from the rows."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from phoebi_lib import protocols
from phoebi_lib.catalogue import CODES, label_matrix
from phoebi_lib.decoders import ChannelGroup, ProtoMatch, SimplexUnmix
from phoebi_lib.pool import Pool
from phoebi_lib.protocols import DECODERS, over_partitions, run_partition, summarise
from phoebi_lib.splits import partition as split
from phoebi_lib.splits import published_manifest, select_heldout
from phoebi_lib.tile_counts import fit_tile_curve, fit_variance, score_variance, tile_count_sweep

FAST = ("AllPresent", "ProtoMatch", "SimplexUnmix (init only)", "ChannelGroup")


def make_pool(n=12, crops=3, D=24, T=4, key="a" * 64):
    manifest = published_manifest(n, crops)
    Y = label_matrix(manifest["combination"])
    rng = np.random.default_rng(0)
    raw = (Y @ rng.normal(size=(6, D)))[:, None] + 1.5 * rng.normal(size=(len(Y), T, D)) + 1.0
    header = {
        "key": key,
        "labels": Y.tolist(),
        "codes": list(CODES),
        "dataset_name": "sim:tiny/two",
        "encoder_name": "an encoder",
        "evidence": "simulated",
        "facts": {"parameters_sha256": "c0ffee"},
    }
    return Pool(raw.astype(np.float32), manifest, header)


@pytest.fixture(scope="module")
def pool():
    return make_pool()


@pytest.fixture(scope="module")
def rows(pool, tmp_path_factory):
    return run_partition(
        pool, "lco-1337", seed=5, methods=FAST, store=tmp_path_factory.mktemp("store"), profile="smoke"
    )


# what is run


def test_rows_hold_one_line_per_image_method_and_part(pool, rows):
    assert not rows.duplicated(["id", "method", "part"]).any()
    parts = split(pool.manifest, "lco-1337", grouping="frame")
    assert len(rows) == len(FAST) * (len(parts["val"]) + len(parts["test"]))
    assert rows["method"].unique().tolist() == list(FAST)
    expected = ["id", "combination", "frame", "part", "method"]
    expected += [f"{column}_{code}" for code in CODES for column in ("y", "score", "threshold", "pred")]
    expected += ["dataset", "encoder", "evidence", "profile", "partition", "seed", "compat", "grouping", "pool_key"]
    assert rows.columns.tolist() == [*expected, "simulation", "updates", "train_f1"]
    facts = rows[["dataset", "encoder", "evidence", "profile", "partition", "seed", "compat", "grouping"]]
    values = ("sim:tiny/two", "an encoder", "simulated", "smoke", "lco-1337", 5, "corrected", "frame")
    assert set(facts.itertuples(index=False, name=None)) == {values}
    assert set(rows["simulation"]) == {"c0ffee"}
    assert set(rows["pool_key"]) == {"a" * 64}


def test_validation_is_trained_on_combinations_and_test_is_the_held_out_ones(rows):
    held, trained = select_heldout(published_manifest(3)["combination"], 1337)
    assert set(rows.loc[rows["part"] == "test", "combination"]) == set(held)
    assert set(rows.loc[rows["part"] == "val", "combination"]) == set(trained)


def test_labels_are_those_of_the_folder_names_in_class_order(rows):
    labels = rows[[f"y_{code}" for code in CODES]].to_numpy()
    assert np.array_equal(labels, label_matrix(rows["combination"]))
    one = rows[rows["combination"] == "bs_mx_fj"].iloc[0]
    assert [one[f"y_{code}"] for code in ("bs", "bt", "fj", "ka", "mx", "pf")] == [1, 0, 1, 0, 1, 0]


def test_predictions_are_scores_strictly_above_thresholds(rows):
    for code in CODES:
        assert np.array_equal(rows[f"pred_{code}"], rows[f"score_{code}"] > rows[f"threshold_{code}"])


def test_thresholds_come_from_the_validation_part(rows):
    own = rows[(rows["method"] == "ProtoMatch") & (rows["part"] == "val")]
    for code in CODES:
        expected = np.quantile(own.loc[own[f"y_{code}"] == 1, f"score_{code}"], 0.05)
        assert own[f"threshold_{code}"].unique() == pytest.approx([expected], abs=1e-12)
        # one interpolated point: a validation positive on the threshold would be missed with >
        assert (rows.loc[rows["method"] == "ProtoMatch", f"threshold_{code}"] == own[f"threshold_{code}"].iloc[0]).all()


def test_rows_are_those_of_the_decoder_by_hand(pool, rows):
    parts = split(pool.manifest, "lco-1337", grouping="frame")
    decoder = ChannelGroup(random_state=5).fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    decoder.calibrate(pool.take(parts["val"]), pool.Y[parts["val"]])
    own = rows[(rows["method"] == "ChannelGroup") & (rows["part"] == "test")]
    assert own["id"].tolist() == [pool.ids[i] for i in parts["test"]]
    scores = decoder.decision_function(pool.take(parts["test"]))
    assert np.array_equal(own[[f"score_{code}" for code in CODES]], scores)
    assert np.array_equal(own[[f"pred_{c}" for c in CODES]], decoder.predict(pool.take(parts["test"])))
    assert set(own["updates"]) == {decoder.updates_} == {30}
    train = f1_score(pool.Y[parts["train"]], decoder.predict(pool.take(parts["train"])), average="samples")
    assert own["train_f1"].unique() == pytest.approx([train])


def test_compat_decides_grouping_and_development_thresholds(pool, tmp_path):
    for compat, grouping, calibration in (("corrected", "frame", "val"), ("reference", "image", "train")):
        found = run_partition(pool, "dev-0", seed=1, methods=["ProtoMatch"], compat=compat, store=tmp_path)
        parts = split(pool.manifest, "dev-0", grouping=grouping)
        assert set(found["grouping"]) == {grouping}
        assert found.loc[found["part"] == "val", "id"].tolist() == [pool.ids[i] for i in parts["val"]]
        decoder = ProtoMatch().fit(pool.take(parts["train"]), pool.Y[parts["train"]])
        decoder.calibrate(pool.take(parts[calibration]), pool.Y[parts[calibration]])
        assert found.iloc[0][[f"threshold_{c}" for c in CODES]].tolist() == decoder.thresholds_.tolist()


def test_species_left_out_is_never_predicted(pool, tmp_path):
    with pytest.warns(UserWarning, match="class 3"):
        found = run_partition(pool, "loso-ka", seed=1, methods=["ProtoMatch", "ChannelGroup"], store=tmp_path)
    assert not found["pred_ka"].any()
    assert found.loc[found["part"] == "test", "y_ka"].any()
    assert found["pred_bs"].any()


def test_every_decoder_runs_unless_methods_are_named(tmp_path):
    found = run_partition(make_pool(n=3, crops=1, D=12, T=2), "random", seed=1, store=tmp_path)
    summary = summarise(found)
    assert summary.loc[summary["part"] == "test", "method"].tolist() == list(DECODERS)
    updates = dict(zip(summary["method"], summary["updates"], strict=True))
    # 40 training images of two tiles: 80 tiles are two batches of 64, or one of 4,096
    assert updates == {
        "AllPresent": 0,
        "SimplexUnmix": 60,
        "ProtoMatch": 0,
        "ChannelGroup": 30,
        "SimplexUnmix (init only)": 0,
        "ProtoMatch (init only)": 0,
        "ChannelGroup (init only)": 0,
        "SimplexUnmix (2,000 updates)": 2000,
        "ChannelGroup (2,000 updates)": 2000,
    }
    same = found[found["method"] == "ProtoMatch"]["score_bs"].to_numpy()
    assert np.array_equal(same, found[found["method"] == "ProtoMatch (init only)"]["score_bs"])


def test_unknown_requests_are_refused(pool, tmp_path):
    with pytest.raises(ValueError, match="found Oracle"):
        run_partition(pool, "random", seed=1, methods=["Oracle"], store=tmp_path)
    with pytest.raises(ValueError, match="unknown compat 'both'"):
        run_partition(pool, "random", seed=1, compat="both", store=tmp_path)
    with pytest.raises(ValueError, match="unknown partition 'lco'"):
        run_partition(pool, "lco", seed=1, methods=["ProtoMatch"], store=tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


# what is stored


@pytest.fixture
def counted(monkeypatch):
    """Names of the methods that are computed."""
    calls, run = [], protocols._run
    monkeypatch.setattr(protocols, "_run", lambda name, *rest: calls.append(name) or run(name, *rest))
    return calls


def test_stored_rows_are_read_back_equal(pool, tmp_path, counted):
    first = run_partition(pool, "random", seed=1, methods=FAST, store=tmp_path)
    again = run_partition(pool, "random", seed=1, methods=FAST, store=tmp_path)
    pd.testing.assert_frame_equal(first, again)
    assert counted == list(FAST)
    assert len(list(tmp_path.rglob("*.parquet"))) == len(list(tmp_path.rglob("*.*"))) == len(FAST)


def test_order_and_choice_of_methods_are_the_caller_s(pool, tmp_path, counted):
    run_partition(pool, "random", seed=1, methods=["ProtoMatch", "AllPresent"], store=tmp_path)
    found = run_partition(pool, "random", seed=1, methods=["AllPresent", "ChannelGroup", "ProtoMatch"], store=tmp_path)
    assert found["method"].unique().tolist() == ["AllPresent", "ChannelGroup", "ProtoMatch"]
    assert counted == ["ProtoMatch", "AllPresent", "ChannelGroup"]


def test_killed_sweep_goes_on_where_it_stopped(pool, tmp_path, counted, monkeypatch):
    run = protocols._run

    def killed(name, *rest):
        if name == "ChannelGroup":
            raise KeyboardInterrupt
        return run(name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(protocols, "_run", killed)
        with pytest.raises(KeyboardInterrupt):
            run_partition(pool, "random", seed=1, methods=FAST, store=tmp_path)
    assert len(list(tmp_path.rglob("*"))) == 1 + len(FAST) - 1
    counted.clear()
    run_partition(pool, "random", seed=1, methods=FAST, store=tmp_path)
    assert counted == ["ChannelGroup"]


@pytest.mark.parametrize(
    "change",
    [{"seed": 2}, {"partition": "lco-1337"}, {"compat": "reference"}, {"profile": "other"}],
    ids=lambda change: next(iter(change)),
)
def test_other_runs_have_their_own_files(pool, tmp_path, counted, change):
    base = {"partition": "random", "seed": 1, "compat": "corrected", "profile": "smoke"}
    for settings in (base, {**base, **change}, base):
        run_partition(pool, **settings, methods=["ProtoMatch"], store=tmp_path)
    assert counted == ["ProtoMatch"] * 2
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_other_inputs_replace_the_file(pool, tmp_path, counted, monkeypatch):
    settings = {"partition": "random", "seed": 1, "methods": ["ProtoMatch"], "store": tmp_path}
    run_partition(pool, **settings)
    run_partition(make_pool(key="b" * 64), **settings)
    monkeypatch.setattr(protocols, "_code_sha256", lambda: "other code")
    found = run_partition(make_pool(key="b" * 64), **settings)
    assert counted == ["ProtoMatch"] * 3
    files = list(tmp_path.rglob("*.parquet"))
    assert len(files) == 1
    pd.testing.assert_frame_equal(pd.read_parquet(files[0]), found)


def test_damaged_file_is_made_again(pool, tmp_path, counted):
    settings = {"partition": "random", "seed": 1, "methods": ["ProtoMatch"], "store": tmp_path}
    first = run_partition(pool, **settings)
    path = next(tmp_path.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:1000])
    pd.testing.assert_frame_equal(run_partition(pool, **settings), first)
    assert counted == ["ProtoMatch"] * 2


def test_code_hash_covers_the_decoders():
    assert {"decoders", "baselines", "protocols.py", "compat.py", "splits.py"} <= set(protocols._SOURCES)
    assert protocols._code_sha256() == protocols._code_sha256()


def test_reading_and_summarising_need_no_torch(pool, tmp_path):
    run_partition(pool, "random", seed=1, methods=["ProtoMatch"], store=tmp_path)
    path = next(tmp_path.rglob("*.parquet"))
    code = (
        "import sys, pandas as pd; from phoebi_lib.protocols import summarise, over_partitions, METHODS;"
        f"over_partitions(summarise(pd.read_parquet({str(path)!r})));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# the numbers made from rows


def toy(true, predicted, **columns):
    """Rows of a two-species world from lists of labels and predictions."""
    table = pd.DataFrame({"id": [f"i{i}" for i in range(len(true))], "combination": "bs", "frame": range(len(true))})
    for k, code in enumerate(("bs", "bt")):
        table[f"y_{code}"], table[f"pred_{code}"] = np.array(true)[:, k], np.array(predicted)[:, k]
    facts = {"method": "M", "part": "test", "partition": "lco-1", "seed": 1, "updates": 0, "train_f1": 0.5}
    return table.assign(**{**facts, **columns})


def test_summary_by_hand():
    line = summarise(toy([[1, 0], [1, 1], [0, 1]], [[1, 0], [1, 0], [1, 1]])).iloc[0]
    assert line["f1"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    assert (line["f1_bs"], line["f1_bt"]) == pytest.approx((0.8, 2 / 3))
    assert line["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert line["exact_match"] == pytest.approx(1 / 3)
    assert line["constant_f1"] == pytest.approx((2 / 3 + 1 + 2 / 3) / 3)
    assert line["margin"] == pytest.approx(line["f1"] - line["constant_f1"])
    assert (line["n_images"], line["n_frames"], line["n_combinations"]) == (3, 3, 1)


def test_summary_equals_scikit_learn(rows):
    for line in summarise(rows).itertuples():
        own = rows[(rows["method"] == line.method) & (rows["part"] == line.part)]
        true, predicted = (own[[f"{kind}_{code}" for code in CODES]].to_numpy() for kind in ("y", "pred"))
        assert line.f1 == pytest.approx(f1_score(true, predicted, average="samples"))
        assert line.macro_f1 == pytest.approx(f1_score(true, predicted, average="macro", zero_division=0))
        assert line.n_frames == own.groupby("combination")["frame"].nunique().sum()
        assert line.margin_macro == pytest.approx(line.macro_f1 - line.constant_macro_f1)
    constant = summarise(rows[rows["method"] == "AllPresent"])
    assert constant["margin"].tolist() == [0, 0]
    assert constant.loc[constant["part"] == "test", "f1"].item() == pytest.approx(0.65397, abs=5e-6)


def test_frames_are_counted_once_and_within_a_combination():
    table = toy([[1, 0]] * 4, [[1, 0]] * 4).assign(frame=[1, 1, 2, 1], combination=["bs", "bs", "bs", "bt"])
    assert summarise(table)["n_frames"].tolist() == [3]


def test_delta_is_validation_minus_test():
    table = pd.concat([toy([[1, 0]], [[1, 0]], part="val"), toy([[1, 0]], [[1, 1]], part="test")])
    summary = summarise(table).set_index("part")
    assert summary.loc["test", "delta_f1"] == pytest.approx(1 - 2 / 3)
    assert np.isnan(summary.loc["val", "delta_f1"])


@pytest.mark.parametrize(("updates", "wrong", "fitted"), [(10, 0, True), (10, 3, False), (0, 3, None)])
def test_trained_rows_under_the_limit_support_no_conclusion(updates, wrong, fitted):
    true, predicted = [[1, 0]] * 20, [[0, 1]] * wrong + [[1, 0]] * (20 - wrong)
    table = pd.concat([toy(true, predicted, part=part, updates=updates) for part in ("val", "test")])
    values = summarise(table)["fitted"]
    assert (values.isna().all() and fitted is None) or values.tolist() == [fitted, fitted]


def test_the_same_image_twice_is_refused():
    table = toy([[1, 0]], [[1, 0]])
    with pytest.raises(ValueError, match="same image twice"):
        summarise(pd.concat([table, table]))
    with pytest.raises(ValueError, match="one row per image"):
        summarise(table[["id", "method", "part"]])


def test_tables_of_other_species_can_be_joined():
    other = toy([[1, 1]], [[1, 1]], method="N").rename(columns={"y_bt": "y_zz", "pred_bt": "pred_zz"})
    summary = summarise(pd.concat([toy([[1, 0]], [[1, 0]]), other])).set_index("method")
    assert summary.loc["N", "f1_zz"] == 1
    assert summary.loc["M", "macro_f1"] == 0.5
    assert np.isnan(summary.loc["M", "f1_zz"])


def test_mean_and_population_deviation_over_partitions():
    runs = [
        toy([[1, 0], [1, 1]], [[1, 0], [1, 1]], partition="lco-1", seed=1),
        toy([[1, 0], [1, 0]], [[1, 1], [1, 1]], partition="lco-2", seed=2),
    ]
    line = over_partitions(summarise(pd.concat(runs))).iloc[0]
    assert (line["f1_mean"], line["f1_std"]) == pytest.approx((5 / 6, 1 / 6))
    # margins: 1 - (2/3 + 1)/2 in the first partition, 0 in the second
    assert (line["margin_mean"], line["margin_std"]) == pytest.approx((1 / 12, 1 / 12))
    assert (line["n_runs"], line["n_partitions"], line["kind"]) == (2, 2, "lco")


def test_kinds_of_partition_are_not_averaged_together():
    runs = [toy([[1, 0]], [[1, 0]], partition=name) for name in ("random", "lco-1", "lco-2", "dev-0")]
    table = over_partitions(summarise(pd.concat(runs)))
    assert dict(zip(table["kind"], table["n_runs"], strict=True)) == {"random": 1, "lco": 2, "dev": 1}


# tile counts


@pytest.fixture(scope="module")
def sweep(pool):
    return tile_count_sweep(pool, counts=(4, 1, 2, 16))


def test_sweep_draws_validation_then_test_from_one_generator(pool, sweep):
    parts = split(pool.manifest, "random", grouping="frame")
    decoder = ProtoMatch().fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    rng = np.random.default_rng(0)
    for count in (1, 2, 4):
        sets = []
        for part in ("val", "test"):
            X = pool.take(parts[part])
            sets.append(np.stack([x[rng.choice(4, size=count, replace=False)] for x in X]))
        decoder.calibrate(sets[0], pool.Y[parts["val"]])
        expected = f1_score(pool.Y[parts["test"]], decoder.predict(sets[1]), average="samples", zero_division=0)
        own = sweep[(sweep["method"] == "ProtoMatch") & (sweep["tiles"] == count)]
        assert own["f1"].item() == pytest.approx(expected)


def test_sweep_leaves_out_counts_above_the_grid(sweep):
    names = {"SimplexUnmix", "ProtoMatch", "ChannelGroup", "ProtoMatch (trained prototypes)"}
    assert set(sweep["method"]) == names
    assert sweep["tiles"].unique().tolist() == [1, 2, 4]
    assert not sweep.duplicated(["method", "tiles"]).any()


def test_all_tiles_are_the_decoder_itself(pool, sweep):
    parts = split(pool.manifest, "random", grouping="frame")
    train, val, test = ((pool.take(parts[p]), pool.Y[parts[p]]) for p in ("train", "val", "test"))
    for name, decoder in (
        ("SimplexUnmix", SimplexUnmix(recipe="ablation", random_state=1337)),
        ("ChannelGroup", ChannelGroup(random_state=1337)),
    ):
        decoder.fit(*train).calibrate(*val)
        expected = f1_score(test[1], decoder.predict(test[0]), average="samples", zero_division=0)
        own = sweep[(sweep["method"] == name) & (sweep["tiles"] == 4)]
        assert own["f1"].item() == pytest.approx(expected)


def test_reference_sweep_names_the_trained_prototypes_proto_match(pool, sweep):
    reference = tile_count_sweep(pool, counts=(1, 4), compat="reference")
    for ours, theirs in (
        ("ProtoMatch", "ProtoMatch (closed form)"),
        ("ProtoMatch (trained prototypes)", "ProtoMatch"),
    ):
        left = sweep.loc[(sweep["method"] == ours) & (sweep["tiles"] == 1), "f1"].item()
        assert left == reference.loc[(reference["method"] == theirs) & (reference["tiles"] == 1), "f1"].item()


def test_curve_is_recovered():
    tiles = np.array([1, 4, 8, 16])
    points = pd.DataFrame({"method": "M", "tiles": tiles, "f1": 0.7 - 0.2 / np.sqrt(tiles)})
    line = fit_tile_curve(points).iloc[0]
    assert (line["a"], line["c"], line["rmse"]) == pytest.approx((0.7, 0.2, 0.0), abs=1e-12)
    with pytest.raises(ValueError, match="two different tile counts"):
        fit_tile_curve(points.iloc[:1])


def test_counts_must_fit_the_pool(pool):
    with pytest.raises(ValueError, match="between 1 and the 4 tiles"):
        tile_count_sweep(pool, counts=(0, 4))
    with pytest.raises(ValueError, match="between 1 and the 4 tiles"):
        tile_count_sweep(pool, counts=(8, 16))


class Scores:
    """An estimator whose tile scores are given."""

    def __init__(self, scores):
        self.scores = scores

    def tile_scores(self, _X):
        return self.scores


def test_variance_falls_as_one_over_tiles_and_stops_at_what_tiles_share():
    rng = np.random.default_rng(0)
    independent = rng.normal(size=(2000, 16, 1))
    shared = independent + 2.0 * rng.normal(size=(2000, 1, 1))
    names = np.repeat(["a", "b"], 1000)
    shared[names == "b"] += 100.0  # a difference between combinations is no variance within one
    for scores, floor in ((independent, 0.0), (shared, 4.0)):
        table = score_variance(Scores(scores), None, names, ["bs"], draws=8)
        curve = fit_variance(table).set_index("source")
        inside, between = curve.loc["tiles of one image"], curve.loc["images of one combination"]
        # drawn with replacement from sixteen tiles: their population variance, 15/16 on average
        assert (inside["floor"], inside["slope"]) == pytest.approx((0.0, 15 / 16), abs=0.04)
        assert between["slope"] == pytest.approx(1.0, abs=0.3)
        assert between["floor"] == pytest.approx(floor, abs=0.3)
    one = table[(table["source"] == "tiles of one image")].set_index("tiles")["variance"]
    assert one[1] / one[16] == pytest.approx(16, rel=0.05)


def test_variance_needs_two_images_of_a_combination():
    with pytest.raises(ValueError, match="at least one of them with two images"):
        score_variance(Scores(np.zeros((2, 4, 1))), None, ["a", "b"], ["bs"])
