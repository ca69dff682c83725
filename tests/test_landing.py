"""The landing page: figure, verdicts and worked example, from made-up tables; the book that includes them."""

import re
import shutil

import nbformat
import pandas as pd
import pytest

from phoebi_lib import book, claims_page, landing, landing_figure, report, worked_example, workspace
from phoebi_lib.landing_figure import ANCHORS, CONSTANT, FITTED, UNFITTED
from phoebi_lib.paper import printed
from phoebi_lib.paper.claims import all_claims, load_results
from phoebi_lib.paper.claims.engine import FAILS, HOLDS, Verdict
from phoebi_lib.studies.decoder_tables import TABLE_6

RUN = {"profile": "smoke", "dataset": "sim:smoke", "encoder": "efficientnet_lite0", "seed": 1337}
CONSTANT_ROW = TABLE_6["AllPresent"][0]
WHOLE, TILES = "EfficientNet-Lite0, fine-tuned (not in the paper)", "EfficientNet-Lite0 (PHOEBI) (not in the paper)"
F1 = {CONSTANT_ROW: (0.571, 0.653), WHOLE: (0.97, 0.58), TILES: (0.84, 0.55)}
DECODERS = {TABLE_6[name][0]: (0.61, end) for name, end in
            (("SimplexUnmix", 0.66), ("ProtoMatch", 0.69), ("ChannelGroup", 0.72))}  # fmt: skip


def put(folder, page, name, table, cells, evidence="simulated", **more):
    counts = {"n_images": 90, "n_frames": 30, "n_combinations": 9, "partition": "lco-1337", "evidence": evidence}
    lines = [{**counts, "row": row, "column": column, **numbers} for (row, column), numbers in cells.items()]
    path = folder / "tables" / page / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    report.table(lines, table=table, **RUN, **more).to_csv(path, index=False)


def both_ends(rows, start, end):
    return {(row, column): {"value": pair[column == end]} for row, pair in rows.items() for column in (start, end)}


def supervised(folder, evidence="simulated"):
    put(folder, "05_collapse", "table03", "3", both_ends(F1, "in_dist_f1", "heldout_f1"), evidence)


def decoders(folder, evidence="simulated", margin=(0.037, 0.01, 0.06)):
    cells = both_ends(DECODERS | {CONSTANT_ROW: F1[CONSTANT_ROW]}, "in_dist_val_f1", "heldout_f1")
    cells[worked_example.ROW, "heldout_f1_std"] = {"value": 0.0125}
    cells[worked_example.ROW, "heldout_f1_margin"] = dict(zip(("value", "low", "high"), margin, strict=True))
    cells["AllPresent of another table", "heldout_f1"] = {"value": 0.1}
    put(folder, "05_held_out", "table06", "6", cells, evidence)


def open_set(folder, evidence="simulated"):
    cells = {(row, "auroc"): {"value": 0.61 + i / 100} for i, row in enumerate(printed(20)["score"])}
    put(folder, "D_open_set", "table20", "20", cells, evidence)


@pytest.fixture
def executed(tmp_path):
    """A folder of executed copies with all three tables, of simulated images."""
    folder = tmp_path / "book" / "executed"
    for table in (supervised, decoders, open_set):
        table(folder)
    return folder


def ours(folder):
    return landing.our_panel(load_results(folder / "tables")[0])


def ends(panel):
    return {line.name: (line.group, line.start, line.end) for line in panel.slopes.itertuples()}


def test_the_papers_panel_is_what_the_paper_prints():
    panel = landing.printed_panel()
    counted = panel.slopes["group"].value_counts().to_dict()
    assert counted == {FITTED: 9, ANCHORS: 3, CONSTANT: 1, UNFITTED: 1}
    assert ends(panel)["Florence-2 DaViT-B"] == (UNFITTED, 0.571, 0.654), "it never learned its own mixtures"
    assert ends(panel)["ResNet-50"] == (FITTED, 1.0, 0.509)
    assert ends(panel)["ProtoMatch (proto match), closed-form"] == (ANCHORS, 0.590, 0.683)
    assert panel.scores["auroc"].tolist() == printed(20)["auroc"].tolist()
    text = landing.seen(panel)
    assert "fine-tuned networks (9) start at 0.99 to 1.00 and end at 0.44 to 0.61, 9 below the constant" in text
    assert "nearest tiles 0.70; anchors alone 0.44" in text


