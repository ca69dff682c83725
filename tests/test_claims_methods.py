"""Claims of Section 4 on made-up numbers: borne out, contradicted, open."""

from phoebi_lib.paper.claims.methods import CLAIMS
from tests.claim_cases import NO, OPEN, YES, check_cases

WITHIN, ACROSS = "same_image_minus_same_species", "same_minus_other_species"

CASES = {
    "crops-interchangeable": [
        (YES, {WITHIN: (0.01, 0.0, 0.02), ACROSS: (0.2, 0.1, 0.3)}),  # bound 0.25 * 0.2 = 0.05
        (NO, {WITHIN: (0.15, 0.1, 0.2), ACROSS: (0.2, 0.1, 0.3)}),
        (OPEN, {WITHIN: (0.05, 0.02, 0.08), ACROSS: (0.2, 0.1, 0.3)}),
    ],
    "species-more-alike": [
        (YES, (0.1, 0.05, 0.15)),
        (NO, (-0.1, -0.15, -0.05)),
        (OPEN, (0.02, -0.05, 0.1)),
    ],
    "variance-one-over-t": [
        (YES, (-1.0, -1.1, -0.9)),
        (NO, (-0.4, -0.6, -0.3)),
        (NO, (-1.5, -1.6, -1.4)),
        (OPEN, (-0.9, -1.0, -0.7)),
    ],
    "simplex-exact-zeros": [
        (YES, {"absent": 0.9, "present": 0.2}),
        (NO, {"absent": 0.3, "present": 0.2}),
        (NO, {"absent": 0.7, "present": 0.9}),
        (OPEN, {"absent": 0.52, "present": 0.2}),
        (OPEN, {"absent": 0.7, "present": 0.7}),
    ],
    "prototypes-near-converged": [(YES, 0.03), (NO, 0.3), (OPEN, 0.11)],
}


def test_the_claims_of_section_4():
    assert len(CLAIMS) >= 4
    check_cases(CLAIMS, CASES)
