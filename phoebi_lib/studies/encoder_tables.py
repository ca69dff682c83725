"""Tables 4 and 7 from the rows of :mod:`phoebi_lib.studies.encoder_sweep`, and the sums that the text makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib import report
from phoebi_lib.encoder_records import EncoderRecord, get_record, list_encoders
from phoebi_lib.paper import cells, printed
from phoebi_lib.scoring import scores
from phoebi_lib.studies.decoder_tables import ABSENT, margins_shown
from phoebi_lib.studies.encoder_sweep import (
    DECODERS,
    EMBEDDED_PAIR,
    LONGER,
    PAPER_PAIR,
    left_out,
    weights_here,
)
from phoebi_lib.studies.paired import counts, image_f1, interval, lines, margins, resampled, resamples
from phoebi_lib.studies.readings import reading

if TYPE_CHECKING:
    from phoebi_lib.session import Run

CONSTANT = "All-present predictor (constant)"
METRICS = {"per_sample_f1": "f1", "macro_f1": "macro_f1", "exact_match": "em"}
#: The encoders that the paper calls biomedical.
BIOMEDICAL = ("Prov-GigaPath ViT-G", "UNI ViT-L", "Phikon ViT-B/16", "BiomedCLIP ViT-B/16")
_TABLE_4 = frozenset(cells(4)["row"])
_TABLE_7 = frozenset(cells(7)["row"].str.split(" / ").str[0])
_DASH, _NBSP = "–", "\u00a0"


def row_name(title: str, method: str = "", decoder: str = "") -> str:
    """Return the row of an encoder (and decoder): as printed, or marked as not in the paper."""
    name = f"{title} / {decoder}" if decoder else title
    longer = method.endswith(LONGER)
    in_print = title in (_TABLE_7 if decoder else _TABLE_4)
    return f"{name}{', 2,000 updates' if longer else ''}{'' if in_print and not longer else ' (not in the paper)'}"


def _facts(run: Run, encoder: str, partition: str) -> dict[str, Any]:
    facts = {name: getattr(run, name) for name in ("profile", "dataset", "seed")}
    return facts | {"encoder": encoder, "partition": partition}


def _absent(row: str, columns: Sequence[str], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"row": row, "column": column, "missing": ABSENT, **facts} for column in columns]


def _size(row: str, record: EncoderRecord, columns: Sequence[str], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what follows from the network alone; loading, and ``phoebi encoders --check``, assert it."""
    known = {"params_m": record.params_m, "d": record.dim}
    return [{"row": row, "column": name, "value": known[name], "evidence": "exact", **facts} for name in columns]


def table_4(run: Run, found: Mapping[str, pd.DataFrame], codes: Sequence[str]) -> pd.DataFrame:
    """Return Table 4 as a tidy table: the linear probe on each encoder, on the test images of the random split.

    Columns as printed, with 95 % intervals over combinations; margins over the constant predictor; the chosen
    ``learning_rate`` and ``train_f1``. Parameters are in millions, of the image network without classifier. An encoder
    without weights here has its size and the reason; those of :func:`~phoebi_lib.studies.encoder_sweep.left_out` have
    no line.
    """
    columns = [*METRICS, *(f"f1_{code}" for code in codes)]
    made: list[dict[str, Any]] = []
    waiting = left_out(found)
    for record in list_encoders():
        rows, facts, row = found.get(record.name), _facts(run, record.name, "random"), row_name(record.title)
        if rows is not None:
            test = rows[(rows["part"] == "test") & (rows["method"] != "AllPresent")]
            for method, mine in test.groupby("method", sort=False):
                made += [line | facts for line in _probe_lines(row_name(record.title, method), mine, codes, run)]
        elif record.name not in waiting and record.title in _TABLE_4:
            made += _absent(row, columns, facts)
        else:
            continue
        made += _size(row, record, ("params_m", "d"), facts)
    if found:
        name, rows = next(iter(found.items()))
        constant = rows[(rows["part"] == "test") & (rows["method"] == "AllPresent")]
        made += [line | _facts(run, name, "random") for line in _probe_lines(CONSTANT, constant, codes, run)]
    return report.add_paper(report.table(made, table="4"), 4)


def _probe_lines(row: str, rows: pd.DataFrame, codes: Sequence[str], run: Run) -> list[dict[str, Any]]:
    species = {f"f1_{code}": f"f1_{code}" for code in codes}
    scored = scores(rows, [*METRICS.values(), *species], codes=codes, n=resamples(run))
    names = {**METRICS, **{f"{name}_margin": f"{metric}_margin" for name, metric in METRICS.items()}, **species}
    cells_ = {name: dict(zip(("value", "low", "high"), scored[metric], strict=True)) for name, metric in names.items()}
    cells_["train_f1"] = {"value": float(rows["train_f1"].iloc[0])}
    if "learning_rate" in rows and rows["learning_rate"].notna().all():
        cells_["learning_rate"] = {"value": float(rows["learning_rate"].iloc[0])}
    return lines(row, cells_, counts(rows))


