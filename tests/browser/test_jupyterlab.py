"""A lab in JupyterLab, as a student works in it: the slider redraws, a check says what is missing, then "right"."""

from pathlib import Path

import nbformat
import pytest
import student
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from phoebi_lib import lab_copies, parameters

LAB = Path(__file__).with_name("lab_like.md")
RIGHT, NOT_YET = "Exercise 1: right", "Exercise 1: not yet"
_SLIDER = ".jp-Notebook .widget-slider [role=slider]"
_PICTURE = """return document.querySelector(arguments[0])?.closest(".jp-Cell")
    .querySelector(".jp-OutputArea-output :is(img, svg)")?.outerHTML"""


@pytest.fixture(scope="module")
def exercises():
    """The exercises of the student copy: the place of the stub, the place of its check, and the source's solution."""
    cells = {"exercise": lab_copies.student_copy(LAB).cells, "solution": parameters.read_notebook(LAB).cells}
    places = {tag: [i for i, cell in enumerate(found) if tag in cell.metadata.get("tags", [])]
              for tag, found in cells.items()}  # fmt: skip
    solutions = [cells["solution"][i].source for i in places["solution"]]
    return list(zip(places["exercise"][::2], places["exercise"][1::2], solutions, strict=True))


@pytest.fixture(scope="module")
def opened(driver, tmp_path_factory):
    """The student copy, opened in JupyterLab and run from the first cell on."""
    folder = tmp_path_factory.mktemp("labs")
    nbformat.write(lab_copies.student_copy(LAB), folder / "lab.ipynb")
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
    assert NOT_YET in found or "replace the dots" in found, found


def test_a_solution_makes_the_check_pass(opened, exercises):
    stub, check, solution = exercises[0]
    student.write(opened, stub, solution)
    student.run(opened, stub)
    student.run(opened, check)
    WebDriverWait(opened, 60).until(lambda d: RIGHT in student.output(d, check))
    assert student.output(opened, stub) == "", "a solution says nothing by itself"


def test_the_slider_redraws_the_picture(opened, exercises):
    for stub, _, solution in exercises[1:]:  # a slider may need what a student writes
        student.write(opened, stub, solution)
    student.run_all(opened)
    wait = WebDriverWait(opened, 60)
    before = wait.until(drawn)
    handle = opened.find_element(By.CSS_SELECTOR, _SLIDER)
    handle.send_keys(Keys.ARROW_RIGHT)
    after = wait.until(lambda d: (now := drawn(d)) not in (None, before) and now)
    handle.send_keys(Keys.ARROW_LEFT)
    wait.until(lambda d: drawn(d) not in (None, after))
    assert drawn(opened) == before, "back at the first value, back at the first picture"
