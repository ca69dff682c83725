"""The audit of the battery's blur and of the open world, against plain references and hand-worked cases."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, spearmanr
from sklearn.metrics import roc_auc_score

from phoebi_lib.catalogue import CODES, label_matrix
from phoebi_lib.intervals import unit_counts
from phoebi_lib.openworld.harness import run_open_set
from phoebi_lib.pool import Pool
from phoebi_lib.splits import partition, published_manifest
from phoebi_lib.studies import audit, discovery_study
from phoebi_lib.studies import audit_open_world as study
from phoebi_lib.studies.discovery_scores import Tally


@pytest.fixture(scope="module")
def pool():
    manifest = published_manifest(10, 1)
    Y = label_matrix(manifest["combination"])
    rng = np.random.default_rng(0)
    raw = (Y @ rng.normal(size=(6, 16)))[:, None] + rng.normal(size=(len(Y), 4, 16)) + 2.0
    header = {"key": "a" * 64, "labels": Y.tolist(), "codes": list(CODES), "dataset_name": "sim:tiny",
              "encoder_name": "an encoder", "evidence": "simulated", "facts": {}}  # fmt: skip
    return Pool(raw.astype(np.float32), manifest, header)


@pytest.fixture(scope="module")
def open_rows(pool, tmp_path_factory):
    return run_open_set(pool, profile="smoke", store=tmp_path_factory.mktemp("rows"))


FACTS = {"evidence": "simulated", "partition": "loso"}


def named(lines, row, column):
    (one,) = [line for line in lines if line["row"] == row and line["column"] == column]
    return one


def tally(row, fold="ka", seed=0, setting="transductive", **more):
    """A fold of two combinations of four images: the first holds the stranger, the second does not."""
    sums = {"images": [4, 4], "holds": [4, 0], "found": [2, 0], "false": [0, 1], "found_by_weight": [0, 0],
            "labelled": [3, 4], "before": [2.0, 3.0], "after": [1.5, 2.0], "constant": [2.0, 2.0],
            "before_labelled": [2.0, 3.0], "after_labelled": [0.5, 2.0]} | more  # fmt: skip
    sums = {name: np.array(values, float) for name, values in sums.items()}
    slots = np.array([[sums["found"][0]], [0.0]])
    wins = np.array([[0, 12.0], [0, 0]])
    return Tally(row, fold, seed, setting, 1, 0, 1.0, sums, slots, wins)


def test_flat_frame_is_that_of_the_gaussian_weights():
    """The share of light is that of the kernel's weights inside: one side and the middle, squared in a corner."""
    lines = study.flat_lines()
    weights = norm.pdf(np.arange(-10, 11), scale=3.5)
    weights /= weights.sum()
    inside = weights[10:].sum()
    published = {place: named(lines, "flat frame of level 200, published", place)["value"]
                 for place in ("corner", "edge", "middle", "strip")}  # fmt: skip
    assert published["edge"] == int(200 * inside) and published["corner"] == int(200 * inside**2)
    assert 199 <= published["middle"] <= 200
    kept = [weights[max(0, 10 - x) :].sum() * 200 for x in range(12)]
    assert published["strip"] == sum(int(level) < 199 for level in kept)
    for place, value in {"corner": 200, "edge": 200, "middle": 200, "strip": 0}.items():
        assert named(lines, "flat frame of level 200, corrected", place)["value"] == value


def test_radius_changes_a_step_by_less_than_two_levels():
    found = named(study.flat_lines(), "step of 255, radius 10 against 11", "largest")["value"]
    cut = {}
    for radius in (10, 11):
        offsets = np.arange(-radius, radius + 1)
        w = norm.pdf(offsets, scale=3.5)
        cut[radius] = 255 * np.array([(w * (offsets + x >= 0)).sum() / w.sum() for x in range(-15, 15)])
    assert found == pytest.approx(np.abs(cut[10] - cut[11]).max(), abs=1e-9)


def test_blur_lines_are_paired_means_by_hand():
    rows = []
    for part, f1 in {"clean": (0.8, 0.6), "published": (0.4, 0.6), "corrected": (0.7, 0.5)}.items():
        for c, value in zip("ab", f1, strict=True):
            one = {"method": "m", "part": part, "combination": c, "id": c, "frame": 0, "evidence": "simulated"}
            rows.append(one | {"f1": value, "margin": value - 0.5})
    lines = study.blur_lines(pd.DataFrame(rows), 50)
    assert named(lines, "m, published", "f1_margin")["value"] == pytest.approx(0.0)
    assert named(lines, "m, published", "drop_difference")["value"] == pytest.approx(-0.2)
    assert named(lines, "m, corrected", "drop_difference")["value"] == pytest.approx(-0.1)
    way = named(lines, "m, published", "way_difference")
    assert (way["value"], way["low"], way["high"]) == pytest.approx((-0.1, -0.3, 0.1))
    assert not [line for line in lines if line["row"] == "m, corrected" and line["column"] == "way_difference"]


