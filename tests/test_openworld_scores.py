"""Open-set scores and the neighbour search against slow references, hand-worked cases and invariances."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from phoebi_lib.decoders import SimplexUnmix
from phoebi_lib.openworld import energy_score, knn_score, max_cosine_score, residual_score
from phoebi_lib.openworld.knn import kth_cosine, largest_cosines
from phoebi_lib.openworld.scores import AGGREGATIONS, tile_knn, tile_max_cosine, tile_residual


def unit(values):
    return (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(3)


@pytest.fixture(scope="module")
def X(rng):
    return unit(rng.normal(size=(7, 4, 12)))


@pytest.fixture(scope="module")
def P(rng):
    return unit(rng.normal(size=(5, 12)))


@pytest.fixture(scope="module")
def bank(rng):
    return unit(rng.normal(size=(731, 12)))


def simplex_weights(logits):
    """Project by root finding: sparsemax is relu(logits - t) with t such that the weights sum to one."""
    t = brentq(lambda t: np.maximum(logits - t, 0).sum() - 1, logits.min() - 1, logits.max())
    return np.maximum(logits - t, 0)


# against references


def test_residual_is_the_mean_length_of_what_the_mixture_leaves(X, P):
    expected = [np.mean([np.linalg.norm(z - simplex_weights(10 * P @ z) @ P) for z in image]) for image in X]
    assert residual_score(X, P) == pytest.approx(expected, abs=1e-6)
    flatter = [np.mean([np.linalg.norm(z - simplex_weights(2 * P @ z) @ P) for z in image]) for image in X]
    assert residual_score(X, P, tau=2) == pytest.approx(flatter, abs=1e-6)


def test_residual_is_that_of_the_decoder():
    rng = np.random.default_rng(0)
    X, Y = unit(rng.normal(size=(12, 3, 8))), np.tile(np.eye(4, dtype=int), (3, 1))
    decoder = SimplexUnmix(epochs=0).fit(X, Y)
    assert residual_score(X, decoder.prototypes_) == pytest.approx(decoder.residual(X), abs=1e-9)


def test_max_cosine_is_the_distance_to_the_nearest_prototype(X, P):
    expected = [cdist(image, P, "cosine").min(axis=1).mean() - 1 for image in X]
    assert max_cosine_score(X, P) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_energy(X, P, temperature):
    expected = [
        np.mean([-temperature * np.log(sum(np.exp(float(p @ z) / temperature) for p in P)) for z in image])
        for image in X
    ]
    assert energy_score(X, P, temperature) == pytest.approx(expected, abs=1e-6)


def test_energy_turns_into_the_largest_cosine_when_cold(X, P):
    assert energy_score(X, P, 1e-4) == pytest.approx(max_cosine_score(X, P), abs=1e-3)


@pytest.mark.parametrize("k", [1, 10, 731])
def test_knn_is_the_kth_smallest_cosine_distance(X, bank, k):
    expected = [np.sort(cdist(image, bank, "cosine"), axis=1)[:, k - 1].mean() for image in X]
    assert knn_score(X, bank, k) == pytest.approx(expected, abs=1e-6)


def test_knn_default_is_the_tenth(X, bank):
    assert (knn_score(X, bank) == knn_score(X, bank, 10)).all()


# by hand


def test_hand_worked_scores():
    P = np.eye(2)
    half = np.sqrt(0.5)
    X = np.array([[[1.0, 0.0]], [[half, half]], [[-1.0, 0.0]]])
    # a prototype itself; half way; opposite to one, so that the other takes all weight
    assert residual_score(X, P) == pytest.approx([0.0, 1 - half, np.sqrt(2)], abs=1e-9)
    assert max_cosine_score(X, P) == pytest.approx([-1.0, -half, 0.0])
    assert energy_score(X, P, 1.0) == pytest.approx([-np.log(np.e + 1), -np.log(2) - half, -np.log(1 / np.e + 1)])
    assert knn_score(X, P, 1) == pytest.approx([0.0, 1 - half, 1.0])
    assert knn_score(X, P, 2) == pytest.approx([1.0, 1 - half, 2.0])


def test_scores_are_averaged_over_tiles_not_features():
    X = np.array([[[1.0, 0.0], [-1.0, 0.0]]])
    assert max_cosine_score(X, np.eye(2)) == pytest.approx([-0.5])
    assert tile_max_cosine(X, np.eye(2)).tolist() == [[-1.0, 0.0]]


def test_aggregations():
    tiles = np.array([np.arange(11.0)])
    assert {name: aggregate(tiles)[0] for name, aggregate in AGGREGATIONS.items()} == {"mean": 5, "q90": 9, "max": 10}


def test_equal_tiles_of_the_bank_count_as_often_as_they_occur():
    bank = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=np.float32)
    X = np.array([[[1.0, 0.0]]])
    assert [knn_score(X, bank, k)[0] for k in (1, 2, 3, 4)] == [0, 0, 0, 1]


# invariances


@pytest.mark.parametrize(("queries", "rows"), [(1, 731), (3, 1), (5, 64), (28, 100), (4096, 640), (2, 4096)])
def test_knn_does_not_depend_on_blocks(X, bank, queries, rows):
    blocked = tile_knn(X, bank, 10, query_block=queries, bank_block=rows)
    assert blocked == pytest.approx(tile_knn(X, bank, 10), abs=1e-6)


def test_largest_cosines_are_the_largest_with_ties_across_groups_and_blocks(rng):
    # few different directions, so that almost all cosines are tied, in banks of every length around the group size
    corners = np.array([[1, 0], [0, 1], [-1, 0], [0.6, 0.8]], dtype=np.float32)
    for size in (1, 9, 31, 32, 33, 640, 641, 1000, 1337):
        bank, queries = corners[rng.integers(0, 4, size)], corners[rng.integers(0, 4, 6)]
        expected = -np.sort(-(queries @ bank.T), axis=1)[:, :10]
        found = -np.sort(-largest_cosines(queries, bank, 10, bank_block=700), axis=1)
        assert found == pytest.approx(expected, abs=1e-6)


def test_the_nearest_may_lie_in_one_group_one_block_or_everywhere(rng):
    # columns j and j + n of a block share a group; place the best ones side by side, a group apart and far apart
    queries, rest = unit(rng.normal(size=(9, 12))), unit(rng.normal(size=(4096, 12)))
    for places in (range(10), range(0, 1024, 32), range(5, 4096, 400), [7, 7 + 32, 7 + 64, 2000, 4095]):
        bank = rest.copy()
        for query, place in zip(np.resize(np.arange(9), len(places)), places, strict=True):
            bank[place] = unit(queries[query] + 0.01 * rng.normal(size=12))
        expected = np.sort(queries @ bank.T, axis=1)[:, -10:]
        for block in (1024, 2048, 4096):
            found = largest_cosines(queries, bank, 10, bank_block=block)
            assert np.sort(found, axis=1) == pytest.approx(expected, abs=1e-6)


def test_images_and_tiles_may_come_in_any_order(X, P, bank):
    order, tiles = np.random.default_rng(1).permutation(len(X)), [2, 0, 3, 1]
    for score in (lambda x: residual_score(x, P), lambda x: energy_score(x, P, 0.1), lambda x: knn_score(x, bank)):
        assert score(X[order][:, tiles]) == pytest.approx(score(X)[order], abs=1e-6)
    assert knn_score(X, bank[::-1]) == pytest.approx(knn_score(X, bank), abs=1e-6)
    assert residual_score(X, P[::-1]) == pytest.approx(residual_score(X, P), abs=1e-9)


def test_the_bank_may_be_a_memory_map(X, bank, tmp_path):
    np.save(tmp_path / "bank.npy", bank)
    mapped = np.load(tmp_path / "bank.npy", mmap_mode="r")
    assert (knn_score(X, mapped) == knn_score(X, bank)).all()


def test_no_more_of_the_bank_is_read_than_a_block(X, bank):
    class Watched:
        shape, largest = bank.shape, 0

        def __getitem__(self, rows):
            self.largest = max(self.largest, len(bank[rows]))
            return bank[rows]

    watched = Watched()
    assert knn_score(X, watched, 10, bank_block=50) == pytest.approx(knn_score(X, bank, 10), abs=1e-6)
    assert watched.largest == 50


# errors


def test_k_beyond_the_bank_is_refused(X, bank):
    with pytest.raises(ValueError, match="holds 9 tiles, so there is no neighbour number 10; lower k"):
        knn_score(X, bank[:9])
    for k in (0, 2.5):
        with pytest.raises(ValueError, match="k must be an integer >= 1"):
            knn_score(X, bank, k)


def test_a_bank_that_is_not_of_unit_norm_is_refused(X, bank):
    longer = bank.copy()
    longer[17] *= 2
    with pytest.raises(ValueError, match=r"bank\[17\] has norm 2"):
        knn_score(X, longer, bank_block=10)
    with pytest.raises(ValueError, match="agree in D"):
        knn_score(X, bank[:, :5])
    with pytest.raises(ValueError, match="needs a query and a bank tile"):
        largest_cosines(bank[:0], bank, 1)
    with pytest.raises(ValueError, match="bank_block must be an integer"):
        kth_cosine(bank, bank, 1, bank_block=0)


def test_features_and_prototypes_are_checked(X, P, bank):
    broken = X.copy()
    broken[2, 1, 0] = np.nan
    for score in (lambda x: residual_score(x, P), lambda x: max_cosine_score(x, P), lambda x: knn_score(x, bank)):
        with pytest.raises(ValueError, match=r"X\[2, 1\] is not finite"):
            score(broken)
    with pytest.raises(ValueError, match="row 1 has norm 0; normalise it, or leave out"):
        residual_score(X, np.vstack([P[0], np.zeros(12)]))
    with pytest.raises(ValueError, match=r"shape \(K, D\)"):
        max_cosine_score(X, P[0])
    with pytest.raises(ValueError, match="tau must be a number > 0"):
        residual_score(X, P, tau=0)
    with pytest.raises(ValueError, match="temperature must be a number > 0"):
        energy_score(X, P, 0)
    assert tile_residual(X, P).shape == X.shape[:2]
