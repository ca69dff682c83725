"""The discovery study: six folds, each with one species left out, and every way of proposing it (Section 5, D.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from phoebi_lib import report
from phoebi_lib.compat import choice
from phoebi_lib.decoders.prototypes import hybrid_prototypes
from phoebi_lib.decoders.thresholds import quantile_thresholds
from phoebi_lib.intervals import unit_counts
from phoebi_lib.openworld import gates
from phoebi_lib.openworld.discovery import assign, known_calls, labelled_tiles, mixture_weights, propose
from phoebi_lib.openworld.heads import BATCH, simgcd_prototypes, simgcd_steps
from phoebi_lib.splits import partition
from phoebi_lib.studies.discovery_scores import Tally, count, lines

if TYPE_CHECKING:
    from phoebi_lib.features import Pool

TRANSDUCTIVE, INDUCTIVE = "transductive", "inductive"
K1 = "Sinkhorn-Knopp (K=1)"
CONTROL = "Sinkhorn-Knopp (K=1), stranger's images left out (control, not in the paper)"
GATE = "residual > 0.15"
PATCHES = "patch tokens"


@dataclass(frozen=True)
class Primitive:
    """One row: how prototypes are proposed.

    ``method``, ``k`` and ``settings`` go to :func:`~phoebi_lib.openworld.discovery.propose`, where ``min_share``
    becomes a ``min_size`` in proportion to the tiles, at least 2; ``stochastic`` rows run once per seed; ``gate`` names
    the tiles that take part; ``without`` leaves the stranger's images out of proposing.
    """

    row: str
    method: str
    k: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    stochastic: bool = False
    gate: str = GATE
    without: bool = False


#: The smallest cluster of the published greedy clustering as a share of the published test tiles, 50 of 192,000.
GREEDY_SHARE = 50 / (12_000 * 16)
#: The rows of Table 10 under their printed names, greedy clustering with a minimum that grows with the tiles (the
#: published one on the published images), and a control.
TABLE_10 = (
    Primitive("Greedy cosine (θ=0.7, m≥50)", "greedy"),
    Primitive("Greedy cosine (θ=0.7, m scaled)", "greedy", settings={"min_share": GREEDY_SHARE}),
    Primitive(K1, "sinkhorn"),
    *(Primitive(f"Sinkhorn-Knopp (K={k})", "sinkhorn", k, stochastic=True) for k in (2, 4, 6)),
    Primitive("SK K=1 + Cr-KD distillation (Gu et al., 2023)", "crkd", settings={"weight": 1e-3}),
    Primitive(CONTROL, "sinkhorn", without=True),
)
#: The gradient heads of Appendix D.3 beside the centroid they start from; the SimGCD-style grid is simgcd_grid.
HEADS = (
    Primitive(K1, "sinkhorn"),
    Primitive("UNO-style, 1 slot", "uno"),
    Primitive("UNO-style, 4 slots", "uno", 4, stochastic=True),
    Primitive("Cr-KD, λ = 0.001", "crkd", settings={"weight": 1e-3}),
    Primitive("Cr-KD, λ = 1.0", "crkd", settings={"weight": 1.0}),
)
#: The gate study: the centroid of what each gate admits. Five tiles are enough: on few images the published minimum of
#: 50 would decide alone, on the published ones it decides nothing.
GATES = tuple(Primitive(name, "sinkhorn", gate=name, settings={"min_tiles": 5}) for name in (GATE, *gates.GATE_SCORES))
#: Learning rate -> epochs after which the SimGCD-style head is looked at; 30 at 0.01 is its recipe.
SIMGCD_GRID = {1e-3: (5, 10), 1e-2: (5, 10, 30)}
#: The published epochs are few updates on few images: a longer run, of about five published epochs, in small batches.
SIMGCD_LONG = {"rate": 1e-2, "updates": 1000, "batch": 256}


class Fold:
    """One held-out species: the five known ones, the test images, and what was learned without the stranger.

    Attributes: ``code``; ``known`` positions of the five others; ``prototypes`` (5, D) from pure cultures;
    ``thresholds`` (5,) of SimplexUnmix's weights, on validation or training images as ``compat`` says; ``X``, ``holds``
    (N,) and ``labels`` (N, 5) of all test images; ``half`` (N,) 0 or 1, never two for one frame.
    """

    def __init__(self, pool: Pool, code: str, compat: str, test: np.ndarray, X: np.ndarray, pure: np.ndarray) -> None:
        self.pool, self.code = pool, code
        self.index = list(pool.codes).index(code)
        self.known = np.delete(np.arange(len(pool.codes)), self.index)
        self.parts = partition(pool.manifest, f"loso-{code}", grouping="frame", codes=pool.codes)
        self.prototypes = pure[self.known]
        self.X, self.manifest = X, pool.manifest.iloc[test].reset_index(drop=True)
        Y = pool.Y
        self.holds, self.labels = Y[test, self.index] == 1, Y[test][:, self.known]
        chosen = self.parts[choice("drift_thresholds", compat)]
        weights = mixture_weights(pool.take(chosen), self.prototypes)
        self.thresholds = quantile_thresholds(weights, Y[chosen][:, self.known])
        self.before = known_calls(mixture_weights(X, self.prototypes), self.thresholds)
        self.units, self.unit = np.unique(self.manifest["combination"], return_inverse=True)
        self.half = halves(self.manifest, self.holds)

    @cached_property
    def kept(self) -> tuple[np.ndarray, np.ndarray]:
        """Features and known labels of the training images without the stranger."""
        rows = self.parts["train"]
        return self.pool.take(rows), self.pool.Y[rows][:, self.known]

    @cached_property
    def labelled(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The same as tiles with the label bits of their images."""
        return labelled_tiles(*self.kept)

    def forget(self) -> None:
        """Let go of the training features, which are the large part of a fold; they are read again when needed."""
        for name in ("kept", "labelled"):
            self.__dict__.pop(name, None)

    @cached_property
    def gate_scores(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Score -> its values on test tiles (N, T) and on validation tiles without the stranger."""
        rows = self.parts["val"]
        V, labels = self.pool.take(rows), self.pool.Y[rows][:, self.known]
        bank = self.kept[0].reshape(-1, self.X.shape[2])
        test, val = (gates.tile_scores(images, self.prototypes, bank) for images in (self.X, V))
        pure_of = np.where(labels.sum(axis=1) == 1, labels.argmax(axis=1), -1)
        reference = {name: gates.class_references(val[name], pure_of, len(self.known)) for name in val}
        test, val = (
            gates.with_normalised(raw, gates.nearest_known(images, self.prototypes), reference)
            for raw, images in ((test, self.X), (val, V))
        )
        return {name: (test[name], val[name]) for name in test}

    def gate(self, name: str) -> np.ndarray:
        """Return which test tiles (N, T) the gate called ``name`` admits."""
        if name == GATE:
            return self._published_gate
        return gates.quantile_gate(*self.gate_scores[name])

    @cached_property
    def _published_gate(self) -> np.ndarray:
        return gates.residual_gate(self.X, self.prototypes)

    def propose(self, how: Primitive, seed: int, images: np.ndarray) -> np.ndarray:
        """Return the prototypes that ``how`` proposes from the test images in the mask ``images``."""
        images = images & ~self.holds if how.without else images
        gate, settings = self.gate(how.gate)[images], dict(how.settings)
        if "min_share" in settings:
            settings["min_size"] = max(2, round(settings.pop("min_share") * gate.sum()))
        return propose(self.X[images], how.method, how.k, seed, known=self.prototypes, gate=gate, **settings)

    def tally(
        self, row: str, proposed: np.ndarray, images: np.ndarray, *, seed: int, setting: str = TRANSDUCTIVE,
        updates: int = 0, gate: str = GATE,
    ) -> Tally:  # fmt: skip
        """Return what ``proposed`` prototypes do on the images of the mask ``images``."""
        X = self.X[images]
        slot, margin = assign(X, self.prototypes, proposed)
        weights = mixture_weights(X, np.concatenate([self.prototypes, proposed]))
        sums, slots, wins = count(
            self.unit[images], len(self.units), holds=self.holds[images], slot=slot, margin=margin,
            by_weight=weights.argmax(axis=1) >= len(self.known), known=self.labels[images],
            before=self.before[images], after=known_calls(weights, self.thresholds), n_proto=len(proposed),
        )  # fmt: skip
        admitted = float(self.gate(gate).mean())
        return Tally(row, self.code, seed, setting, len(proposed), updates, admitted, sums, slots, wins)


def halves(manifest: pd.DataFrame, holds: np.ndarray) -> np.ndarray:
    """Return 0 or 1 per image: frames dealt out in turn, first those without the stranger, then those with it.

    Crops of one frame stay together. Where a combination has one frame, the two halves have different combinations.
    """
    frames = pd.MultiIndex.from_frame(manifest[["combination", "frame"]])
    order = manifest.assign(holds=holds).groupby(["combination", "frame"])["holds"].first()
    turn = order.sort_values(kind="stable").groupby(level=[0, 1], sort=False).ngroup() % 2
    return turn.loc[frames].to_numpy()


def folds(pool: Pool, compat: str) -> Iterator[Fold]:
    """Yield the six folds, one species left out each; the test images are read once."""
    parts = partition(pool.manifest, "random", grouping="frame", codes=pool.codes)
    labels = pool.Y[parts["train"]]
    alone = labels.sum(axis=1) == 1
    pure, _ = hybrid_prototypes(pool.take(parts["train"][alone]), labels[alone])
    X = pool.take(parts["test"])
    for code in pool.codes:
        yield Fold(pool, code, compat, parts["test"], X, pure)


def run(fold: Fold, primitives: Sequence[Primitive], seeds: Sequence[int], settings: Sequence[str]) -> list[Tally]:
    """Return the tallies of ``primitives`` on one fold.

    ``settings``: ``"transductive"`` clusters the images it is scored on, as published; ``"inductive"`` clusters one
    half and scores the other, both ways round. Rows that are not stochastic run once, with the first seed.
    """
    found = []
    for how in primitives:
        for seed in seeds if how.stochastic else seeds[:1]:
            updates = 100 if how.method in ("uno", "crkd") else 0
            for setting in settings:
                pairs = [(np.full(len(fold.X), True),) * 2]
                if setting == INDUCTIVE:
                    pairs = [(fold.half == h, fold.half != h) for h in (0, 1)]
                for seen, scored in pairs:
                    proposed = fold.propose(how, seed, seen)
                    found.append(fold.tally(how.row, proposed, scored, seed=seed, setting=setting, updates=updates,
                                            gate=how.gate))  # fmt: skip
    return found


def run_gates_on_patches(pool: Pool, compat: str, seeds: Sequence[int], settings: Sequence[str]) -> list[Tally]:
    """Return the tallies of every gate on all folds of a pool of patch tokens, rows named "<gate>, patch tokens"."""
    found = []
    for fold in folds(pool, compat):
        found += [replace(tally, row=f"{tally.row}, {PATCHES}") for tally in run(fold, GATES, seeds, settings)]
        fold.forget()
    return found


def simgcd_row(rate: float, epochs: int) -> str:
    """Return the name of a row of the SimGCD-style grid."""
    return "SimGCD-style, 0 epochs" if epochs == 0 else f"SimGCD-style, {epochs} epochs, rate {rate:g}"


def simgcd_grid(fold: Fold, seeds: Sequence[int]) -> list[Tally]:
    """Return the tallies of the SimGCD-style head at every learning rate and number of epochs, transductive.

    One training per rate and seed is looked at after each number of epochs. The first seed also makes the longer run of
    ``SIMGCD_LONG``.
    """
    tiles = torch.from_numpy(fold.X[fold.gate(GATE)])
    step = simgcd_steps(len(fold.labelled[0]))
    whole = np.full(len(fold.X), True)
    found = []

    def train(looks: dict[str, int], rate: float, seed: int, batch: int) -> None:
        slots = simgcd_prototypes(
            tiles, torch.from_numpy(fold.prototypes), fold.labelled,
            updates=looks.values(), learning_rate=rate, random_state=seed, batch=batch,
        )  # fmt: skip
        for row, updates in looks.items():
            found.append(fold.tally(row, slots[updates].numpy(), whole, seed=seed, updates=updates))

    train({simgcd_row(0.0, 0): 0}, 0.0, seeds[0], BATCH)
    for rate, looks in SIMGCD_GRID.items():
        for seed in seeds:
            train({simgcd_row(rate, epochs): epochs * step for epochs in looks}, rate, seed, BATCH)
    rate, updates, batch = (SIMGCD_LONG[name] for name in ("rate", "updates", "batch"))
    train({f"SimGCD-style, {updates:,} updates, rate {rate:g} (not in the paper)": updates}, rate, seeds[0], batch)
    return found


def tidy(
    tallies: Sequence[Tally], pool: Pool, *, table: str, profile: str, compat: str, reference: str = K1,
    n: int | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Return a tidy table of tallies: transductive columns under their names, inductive ones with ``_inductive``.

    Differences are from the row ``reference``. ``n`` resamples, by default what ``compat`` says.
    """
    test = pool.manifest.iloc[partition(pool.manifest, "random", grouping="frame", codes=pool.codes)["test"]]
    counts = unit_counts(test["combination"].nunique(), n or choice("resamples", compat))
    found = []
    for setting, suffix in ((TRANSDUCTIVE, ""), (INDUCTIVE, "_inductive")):
        found += lines([t for t in tallies if t.setting == setting], counts, reference, suffix)
    return report.table(
        found, table=table, profile=profile, dataset=pool.dataset_name, encoder=pool.encoder_name,
        evidence=pool.evidence, partition="loso", n_images=len(test),
        n_frames=len(test[["combination", "frame"]].drop_duplicates()), n_combinations=test["combination"].nunique(),
    )  # fmt: skip
