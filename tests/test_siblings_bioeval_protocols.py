"""BioCLIP 2's evaluation, protocols: its test vectors, its variants, and what each refuses, on made-up features."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score

from phoebi_lib.siblings.bioeval import (
    discovery,
    evaluate,
    fixture,
    folders,
    heads,
    intra_species,
    layout,
    newt,
    simpleshot,
    zero_shot,
)
from phoebi_lib.siblings.bioeval.geometry import centred, nearest
from phoebi_lib.siblings.bioeval.results import result, shown

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bioeval")
    fixture.write(folder)
    return folder


def made_up(table, by, dim=16, noise=0.1, seed=0):
    """Return features by path, not in the table's order: one random vector for each value of ``by``, and noise."""
    rng, keys = RNG(seed), table[by].astype(str).agg("/".join, axis=1)
    centre = {key: rng.normal(size=dim) for key in sorted(set(keys))}
    values = np.stack([centre[key] + noise * rng.normal(size=dim) for key in keys])
    return pd.DataFrame(values, index=table["path"]).sample(frac=1, random_state=1)


def value(frame, metric, variant=None):
    lines = frame[frame["metric"] == metric]
    return (lines if variant is None else lines[lines["variant"] == variant])["value"].item()


def test_a_result_is_mean_and_population_deviation():
    line = result("a", "ours", "b", [1.0, 0.0, 0.0, 1.0], 7, k=3)
    assert (line["value"], line["spread"], line["runs"], line["n_images"], line["k"]) == (0.5, 0.5, 4, 7, 3)
    texts = shown(pd.DataFrame([line | {"floor": np.nan}]), {"value": "mean", "floor": "floor", "n_images": "n"})
    assert texts.iloc[0].tolist() == ["0.50", "–", "7"]


# heads


def test_fishnet_needs_all_nine_right():
    Y = np.array([[1, 0, 1, 0, 0, 0, 1, 0, 0], [0, 1, 1, 1, 0, 0, 0, 1, 0]])
    P = Y.copy()
    P[1, 4] = 1
    scores = heads.fishnet_scores(Y, P)
    assert scores["all nine right"] == 0.5 and scores["label accuracy, mean"] == pytest.approx(17 / 18)
    assert scores["label accuracy, Boreal"] == 0.5 and scores["label accuracy, Polar"] == 1.0


def test_awa2_counts_an_attribute_without_positives_as_nothing():
    Y = np.array([[1, 0, 0], [0, 1, 0]])
    scores = heads.awa2_scores(Y, Y)
    assert scores["macro-F1"] == scores["ceiling of macro-F1"] == pytest.approx(2 / 3)
    assert scores["macro-F1, present attributes"] == 1.0
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


def test_the_head_has_two_layers_and_no_non_linearity():
    state = torch.get_rng_state()
    X, Y = RNG(0).normal(size=(30, 8)), RNG(1).integers(0, 2, (30, 3))
    head = heads.fit_head(X, Y, heads.Recipe(1e-3, epochs=2, batch_size=8, hidden=16), seed=4)
    first, dropout, second = head
    assert (first.in_features, first.out_features, second.out_features, dropout.p) == (8, 16, 3, 0.5)
    with torch.inference_mode():
        a, b, both = (head(torch.tensor(x, dtype=torch.float32)) for x in (X[:5], X[5:10], X[:5] + X[5:10]))
        assert torch.allclose(a + b - head(torch.zeros(5, 8)), both, atol=1e-5), "the head is affine"
    again = heads.fit_head(X, Y, heads.Recipe(1e-3, epochs=2, batch_size=8, hidden=16), seed=4)
    assert torch.equal(first.weight, again[0].weight) and torch.equal(torch.get_rng_state(), state)


def test_published_recipes():
    for recipe, rate in ((heads.FISHNET, 1e-4), (heads.AWA2, 1e-5)):
        assert (recipe.learning_rate, recipe.epochs, recipe.batch_size, recipe.halve_every) == (rate, 50, 256, 20)
        assert (recipe.hidden, recipe.dropout) == (512, 0.5)
    assert heads.FISHNET.updates(257) == 100 and heads.FISHNET.fitting(5 * 256 + 1) == heads.FISHNET
    small = heads.AWA2.fitting(16)
    assert (small.learning_rate, small.epochs, small.halve_every) == (1e-4, 300, 120)


