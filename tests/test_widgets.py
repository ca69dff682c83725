"""Each slider has a static twin: both are drawn by the same function."""

import matplotlib.pyplot as plt
import numpy as np

from phoebi_lib import widgets

SCORES = np.array([0.1, 0.2, 0.3, 0.4])
PRESENT = np.array([0, 1, 0, 1])


def test_the_figure_states_precision_and_recall_of_the_cut():
    figure = widgets.threshold_figure(SCORES, PRESENT, [0.2, 0.35], "ka")
    titles = [axis.get_title() for axis in figure.axes]
    # > 0.2 calls 0.3 (absent) and 0.4 (present): precision 1/2, recall 1/2; > 0.35 calls 0.4 alone
    assert titles == ["threshold 0.200\nprecision 0.50, recall 0.50", "threshold 0.350\nprecision 1.00, recall 0.50"]
    plt.close(figure)


def test_a_cut_above_every_score_calls_nothing():
    figure = widgets.threshold_figure(SCORES, PRESENT, [0.9], "ka")
    assert figure.axes[0].get_title().endswith("precision 0.00, recall 0.00")
    plt.close(figure)


def test_moving_the_slider_draws_at_the_new_value():
    drawn = []

    def draw(value):
        drawn.append(value)
        return plt.figure()

    box = widgets.explorer(draw, [0.1, 0.2, 0.3], "threshold")
    slider = box.children[0]
    assert slider.value == 0.2
    slider.value = 0.3
    assert drawn[-1] == 0.3
