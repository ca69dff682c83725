"""Sliders for rendered pages, which have no kernel: a range input that switches between pictures drawn beforehand.

The pictures travel inside the page, so a page needs no other file. ``book/assets/phoebi.js`` moves them; without it (a
browser without scripts, a notebook server) the picture in the middle is shown and the input stays hidden.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Slider:
    """Pictures of one quantity at several of its values; it shows itself in a notebook as HTML.

    ``values`` are the values as text, ``texts`` say in words what each picture shows, ``pictures`` are SVG files.
    """

    name: str
    label: str
    caption: str
    values: tuple[str, ...]
    texts: tuple[str, ...]
    pictures: tuple[bytes, ...]
    start: int

    def __repr__(self) -> str:
        return f"{self.label}: {len(self.values)} pictures, {self.values[0]} to {self.values[-1]}"

    def _repr_html_(self) -> str:
        stops = [
            {"value": value, "text": text, "src": f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"}
            for value, text, picture in zip(self.values, self.texts, self.pictures, strict=True)
        ]
        shown, name, label = stops[self.start], f"slider-{self.name}", html.escape(self.label)
        value, text = html.escape(shown["value"]), html.escape(shown["text"])
        # inside a script element only "<" could end it
        data = json.dumps(stops, ensure_ascii=False).replace("<", "\\u003c")
        return (
            f'<figure class="phoebi-slider" role="group" aria-label="{label}: slider with pictures">\n'
            f'<p class="phoebi-slider-control" hidden><label for="{name}">{label}: <span>{value}</span></label>\n'
            f'<input type="range" id="{name}" min="0" max="{len(stops) - 1}" step="1" value="{self.start}" '
            f'aria-valuetext="{value}" autocomplete="off"></p>\n'
            f'<img src="{shown["src"]}" alt="{text}">\n'
            f'<p class="phoebi-slider-static">Shown at {label} {value}. In the rendered book, with scripts, a slider '
            f"moves it.</p>\n"
            f"<figcaption>{html.escape(self.caption)}</figcaption>\n"
            f'<script type="application/json">{data}</script>\n</figure>\n'
        )


def slider(
    draw: Callable[[Any], Figure], values: Sequence[Any], *, name: str, label: str, caption: str, form: str = "{:g}"
) -> Slider:
    """Draw ``draw(value)`` for each of ``values`` and return them as a slider for a rendered page.

    Args:
        draw: returns a figure whose titles say what it shows; they become the picture's alternative text.
        values: at least two, in the order of the slider; the one in the middle is shown first.
        name: a name without spaces, used once on a page.
        label: what is moved, such as "threshold".
        caption: one or two sentences under the picture.
        form: how a value is printed.

    Raises:
        ValueError: fewer than two values, two that print alike, a name with other than letters, digits and hyphens, or
            a picture without a title or with that of another one, which could not be told apart without seeing them.
    """
    values = tuple(values)
    try:
        printed = tuple(form.format(value) for value in values)
    except (ValueError, TypeError) as error:
        text = f"slider {name!r}: values cannot be printed as {form!r} ({error}); pass form='{{}}'"
        raise ValueError(text) from error
    if len(printed) < 2 or len(set(printed)) < len(printed):
        raise ValueError(f"slider {name!r}: expected two values or more that print differently, found {printed}")
    if not (name.isascii() and name.replace("-", "").isalnum()):
        raise ValueError(f"slider name {name!r}: expected letters, digits and hyphens")
    texts, pictures = [], []
    for value in values:
        figure = draw(value)
        if not isinstance(figure, Figure):
            raise TypeError(f"slider {name!r}: draw must return a Matplotlib figure; found {type(figure).__name__}")
        titles = [axis.get_title(loc=loc) for axis in figure.axes for loc in ("left", "center", "right")]
        texts.append("; ".join(", ".join(title.split("\n")) for title in titles if title.strip()))
        stream = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": name}):  # else ids inside the picture are random
            figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
        pictures.append(stream.getvalue())
        plt.close(figure)
    if "" in texts or len(set(texts)) < len(texts):
        raise ValueError(f"slider {name!r}: give each picture a title of its own, which says what it shows: {texts}")
    return Slider(name, label, caption, printed, tuple(texts), tuple(pictures), len(printed) // 2)
