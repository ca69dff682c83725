"""Section 4 in numbers: cosines in three regimes, the fall of the variance, zeros, against plain loops."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.decoders import ProtoMatch, SimplexUnmix
from phoebi_lib.pool import Pool
from phoebi_lib.studies import assumption_h

RUN = {"profile": "smoke", "dataset": "sim:smoke", "encoder": "e"}


def unit(values):
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def features(n=12, tiles=4, width=6, seed=0):
    return unit(np.random.default_rng(seed).normal(size=(n, tiles, width)))


def pool(X, combinations, frames, codes=("a", "b", "c")):
    labels = [[int(code in name.split("_")) for code in codes] for name in combinations]
    paths = [f"{name}/{i:05d}.jpg" for i, name in enumerate(combinations)]
    manifest = pd.DataFrame({"path": paths, "combination": combinations, "frame": frames})
    header = {"labels": labels, "codes": list(codes), "evidence": "simulated", "key": "k", "dataset_name": "d",
              "encoder_name": "e", "facts": {}, "ingredients": {}, "run": {}, "shape": list(X.shape)}  # fmt: skip
    return Pool(X.astype(np.float32), manifest, header)


def test_pair_cosines_against_loops_over_all_pairs():
    X, species, frames = features(), np.repeat([0, 1, 2], 4), np.array([0, 0, 1, 2] * 3)
    found = assumption_h.pair_cosines(X, species, frames)
    for kind in range(3):
        mine, others = np.flatnonzero(species == kind), np.flatnonzero(species != kind)
        same_image = [X[i, s] @ X[i, t] for i in mine for s, t in combinations(range(4), 2)]
        same_species = [(X[i] @ X[j].T).mean() for i, j in combinations(mine, 2) if frames[i] != frames[j]]
        other = [(X[i] @ X[j].T).mean() for i in mine for j in others]
        expected = [np.mean(same_image), np.mean(same_species), np.mean(other)]
        np.testing.assert_allclose(found[kind], expected, atol=1e-12)


def test_one_species_one_tile_or_one_frame_has_no_regimes():
    X = features()
    with pytest.raises(ValueError, match="two species"):
        assumption_h.pair_cosines(X, np.zeros(12), np.arange(12))
    with pytest.raises(ValueError, match="two tiles"):
        assumption_h.pair_cosines(X[:, :1], np.repeat([0, 1], 6), np.arange(12))
    with pytest.raises(ValueError, match="one frame"):
        assumption_h.pair_cosines(X, np.repeat([0, 1], 6), np.zeros(12))


def test_homogeneity_of_interchangeable_tiles_and_of_pictures_with_an_identity():
    rng = np.random.default_rng(0)
    names = np.repeat(["a", "b", "c"], 20)
    centre = np.repeat(unit(rng.normal(size=(3, 1, 16))), 20, axis=0)
    noise = rng.normal(size=(60, 8, 16))
    alike = pool(unit(centre + 0.1 * noise), names, np.tile(np.arange(20), 3))
    own = pool(unit(centre + 0.1 * noise + 0.3 * rng.normal(size=(60, 1, 16))), names, np.tile(np.arange(20), 3))
    gap = {}
    for name, made in (("alike", alike), ("own", own)):
        table = assumption_h.homogeneity(made, np.arange(60), n=100, **RUN).set_index("row")
        gap[name] = table.loc["same image minus same species", "value"]
        assert table.loc["same species minus other species", "low"] > 0.1
        assert table.loc["same image", "value"] - table.loc["same species", "value"] == pytest.approx(gap[name])
    assert abs(gap["alike"]) < 0.01 < 0.1 < gap["own"]


def test_homogeneity_reads_pure_cultures_only():
    mixed = pool(features(), ["a", "a_b", "b"] * 4, np.arange(12))
    with pytest.raises(ValueError, match="one species"):
        assumption_h.homogeneity(mixed, np.arange(12), n=5, **RUN)


class Fixed:
    """Stands in for a decoder: its tile scores are the features."""

    def tile_scores(self, X):
        return np.asarray(X, dtype=float)


def scored(identity, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 16, 3)) + identity * rng.normal(size=(120, 1, 3))
    made = pool(X, ["a"] * 120, np.arange(120))
    return Pool(made.raw, made.manifest.assign(combination=np.repeat([f"c{i}" for i in range(12)], 10)), made.header)


@pytest.mark.parametrize(("identity", "exponent", "floor"), [(0.0, -1.0, 0.0), (1.0, -0.2, 0.94)])
def test_the_rate_of_independent_and_of_dependent_tiles(monkeypatch, identity, exponent, floor):
    # scores need no unit norm
    monkeypatch.setattr(Pool, "take", lambda self, rows: self.raw[rows])
    made = scored(identity)
    table = assumption_h.variance_rate(Fixed(), made, np.arange(120), "mine", n=60, **RUN).set_index("column")
    assert table.loc["exponent", "value"] == pytest.approx(exponent, abs=0.12)
    assert table.loc["floor_share", "value"] == pytest.approx(floor, abs=0.15)
    assert table.loc["exponent", "low"] < table.loc["exponent", "value"] < table.loc["exponent", "high"]


def test_the_rate_at_all_tiles_is_the_variance_of_the_means():
    tiles = np.random.default_rng(2).normal(size=(9, 4, 2))
    names = np.repeat(["x", "y", "z"], 3)
    scatter, freedom = assumption_h.rate(tiles, names, counts=[4], draws=2)
    expected = [np.var(tiles[names == n].mean(axis=1), axis=0, ddof=1).mean() for n in ("x", "y", "z")]
    np.testing.assert_allclose(scatter[:, 0] / freedom, expected)
    alone = assumption_h.rate(tiles[:7], names[:7], counts=[4], draws=2)
    assert alone[1].tolist() == [2, 2], "a combination with one image has no scatter"


def test_zeros_and_residuals_of_simplex_unmix():
    X = features(n=12, tiles=3, width=8, seed=5).astype(np.float32)
    made = pool(X, ["a", "b", "c", "a_b"] * 3, np.arange(12))
    untrained = SimplexUnmix(epochs=0).fit(made.X, made.Y)
    trained = SimplexUnmix(updates=5).fit(made.X, made.Y)
    found = assumption_h.simplex(trained, untrained, made, np.arange(12), **RUN).set_index("column")["value"]
    zero = trained.tile_scores(made.X) == 0
    absent = [zero[i, t, k] for i in range(12) for t in range(3) for k in range(3) if made.Y[i, k] == 0]
    present = [zero[i, t, k] for i in range(12) for t in range(3) for k in range(3) if made.Y[i, k] == 1]
    whole = [zero[i, :, k].all() for i in range(12) for k in range(3) if made.Y[i, k] == 0]
    assert found["zero_absent"] == pytest.approx(np.mean(absent))
    assert found["zero_present"] == pytest.approx(np.mean(present))
    assert found["image_zero_absent"] == pytest.approx(np.mean(whole))
    fall = 1 - trained.residual(made.X).mean() / untrained.residual(made.X).mean()
    assert found["residual_fall"] == pytest.approx(fall)


def test_variance_rate_with_a_decoder_and_a_pool():
    X = features(n=24, tiles=16, width=8, seed=3).astype(np.float32)
    made = pool(X, ["a", "b", "c", "a_b"] * 6, np.arange(24))
    decoder = ProtoMatch().fit(made.X, made.Y)
    table = assumption_h.variance_rate(decoder, made, np.arange(24), "ProtoMatch", n=20, **RUN)
    assert set(table["column"]) == {"exponent", "floor_share"} and set(table["row"]) == {"ProtoMatch"}
