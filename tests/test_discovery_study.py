"""The discovery study on a small pool: folds, tallies against plain references, intervals, tables and what is shown."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.metrics import f1_score

from phoebi_lib.catalogue import CODES, label_matrix
from phoebi_lib.decoders import SimplexUnmix
from phoebi_lib.intervals import bootstrap, unit_counts
from phoebi_lib.metrics import auroc, cluster_scores, per_sample_f1
from phoebi_lib.openworld import discovery
from phoebi_lib.pool import Pool
from phoebi_lib.splits import partition, published_manifest
from phoebi_lib.studies import discovery_scores as scores
from phoebi_lib.studies import discovery_study as study
from phoebi_lib.studies import discovery_tables as tables

matplotlib.use("Agg")


def make_pool(n=10, crops=2, D=16, T=4):
    manifest = published_manifest(n, crops)
    Y = label_matrix(manifest["combination"])
    rng = np.random.default_rng(0)
    raw = (Y @ rng.normal(size=(6, D)))[:, None] + rng.normal(size=(len(Y), T, D)) + 2.0
    header = {"key": "a" * 64, "labels": Y.tolist(), "codes": list(CODES), "dataset_name": "sim:tiny",
              "encoder_name": "an encoder", "evidence": "simulated", "facts": {}}  # fmt: skip
    return Pool(raw.astype(np.float32), manifest, header)


@pytest.fixture(scope="module")
def pool():
    return make_pool()


@pytest.fixture(scope="module")
def folds(pool):
    return list(study.folds(pool, "corrected"))


# sums and scores


def assignments(seed=0, n=90, units=9, n_proto=3):
    rng = np.random.default_rng(seed)
    unit = np.sort(rng.integers(0, units, n))
    unit[:units] = np.arange(units)
    kind = (np.arange(units) % 2).astype(bool)
    known = rng.integers(0, 2, size=(units, 4))[unit]
    margin = np.round(rng.normal(size=n) + 0.5 * kind[unit], 1)
    slot = np.where(margin > 0, rng.integers(0, n_proto, n), -1)
    return {
        "unit": unit, "holds": kind[unit], "slot": slot, "margin": margin, "by_weight": rng.random(n) < 0.3,
        "known": known, "before": rng.integers(0, 2, size=(n, 4)), "after": rng.integers(0, 2, size=(n, 4)),
    }  # fmt: skip


def tally(data, n_units=9, n_proto=3, **facts):
    values = {name: value for name, value in data.items() if name != "unit"}
    sums, slots, wins = scores.count(data["unit"], n_units, n_proto=n_proto, **values)
    facts = {"row": "a", "fold": "bs", "seed": 1, "setting": "transductive", **facts}
    return scores.Tally(**facts, n_proto=n_proto, updates=7, admitted=0.9, sums=sums, slots=slots, wins=wins)


def reference(data):
    """Every score straight from the images."""
    holds, found, known = data["holds"].astype(int), (data["slot"] >= 0).astype(int), data["known"]
    ones, labelled = np.ones_like(known), known.any(axis=1)
    before, after = (per_sample_f1(known, data[name]) for name in ("before", "after"))
    cluster = cluster_scores(holds, data["slot"])
    f1, p, q = f1_score(holds, found), holds.mean(), found.mean()
    return {
        "cluster_acc": cluster["accuracy"], "recall": cluster["recall"], "purity": cluster["purity"],
        "false_share": found[holds == 0].mean(), "assigned": q,
        "lift": cluster["recall"] - found[holds == 0].mean(), "auroc": auroc(holds, data["margin"]), "f1": f1,
        "f1_margin": f1 - f1_score(holds, np.ones_like(holds)), "f1_blind": 2 * p * q / (p + q),
        "delta_f1_known": after - before, "f1_known": after, "f1_known_margin": after - per_sample_f1(known, ones),
        "delta_f1_known_labelled": per_sample_f1(known[labelled], data["after"][labelled])
        - per_sample_f1(known[labelled], data["before"][labelled]),
        "recall_by_weight": data["by_weight"][holds == 1].mean(), "n_proto": 3.0, "admitted": 0.9,
    }  # fmt: skip


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10_000))
def test_scores_from_sums_are_those_of_the_images(seed):
    data = assignments(seed)
    found = scores.scores(tally(data), np.ones((1, 9)))
    expected = reference(data)
    assert set(found) == set(scores.SCORES) == set(expected)
    for name, value in expected.items():
        assert found[name][0] == pytest.approx(value, nan_ok=True), name


def test_resamples_are_those_of_the_bootstrap():
    data = assignments(3)
    rows = pd.DataFrame({"unit": data["unit"], "at": np.arange(len(data["unit"]))})
    found = {line["column"]: line for line in scores.lines([tally(data)], unit_counts(9, 20))}
    # the row that stands for the species is chosen once, on all images
    matched = pd.Series(data["slot"][data["holds"] & (data["slot"] >= 0)]).mode()[0]

    def on_it(d, among):
        return (d["slot"][d["holds"] & among] == matched).mean() if (d["holds"] & among).any() else float("nan")

    metrics = {
        "auroc": lambda d: auroc(d["holds"], d["margin"]),
        "cluster_acc": lambda d: on_it(d, d["slot"] > -2),
        "purity": lambda d: on_it(d, d["slot"] >= 0),
        "delta_f1_known": lambda d: per_sample_f1(d["known"], d["after"]) - per_sample_f1(d["known"], d["before"]),
    }
    for name, metric in metrics.items():
        expected = bootstrap(
            rows, lambda part, metric=metric: metric({k: v[part["at"]] for k, v in data.items()}), "unit", n=20
        )
        assert [found[name][end] for end in ("value", "low", "high")] == pytest.approx(expected), name
        assert found[name]["updates"] == 7 and found[name]["row"] == "a"


def test_nothing_proposed_scores_zero_and_has_no_purity():
    data = assignments(1) | {"slot": np.full(90, -1), "margin": np.full(90, -2.0), "by_weight": np.zeros(90, bool)}
    found = scores.scores(tally(data, n_proto=0), np.ones((1, 9)))
    assert found["cluster_acc"] == found["recall"] == found["false_share"] == 0.0
    assert np.isnan(found["purity"][0]) and found["auroc"][0] == 0.5
    columns = {line["column"] for line in scores.lines([tally(data, n_proto=0)], unit_counts(9, 20))}
    assert "purity" not in columns and "purity_std" not in columns and "cluster_acc" in columns


def test_means_over_seeds_halves_and_folds_and_their_spreads():
    data = {(fold, seed): assignments(10 * f + seed) for f, fold in enumerate(("bs", "bt")) for seed in (1, 2, 3)}
    every = [tally(d, fold=fold, seed=seed) for (fold, seed), d in data.items()]
    found = {line["column"]: line["value"] for line in scores.lines(every, unit_counts(9, 20))}
    recall = np.array([[reference(data[fold, seed])["recall"] for fold in ("bs", "bt")] for seed in (1, 2, 3)])
    assert found["recall"] == pytest.approx(recall.mean())
    assert found["recall_std"] == pytest.approx(recall.mean(axis=0).std())
    assert found["recall_seed_std"] == pytest.approx(recall.mean(axis=1).std())
    assert (found["recall_min"], found["recall_max"]) == pytest.approx((recall.min(), recall.max()))
    # two halves of one assignment are averaged
    pair = [tally(data["bs", 1]), tally(data["bs", 2])]
    half = {line["column"]: line["value"] for line in scores.lines(pair, unit_counts(9, 20), suffix="_inductive")}
    assert half["recall_inductive"] == pytest.approx(recall[:2, 0].mean())
    assert "recall_seed_std_inductive" not in half
    with pytest.raises(ValueError, match="every seed needs every fold"):
        scores.lines(every[:-1], unit_counts(9, 20))


def test_differences_are_paired():
    data = assignments(4)
    better = data | {"slot": np.where(data["holds"], 0, data["slot"])}
    both = [tally(data, row="plain"), tally(better, row="better"), tally(data, row="twin")]
    lines = scores.lines(both, unit_counts(9, 200), reference="plain")
    less = {line["row"]: line for line in lines if line["column"] == "cluster_acc_less_reference"}
    assert set(less) == {"better", "twin"}
    assert less["twin"]["value"] == 0 and "low" not in less["twin"], "the same assignment differs in no resample"
    gap = reference(better)["cluster_acc"] - reference(data)["cluster_acc"]
    assert less["better"]["value"] == pytest.approx(gap) and less["better"]["low"] > 0


# folds


def test_a_fold_keeps_the_stranger_out_of_everything_it_learns(pool, folds):
    assert [fold.code for fold in folds] == list(CODES)
    parts = partition(pool.manifest, "random", grouping="frame")
    for k, fold in enumerate(folds):
        assert (fold.holds == (pool.Y[parts["test"]][:, k] == 1)).all()
        kept = parts["train"][pool.Y[parts["train"]][:, k] == 0]
        X, Y = fold.kept
        fold.forget()
        assert (fold.kept[0] == X).all()
        assert (X == pool.take(kept)).all() and (Y == np.delete(pool.Y[kept], k, axis=1)).all()
        decoder = SimplexUnmix(epochs=0).fit(X, Y)
        assert fold.prototypes == pytest.approx(decoder.prototypes_)
        val = parts["val"][pool.Y[parts["val"]][:, k] == 0]
        decoder.calibrate(pool.take(val), np.delete(pool.Y[val], k, axis=1))
        assert fold.thresholds == pytest.approx(decoder.thresholds_)
        assert (fold.before == decoder.predict(pool.take(parts["test"]))).all()


def test_the_reference_takes_thresholds_from_training_images(pool):
    fold = next(study.folds(pool, "reference"))
    decoder = SimplexUnmix(epochs=0).fit(*fold.kept).calibrate(*fold.kept)
    assert fold.thresholds == pytest.approx(decoder.thresholds_)


def test_halves_share_no_frame_and_both_hold_both_kinds(folds):
    for fold in folds:
        frames = fold.manifest.assign(half=fold.half).groupby(["combination", "frame"])["half"].nunique()
        assert (frames == 1).all()
        for half in (0, 1):
            share = fold.holds[fold.half == half].mean()
            assert share == pytest.approx(fold.holds.mean(), abs=0.05)
        assert fold.half.mean() == pytest.approx(0.5, abs=0.05)
    # one frame a combination: the halves have different combinations
    manifest = pd.DataFrame({"combination": ["a", "b", "c", "d"], "frame": 1})
    assert study.halves(manifest, np.array([True, False, True, False])).tolist() == [0, 0, 1, 1]


def test_what_is_clustered_and_what_is_scored(folds, monkeypatch):
    fold, seen, scored = folds[2], [], []
    inner, assign = study.propose, study.assign
    monkeypatch.setattr(study, "propose", lambda X, *a, **k: seen.append(X) or inner(X, *a, **k))
    monkeypatch.setattr(study, "assign", lambda X, *a: scored.append(X) or assign(X, *a))
    study.run(fold, [study.Primitive("a", "sinkhorn")], [5, 6], ("transductive", "inductive"))
    first, second = fold.X[fold.half == 0], fold.X[fold.half == 1]
    for found, expected in ((seen, (fold.X, first, second)), (scored, (fold.X, second, first))):
        assert len(found) == 3 and all((a == b).all() for a, b in zip(found, expected, strict=True))
    seen.clear()
    control = next(p for p in study.TABLE_10 if p.without)
    study.run(fold, [control], [5], ("transductive",))
    assert (seen[0] == fold.X[~fold.holds]).all()


def test_a_share_becomes_a_size_of_at_least_two(folds, monkeypatch):
    sizes = []
    monkeypatch.setattr(study, "propose", lambda X, *a, min_size, **k: sizes.append(min_size) or np.empty((0, 16)))
    tiles = folds[0].X.shape[0] * folds[0].X.shape[1]
    for share in (0.1, study.GREEDY_SHARE):
        how = study.Primitive("a", "greedy", settings={"min_share": share})
        study.run(folds[0], [how], [1], ("transductive",))
    assert sizes == [round(0.1 * tiles), 2] and round(study.GREEDY_SHARE * 192_000) == 50


def test_tallies_are_those_of_the_parts(folds):
    fold = folds[0]
    how = study.Primitive("a", "sinkhorn", 4, stochastic=True)
    found = study.run(fold, [how], [5, 6], ("transductive",))
    assert [t.seed for t in found] == [5, 6] and {t.fold for t in found} == {"bs"}
    proposed = discovery.propose(fold.X, "sinkhorn", 4, 5)
    slot, margin = discovery.assign(fold.X, fold.prototypes, proposed)
    weights = discovery.mixture_weights(fold.X, np.concatenate([fold.prototypes, proposed]))
    after = (weights[:, :5] > fold.thresholds).astype(int)
    one = scores.scores(found[0], np.ones((1, 40)))
    assert one["cluster_acc"][0] == pytest.approx(cluster_scores(fold.holds, slot)["accuracy"])
    assert one["auroc"][0] == pytest.approx(auroc(fold.holds, margin))
    drift = per_sample_f1(fold.labels, after) - per_sample_f1(fold.labels, fold.before)
    assert one["delta_f1_known"][0] == pytest.approx(drift)
    assert one["recall_by_weight"][0] == pytest.approx((weights.argmax(axis=1) >= 5)[fold.holds].mean())


def test_gates_cut_at_validation_tiles_of_known_species(pool, folds):
    fold = folds[3]
    V = pool.take(fold.parts["val"])
    bank = fold.kept[0].reshape(-1, 16)

    def knn(X):
        return 1 - np.sort(X @ bank.T, axis=2)[:, :, -10]

    assert (fold.gate("k-NN") == (knn(fold.X) > np.quantile(knn(V), 0.95) + 1e-7)).mean() > 0.999
    Y = pool.Y[fold.parts["val"]][:, fold.known]
    median = [np.median(knn(V)[(Y.sum(axis=1) == 1) & (Y[:, k] == 1)]) for k in range(5)]
    ratio, cut = (knn(X) / np.array(median)[(X @ fold.prototypes.T).argmax(axis=2)] for X in (fold.X, V))
    assert (fold.gate("normalised k-NN") == (ratio > np.quantile(cut, 0.95))).mean() > 0.999
    found = study.run(fold, study.GATES, [1], ("transductive",))
    assert [t.row for t in found] == [study.GATE, "residual", "normalised residual", "k-NN", "normalised k-NN"]
    assert [t.admitted for t in found] == pytest.approx([fold.gate(t.row).mean() for t in found])


def test_simgcd_grid(folds, monkeypatch):
    monkeypatch.setattr(study, "SIMGCD_LONG", {"rate": 1e-2, "updates": 12, "batch": 64})
    fold = folds[1]
    steps = -(-len(fold.labelled[0]) // 4096)
    found = study.simgcd_grid(fold, [1, 2])
    names = {f"SimGCD-style, {e} epochs, rate {r}": e * steps for r, e in
             (("0.001", 5), ("0.001", 10), ("0.01", 5), ("0.01", 10), ("0.01", 30))}  # fmt: skip
    once = {"SimGCD-style, 0 epochs": 0, "SimGCD-style, 12 updates, rate 0.01 (not in the paper)": 12}
    counted = pd.Series([t.row for t in found]).value_counts().to_dict()
    assert counted == {**dict.fromkeys(once, 1), **dict.fromkeys(names, 2)}
    assert {t.row: t.updates for t in found} == {**once, **names}
    alone = discovery.propose(fold.X, "simgcd", 1, 2, known=fold.prototypes, labelled=fold.kept, epochs=10)
    mine = fold.tally("", alone, np.full(len(fold.X), True), seed=2)
    (same,) = (t for t in found if t.row == "SimGCD-style, 10 epochs, rate 0.01" and t.seed == 2)
    assert (same.sums["found"] == mine.sums["found"]).all() and same.wins == pytest.approx(mine.wins, abs=1)


# tables


@pytest.fixture(scope="module")
def table10(pool, folds):
    tallies = [t for fold in folds for t in study.run(fold, study.TABLE_10, [1, 2], ("transductive", "inductive"))]
    frame = study.tidy(tallies, pool, table="10", profile="smoke", compat="corrected", n=50)
    return tallies, tables.report.add_paper(frame, 10)


def test_table_10(pool, table10):
    _, frame = table10
    cells = frame.set_index(["row", "column"])
    assert cells.loc[(study.K1, "cluster_acc"), "paper"] == 0.502
    assert cells.loc[("SK K=1 + Cr-KD distillation (Gu et al., 2023)", "recall_std"), "paper"] == 0.19
    assert cells.loc[("Greedy cosine (θ=0.7, m≥50)", "delta_f1_known"), "paper"] == -0.377
    printed = frame[frame["paper"].notna()]
    assert len(printed) == 6 * 9 and not printed["row"].str.contains("control").any()
    for suffix in ("", "_inductive"):
        assert cells.loc[(study.K1, f"purity{suffix}"), "value"] == 1.0
    assert {"recall_seed_std", "cluster_acc_less_reference_inductive"} <= set(frame["column"])
    assert (frame["n_images"] == 80).all() and (frame["n_frames"] == 40).all() and (frame["partition"] == "loso").all()
    assert (frame["n_combinations"] == 40).all() and (frame["evidence"] == "simulated").all()
    assert cells.loc[("SK K=1 + Cr-KD distillation (Gu et al., 2023)", "recall"), "updates"] == 100


def test_what_is_shown(table10, folds):
    tallies, frame = table10
    shown = tables.printed_shown(frame)
    ours, paper = shown.iloc[0], shown.iloc[1]
    assert list(shown.columns[:4]) == ["primitive", "numbers", "prototypes", "cluster acc"]
    assert paper["numbers"] == "paper" and paper["cluster acc"] == "0.443\u00a0±\u00a00.120"
    assert paper["prototypes"] == "59.0" and ours["difference"] == "not comparable"
    assert len(shown) == 8 + 6
    assert shown.set_index(["primitive", "numbers"]).loc[
        ("SK K=1 + Cr-KD distillation (Gu et al., 2023)", "here (simulated)"), "updates"] == "100"  # fmt: skip
    honest = tables.honest_shown(frame)
    assert honest["setting"].tolist() == ["transductive", "inductive"] * 8
    cells = frame.set_index(["row", "column"])
    low = cells.loc[(study.K1, "lift_inductive"), "low"]
    line = honest[(honest["primitive"] == study.K1) & (honest["setting"] == "inductive")].iloc[0]
    assert f"[{tables.report.at_digits(low, 3, True)}," in line["recall above it"]
    assert len(tables.drift_shown(frame)) == 8
    for table in (shown, honest, tables.drift_shown(frame)):
        assert (table.map(lambda text: text.strip()) != "").all(axis=None)
    points = tables.by_fold(tallies, np.ones((1, 40)))
    assert points["recall"].shape == (8, 6)
    mean = points["recall"].loc[study.K1].mean()
    assert mean == pytest.approx(cells.loc[(study.K1, "recall"), "value"])
    figure = tables.folds_figure(frame, points)
    assert len(figure.axes) == 3
    _, axis = plt.subplots()
    centre, axes, _ = tables.plane(folds[0].X.reshape(-1, 16))
    tables.scatter_fold(axis, folds[0], centre, axes, n=50)
    assert [len(line.get_xdata()) for line in axis.lines] == [50, 50, 1, 1, 1, 1, 1, 1]
    plt.close("all")


def test_quoted_numbers_stand_beside_ours(pool, folds, monkeypatch):
    monkeypatch.setattr(study, "SIMGCD_LONG", {"rate": 1e-2, "updates": 3, "batch": 64})
    tallies = [t for f in folds for t in study.run(f, study.HEADS, [1], ("transductive",))]
    tallies += [t for f in folds for t in study.simgcd_grid(f, [1])]
    frame = tables.add_quoted(study.tidy(tallies, pool, table="x", profile="smoke", compat="corrected", n=20))
    cells = frame.set_index(["row", "column"])
    assert cells.loc[("UNO-style, 1 slot", "cluster_acc"), ["paper", "digits"]].tolist() == [0.187, 3]
    assert cells.loc[("UNO-style, 1 slot", "cluster_acc_std"), "paper"] == 0.092
    assert cells.loc[("Cr-KD, λ = 1.0", "recall"), "paper"] == 0.0
    assert cells.loc[("SimGCD-style, 5 epochs, rate 0.001", "cluster_acc"), "paper"] == 0.0
    assert cells.loc[("SimGCD-style, 0 epochs", "cluster_acc_less_reference"), "value"] == pytest.approx(0, abs=1e-9)
    gated = {"normalised residual", "normalised residual, patch tokens"}
    assert {row for row, _ in tables.QUOTED} - set(frame["row"]) == gated
    gates = [t for f in folds for t in study.run(f, study.GATES, [1], ("transductive",))]
    frame = study.tidy(gates, pool, table="y", profile="smoke", compat="corrected", reference=study.GATE, n=20)
    shown = tables.gates_shown(tables.add_quoted(frame))
    assert shown.loc[shown["gate"] == "normalised residual", "cluster acc"].tolist()[1] == "0.150"
    assert shown["tiles admitted"].iloc[0].count(" to ") == 1


def test_gates_on_patch_tokens_are_the_gates_under_their_own_rows(pool, folds):
    found = study.run_gates_on_patches(pool, "corrected", range(1), ("transductive",))
    plain = [tally for fold in folds for tally in study.run(fold, study.GATES, range(1), ("transductive",))]
    assert [(t.row, t.fold, t.admitted) for t in found] == [
        (f"{t.row}, patch tokens", t.fold, t.admitted) for t in plain
    ]
    for mine, theirs in zip(found, plain, strict=True):
        assert all((mine.sums[name] == theirs.sums[name]).all() for name in theirs.sums)
    table = study.tidy(found, pool, table="D.3 discovery gate", profile="smoke", compat="corrected",
                       reference=f"{study.GATE}, {study.PATCHES}", n=20)  # fmt: skip
    line = tables.add_quoted(table).set_index(["row", "column"])
    assert line.loc[("normalised residual, patch tokens", "cluster_acc"), "paper"] == 0.0
    assert np.isnan(line.loc[("residual, patch tokens", "cluster_acc"), "paper"])


def test_plane_is_that_of_pca():
    X = np.random.default_rng(0).normal(size=(300, 7)) * np.arange(1, 8) + 3
    centre, axes, share = tables.plane(X)
    expected = PCA(2).fit(X)
    assert centre == pytest.approx(expected.mean_) and share == pytest.approx(expected.explained_variance_ratio_)
    assert np.abs(axes @ expected.components_.T) == pytest.approx(np.eye(2), abs=1e-8)
    assert (axes[np.arange(2), np.abs(axes).argmax(axis=1)] > 0).all()


def test_labelled_tiles_carry_the_bits_of_their_image(folds):
    X, bits = folds[0].labelled
    images, Y = folds[0].kept
    assert torch.equal(X[4:8], torch.from_numpy(images[1])) and (bits[4:8].numpy() == Y[1]).all()
