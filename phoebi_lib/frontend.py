"""From a frame to tiles: even out the illumination, cut a fixed grid. One implementation for CPU and GPU.

The background of a frame is a large Gaussian blur of a small copy, and each of its steps is linear and separable:
``background = U_r G_r D_r @ frame @ (U_c G_c D_c).T`` with three matrices an axis, that downsample, blur and upsample.
Border rule and resampling are entries of these matrices, so any frame size works, even one smaller than the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
import torch

ILLUMINATION = ("divide", "subtract", "none")
PADDING = ("reflect", "zero")
_STRIP = 128


def tile_offsets(length: int, tile_size: int, grid: int) -> list[int]:
    """Return the first pixel of each of ``grid`` tiles along an axis of ``length`` pixels.

    Offsets are ``round(i * (length - tile_size) / (grid - 1))`` with Python's rounding (half to even); a single tile is
    centred. The first tile starts at 0 and the last one ends at ``length``. On a short axis tiles overlap.

    Raises:
        ValueError: the axis is shorter than a tile.
    """
    if length < tile_size:
        raise ValueError(f"an axis of {length} px is shorter than a tile of {tile_size} px")
    if grid == 1:
        return [(length - tile_size) // 2]
    return [round(i * (length - tile_size) / (grid - 1)) for i in range(grid)]


def _resample_matrix(target: int, length: int, antialias: bool) -> np.ndarray:
    """Return the (target, length) matrix of bilinear resampling of ``length`` pixels with half-pixel centres.

    With ``antialias`` the triangle is as wide as the step (Pillow's and torch's antialiased bilinear, its weights cut
    at the border and normalised); without, each output is interpolated between the two nearest pixels.
    """
    step = length / target
    centres = (np.arange(target) + 0.5) * step - 0.5
    width = max(step, 1.0) if antialias else 1.0
    if not antialias:
        centres = centres.clip(0, length - 1)
    weights = np.clip(1.0 - np.abs(np.arange(length)[None, :] - centres[:, None]) / width, 0.0, None)
    return weights / weights.sum(axis=1, keepdims=True)


def _gaussian_matrix(small: int, sigma: float, padding: str) -> np.ndarray:
    """Return the (small, small) matrix of a sampled Gaussian blur of ``sigma`` small pixels.

    ``reflect``: taps up to 4 sigma, the row continued by half-sample symmetric reflection (``dcba|abcd|dcba``), again
    and again where the kernel is longer than the row. ``zero``: taps up to ``round(3 sigma)``, zeros beyond
    the border.
    """
    radius = round(3 * sigma) if padding == "zero" else int(4 * sigma + 0.5)
    taps = np.arange(-radius, radius + 1)
    kernel = np.exp(-0.5 * (taps / sigma) ** 2)
    kernel /= kernel.sum()
    source = np.arange(small)[:, None] + taps[None, :]
    target = np.broadcast_to(np.arange(small)[:, None], source.shape)
    values = np.broadcast_to(kernel[None, :], source.shape)
    matrix = np.zeros((small, small))
    if padding == "zero":
        inside = (source >= 0) & (source < small)
        np.add.at(matrix, (target[inside], source[inside]), values[inside])
    else:
        folded = source % (2 * small)
        np.add.at(matrix, (target, np.minimum(folded, 2 * small - 1 - folded)), values)
    return matrix


@lru_cache(maxsize=64)
def _axis(
    length: int, sigma: float, downsample: int, padding: str, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return an axis's float32 matrices: downsample (small, length), blur (small, small), upsample (length, small)."""
    small = max(1, round(length / downsample))
    # an axis that the step does not divide is downsampled by length / small; sigma stays in full-size pixels
    sigma_small = max(sigma * small / length, 0.5)
    down = _resample_matrix(small, length, antialias=padding == "reflect")
    blur = _gaussian_matrix(small, sigma_small, padding)
    up = _resample_matrix(length, small, antialias=False)
    return tuple(torch.from_numpy(matrix.astype(np.float32)).to(device) for matrix in (down, blur, up))


