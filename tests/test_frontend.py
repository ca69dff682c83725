"""The front-end against the published vectors, plain scipy, and its own invariances."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import gaussian_filter

from phoebi_lib.frontend import FrontEnd, tile_offsets


def noise(height: int, width: int, n: int = 1, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (n, 3, height, width), dtype=np.uint8))


def flat(value: int, height: int = 1024, width: int = 1024) -> torch.Tensor:
    return torch.full((1, 3, height, width), value, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("length", "size", "grid", "expected"),
    [
        (1024, 224, 4, [0, 267, 533, 800]),
        (1024, 168, 4, [0, 285, 571, 856]),
        (1024, 336, 4, [0, 229, 459, 688]),
        (1024, 518, 4, [0, 169, 337, 506]),
        (1024, 112, 8, [0, 130, 261, 391, 521, 651, 782, 912]),
        (1024, 56, 16, [0, 65, 129, 194, 258, 323, 387, 452, 516, 581, 645, 710, 774, 839, 903, 968]),
        (1024, 224, 1, [400]),
        (225, 224, 1, [0]),
        (224, 224, 4, [0, 0, 0, 0]),
        (281, 224, 4, [0, 19, 38, 57]),
        (229, 224, 3, [0, 2, 5]),  # 2.5 rounds to the even 2
    ],
)
def test_offsets(length, size, grid, expected):
    assert tile_offsets(length, size, grid) == expected


@given(size=st.integers(1, 300), extra=st.integers(0, 900), grid=st.integers(2, 16))
def test_offsets_reach_both_borders(size, extra, grid):
    offsets = tile_offsets(size + extra, size, grid)
    assert offsets[0] == 0 and offsets[-1] == extra and offsets == sorted(offsets)


def test_tiles_are_row_major_windows_of_the_frame():
    frame = noise(300, 410)
    tiles = FrontEnd(tile_size=96, grid=3, illumination="none").tiles(frame)[0]
    assert tiles.shape == (9, 3, 96, 96) and tiles.dtype == torch.float32
    corners = [(y, x) for y in (0, 102, 204) for x in (0, 157, 314)]
    for tile, (y, x) in zip(tiles, corners, strict=True):
        assert torch.equal(tile, frame[0, :, y : y + 96, x : x + 96].float())


@pytest.mark.parametrize("illumination", ["divide", "subtract"])
def test_tiles_are_windows_of_the_corrected_frame(illumination):
    front_end, frame = FrontEnd(tile_size=64, grid=2, illumination=illumination), noise(150, 171)
    corrected = front_end.correct(frame)
    expected = [corrected[0, :, y : y + 64, x : x + 64] for y in (0, 86) for x in (0, 107)]
    assert torch.allclose(front_end.tiles(frame)[0], torch.stack(expected), atol=1e-3)


# ---------------------------------------------------------------- the published (zero-padded) variant


def test_flat_field_of_the_published_variant():
    front_end = FrontEnd(padding="zero")
    frame = flat(120)
    background = front_end.background(frame)[0, 0] / 120
    assert background.mean().item() == pytest.approx(0.9035, abs=5e-5)
    out = front_end.correct(frame)[0, 0]
    assert out[512, 512].item() == pytest.approx(107.5, abs=0.05)
    assert [out[0, 512].item(), out[512, 0].item()] == pytest.approx([203, 203], abs=0.5)
    assert out[0, 0].item() == out[-1, -1].item() == 255.0
    means = front_end.tiles(frame)[0].mean(dim=(1, 2, 3)).reshape(4, 4)
    corner, edge, inside = 144.5, 125.1, 107.5
    expected = [[corner, edge, edge, corner], [edge, inside, inside, edge]]
    assert torch.allclose(means, torch.tensor(expected + expected[::-1]), atol=0.06)


def test_background_profile_of_the_published_variant():
    # on a frame that is flat along one axis and far from that axis's borders, B is the 1-D profile
    profile = FrontEnd(padding="zero").background(flat(200))[0, 0, 512] / 200
    small = (profile[3::8] + profile[4::8]) / 2
    # sample i of the small frame lies between pixels 8 i + 3 and 8 i + 4
    assert small[0].item() == pytest.approx(0.525, abs=2e-3)
    assert small[12].item() == pytest.approx(0.942, abs=5e-4)
    assert small[24].item() == pytest.approx(1.000, abs=5e-5)


def test_published_variant_against_direct_convolution():
    frame = noise(1024, 1024)
    small = F.interpolate(frame.float(), size=(128, 128), mode="bilinear", align_corners=False)
    assert torch.allclose(small[0, 0, 5, 9], frame[0, 0, 43:45, 75:77].float().mean())
    taps = torch.exp(-torch.arange(-24.0, 25.0) ** 2 / (2 * 8.0**2))
    taps = taps / taps.sum()
    small = F.conv2d(small.transpose(0, 1), taps.reshape(1, 1, 1, 49), padding=(0, 24))
    small = F.conv2d(small, taps.reshape(1, 1, 49, 1), padding=(24, 0)).transpose(0, 1)
    background = F.interpolate(small, size=(1024, 1024), mode="bilinear", align_corners=False)
    expected = (frame / (background + 1.0) * background.mean()).clamp(0, 255)
    assert torch.allclose(FrontEnd(padding="zero").correct(frame), expected, atol=2e-3)


# ---------------------------------------------------------------- the default (reflecting) variant


@given(value=st.integers(0, 255), height=st.integers(48, 200), width=st.integers(48, 200))
@settings(max_examples=25, deadline=None)
def test_even_frames_stay_even(value, height, width):
    frame = flat(value, height, width)
    for illumination, level in (("divide", value / (value + 1) * value), ("subtract", value), ("none", value)):
        out = FrontEnd(tile_size=48, grid=2, illumination=illumination).correct(frame)
        assert torch.allclose(out, torch.tensor(level, dtype=torch.float32), atol=2e-3)


def test_an_even_frame_of_the_published_size():
    out = FrontEnd().correct(flat(120))
    assert 119.007 < out.min() and out.max() < 119.0095


@pytest.mark.parametrize(("height", "width"), [(512, 768), (400, 333)])
def test_background_against_scipy_on_the_full_frame(height, width):
    """Blurring an eighth of the frame and resampling differs from a full-size Gaussian by less than 0.5 grey levels."""
    frame = noise(height, width)
    exact = gaussian_filter(frame[0].numpy().astype(np.float64), sigma=(0, 64, 64), mode="reflect", truncate=4)
    assert np.abs(FrontEnd().background(frame)[0].numpy() - exact).max() < 0.5
    ramp = np.linspace(40, 220, width)[None, None, :].repeat(3, 0).repeat(height, 1).astype(np.uint8)
    exact = gaussian_filter(ramp.astype(np.float64), sigma=(0, 64, 64), mode="reflect", truncate=4)
    assert np.abs(FrontEnd().background(torch.from_numpy(ramp)[None])[0].numpy() - exact).max() < 0.5


@pytest.mark.parametrize(("height", "width"), [(512, 512), (333, 509), (150, 97), (64, 48)])
def test_background_against_pillow_and_scipy_on_the_small_frame(height, width):
    """The same steps with other people's code: Pillow's antialiased bilinear, scipy's Gaussian, any size of frame."""
    frame = noise(height, width, seed=1)
    small = (max(1, round(height / 8)), max(1, round(width / 8)))
    sigma = (64 * small[0] / height, 64 * small[1] / width)
    for channel, got in zip(frame[0].numpy(), FrontEnd(tile_size=48).background(frame)[0].numpy(), strict=True):
        image = Image.fromarray(channel.astype(np.float32)).resize(small[::-1], Image.Resampling.BILINEAR)
        blurred = gaussian_filter(np.asarray(image, dtype=np.float64), sigma=sigma, mode="reflect", truncate=4)
        expected = F.interpolate(torch.from_numpy(blurred)[None, None], size=(height, width), mode="bilinear")
        assert np.abs(got - expected[0, 0].numpy()).max() < 1e-2


