"""The one file of the simulator's numbers: reading it, overriding it in tests, and its hash."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from phoebi_lib.workspace import file_sha256, text_sha256

PARAMETERS_FILE = Path(__file__).with_name("parameters.yaml")


def parameter_table() -> list[dict[str, Any]]:
    """Return one row per parameter: ``name`` (dotted), ``value``, ``unit``, ``source``, in the order of the file."""
    return copy.deepcopy(_table())


@functools.cache
def _table() -> list[dict[str, Any]]:
    return list(_leaves(yaml.safe_load(PARAMETERS_FILE.read_text(encoding="utf-8")), ()))


def load_parameters(overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values as nested dictionaries, ``parameters["optics"]["wavelength"]``.

    ``overrides`` maps dotted names to other values, for tests and experiments: ``{"field.width": 400}``.
    Raises KeyError, naming the entry, when an override names no parameter.
    """
    values: dict[str, Any] = {}
    for row in parameter_table():
        *groups, last = row["name"].split(".")
        _group(values, groups)[last] = row["value"]
    for name, value in (overrides or {}).items():
        *groups, last = name.split(".")
        inner = values
        for group in groups:
            inner = inner.get(group, {}) if isinstance(inner, dict) else {}
        if not isinstance(inner, dict) or last not in inner or isinstance(inner[last], dict):
            raise KeyError(
                f"no parameter {name!r} in {PARAMETERS_FILE.name}; names are dotted, e.g. 'optics.wavelength'"
            )
        inner[last] = copy.deepcopy(value)
    return values


def parameters_sha256(overrides: Mapping[str, Any] | None = None) -> str:
    """Return the SHA-256 of ``parameters.yaml``; with overrides, of that hash and the overrides together."""
    file_hash = file_sha256(PARAMETERS_FILE)
    if not overrides:
        return file_hash
    return text_sha256(file_hash + json.dumps(dict(overrides), sort_keys=True))


def _group(values: dict[str, Any], groups: list[str]) -> dict[str, Any]:
    for group in groups:
        values = values.setdefault(group, {})
    return values


def _leaves(node: dict[str, Any], name: tuple[str, ...]):
    if "value" in node:
        yield {"name": ".".join(name), "value": node["value"], "unit": node["unit"], "source": node["source"]}
        return
    for key, inner in node.items():
        yield from _leaves(inner, (*name, key))