def test_the_learning_rate_is_halved():
    X, Y = RNG(0).normal(size=(8, 4)), RNG(1).integers(0, 2, (8, 2))
    short, frozen, long = (heads.fit_head(X, Y, heads.Recipe(1e-3, epochs=n, halve_every=h))[0].weight
                           for n, h in ((1, 1), (40, 1), (40, 40)))  # fmt: skip
    moved = (frozen - short).abs().mean() / (long - short).abs().mean()
    assert 0 < moved < 0.1, "1 + 1/2 + 1/4 + ... updates stay below two"


def test_reference_code_asks_for_logit_one_half_and_leaves_dropout_on():
    head = torch.nn.Sequential(torch.nn.Linear(1, 400), torch.nn.Dropout(0.5), torch.nn.Linear(400, 1))
    with torch.no_grad():
        head[0].weight[:], head[0].bias[:], head[2].weight[:], head[2].bias[:] = 1.0, 0.0, 1 / 400, 0.0
    X = np.repeat([[0.4], [0.5], [-0.1], [3.0]], 200, axis=0)
    paper, reference = (heads.predict(head, X, variant).reshape(4, 200) for variant in ("paper", "reference_code"))
    assert paper.all(axis=1).tolist() == [True, True, False, True] and not head.training
    assert reference[0].mean() < 0.02 and 0.3 < reference[1].mean() < 0.7 and reference[3].all(), "noise at 0.5"
    assert not np.array_equal(reference, heads.predict(head, X, "reference_code", seed=1).reshape(4, 200))


def test_fishnet_protocol(data):
    table = layout.fishnet(data / "fishnet")
    features = made_up(table, list(layout.LABELS))
    recipe = heads.Recipe(1e-2, epochs=40, hidden=32)
    frame = heads.fishnet(table, features, recipe, runs=2)
    assert value(frame, "all nine right", "paper") == value(frame, "all nine right, training images") == 1.0
    assert set(frame["variant"]) == {"paper", "reference_code"} and set(frame["runs"]) == {2}
    assert frame[frame["metric"].str.startswith("label accuracy, ")].groupby("variant").size().tolist() == [10, 10]
    sizes = frame.set_index("metric")["n_images"]
    assert set(sizes["all nine right"]) == {9} and sizes["all nine right, training images"] == 23
    assert set(frame["updates"]) == {40}
    with pytest.raises(ValueError, match="no features for 1 images"):
        heads.fishnet(table, features.drop(table["path"].iloc[3]), recipe)
    with pytest.raises(ValueError, match="not finite"):
        heads.fishnet(table, features.replace(features.iloc[0, 0], np.inf), recipe)
    with pytest.raises(ValueError, match="no test image"):
        heads.fishnet(table[table["split"] == "train"], features, recipe)


def test_awa2_protocol(data):
    animals = folders.awa2(data / "awa2")
    features = made_up(animals.table, ["class"])
    frame = heads.awa2(animals, features, heads.Recipe(1e-2, epochs=40, hidden=32), runs=1)
    assert frame[frame["variant"] == "reference_code"]["metric"].tolist() == ["F1, first two attributes"]
    assert "F1, first two attributes" not in frame[frame["variant"] == "paper"]["metric"].tolist()
    labels = animals.table.loc[animals.table["split"] == "test", list(animals.attributes)]
    assert value(frame, "ceiling of macro-F1") == labels.any().mean() < 1
    assert value(frame, "macro-F1") < value(frame, "macro-F1, present attributes")
    assert value(frame, "macro-F1, present attributes, training images") > 0.95 and set(frame["split"]) == {"custom"}


# NeWT


def test_newt_protocol_centres_on_each_task(data):
    table = layout.newt(data / "newt")
    features = made_up(table, ["task", "label"], noise=0.2)
    shift = pd.DataFrame(50 * RNG(1).normal(size=(1, 16)).repeat(len(features), 0), index=features.index)
    for embedded in (features, features + shift):
        scores = newt.newt_scores(newt.newt(table, embedded, draws=0, runs=1))
        assert value(scores, "micro accuracy") == 1.0 and set(scores["variant"]) == {"ours"}
    one_sided = newt.newt(table[(table["split"] == "train") | (table["label"] == 1)], features, draws=0, runs=1)
    assert (one_sided["prediction"] == 1).all(), "the mean is that of the training images"
    rows = newt.newt(table, features, draws=3, runs=2, seed=1)
    assert len(rows) == 2 * 18 and set(rows["run"]) == {1, 2} and set(rows["classifier"]) == {newt.SEARCH}
    scores = newt.newt_scores(rows)
    assert set(scores["variant"]) == {"paper"} and set(scores["runs"]) == {2} and set(scores["n_fast_tasks"]) == {0}


