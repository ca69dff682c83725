"""The printed values: every digit pinned, and the arithmetic that the paper's own numbers must obey."""

from __future__ import annotations

import hashlib
import math
import re

import numpy as np
import pandas as pd
import pytest

from phoebi_lib import paper
from phoebi_lib.paper import cells, columns, inconsistencies, printed, printed_text

SHAPES = {
    1: (4, 13), 2: (12, 11), 3: (12, 20), 4: (13, 21), 5: (9, 18), 6: (10, 22), 7: (9, 6), 8: (3, 7), 9: (3, 10),
    10: (6, 15), 11: (22, 2), 12: (6, 4), 13: (40, 3), 14: (7, 7), 15: (7, 10), 16: (8, 8), 17: (8, 5), 18: (5, 2),
    19: (3, 23), 20: (5, 10), 21: (7, 12),
}  # fmt: skip
# the first 16 digits of the SHA-256 over all cells as printed, read against the paper cell by cell
DIGESTS: dict[int | str, str] = {
    1: "af44b81b8d397444", 2: "2e73bbe965cc7d07", 3: "2de3fc67838f05db", 4: "d9981f97f15e73b8", 5: "08e88be858726070",
    6: "be1787462e3840e3", 7: "7b433f1e195b15fb", 8: "45f1940ba43838a2", 9: "2707081002e8749e",
    10: "3e58e1495ea408d4", 11: "b7b889edd2ae3188", 12: "4ca24034f47a514b", 13: "ae1668fd5ec4cd24",
    14: "50b874af05683776", 15: "b8e6d368e837e180", 16: "8012981a864ad368", 17: "a722949f43ddeb3c",
    18: "7a395110d3451758", 19: "c67be1fa91a658c5", 20: "f1b256e12ec398df", 21: "5fc0752bf8396689",
    "quoted": "69fb741b75d43b09",
}  # fmt: skip
CODES = ("bs", "bt", "fj", "ka", "mx", "pf")
HALF = 0.0005 + 1e-9  # half a unit of the third decimal


def digest(frame: pd.DataFrame) -> str:
    text = "\n".join(",".join(map(repr, row)) for row in [list(frame.columns), *frame.values.tolist()])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def text_of(name: int | str) -> pd.DataFrame:
    if isinstance(name, int):
        return printed_text(name)
    return paper._read(paper._FOLDER.parent / f"{name}.csv")[["id", "value", "std", "low", "high"]]


@pytest.mark.parametrize("name", [*SHAPES, "quoted"])
def test_no_digit_has_changed(name):
    assert digest(text_of(name)) == DIGESTS[name]


@pytest.mark.parametrize("n", paper.TABLES)
def test_shape_and_kinds(n):
    table, described = printed(n), columns(n)
    assert table.shape == SHAPES[n]
    kinds = dict(described[["column", "kind"]].itertuples(index=False))
    for column in table:
        stem, _, companion = column.rpartition("_")
        kind = kinds.get(column) or ("flag" if companion in ("bold", "dagger") else "number")
        assert column in kinds or (kinds[stem] == "number" and companion in paper.COMPANIONS)
        expected = {"number": np.float64, "flag": np.bool_}.get(kind)
        assert table[column].dtype == expected if expected else pd.api.types.is_string_dtype(table[column])
    keys = list(described.loc[described["kind"].isin(["block", "key"]), "column"])
    assert not table.duplicated(keys).any()
    assert (table[[key for key in keys if key != "block"]] != "").all(axis=None)


@pytest.mark.parametrize("n", paper.TABLES)
def test_cells_hold_every_number_once_with_its_digits(n):
    tidy, table = cells(n), printed(n)
    numbers = [c for c, kind in columns(n)[["column", "kind"]].itertuples(index=False) if kind == "number"]
    filled = sum(int((table[c].notna() | table.get(f"{c}_low", table[c]).notna()).sum()) for c in numbers)
    assert len(tidy) == filled
    assert not tidy.duplicated(["block", "row", "column"]).any()
    pairs = tidy[["value", "digits"]].dropna().values
    assert all(math.isclose(round(value, int(digits)), value) for value, digits in pairs)


