"""A tiny FungiTastic in the published layout: drawn pictures of invented species, oddities included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.images import read_image
from phoebi_lib.siblings import drawing
from phoebi_lib.siblings.fungitastic.layout import COLUMNS, SUBSETS
from phoebi_lib.siblings.fungitastic.masks import encode
from phoebi_lib.workspace import atomic_path

SIDE = 64
POISONOUS = (1, 4)
_HABITATS, _SUBSTRATES = ("beech wood", "spruce wood", "lawn", "bog"), ("soil", "dead wood", "bark", "mosses")
_WORDS = ("tawny", "scarlet", "ashen", "olive", "violet", "cream", "black", "golden")


class _Writer:
    """Draws pictures and keeps their rows; all randomness comes from one generator, in a fixed order."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rng, self.number = folder, np.random.default_rng(20240813), 2_900_000_000
        self.looks = [tuple(0.5 + 0.8 * (x - 0.5) for x in look) for look in drawing.looks(16)]

    def observation(self, subset: str, place: str, species: int, label: int, day: str, photos: int) -> list[dict]:
        self.number += 37
        habitat, substrate = (species if self.rng.random() < 0.7 else int(self.rng.integers(4)) for _ in range(2))
        parts = dict(zip(("year", "month", "day"), map(int, day.split("-")), strict=True))
        return [{
            "eventDate": day, **parts, "habitat": _HABITATS[habitat % 4], "countryCode": "DK", "kingdom": "Fungi",
            "scientificName": f"Fictus species{species}", "phylum": "Basidiomycota", "class": "Agaricomycetes",
            "order": "Agaricales", "family": "Fictaceae", "genus": "Fictus", "specificEpithet": f"species{species}",
            "hasCoordinate": True, "species": f"Fictus species{species}", "iucnRedListCategory": "LC",
            "substrate": _SUBSTRATES[substrate % 4], "metaSubstrate": ("soil", "wood")[substrate % 2],
            "latitude": round(float(self.rng.uniform(54.6, 57.7)), 4),
            "longitude": round(float(self.rng.uniform(8.1, 12.6)), 4), "coorUncert": 25.0, "observationID": self.number,
            "region": "Nowhere", "district": "None", "category_id": label, "poisonous": int(species in POISONOUS),
            "filename": self._picture(subset, place, species, photo),
            "elevation": float(self.rng.integers(0, 120)), "landcover": float(self.rng.integers(1, 12)),
            "biogeographicalRegion": "Continental", "captions": self._caption(species),
        } for photo in range(photos)]  # fmt: skip

    def _picture(self, subset: str, place: str, species: int, photo: int) -> str:
        name = f"{photo}-{self.number}.JPG"
        look = np.clip(np.array(self.looks[species % 16]) + self.rng.normal(0, 0.14, 3), 0, 1)
        path = self.folder / SUBSETS[subset] / place / "300p" / name
        drawing.save(drawing.picture(tuple(look), self.rng, SIDE), path)
        return name

    def _caption(self, species: int) -> str:
        word = _WORDS[species % 8 if self.rng.random() < 0.8 else self.rng.integers(8)]
        return f'A mushroom with a "{word}" cap\nof {("smooth", "scaly")[species % 2]} surface.'

    def table(self, subset: str, name: str, rows: Sequence[dict]) -> None:
        path = self.folder / "metadata" / SUBSETS[subset] / f"{SUBSETS[subset]}-{name}.csv"
        with atomic_path(path) as temporary:
            pd.DataFrame(rows, columns=COLUMNS).to_csv(temporary, index=False, lineterminator="\n")


