"""The three decoders against hand-worked cases and independent references."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phoebi_lib.baselines import AllPresent
from phoebi_lib.decoders import ChannelGroup, ProtoMatch, SimplexUnmix, sparsemax, sparsemax_jacobian
from phoebi_lib.decoders.channel_group import _ChannelDropout
from phoebi_lib.decoders.prototypes import hybrid_prototypes
from phoebi_lib.decoders.simplex_unmix import RECIPES
from phoebi_lib.decoders.thresholds import GRID, grid_thresholds, quantile_thresholds
from phoebi_lib.decoders.training import TileMixup, asymmetric_loss, seeds


def unit(X):
    return (X / np.linalg.norm(X, axis=-1, keepdims=True)).astype(np.float32)


def mixtures(n=60, T=4, D=24, K=6, seed=0):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, K)) < 0.4).astype(int)
    Y[: 2 * K] = np.repeat(np.eye(K, dtype=int), 2, axis=0)
    Y[Y.sum(axis=1) == 0, 0] = 1
    return unit((Y @ rng.normal(size=(K, D)))[:, None] + rng.normal(size=(n, T, D)) + 1.0), Y


def project_by_bisection(logits):
    """The point of the simplex nearest to ``logits``: find the shift at which the clipped values sum to one."""
    low, high = logits.max() - 1.0, logits.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(logits - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(logits - high, 0)


# sparsemax


@pytest.mark.parametrize(
    ("logits", "weights"),
    [
        ([1.0, 0.0], [1.0, 0.0]),
        ([0.6, 0.4], [0.6, 0.4]),
        ([2.0, 1.5, -1.0], [0.75, 0.25, 0.0]),
        ([0.5, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]),
        ([-1.0, 2.0, 1.5], [0.0, 0.75, 0.25]),
        ([7.0], [1.0]),
        ([1e9, 1e9 - 64, 0.0], [1.0, 0.0, 0.0]),
    ],
)
def test_sparsemax_by_hand(logits, weights):
    assert sparsemax(torch.tensor(logits)).numpy() == pytest.approx(weights, abs=1e-6)


@given(hnp.arrays(np.float64, st.integers(1, 8), elements=st.floats(-30, 30)))
@settings(max_examples=200, deadline=None)
def test_sparsemax_is_the_projection_onto_the_simplex(logits):
    weights = sparsemax(torch.from_numpy(logits)).numpy()
    assert weights == pytest.approx(project_by_bisection(logits), abs=1e-9)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weights >= 0).all()


def test_sparsemax_jacobian_is_autograd_s_and_that_of_differences():
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 6)))
    for row in logits:
        weights = sparsemax(row)
        closed = sparsemax_jacobian(weights)
        assert torch.allclose(closed, torch.autograd.functional.jacobian(sparsemax, row), atol=1e-12)
        step = 1e-6 * torch.eye(6, dtype=torch.float64)
        numeric = torch.stack([(sparsemax(row + d) - sparsemax(row - d)) / 2e-6 for d in step])
        assert torch.allclose(closed, numeric, atol=1e-6)
        assert (closed[weights == 0] == 0).all()
    assert sparsemax_jacobian(sparsemax(logits)).shape == (20, 6, 6)


# prototypes


def test_pure_culture_prototype_is_the_normalised_mean_of_its_own_tiles():
    X = unit(np.array([[[1, 0, 0], [1, 1, 0]], [[0, 1, 0], [0, 1, 1]], [[0, 0, 1], [0, 0, 1]]], dtype=float))
    prototypes, source = hybrid_prototypes(X, np.array([[1, 0], [0, 1], [1, 1]]))
    h = np.sqrt(0.5)
    assert prototypes[0] == pytest.approx(np.array([1 + h, h, 0]) / np.linalg.norm([1 + h, h, 0]), abs=1e-6)
    assert prototypes[1] == pytest.approx(np.array([0, 1 + h, h]) / np.linalg.norm([0, 1 + h, h]), abs=1e-6)
    assert source == ["pure", "pure"]


def test_species_without_pure_culture_gets_the_mean_of_the_mixtures_that_hold_it():
    X, Y = mixtures()
    keep = ~((Y[:, 2] == 1) & (Y.sum(axis=1) == 1))
    prototypes, source = hybrid_prototypes(X[keep], Y[keep])
    mean = X[keep][Y[keep, 2] == 1].reshape(-1, X.shape[2]).astype(np.float64).mean(axis=0)
    assert source == ["pure", "pure", "mixture", "pure", "pure", "pure"]
    assert prototypes[2] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-9)
    assert np.linalg.norm(prototypes, axis=1) == pytest.approx(np.ones(6), abs=1e-12)


def test_species_in_no_image_has_no_prototype():
    X, Y = mixtures()
    Y[:, 4] = 0
    keep = Y.any(axis=1)
    with pytest.warns(UserWarning, match="class 4 is in no training image"):
        prototypes, source = hybrid_prototypes(X[keep], Y[keep])
    assert source[4] == "absent"
    assert (prototypes[4] == 0).all()


def test_prototype_without_direction_is_refused():
    X = np.array([[[1.0, 0.0], [-1.0, 0.0]]], dtype=np.float32)
    with pytest.raises(ValueError, match="class 0 average to zero"):
        hybrid_prototypes(X, np.array([[1]]))


# thresholds


def test_quantile_threshold_interpolates_between_validation_positives():
    scores = np.array([[0.0], [1.0], [2.0], [9.0]])
    assert quantile_thresholds(scores, np.array([[1], [1], [1], [0]]), 0.25) == pytest.approx([0.5])
    assert quantile_thresholds(scores, np.array([[1], [1], [1], [0]]), 0.05) == pytest.approx([0.1])


@given(hnp.arrays(np.float64, st.integers(2, 40), elements=st.integers(0, 100).map(lambda i: i / 100)), st.data())
@settings(max_examples=100, deadline=None)
def test_grid_threshold_is_the_first_best_of_ninety_nine(scores, data):
    truth = data.draw(hnp.arrays(np.int64, len(scores), elements=st.integers(0, 1)).filter(lambda y: y.any()))
    values = [2 * (truth * (scores > p)).sum() / (truth + (scores > p)).sum() for p in np.arange(1, 100) / 100]
    found = grid_thresholds(scores[:, None], truth[:, None])[0]
    assert found == GRID[np.argmax(np.isclose(values, max(values), rtol=0, atol=1e-12))]


def test_grid_is_the_published_one_and_comparison_is_strict():
    assert GRID.tolist() == [i / 100 for i in range(1, 100)]
    # at 0.5 the negative no longer passes with > and still passes with >=
    assert grid_thresholds(np.array([[0.5], [0.9]]), np.array([[0], [1]])) == pytest.approx([0.5])


@pytest.mark.parametrize(("fallback", "expected"), [("never", np.inf), ("max+1", 1.75), (0.05, 0.05)])
def test_class_without_validation_positives(fallback, expected):
    scores, Y = np.array([[0.25, 0.5], [0.75, 0.75]]), np.array([[1, 0], [1, 0]])
    for choose in (quantile_thresholds, grid_thresholds):
        with pytest.warns(UserWarning, match="class 1 has no positive"):
            assert choose(scores, Y, fallback=fallback)[1] == expected
    # refused even where no class needs it
    for choose in (quantile_thresholds, grid_thresholds):
        for bad in ("sometimes", np.nan):
            with pytest.raises(ValueError, match="fallback must be"):
                choose(scores, np.ones_like(Y), fallback=bad)


def test_score_equal_to_the_threshold_is_absent():
    X, Y = mixtures()
    for decoder in (ProtoMatch(), SimplexUnmix(epochs=0), ChannelGroup(epochs=1), AllPresent()):
        decoder.fit(X, Y).calibrate(X, Y)
        scores = decoder.decision_function(X)
        decoder.thresholds_ = scores[7].copy()
        assert (decoder.predict(X)[7] == 0).all()
        assert np.array_equal(decoder.predict(X), (scores > scores[7]).astype(int))


# ProtoMatch


def test_proto_match_is_the_mean_cosine():
    X, Y = mixtures()
    decoder = ProtoMatch().fit(X, Y)
    reference = np.stack([X.astype(float) @ p for p in decoder.prototypes_], axis=-1).mean(axis=1)
    assert decoder.decision_function(X) == pytest.approx(reference, abs=1e-12)
    assert decoder.decision_function(X).dtype == np.float64
    decoder.calibrate(X, Y)
    assert decoder.thresholds_ == pytest.approx([np.quantile(reference[Y[:, k] == 1, k], 0.05) for k in range(6)])


# SimplexUnmix


def test_recipes_are_the_published_ones():
    assert RECIPES == {"random": (64, "mean"), "lco": (4096, "sum"), "ablation": (256, "mean")}
    defaults = SimplexUnmix().get_params()
    published = {"tau": 10, "epochs": 30, "learning_rate": 1e-3, "quantile": 0.05, "projection": "sparsemax"}
    assert {name: defaults[name] for name in published} == published
    assert ProtoMatch().quantile == 0.05
    published = {"epochs": 30, "learning_rate": 1e-2, "weight_decay": 1e-4, "batch_size": 4096, "dropout": 0.5}
    assert {name: ChannelGroup().get_params()[name] for name in published} == published


def test_simplex_unmix_score_and_residual_by_definition():
    X, Y = mixtures()
    decoder = SimplexUnmix(epochs=2, recipe="random").fit(X, Y)
    scores, residual = decoder.decision_function(X), decoder.residual(X)
    P = decoder.prototypes_
    for i in (0, 17, 59):
        weights = np.stack([project_by_bisection(10 * P @ z) for z in X[i].astype(float)])
        left = X[i] - weights @ P
        assert scores[i] == pytest.approx(weights.mean(axis=0), abs=1e-9)
        assert residual[i] == pytest.approx(np.linalg.norm(left, axis=1).mean(), abs=1e-9)
    assert scores.sum(axis=1) == pytest.approx(np.ones(len(X)))


@pytest.mark.parametrize("projection", ["sparsemax", "softmax"])
def test_gradient_is_autograd_s_on_the_reconstruction_written_out(projection):
    X, Y = mixtures()
    decoder = SimplexUnmix(projection=projection)
    tiles = torch.from_numpy(X.reshape(-1, X.shape[2]))
    raw = torch.randn(6, X.shape[2], generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = decoder._loss_and_gradient(tiles, raw, 0.5)
    ours = raw.grad.clone()
    raw.grad = None
    P = torch.nn.functional.normalize(raw, dim=1)
    project = sparsemax if projection == "sparsemax" else (lambda x: torch.softmax(x, dim=-1))
    reference = 0.5 * (tiles - project(10 * tiles @ P.T) @ P).square().sum(dim=1).mean()
    reference.backward()
    assert loss.item() == pytest.approx(reference.item(), abs=1e-6)
    assert torch.allclose(ours, raw.grad, atol=1e-6)
    assert raw.grad.abs().max() > 1e-3


def naive_training(X, Y, recipe, epochs, seed):
    batch, reduction = RECIPES[recipe]
    tiles = torch.from_numpy(X.reshape(-1, X.shape[2]))
    raw = torch.tensor(hybrid_prototypes(X, Y)[0], dtype=torch.float32, requires_grad=True)
    optimiser = torch.optim.Adam([raw], lr=1e-3)
    generator, history = torch.Generator().manual_seed(seeds(seed, 1)[0]), []
    for _ in range(epochs):
        total = 0.0
        for index in torch.randperm(len(tiles), generator=generator).split(batch):
            P = torch.nn.functional.normalize(raw, dim=1)
            squared = (tiles[index] - sparsemax(10 * tiles[index] @ P.T) @ P).square()
            loss = squared.mean() if reduction == "mean" else squared.sum(dim=1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item() * len(index) / len(tiles)
        history.append(total)
    return torch.nn.functional.normalize(raw, dim=1).detach().numpy(), history


@pytest.mark.parametrize("recipe", ["random", "lco", "ablation"])
def test_training_equals_a_loop_written_out(recipe):
    X, Y = mixtures(n=75)  # 300 tiles: the last batch of 64 and of 256 is a short one, 4,096 is never full
    prototypes, history = naive_training(X, Y, recipe, 3, seed=5)
    decoder = SimplexUnmix(recipe=recipe, epochs=3, random_state=5).fit(X, Y)
    assert decoder.losses_ == pytest.approx(history, rel=1e-5)
    assert decoder.prototypes_ == pytest.approx(prototypes, abs=1e-5)
    assert np.linalg.norm(decoder.prototypes_, axis=1) == pytest.approx(np.ones(6), abs=1e-12)
    assert decoder.updates_ == 3 * -(-300 // RECIPES[recipe][0])
    assert decoder.losses_[-1] < decoder.losses_[0]


def test_updates_take_the_place_of_epochs():
    X, Y = mixtures(n=75)
    for decoder in (SimplexUnmix(recipe="random", updates=7), ChannelGroup(batch_size=64, updates=7)):
        decoder.fit(X, Y)
        assert decoder.updates_ == 7
        assert len(decoder.losses_) == 2
    whole = SimplexUnmix(recipe="random", epochs=2).fit(X, Y)
    same = SimplexUnmix(recipe="random", updates=10).fit(X, Y)
    assert np.array_equal(whole.prototypes_, same.prototypes_)
    none = SimplexUnmix(updates=0).fit(X, Y)
    assert np.array_equal(none.prototypes_, SimplexUnmix(epochs=0).fit(X, Y).prototypes_)
    assert none.updates_ == 0


def test_species_in_no_image_takes_no_weight():
    X, Y = mixtures()
    Y[:, 4] = 0
    keep = Y.any(axis=1)
    with pytest.warns(UserWarning, match="class 4"):
        decoder = SimplexUnmix(recipe="random", epochs=1).fit(X[keep], Y[keep])
    scores = decoder.decision_function(X)
    assert (scores[:, 4] == 0).all()
    assert scores.sum(axis=1) == pytest.approx(np.ones(len(X)))
    assert decoder.residual(X).max() < 2


def test_diverging_training_is_reported():
    X, Y = mixtures()
    with pytest.raises(FloatingPointError, match="lower learning_rate"):
        ChannelGroup(learning_rate=1e37, epochs=5).fit(X, Y)


# ChannelGroup


@pytest.mark.parametrize(("D", "parameters", "unused"), [(384, 390, 0), (1536, 1542, 0), (1280, 1284, 2), (24, 30, 0)])
def test_channel_group_sizes(D, parameters, unused):
    rng = np.random.default_rng(0)
    decoder = ChannelGroup(epochs=0).fit(unit(rng.normal(size=(6, 2, D))), np.eye(6, dtype=int))
    assert decoder.weight_.size + decoder.bias_.size == decoder.n_parameters_ == parameters
    assert decoder.unused_channels_ == unused


def test_channel_group_starts_kaiming_uniform():
    X = unit(np.random.default_rng(0).normal(size=(6, 2, 384)))
    decoder = ChannelGroup(epochs=0, random_state=3).fit(X, np.eye(6, dtype=int))
    assert np.abs(decoder.weight_).max() <= 1 / 8
    assert np.abs(decoder.weight_).max() > 0.12
    assert decoder.weight_.std() == pytest.approx(1 / 8 / np.sqrt(3), rel=0.1)
    assert (decoder.bias_ == 0).all()
    other = ChannelGroup(epochs=0, random_state=3, dropout=0.1, batch_size=7).fit(X, np.eye(6, dtype=int))
    assert np.array_equal(decoder.weight_, other.weight_)


def test_asymmetric_loss_by_hand_and_against_a_reference_written_out():
    half = torch.zeros(1, 2, dtype=torch.float64)
    # p = 0.5: a presence costs -log 0.5, an absence -0.45^4 log 0.55
    expected = (np.log(2) - 0.45**4 * np.log(0.55)) / 2
    assert float(asymmetric_loss(half, torch.tensor([[1.0, 0.0]]))) == pytest.approx(expected, abs=1e-12)
    easy = torch.full((1, 1), -3.0, dtype=torch.float64)  # p = 0.047 lies within the margin: next to nothing is left
    assert 0 <= float(asymmetric_loss(easy, torch.zeros(1, 1))) < 1e-20
    rng = np.random.default_rng(0)
    logits, labels = 6 * rng.normal(size=(50, 6)), rng.integers(0, 2, (50, 6))
    total = 0.0
    for x, y in zip(logits.ravel(), labels.ravel(), strict=True):
        p = 1 / (1 + np.exp(-x))
        q = max(p - 0.05, 0)
        total -= np.log(max(p, 1e-6)) if y else max(q, 1e-6) ** 4 * np.log(max(1 - q, 1e-6))
    found = float(asymmetric_loss(torch.from_numpy(logits), torch.from_numpy(labels)))
    assert found == pytest.approx(total / 300, rel=1e-9)


def test_tile_mixup_mixes_pairs_and_unites_their_labels():
    rng = np.random.default_rng(0)
    tiles, labels = torch.from_numpy(rng.normal(size=(30, 5))), torch.eye(30)[:, :6]
    before = tiles.clone()
    mixed, united = TileMixup(0.4, 7)(tiles, labels)
    generator = np.random.default_rng(7)
    share, partner = generator.beta(0.4, 0.4), generator.permutation(30)
    assert mixed.numpy() == pytest.approx(share * before.numpy() + (1 - share) * before.numpy()[partner], abs=1e-12)
    assert np.array_equal(united.numpy(), np.maximum(labels.numpy(), labels.numpy()[partner]))
    assert torch.equal(tiles, before)


@pytest.mark.parametrize(("loss", "mixup"), [("asymmetric", 0.0), ("bce", 0.4), ("asymmetric", 0.4)])
def test_training_with_other_losses_equals_a_loop_written_out(loss, mixup):
    X, Y = mixtures(n=75, D=24)
    start = ChannelGroup(epochs=0, random_state=9).fit(X, Y)
    decoder = ChannelGroup(epochs=3, batch_size=64, dropout=0.0, loss=loss, mixup=mixup, random_state=9).fit(X, Y)
    tiles, labels = torch.from_numpy(X.reshape(-1, 24)), torch.from_numpy(np.repeat(Y, 4, axis=0)).float()
    weight = torch.tensor(start.weight_, dtype=torch.float32, requires_grad=True)
    bias = torch.zeros(6, requires_grad=True)
    optimiser = torch.optim.AdamW([weight, bias], lr=1e-2, weight_decay=1e-4)
    shuffle, pairs = torch.Generator().manual_seed(seeds(9, 4)[1]), np.random.default_rng(seeds(9, 4)[3])
    for _ in range(3):
        for index in torch.randperm(300, generator=shuffle).split(64):
            z, y = tiles[index], labels[index]
            if mixup:
                share, partner = pairs.beta(mixup, mixup), pairs.permutation(len(index))
                z, y = share * z + (1 - share) * z[partner], torch.maximum(y, y[partner])
            p = torch.sigmoid(torch.stack([z[:, 4 * k : 4 * k + 4] @ weight[k] + bias[k] for k in range(6)], dim=1))
            q = torch.relu(p - 0.05)
            absent = q**4 * (1 - q).log() if loss == "asymmetric" else (1 - p).log()
            optimiser.zero_grad()
            (-(y * p.log() + (1 - y) * absent)).mean().backward()
            optimiser.step()
    assert decoder.weight_ == pytest.approx(weight.detach().numpy(), abs=2e-5)
    assert decoder.bias_ == pytest.approx(bias.detach().numpy(), abs=2e-5)
    plain = ChannelGroup(epochs=3, batch_size=64, dropout=0.0, random_state=9).fit(X, Y)
    assert np.abs(plain.weight_ - decoder.weight_).max() > 1e-3


def test_a_generator_for_mixup_leaves_the_others_as_they_were():
    assert all(seeds(state, 4)[:3] == seeds(state, 3) for state in (0, 9, 1337))


@pytest.mark.parametrize(("name", "bad"), [("loss", "focal"), ("mixup", -0.1), ("mixup", "yes")])
def test_unknown_losses_and_mixups_are_refused(name, bad):
    with pytest.raises(ValueError, match=name):
        ChannelGroup(**{name: bad}).fit(*mixtures())


def test_each_species_reads_its_own_channels_in_class_order():
    X, Y = mixtures(D=26)
    decoder = ChannelGroup(epochs=2).fit(X, Y)
    logits = decoder.tile_scores(X)
    for k in range(6):
        own = X[..., 4 * k : 4 * k + 4].astype(float) @ decoder.weight_[k] + decoder.bias_[k]
        assert logits[..., k] == pytest.approx(own, abs=1e-12)


def test_channel_group_learns_from_its_own_group_only():
    # class k is present where the k-th pair of channels points up: any other order of groups would not be learnt
    rng = np.random.default_rng(0)
    Y = (rng.random((400, 3)) < 0.5).astype(int)
    X = unit(np.repeat(2.0 * Y - 1.0, 2, axis=1)[:, None] + 0.1 * rng.normal(size=(400, 2, 6)))
    decoder = ChannelGroup(epochs=60, batch_size=64).fit(X, Y).calibrate(X, Y)
    assert np.array_equal(decoder.predict(X), Y)


@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.25])
def test_channel_group_training_equals_a_loop_written_out(dropout):
    X, Y = mixtures(n=75, D=26)
    start = ChannelGroup(epochs=0, random_state=9).fit(X, Y)
    decoder = ChannelGroup(epochs=3, batch_size=64, dropout=dropout, random_state=9).fit(X, Y)
    tiles, labels = torch.from_numpy(X.reshape(-1, 26)), torch.from_numpy(np.repeat(Y, 4, axis=0)).float()
    weight = torch.tensor(start.weight_, dtype=torch.float32, requires_grad=True)
    bias = torch.zeros(6, requires_grad=True)
    optimiser = torch.optim.AdamW([weight, bias], lr=1e-2, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(seeds(9, 3)[1])
    drop = _ChannelDropout(64, tiles, dropout, seeds(9, 3)[2])
    for _ in range(3):
        for index in torch.randperm(300, generator=generator).split(64):
            z = drop(tiles[index]) / (1 - dropout)
            logits = torch.stack([z[:, 4 * k : 4 * k + 4] @ weight[k] + bias[k] for k in range(6)], dim=1)
            optimiser.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[index]).backward()
            optimiser.step()
    assert decoder.weight_ == pytest.approx(weight.detach().numpy(), abs=1e-5)
    assert decoder.bias_ == pytest.approx(bias.detach().numpy(), abs=1e-5)


@pytest.mark.parametrize("probability", [0.5, 0.25])
def test_dropout_keeps_the_stated_share_and_the_expected_logit(probability):
    rows = torch.ones(512, 60)
    drop = _ChannelDropout(512, rows, probability, seed=0)
    first, second = drop(rows).clone(), drop(rows).clone()
    for mask in (first, second):
        assert set(mask.unique().tolist()) == {0.0, 1.0}
        assert mask.mean().item() == pytest.approx(1 - probability, abs=0.01)
    assert not torch.equal(first, second)
    assert drop.keep == 1 - probability
    # columns and rows are independent: no channel or tile is dropped as a whole
    assert first.mean(dim=0).std() < 0.04
    assert (first / drop.keep).mean().item() == pytest.approx(1.0, abs=0.02)


def test_both_aggregations_by_hand():
    X, Y = mixtures()
    logits = np.array([[[0.0], [2.0]], [[-800.0], [800.0]]])
    sigmoid = 1 / (1 + np.exp(-2.0))
    mean_of_logits = ChannelGroup(aggregation="logit", epochs=0).fit(X, Y).aggregate(logits)
    mean_of_sigmoids = ChannelGroup(aggregation="sigmoid", epochs=0).fit(X, Y).aggregate(logits)
    assert mean_of_logits.ravel() == pytest.approx([1 / (1 + np.exp(-1.0)), 0.5])
    assert mean_of_sigmoids.ravel() == pytest.approx([(0.5 + sigmoid) / 2, 0.5])


def test_untrained_channel_group_is_the_constant_predictor():
    # its scores are all near one half, every low grid point ties, the lowest is kept (protocol 3.4)
    _, Y = mixtures()
    X = unit(np.ones((60, 4, 384)) + 0.01 * np.random.default_rng(0).normal(size=(60, 4, 384)))
    decoder = ChannelGroup(epochs=0).fit(X, Y)
    assert np.abs(decoder.decision_function(X) - 0.5).max() < 0.05
    decoder.calibrate(X[:30].repeat(2, axis=0), np.ones_like(Y))
    assert decoder.thresholds_ == pytest.approx(np.full(6, 0.01))
    assert decoder.predict(X).all()


# all together


def test_all_present_says_yes_to_everything():
    X, Y = mixtures()
    decoder = AllPresent().fit(X, Y).calibrate(X, Y)
    assert decoder.predict(X[:5]).tolist() == [[1] * 6] * 5


def test_read_only_memory_map_gives_the_same_result(tmp_path):
    X, Y = mixtures(n=90)
    np.save(tmp_path / "features.npy", X)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    for kind in (ProtoMatch, lambda: SimplexUnmix(recipe="random", epochs=1), lambda: ChannelGroup(epochs=1)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first, second = kind().fit(X, Y), kind().fit(mapped, Y)
            assert np.array_equal(first.decision_function(X), second.decision_function(mapped))
    assert np.array_equal(X, np.load(tmp_path / "features.npy"))
