"""Tables 3 and 5 from the rows of :mod:`phoebi_lib.studies.collapse`, in one world or in two, and as they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from phoebi_lib import report
from phoebi_lib.encoder_records import get_record
from phoebi_lib.label_only import label_only
from phoebi_lib.paper import printed
from phoebi_lib.scoring import scores
from phoebi_lib.studies.audit import difference, line, mean, with_margin
from phoebi_lib.studies.collapse import BACKBONES, CONSTANT, CONTROL, HELD_OUT, order, waiting
from phoebi_lib.studies.decoder_tables import ABSENT, EXACT_ROW, margins_shown
from phoebi_lib.studies.paired import counts, lines, resamples
from phoebi_lib.studies.readings import FEW, FITTED, reading, side, with_interval

if TYPE_CHECKING:
    from phoebi_lib.session import Run

#: Columns as printed: metric -> column, of the in-distribution test, of validation and of the held-out test.
RANDOM = {"f1": "random_f1", "macro_f1": "random_macro_f1", "em": "random_em"}
VALIDATION = {"f1": "in_dist_f1"}
TEST = {"f1": "heldout_f1", "macro_f1": "heldout_macro_f1", "em": "heldout_em"}
COLUMNS = (*RANDOM.values(), *VALIDATION.values(), *TEST.values(), "delta_f1")


def is_held_out(rows: pd.DataFrame) -> pd.Series:
    """Return which rows belong to a partition that leaves combinations out."""
    return rows["partition"].str.startswith("lco")


def held_out(found: Mapping[str, pd.DataFrame], parts: Sequence[str] = ("test",)) -> dict[str, pd.DataFrame]:
    """Return by row the rows of the held-out block that belong to ``parts``."""
    return {row: rows[is_held_out(rows) & rows["part"].isin(list(parts))] for row, rows in found.items()}


def collapse_table(run: Run, n: int, found: Mapping[str, pd.DataFrame], codes: Sequence[str]) -> pd.DataFrame:
    """Return Table 3 or 5 as a tidy table with the printed numbers beside ours.

    Columns as printed, with 95 % intervals over combinations; the margins over the constant predictor; ``train_f1``
    of the held-out block; ``params_m`` of networks, in millions and without head. A network of the table without rows
    has the reason, unless its weights are here (:func:`~phoebi_lib.studies.collapse.waiting`). Table 3 begins with an
    exact row: the constant predictor on the labels of the 120,000 published images.

    Args:
        run: of the rows. n: 3 or 5. found: row -> rows of both blocks. codes: species in class order.
    """
    kinds = ("whole", "pipeline") if n == 3 else ("whole",)
    here = {get_record(name).title for name in waiting(tuple(found), kinds)}
    made: list[dict[str, Any]] = []
    for row in order(tuple(found), n):
        title = row.removesuffix(" (PHOEBI)")
        if row in found:
            made += _row(row, found[row], codes, resamples(run), run)
        elif title in here:
            continue
        else:
            made += _absent(row, title, run)
        if row in (*BACKBONES, CONTROL):
            size = {"row": row, "column": "params_m", "value": get_record(title).params_m, "evidence": "exact"}
            made.append({**size, "encoder": get_record(title).name})
    common = {"profile": run.profile, "dataset": run.dataset, "seed": run.seed}
    frame = report.add_paper(report.table(made, table=str(n), **common), n)
    if n != 3:
        return frame
    exact = label_only(run.profile)
    exact = exact[exact["table"] == "3"].assign(row=EXACT_ROW)
    return report.validate(pd.concat([exact, frame], ignore_index=True))


def _row(row: str, rows: pd.DataFrame, codes: Sequence[str], n: int, run: Run) -> list[dict[str, Any]]:
    held = is_held_out(rows)
    test = rows["part"] == "test"
    blocks = ((rows[~held & test], RANDOM), (rows[held & ~test], VALIDATION), (rows[held & test], TEST))
    made, values = [], {}
    for mine, columns in blocks:
        scored = scores(mine, columns, codes=codes, n=n)
        names = columns | {metric + report.MARGIN: name + report.MARGIN for metric, name in columns.items()}
        numbers = {name: dict(zip(("value", "low", "high"), scored[metric], strict=True))
                   for metric, name in names.items()}  # fmt: skip
        values |= {name: scored[metric][0] for metric, name in columns.items()}
        made += lines(row, numbers, _facts(mine))
    last = blocks[-1][0]
    values = {"delta_f1": values["in_dist_f1"] - values["heldout_f1"], "train_f1": float(last["train_f1"].iloc[0])}
    return made + lines(row, {name: {"value": value} for name, value in values.items()}, _facts(last))


def _facts(rows: pd.DataFrame) -> dict[str, Any]:
    first = rows.iloc[0]
    partitions = ", ".join(rows["partition"].unique())
    return {**counts(rows), "partition": partitions, "encoder": first["encoder"], "dataset": first["dataset"]}


def _absent(row: str, title: str, run: Run) -> list[dict[str, Any]]:
    facts = {"row": row, "missing": ABSENT, "encoder": get_record(title).name}
    return [{**facts, "column": name, "partition": "random" if name in RANDOM.values() else HELD_OUT}
            for name in COLUMNS]  # fmt: skip


def readings(frame: pd.DataFrame) -> dict[str, str]:
    """Return by trained row of Table 3 or 5 its :func:`~phoebi_lib.studies.readings.reading`."""
    mine = frame[(frame["column"] == "in_dist_f1") & frame["value"].notna() & (frame["updates"].fillna(0) > 0)]
    train_f1 = frame[frame["column"] == "train_f1"].set_index("row")["value"]
    return {row: reading(value, n, train_f1[row])
            for row, value, n in zip(mine["row"], mine["value"], mine["n_images"], strict=True)}  # fmt: skip


def margins_read(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the held-out margins of Table 3 or 5 as read, with F1 in distribution, updates and the reading.

    Printed rows without a number here stand below with the paper's margin and the reason, where the table prints a
    constant row.
    """
    names = {"heldout_f1_margin": "margin in held-out F1", "heldout_macro_f1_margin": "margin in macro F1"}
    held = frame[frame["column"].isin([*names, "train_f1"]) & (frame["row"] != EXACT_ROW)]
    shown = margins_shown(held, names).rename(columns={"decoder": "row"})
    inside = frame[(frame["column"] == "in_dist_f1") & frame["value"].notna()].set_index("row")
    tested = frame[(frame["column"] == "heldout_f1") & frame["value"].notna()].set_index("row")["n_images"]
    shown.insert(1, "in-dist F1", [report.at_digits(inside.loc[row, "value"], 3) for row in shown["row"]])
    shown["n"] = [f"{inside.loc[row, 'n_images']} validation, {tested[row]} held out ({inside.loc[row, 'evidence']})"
                  for row in shown["row"]]  # fmt: skip
    said = readings(frame)
    shown = shown.assign(reading=[said.get(row, "–") for row in shown["row"]])
    shown = pd.concat([shown, _printed_margins(frame, names)], ignore_index=True).fillna("–")
    return shown.loc[:, (shown != "–").any()]


