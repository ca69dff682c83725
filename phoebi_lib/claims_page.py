"""The pages that say what holds: the verdict on each claim, and where each table and figure of the paper is computed.

Both are written from the tables of the executed copies, beside the copies, before the book is built.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

import nbformat
import pandas as pd

from phoebi_lib import workspace
from phoebi_lib.paper.claims import all_claims, load_results
from phoebi_lib.paper.claims.engine import (
    BUILT_IN,
    FAILS,
    HOLDS,
    NOT_RESOLVED,
    NOT_SEEN,
    NOT_TESTABLE,
    SECTIONS,
    SEEN,
    VERDICTS,
    Claim,
    Number,
    Verdict,
    judge_all,
    record,
)
from phoebi_lib.rounding import at_digits

CLAIMS_PAGE, CLAIMS_JSON, INDEX_PAGE = "claims.md", "claims.json", "results_index.md"
#: Every verdict, in the order in which the summary counts them, and what it says.
MEANINGS = {
    HOLDS: "the numbers rest on the published labels or images, and they bear the claim out",
    FAILS: "they rest on the same, and they contradict it",
    SEEN: "on simulated images the numbers go the way the claim says; about bacteria this shows nothing",
    NOT_SEEN: "on simulated images they go the other way; it is a finding about the method on these images",
    NOT_RESOLVED: "the interval, or the tolerance, leaves both possible",
    BUILT_IN: "a parameter of the simulator decides the matter, so that simulated images cannot test it",
    NOT_TESTABLE: "a number that it needs is not computed here, or rests on images or weights that feed no claim",
}
_HEADINGS = {"Abstract": "Abstract", "4": "Section 4: the decoders", "5": "Section 5: the experiments",
             "6": "Section 6: the conclusion", "A": "Appendix A: the data", "B": "Appendix B: method and robustness",
             "C": "Appendix C: uncertainty and behaviour", "D": "Appendix D: the open world"}  # fmt: skip
_INTRO = """\
# What holds

Each line below is a sentence of the paper {{cite}}`phoebi` in our words, the numbers that this book computes for it,
and a verdict that follows from those numbers by a rule whose bounds stand beside the claim. The rules compare with what
the paper *says* (an order, a sign, a margin over the constant predictor), not with its digits: digits can be compared
only where ours and the paper's rest on the same labels or images.

A number with a 95 % interval decides a claim if the whole interval lies on one side of the bound. A number without one
must clear the bound by the stated tolerance. Where several numbers are needed, one that contradicts is enough for a
"no", and one that is open leaves the claim open. What the numbers rest on then decides which words may be used:

{meanings}

Simulated images can therefore never make a claim hold. {count} claims are judged; {label_only} of them follow from
labels and published lists alone, and anybody can recompute these without a picture.{notices}

{summary}"""
_INDEX_INTRO = """\
# Index of results

Every table and figure of the paper {cite}`phoebi`, where this book computes it, and what the numbers there rest on.
*Exact* numbers follow from labels and published lists. *Simulated* ones come from the stand-in micrographs: they show
that the computation runs, and nothing about bacteria. An illustration of the paper has no number to compute; where this
book draws something in its place, the index says what.
"""


def verdicts(tables: str | Path | None, claims: Iterable[Claim] | None = None) -> tuple[list[Verdict], list[str]]:
    """Return the verdict on each claim from the tables in a folder, and notices about files that were left out.

    Args:
        tables: the folder ``tables`` beside the executed copies; None judges on labels alone.
        claims: those to judge; by default all of :func:`phoebi_lib.paper.claims.all_claims`.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: a cell that a claim names fits two lines.
    """
    results, notices = load_results(tables)
    return judge_all(all_claims() if claims is None else claims, results), notices


def counts(judged: Sequence[Verdict]) -> pd.DataFrame:
    """Return how often each verdict was reached: one row a section, columns in the order of ``MEANINGS``, ``all``."""
    table = pd.DataFrame(0, index=[s for s in SECTIONS if any(v.claim.section == s for v in judged)],
                         columns=[*MEANINGS, "all"])  # fmt: skip
    for verdict in judged:
        table.loc[verdict.claim.section, [verdict.verdict, "all"]] += 1
    return table


def impossible(judged: Iterable[dict]) -> list[str]:
    """Return what is wrong with verdicts as ``record`` gives them: a word that their evidence does not allow."""
    found = []
    for line in judged:
        # without all its numbers a claim is not testable, whatever the others rest on
        allowed = {NOT_TESTABLE, *VERDICTS.get(line["evidence"], ())}
        if line["verdict"] not in allowed:
            found.append(f"claim {line['id']!r} reads {line['verdict']!r} on {line['evidence']} evidence")
    return found


def number_text(number: Number) -> str:
    """Return a number as a page shows it: whole numbers whole, others with three decimals, with the interval."""
    if float(number.value).is_integer() and not number.has_interval:
        return f"{int(number.value):,}"
    text = at_digits(number.value, 3)
    if number.has_interval:
        text += f" [{at_digits(number.low, 3)}, {at_digits(number.high, 3)}]"
    return text


def numbers_text(verdict: Verdict) -> str:
    """Return the numbers behind a verdict, "name value [low, high]; ...", and which ones are missing."""
    parts = [f"{name.replace('_', ' ')} {number_text(number)}" for name, number in verdict.numbers.items()]
    if verdict.missing:
        named = ", ".join(name.replace("_", " ") for name in verdict.missing[:3])
        more = f" and {len(verdict.missing) - 3} more" if len(verdict.missing) > 3 else ""
        parts.append(f"not computed here: {named}{more}")
    return "; ".join(parts)


def results_index() -> pd.DataFrame:
    """Return the index: ``item, content, where, status, computed``; ``where`` lists ``page#anchor`` words."""
    path = files("phoebi_lib.paper") / "tables" / "results_index.csv"
    with path.open(encoding="utf-8") as stream:
        return pd.read_csv(stream, dtype=str, keep_default_na=False)


