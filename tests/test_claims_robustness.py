"""Each claim on robustness and ablations with made-up numbers: satisfied, contradicted, unresolved."""

from collections import Counter

import pytest

from phoebi_lib.corruptions import VIEWS
from phoebi_lib.paper.claims.robustness import CLAIMS
from phoebi_lib.studies import ablations, battery
from tests.claim_cases import NO, OPEN, YES, check_cases

BY_ID = {claim.id: claim for claim in CLAIMS}


def alike(claim, number, **others):
    """One number for every need, but for those whose name ends as ``others`` says ("_" for a space or colon)."""
    numbers = dict.fromkeys(BY_ID[claim].needs, number)
    for ending, other in others.items():
        names = [name for name in numbers if name.replace(": ", "_").replace(" ", "_").endswith(ending)]
        assert names, ending
        numbers.update(dict.fromkeys(names, other))
    return numbers


SMALL, LARGE = (-0.004, -0.009, 0.001), (-0.12, -0.16, -0.08)
CASES = {
    "illumination-cost": [
        (YES, SMALL),
        (NO, alike("illumination-cost", SMALL, Lamp_intensity_channel_group=(-0.08, -0.12, -0.04))),
        (OPEN, alike("illumination-cost", SMALL, Vignetting_proto_match=(-0.02, -0.05, 0.01))),
    ],
    "correction-vignetting": [
        (YES, alike("correction-vignetting", LARGE, vignetting_bought=(0.11, 0.06, 0.15))),
        (NO, alike("correction-vignetting", LARGE, vignetting_bought=(-0.02, -0.04, -0.01))),
        (NO, alike("correction-vignetting", SMALL, vignetting_bought=(0.11, 0.06, 0.15))),
        (OPEN, alike("correction-vignetting", LARGE, vignetting_bought=(0.02, -0.01, 0.05))),
    ],
    "correction-price-small": [
        (YES, (0.004, 0.001, 0.008)),
        (NO, alike("correction-price-small", (0.004, 0.001, 0.008), ProtoMatch_clean_cost=(0.05, 0.02, 0.08))),
        (OPEN, (0.004, -0.02, 0.03)),
    ],
    "one-tile-section-5": [
        (YES, (-0.25, -0.31, -0.19)),
        (NO, alike("one-tile-section-5", (-0.25, -0.31, -0.19), channel_group=(-0.03, -0.06, 0.0))),
        (OPEN, (-0.11, -0.15, -0.07)),
    ],
    "simplex-degrades-least": [
        (YES, (0.07, 0.02, 0.12)),
        (NO, alike("simplex-degrades-least", (0.07, 0.02, 0.12), Sensor_noise_over_channel_group=(-0.1, -0.2, -0.05))),
        (OPEN, alike("simplex-degrades-least", (0.07, 0.02, 0.12), Focus_drift_over_proto_match=(0.01, -0.02, 0.04))),
    ],
    "views": [
        (YES, (0.002, -0.001, 0.004)),
        (NO, alike("views", (0.002, -0.001, 0.004), horizontal_flip=(0.03, 0.02, 0.05))),
        (OPEN, (0.004, -0.001, 0.02)),
    ],
    "boundary-section-5": [(YES, (0.006, -0.002, 0.014)), (NO, (-0.04, -0.06, -0.02)), (OPEN, (-0.005, -0.03, 0.02))],
    "condenser-vignetting": [
        (YES, SMALL),
        (NO, alike("condenser-vignetting", SMALL, Vignetting_proto_match=(-0.05, -0.08, -0.02))),
        (OPEN, (-0.004, -0.02, 0.012)),
    ],
    "what-matters": [
        (YES, (-0.05, -0.08, -0.02)),
        (NO, alike("what-matters", (-0.05, -0.08, -0.02), simplex_unmix=(0.03, 0.01, 0.05))),
        (OPEN, (-0.01, -0.04, 0.02)),
    ],
    "noise-jpeg": [
        (YES, LARGE),
        (NO, alike("noise-jpeg", LARGE, encoding_simplex_unmix=(-0.01, -0.02, 0.0))),
        (OPEN, (-0.05, -0.09, -0.01)),
    ],
    "one-tile": [
        (YES, (-0.25, -0.31, -0.19)),
        (NO, alike("one-tile", (-0.25, -0.31, -0.19), proto_match=(-0.5, -0.6, -0.4))),
        (OPEN, (-0.17, -0.22, -0.12)),
    ],
    "correction-price": [
        (YES, (0.004, 0.001, 0.008)),
        (NO, alike("correction-price", (0.004, 0.001, 0.008), SimplexUnmix_clean_cost=(-0.05, -0.08, -0.02))),
        (OPEN, (0.004, -0.02, 0.03)),
    ],
    "proto-match-depends": [
        (YES, (0.06, 0.02, 0.1)),
        (NO, alike("proto-match-depends", (0.06, 0.02, 0.1), condenser_bought_more=(-0.03, -0.06, -0.01))),
        (OPEN, (0.01, -0.03, 0.05)),
    ],
    "others-stay-robust": [
        (YES, SMALL),
        (NO, alike("others-stay-robust", SMALL, ChannelGroup_vignetting_without=LARGE)),
        (OPEN, (-0.03, -0.07, 0.0)),
    ],
    "proto-match-with-correction": [
        (YES, SMALL),
        (NO, alike("proto-match-with-correction", SMALL, lamp_with=LARGE)),
        (OPEN, (-0.015, -0.03, 0.0)),
    ],
    "softmax-trade": [
        (YES, alike("softmax-trade", (0.01, 0.005, 0.015), exact=(-0.012, -0.02, -0.004))),
        (NO, alike("softmax-trade", (0.01, 0.005, 0.015), exact=(0.02, 0.01, 0.03))),
        (NO, alike("softmax-trade", (-0.02, -0.03, -0.01), exact=(-0.012, -0.02, -0.004))),
        (OPEN, alike("softmax-trade", (0.01, -0.005, 0.025), exact=(-0.012, -0.02, -0.004))),
    ],
    "sparsity": [
        (YES, {"softmax": 0.0, "sparsemax": 0.11}),
        (NO, {"softmax": 0.04, "sparsemax": 0.11}),
        (NO, {"softmax": 0.0, "sparsemax": 0.0}),
        (OPEN, {"softmax": 0.0, "sparsemax": 0.02}),
    ],
    "smaller-tiles": [(YES, (0.013, 0.004, 0.02)), (NO, (-0.03, -0.05, -0.01)), (OPEN, (0.01, -0.02, 0.04))],
    "larger-tiles": [
        (YES, (-0.012, -0.02, -0.004)),
        (NO, alike("larger-tiles", (-0.012, -0.02, -0.004), **{"518_proto_match_f1": (0.03, 0.01, 0.05)})),
        (OPEN, (-0.012, -0.03, 0.006)),
    ],
    "boundary-heldout": [
        (YES, (-0.012, -0.02, -0.004)),
        (NO, {"held out": (-0.09, -0.13, -0.05), "validation": (-0.003, -0.01, 0.004)}),
        (OPEN, (-0.012, -0.04, 0.016)),
    ],
    "isotonic-nothing": [(YES, (0.0, -0.002, 0.002)), (NO, (0.03, 0.01, 0.05)), (OPEN, (0.001, -0.01, 0.012))],
    "threshold-rule": [(YES, (0.008, 0.002, 0.014)), (NO, (-0.03, -0.05, -0.01)), (OPEN, (0.008, -0.01, 0.026))],
    "losses": [
        (YES, (-0.003, -0.006, 0.001)),
        (NO, alike("losses", (-0.003, -0.006, 0.001), BCE_with_mixup=(-0.05, -0.08, -0.03))),
        (OPEN, (-0.008, -0.03, 0.012)),
    ],
    "hotspot": [
        (YES, {"as taken": (0.08, 0.07, 0.09), "corrected": (0.002, 0.001, 0.003)}),
        (NO, {"as taken": (0.08, 0.07, 0.09), "corrected": (0.07, 0.06, 0.08)}),
        (OPEN, {"as taken": (0.08, 0.07, 0.09), "corrected": (0.04, 0.03, 0.05)}),
    ],
}


def test_every_claim_is_judged_by_its_rule():
    check_cases(CLAIMS, CASES)


def test_claims_are_spread_over_the_sections_and_argued():
    counts = Counter(claim.section for claim in CLAIMS)
    assert counts["B"] >= 8 and counts["5"] >= 3
    assert all(len(claim.tolerance) > 20 and claim.page for claim in CLAIMS)
    assert [claim.id for claim in CLAIMS if claim.built_in] == ["hotspot"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_needs_point_at_names_that_the_studies_write(claim):
    rows = {"17": {*battery.ROWS.values(), battery.MATTERS}, "9": set(battery.COLUMNS)}
    columns = {"17": {*battery.COLUMNS.values(), *(f"simplex_unmix_over_{c}" for c in battery.COLUMNS.values())}}
    for cell in claim.needs.values():
        assert cell.row in rows.get(cell.table, {cell.row})
        assert cell.column in columns.get(cell.table, {cell.column})
        if cell.table in ("B.2 losses", "5 rotations"):
            assert cell.row in {*ablations.LOSSES, *VIEWS}
