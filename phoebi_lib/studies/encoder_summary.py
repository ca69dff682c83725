"""Differences between encoders on the same images, and what they answer: does the encoder matter?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import pandas as pd

from phoebi_lib.encoder_records import get_record
from phoebi_lib.paper import printed
from phoebi_lib.studies.encoder_sweep import EMBEDDED
from phoebi_lib.studies.encoder_tables import row_name
from phoebi_lib.studies.paired import counts, image_f1, interval, lines, resampled, resamples, tidy
from phoebi_lib.studies.readings import side, with_interval
from phoebi_lib.summaries import FITTED_F1

if TYPE_CHECKING:
    from phoebi_lib.session import Run

#: The same network with the weights that it learned, and with those that training starts from.
TRAINED, UNTRAINED = "efficientnet_lite0", "efficientnet_lite0_untrained"
CONTROL, PAIR = "control_difference", "difference"


def encoder_pairs(run: Run, found: Mapping[str, pd.DataFrame], codes: Sequence[str]) -> pd.DataFrame:
    """Return the tidy table "4 pairs": differences in F1 of the linear probe between embedded encoders, image by image.

    Column ``control_difference``: what learned weights add to the control; ``difference``: each pair of the
    trained ones, later minus earlier; at the published passes and at 2,000 updates, where they differ, on the test
    images of the random split, with 95 % intervals over combinations.
    """
    here = [name for name in EMBEDDED if name in found]
    rows = pd.concat([found[name] for name in here])
    rows = rows[(rows["part"] == "test") & (rows["method"] != "AllPresent")]
    trained = [name for name in here if name != UNTRAINED]
    pairs = [(CONTROL, UNTRAINED, TRAINED), *((PAIR, *pair) for pair in combinations(trained, 2))]
    made = []
    for method, its in rows.groupby("method", sort=False):
        means = resampled(image_f1(its, ["encoder"], codes), resamples(run))
        for column, first, second in pairs:
            change = interval(means[second] - means[first])
            row = row_name(f"{get_record(second).title} minus {get_record(first).title}", method)
            made += lines(row, {column: change}, counts(its[its["encoder"] == second]))
    return tidy(made, "4 pairs", run)


def changes(seven: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of Table 7 that are differences computed here, larger minus smaller encoder."""
    scores = seven["column"].isin(["in_dist_val_f1", "heldout_f1"])
    return seven[seven["row"].str.contains(" minus ") & seven["value"].notna() & scores]


def answer(pairs: pd.DataFrame, seven: pd.DataFrame) -> str:
    """Return one sentence that answers the title of the page, from :func:`encoder_pairs` and Table 7.

    Of the probes it takes those with the most updates.
    """
    longest = pairs[pairs["updates"] == pairs["updates"].max()]
    gain = longest[longest["column"] == CONTROL].iloc[0]
    told = Counter(side(line) for line in longest[longest["column"] == PAIR].to_dict("records"))
    held = changes(seven)
    held = Counter(side(line) for line in held[held["column"] == "heldout_f1"].to_dict("records"))
    kind, apart = gain["evidence"], told["above"] + told["below"]
    word = side(gain, "raise", "lower", "cannot be said to change")
    return (f"Does the encoder matter? On {kind} images learned weights {word} the F1 of the probe after "
            f"{gain['updates']:,} updates, {with_interval(gain)}; {apart} of {told.total()} pairs of trained encoders "
            f"can be told apart; of {held.total()} held-out differences between the larger and the smaller "
            f"{held['above']} are above zero, {held['below']} below, and {held['cannot be told from']} cannot be "
            "told from it.")  # fmt: skip


def printed_changes() -> pd.DataFrame:
    """Return the paper's differences of Table 7, larger minus smaller encoder, as printed: one line per decoder."""
    numbers = printed(7)
    return numbers[numbers["block"] == "difference"].set_index("decoder")[["in_dist_val_f1", "heldout_f1"]]


def printed_fit() -> tuple[int, int, float]:
    """Return of the trained rows of Table 7 how many print 0.95 or more on validation, how many there are, the highest.

    ProtoMatch has nothing to train and is no row of these.
    """
    numbers = printed(7)
    values = numbers.loc[(numbers["block"] != "difference") & (numbers["decoder"] != "ProtoMatch"), "in_dist_val_f1"]
    return int((values >= FITTED_F1).sum()), len(values), float(values.max())
