"""What the records of functions of matrices claim holds on draws: order, blindness, transposes, ranges, mutants."""

from __future__ import annotations

import math

import pytest
import torch
from verify_harness import randn

from ntk_deq.claims.mutation_rules import RULES
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.twins import FUNCTIONS as IN_FLOATS
from ntk_deq.language.calls import Parameter
from ntk_deq.language.functionals import TO_NUMBERS
from ntk_deq.language.functions import FUNCTIONS, OF_MATRICES
from ntk_deq.language.parser import parse
from ntk_deq.language.pieces import PIECES
from ntk_deq.language.record import TRANSPOSED, Change, Product
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


@pytest.mark.parametrize("name", [f.name for f in ALL])
def test_every_field_is_set_or_its_absence_explained(name: str) -> None:
    record = FUNCTIONS[name]
    asked = {"values", "mutant", "mathml", "numpy"} | ({"above"} if record in TO_NUMBERS else set())
    unset = {field for field in asked if not getattr(record, field)}
    if record.infix or record.exponent:
        unset.discard("mathml")
    assert record.lacks.keys() == unset
    assert all(len(reason) > 10 for reason in record.lacks.values())


@pytest.mark.parametrize("name", [f.name for f in ALL if f.symmetric])
def test_what_is_symmetric_whatever_it_is_taken_of(name: str) -> None:
    record = FUNCTIONS[name]
    found = value(name, *[torch.tensor(3)] * len(record.parameters) if record.takes_sizes else [randn(3, 1, seed=1)])
    assert torch.equal(found, found.mT)
    assert record.filled is None or bool((found == float(record.filled)).all())
    assert not record.unit or torch.equal(found, torch.eye(3, dtype=found.dtype))


def test_which_eigenvalue_of_a_symmetric_matrix() -> None:
    for name in (f.name for f in ALL if f.eigenvalue is not None):
        for a in (a + a.mT for a in squares()):
            assert same(value(name, a), torch.linalg.eigvalsh(a)[FUNCTIONS[name].eigenvalue])


@pytest.mark.parametrize("name", [f.name for f in ALL if f.product])
def test_which_product_of_two_matrices(name: str) -> None:
    a, b = randn(2, 3, seed=1), randn(2, 3, seed=2)
    entries = a * b
    assert same(value(name, a, b), entries if FUNCTIONS[name].product is Product.ENTRIES else entries.sum())


@pytest.mark.parametrize("name", [f.name for f in ALL if f.differential])
def test_the_change_is_that_of_automatic_differentiation(name: str) -> None:
    formula = FUNCTIONS[name].differential or ""
    for x, d in zip(squares(), reversed(squares()), strict=True):
        if x.shape == d.shape:
            y, change = torch.func.jvp(lambda a: value(name, a), (x,), (d,))
            names = TensorNames({"X": x, "D": d, "Y": y}, {}, {}, None, LIKE)
            assert torch.allclose(tensor_value(parse(formula), names), change, rtol=1e-8, atol=1e-8)


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
