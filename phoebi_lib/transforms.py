"""A data set whose frames are changed before anything else sees them: corrupted, rotated, made grey.

The change is part of what the data set says of itself, hence of the key of its feature pool: changed frames are
embedded once and found again, and are never taken for the originals.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from phoebi_lib.datasets import Dataset
from phoebi_lib.workspace import text_sha256

#: (frame uint8 (3,H,W), its path in the manifest) -> frame uint8 (3,H',W'); the path seeds whatever is random.
Change = Callable[[np.ndarray, str], np.ndarray]


@dataclass(frozen=True, eq=False)
class Transformed(Dataset):
    """A data set seen through a change of its frames."""

    change: Change | None = None

    def read(self, i: int) -> np.ndarray:
        """Return the changed image ``i`` as uint8 ``(3, H, W)``; errors: :meth:`Dataset.read`."""
        frame = self.change(super().read(i), str(self.manifest["path"].iloc[i]))
        if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or len(frame) != 3:
            found = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise TypeError(f"a change must return a uint8 frame of shape (3, H, W); found {found}")
        return frame


def transformed(dataset: Dataset, change: Change, name: str, **settings: Any) -> Transformed:
    """Return ``dataset`` with every frame changed by ``change``.

    Args:
        dataset: the images as they are on disk.
        change: see :data:`Change`; it must depend on its arguments, ``settings`` and its module's source alone.
        name: of the change, such as "vignetting"; with ``settings`` (plain values, such as a severity) and the source
            of the module that defines ``change`` it identifies the change in a pool's key.

    Raises:
        ValueError: ``dataset`` is changed already; combine the changes into one function.
    """
    if isinstance(dataset, Transformed):
        raise ValueError(f"{dataset.name!r} is changed already ({dataset.facts['transform']}); combine both into one")
    function = getattr(change, "func", change)
    source = inspect.getsource(sys.modules[function.__module__])
    facts = {**dataset.facts, "transform": {"name": name, **settings, "code": text_sha256(source)}}
    values = {field.name: getattr(dataset, field.name) for field in fields(Dataset)}
    return Transformed(**{**values, "facts": facts}, change=change)
