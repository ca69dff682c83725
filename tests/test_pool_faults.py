"""Damaged, unfinished and read-only pools, row selections, and writes that fail."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_features import FRONT_END, TinyEncoder

from phoebi_lib import features, workspace
from phoebi_lib.content import content_hashes
from phoebi_lib.datasets import open_dataset
from phoebi_lib.features import embed, open_pool
from phoebi_lib.frontend import FrontEnd


class Stop(BaseException):
    """Ends a run as a keyboard interrupt does."""


class Interrupted(TinyEncoder):
    """Gives one batch and stops."""

    def __call__(self, tiles):
        if self.calls == 1:
            raise Stop
        return super().__call__(tiles)


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("PHOEBI_QUIET", "1")
    monkeypatch.setenv("PHOEBI_POOLS", str(tmp_path / "pools"))
    monkeypatch.setattr("phoebi_lib.pool._SECONDS_BETWEEN_COMMITS", 0.0)


@pytest.fixture
def dataset(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "pictures" / "bs"
    folder.mkdir(parents=True)
    for i in range(1, 7):
        Image.fromarray(rng.integers(20, 220, (40, 44, 3), dtype=np.uint8)).save(folder / f"{i:05d}.png")
    return open_dataset(tmp_path / "pictures")


@pytest.fixture
def unfinished(dataset) -> Path:
    """A pool of which two images of six are done."""
    with pytest.raises(Stop):
        embed(dataset, Interrupted(), FRONT_END, batch_frames=2)
    (header,) = workspace.pools_dir().glob("*/pool.json")
    assert json.loads(header.read_text())["complete"] is False
    return header.parent


def resume(dataset):
    return embed(dataset, TinyEncoder(), FRONT_END, batch_frames=2)


def all_done(folder: Path) -> None:
    data = bytearray((folder / "done.npy").read_bytes())
    data[-6:] = b"\1" * 6
    (folder / "done.npy").write_bytes(data)


# ---------------------------------------------------------------- unfinished pools


@pytest.mark.parametrize("name", ["features.npy", "done.npy"])
@pytest.mark.parametrize("damage", ["empty", "short", "long", "missing", "first bytes"])
def test_an_unfinished_pool_with_a_damaged_file_is_not_resumed(unfinished, dataset, name, damage):
    all_done(unfinished)  # otherwise the rows that are missing would be made again
    path = unfinished / name
    data = path.read_bytes()
    changed = {"empty": b"", "short": data[:-1], "long": data + b"\1", "first bytes": b"\0" * 8 + data[8:]}
    path.unlink() if damage == "missing" else path.write_bytes(changed[damage])
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: damaged.*delete the folder and run embed"):
        resume(dataset)
    assert json.loads((unfinished / "pool.json").read_text())["complete"] is False


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("rows_at_once", [1, 4, 100])
def test_a_row_without_features_never_completes_a_pool(unfinished, dataset, monkeypatch, value, rows_at_once):
    monkeypatch.setattr("phoebi_lib.pool._CHECKED_BYTES", rows_at_once * 4 * 6 * 4)
    raw = np.lib.format.open_memmap(unfinished / "features.npy", mode="r+")
    raw[:] = 1
    raw[5, 2] = value  # one tile of the last image
    raw.flush()
    all_done(unfinished)
    with pytest.raises(ValueError, match=r"features\.npy: damaged, row 5 is marked as done.*delete the folder"):
        resume(dataset)
    with pytest.raises(ValueError, match="unfinished"):
        open_pool(unfinished)


def test_an_unfinished_pool_of_another_shape_is_not_resumed(unfinished, dataset):
    header = json.loads((unfinished / "pool.json").read_text())
    (unfinished / "pool.json").write_text(json.dumps(header | {"shape": [3, 4, 6]}))
    with pytest.raises(ValueError, match="another key; delete the folder"):
        resume(dataset)


# ---------------------------------------------------------------- pool.json and remembered hashes


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    "change", ["{}", "[]", "null", "3", "[" * 100_000, "key", "complete", "ingredients", "labels", "run", "shape"]
)
def test_a_header_that_lacks_something_is_refused_by_name(dataset, finished, change):
    if finished:
        resume(dataset)
    else:
        with pytest.raises(Stop):
            embed(dataset, Interrupted(), FRONT_END, batch_frames=2)
    (path,) = workspace.pools_dir().glob("*/pool.json")
    header = json.loads(path.read_text())
    if change in header:
        del header[change]
        path.write_text(json.dumps(header))
    else:
        path.write_text(change)
    for action in (lambda: open_pool(path.parent), lambda: resume(dataset)):
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: damaged.*delete the folder and run embed"):
            action()


@pytest.mark.parametrize(
    "change", [{"key": 3}, {"shape": [6, 4]}, {"shape": [6, 4, "6"]}, {"ingredients": []}, {"ingredients": {}}]
)
def test_a_header_of_other_types_is_refused(dataset, change):
    resume(dataset)
    (path,) = workspace.pools_dir().glob("*/pool.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=re.escape(str(path.parent))):
        open_pool(path.parent)


@pytest.mark.parametrize("text", ["[]", "null", '{"bs/00001.png": 3}', '{"bs/00001.png": []}', "3", "[" * 100_000, ""])
def test_damaged_memories_of_hashes_count_as_empty(dataset, text):
    expected = [workspace.file_sha256(dataset.file(i)) for i in range(len(dataset))]
    for i in range(len(dataset)):
        os.utime(dataset.file(i), ns=(10**18, 10**18))
    name = workspace.text_sha256(str(dataset.images.resolve()))[:16]
    memory = workspace.pools_dir() / "hashes" / f"{name}.json"
    memory.parent.mkdir(parents=True)
    memory.write_text(text)
    assert content_hashes(dataset) == expected


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("method", ["take", "select"])
@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (np.ones(5, dtype=bool), ValueError),
        (np.ones(7, dtype=bool), ValueError),
        (np.ones((6, 4), dtype=bool), ValueError),
        ([0.0, 1.0], TypeError),
        (["0"], TypeError),
        ([6], IndexError),
        ([-1], IndexError),
        ([[0, 1]], ValueError),
        (2, ValueError),
    ],
)
def test_rows_that_are_no_rows_are_refused(dataset, method, rows, error):
    pool = resume(dataset)
    with pytest.raises(error, match="mask|row positions"):
        getattr(pool, method)(rows)
    with pytest.raises(error, match="mask|row positions"):
        dataset.select(rows)


def test_rows_that_are_rows_are_taken(dataset):
    pool = resume(dataset)
    assert pool.take([]).shape == (0, 4, 6) and len(pool.select([])) == 0
    mask = np.array([True, False, False, True, False, False])
    for rows in (mask, mask.tolist(), [0, 3], np.array([0, 3], dtype=np.uint8), (0, 3)):
        assert np.array_equal(pool.take(rows), pool.X[[0, 3]])
        assert pool.select(rows).ids == [pool.ids[0], pool.ids[3]]


# ---------------------------------------------------------------- disks


def test_a_complete_pool_opens_on_a_read_only_disk(dataset, monkeypatch):
    key = resume(dataset).key

    def read_only(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(features, "_claim", read_only)
    monkeypatch.setattr(workspace.tempfile, "mkstemp", read_only)
    for i in range(len(dataset)):  # hashes that would now be remembered
        os.utime(dataset.file(i), ns=(10**18, 10**18))
    monkeypatch.setattr("phoebi_lib.content._RACY_SECONDS", -100.0)
    assert resume(dataset).key == key
    with pytest.raises(OSError, match="Read-only"):
        embed(dataset, TinyEncoder(), FrontEnd(tile_size=32, grid=3), batch_frames=2)


@pytest.mark.parametrize("where", ["write", "mkstemp", "replace"])
def test_a_full_disk_names_the_file(tmp_path, monkeypatch, where):
    path = tmp_path / "table.json"

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if where != "write":
        monkeypatch.setattr({"mkstemp": workspace.tempfile, "replace": os}[where], where, full)
    with pytest.raises(OSError, match="No space left") as caught, workspace.atomic_path(path) as temporary:
        temporary.write_text("half")
        if where == "write":
            full()
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(path)
    assert not list(tmp_path.iterdir())


def test_an_error_about_another_file_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, workspace.atomic_path(tmp_path / "table.json"):
        (tmp_path / "source.json").read_text()
    assert caught.value.filename.endswith("source.json")
