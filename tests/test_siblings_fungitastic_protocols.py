"""FungiTastic's metrics and baselines against hand-made vectors and independent references."""

import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import mahalanobis
from scipy.special import softmax
from sklearn.covariance import LedoitWolf
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from phoebi_lib.siblings import run as runs
from phoebi_lib.siblings import vectors
from phoebi_lib.siblings.bioeval.simpleshot import simpleshot
from phoebi_lib.siblings.fungitastic import baselines, chronological, costs, fixture, fungiclef, metrics, segmentation
from phoebi_lib.siblings.fungitastic.evaluate import Study, evaluate
from phoebi_lib.siblings.fungitastic.layout import Split


def clusters(rng, y, n_classes=5, d=16, noise=0.5):
    centres = np.random.default_rng(99).normal(0, 1, (n_classes, d))
    return centres[y] + rng.normal(0, noise, (len(y), d))


def test_macro_f1_vectors():
    vector, stray = ([0, 0, 1, 1, 2, 2], [0, 0, 1, 0, 2, 1], 5), ([0, 0, 1, 1], [0, 3, 1, 1], 4)
    for case, classes, value in ((vector, "present", 0.65556), (vector, "all", 0.39333), (stray, "present", 0.55556),
                                 (stray, "all", 0.41667)):  # fmt: skip
        assert metrics.macro_f1(*case, classes) == pytest.approx(value, abs=5e-6)
    assert metrics.macro_f1([0, 1], [0, 1], 8) == 2 / 8, "a test set of two of eight classes caps it"
    assert metrics.macro_f1([-1, 0], [0, 0], 2) == pytest.approx(1 / 3), "an unseen label is an error, not dropped"


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_and_top_k_against_two_lines(seed):
    rng = np.random.default_rng(seed)
    scores, y = rng.integers(0, 4, (40, 6)).astype(float), rng.integers(-1, 6, 40)
    y[y == 2] = 3
    p = scores.argmax(axis=1)
    tp, f = lambda c: ((y == c) & (p == c)).sum(), lambda c: (y == c).sum() + (p == c).sum()
    for classes, over in (("all", range(6)), ("present", {*y} | {*p})):
        expected = np.mean([2 * tp(c) / max(f(c), 1) for c in over])
        assert metrics.macro_f1(y, p, 6, classes) == pytest.approx(expected)
        assert metrics.classification(scores, y)[f"macro-F1 {classes}"] == pytest.approx(expected)
    for k in (1, 3, 6, 9):
        ranked = [sorted(range(6), key=lambda c: (-row[c], c))[:k] for row in scores]
        assert metrics.top_k(scores, y, k) == (np.mean([t in r for t, r in zip(y, ranked, strict=True)]), min(k, 6))
    assert metrics.top_k(np.array([[0, 1]], np.uint8), [1], 1) == (1, 1), "bytes do not wrap round"
    assert list(metrics.classification(scores[:, :2], y)) == ["Top-1", "Top-2", "macro-F1 all", "macro-F1 present"]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: metrics.top_k(np.ones((0, 3)), [], 1), "at least one"),
    (lambda: metrics.top_k(np.ones((2, 3)), [0], 1), "finite scores"),
    (lambda: metrics.top_k([[np.nan, 1]], [0], 1), "finite scores"),
    (lambda: metrics.top_k([[0.0, 1]], [0], 0), "k must be an integer >= 1; found 0"),
    (lambda: metrics.top_k([[0.0, 1]], [0], 1.5), "k must be an integer >= 1; found 1.5"),
    (lambda: metrics.ids([1e300]), "whole numbers below .*found 1e"),
    (lambda: metrics.ids(["0"]), "whole numbers .*found .*'0'"),
    (lambda: metrics.top_k(np.eye(2), [0, np.nan], 1), "whole numbers"),
    (lambda: metrics.macro_f1([], [], 3), "at least one"),
    (lambda: metrics.macro_f1([0], [3], 3), r"-1\.\.2"),
    (lambda: metrics.macro_f1([0], [-2], 3), r"-1\.\.2"),
    (lambda: metrics.macro_f1([0], [0, 1], 3), r"\(1,\), \(2,\)|\(2,\), \(1,\)"),
    (lambda: metrics.macro_f1([0, 0.5], [0, 0], 2), "whole numbers"),
    (lambda: metrics.macro_f1([0], [0], 3, "some"), "'all', 'present'"),
    (lambda: metrics.open_set([], [1.0]), "0, 1"),
    (lambda: metrics.open_set([1.0], []), "1, 0"),
    (lambda: metrics.open_set([np.inf], [1.0]), "finite"),
    (lambda: metrics.choose_threshold([1.0, 2.0], []), "2, 0"),
    (lambda: metrics.fold_unknown([0, np.nan], [0]), "whole numbers"),
    (lambda: costs.poison_costs(["0", "1"]), "True or False"),
    (lambda: costs.poison_costs([0, np.nan]), "True or False"),
    (lambda: costs.temperature(np.eye(2), np.array([0, -1])), r"labels 0\.\.1"),
    (lambda: costs.temperature(np.ones((0, 2)), np.array([])), "at least one"),
    (lambda: costs.temperature(np.eye(2), [0]), "1 for 2 rows"),
    (lambda: costs.temperature(np.eye(2), [0, 0.5]), "found 0.5"),
    (lambda: costs.temperature(np.diag([np.nan, np.inf]), [0, 1]), "all finite"),
    (lambda: costs.user_score([0], [0], np.zeros((3, 3))), "costs something"),
    (lambda: baselines.nearest_neighbour(np.eye(3), [0, 1], np.eye(3)), "each of 3 rows, got 2"),
    (lambda: baselines.prior_factor(pd.Series(dtype=str), np.array([], int), pd.Series(["a"]), 2), "got 0"),
    (lambda: baselines.text_logits(pd.Series(["", "a"]), [0, 1], pd.Series(["cap"])), "none of 2 .* has a word"),
    (lambda: baselines.LinearProbe().fit(np.eye(2), [0, 0.5], 2), "found 0.5"),
    (lambda: baselines.LinearProbe().fit(np.eye(2), [0, np.nan], 2), "found nan"),
    (lambda: baselines.LinearProbe().fit(np.eye(2) * 1e39, [0, 1], 2), r"within 1e\+18, found 1e\+39"),
    (lambda: segmentation.encode(np.zeros((3, 4), bool)), r"\(3, 4\) none is set"),
    (lambda: segmentation.merged([], "reference_code"), "got none"),
    (lambda: baselines.LinearProbe().fit(np.eye(2), [0, -100], 2), r"0\.\.1, got -100"),
    (lambda: baselines.LinearProbe().fit(np.eye(2), [0, 5], 2), r"0\.\.1, got 0\.\.5"),
    (lambda: costs.mean_cost([], [], np.eye(3)), "at least one"),
    (lambda: costs.mean_cost([2], [0], np.eye(3)), r"-1\.\.1"),
    (lambda: costs.mean_cost([0], [-2], np.eye(3)), r"-1\.\.1"),
    (lambda: costs.least_expected_cost(np.ones((2, 3)), np.eye(4)), "of sum 1"),
    (lambda: costs.least_expected_cost(np.ones((2, 2)) / 2, np.eye(4)), r"\(N, 3\) or \(N, 4\)"),
    (lambda: costs.least_expected_cost([[1.5, -0.5, 0.0]], np.eye(4)), "at least 0"),
    (lambda: baselines.LinearProbe().fit([[np.nan] * 2], [0], 2), "not finite"),
    (lambda: baselines.as_bytes([[np.nan, 1.0], [1.0, 1.0]]), r"rows \[0\]"),
    (lambda: baselines.floor_scores([0], 1, 1, "constant"), "'majority', 'random'"),
    (lambda: chronological.chronological(START, days(3), 3, "ema"), "'none', 'prior'"),
    (lambda: segmentation.iou(np.ones((4, 4), bool), np.ones((2, 4), bool)), "different shapes"),
    (lambda: segmentation.iou(np.ones((4, 4), bool), np.ones((4, 4), bool), "paper"), "'ours', 'reference_code'"),
    (lambda: segmentation.binary([]), "no picture"),
    (lambda: segmentation.semantic([([("stem", np.ones((2, 2), bool))], [("cap", np.ones((4, 4), bool))])]), "shapes"),
    (lambda: segmentation.average_precision([([], [])]), "no picture with a true mask"),
    (lambda: segmentation.average_precision([([("cap", None, np.nan)], [("cap", None)])]), "finite"),
])  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_scored_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_open_set_vector():
    known, novel = np.arange(1, 21) * 0.05, [0.02, 0.03, 0.07, 0.50]
    found = metrics.open_set(known, novel)
    assert (found["tnr95"], found["tnr95_reference_code"]) == (0.75, 0.5) and found["auc"] == pytest.approx(0.86875)
    few = metrics.open_set(known[:9], [-1.0])
    assert few["tnr95"] == 1 and few["tnr95_reference_code"] == 0, "of less than ten known images none is removed"


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
    thresholds = [*np.unique(np.concatenate([known, novel])), np.inf]
    t = max(t for t in thresholds if 20 * (known >= t).sum() >= 19 * len(known))
    kept = [((known >= t).sum(), (novel >= t).sum()) for t in thresholds[::-1]]
    curve = [(k / len(known), k / max(k + n, 1)) for k, n in kept]
    expected = {
        "auc": np.mean((known[:, None] > novel) + 0.5 * (known[:, None] == novel)), "tnr95": (novel < t).mean(),
        "tnr95_reference_code": removal(known, novel),
        "detection_accuracy": max(((known >= t).mean() + (novel < t).mean()) / 2 for t in thresholds),
        "auin": sum((b - a) * p for (a, _), (b, p) in pairwise(curve)),
        "auout": metrics.open_set(-novel, -known)["auin"],
    }  # fmt: skip
    assert metrics.open_set(known, novel) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(30))
