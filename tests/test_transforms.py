"""Changed frames: read through the change, embedded once, and never taken for the originals."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from PIL import Image

from phoebi_lib.datasets import open_dataset
from phoebi_lib.features import embed
from phoebi_lib.transforms import transformed
from tests.test_features import FRONT_END, TinyEncoder


def dim(frame, path, by=2):
    return (frame // by).astype(np.uint8)


def shift(frame, path):
    return np.full_like(frame, len(path))


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOEBI_QUIET", "1")
    monkeypatch.setenv("PHOEBI_POOLS", str(tmp_path / "pools"))
    rng = np.random.default_rng(0)
    for name in ("bs", "ka"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for n in (1, 2):
            pixels = rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "set" / name / f"{n:05d}.png")
    return open_dataset(tmp_path / "set")


def test_frames_are_read_through_the_change(dataset):
    half = transformed(dataset, dim, "dim", by=2)
    assert np.array_equal(half.read(3), dataset.read(3) // 2)
    assert (len(half), half.codes, half.manifest.equals(dataset.manifest)) == (4, dataset.codes, True)
    assert np.array_equal(half.select([3]).read(0), dataset.read(3) // 2), "a selection keeps the change"
    assert (transformed(dataset, shift, "shift").read(0) == len("bs/00001.png")).all(), "the change knows the path"


def test_each_change_has_a_pool_of_its_own(dataset):
    encoder = TinyEncoder()
    plain = embed(dataset, encoder, FRONT_END)
    pools = [
        embed(transformed(dataset, dim, "dim", by=2), encoder, FRONT_END),
        embed(transformed(dataset, partial(dim, by=3), "dim", by=3), encoder, FRONT_END),
        embed(transformed(dataset, dim, "darker", by=2), encoder, FRONT_END),
    ]
    assert len({plain.key, *(pool.key for pool in pools)}) == 4
    assert pools[0].facts["transform"]["name"] == "dim" and not np.allclose(pools[0].raw, plain.raw)
    calls = encoder.calls
    again = embed(transformed(dataset, dim, "dim", by=2), encoder, FRONT_END)
    assert again.key == pools[0].key and encoder.calls == calls, "changed frames were embedded twice"


def test_bad_changes(dataset):
    broken = transformed(dataset, lambda frame, path: frame.astype(float), "float")
    with pytest.raises(TypeError, match="uint8 frame of shape"):
        broken.read(0)
    with pytest.raises(TypeError, match="NoneType"):
        transformed(dataset, lambda frame, path: None, "nothing").read(0)
    with pytest.raises(ValueError, match="changed already"):
        transformed(transformed(dataset, dim, "dim"), dim, "dim")
