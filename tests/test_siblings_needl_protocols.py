"""NEEDL-Bench: matching, thresholds, severity, loss, decoding, training and the networks, each against a reference."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import ndimage
from torch.nn import functional as F

from phoebi_lib.encoders import WeightsNotFoundError
from phoebi_lib.siblings import start
from phoebi_lib.siblings.needl import evaluate, fixture, keypoints, metrics, networks
from phoebi_lib.siblings.needl.layout import CLASSES, COLUMNS, GEOMETRY, Needl

STOMATA, PSEUDO = CLASSES
SIDE = 60.0


def found(rows):
    """Predictions of (tile, class, x, y, score), a box of one side round each."""
    return evaluate.with_boxes(pd.DataFrame(rows, columns=["tile_id", "class", "x", "y", "score"]), SIDE)


def world(truth, splits):
    """The two tables of (tile, class, x, y) and {tile: split}; needles by letter."""
    tiles = pd.DataFrame({"tile_id": list(splits), "path": "", "source": "benchtop", "sampling": "random",
                          "split": list(splits.values()), "needle_id": [tile[0] for tile in splits]})  # fmt: skip
    return Needl(Path("."), tiles, found([(*line, 1.0) for line in truth]))


def counted(rows, needl, threshold=0.0):
    matched = metrics.matches(found(rows), needl, "keypoint")
    return metrics.counts(matched, needl.ids("test"), dict.fromkeys(CLASSES, threshold))


def random_world(seed, n=30):
    rng = np.random.default_rng(seed)
    splits = {f"{letter}{i}": ("val", "test")[i % 2] for letter in "ab" for i in range(4)}

    def draw():
        return rng.choice(list(splits)), CLASSES[rng.integers(2)], *rng.integers(0, 70, 2).astype(float)

    truth = [draw() for _ in range(n)]
    return world(truth, splits), found([(*draw(), rng.integers(1, 6) / 5) for _ in range(2 * n)])


def reference_boxes(boxes, scores, truth):
    """Hits by falling score, written as the definition reads; all boxes have one side."""
    hits, free = 0, list(range(len(truth)))
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        common = [float((SIDE - np.abs(boxes[i][:2] - truth[j][:2])).clip(0).prod()) for j in free]
        if common and max(common) / (2 * SIDE**2 - max(common)) >= 0.5:
            hits += 1
            del free[int(np.argmax(common))]
    return hits


def reference_points(points, scores, truth):
    """Greedy by distance, written as the definition reads."""
    pairs = sorted((np.hypot(*(p - t)), -s, i, j) for i, (p, s) in enumerate(zip(points, scores, strict=True))
                   for j, t in enumerate(truth))  # fmt: skip
    left, right = set(), set()
    for distance, _, i, j in pairs:
        if distance <= 36 and i not in left and j not in right:
            left.add(i), right.add(j)
    return len(left)


@pytest.mark.parametrize(("points", "scores", "truth", "expected"), [
    ([[80, 50], [40, 50], [150, 50]], [0.9, 0.8, 0.7], [[50, 50], [110, 50]], [1, 0, -1]),  # of the benchmark
    ([[0, 0]], [1], [[36, 0]], [0]),
    ([[0, 0]], [1], [[36.01, 0]], [-1]),
    ([[0, 0], [20, 0]], [0.1, 0.9], [[10, 0]], [-1, 0]),  # of equal distances the surer one
    ([[0, 0], [20, 0]], [0.5, 0.5], [[10, 0]], [0, -1]),  # then the first point, then the first truth
    ([[10, 0]], [1], [[0, 0], [20, 0]], [0]),
    # IoU of the second with both 9/11 and 6/14 after the first has taken a truth, of the third 7/13
    ([[1, 0, 10, 10], [0, 0, 10, 10], [1, 0, 10, 10]], [0.9, 0.8, 0.7], [[0, 0, 10, 10], [4, 0, 10, 10]], [0, -1, 1]),
    ([[1, 0, 10, 10], [0, 0, 10, 10], [1, 0, 10, 10]], [0.7, 0.9, 0.8], [[0, 0, 10, 10], [4, 0, 10, 10]], [-1, 0, 1]),
    ([[1, 0, 10, 10], [0, 0, 10, 10]], [0.5, 0.5], [[0, 0, 10, 10]], [0, -1]),  # of equal scores the first box
    ([[5, 0, 20, 10]], [1], [[0, 0, 20, 10], [10, 0, 20, 10]], [0]),  # of equal overlaps the first truth
    ([[0, 0, 10, 5]], [1], [[0, 0, 10, 10]], [0]),  # exactly one half
    ([[0, 0, 10, 4.99]], [1], [[0, 0, 10, 10]], [-1]),
    ([[0, 0, 0, 10]], [1], [[0, 0, 0, 10]], [-1]),  # no area
    ([[0, 0, 10, 10]], [1], np.empty((0, 4)), [-1]),
])  # fmt: skip
def test_matching_by_hand(points, scores, truth, expected):
    match = metrics.match_keypoints if len(points[0]) == 2 else metrics.match_boxes
    assert match(np.array(points, float), np.array(scores, float), np.array(truth, float)).tolist() == expected


def test_the_vector_of_the_benchmark_gives_f1_of_four_fifths():
    needl = world([("a", STOMATA, 50, 50), ("a", STOMATA, 110, 50)], {"a": "test"})
    rows = [("a", STOMATA, x, 50, score) for x, score in ((80, 0.9), (40, 0.8), (150, 0.7))]
    table = metrics.summary(counted(rows, needl)).set_index("class")
    assert table.loc[STOMATA, ["tp", "fp", "fn", "f1"]].tolist() == [2, 1, 0, 0.8]
    assert table.loc[PSEUDO, ["precision", "recall", "f1"]].isna().all() and table.loc["class mean", "f1"] == 0.8


def test_box_iou_counts_pixels():
    boxes = np.random.default_rng(0).integers(0, 12, (2, 30, 4)).astype(float)
    rows, columns = np.mgrid[:24, :24]
    x, y, w, h = boxes.transpose(2, 0, 1)[..., None, None]
    one, two = (columns >= x) & (columns < x + w) & (rows >= y) & (rows < y + h)
    common, union = (op(one[:, None], two).sum((2, 3)) for op in (np.logical_and, np.logical_or))
    assert np.allclose(metrics.box_iou(*boxes), common / np.maximum(union, 1)) and (boxes[..., 2:] == 0).any()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rule", "reference"), [("keypoint", reference_points), ("box", reference_boxes)])
def test_the_curve_is_matching_anew_at_every_threshold(seed, rule, reference):
    needl, table = random_world(seed)
    columns, matched = GEOMETRY[rule], metrics.matches(table, needl, rule)
    curve = metrics.f1_curve(matched, needl.ids("test"))
    for line in curve.to_dict("records"):
        hits = n = total = 0
        for tile in needl.ids("test"):
            p, t = (frame[(frame["tile_id"] == tile) & (frame["class"] == line["class"])]
                    for frame in (table[table["score"] >= line["threshold"]], needl.truth(rule)))  # fmt: skip
            n, total = n + len(p), total + len(t)
            hits += reference(p[columns].to_numpy(), p["score"].to_numpy(), t[columns].to_numpy())
        assert (line["tp"], line["fp"], line["fn"]) == (hits, n - hits, total - hits)
        assert line["f1"] == pytest.approx(2 * hits / (n + total))
    assert set(curve["threshold"]) == set(table["score"]) and curve["f1"].nunique() > 4
    oracle, honest = (metrics.detection_scores(table, needl, rule, variant=variant).set_index("class")
                      for variant in ("oracle", "honest"))  # fmt: skip
    assert oracle["f1"][list(CLASSES)].tolist() == curve.groupby("class")["f1"].max()[list(CLASSES)].tolist()
    val = metrics.f1_curve(matched, needl.ids("val")).sort_values(["f1", "threshold"]).groupby("class").last()
    assert honest["threshold"].drop("class mean").to_dict() == val["threshold"].to_dict(), "of equals the highest"
    assert honest["f1"]["class mean"] == pytest.approx(honest["f1"][list(CLASSES)].mean())
    assert set(honest["variant"]) == {"honest"} and set(oracle["rule"]) == {rule}


def test_undefined_and_zero_scores():
    needl = world([("a", STOMATA, 5, 5), ("b", STOMATA, 5, 5)], {"a": "val", "b": "test", "c": "test"})

    def of(rows, variant="oracle"):
        return metrics.detection_scores(found(rows), needl, "keypoint", variant=variant).set_index("class")

    nothing = of([])
    assert nothing.loc[STOMATA, ["recall", "f1", "threshold"]].tolist() == [0, 0, np.inf]
    assert np.isnan(nothing.loc[STOMATA, "precision"]) and np.isnan(nothing.loc[PSEUDO, "f1"])
    assert nothing.loc["class mean", "f1"] == 0
    stray = of([("b", STOMATA, 5, 5, 0.4), ("c", PSEUDO, 5, 5, 0.4)])
    assert stray.loc[[STOMATA, PSEUDO, "class mean"], "f1"].tolist() == [1, 0, 0.5], "a tile without truth adds FPs"
    unseen = of([("a", PSEUDO, 5, 5, 0.2), ("a", PSEUDO, 9, 9, 0.6), ("c", PSEUDO, 5, 5, 0.6)], "honest")
    assert unseen.loc[PSEUDO, ["threshold", "fp"]].tolist() == [0.6, 1], "no truth on val: its highest score there"
    assert of([], "honest").loc[STOMATA, "f1"] == 0, "nothing found anywhere is an answer"
    with pytest.raises(ValueError, match="no prediction on any of the 1 validation tiles"):
        of([("b", STOMATA, 5, 5, 0.4)], "honest")
    with pytest.raises(ValueError, match="variant must be one of 'honest', 'oracle'"):
        of([], "best")


@pytest.mark.parametrize(("rule", "change", "message"), [
    ("mask", {}, "rule must be one of 'keypoint', 'box'"),
    ("box", {"w": np.nan}, "rule 'box' needs x0, y0, w, h"),
    ("keypoint", {"score": np.nan}, "predictions: data row 1 has no number as score"),
    ("keypoint", {"x": 600}, "data row 1 has a place outside the tile, .*'tile_id': 'a'"),
])  # fmt: skip
def test_predictions_of_any_origin_are_checked(rule, change, message):
    table = found([("a", PSEUDO, 1, 1, 1.0)]).assign(**change)
    with pytest.raises(ValueError, match=message):
        metrics.detection_scores(table, world([], {"a": "test"}), rule, variant="oracle")
    with pytest.raises(ValueError, match="predictions: the column 'score' is missing"):
        metrics.matches(table.drop(columns="score"), world([], {"a": "test"}), "keypoint")


def test_severity_by_tile_and_needle():
    truth = [("a1", STOMATA, 0, 0), ("a1", PSEUDO, 99, 0), ("a2", PSEUDO, 0, 0), ("b1", STOMATA, 0, 0),
             ("b1", PSEUDO, 99, 0)]  # fmt: skip
    needl = world(truth, {"a1": "test", "a2": "test", "b1": "test", "b2": "test"})
    table = [("a1", PSEUDO, 0, 0, 0.9), ("a2", PSEUDO, 0, 0, 0.9), ("a2", STOMATA, 0, 0, 0.1),
             ("b1", STOMATA, 0, 0, 0.9), ("b2", STOMATA, 0, 0, 0.9)]  # fmt: skip
    counts = counted(table, needl, 0.5)
    rows = metrics.severity(counts, needl).set_index("unit_id")
    assert rows.loc[["a1", "a2", "b1"], ["truth", "predicted"]].to_numpy().tolist() == [[0.5, 1], [1, 1], [0.5, 0]]
    assert np.isnan(rows.loc["b2", "truth"]), "nothing annotated"
    scores = metrics.severity_scores(rows)
    assert scores == {"mae": pytest.approx(1 / 3), "pearson_r": pytest.approx(0.5), "n": 3, "n_skipped": 1}
    needles = metrics.severity(counts, needl, "needle")
    assert needles[["truth", "predicted"]].to_numpy().tolist() == [[2 / 3, 1], [0.5, 0]]
    for few in (rows.assign(predicted=0.4), rows[:1], rows[:0]):
        assert np.isnan(metrics.severity_scores(few)["pearson_r"]), "no variation, one unit, none"
    with pytest.raises(ValueError, match="unit must be one of 'tile', 'needle'"):
        metrics.severity(counts, needl, "tree")
    needl.tiles["needle_id"] = ""
    with pytest.raises(ValueError, match="without needle_id"):
        metrics.severity(counts, needl, "needle")


def test_targets_decode_to_their_points():
    truth = [("a", STOMATA, 20, 30), ("a", STOMATA, 20, 60), ("a", PSEUDO, 200, 11), ("b", PSEUDO, 0, 255)]
    needl = world(truth, {"a": "test", "b": "test", "c": "test"})
    heat, inside = keypoints.targets(needl.truth("keypoint"), ["a", "b", "c"])
    assert heat.shape == inside.shape == (3, 2, 256, 256) and heat.max() == 1 and not inside[2].any()
    assert heat[0, 1, 11, 206].item() == pytest.approx(np.exp(-0.5)), "sigma is 6 px"
    assert inside[0, 1, 11, 218] and not inside[0, 1, 11, 219]
    table = keypoints.predictions(heat, ["a", "b", "c"], threshold=0.5)
    assert sorted(table[["tile_id", "class", "x", "y"]].itertuples(index=False, name=None)) == sorted(truth)
    assert (table["score"] == 1).all() and list(table) == COLUMNS
    with pytest.raises(ValueError, match="a: class must be one of 'stomata', 'pseudothecia'; found 'mite'"):
        keypoints.targets(found([("a", "mite", 1, 1, 1.0)]), ["a"])
    # three equal maxima 15 px apart: the second falls to the first, and does not take the third with it
    chain = keypoints.targets(found([("a", STOMATA, x, 9, 1.0) for x in (50, 65, 80)]), ["a"])[0]
    assert keypoints.predictions(chain, ["a"], 0.5)["x"].tolist() == [50, 80]


def test_predictions_put_together_count_once_and_each_class_has_a_threshold():
    needl = world([("a", STOMATA, 5, 5), ("b", STOMATA, 5, 5)], {"a": "val", "b": "test"})
    parts = [found([(tile, STOMATA, 5, 5, 0.5), (tile, PSEUDO, 90, 90, 0.5)]) for tile in "ab"]
    scores = metrics.detection_scores(pd.concat(parts), needl, "keypoint").set_index("class")
    assert scores.loc[[STOMATA, PSEUDO], ["tp", "fp"]].to_numpy().tolist() == [[1, 0], [0, 1]]
    matched = metrics.matches(pd.concat(parts), needl, "keypoint")
    for tiles, thresholds in ((["b"], {STOMATA: 0.5}), ([], dict.fromkeys(CLASSES, 0.5))):
        with pytest.raises(ValueError, match="expected tiles, and one of each of stomata, pseudothecia"):
            metrics.counts(matched, tiles, thresholds)


def test_exactly_the_tolerance_and_exactly_half_are_hits_whatever_the_rounding():
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 200, (300, 2)).round(1)
    for point in places:
        assert metrics.match_keypoints(point[None] + [36.0, 0], np.ones(1), point[None]).tolist() == [0]
        whole = np.array([[*point, 36.0, 24.6]])
        assert metrics.match_boxes(whole * [1, 1, 0.5, 1], np.ones(1), whole).tolist() == [0]


def reference_loss(heat, target, inside, weight, hardest):
    total = 0.0
    for k in range(heat.shape[1]):
        error, mask = (heat[:, k] - target[:, k]).square(), inside[:, k]
        negative = error[~mask].sort(descending=True).values
        total += error[mask].mean() + weight * negative.mean() + negative[: int(hardest * len(negative))].mean()
    return total.item()


def test_the_hybrid_loss_by_hand_and_by_reference():
    heat, target, chance = torch.rand(3, 3, 2, 30, 30, generator=torch.Generator().manual_seed(0))
    maps = heat, target, chance < 0.2
    assert keypoints.hybrid_loss(*maps).item() == pytest.approx(reference_loss(*maps, 2.5, 0.02), rel=1e-5)
    chosen = {"weight": 1.0, "hardest": 0.3}
    assert keypoints.hybrid_loss(*maps, **chosen).item() == pytest.approx(reference_loss(*maps, **chosen), rel=1e-5)
    heat, inside = torch.zeros(2, 1, 1, 10, 11)
    heat[0, 0, 0, 0], heat[0, 0, 5, 5] = 2.0, 3.0
    inside[0, 0, 0, :10] = 1
    # foreground 4/10; background of 100 px 2.5 * 9/100; its two worst pixels 9/2; without a point the background alone
    for discs, expected in ((inside, 0.4 + 0.225 + 4.5), (0 * inside, 2.5 * 13 / 110 + 13 / 2)):
        assert keypoints.hybrid_loss(heat, torch.zeros_like(heat), discs.bool()).item() == pytest.approx(expected)
    for share in (2, -0.1, float("nan")):
        with pytest.raises(ValueError, match=f"hardest must be a number >= 0 and <= 1; found {share}"):
            keypoints.hybrid_loss(*maps, hardest=share)


def test_decoding_suppresses_neighbours_and_keeps_the_first_of_a_plateau():
    heat = np.zeros((100, 120))
    heat[40, 50], heat[40, 68], heat[40, 87] = 0.9, 0.8, 0.7
    assert keypoints.decode(heat, 0.1) == [(50, 40, 0.9), (87, 40, 0.7)], "18 px away is inside the window, 19 is not"
    assert keypoints.decode(heat, 0.9) == [(50, 40, 0.9)] and keypoints.decode(heat, 0.91) == []
    heat[10:13, 20:25] = 0.5
    assert keypoints.decode(heat, 0.5)[0] == (20, 10, 0.5)
    assert keypoints.decode(np.full((100, 120), 0.3), 0.3) == [(0, 0, 0.3)], "a flat map is one plateau"
    heat[:], heat[10, 10], heat[12, 5] = 0, 0.4, 0.4
    assert keypoints.decode(heat, 0.1) == [(10, 10, 0.4)], "equal peaks inside one window"
    heat[7, 9] = np.nan
    with pytest.raises(ValueError, match="^b, stomata: the heat map is NaN at x = 9, y = 7"):
        keypoints.predictions(torch.from_numpy(np.stack([np.zeros_like(heat), heat])[:, None]), ["a", "b"])
    noise = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(128, 128)), 4)
    peaks = [(x, y) for y in range(128) for x in range(128)
             if noise[y, x] == noise[max(0, y - 18) : y + 19, max(0, x - 18) : x + 19].max()]  # fmt: skip
    assert [(x, y) for x, y, _ in keypoints.decode(noise, -1.0)] == peaks and len(peaks) > 5


def test_convolving_tokens_first_is_convolving_the_upsampled_tokens():
    head = networks.TokenHead(5)
    assert not head.convolution.weight.any() and not head.convolution.bias.any(), "nothing drawn"
    torch.nn.init.normal_(head.convolution.weight)
    tokens = torch.randn(2, 5, 8, 8)
    upsampled = F.interpolate(tokens, (256, 256), mode="bilinear", align_corners=False)
    assert torch.allclose(head(tokens), head.convolution(upsampled), atol=1e-5)


def tokens_of(inside, noise=0.3):
    """Tokens 8 x 8 that see the discs: their shares of a place in two features of six, under noise."""
    seen = F.adaptive_avg_pool2d(inside.float(), 8)
    extra = torch.randn(len(inside), 4, 8, 8, generator=torch.Generator().manual_seed(0))
    return torch.cat([seen, noise * extra], dim=1)


def test_training_finds_points_and_keeps_the_best_weights():
    rng, size = np.random.default_rng(0), 128
    splits = {f"a{i}": ("train", "train", "val", "test")[i % 4] for i in range(8)}
    truth = [(tile, name, *rng.integers(10, 118, 2)) for tile in splits for name in CLASSES for _ in range(2)]
    needl = world(truth, splits)
    maps = {split: keypoints.targets(needl.truth("keypoint"), needl.ids(split), size) for split in splits.values()}
    inputs = {split: tokens_of(inside) for split, (_, inside) in maps.items()}

    def trained(epochs, train=inputs["train"], val=maps["val"][1], learning_rate=1e-2, **more):
        head, validation = networks.TokenHead(6, size), (inputs["val"], val)
        more["learning_rate"] = learning_rate
        return head, keypoints.train(head, train, *maps["train"], validation, epochs=epochs, **more)

    def areas(head, split="val"):
        return keypoints.pixel_auroc(keypoints.heat_maps(head, inputs[split]), maps[split][1])

    head, history = trained(20)
    assert torch.equal(head.convolution.weight, trained(20)[0].convolution.weight), "the seed decides everything"
    assert history["loss"].iloc[-1] < history["loss"].iloc[0] and len(history) == 20
    assert (areas(head, "test") > 0.9).all() and areas(head).sum() == pytest.approx(history["auroc_sum"].max())
    # a rate far too large: the sums go up and down, and the weights kept are those of the best look
    wild, history = trained(13, learning_rate=30.0, validate_every=3)
    assert history["epoch"].tolist() == [3, 6, 9, 12, 13] and history["auroc_sum"].nunique() > 1
    assert history["auroc_sum"].idxmax() < 4 and areas(wild).sum() == pytest.approx(history["auroc_sum"].max())
    for wrong, message in (({"train": inputs["train"][:0]}, "no training tiles"), ({"epochs": 0}, "epochs must be"),
                           ({"validate_every": -1}, "validate_every .*found -1"),
                           ({"validate_every": 0}, "validate_every must be an integer >= 1; found 0"),
                           ({"val": maps["val"][1] & False}, "no point on the val tiles"),
                           ({"train": inputs["train"] * float("nan")}, "loss became nan")):  # fmt: skip
        with pytest.raises((ValueError, FloatingPointError), match=message):
            trained(**{"epochs": 1} | wrong)


def test_a_class_missing_on_val_does_not_enter_the_choice():
    inside = torch.zeros(1, 2, 8, 8, dtype=torch.bool)
    inside[0, 0, 2, 2] = True
    heat = torch.rand(1, 2, 8, 8)
    areas = keypoints.pixel_auroc(heat, inside)
    assert areas[0] == pytest.approx((heat[0, 0, 2, 2] > heat[0, 0]).sum().item() / 63) and np.isnan(areas[1])


def test_the_fcn_is_the_paper_s_and_takes_no_random_weights(tmp_path):
    source = networks.fcn_architecture().eval()
    assert round(sum(p.numel() for p in source.parameters()) / 1e6, 1) == 35.3, "as printed"
    path = tmp_path / "fcn.pth"
    torch.save(source.state_dict(), path)
    network = networks.FCN(path, size=64)
    assert network.convolution.weight.shape == (2, 512, 1, 1) and not network.convolution.weight.any()
    # with the last layer given back it is torchvision's network on a normalised picture
    network.convolution = source.classifier[-1]
    pictures = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    mean, std = (torch.tensor(value).reshape(3, 1, 1) for value in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.inference_mode():
        expected = source((pictures / 255 - mean) / std)["out"]
    assert torch.allclose(keypoints.heat_maps(network, pictures), expected, atol=1e-5) and expected.std() > 0
    torch.save({"a": torch.zeros(1)}, path)
    for weights, error, message in ((None, WeightsNotFoundError, "Random weights are never used"),
                                    (tmp_path / "none.pth", WeightsNotFoundError, "none.pth"),
                                    (path, ValueError, "do not fit")):  # fmt: skip
        with pytest.raises(error, match=message):
            networks.FCN(weights)


def test_tokens_come_back_to_their_places(monkeypatch):
    record = SimpleNamespace(name="averages", mean=(0.5, 0.5, 0.5), std=(1.0, 1.0, 1.0))
    encoder = SimpleNamespace(record=record, dim=3, img_size=8, stand_in=False, device=torch.device("cpu"),
                              dtype="float32")  # fmt: skip
    tiles, network = torch.rand(2, 3, 8, 8) * 255, torch.nn.Identity()

    def embedded(patches, root, files, **_):
        assert root == Path("here") / "images"
        return pd.DataFrame(patches(tiles).reshape(2, -1).numpy(), index=files[::-1])

    monkeypatch.setattr(networks, "find_weights", lambda record: SimpleNamespace(path=None))
    monkeypatch.setattr(networks, "load_network", lambda *_: (network, network))
    monkeypatch.setattr(networks, "embed_files", embedded)
    maps = partial(networks.token_maps, encoder, "here", ["a", "b"], evidence="simulated")
    with pytest.raises(ValueError, match="timm networks only"):
        maps()
    network.forward_features = lambda tiles: F.avg_pool2d(tiles, (2, 4))
    with pytest.raises(ValueError, match="8 patch tokens are no square"):
        maps()
    network.forward_features = lambda tiles: F.avg_pool2d(tiles, 2)
    assert torch.allclose(maps().flip(0), F.avg_pool2d(tiles / 255 - 0.5, 2), atol=1e-6), "by name, at their places"


def test_every_task_has_a_row(monkeypatch, tmp_path):
    fixture.write(tmp_path)
    run = start("needl", data=str(tmp_path))

    def seeing(encoder, root, files, *, evidence):
        needl = evaluate.load(root)
        return tokens_of(keypoints.targets(needl.truth("keypoint"), list(files))[1], noise=0.0)

    monkeypatch.setattr(evaluate, "token_maps", seeing)
    monkeypatch.setattr(type(run), "load_encoder", lambda self, img_size: None)
    monkeypatch.setattr(evaluate, "train_head", partial(evaluate.train_head, epochs=3))
    table = evaluate.evaluate(run)
    assert list(table) == ["task", "metric", "variant", "value", "floor", "n_images"] and len(table) == 28
    assert not table.duplicated(["task", "metric", "variant"]).any()
    line = table.set_index(["task", "metric", "variant"])
    assert line.loc[("keypoints, 256 px", "pixel AUROC, class mean", "ours"), "value"] > 0.9
    f1 = line.xs("F1, class mean", level="metric")
    assert 0.2 < f1.loc[("keypoints, 256 px", "honest"), "floor"] < 0.3
    assert f1.loc[("keypoints, 256 px", "oracle"), "value"] > 0.6 > f1.loc[("36 px boxes, 256 px", "oracle"), "value"]
    for variant in ("ours", "paper"):
        assert line.loc[("diversity sampling", "farthest from the 4 chosen", variant), "n_images"] == 12
    places = evaluate.grid_detections(["a"]).query("`class` == 'stomata'")[["x", "y"]].to_numpy()
    corner = np.stack(np.meshgrid(range(256), range(256)), -1).reshape(-1, 2)
    assert np.linalg.norm(corner[:, None] - places[None], axis=2).min(axis=1).max() < 37
