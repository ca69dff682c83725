"""The stand-in micrographs: optics against independent formulas, cells, camera and crops, both session worlds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phoebi_lib.catalogue import CODES
from phoebi_lib.simulate import Crop, draw_field, load_parameters
from phoebi_lib.simulate.cells import Cell, draw_cells, phase_maps
from phoebi_lib.simulate.crops import cut, draw_crop, expose
from phoebi_lib.simulate.optics import phase_contrast

SMALL = {"field.width": 400, "field.height": 300, "crop.size": 128, "session.shared_pool": 3}
FLAT = {**SMALL, "mount.depths": [0.0], "mount.depth_shares": [1.0]}


def rod(x: float, y: float, length: float, radius: float, species: str = "bs", angle: float = 0.0) -> Cell:
    half = (length / 2.0 - radius) * np.array([np.cos(angle), np.sin(angle)])
    middle = np.array([x, y])
    return Cell(species, np.array([middle - half, middle, middle + half], np.float32), radius, 0)


# --- optics -------------------------------------------------------------------------------------------------------


def test_weak_phase_gives_contrast_in_proportion_and_its_sign_follows_the_ring():
    # a ring that holds the direct light alone: Zernike's case
    narrow = {**FLAT, "optics.ring_width_na": 0.03}
    # 0.85 cycles per um: all diffracted light passes through the objective, none through the ring
    x = np.arange(400) * 0.1
    phase = np.broadcast_to(0.01 * np.cos(2 * np.pi * 0.85 * x), (1, 300, 400)).astype(np.float32)
    parameters = load_parameters(narrow)
    expected = 1.0 - 2.0 * phase[0] / np.sqrt(parameters["optics"]["ring_transmission"])
    assert np.abs(phase_contrast(phase, parameters) - expected).max() < 0.02 * 0.034
    double = phase_contrast(2 * phase, parameters)
    assert np.abs(double - (2 * expected - 1)).max() < 0.04 * 0.034
    negative = phase_contrast(phase, load_parameters({**narrow, "optics.ring_phase": 0.25}))
    assert np.abs(negative - (2 - expected)).max() < 0.02 * 0.034
    without = phase_contrast(phase, load_parameters({**narrow, "optics.ring_phase": 0.0}))
    assert np.abs(without - 1).max() < 0.02 * 0.034


@pytest.mark.parametrize("focus", [0.0, 0.6])
def test_optics_agree_with_the_textbook_sum_over_tilted_waves(focus):
    parameters = load_parameters(FLAT)
    optics = parameters["optics"]
    phase = phase_maps([rod(20, 15, 6, 0.4, angle=0.5), rod(24, 18, 2, 0.5, "ka")], parameters)
    fy, fx = np.meshgrid(np.fft.fftfreq(300, 0.1), np.fft.fftfreq(400, 0.1), indexing="ij")
    y, x = np.mgrid[:300, :400] * 0.1
    rho = np.hypot(fx, fy) * optics["wavelength"]
    in_ring = abs(rho - optics["annulus_na"]) <= optics["ring_width_na"] / 2
    pupil = np.where(in_ring, -1j * np.sqrt(optics["ring_transmission"]), 1) * (rho <= optics["objective_na"])
    axial = np.sqrt(np.maximum((optics["medium_index"] / optics["wavelength"]) ** 2 - fx**2 - fy**2, 0))
    total = np.zeros((300, 400))
    for k in range(6):
        angle = 2 * np.pi * (k + 0.25) / 6
        tilt = optics["annulus_na"] / optics["wavelength"] * np.array([np.cos(angle), np.sin(angle)])
        kx, ky = np.round(tilt * [40, 30]) / [40, 30]
        wave = np.exp(1j * phase[0]) * np.exp(2j * np.pi * (kx * x + ky * y))
        total += abs(np.fft.ifft2(np.fft.fft2(wave) * pupil * np.exp(-2j * np.pi * focus * axial))) ** 2
    expected = total / (6 * optics["ring_transmission"])
    assert np.abs(phase_contrast(phase, parameters, focus) - expected).max() < 1e-3


def test_rods_are_dark_with_a_bright_halo_on_an_even_background():
    parameters = load_parameters(FLAT)
    for species, length, radius in (("bs", 7, 0.375), ("ka", 2, 0.475), ("pf", 2, 0.35), ("fj", 7, 0.225)):
        picture = phase_contrast(phase_maps([rod(20, 15, length, radius, species)], parameters), parameters)
        assert picture[150, 200] < 0.6
        profile = picture[:, 200]
        assert profile[150 - 25 : 150 - 5].max() > 1.08
        assert abs(np.median(picture) - 1) < 0.02 and picture.shape == (300, 400)
    empty = phase_contrast(np.zeros((1, 300, 400), np.float32), parameters)
    assert np.allclose(empty, 1, atol=1e-5) and empty.dtype == np.float32


def test_a_cell_out_of_focus_is_fainter():
    parameters = load_parameters(FLAT)
    phase = phase_maps([rod(20, 15, 6, 0.35)], parameters)
    assert phase_contrast(phase, parameters, 1.5).min() > phase_contrast(phase, parameters, 0.0).min() + 0.2


def test_a_plane_in_focus_looks_the_same_at_any_depth():
    cell = rod(20, 15, 6, 0.35)
    deep = load_parameters(SMALL)
    low = phase_maps([Cell("bs", cell.midline, cell.radius, 2)], deep)
    assert not low[:2].any() and low[2].any()
    flat = load_parameters(FLAT)
    expected = phase_contrast(phase_maps([cell], flat), flat)
    assert np.abs(phase_contrast(low, deep, focus=0.4) - expected).max() < 1e-4
    assert np.abs(phase_contrast(low, deep, focus=0.0) - expected).max() > 0.1


def test_a_pixel_too_coarse_for_the_optics_is_refused():
    with pytest.raises(ValueError, match="pixel 0.12"):
        phase_contrast(np.zeros((1, 300, 400), np.float32), load_parameters({**FLAT, "field.pixel": 0.12}))


# --- cells --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [(20, 15), (0.3, 0.2), (39.9, 15), (20, 29.95)])
def test_phase_adds_up_to_the_volume_of_a_spherocylinder_anywhere_on_the_torus(place):
    parameters = load_parameters(FLAT)
    phase = phase_maps([rod(*place, 6.0, 0.4, angle=0.7)], parameters)
    step = 2 * np.pi / 0.55 * (1.390 - 1.335)
    volume = np.pi * 0.4**2 * 5.2 + 4 / 3 * np.pi * 0.4**3
    assert phase.sum() * 0.01 / step == pytest.approx(volume, rel=0.01)
    assert phase.max() == pytest.approx(step * 0.8, rel=0.02)
    assert phase.min() == 0 and phase.shape == (1, 300, 400)


def test_a_capsule_adds_a_faint_shell():
    cell = rod(20, 15, 2.0, 0.475, "ka")
    without = phase_maps([cell], load_parameters({**FLAT, "species.ka.capsule": 0.0}))[0]
    shell = phase_maps([cell], load_parameters(FLAT))[0] - without
    assert shell.min() >= 0 and (shell > 0).sum() > 1.5 * (without > 0).sum()
    assert shell.max() < 0.2 * without.max()


def test_drawn_cells_keep_to_their_species():
    parameters = load_parameters()
    for code in CODES:
        species = parameters["species"][code]
        cells = draw_cells({code: 400.0}, parameters, np.random.default_rng(5))
        assert 250 < len(cells) < 550 and {cell.species for cell in cells} == {code}
        steps = [np.linalg.norm(np.diff(cell.midline, axis=0), axis=1).sum() for cell in cells]
        lengths = np.array(steps) + 2 * np.array([cell.radius for cell in cells])
        assert species["length"][0] - 1e-3 <= lengths.min() and lengths.max() <= species["length"][1] + 1e-3
        assert lengths.mean() == pytest.approx(np.mean(species["length"]), rel=0.05)
        centres = np.array([cell.centre for cell in cells])
        assert (centres >= 0).all() and (centres <= [160, 120]).all()
        assert np.ptp(centres[:, 0]) > 130 and np.ptp(centres[:, 1]) > 90
        assert {cell.plane for cell in cells} == {0, 1, 2}


def test_flexible_species_bend_more_than_stiff_ones():
    def bend(code: str) -> float:
        chords = []
        for cell in draw_cells({code: 300.0}, load_parameters(), np.random.default_rng(1)):
            length = np.linalg.norm(np.diff(cell.midline, axis=0), axis=1).sum()
            chords.append(np.linalg.norm(cell.midline[-1] - cell.midline[0]) / length)
        return 1 - float(np.mean(chords))

    assert bend("fj") > bend("mx") > 3 * bend("bs") > 0
    assert bend("ka") == pytest.approx(0, abs=1e-6)


# --- camera and crops ---------------------------------------------------------------------------------------------


def test_camera_noise_has_the_variance_of_photons_and_amplifier():
    parameters = load_parameters()
    light = np.ones((400, 500), np.float32)
    frame = expose(light, light, parameters, np.random.default_rng(0)).astype(float)
    for channel, level in enumerate((147, 120, 96)):
        assert frame[:, :, channel].mean() == pytest.approx(level, abs=0.05)
        assert frame[:, :, channel].var() == pytest.approx(level / 40 + (12 / 40) ** 2 + 1 / 12, rel=0.03)
    bright = expose(light * 3, light, parameters, np.random.default_rng(0))
    assert bright.dtype == np.uint8 and bright.max() == 255


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(1600, 1200), (2592, 1944), (400, 300)]))
def test_crops_have_the_published_geometry(seed, size):
    width, height = size
    crop = draw_crop(width, height, load_parameters(), np.random.default_rng(seed))
    corners = crop.corners()
    assert 0.40 <= crop.side**2 / (width * height) <= 0.75
    assert (corners >= 0).all() and (corners <= [width, height]).all()
    assert np.allclose(np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1), crop.side)


def test_crops_take_angles_all_round_and_fall_back_to_zero():
    rng = np.random.default_rng(0)
    angles = [draw_crop(1600, 1200, load_parameters(), rng).angle for _ in range(400)]
    assert np.histogram(angles, bins=4, range=(0, 360))[0].min() > 60
    square = draw_crop(1600, 1200, load_parameters({"crop.minimum_area": 0.749}), rng)
    assert square.angle == 0 and square.side == 1198


def test_a_crop_shows_what_lies_at_its_place_in_the_field():
    y, x = np.mgrid[:300, :400]
    frame = np.stack([x * 0.6, y * 0.8, x * 0], axis=2).round().astype(np.uint8)
    crop = Crop(190.0, 160.0, 200, 30.0)
    picture = np.asarray(cut(frame, crop, 128)).astype(float)
    for u, v in ((0.1, 0.1), (0.9, 0.1), (0.2, 0.8), (0.5, 0.5)):
        px, py = crop.to_field((int(u * 128) + 0.5) / 128, (int(v * 128) + 0.5) / 128)
        red, green, _ = picture[int(v * 128), int(u * 128)]
        assert red == pytest.approx((px - 0.5) * 0.6, abs=1.0) and green == pytest.approx((py - 0.5) * 0.8, abs=1.0)


def test_counts_agree_with_a_recount_from_the_cells():
    field = draw_field("bs_bt_mx_ka_fj_pf", 2)
    for number, crop in enumerate(field.crops, start=1):
        corners = crop.corners()
        edges = np.roll(corners, -1, axis=0) - corners
        recount = dict.fromkeys(CODES, 0)
        for cell in field.cells:
            x, y = (cell.midline[len(cell.midline) // 2] / 0.1 - corners).T
            recount[cell.species] += bool((edges[:, 0] * y - edges[:, 1] * x > 0).all())
        assert field.counts(number) == recount
        assert 0.3 * len(field.cells) < sum(recount.values()) < 0.85 * len(field.cells)
