"""Tables 20 and 21 and the numbers of Appendix D.2 as tidy tables, from the rows of the open-set harness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from phoebi_lib import report
from phoebi_lib.paper import quoted
from phoebi_lib.plots import GREY, INK, METHOD_STYLES
from phoebi_lib.studies.decoder_tables import side_by_side
from phoebi_lib.studies.open_set_folds import Resampled, counts, fold_metrics, interval, resampled_auroc

_DASH = "–"
#: Our score -> the row of Table 20.
TABLE_20 = {
    "residual": "residual norm (SimplexUnmix)",
    "max cosine": "−max cosine (ProtoMatch)",
    "energy 1.0": "energy (T=1.0)",
    "energy 0.1": "energy (T=0.1)",
    "k-NN": "KNN (k=10)",
    "k-NN, own combination left out": "KNN (k=10), own combination left out of the bank (not in the paper)",
}
#: One colour a score; the prototype scores take those of the decoders whose prototypes they read.
COLOURS = {
    "residual": METHOD_STYLES["SimplexUnmix"][0],
    "max cosine": METHOD_STYLES["ProtoMatch"][0],
    "energy 1.0": GREY,
    "energy 0.1": "#CC79A7",
    "k-NN": METHOD_STYLES["ChannelGroup"][0],
    "k-NN, own combination left out": INK,
}
PROTOTYPE_SCORES = ("residual", "max cosine", "energy 1.0", "energy 0.1")
METRICS = ("auroc", "aupr", "fpr_at_95_tpr")
TEXT, VARIANTS = "D.2 open set", "D.2 variants"
BEST = ("tile", "k-NN", "mean")
#: Variants that differ from the paper's in one choice -> the printed inner AUROC (id of the quoted number).
ONE_CHANGE = {
    BEST: "openset_inner_auroc",
    ("tile", "k-NN / class", "mean"): "openset_normalised",
    ("tile", "k-NN", "q90"): "openset_percentile",
    ("tile", "k-NN", "max"): "openset_max",
    ("patch", "k-NN", "mean"): "openset_patch",
}


def aurocs(rows: pd.DataFrame, n: int) -> dict[tuple[str, str], Resampled]:
    """Return the AUROC of every (left-out species, score), and of ("mean", score), with ``n`` paired resamples."""
    found = resampled_auroc(rows, n=n)
    codes, scores = (list(dict.fromkeys(rows[column])) for column in ("held_out", "score"))
    return found | {("mean", score): np.mean([found[code, score] for code in codes], axis=0) for score in scores}


def table_20(rows: pd.DataFrame, resampled: dict[tuple[str, str], Resampled]) -> pd.DataFrame:
    """Return Table 20: mean and population standard deviation over the left-out species, beside the paper's.

    The interval of the mean AUROC resamples whole combinations, the same for every species.
    """
    lines = []
    for score, group in fold_metrics(rows).groupby("score", sort=False):
        row = {"row": TABLE_20[score]}
        for metric in METRICS:
            values = group[metric].to_numpy()
            mean = interval(resampled["mean", score]) if metric == "auroc" else {"value": values.mean()}
            lines += [{**row, "column": metric, **mean}, {**row, "column": f"{metric}_std", "value": values.std()}]
    return report.add_paper(_tidy(lines, "20", rows), 20)


def table_21(rows: pd.DataFrame, resampled: dict[tuple[str, str], Resampled]) -> pd.DataFrame:
    """Return Table 21: the k-NN score and the AUROC of the residual for each left-out species, beside the paper's."""
    metrics = fold_metrics(rows).set_index(["held_out", "score"])
    codes = list(dict.fromkeys(rows["held_out"]))
    lines = []
    for code in codes:
        for score, name in (("k-NN", "knn"), ("residual", "residual")):
            lines.append({"row": code, "column": f"{name}_auroc", **interval(resampled[code, score])})
        for metric in METRICS[1:]:
            lines.append({"row": code, "column": f"knn_{metric}", "value": metrics.loc[(code, "k-NN"), metric]})
    columns = [("knn", "k-NN", metric) for metric in METRICS] + [("residual", "residual", "auroc")]
    for name, score, metric in columns:
        values = metrics.xs(score, level="score")[metric]
        ends = interval(resampled["mean", score]) if metric == "auroc" else {"value": values.mean()}
        lines.append({"row": "mean", "column": f"{name}_{metric}", **ends})
        lines.append({"row": "mean", "column": f"{name}_{metric}_std", "value": values.std(ddof=0)})
    return report.add_paper(_tidy(lines, "21", rows), 21)


