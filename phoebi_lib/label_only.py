"""Numbers that follow from labels and file numbers alone, beside the paper's: the same under every profile.

All are computed from the manifest of the published data set, 120,000 rows built in memory; no image and no encoder is
involved, so their evidence is "exact". Sources: Sections 3 and 5, Tables 2, 3, 6, 12, 13, 14 and 18, Appendices A.1, C
and D.1. Two definitions come with them: a *sibling* is another crop of the same frame, and a *gap* is a combination of
orders 2 to 4 that was not collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations as subsets
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from phoebi_lib.catalogue import CODES, COMBINATIONS, SPECIES, label_matrix, order, parse_combination
from phoebi_lib.metrics import exact_match, macro_f1, per_sample_f1
from phoebi_lib.paper import cells, printed, quoted
from phoebi_lib.report import table
from phoebi_lib.splits import (
    PARTITION_SEEDS,
    dev_folds,
    lco_split,
    published_manifest,
    random_split,
    select_heldout,
    shuffled_split,
)

DATASET = "phoebi6"
SEED = PARTITION_SEEDS[0]
_TILES = 16
_CONFUSABLE = ("bs", "bt")
_COLLECTED = frozenset(frozenset(parse_combination(name)) for name in COMBINATIONS)


@lru_cache(maxsize=1)
def _published() -> tuple[pd.DataFrame, np.ndarray]:
    manifest = published_manifest()
    return manifest, label_matrix(manifest["combination"])


@lru_cache(maxsize=4)
def _lco(seed: int) -> dict[str, np.ndarray]:
    return lco_split(_published()[0], seed, grouping="image")


@lru_cache(maxsize=1)
def _random() -> dict[str, np.ndarray]:
    return random_split(_published()[0])


def constant_scores(labels: np.ndarray) -> dict[str, float]:
    """Return what the predictor that marks every species scores on ``labels`` (N, K): ``f1``, ``macro_f1``, ``em``."""
    every = np.ones_like(labels)
    return {"f1": per_sample_f1(labels, every), "macro_f1": macro_f1(labels, every), "em": exact_match(labels, every)}


def constant_at_order(k: int, n_classes: int = len(CODES)) -> float:
    """Return the all-present predictor's F1 on an image of ``k`` of ``n_classes`` species: ``2k / (k + n_classes)``."""
    return 2 * k / (k + n_classes)


def missing_combinations(k: int) -> list[str]:
    """Return the combinations of ``k`` species that were not collected, spelled in class order as in Table 12."""
    return ["_".join(names) for names in subsets(CODES, k) if frozenset(names) not in _COLLECTED]


def sibling_share(manifest: pd.DataFrame, rows: np.ndarray, others: np.ndarray) -> float:
    """Return the share of the images ``rows`` that have a sibling, another crop of their frame, among ``others``."""
    frame = manifest.groupby(["combination", "frame"], sort=False).ngroup().to_numpy()
    return float(np.isin(frame[rows], frame[others]).mean())


def recompute(n: int) -> pd.DataFrame:
    """Return Table 2, 12, 13 or 18 computed from the catalogue and the manifest, in the layout of ``printed(n)``.

    Raises ValueError for a table that does not follow from labels alone.
    """
    makers: dict[int, Callable[[], pd.DataFrame]] = {2: _table2, 12: _table12, 13: _table13, 18: _table18}
    if n not in makers:
        raise ValueError(f"Table {n} does not follow from labels alone; those that do: {', '.join(map(str, makers))}")
    return makers[n]()


def _table2() -> pd.DataFrame:
    manifest, labels = _published()
    parts = {name: np.isin(np.arange(len(manifest)), rows) for name, rows in _random().items()}
    sizes = labels.sum(axis=1)
    everything = np.ones(len(manifest), dtype=bool)
    groups = {str(k): sizes == k for k in np.unique(sizes)} | {"all": everything}

    def counts(chosen: np.ndarray) -> dict[str, Any]:
        return {"combinations": manifest.loc[chosen, "combination"].nunique(), "images": chosen.sum(),
                "test": (chosen & parts["test"]).sum()}  # fmt: skip

    lines = [
        {"block": "by order", "row": name, **counts(chosen), "train": (chosen & parts["train"]).sum(),
         "validation": (chosen & parts["val"]).sum()}
        for name, chosen in groups.items()
    ]  # fmt: skip
    for column, code in enumerate(CODES):
        species = SPECIES[code]
        length = ", ".join(text for text in (species.length_text, species.note) if text)
        lines.append({"block": "by species", "row": code, **counts(labels[:, column] == 1), "gram": species.gram,
                      "motility": species.motility, "cell_length": length})  # fmt: skip
    return _like(2, lines, source="reconstructed")


def _table12() -> pd.DataFrame:
    lines = []
    for k in range(1, len(CODES) + 1):
        missing = missing_combinations(k)
        both = sum(set(_CONFUSABLE) <= set(name.split("_")) for name in missing)
        text = ", ".join(missing)
        if len(missing) == comb(len(CODES), k):
            text = "all"
        elif len(missing) > 5:
            text = f"{len(missing)}, of which {both} contain {' and '.join(_CONFUSABLE)}"
        lines.append({"order": str(k), "collected": comb(len(CODES), k) - len(missing), "possible": comb(len(CODES), k),
                      "absent": text})  # fmt: skip
    return _like(12, lines)


