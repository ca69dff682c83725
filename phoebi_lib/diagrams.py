"""Two drawings in our own hand: what the benchmark asks (Figure 1) and how its pictures are made (Figure 3).

Everything is vector graphics from Matplotlib patches, so both stay sharp at any size and need no image file.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Polygon, Rectangle

from phoebi_lib.plots import GREY, INK, PALE, SPECIES_COLOURS

GLASS = "#F6F1E7"
STRANGER = "#444444"


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure whose axis fills it and counts in tenths of an inch."""
    figure = plt.figure(figsize=(width, height), layout="none")
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width * 10), ylim=(0, height * 10), aspect="equal")
    axis.set_axis_off()
    return figure, axis


def _text(axis: Axes, x: float, y: float, text: str, size: float = 9, **options) -> None:
    axis.text(x, y, text, fontsize=size, color=options.pop("color", INK), ha=options.pop("ha", "center"),
              va=options.pop("va", "center"), linespacing=1.25, **options)  # fmt: skip


def _panel(axis: Axes, x: float, y: float, w: float, h: float, *, face: str = "white", edge: str = GREY) -> None:
    style = "round,pad=0,rounding_size=1.2"
    axis.add_patch(FancyBboxPatch((x, y), w, h, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=1.1))


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], *, colour: str = INK, bend: float = 0):
    axis.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=13, linewidth=1.4, color=colour,
                                   connectionstyle=f"arc3,rad={bend}", shrinkA=0, shrinkB=0))  # fmt: skip


def _rod(axis: Axes, x: float, y: float, length: float, angle: float, colour: str, width: float = 2.4) -> None:
    dx, dy = 0.5 * length * np.cos(angle), 0.5 * length * np.sin(angle)
    axis.plot([x - dx, x + dx], [y - dy, y + dy], color=colour, linewidth=width, solid_capstyle="round")


def _field(axis: Axes, x: float, y: float, radius: float, codes: Sequence[str], *, seed: int = 0, n: int = 12) -> None:
    """Draw a round field of view in which the cells of ``codes`` are mixed evenly (``"?"`` is a stranger)."""
    axis.add_patch(Circle((x, y), radius, facecolor=GLASS, edgecolor=INK, linewidth=1.1))
    rng = np.random.default_rng(seed)
    for i in range(n):
        # a sunflower spiral spreads the cells evenly: the spatial homogeneity that Section 4 leans on
        r, phi = 0.76 * radius * np.sqrt((i + 0.5) / n), 2.39996 * i + seed
        code = codes[i % len(codes)]
        colour, length = SPECIES_COLOURS.get(code, STRANGER), {"ka": 0.13, "pf": 0.16}.get(code, 0.3)
        width = {"ka": 4.2, "?": 1.6}.get(code, 2.4)
        _rod(axis, x + r * np.cos(phi), y + r * np.sin(phi), length * radius, rng.uniform(0, np.pi), colour, width)


