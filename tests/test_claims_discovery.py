"""Each claim about discovery, with three made-up sets of numbers: borne out, contradicted, left open."""

import pandas as pd
import pytest

from phoebi_lib.paper.claims.discovery import CLAIMS, CRKD, GATE, GREEDY, HEADS, K1, SCALED
from phoebi_lib.paper.claims.engine import judge
from phoebi_lib.report import table

LESS = "cluster_acc_less_reference"
DRIFT = "delta_f1_known_less_reference"
UNO, WEAK, STRONG = "UNO-style, 1 slot", "Cr-KD, λ = 0.001", "Cr-KD, λ = 1.0"
K2, K4, K6 = (f"Sinkhorn-Knopp (K={k})" for k in (2, 4, 6))


def grid(*values):
    rows = [f"SimGCD-style, {e} epochs, rate {r}" for e in (5, 10) for r in ("0.001", "0.01")]
    return {(HEADS, row, "cluster_acc_max"): value for row, value in zip(rows, values, strict=True)}


# id -> (borne out, contradicted, open); a number is (value) or (value, low, high)
CASES = {
    "discovery-half-recalled": (
        {("10", K1, "recall"): (0.50, 0.40, 0.60)},
        {("10", K1, "recall"): (0.80, 0.70, 0.90)},
        {("10", K1, "recall"): (0.50, 0.30, 0.70)},
    ),
    "discovery-finds-the-stranger": (
        {("10", K1, "lift"): (0.20, 0.05, 0.35)},
        {("10", K1, "lift"): (-0.10, -0.20, -0.01)},
        {("10", K1, "lift"): (0.05, -0.10, 0.20)},
    ),
    "discovery-greedy-fragments": (
        {("10", SCALED, "n_proto"): (59.0,)},
        {("10", SCALED, "n_proto"): (1.0,)},
        {("10", SCALED, "n_proto"): (25.0, 20.0, 30.0)},
    ),
    "discovery-greedy-harms": (
        {("10", K1, "delta_f1_known"): (-0.03,), ("10", SCALED, "delta_f1_known"): (-0.38,)},
        {("10", K1, "delta_f1_known"): (-0.03,), ("10", SCALED, "delta_f1_known"): (-0.06,)},
        {("10", K1, "delta_f1_known"): (-0.001,), ("10", SCALED, "delta_f1_known"): (-0.009,)},
    ),
    "discovery-more-centroids-worse": (
        {("10", row, LESS): (-0.15, -0.25, -0.05) for row in (K2, K4, K6)},
        {("10", K2, LESS): (-0.1, -0.2, -0.05), ("10", K4, LESS): (0.1, 0.05, 0.2), ("10", K6, LESS): (-0.1, -0.2, 0)},
        {("10", K2, LESS): (-0.1, -0.2, 0.05), ("10", K4, LESS): (-0.1, -0.2, -0.05), ("10", K6, LESS): (0, -0.1, 0.1)},
    ),
    "discovery-simplest-strongest": (
        {("10", GREEDY, LESS): (-0.06, -0.1, -0.01), ("10", CRKD, LESS): (-0.4, -0.5, -0.3)},
        {("10", GREEDY, LESS): (0.06, 0.01, 0.1), ("10", CRKD, LESS): (-0.4, -0.5, -0.3)},
        {("10", GREEDY, LESS): (-0.06, -0.1, 0.01), ("10", CRKD, LESS): (-0.4, -0.5, -0.3)},
    ),
    "discovery-known-untouched": (
        {("10", K1, "delta_f1_known"): (-0.03, -0.045, -0.01)},
        {("10", K1, "delta_f1_known"): (-0.20, -0.30, -0.10)},
        {("10", K1, "delta_f1_known"): (-0.04, -0.08, -0.01)},
    ),
    "discovery-gate-open": (
        {(GATE, "residual > 0.15", "admitted_min"): (1.0,)},
        {(GATE, "residual > 0.15", "admitted_min"): (0.999,)},
        None,  # all or not all: there is nothing between
    ),
    "discovery-gate-hurts": (
        {(GATE, "normalised residual", LESS): (-0.35, -0.5, -0.2)},
        {(GATE, "normalised residual", LESS): (0.3, 0.2, 0.4)},
        {(GATE, "normalised residual", LESS): (-0.1, -0.3, 0.1)},
    ),
    "discovery-uno-one": (
        {(HEADS, UNO, LESS): (-0.3, -0.4, -0.2), (HEADS, UNO, DRIFT): (0.018, 0.01, 0.03)},
        {(HEADS, UNO, LESS): (-0.3, -0.4, -0.2), (HEADS, UNO, DRIFT): (-0.018, -0.03, -0.01)},
        {(HEADS, UNO, LESS): (-0.3, -0.4, -0.2), (HEADS, UNO, DRIFT): (0.0, -0.01, 0.01)},
    ),
    "discovery-uno-four": (
        {(HEADS, "UNO-style, 4 slots", "cluster_acc_max"): (0.0,)},
        {(HEADS, "UNO-style, 4 slots", "cluster_acc_max"): (0.3,)},
        {(HEADS, "UNO-style, 4 slots", "cluster_acc_max"): (0.04, 0.0, 0.1)},
    ),
    "discovery-distillation-strong": (
        {(HEADS, STRONG, "recall_max"): (0.0,)},
        {(HEADS, STRONG, "recall_max"): (0.4,)},
        {(HEADS, STRONG, "recall_max"): (0.04, 0.0, 0.1)},
    ),
    "discovery-distillation-weak": (
        {(HEADS, WEAK, LESS): (-0.39, -0.5, -0.3), (HEADS, WEAK, DRIFT): (0.001, -0.005, 0.01)},
        {(HEADS, WEAK, LESS): (0.1, 0.05, 0.2), (HEADS, WEAK, DRIFT): (0.001, -0.005, 0.01)},
        {(HEADS, WEAK, LESS): (-0.39, -0.5, -0.3), (HEADS, WEAK, DRIFT): (0.02, -0.005, 0.04)},
    ),
    "discovery-simgcd-start": (
        {(HEADS, "SimGCD-style, 0 epochs", LESS): (0.0,)},
        {(HEADS, "SimGCD-style, 0 epochs", LESS): (0.01, -0.01, 0.02)},
        None,  # the same prototype or another one: there is nothing between
    ),
    "discovery-simgcd-collapses": (
        grid((0.0,), (0.0,), (0.0,), (0.02,)),
        grid((0.0,), (0.0,), (0.5,), (0.0,)),
        grid((0.0,), (0.0,), (0.04, 0.0, 0.2), (0.0,)),
    ),
}
SIMULATED = ("seen in simulation", "not seen", "not resolved")
PUBLISHED = ("holds", "does not hold", "not resolved")


