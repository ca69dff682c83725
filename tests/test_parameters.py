"""Parameters are strict: what a notebook does not have, or of another type, is refused without a kernel."""

import pytest

from phoebi_lib import parameters
from phoebi_lib.parameters import ParameterError

CELL = """profile = "smoke"
seed = 1337
rate = 0.5
flag = True
names = ["a"]"""


def write(tmp_path, cell=CELL, tags="[parameters]", before=""):
    path = tmp_path / "x.md"
    path.write_text(
        "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
        "kernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n# Title\n\n"
        f"{before}```{{code-cell}} ipython3\n:tags: {tags}\n\n{cell}\n```\n\n"
        "```{code-cell} ipython3\nprint(seed)\n```\n"
    )
    return path


def test_defaults_are_read_in_order(tmp_path):
    expected = {"profile": "smoke", "seed": 1337, "rate": 0.5, "flag": True, "names": ["a"]}
    assert list(parameters.defaults(write(tmp_path)).items()) == list(expected.items())


@pytest.mark.parametrize("cell", ["seed = int('3')", "seed: int = 3", "a = b = 3", "import os", "seed = 1 + x"])
def test_only_plain_literals(tmp_path, cell):
    with pytest.raises(ParameterError, match="NAME = literal"):
        parameters.defaults(write(tmp_path, cell))


def test_the_first_code_cell_must_be_the_tagged_one(tmp_path):
    with pytest.raises(ParameterError, match="first code cell"):
        parameters.defaults(write(tmp_path, tags="[other]"))
    with pytest.raises(ParameterError, match="first code cell"):
        parameters.defaults(write(tmp_path, before="```{code-cell} ipython3\nx = 1\n```\n\n"))


@pytest.mark.parametrize(
    "given", [{"seed": "1337"}, {"seed": 1.0}, {"flag": 1}, {"seed": True}, {"names": {"a": 1}}, {"profile": None}]
)
def test_wrong_types_are_refused(tmp_path, given):
    with pytest.raises(ParameterError, match="takes"):
        parameters.check(write(tmp_path), given)


def test_an_int_is_taken_for_a_float(tmp_path):
    fitted = parameters.check(write(tmp_path), {"rate": 1})
    assert fitted == {"rate": 1.0} and type(fitted["rate"]) is float


def test_an_unknown_name_is_refused_with_the_closest(tmp_path):
    with pytest.raises(ParameterError, match="did you mean 'seed'"):
        parameters.check(write(tmp_path), {"sed": 1})


def test_sweep_is_the_product_in_order():
    runs = parameters.sweep(["partition=lco-1337,lco-1338", "seed=1,2"])
    assert runs == [{"partition": p, "seed": s} for p in ("lco-1337", "lco-1338") for s in (1, 2)]
    assert parameters.sweep([]) == [{}]


def test_a_value_that_is_no_literal_is_refused():
    with pytest.raises(ParameterError, match="seed="):
        parameters.sweep(["seed=[1"])


@pytest.mark.parametrize("text", ["seed", "=3", "seed=", "a b=3"])
def test_malformed_assignments_are_refused(text):
    with pytest.raises(ParameterError, match="NAME=VALUE"):
        parameters.sweep([text])


def test_a_name_given_twice_is_refused():
    with pytest.raises(ParameterError, match="twice"):
        parameters.sweep(["seed=1", "seed=2"])


def test_profiles_are_known_and_others_refused():
    for profile in parameters.PROFILES:
        assert set(parameters.profile_values(profile)) == {"profile", "dataset", "encoder", "compat", "grid", "caps"}
    with pytest.raises(ParameterError, match="unknown profile 'huge'"):
        parameters.profile_values("huge")


def test_the_profile_sets_only_what_the_notebook_has(tmp_path):
    assert parameters.for_notebook(write(tmp_path), "default", {"seed": 7}) == {"profile": "default", "seed": 7}
