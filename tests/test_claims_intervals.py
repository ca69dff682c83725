"""Each claim about intervals and behaviour against numbers written by hand: borne out, contradicted, undecided."""

import pandas as pd
import pytest

from phoebi_lib.paper.claims import engine
from phoebi_lib.paper.claims.intervals import CLAIMS

BY_ID = {claim.id: claim for claim in CLAIMS}
UP, DOWN, AROUND = (0.03, 0.01, 0.05), (-0.03, -0.05, -0.01), (0.0, -0.03, 0.03)
HIGH, LOW, HALF = (0.8, 0.7, 0.9), (0.2, 0.1, 0.3), (0.5, 0.4, 0.6)
#: id -> three sets of numbers; a set maps the end of a need's name ("" = every need) to value or (value, low, high).
#: None stands where no number can leave the claim open (counts, signs of exact numbers): the number is then absent.
CASES = {
    "heldout-has-more-species": ({"": 0.63}, {"": -0.1}, None),
    "development-folds": ({"": 26}, {"all": 26, "found": 25}, None),
    "one-species-without-pure-culture": ({"": 1}, {"": 1, "fold 3 without_pure_culture": 0}, None),
    "order-4-constant": ({"": 0.8}, {"": 0.8, "lowest": 0.7}, None),
    "pooled-combinations": ({"": 27}, {"": 19}, None),
    "variance-between-combinations": ({"": HIGH}, {"": HIGH, "ChannelGroup between_pf": LOW},
                                      {"": HIGH, "ChannelGroup between_pf": HALF}),
    "means-match-images": ({"": (-0.01, -0.03, 0.02)}, {"": (0.2, 0.1, 0.3)}, {"": (0.02, -0.02, 0.08)}),
    "anchored-at-constant-on-folds": ({"": AROUND}, {"": (0.15, 0.1, 0.2)}, {"": (0.02, -0.04, 0.1)}),
    "channelgroup-below-constant-on-folds": ({"": DOWN}, {"": UP}, {"": AROUND}),
    "anchored-separate-only-ka-on-folds": (
        {"": HALF, "_ka": HIGH}, {"": HALF, "_ka": HIGH, "ProtoMatch dev_auroc_mx": LOW}, {"": HALF},
    ),
    "channelgroup-inverts-fj-on-folds": ({"": LOW}, {"": HIGH}, {"": HALF}),
    "configurations-not-told-apart": ({"": AROUND}, {"": AROUND, "sparsemax, max auroc_difference": DOWN}, {"": 0.0}),
    "order-of-decoders-carries-over": (
        {"ProtoMatch minus SimplexUnmix test_f1": UP, "ProtoMatch minus SimplexUnmix dev_f1": UP, "": DOWN},
        {"": UP},
        {"": DOWN, "ProtoMatch minus SimplexUnmix test_f1": AROUND, "ProtoMatch minus SimplexUnmix dev_f1": UP},
    ),
    "only-ka-with-every-decoder": ({"": HIGH}, {"": HIGH, "ProtoMatch test_auroc_ka": LOW}, {"": HALF}),
    "fj-and-mx-by-one-decoder": ({"fj": HIGH, "mx": HIGH, "inverted": LOW}, {"": HIGH},
                                 {"fj": HALF, "mx": HIGH, "inverted": LOW}),
    "bs-bt-pf-unresolved": ({"": HALF}, {"": HALF, "SimplexUnmix test_auroc_bt": LOW}, {"": 0.5}),
    "order-curve": ({"": 0.05}, {"": 0.05, "ChannelGroup deviation_order_2": -0.3},
                    {"": 0.05, "ChannelGroup deviation_order_2": -0.125}),
    "constant-delta-negative": ({"": -0.08}, {"": 0.08}, None),
    "singletons-at-constant": ({"": 0.02}, {"": 0.02, "ProtoMatch deviation_order_1": -0.2},
                               {"": 0.02, "ProtoMatch deviation_order_1": 0.001}),
    "singletons-channelgroup": (
        {"f1_order_1": 0.02, "deviation_order_1": DOWN}, {"f1_order_1": 0.4, "deviation_order_1": UP},
        {"f1_order_1": 0.05, "deviation_order_1": AROUND},
    ),
    "singletons-are-bt": ({"": 3}, {"bt": 1, "all": 3}, None),
    "singletons-spread": ({"": 7}, {"": 0.5}, {"": 1.5}),
    "simplex-favours-recall": (
        {"fnr_bs": 0.05, "fnr_fj": 0.08, "fnr_mx": 0.0, "fnr_pf": 0.1, "": 0.95},
        {"": 0.5}, {"fnr_bs": 0.16, "fnr_fj": 0.08, "fnr_mx": 0.0, "fnr_pf": 0.1, "": 0.95},
    ),
    "ka-calibrated-tightly": ({"": LOW}, {"": HIGH}, {"": HALF}),
    "bt-scores-inverted": ({"": DOWN}, {"": UP}, {"": AROUND}),
    "bt-recovered-by-threshold": ({"": UP}, {"": DOWN}, {"": AROUND}),
    "protomatch-calls-everything": ({"": 56}, {"": 30}, {"": 52}),
    "channelgroup-calls-fewer": ({"": DOWN}, {"": UP}, {"": AROUND}),
    "exact-match-on-large-mixtures": ({"": 0.03}, {"": 0.03, "ProtoMatch exact_order_4": 0.4}, {"": 0.11}),
    "none-calibrated": ({"": HIGH}, {"": HIGH, "ChannelGroup error": (0.05, 0.02, 0.08)}, {"": (0.1, 0.05, 0.2)}),
    "channelgroup-best-calibrated": ({"": (5, 4, 6)}, {"": (1, 0, 2)}, {"": (4, 2, 6)}),
    "simplex-overpredicts-easy": ({"": UP}, {"": DOWN}, {"": AROUND}),
    "protomatch-flat": ({"": AROUND}, {"": AROUND, "slope_mx": HIGH}, {"": AROUND, "slope_mx": (0.2, 0.0, 0.4)}),
    "precision-only-ka": ({"": 0.05, "_ka": 0.9}, {"": 0.05, "_ka": 0.9, "ChannelGroup recall_pf": 0.7},
                          {"": 0.05, "_ka": 0.22}),
}  # fmt: skip
SIMULATED = (engine.SEEN, engine.NOT_SEEN, engine.NOT_RESOLVED)
PAPER = (engine.HOLDS, engine.FAILS, engine.NOT_RESOLVED)


