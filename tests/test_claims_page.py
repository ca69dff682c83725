"""The pages that say what holds, from made-up tables: verdicts, evidence, places, damaged files, the built book."""

import json
import shutil

import nbformat
import pandas as pd
import pytest

from phoebi_lib import book, claims_page, report, workspace
from phoebi_lib.label_only import label_only
from phoebi_lib.paper.claims import all_claims, load_results
from phoebi_lib.paper.claims.engine import (
    BUILT_IN,
    HOLDS,
    NOT_TESTABLE,
    SEEN,
    Cell,
    Claim,
    Number,
    Verdict,
    above,
    record,
)
from phoebi_lib.studies.decoder_tables import EXACT_ROW

RUN = {"profile": "smoke", "dataset": "sim:smoke", "encoder": "e", "partition": "random"}


def claim(name, table="8", row="ours", **changes):
    needs = {"the_margin": Cell(table, row, "f1_margin")}
    settings = {"section": "5", "place": "Section 5", "wording": f"words of {name}", "tolerance": "bound 0",
                "needs": needs, "rule": lambda n: above(n["the_margin"], 0)}  # fmt: skip
    return Claim(**{"id": name, **settings, **changes})


def write(folder, page, name, evidence="simulated", table="8", row="ours", value=0.25, **more):
    line = {"row": row, "column": "f1_margin", "value": value, "low": 0.125, "high": 0.375, "evidence": evidence,
            "n_images": 40, **more}  # fmt: skip
    path = folder / "tables" / page / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    report.table([line], table=table, **RUN).to_csv(path, index=False)
    return path


def copy_of(folder, page, text="", evidence="simulated"):
    notebook = nbformat.v4.new_notebook(metadata={
        "phoebi": {"evidence": evidence, "parameters": {"profile": "smoke"}},
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}})  # fmt: skip
    notebook.cells.append(nbformat.v4.new_markdown_cell(f"# {page}\n\n" + "word " * 60 + text))
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / f"{page}.ipynb")


def test_tables_of_all_pages_and_the_labels_are_read(tmp_path):
    write(tmp_path, "05_in_distribution", "table08")
    (tmp_path / "tables" / "05_in_distribution" / "table08.display.csv").write_text("a,b\n1,2\n")
    write(tmp_path, "A_colour--seed-3", "table15", table="15")
    results, notices = load_results(tmp_path / "tables")
    assert notices == []
    ours = results[results["source"] == "05_in_distribution"]
    assert len(ours) == 1 and ours["value"].item() == 0.25 and ours["n_images"].item() == 40
    assert set(results["source"]) == {"labels", "05_in_distribution"}, "a sweep's tables are on no page"
    labels = label_only()
    assert len(results) == len(labels) + 1
    assert not results[["row", "encoder", "partition", "evidence"]].isna().any(axis=None)


def test_without_tables_labels_remain():
    results, notices = load_results(None)
    assert set(results["evidence"]) == {"exact"} and notices == []


def test_a_label_only_number_that_a_page_repeats_counts_once(tmp_path):
    folder = tmp_path / "tables" / "03_benchmark"
    folder.mkdir(parents=True)
    label_only("smoke").to_csv(folder / "label_only.csv", index=False)
    results, _ = load_results(tmp_path / "tables")
    assert len(results) == len(label_only())
    constant = results[(results["table"] == "6") & (results["column"] == "heldout_f1")]
    assert constant["row"].tolist() == [EXACT_ROW], "not to be taken for the row on the run's own images"


@pytest.mark.parametrize(
    "text",
    ["", "table,row\n", "\x00\x01", "table,row,column,value\n8,a,b,1\n"],
    ids=["empty", "headless", "binary", "foreign"],
)
def test_a_damaged_table_is_left_out_and_named(tmp_path, text):
    write(tmp_path, "05_in_distribution", "table08")
    (tmp_path / "tables" / "05_in_distribution" / "broken.csv").write_text(text)
    results, notices = load_results(tmp_path / "tables")
    assert len(notices) == 1 and notices[0].startswith("05_in_distribution/broken.csv was left out: ")
    assert (results["source"] == "05_in_distribution").sum() == 1


def test_a_table_cut_short_is_left_out(tmp_path):
    path = write(tmp_path, "05_in_distribution", "table08")
    path.write_text(path.read_text()[:-60].rsplit(",", 12)[0])
    results, notices = load_results(tmp_path / "tables")
    assert len(notices) == 1 and set(results["source"]) == {"labels"}


def test_no_folder_of_tables_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="phoebi run"):
        load_results(tmp_path / "tables")


def test_numbers_as_they_are_shown():
    assert claims_page.number_text(Number(120000.0)) == "120,000"
    assert claims_page.number_text(Number(0.25)) == "0.250"
    assert claims_page.number_text(Number(1.0, 0.5, 1.5)) == "1.000 [0.500, 1.500]"
    assert claims_page.number_text(Number(-0.0012, -0.01, 0.02)) in ("-0.001 [-0.010, 0.020]", "−0.001 [−0.010, 0.020]")


