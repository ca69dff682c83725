"""Claims of Appendix A on made-up numbers: borne out, contradicted, open."""

from phoebi_lib.catalogue import CODES
from phoebi_lib.paper.claims.appendix_a import CLAIMS
from tests.claim_cases import NO, OPEN, YES, check_cases


def each(number, **changed):
    return dict.fromkeys(CODES, number) | changed


def failing(colour, grey):
    return {"failing_in_colour": colour, "failing_in_grey": grey}


CASES = {
    "label-noise-under-five-percent": [
        (YES, (0.03, 0.02, 0.045)),
        (NO, (0.1, 0.07, 0.15)),
        (OPEN, (0.049, 0.03, 0.07)),
    ],
    "mixtures-missed-more": [(YES, (0.04, 0.02, 0.06)), (NO, (-0.04, -0.06, -0.02)), (OPEN, (0.0, -0.1, 0.1))],
    "label-noise-bound-conservative": [
        (YES, (0.05, 0.03, 0.07)),
        (NO, (-0.05, -0.07, -0.03)),
        (OPEN, (0.0, 0.0, 0.1)),
    ],
    "grey-lowers-similarity": [
        (YES, each((0.08, 0.07, 0.09))),
        (NO, each((0.08, 0.07, 0.09), ka=(-0.02, -0.03, -0.01))),
        (OPEN, each((0.08, 0.07, 0.09), ka=(0.01, -0.01, 0.03))),
    ],
    "grey-drop-near-constant": [
        (YES, (-0.05, -0.06, -0.04)),
        (NO, (0.008, 0.004, 0.012)),  # the six printed drops: 0.144 - 0.056 - 0.080
        (OPEN, (0.0, -0.01, 0.01)),
    ],
    "grey-keeps-margin": [
        (YES, each((0.01, 0.0, 0.02))),
        (NO, each((0.01, 0.0, 0.02), bt=(-0.05, -0.06, -0.04))),
        (OPEN, each((0.01, 0.0, 0.02), bt=(0.0, -0.02, 0.02))),
    ],
    "colour-no-cue": [(YES, (0.01, 0.0, 0.02)), (NO, (-0.05, -0.06, -0.04)), (OPEN, (0.0, -0.02, 0.02))],
    "grey-fails-thresholds": [
        (YES, failing(0, 4)),
        (NO, failing(0, 1)),
        (NO, failing(5, 6)),  # what fails in colour already says nothing about grey
        (OPEN, failing(0, 3)),
        (OPEN, failing(1, 5)),
    ],
    "cast-in-every-image": [(YES, 1.0), (NO, 0.5), (OPEN, 0.999)],
    "gaps-pair-bs-with-bt": [(YES, {"with_both": 9, "all": 17}), (NO, {"with_both": 8, "all": 17})],
    "high-orders-saturate": [
        (YES, {"order_4": 0.8, "order_5": 10 / 11}),
        (NO, {"order_4": 0.8, "order_5": 0.8}),
    ],
}


def test_the_claims_of_appendix_a():
    assert len(CLAIMS) >= 4
    check_cases(CLAIMS, CASES)
