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
from phoebi_lib.siblings.needl.layout import CLASSES, COLUMNS, Needl

STOMATA, PSEUDO = CLASSES
BOX = ["x0", "y0", "w", "h"]
SIDE = 60.0


def world(truth, splits):
    """The two tables of (tile, class, x, y) and {tile: split}; points also get boxes, and needles by letter."""
    tiles = pd.DataFrame({"tile_id": list(splits), "path": "", "source": "benchtop", "sampling": "random",
                          "split": list(splits.values()), "needle_id": [tile[0] for tile in splits]})  # fmt: skip
    points = pd.DataFrame(truth, columns=COLUMNS[:4])
    boxes = points.assign(x0=points["x"] - SIDE / 2, y0=points["y"] - SIDE / 2, w=SIDE, h=SIDE, x=np.nan, y=np.nan)
    return Needl(Path("."), tiles, pd.concat([points.reindex(columns=COLUMNS), boxes], ignore_index=True))


def found(rows):
    """Predictions of (tile, class, x, y, score), boxes included."""
    table = pd.DataFrame(rows, columns=["tile_id", "class", "x", "y", "score"])
    return table.assign(x0=table["x"] - SIDE / 2, y0=table["y"] - SIDE / 2, w=SIDE, h=SIDE)


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
        shifts = [np.abs(boxes[i][:2] - truth[j][:2]) for j in free]
        common = [float((SIDE - shift).clip(0).prod()) for shift in shifts]
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


def test_keypoint_vector_of_the_benchmark():
    truth = np.array([[50.0, 50], [110, 50]])
    points, scores = np.array([[80.0, 50], [40, 50], [150, 50]]), np.array([0.9, 0.8, 0.7])
    assert metrics.match_keypoints(points, scores, truth).tolist() == [1, 0, -1]
    table = metrics.summary(metrics.counts(
        found([("a", STOMATA, *p, s) for p, s in zip(points, scores, strict=True)]),
        world([("a", STOMATA, *t) for t in truth], {"a": "test"}), "keypoint", ["a"], dict.fromkeys(CLASSES, 0.0),
    )).set_index("class")  # fmt: skip
    assert table.loc[STOMATA, ["tp", "fp", "fn", "f1"]].tolist() == [2, 1, 0, 0.8]
    assert table.loc[PSEUDO, ["precision", "recall", "f1"]].isna().all() and table.loc["class mean", "f1"] == 0.8


def test_keypoints_at_the_tolerance_and_ties():
    assert metrics.match_keypoints(np.array([[0.0, 0]]), np.ones(1), np.array([[36.0, 0]])).tolist() == [0]
    assert metrics.match_keypoints(np.array([[0.0, 0]]), np.ones(1), np.array([[36.01, 0]])).tolist() == [-1]
    points, truth = np.array([[0.0, 0], [20, 0]]), np.array([[10.0, 0]])
    assert metrics.match_keypoints(points, np.array([0.1, 0.9]), truth).tolist() == [-1, 0], "the surer one"
    assert metrics.match_keypoints(points, np.array([0.5, 0.5]), truth).tolist() == [0, -1], "then the first"
    assert metrics.match_keypoints(truth, np.ones(1), points).tolist() == [0]


def test_boxes_take_the_best_free_truth_by_falling_score():
    truth = np.array([[0.0, 0, 10, 10], [4, 0, 10, 10]])
    boxes = np.array([[1.0, 0, 10, 10], [0, 0, 10, 10], [1, 0, 10, 10]])
    assert metrics.match_boxes(boxes, np.array([0.9, 0.8, 0.7]), truth).tolist() == [0, -1, 1], "IoU 9/11, 6/14, 7/13"
    assert metrics.match_boxes(boxes, np.array([0.7, 0.9, 0.8]), truth).tolist() == [-1, 0, 1]
    half = np.array([[0.0, 0, 10, 5]])
    assert metrics.match_boxes(half, np.ones(1), truth[:1]).tolist() == [0], "exactly 0.5 is a hit"
    assert metrics.match_boxes(half - [0, 0, 0, 0.01], np.ones(1), truth[:1]).tolist() == [-1]
    flat = np.array([[0.0, 0, 0, 10]])
    assert metrics.box_iou(flat, flat).tolist() == [[0]]
    assert metrics.match_boxes(flat, np.ones(1), flat).tolist() == [-1]
    assert metrics.match_boxes(boxes, np.ones(3), truth[:0]).tolist() == [-1] * 3


