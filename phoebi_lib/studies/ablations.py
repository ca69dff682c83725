"""The ablations of Appendix B.2: what each part of the pipeline is worth on the same images.

Table 16 (projection, illumination, tile size), and what the running text says of threshold rules and losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.isotonic import IsotonicRegression

from phoebi_lib import protocols, report
from phoebi_lib.compat import choice
from phoebi_lib.decoders.thresholds import grid_thresholds
from phoebi_lib.limits import Limits, ablation_rows
from phoebi_lib.protocols import METHODS
from phoebi_lib.studies.battery import WITH, WITHOUT
from phoebi_lib.studies.paired import (
    counts,
    image_f1,
    image_rows,
    interval,
    lines,
    margins,
    resampled,
    resampled_exact_match,
    resampled_macro_f1,
    resamples,
    tidy,
    with_constant,
)

if TYPE_CHECKING:
    from phoebi_lib.decoders import Decoder
    from phoebi_lib.features import Pool
    from phoebi_lib.session import Run

SIZES = Limits.tile_sizes
CLOSED_FORM, TRAINED = "closed form", "trained"
#: Weights up to this count as zero in the sparsity of a projection.
ZERO = 1e-8
#: Row -> loss and alpha of the tile mixup, as constructor parameters of ChannelGroup.
LOSSES = {
    "BCE": {},
    "asymmetric loss": {"loss": "asymmetric"},
    "BCE with mixup": {"mixup": 0.4},
    "asymmetric loss with mixup": {"loss": "asymmetric", "mixup": 0.4},
}


def decoder_of(name: str, run: Run, **settings: Any) -> Decoder:
    """Return a decoder of the library as run on the random split, unfitted, with ``settings`` of its parameters."""
    factory, _ = METHODS[name]
    return factory("random", run.compat, random_state=run.seed).set_params(**settings)


def _test(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["part"] == "test"]


def projection_rows(run: Run, pool: Pool) -> pd.DataFrame:
    """Return test rows of SimplexUnmix with each projection, trained with the recipe of the ablations (256 tiles)."""
    kinds = {kind: decoder_of("SimplexUnmix", run, recipe="ablation", projection=kind) for kind in
             ("softmax", "sparsemax")}  # fmt: skip
    setting = {"seed": run.seed, "compat": run.compat, "profile": run.profile}
    return _test(protocols.run_partition(pool, "random", methods=kinds, **setting))


def sparsity(rows: pd.DataFrame, codes: Sequence[str]) -> float:
    """Return the share of image-level mean weights that are zero, to ``ZERO`` in absolute value; 0..1."""
    return float((rows[[f"score_{code}" for code in codes]].abs() <= ZERO).to_numpy().mean())


def loss_rows(run: Run, pool: Pool, **training: Any) -> pd.DataFrame:
    """Return test rows of ChannelGroup with each of ``LOSSES``; ``training`` settings replace the published ones."""
    kinds = {row: decoder_of("ChannelGroup", run, **training, **settings) for row, settings in LOSSES.items()}
    setting = {"seed": run.seed, "compat": run.compat, "profile": run.profile}
    return _test(protocols.run_partition(pool, "random", methods=kinds, **setting))


def tile_size_rows(run: Run) -> pd.DataFrame:
    """Return test rows of SimplexUnmix and ProtoMatch at each tile size (column ``size``), on the same frames.

    ``limits.ablation`` frames are cut and embedded again at every size but 224. The method "ProtoMatch" has the
    prototypes that ``compat`` asks for, "ProtoMatch, <other> prototypes" the other kind: the mean of pure cultures
    (closed form), or SimplexUnmix's (trained), as published.
    """
    dataset = run.open_dataset()
    parts = ablation_rows(dataset.manifest, run.limits.ablation)
    kept = np.unique(np.concatenate(list(parts.values())))
    rows = {part: np.searchsorted(kept, positions) for part, positions in parts.items()}
    pieces = []
    for size in run.limits.tile_sizes:
        pool = run.open_pool().select(kept) if size == 224 else run.embed(dataset.select(kept), tile_size=size)
        labels = pool.Y
        train, val = pool.take(rows["train"]), pool.take(rows["val"])
        simplex = decoder_of("SimplexUnmix", run, recipe="ablation").fit(train, labels[rows["train"]])
        kinds = {kind: decoder_of("ProtoMatch", run) for kind in (CLOSED_FORM, TRAINED)}
        for decoder in kinds.values():
            decoder.fit(train, labels[rows["train"]])
        kinds[TRAINED].prototypes_ = simplex.prototypes_
        decoders = {"SimplexUnmix": simplex, "ProtoMatch": kinds.pop(choice("sweep_prototypes", run.compat))}
        ((other, decoder),) = kinds.items()
        decoders[f"ProtoMatch, {other} prototypes"] = decoder
        for method, decoder in decoders.items():
            decoder.calibrate(val, labels[rows["val"]])
            pieces.append(image_rows(decoder, pool, rows["test"], method=method, size=size))
    return pd.concat(pieces, ignore_index=True)


def table_16(
    run: Run, codes: Sequence[str], projections: pd.DataFrame, arms: pd.DataFrame, sizes: pd.DataFrame
) -> pd.DataFrame:
    """Return Table 16 as a tidy table with the printed numbers beside ours; each block on images of its own.

    ``arms`` are the rows of :func:`phoebi_lib.studies.battery.matched_arms`. Rows such as "168 minus 224" are paired
    differences on the same images.
    """
    columns = {"SimplexUnmix": "simplex_unmix_f1", "ProtoMatch": "proto_match_f1"}
    n, made = resamples(run), []
    mean = resampled(image_f1(with_constant(projections, codes), ["method"], codes), n)
    for kind in ("softmax", "sparsemax"):
        mine = projections[projections["method"] == kind]
        found = margins("simplex_unmix_f1", mean[kind], mean["AllPresent"])
        found["simplex_unmix_sparsity"] = {"value": sparsity(mine, codes)}
        made += lines(kind, found, counts(mine))
    change = interval(mean["softmax"] - mean["sparsemax"])
    made += lines("softmax minus sparsemax", {"simplex_unmix_f1": change}, counts(projections))
    mean = resampled(image_f1(arms[arms["condition"] == "test"], ["arm", "method"], codes), n)
    for method, column in columns.items():
        for arm, row in ((WITHOUT, "none (trained without)"), (WITH, "divide")):
            mine = arms[(arms["condition"] == "test") & (arms["method"] == method) & (arms["arm"] == arm)]
            made += lines(row, margins(column, mean[arm, method], mean[arm, "AllPresent"]), counts(mine))
    made += _size_lines(sizes, columns, n, codes)
    return report.add_paper(tidy(made, "16", run), 16)


def _size_lines(sizes: pd.DataFrame, columns: Mapping[str, str], n: int, codes: Sequence[str]) -> list[dict[str, Any]]:
    made = []
    first = sizes[sizes["size"] == 224]
    constant = resampled(image_f1(with_constant(first, codes), ["method"], codes), n)["AllPresent"]
    mean = resampled(image_f1(sizes, ["method", "size"], codes), n)
    for method in dict.fromkeys(sizes["method"]):
        name, _, kind = method.partition(", ")
        for size in sorted(set(sizes["size"])):
            mine = sizes[(sizes["method"] == method) & (sizes["size"] == size)]
            row = f"{size}, {kind}" if kind else f"{size}"
            made += lines(row, margins(columns[name], mean[method, size], constant), counts(mine))
            if size != 224 and not kind:
                change = interval(mean[method, size] - mean[method, 224])
                made += lines(f"{size} minus 224", {columns[name]: change}, counts(mine))
    return made


def table_projection(run: Run, codes: Sequence[str], projections: pd.DataFrame) -> pd.DataFrame:
    """Return what the text says of softmax against sparsemax beyond Table 16: macro F1 and exact match."""
    n, made = resamples(run), []
    scored = {"macro_f1": resampled_macro_f1, "exact_match": resampled_exact_match}
    methods = dict(list(with_constant(projections, codes).groupby("method")))
    found = {(kind, name): score(rows, codes, n) for kind, rows in methods.items() for name, score in scored.items()}
    kinds = ("softmax", "sparsemax")
    for kind in kinds:
        for name in scored:
            made += lines(kind, margins(name, found[kind, name], found["AllPresent", name]), counts(methods[kind]))
    for name in scored:
        change = interval(found["softmax", name] - found["sparsemax", name])
        made += lines("softmax minus sparsemax", {name: change}, counts(projections))
    names = {(kind, column): f"{kind}_{short}" for kind in kinds for column, short in
             (("macro_f1", "macro"), ("exact_match", "em"))}  # fmt: skip
    return report.add_quoted(tidy(made, "B.2 projection", run), names)


def isotonic_scores(val: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return validation and test scores (N, K) made into probabilities by isotonic regression on validation images.

    One monotone step function per species, from its validation scores and labels; beyond their range it is constant.
    """
    pairs = []
    for k in range(val.shape[1]):
        curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(val[:, k], labels[:, k])
        pairs.append((curve.predict(val[:, k]), curve.predict(scores[:, k])))
    return tuple(np.stack(columns, axis=1) for columns in zip(*pairs, strict=True))


