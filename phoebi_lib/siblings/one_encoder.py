"""One encoder, four benchmarks: what frozen features of the same network are worth on PHOEBI and on its siblings.

Each line is a share of what there is to gain, ``(value - floor) / (1 - floor)``: 0 is what an answer without a picture
gets, 1 is perfect. Only quantities that are better when larger, and at most 1, can be read so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from phoebi_lib import scoring
from phoebi_lib.encoder_records import get_record
from phoebi_lib.report import MARGIN
from phoebi_lib.siblings.bioeval.evaluate import evaluate as evaluate_bioeval
from phoebi_lib.siblings.fungitastic.evaluate import evaluate as evaluate_fungitastic
from phoebi_lib.siblings.needl.evaluate import evaluate as evaluate_needl
from phoebi_lib.siblings.run import start

if TYPE_CHECKING:
    from phoebi_lib.session import Run

COLUMNS = ["benchmark", "task", "metric", "variant", "value", "floor", "n_images"]
EVALUATE = {
    "fungitastic": evaluate_fungitastic, "needl": partial(evaluate_needl, sides=(256,)), "bioeval": evaluate_bioeval,
}  # fmt: skip
#: One quantity of each task that has a floor and is at most 1: what the heat map shows.
MAIN = (
    ("phoebi", "in distribution"), ("phoebi", "held-out combinations"),
    ("fungitastic", "Top-1, linear probe, test"), ("fungitastic", "Top-1, centroid"), ("fungitastic", "AUC, NM"),
    ("needl", "pixel AUROC, class mean"), ("needl", "F1, class mean"),
    ("bioeval", "all nine right"), ("bioeval", "micro accuracy"), ("bioeval", "macro-F1"),
    ("bioeval", "accuracy, all"), ("bioeval", "accuracy, 1-shot"), ("bioeval", "Diff, accuracy of SimpleShot"),
    ("bioeval", "Align, accuracy"),
)  # fmt: skip
TITLES = {"phoebi": "PHOEBI", "fungitastic": "FungiTastic", "needl": "NEEDL-Bench", "bioeval": "BioCLIP 2 eval"}


def phoebi(rows: Mapping[str, pd.DataFrame], partition: str, codes: Sequence[str]) -> pd.DataFrame:
    """Return PHOEBI's own lines: per-sample F1 of each method on the test images of a partition.

    Args:
        rows: rows of :func:`phoebi_lib.protocols.run_partition` by encoder.
        partition: its name; the held-out combinations are the test images of an ``lco`` partition.
        codes: species in class order.

    Returns:
        ``encoder`` and the columns ``COLUMNS``; the floor is the all-present predictor's F1 on the same images.
    """
    task = "held-out combinations" if partition.startswith("lco-") else "in distribution"
    lines = []
    for name, its in rows.items():
        for method, part in its[its["part"] == "test"].groupby("method", sort=False):
            if method == "AllPresent":
                continue
            found = scoring.scores(part, ["f1"], codes=codes, n=1)
            value = found["f1"][0]
            lines.append({
                "encoder": name, "benchmark": "phoebi", "task": task, "metric": f"per-sample F1, {method}",
                "variant": "paper", "value": value, "floor": value - found["f1" + MARGIN][0], "n_images": len(part),
            })  # fmt: skip
    return pd.DataFrame(lines)


def siblings(run: Run, encoders: Iterable[str], data: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return every line of the three siblings for each encoder: ``encoder`` and the columns ``COLUMNS``.

    Args:
        run: gives profile and, as everywhere, device and stores; the siblings' protocols are seeded 0, as published.
        encoders: names of the registry; their weights must be here.
        data: folder of a benchmark's published data; the synthetic fixture of those that are left out or "".

    Raises:
        ValueError: an unknown benchmark, or as the loaders and protocols.
        WeightsNotFoundError: an encoder without weights on this machine.
    """
    data = dict(data or {})
    if unknown := set(data) - set(EVALUATE):
        raise ValueError(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(EVALUATE)}")
    tables = []
    for benchmark, evaluate in EVALUATE.items():
        for name in encoders:
            its = start(benchmark, profile=run.profile, encoder=name, data=data.get(benchmark, ""), seed=0)
            tables.append(evaluate(its).assign(encoder=name, benchmark=benchmark)[["encoder", *COLUMNS]])
    return pd.concat(tables, ignore_index=True)


def gained(table: pd.DataFrame) -> pd.Series:
    """Return ``(value - floor) / (1 - floor)`` of each line, NaN without a floor or where the floor is 1."""
    room = 1 - table["floor"]
    return ((table["value"] - table["floor"]) / room).where(room > 0)


def side_by_side(table: pd.DataFrame, what: str = "value") -> pd.DataFrame:
    """Return one line per benchmark, task, metric and variant, and one column per encoder, in the given order."""
    keys = ["benchmark", "task", "metric", "variant"]
    order = {name: get_record(name).title for name in dict.fromkeys(table["encoder"])}
    wide = table.pivot_table(index=keys, columns="encoder", values=what, sort=False, dropna=False)
    # pivoting makes the product of all keys; only those that occur are lines
    present = pd.MultiIndex.from_frame(table[keys].drop_duplicates())
    return wide.reindex(present)[list(order)].rename(columns=order)


def main_lines(table: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of ``table`` that :data:`MAIN` names by task (PHOEBI) or metric, without oracle thresholds."""
    keys = table["metric"].where(table["benchmark"] != "phoebi", table["task"])
    named = pd.Series(list(zip(table["benchmark"], keys, strict=True)), index=table.index).isin(MAIN)
    return table[named & ~table["variant"].isin(("oracle", "reference_code"))]