@pytest.mark.parametrize("axis", [0, 1])
def test_a_smooth_gain_is_removed(axis):
    """Half a cosine across the frame, from 1.3 to 0.7: the blur follows 93 % of it, exp(-(pi 64 / 512)^2 / 2)."""
    gain = 1.0 + 0.3 * np.cos(np.pi * np.arange(0.5, 512) / 512)
    gain = gain[:, None] if axis == 0 else gain[None, :]
    scene = 140 + 10 * np.random.default_rng(3).standard_normal((512, 512))
    even, lit = (
        torch.from_numpy(np.broadcast_to(image, (3, 512, 512)).round().astype(np.uint8).copy())[None]
        for image in (scene, scene * gain)
    )
    even, corrected = (FrontEnd().correct(frame) for frame in (even, lit))
    before, after = ((frame / frame.mean() - even / even.mean()).abs().mean() for frame in (lit.float(), corrected))
    assert after < 0.12 * before


def test_the_colour_cast_stays():
    frame = torch.tensor([147, 120, 96], dtype=torch.uint8).reshape(1, 3, 1, 1).expand(1, 3, 256, 256).contiguous()
    subtracted = FrontEnd(illumination="subtract").correct(frame).mean(dim=(0, 2, 3))
    # one number for all channels: a flat frame of any colour comes out grey at that number
    assert subtracted.numpy() == pytest.approx([121.0] * 3, abs=1e-3)
    divided = FrontEnd().correct(frame).mean(dim=(0, 2, 3))
    assert divided.numpy() == pytest.approx([121 * c / (c + 1) for c in (147, 120, 96)], abs=1e-3)


