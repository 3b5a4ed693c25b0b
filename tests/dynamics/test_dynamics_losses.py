"""Losses that a model declares: gradients, descent and flow on them, against automatic differentiation."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from ntk_deq.dynamics import (
    GradientField,
    RunStatus,
    gradient_descent,
    gradient_flow,
    instantaneous_rate,
    resume,
    train,
)
from ntk_deq.dynamics.proven.descent import certified_descent
from ntk_deq.errors import ArgumentError
from ntk_deq.language import declaration as registry
from ntk_deq.language.declaration import register_model
from ntk_deq.systems import ImplicitReLU, LinearImplicit, loss_gradients, predict

FOURTH = "sum(hadamard(hadamard(yhat - y, yhat - y), hadamard(yhat - y, yhat - y)))/N"
LOSSES = {
    "usual": ("norm(yhat - y)^2/2", lambda p, y: (p - y).square().sum() / 2),
    "twice": ("norm(yhat - y)^2", lambda p, y: (p - y).square().sum()),
    "mean": ("norm(yhat - y)^2/(2*N)", lambda p, y: (p - y).square().mean() / 2),
    "fourth": (FOURTH, lambda p, y: (p - y).pow(4).mean()),
    "logistic": ("log(1 + exp(-dot(y, yhat)))", lambda p, y: torch.log1p(torch.exp(-(y @ p)))),
    "signed": ("-1/(1 + norm(yhat - y)^2)", lambda p, y: -1 / (1 + (p - y).square().sum())),
}
SQUARES = ("usual", "twice", "mean")


def declaring(base, name, text):
    """A class that declares another loss, where its declaration says it is found: in this module."""
    called, definitions = f"{base.__name__}_{name}", {**base.signature.definitions, "L": text}
    signature = dataclasses.replace(
        base.signature, name=called, definitions=definitions, implementation=f"{__name__}:{called}"
    )
    globals()[called] = type(called, (base,), {"signature": signature})
    return globals()[called]


MODELS = {
    (base.__name__, name): declaring(base, name, text)
    for base in (LinearImplicit, ImplicitReLU)
    for name, (text, _) in LOSSES.items()
}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    for cls in MODELS.values():
        register_model(cls.signature)


def problem(base, name):
    generator = torch.Generator().manual_seed(0)
    model = MODELS[base, name].random(3, 4, generator=generator)
    X = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    return model, X, torch.randn(5, generator=generator, dtype=torch.float64)


def reference(model, X, y, name, parameters):
    loss = LOSSES[name][1]
    return torch.func.grad(lambda values: loss(predict(model, X, values), y))(parameters)


def apart(left, right):
    return max(float((left[key] - right[key]).abs().max()) for key in right)


both = pytest.mark.parametrize("base", ["LinearImplicit", "ImplicitReLU"])
every = pytest.mark.parametrize("name", LOSSES)


@both
@every
def test_gradients_are_those_of_the_declared_loss(base, name):
    model, X, y = problem(base, name)
    expected, errors = reference(model, X, y, name, model.parameters()), []
    size = max(float(value.abs().max()) for value in expected.values())
    found = loss_gradients(model, X, y, on_error=errors.append)
    assert apart(found, expected) <= 1e-13 * size
    assert 0 < errors[0] < 1e-9 * size
    point = GradientField(model, X, y, rtol=1e-13).at(model.parameters(), 0.0)
    assert apart(point.gradients, expected) <= point.gradient_error < 1e-9 * size
    assert point.loss_value == pytest.approx(float(LOSSES[name][1](predict(model, X), y)), rel=1e-11)


@both
@every
def test_descent_is_a_plain_loop_on_the_declared_loss(base, name):
    model, X, y = problem(base, name)
    run = gradient_descent(model, X, y, step=0.02, steps=15, rtol=1e-13)
    there = dict(model.parameters())
    for _ in range(15):
        gradients = reference(model, X, y, name, there)
        there = {key: value - 0.02 * gradients[key] for key, value in there.items()}
    assert run.steps == 15
    assert apart(run.parameters, there) <= run.error < 1e-9
    assert run.loss < run.snapshots[0].loss


@pytest.mark.parametrize("name", LOSSES)
def test_a_flow_is_the_limit_of_descent_on_the_declared_loss(name):
    model, X, y = problem("LinearImplicit", name)
    run = gradient_flow(model, X, y, horizon=0.1, tolerance=1e-6, snapshots=4)
    ends = [gradient_descent(model, X, y, step=0.1 / n, steps=n).parameters for n in (64, 128)]
    limit = {key: 2 * ends[1][key] - ends[0][key] for key in ends[0]}
    assert apart(run.parameters, limit) < 1e-3 * apart(run.parameters, model.parameters())


def test_twice_the_loss_is_the_same_run_with_half_the_step():
    """A factor that is a power of two changes no bit."""
    model, X, y = problem("ImplicitReLU", "usual")
    usual = gradient_descent(model, X, y, step=0.02, steps=30)
    twice = gradient_descent(problem("ImplicitReLU", "twice")[0], X, y, step=0.01, steps=30)
    assert apart(usual.parameters, twice.parameters) == 0
    assert twice.loss == 2 * usual.loss


@pytest.mark.parametrize("name", SQUARES)
def test_multiples_of_the_squares_are_proven(name):
    model, X, y = problem("LinearImplicit", name)
    run = certified_descent(model, X, y, step=0.01, steps=20, keep=[20])
    there = dict(model.parameters())
    for _ in range(20):
        gradients = reference(model, X, y, name, there)
        there = {key: value - 0.01 * gradients[key] for key, value in there.items()}
    assert (run.complete, run.step) == (True, 0.01)
    assert apart(run.iterates[20], there) < run.error[20] + 1e-13 < 1e-11
    loss = float(LOSSES[name][1](predict(model, X, there), y))
    assert run.losses[20, 0] <= loss * (1 + 1e-12)
    assert loss * (1 - 1e-12) <= run.losses[20, 1]


def test_no_other_loss_is_proven():
    run = certified_descent(*problem("LinearImplicit", "logistic"), step=0.01, steps=20)
    assert not run.complete
    assert "is no multiple of norm(yhat - y)^2" in run.reason


@pytest.mark.parametrize("name", ["twice", "mean", "fourth", "logistic"])
def test_the_rate_of_the_kernel_is_that_of_the_declared_loss(name):
    model, X, y = problem("LinearImplicit", name)
    field = GradientField(model, X, y, rtol=1e-13)
    point = field.at(model.parameters(), 0.0)
    expected = sum(float(g.square().sum()) for g in point.gradients.values()) / point.loss_value
    assert instantaneous_rate(model, X, y) == pytest.approx(expected, rel=1e-9)
    assert instantaneous_rate(model, X, y, step=1e-6) == pytest.approx(1e-6 * expected, rel=1e-3)


def test_a_negative_loss_has_no_floor_and_a_run_on_it_is_resumed(tmp_path):
    model, X, y = problem("LinearImplicit", "signed")
    run = train(model, X, y, step=0.1, steps=10, until=0.5, progress=False)
    assert (run.status, run.steps) == (RunStatus.STEPS, 10)
    assert -1 < run.loss < run.snapshots[0].loss < 0
    longer = resume(run, steps=20, progress=False)
    assert (longer.steps, longer.loss < run.loss) == (20, True)
    assert gradient_flow(model, X, y, horizon=0.1, snapshots=4).status is RunStatus.HORIZON
    assert math.isnan(instantaneous_rate(model, X, y))


def test_a_loss_with_kinks_is_trained_without_an_estimate_of_its_error():
    cls = declaring(LinearImplicit, "absolute", "sum(abs(yhat - y))/N")
    model, X, y = problem("LinearImplicit", "usual")
    run = gradient_descent(cls(**model.parameters()), X, y, step=0.02, steps=20)
    assert (run.error, run.loss < run.snapshots[0].loss) == (None, True)
    flow = gradient_flow(cls(**model.parameters()), X, y, horizon=0.1, tolerance=1e-6, snapshots=4)
    assert flow.status is RunStatus.HORIZON


def test_a_loss_that_is_no_number_is_refused():
    cls = declaring(LinearImplicit, "vector", "yhat - y")
    model, X, y = problem("LinearImplicit", "usual")
    with pytest.raises(ArgumentError, match=r"The loss yhat - y must be a number. Got shape \(5, 1\)"):
        gradient_descent(cls(**model.parameters()), X, y, step=0.1, steps=1)
