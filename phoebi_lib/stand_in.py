"""Stand-in weights: fixed random numbers in the real architecture, laid out as a hub cache, and marked as such.

They prove the path of real weights (cache lookup, conversions, resampled positions, pools, tables) on a machine without
them. The mark sits in the header of the file, so that an encoder loaded from it, and each pool made with it, say so.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import timm
import torch
from safetensors.torch import save_file

from phoebi_lib.encoder_records import get_record
from phoebi_lib.weights import STAND_IN_KEY, STAND_IN_VALUE, is_stand_in, repository_folder
from phoebi_lib.workspace import atomic_path, file_sha256


def write_stand_in(name: str, hub_cache: str | Path, seed: int = 0) -> Path:
    """Write a hub cache entry with stand-in weights of an encoder; return the path of its weight file.

    The tensors have the names and shapes that the architecture is registered with (DINOv2 ViT-S/14: 518 px, a table of
    37 x 37 positions) and depend on ``seed`` alone. Features made with them still differ between tiles: projections
    keep the scale of their input and layer scales are not small. An entry of stand-ins is written anew.

    Raises:
        ValueError: the encoder's weights do not come from timm.
        FileExistsError: the cache already holds other weights of that repository; they are never shadowed.
    """
    record = get_record(name)
    if record.source != "timm":
        raise ValueError(f"{record.name}: stand-in weights are made for encoders with source timm, not {record.source}")
    entry = Path(hub_cache) / repository_folder(record.repository)
    others = [p for p in entry.rglob("*") if p.suffix in (".safetensors", ".bin", ".pth") and not is_stand_in(p)]
    if others:
        raise FileExistsError(f"{others[0]}: other weights of {record.repository} lie there; use another folder")
    shutil.rmtree(entry, ignore_errors=True)
    with torch.device("meta"):
        network = timm.create_model(record.identifier, pretrained=False)
    config = timm.models.get_pretrained_cfg(record.identifier).to_dict()
    facts = {
        "architecture": record.identifier.split(".")[0],
        "num_classes": config["num_classes"],
        "num_features": network.num_features,
        "pretrained_cfg": {key: config[key] for key in ("tag", "input_size", "fixed_input_size", "mean", "std")},
    }
    blobs = entry / "blobs"
    with atomic_path(blobs / "new.safetensors") as temporary:
        # one entry only: safetensors writes several in any order, and the file's hash is part of each pool's key
        save_file(_tensors(network, seed), temporary, metadata={STAND_IN_KEY: STAND_IN_VALUE})
    revision = file_sha256(blobs / "new.safetensors")[:40]
    snapshot = entry / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (blobs / "new.json").write_text(json.dumps(facts, indent=1))
    for new, final in (("new.json", "config.json"), ("new.safetensors", "model.safetensors")):
        blob = blobs / file_sha256(blobs / new)
        (blobs / new).rename(blob)
        (snapshot / final).symlink_to(Path("../../blobs") / blob.name)
    # the reference to the revision comes last: without it the client does not see the entry
    with atomic_path(entry / "refs" / "main") as temporary:
        temporary.write_text(revision)
    return snapshot / "model.safetensors"


def _tensors(network: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Return a state dictionary of fixed random tensors for a network on the meta device."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for key, like in network.state_dict().items():
        shape = tuple(like.shape)
        if like.dtype != torch.float32:
            tensors[key] = torch.zeros(shape, dtype=like.dtype)
        elif key.endswith("running_var") or (len(shape) == 1 and key.endswith(("weight", "gamma"))):
            tensors[key] = torch.ones(shape)
        elif len(shape) == 1:
            tensors[key] = torch.zeros(shape)
        else:
            fan_in = shape[-1] if "embed" in key or "token" in key else int(np.prod(shape[1:]))
            values = rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(fan_in))
            tensors[key] = torch.from_numpy(values)
    return tensors
