"""Made-up results for tests of claims: one frame from ``{(table, row, column): value or (value, low, high)}``."""

import pandas as pd

from phoebi_lib.paper.claims.engine import BUILT_IN, FAILS, HOLDS, NOT_RESOLVED, NOT_SEEN, SEEN, judge

YES, NO, OPEN = "yes", "no", "open"
WORDS = {
    "simulated": {YES: SEEN, NO: NOT_SEEN, OPEN: NOT_RESOLVED},
    "paper": {YES: HOLDS, NO: FAILS, OPEN: NOT_RESOLVED},
    "exact": {YES: HOLDS, NO: FAILS, OPEN: NOT_RESOLVED},
}


def results(cells, evidence):
    lines = []
    for (table, row, column), number in cells.items():
        value, low, high = number if isinstance(number, tuple) else (number, float("nan"), float("nan"))
        lines.append({"table": table, "row": row, "column": column, "encoder": "", "partition": "", "value": value,
                      "low": low, "high": high, "evidence": evidence, "n_images": 40})  # fmt: skip
    return pd.DataFrame(lines)


def frame_for(claim, numbers, evidence):
    """Return results that give a claim's needs these numbers, by name; a single number is given to every need."""
    if not isinstance(numbers, dict):
        numbers = dict.fromkeys(claim.needs, numbers)
    assert set(numbers) == set(claim.needs), f"{claim.id} needs {sorted(claim.needs)}, the case has {sorted(numbers)}"
    cells = {(cell.table, cell.row, cell.column): numbers[name] for name, cell in claim.needs.items()}
    return results(cells, evidence)


def check(claim, outcome, numbers):
    """Assert the verdict on every kind of evidence that the claim may rest on."""
    for evidence in ("exact",) if claim.label_only else ("simulated", "paper"):
        verdict = judge(claim, frame_for(claim, numbers, evidence))
        expected = BUILT_IN if claim.built_in and evidence == "simulated" else WORDS[evidence][outcome]
        assert verdict.verdict == expected, (claim.id, evidence, outcome, verdict.verdict)
        assert verdict.evidence == evidence


def check_cases(claims, cases):
    """Assert that each claim has its cases: one for yes and no, and for open unless labels alone decide it."""
    by_id = {claim.id: claim for claim in claims}
    assert set(by_id) == set(cases)
    for name, claim in by_id.items():
        outcomes = [outcome for outcome, _ in cases[name]]
        assert set(outcomes) == ({YES, NO} if claim.label_only else {YES, NO, OPEN}), name
        for outcome, numbers in cases[name]:
            check(claim, outcome, numbers)