def test_threshold_has_the_best_f1_of_unknown(seed):
    rng = np.random.default_rng(seed)
    y = rng.permutation([-1, -1, -1, 0, 1, 0, 1, 0])
    scores = np.round(rng.random(8) + 0.3 * (y >= 0), 1)
    f1 = {t: metrics.open_f1(y, np.where(scores < t, -1, 0), 2)["f1_unknown"] for t in [*np.unique(scores), np.inf]}
    best = min(t for t in f1 if f1[t] == pytest.approx(max(f1.values())))
    assert metrics.choose_threshold(scores[y >= 0], scores[y < 0]) == best
    assert metrics.choose_threshold([0.1], [0.5, 0.6]) == np.inf, "where known looks stranger, all are called unknown"


def test_open_f1_and_unseen_labels():
    y = metrics.fold_unknown([0, 7, -1, 1], [0, 1, 1, -1])
    assert y.tolist() == [0, -1, -1, 1]
    found = metrics.open_f1(y, [0, -1, 1, -1], 3)
    assert found["f1_unknown"] == pytest.approx(0.5) and found["f1_known"] == pytest.approx(1 / 3)


def test_costs():
    poisonous, y, p = [True, False], [0, 0, 1, 1, 1], [1, 0, 0, 1, 1]
    poison, user = costs.poison_costs(poisonous), costs.user_loss_costs(poisonous)
    assert poison.tolist() == [[0, 100, 100], [1, 0, 0], [1, 0, 0]], "unknown is edible, as truth and as answer"
    strangers, answers = [-1, -1, 0, 0, -1, 1], [0, 1, -1, 1, -1, 1]
    for truth, predicted, matrix, cost in (
        (y, p, poison, 20.2), ([1, 0], [1, 0], poison, 0), ([1], [2], costs.poison_costs([True] * 4), 0),
        (strangers, answers, costs.error_costs(2, 10, 0.1), (2 * 10 + 0.1 + 1) / 6),
        (strangers, answers, costs.error_costs(2), 4 / 6), (y, p, user, 20.2 + 2 / 5),
        ([-1, 0], [0, -1], costs.user_loss_costs(poisonous, unknown=True), (11 + 100.1) / 2),
    ):  # fmt: skip
        assert costs.mean_cost(truth, predicted, matrix) == pytest.approx(cost)
    assert costs.best_constant([0, 0, 1], costs.poison_costs([True, False, False])).tolist() == [0] * 3
    assert costs.best_constant([1, 2, -1], costs.error_costs(3, 0.1, 10)).tolist() == [1] * 3, "equals: the lowest"
    assert costs.best_constant([1, -1, -1], costs.error_costs(3, 10, 0.1)).tolist() == [-1] * 3
    assert costs.user_score(y, p, user) == pytest.approx(1 - 20.6 / ((101 * 2 + 2 * 3) / 5))


