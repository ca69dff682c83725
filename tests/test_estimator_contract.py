"""One contract for every decoder and baseline (design section 4); scikit-learn's own check does not fit 3-D input."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from phoebi_lib.baselines import AllPresent
from phoebi_lib.decoders import ChannelGroup, Decoder, ProtoMatch, SimplexUnmix
from phoebi_lib.workspace import file_sha256

ESTIMATORS = {
    "AllPresent": AllPresent(),
    "ProtoMatch": ProtoMatch(),
    "SimplexUnmix": SimplexUnmix(recipe="random", epochs=2),
    "SimplexUnmix-softmax": SimplexUnmix(projection="softmax", updates=3),
    "ChannelGroup": ChannelGroup(epochs=3, batch_size=64),
    "ChannelGroup-sigmoid": ChannelGroup(epochs=3, aggregation="sigmoid"),
}


@pytest.fixture(params=ESTIMATORS)
def estimator(request):
    return clone(ESTIMATORS[request.param])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    Y = (rng.random((70, 5)) < 0.4).astype(int)
    Y[:10] = np.repeat(np.eye(5, dtype=int), 2, axis=0)
    Y[Y.sum(axis=1) == 0, 0] = 1
    X = (Y @ rng.normal(size=(5, 17)))[:, None] + rng.normal(size=(70, 4, 17))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    return X.astype(np.float32), Y


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
    assert estimator.fit(X, Y) is estimator
    with pytest.raises(NotFittedError, match="call calibrate"):
        estimator.predict(X)
    assert estimator.calibrate(X, Y) is estimator
    assert estimator.thresholds_.shape == (5,)
    assert estimator.thresholds_.dtype == np.float64
    predicted = estimator.predict(X)
    assert predicted.shape == Y.shape
    assert set(np.unique(predicted)) <= {0, 1}
    assert np.array_equal(predicted, estimator.decision_function(X) > estimator.thresholds_)
    estimator.fit(X, Y)
    with pytest.raises(NotFittedError, match="call calibrate"):
        estimator.predict(X)


def test_failed_fit_forgets_the_earlier_one(estimator, data):
    X, Y = data
    estimator.fit(X, Y).calibrate(X, Y)
    with pytest.raises(ValueError, match="0 and 1"):
        estimator.fit(X, 2 * Y)
    with pytest.raises(NotFittedError):
        estimator.decision_function(X)


def test_learned_names_end_in_an_underscore_and_parameters_stay(estimator, data):
    before = estimator.get_params()
    estimator.fit(*data).calibrate(*data)
    assert all(name.endswith("_") for name in set(vars(estimator)) - set(before))
    assert estimator.get_params() == before


def test_validation_is_ignored(estimator, data):
    X, Y = data
    alone = clone(estimator).fit(X, Y).decision_function(X)
    assert np.array_equal(alone, estimator.fit(X, Y, validation=(X[:3], Y[:3])).decision_function(X))


def test_twice_the_same_and_no_global_randomness(estimator, data):
    X, Y = data
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = clone(estimator).fit(X, Y).decision_function(X)
    assert torch.equal(torch_before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(99)
    assert np.array_equal(first, estimator.fit(X, Y).decision_function(X))


def test_seed_decides_the_trained_ones(data):
    X, Y = data
    for kind in (SimplexUnmix(recipe="random", epochs=2), ChannelGroup(epochs=2)):
        one, two = (clone(kind).set_params(random_state=s).fit(X, Y).decision_function(X) for s in (0, 1))
        assert not np.array_equal(one, two)


def test_tile_order_does_not_matter(estimator, data):
    X, Y = data
    estimator.fit(X, Y)
    assert estimator.decision_function(X[:, ::-1]) == pytest.approx(estimator.decision_function(X), abs=1e-12)


def test_image_order_and_company_do_not_matter(estimator, data):
    X, Y = data
    scores = estimator.fit(X, Y).decision_function(X)
    assert estimator.decision_function(X[::-1]) == pytest.approx(scores[::-1], abs=1e-12)
    alone = np.concatenate([estimator.decision_function(X[i : i + 1]) for i in range(len(X))])
    assert alone == pytest.approx(scores, abs=1e-12)
    assert estimator.aggregate(estimator.tile_scores(X)) == pytest.approx(scores, abs=1e-12)
    assert estimator.decision_function(X[:, :1]).shape == (70, 5)


def test_blocks_do_not_matter(estimator, data, monkeypatch):
    X, Y = data
    scores = clone(estimator).fit(X, Y).decision_function(X)
    monkeypatch.setattr("phoebi_lib.decoders.checks._VALUES_PER_BLOCK", 3 * 4 * 17)
    assert estimator.fit(X, Y).decision_function(X) == pytest.approx(scores, abs=1e-6)


def test_input_is_left_alone_and_other_float_types_do(estimator, data):
    X, Y = data
    X_before, Y_before = X.copy(), Y.copy()
    estimator.fit(X, Y).calibrate(X, Y).predict(X)
    assert np.array_equal(X, X_before)
    assert np.array_equal(Y, Y_before)
    scores = estimator.decision_function(X)
    assert clone(estimator).fit(X.astype(np.float64), Y.astype(bool)).decision_function(X) == pytest.approx(scores)


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
        clone(estimator).fit(change(X), Y if len(change(X)) else Y[:0])
    estimator.fit(X, Y)
    with pytest.raises(error, match=message):
        estimator.decision_function(change(X))


def test_small_deviation_from_unit_norm_is_accepted(estimator, data):
    X, Y = data
    assert estimator.fit(1.0005 * X, Y).decision_function(0.9995 * X).shape == Y.shape


def test_features_of_another_width_are_refused(estimator, data):
    X, Y = data
    wide = np.zeros((2, 4, 18), dtype=np.float32)
    wide[..., 0] = 1
    with pytest.raises(ValueError, match="18 features per tile.*fitted with 17"):
        estimator.fit(X, Y).decision_function(wide)


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
        clone(estimator).fit(X, change(Y))
    estimator.fit(X, Y)
    with pytest.raises(ValueError, match=message):
        estimator.calibrate(X, change(Y))
    with pytest.raises(ValueError, match="4 classes.*fitted with 5"):
        estimator.calibrate(X, Y[:, :4])


def test_labels_without_any_positive_are_refused(estimator, data):
    X, Y = data
    with pytest.raises(ValueError, match=f"{type(estimator).__name__}: .*no image holds any class"):
        estimator.fit(X, 0 * Y)
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
    scores = estimator.fit(X, Y).decision_function(X)
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
    scores = estimator.fit(X, Y).decision_function(X)
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
        assert estimator.fit(X[keep], missing[keep]).calibrate(X, Y).predict(X).all()
        return
    with pytest.warns(UserWarning, match="class 3 is in no training image"):
        estimator.fit(X[keep], missing[keep])
    # the class has positives to calibrate on, and still is not predicted
    assert not estimator.calibrate(X, Y).predict(X)[:, 3].any()
    assert estimator.predict(X)[:, [0, 1, 2, 4]].any(axis=0).all()
    assert np.isfinite(estimator.decision_function(X)).all()


def test_class_without_validation_positives_is_warned_about_and_never_predicted(estimator, data):
    X, Y = data
    if isinstance(estimator, AllPresent):
        return
    with pytest.warns(UserWarning, match="class 2 has no positive"):
        estimator.fit(X, Y).calibrate(X[Y[:, 2] == 0], Y[Y[:, 2] == 0])
    assert not estimator.predict(X)[:, 2].any()


# save and load


def test_saved_and_loaded_is_the_same(estimator, data, tmp_path):
    X, Y = data
    estimator.fit(X, Y)
    estimator.save(tmp_path / "model")
    uncalibrated = type(estimator).load(tmp_path / "model")
    assert np.array_equal(uncalibrated.decision_function(X), estimator.decision_function(X))
    with pytest.raises(NotFittedError):
        uncalibrated.predict(X)
    estimator.calibrate(X, Y).save(tmp_path / "model")
    loaded = Decoder.load(tmp_path / "model")
    assert type(loaded) is type(estimator)
    assert loaded.get_params() == estimator.get_params()
    assert set(vars(loaded)) == set(vars(estimator))
    for name, value in vars(estimator).items():
        assert np.array_equal(getattr(loaded, name), value), name
    assert np.array_equal(loaded.predict(X), estimator.predict(X))
    assert sorted(path.suffix for path in (tmp_path / "model").iterdir()) == [".json", ".safetensors"]


def test_only_a_fitted_one_is_saved(estimator, tmp_path):
    with pytest.raises(NotFittedError):
        estimator.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_infinite_thresholds_survive(data, tmp_path):
    X, Y = data
    decoder = ProtoMatch().fit(X, Y).calibrate(X, Y)
    decoder.thresholds_[1] = np.inf
    decoder.save(tmp_path)
    assert np.array_equal(ProtoMatch.load(tmp_path).thresholds_, decoder.thresholds_)


def test_interrupted_save_keeps_the_old_state(data, tmp_path, monkeypatch):
    X, Y = data
    decoder = ProtoMatch().fit(X, Y)
    decoder.save(tmp_path)
    before = decoder.decision_function(X)

    def stop(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("phoebi_lib.decoders.storage.json.dumps", stop)
    with pytest.raises(KeyboardInterrupt):
        ProtoMatch().fit(X[:40], Y[:40]).save(tmp_path)
    monkeypatch.undo()
    assert np.array_equal(ProtoMatch.load(tmp_path).decision_function(X), before)


def edit(folder, **changes):
    path = folder / "decoder.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def saved(data, tmp_path):
    ProtoMatch().fit(*data).calibrate(*data).save(tmp_path)
    return tmp_path


def test_another_class_is_refused(saved):
    with pytest.raises(ValueError, match="holds a 'ProtoMatch'; expected ChannelGroup"):
        ChannelGroup.load(saved)
    edit(saved, decoder="os.system")
    with pytest.raises(ValueError, match="holds a 'os.system'"):
        Decoder.load(saved)


def test_other_parameters_are_refused(saved):
    edit(saved, parameters={"quantile": 0.05, "colour": "red"})
    with pytest.raises(ValueError, match="parameters of ProtoMatch.*colour"):
        ProtoMatch.load(saved)
    edit(saved, parameters={"quantile": 7, "fallback": "never", "random_state": 0})
    with pytest.raises(ValueError, match="quantile"):
        ProtoMatch.load(saved)


@pytest.mark.parametrize("name", ["../weights.safetensors", "/etc/passwd", "weights.pt", ""])
def test_weights_outside_the_folder_are_refused(saved, name):
    edit(saved, weights=name)
    with pytest.raises(ValueError, match="weights must name a file"):
        ProtoMatch.load(saved)


def test_damage_is_found(saved):
    weights = next(saved.glob("weights-*"))
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="does not have the content"):
        ProtoMatch.load(saved)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="named by decoder.json"):
        ProtoMatch.load(saved)
    (saved / "decoder.json").write_text('{"format": 1')
    with pytest.raises(ValueError, match="not valid JSON"):
        ProtoMatch.load(saved)
    (saved / "decoder.json").write_text("[]")
    with pytest.raises(ValueError, match="must hold the keys"):
        ProtoMatch.load(saved)
    (saved / "decoder.json").unlink()
    with pytest.raises(FileNotFoundError, match="written by save"):
        ProtoMatch.load(saved)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"prototypes_": np.zeros((5, 16))}, "prototypes_ must be"),
        ({"prototypes_": np.full((5, 17), np.nan)}, "prototypes_ must be"),
        ({"thresholds_": np.zeros(4)}, "thresholds_ must be"),
        ({"extra_": np.zeros(4)}, "incomplete"),
    ],
)
def test_state_that_does_not_fit_is_refused(saved, arrays, message):
    good = {"prototypes_": np.eye(5, 17), "present_": np.ones(5, dtype=bool)}
    weights = saved / "weights-0123456789abcdef.safetensors"
    save_file({**good, **arrays}, weights)
    edit(saved, weights=weights.name, sha256=file_sha256(weights))
    with pytest.raises(ValueError, match=message):
        ProtoMatch.load(saved)