def text_numbers(rows: pd.DataFrame, resampled: dict[tuple[str, str], Resampled]) -> pd.DataFrame:
    """Return the numbers of the running text: gains, spreads, and how alike the scores are; differences are paired."""
    codes = list(dict.fromkeys(rows["held_out"]))
    said = quoted().set_index("id")
    lines = []

    def line(row: str, column: str, numbers: Resampled | float, key: str = "") -> None:
        ends = interval(numbers) if isinstance(numbers, np.ndarray) else {"value": float(numbers)}
        paper = {"paper": said.loc[key, "value"], "digits": said.loc[key, "digits"]} if key else {}
        lines.append({"row": row, "column": column, **ends, **paper})

    gains = {code: resampled[code, "k-NN"] - resampled[code, "residual"] for code in [*codes, "mean"]}
    for code, gain in gains.items():
        line("k-NN minus residual", code, gain, {"bt": "knn_bt_gain", "mean": "knn_mean_gain"}.get(code, ""))
    line("k-NN minus residual: bt minus the mean", "auroc", gains["bt"] - gains["mean"])
    won = sum(gains[code][0] > 0 for code in codes)
    line("folds on which k-NN beats the residual", "count", float(won), "folds_won")
    spread = {s: np.std([resampled[code, s] for code in codes], axis=0) for s in (*PROTOTYPE_SCORES, "k-NN")}
    for score, numbers in spread.items():
        line("spread over folds", score, numbers, "knn_std" if score == "k-NN" else "")
    for score in PROTOTYPE_SCORES:
        line("spread over folds minus that of k-NN", score, spread[score] - spread["k-NN"])
        line("k-NN minus prototype score", score, resampled["mean", "k-NN"] - resampled["mean", score])
    line("residual minus max cosine", "mean", resampled["mean", "residual"] - resampled["mean", "max cosine"])
    line("energy T=1.0 minus T=0.1", "mean", resampled["mean", "energy 1.0"] - resampled["mean", "energy 0.1"])
    others = np.max([resampled[code, "k-NN"] for code in codes if code != "ka"], axis=0)
    line("k-NN: ka minus the best other species", "auroc", resampled["ka", "k-NN"] - others)
    own_out = resampled["mean", "k-NN, own combination left out"]
    line("k-NN: own combination left out minus in", "mean", own_out - resampled["mean", "k-NN"])
    ranks = rank_correlation(rows, "residual", "max cosine")
    for code, value in ranks.items():
        line("rank correlation of residual and max cosine", code, value)
    line("rank correlation of residual and max cosine", "mean", float(np.mean(list(ranks.values()))))
    return _tidy(lines, TEXT, rows)


def rank_correlation(rows: pd.DataFrame, first: str, second: str) -> dict[str, float]:
    """Return by left-out species Spearman's correlation of two scores over the test images; -1..1."""
    wide = rows.pivot(index=["held_out", "id"], columns="score", values="value")
    folds = wide.groupby(level="held_out", sort=False)
    return {code: float(spearmanr(group[first], group[second]).statistic) for code, group in folds}


