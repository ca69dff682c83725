"""Comparisons on the same images: a decoder under several conditions, or several decoders, image by image.

Every comparison is paired: the same images, and in every resample the same combinations, so that what all conditions
share cancels in their differences (Appendix C.1 has the unit of resampling).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib import report
from phoebi_lib.compat import choice
from phoebi_lib.metrics import sample_f1
from phoebi_lib.studies.score_rows import score_rows

if TYPE_CHECKING:
    from phoebi_lib.decoders import Decoder
    from phoebi_lib.features import Pool
    from phoebi_lib.session import Run


def image_rows(decoder: Decoder, pool: Pool, rows: Sequence[int] | np.ndarray, **facts: Any) -> pd.DataFrame:
    """Return one row per image of ``pool`` at ``rows``: ``id, combination, frame``, ``y_``, ``score_`` and ``pred_``.

    ``facts`` become columns; so do ``evidence`` and, for a trained decoder, its number of ``updates``. Raises
    ``NotFittedError`` for a decoder that is not calibrated.
    """
    scores = decoder.decision_function(pool.take(rows))
    updates = int(getattr(decoder, "updates_", 0))
    return score_rows(pool, rows, scores, decoder.predict_scores(scores), **{"updates": updates, **facts})


def image_f1(rows: pd.DataFrame, by: Sequence[str], codes: Sequence[str]) -> pd.DataFrame:
    """Return the F1 of each image: one line per image (indexed by combination and id), one column per value of ``by``.

    Raises ValueError where an image lacks a column, or has it twice: a comparison would not be on the same images.
    """
    true, called = (rows[[f"{kind}_{code}" for code in codes]].to_numpy() for kind in ("y", "pred"))
    table = rows.assign(f1=sample_f1(true, called))
    wide = table.pivot(index=["combination", "id"], columns=list(by), values="f1").sort_index(axis=1)
    if wide.isna().any(axis=None):
        image = wide.index[wide.isna().any(axis=1)][0]
        raise ValueError(f"image {image[1]!r} was not scored under every condition; compare the same images")
    return wide


def resampled(table: pd.DataFrame, n: int, seed: int = 0) -> pd.DataFrame:
    """Return the column means of ``table`` (line ``-1``) and of ``n`` resamples of whole combinations (lines 0 on).

    ``table`` is indexed by combination first, as :func:`image_f1` returns it. Resamples are those of
    :func:`phoebi_lib.intervals.bootstrap`, and any quantity made line by line from the means has its interval in
    :func:`interval`.
    """
    groups = table.groupby(level=0, sort=True)
    sums, sizes = groups.sum(), groups.size().to_numpy()
    units, generator = len(sizes), np.random.default_rng(seed)
    draws = (generator.choice(units, size=units, replace=True) for _ in range(n))
    counts = np.array([np.ones(units, dtype=int), *(np.bincount(draw, minlength=units) for draw in draws)])
    means = counts @ sums.to_numpy() / (counts @ sizes)[:, None]
    return pd.DataFrame(means, columns=table.columns, index=range(-1, n))


def interval(quantity: pd.Series) -> dict[str, float]:
    """Return ``value`` (line -1) and the ends ``low``, ``high`` of the 95 % interval of a quantity over resamples."""
    low, high = np.percentile(quantity.iloc[1:], [2.5, 97.5])
    return {"value": float(quantity.iloc[0]), "low": float(low), "high": float(high)}


def resampled_macro_f1(rows: pd.DataFrame, codes: Sequence[str], n: int) -> pd.Series:
    """Return macro F1 of the rows of one method, and of ``n`` resamples, line by line as :func:`resampled`.

    F1 of a species is ``2 hits / (present + called)``, 0 where it is neither, and needs only the means of the two.
    """
    true, called = (rows[[f"{kind}_{code}" for code in codes]].to_numpy() for kind in ("y", "pred"))
    index = pd.Index(rows["combination"])
    hits, either = (
        resampled(pd.DataFrame(values, index, list(codes)), n) for values in (true * called, true + called)
    )
    return (2 * hits / either.where(either > 0, 1.0)).mean(axis=1)


def resampled_exact_match(rows: pd.DataFrame, codes: Sequence[str], n: int) -> pd.Series:
    """Return the share of images of one method with every species right, as :func:`resampled_macro_f1`."""
    true, called = (rows[[f"{kind}_{code}" for code in codes]].to_numpy() for kind in ("y", "pred"))
    right = (true == called).all(axis=1).astype(float)
    return resampled(pd.DataFrame({"exact": right}, pd.Index(rows["combination"])), n)["exact"]


def with_constant(rows: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """Return rows of several methods and, as the method "AllPresent", the constant predictor on the same images."""
    first = rows[rows["method"] == rows["method"].iloc[0]]
    return pd.concat([rows, first.assign(method="AllPresent", **{f"pred_{code}": 1 for code in codes})])


def margins(column: str, f1: pd.Series, constant: pd.Series) -> dict[str, dict[str, float]]:
    """Return the cells of a score over resamples and of its margin over that of the constant predictor."""
    return {column: interval(f1), f"{column}{report.MARGIN}": interval(f1 - constant)}


def resamples(run: Run) -> int:
    """Return the number of resamples of a run: that of its profile, else what ``compat`` says."""
    return run.limits.resamples or choice("resamples", run.compat)


def counts(rows: pd.DataFrame) -> dict[str, Any]:
    """Return what a tidy line says of its images: ``n_images``, ``n_frames``, ``n_combinations`` and ``evidence``.

    ``updates`` too, where all rows are of decoders with the same number.
    """
    images = rows.drop_duplicates("id")
    updates = {"updates": int(rows["updates"].iloc[0])} if rows["updates"].nunique() == 1 else {}
    return updates | {
        "n_images": len(images),
        "n_frames": len(images[["combination", "frame"]].drop_duplicates()),
        "n_combinations": images["combination"].nunique(),
        "evidence": rows["evidence"].iloc[0],
    }


def lines(row: str, columns: Mapping[str, Mapping[str, float]], common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return tidy lines of one row: column -> what :func:`interval` returns, or a plain ``{"value": ...}``."""
    return [{"row": row, "column": column, **numbers, **common} for column, numbers in columns.items()]


