"""Banner, provenance and the tidy tables: what is said, what is refused, what is shown."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phoebi_lib import provenance, report, workspace
from phoebi_lib.paper import cells, printed, quoted
from phoebi_lib.parameters import parse_assignment
from phoebi_lib.provenance import data_date, evidence_of, simulation_hash
from phoebi_lib.report import add_paper, banner, book_table, compare, table, validate, write_table
from phoebi_lib.rounding import agreement, at_digits, double_rounded, equal_at_printed_digits, round_half_up

SENTENCE = "Simulated images: they test the software and teach the method; they say nothing about bacteria."
RUN = SimpleNamespace(profile="smoke", dataset="sim:smoke", encoder="efficientnet_lite0", partition="lco-1337",
                      seed=1337, compat="corrected", grid=4)  # fmt: skip


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOEBI_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("PHOEBI_DATA", str(tmp_path / "data"))


# --- banner and provenance


def test_banner_of_simulated_images_says_so_in_every_form():
    made = banner(RUN, simulation="ab" * 32)
    for form in (made.text, str(made), repr(made), made._repr_html_(), made._repr_markdown_()):
        assert SENTENCE in form
        for fact in ("smoke", "sim:smoke", "efficientnet_lite0", "simulated", "abababababab", "phoebi_lib", "numpy"):
            assert fact in form
    assert "admonition" in made._repr_html_()


def test_banner_takes_the_simulation_hash_from_the_simulator():
    from phoebi_lib.simulate import parameters_sha256

    assert parameters_sha256()[:12] in banner(RUN).text


def test_banner_of_stand_in_weights_says_both():
    rehearsal = banner(RUN, profile="rehearsal").text
    assert "Stand-in encoder weights" in rehearsal and "no number here feeds a claim" in rehearsal
    assert SENTENCE in rehearsal and "evidence: stand-in" in rehearsal


def test_banner_follows_the_pool():
    pool = SimpleNamespace(dataset_name="sim:default", encoder_name="vit", evidence="stand-in",
                           facts={"parameters_sha256": "cd" * 32})  # fmt: skip
    text = banner(RUN, pool=pool).text
    assert "sim:default" in text and "vit" in text and "stand-in" in text and "cdcdcdcdcdcd" in text


def test_banner_of_published_and_own_images():
    published = banner(RUN, dataset="phoebi6", encoder="vit_small_patch14_dinov2.lvd142m").text
    assert "Published images" in published and SENTENCE not in published and "simulation" not in published
    assert "not comparable" in banner(RUN, dataset="/somewhere/slides").text
    assert "not comparable" in banner(RUN, dataset="phoebi6").text, "the paper's images through another encoder"


def test_a_folder_of_simulated_images_is_told_by_its_record(tmp_path):
    (tmp_path / "dataset.json").write_text(json.dumps({"simulated": True, "parameters_sha256": "ef" * 32}))
    assert evidence_of(str(tmp_path)) == "simulated" and simulation_hash(str(tmp_path)) == "ef" * 32
    assert SENTENCE in banner(RUN, dataset=str(tmp_path)).text
    assert data_date(str(tmp_path))[:2] == "20" and data_date("phoebi6") == "not on this machine"


def test_banner_refuses_what_it_cannot_know():
    with pytest.raises(ValueError, match="unknown evidence 'certain'"):
        banner(RUN, evidence="certain")
    with pytest.raises(ValueError, match="made from"):
        banner()


def test_html_of_a_banner_is_escaped():
    assert "<script>" not in banner(RUN, encoder="<script>", simulation="a")._repr_html_()


def test_provenance_repeats_the_command():
    values = {"profile": "default", "dataset": "sim:smoke", "seed": 1, "caps": False, "data": "my slides"}
    made = provenance.provenance("05_held_out", values, "simulated", {"source": "ab" * 32, "data": ""}, "sim:smoke")
    assert made["command"] == (
        "phoebi run 05_held_out --profile default -p dataset=sim:smoke -p seed=1 -p caps=false -p 'data=my slides'"
    )
    assert made["stock papermill"] == (
        "phoebi export notebooks_ipynb && papermill notebooks_ipynb/05_held_out.ipynb 05_held_out.ipynb "
        "-r profile default -r dataset sim:smoke "
        "-p seed 1 -p caps False -r data 'my slides'"
    )
    assert made["hash of source"] == "abababababab" and "hash of data" not in made
    assert len(made["simulation parameters"]) == 12 and made["python"]
    assert made["evidence"] == "simulated" and made["date of the data"] == "not on this machine"
    assert all(made.values())
    assert "date of the data" not in provenance.provenance("01", values, "exact", {})


@pytest.mark.parametrize(
    "value",
    ["a,b", "a: b", "[x]", "true", "123", "~", "2023-01-01", "a #b", '"q"', " x", "", "*a", "%x", "it's", "a|b", "é",
     1e-05, 0.5, 7, True, "sim:smoke", "/a b/c"],
)  # fmt: skip
def test_a_command_gives_its_values_back(value):
    words = shlex.split(provenance.command("05_held_out", {"profile": "smoke", "x": value}))
    assert words[:5] == ["phoebi", "run", "05_held_out", "--profile", "smoke"] and words[5] == "-p"
    (name, values) = parse_assignment(words[6])
    assert name == "x" and values == [value] and type(values[0]) is type(value)


def test_a_command_leaves_out_a_folder_that_is_not_given():
    made = provenance.command("sib_one_encoder", {"profile": "smoke", "encoder": "e", "needl": "", "bioeval": "x"})
    assert made == "phoebi run sib_one_encoder --profile smoke -p encoder=e -p bioeval=x"


def test_the_foot_of_a_page_shows_the_whole_record():
    text = provenance.foot({"command": "phoebi run a|b", "python": "3.11", "odd": "a`b``c\nd", "empty": ""})
    assert text.startswith(":::{dropdown} How this page was made\n") and text.endswith("\n:::")
    assert "| command | `phoebi run a\\|b` |\n| python | `3.11` |\n" in text
    assert "| odd | ``` a`b``c d ``` |\n| empty | `–` |\n" in text


def test_nothing_here_imports_torch():
    code = ("import sys; from phoebi_lib import label_only, paper, report, scoring; label_only.label_only(); "
            "report.banner(dataset='sim:smoke'); assert 'torch' not in sys.modules")  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# --- rounding


def test_rounding_by_hand():
    assert round_half_up(0.0825, 3) == 0.083 and round_half_up(-0.0825, 3) == -0.083 and round_half_up(2.5, 0) == 3
    assert double_rounded(0.57149, 3) == 0.572 and double_rounded(-0.08248, 3) == -0.083
    assert round_half_up(0.57149, 3) == 0.571
    assert at_digits(-0.0001, 3) == "0.000" and at_digits(-0.0001, 3, sign=True) == "+0.000"
    assert at_digits(0.0546, 3, sign=True) == "+0.055"
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError):
            round_half_up(bad, 3)


def test_agreement_is_honest_about_double_rounding():
    assert agreement(0.57149, 0.572, 3) == "equal after double rounding"
    assert agreement(0.57149, 0.571, 3) == "equal"
    assert agreement(0.57149, 0.573, 3) == agreement(0.57149, 0.570, 3) == "different"
    assert not equal_at_printed_digits(0.57149, 0.572, 3)
    assert equal_at_printed_digits(2 / 7, 0.29, 2) and not equal_at_printed_digits(2 / 7, 0.28, 2)


@given(st.floats(-10, 10), st.integers(0, 6))
def test_a_number_equals_its_own_rounding(number, digits):
    rounded = round_half_up(number, digits)
    assert equal_at_printed_digits(number, rounded, digits)
    assert not equal_at_printed_digits(number, rounded + 1.5 * 10**-digits, digits)
    assert float(at_digits(number, digits)) == rounded


# --- the tidy table


def line(**changes):
    given = {"table": "6", "row": "ProtoMatch", "column": "heldout_f1", "value": 0.7, "low": 0.6, "high": 0.8,
             "evidence": "simulated", "profile": "smoke", "dataset": "sim:smoke", "encoder": "lite0",
             "partition": "lco-1337", "seed": 1337}  # fmt: skip
    return {**given, **changes}


def test_a_table_has_the_schema_and_survives_a_round_trip():
    frame = table([line(), line(column="heldout_macro_f1", value=math.nan, low=math.nan, high=math.nan, evidence="",
                                missing="needs the published images")])  # fmt: skip
    assert tuple(frame.columns) == report.COLUMNS
    path = write_table(frame, "table06")
    assert path == workspace.results_dir() / "tables" / "table06.csv"
    pd.testing.assert_frame_equal(table(pd.read_csv(path)), frame)
    assert [p.name for p in path.parent.iterdir()] == ["table06.csv"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line(evidence="certain")], "unknown evidence"),
        ([line(evidence="")], "unknown evidence"),
        ([line(value=math.nan)], "no number and no reason"),
        ([line(value=math.nan, evidence="", missing="later")], "reasons for a missing number"),
        ([line(missing="needs the published images")], "a number and a reason"),
        ([line(value=math.nan, missing="needs the published images")], "evidence without a number"),
        ([line(), line(value=0.1, low=0.0)], "as another line"),
        ([line(low=0.9)], "upside down"),
        ([line(low=math.nan)], "two ends"),
        ([line(value=math.inf)], "infinite"),
        ([line(row="")], "needs a row"),
        ([line(colour="red")], "unknown: \\['colour'\\]"),
        ([line(paper=0.7), line(column="em", value=0.3, low=0.1, paper=0.3)], "printed number stands"),
    ],
)
def test_an_unsound_table_is_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        table(lines)


def test_each_key_tells_lines_apart():
    for key in report.KEYS:
        other = 1338 if key == "seed" else "other"
        assert len(table([line(), line(**{key: other})])) == 2


def test_exact_numbers_may_equal_the_printed_ones():
    lines = [line(paper=0.7), line(column="em", value=0.3, low=0.1, paper=0.3)]
    assert len(validate(table([{**given, "evidence": "exact"} for given in lines]))) == 2


def test_a_missing_column_is_refused():
    with pytest.raises(ValueError, match="missing: \\['paper'\\]"):
        validate(table([line()]).drop(columns="paper"))


def test_paper_numbers_come_from_the_printed_table():
    rows = {"ProtoMatch": "ProtoMatch (proto match), closed-form", "range": "Image-level e2e (Tab. 3, range)"}
    lines = [line(), line(column="heldout_f1_margin"), line(column="spread"), line(column="heldout_f1_std"),
             line(row="range", column="heldout_f1_low"), line(row="SomethingElse")]  # fmt: skip
    frame = add_paper(table(lines), 6, rows)
    assert list(frame["paper"].fillna(-1)) == [0.683, 0.029, -1, 0.016, 0.44, -1]
    assert list(frame["digits"].fillna(-1)) == [3, 3, -1, 3, 2, -1]
    assert (frame["value"] == 0.7).all()
    with pytest.raises(ValueError, match="closest is 'ProtoMatch \\(proto match\\), closed-form'"):
        add_paper(frame, 6, {"ProtoMatch": "ProtoMatch (proto match), closedform"})


def test_margins_of_table_8_are_over_the_constant_on_the_same_images():
    lines = [line(table="8", column=f"{name}_margin") for name in ("per_sample_f1", "macro_f1", "exact_match")]
    frame = add_paper(table(lines), 8, {"ProtoMatch": "ProtoMatch (proto match)"})
    eight, constant = printed(8).iloc[1], printed(3).iloc[0]
    expected = [eight["per_sample_f1"] - constant["random_f1"], eight["macro_f1"] - constant["random_macro_f1"],
                eight["exact_match"] - constant["random_em"]]  # fmt: skip
    assert np.allclose(frame["paper"], expected)


def test_comparison_never_subtracts_simulated_from_printed():
    lines = [line(evidence=kind, row=kind, paper=0.683, digits=3) for kind in report.EVIDENCE]
    shown = compare(table(lines)).set_index("row")
    assert list(shown) == ["quantity", "ours", "[low, high]", "paper", "difference"]
    for kind in report.EVIDENCE:
        assert shown.loc[kind, "difference"] == ("+0.017" if kind in ("exact", "paper") else "not comparable")
        assert shown.loc[kind, ["ours", "[low, high]", "paper"]].tolist() == ["0.700", "[0.600, 0.800]", "0.683"]


def test_comparison_shows_margins_beside_their_numbers():
    frame = table([line(paper=0.683, digits=3),
                   line(column="heldout_f1_margin", value=0.05, low=-0.01, high=0.1, paper=0.029, digits=3),
                   line(row="AllPresent")])  # fmt: skip
    shown = compare(frame, headings={"heldout_f1": "Held-out F1"})
    assert shown["quantity"].tolist() == ["Held-out F1"] * 2
    names = ["margin, ours", "[low, high] of margin", "margin, paper"]
    assert shown.loc[0, names].tolist() == ["+0.050", "[-0.010, +0.100]", "+0.029"]
    assert shown.loc[1, names].tolist() == ["–"] * 3


def test_comparison_shows_reasons_digits_and_what_tells_runs_apart():
    frame = table([line(value=0.57149, low=math.nan, high=math.nan, paper=0.572, digits=3, evidence="exact"),
                   line(value=math.nan, low=math.nan, high=math.nan, evidence="", partition="lco-1338",
                        missing="weights not on this machine")])  # fmt: skip
    shown = compare(frame)
    assert shown["row"].tolist() == ["ProtoMatch · lco-1337", "ProtoMatch · lco-1338"]
    assert shown["difference"].tolist() == ["-0.001 (the printed digit comes from rounding twice)", "–"]
    assert shown["ours"].tolist() == ["0.571", "weights not on this machine"]
    assert (shown != "").all(axis=None)


def test_book_table_has_no_empty_cell():
    path = book_table(pd.DataFrame({"row": ["a, b"], "ours": ["0.7"]}), "table06")
    assert path.name == "table06.display.csv" and path.read_text() == 'row,ours\n"a, b",0.7\n'
    for bad in ("", " ", None, math.nan):
        with pytest.raises(ValueError, match="line 1 of column 'ours' is empty"):
            book_table(pd.DataFrame({"ours": ["0.7", bad]}), "table06")
    with pytest.raises(ValueError, match="no lines"):
        book_table(pd.DataFrame({"ours": []}), "table06")


def test_a_table_cannot_be_written_elsewhere():
    for name in ("../x", "a/b", "", ".hidden"):
        with pytest.raises(ValueError, match="plain file name"):
            write_table(table([line()]), name)


def test_a_failed_write_leaves_the_old_table(monkeypatch):
    path = write_table(table([line()]), "table06")
    before = path.read_bytes()

    def fail(self, target, **_):
        target.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    with pytest.raises(OSError, match="disk full"):
        write_table(table([line(value=0.75)]), "table06")
    assert path.read_bytes() == before and len(list(path.parent.iterdir())) == 1


def test_printed_cells_can_all_stand_in_a_comparison():
    for n in (3, 6, 8, 10, 20):
        names = cells(n)
        frame = table([line(table=str(n), row=row, column=column) for row, column in names[["row", "column"]].values])
        filled = add_paper(frame, n)
        assert (filled["paper"].fillna(-9).to_numpy() == names["value"].fillna(-9).to_numpy()).all()
        assert (compare(filled)["difference"] != "").all()


def test_numbers_of_the_running_text_stand_beside_ours():
    """Value, spread and named field; a number of Table 6 stays; a line that is not there is a mistake in the map."""
    lines = [
        {"row": "r", "column": column, "value": 0.5, "evidence": "simulated"} for column in ("f1", "f1_std", "low", "x")
    ]
    frame = report.table(lines, table="t").assign(paper=[np.nan, np.nan, np.nan, 0.25], digits=[None, None, None, 2])
    frame["digits"] = frame["digits"].astype("Int64")
    said = quoted().set_index("id")
    spread = said[said["std"].notna()].index[0]
    ranged = said[said["low"].notna()].index[0]
    found = report.add_quoted(frame, {("r", "f1"): spread, ("r", "low"): (ranged, "low")}).set_index("column")
    expected = [said.loc[spread, "value"], said.loc[spread, "std"], said.loc[ranged, "low"], 0.25]
    assert found["paper"].tolist() == expected
    assert found["digits"].tolist() == [said.loc[spread, "digits"]] * 2 + [said.loc[ranged, "digits"], 2]
    assert (found["value"] == 0.5).all() and frame["paper"].isna().sum() == 3, "the table given is left alone"
    with pytest.raises(ValueError, match="no row 'r' with a column 'f2'"):
        report.add_quoted(frame, {("r", "f2"): spread})
    with pytest.raises(KeyError):
        report.add_quoted(frame, {("r", "f1"): "no such number"})
