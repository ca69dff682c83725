"""Appendix C.2: what the decoders do on held-out combinations, order by order, species by species, score by score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.metrics import precision_recall_curve

from phoebi_lib import report
from phoebi_lib.catalogue import CODES, COMBINATIONS, order
from phoebi_lib.intervals import Resamples
from phoebi_lib.label_only import constant_at_order, label_only
from phoebi_lib.metrics import sample_f1
from phoebi_lib.scoring import scores
from phoebi_lib.splits import PARTITION_SEEDS, select_heldout
from phoebi_lib.studies.intervals_study import described, run_facts

#: The species whose pure culture is held out on the partition that this appendix describes, ``lco-1337``.
WITHOUT_PURE = "bt"
BINS = 10
PRECISION = 0.8
_THRESHOLDS = 400


def labels_table(profile: str = "") -> pd.DataFrame:
    """Return what Appendix C.2 says and labels alone decide, as a tidy table. Evidence "exact"."""
    exact = label_only(profile)
    constant = exact[(exact["table"] == "6") & (exact["column"] != "")].set_index("column")["value"]
    held = {seed: select_heldout(COMBINATIONS, seed) for seed in PARTITION_SEEDS}
    orders = [[np.mean([order(name) for name in names]) for names in pair] for pair in held.values()]
    with_it = [name for name in held[PARTITION_SEEDS[0]][0] if WITHOUT_PURE in name.split("_")]
    values = {
        ("constant predictor", "delta_f1"): constant["in_dist_val_f1"] - constant["heldout_f1"],
        ("constant predictor", "f1_order_1"): constant_at_order(1),
        (f"held-out combinations with {WITHOUT_PURE}", "constant_f1"): np.mean(
            [constant_at_order(order(name)) for name in with_it]
        ),
        ("order of combinations", "smallest_excess_heldout"): min(a - b for a, b in orders),
        ("held-out singletons", f"that_are_{WITHOUT_PURE}"): sum(WITHOUT_PURE in names for names, _ in held.values()),
        ("held-out singletons", "partitions"): len(held),
    }
    lines = [{"row": row, "column": column, "value": value} for (row, column), value in values.items()]
    table = report.table(lines, table="C.2 labels", evidence="exact", profile=profile, dataset="phoebi6")
    return report.add_quoted(table, {("constant predictor", "f1_order_1"): "constant_order_1"})


def order_table(rows: pd.DataFrame, codes: Sequence[str], n: int) -> pd.DataFrame:
    """Return F1 by number of species and its distance from the constant predictor, tidy (Figure 6 left, C.2).

    The mean of a combination in a partition is one observation, as in the figure. Columns ``f1_order_<k>`` and
    ``deviation_order_<k>``, F1 minus 2k / (k + K), with intervals over the pairs of that order; ``std_order_1``, the
    population standard deviation over the partitions' singletons; row "ProtoMatch over SimplexUnmix" has the ratio of
    these. Orders with one pair have no interval.
    """
    lines, spread = [], {}
    true, called = (rows[[f"{kind}_{code}" for code in codes]].to_numpy() for kind in ("y", "pred"))
    table = rows.assign(order=true.sum(axis=1), f1=sample_f1(true, called))
    for (method, k), mine in table.groupby(["method", "order"], sort=False):
        pairs = mine.groupby(["partition", "combination"])["f1"].mean().reset_index()
        resamples = Resamples(pairs, ["partition", "combination"], n)
        f1 = resamples.ratio(pairs["f1"], np.ones(len(pairs)))
        for name, values in (("f1", f1), ("deviation", f1 - constant_at_order(k, len(codes)))):
            value, low, high = Resamples.interval(values) if len(pairs) > 1 else (values[0], np.nan, np.nan)
            lines.append({**described(mine, method), "column": f"{name}_order_{k}", "value": value, "low": low,
                          "high": high})  # fmt: skip
        if k == 1:
            spread[method] = pairs["f1"].std(ddof=0)
            lines.append({**described(mine, method), "column": "std_order_1", "value": spread[method]})
    if spread.get("SimplexUnmix", 0) > 0 and "ProtoMatch" in spread:
        mine = table[(table["method"] == "ProtoMatch") & (table["order"] == 1)]
        ratio = spread["ProtoMatch"] / spread["SimplexUnmix"]
        lines.append({**described(mine, "ProtoMatch over SimplexUnmix"), "column": "std_order_1", "value": ratio})
    return report.table(lines, table="C.2 order curve", **run_facts(rows))


def error_table(rows: pd.DataFrame, codes: Sequence[str], n: int) -> pd.DataFrame:
    """Return per method what it calls on the test rows of one partition, tidy, with intervals over combinations.

    Columns per species: ``fpr_``, calls among images without it; ``fnr_``, misses among images with it; ``threshold_``;
    ``gap_``, mean score with it minus without; ``f1_`` and ``f1_<code>_margin``. Over species: ``called``, species
    called per image; ``all_called_percent``, images on which all are; ``exact_order_4``, exact matches from order 4 on;
    ``f1_with_<code>`` and its margin, per-sample F1 on the combinations with the species without a pure culture.
    """
    lines = []
    for method, mine in rows.groupby("method", sort=False):
        resamples = Resamples(mine, "combination", n)
        true, called, score = (mine[[f"{kind}_{code}" for code in codes]].to_numpy()
                               for kind in ("y", "pred", "score"))  # fmt: skip
        one = np.ones(len(mine))
        many = true.sum(axis=1) >= 4
        found = {"called": resamples.ratio(called.sum(axis=1), one),
                 "all_called_percent": 100 * resamples.ratio(called.all(axis=1), one),
                 "exact_order_4": resamples.ratio(many & (true == called).all(axis=1), many)}  # fmt: skip
        for k, code in enumerate(codes):
            there, absent = true[:, k], 1 - true[:, k]
            found[f"fpr_{code}"] = resamples.ratio(called[:, k] * absent, absent)
            found[f"fnr_{code}"] = resamples.ratio((1 - called[:, k]) * there, there)
            with_, without = (resamples.ratio(score[:, k] * which, which) for which in (there, absent))
            found[f"gap_{code}"] = with_ - without
        intervals = {column: Resamples.interval(values) for column, values in found.items()}
        intervals |= scores(mine, [f"f1_{code}" for code in codes], codes=codes, n=n)
        holding = mine[mine[f"y_{WITHOUT_PURE}"] == 1]
        inside = scores(holding, ["f1"], codes=codes, n=n)
        intervals |= {name.replace("f1", f"f1_with_{WITHOUT_PURE}", 1): value for name, value in inside.items()}
        lines += [{**described(mine, method), "column": column, "value": value, "low": low, "high": high}
                  for column, (value, low, high) in intervals.items()]  # fmt: skip
        for code in codes:
            cut = mine[f"threshold_{code}"].iloc[0]
            if np.isfinite(cut):  # infinity: never called
                lines.append({**described(mine, method), "column": f"threshold_{code}", "value": cut})
        low_cuts = sum(mine[f"threshold_{code}"].iloc[0] <= 0.05 for code in codes)
        lines.append({**described(mine, method), "column": "thresholds_up_to_0.05", "value": low_cuts})
    return report.table(_with_call_difference(lines, rows, codes, n), table="C.2 error rates", **run_facts(rows))


def _with_call_difference(lines: list[dict], rows: pd.DataFrame, codes: Sequence[str], n: int) -> list[dict]:
    """Return the lines and how many species fewer ChannelGroup calls than ProtoMatch, on the same images."""
    tables = {method: rows[rows["method"] == method].sort_values("id") for method in ("ChannelGroup", "ProtoMatch")}
    if any(table.empty for table in tables.values()):
        return lines
    sums = [table[[f"pred_{code}" for code in codes]].to_numpy().sum(axis=1) for table in tables.values()]
    resamples = Resamples(tables["ProtoMatch"], "combination", n)
    value, low, high = Resamples.interval(resamples.ratio(sums[0] - sums[1], np.ones(len(sums[0]))))
    common = described(tables["ChannelGroup"], "ChannelGroup minus ProtoMatch")
    return [*lines, {**common, "column": "called", "value": value, "low": low, "high": high}]


def reliability(rows: pd.DataFrame, codes: Sequence[str], bins: int = BINS) -> pd.DataFrame:
    """Return, per method and species, mean score and share of positives in ``bins`` bins of equal count (Figure 9).

    Images are sorted by score, ties in the order of the rows, and cut into bins whose sizes differ by at most one.
    Columns: ``method, code, bin, score, positives, images``.
    """
    lines = []
    for method, mine in rows.groupby("method", sort=False):
        for code in codes:
            where = _bins(mine[f"score_{code}"].to_numpy(), bins)
            grouped = mine.assign(bin=where).groupby("bin")
            table = {"score": grouped[f"score_{code}"].mean(), "positives": grouped[f"y_{code}"].mean()}
            lines.append(pd.DataFrame({"method": method, "code": code, **table, "images": grouped.size()}))
    return pd.concat(lines).reset_index()[["method", "code", "bin", "score", "positives", "images"]]


def _bins(score: np.ndarray, bins: int) -> np.ndarray:
    """Return the bin of each score, 0 to ``bins`` - 1."""
    where = np.empty(len(score), dtype=np.int64)
    for b, members in enumerate(np.array_split(np.argsort(score, kind="stable"), bins)):
        where[members] = b
    return where


def calibration_table(rows: pd.DataFrame, codes: Sequence[str], n: int, bins: int = BINS) -> pd.DataFrame:
    """Return how far scores are from shares of positives, tidy, with intervals over combinations.

    Columns: ``error_<code>``, the mean over images of the distance between score and share in the image's bin of
    :func:`reliability` (the bins stay those of all images in every resample); ``error``, its mean over species;
    ``excess_<code>``, mean score minus share of positives; ``slope_<code>``, the difference in share between the upper
    and the lower half of the bins; ``best``, the number of species for which the method's error is the smallest.
    """
    drawn, lines = {}, []
    for method, mine in rows.groupby("method", sort=False):
        resamples, one = Resamples(mine, "combination", n), np.ones(len(mine))
        found = {}
        for code in codes:
            score, there = mine[f"score_{code}"].to_numpy(), mine[f"y_{code}"].to_numpy()
            where = _bins(score, bins)
            gaps = [np.abs(resamples.total((score - there) * (where == b))) for b in range(bins)]
            found[f"error_{code}"] = np.sum(gaps, axis=0) / resamples.total(one)
            found[f"excess_{code}"] = resamples.ratio(score - there, one)
            halves = [resamples.ratio(there * half, half) for half in (where >= bins / 2, where < bins / 2)]
            found[f"slope_{code}"] = halves[0] - halves[1]
        found["error"] = np.mean([found[f"error_{code}"] for code in codes], axis=0)
        drawn[method] = (mine, found)
    errors = np.array([[found[f"error_{code}"] for code in codes] for _, found in drawn.values()])  # (M, K, n + 1)
    best = (errors == errors.min(axis=0)).sum(axis=1)
    for (method, (mine, found)), count in zip(drawn.items(), best, strict=True):
        for column, values in {**found, "best": count.astype(float)}.items():
            value, low, high = Resamples.interval(values)
            lines.append({**described(mine, method), "column": column, "value": value, "low": low, "high": high})
    return report.table(lines, table="C.2 calibration", **run_facts(rows))


def precision_recall(rows: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """Return the points of every method's and species' precision-recall curve: ``method, code, precision, recall``."""
    lines = []
    for method, mine in rows.groupby("method", sort=False):
        for code in codes:
            precision, recall, _ = precision_recall_curve(mine[f"y_{code}"], mine[f"score_{code}"])
            lines.append(pd.DataFrame({"method": method, "code": code, "precision": precision, "recall": recall}))
    return pd.concat(lines, ignore_index=True)


def precision_table(rows: pd.DataFrame, codes: Sequence[str], n: int, precision: float = PRECISION) -> pd.DataFrame:
    """Return ``recall_<code>``, the largest recall at which a method is right in ``precision`` of its calls, tidy.

    0 where no threshold reaches that precision. Thresholds are the distinct scores (400 quantiles of them where there
    are more); intervals are over combinations. ``base_<code>`` is the share of images with the species, the precision
    of calling it everywhere.
    """
    lines = []
    for method, mine in rows.groupby("method", sort=False):
        resamples = Resamples(mine, "combination", n)
        for code in codes:
            score, there = mine[f"score_{code}"].to_numpy(), mine[f"y_{code}"].to_numpy()
            cuts = np.unique(score)
            if len(cuts) > _THRESHOLDS:
                cuts = np.quantile(cuts, np.linspace(0, 1, _THRESHOLDS))
            every = resamples.total(there)
            best = np.zeros(len(every))
            for cut in cuts:
                called = (score >= cut).astype(float)
                hits, calls = resamples.total(called * there), resamples.total(called)
                reached = (calls > 0) & (hits >= precision * calls - 1e-9) & (every > 0)
                best = np.where(reached, np.maximum(best, hits / np.maximum(every, 1)), best)
            for column, values in ((f"recall_{code}", np.where(every > 0, best, np.nan)),
                                   (f"base_{code}", resamples.ratio(there, np.ones(len(mine))))):  # fmt: skip
                value, low, high = Resamples.interval(values)
                lines.append({**described(mine, method), "column": column, "value": value, "low": low, "high": high})
    return report.table(lines, table="C.2 precision", **run_facts(rows))


def examples(rows: pd.DataFrame, codes: Sequence[str] = CODES) -> pd.DataFrame:
    """Return telling images of the rows of one method: what was there, what was called.

    Columns: ``kind, id, combination, f1, there, called, missed, invented``, species as texts; kinds: the image with the
    most invented species, the one with the most missed, and the best one that is not all species; ties by id.
    """
    true, called = (rows[[f"{kind}_{code}" for code in codes]].to_numpy().astype(bool) for kind in ("y", "pred"))
    names = np.array(codes)

    def text(which: np.ndarray) -> list[str]:
        return [" ".join(names[line]) or "none" for line in which]

    table = pd.DataFrame({
        "id": rows["id"].to_numpy(), "combination": rows["combination"].to_numpy(), "f1": sample_f1(true, called),
        "there": text(true), "called": text(called), "missed": text(true & ~called), "invented": text(called & ~true),
        "n_missed": (true & ~called).sum(axis=1), "n_invented": (called & ~true).sum(axis=1),
        "every": called.all(axis=1) | true.all(axis=1),
    }).sort_values("id")  # fmt: skip
    chosen = [
        ("most invented", table.sort_values(["n_invented", "id"], ascending=[False, True]).iloc[0]),
        ("most missed", table.sort_values(["n_missed", "id"], ascending=[False, True]).iloc[0]),
        ("best", table.sort_values(["every", "f1", "id"], ascending=[True, False, True]).iloc[0]),
    ]
    columns = ["id", "combination", "f1", "there", "called", "missed", "invented"]
    return pd.DataFrame([{"kind": kind, **line[columns]} for kind, line in chosen])

