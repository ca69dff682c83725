"""Running a notebook: results in place, faults shown, nothing half-written, fresh copies left alone."""

import os
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from PIL import Image

from phoebi_lib import freshness, parameters, runner

HEAD = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  name: python3
  display_name: Python 3
  language: python
---

# Title

"""
CELL = "```{{code-cell}} ipython3\n:tags: [{tags}]\n\n{code}\n```\n\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one small notebook."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "smoke.yaml").write_text("encoder: none\n")
    (tmp_path / "requirements.txt").write_text("numpy==1\n")
    monkeypatch.setenv("PHOEBI_PROJECT", str(tmp_path))
    monkeypatch.setenv("PHOEBI_HOME", str(tmp_path))
    write(tmp_path, "print(profile, seed)")
    return tmp_path


def write(folder, code, more=""):
    names = f'profile = "smoke"\nseed = 1\n{more}'.strip()
    body = CELL.format(tags="parameters", code=names) + CELL.format(tags="", code=code)
    (folder / "notebooks" / "small.md").write_text(HEAD + body)


def printed(path):
    cells = nbformat.read(path, as_version=4).cells
    return "".join(o.get("text", "") for cell in cells for o in cell.get("outputs", []))


def test_a_sweep_runs_once_and_resumes(project, capsys):
    jobs = runner.plan(["small"], "smoke", ["seed=3,4"], project / "out")
    assert [job.executed.name for job in jobs] == ["small--seed-3.ipynb", "small--seed-4.ipynb"]
    runner.run(jobs)
    assert [printed(job.executed) for job in jobs] == ["smoke 3\n", "smoke 4\n"]
    before = [job.executed.read_bytes() for job in jobs]
    jobs[1].executed.unlink()
    stamp = jobs[0].executed.stat().st_mtime_ns
    runner.run(jobs)
    assert "small--seed-3: fresh" in capsys.readouterr().err
    assert jobs[0].executed.stat().st_mtime_ns == stamp
    assert [job.executed.read_bytes() for job in jobs] == before, "a re-run is byte-identical"


def test_the_copy_names_no_machine(project):
    (job,) = runner.plan(["small"], "smoke", [], project / "out")
    runner.run_one(job)
    text = job.executed.read_text()
    assert str(project) not in text and "papermill" not in nbformat.reads(text, as_version=4).metadata


def test_a_failing_cell_is_shown_and_kept(project):
    write(project, "1 / 0")
    (job,) = runner.plan(["small"], "smoke", [], project / "out")
    with pytest.raises(runner.NotebookFailed, match=r"(?s)ZeroDivisionError.*1 / 0.*failed\.ipynb"):
        runner.run([job])
    assert not job.executed.exists(), "a failed run leaves nothing that looks finished"
    assert any(o.output_type == "error" for c in nbformat.read(job.executed.with_suffix(".failed.ipynb"), 4).cells
               for o in c.get("outputs", []))  # fmt: skip
    write(project, "print('mended')")
    runner.run_one(job)
    assert printed(job.executed) == "mended\n" and not job.executed.with_suffix(".failed.ipynb").exists()


def test_an_unknown_notebook_or_parameter_starts_nothing(project):
    with pytest.raises(parameters.ParameterError, match="no notebook 'big'; known: small"):
        runner.plan(["big"], "smoke", [], None)
    with pytest.raises(parameters.ParameterError, match="no parameter 'sede'"):
        runner.plan(["small"], "smoke", ["sede=3"], None)


def test_every_changed_input_is_reported(project, monkeypatch):
    source = project / "notebooks" / "small.md"
    image = project / "slides" / "one.png"
    image.parent.mkdir()
    Image.new("L", (8, 8), 90).save(image)
    library = project / "library"
    (library / "part").mkdir(parents=True)
    (library / "part" / "code.py").write_text("x = 1\n")
    monkeypatch.setattr(freshness, "__file__", str(library / "freshness.py"))
    job = runner.Job(source, project / "out" / "small.ipynb", {"profile": "smoke", "dataset": str(image.parent)})
    write(project, "print(profile)", 'dataset = ""')

    def stale():
        return freshness.stale(job.executed, freshness.inputs(source, job.parameters, job.dataset))

    assert stale() == ["missing"]
    runner.run_one(job)
    assert stale() == []
    changes = {"source": source, "library": library / "part" / "code.py", "data": image}
    changes["pins"] = project / "requirements.txt"
    for name, path in changes.items():
        kept = path.read_bytes()
        path.write_bytes(kept + b" ")
        assert stale() == [name]
        path.write_bytes(kept)
    assert stale() == []
    assert freshness.stale(job.executed, freshness.inputs(source, {"profile": "paper"}, job.dataset)) == ["parameters"]


TABLE = """import pandas as pd
from phoebi_lib.report import book_table
book_table(pd.DataFrame({"seed": [seed]}), "seeds")"""


def test_each_copy_has_its_own_tables_and_knows_them(project):
    write(project, TABLE)
    jobs = runner.plan(["small"], "smoke", ["seed=3,4"], project / "out")
    runner.run(jobs)
    tables = [freshness.tables_of(job.executed) / "seeds.display.csv" for job in jobs]
    assert [table.read_text() for table in tables] == ["seed\n3\n", "seed\n4\n"]
    now = freshness.inputs(jobs[0].source, jobs[0].parameters, None)
    assert freshness.stale(jobs[0].executed, now) == []
    tables[0].write_text("seed\n4\n")
    assert freshness.stale(jobs[0].executed, now) == ["tables"], "another run's table under this page"
    tables[0].unlink()
    assert freshness.stale(jobs[0].executed, now) == ["tables"]
    runner.run_one(jobs[0])
    assert tables[0].read_text() == "seed\n3\n"


def test_changed_makes_stale_copies_again_with_their_own_parameters(project):
    out = project / "out"
    with pytest.raises(FileNotFoundError, match="no executed notebooks"):
        runner.changed([], "smoke", out)
    runner.run(runner.plan(["small"], "smoke", ["seed=3,4"], out))
    assert runner.changed([], "smoke", out) == []
    freshness.tables_of(out / "small--seed-3.ipynb").mkdir(parents=True)
    (freshness.tables_of(out / "small--seed-3.ipynb") / "odd.csv").write_text("x\n")
    (job,) = runner.changed([], "smoke", out)
    assert job.executed.name == "small--seed-3.ipynb" and job.parameters["seed"] == 3
    write(project, "print('anew', seed)")
    jobs = runner.changed(["small"], "smoke", out)
    runner.run(jobs)
    assert [printed(job.executed) for job in jobs] == ["anew 3\n", "anew 4\n"]
    assert runner.changed([], "smoke", out) == []
    source = project / "notebooks" / "small.md"
    source.write_text(source.read_text().replace("seed = 1", "start = 1").replace("seed)", "start)"))
    with pytest.raises(parameters.ParameterError, match=r"seed-3\.ipynb: .*no parameter 'seed'.*delete the copy"):
        runner.changed([], "smoke", out)
    with pytest.raises(parameters.ParameterError, match="no notebook 'big'"):
        runner.changed(["big"], "smoke", out)


def test_a_page_ends_with_how_it_was_made(project):
    (job,) = runner.plan(["small"], "smoke", ["seed=3"], project / "out")
    runner.run_one(job)
    last = nbformat.read(job.executed, as_version=4).cells[-1]
    assert last.cell_type == "markdown" and "phoebi run small --profile smoke -p seed=3" in last.source
    assert freshness.record(job.executed)["inputs"]["source"][:12] in last.source


def test_a_page_on_other_data_says_so_and_grows_stale_with_them(project, monkeypatch):
    write(project, "print(seed)", 'data = ""')
    (job,) = runner.plan(["small"], "smoke", [], project / "out")
    assert job.evidence == "simulated"
    assert runner.Job(job.source, job.executed, {"profile": "rehearsal"}).evidence == "stand-in"
    folder = project / "somewhere" / "x"
    folder.mkdir(parents=True)
    (folder / "train.csv").write_text("a\n")
    monkeypatch.chdir(project)
    (job,) = runner.plan(["small"], "smoke", ["data=somewhere/x"], project / "out")
    assert job.evidence == "user" and job.parameters["data"] == str(folder), "the kernel runs elsewhere"
    runner.run_one(job)
    now = freshness.inputs(job.source, job.parameters, job.dataset)
    (folder / "train.csv").write_text("ab\n")
    assert freshness.folders_digest(job.parameters) != freshness.folders_digest({"data": ""}) == ""
    assert freshness.inputs(job.source, job.parameters, job.dataset)["data"] != now["data"]
    with pytest.raises(parameters.ParameterError, match="data: 'gone' is no folder"):
        runner.plan(["small"], "smoke", ["data=gone"], project / "out")


def test_two_runs_never_share_a_copy(project):
    write(project, "print(seed)", 'data = ""')
    for parent in ("a", "b"):
        (project / parent / "x").mkdir(parents=True)
    with pytest.raises(parameters.ParameterError, match=r"2 runs of this sweep .*small--data-x\.ipynb"):
        runner.plan(["small"], "smoke", [f"data={project}/a/x,{project}/b/x"], project / "out")
    with pytest.raises(parameters.ParameterError, match=r"small--seed-1\.ipynb"):
        runner.plan(["small"], "smoke", ["seed=1,1"], project / "out")
    assert len(runner.plan(["small", "small"], "smoke", [], project / "out")) == 1


@pytest.mark.parametrize("content", ["", "{", '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'])
def test_changed_names_a_damaged_copy(project, content):
    (project / "out").mkdir()
    (project / "out" / "small.ipynb").write_text(content)
    (project / "out" / "folder.ipynb").mkdir()
    with pytest.raises(parameters.ParameterError, match=r"out/small\.ipynb: damaged.*delete it"):
        runner.changed([], "smoke", project / "out")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cells": 3}', '{"nbformat": 4}'])
def test_a_damaged_copy_is_stale(project, content):
    (job,) = runner.plan(["small"], "smoke", [], project / "out")
    job.executed.parent.mkdir()
    job.executed.write_text(content)
    assert freshness.stale(job.executed, {"source": "x"}) in (["damaged"], ["source"])
    runner.run_one(job)
    assert printed(job.executed) == "smoke 1\n"


def test_values_are_checked_and_paths_tamed_before_a_kernel_starts(project, monkeypatch):
    write(project, "print(seed)", 'dataset = "sim:smoke"\npartition = "random"')
    with pytest.raises(ValueError, match="unknown partition 'lco'"):
        runner.plan(["small"], "smoke", ["partition=lco"], None)
    (project / "elsewhere" / "slides" / "bs").mkdir(parents=True)
    Image.new("L", (4, 4)).save(project / "elsewhere" / "slides" / "bs" / "1.png")
    monkeypatch.chdir(project / "elsewhere")
    (job,) = runner.plan(["small"], "smoke", ["dataset=../elsewhere/slides"], project / "out")
    assert job.parameters["dataset"] == str(project / "elsewhere" / "slides")
    assert job.executed == project / "out" / "small--dataset-slides.ipynb"


def test_checkpoints_of_a_notebook_server_are_no_sources(project):
    kept = project / "notebooks" / ".ipynb_checkpoints" / "small-checkpoint.md"
    kept.parent.mkdir()
    kept.write_text((project / "notebooks" / "small.md").read_text())
    assert list(runner.sources()) == ["small"]


def test_no_notebooks_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOEBI_PROJECT", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no notebooks"):
        runner.plan([], "smoke", [], None)


def test_stock_papermill_runs_an_exported_copy(project):
    import papermill

    (copy,) = runner.export(project / "exported")
    papermill.execute_notebook(str(copy), str(project / "out.ipynb"), parameters={"seed": 9}, progress_bar=False)
    assert printed(project / "out.ipynb") == "smoke 9\n"


def test_a_killed_sweep_resumes_without_repeating_work(project):
    """SIGKILL while the second notebook runs: the first copy stays, and a second call only does what is missing."""
    wait = "if seed == 2 and not pathlib.Path('go').exists():\n    time.sleep(60)"
    write(project, f"import pathlib, time\n{wait}\nprint(seed)")
    command = [sys.executable, "-m", "phoebi_lib.cli", "run", "small", "-p", "seed=1,2", "--out", "out"]
    sweep = subprocess.Popen(command, cwd=project, start_new_session=True, stderr=subprocess.DEVNULL)
    first, second = project / "out" / "small--seed-1.ipynb", project / "out" / "small--seed-2.ipynb"
    try:
        deadline = time.monotonic() + 120
        while not (first.exists() and list(first.parent.glob(".small--seed-2-*"))):
            assert time.monotonic() < deadline and sweep.poll() is None, "the sweep did not get to its second notebook"
            time.sleep(0.1)
    finally:
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
    assert not second.exists(), "nothing half-written looks whole"
    stamp = first.stat().st_mtime_ns
    (project / "go").touch()
    again = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert first.stat().st_mtime_ns == stamp and "small--seed-1: fresh" in again.stderr
    assert printed(second) == "2\n"
    assert sorted(path.name for path in second.parent.glob("*.ipynb")) == [first.name, second.name]
    assert not list(second.parent.glob(".*.ipynb")), "what the killed run left half-written is gone"


def test_a_killed_command_leaves_no_process_behind(project):
    write(project, "import pathlib, time\npathlib.Path('began').touch()\ntime.sleep(120)")
    command = [sys.executable, "-m", "phoebi_lib.cli", "run", "small", "--out", "out"]
    sweep = subprocess.Popen(command, cwd=project, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (project / "began").exists():
        assert time.monotonic() < deadline and sweep.poll() is None, "the notebook did not start"
        time.sleep(0.1)
    others = psutil.Process(sweep.pid).children(recursive=True)
    assert any("ipykernel_launcher" in " ".join(process.cmdline()) for process in others)
    sweep.kill()
    sweep.wait()
    _, left = psutil.wait_procs(others, timeout=60)
    for process in left:
        process.kill()
    assert not left


def test_after_ctrl_c_no_further_notebook_starts(project):
    write(project, "import pathlib, time\npathlib.Path(f'began-{seed}').touch()\ntime.sleep(30 if seed == 1 else 0)")
    command = [sys.executable, "-m", "phoebi_lib.cli", "run", "small", "-p", "seed=1,2,3", "--out", "out"]
    sweep = subprocess.Popen(command, cwd=project, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (project / "began-1").exists():
            assert time.monotonic() < deadline and sweep.poll() is None, "the first notebook did not start"
            time.sleep(0.1)
        os.killpg(sweep.pid, signal.SIGINT)
        assert sweep.wait(timeout=120) != 0
    finally:
        if sweep.poll() is None:
            os.killpg(sweep.pid, signal.SIGKILL)
            sweep.wait()
    assert [path.name for path in project.glob("began-*")] == ["began-1"]
    assert not list((project / "out").glob("small*.ipynb")), "nothing half-written looks whole"


def test_a_relative_home_is_the_same_folder_for_command_and_kernel(project, tmp_path, monkeypatch):
    write(project, "from phoebi_lib import workspace\nprint(workspace.root(), workspace.results_dir())")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PHOEBI_HOME", "home")
    (copy,) = runner.run(runner.plan(["small"], "smoke", [], tmp_path / "out"))
    assert printed(copy) == f"{elsewhere / 'home'} {elsewhere / 'home' / 'results'}\n"


@pytest.mark.parametrize("processes", [0, -1, 1.0, True, "2"])
def test_processes_must_be_a_number_of_processes(processes):
    with pytest.raises(ValueError, match="processes must be a whole number of at least 1"):
        runner.run([], processes)


@pytest.mark.parametrize(("jobs", "order"), [([1], [1]), ([1, 2, 3], [1, 3, 2]), ([1, 2, 3, 4], [1, 4, 2, 3])])
def test_every_job_is_taken_once_from_both_ends(jobs, order):
    assert runner.from_both_ends(jobs) == order
