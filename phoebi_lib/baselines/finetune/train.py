"""The training loop of the fine-tuned baselines: one AdamW, validation now and then, the best state kept.

Crops, flips, the order of images and dropout are drawn anew for each update from (seed, epoch, update within it), so
the state on disk holds no generator, and a training that was killed and resumed takes the same steps to the last bit
on a CPU (the number of threads is kept with the state).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from phoebi_lib.baselines.finetune import augment, checkpoint
from phoebi_lib.baselines.finetune.network import Backbone, Classifier
from phoebi_lib.baselines.finetune.recipes import Recipe
from phoebi_lib.decoders.thresholds import grid_thresholds
from phoebi_lib.memory import keep_freed_blocks
from phoebi_lib.metrics import per_sample_f1
from phoebi_lib.progress import track

_SECONDS_BETWEEN_SAVES = 60.0
# pictures per pass of an evaluation
_CHUNK = {"cpu": 16, "cuda": 256}
# what AdamW keeps for each parameter that has moved
_ADAMW = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Pictures:
    """Prepared pictures (N, units, 3, s, s) uint8, the row positions ``rows`` (n,) that count, and labels (n, K)."""

    array: np.ndarray
    rows: np.ndarray
    labels: np.ndarray

    def take(self, which: np.ndarray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return pictures (b * units, 3, s, s) uint8 and their image's labels float32 (b * units, K)."""
        pictures = torch.from_numpy(np.asarray(self.array[self.rows[which]])).to(device)
        labels = torch.from_numpy(self.labels[which].astype(np.float32)).to(device)
        return pictures.flatten(0, 1), labels.repeat_interleave(pictures.shape[1], dim=0)


