"""Tables 3 and 5 from made-up rows: complete, beside the paper, read as far as their numbers allow, in two worlds."""

import numpy as np
import pandas as pd
import pytest

from phoebi_lib import report
from phoebi_lib.catalogue import CODES, FOUR_CLASS_CODES, FOUR_CLASS_COMBINATIONS, order
from phoebi_lib.encoder_records import get_record
from phoebi_lib.manifest import published_manifest
from phoebi_lib.metrics import exact_match, macro_f1, per_sample_f1
from phoebi_lib.paper import cells
from phoebi_lib.paper.claims.engine import UNCLEAR, YES, lookup
from phoebi_lib.paper.claims.results import CLAIMS
from phoebi_lib.scoring import scores
from phoebi_lib.studies import collapse, collapse_tables
from phoebi_lib.studies.decoder_tables import ATTENTION_ROW, EXACT_ROW
from phoebi_lib.studies.encoder_tables import ABSENT
from phoebi_lib.studies.readings import NOT_FITTED
from tests import collapse_world as world
from tests.tiny_run import TinyRun

OURS, THROUGH = (collapse.row_name(get_record(collapse.OURS), kind) for kind in ("whole", "pipeline"))
DINO = "vit_small_patch14_dinov2.lvd142m"
MANIFEST = published_manifest(5, 1)
FOUR = pd.DataFrame([{"path": f"{name}/{i:05d}.jpg", "combination": name, "frame": i}
                     for name in FOUR_CLASS_COMBINATIONS for i in range(1, 6)])  # fmt: skip


def everything(name, part, codes=CODES):
    return codes


def half_right(name, part, codes=CODES):
    """Too many species on every image: never fitted."""
    return codes[:3]


@pytest.fixture(autouse=True)
def weights(monkeypatch):
    here = {collapse.OURS}
    monkeypatch.setattr(collapse, "weights_here", lambda name: name in here)
    return here


@pytest.fixture(scope="module")
def run():
    return TinyRun(None)


@pytest.fixture(scope="module")
def found():
    """Ours collapses; through the pipeline it is not fitted; attention answers with everything."""
    return {
        OURS: world.blocks(MANIFEST, world.first_only, method="FineTune whole image (50 updates)"),
        THROUGH: world.blocks(MANIFEST, half_right, method="FineTune pipeline (40 updates)"),
        collapse.CONSTANT: world.blocks(MANIFEST, everything, method="AllPresent", updates=0),
        ATTENTION_ROW: world.blocks(MANIFEST, world.first_only, method="AttentionMIL", updates=300),
        "ProtoMatch (not in Table 3)": world.blocks(MANIFEST, world.right, method="ProtoMatch", updates=0),
    }


@pytest.fixture(scope="module")
def three(run, found):
    return collapse_tables.collapse_table(run, 3, found, CODES)


@pytest.fixture(scope="module")
def four_found():
    def four(calls):
        return lambda name, part: calls(name, part, FOUR_CLASS_CODES)

    facts = {"dataset": "sim:tiny:four"}
    constant = {"method": "AllPresent", "updates": 0, **facts}
    return {
        OURS: world.blocks(FOUR, four(world.first_only), FOUR_CLASS_CODES, method="whole", **facts),
        collapse.CONSTANT: world.blocks(FOUR, four(everything), FOUR_CLASS_CODES, **constant),
    }


@pytest.fixture(scope="module")
def five(run, four_found):
    return collapse_tables.collapse_table(run, 5, four_found, FOUR_CLASS_CODES)


def cell(table, row, column, name="value"):
    return table.loc[(table["row"] == row) & (table["column"] == column), name].item()


