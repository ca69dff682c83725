"""From the tables of the executed notebooks, and from labels alone, to one frame that claims are judged on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from phoebi_lib.label_only import label_only
from phoebi_lib.report import COLUMNS, table
from phoebi_lib.studies.decoder_tables import EXACT_ROW

#: The row under which the constant predictor of Tables 3 and 6 is printed, by computed and by label-only lines alike.
CONSTANT_ROW = "All-present predictor (constant)"
_KEYS = ["table", "row", "column", "encoder", "partition"]
_TEXTS = ("table", "row", "column", "evidence", "profile", "dataset", "encoder", "partition", "missing")


def load_results(folder: str | Path | None) -> tuple[pd.DataFrame, list[str]]:
    """Return all tidy tables of a book as one frame, and notices about files that could not be read.

    Args:
        folder: the executed copies' ``tables`` folder, with one folder a notebook; None for label-only numbers alone.

    Returns:
        ``(results, notices)``. ``results`` has the columns of a tidy table (:mod:`phoebi_lib.report`) and ``source``:
        the notebook that wrote the line, or "labels". Lines that only say why a number is missing are kept. Where the
        constant predictor is computed from labels alone its row has the name ``EXACT_ROW``, as on the pages, so that
        it cannot be taken for the row computed on the run's own images. The same number from two sources counts once.
        Tables of a sweep (folders with "--" in their names) do not count: no page of the book shows them.

    Raises:
        FileNotFoundError: ``folder`` does not exist.
    """
    labels = label_only()
    constant = labels["row"] == CONSTANT_ROW
    frames = [labels.assign(row=labels["row"].mask(constant, EXACT_ROW), source="labels")]
    notices: list[str] = []
    if folder is not None:
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"no tables in {folder.absolute()}; first run the notebooks (phoebi run --out)")
        for path in sorted(folder.glob("*/*.csv")):
            if path.name.endswith(".display.csv") or path.name.startswith(".") or "--" in path.parent.name:
                continue
            try:
                frame = _read(path)
            except (ValueError, OSError) as error:
                first = str(error).splitlines()[0] if str(error) else type(error).__name__
                notices.append(f"{path.parent.name}/{path.name} was left out: {first}")
                continue
            # label-only lines that a page repeats, under the names that the frame above gives them
            again = (frame["evidence"] == "exact") & (frame["row"] == CONSTANT_ROW)
            frames.append(frame.assign(row=frame["row"].mask(again, EXACT_ROW), source=path.parent.name))
    results = pd.concat([frame.dropna(axis="columns", how="all") for frame in frames], ignore_index=True)
    results = results.reindex(columns=[*COLUMNS, "source"])
    for name in _TEXTS:
        results[name] = results[name].fillna("")
    twice = results.assign(value=results["value"].round(12)).duplicated([*_KEYS, "evidence", "value"])
    return results[~twice].reset_index(drop=True), notices


def _read(path: Path) -> pd.DataFrame:
    """Read one tidy table. ValueError where it is not one: another file, cut short, or with impossible numbers."""
    frame = pd.read_csv(path, dtype=dict.fromkeys(_TEXTS, str), keep_default_na=False, na_values=[""])
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ValueError(f"not a tidy table, it lacks {', '.join(missing)}")
    return table(frame)
