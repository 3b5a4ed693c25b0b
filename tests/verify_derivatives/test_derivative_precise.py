"""Derivatives at more bits than a float has: the truth at 2000 bits lies in their balls, and these are narrow."""

from __future__ import annotations

import flint
import pytest
import torch
from derivative_harness import BITS, environment, random_matrix, truth
from flint import arb

from ntk_deq.certified.precise import PreciseMatrix, adopt, working_precision
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.parser import parse

PRECISION = 128


def finer(env: Environment) -> Environment:
    """Return an environment with the same variables in arb entries."""
    precise = {k: Matrix(adopt(v.ball), v.scale) if isinstance(v, Matrix) else v for k, v in env.variables.items()}
    return Environment(env.model, env.sizes, precise, env.lets, env.notes, env.providers, precision=PRECISION)


def entries(value: Scalar | Matrix) -> list[arb]:
    if isinstance(value, Scalar):
        return [value.ball]
    assert isinstance(value.ball, PreciseMatrix)
    return value.ball.flat


def check(text: str, env: Environment) -> None:
    with working_precision(PRECISION):
        found = entries(derivative(parse(text), finer(env)))
    true = truth(text, env).entries()
    assert len(found) == len(true)
    size = max(abs(float(x.mid())) for x in true)
    with flint.ctx.workprec(BITS):
        slack = arb(0, arb(2) ** -300 * (1 + size))
        for ball, value in zip(found, true, strict=True):
            assert (ball + slack).contains(value)
            assert ball.rad() <= 2.0**-100 * (1 + size)


PLAIN = [
    "jac(relu(A*v), A)",
    "jac(abs(A), A)",
    "jac(vec(A*B), A)",
    "jac(diag(v)*A, v)",
    "jac(diag(A*B), A)",
    "jac(kron(A, B), A)",
    "jac(kron(A, B), B)",
    "jac(hadamard(A, A*B), A)",
    "grad(dot(v, A*v), A)",
    "grad(det(A), A)",
    "jac(inv(A), A)",
    "grad(trace(A*A*B), A)",
    "grad(sum(A*B), B)",
    "grad(fro(A*B), A)",
    "grad(norm(A*v)^3, v)",
    "grad(exp(s)*log(s + 2)/sqrt(s), s)",
    "jac(s*A, s)",
    "jac(A^3, A)",
    "jac(A^(-2), A)",
    "jac(A'/s, A)",
    "grad(s^(1/3), s)",
    "jac(at(A*B, A = A*s), A)",
    "jac(step(A)*B, B)",
    "jac(3*ones(2), A)",
]


@pytest.mark.parametrize("text", PLAIN)
def test_formulas(text: str) -> None:
    check(
        text,
        environment({"A": random_matrix(2, 2, 1), "B": random_matrix(2, 2, 2), "v": random_matrix(2, 1, 3), "s": 0.7}),
    )


@pytest.mark.parametrize("name", ["W", "A", "b", "X", "gamma"])
@pytest.mark.parametrize("of", ["jac(yhat, {})", "grad(L, {})", "jac(Z, {})", "jac(next(Z), {})"])
def test_the_relu_network(of: str, name: str) -> None:
    values = {
        "W": random_matrix(2, 3, 1),
        "A": 0.3 * random_matrix(3, 3, 2),
        "gamma": 0.5,
        "b": random_matrix(3, 1, 3),
        "X": random_matrix(2, 2, 4),
        "y": random_matrix(2, 1, 5),
    }
    check(of.format(name), environment(values, model="implicit-relu", sizes={"N": 2, "d": 2, "m": 3}))


@pytest.mark.parametrize("name", ["W", "U", "b", "X"])
def test_the_linear_network(name: str) -> None:
    values = {
        "W": 0.2 * random_matrix(3, 3, 1),
        "U": random_matrix(3, 2, 2),
        "b": random_matrix(3, 1, 3),
        "X": random_matrix(2, 2, 4),
        "y": random_matrix(2, 1, 5),
    }
    check(f"jac(yhat, {name})", environment(values, model="linear-implicit", sizes={"N": 2, "d": 2, "m": 3}))


@pytest.mark.parametrize(
    "text",
    ["grad(norm(A), A)", "grad(sigma_min(A), A)", "grad(norm1(A), A)", "grad(max(A), A)", "grad(lambda_max(A), A)"],
)
def test_what_has_float_rules_only_is_left_to_floats(text: str) -> None:
    with working_precision(PRECISION), pytest.raises(LimitError):
        derivative(parse(text), finer(environment({"A": random_matrix(2, 2, 1)})))


def test_a_state_too_large_is_left_to_floats() -> None:
    m = 9
    values = {
        "W": 0.1 * random_matrix(m, m, 1),
        "U": random_matrix(m, 1, 2),
        "b": random_matrix(m, 1, 3),
        "X": random_matrix(8, 1, 4),
        "y": random_matrix(8, 1, 5),
    }
    env = environment(values, model="linear-implicit", sizes={"N": 8, "d": 1, "m": m})
    with working_precision(PRECISION), pytest.raises(LimitError):
        derivative(parse("grad(L, W)"), finer(env))


def test_kinks_are_seen_at_any_precision() -> None:
    env = environment({"v": torch.tensor([[0.0], [1.0]], dtype=torch.float64)})
    with working_precision(PRECISION), pytest.raises(OutsideClaimError) as stopped:
        derivative(parse("grad(sum(relu(v)), v)"), finer(env))
    assert stopped.value.certain
