"""Pictures from real laboratories: 16-bit grey, LZW, RGBA, smaller than four tiles a side."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from phoebi_lib.datasets import open_dataset
from phoebi_lib.encoders import load_encoder
from phoebi_lib.features import embed
from phoebi_lib.frontend import FrontEnd, tile_offsets

FOLDER = Path(
    os.environ.get("PHOEBI_REAL_MICROGRAPHS", Path(__file__).parents[2] / "shared" / "real_micrographs")
).resolve()
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no real micrographs in {FOLDER}; set PHOEBI_REAL_MICROGRAPHS to a folder of pictures"
)


def test_real_micrographs_give_finite_features(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOEBI_QUIET", "1")
    dataset = open_dataset(FOLDER)
    assert dataset.evidence == "user" and not dataset.labelled
    pool = embed(dataset, load_encoder("efficientnet_lite0"), FrontEnd(), store=tmp_path)
    X = pool.X
    assert X.shape == (len(dataset), 16, 1280) and len(dataset) >= 1
    assert np.isfinite(X).all() and np.allclose(np.linalg.norm(X, axis=2), 1, atol=1e-5)
    # different pictures, and overlapping but different tiles of one picture, have different features
    flat = X.reshape(-1, 1280)
    similar = flat @ flat.T
    assert (similar - np.eye(len(flat)) < 0.99999).all()
    assert pool.evidence == "user"
    with pytest.raises(ValueError, match="no labels"):
        pool.Y  # noqa: B018


def test_grids_of_real_pictures_overlap_and_cover_them():
    dataset = open_dataset(FOLDER)
    for i in range(len(dataset)):
        frame = dataset.read(i)
        for length in frame.shape[1:]:
            offsets = tile_offsets(length, 224, 4)
            assert offsets[0] == 0 and offsets[-1] + 224 == length
            assert np.diff(offsets).max() <= 224
        tiles = FrontEnd().tiles(torch.from_numpy(frame)[None])
        assert tiles.shape == (1, 16, 3, 224, 224) and torch.isfinite(tiles).all()
        # the picture was not flattened on the way: each has cells on a ground
        assert tiles.std() > 2
