"""From a capture to tiles at 360 px/mm, and the choice of the most different tiles (NEEDL-Bench, preprocessing)."""

from __future__ import annotations

import numpy as np
from PIL import Image
from scipy.spatial.distance import cdist

from phoebi_lib.decoders.checks import check_number
from phoebi_lib.siblings.needl.layout import SIZE
from phoebi_lib.siblings.vectors import finite

SCALE = 360.0  # px per mm


def cut_tiles(picture: np.ndarray, px_per_mm: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the tiles uint8 (n, 3, 256, 256) of a capture uint8 (3, H, W), and their upper left corners (n, 2), x, y.

    The capture is rescaled to 360 px/mm (bilinear, antialiased) and cut from (0, 0) without overlap, row by row; what
    is left at the right and at the bottom is dropped. The paper prints the scale and the size; the rest is ours.

    Raises ValueError for another kind of array, a scale that is not positive or makes more than 2^31 px, and a capture
    smaller than one tile.
    """
    if picture.ndim != 3 or len(picture) != 3 or picture.dtype != np.uint8:
        raise ValueError(f"a capture is uint8 (3, H, W), got {picture.dtype} {picture.shape}")
    lowest = SCALE * (picture[0].size / 2**31) ** 0.5
    check_number("a capture", "px_per_mm, for 2^31 px at most after rescaling,", px_per_mm, lowest, strict=True)
    width, height = (round(side * SCALE / px_per_mm) for side in (picture.shape[2], picture.shape[1]))
    if min(width, height) < SIZE:
        raise ValueError(f"at {SCALE:g} px/mm the capture has {width} x {height} px, less than a tile of {SIZE} px")
    resized = Image.fromarray(picture.transpose(1, 2, 0)).resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(resized).transpose(2, 0, 1)
    corners = [(x, y) for y in range(0, height - SIZE + 1, SIZE) for x in range(0, width - SIZE + 1, SIZE)]
    return np.stack([pixels[:, y : y + SIZE, x : x + SIZE] for x, y in corners]), np.array(corners)


def project(features: np.ndarray, dim: int = 256, seed: int = 0) -> np.ndarray:
    """Return features (N, D) after a fixed random linear map to (N, dim): Gaussian of variance 1/dim, no centring."""
    return features @ np.random.default_rng(seed).normal(0, dim**-0.5, (features.shape[1], dim))


def farthest_points(features: np.ndarray, k: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return ``k`` rows of features (N, D) in the order chosen, and each one's distance to those before it (k,).

    The first is drawn; each next one is the row farthest (Euclidean) from its nearest chosen row, ties to the lowest
    index. The paper's features are ResNet50's last layer, flattened, after :func:`project` (here: the patch tokens of
    a tile in one row); ours are pooled.

    The first distance is infinite. Raises ValueError for features that are not finite or ``k`` outside 1..N.
    """
    features = finite(features)
    check_number("farthest_points", "k, of the rows of features,", k, 1, len(features), integer=True)
    chosen, distances = [int(np.random.default_rng(seed).integers(len(features)))], [np.inf]
    nearest = np.linalg.norm(features - features[chosen[0]], axis=1)
    while len(chosen) < k:
        # a chosen row must not come back where all others are its equals
        nearest[chosen[-1]] = -1.0
        chosen.append(int(nearest.argmax()))
        distances.append(nearest[chosen[-1]])
        nearest = np.minimum(nearest, np.linalg.norm(features - features[chosen[-1]], axis=1))
    return np.array(chosen), np.array(distances)


def diversity_split(features: np.ndarray, *, n: int = 50, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the paper's maximum-diversity split: the first ``n`` chosen rows are test, the next ``n`` val."""
    order, _ = farthest_points(project(finite(features), seed=seed), 2 * n, seed=seed)
    return {"test": order[:n], "val": order[n:]}


def uncovered(features: np.ndarray, chosen: np.ndarray) -> float:
    """Return the largest distance of a row of features (N, D) to its nearest chosen row."""
    return float(cdist(features, features[chosen]).min(axis=1).max())