def test_a_page_with_the_verdicts(tmp_path):
    write(tmp_path, "05_in_distribution", "table08")
    write(tmp_path, "05_in_distribution", "published", evidence="paper", row="theirs")
    copy_of(tmp_path, "05_in_distribution")
    claims = [
        claim("one", page="05_in_distribution"),
        claim("two", built_in=True),
        claim("three", row="absent", section="B", page="B_battery"),
        claim("four", row="theirs", section="Abstract"),
    ]
    written = claims_page.write_pages(tmp_path, claims)
    assert [path.name for path in written] == ["claims.json", "claims.md", "results_index.md"]
    text = (tmp_path / "claims.md").read_text()
    assert "words of one" in text and "{doc}`05_in_distribution`" in text
    assert "`B_battery`" in text and "{doc}`B_battery`" not in text, "a page that was not executed is not linked"
    assert "the margin 0.250 [0.125, 0.375]" in text and "not computed here: the margin" in text
    assert "## Section 5" in text and "## Appendix B" in text and "## Appendix C" not in text
    for word in claims_page.MEANINGS:
        assert f"**{word}**" in text
    saved = json.loads((tmp_path / "claims.json").read_text())
    found = {line["id"]: (line["verdict"], line["evidence"]) for line in saved["claims"]}
    assert found == {"one": (SEEN, "simulated"), "two": (BUILT_IN, "simulated"), "three": (NOT_TESTABLE, "none"),
                     "four": (HOLDS, "paper")}  # fmt: skip
    assert saved["verdicts"][SEEN] == 1 and sum(saved["verdicts"].values()) == 4


def test_counts_by_section():
    judged, _ = claims_page.verdicts(None, [claim("a"), claim("b", section="D"), claim("c", section="D")])
    tally = claims_page.counts(judged)
    assert tally["all"].to_dict() == {"5": 1, "D": 2}
    assert tally.loc["D", NOT_TESTABLE] == 2 and tally[HOLDS].sum() == 0


def test_notices_stand_on_the_page(tmp_path):
    write(tmp_path, "05_in_distribution", "table08").with_name("broken.csv").write_text("x")
    claims_page.write_pages(tmp_path, [claim("one")])
    assert "05_in_distribution/broken.csv was left out" in (tmp_path / "claims.md").read_text()
    assert json.loads((tmp_path / "claims.json").read_text())["notices"]


def test_a_simulated_claim_that_holds_is_refused(tmp_path):
    wrong = Verdict(claim("one"), HOLDS, "simulated", {})
    assert claims_page.impossible([record(wrong)]) == ["claim 'one' reads 'holds' on simulated evidence"]
    with pytest.raises(ValueError, match="'holds' on simulated"):
        claims_page.write_json(tmp_path / "claims.json", [wrong], [])
    assert not (tmp_path / "claims.json").exists()


def test_no_claim_of_the_book_holds_on_simulated_evidence(tmp_path):
    """Every number that any claim needs, made up and called simulated."""
    lines = {(c.table, c.row, c.column): c for claim in all_claims() for c in claim.needs.values()}
    labels, _ = load_results(None)
    exact = set(labels[["table", "row", "column"]].itertuples(index=False, name=None))
    made = pd.DataFrame([
        {"table": table, "row": row, "column": column, "value": 0.5, "evidence": "simulated", "profile": "smoke",
         "encoder": cell.encoder, "partition": cell.partition}
        for (table, row, column), cell in lines.items() if (table, row, column) not in exact])  # fmt: skip
    (tmp_path / "tables" / "all").mkdir(parents=True)
    report.table(made).to_csv(tmp_path / "tables" / "all" / "all.csv", index=False)
    judged, notices = claims_page.verdicts(tmp_path / "tables")
    assert notices == [] and claims_page.impossible(record(verdict) for verdict in judged) == []
    for verdict in judged:
        if verdict.evidence == "simulated":
            assert verdict.verdict not in ("holds", "does not hold"), verdict.claim.id
        if verdict.claim.label_only:
            assert verdict.evidence in ("exact", "simulated")


def test_the_index_lists_every_table_and_figure_once():
    index = claims_page.results_index()
    expected = [f"Table {i}" for i in range(1, 22)] + [f"Figure {i}" for i in range(1, 11)]
    assert index["item"].tolist() == expected
    assert (index[["content", "status", "computed"]] != "").all(axis=None)
    for line in index.to_dict("records"):
        later = line["status"] == "comes with the supervised methods"
        assert later or claims_page.places(line["where"]), f"{line['item']} is nowhere"


