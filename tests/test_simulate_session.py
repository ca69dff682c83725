"""The simulator's parameters, fields and sessions, in both worlds."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from phoebi_lib.catalogue import CODES, COMBINATIONS, SPECIES, parse_combination
from phoebi_lib.simulate import draw_field, load_parameters, parameter_table, parameters_sha256
from phoebi_lib.simulate.parameters import PARAMETERS_FILE
from phoebi_lib.simulate.session import draw_session, session_of

SMALL = {"field.width": 400, "field.height": 300, "crop.size": 128, "session.shared_pool": 3}


def test_each_parameter_has_a_unit_and_a_source():
    rows = parameter_table()
    assert len(rows) > 60
    for row in rows:
        assert row["value"] is not None and row["unit"] and len(row["source"]) >= 6, row["name"]
    assert "Change log" in PARAMETERS_FILE.read_text(encoding="utf-8")
    assert parameters_sha256() == hashlib.sha256(PARAMETERS_FILE.read_bytes()).hexdigest()
    assert parameters_sha256(SMALL) != parameters_sha256()


def test_parameters_agree_with_the_catalogue_and_with_themselves():
    parameters = load_parameters()
    assert tuple(parameters["species"]) == CODES
    for code, species in parameters["species"].items():
        low, high = SPECIES[code].length_um
        assert low - 1.0 <= species["length"][0] <= species["length"][1] <= high + 1.0
        assert species["width"] + 3 * species["width_deviation"] < species["length"][0]
        assert (species["capsule"] > 0) == (code == "ka")
    assert sum(parameters["mount"]["depth_shares"]) == pytest.approx(1.0)
    assert parameters["camera"]["colour"] == [147, 120, 96]
    # several cells in a 224 px tile of the smallest crop (Assumption H)
    tile_um2 = 0.4 * 160 * 120 * (224 / 1024) ** 2
    assert parameters["density"]["cells_per_mm2"] * tile_um2 * 1e-6 > 5


def test_an_override_must_name_a_parameter():
    assert load_parameters({"optics.wavelength": 0.5})["optics"]["wavelength"] == 0.5
    for name in ("optics.wavelenght", "wavelength", "optics.wavelength.value", "species.bs"):
        with pytest.raises(KeyError, match="no parameter"):
            load_parameters({name: 1})


def test_a_field_holds_the_species_of_its_name_and_no_other():
    for combination in COMBINATIONS[::3]:
        field = draw_field(combination, 1, crops=1)
        assert {cell.species for cell in field.cells} == set(parse_combination(combination))
        assert tuple(field.counts(1)) == CODES
    for bad, word in ((("bs", 0), "frame"), (("bs_xx", 1), "xx")):
        with pytest.raises(ValueError, match=word):
            draw_field(*bad)


def test_mean_colour_is_the_warm_cast():
    means = []
    for combination in COMBINATIONS[::2]:
        picture = draw_field(combination, 1, crops=1, overrides=SMALL).photograph()
        means.append(picture.reshape(-1, 3).mean(axis=0))
        assert means[-1][0] > means[-1][1] > means[-1][2]
    assert np.mean(means, axis=0) == pytest.approx([147, 120, 96], rel=0.04)


def test_the_hotspot_is_a_slow_bump_with_the_lamp_as_its_central_mean():
    session = draw_session(load_parameters(), np.random.default_rng(3))
    lamp = session.illumination(300, 400)
    assert lamp[:, 50:-50].mean() == pytest.approx(session.lamp, rel=1e-5) and lamp.shape == (300, 400)
    assert 1.05 < lamp.max() / lamp.min() < 1.6
    assert np.abs(np.diff(lamp, axis=1)).max() < 0.005


def test_worlds():
    parameters = load_parameters(SMALL)
    own = {name: session_of(name, 1, parameters, seed=1, world="combination") for name in ("bs", "ka_fj")}
    assert own["bs"] == session_of("bs", 9, parameters, seed=1, world="combination")
    assert own["bs"] != own["ka_fj"] and own["bs"][0] == 0
    pool: dict[int, object] = {}
    used: dict[str, set[int]] = {}
    for name in ("bs", "ka_fj"):
        for frame in range(1, 25):
            number, session = session_of(name, frame, parameters, seed=1, world="shared")
            assert pool.setdefault(number, session) == session
            used.setdefault(name, set()).add(number)
    assert used["bs"] == used["ka_fj"] == {1, 2, 3}
    with pytest.raises(ValueError, match="own"):
        session_of("bs", 1, parameters, seed=1, world="own")


@pytest.mark.parametrize("world", ["combination", "shared"])
def test_sessions_depend_on_the_seed(world):
    parameters = load_parameters(SMALL)
    first, again, second = (
        [session_of("ka_fj", frame, parameters, seed=seed, world=world) for frame in range(1, 25)] for seed in (1, 1, 2)
    )
    assert first == again
    assert not any(one == other for _, one in first for _, other in second)
    if world == "shared":
        assert [number for number, _ in first] != [number for number, _ in second]


def test_mixing_shares_the_volume_among_the_suspensions():
    parameters = load_parameters()
    session = draw_session(parameters, np.random.default_rng(0))
    pure = {code: session.expected_cells([code], parameters)[code] for code in CODES}
    assert pure["bs"] == pytest.approx(384 * session.loading * session.suspensions["bs"])
    mixed = session.expected_cells(CODES, parameters)
    shares = {code: mixed[code] / pure[code] for code in CODES}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["ka"] / shares["pf"] == pytest.approx(session.volumes["ka"] / session.volumes["pf"])


def test_a_field_does_not_depend_on_the_number_of_crops_and_repeats_exactly():
    one, three = draw_field("bt_pf", 3, crops=1, overrides=SMALL), draw_field("bt_pf", 3, overrides=SMALL)
    assert one.crops[0] == three.crops[0] and len(three.crops) == 3
    assert (one.photograph() == three.photograph()).all()
    others = [draw_field("bt_pf", 3, seed=1), draw_field("bt_pf", 4), draw_field("bt", 3)]
    assert all(other.crops[0] != draw_field("bt_pf", 3).crops[0] for other in others)
