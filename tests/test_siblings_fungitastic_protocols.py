"""FungiTastic's metrics and baselines against hand-made vectors and independent references."""

import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from phoebi_lib.siblings import run as runs
from phoebi_lib.siblings.fungitastic import (
    baselines,
    chronological,
    costs,
    fixture,
    fusion,
    metrics,
    segmentation,
)
from phoebi_lib.siblings.fungitastic.evaluate import evaluate
from phoebi_lib.siblings.fungitastic.study import Study


def clusters(rng, y, n_classes=5, d=16, noise=0.5):
    centres = np.random.default_rng(99).normal(0, 1, (n_classes, d))
    return centres[y] + rng.normal(0, noise, (len(y), d))


def test_macro_f1_vectors():
    y, p = [0, 0, 1, 1, 2, 2], [0, 0, 1, 0, 2, 1]
    assert metrics.macro_f1(y, p, 5, "present") == pytest.approx(0.65556, abs=5e-6)
    assert metrics.macro_f1(y, p, 5) == pytest.approx(0.39333, abs=5e-6)
    stray = ([0, 0, 1, 1], [0, 3, 1, 1], 4)
    assert metrics.macro_f1(*stray, "present") == pytest.approx(0.55556, abs=5e-6)
    assert metrics.macro_f1(*stray) == pytest.approx(0.41667, abs=5e-6)
    perfect = np.arange(2)
    assert metrics.macro_f1(perfect, perfect, 8) == 2 / 8, "a test set of two of eight classes caps it"
    assert metrics.macro_f1([-1, 0], [0, 0], 2) == pytest.approx((2 / 3) / 2), (
        "an unseen label is an error, not dropped"
    )


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_and_top_k_against_two_lines(seed):
    rng = np.random.default_rng(seed)
    scores, y = rng.integers(0, 4, (40, 6)).astype(float), rng.integers(-1, 6, 40)
    y[y == 2] = 3
    p = scores.argmax(axis=1)
    tp, f = lambda c: ((y == c) & (p == c)).sum(), lambda c: (y == c).sum() + (p == c).sum()
    assert metrics.macro_f1(y, p, 6) == pytest.approx(np.mean([2 * tp(c) / max(f(c), 1) for c in range(6)]))
    over = sorted({*y} | {*p})
    assert metrics.macro_f1(y, p, 6, "present") == pytest.approx(np.mean([2 * tp(c) / max(f(c), 1) for c in over]))
    for k in (1, 3, 6, 9):
        ranked = [sorted(range(6), key=lambda c: (-row[c], c))[:k] for row in scores]
        assert metrics.top_k(scores, y, k) == (np.mean([t in r for t, r in zip(y, ranked, strict=True)]), min(k, 6))
    lines = metrics.classification(scores[:, :2], y).set_index("metric")
    assert (
        lines.index.tolist() == ["Top-1", "Top-2", "macro-F1 all", "macro-F1 present"]
        and lines["n_images"].eq(40).all()
    )