def table_isotonic(run: Run, pool: Pool) -> pd.DataFrame:
    """Return test F1 of ProtoMatch under three threshold rules: deployed, argmax F1, argmax F1 on isotonic scores."""
    setting = {"seed": run.seed, "compat": run.compat, "profile": run.profile}
    rows = protocols.run_partition(pool, "random", methods=["ProtoMatch"], **setting)
    test, val = _test(rows), rows[rows["part"] == "val"]
    scores, raw, labels = (part[[f"{what}_{code}" for code in pool.codes]].to_numpy() for part, what in
                           ((test, "score"), (val, "score"), (val, "y")))  # fmt: skip
    calibrated, after = isotonic_scores(raw, labels, scores)
    pieces = [test.assign(method="deployed thresholds")]
    for kind, chosen, of in (("argmax F1", raw, scores), ("argmax F1 on isotonic scores", calibrated, after)):
        called = (of > grid_thresholds(chosen, labels)).astype(int)
        pieces.append(test.assign(method=kind, **{f"pred_{code}": called[:, k] for k, code in enumerate(pool.codes)}))
    rows = with_constant(pd.concat(pieces), pool.codes)
    mean = resampled(image_f1(rows, ["method"], pool.codes), resamples(run))
    first, second, third = (piece["method"].iloc[0] for piece in pieces)
    made = []
    for kind in (first, second, third):
        made += lines(kind, margins("f1", mean[kind], mean["AllPresent"]), counts(rows[rows["method"] == kind]))
    for kind, other in ((second, first), (third, second)):
        made += lines(f"{kind} minus {other}", {"f1": interval(mean[kind] - mean[other])}, counts(test))
    ids = {first: "isotonic_deployed", second: "isotonic_argmax", third: "isotonic_calibrated"}
    return report.add_quoted(tidy(made, "B.2 isotonic", run), {(row, "f1"): name for row, name in ids.items()})


