"""Solves along a run that single rows, slow convergence, or the range of the floats make hard."""

from __future__ import annotations

import math

import pytest
import torch
from dynamics_samples import copied

from ntk_deq.dynamics.field import FieldPoint, GradientField, NotFiniteError, WellPosednessError
from ntk_deq.dynamics.record import RunStatus
from ntk_deq.dynamics.training import gradient_descent
from ntk_deq.equilibrium import warm as warm_solver
from ntk_deq.errors import EquilibriumError
from ntk_deq.systems import ImplicitReLU, LinearImplicit

ONE = torch.ones(1, 1, dtype=torch.float64)


@pytest.fixture
def by_rows(monkeypatch):
    monkeypatch.setattr(warm_solver, "_LEAST_WORK", 0)


def one_scale(q: float, N: int, dtype: torch.dtype = torch.float64):
    """A linear model whose contraction factor q is that of a single direction, with data."""
    draw, m = torch.Generator().manual_seed(1), 16
    Q, _ = torch.linalg.qr(torch.randn(m, m, generator=draw, dtype=torch.float64))
    W = q * Q @ torch.diag(torch.tensor([1.0] + [0.3] * (m - 1), dtype=torch.float64)) @ Q.T
    U, b = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((m, 3), (m,)))
    X, y = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((N, 3), (N,)))
    return LinearImplicit(W=W.to(dtype), U=U.to(dtype), b=b.to(dtype)), X.to(dtype), y.to(dtype)


def test_a_row_whose_rounding_is_more_than_its_share_is_solved() -> None:
    draw = torch.Generator().manual_seed(0)
    model = LinearImplicit.random(4, 64, generator=draw, norm_W=0.9, dtype=torch.float32)
    X, y = torch.randn(2048, 4, generator=draw), torch.randn(2048, generator=draw)
    X[7] *= 1e3
    y[7] *= 1e3
    assert gradient_descent(model, X, y, step=1e-13, steps=2).status is RunStatus.STEPS


@pytest.mark.parametrize("newton", [True, False])
def test_single_rows_that_take_long_are_left_to_newton(by_rows, monkeypatch, newton: bool) -> None:
    model, X, y = one_scale(0.999, 40)
    if not newton:
        monkeypatch.setattr("ntk_deq.systems.loss_maps.NEWTON_ENTRIES", 0)
    field, parameters = GradientField(model, X, y, rtol=1e-10 if newton else 1e-6, max_steps=20_000), copied(model)
    for k in range(4):
        X.select(0, 3).mul_(1 if k < 2 else 1.5)
        point = field.at(parameters, k)
        exact = X @ parameters["U"].T @ torch.linalg.inv(torch.eye(16, dtype=X.dtype) - parameters["W"]).T
        assert float((point.state - exact).norm() / exact.norm()) < (1e-9 if newton else 2e-3)
    assert point.forward_steps < (100 if newton else 1000)


def test_rows_that_stop_getting_better_are_given_back(by_rows) -> None:
    model, X, y = one_scale(0.5, 40)
    field, parameters = GradientField(model, X, y, rtol=1e-10), copied(model)
    field.at(parameters, 0)
    solver = field._forward
    solver._rows.zero_().index_fill_(0, torch.tensor([3]), 1.0)
    stuck = [0]

    def step(values, out):
        stuck[0] += 1
        out.copy_(-values)

    image = solver.history.states[0].clone()
    _, residual, made = solver._finish(image, lambda rows: step, 1e-12, 1, 10_000)
    assert residual is None
    assert 0 < stuck[0] < 10_000
    assert made == stuck[0] / 40


def test_a_norm_that_overflows_is_no_convergence() -> None:
    model, X, y = one_scale(0.9, 5)
    large = LinearImplicit(W=model.W, U=model.U, b=1e3 * model.b)
    with pytest.raises(NotFiniteError, match="adjoint or its norm became NaN or Inf"):
        GradientField(large, X, 1e152 * y).at(large.parameters(), 0)


def test_a_norm_that_underflows_is_no_convergence(by_rows) -> None:
    tiny = 1e-170 * torch.ones(8, 1, dtype=torch.float64)
    model = LinearImplicit(W=ONE / 2, U=ONE, b=ONE[0])
    point = GradientField(model, tiny, torch.ones(8, dtype=torch.float64)).at(model.parameters(), 0)
    assert torch.allclose(point.state / tiny, 2 * torch.ones_like(tiny), rtol=1e-9)
    assert point.relative_error < 1e-8