def tidy(made: list[dict[str, Any]], name: str, run: Run, partition: str = "random") -> pd.DataFrame:
    """Return tidy lines as the checked table ``name`` of a run."""
    facts = {"profile": run.profile, "dataset": run.dataset, "encoder": run.encoder, "seed": run.seed}
    return report.table(made, table=name, partition=partition, **facts)


def beside(
    frame: pd.DataFrame,
    columns: Mapping[str, str],
    *,
    places: int = 4,
    sign: bool = False,
    intervals: bool = True,
    heading: str = "row",
) -> pd.DataFrame:
    """Return the rows of a tidy table that have one of ``columns`` as read: under each of ours the printed one.

    ``columns`` maps tidy columns to headings. Numbers are texts with ``places`` decimals (``sign``: and a plus sign),
    ours with their intervals. The last column is the difference, quantity by quantity, where both rest on the same
    images or labels, and "not comparable" elsewhere.
    """
    shown = []
    for row, group in frame[frame["column"].isin(list(columns))].groupby("row", sort=False):
        mine = group.set_index("column")

        def cell(column: str, which: str, mine: pd.DataFrame = mine) -> str:
            if column not in mine.index or np.isnan(mine.loc[column, which]):
                return "–"
            text = report.at_digits(mine.loc[column, which], places, sign)
            if which == "paper" or not intervals or np.isnan(mine.loc[column, "low"]):
                return text
            low, high = (report.at_digits(mine.loc[column, end], places, sign) for end in ("low", "high"))
            return f"{text} [{low},\u00a0{high}]"

        both = [line for _, line in group.iterrows() if not np.isnan(line["paper"])]
        differences = dict.fromkeys(
            report.at_digits(line["value"] - line["paper"], places, sign=True)
            if line["evidence"] in ("exact", "paper") else report.NOT_COMPARABLE
            for line in both
        )  # fmt: skip
        ours, paper = ({name: cell(column, which) for column, name in columns.items()} for which in ("value", "paper"))
        shown.append({heading: row, "numbers": f"here ({group['evidence'].iloc[0]})", **ours,
                      "difference": ", ".join(differences) or "–"})  # fmt: skip
        if set(paper.values()) != {"–"}:
            shown.append({heading: row, "numbers": "paper", **paper, "difference": "–"})
    return pd.DataFrame(shown)
