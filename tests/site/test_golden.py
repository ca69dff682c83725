"""The smoke results against a committed file: what moved, moved for a reason that belongs in a commit message."""

import pandas as pd
import pytest

from phoebi_lib import workspace

GOLDEN = workspace.project() / "tests" / "golden" / "smoke.csv"
KEYS = ["partition", "seed", "method", "part"]
# Features agree between machines to about 1e-5, so a score seldom changes sides of a threshold; one image of a hundred
# moves F1 by less than 0.01. Training adds up such differences over thousands of updates.
TOLERANCE = {"closed form": 0.02, "trained": 0.06}


def results():
    """The rows of the profile's whole pool: other pages add sessions, ways of computing, encoders and fewer images."""
    found = pd.read_csv(workspace.results_dir() / "results.csv")
    own = {"profile": "smoke", "dataset": "sim:smoke", "compat": "corrected", "encoder": "efficientnet_lite0"}
    found = found[(found[list(own)] == pd.Series(own)).all(axis=1)]
    (whole,) = found.loc[found["partition"] == "lco-1339", "pool_key"].unique()
    return found[found["pool_key"] == whole]


def test_the_smoke_results_are_the_committed_ones():
    golden = pd.read_csv(GOLDEN).set_index(KEYS)
    found = results().set_index(KEYS)
    assert set(golden.index) <= set(found.index)
    found = found.loc[golden.index]
    assert (found["n_images"] == golden["n_images"]).all()
    for line, ours in found.iterrows():
        tolerance = TOLERANCE["trained" if ours["updates"] else "closed form"]
        for metric in ("f1", "macro_f1"):
            assert ours[metric] == pytest.approx(golden.loc[line, metric], abs=tolerance), (line, metric)


def test_the_constant_predictor_is_exact():
    found = results()
    constant = found[(found["method"] == "AllPresent") & (found["part"] == "test")]
    assert len(constant) >= 4
    held_out = constant[constant["partition"].str.startswith("lco-")]
    assert held_out["f1"].to_numpy() == pytest.approx(0.65397, abs=5e-6), "labels alone decide it, at any size"
    assert constant.loc[constant["partition"] == "random", "f1"].item() == pytest.approx(0.5879, abs=5e-5)
