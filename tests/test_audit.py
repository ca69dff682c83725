"""The audit's shared numbers: the list itself, margins, joint resamples, and the studies of data and decoders."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from phoebi_lib.catalogue import CODES, label_matrix
from phoebi_lib.decoders import ProtoMatch
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.intervals import bootstrap
from phoebi_lib.manifest import published_manifest
from phoebi_lib.pool import Pool
from phoebi_lib.splits import lco_split
from phoebi_lib.splits import partition as split
from phoebi_lib.studies import audit, audit_data, audit_decoders, audit_frames, audit_front_end

WIDTH = 18


@pytest.fixture(scope="module")
def pool():
    manifest = published_manifest(4, 1)
    labels = label_matrix(manifest["combination"])
    rng = np.random.default_rng(3)
    signal = (labels / labels.sum(axis=1, keepdims=True)) @ rng.normal(size=(6, WIDTH))
    raw = 2 + signal[:, None, :] + rng.normal(size=(len(manifest), 4, WIDTH))
    header = {"key": "0" * 64, "shape": list(raw.shape), "labels": labels.tolist(), "codes": list(CODES),
              "dataset_name": "made", "encoder_name": "none", "evidence": "simulated", "facts": {}}  # fmt: skip
    return Pool(raw.astype(np.float32), manifest, header)


def made_rows(seed, n=60, shared=None):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"combination": rng.choice(list("abcdef"), n), "id": [str(i) for i in range(n)]})
    if shared is not None:
        table["combination"] = shared
    for code in CODES:
        table[f"y_{code}"] = rng.integers(0, 2, n)
        table[f"pred_{code}"] = rng.integers(0, 2, n)
    return audit.with_margin(table.assign(frame=range(n), evidence="simulated"))


def test_the_list_names_all_entries_once_and_only_modules_that_exist():
    entries = audit.entries()
    assert entries["id"].tolist() == [f"D{i}" for i in range(1, 50)]
    assert not (entries[["topic", "published", "ours", "where", "kind"]] == "").any(axis=None)
    import importlib

    for where in entries["where"]:
        for name in (part.split(" (")[0].strip() for part in where.split(", phoebi_lib")):
            parts = name.removeprefix("phoebi_lib").strip(".").split(".")
            try:
                found = importlib.import_module(".".join(["phoebi_lib", *parts]))
            except ModuleNotFoundError:
                found = getattr(importlib.import_module(".".join(["phoebi_lib", *parts[:-1]])), parts[-1])
            assert found is not None


def test_compat_rows_named_in_the_list_exist():
    from phoebi_lib.compat import CHOICES

    known = {row.name for row in CHOICES}
    named = audit.entries()["where"].str.extract(r"phoebi_lib\.compat \(([^)]*)\)")[0].dropna()
    assert {name.strip() for text in named for name in text.split(",")} <= known


def test_entries_refuse_an_unknown_kind(monkeypatch):
    frame = pd.DataFrame({"id": ["D1"], "kind": ["opinion"], "page": [""]})
    monkeypatch.setattr(pd, "read_csv", lambda *_, **__: frame)
    with pytest.raises(ValueError, match="opinion"):
        audit.entries()
    frame["kind"] = "experiment"
    with pytest.raises(ValueError, match="D1 is an experiment without a page"):
        audit.entries()


def test_margin_by_hand():
    one = pd.DataFrame(
        {f"y_{c}": [int(c == "bs")] for c in CODES} | {f"pred_{c}": [int(c in ("bs", "ka"))] for c in CODES}
    )
    row = audit.with_margin(one).iloc[0]
    assert row["f1"] == pytest.approx(2 / 3)
    assert row["margin"] == pytest.approx(2 / 3 - 2 / 7)  # all six called: 2 / (1 + 6)


def test_mean_and_difference_are_those_of_the_plain_bootstrap():
    first, second = made_rows(1), made_rows(2, n=45)
    assert audit.mean(first, n=50) == pytest.approx(bootstrap(first, "margin", "combination", n=50))
    both = pd.concat([first.assign(way=0), second.assign(way=1)], ignore_index=True)

    def change(rows):
        means = rows.groupby("way")["margin"].mean()
        return means.get(0, np.nan) - means.get(1, np.nan)

    assert audit.difference(first, second, n=50) == pytest.approx(bootstrap(both, change, "combination", n=50))


def test_a_difference_on_the_same_images_is_paired():
    first = made_rows(5)
    second = first.assign(margin=first["margin"] - 0.25)
    assert audit.difference(first, second, n=30) == pytest.approx((0.25, 0.25, 0.25))
    assert audit.difference(second, first, n=30)[0] == pytest.approx(-0.25)
    shuffled = second.sample(frac=1, random_state=0)
    assert audit.difference(first, shuffled, n=30) == pytest.approx((0.25, 0.25, 0.25))


def test_reading_follows_the_interval():
    says = {"more": "up", "less": "down", "open_": "open"}
    assert audit.reading((0.2, 0.1, 0.3), **says).startswith("up (+0.200")
    assert audit.reading((-0.2, -0.3, -0.1), **says).startswith("down")
    assert audit.reading((0.2, 0.0, 0.3), **says).startswith("not resolved: open")
    assert audit.reading((0.0, float("nan"), float("nan")), **says).startswith("not resolved")


def test_no_change_is_not_called_unresolved():
    assert audit.reading((0.0, 0.0, 0.0), "up", "down", "open") == "no image changes its score"


def test_similarity_is_the_mean_cosine_of_tiles(pool):
    turned = Pool(pool.raw[:, ::-1], pool.manifest, pool.header)
    rows = audit_front_end.similarity(pool, turned)
    a, b = pool.raw[3].astype(float), pool.raw[3, ::-1].astype(float)
    expected = np.mean([a[t] @ b[t] / np.linalg.norm(a[t]) / np.linalg.norm(b[t]) for t in range(4)])
    assert rows["cosine"].iloc[3] == pytest.approx(expected, abs=1e-5)
    assert audit_front_end.similarity(pool, pool)["cosine"].to_numpy() == pytest.approx(1, abs=1e-5)


def test_method_is_fitted_calibrated_and_asked_on_the_parts_given(pool):
    parts = split(pool.manifest, "random", grouping="frame")
    rows = audit.run_method(ProtoMatch(), (pool, parts["train"]), (pool, parts["val"]), {"test": (pool, parts["test"])})
    decoder = ProtoMatch().fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    decoder.calibrate(pool.take(parts["val"]), pool.Y[parts["val"]])
    called = decoder.predict(pool.take(parts["test"]))
    assert (rows[[f"pred_{c}" for c in CODES]].to_numpy() == called).all()
    assert rows["id"].tolist() == pool.manifest["path"].iloc[parts["test"]].tolist()


def test_ways_share_images_and_lines_are_named(pool):
    rows = audit.run_ways({"a": (pool, pool), "b": (pool, pool)}, "corrected", methods=["ProtoMatch"])
    lines = pd.DataFrame(audit.way_lines(rows, "a", n=20))
    same = lines[lines["column"].str.endswith("difference")]
    assert (same["value"] == 0).all() and len(same) == 2
    assert set(lines["column"]) == {f"{k}_{q}" for k in ("in_dist", "heldout") for q in ("margin", "difference")}
    held = lines[(lines["column"] == "heldout_margin") & (lines["row"] == "ProtoMatch, a")].iloc[0]
    assert held["n_combinations"] == 19 and held["n_images"] == 19 * 4


def test_nearest_image_by_brute_force(pool):
    rng = np.random.default_rng(0)
    order = rng.permutation(len(pool))
    train, asked = order[:100], order[100:]
    rows = audit_data.nearest_rows(pool, train, asked)
    means = pool.X.mean(axis=1)
    nearest = [train[np.argmin(((means[train] - means[i]) ** 2).sum(axis=1))] for i in asked]
    assert (rows[[f"pred_{c}" for c in CODES]].to_numpy() == pool.Y[nearest]).all()
    assert (rows["sibling"] == 0).all()  # one crop a frame


def test_an_image_beside_its_copy_is_a_sibling(pool):
    manifest = published_manifest(4, 2)
    twins = Pool(np.repeat(pool.raw[::2], 2, axis=0), manifest, pool.header)
    rows = audit_data.nearest_rows(twins, np.arange(0, 160, 2), np.arange(1, 160, 2))
    assert rows["sibling"].all() and (rows["f1"] == 1).all()


def test_mean_logistic_scores_the_mean_feature(pool):
    X, Y = pool.X, pool.Y
    decoder = audit_data.MeanLogistic().fit(X, Y)
    means = X.mean(axis=1, dtype=float)
    standard = (means - means.mean(axis=0)) / means.std(axis=0)
    for k in (0, 4):
        model = LogisticRegression(max_iter=1000).fit(standard, Y[:, k])
        expected = model.predict_proba(standard)[:, 1]
        assert np.allclose(decoder.decision_function(X)[:, k], expected, atol=1e-3)


def test_shuffles_keep_frames_whole_or_not():
    manifest = published_manifest(30, 3)
    cuts = audit_data.divisions(manifest, 1337)
    for name, shared in {"shuffled by image": True, "shuffled by frame": False}.items():
        parts = cuts[name]
        assert sorted(np.concatenate(list(parts.values()))) == list(range(len(manifest)))
        frames = {part: set(zip(manifest["combination"].iloc[rows], manifest["frame"].iloc[rows], strict=True))
                  for part, rows in parts.items()}  # fmt: skip
        assert bool(frames["train"] & frames["test"]) is shared


def test_stratified_draws_take_the_same_from_each(pool):
    names = np.repeat(list("abcd"), 20)
    scores, Y = np.random.default_rng(0).random((80, 2)), np.ones((80, 2), dtype=int)
    thresholds, counts = audit_data.validation_draws(names, scores, Y, stratified=True, repeats=6)
    assert (counts == 2).all() and thresholds.shape == (6, 2)
    _, counts = audit_data.validation_draws(names, scores, Y, stratified=False, repeats=6)
    assert (counts.sum(axis=1) == 8).all() and (counts != 2).any()
    again, _ = audit_data.validation_draws(names, scores, Y, stratified=True, repeats=6)
    assert (again == thresholds).all()


def test_exact_counts_are_the_published_ones():
    published = published_manifest()
    counts = audit_data.validation_counts(published, lco_split(published, 1337))
    assert (counts.min(), counts.max(), counts.sum(), len(counts)) == (265, 333, 9300, 31)
    assert audit_data.singletons() == {1337: "bt", 1338: "bs", 1339: "mx"}
    lines = {line["row"]: line["value"] for line in audit_data.heldout_lines()}
    assert lines["different combinations among them"] == 19
    assert lines["combinations held out 3 times"] == 3 and lines["combinations held out 2 times"] == 2


def test_probe_sees_no_image_of_the_frame_it_is_asked_about():
    rng = np.random.default_rng(0)
    names, frames = np.repeat(list("abc"), 16), np.tile(range(8), 6)
    # the two crops of a frame, eight rows apart, are equal, and otherwise tell nothing
    own = rng.normal(size=(3, 1, 8, 40)).repeat(2, axis=1).reshape(48, 40)
    assert audit_data.probe(own, names, frames).mean() < 0.7
    told = own + 10 * np.eye(40)[np.repeat(range(3), 16)]
    assert audit_data.probe(told, names, frames).mean() == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_range_thresholds_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    scores, Y = rng.normal(size=(40, 2)), rng.integers(0, 2, (40, 2))
    for k, threshold in enumerate(audit_decoders.range_thresholds(scores, Y)):
        points = [scores[:, k].min() + i * np.ptp(scores[:, k]) / 198 for i in range(198)]
        f1 = [2 * (Y[:, k] * (scores[:, k] > p)).sum() / (Y[:, k].sum() + (scores[:, k] > p).sum()) for p in points]
        assert threshold == pytest.approx(points[int(np.argmax(f1))])


def test_all_orders_of_clusters():
    rng = np.random.default_rng(1)
    scores, Y = rng.random((50, 3)), rng.integers(0, 2, (50, 3))
    found = audit_decoders.order_aurocs(scores, Y)

    def area(score, true):
        pairs = score[true == 1][:, None] - score[true == 0][None]
        return ((pairs > 0) + (pairs == 0) / 2).mean()

    expected = [np.mean([area(scores[:, c], Y[:, k]) for k, c in enumerate(order)])
                for order in itertools.permutations(range(3))]  # fmt: skip
    assert found == pytest.approx(expected)


def test_flips_by_hand():
    tied, third = 0.1, 1 / 3
    rows = pd.DataFrame({"score_a": [tied, third, 0.7], "threshold_a": [tied, np.float64(np.float32(third)), 0.5]})
    flips = audit_decoders.flipped_calls(rows, ["a"])
    # 0.1 rounds up in single precision: alone, the score passes its own threshold; 1/3 rounds up: it stays below
    assert flips == {"calls": 3, "ties": 1, "both single": 0, "single scores": 1, "single thresholds": 0}


def test_other_prototypes_and_tile_counts(pool):
    parts = split(pool.manifest, "random", grouping="frame")
    decoder = ProtoMatch().fit(pool.take(parts["train"]), pool.Y[parts["train"]])
    swapped = audit_decoders.with_prototypes(decoder, 3 * decoder.prototypes_[::-1])
    X = pool.take(parts["test"])
    assert np.allclose(swapped.decision_function(X), decoder.decision_function(X)[:, ::-1])
    rows = audit_decoders.tile_count_rows({"a": decoder, "b": decoder}, pool, parts, [2, 4, 16])
    assert sorted(rows["tiles"].unique()) == [2, 4]
    a, b = (rows[rows["way"] == way].drop(columns="way").reset_index(drop=True) for way in "ab")
    pd.testing.assert_frame_equal(a, b)
    decoder.calibrate(pool.take(parts["val"]), pool.Y[parts["val"]])
    whole = rows[(rows["way"] == "a") & (rows["tiles"] == 4)]
    assert (whole[[f"pred_{c}" for c in CODES]].to_numpy() == decoder.predict(X)).all()


def test_development_variants_differ_as_named(pool):
    rows = audit_decoders.development_rows(pool, "corrected", "frame")
    sizes = rows.groupby(["method", "way"]).size().unstack()
    assert (sizes["as written"] == 26 * 4).all()
    assert (sizes["as executed"] == 26 * 3).all()  # one of four frames of a combination is validation
    assert (sizes["as executed"] == sizes["training-part dev images only"]).all()
    score = f"score_{CODES[0]}"
    wide = rows[rows["method"] == "ProtoMatch"].pivot(index="id", columns="way", values=score)
    assert wide["as written"].equals(wide["search over the range of scores"].rename("as written"))


def test_clusters_have_unit_length_and_follow_the_seed(pool):
    first, again = (audit_decoders.cluster_prototypes(pool.X, 6, 1) for _ in range(2))
    assert np.allclose(np.linalg.norm(first, axis=1), 1) and np.array_equal(first, again)


def test_even_field_and_scales():
    zero = audit_front_end.tile_levels(FrontEnd(padding="zero"))
    assert {k: round(v, 1) for k, v in zero.items()} == {
        "interior tiles": 107.5, "edge tiles": 125.1, "corner tiles": 144.5}  # fmt: skip
    even = audit_front_end.tile_levels(FrontEnd())
    assert max(even.values()) - min(even.values()) < 0.01
    assert set(audit_front_end.tile_levels(FrontEnd(grid=2))) == {"corner tiles"}
    gains = audit_front_end.place_gains(FrontEnd(grid=1, padding="zero"), 224)
    assert gains["centre"] < 0.72 and 1.2 < gains["middle of an edge"] < 1.25 and 2.1 < gains["corner"] < 2.2
    sigmas = audit_front_end.native_sigmas(64)
    assert sigmas["smallest crop"] == 64 * 1420 / 1024 and sigmas["largest crop"] == 64 * 1942 / 1024


def test_wider_blurs_leave_more_of_a_hotspot():
    left = [audit_front_end.hotspot_left(FrontEnd(sigma=s), 0.4, 0.45, side=512) for s in (16, 64, 128)]
    assert left == sorted(left)
    assert audit_front_end.hotspot_left(FrontEnd(illumination="none"), 0.4, 0.45, side=512) > left[-1]


def test_changed_frames():
    frame = np.random.default_rng(0).integers(0, 256, (3, 256, 300), dtype=np.uint8)
    flat = np.full((3, 256, 300), 90, dtype=np.uint8)
    assert (audit_frames.shrink(flat, "a", side=64) == 90).all()
    corrected = audit_frames.correct_then_shrink(flat, "a", side=224, padding="reflect")
    assert corrected.shape == (3, 224, 224) and (corrected == 89).all()  # 90 * 90 / 91
    settings = {"side": 32, "grid": 2, "padding": "reflect", "seed": 1}
    crops = audit_frames.random_crops(frame, "a", **settings)
    assert crops.shape == (3, 64, 64)
    assert np.array_equal(crops, audit_frames.random_crops(frame, "a", **settings))
    assert not np.array_equal(crops, audit_frames.random_crops(frame, "b", **settings))
    even = FrontEnd(tile_size=32).correct(__import__("torch").from_numpy(frame)[None])[0].round().numpy()
    windows = np.lib.stride_tricks.sliding_window_view(even, (3, 32, 32))[0]
    assert (windows == crops[:, 32:, :32]).all(axis=(2, 3, 4)).any(), "each crop is a piece of the corrected frame"
    luma = np.round(frame.astype(float).transpose(1, 2, 0) @ [0.299, 0.587, 0.114])
    assert np.abs(audit_frames.grey(frame, "a") - luma[None]).max() <= 1


def test_grey_rows_by_hand(pool):
    pure = pool.select(np.flatnonzero(pool.Y.sum(axis=1) == 1))
    decoder = ProtoMatch().fit(pool.X, pool.Y).calibrate(pool.X, pool.Y)
    rows = audit_front_end.grey_rows(decoder, {"rgb": pure}, way="one path")
    scores = decoder.decision_function(pure.X)
    own = pure.Y.argmax(axis=1)
    for i in (0, 7, 20):
        others = [scores[i, k] for k in range(6) if k != own[i]]
        assert rows["lead"].iloc[i] == pytest.approx(scores[i, own[i]] - max(others))
        assert rows["passed"].iloc[i] == float(scores[i, own[i]] > decoder.thresholds_[own[i]])


def test_one_tile_at_a_time(pool):
    decoder = ProtoMatch().fit(pool.X, pool.Y).calibrate(pool.X, pool.Y)
    rows = audit_front_end.tile_rows(decoder, pool, np.array([5, 9]), part="one")
    assert len(rows) == 2 * 4
    single = rows[(rows["tile"] == 2) & (rows["id"] == pool.ids[9])]
    expected = decoder.predict(pool.X[[9]][:, [2]])[0]
    assert (single[[f"pred_{c}" for c in CODES]].to_numpy()[0] == expected).all()
