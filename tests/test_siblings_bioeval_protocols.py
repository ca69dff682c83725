"""BioCLIP 2's evaluation, protocols: its test vectors, its variants, and what each refuses, on made-up features."""

from __future__ import annotations

import itertools
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score

from phoebi_lib.siblings.bioeval import discovery, evaluate, fixture, heads, intra_species, newt, simpleshot, zero_shot
from phoebi_lib.siblings.bioeval.layout import LABELS, LOADERS
from phoebi_lib.siblings.bioeval.protocol import shown, summary
from phoebi_lib.siblings.vectors import nearest

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bioeval")
    fixture.write(folder)
    return folder


@pytest.fixture(scope="module")
def tables(data):
    return {name: load(data / name) for name, load in LOADERS.items()}


def made_up(table, by, dim=16, noise=0.1, seed=0):
    """Return features by path, not in the table's order: one random vector for each value of ``by``, and noise."""
    rng, keys = RNG(seed), table[by].astype(str).agg("/".join, axis=1)
    centre = {key: rng.normal(size=dim) for key in sorted(set(keys))}
    values = np.stack([centre[key] + noise * rng.normal(size=dim) for key in keys])
    return pd.DataFrame(values, index=table["path"]).sample(frac=1, random_state=1)


def value(frame, metric, variant=None):
    lines = frame[frame["metric"] == metric]
    return (lines if variant is None else lines[lines["variant"] == variant])["value"].item()


def refused(message, call, *args, **more):
    with pytest.raises(ValueError, match=message):
        call(*args, **more)


def test_a_result_is_mean_and_population_deviation():
    frame = summary("a", [("ours", "b", right, 7) for right in (1.0, 0.0, 0.0, 1.0, np.nan)], floor=np.nan)
    assert frame.iloc[0].tolist()[:7] == ["ours", "b", 0.5, 0.5, 4, 7, "a"]
    columns = {name: name for name in ("value", "spread", "floor", "n_images")}
    assert shown(frame, columns).iloc[0].tolist() == ["0.50", "0.50", "–", "7"]
    assert shown(summary("a", [("ours", "b", 1.0, 7)], floor=0.0), columns).iloc[0].tolist() == [
        "1.00",
        "–",
        "0.00",
        "7",
    ]


# heads


def test_scores_by_hand():
    Y = np.array([[1, 0, 1, 0, 0, 0, 1, 0, 0], [0, 1, 1, 1, 0, 0, 0, 1, 0]])
    P = Y.copy()
    P[1, 4] = 1
    fish = heads.fishnet_scores(Y, P)
    assert fish["all nine right"] == 0.5 and fish["label accuracy, mean"] == pytest.approx(17 / 18)
    assert fish["label accuracy, Boreal"] == 0.5 and fish["label accuracy, Polar"] == 1.0
    Y = np.array([[1, 0, 0], [0, 1, 0]])
    awa2 = heads.awa2_scores(Y, Y)
    assert awa2["macro-F1"] == awa2["ceiling of macro-F1"] == pytest.approx(2 / 3), "the third is never positive"
    assert awa2["macro-F1, present attributes"] == 1.0
    assert np.isnan(heads.awa2_scores(0 * Y, Y)["macro-F1, present attributes"])


def test_scores_agree_with_scikit_learn_on_random_labels():
    rng = RNG(3)
    Y, P = rng.integers(0, 2, (40, 9)), rng.integers(0, 2, (40, 9))
    Y[:, 5] = P[:, 5] = Y[:, 7] = 0
    each = f1_score(Y, P, average=None, zero_division=0)
    awa2, fish = heads.awa2_scores(Y, P), heads.fishnet_scores(Y, P)
    assert awa2["macro-F1"] == fish["macro-F1 of the labels"] == pytest.approx(each.mean())
    assert awa2["F1, first two attributes"] == pytest.approx(each[:2].mean())
    assert awa2["macro-F1, present attributes"] == pytest.approx(each[Y.any(axis=0)].mean())
    assert awa2["ceiling of macro-F1"] == pytest.approx(7 / 9)
    assert fish["all nine right"] == np.mean([y.tolist() == p.tolist() for y, p in zip(Y, P, strict=True)])