def test_newt_search_is_the_published_one():
    X, y = RNG(0).normal(size=(20, 4)), np.arange(20) % 2
    search, name = newt.fit_svm(X, y, draws=4, seed=2)
    assert name == newt.SEARCH and search.n_iter == 4 and search.cv == 5 and search.random_state == 2
    assert [step for step, _ in search.estimator.steps] == ["standardscaler", "svc"]
    drawn = pd.DataFrame(search.cv_results_["params"])
    assert drawn["svc__C"].between(1e-3, 10).all() and drawn["svc__gamma"].between(1e-4, 1e-3).all()
    assert newt.SPACE["svc__kernel"] == ["rbf", "linear", "sigmoid", "poly"]
    fast, name = newt.fit_svm(X, y, draws=0)
    assert name == newt.FAST and (fast.kernel, fast.C) == ("linear", 1.0)
    for counts in ((4, 4), (9, 1)):
        small = np.repeat([0, 1], counts)
        assert newt.fit_svm(X[: len(small)], small, draws=2)[1] == newt.FAST, "the folds cannot be filled"
    assert newt.fit_svm(X[:9], np.repeat([0, 1], (6, 3)), draws=2)[1] == newt.SEARCH


def test_newt_micro_pools_images_and_macro_pools_tasks():
    rows = pd.DataFrame({
        "path": list("abcdef"), "task": ["ml_age_x"] * 4 + ["t"] * 2, "cluster": ["appearance"] * 4 + ["context"] * 2,
        "label": [1, 1, 0, 0, 1, 0], "prediction": [1, 1, 0, 0, 0, 1], "classifier": newt.SEARCH, "run": 0,
    })  # fmt: skip
    scores = newt.newt_scores(rows)
    assert value(scores, "micro accuracy") == pytest.approx(4 / 6) and value(scores, "macro accuracy") == 0.5
    assert value(scores, "micro accuracy, context") == 0 and value(scores, "micro accuracy, ml_age tasks") == 1
    assert scores.set_index("metric")["n_images"].tolist() == [6, 6, 4, 2, 4]
    mixed = pd.concat([rows, rows.assign(run=1, prediction=rows["label"])])
    assert value(newt.newt_scores(mixed), "macro accuracy") == 0.75


def test_newt_refuses_a_task_with_one_class(data):
    table = layout.newt(data / "newt")
    one = table[~((table["task"] == "ml_bio_synthetic") & (table["label"] == 1) & (table["split"] == "train"))]
    with pytest.raises(ValueError, match="task 'ml_bio_synthetic': expected training images of both classes"):
        newt.newt(one, made_up(table, ["task"]), draws=0)


# Herbarium19

TRUTH, CLUSTERS = np.array([0, 0, 0, 1, 1, 2, 2, 2]), np.array([3, 3, 0, 0, 0, 1, 1, 3])


def test_matching():
    old = TRUTH < 2
    assert discovery.matched(TRUTH, CLUSTERS).sum() == 6
    split = discovery.matched(TRUTH[old], CLUSTERS[old]).sum(), discovery.matched(TRUTH[~old], CLUSTERS[~old]).sum()
    assert split == (4, 2)
    rng = RNG(0)
    for _ in range(20):
        truth, clusters = rng.integers(0, 4, 12), rng.integers(0, 5, 12)
        best = max(np.mean([maps[c] == t for c, t in zip(clusters, truth, strict=True)])
                   for maps in itertools.permutations([0, 1, 2, 3, 9]))  # fmt: skip
        assert discovery.matched(truth, clusters).mean() == pytest.approx(best)
    with pytest.raises(ValueError, match="one class and one cluster per image"):
        discovery.matched([], [])


def test_labelled_share():
    old = np.arange(30) % 3 > 0
    for share, n in ((0.8, 16), (0.5, 10), (0.99, 19)):
        labelled = discovery.labelled_rows(old, share)
        assert labelled.sum() == n and not labelled[~old].any()
    drawn = np.flatnonzero(old)[np.random.RandomState(0).choice(20, 16, replace=False)]
    assert sorted(drawn) == np.flatnonzero(discovery.labelled_rows(old)).tolist(), "numpy's legacy generator, seed 0"
    with pytest.raises(ValueError, match="share 1.5 of 20"):
        discovery.labelled_rows(old, 1.5)


