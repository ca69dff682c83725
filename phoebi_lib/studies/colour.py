"""Table 15 and Figure 8: what colour carries. The same images in colour and in grey, read by one frozen decoder.

Both kinds take one path from the frame to the score, so that every comparison is paired (Appendix A.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from PIL import Image

from phoebi_lib import report
from phoebi_lib.intervals import bootstrap
from phoebi_lib.paper import quoted
from phoebi_lib.progress import track

if TYPE_CHECKING:
    from phoebi_lib.datasets import Dataset
    from phoebi_lib.decoders import ProtoMatch

CHANNELS = ("red", "green", "blue")
#: The columns of an image's reading that are averaged over the images of a species.
QUANTITIES = ("own_rgb", "own_grey", "drop", "pass_rgb", "pass_grey", "margin_rgb", "margin_grey", "delta_margin")


def grey(frame: np.ndarray, path: str = "") -> np.ndarray:
    """Return a frame uint8 (3, H, W) as its luma, repeated in three channels: 0.299 R + 0.587 G + 0.114 B, rounded.

    Pillow's conversion to mode "L"; ``path`` is not used (see :mod:`phoebi_lib.transforms`).
    """
    luma = np.asarray(Image.fromarray(np.ascontiguousarray(frame.transpose(1, 2, 0))).convert("L"))
    return np.repeat(luma[None], 3, axis=0)


def readings(scores: np.ndarray, species: Sequence[int], thresholds: np.ndarray) -> pd.DataFrame:
    """Return what a decoder reads from images of pure cultures: ``own``, ``margin`` and ``passed`` per image.

    Args:
        scores: image scores (N, K), for ProtoMatch mean cosines.
        species: class of each image (N,).
        thresholds: (K,) of the frozen decoder.

    ``own`` is the score of the image's own species, ``margin`` that minus the best other score, ``passed`` 1 where own
    exceeds its threshold, strictly, else 0.
    """
    scores, species = np.asarray(scores, dtype=np.float64), np.asarray(species)
    own = scores[np.arange(len(scores)), species]
    others = scores.copy()
    others[np.arange(len(scores)), species] = -np.inf
    passed = (own > np.asarray(thresholds)[species]).astype(float)
    return pd.DataFrame({"own": own, "margin": own - others.max(axis=1), "passed": passed})


def paired(decoder: ProtoMatch, rgb: Any, in_grey: Any) -> pd.DataFrame:
    """Return the readings of the same pure images in colour and grey, one row an image, with their differences.

    Args:
        decoder: fitted and calibrated; it stays as it is.
        rgb, in_grey: feature pools of the same images in the same order.

    Columns: ``species, frame`` and ``QUANTITIES``; ``drop`` is own similarity in colour minus in grey,
    ``delta_margin`` margin in grey minus in colour.

    Raises:
        ValueError: the pools hold different images, or an image with more than one species.
    """
    if rgb.ids != in_grey.ids:
        raise ValueError("the two pools must hold the same images in the same order")
    if (rgb.Y.sum(axis=1) != 1).any():
        raise ValueError("the grayscale control reads pure cultures: every image must have one species")
    species = rgb.Y.argmax(axis=1)
    one, two = (readings(decoder.decision_function(pool.X), species, decoder.thresholds_) for pool in (rgb, in_grey))
    return pd.DataFrame({
        "species": np.array(rgb.codes)[species], "frame": rgb.manifest["frame"].to_numpy(),
        "own_rgb": one["own"], "own_grey": two["own"], "drop": one["own"] - two["own"],
        "pass_rgb": one["passed"], "pass_grey": two["passed"],
        "margin_rgb": one["margin"], "margin_grey": two["margin"], "delta_margin": two["margin"] - one["margin"],
    })  # fmt: skip


def table_15(images: pd.DataFrame, codes: Sequence[str], *, n: int = 2000, seed: int = 0, **run: Any) -> pd.DataFrame:
    """Return Table 15 as a tidy table: rows are the species and "mean", columns ``QUANTITIES``.

    The row "mean" has ``drop`` and ``delta_margin``, means over the species, and of the drop also ``drop_std``, the
    spread over species with ddof 1 that the paper prints; ``drop_std_ddof0``, as all its other spreads are; and
    ``drop_range_less_mean``, the largest species' drop minus the smallest minus the mean, above 0 where the species
    differ by more than they fall. The row "species" counts with ``failing_rgb`` and ``failing_grey`` those of which
    less than half the images pass their threshold.

    Intervals: 95 %, frames resampled within each species. A culture has one session, so they say how the numbers vary
    over fields of these cultures and not over cultures.

    Args:
        images: as :func:`paired` returns them.
        codes: species in class order; each must have an image.
        n, seed: number of resamples and seed of their generator.
        run: ``profile``, ``dataset``, ``encoder``, ``evidence`` for the table's lines.

    Raises:
        ValueError: a species has no image.
    """
    if lacking := sorted(set(codes) - set(images["species"])):
        raise ValueError(f"no image of {', '.join(lacking)}; pass pure cultures of every species")
    generator = np.random.default_rng(seed)
    lines, values, drawn = [], [], []
    for code in codes:
        mine = images[images["species"] == code]
        # crops of a frame count as one observation
        frames = mine.groupby("frame")[list(QUANTITIES)].mean().to_numpy()
        mean = mine[list(QUANTITIES)].mean().to_numpy()
        resampled = frames[generator.integers(len(frames), size=(n, len(frames)))].mean(axis=1)
        sizes = {"n_images": len(mine), "n_frames": len(frames), "n_combinations": 1}
        ends = np.percentile(resampled, [2.5, 97.5], axis=0)
        lines += [{"row": code, "column": column, "value": mean[i], "low": ends[0, i], "high": ends[1, i], **sizes}
                  for i, column in enumerate(QUANTITIES)]  # fmt: skip
        values.append(mean)
        drawn.append(resampled)
    values, drawn = np.array(values), np.array(drawn)
    sizes = {"n_images": len(images), "n_frames": len(images[["species", "frame"]].drop_duplicates()),
             "n_combinations": len(codes)}  # fmt: skip
    drop, change = QUANTITIES.index("drop"), QUANTITIES.index("delta_margin")
    over_species = {
        "drop": lambda v: v[..., drop].mean(axis=0), "drop_std": lambda v: v[..., drop].std(axis=0, ddof=1),
        "drop_std_ddof0": lambda v: v[..., drop].std(axis=0), "delta_margin": lambda v: v[..., change].mean(axis=0),
        "drop_range_less_mean": lambda v: np.ptp(v[..., drop], axis=0) - v[..., drop].mean(axis=0),
    }  # fmt: skip
    for column, function in over_species.items():
        low, high = np.percentile(function(drawn), [2.5, 97.5])
        lines.append({"row": "mean", "column": column, "value": function(values), "low": low, "high": high, **sizes})
    for kind in ("rgb", "grey"):
        failing = int((values[:, QUANTITIES.index(f"pass_{kind}")] < 0.5).sum())
        lines.append({"row": "species", "column": f"failing_{kind}", "value": failing, **sizes})
    table = report.add_paper(report.table(lines, table="15", partition="random", **run), 15)
    counted = quoted().set_index("id").loc["grey_failing"]
    table.loc[table["column"] == "failing_grey", ["paper", "digits"]] = counted["value"], counted["digits"]
    return report.validate(table)


def channel_means(dataset: Dataset) -> pd.DataFrame:
    """Return the mean of each channel of the first image of each combination: ``combination, red, green, blue``.

    Means are 0..255, of the frames as they are on disk. One image of a combination stands for its session (Figure 8).
    """
    first = np.sort(dataset.manifest.reset_index(drop=True).groupby("combination").head(1).index.to_numpy())
    means = [dataset.read(int(i)).mean(axis=(1, 2)) for i in track(first, total=len(first), desc="channel means")]
    names = dataset.manifest["combination"].to_numpy()[first]
    return pd.DataFrame(np.array(means), columns=list(CHANNELS)).assign(combination=names)[["combination", *CHANNELS]]


def cast(means: pd.DataFrame, *, n: int = 2000, seed: int = 0, **run: Any) -> pd.DataFrame:
    """Return the channel means of Appendix A.2 as a tidy table with the table name "A.2 channel means".

    Rows ``red``, ``green``, ``blue`` with the column ``mean``, each with its 95 % interval over combinations; row
    ``images`` with ``count`` and ``red_above_blue``, the share of images with more red than blue.

    Args:
        means: as :func:`channel_means` returns them.
        n, seed: number of resamples and seed of their generator.
        run: ``profile``, ``dataset``, ``evidence`` for the table's lines.
    """
    said = quoted().set_index("id")
    sizes = {"n_images": len(means), "n_frames": len(means), "n_combinations": means["combination"].nunique()}
    printed = {"red": "channel_red", "green": "channel_green", "blue": "channel_blue"}
    lines = []
    for channel in CHANNELS:
        value, low, high = bootstrap(means, channel, "combination", n=n, seed=seed)
        paper = said.loc[printed[channel]]
        lines.append({"row": channel, "column": "mean", "value": value, "low": low, "high": high,
                      "paper": paper["value"], "digits": paper["digits"]})  # fmt: skip
    count = said.loc["colour_images"]
    lines.append({"row": "images", "column": "count", "value": len(means), "paper": count["value"], "digits": 0})
    share = (means["red"] > means["blue"]).mean()
    lines.append({"row": "images", "column": "red_above_blue", "value": share})
    return report.table([{**line, **sizes} for line in lines], table="A.2 channel means", **run)
