"""What the records of functions of matrices claim holds on draws: order, blindness, transposes, ranges, mutants."""

from __future__ import annotations

import math

import pytest
import torch
from verify_harness import randn

from ntk_deq.claims.mutation_rules import RULES
from ntk_deq.evaluation.functions.twins import FUNCTIONS as IN_FLOATS
from ntk_deq.language.calls import Parameter
from ntk_deq.language.functionals import TO_NUMBERS
from ntk_deq.language.functions import FUNCTIONS, OF_MATRICES
from ntk_deq.language.pieces import PIECES
from ntk_deq.language.record import TRANSPOSED, Change
from ntk_deq.language.types import Range

LIKE = torch.zeros((), dtype=torch.float64)
ALL = (*OF_MATRICES, *TO_NUMBERS)
OF_ONE = [
    f.name for f in ALL if f.stands_for is None and len(f.parameters) == 1 and f.parameters[0] is not Parameter.SIZE
]
NUMBERS = [f.name for f in ALL if f.name in OF_ONE and f.group != "Matrices"]
NEAR = 1e-10  # matrices of at most 6 x 6 with numbers near one: some hundred round-offs, and condition numbers of 1e3


def value(name: str, *args: torch.Tensor) -> torch.Tensor:
    return IN_FLOATS[name](LIKE, *args)


def drawn(name: str) -> list[torch.Tensor]:
    """Square matrices at which a function has a value."""
    return [a @ a.mT for a in squares()] if FUNCTIONS[name].of_symmetric else squares()


def squares() -> list[torch.Tensor]:
    return [randn(n, n, seed=10 * n + k) for n in (2, 3) for k in range(4)] + [randn(3, 3, seed=9).abs()]


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.allclose(left, right, rtol=NEAR, atol=NEAR)


@pytest.mark.parametrize("name", NUMBERS)
def test_what_lies_below_is_nowhere_larger(name: str) -> None:
    assert FUNCTIONS[name].above <= FUNCTIONS.keys() - {name}
    for other in FUNCTIONS[name].above:
        assert all(float(value(other, a)) <= float(value(name, a)) + NEAR for a in drawn(name)), other


@pytest.mark.parametrize("name", NUMBERS)
def test_changes_that_are_not_noticed(name: str) -> None:
    unnoticed = {
        Change.SIGN: all(same(value(name, -a), value(name, a)) for a in drawn(name)),
        Change.TRANSPOSE: all(same(value(name, a.mT), value(name, a)) for a in drawn(name)),
        Change.ORDER: all(
            same(value(name, torch.kron(a, b)), value(name, torch.kron(b, a)))
            for a, b in zip(drawn(name), reversed(drawn(name)), strict=True)
        ),
    }
    assert all(unnoticed[change] for change in FUNCTIONS[name].blind)


@pytest.mark.parametrize("name", [f.name for f in (*ALL, *PIECES) if f.turns])
def test_transposes_pass_through(name: str) -> None:
    for a, b in zip(squares(), reversed(squares()), strict=True):
        args = (a, b if a.shape == b.shape else a)[: len(FUNCTIONS[name].parameters)]
        if FUNCTIONS[name].of_symmetric:
            args = tuple(arg @ arg.mT for arg in args)
        assert same(value(name, *(arg.mT for arg in args)), value(name, *args).mT)


@pytest.mark.parametrize("name", [f.name for f in ALL if f.commutes])
def test_the_order_of_arguments_does_not_matter(name: str) -> None:
    a, b = randn(4, 1, seed=1), randn(4, 1, seed=2)
    assert same(value(name, a, b), value(name, b, a))


@pytest.mark.parametrize("name", OF_ONE)
def test_values_lie_in_the_range(name: str) -> None:
    values = FUNCTIONS[name].values
    if values is None:
        return
    for a in drawn(name):
        for low in (-math.inf, 0):
            if low == 0:
                a = a.abs()
            known = values([Range(low=low)])
            found = value(name, a)
            assert float(found.min()) >= known.low - NEAR
            assert float(found.max()) <= known.high + NEAR


@pytest.mark.parametrize("name", [f.name for f in ALL if f.mutant])
def test_mutants_change_places(name: str) -> None:
    rule, other = FUNCTIONS[name].mutant or ("", "")
    assert rule in RULES
    if other != TRANSPOSED:
        assert (FUNCTIONS[other].mutant or ("",))[0] == rule


def test_what_needs_a_symmetric_matrix_may_have_no_value() -> None:
    assert {f.name for f in FUNCTIONS.values() if f.of_symmetric} == {"lambda_sym", "sqrtm"}
    assert all(f.partial for f in FUNCTIONS.values() if f.of_symmetric)
