"""Frozen encoders compared: a linear probe on each (Table 4), and the decoders on a small and a larger one (Table 7).

An encoder is compared where its weights are on this machine, or where an earlier run left its features of the same
pictures: a sweep over the encoders fills the tables row by row, on one machine or on several that share their pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from phoebi_lib import protocols, workspace
from phoebi_lib.compat import choice
from phoebi_lib.encoder_records import EncoderRecord, get_record, list_encoders
from phoebi_lib.features import open_pool
from phoebi_lib.limits import ablation_rows
from phoebi_lib.paper import cells
from phoebi_lib.parameters import profile_values
from phoebi_lib.pool import read_header
from phoebi_lib.progress import track
from phoebi_lib.splits import partition as split
from phoebi_lib.weights import WeightsNotFoundError, find_weights

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.pool import Pool
    from phoebi_lib.session import Run

#: Real weights in Python packages, and the untrained control: every run compares these.
EMBEDDED = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2", "efficientnet_lite0_untrained")
#: Table 7's small and large encoder, and the pair that stands for them where their weights are missing.
PAPER_PAIR = ("vit_small_patch14_dinov2.lvd142m", "prov-gigapath")
EMBEDDED_PAIR = ("efficientnet_lite0", "efficientnet_lite2")
PROBE = ("AllPresent", "LinearProbe")
DECODERS = ("AllPresent", "SimplexUnmix", "ProtoMatch", "ChannelGroup")
#: A method whose published epochs are fewer updates than this is run once more with as many.
LONG, LONGER = protocols.LONG["updates"], " (2,000 updates)"
#: Above so many million parameters a CPU takes minutes a frame: such an encoder runs there only where it is asked for.
LARGE = 400
_MODULES = {"transformers": "transformers", "open_clip": "open_clip"}


def weights_here(name: str) -> bool:
    """Return whether an encoder's weights are on this machine. Raises ValueError for a damaged file."""
    try:
        find_weights(get_record(name))
    except WeightsNotFoundError:
        return False
    return True


def to_run(run: Run) -> tuple[str, ...]:
    """Return the encoders whose features this run makes, in the order of the table.

    Those are the embedded ones and the run's own. Where that is an embedded one, every other whose weights and package
    are on this machine is added, on a CPU up to ``LARGE`` parameters; a run that names another encoder leaves the rest
    to its sisters in the sweep.
    """
    asked = get_record(run.encoder).name
    names = {*EMBEDDED, asked}
    if asked in EMBEDDED:
        large = np.inf if workspace.device() != "cpu" else LARGE
        names |= {r.name for r in list_encoders() if r.params_m <= large and _loadable(r) and weights_here(r.name)}
    return tuple(record.name for record in list_encoders() if record.name in names)


def _loadable(record: EncoderRecord) -> bool:
    return find_spec(_MODULES.get(record.source, "phoebi_lib")) is not None


def images(run: Run) -> Dataset:
    """Return the images on which encoders are compared: ``limits.ablation`` of each combination and part, or all.

    Raises:
        ValueError: the images that the cap takes would not be divided again as they were.
    """
    dataset = run.open_dataset()
    parts = ablation_rows(dataset.manifest, run.limits.ablation)
    subset = dataset.select(_positions(parts))
    paths = dataset.manifest["path"].to_numpy()
    for part, rows in split(subset.manifest, "random", grouping="frame").items():
        if set(subset.manifest["path"].to_numpy()[rows]) != set(paths[parts[part]]):
            raise ValueError(f"the cap ablation {run.limits.ablation} does not keep eight frames to one and one, as "
                             f"nearly as so few frames can: the {part} part would change; use another cap")  # fmt: skip
    return subset