def test_seed_lines_by_hand():
    """Two seeds and two folds with cluster accuracies (0.25, 0.5) and (0.75, 1); K = 1 has 0.5 in both folds."""
    tallies = [tally(discovery_study.K1, fold) for fold in ("ka", "bt")]
    found = {(0, "ka"): 1, (0, "bt"): 2, (1, "ka"): 3, (1, "bt"): 4}
    tallies += [tally("Sinkhorn-Knopp (K=2)", fold, seed, found=[n, 0]) for (seed, fold), n in found.items()]
    lines = study.seed_lines(tallies, np.ones((1, 2)), FACTS)
    value = {line["column"]: line["value"] for line in lines}
    assert {line["row"] for line in lines} == {"Sinkhorn-Knopp (K=2)"}
    assert value["cluster_acc"] == pytest.approx(0.625)
    assert value["fold_spread"] == pytest.approx(0.125)
    assert value["seed_spread"] == pytest.approx(0.25) and value["seed_range"] == pytest.approx(0.5)
    assert value["lead_difference"] == pytest.approx(-0.125)
    assert (value["lead_lowest"], value["lead_highest"]) == pytest.approx((-0.375, 0.125))
    printed = named(lines, "Sinkhorn-Knopp (K=2)", "cluster_acc")
    assert printed["paper"] > 0 and printed["digits"] == 3
    spread = named(lines, "Sinkhorn-Knopp (K=2)", "fold_spread")
    assert spread["digits"] == 2 and spread["paper"] != printed["paper"]


def test_seed_spread_by_hand():
    tallies = [tally(discovery_study.K1)]
    tallies += [tally("other", seed=seed, found=[n, 0]) for seed, n in enumerate((1, 2, 4))]
    value = {line["column"]: line["value"] for line in study.seed_lines(tallies, np.ones((1, 2)), FACTS)}
    assert value["seed_spread"] == pytest.approx(np.std([0.25, 0.5, 1.0]))
    assert value["recall_spread"] == pytest.approx(value["seed_spread"]) and value["auroc_spread"] == 0
    assert value["seed_range"] == pytest.approx(0.75)
    assert (value["lead_lowest"], value["lead_highest"]) == pytest.approx((-0.5, 0.25))


def test_assignment_by_hand():
    """Two of four with the stranger and one of four without are assigned; inductive one and none."""
    # the inductive one comes first, as in a run
    tallies = [tally(discovery_study.K1, setting="inductive", found=[1, 0], false=[0, 0]), tally(discovery_study.K1)]
    tallies += [tally(discovery_study.CONTROL, false=[0, 2]), tally(discovery_study.CONTROL, setting="inductive")]
    lines = study.assignment_lines(tallies, np.ones((1, 2)), FACTS)
    row = f"{discovery_study.K1}, transductive"
    expected = {
        "recall": 0.5,
        "false_share": 0.25,
        "lift": 0.25,
        "auroc": 0.75,
        "f1": 4 / 7,
        "f1_margin": 4 / 7 - 2 / 3,
    }
    for column, value in expected.items():
        assert named(lines, row, column)["value"] == pytest.approx(value), column
    # three of eight dealt blindly hit 1.5 of the four: F1 = 2 * 1.5 / (3 + 4)
    assert named(lines, row, "f1_blind")["value"] == pytest.approx(3 / 7)
    change = named(lines, f"{discovery_study.K1}, inductive minus transductive", "recall_difference")
    assert change["value"] == pytest.approx(-0.25)
    control = named(lines, f"{discovery_study.K1} minus the control, transductive", "lift_difference")
    assert control["value"] == pytest.approx(0.25)
    assert named(lines, discovery_study.GATE, "admitted")["value"] == 1.0


def test_assignment_without_an_inductive_setting_has_no_change():
    lines = study.assignment_lines([tally(discovery_study.K1)], np.ones((1, 2)), FACTS)
    assert not [line for line in lines if line["column"].endswith("_difference")]


