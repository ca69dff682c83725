"""The start of a sibling's page: its parameters checked, its banner, its data and the features of its pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from phoebi_lib import parameters, session, workspace
from phoebi_lib.encoder_records import get_record
from phoebi_lib.siblings.fixtures import STATEMENT, fixture
from phoebi_lib.siblings.printed import BENCHMARKS

if TYPE_CHECKING:
    import pandas as pd

    from phoebi_lib.encoders import Encoder
    from phoebi_lib.provenance import Banner

REAL = "Data in the published layout: compare with a printed number only where encoder, input size and variant agree."


@dataclass(frozen=True)
class SiblingRun:
    """The parameters of a page, checked."""

    benchmark: str
    profile: str
    encoder: str
    data: str
    seed: int

    @cached_property
    def root(self) -> Path:
        """Folder of the benchmark's data: the one given, or the fixture, which is made on first use."""
        return Path(self.data) if self.data else fixture(self.benchmark)

    @property
    def evidence(self) -> str:
        """``simulated`` for the fixture, ``user`` for a folder, ``stand-in`` for either through stand-in weights."""
        from phoebi_lib.provenance import evidence_of

        return evidence_of(self.data or "sim:siblings", self.profile, self.encoder)

    @cached_property
    def _load_encoder(self) -> Callable[..., Encoder]:
        return session.encoder_loader(self.encoder)

    def load_encoder(self, img_size: int = 224) -> Encoder:
        """Return this run's encoder for pictures squeezed to ``img_size`` px a side."""
        return self._load_encoder(img_size=img_size, device=workspace.device())

    def features(self, files: Sequence[str], folder: str | Path = "", img_size: int = 224) -> pd.DataFrame:
        """Return raw features of pictures below ``root/folder``, one row per file, indexed by file."""
        from phoebi_lib.siblings.embedding import embed_files

        name = f"{self.benchmark} {folder}".strip()
        return embed_files(self.load_encoder(img_size), self.root / folder, files, name=name, evidence=self.evidence)

    def banner(self) -> Banner:
        """Return the banner that says what the numbers of this page are made from."""
        from phoebi_lib.provenance import STAND_IN, Banner, versions

        data = Path(self.data).resolve().name if self.data else "fixture"
        facts = {"benchmark": self.benchmark, "profile": self.profile, "data": data,
                 "encoder": self.encoder, "evidence": self.evidence, **versions()}  # fmt: skip
        statements = [REAL if self.data else STATEMENT, *([STAND_IN] if self.evidence == "stand-in" else [])]
        return Banner(tuple(statements), tuple(facts.items()))


def start(benchmark: str, *, profile: str = "smoke", encoder: str = "efficientnet_lite0", data: str = "",
          seed: int = 0) -> SiblingRun:  # fmt: skip
    """Return the run that these parameters describe.

    Args:
        benchmark: fungitastic, needl or bioeval.
        profile: one of the book's profiles; it chooses the encoder.
        encoder: a name of the registry.
        data: folder of the published data; "" for the synthetic fixture.
        seed: of everything drawn by a protocol.

    Raises:
        ValueError: unknown benchmark, profile or encoder, a folder that is not there, or a seed that is no int >= 0.
    """
    for name, value, known in (("benchmark", benchmark, BENCHMARKS), ("profile", profile, parameters.PROFILES)):
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
    get_record(encoder)
    if data and not Path(data).is_dir():
        raise ValueError(f"data: {data!r} is no folder; give the folder of the {benchmark} data, or leave it empty")
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed must be an int of at least 0, got {seed!r}")
    return SiblingRun(benchmark, profile, encoder, str(data), seed)
