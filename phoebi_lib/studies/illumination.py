"""How even the light of a frame is, before and after the correction (Section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from phoebi_lib.limits import battery_rows
from phoebi_lib.studies.paired import interval, resampled, resamples, tidy

if TYPE_CHECKING:
    from phoebi_lib.frontend import FrontEnd
    from phoebi_lib.session import Run


def profile(frame: np.ndarray, steps: int = 32) -> np.ndarray:
    """Return the brightness along the width of a frame (3, H, W), over its mean: (``steps``,), 1 for an even field."""
    columns = frame.mean(axis=(0, 1), dtype=np.float64)
    values = np.array([part.mean() for part in np.array_split(columns, steps)])
    return values / values.mean()


def unevenness(frame: torch.Tensor, front_end: FrontEnd) -> float:
    """Return by how much the blurred background of a uint8 frame (1, 3, H, W) varies over the field.

    The standard deviation over pixels, over the mean, averaged over channels: 0 for an even field.
    """
    background = front_end.background(frame)[0].flatten(1)
    return float((background.std(dim=1, correction=0) / background.mean(dim=1)).mean())


def table_hotspot(run: Run) -> pd.DataFrame:
    """Return how uneven the frames of the battery are as taken and after the correction, with intervals."""
    dataset, front_end = run.open_dataset(), run.front_end()
    rows = battery_rows(dataset.manifest, run.limits.battery)
    values = {"as taken": [], "corrected": []}
    for i in rows:
        frame = torch.from_numpy(dataset.read(int(i)))[None]
        even = front_end.correct(frame).round().to(torch.uint8)
        for name, picture in (("as taken", frame), ("corrected", even)):
            values[name].append(unevenness(picture, front_end))
    chosen = dataset.manifest.iloc[rows]
    mean = resampled(pd.DataFrame(values, index=pd.Index(chosen["combination"])), resamples(run))
    common = {
        "evidence": dataset.evidence, "n_images": len(chosen), "n_combinations": chosen["combination"].nunique(),
        "n_frames": len(chosen[["combination", "frame"]].drop_duplicates()), "column": "background_spread",
    }  # fmt: skip
    made = [{"row": name, **interval(mean[name]), **common} for name in values]
    return tidy(made, "4 hotspot", run)
