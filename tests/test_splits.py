"""Every partition against the published vectors, an independent reading of the published rules, and its properties."""

import random
from functools import cache
from itertools import chain

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phoebi_lib.catalogue import CODES, COMBINATIONS, FOUR_CLASS_CODES, label_matrix
from phoebi_lib.splits import (
    PARTITIONS,
    dev_folds,
    lco_split,
    loso_split,
    nested_dev_split,
    partition,
    published_manifest,
    random_split,
    select_heldout,
)
from phoebi_lib.workspace import text_sha256

HELD_1337 = "bt bs_pf ka_fj bs_mx_fj bs_ka_pf mx_ka_fj bs_bt_ka_fj bs_mx_fj_pf bs_bt_mx_ka_fj_pf".split()
SHA_1337 = {
    "val": "2706249c2a676a0ac63fb3c157405933d62ca030243455c9c37be8008838d17b",
    "train": "ff946e73cf042ad70fdbb9eb44900c6e4d542624f31957397e80a1bd5542e78b",
    "test": "5be5255d79094f654ade36e5928bbf386f990b2ebee97c4fede91ad3aa9f48bd",
}
TABLE_18 = [
    "bs_fj fj_pf bt_ka_fj bt_mx_pf mx_ka_pf bt_mx_ka_fj".split(),
    "bt_ka bt_mx bs_mx_pf bt_mx_ka ka_fj_pf".split(),
    "bt_pf mx_fj bs_fj_pf bs_ka_fj bs_ka_fj_pf".split(),
    "bs_mx mx_ka bs_bt_mx bt_fj_pf bt_ka_fj_pf".split(),
    "bs_ka mx_pf bs_mx_ka mx_fj_pf bs_mx_ka_pf".split(),
]
DEV_SIZES = [(67497, 7503, 18000), (70154, 7846, 15000), (70249, 7751, 15000), (70257, 7743, 15000)]
DEV_SIZES += [(70215, 7785, 15000)]


@cache
def whole() -> pd.DataFrame:
    manifest = published_manifest()
    assert len(manifest) == 120_000
    return manifest


def paths(manifest, rows):
    return manifest["path"].to_numpy()[rows].tolist()


def sizes(split):
    return tuple(len(split[part]) for part in ("train", "val", "test") if part in split)


def frames_of(manifest, rows):
    return set(zip(manifest["combination"].to_numpy()[rows], manifest["frame"].to_numpy()[rows], strict=True))


def reference_draw(names, seed, counts, codes):
    """The published rule once more, written from its description; also returns the number of repeats."""
    tokens = {name: set(name.split("_")) for name in names}
    for attempt in range(51):
        rng, held = random.Random(seed + attempt), []
        for size in counts:
            pool = sorted(name for name in set(names) if len(tokens[name]) == size)
            rng.shuffle(pool)
            held.extend(pool[: counts[size]])
        trained = [n for n in sorted(set(names)) if n not in held and not any(tokens[n] == tokens[h] for h in held)]
        if not set(codes) - set(chain.from_iterable(tokens[n] for n in trained)):
            return held, trained, attempt
    return None


# random split


def test_random_split_is_the_published_one():
    manifest = whole()
    split = random_split(manifest)
    assert sizes(split) == (96000, 12000, 12000)
    for part, first, last in (("train", 1, 2400), ("val", 2401, 2700), ("test", 2701, 3000)):
        assert paths(manifest, split[part]) == [
            f"{name}/{n:05d}.jpg" for name in sorted(COMBINATIONS) for n in range(first, last + 1)
        ]


@pytest.mark.parametrize(("n", "crops"), [(3, 1), (9, 3), (4, 1), (10, 1), (30, 3), (1000, 1), (25, 1)])
def test_random_split_properties(n, crops):
    manifest = published_manifest(n, crops)
    split = random_split(manifest)
    frames = n // crops
    assert sizes(split)[1] == sizes(split)[2] == 40 * crops * max(1, round(0.1 * frames))
    check_disjoint_cover(manifest, split)
    for rows in split.values():
        assert set(manifest["combination"].to_numpy()[rows]) == set(COMBINATIONS)
    assert label_matrix(manifest["combination"])[split["val"]].any(axis=0).all()
    last = {
        part: manifest.iloc[rows].groupby("combination")["frame"].agg(["min", "max"]) for part, rows in split.items()
    }
    assert (last["train"]["max"] < last["val"]["min"]).all() and (last["val"]["max"] < last["test"]["min"]).all()