def test_the_head_is_the_published_one():
    assert (heads.BATCH, heads.EPOCHS, heads.TASKS["FishNet"][0], heads.TASKS["AwA2"][0]) == (256, 50, 1e-4, 1e-5)
    X, Y, state = RNG(0).normal(size=(30, 8)), RNG(1).integers(0, 2, (30, 3)), torch.get_rng_state()
    first, dropout, second = head = heads.fit_head(X, Y, 1e-3, 2, seed=4)
    assert (first.in_features, first.out_features, second.out_features, dropout.p) == (8, 512, 3, 0.5)
    with torch.inference_mode():
        a, b, both = (head(torch.tensor(x, dtype=torch.float32)) for x in (X[:5], X[5:10], X[:5] + X[5:10]))
        assert torch.allclose(a + b - head(torch.zeros(5, 8)), both, atol=1e-5), "the head is affine"
    again, other = (heads.fit_head(X, Y, 1e-3, 2, seed=seed)[0].weight for seed in (4, 5))
    assert torch.equal(first.weight, again) and not torch.equal(again, other)
    for call, more in ((heads.fit_head, (Y, 1e-3, 2)), (lambda broken: heads.predict(head, broken), ())):
        refused("rows \\[0, 1, .* not finite", call, X * np.nan, *more)
    assert torch.equal(torch.get_rng_state(), state), "the caller's generator stays as it is"


