"""A training that is killed goes on as if nothing had happened, and two processes share one store."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from phoebi_lib.baselines.finetune import checkpoint, finetune
from phoebi_lib.baselines.finetune import train as training
from phoebi_lib.datasets import Dataset
from tests import finetune_toy as toy

RECIPE = toy.whole(updates=12, batch=8, evaluations=3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return toy.write(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("PHOEBI_QUIET", "1")
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_SAVES", 0.0)


def store(monkeypatch, folder):
    for name in ("pools", "results"):
        monkeypatch.setenv(f"PHOEBI_{name.upper()}", str(folder / name))


def run(dataset, recipe=RECIPE):
    """Dropout draws from torch's generator: its state has to come back too."""
    return finetune(dataset, toy.parts(dataset), encoder=toy.backbone(dropout=0.3), recipe=recipe, seed=3)


def outcome(folder):
    """Everything that a training leaves, seconds aside."""
    own = next((folder / "pools" / "finetune" / "trainings").glob("[0-9a-f]*"))
    facts = checkpoint.finished(own)
    facts.pop("seconds")
    return facts, checkpoint.load_best(own)


@pytest.fixture(scope="module")
def undisturbed(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHOEBI_QUIET", "1")
        store(patch, folder)
        return run(dataset), *outcome(folder)


def same(found, expected):
    (rows, facts, best), (known_rows, known_facts, known_best) = found, expected
    assert facts == known_facts
    assert best.keys() == known_best.keys() and all(torch.equal(best[name], known_best[name]) for name in best)
    pd.testing.assert_frame_equal(rows.drop(columns="seconds"), known_rows.drop(columns="seconds"))


@pytest.mark.parametrize("kills", [[1], [4], [5, 6, 11]], ids=str)
def test_killed_at_any_update_it_ends_the_same(dataset, tmp_path, monkeypatch, undisturbed, kills):
    store(monkeypatch, tmp_path)
    update, left, done = training.update, list(kills), []

    def killed(*rest):
        if left and len(done) == left[0]:
            left.pop(0)
            raise KeyboardInterrupt
        done.append(update(*rest))
        return done[-1]

    monkeypatch.setattr(training, "update", killed)
    for _ in kills:
        with pytest.raises(KeyboardInterrupt):
            run(dataset)
        torch.manual_seed(np.random.default_rng().integers(1000))
    same((run(dataset), *outcome(tmp_path)), undisturbed)
    assert len(done) == 12, "no update is taken twice"


def test_kill_9_is_survived(dataset, tmp_path, monkeypatch, undisturbed):
    store(monkeypatch, tmp_path)
    script = f"""
import os, signal
from phoebi_lib.baselines.finetune import train as training
from phoebi_lib.datasets import open_dataset
from tests import test_finetune_resume as own
training._SECONDS_BETWEEN_SAVES = 0.0
save = training._Run.save
def killed(self, folder):
    save(self, folder)
    if len(self.facts["losses"]) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
training._Run.save = killed
own.run(open_dataset({str(dataset.images)!r}))
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[1], check=False)
    assert ended.returncode == -signal.SIGKILL
    state = next((tmp_path / "pools").rglob(checkpoint.STATE))
    assert len(checkpoint.load_state(state.parent)[1]["losses"]) == 7
    same((run(dataset), *outcome(tmp_path)), undisturbed)


def test_images_prepared_before_a_kill_are_kept(dataset, tmp_path, monkeypatch, undisturbed):
    store(monkeypatch, tmp_path)
    read, seen = Dataset.read, []

    def killed(self, i):
        if i == 40:
            raise KeyboardInterrupt
        seen.append(i)
        return read(self, i)

    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "read", killed)
        with pytest.raises(KeyboardInterrupt):
            run(dataset)
    first, seen = set(seen), []
    monkeypatch.setattr(Dataset, "read", lambda self, i: seen.append(i) or read(self, i))
    same((run(dataset), *outcome(tmp_path)), undisturbed)
    assert sorted(seen) == list(range(40, 77)) and first >= set(range(40))


def test_a_save_that_fails_leaves_the_state_before(tmp_path, monkeypatch):
    checkpoint.save_state(tmp_path, {"a": torch.ones(2)}, {"step": 1})

    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save_state(tmp_path, {"a": torch.zeros(2)}, {"step": 2})
    tensors, facts = checkpoint.load_state(tmp_path)
    assert facts == {"step": 1} and tensors["a"].tolist() == [1, 1]
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.STATE]


def test_damaged_files_are_named(dataset, tmp_path, monkeypatch):
    store(monkeypatch, tmp_path)
    run(dataset)
    folder = next((tmp_path / "pools" / "finetune" / "trainings").glob("[0-9a-f]*"))
    best = folder / checkpoint.BEST
    best.write_bytes(best.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ValueError, match="best.safetensors: has changed since it was written; delete the folder"):
        checkpoint.finished(folder)
    (folder / checkpoint.STATE).write_bytes(b"nothing")
    with pytest.raises(ValueError, match="state.safetensors: damaged"):
        checkpoint.load_state(folder)
    inputs = next((tmp_path / "pools").rglob("pictures.npy"))
    inputs.write_bytes(inputs.read_bytes()[:200])
    for rows in (tmp_path / "results").rglob("*.parquet"):
        rows.unlink()
    with pytest.raises(ValueError, match="damaged.*delete the folder to make it anew"):
        run(dataset)


def test_a_second_process_waits_and_finds_the_training(dataset, tmp_path, monkeypatch, capfd):
    """While another holds the training's lock nothing is trained; when it is done its result is taken."""
    store(monkeypatch, tmp_path)
    expected = run(dataset)
    folder = next((tmp_path / "pools" / "finetune" / "trainings").glob("[0-9a-f]*"))
    for rows in (tmp_path / "results").rglob("*.parquet"):
        rows.unlink()
    monkeypatch.setenv("PHOEBI_QUIET", "0")
    monkeypatch.setattr(training, "update", lambda *_: pytest.fail("trained twice"))
    found, said, deadline = [], "", time.monotonic() + 60
    with checkpoint.claim(folder):
        second = threading.Thread(target=lambda: found.append(run(dataset)))
        second.start()
        while f"another process is at work in {folder}" not in said and time.monotonic() < deadline:
            second.join(0.02)
            said += capfd.readouterr().err
        assert time.monotonic() < deadline and second.is_alive() and not found
    second.join(60)
    pd.testing.assert_frame_equal(found[0], expected)
