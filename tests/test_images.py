"""Pictures of every kind that laboratories write, and of every kind of damage."""

import struct
import zlib
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from phoebi_lib import images
from phoebi_lib.images import ImageError, read_image

REAL = Path(__file__).resolve().parents[2] / "shared" / "real_micrographs"
RNG = np.random.default_rng(7)
# a smooth picture, wider than high, so that JPEG changes it little and a transposition shows
ROWS, COLUMNS = np.mgrid[0:24, 0:40]
RGB = np.stack([ROWS * 9, COLUMNS * 6, ROWS * 3 + COLUMNS * 3], axis=-1).astype(np.uint8)
GREY = RGB[..., 0]


def saved(tmp_path, array, name, mode=None, **options):
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(tmp_path / name, **options)
    return tmp_path / name


def as_rgb(pixels):
    assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[0] == 3 and pixels.flags.c_contiguous
    return pixels.transpose(1, 2, 0)


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif", "a.tiff"])
def test_lossless_rgb_is_exact(tmp_path, name):
    assert np.array_equal(as_rgb(read_image(saved(tmp_path, RGB, name))), RGB)
    assert read_image(str(tmp_path / name)).shape == (3, 24, 40)


def test_jpeg_is_what_pillow_decodes(tmp_path):
    path = saved(tmp_path, RGB, "a.jpg", quality=95)
    assert np.array_equal(as_rgb(read_image(path)), np.asarray(Image.open(path).convert("RGB")))


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_content_decides_not_the_suffix(tmp_path, name):
    path = saved(tmp_path, RGB, name).rename(tmp_path / "a.jpg")
    assert np.array_equal(as_rgb(read_image(path)), RGB)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.bmp"])
def test_grey_is_repeated(tmp_path, name):
    found = as_rgb(read_image(saved(tmp_path, GREY, name)))
    assert (found == found[..., :1]).all()
    assert np.abs(found[..., 0].astype(int) - GREY).max() <= (3 if name == "a.jpg" else 0)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_alpha_is_dropped_not_composited(tmp_path, name):
    alpha = np.full(GREY.shape, 30, np.uint8)
    assert np.array_equal(as_rgb(read_image(saved(tmp_path, np.dstack([RGB, alpha]), name))), RGB)
    found = as_rgb(read_image(saved(tmp_path, np.dstack([GREY, alpha]), "la" + name)))
    assert np.array_equal(found, np.dstack([GREY] * 3))


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_palette_and_bilevel(tmp_path, name):
    palette = Image.fromarray(RGB).quantize(16)
    palette.save(tmp_path / name)
    assert np.array_equal(as_rgb(read_image(tmp_path / name)), np.asarray(palette.convert("RGB")))
    bits = GREY > 100
    Image.fromarray(bits).save(tmp_path / f"bits_{name}")
    assert np.array_equal(as_rgb(read_image(tmp_path / f"bits_{name}"))[..., 1], bits * np.uint8(255))


@pytest.mark.parametrize("name", ["a.jpg", "a.tif"])
def test_cmyk(tmp_path, name):
    found = as_rgb(read_image(saved(tmp_path, RGB, name, "CMYK")))
    assert np.abs(found.astype(int) - RGB).max() <= (12 if name == "a.jpg" else 1)


def test_ycbcr_tiff(tmp_path):
    found = as_rgb(read_image(saved(tmp_path, RGB, "a.tif", "YCbCr")))
    assert np.abs(found.astype(int) - RGB).max() <= 3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "b.tif"])
def test_orientation_tag_is_applied(tmp_path, name, orientation):
    if name == "b.tif":
        tifffile.imwrite(tmp_path / name, RGB, photometric="rgb", extratags=[(274, "H", 1, orientation, True)])
        upright = ImageOps.exif_transpose(with_tag(Image.fromarray(RGB), orientation))
    else:
        exif = Image.Exif()
        exif[274] = orientation
        path = saved(tmp_path, RGB, name, exif=exif)
        upright = ImageOps.exif_transpose(Image.open(path))
    assert np.array_equal(as_rgb(read_image(tmp_path / name)), np.asarray(upright))
    assert upright.size == ((24, 40) if orientation > 4 else (40, 24))