@pytest.mark.parametrize(("epochs", "halved"), [(50, 20), (300, 120)])
def test_adam_steps_once_a_batch_and_halves_its_rate(monkeypatch, epochs, halved):
    rates, step = [], torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: rates.append(self.param_groups[0]["lr"]) or step(self))
    monkeypatch.setattr(heads, "BATCH", 3)
    heads.fit_head(np.ones((5, 2)), np.ones((5, 1)), 1e-3, epochs)
    assert rates == pytest.approx([1e-3 / 2 ** (epoch // halved) for epoch in range(epochs) for _ in range(2)])


def test_reference_code_asks_for_logit_one_half_and_leaves_dropout_on():
    head = torch.nn.Sequential(torch.nn.Linear(1, 400), torch.nn.Dropout(0.5), torch.nn.Linear(400, 1))
    with torch.no_grad():
        head[0].weight[:], head[0].bias[:], head[2].weight[:], head[2].bias[:] = 1.0, 0.0, 1 / 400, 0.0
    X = np.repeat([[0.4], [0.5], [0.0], [3.0]], 200, axis=0)
    paper, reference = (heads.predict(head, X, variant).reshape(4, 200) for variant in ("paper", "reference_code"))
    assert paper.all(axis=1).tolist() == [True, True, False, True] and not head.training
    assert reference[0].mean() < 0.02 and 0.3 < reference[1].mean() < 0.7 and reference[3].all(), "noise at 0.5"
    assert not np.array_equal(reference, heads.predict(head, X, "reference_code", seed=1).reshape(4, 200))


def test_labels_go_by_name_and_further_columns_are_none(tables):
    fishnet, awa2 = tables["fishnet"], tables["awa2"]
    more = fishnet[list(fishnet)[::-1]].assign(row=range(len(fishnet)))
    assert heads.labels_of("FishNet", more).equals(fishnet[list(LABELS)])
    assert heads.labels_of("AwA2", awa2.assign(frame=1)).equals(heads.labels_of("AwA2", awa2))
    assert heads.labels_of("AwA2", awa2[awa2["split"] == "test"]).shape[1] == 85


def test_fishnet_protocol(tables):
    table = tables["fishnet"]
    features = 5 * made_up(table, list(LABELS))
    frame = heads.many_labels("FishNet", table, features, runs=2)
    counts = frame[frame["metric"].str.startswith("label accuracy, ")].groupby("variant").size()
    assert counts.to_dict() == {"paper": 10, "reference_code": 10}
    assert set(frame["runs"]) == {2} and set(frame["updates"]) == {50}
    sizes = frame.set_index("metric")["n_images"]
    assert set(sizes["all nine right"]) == {9} and sizes["all nine right, training images"] == 23
    longer = heads.many_labels("FishNet", table, features, fitted=True, runs=1)
    assert set(longer["updates"]) == {300} and set(longer["variant"]) == {"ours"}
    assert value(longer, "all nine right") == value(longer, "all nine right, training images") == 1.0
    for broken, used, message in ((table, features.drop(table["path"].iloc[3]), "FishNet: no features for 1 images"),
                                  (table, features.replace(features.iloc[0, 0], np.inf), "not finite"),
                                  (table[table["split"] == "train"], features, "FishNet: no test image"),
                                  (table[table["split"] == "test"], features, "FishNet: no train image")):  # fmt: skip
        refused(message, heads.many_labels, "FishNet", broken, used)
    refused("task must be one of 'FishNet', 'AwA2'; found 'fishnet'", heads.many_labels, "fishnet", table, features)


def test_awa2_protocol(tables, monkeypatch):
    table = tables["awa2"]
    features = 5 * made_up(table, ["class"])
    longer = heads.many_labels("AwA2", table, features, fitted=True, runs=1)
    labels = table[table["split"] == "test"].select_dtypes("integer")
    assert value(longer, "ceiling of macro-F1") == labels.any().mean() < 1
    assert value(longer, "macro-F1") < value(longer, "macro-F1, present attributes")
    assert value(longer, "macro-F1, present attributes, training images") > 0.95 and set(longer["lists"]) == {"custom"}
    monkeypatch.setattr(heads, "UPDATES", 50)
    frame = heads.many_labels("AwA2", table, features, fitted=True, runs=1)
    assert frame[frame["variant"] == "reference_code"]["metric"].tolist() == ["F1, first two attributes"]
    assert frame[frame["variant"] == "paper"]["metric"].tolist() == longer["metric"].tolist(), (
        "not longer: as published"
    )
    assert "F1, first two attributes" not in longer["metric"].tolist() and set(frame["updates"]) == {50}


# NeWT


def test_newt_protocol_centres_on_each_task(tables):
    table = tables["newt"]
    features = made_up(table, ["task", "label"], noise=0.2)
    for embedded in (features, features + 50 * RNG(1).normal(size=16)):
        scores = newt.newt_scores(newt.newt(table, embedded, draws=0, runs=1))
        assert value(scores, "micro accuracy") == 1.0 and set(scores["variant"]) == {"ours"}
    one_sided = newt.newt(table[(table["split"] == "train") | (table["label"] == 1)], features, draws=0, runs=1)
    assert (one_sided["prediction"] == 1).all(), "the mean is that of the training images"
    rows = newt.newt(table, features, draws=3, runs=2, seed=1)
    assert len(rows) == 2 * 18 and set(rows["run"]) == {1, 2} and set(rows["classifier"]) == {newt.SEARCH}
    of_task, label, split = (table["task"] == "ml_bio_synthetic"), table["label"], table["split"]
    for gone, message in ((of_task & (label == 1) & (split == "train"), "expected training images of both classes"),
                          (of_task & (split == "test"), "no test image")):  # fmt: skip
        refused(f"NeWT task 'ml_bio_synthetic': {message}", newt.newt, table[~gone], features, draws=0)
    refused("runs must be an integer >= 1; found 0", newt.newt, table, features, runs=0)
    refused("NeWT: no task among 0 rows", newt.newt, table[:0], features)


def test_newt_search_is_the_published_one():
    X, y = RNG(0).normal(size=(20, 4)), np.arange(20) % 2
    search, name = newt.fit_svm(X, y, draws=4, seed=2)
    assert (name, search.n_iter, search.cv, search.random_state) == (newt.SEARCH, 4, 5, 2)
    assert [step for step, _ in search.estimator.steps] == ["standardscaler", "svc"]
    drawn = pd.DataFrame(search.cv_results_["params"])
    assert drawn["svc__C"].between(1e-3, 10).all() and drawn["svc__gamma"].between(1e-4, 1e-3).all()
    assert newt.SPACE["svc__kernel"] == ["rbf", "linear", "sigmoid", "poly"]
    fast, name = newt.fit_svm(X, y, draws=0)
    assert (name, fast.kernel, fast.C) == (newt.FAST, "linear", 1.0)
    for counts, name in (((4, 4), newt.FAST), ((9, 1), newt.FAST), ((6, 3), newt.SEARCH)):
        small = np.repeat([0, 1], counts)
        assert newt.fit_svm(X[: len(small)], small, draws=2)[1] == name, (
            "where the folds cannot be filled, the fast one"
        )


def test_newt_micro_pools_images_and_macro_pools_tasks():
    rows = pd.DataFrame({
        "path": list("abcdef"), "task": ["ml_age_x"] * 4 + ["t"] * 2, "cluster": ["appearance"] * 4 + ["context"] * 2,
        "label": [1, 1, 0, 0, 1, 0], "prediction": [1, 1, 0, 0, 0, 1], "classifier": newt.SEARCH, "run": 0,
    })  # fmt: skip
    scores = newt.newt_scores(rows)
    assert scores["metric"].tolist() == [
        "micro accuracy", "macro accuracy", "micro accuracy, appearance", "micro accuracy, context",
        "micro accuracy, ml_age tasks"]  # fmt: skip
    assert scores["value"].tolist() == pytest.approx([4 / 6, 0.5, 1, 0, 1])
    assert scores["n_images"].tolist() == [6, 6, 4, 2, 4] and set(scores["n_fast_tasks"]) == {0}
    mixed = newt.newt_scores(pd.concat([rows, rows.assign(run=1, prediction=rows["label"])]))
    assert value(mixed, "macro accuracy") == 0.75 and set(mixed["runs"]) == {2}
    fast = newt.newt_scores(rows.assign(classifier=[newt.SEARCH] * 4 + [newt.FAST] * 2, task=list("aabbcc")))
    assert set(fast["variant"]) == {"paper"} and set(fast["n_fast_tasks"]) == {1} and len(fast) == 4


# Herbarium19


def test_matching():
    truth, clusters = np.array([0, 0, 0, 1, 1, 2, 2, 2]), np.array([3, 3, 0, 0, 0, 1, 1, 3])
    assert discovery.matched(truth, clusters).sum() == 6
    assert [discovery.matched(truth[part], clusters[part]).sum() for part in (truth < 2, truth == 2)] == [4, 2]
    rng = RNG(0)
    for _ in range(20):
        truth, clusters = rng.integers(0, 4, 12), rng.integers(0, 5, 12)
        best = max((np.array(maps)[clusters] == truth).mean() for maps in itertools.permutations([0, 1, 2, 3, 9]))
        assert discovery.matched(truth, clusters).mean() == pytest.approx(best)
    for clusters in ([], [0]):
        refused("one class and one cluster per image", discovery.matched, [], clusters)


def test_labelled_share():
    old = np.arange(30) % 3 > 0
    for share, n in ((0.8, 16), (0.5, 10), (0.99, 19)):
        drawn = np.flatnonzero(old)[np.random.RandomState(0).choice(20, n, replace=False)]
        assert sorted(drawn) == np.flatnonzero(discovery.labelled_rows(old, share)).tolist(), "numpy's legacy generator"
    assert discovery.labelled_rows(old).sum() == 16
    for share in (1.5, 0.01, np.nan):
        refused(f"share {share} of 20", discovery.labelled_rows, old, share)


def test_kmeans_keeps_labelled_rows_and_finds_new_groups():
    X, y = np.repeat(np.eye(6)[:4], 10, axis=0) + 0.05 * RNG(0).normal(size=(40, 6)), np.repeat(np.arange(4), 10)
    known = (y < 2) & (np.arange(40) % 2 == 0)
    clusters, inertia = discovery.semi_supervised_kmeans(X[known], y[known], X[~known], 4)
    assert discovery.matched(y[~known], clusters).all() and (clusters[y[~known] < 2] == y[~known][y[~known] < 2]).all()
    expected = sum(((X[y == c] - X[y == c].mean(axis=0)) ** 2).sum() for c in range(4))
    assert inertia == pytest.approx(expected, rel=1e-2)
    for unlabelled, k, more, message in ((X[~known], 1, {}, "k = 1 clusters for 2 labelled classes"),
                                         (X[:0], 4, {}, "0 unlabelled images"),
                                         (X[~known], 4, {"iterations": 0}, "iterations must be an")):  # fmt: skip
        refused(message, discovery.semi_supervised_kmeans, X[known], y[known], unlabelled, k, **more)
    refused("for 0 labelled classes", discovery.semi_supervised_kmeans, X[:0], [], X, 4)


def test_labelled_points_hold_their_centre_and_the_first_inertia_is_before_the_update():
    labelled, unlabelled = np.array([[0.0], [4.0]]), np.array([[3.0]])
    for iterations, expected in ((1, 1.0), (10, 0.5)):
        clusters, inertia = discovery.semi_supervised_kmeans(labelled, [0, 1], unlabelled, 2, iterations=iterations)
        assert clusters.tolist() == [1] and inertia == pytest.approx(expected), "centre 1 moves from 4 to 3.5"


def test_an_empty_cluster_keeps_its_centre(monkeypatch):
    seen = []
    monkeypatch.setattr(discovery, "nearest", lambda X, centres: seen.append(centres) or nearest(X, centres))
    labelled, unlabelled = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[5.0, 5.0]] * 3)
    clusters, inertia = discovery.semi_supervised_kmeans(labelled, [0, 1], unlabelled, 5, tolerance=0.0)
    assert set(clusters) == {2} and inertia == 0.0, "three new centres coincide, two of them stay empty"
    iterations = [centres for centres in seen if len(centres) == 5]
    assert len(iterations) == 10 and all(np.array_equal(centres, iterations[0]) for centres in iterations)


def test_a_point_that_is_a_centre_is_not_drawn_again():
    labelled, unlabelled = np.array([[0.0], [0.0]]), np.array([[10.0], [-10.0]])
    for seed in range(10):
        assert discovery.semi_supervised_kmeans(labelled, [0, 0], unlabelled, 3, seed=seed)[1] == 0.0


def test_herbarium19_protocol(tables):
    table = tables["herbarium19"]
    features = made_up(table, ["class"], noise=0.05)
    for share, n in ((0.8, 15), (0.5, 18)):
        frame = discovery.herbarium19(table, features, share=share)
        assert (frame["value"] == 1.0).all() and set(frame["runs"]) == {3} and set(frame["labelled_share"]) == {share}
        assert frame.set_index(["variant", "metric"])["n_images"]["split"].tolist() == [n, n - 12, 12]
    rough = made_up(table, ["class"], noise=3.0)
    noisy = discovery.herbarium19(table, rough, runs=5)
    longer = discovery.herbarium19(table, rough * RNG(1).uniform(1, 9, (24, 1)), runs=5)
    pd.testing.assert_frame_equal(noisy, longer, obj="of unit norm")
    split, joint = (noisy[noisy["variant"] == name].set_index("metric")["value"] for name in ("split", "joint"))
    assert split["accuracy, all"] > joint["accuracy, all"]
    assert split["accuracy, all"] == pytest.approx((3 * split["accuracy, Old"] + 12 * split["accuracy, New"]) / 15)
    everything = discovery.herbarium19(table, features, share=1.0, runs=1)
    assert np.isnan(value(everything, "accuracy, Old", "split")) and value(everything, "accuracy, all", "split") == 1


# SimpleShot


def test_simpleshot_agrees_with_its_definition():
    rng = RNG(0)
    support, query, classes = rng.normal(size=(12, 5)) + 1, rng.normal(size=(30, 5)) + 1, np.array(list("cab") * 4)
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    mean = unit(support).mean(axis=0)
    s, q = unit(unit(support) - mean), unit(unit(query) - mean)
    expected = ["abc"[np.argmin([np.linalg.norm(x - s[classes == c].mean(axis=0)) for c in "abc"])] for x in q]
    assert simpleshot.simpleshot(7 * support, classes, query / 3).tolist() == expected
    for names, alike in ((["a"] * 12, support), (classes, np.ones((12, 5)))):
        refused("expected two classes and two different vectors", simpleshot.simpleshot, alike, names, query)
    for names, asked, message in ((classes[1:], query, "classes \\(11,\\) .* do not fit"),
                                  (classes, query[:, 1:], "query \\(30, 4\\) do not fit"),
                                  ([None, 1] * 6, query, "classes \\[None, 1, None\\], .* texts or")):  # fmt: skip
        refused(message, simpleshot.simpleshot, support, names, asked)


def test_ties_go_to_the_lowest_class_though_rounding_splits_them():
    for dtype, (low, high) in itertools.product((np.float64, np.float32), itertools.combinations(range(5), 2)):
        unit = np.eye(5, dtype=dtype)
        assert simpleshot.simpleshot(unit, range(5), unit[[low]] + unit[[high]]).tolist() == [low]
    assert simpleshot.simpleshot(np.eye(5), range(5), [[0, 0, 0, 1, 1 + 1e-6]]).tolist() == [4], "no tie"


def test_draw_takes_k_of_each_class_or_all():
    classes = np.array(list("aaaabbc"))
    drawn = [simpleshot.draw(classes, 2, seed) for seed in range(20)]
    assert {tuple((support & (classes == name)).sum() for name in "abc") for support in drawn} == {(2, 2, 1)}
    assert len(set(map(tuple, drawn))) > 1


def test_plantdoc_protocol(tables):
    table = tables["plantdoc"]
    frame = simpleshot.plantdoc(table, made_up(table, ["class"], noise=0.01))
    assert value(frame, "accuracy, 1-shot", "paper") == 1.0
    assert value(frame, "accuracy, 1-shot", "reference_code") == pytest.approx(10 / 15), "grape leaf is always wrong"
    assert set(frame["runs"]) == {5} and set(frame["n_images"]) == {15}
    rough, right = made_up(table, ["class"], noise=1.5), []
    train, test = (table[table["split"] == name] for name in ("train", "test"))
    for run in range(5):
        one = train[simpleshot.draw(train["label"], 1, run)]
        predicted = simpleshot.simpleshot(rough.loc[one["path"]], one["label"], rough.loc[test["path"]])
        right.append((predicted == test["label"]).mean())
    assert value(simpleshot.plantdoc(table, rough), "accuracy, 1-shot", "paper") == pytest.approx(np.mean(right))
    refused("no test image", simpleshot.plantdoc, train, rough)


def test_few_shot_protocol(tables):
    table = tables["few_shot"]
    features = made_up(table, ["class"], noise=1.5)
    refused("class 'Synthetica densa' has 4 images, 5-shot needs 5", simpleshot.few_shot, table, features)
    enough = table[table["class"] != "Synthetica densa"]
    refused("no image is left to test after 8", simpleshot.few_shot, enough, features, shots=(8,))
    frame = simpleshot.few_shot(table, features, leave_out=True)
    assert frame["metric"].tolist() == ["accuracy, 1-shot", "accuracy, 5-shot, 1 of 4 classes left out"]
    assert frame["variant"].tolist() == ["paper", "ours"] and set(frame["runs"]) == {5}
    for (k, kept), line in zip(((1, table), (5, enough)), frame.to_dict("records"), strict=True):
        X, classes, right = features.loc[kept["path"]].to_numpy(), kept["class"].to_numpy(str), []
        for fold in range(5):
            support = simpleshot.draw(classes, k, fold)
            predicted = simpleshot.simpleshot(X[support], classes[support], X[~support])
            right.append((predicted == classes[~support]).mean())
        assert line["value"] == pytest.approx(np.mean(right)) and line["spread"] == pytest.approx(np.std(right)) != 0
        assert line["n_images"] == len(predicted)
    assert simpleshot.few_shot(enough, features)["variant"].tolist() == ["paper", "paper"], "as published"


# within species


def test_fisher_ratio():
    a, b = np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 3.0], [1.0, 5.0]])
    assert intra_species.fisher_ratio(a, b) == 16 / 2 and np.isnan(intra_species.fisher_ratio(a[:1], b[:1]))


