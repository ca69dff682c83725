"""The caps of a profile: whole combinations, first frames, and the published subsample without caps."""

from __future__ import annotations

import numpy as np
import pytest

from phoebi_lib.limits import LIMITS, Limits, ablation_rows, battery_rows, first_rows, limits
from phoebi_lib.manifest import published_manifest
from phoebi_lib.parameters import PROFILES
from phoebi_lib.splits import random_split

DEFAULT = published_manifest(30, 3)


def test_every_profile_has_caps_and_paper_has_none():
    assert tuple(LIMITS) == PROFILES
    assert limits("paper") == Limits() == limits("smoke", caps=False)
    assert str(limits("paper")) == "none: the published sizes" and "battery 1" in str(limits("smoke"))
    with pytest.raises(ValueError, match="unknown profile 'large'"):
        limits("large")


@pytest.mark.parametrize("profile", ["smoke", "default"])
def test_floors(profile):
    """Forty frames for the battery; two training, one validation and one test frame per combination for ablations."""
    manifest = published_manifest(10, 1) if profile == "smoke" else DEFAULT
    caps = limits(profile)
    battery = manifest.iloc[battery_rows(manifest, caps.battery)]
    assert len(battery[["combination", "frame"]].drop_duplicates()) >= 40
    parts = ablation_rows(manifest, caps.ablation)
    for part, floor in {"train": 2, "val": 1, "test": 1}.items():
        chosen = manifest.iloc[parts[part]].drop_duplicates(["combination", "frame"])
        assert (chosen.groupby("combination").size() >= floor).all() and chosen["combination"].nunique() == 40


def test_parts_stay_apart():
    split = random_split(DEFAULT)
    parts = ablation_rows(DEFAULT, (2, 1, 1))
    for part, rows in parts.items():
        assert set(rows) <= set(split[part])
    assert set(battery_rows(DEFAULT, 1)) <= set(split["test"])
    uncapped = ablation_rows(DEFAULT, None)
    assert all(np.array_equal(np.sort(split[part]), uncapped[part]) for part in split)


def test_frames_come_before_second_crops():
    rows = np.flatnonzero(DEFAULT["combination"] == "bs")
    two = DEFAULT.iloc[first_rows(DEFAULT, rows, 2)]
    assert two["frame"].tolist() == [1, 2] and two["crop"].tolist() == [1, 1]
    eleven = DEFAULT.iloc[first_rows(DEFAULT, rows[::-1], 11)]
    assert eleven["frame"].tolist() == [1, 1, *range(2, 11)], "a second crop only when each frame has given one"
    assert np.array_equal(first_rows(DEFAULT, rows, 5), first_rows(DEFAULT, rows[::-1], 5))


def test_the_published_subsample():
    """One hundred test images per combination, drawn by one generator that runs through the sorted combinations."""
    manifest = published_manifest()
    rows = battery_rows(manifest, None)
    assert len(rows) == 4000 and (manifest.iloc[rows].groupby("combination").size() == 100).all()
    generator = np.random.default_rng(1337)
    first = np.sort(generator.choice(np.arange(2701, 3001), 100, replace=False))
    found = manifest.iloc[rows]
    assert found.loc[found["combination"] == "bs", "path"].tolist() == [f"bs/{n:05d}.jpg" for n in first]
    assert np.all(np.diff(rows) > 0)
