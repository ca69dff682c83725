"""Claims of the abstract and of Section 6 on made-up numbers: borne out, contradicted, open."""

import pytest

from phoebi_lib.paper import cells
from phoebi_lib.paper.claims.overview import CLAIMS
from phoebi_lib.paper.claims.results import DECODERS, FINE_TUNED
from tests.claim_cases import NO, OPEN, YES, check_cases

MIL = "Attention MIL (Ilse et al., 2018)"
UP, DOWN, AROUND = (0.03, 0.01, 0.05), (-0.08, -0.09, -0.07), (0.0, -0.04, 0.04)
NEEDS = {claim.id: list(claim.needs) for claim in CLAIMS}


def networks(outside, **changed):
    return {f"{n} {end}": v for n in FINE_TUNED for end, v in (("in", 0.99), ("out", outside))} | changed


def pooling(mil, margin):
    return {f"{MIL} in": 0.9, f"{MIL} out": mil, "constant": 0.654, "ProtoMatch_margin": margin}


def tradeoff(in_distribution, held_out):
    ends = {"in": in_distribution, "held": held_out}
    return {name: ends[name.split()[0]] for name in NEEDS["constraint-protects"]}


def auroc(knn, others, **changed):
    return {"knn": knn, **dict.fromkeys(("residual", "max_cosine", "energy_1", "energy_01"), others)} | changed


def primitives(one, others, **changed):
    return {"one_prototype": one, **dict.fromkeys(("greedy", "k_2", "k_4", "k_6", "cr_kd"), others)} | changed


CASES = {
    "size": [(YES, {"images": 120_000, "mixtures": 40}), (NO, {"images": 119_999, "mixtures": 40})],
    "networks-collapse": [
        (YES, networks(0.5)),
        (NO, networks(0.5, **{"ConvNeXt-B out": 0.95})),
        (OPEN, networks(0.5, **{"ConvNeXt-B in": 0.9})),
    ],
    "features-sound-pooling-fails": [
        (YES, pooling(0.57, UP)),
        (NO, pooling(0.57, DOWN)),
        (NO, pooling(0.8, UP)),
        (OPEN, pooling(0.65, UP)),
        (OPEN, pooling(0.57, AROUND)),
    ],
    "same-everywhere": [
        (YES, dict(zip(NEEDS["same-everywhere"], ((0.01, 0.0, 0.02), (0.2, 0.1, 0.3)), strict=True))),
        (NO, dict(zip(NEEDS["same-everywhere"], ((0.15, 0.1, 0.2), (0.2, 0.1, 0.3)), strict=True))),
        (OPEN, dict(zip(NEEDS["same-everywhere"], ((0.05, 0.0, 0.1), (0.2, 0.1, 0.3)), strict=True))),
    ],
    "decoders-hold-steady": [
        (YES, dict.fromkeys(DECODERS, UP)),
        (NO, dict.fromkeys(DECODERS, UP) | {"ChannelGroup": DOWN}),
        (OPEN, dict.fromkeys(DECODERS, UP) | {"ProtoMatch": AROUND}),
    ],
    "stranger-noticed": [(YES, (0.7, 0.6, 0.8)), (NO, (0.5, 0.46, 0.54)), (OPEN, (0.6, 0.5, 0.7))],
    "simplest-class-best": [
        (YES, primitives(0.5, 0.3)),
        (NO, primitives(0.5, 0.3, greedy=0.7)),
        (OPEN, primitives(0.5, 0.3, k_2=0.49)),
    ],
    "known-untouched": [(YES, (-0.03, -0.04, -0.02)), (NO, (-0.2, -0.3, -0.1)), (OPEN, (-0.05, -0.07, -0.03))],
    "stable-from-closed-form": [
        (YES, {"SimplexUnmix_untrained": UP, "ProtoMatch": UP}),
        (NO, {"SimplexUnmix_untrained": DOWN, "ProtoMatch": UP}),
        (OPEN, {"SimplexUnmix_untrained": AROUND, "ProtoMatch": UP}),
    ],
    "constraint-protects": [
        (YES, tradeoff(UP, UP)),
        (NO, tradeoff(UP, DOWN)),
        (NO, tradeoff(DOWN, UP)),
        (OPEN, tradeoff(UP, AROUND)),
    ],
    "local-sees-what-global-misses": [
        (YES, auroc((0.7, 0.65, 0.75), (0.45, 0.4, 0.5))),
        (NO, auroc((0.7, 0.65, 0.75), (0.45, 0.4, 0.5), residual=(0.7, 0.65, 0.75))),
        (NO, auroc((0.5, 0.46, 0.54), (0.45, 0.4, 0.5))),
        (OPEN, auroc((0.7, 0.65, 0.75), (0.5, 0.4, 0.6))),
    ],
    "resist-illumination": [
        (YES, (-0.01, -0.02, 0.0)),
        (NO, dict.fromkeys(NEEDS["resist-illumination"], UP) | {"Vignetting proto_match": (-0.13, -0.2, -0.1)}),
        (OPEN, dict.fromkeys(NEEDS["resist-illumination"], UP) | {"Vignetting proto_match": (-0.03, -0.05, 0.0)}),
    ],
}


def test_the_claims_of_the_abstract_and_section_6():
    assert len(CLAIMS) >= 6
    check_cases(CLAIMS, CASES)


@pytest.mark.parametrize("table", [3, 10, 17, 20])
def test_needs_name_rows_and_columns_that_the_paper_prints(table):
    printed = set(cells(table)[["row", "column"]].itertuples(index=False, name=None))
    named = {(c.row, c.column) for claim in CLAIMS for c in claim.needs.values() if c.table == str(table)}
    named = {(row, column) for row, column in named if not row.startswith("All-present")}
    assert named and named <= printed
