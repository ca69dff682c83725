"""Mosaics: what each quadrant shows, where it comes from, and that nothing but pure training frames goes in."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from phoebi_lib.catalogue import CODES
from phoebi_lib.datasets import open_dataset
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.splits import partition as split
from phoebi_lib.studies import mosaics
from phoebi_lib.studies.mosaics import assemble, layout, make_mosaics, mosaic_combinations

PURE = ("bs", "fj", "ka", "mx", "pf")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Three frames of 240 px of each pure culture and of two mixtures; the grey level tells folder and frame."""
    root = tmp_path_factory.mktemp("images")
    for k, name in enumerate((*CODES, "bs_mx", "ka_fj")):
        (root / name).mkdir()
        for frame in range(1, 4):
            ramp = np.arange(240) // 12
            pixels = 20 * k + 2 * frame + ramp[None] + ramp[:, None]
            picture = np.repeat(pixels[..., None], 3, axis=2).astype(np.uint8)
            Image.fromarray(picture).save(root / name / f"{frame:05d}.png")
    return open_dataset(root)


def test_five_species_give_the_published_26_combinations():
    names = mosaic_combinations(PURE)
    assert len(names) == 26 == len(set(names))
    assert [sum(name.count("_") == size - 1 for name in names) for size in (2, 3, 4, 5)] == [10, 10, 5, 1]
    assert mosaic_combinations(("bs", "bt", "fj")) == ["bs_bt", "bs_fj", "bt_fj", "bs_bt_fj"]


