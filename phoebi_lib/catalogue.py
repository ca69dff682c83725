"""The six species, the forty combinations, and how a folder name becomes a label (Section 3, Tables 2 and 13).

Class order is everywhere ``bs bt fj ka mx pf``: the sorted codes. Neither Table 13 nor the folder names use that order
(they spell ``bs bt mx ka fj pf``), so a label must come from :func:`label_matrix`, never from a position in a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

CODES: tuple[str, ...] = ("bs", "bt", "fj", "ka", "mx", "pf")
#: What the letters of the four-species subset stand for, in its class order (Appendix C.1).
FOUR_CLASS_SPECIES: dict[str, str] = {"b": "bs", "f": "fj", "k": "ka", "p": "pf"}
FOUR_CLASS_CODES: tuple[str, ...] = tuple(FOUR_CLASS_SPECIES)
#: Its folder of images, beside ``images`` of the six species.
FOUR_CLASS_FOLDER = "images_4class"
#: The fourteen folders of the simulated four-species set. A choice, since only their number is printed: b and f are
#: recorded twice (``b_f`` and ``f_b``, as the release is said to do); k_p is missing, as ka_pf is among the forty, and
#: so is the triple that adds b to it. The pure cultures and the quadruple are all there.
FOUR_CLASS_COMBINATIONS: tuple[str, ...] = tuple("b f k p b_f f_b b_k b_p f_k f_p b_f_k b_f_p f_k_p b_f_k_p".split())

_RETAKE = re.compile(r"take[0-9]+", re.IGNORECASE)


@dataclass(frozen=True)
class Species:
    """What the paper says about one species (Section 3 and Table 2).

    ``length_um`` is the range of cell lengths in micrometres (low, high); ``length_text`` is how the paper words it.
    """

    code: str
    name: str
    strain: str
    gram: str
    motility: str
    length_um: tuple[float, float]
    length_text: str
    note: str = ""


SPECIES: dict[str, Species] = {
    species.code: species
    for species in (
        Species("bs", "Bacillus subtilis", "ATCC 23857", "+", "peritrichous flagella", (4.0, 10.0), "4-10 µm"),
        Species("bt", "Bacillus thermoamylovorans", "DSM 13307", "+", "peritrichous flagella", (4.0, 4.0), "~4 µm"),
        Species("fj", "Flavobacterium johnsoniae", "ATCC 17061", "-", "gliding", (5.0, 10.0), "5-10 µm"),
        Species(
            code="ka",
            name="Klebsiella aerogenes",
            strain="ATCC 13048",
            gram="-",
            motility="peritrichous flagella",
            length_um=(1.0, 3.0),
            length_text="1-3 µm",
            note="encapsulated",
        ),
        Species("mx", "Myxococcus xanthus", "ATCC 25232", "-", "gliding", (5.0, 10.0), "5-10 µm"),
        Species("pf", "Pseudomonas fluorescens", "ATCC 13525", "-", "polar flagella", (1.5, 3.0), "1.5-3 µm"),
    )
}

#: The forty folder names in the order of Table 13.
COMBINATIONS: tuple[str, ...] = tuple(
    (
        "bs bt mx ka fj pf "
        "bs_mx bs_ka bs_fj bs_pf bt_mx bt_ka bt_pf mx_ka mx_fj mx_pf ka_fj fj_pf "
        "bs_mx_ka bs_mx_fj bs_mx_pf bs_ka_fj bs_ka_pf bs_fj_pf bt_mx_ka bt_mx_pf bt_ka_fj bt_fj_pf mx_ka_fj mx_ka_pf "
        "mx_fj_pf ka_fj_pf bs_bt_mx "
        "bs_mx_ka_pf bt_mx_ka_fj bs_bt_ka_fj bs_mx_fj_pf bt_ka_fj_pf bs_ka_fj_pf "
        "bs_bt_mx_ka_fj_pf"
    ).split()
)


def parse_combination(name: str, codes: Sequence[str] = CODES) -> tuple[str, ...]:
    """Return the species of a combination folder, in class order.

    The name is split at ``_``; empty pieces and retake suffixes (``take2``, any case) are dropped, the remaining pieces
    must be known codes, each at most once. ``ka_fj_take2`` gives ``("fj", "ka")``.

    Args:
        name: folder name, without any parent folder.
        codes: the known codes in class order.

    Raises:
        TypeError: the name is not a string.
        ValueError: a piece is not a known code, a code occurs twice, or no code remains.
    """
    if not isinstance(name, str):
        raise TypeError(f"a combination is a folder name (str), got {name!r}")
    tokens = [token for token in name.split("_") if token and not _RETAKE.fullmatch(token)]
    unknown = [token for token in tokens if token not in codes]
    known = f"known codes: {', '.join(codes)}"
    if unknown:
        raise ValueError(
            f"combination folder {name!r}: unknown species code {', '.join(map(repr, unknown))}; {known}. "
            'Rename the folder, or name your own species: codes= in Python, or {"codes": [...]} in the data set\'s '
            "dataset.json. Pictures without labels lie side by side, not in sub-folders."
        )
    if len(set(tokens)) != len(tokens):
        raise ValueError(f"combination folder {name!r} names a species twice; each code may occur once")
    if not tokens:
        raise ValueError(f"combination folder {name!r} names no species; {known}, joined with '_'")
    return tuple(code for code in codes if code in tokens)


def order(name: str, codes: Sequence[str] = CODES) -> int:
    """Return the order of a combination: how many species it holds (1 = pure culture)."""
    return len(parse_combination(name, codes))


def label_matrix(combinations: Iterable[str], codes: Sequence[str] = CODES) -> np.ndarray:
    """Return labels ``(N, K)``, int64 0/1, columns in the order of ``codes``, one row per name.

    Raises:
        ValueError, TypeError: as :func:`parse_combination`, naming the first offending folder.
    """
    rows: dict[str, list[int]] = {}
    names = list(combinations)
    for name in dict.fromkeys(names):
        present = parse_combination(name, codes)
        rows[name] = [int(code in present) for code in codes]
    return np.array([rows[name] for name in names], dtype=np.int64).reshape(len(names), len(codes))
