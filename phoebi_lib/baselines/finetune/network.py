"""A backbone with a linear head: the network that is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import nn

from phoebi_lib.baselines.finetune.augment import HEAD, generator
from phoebi_lib.baselines.finetune.identity import told
from phoebi_lib.encoder_records import EncoderRecord, get_record
from phoebi_lib.encoders import check_record
from phoebi_lib.weights import Weights, find_weights, load_network
from phoebi_lib.workspace import file_sha256


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
        facts: plain values that decide the network besides its weights; None: the source of ``build`` and of what it
            uses. Where that cannot be told either (it closes over a tensor, say), each run trains anew.
    """

    name: str
    build: Callable[[int], tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]]
    dim: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    weights_sha256: str
    stand_in: bool = False
    in_paper: bool = False
    facts: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def identity(self) -> dict[str, Any] | None:
        """What decides the network and what it sees, as plain values; None where nobody can tell (see ``facts``).

        Raises:
            TypeError: ``facts`` that are not plain values.
        """
        try:
            network = told(self.build if self.facts is None else self.facts)
        except (TypeError, RecursionError) as error:
            if self.facts is None:
                return None
            raise TypeError(f"backbone {self.name!r}: facts must be plain values: {error}") from error
        norm = {"mean": [float(value) for value in self.mean], "std": [float(value) for value in self.std]}
        return {
            "name": self.name, "dim": self.dim, **norm, "weights_sha256": self.weights_sha256, "network": network
        }  # fmt: skip


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
    return Backbone(
        record.name, build, record.dim, record.mean, record.std, found.sha256, found.stand_in, in_paper,
        facts=_facts(record, found),
    )  # fmt: skip


def _facts(record: EncoderRecord, found: Weights) -> dict[str, Any]:
    """Return what decides a registered network: its record, and for other packages' networks their version and the
    configuration beside the weights."""
    facts: dict[str, Any] = {"record": asdict(record)}
    if record.source in ("transformers", "open_clip"):
        try:
            facts["version"] = version(record.package)
        except PackageNotFoundError:
            facts["version"] = ""  # building it will say so
        facts["beside"] = {path.name: file_sha256(path) for path in sorted(found.path.parent.glob("*config.json"))}
    return facts


class Classifier(nn.Module):
    """Backbone and ``Linear(dim, K)``, all parameters trainable; the head starts from torch's default, by the seed."""

    def __init__(self, backbone: Backbone, n_classes: int, side: int, seed: int) -> None:
        super().__init__()
        self._backbone_name, self._dim = backbone.name, backbone.dim
        self.backbone, features = backbone.build(side)
        self._features = None if features is self.backbone else features
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(HEAD, seed).integers(2**63)))
            self.head = nn.Linear(backbone.dim, n_classes)
        mean, std = (torch.tensor(v, dtype=torch.float64).reshape(1, 3, 1, 1) for v in (backbone.mean, backbone.std))
        self.register_buffer("scale", (1 / (255 * std)).float(), persistent=False)
        self.register_buffer("shift", (-mean / std).float(), persistent=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return logits (B, K) of pictures (B, 3, side, side) float32 in 0..255.

        Raises:
            ValueError: the backbone gives other features than its ``dim`` says.
        """
        inputs = (pictures * self.scale + self.shift).contiguous(memory_format=torch.channels_last)
        features = (self._features or self.backbone)(inputs)
        if features.shape != (len(pictures), self._dim):
            raise ValueError(
                f"backbone {self._backbone_name!r} gives features of shape {tuple(features.shape)}, its dim={self._dim}"
                f" says {(len(pictures), self._dim)}; correct dim, or what build returns"
            )
        return self.head(features)

    def rates(self, backbone: float, head: float) -> list[dict]:
        """Return the parameters as groups of an optimiser with a learning rate each."""
        return [{"params": list(self.backbone.parameters()), "lr": backbone},
                {"params": list(self.head.parameters()), "lr": head}]  # fmt: skip
