"""The audit of the decoders (D7, D8, D12, D33, D42)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from phoebi_lib.decoders import ProtoMatch
from phoebi_lib.decoders.base import Decoder
from phoebi_lib.decoders.thresholds import grid_thresholds
from phoebi_lib.metrics import per_class_auroc
from phoebi_lib.splits import N_FOLDS, PARTITION_SEEDS, lco_split
from phoebi_lib.splits import partition as split
from phoebi_lib.studies.audit import DECODERS, called_rows, decoder_of

if TYPE_CHECKING:
    from phoebi_lib.pool import Pool

_MOST_TILES = 50_000
#: Variant of the development protocol -> (part that sets thresholds, dev images, threshold search of ChannelGroup).
VARIANTS = {
    "as written": ("val", "all", "0.01 to 0.99"),
    "thresholds from training images": ("train", "all", "0.01 to 0.99"),
    "training-part dev images only": ("val", "train part", "0.01 to 0.99"),
    "search over the range of scores": ("val", "all", "range of scores"),
    "as executed": ("train", "train part", "range of scores"),
}


def with_prototypes(decoder: ProtoMatch, prototypes: np.ndarray) -> ProtoMatch:
    """Return a copy of a fitted ProtoMatch that scores against other ``prototypes`` (K, D), and is not calibrated."""
    other = copy.deepcopy(decoder)
    other.prototypes_ = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    if hasattr(other, "thresholds_"):
        del other.thresholds_
    return other


def tile_count_rows(
    decoders: Mapping[str, Decoder], pool: Pool, parts: Mapping[str, np.ndarray], counts: Sequence[int], seed: int = 0
) -> pd.DataFrame:
    """Return test rows of fitted ``decoders`` (name -> decoder) on so many tiles of each image, all on the same tiles.

    Tiles are drawn as in :func:`phoebi_lib.tile_counts.tile_count_sweep`: counts ascending, validation images first,
    without replacement, from one generator. Thresholds are chosen again for each count. Columns ``way`` and ``tiles``.
    """
    labels = {part: pool.Y[parts[part]] for part in ("val", "test")}
    scores = {part: {way: decoder.tile_scores(pool.take(parts[part])) for way, decoder in decoders.items()}
              for part in labels}  # fmt: skip
    n_tiles, rng, tables = pool.raw.shape[1], np.random.default_rng(seed), []
    for count in sorted({min(count, n_tiles) for count in counts}):
        drawn = {part: np.stack([rng.choice(n_tiles, size=count, replace=False) for _ in range(len(Y))])[:, :, None]
                 for part, Y in labels.items()}  # fmt: skip
        for way, decoder in decoders.items():
            val, test = (decoder.aggregate(np.take_along_axis(scores[p][way], drawn[p], axis=1)) for p in labels)
            thresholds = copy.deepcopy(decoder).calibrate_scores(val, labels["val"]).thresholds_
            tables.append(called_rows(pool, parts["test"], test, thresholds, way=way, tiles=count))
    return pd.concat(tables, ignore_index=True)


def range_thresholds(scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return, per class, the threshold of highest F1 among 198 points from the lowest score up, lowest on ties.

    The points are the first 198 of 199 equally spaced ones between the lowest and the highest score of the class; this
    search stands behind the development results of ChannelGroup. ``scores`` and ``Y`` (N, K), returns (K,).
    """
    grids = [np.linspace(column.min(), column.max(), 199)[:-1] for column in scores.T]
    return np.array([grid_thresholds(scores[:, [k]], Y[:, [k]], grid)[0] for k, grid in enumerate(grids)])


def development_rows(pool: Pool, compat: str, grouping: str) -> pd.DataFrame:
    """Return the development folds' rows under every variant of the protocol: columns ``way``, ``method``, ``fold``.

    The decoders of a fold are trained once, on the training part of its training combinations; variants differ in what
    sets thresholds, in which images of the development combinations are asked, and in ChannelGroup's search.
    """
    seed, tables = PARTITION_SEEDS[0], []
    trained_part = lco_split(pool.manifest, seed, grouping=grouping, codes=pool.codes)["train"]
    for fold in range(N_FOLDS):
        parts = split(pool.manifest, f"dev-{fold}", grouping=grouping, codes=pool.codes)
        X, Y = ({part: of(parts[part]) for part in parts} for of in (pool.take, pool.Y.__getitem__))
        for method in DECODERS:
            decoder = decoder_of(method, f"dev-{fold}", compat, seed).fit(X["train"], Y["train"])
            scores = {part: decoder.decision_function(X[part]) for part in parts}
            for way, (part, images, search) in VARIANTS.items():
                if method == "ChannelGroup" and search == "range of scores":
                    thresholds = range_thresholds(scores[part], Y[part])
                else:
                    thresholds = decoder.calibrate_scores(scores[part], Y[part]).thresholds_
                kept = np.isin(parts["test"], trained_part) | (images == "all")
                rows, asked = parts["test"][kept], scores["test"][kept]
                tables.append(called_rows(pool, rows, asked, thresholds, way=way, method=method, fold=fold))
    return pd.concat(tables, ignore_index=True)


def cluster_prototypes(X: np.ndarray, n_classes: int, seed: int) -> np.ndarray:
    """Return the centres (K, D), of unit length, of k-means on the tiles of ``X`` (N, T, D), in the order found.

    At most 50,000 tiles, drawn with ``seed``, are clustered; this is the published initialisation for a missing pure
    culture, and nothing ties a centre to the class of the same number.
    """
    tiles = np.asarray(X).reshape(-1, X.shape[2])
    if len(tiles) > _MOST_TILES:
        tiles = tiles[np.random.default_rng(seed).choice(len(tiles), _MOST_TILES, replace=False)]
    centres = KMeans(n_classes, n_init="auto", random_state=seed).fit(tiles).cluster_centers_.astype(np.float64)
    return centres / np.linalg.norm(centres, axis=1, keepdims=True)


def order_aurocs(scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return the mean AUROC over classes for each of the K! ways to give the columns of ``scores`` (N, K) to classes.

    The first entry is the order as it is. Classes without both kinds of image are left out.
    """
    n_classes = Y.shape[1]
    table = np.array([per_class_auroc(Y, np.repeat(scores[:, [column]], n_classes, axis=1))
                      for column in range(n_classes)])  # fmt: skip
    orders = np.array(list(permutations(range(n_classes))))
    return np.nanmean(table[orders, np.arange(n_classes)], axis=1)


def flipped_calls(rows: pd.DataFrame, codes: Sequence[str]) -> dict[str, int]:
    """Return how many calls (image and species) change with the precision of scores and thresholds, and of how many.

    ``rows`` hold ``score_`` and ``threshold_`` in double precision. ``both single``: both rounded before the
    comparison; ``single scores``: only the scores; ``single thresholds``: only the thresholds. ``ties``: scores equal
    to their threshold in double precision.
    """
    score, threshold = (rows[[f"{kind}_{code}" for code in codes]].to_numpy(dtype=np.float64)
                        for kind in ("score", "threshold"))  # fmt: skip
    call = score > threshold
    single, limit = score.astype(np.float32), threshold.astype(np.float32)
    return {
        "calls": call.size,
        "ties": int((score == threshold).sum()),
        "both single": int(((single > limit) != call).sum()),
        "single scores": int(((single.astype(np.float64) > threshold) != call).sum()),
        "single thresholds": int(((score > limit.astype(np.float64)) != call).sum()),
    }
