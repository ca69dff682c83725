"""The pool: made once, equal to the byte however it was made, and never taken for whole when it is not."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from phoebi_lib import features, workspace
from phoebi_lib.datasets import open_dataset
from phoebi_lib.encoder_records import get_record
from phoebi_lib.encoders import load_encoder
from phoebi_lib.features import embed, open_pool
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.pool import unit_norm

SIZES = [(40, 52), (36, 36), (40, 52), (61, 33), (40, 52), (36, 36), (32, 32), (40, 52), (40, 52), (55, 47)]
FRONT_END = FrontEnd(tile_size=32, grid=2, sigma=16)


class TinyEncoder:
    """Six numbers of a tile, by an encoder's interface: fast, fixed, and different for different tiles."""

    record = replace(get_record("efficientnet_lite0"), name="tiny", dim=6)
    dim, img_size, device, dtype = 6, 32, torch.device("cpu"), "float32"
    weights_sha256, stand_in = "0" * 64, False
    calls = 0

    @property
    def identity(self) -> dict:
        return {"name": "tiny", "weights_sha256": self.weights_sha256, "img_size": self.img_size}

    def __call__(self, tiles: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.cat([tiles.mean(dim=(2, 3)), tiles.std(dim=(2, 3))], dim=1)


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("PHOEBI_QUIET", "1")
    monkeypatch.setenv("PHOEBI_POOLS", str(tmp_path / "pools"))


@pytest.fixture
def folder(tmp_path):
    """Ten pictures of several sizes: pure bs, pure ka, and their mixture."""
    rng = np.random.default_rng(0)
    for i, (height, width) in enumerate(SIZES):
        combination = ("bs", "bs_ka", "ka")[i % 3]
        path = tmp_path / "pictures" / combination / f"{i // 3 + 1:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(20, 220, (height, width, 3), dtype=np.uint8)).save(path)
    return tmp_path / "pictures"


@pytest.fixture
def dataset(folder):
    return open_dataset(folder)


def contents(pool_folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(pool_folder.iterdir())}


def only_pool(store: Path) -> Path:
    found = [path.parent for path in store.glob("*/pool.json")]
    assert len(found) == 1
    return found[0]


def test_a_pool_holds_features_labels_and_where_they_come_from(dataset):
    pool = embed(dataset, TinyEncoder(), FRONT_END)
    assert len(pool) == 10 and pool.raw.shape == (10, 4, 6) and pool.raw.dtype == np.float32
    assert isinstance(pool.raw, np.memmap) and not pool.raw.flags.writeable
    for i in (0, 3, 9):
        tiles = FRONT_END.tiles(torch.from_numpy(dataset.read(i))[None])[0]
        assert np.allclose(pool.raw[i], TinyEncoder()(tiles).numpy(), atol=1e-4)
    X = pool.X
    assert X.dtype == np.float32 and np.allclose(np.linalg.norm(X, axis=2), 1, atol=1e-6)
    assert np.allclose(X, pool.raw / np.linalg.norm(pool.raw, axis=2, keepdims=True), atol=1e-6)
    assert np.array_equal(pool.take([7, 2]), X[[7, 2]])
    mask = np.arange(10) % 4 == 1
    assert np.array_equal(pool.take(mask), X[mask])
    assert pool.ids == dataset.manifest["path"].tolist() and pool.codes == dataset.codes
    assert np.array_equal(pool.Y, dataset.Y) and pool.Y.sum() == 10 + 3
    assert pool.manifest.equals(dataset.manifest)
    assert (pool.dataset_name, pool.encoder_name, pool.evidence) == ("pictures", "tiny", "user")
    assert pool.facts == {"crops_per_frame": 1}
    assert pool.provenance["frontend"] == FRONT_END.parameters and pool.provenance["device"] == "cpu"
    assert set(pool.provenance["versions"]) == {"torch", "timm", "Pillow"}
    assert only_pool(workspace.pools_dir()).name == pool.key[:16]
    assert "10 images x 4 tiles x 6 features of tiny" in repr(pool)


def test_an_image_is_decoded_once_and_never_again(dataset, monkeypatch):
    encoder, read, real = TinyEncoder(), [], type(dataset).read
    monkeypatch.setattr(type(dataset), "read", lambda self, i: (read.append(i), real(self, i))[1])
    first = embed(dataset, encoder, FRONT_END, batch_frames=4)
    assert sorted(read) == list(range(10)) and encoder.calls == 3
    again = embed(dataset, encoder, FRONT_END, batch_frames=4)
    assert len(read) == 10 and encoder.calls == 3
    assert again.key == first.key and np.array_equal(again.raw, first.raw)


@pytest.mark.parametrize("batch_frames", [1, 3, 8])
def test_workers_leave_no_trace(dataset, tmp_path, batch_frames):
    pools = []
    for workers in (1, 2, 5):
        store = tmp_path / f"{workers}"
        embed(dataset, TinyEncoder(), FRONT_END, store=store, workers=workers, batch_frames=batch_frames)
        pools.append(contents(only_pool(store)))
    assert set(pools[0]) == {"features.npy", "done.npy", "pool.json"}
    assert pools[0] == pools[1] == pools[2]


def test_select_keeps_rows_together(dataset):
    pool = embed(dataset, TinyEncoder(), FRONT_END)
    part = pool.select([8, 1, 4])
    assert part.ids == [pool.ids[8], pool.ids[1], pool.ids[4]]
    assert np.array_equal(part.X, pool.take([8, 1, 4])) and np.array_equal(part.Y, pool.Y[[8, 1, 4]])
    assert part.key not in (pool.key, pool.select([1, 8, 4]).key)
    assert part.manifest.index.tolist() == [0, 1, 2]
    assert pool.select(pool.Y[:, 0] == 1).Y[:, 0].all()


# ---------------------------------------------------------------- the key


def other_bytes(dataset):
    path = dataset.file(5)
    Image.fromarray(np.full((36, 36, 3), 77, dtype=np.uint8)).save(path)
    return {}


def other_label(dataset):
    (dataset.images / "bs" / "00004.png").rename(dataset.images / "ka" / "00004.png")
    return {"dataset": open_dataset(dataset.images)}


def other_weights(dataset):
    encoder = TinyEncoder()
    encoder.weights_sha256 = "1" * 64
    return {"encoder": encoder}


CHANGES = {
    "bytes of an image": other_bytes,
    "label of an image": other_label,
    "weights": other_weights,
    "order": lambda dataset: {"dataset": dataset.select(np.arange(10)[::-1])},
    "fewer images": lambda dataset: {"dataset": dataset.select(np.arange(9))},
    "evidence": lambda dataset: {"dataset": replace(dataset, evidence="simulated")},
    "facts": lambda dataset: {"dataset": replace(dataset, facts={"parameters_sha256": "f"})},
    "codes": lambda dataset: {"dataset": replace(dataset, codes=dataset.codes[::-1])},
    "padding": lambda dataset: {"frontend": replace(FRONT_END, padding="zero")},
    "sigma": lambda dataset: {"frontend": replace(FRONT_END, sigma=17)},
    "downsample": lambda dataset: {"frontend": replace(FRONT_END, downsample=4)},
    "illumination": lambda dataset: {"frontend": replace(FRONT_END, illumination="none")},
    "grid": lambda dataset: {"frontend": replace(FRONT_END, grid=3)},
    "batches": lambda dataset: {"batch_frames": 4},
}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_whatever_changes_a_feature_or_a_label_changes_the_key(change, dataset):
    before = embed(dataset, TinyEncoder(), FRONT_END)
    arguments = {"dataset": dataset, "encoder": TinyEncoder(), "frontend": FRONT_END} | CHANGES[change](dataset)
    after = embed(**arguments)
    assert after.key != before.key
    assert open_pool(workspace.pools_dir() / before.key[:16]).key == before.key


def test_versions_and_code_are_in_the_key(dataset, monkeypatch):
    keys = [embed(dataset, TinyEncoder(), FRONT_END).key]
    monkeypatch.setattr(features, "version", lambda name: "0.0.1")
    keys.append(embed(dataset, TinyEncoder(), FRONT_END).key)
    monkeypatch.setattr(features, "_code_sha256", lambda: "another")
    keys.append(embed(dataset, TinyEncoder(), FRONT_END).key)
    assert len(set(keys)) == 3


def test_a_moved_folder_is_the_same_data(dataset, folder, tmp_path):
    first = embed(dataset, TinyEncoder(), FRONT_END)
    shutil.copytree(folder, tmp_path / "elsewhere" / "pictures")
    assert embed(open_dataset(tmp_path / "elsewhere" / "pictures"), TinyEncoder(), FRONT_END).key == first.key


def test_remembered_hashes_notice_a_change_that_keeps_size_and_time(dataset, folder):
    path = dataset.file(0)
    for file in folder.rglob("*.png"):
        os.utime(file, ns=(10**18, 10**18))
    time.sleep(2.1)  # until then a hash is not remembered
    first = embed(dataset, TinyEncoder(), FRONT_END)
    assert list((workspace.pools_dir() / "hashes").glob("*.json"))
    data = bytearray(path.read_bytes())
    with Image.open(path) as image:
        pixels = np.asarray(image).copy()
    pixels[0, 0] ^= 1
    Image.fromarray(pixels).save(path)
    path.write_bytes(path.read_bytes().ljust(len(data), b"\0")[: len(data)])
    os.utime(path, ns=(10**18, 10**18))
    assert embed(dataset, TinyEncoder(), FRONT_END).key != first.key


# ---------------------------------------------------------------- kills, races, full disks


class Stop(BaseException):
    """Not an Exception, like a keyboard interrupt."""


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_run_resumes_to_the_same_bytes(after, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("phoebi_lib.pool._SECONDS_BETWEEN_COMMITS", 0.0)
    whole = embed(dataset, TinyEncoder(), FRONT_END, store=tmp_path / "whole", batch_frames=3)

    class Interrupted(TinyEncoder):
        def __call__(self, tiles):
            if self.calls == after:
                raise Stop
            return super().__call__(tiles)

    with pytest.raises(Stop):
        embed(dataset, Interrupted(), FRONT_END, store=tmp_path / "cut", batch_frames=3)
    with pytest.raises(ValueError, match="unfinished.*resume"):
        open_pool(only_pool(tmp_path / "cut"))
    encoder = TinyEncoder()
    embed(dataset, encoder, FRONT_END, store=tmp_path / "cut", batch_frames=3)
    assert encoder.calls == 4 - after
    assert contents(only_pool(tmp_path / "cut")) == contents(tmp_path / "whole" / whole.key[:16])


_TWO_PROCESSES = """
import os, sys, time
sys.path.insert(0, {tests!r})
import phoebi_lib.pool
from test_features import FRONT_END, TinyEncoder
from phoebi_lib.datasets import open_dataset
from phoebi_lib.features import embed
phoebi_lib.pool._SECONDS_BETWEEN_COMMITS = 0.0

class Slow(TinyEncoder):
    def __call__(self, tiles):
        with open({store!r} + "/calls", "a") as calls:
            print(os.getpid(), file=calls)
        time.sleep(0.3)
        return super().__call__(tiles)

for _ in range(2):
    if os.fork() == 0:
        embed(open_dataset({folder!r}), Slow(), FRONT_END, store={store!r}, batch_frames=1)
        os._exit(0)
print(sorted(os.wait()[1] for _ in range(2)))
"""


def test_a_killed_process_is_resumed_by_another_on_the_same_store(dataset, folder, tmp_path):
    """Two processes start at once; one fills the pool, is killed, and the other one, which waited, goes on."""
    whole = embed(dataset, TinyEncoder(), FRONT_END, store=tmp_path / "whole", batch_frames=1)
    store = tmp_path / "shared"
    store.mkdir()
    calls = store / "calls"
    code = _TWO_PROCESSES.format(tests=str(Path(__file__).parent), folder=str(folder), store=str(store))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        while parent.poll() is None and not (calls.exists() and calls.read_text().count("\n") >= 3):
            time.sleep(0.02)
        victim = calls.read_text().split()[0]
        os.kill(int(victim), signal.SIGKILL)
        assert parent.communicate(timeout=120)[0].strip() == f"[0, {int(signal.SIGKILL)}]"
    by_victim, by_other = (len(list(rows)) for _, rows in itertools.groupby(calls.read_text().split()))
    # the second process did what was missing: at most the row in hand at the kill was done twice
    assert by_victim >= 3 and by_victim + by_other in (10, 11)
    assert contents(only_pool(store)) == contents(tmp_path / "whole" / whole.key[:16])


def test_a_full_disk_is_said_before_the_work(dataset, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 100))
    with pytest.raises(OSError, match="needs 1,088 bytes and the disk has 100"):
        embed(dataset, TinyEncoder(), FRONT_END)
    assert not list(workspace.pools_dir().glob("*/pool.json"))


def test_a_disk_that_fills_up_leaves_no_pool_that_looks_complete(dataset, tmp_path, monkeypatch):
    def full(file, data, offset):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="unfinished; free some space and run again"):
            embed(dataset, TinyEncoder(), FRONT_END)
    with pytest.raises(ValueError, match="unfinished"):
        open_pool(only_pool(workspace.pools_dir()))
    assert embed(dataset, TinyEncoder(), FRONT_END).raw.all()


