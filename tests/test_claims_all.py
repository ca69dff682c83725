"""All claims together: enough of them, each with a page, and few that labels alone decide."""

from collections import Counter

import pytest

from phoebi_lib import runner
from phoebi_lib.paper import claims as package
from phoebi_lib.paper.claims import all_claims
from phoebi_lib.paper.claims.engine import SECTIONS, Claim

CLAIMS = all_claims()


def test_ids_are_unique_and_sections_known_and_in_order():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    places = [SECTIONS.index(claim.section) for claim in CLAIMS]
    assert places == sorted(places)


def test_every_part_of_the_paper_has_its_share():
    count = Counter(claim.section for claim in CLAIMS)
    assert count["Abstract"] + count["6"] >= 6
    for section, least in {"4": 4, "5": 15, "A": 4, "B": 8, "C": 10, "D": 8}.items():
        assert count[section] >= least, section


def test_at_most_ten_follow_from_labels_alone():
    assert sum(claim.label_only for claim in CLAIMS) <= 10


def test_every_page_is_a_notebook():
    assert {claim.page for claim in CLAIMS} - {""} <= set(runner.sources())


def test_a_claim_without_a_page_waits_for_supervised_methods():
    for claim in CLAIMS:
        if not claim.page:
            assert {"3", "4", "5", "7"} & {cell.table for cell in claim.needs.values()}, claim.id


def test_every_claim_says_what_it_needs_and_why_its_bounds():
    for claim in CLAIMS:
        assert claim.needs and claim.wording and claim.place and claim.tolerance, claim.id
        assert not (claim.label_only and claim.built_in), claim.id


def test_two_claims_of_one_name_are_refused(monkeypatch):
    from phoebi_lib.paper.claims import methods, results

    monkeypatch.setattr(results, "CLAIMS", (*results.CLAIMS, methods.CLAIMS[0]))
    with pytest.raises(ValueError, match=f"two claims are called '{methods.CLAIMS[0].id}'"):
        package.all_claims()


def test_an_unknown_section_is_refused(monkeypatch):
    from phoebi_lib.paper.claims import methods

    stray = Claim("stray", "9", "Section 9", "w", {}, lambda n: "yes", "t")
    monkeypatch.setattr(methods, "CLAIMS", (stray,))
    with pytest.raises(ValueError, match="'9'"):
        package.all_claims()
