"""Mosaics (Appendix C.3): made-up mixtures whose every tile is four sub-crops of corrected pure-culture frames."""

from __future__ import annotations

import inspect
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from phoebi_lib.catalogue import parse_combination
from phoebi_lib.content import content_hashes
from phoebi_lib.datasets import Dataset
from phoebi_lib.frontend import FrontEnd
from phoebi_lib.limits import first_rows
from phoebi_lib.workspace import text_sha256

SIDE = 112
#: Published: mosaics per combination, and pure frames per species that they are cut from.
PER_COMBINATION, SOURCES = 300, 200
_SEED = 1337

#: One quadrant: species code, which of its source frames, top and left as shares of the room that a crop has.
Piece = tuple[str, int, float, float]


def mosaic_combinations(codes: Sequence[str]) -> list[str]:
    """Return the names of all mixtures of two species or more out of ``codes``: 26 of five, by order, then name."""
    return ["_".join(chosen) for size in range(2, len(codes) + 1) for chosen in combinations(codes, size)]


def layout(combination: str, number: int, quadrants: int, sources: Mapping[str, int]) -> list[Piece]:
    """Return what each quadrant of one mosaic shows, row by row.

    A species is drawn for every quadrant; one that was never drawn then overwrites a quadrant, drawn among those whose
    species would still be there. Frame and place are drawn uniformly. The generator is seeded by 1337, the combination
    and the mosaic's number (the published run uses one generator throughout), so that more mosaics only add some.

    Raises ValueError where there are fewer quadrants than species.
    """
    members = combination.split("_")
    if quadrants < len(members):
        raise ValueError(f"{combination}: {len(members)} species do not fit into {quadrants} quadrants")
    generator = random.Random(f"{_SEED} {combination} {number}")
    drawn = [generator.choice(members) for _ in range(quadrants)]
    for code in members:
        if code not in drawn:
            drawn[generator.choice([i for i, other in enumerate(drawn) if drawn.count(other) > 1])] = code
    return [(code, generator.randrange(sources[code]), generator.random(), generator.random()) for code in drawn]


def assemble(pieces: Sequence[Piece], frames: Mapping[str, Sequence[np.ndarray]], side: int = SIDE) -> np.ndarray:
    """Return a mosaic, uint8 (3, n * side, n * side) of n * n pieces, from frames uint8 (3, H, W) of each species."""
    n = round(len(pieces) ** 0.5)
    picture = np.empty((3, n * side, n * side), dtype=np.uint8)
    for i, (code, number, down, right) in enumerate(pieces):
        frame = frames[code][number]
        top, left = (int(share * (room - side + 1)) for share, room in zip((down, right), frame.shape[1:], strict=True))
        y, x = side * (i // n), side * (i % n)
        picture[:, y : y + side, x : x + side] = frame[:, top : top + side, left : left + side]
    return picture


@dataclass(frozen=True, eq=False)
class Mosaics(Dataset):
    """A data set of mosaics, put together when they are read.

    ``sources`` holds the pure frames; a frame is corrected by ``front_end`` and rounded to uint8 when it is first
    needed, and kept. The manifest's paths are names: no file has them, and :meth:`file` gives the first source frame.
    """

    sources: Dataset | None = None
    front_end: FrontEnd | None = None
    kept: dict[int, np.ndarray] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def file(self, i: int) -> Path:
        """Return a source frame that exists; what the mosaics are made from stands in ``facts``."""
        return self.sources.file(0)

    def read(self, i: int) -> np.ndarray:
        """Return mosaic ``i`` as uint8 ``(3, H, W)``; errors: :meth:`Dataset.read` of a source frame."""
        line = self.manifest.iloc[i]
        return assemble(self.pieces(i), {code: _Frames(self, code) for code in parse_combination(line["combination"])})

    def pieces(self, i: int) -> list[Piece]:
        """Return the :func:`layout` of mosaic ``i``."""
        line = self.manifest.iloc[i]
        counts = self.sources.manifest["combination"].value_counts()
        return layout(line["combination"], int(line["frame"]), (2 * self.front_end.grid) ** 2, counts)

    def corrected(self, row: int) -> np.ndarray:
        """Return source frame ``row``, corrected, uint8 (3, H, W)."""
        with self.lock:
            if row not in self.kept:
                frame = torch.from_numpy(self.sources.read(row))[None]
                self.kept[row] = self.front_end.correct(frame)[0].round().to(torch.uint8).numpy()
            return self.kept[row]


class _Frames(Sequence):
    """The corrected frames of one species, by number."""

    def __init__(self, mosaics: Mosaics, code: str) -> None:
        self._mosaics = mosaics
        self._rows = np.flatnonzero(mosaics.sources.manifest["combination"].to_numpy() == code)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> np.ndarray:
        return self._mosaics.corrected(int(self._rows[number]))


def make_mosaics(
    dataset: Dataset, train: np.ndarray, front_end: FrontEnd, per_combination: int | None, sources: int = SOURCES
) -> Mosaics:
    """Return the mosaics that the pure cultures among the training images allow.

    Args:
        dataset: the images; ``train`` are the row positions of a partition's training images. No other image is used.
        front_end: corrects the pure frames; its grid says how many tiles a mosaic has. The mosaics are embedded with
            the same grid and without correction: their tiles are then exactly their two-by-two groups of quadrants.
        per_combination: mosaics per combination; None for the published 300.
        sources: frames per species, at most.

    Raises:
        ValueError: fewer than two species have pure cultures in training.
    """
    names = dataset.manifest["combination"].to_numpy()[train]
    pure = [code for code in dataset.codes if code in set(names)]
    if len(pure) < 2:
        raise ValueError(f"mosaics need pure cultures of two species in training; found {', '.join(pure) or 'none'}")
    chosen = first_rows(dataset.manifest, train[np.isin(names, pure)], sources)
    kept = dataset.select(chosen)
    number = range(1, (per_combination or PER_COMBINATION) + 1)
    lines = [{"path": f"mosaics/{name}/{i:05d}", "combination": name, "frame": i, "crop": 1}
             for name in mosaic_combinations(pure) for i in number]  # fmt: skip
    facts = {
        **dataset.facts,
        "mosaics": {
            "sources": text_sha256("\n".join(content_hashes(kept))), "paths": kept.manifest["path"].tolist(),
            "front_end": front_end.parameters, "side": SIDE, "seed": _SEED,
            "code": text_sha256(inspect.getsource(sys.modules[__name__])),
        },
    }  # fmt: skip
    values = {item.name: getattr(dataset, item.name) for item in fields(Dataset)}
    values |= {"manifest": pd.DataFrame(lines), "facts": facts, "notes": ()}
    return Mosaics(**values, sources=kept, front_end=front_end)