# ---------------------------------------------------------------- damaged pools


def test_damage_is_refused(dataset):
    pool = embed(dataset, TinyEncoder(), FRONT_END)
    folder = only_pool(workspace.pools_dir())
    good = contents(folder)

    def refused(match, verify=False):
        with pytest.raises(ValueError, match=match):
            open_pool(folder, verify=verify)
        for name, data in good.items():
            (folder / name).write_bytes(data)

    header = json.loads(good["pool.json"])
    for change in (
        {"labels": header["labels"][::-1]},
        {"evidence": "paper"},
        {"codes": header["codes"][::-1]},
        {"manifest": header["manifest"] | {"path": header["manifest"]["path"][::-1]}},
    ):
        (folder / "pool.json").write_text(json.dumps(header | change))
        refused("not those the features were made from")
    ingredients = header["ingredients"] | {"frontend": replace(FRONT_END, padding="zero").parameters}
    (folder / "pool.json").write_text(json.dumps(header | {"ingredients": ingredients}))
    refused("key .* does not match")
    (folder / "pool.json").write_text(good["pool.json"].decode()[:50])
    refused("damaged")
    (folder / "features.npy").write_bytes(good["features.npy"][:-4])
    refused(r"features\.npy has 1084 bytes, expected 1088")
    (folder / "features.npy").write_bytes(good["features.npy"][:-4] + b"\0\0\0\0")
    refused("has changed", verify=True)
    assert open_pool(folder, verify=True).key == pool.key
    folder.rename(folder.with_name("0" * 16))
    with pytest.raises(ValueError, match="key .* does not match"):
        open_pool(folder.with_name("0" * 16))
    with pytest.raises(FileNotFoundError, match="no feature pool there"):
        open_pool(folder)