def question() -> Figure:
    """Draw the paper's two questions and the two ways of answering the first (our Figure 1)."""
    figure, axis = _canvas(9.6, 5.4)

    _panel(axis, 1, 1, 24, 52)
    _text(axis, 13, 50, "The catalogue", 11, fontweight="bold")
    _text(axis, 13, 46.2, "pure cultures and mixtures\nthat were grown and imaged", 8.5)
    catalogue = [("bs",), ("fj",), ("ka",), ("bs", "fj"), ("ka", "fj"), ("bs", "mx")]
    for i, codes in enumerate(catalogue):
        x, y = (7.2, 18.8)[i % 2], 37.3 - 13.6 * (i // 2)
        _field(axis, x, y, 4.6, codes, seed=i)
        _text(axis, x, y - 6, "_".join(codes), 8.5)

    _panel(axis, 31, 1, 23, 52)
    _text(axis, 42.5, 50, "Frozen encoder", 11, fontweight="bold")
    _text(axis, 42.5, 46.2, "16 tiles of a picture become\n16 points on a sphere", 8.5)
    for i in range(16):
        x, y = 35.5 + 3.5 * (i % 4), 30 + 3.5 * (i // 4)
        axis.add_patch(Rectangle((x, y), 3.2, 3.2, facecolor=GLASS, edgecolor=GREY, linewidth=0.8))
        for j, colour in enumerate((SPECIES_COLOURS["bs"], SPECIES_COLOURS["fj"])):
            _rod(axis, x + 1 + 1.1 * j, y + 1 + 1.1 * ((i + j) % 2), 1.1, 0.9 * i + 1.4 * j, colour, 1.8)
    _arrow(axis, (42.5, 29.2), (42.5, 24.2))
    axis.add_patch(Circle((42.5, 13.8), 9.2, facecolor="white", edgecolor=GREY, linewidth=1.1))
    rng = np.random.default_rng(3)
    anchors = {"bs": (37.6, 17.4), "fj": (45.6, 19.2), "ka": (46.6, 9.6), "mx": (38.2, 9.4)}
    for code, (x, y) in anchors.items():
        axis.scatter(*(rng.normal((x, y), 0.85, (14, 2)).T), s=7, color=SPECIES_COLOURS[code], alpha=0.5, linewidth=0)
        axis.plot(x, y, marker="*", markersize=13, color=SPECIES_COLOURS[code], markeredgecolor=INK)
    _text(axis, 42.5, 2.8, "★ one anchor for each species", 8, color=GREY)

    _question_one(axis)
    _question_two(axis)
    _arrow(axis, (25.4, 28), (30.6, 28))
    _arrow(axis, (54.4, 41), (58.6, 41))
    _arrow(axis, (54.4, 13), (58.6, 13))
    return figure


def _question_one(axis: Axes) -> None:
    _panel(axis, 59, 26.5, 36, 26.5)
    _text(axis, 60.5, 50, "1  A mixture never seen: who is in it?", 10.5, ha="left", fontweight="bold")
    _field(axis, 66, 38.8, 5.6, ("bs", "ka"), seed=4, n=14)
    _text(axis, 66, 31, "bs_ka", 8.5)
    _text(axis, 74.5, 45.6, "learn the combinations", 8.8, ha="left", fontweight="bold")
    _text(axis, 74.5, 42.2, "falls back on one it knows:", 8.3, ha="left")
    _calls(axis, 74.5, 39.2, {"bs": True, "fj": True, "ka": False}, wrong={"fj", "ka"})
    _text(axis, 74.5, 35.2, "read one species at a time", 8.8, ha="left", fontweight="bold")
    _text(axis, 74.5, 31.8, "each against its own anchor:", 8.3, ha="left")
    _calls(axis, 74.5, 28.8, {"bs": True, "fj": False, "ka": True}, wrong=set())


def _question_two(axis: Axes) -> None:
    _panel(axis, 59, 1, 36, 23)
    _text(axis, 60.5, 21, "2  A stranger: is anyone else there?", 10.5, ha="left", fontweight="bold")
    _field(axis, 66, 11.8, 5.6, ("bs", "?"), seed=7, n=14)
    _text(axis, 66, 4.6, "bs + a new species", 8.5)
    _text(axis, 74.5, 16.6, "far from every stored tile", 8.8, ha="left", fontweight="bold")
    _text(axis, 74.5, 13.2, "raise the flag “unknown”,", 8.3, ha="left")
    _text(axis, 74.5, 10.4, "then give it an anchor of its own", 8.3, ha="left")
    axis.plot(77, 6.6, marker="*", markersize=14, color=STRANGER, markeredgecolor=INK)
    _text(axis, 79.2, 6.6, "new class", 8.3, ha="left")


def _calls(axis: Axes, x: float, y: float, calls: dict[str, bool], *, wrong: set[str]) -> None:
    """Draw species calls: filled when called present, hollow when called absent, crossed out when wrong."""
    for i, (code, present) in enumerate(calls.items()):
        cx = x + 1 + 6.6 * i
        face = SPECIES_COLOURS[code] if present else "white"
        axis.add_patch(Circle((cx, y), 1.15, facecolor=face, edgecolor=SPECIES_COLOURS[code], linewidth=1.4))
        _text(axis, cx + 2.9, y, code, 8.5, color=INK)
        if code in wrong:
            axis.plot(cx, y, "x", color="black", markersize=9, markeredgewidth=1.8)


def workflow() -> Figure:
    """Draw how a culture becomes labelled pictures (our Figure 3), in six steps over two rows."""
    figure, axis = _canvas(9.6, 5.2)
    steps = [
        ("1  Frozen stock", "each species kept\non its own in glycerol", _stock),
        ("2  Grow apart", "nutrient broth, 30 °C, shaken,\n3 to 5 days, never together", _flasks),
        ("3  Verify", "every pure culture checked\nunder the microscope", _verify),
        ("4  Mix and mount", "controlled volumes, straight\nonto a plain glass slide", _mix),
        ("5  Record", "100× oil phase contrast,\none colour camera", _film),
        ("6  Cut and label", "turned square crops;\nthe folder name is the label", _crop),
    ]
    for i, (title, text, draw) in enumerate(steps):
        x, y = 1 + 32.4 * (i % 3), 27 - 25.4 * (i // 3)
        _panel(axis, x, y, 29.4, 24)
        _text(axis, x + 14.7, y + 21.4, title, 10.5, fontweight="bold")
        draw(axis, x + 14.7, y + 12.9)
        _text(axis, x + 14.7, y + 3.2, text, 8.8)
        if i % 3 < 2:
            _arrow(axis, (x + 29.5, y + 12), (x + 32.3, y + 12))
    axis.plot([80.5, 80.5, 15.7], [26.9, 26.3, 26.3], color=INK, linewidth=1.4)
    _arrow(axis, (15.7, 26.35), (15.7, 25.6))
    return figure


def _stock(axis: Axes, x: float, y: float) -> None:
    for i, code in enumerate(SPECIES_COLOURS):
        cx = x + 3.9 * (i - 2.5)
        axis.add_patch(Polygon([(cx - 1.2, y + 3.4), (cx - 1.2, y - 2.4), (cx, y - 4.6), (cx + 1.2, y - 2.4),
                                (cx + 1.2, y + 3.4)], facecolor="white", edgecolor=INK, linewidth=1.1))  # fmt: skip
        axis.add_patch(Polygon([(cx - 1.1, y + 0.6), (cx - 1.1, y - 2.4), (cx, y - 4.4), (cx + 1.1, y - 2.4),
                                (cx + 1.1, y + 0.6)], facecolor=SPECIES_COLOURS[code], linewidth=0))  # fmt: skip
        axis.add_patch(Rectangle((cx - 1.5, y + 3.4), 3, 1.3, facecolor=GREY, edgecolor=INK, linewidth=0.8))
        _text(axis, cx, y + 2, code, 6.5)


def _flasks(axis: Axes, x: float, y: float) -> None:
    for dx, code in zip((-8.4, 0, 8.4), ("bs", "ka", "mx"), strict=True):
        cx = x + dx
        body = [(cx - 1, y + 4.6), (cx - 1, y + 1.4), (cx - 3.6, y - 4.4), (cx + 3.6, y - 4.4), (cx + 1, y + 1.4),
                (cx + 1, y + 4.6)]  # fmt: skip
        axis.add_patch(Polygon(body, facecolor="white", edgecolor=INK, linewidth=1.1))
        liquid = [(cx - 2, y - 1), (cx - 3.45, y - 4.25), (cx + 3.45, y - 4.25), (cx + 2, y - 1)]
        axis.add_patch(Polygon(liquid, facecolor=SPECIES_COLOURS[code], alpha=0.75, linewidth=0))
    _text(axis, x + 13, y - 3.4, "…", 13)


def _verify(axis: Axes, x: float, y: float) -> None:
    for dx, code in zip((-9, 0, 9), ("bs", "ka", "mx"), strict=True):
        _field(axis, x + dx, y, 3.8, (code,), seed=2, n=9)
        axis.plot([x + dx + 2.2, x + dx + 3.2, x + dx + 5], [y + 3.6, y + 2.4, y + 5], color=SPECIES_COLOURS["fj"],
                  linewidth=2.6, solid_capstyle="round", solid_joinstyle="round")  # fmt: skip


def _mix(axis: Axes, x: float, y: float) -> None:
    axis.add_patch(Rectangle((x - 10, y - 4.6), 20, 1.3, facecolor="#DDEBF2", edgecolor=INK, linewidth=1.0))
    axis.add_patch(Rectangle((x - 4, y - 3.2), 8, 0.6, facecolor="white", edgecolor=INK, linewidth=0.9))
    for dx, code in ((-5.4, "bs"), (5.4, "ka")):
        colour = SPECIES_COLOURS[code]
        _rod(axis, x + dx, y + 3.4, 4.4, np.pi / 2, colour, 6)
        _arrow(axis, (x + dx, y + 0.7), (x + 0.25 * dx, y - 2.0), colour=colour)
        _text(axis, x + dx + (2.6 if dx > 0 else -2.6), y + 3.4, code, 8.5)
    for i in range(8):
        code = ("bs", "ka")[i % 2]
        _rod(axis, x - 3.3 + 0.95 * i, y - 2.9, 0.5, 0, SPECIES_COLOURS[code], 2)


def _film(axis: Axes, x: float, y: float) -> None:
    cx = x - 6.5
    axis.plot([cx + 3.6, cx + 3.6], [y - 4.6, y + 1.8], color=INK, linewidth=4, solid_capstyle="round")
    axis.plot([cx - 3.6, cx + 4.4], [y - 4.6, y - 4.6], color=INK, linewidth=4, solid_capstyle="round")
    axis.plot([cx - 3, cx + 3.4], [y - 1.9, y - 1.9], color=GREY, linewidth=3)
    axis.add_patch(Polygon([(cx - 0.9, y - 0.9), (cx + 0.9, y - 0.9), (cx + 0.6, y - 1.6), (cx - 0.6, y - 1.6)],
                           facecolor=INK))  # fmt: skip
    axis.add_patch(Rectangle((cx - 1.2, y - 0.9), 2.4, 4, facecolor="white", edgecolor=INK, linewidth=1.1))
    axis.plot([cx + 1.2, cx + 3.6], [y + 1.6, y + 1.6], color=INK, linewidth=4)
    axis.add_patch(Rectangle((cx - 1.6, y + 3.1), 3.2, 1.9, facecolor=SPECIES_COLOURS["bs"], edgecolor=INK))
    for i in range(3):
        fx, fy = x + 1.5 + 1.5 * i, y - 3.6 + 1.3 * i
        axis.add_patch(Rectangle((fx, fy), 7.2, 5.4, facecolor=GLASS, edgecolor=INK, linewidth=1.0))
    for i in range(9):
        code = ("bs", "ka")[i % 2]
        _rod(axis, fx + 1 + 2.5 * (i % 3), fy + 1 + 1.7 * (i // 3), 1.2 if code == "bs" else 0.5, 1.9 * i,
             SPECIES_COLOURS[code], 2)  # fmt: skip


def _crop(axis: Axes, x: float, y: float) -> None:
    axis.add_patch(Rectangle((x - 12, y - 4.8), 12.8, 9.6, facecolor=GLASS, edgecolor=INK, linewidth=1.0))
    for i in range(20):
        code = ("bs", "ka")[i % 2]
        _rod(axis, x - 10.8 + 2.6 * (i % 5), y - 3.6 + 2.4 * (i // 5), 1.2 if code == "bs" else 0.5, 1.9 * i,
             SPECIES_COLOURS[code], 2)  # fmt: skip
    for angle, side, colour in ((8, 8.0, "#000000"), (38, 6.6, "#7A4B00"), (-24, 6.8, "#004B73")):
        a = np.deg2rad(angle) + np.pi / 4 + np.arange(4) * np.pi / 2
        corners = np.c_[x - 5.6 + side / np.sqrt(2) * np.cos(a), y + side / np.sqrt(2) * np.sin(a)]
        axis.add_patch(Polygon(corners, facecolor="none", edgecolor=colour, linewidth=1.5))
    _arrow(axis, (x + 1.4, y), (x + 3.8, y))
    _text(axis, x + 9, y + 1.6, "bs_ka/", 9.5, family="monospace", fontweight="bold")
    for i, (code, present) in enumerate({"bs": 1, "bt": 0, "fj": 0, "ka": 1, "mx": 0, "pf": 0}.items()):
        face = SPECIES_COLOURS[code] if present else PALE
        axis.add_patch(Rectangle((x + 4.2 + 1.6 * i, y - 2.4), 1.5, 2, facecolor=face, edgecolor=INK, linewidth=0.7))
        _text(axis, x + 4.95 + 1.6 * i, y - 1.4, str(present), 7.5, color="white" if present else INK)
