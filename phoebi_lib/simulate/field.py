"""One simulated field from seed to crops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from phoebi_lib.catalogue import CODES, parse_combination
from phoebi_lib.simulate.cells import Cell, draw_cells, phase_maps
from phoebi_lib.simulate.crops import Crop, cut, draw_crop, expose
from phoebi_lib.simulate.optics import phase_contrast
from phoebi_lib.simulate.parameters import load_parameters
from phoebi_lib.simulate.session import Session, field_seeds, session_of


@dataclass(frozen=True)
class Field:
    """One field of view: what lies in it, and how it is looked at. ``photograph()`` makes the picture."""

    combination: str
    frame: int
    session: Session
    session_number: int
    cells: list[Cell]
    crops: list[Crop]
    parameters: Mapping[str, Any]
    camera_seed: np.random.SeedSequence

    def photograph(self) -> np.ndarray:
        """Return the camera frame, shape (height, width, 3), uint8; the same at each call."""
        rng = np.random.default_rng(self.camera_seed)
        focus = self.session.focus + rng.normal(0.0, self.parameters["session"]["focus_jitter"])
        intensity = phase_contrast(phase_maps(self.cells, self.parameters), self.parameters, focus)
        return expose(intensity, self.session.illumination(*intensity.shape), self.parameters, rng)

    def cut(self, picture: np.ndarray, crop: int) -> Image.Image:
        """Return one crop (counted from 1) of the camera frame, ``crop.size`` px a side."""
        return cut(picture, self.crops[crop - 1], self.parameters["crop"]["size"])

    def counts(self, crop: int) -> dict[str, int]:
        """Return the number of cells per species in one crop (counted from 1).

        A cell counts when the middle of its midline lies inside the crop's square; cells of a chain count one by one.
        """
        counts = dict.fromkeys(CODES, 0)
        if self.cells:
            centres = np.array([cell.centre for cell in self.cells]) / self.parameters["field"]["pixel"]
            for cell, inside in zip(self.cells, self.crops[crop - 1].contains(centres), strict=True):
                counts[cell.species] += int(inside)
        return counts


def draw_field(
    combination: str,
    frame: int,
    *,
    seed: int = 1337,
    world: str = "combination",
    crops: int = 3,
    overrides: Mapping[str, Any] | None = None,
) -> Field:
    """Draw the cells, the session and the crops of one field, all decided by (seed, world, combination, frame).

    ``frame`` counts from 1. Nothing is rendered yet, so this takes milliseconds. The first crop is the same whatever
    the number of crops. Raises ValueError for an unknown combination, world or frame.
    """
    if frame < 1:
        raise ValueError(f"frame is {frame}; frames count from 1")
    parameters = load_parameters(overrides)
    present = parse_combination(combination)
    number, session = session_of(combination, frame, parameters, seed=seed, world=world)
    cells_seed, camera_seed, crops_seed = field_seeds(combination, frame, seed)
    crops_rng = np.random.default_rng(crops_seed)
    field = parameters["field"]
    return Field(
        combination=combination,
        frame=frame,
        session=session,
        session_number=number,
        cells=draw_cells(session.expected_cells(present, parameters), parameters, np.random.default_rng(cells_seed)),
        crops=[draw_crop(field["width"], field["height"], parameters, crops_rng) for _ in range(crops)],
        parameters=parameters,
        camera_seed=camera_seed,
    )
