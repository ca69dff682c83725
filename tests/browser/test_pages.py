"""Every page of the built book in a browser, as from a USB stick: file://, no network, two widths, both schemes."""

import chromium
import crawler
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from phoebi_lib import book, workspace


@pytest.fixture(scope="module")
def site():
    """The folder of the test's book, which tests/site builds."""
    folder = workspace.root() / "site"
    if not (folder / "_build" / "html" / "book" / "intro.html").is_file():
        pytest.fail(f"no built book at {folder}: run make site first")
    return folder


@pytest.fixture(scope="module")
def html(site):
    return site / "_build" / "html"


def test_every_page_is_in_order(driver, axe, html):
    pages = sorted(path for path in html.rglob("*.html") if "_static" not in path.relative_to(html).parts)
    findings = crawler.crawl(driver, pages, axe)
    assert not findings, f"{len(findings)} findings on {len(pages)} pages:\n" + "\n".join(findings)


def test_the_pages_with_sliders_have_them(html, site):
    """The three pages whose text promises a slider, so that a lost one is not a page without faults."""
    for name, slider in (("04_decoders", "temperature"), ("05_held_out", "threshold"), ("05_in_distribution", "tiles")):
        if f"{book.EXECUTED}/{name}" in book.toc_pages(site):
            text = (html / book.EXECUTED / f"{name}.html").read_text()
            assert f'id="slider-{slider}"' in text, f"{name} has lost its slider"
            assert text.count("phoebi-slider-control") == 1, f"{name}: one slider a page"


def test_search_finds_a_page_without_a_server(driver, html):
    chromium.emulate(driver, 1280, 900, "light")
    driver.get((html / "search.html").as_uri() + "?q=glossary")
    found = WebDriverWait(driver, 20).until(lambda d: d.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    assert any("glossary" in link.get_attribute("href") for link in found)
    severe = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == [], "searching writes errors to the console"


def test_the_colour_scheme_of_the_reader_is_followed(driver, html):
    """Otherwise the second view would only repeat the first."""
    backgrounds = set()
    for _, width, height, scheme in crawler.VIEWS:
        chromium.emulate(driver, width, height, scheme)
        driver.get((html / "book" / "intro.html").as_uri())
        backgrounds.add(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
