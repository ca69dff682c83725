"""Appendix C.1: fast resamples against plain loops, the tables against references, on rows made by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from phoebi_lib.catalogue import CODES, label_matrix
from phoebi_lib.intervals import Resamples, bootstrap
from phoebi_lib.metrics import auroc, per_class_auroc
from phoebi_lib.paper import cells, printed
from phoebi_lib.scoring import auroc_scores, mean_defined, scores
from phoebi_lib.splits import PARTITION_SEEDS, published_manifest
from phoebi_lib.splits import partition as split
from phoebi_lib.studies import intervals_study as study

TEST = {"lco-1337": ["bt", "bs_pf", "ka_fj", "mx_ka_fj"], "lco-1338": ["bs", "bs_pf", "mx_fj_pf"]}
DEV = {"dev-0": ["bs_fj", "mx_ka_pf"], "dev-1": ["bt_ka", "bs_mx_pf", "mx_pf"]}


def made(parts, methods=study.DECODERS, seed=0, updates=None, decimals=1):
    """Test rows as run_partition returns them; scores are rounded, so that there are ties."""
    rng, frames = np.random.default_rng(seed), []
    for partition, names in parts.items():
        sizes = rng.integers(3, 7, len(names))
        combination = np.repeat(names, sizes)
        true = label_matrix(combination)
        for method in methods:
            score = (0.3 * true + rng.normal(size=true.shape)).round(decimals)
            table = {"id": [f"{name}/{i:05d}.jpg" for i, name in enumerate(combination)], "combination": combination,
                     "frame": np.arange(len(true)) // 2, "part": "test", "method": method}  # fmt: skip
            for k, code in enumerate(CODES):
                table |= {f"y_{code}": true[:, k], f"score_{code}": score[:, k], f"threshold_{code}": 0.0,
                          f"pred_{code}": (score[:, k] > 0).astype(int)}  # fmt: skip
            facts = {"dataset": "sim:smoke", "encoder": "tiny", "evidence": "simulated", "profile": "smoke",
                     "partition": partition, "updates": (updates or {}).get(method, 0)}  # fmt: skip
            frames.append(pd.DataFrame({**table, **facts}))
    return pd.concat(frames, ignore_index=True)


def one(rows, method="ProtoMatch"):
    return rows[rows["method"] == method]


def labels_and_scores(rows):
    return rows[[f"y_{c}" for c in CODES]].to_numpy(), rows[[f"score_{c}" for c in CODES]].to_numpy()


@pytest.mark.parametrize("unit", ["combination", ["partition", "combination"], "partition"])
def test_aurocs_equal_the_plain_bootstrap(unit):
    rows = one(made(TEST)).sample(frac=1, random_state=3)
    found = auroc_scores(rows, unit=unit, n=80)
    assert found["auroc"] == pytest.approx(bootstrap(rows, lambda part: auroc(*labels_and_scores(part)), unit, 80))
    for k, code in enumerate(CODES):
        plain = bootstrap(rows, lambda part, k=k: per_class_auroc(*labels_and_scores(part))[k], unit, 80)
        assert found[f"auroc_{code}"] == pytest.approx(plain, nan_ok=True)


def test_auroc_by_hand_and_against_scikit_learn():
    rows = pd.DataFrame({"combination": ["a", "a", "b", "b"], "y": [1, 1, 0, 0], "s": [2.0, 1.0, 1.0, 0.0]})
    resamples = Resamples(rows, "combination", 20)
    assert resamples.auroc(rows["y"], rows["s"])[0] == (1 + 1 + 1 + 0.5) / 4
    drawn = resamples.auroc(rows["y"], rows["s"])[1:]
    both = (resamples.counts[1:] > 0).all(axis=1)
    assert np.isnan(drawn[~both]).all() and (~both).any() and np.allclose(drawn[both], 0.875)
    big = one(made(TEST, decimals=4))
    value = auroc_scores(big, n=5)["auroc_bs"][0]
    assert value == pytest.approx(roc_auc_score(big["y_bs"], big["score_bs"]))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_auroc_is_unchanged_by_order_and_monotone_maps_and_mirrored_by_sign(seed):
    rows = one(made(TEST, seed=seed))
    first = Resamples(rows, "combination", 10).auroc(rows["y_bs"], rows["score_bs"])
    mixed = rows.sample(frac=1, random_state=seed)
    again = Resamples(mixed, "combination", 10).auroc(mixed["y_bs"], np.exp(mixed["score_bs"]))
    turned = Resamples(rows, "combination", 10).auroc(rows["y_bs"], -rows["score_bs"])
    assert np.allclose(first, again, equal_nan=True) and np.allclose(first, 1 - turned, equal_nan=True)


def test_sums_and_ratios_equal_the_plain_bootstrap():
    rows = one(made(TEST)).assign(value=lambda table: np.arange(len(table)) ** 1.5)
    resamples = Resamples(rows, "combination", 60)
    assert Resamples.interval(resamples.ratio(rows["value"], np.ones(len(rows)))) == pytest.approx(
        bootstrap(rows, "value", "combination", 60)
    )
    rate = bootstrap(rows, lambda part: part.loc[part["y_ka"] == 1, "value"].mean(), "combination", 60)
    assert Resamples.interval(resamples.ratio(rows["value"] * rows["y_ka"], rows["y_ka"])) == pytest.approx(rate)
    assert resamples.counts[0].tolist() == [1.0] * rows["combination"].nunique()
    assert (resamples.counts.sum(axis=1) == rows["combination"].nunique()).all()


def test_undefined_everywhere_is_nan_and_means_skip_it():
    rows = pd.DataFrame({"combination": ["a", "b"], "y": [0, 0], "s": [1.0, 2.0]})
    resamples = Resamples(rows, "combination", 5)
    value, low, high = Resamples.interval(resamples.auroc(rows["y"], rows["s"]))
    assert np.isnan([value, low, high]).all()
    assert np.isnan(resamples.ratio(rows["s"], rows["y"])).all()
    found = mean_defined(np.array([[1.0, np.nan, np.nan], [3.0, 2.0, np.nan]]))
    assert found[:2].tolist() == [2.0, 2.0] and np.isnan(found[2])


def test_refusals():
    rows = one(made(TEST))
    with pytest.raises(ValueError, match="lack the columns score_bs"):
        auroc_scores(rows.drop(columns="score_bs"))
    with pytest.raises(ValueError, match="at least one row"):
        Resamples(rows.iloc[:0], "combination")
    with pytest.raises(ValueError, match="number of resamples"):
        Resamples(rows, "combination", 0)
    with pytest.raises(ValueError, match="one number for each"):
        Resamples(rows, "combination", 5).total(np.ones(3))


def test_table_18_is_the_printed_one_with_orders():
    found = study.table_18("smoke").set_index(["row", "column"])["value"]
    for fold, text in printed(18).itertuples(index=False):
        names = text.split(", ")
        assert found[f"fold {fold}", "printed_names_found"] == found[f"fold {fold}", "combinations"] == len(names)
        for k in (2, 3, 4):
            assert found[f"fold {fold}", f"order_{k}"] == sum(len(name.split("_")) == k for name in names)
        assert found[f"fold {fold}", "without_pure_culture"] == 1, "bt"
    assert found["fold 1", "order_4"] == 0 and found["all folds", "printed_names_found"] == 26
    manifest = published_manifest()
    assert found["fold 0", "images"] == len(split(manifest, "dev-0", grouping="image")["test"]) == 18000
    assert found["all folds", "images"] == 26 * 3000 and found["all folds", "without_pure_culture"] == 1


def test_pooling_counts_against_the_partitions():
    found = study.pooling_counts().set_index("column")["value"]
    manifest = published_manifest()
    held = [set(manifest["combination"].to_numpy()[split(manifest, f"lco-{seed}", grouping="image")["test"]])
            for seed in PARTITION_SEEDS]  # fmt: skip
    assert found["pairs"] == sum(map(len, held)) == 27 and found["distinct"] == len(set.union(*held)) == 19
    assert found["held out three times"] == len(set.intersection(*held)) == 3
    assert found["held-out singletons that are bt"] == 1 and found["development"] == 26
    assert found["lowest constant F1 at order 4"] == found["highest constant F1 at order 4"] == 0.8


@pytest.fixture(scope="module")
def rows():
    return made(TEST), made(DEV, seed=1)


def test_margins_against_scores(rows):
    test, dev = rows
    table = study.margins(test, dev, CODES, "corrected", 40)
    found = {(line.row, line.column): (line.value, line.low, line.high) for line in table.itertuples()}
    for start, part, unit, ending in (
        ("test_", test, ["partition", "combination"], ""),
        ("test_", test, "combination", "_distinct"),
        ("dev_", dev, "combination", ""),
    ):
        for method in study.DECODERS:
            expected = scores(one(part, method), ["f1", "macro_f1"], unit=unit, n=40)
            for name, values in expected.items():
                assert found[method, f"{start}{name}{ending}"] == pytest.approx(values)
            expected = auroc_scores(one(part, method), unit=unit, n=40)
            assert found[method, f"{start}mean_auroc{ending}"] == pytest.approx(expected["auroc"])
            assert found[method, f"{start}auroc_fj{ending}"] == pytest.approx(expected["auroc_fj"])
    # the two kinds of unit share the value, not the interval
    assert found["ProtoMatch", "test_f1"][0] == pytest.approx(found["ProtoMatch", "test_f1_distinct"][0])
    assert found["ProtoMatch", "test_f1"][1:] != found["ProtoMatch", "test_f1_distinct"][1:]
    line = table[(table["row"] == "ProtoMatch") & (table["column"] == "dev_f1")].iloc[0]
    assert (line["n_images"], line["n_combinations"]) == (len(one(dev)), 5) and line["partition"] == "dev-0, dev-1"
    assert set(table["evidence"]) == {"simulated"}


def test_differences_are_paired(rows):
    test, dev = rows
    table = study.margins(test, dev, CODES, "reference", 40).set_index(["row", "column"])
    line = table.loc[("ChannelGroup minus ProtoMatch", "test_mean_auroc")]
    first, second = (one(test, name).reset_index(drop=True) for name in ("ChannelGroup", "ProtoMatch"))
    both = first.join(second[[f"score_{code}" for code in CODES]].add_prefix("other_"))

    def difference(part):
        other = part[[f"other_score_{code}" for code in CODES]].to_numpy()
        return auroc(*labels_and_scores(part)) - auroc(labels_and_scores(part)[0], other)

    plain = bootstrap(both, difference, ["partition", "combination"], 40)
    assert (line["value"], line["low"], line["high"]) == pytest.approx(plain)
    f1 = table["value"].xs("dev_f1", level="column")
    assert f1["ChannelGroup minus ProtoMatch"] == pytest.approx(f1["ChannelGroup"] - f1["ProtoMatch"])
    assert not [column for _, column in table.index if column.endswith("_distinct")], "published: pairs only"


def test_table_19_holds_the_printed_numbers_and_is_shown_beside_them(rows):
    table = study.table_19(*rows, CODES, "corrected", 20)
    said = cells(19).set_index(["row", "column"])["value"]
    found = table.dropna(subset="paper").set_index(["row", "column"])["paper"]
    assert len(found) == len(said) == 18 and all(found[key] == said[key] for key in said.index)
    shown = study.shown_19(table, CODES)
    line = shown[(shown["decoder"] == "ProtoMatch") & (shown["numbers"] == "paper")].iloc[0]
    assert line["F1 margin"] == "+0.029 [+0.004, +0.053]" and line["resolved"] == "ka, fj"
    assert line["mean AUROC"] == "0.63 [0.55, 0.71]"
    ours = shown[shown["numbers"] == "here (simulated)"]
    assert set(ours["difference"]) == {"not comparable"} | {"–"} and len(ours) == 9
    value = table.set_index(["row", "column"]).loc[("ProtoMatch", "dev_f1_margin"), "value"]
    block = ours[(ours["images and units"] == "development folds") & (ours["decoder"] == "ProtoMatch")]
    assert block["F1 margin"].iloc[0].startswith(f"{value:+.3f} [")


def test_resolved_is_worded_as_printed():
    ends = {"bs": (0.4, 0.6), "bt": (0.5, 0.9), "fj": (0.6, 0.7), "ka": (0.8, 0.9), "mx": (0.1, 0.4), "pf": (0.2, 0.5)}
    lines = pd.DataFrame([{"column": f"dev_auroc_{code}_distinct", "value": sum(e) / 2, "low": e[0], "high": e[1]}
                          for code, e in ends.items()])  # fmt: skip
    assert study.resolved(lines, "dev_", "_distinct", CODES) == "ka, fj; mx inverted"
    assert study.resolved(lines.assign(low=0.4, high=0.6), "dev_", "_distinct", CODES) == "none"
    assert study.resolved(lines.assign(low=0.1, high=0.2), "dev_", "_distinct", ("bs",)) == "bs inverted"


def test_the_longest_training_stands_for_a_decoder():
    names = ("AllPresent", *study.METHODS)
    short = made(TEST, names, updates={"SimplexUnmix": 60, "SimplexUnmix (2,000 updates)": 2000, "ChannelGroup": 9000,
                                       "ChannelGroup (2,000 updates)": 2000})  # fmt: skip
    kept = study.most_updated(short)
    assert kept.groupby("method")["updates"].max().to_dict() == {
        "AllPresent": 0, "ProtoMatch": 0, "SimplexUnmix": 2000, "ChannelGroup": 9000,
    }  # fmt: skip
    assert len(kept) == 4 * len(one(short))


def test_between_share_against_an_analysis_of_variance():
    rows = one(made(TEST, decimals=3))
    resamples = Resamples(rows, "combination", 30)
    share = study.between_share(resamples, rows["score_ka"] + 1000)

    def plain(part):  # the share of variance that the combinations' means explain
        means = part.groupby("combination")["score_ka"].transform("mean")
        return means.var(ddof=0) / part["score_ka"].var(ddof=0)

    assert Resamples.interval(share) == pytest.approx(bootstrap(rows, plain, "combination", 30))
    flat = study.between_share(resamples, np.full(len(rows), 3.0))
    assert np.isnan(flat).all()
    labels = study.between_share(resamples, rows["y_ka"])
    assert labels[0] == pytest.approx(1.0), "labels differ between combinations only"


def test_score_variance_table(rows):
    mine = rows[0][rows[0]["partition"] == "lco-1337"]
    table = study.score_variance_table(mine, CODES, 30).set_index(["row", "column"])
    first = one(mine)
    means = first.groupby("combination")[[f"{kind}_{c}" for kind in ("y", "score") for c in CODES]].mean()
    assert table.loc[("ProtoMatch", "auroc_means"), "value"] == pytest.approx(auroc(*labels_and_scores(means)))
    assert table.loc[("ProtoMatch", "auroc_images"), "value"] == pytest.approx(auroc(*labels_and_scores(first)))
    difference = table.loc[("ProtoMatch", "auroc_difference")]
    assert difference["value"] == pytest.approx(
        table.loc[("ProtoMatch", "auroc_means"), "value"] - table.loc[("ProtoMatch", "auroc_images"), "value"]
    )

    def paired(part):
        # a combination drawn twice counts twice among the means, as among the images
        times = (part.groupby("combination").size() / first.groupby("combination").size()).dropna().astype(int)
        some = means.loc[times.index.repeat(times)]
        return auroc(*labels_and_scores(some)) - auroc(*labels_and_scores(part))

    assert (difference["low"], difference["high"]) == pytest.approx(bootstrap(first, paired, "combination", 30)[1:])


class FakePool:
    """Tiles around one direction per species, for the folds of the 40 combinations."""

    def __init__(self):
        self.manifest = published_manifest().groupby("combination").head(12).reset_index(drop=True)
        self.codes, self.ids = CODES, self.manifest["path"].tolist()
        self.Y = label_matrix(self.manifest["combination"])
        rng = np.random.default_rng(5)
        X = self.Y[:, None] @ rng.normal(size=(6, 12)) + 0.8 * rng.normal(size=(len(self.Y), 4, 12))
        self.X = (X / np.linalg.norm(X, axis=-1, keepdims=True)).astype(np.float32)
        self.evidence, self.dataset_name, self.encoder_name = "simulated", "sim:smoke", "tiny"

    def take(self, rows):
        return self.X[rows]


def test_configurations_contain_the_decoders():
    from phoebi_lib.decoders import ProtoMatch, SimplexUnmix

    pool = FakePool()
    rows = study.configuration_rows(pool, "corrected", runs=(("dev-0", 1337), ("dev-3", 1337)))
    assert rows["method"].nunique() == 6 and set(rows["partition"]) == {"dev-0", "dev-3"}
    parts = split(pool.manifest, "dev-3", grouping="frame")
    for name, decoder in (("cosine, mean", ProtoMatch()), ("sparsemax, mean", SimplexUnmix(epochs=0))):
        decoder.fit(pool.take(parts["train"]), pool.Y[parts["train"]])
        decoder.calibrate(pool.take(parts["val"]), pool.Y[parts["val"]])
        mine = rows[(rows["method"] == name) & (rows["partition"] == "dev-3")]
        assert np.array_equal(mine[[f"pred_{c}" for c in CODES]], decoder.predict(pool.take(parts["test"])))
        assert np.allclose(labels_and_scores(mine)[1], decoder.decision_function(pool.take(parts["test"])))
        high = rows[(rows["method"] == name.replace("mean", "max")) & (rows["partition"] == "dev-3")]
        tiles = decoder.tile_scores(pool.take(parts["test"]))
        assert np.allclose(labels_and_scores(high)[1], tiles.max(axis=1))
        middle = rows[(rows["method"] == name.replace("mean", "0.9 quantile")) & (rows["partition"] == "dev-3")]
        assert np.allclose(labels_and_scores(middle)[1], np.sort(tiles, axis=1)[:, 2] * 0.3 + tiles.max(axis=1) * 0.7)
    other = study.configuration_rows(pool, "reference", runs=(("dev-0", 1337),))
    first = rows[rows["partition"] == "dev-0"]
    assert not other["pred_bs"].to_numpy().tolist() == first["pred_bs"].tolist(), "published: thresholds from training"


def test_configuration_table(rows):
    names = ("cosine, mean", "sparsemax, max")
    mine = made(DEV, names)
    table = study.configuration_table(mine, CODES, 30, "smoke").set_index(["row", "column"])
    expected = auroc_scores(one(mine, names[1]), n=30)["auroc"]
    line = table.loc[(names[1], "mean_auroc")]
    assert (line["value"], line["low"], line["high"]) == pytest.approx(expected)
    assert table.loc[(names[0], "auroc_difference"), ["value", "low", "high"]].tolist() == [0.0, 0.0, 0.0]
    assert table.loc[(names[1], "auroc_difference"), "value"] == pytest.approx(
        expected[0] - table.loc[(names[0], "mean_auroc"), "value"]
    )
