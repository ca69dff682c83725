"""Every decoder and baseline survives save and load unchanged, and damaged or foreign state is refused."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from test_estimator_contract import ESTIMATORS, fit, made

from phoebi_lib.decoders import ChannelGroup, Decoder, ProtoMatch
from phoebi_lib.workspace import file_sha256


@pytest.fixture(scope="module")
def data():
    return made()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_saved_and_loaded_is_the_same(name, data, tmp_path):
    estimator = clone(ESTIMATORS[name])
    X, Y = data
    fit(estimator, X, Y)
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
    for key, value in vars(estimator).items():
        assert np.array_equal(getattr(loaded, key), value), key
    assert np.array_equal(loaded.predict(X), estimator.predict(X))
    assert sorted(path.suffix for path in (tmp_path / "model").iterdir()) == [".json", ".safetensors"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_only_a_fitted_one_is_saved(name, tmp_path):
    estimator = clone(ESTIMATORS[name])
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
