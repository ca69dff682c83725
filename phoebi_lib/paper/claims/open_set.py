"""Claims about open-set rejection: Section 5 (Tables 20 and 21) and Appendix D.2.

Differences between scores are paired: the same images, the same resamples of whole combinations. AUROC is 0.5 for a
score that knows nothing, whatever the share of unknown images, so that numbers from other images can be read.
"""

from __future__ import annotations

from collections.abc import Mapping

from phoebi_lib.catalogue import CODES
from phoebi_lib.paper.claims.engine import Cell, Claim, Number, above, below, every, within
from phoebi_lib.studies.open_set import BEST, ONE_CHANGE, PROTOTYPE_SCORES, TABLE_20, TEXT, VARIANTS, variant_name

PAGE = "D_open_set"
ALIKE, HIGHEST = 0.02, 0.55
_PAIRED = "paired difference, 95 % interval over combinations; no further tolerance"
_ALIKE_WHY = (
    f"the whole interval of the paired difference within {ALIKE} AUROC: the printed means differ by at most 0.007, and "
    "0.02 is a tenth of their spread over species"
)
_CHANCE_WHY = (
    f"no better than chance: the whole interval under {HIGHEST}; the 0.05 above 0.5 leaves room for an interval around "
    "chance itself and is a quarter of the gain that the paper reports for k-NN"
)
_MEAN = {score: Cell("20", TABLE_20[score], "auroc") for score in (*PROTOTYPE_SCORES, "k-NN")}


def _all_above(numbers: Mapping[str, Number], bound: float = 0.0) -> str:
    return every(*(above(number, bound) for number in numbers.values()))


def _all_below(numbers: Mapping[str, Number], bound: float) -> str:
    return every(*(below(number, bound) for number in numbers.values()))


def _minus(variant: tuple[str, str, str]) -> Cell:
    return Cell(VARIANTS, f"{variant_name(BEST)}, minus {variant_name(variant)}", "inner_auroc")


