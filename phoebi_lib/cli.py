"""The command line: phoebi data | embed | run | export | labs | book | claims | encoders."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from phoebi_lib import __version__, workspace


class _Friendly(click.Group):
    """A group whose commands end in one clear line, not a traceback, where the fault is in what was asked."""

    def invoke(self, context: click.Context):
        try:
            return super().invoke(context)
        except click.exceptions.Exit:
            raise  # the end of --help, which click counts among the runtime errors
        except (click.ClickException, BrokenPipeError):
            raise  # click ends quietly where nobody reads on, as behind a pipe to head
        except Exception as error:
            if context.find_root().params.get("debug"):
                raise
            expected = isinstance(error, (ValueError, OSError, RuntimeError, ImportError)) and str(error)
            text = str(error) if expected else f"{type(error).__name__}: {error} (phoebi --debug ... shows where)"
            raise click.ClickException(text) from error


@click.group(cls=_Friendly)
@click.version_option(__version__, prog_name="phoebi")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """PHOEBI, the executable paper: images, features, notebooks and the book."""


@main.group(cls=_Friendly)
def data() -> None:
    """Make and check data sets."""


@data.command()
@click.argument("name", default="sim:smoke")
@click.option("--siblings", is_flag=True, help="Make the fixtures of the three sibling benchmarks instead.")
def simulate(name: str, siblings: bool) -> None:
    """Simulate the stand-in micrographs NAME: sim:smoke or sim:default.

    With ":shared" behind it sessions are shared by all combinations; with ":pure" it is the further test frames of the
    pure cultures; with ":four" four of the species in fourteen folders, recorded in sessions of their own.

    Images that are there already are kept: a stopped run goes on where it was.
    """
    if siblings:
        from phoebi_lib.siblings.fixtures import fixture
        from phoebi_lib.siblings.printed import BENCHMARKS

        for benchmark in BENCHMARKS:
            click.echo(f"{benchmark}: synthetic fixture in {fixture(benchmark)}")
        return
    from phoebi_lib.datasets import open_dataset

    if not name.startswith("sim:"):
        raise click.BadParameter(f"{name!r} is not simulated; expected sim:smoke or sim:default", param_hint="NAME")
    dataset = open_dataset(name)
    click.echo(f"{name}: {len(dataset)} images in {dataset.images}")


@data.command()
@click.argument("name")
def verify(name: str) -> None:
    """Open every image of the data set NAME (sim:..., phoebi6, phoebi4 or a folder) and say what is wrong."""
    from phoebi_lib.datasets import open_dataset

    dataset = open_dataset(name)
    problems = dataset.verify()
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise click.ClickException(f"{name}: {len(problems)} of {len(dataset)} images are not usable")
    click.echo(f"{name}: {len(dataset)} images are readable")


@data.command()
def rehearse() -> None:
    """Make the rehearsal: a small copy of the published layout and a hub cache of stand-in weights."""
    from phoebi_lib.rehearsal import prepare

    images, hub = prepare()
    click.echo(f"images: {images}\nexport HF_HUB_CACHE={hub}")


@main.command()
@click.argument("dataset")
@click.option("--encoder", default="efficientnet_lite0", show_default=True, help="See `phoebi encoders`.")
@click.option("--weights", type=click.Path(path_type=Path), help="A weights file or folder.")
@click.option("--grid", default=4, show_default=True, help="Tiles per side of a frame.")
@click.option("--compat", type=click.Choice(["corrected", "reference"]), default="corrected", show_default=True,
              help="The illumination correction: mended, or as the published numbers were made.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
def embed(dataset: str, encoder: str, weights: Path | None, grid: int, compat: str, device: str) -> None:
    """Fill the feature pool of DATASET: sim:smoke, sim:default, phoebi6, phoebi4 or a folder of pictures.

    Names of sub-folders are species codes, joined with "_", and label the pictures in them; pictures that lie side by
    side have no labels. A picture has at least 224 px a side.

    A stopped run goes on where it was; a finished pool is kept.
    """
    from phoebi_lib.compat import choice
    from phoebi_lib.datasets import open_dataset
    from phoebi_lib.encoders import load_encoder
    from phoebi_lib.features import embed as fill
    from phoebi_lib.frontend import FrontEnd

    front_end = FrontEnd(grid=grid, padding=choice("illumination", compat))
    pool = fill(open_dataset(dataset), load_encoder(encoder, weights=weights, device=device), front_end)
    images, tiles, width = pool.raw.shape
    click.echo(f"{dataset}: {images} images x {tiles} tiles x {width} features in pool {pool.key[:16]}")
    click.echo(f"{workspace.pools_dir() / pool.key[:16] / 'features.npy'}")


@main.command()
@click.argument("names", nargs=-1)
@click.option("--profile", default="smoke", show_default=True, help="smoke, default, rehearsal or paper.")
@click.option("-p", "assignments", multiple=True, metavar="NAME=VALUE[,VALUE...]",
              help="Set a parameter; several values make a sweep, several -p their product.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the executed copies [results/runs/PROFILE].")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Notebooks at once.")
@click.option("--timeout", default=3600, show_default=True, help="Seconds a cell may take.")
@click.option("--force", is_flag=True, help="Run even what is fresh.")
@click.option("--changed", is_flag=True, help="Run only the copies that are stale, each with its own parameters.")
@click.option("--list", "listing", is_flag=True, help="Show the notebooks, their parameters and defaults; run nothing.")
def run(names, profile, assignments, out, jobs, timeout, force, changed, listing) -> None:
    """Execute the notebooks NAMES (all without NAMES) from their sources through papermill.

    Parameters are strict: an unknown name or a value of the wrong type is refused before any kernel starts. Copies
    whose inputs have not changed are not run again, so a stopped sweep goes on where it was. Images and features that
    a profile needs are made on first use, which takes minutes. With --changed nothing new is made: copies of the
    folder whose source, library, pins, data, parameters or tables are others than theirs are made again.

    Partitions: random, lco-SEED (lco-1337, -1338 and -1339 are the paper's), dev-0 to dev-4, loso-SPECIES.
    """
    from phoebi_lib import parameters, results, runner

    if listing:
        for name, source in runner.sources().items():
            click.echo(name)
            for key, value in parameters.defaults(source).items():
                click.echo(f"    {key} = {value!r} ({type(value).__name__})")
        return
    if changed:
        if assignments or force:
            raise click.UsageError("--changed takes parameters from the copies; leave out -p and --force")
        planned = runner.changed(list(names), profile, out, timeout)
        if not planned:
            click.echo("nothing is stale")
            return
    else:
        planned = runner.plan(list(names), profile, list(assignments), out, timeout)
    try:
        runner.run(planned, jobs, force)
    finally:
        table = results.collect(workspace.results_dir())
        if table is not None:
            click.echo(f"results table: {table}", err=True)


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
def export(out: Path) -> None:
    """Write the notebooks as .ipynb files into OUT, for stock papermill or a notebook server."""
    from phoebi_lib import runner

    for path in runner.export(out):
        click.echo(path)


@main.command()
@click.option("--student", "out", type=click.Path(path_type=Path, file_okay=False), metavar="OUT",
              help="Write student copies, notebooks without solutions, into the folder OUT.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave copies that are in OUT already as they are, write the missing ones.")
def labs(out: Path | None, keep: bool) -> None:
    """List the labs of the course, or write student copies of them.

    A copy has a stub in the place of each solution, which says what to write, and keeps the checks. It is a plain
    notebook for JupyterLab, run in this environment. A file that is there already with other content is refused, or
    left as it is with --keep.
    """
    from phoebi_lib import lab_copies

    if out is None:
        for name, title in lab_copies.titles().items():
            click.echo(f"{name:18s} {title}")
        return
    for path in lab_copies.write_student_copies(out, keep=keep):
        click.echo(path)
    click.echo(f"open them with: jupyter lab {out}", err=True)


@main.command()
@click.option("--folder", type=click.Path(path_type=Path), help="Where _config.yml, _toc.yml and book/ are.")
def book(folder: Path | None) -> None:
    """Build the book from the executed notebooks, warnings as errors, and check each page."""
    from phoebi_lib.book import build

    click.echo(f"the book is {build(folder or workspace.project()) / 'index.html'}")


@main.command()
@click.option("--tables", type=click.Path(path_type=Path), help="Tables of executed copies [book/executed/tables].")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Also write the verdicts there.")
def claims(tables: Path | None, file: Path | None) -> None:
    """Print the verdict on each claim of the paper, from the tables of the executed notebooks.

    What the words mean, and the rule behind each verdict, stands on the book's page "What holds".
    """
    from phoebi_lib import claims_page

    judged, notices = claims_page.verdicts(tables or workspace.project() / "book" / "executed" / "tables")
    for notice in notices:
        click.echo(notice, err=True)
    for line in claims_page.listing(judged):
        click.echo(line)
    if file is not None:
        claims_page.write_json(file, judged, notices)


@main.command()
@click.option("--check", is_flag=True, help="Compare each record with its network, and look for its weights.")
@click.option("--encoder", "name", help="Only this encoder.")
def encoders(check: bool, name: str | None) -> None:
    """List the encoders: identifier, input size, feature width, parameters, licence.

    With --check each network is built without weights and compared with its record. Missing weights are no fault: the
    check says how to get them. A record that disagrees with its network is one, and so is a damaged weight file.
    """
    from phoebi_lib.encoder_records import get_record, list_encoders

    records = [get_record(name)] if name else list_encoders()
    if check:
        from phoebi_lib.encoder_check import check_encoders
        from phoebi_lib.progress import track

        wrong = []
        for report in track(check_encoders(records), total=len(records), desc="encoders"):
            click.echo("\n".join(report.lines()))
            wrong += report.wrong
        if wrong:
            raise click.ClickException("; ".join(wrong))
        return
    wide = max(len(record.name) for record in records)
    for record in records:
        gate = " (gated)" if record.gated else ""
        click.echo(f"{record.name:{wide}s} {record.title:30s} {record.size:4d} px  D = {record.dim:5d}  "
                   f"{record.params_m:8.1f} M  {record.licence}{gate}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