def check_disjoint_cover(manifest, split):
    together = np.concatenate(list(split.values()))
    assert sorted(together) == list(range(len(manifest)))
    seen = [frames_of(manifest, rows) for rows in split.values()]
    assert sum(map(len, seen)) == len(set().union(*seen)), "two parts share a frame"


# leave combinations out


def test_held_out_lists():
    held, trained = select_heldout(COMBINATIONS, 1337)
    assert held == HELD_1337
    assert trained == sorted(set(COMBINATIONS) - set(HELD_1337))
    lists = [select_heldout(COMBINATIONS, seed)[0] for seed in (1337, 1338, 1339)]
    assert [held[0] for held in lists] == ["bt", "bs", "mx"]  # the species without a pure culture
    assert len(set(chain(*lists))) == 19
    common = set(lists[0]) & set(lists[1]) & set(lists[2])
    assert common == {"bs_bt_ka_fj", "bs_mx_fj_pf", "bs_bt_mx_ka_fj_pf"}
    assert label_matrix(held).sum(axis=0).tolist() == [6, 3, 6, 5, 4, 4]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**40), shuffler=st.randoms())
def test_any_seed_equals_the_reference_draw(seed, shuffler):
    names = list(COMBINATIONS)
    shuffler.shuffle(names)
    held, trained, _ = reference_draw(names, seed, {1: 1, 2: 2, 3: 3, 4: 2, 6: 1}, CODES)
    assert select_heldout(names, seed) == (held, trained)


def test_any_counts_in_their_own_order_and_retries():
    counts = {6: 1, 1: 5, 2: 9, 4: 5, 3: 11}
    attempts = []
    for seed in range(40):
        expected = reference_draw(COMBINATIONS, seed, counts, CODES)
        assert select_heldout(COMBINATIONS, seed, counts) == expected[:2]
        attempts.append(expected[2])
    assert max(attempts) > 0, "no seed exercised the repeat"
    # a repeat of seed s is the first draw of a later seed: kept for compatibility
    seed = next(s for s, attempt in enumerate(attempts) if attempt > 0)
    assert select_heldout(COMBINATIONS, seed, counts) == select_heldout(COMBINATIONS, seed + attempts[seed], counts)


def test_no_covering_draw_is_refused():
    with pytest.raises(ValueError, match="51 draws"):
        select_heldout(["bs", "bt"], 1, {1: 1}, codes=("bs", "bt"))


def test_folders_with_a_held_out_species_set_are_dropped():
    names = ["b", "f", "k", "p", "b_f", "f_b", "b_k", "b_p", "f_k", "b_f_k", "b_f_p", "f_k_p", "b_f_k_p"]
    met = False
    for seed in range(20):
        held, trained, _ = reference_draw(names, seed, {1: 1, 2: 2, 3: 1, 4: 1}, FOUR_CLASS_CODES)
        if len(held) + len(trained) < len(names):
            met = True
            with pytest.warns(UserWarning, match="not trained on.*(b_f|f_b)"):
                assert select_heldout(names, seed, codes=FOUR_CLASS_CODES) == (held, trained)
        else:
            assert select_heldout(names, seed, codes=FOUR_CLASS_CODES) == (held, trained)
    assert met


def test_lco_image_shuffle_vectors():
    manifest = whole()
    split = lco_split(manifest, 1337)
    assert sizes(split) == (83700, 9300, 27000)
    for part, digest in SHA_1337.items():
        assert text_sha256("\n".join(paths(manifest, split[part]))) == digest, part
    assert paths(manifest, split["val"][:3]) == ["bs_ka_fj_pf/01383.jpg", "bt_ka/00757.jpg", "ka_fj_pf/01391.jpg"]
    assert paths(manifest, split["train"][:3]) == ["bs_ka_fj_pf/00474.jpg", "bs_fj/00580.jpg", "bs/02236.jpg"]
    val = set(paths(manifest, split["val"]))
    assert [i for i in range(60) if f"bs/{i + 1:05d}.jpg" in val] == [0, 14, 30, 34, 39, 41, 46]
    counts = manifest["combination"].iloc[split["val"]].value_counts()
    assert (counts.min(), counts.max()) == (265, 333)