def _table13() -> pd.DataFrame:
    lines = [{"number": str(i), "combination": name, "order": order(name)} for i, name in enumerate(COMBINATIONS, 1)]
    return _like(13, lines)


def _table18() -> pd.DataFrame:
    _, trained = select_heldout(COMBINATIONS, SEED)
    lines = [{"fold": str(i), "combinations": ", ".join(fold["dev"])} for i, fold in enumerate(dev_folds(trained))]
    return _like(18, lines)


def _like(n: int, lines: list[dict[str, Any]], **common: str) -> pd.DataFrame:
    """Return ``lines`` with the columns and types of ``printed(n)``; texts that a line lacks are empty."""
    like = printed(n)
    frame = pd.DataFrame(lines).reindex(columns=like.columns).assign(**common)
    for column, kind in like.dtypes.items():
        frame[column] = frame[column].astype(kind) if kind == "float64" else frame[column].fillna("").astype(kind)
    return frame


def label_only(profile: str = "") -> pd.DataFrame:
    """Return every label-only number as a tidy table (see ``phoebi_lib.report``), evidence "exact".

    ``table`` names the paper's table, or "text" for running text and "unprinted" for numbers that the paper leaves out
    although they follow from its lists. Takes about a second the first time.
    """
    lines = [*_constants(), *_table_lines(), *_coverage(), *_order_curve(), *_open_world(), *_siblings()]
    return table(lines, evidence="exact", profile=profile, dataset=DATASET)


def _line(where: str, row: str, column: str, value: float, **more: Any) -> dict[str, Any]:
    return {"table": where, "row": row, "column": column, "value": float(value), **more}


@lru_cache(maxsize=8)
def _cells(n: int) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["row"], line["column"]): {"paper": line["value"], "digits": line["digits"]}
            for line in cells(n).to_dict("records")}  # fmt: skip


@lru_cache(maxsize=1)
def _said() -> dict[str, dict[str, Any]]:
    return {line["id"]: {"paper": line["value"], "digits": line["digits"]} for line in quoted().to_dict("records")}


def _sizes(rows: np.ndarray) -> dict[str, int]:
    part = _published()[0].iloc[rows]
    frames = part[["combination", "frame"]].drop_duplicates()
    return {"n_images": len(part), "n_frames": len(frames), "n_combinations": part["combination"].nunique()}


def _constants() -> Iterator[dict[str, Any]]:
    """The all-present rows of Tables 3 and 6, and the constant on the images of Appendix C.1."""
    _, labels = _published()
    lco, name = _lco(SEED), f"lco-{SEED}"
    on = {"random": (_random()["test"], "random"), "val": (lco["val"], name), "test": (lco["test"], name)}
    scores = {part: constant_scores(labels[rows]) for part, (rows, _) in on.items()}
    delta = scores["val"]["f1"] - scores["test"]["f1"]
    columns = {
        3: {"random_f1": ("random", "f1"), "random_macro_f1": ("random", "macro_f1"), "random_em": ("random", "em"),
            "in_dist_f1": ("val", "f1"), "heldout_f1": ("test", "f1"), "heldout_macro_f1": ("test", "macro_f1"),
            "heldout_em": ("test", "em")},
        6: {"in_dist_val_f1": ("val", "f1"), "heldout_f1": ("test", "f1"), "heldout_macro_f1": ("test", "macro_f1")},
    }  # fmt: skip
    for n, names in columns.items():
        row = "All-present predictor (constant)"
        for column, (part, metric) in names.items():
            rows, partition = on[part]
            paper, sizes = _cells(n)[row, column], _sizes(rows)
            yield _line(str(n), row, column, scores[part][metric], partition=partition, **paper, **sizes)
        sizes = _sizes(on["test"][0])
        yield _line(str(n), row, "delta_f1", delta, partition=name, **_cells(n)[row, "delta_f1"], **sizes)
    pooled = {
        "27 pooled held-out pairs": np.concatenate([_lco(seed)["test"] for seed in PARTITION_SEEDS]),
        "26 development combinations": np.flatnonzero(_published()[0]["combination"].isin(_dev_names())),
    }
    for row, rows in pooled.items():
        for metric, value in constant_scores(labels[rows]).items():
            yield _line("unprinted", f"all-present on the {row}", metric, value, **_sizes(rows))
    for seed in PARTITION_SEEDS[1:]:
        other = {part: constant_scores(labels[rows]) for part, rows in _lco(seed).items()}
        for part, metric in (("val", "f1"), ("test", "f1"), ("test", "macro_f1")):
            row = f"all-present on the {'held-out' if part == 'test' else 'validation'} images"
            sizes = _sizes(_lco(seed)[part])
            yield _line("unprinted", row, metric, other[part][metric], partition=f"lco-{seed}", **sizes)


