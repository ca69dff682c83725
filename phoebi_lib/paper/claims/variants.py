"""Claims about variants of the decoders, finer units and mosaics: Appendix C.3.

A claim that something does not help is borne out where the upper end of the paired gain is small, not merely where the
gain is not resolved: few combinations resolve nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phoebi_lib.paper import quoted
from phoebi_lib.paper.claims.engine import (
    NO,
    UNCLEAR,
    YES,
    Cell,
    Claim,
    Number,
    above,
    below,
    every,
    within,
)
from phoebi_lib.report import printed_constant

_VARIANTS, _UNITS, _TRAINED, _MOSAICS = (
    "C.3 variants", "C.3 closed-form units", "C.3 trained units", "C.3 mosaics",
)  # fmt: skip
_THREE = "three partitions"
_REPULSIONS = tuple(f"repulsion {weight}, {_THREE}" for weight in ("0.01", "0.1", "1"))
_SUBSPACES = tuple(f"subspace {d}, penalty 1, nested" for d in (32, 64, 128))
_RULES = tuple(f"SimplexUnmix, nested, {search} on {images}"
               for search in ("0.05 quantile", "F1 search") for images in ("validation", "development"))  # fmt: skip
_FINER = ("pooled 112, cosine, mean", "pooled 56, cosine, mean")
_MOSAIC_ROWS = tuple(f"{name}{ending}" for name in ("real images and mosaics", "pure cultures and mosaics")
                     for ending in ("", ", penalty 1"))  # fmt: skip
#: Gains that count as none: F1 by as much as learned temperatures gain in print; AUROC by half of a printed interval.
_F1_GAIN, _AUROC_GAIN = 0.02, 0.05
_NO_GAIN = (
    "Borne out where the whole 95 % interval of the paired gain lies below {} (the gain that the paper itself prints "
    "as an improvement, or half the width of its intervals); contradicted where it lies above zero."
)


def _cells(table: str, rows: Iterable[str], *columns: str) -> dict[str, Cell]:
    return {f"{row} {column}": Cell(table, row, column) for row in rows for column in columns}


def _no_gain(number: Number, small: float) -> str:
    """Return yes where a gain is small at most, no where it is resolved above zero, unclear between."""
    if not number.has_interval:
        return UNCLEAR
    return NO if number.low > 0 else YES if number.high < small else UNCLEAR


def _holds_zero(number: Number) -> str:
    """Return whether an interval contains zero, unclear without an interval."""
    if not number.has_interval:
        return UNCLEAR
    return YES if number.low <= 0 <= number.high else NO


def _all(rule, numbers: Mapping[str, Number]) -> str:
    return every(*(rule(number) for number in numbers.values()))


def _minus(numbers: Mapping[str, Number], first: str, second: str) -> Number:
    """Return the difference of two numbers without an interval of its own."""
    return Number(numbers[first].value - numbers[second].value, evidence=numbers[first].evidence)


def _plateau(numbers: Mapping[str, Number]) -> str:
    if numbers["updates"].value < 100:
        return UNCLEAR
    return above(numbers["fall"], 0.9, 0.03)


_CONSTANT = printed_constant(6, "heldout_f1")
#: What the best of the printed calibration rules has over the constant predictor, on the paper's images.
_RULE_MARGIN = float(quoted().set_index("id").loc["calibration_f1", "value"]) - (_CONSTANT or 0.0)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "ensemble-does-not-help", "C", "Appendix C.3, ensembling",
        "An ensemble of SimplexUnmix and ProtoMatch scores no better on held-out combinations than SimplexUnmix alone.",
        _cells(_VARIANTS, ("soft OR of two", "average of two"), "f1_gain"),
        lambda n: _all(lambda x: _no_gain(x, _F1_GAIN), n), _NO_GAIN.format("0.02"), page="C_variants",
    ),
    Claim(
        "ensemble-members-correlated", "C", "Appendix C.3, ensembling",
        "The scores of SimplexUnmix and ProtoMatch are positively correlated, so that they add little to each other.",
        {"correlation": Cell(_VARIANTS, "soft OR of two", "member_correlation")},
        lambda n: above(n["correlation"], 0.0, 0.1),
        "Mean correlation over species, without an interval; within 0.1 of zero it is left open.", page="C_variants",
    ),
    Claim(
        "temperatures-raise-f1", "C", "Appendix C.3, temperature",
        "Learned temperatures, one per species, raise the held-out F1 of SimplexUnmix.",
        {"gain": Cell(_VARIANTS, f"temperatures, {_THREE}", "f1_gain")}, lambda n: above(n["gain"], 0.0),
        "The whole 95 % interval of the paired gain, pooled over three partitions, must lie on one side of zero.",
        page="C_variants",
    ),
    Claim(
        "temperatures-keep-the-gap", "C", "Appendix C.3, temperature",
        "Learned temperatures leave the difference between validation and held-out F1 almost as it was.",
        _cells(_VARIANTS, (f"temperatures, {_THREE}", f"SimplexUnmix, {_THREE}"), "delta_f1"),
        lambda n: within(
            _minus(n, f"temperatures, {_THREE} delta_f1", f"SimplexUnmix, {_THREE} delta_f1"), -0.02, 0.02, 0.005
        ),
        "Almost is two points of F1, the size of the gain itself; half a point around that is left open.",
        page="C_variants",
    ),
    Claim(
        "repulsion-spreads-prototypes", "C", "Appendix C.3, repulsion",
        "Repulsion pushes the prototypes apart: their mean cosine falls as its weight grows.",
        _cells(_VARIANTS, (f"SimplexUnmix, {_THREE}", *_REPULSIONS), "prototype_cosine"),
        lambda n: every(*(
            above(_minus(n, f"{first} prototype_cosine", f"{second} prototype_cosine"), 0.0, 0.02)
            for first, second in zip((f"SimplexUnmix, {_THREE}", *_REPULSIONS[:-1]), _REPULSIONS, strict=True)
        )),
        "Each step must lower the cosine by more than 0.02; smaller steps are left open.", page="C_variants",
    ),
    Claim(
        "repulsion-lowers-f1", "C", "Appendix C.3, repulsion",
        "Repulsion lowers the held-out F1 of SimplexUnmix at every weight tried.",
        _cells(_VARIANTS, _REPULSIONS, "f1_gain"), lambda n: _all(lambda x: below(x, 0.0), n),
        "The whole 95 % interval of each paired gain, pooled over three partitions, must lie on one side of zero.",
        page="C_variants",
    ),
    Claim(
        "penalty-moves-mx-and-fj", "C", "Appendix C.3, absent-mass penalty",
        "The penalty on absent species moves discrimination between species: mx gains held-out AUROC and fj loses it.",
        _cells(_VARIANTS, ("absent-mass penalty 10",), "auroc_mx_gain", "auroc_fj_gain"),
        lambda n: every(above(n["absent-mass penalty 10 auroc_mx_gain"], 0.0),
                        below(n["absent-mass penalty 10 auroc_fj_gain"], 0.0)),
        "The whole 95 % interval of each paired gain must lie on one side of zero.", page="C_variants",
    ),
    Claim(
        "penalty-doubles-the-loss", "C", "Appendix C.3, absent-mass penalty",
        "At weight 10 the penalty on absent species about doubles the reconstruction loss.",
        {"ratio": Cell(_VARIANTS, "absent-mass penalty 10", "reconstruction_ratio")},
        lambda n: within(n["ratio"], 1.5, 3.0, 0.1),
        "About double is 1.5 to 3 times; 0.1 around the ends is left open.", page="C_variants",
    ),
    Claim(
        "penalty-1-matches-protomatch", "C", "Appendix C.3, absent-mass penalty",
        "At weight 1 the penalty on absent species gives the held-out F1 and macro F1 of ProtoMatch.",
        _cells(_VARIANTS, ("absent-mass penalty 1", "ProtoMatch"), "heldout_f1", "heldout_macro_f1"),
        lambda n: every(*(
            within(_minus(n, f"absent-mass penalty 1 {column}", f"ProtoMatch {column}"), -0.03, 0.03, 0.01)
            for column in ("heldout_f1", "heldout_macro_f1")
        )),
        "Three points of F1, above the spread over seeds; one point around that is left open.", page="C_variants",
    ),
    Claim(
        "subspaces-do-not-transfer", "C", "Appendix C.3, learned subspaces",
        "A learned subspace separates species on development combinations far better than on the held-out ones.",
        _cells(_VARIANTS, ("learned subspaces",), "highest_dev_auroc", "highest_auroc"),
        lambda n: above(_minus(n, "learned subspaces highest_dev_auroc", "learned subspaces highest_auroc"), 0.1, 0.05),
        "Far is a tenth of AUROC between the best of either kind; 0.05 around that is left open.", page="C_variants",
    ),
    Claim(
        "subspaces-do-not-help", "C", "Appendix C.3, learned subspaces",
        "A learned subspace does not raise held-out AUROC over the default.",
        _cells(_VARIANTS, _SUBSPACES, "auroc_gain"), lambda n: _all(lambda x: _no_gain(x, _AUROC_GAIN), n),
        _NO_GAIN.format("0.05"), page="C_variants",
    ),
    Claim(
        "calibration-does-not-help", "C", "Appendix C.3, calibration rules",
        "None of four calibration rules takes held-out F1 further above the constant predictor than in print.",
        _cells(_VARIANTS, _RULES, "heldout_f1_margin"), lambda n: _all(lambda x: below(x, _RULE_MARGIN), n),
        "Read as a margin: the best printed F1 minus the printed constant; the whole 95 % interval on one side of it.",
        page="C_variants",
    ),
    Claim(
        "finer-tiles-do-not-help", "C", "Appendix C.3, finer units",
        "Tiles of 112 and 56 px separate species no better on held-out combinations than tiles of 224 px.",
        _cells(_UNITS, _FINER, "auroc_gain"), lambda n: _all(lambda x: _no_gain(x, _AUROC_GAIN), n),
        _NO_GAIN.format("0.05"), page="C_units",
    ),
    Claim(
        "closed-forms-alike", "C", "Appendix C.3, finer units",
        "Granularity, read-out and aggregation change held-out AUROC little.",
        _cells(_UNITS, ("closed-form configurations",), "highest_auroc", "lowest_auroc"),
        lambda n: below(_minus(n, "closed-form configurations highest_auroc",
                               "closed-form configurations lowest_auroc"), 0.1, 0.02),
        "Little is a tenth of AUROC from worst to best, twice the printed span; 0.02 around that is left open.",
        page="C_units",
    ),
    Claim(
        "patch-training-plateaus", "C", "Appendix C.3, finer units",
        "Training prototypes on patch tokens reaches its plateau within two epochs.",
        {"fall": Cell(_TRAINED, "patch 224, trained", "fall_after_two_epochs"),
         "updates": Cell(_TRAINED, "patch 224, trained", "updates_in_two_epochs")}, _plateau,
        "A plateau is nine tenths of the whole fall of the loss. With fewer than 100 updates in two epochs the loss "
        "had no time to fall, and nothing is said.", page="C_units",
    ),
    Claim(
        "mosaics-do-not-help", "C", "Appendix C.3, mosaics",
        "Training on mosaics does not raise the AUROC on the held-out combinations that they show.",
        _cells(_MOSAICS, _MOSAIC_ROWS, "auroc_gain"), lambda n: _all(lambda x: _no_gain(x, _AUROC_GAIN), n),
        _NO_GAIN.format("0.05"), page="C_units",
    ),
    Claim(
        "mosaics-keep-f1", "C", "Appendix C.3, mosaics",
        "Training on mosaics changes the F1 of no covered combination by more than 0.03.",
        {"change": Cell(_MOSAICS, "mosaic training", "largest_f1_change")},
        lambda n: below(n["change"], 0.03, 0.005),
        "The printed bound; half a point around it is left open.", page="C_units",
    ),
    Claim(
        "no-variant-resolved", "C", "Appendix C.3, last sentence",
        "No change of units, training images, penalty or subspace moves held-out AUROC outside its interval.",
        _cells(_VARIANTS, ("absent-mass penalty 1", "absent-mass penalty 10", *_SUBSPACES), "auroc_gain")
        | _cells(_UNITS, _FINER, "auroc_gain") | _cells(_MOSAICS, _MOSAIC_ROWS, "auroc_gain"),
        lambda n: _all(_holds_zero, n),
        "Every 95 % interval of a paired gain must contain zero; of eleven, one or none would not, by luck.",
        page="C_units",
    ),
)  # fmt: skip