def _printed_margins(frame: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Return one line for each row without a number here: the printed score minus that of the printed constant."""
    n, made = int(frame["table"].iloc[0]), []
    for row, group in frame[(frame["missing"] != "") & frame["paper"].notna()].groupby("row", sort=False):
        cells, texts = group.set_index("column"), {"row": row, "reading": group["missing"].iloc[0]}
        for column, heading in names.items():
            score = column.removesuffix(report.MARGIN)
            constant = report.printed_constant(n, score)
            if constant is not None:
                margin = cells.loc[score, "paper"] - constant
                texts[f"{heading}, paper"] = report.at_digits(round(margin, 3), 3, sign=True)
        if len(texts) > 2:
            made.append(texts)
    return pd.DataFrame(made)


def worlds_table(
    n: int, found: Mapping[str, Mapping[str, pd.DataFrame]], codes: Sequence[str], resampled: int
) -> pd.DataFrame:
    """Return the tidy table "<n> worlds": the held-out blocks of Table ``n`` in two worlds, and how they differ.

    Columns ``in_dist_f1``, ``heldout_f1``, ``heldout_f1_margin`` (over the constant predictor) of each world, told
    apart by ``dataset``, and ``heldout_difference``: the margin in the second world minus that in the first. Every
    resample takes the same combinations in both. Where rows hold several partitions they are pooled, and what is
    resampled is the (partition, combination) pair.

    Args:
        n: 3 or 6. found: world -> row -> validation and test rows, of the same rows in both; the first world first.
        codes: species in class order. resampled: number of resamples.
    """
    made, unit = [], ["partition", "combination"]
    first, second = ({row: rows[is_held_out(rows)] for row, rows in its.items() if row != CONSTANT}
                     for its in found.values())  # fmt: skip
    for row in second:
        tests = []
        for rows in (first[row], second[row]):
            parts = {part: with_margin(rows[rows["part"] == part], codes) for part in ("val", "test")}
            tests.append(parts["test"])
            for part, column, of in (("val", "in_dist_f1", "f1"), ("test", "heldout_f1", "f1"),
                                     ("test", f"heldout_f1{report.MARGIN}", "margin")):  # fmt: skip
                numbers = mean(parts[part], of, unit=unit, n=resampled)
                made.append(line(row, column, numbers, parts[part]) | _facts(parts[part]))
        change = difference(tests[1], tests[0], unit=unit, n=resampled)
        made.append(line(row, "heldout_difference", change, tests[1]) | _facts(tests[1]))
    facts = {name: rows[name].iloc[0] for name in ("profile", "seed")}
    return report.table(made, table=f"{n} worlds", **facts)


def worlds_read(frame: pd.DataFrame, worlds: Mapping[str, str]) -> pd.DataFrame:
    """Return a table of worlds as read: by row, F1 in distribution and held-out margin in each, and the difference.

    ``worlds`` maps data sets to what they are called.
    """
    shown = []
    for row, group in frame.groupby("row", sort=False):
        cells = {(cell["dataset"], cell["column"]): cell for cell in group.to_dict("records")}
        texts = {"row": row}
        for dataset, world in worlds.items():
            texts[f"in-dist F1, {world}"] = report.at_digits(cells[dataset, "in_dist_f1"]["value"], 3)
            margin = cells[dataset, f"heldout_f1{report.MARGIN}"]
            texts[f"held-out margin, {world}"] = with_interval(margin)
        (change,) = (cell for (_, column), cell in cells.items() if column == "heldout_difference")
        n = f"{change['n_images']} held out ({change['evidence']})"
        shown.append(texts | {"difference": with_interval(change), "n": n})
    return pd.DataFrame(shown)


def printed_margins(n: int = 3) -> pd.Series:
    """Return by backbone the printed held-out F1 minus that of the printed constant, of Table ``n``."""
    score = printed(n).set_index("backbone")["heldout_f1"].loc[list(BACKBONES)]
    return score - report.printed_constant(n, "heldout_f1")


def printed_gains() -> pd.Series:
    """Return by backbone how much more its printed held-out F1 is on four species than on six."""
    six, four = (printed(n).set_index("backbone")["heldout_f1"].loc[list(BACKBONES)] for n in (3, 5))
    return four - six


def closing(frame: pd.DataFrame) -> str:
    """Return one sentence on the collapse from Table 3 or 5: what its trained rows with numbers here show.

    A collapse is shown by a row that is fitted and whose held-out margin lies below zero with its interval. Where few
    validation images say what is fitted, so does the sentence.
    """
    said = readings(frame)
    margins = frame[frame["column"] == f"heldout_f1{report.MARGIN}"].set_index("row")
    fitted = [row for row, words in said.items() if words.startswith(FITTED)]
    sides = Counter(side(margins.loc[row]) for row in fitted)
    kind = ", ".join(sorted(set(margins.loc[list(said), "evidence"])))
    n = int(frame.loc[(frame["column"] == "in_dist_f1") & frame["row"].isin(list(said)), "n_images"].min())
    few = f" What is fitted rests on {n} validation images only." if n < FEW else ""
    if not fitted:
        return f"On {kind} images none of {len(said)} trained rows is fitted: whether they collapse is open.{few}"
    return (f"On {kind} images {len(fitted)} of {len(said)} trained rows are fitted; of these {sides['below']} lie "
            f"below the constant predictor on held-out combinations, {sides['above']} above it, and "
            f"{sides['cannot be told from']} cannot be told from it.{few}")  # fmt: skip
