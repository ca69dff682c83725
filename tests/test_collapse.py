"""Who is trained for Tables 3 and 5, and with what held-out mixtures are answered: tiny pictures, made-up calls."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from phoebi_lib import protocols, report
from phoebi_lib.baselines.finetune import finetune
from phoebi_lib.baselines.finetune.harness import left_rows
from phoebi_lib.catalogue import CODES, COMBINATIONS, FOUR_CLASS_CODES
from phoebi_lib.encoder_records import get_record
from phoebi_lib.limits import limits
from phoebi_lib.manifest import published_manifest
from phoebi_lib.paper import cells
from phoebi_lib.splits import partition as split
from phoebi_lib.splits import select_heldout
from phoebi_lib.studies import collapse, collapse_answers, collapse_images
from phoebi_lib.studies.audit import with_margin
from tests import collapse_world as world
from tests import finetune_toy as toy
from tests.tiny_run import TinyRun, write_pictures

RESNET, DINO = "resnet50.a1_in1k", "vit_small_patch14_dinov2.lvd142m"
ABC = ("a", "b", "c")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    data = write_pictures(tmp_path_factory.mktemp("pictures"), frames=5)
    made = TinyRun(data)
    made.encoder = collapse.OURS
    return made


@pytest.fixture(autouse=True)
def own_store(tmp_path_factory, monkeypatch):
    for name in ("POOLS", "RESULTS"):
        monkeypatch.setenv(f"PHOEBI_{name}", str(tmp_path_factory.mktemp(name.lower())))
    monkeypatch.setenv("PHOEBI_QUIET", "1")


@pytest.fixture
def weights(monkeypatch):
    """The networks whose weights are here, for a test to name."""
    here = {collapse.OURS}
    monkeypatch.setattr(collapse, "weights_here", lambda name: name in here)
    return here


@pytest.fixture
def trained(monkeypatch):
    """The engine answers without training; what it was asked for is noted."""
    log = []
    monkeypatch.setattr(collapse, "finetune", world.fake_finetune(world.first_only, log))
    return log


def answered(truths, calls, codes=ABC, **facts):
    """Rows of images of combinations ``truths`` in which ``calls`` are called."""
    table = {"id": [f"{name}/{i}" for i, name in enumerate(truths)], "combination": truths, "frame": 1, **facts}
    for code in codes:
        table[f"y_{code}"] = [int(code in name.split("_")) for name in truths]
        table[f"pred_{code}"] = [int(code in said.split("_")) for said in calls]
    return pd.DataFrame(table)


# ---------------------------------------------------------------- who is trained


def test_rows_have_the_names_that_the_paper_prints():
    whole = [collapse.row_name(get_record(name), "whole") for name in collapse.printed_networks("whole")]
    pipeline = [collapse.row_name(get_record(name), "pipeline") for name in collapse.printed_networks("pipeline")]
    printed = cells(3)
    assert whole == list(printed.loc[printed["block"] == "fine-tuned", "row"].unique()) and len(whole) == 9
    assert pipeline == list(printed.loc[printed["block"] == "control", "row"].unique()) == [collapse.CONTROL]
    ours = get_record(collapse.OURS)
    assert collapse.row_name(ours, "whole") == "EfficientNet-Lite0, fine-tuned (not in the paper)"
    assert collapse.row_name(ours, "pipeline") == "EfficientNet-Lite0 (PHOEBI) (not in the paper)"


def test_decoders_say_of_which_table_they_are_no_part(monkeypatch):
    def run_partition(pool, partition, *, seed, methods, **settings):
        return pd.DataFrame({"method": list(methods), "partition": partition})

    monkeypatch.setattr(protocols, "run_partition", run_partition)
    run = world.named_run()
    three, five = (set(collapse.heads(run, None, "lco-1337", n=n)) for n in (3, 5))
    assert "ProtoMatch (not in Table 3)" in three and "ChannelGroup (2,000 updates) (not in the paper)" in three & five
    assert "SimplexUnmix (not in Table 5)" in five and collapse.CONSTANT in five
    assert "ProtoMatch" in collapse.heads_over_partitions(run, None), "Table 6 has it"


def test_ours_stand_below_the_printed_rows_of_their_kind():
    ours = [collapse.row_name(get_record(collapse.OURS), kind) for kind in ("pipeline", "whole")]
    rows = collapse.order(["ProtoMatch (not in Table 3)", *ours, "ResNet-50", collapse.CONSTANT], 3)
    assert rows[0] == collapse.CONSTANT and rows[1:10] == list(collapse.BACKBONES)
    assert rows[10:] == [ours[1], collapse.CONTROL, ours[0], "Attention MIL (Ilse et al., 2018)",
                         "ProtoMatch (not in Table 3)"]  # fmt: skip
    assert collapse.order([], 5) == list(collapse.BACKBONES)


def test_caps_train_ours_and_the_encoder_that_is_named(weights):
    run = world.named_run()
    weights |= {RESNET, DINO}
    assert collapse.to_train(run, "whole") == (collapse.OURS,)
    assert collapse.to_train(replace(run, encoder=RESNET), "whole") == (collapse.OURS, RESNET)
    assert collapse.to_train(replace(run, caps=False), "whole") == (collapse.OURS, RESNET, DINO)
    assert collapse.to_train(replace(run, caps=False), "pipeline") == (collapse.OURS, DINO)
    assert collapse.to_train(replace(run, caps=False, encoder=DINO), "whole") == (collapse.OURS, DINO)


def test_recipes_are_those_of_the_blocks_at_the_size_of_the_caps():
    run, caps = world.named_run(), limits("smoke").finetune_whole
    mine = collapse.training_recipe(run, "whole", "lco-1337")
    assert (mine.updates, mine.batch, mine.side) == (caps.updates, caps.batch, caps.side)
    assert mine == collapse.training_recipe(run, "whole", "random"), "one recipe for both blocks"
    reference = replace(run, compat="reference", caps=False)
    random, held = (collapse.training_recipe(reference, "whole", name) for name in ("shuffled", "lco-1337"))
    assert random.crop == "random" and held.crop == "resized"
    assert collapse.training_recipe(reference, "whole", "random", "ConvNeXt-B").batch == 32
    assert random.batch == collapse.training_recipe(reference, "whole", "random", "ResNet-50").batch == 64
    assert collapse.in_distribution("whole", "reference") == "shuffled"
    assert {collapse.in_distribution(*way) for way in (("whole", "corrected"), ("pipeline", "reference"))} == {"random"}


def test_each_network_is_trained_once_per_block(tiny, weights, trained):
    found = collapse.supervised(tiny, "lco-1337")
    assert list(found) == [collapse.row_name(get_record(collapse.OURS), kind) for kind in ("whole", "pipeline")]
    assert [(name, recipe.kind, partition) for name, recipe, partition in trained] == [
        (collapse.OURS, kind, partition) for kind in ("whole", "pipeline") for partition in ("random", "lco-1337")
    ]
    for rows in found.values():
        sizes = rows.groupby(["partition", "part"], sort=False).size()
        assert sizes["random"].to_dict() == {"val": 40, "test": 40}
        assert sizes["lco-1337"].to_dict() == {"val": 31, "test": 45}


def test_rows_of_a_sister_in_the_sweep_are_collected(tiny, weights, trained, monkeypatch):
    def left(like, name, recipe):
        return like.assign(encoder=name) if name == RESNET and recipe.kind == "whole" else None

    monkeypatch.setattr(collapse, "left_rows", left)
    found = collapse.supervised(tiny, "lco-1337")
    assert set(found["ResNet-50"]["encoder"]) == {RESNET}
    assert set(found["ResNet-50"]["partition"]) == {"random", "lco-1337"}
    weights |= {RESNET, DINO}
    assert collapse.waiting(tuple(found)) == (DINO,)
    assert collapse.waiting((*found, "DINOv2 ViT-S/14")) == (DINO,), "its row through the pipeline is lacking"


def test_left_rows_are_those_of_the_same_pictures_and_recipe(tmp_path):
    dataset, recipe = toy.write(tmp_path / "pictures"), toy.whole(updates=2, evaluations=1)
    parts, other = toy.parts(dataset), replace(toy.backbone(sha256="other"), name="other")
    settings = {"recipe": recipe, "seed": 3, "partition": "random", "progress": False}
    theirs = finetune(dataset, parts, encoder=other, **settings)
    mine = finetune(dataset, parts, encoder=toy.backbone(), **settings)
    pd.testing.assert_frame_equal(left_rows(mine, "other", recipe), theirs)
    assert left_rows(mine, "third", recipe) is None
    assert left_rows(mine, "other", replace(recipe, lr_head=0.5)) is None
    assert left_rows(mine.assign(partition="lco-1337"), "other", recipe) is None
    assert left_rows(mine.assign(pool_key="other pictures"), "other", recipe) is None
    assert left_rows(mine.iloc[1:], "other", recipe) is None
    finetune(dataset, parts, encoder=replace(other, stand_in=True), **settings)
    assert left_rows(mine, "other", recipe) is None, "stand-in weights are no network"


def test_sets_that_go_with_the_images():
    run = world.named_run(profile="default", dataset="sim:default")
    assert collapse.second_world(run).dataset == "sim:default:shared"
    assert collapse.second_world(world.named_run()) is None, "the smoke profile leaves it out"
    assert collapse.second_world(world.named_run(dataset="phoebi6", caps=False)) is None
    assert collapse.four_species(run).dataset == "sim:default:four"
    assert collapse.four_species(world.named_run(dataset="phoebi6")).dataset == "phoebi4"
    with pytest.raises(ValueError, match="no four-species set goes with 'slides'"):
        collapse.four_species(world.named_run(dataset="slides"))


def test_the_recipe_is_chosen_on_the_random_split_alone(tiny, trained):
    curve = collapse.choose_recipe(tiny, "whole", [(1e-3, 1e-3), (1e-4, 1e-2)])
    assert {partition for _, _, partition in trained} == {"random"}
    assert [(r.lr_backbone, r.lr_head) for _, r, _ in trained] == [(1e-3, 1e-3), (1e-4, 1e-2)]
    assert curve["val_f1"].tolist() == [0.5, 0.7, 0.5, 0.7] and curve["updates"].tolist() == [5, 9, 5, 9]
    assert not [name for name in curve if "test" in name or "heldout" in name]


# ---------------------------------------------------------------- with what held-out mixtures are answered


def test_answers_by_hand():
    rows = answered(["a_c"] * 5, ["a", "a_c", "b_c", "a_b", ""])
    found = collapse_answers.answers(rows, ["a", "b", "a_b"], ABC)
    assert found["answer"].tolist() == ["a", "a_c", "b_c", "a_b", "none"]
    assert found["trained_on"].tolist() == [1, 0, 0, 1, 0] and found["right"].tolist() == [0, 1, 0, 0, 0]
    # two of three single species are trained on, one of three pairs
    assert found["chance"].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3, 0])
    assert found["f1"].tolist() == pytest.approx([2 / 3, 1, 0.5, 0.5, 0])


def test_an_answer_is_spelled_like_the_folder_that_holds_it():
    rows = answered(["mx_ka_fj"] * 3, ["fj_ka_mx", "ka_mx", "bt_fj"], CODES)
    assert collapse_answers.answers(rows, COMBINATIONS, CODES)["answer"].tolist() == ["mx_ka_fj", "mx_ka", "bt_fj"]
    twice = answered(["f"], ["b_f"], FOUR_CLASS_CODES)
    found = collapse_answers.answers(twice, ["b_f", "f_b"], FOUR_CLASS_CODES)
    assert found["chance"].item() == pytest.approx(1 / 6), "two recordings of one mixture count once"


def test_a_classifier_of_combinations_and_a_detector_of_species():
    manifest = published_manifest(5, 1)
    held, known = select_heldout(COMBINATIONS, 1337)
    calls = {"detector": world.right, "classifier": lambda name, part: world.right("bs_ka", part)}
    found = {row: world.answer_rows(manifest, "lco-1337", said) for row, said in calls.items()}
    lines = {(line["row"], line["column"]): line for line in collapse_answers.answer_lines(found, known, CODES, 50)}
    assert lines["detector", "trained_on"]["value"] == 0 and lines["detector", "right"]["value"] == 1
    assert lines["detector", "trained_on_val"]["value"] == lines["classifier", "trained_on_val"]["value"] == 1
    assert lines["classifier", "trained_on"]["value"] == 1 and lines["classifier", "right"]["value"] == 0
    # 10 of 15 pairs are trained on
    assert lines["classifier", "chance"]["value"] == pytest.approx(10 / 15)
    assert lines["classifier", "above_chance"]["low"] == pytest.approx(1 / 3)
    orders = np.array([len(name.split("_")) for name in held])
    share = {1: 5 / 6, 2: 10 / 15, 3: 12 / 20, 4: 4 / 15, 6: 0}
    assert lines["detector", "chance"]["value"] == pytest.approx(np.mean([share[k] for k in orders]))
    table = report.table(lines.values(), table="3 answers", profile="smoke", dataset="sim:tiny")
    shown = collapse_answers.answers_read(table, {"right": "right", "above_chance": "more"}).set_index("method")
    assert shown.loc["detector", "right"] == "1.000 [1.000,\u00a01.000]" and shown.loc["classifier", "more"][0] == "+"
    assert lines["detector", "chance"]["n_combinations"] == 9 and lines["detector", "trained_on_val"]["n_images"] == 31


def test_confusion_by_hand():
    rows = answered(["c"] * 4 + ["a_b"] * 2, ["a", "a", "b", "c", "a", "a_c"])
    table = collapse_answers.confusion(rows, ["a", "b"], ABC, most=2)
    assert list(table.index) == ["c", "a_b"] and list(table.columns) == ["a", "b", "others"]
    assert table.to_numpy().tolist() == [[0.5, 0.25, 0.25], [0.5, 0.0, 0.5]]
    assert list(collapse_answers.confusion(rows, ["a", "b"], ABC).columns) == ["a", "b", "c", "a_c"]


def test_f1_by_combination():
    rows = {"one": answered(["a_b", "c", "c"], ["a_b", "a", "c"]), "two": answered(["a_b", "c", "c"], ["a"] * 3)}
    table = collapse_answers.by_combination(rows, ABC)
    assert list(table.index) == ["c", "a_b"] and table["order"].tolist() == [1, 2]
    assert table["one"].tolist() == [0.5, 1.0] and table["two"].tolist() == pytest.approx([0, 2 / 3])
    axis = collapse_answers.combination_figure(table, 3).axes[0]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["one", "two", "all present"]
    levels = [segment[0][1] for segment in axis.collections[0].get_segments()]
    assert levels == pytest.approx([0.5, 0.8]), "2k / (k + 3)"


# ---------------------------------------------------------------- fewer images, and near copies in validation


def test_fewer_images_are_the_first_frames_with_all_their_crops():
    manifest = published_manifest(30, 3)
    train = split(manifest, "random", grouping="frame")["train"]
    chosen = manifest.iloc[collapse_images.fewer(manifest, train[::-1], 0.25)]
    assert len(train) == 40 * 24 and chosen.groupby("combination").size().unique() == [6]
    assert sorted(chosen["frame"].unique()) == [1, 2]
    few = collapse_images.fewer(manifest, train, 0.01)
    assert manifest.iloc[few].groupby("combination").size().unique() == [3], "one frame at least"


def test_the_whole_of_the_images_gives_the_rows_of_the_protocol(tiny):
    pool = tiny.open_pool()
    mine = collapse_images.head_rows(tiny, pool, "ChannelGroup", "lco-1337")
    theirs = protocols.run_partition(pool, "lco-1337", seed=1337, methods=["ChannelGroup"], profile="smoke")
    columns = ["id", "part", *(f"{kind}_{code}" for kind in ("y", "score", "pred") for code in CODES)]
    pd.testing.assert_frame_equal(mine[columns], theirs[columns], check_dtype=False)
    assert set(mine["updates"]) == set(theirs["updates"])


def test_what_more_images_add(tiny):
    pool = tiny.open_pool()
    rows = collapse_images.image_rows(tiny, pool, "lco-1337", ["AttentionMIL"])
    assert rows.groupby(["partition", "share"])["images"].first().to_dict() == {
        ("lco-1337", 0.25): 31, ("lco-1337", 0.5): 62, ("lco-1337", 1.0): 124,
        ("random", 0.25): 40, ("random", 0.5): 80, ("random", 1.0): 120}  # fmt: skip
    lines = {(line["row"], line["column"]): line for line in collapse_images.image_lines(tiny, rows)}
    assert len(lines) == 8
    for kind, partition in (("in_dist", "random"), ("heldout", "lco-1337")):
        test = rows[(rows["part"] == "test") & (rows["partition"] == partition)].groupby("share")["margin"].mean()
        assert lines["AttentionMIL, half", f"{kind}_margin"]["value"] == pytest.approx(test[0.5])
        gain = lines["AttentionMIL, all minus a quarter", f"{kind}_difference"]
        assert gain["value"] == pytest.approx(test[1.0] - test[0.25]) and gain["low"] <= gain["value"] <= gain["high"]


def test_what_near_copies_add_by_hand(tiny):
    manifest, rows = published_manifest(9, 3), []
    for way, partition, calls in (
        ("released split", "random", world.right), ("shuffled by image", "random", world.right),
        ("validation by frame", "lco-1337", lambda name, part: ("bs",)),
        ("validation by image", "lco-1337", world.right),
    ):  # fmt: skip
        made = world.answer_rows(manifest, partition, calls)
        rows.append(with_margin(made).assign(way=way))
    lines = {line["row"]: line for line in collapse_images.leak_lines(tiny, pd.concat(rows))}
    assert lines["made, shuffled by image minus released split"]["value"] == 0
    frame, image = (lines[f"made, validation by {unit}"]["value"] for unit in ("frame", "image"))
    assert lines["made, validation by image minus validation by frame"]["value"] == pytest.approx(image - frame)
    assert image > 0 > frame