def test_frames_do_not_depend_on_their_batch():
    frames = noise(260, 300, n=5)
    for padding in ("reflect", "zero"):
        front_end = FrontEnd(tile_size=128, padding=padding)
        together = front_end.tiles(frames)
        assert torch.equal(together, torch.cat([front_end.tiles(frame[None]) for frame in frames]))


@pytest.mark.parametrize("illumination", ["divide", "subtract"])
def test_whole_batches_at_once_as_on_a_gpu(illumination, monkeypatch):
    frames, front_end = noise(260, 333, n=3), FrontEnd(tile_size=128, illumination=illumination)
    in_strips = front_end.correct(frames), front_end.tiles(frames)
    monkeypatch.setattr("phoebi_lib.frontend._parts", lambda frames: [slice(None)])
    monkeypatch.setattr("phoebi_lib.frontend._strips", lambda frames: [slice(0, frames.shape[-2])])
    for strips, whole in zip(in_strips, (front_end.correct(frames), front_end.tiles(frames)), strict=True):
        assert torch.allclose(strips, whole, atol=1e-3)


@pytest.mark.parametrize("padding", ["reflect", "zero"])
def test_mirrored_frames_give_mirrored_results(padding):
    frame = noise(256, 320)
    front_end = FrontEnd(padding=padding)
    assert torch.allclose(front_end.correct(frame.flip(-1)), front_end.correct(frame).flip(-1), atol=1e-3)
    assert torch.allclose(front_end.correct(frame.mT.contiguous()), front_end.correct(frame).mT, atol=1e-3)


def test_output_is_clipped_and_input_untouched():
    frame = noise(256, 256)
    copy = frame.clone()
    for illumination in ("divide", "subtract"):
        out = FrontEnd(illumination=illumination).correct(frame)
        assert 0.0 <= out.min() and out.max() <= 255.0
    assert torch.equal(frame, copy)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_devices_agree():
    frames = noise(1024, 1024, n=2)
    for padding in ("reflect", "zero"):
        front_end = FrontEnd(padding=padding)
        assert torch.allclose(front_end.tiles(frames), front_end.tiles(frames.cuda()).cpu(), atol=1e-2)


def test_a_frame_smaller_than_a_tile_is_refused():
    with pytest.raises(ValueError, match=r"300 x 200 px is smaller than one tile of 224 x 224 px"):
        FrontEnd().tiles(noise(200, 300))
    assert FrontEnd().tiles(noise(224, 224)).shape == (1, 16, 3, 224, 224)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"tile_size": 0}, "tile_size"),
        ({"grid": 2.0}, "grid"),
        ({"downsample": True}, "downsample"),
        ({"sigma": 0}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"illumination": "multiply"}, "illumination"),
        ({"padding": "replicate"}, "padding"),
    ],
)
def test_parameters_out_of_range_are_named(parameters, named):
    with pytest.raises(ValueError, match=named):
        FrontEnd(**parameters)


def test_inputs_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match="uint8"):
        FrontEnd().correct(noise(256, 256).float())
    with pytest.raises(ValueError, match=r"\(B, 3, H, W\)"):
        FrontEnd().correct(noise(256, 256)[0])


def test_parameters_are_plain_values_and_sigma_an_int_or_float_is_the_same():
    assert FrontEnd(sigma=64).parameters == FrontEnd(sigma=64.0).parameters
    assert FrontEnd().parameters == {
        "tile_size": 224, "grid": 4, "sigma": 64.0, "illumination": "divide", "padding": "reflect", "downsample": 8,
    }  # fmt: skip


@pytest.mark.parametrize("padding", ["reflect", "zero"])
def test_division_brings_the_channels_to_one_level(padding):
    """Appendix A.2 says that the correction keeps the relative cast; the formula of B.1 with one mean does not."""
    frame = torch.tensor([147, 120, 96], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 512, 512).contiguous()
    inside = FrontEnd(padding=padding).correct(frame)[0, :, 256, 256]
    # I / (B + 1) * mean(B): the channels end within 0.4 % of each other, not 147 : 96
    assert float(inside.max() / inside.min()) < 1.005
