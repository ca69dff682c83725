"""The audit of the published choices: its list of 49 entries, and what its experiments share.

An experiment runs the published way and another one on the same images and reports the difference in the margin over
the constant predictor, with an interval over combinations (Appendix C.1). Where the two ways look at different images,
whole combinations are still drawn together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib import paper, report
from phoebi_lib.catalogue import CODES
from phoebi_lib.intervals import Resamples
from phoebi_lib.label_only import DATASET
from phoebi_lib.metrics import sample_f1
from phoebi_lib.protocols import METHODS
from phoebi_lib.splits import PARTITION_SEEDS
from phoebi_lib.splits import partition as split
from phoebi_lib.studies.score_rows import score_rows

if TYPE_CHECKING:
    from phoebi_lib.decoders import Decoder
    from phoebi_lib.pool import Pool
    from phoebi_lib.session import Run

DECODERS = ("SimplexUnmix", "ProtoMatch", "ChannelGroup")
#: Partition and training seed: the random split, and the three published partitions.
RUNS = (("random", PARTITION_SEEDS[0]), *((f"lco-{seed}", seed) for seed in PARTITION_SEEDS))
#: What an entry of the audit may be.
KINDS = ("experiment", "label-only", "by design", "left alone")
RESTS_ON = {
    "exact": "exact: no image involved",
    "simulated": "simulated images",
    "stand-in": "stand-in weights",
    "paper": "published images",
    "user": "other images",
}
_DASH = "–"
_NBSP = "\u00a0"


def entries() -> pd.DataFrame:
    """Return the audit's list: ``id`` (D1 to D49), ``topic``, ``published``, ``ours``, ``where``, ``kind``, ``page``.

    ``where`` names modules of the library; ``page`` the notebook with the experiment, empty where there is none.
    Raises ValueError for a line of unknown kind, or an experiment without a page.
    """
    frame = pd.read_csv(Path(paper.__file__).parent / "tables" / "audit.csv", dtype=str, keep_default_na=False)
    if unknown := set(frame["kind"]) - set(KINDS):
        raise ValueError(f"audit.csv: unknown kind {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    homeless = frame.loc[(frame["kind"] == "experiment") & (frame["page"] == ""), "id"]
    if len(homeless):
        raise ValueError(f"audit.csv: {', '.join(homeless)} is an experiment without a page")
    return frame


def with_margin(rows: pd.DataFrame, codes: Sequence[str] = CODES) -> pd.DataFrame:
    """Return ``rows`` (one per image, ``y_`` and ``pred_`` columns) with ``f1`` and ``margin`` of each image.

    The margin is the image's F1 minus that of the predictor that marks every species; its mean over images is the
    margin of the tables.
    """
    true, called = (rows[[f"{kind}_{code}" for code in codes]].to_numpy().astype(int) for kind in ("y", "pred"))
    f1 = sample_f1(true, called)
    return rows.assign(f1=f1, margin=f1 - sample_f1(true, np.ones_like(true)))


def called_rows(pool: Pool, rows: np.ndarray, scores: np.ndarray, thresholds: np.ndarray, **facts: Any) -> pd.DataFrame:
    """Return one row per image of ``pool`` at ``rows``, from its scores (N, K) and thresholds (K,).

    Columns ``id, combination, frame``, per species ``y_``, ``score_`` and ``pred_``, ``evidence``, the ``facts``, and
    those of :func:`with_margin`. Present means strictly above the threshold.
    """
    return with_margin(score_rows(pool, rows, scores, scores > thresholds, **facts), pool.codes)


def run_method(
    decoder: Decoder,
    train: tuple[Pool, np.ndarray],
    calibrate: tuple[Pool, np.ndarray],
    asked: Mapping[str, tuple[Pool, np.ndarray]],
    **facts: Any,
) -> pd.DataFrame:
    """Fit, calibrate, and return one row per image of each part ``asked``, with ``f1`` and ``margin``.

    Each part is (pool, row positions), so that the three may come from pools of different front-ends. ``facts``
    become columns.
    """
    pool, rows = train
    decoder.fit(pool.take(rows), pool.Y[rows])
    pool, rows = calibrate
    decoder.calibrate(pool.take(rows), pool.Y[rows])
    tables = []
    for part, (pool, rows) in asked.items():
        scores = decoder.decision_function(pool.take(rows))
        tables.append(called_rows(pool, rows, scores, decoder.thresholds_, part=part, **facts))
    return pd.concat(tables, ignore_index=True)


def mean(
    rows: pd.DataFrame, column: str = "margin", *, unit: str | Sequence[str] = "combination", n: int = 2000
) -> tuple[float, float, float]:
    """Return ``(value, low, high)``: the mean of a column over images, with its 95 % interval over ``unit``."""
    resamples = Resamples(rows, unit, n)
    return resamples.interval(resamples.ratio(rows[column].to_numpy(dtype=float), np.ones(len(rows))))


def difference(
    first: pd.DataFrame,
    second: pd.DataFrame,
    column: str = "margin",
    *,
    unit: str | Sequence[str] = "combination",
    n: int = 2000,
) -> tuple[float, float, float]:
    """Return ``(value, low, high)``: the mean of a column over ``first`` minus that over ``second``.

    Every resample takes the same units in both tables, whether or not they hold the same images; resamples in which
    one of them has no image are left out.
    """
    both = pd.concat([first, second], ignore_index=True)
    mine = (np.arange(len(both)) < len(first)).astype(float)
    resamples = Resamples(both, unit, n)
    values = both[column].to_numpy(dtype=float)
    parts = [resamples.ratio(values * chosen, chosen) for chosen in (mine, 1 - mine)]
    return resamples.interval(parts[0] - parts[1])


def sizes(rows: pd.DataFrame) -> dict[str, Any]:
    """Return ``n_images``, ``n_frames``, ``n_combinations`` and ``evidence`` of rows, each image counted once."""
    images = rows.drop_duplicates(["combination", "id"])
    frames = images[["combination", "frame"]].drop_duplicates()
    return {"n_images": len(images), "n_frames": len(frames), "n_combinations": images["combination"].nunique(),
            "evidence": rows["evidence"].iloc[0]}  # fmt: skip


def line(row: str, column: str, found: tuple[float, float, float], rows: pd.DataFrame, **more: Any) -> dict[str, Any]:
    """Return a tidy line of ``(value, low, high)`` and of the sizes of the rows it was computed from."""
    value, low, high = found
    return {"row": row, "column": column, "value": value, "low": low, "high": high, **sizes(rows), **more}


def exact(row: str, column: str, value: float, **more: Any) -> dict[str, Any]:
    """Return a tidy line of a number that follows from the published lists, or from the front-end's arithmetic."""
    common = {"evidence": "exact", "dataset": DATASET, "encoder": ""}
    return {"row": row, "column": column, "value": float(value), **common, **more}