def _dev_names() -> list[str]:
    return [name for fold in dev_folds(select_heldout(COMBINATIONS, SEED)[1]) for name in fold["dev"]]


def _table_lines() -> Iterator[dict[str, Any]]:
    """The number cells of Tables 2, 12 and 13; of Table 18, how many names each fold shares with the printed list."""
    for n, key in ((2, "row"), (12, "order"), (13, "number")):
        ours = recompute(n)
        for column in ours.select_dtypes("number"):
            for i in np.flatnonzero(ours[column].notna()):
                yield _line(str(n), ours[key][i], column, ours[column][i], **_cells(n)[ours[key][i], column])
    for ours, paper in zip(recompute(18).itertuples(), printed(18).itertuples(), strict=True):
        names = paper.combinations.split(", ")
        shared = [a for a, b in zip(ours.combinations.split(", "), names, strict=False) if a == b]
        yield _line("18", f"fold {ours.fold}", "names_in_their_place", len(shared), paper=len(names), digits=0)
    _, labels = _published()
    tested = labels[_random()["test"]]
    for column, code in enumerate(CODES):
        holding = tested[tested[:, column] == 1].sum(axis=1)
        for column_14, value in (("n_pure", (holding == 1).sum()), ("n_mixtures", (holding > 1).sum())):
            yield _line("14", code, column_14, value, partition="random", **_cells(14)[code, column_14])


def _coverage() -> Iterator[dict[str, Any]]:
    """Appendix A.1: the gaps and what they hold; Appendix C.3: what the mosaics cover."""
    said = _said()
    both = [k for k in range(2, 5) for name in missing_combinations(k) if set(_CONFUSABLE) <= set(name.split("_"))]
    gaps = sum(len(missing_combinations(k)) for k in range(2, 5))
    possible = sum(comb(len(CODES) - 2, k - 2) for k in range(2, 5))
    yield _line("text", "gaps at orders 2 to 4", "count", gaps, **said["gaps"])
    yield _line("text", "gaps at orders 2 to 4 with bs and bt", "count", len(both), **said["gaps_bs_bt"])
    yield _line("text", "possible at orders 2 to 4 with bs and bt", "count", possible, **said["possible_bs_bt"])
    yield _line("text", "collected of those", "count", possible - len(both), **said["collected_bs_bt"])
    held, trained = select_heldout(COMBINATIONS, SEED)
    yield _line("text", "held-out combinations", "count", len(held), **said["heldout_combinations"])
    yield _line("text", "development combinations", "count", len(_dev_names()), **said["dev_combinations"])
    pure = {code for code in CODES if code in trained}
    mosaics = {frozenset(names) for k in range(2, len(pure) + 1) for names in subsets(sorted(pure), k)}
    covered = sum(frozenset(parse_combination(name)) in mosaics for name in held)
    yield _line("text", "combinations that mosaics can show", "count", len(mosaics), **said["mosaic_combinations"])
    yield _line("text", "held-out combinations that mosaics cover", "count", covered, **said["mosaic_covered"])


def _order_curve() -> Iterator[dict[str, Any]]:
    """The all-present predictor's F1 at each order (Figure 6 left, Appendices A.1 and C.2)."""
    said = _said()
    for k in range(1, len(CODES) + 1):
        paper = said.get(f"constant_order_{k}", {})
        yield _line("text", f"all-present at order {k}", "f1", constant_at_order(k), **paper)
    held = [name for name in select_heldout(COMBINATIONS, SEED)[0] if "bt" in name.split("_")]
    value = np.mean([constant_at_order(order(name)) for name in held])
    yield _line("unprinted", "all-present on the held-out combinations with bt", "f1", float(value), n_combinations=3)


def _open_world() -> Iterator[dict[str, Any]]:
    """Appendix D.1: unknown test images, kept training images and bank tiles of each leave-one-species-out fold."""
    _, labels = _published()
    train, test = labels[_random()["train"]], labels[_random()["test"]]
    for column, code in enumerate(CODES):
        kept = int((train[:, column] == 0).sum())
        counts = {"unknown_test_images": test[:, column].sum(), "kept_train_images": kept, "bank_tiles": kept * _TILES}
        for name, value in counts.items():
            yield _line("unprinted", code, name, value, partition=f"loso-{code}", digits=0)


def _siblings() -> Iterator[dict[str, Any]]:
    """How many images of an evaluated part have a sibling in training, under both published shuffles and neither."""
    manifest, _ = _published()
    shuffled = shuffled_split(manifest)
    parts = {f"lco-{seed}": (_lco(seed)["val"], _lco(seed)["train"], "validation") for seed in PARTITION_SEEDS}
    parts["shuffled"] = (shuffled["test"], shuffled["train"], "test")
    parts["random"] = (_random()["test"], _random()["train"], "test")
    for name, (rows, others, part) in parts.items():
        value = 100 * sibling_share(manifest, rows, others)
        row = f"{part} images with a sibling in training"
        yield _line("unprinted", row, "percent", value, partition=name, digits=1, **_sizes(rows))
