"""Stiff flows without a kink: they are no sliding modes, and an implicit method follows them."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from seeds import seeds

from ntk_deq.dynamics import RunStatus, gradient_flow
from ntk_deq.dynamics.field import GradientField
from ntk_deq.systems import ImplicitReLU, LinearImplicit

HORIZON = 5.6e-4


def problem(seed=0, m=2):
    generator = torch.Generator().manual_seed(seed)
    X = torch.diag(torch.tensor([3000.0, 1.0], dtype=torch.float64))
    model = LinearImplicit.random(2, m, generator=generator)
    return model, X, torch.randn(2, generator=generator, dtype=torch.float64)


def reference_loss(model, X, y, horizon):
    """Integrate in NumPy: the closed form of the gradient, SciPy's BDF at a tight tolerance."""
    X, y = X.numpy(), y.numpy()
    start = [value.numpy() for value in model.parameters().values()]
    shapes, sizes = [v.shape for v in start], np.cumsum([v.size for v in start])[:-1]

    def state(flat):
        W, U, b = (part.reshape(shape) for part, shape in zip(np.split(flat, sizes), shapes, strict=True))
        inverse = np.linalg.inv(np.eye(W.shape[0]) - W)
        Z = X @ U.T @ inverse.T
        return Z, inverse.T @ b, Z @ b - y

    def slope(_, flat):
        Z, g, r = state(flat)
        return -np.concatenate([np.outer(g, r @ Z).ravel(), np.outer(g, r @ X).ravel(), r @ Z])

    begin = np.concatenate([v.ravel() for v in start])
    found = solve_ivp(slope, (0, horizon), begin, method="BDF", rtol=1e-10, atol=1e-12)
    assert found.success
    return 0.5 * float((state(found.y[:, -1])[2] ** 2).sum())


@pytest.mark.parametrize("seed", seeds(2, start=1))
def test_a_stiff_linear_flow_is_right_and_cheap(seed):
    model, X, y = problem(seed)
    run = gradient_flow(model, X, y, horizon=HORIZON, until=0.0, snapshots=8)
    assert run.status is RunStatus.HORIZON
    assert run.loss == pytest.approx(reference_loss(model, X, y, HORIZON), rel=1e-6)
    assert run.error is not None
    assert run.error < 1e-6
    assert run.settings["rough_steps"] < 20  # where rounding alone is left
    assert run.settings["relaxed"] == 1
    assert run.settings["implicit_steps"] > 0
    assert run.steps < 1500


def test_the_hessian_is_the_derivative_of_the_gradient():
    generator = torch.Generator().manual_seed(0)
    model = ImplicitReLU.random(3, 4, generator=generator)
    X = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(5, generator=generator, dtype=torch.float64)
    field = GradientField(model, X, y, rtol=1e-13, patterns=True)
    own = model.parameters()
    point = field.at(own, 0.0)
    hessian = field.hessian()
    flat = torch.cat([v.reshape(-1) for v in own.values()])
    direction = torch.randn(flat.numel(), generator=generator, dtype=torch.float64)

    def gradient(t):
        parts = (flat + t * direction).split([v.numel() for v in own.values()])
        moved = {name: part.view_as(own[name]) for name, part in zip(own, parts, strict=True)}
        found = field.at(moved, 0.0)
        assert torch.equal(found.pattern, point.pattern)
        return torch.cat([found.gradients[name].reshape(-1) for name in own])

    numeric = (gradient(1e-6) - gradient(-1e-6)) / 2e-6
    torch.testing.assert_close(hessian @ direction, numeric, rtol=1e-6, atol=1e-7)
    assert torch.equal(hessian, hessian.T)


def test_a_stiff_flow_with_kinks_is_right():
    generator = torch.Generator().manual_seed(3)
    model = ImplicitReLU.random(2, 4, generator=generator)
    X = torch.diag(torch.tensor([300.0, 1.0], dtype=torch.float64))
    y = torch.tensor([1.0, -1.0], dtype=torch.float64)
    run = gradient_flow(model, X, y, horizon=0.002, until=0.0, tolerance=1e-7, snapshots=8)
    finer = gradient_flow(
        model, X, y, horizon=0.002, until=0.0, tolerance=1e-9, snapshots=8, estimate_error=False, method="dopri8"
    )
    assert run.status is RunStatus.HORIZON
    assert run.loss == pytest.approx(finer.loss, rel=1e-5)
