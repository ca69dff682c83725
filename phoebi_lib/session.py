"""The start of a notebook: its parameters checked, its banner, and the data set and feature pool they name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from phoebi_lib import parameters, workspace

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.encoders import Encoder
    from phoebi_lib.features import Pool
    from phoebi_lib.frontend import FrontEnd
    from phoebi_lib.limits import Limits


@dataclass(frozen=True)
class Run:
    """The parameters of one run, checked."""

    profile: str
    dataset: str
    encoder: str
    partition: str
    seed: int
    compat: str
    grid: int
    caps: bool

    @property
    def limits(self) -> Limits:
        """How much of the studies is computed: the caps of the profile, or none."""
        from phoebi_lib.limits import limits

        return limits(self.profile, self.caps)

    def open_dataset(self) -> Dataset:
        """Return the images that the parameters name."""
        from phoebi_lib.datasets import open_dataset

        return open_dataset(self.dataset)

    def open_pure(self) -> Dataset:
        """Return images of pure cultures that no training sees, in manifest order.

        For the simulated profiles these are further frames of the pure cultures, one crop each; elsewhere the pure
        cultures' part of the random test split.
        """
        from phoebi_lib.datasets import open_dataset
        from phoebi_lib.simulate import PURE
        from phoebi_lib.splits import random_split

        if self.dataset.removeprefix("sim:") in PURE:
            return open_dataset(f"{self.dataset}:pure")
        dataset = self.open_dataset()
        test = random_split(dataset.manifest)["test"]
        return dataset.select(test[dataset.Y[test].sum(axis=1) == 1])

    def front_end(self, **changes: object) -> FrontEnd:
        """Return the front-end that ``compat`` and ``grid`` ask for, with ``changes`` to its parameters."""
        from phoebi_lib.compat import choice
        from phoebi_lib.frontend import FrontEnd

        return FrontEnd(**{"grid": self.grid, "padding": choice("illumination", self.compat), **changes})

    @cached_property
    def _load_encoder(self) -> Callable[..., Encoder]:
        return encoder_loader(self.encoder)

    def open_pool(self) -> Pool:
        """Return the feature pool of the images; it is filled first where it is missing or unfinished."""
        return self.embed(self.open_dataset())

    def embed(self, dataset: Dataset, **changes: object) -> Pool:
        """Return the pool of any images with this run's encoder; ``changes`` are parameters of the front-end.

        What was embedded before, here or on another page, is read from disk. The environment variable
        ``PHOEBI_DEVICE`` names the device, such as cuda; without it that is the CPU.
        """
        from phoebi_lib.features import embed

        front_end = self.front_end(**changes)
        encoder = self._load_encoder(img_size=front_end.tile_size, device=workspace.device())
        return embed(dataset, encoder, front_end)

    def embed_patches(self, dataset: Dataset, units: int) -> Pool:
        """Return the pool of ``units`` patch tokens per image, at fixed random places of the tile grid."""
        from phoebi_lib.features import embed
        from phoebi_lib.patches import load_patch_encoder

        front_end = self.front_end()
        size, device = front_end.tile_size, workspace.device()
        encoder = load_patch_encoder(self.encoder, n_tiles=front_end.n_tiles, units=units, img_size=size, device=device)
        return embed(dataset, encoder, front_end)

    def banner(self):
        """Return the banner that says what the numbers of this page are made from; last in a cell, it is displayed."""
        from phoebi_lib.report import banner

        return banner(self)


def encoder_loader(name: str) -> Callable[..., Encoder]:
    """Return ``load_encoder`` for one name; it keeps what it loaded last, as a page may embed dozens of pools with it.

    No more than one is kept: a large encoder fills gigabytes.
    """
    from phoebi_lib.encoders import load_encoder

    return lru_cache(maxsize=1)(partial(load_encoder, name))


def start(
    *,
    profile: str = "smoke",
    dataset: str = "sim:smoke",
    encoder: str = "",
    partition: str = "random",
    seed: int = 1337,
    compat: str = "corrected",
    grid: int = 4,
    caps: bool = True,
) -> Run:
    """Return the run that these parameters describe; a page that embeds nothing names no encoder.

    Raises ValueError, naming the parameter and the known values, for a profile, data set, encoder, partition or way
    of being right that does not exist, and for a folder that cannot be opened or whose pictures have no labels. Stock
    papermill only warns about such things; a notebook must not.
    """
    from phoebi_lib import compat as ways
    from phoebi_lib.catalogue import CODES
    from phoebi_lib.encoder_records import get_record

    _known("profile", profile, parameters.PROFILES)
    _known("compat", compat, ways.WAYS)
    if encoder:
        get_record(encoder)
    partitions = ("random", *(f"dev-{i}" for i in range(5)), *(f"loso-{code}" for code in CODES))
    if not re.fullmatch(r"lco-(0|[1-9][0-9]*)", partition):
        _known("partition", partition, (*partitions, "lco-<seed>"))
    simulated = re.fullmatch(r"sim:((smoke|default)(:(shared|pure|four))?|rehearsal)", dataset)
    if dataset not in ("phoebi6", "phoebi4") and not simulated and not Path(dataset).is_dir():
        raise ValueError(f"dataset {dataset!r} is neither sim:smoke, sim:default (each also with :shared, :pure or "
                         ":four), sim:rehearsal, phoebi6, phoebi4 nor a folder")  # fmt: skip
    if dataset not in ("phoebi6", "phoebi4") and not simulated:
        _labelled(dataset)
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed must be an int of at least 0, got {seed!r}")
    if type(grid) is not int or grid < 1:
        raise ValueError(f"grid must be an int of at least 1, got {grid!r}")
    if type(caps) is not bool:
        raise ValueError(f"caps must be True or False (on or off on the command line), got {caps!r}")
    return Run(profile, dataset, encoder, partition, seed, compat, grid, caps)


def _labelled(folder: str) -> None:
    from phoebi_lib.datasets import open_dataset

    if not open_dataset(folder).labelled:
        raise ValueError(f"dataset {folder!r}: unlabelled pictures cannot be split; put them into sub-folders named by "
                         "species codes, or take their features alone with phoebi embed")  # fmt: skip


def _known(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