def test_box_iou_is_that_of_torchvision():
    from torchvision.ops import box_iou

    boxes = np.random.default_rng(0).uniform(0, 50, (2, 30, 4))
    corners = [torch.from_numpy(np.hstack([b[:, :2], b[:, :2] + b[:, 2:]])) for b in boxes]
    assert np.allclose(metrics.box_iou(*boxes), box_iou(*corners).numpy())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", ["keypoint", "box"])
def test_the_curve_is_matching_anew_at_every_threshold(seed, rule):
    needl, table = random_world(seed)
    tiles, truth = needl.ids("test"), needl.truth(rule)
    curve = metrics.f1_curve(table, needl, rule, tiles)
    for line in curve.to_dict("records"):
        hits = n = total = 0
        for tile in tiles:
            p, t = (frame[(frame["tile_id"] == tile) & (frame["class"] == line["class"])] for frame in (table, truth))
            p = p[p["score"] >= line["threshold"]]
            n, total = n + len(p), total + len(t)
            count, columns = (reference_points, ["x", "y"]) if rule == "keypoint" else (reference_boxes, BOX)
            hits += count(p[columns].to_numpy(), p["score"].to_numpy(), t[columns].to_numpy())
        assert (line["tp"], line["fp"], line["fn"]) == (hits, n - hits, total - hits)
        assert line["f1"] == pytest.approx(2 * hits / (n + total))
    assert set(curve["threshold"]) == set(table["score"]) and curve["f1"].nunique() > 4
    oracle, honest = (metrics.detection_scores(table, needl, rule, variant=variant).set_index("class")
                      for variant in ("oracle", "honest"))  # fmt: skip
    assert oracle.loc[list(CLASSES), "f1"].tolist() == curve.groupby("class", sort=False)["f1"].max().tolist()
    val = metrics.f1_curve(table, needl, rule, needl.ids("val"))
    for name in CLASSES:
        best = val[(val["class"] == name)].sort_values(["f1", "threshold"]).iloc[-1]
        assert honest.loc[name, "threshold"] == best["threshold"], "of equals the highest"
    assert honest.loc["class mean", "f1"] == pytest.approx(honest.loc[list(CLASSES), "f1"].mean())
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
    with pytest.raises(ValueError, match=r"entry 1, a point at \(600, 5\), lies outside c"):
        of([("b", STOMATA, 5, 5, 0.4), ("c", STOMATA, 600, 5, 0.4)])
    with pytest.raises(ValueError, match="unknown variant"):
        of([], "best")
    with pytest.raises(ValueError, match="no tiles to score"):
        metrics.counts(found([]), needl, "box", [], {})
    with pytest.raises(ValueError, match="rule 'box' needs"):
        metrics.f1_curve(found([("a", PSEUDO, 1, 1, 1.0)]).assign(w=np.nan), needl, "box", ["a"])
    with pytest.raises(ValueError, match="unknown rule"):
        metrics.f1_curve(found([]), needl, "mask", ["a"])
    for column, value in (("score", np.nan), ("x", np.inf), ("class", "hole"), ("tile_id", "z"), ("w", -1.0)):
        with pytest.raises(ValueError, match="predictions"):
            metrics.check_predictions(found([("a", PSEUDO, 1, 1, 1.0)]).assign(**{column: value}), needl)
    with pytest.raises(ValueError, match="lack the columns score"):
        metrics.check_predictions(found([]).drop(columns="score"), needl)