def test_orthogonality():
    species = np.array([[0.0, 0, 0, 0], [4, 0, 0, 0], [0, 4, 0, 0]])
    across, along = np.array([0, 0, 1.0, 0]), np.array([1.0, 0, 0, 0])
    for variant, expected in ((across, 0), (along, 1), (along + across, 0.5), (0 * along, np.nan)):
        shares, chance = intra_species.orthogonality(species + variant, species - variant)
        assert shares == pytest.approx(expected, nan_ok=True) and chance == 2 / 4
    line = np.array([[0.0, 0, 0, 0], [10, 0, 0, 0], [20, 8, 0, 0]])
    assert intra_species.orthogonality(line + across, line - across)[1] == 1 / 4, "one direction holds 95 %"
    refused("2 species; expected three", intra_species.orthogonality, species[:2], species[:2])


def test_intra_species_protocol(tables):
    table, protocol = tables["intra_species"], intra_species.intra_species
    apart = made_up(table, ["species", "variant"], dim=64, noise=0.01)
    for name in ("SimpleShot", "logistic regression"):
        assert value(protocol(table, apart, classifier=name), f"Diff, accuracy of {name}") == 1.0
    X = 10 * np.eye(8)[table["species"].str[-1].astype(int)] + 0.01 * RNG(5).normal(size=(96, 8))
    X[:, 7] += np.where(table["variant"] == "adult", 1.0, -1.0)
    frame = protocol(table, pd.DataFrame(X, table["path"]))
    assert value(frame, "Align, accuracy") == value(frame, "Diff, accuracy of SimpleShot") == 1.0
    assert value(frame, "share between species") < 0.01 and value(frame, "share between species, chance") == 3 / 8
    assert value(frame, "Fisher ratio") > 100 and frame["runs"].tolist() == [4, 1, 4, 4, 1]
    assert set(frame["variant"]) == {"ours"}
    longer = pd.DataFrame(X * RNG(1).uniform(1, 9, (96, 1)), table["path"])
    pd.testing.assert_frame_equal(frame, protocol(table, longer), obj="of unit norm")
    small = protocol(table.drop(range(3)), apart)
    assert small["n_images"].tolist() == [72, 93, 93, 93, 93], "a species with nine of a variant has no Diff"
    few = table.groupby(["species", "variant"]).head(9)
    refused("no species has 10 images of each variant", protocol, few, apart)
    same = apart.copy()
    same.loc[table["path"][table["species"] == "species2"]] = 1.0
    refused("species 'species2': SimpleShot: 2 classes .* all alike", protocol, table, same)
    refused("3 and 4 images of the variants; expected five", intra_species.diff, X[:3], X[3:7])
    refused("classifier must be one of 'SimpleShot', .*; found 'SVM'", protocol, table, apart, classifier="SVM")


