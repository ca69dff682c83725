"""Cells: where they lie, how they bend, how thick they are, and the phase delay that this costs the light."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_SAGITTA_UM = 0.02  # how far a bend may leave its polyline: a tenth of the resolution


@dataclass(frozen=True)
class Cell:
    """One bent spherocylinder.

    ``midline`` is a polyline of shape (n + 1, 2) in um, (x, y) from the field's upper left corner, between the centres
    of the two round ends; its centre lies inside the field, its ends may lie outside (the field is a torus, see
    ``phase_maps``). ``radius`` is in um, ``plane`` is the index of the depth it lies at.
    """

    species: str
    midline: np.ndarray
    radius: float
    plane: int

    @property
    def centre(self) -> np.ndarray:
        """The point half-way along the midline, (x, y) in um."""
        return self.midline[(len(self.midline) - 1) // 2]


def draw_cells(expected: Mapping[str, float], parameters: Mapping[str, Any], rng: np.random.Generator) -> list[Cell]:
    """Scatter cells over one field.

    ``expected`` maps a species code to the mean number of its cells in a field; the number of chains is Poisson,
    places and directions are uniform: a suspension has no neighbours by preference. Returns the cells, species by
    species in the order of ``expected``.
    """
    pixel = parameters["field"]["pixel"]
    size = np.array([parameters["field"]["width"], parameters["field"]["height"]]) * pixel
    depths = np.cumsum(parameters["mount"]["depth_shares"])
    cells: list[Cell] = []
    for code, mean in expected.items():
        species = parameters["species"][code]
        for _ in range(rng.poisson(mean / species["chain"])):
            plane = int(np.searchsorted(depths / depths[-1], rng.random(), side="right"))
            place, heading = rng.uniform((0.0, 0.0), size), rng.uniform(0.0, 2.0 * math.pi)
            for _ in range(rng.geometric(1.0 / species["chain"])):
                cell, place, heading = _grow(code, species, place, heading, plane, rng)
                shift = np.floor(cell.centre / size) * size
                cells.append(Cell(code, (cell.midline - shift).astype(np.float32), cell.radius, plane))
    return cells


def _grow(
    code: str, species: Mapping[str, Any], start: np.ndarray, heading: float, plane: int, rng: np.random.Generator
) -> tuple[Cell, np.ndarray, float]:
    """Draw one cell from ``start`` on; also return where and in which direction its neighbour in the chain begins."""
    width = max(rng.normal(species["width"], species["width_deviation"]), 0.5 * species["width"])
    low, high = species["length"]
    length = _truncated_normal(rng, (low + high) / 2.0, (high - low) / 4.0, low, high)
    straight = max(length - width, 0.1)
    first, second = rng.normal(0.0, species["curvature_deviation"], 2)
    correlation = species["curvature_correlation"]
    second = correlation * first + math.sqrt(1.0 - correlation**2) * second
    sharpest = max(abs(first), abs(second))
    # an arc of length s and curvature c rises by c s^2 / 8 over its chord; an even number of chords has a middle point
    steps = 2 * max(1, math.ceil(0.5 * straight * math.sqrt(sharpest / (8.0 * _SAGITTA_UM))))
    step = straight / steps
    bend = np.repeat([first, second], steps // 2) * step
    # each segment points along the arc's chord: half of the first bend is behind its middle
    angles = heading + np.cumsum(bend) - bend / 2.0
    moves = step * np.column_stack([np.cos(angles), np.sin(angles)])
    midline = np.vstack([start, start + np.cumsum(moves, axis=0)])
    end = heading + float(bend.sum())
    joint = end + math.radians(rng.normal(0.0, species["joint_deviation"]))
    # neighbours in a chain share a septum: their round ends overlap by a fifth of a width
    gap = 0.8 * width * np.array([math.cos(joint), math.sin(joint)])
    return Cell(code, midline, width / 2.0, plane), midline[-1] + gap, joint


def _truncated_normal(rng: np.random.Generator, mean: float, deviation: float, low: float, high: float) -> float:
    while True:
        value = rng.normal(mean, deviation)
        if low <= value <= high:
            return float(value)


def phase_maps(cells: Sequence[Cell], parameters: Mapping[str, Any]) -> np.ndarray:
    """Return the phase delay of each depth plane, shape (planes, height, width), float32, in radians, >= 0.

    phase = 2 pi / wavelength x (index of the cell - index of the medium) x thickness, added over the cells of a plane.
    The field is a torus: a cell cut by one edge continues at the opposite one, so that cells are as dense at the edges
    as elsewhere and the periodic Fourier transform of the optics sees no seam.
    """
    field = parameters["field"]
    height, width, pixel = field["height"], field["width"], field["pixel"]
    longest = max(species["length"][1] + 2.0 * species["capsule"] for species in parameters["species"].values())
    margin = math.ceil((0.75 * longest + 1.0) / pixel)
    canvas = np.zeros((len(parameters["mount"]["depths"]), height + 2 * margin, width + 2 * margin), np.float32)
    medium = parameters["optics"]["medium_index"]
    wave = 2.0 * math.pi / parameters["optics"]["wavelength"]
    for cell in cells:
        species = parameters["species"][cell.species]
        capsule = species["capsule"]
        rows, columns, squared = _squared_distance(cell.midline, cell.radius + capsule, pixel, margin)
        phase = wave * (species["index"] - medium) * _thickness(squared, cell.radius)
        if capsule > 0.0:
            shell = _thickness(squared, cell.radius + capsule) - _thickness(squared, cell.radius)
            phase += wave * (species["capsule_index"] - medium) * shell
        canvas[cell.plane, rows, columns] += phase
    return _fold(canvas, margin)


def _squared_distance(midline: np.ndarray, reach: float, pixel: float, margin: int) -> tuple[slice, slice, np.ndarray]:
    """Squared distance (um2) of pixel centres to the midline, in the box that holds the cell, with its place."""
    low = np.floor((midline.min(axis=0) - reach) / pixel).astype(int)
    high = np.ceil((midline.max(axis=0) + reach) / pixel).astype(int)
    x = (np.arange(low[0], high[0], dtype=np.float32) + np.float32(0.5)) * np.float32(pixel)
    y = (np.arange(low[1], high[1], dtype=np.float32) + np.float32(0.5)) * np.float32(pixel)
    squared = np.full((len(y), len(x)), np.inf, np.float32)
    for (x0, y0), (x1, y1) in zip(midline[:-1], midline[1:], strict=True):
        step_x, step_y = x1 - x0, y1 - y0
        length = np.hypot(step_x, step_y)
        step_x, step_y = step_x / length, step_y / length
        from_x, from_y = x - x0, (y - y0)[:, None]
        beyond = from_x * step_x + from_y * step_y
        across = from_x * step_y - from_y * step_x
        beyond -= np.minimum(np.maximum(beyond, np.float32(0.0)), length)
        beyond *= beyond
        across *= across
        across += beyond
        np.minimum(squared, across, out=squared)
    place = slice(low[1] + margin, high[1] + margin), slice(low[0] + margin, high[0] + margin)
    return *place, squared


def _thickness(squared: np.ndarray, radius: float) -> np.ndarray:
    """Thickness (um) of a tube of this radius (um), seen from above, at a squared distance from its midline."""
    return 2.0 * np.sqrt(np.maximum(np.float32(radius * radius) - squared, np.float32(0.0)))


def _fold(canvas: np.ndarray, margin: int) -> np.ndarray:
    """Add the margins of a canvas to the opposite sides of its interior."""
    inner = slice(margin, -margin)
    tall = canvas[:, inner].copy()
    tall[:, -margin:] += canvas[:, :margin]
    tall[:, :margin] += canvas[:, -margin:]
    field = tall[:, :, inner].copy()
    field[:, :, -margin:] += tall[:, :, :margin]
    field[:, :, :margin] += tall[:, :, -margin:]
    return field