def test_severity_by_tile_and_needle():
    truth = [("a1", STOMATA, 0, 0), ("a1", PSEUDO, 99, 0), ("a2", PSEUDO, 0, 0), ("b1", STOMATA, 0, 0),
             ("b1", PSEUDO, 99, 0)]  # fmt: skip
    needl = world(truth, {"a1": "test", "a2": "test", "b1": "test", "b2": "test"})
    table = found([("a1", PSEUDO, 0, 0, 0.9), ("a2", PSEUDO, 0, 0, 0.9), ("a2", STOMATA, 0, 0, 0.1),
                   ("b1", STOMATA, 0, 0, 0.9), ("b2", STOMATA, 0, 0, 0.9)])  # fmt: skip
    limits, tiles = dict.fromkeys(CLASSES, 0.5), needl.ids("test")
    rows = metrics.severity(table, needl, "keypoint", tiles, limits).set_index("unit_id")
    assert rows.loc[["a1", "a2", "b1"]].to_numpy().tolist() == [[0.5, 1], [1, 1], [0.5, 0]]
    assert np.isnan(rows.loc["b2", "truth"]), "nothing annotated"
    scores = metrics.severity_scores(rows)
    assert scores == {"mae": pytest.approx(1 / 3), "pearson_r": pytest.approx(0.5), "n": 3, "n_skipped": 1}
    needles = metrics.severity(table, needl, "keypoint", tiles, limits, unit="needle")
    assert needles[["truth", "predicted"]].to_numpy().tolist() == [[2 / 3, 1], [0.5, 0]]
    assert np.isnan(metrics.severity_scores(rows.assign(predicted=0.4))["pearson_r"])
    with pytest.raises(ValueError, match="unknown unit"):
        metrics.severity(table, needl, "keypoint", tiles, limits, unit="tree")
    needl.tiles["needle_id"] = ""
    with pytest.raises(ValueError, match="needle_id"):
        metrics.severity(table, needl, "keypoint", tiles, limits, unit="needle")


def test_targets_decode_to_their_points():
    truth = [("a", STOMATA, 20, 30), ("a", STOMATA, 20, 60), ("a", PSEUDO, 200, 11), ("b", PSEUDO, 0, 255)]
    needl = world(truth, {"a": "test", "b": "test", "c": "test"})
    heat, inside = keypoints.targets(needl.truth("keypoint"), ["a", "b", "c"])
    assert heat.shape == inside.shape == (3, 2, 256, 256) and heat.max() == 1 and not inside[2].any()
    assert heat[0, 1, 11, 206].item() == pytest.approx(np.exp(-0.5)), "sigma is 6 px"
    assert inside[0, 1, 11, 218] and not inside[0, 1, 11, 219]
    table = keypoints.predictions(heat, ["a", "b", "c"], threshold=0.5)
    assert sorted(table[["tile_id", "class", "x", "y"]].itertuples(index=False, name=None)) == sorted(truth)
    assert (table["score"] == 1).all()


def reference_loss(heat, target, inside, weight, hardest):
    total = 0.0
    for k in range(heat.shape[1]):
        error = (heat[:, k] - target[:, k]).square().flatten()
        mask = inside[:, k].flatten()
        negative = error[~mask].sort(descending=True).values
        total += error[mask].mean() + weight * negative.mean() + negative[: int(hardest * len(negative))].mean()
    return total


def test_the_hybrid_loss_by_hand_and_by_reference():
    generator = torch.Generator().manual_seed(0)
    heat, target = torch.rand(2, 3, 2, 30, 30, generator=generator)
    inside = torch.rand(3, 2, 30, 30, generator=generator) < 0.2
    for arguments in ((2.5, 0.02), (1.0, 0.3)):
        value = keypoints.hybrid_loss(heat, target, inside, weight=arguments[0], hardest=arguments[1])
        assert value.item() == pytest.approx(reference_loss(heat, target, inside, *arguments).item(), rel=1e-5)
    assert keypoints.hybrid_loss(heat, target, inside).item() == pytest.approx(
        reference_loss(heat, target, inside, 2.5, 0.02).item(), rel=1e-5)  # fmt: skip
    heat = torch.zeros(1, 1, 10, 11)
    heat[0, 0, 0, 0], heat[0, 0, 5, 5] = 2.0, 3.0
    inside = torch.zeros(1, 1, 10, 11, dtype=torch.bool)
    inside[0, 0, 0, :10] = True
    # foreground 4/10; background of 100 px 2.5 * 9/100; its two worst pixels 9/2
    assert keypoints.hybrid_loss(heat, torch.zeros_like(heat), inside).item() == pytest.approx(0.4 + 0.225 + 4.5)
    none = torch.zeros_like(inside)
    assert keypoints.hybrid_loss(heat, torch.zeros_like(heat), none).item() == pytest.approx(2.5 * 13 / 110 + 13 / 2)