def test_metrics_refuse_what_they_cannot_score():
    for call in (
        lambda: metrics.top_k(np.ones((0, 3)), [], 1), lambda: metrics.top_k(np.ones((2, 3)), [0], 1),
        lambda: metrics.top_k([[np.nan, 1]], [0], 1), lambda: metrics.top_k([[0.0, 1]], [0], 0),
        lambda: metrics.macro_f1([], [], 3), lambda: metrics.macro_f1([0], [3], 3),
        lambda: metrics.macro_f1([0], [0, 1], 3), lambda: metrics.macro_f1([0], [0], 3, "some"),
        lambda: metrics.open_set([], [1.0]), lambda: metrics.open_set([1.0], []),
        lambda: metrics.open_set([np.inf], [1.0]), lambda: metrics.tnr95([1.0], [0.0], "paper"),
        lambda: metrics.choose_threshold([1.0, 2.0], [0, 0]), lambda: costs.mean_cost([], [], np.eye(3)),
        lambda: metrics.top_k(np.eye(2), [0, np.nan], 1), lambda: metrics.fold_unknown([0, np.nan], [0]),
        lambda: metrics.macro_f1([0, 0.5], [0, 0], 2), lambda: costs.poison_costs([np.nan, 0.0]),
        lambda: costs.mean_cost([2], [0], np.eye(3)), lambda: costs.mean_cost([0], [-2], np.eye(3)),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            call()


def test_open_set_vector():
    known, novel = np.arange(1, 21) * 0.05, [0.02, 0.03, 0.07, 0.50]
    found = metrics.open_set(known, novel)
    assert (found["tnr95"], found["tnr95_reference_code"]) == (0.75, 0.5) and found["auc"] == pytest.approx(0.86875)
    assert metrics.tnr95(known[:9], [-1.0], "reference_code") == 0, (
        "with fewer than ten known images nothing is rejected"
    )
    assert metrics.tnr95(known[:9], [-1.0]) == 1


def removal(known, novel):
    """The published way: all scores ascending, known first among equals, removed one by one."""
    events = sorted([(s, 0) for s in known] + [(s, 1) for s in novel])
    gone, best, value = [0, 0], len(known), 0.0
    for _, kind in events:
        gone[kind] += 1
        if abs(20 * (len(known) - gone[0]) - 19 * len(known)) < best:
            best, value = abs(20 * (len(known) - gone[0]) - 19 * len(known)), gone[1] / len(novel)
    return value


@pytest.mark.parametrize("seed", range(8))
def test_open_set_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    known, novel = rng.integers(3, 30, rng.integers(5, 90)) / 8.0, rng.integers(0, 25, 40) / 8.0
    found = metrics.open_set(known, novel)
    thresholds = [*np.unique(np.concatenate([known, novel])), np.inf]
    assert found["auc"] == pytest.approx(np.mean((known[:, None] > novel) + 0.5 * (known[:, None] == novel)))
    t = max(t for t in thresholds if 20 * (known >= t).sum() >= 19 * len(known))
    assert found["tnr95"] == pytest.approx((novel < t).mean())
    assert found["tnr95_reference_code"] == pytest.approx(removal(known, novel))
    best = max(((known >= t).mean() + (novel < t).mean()) / 2 for t in thresholds)
    assert found["detection_accuracy"] == pytest.approx(best)
    steps = [
        (np.mean(known >= t), (known >= t).sum() / max((known >= t).sum() + (novel >= t).sum(), 1))
        for t in thresholds[::-1]
    ]
    assert found["auin"] == pytest.approx(sum((b - a) * p for (a, _), (b, p) in pairwise(steps)))
    assert found["auout"] == pytest.approx(metrics.open_set(-novel, -known)["auin"])


@pytest.mark.parametrize("seed", range(30))
def test_threshold_has_the_best_f1_of_unknown(seed):
    rng = np.random.default_rng(seed)
    y = rng.permutation([-1, -1, -1, 0, 1, 0, 1, 0])
    scores = np.round(rng.random(8) + 0.3 * (y >= 0), 1)
    f1 = {t: metrics.open_f1(y, np.where(scores < t, -1, 0), 2)["f1_unknown"] for t in [*np.unique(scores), np.inf]}
    assert metrics.choose_threshold(scores, y) == min(t for t in f1 if f1[t] == pytest.approx(max(f1.values())))


def test_open_f1_and_unseen_labels():
    y = metrics.fold_unknown([0, 7, -1, 1], [0, 1, 1, -1])
    assert y.tolist() == [0, -1, -1, 1]
    found = metrics.open_f1(y, [0, -1, 1, -1], 3)
    assert found["f1_unknown"] == pytest.approx(0.5) and found["f1_known"] == pytest.approx(1 / 3)


def test_costs():
    poisonous = [True, False]
    y, p = [0, 0, 1, 1, 1], [1, 0, 0, 1, 1]
    poison = costs.poison_costs(poisonous)
    assert costs.mean_cost(y, p, poison) == 20.2
    assert poison.tolist() == [[0, 100, 100], [1, 0, 0], [1, 0, 0]], "unknown is edible, as truth and as answer"
    assert (
        costs.mean_cost([1, 0], [1, 0], poison) == 0 and costs.mean_cost([1], [1], costs.poison_costs([True] * 4)) == 0
    )
    errors = costs.error_costs(2, 10, 0.1)
    assert costs.mean_cost([-1, 0, 0, -1, 1], [0, -1, 1, -1, 1], errors) == pytest.approx((10 + 0.1 + 1) / 5)
    assert costs.mean_cost([-1, 0, 0, -1, 1], [0, -1, 1, -1, 1], costs.error_costs(2)) == pytest.approx(3 / 5)
    user = costs.user_loss_costs(poisonous)
    assert costs.mean_cost(y, p, user) == pytest.approx(20.2 + 2 / 5)
    assert costs.mean_cost([-1, 0], [0, -1], costs.user_loss_costs(poisonous, unknown=True)) == pytest.approx(
        (11 + 100.1) / 2
    )
    assert costs.user_score(y, p, user) == pytest.approx(1 - 20.6 / ((101 * 2 + 2 * 3) / 5))


@pytest.mark.parametrize("may_reject", [False, True])
def test_least_expected_cost_is_the_argmin(may_reject):
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(4), 50)
    for matrix in (costs.user_loss_costs([True, False, False], unknown=True), rng.random((4, 4))):
        expected = [[sum(row[c] * matrix[c, d] for c in range(4)) for d in range(3 + may_reject)] for row in p]
        best = np.argmin(expected, axis=1)
        assert (
            costs.least_expected_cost(p, matrix, may_reject=may_reject).tolist()
            == np.where(best == 3, -1, best).tolist()
        )


