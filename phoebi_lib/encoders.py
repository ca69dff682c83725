"""Frozen encoders: a tile in, a feature vector out. ``load_encoder(name)`` is the one way to get one.

A record (:mod:`phoebi_lib.encoder_records`) says what an encoder expects and gives; loading asserts it against the
network's own configuration, because a wrong mean or pooling changes features without any error.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from timm.layers import BatchNormAct2d, Conv2dSame
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from phoebi_lib.devices import checked_device
from phoebi_lib.encoder_records import EncoderRecord, get_record, list_encoders, register
from phoebi_lib.memory import keep_freed_blocks
from phoebi_lib.stand_in import write_stand_in
from phoebi_lib.weights import Weights, WeightsNotFoundError, find_weights, load_network

__all__ = [
    "Encoder",
    "EncoderRecord",
    "WeightsNotFoundError",
    "get_record",
    "list_encoders",
    "load_encoder",
    "register",
    "write_stand_in",
]

# Tiles per pass on a GPU. On a CPU: pixels per pass (4 tiles of 224 px), so that the activations stay in the cache.
_CHUNK, _CPU_PIXELS = 256, 4 * 224**2


class Encoder:
    """A frozen encoder on a device.

    Attributes:
        record: what it is. dim: number of features D. img_size: side of the tiles it takes, in px.
        weights_sha256: SHA-256 of the weight file's bytes, or of the untrained control's tensors.
        stand_in: whether those weights are stand-ins.
        device: where it runs. dtype: ``float32``, or ``float16`` for autocast on a GPU; features are float32 in both.
    """

    def __init__(
        self,
        record: EncoderRecord,
        network: nn.Module,
        features: Callable[[torch.Tensor], torch.Tensor],
        weights: Weights,
        img_size: int,
        device: torch.device,
        dtype: str,
    ) -> None:
        self.record, self.dim, self.img_size = record, record.dim, img_size
        self.weights_sha256, self.stand_in = weights.sha256, weights.stand_in
        self.device, self.dtype = device, dtype
        self._network = network.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)
        self._features, self._chunk = features, _CHUNK
        if device.type == "cpu":
            keep_freed_blocks()
            self._features = _folded(network) if features is network else features
            self._chunk = max(1, _CPU_PIXELS // img_size**2)
        # (tile / 255 - mean) / std as one multiplication and one addition
        mean, std = (torch.tensor(v, dtype=torch.float64).reshape(1, 3, 1, 1) for v in (record.mean, record.std))
        self._scale, self._shift = (v.float().to(device) for v in (1 / (255 * std), -mean / std))

    @property
    def identity(self) -> dict:
        """What decides the features, as plain values; part of a pool's key."""
        facts = asdict(self.record)
        keys = ("name", "identifier", "mean", "std", "pooling", "dim")
        return {key: facts[key] for key in keys} | {
            "weights_sha256": self.weights_sha256,
            "img_size": self.img_size,
            "dtype": self.dtype,
        }

    def __call__(self, tiles: torch.Tensor) -> torch.Tensor:
        """Return raw pooled features (B,D) float32 of tiles (B,3,s,s) float32 in 0..255, on the encoder's device.

        Raises:
            TypeError: tiles are not float32.
            ValueError: tiles are not of shape (B,3,s,s) with s = ``img_size``.
        """
        if tiles.dtype != torch.float32:
            raise TypeError(f"{self.record.name}: tiles must be float32 in 0..255, got {tiles.dtype}")
        if tiles.ndim != 4 or tiles.shape[1:] != (3, self.img_size, self.img_size):
            raise ValueError(
                f"{self.record.name}: tiles must have the shape (B, 3, {self.img_size}, {self.img_size}), got "
                f"{tuple(tiles.shape)}; load the encoder with img_size equal to the front-end's tile_size"
            )
        out = torch.empty((len(tiles), self.dim), dtype=torch.float32, device=self.device)
        # explicitly off on a CPU: without bf16 units it is many times slower there
        half = self.dtype == "float16"
        with torch.inference_mode(), torch.autocast(self.device.type, dtype=torch.float16, enabled=half):
            for start in range(0, len(tiles), self._chunk):
                rows = slice(start, start + self._chunk)
                part = tiles[rows].to(self.device).mul(self._scale).add_(self._shift)
                out[rows] = self._features(part.contiguous(memory_format=torch.channels_last)).float()
        return out

    def __repr__(self) -> str:
        kind = ", stand-in weights" if self.stand_in else ""
        return f"Encoder({self.record.name}, D={self.dim}, {self.img_size} px, {self.dtype} on {self.device}{kind})"


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, (nn.Conv2d, nn.BatchNorm2d)) or super().is_leaf_module(module, name)


