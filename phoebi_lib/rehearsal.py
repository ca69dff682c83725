"""A small copy of the published layout with stand-in weights: the paper's path, walked without data or network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from phoebi_lib import workspace
from phoebi_lib.catalogue import COMBINATIONS, FOUR_CLASS_FOLDER, FOUR_CLASS_SPECIES

IMAGES_PER_COMBINATION = 9
DATASET = "sim:rehearsal"
ENCODER = "vit_small_patch14_dinov2.lvd142m"
_LETTERS = {code: letter for letter, code in FOUR_CLASS_SPECIES.items()}


def make_images(target: Path | None = None) -> Path:
    """Lay out the first nine smoke images of each combination as the published export does; return the folder.

    ``target`` (``sim-rehearsal`` among the data by default) then holds images/, images_4class/ and the four published
    manifests. A complete copy of the present smoke images is kept. Three consecutive images count as crops of one frame
    there, as in the published numbering.
    """
    from phoebi_lib.datasets import open_dataset, write_manifests

    smoke = open_dataset("sim:smoke")
    target = workspace.data_dir() / "sim-rehearsal" if target is None else target
    facts = {**smoke.facts, "name": DATASET, "crops_per_frame": 3}
    record = target / "dataset.json"
    if record.is_file() and json.loads(record.read_text())["parameters_sha256"] == facts["parameters_sha256"]:
        return target
    partial = target.with_name(f".{target.name}-partial")
    shutil.rmtree(partial, ignore_errors=True)
    for combination in COMBINATIONS:
        codes = combination.split("_")
        folders = [partial / "images" / combination]
        if set(codes) <= set(_LETTERS):
            folders.append(partial / FOUR_CLASS_FOLDER / "_".join(_LETTERS[code] for code in codes))
        for folder in folders:
            folder.mkdir(parents=True)
            for number in range(1, IMAGES_PER_COMBINATION + 1):
                shutil.copyfile(smoke.images / combination / f"{number:05d}.jpg", folder / f"{number:05d}.jpg")
    (partial / "dataset.json").write_text(json.dumps(facts, indent=1))
    write_manifests(partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    return target


def prepare() -> tuple[Path, Path]:
    """Make the rehearsal's images and its hub cache of stand-in weights; return both folders."""
    from phoebi_lib.encoders import write_stand_in

    images = make_images()
    hub = workspace.data_dir() / "rehearsal-hub"
    if not any(hub.rglob("*.safetensors")):
        write_stand_in(ENCODER, hub)
    return images, hub
