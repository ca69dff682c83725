"""Figures: their data is checked, not their look; and the same figure must give the same bytes."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import colors
from matplotlib import pyplot as plt

from phoebi_lib import diagrams, plots

CODES = ("bs", "bt", "fj", "ka", "mx", "pf")


@pytest.fixture(autouse=True)
def _style():
    with mpl.rc_context():
        mpl.use("agg")
        plots.set_style()
        yield
        plt.close("all")


def svg(figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


@pytest.mark.parametrize("draw", [diagrams.question, diagrams.workflow])
def test_diagrams_are_vector_and_deterministic(draw):
    first, second = svg(draw()), svg(draw())
    assert first == second
    assert b"<image" not in first
    assert b"dc:date" not in first


@pytest.mark.parametrize("draw", [diagrams.question, diagrams.workflow])
def test_diagram_text_stays_inside_the_drawing(draw):
    figure = draw()
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert 0 <= box.x0 and box.x1 <= width and 0 <= box.y0 and box.y1 <= height, text.get_text()


def test_species_colours_cover_the_classes_and_differ_in_grey_or_hue():
    assert tuple(plots.SPECIES_COLOURS) == CODES
    rgb = np.array([colors.to_rgb(c) for c in plots.SPECIES_COLOURS.values()])
    distance = np.linalg.norm(rgb[:, None] - rgb[None], axis=2)[np.triu_indices(6, 1)]
    assert distance.min() > 0.25
    assert plots.species_colour("zz") == plots.GREY


def test_set_style_refuses_unknown_formats():
    with pytest.raises(ValueError, match="jpeg"):
        plots.set_style("jpeg")
    assert mpl.rcParams["svg.hashsalt"] == "phoebi"


@pytest.mark.parametrize(("order", "expected"), [(1, 2 / 7), (4, 0.8), (5, 10 / 11), (6, 1.0)])
def test_all_present_f1_hand_worked(order, expected):
    # k species present, K = 6 called: TP = k, FP = 6 - k, FN = 0, so F1 = 2k / (2k + 6 - k)
    assert plots.all_present_f1(order) == pytest.approx(expected)
    assert plots.all_present_f1(order) == pytest.approx(2 * order / (2 * order + (6 - order) + 0))


def test_tile_count_curve_draws_points_and_the_fit():
    tiles = [1, 4, 8, 16]
    points = pd.DataFrame({"method": "ProtoMatch", "tiles": tiles, "f1": 0.6 - 0.1 / np.sqrt(tiles)})
    _, axis = plt.subplots()
    plots.tile_count_curve(axis, points, pd.DataFrame({"method": ["ProtoMatch"], "a": [0.6], "c": [0.1]}))
    curve = axis.lines[0]
    np.testing.assert_allclose(curve.get_ydata(), 0.6 - 0.1 / np.sqrt(curve.get_xdata()))
    drawn = [line for line in axis.lines if line.get_marker() == "s"]
    np.testing.assert_allclose(drawn[0].get_ydata(), points["f1"])
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1", "4", "8", "16"]


def test_order_curve_holds_the_reference_the_points_and_the_printed_numbers():
    points = pd.DataFrame({"method": ["ProtoMatch"] * 2, "order": [2, 1], "mean": [0.6, 0.3], "std": [0.1, 0.0]})
    _, axis = plt.subplots()
    plots.order_curve(axis, points=points, printed={4: 0.80, 5: 0.91})
    names = [line.get_label() for line in axis.lines]
    reference = axis.lines[names.index("all present, 2k / (k + K)")]
    np.testing.assert_allclose(reference.get_ydata(), 2 * reference.get_xdata() / (reference.get_xdata() + 6))
    printed = axis.lines[names.index("printed in the paper")]
    np.testing.assert_allclose(printed.get_ydata(), [0.80, 0.91])
    assert [text.get_text() for text in axis.get_legend().get_texts()][-1] == "ProtoMatch"


def test_combination_matrix_places_each_species_in_its_row_and_sorts_by_order():
    combinations = {"bs_ka": ("bs", "ka"), "pf": ("pf",), "bs_bt_mx": ("bs", "bt", "mx")}
    figure = plots.combination_matrix(combinations, CODES, held_out=["pf"])
    axis = figure.axes[0]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["pf", "bs_ka", "bs_bt_mx"]
    cells = {(int(x), CODES[int(y)]) for scatter in axis.collections for x, y in scatter.get_offsets()}
    assert cells == {(0, "pf"), (1, "bs"), (1, "ka"), (2, "bs"), (2, "bt"), (2, "mx")}
    assert axis.get_xticklabels()[0].get_fontweight() == "bold"
    with pytest.raises(ValueError, match="bs_zz"):
        plots.combination_matrix(combinations, CODES, held_out=["bs_zz"])


def test_gallery_shows_every_picture_unchanged():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (3, 8, 10), dtype=np.uint8) for _ in range(5)]
    figure = plots.gallery(images, ["bs one", "bt", "fj", "ka", "mx"], columns=3, colour=True)
    shown = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    assert len(shown) == 5
    for image, array in zip(images, shown, strict=True):
        np.testing.assert_array_equal(np.asarray(array), image.transpose(1, 2, 0))
    assert figure.axes[0].get_title(loc="left") == "bs one"
    with pytest.raises(ValueError, match="0 images"):
        plots.gallery([], [])


def test_scale_bar_length():
    _, axis = plt.subplots()
    plots.show_image(axis, np.zeros((50, 400), np.uint8))
    plots.scale_bar(axis, um_per_pixel=0.1, length_um=10)
    x = axis.lines[0].get_xdata()
    assert x[1] - x[0] == pytest.approx(100)


def test_bars_with_reference_draws_values_and_reference():
    table = pd.DataFrame({"ProtoMatch": [0.5, 0.6], "ChannelGroup": [0.7, 0.4]}, index=["bs", "ka"])
    _, axis = plt.subplots()
    plots.bars_with_reference(axis, table, reference=pd.Series({"ka": 0.3, "bs": 0.2}), ylabel="F1")
    assert sorted(round(p.get_height(), 6) for p in axis.patches) == [0.4, 0.5, 0.6, 0.7]
    levels = [segment[0][1] for segment in axis.collections[0].get_segments()]
    assert levels == [0.2, 0.3]


def test_frame_with_crops_and_crop_comparison_show_the_right_pixels():
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (3, 40, 60), dtype=np.uint8)
    square = np.array([(0, 0), (9, 0), (9, 9), (0, 9)])
    figure = plots.frame_with_crops(image, [square, square + 5], [image[:, :10, :10], image[:, 5:15, 5:15]])
    assert [len(axis.patches) for axis in figure.axes] == [2, 0, 0]
    np.testing.assert_array_equal(figure.axes[2].images[0].get_array(), image[:, 5:15, 5:15].transpose(1, 2, 0))

    corners = [(0, 0), (0, 30), (20, 0), (20, 30)]
    figure = plots.crop_comparison(image, corners, 20)
    shown = [axis.images[0].get_array() for axis in figure.axes if axis.images][1:]
    for (y, x), crop in zip(corners, shown, strict=True):
        np.testing.assert_array_equal(crop, image[:, y : y + 20, x : x + 20].transpose(1, 2, 0))
    histogram = next(axis for axis in figure.axes if axis.lines)
    assert len(histogram.lines) == 4
    for line in histogram.lines:
        assert line.get_ydata().sum() * 8 == pytest.approx(1)
