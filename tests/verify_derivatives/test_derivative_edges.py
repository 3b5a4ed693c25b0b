"""Kinks, functions without a certified rule, equilibria that are not certain: nothing is passed off as known."""

import math

import pytest
import torch
from derivative_harness import as_ball, certified, environment, random_matrix

from ntk_deq.errors import LimitError, Position
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.environment import DeadlineError, OutsideClaimError
from ntk_deq.evaluation.floats import UndifferentiableError
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Formula


def at_point(text: str, **variables: torch.Tensor | float):
    return derivative(parse(text), environment(variables))


def column(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64).reshape(-1, 1)


KINKS = [
    ("grad(sum(relu(v)), v)", column(1.0, 0.0)),
    ("grad(sum(step(v)) + sum(v), v)", column(1.0, 0.0)),
    ("grad(sum(abs(v)), v)", column(0.0, 2.0)),
    ("grad(norm(v), v)", column(0.0, 0.0)),
    ("grad(norm1(v), v)", column(0.0, 2.0)),
    ("grad(sqrt(v'*v), v)", column(0.0, 0.0)),
]


@pytest.mark.parametrize(("text", "v"), KINKS)
def test_kink_stops_the_evaluation_for_certain(text: str, v: torch.Tensor) -> None:
    with pytest.raises(OutsideClaimError) as stopped:
        at_point(text, v=v, w=column(0.0, 1.0))
    assert stopped.value.hypothesis == "differentiable"
    assert stopped.value.certain


@pytest.mark.parametrize("text", ["grad(sum(relu(v)), v)", "grad(norm(v), v)", "grad(norm1(v), v)"])
def test_possible_kink_is_not_certain(text: str) -> None:
    env = environment({"v": column(1e-9, 1e-9)}, radius=1e-8)
    with pytest.raises(OutsideClaimError) as stopped:
        derivative(parse(text), env)
    assert not stopped.value.certain


def test_certain_kink_goes_before_a_possible_one() -> None:
    env = environment({"v": column(1e-9, 1.0), "s": 1.0, "t": 1.0}, radius=1e-8)
    with pytest.raises(OutsideClaimError) as stopped:
        derivative(parse("grad(sum(relu(t*v)) + relu(t - s), t)"), env)
    assert stopped.value.certain


TIES = ["max(v)", "min(v)", "max(s, t)", "norminf(v)", "norm(s*I(2))", "sigma_min(diag(v))", "sigma_min(v*v')"]


@pytest.mark.parametrize("formula", TIES)
def test_tie_is_a_kink_that_is_not_certain(formula: str) -> None:
    text = f"grad({formula}, {'s' if 's*' in formula or 's,' in formula else 'v'})"
    with pytest.raises(OutsideClaimError) as stopped:
        at_point(text, v=column(2.0, 2.0), s=1.0, t=1.0)
    assert not stopped.value.certain


def test_singular_root_of_a_power_is_undefined() -> None:
    with pytest.raises(OutsideClaimError) as stopped:
        at_point("grad(s^(1/2), s)", s=0.0)
    assert stopped.value.hypothesis == "defined"
    assert at_point("grad(s^2, s)", s=0.0).ball == 0
    assert at_point("grad(s^1, s)", s=0.0).ball == 1
    assert at_point("grad(s^0, s)", s=0.0).ball == 0


ESTIMATED = [
    ("grad(rho(C), C)", "rho"),
    ("grad(lambda_max(C), C)", "lambda_max"),
    ("jac(rho(C)*v, C)", "rho"),
]


@pytest.mark.parametrize("name", ["norm", "sigma_max", "sigma_min", "cond"])
def test_singular_value_that_is_not_simple_may_have_no_derivative(name: str) -> None:
    with pytest.raises(OutsideClaimError) as stopped:
        derivative(parse(f"grad({name}(I(3) + s*v*v'*0), s)"), environment({"v": random_matrix(3, 1, 5), "s": 0.5}))
    assert stopped.value.hypothesis == "differentiable"
    assert not stopped.value.certain


@pytest.mark.parametrize(("text", "operation"), ESTIMATED)
def test_function_without_a_rule_is_estimated_and_named(text: str, operation: str) -> None:
    c = random_matrix(3, 3, 4)
    env = environment({"C": c + c.mT, "v": random_matrix(3, 1, 5), "s": 0.5})
    found = derivative(parse(text), env)
    assert list(env.notes.estimated) == [operation]
    assert not math.isinf(as_ball(found).radius)