def test_a_table_that_does_not_exist_is_refused():
    for n in (0, 22, "6a"):
        with pytest.raises(ValueError, match="no Table"):
            printed(n)


def test_table_6_reads_as_printed():
    table = printed(6).set_index("decoder")
    proto = table.loc["ProtoMatch (proto match), closed-form"]
    assert (proto["heldout_f1"], proto["heldout_f1_std"], proto["heldout_f1_bold"]) == (0.683, 0.016, True)
    band = table.loc["Image-level e2e (Tab. 3, range)"]
    assert math.isnan(band["heldout_f1"]) and (band["heldout_f1_low"], band["heldout_f1_high"]) == (0.44, 0.61)
    assert list(table.loc["All-present predictor (constant)"].filter(regex="f1$")) == [0.572, 0.654, 0.674, -0.083]


@pytest.mark.parametrize(("n", "val"), [(3, "in_dist_f1"), (5, "in_dist_f1"), (6, "in_dist_val_f1")])
def test_delta_is_validation_minus_held_out(n, val):
    table = printed(n).set_index("backbone" if n != 6 else "decoder")
    # three rounded numbers: at most one and a half units of the last decimal
    off = (table[val] - table["heldout_f1"] - table["delta_f1"]).abs() > 3 * HALF
    listed = [place for place in inconsistencies()["place"] if re.fullmatch(rf"Table {n}, [^,;]*, ΔF1", place)]
    assert [f"Table {n}, {name}, ΔF1" for name in table.index[off]] == listed


def test_range_row_of_table_6_is_the_range_of_table_3_except_where_listed():
    tuned = printed(3).query("block == 'fine-tuned' and not in_dist_f1_dagger")
    band = printed(6).set_index("decoder").loc["Image-level e2e (Tab. 3, range)"]
    for column, source in (("heldout_f1", "heldout_f1"), ("heldout_macro_f1", "heldout_macro_f1")):
        assert abs(band[f"{column}_low"] - tuned[source].min()) <= 0.0051
        assert abs(band[f"{column}_high"] - tuned[source].max()) <= 0.0051
    assert abs(band["in_dist_val_f1_low"] - tuned["in_dist_f1"].min()) > 0.0051
    assert abs(band["delta_f1_high"] - tuned["delta_f1"].max()) > 0.0051
    assert {"range_in_dist", "range_delta"} <= set(inconsistencies()["id"])


def test_tables_3_and_6_print_the_same_rows():
    three, six = printed(3).set_index("backbone"), printed(6).set_index("decoder")
    same = {"All-present predictor (constant)": "All-present predictor (constant)",
            "DINOv2 ViT-S/14 (PHOEBI)": "DINOv2 e2e via PHOEBI pipeline",
            "Attention MIL (Ilse et al., 2018)": "Attention MIL on frozen DINOv2 (Ilse et al., 2018)"}  # fmt: skip
    for ours, theirs in same.items():
        assert list(three.loc[ours, ["in_dist_f1", "heldout_f1", "heldout_macro_f1", "delta_f1"]]) == list(
            six.loc[theirs, ["in_dist_val_f1", "heldout_f1", "heldout_macro_f1", "delta_f1"]]
        )


def test_constant_row_as_known():
    row = printed(3).iloc[0]
    assert list(row[["random_f1", "random_macro_f1", "random_em"]]) == [0.588, 0.607, 0.025]
    assert list(row[["in_dist_f1", "heldout_f1", "heldout_macro_f1", "heldout_em"]]) == [0.572, 0.654, 0.674, 0.111]


def test_macro_f1_of_table_4_is_the_mean_of_its_species():
    table = printed(4)
    assert ((table[[f"f1_{code}" for code in CODES]].mean(axis=1) - table["macro_f1"]).abs() <= 2 * HALF).all()


def test_params_are_the_same_in_tables_3_4_5_and_7():
    keys = {3: "backbone", 4: "encoder", 5: "backbone"}
    three, four, five = (printed(n).set_index(key)["params_m"] for n, key in keys.items())
    assert (five == three[five.index]).all()
    shared = four.index.intersection(five.index)
    assert len(shared) == 9 and (four[shared] == five[shared]).all()
    seven = printed(7)
    assert set(seven["params_m"].dropna()) == {four["DINOv2 ViT-S/14"], four["Prov-GigaPath ViT-G"]}
    assert round(1135 / 22.1) == 51


