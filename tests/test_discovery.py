"""Discovery: every way of proposing, the gates, the assignment and the calls, by hand and against references."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phoebi_lib.decoders import SimplexUnmix, sparsemax
from phoebi_lib.decoders.prototypes import hybrid_prototypes
from phoebi_lib.openworld import gates, heads
from phoebi_lib.openworld.discovery import (
    assign,
    greedy_centroids,
    known_calls,
    labelled_tiles,
    mean_tiles,
    mixture_weights,
    propose,
)
from phoebi_lib.openworld.sinkhorn import balance, sinkhorn_centroids, spread_out


def unit(X):
    X = np.asarray(X, dtype=np.float64)
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def images(n=30, T=4, D=12, seed=0):
    rng = np.random.default_rng(seed)
    return unit(rng.normal(size=(n, T, D)) + 1.0).astype(np.float32)


def clouds(sizes=(60, 40, 30), D=8, spread=0.05, seed=0):
    """Tight clouds around the first unit vectors, one after the other."""
    rng = np.random.default_rng(seed)
    return unit(np.concatenate([np.eye(D)[c] + spread * rng.normal(size=(n, D)) for c, n in enumerate(sizes)]))


def t(values):
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


# Sinkhorn-Knopp


def test_balance_by_hand():
    # columns sum to 3 and 1 of 4: scaled to halves, then rows to halves; one round, rows end at 1
    found = balance(torch.tensor([[2.0, 0.0], [1.0, 1.0]], dtype=torch.float64), rounds=1).numpy()
    assert found == pytest.approx(np.array([[1.0, 0.0], [0.25, 0.75]]))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(6, 40), st.integers(0, 1000))
def test_balanced_rows_are_distributions_and_columns_grow_even(k, n, seed):
    mass = torch.from_numpy(np.random.default_rng(seed).uniform(0.1, 3.0, size=(n, k)))
    once, often = balance(mass).numpy(), balance(mass, rounds=200).numpy()
    assert once.sum(axis=1) == pytest.approx(np.ones(n))
    assert often.sum(axis=0) == pytest.approx(np.full(k, n / k), rel=1e-4)
    assert balance(7.0 * mass).numpy() == pytest.approx(once), "a common factor changes nothing"


def sinkhorn_reference(Z, centroids, rounds=30):
    """The same in the other layout: prototypes down, tiles across, in numpy."""
    for _ in range(rounds):
        Q = np.exp(centroids @ Z.T / 0.05)
        Q /= Q.sum()
        for _ in range(3):
            Q /= Q.sum(axis=1, keepdims=True) * len(Q)
            Q /= Q.sum(axis=0, keepdims=True) * Q.shape[1]
        centroids = unit((Q / Q.sum(axis=0)) @ Z)
    return centroids


@pytest.mark.parametrize("k", [1, 2, 4])
def test_sinkhorn_equals_the_reference_from_the_same_start(k):
    Z = images().reshape(-1, 12)
    start = spread_out(t(Z), k, np.random.default_rng(5)).numpy()
    assert len(np.unique(start, axis=0)) == k
    found = sinkhorn_centroids(t(Z), k, 5).numpy()
    assert found == pytest.approx(sinkhorn_reference(Z.astype(float), start.astype(float)), abs=1e-5)


def test_one_centroid_is_the_normalised_mean_whatever_the_seed():
    X = images()
    expected = unit(X.reshape(-1, 12).mean(axis=0))
    for seed in (0, 1, 99):
        assert propose(X, "sinkhorn", 1, seed)[0] == pytest.approx(expected, abs=1e-6)


def test_sinkhorn_finds_even_clouds():
    Z = clouds((50, 50, 50))
    found = sinkhorn_centroids(t(Z), 3, 0).numpy()
    assert np.sort((found @ np.eye(8)[:3].T).max(axis=0)) == pytest.approx(np.ones(3), abs=0.02)


def test_spread_out_never_draws_a_tile_that_is_already_drawn():
    tiles = t(np.repeat(np.eye(4), 25, axis=0))
    for seed in range(20):
        assert len(np.unique(spread_out(tiles, 4, np.random.default_rng(seed)).numpy(), axis=0)) == 4
    assert len(spread_out(t(np.ones((9, 4)) / 2), 3, np.random.default_rng(0))) == 3, "equal tiles are drawn from too"


# greedy


def greedy_reference(Z, threshold, size):
    free, out = list(range(len(Z))), []
    while free:
        seed = free[0]
        near = [i for i in free if i == seed or Z[i] @ Z[seed] > threshold]
        if len(near) >= size:
            out.append(Z[near].mean(axis=0))
            free = [i for i in free if i not in near]
        else:
            free.remove(seed)
    return unit(out) if out else np.empty((0, Z.shape[1]))


def test_greedy_by_hand():
    angles = np.deg2rad([0, 10, 20, 80, 90, 200])
    Z = np.column_stack([np.cos(angles), np.sin(angles)])
    found = greedy_centroids(Z, threshold=0.9, min_size=2)
    # 0 takes 10 and 20; 80 takes 90; 200 is alone
    expected = unit([Z[:3].mean(axis=0), Z[3:5].mean(axis=0)])
    assert found == pytest.approx(expected)
    assert greedy_centroids(Z, threshold=0.9, min_size=3) == pytest.approx(expected[:1])
    assert greedy_centroids(Z, threshold=0.9, min_size=4).shape == (0, 2)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.floats(0.2, 0.9), st.integers(1, 12))
def test_greedy_equals_the_reference(seed, threshold, size):
    Z = images(12, 4, 6, seed).reshape(-1, 6).astype(np.float64)
    assert greedy_centroids(Z, threshold, size) == pytest.approx(greedy_reference(Z, threshold, size))


def test_greedy_cuts_tight_clouds_as_large_as_asked():
    Z = clouds((60, 50, 49))
    found = propose(Z[:, None], "greedy")
    assert found @ np.eye(8)[:2].T == pytest.approx(np.eye(2), abs=0.05), "49 tiles are too few for the third"


# heads


def test_uno_loss_and_descent():
    Z, C = images().reshape(-1, 12), unit(np.random.default_rng(1).normal(size=(3, 12)) + 0.5)
    assigned = np.eye(3)[(Z @ C.T).argmax(axis=1)]
    p = 1 / (1 + np.exp(-10 * Z @ C.T))
    expected = -(assigned * np.log(p) + (1 - assigned) * np.log(1 - p)).mean()
    assert heads.uno_loss(t(C), t(Z), t(assigned)).item() == pytest.approx(expected, rel=1e-4)
    assert heads.uno_loss(3 * t(C), t(Z), t(assigned)).item() == pytest.approx(expected, rel=1e-4), "length is free"
    start = sinkhorn_centroids(t(Z), 3, 2).float()
    hard = t(np.eye(3)[(Z @ start.numpy().T).argmax(axis=1)])
    end = heads.uno_centroids(t(Z), 3, 2)
    assert heads.uno_loss(end.float(), t(Z), hard) < heads.uno_loss(start, t(Z), hard)
    assert end.norm(dim=1).numpy() == pytest.approx(np.ones(3))
    # one step of Adam moves every coordinate by the learning rate: the first step does not see the gradient's size
    moved = (heads.uno_centroids(t(Z), 3, 2, steps=1, learning_rate=1e-4) - start).abs().numpy()
    assert moved.max() < 1.6e-4 and np.median(moved) > 0.5e-4


def crkd_reference(row, known, Z, weight):
    P = np.concatenate([known, unit(row)])
    w = sparsemax(torch.from_numpy(10 * Z @ P.T)).numpy()
    teacher = sparsemax(torch.from_numpy(10 * Z @ known.T)).numpy()
    mass = w[:, :-1].sum(axis=1)
    gap = ((w[:, :-1] - teacher) ** 2) * (mass / mass.mean())[:, None]
    return ((Z - w @ P) ** 2).mean() + weight * gap.mean()


@pytest.mark.parametrize("weight", [0.0, 1e-3, 1.0])
def test_crkd_loss_equals_the_reference(weight):
    rng = np.random.default_rng(3)
    Z = images().reshape(-1, 12).astype(np.float64)
    known, row = unit(rng.normal(size=(4, 12)) + 1), 2.0 * unit(rng.normal(size=(1, 12)) + 1)
    found = heads.crkd_loss(*(torch.from_numpy(v) for v in (row, known, Z)), weight).item()
    assert found == pytest.approx(crkd_reference(row, known, Z, weight), rel=1e-6)


def test_crkd_gate_takes_no_gradient():
    rng = np.random.default_rng(3)
    Z = images().reshape(-1, 12).astype(np.float64)
    known = unit(rng.normal(size=(4, 12)) + 1)
    row = torch.from_numpy(unit(rng.normal(size=(1, 12)) + 1)).requires_grad_()
    heads.crkd_loss(row, torch.from_numpy(known), torch.from_numpy(Z), 1.0).backward()
    w = sparsemax(torch.from_numpy(10 * Z @ np.concatenate([known, row.detach().numpy()]).T)).numpy()
    mass = w[:, :-1].sum(axis=1)
    gate = (mass / mass.mean())[:, None]

    def frozen(r):
        P = np.concatenate([known, unit(r)])
        w = sparsemax(torch.from_numpy(10 * Z @ P.T)).numpy()
        teacher = sparsemax(torch.from_numpy(10 * Z @ known.T)).numpy()
        return ((Z - w @ P) ** 2).mean() + (gate * (w[:, :-1] - teacher) ** 2).mean()

    r, h = row.detach().numpy(), 1e-6
    numeric = [(frozen(r + h * e) - frozen(r - h * e)) / (2 * h) for e in np.eye(12)[:, None]]
    assert row.grad.numpy()[0] == pytest.approx(np.array(numeric), abs=1e-6)


def test_crkd_moves_the_new_row_alone_and_downhill():
    X = images()
    known = unit(np.random.default_rng(4).normal(size=(4, 12)) + 0.5)
    start, end = propose(X, "sinkhorn"), propose(X, "crkd", known=known, weight=1e-3)
    Z = X.reshape(-1, 12).astype(np.float64)
    assert crkd_reference(end, known, Z, 1e-3) < crkd_reference(start, known, Z, 1e-3)
    assert np.abs(end - start).max() > 1e-3
    assert propose(X, "crkd", known=known, weight=1e-3) == pytest.approx(end), "nothing is random"
    assert propose(X, "crkd", known=known, steps=0) == pytest.approx(start, abs=1e-6)


def simgcd_reference(labelled, bits, unlabelled):
    p = 1 / (1 + np.exp(-labelled[:, :-1] / 0.1))
    supervised = -(bits * np.log(p) + (1 - bits) * np.log(1 - p)).mean()
    q = unit_rows = np.exp(unlabelled / 0.1) / np.exp(unlabelled / 0.1).sum(axis=1, keepdims=True)
    for _ in range(3):
        q = q / q.sum(axis=0) / q.shape[1]
        q = q / q.sum(axis=1, keepdims=True) / len(q)
    q = q / q.sum(axis=1, keepdims=True)
    return 0.5 * supervised - 0.5 * (q * np.log(unit_rows)).sum(axis=1).mean()


def test_simgcd_loss_equals_the_reference():
    rng = np.random.default_rng(0)
    labelled, unlabelled = rng.uniform(0, 1, size=(50, 6)), rng.uniform(0, 1, size=(70, 6))
    bits = (rng.random((50, 5)) < 0.4).astype(float)
    found = heads.simgcd_loss(*(torch.from_numpy(v) for v in (labelled, bits, unlabelled))).item()
    assert found == pytest.approx(simgcd_reference(labelled, bits, unlabelled), rel=1e-6)


def simgcd_setting(n=40):
    X, known = images(n), unit(np.random.default_rng(4).normal(size=(5, 12)) + 0.5)
    Y = (np.random.default_rng(5).random((n, 5)) < 0.5).astype(int)
    return X, known, (images(n, seed=9), Y)


def test_simgcd_without_epochs_is_the_sinkhorn_centroid_and_a_prefix_is_a_shorter_run():
    X, known, labelled = simgcd_setting()
    start = propose(X, "sinkhorn")
    assert propose(X, "simgcd", known=known, labelled=labelled, epochs=0) == pytest.approx(start, abs=1e-6)
    tiles, both = t(X).flatten(0, 1), labelled_tiles(*labelled)
    run = heads.simgcd_prototypes(tiles, t(known), both, updates=(0, 3, 9), random_state=1, batch=64)
    # 160 labelled tiles in batches of 64: an epoch is three steps
    assert heads.simgcd_steps(160, 64) == 3
    for epochs, updates in ((0, 0), (1, 3), (3, 9)):
        alone = propose(X, "simgcd", 1, 1, known=known, labelled=labelled, epochs=epochs, batch=64)
        assert alone == pytest.approx(run[updates].numpy(), abs=1e-7)
    assert np.abs(run[9].numpy() - start).max() > 1e-2
    other = heads.simgcd_prototypes(tiles, t(known), both, updates=(9,), random_state=2, batch=64)[9]
    assert (other - run[9]).abs().max() > 1e-5, "the seed draws the batches"


def test_simgcd_learns_what_it_is_taught(monkeypatch):
    X, known, labelled = simgcd_setting()
    seen = []
    inner = heads.simgcd_loss

    def watched(*args):
        seen.append((inner(*args).item(), len(args[0]), len(args[2])))
        return inner(*args)

    monkeypatch.setattr(heads, "simgcd_loss", watched)
    heads.simgcd_prototypes(t(X).flatten(0, 1), t(known), labelled_tiles(*labelled), updates=(60,), learning_rate=1e-2,
                            batch=100)  # fmt: skip
    assert [size for _, size, _ in seen[:4]] == [100, 60, 100, 60], "160 labelled tiles, the last batch is smaller"
    assert {drawn for _, _, drawn in seen} == {100}
    assert np.mean([loss for loss, _, _ in seen[-6:]]) < np.mean([loss for loss, _, _ in seen[:6]])


def test_few_and_many_test_tiles_give_the_same_head(monkeypatch):
    """Tiles are read before or after drawing, whichever is less work: the answer is the same."""
    X, known, labelled = simgcd_setting()
    tiles, both = t(X).flatten(0, 1), labelled_tiles(*labelled)
    draws = torch.randint

    def run(tiles):
        return heads.simgcd_prototypes(tiles, t(known), both, updates=(5,), random_state=0, batch=161)[5]

    # a 161st tile that is never drawn and does not move the mean
    more = torch.cat([tiles, torch.nn.functional.normalize(tiles.mean(dim=0, keepdim=True), dim=1)])
    monkeypatch.setattr(torch, "randint", lambda high, size, generator: draws(160, size, generator=generator))
    assert run(tiles).numpy() == pytest.approx(run(more).numpy(), abs=1e-5)


# gates


def test_gates():
    X, known = images(), unit(np.eye(12)[:3] + 0.1)
    w = sparsemax(torch.from_numpy(10 * X.astype(float) @ known.T)).numpy()
    residual = np.linalg.norm(X - w @ known, axis=2)
    cut = float(np.median(residual))
    assert (gates.residual_gate(X, known, cut) == (residual > cut)).all()
    assert gates.residual_gate(X, known).all(), "far from all prototypes, 0.15 admits everything"
    # the 0.95 quantile of 0..20 lies at 19, and equality does not pass
    assert gates.quantile_gate(np.array([18.9, 19.0, 19.1]), np.arange(21.0)).tolist() == [False, False, True]


def test_normalised_scores_by_hand():
    scores = np.array([[1.0, 3.0], [4.0, 8.0], [5.0, 9.0]])
    reference = gates.class_references(scores, np.array([0, 1, -1]), 3)
    assert reference == pytest.approx([2.0, 6.0, 1.0])
    assert gates.class_references(np.zeros((1, 2)), np.array([0]), 1) == pytest.approx([1e-6])
    nearest = np.array([[0, 1], [1, 2], [0, 0]])
    found = gates.with_normalised({"residual": scores}, nearest, {"residual": reference})
    assert found["normalised residual"] == pytest.approx(scores / np.array([[2, 6], [6, 1], [2, 2]]))
    assert gates.nearest_known(unit([[[1, 0.2], [0.1, 1]]]), np.eye(2)).tolist() == [[0, 1]]


def test_tile_scores_are_those_of_the_open_set_page():
    X, bank = images(), images(seed=7).reshape(-1, 12)
    found = gates.tile_scores(X, unit(np.eye(12)[:3] + 0.1), bank, k=3)
    cosines = np.sort(X.reshape(-1, 12) @ bank.T, axis=1)[:, -3]
    assert found["k-NN"].reshape(-1) == pytest.approx(1 - cosines, abs=1e-5)
    assert found["residual"].shape == (30, 4)


# propose


def test_a_gate_leaves_tiles_out_and_too_few_propose_nothing():
    X = images(40)
    gate = np.zeros((40, 4), dtype=bool)
    gate[:13, 0], gate[20:32, 1:3] = True, True
    assert propose(X, gate=gate).shape == (0, 12), "37 tiles are fewer than 50"
    found = propose(X, gate=gate, min_tiles=37)
    assert found[0] == pytest.approx(unit(X[gate].mean(axis=0)), abs=1e-6)
    assert propose(X, k=8, gate=gate, min_tiles=1).shape == (0, 12), "five tiles a prototype are needed"
    assert propose(X, k=7, gate=gate, min_tiles=1).shape == (7, 12)
    assert propose(X, "greedy", 8, gate=gate, min_tiles=1).shape[1] == 12


def test_propose_refuses():
    X, known = images(), unit(np.eye(12)[:3] + 0.1)
    with pytest.raises(ValueError, match="method must be one of .*'sinkhorn'.*found 'kmeans'"):
        propose(X, "kmeans")
    for method in ("crkd", "simgcd"):
        with pytest.raises(ValueError, match=f"{method} proposes one prototype; found k=2"):
            propose(X, method, 2, known=known)
        with pytest.raises(ValueError, match=f"{method} starts from the known species"):
            propose(X, method)
    with pytest.raises(ValueError, match="simgcd trains on labelled images"):
        propose(X, "simgcd", known=known)
    with pytest.raises(ValueError, match="unit norm"):
        propose(2 * X)
    with pytest.raises(ValueError, match=r"gate must be bool of shape \(30, 4\); found bool \(30,\)"):
        propose(X, gate=np.ones(30, dtype=bool))
    with pytest.raises(ValueError, match="30 labelled images and 2 rows"):
        propose(X, "simgcd", known=known, labelled=(X, np.ones((2, 3))))
    with pytest.raises(ValueError, match="k must be an integer"):
        propose(X, k=0)
    with pytest.raises(ValueError, match="at least one number of steps"):
        heads.simgcd_prototypes(t(X[:, 0]), t(known), labelled_tiles(X, np.ones((30, 3))), updates=())


@pytest.mark.parametrize("method", ["sinkhorn", "uno"])
def test_seeds_repeat(method):
    X = images(60)
    assert propose(X, method, 4, 3) == pytest.approx(propose(X, method, 4, 3), abs=0)
    assert np.abs(propose(X, method, 4, 3) - propose(X, method, 4, 4)).max() > 1e-3


# assign and calls


def test_assign_by_hand():
    known, new = np.eye(3)[:2], np.array([[0.0, 0.0, 1.0], [0.0, 0.6, 0.8]])
    X = np.array([[[1, 0, 0], [0, 0, 1]], [[0, 0, 1], [0, 0, 1]], [[0, 0.6, 0.8]] * 2, [[0, 1, 0], [1, 0, 0]]], float)
    slot, margin = assign(X, known, new)
    # the first is 0.5 to known 0 and to new 0: a tie goes to the known species
    assert slot.tolist() == [-1, 0, 1, -1]
    assert margin == pytest.approx([0.0, 1.0, 1.0 - 0.6, 0.3 - 0.5])
    slot, margin = assign(X, known, np.empty((0, 3)))
    assert slot.tolist() == [-1] * 4 and margin.tolist() == [-2.0] * 4


def test_assign_reads_the_mean_cosine_and_not_the_order_of_anything():
    X, known = images(), unit(np.random.default_rng(1).normal(size=(5, 12)) + 1)
    new = unit(np.random.default_rng(2).normal(size=(3, 12)) + 1)
    slot, margin = assign(X, known, new)
    cosines = (X.astype(float) @ np.concatenate([known, new]).T).mean(axis=1)
    assert (slot == np.where(cosines.argmax(axis=1) < 5, -1, cosines.argmax(axis=1) - 5)).all()
    order = np.random.default_rng(3).permutation(30)
    again = assign(X[order][:, ::-1], known[::-1], new)
    assert (again[0] == slot[order]).all() and again[1] == pytest.approx(margin[order])
    assert mean_tiles(X) == pytest.approx(X.astype(float).mean(axis=1))


def test_weights_are_simplex_unmixs():
    X = images(40)
    Y = np.eye(4, dtype=int)[np.arange(40) % 4]
    decoder = SimplexUnmix(epochs=0).fit(X, Y)
    assert mixture_weights(X, hybrid_prototypes(X, Y)[0]) == pytest.approx(decoder.decision_function(X))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 4))
def test_appending_rows_takes_weight_and_calls_away_and_never_adds(seed, n_new):
    rng = np.random.default_rng(seed)
    X = images(10, seed=seed)
    known, new = unit(rng.normal(size=(5, 12)) + 0.7), unit(rng.normal(size=(n_new, 12)) + 0.7)
    before, after = mixture_weights(X, known), mixture_weights(X, np.concatenate([known, new]))
    assert after.sum(axis=1) == pytest.approx(np.ones(10))
    assert (after[:, :5] <= before + 1e-9).all()
    thresholds = np.full(5, 0.1)
    assert (known_calls(after, thresholds) <= known_calls(before, thresholds)).all()
    assert known_calls(np.array([[0.1, 0.2, 0.7]]), np.array([0.1, 0.1])).tolist() == [[0, 1]]
