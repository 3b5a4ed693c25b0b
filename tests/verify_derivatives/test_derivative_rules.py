"""Every rule against the truth at 2000 bits, against automatic differentiation, and with bounds weakened on purpose."""

import random

import pytest
import torch
from derivative_harness import as_ball, certified, environment, excess, random_matrix, relative_radius, truth

from ntk_deq.evaluation import derivatives as operator_rules
from ntk_deq.evaluation.derivatives import Cotangent, minus, times_left, times_right
from ntk_deq.evaluation.derivatives.derivative import differentiate
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.evaluation.functions import twins as function_rules
from ntk_deq.language.parser import parse

FORMULAS = (
    "-A",
    "A + B",
    "A - B",
    "2*A - A''",
    "A'*B",
    "A*B'",
    "A*A'*A",
    "s*A",
    "A*s",
    "A/s",
    "s/t",
    "s*t*s",
    "(v'*v)*A",
    "A*(w'*w)",
    "v'*v",
    "s^3",
    "s^-2",
    "s^(1/2)",
    "s^t",
    "dot(v, v)^s",
    "C^3",
    "C^-2",
    "C^0 + C",
    "A'",
    "trace(C)",
    "det(C)",
    "inv(C)",
    "trace(A'*B)*inv(C)",
    "log(det(C)^2)",
    "sum(A)",
    "fro(A)",
    "fro(A)^2",
    "fro(A)^3",
    "norm(v)",
    "norm(v')^2",
    "norm(v)^4",
    "norm(v)^-1",
    "norm(s)",
    "norm(A)",
    "norm(inv(C))",
    "sigma_max(A)",
    "sigma_max(v)",
    "sigma_min(A)",
    "sigma_min(C)",
    "norm1(A)",
    "norminf(A)",
    "max(A)",
    "min(A)",
    "max(A)*min(B) + norm1(C)",
    "max(s, t, 1/10)",
    "min(s, t)",
    "abs(A)",
    "abs(s)",
    "relu(A)",
    "relu(s)",
    "relu(A*A' - 1/3*ones(3, 3))*A",
    "hadamard(step(A), B) + A",
    "vec(A)",
    "diag(v)",
    "diag(C)",
    "kron(A, B)",
    "kron(A, A)",
    "kron(v', A)",
    "kron(I(2), A)*vec(A'*A)",
    "hadamard(A, B)",
    "hadamard(A, A)",
    "dot(v, v)",
    "dot(v, A*w)",
    "sqrt(s)",
    "exp(s)*A",
    "exp(trace(A'*A)/10)",
    "log(s)",
    "sum(v)/norm(v)",
    "zeros(3, 2) + A",
)
VARIABLES = ("A", "C", "s", "v")


def draw(seed: int, scale=lambda: 1.0):
    """Return an environment of plain variables without a model."""
    shapes = {"A": (3, 2), "B": (3, 2), "C": (3, 3), "v": (3, 1), "w": (2, 1)}
    values: dict[str, torch.Tensor | float] = {
        name: random_matrix(*shape, seed * 10 + k) * scale() for k, (name, shape) in enumerate(shapes.items())
    }
    return environment({**values, "s": 0.7 * scale(), "t": 1.3})


@pytest.mark.parametrize("formula", FORMULAS)
def test_rule_contains_the_truth_and_is_sharp(formula: str) -> None:
    for seed, name in enumerate(VARIABLES):
        env = draw(seed + 1)
        text = f"jac({formula}, {name})"
        found = certified(text, env)
        assert excess(found, truth(text, env)) <= 1
        # The worst of the conditions of these formulas is about 1e3, times 2^-53 and a few operations.
        assert as_ball(found).radius <= 1e-11 * max(1.0, as_ball(found).fro)


@pytest.mark.parametrize("formula", FORMULAS)
def test_rule_agrees_with_automatic_differentiation(formula: str) -> None:
    for seed, name in enumerate(VARIABLES):
        env = draw(seed + 5)
        found = as_ball(certified(f"jac({formula}, {name})", env))
        other = differentiate("jac", parse(formula), name, tensor_names(env))
        # Rounding of the other route: 1e-11 as above.
        assert torch.allclose(found.centre, other, rtol=1e-11, atol=1e-11 * max(1.0, found.fro))


