"""Lab 1, what the front-end sees: pictures of two panels, and the checks of its five exercises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np

from phoebi_lib import plots
from phoebi_lib.labs.answers import Hint, array, call, exercise, number, refuse, same, shape_of
from phoebi_lib.labs.explore import Panel

if TYPE_CHECKING:
    from phoebi_lib.frontend import FrontEnd


def blur_panel(frames: Mapping[str, np.ndarray], front_end: Callable[..., FrontEnd]) -> Panel:
    """Return a panel of ``species`` and ``sigma``: a quarter of the evened picture, and its grey level along x.

    ``frames`` are uint8 pictures (3, H, W) by name; ``front_end(sigma=...)`` gives the front-end of that blur.
    """
    import torch

    def panel(part: Any, species: str, sigma: float) -> None:
        frame = frames[species]
        evened = front_end(sigma=sigma).correct(torch.from_numpy(frame)[None])[0].numpy()
        picture, curve = part.subplots(2, 1, height_ratios=[3, 1])
        quarter = [slice(0, length // 2) for length in frame.shape[1:]]
        plots.show_image(picture, evened[:, *quarter])
        picture.set_title(f"{species}, blur of {sigma:g} px", loc="left")
        for level, style in ((frame, "--"), (evened, "-")):
            # means over strips of 16 px, or single cells would hide the lamp
            strips = level[:, :, : level.shape[2] // 16 * 16].mean(axis=(0, 1)).reshape(-1, 16).mean(axis=1)
            curve.plot(16 * np.arange(len(strips)) + 8, strips, style, color=plots.INK, linewidth=1)
        curve.set(xlabel="x (px)", ylabel="grey")

    return panel


def tiles_panel(frames: Mapping[str, np.ndarray]) -> Panel:
    """Return a panel of ``species``, ``tiles_per_side`` and ``size``: the frame with the outlines of its tiles."""
    from phoebi_lib.frontend import tile_offsets

    def panel(part: Any, species: str, tiles_per_side: int, size: int) -> None:
        axis = part.subplots()
        frame = frames[species]
        plots.show_image(axis, frame[:, ::2, ::2])
        seen = np.zeros(frame.shape[1:], dtype=bool)
        tops, lefts = (tile_offsets(length, size, tiles_per_side) for length in frame.shape[1:])
        for y in tops:
            for x in lefts:
                seen[y : y + size, x : x + size] = True
                outline = plt.Rectangle((x / 2, y / 2), size / 2, size / 2, fill=False, linewidth=1.5)
                outline.set_edgecolor(plots.CROP_COLOURS[0])
                axis.add_patch(outline)
        axis.set_title(f"{tiles_per_side**2} tiles of {size} px\nsee {seen.mean():.0%} of the frame", loc="left")

    return panel


@exercise(1, 1, "Grey levels are enough for what follows: shape and brightness of the cells, not their colour.")
def check_grey(grey: Any) -> None:
    """Check a function of a uint8 picture (3, H, W) that gives its grey levels (H, W), the mean of the channels."""
    picture = np.random.default_rng(1).integers(90, 250, (3, 5, 7), dtype=np.uint8)
    answer = call(grey, picture)
    for axis, name in ((1, "height"), (2, "width")):
        if same(answer, picture.mean(axis=axis)):
            raise Hint(f"You averaged over the {name}. The colours are the first axis of (3, height, width).")
    answer = array("The result", answer, picture.shape[1:], "one number a pixel, height by width")
    if not same(answer, picture.mean(axis=0)):
        wrapped = (picture[0] + picture[1] + picture[2]).astype(float)
        mistakes = [
            *((picture[i], f"That is the {name} channel alone; all three count.")
              for i, name in enumerate(("red", "green", "blue"))),
            (picture.sum(axis=0), "That is the sum of the three colours: up to 765, not 255."),
            (wrapped / 3, "Whole numbers of eight bits start again at 0 beyond 255, and your sum did. Make decimal "
                          "numbers of them first."),
            (wrapped // 3, "Whole numbers of eight bits start again at 0 beyond 255, and your sum did."),
            (picture.mean(axis=0).astype(np.uint8), "The digits behind the point are lost: keep decimal numbers."),
        ]  # fmt: skip
        refuse(answer, mistakes, "The shape is right, the numbers are not the mean of red, green and blue.")


@exercise(1, 2, "The lamp is a factor, so it goes by division; the mean brings grey levels back.")
def check_even(even: Any) -> None:
    """Check a function of grey levels and background, both (H, W): divided, and back at the background's mean."""
    rng = np.random.default_rng(2)
    background = np.linspace(80.0, 160.0, 8)[:, None] * np.ones((8, 6))
    level = background * rng.uniform(0.7, 1.3, background.shape)
    answer = array("The result", call(even, level, background), level.shape, "one number a pixel, height by width")
    ratio = level / background
    if any(same(answer, ratio * mean) for mean in (background.mean(), level.mean())):
        return
    mistakes = [
        (ratio, "The picture is even, but its numbers lie around 1: it is black on a scale to 255. Bring the "
                "brightness back."),
        (level - background, "You subtracted. A lamp that is half as bright halves every pixel: it acts as a factor."),
        (level - background + background.mean(),
         "You subtracted. A lamp that is half as bright halves every pixel: it acts as a factor."),
        (ratio * background, "You have the old picture back: the brightness is to be one number for the whole "
                             "picture, not one for each pixel."),
        (background / level * background.mean(), "Bright pixels come out dark: look at what is divided by what."),
        (background / level, "Bright pixels come out dark: look at what is divided by what."),
        (level * background, "Bright places get brighter still: this doubles the fault of the lamp."),
        (ratio / background.mean(), "The picture is even, but the brightness was taken away twice."),
        (ratio * 255, "The picture is even, but not at its old brightness: it fills the scale to 255 at its mean."),
    ]  # fmt: skip
    refuse(answer, mistakes, "The result is neither even nor at the old brightness; try it on the picture above.")