@dataclass(frozen=True)
class FrontEnd:
    """Illumination correction and tiling of Section 4 of the paper, with the border choice as a parameter.

    Args:
        tile_size: side of a tile in px (the encoder's input; 224).
        grid: tiles per axis; a frame gives T = grid * grid tiles in row-major order (4).
        sigma: standard deviation of the background blur in full-size px (64).
        illumination: ``divide`` gives I / (B + 1) * mean(B), ``subtract`` gives I - B + mean(B), ``none`` gives I;
            B is the blurred frame per channel, mean(B) one number per frame for all three channels: a coloured cast is
            brought to one grey level, although Appendix A.2 says that it is kept.
        padding: ``reflect`` (default) blurs an antialiased small frame with a kernel of 4 sigma and symmetric borders,
            so an evenly lit frame stays even. ``zero`` is the whole variant that the published numbers were made with:
            2 x 2 sampling, 49 taps, zeros beyond the border; it brightens edges and saturates corners.
        downsample: step of the small frame that is blurred (8).

    Raises:
        ValueError: a parameter out of range, named with what was expected.
    """

    tile_size: int = 224
    grid: int = 4
    sigma: float = 64
    illumination: str = "divide"
    padding: str = "reflect"
    downsample: int = 8

    def __post_init__(self) -> None:
        for name in ("tile_size", "grid", "downsample"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"FrontEnd: {name} must be a whole number of at least 1, got {value!r}")
        if not (isinstance(self.sigma, (int, float)) and math.isfinite(self.sigma) and self.sigma > 0):
            raise ValueError(f"FrontEnd: sigma must be a positive number of pixels, got {self.sigma!r}")
        for name, known in (("illumination", ILLUMINATION), ("padding", PADDING)):
            if getattr(self, name) not in known:
                raise ValueError(f"FrontEnd: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")

    @property
    def n_tiles(self) -> int:
        """Tiles per frame, T = grid * grid."""
        return self.grid**2

    @property
    def parameters(self) -> dict:
        """The parameters that decide the output, as plain values (sigma as a float); part of a pool's key."""
        return asdict(self) | {"sigma": float(self.sigma)}

    def background(self, frames: torch.Tensor) -> torch.Tensor:
        """Return the blurred background B, float32 of the frames' shape (B,3,H,W), in 0..255, on their device."""
        _check_frames(frames)
        small, _, up_rows, up_columns = self._blur(frames)
        return up_rows @ (small @ up_columns.T)

    def correct(self, frames: torch.Tensor) -> torch.Tensor:
        """Even out the illumination of uint8 frames (B,3,H,W); return float32 (B,3,H,W) clipped to 0..255.

        Frames are independent of each other, whatever the batch. Works on the frames' device.

        Raises:
            TypeError: not a uint8 tensor.
            ValueError: not of shape (B,3,H,W), or smaller than one tile.
        """
        self._check(frames)
        out = torch.empty(frames.shape, dtype=torch.float32, device=frames.device)
        for part in _parts(frames):
            field = self._field(frames[part])
            for strip in _strips(frames):
                self._apply(frames[part, :, strip], field(strip), out[part, :, strip])
        return out

    def tiles(self, frames: torch.Tensor) -> torch.Tensor:
        """Correct uint8 frames (B,3,H,W) and cut them; return float32 (B,T,3,s,s) in 0..255, tiles in row-major order.

        Raises:
            TypeError, ValueError: as :meth:`correct`.
        """
        self._check(frames)
        size = self.tile_size
        top, left = (tile_offsets(length, size, self.grid) for length in frames.shape[-2:])
        out = torch.empty((len(frames), self.n_tiles, 3, size, size), dtype=torch.float32, device=frames.device)
        for part in _parts(frames):
            field = self._field(frames[part])
            for i, y in enumerate(top):
                rows = slice(y, y + size)
                strip = field(rows)
                for j, x in enumerate(left):
                    columns = slice(x, x + size)
                    window = None if strip is None else strip[..., columns]
                    self._apply(frames[part, :, rows, columns], window, out[part, i * self.grid + j])
        return out

    def _field(self, frames: torch.Tensor) -> Callable[[slice], torch.Tensor | None]:
        """Return a function of rows: what to multiply them by (divide), what to add to them (subtract), or None."""
        if self.illumination == "none":
            return lambda rows: None
        small, level, up_rows, up_columns = self._blur(frames)
        divide = self.illumination == "divide"
        wide = (small + 1.0 if divide else small) @ up_columns.T

        def field(rows: slice) -> torch.Tensor:
            band = _band(rows, *up_rows.shape)
            background = up_rows[rows, band] @ wide[..., band, :]
            operation = torch.div if divide else torch.sub
            return operation(level, background, out=background)

        return field

    def _blur(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return small B (B,3,h,w), mean(B) (B,1,1,1), and the matrices that upsample rows (H,h) and columns (W,w)."""
        (down_rows, blur_rows, up_rows), (down_columns, blur_columns, up_columns) = (
            _axis(length, float(self.sigma), self.downsample, self.padding, frames.device)
            for length in frames.shape[-2:]
        )
        n, height = down_rows.shape
        low = torch.zeros((*frames.shape[:2], n, frames.shape[-1]), dtype=torch.float32, device=frames.device)
        for strip in _strips(frames):
            band = _band(strip, height, n)
            low[..., band, :] += down_rows[band, strip] @ frames[..., strip, :].float()
        small = blur_rows @ (low @ down_columns.T) @ blur_columns.T
        # the mean of the full-size background, taken on the small one: both are linear in it
        level = (up_rows.mean(0) @ small @ up_columns.mean(0)).mean(dim=1)
        return small, level[:, None, None, None], up_rows, up_columns

    def _apply(self, pixels: torch.Tensor, field: torch.Tensor | None, out: torch.Tensor) -> None:
        out.copy_(pixels)
        if field is not None:
            out = out.mul_(field) if self.illumination == "divide" else out.add_(field)
            out.clamp_(0.0, 255.0)

    def _check(self, frames: torch.Tensor) -> None:
        _check_frames(frames)
        height, width = frames.shape[-2:]
        if min(height, width) < self.tile_size:
            raise ValueError(
                f"a frame of {width} x {height} px is smaller than one tile of {self.tile_size} x {self.tile_size} px; "
                "use a larger picture, or in Python FrontEnd(tile_size=...)"
            )


# On a CPU one frame at a time, in strips: temporaries stay in cache, and a frame's result does not depend on its batch,
# to the last bit. A GPU takes the whole batch.
def _parts(frames: torch.Tensor) -> list[slice]:
    return [slice(None)] if frames.is_cuda else [slice(i, i + 1) for i in range(len(frames))]


def _band(rows: slice, length: int, small: int) -> slice:
    """Return which of ``small`` samples an axis's full-size ``rows`` are made from, or go into; the rest is zeros."""
    step = length / small
    return slice(max(0, int(rows.start / step) - 2), min(small, int(rows.stop / step) + 3))


def _strips(frames: torch.Tensor) -> list[slice]:
    step = frames.shape[-2] if frames.is_cuda else _STRIP
    return [slice(y, y + step) for y in range(0, frames.shape[-2], step)]


def _check_frames(frames: torch.Tensor) -> None:
    if not isinstance(frames, torch.Tensor) or frames.dtype != torch.uint8:
        kind = frames.dtype if isinstance(frames, torch.Tensor) else type(frames).__name__
        raise TypeError(f"frames must be a uint8 tensor of shape (B, 3, H, W), got {kind}")
    if frames.ndim != 4 or frames.shape[1] != 3:
        raise ValueError(f"frames must have the shape (B, 3, H, W), got {tuple(frames.shape)}")
