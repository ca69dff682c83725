"""Lab 2, unmixing by hand: the panel of a share, and the checks of its five exercises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from phoebi_lib import plots
from phoebi_lib.labs.answers import Hint, array, call, exercise, number, refuse, same, shape_of
from phoebi_lib.labs.explore import Panel

_SHARES = np.linspace(0, 1, 101)


def share_panel(tiles: Mapping[str, np.ndarray], anchors: Mapping[str, np.ndarray]) -> Panel:
    """Return a panel of ``tile``, ``first``, ``second`` and ``share``: how far a mixture of two anchors is from a tile.

    ``tiles`` and ``anchors`` are unit vectors (D,) by name. The mixture is share x first + (1 - share) x second.
    """

    def panel(part: Any, tile: str, first: str, second: str, share: float) -> None:
        axis = part.subplots()
        z, p, q = tiles[tile], anchors[first], anchors[second]
        axis.plot(_SHARES, _distances(z, p, q), "-", color=plots.species_colour(first))
        here = np.linalg.norm(z - share * p - (1 - share) * q)
        axis.plot(share, here, "o", color=plots.INK, markersize=8)
        axis.set(xlabel=f"share of {first}, the rest {second}", ylabel="length left over", ylim=(0, 1.4))
        axis.set_title(f"tile of {tile}: {here:.2f} left over", loc="left")

    return panel


def _distances(z: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.linalg.norm(z - _SHARES[:, None] * p - (1 - _SHARES[:, None]) * q, axis=1)


def unit_rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return random vectors of length one and of no negative entry, as an encoder's features are."""
    values = rng.gamma(0.7, 1.0, shape)
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


@exercise(2, 1, "An anchor is a direction: the one that the tiles of a culture share.")
def check_anchor(anchor: Any) -> None:
    """Check a function of tiles (n, T, D) that gives their mean direction (D,), of length one."""
    X = unit_rows(np.random.default_rng(21), 3, 4, 8)
    answer = call(anchor, X)
    if shape_of(answer) in ((4, 8), (3, 8)):
        left = "tiles of a picture" if shape_of(answer) == (3, 8) else "pictures"
        other = "pictures" if left == "tiles of a picture" else "tiles of a picture"
        raise Hint(f"You averaged over the {left} only; the {other} are still apart (shape {shape_of(answer)}).")
    answer = array("The anchor", answer, (8,), "one number a feature")
    mean = X.mean(axis=(0, 1))
    if not same(answer, mean / np.linalg.norm(mean)):
        mistakes = [
            (mean, f"The mean of unit vectors is shorter than one: this one has length {np.linalg.norm(mean):.2f}. "
                   "Only its direction is wanted."),
            (mean / mean.sum(), "Its entries add up to one; its length (root of the sum of squares) has to be one."),
            (X[0, 0], "That is a single tile, not the mean of all."),
        ]  # fmt: skip
        refuse(answer, mistakes, f"It is not the direction of the mean; its length is {np.linalg.norm(answer):.2f}.")


@exercise(2, 2, "The cosine of two unit vectors is their scalar product: 1 for the same direction, 0 at right angles.")
def check_cosines(cosines: Any) -> None:
    """Check a function of tiles (T, D) and anchors (K, D) that gives cosines (T, K)."""
    rng = np.random.default_rng(22)
    z, P = unit_rows(rng, 5, 8), unit_rows(rng, 3, 8)
    answer = call(cosines, z, P)
    answer = array("The result", answer, (5, 3), "a row for each tile, a column for each anchor")
    if not same(answer, z @ P.T):
        distances = np.linalg.norm(z[:, None] - P, axis=2)
        mistakes = [
            (distances, "Those are distances: near tiles get small numbers. A cosine is largest for the nearest."),
            (1 - z @ P.T, "The sign is turned: near tiles get small numbers."),
            (np.degrees(np.arccos((z @ P.T).clip(-1, 1))), "Those are the angles; their cosines are wanted."),
            (np.arccos((z @ P.T).clip(-1, 1)), "Those are the angles; their cosines are wanted."),
        ]
        refuse(answer, mistakes, "The shape is right, the numbers are not the cosines.")


