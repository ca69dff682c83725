"""What the landing page shows of the results: the figure of the two questions, and the verdicts in short.

Both are written before the book is built, beside the executed copies, from what the paper prints and from the tables
of those copies. The hand-written page includes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from phoebi_lib import claims_page, workspace
from phoebi_lib.landing_figure import (
    ABSENT,
    ANCHORS,
    CONSTANT,
    FITTED,
    NEIGHBOURS,
    PROTOTYPES,
    UNFITTED,
    Panel,
    extent,
    limits,
    save,
)
from phoebi_lib.paper import printed
from phoebi_lib.paper.claims import all_claims, load_results
from phoebi_lib.paper.claims.engine import Claim, Verdict
from phoebi_lib.studies.readings import plain
from phoebi_lib.summaries import FITTED_F1

PAPER_PICTURE, OUR_PICTURE = "landing_paper.svg", "landing_ours.svg"
FIGURE, VERDICTS = "landing_figure.md", "landing_verdicts.md"
#: Ids of the claims on the landing page, in the order in which the story is told.
HEADLINES = (
    "heldout-has-more-species", "fine-tuned-networks-collapse", "features-sound-pooling-fails",
    "anchors-near-constant", "channel-group-leads", "resist-illumination", "open-set-knn-above-chance",
    "discovery-finds-the-stranger",
)  # fmt: skip
#: What a panel of ours says of its images, by evidence; where several kinds are there, the first one is drawn.
GROUNDS = {
    "paper": "published images",
    "simulated": "simulated images: says nothing about bacteria",
    "user": "other images: not comparable with the paper's",
    "stand-in": "stand-in weights: no number here feeds a claim",
}
# which notebook writes the table, and its column: in distribution, held out
_SUPERVISED = ("05_collapse", "3", "in_dist_f1", "heldout_f1")
_DECODERS = ("05_held_out", "6", "in_dist_val_f1", "heldout_f1")
_SLOPES, _SCORES = ["name", "group", "start", "end"], ["name", "group", "auroc"]
_TRAINED_HERE = (", fine-tuned", " (PHOEBI)")


def _printed_rows() -> tuple[str, list[str], list[str]]:
    """Return what Tables 3 and 6 call the constant predictor, the networks trained from pixels, and the decoders."""
    supervised, decoders = printed(3), printed(6)
    networks = supervised.loc[supervised["block"].isin(["fine-tuned", "control"]), "backbone"]
    constant = supervised.loc[supervised["block"] == "constant", "backbone"].item()
    return constant, list(networks), list(decoders.loc[decoders["block"] == "trained", "decoder"])


def _network(name: str, start: float, end: float) -> tuple[str, str, float, float]:
    return name, FITTED if start >= FITTED_F1 else UNFITTED, start, end


def _scored(pairs: Iterable[tuple[str, float]]) -> pd.DataFrame:
    return pd.DataFrame([(name, NEIGHBOURS if name.startswith("KNN") else PROTOTYPES, value) for name, value in pairs],
                        columns=_SCORES)  # fmt: skip


def printed_panel() -> Panel:
    """Return the paper's panel: the printed Tables 3, 6 and 20, of published images."""
    constant, networks, decoders = _printed_rows()
    supervised, anchored = printed(3).set_index("backbone"), printed(6).set_index("decoder")
    ends = ["in_dist_f1", "heldout_f1"]
    lines = [(constant, CONSTANT, *supervised.loc[constant, ends])]
    lines += [_network(name, *supervised.loc[name, ends]) for name in networks]
    lines += [(name, ANCHORS, *anchored.loc[name, ["in_dist_val_f1", "heldout_f1"]]) for name in decoders]
    scores = printed(20)[["score", "auroc"]].itertuples(index=False, name=None)
    return Panel("The paper, in print", "published images", pd.DataFrame(lines, columns=_SLOPES), _scored(scores))