def test_our_panel_holds_what_was_computed(executed):
    panel, kind, left_out = ours(executed)
    assert (kind, left_out, panel.ground) == ("simulated", 0, "simulated images: says nothing about bacteria")
    found = ends(panel)
    assert found[CONSTANT_ROW] == (CONSTANT, *F1[CONSTANT_ROW])
    assert found["EfficientNet-Lite0, fine-tuned"] == (FITTED, 0.97, 0.58)
    assert found["EfficientNet-Lite0 (PHOEBI)"] == (UNFITTED, 0.84, 0.55)
    assert {name: line[1:] for name, line in found.items() if line[0] == ANCHORS} == DECODERS
    assert len(found) == 6 and len(panel.scores) == 5


def test_the_rows_of_our_networks_are_those_of_the_page():
    from phoebi_lib.encoder_records import get_record
    from phoebi_lib.studies import collapse

    names = {collapse.row_name(get_record(collapse.OURS), kind) for kind in ("whole", "pipeline")}
    assert all(landing.plain(name).endswith(landing._TRAINED_HERE) for name in names)


@pytest.mark.parametrize(("evidence", "word"), landing.GROUNDS.items())
def test_every_kind_of_evidence_is_named_in_the_panel_the_caption_and_the_alternative_text(tmp_path, evidence, word):
    decoders(tmp_path, evidence)
    panel, kind, left_out = ours(tmp_path)
    text = landing.figure_fragment(landing.printed_panel(), panel, kind, left_out)
    alternative = re.search(r"!\[(.*?)\]\(executed/landing_ours.svg\)", text)[1]
    assert kind == evidence and panel.ground == word and word in alternative
    caption = text.split("\n\n")[1]
    assert "This book: computed " in caption and ("say nothing about bacteria" in caption) == (evidence == "simulated")


def test_kinds_of_evidence_are_never_mixed_in_a_panel(tmp_path):
    decoders(tmp_path, "paper")
    supervised(tmp_path, "user")
    panel, kind, left_out = ours(tmp_path)
    assert kind == "paper" and set(panel.slopes["group"]) == {CONSTANT, ANCHORS} and left_out == 6
    text = landing.figure_fragment(landing.printed_panel(), panel, kind, left_out)
    assert "6 numbers that rest on other evidence are left out." in text


def test_what_is_not_computed_is_said(tmp_path):
    (tmp_path / "tables").mkdir()
    panel, kind, left_out = ours(tmp_path)
    assert panel.slopes.empty and panel.scores.empty and (kind, left_out) == ("", 0)
    assert panel.ground == "not computed here" and landing.seen(panel).count("not computed here") == 3
    written = landing.write(tmp_path)
    assert all(path.is_file() for path in written)
    assert "This book: not computed here." in (tmp_path / landing.FIGURE).read_text()


def test_half_of_a_panel_is_drawn_alone(tmp_path):
    open_set(tmp_path)
    panel, *_ = ours(tmp_path)
    assert panel.slopes.empty and len(panel.scores) == 5
    assert "to new mixtures: not computed here" in landing.seen(panel)
    landing_figure.save(panel, tmp_path / "a.svg", landing_figure.limits([panel]))
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_without_the_decoders_the_constant_is_that_of_the_networks(tmp_path):
    supervised(tmp_path)
    assert ends(ours(tmp_path)[0])[CONSTANT_ROW] == (CONSTANT, *F1[CONSTANT_ROW])


def test_a_network_with_one_end_is_left_out(tmp_path):
    put(tmp_path, "05_collapse", "table03", "3", {(WHOLE, "heldout_f1"): {"value": 0.5}})
    assert ours(tmp_path)[0].slopes.empty


def test_two_lines_for_one_number_are_refused(tmp_path):
    supervised(tmp_path)
    put(tmp_path, "05_collapse", "again", "3", {(WHOLE, "heldout_f1"): {"value": 0.9}})
    with pytest.raises(ValueError, match="two lines of table '3' for row 'EfficientNet-Lite0, fine-tuned"):
        ours(tmp_path)


def test_the_same_tables_give_the_same_files(executed):
    first = {path.name: path.read_bytes() for path in landing.write(executed)}
    assert first == {path.name: path.read_bytes() for path in landing.write(executed)}
    assert set(first) == {landing.PAPER_PICTURE, landing.OUR_PICTURE, landing.FIGURE, landing.VERDICTS}
    assert not [name for name in first if first[name].count(b"<dc:date>")]