def check_points(recipe: Recipe, n: int) -> list[int]:
    """Return after which updates validation is scored; the last one ends the training of ``n`` images."""
    if recipe.updates is None:
        per_epoch = -(-n // recipe.batch)
        return [per_epoch * (epoch + 1) for epoch in range(recipe.epochs)]
    return sorted({-(-recipe.updates * (i + 1) // recipe.evaluations) for i in range(recipe.evaluations)})


def update(
    model: Classifier,
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    pictures: torch.Tensor,
    labels: torch.Tensor,
    precision: str = "float32",
) -> float:
    """Take one step on a batch in 0..255 and return its loss, the mean cross-entropy over pictures and classes.

    Raises FloatingPointError where the loss is not finite; the weights are then as before.
    """
    optimiser.zero_grad(set_to_none=True)
    half = pictures.is_cuda and precision != "float32"
    with torch.autocast(pictures.device.type, dtype=getattr(torch, precision) if half else None, enabled=half):
        logits = model(pictures)
    loss = binary_cross_entropy_with_logits(logits.float(), labels)
    value = float(loss.detach())
    if not np.isfinite(value):
        raise FloatingPointError(f"the training loss became {value}")
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
    return value


@torch.inference_mode()
def scores(model: Classifier, pictures: Pictures, device: torch.device) -> np.ndarray:
    """Return image scores (n, K) float64: the mean over an image's pictures of the sigmoids; evaluation mode."""
    model.eval()
    units = pictures.array.shape[1]
    step = max(1, _CHUNK.get(device.type, 16) // units)
    out = []
    for start in range(0, len(pictures.rows), step):
        batch, _ = pictures.take(np.arange(start, min(start + step, len(pictures.rows))), device)
        chances = torch.sigmoid(model(batch.float()).double())
        out.append(chances.reshape(-1, units, chances.shape[1]).mean(dim=1).cpu().numpy())
    return np.concatenate(out)


def train(
    backbone: Backbone,
    recipe: Recipe,
    training: Pictures,
    sample: Pictures,
    validation: Pictures,
    *,
    seed: int,
    device: torch.device,
    folder: Path,
    progress: bool = True,
) -> dict[str, Any]:
    """Train, or go on with the training in ``folder``, and return what :func:`checkpoint.finished` then gives.

    After each epoch (or at the ``evaluations`` of a number of updates) validation is scored, thresholds are chosen on
    it and its per-sample F1 taken with them; the first state with the highest F1 is the best one, as published: only a
    strictly higher F1 replaces it. Training F1 is measured with that state and its thresholds, in evaluation mode.

    Args:
        training: pictures that are cropped and flipped. sample: training images as evaluation sees them, for the
            training F1. validation: for the choice of thresholds and of the best state.

    Returns:
        ``thresholds`` (None for infinity), ``best`` (updates of the best state), ``history`` (one entry per evaluation:
        ``updates``, ``epoch``, mean ``loss`` since the last, ``val_f1``), ``losses`` per update, ``train_f1``,
        ``train_f1_images``, ``updates``, ``seconds``, ``threads``.

    Raises:
        FloatingPointError: the loss or a score is no longer finite; says which learning rates to lower.
        ValueError: what an earlier run left in ``folder`` is damaged, or the backbone's ``dim`` is not its own.
    """
    keep_freed_blocks()
    run = _Run(backbone, recipe, training.labels.shape[1], seed, device)
    n = len(training.rows)
    points, per_epoch = check_points(recipe, n), -(-n // recipe.batch)
    run.resume(folder, points)
    with _threads(run.facts["threads"]):
        steps = range(len(run.facts["losses"]), points[-1])
        what = f"train {backbone.name}, {recipe.method}" + (f" from update {steps.start}" if steps.start else "")
        saved = started = time.monotonic()
        for step in track(steps, len(steps), what) if progress else steps:
            epoch, place = divmod(step, per_epoch)
            rows = augment.order(n, seed, epoch)[place * recipe.batch : (place + 1) * recipe.batch]
            try:
                run.step(training, rows, seed, epoch, place)
                if step + 1 in points:
                    run.evaluate(validation, epoch + 1)
            except FloatingPointError as error:
                raise FloatingPointError(
                    f"{what}: {error} at update {step + 1} (learning rates {recipe.lr_backbone:g} and "
                    f"{recipe.lr_head:g}); train with dataclasses.replace(recipe, lr_backbone=..., lr_head=...) lowered"
                ) from error
            now = time.monotonic()
            run.facts["seconds"] += now - started
            started = now
            if now - saved >= _SECONDS_BETWEEN_SAVES and step + 1 < points[-1]:
                run.save(folder)
                saved = time.monotonic()
        run.model.load_state_dict(run.best)
        thresholds = as_thresholds(run.facts["thresholds"])
        train_f1 = per_sample_f1(sample.labels, scores(run.model, sample, device) > thresholds)
    more = {"train_f1": train_f1, "train_f1_images": len(sample.rows), "updates": points[-1]}
    checkpoint.finish(folder, run.best, {**run.facts, **more})
    return checkpoint.finished(folder, training.labels.shape[1])


def as_thresholds(stored: list[float | None]) -> np.ndarray:
    """Return thresholds (K,) float64 from their JSON form, which has no infinity."""
    return np.array([np.inf if value is None else value for value in stored], dtype=np.float64)


class _Run:
    """The state of a training between two updates."""

    def __init__(self, backbone: Backbone, recipe: Recipe, n_classes: int, seed: int, device: torch.device) -> None:
        self.recipe, self.device = recipe, device
        model = Classifier(backbone, n_classes, recipe.side, seed)
        self.model = model.to(device, memory_format=torch.channels_last)
        rates = self.model.rates(recipe.lr_backbone, recipe.lr_head)
        self.optimiser = torch.optim.AdamW(rates, weight_decay=recipe.weight_decay)
        half = device.type == "cuda" and recipe.precision == "float16"
        self.scaler = torch.amp.GradScaler(device.type, enabled=half)
        self.best: dict[str, torch.Tensor] = {}
        self.facts: dict[str, Any] = {"losses": [], "history": [], "best": 0, "best_f1": -1.0, "thresholds": [],
                                      "seconds": 0.0, "threads": torch.get_num_threads()}  # fmt: skip

    def step(self, training: Pictures, rows: np.ndarray, seed: int, epoch: int, place: int) -> None:
        recipe = self.recipe
        pictures, labels = training.take(rows, self.device)
        rng = augment.generator(augment.CROPS, seed, epoch, place)
        batch = augment.apply(pictures, augment.draw(recipe, len(pictures), pictures.shape[-1], rng), recipe.side)
        self.model.train()
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(augment.generator(augment.NETWORK, seed, epoch, place).integers(2**63)))
            loss = update(self.model, self.optimiser, self.scaler, batch, labels, recipe.precision)
        self.facts["losses"].append(loss)

    def evaluate(self, validation: Pictures, epoch: int) -> None:
        facts, found = self.facts, scores(self.model, validation, self.device)
        if not np.isfinite(found).all():
            raise FloatingPointError("validation scores became NaN or infinite")
        thresholds = grid_thresholds(found, validation.labels, fallback=self.recipe.fallback)
        f1 = per_sample_f1(validation.labels, found > thresholds)
        updates, last = len(facts["losses"]), facts["history"][-1]["updates"] if facts["history"] else 0
        loss = float(np.mean(facts["losses"][last:]))
        facts["history"].append({"updates": updates, "epoch": epoch, "loss": loss, "val_f1": f1})
        if f1 > facts["best_f1"]:
            self.best = {name: tensor.cpu().clone() for name, tensor in self.model.state_dict().items()}
            stored = [float(value) if np.isfinite(value) else None for value in thresholds]
            facts.update(best=updates, best_f1=f1, thresholds=stored)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.optimiser.param_groups for parameter in group["params"]]

    def save(self, folder: Path) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        moved = []
        for i, parameter in enumerate(self._parameters()):
            if parameter in self.optimiser.state:
                moved.append(i)
                tensors |= {f"optimiser.{i}.{name}": self.optimiser.state[parameter][name] for name in _ADAMW}
        more = {"scaler": self.scaler.state_dict(), "moved": moved}
        checkpoint.save_state(folder, tensors, {**self.facts, **more})

    def resume(self, folder: Path, points: list[int]) -> None:
        """Take up the state in ``folder``, if there is one: all of it or none. ValueError, naming it, if damaged."""
        state = checkpoint.load_state(folder)
        if state is None:
            return
        path, (tensors, facts) = folder / checkpoint.STATE, state
        checkpoint.check_facts(path, facts, points, self.model.head.out_features, ("scaler", "moved"))
        scaler, moved = facts.pop("scaler"), facts.pop("moved")
        parameters = self._parameters()
        whole = isinstance(scaler, dict) and scaler.keys() == self.scaler.state_dict().keys()
        if not whole or not all(isinstance(value, (int, float)) for value in scaler.values()):
            raise checkpoint.damaged(path, "not the state of this training's loss scaler")
        if not 0 < len(facts["losses"]) < points[-1]:
            raise checkpoint.damaged(path, f"{len(facts['losses'])} updates of {points[-1]}")
        # the scaler skips updates that overflow: perhaps all until now
        known = isinstance(moved, list) and all(type(i) is int and 0 <= i < len(parameters) for i in moved)
        if not known or not (moved or self.scaler.is_enabled()):
            raise checkpoint.damaged(path, "not the parameters of this network")
        kinds = ("model", "best") if facts["history"] else ("model",)
        expected = {f"{kind}.{name}": like for kind in kinds for name, like in self.model.state_dict().items()}
        for i in moved:
            own = {name: parameters[i] for name in _ADAMW} | {"step": torch.tensor(0.0)}
            expected |= {f"optimiser.{i}.{name}": like for name, like in own.items()}
        odd = sorted(expected.keys() ^ tensors.keys())
        both = expected.keys() & tensors.keys()
        odd += sorted(name for name in both if tensors[name].shape != expected[name].shape)
        odd += sorted(name for name in both if tensors[name].dtype != expected[name].dtype)
        if odd:
            raise checkpoint.damaged(path, f"missing, unknown or misshapen: {', '.join(odd[:5])}")
        self.facts = facts
        self.scaler.load_state_dict(scaler)
        parts: dict[str, dict[str, torch.Tensor]] = {"model": {}, "best": {}, "optimiser": {}}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = tensor
        self.model.load_state_dict(parts["model"])
        self.best = parts["best"]
        for name, tensor in parts["optimiser"].items():
            number, _, what = name.partition(".")
            parameter = parameters[int(number)]
            if what != "step":
                # in the parameter's own memory layout, so that the same instructions run on it as before
                tensor = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
            self.optimiser.state[parameter][what] = tensor


@contextmanager
def _threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
