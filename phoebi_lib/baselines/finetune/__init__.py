"""FineTune: whole backbones trained from pixels (Tables 3, 5 and the control row of Table 6), under the same protocol.

``finetune(dataset, parts, encoder=..., recipe=recipe("whole", "random", "corrected"), seed=1337)`` gives one row per
image, as :func:`phoebi_lib.protocols.run_partition` does for the decoders.
"""

from phoebi_lib.baselines.finetune.harness import finetune, history
from phoebi_lib.baselines.finetune.network import Backbone
from phoebi_lib.baselines.finetune.recipes import Recipe, capped, recipe

__all__ = ["Backbone", "Recipe", "capped", "finetune", "history", "recipe"]
