"""The sweep over encoders and its tables, on tiny pictures and encoders of eight numbers a tile."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

from phoebi_lib import features
from phoebi_lib.baselines import LinearProbe
from phoebi_lib.catalogue import CODES
from phoebi_lib.encoder_records import get_record, list_encoders
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.limits import Limits
from phoebi_lib.metrics import macro_f1, per_sample_f1, sample_f1
from phoebi_lib.paper import cells, printed, quoted
from phoebi_lib.paper.claims.engine import Cell, lookup
from phoebi_lib.paper.claims.results import CLAIMS
from phoebi_lib.protocols import METHODS
from phoebi_lib.studies import encoder_sweep as sweep
from phoebi_lib.studies import encoder_tables as tables
from phoebi_lib.studies.readings import NOT_FITTED, reading
from phoebi_lib.weights import Weights, WeightsNotFoundError
from tests.tiny_run import write_pictures

RESNET, LITE0, CONTROL = "resnet50.a1_in1k", "efficientnet_lite0", "efficientnet_lite0_untrained"
HERE: set[str] = set()
EMBEDDED: list[str] = []
Y, CALLS = ([f"{kind}_{code}" for code in CODES] for kind in ("y", "pred"))


class TinyEncoder:
    """Eight numbers of a tile, another projection of its columns for each name; the control sees only the mean."""

    dim, img_size, device, dtype, stand_in = 8, 16, torch.device("cpu"), "float32", False

    def __init__(self, name):
        self.record = replace(get_record(name), dim=8)
        self.identity = {"name": name}

    def __call__(self, tiles):
        seed = sum(self.record.name.encode())
        matrix = torch.from_numpy(np.random.default_rng(seed).normal(size=(16, 8)).astype(np.float32))
        columns = tiles.mean(dim=(1, 2))
        return (columns.mean(dim=1, keepdim=True) if self.record.name == CONTROL else columns - 120) @ matrix[
            : 1 if self.record.name == CONTROL else 16
        ] + 0.01


@dataclass(frozen=True)
class SweepRun:
    data: object
    encoder: str = LITE0
    profile: str = "smoke"
    dataset: str = "tiny"
    seed: int = 1337
    compat: str = "corrected"
    grid: int = 2
    limits: Limits = Limits(ablation=(2, 1, 1), resamples=40)

    def open_dataset(self):
        return self.data

    def open_pool(self):
        return self.embed(self.data)

    def embed(self, dataset):
        if not sweep.weights_here(self.encoder):
            raise WeightsNotFoundError(f"no weights for {self.encoder}")
        EMBEDDED.append(self.encoder)
        front_end = FrontEnd(tile_size=16, grid=self.grid, sigma=16)
        return features.embed(dataset, TinyEncoder(self.encoder), front_end, progress=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"), frames=5)


def find(record):
    if record.name not in {*sweep.EMBEDDED, *HERE}:
        raise WeightsNotFoundError(record.name)
    return Weights(None, "0" * 64, False)


@pytest.fixture(scope="module", autouse=True)
def apart(tmp_path_factory):
    """Pools and rows of their own, short training, and weights that are where the tests say."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("POOLS", "RESULTS"):
            patch.setenv(f"PHOEBI_{name}", str(tmp_path_factory.mktemp(name.lower())))
        patch.setenv("PHOEBI_QUIET", "1")
        patch.setattr(sweep, "find_weights", find)
        for name in ("SimplexUnmix", "ChannelGroup", "LinearProbe"):
            patch.setitem(METHODS, f"{name} (2,000 updates)", (METHODS[name][0], {"updates": 40}))
        yield


@pytest.fixture(autouse=True)
def no_weights():
    yield
    HERE.clear()
    EMBEDDED.clear()


@pytest.fixture(scope="module")
def run(data):
    return SweepRun(data)


@pytest.fixture(scope="module")
def pools(run):
    return sweep.open_pools(run)


@pytest.fixture(scope="module")
def probes(run, pools):
    return sweep.encoder_rows(run, pools, "random", sweep.PROBE)


@pytest.fixture(scope="module")
def four(run, probes):
    return tables.table_4(run, probes, CODES)


