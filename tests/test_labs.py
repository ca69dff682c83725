"""The labs: solutions pass their checks, typical mistakes get the hint they need, widgets and twins draw the same."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from phoebi_lib import lab_copies, labs, session, workspace
from phoebi_lib.labs import answers
from phoebi_lib.labs.unmixing import unit_rows
from tests import lab_world

SOURCES = lab_copies.sources()
SHARES = np.linspace(0, 1, 101)


@pytest.fixture(autouse=True)
def no_figures_left():
    before = plt.rcParams.copy()
    yield
    plt.close("all")
    plt.rcParams.update(before)


@pytest.mark.parametrize(("name", "source"), SOURCES.items())
def test_a_lab_runs_and_its_solutions_pass(name, source, monkeypatch, capsys):
    monkeypatch.setattr(session, "start", lab_world.start)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    space = {}
    for cell in lab_world.code_cells(source):
        exec(compile(cell.source, name, "exec"), space)
    printed = capsys.readouterr().out
    assert len(re.findall(r"^Exercise \d: right\. ", printed, re.MULTILINE)) == 5, printed
    assert f"Lab {name[4]}: 5 of 5 exercises solved." in printed
    assert "as in the library: False" not in printed


def leftover(z, p, q):
    return np.linalg.norm(z - SHARES[:, None] * p - (1 - SHARES[:, None]) * q, axis=1)


def raising(*_):
    raise labs.Unwritten("Exercise 1: replace the dots: write it")


def adds_in_place(level, background):
    level += 1
    return level


def by_image(combination, frame):
    mask = np.zeros(len(frame), dtype=bool)
    for name in set(combination):
        mask[np.flatnonzero(combination == name)[-3:]] = True
    return mask


# check, a typical wrong answer, and what its hint has to say
MISTAKES = [
    (labs.check_grey, ..., "dots are still there"),
    (labs.check_grey, raising, "^Exercise 1: not yet. Replace the dots"),
    (labs.check_grey, lambda p: None, "gives nothing back.*return"),
    (labs.check_grey, lambda p: ..., "replace them by the result"),
    (labs.check_grey, lambda p: p.no_such_thing, "stopped with AttributeError.*no_such_thing.*array of shape"),
    (labs.check_grey, lambda p: p.mean(axis=2), "over the width"),
    (labs.check_grey, lambda p: p.mean(axis=1), "over the height"),
    (labs.check_grey, lambda p: p.mean(axis=0).T, "wrong way round"),
    (labs.check_grey, lambda p: p[0], "red channel"),
    (labs.check_grey, lambda p: (p[0] + p[1] + p[2]) / 3, "start again at 0"),
    (labs.check_grey, lambda p: p.mean(axis=0).astype(int), "digits behind the point"),
    (labs.check_grey, lambda p: p.mean(), "shape"),
    (labs.check_grey, np.zeros((5, 7)), "function itself"),
    (labs.check_grey, lambda p: {"grey": p}, "expected numbers"),
    (labs.check_divide, lambda c, h: ([[0], [1, 2]], [3]), "cannot read this answer"),
    (labs.check_even, adds_in_place, "changes the array"),
    (labs.check_divide, lambda combination, held_out: held_out.clear() or (np.arange(len(combination)), []),
     "changes the list"),
    (labs.check_even, lambda v, b: v - b, "subtracted"),
    (labs.check_even, lambda v, b: v - b + b.mean(), "subtracted"),
    (labs.check_even, lambda v, b: v / b, "around 1"),
    (labs.check_even, lambda v, b: b / v * b.mean(), "come out dark"),
    (labs.check_even, lambda v, b: v / b * b, "old picture back"),
    (labs.check_even, lambda v, b: v * b, "brighter still"),
    (labs.check_even, lambda v, b: v * np.nan, "finite"),
    (labs.check_corners, lambda n, s, k: [round(i * n / (k - 1)) for i in range(k)], "sticks out"),
    (labs.check_corners, lambda n, s, k: [i * s for i in range(k)], "left over at the far border"),
    (labs.check_corners, lambda n, s, k: np.linspace(0, n - s, k), "no whole numbers"),
    (labs.check_corners, lambda n, s, k: [round(i * (n - s) / k) for i in range(k + 1)], "give 5 positions"),
    (labs.check_corners, lambda n, s, k: [0] * (k - 1) + [n - s], "equal"),
    (labs.check_corners, lambda n, s, k: [s + round(i * (n - 2 * s) / (k - 1)) for i in range(k)], "at the border"),
    (labs.check_cut, lambda v, c, s: [v[y : y + s, x : x + s] for x in c for y in c], "column by column"),
    (labs.check_cut, lambda v, c, s: [[v[y : y + s, x : x + s] for x in c] for y in c], "one list of 9"),
    (labs.check_cut, lambda v, c, s: [v[y : y + s, y : y + s] for y in c], "every position across"),
    (labs.check_cut, lambda v, c, s: [v[y:s, x:s] for y in c for x in c], "different sizes"),
    (labs.check_cut, lambda v, c, s: [v[y : y + s - 1, x : x + s - 1] for y in c for x in c], "9 tiles of 4 x 4"),
    (labs.check_unevenness, lambda t: t.std() / t.mean(), "single pixels"),
    (labs.check_unevenness, lambda t: t.mean(axis=(1, 2)).std(), "no unit"),
    (labs.check_unevenness, lambda t: t.mean(axis=(1, 2)), "number for each tile"),
    (labs.check_unevenness, lambda t: t.mean() / t.mean(axis=(1, 2)).std(), "infinite"),
    (labs.check_anchor, lambda X: X.mean(axis=(0, 1)), "length 0"),
    (labs.check_anchor, lambda X: X.mean(axis=0), r"pictures only; the tiles of a picture.*\(4, 8\)"),
    (labs.check_anchor, lambda X: X.mean(axis=1), "tiles of a picture only; the pictures"),
    (labs.check_anchor, lambda X: X.mean(axis=(0, 1)) / X.mean(axis=(0, 1)).sum(), "root of the sum of squares"),
    (labs.check_cosines, lambda z, P: P @ z.T, "wrong way round"),
    (labs.check_cosines, lambda z, P: np.linalg.norm(z[:, None] - P, axis=2), "distances"),
    (labs.check_cosines, lambda z, P: 1 - z @ P.T, "sign"),
    (labs.check_residual_length, lambda z, P, w: ((z - w @ P) ** 2).sum(), "square"),
    (labs.check_residual_length, lambda z, P, w: z - w @ P, "one number a feature"),
    (labs.check_residual_length, lambda z, P, w: np.linalg.norm(z - P.mean(axis=0)), "weights do not count"),
    (labs.check_residual_length, lambda z, P, w: np.linalg.norm(w @ P), "not of what it leaves"),
    (labs.check_best_share, lambda z, p, q: 1 - SHARES[leftover(z, p, q).argmin()], "second anchor"),
    (labs.check_best_share, lambda z, p, q: SHARES[leftover(z, p, q).argmax()], "leaves most over"),
    (labs.check_best_share, lambda z, p, q: leftover(z, p, q).argmin(), "place of the share"),
    (labs.check_best_share, lambda z, p, q: 0.5, "about 80%.*0.50"),
    (labs.check_best_share, lambda z, p, q: "half", "expected numbers"),
    (labs.check_unmix, lambda X, P, tau: X @ P.T, "for each tile"),
    (labs.check_unmix, lambda X, P, tau: (X @ P.T).mean(axis=1), "mean cosines"),
    (labs.check_unmix, lambda X, P, tau: soft(tau * X @ P.T).mean(axis=1), "softmax"),
    (labs.check_call, lambda s, t: s >= t, "exactly the threshold"),
    (labs.check_call, lambda s, t: s < t, "wrong side"),
    (labs.check_call, lambda s, t: s, "scores still"),
    (labs.check_precision_recall, lambda y, c: (0.4, 2 / 3), "wrong way round"),
    (labs.check_precision_recall, lambda y, c: (2, 2), "counts"),
    (labs.check_precision_recall, lambda y, c: (2 / 3, 0.9), "Precision is right, recall is not"),
    (labs.check_precision_recall, lambda y, c: 2 / 3, "Two numbers"),
    (labs.check_cost, lambda y, c, m, a: a * (y > c).sum() + m * (y < c).sum(), "exchanged"),
    (labs.check_cost, lambda y, c, m, a: (y != c).sum(), "prices do not count"),
    (labs.check_cost, lambda y, c, m, a: m * (y > c).sum(), "False alarms cost too"),
    (labs.check_cost, lambda y, c, m, a: (m * (y > c) + a * (y < c)).mean(), "per picture"),
    (labs.check_cheapest, lambda s, y, m, a, c: 1, "place of the threshold"),
    (labs.check_cheapest, lambda s, y, m, a, c: c[-1], "dearest"),
    (labs.check_cheapest, lambda s, y, m, a, c: 0.33, "not one of the candidates"),
    (labs.check_cheapest, lambda s, y, m, a, c: c[0], "its cost is"),
    (labs.check_quantile_threshold, lambda s, y, q: np.quantile(s, q), "All pictures count"),
    (labs.check_quantile_threshold, lambda s, y, q: np.quantile(s[y == 1], 1 - q), "wrong end"),
    (labs.check_quantile_threshold, lambda s, y, q: np.quantile(s[y == 0], 1 - q), "bounds the false alarms"),
    (labs.check_quantile_threshold, lambda s, y, q: np.percentile(s[y == 1], q), "counts to 100"),
    (labs.check_divide, lambda c, h: (np.isin(c, h), ~np.isin(c, h)), "wrong way round"),
    (labs.check_divide, lambda c, h: (np.ones(len(c), bool), np.isin(c, h)), "Leak.*bs_ka are in training"),
    (labs.check_divide, lambda c, h: (~contained(c, h), contained(c, h)), "Names have to be equal"),
    (labs.check_divide, lambda c, h: (~np.isin(c, h[:1]), np.isin(c, h[:1])), "Leak.*pictures of bs are in"),
    (labs.check_divide, lambda c, h: (np.flatnonzero(~np.isin(c, h))[1:], np.isin(c, h)), "bs are in no part"),
    (labs.check_divide, lambda c, h: np.isin(c, h), "Two things"),
    (labs.check_divide, lambda c, h: (1 - np.isin(c, h), 1 * np.isin(c, h)), "mask of 0 and 1 is read as row"),
    (labs.check_divide, lambda c, h: (~np.isin(c, h)[1:], np.isin(c, h)[1:]), "17 entries.*18 pictures"),
    (labs.check_divide, lambda c, h: (c not in h, c in h), "stopped with ValueError.*array of names as a whole"),
    (labs.check_divide, lambda c, h: (c != np.array(h * 2), c == np.array(h * 2)), "ValueError.*as a whole"),
    (labs.check_divide, lambda c, h: ([0, 0, 2], [18]), "stands in a part twice"),
    (labs.check_divide, lambda c, h: ([0, 1, 2], [18]), "from 0 to 17"),
    (labs.check_last_frames, by_image, "Leak: frame.*rows may be in any order"),
    (labs.check_last_frames, lambda c, f: f == f.max(), "No picture of bs is chosen"),
    (labs.check_last_frames, lambda c, f: np.isin(f, (1, 11)), "not the last one.*any order"),
    (labs.check_last_frames, lambda c, f: f != np.where(c == "bs_ka", 14, 4), "everything but"),
    (labs.check_image_f1, lambda y, c: (y == c).mean(axis=1), "share of right answers"),
    (labs.check_image_f1, lambda y, c: (y & c).sum(axis=1) / c.sum(axis=1), "precision"),
    (labs.check_image_f1, lambda y, c: (y & c).sum(axis=1) / y.sum(axis=1), "recall"),
    (labs.check_image_f1, lambda y, c: (y & c).sum(axis=0) / y.sum(axis=0), "number for each species"),
    (labs.check_image_f1, lambda y, c: 0.5, "one number for all pictures"),
    (labs.check_constant_f1, lambda k, K: k / K, "precision"),
    (labs.check_constant_f1, lambda k, K: 1, "recall"),
    (labs.check_constant_f1, lambda k, K: 2 * (k + 1) / (k + 1 + K), "off by one species"),
    (labs.check_constant_f1, lambda k, K: 2 * k / (k + 6), "species is K, and not always 6"),
    (labs.check_without, lambda Y, k: Y[:, k] == 1, "wrong side"),
    (labs.check_without, lambda Y, k: ~((Y[:, k] == 1) & (Y.sum(axis=1) == 1)), "pure cultures only"),
    (labs.check_without, lambda Y, k: Y[:, k - 1] == 0, "Leak"),
    (labs.check_without, lambda Y, k: (Y[:, k] == 0) & (Y.sum(axis=1) == 1), "dropped too"),
    (labs.check_without, lambda Y, k: np.flatnonzero(Y[:, k] == 0), "row positions"),
    (labs.check_kth_distance, lambda z, b, k: np.sort(1 - z @ b.T)[:, k].mean(), r"Off by one.*k \+ 1"),
    (labs.check_kth_distance, lambda z, b, k: np.sort(1 - z @ b.T)[:, :k].mean(), "mean of the k nearest"),
    (labs.check_kth_distance, lambda z, b, k: np.sort(z @ b.T)[:, -k].mean(), "That is a cosine"),
    (labs.check_kth_distance, lambda z, b, k: np.sort(1 - z @ b.T)[:, -k].mean(), "farthest"),
    (labs.check_kth_distance, lambda z, b, k: np.sort(1 - z @ b.T)[:, k - 1], "number for each tile"),
    (labs.check_residual, lambda X, P, W: np.linalg.norm((X - W @ P).mean(axis=1), axis=1), "tiles cancel"),
    (labs.check_residual, lambda X, P, W: np.linalg.norm(X - W @ P, axis=2), "length for each tile"),
    (labs.check_residual, lambda X, P, W: np.linalg.norm(X - W @ P, axis=1), "features are still apart"),
    (labs.check_residual, lambda X, P, W: -np.linalg.norm(X - W @ P, axis=2).mean(axis=1), "sign"),
    (labs.check_auroc, lambda u, s: (s[u == 1, None] < s[u == 0]).mean(), "wrong side"),
    (labs.check_auroc, lambda u, s: (s[u == 1, None] > s[u == 0]).mean(), "equal scores count nothing"),
    (labs.check_auroc, lambda u, s: (s[u == 1, None] >= s[u == 0]).mean(), "equal scores count whole"),
    (labs.check_auroc, lambda u, s: (s[u == 1, None] > s[u == 0]).sum(), "count of pairs"),
    (labs.check_alarm_level, np.quantile, "wrong end: 95%"),
    (labs.check_alarm_level, lambda s, q: np.percentile(s, 1 - q), "counts to 100"),
    (labs.check_alarm_level, lambda s, q: 1 - q, "level is a score"),
]


def soft(logits):
    powers = np.exp(logits)
    return powers / powers.sum(axis=-1, keepdims=True)


def contained(names, held_out):
    return np.array([any(part in name for part in held_out) for name in names])


def hint(check, *answer, capsys):
    check(*answer)
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(("check", "answer", "expected"), MISTAKES)
def test_a_typical_mistake_gets_its_hint(check, answer, expected, capsys):
    said = hint(check, answer, capsys=capsys)
    assert re.search(r"^Exercise \d: not yet\. ", said) and re.search(expected, said), said
    assert "Traceback" not in said and "\n" not in said


def test_every_check_has_at_least_three_hints_of_its_own():
    counts = pd.Series([check.__name__ for check, _, _ in MISTAKES]).value_counts()
    checks = {name for name in labs.__all__ if name.startswith("check_")} - {"check_choice"}
    assert set(counts.index) == checks and counts.min() >= 3, counts


def test_no_hint_holds_a_solution(capsys):
    cells = [cell for source in SOURCES.values() for cell in lab_world.code_cells(source)]
    solutions = [cell.source for cell in cells if "solution" in cell.metadata.get("tags", [])]
    pieces = [piece for solution in solutions for piece in lab_copies.stub(solution, "")[1]]
    assert len(pieces) > 25
    for check, answer, _ in MISTAKES:
        said = hint(check, answer, capsys=capsys)
        assert not [piece for piece in pieces if piece in said]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("bs_ka", r"into a list.*\['bs_ka'\]"),
        ([], "empty"),
        (["bs_kaa"], "closest name is 'bs_ka'"),
        (["bs_ka", "bs_ka"], "twice"),
        (["bs"], "pure cultures only"),
        (["bs", "bs_ka"], "pure culture of bs"),
        (["bs", "bs_ka", "bs_fj"], "Nothing that is left holds bs"),
        (["bs_ka", "bs_fj", "fj_ka"], "You hold out every mixture"),
        (["bs_ka", "bs_fj"], "^Exercise 1: not yet. bs would be in training alone"),
        (["bs_ka"], "right"),
    ],
)
def test_the_choice_of_combinations(chosen, expected, capsys):
    combinations = ["bs", "ka", "fj", "bs_ka", "bs_fj", "fj_ka"]
    assert re.search(expected, hint(labs.check_choice, chosen, combinations, ("bs", "fj", "ka"), capsys=capsys))


def test_progress_counts_and_the_guard_refuses(capsys, monkeypatch):
    monkeypatch.setitem(answers._SOLVED, 1, {1: True, 2: False, 3: True})
    labs.progress(1)
    assert capsys.readouterr().out == "Lab 1: 2 of 3 exercises solved. Still open: 2.\n"
    with pytest.raises(ValueError, match=r"lab 1.*\[2\]"):
        labs.require_all(1)
    labs.check_even(lambda level, background: level / background * background.mean())
    labs.require_all(1)


def test_a_check_that_fails_later_opens_the_exercise_again(capsys):
    labs.check_constant_f1(lambda k, K: 2 * k / (k + K))
    assert answers._SOLVED[4][5]
    labs.check_constant_f1(lambda k, K: 1)
    assert not answers._SOLVED[4][5]


def test_an_unwritten_exercise_shows_its_sentence_and_no_traceback():
    with pytest.raises(labs.Unwritten, match="write it") as caught:
        labs.written("Exercise 1: write it", 3, ...)
    assert caught.value._render_traceback_() == ["Exercise 1: write it"]
    labs.written("Exercise 1: write it", 3, np.zeros(2))


def test_the_slider_and_its_twin_draw_the_same_panel():
    drawn = []

    def panel(part, name, level):
        drawn.append((name, level))
        part.subplots().set_title(f"{name} {level}")

    box = labs.explorer(panel, name=["bs", "ka", "pf"], level=[1.0, 2.0])
    by_name = {control.description: control for control in box.children[:2]}
    assert by_name["name"].value == "ka" and by_name["level"].value == 2.0
    by_name["name"].value = "pf"
    assert drawn[-1] == ("pf", 2.0)
    figure = labs.twin(panel, [{"name": "bs", "level": 1.0}, {"name": "ka", "level": 2.0}])
    assert [axis.get_title() for axis in figure.axes] == ["bs 1.0", "ka 2.0"]
    with pytest.raises(ValueError, match="settings is empty"):
        labs.twin(panel, [])


def test_a_panel_counts_what_its_title_says():
    scores, present = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0, 1, 0, 1])
    figure = labs.twin(labs.cost_panel(scores, present, "ka"), [{"threshold": 0.25, "cost_of_a_miss": 5}])
    assert figure.axes[0].get_title("left") == "a miss costs 5\n1 missed, 1 false: 6"
    panel = labs.alarm_panel({"s": scores}, {"s": scores}, present, "ka")
    figure = labs.twin(panel, [{"score": "s", "false_alarms": 0.5}])
    assert figure.axes[0].get_title("left") == "s, 50% allowed\nfound 0.50, false alarms 0.50"


def test_the_share_panel_shows_what_is_left_over():
    z, p, q = unit_rows(np.random.default_rng(0), 3, 8)
    figure = labs.twin(labs.share_panel({"t": z}, {"a": p, "b": q}),
                       [{"tile": "t", "first": "a", "second": "b", "share": 0.3}])  # fmt: skip
    left = np.linalg.norm(z - 0.3 * p - 0.7 * q)
    assert figure.axes[0].get_title("left") == f"tile of t: {left:.2f} left over"


def test_few_keeps_the_first_of_each_combination():
    manifest = pd.DataFrame({"combination": ["a", "a", "b", "a", "b"]})
    assert labs.few(manifest, np.array([1, 2, 3, 4]), 1).tolist() == [1, 2]


def test_the_pages_of_the_labs_are_plain_markdown():
    """Students read them in JupyterLab, where roles and directives of the book stay raw text.

    Links to the glossary are the exception: a student copy has the word alone.
    """
    for name, source in SOURCES.items():
        text = source.read_text()
        assert not re.findall(r"\{(?!term\})[a-z-]+\}`|^:::|^```\{(?!code-cell)", text, re.MULTILINE), name
        copy = "\n".join(cell.source for cell in lab_copies.student_copy(source).cells)
        assert not re.findall(r"\{[a-z-]+\}`|^:::|^```\{", copy, re.MULTILINE), name


def test_every_widget_has_its_twin_in_the_next_cell():
    for name, source in SOURCES.items():
        cells = lab_world.code_cells(source)
        found = [i for i, cell in enumerate(cells) if "labs.explorer(" in cell.source]
        assert found, name
        for i in found:
            panel = re.search(r"labs\.explorer\(\s*(\w+),", cells[i].source)[1]
            assert re.search(rf"labs\.twin\(\s*{panel},", cells[i + 1].source), name
            assert "figure" in cells[i + 1].metadata["mystnb"], name
            assert cells[i].metadata["tags"] == ["remove-output", "nbval-ignore-output"], name


def test_the_instructors_page_names_every_lab_and_its_time():
    text = (workspace.project() / "book" / "labs_instructor.md").read_text()
    for title in lab_copies.titles().values():
        assert title.partition(": ")[2] in text, title
    assert "phoebi labs --student" in text
