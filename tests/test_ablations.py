"""Ablations and invariances on tiny pictures, against references written out in two lines."""

import numpy as np
import pytest

from phoebi_lib import protocols
from phoebi_lib.catalogue import CODES
from phoebi_lib.decoders import ProtoMatch
from phoebi_lib.limits import ablation_rows
from phoebi_lib.metrics import macro_f1, per_sample_f1, sample_f1
from phoebi_lib.paper import quoted
from phoebi_lib.protocols import METHODS
from phoebi_lib.splits import partition
from phoebi_lib.studies import ablations, battery, illumination, invariance
from phoebi_lib.studies.paired import beside
from tests.tiny_run import TinyRun, write_pictures

Y, CALLS, SCORES = ([f"{kind}_{code}" for code in CODES] for kind in ("y", "pred", "score"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module", autouse=True)
def short_training(tmp_path_factory):
    """Every trained decoder makes 30 updates, and rows are kept apart from those of the book."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHOEBI_RESULTS", str(tmp_path_factory.mktemp("results")))
        patch.setenv("PHOEBI_QUIET", "1")
        for name in ("SimplexUnmix", "ChannelGroup", "ChannelGroup (2,000 updates)"):
            patch.setitem(METHODS, name, (METHODS[name][0], {"updates": 30}))
        yield


@pytest.fixture(scope="module")
def run(dataset):
    run = TinyRun(dataset)
    run.open_pool()
    return run


@pytest.fixture(scope="module")
def projections(run):
    return ablations.projection_rows(run, run.open_pool())


@pytest.fixture(scope="module")
def sizes(dataset):
    run = TinyRun(dataset)
    return ablations.tile_size_rows(run), dict(run.embedded)


@pytest.fixture(scope="module")
def table16(run, projections, sizes):
    return ablations.table_16(run, CODES, projections, battery.matched_arms(run), sizes[0])


def cell(table, row, column, name="value"):
    return table.loc[(table["row"] == row) & (table["column"] == column), name].item()


# projection


def test_projection_rows_are_test_images_of_two_projections(run, projections):
    test = partition(run.open_pool().manifest, "random", grouping="frame")["test"]
    for kind, rows in projections.groupby("method"):
        assert len(rows) == len(test) and kind in ("softmax", "sparsemax")
        # weights sum to one; those of softmax are all positive
        assert rows[SCORES].sum(axis=1).to_numpy() == pytest.approx(np.ones(len(test)))
        assert (rows[SCORES].to_numpy() > 0).all() or kind == "sparsemax"


def test_sparsity_counts_what_is_zero_to_1e_minus_8(projections):
    rows = projections[projections["method"] == "softmax"].head(2).copy()
    rows[SCORES] = [[0.0, 1e-8, -1e-8, 1.1e-8, 0.5, 0.5], [0.2, 0.2, 0.2, 0.2, 0.1, 0.1]]
    assert ablations.sparsity(rows, CODES) == 3 / 12
    assert ablations.sparsity(projections[projections["method"] == "softmax"], CODES) == 0.0


def test_what_the_text_says_of_the_projection(run, projections):
    table = ablations.table_projection(run, CODES, projections)
    values = {}
    for kind, rows in projections.groupby("method"):
        true, called = rows[Y].to_numpy(), rows[CALLS].to_numpy()
        values[kind] = macro_f1(true, called)
        assert cell(table, kind, "macro_f1") == pytest.approx(values[kind])
        assert cell(table, kind, "exact_match") == pytest.approx((true == called).all(axis=1).mean())
        constant = macro_f1(true, np.ones_like(true))
        assert cell(table, kind, "macro_f1_margin") == pytest.approx(values[kind] - constant)
    change = cell(table, "softmax minus sparsemax", "macro_f1")
    assert change == pytest.approx(values["softmax"] - values["sparsemax"])
    assert cell(table, "softmax", "exact_match", "paper") == 0.024
    assert cell(table, "sparsemax", "macro_f1", "paper") == 0.630


# tile size and Table 16


def test_each_size_is_cut_from_the_same_frames_once(sizes, dataset):
    rows, embedded = sizes
    assert embedded == {("", 0): 400} | {("", 0, ("tile_size", size)): 160 for size in (168, 336, 518)}
    assert rows.groupby(["method", "size"])["id"].agg(tuple).nunique() == 1
    assert len(rows) == 3 * 4 * 40 and set(rows["size"]) == set(ablations.SIZES)


@pytest.mark.parametrize("compat", ["corrected", "reference"])
def test_proto_match_has_the_prototypes_that_compat_asks_for(dataset, compat):
    run = TinyRun(dataset, compat=compat)
    rows = ablations.tile_size_rows(run)
    pool, parts = run.open_pool(), ablation_rows(dataset.manifest, run.limits.ablation)
    decoder = ProtoMatch().fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    closed = decoder.decision_function(pool.take(parts["test"]))
    name = {"corrected": "ProtoMatch", "reference": "ProtoMatch, closed form prototypes"}[compat]
    other = {"corrected": "ProtoMatch, trained prototypes", "reference": "ProtoMatch"}[compat]
    at_default = rows[rows["size"] == 224].set_index("method")
    assert at_default.loc[name, SCORES].to_numpy(float) == pytest.approx(closed)
    assert at_default.loc[other, SCORES].to_numpy(float) != pytest.approx(closed)


def test_table_16_has_the_paper_s_cells_and_paired_differences(table16, sizes):
    for row, column, paper in [
        ("softmax", "simplex_unmix_f1", 0.62),
        ("sparsemax", "simplex_unmix_sparsity", 0.11),
        ("none (trained without)", "proto_match_f1", 0.6125),
        ("divide", "simplex_unmix_f1", 0.6086),
        ("168", "proto_match_f1", 0.6264),
        ("518", "simplex_unmix_f1", 0.5943),
    ]:
        assert cell(table16, row, column, "paper") == paper
    rows = sizes[0]
    f1 = {key: per_sample_f1(part[Y], part[CALLS]) for key, part in rows.groupby(["method", "size"])}
    assert cell(table16, "336", "proto_match_f1") == pytest.approx(f1["ProtoMatch", 336])
    assert cell(table16, "336, trained prototypes", "proto_match_f1") == pytest.approx(
        f1["ProtoMatch, trained prototypes", 336]
    )
    change = cell(table16, "336 minus 224", "simplex_unmix_f1")
    assert change == pytest.approx(f1["SimplexUnmix", 336] - f1["SimplexUnmix", 224])
    part = rows[(rows["method"] == "ProtoMatch") & (rows["size"] == 168)]
    constant = per_sample_f1(part[Y], np.ones((40, 6), int))
    assert cell(table16, "168", "proto_match_f1_margin") == pytest.approx(f1["ProtoMatch", 168] - constant)
    assert ablations.images_of(table16, ["softmax", "168"]) == [40, 40]


# thresholds


def test_isotonic_scores_are_pooled_averages_by_hand():
    # two neighbours out of order are averaged; beyond the ends the curve is flat
    val, labels = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([[0], [1], [0], [1]])
    before, after = ablations.isotonic_scores(val, labels, np.array([[0.0], [2.5], [9.0]]))
    assert before[:, 0].tolist() == [0.0, 0.5, 0.5, 1.0]
    assert after[:, 0].tolist() == [0.0, 0.5, 1.0]


def test_isotonic_table_against_a_search_written_out(run):
    pool = run.open_pool()
    table = ablations.table_isotonic(run, pool)
    rows = protocols.run_partition(pool, "random", seed=run.seed, methods=["ProtoMatch"], profile="smoke")
    val, test = (rows[rows["part"] == part] for part in ("val", "test"))
    called = np.zeros((len(test), 6), int)
    for k, code in enumerate(CODES):
        grid = np.arange(1, 100) / 100
        hits = [(val[f"score_{code}"] > t) for t in grid]
        f1 = [2 * (h & (val[f"y_{code}"] == 1)).sum() / (h.sum() + val[f"y_{code}"].sum()) for h in hits]
        called[:, k] = test[f"score_{code}"] > grid[int(np.argmax(f1))]
    deployed = per_sample_f1(test[Y], test[CALLS])
    assert cell(table, "argmax F1", "f1") == pytest.approx(per_sample_f1(test[Y], called))
    assert cell(table, "deployed thresholds", "f1") == pytest.approx(deployed)
    gain = cell(table, "argmax F1 minus deployed thresholds", "f1")
    assert gain == pytest.approx(per_sample_f1(test[Y], called) - deployed)
    assert [cell(table, row, "f1", "paper") for row in ("deployed thresholds", "argmax F1")] == [0.6095, 0.6174]


# losses


def test_losses_table_takes_the_four_and_the_widest_gap(run):
    rows = ablations.loss_rows(run, run.open_pool(), updates=30)
    assert list(dict.fromkeys(rows["method"])) == list(ablations.LOSSES) and set(rows["updates"]) == {30}
    table = ablations.table_losses(run, CODES, {"": rows})
    f1 = {kind: per_sample_f1(part[Y], part[CALLS]) for kind, part in rows.groupby("method")}
    assert cell(table, "largest difference", "f1") == pytest.approx(max(f1.values()) - min(f1.values()))
    change = cell(table, "BCE with mixup", "change_from_bce")
    assert change == pytest.approx(f1["BCE with mixup"] - f1["BCE"])
    quotes = quoted().set_index("id")["value"]
    assert quotes["asl_gamma"] == 4 and quotes["asl_margin"] == 0.05
    assert ablations.LOSSES["asymmetric loss with mixup"] == {"loss": "asymmetric", "mixup": quotes["mixup_alpha"]}
    assert cell(table, "asymmetric loss", "f1", "paper") == quotes["channel_group_asl"]


# the edge of the field


def test_interior_tiles_touch_no_edge():
    assert invariance.interior_tiles(4) == [5, 6, 9, 10]
    assert invariance.interior_tiles(3) == [4] and invariance.interior_tiles(2) == invariance.interior_tiles(1) == []


def test_boundary_table_against_the_decoder_itself(dataset, run):
    four = TinyRun(dataset, grid=4)
    pool = four.open_pool()
    table = invariance.table_boundary(four, pool, draws=3)
    parts = partition(pool.manifest, "lco-1337", grouping="frame")
    decoder = ProtoMatch().fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    found = {}
    for kind, tiles in {"all tiles": range(16), "interior tiles": [5, 6, 9, 10]}.items():
        X = {part: pool.take(rows)[:, list(tiles)] for part, rows in parts.items()}
        decoder.calibrate(X["val"], pool.Y[parts["val"]])
        found[kind] = decoder.predict(X["test"])
        f1 = per_sample_f1(pool.Y[parts["test"]], found[kind])
        assert cell(table, kind, "heldout_f1") == pytest.approx(f1)
        assert cell(table, kind, "val_f1") == pytest.approx(
            per_sample_f1(pool.Y[parts["val"]], decoder.predict(X["val"]))
        )
    true = pool.Y[parts["test"]]
    change = sample_f1(true, found["interior tiles"]).mean() - sample_f1(true, found["all tiles"]).mean()
    assert cell(table, "interior tiles minus all tiles", "heldout_f1") == pytest.approx(change)
    macro = macro_f1(true, found["interior tiles"]) - macro_f1(true, found["all tiles"])
    assert cell(table, "interior tiles minus all tiles", "heldout_macro_f1") == pytest.approx(macro)
    assert cell(table, "all tiles", "heldout_f1", "paper") == 0.660
    assert set(table["partition"]) == {"lco-1337"} and set(table["n_combinations"]) == {9, 31}
    assert invariance.table_boundary(run, run.open_pool()) is None, "a 2 x 2 grid has no interior"


def test_random_tiles_are_the_mean_of_draws_without_repeats(dataset, monkeypatch):
    four = TinyRun(dataset, grid=4)
    seen = []
    take = np.take_along_axis
    monkeypatch.setattr(np, "take_along_axis", lambda a, i, axis: seen.append(i) or take(a, i, axis=axis))
    invariance.table_boundary(four, four.open_pool(), draws=2)
    drawn = [index[:, :, 0] for index in seen if index.ndim == 3 and len(index) > 1]
    assert len(drawn) == 4 and all(index.shape[1] == 4 for index in drawn)
    assert all(len(set(row)) == 4 for index in drawn for row in index.tolist())
    assert len({tuple(row) for row in drawn[0].tolist()}) > 10


# views


def test_views_keep_the_thresholds_and_average_scores(run):
    run.embedded.clear()
    rows = invariance.view_rows(run, run.open_pool())
    assert sum(run.embedded.values()) == 5 * 40
    pool, parts = run.open_pool(), partition(run.open_pool().manifest, "random", grouping="frame")
    decoder = ProtoMatch().fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    decoder.calibrate(pool.take(parts["val"]), pool.Y[parts["val"]])
    by_view = {view: part for view, part in rows.groupby("method")}
    six = [part for view, part in by_view.items() if view != "mean of six views"]
    assert len(six) == 6
    mean = np.mean([part[SCORES].to_numpy() for part in six], axis=0)
    assert by_view["mean of six views"][SCORES].to_numpy() == pytest.approx(mean)
    assert np.array_equal(by_view["mean of six views"][CALLS].to_numpy(), (mean > decoder.thresholds_).astype(int))
    assert np.array_equal(by_view["identity"][CALLS].to_numpy(), decoder.predict(pool.take(parts["test"])))
    table = invariance.table_views(run, CODES, rows)
    f1 = {view: per_sample_f1(part[Y], part[CALLS]) for view, part in by_view.items()}
    changes = {view: value - f1["identity"] for view, value in f1.items()}
    assert cell(table, "vertical flip", "change") == pytest.approx(changes["vertical flip"])
    largest = max(abs(change) for view, change in changes.items() if view != "mean of six views")
    assert cell(table, "largest change", "f1") == pytest.approx(largest)


# light


def test_unevenness_of_a_flat_and_of_a_half_dark_frame(dataset):
    import torch

    from phoebi_lib.frontend import FrontEnd

    front_end = FrontEnd(tile_size=32, grid=1, sigma=8)
    flat = torch.full((1, 3, 64, 64), 90, dtype=torch.uint8)
    assert illumination.unevenness(flat, front_end) == pytest.approx(0.0, abs=1e-6)
    ramp = (torch.arange(64) + 60).to(torch.uint8).expand(1, 3, 64, 64)
    background = front_end.background(ramp)[0, 0].numpy()
    assert illumination.unevenness(ramp, front_end) == pytest.approx(background.std() / background.mean(), rel=1e-4)
    profile = illumination.profile(ramp[0].numpy(), 4)
    assert profile == pytest.approx((60 + np.array([7.5, 23.5, 39.5, 55.5])) / 91.5)


# as shown


def test_shown_tables_put_the_paper_under_ours(table16):
    shown = beside(table16, {"simplex_unmix_f1": "F1", "simplex_unmix_sparsity": "sparsity"}, heading="variant")
    lines = shown[shown["variant"] == "softmax"].set_index("numbers")
    assert lines.loc["paper", "F1"] == "0.6200" and lines.loc["paper", "sparsity"] == "0.0000"
    ours = lines.loc["here (simulated)"]
    assert ours["F1"].startswith(f"{cell(table16, 'softmax', 'simplex_unmix_f1'):.4f} [")
    assert ours["difference"] == "not comparable"
    alone = shown[shown["variant"] == "168 minus 224"]
    assert alone["numbers"].tolist() == ["here (simulated)"] and alone["difference"].item() == "–"
