"""Bounds on curvature and on differences of the gradient against automatic differentiation within the ball."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ntk_deq.certified.dense import Ball, ball
from ntk_deq.certified.extremes import sigma_max
from ntk_deq.certified.scalar import upper
from ntk_deq.dynamics.proven import CertifiedPoint, Problem
from ntk_deq.dynamics.proven.curvature import Jump, Reach, Sizes, expansion, gain, hessian, is_small
from ntk_deq.dynamics.proven.descent import CertifiedRun, kernel_gain
from ntk_deq.dynamics.proven.operations import (
    CarriedEigenvalues,
    CarriedNorm,
    CarriedStretch,
    multiple,
    sample_inverses,
)
from ntk_deq.errors import ArgumentError
from ntk_deq.systems import EquilibriumModel, ImplicitReLU, LinearImplicit

Found = tuple[Problem, CertifiedPoint, Sizes, Reach, Jump]


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def drawn(kind: str, seed: int, N: int = 3, d: int = 2, m: int = 4) -> tuple[EquilibriumModel, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    family = {"relu": ImplicitReLU, "linear": LinearImplicit}[kind]
    return family.random(d, m, generator=g), normal(g, N, d), 2 * normal(g, N)


def looked(model: EquilibriumModel, X: Tensor, y: Tensor, error: float, off: float = 0.0) -> Found:
    """Return everything that is known in a ball of parameters around a model, for data in a ball that holds X and y."""
    form = model.single_layer()
    assert form is not None
    g, wide = torch.Generator().manual_seed(7), off * (1 + 1e-12)
    shifts = [normal(g, *data.shape) for data in (X, y)]
    near = [data + off * shift / shift.norm() for data, shift in zip((X, y), shifts, strict=True)]
    inputs = ball(near[0], wide)
    problem = Problem(form, inputs, upper(sigma_max(inputs)), ball(near[1], wide), 1e-15)
    parameters = {name: ball(value) for name, value in model.parameters().items()}
    run = CertifiedRun(problem, 0.1, 0.0, 0.1, parameters, dict.fromkeys(parameters, error))
    known, reason = run.look(0)
    assert known is not None, reason
    return problem, *run._found


def nearby(model: EquilibriumModel, error: float, seed: int) -> EquilibriumModel:
    """Return a model inside the ball, close to its boundary."""
    g = torch.Generator().manual_seed(seed)
    moves = {name: normal(g, *value.shape) for name, value in model.parameters().items()}
    size = math.sqrt(sum(float((move * move).sum()) for move in moves.values()))
    return model.with_parameters(
        {name: value + moves[name] * (0.999 * error / size) for name, value in model.parameters().items()}
    )


def order(model: EquilibriumModel) -> list[str]:
    form = model.single_layer()
    assert form is not None
    return list(form.names)


def residuals(model: EquilibriumModel, X: Tensor, y: Tensor):
    """Return the residual as a function of the flat parameters in the order P, S, b, and the present ones."""
    values = model.parameters()
    transposed = isinstance(model, LinearImplicit)

    def stored(value: Tensor) -> Tensor:
        return value.mT if transposed and value.dim() == 2 else value

    names = order(model)
    flat = torch.cat([stored(values[name]).flatten() for name in names])
    shapes = [stored(values[name]).shape for name in names]

    def residual(point: Tensor) -> Tensor:
        parts = point.split([shape.numel() for shape in shapes])
        p = {name: stored(part.reshape(shape)) for name, part, shape in zip(names, parts, shapes, strict=True)}
        Z = model.initial_state(X)
        for _ in range(70):
            Z = model.step(Z, X, p)
        return model.readout(Z, p) - y

    return residual, flat


def derivatives(model: EquilibriumModel, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Jacobian of the predictions and the Hessian of the loss by unrolling."""
    residual, flat = residuals(model, X, y)
    J = torch.func.jacrev(residual)(flat)
    H = torch.func.hessian(lambda point: (residual(point) ** 2).sum() / 2)(flat)
    return J, H


def gradient_parts(model: EquilibriumModel, flat: Tensor) -> list[Tensor]:
    return list(flat.split([model.parameters()[name].numel() for name in order(model)]))


CASES = [("relu", 1), ("relu", 2), ("linear", 1), ("linear", 2)]


@pytest.mark.parametrize(("kind", "seed"), CASES)
@pytest.mark.parametrize(("error", "off"), [(0.0, 0.0), (1e-5, 0.0), (0.0, 1e-5)])
def test_the_hessian_ball_holds_the_hessians_of_the_ball(kind, seed, error, off):
    model, X, y = drawn(kind, seed)
    problem, point, sizes, far, jump = looked(model, X, y, error, off)
    assert jump.uncertain == 0
    assert is_small(point)
    weight = multiple(problem.form.factor, Ball(point.weight.centre, sizes.errors[0]))
    found = hessian(problem, point, far, sample_inverses(weight, point.slopes))
    assert torch.equal(found.centre, found.centre.mT)
    assert found.radius < (1e-10 if error == off == 0 else 1.0)
    low, high = CarriedEigenvalues().bound(found)
    for other in range(3):
        H = derivatives(nearby(model, error, other), X, y)[1]
        gap = float(torch.linalg.matrix_norm(H - found.centre))
        assert gap <= found.radius + 1e-11 * float(torch.linalg.matrix_norm(H))
        values = torch.linalg.eigvalsh(H)
        assert low <= float(values[0]) + 1e-9
        assert float(values[-1]) <= high + 1e-9


