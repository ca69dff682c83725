"""Heat maps of keypoints: targets, the hybrid hard-negative loss, training and decoding (NEEDL-Bench, baselines).

The paper names the parts and prints lambda, the share of hard negatives and the learning rate. The rest is ours: a
Gaussian of 6 px, foreground disc and suppression window of 18 px (half the tolerance), weight 1 of the hard term, sums
over classes, and a heat map that is the last layer's plain output. A point (x, y) lies on pixel row y, column x.
"""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import torch
from scipy import ndimage
from scipy.spatial.distance import cdist
from torch import nn

from phoebi_lib.decoders.checks import check_choice, check_number
from phoebi_lib.decoders.training import minimise, seeds
from phoebi_lib.metrics import per_class_auroc
from phoebi_lib.siblings.needl.layout import CLASSES, COLUMNS, SIZE

SIGMA, RADIUS = 6.0, 18


def targets(truth: pd.DataFrame, tiles: list[str], size: int = SIZE) -> tuple[torch.Tensor, torch.Tensor]:
    """Return heat maps float32 in 0..1 and foreground discs bool, both (tiles, 2 classes, size, size).

    Where Gaussians of one class overlap the larger counts. Raises ValueError for another class.
    """
    heat = np.zeros((len(tiles), len(CLASSES), size, size), dtype=np.float32)
    inside = np.zeros(heat.shape, dtype=bool)
    rows, columns = np.mgrid[:size, :size]
    pixels = np.column_stack([columns.ravel(), rows.ravel()])
    for (tile, name), part in truth[truth["tile_id"].isin(tiles)].groupby(["tile_id", "class"]):
        check_choice(tile, "class", name, CLASSES)
        at = tiles.index(tile), CLASSES.index(name)
        square = cdist(pixels, part[["x", "y"]], "sqeuclidean").min(axis=1).reshape(size, size)
        heat[at], inside[at] = np.exp(-square / (2 * SIGMA**2)), square <= RADIUS**2
    return torch.from_numpy(heat), torch.from_numpy(inside)


def hybrid_loss(
    heat: torch.Tensor, target: torch.Tensor, inside: torch.Tensor, *, weight: float = 2.5, hardest: float = 0.02
) -> torch.Tensor:
    """Return foreground MSE + ``weight`` x background MSE + mean over the ``hardest`` share of background pixels.

    All are (B, classes, H, W); each class has its three terms over the whole batch, and the classes are summed. A class
    without a point in the batch has no foreground term. The share is of the batch's background pixels, at least one.
    Raises ValueError for a share outside 0..1.
    """
    check_number("hybrid_loss", "hardest", hardest, 0, 1)
    total = heat.new_zeros(())
    for error, positive in zip(((heat - target) ** 2).unbind(1), inside.unbind(1), strict=True):
        negative = error[~positive]
        if len(negative):
            worst = negative.topk(max(1, int(hardest * len(negative))), sorted=False).values
            total = total + weight * negative.mean() + worst.mean()
        if positive.any():
            total = total + error[positive].mean()
    return total


def pixel_auroc(heat: torch.Tensor, inside: torch.Tensor) -> np.ndarray:
    """Return the AUROC over pixels of each class, positive inside the discs; NaN where a class has no point."""
    return per_class_auroc(*(maps.detach().cpu().movedim(1, -1).flatten(0, -2).numpy() for maps in (inside, heat)))


