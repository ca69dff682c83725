"""LinearProbe and AttentionMIL against short references written here, and the rules by which they choose."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from test_protocols import make_pool

from phoebi_lib.baselines import AttentionMIL, LinearProbe
from phoebi_lib.decoders import ProtoMatch
from phoebi_lib.decoders.thresholds import GRID, grid_thresholds
from phoebi_lib.decoders.training import seeds
from phoebi_lib.protocols import METHODS, run_partition
from phoebi_lib.splits import partition

N, T, D, K = 60, 4, 24, 5
PROBE = LinearProbe(epochs=4, batch_size=32, random_state=3)
MIL = AttentionMIL(hidden=6, epochs=6, batch_size=16, random_state=3)


def unit(X):
    return (X / np.linalg.norm(X, axis=-1, keepdims=True)).astype(np.float32)


def images(n, seed, noise=1.0):
    """Images whose tiles are the sum of the directions of their classes, and noise."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, K)) < 0.4).astype(int)
    Y[np.arange(n), rng.integers(0, K, n)] = 1
    return unit((Y @ (3 * np.eye(K, D)))[:, None] + noise * rng.normal(size=(n, T, D))), Y


@pytest.fixture(scope="module")
def train():
    return images(N, 1)


@pytest.fixture(scope="module")
def val():
    return images(30, 2)


def published_search(score, y):
    """The probe's search as it is told: start at 0.5, skip points at which nothing is called, improve strictly."""
    best, kept = 0.0, 0.5
    for point in np.arange(1, 100) / 100:
        called = score > point
        if y.any() and not called.any():
            continue
        f1 = f1_score(y, called, zero_division=0)
        if f1 > best:
            best, kept = f1, point
    return kept


def searched_f1(scores, Y):
    thresholds = [published_search(scores[:, k], Y[:, k]) for k in range(Y.shape[1])]
    return f1_score(Y, scores > thresholds, average="samples", zero_division=0)


def uniform(module, generator):
    """Draw the start of a linear layer, weights before bias."""
    for parameter in module.parameters():
        torch.nn.init.uniform_(parameter, -module.in_features**-0.5, module.in_features**-0.5, generator=generator)


# references


def reference_probe(X, Y, rate):
    start, shuffle = seeds(PROBE.random_state, 2)
    layer = torch.nn.Linear(D, K)
    uniform(layer, torch.Generator().manual_seed(start))
    z, y = torch.tensor(X).reshape(-1, D), torch.tensor(Y, dtype=torch.float32).repeat_interleave(T, dim=0)
    optimiser = torch.optim.SGD(layer.parameters(), lr=rate, momentum=0.9, nesterov=True, weight_decay=1e-4)
    order = torch.Generator().manual_seed(shuffle)
    for _ in range(PROBE.epochs):
        for index in torch.randperm(len(z), generator=order).split(PROBE.batch_size):
            optimiser.zero_grad()
            torch.nn.BCEWithLogitsLoss()(layer(z[index]), y[index]).backward()
            optimiser.step()
    return layer


def test_probe_is_the_reference_at_the_rate_that_validates_best(train, val):
    found = clone(PROBE).fit(*train, validation=val)
    best = 0.0
    for rate, f1 in zip((0.01, 0.03, 0.1), found.validation_f1_, strict=True):
        layer = reference_probe(*train, rate)
        with torch.no_grad():
            scores = torch.sigmoid(layer(torch.tensor(val[0]))).mean(dim=1).double().numpy()
        assert f1 == pytest.approx(searched_f1(scores, val[1]), abs=1e-12)
        if f1 > best:
            best, chosen, kept, wanted = f1, rate, layer, scores
    assert len(set(found.validation_f1_)) > 1
    assert found.learning_rate_ == chosen
    assert found.weight_ == pytest.approx(kept.weight.detach().numpy(), abs=1e-5)
    assert found.bias_ == pytest.approx(kept.bias.detach().numpy(), abs=1e-5)
    assert found.decision_function(val[0]) == pytest.approx(wanted, abs=1e-6)
    assert found.updates_ == 4 * math.ceil(N * T / 32) and len(found.losses_) == 4