@pytest.fixture(scope="module")
def decoders(run, pools):
    pair = {name: pools[name] for name in sweep.EMBEDDED_PAIR}
    return sweep.encoder_rows(run, pair, "lco-1337", sweep.DECODERS)


@pytest.fixture(scope="module")
def seven(run, decoders):
    return tables.table_7(run, decoders, CODES, "lco-1337")


def cell(table, row, column, name="value"):
    return table.loc[(table["row"] == row) & (table["column"] == column), name].item()


# ---------------------------------------------------------------- which encoders, which images


def test_a_run_makes_features_of_what_is_here_or_of_what_it_names(run, monkeypatch):
    assert sweep.to_run(run) == sweep.EMBEDDED
    HERE.update({RESNET, "uni", "phikon"})
    monkeypatch.setattr(sweep, "find_spec", lambda name: None if name == "transformers" else name)
    assert sweep.to_run(run) == (RESNET, "uni", *sweep.EMBEDDED), "phikon's package is not installed"
    HERE.add("prov-gigapath")
    assert sweep.to_run(run) == (RESNET, "uni", *sweep.EMBEDDED), "too large for a CPU unless it is asked for"
    assert "prov-gigapath" in sweep.to_run(replace(run, encoder="prov-gigapath"))
    monkeypatch.setenv("PHOEBI_DEVICE", "cuda")
    assert "prov-gigapath" in sweep.to_run(run)
    monkeypatch.delenv("PHOEBI_DEVICE")
    assert sweep.to_run(replace(run, encoder=RESNET)) == (RESNET, *sweep.EMBEDDED)
    assert sweep.to_run(replace(run, encoder="UNI ViT-L")) == ("uni", *sweep.EMBEDDED)
    with pytest.raises(WeightsNotFoundError, match="convnext"):
        sweep.open_pools(replace(run, encoder="convnext_base.fb_in22k_ft_in1k"))


def test_every_encoder_sees_the_same_capped_images(run, pools):
    assert sweep.sizes(run, "random") == {"train": 80, "val": 40, "test": 40}
    assert sweep.sizes(run, "lco-1337") == {"train": 93, "val": 31, "test": 36}
    assert sweep.sizes(replace(run, limits=Limits()), "random") == {"train": 120, "val": 40, "test": 40}
    assert tuple(pools) == sweep.EMBEDDED
    assert {tuple(pool.ids) for pool in pools.values()} == {tuple(sweep.images(run).manifest["path"])}


def test_a_cap_that_would_move_images_between_parts_is_refused(run, monkeypatch):
    parts = sweep.ablation_rows(run.data.manifest, (2, 1, 1))
    monkeypatch.setattr(sweep, "ablation_rows", lambda *_: {**parts, "val": parts["test"], "test": parts["val"]})
    with pytest.raises(ValueError, match="ablation"):
        sweep.images(run)


def test_rows_are_those_of_the_probe(run, pools, probes):
    pool, rows = pools[LITE0], probes[LITE0]
    parts = {part: rows_ for part, rows_ in sweep.split(pool.manifest, "random", grouping="frame").items()}
    X, labels = {p: pool.take(i) for p, i in parts.items()}, {p: pool.Y[i] for p, i in parts.items()}
    probe = LinearProbe(random_state=1337).fit(X["train"], labels["train"], validation=(X["val"], labels["val"]))
    mine = rows[(rows["method"] == "LinearProbe") & (rows["part"] == "test")]
    assert np.allclose(mine[[f"score_{code}" for code in CODES]], probe.decision_function(X["test"]))
    assert (mine["learning_rate"] == probe.learning_rate_).all() and (mine["updates"] == 10).all()
    longer = rows[rows["method"] == "LinearProbe (2,000 updates)"]
    assert set(longer["updates"]) == {40} and set(longer["part"]) == {"val", "test"}


# ---------------------------------------------------------------- a sweep fills the table


