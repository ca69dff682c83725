"""Sessions: what stays the same while one slide is looked at, and what changes between slides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phoebi_lib.workspace import text_sha256

WORLDS = ("combination", "shared")
# keeps the random streams of sessions and fields apart; SeedSequence ignores trailing zeros, so no part may be 0
_SESSION, _FIELD = 1, 2


@dataclass(frozen=True)
class Session:
    """One slide under the microscope.

    ``suspensions`` maps a species code to the density of its own suspension and ``volumes`` to the volume pipetted,
    both relative to nominal; ``loading`` scales all densities; ``focus`` is in um; ``lamp`` is relative brightness; the
    hotspot has a height (relative), a width and a centre (x, y), both in field widths.
    """

    suspensions: dict[str, float]
    volumes: dict[str, float]
    loading: float
    focus: float
    lamp: float
    hotspot_height: float
    hotspot_width: float
    hotspot_centre: tuple[float, float]

    def expected_cells(self, codes: Sequence[str], parameters: Mapping[str, Any]) -> dict[str, float]:
        """Return the mean number of cells per field and species when the suspensions of ``codes`` are mixed."""
        field = parameters["field"]
        area_mm2 = field["width"] * field["height"] * (field["pixel"] * 1e-3) ** 2
        nominal = parameters["density"]["cells_per_mm2"] * area_mm2 * self.loading
        total = sum(self.volumes[code] for code in codes)
        return {code: nominal * self.suspensions[code] * self.volumes[code] / total for code in codes}

    def illumination(self, height: int, width: int) -> np.ndarray:
        """Return the lamp's hotspot over the field, shape (height, width), float32.

        Its mean over the central square, where crops lie, is ``lamp``: the camera's colour is the mean of images.
        """
        x = (np.arange(width) + 0.5) / width
        y = (np.arange(height) + 0.5) / width
        centre_x, centre_y = self.hotspot_centre
        along_x = np.exp(-0.5 * ((x - centre_x) / self.hotspot_width) ** 2)
        along_y = np.exp(-0.5 * ((y - centre_y) / self.hotspot_width) ** 2)
        spot = 1.0 + self.hotspot_height * np.outer(along_y, along_x)
        top, left = max(height - width, 0) // 2, max(width - height, 0) // 2
        centre = spot[top : height - top, left : width - left]
        return (spot * (self.lamp / centre.mean())).astype(np.float32)


def draw_session(parameters: Mapping[str, Any], rng: np.random.Generator) -> Session:
    """Draw one session. All species get a suspension, so that any combination can be mixed from it."""
    density, session, field = parameters["density"], parameters["session"], parameters["field"]
    codes = list(parameters["species"])
    suspensions = np.exp(rng.normal(0.0, density["suspension_spread"], len(codes)))
    volumes = np.exp(rng.normal(0.0, density["pipetting_spread"], len(codes)))
    offset = rng.normal(0.0, session["hotspot_offset"], 2)
    return Session(
        suspensions=dict(zip(codes, suspensions.tolist(), strict=True)),
        volumes=dict(zip(codes, volumes.tolist(), strict=True)),
        loading=math.exp(rng.normal(0.0, density["loading_spread"])),
        focus=rng.normal(0.0, session["focus_deviation"]),
        lamp=math.exp(rng.normal(0.0, session["lamp_deviation"])),
        hotspot_height=rng.uniform(*session["hotspot_height"]),
        hotspot_width=rng.uniform(*session["hotspot_width"]),
        hotspot_centre=(0.5 + offset[0], 0.5 * field["height"] / field["width"] + offset[1]),
    )


def session_of(
    combination: str, frame: int, parameters: Mapping[str, Any], *, seed: int, world: str
) -> tuple[int, Session]:
    """Return the number and the session under which a frame was taken.

    In the world ``"combination"`` each combination has one session of its own (number 0), as in the published data,
    where session and composition cannot be told apart. In the world ``"shared"`` each frame draws one of a pool of
    sessions that all combinations share (numbers from 1). Raises ValueError for another world.
    """
    if world not in WORLDS:
        raise ValueError(f"world is {world!r}; expected one of {', '.join(map(repr, WORLDS))}")
    if world == "combination":
        return 0, draw_session(parameters, _generator(seed, _SESSION, _number(combination)))
    pool = parameters["session"]["shared_pool"]
    number = 1 + int(_generator(seed, _SESSION, _number(combination), frame).integers(pool))
    return number, draw_session(parameters, _generator(seed, _SESSION, number))


def field_seeds(combination: str, frame: int, seed: int) -> list[np.random.SeedSequence]:
    """Return independent seeds for the cells, the camera and the crops of one field.

    They depend on (seed, combination, frame) alone: not on order, workers or the number of crops.
    """
    return np.random.SeedSequence([seed, _FIELD, _number(combination), frame]).spawn(3)


def _generator(*entropy: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(list(entropy)))


def _number(combination: str) -> int:
    return int(text_sha256(combination)[:16], 16)
