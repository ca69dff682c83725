"""Execute the notebooks: from the sources, with strict parameters, through papermill, one file written at the end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import filelock
import nbformat
import papermill

from phoebi_lib import freshness, kernels, parameters, workspace


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
        return self.parameters.get("dataset", parameters.defaults(self.source).get("dataset"))


def sources() -> dict[str, Path]:
    """Return the notebook sources by name (file name without suffix), in order."""
    folder = workspace.project() / "notebooks"
    return {path.stem: path for path in sorted(folder.rglob("*.md"))}


def find(name: str) -> Path:
    """Return the source called ``name``. Raises ParameterError with the known names for any other."""
    known = sources()
    if name not in known:
        raise parameters.ParameterError(f"no notebook {name!r}; known: {', '.join(known)}")
    return known[name]


def plan(names: list[str], profile: str, assignments: list[str], out: Path | None, timeout: int = 3600) -> list[Job]:
    """Return the jobs of one call, each checked: no kernel starts while any of them is wrong.

    A sweep gives each combination of values a file of its own, named by the swept values.
    """
    jobs = []
    for name in names or list(sources()):
        source = find(name)
        for given in parameters.sweep(assignments):
            values = parameters.for_notebook(source, profile, given)
            suffix = "".join(f"--{key}-{value}" for key, value in given.items())
            folder = out or workspace.results_dir() / "runs" / profile
            jobs.append(Job(source, folder / f"{name}{suffix}.ipynb", values, timeout))
    return jobs


def run(jobs: list[Job], processes: int = 1, force: bool = False) -> list[Path]:
    """Execute the jobs whose copies are missing or stale; return the executed files.

    Every job runs even if another fails. Raises NotebookFailed naming all that did.
    """
    failures = []
    # kernels that run side by side share the cores; more threads than cores would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    # one process a notebook: memory that a kernel client keeps would otherwise pile up over a long sweep
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = {pool.submit(run_one, job, force): job for job in jobs}
        for future in as_completed(futures):
            try:
                print(future.result(), file=sys.stderr, flush=True)
            except (RuntimeError, ValueError, OSError) as error:
                failures.append(f"{futures[future].executed.stem}: {error}")
                print(failures[-1], file=sys.stderr, flush=True)
    if failures:
        raise NotebookFailed("\n".join(failures))
    return [job.executed for job in jobs]


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
    with workspace.atomic_path(job.executed) as temporary:
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
    notebook.metadata["phoebi"] = {"source": job.source.name, "parameters": job.parameters, "inputs": inputs}
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
