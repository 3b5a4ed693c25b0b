"""Systems without samples, whose loss is minimised as it stands."""

from __future__ import annotations

import math

import pytest
import torch
from declared_systems import normal, system

from ntk_deq.dynamics import GradientField, resume, train
from ntk_deq.errors import ArgumentError
from ntk_deq.quantities import ntk_gram
from ntk_deq.systems import model_class

QUADRATIC = system("quadratic", "x:p:n Q:h:n,n c:h:n", "", "", "", "", L="x'*Q*x/2 - c'*x")
LEAST_SQUARES = system("least-squares", "w:p:d A:h:N,d y:y:N", "", "", "", "", yhat="A*w")
MIXED = system("mixed", "U:p:m,d u:p:m X:x:N,d y:y:N", "", "", "", "", yhat="X*X'*relu(X*U')*u")


def quadratic(seed=0):
    G = normal(4, 4, seed=seed)
    Q = G @ G.mT / 4 + torch.eye(4, dtype=torch.float64)
    c = normal(4, seed=2)
    return model_class(QUADRATIC)(x=c / 10, Q=Q, c=c)  # the loss is negative from the start, and has no floor


def test_descent_on_a_quadratic_is_the_linear_recursion():
    model = quadratic()
    run = train(model, step=0.1, steps=30, progress=False)
    x = model.x
    for _ in range(30):
        x = x - 0.1 * (model.Q @ x - model.c)
    torch.testing.assert_close(run.parameters["x"], x, rtol=1e-13, atol=1e-13)
    assert run.error is not None
    assert float((run.parameters["x"] - x).norm()) <= run.error
    assert run.settings["sizes"] == {"n": 4}


def test_the_flow_of_a_quadratic_is_an_exponential():
    model = quadratic()
    run = train(model, method="gradient-flow", horizon=1.0, progress=False)
    least = torch.linalg.solve(model.Q, model.c)
    there = least + torch.linalg.matrix_exp(-model.Q) @ (model.x - least)
    torch.testing.assert_close(run.parameters["x"], there, rtol=1e-7, atol=1e-7)


def test_a_run_is_resumed():
    model = quadratic()
    short, long = (train(model, step=0.1, steps=steps, progress=False) for steps in (5, 20))
    again = resume(short, steps=20, model=model)
    assert torch.equal(again.parameters["x"], long.parameters["x"])


def test_targets_without_inputs_and_samples_that_mix_are_trained_as_they_stand():
    A, y = normal(6, 3), normal(6, seed=1)
    model = model_class(LEAST_SQUARES)(w=normal(3, seed=2), A=A)
    point = GradientField(model, None, y).at(model.parameters(), 0.0)
    torch.testing.assert_close(point.gradients["w"], A.mT @ (A @ model.w - y))
    torch.testing.assert_close(point.residual, A @ model.w - y)
    mixed = model_class(MIXED)(U=normal(4, 3), u=normal(4, seed=1))
    X = normal(5, 3, seed=3)
    assert "multiplies samples from the left" in mixed.reason
    expected = X @ X.mT @ torch.relu(X @ mixed.U.mT) @ mixed.u
    torch.testing.assert_close(mixed.predict(X), expected)
    assert float(mixed.loss(X, y[:5])) == pytest.approx(float((expected - y[:5]).square().sum() / 2))


def test_the_error_of_a_gradient_is_that_of_rounding():
    point = GradientField(quadratic()).at(quadratic().parameters(), 0.0)
    size = float(point.gradients["x"].norm())
    assert 0 < point.gradient_error <= 1e-11 * size
    assert math.isfinite(point.gradient_error)


def test_what_is_missing_or_too_much_is_said():
    model = quadratic()
    with pytest.raises(ArgumentError, match=r"The system quadratic has no `X`. Got Tensor"):
        train(model, normal(2, 2), step=0.1, progress=False)
    with pytest.raises(ArgumentError, match=r"The system least-squares needs `y`. Got None"):
        train(model_class(LEAST_SQUARES)(w=normal(3), A=normal(6, 3)), step=0.1, progress=False)
    with pytest.raises(ArgumentError, match=r"There is no tangent kernel of quadratic: it has no inputs"):
        ntk_gram(model, normal(2, 2))
    with pytest.raises(ArgumentError, match=r"The system quadratic has no equilibrium to solve for"):
        model.solve(normal(2, 2))
