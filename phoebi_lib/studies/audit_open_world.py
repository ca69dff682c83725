"""The audit of the battery's blur and of the open world (D14, D24 to D27, D49): Section 5, Appendices B.3 and D.

Numbers over the six left-out species are means over folds. Every interval resamples whole combinations of test images,
the same ones in every fold, setting and score, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy.ndimage import gaussian_filter

from phoebi_lib.corruptions import corrupt
from phoebi_lib.decoders import sparsemax
from phoebi_lib.openworld.heads import simgcd_prototypes, simgcd_steps
from phoebi_lib.openworld.neighbours import TILES_AT_A_TIME, Banks
from phoebi_lib.paper import cells
from phoebi_lib.scoring import mean_defined
from phoebi_lib.splits import partition
from phoebi_lib.studies import audit
from phoebi_lib.studies.discovery_scores import Tally, over_folds
from phoebi_lib.studies.discovery_study import CONTROL, GATE, INDUCTIVE, K1, TABLE_10, TRANSDUCTIVE, Fold, simgcd_row
from phoebi_lib.studies.open_set_folds import Resampled, interval, resampled_auroc

if TYPE_CHECKING:
    from phoebi_lib.pool import Pool

SIGMA, LEVEL = 3.5, 200
#: The published way to blur and ours, as ``compat`` names them.
BLURS = {"published": "reference", "corrected": "corrected"}
SINKHORN = tuple(how for how in TABLE_10 if how.stochastic)
STEADY = tuple(how for how in TABLE_10 if how.row in (K1, CONTROL))
#: SimGCD-style: learning rate -> epochs after which the head is looked at; the last is the printed recipe.
SIMGCD_LOOKS = {1e-3: (5, 10), 1e-2: (30,)}
#: What is asked of an assignment, in the order of the table.
ASSIGNMENT = ("recall", "false_share", "lift", "auroc", "f1", "f1_margin", "f1_blind")
EVERY, EVERY_ONE, LABELLED = "every test image", "every test image, empty calls right", "images with a known label"
OWN_OUT = "k-NN, own combination left out"


def flat_lines(size: int = 64) -> list[dict[str, Any]]:
    """Return the exact lines of D14: what both blurs make of a flat frame, and what the radius alone changes.

    Levels are 0..255. ``strip`` counts the pixels from the middle of an edge inwards that lie more than one grey level
    below the frame; the step goes from 0 to 255 in one pixel.
    """
    lines, middle = [], size // 2
    frame = np.full((3, size, size), LEVEL, dtype=np.uint8)
    for way, compat in BLURS.items():
        blurred = corrupt(frame, "focus", SIGMA, compat=compat)[0].astype(int)
        places = {"corner": blurred[0, 0], "edge": blurred[middle, 0], "middle": blurred[middle, middle],
                  "strip": (blurred[middle, :middle] < LEVEL - 1).sum()}  # fmt: skip
        lines += [audit.exact(f"flat frame of level {LEVEL}, {way}", name, value, digits=0)
                  for name, value in places.items()]  # fmt: skip
    step = np.repeat([0.0, 255.0], middle)
    ten, eleven = (gaussian_filter(step, SIGMA, mode="reflect", radius=radius) for radius in (10, 11))
    return [*lines, audit.exact("step of 255, radius 10 against 11", "largest", np.abs(ten - eleven).max(), digits=2)]


def blur_lines(rows: pd.DataFrame, n: int) -> list[dict[str, Any]]:
    """Return the lines of D14 on images, from rows with ``method``, ``part`` (clean, published, corrected), ``margin``.

    Row "<method>, <part>": ``f1_margin``, ``drop_difference`` to the clean frames, and of the published blur the
    ``way_difference`` to the corrected one.
    """
    lines = []
    for method, group in rows.groupby("method", sort=False):
        parts = dict(iter(group.groupby("part", sort=False)))
        for part, mine in parts.items():
            row = f"{method}, {part}"
            lines.append(audit.line(row, "f1_margin", audit.mean(mine, n=n), mine))
            if part != "clean":
                drop = audit.difference(mine, parts["clean"], "f1", n=n)
                lines.append(audit.line(row, "drop_difference", drop, mine))
        change = audit.difference(parts["published"], parts["corrected"], "f1", n=n)
        lines.append(audit.line(f"{method}, published", "way_difference", change, parts["published"]))
    return lines


def simgcd_seeds(fold: Fold, seeds: Iterable[int]) -> list[Tally]:
    """Return the tallies of the SimGCD-style head for every seed and look of ``SIMGCD_LOOKS``, transductive."""
    tiles = torch.from_numpy(fold.X[fold.gate(GATE)])
    step, whole, found = simgcd_steps(len(fold.labelled[0])), np.full(len(fold.X), True), []
    for seed in seeds:
        for rate, looks in SIMGCD_LOOKS.items():
            slots = simgcd_prototypes(
                tiles, torch.from_numpy(fold.prototypes), fold.labelled,
                updates=[epochs * step for epochs in looks], learning_rate=rate, random_state=seed,
            )  # fmt: skip
            for epochs in looks:
                slot = slots[epochs * step].numpy()
                found.append(fold.tally(simgcd_row(rate, epochs), slot, whole, seed=seed, updates=epochs * step))
    return found


def by_row(tallies: Iterable[Tally], setting: str = TRANSDUCTIVE) -> dict[str, list[Tally]]:
    """Return the tallies of a setting by row, in order of appearance."""
    found: dict[str, list[Tally]] = {}
    for tally in tallies:
        if tally.setting == setting:
            found.setdefault(tally.row, []).append(tally)
    return found


def seed_lines(tallies: Sequence[Tally], counts: np.ndarray, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of D24: how far random rows move with the seed, beside their spread over folds.

    ``counts`` (R, U) are :func:`phoebi_lib.studies.discovery_scores.draws`; ``facts`` go into every line. Per random
    row: ``cluster_acc`` and ``fold_spread`` (means over seeds), ``seed_spread`` and ``seed_range`` of the mean over
    folds, ``recall_spread`` and ``auroc_spread`` over seeds, ``lead_difference`` of the row K = 1 and, over seeds, its
    smallest and largest value ``lead_lowest`` and ``lead_highest``. Spreads are population standard deviations. They
    and the extremes have no interval: resampled images add a spread of their own, so that it would lie too high.
    """
    printed = cells(10).set_index(["row", "column"])
    rows = by_row(tallies)
    first = over_folds(rows[K1], counts)["cluster_acc"][0].mean(axis=0)
    lines = []
    for row, mine in rows.items():
        found = over_folds(mine, counts)
        if len(found["recall"]) == 1:
            continue
        means = {name: mean_defined(found[name].swapaxes(0, 1)) for name in ("cluster_acc", "recall", "auroc")}
        accuracy, lead = means["cluster_acc"], first - means["cluster_acc"]
        numbers = {
            "cluster_acc": accuracy.mean(axis=0), "fold_spread": found["cluster_acc"].std(axis=1).mean(axis=0),
            "seed_spread": accuracy.std(axis=0), "seed_range": np.ptp(accuracy, axis=0),
            "recall_spread": means["recall"].std(axis=0), "auroc_spread": means["auroc"].std(axis=0),
            "lead_difference": lead.mean(axis=0), "lead_lowest": lead.min(axis=0), "lead_highest": lead.max(axis=0),
        }  # fmt: skip
        paper = {}
        if (row, "cluster_acc") in printed.index:
            value, std = printed.loc[(row, "cluster_acc"), ["value", "std"]]
            paper = {"cluster_acc": _print(value), "fold_spread": _print(std, 2)}
        common = {"row": row, "updates": mine[0].updates or pd.NA, **facts}
        for name, values in numbers.items():
            ends = interval(values if name in ("cluster_acc", "lead_difference") else values[:1])
            lines.append({**common, "column": name, **ends, **paper.get(name, {})})
    return lines


