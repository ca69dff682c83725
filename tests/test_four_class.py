"""The four-species subset: simulated stand-in, duplicate recordings, held-out draw, constant; the shuffled split."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from itertools import combinations as subsets

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from phoebi_lib import label_only, scoring, session, simulate
from phoebi_lib.catalogue import (
    COMBINATIONS,
    FOUR_CLASS_CODES,
    FOUR_CLASS_COMBINATIONS,
    FOUR_CLASS_SPECIES,
    order,
    parse_combination,
)
from phoebi_lib.cli import main
from phoebi_lib.datasets import open_dataset, write_manifests
from phoebi_lib.provenance import SIMULATED
from phoebi_lib.simulate.session import session_of
from phoebi_lib.splits import (
    FOUR_CLASS_HELDOUT_COUNTS,
    dropped_folders,
    lco_split,
    partition,
    published_manifest,
    random_split,
    select_heldout,
    shuffled_split,
)
from phoebi_lib.studies.label_noise import field_counts

SMALL = {"field.width": 200, "field.height": 150, "crop.size": 48}
NAME = "sim:smoke:four"
DUPLICATES = ("b_f", "f_b")
quiet = pytest.mark.filterwarnings("ignore:not trained on")


def drawn(name: str) -> str:
    return "_".join(FOUR_CLASS_SPECIES[letter] for letter in name.split("_"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The set under its own name, with three small frames of two crops a folder; and a list of its simulations."""
    calls = []

    def simulate_dataset(root, **arguments):
        calls.append(arguments)
        simulate.writer.simulate_dataset(root, **arguments, overrides=SMALL, workers=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "SIMULATED", {"smoke": {"fields_per_combination": 3, "crops_per_field": 2}})
        patch.setattr(simulate, "parameters_sha256", partial(simulate.parameters_sha256, SMALL))
        patch.setattr(simulate, "simulate_dataset", simulate_dataset)
        patch.setenv("PHOEBI_DATA", str(tmp_path_factory.mktemp("data")))
        open_dataset(NAME)
        yield calls


@pytest.fixture
def four(made):
    return open_dataset(NAME)


def names_of(four, rows) -> set[str]:
    return set(four.manifest["combination"].iloc[rows])


# the folders and their images


def test_fourteen_folders_hold_thirteen_species_sets():
    sets = Counter(parse_combination(name, FOUR_CLASS_CODES) for name in FOUR_CLASS_COMBINATIONS)
    assert (len(FOUR_CLASS_COMBINATIONS), len(sets)) == (14, 13)
    assert [key for key, count in sets.items() if count > 1] == [("b", "f")]
    absent = {names for k in range(1, 5) for names in subsets(FOUR_CLASS_CODES, k)} - set(sets)
    assert absent == {("k", "p"), ("b", "k", "p")}
    assert "ka_pf" not in COMBINATIONS, "the pair is missing because the six-species set lacks it"
    orders = Counter(order(name, FOUR_CLASS_CODES) for name in FOUR_CLASS_COMBINATIONS)
    assert all(orders[k] >= count for k, count in FOUR_CLASS_HELDOUT_COUNTS.items()) and orders[4] == 1


def test_it_opens_by_name_in_the_published_layout(four, made):
    assert (four.name, four.codes, four.evidence, len(four)) == (NAME, FOUR_CLASS_CODES, "simulated", 84)
    assert four.images.name == "images_4class" and not (four.images.parent / "images").exists()
    assert set(four.manifest["combination"]) == set(FOUR_CLASS_COMBINATIONS)
    assert four.manifest["frame"].tolist()[:6] == [1, 1, 2, 2, 3, 3] and four.read(0).shape == (3, 48, 48)
    assert [path.name for path in four.images.parent.glob("splits*.json")] == ["splits_4class.json"]
    assert "splits_4class.json: agrees with the library's split" in four.notes
    assert len(made) == 1, "a complete set was simulated again"
    run = session.start(dataset=NAME)
    assert len(run.open_dataset()) == 84 and SIMULATED in run.banner()._repr_html_()
    assert names_of(four, range(84)) >= set(run.open_pure().manifest["combination"]) == set("bfkp")
    by_path = open_dataset(four.images.parent)
    assert (by_path.codes, by_path.evidence) == (FOUR_CLASS_CODES, "simulated")
    assert by_path.manifest.equals(four.manifest)
    with pytest.raises(ValueError, match="simulated; open it by its path"):
        open_dataset("phoebi4", root=four.images.parent)


def test_both_spellings_have_one_label_and_are_two_recordings(four):
    one, two = (four.manifest["combination"] == name for name in DUPLICATES)
    assert four.Y[one].tolist() == four.Y[two].tolist() == [[1, 1, 0, 0]] * 6
    for i, j in zip(np.flatnonzero(one), np.flatnonzero(two), strict=True):
        assert four.file(i).read_bytes() != four.file(j).read_bytes()
    sessions = pd.read_csv(four.images.parent / "sessions.csv").set_index("combination")
    assert sessions.loc["b_f", "focus"].iloc[0] != sessions.loc["f_b", "focus"].iloc[0]


