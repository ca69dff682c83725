"""Finer units than a tile (Appendix C.3): six granularities, and closed-form read-outs of each."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from phoebi_lib.compat import choice
from phoebi_lib.decoders import ProtoMatch, SimplexUnmix
from phoebi_lib.encoders import Encoder, load_encoder
from phoebi_lib.features import embed
from phoebi_lib.limits import first_rows
from phoebi_lib.splits import partition as split
from phoebi_lib.studies.intervals_study import AGGREGATIONS
from phoebi_lib.studies.score_rows import score_rows
from phoebi_lib.weights import find_weights, load_network
from phoebi_lib.workspace import text_sha256

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.pool import Pool
    from phoebi_lib.session import Run

#: Units kept per image where a granularity has more, as published.
MAX_UNITS = 64
#: Granularity -> side of its tiles in px, tiles per axis at the published grid of 4, and what is taken from a tile.
GRANULARITIES: Mapping[str, tuple[int, int, str]] = {
    "pooled 224": (224, 4, "pooled"),
    "patch mean 224": (224, 4, "patch mean"),
    "patch 224": (224, 4, "patch"),
    "pooled 112": (112, 8, "pooled"),
    "patch mean 112": (112, 8, "patch mean"),
    "pooled 56": (56, 16, "pooled"),
}
_SEED = 1337


def at_most(X: np.ndarray, n: int = MAX_UNITS) -> np.ndarray:
    """Return (N, min(U, n), D): of U units per image the same n of every image, a fixed random set in their order.

    The set is the first n of a permutation by a torch CPU generator seeded 1337, sorted.
    """
    if X.shape[1] <= n:
        return X
    kept = torch.randperm(X.shape[1], generator=torch.Generator().manual_seed(_SEED))[:n].sort().values
    return X[:, kept.numpy()]


def subset_rows(dataset: Dataset, partition: str, run: Run) -> dict[str, np.ndarray]:
    """Return the images of a partition that are embedded again: so many per combination as the cap on ablations says.

    A trained-on combination gives the cap's training and validation images; a held-out one as many test images as a
    combination gives in the random split's three parts together. Without a cap, all images.
    """
    parts = split(dataset.manifest, partition, grouping=choice("lco_grouping", run.compat), codes=dataset.codes)
    cap = run.limits.ablation
    counts = (None, None, None) if cap is None else (cap[0], cap[1], sum(cap))
    return {part: first_rows(dataset.manifest, parts[part], n)
            for part, n in zip(("train", "val", "test"), counts, strict=True)}  # fmt: skip


class PatchMean:
    """An encoder whose feature of a tile is the mean of its patch tokens; for :func:`phoebi_lib.features.embed`.

    For a convolutional network with global average pooling that is the pooled feature itself; for DINOv2, whose feature
    is the class token, it is something else.
    """

    def __init__(self, encoder: Encoder, network: torch.nn.Module) -> None:
        self.record, self.dim, self.img_size = encoder.record, encoder.dim, encoder.img_size
        self.stand_in, self.device = encoder.stand_in, encoder.device
        self._encoder, self._network = encoder, network.eval().requires_grad_(False).to(encoder.device)

    @property
    def identity(self) -> dict:
        """What decides the features, as plain values; part of a pool's key."""
        code = text_sha256(inspect.getsource(sys.modules[__name__]))
        return {**self._encoder.identity, "feature": "mean of the patch tokens", "code": code}

    @torch.inference_mode()
    def __call__(self, tiles: torch.Tensor) -> torch.Tensor:
        """Return (n, D) float32 of tiles (n, 3, s, s), float32 in 0..255."""
        mean, std = (tiles.new_tensor(v).reshape(1, 3, 1, 1) for v in (self.record.mean, self.record.std))
        half = self._encoder.dtype == "float16"
        found = []
        for part in tiles.split(16):
            with torch.autocast(self.device.type, dtype=torch.float16, enabled=half):
                found.append(patch_tokens(self._network, (part / 255 - mean) / std).mean(dim=1).float())
        return torch.cat(found)


def patch_tokens(network: torch.nn.Module, tiles: torch.Tensor) -> torch.Tensor:
    """Return (n, places, D): what a timm network's last stage gives for normalised tiles, without prefix tokens."""
    tokens = network.forward_features(tiles)
    if tokens.ndim == 4:
        return tokens.flatten(2).transpose(1, 2)
    return tokens[:, getattr(network, "num_prefix_tokens", 0) :]


def mean_pooled(network: torch.nn.Module) -> bool:
    """Return whether a network's pooled feature is the mean of its patch tokens by construction: a convolutional one.

    Its last stage then gives a map, and its pooling is the average over the map with nothing behind it.
    """
    pool = getattr(network, "global_pool", None)
    return getattr(pool, "pool_type", None) == "avg" and not hasattr(network, "num_prefix_tokens")


def open_unit_pool(run: Run, dataset: Dataset, name: str) -> Pool:
    """Return the pool of one granularity: units of each image on the axis T.

    The tile grid scales with the run's: twice or four times its tiles per axis at 112 and 56 px. Patch tokens are kept
    at so many fixed random places per image as the run's cap says, at 64 without one. Where the mean of the patch
    tokens is the pooled feature, that pool is returned.
    """
    side, grid, kind = GRANULARITIES[name]
    settings = {"tile_size": side, "grid": grid * run.grid // 4} if side != 224 else {}
    if kind == "patch":
        return run.embed_patches(dataset, run.limits.patches or MAX_UNITS)
    if kind == "patch mean":
        encoder = load_encoder(run.encoder, img_size=side)
        network, _ = load_network(encoder.record, find_weights(encoder.record).path, side)
        if not mean_pooled(network):
            return embed(dataset, PatchMean(encoder, network), run.front_end(**settings))
    return run.embed(dataset, **settings)


def closed_form_rows(pool: Pool, parts: Mapping[str, np.ndarray], name: str, **facts: Any) -> pd.DataFrame:
    """Return rows of the closed-form configurations of one granularity, of every part but ``train``.

    Prototypes are the hybrid ones of the training images' units. ``method`` is ``"<name>, <read-out>, <aggregation>"``:
    cosines or sparsemax weights (tau 10) of at most 64 units, by mean, 0.9 quantile or maximum. Thresholds are the 0.05
    quantile on ``val``.
    """
    features, labels = {part: at_most(pool.take(rows)) for part, rows in parts.items()}, pool.Y
    frames = []
    for read_out, decoder in (("cosine", ProtoMatch()), ("sparsemax", SimplexUnmix(epochs=0))):
        decoder.fit(features["train"], labels[parts["train"]])
        units = {part: decoder.tile_scores(X) for part, X in features.items() if part != "train"}
        for aggregation, aggregate in AGGREGATIONS.items():
            images = {part: aggregate(values) for part, values in units.items()}
            decoder.calibrate_scores(images["val"], labels[parts["val"]])
            for part, values in images.items():
                called, method = decoder.predict_scores(values), f"{name}, {read_out}, {aggregation}"
                more = {"method": method, "part": part, "updates": 0, **facts}
                frames.append(score_rows(pool, parts[part], values, called, **more))
    return pd.concat(frames, ignore_index=True)


def positions_in(pool: Pool, dataset: Dataset, parts: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Return row positions in a pool of a selection of images, from positions in the data set it was selected from."""
    where = {path: i for i, path in enumerate(pool.ids)}
    paths = dataset.manifest["path"].to_numpy()
    return {part: np.array([where[path] for path in paths[rows]]) for part, rows in parts.items()}