def test_function_without_a_rule_does_no_harm_beside_the_way() -> None:
    values = {"C": random_matrix(3, 3, 4), "v": random_matrix(3, 1, 5)}
    found = as_ball(certified("grad(rho(C)*norm(v)^2, v)", environment(values)))
    assert found.is_finite


def test_determinant_of_a_singular_matrix_is_estimated() -> None:
    env = environment({"C": torch.ones(2, 2, dtype=torch.float64)})
    derivative(parse("grad(det(C), C)"), env)
    assert "det" in env.notes.estimated


def test_second_derivatives_are_refused() -> None:
    with pytest.raises(UndifferentiableError, match="second derivatives"):
        at_point("jac(grad(norm(v)^2, v), v)", v=column(1.0, 2.0))


def test_a_jacobian_beyond_memory_is_refused() -> None:
    values = {"A": torch.ones(200, 60, dtype=torch.float64)}
    with pytest.raises(LimitError, match="A Jacobian would have"):
        derivative(parse("jac(A, A)"), environment(values))


def network(model: str, **changes: torch.Tensor | float):
    values: dict[str, torch.Tensor | float] = {
        "W": random_matrix(2, 3, 1).abs(),  # with X >= 0 every unit is active, and no kink is near
        "A": 0.1 * random_matrix(3, 3, 2),
        "gamma": 0.5,
        "b": random_matrix(3, 1, 3),
        "X": random_matrix(2, 2, 4).abs(),
        "y": random_matrix(2, 1, 5),
    }
    if model == "linear-implicit":
        values |= {"W": 0.1 * random_matrix(3, 3, 1), "U": random_matrix(3, 2, 6)}
    return environment({**values, **changes}, model=model, sizes={"N": 2, "d": 2, "m": 3})


def test_without_a_certain_contraction_nothing_is_known() -> None:
    env = network("linear-implicit", W=3 * torch.eye(3, dtype=torch.float64))
    found = as_ball(derivative(parse("grad(L, U)"), env))
    assert not found.is_finite
    assert any("contraction factor" in doubt for doubt in env.notes.unsure)
    assert any("derivative by U" in doubt for doubt in env.notes.unsure)
    env = network("implicit-relu", A=5 * torch.eye(3, dtype=torch.float64))
    with pytest.raises(OutsideClaimError) as stopped:
        derivative(parse("grad(L, A)"), env)
    assert not stopped.value.certain


def test_overflow_is_no_information() -> None:
    env = environment({"v": column(1e200, 1e200)})
    assert not as_ball(derivative(parse("jac(v*v'*v, v)"), env)).is_finite
    assert env.notes.unsure


def test_kink_inside_the_map_stops_the_evaluation() -> None:
    w = random_matrix(2, 3, 1)
    w[:, 0] = 0.0
    env = network("implicit-relu", W=w, X=torch.eye(2, dtype=torch.float64))
    with pytest.raises(OutsideClaimError) as stopped:
        derivative(parse("grad(L, W)"), env)
    assert stopped.value.certain
    assert as_ball(certified("grad(L, A)", env)).is_finite  # the unit is on for every A near by


def test_definitions_are_followed_and_computed_once() -> None:
    env = network("implicit-relu")
    text = "norm(yhat - y)"
    place = Position("", 1, 1)
    env.lets = {
        "distance": Formula("distance", text, parse(text), place),
        "half": Formula("half", "1/2", parse("1/2"), place),
    }
    found = as_ball(certified("grad(half*distance^2, A)", env))
    assert env.cache["yhat"] is evaluate(parse("yhat"), env)
    plain = as_ball(certified("grad(L, A)", network("implicit-relu")))
    assert torch.allclose(found.centre, plain.centre, rtol=1e-13, atol=0)


def test_step_index_is_a_number_in_a_derivative() -> None:
    env = environment({"v": column(1.0, 2.0)})
    found = derivative(parse("grad(k*sum(v), v)"), env, {"k": 3})
    assert as_ball(found).centre.flatten().tolist() == [3.0, 3.0]
    again = derivative(parse("grad(k*sum(v), v)"), env, {"k": 4})
    assert as_ball(again).centre.flatten().tolist() == [4.0, 4.0]


def test_time_limit_is_kept() -> None:
    env = network("implicit-relu")
    env.notes.deadline = 0.0
    with pytest.raises(DeadlineError):
        derivative(parse("grad(L, A)"), env)


def test_values_of_tied_variables_stay_apart() -> None:
    env = network("implicit-relu")
    moved = env.replaced({"b": env.variables["b"]})
    certified("grad(L, b)", env)
    assert env.derivatives is not None
    assert moved.derivatives is None