@pytest.mark.parametrize("may_reject", [False, True])
def test_least_expected_cost_is_the_argmin(may_reject):
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(4), 50)
    for matrix in (costs.user_loss_costs([True, False, False], unknown=True), rng.random((4, 4))):
        expected = [[sum(row[c] * matrix[c, d] for c in range(4)) for d in range(3 + may_reject)] for row in p]
        best = np.argmin(expected, axis=1)
        found = costs.least_expected_cost(p, matrix, may_reject=may_reject)
        assert found.tolist() == np.where(best == 3, -1, best).tolist()


def test_least_expected_cost_prefers_the_safe_answer_and_the_likeliest_of_equals():
    poison = costs.poison_costs([True, False, False])
    p = np.array([[0.05, 0.3, 0.65], [0.005, 0.3, 0.695], [0.0, 0.5, 0.5]])
    assert costs.least_expected_cost(p, poison).tolist() == [0, 2, 1]


def test_temperature_is_found_again():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (4000, 4))
    y = np.array([rng.choice(4, p=row) for row in softmax(logits / 3, axis=1)])
    assert costs.temperature(logits, y) == pytest.approx(3, rel=0.1)


def test_features_as_bytes():
    X = np.random.default_rng(0).normal(0, 3, (20, 8))
    unit, coarse = vectors.unit(X), baselines.as_bytes(X)
    assert (coarse == np.floor((unit + 1) * 127.5) / 255 * 2 - 1).all() and 0 < np.abs(coarse - unit).max() <= 1 / 127.5
    assert baselines.as_bytes([[1.0, 0]])[0, 0] == 1


