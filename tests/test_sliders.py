"""A slider of a rendered page: pictures drawn beforehand, said in words, with one of them as the static fallback."""

import json
import re

import matplotlib.pyplot as plt
import pytest

from phoebi_lib import sliders, workspace

FACTS = {"name": "cut", "label": "threshold", "caption": "A cut & its cost."}


def draw(value):
    figure, axis = plt.subplots(figsize=(2, 1))
    axis.set(title=f"cut at {value}\nrecall {1 - value}", xlim=(0, 1))
    axis.axvline(value)
    return figure


@pytest.fixture(scope="module")
def page():
    return sliders.slider(draw, [0.0, 0.25, 0.5], form="{:.2f}", **FACTS)._repr_html_()


def stops(page):
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)


def test_there_is_a_picture_and_a_text_for_each_value(page):
    found = stops(page)
    assert [stop["value"] for stop in found] == ["0.00", "0.25", "0.50"]
    assert [stop["text"] for stop in found] == [f"cut at {v}, recall {1 - v}" for v in (0.0, 0.25, 0.5)]
    assert len({stop["src"] for stop in found}) == 3
    assert 'min="0" max="2" step="1" value="1"' in page


def test_without_a_script_the_middle_picture_stands_and_the_input_is_hidden(page):
    (image,) = re.findall(r"<img[^>]*>", page)
    assert stops(page)[1]["src"] in image and 'alt="cut at 0.25, recall 0.75"' in image
    assert '<p class="phoebi-slider-control" hidden>' in page and "Shown at threshold 0.25" in page


def test_the_input_has_a_label_and_a_value_in_words(page):
    assert '<label for="slider-cut">threshold: <span>0.25</span></label>' in page
    assert 'id="slider-cut"' in page and 'aria-valuetext="0.25"' in page and "A cut &amp; its cost." in page
    assert 'role="group" aria-label="threshold: slider with pictures"' in page


def test_the_same_figure_gives_the_same_bytes_and_is_closed(page):
    before = plt.get_fignums()
    assert sliders.slider(draw, [0.0, 0.25, 0.5], form="{:.2f}", **FACTS)._repr_html_() == page
    assert plt.get_fignums() == before


def test_no_text_ends_the_script_or_an_attribute():
    def rude(value):
        figure = draw(value)
        figure.axes[0].set_title(f'{value} </script> "x" <b>')
        return figure

    page = sliders.slider(rude, [1, 2], **{**FACTS, "caption": "<i>", "label": 'a "b"'})._repr_html_()
    assert page.count("</script>") == 1 and stops(page)[0]["text"] == '1 </script> "x" <b>'
    assert "<b>" not in page.split("<script")[0] and "<i>" not in page and 'aria-label="a &quot;b&quot;:' in page


def test_values_may_come_one_by_one():
    assert len(stops(sliders.slider(draw, (value / 4 for value in range(3)), **FACTS)._repr_html_())) == 3


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"values": [1]}, "two values or more"),
        ({"values": [0.101, 0.102], "form": "{:.1f}"}, "print differently"),
        ({"name": "two words"}, "letters, digits and hyphens"),
        ({"draw": lambda value: plt.figure()}, "a title of its own"),
        ({"draw": lambda value: draw(0)}, "a title of its own"),
        ({"values": ["a", "b"]}, "cannot be printed as '{:g}'"),
        ({"draw": lambda value: None}, "must return a Matplotlib figure; found NoneType"),
    ],
)
def test_what_could_not_be_used_is_refused(changes, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        sliders.slider(**{"draw": draw, "values": [0.1, 0.2], **FACTS, **changes})


def test_the_script_and_the_pages_agree_on_names_and_the_script_is_short(page):
    text = (workspace.project() / "book" / "assets" / "phoebi.js").read_text()
    assert len(text.splitlines()) <= 100
    for name in re.findall(r'"\.(phoebi-[a-z-]+)"', text):
        assert name in page, f"phoebi.js looks for {name}, which no slider has"