def table_losses(run: Run, codes: Sequence[str], rows: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return test F1 of ChannelGroup under each loss; ``rows`` maps a suffix of the row ("" for the published epochs).

    "largest difference" is that between any two of the four, in each resample.
    """
    made = []
    for suffix, table in rows.items():
        mean = resampled(image_f1(with_constant(table, codes), ["method"], codes), resamples(run))
        for kind in LOSSES:
            about = counts(table[table["method"] == kind])
            found = margins("f1", mean[kind], mean["AllPresent"])
            found["train_f1"] = {"value": float(table.loc[table["method"] == kind, "train_f1"].iloc[0])}
            if kind != "BCE":
                found["change_from_bce"] = interval(mean[kind] - mean["BCE"])
            made += lines(kind + suffix, found, about)
        four = mean[list(LOSSES)]
        spread = interval(four.max(axis=1) - four.min(axis=1))
        made += lines(f"largest difference{suffix}", {"f1": spread}, counts(table))
    ids = ("bce", "asl", "bce_mixup", "asl_mixup")
    names = {(kind, "f1"): f"channel_group_{name}" for kind, name in zip(LOSSES, ids, strict=True)}
    names["largest difference", "f1"] = "channel_group_losses_within"
    return report.add_quoted(tidy(made, "B.2 losses", run), names)


def images_of(frame: pd.DataFrame, rows: Sequence[str]) -> list[int]:
    """Return how many images each of ``rows`` of a tidy table rests on."""
    return [int(frame.loc[frame["row"] == row, "n_images"].iloc[0]) for row in rows]
