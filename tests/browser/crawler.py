"""Open every page of a built site in one browser, at two widths and in both colour schemes, and say what is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import chromium
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

#: name, width and height in CSS pixels, colour scheme
VIEWS = (("desktop, light", 1280, 900, "light"), ("phone, dark", 390, 844, "dark"))
#: Findings of axe-core in parts that are not ours: rule, pattern of the element, reason.
ACCEPTED = (
    ("label-content-name-mismatch", r"search-button|theme-switch-button|^\.nav-link$",
     "buttons of the theme: named by what they do, beside a key or an icon that counts as their text"),
    ("aria-required-children", r"^\.citation-list$",
     "bibliographies of docutils: its entries have roles of digital publishing, which are no list items"),
)  # fmt: skip
_INSPECT = (Path(__file__).parent / "inspect.js").read_text()


def crawl(driver, pages: Sequence[Path], axe: str, views=VIEWS) -> list[str]:
    """Return the findings of all pages, one line each: page, views, what is wrong.

    ``pages`` are HTML files, opened as file://. Links may lead to them, to other files, and to other sites, which are
    not visited.
    """
    findings: dict[tuple[str, str], list[str]] = {}
    links: dict[str, list[str]] = {}
    places: dict[str, set[str]] = {}
    driver.set_script_timeout(120)
    chromium.requests(driver)
    for view, width, height, scheme in views:
        chromium.emulate(driver, width, height, scheme)
        for page in pages:
            problems, links[page.as_uri()], places[page.as_uri()] = _visit(driver, page, width, axe)
            for problem in dict.fromkeys(problems):
                findings.setdefault((page.name, problem), []).append(view)
    seen = [f"{name} ({'; '.join(where)}): {problem}" for (name, problem), where in findings.items()]
    return sorted(seen + _broken(links, places))


def _visit(driver, page: Path, width: int, axe: str) -> tuple[list[str], list[str], set[str]]:
    driver.get(page.as_uri())
    driver.execute_script(axe)
    seen = driver.execute_async_script(_INSPECT, width)
    problems = [text for found in seen["problems"] if (text := _text(found))]
    problems += [f"the slider {slider} {fault}" for slider, fault in _sliders(driver)]
    problems += [f"console: {entry['message']}" for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    asked, failed = chromium.requests(driver)
    problems += [f"request failed: {line}" for line in failed]
    problems += [f"remote request: {url}" for url in asked if urlsplit(url).scheme not in ("file", "data", "blob")]
    return problems, seen["links"], set(seen["places"])


def _text(found: str | dict) -> str:
    """Return a finding in words, "" for one that is accepted."""
    if isinstance(found, str):
        return found
    for rule, pattern, _ in ACCEPTED:
        if rule == found["rule"] and re.search(pattern, found["target"]):
            return ""
    return f"axe {found['rule']}: {found['target']}: {' '.join(found['why'].split())}"


def _sliders(driver) -> list[tuple[str, str]]:
    """Move each range input by keys; return those that do not answer, with what is missing."""
    faults = []
    for slider in driver.find_elements(By.CSS_SELECTOR, "article input[type=range]"):
        name = slider.get_attribute("id")
        if not slider.is_displayed():
            faults.append((name, "is hidden although scripts run"))
            continue
        seen = {}
        for key in (Keys.HOME, Keys.ARROW_RIGHT, Keys.END):
            slider.send_keys(key)
            image = driver.execute_script("return arguments[0].closest('figure').querySelector('img')", slider)
            seen[key] = (image.get_attribute("src"), image.get_attribute("alt"), slider.get_attribute("aria-valuetext"))
        if len(set(seen.values())) < len(seen):
            faults.append((name, "does not change picture and text with the arrow keys"))
    return faults


def _broken(links: dict[str, list[str]], places: dict[str, set[str]]) -> list[str]:
    """Return the links that lead nowhere: to no file, or to a place that its page does not have."""
    findings = []
    for page, targets in links.items():
        for target in sorted(set(targets)):
            address, place = urldefrag(target)
            parts = urlsplit(address)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            path = Path(unquote(parts.path))
            known = places.get(path.as_uri()) if parts.scheme == "file" else None
            # "#" alone is the top of any page
            if parts.scheme == "file" and path.is_file() and (not place or known is None or unquote(place) in known):
                continue
            findings.append(f"{Path(urlsplit(page).path).name}: broken link {target}")
    return findings
