"""Scores of discovery from sums per combination: every number and all its resamples without touching an image again.

Intervals resample whole combinations (Appendix C.1); the six folds see the same test images, so one draw serves all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from phoebi_lib.metrics import sample_f1
from phoebi_lib.scoring import mean_defined

#: What is computed of an assignment, in the order of the tables; see :func:`scores`.
SCORES = (
    "n_proto", "cluster_acc", "recall", "purity", "delta_f1_known", "delta_f1_known_labelled", "false_share",
    "assigned", "lift", "auroc", "f1", "f1_margin", "f1_blind", "f1_known", "f1_known_margin", "recall_by_weight",
    "admitted",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tally:
    """One assignment of a fold's images: what it is, and its sums per combination.

    Attributes:
        row: the primitive; ``fold`` the held-out species; ``seed``; ``setting`` transductive or inductive.
        n_proto: proposed prototypes; ``updates`` optimiser steps; ``admitted`` share of tiles that passed the gate.
        sums: name -> (U,), one number per combination.
        slots: (U, n_proto), images that hold the species by the proposed row they went to.
        wins: (U, U), over pairs (image with the species of combination u, image without of v): how often the first has
            the larger margin, ties counting half.
    """

    row: str
    fold: str
    seed: int
    setting: str
    n_proto: int
    updates: int
    admitted: float
    sums: dict[str, np.ndarray]
    slots: np.ndarray
    wins: np.ndarray


def count(
    unit: np.ndarray,
    n_units: int,
    *,
    holds: np.ndarray,
    slot: np.ndarray,
    margin: np.ndarray,
    by_weight: np.ndarray,
    known: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    n_proto: int,
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return ``sums``, ``slots`` and ``wins`` of a :class:`Tally`.

    Args:
        unit: (N,) which combination, 0..n_units - 1.
        holds: (N,) bool, whether the image holds the held-out species.
        slot, margin: of :func:`phoebi_lib.openworld.discovery.assign`.
        by_weight: (N,) bool, whether a proposed row has the largest SimplexUnmix weight.
        known, before, after: (N, K) 0/1, the known species' labels, and their calls without and with the proposed rows.
    """
    holds, found, labelled = holds.astype(bool), slot >= 0, known.any(axis=1)
    f1 = {"before": sample_f1(known, before), "after": sample_f1(known, after),
          "constant": sample_f1(known, np.ones_like(known))}  # fmt: skip
    values = {
        "images": np.ones(len(unit)), "holds": holds, "found": holds & found, "false": ~holds & found,
        "found_by_weight": holds & by_weight, "labelled": labelled, **f1,
        "before_labelled": f1["before"] * labelled, "after_labelled": f1["after"] * labelled,
    }  # fmt: skip
    sums = {name: np.bincount(unit, value.astype(float), n_units) for name, value in values.items()}
    slots = np.zeros((n_units, n_proto))
    np.add.at(slots, (unit[holds & found], slot[holds & found]), 1.0)
    wins = np.zeros((n_units, n_units))
    for v in np.unique(unit[~holds]):
        without = np.sort(margin[~holds & (unit == v)])
        beaten = np.searchsorted(without, margin[holds], "left") + np.searchsorted(without, margin[holds], "right")
        wins[:, v] = np.bincount(unit[holds], beaten / 2.0, n_units)
    return sums, slots, wins