def train(
    network: nn.Module, inputs: torch.Tensor, target: torch.Tensor, inside: torch.Tensor,
    validation: tuple[torch.Tensor, torch.Tensor], *, epochs: int = 500, learning_rate: float = 1e-4,
    validate_every: int = 1, seed: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """Train in place with Adam and a constant rate, and leave the weights of the largest sum of pixel AUROCs on val.

    Args:
        network: maps inputs to heat maps (B, 2, H, W).
        inputs, target, inside: of the training tiles, see :func:`targets`.
        validation: inputs and discs of the val tiles; a class without a point there does not enter the sum.
        epochs, learning_rate: the paper's are at most 500 and 1e-4. A batch has 16 tiles.
        validate_every: epochs between two looks at val; the last epoch is always looked at.
        seed: of the order of the tiles.

    Returns one row per look: ``epoch, loss, auroc_sum``. Raises ValueError for no training tile, epoch or look, val
    tiles without any point or with heat maps that are not finite, FloatingPointError for a loss that is not finite.
    """
    for name, number in (("epochs", epochs), ("validate_every", validate_every)):
        check_number("train", name, number, 1, integer=True)
    if not len(inputs):
        raise ValueError("no training tiles; expected one at least")
    if not validation[1].any():
        raise ValueError("no point on the val tiles: the weights cannot be chosen; give val tiles with annotations")
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    device = next(network.parameters()).device

    def gradient(rows: torch.Tensor, index: torch.Tensor | slice) -> torch.Tensor:
        batch = rows.unflatten(1, inputs.shape[1:]), target[index], inside[index]
        # the tokens of all tiles are gigabytes: only a batch at a time is on the device
        tokens, heat, discs = (part.to(device) for part in batch)
        loss = hybrid_loss(network(tokens), heat, discs)
        loss.backward()
        return loss.detach().cpu()

    best, history = -np.inf, []
    looks = range(0, epochs, validate_every)
    for done, order in zip(looks, seeds(seed, len(looks)), strict=True):
        network.train()
        n = min(validate_every, epochs - done)
        losses, _ = minimise(inputs.flatten(1), gradient, optimiser, batch=16, epochs=n, updates=None, seed=order)
        score = float(np.nansum(pixel_auroc(heat_maps(network, validation[0]), validation[1])))
        history.append((done + n, losses[-1], score))
        if score > best:
            best, kept = score, copy.deepcopy(network.state_dict())
    network.load_state_dict(kept)
    return pd.DataFrame(history, columns=["epoch", "loss", "auroc_sum"])


@torch.inference_mode()
def heat_maps(network: nn.Module, inputs: torch.Tensor, batch_size: int = 16) -> torch.Tensor:
    """Return the heat maps (N, 2, H, W) of a network in evaluation mode, on the CPU."""
    network.eval()
    device = next(network.parameters()).device
    return torch.cat([network(part.to(device)).float().cpu() for part in inputs.split(batch_size)])


def decode(heat: np.ndarray, threshold: float = 0.0) -> list[tuple[int, int, float]]:
    """Return the detections (x, y, score) of one map (H, W): maxima of their window that reach the threshold.

    The window has a side of 37 px. Of a plateau, and of equal maxima inside one window, the first in row-major order
    stays. No shift below a pixel.
    """
    peaks = (heat >= threshold) & (heat == ndimage.maximum_filter(heat, size=2 * RADIUS + 1, mode="nearest"))
    plateaus, _ = ndimage.label(peaks, structure=np.ones((3, 3)))
    numbers, first = np.unique(plateaus, return_index=True)
    kept: list[tuple[int, int, float]] = []
    for y, x in (divmod(int(at), heat.shape[1]) for at in sorted(first[numbers > 0])):
        if all(max(abs(x - other[0]), abs(y - other[1])) > RADIUS for other in kept):
            kept.append((x, y, float(heat[y, x])))
    return kept


def predictions(heat: torch.Tensor, tiles: list[str], threshold: float = 0.0) -> pd.DataFrame:
    """Return the decoded maps (N, 2, H, W) of ``tiles`` as a table of predictions: points with class and score.

    Raises ValueError for a map with NaN, which would hide all its maxima.
    """
    for tile, name, y, x in heat.isnan().nonzero()[:1].tolist():
        raise ValueError(f"{tiles[tile]}, {CLASSES[name]}: the heat map is NaN at x = {x}, y = {y}; check what gave it")
    rows = [{"tile_id": tile, "class": name, "x": x, "y": y, "score": score}
            for tile, maps in zip(tiles, heat.numpy(), strict=True)
            for name, one in zip(CLASSES, maps, strict=True) for x, y, score in decode(one, threshold)]  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)