def test_least_expected_cost_prefers_the_safe_answer_and_the_likeliest_of_equals():
    poison = costs.poison_costs([True, False, False])
    p = np.array([[0.05, 0.3, 0.65], [0.005, 0.3, 0.695], [0.0, 0.5, 0.5]])
    assert costs.least_expected_cost(p, poison).tolist() == [0, 2, 1]
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 4000)
    y = np.array([rng.choice(3, p=row) for row in p])
    assert costs.mean_cost(y, costs.least_expected_cost(p, poison), poison) < 0.2 * costs.mean_cost(
        y, p.argmax(axis=1), poison
    )
    for bad in (np.ones((2, 3)), np.ones((2, 2)) / 2, [[1.5, -0.5, 0.0]]):
        with pytest.raises(ValueError):
            costs.least_expected_cost(bad, poison)


def test_temperature_is_found_again():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (4000, 4))
    y = np.array([rng.choice(4, p=row) for row in softmax(logits / 3, axis=1)])
    assert costs.temperature(logits, y) == pytest.approx(3, rel=0.1)
    with pytest.raises(ValueError, match="labels 0..3"):
        costs.temperature(logits[:2], [0, -1])


def test_quantised_features():
    X = np.random.default_rng(0).normal(0, 3, (20, 8))
    unit, coarse = baselines.prepare(X), baselines.prepare(X, quantise_uint8=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1)
    assert (coarse == np.floor((unit + 1) * 127.5) / 255 * 2 - 1).all()
    assert (
        0 < np.abs(coarse - unit).max() <= 1 / 127.5 and baselines.prepare([[1.0, 0]], quantise_uint8=True)[0, 0] == 1
    )
    assert (baselines.prepare(np.zeros((1, 3))) == 0).all()
    for bad, message in (([[np.nan, 1.0], [1.0, 1.0]], r"rows \[0\]"), ([1.0], "shape"), (np.ones((0, 2)), "shape")):
        with pytest.raises(ValueError, match=message):
            baselines.prepare(bad)


def test_neighbours_and_centroids():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 1500)
    X, Q = baselines.prepare(clusters(rng, y)), baselines.prepare(clusters(rng, rng.integers(0, 5, 1100)))
    assert baselines.nearest_neighbour(X, y, Q).tolist() == [y[(X @ q).argmax()] for q in Q]
    assert baselines.nearest_neighbour(np.eye(2)[[0, 0, 1]], [3, 1, 2], np.eye(2)).tolist() == [1, 2]
    means = baselines.class_means(X, y, 7)
    np.testing.assert_allclose(means[:5], [X[y == c].mean(axis=0) for c in range(5)])
    scores = baselines.centroid_scores(means, Q)
    assert (scores[:, 5:] == 0).all() and scores[0, 1] == pytest.approx(Q[0] @ means[1] / np.linalg.norm(means[1]))
    with pytest.raises(ValueError, match=r"0\.\.6"):
        baselines.class_means(X, y - 1, 7)