def write(folder: Path) -> None:
    """Write the fixture below ``folder``: tables, pictures of 64 px and masks; the same bytes every time."""
    w = _Writer(folder)
    train = []
    for s in range(5):
        for o in range(4):
            train += w.observation("all", "train", s, s, f"{2019 + o % 3}-{4 + s + o % 3:02d}-{10 + s}", 2)
    train[3]["landcover"] = np.nan
    w.table("all", "Train", train)
    # species 3 is missing from test; two days come twice
    for split, year, seen in (("val", 2022, (0, 1, 2, 3, 4)), ("test", 2023, (0, 1, 2, 4, 4))):
        closed = [row for i, s in enumerate(seen)
                  for row in w.observation("all", split, s, s, f"{year}-{(6, 7, 6, 9, 10)[i]:02d}-15", 2)]  # fmt: skip
        novel = [row for s in (5, 6) for row in w.observation("all", split, s, -1, f"{year}-11-0{s}", 2)]
        closed[-1]["eventDate"] = ""
        if split == "test":
            closed[-1] |= {"year": np.nan, "month": np.nan, "day": np.nan}
            shouting = folder / "FungiTastic" / "test" / "300p" / closed[0]["filename"]
            shouting.rename(shouting.with_suffix(".jpg"))
        w.table("all", f"ClosedSet-{split.title()}", closed)
        w.table("all", f"OpenSet-{split.title()}", closed + novel)
    w.table("all", "DNA-Test", [row for s in (0, 1) for row in w.observation("all", "dna-test", s, s, "2023-08-02", 2)])

    shots = [row for s, photos in enumerate(((1,), (2, 3), (1, 1), (1, 2, 1), (1, 1, 1, 1), (2, 1)))
             for o, n in enumerate(photos)
             for row in w.observation("FewShot", "train", 7 + s, s, f"2020-0{o + 5}-11", n)]  # fmt: skip
    w.table("FewShot", "Train", shots)
    for split, year in (("val", 2022), ("test", 2023)):
        rows = [row for s in (1, 3, 5) for row in w.observation("FewShot", split, 7 + s, s, f"{year}-09-0{s}", 2)]
        w.table("FewShot", split.title(), rows)

    for split, name, observations in (("train", "Train", 4), ("val", "Val", 2), ("test", "Test", 2),
                                      ("dna-test", "DNA-Test", 1)):  # fmt: skip
        rows = [row for i in range(observations)
                for row in w.observation("Mini", split, 13 + i % 2, i % 2, f"2022-07-0{i + 1}", 2)]  # fmt: skip
        w.table("Mini", name, rows)
        if split == "val":
            w.table("Mini", "ClosedSet-Val", rows)
            _masks(folder, "Validation", "val", [row["filename"] for row in rows[:3]], as_text=False)
        elif split == "test":
            _masks(folder, "Test", "test", [rows[0]["filename"]], as_text=True)


def _masks(folder: Path, name: str, split: str, files: list[str], *, as_text: bool) -> None:
    """Write cap and stem of each picture, draw them into it, and add the fruiting body to all but the third picture."""
    rows = []
    for i, file in enumerate(files):
        side = SIDE * (1 + i % 2)  # the second picture's masks are those of a frame twice as large
        y, x = np.mgrid[:side, :side] / side
        cap = ((x - 0.5) / 0.32) ** 2 + ((y - 0.35) / 0.2) ** 2 < 1
        stem = (abs(x - 0.5) < 0.08) & (y > 0.55 - 0.05 * i) & (y < 0.92) & ~cap
        parts = [("cap", cap), ("stem", stem), ("fruiting_body", cap | stem)]
        for label, mask in parts[: 2 if i == 2 else 3]:
            rle = encode(mask, frame=label == "fruiting_body")
            rle = str(rle) if as_text else rle
            rows.append({"file_name": file, "label": label, "width": side, "height": side, "rle": rle})
        path = folder / SUBSETS["Mini"] / split / "300p" / file
        inside = (cap | stem)[:: side // SIDE, :: side // SIDE]
        pixels = read_image(path).transpose(1, 2, 0)
        drawing.save(np.where(inside[..., None], pixels, pixels // 4), path)
    path = folder / "masks" / f"FungiTastic-Mini-{name}Masks.parquet"
    with atomic_path(path) as temporary:
        pd.DataFrame(rows).to_parquet(temporary)
