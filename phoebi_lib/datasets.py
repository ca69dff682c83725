"""Where images come from: simulated, an exported copy of the published data, or any folder.

A :class:`Dataset` is a folder of images plus a manifest, one row per image. Opening one lists and checks; pixels are
read one image at a time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from phoebi_lib import manifest_files, workspace
from phoebi_lib.catalogue import (
    CODES,
    COMBINATIONS,
    FOUR_CLASS_CODES,
    FOUR_CLASS_COMBINATIONS,
    FOUR_CLASS_FOLDER,
    label_matrix,
)
from phoebi_lib.folders import (
    around,
    find_images,
    list_images,
    pictures_beside,
    read_facts,
    repeated_species,
    row_positions,
)
from phoebi_lib.images import ImageError, read_image
from phoebi_lib.progress import track
from phoebi_lib.published import CROPS_PER_FRAME, IMAGE_SIZE, check_published, compare_manifest_files

__all__ = ["Dataset", "ImageError", "open_dataset", "read_image", "write_manifests"]

_SETTINGS = {
    # name: environment variable, names of the image folder, class order
    "phoebi6": ("PHOEBI_PHOEBI6", ("images",), CODES),
    "phoebi4": ("PHOEBI_PHOEBI4", (FOUR_CLASS_FOLDER, "images"), FOUR_CLASS_CODES),
}
_IMAGES = ("images", FOUR_CLASS_FOLDER)
# what the paper says of the four-species set
_PHOEBI4_IMAGES, _PHOEBI4_FOLDERS = 14_000, 14


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images on disk and what is known about them.

    Attributes:
        name: as given to :func:`open_dataset`; a folder's own name for a folder.
        images: folder that the manifest's paths are relative to.
        manifest: one row per image: ``path``, ``combination`` ("" = unknown), ``frame``, ``crop``.
        codes: species codes in class order; K of them.
        evidence: "simulated", "paper" (a copy with the published counts) or "user".
        facts: what ``dataset.json`` says (simulation hash, world, ...), with ``crops_per_frame`` always present.
        notes: sentences on what opening it found: counts, manifest files, entries left out.
        size: expected side in pixels, or None for any.
    """

    name: str
    images: Path
    manifest: pd.DataFrame
    codes: tuple[str, ...] = CODES
    evidence: str = "user"
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    size: int | None = None

    def __len__(self) -> int:
        return len(self.manifest)

    @property
    def labelled(self) -> bool:
        """Whether every image has a combination."""
        return bool((self.manifest["combination"] != "").all())

    @property
    def Y(self) -> np.ndarray:
        """Labels ``(N, K)``, 0/1, columns in the order of ``codes``. ValueError if the labels are unknown."""
        if not self.labelled:
            raise ValueError(
                f"data set {self.name!r} has no labels: its pictures lie in no combination folder. "
                "Sort them into folders such as bs_ka/ to score predictions"
            )
        return label_matrix(self.manifest["combination"], self.codes)

    def file(self, i: int) -> Path:
        """Return where image ``i`` lies. ValueError if its path leaves the image folder."""
        path = Path(self.manifest["path"].iloc[i])
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"data set {self.name!r}: path {str(path)!r} leaves the image folder {self.images}")
        return self.images / path

    def read(self, i: int) -> np.ndarray:
        """Return image ``i`` as uint8 ``(3, H, W)``, 0..255 (conventions: :mod:`phoebi_lib.images`).

        Raises:
            ImageError: the file cannot be read, or has another size than the published 1024 x 1024.
        """
        pixels = read_image(self.file(i))
        height, width = pixels.shape[1:]
        if self.size is not None and (height, width) != (self.size, self.size):
            raise ImageError(
                f"{self.file(i)}: is {width} x {height} px, {self.name} images are {self.size} x {self.size}; "
                "export the original again"
            )
        return pixels

    def verify(self) -> list[str]:
        """Read every image; return one message per unusable one (an empty list: all are fine)."""
        problems = []
        for i in track(range(len(self)), desc=f"verify {self.name}"):
            try:
                self.read(i)
            except ImageError as error:
                problems.append(str(error))
        return problems

    def select(self, rows: Sequence[int] | np.ndarray) -> Dataset:
        """Return the data set of these row positions (or of this boolean mask), in the order given."""
        positions = row_positions(rows, len(self))
        return replace(self, manifest=self.manifest.iloc[positions].reset_index(drop=True))


