"""Finer units than a tile: the encoder's patch tokens at fixed random places of the tile grid (Appendix C.3, D.3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from phoebi_lib.encoders import Encoder, load_encoder
from phoebi_lib.weights import find_weights, load_network

_SEED = 1337


def patch_positions(n_places: int, n_units: int) -> np.ndarray:
    """Return which of ``n_places`` patch places are kept, in the order drawn; the same for every image.

    They are the first ``n_units`` of a permutation by a torch CPU generator seeded 1337, so that fewer units are a
    prefix of more.
    """
    if not 1 <= n_units <= n_places:
        raise ValueError(f"an image has {n_places} patch tokens; asked for {n_units}")
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randperm(n_places, generator=generator)[:n_units].numpy()


class PatchEncoder:
    """An encoder that gives ``units`` patch tokens per frame in place of one pooled feature per tile.

    It has what :func:`phoebi_lib.features.embed` asks of an encoder; the pool's axis T then counts patch tokens. Tokens
    are what the network's last stage gives before pooling: transformer tokens without class and register tokens, or the
    places of a convolutional map.
    """

    def __init__(self, encoder: Encoder, network: torch.nn.Module, n_tiles: int, units: int) -> None:
        self.record, self.dim, self.img_size = encoder.record, encoder.dim, encoder.img_size
        self.stand_in, self.device = encoder.stand_in, encoder.device
        self.units, self.n_tiles = units, n_tiles
        self._encoder = encoder
        self._network = network.eval().requires_grad_(False).to(encoder.device, memory_format=torch.channels_last)

    @property
    def identity(self) -> dict:
        """What decides the features, as plain values; part of a pool's key."""
        return {**self._encoder.identity, "patch_tokens": self.units, "seed": _SEED}

    @torch.inference_mode()
    def __call__(self, tiles: torch.Tensor) -> torch.Tensor:
        """Return (n * units, D) float32 of the tiles (n * n_tiles, 3, s, s), float32 in 0..255, of n whole frames."""
        mean, std = (tiles.new_tensor(v).reshape(1, 3, 1, 1) for v in (self.record.mean, self.record.std))
        kept = []
        for frame in tiles.split(self.n_tiles):
            tokens = self._tokens((frame / 255 - mean) / std).flatten(0, 1)
            kept.append(tokens[patch_positions(len(tokens), self.units)].float())
        return torch.cat(kept)

    def _tokens(self, tiles: torch.Tensor) -> torch.Tensor:
        half = self._encoder.dtype == "float16"
        with torch.autocast(self.device.type, dtype=torch.float16, enabled=half):
            tokens = self._network.forward_features(tiles)
        if tokens.ndim == 4:
            return tokens.flatten(2).transpose(1, 2)
        return tokens[:, getattr(self._network, "num_prefix_tokens", 0) :]


def load_patch_encoder(
    name: str, *, n_tiles: int, units: int, weights: str | Path | None = None, img_size: int = 224, device: str = "cpu"
) -> PatchEncoder:
    """Load an encoder of the registry for its patch tokens; arguments and errors as ``load_encoder``.

    Raises ValueError too for an encoder that does not come from timm: its tokens have no common name.
    """
    encoder = load_encoder(name, weights=weights, img_size=img_size, device=device)
    if encoder.record.source not in ("timm", "pypi", "hf-timm"):
        raise ValueError(f"{name}: patch tokens come from timm networks only; its source is {encoder.record.source}")
    network, _ = load_network(encoder.record, find_weights(encoder.record, weights).path, img_size)
    return PatchEncoder(encoder, network, n_tiles, units)
