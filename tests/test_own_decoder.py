"""Somebody else's decoder: one small class takes part in the protocol, with the same rows, scores and intervals."""

import numpy as np
import pytest
from test_protocols import make_pool

from phoebi_lib.decoders.base import Decoder
from phoebi_lib.protocols import run_partition
from phoebi_lib.scoring import scores
from phoebi_lib.splits import partition


@pytest.fixture(scope="module")
def pool():
    return make_pool()


class Brightest(Decoder):
    """Scores a class by the mean of the channel of the same number."""

    def _fit(self, X, Y):
        self.updates_ = 3

    def _score_tiles(self, block):
        return block[..., : self.n_classes_]

    def _choose_thresholds(self, scores, Y):
        return scores.min(axis=0)


def test_it_runs_under_the_same_protocol(pool, tmp_path):
    methods = {"Mine": Brightest()}
    rows = run_partition(pool, "lco-1337", seed=5, methods=methods, store=tmp_path)
    assert set(scores(rows[rows["part"] == "test"])) >= {"f1", "f1_margin"}
    test = rows[rows["part"] == "test"]
    assert set(rows["method"]) == {"Mine"} and set(rows["updates"]) == {3}
    parts = partition(pool.manifest, "lco-1337", grouping="frame")
    np.testing.assert_allclose(test["score_bs"], pool.take(parts["test"])[:, :, 0].mean(axis=1), rtol=1e-6)
    assert not hasattr(methods["Mine"], "updates_"), "it is a clone that is fitted"
    with pytest.raises(ValueError, match="ProtoMatch is the name of a method of the library"):
        run_partition(pool, "lco-1337", seed=5, methods={"ProtoMatch": Brightest()}, store=tmp_path)


def test_fit_reads_every_value_for_any_subclass():
    with pytest.raises(ValueError, match="norm"):
        Brightest().fit(np.full((2, 2, 8), 2.0), np.eye(2, dtype=int))
