"""Claims of Section 5 on made-up numbers: borne out, contradicted, open."""

import pytest

from phoebi_lib.catalogue import CODES
from phoebi_lib.paper import cells
from phoebi_lib.paper.claims.results import CLAIMS, DECODERS, ENCODERS, FINE_TUNED, LEAST_COLLAPSE
from tests.claim_cases import NO, OPEN, YES, check_cases

CONTROL, MIL = "DINOv2 ViT-S/14 (PHOEBI)", "Attention MIL (Ilse et al., 2018)"
UP, DOWN, AROUND = (0.03, 0.01, 0.05), (-0.03, -0.05, -0.01), (0.0, -0.02, 0.02)
LEADS = [f"{other} {column}" for other in DECODERS[:2] for column in ("per_sample_f1", "macro_f1", "exact_match")]


def by_decoder(simplex, proto, channel=None):
    return dict(zip(DECODERS, (simplex, proto, channel) if channel is not None else (simplex, proto), strict=False))


def networks(names, inside, outside, **changed):
    return {f"{n} {end}": v for n in names for end, v in (("in", inside), ("out", outside))} | changed


def ranks(ka, bt, others=0.6, **changed):
    each = {**dict.fromkeys(CODES, others), "ka": ka, "bt": bt}
    return {f"{d}_{c}": each[c] for d in DECODERS for c in CODES} | changed


def tiles(*f1, **changed):
    return {f"{d}_{t}": v for d in DECODERS for t, v in zip((1, 4, 8, 16), f1, strict=True)} | changed


def sizes(val_gain, held_gain, **changed):
    found = {}
    for d in DECODERS:
        found |= {f"{d} in small": 0.6, f"{d} in large": 0.6 + val_gain}
        found |= {f"{d} out small": 0.65, f"{d} out large": 0.65 + held_gain}
    return found | changed


CASES = {
    "decoders-do-not-collapse": [
        (YES, by_decoder(AROUND, UP, AROUND)),
        (NO, by_decoder(AROUND, UP, (-0.15, -0.2, -0.1))),
        (OPEN, by_decoder(AROUND, UP, (-0.02, -0.08, 0.04))),  # as Table 19 prints for ChannelGroup
    ],
    "anchors-near-constant": [
        (YES, by_decoder((0.006, -0.008, 0.02), UP)),
        (NO, by_decoder((-0.1, -0.12, -0.08), UP)),
        (OPEN, by_decoder((-0.01, -0.04, 0.02), UP)),
    ],
    "proto-match-above-constant": [
        (YES, {"f1": UP, "macro_f1": UP}),
        (NO, {"f1": UP, "macro_f1": DOWN}),
        (OPEN, {"f1": AROUND, "macro_f1": UP}),
    ],
    "channel-group-overfits": [
        (YES, {"validation": UP, "held_out": DOWN}),
        (NO, {"validation": UP, "held_out": UP}),
        (OPEN, {"validation": UP, "held_out": AROUND}),
        (OPEN, {"validation": AROUND, "held_out": DOWN}),  # not trained: nothing to overfit
        (OPEN, {"validation": DOWN, "held_out": DOWN}),
    ],
    "simplex-unmix-unchanged": [
        (YES, (0.003, -0.01, 0.015)),
        (NO, (0.06, 0.04, 0.08)),
        (NO, (-0.06, -0.08, -0.04)),
        (OPEN, (0.0, -0.05, 0.05)),
    ],
    "channel-group-leads": [
        (YES, UP),
        (NO, {**dict.fromkeys(LEADS, UP), LEADS[-1]: DOWN}),
        (OPEN, {**dict.fromkeys(LEADS, UP), LEADS[0]: AROUND}),
    ],
    "ka-easiest-bt-hardest": [
        (YES, ranks(ka=0.9, bt=0.4)),
        (NO, ranks(ka=0.9, bt=0.4, ProtoMatch_mx=0.95)),
        (NO, ranks(ka=0.9, bt=0.7)),
        (OPEN, ranks(ka=0.9, bt=0.4, ChannelGroup_pf=0.905)),
    ],
    "tiles-saturate": [
        (YES, tiles(0.5, 0.6, 0.63, 0.645)),
        (NO, tiles(0.5, 0.6, 0.63, 0.645, ProtoMatch_16=0.6)),
        (NO, tiles(0.5, 0.51, 0.55, 0.65)),  # rises and does not saturate
        (OPEN, tiles(0.5, 0.6, 0.63, 0.645, ProtoMatch_16=0.631)),
    ],
    "tiles-follow-curve": [
        (YES, by_decoder(0.99, 0.97, 0.96)),
        (NO, by_decoder(0.99, 0.5, 0.96)),
        (OPEN, by_decoder(0.99, 0.92, 0.96)),
    ],
    "fine-tuned-networks-collapse": [
        (YES, networks(FINE_TUNED, 0.99, 0.5)),
        (NO, networks(FINE_TUNED, 0.99, 0.5, **{"ResNet-50 out": 0.9})),
        (OPEN, networks(FINE_TUNED, 0.99, 0.5, **{"ResNet-50 out": 0.75})),
        (OPEN, networks(FINE_TUNED, 0.99, 0.5, **{"ResNet-50 in": 0.8})),  # not fitted
    ],
    "control-collapses": [
        (YES, networks([CONTROL], 1.0, 0.56)),
        (NO, networks([CONTROL], 1.0, 0.9)),
        (OPEN, networks([CONTROL], 0.7, 0.4)),
    ],
    "mil-loses-a-third": [
        (YES, networks([MIL], 0.9, 0.5)),
        (NO, networks([MIL], 0.9, 0.8)),
        (OPEN, networks([MIL], 0.9, 0.6)),
    ],
    "encoders-in-a-band": [
        (YES, dict.fromkeys(ENCODERS, 0.67) | {"UNI ViT-L": 0.70}),
        (NO, dict.fromkeys(ENCODERS, 0.67) | {"UNI ViT-L": 0.90}),
        (OPEN, dict.fromkeys(ENCODERS, 0.67) | {"UNI ViT-L": 0.77}),
    ],
    "larger-encoder-no-help": [
        (YES, sizes(0.03, 0.0)),
        (NO, sizes(0.03, 0.1)),
        (NO, sizes(-0.03, 0.0)),
        (OPEN, sizes(0.03, 0.02)),
    ],
    "collapse-on-four-species": [
        (YES, networks([*FINE_TUNED, "Florence-2 DaViT-B"], 0.99, 0.6)),
        (NO, networks([*FINE_TUNED, "Florence-2 DaViT-B"], 0.99, 0.9)),
        (OPEN, networks([*FINE_TUNED, "Florence-2 DaViT-B"], 0.9, 0.4)),
    ],
}


def test_the_claims_of_section_5():
    check_cases(CLAIMS, CASES)


def test_the_printed_bounds_are_those_of_the_table():
    printed = cells(3).set_index(["row", "column"])["value"]
    assert pytest.approx(0.606 - 0.654, abs=1e-9) == LEAST_COLLAPSE
    assert set(FINE_TUNED) < set(printed.index.get_level_values(0))
    assert set(ENCODERS) == set(cells(4)["row"])


def test_needs_on_supervised_methods_name_rows_that_the_paper_prints():
    for claim in CLAIMS:
        for cell in claim.needs.values():
            if cell.table in ("3", "4", "5", "7"):
                printed = cells(int(cell.table))
                assert ((printed["row"] == cell.row) & (printed["column"] == cell.column)).sum() == 1, cell
