"""The fuzzer of `benchmarks.certified_fuzz` at a small size: nothing wrong found, every planted mistake found."""

import pytest

from benchmarks.certified_fuzz import equilibrium_tally, matrix_tally
from benchmarks.certified_weakening import weakened, weakenings

LARGEST, STEPS = 12, 400

ENOUGH = {"high-precision": 92, "underflow": 69, "inverse": 46, "discs": 46}
"""Matrices that are sure to show a mistake, where one of each family is not."""


@pytest.mark.parametrize("first", [0, pytest.param(115, marks=pytest.mark.long)])
def test_every_matrix_is_in_its_ball(first):
    tally = matrix_tally(2, range(first, first + 115), largest=LARGEST)
    assert tally.culprits == []
    assert tally.checks.total() > 3000
    assert tally.undecided.total() == 0


def test_every_equilibrium_is_in_its_ball():
    tally = equilibrium_tally(2, range(50), max_steps=STEPS)
    assert tally.culprits == []
    assert {name.removeprefix("equilibrium: ") for name in tally.checks} >= {"contraction", "approximate inverse"}
    assert tally.undecided.total() == 0


def test_every_mistake_is_planted_where_there_is_something():
    for name in weakenings():
        with weakened(name):
            pass


@pytest.mark.parametrize("name", sorted({*weakenings()} - {"cholesky"}))
def test_every_planted_mistake_is_found(name):
    """One planted mistake, `cholesky`, takes hundreds of matrices to show; its own tests look for it where it does."""
    if weakenings()[name].on == "equilibria":
        assert equilibrium_tally(1, range(20), name, max_steps=STEPS).violations > 0
    else:
        assert matrix_tally(1, range(ENOUGH.get(name, 23)), name, largest=LARGEST).violations > 0