def test_its_sessions_are_not_those_of_the_six_species_sets(four):
    assert four.facts["seed"] == simulate.FOUR_CLASS_SEED != simulate.SEED
    sessions = pd.read_csv(four.images.parent / "sessions.csv").groupby("combination").first()
    parameters = simulate.load_parameters(SMALL)
    for name in FOUR_CLASS_COMBINATIONS:
        theirs = session_of(drawn(name), 1, parameters, seed=simulate.SEED, world="combination")[1]
        for fact in ("focus", "lamp", "loading"):
            assert abs(sessions.loc[name, fact] - getattr(theirs, fact)) > 1e-4, (name, fact)


def test_cells_are_counted_in_the_order_of_the_codes(four):
    counts = field_counts(four)
    assert counts.shape == (84, 4) and counts[four.Y == 0].sum() == 0
    assert (counts.sum(axis=0) > 0).all()
    for name in ("f_b", "b_f_k_p"):
        field = simulate.draw_field(drawn(name), 2, seed=simulate.FOUR_CLASS_SEED, crops=2, overrides=SMALL)
        row = four.manifest.index[four.manifest["path"] == f"{name}/00004.jpg"].item()
        assert counts[row].tolist() == [field.counts(2)[FOUR_CLASS_SPECIES[code]] for code in FOUR_CLASS_CODES]
    expected = pd.read_csv(four.images.parent / "sessions.csv").groupby("combination").first()
    labels = [[int(expected.loc[name, f"expected_{code}"] > 0) for code in "bfkp"] for name in ("k", "f_b")]
    assert labels == [[0, 0, 1, 0], [1, 1, 0, 0]]


def test_a_lost_image_is_made_again_and_nothing_else(four, made):
    lost, kept = four.file(83), four.file(0).stat().st_mtime_ns
    before = lost.read_bytes()
    lost.unlink()
    assert len(open_dataset(NAME)) == 84 and len(made) == 2
    assert lost.read_bytes() == before and four.file(0).stat().st_mtime_ns == kept
    assert write_manifests(four.images.parent) == {"splits_4class.json": "written"}


def test_the_command_line_makes_it(four):
    result = CliRunner().invoke(main, ["data", "simulate", NAME])
    assert result.exit_code == 0 and result.output == f"{NAME}: 84 images in {four.images}\n"
    assert '":four"' in CliRunner().invoke(main, ["data", "simulate", "--help"]).output


# the held-out draw


def test_the_published_seed_holds_out_one_of_the_two_recordings():
    with pytest.warns(UserWarning, match="not trained on.*: f_b"):
        held, trained = select_heldout(FOUR_CLASS_COMBINATIONS, 1337, codes=FOUR_CLASS_CODES)
    assert held == ["f", "b_f", "f_k", "b_f_p", "b_f_k_p"]
    assert trained == ["b", "b_f_k", "b_k", "b_p", "f_k_p", "f_p", "k", "p"]
    assert dropped_folders(FOUR_CLASS_COMBINATIONS, 1337, codes=FOUR_CLASS_CODES) == ["f_b"]
    assert dropped_folders(COMBINATIONS, 1337) == []


@quiet
@pytest.mark.parametrize("grouping", ["image", "frame"])
def test_a_dropped_folder_is_in_no_part_and_every_other_in_one(four, grouping):
    for seed in (1337, 1338, 1339):
        dropped = dropped_folders(four.manifest["combination"], seed, codes=FOUR_CLASS_CODES)
        assert len(dropped) == 1 and dropped[0] in DUPLICATES
        parts = partition(four.manifest, f"lco-{seed}", grouping=grouping, codes=FOUR_CLASS_CODES)
        trained, tested = names_of(four, [*parts["train"], *parts["val"]]), names_of(four, parts["test"])
        assert trained.isdisjoint(tested) and trained | tested == set(FOUR_CLASS_COMBINATIONS) - set(dropped)
        assert sum(map(len, parts.values())) == 78
        assert f"lco-{seed}: in no part, as a held-out folder has the same species: {dropped[0]}" in four.notes
    assert "b_f, f_b: folders of the same species" in four.notes
    for fold in range(5):
        parts = partition(four.manifest, f"dev-{fold}", grouping=grouping, codes=FOUR_CLASS_CODES)
        assert names_of(four, np.concatenate(list(parts.values()))).isdisjoint({"b_f", "f_b", "f", "b_f_k_p"})


