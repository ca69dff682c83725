"""Table 14: miss rates and their bound, against counts worked by hand and an independent reference."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad

from phoebi_lib.studies import label_noise

CODES = ("a", "b")


def image(combination, frame, y, pred):
    line = {"combination": combination, "frame": frame, "evidence": "simulated"}
    for k, code in enumerate(CODES):
        line |= {f"y_{code}": y[k], f"pred_{code}": pred[k]}
    return line


# pure a: 1 of 4 missed; pure b: none of 2
PURE = pd.DataFrame([image("a", f, (1, 0), (int(f != 3), 1)) for f in range(4)]
                    + [image("b", f, (0, 1), (0, 1)) for f in range(2)])  # fmt: skip
# mixtures: a missed in 3 of 6, b in 1 of 6
MIXED = pd.DataFrame([image("a_b", f, (1, 1), (int(f > 1), int(f > 0))) for f in range(4)]
                     + [image("a_b_take2", f, (1, 1), (int(f > 0), 1)) for f in range(2)])  # fmt: skip
RUN = {"profile": "smoke", "dataset": "sim:smoke", "encoder": "e"}


def values(table):
    return table.set_index(["row", "column"])["value"]


def test_misses_by_hand():
    found = label_noise.misses(MIXED, CODES)
    assert len(found) == 12 and set(found["order"]) == {2}
    assert found.groupby("species")["missed"].sum().to_dict() == {"a": 3, "b": 1}
    assert set(label_noise.misses(PURE, CODES)["order"]) == {1}


def test_table_14_by_hand():
    found = values(label_noise.table_14(PURE, MIXED, CODES, n=50, **RUN))
    assert found["a", "fnr_pure"] == 0.25 and found["b", "fnr_pure"] == 0
    assert found["a", "fnr_mixtures"] == 0.5 and found["b", "fnr_mixtures"] == pytest.approx(1 / 6)
    assert found["a", "difference"] == 0.25 and found["b", "upper_bound"] == pytest.approx(1 / 6)
    assert found["mean", "upper_bound"] == pytest.approx((0.25 + 1 / 6) / 2)
    assert not [column for _, column in found.index if "true" in column], "without counts there is no true rate"


def test_a_species_missed_less_often_in_mixtures_has_the_bound_0():
    better = MIXED.assign(pred_a=1)
    table = label_noise.table_14(PURE, better, CODES, n=50, **RUN)
    found = values(table)
    assert found["a", "difference"] == -0.25 and found["a", "upper_bound"] == 0
    assert found["mean", "upper_bound"] == pytest.approx(1 / 12), "negative differences do not lower the mean bound"
    assert (table.loc[table["column"] == "upper_bound", "low"] >= 0).all()


def test_the_true_rate_counts_images_without_a_cell():
    absent = np.zeros((6, 2), dtype=bool)
    absent[:3, 1] = True  # three of six images show no b
    found = values(label_noise.table_14(PURE, MIXED, CODES, absent=absent, n=50, **RUN))
    assert found["a", "true_miss"] == 0 and found["b", "true_miss"] == 0.5
    assert found["mean", "true_miss"] == 0.25
    assert found["b", "difference_minus_true"] == pytest.approx(1 / 6 - 0.5)
    assert found["mean", "difference_minus_true"] == pytest.approx((0.25 + 1 / 6) / 2 - 0.25)


def test_absence_counts_only_where_the_label_names_the_species():
    codes = ("a", "b", "c")
    mixed = MIXED.assign(y_c=[1, 1, 0, 0, 1, 1], pred_c=1)
    pure = pd.concat([PURE.assign(y_c=0, pred_c=0), PURE.head(1).assign(combination="c", y_a=0, y_c=1, pred_c=1)])
    absent = np.zeros((6, 3), dtype=bool)
    absent[2:4, 2] = True  # c is absent where nobody says that it is there
    found = values(label_noise.table_14(pure, mixed, codes, absent=absent, n=20, **RUN))
    assert found["c", "true_miss"] == 0 and found["mean", "true_miss"] == 0


def test_frames_are_the_n_of_pure_cultures():
    crops = PURE.loc[PURE.index.repeat(3)].reset_index(drop=True)
    one, three = (label_noise.table_14(p, MIXED, CODES, n=50, **RUN) for p in (PURE, crops))
    for table in (one, three):
        table.set_index(["row", "column"], inplace=True)
    line = ("a", "fnr_pure")
    assert three.loc[line, "n_images"] == 12 and three.loc[line, "n_frames"] == 4
    assert three.loc[line, ["low", "high"]].tolist() == one.loc[line, ["low", "high"]].tolist()


def test_the_order_of_images_does_not_matter():
    # counts of frames stay with their images when rows are shuffled
    shuffled = MIXED.sample(frac=1, random_state=3)
    one = label_noise.table_14(PURE, MIXED, CODES, n=80, **RUN)
    two = label_noise.table_14(PURE.sample(frac=1, random_state=4), shuffled, CODES, n=80, **RUN)
    pd.testing.assert_frame_equal(one, two)


def test_intervals_hold_the_value_and_shrink_with_more_combinations():
    rng = np.random.default_rng(0)

    def mixtures(count):
        return pd.DataFrame([image(f"c{i:03d}", f, (1, 1), tuple(int(x) for x in rng.random(2) > 0.2))
                             for i in range(count) for f in range(4)])  # fmt: skip

    widths = []
    for count in (8, 128):
        table = label_noise.table_14(PURE, mixtures(count), CODES, n=400, **RUN)
        rate = table[table["column"] == "fnr_mixtures"].iloc[0]
        assert rate["low"] <= rate["value"] <= rate["high"]
        widths.append(rate["high"] - rate["low"])
    assert widths[1] < widths[0] / 2


def test_many_pure_frames_without_a_miss_leave_the_mean_little_doubt():
    def pure(frames):
        return pd.DataFrame([image(code, f, y, y) for code, y in (("a", (1, 0)), ("b", (0, 1))) for f in range(frames)])

    lows = []
    for frames in (5, 500):
        table = label_noise.table_14(pure(frames), MIXED, CODES, n=400, **RUN).set_index(["row", "column"])
        line = table.loc[("mean", "difference")]
        assert line["low"] < line["value"] == pytest.approx(1 / 3) and line["high"] <= 0.5
        lows.append(line["low"])
    assert lows[1] > lows[0]


@pytest.mark.parametrize(("hits", "n"), [(3, 20), (1, 5), (10, 10), (0, 5), (2.5, 40)])
def test_the_jeffreys_interval_holds_95_percent_of_its_posterior(hits, n):
    low, high = label_noise.binomial_interval(hits / n, n)

    def density(p):
        return p ** (hits - 0.5) * (1 - p) ** (n - hits - 0.5)

    whole, inside = (quad(density, *ends, points=None, limit=200)[0] for ends in ((0, 1), (low, high)))
    assert inside / whole == pytest.approx(0.975 if hits in (0, n) else 0.95, abs=2e-3)
    assert (low == 0) == (hits == 0) and (high == 1) == (hits == n)


def test_wrong_images_are_refused():
    with pytest.raises(ValueError, match="two or more"):
        label_noise.table_14(MIXED, MIXED, CODES, n=5, **RUN)
    with pytest.raises(ValueError, match="two or more"):
        label_noise.table_14(PURE, PURE, CODES, n=5, **RUN)
    with pytest.raises(ValueError, match="no image of b"):
        label_noise.table_14(PURE[PURE["y_a"] == 1], MIXED, CODES, n=5, **RUN)


def test_the_printed_numbers_stand_beside_ours():
    codes = ("bs", "bt")
    names = {f"{kind}_{a}": f"{kind}_{b}" for kind in ("y", "pred") for a, b in zip(CODES, codes, strict=True)}
    table = label_noise.table_14(PURE.rename(columns=names), MIXED.rename(columns=names), codes, n=20, **RUN)
    paper = table.set_index(["row", "column"])["paper"]
    assert paper["bs", "fnr_pure"] == 0.0033 and paper["mean", "upper_bound"] == 0.0487
    assert np.isnan(paper["bs", "difference"])


def dataset(folder, paths):
    return SimpleNamespace(images=folder / "images", codes=CODES, manifest=pd.DataFrame({"path": paths}))


def test_counts_follow_the_order_of_the_manifest(tmp_path):
    (tmp_path / "cells.csv").write_text("path,combination,frame,crop,b,a\nx/1.jpg,x,1,1,7,3\nx/2.jpg,x,2,1,0,4\n")
    found = label_noise.field_counts(dataset(tmp_path, ["x/2.jpg", "x/1.jpg"]))
    assert found.tolist() == [[4, 0], [3, 7]]


def test_images_that_nobody_counted(tmp_path):
    assert label_noise.field_counts(dataset(tmp_path, ["x/1.jpg"])) is None
    (tmp_path / "cells.csv").write_text("path,combination,frame,crop,a,b\nx/1.jpg,x,1,1,7,3\n")
    with pytest.raises(ValueError, match=r"no cells for x/9.jpg \(1 images"):
        label_noise.field_counts(dataset(tmp_path, ["x/1.jpg", "x/9.jpg"]))