def test_align_is_the_mean_of_both_ways():
    species, variants = np.array(list("ppqqppqq")), np.array(list("aaaabbbb"))
    turned = np.array([[1, 0.1], [1, 0.2], [0, 1], [0.1, 1], [0, 1], [0.1, 1], [1, 0.1], [1, 0.2]])
    assert intra_species.align(turned, species, variants) == 0.0, "variant b of p looks like a of q"
    one_way = np.array([[1, 0.0], [1, 0], [0, 1], [0, 1], [1, 0], [1, 0], [1, 0.0], [0, 1]])
    fit_b = simpleshot.simpleshot(one_way[4:], species[4:], one_way[:4]) == species[:4]
    fit_a = simpleshot.simpleshot(one_way[:4], species[:4], one_way[4:]) == species[4:]
    assert intra_species.align(one_way, species, variants) == (fit_a.mean() + fit_b.mean()) / 2 != fit_b.mean()


# zero-shot


def test_prompts_are_averaged_after_norming():
    text = zero_shot.class_text([[[10.0, 0.0], [0.0, 0.1]], [[0.0, 2.0], [0.0, 3.0]]])
    assert np.allclose(text, [[np.sqrt(0.5), np.sqrt(0.5)], [0, 1]])
    refused("classes, prompts, D", zero_shot.class_text, np.zeros((2, 3)))
    refused("not finite", zero_shot.class_text, np.full((1, 2, 3), np.nan))