@quiet
def test_counts_are_those_of_the_subset_unless_given(four):
    ways = ({}, {"counts": {1: 1, 2: 2, 3: 1, 4: 1}})
    default, given = (lco_split(four.manifest, 1337, codes=FOUR_CLASS_CODES, **way) for way in ways)
    assert all(np.array_equal(default[part], given[part]) for part in default)
    single = partition(four.manifest, "lco-1337", grouping="frame", counts={4: 1}, codes=FOUR_CLASS_CODES)
    assert names_of(four, single["test"]) == {"b_f_k_p"} and {*DUPLICATES} <= names_of(four, single["train"])
    assert dropped_folders(FOUR_CLASS_COMBINATIONS, 1337, {4: 1}, FOUR_CLASS_CODES) == []


@quiet
def test_whatever_is_drawn_no_species_set_is_on_both_sides():
    seen = Counter()
    for seed in range(60):
        held, trained = select_heldout(FOUR_CLASS_COMBINATIONS, seed, codes=FOUR_CLASS_CODES)
        sides = [{frozenset(parse_combination(name, FOUR_CLASS_CODES)) for name in side} for side in (held, trained)]
        assert sides[0].isdisjoint(sides[1]) and len(held) == 5
        dropped = dropped_folders(FOUR_CLASS_COMBINATIONS, seed, codes=FOUR_CLASS_CODES)
        drawn_duplicates = len(set(held) & {*DUPLICATES})
        assert len(dropped) == (drawn_duplicates == 1)
        seen[drawn_duplicates] += 1
    assert min(seen[n] for n in (0, 1, 2)) > 0, "a case was not met"


# the constant predictor


def test_the_constant_at_four_species():
    assert [label_only.constant_at_order(k, 4) for k in (1, 2, 3, 4)] == pytest.approx([0.4, 2 / 3, 6 / 7, 1.0])
    for k in (1, 2, 3, 4):
        labels = np.array([[1] * k + [0] * (4 - k)])
        assert label_only.constant_scores(labels)["f1"] == pytest.approx(2 * k / (k + 4))


@quiet
def test_the_constant_is_the_zero_of_every_margin(four):
    test = lco_split(four.manifest, 1337, grouping="frame", codes=FOUR_CLASS_CODES)["test"]
    columns = {f"y_{code}": four.Y[test][:, k] for k, code in enumerate(FOUR_CLASS_CODES)}
    rows = four.manifest.iloc[test].assign(**columns, **{f"pred_{code}": 1 for code in FOUR_CLASS_CODES})
    found = scoring.scores(rows, codes=FOUR_CLASS_CODES, n=20)
    # orders 1, 2, 2, 3 and 4, equally many images each
    assert found["f1"][0] == pytest.approx((0.4 + 2 * 2 / 3 + 6 / 7 + 1) / 5) and found["em"][0] == 0.2
    assert all(found[f"{metric}_margin"] == (0.0, 0.0, 0.0) for metric in scoring.METRICS)


# the shuffled split


@pytest.mark.parametrize("seed", [1337, 5])
def test_the_shuffle_is_one_of_all_images_in_sorted_order(seed):
    manifest = published_manifest(6, 3)
    paths = sorted(manifest["path"])
    random.Random(seed).shuffle(paths)
    for table in (manifest, manifest.sample(frac=1, random_state=1)):
        split = shuffled_split(table, seed)
        found = {part: table["path"].iloc[rows].tolist() for part, rows in split.items()}
        assert found == {"train": paths[48:], "val": paths[24:48], "test": paths[:24]}
    by_name = partition(manifest, "shuffled", grouping="frame")
    assert all(np.array_equal(rows, shuffled_split(manifest)[part]) for part, rows in by_name.items())


def test_siblings_of_tested_images_are_in_training_under_the_shuffle_alone(four):
    shares = {}
    for name, split in (("shuffled", shuffled_split(four.manifest)), ("random", random_split(four.manifest))):
        shares[name] = label_only.sibling_share(four.manifest, split["test"], split["train"])
    # by hand: an image's one sibling is among the 68 training images of the other 83 with probability 0.82
    assert shares["random"] == 0 and shares["shuffled"] > 0.5


def test_too_few_images_or_a_bad_seed_are_refused():
    with pytest.raises(ValueError, match="9 images.*at least 10"):
        shuffled_split(published_manifest(3, 1).head(9))
    with pytest.raises(TypeError, match="a seed is an integer"):
        shuffled_split(published_manifest(3, 1), "1337")


@pytest.mark.parametrize("name", ["sim:smoke:", "sim:smoke:bogus", "sim:bogus:four"])
def test_a_name_that_means_no_set_is_refused_before_anything_is_made(name, tmp_path):
    with pytest.raises(ValueError, match=f"unknown simulated data set '{name}'"):
        open_dataset(name, root=tmp_path / "new")
    assert not (tmp_path / "new").exists()
