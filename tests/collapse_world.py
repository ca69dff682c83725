"""Rows of the collapse pages without a training: made-up answers on the partitions of tiny pictures."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from phoebi_lib.catalogue import CODES, parse_combination
from phoebi_lib.session import Run
from phoebi_lib.splits import partition as split


def answer_rows(manifest, partition, calls, codes=CODES, **facts):
    """Return validation and test rows whose calls are ``calls(combination, part)``, a tuple of codes."""
    parts, tables = split(manifest, partition, grouping="frame", codes=codes), []
    for part in ("val", "test"):
        chosen = manifest.iloc[parts[part]]
        table = {"id": chosen["path"], "combination": chosen["combination"], "frame": chosen["frame"], "part": part}
        true = [parse_combination(name, codes) for name in chosen["combination"]]
        said = [calls(name, part) for name in chosen["combination"]]
        for code in codes:
            table[f"y_{code}"] = [int(code in members) for members in true]
            table[f"pred_{code}"] = [int(code in members) for members in said]
            table[f"score_{code}"], table[f"threshold_{code}"] = np.array(table[f"pred_{code}"], dtype=float), 0.5
        tables.append(pd.DataFrame(table))
    common = {"method": "made", "dataset": "sim:tiny", "encoder": "efficientnet_lite0", "evidence": "simulated",
              "profile": "smoke", "partition": partition, "seed": 1337, "compat": "corrected", "grouping": "frame",
              "updates": 50, "train_f1": 0.9, "pool_key": "tiny", "simulation": ""}  # fmt: skip
    return pd.concat(tables, ignore_index=True).assign(**{**common, **facts})


def right(name, part, codes=CODES):
    return parse_combination(name, codes)


def first_only(name, part, codes=CODES):
    """Right on trained-on combinations, the first species alone on others."""
    return right(name, part, codes) if part == "val" else right(name, part, codes)[:1]


def blocks(manifest, calls, codes=CODES, **facts):
    return pd.concat([answer_rows(manifest, name, calls, codes, **facts) for name in ("random", "lco-1337")],
                     ignore_index=True)  # fmt: skip


def fake_finetune(calls, log):
    """Return a stand-in of the engine that answers with ``calls`` and notes what it was asked for."""

    def train(dataset, parts, *, encoder, recipe, seed, profile, partition):
        log.append((encoder, recipe, partition))
        points = ((5, 0.6, 0.5), (9, 0.4, 0.7))
        curve = [{"updates": n, "epoch": 1, "loss": loss, "val_f1": f1} for n, loss, f1 in points]
        return answer_rows(dataset.manifest, partition, calls, dataset.codes, encoder=encoder, method=recipe.method,
                           updates=9, best_update=9, history=json.dumps(curve))  # fmt: skip

    return train


def named_run(**changes):
    values = {"profile": "smoke", "dataset": "sim:smoke", "encoder": "efficientnet_lite0", "partition": "lco-1337",
              "seed": 1337, "compat": "corrected", "grid": 4, "caps": True, **changes}  # fmt: skip
    return Run(**values)