def table_7(run: Run, found: Mapping[str, pd.DataFrame], codes: Sequence[str], partition: str) -> pd.DataFrame:
    """Return Table 7 as a tidy table: the decoders on a small and a larger encoder, validation and held-out F1.

    The paper's pair first, where its weights are here, else the reason; then the embedded pair. Differences, large
    minus small, are paired by image, with 95 % intervals over combinations; ``heldout_f1_margin`` is the margin over
    the constant predictor.
    """
    made: list[dict[str, Any]] = []
    for pair in (PAPER_PAIR, EMBEDDED_PAIR):
        here = {name: found[name] for name in pair if name in found}
        part_rows = {part: [rows[rows["part"] == part] for rows in here.values()] for part in ("val", "test")}
        methods = list(dict.fromkeys(m for rows in here.values() for m in rows["method"])) or list(DECODERS)
        means = {
            part: resampled(image_f1(pd.concat(rows), ["encoder", "method"], codes), resamples(run))
            for part, rows in part_rows.items() if rows
        }  # fmt: skip
        for method in methods[1:]:
            decoder = method.removesuffix(LONGER)
            for name in pair:
                record, facts = get_record(name), _facts(run, name, partition)
                row = row_name(record.title, method, decoder)
                if name in here:
                    made += [line | facts for line in _decoder_lines(row, here[name], means, name, method)]
                elif weights_here(name):
                    continue
                else:
                    made += _absent(row, ("in_dist_val_f1", "heldout_f1"), facts)
                made += _size(row, record, ("params_m",), facts)
            made += _difference(run, pair, here, means, method, partition)
    return report.add_paper(report.table(made, table="7"), 7)


def _decoder_lines(
    row: str, rows: pd.DataFrame, means: Mapping[str, pd.DataFrame], name: str, method: str
) -> list[dict[str, Any]]:
    made = []
    for part, column in (("val", "in_dist_val_f1"), ("test", "heldout_f1")):
        mine = rows[(rows["part"] == part) & (rows["method"] == method)]
        scored = margins(column, means[part][name, method], means[part][name, "AllPresent"])
        if part == "test":
            scored["train_f1"] = {"value": float(mine["train_f1"].iloc[0])}
        made += lines(row, scored, counts(mine))
    return made


def _difference(
    run: Run, pair: tuple[str, str], here: Mapping[str, pd.DataFrame], means: Mapping[str, pd.DataFrame], method: str,
    partition: str,
) -> list[dict[str, Any]]:  # fmt: skip
    small, large = pair
    decoder, columns = method.removesuffix(LONGER), {"val": "in_dist_val_f1", "test": "heldout_f1"}
    if pair == PAPER_PAIR:
        numbers = printed(7)
        title = numbers.loc[numbers["block"] == "difference", "encoder"].iloc[0]
    else:
        title = f"{get_record(large).title} minus {get_record(small).title}"
    row, facts = row_name(title, method, decoder), _facts(run, f"{large} minus {small}", partition)
    if len(here) < 2:
        absent = any(not weights_here(name) for name in pair if name not in here)
        return _absent(row, list(columns.values()), facts) if absent else []
    made = []
    for part, column in columns.items():
        change = interval(means[part][large, method] - means[part][small, method])
        mine = here[large][(here[large]["part"] == part) & (here[large]["method"] == method)]
        made += [line | facts for line in lines(row, {column: change}, counts(mine))]
    return made


def parameter_ratio(pair: tuple[str, str] = EMBEDDED_PAIR) -> float:
    """Return how many times the parameters of the first encoder the second has."""
    return get_record(pair[1]).params_m / get_record(pair[0]).params_m


def table_sums(four: pd.DataFrame, found: Mapping[str, object]) -> pd.DataFrame:
    """Return the sums that the text makes of Table 4, from its printed cells (exact) and from the cells of ``four``.

    Ours need all thirteen encoders.
    """
    numbers = cells(4)
    print_f1 = numbers[numbers["column"] == "per_sample_f1"].set_index("row")["value"]
    mine = four[(four["column"] == "per_sample_f1") & four["row"].isin(_TABLE_4) & four["value"].notna()]
    kinds = set(mine["evidence"])
    made, ids, waiting = [], {}, left_out(found)
    for row, (quantity, name) in _SUMS.items():
        ids[row, "from the printed table"] = name
        made.append({"row": row, "column": "from the printed table", "value": quantity(print_f1), "evidence": "exact"})
        if len(mine) == len(_TABLE_4) and len(kinds) == 1:
            value = quantity(mine.set_index("row")["value"])
            made.append({"row": row, "column": "from our table", "value": value, "evidence": kinds.copy().pop()})
        elif not waiting:
            made.append({"row": row, "column": "from our table", "missing": ABSENT})
        else:
            continue
        ids[row, "from our table"] = name
    return report.add_quoted(report.table(made, table="4 sums", profile=four["profile"].iloc[0]), ids)


def _above_general(f1: pd.Series) -> float:
    biomedical = f1.index.isin(BIOMEDICAL)
    return float((f1[biomedical] > f1[~biomedical].max()).sum())