def test_a_sweep_over_encoders_fills_the_table(run, probes, monkeypatch):
    """One run names ResNet-50; a later one, without its weights, shows its row and neither embeds nor fits it again."""
    HERE.add(RESNET)
    sister = replace(run, encoder=RESNET)
    theirs = sweep.encoder_rows(sister, sweep.open_pools(sister), "random", sweep.PROBE)
    assert tuple(theirs) == (RESNET, *sweep.EMBEDDED)
    HERE.clear()
    EMBEDDED.clear()
    monkeypatch.setattr(LinearProbe, "fit", None)
    found = sweep.open_pools(run)
    assert RESNET in found and RESNET not in EMBEDDED
    rows = sweep.encoder_rows(run, found, "random", sweep.PROBE)
    pd.testing.assert_frame_equal(rows[RESNET], theirs[RESNET])
    table = tables.table_4(run, rows, CODES)
    assert cell(table, "ResNet-50", "per_sample_f1", "missing") == ""
    assert cell(table, "ResNet-50", "per_sample_f1", "encoder") == RESNET
    assert cell(table, "ConvNeXt-B", "per_sample_f1", "missing") == tables.ABSENT
    assert lookup(table, Cell("4", "ResNet-50", "per_sample_f1")).value == cell(table, "ResNet-50", "per_sample_f1")


def test_other_pictures_front_ends_stand_ins_and_damaged_pools_do_not_count(run, pools, tmp_path, monkeypatch):
    HERE.add("uni")
    mine = pools["efficientnet_lite1"]
    for other in (replace(run, grid=1), replace(run, limits=Limits(resamples=40))):
        replace(other, encoder="uni").embed(sweep.images(other))
    monkeypatch.setattr(TinyEncoder, "stand_in", True)
    replace(run, encoder="uni").embed(sweep.images(run))
    assert "uni" not in sweep.left_pools(mine) and "efficientnet_lite2" in sweep.left_pools(mine)
    monkeypatch.setenv("PHOEBI_POOLS", str(tmp_path))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "pool.json").write_text("{")
    assert sweep.left_pools(mine) == {}


def test_weights_that_are_here_and_were_not_run_are_named_and_have_no_line(run, probes, four):
    assert sweep.left_out(probes) == ()
    HERE.add("phikon")
    assert sweep.left_out(probes) == ("phikon",)
    table = tables.table_4(run, probes, CODES)
    assert set(four["row"]) - set(table["row"]) == {"Phikon ViT-B/16"}


# ---------------------------------------------------------------- Table 4


def test_table_4_has_all_thirteen_and_the_embedded_beside_the_printed_numbers(four):
    titles = [record.title for record in list_encoders()]
    rows = list(dict.fromkeys(four["row"]))
    assert [row for row in rows if row in titles] == titles[:13] == printed(4)["encoder"].tolist()
    assert rows[13:-1] == [
        f"{title}{kind} (not in the paper)" for title in titles[13:] for kind in ("", ", 2,000 updates")
    ]
    assert rows[-1] == tables.CONSTANT
    for line in cells(4).to_dict("records"):
        assert cell(four, line["row"], line["column"], "paper") == line["value"]
    missing = four[four["row"].isin(titles[:13]) & ~four["column"].isin(("params_m", "d"))]
    assert set(missing["missing"]) == {tables.ABSENT} and missing["value"].isna().all()
    size = four[four["column"] == "params_m"].set_index("encoder")
    assert all(size.loc[record.name, "value"] == record.params_m for record in list_encoders())
    assert set(size["evidence"]) == {"exact"}


