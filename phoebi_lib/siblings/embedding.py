"""One feature per picture: the whole picture squeezed to the encoder's square, as the three benchmarks do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from phoebi_lib.datasets import Dataset
from phoebi_lib.features import embed

if TYPE_CHECKING:
    from phoebi_lib.encoders import Encoder
    from phoebi_lib.patches import PatchEncoder


@dataclass(frozen=True)
class WholeImage:
    """A front-end of one tile: the picture resized to ``tile_size`` px a side, bicubic, its proportions not kept."""

    tile_size: int = 224

    @property
    def n_tiles(self) -> int:
        """One feature a picture."""
        return 1

    @property
    def parameters(self) -> dict:
        """What decides the pixels; part of a pool's key."""
        return {"kind": "whole image", "tile_size": self.tile_size, "resize": "bicubic, antialiased, squeezed"}

    def tiles(self, frames: torch.Tensor) -> torch.Tensor:
        """Return (B,1,3,s,s) float32 in 0..255 of uint8 (B,3,H,W)."""
        side = (self.tile_size, self.tile_size)
        resized = torch.nn.functional.interpolate(frames.float(), side, mode="bicubic", antialias=True)
        return resized.clamp(0, 255)[:, None]


def embed_files(
    encoder: Encoder | PatchEncoder,
    root: str | Path,
    files: Sequence[str],
    *,
    name: str,
    evidence: str = "simulated",
    store: str | Path | None = None,
) -> pd.DataFrame:
    """Return raw features (not of unit norm), one row per file and D columns, indexed by the file as given.

    They come from the same pools as every other feature here: kept on disk, resumed after a kill, and embedded again
    only where pictures, encoder or library changed. A :class:`~phoebi_lib.patches.PatchEncoder` gives its tokens one
    after the other, ``units * D`` columns.

    Args:
        encoder: from ``load_encoder``; its ``img_size`` is the side that pictures are squeezed to.
        root: folder that the files are relative to.
        files: paths below ``root``; each once.
        name: what to call the data set, in progress and messages.
        evidence: "simulated" for the fixtures, "user" for anything else.
        store: folder of pools; that of the project by default.

    Raises:
        ValueError: no file, a file given twice, or a picture that cannot be read or gives non-finite features (named).
    """
    table = pd.DataFrame({"path": list(files)})
    if repeated := table["path"][table["path"].duplicated()].tolist():
        raise ValueError(f"{name}: files listed twice: {', '.join(repeated[:5])}")
    manifest = table.assign(combination="", frame=np.arange(len(table)), crop=0)
    pool = embed(Dataset(name, Path(root), manifest, evidence=evidence), encoder, WholeImage(encoder.img_size),
                 store=store)  # fmt: skip
    return pd.DataFrame(pool.raw.reshape(len(table), -1), index=pd.Index(table["path"], name="path"))


def features_of(table: pd.DataFrame, keys: Sequence[str], what: str) -> np.ndarray:
    """Return the rows of ``table`` for ``keys``, float64 (N, D), joined by key and never by position.

    Raises:
        ValueError: a key that the table lacks, one that it holds twice, or features that are not finite (rows named).
    """
    if table.index.has_duplicates:
        twice = table.index[table.index.duplicated()].unique().tolist()
        raise ValueError(f"{what}: features given twice for {', '.join(map(str, twice[:5]))}")
    if absent := [key for key in keys if key not in table.index]:
        raise ValueError(f"{what}: no features for {len(absent)} images, such as {', '.join(map(str, absent[:5]))}")
    values = table.loc[list(keys)].to_numpy(dtype=np.float64)
    if bad := [str(key) for key, row in zip(keys, values, strict=True) if not np.isfinite(row).all()]:
        raise ValueError(f"{what}: features that are not finite for {', '.join(bad[:5])}")
    return values
