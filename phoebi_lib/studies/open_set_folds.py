"""From open-set rows to numbers: AUROC, AUPR and FPR95 per left-out species, and bootstrap intervals; no torch.

All images of a combination are unknown together or known together. The AUROC of any resample of whole combinations
follows from how often the images of one outscore those of another, counted once; no resample touches the images again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from phoebi_lib.intervals import Resamples
from phoebi_lib.metrics import aupr, auroc, fpr_at_tpr

Resampled = np.ndarray  # (1 + n,): a number on all images, then on each resample


def fold_metrics(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line per left-out species and score of the rows of :func:`~phoebi_lib.openworld.harness.run_open_set`.

    Columns: ``held_out``, ``score``, ``auroc``, ``aupr``, ``fpr_at_95_tpr`` (unknown = positive), ``unknown_images``,
    ``kept_images``, ``bank_tiles``, and the counts ``n_images``, ``n_frames``, ``n_combinations``.
    """
    lines = []
    for (held_out, score), group in rows.groupby(["held_out", "score"], sort=False):
        unknown, value = group["unknown"].to_numpy(), group["value"].to_numpy()
        lines.append({
            "held_out": held_out, "score": score, "auroc": auroc(unknown, value), "aupr": aupr(unknown, value),
            "fpr_at_95_tpr": fpr_at_tpr(unknown, value, 0.95), "unknown_images": int(unknown.sum()),
            "kept_images": int(group["kept_images"].iloc[0]), "bank_tiles": int(group["bank_tiles"].iloc[0]),
            **counts(group),
        })  # fmt: skip
    return pd.DataFrame(lines)


def counts(rows: pd.DataFrame) -> dict[str, int]:
    """Return ``n_images``, ``n_frames`` and ``n_combinations`` of rows that may hold an image several times."""
    return {
        "n_images": int(rows["id"].nunique()),
        "n_frames": len(rows[["combination", "frame"]].drop_duplicates()),
        "n_combinations": int(rows["combination"].nunique()),
    }


def resampled_auroc(
    rows: pd.DataFrame, by: Sequence[str] = ("held_out", "score"), *, n: int = 2000, seed: int = 0
) -> dict[tuple, Resampled]:
    """Return the AUROC of each group of rows on all images and on ``n`` resamples of whole combinations.

    Resamples are those of :func:`phoebi_lib.intervals.bootstrap` over all combinations in ``rows``, the same for every
    group, so that means over groups and differences between them are paired. NaN where a resample lacks unknown or
    known images.

    Args:
        rows: with ``combination``, ``unknown`` (0/1), ``value`` and the columns of ``by``.
        by: what tells the groups apart; a group's key is the tuple of its values.
        n, seed: number of resamples and seed of their generator.
    """
    resamples = Resamples(rows, "combination", n, seed)
    table = rows.reset_index(drop=True)
    return {
        key: resamples.auroc(group["unknown"], group["value"], group.index)
        for key, group in table.groupby(list(by), sort=False)
    }


def interval(numbers: Resampled) -> dict[str, float]:
    """Return ``value``, ``low`` and ``high``: the number, and the 2.5 and 97.5 percentiles of its resamples."""
    return dict(zip(("value", "low", "high"), Resamples.interval(numbers), strict=True))
