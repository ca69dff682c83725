"""The labs of a course: widgets with static twins, and checks of exercises that say in a sentence what is wrong.

The lab notebooks import this package alone. ``check_...`` prints one line and returns nothing; it never shows a
solution. ``..._panel`` gives a drawing for :func:`explorer` (sliders) and :func:`twin` (the same drawing, at rest).
"""

from phoebi_lib.labs.answers import Unwritten, progress, require_all, written
from phoebi_lib.labs.explore import explorer, few, twin
from phoebi_lib.labs.front_end import (
    blur_panel,
    check_corners,
    check_cut,
    check_even,
    check_grey,
    check_unevenness,
    tiles_panel,
)
from phoebi_lib.labs.leave_out import (
    check_choice,
    check_constant_f1,
    check_divide,
    check_image_f1,
    check_last_frames,
    leave_out_panel,
)
from phoebi_lib.labs.stranger import (
    alarm_panel,
    check_alarm_level,
    check_auroc,
    check_kth_distance,
    check_residual,
    check_without,
)
from phoebi_lib.labs.thresholds import (
    check_call,
    check_cheapest,
    check_cost,
    check_precision_recall,
    check_quantile_threshold,
    cost_panel,
)
from phoebi_lib.labs.unmixing import (
    check_anchor,
    check_best_share,
    check_cosines,
    check_residual_length,
    check_unmix,
    share_panel,
)

__all__ = [
    "Unwritten", "alarm_panel", "blur_panel", "check_alarm_level", "check_anchor", "check_auroc", "check_best_share",
    "check_call", "check_cheapest", "check_choice", "check_constant_f1", "check_corners", "check_cosines", "check_cost",
    "check_cut", "check_divide", "check_even", "check_grey", "check_image_f1", "check_kth_distance",
    "check_last_frames", "check_precision_recall", "check_quantile_threshold", "check_residual",
    "check_residual_length", "check_unevenness", "check_unmix", "check_without", "cost_panel", "explorer", "few",
    "leave_out_panel", "progress", "require_all", "share_panel", "tiles_panel", "twin", "written",
]  # fmt: skip