def _folded(network: nn.Module) -> nn.Module:
    """Return a copy of a frozen network whose convolutions do the work of the batch norms that follow them.

    A frozen batch norm is one multiplication and one addition per channel. As part of the convolution it saves a pass
    over the activations, and changes features by rounding alone. All other tensors are shared with the network, which
    stays as it is. A network without batch norms, or one that cannot be traced, is returned itself.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in network.modules()):
        return network
    try:
        nodes = [node for node in _Tracer().trace(network).nodes if node.op == "call_module"]
    except Exception:  # control flow that depends on the tiles; tracing raises whatever that flow does
        return network
    folded = copy.deepcopy(network, {id(tensor): tensor for tensor in network.state_dict(keep_vars=True).values()})
    calls = Counter(node.target for node in nodes)
    for node in nodes:
        before = node.all_input_nodes[0]
        if before.op != "call_module" or len(before.users) > 1 or max(calls[before.target], calls[node.target]) > 1:
            continue
        conv, norm = network.get_submodule(before.target), network.get_submodule(node.target)
        # exact types: a subclass may do more than its weights say, as one that standardises them does
        if type(conv) in (nn.Conv2d, Conv2dSame) and type(norm) in (nn.BatchNorm2d, BatchNormAct2d):
            folded.set_submodule(before.target, fuse_conv_bn_eval(conv, norm))
            folded.set_submodule(node.target, getattr(norm, "act", nn.Identity()))
    return folded


def load_encoder(
    name: str,
    *,
    weights: str | Path | None = None,
    img_size: int = 224,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
) -> Encoder:
    """Load a frozen encoder of the registry (Table 4 of the paper, three embedded ones and the untrained control).

    Args:
        name: name, title or identifier of a record, see :func:`list_encoders`.
        weights: None looks in the encoder's Python package or in the hub cache (``HF_HUB_CACHE``, ``HF_HOME``). Else a
            weight file (safetensors or a PyTorch file, read without running code from it), a model folder, or a hub
            cache folder. Nothing is downloaded.
        img_size: side of the tiles in px. A position table is resampled to it when the weights are loaded.
        device: a torch device.
        dtype: ``float32``, or ``float16`` to autocast on a GPU as the published numbers were made.

    Raises:
        ValueError: unknown encoder (the closest names are given), weights that do not fit, a record that disagrees with
            the network, a device that is not here, or a dtype that it does not run.
        WeightsNotFoundError: no weights; says what was looked for, where, and how to get it.
        ImportError: the encoder needs an optional package; the message names the extra.
    """
    record, device = get_record(name), checked_device(str(device))
    if dtype not in ("float32", "float16") or (dtype == "float16" and device.type != "cuda"):
        raise ValueError(f"dtype must be float32, or float16 on a GPU; got {dtype!r} on {device.type}")
    if isinstance(img_size, bool) or not isinstance(img_size, int) or img_size < 1:
        raise ValueError(f"img_size must be a whole number of pixels, got {img_size!r}")
    found = find_weights(record, weights)
    network, features = load_network(record, found.path, img_size)
    check_record(record, network, found.path, img_size)
    return Encoder(record, network, features, found, img_size, device, dtype)


def check_record(record: EncoderRecord, network: nn.Module, weights: Path | None, img_size: int) -> None:
    """Assert a record against the loaded network and its published configuration.

    Compared: feature width and pooling of the network; its parameter count (at the paper's tile size, since position
    tables grow with the tile); mean, std and native input size of timm's entry; the same of a ``config.json`` that lies
    beside the weights.

    Raises:
        ValueError: something differs; the message lists every difference.
    """
    said: dict[str, tuple] = {}
    if record.source in ("timm", "pypi", "hf-timm", "untrained"):
        said["dim"] = (record.dim, network.num_features)
        said["pooling"] = (record.pooling, _pooling(network))
    if img_size == record.size:
        count = sum(p.numel() for p in network.parameters()) / 1e6
        said["parameters (M)"] = (record.params_m, round(count, 3))
    config = {} if record.source == "hf-timm" else getattr(network, "pretrained_cfg", None) or {}
    if weights and record.source in ("timm", "hf-timm") and (beside := weights.parent / "config.json").is_file():
        published = json.loads(beside.read_text())
        config = {**config, **published.get("pretrained_cfg", {})}
        if "num_features" in published:
            said["dim of config.json"] = (record.dim, published["num_features"])
    for key in ("mean", "std"):
        if key in config:
            said[key] = (record.mean if key == "mean" else record.std, tuple(config[key]))
    if "input_size" in config:
        said["native size"] = (record.native_size, config["input_size"][-1])
    wrong = [f"{key}: record {mine}, network {theirs}" for key, (mine, theirs) in said.items() if mine != theirs]
    if wrong:
        raise ValueError(f"{record.name}: the record and the loaded network differ: {'; '.join(wrong)}")


def _pooling(network: nn.Module) -> str:
    """Return how a timm network pools: its own word, or that of the pooling layer in it or in its head."""
    for pool in (getattr(network, "global_pool", None), getattr(getattr(network, "head", None), "global_pool", None)):
        if pool is not None:
            return pool if isinstance(pool, str) else pool.pool_type
    return "none"