def shown(frame: pd.DataFrame, headings: Mapping[str, str] | None = None, places: int = 3) -> pd.DataFrame:
    """Return a tidy table as it is read, all texts: what a number is, the number, its interval, and what it rests on.

    ``headings`` names columns in words; whole numbers are shown without decimals, differences with their sign.
    """
    headings, lines = dict(headings or {}), []
    several = frame["partition"].nunique() > 1
    for found in frame.to_dict("records"):
        sign = any(word in found["column"] for word in ("margin", "difference", "siblings"))
        digits = places if pd.isna(found["digits"]) else int(found["digits"])
        # a printed number keeps its decimals; ours beside it may show more
        own = digits if pd.isna(found["paper"]) else max(digits, places)
        texts = [_number(found[name], own, sign) for name in ("value", "low", "high")]
        texts.append(_number(found["paper"], digits, sign))
        part = f" · {found['partition']}" if several and found["partition"] else ""
        row = {
            "case": found["row"] + part,
            "quantity": headings.get(found["column"], found["column"].replace("_", " ")),
            "value": texts[0],
            "95 % interval": _DASH if texts[1] == _DASH else f"[{texts[1]},{_NBSP}{texts[2]}]",
            "n": _count(found),
            "rests on": RESTS_ON[found["evidence"]],
        }
        lines.append(row | ({"printed": texts[3]} if frame["paper"].notna().any() else {}))
    return pd.DataFrame(lines)


def _number(value: float, digits: int, sign: bool) -> str:
    if pd.isna(value):
        return _DASH
    return report.at_digits(value, digits, sign=sign) if digits else f"{value:,.0f}"


def _count(found: Mapping[str, Any]) -> str:
    names = {"n_frames": "frames", "n_images": "images", "n_combinations": "combinations"}
    return ", ".join(f"{found[key]:,} {name}" for key, name in names.items() if not pd.isna(found[key])) or _DASH


def reading(found: tuple[float, float, float], more: str, less: str, open_: str, places: int = 3) -> str:
    """Return the sentence that an interval allows: ``more`` above zero, ``less`` below, else "not resolved: ...".

    The number with its interval is appended. An interval without width around zero says that no image changes.
    """
    value, low, high = found
    if np.abs(found).max() < 1e-9:  # sums in another order leave a last bit
        return "no image changes its score"
    text = more if low > 0 else less if high < 0 else f"not resolved: {open_}"
    ends = [_number(end, places, sign=True) for end in (value, low, high)]
    return f"{text} ({ends[0]} [{ends[1]}, {ends[2]}])"


