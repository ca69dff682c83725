"""Execute the notebooks: from the sources, with strict parameters, through papermill, one file written at the end."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import filelock
import nbformat
import papermill

from phoebi_lib import freshness, kernels, parameters, provenance, session, workspace

_SESSION = set(inspect.signature(session.start).parameters)


class NotebookFailed(RuntimeError):
    """A notebook stopped at a cell; the message names the cell, the error and the kept copy."""


@dataclass(frozen=True)
class Job:
    """One execution: which source, with which parameters, into which file."""

    source: Path
    executed: Path
    parameters: dict[str, Any] = field(default_factory=dict)
    timeout: int = 3600

    @property
    def dataset(self) -> str | None:
        """Return the data set that this run reads, or None."""
        return self._value("dataset")

    @property
    def evidence(self) -> str:
        """Return what kind of evidence the numbers of this run are; without images they follow from labels alone."""
        folders = [self._value(name) for name in parameters.FOLDERS]
        # a sibling's page without a folder reads its synthetic fixture
        fixture = "sim:siblings" if any(value is not None for value in folders) else ""
        images = next(filter(None, folders), "") or self.dataset or fixture
        if not images:
            return "exact"
        return provenance.evidence_of(images, self._value("profile") or "", self._value("encoder") or "")

    def _value(self, name: str) -> Any:
        return self.parameters.get(name, parameters.defaults(self.source).get(name))


def sources() -> dict[str, Path]:
    """Return the notebook sources by name (file name without suffix), in order.

    What lies in a hidden folder is none: JupyterLab keeps checkpoints of saved sources there.
    """
    folder = workspace.project() / "notebooks"
    visible = [path for path in sorted(folder.rglob("*.md")) if "/." not in path.relative_to(folder.parent).as_posix()]
    found = {path.stem: path for path in visible}
    if not found:
        raise FileNotFoundError(f"no notebooks in {folder}; run phoebi inside a checkout, or set PHOEBI_PROJECT to one")
    return found


def find(name: str) -> Path:
    """Return the source called ``name``. Raises ParameterError with the known names for any other."""
    known = sources()
    if name not in known:
        raise parameters.ParameterError(f"no notebook {name!r}; known: {', '.join(known)}")
    return known[name]


def plan(names: list[str], profile: str, assignments: list[str], out: Path | None, timeout: int = 3600) -> list[Job]:
    """Return the jobs of one call, each checked: no kernel starts while any of them is wrong.

    A sweep gives each combination of values a file of its own, named by the swept values. Raises ParameterError, or
    ValueError, for what is wrong; values that differ only in what a file name does not show are refused too.
    """
    jobs = []
    for name in dict.fromkeys(names or sources()):
        source = find(name)
        for given in parameters.sweep(assignments):
            if "dataset" in given and Path(str(given["dataset"])).is_dir():
                # the kernel runs in another folder than this command
                given["dataset"] = str(Path(given["dataset"]).resolve())
            given |= {name: parameters.folder(name, given[name]) for name in parameters.FOLDERS if name in given}
            values = parameters.for_notebook(source, profile, given)
            session.start(**{name: value for name, value in values.items() if name in _SESSION})
            suffix = "".join(f"--{key}-{_slug(value)}" for key, value in given.items())
            folder = out or workspace.results_dir() / "runs" / profile
            jobs.append(Job(source, folder / f"{name}{suffix}.ipynb", values, timeout))
    for copy, count in Counter(job.executed for job in jobs).items():
        if count > 1:
            raise parameters.ParameterError(f"{count} runs of this sweep would be written to {copy}; run them apart, "
                                            "each with its own --out")  # fmt: skip
    return jobs


def changed(names: list[str], profile: str, out: Path | None, timeout: int = 3600) -> list[Job]:
    """Return the jobs that make the stale copies in a folder anew, each with the parameters that it was made with.

    Args:
        names: sources whose copies count; all for an empty list.
        profile, out: the folder, as for :func:`plan`.
        timeout: seconds a cell may take.

    Raises:
        ParameterError: no such source; or a copy that is damaged, whose data are gone or whose parameters its source no
            longer takes: it is named.
        FileNotFoundError: there are no copies.
    """
    folder = out or workspace.results_dir() / "runs" / profile
    wanted, jobs = {find(name).name for name in names}, []
    files = [path for path in sorted(folder.glob("*.ipynb")) if path.is_file()]
    copies = [path for path in files if not path.name.endswith(".failed.ipynb")]
    if not copies:
        raise FileNotFoundError(f"{folder}: no executed notebooks; run without --changed to make them")
    known = {source.name: source for source in sources().values()}
    for copy in copies:
        record = freshness.record(copy)
        if not record:
            raise parameters.ParameterError(f"{copy}: damaged, or no executed copy, so its parameters are unknown; "
                                            "delete it and run the notebook anew")  # fmt: skip
        source = known.get(record.get("source", ""))
        if source is None or (wanted and source.name not in wanted):
            continue
        try:
            values = parameters.check(source, record["parameters"])
            job = Job(source, copy, values, timeout)
            now = freshness.inputs(source, values, job.dataset)
        except (ValueError, OSError) as error:
            raise parameters.ParameterError(f"{copy}: {error}; run the notebook anew, or delete the copy") from error
        if freshness.stale(copy, now):
            jobs.append(job)
    return jobs


def _slug(value: Any) -> str:
    """Return a value as a piece of a file name; a path gives its last part."""
    return re.sub(r"[^A-Za-z0-9.+]+", "_", str(value).rstrip("/").rpartition("/")[2]).strip(".") or "value"


def run(jobs: list[Job], processes: int = 1, force: bool = False) -> list[Path]:
    """Execute the jobs whose copies are missing or stale; return the executed files.

    Every job runs even if another fails; after Ctrl-C no further one starts. A script that calls this needs the guard
    ``if __name__ == "__main__"``, as with any process pool.

    Raises:
        NotebookFailed: names all that failed.
        ValueError: ``processes`` is not a whole number of at least 1.
    """
    if type(processes) is not int or processes < 1:
        raise ValueError(f"processes must be a whole number of at least 1, got {processes!r}")
    failures = []
    # kernels that run side by side share the cores; more threads than cores would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    # one process a notebook: memory that a kernel client keeps would otherwise pile up over a long sweep; each is
    # forked from a server that has imported this module once, with the variables that this process has now
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    variables = (dict(os.environ),)
    with ProcessPoolExecutor(processes, context, _start_process, variables, max_tasks_per_child=1) as pool:
        waiting = deque(from_both_ends(jobs) if processes > 1 else jobs)
        running: dict[Future[str], Job] = {}
        while waiting or running:
            # no more than can run: a pool that is left, as by Ctrl-C, finishes what it was given
            while waiting and len(running) < processes:
                job = waiting.popleft()
                running[pool.submit(run_one, job, force)] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    print(future.result(), file=sys.stderr, flush=True)
                except (RuntimeError, ValueError, OSError) as error:
                    failures.append(f"{job.executed.stem}: {error}")
                    # the whole, with the cell, is in the error at the end
                    print(failures[-1].partition("\n")[0], file=sys.stderr, flush=True)
    if failures:
        raise NotebookFailed("\n".join(failures))
    return [job.executed for job in jobs]


def from_both_ends(jobs: list[Job]) -> list[Job]:
    """Return first, last, second, last but one: neighbours in the book share pools, and would wait for each other."""
    return [job for pair in zip(jobs, reversed(jobs), strict=True) for job in pair][: len(jobs)]


def _start_process(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # a pool's process does not notice that the command was killed; the kernel in turn notices that its parent is gone
    parent_process().join()
    os._exit(1)


def run_one(job: Job, force: bool = False) -> str:
    """Execute one job unless its copy is fresh; return a line that says what was done.

    A second process that wants the same copy waits for the first and then finds it fresh.
    """
    job.executed.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(job.executed.with_name(f".{job.executed.stem}.lock")):
        now = freshness.inputs(job.source, job.parameters, job.dataset)
        reasons = freshness.stale(job.executed, now)
        if not reasons and not force:
            return f"{job.executed.stem}: fresh, not run"
        # what a killed run left: the name of this copy and eight random characters, as atomic_path gives them
        for remnant in job.executed.parent.glob(f".{job.executed.stem}-{'[a-z0-9_]' * 8}.ipynb"):
            remnant.unlink()
        start = time.monotonic()
        _run_fresh(job, now)
    why = ", ".join(reasons) or "forced"
    return f"{job.executed.stem}: run in {time.monotonic() - start:.0f} s ({why})"


def _run_fresh(job: Job, inputs: dict[str, str]) -> None:
    notebook = parameters.read_notebook(job.source)
    failed = job.executed.with_suffix(".failed.ipynb")
    tables = freshness.tables_of(job.executed)
    shutil.rmtree(tables, ignore_errors=True)
    # the kernel runs in another folder than this command
    places = {**workspace.absolute_places(), "PHOEBI_TABLES": str(tables.resolve())}
    with workspace.atomic_path(job.executed) as temporary, _environment(**places):
        try:
            _execute(notebook, temporary, job)
        except papermill.PapermillExecutionError as error:
            shutil.copy(temporary, failed)
            raise NotebookFailed(
                f"{job.source.name}: cell {error.exec_count} failed with {error.ename}: {error.evalue}\n"
                f"{error.source}\nThe copy with the error is {failed}"
            ) from None
        _clean(temporary, job, inputs)
    failed.unlink(missing_ok=True)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables, which a kernel inherits, and put back what was there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _execute(notebook: Any, destination: Path, job: Job) -> None:
    kernels.patch_output_widgets()
    os.environ.setdefault("PHOEBI_QUIET", "1")
    for attempt in (1, 2):
        try:
            papermill.execute_notebook(
                notebook, str(destination), parameters=job.parameters, kernel_name="python3", progress_bar=False,
                cwd=str(workspace.project()), request_save_on_cell_execute=False, record_timing=False,
                execution_timeout=job.timeout, shutdown_kernel="immediate",
                kernel_manager_class="phoebi_lib.kernels.IpcKernelManager",
            )  # fmt: skip
            return
        except RuntimeError as error:
            # a kernel that dies before its first answer is the machine's fault, not the notebook's: once more
            if attempt == 2 or "Kernel died before replying" not in str(error):
                raise


def _clean(path: Path, job: Job, inputs: dict[str, str]) -> None:
    """Drop what differs from run to run or names this machine, and record what the copy was made from."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("papermill", None)
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index:03d}"
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
    text = nbformat.writes(notebook)
    widgets = notebook.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {})
    for index, model in enumerate(widgets.get("state", {})):
        text = text.replace(model, f"{index:032x}")
    notebook = nbformat.reads(text, as_version=4)
    every = {**parameters.defaults(job.source), **job.parameters}
    made = provenance.provenance(job.source.stem, every, job.evidence, inputs, job.dataset)
    notebook.cells.append(nbformat.v4.new_markdown_cell(provenance.foot(made), id="cell-foot"))
    notebook.metadata["phoebi"] = {
        "source": job.source.name, "parameters": job.parameters, "inputs": inputs, "evidence": job.evidence,
        "tables": freshness.table_hashes(job.executed),
    }  # fmt: skip
    nbformat.write(notebook, path)


def export(out: Path) -> list[Path]:
    """Write each source as an ipynb without outputs into ``out``, for stock papermill or a notebook server."""
    written = []
    for name, source in sources().items():
        notebook = parameters.read_notebook(source)
        with workspace.atomic_path(out / f"{name}.ipynb") as temporary:
            nbformat.write(notebook, temporary)
        written.append(out / f"{name}.ipynb")
    return written
