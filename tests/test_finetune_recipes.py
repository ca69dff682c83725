"""Recipes of the fine-tuned baselines, and what happens to pixels before the network sees them."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chisquare, ks_2samp
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional

from phoebi_lib.baselines.finetune import augment, capped, recipe
from phoebi_lib.baselines.finetune.inputs import Plan, plans, prepare
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.limits import LIMITS, Limits, limits
from tests.finetune_toy import pipeline, whole

N = 4000


@pytest.fixture(scope="module")
def frame():
    """Blurred noise with structure at several scales, uint8 (3, 300, 300)."""
    rng = np.random.default_rng(1)
    sizes = ((10, 60.0), (75, 40.0), (300, 20.0))
    layers = [
        np.asarray(Image.fromarray(rng.normal(0, s, (n, n)).astype(np.float32)).resize((300, 300))) for n, s in sizes
    ]
    return (128 + np.stack([np.sum(layers, axis=0) + shift for shift in (0, -20, 15)])).clip(0, 255).astype(np.uint8)


def as_pil(pixels):
    return Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))


# what a recipe says


def test_published_recipes_differ_between_blocks():
    fields = ("epochs", "updates", "batch", "lr_backbone", "lr_head", "weight_decay", "copy", "load", "side", "crop")
    published = {
        ("whole", "random"): (5, None, 64, 1e-4, 1e-4, 1e-4, None, 256, 224, "random"),
        ("whole", "lco"): (5, None, 64, 1e-4, 1e-4, 1e-4, 256, 256, 224, "resized"),
        ("pipeline", "random"): (5, None, 32, 1e-5, 1e-3, 1e-4, None, 224, 224, "none"),
        ("pipeline", "lco"): (6, None, 32, 1e-4, 1e-2, 1e-4, None, 224, 224, "none"),
    }
    for (kind, block), values in published.items():
        made = recipe(kind, block, "reference")
        assert tuple(getattr(made, name) for name in fields) == values
        assert made.fallback == 0.01 and made.padding == ("reflect" if kind == "whole" else "zero")
    assert recipe("whole", "lco", "reference").scale == (0.6, 1.0)


def test_the_corrected_recipe_is_one():
    for kind in ("whole", "pipeline"):
        one = recipe(kind, "random", "corrected")
        assert one == recipe(kind, "lco", "corrected")
        published = recipe(kind, "lco", "reference")
        assert replace(one, compat="reference", fallback=0.01, padding=published.padding) == published
        assert (one.fallback, one.padding) == ("never", "reflect")


def test_caps_shrink_a_recipe_and_its_name_says_so():
    for kind in ("whole", "pipeline"):
        for block in ("random", "lco"):
            full = recipe(kind, block, "reference")
            assert capped(full, Limits()) == full and "updates" not in full.method
            for profile in ("smoke", "default", "rehearsal"):
                caps = getattr(limits(profile), f"finetune_{kind}")
                small = capped(full, limits(profile))
                assert (small.updates, small.batch, small.side) == (caps.updates, caps.batch, caps.side)
                assert small.lr_backbone == (caps.lr_backbone or full.lr_backbone)
                assert f"({caps.updates:,} updates)" in small.method
                assert str(caps) in str(LIMITS[profile])
    small = capped(recipe("whole", "random", "reference"), limits("smoke"))
    assert small.load / small.side == pytest.approx(256 / 224, abs=1 / small.side)
    assert limits("smoke", caps=False).finetune_whole is None


@pytest.mark.parametrize(
    "change, message",
    [({"kind": "tiles"}, "kind must be one of whole, pipeline"), ({"batch": 0}, "batch must be a whole number"),
     ({"lr_head": float("nan")}, "lr_head must be a number"), ({"crop": "random", "load": 20}, "holds no crop"),
     ({"weight_decay": True}, "weight_decay must be a number"), ({"compat": "mine"}, "compat must be one of corrected"),
     ({"scale": (0.6, 1.5)}, "scale must be a pair .* <= 1, got"), ({"scale": (0.0, 1.0)}, "scale must be a pair"),
     ({"scale": (0.9, 0.6)}, "scale must be a pair"), ({"scale": 0.6}, "scale must be a pair"),
     ({"ratio": (2.0, float("inf"))}, "ratio must be a pair"), ({"ratio": (True, 2.0)}, "ratio must be a pair"),
     ({"padding": "mirror"}, "padding must be one of reflect, zero"),
     ({"fallback": True}, "Recipe: fallback must be"), ({"fallback": float("nan")}, "Recipe: fallback must be")],
)  # fmt: skip
def test_impossible_recipes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        whole(**change)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="unknown block 'dev'; known: random, lco"):
        recipe("whole", "dev", "corrected")
    with pytest.raises(ValueError, match="unknown compat 'mine'"):
        recipe("whole", "lco", "mine")


# what evaluation sees


def test_evaluation_is_torchvision_s_resize_of_the_picture(frame):
    _, plan = plans(recipe("whole", "random", "reference"))
    expected = functional.pil_to_tensor(functional.resize(as_pil(frame), [224, 224]))
    assert np.array_equal(prepare(frame, plan)[0], expected.numpy())


def test_copies_are_bicubic_jpegs_of_quality_90(frame):
    training, evaluation = plans(recipe("whole", "lco", "reference"))
    stream = io.BytesIO()
    as_pil(frame).resize((256, 256), Image.BICUBIC).save(stream, "JPEG", quality=90, optimize=True)
    copy = Image.open(stream)
    assert np.array_equal(prepare(frame, training)[0], np.asarray(copy).transpose(2, 0, 1))
    expected = np.asarray(functional.resize(copy, [224, 224])).transpose(2, 0, 1)
    assert np.array_equal(prepare(frame, evaluation)[0], expected)


def test_tiles_are_the_front_end_s_rounded(frame):
    training, evaluation = plans(pipeline(load=64, side=64, padding="zero"))
    assert training == evaluation
    exact = FrontEnd(tile_size=64, grid=2, padding="zero").tiles(torch.from_numpy(frame)[None])[0].numpy()
    kept = prepare(frame, training)
    assert kept.shape == exact.shape and np.abs(kept - exact).max() <= 0.5
    half = prepare(frame, Plan("pipeline", 32, tile=64, grid=2, padding="zero"))
    shrunk = np.asarray(as_pil(kept[1]).resize((32, 32), Image.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(half[1].astype(int) - shrunk).max() <= 1


# what training sees


def test_a_crop_is_torchvision_s_within_a_grey_level(frame):
    boxes = np.array([[0, 0, 300, 300], [13, 40, 240, 201], [100, 7, 180, 250], [5, 6, 96, 96]])
    pictures = torch.from_numpy(frame).expand(4, -1, -1, -1)
    found = augment.apply(pictures, augment.Draws(boxes, np.zeros((4, 2), dtype=bool)), 96)
    for box, crop in zip(boxes.tolist(), found, strict=True):
        expected = functional.pil_to_tensor(functional.resized_crop(as_pil(frame), *box, [96, 96]))
        assert (crop - expected).abs().max() <= 1.0
    assert torch.equal(found[3], pictures[3, :, 5:101, 6:102].float())


def test_flips_are_left_right_and_upside_down():
    pictures = torch.arange(4 * 3 * 25, dtype=torch.int64).remainder(251).to(torch.uint8).reshape(4, 3, 5, 5)
    flips = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=bool)
    draws = augment.Draws(np.tile([0, 0, 5, 5], (4, 1)), flips)
    found = augment.apply(pictures, draws, 5).numpy()
    plain = pictures.numpy().astype(np.float32)
    for i, (mirrored, upside_down) in enumerate(flips):
        step = (-1 if upside_down else 1, -1 if mirrored else 1)
        assert np.array_equal(found[i], plain[i, :, :: step[0], :: step[1]])


def test_resized_crops_have_torchvision_s_distribution():
    drawn = augment.draw(recipe("whole", "lco", "reference"), N, 256, np.random.default_rng(0)).boxes
    torch.manual_seed(0)
    picture = torch.zeros(3, 256, 256)
    known = np.array([RandomResizedCrop.get_params(picture, [0.6, 1.0], [3 / 4, 4 / 3]) for _ in range(N)])
    for name, of in {
        "area": lambda b: b[:, 2] * b[:, 3], "aspect": lambda b: b[:, 3] / b[:, 2], "top": lambda b: b[:, 0],
        "left": lambda b: b[:, 1],
    }.items():  # fmt: skip
        assert ks_2samp(of(drawn), of(known)).pvalue > 1e-3, name
    assert (drawn[:, :2] >= 0).all() and (drawn[:, :2] + drawn[:, 2:] <= 256).all()
    assert 0.59 < (drawn[:, 2] * drawn[:, 3]).min() / 256**2 < 0.61
    assert drawn[:, 2:].max() > 250


def test_a_crop_that_never_fits_is_the_whole_picture():
    impossible = whole(scale=(1.0, 1.0), ratio=(4.0, 4.0))
    assert (augment.draw(impossible, 5, 32, np.random.default_rng(0)).boxes == [0, 0, 32, 32]).all()


def test_plain_crops_and_flips_are_uniform():
    draws = augment.draw(recipe("whole", "random", "reference"), N, 256, np.random.default_rng(0))
    assert (draws.boxes[:, 2:] == 224).all()
    for axis in (0, 1):
        counts = np.bincount(draws.boxes[:, axis], minlength=33)
        assert len(counts) == 33 and chisquare(counts).pvalue > 1e-3
    both = np.bincount(draws.flips @ [1, 2], minlength=4)
    assert chisquare(both).pvalue > 1e-3, "each flip has probability one half, independent of the other"


def test_draws_depend_on_seed_epoch_and_update():
    def flips(*where):
        return augment.draw(pipeline(), 64, 16, augment.generator(augment.CROPS, *where)).flips

    assert np.array_equal(flips(1, 0, 0), flips(1, 0, 0))
    others = [flips(*where) for where in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1))]
    assert len({each.tobytes() for each in others}) == 4
    assert sorted(augment.order(9, 1, 0)) == list(range(9))
    assert not np.array_equal(augment.order(9, 1, 0), augment.order(9, 1, 1))