def decoder_of(method: str, partition: str, compat: str, seed: int) -> Decoder:
    """Return a fresh decoder of :data:`phoebi_lib.protocols.METHODS`, as the harness makes it for ``partition``."""
    factory, settings = METHODS[method]
    return factory(partition, compat, random_state=seed, device="cpu", **settings)


def run_ways(
    ways: Mapping[str, tuple[Pool, Pool]],
    compat: str,
    *,
    methods: Sequence[str] = DECODERS,
    runs: Sequence[tuple[str, int]] = RUNS,
) -> pd.DataFrame:
    """Return test rows of ``methods`` under several ways: one line per image, way, method and partition.

    A way is (pool to train and calibrate on, pool to ask), both of the same images in the same order. ``kind`` says
    ``in_dist`` for the random split and ``heldout`` for leave-combinations-out; validation always takes whole frames,
    since the published shuffle is not defined on a part of the images.
    """
    # ways that train on the same pool share its decoders
    pools = {id(pool): pool for pool, _ in ways.values()}
    tables = {way: [] for way in ways}
    for key, pool in pools.items():
        for partition, seed in runs:
            parts = split(pool.manifest, partition, grouping="frame", codes=pool.codes)
            for method in methods:
                mine = {way: queries for way, (trained, queries) in ways.items() if id(trained) == key}
                asked = {way: (queries, parts["test"]) for way, queries in mine.items()}
                decoder = decoder_of(method, partition, compat, seed)
                facts = {"method": method, "partition": partition, "kind": kind_of(partition)}
                rows = run_method(decoder, (pool, parts["train"]), (pool, parts["val"]), asked, **facts)
                for way in mine:
                    tables[way].append(rows[rows["part"] == way].assign(part="test", way=way))
    return pd.concat([table for way in ways for table in tables[way]], ignore_index=True)


def kind_of(partition: str) -> str:
    """Return ``in_dist`` for the random split, ``heldout`` for partitions that leave combinations out."""
    return "in_dist" if partition == "random" else "heldout"


def way_lines(rows: pd.DataFrame, base: str, n: int = 2000) -> list[dict[str, Any]]:
    """Return tidy lines of :func:`run_ways`: each way's margin, and its difference to the way ``base``.

    Rows are called "<method>, <way>", columns ``in_dist_margin``, ``in_dist_difference`` and the same for ``heldout``.
    The unit of resampling is the combination, over all partitions of a kind.
    """
    lines = []
    for (kind, method), group in rows.groupby(["kind", "method"], sort=False):
        reference = group[group["way"] == base]
        for way, mine in group.groupby("way", sort=False):
            row, partition = f"{method}, {way}", "random" if kind == "in_dist" else "lco"
            lines.append(line(row, f"{kind}_margin", mean(mine, n=n), mine, partition=partition))
            if way != base:
                found = difference(mine, reference, n=n)
                lines.append(line(row, f"{kind}_difference", found, mine, partition=partition))
    return lines


def found(frame: pd.DataFrame, row: str, column: str, partition: str = "") -> tuple[float, float, float]:
    """Return ``(value, low, high)`` of one line of a tidy table. Raises KeyError where there is not exactly one."""
    fits = (frame["row"] == row) & (frame["column"] == column)
    fits &= (frame["partition"] == partition) if partition else True
    if fits.sum() != 1:
        raise KeyError(f"{int(fits.sum())} lines have row {row!r}, column {column!r}, partition {partition or 'any'!r}")
    one = frame[fits].iloc[0]
    return float(one["value"]), float(one["low"]), float(one["high"])


def publish(
    run: Run, entry: int, lines: list[dict[str, Any]], headings: Mapping[str, str] | None = None, places: int = 3
) -> pd.DataFrame:
    """Write the numbers of one entry as the tidy table "audit D<entry>" and as shown; return the tidy table.

    Both files are called ``audit_d<entry>``, with two digits. ``headings`` and ``places`` are those of :func:`shown`.
    """
    common = {"table": f"audit D{entry}", "profile": run.profile, "dataset": run.dataset, "encoder": run.encoder}
    frame = report.table(lines, **common)
    report.write_table(frame, f"audit_d{entry:02d}")
    report.book_table(shown(frame, headings, places), f"audit_d{entry:02d}")
    return frame
