"""Units near zero: which are fed, however small, and which are dead."""

from __future__ import annotations

import pytest
import torch
from dynamics_samples import copied, moved_along

from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.training import gradient_descent
from ntk_deq.equilibrium import warm as warm_solver
from ntk_deq.systems import ImplicitReLU
from ntk_deq.systems.compiled_maps import loss_maps
from ntk_deq.systems.loss_maps import AutodiffMaps, LayerMaps


def unrolled(model, X, y, parameters):
    """Gradients by automatic differentiation through the iteration, whose slopes are exact at any size."""
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    Z = model.initial_state(X)
    for _ in range(100):
        Z = torch.relu(model.gamma * Z @ leaves["A"] + torch.relu(X @ leaves["W"]))
    loss = (Z @ leaves["b"] - y).square().sum() / 2
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def apart(found, expected):
    return max(float((found[name] - expected[name]).norm()) for name in expected)


def chain(first: float, *more: tuple[int, int, float]) -> tuple[ImplicitReLU, torch.Tensor, torch.Tensor]:
    """Unit 0 feeds 1 by a small weight, and 1 feeds 2; unit 3 feeds itself, and its slow solve sets the error."""
    A, X = torch.zeros(4, 4, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    A[0, 1], A[1, 2], A[3, 3] = first, 1.0, 1.0
    for i, j, weight in more:
        A[i, j] = weight
    W = torch.tensor([[1.0, -1.0, -1.0, 1.0]], dtype=torch.float64)
    b = torch.tensor([1.0, 0.5, 2.0, 1.0], dtype=torch.float64)
    return ImplicitReLU(W=W, A=A, b=b, gamma=0.4), X, 0 * X[0]


@pytest.mark.parametrize("least_work", [0, 2**22])
@pytest.mark.parametrize("seed", [59, 40])
def test_units_fed_over_several_hops_of_tiny_weights_are_on(seed: int, least_work: int, monkeypatch) -> None:
    monkeypatch.setattr(warm_solver, "_LEAST_WORK", least_work)
    draw = torch.Generator().manual_seed(seed)
    model = ImplicitReLU.random(3, 5, generator=draw, norm_A=0.0)
    X = torch.randn(4, 3, generator=draw, dtype=torch.float64)
    y = torch.randn(4, generator=draw, dtype=torch.float64)
    run = gradient_descent(model, X, y, step=1e-5, steps=5, until=0.0)
    expected = copied(model)
    for _ in range(5):
        expected = moved_along(expected, unrolled(model, X, y, expected), 1e-5)
    assert run.error is not None
    assert apart(run.parameters, expected) < run.error < 1e-12


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("first", [1e-11, 1e-30])
@pytest.mark.parametrize("rtol", [1e-6, 1e-10, 1e-14])
def test_a_chain_of_doubtful_units_is_on(first: float, rtol: float, fused: bool, monkeypatch) -> None:
    if not fused:
        monkeypatch.setattr(ImplicitReLU, "single_layer", lambda self: None)
    problem = chain(first)
    point = GradientField(*problem, rtol=rtol).at(problem[0].parameters(), 0.0)
    assert apart(point.gradients, unrolled(*problem, problem[0].parameters())) < 100 * rtol
    assert bool((point.state > 0).all())


@pytest.mark.parametrize(("back", "on"), [(-1.04, True), (-1.06, False)])
def test_a_unit_held_down_by_what_grows_up_slowly(back: float, on: bool) -> None:
    """Unit 1 feeds itself, to 1.4 times what it has at first, and only then holds unit 2 down, or not quite."""
    model, X, y = chain(1e-11, (1, 1, 0.75), (1, 2, back), (0, 2, 0.6e-11))
    point = GradientField(model, X, y, rtol=1e-8).at(model.parameters(), 0.0)
    assert apart(point.gradients, unrolled(model, X, y, model.parameters())) < 1e-6
    assert bool(point.state[0, 2] > 0) is on


def test_the_bound_on_the_nearest_pre_activation_skips_the_look(relu, monkeypatch) -> None:
    model, X, y = relu
    maps = loss_maps(model, X, y)
    assert isinstance(maps, LayerMaps)
    maps.prepare(model.parameters())
    Z, out = model.initial_state(X), model.initial_state(X)
    for _ in range(60):
        maps.step(Z, out)
        Z, out = out, Z
    nearest = float((model.gamma * Z @ model.A + torch.relu(X @ model.W)).abs().min())
    looks = []
    monkeypatch.setattr(maps, "step_of_rows", lambda rows: looks.append(rows) or AutodiffMaps.step_of_rows(plain, rows))
    plain = AutodiffMaps(model, X, y)
    plain.prepare(model.parameters())
    assert maps.settle(Z, nearest / 8, 0.5) == 0.0
    assert maps.settle(Z, 2 * nearest, 0.5) > 0
    assert len(looks) == 1


def test_pre_activations_are_those_of_the_last_evaluation_of_each_row(relu) -> None:
    model, X, y = relu
    maps = loss_maps(model, X, y)
    maps.prepare(model.parameters())
    Z, rows = torch.ones(4, 7, dtype=X.dtype), torch.tensor([2, 0])
    maps.step(Z, torch.empty_like(Z))
    maps.step_of_rows(rows)(3 * Z[rows], torch.empty_like(Z[rows]))
    maps.step_of_rows(rows[:1])(5 * Z[:1], torch.empty_like(Z[:1]))
    factors = torch.tensor([[3.0], [1.0], [5.0], [1.0]], dtype=X.dtype)
    expected = model.gamma * factors * Z @ model.A + torch.relu(X @ model.W)
    torch.testing.assert_close(maps._margin(Z), expected)
