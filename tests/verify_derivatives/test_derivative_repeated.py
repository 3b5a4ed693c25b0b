"""Extreme eigenvalues: simple for certain, repeated for certain, or not known."""

from __future__ import annotations

import pytest
import torch
from derivative_harness import as_ball, environment, random_matrix

from ntk_deq import certified as ct
from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.functions.spectra import is_repeated
from ntk_deq.language.parser import parse


def matrix(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


ONE = matrix((1.0, 0.0), (0.0, 1.0))
TURN = matrix((0.0, 1.0), (-1.0, 0.0))
JORDAN = matrix((1.0, 1.0), (0.0, 1.0))
THIRD = matrix((2.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.0, 0.0, 1.0))
CLOSE = matrix((1.0, 0.0), (0.0, 1.0 + 2.0**-50))
TIE = matrix((1.0, 0.0, 0.0), (0.0, 1.0, 3.0), (0.0, -3.0, 1.0))  # 1 and 1 +- 3i


@pytest.mark.parametrize(
    ("values", "which", "found"),
    [
        (ONE, "lambda_max", True),
        (JORDAN, "lambda_max", True),
        (THIRD, "lambda_max", True),
        (THIRD, "lambda_min", False),
        (THIRD, "rho", True),
        (-THIRD, "lambda_min", True),
        (CLOSE, "lambda_max", False),
        (CLOSE, "lambda_min", False),
        (TURN, "lambda_max", False),  # a pair of conjugates moves as one
        (TURN, "rho", False),
        (TIE, "lambda_max", None),
        (matrix((1.0, 0.0), (0.0, -1.0)), "rho", None),
        (0 * ONE, "rho", True),
        (matrix((0.0,)), "rho", True),
        (matrix((0.0,)), "lambda_max", False),
        (matrix((0.1, 0.2), (0.2, 0.3)), "lambda_max", False),
    ],
)
def test_exact_matrices(values: torch.Tensor, which: str, found: bool | None) -> None:
    assert is_repeated(ct.ball(values), which) is found


def test_balls() -> None:
    apart = matrix((1.0, 0.0), (0.0, 2.0))
    assert is_repeated(ct.ball(apart, 0.1), "lambda_max") is False
    assert is_repeated(ct.ball(apart, 0.6), "lambda_max") is None
    assert is_repeated(ct.ball(ONE, 1e-12), "lambda_max") is None
    assert is_repeated(ct.ball(CLOSE, 1e-12), "lambda_max") is None
    assert is_repeated(ct.ball(ONE, float("inf")), "lambda_max") is None


def test_a_large_matrix_by_its_enclosures() -> None:
    generic = random_matrix(20, 20, 0)
    assert is_repeated(ct.ball(generic + generic.T), "lambda_max") is False
    assert is_repeated(ct.ball(torch.eye(20, dtype=torch.float64)), "lambda_max") is None


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("grad(lambda_max(A), A)", True),
        ("grad(lambda_min(-A'), A)", True),
        ("grad(lambda_max(A + A'), A)", True),
        ("grad(lambda_max(A - I(2)), A)", True),
        ("grad(lambda_max(A*A'), A)", False),
        ("grad(lambda_max(s*A), s)", False),  # s: the matrix moves along a line, on which there may be a derivative
    ],
)
def test_where_it_is_repeated(text: str, certain: bool) -> None:
    with pytest.raises(OutsideClaimError) as stopped:
        derivative(parse(text), environment({"A": ONE, "s": 2.0}))
    assert stopped.value.hypothesis == "differentiable"
    assert stopped.value.certain is certain


def test_close_eigenvalues_are_open_and_distant_ones_have_a_slope() -> None:
    with pytest.raises(OutsideClaimError) as stopped:
        derivative(parse("grad(lambda_max(A), A)"), environment({"A": CLOSE}))
    assert not stopped.value.certain
    found = as_ball(derivative(parse("grad(lambda_max(A), A)"), environment({"A": matrix((1.0, 0.0), (0.0, 2.0))})))
    assert torch.allclose(found.centre, matrix((0.0, 0.0), (0.0, 1.0)))


def test_an_eigenvalue_that_does_not_move_may_be_repeated() -> None:
    env = environment({"A": ONE, "v": matrix((1.0,), (2.0,))})
    assert as_ball(derivative(parse("grad(lambda_max(A)*sum(v), v)"), env)).centre.flatten().tolist() == [1.0, 1.0]


def test_the_slope_of_a_simple_eigenvalue_is_right_where_another_one_is_repeated() -> None:
    from ntk_deq.evaluation.functions.spectra import extreme_eigenvalue

    v = torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64)
    slope = torch.func.grad(lambda S: extreme_eigenvalue(S, "lambda_max"))(torch.outer(v, v))
    assert torch.allclose(slope, torch.outer(v, v) / 6)
    nilpotent = torch.tensor([[5.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    slope = torch.func.grad(lambda A: extreme_eigenvalue(A, "lambda_max"))(nilpotent)
    # Its right eigenvector is e1, its left one w = (1, 1/5, 1/25): d lambda = (w dA v)
    expected = torch.zeros(3, 3, dtype=torch.float64)
    expected[:, 0] = torch.tensor([1.0, 0.2, 0.04])
    assert torch.allclose(slope, expected)
