"""What rows allow to be said, by hand; and the sentences on encoders from made-up rows."""

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.catalogue import CODES, FOUR_CLASS_CODES
from phoebi_lib.manifest import published_manifest
from phoebi_lib.metrics import per_sample_f1
from phoebi_lib.studies import encoder_summary, readings
from phoebi_lib.studies.encoder_sweep import EMBEDDED
from tests import collapse_world as world
from tests.tiny_run import TinyRun

MANIFEST = published_manifest(5, 1)


def test_few_images_and_training_f1_stand_beside_the_word():
    assert readings.reading(0.95, 8, 0.9012) == "fitted (on 8 validation images only; training F1 0.901)"
    assert readings.reading(0.96, 30, 0.9).startswith("fitted (on 30 validation images;")
    assert readings.reading(0.949, 8, 1.0).startswith(readings.NOT_FITTED)


@pytest.mark.parametrize(("row", "plain"), [
    ("ProtoMatch (not in Table 5)", "ProtoMatch"), ("A (PHOEBI) (not in the paper)", "A (PHOEBI)"), ("CLIP", "CLIP"),
])  # fmt: skip
def test_marks_are_taken_off(row, plain):
    assert readings.plain(row) == plain


def test_the_side_of_a_difference():
    ends = {"above": (0.01, 0.2), "below": (-0.2, -0.01), "cannot be told from": (-0.1, 0.1)}
    for word, (low, high) in ends.items():
        assert readings.side({"low": low, "high": high}) == word


def test_what_the_held_out_folders_have_in_common():
    said = readings.always_held_out(["f", "b_f", "b_f_k_p"], FOUR_CLASS_CODES)
    assert said == "in all 3 held-out folders: f; held-out pure cultures: f, whose anchor then comes from mixtures"
    said = readings.always_held_out(["bt", "bs_pf"], CODES)
    assert "2 held-out folders: no species" in said and "pure cultures: bt" in said
    assert readings.always_held_out(["bs_pf", "pf_ka"], CODES).endswith("pure cultures: none")


@pytest.fixture(scope="module")
def found():
    """The trained networks are right, but for the last, which is as bad as the untrained one."""
    calls = dict(zip(EMBEDDED, (world.right, world.right, blind, blind), strict=True))
    return {name: pd.concat([
        world.answer_rows(MANIFEST, "random", its, method=method, updates=updates, encoder=name)
        for method, updates in (("AllPresent", 0), ("LinearProbe", 10), ("LinearProbe (2,000 updates)", 2000))
    ], ignore_index=True) for name, its in calls.items()}  # fmt: skip


def blind(name, part):
    return CODES[:1]


def test_encoders_are_compared_image_by_image(found):
    pairs = encoder_summary.encoder_pairs(TinyRun(None), found, CODES)
    assert len(pairs) == 2 * (1 + 3) and pairs["paper"].isna().all()
    control = pairs[pairs["column"] == encoder_summary.CONTROL]
    rows = found["efficientnet_lite0_untrained"].query("part == 'test' and method == 'LinearProbe'")
    true, called = (rows[[f"{kind}_{code}" for code in CODES]].to_numpy() for kind in ("y", "pred"))
    assert np.allclose(control["value"], 1 - per_sample_f1(true, called))
    assert (control["low"] > 0).all() and control["updates"].tolist() == [10, 2000]
    changes = pairs[pairs["column"] == encoder_summary.PAIR]["value"]
    assert (changes == 0).sum() == 2 and (changes < 0).sum() == 4


def test_the_answer_counts_what_can_be_told(found):
    pairs = encoder_summary.encoder_pairs(TinyRun(None), found, CODES)
    seven = pd.DataFrame({
        "row": ["B minus A / X", "B minus A / Y", "A / X", "B minus A / X"], "value": [0.1, np.nan, 0.5, 0.1],
        "column": ["heldout_f1", "heldout_f1", "heldout_f1", "in_dist_val_f1"], "low": [-0.1, np.nan, 0.4, 0.0],
        "high": [0.2, np.nan, 0.6, 0.2],
    })  # fmt: skip
    said = encoder_summary.answer(pairs, seven)
    assert "learned weights raise the F1" in said and "2 of 3 pairs of trained encoders can be told apart" in said
    assert "of 1 held-out differences" in said and "and 1 cannot be told from it" in said


def test_the_printed_pair():
    change = encoder_summary.printed_changes()
    assert len(change) == 3 and (change["in_dist_val_f1"] > 0).all() and (change["heldout_f1"] > 0).sum() == 1
    assert encoder_summary.printed_fit() == (0, 4, 0.723)