def our_panel(results: pd.DataFrame) -> tuple[Panel, str, int]:
    """Return the panel of this book's numbers, what they rest on, and how many of them rest on something else.

    A panel holds one kind of evidence: the first of ``GROUNDS`` that is there. Numbers of another kind are left out and
    counted.

    Args:
        results: all tidy tables with their ``source``, as :func:`phoebi_lib.paper.claims.load_results` gives them.

    Raises:
        ValueError: a table of those pages has two lines for the same row, column and kind of evidence.
    """
    constant, networks, decoders = _printed_rows()
    anchored = _lines(results, _DECODERS[:2], _DECODERS[2:])
    trained = _lines(results, _SUPERVISED[:2], _SUPERVISED[2:])
    scored = _lines(results, ("D_open_set", "20"), ("auroc",))
    wanted = pd.concat([
        anchored[anchored["row"].isin([constant, *decoders])],
        trained[trained["row"].isin([constant, *networks]) | trained["row"].map(plain).str.endswith(_TRAINED_HERE)],
        scored[scored["row"].isin(printed(20)["score"])],
    ])  # fmt: skip
    kind = next((kind for kind in GROUNDS if kind in set(wanted["evidence"])), "")
    mine = wanted[wanted["evidence"] == kind]
    if mine.duplicated(["table", "row", "column"]).any():
        twice = mine[mine.duplicated(["table", "row", "column"])].iloc[0]
        raise ValueError(f"two lines of table {twice['table']!r} for row {twice['row']!r}, column {twice['column']!r}")
    wide = mine.pivot(index=["table", "row"], columns="column", values="value")
    lines: list[tuple[str, str, float, float]] = []
    for _, table, *ends in (_DECODERS, _SUPERVISED):
        pairs = wide.reindex(columns=ends).dropna() if table in wide.index else wide.reindex(columns=ends)[:0]
        pairs = pairs[pairs.index.get_level_values("table") == table].droplevel("table")
        for name, start, end in pairs.itertuples(name=None):
            if name != constant:
                lines.append((name, ANCHORS, start, end) if table == "6" else _network(plain(name), start, end))
            elif constant not in {line[0] for line in lines}:  # both tables have it, on the same images
                lines.append((name, CONSTANT, start, end))
    auroc = mine[mine["table"] == "20"].set_index("row")["value"]
    panel = Panel("This book, computed", GROUNDS.get(kind, ABSENT), pd.DataFrame(lines, columns=_SLOPES),
                  _scored(auroc.items()))  # fmt: skip
    return panel, kind, len(wanted) - len(mine)


def _lines(results: pd.DataFrame, place: tuple[str, str], columns: Sequence[str]) -> pd.DataFrame:
    source, table = place
    return results[(results["source"] == source) & (results["table"] == table) & results["column"].isin(list(columns))
                   & results["value"].notna() & (results["evidence"] != "exact")]  # fmt: skip


def seen(panel: Panel) -> str:
    """Return in words what a panel shows, for those who do not see it."""
    parts, level = [], panel.slopes.set_index("group")["end"].get(CONSTANT)
    for group, what in ((FITTED, "fine-tuned networks"), (UNFITTED, "networks that are not fitted"),
                        (ANCHORS, "anchored decoders"), (CONSTANT, "the constant predictor")):  # fmt: skip
        mine = panel.slopes[panel.slopes["group"] == group]
        if len(mine):
            count = "" if group == CONSTANT else f" ({len(mine)})"
            under = "" if level is None or group == CONSTANT else f", {(mine['end'] < level).sum()} below the constant"
            parts.append(f"{what}{count} start at {extent(mine['start'])} and end at {extent(mine['end'])}{under}")
    text = f"{panel.title}, {panel.ground}. "
    text += "F1 from known to new mixtures: " + ("; ".join(parts) or ABSENT)
    means = [f"{what} {extent(mine)}" for group, what in ((NEIGHBOURS, "nearest tiles"), (PROTOTYPES, "anchors alone"))
             if len(mine := panel.scores.loc[panel.scores["group"] == group, "auroc"])]  # fmt: skip
    return f"{text}. AUROC of noticing a stranger, chance 0.5: {'; '.join(means) or ABSENT}."


