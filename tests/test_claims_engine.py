"""From numbers to verdicts, by cases worked by hand."""

import json
import math

import pandas as pd
import pytest

from phoebi_lib.paper.claims import engine
from phoebi_lib.paper.claims.engine import (
    BUILT_IN,
    FAILS,
    HOLDS,
    NO,
    NOT_RESOLVED,
    NOT_SEEN,
    NOT_TESTABLE,
    SEEN,
    UNCLEAR,
    YES,
    Cell,
    Claim,
    Number,
    above,
    below,
    close,
    difference,
    every,
    judge,
    lookup,
    some,
    within,
)


@pytest.mark.parametrize(
    ("number", "bound", "tolerance", "expected"),
    [
        (Number(0.3, 0.2, 0.4), 0.1, 0.0, YES),
        (Number(0.3, 0.2, 0.4), 0.5, 0.0, NO),
        (Number(0.3, 0.2, 0.4), 0.3, 0.0, UNCLEAR),
        (Number(0.3, 0.2, 0.4), 0.2, 0.0, UNCLEAR),  # an interval that touches the bound is not above it
        (Number(0.3, 0.2, 0.4), 0.4, 0.0, UNCLEAR),
        (Number(0.3, 0.2, 0.4), 0.1, 0.5, YES),  # a tolerance is for numbers without an interval
        (Number(0.3), 0.2, 0.0, YES),
        (Number(0.3), 0.4, 0.0, NO),
        (Number(0.3), 0.3, 0.0, UNCLEAR),
        (Number(0.3), 0.25, 0.1, UNCLEAR),
        (Number(0.3), 0.1, 0.1, YES),
        (Number(0.3), 0.5, 0.1, NO),
    ],
)
def test_above_and_its_mirror(number, bound, tolerance, expected):
    assert above(number, bound, tolerance) == expected
    mirrored = Number(-number.value, -number.high, -number.low)
    assert below(mirrored, -bound, tolerance) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (Number(0.0, -0.01, 0.01), YES),
        (Number(0.05, 0.04, 0.06), NO),
        (Number(-0.05, -0.06, -0.04), NO),
        (Number(0.02, 0.0, 0.04), UNCLEAR),
        (Number(0.0, -0.5, 0.5), UNCLEAR),
        (Number(0.0), YES),
        (Number(0.021), NO),
    ],
)
def test_within(number, expected):
    assert within(number, -0.02, 0.02) == expected


def test_within_takes_a_tolerance_at_both_ends():
    assert within(Number(0.019), -0.02, 0.02, tolerance=0.005) == UNCLEAR
    assert within(Number(-0.022), -0.02, 0.02, tolerance=0.005) == UNCLEAR
    assert within(Number(0.03), -0.02, 0.02, tolerance=0.005) == NO


def test_close_is_never_unclear():
    assert close(Number(9.0), 9, 0) == YES
    assert close(Number(9.5), 9, 0.4) == NO
    assert close(Number(9.4), 9, 0.5) == YES


@pytest.mark.parametrize(
    ("outcomes", "all_of_them", "one_of_them"),
    [
        ((YES, YES), YES, YES),
        ((YES, UNCLEAR), UNCLEAR, YES),
        ((YES, NO), NO, YES),
        ((NO, UNCLEAR), NO, UNCLEAR),
        ((NO, NO), NO, NO),
        ((UNCLEAR,), UNCLEAR, UNCLEAR),
    ],
)
def test_every_and_some(outcomes, all_of_them, one_of_them):
    assert every(*outcomes) == every(*reversed(outcomes)) == all_of_them
    assert some(*outcomes) == some(*reversed(outcomes)) == one_of_them


def test_difference_adds_half_widths_in_squares():
    found = difference(Number(1.0, 0.7, 1.6), Number(0.5, 0.2, 0.9))
    assert found.value == pytest.approx(0.5)
    assert found.low == pytest.approx(0.5 - 0.5)  # 0.3 down and 0.4 up: 3-4-5
    assert found.high == pytest.approx(0.5 + math.hypot(0.6, 0.3))
    plain = difference(Number(1.0), Number(0.25, 0.2, 0.3))
    assert plain.value == 0.75 and not plain.has_interval


def test_a_number_knows_whether_it_has_an_interval():
    assert Number(1.0, 0.5, 1.5).has_interval and not Number(1.0).has_interval


def frame(*lines):
    columns = ["table", "row", "column", "encoder", "partition", "value", "low", "high", "evidence", "n_images"]
    return pd.DataFrame(lines, columns=columns)


NAN = float("nan")


