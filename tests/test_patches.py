"""Patch tokens: fixed places, the same for every image, and equal to the network's own map."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from phoebi_lib.encoders import load_encoder, write_stand_in
from phoebi_lib.patches import load_patch_encoder, patch_positions

TILES = torch.from_numpy(np.random.default_rng(0).integers(0, 255, (8, 3, 224, 224)).astype(np.float32))


def test_fewer_places_are_a_prefix_of_more():
    many = patch_positions(784, 64)
    assert np.array_equal(many[:16], patch_positions(784, 16)) and len(set(many)) == 64 and many.max() < 784
    with pytest.raises(ValueError, match="784 patch tokens; asked for 785"):
        patch_positions(784, 785)


def test_the_mean_of_all_tokens_of_a_convolutional_map_is_the_pooled_feature():
    patches = load_patch_encoder("efficientnet_lite0", n_tiles=4, units=4 * 49)
    tokens = patches(TILES).reshape(2, 4 * 49, patches.dim)
    ordered = torch.empty_like(tokens)
    ordered[:, patch_positions(4 * 49, 4 * 49)] = tokens
    pooled = load_encoder("efficientnet_lite0")(TILES)
    assert torch.allclose(ordered.reshape(8, 49, -1).mean(dim=1), pooled, atol=1e-4)


def test_frames_are_independent_of_each_other():
    patches = load_patch_encoder("efficientnet_lite0", n_tiles=4, units=5)
    both, second = patches(TILES), patches(TILES[4:])
    assert both.shape == (10, 1280) and torch.allclose(both[5:], second, atol=1e-5)
    assert patches.identity["patch_tokens"] == 5 and patches.identity != load_encoder("efficientnet_lite0").identity


def test_a_transformer_leaves_out_its_class_token(tmp_path):
    name = "vit_small_patch14_dinov2.lvd142m"
    write_stand_in(name, tmp_path)
    patches = load_patch_encoder(name, n_tiles=1, units=256, weights=tmp_path, img_size=224)
    tokens = patches(TILES[:1])
    assert tokens.shape == (256, 384), "16 x 16 places of a tile of 224 px"
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (patches.record.mean, patches.record.std))
    with torch.inference_mode():
        whole = patches._network.forward_features((TILES[:1] / 255 - mean) / std)
    assert whole.shape[1] == 257
    assert torch.allclose(tokens, whole[0, 1:][patch_positions(256, 256)], atol=1e-5)