def test_drift_by_hand():
    """Seven of eight images have a known label; on the eighth the call becomes empty, which one convention rewards."""
    lines = study.drift_lines({"training": [tally("r")], "validation": [tally("r", after_labelled=[1.0, 2.0])]},
                              np.ones((1, 2)), FACTS)  # fmt: skip
    value = {(line["row"], line["column"]): line["value"] for line in lines}
    assert value[f"r, training, {study.EVERY}", "drift_difference"] == pytest.approx(-2.5 / 8)
    assert value[f"r, training, {study.EVERY_ONE}", "drift_difference"] == pytest.approx(-1.5 / 8)
    assert value[f"r, training, {study.LABELLED}", "drift_difference"] == pytest.approx(-2.5 / 7)
    assert value[f"r, training, {study.LABELLED}", "f1_before"] == pytest.approx(5 / 7)
    assert value[f"r, training, {study.EVERY}", "margin_after"] == pytest.approx((2.5 - 4) / 8)
    assert value["r, training, labelled minus every", "change_difference"] == pytest.approx(-2.5 / 7 + 2.5 / 8)
    assert value[f"r, validation minus training, {study.LABELLED}", "change_difference"] == pytest.approx(0.5 / 7)


def test_the_printed_drift_stands_beside_the_published_way_alone():
    both = {source: [tally(discovery_study.K1)] for source in ("training", "validation")}
    lines = study.drift_lines(both, np.ones((1, 2)), FACTS)
    printed = [line for line in lines if line.get("paper") is not None]
    assert [line["row"] for line in printed] == [f"{discovery_study.K1}, training, {study.EVERY}"]


def test_drift_is_that_of_the_images(pool):
    """On a pool: from the calls of every image, without sums per combination."""
    fold = next(discovery_study.folds(pool, "reference"))
    one = discovery_study.run(fold, [discovery_study.TABLE_10[2]], [0], ("transductive",))
    found = study.drift(one, unit_counts(len(fold.units), 3))[study.EVERY]["drift_difference"][0]
    proposed = fold.propose(discovery_study.TABLE_10[2], 0, np.full(len(fold.X), True))
    P = np.concatenate([fold.prototypes, proposed])
    calls = discovery_study.known_calls(discovery_study.mixture_weights(fold.X, P), fold.thresholds)
    f1 = [[2 * (c & y).sum() / max(1, c.sum() + y.sum()) for c, y in zip(called, fold.labels, strict=True)]
          for called in (fold.before, calls)]  # fmt: skip
    assert found == pytest.approx(np.mean(f1[1]) - np.mean(f1[0]))


def test_simgcd_rows_for_every_seed(pool, monkeypatch):
    monkeypatch.setitem(discovery_study.SIMGCD_LONG, "updates", 1)
    fold = next(discovery_study.folds(pool, "corrected"))
    tallies = study.simgcd_seeds(fold, (1, 2))
    names = [discovery_study.simgcd_row(rate, e) for rate, looks in study.SIMGCD_LOOKS.items() for e in looks]
    assert [(t.seed, t.row) for t in tallies] == [(seed, name) for seed in (1, 2) for name in names]
    grid = [t for t in discovery_study.simgcd_grid(fold, (1,)) if t.row in names]
    for mine in tallies[: len(names)]:
        (other,) = [t for t in grid if t.row == mine.row]
        assert mine.updates == other.updates and (mine.wins == other.wins).all()


def test_own_share_against_a_plain_search(pool):
    parts = partition(pool.manifest, "random", grouping="frame")
    rows = parts["test"][:6]
    found = study.own_share(pool, rows, 3)
    names = pool.manifest["combination"].to_numpy()
    bank = pool.take(parts["train"]).reshape(-1, 16)
    source = np.repeat(names[parts["train"]], 4)
    for i, row in enumerate(rows):
        best = np.argsort(-(pool.take(np.array([row]))[0] @ bank.T), axis=1)[:, :3]
        assert found["share"].iloc[i] == pytest.approx((source[best] == names[row]).mean())
        assert found["chance"].iloc[i] == pytest.approx((source == names[row]).mean())
    assert found["id"].tolist() == pool.manifest["path"].iloc[rows].tolist()


def test_own_share_does_not_depend_on_the_block(pool, monkeypatch):
    rows = partition(pool.manifest, "random", grouping="frame")["test"]
    whole = study.own_share(pool, rows, 3)
    monkeypatch.setattr(study, "TILES_AT_A_TIME", 28)
    pd.testing.assert_frame_equal(whole, study.own_share(pool, rows, 3))