_SUMS: dict[str, tuple[Callable[[pd.Series], float], str]] = {
    "best encoder minus DINOv2 ViT-S/14, points": (
        lambda f1: 100 * float(f1.max() - f1["DINOv2 ViT-S/14"]), "probe_gap_points"),
    "best encoder minus worst, points": (lambda f1: 100 * float(f1.max() - f1.min()), "probe_range_points"),
    "biomedical encoders above every general one": (_above_general, "biomedical_above"),
}  # fmt: skip


def sums_read(sums: pd.DataFrame) -> list[str]:
    """Return a sentence for each sum that rests on exact or paper evidence; other images say nothing about it."""
    said = []
    for line in sums[sums["evidence"].isin(("exact", "paper"))].to_dict("records"):
        places = int(line["digits"])
        same = report.equal_at_printed_digits(line["value"], line["paper"], places)
        word = "agrees with" if same else "differs from"
        said.append(f"{line['row']}, {line['column']}: {report.at_digits(line['value'], places)} {word} the text, "
                    f"{report.at_digits(line['paper'], places)}")  # fmt: skip
    return said


def shown(
    frame: pd.DataFrame, columns: Mapping[str, str], heading: str, places: int = 3, intervals: bool = False
) -> pd.DataFrame:
    """Return a tidy table as read: under each of our lines the printed one; texts only, a reason where ours is missing.

    ``columns`` maps tidy columns to headings; ``places`` are the decimals of our scores, shown with their
    ``intervals`` or without. The number of images and the difference in the last column are those of the first
    quantity.
    """
    made = []
    for row, group in frame.groupby("row", sort=False):
        mine = group.drop_duplicates("column").set_index("column")

        def cell(column: str, which: str, mine: pd.DataFrame = mine) -> str:
            if column not in mine.index or np.isnan(mine.loc[column, which]):
                return _DASH
            line = mine.loc[column]
            if which == "paper":
                return report.at_digits(line["paper"], int(line["digits"]))
            digits = {"params_m": 3, "d": 0}.get(column, places)
            known = ("value", "low", "high") if intervals and not np.isnan(line["low"]) else ("value",)
            text, *ends = (report.at_digits(line[end], digits) for end in known)
            return f"{text} [{ends[0]},{_NBSP}{ends[1]}]" if ends else text

        first = next(iter(columns))
        line = mine.loc[first]
        source = line["missing"] or f"here ({line['evidence']}{counted(line)})"
        difference = report.compare(group[group["column"] == first])["difference"].iloc[0]
        made.append({heading: row, "numbers": source, **{h: cell(c, "value") for c, h in columns.items()},
                     "difference": difference})  # fmt: skip
        paper = {h: cell(c, "paper") for c, h in columns.items()}
        if set(paper.values()) != {_DASH}:
            made.append({heading: row, "numbers": "paper", **paper, "difference": _DASH})
    return pd.DataFrame(made)


def counted(line: Mapping[str, Any]) -> str:
    """Return ", n images" for a line that counts its images, else nothing."""
    return "" if pd.isna(line["n_images"]) else f", {line['n_images']:,} images"


def margins_4(four: pd.DataFrame) -> pd.DataFrame:
    """Return the margins of Table 4 as read, with the chosen learning rate, updates and F1 on the training images."""
    names = {"per_sample_f1_margin": "margin in F1", "macro_f1_margin": "margin in macro F1"}
    table = margins_shown(four[four["row"] != CONSTANT], names).rename(columns={"decoder": "encoder"})
    rates = four[four["column"] == "learning_rate"].set_index("row")["value"]
    table.insert(table.columns.get_loc("updates"), "learning rate", [f"{rates[row]:g}" for row in table["encoder"]])
    scored = four[four["column"] == "per_sample_f1"].set_index("row")
    table["n"] = [f"{scored.loc[row, 'n_images']} test ({scored.loc[row, 'evidence']})" for row in table["encoder"]]
    return table.loc[:, (table != _DASH).any()]


def margins_7(seven: pd.DataFrame) -> pd.DataFrame:
    """Return held-out margins of Table 7 as read; a trained row under 0.95 in distribution is marked as not fitted."""
    made = []
    for row, group in seven.groupby("row", sort=False):
        mine = group.drop_duplicates("column").set_index("column")
        if "heldout_f1_margin" not in mine.index:
            continue
        line, updates = mine.loc["heldout_f1_margin"], int(mine.loc["heldout_f1", "updates"])
        value, low, high = (report.at_digits(line[end], 3, sign=True) for end in ("value", "low", "high"))
        inside, train_f1 = mine.loc["in_dist_val_f1"], mine.loc["train_f1", "value"]
        made.append({
            "encoder and decoder": row, "margin in held-out F1": f"{value} [{low},{_NBSP}{high}]",
            "training F1": report.at_digits(train_f1, 3),
            "updates": f"{updates:,}" if updates else _DASH,
            "n": f"{inside['n_images']} validation, {line['n_images']} held out ({line['evidence']})",
            "reading": reading(inside["value"], inside["n_images"], train_f1) if updates else _DASH,
        })  # fmt: skip
    return pd.DataFrame(made)
