"""The crawler finds each fault that it exists for, each on a small page of its own, and nothing on a good page."""

import shutil

import crawler
import matplotlib.pyplot as plt
import pytest

from phoebi_lib import sliders, workspace

FAULTS = {
    "console": ('<script>console.error("bad")</script>', "console: "),
    "exception": ("<script>nowhere()</script>", "ReferenceError"),
    "remote": ('<script src="https://example.org/x.js"></script>', "remote request: https://example.org/x.js"),
    "later": ('<script>fetch("https://example.org/late").catch(() => 0)</script>', "remote request: https://example.org/l"),
    "gone": ('<link rel="stylesheet" href="gone.css">', "request failed: file:"),
    "image": ('<img src="gone.png" alt="a picture that is gone">', "image not loaded"),
    "alt": ('<img src="dot.png" alt="dot">', "image without alternative text"),
    "table": ('<table><tr><td style="min-width: 3000px">wide</td></tr></table>', "table ends at"),
    "table-column": (
        '<div style="width: 200px; padding-right: 500px"><table style="margin-left: 300px; width: 900px">'
        "<tr><td>wide</td></tr></table></div>",
        "table overflows the text",
    ),
    "clipped": ('<div style="overflow: hidden"><pre>' + "x" * 900 + "</pre></div>", "ends at"),
    "page": ('<div style="margin-left: 2000px">far</div>', "px wide in a window of 390 px"),
    "link": ('<a href="nowhere.html">a page</a>', "broken link file:"),
    "place": ('<a href="good.html#gone">a place</a>', "good.html#gone"),
    "contrast": ('<p style="color: #ccc; background: #fff">Hard to read.</p>', "axe color-contrast"),
    "unseen": ('<p style="color: #fff; background: #fff">Not to be read.</p>', "text of the colour of its ground: p"),
    "label": ('<input type="text">', "axe label"),
    "slider": ('<figure><input type="range" id="dead" aria-label="dead"><img src="dot.png" alt="a black dot"></figure>',
               "the slider dead does not change"),
}  # fmt: skip
GOOD = """<p id="here">Some text <a href="#here">and</a> <a href="#">a</a> <a href="https://example.org/">link</a>.</p>
<img src="dot.png" alt="a black dot" loading="lazy">
<div style="overflow-x: auto" tabindex="0"><table><tr><td style="min-width: 2000px">wide</td></tr></table></div>"""


def page(body, head=""):
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>{head}'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>'
        f"<body><main><h1>A page</h1><article>{body}</article></main></body></html>"
    )


def draw(value):
    figure, axis = plt.subplots(figsize=(2, 1))
    axis.set_title(f"cut at {value}")
    return figure


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages with spaces")
    plt.imsave(folder / "dot.png", [[0.0, 1.0]])
    for name, (body, _) in FAULTS.items():
        (folder / f"{name}.html").write_text(page(body))
    (folder / "good.html").write_text(page(GOOD))
    for name in ("phoebi.js", "phoebi.css"):
        shutil.copyfile(workspace.project() / "book" / "assets" / name, folder / name)
    slider = sliders.slider(draw, [1, 2, 3, 4], name="cut", label="threshold", caption="A cut.")
    head = '<link rel="stylesheet" href="phoebi.css"><script src="phoebi.js" defer></script>'
    (folder / "live.html").write_text(page(slider._repr_html_(), head))
    return folder


@pytest.fixture(scope="module")
def findings(driver, axe, folder):
    return crawler.crawl(driver, sorted(folder.glob("*.html")), axe)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_on_its_page(findings, fault):
    complaint = FAULTS[fault][1]
    assert any(complaint in line for line in findings if line.startswith(f"{fault}.html")), "\n".join(findings)


@pytest.mark.parametrize("name", ["good", "live"])
def test_good_pages_are_left_alone(findings, name):
    assert [line for line in findings if line.startswith(f"{name}.html")] == []


def test_a_fault_is_reported_in_the_view_that_shows_it(driver, axe, folder):
    narrow = page('<div style="width: 600px">only too wide for a phone</div>')
    (folder / "narrow.html").write_text(narrow)
    found = crawler.crawl(driver, [folder / "narrow.html"], axe)
    assert found and all("phone" in line for line in found)


def test_accepted_findings_are_named_by_rule_and_element(driver, axe, folder, monkeypatch):
    monkeypatch.setattr(crawler, "ACCEPTED", (("label", "input", "not ours"),))
    assert crawler.crawl(driver, [folder / "label.html"], axe) == []
    assert crawler.crawl(driver, [folder / "contrast.html"], axe) != []


def test_without_scripts_a_slider_is_a_picture(driver, folder):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get((folder / "live.html").as_uri())
        assert not driver.find_element("css selector", "input").is_displayed()
        (image,) = driver.find_elements("css selector", "img")
        assert image.is_displayed() and image.get_attribute("alt") == "cut at 3"
        assert driver.find_element("css selector", ".phoebi-slider-static").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
