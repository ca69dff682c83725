"""Species, combinations and labels against Tables 2, 12 and 13 as the paper prints them."""

from itertools import combinations as subsets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phoebi_lib.catalogue import CODES, COMBINATIONS, FOUR_CLASS_CODES, SPECIES, label_matrix, order, parse_combination


def test_class_order_is_sorted_codes_not_folder_order():
    assert CODES == ("bs", "bt", "fj", "ka", "mx", "pf")
    assert tuple(SPECIES) == CODES == tuple(sorted(CODES))
    assert parse_combination("bs_bt_mx_ka_fj_pf") == CODES
    # columns: bs bt fj ka mx pf; the folder spells mx before ka before fj
    assert label_matrix(["bt_mx_ka_fj", "mx", "ka_fj"]).tolist() == [
        [0, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 1, 1, 0, 0],
    ]


def test_forty_combinations_of_table_13():
    assert len(COMBINATIONS) == len(set(COMBINATIONS)) == 40
    assert (COMBINATIONS[0], COMBINATIONS[16], COMBINATIONS[20], COMBINATIONS[32], COMBINATIONS[36]) == (
        "bs",
        "ka_fj",
        "bs_mx_pf",
        "bs_bt_mx",
        "bs_mx_fj_pf",
    )
    orders = [order(name) for name in COMBINATIONS]
    assert orders == sorted(orders)
    assert {size: orders.count(size) for size in range(1, 7)} == {1: 6, 2: 12, 3: 15, 4: 6, 5: 0, 6: 1}
    assert label_matrix(COMBINATIONS).sum(axis=0).tolist() == [17, 13, 19, 19, 19, 18]


def test_gaps_of_table_12():
    collected = {parse_combination(name) for name in COMBINATIONS}
    gaps = {size: [set_ for set_ in subsets(CODES, size) if set_ not in collected] for size in (2, 3, 4, 5)}
    assert gaps[2] == [("bs", "bt"), ("bt", "fj"), ("ka", "pf")]
    assert [len(gaps[size]) for size in (3, 4, 5)] == [5, 9, 6]
    low = gaps[2] + gaps[3] + gaps[4]
    assert len(low) == 17 and sum({"bs", "bt"} <= set(gap) for gap in low) == 9
    both = [set_ for size in (2, 3, 4) for set_ in subsets(CODES, size) if {"bs", "bt"} <= set(set_)]
    assert (len(both), sum(set_ in collected for set_ in both)) == (11, 2)


def test_species_facts():
    assert {code: species.strain for code, species in SPECIES.items()} == {
        "bs": "ATCC 23857",
        "bt": "DSM 13307",
        "fj": "ATCC 17061",
        "ka": "ATCC 13048",
        "mx": "ATCC 25232",
        "pf": "ATCC 13525",
    }
    assert [species.gram for species in SPECIES.values()] == ["+", "+", "-", "-", "-", "-"]
    for species in SPECIES.values():
        low, high = species.length_um
        assert 1 <= low <= high <= 10 and "µm" in species.length_text


@pytest.mark.parametrize("name", ["ka_fj_take2", "take1_fj_ka", "ka__fj", "_ka_fj_", "ka_fj_TAKE12"])
def test_retakes_and_empty_pieces_are_dropped(name):
    assert parse_combination(name) == ("fj", "ka")
    assert order(name) == 2


@pytest.mark.parametrize("name", ["bs_xx", "BS", "bs_take", "bs-ka", "take_2", "bs_take2x", "bs "])
def test_unknown_token_names_folder_and_known_codes(name):
    with pytest.raises(ValueError) as error:
        parse_combination(name)
    assert repr(name) in str(error.value) and "bs, bt, fj, ka, mx, pf" in str(error.value)


@pytest.mark.parametrize("name", ["", "_", "take2"])
def test_name_without_species(name):
    with pytest.raises(ValueError, match="names no species"):
        parse_combination(name)


def test_repeated_species_and_wrong_type():
    with pytest.raises(ValueError, match="'bs_ka_bs' names a species twice"):
        parse_combination("bs_ka_bs")
    with pytest.raises(TypeError, match="folder name"):
        parse_combination(3)


def test_other_code_sets():
    assert parse_combination("p_b", FOUR_CLASS_CODES) == ("b", "p")
    assert label_matrix(["b_f", "f_b", "k"], FOUR_CLASS_CODES).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]]
    with pytest.raises(ValueError, match="'bs'.*known codes: b, f, k, p"):
        parse_combination("bs", FOUR_CLASS_CODES)
    assert label_matrix([]).shape == (0, 6)


@given(st.lists(st.sampled_from(CODES), min_size=1, unique=True))
def test_any_spelling_gives_the_same_label(tokens):
    row = label_matrix(["_".join(tokens)])[0]
    assert row.dtype == np.int64
    assert {code for code, bit in zip(CODES, row, strict=True) if bit} == set(tokens)
    assert parse_combination("_".join(tokens)) == tuple(sorted(tokens))