def test_decoding_suppresses_neighbours_and_keeps_the_first_of_a_plateau():
    heat = np.zeros((100, 120))
    heat[40, 50], heat[40, 68], heat[40, 87] = 0.9, 0.8, 0.7
    assert keypoints.decode(heat, 0.1) == [(50, 40, 0.9), (87, 40, 0.7)], "18 px away is inside the window, 19 is not"
    assert keypoints.decode(heat, 0.9) == [(50, 40, 0.9)] and keypoints.decode(heat, 0.91) == []
    heat[10:13, 20:25] = 0.5
    assert keypoints.decode(heat, 0.5)[0] == (20, 10, 0.5)
    heat[:] = 0.3
    assert keypoints.decode(heat, 0.3) == [(0, 0, 0.3)], "a flat map is one plateau"
    heat[:], heat[10, 10], heat[12, 5] = 0, 0.4, 0.4
    assert keypoints.decode(heat, 0.1) == [(10, 10, 0.4)], "equal peaks inside one window"
    heat[7, 9] = np.nan
    with pytest.raises(ValueError, match="NaN at x = 9, y = 7"):
        keypoints.decode(heat)
    with pytest.raises(ValueError, match="^a, stomata: the heat map is NaN"):
        keypoints.predictions(torch.from_numpy(np.stack([heat, heat])[None]), ["a"])
    noise = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(128, 128)), 4)
    peaks = [(x, y) for y in range(128) for x in range(128)
             if noise[y, x] == noise[max(0, y - 18) : y + 19, max(0, x - 18) : x + 19].max()]  # fmt: skip
    assert [(x, y) for x, y, _ in keypoints.decode(noise, -1.0)] == peaks and len(peaks) > 5


def test_convolving_tokens_first_is_convolving_the_upsampled_tokens():
    head = networks.keypoint_network("tokens", dim=5)
    assert not head.convolution.weight.any(), "nothing drawn"
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
    parts = {split: needl.ids(split) for split in ("train", "val", "test")}
    maps = {split: keypoints.targets(needl.truth("keypoint"), tiles, size) for split, tiles in parts.items()}
    inputs = {split: tokens_of(inside) for split, (_, inside) in maps.items()}
    validation = inputs["val"], maps["val"][1]

    def trained(epochs, rate=1e-2, **more):
        head = networks.TokenHead(6, size)
        return head, keypoints.train(head, inputs["train"], *maps["train"], validation, epochs=epochs,
                                     learning_rate=rate, **more)  # fmt: skip

    def areas(head, split="val"):
        return keypoints.pixel_auroc(keypoints.heat_maps(head, inputs[split]), maps[split][1])

    head, history = trained(20)
    assert torch.equal(head.convolution.weight, trained(20)[0].convolution.weight), "the seed decides everything"
    assert history["loss"].iloc[-1] < history["loss"].iloc[0] and len(history) == 20
    assert (areas(head, "test") > 0.9).all()
    assert areas(head).sum() == pytest.approx(history["auroc_sum"].max())
    # a rate far too large: the sums go up and down, and the weights kept are those of the best look
    wild, history = trained(13, rate=30.0, validate_every=3)
    assert history["epoch"].tolist() == [3, 6, 9, 12, 13] and history["auroc_sum"].nunique() > 1
    assert history["auroc_sum"].idxmax() < 4 and areas(wild).sum() == pytest.approx(history["auroc_sum"].max())
    for arguments, message in (
        ((inputs["train"][:0], *maps["train"], validation), "no training tiles"),
        ((inputs["train"], *maps["train"], (validation[0], validation[1] & False)), "no point on the val tiles"),
        ((inputs["train"] * float("nan"), *maps["train"], validation), "loss is nan"),
    ):
        with pytest.raises(ValueError, match=message):
            keypoints.train(networks.TokenHead(6, size), *arguments, epochs=1)