def _positions(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.sort(np.concatenate(list(parts.values())))


def sizes(run: Run, partition: str) -> dict[str, int]:
    """Return how many of :func:`images` each part of a partition has."""
    dataset = images(run)
    parts = split(dataset.manifest, partition, grouping=choice("lco_grouping", run.compat), codes=dataset.codes)
    return {part: len(rows) for part, rows in parts.items()}


def open_pools(run: Run) -> dict[str, Pool]:
    """Return the features of :func:`images` by encoder, in the order of the table.

    They are made for the encoders of :func:`to_run`; those of others are taken where an earlier run left them.

    Raises:
        WeightsNotFoundError: the run's own encoder has no weights on this machine.
    """
    dataset, cap, found, left = images(run), run.limits.ablation, {}, {}
    chosen = to_run(run)
    for name in track(chosen, total=len(chosen), desc="encoders"):
        its = replace(run, encoder=name)
        if cap is not None and name == profile_values(run.profile)["encoder"]:
            # every page of the profile reads this pool: it holds these images already
            whole = its.open_pool()
            found[name] = whole.select(_positions(ablation_rows(whole.manifest, cap)))
        else:
            found[name] = its.embed(dataset)
            left = left or left_pools(found[name])
    found = left | found
    return {record.name: found[record.name] for record in list_encoders() if record.name in found}


def encoder_rows(
    run: Run, pools: Mapping[str, Pool], partition: str, methods: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Return rows of :func:`~phoebi_lib.protocols.run_partition` by encoder, one per image, method and part.

    A method whose published epochs are fewer than 2,000 updates has rows at 2,000 updates too. Rows that an earlier run
    stored are read.
    """
    each = track(pools.items(), total=len(pools), desc=f"{partition}, {len(pools)} encoders")
    return {name: _rows(run, pool, partition, methods) for name, pool in each}


def _rows(run: Run, pool: Pool, partition: str, methods: Sequence[str]) -> pd.DataFrame:
    cap = "all" if run.limits.ablation is None else "_".join(map(str, run.limits.ablation))
    # a folder of its own: under a cap these are other images than those of the run's other pages
    store = workspace.results_dir() / "rows" / f"encoders-grid_{run.grid}-{cap}"
    setting: dict[str, Any] = {"seed": run.seed, "compat": run.compat, "profile": run.profile, "store": store}
    rows = protocols.run_partition(pool, partition, methods=methods, **setting)
    updates = rows.groupby("method")["updates"].first()
    longer = [name + LONGER for name in methods if name + LONGER in protocols.METHODS and 0 < updates[name] < LONG]
    if longer:
        rows = pd.concat([rows, protocols.run_partition(pool, partition, methods=longer, **setting)], ignore_index=True)
    return rows


def left_pools(pool: Pool) -> dict[str, Pool]:
    """Return by encoder the pools on disk of the same pictures, in the same order, by the same front-end and code.

    The newest of several of one encoder counts. Stand-in weights prove a path and are no encoder: they do not count.
    """
    mine, found = _alike(pool.header), {}
    headers = workspace.pools_dir().glob("*/pool.json")
    for path in sorted(headers, key=lambda path: path.stat().st_mtime_ns):
        try:
            header = read_header(path.parent)
            if not header["complete"] or header["evidence"] == "stand-in" or _alike(header) != mine:
                continue
            other = open_pool(path.parent)
        except ValueError:  # a damaged pool is the matter of whoever asks for it
            continue
        if other.manifest.equals(pool.manifest):
            found[other.encoder_name] = other
    return found


def _alike(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the pools of two encoders agree in if only the encoder differs."""
    given = {key: value for key, value in header["ingredients"].items() if key not in ("encoder", "description")}
    return given | {key: header[key] for key in ("dataset_name", "codes", "labels", "facts")}


def left_out(found: Mapping[str, object]) -> tuple[str, ...]:
    """Return the encoders of Table 4 that have weights here and no rows: a run with ``encoder`` set adds each."""
    named = set(cells(4)["row"])
    return tuple(r.name for r in list_encoders() if r.title in named and r.name not in found and weights_here(r.name))
