"""Lab 2 in JupyterLab, as a student works in it: a check says what is missing, then "right"; the slider redraws."""

import nbformat
import pytest
import student
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from phoebi_lib import lab_copies, parameters, workspace

LAB = "lab_2_unmixing"
RIGHT, NOT_YET = "Exercise 1: right", "Exercise 1: not yet"
_SLIDER = ".jp-Notebook .widget-slider [role=slider]"
_PICTURE = """return document.querySelector(arguments[0])?.closest(".jp-Cell")
    .querySelector(".jp-OutputArea-output :is(img, svg)")?.outerHTML"""


@pytest.fixture(scope="module")
def copy():
    """The student copy, as `phoebi labs --student` writes it."""
    # the first cells would simulate and embed, for minutes, where the smoke images and their features are missing
    if not (workspace.data_dir() / "sim-smoke").is_dir() or not list(workspace.pools_dir().glob("*/pool.json")):
        pytest.fail(f"no images and features of the smoke profile in {workspace.root()}: run make test first")
    return lab_copies.student_copy(lab_copies.sources()[LAB])


@pytest.fixture(scope="module")
def exercises(copy):
    """The exercises of the student copy: the place of the stub, the place of its check, and the source's solution."""
    cells = {"exercise": copy.cells, "solution": parameters.read_notebook(lab_copies.sources()[LAB]).cells}
    places = {tag: [i for i, cell in enumerate(found) if tag in cell.metadata.get("tags", [])]
              for tag, found in cells.items()}  # fmt: skip
    solutions = [cells["solution"][i].source for i in places["solution"]]
    return list(zip(places["exercise"][::2], places["exercise"][1::2], solutions, strict=True))


@pytest.fixture(scope="module")
def opened(driver, copy, tmp_path_factory):
    """The student copy, opened in JupyterLab and run from the first cell to the first that needs an exercise."""
    folder = tmp_path_factory.mktemp("labs")
    nbformat.write(copy, folder / "lab.ipynb")
    with student.serve(folder, tmp_path_factory.mktemp("jupyter")) as server:
        student.open_notebook(driver, server, "lab.ipynb")
        student.run_all(driver)
        yield driver
        driver.get("about:blank")


def drawn(driver):
    """Return the picture that belongs to the first slider, None while there is none."""
    return driver.execute_script(_PICTURE, _SLIDER)


def test_the_check_waits_for_the_student(opened, exercises):
    stub, check, _ = exercises[0]
    found = student.output(opened, stub) + student.output(opened, check)
    assert RIGHT not in found
    assert NOT_YET in found, found
    assert drawn(opened) is None, "the slider needs what the student writes"


def test_a_solution_makes_the_check_pass(opened, exercises):
    stub, check, solution = exercises[0]
    student.write(opened, stub, solution)
    student.run(opened, stub)
    student.run(opened, check)
    WebDriverWait(opened, 60).until(lambda d: RIGHT in student.output(d, check))
    assert student.output(opened, stub) == "", "a solution says nothing by itself"


def test_with_all_exercises_the_lab_runs_to_its_end(opened, exercises, copy):
    for stub, _, solution in exercises[1:]:
        student.write(opened, stub, solution)
    student.run_all(opened)
    (last,) = (i for i, cell in enumerate(copy.cells) if cell.source == "labs.progress(2)")
    assert student.output(opened, last) == "Lab 2: 5 of 5 exercises solved."


def test_the_slider_redraws_the_picture(opened):
    wait = WebDriverWait(opened, 60)
    before = wait.until(drawn)
    handle = opened.find_element(By.CSS_SELECTOR, _SLIDER)
    handle.send_keys(Keys.ARROW_RIGHT)
    after = wait.until(lambda d: (now := drawn(d)) not in (None, before) and now)
    handle.send_keys(Keys.ARROW_LEFT)
    wait.until(lambda d: drawn(d) not in (None, after))
    assert drawn(opened) == before, "back at the first value, back at the first picture"
