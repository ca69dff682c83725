"""Each claim about decoder variants against numbers written by hand: borne out, contradicted, undecided."""

import pandas as pd
import pytest

from phoebi_lib.paper.claims import engine
from phoebi_lib.paper.claims.variants import CLAIMS

UP, DOWN, AROUND = (0.06, 0.03, 0.09), (-0.06, -0.09, -0.03), (0.01, -0.06, 0.08)
NIL = (0.0, -0.01, 0.01)
#: id -> numbers that bear it out, contradict it, leave it open: end of a need's name -> value or (value, low, high).
CASES = {
    "ensemble-does-not-help": ({"": DOWN}, {"": NIL, "soft OR of two f1_gain": UP}, {"": AROUND}),
    "ensemble-members-correlated": ({"": 0.6}, {"": -0.4}, {"": 0.05}),
    "temperatures-raise-f1": ({"": UP}, {"": DOWN}, {"": AROUND}),
    "temperatures-keep-the-gap": (
        {"temperatures, three partitions delta_f1": -0.086, "": -0.081},
        {"temperatures, three partitions delta_f1": -0.15, "": -0.081},
        {"temperatures, three partitions delta_f1": -0.102, "": -0.081},
    ),
    "repulsion-spreads-prototypes": (
        {"SimplexUnmix, three partitions prototype_cosine": 0.65, "n 0.01, three partitions prototype_cosine": 0.2,
         "n 0.1, three partitions prototype_cosine": -0.1, "n 1, three partitions prototype_cosine": -0.19},
        {"SimplexUnmix, three partitions prototype_cosine": 0.1, "": 0.5},
        {"": 0.5},
    ),
    "repulsion-lowers-f1": ({"": DOWN}, {"": DOWN, "repulsion 0.1, three partitions f1_gain": UP}, {"": AROUND}),
    "penalty-moves-mx-and-fj": (
        {"auroc_mx_gain": UP, "auroc_fj_gain": DOWN}, {"": DOWN}, {"auroc_mx_gain": UP, "auroc_fj_gain": AROUND},
    ),
    "penalty-doubles-the-loss": ({"": 2.1}, {"": 1.1}, {"": 1.52}),
    "penalty-1-matches-protomatch": (
        {"ProtoMatch heldout_f1": 0.69, "ProtoMatch heldout_macro_f1": 0.71, "": 0.7},
        {"ProtoMatch heldout_f1": 0.69, "ProtoMatch heldout_macro_f1": 0.6, "": 0.7},
        {"ProtoMatch heldout_f1": 0.67, "": 0.7},
    ),
    "subspaces-do-not-transfer": (
        {"highest_dev_auroc": 0.83, "highest_auroc": 0.59}, {"highest_dev_auroc": 0.6, "highest_auroc": 0.59},
        {"highest_dev_auroc": 0.7, "highest_auroc": 0.59},
    ),
    "subspaces-do-not-help": ({"": NIL}, {"": NIL, "subspace 64, penalty 1, nested auroc_gain": UP}, {"": AROUND}),
    "calibration-does-not-help": (
        {"": NIL}, {"": NIL, "F1 search on development heldout_f1_margin": UP}, {"": AROUND},
    ),
    "finer-tiles-do-not-help": ({"": DOWN}, {"": UP}, {"": AROUND}),
    "closed-forms-alike": (
        {"highest_auroc": 0.63, "lowest_auroc": 0.59}, {"highest_auroc": 0.8, "lowest_auroc": 0.5},
        {"highest_auroc": 0.69, "lowest_auroc": 0.59},
    ),
    "patch-training-plateaus": (
        {"fall": 0.97, "updates": 570}, {"fall": 0.5, "updates": 570}, {"fall": 0.99, "updates": 2},
    ),
    "mosaics-do-not-help": ({"": DOWN}, {"": NIL, "real images and mosaics auroc_gain": UP}, {"": AROUND}),
    "mosaics-keep-f1": ({"": 0.02}, {"": 0.3}, {"": 0.031}),
    "no-variant-resolved": ({"": AROUND}, {"": AROUND, "pooled 56, cosine, mean auroc_gain": DOWN}, {"": 0.0}),
}  # fmt: skip
VERDICTS = {
    "simulated": (engine.SEEN, engine.NOT_SEEN, engine.NOT_RESOLVED),
    "paper": (engine.HOLDS, engine.FAILS, engine.NOT_RESOLVED),
}


def table(claim, numbers, evidence):
    """A tidy table with the numbers that the claim needs; of several endings that fit, the longest counts."""
    lines = []
    for name, cell in claim.needs.items():
        value = numbers[max((end for end in numbers if name.endswith(end)), key=len)]
        value, low, high = value if isinstance(value, tuple) else (value, float("nan"), float("nan"))
        where = {"table": cell.table, "row": cell.row, "column": cell.column, "encoder": "e", "partition": ""}
        lines.append({**where, "value": value, "low": low, "high": high, "evidence": evidence, "n_images": 10})
    return pd.DataFrame(lines)


@pytest.mark.parametrize("which", [0, 1, 2], ids=["borne out", "contradicted", "undecided"])
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_verdicts(claim, which):
    for evidence, expected in VERDICTS.items():
        verdict = engine.judge(claim, table(claim, CASES[claim.id][which], evidence))
        assert verdict.verdict == expected[which], (evidence, verdict)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_missing_number_makes_a_claim_untestable(claim):
    assert engine.judge(claim, table(claim, CASES[claim.id][0], "paper").iloc[:-1]).verdict == engine.NOT_TESTABLE


def test_every_claim_has_its_cases_and_says_where_it_stands():
    assert set(CASES) == {claim.id for claim in CLAIMS} and len(CASES) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.section == "C" and claim.page in ("C_variants", "C_units")
        assert claim.wording.endswith(".") and claim.tolerance.endswith(".") and claim.place
    assert len(CLAIMS) >= 5


def test_a_gain_that_is_merely_not_resolved_does_not_bear_out_that_there_is_none():
    claim = next(c for c in CLAIMS if c.id == "finer-tiles-do-not-help")
    wide = table(claim, {"": (-0.01, -0.2, 0.18)}, "simulated")
    assert engine.judge(claim, wide).verdict == engine.NOT_RESOLVED
