"""The claims of the paper, section by section, and their verdicts (see :mod:`phoebi_lib.paper.claims.engine`).

Each module of this package that holds claims lists them in ``CLAIMS``; :func:`all_claims` gathers them.
"""

from __future__ import annotations

import importlib
import pkgutil

from phoebi_lib.paper.claims.engine import SECTIONS, Claim
from phoebi_lib.paper.claims.loader import load_results

__all__ = ["all_claims", "load_results"]


def all_claims() -> tuple[Claim, ...]:
    """Return the claims of every module of this package, in the order of the paper's sections.

    Raises:
        ValueError: two claims have the same id, or one belongs to no section that is judged.
    """
    found: dict[str, Claim] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        for claim in getattr(importlib.import_module(f"{__name__}.{module}"), "CLAIMS", ()):
            if claim.id in found:
                raise ValueError(f"two claims are called {claim.id!r}; the second is in {module}.py")
            if claim.section not in SECTIONS:
                raise ValueError(f"claim {claim.id!r} is of section {claim.section!r}; known: {', '.join(SECTIONS)}")
            found[claim.id] = claim
    return tuple(sorted(found.values(), key=lambda claim: SECTIONS.index(claim.section)))
