"""Three benchmarks that ask neighbouring questions, on the same frozen features.

They are FungiTastic, NEEDL-Bench and the biological visual evaluation of BioCLIP 2.

Each has its loaders of the published layout, its protocols, its metrics and its printed numbers. A result says which
``variant`` of a protocol gave it: ``paper``, ``reference_code`` (defects of the published code included) or ``ours``.
"""

from phoebi_lib.siblings.printed import printed
from phoebi_lib.siblings.run import start

__all__ = ["printed", "start"]