def places(where: str) -> list[tuple[str, str]]:
    """Return ``[(page, anchor), ...]`` from the words of a ``where`` cell."""
    return [tuple(word.split("#")) for word in where.split()]


def write_pages(executed: str | Path, claims: Iterable[Claim] | None = None) -> list[Path]:
    """Write ``claims.json``, ``claims.md`` and ``results_index.md`` into ``executed``; return their paths.

    Args:
        executed: the folder of the executed copies, with their ``tables``.
        claims: those to judge, by default all.

    Raises:
        FileNotFoundError: no tables there.
        ValueError: a verdict that its evidence does not allow, or a cell that fits two lines.
    """
    executed = Path(executed)
    judged, notices = verdicts(executed / "tables", claims)
    written = [write_json(executed / CLAIMS_JSON, judged, notices)]
    for name, text in ((CLAIMS_PAGE, _claims_page(judged, notices, executed)), (INDEX_PAGE, _index_page(executed))):
        written.append(_write(executed / name, text))
    return written


def write_json(path: str | Path, judged: Sequence[Verdict], notices: Sequence[str]) -> Path:
    """Write verdicts with their numbers as JSON; return the path.

    ``verdicts`` counts them by word, ``notices`` names files that were left out, ``claims`` has one entry a claim.

    Raises:
        ValueError: a verdict that its evidence does not allow.
    """
    lines = [record(verdict) for verdict in judged]
    if wrong := impossible(lines):
        raise ValueError("; ".join(wrong))
    tally = {name: int(total) for name, total in counts(judged)[list(MEANINGS)].sum().items()}
    content = {"verdicts": tally, "notices": list(notices), "claims": lines}
    return _write(Path(path), json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def listing(judged: Sequence[Verdict]) -> list[str]:
    """Return the verdicts as lines of a plain table: section, verdict, evidence, id, numbers; then their counts."""
    wide = max((len(verdict.claim.id) for verdict in judged), default=0)
    lines = [
        f"{v.claim.section:8s}  {v.verdict:25s}  {v.evidence:9s}  {v.claim.id:{wide}s}  {numbers_text(v)}".rstrip()
        for v in judged
    ]
    tally = counts(judged)[list(MEANINGS)].sum()
    return [*lines, "; ".join(f"{word}: {n}" for word, n in tally.items() if n)]


def _write(path: Path, text: str) -> Path:
    with workspace.atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def problems(executed: str | Path, pages: str | Path) -> list[str]:
    """Return what is wrong with the built pages: places of the index that do not exist, impossible verdicts.

    Args:
        executed: the folder of the executed copies with ``claims.json``.
        pages: the folder of the HTML pages of the same copies.
    """
    found = []
    for line in results_index().to_dict("records"):
        for page, anchor in places(line["where"]):
            path = Path(pages) / f"{page}.html"
            if not path.is_file():
                found.append(f"the index names {page} for {line['item']}, and no such page was built")
            elif f'id="{anchor}"' not in path.read_text(encoding="utf-8"):
                found.append(f"the index names {page}#{anchor} for {line['item']}, and the page has no such place")
    try:
        claims = json.loads((Path(executed) / CLAIMS_JSON).read_text(encoding="utf-8"))["claims"]
    except (OSError, ValueError, KeyError) as error:
        return [*found, f"{Path(executed) / CLAIMS_JSON} cannot be read ({error}); build the book again"]
    for name in sorted({line["page"] for line in claims} - {""}):
        if not (Path(pages) / f"{name}.html").is_file():
            found.append(f"the claims name {name}, and no such page was built")
    return found + impossible(claims)


def _claims_page(judged: Sequence[Verdict], notices: Sequence[str], executed: Path) -> str:
    tally = counts(judged)
    used = [word for word in MEANINGS if tally[word].any()]
    summary = [["Section", *used, "all"]]
    summary += [[name, *(str(n) for n in line)] for name, line in tally[[*used, "all"]].iterrows()]
    summary.append(["all", *(str(n) for n in tally[[*used, "all"]].sum())])
    left_out = "\n\n**Left out.** " + "; ".join(notices) + "." if notices else ""
    text = _INTRO.format(
        meanings="\n".join(f"* **{word}**: {meaning};" for word, meaning in MEANINGS.items())[:-1] + ".",
        count=len(judged), label_only=sum(verdict.claim.label_only for verdict in judged), notices=left_out,
        summary=_list_table("Verdicts by section.", "tab-verdicts", summary, "auto"),
    )  # fmt: skip
    for section in tally.index:
        cells = [["Claim", "Numbers computed here", "Verdict", "Bounds"]]
        for verdict in judged:
            claim = verdict.claim
            if claim.section == section:
                page = f", {_link(claim.page, executed)}" if claim.page else ""
                said = f"{claim.wording}\n\n*{claim.place}*{page}"
                word = f"**{verdict.verdict}**\n\n" + (f"({verdict.evidence})" if verdict.numbers else "(no evidence)")
                cells.append([said, numbers_text(verdict) or "–", word, claim.tolerance])
        table = _list_table(f"{_HEADINGS[section]}: claims and verdicts.", f"tab-claims-{section.lower()}", cells,
                            "34 28 14 24")  # fmt: skip
        text += f"\n## {_HEADINGS[section]}\n\n{table}"
    return text


def _index_page(executed: Path) -> str:
    results, _ = load_results(executed / "tables")
    text = _INDEX_INTRO
    for kind in ("Table", "Figure"):
        cells = [[kind, "What is computed", "Where", "Evidence", "Status"]]
        for line in results_index().to_dict("records"):
            word, number = line["item"].split()
            if word != kind:
                continue
            spots = places(line["where"])
            where = ", ".join(f"{_link(page, executed, anchor)} in {_link(page, executed)}" for page, anchor in spots)
            evidence = _evidence(number if kind == "Table" else "", spots, results, executed)
            cells.append([f"{number}: {line['content']}", line["computed"], where or "–", evidence, line["status"]])
        table = _list_table(f"The {kind.lower()}s of the paper in this book.", f"tab-index-{kind.lower()}s", cells,
                            "20 32 22 11 15")  # fmt: skip
        text += f"\n## {kind}s\n\n{table}"
    return text


def _evidence(table: str, spots: Sequence[tuple[str, str]], results: pd.DataFrame, executed: Path) -> str:
    """Return what the numbers of an item rest on: its tidy lines say so, else the executed copies of its pages."""
    pages = {page for page, _ in spots}
    lines = results[(results["table"] == table) & results["value"].notna() & results["source"].isin(pages)]
    kinds = set(lines["evidence"])
    for page in pages if not kinds else ():
        path = executed / f"{page}.ipynb"
        if path.is_file():
            kinds.add(nbformat.read(path, as_version=4).metadata.get("phoebi", {}).get("evidence", "unknown"))
    return ", ".join(sorted(kinds)) or "–"


def _link(page: str, executed: Path, anchor: str = "") -> str:
    """Return a cross-reference; plain text where the page has not been executed, which the check reports."""
    if not any((executed / f"{page}{end}").is_file() for end in (".ipynb", ".md")):
        return f"`{anchor or page}`"
    return f"{{numref}}`{anchor}`" if anchor else f"{{doc}}`{page}`"


def _list_table(caption: str, name: str, cells: Sequence[Sequence[str]], widths: str) -> str:
    """Return a list-table directive, its first row the head; a blank line in a cell starts a paragraph."""
    rows = []
    for row in cells:
        first, *rest = (text.replace("\n", "\n    ") for text in row)
        rows.append("\n".join([f"* - {first}", *(f"  - {text}" for text in rest)]))
    head = [f"```{{list-table}} {caption}", ":header-rows: 1", f":widths: {widths}", f":name: {name}", ""]
    return "\n".join([*head, *rows, "```", ""])
