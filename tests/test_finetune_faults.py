"""What a training is found again by, and what it refuses: other networks, odd arguments, damaged files."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from phoebi_lib.baselines.finetune import checkpoint, finetune, harness
from phoebi_lib.baselines.finetune import train as training
from phoebi_lib.baselines.finetune.identity import told
from phoebi_lib.baselines.finetune.network import Classifier, _facts
from phoebi_lib.catalogue import CODES
from phoebi_lib.datasets import Dataset
from phoebi_lib.encoder_records import get_record
from phoebi_lib.pool import canonical_json
from phoebi_lib.weights import Weights
from phoebi_lib.workspace import text_sha256
from tests import finetune_toy as toy

CPU = torch.device("cpu")
SHORT = toy.whole(updates=2, evaluations=1)
STATE = toy.whole(updates=6, evaluations=3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return toy.write(tmp_path_factory.mktemp("pictures"), names=CODES, frames=4)


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    for name in ("pools", "results"):
        monkeypatch.setenv(f"PHOEBI_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("PHOEBI_QUIET", "1")


@pytest.fixture
def calls(monkeypatch):
    """Calls of ``train`` and the images that are read."""
    made, train, read = [], harness.train, Dataset.read
    monkeypatch.setattr(harness, "train", lambda *rest, **more: made.append("train") or train(*rest, **more))
    monkeypatch.setattr(Dataset, "read", lambda self, i: made.append(i) or read(self, i))
    return made


def run(dataset, **changes):
    values = {"parts": toy.parts(dataset), "encoder": toy.backbone(), "recipe": SHORT, "seed": 3, **changes}
    return finetune(dataset, values.pop("parts"), **values)


# which network it is


def test_rows_of_another_network_of_the_same_name_and_weights_are_not_given(dataset, calls):
    plain, scores = toy.backbone(), [f"score_{code}" for code in CODES]
    others = [replace(plain, mean=(0.1, 0.1, 0.1)), replace(plain, std=(0.9, 0.9, 0.9)), toy.backbone(dropout=0.5)]
    found = [run(dataset, encoder=each)[scores].to_numpy() for each in (plain, *others)]
    assert calls.count("train") == 4 and len({each.tobytes() for each in found}) == 4
    assert len(calls) == 4 + len(dataset), "prepared pictures do not depend on the network"
    run(dataset, encoder=toy.backbone(dropout=0.5))
    assert calls.count("train") == 4, "made anew, the same function is the same network"


def test_a_network_that_cannot_be_told_is_trained_anew(dataset, calls, tmp_path):
    start = toy.network()
    own = replace(toy.backbone(), build=lambda side: (start, start))
    assert own.identity is None
    for _ in range(2):
        run(dataset, encoder=own)
    assert calls.count("train") == 2
    assert not [path for path in (tmp_path / "pools" / "finetune" / "trainings").iterdir() if path.is_dir()]
    said = replace(own, facts={"version": 1})
    assert said.identity != replace(said, facts={"version": 2}).identity
    with pytest.raises(TypeError, match="backbone 'toy': facts must be plain values: Sequential"):
        run(dataset, encoder=replace(own, facts={"network": start}))


def test_what_a_builder_uses_is_part_of_it(tmp_path):
    def module(width, norm):
        path = tmp_path / f"own_{width}_{norm}.py"
        path.write_text(
            f"from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        self.norm = nn.{norm}\n"
            f"def helper():\n    return {width}\ndef build(side):\n    return [helper() for _ in range(2)], Net\n"
        )
        spec = importlib.util.spec_from_file_location("own", path)
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return canonical_json(told(made.build))

    assert len({module(4, "LayerNorm"), module(5, "LayerNorm"), module(4, "BatchNorm2d")}) == 3
    assert module(4, "LayerNorm") == module(4, "LayerNorm")


def test_a_record_and_what_lies_beside_its_weights_decide(tmp_path):
    lite, phikon = get_record("efficientnet_lite0"), get_record("phikon")
    found = Weights(tmp_path / "model.safetensors", "0", stand_in=False)
    assert _facts(lite, found) != _facts(replace(lite, model_args={"act_layer": "gelu"}), found)
    before = _facts(phikon, found)
    (tmp_path / "config.json").write_text("{}")
    assert _facts(phikon, found) != before
    assert {"encoder_records.py", "encoders.py", "weights.py"} <= set(harness._SOURCES)


def test_a_wrong_dim_is_told(dataset):
    with pytest.raises(ValueError, match=r"'toy' gives features of shape \(6, 24\), its dim=23 says"):
        run(dataset, encoder=replace(toy.backbone(), dim=23))


# odd arguments


def test_masks_are_the_rows_they_mark(dataset, calls):
    parts = toy.parts(dataset)
    masks = {part: np.isin(np.arange(len(dataset)), rows) for part, rows in parts.items()}
    pd.testing.assert_frame_equal(run(dataset, parts=masks), run(dataset))
    assert calls.count("train") == 1


@pytest.mark.parametrize(
    "change, message",
    [({"seed": 1.5}, "a seed is an integer"), ({"seed": True}, "a seed is an integer"),
     ({"seed": "7"}, "a seed is an integer"), ({"encoder": None}, "encoder must be a name .*, got None"),
     ({"recipe": "whole"}, "recipe must be a Recipe.*, got 'whole'"), ({"parts": None}, "parts must map train, val")],
)  # fmt: skip
def test_arguments_of_another_kind_are_refused(dataset, change, message):
    with pytest.raises(TypeError, match=message):
        run(dataset, **change)


@pytest.mark.parametrize(
    "rows, error, message",
    [([1.0, 2.0], TypeError, "whole numbers or a boolean mask"), (["1"], TypeError, "whole numbers"),
     (np.ones(3, dtype=bool), ValueError, "one entry per image"), ([-1], IndexError, "must lie in"),
     (None, ValueError, "list of whole numbers")],
)  # fmt: skip
def test_odd_row_positions_are_refused_and_their_part_named(dataset, rows, error, message):
    with pytest.raises(error, match=f"part 'val': .*{message}"):
        run(dataset, parts={**toy.parts(dataset), "val": rows})


@pytest.mark.parametrize("name", ["tpu9", "meta", "cuda:99"])
def test_a_device_that_is_not_here_is_named(dataset, monkeypatch, name):
    with pytest.raises(ValueError, match=f"^device='{name}': no such torch device here .*set PHOEBI_DEVICE"):
        run(dataset, device=name)
    monkeypatch.setenv("PHOEBI_DEVICE", name)
    with pytest.raises(ValueError, match=f"^PHOEBI_DEVICE='{name}': no such"):
        run(dataset)


# damaged files


def begun():
    return training._Run(toy.backbone(), STATE, 6, 3, CPU)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Tensors and facts of a training of six updates after its third, once evaluated."""
    rng, folder, going = np.random.default_rng(0), tmp_path_factory.mktemp("state"), begun()
    labels = rng.integers(0, 2, size=(8, 6))
    labels[0] = 1
    pictures = training.Pictures(rng.integers(0, 255, (8, 1, 3, 32, 32), dtype=np.uint8), np.arange(8), labels)
    evaluated = replace(pictures, array=pictures.array[..., :24, :24])
    for place in range(3):
        going.step(pictures, np.arange(8), 3, 0, place)
        if place == 1:
            going.evaluate(evaluated, 1)
    going.save(folder)
    return checkpoint.load_state(folder)


