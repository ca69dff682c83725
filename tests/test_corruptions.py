"""The acquisition battery's corruptions against hand-worked frames and references written another way."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from phoebi_lib.compat import choice
from phoebi_lib.corruptions import (
    BATTERY,
    CORRUPTIONS,
    ILLUMINATION,
    VIEWS,
    condition_generator,
    corrupt,
    corrupted,
    generator,
    viewed,
)
from phoebi_lib.datasets import open_dataset
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.paper import cells, printed, quoted

WAYS = ("corrected", "reference")


def picture(height=60, width=44, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (3, height, width), dtype=np.uint8)


def to_uint8(values, compat):
    values = np.clip(values, 0, 255)
    return (np.floor(values) if compat == "reference" else np.floor(values + 0.5)).astype(np.uint8)


def near(found, expected, share=0.01):
    """Equal up to one grey level, where float32 and float64 fall on two sides of a step, in at most 1 % of pixels."""
    gap = np.abs(found.astype(int) - expected.astype(int))
    return found.shape == expected.shape and gap.max() <= 1 and (gap > 0).mean() <= share


# names and severities


def test_rows_and_severities_are_those_of_the_paper():
    table = printed(17)
    assert [CORRUPTIONS[name].row for name in (*BATTERY, "one_tile")] == table["corruption"].tolist()
    assert [CORRUPTIONS[name].variable for name in (*BATTERY, "one_tile")] == table["variable"].tolist()
    quotes = quoted().set_index("id")["value"]
    for name in BATTERY:
        assert list(CORRUPTIONS[name].severities) == [quotes[f"{name}_{level}"] for level in (1, 2, 3)]
    assert set(ILLUMINATION) == {column.split("_")[0] for column in cells(9)["column"]} - {"clean"}
    assert len(VIEWS) == quotes["rotations"]


# pixel by pixel


@pytest.mark.parametrize("compat", WAYS)
@pytest.mark.parametrize(
    ("name", "severity", "factor"),
    [
        ("condenser", 0.3, lambda x, y: 1 + 0.3 * x),
        ("vignetting", 0.4, lambda x, y: 1 - 0.4 * (x**2 + y**2) / 2),
        ("lamp", 0.701, lambda x, y: 0.701 + 0 * x),
    ],
)
def test_illumination_is_a_factor_of_place_alone(name, severity, factor, compat):
    frame = picture()
    y, x = np.meshgrid(np.linspace(-1, 1, 60), np.linspace(-1, 1, 44), indexing="ij")
    assert near(corrupt(frame, name, severity, compat=compat), to_uint8(frame * factor(x, y), compat))


def test_by_hand():
    flat = np.full((3, 3, 5), 100, np.uint8)
    assert corrupt(flat, "condenser", 0.5)[0, 0].tolist() == [50, 75, 100, 125, 150]
    # corners lose the whole of s, the middle of an edge half of it, the centre nothing
    assert corrupt(flat, "vignetting", 0.6)[1, :, [0, 2]].T.tolist() == [[40, 70], [70, 100], [40, 70]]
    assert corrupt(flat, "lamp", 0.557)[2, 0, 0] == 56
    assert corrupt(flat, "lamp", 0.557, compat="reference")[2, 0, 0] == 55
    assert corrupt(flat, "lamp", 3)[0, 0, 0] == 255, "too bright is white, not black"
    levels = np.array([0, 51, 255], np.uint8)[None, None].repeat(3, 0)
    assert corrupt(levels, "gamma", 2.0)[0, 0].tolist() == [0, 10, 255]


@pytest.mark.parametrize("compat", WAYS)
@pytest.mark.parametrize("exponent", CORRUPTIONS["gamma"].severities)
def test_gamma_is_a_table_of_256_levels(exponent, compat):
    levels = np.arange(256, dtype=np.uint8)
    found = corrupt(np.tile(levels, (3, 4, 1)), "gamma", exponent, compat=compat)
    assert near(found[0, 0], to_uint8(255 * (levels / 255.0) ** exponent, compat))
    assert (np.diff(found[0, 0].astype(int)) >= 0).all()


@pytest.mark.parametrize("compat", WAYS)
@pytest.mark.parametrize("sigma", CORRUPTIONS["focus"].severities)
def test_focus_blur_is_a_convolution_with_a_cut_gaussian(sigma, compat):
    border, widest = choice("focus_blur", compat)
    radius = {1.0: 3, 2.0: 6, 3.5: widest}[sigma]
    taps = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * sigma**2))
    taps /= taps.sum()
    frame = picture()
    mode = {"mode": "symmetric"} if border == "reflect" else {"mode": "constant"}
    padded = np.pad(frame.astype(float), ((0, 0), (radius, radius), (radius, radius)), **mode)
    rows = np.apply_along_axis(np.convolve, 1, padded, taps, "valid")
    expected = np.apply_along_axis(np.convolve, 2, rows, taps, "valid")
    assert near(corrupt(frame, "focus", sigma, compat=compat), to_uint8(expected, compat))


def test_published_blur_darkens_the_border_and_the_corrected_one_does_not():
    flat = np.full((3, 50, 50), 200, np.uint8)
    assert (corrupt(flat, "focus", 3.5) == 200).all()
    published = corrupt(flat, "focus", 3.5, compat="reference")
    assert published[0, 0, 0] < 70 and published[0, 25, 0] < 115 and published[0, 25, 25] in (199, 200)


@pytest.mark.parametrize("quality", CORRUPTIONS["jpeg"].severities)
def test_jpeg_is_pillow_s(quality):
    frame = picture()
    stream = io.BytesIO()
    Image.fromarray(np.moveaxis(frame, 0, 2)).save(stream, format="JPEG", quality=quality)
    again = np.moveaxis(np.array(Image.open(stream)), 2, 0)
    for compat in WAYS:
        assert np.array_equal(corrupt(frame, "jpeg", quality, compat=compat), again)


def test_noise_has_the_spread_asked_for_and_is_independent_between_channels():
    flat = np.full((3, 300, 300), 128, np.uint8)
    noise = corrupt(flat, "noise", 12, generator("a.jpg", 12)).astype(float) - 128
    assert noise.std() == pytest.approx(12, rel=0.02) and abs(noise.mean()) < 0.1
    assert np.abs(np.corrcoef(noise.reshape(3, -1)) - np.eye(3)).max() < 0.02
    cut = corrupt(flat, "noise", 12, generator("a.jpg", 12), compat="reference").astype(float) - 128
    assert cut.mean() == pytest.approx(-0.5, abs=0.1), "cutting fractions off darkens by half a grey level"


@pytest.mark.parametrize("compat", WAYS)
def test_one_tile_is_the_whole_frame(compat):
    frame = picture(120, 80)
    small = corrupt(frame, "one_tile", 20, compat=compat)
    # averaging over merged pixels (a triangle as wide as the step), or between two neighbours
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(frame)[None].double(), (20, 20), mode="bilinear", antialias=compat == "corrected"
    )[0].numpy()
    assert near(small, to_uint8(expected, compat))
    if compat == "reference":
        middle = [frame[:, y::6, x::4].astype(float) for y in (2, 3) for x in (1, 2)]
        assert near(small, to_uint8(sum(middle) / 4, compat))


@pytest.mark.parametrize("compat", WAYS)
def test_corrected_one_tile_is_the_corrected_frame_made_small(compat):
    ramp = corrupt(np.full((3, 256, 256), 120, np.uint8), "condenser", 0.5)
    even = FrontEnd(tile_size=64, grid=1, padding=choice("illumination", compat)).correct(torch.from_numpy(ramp)[None])
    small = corrupt(ramp, "one_tile_corrected", 64, compat=compat)
    antialias = compat == "corrected"
    expected = torch.nn.functional.interpolate(even, (64, 64), mode="bilinear", antialias=antialias)[0].numpy()
    assert near(small, to_uint8(expected, compat))


# generators


def test_noise_of_an_image_depends_on_its_path_and_severity_alone():
    frames = {f"bs/{i:05d}.jpg": picture(seed=i) for i in range(4)}
    forth = {path: corrupt(frame, "noise", 25, generator(path, 25)) for path, frame in frames.items()}
    back = {path: corrupt(frame, "noise", 25, generator(path, 25)) for path, frame in reversed(frames.items())}
    assert all(np.array_equal(forth[path], back[path]) for path in frames)
    draws = {generator(*key).integers(2**60) for key in [("a", 5), ("a", 12), ("b", 5), ("b", 12.0)]}
    assert len(draws) == 4
    assert generator("a", 5).integers(2**60) == generator("a", 5.0).integers(2**60)


def test_published_noise_comes_from_one_generator_per_condition():
    shared, alone = condition_generator(2), condition_generator(2)
    first, second = (corrupt(picture(), "noise", 25, shared) for _ in range(2))
    assert np.array_equal(first, corrupt(picture(), "noise", 25, alone)) and not np.array_equal(first, second)
    assert condition_generator(0).integers(2**60) == np.random.default_rng(1337 + sum(b"sensor_noise")).integers(2**60)
    assert condition_generator(1).integers(2**60) != condition_generator(0).integers(2**60)


# what every corruption keeps


@given(
    st.sampled_from(sorted(CORRUPTIONS)), st.sampled_from(WAYS), st.integers(0, 2), st.integers(24, 50),
    st.integers(24, 50),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_frame_keeps_type_shape_and_original(name, compat, level, height, width):
    frame = picture(height, width)
    before = frame.copy()
    severities = CORRUPTIONS[name].severities
    severity = 16 if name.startswith("one_tile") else severities[level % len(severities)]
    found = corrupt(frame, name, severity, generator("x", severity), compat=compat)
    assert found.dtype == np.uint8 and found.flags.c_contiguous
    assert found.shape == ((3, 16, 16) if name.startswith("one_tile") else frame.shape)
    assert np.array_equal(frame, before)
    assert np.array_equal(found, corrupt(frame, name, severity, generator("x", severity), compat=compat))


@pytest.mark.parametrize("name", [name for name in BATTERY if name != "noise"])
def test_frames_are_corrupted_alike_in_each_channel(name):
    grey = np.repeat(picture()[:1], 3, axis=0)
    found = corrupt(grey, name, CORRUPTIONS[name].severities[-1])
    assert np.abs(found.astype(int) - found[:1]).max() <= 3  # JPEG rounds its colour planes


@pytest.mark.parametrize("name", BATTERY)
def test_a_later_severity_changes_more(name):
    smooth = np.repeat(np.linspace(60, 200, 64), 64).reshape(1, 64, 64).repeat(3, 0)
    frame = (smooth + np.random.default_rng(0).normal(0, 12, (3, 64, 64))).clip(0, 255).astype(np.uint8)
    distance = [np.abs(corrupt(frame, name, s, generator("x", s)).astype(float) - frame).mean()
                for s in CORRUPTIONS[name].severities]  # fmt: skip
    assert 0 < distance[0] < distance[1] < distance[2]


# refused


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (ValueError, "unknown corruption 'fog'; known: condenser", (picture(), "fog", 1)),
        (ValueError, "severity must lie between 0 and 1", (picture(), "condenser", 1.5)),
        (ValueError, "severity must lie between", (picture(), "lamp", float("nan"))),
        (TypeError, "float64", (picture().astype(float), "lamp", 0.5)),
        (TypeError, r"uint8 \(60, 44\)", (picture()[0], "lamp", 0.5)),
        (TypeError, "found list", ([[1]], "lamp", 0.5)),
        (TypeError, r"generator\(path, severity\)", (picture(), "noise", 5)),
    ],
)
def test_bad_input_is_named(error, match, arguments):
    with pytest.raises(error, match=match):
        corrupt(*arguments)


# data sets


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frames")
    for i, name in enumerate(("bs", "ka")):
        (folder / name).mkdir()
        Image.fromarray(np.moveaxis(picture(40, 40, i), 0, 2)).save(folder / name / "00001.png")
    return open_dataset(folder)


@pytest.mark.parametrize("name", ["noise", "focus", "lamp"])
def test_a_corrupted_data_set_reads_corrupted_frames(dataset, name):
    severity = CORRUPTIONS[name].severities[1]
    for compat in WAYS:
        seen = corrupted(dataset, name, severity, compat)
        rng = generator("ka/00001.png", severity)
        assert np.array_equal(seen.read(1), corrupt(dataset.read(1), name, severity, rng, compat=compat))
        assert np.array_equal(seen.select([1]).read(0), seen.read(1)), "noise does not depend on the place in a list"
    facts = [corrupted(dataset, name, s, way).facts["transform"] for s in CORRUPTIONS[name].severities for way in WAYS]
    assert len({str(sorted(fact.items())) for fact in facts}) == 6


def test_views_turn_and_flip(dataset):
    frame = dataset.read(0)
    seen = {name: viewed(dataset, name).read(0) for name in VIEWS}
    transpose = frame.transpose(0, 2, 1)
    turned = [frame, transpose[:, ::-1], frame[:, ::-1, ::-1], transpose[:, :, ::-1]]
    expected = [*turned, frame[:, :, ::-1], frame[:, ::-1]]
    for (name, found), wanted in zip(seen.items(), expected, strict=True):
        assert np.array_equal(found, wanted), name
    assert len({found.tobytes() for found in seen.values()}) == 6
    with pytest.raises(ValueError, match="unknown view 'sideways'; known: identity"):
        viewed(dataset, "sideways")
