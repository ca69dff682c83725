"""Build the Jupyter Book from executed notebooks, strictly and for reading offline, and check every page of it."""

from __future__ import annotations

import html
import importlib.resources
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import yaml

from phoebi_lib import claims_page, landing, worked_example, workspace
from phoebi_lib.parameters import FOLDERS
from phoebi_lib.provenance import STATEMENTS

#: Where the executed copies lie below the folder of a book.
EXECUTED = "book/executed"
_INCLUDE = re.compile(r"^```\{include\} (\S+)", re.MULTILINE)
_ERROR_MARKS = ("Traceback (most recent call last)", "system-message")


class BookError(RuntimeError):
    """The book did not build, or a page of it is not fit to be read."""


def toc_pages(folder: Path) -> list[str]:
    """Return the pages that ``folder/_toc.yml`` lists, without suffix, the root first."""
    path = folder / "_toc.yml"
    toc = yaml.safe_load(path.read_text())
    try:
        chapters = [chapter["file"] for part in toc.get("parts", []) for chapter in part["chapters"]]
        return [toc["root"], *chapters]
    except (KeyError, TypeError, AttributeError) as error:
        raise BookError(f"{path} is not a table of contents: it needs root, and parts with chapters") from error


def announcement(folder: Path) -> str:
    """Return the line shown above every page: what kind of evidence the executed notebooks rest on.

    Pages computed from labels alone do not count, nor do those of other benchmarks, which are told by their parameters
    for folders and say themselves what their numbers rest on. Raises BookError where the others rest on different kinds
    of evidence, or any were executed under different profiles: one line could not be true of all.
    """
    profiles, evidence = set(), set()
    for page in toc_pages(folder):
        path = folder / f"{page}.ipynb"
        if path.is_file():
            record = nbformat.read(path, as_version=4).metadata.get("phoebi", {})
            profiles.add(record.get("parameters", {}).get("profile", "unknown"))
            if not set(FOLDERS) & set(record.get("parameters", {})):
                evidence.add(record.get("evidence", "unknown"))
    kinds = evidence - {"exact"} or {"exact"}
    if len(profiles) != 1 or len(kinds) != 1 or not kinds <= STATEMENTS.keys():
        raise BookError(
            f"the notebooks of a book must share one profile and one kind of evidence; found profiles "
            f"{sorted(profiles) or 'none'}, evidence {sorted(kinds)}: run them again (phoebi run --out)"
        )
    return STATEMENTS[kinds.pop()]


def _vendor_mathjax(folder: Path) -> None:
    """Put MathJax and its licence among the book's static files: pages then need no network."""
    source = importlib.resources.files("mathjax") / "static" / "mathjax"
    target = folder / "book" / "assets" / "vendor" / "mathjax"
    target.mkdir(parents=True, exist_ok=True)
    for name, path in (("tex-svg.js", source / "es5" / "tex-svg.js"), ("LICENSE", source / "LICENSE")):
        if not (target / name).is_file():
            with importlib.resources.as_file(path) as file, workspace.atomic_path(target / name) as temporary:
                shutil.copyfile(file, temporary)


def _lists_claims(folder: Path) -> bool:
    """Tell whether the table of contents lists a page that is made from the tables of the executed copies."""
    made = {f"{EXECUTED}/{Path(name).stem}" for name in (claims_page.CLAIMS_PAGE, claims_page.INDEX_PAGE)}
    return not made.isdisjoint(toc_pages(folder))


def _included(folder: Path) -> list[str]:
    """Return the files that the pages of the table of contents include, relative to ``folder``."""
    found = []
    for page in map(Path, toc_pages(folder)):
        path = folder / page.parent / f"{page.name}.md"
        if path.is_file():
            found += [str(page.parent / name) for name in _INCLUDE.findall(path.read_text())]
    return found


