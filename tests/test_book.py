"""The line above every page tells the truth about the notebooks below it."""

import nbformat
import pytest

from phoebi_lib import book
from phoebi_lib.provenance import EXACT, SIMULATED, STAND_IN, evidence_of


def site(folder, records):
    chapters = "".join(f"      - file: p{i}\n" for i in range(len(records)))
    (folder / "_toc.yml").write_text(f"root: intro\nparts:\n  - chapters:\n{chapters}")
    for i, record in enumerate(records):
        notebook = nbformat.v4.new_notebook(metadata={"phoebi": record} if record else {})
        nbformat.write(notebook, folder / f"p{i}.ipynb")
    return folder


def record(evidence, profile="smoke"):
    return {"evidence": evidence, "parameters": {"profile": profile}}


def test_pages_from_labels_alone_do_not_count(tmp_path):
    assert book.announcement(site(tmp_path, [record("exact"), record("simulated")])) == SIMULATED
    assert book.announcement(site(tmp_path, [record("exact")])) == EXACT


def test_simulated_images_under_the_paper_profile_are_called_simulated(tmp_path):
    assert book.announcement(site(tmp_path, [record("simulated", "paper")])) == SIMULATED
    assert book.announcement(site(tmp_path, [record("stand-in", "paper")])) == STAND_IN


def test_pages_of_other_benchmarks_speak_for_themselves(tmp_path):
    sibling = {"evidence": "simulated", "parameters": {"profile": "paper", "data": ""}}
    assert book.announcement(site(tmp_path, [record("stand-in", "paper"), sibling])) == STAND_IN
    with pytest.raises(book.BookError, match="share one profile"):
        book.announcement(site(tmp_path, [record("simulated", "smoke"), sibling]))


@pytest.mark.parametrize(
    "records",
    [
        [record("simulated"), record("paper")],
        [record("simulated"), record("simulated", "default")],
        [record("simulated"), None],
        [record("guess")],
    ],
)
def test_one_line_that_cannot_be_true_of_all_is_refused(tmp_path, records):
    with pytest.raises(book.BookError, match="share one profile"):
        book.announcement(site(tmp_path, records))


@pytest.mark.parametrize("toc", ["format: jb-book\n", "- a\n", "root: intro\nparts:\n  - caption: x\n"])
def test_a_malformed_table_of_contents_is_named(tmp_path, toc):
    (tmp_path / "_toc.yml").write_text(toc)
    with pytest.raises(book.BookError, match="_toc.yml"):
        book.toc_pages(tmp_path)


def test_only_the_papers_encoders_give_evidence_on_the_paper():
    assert evidence_of("phoebi6") == "paper"
    assert evidence_of("phoebi6", "paper", "efficientnet_lite0") == "user"
    assert evidence_of("sim:smoke", "paper", "efficientnet_lite0") == "simulated"
    assert evidence_of("sim:smoke", "rehearsal", "vit_small_patch14_dinov2.lvd142m") == "stand-in"


def test_stand_in_weights_are_told_by_their_file(tmp_path, monkeypatch):
    from phoebi_lib.encoders import write_stand_in

    name = "vit_small_patch14_dinov2.lvd142m"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert evidence_of("phoebi6", "paper", name) == "paper"
    write_stand_in(name, tmp_path)
    assert evidence_of("phoebi6", "paper", name) == "stand-in"


def test_a_book_without_pages_of_verdicts_needs_no_tables(tmp_path):
    folder = site(tmp_path, [record("simulated")])
    assert not any("claims" in problem for problem in book.check(folder))


def test_verdicts_are_written_before_the_book_is_built(tmp_path, monkeypatch):
    toc = "root: intro\nparts:\n  - chapters:\n      - file: book/executed/claims\n      - file: book/executed/gone\n"
    (tmp_path / "_toc.yml").write_text(toc)
    with pytest.raises(book.BookError, match="no file for intro, book/executed/claims, book/executed/gone"):
        book.build(tmp_path)
    (tmp_path / "book" / "executed" / "tables").mkdir(parents=True)
    with pytest.raises(book.BookError, match="no file for intro, book/executed/gone"):
        book.build(tmp_path)
    assert (tmp_path / "book" / "executed" / "claims.json").is_file()