def test_differences_of_table_7():
    blocks = {name: block.set_index("decoder") for name, block in printed(7).groupby("block")}
    for column in ("in_dist_val_f1", "heldout_f1"):
        difference = blocks["Prov-GigaPath ViT-G"][column] - blocks["DINOv2 ViT-S/14"][column]
        assert ((difference - blocks["difference"][column]).abs() <= HALF + 1e-4).all()
    proto = blocks["DINOv2 ViT-S/14"].loc["ProtoMatch"]
    init = printed(6).set_index("decoder").loc["ProtoMatch (init only ≡ closed-form)"]
    assert abs(proto["in_dist_val_f1"] - init["in_dist_val_f1"]) <= HALF
    assert abs(proto["heldout_f1"] - init["heldout_f1"]) <= HALF


def test_clean_columns_of_table_9_repeat_tables_8_and_16():
    nine, eight = printed(9).set_index("decoder"), printed(8)
    eight.index = eight["method"].str.split().str[0]
    assert (nine["clean_with"] == eight["per_sample_f1"][nine.index]).all()
    arms = printed(16).query("block.str.startswith('Illumination')").set_index("variant")
    for column, decoder in (("simplex_unmix_f1", "SimplexUnmix"), ("proto_match_f1", "ProtoMatch")):
        assert list(arms[column]) == [nine.loc[decoder, "clean_without"], nine.loc[decoder, "clean_with"]]


def test_corrected_arms_of_table_9_are_table_17_cut_at_zero():
    nine, seventeen = printed(9).set_index("decoder"), printed(17).set_index("corruption")
    names = {"condenser_with": "Condenser gradient", "vignetting_with": "Vignetting", "lamp_with": "Lamp intensity"}
    decoders = {"SimplexUnmix": "simplex_unmix", "ProtoMatch": "proto_match", "ChannelGroup": "channel_group"}
    cut = 0
    for column, corruption in names.items():
        for decoder, there in decoders.items():
            assert nine.loc[decoder, column] == min(0.0, seventeen.loc[corruption, there])
            cut += seventeen.loc[corruption, there] > 0
    assert cut == inconsistencies()["id"].str.startswith("table9_table17_").sum() == 3


def test_one_cluster_makes_accuracy_equal_recall():
    table = printed(10)
    one = table[table["n_proto"] == 1.0]
    assert len(one) == 2 and (one["cluster_acc"] == one["recall"]).all() and (one["purity"] == 1.0).all()
    assert (table["cluster_acc"] <= table["recall"] + 1e-9).all()


def test_coverage_tables_add_up():
    twelve, two = printed(12), printed(2)
    assert list(twelve["possible"]) == [math.comb(6, k) for k in range(1, 7)]
    for _, row in twelve.iterrows():
        missing = row["possible"] - row["collected"]
        names = [name for name in row["absent"].split(", ") if name]
        expected = {"all": 6, "": 0}.get(row["absent"], int(names[0]) if names and names[0].isdigit() else len(names))
        assert missing == expected
    thirteen = printed(13)
    assert list(thirteen["number"]) == [str(i) for i in range(1, 41)] and thirteen["combination"].is_unique
    assert (thirteen["combination"].str.count("_") + 1 == thirteen["order"]).all()
    assert thirteen["order"].value_counts().to_dict() == {1: 6, 2: 12, 3: 15, 4: 6, 6: 1}
    orders = two[two["block"] == "by order"].set_index("row")
    for k, count in thirteen["order"].value_counts().items():
        assert orders.loc[str(int(k)), "combinations"] == count
    assert (orders.drop("all").select_dtypes("number").sum() == orders.select_dtypes("number").loc["all"]).all()
    assert (orders[["train", "validation", "test"]].sum(axis=1) == orders["images"]).all()
    species = two[two["block"] == "by species"].set_index("row")
    for code in CODES:
        count = thirteen["combination"].str.split("_").map(lambda names, code=code: code in names).sum()
        assert species.loc[code, "combinations"] == count and species.loc[code, "images"] == 3000 * count
        assert species.loc[code, "test"] == 300 * count
    assert set(two["source"]) == {"reconstructed"}