@pytest.mark.parametrize("n", [3, 5])
def test_every_printed_cell_is_there_once_with_a_number_or_a_reason(n, request):
    table = request.getfixturevalue({3: "three", 5: "five"}[n])
    for printed in cells(n).to_dict("records"):
        line = table[(table["row"] == printed["row"]) & (table["column"] == printed["column"])]
        if printed["column"] == "params_m" and printed["row"] in (collapse.CONSTANT, ATTENTION_ROW):
            continue  # the constant has none; those of attention depend on the width of our encoder
        assert len(line) == 1, printed
        line = line.iloc[0]
        assert line["paper"] == printed["value"]
        assert (line["missing"] == ABSENT) == np.isnan(line["value"]), printed
        assert np.isnan(line["value"]) == (printed["row"] in (*collapse.BACKBONES, collapse.CONTROL)
                                           and printed["column"] != "params_m"), printed  # fmt: skip


def test_numbers_are_those_of_the_rows(run, found, three):
    rows = found[OURS]
    for partition, part, columns in (
        ("random", "test", collapse_tables.RANDOM),
        ("lco-1337", "val", collapse_tables.VALIDATION),
        ("lco-1337", "test", collapse_tables.TEST),
    ):
        mine = rows[(rows["partition"] == partition) & (rows["part"] == part)]
        true, called = (mine[[f"{kind}_{code}" for code in CODES]].to_numpy() for kind in ("y", "pred"))
        values = {"f1": per_sample_f1, "macro_f1": macro_f1, "em": exact_match}
        ends = scores(mine, columns, n=50)
        for metric, column in columns.items():
            assert cell(three, OURS, column) == pytest.approx(values[metric](true, called)), column
            every = values[metric](true, np.ones_like(true))
            margin = f"{column}_margin"
            assert cell(three, OURS, margin) == pytest.approx(values[metric](true, called) - every), column
            assert (cell(three, OURS, margin, "low"), cell(three, OURS, margin, "high")) == ends[f"{metric}_margin"][1:]
        assert cell(three, OURS, next(iter(columns.values())), "partition") == partition
    assert cell(three, OURS, "in_dist_f1") == 1
    delta = cell(three, OURS, "in_dist_f1") - cell(three, OURS, "heldout_f1")
    assert cell(three, OURS, "delta_f1") == pytest.approx(delta)
    assert cell(three, OURS, "heldout_f1", "updates") == 50 and cell(three, OURS, "train_f1") == 0.9
    assert cell(three, OURS, "heldout_f1", "n_combinations") == 9 and cell(three, OURS, "heldout_f1", "n_images") == 45


def test_the_constant_is_exact_on_published_labels_and_has_no_margin_on_ours(three):
    assert cell(three, EXACT_ROW, "random_f1") == pytest.approx(0.5879, abs=5e-5)
    assert cell(three, EXACT_ROW, "heldout_f1") == pytest.approx(0.65397, abs=5e-6)
    assert set(three.loc[three["row"] == EXACT_ROW, "evidence"]) == {"exact"}
    margins = three[(three["row"] == collapse.CONSTANT) & three["column"].str.endswith("_margin")]
    assert len(margins) == 7 and (margins["value"] == 0).all()
    assert cell(three, ATTENTION_ROW, "heldout_f1_margin", "paper") == pytest.approx(0.574 - 0.654)


def test_rows_of_ours_are_not_in_print(three):
    for row in (OURS, THROUGH, "ProtoMatch (not in Table 3)"):
        assert three.loc[three["row"] == row, "paper"].isna().all()


def test_weights_that_wait_for_a_run_are_no_missing_weights(run, found, weights):
    weights |= {"resnet50.a1_in1k", DINO}
    rows = collapse_tables.collapse_table(run, 3, found, CODES)["row"]
    assert not rows.isin(["ResNet-50", "DINOv2 ViT-S/14", collapse.CONTROL]).any()
    assert rows.isin(["ConvNeXt-B"]).any()