def test_zero_shot_top_k():
    text, images = np.eye(6), np.array([[6.0, 5, 4, 3, 2, 1]] * 6)
    frame = zero_shot.zero_shot(images, [0, 1, 2, 3, 4, 5], text)
    assert frame["value"].tolist() == pytest.approx([1 / 6, 3 / 6, 5 / 6]) and frame["k"].tolist() == [1, 3, 5]
    few = zero_shot.zero_shot(images[:, :2], [1] * 6, text[:2, :2])
    assert few["k"].tolist() == [1, 2, 2] and few["value"].tolist() == [0, 1, 1]
    for labels, used, message in (([0, 6], text, "labels from 0 to 5"), ([0, -1], text, "labels from 0 to 5"),
                                  *((bad, text, "0 to 5, whole numbers") for bad in ([0.0] * 2, ["0"] * 2, [True] * 2)),
                                  ([0], text, "do not fit"), ([0, 1], text[:, :5], "do not fit"),
                                  ([0, 1], text * np.nan, "not finite")):  # fmt: skip
        refused(message, zero_shot.zero_shot, images[:2], labels, used)


def test_zero_shot_ties_go_to_the_first_class_though_rounding_splits_them():
    for low, high in itertools.combinations(range(6), 2):
        image, text = np.eye(6)[[low]] + np.eye(6)[[high]], np.eye(6)
        text[low, [low, (high + 1) % 6]] = 1, 1e-7
        for label, right in ((low, [1, 1, 1]), (high, [0, 1, 1])):
            assert zero_shot.zero_shot(image, [label], text)["value"].tolist() == right
    assert zero_shot.zero_shot([[1.0, 1 + 1e-6]], [1], np.eye(2))["value"].tolist() == [1, 1, 1], "no tie"


