"""One contract for every decoder and baseline (design section 4); scikit-learn's own check does not fit 3-D input."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from phoebi_lib.baselines import AllPresent, AttentionMIL, LinearProbe
from phoebi_lib.decoders import ChannelGroup, Decoder, ProtoMatch, SimplexUnmix

ESTIMATORS = {
    "AllPresent": AllPresent(),
    "ProtoMatch": ProtoMatch(),
    "SimplexUnmix": SimplexUnmix(recipe="random", epochs=2),
    "SimplexUnmix-softmax": SimplexUnmix(projection="softmax", updates=3),
    "ChannelGroup": ChannelGroup(epochs=3, batch_size=64),
    "ChannelGroup-sigmoid": ChannelGroup(epochs=3, aggregation="sigmoid"),
    "LinearProbe": LinearProbe(learning_rates=(0.3, 1.0), epochs=3, batch_size=64),
    "AttentionMIL": AttentionMIL(hidden=8, epochs=3, batch_size=16),
}


@pytest.fixture(params=ESTIMATORS)
def estimator(request):
    return clone(ESTIMATORS[request.param])


@lru_cache
def made():
    rng = np.random.default_rng(1)
    Y = (rng.random((70, 5)) < 0.4).astype(int)
    Y[:10] = np.repeat(np.eye(5, dtype=int), 2, axis=0)
    Y[Y.sum(axis=1) == 0, 0] = 1
    X = (Y @ rng.normal(size=(5, 17)))[:, None] + rng.normal(size=(70, 4, 17))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    return X.astype(np.float32), Y


@pytest.fixture(scope="module")
def data():
    return made()


def fit(estimator, X, Y):
    """Fit with the images of ``data`` for validation, which some need and the others ignore."""
    return estimator.fit(X, Y, validation=made())


def test_every_estimator_is_under_the_contract():
    def leaves(kind):
        # what a study tries out is not among the estimators that the library offers
        offered = ("phoebi_lib.decoders", "phoebi_lib.baselines")
        children = [child for child in kind.__subclasses__() if child.__module__.startswith(offered)]
        return {kind} if not children else set().union(*map(leaves, children))

    assert {type(estimator) for estimator in ESTIMATORS.values()} == leaves(Decoder)


def test_constructor_only_stores(estimator):
    assert isinstance(estimator, BaseEstimator)
    assert {name: value for name, value in vars(estimator).items()} == estimator.get_params()
    assert "random_state" in estimator.get_params()
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.set_params(random_state=11).random_state == 11
    # a bad value is stored too, and refused by fit
    assert type(estimator)(random_state=-1).random_state == -1


@pytest.mark.parametrize(
    "bad",
    [
        AllPresent(random_state=-1),
        ProtoMatch(random_state=1.5),
        ProtoMatch(quantile=-0.1),
        ProtoMatch(quantile=1.5),
        SimplexUnmix(recipe="loco"),
        SimplexUnmix(projection="relu"),
        SimplexUnmix(tau=0),
        SimplexUnmix(epochs=-1),
        SimplexUnmix(updates=2.5),
        SimplexUnmix(learning_rate=0),
        ChannelGroup(aggregation="mean"),
        ChannelGroup(dropout=1.0),
        ChannelGroup(batch_size=0),
        ChannelGroup(epochs=True),
        ChannelGroup(weight_decay=-1),
        LinearProbe(learning_rates=()),
        LinearProbe(learning_rates=0.1),
        LinearProbe(learning_rates=(0.1, 0)),
        LinearProbe(learning_rates=(0.1, 0.1)),
        LinearProbe(momentum=0),
        LinearProbe(epochs=0),
        AttentionMIL(hidden=0),
        AttentionMIL(epochs=0),
        AttentionMIL(updates=0),
        ProtoMatch(fallback="foo"),
        ProtoMatch(fallback=np.nan),
        SimplexUnmix(fallback=np.inf),
        SimplexUnmix(fallback=None),
        ChannelGroup(fallback=True),
        ChannelGroup(fallback=["never"]),
    ],
    ids=repr,
)
def test_parameters_out_of_range_are_refused_by_name(bad, data):
    changed = [name for name, value in bad.get_params().items() if value != type(bad)().get_params()[name]]
    with pytest.raises(ValueError, match=changed[0]):
        bad.fit(*data)


@pytest.mark.parametrize("fallback", ["never", "max+1", 0.05, 1, np.float32(0.5)])
def test_known_fallbacks_are_accepted(fallback, data):
    for kind in (ProtoMatch(), SimplexUnmix(epochs=0), ChannelGroup(epochs=0)):
        assert kind.set_params(fallback=fallback).fit(*data).calibrate(*data).predict(data[0]).any()


def test_order_of_calls_is_enforced(estimator, data):
    X, Y = data
    calibrate = lambda X: estimator.calibrate(X, Y)  # noqa: E731
    for call in (estimator.decision_function, estimator.tile_scores, estimator.predict, calibrate):
        with pytest.raises(NotFittedError, match="call fit"):
            call(X)
    assert fit(estimator, X, Y) is estimator
    with pytest.raises(NotFittedError, match="call calibrate"):
        estimator.predict(X)
    assert estimator.calibrate(X, Y) is estimator
    assert estimator.thresholds_.shape == (5,)
    assert estimator.thresholds_.dtype == np.float64
    predicted = estimator.predict(X)
    assert predicted.shape == Y.shape
    assert set(np.unique(predicted)) <= {0, 1}
    assert np.array_equal(predicted, estimator.decision_function(X) > estimator.thresholds_)
    fit(estimator, X, Y)
    with pytest.raises(NotFittedError, match="call calibrate"):
        estimator.predict(X)


def test_failed_fit_forgets_the_earlier_one(estimator, data):
    X, Y = data
    fit(estimator, X, Y).calibrate(X, Y)
    with pytest.raises(ValueError, match="0 and 1"):
        fit(estimator, X, 2 * Y)
    with pytest.raises(NotFittedError):
        estimator.decision_function(X)


def test_a_device_that_is_not_here_is_named(estimator, data):
    if "device" in estimator.get_params():
        with pytest.raises(ValueError, match="device='tpu9': no such torch device here"):
            clone(estimator).set_params(device="tpu9").fit(*data, validation=data)


def test_learned_names_end_in_an_underscore_and_parameters_stay(estimator, data):
    before = estimator.get_params()
    fit(estimator, *data).calibrate(*data)
    assert all(name.endswith("_") for name in set(vars(estimator)) - set(before))
    assert estimator.get_params() == before


def test_validation_is_required_or_ignored(estimator, data):
    X, Y = data
    if isinstance(estimator, (AttentionMIL, LinearProbe)):
        message = rf"{type(estimator).__name__} chooses .*fit\(X, Y, validation=\(X_val, Y_val\)\).*found none"
        with pytest.raises(ValueError, match=message):
            estimator.fit(X, Y)
        return
    alone = clone(estimator).fit(X, Y).decision_function(X)
    assert np.array_equal(alone, estimator.fit(X, Y, validation=(X[:3], Y[:3])).decision_function(X))


def test_twice_the_same_and_no_global_randomness(estimator, data):
    X, Y = data
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = fit(clone(estimator), X, Y).decision_function(X)
    assert torch.equal(torch_before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(99)
    assert np.array_equal(first, fit(estimator, X, Y).decision_function(X))


def test_seed_decides_the_trained_ones(data):
    X, Y = data
    for name in ("SimplexUnmix", "ChannelGroup", "LinearProbe", "AttentionMIL"):
        kinds = (clone(ESTIMATORS[name]).set_params(random_state=s) for s in (0, 1))
        one, two = (fit(kind, X, Y).decision_function(X) for kind in kinds)
        assert not np.array_equal(one, two)


def test_tile_order_does_not_matter(estimator, data):
    X, Y = data
    fit(estimator, X, Y)
    assert estimator.decision_function(X[:, ::-1]) == pytest.approx(estimator.decision_function(X), abs=1e-12)


def test_image_order_and_company_do_not_matter(estimator, data):
    X, Y = data
    scores = fit(estimator, X, Y).decision_function(X)
    assert estimator.decision_function(X[::-1]) == pytest.approx(scores[::-1], abs=1e-12)
    alone = np.concatenate([estimator.decision_function(X[i : i + 1]) for i in range(len(X))])
    assert alone == pytest.approx(scores, abs=1e-12)
    assert estimator.aggregate(estimator.tile_scores(X)) == pytest.approx(scores, abs=1e-12)
    assert estimator.decision_function(X[:, :1]).shape == (70, 5)


def test_blocks_do_not_matter(estimator, data, monkeypatch):
    X, Y = data
    scores = fit(clone(estimator), X, Y).decision_function(X)
    monkeypatch.setattr("phoebi_lib.decoders.checks._VALUES_PER_BLOCK", 3 * 4 * 17)
    assert fit(estimator, X, Y).decision_function(X) == pytest.approx(scores, abs=1e-6)


def test_input_is_left_alone_and_other_float_types_do(estimator, data):
    X, Y = data
    X_before, Y_before = X.copy(), Y.copy()
    fit(estimator, X, Y).calibrate(X, Y).predict(X)
    assert np.array_equal(X, X_before)
    assert np.array_equal(Y, Y_before)
    scores = estimator.decision_function(X)
    assert fit(clone(estimator), X.astype(np.float64), Y.astype(bool)).decision_function(X) == pytest.approx(scores)


def spoiled(X, value):
    X = X.copy()
    X[41, 2, 3] = value
    return X


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda X: X[:, 0], ValueError, r"shape \(N, T, D\).*found shape \(70, 17\)"),
        (lambda X: X[:0], ValueError, "empty axis"),
        (lambda X: np.ones(X.shape, dtype=int), TypeError, "floating-point"),
        (lambda X: spoiled(X, np.nan), ValueError, r"X\[41, 2\] is not finite \(found nan\)"),
        (lambda X: spoiled(X, -np.inf), ValueError, r"X\[41, 2\] is not finite \(found -inf\)"),
        (lambda X: spoiled(X, 3.0), ValueError, r"unit norm.*X\[41, 2\] has norm 3"),
        (lambda X: 1.002 * X, ValueError, r"unit norm within 0.001"),
        (lambda X: 0 * X, ValueError, r"X\[0, 0\] has norm 0"),
    ],
)
def test_bad_features_are_named(estimator, data, change, error, message):
    X, Y = data
    with pytest.raises(error, match=message):
        fit(clone(estimator), change(X), Y if len(change(X)) else Y[:0])
    fit(estimator, X, Y)
    with pytest.raises(error, match=message):
        estimator.decision_function(change(X))


def test_small_deviation_from_unit_norm_is_accepted(estimator, data):
    X, Y = data
    assert fit(estimator, 1.0005 * X, Y).decision_function(0.9995 * X).shape == Y.shape


def test_features_of_another_width_are_refused(estimator, data):
    X, Y = data
    wide = np.zeros((2, 4, 18), dtype=np.float32)
    wide[..., 0] = 1
    with pytest.raises(ValueError, match="18 features per tile.*fitted with 17"):
        fit(estimator, X, Y).decision_function(wide)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Y: Y[:, 0], r"shape \(N, K\)"),
        (lambda Y: Y[:-1], "70 images but Y holds 69"),
        (lambda Y: Y * 2, "0 and 1 only"),
        (lambda Y: Y - 0.5, "0 and 1 only"),
        (lambda Y: np.where(Y == 1, np.nan, 0.0), "0 and 1 only.*nan"),
        (lambda Y: Y.astype(str), "0 and 1 only"),
    ],
)
def test_bad_labels_are_named(estimator, data, change, message):
    X, Y = data
    with pytest.raises(ValueError, match=message):
        fit(clone(estimator), X, change(Y))
    fit(estimator, X, Y)
    with pytest.raises(ValueError, match=message):
        estimator.calibrate(X, change(Y))
    with pytest.raises(ValueError, match="4 classes.*fitted with 5"):
        estimator.calibrate(X, Y[:, :4])


def test_labels_without_any_positive_are_refused(estimator, data):
    X, Y = data
    with pytest.raises(ValueError, match=f"{type(estimator).__name__}: .*no image holds any class"):
        fit(estimator, X, 0 * Y)
    with pytest.raises(NotFittedError):
        estimator.decision_function(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: np.where(np.arange(5) == 3, np.nan, s), r"finite, but scores\[0, 3\] is nan"),
        (lambda s: np.where(np.arange(5) == 3, -np.inf, s), r"finite, but scores\[0, 3\] is -inf"),
        (lambda s: s[:, :1], r"shape \(N, 5\).*found shape \(70, 1\)"),
        (lambda s: s[:, :4], r"found shape \(70, 4\)"),
        (lambda s: np.hstack([s, s]), r"found shape \(70, 10\)"),
        (lambda s: s[0], r"found shape \(5,\)"),
        (lambda s: s[None], r"found shape \(1, 70, 5\)"),
        (lambda s: s[:0], r"found shape \(0, 5\)"),
    ],
)
def test_bad_scores_are_named(estimator, data, change, message):
    X, Y = data
    scores = fit(estimator, X, Y).decision_function(X)
    with pytest.raises(ValueError, match=message):
        estimator.calibrate_scores(change(scores), Y)
    assert not hasattr(estimator, "thresholds_")
    predicted = estimator.calibrate_scores(scores, Y).predict_scores(scores)
    with pytest.raises(ValueError, match=message):
        estimator.predict_scores(change(scores))
    assert np.array_equal(estimator.predict_scores(scores.tolist()), predicted)


def test_scores_at_hand_come_with_sound_labels_and_a_fitted_estimator(estimator, data):
    X, Y = data
    for call in (lambda: estimator.calibrate_scores(0.0 * Y, Y), lambda: estimator.predict_scores(0.0 * Y)):
        with pytest.raises(NotFittedError, match="call fit"):
            call()
    scores = fit(estimator, X, Y).decision_function(X)
    with pytest.raises(ValueError, match="0 and 1 only"):
        estimator.calibrate_scores(scores, 2 * Y)
    with pytest.raises(ValueError, match="4 classes.*fitted with 5"):
        estimator.calibrate_scores(scores, Y[:, :4])


@pytest.mark.filterwarnings("ignore:class . has no positive")
def test_class_in_no_training_image_is_warned_about_and_never_predicted(estimator, data):
    X, Y = data
    missing = Y.copy()
    missing[:, 3] = 0
    keep = missing.any(axis=1)
    if isinstance(estimator, AllPresent):
        assert fit(estimator, X[keep], missing[keep]).calibrate(X, Y).predict(X).all()
        return
    with pytest.warns(UserWarning, match="class 3 is in no training image"):
        fit(estimator, X[keep], missing[keep])
    # the class has positives to calibrate on, and still is not predicted
    assert not estimator.calibrate(X, Y).predict(X)[:, 3].any()
    assert estimator.predict(X)[:, [0, 1, 2, 4]].any(axis=0).all()
    assert np.isfinite(estimator.decision_function(X)).all()


def test_class_without_validation_positives_is_warned_about_and_never_predicted(estimator, data):
    X, Y = data
    if isinstance(estimator, AllPresent):
        return
    with pytest.warns(UserWarning, match="class 2 has no positive"):
        fit(estimator, X, Y).calibrate(X[Y[:, 2] == 0], Y[Y[:, 2] == 0])
    assert not estimator.predict(X)[:, 2].any()