@pytest.mark.parametrize(
    ("entry", "error", "expected"), [(1e-200, 1e-210, 1e-10), (1e200, 1e190, 1e-10), (math.inf, 1.0, math.inf)]
)
def test_relative_error_at_any_size(entry: float, error: float, expected: float) -> None:
    point = FieldPoint(ONE[0, 0], ONE[0], ONE, ONE, {"W": entry * ONE}, 1, 1, gradient_error=error)
    assert point.relative_error == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["W", "U", "b"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_parameters_that_are_no_numbers(name: str, value: float) -> None:
    model, X, y = one_scale(0.5, 4)
    field, parameters = GradientField(model, X, y), copied(model)
    for wrong in (False, True):
        if wrong:
            parameters[name].view(-1)[1] = value
            with pytest.raises(NotFiniteError):
                field.at(parameters, 1)
        else:
            field.at(parameters, 0)


def test_a_step_to_infinity_is_not_finite() -> None:
    model, X, y = one_scale(0.5, 4)
    assert gradient_descent(model, X, 1e3 * y, step=8e307, steps=3).status is RunStatus.NOT_FINITE


def test_a_weight_that_is_only_large_is_ill_posed() -> None:
    model, X, y = one_scale(0.5, 4)
    field, parameters = GradientField(model, X, y), copied(model)
    field.at(parameters, 0)
    parameters["W"] *= 1e100
    with pytest.raises(WellPosednessError):
        field.at(parameters, 1)


def test_a_spent_budget_of_steps_is_an_error(by_rows, monkeypatch) -> None:
    monkeypatch.setattr("ntk_deq.systems.loss_maps.NEWTON_ENTRIES", 0)
    model, X, y = one_scale(0.9, 40)
    field, parameters = GradientField(model, X, y), copied(model)
    field.at(parameters, 0)
    field._forward._max_steps = 20
    X.select(0, 3).mul_(1.5)
    with pytest.raises(EquilibriumError, match="max_steps"):
        field.at(parameters, 1)


@pytest.mark.parametrize("size", [1e-180, 1e180])
def test_inputs_of_any_size(size: float) -> None:
    model, X = LinearImplicit(W=ONE / 2, U=ONE.expand(1, 2) / size / 2, b=ONE[0]), ONE.expand(3, 2) * size
    point = GradientField(model, X, ONE[0].expand(3)).at(model.parameters(), 0)
    assert point.gradients["W"].item() == pytest.approx(3 * 2 * 2, rel=1e-9)
    assert (point.gradients["U"] / size).tolist() == [pytest.approx([3 * 2, 3 * 2], rel=1e-9)]
    assert 0 <= point.relative_error < 1e-8


def test_data_that_require_gradients_are_taken_as_they_are() -> None:
    model, X, y = one_scale(0.5, 4)
    expected = GradientField(model, X, y).at(model.parameters(), 0)
    point = GradientField(model, X.clone().requires_grad_(), y.clone().requires_grad_()).at(model.parameters(), 0)
    for name, value in point.gradients.items():
        assert torch.equal(value, expected.gradients[name])
        assert not value.requires_grad


@pytest.mark.parametrize("max_steps", [33, 40, 63, 64, 1000])
def test_a_newton_step_counts_whatever_is_left_of_the_budget(max_steps: int) -> None:
    model, X, y = one_scale(0.9999, 4)
    point = GradientField(model, X, y, max_steps=max_steps).at(model.parameters(), 0.0)
    exact = X @ torch.linalg.solve(torch.eye(16, dtype=torch.float64) - model.W, model.U).T
    assert point.forward_steps == 33  # 32 of the iteration, Newton's, and one that checks it
    assert torch.allclose(point.state, exact, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_contraction_bound_keeps_up_with_rounding(dtype: torch.dtype) -> None:
    """Steps of 0.55 units in the last place of A are rounded to a whole one, in one direction."""
    one = torch.ones(1, 1, dtype=dtype)
    model, y = ImplicitReLU(W=one, A=one / 2, b=one[0], gamma=0.9), 100 * one[0]
    slope = float(GradientField(model, one, y, rtol=1e-6).at(model.parameters(), 0.0).gradients["A"])
    bounds: dict[int, float] = {}
    step = 0.55 * torch.finfo(dtype).eps / 2 / abs(slope)
    run = gradient_descent(
        model,
        one,
        y,
        step=step,
        steps=2000,
        until=0.0,
        rtol=1e-6,
        on_step=lambda k, p: bounds.update({k: p.contraction}),
    )
    q = 0.9 * float(run.parameters["A"])
    assert q > 0.45  # it has moved
    assert q <= bounds[run.steps] < q + 3000 * torch.finfo(dtype).eps
