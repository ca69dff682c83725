"""Variants of SimplexUnmix against plain reference computations, and what must not change with a switch."""

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from sklearn.base import clone

from phoebi_lib.decoders import Decoder, SimplexUnmix
from phoebi_lib.studies import unmix_variants
from phoebi_lib.studies.unmix_variants import UnmixVariant, absent_mass, mean_cosine, orthonormal_rows, repulsion

K, D = 3, 8


def data(seed=0, n=24, tiles=4):
    """Pure cultures and pairs of three species; a tile shows one species of its image, noisily."""
    rng = np.random.default_rng(seed)
    centre = np.eye(K, D) + 0.8
    Y = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]])[np.arange(n) % 6]
    shown = np.array([[rng.choice(np.flatnonzero(row)) for _ in range(tiles)] for row in Y])
    X = centre[shown] + rng.normal(0, 0.3, (n, tiles, D))
    return (X / np.linalg.norm(X, axis=2, keepdims=True)).astype(np.float32), Y


def simplex(v):
    """The projection onto the simplex by bisection on its threshold: another way than sorting."""
    low, high = v.min() - 1, v.max()
    for _ in range(100):
        mid = (low + high) / 2
        low, high = (mid, high) if np.maximum(v - mid, 0).sum() > 1 else (low, mid)
    return np.maximum(v - high, 0)


def reference_loss(parameters, X, Y, *, tau=10.0, lam=0.0, rho=0.0, tau_r=0.1):
    """Reconstruction, repulsion and absent mass by loops over tiles and pairs."""
    P = parameters.reshape(K, -1)
    P = P / np.linalg.norm(P, axis=1, keepdims=True)
    total = 0.0
    for tiles, labels in zip(X.astype(float), Y, strict=True):
        for z in tiles:
            w = simplex(tau * P @ z)
            total += np.sum((z - P.T @ w) ** 2) + lam * np.sum(w[labels == 0])
    pairs = [np.exp(P[i] @ P[j] / tau_r) for i in range(K) for j in range(K) if i != j]
    return total / X[..., 0].size + rho * np.mean(pairs)


def test_with_all_switches_off_it_is_simplex_unmix():
    X, Y = data()
    for recipe in ("lco", "random", "ablation"):
        plain = SimplexUnmix(recipe=recipe, epochs=5, random_state=3).fit(X, Y)
        variant = UnmixVariant(recipe=recipe, epochs=5, random_state=3).fit(X, Y)
        assert np.allclose(plain.prototypes_, variant.prototypes_, atol=1e-4) and plain.updates_ == variant.updates_
        assert np.allclose(plain.losses_, variant.losses_, rtol=1e-4)
        assert np.allclose(plain.decision_function(X), variant.decision_function(X), atol=1e-4)
        assert np.allclose(plain.residual(X), variant.residual(X), atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"lam": 2.0}, {"rho": 0.3}, {"lam": 1.0, "rho": 0.01}], ids=str)
def test_loss_and_gradient_against_loops(settings):
    X, Y = data(1, n=6, tiles=2)
    raw = torch.tensor(np.random.default_rng(5).normal(size=(K, D)), dtype=torch.float64, requires_grad=True)
    variant = UnmixVariant(absent_mass=settings.get("lam", 0.0), repulsion=settings.get("rho", 0.0))
    tiles = torch.from_numpy(X.astype(np.float64)).reshape(-1, D)
    labels = torch.from_numpy(np.repeat(Y, X.shape[1], axis=0).astype(np.float64))
    loss = variant._loss(tiles, labels, raw, torch.full((K,), np.log(10.0)), None, 1.0)
    loss.backward()
    start = raw.detach().numpy().ravel()
    # float32 features are unit vectors to 1e-7 only
    assert np.isclose(loss.item(), reference_loss(start, X, Y, **settings), atol=1e-5)
    slope = approx_fprime(start, lambda parameters: reference_loss(parameters, X, Y, **settings), 1e-6)
    assert np.allclose(raw.grad.numpy().ravel(), slope, atol=1e-3)


def test_parts_of_the_loss_by_hand():
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    # cosines of the ordered pairs: 0 four times, -1 twice
    assert np.isclose(repulsion(rows, 0.5).item(), (4 + 2 * np.exp(-2)) / 6)
    assert repulsion(rows[:1]).item() == 0
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.0, 0.8]])
    labels = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    assert np.isclose(absent_mass(weights, labels).item(), (0.5 + 0.8) / 2)
    assert np.isclose(mean_cosine(np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0], [-1.0, 0.0]])), (0 + 0 - 1) / 3)
    assert np.isnan(mean_cosine(np.eye(1)))


def test_temperatures_move_and_scale_the_scores():
    X, Y = data()
    variant = UnmixVariant(learn_temperature=True, updates=60, learning_rate=0.02).fit(X, Y)
    assert variant.temperatures_.shape == (K,) and np.abs(variant.temperatures_ - 10).max() > 0.1
    z = X[0, 0].astype(float)
    assert np.allclose(variant.tile_scores(X[:1])[0, 0], simplex(variant.temperatures_ * (variant.prototypes_ @ z)))
    assert np.array_equal(UnmixVariant(updates=20).fit(X, Y).temperatures_, np.full(K, 10.0))
    with_fewer = UnmixVariant(learn_temperature=True, updates=0).fit(X, Y)
    assert np.allclose(with_fewer.temperatures_, 10) and with_fewer.updates_ == 0


