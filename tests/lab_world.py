"""A run for the labs without pictures or encoder: small frames with a lamp, features that are noisy mixtures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from phoebi_lib import parameters
from phoebi_lib.catalogue import CODES, COMBINATIONS, label_matrix
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.pool import Pool

FRAMES, TILES, WIDTH, SIDE = 10, 9, 36, 352


def manifest() -> pd.DataFrame:
    rows = [(f"{name}/{i:05d}.png", name, i, 1) for name in COMBINATIONS for i in range(1, FRAMES + 1)]
    return pd.DataFrame(rows, columns=["path", "combination", "frame", "crop"])


def make_pool() -> Pool:
    rng, table = np.random.default_rng(0), manifest()
    anchors = rng.gamma(0.6, 1.0, (len(CODES), WIDTH))
    labels = label_matrix(table["combination"])
    weights = rng.dirichlet(np.full(len(CODES), 2.0), (len(table), TILES)) * labels[:, None]
    raw = weights / weights.sum(axis=2, keepdims=True) @ anchors + rng.normal(0, 0.15, (len(table), TILES, WIDTH))
    header = {"key": "labs", "codes": list(CODES), "labels": labels.tolist(), "dataset_name": "sim:tiny",
              "encoder_name": "none", "evidence": "simulated", "facts": {}, "shape": list(raw.shape)}  # fmt: skip
    return Pool(raw.astype(np.float32), table, header)


def read(i: int) -> np.ndarray:
    lamp = np.linspace(70, 160, SIDE)[None, None] * np.array([1.2, 1.0, 0.8])[:, None, None]
    noise = np.random.default_rng(i).normal(0, 6, (3, SIDE, SIDE))
    return (lamp + noise).clip(0, 255).astype(np.uint8)


def start(**given: Any) -> SimpleNamespace:
    """Stand in for ``session.start``."""
    return SimpleNamespace(
        **given, open_pool=make_pool, banner=lambda: None,
        open_dataset=lambda: SimpleNamespace(manifest=manifest(), codes=CODES, read=read),
        front_end=lambda **changes: FrontEnd(**{"tile_size": 100, **changes}),
    )  # fmt: skip


def code_cells(source: Path) -> list[Any]:
    return [cell for cell in parameters.read_notebook(source).cells if cell.cell_type == "code"]
