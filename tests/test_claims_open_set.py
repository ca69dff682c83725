"""Every claim about open-set rejection, on numbers written by hand: borne out, contradicted, left open."""

import pandas as pd
import pytest

from phoebi_lib.catalogue import CODES
from phoebi_lib.paper.claims.engine import BUILT_IN, FAILS, HOLDS, NOT_RESOLVED, NOT_SEEN, SEEN, judge
from phoebi_lib.paper.claims.open_set import CLAIMS

PROTOTYPES = ("residual", "max cosine", "energy 1.0", "energy 0.1")
# (value, low, high) of every need, in the order: borne out, contradicted, left open
SETS = {
    "open-set-knn-above-chance": (
        {"k-NN": (0.70, 0.62, 0.78)}, {"k-NN": (0.41, 0.33, 0.49)}, {"k-NN": (0.53, 0.44, 0.61)}),
    "open-set-knn-wins-every-fold": (
        {c: (0.26, 0.05, 0.40) for c in CODES},
        {c: (0.26, 0.05, 0.40) for c in CODES} | {"ka": (-0.20, -0.35, -0.04)},
        {c: (0.26, 0.05, 0.40) for c in CODES} | {"bs": (0.05, -0.07, 0.18)}),
    "open-set-knn-beats-prototypes": (
        {s: (0.25, 0.12, 0.37) for s in PROTOTYPES},
        {s: (-0.07, -0.13, -0.01) for s in PROTOTYPES},
        {s: (0.25, 0.12, 0.37) for s in PROTOTYPES} | {"energy 0.1": (0.04, -0.03, 0.12)}),
    "open-set-prototypes-at-chance": (
        {s: (0.44, 0.36, 0.52) for s in PROTOTYPES},
        {s: (0.44, 0.36, 0.52) for s in PROTOTYPES} | {"residual": (0.66, 0.58, 0.73)},
        {s: (0.52, 0.45, 0.59) for s in PROTOTYPES}),
    "open-set-prototypes-unstable": (
        {s: (0.11, 0.03, 0.17) for s in PROTOTYPES},
        {s: (-0.06, -0.10, -0.02) for s in PROTOTYPES},
        {s: (0.04, -0.03, 0.10) for s in PROTOTYPES}),
    "open-set-residual-is-max-cosine": (
        {"difference": (0.000, -0.006, 0.007)}, {"difference": (0.06, 0.03, 0.09)},
        {"difference": (-0.003, -0.034, 0.030)}),
    "open-set-temperature": (
        {"difference": (-0.007, -0.015, 0.002)}, {"difference": (-0.08, -0.12, -0.03)},
        {"difference": (-0.035, -0.071, 0.003)}),
    "open-set-ka-easiest": (
        {"lead": (0.11, 0.02, 0.20)}, {"lead": (-0.35, -0.58, -0.25)}, {"lead": (0.03, -0.10, 0.16)}),
    "open-set-bt-gains-most": (
        {"excess": (0.05, 0.01, 0.09)}, {"excess": (-0.12, -0.20, -0.03)}, {"excess": (0.04, -0.05, 0.13)}),
    "open-set-best-of-36": (
        {"lead": (0.07, 0.02, 0.12)}, {"lead": (-0.06, -0.12, -0.01)}, {"lead": (0.01, -0.04, 0.06)}),
    "open-set-mean-aggregation": (
        {"openset_percentile": (0.11, 0.06, 0.16), "openset_max": (0.15, 0.08, 0.22)},
        {"openset_percentile": (0.11, 0.06, 0.16), "openset_max": (-0.05, -0.09, -0.02)},
        {"openset_percentile": (0.01, -0.01, 0.03), "openset_max": (0.15, 0.08, 0.22)}),
    "open-set-tiles-beat-patches": (
        {"openset_patch": (0.25, 0.15, 0.33)}, {"openset_patch": (-0.04, -0.07, -0.01)},
        {"openset_patch": (0.02, -0.03, 0.07)}),
    "open-set-no-class-normalisation": (
        {"openset_normalised": (0.07, 0.03, 0.11)}, {"openset_normalised": (-0.03, -0.05, -0.01)},
        {"openset_normalised": (0.00, -0.02, 0.02)}),
    "open-set-prototype-variants-at-chance": (
        {"highest": (0.48, 0.42, 0.54)}, {"highest": (0.64, 0.58, 0.70)}, {"highest": (0.53, 0.46, 0.60)}),
}  # fmt: skip
CASES = [(claim, place) for claim in CLAIMS for place in range(3)]


def verdict(claim, numbers, evidence):
    assert set(numbers) == set(claim.needs)
    lines = [
        {"table": cell.table, "row": cell.row, "column": cell.column, "encoder": "e", "partition": "p",
         "value": numbers[name][0], "low": numbers[name][1], "high": numbers[name][2], "evidence": evidence,
         "n_images": 40}
        for name, cell in claim.needs.items()
    ]  # fmt: skip
    return judge(claim, pd.DataFrame(lines)).verdict


def test_every_claim_has_its_three_sets():
    assert [claim.id for claim in CLAIMS] == list(SETS)
    assert sum(claim.section == "D" for claim in CLAIMS) >= 5
    assert {claim.page for claim in CLAIMS} == {"D_open_set"}


@pytest.mark.parametrize(("claim", "place"), CASES, ids=[f"{claim.id}-{place}" for claim, place in CASES])
def test_verdicts(claim, place):
    numbers = SETS[claim.id][place]
    simulated = BUILT_IN if claim.built_in else (SEEN, NOT_SEEN, NOT_RESOLVED)[place]
    assert verdict(claim, numbers, "simulated") == simulated
    assert verdict(claim, numbers, "paper") == (HOLDS, FAILS, NOT_RESOLVED)[place]


def test_the_cells_are_those_that_the_tables_name():
    cells = {cell.row for claim in CLAIMS for cell in claim.needs.values() if cell.table == "20"}
    assert cells == {"residual norm (SimplexUnmix)", "−max cosine (ProtoMatch)", "energy (T=1.0)", "energy (T=0.1)",
                     "KNN (k=10)"}  # fmt: skip