def test_repulsion_spreads_prototypes_and_the_penalty_moves_weight():
    X, Y = data()
    settings = {"updates": 150, "learning_rate": 0.01}
    plain = UnmixVariant(**settings).fit(X, Y)
    apart = UnmixVariant(repulsion=1.0, **settings).fit(X, Y)
    assert mean_cosine(apart.prototypes_) < mean_cosine(plain.prototypes_) - 0.1
    assert mean_cosine(apart.prototypes_) >= -1 / (K - 1) - 1e-9
    charged = UnmixVariant(absent_mass=10.0, **settings).fit(X, Y)

    def mass(decoder):
        return (decoder.tile_scores(X) * (1 - Y[:, None, :])).sum(axis=2).mean()

    assert mass(charged) < mass(plain)
    losses = [unmix_variants.reconstruction_loss(decoder, X) for decoder in (plain, charged)]
    z, w = X.astype(float).reshape(-1, D), plain.tile_scores(X).reshape(-1, K)
    squared = [np.sum((a - b @ plain.prototypes_) ** 2) for a, b in zip(z, w, strict=True)]
    assert np.isclose(losses[0], np.mean(squared))
    assert losses[1] > losses[0]


def test_only_the_penalty_reads_the_labels_of_mixtures():
    X, Y = data()
    other = Y.copy()
    mixed = Y.sum(axis=1) == 2
    other[mixed] = Y[mixed][::-1]  # pure cultures, hence the prototypes' start, stay
    for settings, same in (({"learn_temperature": True}, True), ({"repulsion": 0.1}, True), ({"subspace": 2}, True),
                           ({"absent_mass": 1.0}, False)):  # fmt: skip
        fits = [UnmixVariant(updates=10, **settings).fit(X, labels).prototypes_ for labels in (Y, other)]
        assert np.array_equal(*fits) == same, settings


def test_subspace_rows_stay_orthonormal_and_scores_are_those_of_projected_units():
    X, Y = data()
    variant = UnmixVariant(subspace=3, updates=40, learning_rate=0.02, random_state=1).fit(X, Y)
    W, P = variant.basis_, variant.prototypes_
    assert W.shape == (3, D) and P.shape == (K, 3)
    assert np.allclose(W @ W.T, np.eye(3), atol=1e-6) and np.allclose(np.linalg.norm(P, axis=1), 1)
    z = W @ X[5, 2].astype(float)
    z /= np.linalg.norm(z)
    assert np.allclose(variant.tile_scores(X[5:6])[0, 2], simplex(10 * P @ z))
    residual = [np.linalg.norm(z - P.T @ simplex(10 * P @ z))
                for z in (W @ t / np.linalg.norm(W @ t) for t in X[5].astype(float))]  # fmt: skip
    assert np.isclose(variant.residual(X[5:6])[0], np.mean(residual))


def test_subspace_starts_at_the_leading_directions():
    X, Y = data()
    start = UnmixVariant(subspace=2, epochs=0).fit(X, Y)
    flat = X.reshape(-1, D).astype(float)
    leading = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)[2][:2]
    assert np.allclose(np.abs(leading @ start.basis_.T), np.eye(2), atol=1e-4)
    hybrid = SimplexUnmix(epochs=0).fit(X, Y).prototypes_ @ start.basis_.T
    assert np.allclose(start.prototypes_, hybrid / np.linalg.norm(hybrid, axis=1, keepdims=True), atol=1e-5)


def test_orthonormal_rows_by_gram_schmidt():
    free = np.random.default_rng(2).normal(size=(3, 6))
    expected = []
    for row in free:
        for other in expected:
            row = row - (row @ other) * other
        expected.append(row / np.linalg.norm(row))
    assert np.allclose(orthonormal_rows(torch.from_numpy(free)).numpy(), expected)
    again = orthonormal_rows(torch.tensor(np.array(expected)))
    assert np.allclose(again.numpy(), expected), "orthonormal rows stay as they are"


@pytest.mark.parametrize("settings", [{"learn_temperature": True}, {"repulsion": 0.1}, {"absent_mass": 1.0},
                                      {"subspace": 2, "absent_mass": 1.0}], ids=str)  # fmt: skip
def test_save_load_clone_and_repeat(settings, tmp_path):
    X, Y = data()
    variant = UnmixVariant(updates=5, random_state=2, **settings).fit(X, Y).calibrate(X, Y)
    again = clone(variant).fit(X, Y)
    assert np.array_equal(variant.prototypes_, again.prototypes_)
    variant.save(tmp_path)
    loaded = Decoder.load(tmp_path)
    assert np.array_equal(loaded.predict(X), variant.predict(X)) and loaded.get_params() == variant.get_params()
    # one image at a time, in another order, gives the same scores
    order = np.random.default_rng(0).permutation(len(X))
    single = np.concatenate([variant.decision_function(X[[i]]) for i in order])
    assert np.allclose(single, variant.decision_function(X)[order])


def test_a_species_in_no_image_takes_no_part():
    X, Y = data()
    Y = np.column_stack([Y, np.zeros(len(Y), dtype=int)])
    with pytest.warns(UserWarning, match="class 3 is in no training image"):
        variant = UnmixVariant(updates=5, repulsion=0.1, absent_mass=1.0, learn_temperature=True).fit(X, Y)
    assert not variant.prototypes_[3].any() and variant.temperatures_[3] == 10
    assert not variant.decision_function(X)[:, 3].any()


@pytest.mark.parametrize(("settings", "message"), [
    ({"repulsion": -1}, "repulsion must be a number >= 0"), ({"absent_mass": -0.1}, "absent_mass must be"),
    ({"repulsion_tau": 0}, "repulsion_tau must be a number > 0"), ({"subspace": 0}, "subspace must be an integer"),
    ({"batch_size": 0}, "batch_size must be"), ({"subspace": D + 1}, "subspace must not exceed the 8 features"),
])  # fmt: skip
def test_bad_parameters_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        UnmixVariant(**settings).fit(*data())
