"""Who is trained for Tables 3 and 5, on which images, and with which rows: networks from pixels, heads on features.

Trainings are found again on disk (:func:`phoebi_lib.baselines.finetune.finetune`); a sweep over ``encoder`` fills the
tables row by row, on one machine or on several that share their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from phoebi_lib import protocols
from phoebi_lib.baselines.finetune import Recipe, capped, finetune, history, recipe
from phoebi_lib.baselines.finetune.harness import left_rows
from phoebi_lib.compat import choice
from phoebi_lib.encoder_records import EncoderRecord, get_record
from phoebi_lib.paper import cells
from phoebi_lib.simulate import SIMULATED
from phoebi_lib.splits import PARTITION_SEEDS
from phoebi_lib.splits import partition as split
from phoebi_lib.studies.decoder_tables import ATTENTION_ROW
from phoebi_lib.studies.encoder_sweep import weights_here

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.pool import Pool
    from phoebi_lib.session import Run

#: The nine backbones, as Tables 3 and 5 call them, and the row that trains one of them on the front-end's tiles.
BACKBONES = tuple(cells(5)["row"].unique())
CONTROL = "DINOv2 ViT-S/14 (PHOEBI)"
CONSTANT = "All-present predictor (constant)"
#: The network whose weights come in a Python package: every run trains it.
OURS = "efficientnet_lite0"
HELD_OUT = f"lco-{PARTITION_SEEDS[0]}"
#: Methods on frozen features: the constant, the paper's attention row, and the decoders of Table 6 for comparison.
HEADS = ("AllPresent", "AttentionMIL", "SimplexUnmix", "ProtoMatch", "ChannelGroup", "ChannelGroup (2,000 updates)")
#: Backbones that the paper trained in smaller batches.
_SMALL_BATCH = {"ConvNeXt-B": 32, "Florence-2 DaViT-B": 32}
_ROWS = {"AllPresent": CONSTANT, "AttentionMIL": ATTENTION_ROW}
_NOT_PRINTED = " (not in the paper)"
#: Decoders that the paper has elsewhere (Table 6): their rows say of which table they are no part.
_ELSEWHERE = ("SimplexUnmix", "ProtoMatch", "ChannelGroup")
_WHOLE, _PIPELINE = ", fine-tuned" + _NOT_PRINTED, " (PHOEBI)" + _NOT_PRINTED
#: Learning rates of backbone and head among which :func:`choose_recipe` looks.
CANDIDATES = {
    "whole": ((1e-4, 1e-4), (3e-4, 3e-4), (1e-3, 1e-3)),
    "pipeline": ((1e-4, 1e-2), (3e-4, 1e-2), (1e-3, 1e-2)),
}


def row_name(record: EncoderRecord, kind: str) -> str:
    """Return the row of a network trained from whole images or through the pipeline, marked where it is not printed."""
    if kind == "whole":
        return record.title if record.title in BACKBONES else record.title + _WHOLE
    return CONTROL if f"{record.title} (PHOEBI)" == CONTROL else record.title + _PIPELINE


def order(names: Sequence[str], n: int) -> list[str]:
    """Return the rows of Table ``n`` in its order, each of ours below the printed ones of its kind."""
    printed = [*BACKBONES, *([CONTROL, ATTENTION_ROW] if n == 3 else [])]
    places = [CONSTANT, *BACKBONES, _WHOLE, CONTROL, _PIPELINE, ATTENTION_ROW]

    def place(name: str) -> int:
        ours = next((ending for ending in (_WHOLE, _PIPELINE) if name.endswith(ending)), name)
        return places.index(ours) if ours in places else len(places)

    return sorted(dict.fromkeys([*printed, *names]), key=place)


def training_recipe(run: Run, kind: str, partition: str, title: str = "") -> Recipe:
    """Return how a network is trained on a partition: the recipe of its block, at the size that the caps allow."""
    block = "lco" if partition.startswith("lco") else "random"
    made = recipe(kind, block, run.compat)
    if kind == "whole" and title in _SMALL_BATCH:
        made = replace(made, batch=_SMALL_BATCH[title])
    return capped(made, run.limits)


def in_distribution(kind: str, compat: str) -> str:
    """Return the partition of the in-distribution block: the released one, or the shuffle of the nine backbones."""
    shuffled = kind == "whole" and choice("finetuning_split", compat) == "shuffled"
    return "shuffled" if shuffled else "random"


def parts_of(run: Run, dataset: Dataset, partition: str) -> dict:
    """Return the row positions of ``train``, ``val`` and ``test``; validation is grouped as ``compat`` says."""
    grouping = choice("lco_grouping", run.compat)
    return split(dataset.manifest, partition, grouping=grouping, codes=dataset.codes)


def to_train(run: Run, kind: str) -> tuple[str, ...]:
    """Return the networks that this run trains: ours, its own encoder and, without caps, every one of the table.

    A run that names an encoder beside ours leaves the others to its sisters in the sweep.
    """
    caps = run.limits.finetune_whole if kind == "whole" else run.limits.finetune_pipeline
    asked = get_record(run.encoder).name
    names = [OURS, asked]
    if caps is None and asked == OURS:
        names += [name for name in printed_networks(kind) if weights_here(name)]
    return tuple(dict.fromkeys(names))


def printed_networks(kind: str) -> tuple[str, ...]:
    """Return the names in the registry of the networks that the paper trains in this way."""
    titles = BACKBONES if kind == "whole" else (CONTROL.removesuffix(" (PHOEBI)"),)
    return tuple(get_record(title).name for title in titles)


def supervised(run: Run, partition: str, kinds: Sequence[str] = ("whole", "pipeline")) -> dict[str, pd.DataFrame]:
    """Return by row the validation and test rows of every trained network, in distribution and on ``partition``.

    Networks of the table that are not trained here are taken where an earlier run left their rows. Under the caps of a
    laptop a training is a few minutes' work on the CPU; rows say how many ``updates`` it had.

    Raises:
        WeightsNotFoundError: the run's own encoder has no weights on this machine.
    """
    dataset, found = run.open_dataset(), {}
    for kind in kinds:
        chosen = to_train(run, kind)
        blocks = (in_distribution(kind, run.compat), partition)
        for name in chosen:
            record = get_record(name)
            found[row_name(record, kind)] = pd.concat(
                [_trained(run, dataset, kind, record, block) for block in blocks], ignore_index=True
            )
        like = found[row_name(get_record(OURS), kind)]
        for name in printed_networks(kind):
            record = get_record(name)
            its = [left_rows(like[like["partition"] == block], name, training_recipe(run, kind, block, record.title))
                   for block in blocks]  # fmt: skip
            if name not in chosen and all(rows is not None for rows in its):
                found[row_name(record, kind)] = pd.concat(its, ignore_index=True)
    return found


def _trained(run: Run, dataset: Dataset, kind: str, record: EncoderRecord, partition: str) -> pd.DataFrame:
    return finetune(
        dataset, parts_of(run, dataset, partition), encoder=record.name,
        recipe=training_recipe(run, kind, partition, record.title), seed=run.seed, profile=run.profile,
        partition=partition,
    )  # fmt: skip


def waiting(found: Sequence[str], kinds: Sequence[str] = ("whole", "pipeline")) -> tuple[str, ...]:
    """Return the networks of the table that have weights here and no rows: a run with ``encoder`` set adds each."""
    names = {name: row_name(get_record(name), kind) for kind in kinds for name in printed_networks(kind)}
    return tuple(name for name, row in names.items() if row not in found and weights_here(name))


def heads(
    run: Run, pool: Pool, partition: str, methods: Sequence[str] = HEADS, n: int = 3
) -> dict[str, pd.DataFrame]:
    """Return by row the rows of the methods on frozen features, on the random split and on ``partition``.

    Rows that Table ``n`` does not print say so in their names.
    """
    return _heads(run, pool, [("random", run.seed), (partition, run.seed)], methods, f" (not in Table {n})")


def heads_over_partitions(run: Run, pool: Pool, methods: Sequence[str] = HEADS[1:]) -> dict[str, pd.DataFrame]:
    """Return by row the rows of the methods on the three published partitions, each with its own training seed."""
    return _heads(run, pool, [(f"lco-{seed}", seed) for seed in PARTITION_SEEDS], methods, "")


def _heads(
    run: Run, pool: Pool, runs: Sequence[tuple[str, int]], methods: Sequence[str], elsewhere: str
) -> dict[str, pd.DataFrame]:
    settings = {"methods": methods, "compat": run.compat, "profile": run.profile}
    rows = pd.concat([protocols.run_partition(pool, name, seed=seed, **settings) for name, seed in runs])
    marks = dict.fromkeys(_ELSEWHERE, elsewhere)
    return {_ROWS.get(method, method + marks.get(method, _NOT_PRINTED)): mine.reset_index(drop=True)
            for method, mine in rows.groupby("method", sort=False)}  # fmt: skip


def second_world(run: Run) -> Run | None:
    """Return the run on the simulated world whose sessions all combinations share; None where caps leave it out.

    None too for images that are not simulated: published ones have one session per combination, and no other.
    """
    if run.limits.second_world and run.dataset.removeprefix("sim:") in SIMULATED:
        return replace(run, dataset=f"{run.dataset}:shared")
    return None


def four_species(run: Run) -> Run:
    """Return the run on the four-species set that goes with its images.

    Raises:
        ValueError: images that no such set goes with.
    """
    if run.dataset == "phoebi6":
        return replace(run, dataset="phoebi4")
    if run.dataset.removeprefix("sim:") in SIMULATED:
        return replace(run, dataset=f"{run.dataset}:four")
    raise ValueError(f"no four-species set goes with {run.dataset!r}; use phoebi6, sim:smoke or sim:default")


def choose_recipe(
    run: Run, kind: str, rates: Sequence[tuple[float, float]] | None = None, updates: int | None = None
) -> pd.DataFrame:
    """Train on the random split at each pair of learning rates and return what its validation part says.

    This is how ``capped.yaml`` was filled. Every combination is in training; no partition that leaves some out is
    touched, and nothing is returned about test images.

    Args:
        run: its encoder, seed and caps count.
        kind: ``whole`` or ``pipeline``.
        rates: (backbone, head) learning rates, by default ``CANDIDATES[kind]``.
        updates: how many; by default those of the caps.

    Returns:
        One line per pair and evaluation: ``kind, lr_backbone, lr_head, updates, loss, val_f1, best``, and ``train_f1``
        of the best state.
    """
    dataset, lines = run.open_dataset(), []
    parts = parts_of(run, dataset, "random")
    for backbone, head in CANDIDATES[kind] if rates is None else rates:
        tried = replace(training_recipe(run, kind, "random"), lr_backbone=backbone, lr_head=head)
        tried = tried if updates is None else replace(tried, updates=updates)
        rows = finetune(dataset, parts, encoder=run.encoder, recipe=tried, seed=run.seed, profile=run.profile,
                        partition="random")  # fmt: skip
        curve = history(rows)[["updates", "loss", "val_f1", "best"]]
        setting = {"kind": kind, "lr_backbone": backbone, "lr_head": head}
        lines.append(curve.assign(**setting, train_f1=rows["train_f1"].iloc[0])[[*setting, *curve, "train_f1"]])
    return pd.concat(lines, ignore_index=True)