def build(folder: Path) -> Path:
    """Build the book in ``folder`` with warnings as errors; return the folder of its HTML.

    What is made from the tables of the executed copies is written first: the pages of verdicts, the index of results,
    and what hand-written pages include: the figure and the verdicts of the landing page, and the worked example.

    Raises BookError when a page of the table of contents, or a file that a page includes, is not there, when the build
    warns, or when a page fails :func:`check`.
    """
    pages, included = toc_pages(folder), _included(folder)
    if (folder / EXECUTED / "tables").is_dir():
        if _lists_claims(folder):
            claims_page.write_pages(folder / EXECUTED)
        if f"{EXECUTED}/{landing.VERDICTS}" in included:
            landing.write(folder / EXECUTED)
        if f"{EXECUTED}/{worked_example.FRAGMENT}" in included:
            worked_example.write(folder / EXECUTED)
    missing = [page for page in pages if not any((folder / f"{page}{end}").is_file() for end in (".md", ".ipynb"))]
    missing += [name for name in included if not (folder / name).is_file()]
    if missing:
        raise BookError(f"no file for {', '.join(missing)} under {folder}; first run the notebooks (phoebi run --out)")
    _vendor_mathjax(folder)
    config = yaml.safe_load((folder / "_config.yml").read_text())
    config["sphinx"]["config"]["html_theme_options"]["announcement"] = html.escape(announcement(folder))
    # jupyter-book reads one configuration file; the one with the announcement is a build product
    with workspace.atomic_path(folder / "_build" / "_config.yml") as temporary:
        temporary.write_text(yaml.safe_dump(config))
    start = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", start, "build", ".", "-W", "--keep-going", "-n",
               "--config", "_build/_config.yml", "--toc", "_toc.yml"]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise BookError(f"jupyter-book failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    problems = check(folder)
    if problems:
        raise BookError("the book was built, but:\n" + "\n".join(problems))
    return folder / "_build" / "html"


def check(folder: Path) -> list[str]:
    """Return what is wrong with the built pages; an empty list means fit to be read.

    Each page of the table of contents must exist with text in it, be free of error outputs and of addresses that a
    browser would fetch from elsewhere, have an alternative text and a file for each image, and resolve its links. What
    the index of results names must exist, and no verdict may say more than its evidence allows.
    """
    problems = []
    pages = folder / "_build" / "html"
    for page in toc_pages(folder):
        path = pages / f"{page}.html"
        if not path.is_file():
            problems.append(f"{page}: no page was built")
            continue
        problems += [f"{page}: {problem}" for problem in _check_page(path, pages)]
        executed = folder / f"{page}.ipynb"
        if executed.is_file():
            problems += [f"{page}: {problem}" for problem in _check_outputs(executed)]
    if _lists_claims(folder):
        problems += claims_page.problems(folder / EXECUTED, pages / EXECUTED)
    return problems


def _check_page(path: Path, pages: Path) -> list[str]:
    text = path.read_text()
    problems = []
    article = re.search(r"<article.*?</article>", text, re.DOTALL)
    words = re.sub(r"<[^>]+>", " ", article.group()).split() if article else []
    if len(words) < 50:
        problems.append(f"only {len(words)} words")
    problems += [f"contains {mark!r}" for mark in _ERROR_MARKS if mark in text]
    fetched = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"([^\"]+)\"", text)
    fetched += re.findall(r"<link[^>]*rel=\"(?:stylesheet|icon|preload)\"[^>]*href=\"([^\"]+)\"", text)
    problems += [f"fetches {address}" for address in fetched if re.match(r"(?:https?:)?//", address)]
    for image in re.findall(r"<img[^>]*>", article.group() if article else ""):
        if not re.search(r"alt=\"[^\"]{8,}\"", image):
            problems.append(f"image without alternative text: {image[:120]}")
    links = re.findall(r"href=\"([^\"#?]+)", text) + re.findall(r"src=\"([^\"#?]+)", text)
    for link in sorted({html.unescape(link) for link in links}):
        if re.match(r"[a-z]+:|//", link):
            continue
        if not (path.parent / link).resolve().exists():
            problems.append(f"broken link {link}")
    return problems


def _check_outputs(executed: Path) -> list[str]:
    problems = []
    for index, cell in enumerate(nbformat.read(executed, as_version=4).cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                problems.append(f"cell {index} holds the error {output.ename}")
            if output.get("name") == "stderr":
                problems.append(f"cell {index} wrote to stderr: {output.text[:80]!r}")
    return problems