def assignment_lines(tallies: Sequence[Tally], counts: np.ndarray, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of D25: every row in both settings, the paired difference, and what the gate admits.

    Rows "<row>, transductive", "<row>, inductive" and "<row>, inductive minus transductive" (columns
    ``<name>_difference``) with the columns ``ASSIGNMENT``; "<row> minus <control>" for the control without the
    stranger's images; the row ``GATE`` has ``admitted``, the smallest share of test tiles over folds.
    """
    settings = [name for name in (TRANSDUCTIVE, INDUCTIVE) if any(tally.setting == name for tally in tallies)]
    means = {setting: {row: _means(mine, counts) for row, mine in by_row(tallies, setting).items()}
             for setting in settings}  # fmt: skip
    lines = []
    for row in means[settings[0]]:
        for setting in settings:
            lines += _lines(f"{row}, {setting}", means[setting][row], facts)
        if len(settings) > 1:
            change = {f"{name}_difference": means[settings[1]][row][name] - means[settings[0]][row][name]
                      for name in ASSIGNMENT}  # fmt: skip
            lines += _lines(f"{row}, {settings[1]} minus {settings[0]}", change, facts)
    own = means[TRANSDUCTIVE]
    if {K1, CONTROL} <= own.keys():
        change = {f"{name}_difference": own[K1][name] - own[CONTROL][name] for name in ASSIGNMENT}
        lines += _lines(f"{K1} minus the control, {TRANSDUCTIVE}", change, facts)
    admitted = min(tally.admitted for tally in tallies)
    return [*lines, {"row": GATE, "column": "admitted", "value": admitted, "low": np.nan, "high": np.nan, **facts}]


def drift(tallies: Sequence[Tally], counts: np.ndarray) -> dict[str, dict[str, Resampled]]:
    """Return F1 of the known species ``before`` and ``after`` a proposal, its ``margin`` after, and the ``drift``.

    By the images that count: ``EVERY`` test image, where an image without a known label scores 0 whatever is called;
    the same where an empty call on it is right; and images with a known label alone. Means over folds, (R,).
    """
    found: dict[str, dict[str, list[np.ndarray]]] = {}
    for tally in tallies:
        s = {name: counts @ values for name, values in tally.sums.items()}
        ways = {EVERY: ("_labelled", "images"), EVERY_ONE: ("", "images"), LABELLED: ("_labelled", "labelled")}
        for images, (suffix, whole) in ways.items():
            before, after = (s[f"{when}{suffix}"] / s[whole] for when in ("before", "after"))
            # no label holds for the constant either: calling all five scores 0 where no known species is there
            one = {"f1_before": before, "f1_after": after, "margin_after": after - s["constant"] / s[whole],
                   "drift_difference": after - before}  # fmt: skip
            for name, values in one.items():
                found.setdefault(images, {}).setdefault(name, []).append(values)
    return {images: {name: mean_defined(values) for name, values in one.items()} for images, one in found.items()}


def drift_lines(
    tallies: Mapping[str, Sequence[Tally]], counts: np.ndarray, facts: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the lines of D26 for the tallies of each source of thresholds ("training", "validation").

    Rows "<row>, <source>, <images>" with the columns of :func:`drift`; the printed drift stands beside the published
    way, training thresholds on every image. "<row>, validation minus training, <images>" and "<row>, <source>, labelled
    minus every" have ``change_difference``, the paired change of the drift.
    """
    printed, lines = cells(10).set_index(["row", "column"])["value"], []
    for row in by_row(next(iter(tallies.values()))):
        found = {source: drift(by_row(mine)[row], counts) for source, mine in tallies.items()}
        for source, kinds in found.items():
            for images, numbers in kinds.items():
                made = _lines(f"{row}, {source}, {images}", numbers, facts)
                if (source, images) == ("training", EVERY):
                    made = [line | _print(printed.get((row, "delta_f1_known")))
                            if line["column"] == "drift_difference" else line for line in made]  # fmt: skip
                lines += made
            change = kinds[LABELLED]["drift_difference"] - kinds[EVERY]["drift_difference"]
            lines += _lines(f"{row}, {source}, labelled minus every", {"change_difference": change}, facts)
        for images in (EVERY, EVERY_ONE, LABELLED):
            val, train = (found[source][images]["drift_difference"] for source in ("validation", "training"))
            lines += _lines(f"{row}, validation minus training, {images}", {"change_difference": val - train}, facts)
    return lines


def own_share(pool: Pool, rows: np.ndarray, k: int, device: str = "cpu") -> pd.DataFrame:
    """Return per image of ``rows`` the ``share`` of its tiles' k nearest training tiles from its own combination.

    The bank holds all training images of the random split; ``chance`` is the own combination's share of its tiles.
    Columns ``id, combination, frame, share, chance, evidence``.
    """
    train = partition(pool.manifest, "random", grouping="frame", codes=pool.codes)["train"]
    banks, tables = Banks(pool, train, k, device), []
    names, step = np.array(list(banks.sizes)), max(1, TILES_AT_A_TIME // pool.raw.shape[1])
    for start in range(0, len(rows), step):
        chosen = pool.manifest.iloc[rows[start : start + step]]
        own = chosen["combination"].to_numpy()
        nearest = banks.nearest(pool.take(rows[start : start + step]))
        source = np.concatenate([np.full(found.shape[2], name) for name, found in nearest.items()])
        cosines = np.concatenate(list(nearest.values()), axis=2)
        best = np.argpartition(-cosines, k - 1, axis=2)[..., :k]
        table = chosen.rename(columns={"path": "id"})[["id", "combination", "frame"]]
        sizes = np.array([banks.sizes.get(name, 0) for name in own])
        share = (source[best] == own[:, None, None]).mean(axis=(1, 2))
        tables.append(table.assign(share=share, chance=sizes / sum(banks.sizes[name] for name in names)))
    return pd.concat(tables, ignore_index=True).assign(evidence=pool.evidence)


def session_lines(worlds: Mapping[str, pd.DataFrame], n: int) -> list[dict[str, Any]]:
    """Return the lines of D27 from the open-set rows of each world, the first of which has a session per combination.

    Rows "<score>, <world>": ``auroc``, mean over left-out species; "own combination out minus in, <world>" and
    "k-NN minus residual, own combination in" or "... out": ``auroc_difference``; with two worlds the first's difference
    minus the second's, which is what the session adds.
    """
    lines, changes = [], {}
    for world, rows in worlds.items():
        facts, found = _facts(rows), resampled_auroc(rows, n=n)
        folds = list(dict.fromkeys(rows["held_out"]))
        scores = ("k-NN", OWN_OUT, "residual")
        mean = {score: np.mean([found[code, score] for code in folds], axis=0) for score in scores}
        for score in scores:
            lines += _lines(f"{score}, {world}", {"auroc": mean[score]}, facts)
        changes[world] = mean[OWN_OUT] - mean["k-NN"]
        named = {"own combination out minus in": changes[world],
                 "k-NN minus residual, own combination in": mean["k-NN"] - mean["residual"],
                 "k-NN minus residual, own combination out": mean[OWN_OUT] - mean["residual"]}  # fmt: skip
        for name, numbers in named.items():
            lines += _lines(f"{name}, {world}", {"auroc_difference": numbers}, facts)
    if len(worlds) > 1:
        one, shared = changes
        lines += _lines(f"out minus in: {one} minus {shared}", {"auroc_difference": changes[one] - changes[shared]},
                        _facts(worlds[one]))  # fmt: skip
    return lines


def rank_correlations(rows: pd.DataFrame, first: str, second: str, n: int, seed: int = 0) -> dict[str, Resampled]:
    """Return by left-out species, and as "mean", Spearman's correlation of two scores, on all images and resampled.

    A resample draws whole combinations, the same for every species; an image drawn twice counts twice.
    """
    wide = rows.pivot(index=["held_out", "combination", "id"], columns="score", values="value")
    generator, found = np.random.default_rng(seed), {}
    units = np.unique(rows["combination"].to_numpy(dtype=str))
    picked = [generator.choice(len(units), len(units), replace=True) for _ in range(n)]
    times = np.stack([np.ones(len(units), int), *(np.bincount(p, minlength=len(units)) for p in picked)])
    for code, group in wide.groupby(level="held_out", sort=False):
        unit = np.searchsorted(units, group.index.get_level_values("combination").to_numpy(dtype=str))
        pair = [np.unique(group[name], return_inverse=True)[1] for name in (first, second)]
        found[code] = np.concatenate([_weighted_spearman(*pair, block[:, unit]) for block in
                                      np.array_split(times, max(1, len(times) * len(unit) // 10**7))])  # fmt: skip
    return found | {"mean": np.mean(list(found.values()), axis=0)}


def mixture_rows(fold: Fold, evidence: str) -> pd.DataFrame:
    """Return per test image the mean over tiles of the ``active`` prototypes in the mixture, and of the ``span``.

    ``active`` counts the known prototypes with a weight of ``sparsemax(10 P z)``, of five; ``span`` is the
    largest minus the smallest cosine of a tile to them.
    """
    cosines = fold.X @ fold.prototypes.T.astype(fold.X.dtype)
    active = (sparsemax(torch.from_numpy(10.0 * cosines)).numpy() > 0).sum(axis=2)
    table = fold.manifest.rename(columns={"path": "id"})[["id", "combination", "frame"]]
    return table.assign(active=active.mean(axis=1), span=np.ptp(cosines, axis=2).mean(axis=1), evidence=evidence)


def wide(frame: pd.DataFrame, headings: Mapping[str, str], heading: str, places: int = 3) -> pd.DataFrame:
    """Return a tidy table with one line per row and one column per quantity of ``headings``: "value [low, high]"."""
    lines = []
    for row, group in frame[frame["column"].isin(headings)].groupby("row", sort=False):
        one = {heading: row}
        for column, name in headings.items():
            found = group[group["column"] == column]
            one[name] = cell(found.iloc[0], places) if len(found) else "–"
        lines.append(one)
    return pd.DataFrame(lines)


def cell(line: pd.Series, places: int = 3) -> str:
    """Return "value [low, high]" of a tidy line, or the value alone where it has no interval."""
    shown = audit.shown(pd.DataFrame([line]), places=places).iloc[0]
    ends = shown["95 % interval"]
    return shown["value"] if ends == "–" else f"{shown['value']} {ends}"


def _weighted_spearman(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of two rankings (N,) of codes 0.. under whole-number weights (R, N), (R,)."""
    ranks = []
    for codes in (first, second):
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        group = np.add.reduceat(weights[:, order], starts, axis=1)
        ranks.append((group.cumsum(axis=1) - (group - 1) / 2)[:, codes])  # the middle of a value's places
    total = weights.sum(axis=1, keepdims=True)
    a, b = (rank - (weights * rank).sum(axis=1, keepdims=True) / total for rank in ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (weights * a * b).sum(axis=1) / np.sqrt((weights * a * a).sum(axis=1) * (weights * b * b).sum(axis=1))


def _means(tallies: Sequence[Tally], counts: np.ndarray) -> dict[str, Resampled]:
    found = over_folds(tallies, counts)
    return {name: mean_defined(mean_defined(found[name])) for name in ASSIGNMENT}


def _lines(row: str, numbers: Mapping[str, Resampled], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"row": row, "column": column, **interval(values), **facts} for column, values in numbers.items()]


def _print(number: float | None, digits: int = 3) -> dict[str, Any]:
    return {} if number is None or np.isnan(number) else {"paper": float(number), "digits": digits}


def _facts(rows: pd.DataFrame) -> dict[str, Any]:
    return {**audit.sizes(rows), "partition": "loso", "dataset": rows["dataset"].iloc[0]}
