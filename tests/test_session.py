"""The start of a notebook: caps, the device, and which pure cultures no training sees."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from PIL import Image

from phoebi_lib import encoders, features, session
from phoebi_lib.catalogue import CODES
from phoebi_lib.limits import Limits
from phoebi_lib.splits import random_split


def test_caps_are_on_or_off():
    assert session.start().limits.battery == 1
    assert session.start(caps=False).limits == Limits()
    with pytest.raises(ValueError, match="caps must be True or False .on or off on the command line., got 'off'"):
        session.start(caps="off")


@pytest.mark.parametrize("wrong", [
    {"dataset": "sim:bogus"}, {"dataset": "sim:smoke:"}, {"dataset": "sim:smoke:four:"}, {"partition": "lco-007"},
    {"partition": "lco-²"}, {"partition": "dev-00"},
])  # fmt: skip
def test_what_a_notebook_could_not_open_is_refused_at_its_start(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        session.start(**wrong)
    for good in ("sim:smoke", "sim:default:four", "sim:rehearsal"):
        assert session.start(dataset=good, partition="lco-0").dataset == good


def test_a_folder_without_labels_is_refused_at_its_start(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "1.png")
    with pytest.raises(ValueError, match="unlabelled pictures cannot be split; put them into sub-folders"):
        session.start(dataset=str(tmp_path))
    (tmp_path / "bs").mkdir()
    (tmp_path / "1.png").rename(tmp_path / "bs" / "1.png")
    assert session.start(dataset=str(tmp_path)).dataset == str(tmp_path)


@pytest.mark.parametrize(("value", "expected"), [(None, "cpu"), ("", "cpu"), ("cuda:1", "cuda:1")])
def test_the_environment_names_the_device(monkeypatch, value, expected):
    asked = []

    def load(name, *, img_size, device):
        asked.append((name, img_size, device))
        return SimpleNamespace()

    monkeypatch.setattr(encoders, "load_encoder", load)
    monkeypatch.setattr(features, "embed", lambda dataset, encoder, front_end: (dataset, front_end))
    monkeypatch.delenv("PHOEBI_DEVICE", raising=False)
    if value is not None:
        monkeypatch.setenv("PHOEBI_DEVICE", value)
    dataset, front_end = session.start(encoder="efficientnet_lite0").embed("images", tile_size=168, sigma=32)
    assert asked == [("efficientnet_lite0", 168, expected)] and dataset == "images"
    assert (front_end.tile_size, front_end.sigma, front_end.grid, front_end.padding) == (168, 32, 4, "reflect")


def test_an_encoder_is_loaded_once_for_all_pools_of_a_tile_size(monkeypatch):
    asked = []
    monkeypatch.setattr(encoders, "load_encoder", lambda name, **given: asked.append(given["img_size"]))
    monkeypatch.setattr(features, "embed", lambda dataset, encoder, front_end: None)
    run = session.start(encoder="efficientnet_lite0")
    for size in (224, 224, 168, 224):
        run.embed("images", tile_size=size)
    session.start(encoder="efficientnet_lite0").embed("images")
    assert asked == [224, 168, 224, 224], "one encoder is kept, and no longer than its run"


def test_pure_cultures_of_a_folder_are_those_of_its_test_part(tmp_path):
    """A folder has no further frames: the pure cultures' share of the random test split serves."""
    for name in (*CODES, "bs_ka"):
        (tmp_path / name).mkdir()
        for number in range(1, 5):
            Image.new("RGB", (4, 4)).save(tmp_path / name / f"{number:05d}.jpg")
    run = session.start(dataset=str(tmp_path))
    pure = run.open_pure()
    test = run.open_dataset().manifest.iloc[random_split(run.open_dataset().manifest)["test"]]
    assert pure.manifest["combination"].tolist() == list(CODES)
    assert set(pure.manifest["path"]) == set(test["path"]) - {"bs_ka/00004.jpg"}