@given(number=st.integers(1, 10_000), size=st.integers(2, 5), spare=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_every_species_is_there_and_nothing_else(number, size, spare):
    name = "_".join(PURE[:size])
    sources = {code: i + 1 for i, code in enumerate(PURE)}
    pieces = layout(name, number, size + spare, sources)
    assert len(pieces) == size + spare and {code for code, *_ in pieces} == set(PURE[:size])
    assert all(0 <= frame < sources[code] and 0 <= y < 1 and 0 <= x < 1 for code, frame, y, x in pieces)
    assert pieces == layout(name, number, size + spare, sources), "the same every time"


def test_species_frames_and_places_are_drawn_uniformly():
    pieces = [piece for number in range(1, 201) for piece in layout("bs_fj_ka", number, 64, dict.fromkeys(PURE, 4))]
    table = pd.DataFrame(pieces, columns=["code", "frame", "y", "x"])
    assert (table["code"].value_counts(normalize=True) - 1 / 3).abs().max() < 0.02
    assert (table["frame"].value_counts(normalize=True) - 1 / 4).abs().max() < 0.02
    assert abs(table["y"].mean() - 0.5) < 0.02 and abs(np.corrcoef(table["y"], table["x"])[0, 1]) < 0.03
    with pytest.raises(ValueError, match="3 species do not fit into 2 quadrants"):
        layout("bs_fj_ka", 1, 2, dict.fromkeys(PURE, 4))


def test_assembly_by_hand():
    frame = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    frames = {"bs": [frame, frame + 100], "fj": [255 - frame]}
    pieces = [("bs", 0, 0.0, 0.0), ("fj", 0, 0.999, 0.999), ("bs", 1, 0.5, 0.26), ("fj", 0, 0.0, 0.75)]
    picture = assemble(pieces, frames, side=2)
    assert picture.shape == (3, 4, 4) and picture.dtype == np.uint8
    # crops of 2 px have 3 places down and 4 across in a frame of 4 x 5
    assert np.array_equal(picture[:, :2, :2], frame[:, 0:2, 0:2])
    assert np.array_equal(picture[:, :2, 2:], 255 - frame[:, 2:4, 3:5])
    assert np.array_equal(picture[:, 2:, :2], frame[:, 1:3, 1:3] + 100)
    assert np.array_equal(picture[:, 2:, 2:], 255 - frame[:, 0:2, 3:5])


def test_only_pure_training_frames_go_in_corrected_and_rounded(images):
    front_end = FrontEnd(grid=2, tile_size=224)
    train = np.flatnonzero(images.manifest["frame"] < 3)
    train = train[images.manifest["combination"].iloc[train] != "bt"]  # a species whose pure culture is held out
    made = make_mosaics(images, train, front_end, 2)
    assert len(made) == 52 and set(made.manifest["combination"]) == set(mosaic_combinations(PURE))
    assert set(made.sources.manifest["combination"]) == set(PURE) and set(made.sources.manifest["frame"]) == {1, 2}
    assert np.array_equal(made.Y.sum(axis=0), [2 * 15, 0, 2 * 15, 2 * 15, 2 * 15, 2 * 15])
    i = len(made) - 1
    picture, pieces = made.read(i), made.pieces(i)
    assert picture.shape == (3, 448, 448) and len(pieces) == 16
    for j, (code, number, down, right) in enumerate(pieces):
        rows = np.flatnonzero((images.manifest["combination"] == code) & (images.manifest["frame"] < 3))
        source = torch.from_numpy(images.read(int(rows[number])))[None]
        corrected = np.rint(front_end.correct(source)[0].numpy()).astype(np.uint8)
        top, left = int(down * 129), int(right * 129)
        y, x = 112 * (j // 4), 112 * (j % 4)
        assert np.array_equal(picture[:, y : y + 112, x : x + 112], corrected[:, top : top + 112, left : left + 112])
    # with the same grid and no correction, a tile is two by two quadrants
    tiles = FrontEnd(grid=2, tile_size=224, illumination="none").tiles(torch.from_numpy(picture)[None])[0].numpy()
    assert np.array_equal(tiles[1], picture[:, :224, 224:])


def test_reading_order_and_more_mosaics_change_nothing(images):
    train, front_end = np.arange(len(images)), FrontEnd(grid=2)
    few, more = (make_mosaics(images, train, front_end, n) for n in (1, 3))
    assert np.array_equal(few.read(3), make_mosaics(images, train, front_end, 1).read(3))
    name = few.manifest["combination"].iloc[3]
    same = np.flatnonzero((more.manifest["combination"] == name) & (more.manifest["frame"] == 1))[0]
    assert np.array_equal(few.read(3), more.read(int(same)))
    assert np.array_equal(more.select([int(same)]).read(0), few.read(3))


def test_pools_are_told_apart_by_sources_front_end_and_size(images):
    train = np.arange(len(images))
    facts = [
        str(made.facts["mosaics"])
        for made in (
            make_mosaics(images, train, FrontEnd(grid=2), 1),
            make_mosaics(images, train, FrontEnd(grid=2, sigma=32), 1),
            make_mosaics(images, train[images.manifest["frame"] > 1], FrontEnd(grid=2), 1),
            make_mosaics(images, train, FrontEnd(grid=2), 1, sources=2),
        )
    ]
    assert len(set(facts)) == 4
    assert all(path.is_file() for path in [make_mosaics(images, train, FrontEnd(grid=2), 1).file(5)])


def test_a_partition_without_pure_cultures_is_refused(images):
    mixed = np.flatnonzero(images.manifest["combination"].str.contains("_"))
    with pytest.raises(ValueError, match="pure cultures of two species"):
        make_mosaics(images, mixed, FrontEnd(grid=2), 1)


def test_published_sizes_without_a_cap(images):
    assert mosaics.PER_COMBINATION == 300 and mosaics.SOURCES == 200
    made = make_mosaics(images, np.arange(len(images)), FrontEnd(grid=2), None)
    assert made.manifest["combination"].value_counts().unique().tolist() == [300]


def test_the_partition_of_the_paper_covers_six_of_nine_held_out_combinations():
    from phoebi_lib.splits import published_manifest

    manifest = published_manifest(3, 1)
    parts = split(manifest, "lco-1337", grouping="frame")
    names = manifest["combination"].to_numpy()
    pure = [code for code in CODES if code in set(names[parts["train"]])]
    made = {frozenset(name.split("_")) for name in mosaic_combinations(pure)}
    assert sum(frozenset(name.split("_")) in made for name in set(names[parts["test"]])) == 6
