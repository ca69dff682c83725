"""A backbone with a linear head: the network that is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from phoebi_lib.baselines.finetune.augment import HEAD, generator
from phoebi_lib.encoder_records import get_record
from phoebi_lib.encoders import check_record
from phoebi_lib.weights import find_weights, load_network


@dataclass(frozen=True)
class Backbone:
    """A network to train, and where its training starts.

    Attributes:
        name: as in rows.
        build: side in px -> the network with its initial weights, and its function from normalised pictures
            (B, 3, side, side) to features (B, ``dim``), which may be the network itself.
        dim: number of features. mean, std: normalisation per channel of pixels in 0..1.
        weights_sha256: what the initial weights are, for the key of the rows.
        stand_in: whether they are stand-ins. in_paper: whether the paper has numbers for it.
    """

    name: str
    build: Callable[[int], tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]]
    dim: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    weights_sha256: str
    stand_in: bool = False
    in_paper: bool = False


def registered(name: str) -> Backbone:
    """Return an encoder of the registry as a backbone; its weights are looked for as ``load_encoder`` does.

    Raises:
        ValueError: unknown encoder; when built, weights that do not fit it.
        WeightsNotFoundError: no weights on this machine.
    """
    record = get_record(name)
    found = find_weights(record)

    def build(side: int) -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
        network, features = load_network(record, found.path, side)
        check_record(record, network, found.path, side)
        return network, features

    in_paper = record.paper_params_m is not None
    return Backbone(record.name, build, record.dim, record.mean, record.std, found.sha256, found.stand_in, in_paper)


class Classifier(nn.Module):
    """Backbone and ``Linear(dim, K)``, all parameters trainable; the head starts from torch's default, by the seed."""

    def __init__(self, backbone: Backbone, n_classes: int, side: int, seed: int) -> None:
        super().__init__()
        self.backbone, features = backbone.build(side)
        self._features = None if features is self.backbone else features
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(HEAD, seed).integers(2**63)))
            self.head = nn.Linear(backbone.dim, n_classes)
        mean, std = (torch.tensor(v, dtype=torch.float64).reshape(1, 3, 1, 1) for v in (backbone.mean, backbone.std))
        self.register_buffer("scale", (1 / (255 * std)).float(), persistent=False)
        self.register_buffer("shift", (-mean / std).float(), persistent=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return logits (B, K) of pictures (B, 3, side, side) float32 in 0..255."""
        inputs = (pictures * self.scale + self.shift).contiguous(memory_format=torch.channels_last)
        return self.head((self._features or self.backbone)(inputs))

    def rates(self, backbone: float, head: float) -> list[dict]:
        """Return the parameters as groups of an optimiser with a learning rate each."""
        return [{"params": list(self.backbone.parameters()), "lr": backbone},
                {"params": list(self.head.parameters()), "lr": head}]  # fmt: skip