def test_linear_probe_learns_and_counts_its_updates():
    rng = np.random.default_rng(0)
    y = np.arange(150) % 5
    X = clusters(rng, y)
    short = baselines.LinearProbe().fit(X, y, 5)
    assert short.updates_ == 90, "30 epochs of three batches"
    long = baselines.LinearProbe(min_updates=1000, learning_rate=0.01).fit(X, y, 5)
    assert long.updates_ == 1002 and long.train_accuracy_ > 0.95 and (long.logits(X).argmax(axis=1) == y).mean() > 0.95
    again = baselines.LinearProbe().fit(X, y, 5)
    assert (again.weight_ == short.weight_).all() and (
        baselines.LinearProbe(seed=1).fit(X, y, 5).weight_ != short.weight_
    ).any()
    with pytest.raises(ValueError, match=r"0\.\.3"):
        baselines.LinearProbe().fit(X, y, 4)
    with pytest.raises(ValueError, match="not finite"):
        short.logits([[np.nan] * 16])


def test_open_scores_and_floors():
    logits, X, means = np.array([[0.0, 2.0]]), np.array([[1.0, 1.0]]), np.array([[1.0, 4.0], [9.0, 1.0]])
    found = baselines.open_scores(logits, X, means)
    assert found["MSP"][0] == pytest.approx(1 / (1 + np.exp(-2))) and found["MLS"][0] == 2 and found["NM"][0] == -3
    assert baselines.floor_scores([2, 2, 0], 3, 4, "majority").argmax(axis=1).tolist() == [2, 2, 2]
    draws = baselines.floor_scores([0], 4000, 4, "random", seed=1)
    assert metrics.top_k(draws, np.zeros(4000), 1)[0] == pytest.approx(0.25, abs=0.03)
    with pytest.raises(ValueError, match="unknown floor"):
        baselines.floor_scores([0], 1, 1, "constant")


def test_metadata_prior():
    train = pd.DataFrame({"habitat": ["bog", "bog", "lawn", "lawn"], "month": [1, 2, 2, 2], "metaSubstrate": 0})
    test = pd.DataFrame({"habitat": ["bog", "sea", None, "lawn"], "month": [2, 2, 1, 1], "metaSubstrate": 0})
    y, p = np.array([0, 1, 1, 1]), np.array([[0.4, 0.6]] * 4)
    H = fusion.prior_factor(train["habitat"], y, test["habitat"], 2)
    np.testing.assert_allclose(H, [[2, 2 / 3], [1, 1], [1, 1], [0, 4 / 3]])
    M = fusion.prior_factor(train["month"], y, test["month"], 2)
    np.testing.assert_allclose(M, [[0, 4 / 3], [0, 4 / 3], [4, 0], [4, 0]])
    ours = fusion.metadata_prior(train, y, test, p, "H")
    np.testing.assert_allclose(ours[0], [0.8 / 1.2, 0.4 / 1.2])
    q = p[0] * H[0] / (p[0] * H[0]).sum()
    r = q / (q * 1).sum() * p[0]
    np.testing.assert_allclose(fusion.metadata_prior(train, y, test, p, "H", "reference_code")[0], r / r.sum())
    np.testing.assert_allclose(
        fusion.with_priors(p, [H, H], "reference_code")[0], softmax(3 * np.log(p[0]) + 2 * np.log(H[0]))
    )
    both = fusion.metadata_prior(train, y, test, p, "H+M")
    np.testing.assert_allclose(both, [[0, 1], [0, 1], [1, 0], [0.4, 0.6]])  # the last rules all out and keeps p
    np.testing.assert_allclose(fusion.prior_factor(train["habitat"], y, test["habitat"], 3)[:, 2], 1)
    for call in (
        lambda: fusion.metadata_prior(train, y, test, p, "X"),
        lambda: fusion.metadata_prior(train, y, test, p, "S"),
        lambda: fusion.with_priors(p, [H], "paper"),
    ):
        with pytest.raises(ValueError, match="unknown|missing"):
            call()


