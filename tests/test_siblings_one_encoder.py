"""The table of four benchmarks: floors, shares gained, one column per encoder; shared parts of the siblings."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from phoebi_lib import cli
from phoebi_lib.provenance import STAND_IN
from phoebi_lib.siblings import drawing, embedding, fixtures, one_encoder, printed, run, start, tables, vectors

LITE, CONTROL = "efficientnet_lite0", "efficientnet_lite0_untrained"


def lines(encoder, value):
    keys = {"benchmark": "bioeval", "task": "t", "variant": "paper", "floor": 0.5, "n_images": 4, "encoder": encoder}
    return pd.DataFrame([
        {**keys, "metric": "accuracy, all", "value": value},
        {**keys, "metric": "Fisher ratio", "value": 2.0, "floor": np.nan},
        {**keys, "metric": "F1, class mean", "benchmark": "needl", "variant": "honest", "value": 0.25},
        {**keys, "metric": "F1, class mean", "benchmark": "needl", "variant": "oracle", "value": 1.0},
    ])  # fmt: skip


def test_gained_by_hand():
    table = lines(LITE, 0.75)
    assert one_encoder.gained(table).tolist()[:1] == [0.5] and np.isnan(one_encoder.gained(table)[1])
    assert one_encoder.gained(table)[2] == -0.5 and one_encoder.gained(table)[3] == 1.0
    assert one_encoder.gained(table.assign(floor=1.0)).isna().all(), "nothing to gain"


def test_main_lines_leave_out_oracle_thresholds_and_what_has_no_floor():
    assert one_encoder.main_lines(lines(LITE, 0.75))["metric"].tolist() == ["accuracy, all", "F1, class mean"]
    assert one_encoder.main_lines(lines(LITE, 0.75))["variant"].tolist() == ["paper", "honest"]


def test_side_by_side_has_a_column_for_each_encoder_and_keeps_order():
    table = pd.concat([lines(LITE, 0.75), lines(CONTROL, 0.5)])
    wide = one_encoder.side_by_side(table)
    assert wide.shape == (4, 2) and list(wide.columns)[0] == "EfficientNet-Lite0"
    assert [key[2] for key in wide.index] == lines(LITE, 0)["metric"].tolist()
    assert wide.iloc[0].tolist() == [0.75, 0.5]


def test_phoebis_lines_are_f1_over_the_constant():
    rows = pd.DataFrame({"part": ["test", "test", "val"], "method": "LinearProbe", "combination": ["a", "a_b", "a"],
                         "y_a": 1, "y_b": [0, 1, 0], "pred_a": 1, "pred_b": 0})  # fmt: skip
    every = rows.assign(method="AllPresent", pred_b=1)
    found = one_encoder.phoebi({LITE: pd.concat([every, rows])}, "lco-1337", ("a", "b"))
    assert found["metric"].tolist() == ["per-sample F1, LinearProbe"] and found["task"][0] == "held-out combinations"
    assert found["value"][0] == pytest.approx((1 + 2 / 3) / 2) and found["floor"][0] == pytest.approx((2 / 3 + 1) / 2)
    assert found["n_images"][0] == 2


def test_an_unknown_benchmark_is_named():
    with pytest.raises(ValueError, match="unknown benchmark mushrooms"):
        one_encoder.siblings(None, [], {"mushrooms": "x"})
    with pytest.raises(ValueError, match="known: fungitastic, needl, bioeval"):
        printed("mushrooms")
    with pytest.raises(ValueError, match="known: fungitastic, needl, bioeval"):
        start("mushrooms")


@pytest.mark.parametrize("name", one_encoder.EVALUATE)
def test_printed_numbers_are_sound(name):
    table = printed(name)
    assert table["value"].notna().all() and (table[["table", "row", "column", "source"]] != "").all(axis=None)
    assert not table.duplicated(["table", "row", "column", "source"]).any()
    assert set(table["source"]) <= {"paper", "code", "project page", "derived", "README"}


@pytest.mark.parametrize(
    ("given", "message"),
    [({"data": "nowhere"}, "'nowhere' is no folder"), ({"seed": True}, "seed must be an int"), ({"seed": -1}, "seed"),
     ({"encoder": "nothing"}, "nothing"), ({"profile": "huge"}, "unknown profile 'huge'")],
)  # fmt: skip
def test_parameters_of_a_page_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        start("needl", **given)


def test_the_banner_says_what_the_pictures_are(tmp_path):
    assert fixtures.STATEMENT in start("needl").banner().text
    rehearsed = start("needl", profile="rehearsal")
    assert rehearsed.evidence == "stand-in" and STAND_IN in rehearsed.banner().text
    assert STAND_IN not in start("needl").banner().text and start("needl").evidence == "simulated"
    own = start("needl", data=str(tmp_path))
    assert run.REAL in own.banner().text and own.evidence == "user" and own.root == tmp_path


def test_a_fixture_is_made_whole_and_made_again_by_another_version(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOEBI_DATA", str(tmp_path))
    shown = CliRunner().invoke(cli.main, ["data", "simulate", "--siblings"])
    assert shown.exit_code == 0, shown.output
    for name in one_encoder.EVALUATE:
        folder = tmp_path / "siblings" / f"synthetic_{name}"
        assert str(folder) in shown.output
        note = json.loads((folder / fixtures.NOTE).read_text())
        assert note["statement"] == fixtures.STATEMENT
    stamp = (folder / fixtures.NOTE).stat().st_mtime_ns
    assert fixtures.fixture(name) == folder and (folder / fixtures.NOTE).stat().st_mtime_ns == stamp
    (folder / fixtures.NOTE).write_text(json.dumps({**note, "made_by": "another"}))
    fixtures.fixture(name)
    assert json.loads((folder / fixtures.NOTE).read_text()) == note
    assert not list(folder.parent.glob(".synthetic_*-*")), "no half-made folder is left"


def test_pictures_differ_within_a_class_and_repeat_with_the_seed():
    look, other = drawing.looks(5)[:2]
    first, second = (drawing.picture(look, np.random.default_rng(seed)) for seed in (0, 1))
    assert (first != second).any() and (first == drawing.picture(look, np.random.default_rng(0))).all()
    assert len(set(drawing.looks(40))) == 40 and drawing.looks(5) == drawing.looks(40)[:5]
    assert abs(first.mean((0, 1)) - drawing.picture(other, np.random.default_rng(0)).mean((0, 1))).max() > 5


def test_csv_files_are_read_whole_or_refused_by_name(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeffx,y\r\n1,\r\n\r\n".encode())
    assert tables.read_csv(path).to_dict("list") == {"x": ["1"], "y": [""]}
    typed = tables.read_csv(path, text=False)
    assert typed["x"].tolist() == [1] and typed["y"].isna().all()
    broken = {b"x,y\n1,2\n3\n": "line 3 has 1 cells, the head 2", b"x\n1,2\n": "line 2 has 2 cells", b"": "No columns",
              b"x, x,y\n1,2,3\n": "column 'x' stands twice",
              b"x\n\xf8\n": "decode", "x\n1\n".encode("utf-16"): "decode"}  # fmt: skip
    for content, reason in broken.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"a\.csv: .*{reason}.*; expected a CSV in UTF-8"):
            tables.read_csv(path)
    with pytest.raises(FileNotFoundError, match="gone.csv"):
        tables.read_csv(tmp_path / "gone.csv")
    path.write_text("x\n1\n")
    with pytest.raises(ValueError, match=r"a\.csv: the column 'y' is missing; found x"):
        tables.read_csv(path, ["x", "y"])


def test_names_of_files_tell_rows_apart_and_stay_in_their_folder():
    table = pd.DataFrame({"path": ["b/a.png", "./c.png"], "class": ["x", "y"]}, index=[7, 9])
    assert tables.keyed(table, "t.csv").to_dict("list") == {"path": ["b/a.png", "c.png"], "class": ["x", "y"]}
    for name in ("", " ", ".", "/etc/a", "../a", "b/../../a", "b\\a", "c:/a"):
        with pytest.raises(ValueError, match="t.csv: .*(leaves its folder|data row 1 is without path)"):
            tables.keyed(table.assign(path=[name, "d"]), "t.csv")
    for broken, message in ((table.assign(path=["a", "./a"]), "path given twice: a"), (table[:0], "no row"),
                            (table.assign(path=["a", None]), "data row 2 is without path"),
                            (table.assign(**{"class": ["x", ""]}), "data row 2 is without class"),
                            (table.drop(columns="class"), "'class' is missing")):  # fmt: skip
        with pytest.raises(ValueError, match=f"t.csv: .*{message}"):
            tables.keyed(broken, "t.csv", filled=["class"])
    with pytest.raises(ValueError, match="t.csv: data row 2 has class 'y'; expected one of 'x', 'z'"):
        tables.allow(table["class"], ("x", "z"), "t.csv")
    assert tables.allow(table["class"], ("x", "y"), "t.csv").tolist() == ["x", "y"]


def test_vectors_by_hand():
    X = np.array([[3.0, 4], [0, 0], [0, 2]])
    assert vectors.unit(X).tolist() == [[0.6, 0.8], [0, 0], [0, 1]]
    assert np.allclose(vectors.unit([[1e200, -1e200], [1e-200, 1e-200]]), [[0.5**0.5, -(0.5**0.5)], [0.5**0.5] * 2])
    assert vectors.class_means(X, [2, 0, 2], 4).tolist() == [[0, 0], [0, 0], [1.5, 3], [0, 0]]
    assert vectors.centred(X, X[2]).tolist() == [[3 / 13**0.5, 2 / 13**0.5], [0, -1], [0, 0]]
    centres = np.array([[5.0, 0], [0, 0], [0, 0], [0, 3]])
    index, squared = vectors.nearest(X, centres, block=2)
    assert index.tolist() == [3, 1, 3] and np.allclose(squared, [10, 0, 1]), "of equal centres the first"
    third = np.array([[1 / 3 + 1e-16, 0.0], [1 / 3, 0.0]])
    assert vectors.nearest(np.array([[1.0, 0]]), third)[0].tolist() == [0], "equal but for rounding is a tie"
    for bad, message in ((X.ravel(), r"\(N, D\)"), (X[:0], "at least one"), (X * [1, np.nan], r"rows \[0, 1, 2\]")):
        with pytest.raises(ValueError, match=message):
            vectors.unit(bad)
    with pytest.raises(ValueError, match=r"0\.\.1, got 0\.\.2"):
        vectors.class_means(X, [2, 0, 2], 2)
    with pytest.raises(ValueError, match="each of 1 rows"):
        vectors.class_means(X[:1], [2, 0, 2], 3)


def test_features_are_joined_by_key():
    table = pd.DataFrame(np.eye(3), index=["a", "b", "c"])
    assert embedding.features_of(table, ["c", "a"], "x").tolist() == [[0, 0, 1], [1, 0, 0]]
    for broken, keys, message in ((table, ["d"], "no features for 1 images, such as d"),
                                  (table.set_axis(["a", "a", "c"]), ["c"], "given twice for a"),
                                  (table.replace(1.0, np.inf), ["b"], "not finite for b")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            embedding.features_of(broken, keys, "x")


class Means:
    """An encoder of three features: the mean colour."""

    dim, img_size, stand_in, identity = 3, 8, False, {"name": "means"}

    def __init__(self):
        self.device, self.record = torch.device("cpu"), SimpleNamespace(name="means", paper_params_m=None)

    def __call__(self, tiles):
        return tiles.mean(dim=(2, 3))


def test_whole_pictures_of_any_shape_give_one_feature_each(tmp_path):
    for name, size, grey in (("wide.png", (20, 4), 40), ("tall.png", (3, 30), 200)):
        Image.new("RGB", size, (grey, 0, 255)).save(tmp_path / name)
    found = embedding.embed_files(Means(), tmp_path, ["tall.png", "wide.png"], name="x", store=tmp_path / "pools")
    assert found.index.tolist() == ["tall.png", "wide.png"]
    assert np.allclose(found.to_numpy(), [[200, 0, 255], [40, 0, 255]], atol=1e-3)
    with pytest.raises(ValueError, match="files listed twice: wide.png"):
        embedding.embed_files(Means(), tmp_path, ["wide.png", "wide.png"], name="x", store=tmp_path / "pools")
    with pytest.raises(ValueError, match="gone.png"):
        embedding.embed_files(Means(), tmp_path, ["gone.png"], name="x", store=tmp_path / "pools")
