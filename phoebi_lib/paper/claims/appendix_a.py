"""Claims of Appendix A: coverage, label noise and colour."""

from __future__ import annotations

from phoebi_lib.catalogue import CODES
from phoebi_lib.paper import quoted
from phoebi_lib.paper.claims.engine import Cell, Claim, above, below, close, every

_NOISE, _COLOUR, _LABELS = "A_label_noise", "A_colour", "03_benchmark"
_GAPS = "gaps at orders 2 to 4"
_SAID = quoted().set_index("id")["value"]

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="label-noise-under-five-percent",
        section="A",
        place="Section 3 and Appendix A.1, Table 14",
        wording=f"By the paper's bound a species misses a field in under {_SAID['label_noise_bound']:.0f} % of cases, "
        "on average over species.",
        needs={"mean_bound": Cell("14", "mean", "upper_bound")},
        rule=lambda n: below(n["mean_bound"], _SAID["label_noise_bound"] / 100, tolerance=0.002),
        tolerance="The whole interval below the stated bound. The decoder's threshold accepts 95 % of validation "
        "images by its rule, so that a bound near 5 % is to be expected of labels without any noise.",
        page=_NOISE,
    ),
    Claim(
        id="mixtures-missed-more",
        section="A",
        place="Appendix A.1, Table 14",
        wording="A species is missed more often in mixtures than in its pure culture.",
        needs={"mean_difference": Cell("14", "mean", "difference")},
        rule=lambda n: above(n["mean_difference"], 0, tolerance=0.002),
        tolerance="The mean over species of the difference in miss rates, its interval above 0.",
        page=_NOISE,
    ),
    Claim(
        id="label-noise-bound-conservative",
        section="A",
        place="Appendix A.1",
        wording="The bound is conservative: the true share of fields without a labelled species lies below it.",
        needs={"difference_minus_true": Cell("14", "mean", "difference_minus_true")},
        rule=lambda n: above(n["difference_minus_true"], 0, tolerance=0.002),
        tolerance="The difference in miss rates, which the bound is never below, exceeds the true rate. Only a "
        "simulator knows the true rate; on published images this cannot be tested.",
        page=_NOISE,
    ),
    Claim(
        id="grey-lowers-similarity",
        section="A",
        place="Appendix A.2, Table 15",
        wording="Without colour the similarity to the own prototype falls for every species.",
        needs={code: Cell("15", code, "drop") for code in CODES},
        rule=lambda n: every(*(above(n[code], 0, tolerance=0.005) for code in CODES)),
        tolerance="Each species' mean paired drop with its interval above 0.",
        page=_COLOUR,
    ),
    Claim(
        id="grey-drop-near-constant",
        section="A",
        place="Appendix A.2, Table 15",
        wording="It falls by a near-constant amount.",
        needs={"range_minus_mean": Cell("15", "mean", "drop_range_less_mean")},
        rule=lambda n: below(n["range_minus_mean"], 0, tolerance=0.002),
        tolerance="Drops that are near-constant differ by less than their mean; largest minus smallest minus mean "
        "below 0. The six drops that Table 15 prints fail this, because of ka.",
        page=_COLOUR,
    ),
    Claim(
        id="grey-keeps-margin",
        section="A",
        place="Appendix A.2, Table 15",
        wording="The margin over the best other prototype does not fall for any species.",
        needs={code: Cell("15", code, "delta_margin") for code in CODES},
        rule=lambda n: every(*(above(n[code], -0.005, tolerance=0.002) for code in CODES)),
        tolerance="Each species' mean paired change with its interval above -0.005, about a tenth of the smallest drop "
        "of similarity that Table 15 prints. Not built into the simulation: its cast carries no cue, yet an encoder "
        "may take grey images in its own way.",
        page=_COLOUR,
    ),
    Claim(
        id="colour-no-cue",
        section="A",
        place="Section 3 and Appendix A.2",
        wording="Colour carries no cue of the species.",
        needs={"mean_change_of_margin": Cell("15", "mean", "delta_margin")},
        rule=lambda n: above(n["mean_change_of_margin"], -0.005, tolerance=0.002),
        tolerance="Without colour the margin, averaged over species, falls by less than 0.005. That it falls would not "
        "prove a cue: an encoder may take grey images in its own way.",
        built_in=True,
        page=_COLOUR,
    ),
    Claim(
        id="grey-fails-thresholds",
        section="A",
        place="Appendix A.2, Table 15",
        wording="Most species' grey images fall below thresholds that their coloured images pass.",
        needs={
            "failing_in_colour": Cell("15", "species", "failing_rgb"),
            "failing_in_grey": Cell("15", "species", "failing_grey"),
        },
        rule=lambda n: every(below(n["failing_in_colour"], 1, 0.5), above(n["failing_in_grey"], 3, 0.5)),
        tolerance="Species of which less than half the images pass: none in colour, more than three in grey; exactly "
        "one, or exactly three, is open.",
        page=_COLOUR,
    ),
    Claim(
        id="cast-in-every-image",
        section="A",
        place="Appendix A.2, Figure 8",
        wording="Every session has the same warm cast: more red than blue.",
        needs={"share": Cell("A.2 channel means", "images", "red_above_blue")},
        rule=lambda n: above(n["share"], 0.999, tolerance=0.0005),
        tolerance="All of the images.",
        built_in=True,
        page=_COLOUR,
    ),
    Claim(
        id="gaps-pair-bs-with-bt",
        section="A",
        place="Appendix A.1, Table 12",
        wording="Over half of the combinations that were not collected at orders 2 to 4 pair bs with bt.",
        needs={"with_both": Cell("text", f"{_GAPS} with bs and bt", "count"), "all": Cell("text", _GAPS, "count")},
        rule=lambda n: above(n["with_both"], n["all"].value / 2),
        tolerance="Exact: a count.",
        label_only=True,
        page=_LABELS,
    ),
    Claim(
        id="high-orders-saturate",
        section="A",
        place="Appendix A.1",
        wording=f"The constant predictor already scores {_SAID['constant_order_4']:.2f} at four species and "
        f"{_SAID['constant_order_5']:.2f} at five.",
        needs={f"order_{k}": Cell("text", f"all-present at order {k}", "f1") for k in (4, 5)},
        rule=lambda n: every(*(close(n[f"order_{k}"], _SAID[f"constant_order_{k}"], 0.005) for k in (4, 5))),
        tolerance="Exact, to the printed digits.",
        label_only=True,
        page=_LABELS,
    ),
)