@exercise(2, 3, "What no mixture of anchors explains is left over: the residual.")
def check_residual_length(residual_length: Any) -> None:
    """Check a function of (z (D,), P (K, D), w (K,)): the length of what the mixture leaves of the tile."""
    rng = np.random.default_rng(23)
    z, P, w = unit_rows(rng, 8), unit_rows(rng, 3, 8), np.array([0.5, 0.3, 0.2])
    value = call(residual_length, z, P, w)
    rest = z - w @ P
    if shape_of(value) == (8,):
        raise Hint("You give the rest itself, one number a feature; its length is one number.")
    answer = number("The length", value)
    if not same(answer, np.linalg.norm(rest)):
        if answer < 0:
            raise Hint("A length is never negative.")
        mistakes = [
            ((rest**2).sum(), "That is the square of the length."),
            (np.abs(rest).sum(), "You added sizes; the length is the root of the sum of squares."),
            (np.linalg.norm(z - P.mean(axis=0)), "The weights do not count in your mixture: all anchors count alike."),
            (np.linalg.norm(z - P.sum(axis=0)), "The weights do not count in your mixture."),
            (np.linalg.norm(w @ P), "That is the length of the mixture, not of what it leaves."),
            (np.sqrt((rest**2).mean()), "You averaged the squares; the length adds them."),
        ]
        refuse(answer, mistakes, "It is not the length of the tile minus the mixture.")


@exercise(2, 4, "Trying all shares is slow and safe; sparsemax finds weights of this kind for any number of anchors.")
def check_best_share(best_share: Any) -> None:
    """Check a function of (z, p, q), each (D,): the share of p, of 0, 0.01, ..., 1, that leaves least over."""
    rng = np.random.default_rng(24)
    p, q = unit_rows(rng, 2, 8)
    for truth in (0.8, 0.1, 0.35):
        z = truth * p + (1 - truth) * q + 0.01 * rng.normal(size=8)
        distances = _distances(z, p, q)
        best = _SHARES[distances.argmin()]
        value = number("The share", call(best_share, z, p, q))
        if same(value, distances.argmin()) and value > 1:
            raise Hint(f"{value:g} is the place of the share in the list, not the share.")
        if abs(value - best) > 0.0051:
            mistakes = [
                (1 - best, "That is the share of the second anchor; the first one's is wanted."),
                (_SHARES[distances.argmax()], "That share leaves most over; the one that leaves least is wanted."),
                (distances.min(), "That is what is left over at the best share, not the share."),
            ]
            refuse(value, mistakes, f"A mixture was made with about {truth:.0%} of the first anchor, and you find "
                                    f"{value:.2f}.")  # fmt: skip


@exercise(2, 5, "Each tile is unmixed on its own, then tiles are averaged: the score of a picture.")
def check_unmix(unmix: Any) -> None:
    """Check a function of (X (N, T, D), P (K, D), tau) that gives SimplexUnmix's image scores (N, K)."""
    import torch

    from phoebi_lib.decoders import sparsemax

    rng = np.random.default_rng(25)
    X, P, tau = unit_rows(rng, 4, 5, 8), unit_rows(rng, 3, 8), 6.0

    def weights(logits: np.ndarray) -> np.ndarray:
        return sparsemax(torch.from_numpy(logits)).numpy()

    each = weights(tau * X @ P.T)
    answer = call(unmix, X, P, tau)
    if shape_of(answer) == each.shape:
        raise Hint("You give a weight for each tile; a picture's score is their mean over its tiles.")
    answer = array("The result", answer, (4, 3), "a row for each picture, a column for each species")
    if not same(answer, each.mean(axis=1)):
        powers = np.exp(tau * X @ P.T)
        mistakes = [
            (weights(X @ P.T).mean(axis=1), "tau does not count: multiply the cosines by it."),
            (weights(tau * (X @ P.T).mean(axis=1)), "You averaged the tiles first and unmixed their mean; unmix each "
                                                    "tile, then average."),
            ((X @ P.T).mean(axis=1), "Those are mean cosines; nothing is projected onto weights yet."),
            ((tau * X @ P.T).mean(axis=1), "Those are mean cosines times tau; nothing is projected onto weights yet."),
            ((powers / powers.sum(axis=2, keepdims=True)).mean(axis=1), "That is softmax: no weight is ever exactly "
                                                                        "zero. Use simplex."),
            (each.sum(axis=1), "You added the tiles: the weights of a picture add up to the number of its tiles."),
        ]  # fmt: skip
        refuse(answer, mistakes, f"The weights of the first picture add up to {answer[0].sum():.2f}, and they are "
                                 "not the mean of its tiles' weights.")  # fmt: skip
