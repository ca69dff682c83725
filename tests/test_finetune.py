"""Training whole backbones from pixels, on coloured spots and a network of two layers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from phoebi_lib import progress, scoring
from phoebi_lib.baselines.finetune import augment, checkpoint, finetune, harness, history, inputs
from phoebi_lib.baselines.finetune import train as training
from phoebi_lib.baselines.finetune.network import Classifier, registered
from phoebi_lib.catalogue import CODES, FOUR_CLASS_CODES
from phoebi_lib.datasets import Dataset
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.metrics import per_sample_f1
from phoebi_lib.summaries import over_partitions, summarise
from tests import finetune_toy as toy

FITS = toy.whole(updates=120, evaluations=1, batch=22, crop="none", side=32, lr_backbone=3e-2, lr_head=3e-2)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return toy.write(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    for name in ("pools", "results"):
        monkeypatch.setenv(f"PHOEBI_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("PHOEBI_QUIET", "1")


def run(dataset, recipe, **changes):
    values = {"parts": toy.parts(dataset), "encoder": toy.backbone(), "seed": 3, "partition": "random", **changes}
    return finetune(dataset, values.pop("parts"), recipe=recipe, **values)


def trained_folder(tmp_path):
    return next((tmp_path / "pools" / "finetune" / "trainings").glob("[0-9a-f]*"))


@pytest.fixture
def counted(monkeypatch):
    """Calls of ``train`` and the images that are read."""
    calls, train, read = [], harness.train, Dataset.read
    monkeypatch.setattr(harness, "train", lambda *rest, **more: calls.append("train") or train(*rest, **more))
    monkeypatch.setattr(Dataset, "read", lambda self, i: calls.append(i) or read(self, i))
    return calls


# the training itself


def test_separable_pictures_are_fitted(dataset, tmp_path):
    line = summarise(run(dataset, FITS)).set_index("part").loc["test"]
    assert line["train_f1"] > 0.95 and line["f1"] > 0.9 and line["updates"] == 120
    losses = checkpoint.finished(trained_folder(tmp_path))["losses"]
    assert len(losses) == 120 and np.mean(losses[-20:]) < 0.1 * np.mean(losses[:20])


def test_history_tells_each_evaluation(dataset, tmp_path):
    rows = run(dataset, toy.whole(updates=10), profile="smoke")
    curve, losses = history(rows), checkpoint.finished(trained_folder(tmp_path))["losses"]
    assert curve["updates"].tolist() == [3, 5, 8, 10]
    # eleven folders of four training images in batches of ten: five updates an epoch
    assert curve["epoch"].tolist() == [1, 1, 2, 2]
    assert curve["loss"].tolist() == pytest.approx([np.mean(losses[i:j]) for i, j in ((0, 3), (3, 5), (5, 8), (8, 10))])
    assert curve.loc[curve["best"], "updates"].tolist() == [curve["updates"][curve["val_f1"].argmax()]]
    assert rows["val_f1"].iloc[0] == curve["val_f1"].max() == summarise(rows).set_index("part").loc["val", "f1"]


def test_the_first_update_is_plain_torch_s(dataset, tmp_path):
    """One AdamW step on the whole first batch against a loop written out here: pictures, normalisation, loss, step."""
    recipe = toy.whole(updates=1, evaluations=1, crop="none", load=24, batch=7, lr_backbone=1e-3, lr_head=1e-3)
    run(dataset, recipe)
    found = checkpoint.load_best(trained_folder(tmp_path))
    train_rows = toy.parts(dataset)["train"]
    batch = train_rows[augment.order(len(train_rows), 3, 0)[:7]]
    flips = augment.draw(recipe, 7, 24, augment.generator(augment.CROPS, 3, 0, 0)).flips

    start = Classifier(toy.backbone(), 6, 24, 3)
    network, head = toy.network(), nn.Linear(toy.DIM, 6)
    network.load_state_dict(start.backbone.state_dict())
    head.load_state_dict(start.head.state_dict())
    pictures = []
    for row, (mirrored, upside_down) in zip(batch, flips, strict=True):
        picture = np.asarray(Image.open(dataset.file(row)).resize((24, 24), Image.BILINEAR)) / 255.0
        picture = picture[:: -1 if upside_down else 1, :: -1 if mirrored else 1]
        pictures.append(((picture - toy.MEAN) / toy.STD).transpose(2, 0, 1))
    optimiser = torch.optim.AdamW([*network.parameters(), *head.parameters()], lr=1e-3, weight_decay=1e-4)
    logits = head(network(torch.tensor(np.array(pictures), dtype=torch.float32)))
    loss = nn.BCEWithLogitsLoss()(logits, torch.tensor(dataset.Y[batch], dtype=torch.float32))
    loss.backward()
    optimiser.step()

    assert checkpoint.finished(trained_folder(tmp_path))["losses"] == pytest.approx([loss.item()], rel=1e-5)
    for prefix, part in (("backbone", network), ("head", head)):
        for name, tensor in part.state_dict().items():
            torch.testing.assert_close(found[f"{prefix}.{name}"], tensor, rtol=0, atol=1e-5, msg=f"{prefix}.{name}")


def test_epochs_and_updates_are_counted(dataset):
    recipe = toy.whole(updates=None, epochs=2, batch=16)
    rows = run(dataset, recipe)
    assert training.check_points(recipe, 44) == [3, 6] and set(rows["updates"]) == {6}
    assert training.check_points(replace(recipe, updates=10), 44) == [3, 5, 8, 10]
    assert training.check_points(replace(recipe, updates=2), 44) == [1, 2]
    assert training.check_points(replace(recipe, batch=100), 44) == [1, 2]


def test_backbone_and_head_have_their_own_rates(dataset, tmp_path):
    run(dataset, toy.whole(updates=3, lr_backbone=0.0))
    found, start = checkpoint.load_best(trained_folder(tmp_path)), Classifier(toy.backbone(), 6, 24, 3).state_dict()
    weights = [name for name in start if name.startswith("backbone") and name.endswith("weight")]
    assert len(weights) == 3 and all(torch.equal(found[name], start[name]) for name in weights)
    assert not torch.equal(found["head.weight"], start["head.weight"])


def test_the_first_of_equal_evaluations_is_kept(dataset, tmp_path, monkeypatch):
    values, states = iter([0.5, 0.7, 0.7, 0.6, 0.9]), []
    evaluate = training._Run.evaluate

    def remember(self, *rest):
        states.append({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
        evaluate(self, *rest)

    monkeypatch.setattr(training._Run, "evaluate", remember)
    monkeypatch.setattr(training, "per_sample_f1", lambda *_: next(values))
    rows = run(dataset, toy.whole(updates=8))
    assert rows["best_update"].unique() == [4] and rows["best_epoch"].unique() == [1]
    assert rows["val_f1"].unique() == [0.7] and rows["train_f1"].unique() == [0.9]
    found = checkpoint.load_best(trained_folder(tmp_path))
    assert all(torch.equal(found[name], states[1][name]) for name in found)
    assert not torch.equal(found["head.weight"], states[2]["head.weight"])


def test_training_f1_is_that_of_a_fixed_sample(dataset, tmp_path):
    rows = run(dataset, toy.whole(train_images=11))
    assert rows["train_f1_images"].unique() == [11]
    model = Classifier(toy.backbone(), 6, 24, 3)
    model.load_state_dict(checkpoint.load_best(trained_folder(tmp_path)))
    sample = toy.parts(dataset)["train"][::4]
    pictures = [np.asarray(Image.open(dataset.file(i)).resize((24, 24), Image.BILINEAR)) for i in sample]
    with torch.inference_mode():
        logits = model.eval()(torch.tensor(np.array(pictures).transpose(0, 3, 1, 2), dtype=torch.float32))
    called = torch.sigmoid(logits.double()).numpy() > rows[[f"threshold_{code}" for code in CODES]].iloc[0].to_numpy()
    assert rows["train_f1"].iloc[0] == pytest.approx(per_sample_f1(dataset.Y[sample], called))


def test_tiles_are_scored_by_the_mean_of_their_chances(dataset, tmp_path):
    rows = run(dataset, toy.pipeline(updates=6))
    model = Classifier(toy.backbone(), 6, 16, 3)
    model.load_state_dict(checkpoint.load_best(trained_folder(tmp_path)))
    row = toy.parts(dataset)["test"][2]
    tiles = FrontEnd(tile_size=16, grid=2).tiles(torch.from_numpy(dataset.read(row))[None])[0].round()
    with torch.inference_mode():
        expected = torch.sigmoid(model.eval()(tiles)).mean(dim=0)
    found = rows.loc[rows["id"] == dataset.manifest["path"].iloc[row], [f"score_{code}" for code in CODES]]
    assert found.to_numpy(dtype=float)[0] == pytest.approx(expected.numpy(), abs=1e-6)
    assert set(rows["method"]) == {"FineTune pipeline (6 updates)"}


def test_a_loss_that_diverges_is_an_error_with_a_way_out(dataset):
    with pytest.raises(FloatingPointError, match=r"nan at update \d+ .*lr_head=\.\.\.\) lowered"):
        run(dataset, toy.whole(lr_backbone=1e30, lr_head=1e30, updates=20))


def test_a_species_without_validation_images_is_never_predicted(dataset):
    parts = toy.parts(dataset)
    short = replace(FITS, updates=20)
    parts["val"] = parts["val"][dataset.Y[parts["val"]][:, 5] == 0]
    with pytest.warns(UserWarning, match="class 5 has no positive image"):
        rows = run(dataset, short, parts=parts)
    assert not rows["pred_pf"].any() and rows["pred_bs"].any()
    assert np.isinf(rows["threshold_pf"]).all()
    with pytest.warns(UserWarning, match="its threshold is 0.01"):
        rows = run(dataset, replace(short, fallback=0.01), parts=parts)
    assert rows["pred_pf"].any()


# rows


def test_rows_are_those_of_a_protocol(dataset):
    rows = run(dataset, toy.whole(), profile="smoke")
    expected = ["id", "combination", "frame", "part", "method"]
    expected += [f"{column}_{code}" for code in CODES for column in ("y", "score", "threshold", "pred")]
    expected += ["dataset", "encoder", "evidence", "profile", "partition", "seed", "compat", "grouping", "pool_key"]
    assert rows.columns.tolist()[: len(expected) + 3] == [*expected, "simulation", "updates", "train_f1"]
    parts = toy.parts(dataset)
    for part in ("val", "test"):
        own = rows[rows["part"] == part]
        assert own["id"].tolist() == dataset.manifest["path"].iloc[parts[part]].tolist()
        assert np.array_equal(own[[f"y_{code}" for code in CODES]], dataset.Y[parts[part]])
    for code in CODES:
        assert np.array_equal(rows[f"pred_{code}"], rows[f"score_{code}"] > rows[f"threshold_{code}"])
    assert (rows["evidence"] == "user").all() and (rows["grouping"] == "frame").all()
    found = scoring.scores(rows[rows["part"] == "test"], n=50)
    assert found["f1"][0] == pytest.approx(over_partitions(summarise(rows)).set_index("part").loc["test", "f1_mean"])


def test_four_classes(tmp_path):
    names = [*FOUR_CLASS_CODES, "b_f", "f_k_p", "b_f_k_p"]
    four = toy.write(tmp_path / "four", names, FOUR_CLASS_CODES)
    rows = run(four, FITS)
    line = summarise(rows).set_index("part").loc["test"]
    assert line["train_f1"] > 0.95 and line["f1_p"] > 0.5
    assert [c for c in rows if c.startswith("pred_")] == [f"pred_{code}" for code in FOUR_CLASS_CODES]


def test_stored_rows_are_found_again(dataset, counted):
    first = run(dataset, toy.whole())
    assert counted.count("train") == 1 and len(counted) == 1 + len(dataset), "each image is decoded once"
    pd.testing.assert_frame_equal(run(dataset, toy.whole()), first)
    assert counted.count("train") == 1


def test_pictures_are_shared_by_recipes(dataset, counted):
    for recipe in (toy.whole(), toy.whole(lr_head=1e-3), toy.whole(crop="none")):
        run(dataset, recipe)
    assert counted.count("train") == 3 and len(counted) == 3 + len(dataset)
    run(dataset, toy.pipeline())
    assert len(counted) == 4 + 2 * len(dataset)


@pytest.mark.parametrize(
    "change",
    [{"recipe": toy.whole(batch=9)}, {"seed": 4}, {"encoder": toy.backbone(sha256="other")}, {"profile": "x"}],
    ids=lambda change: next(iter(change)),
)
def test_other_runs_have_their_own_rows(dataset, counted, tmp_path, change):
    first = run(dataset, toy.whole())
    again = run(dataset, **{"recipe": toy.whole(), **change})
    same_training = "profile" in change
    assert counted.count("train") == (1 if same_training else 2)
    scores = [f"score_{code}" for code in CODES]
    assert first[scores].equals(again[scores]) == (same_training or "encoder" in change)
    assert len(list((tmp_path / "results").rglob("*.parquet"))) == (1 if "encoder" in change else 2)


def test_a_changed_image_trains_again(tmp_path, counted):
    own = toy.write(tmp_path / "pictures", frames=4)
    first = run(own, toy.whole())
    path = own.file(toy.parts(own)["train"][0])
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    again = run(own, toy.whole())
    assert counted.count("train") == 2 and not first["score_bs"].equals(again["score_bs"])


def test_changed_code_trains_again(dataset, counted, monkeypatch):
    run(dataset, toy.whole())
    monkeypatch.setattr(harness, "code_sha256", lambda _: "other")
    run(dataset, toy.whole())
    assert counted.count("train") == 2


def test_a_finished_training_outlives_its_rows(dataset, tmp_path, counted):
    first = run(dataset, toy.whole())
    files = sorted(path.name for path in trained_folder(tmp_path).iterdir())
    assert files == ["best.safetensors", "run.json"], "optimiser and latest weights are gone"
    shutil.rmtree(tmp_path / "results")
    pd.testing.assert_frame_equal(run(dataset, toy.whole()), first)
    assert counted.count("train") == 1


# what cannot be trained


def test_an_unreadable_image_is_named(tmp_path):
    own = toy.write(tmp_path / "pictures", frames=4)
    own.file(5).write_bytes(own.file(5).read_bytes()[:60])
    with pytest.raises(ValueError, match=f"image {own.manifest['path'].iloc[5]!r}.*cannot be read"):
        run(own, toy.whole())
    small = toy.write(tmp_path / "small", frames=4, side=12)
    with pytest.raises(ValueError, match=r"image '.*png'.*smaller than one tile of 16"):
        run(small, toy.pipeline())


def test_parts_that_cannot_be_are_refused(dataset):
    parts = toy.parts(dataset)
    with pytest.raises(ValueError, match="nothing for val"):
        run(dataset, toy.whole(), parts={"train": parts["train"], "test": parts["test"]})
    twice = {**parts, "test": parts["train"][:3]}
    with pytest.raises(ValueError, match=r"may be in one part, once; '.*png' is there twice"):
        run(dataset, toy.whole(), parts=twice)
    with pytest.raises(IndexError, match="part 'test': row positions must lie in"):
        run(dataset, toy.whole(), parts={**parts, "test": np.array([len(dataset)])})
    with pytest.raises(ValueError, match="unknown encoder 'none'"):
        run(dataset, toy.whole(), encoder="none")


def test_a_full_disk_is_told_before_anything_is_decoded(dataset, counted, monkeypatch):
    monkeypatch.setattr(inputs.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    needed = 3 * (44 * 32**2 + 77 * 24**2)
    with pytest.raises(OSError, match=f"need {needed:,} bytes, the disk has 1,000; set PHOEBI_POOLS"):
        run(dataset, toy.whole())
    assert counted == []


def test_progress_tells_how_much_time_is_left(monkeypatch, capsys):
    monkeypatch.setenv("PHOEBI_QUIET", "0")
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=iter([0.0, 12.0, 24.0, 36.0]).__next__))
    assert list(progress.track(range(3), 3, "train")) == [0, 1, 2]
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"train: {text}" for text in (
        "1 of 3 (12 s, about 24 s left)", "2 of 3 (24 s, about 12 s left)", "3 of 3 (36 s)")]  # fmt: skip


def test_a_registered_encoder_starts_from_its_own_weights():
    """The classifier's features before training are those of the frozen encoder."""
    from phoebi_lib.encoders import load_encoder

    known, encoder = registered("efficientnet_lite0"), load_encoder("efficientnet_lite0", img_size=64)
    model = Classifier(known, 6, 64, 0).eval()
    tiles = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 255
    seen = []
    model.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.inference_mode():
        model(tiles)
    torch.testing.assert_close(seen[0], encoder(tiles), rtol=1e-3, atol=1e-4)
    assert known.weights_sha256 == encoder.weights_sha256 and not known.in_paper
    assert all(parameter.requires_grad for parameter in model.parameters())