def open_dataset(
    name: str | Path,
    *,
    root: str | Path | None = None,
    crops_per_frame: int | None = None,
    codes: Sequence[str] | None = None,
) -> Dataset:
    """Open a data set and check its layout.

    Args:
        name: ``sim:smoke`` or ``sim:default``, simulated first where missing or incomplete (``sim:smoke:shared`` for
            the shared-session world, ``sim:smoke:pure`` for further test frames of the pure cultures,
            ``sim:smoke:four`` for four species in fourteen folders, in sessions of their own); ``phoebi6`` or
            ``phoebi4``, an exported copy of the published images; or a folder: of combination folders, of one
            ``images`` (else ``images_4class``) folder with them, or of pictures without labels.
        root: where the copy lies; else the variable ``PHOEBI_PHOEBI6`` / ``PHOEBI_PHOEBI4``, else ``data/<name>``.
        crops_per_frame: how many consecutive images share a frame; 3 for published data, else what ``dataset.json``
            says, else 1.
        codes: species codes in class order; by default the six (four for ``phoebi4``), or those of ``dataset.json``.

    ``phoebi6`` must be complete: forty combinations of 3,000 numbered images and, where the manifest files are there,
    exactly the published splits. For the others, counts and manifest files are only reported (``notes``); a
    ``phoebi4`` of other counts than 14,000 images in 14 folders has evidence "user". Folders of the same species are
    noted with those that no part of a published partition holds.

    Raises:
        FileNotFoundError: no such data set, or no pictures in it; the message says where was looked.
        ValueError: unknown species code, duplicate names, links or manifest paths leaving the root, wrong counts.
    """
    name = str(name)
    if crops_per_frame is not None and (type(crops_per_frame) is not int or crops_per_frame < 1):
        raise ValueError(f"crops_per_frame must be an integer from 1 on, got {crops_per_frame!r}")
    if name == "sim" or name.startswith("sim:"):
        if crops_per_frame is not None or codes is not None:
            raise ValueError(f"{name}: crops_per_frame and codes of simulated images are fixed; leave them out")
        return _open_simulated(name, root)
    if name in _SETTINGS:
        variable, folders, default_codes = _SETTINGS[name]
        folder = _published_root(name, variable, root)
        opened = _open_folder(
            name, folder, folders, crops_per_frame or CROPS_PER_FRAME, tuple(codes or default_codes), evidence="paper"
        )
        if opened.facts.get("simulated"):
            raise ValueError(f"{folder} says in dataset.json that it is simulated; open it by its path, not as {name}")
        return replace(opened, size=IMAGE_SIZE)
    if root is not None:
        raise ValueError(f"root= goes with phoebi6, phoebi4 and sim:...; {name!r} is taken as a folder already")
    folder = Path(name)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no data set {name!r}: it is not sim:smoke, sim:default, phoebi6 or phoebi4, and there is no folder "
            f"{folder.absolute()}"
        )
    own = folder.resolve().name
    # a folder that happens to be called phoebi6 must not pass for the published data set
    own = f"./{own}" if own in _SETTINGS else own
    return _open_folder(own, folder, _IMAGES, crops_per_frame, codes, evidence="user")


def write_manifests(root: str | Path, *, crops_per_frame: int | None = None) -> dict[str, str]:
    """Write the published manifest files beside the images of ``root`` (``images/``, ``images_4class/``).

    Args:
        root: the data set's folder.
        crops_per_frame: default what ``<root>/dataset.json`` says, else the published 3.

    Returns:
        File name -> "written", or why it could not be (too few combinations for the published draw, too few frames).

    Raises:
        FileNotFoundError, ValueError: as :func:`open_dataset`.
    """
    root = Path(root)
    crops = crops_per_frame or read_facts(root).get("crops_per_frame") or CROPS_PER_FRAME
    images = find_images(root, _IMAGES)
    beside = around(root, images)
    jobs = {}
    if images.name != FOUR_CLASS_FOLDER:
        manifest, _ = list_images(images, root, CODES, crops)
        jobs = {
            "splits.json": lambda: manifest_files.random_manifest(manifest, CODES),
            "splits_lco.json": lambda: manifest_files.lco_manifest(manifest, CODES),
            "lco_dev_folds.json": lambda: manifest_files.folds_manifest(manifest["combination"].unique(), CODES),
        }
    four = beside / FOUR_CLASS_FOLDER
    if four.is_dir():
        subset, _ = list_images(four, root, FOUR_CLASS_CODES, crops)
        jobs["splits_4class.json"] = lambda: manifest_files.random_manifest(subset, FOUR_CLASS_CODES, four.name)
    outcome = {}
    for file, job in jobs.items():
        try:
            content = job()
        except ValueError as error:
            outcome[file] = str(error)
        else:
            manifest_files.write_json(beside / file, content)
            outcome[file] = "written"
    return outcome


