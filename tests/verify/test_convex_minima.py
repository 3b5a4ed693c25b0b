"""Minima of formulas: certified balls hold what brute force and closed forms give, kinks included."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import torch
from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified.precise import as_ball, precise, working_precision
from ntk_deq.evaluation.convex.certificate import CLOSE, certified_minimum, followed_minimum
from ntk_deq.evaluation.convex.curvature import curvatures, second_differences
from ntk_deq.evaluation.convex.operators import global_minimum
from ntk_deq.evaluation.convex.points import At, Problem
from ntk_deq.evaluation.convex.recession import Growth
from ntk_deq.evaluation.convex.tensors import COARSE, lowest_point
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.equilibria import float_centre, tensor_names
from ntk_deq.evaluation.floats import tensor_value
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.parser import parse
from ntk_deq.language.types import SCALAR, matrix
from ntk_deq.language.typing import infer

BODIES = (
    "sum(abs(A*u - b)) + fro(u - x)^2/(2*m)",
    "sum(abs(u)) + fro(u - x)^2/(2*m)",
    "norm(A*u - b) + fro(u - x)^2/(2*m)",
    "max(A*u - b) + fro(u - x)^2/(2*m)",
    "sum(relu(A*u - b)) + norm(u) + fro(u - x)^2/(2*m)",
    "sum(primitive(relu, A*u)) + sum(abs(u)) + fro(u - x)^2/(2*m)",
    "log(sum(exp(A*u - b))) + max(u) + fro(u - x)^2/(2*m)",
    "sum(softplus(A*u)) + abs(b'*u) + fro(u - x)^2/(2*m)",
    "fro(A*u - b)^2/2 + sum(relu(u)) - x'*u + fro(u)^2/20",
    "sum(huber(A*u - b)) + norm(u - x) + fro(u)^2/(2*m)",
    "sum(exp(A*u)) + fro(u - x)^2/(2*m)",
    "max(0, norm(u) - 1) + fro(u - x)^2/(2*m)",
)


def problem(body: str, shape: tuple[int, int] | None, bits: int | None = None, **values: object) -> Problem:
    variables: dict[str, Scalar | Matrix] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            ball = ct.ball(value) if bits is None else as_ball(precise(value, 0.0))
            variables[name] = Matrix(ball, float(torch.linalg.vector_norm(value)))
        else:
            variables[name] = Scalar(arb(value), abs(float(value)))
    types = {n: SCALAR if isinstance(v, Scalar) else matrix(*v.ball.shape) for n, v in variables.items()}
    types["u"] = SCALAR if shape is None else matrix(*shape)
    env = Environment(None, {}, variables, {}, Notes(), PROVIDERS, precision=bits)
    return Problem(env, infer(parse(body), types, sizes={}), "u", shape)


def drawn(body: str, seed: int) -> tuple[tuple[int, int], dict[str, object]]:
    generator = torch.Generator().manual_seed(seed)
    n = 1 + seed % 3

    def draw(*shape: int) -> torch.Tensor:
        value = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return (value * 2).round() / 2 if seed % 2 else value  # halves lie on kinks

    given = {"x": draw(n, 1), "A": draw(n, n), "b": draw(n, 1), "m": (0.25, 1.0, 2.0)[seed % 3]}
    used = {node.name for node in parse(body).walk()}
    return (n, 1), {name: value for name, value in given.items() if name in used}


@pytest.mark.parametrize("bits", [None, 192])
@pytest.mark.parametrize("body", BODIES)
def test_no_point_is_lower_than_a_certified_minimum(body: str, bits: int | None) -> None:
    for seed in range(4 if bits is None else 1):
        shape, values = drawn(body, seed)
        inside = working_precision(bits) if bits else contextlib.nullcontext()
        with inside:
            task = problem(body, shape, bits, **values)
            names = tensor_names(task.env)
            guess, _ = lowest_point(task.body, "u", shape, names, {}, None, COARSE)
            found = certified_minimum(task, guess, CLOSE)
            value = float(found.value.ball.mid())
            assert isinstance(found.point, Matrix)
            point, radius = float_centre(found.point.ball), found.point.ball.radius
        assert not found.reason
        generator = torch.Generator().manual_seed(seed)
        for scale in (1.0, 1e-2, 1e-4, 1e-6):
            near = point + scale * torch.randn(200, *shape, generator=generator, dtype=torch.float64)
            there = replace(names, variables={**names.variables, "u": near}, batch=(200,))
            lower = tensor_value(task.body, there).reshape(-1) - value
            assert float(lower.min()) > -1e-12 * (1 + abs(value))
        here = replace(names, variables={**names.variables, "u": point})
        assert float(tensor_value(task.body, here)) - value < (10 * radius + 1e-12) * (1 + abs(value))


@pytest.mark.parametrize(
    ("body", "values", "point"),
    [
        ("abs(u) + (u - x)^2/2", {"x": 3.0}, 2.0),
        ("abs(u) + (u - x)^2/2", {"x": 0.5}, 0.0),
        ("relu(u) + (u - x)^2/2", {"x": 1.0}, 0.0),  # where the slope is at its end
        ("huber(u) + (u - x)^2/2", {"x": 1.0}, 0.5),
        ("max(u, 2*u - 1) + (u - x)^2/2", {"x": 2.5}, 1.0),
    ],
)
def test_closed_forms_are_found_exactly(body: str, values: dict[str, float], point: float) -> None:
    task = problem(body, None, **values)
    found = followed_minimum(task, torch.tensor([values["x"]], dtype=torch.float64))
    if found is None:  # a largest of several is held by hand
        found = certified_minimum(task, torch.tensor([point + 1e-8], dtype=torch.float64))
    assert not found.reason
    assert isinstance(found.point, Scalar)
    assert found.point.ball.contains(point)
    assert float(found.point.ball.rad()) < 1e-15


def test_a_function_that_is_not_convex_is_not_certified() -> None:
    for body in ("-abs(u) + u^2", "sin(3*u) + u^2/2", "sum(u) - sum(u)*sum(u)"):
        shape = (1, 1) if "sum" in body else None
        found = certified_minimum(problem(body, shape), torch.tensor([0.5], dtype=torch.float64))
        assert found.reason


def test_curvatures_add_up_to_weak_and_strong_convexity() -> None:
    at = At(task := problem("cos(u) + u^2/(2*m)", None, m=0.25), task.valued([arb(0.3)]))
    bounds = curvatures(at.tape, at.root, at.leaf, at.shapes)
    assert bounds.low == 3
    assert bounds.high == 5
    assert second_differences("softplus") == (0.0, 0.25)
    assert second_differences("sign")[1] == float("inf")


@pytest.mark.parametrize(
    ("body", "ray", "rate"),
    [
        ("abs(u) - 2*u", 1.0, -1.0),
        ("softplus(u) - 2*u", 1.0, -1.0),
        ("relu(3 - u) - u", -1.0, 2.0),
        ("log(sum(exp([u; -u]))) - 2*u", 1.0, -1.0),
    ],
)
def test_growth_along_a_ray(body: str, ray: float, rate: float) -> None:
    task = problem(body, None)
    at = At(task, task.valued([arb(0.3)]))
    assert Growth(at.leaf, [ray], at.shapes).of(at.root) == rate


def test_growth_is_unknown_where_infinities_meet() -> None:
    task = problem("u^2 - exp(u)", None)
    at = At(task, task.valued([arb(0.3)]))
    assert Growth(at.leaf, [1.0], at.shapes).of(at.root).is_nan()


@pytest.mark.parametrize(
    ("body", "guess", "point", "value"),
    [("u^2 + 3*sin(u)^2", 0.1, 0.0, 0.0), ("u^2 + 10*sin(u)", -1.3, -1.3064400083695, -7.945823375615283)],
)
def test_branch_and_bound_finds_the_lowest_valley(body: str, guess: float, point: float, value: float) -> None:
    found = global_minimum(problem(body, None), guess)
    assert found is not None
    assert isinstance(found.point, Scalar)
    assert abs(float(found.point.ball.mid()) - point) < 1e-12
    assert abs(float(found.value.ball.mid()) - value) < 1e-12
    assert found.alone


def test_two_lowest_valleys_are_no_single_point() -> None:
    found = global_minimum(problem("(u^2 - 1)^2/4 + sin(u)*0", None), 1.0)
    assert found is None or not found.alone
