"""Figures that several notebooks share: one style, one colour per species, and small drawing helpers.

Colours are the Okabe-Ito palette, which stays distinguishable with the common forms of colour blindness. The two
Bacillus species share a hue family (blue, light blue), because telling them apart is the hard part. Each curve also
has its own marker or line style, so that no figure relies on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import matplotlib.patheffects
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SPECIES_COLOURS = {
    "bs": "#0072B2", "bt": "#56B4E9", "fj": "#009E73", "ka": "#E69F00", "mx": "#CC79A7", "pf": "#D55E00",
}  # fmt: skip
# name -> (colour, marker, line style); the constant predictor is the reference level and drawn in black
METHOD_STYLES = {
    "AllPresent": ("#000000", "x", "--"),
    "SimplexUnmix": ("#0072B2", "o", "-"),
    "ProtoMatch": ("#D55E00", "s", "-."),
    "ChannelGroup": ("#009E73", "^", ":"),
}
INK, GREY, PALE = "#222222", "#767676", "#E4E4E4"
# outlines of crops, visible on warm grey micrographs and on white paper
CROP_COLOURS = ("#F0E442", "#56B4E9", "#D55E00", "#000000")

_RC = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.grid": False,
    "figure.facecolor": "white",
    "image.interpolation": "antialiased",
    # ids inside an SVG come from this salt and no longer from a random number: the same figure gives the same bytes
    "svg.hashsalt": "phoebi",
    "svg.fonttype": "path",
}


def set_style(image_format: str = "svg") -> None:
    """Apply the book's figure style; inside a notebook also choose how figures are stored.

    ``image_format`` is ``"svg"`` for drawings and curves and ``"png"`` for figures full of photographs, which would be
    large as SVG. Neither form carries a date or a random identifier, so a re-run gives the same bytes.

    Raises ValueError for another format.
    """
    if image_format not in ("svg", "png"):
        raise ValueError(f"image_format is {image_format!r}; expected 'svg' for drawings or 'png' for photographs.")
    mpl.rcParams.update(_RC)
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # plain Python without IPython: the style alone applies
        return
    if get_ipython() is not None:
        metadata = {"Date": None, "Creator": None} if image_format == "svg" else {"Software": None}
        set_matplotlib_formats(image_format, metadata=metadata)


def species_colour(code: str) -> str:
    """Return the colour of a species code; codes outside the six (other catalogues) are grey."""
    return SPECIES_COLOURS.get(code, GREY)


def gallery(
    images: Sequence[np.ndarray], titles: Sequence[str], *, columns: int = 3, width: float = 8.0, colour: bool = False
) -> Figure:
    """Lay out pictures (uint8, (3, H, W) or (H, W)) in a grid with a title each.

    ``colour=True`` frames each picture whose title starts with a species code in that species' colour.
    Raises ValueError when the numbers of pictures and titles differ, or there are none.
    """
    if len(images) == 0 or len(images) != len(titles):
        raise ValueError(f"{len(images)} images and {len(titles)} titles; expected equal numbers, at least one.")
    rows = -(-len(images) // columns)
    ratio = np.shape(images[0])[-2] / np.shape(images[0])[-1]
    side = width / columns
    figure, axes = plt.subplots(rows, columns, figsize=(width, rows * (side * ratio + 0.28)), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, image, title in zip(axes.flat, images, titles, strict=False):
        show_image(axis, image)
        axis.set_title(title, loc="left")
        if colour:
            frame(axis, species_colour(title.split()[0]))
    return figure


def show_image(axis: Axes, image: np.ndarray) -> None:
    """Draw one picture, channel-first colour (3, H, W) or grey (H, W), values 0 to 255, without ticks."""
    image = np.asarray(image)
    array = np.clip(image, 0, 255).astype(np.uint8)
    axis.imshow(array.transpose(1, 2, 0) if image.ndim == 3 else array, cmap="gray", vmin=0, vmax=255)
    axis.set_axis_off()


def frame(axis: Axes, colour: str, width: float = 3.0) -> None:
    """Draw a coloured border around an axis that shows a picture."""
    axis.set_axis_on()
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set(visible=True, color=colour, linewidth=width)


def scale_bar(axis: Axes, um_per_pixel: float, length_um: float = 10.0) -> None:
    """Draw a scale bar of ``length_um`` micrometres into the lower right corner of a picture."""
    left, right = axis.get_xlim()
    bottom, top = axis.get_ylim()  # pictures have their origin at the top, so bottom > top
    length = length_um / um_per_pixel
    x, y = right - 0.05 * (right - left) - length, bottom - 0.06 * (bottom - top)
    outline = [mpl.patheffects.withStroke(linewidth=2.5, foreground="black")]
    axis.plot([x, x + length], [y, y], color="white", linewidth=3.5, solid_capstyle="butt",
              path_effects=[mpl.patheffects.withStroke(linewidth=5.5, foreground="black")])  # fmt: skip
    axis.text(x + length / 2, y - 0.02 * (bottom - top), f"{length_um:g} µm", color="white", ha="center", va="bottom",
              fontsize=8, path_effects=outline)  # fmt: skip


def frame_with_crops(picture: np.ndarray, outlines: Sequence[np.ndarray], crops: Sequence[np.ndarray]) -> Figure:
    """Draw a camera frame (3, H, W) with the outlines (4, 2) of its crops, and the crops in frames of the same colours.

    Outlines are corners (x, y) in pixels of the frame; at most four.
    """
    ratio = picture.shape[2] / picture.shape[1]
    figure, axes = plt.subplots(1, 1 + len(crops), figsize=(9.6, 2.7), width_ratios=[ratio, *[1] * len(crops)])
    show_image(axes[0], picture)
    axes[0].set_title("frame", loc="left")
    for i, (corners, crop) in enumerate(zip(outlines, crops, strict=True)):
        axes[0].add_patch(plt.Polygon(corners, fill=False, edgecolor=CROP_COLOURS[i], linewidth=1.8))
        show_image(axes[i + 1], crop)
        frame(axes[i + 1], CROP_COLOURS[i])
        axes[i + 1].set_title(f"crop {i + 1}", loc="left")
    return figure


def crop_comparison(image: np.ndarray, corners: Sequence[tuple[int, int]], side: int) -> Figure:
    """Draw a picture (3, H, W), four square crops of it and their grey levels (the paper's Figure 5, a, b).

    ``corners`` are the upper left corners (y, x) of the crops; the grey level of a pixel is the mean of its channels.
    """
    figure = plt.figure(figsize=(9.6, 3.4))
    boxes = figure.add_gridspec(2, 4, width_ratios=[2, 1, 1, 2.3])
    whole, histogram = figure.add_subplot(boxes[:, 0]), figure.add_subplot(boxes[:, 3])
    show_image(whole, image)
    whole.set_title("(a) four crops of one picture", loc="left")
    bins = np.arange(0, 257, 8)
    for i, ((y, x), colour) in enumerate(zip(corners, CROP_COLOURS, strict=True)):
        crop = image[:, y : y + side, x : x + side]
        whole.add_patch(plt.Rectangle((x, y), side, side, fill=False, edgecolor=colour, linewidth=2))
        axis = figure.add_subplot(boxes[i // 2, 1 + i % 2])
        show_image(axis, crop)
        frame(axis, colour)
        density, _ = np.histogram(crop.mean(axis=0), bins, density=True)
        histogram.step(bins[:-1], density, ("-", "--", "-.", ":")[i], where="post", color=colour)
    histogram.set(title="(b) their grey levels", xlabel="grey level", ylabel="density", yticks=[])
    return figure


def combination_matrix(
    combinations: Mapping[str, Sequence[str]], codes: Sequence[str], *, held_out: Sequence[str] = ()
) -> Figure:
    """Draw which species each combination contains (the paper's Figure 4): rows species, columns combinations.

    ``combinations`` maps a folder name to its species codes; columns are sorted by the number of species, keeping the
    given order inside each. Combinations in ``held_out`` get a shaded column and a name in bold.
    Raises ValueError when a held-out name is not among the combinations.
    """
    unknown = sorted(set(held_out) - set(combinations))
    if unknown:
        raise ValueError(f"Held-out combinations {unknown} are not in the list of combinations; check the spelling.")
    names = sorted(combinations, key=lambda name: len(combinations[name]))
    figure, axis = plt.subplots(figsize=(max(5.0, 0.235 * len(names) + 1.0), 3.3))
    for column, name in enumerate(names):
        if name in held_out:
            axis.axvspan(column - 0.5, column + 0.5, color="#F3E3C3", zorder=0)
        rows = [codes.index(code) for code in combinations[name]]
        axis.plot([column] * len(codes), range(len(codes)), "o", color=PALE, markersize=4, zorder=1)
        axis.plot([column] * len(rows), sorted(rows), "-", color=GREY, linewidth=1.0, zorder=2)
        axis.scatter([column] * len(rows), rows, s=52, color=[species_colour(codes[r]) for r in rows], zorder=3)
    orders = [len(combinations[name]) for name in names]
    for order in sorted(set(orders)):
        first, count = orders.index(order), orders.count(order)
        axis.text(first + (count - 1) / 2, -0.75, str(order), ha="center", va="bottom", fontsize=9, color=INK)
        if first:
            axis.axvline(first - 0.5, color=GREY, linewidth=0.8)
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7.5)
    for label in axis.get_xticklabels():
        label.set_fontweight("bold" if label.get_text() in held_out else "normal")
    axis.set_yticks(range(len(codes)), codes)
    axis.set(xlim=(-0.6, len(names) - 0.4), ylim=(len(codes) - 0.4, -0.6))
    axis.set_title("Species in the mixture", pad=16)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return figure


def all_present_f1(order: np.ndarray | float, n_species: int = 6) -> np.ndarray | float:
    """Return the per-sample F1 of the predictor that marks every species: 2k / (k + K) for an image with k species."""
    return 2 * order / (order + n_species)


def order_curve(
    axis: Axes, *, n_species: int = 6, points: pd.DataFrame | None = None, printed: Mapping[int, float] | None = None
) -> None:
    """Draw F1 against the order of a combination (the paper's Figure 6, left) above the all-present reference curve.

    ``points`` has columns method, order, mean, std (std may be missing); ``printed`` maps an order to the number that
    the paper prints for the constant predictor.
    """
    orders = np.linspace(1, n_species, 101)
    colour, _, line = METHOD_STYLES["AllPresent"]
    axis.plot(orders, all_present_f1(orders, n_species), line, color=colour, label="all present, 2k / (k + K)")
    whole = np.arange(1, n_species + 1)
    axis.plot(whole, all_present_f1(whole, n_species), ".", color=colour, markersize=6)
    if points is not None:
        methods = list(dict.fromkeys(points["method"]))
        for i, method in enumerate(methods):
            part = points[points["method"] == method].sort_values("order")
            colour, marker, line = METHOD_STYLES.get(method, (GREY, "D", "-"))
            shift = 0.06 * (i - (len(methods) - 1) / 2)
            axis.errorbar(part["order"] + shift, part["mean"], yerr=part.get("std"), color=colour, marker=marker,
                          linestyle=line, capsize=2.5, markersize=5, label=method)  # fmt: skip
    if printed:
        axis.plot(list(printed), list(printed.values()), "o", markersize=10, markerfacecolor="none",
                  markeredgecolor=SPECIES_COLOURS["pf"], markeredgewidth=1.6, label="printed in the paper")  # fmt: skip
    axis.set(xlabel="Species in the mixture, k", ylabel="Per-sample F1", ylim=(0, 1.03), xticks=whole)
    axis.legend(loc="lower right")


def tile_count_curve(
    axis: Axes, points: pd.DataFrame, fits: pd.DataFrame, *, ylabel: str = "Per-sample F1"
) -> None:
    """Draw a score against the number of tiles with the fit a - c / sqrt(T) (the paper's Figure 6, right).

    ``points`` has columns method, tiles, f1; ``fits`` method, a, c, as ``protocols.fit_tile_curve(points)`` gives them.
    """
    curves = fits.set_index("method")
    for method, part in points.groupby("method", sort=False):
        colour, marker, line = METHOD_STYLES.get(method, (GREY, "D", "-"))
        a, c = curves.loc[method, ["a", "c"]]
        grid = np.geomspace(part["tiles"].min(), part["tiles"].max(), 60)
        axis.plot(grid, a - c / np.sqrt(grid), line, color=colour, linewidth=1.2)
        axis.plot(part["tiles"], part["f1"], marker, color=colour, label=f"{method}: {a:.3f} − {c:.3f}/√T")
    counts = sorted(points["tiles"].unique())
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [f"{count:g}" for count in counts])
    axis.minorticks_off()
    axis.set(xlabel="Tiles per image, T", ylabel=ylabel)
    axis.legend(loc="lower right")


def bars_with_reference(axis: Axes, table: pd.DataFrame, *, reference: pd.Series | None = None, ylabel: str) -> None:
    """Draw grouped bars: one group per row of ``table``, one bar per column, with an optional reference mark per row.

    ``reference`` is indexed like ``table``, for instance the constant predictor on the same images.
    """
    positions, width = np.arange(len(table)), 0.8 / table.shape[1]
    for i, column in enumerate(table.columns):
        colour = METHOD_STYLES.get(column, (GREY,))[0]
        axis.bar(positions - 0.4 + width * (i + 0.5), table[column], width * 0.92, color=colour, label=column)
    if reference is not None:
        axis.hlines(reference.loc[table.index], positions - 0.45, positions + 0.45, color="black", linestyle="--",
                    linewidth=1.2, label="all present")  # fmt: skip
    axis.set_xticks(positions, table.index)
    axis.set_ylabel(ylabel)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
