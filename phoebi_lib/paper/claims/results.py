"""Claims of Section 5: the decoders of Tables 6 and 8, Figure 6, and the supervised methods of Tables 3 to 7."""

from __future__ import annotations

from collections.abc import Mapping

from phoebi_lib.catalogue import CODES
from phoebi_lib.paper import cells
from phoebi_lib.paper.claims.engine import (
    UNCLEAR,
    YES,
    Cell,
    Claim,
    Number,
    above,
    below,
    difference,
    every,
    within,
)
from phoebi_lib.studies.decoder_tables import TABLE_6

#: The fine-tuned networks of Tables 3 and 5 that enter the paper's range of the collapse.
FINE_TUNED = ("ResNet-50", "ConvNeXt-B", "ViT-B/16 IN21k", "DINOv2 ViT-S/14", "DINOv3 ViT-S/16", "CLIP ViT-B/16",
              "SigLIP ViT-B/16", "EVA-02 CLIP B/16")  # fmt: skip
ENCODERS = (*FINE_TUNED, "Florence-2 DaViT-B", "Prov-GigaPath ViT-G", "UNI ViT-L", "Phikon ViT-B/16",
            "BiomedCLIP ViT-B/16")  # fmt: skip
DECODERS = ("SimplexUnmix", "ProtoMatch", "ChannelGroup")
_TABLE_3 = cells(3).set_index(["row", "column"])["value"]
_CONSTANT = "All-present predictor (constant)"
#: How far the fine-tuned network of Table 3 that collapses least lies below the constant predictor in print.
LEAST_COLLAPSE = round(max(_TABLE_3[name, "heldout_f1"] for name in FINE_TUNED) - _TABLE_3[_CONSTANT, "heldout_f1"], 3)
_LEAST_DROP = min(_TABLE_3[name, "delta_f1"] for name in FINE_TUNED)
_HELD_OUT, _IN_DIST, _COLLAPSE = "05_held_out", "05_in_distribution", "05_collapse"
_ENCODERS = "05_encoders"


def margin(decoder: str, metric: str = "heldout_f1") -> Cell:
    """Return the cell of a decoder's margin over the constant predictor in Table 6, pooled over three partitions."""
    return Cell("6", TABLE_6[decoder][0], f"{metric}_margin")


def fine_tuned(table: str, names: tuple[str, ...] = FINE_TUNED) -> dict[str, Cell]:
    """Return the cells of networks of Table 3 or 5: "<name> in" and "<name> out", F1 in distribution and held out."""
    columns = {"in": "in_dist_f1", "out": "heldout_f1"}
    return {f"{name} {end}": Cell(table, name, column) for name in names for end, column in columns.items()}


def collapsed(numbers: Mapping[str, Number], names: tuple[str, ...], least: float = 0.25) -> str:
    """Return whether each network is fitted (0.95 in distribution) and loses at least ``least`` F1 on held-out images.

    A network that is not fitted shows nothing about a collapse: unclear.
    """
    fitted = every(*(above(numbers[f"{name} in"], 0.95) for name in names))
    if fitted != YES:
        return UNCLEAR
    drops = (difference(numbers[f"{name} in"], numbers[f"{name} out"]) for name in names)
    return every(*(above(drop, least, tolerance=0.02) for drop in drops))


def _overfits(numbers: Mapping[str, Number]) -> str:
    """Training must first raise validation F1; else what it does to held-out F1 shows no overfitting."""
    if above(numbers["validation"], 0, tolerance=0.01) != YES:
        return UNCLEAR
    return below(numbers["held_out"], 0, tolerance=0.01)


def _ranking(numbers: Mapping[str, Number]) -> str:
    outcomes = []
    for decoder in DECODERS:
        f1 = {code: numbers[f"{decoder}_{code}"] for code in CODES}
        outcomes += [above(difference(f1["ka"], f1[code]), 0, 0.01) for code in CODES if code != "ka"]
        outcomes += [below(difference(f1["bt"], f1[code]), 0, 0.01) for code in CODES if code != "bt"]
    return every(*outcomes)


