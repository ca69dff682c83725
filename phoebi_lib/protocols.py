"""The harness of Section 5: fit on train, calibrate on validation, score validation and test, one row per image.

Each (method, run) is one parquet file, written whole and found again by a key over everything that decides its
content. Reading and summarising rows imports no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from phoebi_lib.compat import choice
from phoebi_lib.metrics import per_sample_f1
from phoebi_lib.progress import track
from phoebi_lib.row_files import read_rows, slug, write_rows
from phoebi_lib.splits import partition as split
from phoebi_lib.summaries import over_partitions, summarise
from phoebi_lib.tile_counts import fit_tile_curve, fit_variance, score_variance, tile_count_sweep
from phoebi_lib.workspace import device as chosen_device
from phoebi_lib.workspace import results_dir, text_sha256

if TYPE_CHECKING:
    from phoebi_lib.decoders import Decoder
    from phoebi_lib.features import Pool

__all__ = [
    "DECODERS",
    "METHODS",
    "fit_tile_curve",
    "fit_variance",
    "method_names",
    "over_partitions",
    "run_partition",
    "score_variance",
    "summarise",
    "tile_count_sweep",
]

PARTS = ("val", "test")
# the library's own sources that decide a row, besides the pool, whose key covers images, front-end and encoder
_SOURCES = (
    "baselines",
    "catalogue.py",
    "compat.py",
    "decoders",
    "manifest.py",
    "metrics.py",
    "protocols.py",
    "splits.py",
)
_LIBRARIES = ("numpy", "pandas", "scikit-learn", "torch")


def _all_present(partition: str, compat: str, **_: Any) -> Decoder:
    from phoebi_lib.baselines import AllPresent

    return AllPresent()


def _simplex_unmix(partition: str, compat: str, **settings: Any) -> Decoder:
    from phoebi_lib.decoders import SimplexUnmix

    recipe = "random" if _in_distribution(partition) else "lco"
    return SimplexUnmix(recipe=recipe, fallback=_fallback(partition, compat, 0.05), **settings)


def _proto_match(partition: str, compat: str, **_: Any) -> Decoder:
    from phoebi_lib.decoders import ProtoMatch

    return ProtoMatch(fallback=_fallback(partition, compat, 0.5))


def _channel_group(partition: str, compat: str, **settings: Any) -> Decoder:
    from phoebi_lib.decoders import ChannelGroup

    fallback = _grid_fallback(compat, 0.01)
    return ChannelGroup(aggregation=choice("channel_group_aggregation", compat), fallback=fallback, **settings)


def _attention_mil(partition: str, compat: str, **settings: Any) -> Decoder:
    from phoebi_lib.baselines import AttentionMIL

    return AttentionMIL(fallback=_grid_fallback(compat, 0.01), **settings)


def _linear_probe(partition: str, compat: str, **settings: Any) -> Decoder:
    from phoebi_lib.baselines import LinearProbe

    # the published search of the probe starts at 0.5, the others' at the lowest point of the grid
    return LinearProbe(fallback=_grid_fallback(compat, 0.5), **settings)


def _in_distribution(partition: str) -> bool:
    return partition in ("random", "shuffled") or partition.startswith("loso-")


def _fallback(partition: str, compat: str, published: float) -> str | float:
    if choice("missing_positives", compat) == "never":
        return "never"
    return published if _in_distribution(partition) else "max+1"


def _grid_fallback(compat: str, published: float) -> str | float:
    return "never" if choice("missing_positives", compat) == "never" else published


#: A longer training for small data, where the published epochs are few updates: in small batches, since the published
#: one is most of a small training set.
LONG = {"updates": 2000, "batch_size": 256}
#: Name as printed -> (factory, settings). Trained decoders have a row with 2,000 updates (``LONG``) too. ProtoMatch is
#: not trained: its "init only" row is itself.
METHODS: dict[str, tuple[Callable[..., Decoder], dict[str, Any]]] = {
    "AllPresent": (_all_present, {}),
    "SimplexUnmix": (_simplex_unmix, {}),
    "ProtoMatch": (_proto_match, {}),
    "ChannelGroup": (_channel_group, {}),
    "SimplexUnmix (init only)": (_simplex_unmix, {"epochs": 0}),
    "ProtoMatch (init only)": (_proto_match, {}),
    "ChannelGroup (init only)": (_channel_group, {"epochs": 0}),
    "SimplexUnmix (2,000 updates)": (_simplex_unmix, LONG),
    "ChannelGroup (2,000 updates)": (_channel_group, LONG),
    "AttentionMIL": (_attention_mil, {}),
    "LinearProbe": (_linear_probe, {}),
    "LinearProbe (2,000 updates)": (_linear_probe, LONG),
}
#: What is run unless methods are named: the constant, the decoders and their variants, without the trained baselines.
DECODERS = tuple(name for name in METHODS if not name.startswith(("AttentionMIL", "LinearProbe")))


def method_names() -> tuple[str, ...]:
    """Return the names of the methods, in the order of the tables."""
    return tuple(METHODS)


def run_partition(
    pool: Pool,
    partition: str,
    *,
    seed: int,
    methods: Iterable[str] | Mapping[str, Decoder] | None = None,
    compat: str = "corrected",
    store: str | Path | None = None,
    profile: str = "",
    device: str | None = None,
) -> pd.DataFrame:
    """Run ``methods`` (default: ``DECODERS``) on one partition and return one row per image, method and part.

    Fits on the train part with training seed ``seed`` (the baselines that choose an epoch or a learning rate see the
    validation part, the decoders do not look at it), chooses thresholds on the validation part (on development folds
    under ``compat="reference"``: on the train part, as published), scores ``"val"`` and ``"test"``. The methods see the
    same partition, whose validation part is grouped by frame or by image as ``compat`` says.

    Columns: ``id`` (path), ``combination``, ``frame``, ``part``, ``method``; per species code ``y_``, ``score_``,
    ``threshold_``, ``pred_``; ``dataset``, ``encoder``, ``evidence``, ``profile``, ``partition``, ``seed``, ``compat``,
    ``grouping``, ``updates`` (optimiser steps), ``train_f1`` (per-sample F1 on the training images), ``pool_key``,
    ``simulation`` (hash of the simulator's parameters, or empty); of methods that choose it, ``learning_rate``.

    Rows are kept under ``store`` (default ``results/rows``), one file per method and run; a file made from the same
    pool, code, parameters and library versions is read instead of computed, so that an interrupted sweep goes on where
    it stopped. Under ``loso-*`` the left-out species is in no training image: the decoders warn and never predict it.

    A decoder of your own takes part as ``methods={"Mine": MyDecoder()}``: it is cloned, gets the training seed if it
    has a ``random_state``, and is run anew at each call, since nothing tells whether its code has changed. Its ``fit``
    gets ``validation`` if it takes that.

    Decoders are trained on ``device``, by default the one that ``PHOEBI_DEVICE`` names, else the CPU.

    Raises ``ValueError`` for an unknown method, compat or partition, or a decoder of yours named like the library's.
    """
    device = device or chosen_device()
    own = dict(methods) if isinstance(methods, Mapping) else {}
    if taken := sorted(own.keys() & METHODS.keys()):
        raise ValueError(f"{', '.join(taken)} is the name of a method of the library; call yours differently")
    names = DECODERS if methods is None else tuple(methods)
    unknown = [name for name in names if name not in METHODS and name not in own]
    if unknown or len(set(names)) != len(names):
        raise ValueError(f"methods must be different names out of {', '.join(METHODS)}; found {', '.join(names)}")
    grouping = choice("lco_grouping", compat)
    facts = {
        "dataset": pool.dataset_name,
        "encoder": pool.encoder_name,
        "evidence": pool.evidence,
        "profile": profile,
        "partition": partition,
        "seed": int(seed),
        "compat": compat,
        "grouping": grouping,
        "pool_key": pool.key,
        "simulation": str(pool.facts.get("parameters_sha256") or ""),
    }
    folder = results_dir() / "rows" if store is None else Path(store)
    stored, pending = {}, {}
    for name in names:
        path, key = folder / _file_name(name, facts), _key(name, device, facts)
        found = None if name in own else read_rows(path, key)
        if found is None:
            pending[name] = (path, key)
        else:
            stored[name] = found
    if pending:
        parts = split(pool.manifest, partition, grouping=grouping, codes=pool.codes)
        features = {part: pool.take(parts[part]) for part in ("train", *PARTS)}
        dev_train = partition.startswith("dev-") and choice("dev_thresholds", compat) == "train"
        labels = pool.Y
        for name, (path, key) in track(pending.items(), total=len(pending), desc=partition):
            if name in own:
                decoder = _seeded(own[name], int(seed))
            else:
                factory, settings = METHODS[name]
                decoder = factory(partition, compat, random_state=int(seed), device=device, **settings)
            rows = _run(name, decoder, pool, labels, parts, features, "train" if dev_train else "val", facts)
            write_rows(path, key, rows)
            stored[name] = rows
    return pd.concat([stored[name] for name in names], ignore_index=True)


def _seeded(decoder: Decoder, seed: int) -> Decoder:
    fresh = clone(decoder)
    return fresh.set_params(random_state=seed) if "random_state" in fresh.get_params(deep=False) else fresh


def _run(
    name: str,
    decoder: Decoder,
    pool: Pool,
    all_labels: np.ndarray,
    parts: dict[str, np.ndarray],
    features: dict[str, np.ndarray],
    calibration: str,
    facts: dict[str, Any],
) -> pd.DataFrame:
    labels = {part: all_labels[rows] for part, rows in parts.items()}
    takes = signature(decoder.fit).parameters
    chooses = "validation" in takes or any(taken.kind is taken.VAR_KEYWORD for taken in takes.values())
    kept_out = {"validation": (features["val"], labels["val"])} if chooses else {}
    decoder.fit(features["train"], labels["train"], **kept_out)
    scores = {part: decoder.decision_function(X) for part, X in features.items()}
    decoder.calibrate_scores(scores[calibration], labels[calibration])
    facts = {
        **facts,
        "updates": int(getattr(decoder, "updates_", 0)),
        "train_f1": float(per_sample_f1(labels["train"], decoder.predict_scores(scores["train"]))),
    }
    if hasattr(decoder, "learning_rate_"):
        facts["learning_rate"] = decoder.learning_rate_
    frames = []
    for part in PARTS:
        rows = parts[part]
        table: dict[str, Any] = {
            "id": np.asarray(pool.ids)[rows],
            "combination": pool.manifest["combination"].to_numpy()[rows],
            "frame": pool.manifest["frame"].to_numpy()[rows],
            "part": part,
            "method": name,
        }
        predicted = decoder.predict_scores(scores[part])
        for k, code in enumerate(pool.codes):
            table[f"y_{code}"] = labels[part][:, k].astype(np.int8)
            table[f"score_{code}"] = scores[part][:, k]
            table[f"threshold_{code}"] = decoder.thresholds_[k]
            table[f"pred_{code}"] = predicted[:, k].astype(np.int8)
        frames.append(pd.DataFrame({**table, **facts}))
    return pd.concat(frames, ignore_index=True)


def _key(name: str, device: str, facts: dict[str, Any]) -> str:
    # the method's parameters follow from these and the code, so that a key needs no decoder and hence no torch
    inputs = {
        "method": name,
        "settings": METHODS[name][1] if name in METHODS else "not the library's",
        "device": device,
        "facts": facts,
        "code": _code_sha256(),
        "libraries": {library: version(library) for library in _LIBRARIES},
    }
    return text_sha256(json.dumps(inputs, sort_keys=True))


def _code_sha256() -> str:
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in _SOURCES:
        files = sorted((here / source).glob("*.py")) if not source.endswith(".py") else [here / source]
        for path in files:
            digest.update(path.relative_to(here).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _file_name(name: str, facts: dict[str, Any]) -> Path:
    """Return ``<data set>/<encoder>-<partition>-...-<hash>.parquet``: readable, and different for different runs.

    The name does not depend on the library's code: rows of an older version are replaced, never read beside new ones.
    """
    identity = [facts[k] for k in ("profile", "dataset", "encoder", "partition", "seed", "compat")]
    digest = text_sha256(json.dumps([*identity, name]))[:8]
    words = [facts["encoder"], facts["partition"], f"seed {facts['seed']}", facts["compat"], name, digest]
    return Path(slug(facts["dataset"])) / ("-".join(slug(word) for word in words) + ".parquet")