def with_tag(image, orientation):
    image.getexif()[274] = orientation
    return image


def test_orientation_of_sixteen_bit_png(tmp_path):
    deep = (GREY.astype(np.uint16) * 200)[:, ::-1]
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(deep).save(tmp_path / "a.png", exif=exif)
    assert read_image(tmp_path / "a.png").shape == (3, 40, 24)
    assert np.array_equal(as_rgb(read_image(tmp_path / "a.png"))[..., 0], np.rot90(scaled(deep), -1))


def scaled(values):
    values = values.astype(float)
    return np.round((values - values.min()) * 255 / (values.max() - values.min())).astype(np.uint8)


@pytest.mark.parametrize("kind", [np.uint16, np.int16, np.uint32, np.float32, np.float64])
@pytest.mark.parametrize("compression", [None, "zlib", "lzw"])
def test_deep_grey_tiff_is_scaled_from_minimum_to_maximum(tmp_path, kind, compression):
    deep = (1000 + COLUMNS * 7 + ROWS).astype(kind)
    tifffile.imwrite(tmp_path / "a.tif", deep, compression=compression)
    found = as_rgb(read_image(tmp_path / "a.tif"))
    assert (found.min(), found.max()) == (0, 255)
    assert np.array_equal(found, np.dstack([scaled(deep)] * 3))


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_deep_colour_keeps_its_cast(tmp_path, name):
    deep = RGB.astype(np.uint16) * 3 + np.array([300, 200, 100], np.uint16)
    if name == "a.png":
        (tmp_path / name).write_bytes(imagecodecs.png_encode(deep))
    else:
        tifffile.imwrite(tmp_path / name, deep, photometric="rgb")
    assert np.array_equal(as_rgb(read_image(tmp_path / name)), scaled(deep))


def test_alpha_takes_no_part_in_the_scaling(tmp_path):
    deep = np.dstack([RGB.astype(np.uint16) + 500, np.full(GREY.shape, 65535, np.uint16)])
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(deep))
    tifffile.imwrite(tmp_path / "a.tif", deep, photometric="rgb", extrasamples=["unassalpha"])
    for name in ("a.png", "a.tif"):
        assert np.array_equal(as_rgb(read_image(tmp_path / name)), scaled(deep[..., :3])), name


def test_constant_deep_picture_is_black(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.full((5, 6), 4000, np.uint16))
    assert not read_image(tmp_path / "a.tif").any()


def test_white_is_zero(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", 255 - GREY, photometric="miniswhite")
    assert np.array_equal(as_rgb(read_image(tmp_path / "a.tif"))[..., 2], GREY)
    deep = GREY.astype(np.uint16) * 100
    tifffile.imwrite(tmp_path / "b.tif", deep.max() - deep, photometric="miniswhite")
    assert np.array_equal(as_rgb(read_image(tmp_path / "b.tif"))[..., 2], scaled(deep))


def test_planar_and_big_endian_tiff(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", RGB.transpose(2, 0, 1).copy(), photometric="rgb", planarconfig="separate")
    tifffile.imwrite(tmp_path / "b.tif", RGB, photometric="rgb", byteorder=">", bigtiff=True, tile=(16, 16))
    for name in ("a.tif", "b.tif"):
        assert np.array_equal(as_rgb(read_image(tmp_path / name)), RGB)


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1)])
def test_tiny_pictures_are_read(tmp_path, shape):
    for name in ("a.png", "a.tif"):
        assert read_image(saved(tmp_path, np.full((*shape, 3), 9, np.uint8), name)).shape == (3, *shape)


