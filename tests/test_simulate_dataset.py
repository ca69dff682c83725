"""Simulated data sets on disk: layout, determinism, resuming, refusals, faults."""

from __future__ import annotations

import csv
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phoebi_lib.catalogue import CODES, FOUR_CLASS_CODES
from phoebi_lib.simulate import (
    PURE,
    SIMULATED,
    SimulationError,
    SimulationMismatchError,
    draw_field,
    parameters_sha256,
    simulate_dataset,
)
from phoebi_lib.simulate.pool import run_all

SMALL = {"field.width": 400, "field.height": 300, "crop.size": 128, "session.shared_pool": 3}
SET = {"name": "tiny", "fields_per_combination": 2, "crops_per_field": 3, "combinations": ("bs", "ka_fj"), "workers": 1}


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reference") / "set"
    simulate_dataset(root, **SET, overrides=SMALL)
    return root


def test_layout(reference):
    names = {str(path.relative_to(reference)) for path in (reference / "images").rglob("*.jpg")}
    assert names == {f"images/{c}/{n:05d}.jpg" for c in ("bs", "ka_fj") for n in range(1, 7)}
    facts = json.loads((reference / "dataset.json").read_text())
    expected = {"crops_per_frame": 3, "world": "combination", "seed": 1337, "fields_per_combination": 2}
    assert {key: facts[key] for key in expected} == expected
    assert facts["simulated"] is True and facts["name"] == "tiny" and facts["codes"] == list(CODES)
    assert facts["parameters_sha256"] == parameters_sha256(SMALL)
    with open(reference / "cells.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["path", "combination", "frame", "crop", *CODES] and len(rows) == 12
    for row in rows:
        frame, crop = int(row["frame"]), int(row["crop"])
        assert row["path"] == f"{row['combination']}/{3 * (frame - 1) + crop:05d}.jpg"
        field = draw_field(row["combination"], frame, overrides=SMALL)
        assert {code: int(row[code]) for code in CODES} == field.counts(crop)
    assert len((reference / "sessions.csv").read_text().splitlines()) == 1 + 4
    assert not [path for path in reference.rglob(".*") if path.name != ".lock"]


def test_images_are_the_fields_crops(reference):
    field = draw_field("ka_fj", 2, overrides=SMALL)
    expected = np.asarray(field.cut(field.photograph(), 3)).astype(int)
    with Image.open(reference / "images/ka_fj/00006.jpg") as image:
        assert image.format == "JPEG" and image.mode == "RGB" and image.size == (128, 128)
        assert np.abs(np.asarray(image).astype(int) - expected).mean() < 2.5


def test_a_full_size_image(tmp_path):
    simulate_dataset(
        tmp_path, name="one", fields_per_combination=1, crops_per_field=1, combinations=("mx",), workers=1, seed=3
    )
    with Image.open(tmp_path / "images/mx/00001.jpg") as image:
        assert image.size == (1024, 1024) and image.mode == "RGB"
        grey = np.asarray(image.convert("L")).astype(float)
    assert np.percentile(grey, 0.5) < 0.6 * np.median(grey) and np.percentile(grey, 99.5) > 1.1 * np.median(grey)


def test_two_workers_write_the_same_bytes(reference, tmp_path):
    simulate_dataset(tmp_path, **{**SET, "workers": 2}, overrides=SMALL)
    assert contents(tmp_path) == contents(reference)


@pytest.mark.parametrize("world", ["combination", "shared"])
def test_another_seed_writes_other_bytes(tmp_path, world):
    tiny = {**SET, "fields_per_combination": 3, "crops_per_field": 1, "world": world}
    sets = []
    for folder, seed in (("first", 1), ("again", 1), ("second", 2)):
        simulate_dataset(tmp_path / folder, **tiny, seed=seed, overrides=SMALL)
        sets.append(contents(tmp_path / folder))
    first, again, second = sets
    assert first == again and first.keys() == second.keys()
    pictures = [name for name in first if name.endswith(".jpg")]
    assert len(pictures) == 6
    for name in (*pictures, "cells.csv", "sessions.csv", "dataset.json"):
        assert first[name] != second[name], name


def _runs(pid: str) -> bool:
    """Whether a process is alive; one that waits to be reaped is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_killed_and_resumed_gives_the_same_bytes(tmp_path):
    # stdin, no guard of __main__: workers must not need the caller's script
    many = {**SET, "fields_per_combination": 8, "workers": 2}
    script = (
        "from phoebi_lib.simulate import simulate_dataset\n"
        f"simulate_dataset({str(tmp_path / 'killed')!r}, **{many!r}, overrides={SMALL!r})\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PHOEBI_QUIET": "1", "PYTHONPATH": path}
    process = subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, env=environment)
    process.stdin.write(script.encode())
    process.stdin.close()
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "killed").rglob("*.jpg"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers = children.read_text().split() if children.exists() else []
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while any(_runs(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    stray = [int(worker) for worker in workers if _runs(worker)]
    for worker in stray:
        os.kill(worker, signal.SIGKILL)
    assert not stray, "workers outlived their parent"
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "killed").rglob("[0-9]*.jpg")}
    assert 5 <= len(kept) < 48 and not (tmp_path / "killed/dataset.json").exists()
    (tmp_path / "killed/images/bs/.00001-abc.jpg").write_bytes(b"half")
    simulate_dataset(tmp_path / "killed", **{**many, "workers": 1}, overrides=SMALL)
    simulate_dataset(tmp_path / "whole", **{**many, "workers": 1}, overrides=SMALL)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in kept.items())


def test_a_complete_set_is_left_alone_and_a_lost_image_comes_back(reference):
    before = contents(reference)
    stamp = (reference / "dataset.json").stat().st_mtime_ns
    simulate_dataset(reference, **SET, overrides=SMALL)
    assert (reference / "dataset.json").stat().st_mtime_ns == stamp
    for lost in ("images/bs/00004.jpg", "cells.csv"):
        (reference / lost).unlink()
        simulate_dataset(reference, **SET, overrides=SMALL)
        assert contents(reference) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 1}, "seed is 1337, asked for 1"),
        ({"world": "shared"}, "world"),
        ({"crops_per_field": 2}, "crops_per_frame"),
        ({"overrides": {**SMALL, "optics.wavelength": 0.5}}, "parameters_sha256"),
    ],
)
def test_a_set_made_differently_is_refused_and_untouched(reference, change, told):
    before = contents(reference)
    with pytest.raises(SimulationMismatchError, match=told) as caught:
        simulate_dataset(reference, **{**SET, "overrides": SMALL, **change})
    assert str(reference) in str(caught.value) and "remove the folder" in str(caught.value)
    assert contents(reference) == before


def test_images_of_unknown_origin_and_an_unfinished_other_set_are_refused(tmp_path):
    (tmp_path / "images/bs").mkdir(parents=True)
    (tmp_path / "images/bs/00001.jpg").write_bytes(b"x")
    with pytest.raises(SimulationMismatchError, match="no dataset.json"):
        simulate_dataset(tmp_path, **SET, overrides=SMALL)
    (tmp_path / ".simulation.json").write_text('{"seed": 5}')
    with pytest.raises(SimulationMismatchError, match="seed is 5"):
        simulate_dataset(tmp_path, **SET, overrides=SMALL)
    (tmp_path / "dataset.json").write_text('{"seed')
    with pytest.raises(SimulationMismatchError, match="not readable JSON"):
        simulate_dataset(tmp_path, **SET, overrides=SMALL)


def test_a_full_disk_names_the_field_leaves_nothing_and_can_be_resumed(tmp_path, monkeypatch, reference):
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if "ka_fj" in str(path):
            write(path, data[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SimulationError, match=r"'ka_fj', frame 1: OSError.*No space left"):
        simulate_dataset(tmp_path, **SET, overrides=SMALL)
    assert len(list(tmp_path.rglob("*.jpg"))) == 6 and not list((tmp_path / "images/ka_fj").iterdir())
    assert not (tmp_path / "dataset.json").exists()
    monkeypatch.undo()
    simulate_dataset(tmp_path, **SET, overrides=SMALL)
    assert contents(tmp_path) == contents(reference)


def test_errors_in_workers_surface_with_their_place(tmp_path):
    two = {**SET, "workers": 2, "combinations": ("bs",)}
    with pytest.raises(SimulationError, match="combination 'bs', frame"):
        simulate_dataset(tmp_path, **two, overrides={**SMALL, "field.pixel": 0.12})
    with pytest.raises(SimulationError, match="ended without a word"):
        run_all(os._exit, [3, 3], workers=2)
    with pytest.raises(ValueError, match="workers is 0"):
        run_all(str, [1], workers=0)


@pytest.mark.parametrize(
    "change",
    [
        {"fields_per_combination": 0},
        {"crops_per_field": 0},
        {"fields_per_combination": 50_000},
        {"seed": -1},
        {"world": "own"},
        {"combinations": ()},
        {"combinations": ("bs", "bs")},
        {"combinations": ("bs", "zz")},
        {"codes": FOUR_CLASS_CODES},
        {"codes": ("b", "f"), "combinations": ("b",)},
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(tmp_path, change):
    with pytest.raises(ValueError):
        simulate_dataset(tmp_path / "none", **{**SET, **change})
    assert not (tmp_path / "none").exists()


def test_shared_world_on_disk_records_the_sessions(tmp_path):
    shared = {**SET, "fields_per_combination": 6, "crops_per_field": 1, "world": "shared"}
    simulate_dataset(tmp_path, **shared, overrides=SMALL)
    with open(tmp_path / "sessions.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    lamps = {(row["session"], row["lamp"]) for row in rows}
    assert len(rows) == 12 and len(lamps) == len({number for number, _ in lamps}) > 1
    assert all(float(row["expected_bt"]) == 0 and float(row["expected_ka"]) > 0 for row in rows[6:])


def test_profile_sizes():
    assert SIMULATED["smoke"] == {"fields_per_combination": 10, "crops_per_field": 1}
    assert SIMULATED["default"] == {"fields_per_combination": 10, "crops_per_field": 3}


def test_later_frames_are_those_of_a_longer_run(tmp_path):
    """Frame 3 is the same picture whether a set starts at it or reaches it: sessions and fields know their numbers."""
    one = {**SET, "combinations": ("ka",), "crops_per_field": 1}
    simulate_dataset(tmp_path / "long", **{**one, "fields_per_combination": 3})
    simulate_dataset(tmp_path / "late", **{**one, "fields_per_combination": 1, "first_frame": 3})
    assert [path.name for path in (tmp_path / "late" / "images" / "ka").iterdir()] == ["00003.jpg"]
    pictures = [(tmp_path / name / "images" / "ka" / "00003.jpg").read_bytes() for name in ("long", "late")]
    assert pictures[0] == pictures[1]
    with pytest.raises(ValueError, match="first_frame is 0"):
        simulate_dataset(tmp_path / "none", **{**one, "first_frame": 0})


def test_further_pure_frames_are_as_many_as_promised():
    assert PURE["smoke"]["fields_per_combination"] == 5 and PURE["default"]["fields_per_combination"] == 20
    for profile, sizes in PURE.items():
        assert sizes["crops_per_field"] == 1
        assert sizes["first_frame"] > SIMULATED[profile]["fields_per_combination"], "frames that training sees"