class Gated(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.V, self.U = torch.nn.Linear(D, hidden, bias=False), torch.nn.Linear(D, hidden, bias=False)
        self.w, self.head = torch.nn.Linear(hidden, 1, bias=False), torch.nn.Linear(D, K)

    def forward(self, bags):
        energy = self.w(torch.tanh(self.V(bags)) * torch.sigmoid(self.U(bags)))
        return self.head((torch.softmax(energy, dim=1) * bags).sum(dim=1))


def test_attention_is_the_reference_at_the_epoch_that_validates_best(train, val):
    start, shuffle = seeds(MIL.random_state, 2)
    network, generator = Gated(MIL.hidden), torch.Generator().manual_seed(start)
    for layer in network.children():
        uniform(layer, generator)
    X, Y = torch.tensor(train[0]), torch.tensor(train[1], dtype=torch.float32)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-4)
    best, f1 = -1.0, []
    for seed in seeds(shuffle, MIL.epochs):
        for index in torch.randperm(N, generator=torch.Generator().manual_seed(seed)).split(MIL.batch_size):
            optimiser.zero_grad()
            torch.nn.BCEWithLogitsLoss()(network(X[index]), Y[index]).backward()
            optimiser.step()
        with torch.no_grad():
            scores = torch.sigmoid(network(torch.tensor(val[0]))).double().numpy()
        thresholds = grid_thresholds(scores, val[1])
        f1.append(f1_score(val[1], scores > thresholds, average="samples", zero_division=0))
        if f1[-1] > best:
            best, epoch, wanted = f1[-1], len(f1), scores
            kept = {name: value.detach().clone().numpy() for name, value in network.named_parameters()}
    found = clone(MIL).fit(*train, validation=val)
    assert found.validation_f1_ == pytest.approx(f1, abs=1e-12)
    assert found.best_epoch_ == epoch
    learned = {"V.weight": found.V_, "U.weight": found.U_, "w.weight": found.w_[None],
               "head.weight": found.head_weight_, "head.bias": found.head_bias_}  # fmt: skip
    for name, value in kept.items():
        assert learned[name] == pytest.approx(value, abs=1e-5), name
    assert found.decision_function(val[0]) == pytest.approx(wanted, abs=1e-6)
    assert found.updates_ == 6 * math.ceil(N / 16) and len(found.losses_) == 6


def test_attention_on_two_tiles_by_hand():
    found = AttentionMIL(hidden=1)
    found.V_, found.U_, found.w_ = np.array([[1.0, 2.0]]), np.array([[0.0, 1.0]]), np.array([0.5])
    found.head_weight_, found.head_bias_ = np.array([[3.0, -1.0]]), np.array([0.25])
    found.n_features_in_, found.n_classes_, found.present_ = 2, 1, np.array([True])
    X = np.eye(2)[None]
    one = 0.5 * math.tanh(1) * 0.5  # sigmoid(0) is a half
    two = 0.5 * math.tanh(2) / (1 + math.exp(-1))
    share = math.exp(one) / (math.exp(one) + math.exp(two))
    logit = 3 * share - (1 - share) + 0.25
    assert found.attention(X)[0] == pytest.approx([share, 1 - share], abs=1e-12)
    assert found.decision_function(X)[0, 0] == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-12)
    assert found.tile_scores(X)[0, :, 0] == pytest.approx([2 * share * 3.25, 2 * (1 - share) * -0.75], abs=1e-12)


def test_attention_sums_to_one_and_goes_with_its_tile(train, val):
    with pytest.raises(NotFittedError, match="call fit"):
        clone(MIL).attention(val[0])
    found = clone(MIL).fit(*train, validation=val)
    weights = found.attention(val[0])
    assert weights.shape == (30, T) and (weights > 0).all()
    assert weights.sum(axis=1) == pytest.approx(np.ones(30), abs=1e-12)
    assert found.attention(val[0][:, ::-1])[:, ::-1] == pytest.approx(weights, abs=1e-12)
    assert found.attention(val[0][:, :1]) == pytest.approx(np.ones((30, 1)))


def test_parameters_are_counted():
    X, Y = unit(np.random.default_rng(0).normal(size=(6, 1, 384))), np.eye(6, dtype=int)
    assert AttentionMIL(epochs=1).fit(X, Y, validation=(X, Y)).n_parameters_ == 100_742
    assert LinearProbe(epochs=1).fit(X, Y, validation=(X, Y)).n_parameters_ == 384 * 6 + 6


# what they learn


@pytest.mark.parametrize("kind", [LinearProbe(batch_size=16), AttentionMIL(batch_size=8, learning_rate=3e-2)], ids=repr)
def test_separable_images_are_learned(kind):
    train, val, test = images(200, 1, 0.3), images(40, 2, 0.3), images(60, 3, 0.3)
    found = kind.fit(*train, validation=val).calibrate(*val)
    assert found.losses_[-1] < found.losses_[0]
    assert f1_score(test[1], found.predict(test[0]), average="samples") > 0.95


