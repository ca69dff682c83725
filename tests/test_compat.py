"""The one table of corrected against reference choices, value by value."""

import re
from pathlib import Path

import pytest

import phoebi_lib
from phoebi_lib.compat import CHOICES, WAYS, choice
from phoebi_lib.protocols import METHODS

TABLE = {
    "illumination": ("reflect", "zero"),
    "lco_grouping": ("frame", "image"),
    "channel_group_aggregation": ("logit", "sigmoid"),
    "finetuning_split": ("acquisition", "shuffled"),
    "finetuning_recipe": ("one", "per block"),
    "sweep_prototypes": ("closed form", "trained"),
    "dev_thresholds": ("val", "train"),
    "resamples": (2000, 1000),
    "pooled_units": (("distinct combinations", "seed and combination"), ("seed and combination",)),
    "discovery": (("inductive", "transductive"), ("transductive",)),
    "drift_thresholds": ("val", "train"),
    "focus_blur": (("reflect", 11), ("zero", 10)),
    "missing_positives": ("never", "published"),
}


def test_the_table_is_the_designed_one():
    assert WAYS == ("corrected", "reference")
    assert {row.name: (row.corrected, row.reference) for row in CHOICES} == TABLE
    assert len({row.name for row in CHOICES}) == len(CHOICES)
    for row in CHOICES:
        assert row.corrected != row.reference
        assert row.why.endswith(".")


@pytest.mark.parametrize("name", TABLE)
def test_choice_reads_the_table(name):
    assert (choice(name, "corrected"), choice(name, "reference")) == TABLE[name]


def test_unknown_names_and_ways_are_refused():
    with pytest.raises(ValueError, match="unknown compat 'right'; known: corrected, reference"):
        choice("illumination", "right")
    with pytest.raises(ValueError, match="unknown choice 'padding'; known: illumination"):
        choice("padding", "corrected")


def test_only_this_module_compares_the_ways():
    """Elsewhere a way may be passed on or be a default, but nothing branches on it."""
    package = Path(phoebi_lib.__file__).parent
    pattern = re.compile(r"""(compat|way)\s*(==|!=|in)\s*[("']""")
    found = [p.name for p in package.rglob("*.py") if p.name != "compat.py" and pattern.search(p.read_text())]
    assert found == []


def make(name, compat, partition):
    factory, settings = METHODS[name]
    return factory(partition, compat, random_state=7, device="cpu", **settings)


def test_decoders_are_built_by_the_table():
    assert make("ChannelGroup", "corrected", "lco-1337").aggregation == "logit"
    assert make("ChannelGroup", "reference", "lco-1337").aggregation == "sigmoid"
    published = {"random": (0.05, 0.5), "lco-1337": ("max+1", "max+1"), "dev-0": ("max+1", "max+1")}
    for partition, (simplex, proto) in published.items():
        assert make("SimplexUnmix", "reference", partition).fallback == simplex
        assert make("ProtoMatch", "reference", partition).fallback == proto
        assert make("ChannelGroup", "reference", partition).fallback == 0.01
        for name in ("SimplexUnmix", "ProtoMatch", "ChannelGroup"):
            assert make(name, "corrected", partition).fallback == "never"


def test_recipes_follow_the_partition():
    for partition in ("random", "shuffled", "loso-ka"):
        assert make("SimplexUnmix", "corrected", partition).recipe == "random"
    assert make("SimplexUnmix", "corrected", "lco-1338").recipe == "lco"
    assert make("SimplexUnmix", "corrected", "dev-4").recipe == "lco"
    assert make("SimplexUnmix (init only)", "corrected", "random").epochs == 0
    for name in ("SimplexUnmix (2,000 updates)", "ChannelGroup (2,000 updates)"):
        assert make(name, "corrected", "random").updates == 2000 and make(name, "corrected", "random").batch_size == 256
    assert make("ChannelGroup", "corrected", "random").random_state == 7