def test_numbers_of_table_4_are_those_of_the_rows(four, probes):
    row = "EfficientNet-Lite1 (not in the paper)"
    rows = probes["efficientnet_lite1"]
    test = rows[(rows["method"] == "LinearProbe") & (rows["part"] == "test")]
    true, called = test[Y].to_numpy(), test[CALLS].to_numpy()
    ones = np.ones_like(true)
    assert cell(four, row, "per_sample_f1") == pytest.approx(per_sample_f1(true, called))
    assert cell(four, row, "macro_f1") == pytest.approx(macro_f1(true, called))
    assert cell(four, row, "exact_match") == pytest.approx((true == called).all(axis=1).mean())
    assert cell(four, row, "f1_ka") == pytest.approx(
        2 * (true * called)[:, 3].sum() / max(1, (true + called)[:, 3].sum())
    )
    assert cell(four, row, "per_sample_f1_margin") == pytest.approx(
        per_sample_f1(true, called) - per_sample_f1(true, ones)
    )
    assert cell(four, tables.CONSTANT, "macro_f1") == pytest.approx(macro_f1(true, ones))
    assert cell(four, row, "learning_rate") == test["learning_rate"].iloc[0]
    assert cell(four, row, "per_sample_f1", "n_images") == 40 and cell(four, row, "macro_f1", "updates") == 10
    assert cell(four, row, "per_sample_f1", "low") < cell(four, row, "per_sample_f1", "high")
    assert np.isnan(cell(four, row, "per_sample_f1", "paper"))


def test_table_4_as_read(four):
    heads = {"per_sample_f1": "F1", "params_m": "parameters", "d": "D"}
    shown = tables.shown(four, heads, "encoder").set_index(["encoder", "numbers"])
    ours, paper = (shown.loc[("ResNet-50", source)] for source in (tables.ABSENT, "paper"))
    assert ours.tolist() == ["–", "23.508", "2048", "–"] and paper.tolist() == ["0.672", "25.6", "2048", "–"]
    row = "EfficientNet-Lite0 (not in the paper)"
    assert shown.loc[(row, "here (user, 40 images)"), "F1"] == f"{cell(four, row, 'per_sample_f1'):.3f}"
    assert (row, "paper") not in shown.index
    margins = tables.margins_4(four).set_index("encoder")
    assert len(margins) == 8 and tables.CONSTANT not in margins.index and margins.loc[row, "n"] == "40 test (user)"
    assert not any("paper" in name for name in margins), "none of the thirteen ran here"
    assert float(margins.loc[row, "learning rate"]) in (0.01, 0.03, 0.1) and margins.loc[row, "updates"] == "10"


# ---------------------------------------------------------------- sums of the text


def test_sums_of_the_text_follow_from_the_printed_table(four, probes):
    sums = tables.table_sums(four, probes)
    said = quoted().set_index("id")["value"]
    f1 = printed(4).set_index("encoder")["per_sample_f1"]
    first, second, third = tables._SUMS
    assert cell(sums, first, "from the printed table") == pytest.approx(100 * (f1.max() - f1["DINOv2 ViT-S/14"]))
    assert cell(sums, first, "from the printed table", "paper") == said["probe_gap_points"]
    assert cell(sums, second, "from the printed table") == pytest.approx(said["probe_range_points"])
    assert cell(sums, third, "from the printed table") == said["biomedical_above"]
    assert set(sums.loc[sums["column"] == "from our table", "missing"]) == {tables.ABSENT}
    assert [sentence.count("agrees with the text") for sentence in tables.sums_read(sums)] == [1, 1, 1]


@pytest.mark.parametrize(("evidence", "said"), [("paper", 6), ("simulated", 3)])
def test_a_verdict_on_our_sums_needs_the_papers_evidence(evidence, said, four):
    names = printed(4)["encoder"]
    full = four[four["row"].isin(names) & (four["column"] == "per_sample_f1")]
    full = full.assign(value=np.linspace(0.5, 0.62, 13), evidence=evidence, missing="")
    sums = tables.table_sums(full, {})
    assert cell(sums, "best encoder minus worst, points", "from our table") == pytest.approx(12)
    sentences = tables.sums_read(sums)
    assert len(sentences) == said
    # the four biomedical encoders come last, so all of them lie above the others
    assert sum("differs from the text" in sentence for sentence in sentences) == said - 3


# ---------------------------------------------------------------- Table 7