def test_kmeans_keeps_labelled_rows_and_finds_new_groups():
    rng = RNG(0)
    centres = np.eye(6)[:4]
    X, y = np.repeat(centres, 10, axis=0) + 0.05 * rng.normal(size=(40, 6)), np.repeat(np.arange(4), 10)
    known = (y < 2) & (np.arange(40) % 2 == 0)
    clusters, inertia = discovery.semi_supervised_kmeans(X[known], y[known], X[~known], 4, block=7)
    assert discovery.matched(y[~known], clusters).all() and (clusters[y[~known] < 2] == y[~known][y[~known] < 2]).all()
    expected = sum(((X[y == c] - X[y == c].mean(axis=0)) ** 2).sum() for c in range(4))
    assert inertia == pytest.approx(expected, rel=1e-2)
    again = discovery.semi_supervised_kmeans(X[known], y[known], X[~known], 4)
    assert np.array_equal(clusters, again[0]), "blocks change nothing"
    with pytest.raises(ValueError, match="k = 1 clusters for 2 labelled classes"):
        discovery.semi_supervised_kmeans(X[known], y[known], X[~known], 1)
    with pytest.raises(ValueError, match="iterations = 0; expected one"):
        discovery.semi_supervised_kmeans(X[known], y[known], X[~known], 4, iterations=0)


def test_labelled_points_hold_their_centre_and_the_first_inertia_is_before_the_update():
    labelled, unlabelled = np.array([[0.0], [4.0]]), np.array([[3.0]])
    clusters, inertia = discovery.semi_supervised_kmeans(labelled, [0, 1], unlabelled, 2, iterations=1)
    assert clusters.tolist() == [1] and inertia == 1.0
    clusters, inertia = discovery.semi_supervised_kmeans(labelled, [0, 1], unlabelled, 2)
    assert clusters.tolist() == [1] and inertia == pytest.approx(0.5), "centre 1 moves to 3.5, its labelled point stays"


def test_an_empty_cluster_keeps_its_centre(monkeypatch):
    seen = []
    monkeypatch.setattr(
        discovery, "nearest", lambda X, centres, block: seen.append(centres) or nearest(X, centres, block)
    )
    labelled, unlabelled = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[5.0, 5.0]] * 3)
    clusters, inertia = discovery.semi_supervised_kmeans(labelled, [0, 1], unlabelled, 5, tolerance=0.0)
    assert set(clusters) == {2} and inertia == 0.0, "three new centres coincide, two of them stay empty"
    iterations = [centres for centres in seen if len(centres) == 5]
    assert len(iterations) == 10 and all(np.array_equal(centres, iterations[0]) for centres in iterations)


def test_a_point_that_is_a_centre_is_not_drawn_again():
    labelled, unlabelled = np.array([[0.0], [0.0]]), np.array([[10.0], [-10.0]])
    for seed in range(10):
        assert discovery.semi_supervised_kmeans(labelled, [0, 0], unlabelled, 3, seed=seed)[1] == 0.0


def test_herbarium19_protocol(data):
    table = folders.herbarium19(data / "herbarium19")
    features = made_up(table, ["class"], noise=0.05)
    for share, n in ((0.8, 15), (0.5, 18)):
        frame = discovery.herbarium19(table, features, share=share)
        assert (frame["value"] == 1.0).all() and set(frame["runs"]) == {3} and set(frame["labelled_share"]) == {share}
        assert frame.set_index(["variant", "metric"])["n_images"]["split"].tolist() == [n, n - 12, 12]
    noisy = discovery.herbarium19(table, made_up(table, ["class"], noise=3.0), runs=5)
    split, joint = (noisy[noisy["variant"] == name].set_index("metric")["value"] for name in ("split", "joint"))
    assert split["accuracy, all"] > joint["accuracy, all"]
    assert split["accuracy, all"] == pytest.approx((3 * split["accuracy, Old"] + 12 * split["accuracy, New"]) / 15)
    everything = discovery.herbarium19(table, features, share=1.0, runs=1)
    assert np.isnan(value(everything, "accuracy, Old", "split")) and value(everything, "accuracy, all", "split") == 1