@exercise(1, 3, "The first tile starts at the border and the last one ends there.")
def check_corners(corners: Any) -> None:
    """Check a function of (length, size, n) that gives the first pixels of n evenly spaced tiles."""
    for length, size, n in ((1024, 224, 4), (100, 30, 3), (640, 128, 2)):
        answer = call(corners, length, size, n)
        case = f"For {n} tiles of {size} px on {length} px"
        if np.size(answer) != n:
            raise Hint(f"{case} you give {np.size(answer)} positions.")
        found = array("The list", answer, (n,), "one position a tile")
        if not same(found, np.round(found)):
            raise Hint(f"{case} some positions are no whole numbers; a pixel cannot be cut.")
        if found[0] != 0:
            raise Hint(f"{case} the first tile starts at {found[0]:g}, not at the border.")
        end = found[-1] + size
        if end > length:
            raise Hint(f"{case} the last tile ends at {end:g}: it sticks out by {end - length:g} px.")
        if end < length:
            raise Hint(f"{case} the last tile ends at {end:g}: {length - end:g} px are left over at the far border.")
        if np.ptp(np.diff(found)) > 1:
            raise Hint(f"{case} the steps between tiles are {np.diff(found).tolist()}; they should be equal.")


@exercise(1, 4, "Row by row, as one reads: tile 0 is at the upper left, tile 1 to its right.")
def check_cut(cut: Any) -> None:
    """Check a function of (level (H, W), starts, size) that gives tiles (n * n, size, size), row by row."""
    level, starts, size = np.arange(100.0).reshape(10, 10), [0, 3, 6], 4
    answer = call(cut, level, starts, size)
    tiles = np.array([level[y : y + size, x : x + size] for y in starts for x in starts])
    if shape_of(answer) == (3, 3, size, size):
        raise Hint("The tiles are in a square of 3 x 3; one list of 9 is wanted.")
    if shape_of(answer) == (3, size, size):
        raise Hint("Three tiles for three positions: each position down goes with every position across.")
    answer = array("The result", answer, tiles.shape, "9 tiles of 4 x 4 pixels, for three positions a side")
    if not same(answer, tiles):
        columns = np.array([level[y : y + size, x : x + size] for x in starts for y in starts])
        mistakes = [
            (columns, "The tiles go column by column, down first; they are wanted row by row."),
            (tiles.transpose(0, 2, 1), "The order is right, but each tile is turned on its side."),
        ]
        refuse(answer, mistakes, "The tiles have the right size and do not hold the right pixels.")


@exercise(1, 5, "It compares tiles with each other, so cells and noise inside a tile do not count.")
def check_unevenness(unevenness: Any) -> None:
    """Check a function of tiles (T, s, s): standard deviation of their means, as a share of the mean of all."""
    tiles = np.random.default_rng(5).uniform(60, 200, (6, 4, 4)) * np.linspace(0.8, 1.2, 6)[:, None, None]
    means = tiles.mean(axis=(1, 2))
    value = call(unevenness, tiles)
    if shape_of(value) == (6,):
        raise Hint("You give a number for each tile; one for the whole picture is wanted.")
    answer = number("The result", value)
    if not any(same(answer, means.std(ddof=ddof) / means.mean()) for ddof in (0, 1)):
        mistakes = [
            (tiles.std() / tiles.mean(), "That is the spread of single pixels: cells and noise count in it. Compare "
                                         "the tiles' mean levels."),
            (means.std(), "That is in grey levels. A share has no unit, so that bright pictures compare with dark."),
            (means.std(ddof=1), "That is in grey levels. A share has no unit."),
            (means.mean() / means.std(), "An even picture would get an infinite number: look at what is divided."),
            (tiles.std(axis=(1, 2)).mean() / tiles.mean(), "That is the spread inside tiles, not between them."),
        ]  # fmt: skip
        refuse(answer, mistakes, "The number is not the spread of the tiles' means as a share of their mean.")