def test_attention_finds_the_tile_that_tells():
    def hidden(seed):
        rng = np.random.default_rng(seed)
        Y = np.eye(2, dtype=int)[rng.integers(0, 2, 80)]
        X, where = 0.2 * rng.normal(size=(80, T, D)), rng.integers(0, T, 80)
        X[..., 2] += 1.0  # what every other tile looks like
        X[np.arange(80), where] += Y @ np.eye(2, D) - np.eye(3, D)[2]
        return unit(X), Y, where

    train, val, test = hidden(1), hidden(2), hidden(3)
    found = AttentionMIL(batch_size=8, learning_rate=1e-2).fit(*train[:2], validation=val[:2])
    assert (found.attention(test[0]).argmax(axis=1) == test[2]).mean() > 0.9


# how they choose


@pytest.mark.parametrize("kind", [PROBE, MIL], ids=["probe", "attention"])
def test_calibration_on_the_same_images_gives_the_score_that_chose(kind, train, val):
    found = clone(kind).fit(*train, validation=val)
    f1 = f1_score(val[1], found.calibrate(*val).predict(val[0]), average="samples", zero_division=0)
    assert f1 == pytest.approx(found.validation_f1_.max(), abs=1e-12)


def given(monkeypatch, values):
    values = iter(values)
    monkeypatch.setattr("phoebi_lib.baselines.chosen.ChosenOnValidation._validation_f1", lambda *_: next(values))


@pytest.mark.parametrize(
    ("f1", "best"), [([0.5, 0.7, 0.7, 0.6], 2), ([0.0, 0.0, 0.0, 0.0], 1), ([0.1, 0.2, 0.3, 0.4], 4)]
)
def test_earliest_of_the_best_epochs_is_kept(train, val, monkeypatch, f1, best):
    given(monkeypatch, f1)
    found = clone(MIL).set_params(epochs=4).fit(*train, validation=val)
    assert found.best_epoch_ == best and found.validation_f1_.tolist() == f1
    monkeypatch.undo()
    given(monkeypatch, range(best))
    until = clone(MIL).set_params(epochs=best).fit(*train, validation=val)
    assert np.array_equal(found.decision_function(val[0]), until.decision_function(val[0]))


@pytest.mark.parametrize(
    ("f1", "rate"), [([0.6, 0.6, 0.6], 0.01), ([0.5, 0.6, 0.6], 0.03), ([0.6, 0.5, 0.7], 0.1), ([0.0, 0.0, 0.0], 0.01)]
)
def test_smallest_of_the_best_rates_is_kept_in_any_order(train, val, monkeypatch, f1, rate):
    given(monkeypatch, f1)
    found = clone(PROBE).set_params(learning_rates=(0.1, 0.01, 0.03)).fit(*train, validation=val)
    assert found.learning_rate_ == rate
    assert found.validation_f1_.tolist() == [f1[2], f1[0], f1[1]]
    monkeypatch.undo()
    # every rate starts from the same weights and sees the same batches
    alone = clone(PROBE).set_params(learning_rates=(rate,)).fit(*train, validation=val)
    assert np.array_equal(found.weight_, alone.weight_) and np.array_equal(found.losses_, alone.losses_)


def test_a_rate_that_diverges_is_named(train, val):
    with pytest.raises(FloatingPointError, match=r"LinearProbe: learning rate 1e\+30 of learning_rates"):
        clone(PROBE).set_params(learning_rates=(0.1, 1e30), updates=9).fit(*train, validation=val)


def test_updates_in_place_of_epochs(train, val):
    found = clone(MIL).set_params(updates=5).fit(*train, validation=val)
    assert found.updates_ == 5 and len(found.losses_) == len(found.validation_f1_) == 2
    found = clone(PROBE).set_params(updates=9).fit(*train, validation=val)
    assert found.updates_ == 9 and len(found.losses_) == 2


def test_thresholds_of_the_probe_are_those_of_the_published_search(train, val):
    rng = np.random.default_rng(5)
    Y = (rng.random((40, K)) < 0.3).astype(int)
    Y[0] = 1
    scores = np.round(0.3 * Y + 0.7 * rng.random((40, K)), 2)
    Y[:, 1] = 0  # no image holds it
    scores[:, 2] = np.where(Y[:, 2] == 1, 0.004, 0.3)  # no point finds an image that holds it
    scores[:, 3] = np.where(Y[:, 3] == 1, 0.011, 0.3)  # one does
    fitted = clone(PROBE).set_params(fallback=0.5).fit(*train, validation=val)
    with pytest.warns(UserWarning, match="class [12] has no positive"):
        thresholds = fitted.calibrate_scores(scores, Y).thresholds_
    assert thresholds.tolist() == [published_search(scores[:, k], Y[:, k]) for k in range(K)]
    assert thresholds[[1, 2]].tolist() == [0.5, 0.5]
    # the search of the other methods keeps its lowest point, at which the class fires wrongly
    assert grid_thresholds(scores[:, [2]], Y[:, [2]], fallback=0.5) == GRID[0]
    with pytest.warns(UserWarning, match="never predicted"):
        assert not fitted.set_params(fallback="never").calibrate_scores(scores, Y).predict_scores(scores)[:, 1:3].any()