def _saturates(numbers: Mapping[str, Number]) -> str:
    outcomes = []
    for decoder in DECODERS:
        f1 = [numbers[f"{decoder}_{tiles}"] for tiles in (1, 4, 8, 16)]
        steps = [difference(later, earlier) for earlier, later in zip(f1, f1[1:], strict=False)]
        outcomes += [above(step, 0, tolerance=0.005) for step in steps]
        outcomes.append(above(difference(steps[0], steps[-1]), 0, tolerance=0.005))
    return every(*outcomes)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="decoders-do-not-collapse",
        section="5",
        place="Section 5, on Table 6",
        wording="None of the three decoders collapses on held-out combinations.",
        needs={name: margin(name) for name in DECODERS},
        rule=lambda n: every(*(above(n[name], LEAST_COLLAPSE, tolerance=0.01) for name in DECODERS)),
        tolerance=f"Each margin above {LEAST_COLLAPSE}: that far below the constant predictor lies the fine-tuned "
        "network of Table 3 that collapses least.",
        page=_HELD_OUT,
    ),
    Claim(
        id="anchors-near-constant",
        section="5",
        place="Section 5, on Table 6",
        wording="The anchored decoders, SimplexUnmix and ProtoMatch, stay at or above the constant predictor.",
        needs={name: margin(name) for name in DECODERS[:2]},
        rule=lambda n: every(*(above(n[name], -0.02, tolerance=0.01) for name in DECODERS[:2])),
        tolerance='"At or near": the whole interval of the margin above -0.02.',
        page=_HELD_OUT,
    ),
    Claim(
        id="proto-match-above-constant",
        section="5",
        place="Section 5, on Table 6; Table 19",
        wording="ProtoMatch lies above the constant predictor on held-out combinations, at the level of combinations.",
        needs={"f1": margin("ProtoMatch"), "macro_f1": margin("ProtoMatch", "heldout_macro_f1")},
        rule=lambda n: every(above(n["f1"], 0), above(n["macro_f1"], 0)),
        tolerance="Both intervals over combinations wholly above 0.",
        page=_HELD_OUT,
    ),
    Claim(
        id="channel-group-overfits",
        section="5",
        place="Section 5, on the init-only rows of Table 6; Appendix C.2",
        wording="Training the unanchored ChannelGroup raises validation F1 and lowers held-out F1.",
        needs={
            "validation": Cell("6 paired", "ChannelGroup trained minus untrained", "val_f1"),
            "held_out": Cell("6 paired", "ChannelGroup trained minus untrained", "heldout_f1"),
        },
        rule=_overfits,
        tolerance="Trained minus untrained on the same images of three partitions, both intervals on one side of 0. "
        "The paper compares a mean of three partitions with one partition. Open where training does not raise "
        "validation F1.",
        page=_HELD_OUT,
    ),
    Claim(
        id="simplex-unmix-unchanged",
        section="5",
        place="Section 5, on the init-only rows of Table 6; Appendix C.2",
        wording="Training SimplexUnmix leaves held-out F1 unchanged.",
        needs={"held_out": Cell("6 paired", "SimplexUnmix trained minus untrained", "heldout_f1")},
        rule=lambda n: within(n["held_out"], -0.02, 0.02, tolerance=0.005),
        tolerance="The interval of the change within 0.02 of 0, about the spread over partitions that Table 6 prints "
        "for ProtoMatch, which is not trained at all.",
        page=_HELD_OUT,
    ),
    Claim(
        id="channel-group-leads",
        section="5",
        place="Section 5, on Table 8",
        wording="In distribution the least constrained decoder, ChannelGroup, leads every column.",
        needs={
            f"{other} {column}": Cell("8 paired", f"ChannelGroup minus {other}", column)
            for other in DECODERS[:2]
            for column in ("per_sample_f1", "macro_f1", "exact_match")
        },
        rule=lambda n: every(*(above(number, 0) for number in n.values())),
        tolerance="Each of six differences on the same images with its interval above 0.",
        page=_IN_DIST,
    ),
    Claim(
        id="ka-easiest-bt-hardest",
        section="5",
        place="Section 5, on Figure 6",
        wording="By F1 every decoder finds ka easiest and bt hardest.",
        needs={
            f"{decoder}_{code}": Cell("Figure 6 species", decoder, f"f1_{code}")
            for decoder in DECODERS
            for code in CODES
        },
        rule=_ranking,
        tolerance="Differences of F1 to the other five species, with the intervals of independent numbers. F1 without "
        "a margin favours frequent species, and bt is the rarest: the ranking of margins may differ.",
        built_in=True,
        page=_IN_DIST,
    ),
    Claim(
        id="tiles-saturate",
        section="5",
        place="Section 5, on Figure 6",
        wording="F1 rises with the number of tiles and saturates.",
        needs={
            f"{decoder}_{tiles}": Cell("Figure 6 tiles", decoder, f"f1_{tiles}")
            for decoder in DECODERS
            for tiles in (1, 4, 8, 16)
        },
        rule=_saturates,
        tolerance="From 1 to 4, 8 and 16 tiles every step upwards, the last smaller than the first, for each decoder; "
        "0.005 either way is open, since the tiles are drawn at random.",
        page=_IN_DIST,
    ),
    Claim(
        id="tiles-follow-curve",
        section="5",
        place="Section 5, on Figure 6",
        wording="F1 against the number of tiles follows a - c/√T.",
        needs={decoder: Cell("Figure 6 tiles", decoder, "share_explained") for decoder in DECODERS},
        rule=lambda n: every(*(above(n[decoder], 0.9, tolerance=0.05) for decoder in DECODERS)),
        tolerance="The fit explains nine tenths of the variance of F1 over the four tile counts.",
        page=_IN_DIST,
    ),
    Claim(
        id="fine-tuned-networks-collapse",
        section="5",
        place="Section 5, on Table 3",
        wording="Networks fine-tuned end to end are nearly perfect in distribution and collapse on held-out mixtures.",
        needs=fine_tuned("3"),
        rule=lambda n: collapsed(n, FINE_TUNED),
        tolerance="Each fitted (0.95 in distribution) and at least 0.25 lower on held-out combinations; the smallest "
        f"drop in print is {_LEAST_DROP}. Open where a network is not fitted.",
        page=_COLLAPSE,
    ),
    Claim(
        id="control-collapses",
        section="5",
        place="Section 5, on Table 3",
        wording="DINOv2 fine-tuned through the front-end of the decoders collapses just the same.",
        needs=fine_tuned("3", ("DINOv2 ViT-S/14 (PHOEBI)",)),
        rule=lambda n: collapsed(n, ("DINOv2 ViT-S/14 (PHOEBI)",)),
        tolerance="As for the other fine-tuned networks.",
        page=_COLLAPSE,
    ),
    Claim(
        id="mil-loses-a-third",
        section="5",
        place="Section 5, on Table 3",
        wording="Attention MIL on the frozen features of the decoders loses over a third of its F1.",
        needs=fine_tuned("3", ("Attention MIL (Ilse et al., 2018)",)),
        rule=lambda n: above(
            difference(n["Attention MIL (Ilse et al., 2018) in"], n["Attention MIL (Ilse et al., 2018) out"]),
            n["Attention MIL (Ilse et al., 2018) in"].value / 3,
            tolerance=0.01,
        ),
        tolerance="The drop against a third of the F1 in distribution.",
        page=_COLLAPSE,
    ),
    Claim(
        id="encoders-in-a-band",
        section="5",
        place="Section 5, on Table 4",
        wording="Thirteen frozen encoders lie in a narrow band under a linear probe.",
        needs={name: Cell("4", name, "per_sample_f1") for name in ENCODERS},
        rule=lambda n: below(
            Number(max(x.value for x in n.values()) - min(x.value for x in n.values())), 0.1, tolerance=0.02
        ),
        tolerance=f"Best minus worst below 0.1, a quarter of the smallest drop of Table 3, {_LEAST_DROP}.",
        page=_ENCODERS,
    ),
    Claim(
        id="larger-encoder-no-help",
        section="5",
        place="Section 5, on Table 7",
        wording="A far larger encoder raises validation F1 of every decoder and not its held-out F1.",
        needs={
            f"{decoder} {end} {size}": Cell("7", f"{encoder} / {decoder}", column)
            for decoder in DECODERS
            for end, column in (("in", "in_dist_val_f1"), ("out", "heldout_f1"))
            for size, encoder in (("small", "DINOv2 ViT-S/14"), ("large", "Prov-GigaPath ViT-G"))
        },
        rule=lambda n: every(
            *(above(difference(n[f"{d} in large"], n[f"{d} in small"]), 0) for d in DECODERS),
            *(below(difference(n[f"{d} out large"], n[f"{d} out small"]), 0.02, 0.01) for d in DECODERS),
        ),
        tolerance="Each validation difference above 0, each held-out difference below 0.02.",
        page=_ENCODERS,
    ),
    Claim(
        id="collapse-on-four-species",
        section="5",
        place="Section 5, on Table 5",
        wording="The collapse repeats on four species that were cultured and imaged apart.",
        needs=fine_tuned("5", (*FINE_TUNED, "Florence-2 DaViT-B")),
        rule=lambda n: collapsed(n, (*FINE_TUNED, "Florence-2 DaViT-B")),
        tolerance="As on six species.",
        page="05_four_species",
    ),
)
