"""Heads on frozen features, trained again: on fewer images, and with near copies of training images in validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib.progress import track
from phoebi_lib.splits import partition as split
from phoebi_lib.studies.audit import called_rows, decoder_of, difference, line, mean
from phoebi_lib.studies.collapse import HELD_OUT
from phoebi_lib.studies.paired import resamples

if TYPE_CHECKING:
    from phoebi_lib.pool import Pool
    from phoebi_lib.session import Run

#: Shares of the training images, and what a row calls them.
SHARES = {0.25: "a quarter", 0.5: "half", 1.0: "all"}
METHODS = ("AttentionMIL", "ChannelGroup", "LinearProbe")
#: Two divisions each of one partition: (what it is called, partition, how validation is grouped).
DIVISIONS = (
    ("released split", "random", "frame"),
    ("shuffled by image", "shuffled", "frame"),
    ("validation by frame", HELD_OUT, "frame"),
    ("validation by image", HELD_OUT, "image"),
)


def fewer(manifest: pd.DataFrame, rows: np.ndarray, share: float) -> np.ndarray:
    """Return of ``rows`` the images of each combination's first frames: a ``share`` of its frames, at least one."""
    frames = manifest.iloc[rows].groupby("combination", sort=False)["frame"]
    wanted = (share * frames.transform("nunique")).round().clip(lower=1)
    return rows[(frames.rank("dense") <= wanted).to_numpy()]


def head_rows(
    run: Run, pool: Pool, method: str, partition: str, *, grouping: str = "frame", share: float = 1.0, **facts: Any
) -> pd.DataFrame:
    """Train a method on a share of the training images and return its validation and test rows.

    Columns as :func:`phoebi_lib.studies.audit.with_margin`, ``part``, ``method``, ``partition``, ``share``, ``images``
    (of training), ``updates`` and the ``facts``. Thresholds and epochs are chosen on the whole validation part.
    """
    parts = split(pool.manifest, partition, grouping=grouping, codes=pool.codes)
    train = fewer(pool.manifest, parts["train"], share) if share < 1 else parts["train"]
    decoder = decoder_of(method, partition, run.compat, run.seed)
    validation = (pool.take(parts["val"]), pool.Y[parts["val"]])
    decoder.fit(pool.take(train), pool.Y[train], validation=validation).calibrate(*validation)
    common = {"method": method, "partition": partition, "share": share, "images": len(train),
              "updates": decoder.updates_, **facts}  # fmt: skip
    tables = []
    for part in ("val", "test"):
        scores = decoder.decision_function(pool.take(parts[part]))
        tables.append(called_rows(pool, parts[part], scores, decoder.thresholds_, part=part, **common))
    return pd.concat(tables, ignore_index=True)


def image_rows(run: Run, pool: Pool, partition: str, methods: Sequence[str] = METHODS) -> pd.DataFrame:
    """Return rows of ``methods`` on each of ``SHARES`` of the training images, in distribution and on ``partition``."""
    jobs = [(method, name, share) for method in methods for name in ("random", partition) for share in SHARES]
    tables = [head_rows(run, pool, method, name, share=share) for method, name, share in track(jobs, desc="images")]
    return pd.concat(tables, ignore_index=True)


def image_lines(run: Run, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return tidy lines: margins over the constant by method and share, and what the whole adds to the least share.

    Columns ``in_dist_margin`` (test images of the random split), ``heldout_margin`` and, in rows "<method>, all minus
    a quarter", ``in_dist_difference`` and ``heldout_difference``; intervals over combinations.
    """
    n, made = resamples(run), []
    test = rows[rows["part"] == "test"]
    for (method, partition), group in test.groupby(["method", "partition"], sort=False):
        kind = "in_dist" if partition == "random" else "heldout"
        by_share = dict(iter(group.groupby("share", sort=False)))
        for share, mine in by_share.items():
            facts = {"updates": int(mine["updates"].iloc[0]), "partition": partition}
            made.append(line(f"{method}, {SHARES[share]}", f"{kind}_margin", mean(mine, n=n), mine, **facts))
        least, *_, most = by_share
        gain = difference(by_share[most], by_share[least], n=n)
        row = f"{method}, {SHARES[most]} minus {SHARES[least]}"
        made.append(line(row, f"{kind}_difference", gain, by_share[most], partition=partition))
    return made


def leak_rows(run: Run, pool: Pool, methods: Sequence[str] = METHODS[:2]) -> pd.DataFrame:
    """Return rows of ``methods`` under each of ``DIVISIONS``, named in the column ``way``."""
    jobs = [(method, *division) for method in methods for division in DIVISIONS]
    return pd.concat(
        [head_rows(run, pool, method, name, grouping=grouping, way=way)
         for method, way, name, grouping in track(jobs, desc="divisions")],
        ignore_index=True,
    )  # fmt: skip


def leak_lines(run: Run, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return tidy lines: the margin of each method under each division, and what near copies add to it.

    Column ``margin``: over the constant, on test images in distribution and on validation images under
    leave-combinations-out; ``difference``: with near copies minus without.
    """
    n, made = resamples(run), []
    for method, group in rows.groupby("method", sort=False):
        for (clean, *_), (leaky, *_), part in ((*DIVISIONS[:2], "test"), (*DIVISIONS[2:], "val")):
            ways = [group[(group["way"] == one) & (group["part"] == part)] for one in (leaky, clean)]
            for mine in reversed(ways):
                row, facts = f"{method}, {mine['way'].iloc[0]}", {"updates": int(mine["updates"].iloc[0])}
                made.append(line(row, "margin", mean(mine, n=n), mine, partition=mine["partition"].iloc[0], **facts))
            found = difference(*ways, n=n)
            made.append(line(f"{method}, {leaky} minus {clean}", "difference", found, ways[0]))
    return made