def test_a_class_missing_on_val_does_not_enter_the_choice():
    inside = torch.zeros(1, 2, 8, 8, dtype=torch.bool)
    inside[0, 0, 2, 2] = True
    heat = torch.rand(1, 2, 8, 8)
    areas = keypoints.pixel_auroc(heat, inside)
    assert areas[0] == pytest.approx((heat[0, 0, 2, 2] > heat[0, 0]).sum().item() / 63) and np.isnan(areas[1])


def test_the_fcn_is_the_paper_s_and_takes_no_random_weights(tmp_path):
    source = networks.fcn_architecture()
    assert round(sum(p.numel() for p in source.parameters()) / 1e6, 1) == 35.3, "as printed"
    path = tmp_path / "fcn.pth"
    torch.save(source.state_dict(), path)
    network = networks.keypoint_network("fcn_resnet50", weights=path)
    state, mine = source.state_dict(), network.network.state_dict()
    assert all(torch.equal(state[key], mine[key]) for key in state if not key.startswith("classifier.4."))
    assert mine["classifier.4.weight"].shape == (2, 512, 1, 1) and not mine["classifier.4.weight"].any()
    torch.nn.init.normal_(network.network.classifier[-1].weight)
    pictures = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    grey = torch.tensor([[[[0.485]], [[0.456]], [[0.406]]]]), torch.tensor([[[[0.229]], [[0.224]], [[0.225]]]])
    heat = keypoints.heat_maps(network, pictures)
    with torch.inference_mode():
        expected = network.network((pictures / 255 - grey[0]) / grey[1])["out"]
    assert heat.shape == (1, 2, 64, 64) and torch.allclose(heat, expected)
    torch.save({"a": torch.zeros(1)}, path)
    for arguments, error, message in (
        ({"backbone": "fcn_resnet50"}, WeightsNotFoundError, "Random weights are never used"),
        ({"backbone": "fcn_resnet50", "weights": tmp_path / "none.pth"}, WeightsNotFoundError, "none.pth"),
        ({"backbone": "fcn_resnet50", "weights": path}, ValueError, "do not fit"),
        ({"backbone": "tokens"}, ValueError, "needs dim"), ({"backbone": "unet"}, ValueError, "unknown backbone"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            networks.keypoint_network(**arguments)


class Averages(torch.nn.Module):
    """A network whose tokens are means over 2 x 2 px."""

    def forward_features(self, tiles):
        return F.avg_pool2d(tiles, 2)


def test_tokens_come_back_to_their_places(monkeypatch):
    record = SimpleNamespace(name="averages", mean=(0.5, 0.5, 0.5), std=(1.0, 1.0, 1.0))
    device = torch.device("cpu")
    encoder = SimpleNamespace(record=record, dim=3, img_size=8, stand_in=False, device=device, dtype="float32")
    tiles = torch.rand(2, 3, 8, 8) * 255

    def embedded(patches, root, files, **_):
        rows = patches(tiles).reshape(2, -1).numpy()
        return pd.DataFrame(rows, index=files[::-1]) if root == Path("here") / "images" else None

    network = Averages()
    monkeypatch.setattr(networks, "find_weights", lambda record: SimpleNamespace(path=None))
    monkeypatch.setattr(networks, "load_network", lambda *_: (network, network))
    monkeypatch.setattr(networks, "embed_files", embedded)
    tokens = networks.token_maps(encoder, "here", ["a", "b"], evidence="simulated")
    assert torch.allclose(tokens.flip(0), F.avg_pool2d(tiles / 255 - 0.5, 2), atol=1e-6), "by name, and at their places"
    network.forward_features = lambda tiles: F.avg_pool2d(tiles, (2, 4))
    with pytest.raises(ValueError, match="8 patch tokens are no square"):
        networks.token_maps(encoder, "here", ["a", "b"], evidence="simulated")
    network = torch.nn.Identity()
    with pytest.raises(ValueError, match="timm networks only"):
        networks.token_maps(encoder, "here", ["a", "b"], evidence="simulated")


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
