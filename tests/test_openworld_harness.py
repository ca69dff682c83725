"""Leave one species out on a small pool: what is unknown, what is in the bank, and the numbers made from the rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from phoebi_lib.catalogue import CODES, label_matrix
from phoebi_lib.intervals import bootstrap
from phoebi_lib.openworld import energy_score, harness, knn_score, max_cosine_score, residual_score
from phoebi_lib.openworld.harness import KNN, OWN_OUT, SCORES, pure_prototypes, run_open_set
from phoebi_lib.openworld.neighbours import Banks, knn_distance
from phoebi_lib.pool import Pool
from phoebi_lib.splits import published_manifest, random_split
from phoebi_lib.studies import open_set
from phoebi_lib.studies.open_set_folds import fold_metrics, interval, resampled_auroc


def make_pool(n=5, D=10, T=3, key="a" * 64):
    manifest = published_manifest(n, 1)
    Y = label_matrix(manifest["combination"])
    rng = np.random.default_rng(0)
    raw = (Y @ rng.normal(size=(6, D)))[:, None] + 1.5 * rng.normal(size=(len(Y), T, D))
    header = {"key": key, "labels": Y.tolist(), "codes": list(CODES), "dataset_name": "sim:tiny", "encoder_name": "e",
              "evidence": "simulated", "facts": {"parameters_sha256": "c0ffee"}}  # fmt: skip
    return Pool(raw.astype(np.float32), manifest, header)


@pytest.fixture(scope="module")
def pool():
    return make_pool()


@pytest.fixture(scope="module")
def rows(pool, tmp_path_factory):
    return run_open_set(pool, store=tmp_path_factory.mktemp("store"), profile="smoke")


def parts_of(pool, code):
    """Return (kept training positions, test positions, unknown) by reading the folder names."""
    holds = np.array([code in name.split("_") for name in pool.manifest["combination"]])
    split = random_split(pool.manifest)
    return split["train"][~holds[split["train"]]], split["test"], holds[split["test"]]


# what is scored against what


@pytest.mark.parametrize("code", ["bt", "ka"])
def test_scores_are_those_of_the_library_on_the_kept_images(pool, rows, code):
    kept, test, unknown = parts_of(pool, code)
    X, bank = pool.X[test], pool.X[kept].reshape(-1, pool.raw.shape[2])
    P = [pool.X[kept[pool.manifest["combination"].to_numpy()[kept] == c]].mean(axis=(0, 1)) for c in CODES if c != code]
    P = np.array([p / np.linalg.norm(p) for p in P])
    expected = {"residual": residual_score(X, P, 10), "max cosine": max_cosine_score(X, P),
                "energy 1.0": energy_score(X, P, 1.0), "energy 0.1": energy_score(X, P, 0.1),
                KNN: knn_score(X, bank, 10)}  # fmt: skip
    fold = rows[rows["held_out"] == code]
    for score, values in expected.items():
        mine = fold[fold["score"] == score]
        assert mine["id"].tolist() == [pool.ids[i] for i in test]
        assert (mine["unknown"] == unknown).all()
        assert mine["value"].to_numpy() == pytest.approx(values, abs=1e-6), score
    assert (fold["kept_images"] == len(kept)).all() and (fold["bank_tiles"] == len(bank)).all()
    assert (fold["partition"] == f"loso-{code}").all()


def test_own_combination_is_out_of_the_bank(pool, rows):
    kept, test, unknown = parts_of(pool, "fj")
    names = pool.manifest["combination"].to_numpy()
    fold = rows[(rows["held_out"] == "fj") & (rows["score"] == OWN_OUT)].reset_index(drop=True)
    for i in (0, 7, 21):
        bank = pool.X[kept[names[kept] != names[test[i]]]].reshape(-1, pool.raw.shape[2])
        assert fold["value"][i] == pytest.approx(knn_score(pool.X[test[i : i + 1]], bank)[0], abs=1e-6)
    with_it = rows[(rows["held_out"] == "fj") & (rows["score"] == KNN)]["value"].to_numpy()
    assert (fold["value"][unknown].to_numpy() == with_it[unknown]).all(), "nothing of theirs was in the bank"
    assert (fold["value"][~unknown].to_numpy() >= with_it[~unknown]).all()


def test_every_image_species_and_score_has_one_row(pool, rows):
    assert len(rows) == 6 * len(SCORES) * 40
    assert not rows.duplicated(["held_out", "score", "id"]).any()
    assert rows["evidence"].unique().tolist() == ["simulated"] and rows["profile"].unique().tolist() == ["smoke"]


def test_the_order_of_the_images_and_the_chunks_do_not_matter(pool, rows, tmp_path, monkeypatch):
    order = np.random.default_rng(5).permutation(len(pool))
    monkeypatch.setattr(harness, "TILES_AT_A_TIME", 7 * pool.raw.shape[1])
    again = run_open_set(pool.select(order), store=tmp_path)
    both = rows.merge(again, on=["held_out", "score", "id"])
    assert len(both) == len(rows)
    assert both["value_x"].to_numpy() == pytest.approx(both["value_y"].to_numpy(), abs=1e-6)


def test_rows_are_kept_and_found_by_what_made_them(pool, tmp_path, monkeypatch):
    first = run_open_set(pool, codes=("bt",), store=tmp_path)
    computed = []
    score = harness._score
    monkeypatch.setattr(harness, "_score", lambda *a: computed.append(a) or score(*a))
    pd.testing.assert_frame_equal(run_open_set(pool, codes=("bt",), store=tmp_path), first)
    assert not computed
    run_open_set(pool, codes=("bt",), k=3, store=tmp_path)
    run_open_set(make_pool(key="b" * 64), codes=("bt",), store=tmp_path)
    assert len(computed) == 2


def test_a_species_without_a_pure_culture_is_refused(pool, tmp_path):
    kept = np.flatnonzero(pool.manifest["combination"] != "mx")
    with pytest.raises(ValueError, match="no training image is a pure culture of mx"):
        run_open_set(pool.select(kept), store=tmp_path)


def test_prototypes_are_unit_means_of_pure_cultures(pool):
    train = random_split(pool.manifest)["train"]
    mine = train[pool.manifest["combination"].to_numpy()[train] == "pf"]
    mean = pool.X[mine].reshape(-1, pool.raw.shape[2]).mean(axis=0)
    assert pure_prototypes(pool, train)["pf"] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


def test_banks_may_be_capped_and_too_small_ones_are_refused(pool):
    train = random_split(pool.manifest)["train"]
    banks = Banks(pool, train, 10, cap=50)
    assert sum(banks.sizes.values()) == 50
    assert banks.sizes == Banks(pool, train, 10, cap=50).sizes
    found = banks.nearest(pool.X[:2])
    assert knn_distance(found, list(found), 10).shape == (2, 3)
    with pytest.raises(ValueError, match="fewer than k = 10 tiles; lower k"):
        knn_distance(found, list(found)[:1], 10)


# numbers


def test_metrics_are_those_of_scikit_learn(rows):
    metrics = fold_metrics(rows).set_index(["held_out", "score"])
    assert len(metrics) == 6 * len(SCORES)
    for (code, score), group in rows.groupby(["held_out", "score"]):
        line = metrics.loc[(code, score)]
        assert line["auroc"] == pytest.approx(roc_auc_score(group["unknown"], group["value"]))
        assert line["aupr"] == pytest.approx(average_precision_score(group["unknown"], group["value"]))
        assert line["unknown_images"] == group["unknown"].sum() and line["n_images"] == 40


def test_fpr_by_hand():
    rows = pd.DataFrame({"held_out": "bt", "score": "s", "id": list("abcde"), "combination": list("abcde")})
    rows = rows.assign(frame=1, unknown=[1, 0, 1, 0, 0], value=[5, 4, 3, 2, 1], kept_images=1, bank_tiles=1)
    line = fold_metrics(rows).iloc[0]
    assert line["auroc"] == pytest.approx(5 / 6)  # of six pairs one is the wrong way round
    assert line["fpr_at_95_tpr"] == pytest.approx(1 / 3)  # to catch both, one of three known images is flagged


def test_resampled_auroc_is_that_of_the_bootstrap(rows):
    rng = np.random.default_rng(0)
    some = rows[rows["held_out"].isin(["bt", "ka"]) & rows["score"].isin([KNN, "residual"])].copy()
    some = pd.concat([some, some.assign(value=some["value"] + rng.normal(scale=0.05, size=len(some)))])
    some["value"] = some["value"].round(2)  # ties
    found = resampled_auroc(some, n=60, seed=4)
    for key, group in some.groupby(["held_out", "score"]):
        expected = bootstrap(group, lambda g: roc_auc_score(g["unknown"], g["value"]), "combination", n=60, seed=4)
        assert tuple(interval(found[key]).values()) == pytest.approx(expected)


def test_resampled_auroc_where_a_resample_lacks_a_kind():
    rows = pd.DataFrame({"combination": ["bt", "ka"], "unknown": [1, 0], "value": [2, 1]})
    rows = rows.assign(held_out="bt", score="s")
    found = resampled_auroc(rows, n=50)["bt", "s"]
    assert found[0] == 1.0 and np.isnan(found).any() and (found[~np.isnan(found)] == 1).all()
    assert interval(found) == {"value": 1.0, "low": 1.0, "high": 1.0}


# tables


@pytest.fixture(scope="module")
def resampled(rows):
    return open_set.aurocs(rows, 40)


def test_table_20_holds_means_and_population_spreads_beside_the_printed(rows, resampled):
    table = open_set.table_20(rows, resampled).set_index(["row", "column"])
    name = "KNN (k=10)"
    aurocs = [roc_auc_score(g["unknown"], g["value"]) for _, g in rows[rows["score"] == KNN].groupby("held_out")]
    assert table.loc[(name, "auroc"), "value"] == pytest.approx(np.mean(aurocs))
    assert table.loc[(name, "auroc_std"), "value"] == pytest.approx(np.std(aurocs))
    assert table.loc[(name, "auroc"), "paper"] == 0.701 and table.loc[(name, "aupr_std"), "paper"] == 0.107
    assert table.loc[(name, "auroc"), "low"] < np.mean(aurocs) < table.loc[(name, "auroc"), "high"]
    assert table["paper"].notna().sum() == 5 * 6 and table["n_combinations"].unique().tolist() == [40]
    shown = open_set.shown_20(open_set.table_20(rows, resampled))
    assert len(shown) == 2 * 5 + 1 and "not comparable" in set(shown["difference"])


def test_table_21_holds_every_species_beside_the_printed(rows, resampled):
    table = open_set.table_21(rows, resampled)
    assert table["paper"].notna().all()
    line = table.set_index(["row", "column"]).loc[("ka", "residual_auroc")]
    assert line["paper"] == 0.066 and line["value"] == pytest.approx(resampled["ka", "residual"][0])
    assert len(open_set.shown_21(table)) == 14


def test_text_numbers_are_paired(rows, resampled):
    table = open_set.text_numbers(rows, resampled).set_index(["row", "column"])
    gain = resampled["bt", KNN] - resampled["bt", "residual"]
    line = table.loc[("k-NN minus residual", "bt")]
    assert [line["value"], line["low"], line["high"]] == pytest.approx([gain[0], *np.percentile(gain[1:], [2.5, 97.5])])
    assert line["paper"] == 0.298
    wins = sum(resampled[code, KNN][0] > resampled[code, "residual"][0] for code in CODES)
    assert table.loc[("folds on which k-NN beats the residual", "count"), "value"] == wins
    folds = [resampled[code, KNN][0] for code in CODES]
    assert table.loc[("spread over folds", KNN), "value"] == pytest.approx(np.std(folds))
    lead = resampled["ka", KNN][0] - max(resampled[code, KNN][0] for code in CODES if code != "ka")
    assert table.loc[("k-NN: ka minus the best other species", "auroc"), "value"] == pytest.approx(lead)


def test_rank_correlation(rows):
    fold = rows[rows["held_out"] == "pf"].pivot(index="id", columns="score", values="value")
    expected = fold["residual"].rank().corr(fold["max cosine"].rank())
    assert open_set.rank_correlation(rows, "residual", "max cosine")["pf"] == pytest.approx(expected)