def test_the_nearest_neighbour():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 300)
    X, Q = clusters(rng, y), clusters(rng, rng.integers(0, 5, 110))
    assert baselines.nearest_neighbour(X, y, Q).tolist() == [y[(X @ q).argmax()] for q in Q]
    assert baselines.nearest_neighbour(np.eye(2)[[0, 0, 1]], [3, 1, 2], np.eye(2)).tolist() == [1, 2]


def test_linear_probe_learns_and_counts_its_updates():
    rng = np.random.default_rng(0)
    y = np.arange(150) % 5
    X = clusters(rng, y)
    short, again, other = (baselines.LinearProbe(seed=seed).fit(X, y, 5) for seed in (0, 0, 1))
    assert short.updates_ == 90, "30 epochs of three batches"
    assert (again.weight_ == short.weight_).all() and (other.weight_ != short.weight_).any()
    long = baselines.LinearProbe(min_updates=1000, learning_rate=0.01).fit(X, y, 5)
    assert long.updates_ == 1002 and (long.logits(X).argmax(axis=1) == y).mean() > 0.95
    with pytest.raises(ValueError, match="not finite"):
        short.logits([[np.nan] * 16])


def test_open_scores_and_floors():
    logits, X, means = np.array([[0.0, 2.0]]), np.array([[1.0, 1.0]]), np.array([[1.0, 4.0], [9.0, 1.0]])
    found = baselines.open_scores(logits, X, means)
    assert found["MSP"][0] == pytest.approx(1 / (1 + np.exp(-2))) and found["MLS"][0] == 2 and found["NM"][0] == -3
    assert baselines.floor_scores([2, 2, 0], 3, 4, "majority").argmax(axis=1).tolist() == [2, 2, 2]
    draws = baselines.floor_scores([0], 4000, 4, "random", seed=1)
    assert metrics.top_k(draws, np.zeros(4000), 1)[0] == pytest.approx(0.25, abs=0.03)


def test_metadata_prior():
    y, p = np.array([0, 1, 1, 1]), np.array([[0.4, 0.6]] * 4)
    train = Split(pd.DataFrame({"habitat": ["bog", "bog", "lawn", "lawn"], "month": [1, 2, 2, 2]}), None, y)
    test = Split(pd.DataFrame({"habitat": ["bog", "sea", None, "lawn"], "month": [2, 2, 1, 1]}), None, None)
    H, M = (baselines.prior_factor(train.table[name], y, test.table[name], 2) for name in ("habitat", "month"))
    np.testing.assert_allclose(H, [[2, 2 / 3], [1, 1], [1, 1], [0, 4 / 3]])
    np.testing.assert_allclose(M, [[0, 4 / 3], [0, 4 / 3], [4, 0], [4, 0]])
    np.testing.assert_allclose(baselines.prior_factor(train.table["habitat"], y, test.table["habitat"], 3)[:, 2], 1)
    q = p[0] * H[0] / (p[0] * H[0]).sum()
    r = q * p[0]
    both = [[0, 1], [0, 1], [1, 0], [0.4, 0.6]]  # the last rules all out and keeps p
    code, twice = "reference_code", softmax(3 * np.log(p[0]) + 2 * np.log(H[0]))
    for attributes, variant, expected in (("H", "ours", [[0.8 / 1.2, 0.4 / 1.2]]), ("H+M", "ours", both),
                                          ("H", code, [r / r.sum()]), ("H+H", code, [twice])):  # fmt: skip
        found = baselines.metadata_prior(train, test, p, attributes, variant)
        np.testing.assert_allclose(found[: len(expected)], expected)
    for arguments, message in ((("X",), "'H', 'M'"), (("S",), "missing"), (("H", "paper"), "'ours', 'ref")):
        with pytest.raises(ValueError, match=message):
            baselines.metadata_prior(train, test, p, *arguments)


