"""The smoke notebooks as a book: built with warnings as errors in a folder of its own, every page checked."""

import re
import shutil

import nbformat
import pytest

from phoebi_lib import book, freshness, runner, workspace
from phoebi_lib.provenance import SIMULATED


@pytest.fixture(scope="module")
def site():
    """The folder of the test's book, next to the executed smoke notebooks."""
    folder = workspace.root() / "site"
    project = workspace.project()
    for name in ("_config.yml", "_toc.yml"):
        shutil.copyfile(project / name, folder / name)
    shutil.copytree(project / "book", folder / "book", dirs_exist_ok=True, ignore=shutil.ignore_patterns("executed"))
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return book.build(site)


def executed(site):
    return sorted((site / "book" / "executed").glob("*.ipynb"))


def test_every_notebook_has_a_fresh_copy(site):
    jobs = runner.plan([], "smoke", [], site / "book" / "executed")
    for job in jobs:
        now = freshness.inputs(job.source, job.parameters, job.dataset)
        assert freshness.stale(job.executed, now) == [], f"{job.executed.name} is not what its inputs would give"


def test_no_cell_is_empty_or_failed(site):
    for path in executed(site):
        for index, cell in enumerate(nbformat.read(path, as_version=4).cells):
            assert cell.source.strip(), f"{path.name}: cell {index} is empty"
            kinds = [output.output_type for output in cell.get("outputs", [])]
            assert "error" not in kinds, f"{path.name}: cell {index}"


def test_every_copy_says_what_its_numbers_rest_on(site):
    for path in executed(site):
        cells = nbformat.read(path, as_version=4).cells
        text = "".join(str(o.get("data", {}).get("text/plain", "")) for c in cells for o in c.get("outputs", []))
        assert "evidence" in text, f"{path.name} has lost its banner"
        if "dataset" in nbformat.read(path, as_version=4).metadata["phoebi"]["parameters"]:
            assert SIMULATED in text, f"{path.name} does not say that its images are simulated"


def test_the_book_builds_and_every_page_passes(site, pages):
    assert book.check(site) == []
    assert len(book.toc_pages(site)) >= 11


def test_the_banner_stands_on_every_page(site, pages):
    for page in book.toc_pages(site):
        text = re.sub(r"\s+", " ", (pages / f"{page}.html").read_text())
        assert SIMULATED in text, f"{page} does not say that its images are simulated"


def test_nothing_is_fetched_from_elsewhere(site, pages):
    for page in book.toc_pages(site):
        text = (pages / f"{page}.html").read_text()
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?:https?:)?//[^\"]+\"", text), page


def test_the_checks_can_fail(site, pages):
    """A page that is broken in any of these ways is reported; the page itself is put back."""
    path = pages / "book" / "glossary.html"
    good = path.read_text()
    faults = {
        "fetches": '<script src="https://example.org/x.js"></script></article>',
        "without alternative text": '<img src="../_static/file.png"></article>',
        "broken link": '<a href="nowhere.html">x</a></article>',
        "contains": '<div class="system-message"></div></article>',
    }
    try:
        for complaint, fault in faults.items():
            path.write_text(good.replace("</article>", fault))
            assert any(complaint in problem for problem in book.check(site)), complaint
        path.unlink()
        assert any("no page was built" in problem for problem in book.check(site))
    finally:
        path.write_text(good)
    assert book.check(site) == []
