"""Claims about intervals, development folds and the decoders' behaviour: Section 5, Appendices C.1 and C.2.

Tables named "C.1 margins" and "C.2 ..." hold one row per decoder, that of its longest training, so that no claim is
judged on a head that has hardly been trained; the updates stand beside each number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phoebi_lib.catalogue import CODES
from phoebi_lib.paper.claims.engine import (
    NO,
    UNCLEAR,
    YES,
    Cell,
    Claim,
    Number,
    above,
    below,
    close,
    every,
    within,
)

_C1, _C2 = "C_intervals", "C_behaviour"
_DECODERS = ("SimplexUnmix", "ProtoMatch", "ChannelGroup")
_ANCHORED = ("SimplexUnmix", "ProtoMatch")
_MARGINS, _ORDERS, _ERRORS = "C.1 margins", "C.2 order curve", "C.2 error rates"
#: Half-width of what counts as "at the constant": the paper's own development intervals are about this wide.
_NEAR = 0.06
_INTERVAL = "The whole 95 % interval over combinations must lie on one side."


def _cells(table: str, rows: Iterable[str], columns: Iterable[str]) -> dict[str, Cell]:
    """Return cells named "<row> <column>"."""
    columns = tuple(columns)
    return {f"{row} {column}": Cell(table, row, column) for row in rows for column in columns}


def _all(rule, numbers: Mapping[str, Number], start: str = "", end: str = "") -> str:
    """Return whether a rule holds for all numbers whose name starts and ends so."""
    return every(*(rule(n) for name, n in numbers.items() if name.startswith(start) and name.endswith(end)))


def _open(number: Number, bound: float = 0.5) -> str:
    """Return whether an interval contains ``bound``: yes, no where it lies on one side, unclear without an interval."""
    if not number.has_interval:
        return UNCLEAR
    return YES if number.low <= bound <= number.high else NO


def _species(start: str, codes: Iterable[str] = CODES) -> tuple[str, ...]:
    return tuple(f"{start}{code}" for code in codes)


def _trivial(recall: Number, easy: bool) -> str:
    point = Number(recall.value)
    return above(point, 0.2, 0.05) if easy else below(point, 0.2, 0.05)


SECTION_5 = (
    Claim(
        "heldout-has-more-species", "5", "Section 5, Table 6",
        "Held-out combinations hold more species than the trained-on ones, on every published partition.",
        {"excess": Cell("C.2 labels", "order of combinations", "smallest_excess_heldout")},
        lambda n: above(n["excess"], 0.0), "Follows from the names of the combinations.", label_only=True, page=_C2,
    ),
)  # fmt: skip

APPENDIX_C1 = (
    Claim(
        "development-folds", "C", "Appendix C.1, Table 18",
        "The 26 trained-on combinations of two to four species are divided into the five folds of Table 18.",
        {"found": Cell("18", "all folds", "printed_names_found"), "all": Cell("18", "all folds", "combinations")},
        lambda n: every(close(n["found"], n["all"].value, 0), close(n["all"], 26, 0)),
        "Every name at its printed place.", label_only=True, page=_C1,
    ),
    Claim(
        "one-species-without-pure-culture", "C", "Appendix C.1",
        "In every development fold one species has no pure culture in training.",
        _cells("18", [f"fold {i}" for i in range(5)], ["without_pure_culture"]),
        lambda n: _all(lambda count: close(count, 1, 0), n), "A count.", label_only=True, page=_C1,
    ),
    Claim(
        "order-4-constant", "C", "Appendix C.1",
        "The constant predictor scores 0.80 on every development combination of four species.",
        {name: Cell("C.1 pooling", "combinations", f"{name} constant F1 at order 4") for name in ("lowest", "highest")},
        lambda n: _all(lambda f1: close(f1, 0.80, 0.005), n), "Equal at the two printed digits.", label_only=True,
        page=_C1,
    ),
    Claim(
        "pooled-combinations", "C", "Appendix C.1, Table 19",
        "The pooled intervals rest on 27 held-out combinations.",
        {"distinct": Cell("C.1 pooling", "combinations", "distinct")},
        lambda n: close(n["distinct"], 27, 0), "A count of different names.", label_only=True, page=_C1,
    ),
    Claim(
        "variance-between-combinations", "C", "Appendix C.1",
        "Most of the variance of every decoder's score for every species lies between combinations.",
        _cells("C.1 score variance", _DECODERS, _species("between_")),
        lambda n: _all(lambda share: above(share, 0.5), n),
        "More than half, the whole interval; the paper gives 63 to 90 per cent, digits that depend on the images.",
        page=_C1,
    ),
    Claim(
        "means-match-images", "C", "Appendix C.1",
        "The AUROC of ProtoMatch on the nine combination means equals that on single images.",
        {"difference": Cell("C.1 score variance", "ProtoMatch", "auroc_difference")},
        lambda n: within(n["difference"], -0.05, 0.05),
        "Within 0.05, several times the difference in the paper and a fraction of the width of its AUROC intervals.",
        page=_C1,
    ),
    Claim(
        "anchored-at-constant-on-folds", "C", "Appendix C.1",
        "Under the development protocol ProtoMatch and SimplexUnmix sit at the constant predictor.",
        _cells(_MARGINS, _ANCHORED, ["dev_f1_margin"]),
        lambda n: _all(lambda margin: within(margin, -_NEAR, _NEAR), n),
        f"The interval lies within {_NEAR} of it, about the width of the paper's own.", page=_C1,
    ),
    Claim(
        "channelgroup-below-constant-on-folds", "C", "Appendix C.1",
        "Under the development protocol ChannelGroup falls below the constant predictor.",
        {"margin": Cell(_MARGINS, "ChannelGroup", "dev_f1_margin")},
        lambda n: below(n["margin"], 0.0), _INTERVAL, page=_C1,
    ),
    Claim(
        "anchored-separate-only-ka-on-folds", "C", "Appendix C.1",
        "Under the development protocol ProtoMatch and SimplexUnmix separate ka and no other species.",
        _cells(_MARGINS, _ANCHORED, _species("dev_auroc_")),
        lambda n: every(_all(lambda a: above(a, 0.5), n, end="_ka"),
                        *(_all(_open, n, end=f"_{code}") for code in CODES if code != "ka")),
        "Resolved means an AUROC interval without one half, as in the paper.", page=_C1,
    ),
    Claim(
        "channelgroup-inverts-fj-on-folds", "C", "Appendix C.1",
        "Under the development protocol ChannelGroup ranks combinations with fj below those without.",
        {"auroc": Cell(_MARGINS, "ChannelGroup", "dev_auroc_fj")},
        lambda n: below(n["auroc"], 0.5), _INTERVAL, page=_C1,
    ),
    Claim(
        "configurations-not-told-apart", "C", "Appendix C.1",
        "No closed-form read-out or aggregation of the tile feature differs detectably from the mean cosine.",
        _cells("C.1 configurations",
               [f"{r}, {a}" for r in ("cosine", "sparsemax") for a in ("mean", "0.9 quantile", "max")
                if (r, a) != ("cosine", "mean")], ["auroc_difference"]),
        lambda n: _all(lambda d: _open(d, 0.0), n),
        "Paired intervals, which are stricter than the paper's overlap of single ones; units other than the tile "
        "belong to the variants.", page=_C1,
    ),
    Claim(
        "order-of-decoders-carries-over", "C", "Appendix C.1",
        "The order of the decoders, ProtoMatch above SimplexUnmix above ChannelGroup in F1, is the same on the folds "
        "and on the pooled test partitions.",
        _cells(_MARGINS, ["ProtoMatch minus SimplexUnmix", "ChannelGroup minus SimplexUnmix"], ["test_f1", "dev_f1"]),
        lambda n: every(_all(lambda d: above(d, 0.0), n, "ProtoMatch"),
                        _all(lambda d: below(d, 0.0), n, "ChannelGroup")),
        "Paired differences on the same images; " + _INTERVAL, page=_C1,
    ),
)  # fmt: skip

APPENDIX_C2 = (
    Claim(
        "only-ka-with-every-decoder", "C", "Appendix C.2; Table 19",
        "On the pooled test partitions every decoder separates ka.",
        _cells(_MARGINS, _DECODERS, ["test_auroc_ka"]),
        lambda n: _all(lambda a: above(a, 0.5), n), _INTERVAL, page=_C1,
        built_in=True,
    ),
    Claim(
        "fj-and-mx-by-one-decoder", "C", "Appendix C.2; Table 19",
        "On the pooled test partitions ProtoMatch separates fj, ChannelGroup separates mx, and SimplexUnmix ranks "
        "combinations with mx below those without.",
        {"fj": Cell(_MARGINS, "ProtoMatch", "test_auroc_fj"), "mx": Cell(_MARGINS, "ChannelGroup", "test_auroc_mx"),
         "inverted": Cell(_MARGINS, "SimplexUnmix", "test_auroc_mx")},
        lambda n: every(above(n["fj"], 0.5), above(n["mx"], 0.5), below(n["inverted"], 0.5)), _INTERVAL, page=_C1,
    ),
    Claim(
        "bs-bt-pf-unresolved", "C", "Appendix C.2; Table 19",
        "On the pooled test partitions no decoder separates bs, bt or pf.",
        _cells(_MARGINS, _DECODERS, _species("test_auroc_", ("bs", "bt", "pf"))),
        lambda n: _all(_open, n), "The AUROC interval contains one half.", page=_C1,
    ),
    Claim(
        "order-curve", "C", "Appendix C.2, Figure 6 left",
        "From two species on, held-out F1 of every decoder lies within 0.12 of the constant predictor's 2k / (k + 6).",
        _cells(_ORDERS, _DECODERS, [f"deviation_order_{k}" for k in (2, 3, 4, 6)]),
        lambda n: _all(lambda d: within(Number(d.value), -0.12, 0.12, 0.02), n),
        "The paper compares means, so means are compared; 0.02 is what one image of ten moves a mean over six pairs.",
        page=_C2,
    ),
    Claim(
        "constant-delta-negative", "C", "Appendix C.2, Table 6",
        "The orders of the held-out combinations alone make validation minus held-out F1 negative.",
        {"delta": Cell("C.2 labels", "constant predictor", "delta_f1")},
        lambda n: below(n["delta"], 0.0), "A sign, from labels.", label_only=True, page=_C2,
    ),
    Claim(
        "singletons-at-constant", "C", "Appendix C.2",
        "On held-out single species SimplexUnmix and ProtoMatch score just above the constant predictor.",
        _cells(_ORDERS, _ANCHORED, ["deviation_order_1"]),
        lambda n: _all(lambda d: within(Number(d.value), 0.0, 0.1, 0.005), n),
        "Above it and by less than 0.1 in the mean over three singletons; three units carry no useful interval.",
        page=_C2,
    ),
    Claim(
        "singletons-channelgroup", "C", "Appendix C.2",
        "On held-out single species ChannelGroup fails: its F1 is near zero, below the constant predictor's.",
        _cells(_ORDERS, ["ChannelGroup"], ["f1_order_1", "deviation_order_1"]),
        lambda n: every(below(Number(n["ChannelGroup f1_order_1"].value), 0.1, 0.02),
                        below(n["ChannelGroup deviation_order_1"], 0.0)),
        "Near zero is read as under 0.1, a third of the constant; the distance from it by its interval.", page=_C2,
    ),
    Claim(
        "singletons-are-bt", "C", "Appendix C.2",
        "On all three seeds the species without a pure culture, held out alone, is bt.",
        {"bt": Cell("C.2 labels", "held-out singletons", "that_are_bt"),
         "all": Cell("C.2 labels", "held-out singletons", "partitions")},
        lambda n: close(n["bt"], n["all"].value, 0), "A count.", label_only=True, page=_C2,
    ),
    Claim(
        "singletons-spread", "C", "Appendix C.2",
        "On single species ProtoMatch's spread over partitions is several times SimplexUnmix's.",
        {"ratio": Cell(_ORDERS, "ProtoMatch over SimplexUnmix", "std_order_1")},
        lambda n: above(n["ratio"], 2.0, 1.0),
        "A ratio of two deviations of three numbers each: above 3 for yes, under 1 for no.", page=_C2,
    ),
    Claim(
        "simplex-favours-recall", "C", "Appendix C.2",
        "SimplexUnmix rarely misses bs, fj, mx or pf on held-out images and calls them almost always.",
        _cells(_ERRORS, ["SimplexUnmix"],
               _species("fnr_", ("bs", "fj", "mx", "pf")) + _species("fpr_", ("bs", "fj", "mx", "pf"))),
        lambda n: every(*(below(Number(v.value), 0.15, 0.02) for name, v in n.items() if "fnr" in name),
                        *(above(Number(v.value), 0.8, 0.02) for name, v in n.items() if "fpr" in name)),
        "Three times the miss rate that the thresholds are set to, and false calls on at least four images in five; "
        "nine combinations carry no useful interval of a rate near one.", page=_C2,
    ),
    Claim(
        "ka-calibrated-tightly", "C", "Appendix C.2",
        "SimplexUnmix and ProtoMatch make few false calls of ka.",
        _cells(_ERRORS, _ANCHORED, ["fpr_ka"]),
        lambda n: _all(lambda rate: below(rate, 0.5), n), "Under one half, the whole interval.", built_in=True,
        page=_C2,
    ),
    Claim(
        "bt-scores-inverted", "C", "Appendix C.2",
        "Under SimplexUnmix images with bt, which has no pure culture in training, score below images without it.",
        {"gap": Cell(_ERRORS, "SimplexUnmix", "gap_bt")},
        lambda n: below(n["gap"], 0.0), _INTERVAL, page=_C2,
    ),
    Claim(
        "bt-recovered-by-threshold", "C", "Appendix C.2",
        "The loose threshold of SimplexUnmix recovers F1 on the held-out combinations with bt.",
        {"margin": Cell(_ERRORS, "SimplexUnmix", "f1_with_bt_margin")},
        lambda n: above(n["margin"], 0.0, 0.0005),
        "To recover something it must beat calling everything; the tolerance is the last printed digit.", page=_C2,
    ),
    Claim(
        "protomatch-calls-everything", "C", "Appendix C.2",
        "ProtoMatch calls all six species on more than half of the held-out images.",
        {"share": Cell(_ERRORS, "ProtoMatch", "all_called_percent")},
        lambda n: above(Number(n["share"].value), 50.0, 5.0),
        "A share of the images at hand, not of all possible ones; 5 points about one half are left open.", page=_C2,
    ),
    Claim(
        "channelgroup-calls-fewer", "C", "Appendix C.2",
        "ChannelGroup calls fewer species per image than ProtoMatch.",
        {"difference": Cell(_ERRORS, "ChannelGroup minus ProtoMatch", "called")},
        lambda n: below(n["difference"], 0.0), "Paired over the same images; " + _INTERVAL, page=_C2,
    ),
    Claim(
        "exact-match-on-large-mixtures", "C", "Appendix C.2",
        "From four species on every decoder is exactly right on fewer than one held-out image in ten.",
        _cells(_ERRORS, _DECODERS, ["exact_order_4"]),
        lambda n: _all(lambda share: below(Number(share.value), 0.1, 0.02), n),
        "The paper speaks of the images it has; 0.02 about a tenth are left open.", page=_C2,
    ),
    Claim(
        "none-calibrated", "C", "Appendix C.2, Figure 9",
        "None of the decoders' scores is calibrated on held-out images.",
        _cells("C.2 calibration", _DECODERS, ["error"]),
        lambda n: _all(lambda error: above(Number(error.value), 0.1, 0.02), n),
        "A mean distance above 0.1 between score and share; less would do for many uses. Values are compared, because "
        "resampling adds to a distance and its interval lies too high.", page=_C2,
    ),
    Claim(
        "channelgroup-best-calibrated", "C", "Appendix C.2, Figure 9",
        "ChannelGroup is the best calibrated decoder for most species.",
        {"best": Cell("C.2 calibration", "ChannelGroup", "best")},
        lambda n: above(n["best"], 3.0), "More than three of six species in all of the interval.", page=_C2,
    ),
    Claim(
        "simplex-overpredicts-easy", "C", "Appendix C.2, Figure 9",
        "SimplexUnmix's weights over-predict the easy species: for ka they exceed the share of images that hold it.",
        {"excess": Cell("C.2 calibration", "SimplexUnmix", "excess_ka")},
        lambda n: above(n["excess"], 0.0), "Mean weight minus share; " + _INTERVAL, page=_C2,
    ),
    Claim(
        "protomatch-flat", "C", "Appendix C.2, Figure 9",
        "ProtoMatch's reliability curves are nearly flat: a higher cosine hardly means a species more often, ka apart.",
        _cells("C.2 calibration", ["ProtoMatch"], _species("slope_", (c for c in CODES if c != "ka"))),
        lambda n: _all(lambda slope: within(slope, -0.25, 0.25), n),
        "The share in the upper half of the scores within a quarter of that in the lower half.", page=_C2,
    ),
    Claim(
        "precision-only-ka", "C", "Appendix C.2, Figure 10",
        "ka is the only species held above a precision of 0.8 over more than a trivial range of recall.",
        _cells("C.2 precision", ("ProtoMatch", "ChannelGroup"), _species("recall_")),
        lambda n: every(*(_trivial(v, name.endswith("_ka")) for name, v in n.items())),
        "Trivial is read as a recall under 0.2, with 0.05 left open.", built_in=True, page=_C2,
    ),
)  # fmt: skip


CLAIMS: tuple[Claim, ...] = (*SECTION_5, *APPENDIX_C1, *APPENDIX_C2)