def test_caption_fusion_joins_by_name():
    image = pd.DataFrame([[1.0, 0.0], [0.0, 1.0]], index=["a", "b"])
    text = pd.DataFrame([[5.0, 0.0], [0.0, 0.5]], index=["b", "a"], columns=[1, 0])
    fused = baselines.fuse(image, text)
    assert fused.loc["a"].tolist() == [1.5, 0.0] and fused.loc["b"].tolist() == [0.0, 6.0]
    pd.testing.assert_frame_equal(baselines.fuse(image, text, "mean"), fused / 2)
    for bad, how, message in ((text.iloc[:1], "sum", "no text logits for 1"), (text, "max", "'sum', 'mean'"),
                              (text.rename(columns={0: 2}), "sum", "different classes"),
                              (text.rename(columns={0: "0"}), "sum", "different classes: .'0', 0"),
                              (text.iloc[[0, 0, 1]], "sum", "twice")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            baselines.fuse(image, bad, how)


@pytest.mark.parametrize("classifier", [None, make_pipeline(CountVectorizer(), MultinomialNB()),
                                        make_pipeline(CountVectorizer(), LinearSVC())])  # fmt: skip
@pytest.mark.parametrize("n_classes", [2, 3])
def test_text_logits_of_any_classifier(classifier, n_classes):
    y = np.arange(30) % n_classes
    train = pd.Series(np.array(["red cap", "grey stem", "white ring"])[y])
    asked = pd.Series({"a": "white ring", "b": "grey stem", "c": "red cap"})
    found = baselines.text_logits(train, y, asked, classifier)
    assert found.index.tolist() == list("abc") and found.columns.tolist() == list(range(n_classes))
    assert found.idxmax(axis=1)["b"] == 1 and found.idxmax(axis=1)["c"] == 0 and np.isfinite(found.to_numpy()).all()


START = Split(None, np.eye(3)[[0, 1, 1, 2]], np.array([0, 1, 1, 2]))


def days(n, X=None, **columns):
    """A test split of three classes in turn, four pictures a month, features all alike unless given."""
    table = pd.DataFrame({"eventDate": [f"2023-0{1 + i // 4}-01" for i in range(n)],
                          "observationID": np.random.default_rng(5).permutation(n),
                          "filename": [f"{i}.JPG" for i in range(n)], "category_id": np.arange(n) % 3})  # fmt: skip
    table = table.assign(**columns)
    return Split(table, np.array([[0.8, 0.6, 0.0]] * n) if X is None else X, table["category_id"].to_numpy())


def test_days_follow_each_other():
    part = days(6, eventDate=["2023-05-02", None, "2023-05-01", "2023-05-02", None, "2023-05-02"],
                year=[2023, 2023, 1, 1, np.nan, 1], month=[1, 4, 1, 1, 4, 1], day=[1, 9, 1, 1, 9, 1],
                observationID=[8, 1, 2, 7, 1, 7], filename=["a", "b", "c", "e", "f", "d"])  # fmt: skip
    found = chronological.by_day(part)
    assert found["filename"].tolist() == list("bcdeaf") and found.index.tolist() == [1, 2, 5, 3, 0, 4]
    assert found["day"].isna().tolist() == [False] * 5 + [True] and found["label"].tolist() == [1, 2, 2, 0, 0, 1]


@pytest.mark.parametrize("adapter", chronological.ADAPTERS)
def test_no_adapter_looks_ahead(adapter):
    rng = np.random.default_rng(1)
    y = np.arange(60) % 3
    start, X = Split(None, clusters(rng, y, 3), y), clusters(rng, np.arange(12) % 3, 3, noise=1.5)
    labels = np.where(np.arange(12) == 5, -1, np.arange(12) % 3)

    def answers(part, its=adapter):
        return chronological.chronological(start, part, 3, its, scale=20).set_index("filename")

    whole, order = answers(days(12, X, category_id=labels)), rng.permutation(12)
    assert whole["uses_labels"].unique().tolist() == [adapter == "online"] and len(whole) == 12
    part = days(12, X, category_id=labels)
    pd.testing.assert_frame_equal(answers(Split(part.table.iloc[order], X[order], labels[order])), whole)
    X2 = np.where(np.arange(12)[:, None] < 8, X, 1.0)
    same = answers(days(12, X2, category_id=np.where(np.arange(12) < 4, labels, 0)))
    columns = ["predicted", "confidence"]
    pd.testing.assert_frame_equal(same[columns][:8], whole[columns][:8])
    frozen, relabelled = answers(part, "none"), answers(days(12, X, category_id=1))
    assert np.allclose(frozen["confidence"][:4], whole["confidence"][:4]), "the first day is answered before any"
    assert (adapter == "none") == np.allclose(frozen["confidence"], whole["confidence"])
    assert (adapter != "online") == np.allclose(relabelled["confidence"], whole["confidence"])


def test_adapters_do_what_they_say():
    x, part = np.array([0.8, 0.6, 0.0]), days(5, eventDate=[f"2023-01-0{i + 1}" for i in range(5)], category_id=1)
    mean, moved = (2 * np.eye(3)[1] + x) / 3, 0.99 * np.eye(3)[0] + 0.01 * x
    near, far = x @ mean / np.linalg.norm(mean), x @ moved / np.linalg.norm(moved)
    for adapter, scale, cosines in (("online", 5, [0.8, near, 0]), ("drift", 5, [0.8, 0.6, 0]),
                                    ("drift", 50, [far, 0.6, 0])):  # fmt: skip
        found = chronological.chronological(START, part, 3, adapter, scale)
        assert found["confidence"][1] == pytest.approx(softmax(scale * np.array(cosines)).max(), rel=1e-9)
    online = chronological.chronological(START, part, 3, "online", 5)
    assert online["predicted"].tolist()[0] == 0 and online["predicted"].tolist()[-1] == 1
    strangers = part.table.assign(category_id=[-1, 7, -1, 7, -1])
    still = chronological.chronological(START, Split(strangers, part.X, strangers["category_id"]), 3, "online", 5)
    assert still["confidence"].nunique() == 1, "nothing is learned from a class that training lacks"
    summary = chronological.summarise(online, found, 3)
    assert summary["top1"] == (online["predicted"] == 1).mean() and summary["uses_labels"] and summary["n_images"] == 5
    assert summary["gain_top1"] == summary["top1"] and summary["gain_macro_f1"] == summary["macro_f1"] > 0
    undated = online.assign(day=[pd.NaT, *pd.to_datetime(["2023-02-01", "2023-02-28", "2023-01-05", "2023-01-06"])])
    months = chronological.by_month(undated)
    assert months["month"].tolist() == ["2023-01", "2023-02", "no date"] and months["n_images"].tolist() == [2, 2, 1]
    assert months["top1"].tolist()[2] == 0


@pytest.mark.parametrize("first_day", [1, 2])
def test_class_shares_are_those_of_em_with_forgetting(first_day):
    part = days(first_day + 1, eventDate=["2023-01-01"] * first_day + ["2023-01-02"])
    found = chronological.chronological(START, part, 3, "prior", scale=5)
    p, trained = softmax([4.0, 3.0, 0.0]), np.array([1 / 4, 1 / 2, 1 / 4])
    share = trained
    for _ in range(200):
        q = p * share / trained
        share = 0.99**first_day * 100 * trained + first_day * q / q.sum()
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
    table = segmentation.binary([("x", a, b), ("y", none, none), ("z", none, a)])
    assert table["iou"].tolist() == [8 / 24, 1, 0] and table["both_empty"].tolist() == [False, True, False]
    assert segmentation.binary([("y", none, none)], "reference_code")["iou"].tolist() == [0]
    predicted = [[("cap", a & b), ("cap", a), ("stem", b)], [("cap", none)], []]
    truth = [[("cap", a)], [("cap", b), ("ring", a)], []]
    found = segmentation.semantic(zip(predicted, truth, strict=True)).set_index("label")["iou"]
    assert found.fillna(-1).to_dict() == {"cap": 16 / 32, "gills": -1, "pores": -1, "ring": 0, "stem": 0}
    picture = np.array([[0, 127, 128, 255]], dtype=np.uint8)
    assert segmentation.foreground(picture, (2, 8)).tolist() == [[False] * 4 + [True] * 4] * 2


def test_average_precision_by_hand():
    a, b = box(0, 0, 10, 10), box(10, 10, 20, 20)
    near = box(0, 0, 10, 8)  # IoU 0.8 with a
    cap, both = [("cap", a)], [("cap", a), ("cap", b)]
    for predicted, truth, first, mean in (
        ([[("cap", a, 0.9), ("cap", b, 0.8)]], [both], 1, 1),
        ([[("cap", near, 0.9)]], [cap], 1, 0.7),  # IoU 0.8 counts at 0.50 to 0.80
        ([[("cap", a, 0.9)], []], [cap, [("cap", b)]], 51 / 101, 51 / 101),  # precision 1 at the recalls 0 to 0.5
        # the second answer to one mask is wrong
        ([[("cap", a, 0.9), ("cap", near, 0.8), ("cap", b, 0.7)]], [both], (51 + 50 * 2 / 3) / 101, None),
        # the better of two masks is taken, so that the other is free
        ([[("cap", near, 0.9), ("cap", box(0, 0, 10, 3), 0.8)]], [[("cap", box(0, 0, 10, 5)), ("cap", near)]], 1, None),
        ([[("stem", a, 0.9)]], [cap], 0, 0), ([[("cap", b, 1.0)] * 100 + [("cap", a, 0.5)]], [cap], 0, 0),
    ):  # fmt: skip
        found = segmentation.average_precision(zip(predicted, truth, strict=True))
        assert found["label"].unique().tolist() == ["cap"]
        assert found["overlap"].tolist() == [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
        assert found["ap"].iloc[0] == pytest.approx(first)
        assert mean is None or found["ap"].mean() == pytest.approx(mean)


def test_instances_of_a_part_are_one_mask_for_the_mean_iou():
    a, b = box(0, 0, 10, 8), box(10, 10, 20, 20)
    pairs = {"x": ({"cap": a | b, "fruiting_body": a | b}, [("cap", a), ("cap", b)])}
    assert segmentation.thresholded(pairs)["mIoU"] == 1


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("fungi")
    fixture.write(root)
    return drawn(root)


def drawn(root):
    """The fixture with drawn features: 16 numbers a picture, around a centre of its species."""
    tables = pd.concat([pd.read_csv(path) for path in sorted(root.rglob("*.csv"))]).drop_duplicates("filename")
    species = tables["species"].str.rpartition("species")[2].astype(int)
    kinds = dict(zip(tables["filename"].str.lower(), species, strict=True))

    class Drawn(runs.SiblingRun):
        def features(self, files, folder="", img_size=224):
            y = np.array([kinds[name.rpartition("/")[2].lower()] for name in files])
            return pd.DataFrame(clusters(np.random.default_rng(0), y, 20, noise=0.3), index=files)

    return Study(Drawn("fungitastic", "smoke", "efficientnet_lite0", str(root), 0))


def test_study_joins_closed_rows_to_the_open_set(study):
    closed, whole = study.split("all", "test"), study.split("all", "test", "open")
    assert len(closed.y) == 10 and (whole.y == -1).sum() == 4 and (closed.X == whole.X[:10]).all()
    assert study.probe() is study.probe() and study.probe().updates_ == 2000 and study.probe(updates=0).updates_ == 30
    with pytest.raises(ValueError, match="'1-NN', 'centroid', 'linear'"):
        study.few_shot("5-NN")


def test_few_shot_prepares_training_and_questions_alike(study):
    train, val = study.split("FewShot", "train"), study.split("FewShot", "val")
    for as_bytes, prepare in ((False, vectors.unit), (True, baselines.as_bytes)):
        means = vectors.class_means(prepare(train.X), train.y, 6)
        expected = vectors.unit(prepare(val.X)) @ vectors.unit(means).T
        np.testing.assert_allclose(study.few_shot("centroid", "val", quantise_uint8=as_bytes), expected)
    probe = baselines.LinearProbe(min_updates=2000).fit(vectors.unit(train.X), train.y, 6)
    np.testing.assert_allclose(study.few_shot("linear", "val"), probe.logits(vectors.unit(val.X)))


def test_the_open_threshold_is_chosen_on_validation(study, monkeypatch):
    asked, val = [], study.split("all", "val", "open")
    monkeypatch.setattr(metrics, "choose_threshold", lambda *scores: asked.append(scores) or 0.0)
    found = study.open_set()
    assert found["score"].tolist() == ["MSP", "MLS", "NM"] and found["auc"].between(0, 1).all()
    for score, (known, novel) in zip(study.open_scores("val").values(), asked, strict=True):
        assert (known == score[val.y >= 0]).all() and (novel == score[val.y < 0]).all()


def test_every_task_has_its_line(study):
    table = evaluate(study.run)
    assert list(table.columns) == ["task", "metric", "variant", "value", "floor", "n_images"]
    lines = {"closed set": 4, "few-shot": 6, "open set": 6, "chronological": 4, "costs": 4, "captions": 2,
             "metadata": 2, "observations": 2, "segmentation": 3}  # fmt: skip
    assert list(table.groupby("task", sort=False).size().items()) == list(lines.items())
    assert table["value"].notna().all() and not table.duplicated(["task", "metric", "variant"]).any()
    assert set(table["variant"]) == {"ours", "paper", "reference_code"}
    value, low = (table.set_index(["task", "metric", "variant"])[name] for name in ("value", "floor"))
    assert value["closed set", "Top-1, linear probe, test", "ours"] == 1
    assert value["closed set", "macro-F1 all, linear probe, test", "ours"] == pytest.approx(4 / 5)
    assert low["costs", "poison cost, likeliest", "paper"] == 0.4, "all poisonous: 4 of 10 are not, at 1 each"
    assert low["costs", "user loss, least expected", "ours"] == pytest.approx(1.0)
    assert low["few-shot", "Top-1, 1-NN", "paper"] == pytest.approx(1 / 3)
    assert (table["metric"].str.contains("uses labels") == (table["metric"] == "Top-1, online (uses labels)")).all()
    assert 0.9 < value["segmentation", "binary IoU, threshold", "ours"] < 1


FOLDER = "metadata/FungiTastic/FungiTastic-{}.csv"


def relabel(root, names, change):
    for name in names:
        table = pd.read_csv(root / FOLDER.format(name))
        table.assign(category_id=change(table["category_id"])).to_csv(root / FOLDER.format(name), index=False)


@pytest.fixture
def root(study, tmp_path):
    return shutil.copytree(study.run.root, tmp_path / "fungi")


def test_a_class_that_training_lacks_is_an_error_and_never_dropped(root):
    names = ("ClosedSet-Val", "ClosedSet-Test", "OpenSet-Val", "OpenSet-Test")
    relabel(root, names, lambda labels: labels.replace(2, 9))
    its = drawn(root)
    assert (its.split("all", "test", "open").y == -1).sum() == 6
    value = evaluate(its.run).set_index(["task", "metric"])["value"]
    for task, name in (("closed set", "linear probe, test"), ("captions", "image + text")):
        assert value[task, f"Top-1, {name}"] <= 0.8
    assert value["costs", "user loss, likeliest"] >= 0.2


@pytest.mark.parametrize(("name", "label", "message"), [
    ("ClosedSet-Test", 3, "category_id 3 in .*ClosedSet-Test.csv but 0 in .*OpenSet-Test.csv"),
    ("OpenSet-Test", -1, "category_id 0 in .*ClosedSet-Test.csv but -1 in .*OpenSet-Test.csv"),
    ("ClosedSet-Val", 9, "category_id 9 in .*ClosedSet-Val.csv but 0 in"),
])  # fmt: skip
def test_tables_that_contradict_each_other_are_refused(root, name, label, message):
    relabel(root, [name], lambda labels: [label, *labels[1:]])
    with pytest.raises(ValueError, match=message):
        drawn(root).split("all", "test")


def test_tables_that_teach_nothing_are_refused(root):
    shutil.copy(root / FOLDER.format("ClosedSet-Test"), root / FOLDER.format("OpenSet-Test"))
    with pytest.raises(ValueError, match="OpenSet-Test.csv: .* all 10 here are known"):
        drawn(root).open_set()
    relabel(root, ["ClosedSet-Val", "OpenSet-Val"], lambda labels: 9)
    with pytest.raises(ValueError, match="ClosedSet-Val.csv: no image of a training class"):
        drawn(root).calibrated()
    pd.read_csv(root / FOLDER.format("OpenSet-Test"))[1:].to_csv(root / FOLDER.format("OpenSet-Test"), index=False)
    with pytest.raises(ValueError, match="category_id 0 in .*ClosedSet-Test.csv but <NA> in .* every closed row"):
        drawn(root).calibrated()


def test_far_from_every_class_is_unknown():
    """Against scipy's Mahalanobis distance, pair by pair; SimpleShot's classes have tests of their own."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 5)) + np.repeat(4 * np.eye(4, 5), 10, axis=0), np.repeat(np.arange(4), 10)
    queries = np.vstack([X[:20], rng.normal(size=(20, 5))])
    train, asked = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, queries))
    means = np.array([train[y == c].mean(axis=0) for c in range(4)])
    precision = LedoitWolf(assume_centered=True).fit(train - means[y]).precision_
    near = [[min(mahalanobis(row, mean, precision) for mean in means) for row in rows] for rows in (train, asked)]
    answers = fungiclef.class_or_unknown(X, y, queries)
    assert ((answers == -1) == (near[1] > np.quantile(near[0], 0.95))).all() and 0 < (answers == -1).mean() < 1
    kept = answers != -1
    assert (answers[kept] == simpleshot(X, y, queries)[kept]).all()
    assert (fungiclef.class_or_unknown(X, y, X, share=1.0) != -1).all(), "no training image lies beyond the farthest"
    assert fungiclef.class_or_unknown(X, y.astype(np.uint8), queries).dtype == np.int64 and -1 in answers
    with pytest.raises(ValueError, match="share must be a number >= 0 and <= 1"):
        fungiclef.class_or_unknown(X, y, X, share=95)


def test_what_is_far_shows_where_classes_are_narrow():
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(10, 64)), np.repeat(np.arange(10), 20)
    X, far = (centres[y] + noise * rng.normal(size=(200, 64)) for noise in (1e-8, 5e-8))
    assert (fungiclef.class_or_unknown(X, y, far) == -1).all()
    assert (fungiclef.class_or_unknown(X, y, X, share=1.0) == y).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("X", "y", "message"), [
    (np.eye(3), [0, 1, 2], "two different images"), (np.eye(3)[[0, 1, 0, 1]], [0, 1, 0, 1], "two different images"),
    (np.eye(3)[:1], [0], "two different images"), (np.eye(3), [0, 1, -1], r"0\.\.inf, got -1"),
    (np.eye(3), [0, 1, np.nan], "found nan"), (np.eye(3), list("abc"), "found .*'a', 'b'"),
    (np.eye(3), [0, 1], "2 for 3 rows"), (np.eye(3), [], "at least one"),
    (np.eye(3)[:, :2], [0, 1, 1], "X has 3 features; expected the 2"),
])  # fmt: skip
def test_rejection_needs_sound_labels_and_a_spread(X, y, message):
    with pytest.raises(ValueError, match=message):
        fungiclef.class_or_unknown(X, y, -np.eye(3))


def test_the_baseline_answers_each_open_observation_once(study):
    table, answers = study.class_or_unknown()
    assert len(answers) == table["observationID"].nunique() == len(table)
    assert (table["category_id"] == -1).any() and set(answers) <= {-1, *range(study.n_classes())}
