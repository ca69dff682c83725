"""Finer units: which are kept, how they are read out, and that a patch mean is what a convolutional network pools."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from phoebi_lib.catalogue import CODES, COMBINATIONS, label_matrix
from phoebi_lib.limits import Limits
from phoebi_lib.pool import Pool
from phoebi_lib.splits import published_manifest
from phoebi_lib.studies import units, variants
from phoebi_lib.studies.units import at_most, closed_form_rows, mean_pooled, patch_tokens, positions_in, subset_rows


def tiny_pool(n_units=5, frames=4, width=9, seed=0):
    """Four images of each of the forty combinations; a unit shows one species of its image."""
    manifest = published_manifest(frames, 1)
    rng, Y = np.random.default_rng(seed), label_matrix(manifest["combination"])
    shown = np.array([[rng.choice(np.flatnonzero(row)) for _ in range(n_units)] for row in Y])
    raw = (np.eye(len(CODES), width) + 0.3)[shown] + rng.normal(0, 0.3, (len(Y), n_units, width))
    header = {"key": "k", "codes": list(CODES), "labels": Y.tolist(), "dataset_name": "sim:tiny",
              "encoder_name": "none", "evidence": "simulated", "facts": {}}  # fmt: skip
    return Pool(raw.astype(np.float32), manifest, header)


def whole_parts(pool):
    frame = pool.manifest["frame"].to_numpy()
    held = pool.manifest["combination"].isin(["bt", "bs_pf", "ka_fj", "mx_ka_fj"]).to_numpy()
    return {"train": np.flatnonzero(~held & (frame < 4)), "val": np.flatnonzero(~held & (frame == 4)),
            "test": np.flatnonzero(held)}  # fmt: skip


def test_the_same_units_of_every_image_are_kept_in_their_order():
    X = np.arange(2 * 100 * 3, dtype=np.float32).reshape(2, 100, 3)
    kept = at_most(X, 64)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(1337)).numpy()[:64]
    assert np.array_equal(kept, X[:, sorted(order)])
    assert at_most(X, 100) is X and at_most(X[:, :7]).shape == (2, 7, 3) and at_most(X).shape[1] == 64


def test_closed_forms_against_a_plain_reading():
    pool = tiny_pool()
    parts = whole_parts(pool)
    rows = closed_form_rows(pool, parts, "tile", partition="lco-1337", seed=1)
    assert rows["method"].nunique() == 6 and set(rows["part"]) == {"val", "test"}
    X, Y = pool.X.astype(float), pool.Y
    train, order = parts["train"], pool.Y.sum(axis=1)
    P = []
    for k in range(6):
        own = [i for i in train if Y[i, k] and order[i] == 1] or [i for i in train if Y[i, k]]
        mean = np.mean([X[i, t] for i in own for t in range(X.shape[1])], axis=0)
        P.append(mean / np.linalg.norm(mean))

    def weights(v):
        best = np.sort(v)[::-1]
        size = max(j for j in range(1, 7) if best[j - 1] - (best[:j].sum() - 1) / j > 0)
        return np.maximum(v - (best[:size].sum() - 1) / size, 0)

    cosines = X[parts["test"]] @ np.array(P).T
    sparse = np.array([[weights(10 * v) for v in image] for image in cosines])
    for read_out, values in (("cosine", cosines), ("sparsemax", sparse)):
        for how, expected in (("mean", values.mean(axis=1)), ("max", values.max(axis=1)),
                              ("0.9 quantile", np.quantile(values, 0.9, axis=1))):  # fmt: skip
            mine = rows[(rows["method"] == f"tile, {read_out}, {how}") & (rows["part"] == "test")]
            assert np.allclose(variants.matrix(mine, "score", CODES), expected)
            assert mine["id"].tolist() == pool.manifest["path"].iloc[parts["test"]].tolist()
            own = rows[(rows["method"] == f"tile, {read_out}, {how}") & (rows["part"] == "val")]
            for k, code in enumerate(CODES):
                cut = np.quantile(own.loc[own[f"y_{code}"] == 1, f"score_{code}"], 0.05)
                assert np.array_equal(mine[f"pred_{code}"].to_numpy() == 1, expected[:, k] > cut)


def test_the_order_of_units_and_images_changes_nothing():
    pool, rng = tiny_pool(), np.random.default_rng(3)
    parts = whole_parts(pool)
    rows = closed_form_rows(pool, parts, "u", partition="p", seed=0)
    shuffled = Pool(pool.raw[:, rng.permutation(pool.raw.shape[1])], pool.manifest, pool.header)
    turned = {part: rng.permutation(where) for part, where in parts.items()}
    again = closed_form_rows(shuffled, turned, "u", partition="p", seed=0)
    keys = ["method", "part", "id"]
    a, b = (table.sort_values(keys).reset_index(drop=True) for table in (rows, again))
    assert np.allclose(variants.matrix(a, "score", CODES), variants.matrix(b, "score", CODES))
    assert a[keys].equals(b[keys])


@pytest.mark.parametrize("cap", [(2, 1, 1), (1, 1, 1), None])
def test_subset_of_a_partition(cap):
    manifest = published_manifest(12, 3)
    dataset = SimpleNamespace(manifest=manifest, codes=CODES)
    run = SimpleNamespace(limits=Limits(ablation=cap), compat="corrected")
    rows = subset_rows(dataset, "lco-1337", run)
    counts = {part: manifest.iloc[chosen].groupby("combination").size() for part, chosen in rows.items()}
    assert {part: len(count) for part, count in counts.items()} == {"train": 31, "val": 31, "test": 9}
    expected = {"train": 9, "val": 3, "test": 12} if cap is None else {"train": cap[0], "val": cap[1], "test": sum(cap)}
    assert {part: set(count) for part, count in counts.items()} == {part: {n} for part, n in expected.items()}
    frames = {part: set(map(tuple, manifest.iloc[chosen][["combination", "frame"]].to_numpy()))
              for part, chosen in rows.items()}  # fmt: skip
    assert not frames["train"] & frames["val"]
    if cap:
        assert len(frames["train"]) == len(rows["train"]), "each image from a frame of its own"


def test_positions_in_a_selection():
    manifest = published_manifest(3, 1)
    dataset = SimpleNamespace(manifest=manifest)
    parts = {"train": np.array([9, 3]), "test": np.array([40])}
    pool = SimpleNamespace(ids=manifest["path"].iloc[[3, 9, 40]].tolist())
    found = positions_in(pool, dataset, parts)
    assert found["train"].tolist() == [1, 0] and found["test"].tolist() == [2]


class Convolution(nn.Module):
    """A network of one convolution that pools by the average."""

    def __init__(self):
        super().__init__()
        self.layer, self.global_pool = nn.Conv2d(3, 5, 4, stride=4), SimpleNamespace(pool_type="avg")

    def forward_features(self, x):
        return self.layer(x)


class Transformer(Convolution):
    """Tokens with one class token in front."""

    num_prefix_tokens = 1

    def forward_features(self, x):
        tokens = self.layer(x).flatten(2).transpose(1, 2)
        return torch.cat([torch.full_like(tokens[:, :1], 99.0), tokens], dim=1)


def test_patch_tokens_of_both_kinds_of_network():
    torch.manual_seed(0)
    network, tiles = Convolution().eval(), torch.rand(2, 3, 8, 12)
    with torch.no_grad():
        tokens = patch_tokens(network, tiles)
        assert tokens.shape == (2, 6, 5)
        assert torch.allclose(tokens[1, 4], network.layer(tiles)[1, :, 1, 1]), "row by row"
        assert torch.allclose(tokens.mean(dim=1), network.layer(tiles).mean(dim=(2, 3)), atol=1e-6)
        other = Transformer().eval()
        assert patch_tokens(other, tiles).shape == (2, 6, 5) and patch_tokens(other, tiles).max() < 99
    assert mean_pooled(network) and not mean_pooled(other) and not mean_pooled(nn.Linear(2, 2))


def test_patch_mean_encoder_normalises_and_averages():
    torch.manual_seed(1)
    record = SimpleNamespace(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), name="tiny")
    encoder = SimpleNamespace(record=record, dim=5, img_size=8, stand_in=False, device=torch.device("cpu"),
                              dtype="float32", identity={"name": "tiny"})  # fmt: skip
    network = Transformer()
    mean = units.PatchMean(encoder, network)
    tiles = torch.rand(20, 3, 8, 8) * 255
    with torch.no_grad():
        normal = (tiles / 255 - torch.tensor(record.mean).view(3, 1, 1)) / torch.tensor(record.std).view(3, 1, 1)
        expected = network.layer(normal).mean(dim=(2, 3))
    assert torch.allclose(mean(tiles), expected, atol=1e-5) and mean(tiles).shape == (20, 5)
    assert mean.identity["name"] == "tiny" and mean.identity != encoder.identity


def test_four_combinations_are_set_aside():
    manifest = published_manifest(5, 1)
    from phoebi_lib.splits import lco_split

    parts = lco_split(manifest, 1337, grouping="frame")
    nested = variants.set_aside(manifest, parts, CODES)
    names = {part: set(manifest["combination"].iloc[rows]) for part, rows in nested.items()}
    assert names["dev"] == {"mx_fj", "bs_fj_pf", "mx_fj_pf", "bs_mx_ka_pf"}
    assert not names["dev"] & names["train"] and names["train"] == names["val"] and len(names["train"]) == 27
    assert np.array_equal(nested["test"], parts["test"])
    together = np.concatenate([nested["train"], nested["val"], nested["dev"]])
    assert sorted(together) == sorted(np.concatenate([parts["train"], parts["val"]]))


def test_all_forty_combinations_stay_in_play():
    assert len(COMBINATIONS) == 40 and set(units.GRANULARITIES) == {
        "pooled 224", "patch mean 224", "patch 224", "pooled 112", "patch mean 112", "pooled 56"
    }  # fmt: skip
    assert isinstance(pd.DataFrame(units.GRANULARITIES), pd.DataFrame)
