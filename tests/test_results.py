"""The one table of all runs: unique keys, the newest counts, what is half-written or damaged is left out and said."""

import os

import pandas as pd

from phoebi_lib import results

CODES = ("bs", "ka")


def rows(method="ProtoMatch", called=1, seed=1):
    images = [{"id": f"bs/{i}", "frame": i, "part": part} for i in (1, 2) for part in ("val", "test")]
    table = pd.DataFrame(images).assign(
        combination="bs",
        method=method, dataset="sim:smoke", encoder="e", evidence="simulated", profile="smoke", partition="lco-1337",
        seed=seed, compat="corrected", grouping="frame", pool_key="k", simulation="s", updates=0, train_f1=0.5,
    )  # fmt: skip
    for code, truth in zip(CODES, (1, 0), strict=True):
        table[f"y_{code}"], table[f"pred_{code}"] = truth, called
    return table


def keep(folder, name, table, age):
    path = folder / "rows" / "sim_smoke" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path)
    os.utime(path, (1_000_000 - age, 1_000_000 - age))


def test_nothing_to_collect(tmp_path):
    assert results.collect(tmp_path) is None and not (tmp_path / "results.csv").exists()


def test_one_line_per_key_and_the_newest_counts(tmp_path):
    keep(tmp_path, "z-old.parquet", rows(called=0), age=100)
    keep(tmp_path, "a-new.parquet", rows(called=1), age=0)
    keep(tmp_path, "b-other.parquet", rows(seed=2), age=50)
    table = pd.read_csv(results.collect(tmp_path))
    assert len(table) == 4 and not table.duplicated(results.KEYS).any()
    # called everything: F1 of {bs} against {bs, ka} is 2/3; called nothing: 0
    assert set(table.loc[table["seed"] == 1, "f1"].round(6)) == {0.666667}


def test_half_written_and_damaged_files_are_left_out(tmp_path, capsys):
    keep(tmp_path, "good.parquet", rows(), age=0)
    folder = tmp_path / "rows" / "sim_smoke"
    (folder / ".bad-abcdefgh.parquet").touch()
    (folder / "damaged.parquet").write_bytes(b"PAR1")
    assert len(pd.read_csv(results.collect(tmp_path))) == 2
    said = capsys.readouterr().err
    assert "damaged.parquet" in said and ".bad" not in said
