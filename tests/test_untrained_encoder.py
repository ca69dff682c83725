"""The untrained control: random by name, the same at every load, and never taken for an encoder of the paper."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from phoebi_lib.encoder_records import get_record
from phoebi_lib.encoders import load_encoder, write_stand_in
from phoebi_lib.features import _evidence
from phoebi_lib.provenance import evidence_of
from phoebi_lib.weights import find_weights


@pytest.fixture
def tiles():
    return torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (2, 3, 224, 224)).astype(np.float32))


def test_the_untrained_control_is_the_architecture_with_its_initial_numbers(tiles):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    control = load_encoder("efficientnet_lite0_untrained")
    assert torch.equal(torch.rand(1), expected), "the caller's random numbers are left alone"
    trained, drawn = load_encoder("efficientnet_lite0")._network.state_dict(), control._network.state_dict()
    assert {key: tensor.shape for key, tensor in trained.items()} == {key: t.shape for key, t in drawn.items()}
    assert all((drawn[key] == 0).all() for key in drawn if key.endswith("running_mean")), "no batch statistics"
    filters = [key for key, tensor in drawn.items() if tensor.ndim == 4]
    assert filters and not any(torch.equal(trained[key], drawn[key]) for key in filters)
    assert "untrained" in control.record.title and control.record.name.endswith("untrained")
    assert control(tiles).shape == (2, 1280) and not torch.allclose(control(tiles)[0], control(tiles)[1])
    assert torch.equal(load_encoder("efficientnet_lite0_untrained")(tiles), control(tiles)), "the same at every load"


def test_the_identity_of_the_control_is_the_hash_of_its_numbers(monkeypatch):
    import phoebi_lib.weights as module

    record = get_record("efficientnet_lite0_untrained")
    found = find_weights(record)
    assert found.path is None and not found.stand_in
    digest = hashlib.sha256()
    for name, tensor in module._untrained_network(record).state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + tensor.numpy().tobytes())
    assert load_encoder(record.name).identity["weights_sha256"] == found.sha256 == digest.hexdigest()
    monkeypatch.setattr(module, "_UNTRAINED_SEED", 1)
    module._drawn_sha256.cache_clear()
    assert find_weights(record).sha256 != found.sha256
    module._drawn_sha256.cache_clear()


def test_the_control_takes_no_weights_and_is_no_evidence_on_the_paper(tmp_path):
    with pytest.raises(ValueError, match="untrained control and takes no weights"):
        load_encoder("efficientnet_lite0_untrained", weights=tmp_path)
    with pytest.raises(ValueError, match="source timm"):
        write_stand_in("efficientnet_lite0_untrained", tmp_path)
    control = load_encoder("efficientnet_lite0_untrained")
    for evidence, expected in (("paper", "user"), ("simulated", "simulated"), ("user", "user")):
        assert _evidence(SimpleNamespace(evidence=evidence), control) == expected
    assert evidence_of("phoebi6", "paper", control.record.name) == "user"