def test_labels_do_not_lie_on_each_other_and_stay_in_the_chart():
    heights = {"a": 0.1, "b": 0.2, "c": 0.1}
    for wanted in ({"a": 0.5, "b": 0.5, "c": 0.51}, {"a": 0.0, "b": 0.01, "c": 0.02}, {"a": 1.0, "b": 0.98, "c": 0.99}):
        places = landing_figure.spread(wanted, heights, (0.0, 1.0))
        names = sorted(places, key=places.__getitem__)
        assert names == sorted(wanted, key=wanted.__getitem__)
        for lower, upper in zip(names, names[1:], strict=False):
            assert places[upper] - places[lower] >= (heights[lower] + heights[upper]) / 2 - 1e-12
        assert all(heights[n] / 2 - 1e-12 <= places[n] <= 1 - heights[n] / 2 + 1e-12 for n in names)
    far = {"a": 0.1, "b": 0.5, "c": 0.9}
    assert landing_figure.spread(far, heights, (0.0, 1.0)) == pytest.approx(far)
    assert landing_figure.spread({}, {}, (0.0, 1.0)) == {}


def test_the_headlines_are_claims():
    known = {claim.id for claim in all_claims()}
    assert 6 <= len(landing.HEADLINES) <= 8 and known.issuperset(landing.HEADLINES)


def test_the_verdicts_in_short(executed):
    nbformat.write(nbformat.v4.new_notebook(), executed / "05_held_out.ipynb")
    judged, _ = claims_page.verdicts(executed / "tables")
    text = landing.verdict_fragment(judged, executed)
    tally = claims_page.counts(judged)
    for word in claims_page.MEANINGS:
        assert f"**{tally[word].sum()}**\n\n{word}\n" in text
    assert f"**{len(judged)} claims of the paper" in text and text.count("\n| ") == len(landing.HEADLINES) + 1
    (held,) = [verdict for verdict in judged if verdict.claim.id == "anchors-near-constant"]
    assert f"| {{doc}}`{held.verdict} <executed/05_held_out>` (simulated) |" in text
    assert "executed/05_collapse>" not in text, "a page that was not executed is not linked"
    table = text.split("```{table}")[1]
    assert not re.search(rf"({HOLDS}|{FAILS})[^|]*\(simulated\)", table)


def test_a_simulated_claim_that_holds_is_refused(executed):
    judged, _ = claims_page.verdicts(executed / "tables")
    forged = [Verdict(judged[0].claim, HOLDS, "simulated", {}), *judged[1:]]
    with pytest.raises(ValueError, match="reads 'holds' on simulated"):
        landing.verdict_fragment(forged, executed)


def test_one_line_read_aloud(tmp_path):
    decoders(tmp_path)
    text = worked_example.write(tmp_path).read_text()
    assert re.findall(r"^(\d)\.", text, re.MULTILINE) == list("123456")
    assert "0.690 ± 0.013" in text and "*simulated*" in text and "says nothing about bacteria" in text
    assert "90 answers to images of 30 frames and 9 different combinations" in text
    assert "is +0.037 [+0.010,\u00a0+0.060]. The interval lies above zero" in text
    line = printed(6).set_index("decoder").loc[worked_example.ROW]
    assert f"is {line['heldout_f1']:.3f} ± {line['heldout_f1_std']:.3f}" in text and "*not comparable*" in text


@pytest.mark.parametrize(
    ("margin", "said"),
    [((-0.03, -0.05, -0.01), "lies below zero"), ((0.0, -0.05, 0.05), "holds zero: it cannot be told from")],
)
def test_the_interval_decides_what_the_example_says(tmp_path, margin, said):
    decoders(tmp_path, margin=margin)
    assert said in worked_example.fragment(load_results(tmp_path / "tables")[0])


def test_the_example_prints_a_difference_for_published_images_only(tmp_path):
    decoders(tmp_path, "paper")
    path = tmp_path / "tables" / "05_held_out" / "table06.csv"
    results, _ = load_results(tmp_path / "tables")
    table = report.add_paper(results.loc[results["source"] == "05_held_out", list(report.COLUMNS)], 6)
    table.to_csv(path, index=False)
    text = worked_example.fragment(load_results(tmp_path / "tables")[0])
    assert "the difference is +0.007" in text and "not comparable" not in text


def test_the_example_without_our_line(tmp_path):
    text = worked_example.fragment(pd.DataFrame(columns=[*report.COLUMNS, "source"]))
    assert "not computed here" in text and "0.683 ± 0.016" in text


