"""The manifest, one row per image: what every split checks before it cuts, and acquisition order.

A manifest is a DataFrame with at least ``path`` (relative, ``<combination>/<nnnnn>.jpg``), ``combination`` and
``frame`` (integer; crops of one frame share it within a combination).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

import numpy as np
import pandas as pd

from phoebi_lib.catalogue import COMBINATIONS

#: One frame each for training, validation and test.
MIN_FRAMES = 3


def published_manifest(n_per_combination: int = 3000, crops_per_frame: int = 3) -> pd.DataFrame:
    """Return the manifest of the published data set without its images: 40 x 3,000 rows by default.

    Columns ``path``, ``combination``, ``frame`` (``ceil(n / crops_per_frame)``) and ``crop`` (1-based). Everything that
    follows from labels and file numbers alone is computed from it.
    """
    number = np.arange(1, n_per_combination + 1)
    files = [f"{n:05d}.jpg" for n in number]
    return pd.DataFrame(
        {
            "path": [f"{name}/{file}" for name in sorted(COMBINATIONS) for file in files],
            "combination": np.repeat(sorted(COMBINATIONS), n_per_combination),
            "frame": np.tile((number - 1) // crops_per_frame + 1, len(COMBINATIONS)),
            "crop": np.tile((number - 1) % crops_per_frame + 1, len(COMBINATIONS)),
        }
    )


def rows_by_combination(manifest: pd.DataFrame) -> dict[str, np.ndarray]:
    """Check a manifest and return, per combination in sorted order, its row positions sorted by path."""
    missing = [column for column in ("path", "combination", "frame") if column not in manifest.columns]
    if missing:
        raise ValueError(f"the manifest lacks the column {', '.join(missing)}; it has {', '.join(map(str, manifest))}")
    if not len(manifest):
        raise ValueError("the manifest has no rows")
    if not pd.api.types.is_integer_dtype(manifest["frame"]) or manifest["frame"].isna().any():
        raise ValueError(f"the manifest's frame column must hold integers, it has type {manifest['frame'].dtype}")
    paths, names = manifest["path"].tolist(), manifest["combination"].tolist()
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError("the manifest holds images without a combination; unlabelled pictures cannot be split")
    if len(set(paths)) != len(paths):
        twice = manifest["path"][manifest["path"].duplicated()].iloc[0]
        raise ValueError(f"the manifest lists {twice!r} twice; each image may occur once")
    rows: dict[str, list[int]] = {name: [] for name in sorted(set(names))}
    for position in sorted(range(len(paths)), key=paths.__getitem__):
        rows[names[position]].append(position)
    return {name: np.array(positions, dtype=np.int64) for name, positions in rows.items()}


def by_frame(manifest: pd.DataFrame, name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return a combination's rows in acquisition order, the rank of each one's frame, and the number of frames."""
    frames = manifest["frame"].to_numpy(dtype=np.int64)[rows]
    ranks = np.unique(frames, return_inverse=True)[1]
    n_frames = int(ranks.max()) + 1
    if n_frames < MIN_FRAMES:
        raise ValueError(
            f"combination {name!r} has {n_frames} frame(s); a split at frame boundaries needs at least {MIN_FRAMES}"
        )
    by_frame = np.argsort(ranks, kind="stable")
    return rows[by_frame], ranks[by_frame], n_frames


def check_numbered(manifest: pd.DataFrame, name: str, rows: np.ndarray) -> None:
    """Raise ValueError unless the files at ``rows`` (of combination ``name``) are numbered 1, 2, 3, ... in order."""
    for number, path in enumerate(manifest["path"].iloc[rows], start=1):
        stem = path.rpartition("/")[2].partition(".")[0]
        if not (stem.isascii() and stem.isdigit() and int(stem) == number):
            raise ValueError(
                f"combination {name!r}: expected image number {number} (such as {number:05d}.jpg) and found {path!r}. "
                "The published shuffle is defined on gap-free zero-padded numbers; restore the missing files or use "
                "grouping='frame'."
            )


def check_grouping(grouping: str) -> None:
    """Raise ValueError for a way of grouping that no split knows."""
    if grouping not in ("image", "frame"):
        raise ValueError(f"grouping must be 'image' (published shuffle) or 'frame', got {grouping!r}")


def checked_seed(seed: int) -> int:
    """Return ``seed`` as an int. TypeError unless it is an integer, ValueError if negative."""
    # random.Random takes strings and floats too, and treats -1 as 1: each would draw a list that nobody published
    if not isinstance(seed, Integral) or isinstance(seed, bool):
        raise TypeError(f"a seed is an integer, got {seed!r}")
    if seed < 0:
        raise ValueError(f"a seed is not negative, got {seed}")
    return int(seed)


def check_counts(counts: Mapping[int, int], pools: Mapping[int, Sequence[str]]) -> None:
    """Raise ValueError unless ``counts`` (order -> how many to hold out) fit the combinations of each order."""
    for size, count in counts.items():
        if not all(isinstance(value, Integral) and not isinstance(value, bool) for value in (size, count)) or count < 0:
            raise ValueError(f"counts maps an order to how many to hold out, both integers; got {size!r}: {count!r}")
        if count > len(pools.get(size, [])):
            raise ValueError(
                f"cannot hold out {count} combination(s) of order {size}: there are {len(pools.get(size, []))}; "
                "pass counts= that fit the combinations at hand"
            )
