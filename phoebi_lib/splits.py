"""Partitions: the random split, leave-combinations-out, development folds, leave-one-species-out (Section 3, App. C.1).

The order of a manifest's rows does not matter: each rule sorts by itself. A split is a dictionary of int64 arrays of
row positions, in the published order.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral

import numpy as np
import pandas as pd

from phoebi_lib.catalogue import CODES, FOUR_CLASS_CODES, label_matrix, parse_combination
from phoebi_lib.manifest import (
    by_frame,
    check_counts,
    check_grouping,
    check_numbered,
    checked_seed,
    rows_by_combination,
)
from phoebi_lib.manifest import published_manifest as published_manifest

#: How many combinations of each order are held out, in the order of drawing (nine of forty).
HELDOUT_COUNTS: dict[int, int] = {1: 1, 2: 2, 3: 3, 4: 2, 6: 1}
#: The same for the four-species subset (one single, two pairs, one triple, the only quadruple).
FOUR_CLASS_HELDOUT_COUNTS: dict[int, int] = {1: 1, 2: 2, 3: 1, 4: 1}
#: The same for the single development split inside the trained-on combinations (Appendix C.3).
NESTED_DEV_COUNTS: dict[int, int] = {2: 1, 3: 2, 4: 1}
PARTITION_SEEDS: tuple[int, ...] = (1337, 1338, 1339)
N_FOLDS = 5
#: The partitions a run may name; any other seed works in ``lco-<seed>``.
PARTITIONS: tuple[str, ...] = (
    "random",
    *(f"lco-{seed}" for seed in PARTITION_SEEDS),
    *(f"dev-{fold}" for fold in range(N_FOLDS)),
    *(f"loso-{code}" for code in CODES),
)
_MAX_RETRY = 50
_MAX_NESTED_RETRY = 100

Split = dict[str, np.ndarray]


def random_split(manifest: pd.DataFrame) -> Split:
    """Cut every combination 80/10/10 in acquisition order, at frame boundaries.

    Of F frames the last ``max(1, round(0.1 F))`` are test, as many before them validation, the rest train. At the
    published 3,000 images (1,000 frames of three crops) this is exactly ``splits.json``: images 1-2400, 2401-2700,
    2701-3000 of each folder. Folders come in sorted order.

    Returns:
        ``{"train", "val", "test"}``: row positions.

    Raises:
        ValueError: a column is missing, a path occurs twice, or a combination has fewer than three frames.
    """
    parts: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
    for name, rows in rows_by_combination(manifest).items():
        rows, rank, n_frames = by_frame(manifest, name, rows)
        n = max(1, round(0.1 * n_frames))
        parts["train"].append(rows[rank < n_frames - 2 * n])
        parts["val"].append(rows[(rank >= n_frames - 2 * n) & (rank < n_frames - n)])
        parts["test"].append(rows[rank >= n_frames - n])
    return {part: np.concatenate(pieces) for part, pieces in parts.items()}


def shuffled_split(manifest: pd.DataFrame, seed: int = PARTITION_SEEDS[0]) -> Split:
    """Divide all images by one shuffle: the first tenth is test, the next validation, the rest train.

    This is how the nine fine-tuned backbones of the "Random" block of Tables 3 and 5 were divided, not the released
    split: with three crops a frame, 96 % of its test images have another crop of their frame in training (see
    :func:`phoebi_lib.label_only.sibling_share`). It serves a study of that leak only.

    Returns:
        ``{"train", "val", "test"}``: row positions, in shuffled order.

    Raises:
        TypeError, ValueError: bad seed or manifest, or fewer than ten images.
    """
    rows = np.concatenate(list(rows_by_combination(manifest).values()))
    if len(rows) < 10:
        raise ValueError(f"the manifest has {len(rows)} images; a shuffle into tenths needs at least 10")
    return {part: rows[chosen] for part, chosen in shuffled_tenths(len(rows), seed).items()}


def shuffled_tenths(n: int, seed: int = PARTITION_SEEDS[0]) -> Split:
    """Divide the numbers 0 to ``n`` - 1 (images, or whole frames, in sorted order) as :func:`shuffled_split` does."""
    positions = list(range(n))
    random.Random(checked_seed(seed)).shuffle(positions)
    tenth, shuffled = int(0.1 * n), np.array(positions, dtype=np.int64)
    return {"train": shuffled[2 * tenth :], "val": shuffled[tenth : 2 * tenth], "test": shuffled[:tenth]}


def select_heldout(
    combinations: Iterable[str], seed: int, counts: Mapping[int, int] | None = None, codes: Sequence[str] = CODES
) -> tuple[list[str], list[str]]:
    """Draw the held-out combinations exactly as published.

    One ``random.Random(seed + attempt)`` shuffles the sorted names of each order, in the order of ``counts``, and the
    first ``counts[order]`` are held out; a draw that leaves a species without training combination is repeated with
    the next attempt (at most 50 repeats). A repeat of seed s is therefore the first draw of seed s + 1: kept, since
    the published lists depend on it. Folders with the species set of a held-out folder (a retake, ``b_f`` and
    ``f_b``) are not trained on either; they end in neither list and a warning names them (:func:`dropped_folders`).

    Args:
        combinations: folder names; repeats are ignored.
        seed: partition seed, a non-negative integer.
        counts: order -> how many to hold out; by default ``HELDOUT_COUNTS`` (or the four-class counts).
        codes: the known codes in class order.

    Returns:
        ``(held_out, trained)``: held out in draw order, trained on in sorted order.

    Raises:
        TypeError, ValueError: bad seed or counts, unknown codes, too few combinations of an order, or no draw that
            covers every species.
    """
    held, trained, dropped = _draw_heldout(combinations, seed, counts, codes)
    if dropped:
        listed = ", ".join(dropped)
        warnings.warn(f"not trained on, as a held-out folder has the same species: {listed}", stacklevel=2)
    return held, trained


def dropped_folders(
    combinations: Iterable[str], seed: int, counts: Mapping[int, int] | None = None, codes: Sequence[str] = CODES
) -> list[str]:
    """Return the folders that ``lco-<seed>`` puts in no part: not drawn, but of the species of a folder that is.

    Arguments and errors are those of :func:`select_heldout`; sorted names, none where each species set has one folder.
    """
    return _draw_heldout(combinations, seed, counts, codes)[2]


def _draw_heldout(
    combinations: Iterable[str], seed: int, counts: Mapping[int, int] | None, codes: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    seed = checked_seed(seed)
    names = sorted(set(combinations))
    species = {name: frozenset(parse_combination(name, codes)) for name in names}
    pools: dict[int, list[str]] = {}
    for name in names:
        pools.setdefault(len(species[name]), []).append(name)
    if counts is None:
        counts = FOUR_CLASS_HELDOUT_COUNTS if tuple(codes) == FOUR_CLASS_CODES else HELDOUT_COUNTS
    check_counts(counts, pools)
    for attempt in range(_MAX_RETRY + 1):
        generator = random.Random(seed + attempt)
        held: list[str] = []
        for size, count in counts.items():
            pool = list(pools.get(size, []))
            generator.shuffle(pool)
            held += pool[:count]
        held_sets = {species[name] for name in held}
        trained = [name for name in names if species[name] not in held_sets]
        if set().union(*(species[name] for name in trained)) == set(codes):
            return held, trained, sorted(set(names) - set(held) - set(trained))
    raise ValueError(
        f"seed {seed}: {_MAX_RETRY + 1} draws of {dict(counts)} from {len(names)} combinations each left one of "
        f"{', '.join(codes)} without a training combination; hold out fewer or check the folders"
    )


def lco_split(
    manifest: pd.DataFrame,
    seed: int,
    *,
    grouping: str = "image",
    counts: Mapping[int, int] | None = None,
    codes: Sequence[str] = CODES,
) -> Split:
    """Leave combinations out: test on the held-out ones, train and validate on the others.

    ``grouping="image"`` is the published division: one ``random.Random(seed + 1)`` shuffles all trained-on images and
    the first tenth is validation, both parts in shuffled order (99 % of its validation images have a crop of the same
    frame in training). ``grouping="frame"`` takes the last ``max(1, round(0.1 F))`` frames of each trained-on
    combination instead, so that no frame is on both sides and each combination is in both. Test is the same in both:
    all images of the held-out combinations, in draw order.

    Returns:
        ``{"train", "val", "test"}``: row positions.

    Raises:
        TypeError, ValueError: as :func:`select_heldout` and :func:`random_split`; an unknown grouping; or, for
            ``"image"``, file names that are not the gap-free zero-padded numbers which that shuffle is defined on.
    """
    seed = checked_seed(seed)
    check_grouping(grouping)
    files = rows_by_combination(manifest)
    held, trained = select_heldout(files, seed, counts, codes)
    if grouping == "image":
        for name in trained:
            check_numbered(manifest, name, files[name])
        entries = [row for name in trained for row in files[name].tolist()]
        random.Random(seed + 1).shuffle(entries)
        n_val = int(0.1 * len(entries))
        train, val = np.array(entries[n_val:], dtype=np.int64), np.array(entries[:n_val], dtype=np.int64)
    else:
        pieces: dict[str, list[np.ndarray]] = {"train": [], "val": []}
        for name in trained:
            rows, rank, n_frames = by_frame(manifest, name, files[name])
            last = rank >= n_frames - max(1, round(0.1 * n_frames))
            pieces["train"].append(rows[~last])
            pieces["val"].append(rows[last])
        train, val = np.concatenate(pieces["train"]), np.concatenate(pieces["val"])
    return {"train": train, "val": val, "test": _all_rows(files, held)}


def dev_folds(
    trained: Sequence[str], n_folds: int = N_FOLDS, seed: int = 1337, *, codes: Sequence[str] = CODES
) -> list[dict[str, list[str]]]:
    """Divide the trained-on mixtures into development folds (Table 18); pure cultures always stay in training.

    One ``random.Random(seed)`` shuffles the sorted names of each order above 1, ascending; they are dealt one at a time
    to the fold that holds the fewest, the lowest on ties. A folder with the species set of a development folder (a
    retake) is kept out of that fold's training.

    Returns:
        One ``{"dev", "train"}`` per fold: dev sorted by (order, name), train in the order given.

    Raises:
        TypeError, ValueError: bad seed, more folds than mixtures, or a fold whose training misses a species.
    """
    seed = checked_seed(seed)
    species = {name: frozenset(parse_combination(name, codes)) for name in trained}
    mixtures = [name for name in species if len(species[name]) > 1]
    if not isinstance(n_folds, Integral) or isinstance(n_folds, bool) or not 1 <= n_folds <= len(mixtures):
        raise ValueError(
            f"n_folds must be an integer from 1 to {len(mixtures)}, the number of mixtures; got {n_folds!r}"
        )
    generator = random.Random(seed)
    folds: list[list[str]] = [[] for _ in range(n_folds)]
    for size in sorted({len(species[name]) for name in mixtures}):
        pool = sorted(name for name in mixtures if len(species[name]) == size)
        generator.shuffle(pool)
        for name in pool:
            min(folds, key=len).append(name)
    result = []
    for number, fold in enumerate(folds):
        held_sets = {species[name] for name in fold}
        train = [name for name in trained if species[name] not in held_sets]
        missing = set(codes).difference(*(species[name] for name in train))
        if missing:
            raise ValueError(
                f"development fold {number}: no training combination holds {', '.join(sorted(missing))}; change n_folds"
            )
        result.append({"dev": sorted(fold, key=lambda name: (len(species[name]), name)), "train": train})
    return result


def nested_dev_split(trained: Sequence[str], seed: int = 1337, *, codes: Sequence[str] = CODES) -> dict[str, list[str]]:
    """Hold four of the trained-on combinations out once more: the single development split of Appendix C.3.

    One ``random.Random(seed * 7919 + attempt)`` shuffles the sorted names of orders 2, 3 and 4 in turn; the first one,
    two and one are held out. A draw that leaves a species without training combination is repeated, at most 100 times.
    A folder with the species set of a held-out folder (a retake) is not trained on.

    Returns:
        ``{"dev", "train"}``: dev sorted by (order, name), train in the order given.

    Raises:
        TypeError, ValueError: bad seed, too few combinations of an order, or no draw that covers every species.
    """
    seed = checked_seed(seed)
    species = {name: frozenset(parse_combination(name, codes)) for name in trained}
    pools = {size: sorted(name for name in species if len(species[name]) == size) for size in NESTED_DEV_COUNTS}
    check_counts(NESTED_DEV_COUNTS, pools)
    for attempt in range(_MAX_NESTED_RETRY + 1):
        generator = random.Random(seed * 7919 + attempt)
        dev: list[str] = []
        for size, count in NESTED_DEV_COUNTS.items():
            pool = list(pools[size])
            generator.shuffle(pool)
            dev += pool[:count]
        held_sets = {species[name] for name in dev}
        train = [name for name in trained if species[name] not in held_sets]
        if set().union(*(species[name] for name in train)) == set(codes):
            return {"dev": sorted(dev, key=lambda name: (len(species[name]), name)), "train": train}
    raise ValueError(
        f"seed {seed}: each of {_MAX_NESTED_RETRY + 1} draws of {NESTED_DEV_COUNTS} from {len(species)} combinations "
        f"left one of {', '.join(codes)} without a training combination; pass more combinations"
    )


def loso_split(manifest: pd.DataFrame, code: str, *, codes: Sequence[str] = CODES) -> Split:
    """Leave one species out (the leave-one-out harness of Section 5 and Appendix D.1).

    Train: the random split's training images without that species. Test: all its test images, with and without;
    the unknown ones are those whose label holds the species.

    Returns:
        ``{"train", "test"}``: row positions.

    Raises:
        ValueError: unknown code, or as :func:`random_split`.
    """
    return {part: rows for part, rows in _loso_parts(manifest, code, codes).items() if part != "val"}


def partition(
    manifest: pd.DataFrame,
    name: str,
    *,
    grouping: str,
    counts: Mapping[int, int] | None = None,
    codes: Sequence[str] = CODES,
) -> Split:
    """Return the partition of that name: ``{"train", "val", "test"}``, row positions.

    ``random``; ``lco-<seed>``; ``dev-<fold>``: train and validation are those of ``lco-1337`` restricted to the fold's
    training combinations, test is every image of its development combinations; ``loso-<code>``: validation is the
    random split's, without that species; ``shuffled``: the leaky division of :func:`shuffled_split`, for its study
    alone and therefore not among ``PARTITIONS``. ``grouping`` ("image" or "frame") divides train from validation in
    ``lco`` and ``dev``; ``random`` and ``loso`` are always cut at frames, ``shuffled`` never.

    Raises:
        ValueError: an unknown name (the known ones are listed) or grouping, or as the split itself.
    """
    check_grouping(grouping)
    known = r"random|shuffled|lco-(0|[1-9][0-9]*)|dev-(0|[1-9][0-9]*)|loso-(.+)"
    match = re.fullmatch(known, name) if isinstance(name, str) else None
    if match is None or (match[2] and int(match[2]) >= N_FOLDS) or (match[3] and match[3] not in codes):
        names = [*PARTITIONS[: -len(CODES)], *(f"loso-{code}" for code in codes), "shuffled"]
        raise ValueError(f"unknown partition {name!r}; known: {', '.join(names)} (lco- takes any other seed too)")
    if match[1]:
        return lco_split(manifest, int(match[1]), grouping=grouping, counts=counts, codes=codes)
    if match[2]:
        return _dev_partition(manifest, int(match[2]), grouping, counts, codes)
    if match[3]:
        return _loso_parts(manifest, match[3], codes)
    return shuffled_split(manifest) if name == "shuffled" else random_split(manifest)


def _dev_partition(
    manifest: pd.DataFrame, fold: int, grouping: str, counts: Mapping[int, int] | None, codes: Sequence[str]
) -> Split:
    files = rows_by_combination(manifest)
    whole = lco_split(manifest, PARTITION_SEEDS[0], grouping=grouping, counts=counts, codes=codes)
    _, trained = select_heldout(files, PARTITION_SEEDS[0], counts, codes)
    chosen = dev_folds(trained, codes=codes)[fold]
    kept = manifest["combination"].isin(chosen["train"]).to_numpy()
    return {
        "train": whole["train"][kept[whole["train"]]],
        "val": whole["val"][kept[whole["val"]]],
        "test": _all_rows(files, chosen["dev"]),
    }


def _loso_parts(manifest: pd.DataFrame, code: str, codes: Sequence[str]) -> Split:
    if code not in codes:
        raise ValueError(f"unknown species code {code!r}; known codes: {', '.join(codes)}")
    parts = random_split(manifest)
    holds = label_matrix(manifest["combination"], codes)[:, list(codes).index(code)] == 1
    return {part: rows if part == "test" else rows[~holds[rows]] for part, rows in parts.items()}


def _all_rows(files: dict[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    return np.concatenate([files[name] for name in names]) if names else np.array([], dtype=np.int64)
