"""The acquisition battery (Table 17) and the matched illumination arms (Table 9): Section 5 and Appendix B.3.

Decoders and thresholds are those of clean images; frames are corrupted before the illumination correction and then
pass the usual way. Every change is against the same images without corruption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib import report
from phoebi_lib.corruptions import BATTERY, CORRUPTIONS, ILLUMINATION, corrupted
from phoebi_lib.limits import ablation_rows, battery_rows
from phoebi_lib.protocols import METHODS
from phoebi_lib.splits import partition
from phoebi_lib.studies.paired import (
    counts,
    image_f1,
    image_rows,
    interval,
    lines,
    margins,
    resampled,
    resamples,
    tidy,
)

if TYPE_CHECKING:
    from phoebi_lib.decoders import Decoder
    from phoebi_lib.features import Pool
    from phoebi_lib.session import Run

CONSTANT = "AllPresent"
#: Decoder -> its column in Tables 16 and 17; ChannelGroup is trained longer too, as elsewhere in the book.
COLUMNS = {
    "SimplexUnmix": "simplex_unmix",
    "ProtoMatch": "proto_match",
    "ChannelGroup": "channel_group",
    "ChannelGroup (2,000 updates)": "channel_group_2000",
}
CLEAN, NATIVE = "clean", "native_tile"
#: How the one-tile frames pass the front-end: a single tile, corrected there unless it was corrected before.
ONE_TILE = {"one_tile": {"grid": 1}, "one_tile_corrected": {"grid": 1, "illumination": "none"}}
ROWS = {name: corruption.row for name, corruption in CORRUPTIONS.items()} | {NATIVE: "One tile at full size"}
#: Row of Table 17 that says whether the three corruptions that the correction cannot address are the ones that matter.
MATTERS = "Mildest of focus, noise and JPEG minus worst of light and gamma"
WITH, WITHOUT = "with", "without"
_BY = ["arm", "method", "condition", "severity"]


def fit(pool: Pool, parts: Mapping[str, np.ndarray], *, compat: str, seed: int) -> dict[str, Decoder]:
    """Return the constant predictor and the decoders of ``COLUMNS``, fitted on train and calibrated on val rows."""
    fitted = {}
    train, val, labels = pool.take(parts["train"]), pool.take(parts["val"]), pool.Y
    for name in (CONSTANT, *COLUMNS):
        factory, settings = METHODS[name]
        decoder = factory("random", compat, random_state=seed, **settings)
        fitted[name] = decoder.fit(train, labels[parts["train"]]).calibrate(val, labels[parts["val"]])
    return fitted


def conditions(names: Sequence[str]) -> list[tuple[str, float]]:
    """Return (corruption, severity) for every severity of ``names``, in order."""
    return [(name, severity) for name in names for severity in CORRUPTIONS[name].severities]


def _scored(decoders: Mapping[str, Decoder], pool: Pool, rows: np.ndarray, **facts: Any) -> pd.DataFrame:
    return pd.concat([image_rows(decoder, pool, rows, method=name, **facts) for name, decoder in decoders.items()])


def deployed(run: Run) -> pd.DataFrame:
    """Return the rows behind Table 17: one per image, decoder and condition (``condition``, ``severity``).

    Decoders are fitted and calibrated on the whole random split; ``limits.battery`` test images per combination are
    corrupted. Beside the conditions of the table there are two controls of the single tile: the frame corrected before
    it is resized, and the tile in the middle of the field at its full size.
    """
    pool, dataset = run.open_pool(), run.open_dataset()
    chosen = battery_rows(pool.manifest, run.limits.battery)
    parts = partition(pool.manifest, "random", grouping="frame")
    decoders = fit(pool, parts, compat=run.compat, seed=run.seed)
    pieces = [_scored(decoders, pool, chosen, arm=WITH, condition=CLEAN, severity=0.0)]
    images = dataset.select(chosen)
    every = np.arange(len(images))
    for name, severity in conditions([*BATTERY, *ONE_TILE]):
        changed = run.embed(corrupted(images, name, severity, run.compat), **ONE_TILE.get(name, {}))
        pieces.append(_scored(decoders, changed, every, arm=WITH, condition=name, severity=severity))
    pieces.append(_scored(decoders, run.embed(images, grid=1), every, arm=WITH, condition=NATIVE, severity=0.0))
    return pd.concat(pieces, ignore_index=True)


def matched_arms(run: Run) -> pd.DataFrame:
    """Return the rows behind Table 9: two arms, fitted, calibrated and tested with and without the correction.

    Both learn from the same ``limits.ablation`` frames. ``condition`` is "test" for the clean test images, "clean" for
    the clean images of the battery (which may be fewer), else one of the three illumination corruptions.
    """
    dataset = run.open_dataset()
    parts = ablation_rows(dataset.manifest, run.limits.ablation)
    parts["battery"] = battery_rows(dataset.manifest, run.limits.battery)
    kept = np.unique(np.concatenate(list(parts.values())))
    images = dataset.select(parts["battery"])
    pieces = []
    for arm, change in ((WITH, {}), (WITHOUT, {"illumination": "none"})):
        pool = run.embed(dataset.select(kept), **change) if change else run.open_pool().select(kept)
        rows = {part: np.searchsorted(kept, positions) for part, positions in parts.items()}
        decoders = fit(pool, rows, compat=run.compat, seed=run.seed)
        for part, condition in (("test", "test"), ("battery", CLEAN)):
            pieces.append(_scored(decoders, pool, rows[part], arm=arm, condition=condition, severity=0.0))
        for name, severity in conditions(ILLUMINATION):
            changed = run.embed(corrupted(images, name, severity, run.compat), **change)
            every = np.arange(len(images))
            pieces.append(_scored(decoders, changed, every, arm=arm, condition=name, severity=severity))
    return pd.concat(pieces, ignore_index=True)


def means(rows: pd.DataFrame, run: Run, codes: Sequence[str]) -> pd.DataFrame:
    """Return mean F1 by (arm, method, condition, severity) of rows of the same images, with resamples of it.

    See :func:`phoebi_lib.studies.paired.resampled`; the number of resamples is that of the profile.
    """
    return resampled(image_f1(rows, _BY, codes), resamples(run))


def changes(mean: pd.DataFrame, method: str, condition: str, arm: str = WITH) -> pd.DataFrame:
    """Return the change of F1 from the clean images, one column per severity, line by line of :func:`means`."""
    return mean[arm, method, condition].sub(mean[arm, method, CLEAN, 0.0], axis=0)


def worst(mean: pd.DataFrame, method: str, condition: str, arm: str = WITH) -> pd.Series:
    """Return the change of F1 at the worst severity, the smallest over severities of :func:`changes`.

    A resample has a worst severity of its own, so the interval allows for the choice among three.
    """
    return changes(mean, method, condition, arm).min(axis=1)


def table_17(rows: pd.DataFrame, run: Run, codes: Sequence[str]) -> pd.DataFrame:
    """Return Table 17 as a tidy table with the printed numbers beside ours.

    Column ``<decoder>`` is the change at the worst severity, ``<decoder>_f1`` the F1 there, with its margin over the
    constant predictor; ``simplex_unmix_over_<decoder>`` is how much less SimplexUnmix loses. Row "Clean" has the F1
    of the uncorrupted images, and a row such as "Sensor noise, 25" each single severity. Row ``MATTERS`` is negative
    where even the mildest of the last three corruptions, each at its worst severity, costs more than any of the others.
    """
    mean = means(rows, run, codes)
    constant = mean[WITH, CONSTANT, CLEAN, 0.0]
    made = []
    for method, column in COLUMNS.items():
        mine = rows[rows["method"] == method]
        common, name_f1 = counts(mine), f"{column}_f1"
        made += lines("Clean", margins(name_f1, mean[WITH, method, CLEAN, 0.0], constant), common)
        for name in (*BATTERY, *ONE_TILE, NATIVE):
            change, f1 = changes(mean, method, name), mean[WITH, method, name]
            lowest = f1[f1.columns[change.iloc[0].argmin()]]
            found = {column: interval(worst(mean, method, name)), **margins(name_f1, lowest, constant)}
            if method != "SimplexUnmix":
                ahead = worst(mean, "SimplexUnmix", name) - worst(mean, method, name)
                found[f"simplex_unmix_over_{column}"] = interval(ahead)
            made += lines(ROWS[name], found, common)
            if len(change.columns) > 1:
                for s in change:
                    found = {column: interval(change[s]), **margins(name_f1, f1[s], constant)}
                    made += lines(f"{ROWS[name]}, {s:g}", found, common)
        light, rest = (
            pd.concat([worst(mean, method, name) for name in names], axis=1)
            for names in (BATTERY[:4], BATTERY[4:])
        )
        made += lines(MATTERS, {column: interval(rest.max(axis=1) - light.min(axis=1))}, common)
    frame = report.add_paper(tidy(made, "17", run), 17)
    printed = ("simplex_unmix", "proto_match", "channel_group")
    return report.add_quoted(frame, {("Clean", f"{column}_f1"): f"battery_{column}" for column in printed})


def table_9(rows: pd.DataFrame, run: Run, codes: Sequence[str]) -> pd.DataFrame:
    """Return Table 9 as a tidy table with the printed numbers beside ours.

    Here, as printed and unlike in Table 17, a corruption that helps counts as no change. Beyond the printed columns,
    ``clean_cost`` is F1 without the correction minus F1 with it on the same test images, and ``<corruption>_bought``
    how much less the arm with the correction loses; ``<corruption>_bought_more``, of ProtoMatch, how much more that is
    than for the other two decoders.
    """
    test = rows["condition"] == "test"
    clean, mean = means(rows[test], run, codes), means(rows[~test], run, codes)
    lost = {(method, name, arm): worst(mean, method, name, arm).clip(upper=0)
            for method in COLUMNS for name in ILLUMINATION for arm in (WITH, WITHOUT)}  # fmt: skip
    bought = {key: lost[*key, WITH] - lost[*key, WITHOUT] for key in dict.fromkeys(key[:2] for key in lost)}
    made = []
    for method in COLUMNS:
        mine = rows[rows["method"] == method]
        f1 = {arm: clean[arm, method, "test", 0.0] for arm in (WITH, WITHOUT)}
        found = {f"clean_{arm}": interval(f1[arm]) for arm in f1}
        found |= {f"clean_{arm}_margin": interval(f1[arm] - clean[arm, CONSTANT, "test", 0.0]) for arm in f1}
        found["clean_cost"] = interval(f1[WITHOUT] - f1[WITH])
        made += lines(method, found, counts(mine[mine["condition"] == "test"]))
        for name in ILLUMINATION:
            found = {f"{name}_{arm}": interval(lost[method, name, arm]) for arm in (WITH, WITHOUT)}
            found[f"{name}_bought"] = interval(bought[method, name])
            if method == "ProtoMatch":
                others = pd.concat([bought[other, name] for other in ("SimplexUnmix", "ChannelGroup")], axis=1)
                found[f"{name}_bought_more"] = interval(bought[method, name] - others.max(axis=1))
            made += lines(method, found, counts(mine[mine["condition"] != "test"]))
    return report.add_paper(tidy(made, "9", run), 9)
