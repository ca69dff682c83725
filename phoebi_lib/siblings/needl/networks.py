"""The networks behind the heat maps: a 1 x 1 convolution on frozen patch tokens, or on the paper's FCN-ResNet50."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import nn
from torch.nn import functional as F
from torchvision.models.segmentation import fcn_resnet50
from torchvision.transforms.functional import normalize

from phoebi_lib.encoders import Encoder, WeightsNotFoundError
from phoebi_lib.patches import PatchEncoder, patch_positions
from phoebi_lib.siblings.embedding import embed_files
from phoebi_lib.siblings.needl.layout import CLASSES, SIZE
from phoebi_lib.weights import find_weights, load_network


class TokenHead(nn.Module):
    """Two heat maps (B, 2, size, size) of frozen tokens (B, D, g, g): a 1 x 1 convolution and bilinear upsampling.

    Bilinear weights sum to one, so convolving first gives what convolving the upsampled tokens would, at a thousandth
    of the memory. The convolution starts at zero: tokens are many and tiles few, and what is drawn at the start would
    outlive the training.
    """

    def __init__(self, dim: int, size: int = SIZE) -> None:
        super().__init__()
        self.convolution, self.size = nn.Conv2d(dim, len(CLASSES), 1), (size, size)
        nn.init.zeros_(self.convolution.weight)
        nn.init.zeros_(self.convolution.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.interpolate(self.convolution(tokens), self.size, mode="bilinear", align_corners=False)


class FCN(TokenHead):
    """The same head on torchvision's FCN-ResNet50, whose last layer it replaces; takes pictures (B, 3, H, W) in 0..255.

    ``weights`` is a file with torchvision's COCO weights (``fcn_resnet50_coco``), read strictly and without running
    code from it. Random ones are never taken: WeightsNotFoundError where it is missing, ValueError if it does not fit.
    """

    def __init__(self, weights: str | Path | None, size: int = SIZE) -> None:
        if weights is None or not Path(weights).is_file():
            raise WeightsNotFoundError(
                f"no weights for fcn_resnet50 on this machine ({weights}): fetch torchvision's fcn_resnet50_coco where "
                "there is a network, and give the file. Random weights are never used."
            )
        whole = fcn_architecture()
        try:
            whole.load_state_dict(torch.load(weights, "cpu", weights_only=True))
        except Exception as error:  # readers of foreign files and strict loading share no type of error
            raise ValueError(f"{weights}: these weights do not fit fcn_resnet50: {error}") from error
        *layers, last = whole.classifier
        super().__init__(last.in_channels, size)
        self.backbone, self.layers = whole.backbone, nn.Sequential(*layers)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        pictures = normalize(pictures / 255, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)
        return super().forward(self.layers(self.backbone(pictures)["out"]))


def fcn_architecture() -> nn.Module:
    """Return torchvision's FCN-ResNet50 as its weights were trained: 21 classes, auxiliary head; untrained.

    With the auxiliary head it has 35.3 M parameters, the number that the paper prints.
    """
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
        blank = torch.zeros(1, 3, encoder.img_size, encoder.img_size, device=encoder.device)
        shape = network.eval().to(encoder.device).forward_features(blank).shape
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