def test_readings(three):
    said = collapse_tables.readings(three)
    rests = "(on 31 validation images; training F1 0.900)"
    fitted = f"fitted {rests}"
    assert said == {OURS: fitted, THROUGH: f"{NOT_FITTED} {rests}", ATTENTION_ROW: fitted}
    shown = collapse_tables.margins_read(three).set_index("row")
    ours = shown.loc[~shown.index.isin([*collapse.BACKBONES, collapse.CONTROL]), "reading"].to_dict()
    assert ours == {**said, collapse.CONSTANT: "–", "ProtoMatch (not in Table 3)": "–"}
    assert shown.loc[OURS, "n"] == "31 validation, 45 held out (simulated)"
    assert shown.loc[OURS, "in-dist F1"] == "1.000" and shown.loc[OURS, "updates"] == "50"
    assert shown.loc[THROUGH, "training F1"] == "0.900"
    value = report.at_digits(cell(three, OURS, "heldout_f1_margin"), 3, sign=True)
    assert shown.loc[OURS, "margin in held-out F1"].startswith(f"{value} [")


def test_printed_margins_stand_where_a_constant_is_printed(three, five):
    shown = collapse_tables.margins_read(three).set_index("row")
    line = shown.loc["ResNet-50"]
    assert line["margin in held-out F1, paper"] == "-0.145" and line["margin in macro F1, paper"] == "-0.123"
    assert line["reading"] == ABSENT and line["margin in held-out F1"] == "–"
    assert shown.loc["Florence-2 DaViT-B", "margin in held-out F1, paper"] == "+0.000"
    four = collapse_tables.margins_read(five)
    assert set(four["row"]) == {OURS, collapse.CONSTANT} and not any("paper" in name for name in four)


def test_sums_of_the_printed_tables():
    margins = collapse_tables.printed_margins()
    assert len(margins) == 9 and margins.min() == pytest.approx(0.435 - 0.654)
    assert (margins < 0).sum() == 8 and margins["Florence-2 DaViT-B"] == 0
    gains = collapse_tables.printed_gains()
    assert gains["ResNet-50"] == pytest.approx(0.642 - 0.509) and (gains < 0).sum() == 2


def test_the_closing_sentence_counts_fitted_rows_alone(three):
    table = three.copy()
    for row, ends in ((OURS, [-0.3, -0.1]), (ATTENTION_ROW, [0.1, 0.3]), (THROUGH, [-0.3, -0.1])):
        table.loc[(table["row"] == row) & (table["column"] == "heldout_f1_margin"), ["low", "high"]] = ends
    assert collapse_tables.closing(table) == (
        "On simulated images 2 of 3 trained rows are fitted; of these 1 lie below the constant predictor on held-out "
        "combinations, 1 above it, and 0 cannot be told from it.")  # fmt: skip
    table.loc[table["column"] == "in_dist_f1", "n_images"] = 8
    assert collapse_tables.closing(table).endswith(" What is fitted rests on 8 validation images only.")
    table = three.copy()
    table.loc[table["column"] == "in_dist_f1", "value"] = 0.9
    said = collapse_tables.closing(table)
    assert said.endswith("none of 3 trained rows is fitted: whether they collapse is open.")


def test_claims_find_their_numbers(three, five):
    claims = {claim.id: claim for claim in CLAIMS}
    needs = claims["mil-loses-a-third"].needs
    numbers = {name: lookup(three, need) for name, need in needs.items()}
    assert claims["mil-loses-a-third"].rule(numbers) == YES and claims["mil-loses-a-third"].page == "05_collapse"
    tables = {"3": three, "5": five}
    for name in ("fine-tuned-networks-collapse", "control-collapses", "collapse-on-four-species"):
        for need in claims[name].needs.values():
            table = tables[need.table]
            line = table[(table["row"] == need.row) & (table["column"] == need.column)]
            assert line["missing"].tolist() == [ABSENT] and lookup(table, need) is None, need
        assert claims[name].page == ("05_four_species" if name.endswith("species") else "05_collapse")


def test_a_network_that_is_not_fitted_leaves_the_claim_open(run, found):
    """The paper's nine, made up: collapsed, then not even fitted."""
    claim = next(claim for claim in CLAIMS if claim.id == "fine-tuned-networks-collapse")
    for calls, outcome in ((world.first_only, YES), (half_right, UNCLEAR)):
        rows = world.blocks(MANIFEST, calls)
        nine = {row: rows.assign(encoder=get_record(row).name) for row in collapse.BACKBONES}
        table = collapse_tables.collapse_table(run, 3, {**found, **nine}, CODES)
        assert claim.rule({name: lookup(table, need) for name, need in claim.needs.items()}) == outcome


