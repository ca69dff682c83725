"""Each metric against hand-worked cases, an independent reference, and the all-present values of the paper."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import f1_score, roc_auc_score, roc_curve

from phoebi_lib.catalogue import COMBINATIONS, label_matrix, order
from phoebi_lib.metrics import (
    aupr,
    auroc,
    cluster_accuracy,
    cluster_scores,
    exact_match,
    fpr_at_tpr,
    macro_f1,
    per_class_auroc,
    per_class_f1,
    per_sample_f1,
    sample_f1,
)
from phoebi_lib.splits import lco_split, partition, published_manifest, random_split

TRUE = [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
PRED = [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]

bits = st.integers(0, 1)
shapes = st.tuples(st.integers(1, 12), st.integers(1, 6))
pairs = shapes.flatmap(
    lambda shape: st.tuples(hnp.arrays(int, shape, elements=bits), hnp.arrays(int, shape, elements=bits))
)
# few distinct scores, so that ties are common
scored = st.integers(2, 25).flatmap(
    lambda n: st.tuples(
        hnp.arrays(int, n, elements=bits), hnp.arrays(float, n, elements=st.sampled_from([0, 0.25, 0.5, 1]))
    )
)


def test_hand_worked_f1():
    # images: 2/3, both empty -> 1, wrong -> 0, invented -> 0
    assert sample_f1(TRUE, PRED).tolist() == pytest.approx([2 / 3, 1, 0, 0])
    assert per_sample_f1(TRUE, PRED) == pytest.approx(5 / 12)
    # classes: tp 1 fp 1 fn 0; fn 1; fn 1; fp 1
    assert per_class_f1(TRUE, PRED).tolist() == pytest.approx([2 / 3, 0, 0, 0])
    assert macro_f1(TRUE, PRED) == pytest.approx(1 / 6)
    assert exact_match(TRUE, PRED) == 0.25
    assert all(
        type(value) is float for value in (per_sample_f1(TRUE, PRED), macro_f1(TRUE, PRED), exact_match(TRUE, PRED))
    )


def test_empty_class_scores_zero_and_empty_image_one():
    assert per_class_f1([[1, 0]], [[1, 0]]).tolist() == [1, 0]
    assert macro_f1([[1, 0]], [[1, 0]]) == 0.5
    assert per_sample_f1([[0, 0]], [[0, 0]]) == 1.0


@settings(max_examples=60, deadline=None)
@given(pairs)
def test_f1_against_scikit_learn(pair):
    true, pred = pair
    each = [
        f1_score(t, p, zero_division=1.0) if not (t.any() or p.any()) else f1_score(t, p, zero_division=0.0)
        for t, p in zip(true, pred, strict=True)
    ]
    assert sample_f1(true, pred) == pytest.approx(each)
    assert per_class_f1(true, pred) == pytest.approx(
        [f1_score(true[:, k], pred[:, k], zero_division=0.0) for k in range(true.shape[1])]
    )
    assert macro_f1(true, pred) == pytest.approx(np.mean(per_class_f1(true, pred)))
    assert exact_match(true, pred) == pytest.approx(
        np.mean([list(t) == list(p) for t, p in zip(true, pred, strict=True)])
    )
    assert per_sample_f1(true, true) == 1.0 and exact_match(true, true) == 1.0


def test_all_present_values_of_the_paper():
    manifest = published_manifest()
    assert len(manifest) == 120_000
    labels = label_matrix(manifest["combination"])

    def constant(rows):
        ones = np.ones_like(labels[rows])
        return per_sample_f1(labels[rows], ones), macro_f1(labels[rows], ones), exact_match(labels[rows], ones)

    assert constant(random_split(manifest)["test"]) == pytest.approx((0.5879, 0.6067, 0.0250), abs=5e-5)
    seed = lco_split(manifest, 1337)
    assert constant(seed["val"])[0] == pytest.approx(0.57149, abs=5e-6)
    assert constant(seed["val"])[1:] == pytest.approx((0.5857, 0), abs=5e-5)
    assert constant(seed["test"])[:2] == pytest.approx((0.65397, 0.6742), abs=5e-5)
    assert constant(seed["test"])[2] == pytest.approx(1 / 9)
    pooled = np.concatenate([seed["test"], *(lco_split(manifest, s)["test"] for s in (1338, 1339))])
    assert constant(pooled) == pytest.approx((0.65397, 0.6779, 0.1111), abs=5e-5)
    folds = [partition(manifest, f"dev-{fold}", grouping="image")["test"] for fold in range(5)]
    assert constant(np.concatenate(folds)) == pytest.approx((0.6231, 0.6293, 0), abs=5e-5)


def test_all_present_depends_on_order_only():
    labels = label_matrix(COMBINATIONS)
    expected = [2 * order(name) / (order(name) + 6) for name in COMBINATIONS]
    assert sample_f1(labels, np.ones_like(labels)).tolist() == pytest.approx(expected)
    assert sample_f1([[1, 0, 0, 0, 0, 0]], np.ones((1, 6)))[0] == pytest.approx(2 / 7)  # printed 0.29
    quintet = np.ones((1, 6), dtype=int)
    quintet[0, 5] = 0
    assert round(per_sample_f1(quintet, np.ones((1, 6))), 2) == 0.91


def test_hand_worked_rankings():
    true, score = [0, 0, 1, 1, 0], [0.1, 0.4, 0.4, 0.8, 0.2]
    # six pairs: (0.4; 0.1 0.4 0.2) = 1 + 1/2 + 1, (0.8; ...) = 3
    assert auroc(true, score) == pytest.approx(5.5 / 6)
    # 0.8: R 1/2 P 1; 0.4: R 1 P 2/3
    assert aupr(true, score) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert fpr_at_tpr(true, score) == pytest.approx(1 / 3)
    assert fpr_at_tpr(true, score, tpr=0.5) == 0.0
    assert auroc([0, 1], [1, 0]) == 0.0 and auroc([0, 1], [1, 1]) == 0.5


def test_tpr_is_reached_not_exceeded():
    # 20 positives: the nineteenth reaches exactly 0.95, the negative between it and the twentieth must not count
    score = [*np.arange(30, 11, -1.0), 5.0, 1.0]
    true = [1] * 19 + [0, 1]
    assert fpr_at_tpr(true, score, tpr=0.95) == 0.0
    assert fpr_at_tpr(true, score, tpr=0.96) == 1.0


@settings(max_examples=80, deadline=None)
@given(scored)
def test_rankings_against_references(case):
    true, score = case
    if true.min() == true.max():
        assert np.isnan(auroc(true, score)) and np.isnan(fpr_at_tpr(true, score))
        return
    wins = [(p > n) + 0.5 * (p == n) for p in score[true == 1] for n in score[true == 0]]
    assert auroc(true, score) == pytest.approx(np.mean(wins)) == pytest.approx(roc_auc_score(true, score))
    ladder = sorted(set(score), reverse=True)
    recall = [((score >= t) & (true == 1)).sum() / true.sum() for t in ladder]
    precision = [((score >= t) & (true == 1)).sum() / (score >= t).sum() for t in ladder]
    assert aupr(true, score) == pytest.approx(np.sum(np.diff([0, *recall]) * precision))
    false = [((score >= t) & (true == 0)).sum() / (true == 0).sum() for t in ladder]
    for rate in (0.5, 0.8, 0.95, 1.0):
        assert fpr_at_tpr(true, score, rate) == pytest.approx(
            next(f for f, r in zip(false, recall, strict=True) if r >= rate)
        )


def test_many_distinct_scores_equal_the_thinned_curve():
    rng = np.random.default_rng(3)
    true, score = rng.integers(0, 2, 500), rng.normal(size=500)
    false_rate, true_rate, _ = roc_curve(true, score)
    assert fpr_at_tpr(true, score) == pytest.approx(false_rate[true_rate >= 0.95][0])


def test_mean_auroc_skips_undefined_classes():
    true = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1]])
    score = np.array([[0.9, 0.1, 0.2], [0.1, 0.2, 0.3], [0.8, 0.3, 0.4]])
    each = per_class_auroc(true, score)
    assert each[0] == 1.0 and np.isnan(each[1]) and each[2] == 1.0
    assert auroc(true, score) == 1.0
    assert np.isnan(auroc([[1, 0]], [[0.5, 0.5]]))
    assert np.isnan(aupr([0, 0], [1, 2])) and aupr([1, 1], [1, 2]) == 1.0


def test_cluster_accuracy_by_hand():
    # six images with the species: two went to a known one, three to prototype 0, one to 1; the last image has none
    true, assigned = [1, 1, 1, 1, 1, 1, 0], [-1, -1, 0, 0, 0, 1, 4]
    scores = cluster_scores(true, assigned)
    assert scores == pytest.approx({"recall": 4 / 6, "purity": 3 / 4, "accuracy": 0.5})
    assert cluster_accuracy(true, assigned) == pytest.approx(0.5)
    assert cluster_accuracy([1, 1], [-1, -1]) == 0.0 and np.isnan(cluster_scores([1], [-1])["purity"])
    assert np.isnan(cluster_accuracy([0, 0], [1, 1]))


@pytest.mark.parametrize("metric", [sample_f1, per_sample_f1, per_class_f1, macro_f1, exact_match])
def test_bad_predictions(metric):
    with pytest.raises(ValueError, match=r"shape \(N, K\)"):
        metric([[1, 0]], [[1, 0, 0]])
    with pytest.raises(ValueError, match=r"shape \(N, K\)"):
        metric([1, 0], [1, 0])
    with pytest.raises(ValueError, match="at least one"):
        metric(np.zeros((0, 6)), np.zeros((0, 6)))
    with pytest.raises(ValueError, match="y_pred must hold only 0 and 1"):
        metric([[1, 0]], [[0.7, 0.2]])
    with pytest.raises(ValueError, match="y_true must hold only 0 and 1"):
        metric([[2, 0]], [[1, 0]])
    assert np.allclose(metric([[True, False]], [[1.0, 0.0]]), metric([[1, 0]], [[1, 0]]))


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_tpr])
def test_bad_scores(metric):
    with pytest.raises(ValueError, match="one shape"):
        metric([1, 0], [0.5])
    with pytest.raises(ValueError, match="at least one"):
        metric([], [])
    with pytest.raises(ValueError, match="finite"):
        metric([1, 0], [0.5, np.nan])
    with pytest.raises(ValueError, match="only 0 and 1"):
        metric([0.5, 0], [0.5, 0.1])


def test_other_bad_arguments():
    for metric in (aupr, fpr_at_tpr):
        with pytest.raises(ValueError, match="one class"):
            metric([[1, 0]], [[0.5, 0.1]])
    for rate in (0, 1.5):
        with pytest.raises(ValueError, match="tpr"):
            fpr_at_tpr([1, 0], [1, 0], rate)
    with pytest.raises(ValueError, match=r"shape \(N, K\)"):
        per_class_auroc([1, 0], [1, 0])
    with pytest.raises(ValueError, match="integers"):
        cluster_accuracy([1], [0.5])
    with pytest.raises(ValueError, match="integers"):
        cluster_accuracy([1], [-2])
    with pytest.raises(ValueError, match="both have shape"):
        cluster_accuracy([1, 0], [1])


def test_labels_splits_and_metrics_need_no_torch():
    modules = "catalogue, splits, datasets, metrics, intervals"
    code = f"import sys\nfrom phoebi_lib import {modules}\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