def results(numbers, evidence):
    lines = []
    for (name, row, column), (value, *interval) in numbers.items():
        low, high = interval or (float("nan"), float("nan"))
        lines.append({"table": name, "row": row, "column": column, "value": value, "low": low, "high": high})
    return table(lines, evidence=evidence, n_images=12, partition="loso", encoder="an encoder")


def test_every_claim_has_its_cases_and_its_section():
    assert {claim.id for claim in CLAIMS} == set(CASES)
    sections = pd.Series([claim.section for claim in CLAIMS]).value_counts()
    assert sections["D"] >= 4 and sections["5"] >= 3
    for claim in CLAIMS:
        assert claim.page in ("05_open_world", "D_discovery") and claim.tolerance and not claim.built_in


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
@pytest.mark.parametrize(("evidence", "verdicts"), [("simulated", SIMULATED), ("paper", PUBLISHED)])
def test_verdicts(claim, evidence, verdicts):
    for numbers, verdict in zip(CASES[claim.id], verdicts, strict=True):
        if numbers is not None:
            assert judge(claim, results(numbers, evidence)).verdict == verdict, numbers


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_without_its_numbers_a_claim_is_not_testable(claim):
    found = judge(claim, results({("10", "another row", "recall"): (0.5,)}, "simulated"))
    assert found.verdict == "not testable" and set(found.missing) == set(claim.needs)