@pytest.mark.parametrize(("kind", "seed"), CASES)
@pytest.mark.parametrize(("error", "off"), [(0.0, 0.0), (1e-3, 0.0), (0.0, 1e-3)])
def test_curvature_and_gain_bound_those_of_the_ball(kind, seed, error, off):
    model, X, y = drawn(kind, seed)
    problem, point, sizes, far, jump = looked(model, X, y, error, off)
    assert jump.uncertain == 0
    weight = multiple(problem.form.factor, Ball(point.weight.centre, sizes.errors[0]))
    stretches = CarriedStretch().bounds(weight, point.slopes, point.stretch)
    sharp = expansion(problem, point, sizes, far, stretches)
    coarse = expansion(problem, point, sizes, far, torch.full_like(stretches, point.stretch))
    quick, exact = gain(problem, sizes, far), kernel_gain(problem, point, far, CarriedNorm())
    for other in range(3):
        J, H = derivatives(nearby(model, error, other), X, y)
        K = H - J.T @ J
        assert float(torch.linalg.matrix_norm(K, ord=2)) <= sharp + 1e-10
        assert float(torch.linalg.matrix_norm(J, ord=2)) ** 2 <= min(quick, exact) + 1e-10
    assert sharp <= coarse * (1 + 1e-12)
    assert exact <= quick * (1 + 1e-6)
    if error == off == 0:
        assert exact == pytest.approx(float(torch.linalg.matrix_norm(J, ord=2)) ** 2, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_amplification_is_bounded_for_every_sample(seed):
    g = torch.Generator().manual_seed(seed)
    L, carried, m = normal(g, 6, 6), CarriedStretch(), 6
    L = L * (0.8 / torch.linalg.matrix_norm(L, ord=2))
    for step in range(20):
        slopes = (normal(g, 4, 6) > 0).double()
        bounds = carried.bounds(Ball(L, 1e-6), slopes, 1 / (1 - 0.85))
        unit = torch.eye(m, dtype=torch.float64)
        true = torch.stack([torch.linalg.inv(unit - L * row) * row[:, None] for row in slopes])
        norms = torch.linalg.matrix_norm(true, ord=2)
        assert bool((norms <= bounds).all())
        if step == 0:
            assert bool((bounds < 1.5 * norms + 0.1).all())
            assert 1 <= carried.inversions <= 4
        L = L + 1e-3 * normal(g, 6, 6)
    assert carried.inversions < 80  # the pace does not allow every new pattern


@pytest.mark.parametrize(("error", "off"), [(1e-4, 0.0), (1e-2, 0.0), (1e-4, 1e-3), (0.0, 1e-2)])
@pytest.mark.parametrize("seed", range(4))
def test_differences_of_gradients_are_bounded_across_kinks(seed, error, off):
    model, X, y = drawn("relu", seed, N=4, m=6)
    assert isinstance(model, ImplicitReLU)
    _, point, _, far, jump = looked(model, X, y, error, off)
    names = order(model)
    here = [point.gradients[name].centre.flatten() for name in names]
    for other in range(10):
        there = nearby(model, error, other)
        residual, flat = residuals(there, X, y)
        g = torch.func.grad(lambda point, f=residual: (f(point) ** 2).sum() / 2)(flat)
        for at, part in enumerate(gradient_parts(there, g)):
            gap = float(torch.linalg.vector_norm(part - here[at]))
            known = far.gradients[at] + jump.gradients[at] + point.gradients[names[at]].radius
            assert gap <= known + 1e-9
        Z = there.initial_state(X)
        for _ in range(100):
            Z = there.step(Z, X)
        assert float(torch.linalg.matrix_norm(Z - point.state.centre)) <= far.state + point.state.radius + 1e-10
        residuals_apart = float(torch.linalg.vector_norm(Z @ there.b - y - point.residual.centre[:, 0]))
        assert residuals_apart <= far.residual + point.residual.radius + 1e-10
    if error == 1e-2:
        assert jump.uncertain > 0


def test_inverses_say_nothing_where_there_is_none():
    one = torch.ones(1, 1, dtype=torch.float64)
    assert sample_inverses(Ball(one), one).radius == math.inf
    assert sample_inverses(Ball(0.5 * one, 0.6), one).radius == math.inf


@pytest.mark.parametrize("rows", [1, 4])
def test_carried_norms_hold_along_a_path(rows):
    g = torch.Generator().manual_seed(3)
    carried, matrix = CarriedNorm(0.2), normal(g, rows, 5)
    for _ in range(50):
        low, high = carried.bound(Ball(matrix, 1e-9))
        norm = float(torch.linalg.matrix_norm(matrix, ord=2))
        assert low <= norm * (1 + 1e-14)
        assert norm <= high * (1 + 1e-14)
        matrix = matrix + 0.02 * normal(g, rows, 5)
    assert carried.decompositions <= (0 if rows == 1 else 25)
    zero = CarriedNorm().bound(Ball(torch.zeros(3, 3, dtype=torch.float64)))
    assert zero == (0.0, 0.0)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_a_share_outside_of_its_range_is_refused(share):
    with pytest.raises(ArgumentError, match="`share` of CarriedNorm must lie between 0 and 1"):
        CarriedNorm(share)