def test_the_constant_on_four_species(four_found, five):
    rows = four_found[collapse.CONSTANT]
    test = rows[(rows["partition"] == "lco-1337") & (rows["part"] == "test")]
    per = [2 * k / (k + 4) for k in (order(name, FOUR_CLASS_CODES) for name in test["combination"])]
    assert cell(five, collapse.CONSTANT, "heldout_f1") == pytest.approx(np.mean(per))
    assert cell(five, collapse.CONSTANT, "heldout_f1", "n_combinations") == 5
    assert five.loc[five["row"] == collapse.CONSTANT, "paper"].isna().all(), "Table 5 prints no constant"
    assert set(five["dataset"]) == {"sim:tiny:four", "sim:tiny"}


def test_two_worlds_side_by_side(found):
    worlds = {"first": {row: found[row] for row in (collapse.CONSTANT, OURS, ATTENTION_ROW)}, "second": {
        OURS: world.blocks(MANIFEST, world.right, method="whole", dataset="sim:tiny:shared"),
        ATTENTION_ROW: world.blocks(MANIFEST, world.first_only, method="AttentionMIL", dataset="sim:tiny:shared"),
    }}  # fmt: skip
    both = collapse_tables.worlds_table(3, worlds, CODES, 50)
    assert set(both["table"]) == {"3 worlds"} and set(both["row"]) == {OURS, ATTENTION_ROW}
    assert both.groupby(["row", "column"])["dataset"].nunique().loc[(OURS, "heldout_f1")] == 2
    mine = both[both["dataset"] == "sim:tiny"]
    assert cell(mine, OURS, "in_dist_f1") == 1 and cell(mine, OURS, "heldout_f1") < 1
    constant = found[collapse.CONSTANT]
    constant = constant[(constant["partition"] == "lco-1337") & (constant["part"] == "test")]
    every = per_sample_f1(*(constant[[f"{kind}_{code}" for code in CODES]].to_numpy() for kind in ("y", "pred")))
    assert cell(mine, OURS, "heldout_f1_margin") == pytest.approx(cell(mine, OURS, "heldout_f1") - every)
    assert cell(both, OURS, "heldout_difference") == pytest.approx(1 - cell(mine, OURS, "heldout_f1"))
    assert {cell(both, ATTENTION_ROW, "heldout_difference", end) for end in ("value", "low", "high")} == {0}
    shown = collapse_tables.worlds_read(both, {"sim:tiny": "own", "sim:tiny:shared": "shared"}).set_index("row")
    assert shown.loc[ATTENTION_ROW, "difference"] == "+0.000 [+0.000,\u00a0+0.000]"
    assert list(shown) == ["in-dist F1, own", "held-out margin, own", "in-dist F1, shared", "held-out margin, shared",
                           "difference", "n"]  # fmt: skip


def test_three_partitions_in_two_worlds_are_pooled():
    def rows(dataset, calls):
        made = [world.answer_rows(MANIFEST, f"lco-{seed}", calls, method="ProtoMatch", seed=seed, dataset=dataset)
                for seed in (1337, 1338, 1339)]  # fmt: skip
        return {"ProtoMatch": pd.concat(made, ignore_index=True)}

    found = {"first": rows("sim:tiny", world.first_only), "second": rows("sim:tiny:shared", world.right)}
    both = collapse_tables.worlds_table(6, found, CODES, 50)
    mine = both[both["dataset"] == "sim:tiny"]
    assert cell(both, "ProtoMatch", "heldout_difference") == pytest.approx(1 - cell(mine, "ProtoMatch", "heldout_f1"))
    assert set(both["partition"]) == {"lco-1337, lco-1338, lco-1339"} and set(both["table"]) == {"6 worlds"}
    assert cell(mine, "ProtoMatch", "heldout_f1", "n_images") == 19 * 5, "different images of 27 pairs"