def test_session_lines_against_scikit_learn(open_rows):
    shared = open_rows.assign(value=open_rows["value"] ** 2 + 0.01 * open_rows["frame"])
    lines = study.session_lines({"one": open_rows, "two": shared}, 5)

    def area(rows, score):
        folds = rows[rows["score"] == score].groupby("held_out")
        return np.mean([roc_auc_score(g["unknown"], g["value"]) for _, g in folds])

    assert named(lines, "k-NN, one", "auroc")["value"] == pytest.approx(area(open_rows, "k-NN"))
    drops = [area(rows, study.OWN_OUT) - area(rows, "k-NN") for rows in (open_rows, shared)]
    for world, drop in zip(("one", "two"), drops, strict=True):
        change = named(lines, f"own combination out minus in, {world}", "auroc_difference")
        assert change["value"] == pytest.approx(drop)
    session = named(lines, "out minus in: one minus two", "auroc_difference")["value"]
    assert session == pytest.approx(drops[0] - drops[1])
    lead = named(lines, "k-NN minus residual, own combination out, one", "auroc_difference")["value"]
    assert lead == pytest.approx(area(open_rows, study.OWN_OUT) - area(open_rows, "residual"))
    alone = study.session_lines({"one": open_rows}, 5)
    assert not [line for line in alone if line["row"].startswith("out minus in")]


def test_rank_correlations_against_scipy(open_rows):
    found = study.rank_correlations(open_rows, "residual", "k-NN", 6, seed=2)
    units, rng = sorted(open_rows["combination"].unique()), np.random.default_rng(2)
    drawn = [rng.choice(len(units), len(units), replace=True) for _ in range(6)]
    wide = open_rows[open_rows["held_out"] == "bt"].pivot(index=["combination", "id"], columns="score", values="value")
    assert found["bt"][0] == pytest.approx(spearmanr(wide["residual"], wide["k-NN"]).statistic)
    for i, draw in enumerate(drawn, 1):
        rows = pd.concat([wide.loc[[units[u]]] for u in draw])
        assert found["bt"][i] == pytest.approx(spearmanr(rows["residual"], rows["k-NN"]).statistic)
    assert found["mean"] == pytest.approx(np.mean([found[code] for code in CODES], axis=0))


def test_rank_correlation_with_ties_and_of_a_score_with_itself(open_rows):
    coarse = open_rows.assign(value=open_rows["value"].round(2))
    found = study.rank_correlations(coarse, "residual", "max cosine", 0)
    wide = coarse[coarse["held_out"] == "ka"].pivot(index="id", columns="score", values="value")
    assert found["ka"][0] == pytest.approx(spearmanr(wide["residual"], wide["max cosine"]).statistic)
    assert study.rank_correlations(open_rows, "k-NN", "k-NN", 20)["mean"] == pytest.approx(1.0)


def test_mixture_rows_against_a_projection_by_bisection(pool):
    fold = next(discovery_study.folds(pool, "corrected"))
    found = study.mixture_rows(fold, "simulated")
    for i in (0, 7):
        active, span = [], []
        for tile in fold.X[i]:
            cosines = np.array([tile @ p for p in fold.prototypes])
            z, (low, high) = 10 * cosines, (10 * cosines.min() - 1, 10 * cosines.max())
            for _ in range(60):  # the threshold at which what is above it sums to one
                middle = (low + high) / 2
                low, high = (middle, high) if np.maximum(z - middle, 0).sum() > 1 else (low, middle)
            active.append((z > high).sum())
            span.append(cosines.max() - cosines.min())
        assert found["active"].iloc[i] == pytest.approx(np.mean(active))
        assert found["span"].iloc[i] == pytest.approx(np.mean(span), abs=1e-5)


def test_wide_has_a_line_per_row_and_a_dash_where_nothing_is():
    lines = [{"row": "a", "column": "x", "value": 0.5, "low": 0.4, "high": 0.6},
             {"row": "a", "column": "y_difference", "value": -0.1, "low": np.nan, "high": np.nan},
             {"row": "b", "column": "x", "value": 0.25, "low": np.nan, "high": np.nan}]  # fmt: skip
    frame = audit.report.table(lines, table="t", profile="smoke", evidence="simulated", dataset="sim:tiny")
    shown = study.wide(frame, {"x": "score", "y_difference": "change"}, "case")
    assert shown.columns.tolist() == ["case", "score", "change"]
    assert shown["score"].tolist() == ["0.500 [0.400,\u00a00.600]", "0.250"]
    assert shown["change"].tolist() == ["-0.100", "–"]
