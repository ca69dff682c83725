"""What should not matter: the edge of the field (Appendix B.2) and the orientation of a frame (Section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib import report
from phoebi_lib.compat import choice
from phoebi_lib.corruptions import VIEWS, viewed
from phoebi_lib.limits import first_rows
from phoebi_lib.splits import partition
from phoebi_lib.studies.ablations import decoder_of
from phoebi_lib.studies.paired import (
    counts,
    image_f1,
    image_rows,
    interval,
    lines,
    margins,
    resampled,
    resampled_macro_f1,
    resamples,
    tidy,
    with_constant,
)

if TYPE_CHECKING:
    from phoebi_lib.features import Pool
    from phoebi_lib.session import Run

#: Draws of tiles at random that the interior ones are compared with.
DRAWS = 20


def interior_tiles(grid: int) -> list[int]:
    """Return the row-major indices of the tiles of a ``grid`` x ``grid`` that touch no edge; none below grid 3."""
    places = np.arange(grid * grid).reshape(grid, grid)
    return places[1:-1, 1:-1].ravel().tolist()


def table_boundary(run: Run, pool: Pool, name: str = "lco-1337", draws: int = DRAWS) -> pd.DataFrame | None:
    """Return what the tiles at the edge of the field are worth, or None on a grid without interior tiles.

    ProtoMatch is fitted on all tiles of partition ``name``; the set of tiles that is averaged changes, and thresholds
    are chosen again on validation with the same set. The control is as many tiles drawn at random per image, the mean
    of ``draws`` draws: it has lost as many tiles, and no edge in particular.
    """
    inside = interior_tiles(run.grid)
    if not inside:
        return None
    parts = partition(pool.manifest, name, grouping=choice("lco_grouping", run.compat), codes=pool.codes)
    labels, n = pool.Y, resamples(run)
    decoder = decoder_of("ProtoMatch", run).fit(pool.take(parts["train"]), labels[parts["train"]])
    tiles = {part: decoder.tile_scores(pool.take(parts[part])) for part in ("val", "test")}
    rng = np.random.default_rng(0)
    sets = {"all tiles": None, "interior tiles": dict.fromkeys(tiles, np.array(inside)[None, :, None])}
    for draw in range(draws):
        sets[f"draw {draw}"] = {
            part: rng.permuted(np.tile(np.arange(run.grid**2), (len(scores), 1)), axis=1)[:, : len(inside), None]
            for part, scores in tiles.items()
        }
    rows = {part: [] for part in tiles}
    for kind, chosen in sets.items():
        scores = {
            part: decoder.aggregate(scores if chosen is None else np.take_along_axis(scores, chosen[part], axis=1))
            for part, scores in tiles.items()
        }
        decoder.calibrate_scores(scores["val"], labels[parts["val"]])
        for part, values in scores.items():
            rows[part].append(_calls(decoder.predict_scores(values), pool, parts[part], method=kind))
    return _boundary_lines(run, {part: pd.concat(pieces) for part, pieces in rows.items()}, pool.codes, n)


def _calls(predicted: np.ndarray, pool: Pool, rows: np.ndarray, **facts: Any) -> pd.DataFrame:
    table = pool.manifest.iloc[rows][["combination", "frame"]].assign(id=pool.manifest["path"].iloc[rows])
    labels = pool.Y[rows]
    for k, code in enumerate(pool.codes):
        table[f"y_{code}"], table[f"pred_{code}"] = labels[:, k], predicted[:, k]
    return table.assign(evidence=pool.evidence, updates=0, **facts)


def _boundary_lines(run: Run, rows: Mapping[str, pd.DataFrame], codes: Sequence[str], n: int) -> pd.DataFrame:
    made = []
    for part, column in (("test", "heldout_f1"), ("val", "val_f1")):
        table = with_constant(rows[part], codes)
        mean = resampled(image_f1(table, ["method"], codes), n)
        mean["tiles at random"] = mean[[name for name in mean if name.startswith("draw ")]].mean(axis=1)
        about = counts(rows[part])
        for kind in ("all tiles", "interior tiles", "tiles at random"):
            made += lines(kind, margins(column, mean[kind], mean["AllPresent"]), about)
        for other in ("all tiles", "tiles at random"):
            change = interval(mean["interior tiles"] - mean[other])
            made += lines(f"interior tiles minus {other}", {column: change}, about)
    test = rows["test"]
    inside, every = (
        resampled_macro_f1(test[test["method"] == kind], codes, n) for kind in ("interior tiles", "all tiles")
    )
    made += lines("interior tiles minus all tiles", {"heldout_macro_f1": interval(inside - every)}, counts(test))
    frame = tidy(made, "B.2 boundary tiles", run, partition="lco-1337")
    change = "interior tiles minus all tiles"
    return report.add_quoted(frame, {
        ("all tiles", "heldout_f1"): "boundary_heldout_before",
        ("interior tiles", "heldout_f1"): "boundary_heldout_after",
        (change, "heldout_f1"): "boundary_heldout_change",
        (change, "val_f1"): "boundary_val_change",
        (change, "heldout_macro_f1"): "boundary_macro_change",
    })  # fmt: skip


def view_rows(run: Run, pool: Pool) -> pd.DataFrame:
    """Return rows of ProtoMatch on ``limits.views`` test images per combination under each view, thresholds frozen.

    The method is the name of the view; "mean of six views" averages their scores.
    """
    dataset, labels = run.open_dataset(), pool.Y
    parts = partition(pool.manifest, "random", grouping="frame")
    decoder = decoder_of("ProtoMatch", run)
    decoder.fit(pool.take(parts["train"]), labels[parts["train"]])
    decoder.calibrate(pool.take(parts["val"]), labels[parts["val"]])
    chosen = first_rows(pool.manifest, parts["test"], run.limits.views)
    images, every = dataset.select(chosen), np.arange(len(chosen))
    pieces = [image_rows(decoder, pool, chosen, method="identity")]
    for view in list(VIEWS)[1:]:
        pieces.append(image_rows(decoder, run.embed(viewed(images, view)), every, method=view))
    names = [f"score_{code}" for code in pool.codes]
    score = np.mean([piece[names].to_numpy() for piece in pieces], axis=0)
    called = pd.DataFrame(decoder.predict_scores(score), columns=[f"pred_{code}" for code in pool.codes])
    pieces.append(pieces[0].assign(method="mean of six views", **called, **dict(zip(names, score.T, strict=True))))
    return pd.concat(pieces, ignore_index=True)


def table_views(run: Run, codes: Sequence[str], rows: pd.DataFrame) -> pd.DataFrame:
    """Return F1 under each rotation and flip, its change from the identity, and the largest change of the five."""
    mean = resampled(image_f1(with_constant(rows, codes), ["method"], codes), resamples(run))
    about, made = counts(rows), []
    for view in dict.fromkeys(rows["method"]):
        found = margins("f1", mean[view], mean["AllPresent"])
        if view != "identity":
            found["change"] = interval(mean[view] - mean["identity"])
        made += lines(view, found, about)
    others = mean[list(VIEWS)[1:]].sub(mean["identity"], axis=0).abs()
    made += lines("largest change", {"f1": interval(others.max(axis=1))}, about)
    return tidy(made, "5 rotations", run)