@pytest.mark.parametrize("seed", [1338, 1339, 0, 20261130])
def test_lco_other_seeds_follow_the_rule(seed):
    manifest = published_manifest(30)
    held, trained, _ = reference_draw(COMBINATIONS, seed, {1: 1, 2: 2, 3: 3, 4: 2, 6: 1}, CODES)
    entries = [f"{name}/{n:05d}.jpg" for name in trained for n in range(1, 31)]
    random.Random(seed + 1).shuffle(entries)
    split = lco_split(manifest, seed)
    assert paths(manifest, split["val"]) == entries[:93] and paths(manifest, split["train"]) == entries[93:]
    assert paths(manifest, split["test"]) == [f"{name}/{n:05d}.jpg" for name in held for n in range(1, 31)]


@pytest.mark.parametrize(("seed", "share"), [(1337, 0.992), (1338, 0.991), (1339, 0.991)])
def test_sibling_crops_leak_in_the_published_division_only(seed, share):
    manifest = whole()
    for grouping, expected in (("image", share), ("frame", 0.0)):
        split = lco_split(manifest, seed, grouping=grouping)
        train = frames_of(manifest, split["train"])
        val = zip(manifest["combination"].iloc[split["val"]], manifest["frame"].iloc[split["val"]], strict=True)
        assert round(np.mean([frame in train for frame in val]), 3) == expected