def test_names_of_classes(tables):
    table = tables["few_shot"]
    ranks = "Syntheta Drawnophyta Drawnopsida Drawnales Drawnaceae Synthetica alba"
    expected = {
        "asis": "Synthetica alba", "scientific": "Synthetica alba", "taxonomic": ranks, "common": "drawn alba",
        "scientific+common": "Synthetica alba with common name drawn alba",
        "taxonomic+common": f"{ranks} with common name drawn alba",
    }  # fmt: skip
    assert {form: zero_shot.class_names(table, form).iloc[0] for form in zero_shot.FORMS} == expected
    assert zero_shot.class_names(table.drop(columns="cls"), "taxonomic").iloc[0] == ranks.replace("Drawnopsida ", "")
    refused("'common': the column 'common_name' is missing", zero_shot.class_names, table[["class"]], "common")
    for cell in (np.nan, 7):
        refused("'asis': data row 2 has {'class': .*expected texts", zero_shot.class_names,
                pd.DataFrame({"class": ["a", cell]}))  # fmt: skip
    refused("form must be one of 'asis', .*; found 'latin'", zero_shot.class_names, table, "latin")


# all tasks


class MadeUpRun:
    """A run whose features are made up from the labels, so that no picture is embedded."""

    seed = 0

    def __init__(self, root):
        self.root = root

    def features(self, files, folder):
        keys = [str(file).rpartition("/")[0] + str(file).rpartition("/")[2][:4] for file in files]
        return made_up(pd.DataFrame({"path": files, "key": keys}), ["key"], dim=24).loc[list(files)]