# SimpleShot


def test_nearest_takes_the_first_of_equals_and_blocks_change_nothing():
    X, centres = RNG(0).normal(size=(50, 3)), RNG(1).normal(size=(7, 3))
    index, squared = nearest(X, np.vstack([centres, centres]), block=9)
    direct = ((X[:, None] - centres) ** 2).sum(axis=2)
    assert np.array_equal(index, direct.argmin(axis=1)) and np.allclose(squared, direct.min(axis=1))


def test_centring_leaves_zero():
    moved = centred(np.array([[1.0, 1.0], [1.0, 3.0]]), np.array([1.0, 1.0]))
    assert moved.tolist() == [[0, 0], [0, 1]]


def test_simpleshot_agrees_with_its_definition():
    rng = RNG(0)
    support, query, classes = rng.normal(size=(12, 5)) + 1, rng.normal(size=(30, 5)) + 1, np.array(list("cab") * 4)
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    mean = unit(support).mean(axis=0)
    s, q = unit(unit(support) - mean), unit(unit(query) - mean)
    expected = ["abc"[np.argmin([np.linalg.norm(x - s[classes == c].mean(axis=0)) for c in "abc"])] for x in q]
    assert simpleshot.simpleshot(support, classes, query).tolist() == expected
    assert simpleshot.simpleshot(7 * support, classes, query / 3).tolist() == expected
    for names, vectors in ((["a"] * 12, support), (classes, np.ones((12, 5)))):
        with pytest.raises(ValueError, match="expected two classes and two different vectors"):
            simpleshot.simpleshot(vectors, names, query)


def test_ties_go_to_the_lowest_class_though_rounding_splits_them():
    for dtype in (np.float64, np.float32):
        unit = np.eye(5, dtype=dtype)
        for low, high in itertools.combinations(range(5), 2):
            assert simpleshot.simpleshot(unit, range(5), unit[[low]] + unit[[high]]).tolist() == [low]
    almost = np.array([[0, 0, 0, 1, 1 + 1e-6]])
    assert simpleshot.simpleshot(np.eye(5), range(5), almost).tolist() == [4], "no tie"


def test_draw_takes_k_of_each_class_or_all():
    classes = np.array(list("aaaabbc"))
    for seed in range(3):
        support = simpleshot.draw(classes, 2, seed)
        assert [(support & (classes == name)).sum() for name in "abc"] == [2, 2, 1]
    assert len({tuple(simpleshot.draw(classes, 2, seed)) for seed in range(20)}) > 1


def test_plantdoc_protocol(data):
    table = folders.plantdoc(data / "plantdoc")
    frame = simpleshot.plantdoc(table, made_up(table, ["class"], noise=0.01))
    assert value(frame, "accuracy, 1-shot", "paper") == 1.0
    assert value(frame, "accuracy, 1-shot", "reference_code") == pytest.approx(10 / 15), "grape leaf is always wrong"
    assert set(frame["runs"]) == {5} and set(frame["n_images"]) == {15}
    with pytest.raises(ValueError, match="no test image"):
        simpleshot.plantdoc(table[table["split"] == "train"], made_up(table, ["class"]))


def test_few_shot_protocol(data):
    table = layout.few_shot(data / "few_shot")
    features = made_up(table, ["class"], noise=0.01)
    frame = simpleshot.few_shot(table, features, shots=(1,))
    assert frame["value"].tolist() == [1.0] and frame["n_images"].tolist() == [24] and frame["runs"].tolist() == [5]
    with pytest.raises(ValueError, match="class 'Synthetica densa' has 4 images, 5-shot needs 5"):
        simpleshot.few_shot(table, features)
    enough = table[table["class"] != "Synthetica densa"]
    assert simpleshot.few_shot(enough, features)["n_images"].tolist() == [21, 9]
    one, five = simpleshot.few_shot(table, features, leave_out=True).to_dict("records")
    assert (one["variant"], one["metric"], one["n_images"]) == ("paper", "accuracy, 1-shot", 24)
    assert (five["variant"], five["metric"]) == ("ours", "accuracy, 5-shot, 1 of 4 classes left out")
    pd.testing.assert_frame_equal(
        pd.DataFrame([five]).drop(columns=["variant", "metric"]),
        simpleshot.few_shot(enough, features, shots=(5,)).drop(columns=["variant", "metric"]),
    )
    rough = made_up(enough, ["class"], noise=1.5)
    X, classes, right = rough.loc[enough["path"]].to_numpy(), enough["class"].to_numpy(str), []
    for fold in range(5):
        support = simpleshot.draw(classes, 1, fold)
        predicted = simpleshot.simpleshot(X[support], classes[support], X[~support])
        right.append((predicted == classes[~support]).mean())
    one = simpleshot.few_shot(enough, rough, shots=(1,))
    assert one["value"].item() == pytest.approx(np.mean(right)) and one["spread"].item() == pytest.approx(np.std(right))
    noisy = simpleshot.few_shot(enough, rough, folds=9)
    assert (noisy["spread"] > 0).all() and noisy["value"].is_monotonic_increasing, "five shots help"
    with pytest.raises(ValueError, match="no image is left"):
        simpleshot.few_shot(enough, features, shots=(8,))