def table(claim, numbers, evidence):
    """A tidy table with the numbers that the claim needs; of several endings that fit, the longest counts."""
    lines = []
    for name, cell in claim.needs.items():
        fits = [end for end in numbers if name.endswith(end)]
        assert fits, f"{claim.id}: no number for {name}"
        value = numbers[max(fits, key=len)]
        value, low, high = value if isinstance(value, tuple) else (value, float("nan"), float("nan"))
        where = {"table": cell.table, "row": cell.row, "column": cell.column, "encoder": "e", "partition": ""}
        lines.append({**where, "value": value, "low": low, "high": high, "evidence": evidence, "n_images": 10})
    return pd.DataFrame(lines)


@pytest.mark.parametrize("which", [0, 1, 2], ids=["borne out", "contradicted", "undecided"])
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_verdicts(claim, which):
    numbers = CASES[claim.id][which]
    kinds = {"exact": PAPER} if claim.label_only else {"simulated": SIMULATED, "paper": PAPER}
    for evidence, verdicts in kinds.items():
        if numbers is None:
            given = table(claim, CASES[claim.id][0], evidence).iloc[1:]
            assert engine.judge(claim, given).verdict == engine.NOT_TESTABLE
            continue
        expected = engine.BUILT_IN if claim.built_in and evidence == "simulated" else verdicts[which]
        assert engine.judge(claim, table(claim, numbers, evidence)).verdict == expected


def test_every_claim_has_its_cases_and_says_where_it_stands():
    assert set(CASES) == set(BY_ID) and len(BY_ID) == len(CLAIMS), "ids are unique"
    for claim in CLAIMS:
        assert claim.section in engine.SECTIONS and claim.page in ("C_intervals", "C_behaviour")
        assert claim.wording.endswith(".") and claim.tolerance.endswith((".", ";")) and claim.place
        undecided = CASES[claim.id][2]
        assert (undecided is None) == claim.label_only
    assert sum(claim.section == "C" for claim in CLAIMS) >= 8


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_missing_number_makes_a_claim_untestable(claim):
    given = table(claim, CASES[claim.id][0], "exact" if claim.label_only else "paper")
    assert engine.judge(claim, given.iloc[:-1]).verdict == engine.NOT_TESTABLE


def test_label_only_claims_on_the_tables_that_the_pages_write():
    from phoebi_lib.studies import behaviour, intervals_study

    exact = pd.concat([intervals_study.table_18(), intervals_study.pooling_counts(), behaviour.labels_table()])
    verdicts = {claim.id: engine.judge(claim, exact).verdict for claim in CLAIMS if claim.label_only}
    fails = {name for name, verdict in verdicts.items() if verdict == engine.FAILS}
    assert fails == {"pooled-combinations", "singletons-are-bt"}
    assert {verdict for name, verdict in verdicts.items() if name not in fails} == {engine.HOLDS}