def _one_change(*ids: str) -> dict[str, Cell]:
    return {key: _minus(variant) for variant, key in ONE_CHANGE.items() if key in ids}


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="open-set-knn-above-chance", section="5", place="Section 5, Table 20",
        wording="The k-NN distance to the training tiles lifts open-set rejection above chance.",
        needs={"k-NN": _MEAN["k-NN"]},
        rule=lambda n: above(n["k-NN"], 0.5),
        tolerance="AUROC averaged over the six species against 0.5, 95 % interval over combinations",
        page=PAGE,
    ),
    Claim(
        id="open-set-knn-wins-every-fold", section="5", place="Section 5, Table 21",
        wording="Whichever species is left out, the k-NN score separates it better than SimplexUnmix's residual.",
        needs={code: Cell(TEXT, "k-NN minus residual", code) for code in CODES},
        rule=_all_above,
        tolerance=_PAIRED,
        page=PAGE,
    ),
    Claim(
        id="open-set-knn-beats-prototypes", section="5", place="Section 5, Table 20",
        wording="On average over the species the k-NN score beats each of the four scores made from prototypes.",
        needs={score: Cell(TEXT, "k-NN minus prototype score", score) for score in PROTOTYPE_SCORES},
        rule=_all_above,
        tolerance=_PAIRED,
        page=PAGE,
    ),
    Claim(
        id="open-set-prototypes-at-chance", section="5", place="Section 5; Appendix D.2, Table 20",
        wording="Residual, largest cosine and energy do not separate a left-out species from the known ones.",
        needs={score: _MEAN[score] for score in PROTOTYPE_SCORES},
        rule=lambda n: _all_below(n, HIGHEST),
        tolerance=_CHANCE_WHY,
        page=PAGE,
    ),
    Claim(
        id="open-set-prototypes-unstable", section="D", place="Appendix D.2, Table 20",
        wording="The prototype scores vary more from one left-out species to the next than the k-NN score does.",
        needs={score: Cell(TEXT, "spread over folds minus that of k-NN", score) for score in PROTOTYPE_SCORES},
        rule=_all_above,
        tolerance="population standard deviation over the six species; " + _PAIRED,
        page=PAGE,
    ),
    Claim(
        id="open-set-residual-is-max-cosine", section="D", place="Appendix D.2, Table 20",
        wording="The residual and the largest cosine reject equally well: unmixing adds nothing to the nearest "
        "prototype.",
        needs={"difference": Cell(TEXT, "residual minus max cosine", "mean")},
        rule=lambda n: within(n["difference"], -ALIKE, ALIKE),
        tolerance=_ALIKE_WHY,
        page=PAGE,
    ),
    Claim(
        id="open-set-temperature", section="D", place="Appendix D.2, Table 20",
        wording="The temperature of the energy score matters little.",
        needs={"difference": Cell(TEXT, "energy T=1.0 minus T=0.1", "mean")},
        rule=lambda n: within(n["difference"], -ALIKE, ALIKE),
        tolerance=_ALIKE_WHY,
        page=PAGE,
    ),
    Claim(
        id="open-set-ka-easiest", section="D", place="Appendix D.2, Table 21",
        wording="By the k-NN score ka is the stranger that is easiest to notice.",
        needs={"lead": Cell(TEXT, "k-NN: ka minus the best other species", "auroc")},
        rule=lambda n: above(n["lead"], 0.0),
        tolerance="AUROC of ka minus the largest of the other five, both in the same resample",
        built_in=True,
        page=PAGE,
    ),
    Claim(
        id="open-set-bt-gains-most", section="C", place="Appendix C.2, failure modes",
        wording="The k-NN score's gain over the residual on bt exceeds its mean gain.",
        needs={"excess": Cell(TEXT, "k-NN minus residual: bt minus the mean", "auroc")},
        rule=lambda n: above(n["excess"], 0.0),
        tolerance=_PAIRED,
        page=PAGE,
    ),
    Claim(
        id="open-set-best-of-36", section="D", place="Appendix D.2, open-set variants",
        wording="Of the 36 variants the paper's own, k-NN on tiles averaged over the image, is the best on the inner "
        "validation loop.",
        needs={"lead": Cell(VARIANTS, f"{variant_name(BEST)}, minus the best other variant", "inner_auroc")},
        rule=lambda n: above(n["lead"], 0.0),
        tolerance="inner AUROC minus that of the best of the other 35; choosing that one on the same images makes the "
        "lead a little too small; " + _PAIRED,
        page=PAGE,
    ),
    Claim(
        id="open-set-mean-aggregation", section="5", place="Section 5; Appendix D.2, open-set variants",
        wording="Averaging the k-NN distance over all tiles beats its 90th percentile and its maximum: the stranger is "
        "spread over the image.",
        needs=_one_change("openset_percentile", "openset_max"),
        rule=_all_above,
        tolerance=_PAIRED,
        page=PAGE,
    ),
    Claim(
        id="open-set-tiles-beat-patches", section="D", place="Appendix D.2, open-set variants",
        wording="The k-NN score is better on tiles than on patch tokens.",
        needs=_one_change("openset_patch"),
        rule=_all_above,
        tolerance=_PAIRED,
        page=PAGE,
    ),
    Claim(
        id="open-set-no-class-normalisation", section="D", place="Appendix D.2, open-set variants",
        wording="Dividing the k-NN distance by what is usual for the nearest known species makes it worse.",
        needs=_one_change("openset_normalised"),
        rule=_all_above,
        tolerance=_PAIRED,
        page=PAGE,
    ),
    Claim(
        id="open-set-prototype-variants-at-chance", section="D", place="Appendix D.2, open-set variants",
        wording="No unit and no aggregation lifts a prototype score above chance.",
        needs={"highest": Cell(VARIANTS, "highest of the prototype scores' variants", "inner_auroc")},
        rule=lambda n: below(n["highest"], HIGHEST),
        tolerance=_CHANCE_WHY,
        page=PAGE,
    ),
)  # fmt: skip