@pytest.mark.parametrize(("n", "crops"), [(3, 1), (9, 3), (4, 1), (10, 1), (30, 3), (1000, 1), (3000, 3)])
def test_lco_frame_grouping_properties(n, crops):
    manifest = published_manifest(n, crops)
    split = lco_split(manifest, 1337, grouping="frame")
    check_disjoint_cover(manifest, split)
    names = manifest["combination"].to_numpy()
    assert set(names[split["test"]]) == set(HELD_1337)
    assert set(names[split["train"]]) == set(names[split["val"]]) == set(COMBINATIONS) - set(HELD_1337)
    assert len(split["val"]) == 31 * crops * max(1, round(0.1 * (n // crops)))
    assert label_matrix(names)[split["val"]].any(axis=0).all()
    assert paths(manifest, split["test"]) == [f"{name}/{i:05d}.jpg" for name in HELD_1337 for i in range(1, n + 1)]
    first_val = manifest.iloc[split["val"]].groupby("combination")["frame"].min()
    assert (manifest.iloc[split["train"]].groupby("combination")["frame"].max() < first_val).all()


def test_groupings_agree_on_the_test_part():
    manifest = published_manifest(30)
    image, frame = (lco_split(manifest, 1338, grouping=grouping)["test"] for grouping in ("image", "frame"))
    assert np.array_equal(image, frame)


# development folds, leave one species out, names


def test_dev_folds_of_table_18():
    _, trained = select_heldout(COMBINATIONS, 1337)
    folds = dev_folds(trained)
    assert [fold["dev"] for fold in folds] == TABLE_18
    for fold in folds:
        assert fold["train"] == [name for name in trained if name not in fold["dev"]]
    assert len(set(chain(*TABLE_18))) == 26


@pytest.mark.parametrize(("partition_seed", "fold_seed", "n_folds"), [(1338, 1337, 5), (1339, 7, 4), (5, 99, 6)])
def test_dev_folds_follow_the_rule(partition_seed, fold_seed, n_folds):
    _, trained = select_heldout(COMBINATIONS, partition_seed)
    rng, folds = random.Random(fold_seed), [[] for _ in range(n_folds)]
    for size in (2, 3, 4, 5, 6):
        pool = sorted(name for name in trained if name.count("_") == size - 1)
        rng.shuffle(pool)
        for name in pool:
            lengths = [len(fold) for fold in folds]
            folds[lengths.index(min(lengths))].append(name)
    ours = dev_folds(trained, n_folds, fold_seed)
    assert [sorted(fold["dev"]) for fold in ours] == [sorted(fold) for fold in folds]


@pytest.mark.parametrize("fold", range(5))
def test_dev_partitions(fold):
    manifest = whole()
    split = partition(manifest, f"dev-{fold}", grouping="image")
    assert sizes(split) == DEV_SIZES[fold]
    names = manifest["combination"].to_numpy()
    assert list(dict.fromkeys(names[split["test"]])) == TABLE_18[fold]
    parent = lco_split(manifest, 1337)
    kept = [row for row in parent["val"] if names[row] not in TABLE_18[fold]]
    assert split["val"].tolist() == kept
    assert not set(names[split["train"]]) & set(HELD_1337 + TABLE_18[fold])


def test_dev_partition_by_frame_shares_no_frame():
    manifest = published_manifest(30)
    split = partition(manifest, "dev-1", grouping="frame")
    seen = [frames_of(manifest, rows) for rows in split.values()]
    assert sum(map(len, seen)) == len(set().union(*seen))
    assert set(manifest["combination"].iloc[split["val"]]) == set(manifest["combination"].iloc[split["train"]])


@pytest.mark.parametrize(
    ("code", "kept", "unknown"),
    [
        ("bs", 55200, 5100),
        ("bt", 64800, 3900),
        ("fj", 50400, 5700),
        ("ka", 50400, 5700),
        ("mx", 50400, 5700),
        ("pf", 52800, 5400),
    ],
)
def test_leave_one_species_out_counts(code, kept, unknown):
    manifest = whole()
    split = loso_split(manifest, code)
    assert set(split) == {"train", "test"} and sizes(split) == (kept, 12000)
    holds = label_matrix(manifest["combination"])[:, CODES.index(code)]
    assert holds[split["train"]].sum() == 0 and holds[split["test"]].sum() == unknown
    full = partition(manifest, f"loso-{code}", grouping="frame")
    assert np.array_equal(full["test"], random_split(manifest)["test"])
    assert holds[full["val"]].sum() == 0 and len(full["val"]) == kept // 8


def test_partition_names():
    manifest = published_manifest(30)
    assert len(PARTITIONS) == 15
    for name in (*PARTITIONS, "lco-0", "lco-424242"):
        assert set(partition(manifest, name, grouping="frame")) == {"train", "val", "test"}
    whole_lco = partition(manifest, "lco-1338", grouping="image")
    assert all(np.array_equal(rows, lco_split(manifest, 1338)[part]) for part, rows in whole_lco.items())


@pytest.mark.parametrize(
    "name", ["dev-5", "dev-00", "loso-xx", "lco-", "lco--1", "lco-01", "Random", "", "random ", 3, None]
)
def test_unknown_partition_lists_the_known_ones(name):
    with pytest.raises(ValueError, match="known: random, lco-1337.*dev-4.*loso-pf"):
        partition(published_manifest(3, 1), name, grouping="frame")


# what is refused


@given(seed=st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_row_order_of_the_manifest_does_not_matter(seed):
    manifest = published_manifest(6, 2)
    shuffled = manifest.sample(frac=1, random_state=seed)
    for name, grouping in (("random", "frame"), ("lco-1337", "image"), ("lco-1337", "frame"), ("dev-2", "image")):
        ours, theirs = (partition(table, name, grouping=grouping) for table in (manifest, shuffled))
        assert all(paths(manifest, ours[part]) == paths(shuffled, theirs[part]) for part in ours)


def test_too_few_frames():
    for n, crops in ((2, 1), (6, 3)):
        with pytest.raises(ValueError, match="'bs' has 2 frame.*at least 3"):
            random_split(published_manifest(n, crops))
        with pytest.raises(ValueError, match="at least 3"):
            lco_split(published_manifest(n, crops), 1337, grouping="frame")


def test_bad_manifests():
    good = published_manifest(3, 1)
    with pytest.raises(ValueError, match="lacks the column frame"):
        random_split(good.drop(columns="frame"))
    with pytest.raises(ValueError, match="'bs/00001.jpg' twice"):
        random_split(pd.concat([good, good.iloc[:1]]))
    with pytest.raises(ValueError, match="no rows"):
        lco_split(good.iloc[:0], 1337)
    with pytest.raises(ValueError, match="must hold integers"):
        random_split(good.assign(frame=good["frame"] + 0.5))
    with pytest.raises(ValueError, match="unlabelled"):
        random_split(good.assign(combination=""))
    with pytest.raises(ValueError, match="unknown species code"):
        lco_split(good.assign(combination=good["combination"].replace("bt", "zz")), 1337)


@pytest.mark.parametrize("change", ["gap", "unpadded", "named"])
def test_published_shuffle_needs_gap_free_numbers(change):
    manifest = published_manifest(12, 3)
    if change == "gap":
        broken = manifest[manifest["path"] != "bs_mx/00005.jpg"]
    elif change == "unpadded":
        broken = manifest.assign(path=[path.replace("/000", "/").replace("/0", "/") for path in manifest["path"]])
    else:
        broken = manifest.assign(path=[path.replace("/0", "/a") for path in manifest["path"]])
    with pytest.raises(ValueError, match="expected image number.*grouping='frame'"):
        lco_split(broken, 1337)
    assert len(lco_split(broken, 1337, grouping="frame")["val"]) == 31 * 3


@pytest.mark.parametrize(
    ("seed", "error"), [("1337", TypeError), (1337.0, TypeError), (True, TypeError), (-1, ValueError)]
)
def test_seed_types(seed, error):
    _, trained = select_heldout(COMBINATIONS, 1337)
    for call in (
        lambda: select_heldout(COMBINATIONS, seed),
        lambda: lco_split(published_manifest(3, 1), seed),
        lambda: dev_folds(trained, seed=seed),
    ):
        with pytest.raises(error, match="seed"):
            call()
    assert select_heldout(COMBINATIONS, np.int64(1337))[0] == HELD_1337


def test_bad_arguments():
    manifest = published_manifest(3, 1)
    _, trained = select_heldout(COMBINATIONS, 1337)
    with pytest.raises(ValueError, match="grouping must be 'image'"):
        lco_split(manifest, 1337, grouping="images")
    with pytest.raises(ValueError, match="grouping must be 'image'"):
        partition(manifest, "random", grouping="both")
    with pytest.raises(ValueError, match="of order 5: there are 0"):
        select_heldout(COMBINATIONS, 1337, {5: 1})
    with pytest.raises(ValueError, match="counts maps an order"):
        select_heldout(COMBINATIONS, 1337, {1: -1})
    with pytest.raises(ValueError, match="known codes"):
        loso_split(manifest, "xx")
    for n_folds in (0, 27, 2.0, True):
        with pytest.raises(ValueError, match="n_folds must be an integer from 1 to 26"):
            dev_folds(trained, n_folds)
    with pytest.raises(ValueError, match="fold 0: no training combination holds"):
        dev_folds(["bs", "bt_ka", "ka_mx", "fj_pf"], 2)


def test_the_nested_development_split_is_the_published_one():
    manifest = whole()
    _, trained = select_heldout(COMBINATIONS, 1337)
    nested = nested_dev_split(trained)
    assert nested["dev"] == "mx_fj bs_fj_pf mx_fj_pf bs_mx_ka_pf".split()
    assert nested["train"] == [name for name in trained if name not in nested["dev"]]
    # the counts that the published run reports: partition-train and partition-val images of what is left, and of dev
    parts, names = lco_split(manifest, 1337), manifest["combination"]
    left, held = (names.isin(nested[part]).to_numpy() for part in ("train", "dev"))
    assert (left[parts["train"]].sum(), left[parts["val"]].sum()) == (72_921, 8_079)
    assert held[np.concatenate([parts["train"], parts["val"]])].sum() == 12_000


@given(seed=st.integers(0, 5_000), order=st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_nested_development_splits_cover_every_species(seed, order):
    _, trained = select_heldout(COMBINATIONS, 1338)
    shuffled = order.sample(trained, len(trained))
    nested = nested_dev_split(shuffled, seed)
    assert [name.count("_") + 1 for name in nested["dev"]] == [2, 3, 3, 4]
    assert set("_".join(nested["train"]).split("_")) == set(CODES)
    assert nested["train"] == [name for name in shuffled if name not in nested["dev"]]
    assert nested["dev"] == nested_dev_split(trained, seed)["dev"], "the order of the input does not matter"


def test_a_nested_draw_without_cover_is_repeated_with_the_next_seed():
    # the only triples with bs are both drawn or not: 'bs' has no other combination
    trained = "bt fj ka mx pf bt_mx bt_ka bs_mx_ka bs_mx_fj bt_mx_ka bt_mx_ka_fj".split()
    first = random.Random(0)
    draw = []
    for pool, count in ((["bt_ka", "bt_mx"], 1), (["bs_mx_fj", "bs_mx_ka", "bt_mx_ka"], 2), (["bt_mx_ka_fj"], 1)):
        first.shuffle(pool)
        draw += pool[:count]
    uncovered = {"bs_mx_fj", "bs_mx_ka"} <= set(draw)
    for seed in range(40):
        nested = nested_dev_split(trained, seed)
        assert any("bs" in name for name in nested["train"])
        if seed == 0:
            assert (set(nested["dev"]) == set(draw)) != uncovered
    with pytest.raises(ValueError, match="of order 4: there are 0"):
        nested_dev_split(trained[:-1])
    with pytest.raises(ValueError, match="without a training combination"):
        nested_dev_split("bt fj ka mx pf bs_mx bt_mx_ka bt_mx_fj bt_mx_ka_fj".split())
    with pytest.raises(TypeError, match="seed"):
        nested_dev_split(trained, 1.5)
