"""Label-only numbers: computed from 120,000 manifest rows, equal to the printed digits."""

from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd
import pytest

from phoebi_lib import label_only as lo
from phoebi_lib.catalogue import COMBINATIONS
from phoebi_lib.paper import printed
from phoebi_lib.rounding import agreement
from phoebi_lib.splits import published_manifest


@pytest.fixture(scope="module")
def numbers() -> pd.DataFrame:
    return lo.label_only("smoke")


def pick(numbers: pd.DataFrame, row: str, column: str, **more: str) -> float:
    chosen = (numbers["row"] == row) & (numbers["column"] == column)
    for name, value in more.items():
        chosen &= numbers[name] == value
    (value,) = numbers.loc[chosen, "value"]
    return value


@pytest.mark.parametrize("n", [2, 12, 13, 18])
def test_whole_tables_equal_the_printed_ones(n):
    pd.testing.assert_frame_equal(lo.recompute(n), printed(n))


def test_a_table_that_needs_images_is_refused():
    with pytest.raises(ValueError, match="Table 8 does not follow from labels"):
        lo.recompute(8)


def test_every_printed_number_is_met(numbers):
    said = numbers[numbers["paper"].notna()]
    found = [agreement(v, p, d) for v, p, d in zip(said["value"], said["paper"], said["digits"], strict=True)]
    twice = said[np.array(found) == "equal after double rounding"]
    assert set(found) == {"equal", "equal after double rounding"}
    assert sorted(zip(twice["table"], twice["column"], strict=True)) == [
        ("3", "delta_f1"), ("3", "in_dist_f1"), ("6", "delta_f1"), ("6", "in_dist_val_f1"),
    ]  # fmt: skip
    assert (said["digits"].notna()).all() and len(said) > 120


def test_all_are_exact_and_of_the_published_lists(numbers):
    assert set(numbers["evidence"]) == {"exact"} and set(numbers["dataset"]) == {"phoebi6"}
    assert set(numbers["profile"]) == {"smoke"} and (numbers["encoder"] == "").all()
    other = lo.label_only("paper").drop(columns="profile")
    pd.testing.assert_frame_equal(other, numbers.drop(columns="profile"))


def test_constant_predictor(numbers):
    row = "All-present predictor (constant)"
    expected = {"random_f1": 0.5879, "random_macro_f1": 0.6067, "random_em": 0.0250, "in_dist_f1": 0.57149,
                "heldout_f1": 0.65397, "heldout_macro_f1": 0.6742, "heldout_em": 0.1111,
                "delta_f1": -0.08248}  # fmt: skip
    for column, value in expected.items():
        assert abs(pick(numbers, row, column, table="3") - value) < 6e-5
    pooled, dev = (f"all-present on the {what}" for what in ("27 pooled held-out pairs", "26 development combinations"))
    assert abs(pick(numbers, pooled, "macro_f1") - 0.6779) < 6e-5 and abs(pick(numbers, pooled, "f1") - 0.65397) < 6e-6
    assert abs(pick(numbers, dev, "f1") - 0.6231) < 6e-5 and abs(pick(numbers, dev, "macro_f1") - 0.6293) < 6e-5
    sizes = numbers[(numbers["table"] == "3") & (numbers["column"] == "heldout_f1")].iloc[0]
    assert tuple(sizes[["n_images", "n_frames", "n_combinations"]]) == (27000, 9000, 9)
    assert sizes["partition"] == "lco-1337"


def test_constant_scores_by_hand():
    labels = np.array([[1, 0, 0, 0], [1, 1, 1, 1]])
    scores = lo.constant_scores(labels)
    assert scores["f1"] == (0.4 + 1) / 2 and scores["em"] == 0.5
    assert math.isclose(scores["macro_f1"], (1 + 3 * 2 / 3) / 4)


def test_coverage_and_order_curve(numbers):
    counts = {"gaps at orders 2 to 4": 17, "gaps at orders 2 to 4 with bs and bt": 9, "collected of those": 2,
              "possible at orders 2 to 4 with bs and bt": 11, "combinations that mosaics can show": 26,
              "held-out combinations that mosaics cover": 6}  # fmt: skip
    for row, count in counts.items():
        assert pick(numbers, row, "count") == count
    curve = [pick(numbers, f"all-present at order {k}", "f1") for k in range(1, 7)]
    assert np.allclose(curve, [2 / 7, 1 / 2, 2 / 3, 4 / 5, 10 / 11, 1])
    with_paper = numbers[numbers["row"].str.startswith("all-present at order") & numbers["paper"].notna()]
    assert list(with_paper["paper"]) == [0.29, 0.80, 0.91]
    assert lo.constant_at_order(2, 4) == 2 / 3
    assert lo.missing_combinations(2) == ["bs_bt", "bt_fj", "ka_pf"] and len(lo.missing_combinations(5)) == 6


def test_open_world_counts(numbers):
    unknown = {"bs": 5100, "bt": 3900, "fj": 5700, "ka": 5700, "mx": 5700, "pf": 5400}
    kept = {"bs": 55200, "bt": 64800, "fj": 50400, "ka": 50400, "mx": 50400, "pf": 52800}
    bank = {"bs": 883200, "bt": 1036800, "fj": 806400, "ka": 806400, "mx": 806400, "pf": 844800}
    for code in unknown:
        assert pick(numbers, code, "unknown_test_images") == unknown[code]
        assert pick(numbers, code, "kept_train_images") == kept[code]
        assert pick(numbers, code, "bank_tiles") == bank[code]


def test_sibling_shares(numbers):
    shares = numbers[numbers["column"] == "percent"].set_index("partition")["value"].round(1).to_dict()
    assert shares == {"lco-1337": 99.2, "lco-1338": 99.1, "lco-1339": 99.1, "shuffled": 96.0, "random": 0.0}


def test_sibling_share_by_hand():
    manifest = published_manifest(6, 3)
    assert lo.sibling_share(manifest, np.array([0, 3]), np.array([1, 2])) == 0.5
    # the same frame number in another combination is another frame
    assert lo.sibling_share(manifest, np.array([0]), np.array([6, 7])) == 0.0


def test_all_of_it_takes_seconds():
    for cached in (lo._published, lo._lco, lo._random, lo._cells, lo._said):
        cached.cache_clear()
    start = time.perf_counter()
    numbers = lo.label_only()
    # about 1.5 s on one idle core; the limit leaves room for a busy machine
    assert time.perf_counter() - start < 20
    assert len(numbers) > 150 and len(lo._published()[0]) == 3000 * len(COMBINATIONS)