# within species


def test_fisher_ratio():
    a, b = np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 3.0], [1.0, 5.0]])
    assert intra_species.fisher_ratio(a, b) == 16 / 2 and np.isnan(intra_species.fisher_ratio(a[:1], b[:1]))


def test_orthogonality():
    species = np.array([[0.0, 0, 0, 0], [4, 0, 0, 0], [0, 4, 0, 0]])
    across, along, none = np.array([0, 0, 1.0, 0]), np.array([1.0, 0, 0, 0]), np.zeros(4)
    shares, chance = intra_species.orthogonality(species + across, species - across)
    assert np.allclose(shares, 0) and chance == 2 / 4
    assert np.allclose(intra_species.orthogonality(species + along, species - along)[0], 1)
    assert np.allclose(intra_species.orthogonality(species + along + across, species - along - across)[0], 0.5)
    assert np.isnan(intra_species.orthogonality(species + none, species)[0]).all()
    line = np.array([[0.0, 0, 0, 0], [10, 0, 0, 0], [20, 1, 0, 0]])
    assert intra_species.orthogonality(line + across, line - across)[1] == 1 / 4, "one direction holds 90 %"
    with pytest.raises(ValueError, match="2 species; expected three"):
        intra_species.orthogonality(species[:2], species[:2])


def test_intra_species_protocol(data):
    table = layout.intra_species(data / "intra_species")
    apart = made_up(table, ["species", "variant"], dim=64, noise=0.01)
    names = dict(table.set_index("path")[["species", "variant"]].agg("/".join, axis=1))
    frame = intra_species.intra_species(table, apart)
    assert value(frame, "Diff, accuracy of SimpleShot") == 1.0 and set(frame["variant"]) == {"ours"}
    regression = intra_species.intra_species(table, apart, classifier="logistic regression")
    assert value(regression, "Diff, accuracy of logistic regression") == 1.0
    stage = {"adult": 1.0, "juvenile": -1.0}
    rng = RNG(5)
    species = {f"species{i}": 10 * np.eye(8)[i] for i in range(4)}
    orthogonal = pd.DataFrame([
        species[name.split("/")[0]] + stage[name.split("/")[1]] * np.eye(8)[7] + 0.01 * rng.normal(size=8)
        for name in names.values()], index=list(names))  # fmt: skip
    frame = intra_species.intra_species(table, orthogonal)
    assert value(frame, "Align, accuracy") == value(frame, "Diff, accuracy of SimpleShot") == 1.0
    assert value(frame, "share between species") < 0.01 and value(frame, "share between species, chance") == 3 / 8
    assert value(frame, "Fisher ratio") > 100
    with pytest.raises(ValueError, match="unknown classifier 'SVM'"):
        intra_species.intra_species(table, apart, classifier="SVM")
    with pytest.raises(ValueError, match="no species has 10 images of each variant"):
        intra_species.intra_species(table.groupby(["species", "variant"]).head(9), apart)


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
    with pytest.raises(ValueError, match="classes, prompts, D"):
        zero_shot.class_text(np.zeros((2, 3)))


