"""The start of a notebook: its parameters checked, its banner, and the data set and feature pool they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phoebi_lib import parameters

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.features import Pool


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

    def open_dataset(self) -> Dataset:
        """Return the images that the parameters name."""
        from phoebi_lib.datasets import open_dataset

        return open_dataset(self.dataset)

    def front_end(self):
        """Return the front-end that ``compat`` and ``grid`` ask for."""
        from phoebi_lib.compat import choice
        from phoebi_lib.frontend import FrontEnd

        return FrontEnd(grid=self.grid, padding=choice("illumination", self.compat))

    def open_pool(self) -> Pool:
        """Return the feature pool of the images; it is filled first where it is missing or unfinished."""
        from phoebi_lib.encoders import load_encoder
        from phoebi_lib.features import embed

        return embed(self.open_dataset(), load_encoder(self.encoder), self.front_end())

    def banner(self):
        """Return the banner that says what the numbers of this page are made from; last in a cell, it is displayed."""
        from phoebi_lib.report import banner

        return banner(self)


def start(
    *,
    profile: str = "smoke",
    dataset: str = "sim:smoke",
    encoder: str = "",
    partition: str = "random",
    seed: int = 1337,
    compat: str = "corrected",
    grid: int = 4,
) -> Run:
    """Return the run that these parameters describe; a page that embeds nothing names no encoder.

    Raises ValueError, naming the parameter and the known values, for a profile, data set, encoder, partition or way
    of being right that does not exist. Stock papermill only warns about such things; a notebook must not.
    """
    from phoebi_lib import compat as ways
    from phoebi_lib.catalogue import CODES
    from phoebi_lib.encoder_records import get_record

    _known("profile", profile, parameters.PROFILES)
    _known("compat", compat, ways.WAYS)
    if encoder:
        get_record(encoder)
    partitions = ("random", *(f"dev-{i}" for i in range(5)), *(f"loso-{code}" for code in CODES))
    head, _, number = partition.partition("-")
    if not (head == "lco" and number.isdigit()):
        _known("partition", partition, (*partitions, "lco-<seed>"))
    if dataset not in ("phoebi6", "phoebi4") and not dataset.startswith("sim:") and not Path(dataset).is_dir():
        raise ValueError(f"dataset {dataset!r} is neither sim:smoke, sim:default, phoebi6, phoebi4 nor a folder")
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed must be an int of at least 0, got {seed!r}")
    if type(grid) is not int or grid < 1:
        raise ValueError(f"grid must be an int of at least 1, got {grid!r}")
    return Run(profile, dataset, encoder, partition, seed, compat, grid)


def _known(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
