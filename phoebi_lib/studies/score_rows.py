"""One row per image from scores and calls: the table from which the metrics and intervals of a study follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from phoebi_lib.pool import Pool


def score_rows(
    pool: Pool, rows: Sequence[int] | np.ndarray, scores: np.ndarray, called: np.ndarray, **facts: Any
) -> pd.DataFrame:
    """Return one row per image: ``id, combination, frame``, per species ``y_``, ``score_`` and ``pred_``, and facts.

    Args:
        pool: where the images' names and labels are.
        rows: (n,) row positions in the pool.
        scores, called: (n, K), the calls as 0/1.
        facts: become columns, as does ``evidence`` (the pool's, unless given).
    """
    chosen, labels = pool.manifest.iloc[rows], pool.Y[rows]
    table: dict[str, Any] = {"id": chosen["path"].to_numpy()}
    table |= {name: chosen[name].to_numpy() for name in ("combination", "frame")}
    for k, code in enumerate(pool.codes):
        table |= {f"y_{code}": labels[:, k], f"score_{code}": scores[:, k], f"pred_{code}": called[:, k].astype(int)}
    return pd.DataFrame(table).assign(**{"evidence": pool.evidence, **facts})