# ---------------------------------------------------------------- images and arguments


def test_a_folder_without_labels(folder, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for i, path in enumerate(sorted(folder.rglob("*.png"))[:3]):
        shutil.copy(path, plain / f"slide {i}.png")
    pool = embed(open_dataset(plain), TinyEncoder(), FRONT_END)
    assert not pool.labelled and len(pool.X) == 3
    with pytest.raises(ValueError, match="no labels"):
        pool.Y  # noqa: B018
    assert not pool.select([0]).labelled


def test_evidence(dataset):
    encoder = TinyEncoder()
    for evidence, expected in (("simulated", "simulated"), ("paper", "user"), ("user", "user")):
        assert embed(replace(dataset, evidence=evidence), encoder, FRONT_END).evidence == expected
    encoder.record = get_record("uni")
    for evidence in ("simulated", "paper", "user"):
        assert embed(replace(dataset, evidence=evidence), encoder, FRONT_END).evidence == evidence
    encoder.stand_in = True
    for evidence in ("simulated", "paper"):
        assert embed(replace(dataset, evidence=evidence), encoder, FRONT_END).evidence == "stand-in"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_features_that_are_no_numbers_are_refused_with_the_image_named(value, dataset):
    class Broken(TinyEncoder):
        def __call__(self, tiles):
            out = super().__call__(tiles)
            if self.calls == 2:
                out[4 * 1 + 2] = value  # tile 2 of the second frame of the second batch
            return out

    with pytest.raises(ValueError, match=rf"{dataset.manifest['path'][4]}.*tile 2"):
        embed(dataset, Broken(), FRONT_END, batch_frames=3)
    with pytest.raises(ValueError, match="unfinished"):
        open_pool(only_pool(workspace.pools_dir()))


def test_an_unreadable_image_is_named(dataset):
    dataset.file(6).write_bytes(dataset.file(6).read_bytes()[:60])
    with pytest.raises(ValueError, match=dataset.manifest["path"][6]):
        embed(dataset, TinyEncoder(), FRONT_END)
    dataset.file(6).unlink()
    with pytest.raises(ValueError, match=dataset.manifest["path"][6]):
        embed(dataset, TinyEncoder(), FRONT_END)


def test_a_picture_smaller_than_a_tile_is_named(dataset):
    Image.fromarray(np.full((20, 50, 3), 100, dtype=np.uint8)).save(dataset.file(2))
    with pytest.raises(ValueError, match=rf"{dataset.manifest['path'][2]}.*50 x 20 px is smaller than one tile"):
        embed(dataset, TinyEncoder(), FRONT_END)


def test_arguments_are_checked(dataset):
    with pytest.raises(ValueError, match=r"tiles of 64 px.*img_size=64"):
        embed(dataset, TinyEncoder(), FrontEnd(tile_size=64))
    for name, value in (("batch_frames", 0), ("batch_frames", 1.5), ("workers", 0)):
        with pytest.raises(ValueError, match=name):
            embed(dataset, TinyEncoder(), FRONT_END, **{name: value})
    with pytest.raises(ValueError, match="no images"):
        embed(dataset.select([]), TinyEncoder(), FRONT_END)


def test_unit_norm():
    raw = np.random.default_rng(0).normal(size=(3, 2, 5)).astype(np.float32)
    assert np.allclose(unit_norm(raw), raw / np.sqrt((raw**2).sum(-1, keepdims=True)), atol=1e-6)
    assert np.array_equal(unit_norm(np.zeros((1, 4))), np.zeros((1, 4)))


# ---------------------------------------------------------------- with a real encoder


def test_batches_of_one_and_eight_agree_with_a_real_encoder(tmp_path):
    rng = np.random.default_rng(0)
    pictures = tmp_path / "two" / "bs"
    pictures.mkdir(parents=True)
    for i in (1, 2):
        Image.fromarray(rng.integers(60, 200, (240, 260, 3), dtype=np.uint8)).save(pictures / f"{i:05d}.png")
    dataset, encoder = open_dataset(tmp_path / "two"), load_encoder("efficientnet_lite0")
    one, eight = (embed(dataset, encoder, FrontEnd(grid=2), batch_frames=n).X for n in (1, 8))
    assert one.shape == (2, 4, 1280) and np.abs(one - eight).max() < 1e-5
    assert np.abs(one[0] - one[1]).max() > 1e-3