def test_zero_shot_top_k():
    text = np.eye(6)
    images = np.array([[6.0, 5, 4, 3, 2, 1]] * 6)
    frame = zero_shot.zero_shot(images, [0, 1, 2, 3, 4, 5], text)
    assert frame["value"].tolist() == pytest.approx([1 / 6, 3 / 6, 5 / 6]) and frame["k"].tolist() == [1, 3, 5]
    few = zero_shot.zero_shot(images[:, :2], [1] * 6, text[:2, :2])
    assert few["k"].tolist() == [1, 2, 2] and few["value"].tolist() == [0, 1, 1]
    ties = zero_shot.zero_shot([[1.0, 1.0]], [1], [[1.0, 0.0], [0.0, 1.0]])
    assert ties["value"].tolist() == [0, 1, 1], "of equals the first class wins"
    for labels, message in (([0, 6], "labels from 0 to 5"), ([0], "do not fit")):
        with pytest.raises(ValueError, match=message):
            zero_shot.zero_shot(images[:2], labels, text)


def test_names_of_classes(data):
    table = layout.few_shot(data / "few_shot")
    ranks = "Syntheta Drawnophyta Drawnopsida Drawnales Drawnaceae Synthetica alba"
    expected = {
        "asis": "Synthetica alba", "scientific": "Synthetica alba", "taxonomic": ranks, "common": "drawn alba",
        "scientific+common": "Synthetica alba with common name drawn alba",
        "taxonomic+common": f"{ranks} with common name drawn alba",
    }  # fmt: skip
    assert {form: zero_shot.class_names(table, form).iloc[0] for form in zero_shot.FORMS} == expected
    assert zero_shot.class_names(table.drop(columns="cls"), "taxonomic").iloc[0] == ranks.replace("Drawnopsida ", "")
    with pytest.raises(ValueError, match="missing: common_name"):
        zero_shot.class_names(table.drop(columns="common_name"), "taxonomic+common")
    with pytest.raises(ValueError, match="unknown form of names 'latin'"):
        zero_shot.class_names(table, "latin")


# all tasks


class MadeUpRun:
    """A run whose features are made up from the labels, so that no picture is embedded."""

    seed = 0

    def __init__(self, root):
        self.root = root

    def features(self, files, folder=""):
        keys = [str(file).rpartition("/")[0] + str(file).rpartition("/")[2][:4] for file in files]
        return made_up(pd.DataFrame({"path": files, "key": keys}), ["key"], dim=24).loc[list(files)]


def test_evaluate_has_a_line_per_task_with_its_floor(data, tmp_path, monkeypatch):
    monkeypatch.setattr(heads, "UPDATES", 60)
    frame = evaluate.evaluate(MadeUpRun(data))
    assert frame.columns.tolist() == ["task", "metric", "variant", "value", "floor", "n_images"]
    assert set(frame["task"]) == {"FishNet", "NeWT", "AwA2", "Herbarium19", "PlantDoc", "species few-shot",
                                  "intra-species"} and len(frame) == 11  # fmt: skip
    floors = frame.set_index("metric")["floor"]
    assert floors["all nine right"] == 3 / 9 and floors["micro accuracy"] == 0.5 and np.isnan(floors["Fisher ratio"])
    assert floors["accuracy, all"] == pytest.approx(9 / 15), "3 or fewer Old and 6 New of 15"
    assert floors["accuracy, 1-shot"].tolist() == pytest.approx([1 / 3, 7 / 24]) and floors["Align, accuracy"] == 0.25
    labels = folders.awa2(data / "awa2").table.query("split == 'test'").iloc[:, 3:]
    assert floors["macro-F1"] == pytest.approx(f1_score(labels, np.ones_like(labels), average="macro"))
    assert frame["value"].notna().all()
    five = frame.set_index("metric").loc["accuracy, 5-shot, 1 of 4 classes left out"]
    assert (five["variant"], five["n_images"], five["floor"]) == ("ours", 9, 3 / 9)
    assert frame.set_index("task")["variant"]["FishNet"] == "ours", "trained longer than published"
    with pytest.raises(FileNotFoundError, match="holds none of the folders fishnet"):
        evaluate.evaluate(MadeUpRun(tmp_path))


def test_evaluate_names_a_species_with_a_single_image(data, tmp_path):
    table = pd.read_csv(data / "few_shot/metadata.csv", dtype=str)
    (tmp_path / "few_shot").mkdir()
    table[~table["filepath"].str.contains("alba_[1-7]")].to_csv(tmp_path / "few_shot/metadata.csv", index=False)
    with pytest.raises(ValueError, match="metadata.csv: class 'Synthetica alba' has 1 image"):
        evaluate.evaluate(MadeUpRun(tmp_path))