# validation images


def spoiled(X):
    X = X.copy()
    X[3, 1, 2] = np.nan
    return X


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y: X, "chooses among what it trains .*found a ndarray"),
        (lambda X, Y: (X, Y, Y), "found a tuple"),
        (lambda X, Y: (X[:, 0], Y), r"validation: X must have shape \(N, T, D\)"),
        (lambda X, Y: (X[..., :20], Y), "validation: X has 20 features per tile, but the training images have 24"),
        (lambda X, Y: (X, Y[:, :4]), "validation: Y has 4 classes, but the training images have 5"),
        (lambda X, Y: (X, Y[:-1]), "validation: X holds 30 images but Y holds 29"),
        (lambda X, Y: (X, 2 * Y), "validation: Y must hold 0 and 1 only"),
        (lambda X, Y: (X, 0 * Y), "validation: Y is zero throughout"),
        (lambda X, Y: (spoiled(X), Y), r"validation: X\[3, 1\] is not finite \(found nan\)"),
        (lambda X, Y: (1.1 * X, Y), "validation: every tile must have unit norm"),
    ],
)
@pytest.mark.parametrize("kind", [PROBE, MIL], ids=["probe", "attention"])
def test_bad_validation_is_named(kind, train, val, change, message):
    with pytest.raises(ValueError, match=f"{type(kind).__name__}.*{message}"):
        clone(kind).fit(*train, validation=change(*val))


# under the protocol


@pytest.fixture(scope="module")
def pool():
    return make_pool()


def test_the_harness_hands_over_the_validation_part(pool, tmp_path):
    parts = partition(pool.manifest, "lco-1337", grouping="frame")
    X, Y = ({part: values[rows] for part, rows in parts.items()} for values in (pool.take(np.arange(480)), pool.Y))
    rows = run_partition(pool, "lco-1337", seed=5, methods=["AttentionMIL", "LinearProbe"], store=tmp_path)
    for kind in (AttentionMIL(random_state=5), LinearProbe(random_state=5)):
        kind.fit(X["train"], Y["train"], validation=(X["val"], Y["val"])).calibrate(X["val"], Y["val"])
        own = rows[(rows["method"] == type(kind).__name__) & (rows["part"] == "test")]
        assert np.array_equal(own[[f"score_{code}" for code in pool.codes]], kind.decision_function(X["test"]))
        assert np.array_equal(own[[f"pred_{code}" for code in pool.codes]], kind.predict(X["test"]))
        assert set(own["updates"]) == {kind.updates_}


class Old(ProtoMatch):
    """Somebody's decoder with a ``fit`` of its own that knows nothing of validation."""

    def fit(self, X, Y):
        return super().fit(X, Y)


class New(ProtoMatch):
    """Another one, which takes whatever it is given."""

    def fit(self, X, Y, **more):
        super().fit(X, Y)
        self.updates_ = len(more["validation"][0])
        return self


def test_a_decoder_with_its_own_fit_takes_part_with_and_without_validation(pool, tmp_path):
    found = run_partition(pool, "random", seed=1, methods={"Old": Old(), "New": New()}, store=tmp_path)
    same = run_partition(pool, "random", seed=1, methods=["ProtoMatch"], store=tmp_path)
    for name in ("Old", "New"):
        assert np.array_equal(found.loc[found["method"] == name, "score_ka"], same["score_ka"])
    assert set(found.loc[found["method"] == "New", "updates"]) == {(same["part"] == "val").sum()}


def test_published_fallbacks_are_built_by_compat():
    for name, published in (("AttentionMIL", 0.01), ("LinearProbe", 0.5)):
        factory, settings = METHODS[name]
        made = {way: factory("random", way, random_state=7, **settings) for way in ("corrected", "reference")}
        assert {way: kind.fallback for way, kind in made.items()} == {"corrected": "never", "reference": published}
        assert made["reference"].random_state == 7
    assert (made["reference"].epochs, METHODS["AttentionMIL"][0]("random", "corrected").epochs) == (10, 30)
