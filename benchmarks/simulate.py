"""Seconds per simulated field on one core, stage by stage, beside the budget and the floor set by the bare transforms.

    python benchmarks/simulate.py [--fields 6] [--crops 3]

The budget is 1.05 s a field and core, three crops included. The floor is one forward transform for each depth plane and
one inverse transform for each condenser point at the size of the field, by the same library on the same data type.
"""

from __future__ import annotations

import argparse
import io
import time
from collections import defaultdict

import numpy as np
import scipy.fft

from phoebi_lib.catalogue import COMBINATIONS
from phoebi_lib.simulate import draw_field, load_parameters
from phoebi_lib.simulate.cells import phase_maps
from phoebi_lib.simulate.crops import expose
from phoebi_lib.simulate.optics import phase_contrast

BUDGET_S = 1.05


def measure(fields: int, crops: int) -> dict[str, float]:
    """Return the mean processor seconds of each stage over ``fields`` fields of different combinations."""
    spent: dict[str, float] = defaultdict(float)
    clock = time.process_time
    for combination in COMBINATIONS[:: max(1, len(COMBINATIONS) // fields)][:fields]:
        marks = [clock()]
        field = draw_field(combination, 1, crops=crops)
        marks.append(clock())
        phase = phase_maps(field.cells, field.parameters)
        marks.append(clock())
        intensity = phase_contrast(phase, field.parameters, field.session.focus)
        marks.append(clock())
        lamp = field.session.illumination(*intensity.shape)
        picture = expose(intensity, lamp, field.parameters, np.random.default_rng(field.camera_seed))
        marks.append(clock())
        pictures = [field.cut(picture, crop) for crop in range(1, crops + 1)]
        marks.append(clock())
        for one in pictures:
            one.save(io.BytesIO(), "JPEG", quality=95, subsampling="4:2:0")
        marks.append(clock())
        for stage, seconds in zip(
            ("cells", "thickness", "optics", "camera", "crops", "JPEG"), np.diff(marks), strict=True
        ):
            spent[stage] += seconds / fields
    return dict(spent)


def floor() -> float:
    """Return the processor seconds of the bare transforms of one field."""
    parameters = load_parameters()
    size = parameters["field"]["height"], parameters["field"]["width"]
    wave = np.ones(size, np.complex64)
    transforms = len(parameters["mount"]["depths"]) + parameters["optics"]["condenser_points"]
    start = time.process_time()
    for _ in range(transforms):
        scipy.fft.fft2(wave, workers=1)
    return time.process_time() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fields", type=int, default=6)
    parser.add_argument("--crops", type=int, default=3)
    options = parser.parse_args()
    measure(1, 1)  # the first field pays for imports and caches
    stages, bare = measure(options.fields, options.crops), floor()
    total = sum(stages.values())
    for stage, seconds in stages.items():
        print(f"{stage:>10}  {seconds:6.3f} s")
    print(f"{'a field':>10}  {total:6.3f} s   budget {BUDGET_S} s: {total / BUDGET_S:.2f} of it")
    print(f"{'floor':>10}  {bare:6.3f} s   bare transforms; the optics take {stages['optics'] / bare:.2f} times that")


if __name__ == "__main__":
    main()