def _published_root(name: str, variable: str, root: str | Path | None) -> Path:
    value = os.environ.get(variable)
    folder, source = (
        (Path(root), "the argument root")
        if root is not None
        else (Path(value), f"the environment variable {variable}")
        if value
        else (workspace.data_dir() / name, "the default folder")
    )
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{name}: there is no folder {folder.absolute()} ({source}). Export the data set sochastic/PHOEBI from the "
            f"Hugging Face hub (write each row's image bytes to its path, so that images lie in "
            f"<folder>/images/<combination>/<nnnnn>.jpg) and set {variable}=<folder> (in Python: root=<folder>)"
        )
    return folder


def _open_simulated(name: str, root: str | Path | None) -> Dataset:
    # imported here: the simulator writes its manifest files with this module
    from phoebi_lib import rehearsal, simulate

    if name == rehearsal.DATASET:
        folder = rehearsal.make_images(Path(root) if root is not None else None)
        return _open_folder(name, folder, _IMAGES, None, None, evidence="simulated")
    profile, colon, kind = name.removeprefix("sim:").partition(":")
    if profile not in simulate.SIMULATED or (colon and kind not in ("shared", "pure", "four")):
        known = ", ".join(f"sim:{key}" for key in simulate.SIMULATED)
        raise ValueError(
            f"unknown simulated data set {name!r}; known: {known}, each also with ':shared' (sessions shared by all "
            f"combinations), ':pure' (further test frames of pure cultures) and ':four' (four species in sessions of "
            f"their own), and {rehearsal.DATASET}"
        )
    four = kind == "four"
    recipe = {
        "world": kind if kind == "shared" else "combination",
        "seed": simulate.FOUR_CLASS_SEED if four else simulate.SEED,
        "combinations": FOUR_CLASS_COMBINATIONS if four else tuple(sorted(CODES)) if kind == "pure" else COMBINATIONS,
        "codes": FOUR_CLASS_CODES if four else CODES,
        "first_frame": 1,
        **(simulate.PURE if kind == "pure" else simulate.SIMULATED)[profile],
    }
    folder = Path(root) if root is not None else workspace.data_dir() / name.replace(":", "-")
    if not _is_complete(folder, recipe, simulate.parameters_sha256()):
        simulate.simulate_dataset(folder, name=name, **recipe)
    return _open_folder(name, folder, _IMAGES, None, None, evidence="simulated")


def _is_complete(folder: Path, recipe: Mapping[str, Any], parameters: str) -> bool:
    from phoebi_lib.simulate import image_folder

    facts = read_facts(folder)
    crops = recipe["crops_per_field"]
    expected = {key: value for key, value in recipe.items() if key != "crops_per_field"}
    expected |= {"crops_per_frame": crops, "parameters_sha256": parameters}
    expected |= {key: list(recipe[key]) for key in ("combinations", "codes")}
    if any(facts.get(key) != value for key, value in expected.items()):
        return False
    start = (recipe["first_frame"] - 1) * crops
    numbers = range(start + 1, start + 1 + recipe["fields_per_combination"] * crops)
    images = folder / image_folder(recipe["codes"])
    return all((images / name / f"{i:05d}.jpg").is_file() for name in recipe["combinations"] for i in numbers)


def _open_folder(
    name: str,
    root: Path,
    image_folders: Sequence[str],
    crops_per_frame: int | None,
    codes: Sequence[str] | None,
    *,
    evidence: str,
) -> Dataset:
    images = find_images(root, image_folders)
    beside = around(root, images)
    facts = read_facts(beside) or read_facts(root)
    crops = crops_per_frame or facts.get("crops_per_frame", 1)
    codes = tuple(codes or facts.get("codes", CODES))
    manifest, notes = list_images(images, root, codes, crops)
    if name == "phoebi6":
        check_published(manifest, images)
    labelled = bool((manifest["combination"] != "").all())
    per = manifest.groupby("combination").size()
    spread = f"{per.min()}" if per.min() == per.max() else f"{per.min()} to {per.max()}"
    each = f"{len(per)} combinations, {spread} images each" if labelled else "no combination folders, labels unknown"
    notes.insert(0, f"{len(manifest)} images, {each}")
    if evidence == "user" and facts.get("simulated"):
        evidence = "simulated"
    if name == "phoebi4" and (len(manifest), len(per)) != (_PHOEBI4_IMAGES, _PHOEBI4_FOLDERS):
        evidence = "user"
        notes.append(f"not the published {_PHOEBI4_IMAGES:,} images in {_PHOEBI4_FOLDERS} folders: evidence is user")
    notes += pictures_beside(images, root)
    if labelled:
        four_class = name == "phoebi4" or images.name == FOUR_CLASS_FOLDER
        notes += compare_manifest_files(manifest, codes, beside, four_class, enforce=name == "phoebi6")
        notes += repeated_species(per.index, codes)
    return Dataset(name, images, manifest, codes, evidence, {**facts, "crops_per_frame": crops}, tuple(notes))
