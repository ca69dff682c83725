"""Appendix C.1: intervals over combinations for the decoders, and how much of a score the combination decides."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib import report
from phoebi_lib.catalogue import CODES, COMBINATIONS, order, parse_combination
from phoebi_lib.compat import choice
from phoebi_lib.intervals import Resamples
from phoebi_lib.metrics import sample_f1
from phoebi_lib.paper import printed
from phoebi_lib.scoring import auroc_scores, mean_defined, scores
from phoebi_lib.splits import N_FOLDS, PARTITION_SEEDS, dev_folds, published_manifest, select_heldout
from phoebi_lib.splits import partition as split

if TYPE_CHECKING:
    from phoebi_lib.pool import Pool

#: Partition and training seed of the runs that Table 19 pools.
TEST_RUNS = tuple((f"lco-{seed}", seed) for seed in PARTITION_SEEDS)
DEV_RUNS = tuple((f"dev-{fold}", PARTITION_SEEDS[0]) for fold in range(N_FOLDS))
DECODERS = ("SimplexUnmix", "ProtoMatch", "ChannelGroup")
METHODS = (*DECODERS, "SimplexUnmix (2,000 updates)", "ChannelGroup (2,000 updates)")
#: What is resampled on the pooled test partitions (the choice ``pooled_units``), and the ending of those columns.
UNITS = {
    "seed and combination": (["partition", "combination"], ""),
    "distinct combinations": ("combination", "_distinct"),
}
_DASH = "–"


def pooled_rows(
    pool: Pool, runs: Iterable[tuple[str, int]], methods: Sequence[str], compat: str, profile: str
) -> pd.DataFrame:
    """Return the test rows of all ``runs``, (partition, seed), one below the other."""
    from phoebi_lib.protocols import run_partition

    every = [run_partition(pool, name, seed=seed, methods=methods, compat=compat, profile=profile)
             for name, seed in runs]  # fmt: skip
    rows = pd.concat(every, ignore_index=True)
    return rows[rows["part"] == "test"].reset_index(drop=True)


def most_updated(rows: pd.DataFrame) -> pd.DataFrame:
    """Return of each decoder the rows of its longest training, under the decoder's own name.

    The published number of epochs is few updates on few images: there, the row with 2,000 updates tells more about the
    decoder; on the published images the published recipe is the longer one.
    """
    base = rows["method"].str.replace(r" \(.*updates\)", "", regex=True)
    longest = rows.groupby("method")["updates"].max()
    names = {name: max(sorted(group), key=longest.get) for name, group in rows["method"].groupby(base).unique().items()}
    kept = rows["method"] == base.map(names)
    return rows[kept].assign(method=base[kept]).reset_index(drop=True)


def described(rows: pd.DataFrame, row: str, **more: Any) -> dict[str, Any]:
    """Return what a tidy line says of the images behind it, from rows of one method."""
    first = rows.iloc[0]
    return {
        "row": row, "evidence": first["evidence"], "updates": first["updates"], "n_images": len(rows),
        "n_frames": len(rows[["combination", "frame"]].drop_duplicates()),
        "n_combinations": rows["combination"].nunique(), "partition": ", ".join(rows["partition"].unique()), **more,
    }  # fmt: skip


def run_facts(rows: pd.DataFrame) -> dict[str, str]:
    """Return the columns that are the same in every line of a tidy table."""
    return {name: rows[name].iloc[0] for name in ("profile", "dataset", "encoder")}


def table_18(profile: str = "") -> pd.DataFrame:
    """Return Table 18 as numbers: how far our folds are the printed ones, and what each holds. Evidence "exact".

    Columns of the rows ``fold <i>`` and ``all folds``: ``combinations``; ``printed_names_found``, those that the paper
    prints at the same place; ``order_<k>``; ``without_pure_culture``, species of the training part with no pure culture
    in it; ``images``, of the published data.
    """
    trained = select_heldout(COMBINATIONS, PARTITION_SEEDS[0])[1]
    images = published_manifest()["combination"].value_counts()
    lines = []
    for i, (fold, text) in enumerate(zip(dev_folds(trained), printed(18)["combinations"], strict=True)):
        orders = [order(name) for name in fold["dev"]]
        known = {code for name in fold["train"] for code in parse_combination(name)}
        values = {
            "combinations": len(fold["dev"]),
            "printed_names_found": sum(a == b for a, b in zip(fold["dev"], text.split(", "), strict=False)),
            **{f"order_{k}": orders.count(k) for k in (2, 3, 4)},
            "without_pure_culture": len(known - set(fold["train"])), "images": images[fold["dev"]].sum(),
        }  # fmt: skip
        lines += [{"row": f"fold {i}", "column": column, "value": value, "partition": f"dev-{i}"}
                  for column, value in values.items()]  # fmt: skip
    whole = pd.DataFrame(lines).groupby("column", sort=False)["value"].agg(["sum", "max"])
    for column, line in whole.iterrows():
        value = line["max" if column == "without_pure_culture" else "sum"]
        lines.append({"row": "all folds", "column": column, "value": value})
    return report.table(lines, table="18", evidence="exact", profile=profile, dataset="phoebi6")


def pooling_counts(profile: str = "") -> pd.DataFrame:
    """Return what pooling the three partitions counts, from the lists of names alone. Evidence "exact"."""
    held = [select_heldout(COMBINATIONS, seed)[0] for seed in PARTITION_SEEDS]
    names = [name for partition in held for name in partition]
    dev = [name for fold in dev_folds(select_heldout(COMBINATIONS, PARTITION_SEEDS[0])[1]) for name in fold["dev"]]
    constant = {2 * order(name) / (order(name) + len(CODES)) for name in dev if order(name) == 4}
    values = {
        "pairs": len(names), "distinct": len(set(names)), "development": len(dev),
        "held out three times": sum(names.count(name) == len(held) for name in set(names)),
        "held-out singletons that are bt": names.count("bt"),
        "lowest constant F1 at order 4": min(constant), "highest constant F1 at order 4": max(constant),
    }  # fmt: skip
    lines = [{"row": "combinations", "column": name, "value": value} for name, value in values.items()]
    return report.table(lines, table="C.1 pooling", evidence="exact", profile=profile, dataset="phoebi6")


def margins(
    test: pd.DataFrame, dev: pd.DataFrame, codes: Sequence[str], compat: str, n: int, table: str = "C.1 margins"
) -> pd.DataFrame:
    """Return F1, margins and AUROCs of every method on the pooled test partitions and development folds, tidy.

    Columns start with ``test_`` or ``dev_``: ``f1``, ``f1_margin``, ``macro_f1``, ``macro_f1_margin``, ``mean_auroc``
    and ``auroc_<code>``, all with intervals. The ending ``_distinct`` marks intervals over distinct combinations, which
    have the same values as those over (partition, combination) pairs.
    """
    blocks = [(test, "test_", *UNITS[units]) for units in choice("pooled_units", compat)]
    lines = []
    for rows, start, unit, ending in [*blocks, (dev, "dev_", "combination", "")]:
        for method, mine in rows.groupby("method", sort=False):
            found = scores(mine, ["f1", "macro_f1"], unit=unit, codes=codes, n=n)
            auroc = auroc_scores(mine, unit=unit, codes=codes, n=n)
            found |= {"mean_auroc": auroc.pop("auroc"), **auroc}
            common = described(mine, method)
            lines += [{**common, "column": f"{start}{name}{ending}", "value": value, "low": low, "high": high}
                      for name, (value, low, high) in found.items()]  # fmt: skip
        lines += _differences(rows, start, unit, ending, codes, n)
    return report.table(lines, table=table, **run_facts(test))


def _differences(rows, start, unit, ending, codes, n) -> list[dict[str, Any]]:
    """Return the tidy lines of one decoder minus another on the same images and resamples."""
    present = [method for method in DECODERS if method in set(rows["method"])]
    drawn, lines = {}, []
    for method in present:
        mine = rows[rows["method"] == method].sort_values(["partition", "id"]).reset_index(drop=True)
        true, called = (mine[[f"{kind}_{code}" for code in codes]].to_numpy() for kind in ("y", "pred"))
        resamples = Resamples(mine, unit, n)
        each = [resamples.auroc(mine[f"y_{code}"], mine[f"score_{code}"]) for code in codes]
        f1 = resamples.ratio(sample_f1(true, called), np.ones(len(mine)))
        drawn[method] = {"f1": f1, "mean_auroc": mean_defined(np.array(each))}
    for i, second in enumerate(present):
        for first in present[i + 1 :]:
            common = described(rows[rows["method"] == first], f"{first} minus {second}")
            for name in ("f1", "mean_auroc"):
                value, low, high = Resamples.interval(drawn[first][name] - drawn[second][name])
                lines.append({**common, "column": f"{start}{name}{ending}", "value": value, "low": low, "high": high})
    return lines


def table_19(test: pd.DataFrame, dev: pd.DataFrame, codes: Sequence[str], compat: str, n: int) -> pd.DataFrame:
    """Return Table 19 as a tidy table, :func:`margins` with the printed numbers beside ours."""
    return report.add_paper(margins(test, dev, codes, compat, n, table="19"), 19)


def resolved(lines: pd.DataFrame, start: str, ending: str, codes: Sequence[str]) -> str:
    """Return the species whose AUROC interval excludes 0.5, in the paper's words: "ka, fj", "ka; mx inverted".

    ``lines`` are the tidy lines of one method; ``start`` and ``ending`` choose the columns, as in :func:`margins`.
    """
    by_column = lines.set_index("column")
    found = {code: by_column.loc[f"{start}auroc_{code}{ending}"] for code in codes}
    above = sorted((code for code in codes if found[code]["low"] > 0.5), key=lambda code: -found[code]["value"])
    below = [f"{code} inverted" for code in codes if found[code]["high"] < 0.5]
    return "; ".join(part for part in (", ".join(above), ", ".join(below)) if part) or "none"


def shown_19(frame: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """Return Table 19 as it is read: one line per block and decoder, the printed line below ours; texts only."""
    paper = printed(19).set_index("decoder")
    blocks = [("three test partitions, 27 pairs", "test_", ""), ("the same, 19 combinations", "test_", "_distinct"),
              ("development folds", "dev_", "")]  # fmt: skip
    headings = {"f1_margin": "F1 margin", "macro_f1_margin": "macro-F1 margin", "mean_auroc": "mean AUROC"}
    shown = []
    for title, start, ending in blocks:
        ours = frame[frame["column"].str.startswith(start) & ~frame["row"].str.contains(" minus ")]
        for row, lines in ours[ours["column"] == f"{start}f1_margin{ending}"].groupby("row", sort=False):
            mine, (line,) = ours[ours["row"] == row], lines.to_dict("records")
            by_column = mine.set_index("column")
            cells = {headings[name]: _cell(by_column.loc[f"{start}{name}{ending}"], name) for name in headings}
            updates = f"{int(line['updates']):,}" if line["updates"] else _DASH
            shown.append({"images and units": title, "decoder": row, "numbers": f"here ({line['evidence']})", **cells,
                          "resolved": resolved(mine, start, ending, codes), "updates": updates,
                          "difference": _difference(line)})  # fmt: skip
            if row in paper.index and not ending:
                cells = {heading: _cell({part: paper.loc[row, f"{start}{name}{part and '_' + part}"]
                                         for part in ("", "low", "high")}, name)
                         for name, heading in headings.items()}  # fmt: skip
                said = paper.loc[row, "test_resolved"] if start == "test_" else _DASH
                shown.append({"images and units": title, "decoder": row, "numbers": "paper", **cells, "resolved": said,
                              "updates": _DASH, "difference": _DASH})  # fmt: skip
    return pd.DataFrame(shown)


def _cell(line: Any, name: str) -> str:
    places, sign = (2, False) if name == "mean_auroc" else (3, True)
    value, low, high = (report.at_digits(line[key], places, sign)
                        for key in ("value" if "value" in line else "", "low", "high"))  # fmt: skip
    return f"{value} [{low}, {high}]"


def _difference(line: dict[str, Any]) -> str:
    if np.isnan(line["paper"]):
        return _DASH
    if line["evidence"] not in ("exact", "paper"):
        return report.NOT_COMPARABLE
    return report.at_digits(line["value"] - line["paper"], 3, sign=True)


def between_share(resamples: Resamples, score: np.ndarray) -> np.ndarray:
    """Return the share of the variance of ``score`` (N,) that lies between units, eta squared, (n + 1,); 0..1.

    It is the sum of squares of the units' means about the mean of all images, over that of the images. NaN where the
    score does not vary.
    """
    score = np.asarray(score, dtype=np.float64) - np.mean(score)  # the share does not change; the sums stay exact
    images, sums = resamples.per_unit(np.ones_like(score)), resamples.per_unit(score)
    overall = (resamples.counts @ sums) ** 2 / (resamples.counts @ images)
    total = resamples.total(score**2) - overall
    between = resamples.counts @ (sums**2 / images) - overall
    # relative to the scale of the scores: rounding leaves a rest where nothing varies
    defined = total > 1e-12 * max(resamples.total(score**2)[0], 1e-300)
    return np.divide(between, total, out=np.full(len(total), np.nan), where=defined)


def score_variance_table(rows: pd.DataFrame, codes: Sequence[str], n: int) -> pd.DataFrame:
    """Return per method, from the test rows of one partition, the shares and AUROCs of Appendix C.1 as a tidy table.

    Columns: ``between_<code>`` (see :func:`between_share`); ``auroc_images``, the mean AUROC of single images;
    ``auroc_means``, that of the combinations' mean scores, each combination counting once; ``auroc_difference``, means
    minus images in the same resamples.
    """
    lines = []
    for method, mine in rows.groupby("method", sort=False):
        resamples = Resamples(mine, "combination", n)
        columns = [f"{kind}_{code}" for kind in ("y", "score") for code in codes]
        means = mine.groupby("combination")[columns].mean().reset_index()
        found = {f"between_{code}": between_share(resamples, mine[f"score_{code}"]) for code in codes}
        for name, table, over in (("images", mine, resamples), ("means", means, Resamples(means, "combination", n))):
            each = [over.auroc(table[f"y_{code}"], table[f"score_{code}"]) for code in codes]
            found[f"auroc_{name}"] = mean_defined(np.array(each))
        found["auroc_difference"] = found["auroc_means"] - found["auroc_images"]
        for column, values in found.items():
            value, low, high = Resamples.interval(values)
            lines.append({**described(mine, method), "column": column, "value": value, "low": low, "high": high})
    return report.table(lines, table="C.1 score variance", **run_facts(rows))


READ_OUTS = ("cosine", "sparsemax")
AGGREGATIONS = {
    "mean": lambda tiles: tiles.mean(axis=1),
    "0.9 quantile": lambda tiles: np.quantile(tiles, 0.9, axis=1),
    "max": lambda tiles: tiles.max(axis=1),
}


def configuration_rows(pool: Pool, compat: str, runs: Iterable[tuple[str, int]] = DEV_RUNS) -> pd.DataFrame:
    """Return test rows of the closed-form configurations of the pool's units under the development folds.

    Prototypes are the closed-form ones of the fold's training images. ``method`` is ``"<read-out>, <aggregation>"``:
    each unit's cosine to the prototypes, or its sparsemax weights (tau 10), by mean, 0.9 quantile or maximum over the
    image's units. Thresholds are the 0.05 quantile of the positives of the part that ``compat`` calibrates on.
    """
    from phoebi_lib.decoders import ProtoMatch, SimplexUnmix

    grouping, calibration = choice("lco_grouping", compat), choice("dev_thresholds", compat)
    labels, frames = pool.Y, []
    for partition, seed in runs:
        parts = split(pool.manifest, partition, grouping=grouping, codes=pool.codes)
        features = {part: pool.take(parts[part]) for part in {"train", calibration, "test"}}
        own = {part: labels[parts[part]] for part in features}
        facts = {name: pool.manifest[name].to_numpy()[parts["test"]] for name in ("combination", "frame")}
        facts |= {"id": np.asarray(pool.ids)[parts["test"]], "partition": partition, "part": "test", "updates": 0,
                  "evidence": pool.evidence, "dataset": pool.dataset_name, "encoder": pool.encoder_name}  # fmt: skip
        decoders = (ProtoMatch(), SimplexUnmix(epochs=0, random_state=seed))
        for read_out, decoder in zip(READ_OUTS, decoders, strict=True):
            decoder.fit(features["train"], own["train"])
            tiles = {part: decoder.tile_scores(features[part]) for part in {calibration, "test"}}
            for name, aggregate in AGGREGATIONS.items():
                image = {part: aggregate(values) for part, values in tiles.items()}
                called = _called(image[calibration], own[calibration], image["test"])
                table = {**facts, "method": f"{read_out}, {name}"}
                for k, code in enumerate(pool.codes):
                    table |= {f"y_{code}": own["test"][:, k], f"score_{code}": image["test"][:, k],
                              f"pred_{code}": called[:, k]}  # fmt: skip
                frames.append(pd.DataFrame(table))
    return pd.concat(frames, ignore_index=True)


def _called(calibration: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    from phoebi_lib.decoders.thresholds import quantile_thresholds

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a species without positives is never called, here as in the decoders
        return (test > quantile_thresholds(calibration, labels)).astype(int)


def configuration_table(rows: pd.DataFrame, codes: Sequence[str], n: int, profile: str = "") -> pd.DataFrame:
    """Return per configuration ``mean_auroc``, ``macro_f1_margin`` and ``auroc_difference``, tidy, with intervals.

    The difference is to the paper's choice, the mean cosine, in the same resamples.
    """
    drawn, lines = {}, []
    for method, mine in rows.groupby("method", sort=False):
        mine = mine.sort_values(["partition", "id"])
        resamples = Resamples(mine, "combination", n)
        each = [resamples.auroc(mine[f"y_{code}"], mine[f"score_{code}"]) for code in codes]
        drawn[method] = mean_defined(np.array(each))
        found = {"mean_auroc": Resamples.interval(drawn[method]),
                 "auroc_difference": Resamples.interval(drawn[method] - drawn["cosine, mean"]),
                 "macro_f1_margin": scores(mine, ["macro_f1"], codes=codes, n=n)["macro_f1_margin"]}  # fmt: skip
        lines += [{**described(mine, method), "column": column, "value": value, "low": low, "high": high}
                  for column, (value, low, high) in found.items()]  # fmt: skip
    facts = {name: rows[name].iloc[0] for name in ("dataset", "encoder")}
    return report.table(lines, table="C.1 configurations", profile=profile, **facts)
