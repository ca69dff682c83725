"""Four calibration rules on saved scores (Appendix C.3): two ways to choose thresholds, on two sets of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from phoebi_lib.decoders.thresholds import grid_thresholds, quantile_thresholds

#: Points of the search between the lowest and the highest score, the highest left out.
POINTS = 198


def range_thresholds(scores: np.ndarray, Y: np.ndarray, points: int = POINTS) -> np.ndarray:
    """Return, per class, the threshold (K,) with the highest F1 among equally spaced points of its score range.

    The points are ``linspace(min, max, points + 1)`` without the last. Ties go to the lowest point; a class without
    positives is warned about and never called. ``scores`` (N, K), ``Y`` (N, K) 0/1.
    """
    scores = np.asarray(scores, dtype=np.float64)
    grids = np.linspace(scores.min(axis=0), scores.max(axis=0), points + 1)[:-1]
    return np.concatenate([grid_thresholds(scores[:, [k]], Y[:, [k]], grids[:, k]) for k in range(scores.shape[1])])


SEARCHES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "0.05 quantile": quantile_thresholds,
    "F1 search": range_thresholds,
}


def recalibrated(rows: pd.DataFrame, codes: Sequence[str], parts: Mapping[str, str]) -> pd.DataFrame:
    """Return test rows with the calls of every rule, from the rows of one method that hold scores of all parts.

    ``parts`` names what thresholds are chosen on: part -> how to call it ("val" -> "validation"). The method becomes
    ``"<method>, <search> on <name>"``.
    """
    test = rows[rows["part"] == "test"]
    scores, frames = test[[f"score_{code}" for code in codes]].to_numpy(), []
    for part, name in parts.items():
        on = rows[rows["part"] == part]
        own, labels = (on[[f"{kind}_{code}" for code in codes]].to_numpy() for kind in ("score", "y"))
        for search, choose in SEARCHES.items():
            called = (scores > choose(own, labels)).astype(int)
            calls = {f"pred_{code}": called[:, k] for k, code in enumerate(codes)}
            frames.append(test.assign(method=test["method"] + f", {search} on {name}", **calls))
    return pd.concat(frames, ignore_index=True)
