"""The 36 variants: each against a slow reference, the inner loop, and the table made from it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from test_openworld_harness import make_pool

from phoebi_lib.catalogue import CODES
from phoebi_lib.openworld.scores import tile_energy, tile_knn, tile_max_cosine, tile_residual
from phoebi_lib.openworld.variants import UNITS, VARIANT_SCORES, variant_rows
from phoebi_lib.splits import random_split
from phoebi_lib.studies import open_set

FACTS = {"profile": "smoke", "dataset": "sim:tiny", "encoder": "e", "evidence": "simulated"}


@pytest.fixture(scope="module")
def pool():
    return make_pool()


@pytest.fixture(scope="module")
def parts(pool):
    return {part: (pool, rows) for part, rows in random_split(pool.manifest).items()}


@pytest.fixture(scope="module")
def rows(parts):
    other = make_pool(T=2)
    patches = {part: (other, chosen) for part, (_, chosen) in parts.items()}
    both = [variant_rows(unit, **chosen) for unit, chosen in zip(UNITS, (parts, patches), strict=True)]
    return pd.concat(both, ignore_index=True).assign(**FACTS)


def reference(pool, parts, left_out, part):
    """Score the images of a part by loops: {(score, aggregation): (N,)}."""
    names = pool.manifest["combination"].to_numpy()
    train = [i for i in parts["train"][1] if not set(names[i].split("_")) & set(left_out)]
    known = [code for code in CODES if code not in left_out]
    X = pool.X
    P = np.array([X[[i for i in train if names[i] == code]].mean(axis=(0, 1)) for code in known])
    P /= np.linalg.norm(P, axis=1, keepdims=True)
    bank = X[train].reshape(-1, X.shape[2])

    def raw(images):
        return {"residual": tile_residual(images, P, 10), "max cosine": tile_max_cosine(images, P),
                "energy 0.1": tile_energy(images, P, 0.1), "k-NN": tile_knn(images, bank, 10)}  # fmt: skip

    images = X[parts[part][1]]
    scores, nearest = raw(images), (images @ P.T).argmax(axis=2)
    for name in ("residual", "k-NN"):
        usual = [np.median(raw(X[[i for i in parts["val"][1] if names[i] == code]])[name]) for code in known]
        scores[f"{name} / class"] = scores[name] / np.array(usual)[nearest]
    return {
        (score, aggregation): np.apply_along_axis(function, 1, tiles)
        for score, tiles in scores.items()
        for aggregation, function in {"mean": np.mean, "q90": lambda t: np.percentile(t, 90), "max": np.max}.items()
    }


def test_there_are_thirty_six_variants_and_thirty_inner_pairs(rows):
    assert len(rows[["unit", "score", "aggregation"]].drop_duplicates()) == 36
    inner = rows[rows["inner"] != ""]
    assert len(inner[["outer", "inner"]].drop_duplicates()) == 30
    assert not (inner["outer"] == inner["inner"]).any()
    assert set(rows["score"]) == set(VARIANT_SCORES)


@pytest.mark.parametrize(("outer", "inner"), [("bt", "ka"), ("ka", "bt"), ("pf", "")])
def test_every_variant_against_loops(pool, parts, rows, outer, inner):
    part = "val" if inner else "test"
    expected = reference(pool, parts, [outer, inner] if inner else [outer], part)
    names = pool.manifest["combination"].to_numpy()[parts[part][1]]
    used = np.array([not inner or outer not in name.split("_") for name in names])
    mine = rows[(rows["unit"] == "tile") & (rows["outer"] == outer) & (rows["inner"] == inner)]
    for (score, aggregation), values in expected.items():
        found = mine[(mine["score"] == score) & (mine["aggregation"] == aggregation)]
        assert found["combination"].tolist() == names[used].tolist()
        assert found["value"].to_numpy() == pytest.approx(values[used], abs=1e-5), (score, aggregation)
        assert found["unknown"].tolist() == [int((inner or outer) in name.split("_")) for name in names[used]]


def test_no_test_image_takes_part_in_the_choice(pool, parts, rows):
    ids = np.asarray(pool.ids)
    inner = rows[rows["inner"] != ""]
    assert set(inner["id"]) <= set(ids[parts["val"][1]])
    holds = [outer in name.split("_") for outer, name in zip(inner["outer"], inner["combination"], strict=True)]
    assert not any(holds), "images with the left-out species are not shown to the inner loop"
    assert set(rows.loc[rows["inner"] == "", "id"]) == set(ids[parts["test"][1]])


def test_a_missing_validation_pure_culture_divides_by_one(pool, parts):
    names = pool.manifest["combination"].to_numpy()
    fewer = {**parts, "val": (pool, parts["val"][1][names[parts["val"][1]] != "ka"])}
    rows = variant_rows("tile", **fewer)
    test = rows[(rows["inner"] == "") & (rows["outer"] == "bt") & (rows["aggregation"] == "max")]
    wide = test.pivot(index="id", columns="score", values="value")
    known = [code for code in CODES if code != "bt"]
    P = np.array([pool.X[[i for i in parts["train"][1] if names[i] == c]].mean(axis=(0, 1)) for c in known])
    X = pool.X[parts["test"][1]]
    all_ka = ((X @ (P / np.linalg.norm(P, axis=1, keepdims=True)).T).argmax(axis=2) == known.index("ka")).all(axis=1)
    ids = np.asarray(pool.ids)[parts["test"][1]][all_ka]
    assert len(ids) and wide.loc[ids, "k-NN / class"].tolist() == pytest.approx(wide.loc[ids, "k-NN"].tolist())


def test_table_ranks_by_the_mean_over_pairs(rows):
    table = open_set.variant_table(rows, 30)
    lines = table.set_index(["row", "column"])
    assert (table["column"] == "outer_auroc").sum() == 36
    mine = rows[(rows["unit"] == "tile") & (rows["score"] == "k-NN") & (rows["aggregation"] == "mean")]
    inner = [roc_auc_score(g["unknown"], g["value"]) for _, g in mine[mine["inner"] != ""].groupby(["outer", "inner"])]
    outer = [roc_auc_score(g["unknown"], g["value"]) for _, g in mine[mine["inner"] == ""].groupby("outer")]
    assert lines.loc[("tile, k-NN, mean", "inner_auroc"), "value"] == pytest.approx(np.mean(inner))
    assert lines.loc[("tile, k-NN, mean", "outer_auroc"), "value"] == pytest.approx(np.mean(outer))
    assert lines.loc[("tile, k-NN, mean", "inner_auroc"), "paper"] == 0.74
    assert lines.loc[("patch, k-NN, mean", "inner_auroc"), "paper"] == 0.49
    shown = open_set.shown_variants(table)
    values = lines.xs("inner_auroc", level="column")["value"].loc[shown["variant"]].tolist()
    assert len(shown) == 36 and values == sorted(values, reverse=True)
    best_other = max(value for name, value in zip(shown["variant"], values, strict=True) if name != "tile, k-NN, mean")
    lead = lines.loc[("tile, k-NN, mean, minus the best other variant", "inner_auroc"), "value"]
    assert lead == pytest.approx(np.mean(inner) - best_other)
    prototype = [v for name, v in zip(shown["variant"], values, strict=True) if "k-NN" not in name]
    ends = [lines.loc[(f"{end} of the prototype scores' variants", "inner_auroc")] for end in ("lowest", "highest")]
    assert [end["value"] for end in ends] == pytest.approx([min(prototype), max(prototype)])
    assert [end["paper"] for end in ends] == [0.41, 0.48]
    # the mixture of all six holds every left-out species, so that the inner loop never sees it
    assert lines.loc[("tile, k-NN, mean", "inner_auroc"), "n_images"] == 39
    assert lines.loc[("tile, k-NN, mean", "outer_auroc"), "n_images"] == 40
