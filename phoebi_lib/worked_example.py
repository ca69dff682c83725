"""One line of Table 6, read aloud: the example of the page on how to read a number, with the numbers of this book."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from phoebi_lib import report, workspace
from phoebi_lib.paper import printed_text
from phoebi_lib.paper.claims import load_results
from phoebi_lib.studies.readings import side, with_interval

FRAGMENT = "worked_example.md"
ROW, _COLUMN = "ProtoMatch (proto match), closed-form", "heldout_f1"
_PAGE = "05_held_out"
_KINDS = {
    "paper": "published images through one of the paper's encoders, so it may be set beside the printed one",
    "simulated": "our stand-in micrographs, so it tests the procedure and says nothing about bacteria",
    "user": "other images or another encoder than the paper's, so it is for orientation",
    "stand-in": "an encoder whose weights are placeholders, so it means nothing",
}


def fragment(results: pd.DataFrame) -> str:
    """Return the example as MyST Markdown: a numbered list; without that line among ``results`` the paper's part alone.

    Args:
        results: all tidy tables with their ``source``, as :func:`phoebi_lib.paper.claims.load_results` gives them.
    """
    lines = results[(results["source"] == _PAGE) & (results["table"] == "6") & (results["row"] == ROW)
                    & results["value"].notna()].set_index("column")  # fmt: skip
    ours = lines.to_dict("index")
    steps = [f"**Row and column.** The row is *{ROW}*, the column *held-out F1*: "
             "how well this decoder names the species of mixtures that were kept out of its training."]  # fmt: skip
    if _COLUMN in ours:
        steps += _ours(ours)
    else:
        steps.append("**Our number** is not computed here, and the table says why.")
    return "\n".join(f"{n}. {step}" for n, step in enumerate([*steps, _paper(ours.get(_COLUMN))], 1)) + "\n"


def _ours(ours: dict[str, dict]) -> list[str]:
    cell, margin = ours[_COLUMN], ours.get(_COLUMN + report.MARGIN)
    value, kind = report.at_digits(cell["value"], 3), cell["evidence"]
    spread = ours.get(f"{_COLUMN}_std")
    steps = []
    if spread is not None:
        std = report.at_digits(spread["value"], 3)
        steps.append(f"**Our number** is {value} ± {std}: the mean over the partitions `{cell['partition']}`, "
                     "and after the sign their standard deviation. It is no interval, and says how far they differ.")
    else:
        steps.append(f"**Our number** is {value}.")
    steps.append(f"**What it rests on.** The evidence is *{kind}*: {_KINDS[kind]}. The profile is `{cell['profile']}`, "
                 f"the data set `{cell['dataset']}`, the encoder `{cell['encoder']}`.")  # fmt: skip
    if not any(pd.isna(cell[name]) for name in ("n_images", "n_frames", "n_combinations")):
        counts = f"{int(cell['n_images']):,} answers to images of {int(cell['n_frames']):,} frames"
        steps.append(f"**How much it rests on.** {counts} and {int(cell['n_combinations'])} different combinations. "
                     "An image is asked about in each partition that holds it out, and several crops of a frame are "
                     "near copies. So n is the number of frames, and what is new from one combination to the next is "
                     "told by the number of combinations alone.")  # fmt: skip
    if margin is not None and not math.isnan(margin["low"]):
        steps.append(f"**What it is worth.** Its margin over the constant predictor on the same images, in "
                     f"{{numref}}`tab-6-margin`, is {with_interval(margin)}. The interval "
                     + side(margin, "lies above zero: better than naming every species",
                            "lies below zero: worse than naming every species",
                            "holds zero: it cannot be told from naming every species") + ".")  # fmt: skip
    return steps


def _paper(cell: dict | None) -> str:
    line = printed_text(6).set_index("decoder").loc[ROW]
    constant = report.printed_constant(6, _COLUMN)
    margin = report.at_digits(round(float(line[_COLUMN]) - constant, 3), 3, sign=True)
    said = (f"**The paper's number**, in the line below, is {line[_COLUMN]} ± {line[f'{_COLUMN}_std']}, and its margin "
            f"over its own constant, {report.at_digits(constant, 3)}, is {margin}. ")  # fmt: skip
    if cell is None:
        return said + "There is nothing to compare it with here."
    if cell["evidence"] == "paper":
        difference = report.at_digits(cell["value"] - cell["paper"], 3, sign=True)
        return said + f"Both rest on the same kind of images: the difference is {difference}."
    return said + "The last column reads *not comparable*: two numbers from different images have no difference."


def write(executed: str | Path) -> Path:
    """Write the example into the folder of the executed copies, from its ``tables``; return the path.

    Raises FileNotFoundError where there are no tables.
    """
    results, _ = load_results(Path(executed) / "tables")
    with workspace.atomic_path(Path(executed) / FRAGMENT) as temporary:
        temporary.write_text(fragment(results), encoding="utf-8")
    return Path(executed) / FRAGMENT