def test_table_7_pairs_the_decoders_on_the_same_images(seven, decoders):
    for part, column in (("val", "in_dist_val_f1"), ("test", "heldout_f1")):
        f1 = {}
        for name in sweep.EMBEDDED_PAIR:
            rows = decoders[name]
            rows = rows[(rows["method"] == "ProtoMatch") & (rows["part"] == part)].sort_values("id")
            f1[name] = sample_f1(rows[Y].to_numpy(), rows[CALLS].to_numpy())
            row = f"{get_record(name).title} / ProtoMatch (not in the paper)"
            assert cell(seven, row, column) == pytest.approx(f1[name].mean())
        small, large = f1.values()
        row = "EfficientNet-Lite2 minus EfficientNet-Lite0 / ProtoMatch (not in the paper)"
        assert cell(seven, row, column) == pytest.approx((large - small).mean())
        assert cell(seven, row, column, "low") <= cell(seven, row, column) <= cell(seven, row, column, "high")
    constant = sample_f1(rows[Y].to_numpy(), np.ones((len(rows), len(CODES)), dtype=int)).mean()
    row = "EfficientNet-Lite2 / ProtoMatch (not in the paper)"
    assert cell(seven, row, "heldout_f1_margin") == pytest.approx(f1["efficientnet_lite2"].mean() - constant)
    assert cell(seven, row, "heldout_f1", "n_images") == 36 and cell(seven, row, "in_dist_val_f1", "n_images") == 31
    longer = "EfficientNet-Lite0 / ChannelGroup, 2,000 updates (not in the paper)"
    assert cell(seven, longer, "heldout_f1", "updates") == 40


def test_the_papers_pair_is_missing_beside_its_printed_numbers(seven):
    for line in cells(7).to_dict("records"):
        if line["column"] != "params_m":
            assert cell(seven, line["row"], line["column"], "paper") == line["value"]
            assert cell(seven, line["row"], line["column"], "missing") == tables.ABSENT
    (claim,) = [claim for claim in CLAIMS if claim.id == "larger-encoder-no-help"]
    assert all(lookup(seven, need) is None for need in claim.needs.values())


def test_the_papers_pair_feeds_its_claim_where_its_weights_are(run, monkeypatch):
    HERE.update(sweep.PAPER_PAIR)
    monkeypatch.setattr(sweep, "LARGE", np.inf)
    pools = {name: pool for name, pool in sweep.open_pools(run).items() if name in sweep.PAPER_PAIR}
    found = sweep.encoder_rows(run, pools, "lco-1337", ("AllPresent", "ProtoMatch"))
    table = tables.table_7(run, found, CODES, "lco-1337")
    (claim,) = [claim for claim in CLAIMS if claim.id == "larger-encoder-no-help"]
    for name, need in claim.needs.items():
        assert (lookup(table, need) is not None) == name.startswith("ProtoMatch"), name
    change = cell(table, "Δ (51× parameters) / ProtoMatch", "heldout_f1")
    large, small = (cell(table, f"{get_record(n).title} / ProtoMatch", "heldout_f1") for n in sweep.PAPER_PAIR[::-1])
    assert change == pytest.approx(large - small)


def test_an_unfitted_decoder_concludes_nothing(seven):
    read = tables.margins_7(seven).set_index("encoder and decoder")
    for row, line in read.iterrows():
        value, n = (cell(seven, row, "in_dist_val_f1", name) for name in ("value", "n_images"))
        expected = "–" if "ProtoMatch" in row else reading(value, n, cell(seven, row, "train_f1"))
        assert line["reading"] == expected
    assert any(NOT_FITTED in said for said in read["reading"])
    row = "EfficientNet-Lite2 minus EfficientNet-Lite0 / ProtoMatch (not in the paper)"
    heads = {"heldout_f1": "held-out", "params_m": "parameters"}
    text = tables.shown(seven, heads, "row", places=4, intervals=True).set_index(["row", "numbers"])
    value, low, high = (f"{cell(seven, row, 'heldout_f1', end):.4f}" for end in ("value", "low", "high"))
    n = cell(seven, row, "heldout_f1", "n_images")
    assert text.loc[(row, f"here (user, {n} images)"), "held-out"] == f"{value} [{low},\u00a0{high}]"


def test_the_ratio_of_parameters_is_that_of_the_records():
    assert tables.parameter_ratio() == pytest.approx(4.811 / 3.371)
    assert tables.parameter_ratio(sweep.PAPER_PAIR) == pytest.approx(1134.954 / 21.629)
