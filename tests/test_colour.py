"""Table 15 and Figure 8: grey copies, paired readings and their table, against small references."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from phoebi_lib.decoders import ProtoMatch
from phoebi_lib.studies import colour

CODES = ("bs", "bt", "fj")
RUN = {"profile": "smoke", "dataset": "sim:smoke", "encoder": "e", "evidence": "simulated"}


def test_grey_is_rounded_luma_in_three_channels():
    frame = np.random.default_rng(0).integers(0, 256, (3, 40, 30), dtype=np.uint8)
    found = colour.grey(frame, "bs/00001.jpg")
    luma = np.tensordot([0.299, 0.587, 0.114], frame.astype(float), axes=1)
    assert found.dtype == np.uint8 and found.shape == frame.shape
    assert np.abs(found - luma).max() <= 0.51
    assert (found == found[:1]).all()


def test_grey_leaves_grey_alone_and_the_frame_untouched():
    level = np.random.default_rng(1).integers(0, 256, (1, 16, 16), dtype=np.uint8)
    frame = np.repeat(level, 3, axis=0)
    np.testing.assert_array_equal(colour.grey(frame), frame)
    primary = np.zeros((3, 2, 2), dtype=np.uint8)
    primary[1] = 255  # pure green
    before = primary.copy()
    assert (colour.grey(primary) == 150).all()  # 0.587 * 255 = 149.7
    np.testing.assert_array_equal(primary, before)


def test_readings_by_hand():
    scores = np.array([[0.9, 0.5, 0.7], [0.2, 0.3, 0.8]])
    found = colour.readings(scores, [0, 1], np.array([0.8, 0.3, 0.0]))
    assert found["own"].tolist() == [0.9, 0.3]
    assert found["margin"].tolist() == pytest.approx([0.2, -0.5])
    assert found["passed"].tolist() == [1, 0], "at the threshold an image does not pass"
    np.testing.assert_array_equal(scores[0], [0.9, 0.5, 0.7])


def unit(values):
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def pool(features, seed_ids=None):
    n = len(features)
    species = np.arange(n) % 3
    return SimpleNamespace(
        X=features, Y=np.eye(3, dtype=int)[species], codes=CODES,
        ids=seed_ids or [f"{CODES[k]}/{i}.jpg" for i, k in enumerate(species)],
        manifest=pd.DataFrame({"frame": np.arange(n) // 3 + 1}),
    )  # fmt: skip


@pytest.fixture(scope="module")
def setting():
    rng = np.random.default_rng(0)
    centres = unit(rng.normal(size=(3, 1, 8)))
    make = lambda noise: unit(centres[np.arange(18) % 3] + noise * rng.normal(size=(18, 4, 8))).astype(np.float32)  # noqa: E731
    train = make(0.3)
    decoder = ProtoMatch().fit(train, np.eye(3, dtype=int)[np.arange(18) % 3])
    decoder.calibrate(train, np.eye(3, dtype=int)[np.arange(18) % 3])
    return decoder, pool(make(0.3)), pool(make(0.6))


def test_paired_against_plain_dot_products(setting):
    decoder, rgb, grey = setting
    found = colour.paired(decoder, rgb, grey)
    own = {}
    for name, part in (("rgb", rgb), ("grey", grey)):
        cosine = np.array([[np.mean(x @ p) for p in decoder.prototypes_] for x in part.X.astype(float)])
        k = np.arange(18) % 3
        own[name] = cosine[range(18), k]
        best_other = [max(row[j] for j in range(3) if j != i) for row, i in zip(cosine, k, strict=True)]
        np.testing.assert_allclose(found[f"margin_{name}"], own[name] - best_other, atol=1e-6)
        np.testing.assert_array_equal(found[f"pass_{name}"], own[name] > decoder.thresholds_[k])
    np.testing.assert_allclose(found["drop"], own["rgb"] - own["grey"], atol=1e-6)
    np.testing.assert_allclose(found["delta_margin"], found["margin_grey"] - found["margin_rgb"])
    assert found["species"].tolist() == [CODES[i % 3] for i in range(18)]


def test_the_same_images_in_grey_change_nothing(setting):
    decoder, rgb, _ = setting
    same = colour.paired(decoder, rgb, rgb)
    assert (same["drop"] == 0).all() and (same["delta_margin"] == 0).all()


def test_pools_must_pair(setting):
    decoder, rgb, grey = setting
    other = SimpleNamespace(**{**vars(grey), "ids": grey.ids[::-1]})
    with pytest.raises(ValueError, match="same images"):
        colour.paired(decoder, rgb, other)
    mixed = SimpleNamespace(**{**vars(rgb), "Y": np.ones((18, 3), dtype=int)})
    with pytest.raises(ValueError, match="one species"):
        colour.paired(decoder, mixed, grey)


def images(drops, margins=0.0, passed=1.0, frames=4, crops=1):
    lines = []
    for code, drop in zip(CODES, drops, strict=True):
        for frame in range(frames):
            for _ in range(crops):
                spread = 0.01 * (frame - (frames - 1) / 2)
                line = {"species": code, "frame": frame, "own_rgb": 0.9, "own_grey": 0.9 - drop - spread,
                        "drop": drop + spread, "pass_rgb": 1.0, "pass_grey": passed, "margin_rgb": 0.1,
                        "margin_grey": 0.1 + margins, "delta_margin": margins}  # fmt: skip
                lines.append(line)
    return pd.DataFrame(lines)


def values(table):
    return table.set_index(["row", "column"])["value"]


def test_table_15_by_hand():
    found = values(colour.table_15(images((0.06, 0.08, 0.13), passed=0.4), CODES, n=100, **RUN))
    assert found["bs", "drop"] == pytest.approx(0.06) and found["fj", "own_grey"] == pytest.approx(0.77)
    assert found["mean", "drop"] == pytest.approx(0.09)
    assert found["mean", "drop_std"] == pytest.approx(np.sqrt((0.03**2 + 0.01**2 + 0.04**2) / 2))
    assert found["mean", "drop_std_ddof0"] == pytest.approx(np.sqrt((0.03**2 + 0.01**2 + 0.04**2) / 3))
    assert found["mean", "drop_range_less_mean"] == pytest.approx(0.07 - 0.09)
    assert found["species", "failing_grey"] == 3 and found["species", "failing_rgb"] == 0


def test_half_the_images_above_the_threshold_do_not_fail():
    found = values(colour.table_15(images((0.06, 0.08, 0.13), passed=0.5), CODES, n=10, **RUN))
    assert found["species", "failing_grey"] == 0


def test_crops_of_a_frame_do_not_narrow_the_interval():
    one, three = (colour.table_15(images((0.06, 0.08, 0.13), crops=c), CODES, n=200, **RUN) for c in (1, 3))
    ends = [t[(t["row"] == "bs") & (t["column"] == "drop")].iloc[0] for t in (one, three)]
    assert ends[0][["low", "high"]].tolist() == pytest.approx(ends[1][["low", "high"]].tolist())
    assert ends[1]["n_images"] == 12 and ends[1]["n_frames"] == 4
    assert ends[0]["low"] < 0.06 < ends[0]["high"]


def test_the_order_of_images_does_not_matter():
    table = images((0.06, 0.08, 0.13))
    one, two = (colour.table_15(t, CODES, n=50, **RUN) for t in (table, table.sample(frac=1, random_state=1)))
    pd.testing.assert_frame_equal(one, two)


def test_the_printed_numbers_stand_beside_ours():
    paper = colour.table_15(images((0.06, 0.08, 0.13)), CODES, n=10, **RUN).set_index(["row", "column"])["paper"]
    assert paper["bs", "own_rgb"] == 0.732 and paper["bt", "drop"] == 0.056
    assert paper["mean", "drop"] == 0.080 and paper["mean", "drop_std"] == 0.033
    assert np.isnan(paper["mean", "drop_std_ddof0"]), "the paper's spread is the one with ddof 1"
    assert paper["species", "failing_grey"] == 4


def test_a_species_without_images_is_named():
    with pytest.raises(ValueError, match="fj"):
        colour.table_15(images((0.1, 0.1, 0.1)).query("species != 'fj'"), CODES, n=5, **RUN)


def test_channel_means_of_the_first_image_of_each_combination():
    frames = {0: (10, 20, 30), 1: (0, 0, 0), 2: (90, 60, 30)}
    dataset = SimpleNamespace(
        manifest=pd.DataFrame({"combination": ["b", "b", "a"], "path": ["1", "2", "3"]}),
        read=lambda i: np.tile(np.array(frames[i], dtype=np.uint8)[:, None, None], (1, 4, 4)),
    )  # fmt: skip
    found = colour.channel_means(dataset)
    assert found["combination"].tolist() == ["b", "a"]
    assert found[list(colour.CHANNELS)].to_numpy().tolist() == [[10, 20, 30], [90, 60, 30]]
    run = {"profile": "smoke", "dataset": "sim:smoke", "evidence": "simulated"}
    table = colour.cast(found, n=20, **run).set_index(["row", "column"])
    assert table.loc[("red", "mean"), "value"] == 50 and table.loc[("red", "mean"), "paper"] == 147
    assert table.loc[("images", "red_above_blue"), "value"] == 0.5
    assert table.loc[("images", "count"), "value"] == 2 and table.loc[("images", "count"), "paper"] == 40
