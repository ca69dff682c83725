"""A saved decoder: a folder with ``decoder.json`` and one safetensors file. Data only: nothing in it is executed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from phoebi_lib.workspace import atomic_path

_FORMAT = 1
_WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")


def write_state(
    folder: Path, name: str, parameters: dict[str, Any], arrays: dict[str, np.ndarray], facts: dict[str, Any]
) -> None:
    """Write one decoder to ``folder``, all or nothing.

    The weights file is named by its content and written first; replacing ``decoder.json``, which names it, is the one
    step that makes the new state current. A process killed at any moment leaves the old state or the new one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = save({key: np.ascontiguousarray(value) for key, value in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    weights = folder / f"weights-{digest[:16]}.safetensors"
    with atomic_path(weights) as temporary:
        temporary.write_bytes(content)
    document = {
        "format": _FORMAT,
        "decoder": name,
        "parameters": {key: _plain(value) for key, value in parameters.items()},
        "facts": {key: _plain(value) for key, value in facts.items()},
        "weights": weights.name,
        "sha256": digest,
    }
    with atomic_path(folder / "decoder.json") as temporary:
        temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    for old in folder.glob("weights-*.safetensors"):
        if old != weights and _WEIGHTS.fullmatch(old.name):
            old.unlink(missing_ok=True)


def read_state(
    folder: Path, names: tuple[str, ...]
) -> tuple[str, dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
    """Return ``(name, parameters, arrays, facts)`` of a decoder whose class is one of ``names``.

    Raises ``FileNotFoundError`` where a file is missing and ``ValueError`` for anything but a whole saved decoder.
    """
    path = folder / "decoder.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; expected a folder written by save()")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); save the decoder again") from None
    keys = {"format", "decoder", "parameters", "facts", "weights", "sha256"}
    if not isinstance(document, dict) or set(document) != keys or document["format"] != _FORMAT:
        raise ValueError(f"{path} must hold the keys {sorted(keys)} with format {_FORMAT}; save the decoder again")
    if document["decoder"] not in names:
        raise ValueError(f"{path} holds a {document['decoder']!r}; expected {' or '.join(names)}")
    if not isinstance(document["parameters"], dict) or not isinstance(document["facts"], dict):
        raise ValueError(f"{path}: parameters and facts must be objects; save the decoder again")
    # the name comes from a file that may be anyone's: it must not point outside the folder
    if not _WEIGHTS.fullmatch(str(document["weights"])):
        raise ValueError(f"{path}: weights must name a file like weights-<16 hex digits>.safetensors in this folder")
    weights = folder / document["weights"]
    if not weights.is_file():
        raise FileNotFoundError(f"{weights}, named by decoder.json, does not exist; save the decoder again")
    content = weights.read_bytes()
    if hashlib.sha256(content).hexdigest() != document["sha256"]:
        raise ValueError(f"{weights} does not have the content recorded in decoder.json; save the decoder again")
    try:
        arrays = load(content)
    except SafetensorError as error:
        raise ValueError(f"{weights} is not a safetensors file ({error}); save the decoder again") from None
    return document["decoder"], document["parameters"], arrays, document["facts"]


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON can hold it; refuse anything that would not come back the same."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    raise TypeError(f"a decoder's parameters must be numbers, text or lists of them to be saved; found {value!r}")
