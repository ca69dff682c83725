"""The stand-in micrographs: phase-contrast pictures of simulated mixed cultures.

They test the software and teach the method; they say nothing about bacteria. ``parameters.yaml`` holds every number
with its source; ``simulate_dataset`` writes a data set in the published layout; ``draw_field`` gives one field.
"""

from phoebi_lib.simulate.crops import Crop
from phoebi_lib.simulate.field import Field, draw_field
from phoebi_lib.simulate.parameters import load_parameters, parameter_table, parameters_sha256
from phoebi_lib.simulate.pool import SimulationError
from phoebi_lib.simulate.writer import (
    FOUR_CLASS_SEED,
    PURE,
    SEED,
    SIMULATED,
    SimulationMismatchError,
    image_folder,
    simulate_dataset,
)

__all__ = [
    "FOUR_CLASS_SEED",
    "PURE",
    "SEED",
    "SIMULATED",
    "Crop",
    "Field",
    "SimulationError",
    "SimulationMismatchError",
    "draw_field",
    "image_folder",
    "load_parameters",
    "parameter_table",
    "parameters_sha256",
    "simulate_dataset",
]