def test_a_whole_state_is_taken_up(state, tmp_path):
    checkpoint.save_state(tmp_path, *state)
    again = begun()
    again.resume(tmp_path, [2, 4, 6])
    again.save(tmp_path / "again")
    tensors, facts = checkpoint.load_state(tmp_path / "again")
    assert facts == state[1] and all(torch.equal(tensors[name], state[0][name]) for name in state[0])


@pytest.mark.parametrize(
    "name", ["optimiser.0.exp_avg", "optimiser.1.step", "model.head.weight", "best.head.bias", "model.head.more"]
)
def test_a_state_of_other_tensors_is_damaged(state, tmp_path, name):
    tensors = dict(state[0])
    if tensors.pop(name, None) is None:
        tensors[name] = torch.zeros(1)
    for changed in (tensors, {**state[0], name: torch.zeros(5)}, {**state[0], name: torch.zeros(5, dtype=torch.int8)}):
        checkpoint.save_state(tmp_path, changed, state[1])
        fresh = begun()
        with pytest.raises(ValueError, match=rf"state.safetensors: damaged .*{name}.*; delete the folder"):
            fresh.resume(tmp_path, [2, 4, 6])
        assert fresh.facts["losses"] == [] and not fresh.optimiser.state, "nothing of it is taken up"