def test_lookup_finds_the_one_line():
    found = frame(
        ("6", "a", "f1", "e", "p", 0.5, 0.4, 0.6, "simulated", 90),
        ("6", "a", "f1", "e", "q", 0.7, NAN, NAN, "paper", None),
        ("8", "a", "f1", "", "", NAN, NAN, NAN, "", None),
    )
    assert lookup(found, Cell("6", "a", "f1", partition="p")) == Number(0.5, 0.4, 0.6, "simulated", 90)
    second = lookup(found, Cell("6", "a", "f1", "e", "q"))
    assert (second.value, second.evidence, second.n_images, second.has_interval) == (0.7, "paper", 0, False)
    assert lookup(found, Cell("8", "a", "f1")) is None, "a line that only says why there is no number"
    assert lookup(found, Cell("6", "b", "f1")) is None
    with pytest.raises(ValueError, match="2 lines fit"):
        lookup(found, Cell("6", "a", "f1"))


def claim(rule=lambda n: above(n["x"], 0), **changes):
    settings = {"id": "c", "section": "5", "place": "here", "wording": "w", "needs": {"x": Cell("6", "a", "f1")},
                "rule": rule, "tolerance": "t"}  # fmt: skip
    return Claim(**{**settings, **changes})


def line(value, low, high, evidence, row="a"):
    return ("6", row, "f1", "", "", value, low, high, evidence, 1)


@pytest.mark.parametrize(
    ("ends", "simulated", "published"),
    [((0.1, 0.3), SEEN, HOLDS), ((-0.3, -0.1), NOT_SEEN, FAILS), ((-0.1, 0.1), NOT_RESOLVED, NOT_RESOLVED)],
)
def test_the_evidence_chooses_the_words(ends, simulated, published):
    for evidence, expected in (("simulated", simulated), ("paper", published), ("exact", published)):
        verdict = judge(claim(), frame(line(sum(ends) / 2, *ends, evidence)))
        assert (verdict.verdict, verdict.evidence) == (expected, evidence)


def test_what_a_parameter_decides_is_built_in_on_simulated_images_alone():
    for ends in ((0.1, 0.3), (-0.3, -0.1), (-0.1, 0.1)):
        assert judge(claim(built_in=True), frame(line(0.0, *ends, "simulated"))).verdict == BUILT_IN
    assert judge(claim(built_in=True), frame(line(0.2, 0.1, 0.3, "paper"))).verdict == HOLDS


def test_without_a_number_nothing_can_be_tested():
    empty = judge(claim(), frame(line(0.2, 0.1, 0.3, "paper", row="b")))
    assert (empty.verdict, empty.evidence, empty.missing) == (NOT_TESTABLE, "none", ("x",))
    two = claim(needs={"x": Cell("6", "a", "f1"), "y": Cell("6", "c", "f1")}, built_in=True)
    half = judge(two, frame(line(0.2, 0.1, 0.3, "simulated")))
    assert (half.verdict, half.missing, set(half.numbers)) == (NOT_TESTABLE, ("y",), {"x"})


@pytest.mark.parametrize("evidence", ["stand-in", "user"])
def test_other_evidence_feeds_no_claim(evidence):
    assert judge(claim(), frame(line(0.2, 0.1, 0.3, evidence))).verdict == NOT_TESTABLE


def test_exact_numbers_take_on_the_evidence_of_the_others():
    two = claim(needs={"x": Cell("6", "a", "f1"), "y": Cell("6", "b", "f1")})
    simulated = judge(two, frame(line(0.2, 0.1, 0.3, "simulated"), line(1, NAN, NAN, "exact", row="b")))
    assert (simulated.verdict, simulated.evidence) == (SEEN, "simulated")
    mixed = judge(two, frame(line(0.2, 0.1, 0.3, "simulated"), line(1, NAN, NAN, "paper", row="b")))
    assert (mixed.verdict, mixed.evidence) == (NOT_TESTABLE, "mixed")


def test_a_rule_must_answer():
    with pytest.raises(ValueError, match="'maybe'"):
        judge(claim(rule=lambda n: "maybe"), frame(line(0.2, 0.1, 0.3, "paper")))


def test_verdicts_keep_the_order_of_the_claims():
    claims = [claim(id="b"), claim(id="a")]
    assert [v.claim.id for v in engine.judge_all(claims, frame(line(0.2, 0.1, 0.3, "paper")))] == ["b", "a"]


def test_a_record_is_plain_json():
    record = engine.record(judge(claim(page="05_held_out"), frame(line(0.2, NAN, NAN, "paper"))))
    again = json.loads(json.dumps(record, allow_nan=False))
    assert again == record
    assert record["numbers"] == {"x": {"value": 0.2, "low": None, "high": None, "evidence": "paper", "n_images": 1}}
    assert (record["id"], record["verdict"], record["missing"], record["page"]) == ("c", HOLDS, [], "05_held_out")


def test_no_simulated_claim_can_hold():
    assert HOLDS not in engine.VERDICTS["simulated"] and FAILS not in engine.VERDICTS["simulated"]
