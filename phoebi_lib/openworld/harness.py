"""Leave one species out: is an image that holds a species nobody was taught told from the others? (Appendix D.1)

For each species the prototypes are those of the other five and the bank holds every tile of the training images without
it; all test images of the random split are scored, and the ones that hold the species are the unknown ones. Nothing is
trained and nothing chosen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from phoebi_lib.decoders.prototypes import hybrid_prototypes
from phoebi_lib.openworld.neighbours import TILES_AT_A_TIME, Banks, knn_distance
from phoebi_lib.openworld.scores import energy_score, max_cosine_score, residual_score
from phoebi_lib.pool import Pool
from phoebi_lib.progress import track
from phoebi_lib.row_files import read_rows, slug, write_rows
from phoebi_lib.splits import loso_split, partition
from phoebi_lib.workspace import results_dir, text_sha256

TAU, K = 10, 10
KNN = "k-NN"
#: k-NN once more, with the training images of the test image's own combination out of the bank: what is left of the
#: score when no image, known or unknown, meets its own culture there. Not in the paper.
OWN_OUT = "k-NN, own combination left out"
SCORES = ("residual", "max cosine", "energy 1.0", "energy 0.1", KNN, OWN_OUT)
_SOURCES = ("openworld/harness.py", "openworld/knn.py", "openworld/neighbours.py", "openworld/scores.py",
            "decoders/checks.py", "decoders/prototypes.py", "decoders/simplex_unmix.py", "catalogue.py", "manifest.py",
            "splits.py")  # fmt: skip
_LIBRARIES = ("numpy", "scikit-learn", "scipy", "torch")


def run_open_set(
    pool: Pool,
    *,
    codes: Sequence[str] | None = None,
    k: int = K,
    store: str | Path | None = None,
    profile: str = "",
    device: str = "cpu",
) -> pd.DataFrame:
    """Score every test image under each left-out species; return one row per species, score and image.

    Args:
        pool: features and labels of the images.
        codes: species to leave out in turn (default: all).
        k: which neighbour.
        store: folder of the kept rows (default ``results/open_set``); rows made from the same pool, code and libraries
            are read instead of computed.
        profile: recorded in the rows.
        device: torch device of the neighbour search.

    Returns:
        Columns ``held_out``, ``score`` (one of ``SCORES``), ``id``, ``combination``, ``frame``, ``unknown`` (0/1),
        ``value`` (higher = more unknown), ``kept_images`` (training images without the species), ``bank_tiles``,
        ``dataset``, ``encoder``, ``evidence``, ``profile``, ``partition``, ``pool_key``, ``simulation``.

    Raises:
        ValueError: an unknown species, no labels, or a species without a pure culture among the training images.
    """
    codes = tuple(pool.codes if codes is None else codes)
    facts = {
        "dataset": pool.dataset_name, "encoder": pool.encoder_name, "evidence": pool.evidence, "profile": profile,
        "pool_key": pool.key, "simulation": str(pool.facts.get("parameters_sha256") or ""),
    }  # fmt: skip
    inputs = {"facts": facts, "codes": codes, "k": k, "device": device, "code": _code_sha256(),
              "libraries": {name: version(name) for name in _LIBRARIES}}  # fmt: skip
    key = text_sha256(json.dumps(inputs, sort_keys=True))
    folder = results_dir() / "open_set" if store is None else Path(store)
    path = folder / f"{slug(f'{pool.dataset_name} {pool.encoder_name} {profile}')}-{pool.key[:8]}.parquet"
    rows = read_rows(path, key)
    if rows is None:
        rows = _score(pool, codes, k, device).assign(**facts)
        write_rows(path, key, rows)
    return rows


def pure_prototypes(pool: Pool, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return by species the unit-norm mean (D,) of all tiles of its pure cultures among the images ``rows``.

    Raises ValueError for a species without one: a mixture would smuggle other species into its prototype.
    """
    labels = pool.Y[rows]
    found = {}
    for column, code in enumerate(pool.codes):
        pure = rows[(labels[:, column] == 1) & (labels.sum(axis=1) == 1)]
        if not len(pure):
            raise ValueError(f"no training image is a pure culture of {code}; leaving species out needs one of each")
        found[code] = hybrid_prototypes(pool.take(pure), np.ones((len(pure), 1), dtype=int))[0][0]
    return found


def without(pool: Pool, names: Sequence[str], codes: Sequence[str]) -> list[str]:
    """Return those of the combinations ``names`` that hold none of the species ``codes``."""
    columns = [pool.codes.index(code) for code in codes]
    labels = dict(zip(pool.manifest["combination"], pool.Y[:, columns].any(axis=1), strict=True))
    return [name for name in names if not labels[name]]


def _score(pool: Pool, codes: Sequence[str], k: int, device: str) -> pd.DataFrame:
    parts = partition(pool.manifest, "random", grouping="frame", codes=pool.codes)
    prototypes = pure_prototypes(pool, parts["train"])
    banks = Banks(pool, parts["train"], k, device)
    test = parts["test"]
    step = max(1, TILES_AT_A_TIME // pool.raw.shape[1])
    values: dict[str, list[dict[str, np.ndarray]]] = {code: [] for code in codes}
    for start in track(range(0, len(test), step), desc="open set"):
        rows = test[start : start + step]
        X = pool.take(rows)
        nearest = banks.nearest(X)
        own = pool.manifest["combination"].to_numpy()[rows]
        for code in codes:
            P = np.stack([prototypes[other] for other in pool.codes if other != code])
            kept = without(pool, list(nearest), [code])
            values[code].append({
                "residual": residual_score(X, P, TAU), "max cosine": max_cosine_score(X, P),
                "energy 1.0": energy_score(X, P, 1.0), "energy 0.1": energy_score(X, P, 0.1),
                KNN: knn_distance(nearest, kept, k).mean(axis=1), OWN_OUT: _own_out(nearest, kept, own, k),
            })  # fmt: skip
    frames = [_rows(pool, code, score, values[code], banks) for code in codes for score in SCORES]
    return pd.concat(frames, ignore_index=True)


def _own_out(nearest: dict[str, np.ndarray], kept: list[str], own: np.ndarray, k: int) -> np.ndarray:
    scores = np.empty(len(own))
    for name in sorted(set(own)):
        images = own == name
        part = {other: cosines[images] for other, cosines in nearest.items() if other != name}
        scores[images] = knn_distance(part, kept, k).mean(axis=1)
    return scores


def _rows(pool: Pool, code: str, score: str, values: list[dict[str, np.ndarray]], banks: Banks) -> pd.DataFrame:
    split = loso_split(pool.manifest, code, codes=pool.codes)
    test = split["test"]
    table: dict[str, Any] = {
        "held_out": code, "score": score, "id": np.asarray(pool.ids)[test],
        "combination": pool.manifest["combination"].to_numpy()[test],
        "frame": pool.manifest["frame"].to_numpy()[test],
        "unknown": pool.Y[test][:, pool.codes.index(code)].astype(np.int8),
        "value": np.concatenate([chunk[score] for chunk in values]), "kept_images": len(split["train"]),
        "bank_tiles": sum(banks.sizes[name] for name in without(pool, list(banks.sizes), [code])),
        "partition": f"loso-{code}",
    }  # fmt: skip
    return pd.DataFrame(table)


def _code_sha256() -> str:
    here = Path(__file__).parents[1]
    return text_sha256("\0".join((here / source).read_text(encoding="utf-8") for source in _SOURCES))