@pytest.mark.parametrize(
    "name, value",
    [("threads", 0), ("threads", True), ("threads", None), ("scaler", None), ("scaler", {"scale": 1.0}), ("moved", []),
     ("moved", [99]), ("losses", []), ("losses", ["a"] * 3), ("losses", [0.1] * 6), ("losses", None), ("history", []),
     ("history", [{"updates": 3}]), ("best", 7), ("best_f1", 2.0), ("thresholds", [0.5]), ("seconds", -1.0),
     ("seconds", "long"), ("more", 1)],
)  # fmt: skip
def test_a_state_of_other_facts_is_damaged(state, tmp_path, name, value):
    without = {key: kept for key, kept in state[1].items() if key != name}
    for facts in (without, {**state[1], name: value}) if name != "more" else ({**without, name: value},):
        checkpoint.save_state(tmp_path, state[0], facts)
        with pytest.raises(ValueError, match="state.safetensors: damaged .*; delete the folder to train again"):
            begun().resume(tmp_path, [2, 4, 6])


@pytest.fixture
def ended(state, tmp_path):
    """The folder of a finished training of two updates."""
    facts = {name: value for name, value in state[1].items() if name not in ("scaler", "moved")}
    facts["losses"] = facts["losses"][:2]
    best = Classifier(toy.backbone(), 6, 24, 3).state_dict()
    checkpoint.finish(tmp_path, best, {**facts, "train_f1": 0.5, "train_f1_images": 8, "updates": 2})
    return tmp_path


def test_a_finished_training_is_read_back(ended):
    facts = checkpoint.finished(ended, 6)
    assert facts["train_f1"] == 0.5 and "sha256" not in facts and len(facts["thresholds"]) == 6
    assert load_file(ended / checkpoint.BEST).keys() == checkpoint.load_best(ended).keys()
    with pytest.raises(ValueError, match="run.json: damaged .6 thresholds, expected 4"):
        checkpoint.finished(ended, 4)


@pytest.mark.parametrize("name", ["train_f1", "thresholds", "losses", "sha256"])
def test_a_changed_run_is_not_believed(ended, name):
    path = ended / checkpoint.RUN
    document = json.loads(path.read_text())
    for changed in ({**document, name: 0.25}, {**document, name: None}):
        path.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match="run.json: has changed since it was written; delete the folder"):
            checkpoint.finished(ended, 6)


@pytest.mark.parametrize("name", ["losses", "thresholds", "history", "updates", "best_sha256", "train_f1_images"])
def test_a_run_with_other_entries_is_damaged(ended, name):
    path = ended / checkpoint.RUN
    document = json.loads(path.read_text())
    del document["sha256"], document[name]
    path.write_text(json.dumps({**document, "sha256": text_sha256(canonical_json(document))}))
    with pytest.raises(ValueError, match=f"run.json: damaged .*{name}"):
        checkpoint.finished(ended, 6)