@pytest.mark.parametrize("line", claims_page.results_index().to_dict("records"), ids=lambda line: line["item"])
def test_every_place_of_the_index_is_in_its_notebook(line):
    for page, anchor in claims_page.places(line["where"]):
        source = workspace.project() / "notebooks" / f"{page}.md"
        assert source.is_file(), f"{line['item']}: there is no notebook {page}"
        names = [text.split("name: ")[1] for text in source.read_text().splitlines() if "name: " in text]
        assert anchor in names, f"{line['item']}: {page} has no {anchor}"


def test_the_index_tells_the_evidence(tmp_path):
    write(tmp_path, "05_in_distribution", "table08")
    copy_of(tmp_path, "05_in_distribution")
    copy_of(tmp_path, "03_benchmark", evidence="exact")
    claims_page.write_pages(tmp_path, [claim("one")])
    text = (tmp_path / "results_index.md").read_text().split("## Figures")[0]
    rows = {block.split(":")[0]: block for block in text.split("* - ")[1:]}
    assert "{numref}`tab-8`" in rows["8"] and "  - simulated\n" in rows["8"]
    assert "  - exact\n" in rows["18"], "a page without tidy lines of the table says it in its copy"
    assert "`tab-17`" in rows["17"] and "{numref}`tab-17`" not in rows["17"]


def test_places_that_were_not_built_are_problems(tmp_path):
    write(tmp_path, "05_in_distribution", "table08")
    claims_page.write_pages(tmp_path, [claim("one", page="05_nowhere")])
    pages = tmp_path / "html"
    pages.mkdir()
    (pages / "05_in_distribution.html").write_text('<div id="tab-8"></div><div id="fig-6-species"></div>')
    found = claims_page.problems(tmp_path, pages)
    assert "the index names 03_benchmark for Table 2, and no such page was built" in found
    assert "the index names 05_in_distribution#tab-8-margin for Table 8, and the page has no such place" in found
    assert "the claims name 05_nowhere, and no such page was built" in found
    assert not any("#tab-8 " in problem for problem in found)
    (tmp_path / "claims.json").unlink()
    assert any("claims.json cannot be read" in problem for problem in claims_page.problems(tmp_path, pages))


def test_a_forged_verdict_is_a_problem_of_the_book(tmp_path):
    write(tmp_path, "05_in_distribution", "table08")
    claims_page.write_pages(tmp_path, [claim("one")])
    path = tmp_path / "claims.json"
    path.write_text(path.read_text().replace(f'"verdict": "{SEEN}"', f'"verdict": "{HOLDS}"'))
    assert "claim 'one' reads 'holds' on simulated evidence" in claims_page.problems(tmp_path, tmp_path)


def test_a_book_of_these_pages_builds_with_warnings_as_errors(tmp_path, monkeypatch):
    executed = tmp_path / "book" / "executed"
    shutil.copyfile(workspace.project() / "_config.yml", tmp_path / "_config.yml")
    (tmp_path / "book").mkdir()
    shutil.copytree(workspace.project() / "book" / "assets", tmp_path / "book" / "assets")
    shutil.copyfile(workspace.project() / "book" / "references.bib", tmp_path / "book" / "references.bib")
    for name, text in (("start", "# Start\n\n"), ("refs", "# References\n\n```{bibliography}\n```\n\n")):
        (tmp_path / "book" / f"{name}.md").write_text(text + "word " * 60)
    pages = ["book/executed/05_in_distribution", "book/executed/claims", "book/executed/results_index", "book/refs"]
    files = "".join(f"      - file: {page}\n" for page in pages)
    toc = f"format: jb-book\nroot: book/start\nparts:\n  - caption: x\n    chapters:\n{files}"
    (tmp_path / "_toc.yml").write_text(toc)
    anchors = ("tab-8", "tab-8-margin", "fig-6-species", "fig-6-right")
    tables = "".join(f"\n\n```{{list-table}} T\n:name: {name}\n\n* - a\n  - b\n```" for name in anchors)
    copy_of(executed, "05_in_distribution", tables)
    write(executed, "05_in_distribution", "table08")
    index = claims_page.results_index()
    here = [" ".join(word for word in where.split() if word.startswith("05_in_dist")) for where in index["where"]]
    monkeypatch.setattr(claims_page, "results_index", lambda: index.assign(where=here))
    monkeypatch.setattr(claims_page, "all_claims", lambda: (claim("one", page="05_in_distribution"), claim("two")))
    html = book.build(tmp_path) / "book" / "executed"
    assert "words of one" in (html / "claims.html").read_text()
    assert 'href="05_in_distribution.html#tab-8"' in (html / "results_index.html").read_text()
    page = html / "05_in_distribution.html"
    page.write_text(page.read_text().replace('id="tab-8"', 'id="gone"'))
    assert any("05_in_distribution#tab-8 for Table 8" in problem for problem in book.check(tmp_path))
