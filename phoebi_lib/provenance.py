"""What a page's numbers are made from: the banner above them, and the record of versions, library, data and command."""

from __future__ import annotations

import html
import json
import os
import platform
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from phoebi_lib import __version__, workspace
from phoebi_lib.encoder_records import EncoderRecord, get_record
from phoebi_lib.parameters import FOLDERS, assignment

SIMULATED = "Simulated images: they test the software and teach the method; they say nothing about bacteria."
STAND_IN = "Stand-in encoder weights: they walk the path of the published run; no number here feeds a claim."
PUBLISHED = "Published images and encoder: differences from the paper's numbers are meant to be read."
USER = "Other images or another encoder than the paper's: its numbers are for orientation, they are not comparable."
EXACT = "Labels and file numbers only: these numbers follow from the published lists without any image."
STATEMENTS = {"simulated": SIMULATED, "stand-in": STAND_IN, "paper": PUBLISHED, "user": USER, "exact": EXACT}
EVIDENCE = tuple(STATEMENTS)
_PACKAGES = ("numpy", "pandas", "scikit-learn", "torch", "timm")
_MANIFESTS = ("dataset.json", "splits.json")
_PUBLISHED = ("phoebi6", "phoebi4")


@dataclass(frozen=True)
class Banner:
    """The statement above a page's numbers; it shows itself in a notebook as text, Markdown or HTML."""

    statements: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The banner as plain lines."""
        return "\n".join([*self.statements, "; ".join(f"{name}: {value}" for name, value in self.facts)])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        facts = " · ".join(f"{name}: `{value}`" for name, value in self.facts)
        return "\n>\n".join([*(f"> **{statement}**" for statement in self.statements), f"> {facts}"])

    def _repr_html_(self) -> str:
        # the class names are those of the book's own admonitions, so that the banner looks native there
        facts = " · ".join(f"{html.escape(name)}: <code>{html.escape(value)}</code>" for name, value in self.facts)
        lines = "".join(f"<p><strong>{html.escape(statement)}</strong></p>" for statement in self.statements)
        title = "What these numbers are made from"
        return (
            f'<div class="admonition warning phoebi-banner"><p class="admonition-title">{title}</p>{lines}'
            f'<p class="phoebi-facts">{facts}</p></div>'
        )


def versions() -> dict[str, str]:
    """Return the versions of Python, of this library and of the installed packages that shape the numbers.

    Read from the installed records; nothing is imported for it.
    """
    found = {"python": platform.python_version(), "phoebi_lib": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def banner(
    run: Any = None,
    *,
    pool: Any = None,
    profile: str | None = None,
    dataset: str | None = None,
    encoder: str | None = None,
    evidence: str | None = None,
    simulation: str | None = None,
) -> Banner:
    """Return the banner of a run: what its images are, and profile, data set, encoder, evidence, simulation, versions.

    Args:
        run: anything with the attributes ``profile``, ``dataset`` and ``encoder``; the arguments below overrule it.
        pool: a feature pool; it knows data set, encoder, evidence and simulation best, and overrules ``run``.
        profile, dataset, encoder: names.
        evidence: one of ``EVIDENCE``; without it and without a pool it is told from the data set (its ``dataset.json``
            if it is a folder) and from the profile (a rehearsal runs on stand-in weights).
        simulation: SHA-256 of the simulator's parameters.

    Raises:
        ValueError: unknown evidence, or neither evidence nor a data set to tell it from.
    """

    def pick(given: str | None, attribute: str, name: str) -> str:
        if given is not None:
            return given
        value = getattr(pool, attribute, None)
        return str(value if value is not None else getattr(run, name, "") or "")

    profile = profile if profile is not None else str(getattr(run, "profile", "") or "")
    dataset, encoder = pick(dataset, "dataset_name", "dataset"), pick(encoder, "encoder_name", "encoder")
    evidence = pick(evidence, "evidence", "") or evidence_of(dataset, profile, encoder)
    if evidence not in EVIDENCE:
        raise ValueError(f"unknown evidence {evidence!r}; known: {', '.join(EVIDENCE)}")
    if simulation is None:
        facts = getattr(pool, "facts", None) or {}
        simulation = str(facts.get("parameters_sha256", "") or simulation_hash(dataset))
    statements = [STATEMENTS[evidence]]
    # stand-in weights may read simulated images: both must then be said
    if simulation and evidence == "stand-in":
        statements.insert(0, SIMULATED)
    given = {"profile": profile, "data set": dataset, "encoder": encoder, "evidence": evidence,
             "simulation": simulation[:12], **versions()}  # fmt: skip
    return Banner(tuple(statements), tuple((name, value) for name, value in given.items() if value))


def evidence_of(dataset: str, profile: str = "", encoder: str = "") -> str:
    """Return what kind of evidence numbers from ``dataset`` are: "simulated", "stand-in", "paper" or "user".

    Published images give evidence on the paper's numbers only through one of its thirteen encoders; without an encoder
    (a page that only shows images) they do. Stand-in weights are told by their own file, whatever the profile.

    Raises ValueError for an empty name.
    """
    if not dataset:
        raise ValueError("a banner needs to know what the numbers are made from: give dataset= or evidence=")
    if profile == "rehearsal" or _stands_in(encoder):
        return "stand-in"
    if dataset.startswith("sim:") or _facts(dataset).get("simulated"):
        return "simulated"
    published = not encoder or getattr(_record(encoder), "paper_params_m", None) is not None
    return "paper" if dataset in _PUBLISHED and published else "user"


def _record(encoder: str) -> EncoderRecord | None:
    """Return what is known of an encoder, None for one of somebody's own."""
    try:
        return get_record(encoder)
    except ValueError:
        return None