# damage and refusals


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tif", "z.tif", "a.bmp", "deep.png"])
@pytest.mark.parametrize("keep", [0.02, 0.5, 0.9])
def test_truncated_file_is_named(tmp_path, name, keep):
    noise = RNG.integers(0, 256, (64, 64, 3)).astype(np.uint8)
    if name == "z.tif":
        # pixels first and directory last or the other way round: both ends must be noticed
        tifffile.imwrite(tmp_path / name, noise, photometric="rgb", compression="zlib", rowsperstrip=8)
    elif name == "deep.png":
        (tmp_path / name).write_bytes(imagecodecs.png_encode(noise.astype(np.uint16) * 200))
    else:
        saved(tmp_path, noise, name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(ImageError, match=name):
        read_image(tmp_path / name)


def test_empty_missing_folder_and_nonsense(tmp_path):
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(ImageError, match=r"empty\.jpg: the file is empty \(0 bytes\)"):
        read_image(tmp_path / "empty.jpg")
    with pytest.raises(ImageError, match="no such file"):
        read_image(tmp_path / "none.jpg")
    with pytest.raises(ImageError, match="not a plain file"):
        read_image(tmp_path)
    for content in (
        b"hello",
        b"II*\0",
        b"II*\0\xff\xff\xff\xff",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a" + bytes(50),
        b"%PDF-1.4",
    ):
        (tmp_path / "odd.png").write_bytes(content)
        with pytest.raises(ImageError, match=r"odd\.png: .*(damaged|page)"):
            read_image(tmp_path / "odd.png")


def test_several_pages_are_refused_with_their_number(tmp_path):
    tifffile.imwrite(tmp_path / "stack.tif", np.zeros((5, 8, 8), np.uint16), photometric="minisblack")
    with pytest.raises(ImageError, match=r"stack\.tif: holds 5 pages"):
        read_image(tmp_path / "stack.tif")
    frames = [Image.fromarray(RGB), Image.fromarray(RGB[::-1].copy())]
    frames[0].save(tmp_path / "moving.png", save_all=True, append_images=frames[1:])
    with pytest.raises(ImageError, match=r"moving\.png: holds 2 pages"):
        read_image(tmp_path / "moving.png")


@pytest.mark.parametrize(("channels", "text"), [(2, "2 channels"), (5, "neither grey nor RGB")])
def test_fluorescence_channels_are_refused(tmp_path, channels, text):
    kind = "rgb" if channels > 3 else "minisblack"
    tifffile.imwrite(tmp_path / "a.tif", np.ones((8, 8, channels), np.uint8), photometric=kind, planarconfig="contig")
    with pytest.raises(ImageError, match=text):
        read_image(tmp_path / "a.tif")


def test_values_that_are_no_light(tmp_path):
    for value in (np.nan, np.inf):
        tifffile.imwrite(tmp_path / "a.tif", np.array([[1, value]], np.float32))
        with pytest.raises(ImageError, match="NaN or infinite"):
            read_image(tmp_path / "a.tif")
    tifffile.imwrite(tmp_path / "c.tif", np.ones((3, 3), np.complex64))
    with pytest.raises(ImageError, match="complex64"):
        read_image(tmp_path / "c.tif")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_claimed_sizes_are_refused_before_decoding(tmp_path):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    for side in (10_001, 20_000, 2**30):
        head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        (tmp_path / "bomb.png").write_bytes(
            b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
        )
        with pytest.raises(ImageError, match=r"bomb\.png.*more than 100 megapixels; crop or tile it first"):
            read_image(tmp_path / "bomb.png")


def test_pixel_limit_of_tiff_and_others(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_PIXELS", 24 * 40 - 1)
    for name in ("a.tif", "a.jpg"):
        with pytest.raises(ImageError, match="40 x 24 px is more than"):
            read_image(saved(tmp_path, RGB, name))
    monkeypatch.setattr(images, "MAX_PIXELS", 24 * 40)
    assert read_image(tmp_path / "a.tif").shape == (3, 24, 40)


@pytest.mark.skipif(not REAL.is_dir(), reason="the real micrographs are not on this machine")
def test_real_micrographs():
    found = {path.name: read_image(path) for path in REAL.iterdir() if path.suffix.lower() in images.SUFFIXES}
    assert {name: pixels.shape[1:] for name, pixels in found.items()} == {
        "caulo_15.tif": (281, 310),
        "ec_5I_t141xy5c1.tif": (334, 321),
        "Sample000193.png": (564, 564),
        "Sample000306.tiff": (396, 390),
    }
    for name in ("caulo_15.tif", "ec_5I_t141xy5c1.tif"):
        assert (found[name].min(), found[name].max()) == (0, 255)
