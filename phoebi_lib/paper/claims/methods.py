"""Claims of Section 4: spatial homogeneity and what the decoders make of it."""

from __future__ import annotations

from phoebi_lib.paper.claims.engine import Cell, Claim, above, below, every, within

_PAGE = "04_decoders"
_WITHIN = Cell("4 homogeneity", "same image minus same species", "cosine")
_ACROSS = Cell("4 homogeneity", "same species minus other species", "cosine")
_SIMPLEX = "SimplexUnmix"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="crops-interchangeable",
        section="4",
        place="Section 4, below Assumption H",
        wording="Two crops of one picture are no more alike than crops of two pictures of the same species.",
        needs={"same_image_minus_same_species": _WITHIN, "same_minus_other_species": _ACROSS},
        rule=lambda n: below(
            n["same_image_minus_same_species"], 0.25 * n["same_minus_other_species"].value, tolerance=0.002
        ),
        tolerance="The excess within a picture may be a quarter of the gap between species: beyond that a picture has "
        "an identity that matters beside the species.",
        built_in=True,
        page=_PAGE,
    ),
    Claim(
        id="species-more-alike",
        section="4",
        place="Section 4, below Assumption H",
        wording="Crops of the same species are more alike than crops of different species.",
        needs={"same_minus_other_species": _ACROSS},
        rule=lambda n: above(n["same_minus_other_species"], 0, tolerance=0.002),
        tolerance="The whole interval over species above 0. In these data species and session go together, so that a "
        "yes may also be a likeness of sessions.",
        page=_PAGE,
    ),
    Claim(
        id="variance-one-over-t",
        section="4",
        place="Section 4, below Assumption H",
        wording="The variance of an image score falls as one over the number of tiles averaged.",
        needs={"exponent": Cell("4 score variance", "ProtoMatch", "exponent")},
        rule=lambda n: within(n["exponent"], -1.15, -0.85, tolerance=0.05),
        tolerance="Slope of log variance against log T between pictures of one combination: -1, give or take 0.15, "
        "which from 1 to 16 tiles is a factor of one and a half.",
        page=_PAGE,
    ),
    Claim(
        id="simplex-exact-zeros",
        section="4",
        place="Section 4, SimplexUnmix",
        wording="Sparsemax gives absent species a weight of exactly zero.",
        needs={
            "absent": Cell("4 simplex", _SIMPLEX, "zero_absent"),
            "present": Cell("4 simplex", _SIMPLEX, "zero_present"),
        },
        rule=lambda n: every(
            above(n["absent"], 0.5, tolerance=0.05), above(n["absent"], n["present"].value, tolerance=0.02)
        ),
        tolerance="Zero in most tiles without the species, and more often than with it. The sentence says always: this "
        "is the least that it can mean.",
        page=_PAGE,
    ),
    Claim(
        id="prototypes-near-converged",
        section="4",
        place="Section 4, last paragraph",
        wording="The mean embeddings of pure cultures lie near what training SimplexUnmix converges to already.",
        needs={"residual_fall": Cell("4 simplex", _SIMPLEX, "residual_fall")},
        rule=lambda n: below(n["residual_fall"], 0.1, tolerance=0.02),
        tolerance="Training shortens what is left unexplained of a tile by less than a tenth.",
        page=_PAGE,
    ),
)