def _stands_in(encoder: str) -> bool:
    """Tell whether the weights that would be loaded for ``encoder`` are stand-ins; missing ones are not."""
    record = _record(encoder)
    if record is None or record.source == "pypi":
        return False
    from phoebi_lib.weights import find_weights

    try:
        return find_weights(record).stand_in
    except (FileNotFoundError, ImportError):
        return False


def data_folder(dataset: str) -> Path:
    """Return where ``dataset`` lies on this machine, by the rules of ``open_dataset``; nothing is opened or made."""
    if dataset.startswith("sim:"):
        return workspace.data_dir() / dataset.replace(":", "-")
    if dataset in _PUBLISHED:
        return Path(os.environ.get(f"PHOEBI_{dataset.upper()}") or workspace.data_dir() / dataset)
    return Path(dataset)


def _facts(dataset: str) -> dict[str, Any]:
    path = data_folder(dataset) / "dataset.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def simulation_hash(dataset: str) -> str:
    """Return the SHA-256 of the parameters that ``dataset`` was simulated with; "" for images that are not simulated.

    A set named ``sim:...`` is always made, or made again, with the parameters of this library.
    """
    if not dataset.startswith("sim:"):
        return str(_facts(dataset).get("parameters_sha256", ""))
    from phoebi_lib.simulate import parameters_sha256

    return parameters_sha256()


def data_date(dataset: str) -> str:
    """Return the day (UTC) on which the images of ``dataset`` were put on this machine, or "not on this machine"."""
    times = [path.stat().st_mtime for name in _MANIFESTS if (path := data_folder(dataset) / name).is_file()]
    return datetime.fromtimestamp(max(times), UTC).date().isoformat() if times else "not on this machine"


def command(notebook: str, parameters: Mapping[str, Any]) -> str:
    """Return the command line that repeats a run: the notebook's name, its profile and each of its other parameters.

    A sibling's folder that is not given, "" by default, is left out.
    """
    left_out = {"profile", *(name for name in FOLDERS if parameters.get(name) == "")}
    others = [(name, value) for name, value in parameters.items() if name not in left_out]
    given = " ".join("-p " + shlex.quote(assignment(name, value)) for name, value in others)
    return f"phoebi run {notebook} --profile {parameters.get('profile', 'smoke')} {given}".rstrip()


def papermill_command(notebook: str, parameters: Mapping[str, Any]) -> str:
    """Return the same for stock papermill, on an exported copy."""
    # papermill guesses the type of what follows -p; -r takes a text as it is
    flags = {name: "-r" if isinstance(value, str) else "-p" for name, value in parameters.items()}
    given = " ".join(f"{flags[name]} {name} {shlex.quote(str(value))}" for name, value in parameters.items())
    command = f"papermill notebooks_ipynb/{notebook}.ipynb {notebook}.ipynb {given}".rstrip()
    return f"phoebi export notebooks_ipynb && {command}"


def provenance(
    notebook: str, parameters: Mapping[str, Any], evidence: str, inputs: Mapping[str, str], dataset: str | None = None
) -> dict[str, str]:
    """Return the record of a run, as its page shows it: commands, evidence, data and their date, hashes, versions.

    Args:
        notebook: name of the source.
        parameters: as it was run with.
        evidence: what kind of evidence its numbers are.
        inputs: hashes of what it was made from, as :func:`phoebi_lib.freshness.inputs` gives them.
        dataset: the data set that it reads, if any.
    """
    record = {"command": command(notebook, parameters), "stock papermill": papermill_command(notebook, parameters)}
    record["evidence"] = evidence
    if dataset:
        record |= {"data set": dataset, "date of the data": data_date(dataset)}
        if simulation := simulation_hash(dataset):
            record["simulation parameters"] = simulation[:12]
    hashes = {name: value[:12] for name, value in inputs.items() if value}
    return record | {f"hash of {name}": value for name, value in hashes.items()} | versions()


def foot(record: Mapping[str, str]) -> str:
    """Return a record as the closed box at the foot of a page, in MyST Markdown."""
    lines = [":::{dropdown} How this page was made", ":class-container: phoebi-foot", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_code(value)} |" for name, value in record.items()]
    return "\n".join([*lines, ":::"])


def _code(value: str) -> str:
    """Return a text as code in a cell of a table: fenced by more backticks than it holds, on one line."""
    fence = "`" * (1 + max(map(len, re.findall("`+", value)), default=0))
    text = " ".join(value.replace("|", "\\|").splitlines()) or "–"
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"
