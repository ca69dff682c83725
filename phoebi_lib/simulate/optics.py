"""The phase-contrast microscope: from phase delays to the intensity that reaches the camera."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.fft


def phase_contrast(phase: np.ndarray, parameters: Mapping[str, Any], focus: float = 0.0) -> np.ndarray:
    """Return the intensity relative to an empty field, shape (height, width), float32: 1 is background.

    ``phase`` is (planes, height, width) in radians, one map for each depth of ``mount.depths``; ``focus`` is the
    distance in um by which the objective is focused away from depth 0.

    A condenser annulus is sampled as points that add incoherently. Each point is a tilted plane wave exp(2 pi i s.x).
    Every depth plane scatters it into exp(i phase) - 1; scattering is single between planes, so that the scattered
    spectra, each propagated to the plane in focus, add to the direct wave. The objective passes frequencies up to
    NA / wavelength, and its ring, where the direct waves fall, takes light away and shifts it by a quarter wave. For a
    weak phase and a ring of amplitude a this is Zernike's result, I = 1 - 2 phase / a (Zernike 1942, Physica 9, 686).

    Raises ValueError when the field's pixel is too coarse for the image's highest frequency, 2 NA / wavelength.
    """
    optics, field = parameters["optics"], parameters["field"]
    planes, height, width = phase.shape
    step_x, step_y = 1.0 / (width * field["pixel"]), 1.0 / (height * field["pixel"])
    cutoff = optics["objective_na"] / optics["wavelength"]
    if 2.0 * cutoff >= 0.5 / field["pixel"]:
        raise ValueError(
            f"field.pixel {field['pixel']} um cannot carry the image's frequencies, up to 2 NA / wavelength = "
            f"{2.0 * cutoff:.2f} per um; use a pixel below {0.25 / cutoff:.3f} um"
        )
    half_x, half_y = int(cutoff / step_x), int(cutoff / step_y)
    # the objective is round: one quadrant of it is worked out and mirrored
    x = np.arange(half_x + 1, dtype=np.float32) * np.float32(step_x)
    y = np.arange(half_y + 1, dtype=np.float32) * np.float32(step_y)
    mirror = np.ix_(np.abs(np.arange(-half_y, half_y + 1)), np.abs(np.arange(-half_x, half_x + 1)))
    radius = np.sqrt(x[None, :] ** 2 + y[:, None] ** 2)
    quadrant = _pupil(radius, optics)
    pupil = quadrant[mirror]
    # cosine of the propagation angle times wavenumber: the phase that one um of depth adds to a frequency
    axial = np.sqrt(np.maximum((optics["medium_index"] / optics["wavelength"]) ** 2 - radius**2, 0.0))
    depths = [depth - focus for depth in parameters["mount"]["depths"]]
    lenses = [(quadrant * np.exp(np.complex64(2j * math.pi * depth) * axial))[mirror] for depth in depths]
    tilts = _annulus(optics, step_x, step_y)
    reach = half_y + max(abs(tilt[1]) for tilt in tilts), half_x + max(abs(tilt[0]) for tilt in tilts)
    scattered = [_scattered(plane, *reach) for plane in phase]

    squares = np.zeros((height, width, 2), np.float32)
    spectrum, part = np.empty_like(pupil), np.empty_like(pupil)
    direct = 0.0
    for tilt_x, tilt_y in tilts:
        at = half_y + tilt_y, half_x + tilt_x
        top, left = reach[0] - half_y - tilt_y, reach[1] - half_x - tilt_x
        box = slice(top, top + pupil.shape[0]), slice(left, left + pupil.shape[1])
        spectrum[:] = 0.0
        for plane in range(planes):
            np.multiply(scattered[plane][box], lenses[plane], out=part)
            part *= np.complex64(np.exp(-2j * math.pi * depths[plane] * axial[abs(tilt_y), abs(tilt_x)]))
            spectrum += part
        spectrum[at] += pupil[at]
        direct += abs(pupil[at]) ** 2
        wave = _inverse(spectrum, height, width).view(np.float32).reshape(height, width, 2)
        wave *= wave
        squares += wave
    return (squares[:, :, 0] + squares[:, :, 1]) / np.float32(direct)


def _scattered(phase: np.ndarray, reach_y: int, reach_x: int) -> np.ndarray:
    """Spectrum of exp(i phase) - 1 up to ``reach`` steps of frequency, zero in the middle, complex64."""
    wave = np.zeros(phase.shape, np.complex64)
    inside = np.flatnonzero(phase)
    delay = phase.ravel()[inside]
    wave.ravel()[inside] = np.cos(delay) - np.float32(1.0) + np.complex64(1j) * np.sin(delay)
    # the second pass only transforms the columns that the objective can see
    wave = scipy.fft.fft(wave, axis=1, norm="forward", overwrite_x=True, workers=1)
    wave = np.hstack([wave[:, -reach_x:], wave[:, : reach_x + 1]])
    wave = scipy.fft.fft(wave, axis=0, norm="forward", overwrite_x=True, workers=1)
    return np.vstack([wave[-reach_y:], wave[: reach_y + 1]])


def _pupil(radius: np.ndarray, optics: Mapping[str, Any]) -> np.ndarray:
    """Transmission of the objective's back focal plane at frequencies ``radius`` (per um), complex64."""
    aperture = radius * optics["wavelength"]
    ring = np.abs(aperture - optics["annulus_na"]) <= optics["ring_width_na"] / 2.0
    plate = math.sqrt(optics["ring_transmission"]) * np.exp(2j * math.pi * optics["ring_phase"])
    return np.where(ring, plate, 1.0).astype(np.complex64) * (aperture <= optics["objective_na"])


def _annulus(optics: Mapping[str, Any], step_x: float, step_y: float) -> list[tuple[int, int]]:
    """Condenser points as whole steps of the field's frequency grid, so that a tilt is a shift of the spectrum."""
    radius = optics["annulus_na"] / optics["wavelength"]
    angles = 2.0 * np.pi * (np.arange(optics["condenser_points"]) + 0.25) / optics["condenser_points"]
    return [(round(radius * math.cos(a) / step_x), round(radius * math.sin(a) / step_y)) for a in angles]


def _inverse(spectrum: np.ndarray, height: int, width: int) -> np.ndarray:
    """Inverse transform of a spectrum centred in a small box; the columns outside the box cost nothing."""
    half_y, half_x = spectrum.shape[0] // 2, spectrum.shape[1] // 2
    tall = np.zeros((height, spectrum.shape[1]), np.complex64)
    tall[: half_y + 1], tall[-half_y:] = spectrum[half_y:], spectrum[:half_y]
    tall = scipy.fft.ifft(tall, axis=0, norm="forward", overwrite_x=True, workers=1)
    full = np.zeros((height, width), np.complex64)
    full[:, : half_x + 1], full[:, -half_x:] = tall[:, half_x:], tall[:, :half_x]
    return scipy.fft.ifft(full, axis=1, norm="forward", overwrite_x=True, workers=1)