def variant_table(rows: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return the variants' mean AUROC over the inner pairs and over the left-out species, with paired differences.

    ``rows`` are those of :func:`~phoebi_lib.openworld.variants.variant_rows` for both units, with the columns that name
    the run. Rows of the result are called :func:`variant_name`; columns ``inner_auroc`` and ``outer_auroc``.
    """
    said = quoted().set_index("id")
    lines, means = [], {}
    for column, part in (("inner_auroc", rows[rows["inner"] != ""]), ("outer_auroc", rows[rows["inner"] == ""])):
        by = ("unit", "score", "aggregation", "outer", "inner")
        found = resampled_auroc(part, by, n=n)
        variants = dict.fromkeys(key[:3] for key in found)
        means[column] = {v: np.mean([a for key, a in found.items() if key[:3] == v], axis=0) for v in variants}
        for variant, numbers in means[column].items():
            key = ONE_CHANGE.get(variant) if column == "inner_auroc" else None
            paper = {"paper": said.loc[key, "value"], "digits": said.loc[key, "digits"]} if key else {}
            lines.append({"row": variant_name(variant), "column": column, **interval(numbers), **paper, **counts(part)})
    inner, sizes = means["inner_auroc"], counts(rows[rows["inner"] != ""])
    ends = {"lowest": ("argmin", "low"), "highest": ("argmax", "high")}
    plain = [variant for variant in inner if not variant[1].startswith("k-NN")]
    for name, (pick, end) in ends.items():
        chosen = inner[plain[int(getattr(np, pick)([inner[variant][0] for variant in plain]))]]
        paper = {"paper": said.loc["openset_others", end], "digits": said.loc["openset_others", "digits"]}
        row = f"{name} of the prototype scores' variants"
        lines.append({"row": row, "column": "inner_auroc", **interval(chosen), **paper, **sizes})
    others = [variant for variant in inner if variant != BEST]
    best_other = max(others, key=lambda variant: inner[variant][0])
    against = {variant_name(variant): variant for variant in ONE_CHANGE if variant != BEST}
    for name, variant in {**against, "the best other variant": best_other}.items():
        row = f"{variant_name(BEST)}, minus {name}"
        lines.append({"row": row, "column": "inner_auroc", **interval(inner[BEST] - inner[variant]), **sizes})
    return _tidy(lines, VARIANTS, rows)


def shown_20(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Table 20 as it is read: under each line of ours the printed one; texts only."""
    headings = {"auroc": "AUROC", "aupr": "AUPR", "fpr_at_95_tpr": "FPR95"}
    shown = side_by_side(frame, headings).rename(columns={"decoder": "score"})
    shown.insert(3, "[low, high] of AUROC", _ends(frame, shown["score"], shown["numbers"], "auroc"))
    shown["n"] = [str(frame["n_images"].iloc[0]) if text != "paper" else _DASH for text in shown["numbers"]]
    return shown


def shown_21(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Table 21 as it is read: under each species' line of ours the printed one; texts only."""
    headings = {"knn_auroc": "k-NN AUROC", "knn_aupr": "k-NN AUPR", "knn_fpr_at_95_tpr": "k-NN FPR95",
                "residual_auroc": "residual AUROC"}  # fmt: skip
    shown = side_by_side(frame, headings).rename(columns={"decoder": "left out"})
    for place, column in ((3, "knn_auroc"), (7, "residual_auroc")):
        ends = _ends(frame, shown["left out"], shown["numbers"], column)
        shown.insert(place, f"[low, high] of {headings[column]}", ends)
    return shown


def shown_variants(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the 36 variants in the order of their inner AUROC, with what the paper prints; texts only."""
    inner, outer = (frame[frame["column"] == column].set_index("row") for column in ("inner_auroc", "outer_auroc"))
    inner = inner.loc[outer.index].sort_values("value", ascending=False, kind="stable")
    lines = []
    for name, line in inner.iterrows():
        paper = _DASH if np.isnan(line["paper"]) else report.at_digits(line["paper"], int(line["digits"]))
        test = outer.loc[name]
        lines.append({
            "variant": name, "inner AUROC": report.at_digits(line["value"], 3), "[low, high], inner": _span(line),
            "inner AUROC, paper": paper, "n, validation": str(line["n_images"]),
            "AUROC on test images": report.at_digits(test["value"], 3), "[low, high], test": _span(test),
            "n, test": str(test["n_images"]),
        })  # fmt: skip
    return pd.DataFrame(lines)


def _ends(frame: pd.DataFrame, rows: pd.Series, numbers: pd.Series, column: str) -> list[str]:
    lines = frame[frame["column"] == column].set_index("row")
    return [_DASH if text == "paper" else _span(lines.loc[row]) for row, text in zip(rows, numbers, strict=True)]


def _span(line: pd.Series) -> str:
    return f"[{report.at_digits(line['low'], 3)}, {report.at_digits(line['high'], 3)}]"


def variant_name(variant: Sequence[str]) -> str:
    """Return the name of a variant (unit, score, aggregation) in tables."""
    return ", ".join(variant)


def _tidy(lines: list[dict], name: str, rows: pd.DataFrame) -> pd.DataFrame:
    common = {column: rows[column].iloc[0] for column in ("profile", "dataset", "encoder", "evidence")}
    held_out = rows["held_out"] if "held_out" in rows else rows["outer"]
    partitions = ", ".join(f"loso-{code}" for code in dict.fromkeys(held_out))
    return report.table(lines, table=name, partition=partitions, **counts(rows), **common)