def test_evaluate_has_a_line_per_task_with_its_floor(data, tables, tmp_path, monkeypatch):
    labels = tables["awa2"][tables["awa2"]["split"] == "test"].select_dtypes("integer")
    expected = pd.DataFrame([
        ("FishNet", "all nine right", "ours", 3 / 9, 9), ("NeWT", "micro accuracy", "ours", 0.5, 18),
        ("AwA2", "macro-F1", "ours", f1_score(labels, np.ones_like(labels), average="macro"), 8),
        ("Herbarium19", "accuracy, all", "split", 9 / 15, 15), ("PlantDoc", "accuracy, 1-shot", "paper", 1 / 3, 15),
        ("species few-shot", "accuracy, 1-shot", "paper", 7 / 24, 24),
        ("species few-shot", "accuracy, 5-shot, 1 of 4 classes left out", "ours", 3 / 9, 9),
        ("intra-species", "Diff, accuracy of SimpleShot", "ours", 0.5, 96),
        ("intra-species", "Align, accuracy", "ours", 0.25, 96), ("intra-species", "Fisher ratio", "ours", np.nan, 96),
        ("intra-species", "share between species", "ours", 3 / 24, 96),
    ], columns=["task", "metric", "variant", "floor", "n_images"])  # fmt: skip
    monkeypatch.setattr(heads, "UPDATES", 60)
    frame = evaluate.evaluate(MadeUpRun(data))
    assert frame.columns.tolist() == ["task", "metric", "variant", "value", "floor", "n_images"]
    pd.testing.assert_frame_equal(frame.drop(columns="value"), expected)
    assert frame["value"].notna().all()
    with pytest.raises(FileNotFoundError, match="holds none of the folders fishnet"):
        evaluate.evaluate(MadeUpRun(tmp_path))
    for name in ("fishnet", "intra_species"):
        shutil.copytree(data / name, tmp_path / name)
    file = tmp_path / "intra_species/metadata.csv"
    file.write_text(re.sub(".*species0_adult_0[01].*\n", "", file.read_text()))
    monkeypatch.setattr(heads, "UPDATES", 50)
    frame = evaluate.evaluate(MadeUpRun(tmp_path))
    assert frame["variant"].tolist()[:2] == ["paper", "ours"], "not longer than published"
    assert frame["floor"].tolist()[:3] == pytest.approx([3 / 9, (12 / 22 + 3 * 0.5) / 4, (12 / 46 + 12 / 48) / 2])
