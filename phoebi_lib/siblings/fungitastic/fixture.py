"""A tiny FungiTastic in the published layout: drawn pictures of invented species, oddities included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from phoebi_lib.images import read_image
from phoebi_lib.siblings import drawing
from phoebi_lib.siblings.fungitastic.layout import SUBSETS
from phoebi_lib.siblings.fungitastic.segmentation import encode
from phoebi_lib.workspace import atomic_path

SIDE = 64
POISONOUS = (1, 4)
_HABITATS, _SUBSTRATES = ("beech wood", "spruce wood", "lawn", "bog"), ("soil", "dead wood", "bark", "mosses")
_WORDS = ("tawny", "scarlet", "ashen", "olive", "violet", "cream", "black", "golden")
#: Photos of each observation of each species.
_SHOTS = ((1,), (2, 3), (1, 1), (1, 2, 1), (1, 1, 1, 1), (2, 1))


def _tables() -> Iterator[tuple[str, str, str, list[tuple[int, int, str, int]]]]:
    """Yield subset, folder, table and the observations in it: species, label, day, number of photos."""
    yield "all", "train", "Train", [(s, s, f"{2019 + o % 3}-{4 + s + o % 3:02d}-{10 + s}", 2)
                                    for s in range(5) for o in range(4)]  # fmt: skip
    # species 3 is missing from test; two days come twice
    for split, year, seen in (("val", 2022, (0, 1, 2, 3, 4)), ("test", 2023, (0, 1, 2, 4, 4))):
        closed = [(s, s, f"{year}-{month:02d}-15", 2) for s, month in zip(seen, (6, 7, 6, 9, 10), strict=True)]
        yield "all", split, f"ClosedSet-{split.title()}", closed
        yield "all", split, f"OpenSet-{split.title()}", [(s, -1, f"{year}-11-0{s}", 2) for s in (5, 6)]
    yield "all", "dna-test", "DNA-Test", [(s, s, "2023-08-02", 2) for s in (0, 1)]
    shots = [(7 + s, s, f"2020-0{o + 5}-11", n) for s, photos in enumerate(_SHOTS) for o, n in enumerate(photos)]
    yield "FewShot", "train", "Train", shots
    for split, year in (("val", 2022), ("test", 2023)):
        yield "FewShot", split, split.title(), [(7 + s, s, f"{year}-09-0{s}", 2) for s in (1, 3, 5)]
    for split, name, n in (("train", "Train", 4), ("val", "Val", 2), ("test", "Test", 2), ("dna-test", "DNA-Test", 1)):
        yield "Mini", split, name, [(13 + i % 2, i % 2, f"2022-07-0{i + 1}", 2) for i in range(n)]


def write(folder: Path) -> None:
    """Write the fixture below ``folder``: tables, pictures of 64 px and masks; the same bytes every time."""
    # one generator for everything, in the order of the tables
    rng, number, tables = np.random.default_rng(20240813), 2_900_000_000, {}
    for subset, place, name, observations in _tables():
        rows = tables[subset, name] = []
        for observation in observations:
            number += 37
            rows += _observation(folder / SUBSETS[subset] / place / "300p", number, rng, *observation)
    tables["all", "Train"][3]["landcover"] = np.nan
    for split in ("Val", "Test"):
        closed = tables["all", f"ClosedSet-{split}"]
        closed[-1]["eventDate"] = ""
        tables["all", f"OpenSet-{split}"][:0] = closed
    closed[-1] |= {"year": np.nan, "month": np.nan, "day": np.nan}
    shouting = folder / "FungiTastic" / "test" / "300p" / closed[0]["filename"]
    shouting.rename(shouting.with_suffix(".jpg"))
    tables["Mini", "ClosedSet-Val"] = tables["Mini", "Val"]
    for (subset, name), rows in tables.items():
        path = folder / "metadata" / SUBSETS[subset] / f"{SUBSETS[subset]}-{name}.csv"
        with atomic_path(path) as temporary:
            pd.DataFrame(rows).to_csv(temporary, index=False, lineterminator="\n")
    for split, name, n in (("Val", "Validation", 3), ("Test", "Test", 1)):
        pictures = folder / SUBSETS["Mini"] / split.lower() / "300p"
        rows = [row for i in range(n) for row in _masks(pictures / tables["Mini", split][i]["filename"], i)]
        if split == "Test":
            rows = [row | {"rle": str(row["rle"])} for row in rows]
        with atomic_path(folder / "masks" / f"FungiTastic-Mini-{name}Masks.parquet") as temporary:
            pd.DataFrame(rows).to_parquet(temporary)


def _observation(pictures: Path, number: int, rng: np.random.Generator, species: int, label: int, day: str,
                 photos: int) -> list[dict]:  # fmt: skip
    """Draw an observation's pictures and return their rows, columns in the order of the published tables."""
    habitat, substrate = (species if rng.random() < 0.7 else int(rng.integers(4)) for _ in range(2))
    colour = np.array([0.5 + 0.8 * (x - 0.5) for x in drawing.looks(16)[species % 16]])
    year, month, date = map(int, day.split("-"))
    rows = []
    for photo in range(photos):
        latitude, longitude = (round(float(rng.uniform(*span)), 4) for span in ((54.6, 57.7), (8.1, 12.6)))
        look, path = np.clip(colour + rng.normal(0, 0.14, 3), 0, 1), pictures / f"{photo}-{number}.JPG"
        drawing.save(drawing.picture(tuple(look), rng, SIDE), path)
        elevation, landcover = (float(rng.integers(*span)) for span in ((0, 120), (1, 12)))
        word = _WORDS[species % 8 if rng.random() < 0.8 else rng.integers(8)]
        rows.append({
            "eventDate": day, "year": year, "month": month, "day": date, "habitat": _HABITATS[habitat % 4],
            "countryCode": "DK", "scientificName": f"Fictus species{species}", "kingdom": "Fungi",
            "phylum": "Basidiomycota", "class": "Agaricomycetes", "order": "Agaricales", "family": "Fictaceae",
            "genus": "Fictus", "specificEpithet": f"species{species}", "hasCoordinate": True,
            "species": f"Fictus species{species}", "iucnRedListCategory": "LC",
            "substrate": _SUBSTRATES[substrate % 4], "latitude": latitude, "longitude": longitude, "coorUncert": 25.0,
            "observationID": number, "region": "Nowhere", "district": "None", "filename": path.name,
            "category_id": label, "metaSubstrate": ("soil", "wood")[substrate % 2],
            "poisonous": int(species in POISONOUS), "elevation": elevation, "landcover": landcover,
            "biogeographicalRegion": "Continental",
            "captions": f'A mushroom with a "{word}" cap\nof {("smooth", "scaly")[species % 2]} surface.',
        })  # fmt: skip
    return rows


def _masks(picture: Path, i: int) -> list[dict]:
    """Draw cap and stem of Mini's i-th picture into it; return their rows, and the fruiting body's but of the third."""
    side = SIDE * (1 + i % 2)  # the second picture's masks are those of a frame twice as large
    y, x = np.mgrid[:side, :side] / side
    cap = ((x - 0.5) / 0.32) ** 2 + ((y - 0.35) / 0.2) ** 2 < 1
    stem = (abs(x - 0.5) < 0.08) & (y > 0.55 - 0.05 * i) & (y < 0.92) & ~cap
    inside = (cap | stem)[:: side // SIDE, :: side // SIDE]
    pixels = read_image(picture).transpose(1, 2, 0)
    drawing.save(np.where(inside[..., None], pixels, pixels // 4), picture)
    parts = {"cap": cap, "stem": stem, "fruiting_body": cap | stem} if i != 2 else {"cap": cap, "stem": stem}
    return [{"file_name": picture.name, "label": label, "width": side, "height": side,
             "rle": encode(mask, frame=label == "fruiting_body")} for label, mask in parts.items()]  # fmt: skip