def test_rules_hold_over_two_hundred_decades() -> None:
    generator = random.Random(5)
    known = 0
    for seed in range(250):
        env = draw(seed, lambda: 10.0 ** generator.choice((-100, -30, -8, 0, 8, 30, 100)))
        text = f"jac({generator.choice(FORMULAS)}, {generator.choice(VARIABLES)})"
        found = certified(text, env)
        if as_ball(found).is_finite:
            known += 1
            assert excess(found, truth(text, env)) <= 1, text
    assert known >= 230  # products beyond 1e308 are honestly unknown


def test_gradient_has_the_shape_of_the_variable() -> None:
    env = draw(3)
    assert as_ball(certified("grad(trace(A'*B), A)", env)).centre.equal(env.variables["B"].ball.centre)
    assert certified("grad(s^2*t, s)", env).ball.overlaps((1.4 * 1.3) * certified("grad(s, s)", env).ball)
    assert as_ball(certified("grad(s^2, v)", env)).centre.equal(torch.zeros(3, 1, dtype=torch.float64))


def test_jacobian_of_a_transpose_is_the_commutation_matrix() -> None:
    env = draw(3)
    found = as_ball(certified("jac(A', A)", env))
    from ntk_deq.certified import commutation

    assert found.is_exact
    assert found.centre.equal(commutation(3, 2).centre)


def test_square_of_a_length_is_differentiable_at_zero() -> None:
    env = environment({"v": torch.zeros(3, 1, dtype=torch.float64)})
    found = as_ball(certified("grad(norm(v)^2/2, v)", env))
    assert found.is_exact
    assert not found.centre.any()


def violations(formula: str, name: str) -> int:
    """Count the seeds at which a derivative's ball misses the truth."""
    text = f"jac({formula}, {name})"
    pairs = [(certified(text, env), truth(text, env)) for env in map(draw, range(1, 6))]
    return sum(excess(found, true) > 1 for found, true in pairs)


def test_harness_catches_a_lost_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert violations("inv(C)", "C") == 0

    def untransposed(node, cot, place, notes):
        value = node.matrix()
        return minus(times_right(times_left(value, cot, node.shape), node.shape, value))

    monkeypatch.setitem(function_rules.RULES, "inv", untransposed)
    assert violations("inv(C)", "C") == 5


def test_harness_catches_a_wrong_order_of_vec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(function_rules.RULES, "vec", lambda node, cot, place, notes: cot)
    assert violations("vec(A)", "A") == 5


def test_harness_catches_a_factor_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "squared length"
    halved = lambda node, cot, place, notes: operator_rules.outer(cot, node.args[0].matrix())  # noqa: E731
    monkeypatch.setitem(function_rules.RULES, name, halved)
    assert violations("fro(A)^2", "A") == 5


@pytest.mark.parametrize(("formula", "rule"), [("inv(C)", "inv"), ("fro(A)", "fro"), ("norm(A)", "norm")])
def test_harness_catches_a_missing_radius(formula: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = function_rules.RULES[rule]

    def bare(node, cot, place, notes):
        share = whole(node, cot, place, notes)
        return Cotangent(type(share.ball)(share.ball.centre), share.scale)

    name = formula[-2]
    assert violations(formula, name) == 0
    monkeypatch.setitem(function_rules.RULES, rule, bare)
    assert violations(formula, name) > 0


def test_radius_of_the_variables_counts() -> None:
    values = {"A": random_matrix(3, 2, 1), "C": random_matrix(3, 3, 2)}
    wide, sharp = (environment(values, radius=radius) for radius in (1e-6, 0.0))
    for text in ("jac(inv(C)*A, C)", "jac(A*A'*A, A)", "grad(fro(A), A)", "grad(norm(C), C)"):
        inside = truth(text, environment({k: v + 1e-7 for k, v in values.items()}))
        assert excess(certified(text, wide), inside) <= 1
        assert excess(certified(text, sharp), inside) > 1
        assert relative_radius(certified(text, wide)) < 1e-2