def test_a_book_writes_what_its_pages_include_and_misses_it_by_name(tmp_path, executed):
    (tmp_path / "book" / "intro.md").write_text("# A\n\n```{include} executed/landing_verdicts.md\n```\n")
    (tmp_path / "book" / "read.md").write_text("# B\n\n```{include} executed/worked_example.md\n```\n")
    toc = "root: book/intro\nparts:\n  - chapters:\n      - file: book/read\n      - file: book/gone\n"
    (tmp_path / "_toc.yml").write_text(toc)
    with pytest.raises(book.BookError, match="no file for book/gone under"):
        book.build(tmp_path)
    made = {path.name for path in executed.iterdir() if path.is_file()}
    pictures = {landing.PAPER_PICTURE, landing.OUR_PICTURE}
    assert made == pictures | {landing.FIGURE, landing.VERDICTS, worked_example.FRAGMENT}
    for name in made:
        (executed / name).unlink()
    (executed / "tables").rename(tmp_path / "elsewhere")
    with pytest.raises(book.BookError, match="executed/landing_verdicts.md, book/executed/worked_example.md under"):
        book.build(tmp_path)


def test_the_pages_build_with_warnings_as_errors(tmp_path, executed, monkeypatch):
    """The landing page, the page on reading and the glossary as they are, with stubs for the pages that they name."""
    monkeypatch.setattr(book, "_lists_claims", lambda folder: False)  # its page is a stub too
    project = workspace.project()
    shutil.copyfile(project / "_config.yml", tmp_path / "_config.yml")
    shutil.copytree(project / "book" / "assets", tmp_path / "book" / "assets")
    for name in ("intro.md", "how_to_read.md", "glossary.md", "bibliography.md", "references.bib"):
        shutil.copyfile(project / "book" / name, tmp_path / "book" / name)
    text = "".join((tmp_path / "book" / f"{name}.md").read_text() for name in ("intro", "how_to_read"))
    copies = {"05_held_out", *re.findall(r"executed/(\w+)[>`]", text)}
    labels = {"tab-6-margin", *re.findall(r"\{numref\}`([\w-]+)`", text)}
    for copy in copies:
        notebook = nbformat.v4.new_notebook(metadata={
            "phoebi": {"evidence": "simulated", "parameters": {"profile": "smoke"}}})  # fmt: skip
        tables = "".join(f"\n\n```{{list-table}} T\n:name: {name}\n\n* - a\n```" for name in sorted(labels))
        body = f"# {copy}\n\n" + "word " * 60 + (tables if copy == "05_held_out" else "")
        notebook.cells.append(nbformat.v4.new_markdown_cell(body))
        nbformat.write(notebook, executed / f"{copy}.ipynb")
    for name in ("labs_instructor", "how_it_is_built"):
        (tmp_path / "book" / f"{name}.md").write_text(f"# {name}\n\n" + "word " * 60)
    names = ["how_to_read", "glossary", "bibliography", "labs_instructor", "how_it_is_built",
             *(f"executed/{copy}" for copy in sorted(copies))]  # fmt: skip
    files = "".join(f"      - file: book/{name}\n" for name in names)
    (tmp_path / "_toc.yml").write_text(f"format: jb-book\nroot: book/intro\nparts:\n  - chapters:\n{files}")
    html = book.build(tmp_path) / "book"
    page = (html / "intro.html").read_text()
    figure = re.search(r"<figure[^>]*phoebi-landing.*?</figure>", page, re.DOTALL)[0]
    assert figure.count("<img") == 2 and figure.count("caption-number") == 1
    assert page.count("simulated images: says nothing about bacteria") == 1, "in the alternative text"
    assert 'id="tab-landing"' in page and 'href="glossary.html#term-anchor"' in page
    assert "0.690 ± 0.013" in (html / "how_to_read.html").read_text()


TERM = re.compile(r"\{term\}`(?:[^`<]+ <)?([^`>]+)>?`")


def pages():
    root = workspace.project()
    return [*sorted((root / "book").glob("*.md")), *sorted((root / "notebooks").glob("*.md")),
            *sorted((root / "notebooks" / "labs").glob("*.md"))]  # fmt: skip


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_terms_are_in_the_glossary_and_linked_once_a_page(path):
    words = (workspace.project() / "book" / "glossary.md").read_text().split(":::{glossary}")[1]
    known = {line for line in words.splitlines() if line and not line.startswith((" ", ":"))}
    linked = TERM.findall(path.read_text())
    assert set(linked) <= known
    assert len(linked) == len(set(linked)), sorted(term for term in linked if linked.count(term) > 1)
