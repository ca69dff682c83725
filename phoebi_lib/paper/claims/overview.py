"""Claims of the abstract and of Section 6."""

from __future__ import annotations

from phoebi_lib.paper import quoted
from phoebi_lib.paper.claims.engine import Cell, Claim, above, below, close, difference, every
from phoebi_lib.paper.claims.methods import CLAIMS as METHODS
from phoebi_lib.paper.claims.results import DECODERS, FINE_TUNED, LEAST_COLLAPSE, collapsed, fine_tuned, margin
from phoebi_lib.studies.decoder_tables import EXACT_ROW

_KNN = Cell("20", "KNN (k=10)", "auroc")
_GLOBAL = {
    "residual": "residual norm (SimplexUnmix)",
    "max_cosine": "−max cosine (ProtoMatch)",
    "energy_1": "energy (T=1.0)",
    "energy_01": "energy (T=0.1)",
}
_K1 = "Sinkhorn-Knopp (K=1)"
_OTHERS = {
    "greedy": "Greedy cosine (θ=0.7, m≥50)",
    "k_2": "Sinkhorn-Knopp (K=2)",
    "k_4": "Sinkhorn-Knopp (K=4)",
    "k_6": "Sinkhorn-Knopp (K=6)",
    "cr_kd": "SK K=1 + Cr-KD distillation (Gu et al., 2023)",
}
_ILLUMINATION = ("Condenser gradient", "Vignetting", "Lamp intensity", "Detector gamma")
_COLUMNS = ("simplex_unmix", "proto_match", "channel_group")
_MIL = "Attention MIL (Ilse et al., 2018)"
_SAID = quoted().set_index("id")["value"]
_LOOKS_THE_SAME = next(claim for claim in METHODS if claim.id == "crops-interchangeable")

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="size",
        section="Abstract",
        place="Abstract",
        wording=f"The benchmark holds {_SAID['images']:,.0f} images of {_SAID['combinations']:.0f} mixtures.",
        needs={"images": Cell("2", "all", "images"), "mixtures": Cell("2", "all", "combinations")},
        rule=lambda n: every(
            close(n["images"], _SAID["images"], 0), close(n["mixtures"], _SAID["combinations"], 0)
        ),
        tolerance="Exact: counts of the published lists.",
        label_only=True,
        page="03_benchmark",
    ),
    Claim(
        id="networks-collapse",
        section="Abstract",
        place="Abstract",
        wording="Classifiers that are nearly perfect on known mixtures collapse on new ones, whatever the backbone.",
        needs=fine_tuned("3"),
        rule=lambda n: collapsed(n, FINE_TUNED),
        tolerance="As for Table 3: fitted, and at least 0.25 lower on held-out combinations, for every backbone.",
    ),
    Claim(
        id="features-sound-pooling-fails",
        section="Abstract",
        place="Abstract",
        wording="The features are sound and the pooling fails: on the same frozen features a trained aggregator falls "
        "below the constant predictor and an anchored decoder does not.",
        needs={
            **fine_tuned("3", (_MIL,)),
            "constant": Cell("3", EXACT_ROW, "heldout_f1"),
            "ProtoMatch_margin": margin("ProtoMatch"),
        },
        rule=lambda n: every(
            below(difference(n[f"{_MIL} out"], n["constant"]), 0, tolerance=0.01),
            above(n["ProtoMatch_margin"], -0.02, tolerance=0.01),
        ),
        tolerance="Attention MIL below the constant predictor by more than 0.01, ProtoMatch's margin above -0.02.",
    ),
    Claim(
        id="same-everywhere",
        section="Abstract",
        place="Abstract",
        wording="A culture looks the same everywhere.",
        needs=_LOOKS_THE_SAME.needs,
        rule=_LOOKS_THE_SAME.rule,
        tolerance=_LOOKS_THE_SAME.tolerance,
        built_in=True,
        page=_LOOKS_THE_SAME.page,
    ),
    Claim(
        id="decoders-hold-steady",
        section="Abstract",
        place="Abstract",
        wording="Decoders built on this hold steady on new mixtures, one of them without any training.",
        needs={name: margin(name) for name in DECODERS},
        rule=lambda n: every(
            above(n["ProtoMatch"], -0.02, tolerance=0.01),
            *(above(n[name], LEAST_COLLAPSE, tolerance=0.01) for name in DECODERS),
        ),
        tolerance="Every decoder's margin above that of the network of Table 3 that collapses least, "
        f"{LEAST_COLLAPSE}; that of the untrained one above -0.02.",
        page="05_held_out",
    ),
    Claim(
        id="stranger-noticed",
        section="Abstract",
        place="Abstract",
        wording="The same features notice when a species outside the catalogue appears.",
        needs={"knn_auroc": _KNN},
        rule=lambda n: above(n["knn_auroc"], 0.55, tolerance=0.05),
        tolerance="Mean AUROC of the nearest-neighbour score over six species above 0.55: 0.5 is chance, and less than "
        "0.05 above it helps nobody.",
        page="D_open_set",
    ),
    Claim(
        id="simplest-class-best",
        section="Abstract",
        place="Abstract; Section 6",
        wording="The simplest way of giving a new species a class, one prototype, is the most effective.",
        needs={
            "one_prototype": Cell("10", _K1, "cluster_acc"),
            **{name: Cell("10", row, "cluster_acc") for name, row in _OTHERS.items()},
        },
        rule=lambda n: every(
            *(above(difference(n["one_prototype"], n[name]), 0, tolerance=0.02) for name in _OTHERS)
        ),
        tolerance="Cluster accuracy above each of the other primitives. With one proposal it is the recall alone, and "
        "an assignment of everything would score 1: the page on discovery has the control.",
        page="05_open_world",
    ),
    Claim(
        id="known-untouched",
        section="Abstract",
        place="Abstract; Section 6",
        wording="Giving it a class leaves the known species almost untouched.",
        needs={"change": Cell("10", _K1, "delta_f1_known")},
        rule=lambda n: above(n["change"], -0.05, tolerance=0.01),
        tolerance="Known-class F1 falls by less than 0.05, a tenth of the F1 that a decoder has to lose.",
        page="05_open_world",
    ),
    Claim(
        id="stable-from-closed-form",
        section="6",
        place="Section 6, second finding",
        wording="The anchored decoders are stable straight from their closed-form prototypes.",
        needs={
            "SimplexUnmix_untrained": Cell("6 paired", "SimplexUnmix untrained minus constant", "heldout_f1"),
            "ProtoMatch": Cell("6 paired", "ProtoMatch minus constant", "heldout_f1"),
        },
        rule=lambda n: every(*(above(number, -0.02, tolerance=0.01) for number in n.values())),
        tolerance="Held-out F1 minus that of the constant predictor on the same images, interval above -0.02.",
        page="05_held_out",
    ),
    Claim(
        id="constraint-protects",
        section="6",
        place="Section 6, second finding",
        wording="The constraint that costs the anchored decoders accuracy in distribution protects them on new "
        "mixtures.",
        needs={
            f"{end} {name}": cell
            for name in DECODERS[:2]
            for end, cell in (
                ("in distribution", Cell("8 paired", f"ChannelGroup minus {name}", "per_sample_f1")),
                ("held out", Cell("6 paired", f"{name} minus ChannelGroup", "heldout_f1")),
            )
        },
        rule=lambda n: every(*(above(number, 0) for number in n.values())),
        tolerance="ChannelGroup above both in distribution and below both on held-out combinations, each difference on "
        "the same images with its interval above 0.",
        page="05_held_out",
    ),
    Claim(
        id="local-sees-what-global-misses",
        section="6",
        place="Section 6, third finding",
        wording="A local nearest-neighbour score detects an unseen species where global scores cannot.",
        needs={"knn": _KNN, **{name: Cell("20", row, "auroc") for name, row in _GLOBAL.items()}},
        rule=lambda n: every(
            above(n["knn"], 0.55, tolerance=0.05), *(below(n[name], 0.55, tolerance=0.05) for name in _GLOBAL)
        ),
        tolerance="Mean AUROC over six species: nearest neighbours above 0.55, every global score below it.",
        page="D_open_set",
    ),
    Claim(
        id="resist-illumination",
        section="6",
        place="Section 6, limitations; Section 5",
        wording="The decoders resist illumination and detector shifts between microscopes.",
        needs={
            f"{corruption} {column}": Cell("17", corruption, column)
            for corruption in _ILLUMINATION
            for column in _COLUMNS
        },
        rule=lambda n: every(*(above(number, -0.03, tolerance=0.01) for number in n.values())),
        tolerance='The worst severity costs less than 0.03 of F1 ("about two points" in Section 5), for each of four '
        "corruptions and three decoders.",
        page="B_battery",
    ),
)