def test_bounds_of_table_14_are_differences():
    table = printed(14).set_index("species")
    assert ((table["fnr_mixtures"] - table["fnr_pure"] - table["upper_bound"]).drop("mean").abs() <= 1e-9).all()
    assert abs(table["upper_bound"].drop("mean").mean() - table.loc["mean", "upper_bound"]) <= 0.00005
    assert table.index[table["upper_bound_bold"]].tolist() == [table["upper_bound"].idxmax()]
    for rate, n in (("fnr_pure", "n_pure"), ("fnr_mixtures", "n_mixtures")):
        whole = (table[rate] * table[n]).drop("mean")
        assert ((whole.round() / table[n] - table[rate]).drop("mean").abs() <= 0.00005 + 1e-9).all()
    test_images = printed(2).query("block == 'by species'").set_index("row")["test"]
    assert (table["n_pure"] + table["n_mixtures"]).drop("mean").to_dict() == test_images.to_dict()


def test_differences_and_means_of_table_15():
    table = printed(15).set_index("species")
    rows = table.drop("mean")
    assert ((rows["own_rgb"] - rows["own_grey"] - rows["drop"]).abs() <= 3 * HALF).all()
    assert ((rows["margin_grey"] - rows["margin_rgb"] - rows["delta_margin"]).abs() <= 3 * HALF).all()
    assert abs(rows["drop"].mean() - table.loc["mean", "drop"]) <= 2 * HALF
    assert abs(rows["delta_margin"].mean() - table.loc["mean", "delta_margin"]) <= 2 * HALF
    assert abs(rows["drop"].std(ddof=1) - table.loc["mean", "drop_std"]) <= HALF
    assert abs(rows["drop"].std(ddof=0) - table.loc["mean", "drop_std"]) > 2 * HALF
    assert "table15_std" in set(inconsistencies()["id"])
    for column in ("pass_rgb", "pass_grey"):  # shares of forty images
        assert ((rows[column] * 40).round().div(40) - rows[column]).abs().max() <= 0.0051


def test_table_18_deals_out_the_26_mixtures_that_are_trained_on():
    names = ", ".join(printed(18)["combinations"]).split(", ")
    held = "bt bs_pf ka_fj bs_mx_fj bs_ka_pf mx_ka_fj bs_bt_ka_fj bs_mx_fj_pf bs_bt_mx_ka_fj_pf".split()
    every = printed(13)
    mixtures = set(every.loc[every["order"] > 1, "combination"]) - set(held)
    assert len(names) == 26 and set(names) == mixtures


def test_intervals_of_table_19_hold_their_numbers():
    tidy = cells(19)
    assert len(tidy) == 18 and (tidy["low"] < tidy["value"]).all() and (tidy["value"] < tidy["high"]).all()
    assert (tidy["value"] - tidy["low"]).max() < 0.1


def test_fold_means_of_table_21_are_those_of_table_20():
    table = printed(21).set_index("held_out")
    folds, mean = table.drop("mean"), table.loc["mean"]
    for column in ("knn_auroc", "knn_aupr", "knn_fpr_at_95_tpr", "residual_auroc"):
        assert abs(folds[column].mean() - mean[column]) <= 2 * HALF
        assert abs(folds[column].std(ddof=0) - mean[f"{column}_std"]) <= 2 * HALF
    twenty = printed(20).set_index("score")
    knn, residual = twenty.loc["KNN (k=10)"], twenty.loc["residual norm (SimplexUnmix)"]
    for column in ("auroc", "aupr", "fpr_at_95_tpr"):
        assert (knn[column], knn[f"{column}_std"]) == (mean[f"knn_{column}"], mean[f"knn_{column}_std"])
    assert (residual["auroc"], residual["auroc_std"]) == (mean["residual_auroc"], mean["residual_auroc_std"])
    assert (folds["knn_auroc"] > folds["residual_auroc"]).all()


def test_no_markup_is_left():
    for n in paper.TABLES:
        text = " ".join(map(str, printed_text(n).values.ravel()))
        assert not re.search(r"[$\\]|mathbf|\\pm|texttt", text)