def figure_fragment(theirs: Panel, ours: Panel, kind: str, left_out: int) -> str:
    """Return the figure of two panels as MyST Markdown, with one number and one caption."""
    rest = {"simulated": "computed from simulated images, which say nothing about bacteria", "": ABSENT}
    said = rest.get(kind, f"computed here, {GROUNDS.get(kind)}")
    caption = (
        "Per-sample F1 (1 is perfect) on mixtures known from training and on new ones; AUROC (0.5 is a coin) of scores "
        "for a species outside the catalogue. The paper: its printed Tables 3, 6 and 20. "
        f"This book: {said}. All present: the constant predictor. Not fitted: F1 below {FITTED_F1:g} on known "
        "mixtures, which allows no conclusion. "
        "Networks: one partition; decoders: means over three."
    )
    if left_out:
        caption += f" {left_out} numbers that rest on other evidence are left out."
    return (
        f"```{{figure}} executed/{PAPER_PICTURE}\n:name: fig-landing\n:figclass: phoebi-landing\n"
        f":alt: {seen(theirs)}\n\n{caption}\n\n![{seen(ours)}](executed/{OUR_PICTURE})\n```\n"
    )


def verdict_fragment(judged: Sequence[Verdict], executed: Path) -> str:
    """Return how often each verdict was reached, and the verdicts on the headline claims, as MyST Markdown.

    Raises:
        KeyError: a headline is no claim among ``judged``.
        ValueError: a verdict that its evidence does not allow.
    """
    if wrong := claims_page.impossible([claims_page.record(verdict) for verdict in judged]):
        raise ValueError("; ".join(wrong))
    tally = claims_page.counts(judged).sum()
    cells = "\n".join(f":::{{grid-item}}\n**{tally[word]}**\n\n{word}\n:::" for word in claims_page.MEANINGS)
    by_id = {verdict.claim.id: verdict for verdict in judged}
    rows = "\n".join(f"| {_cell(by_id[name].claim.wording)} | {_word(by_id[name], executed)} |" for name in HEADLINES)
    return (
        f"**{len(judged)} claims of the paper, judged by fixed rules** ({{doc}}`what holds <executed/claims>`):\n\n"
        f"::::{{grid}} 2 4 7 7\n:gutter: 1\n:class-container: phoebi-tally\n\n{cells}\n::::\n\n"
        "```{table} Claims that carry the story, in our words, and what the numbers computed here say of each.\n"
        f":name: tab-landing\n:widths: 72 28\n\n| The paper says | Here |\n|---|---|\n{rows}\n```\n"
    )


def _word(verdict: Verdict, executed: Path) -> str:
    """Return a verdict with its evidence; the word leads to the page of the numbers where that was executed."""
    claim: Claim = verdict.claim
    there = claim.page and (executed / f"{claim.page}.ipynb").is_file()
    word = f"{{doc}}`{verdict.verdict} <executed/{claim.page}>`" if there else verdict.verdict
    if "simulation" in verdict.verdict:
        return word
    return f"{word} ({verdict.evidence if verdict.numbers else 'no evidence'})"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def write(executed: str | Path) -> list[Path]:
    """Write the pictures and the fragments of the landing page into the folder of the executed copies; return them.

    Args:
        executed: the folder, with its ``tables``. Where a table is missing the figure says so.

    Raises:
        FileNotFoundError: no tables there.
        KeyError, ValueError: as :func:`our_panel` and :func:`verdict_fragment`.
    """
    executed = Path(executed)
    results, _ = load_results(executed / "tables")
    theirs = printed_panel()
    ours, kind, left_out = our_panel(results)
    judged, _ = claims_page.verdicts(executed / "tables", all_claims())
    texts = {FIGURE: figure_fragment(theirs, ours, kind, left_out), VERDICTS: verdict_fragment(judged, executed)}
    between = limits([theirs, ours])
    made = [save(theirs, executed / PAPER_PICTURE, between), save(ours, executed / OUR_PICTURE, between)]
    for name, text in texts.items():
        with workspace.atomic_path(executed / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
        made.append(executed / name)
    return made