def scores(tally: Tally, counts: np.ndarray) -> dict[str, np.ndarray]:
    """Return every score of ``SCORES`` in every resample, name -> (R,); NaN where it is not defined.

    ``recall``: share of the images with the species that go to a proposed row; ``purity``: share of those on the most
    frequent one, NaN if there are none; ``cluster_acc``: their product, 0 without any. Which row is the most frequent
    is decided once, on all images: the largest of several, chosen anew in each resample, would mostly be too large.
    ``false_share``: share of the images without the species that go to a proposed row; ``assigned``: share of all
    images, hence the recall of an assignment that deals out as many images blindly; ``lift``: recall minus false share.
    ``auroc`` of the margin; ``f1`` of the assignment, ``f1_margin`` over assigning every image, ``f1_blind`` what blind
    dealing is expected to score. ``f1_known``: per-sample F1 of the known species with the proposed rows, its margin
    over calling all of them, and ``delta_f1_known``, the change by appending; ``delta_f1_known_labelled`` leaves out
    images that hold the new species alone, whose known label is empty. ``recall_by_weight``: recall by the largest
    SimplexUnmix weight.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        s = {name: counts @ values for name, values in tally.sums.items()}
        without = s["images"] - s["holds"]
        recall, false_share = s["found"] / s["holds"], s["false"] / without
        matched = tally.slots.sum(axis=0).argmax() if tally.n_proto else 0
        top = counts @ tally.slots[:, matched] if tally.n_proto else np.zeros(len(counts))
        assigned = s["found"] + s["false"]
        every = 2 * s["holds"] / (s["holds"] + s["images"])
        f1 = 2 * s["found"] / (assigned + s["holds"])
        blind = 2 * s["holds"] * assigned / s["images"] / (s["holds"] + assigned)
        drift = (s["after_labelled"] - s["before_labelled"]) / s["labelled"]
        found = {
            "n_proto": np.full(len(counts), float(tally.n_proto)), "cluster_acc": top / s["holds"], "recall": recall,
            "purity": top / s["found"], "delta_f1_known": (s["after"] - s["before"]) / s["images"],
            "delta_f1_known_labelled": drift, "false_share": false_share, "assigned": assigned / s["images"],
            "lift": recall - false_share, "auroc": _auroc(tally, counts, s["holds"] * without), "f1": f1,
            "f1_margin": f1 - every, "f1_blind": blind, "f1_known": s["after"] / s["images"],
            "f1_known_margin": (s["after"] - s["constant"]) / s["images"],
            "recall_by_weight": s["found_by_weight"] / s["holds"], "admitted": np.full(len(counts), tally.admitted),
        }  # fmt: skip
    return found


def _auroc(tally: Tally, counts: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    return np.einsum("ru,uv,rv->r", counts, tally.wins, counts, optimize=True) / pairs


def over_folds(tallies: Iterable[Tally], counts: np.ndarray) -> dict[str, np.ndarray]:
    """Return each score by seed, fold and resample, name -> (S, F, R): seeds and folds in order of appearance.

    The two halves of an inductive assignment are averaged. A deterministic row has one seed.
    """
    tallies = list(tallies)
    seeds, folds = (list(dict.fromkeys(getattr(t, name) for t in tallies)) for name in ("seed", "fold"))
    cells: dict[tuple[int, str], list[dict[str, np.ndarray]]] = {}
    for tally in tallies:
        cells.setdefault((tally.seed, tally.fold), []).append(scores(tally, counts))
    if len(cells) != len(seeds) * len(folds):
        raise ValueError(f"{tallies[0].row}: every seed needs every fold; found {sorted(cells)}")
    return {
        name: np.array([[mean_defined([part[name] for part in cells[seed, fold]]) for fold in folds] for seed in seeds])
        for name in SCORES
    }


def lines(
    tallies: Sequence[Tally], counts: np.ndarray, reference: str = "", suffix: str = ""
) -> list[dict[str, object]]:
    """Return the tidy lines of several rows: for each score its mean over folds and seeds with a 95 % interval.

    ``x_std`` is the population standard deviation over folds (of the means over seeds), ``x_seed_std`` that over seeds
    (of the means over folds), ``x_max`` and ``x_min`` the extremes over folds and seeds of a few scores. With a
    ``reference`` row ``x_less_reference`` is the difference from it in the same resamples.
    """
    by_row: dict[str, list[Tally]] = {}
    for tally in tallies:
        by_row.setdefault(tally.row, []).append(tally)
    found, means = {}, {}
    for row, mine in by_row.items():
        values = over_folds(mine, counts)
        found[row] = {name: v[:, :, 0] for name, v in values.items()}
        means[row] = {name: mean_defined(mean_defined(v)) for name, v in values.items()}
    result: list[dict[str, object]] = []
    for row, mine in by_row.items():
        common = {"row": row, "updates": round(np.mean([t.updates for t in mine]))}
        for name, points in found[row].items():
            cells = {name: means[row][name], f"{name}_std": np.nanstd(mean_defined(points)) if _any(points) else np.nan}
            if len(points) > 1:
                cells[f"{name}_seed_std"] = np.std(mean_defined(points.T)) if _any(points) else np.nan
            if name in ("cluster_acc", "recall", "admitted", "n_proto"):
                cells |= {f"{name}_max": np.nanmax(points), f"{name}_min": np.nanmin(points)}
            if name in ("cluster_acc", "delta_f1_known") and reference in means and row != reference:
                cells[f"{name}_less_reference"] = means[row][name] - means[reference][name]
            for column, value in cells.items():
                line = _line(np.atleast_1d(value))
                if line is not None:
                    result.append({**common, "column": column + suffix, **line})
    return result


def _line(values: np.ndarray) -> dict[str, float] | None:
    """Return value and interval; None where the value is not defined, no interval where no resample differs."""
    if np.isnan(values[0]):
        return None
    rest = values[1:][~np.isnan(values[1:])]
    if not len(rest) or np.ptp(rest) == 0 and rest[0] == values[0]:
        return {"value": float(values[0])}
    low, high = np.percentile(rest, [2.5, 97.5])
    return {"value": float(values[0]), "low": float(low), "high": float(high)}


def _any(values: np.ndarray) -> bool:
    return not np.isnan(values).all()
