"""Read one picture of any common kind as uint8 RGB.

What leaves this module is always ``(3, H, W)`` uint8, whatever a laboratory's software wrote. The conventions:

* integers of more than 8 bits and floats are scaled linearly, the picture's own minimum to 0 and maximum to 255, over
  all channels together so that a colour cast survives; a picture of one single value becomes 0;
* grey is repeated in all three channels;
* alpha is dropped, not composited: it holds no light that the camera saw, and any background would be invented;
* CMYK is converted to RGB without a colour profile; the orientation tag (EXIF or TIFF) is applied;
* a file with several pages (stacks, time series) is refused, since a choice of page would be a guess.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

#: Suffixes that count as pictures when a folder is listed; what is inside is decided by content, not by suffix.
SUFFIXES: tuple[str, ...] = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")
#: Larger pictures are refused before a pixel is decoded: a small file can claim any size.
MAX_PIXELS = 100_000_000

_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_ORIENTATION_TAG = 274

# A damaged TIFF is reported by our own error; the reader's log line beside it would only reach a notebook's stderr.
logging.getLogger("tifffile").addHandler(logging.NullHandler())
logging.getLogger("tifffile").propagate = False


class ImageError(ValueError):
    """A picture cannot be used; the message names the file, what is wrong and what to do."""


def read_image(path: str | Path) -> np.ndarray:
    """Return the picture as a C-contiguous uint8 array ``(3, H, W)``, values 0..255, by the conventions above.

    Raises:
        ImageError: missing, empty, truncated or unreadable file, several pages, more than 100 megapixels, non-finite
            values, or a number of channels that is not grey, RGB or CMYK (with or without alpha).
    """
    path = Path(path)
    if not path.is_file():
        raise ImageError(f"{path}: no such file, or not a plain file; expected a JPEG, PNG, BMP or TIFF picture")
    try:
        with open(path, "rb") as stream:
            head = stream.read(32)
        if not head:
            raise ImageError(f"{path}: the file is empty (0 bytes); copy or export it again")
        if head[:4] in _TIFF_MAGIC:
            pixels, orientation = _read_tiff(path)
        else:
            pixels, orientation = _read_other(path, deep=head[:8] == _PNG_MAGIC and head[24:25] == b"\x10")
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(
            f"{path}: is more than {MAX_PIXELS // 1_000_000} megapixels; crop or tile it first ({error})"
        ) from error
    except Exception as error:  # decoders of foreign bytes raise nearly anything; every one means the same here
        raise ImageError(
            f"{path}: cannot be read as a picture ({error or type(error).__name__}); it may be truncated or damaged, "
            "copy or export it again as JPEG, PNG or TIFF"
        ) from error
    rgb = _oriented(_three_channels(_eight_bits(pixels, path), path), orientation)
    return np.ascontiguousarray(rgb.transpose(2, 0, 1))


def _read_other(path: Path, deep: bool) -> tuple[np.ndarray, int]:
    with Image.open(path, formats=("JPEG", "PNG", "BMP", "TIFF")) as image:
        _check_size(path, image.height, image.width)
        # a JPEG with several pictures (MPO) holds previews beside the one that the camera took, which comes first
        if getattr(image, "n_frames", 1) > 1 and image.format in ("PNG", "TIFF"):
            raise _several_pages(path, image.n_frames)
        image.load()
        orientation = _orientation(image)  # after loading: Pillow turns a TIFF itself and then drops the tag
        if deep:
            # Pillow keeps only the high byte of 16-bit colour, which turns a dim 12-bit picture black
            import imagecodecs

            return imagecodecs.png_decode(path.read_bytes()), orientation
        if image.mode in ("1", "LA", "La"):
            image = image.convert("L")
        elif image.mode not in ("L", "RGB"):
            image = image.convert("RGB")
        return np.asarray(image), orientation


def _read_tiff(path: Path) -> tuple[np.ndarray, int]:
    with tifffile.TiffFile(path) as tiff:
        if len(tiff.pages) != 1:
            raise _several_pages(path, len(tiff.pages))
        page = tiff.pages[0]
        _check_size(path, page.imagelength, page.imagewidth)
        ends = [start + count for start, count in zip(page.dataoffsets, page.databytecounts, strict=True)]
        if max(ends, default=0) > path.stat().st_size:
            raise ImageError(f"{path}: the file is truncated, its pixels end after its last byte; copy it again")
        tag = page.tags.get(_ORIENTATION_TAG)
        orientation = int(tag.value) if tag is not None else 1
        kind = page.photometric.name if page.photometric is not None else "MINISBLACK"
        if kind in ("YCBCR", "CIELAB", "ICCLAB") and page.compression.name not in ("JPEG", "OJPEG"):
            return _read_other(path, deep=False)
        if page.axes not in ("YX", "YXS", "SYX"):
            raise ImageError(f"{path}: holds a volume or stack (axes {page.axes}); export one plane as its own file")
        alpha = [sample for sample in page.extrasamples if sample in (1, 2)]
        if page.samplesperpixel == 2 and not alpha:
            raise ImageError(f"{path}: holds 2 channels, neither of them alpha; export one channel or RGB")
        pixels = page.asarray()
        if page.axes == "SYX":
            pixels = pixels.transpose(1, 2, 0)
        if kind == "PALETTE":
            return (page.colormap[:, pixels].transpose(1, 2, 0) >> 8).astype(np.uint8), orientation
        if pixels.dtype == np.uint8 and page.bitspersample < 8:
            pixels = np.round(pixels * (255 / (2**page.bitspersample - 1))).astype(np.uint8)
        if pixels.dtype == np.bool_:
            pixels = pixels.astype(np.uint8) * 255
        if kind == "MINISWHITE":
            pixels = pixels.max() - pixels if pixels.dtype != np.uint8 else 255 - pixels
        if kind == "SEPARATED":
            pixels = _cmyk_to_rgb(_eight_bits(pixels, path), path)
        return pixels, orientation


def _cmyk_to_rgb(pixels: np.ndarray, path: Path) -> np.ndarray:
    if pixels.ndim != 3 or pixels.shape[2] < 4:
        raise ImageError(f"{path}: separated colours with shape {pixels.shape}, expected C, M, Y and K; export as RGB")
    ink = 255 - pixels[..., :4].astype(np.uint16)
    return ((ink[..., :3] * ink[..., 3:] + 127) // 255).astype(np.uint8)


def _eight_bits(pixels: np.ndarray, path: Path) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind not in "iuf":
        raise ImageError(f"{path}: holds values of type {pixels.dtype}; export as 8- or 16-bit grey or RGB")
    # an alpha channel is full where the picture is not, so it must not take part in finding the range
    values = _without_alpha(pixels).astype(np.float64)
    if not np.isfinite(values).all():
        raise ImageError(f"{path}: holds NaN or infinite values; export as 8- or 16-bit grey or RGB")
    low, high = values.min(), values.max()
    if low == high:
        return np.zeros(values.shape, dtype=np.uint8)
    return np.round((values - low) * 255 / (high - low)).astype(np.uint8)


def _without_alpha(pixels: np.ndarray) -> np.ndarray:
    if pixels.ndim == 3 and pixels.shape[2] in (2, 4):
        return pixels[..., :-1]
    return pixels


def _three_channels(pixels: np.ndarray, path: Path) -> np.ndarray:
    pixels = _without_alpha(pixels)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise ImageError(f"{path}: shape {pixels.shape} is neither grey nor RGB; export one or three channels")
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3))


def _oriented(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Undo the orientation tag (1 = upright); unknown values count as upright."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # damaged metadata says nothing about the pixels, which are what is asked for
        return 1


def _check_size(path: Path, height: int, width: int) -> None:
    if height * width > MAX_PIXELS:
        raise ImageError(
            f"{path}: {width} x {height} px is more than {MAX_PIXELS // 1_000_000} megapixels; crop or tile it first"
        )


def _several_pages(path: Path, pages: int) -> ImageError:
    return ImageError(f"{path}: holds {pages} pages (a stack or series); export the one to read as its own file")