def test_caption_fusion_joins_by_name():
    image = pd.DataFrame([[1.0, 0.0], [0.0, 1.0]], index=["a", "b"])
    text = pd.DataFrame([[5.0, 0.0], [0.0, 0.5]], index=["b", "a"], columns=[1, 0])
    fused = fusion.fuse(image, text)
    assert fused.loc["a"].tolist() == [1.5, 0.0] and fused.loc["b"].tolist() == [0.0, 6.0]
    pd.testing.assert_frame_equal(fusion.fuse(image, text, "mean"), fused / 2)
    for bad, message in ((text.iloc[:1], "no text logits for 1"), (text.rename(columns={0: 2}), "different classes"),
                         (text.iloc[[0, 0, 1]], "twice")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            fusion.fuse(image, bad)
    with pytest.raises(ValueError, match="sum, mean"):
        fusion.fuse(image, text, "max")


@pytest.mark.parametrize("classifier", [None, make_pipeline(CountVectorizer(), MultinomialNB()),
                                        make_pipeline(CountVectorizer(), LinearSVC())])  # fmt: skip
@pytest.mark.parametrize("n_classes", [2, 3])
def test_text_logits_of_any_classifier(classifier, n_classes):
    words = np.array(["red cap", "grey stem", "white ring"])
    y = np.arange(30) % n_classes
    train = pd.Series(words[y], index=[f"t{i}" for i in range(30)])
    found = fusion.text_logits(
        train, y, pd.Series(["white ring", "grey stem", "red cap"], index=list("abc")), classifier
    )
    assert found.index.tolist() == list("abc") and found.columns.tolist() == list(range(n_classes))
    assert found.idxmax(axis=1)["b"] == 1 and found.idxmax(axis=1)["c"] == 0
    assert np.isfinite(found.to_numpy()).all()


def days(n=12, unknown=()):
    rng = np.random.default_rng(5)
    y = np.arange(n) % 3
    y[list(unknown)] = -1
    return pd.DataFrame({"eventDate": [f"2023-0{1 + i // 4}-01" for i in range(n)], "observationID": rng.permutation(n),
                         "filename": [f"{i}.JPG" for i in range(n)], "category_id": y})  # fmt: skip


def test_batches_follow_the_days():
    table = pd.DataFrame({"eventDate": ["2023-05-02", None, "2023-05-01", "2023-05-02", None, "2023-05-02"],
                          "year": [2023, 2023, 1, 1, np.nan, 1], "month": [1, 4, 1, 1, 4, 1], "day": [1, 9, 1, 1, 9, 1],
                          "observationID": [8, 1, 2, 7, 1, 7], "filename": ["a", "b", "c", "e", "f", "d"]})  # fmt: skip
    found, undated = chronological.batches(table)
    assert [rows.tolist() for rows in found] == [[1], [2], [5, 3, 0], [4]] and undated == 1


@pytest.mark.parametrize("adapter", chronological.ADAPTERS)
def test_no_adapter_looks_ahead(adapter):
    rng = np.random.default_rng(1)
    y = np.arange(60) % 3
    start, table = (clusters(rng, y, 3), y), days(unknown=(5,))
    X = clusters(rng, np.arange(12) % 3, 3, noise=1.5)
    settings = {"scale": 8, "confidence": 0.5, "momentum": 0.5}
    whole = chronological.chronological(start, table, X, 3, adapter, **settings).set_index("filename")
    assert whole["uses_labels"].unique().tolist() == [adapter == "online"] and len(whole) == 12
    shuffled = table.iloc[rng.permutation(12)]
    other = chronological.chronological(start, shuffled, X[shuffled.index], 3, adapter, **settings).set_index(
        "filename"
    )
    pd.testing.assert_frame_equal(other, whole)
    ahead, X2 = table.copy(), X.copy()
    ahead.loc[4:, "category_id"] = 0
    X2[8:] = 1.0
    same = chronological.chronological(start, ahead, X2, 3, adapter, **settings).set_index("filename")
    columns = ["predicted", "confidence"]
    pd.testing.assert_frame_equal(same[columns][:8], whole[columns][:8])
    frozen = chronological.chronological(start, table, X, 3, "none", **settings).set_index("filename")
    assert np.allclose(frozen["confidence"][:4], whole["confidence"][:4]), "the first day is answered before any"
    assert (adapter == "none") == np.allclose(frozen["confidence"], whole["confidence"])
    relabelled = chronological.chronological(start, table.assign(category_id=1), X, 3, adapter, **settings).set_index(
        "filename"
    )
    assert (adapter != "online") == np.allclose(relabelled["confidence"], whole["confidence"])


def test_adapters_do_what_they_say():
    start = (np.eye(2)[[0, 1, 1]], np.array([0, 1, 1]))
    x = np.array([0.8, 0.6])
    table = days(5).assign(eventDate=[f"2023-01-0{i + 1}" for i in range(5)], category_id=1)
    X = np.array([x] * 5)
    online = chronological.chronological(start, table, X, 2, "online", scale=5)
    assert online["predicted"].tolist()[0] == 0 and online["predicted"].tolist()[-1] == 1
    mean = (2 * np.array([0.0, 1]) + x) / 3
    cosines = np.array([0.8, x @ mean / np.linalg.norm(mean)])
    assert online["confidence"][1] == pytest.approx(softmax(5 * cosines).max())
    drift = chronological.chronological(start, table, X, 2, "drift", scale=5, confidence=0.6, momentum=0.9)
    moved = 0.9 * np.array([1.0, 0]) + 0.1 * x
    cosines = np.array([x @ moved / np.linalg.norm(moved), 0.6])
    assert drift["confidence"][1] == pytest.approx(softmax(5 * cosines).max())
    still = chronological.chronological(start, table, X, 2, "drift", scale=5, confidence=0.99)
    assert still["confidence"].nunique() == 1
    for bad in ({"adapter": "ema"}, {"adapter": "drift", "momentum": 1.5}, {"adapter": "prior", "forgetting": 1.0},
                {"adapter": "none", "scale": 0}):  # fmt: skip
        with pytest.raises(ValueError):
            chronological.chronological(start, table, X, 2, **bad)
    summary = chronological.summarise(online, drift, 2)
    assert summary["top1"] == (online["predicted"] == 1).mean() and summary["uses_labels"] and summary["n_images"] == 5
    assert summary["gain_top1"] == summary["top1"] and summary["gain_macro_f1"] == summary["macro_f1"] > 0
    undated = online.assign(day=[pd.NaT, *pd.to_datetime(["2023-02-01", "2023-02-28", "2023-01-05", "2023-01-06"])])
    months = chronological.by_month(undated)
    assert months["month"].tolist() == ["2023-01", "2023-02", "no date"] and months["n_images"].tolist() == [2, 2, 1]
    assert months["top1"].tolist()[2] == 0


@pytest.mark.parametrize("first_day", [1, 2])
def test_class_shares_are_those_of_em_with_forgetting(first_day):
    table = days(first_day + 1).assign(eventDate=["2023-01-01"] * first_day + ["2023-01-02"])
    X = np.array([[0.8, 0.6]] * len(table))
    start = (np.eye(2)[[0, 1, 1]], np.array([0, 1, 1]))
    found = chronological.chronological(start, table, X, 2, "prior", scale=5, forgetting=0.9)
    p, trained = softmax([4.0, 3.0]), np.array([1 / 3, 2 / 3])
    share = trained
    for _ in range(200):
        q = p * share / trained
        share = 0.9**first_day * 10 * trained + first_day * q / q.sum()
        share = share / share.sum()
    q = p * share / trained
    np.testing.assert_allclose(found["confidence"], [p.max()] * first_day + [(q / q.sum()).max()], atol=1e-6)


def box(left, top, right, bottom, size=20):
    mask = np.zeros((size, size), dtype=bool)
    mask[top:bottom, left:right] = True
    return mask


def test_binary_and_semantic_iou():
    a, b, none = box(0, 0, 4, 4), box(2, 0, 6, 4), box(0, 0, 0, 0)
    assert segmentation.iou(a, b) == 8 / 24
    table = segmentation.binary({"x": (a, b), "y": (none, none), "z": (none, a)})
    assert table["iou"].tolist() == [8 / 24, 1, 0] and table["both_empty"].tolist() == [False, True, False]
    assert segmentation.binary({"y": (none, none)}, "reference_code")["iou"].tolist() == [0]
    found = segmentation.semantic(
        [({"cap": a, "stem": b}, {"cap": a}), ({"cap": none}, {"cap": b, "ring": a}), ({}, {})]
    )
    found = found.set_index("label")["iou"]
    assert (
        found["cap"] == 16 / 32 and found["stem"] == 0 and found["ring"] == 0 and found[["gills", "pores"]].isna().all()
    )
    picture = np.array([[0, 127, 128, 255]], dtype=np.uint8)
    assert segmentation.foreground(picture, (2, 8)).tolist() == [[False] * 4 + [True] * 4] * 2
    for call in (
        lambda: segmentation.iou(a, a[:2]),
        lambda: segmentation.binary({}),
        lambda: segmentation.iou(a, b, "paper"),
    ):
        with pytest.raises(ValueError):
            call()


def test_instances_of_a_part_are_one_mask_for_the_mean_iou():
    a, b = box(0, 0, 10, 8), box(10, 10, 20, 20)
    pairs = {"x": ({"cap": a | b, "fruiting_body": a | b}, [("cap", a), ("cap", b)])}
    assert segmentation.thresholded(pairs)["mIoU"] == 1


def test_average_precision_by_hand():
    a, b = box(0, 0, 10, 10), box(10, 10, 20, 20)
    near = box(0, 0, 10, 8)  # IoU 0.8 with a
    perfect = segmentation.average_precision([[("cap", 0.9, a), ("cap", 0.8, b)]], [[("cap", a), ("cap", b)]])
    assert (perfect["ap"] == 1).all() and perfect["overlap"].tolist() == [
        0.5,
        0.55,
        0.6,
        0.65,
        0.7,
        0.75,
        0.8,
        0.85,
        0.9,
        0.95,
    ]
    half = segmentation.average_precision([[("cap", 0.9, near)]], [[("cap", a)]])
    assert half["ap"].mean() == pytest.approx(0.7), "IoU 0.8 counts at 0.50 to 0.80"
    missed = segmentation.average_precision([[("cap", 0.9, a)], []], [[("cap", a)], [("cap", b)]])
    assert missed["ap"].mean() == pytest.approx(51 / 101), "one of two found: precision 1 at the recalls 0 to 0.5"
    twice = segmentation.average_precision(
        [[("cap", 0.9, a), ("cap", 0.8, near), ("cap", 0.7, b)]], [[("cap", a), ("cap", b)]]
    )
    assert twice["ap"].iloc[0] == pytest.approx((51 + 50 * 2 / 3) / 101), "the second answer to one mask is wrong"
    wrong = segmentation.average_precision([[("stem", 0.9, a)]], [[("cap", a)]])
    assert wrong["label"].unique().tolist() == ["cap"] and (wrong["ap"] == 0).all()
    crowd = segmentation.average_precision([[("cap", 1.0, b)] * 100 + [("cap", 0.5, a)]], [[("cap", a)]])
    assert (crowd["ap"] == 0).all(), "at most 100 answers a picture"
    for bad in (([[]], [[]]), ([[]], [[("cap", a)], []]), ([[("cap", np.nan, a)]], [[("cap", a)]])):
        with pytest.raises(ValueError):
            segmentation.average_precision(*bad)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("fungi")
    fixture.write(root)
    return drawn(root)


def drawn(root):
    """The fixture with drawn features: 16 numbers a picture, around a centre of its species."""
    tables = [pd.read_csv(path) for path in sorted(root.rglob("*.csv"))]
    species = pd.concat(tables).drop_duplicates("filename").set_index("filename")["species"]

    class Drawn(runs.SiblingRun):
        def features(self, files, folder="", img_size=224):
            rng = np.random.default_rng(0)
            names = {
                path.name.lower(): species[path.name] for path in map(lambda f: root / f, files) if path.name in species
            }
            kinds = [int(names.get(f.rpartition("/")[2].lower(), "species0").rpartition("species")[2]) for f in files]
            return pd.DataFrame(clusters(rng, np.array(kinds), 20, noise=0.3), index=files)

    return Study(Drawn("fungitastic", "smoke", "efficientnet_lite0", str(root), 0))


def test_study_joins_closed_rows_to_the_open_set(study):
    closed, whole = study.split("all", "test"), study.split("all", "test", "open")
    assert len(closed.y) == 10 and (whole.y == -1).sum() == 4 and (closed.X == whole.X[:10]).all()
    assert study.probe() is study.probe() and study.probe().updates_ == 2000 and study.probe(updates=0).updates_ == 30
    exact, coarse = (study.few_shot("centroid", "val", quantise_uint8=q) for q in (False, True))
    assert exact.shape == (6, 6) and 0 < np.abs(exact - coarse).max() < 0.02
    with pytest.raises(ValueError, match="1-NN, centroid, linear"):
        study.few_shot("5-NN")
    assert study.open_set()["score"].tolist() == ["MSP", "MLS", "NM"] and study.open_set()["auc"].between(0, 1).all()


def test_every_task_has_its_line(study):
    table = evaluate(study.run)
    assert (
        list(table.columns) == ["task", "metric", "variant", "value", "floor", "n_images"]
        and table["value"].notna().all()
    )
    tasks = ["closed set", "few-shot", "open set", "chronological", "costs", "captions", "metadata", "observations"]
    assert set(table["task"]) == {*tasks, "segmentation"}
    assert not table.duplicated(["task", "metric", "variant"]).any() and set(table["variant"]) <= {
        "ours",
        "paper",
        "reference_code",
    }
    value = table.set_index(["task", "metric", "variant"])["value"]
    assert (
        value["closed set", "Top-1, linear probe, test", "ours"]
        == 1
        > value["closed set", "macro-F1 all, linear probe, test", "ours"]
    )
    low = table.set_index(["task", "metric"])["floor"]
    assert low["costs", "poison cost, likeliest"] == 60 and low["few-shot", "Top-1, 1-NN"] == pytest.approx(1 / 3)
    assert (table["metric"].str.contains("uses labels") == (table["metric"] == "Top-1, online (uses labels)")).all()
    assert 0.9 < value["segmentation", "binary IoU, threshold", "ours"] < 1


def test_a_class_that_training_lacks_is_an_error_and_never_dropped(study, tmp_path):
    root = shutil.copytree(study.run.root, tmp_path / "fungi")
    for split in ("Val", "Test"):
        for task in ("ClosedSet", "OpenSet"):
            path = root / f"metadata/FungiTastic/FungiTastic-{task}-{split}.csv"
            table = pd.read_csv(path)
            table.loc[table["category_id"] == 2, "category_id"] = 9
            table.to_csv(path, index=False)
    value = evaluate(drawn(root).run).set_index(["task", "metric"])["value"]
    for task, name in (("closed set", "linear probe, test"), ("captions", "image + text")):
        assert value[task, f"Top-1, {name}"] <= 0.8
    assert value["costs", "user loss, likeliest"] >= 0.2


def test_tables_that_contradict_each_other_or_teach_nothing_are_refused(study, tmp_path):
    root = shutil.copytree(study.run.root, tmp_path / "fungi")
    folder = root / "metadata/FungiTastic"
    for split, table, label, message in (
        ("test", "ClosedSet-Test", 3, "category_id 3 in .*ClosedSet-Test.csv but 0 in .*OpenSet-Test.csv"),
        ("test", "OpenSet-Test", -1, "category_id 0 in .*ClosedSet-Test.csv but -1 in .*OpenSet-Test.csv"),
        ("val", "ClosedSet-Val", 9, "category_id 9 in .*ClosedSet-Val.csv but 0 in"),
    ):
        path = folder / f"FungiTastic-{table}.csv"
        before = path.read_text()
        changed = pd.read_csv(path)
        changed.loc[0, "category_id"] = label
        changed.to_csv(path, index=False)
        with pytest.raises(ValueError, match=message):
            drawn(root).split("all", split)
        path.write_text(before)
    closed = pd.read_csv(folder / "FungiTastic-ClosedSet-Test.csv")
    closed.to_csv(folder / "FungiTastic-OpenSet-Test.csv", index=False)
    with pytest.raises(ValueError, match="OpenSet-Test.csv: .* all 10 here are known"):
        drawn(root).open_set()
    train = folder / "FungiTastic-Train.csv"
    pd.read_csv(train).assign(category_id=0).to_csv(train, index=False)
    with pytest.raises(ValueError, match="FungiTastic-Train.csv: training has one class only"):
        evaluate(drawn(root).run)
    for split in ("ClosedSet-Val", "OpenSet-Val"):
        path = folder / f"FungiTastic-{split}.csv"
        pd.read_csv(path).assign(category_id=9).to_csv(path, index=False)
    fixture_train = pd.read_csv(study.run.root / "metadata/FungiTastic/FungiTastic-Train.csv")
    fixture_train.to_csv(train, index=False)
    with pytest.raises(ValueError, match="ClosedSet-Val.csv: no image of a training class"):
        drawn(root).calibrated()
