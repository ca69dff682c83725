"""The networks behind the heat maps: a 1 x 1 convolution on frozen patch tokens, and the paper's FCN-ResNet50."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from phoebi_lib.encoders import Encoder, WeightsNotFoundError
from phoebi_lib.patches import PatchEncoder, patch_positions
from phoebi_lib.siblings.embedding import embed_files
from phoebi_lib.siblings.needl.layout import CLASSES, SIZE
from phoebi_lib.weights import find_weights, load_network


class TokenHead(nn.Module):
    """Two heat maps (B, 2, size, size) of frozen tokens (B, D, g, g): a 1 x 1 convolution and bilinear upsampling.

    Bilinear weights sum to one, so convolving first gives what convolving the upsampled tokens would, at a thousandth
    of the memory.
    """

    def __init__(self, dim: int, size: int = SIZE) -> None:
        super().__init__()
        self.convolution, self.size = _last_layer(dim), (size, size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.interpolate(self.convolution(tokens), self.size, mode="bilinear", align_corners=False)


class FCN(nn.Module):
    """torchvision's FCN-ResNet50 with a last layer of two channels; takes pictures (B, 3, H, W) in 0..255."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        for name, value in (("mean", (0.485, 0.456, 0.406)), ("std", (0.229, 0.224, 0.225))):
            self.register_buffer(name, torch.tensor(value).reshape(1, 3, 1, 1), persistent=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.network((pictures.float() / 255 - self.mean) / self.std)["out"]


def keypoint_network(backbone: str, *, dim: int | None = None, weights: str | Path | None = None) -> nn.Module:
    """Return a network to train: "tokens" (``dim`` features a token) or "fcn_resnet50".

    The new last layer starts at zero, so nothing is drawn at random. The FCN needs a file with torchvision's COCO
    weights (``fcn_resnet50_coco``), read strictly and without running code from it; it takes no random ones.

    Raises:
        ValueError: another backbone, no ``dim`` for tokens, or a file that does not fit.
        WeightsNotFoundError: no file for the FCN.
    """
    if backbone not in ("tokens", "fcn_resnet50"):
        raise ValueError(f"unknown backbone {backbone!r}; known: tokens, fcn_resnet50")
    if backbone == "tokens":
        if dim is None:
            raise ValueError("backbone 'tokens' needs dim, the number of features of a token")
        return TokenHead(dim)
    if weights is None or not Path(weights).is_file():
        raise WeightsNotFoundError(
            f"no weights for fcn_resnet50 on this machine ({weights}): fetch torchvision's fcn_resnet50_coco where "
            "there is a network, and give the file. Random weights are never used."
        )
    network = fcn_architecture()
    try:
        is_safe = Path(weights).suffix == ".safetensors"
        network.load_state_dict(load_file(weights) if is_safe else torch.load(weights, "cpu", weights_only=True))
    except Exception as error:  # readers of foreign files and strict loading share no type of error
        raise ValueError(f"{weights}: these weights do not fit fcn_resnet50: {error}") from error
    network.classifier[-1] = _last_layer(network.classifier[-1].in_channels)
    return FCN(network)


def _last_layer(channels: int) -> nn.Conv2d:
    layer = nn.Conv2d(channels, len(CLASSES), 1)
    # tokens are many and tiles few: what is drawn at the start would outlive the training
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def fcn_architecture() -> nn.Module:
    """Return torchvision's FCN-ResNet50 as its weights were trained: 21 classes, auxiliary head; untrained.

    With the auxiliary head it has 35.3 M parameters, the number that the paper prints.
    """
    from torchvision.models.segmentation import fcn_resnet50

    with torch.random.fork_rng(devices=[]):
        return fcn_resnet50(weights=None, weights_backbone=None, num_classes=21, aux_loss=True)


def token_maps(encoder: Encoder, root: str | Path, files: Sequence[str], *, evidence: str) -> torch.Tensor:
    """Return the patch tokens of whole tiles at their places, float32 (N, D, g, g); kept on disk as other features are.

    ``files`` lie below ``root/images``; ``evidence`` as for ``embed_files``. The grid is what the network's last stage
    has at the encoder's ``img_size``: 8 x 8 for EfficientNet-Lite at 256 px. Raises ValueError for an encoder without
    patch tokens, or whose places form no square.
    """
    network, _ = load_network(encoder.record, find_weights(encoder.record).path, encoder.img_size)
    if not hasattr(network, "forward_features"):
        raise ValueError(f"{encoder.record.name}: patch tokens come from timm networks only; choose another encoder")
    with torch.inference_mode():
        shape = network.eval().to(encoder.device).forward_features(
            torch.zeros(1, 3, encoder.img_size, encoder.img_size, device=encoder.device)).shape  # fmt: skip
    places = shape[2] * shape[3] if len(shape) == 4 else shape[1] - getattr(network, "num_prefix_tokens", 0)
    side = int(places**0.5)
    if side * side != places:
        raise ValueError(f"{encoder.record.name}: {places} patch tokens are no square grid; choose another encoder")
    patches = PatchEncoder(encoder, network, n_tiles=1, units=places)
    table = embed_files(patches, Path(root) / "images", files, name="needl tokens", evidence=evidence)
    drawn = table.loc[list(files)].to_numpy(dtype=np.float32).reshape(len(files), places, encoder.dim)
    tokens = np.empty((len(files), encoder.dim, places), dtype=np.float32)
    tokens[:, :, patch_positions(places, places)] = drawn.transpose(0, 2, 1)
    return torch.from_numpy(tokens.reshape(len(files), encoder.dim, side, side))
