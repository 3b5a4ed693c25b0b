"""Gradients and runs of declared systems, derived from their formulas, against automatic differentiation."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from declared_systems import (
    FEED_FORWARD,
    MASKED,
    MONOTONE,
    OPT_EQ,
    OUTPUTS,
    SKIP,
    STRUCTURED,
    TWICE,
    drawn,
    normal,
    system,
)

from ntk_deq.claims.load import load_suite
from ntk_deq.dynamics import GradientField, WellPosednessError, gradient_descent, gradient_flow, instantaneous_rate
from ntk_deq.dynamics.proven.descent import certified_descent
from ntk_deq.dynamics.recorders import BUILT_IN
from ntk_deq.language.declaration import Role, model_names, model_signature
from ntk_deq.systems import certified_equilibrium, loss_gradients, model_class, predict, solve_equilibrium
from ntk_deq.systems.model import output_loss

ALL = {**STRUCTURED, MASKED.name: MASKED}


def size(tensors):
    return math.hypot(*(float(value.norm()) for value in tensors.values()))


def apart(left, right):
    assert list(left) == list(right)
    return math.hypot(*(float((left[name] - right[name]).norm()) for name in right))


@pytest.fixture(params=list(ALL), ids=str)
def problem(request):
    return drawn(ALL[request.param])


def test_derived_gradients_are_those_of_automatic_differentiation(problem):
    model, X, y = problem
    found = GradientField(model, X, y, rtol=1e-14).at(model.parameters(), 0.0)
    exact = loss_gradients(model, X, y)
    assert apart(found.gradients, exact) <= 1e-11 * size(exact)


CHECKS = Path(__file__).parents[2] / "checks"


def declared_losses():
    """Return the shipped systems and those of the suite that have a loss, at depth 2 where they have one."""
    found = {name: model_signature(name) for name in model_names()}
    for file in sorted(CHECKS.glob("*.yaml")):
        for claim in load_suite(file).claims:
            for setting in getattr(claim, "settings", ()):
                if setting.model is not None:
                    found.setdefault(setting.model.name, setting.model)
    return {name: own for name, own in found.items() if "L" in own.definitions and not own.has_families}


def test_the_error_of_a_gradient_is_estimated_for_every_system_of_the_suite():
    seen = 0
    for name, signature in declared_losses().items():
        sizes = dict.fromkeys((letter for own in signature.variables for letter in own.shape), 2)
        values = {
            own.name: 0.25 * normal(*(sizes[letter] for letter in own.shape), seed=place)
            for place, own in enumerate(signature.variables)
        }
        hyper = signature.names(Role.HYPERPARAMETER)
        values |= {name: torch.eye(2).double() if values[name].ndim == 2 else values[name].abs() for name in hyper}
        model = model_class(signature).from_variables(values)
        data = [next(iter(signature.names(role)), None) for role in (Role.INPUT, Role.TARGET)]
        X, y = model.data(*(None if each is None else values[each] for each in data))
        error = GradientField(model, X, y).at(model.parameters(), 0.0).gradient_error
        assert 0 <= error < math.inf, name
        seen += 1
    assert seen >= 6


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8])
def test_the_estimated_error_of_a_gradient_is_above_its_error_and_not_far(problem, rtol):
    model, X, y = problem
    found = GradientField(model, X, y, rtol=rtol).at(model.parameters(), 0.0)
    exact = loss_gradients(model, X, y)
    assert apart(found.gradients, exact) <= found.gradient_error + 1e-14 * size(exact)
    assert found.gradient_error <= 1e3 * rtol * size(exact)


LOSSES = {
    "regularised": "norm(yhat - y)^2/2 + fro(W)^2/10",
    "mixed": "sum(softplus(yhat - y))*(1 + fro(U)^2) + sum(Z)/10",
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_may_read_parameters_and_the_state(name):
    signature = replace(SKIP, name=f"skip-{name}", definitions={**SKIP.definitions, "L": LOSSES[name]})
    model, X, y = drawn(signature)
    exact = loss_gradients(model, X, y)
    h, moved = 1e-6, {key: torch.sin(value * 31) for key, value in model.parameters().items()}
    sides = [
        _loss(model.with_parameters({k: v + sign * h * moved[k] for k, v in model.parameters().items()}), X, y)
        for sign in (1, -1)
    ]
    slope = sum(float((exact[key] * moved[key]).sum()) for key in moved)
    assert (sides[0] - sides[1]) / (2 * h) == pytest.approx(slope, rel=1e-7)
    found = GradientField(model, X, y, rtol=1e-6).at(model.parameters(), 0.0)
    assert apart(found.gradients, exact) <= found.gradient_error <= 1e-3 * size(exact)
    assert found.loss_value == pytest.approx(_loss(model, X, y), rel=1e-5)


def _loss(model, X, y):
    return float(model.loss(X, y))


@pytest.mark.parametrize("signature", [MONOTONE, OPT_EQ, OUTPUTS, FEED_FORWARD], ids=lambda own: own.name)
def test_descent_is_that_of_steps_along_automatic_gradients(signature):
    model, X, y = drawn(signature)
    step = 0.002 if signature is MONOTONE else 0.05  # beyond, its weight ceases to contract
    run = gradient_descent(model, X, y, step=step, steps=10, rtol=1e-13)
    there = model
    for _ in range(10):
        gradients = loss_gradients(there, X, y)
        there = there.with_parameters({k: v - step * gradients[k] for k, v in there.parameters().items()})
    assert run.steps == 10
    assert apart(run.parameters, there.parameters()) <= 1e-11 * size(there.parameters())
    assert run.error is not None
    assert apart(run.parameters, there.parameters()) <= run.error


@pytest.mark.parametrize("signature", [OPT_EQ, TWICE], ids=lambda own: own.name)
def test_flow_goes_where_small_steps_go(signature):
    model, X, y = drawn(signature)
    flow = gradient_flow(model, X, y, horizon=0.1)
    steps = [gradient_descent(model, X, y, step=0.1 / count, steps=count) for count in (50, 100)]
    # Euler's error is halved with the step.
    limit = {k: 2 * v - steps[0].parameters[k] for k, v in steps[1].parameters.items()}
    assert apart(flow.parameters, limit) <= 1e-4 * size(limit)
    assert flow.error is not None


def test_multiples_of_squares_are_seen_for_several_outputs():
    model, X, y = drawn(OUTPUTS)
    loss = output_loss(model, X, y)
    residual = predict(model, X) - y
    assert loss.multiple == 1
    spectral = replace(OUTPUTS, name="spectral", definitions={**OUTPUTS.definitions, "L": "norm(yhat - y)^2/2"})
    other, X, y = drawn(spectral)
    assert output_loss(other, X, y).multiple is None
    assert not output_loss(other, X, y).smooth
    assert float(other.loss(X, y)) == pytest.approx(float(torch.linalg.matrix_norm(residual, 2)) ** 2 / 2)
    assert float(loss.value(model.target_rows(predict(model, X)))) == pytest.approx(float(residual.square().sum() / 2))


@pytest.mark.parametrize("signature", [OPT_EQ, TWICE, MONOTONE], ids=lambda own: own.name)
def test_the_hessian_is_the_derivative_of_the_gradient(signature):
    model, X, y = drawn(signature)
    field = GradientField(model, X, y, rtol=1e-14)
    field.at(model.parameters(), 0.0)
    found, h = field.hessian(), 1e-5
    moved = {key: torch.sin(value * 31) for key, value in model.parameters().items()}
    sides = [
        field.at({k: v + sign * h * moved[k] for k, v in model.parameters().items()}, 1.0).gradients for sign in (1, -1)
    ]
    slope = torch.cat([((sides[0][name] - sides[1][name]) / (2 * h)).reshape(-1) for name in moved])
    along = found @ torch.cat([value.reshape(-1) for value in moved.values()])
    assert float((slope - along).norm()) <= 1e-5 * float(slope.norm())


@pytest.mark.parametrize("signature", [SKIP, OUTPUTS, FEED_FORWARD], ids=lambda own: own.name)
@pytest.mark.parametrize("loss", ["fro(yhat - y)^2/2", "fro(yhat - y)^2/2 + fro(W)^2/10"])
def test_the_instantaneous_rate_is_that_of_a_short_step(signature, loss):
    definitions = {**signature.definitions, "L": loss}
    model, X, y = drawn(replace(signature, name=f"{signature.name}-rate", definitions=definitions))
    h = 1e-7
    rate, before = instantaneous_rate(model, X, y), float(model.loss(X, y))
    point = GradientField(model, X, y, rtol=1e-14).at(model.parameters(), 0.0)
    after = model.with_parameters({k: v - h * point.gradients[k] for k, v in model.parameters().items()})
    assert rate == pytest.approx(-(float(after.loss(X, y)) - before) / h / before, rel=1e-5)
    assert instantaneous_rate(model, X, y, step=1e-4) == pytest.approx(1e-4 * rate, rel=1e-2)


def test_every_built_in_recorder_takes_part_in_runs_without_an_equilibrium():
    model, X, y = drawn(FEED_FORWARD)
    run = gradient_descent(model, X, y, step=0.01, steps=3, record=list(BUILT_IN))
    assert math.isnan(float(run["sigma_min"].values[0]))
    assert run["displacement"].values.shape[0] > 0


def test_descent_of_a_layer_with_samples_in_columns_is_proven():
    model, X, y = drawn(SKIP)
    assert model.single_layer() is not None
    proven = certified_descent(model, X, y, step=0.01, steps=5, keep=[5])
    exact = gradient_descent(model, X, y, step=0.01, steps=5, rtol=1e-14)
    assert proven.complete
    for name, value in exact.parameters.items():
        assert float((proven.iterates[5][name] - value).norm()) <= float(proven.errors[name][5]) + 1e-14
    found = certified_equilibrium(model, X)
    assert float((found.value - solve_equilibrium(model, X).value).norm()) <= found.radius + 1e-13


WEIGHT = "1/2*I(m) - A'*A + B - B'"
ACTS = {
    "tanh": ("tanh(W*Z + U*X)", torch.tanh),
    "threshold": ("softthreshold(W*Z + U*X, 1/10)", lambda v: torch.relu(v - 0.1) - torch.relu(-v - 0.1)),
    "signs": ("tanh(U*X - (-1)*W*Z)", torch.tanh),
}


def steep(act, scale=3.0):
    """A monotone system with a weight whose norm is above one."""
    sizes = "A:p:m,m B:p:m,m U:p:m,d u:p:m X:x:d,N y:y:N"
    declared = system(f"steep-{act}", sizes, "Z", "mN", ACTS[act][0], "", W=WEIGHT, yhat="Z'*u")
    model, X, y = drawn(replace(declared, monotone="1/2"))
    return model.with_parameters({name: scale * model.parameters()[name] for name in "AB"}), X, y


def plain_gradient(model, act, X, y):
    """The same in plain torch: the equilibrium by damped and Newton's steps, the gradient by a dense solve."""
    own = {name: value.clone().requires_grad_() for name, value in model.parameters().items()}
    A, B, U, u = own.values()
    W = torch.eye(len(u), dtype=u.dtype) / 2 - A.mT @ A + B - B.mT
    assert float(torch.linalg.matrix_norm(W.detach(), 2)) > 1

    def image(flat):
        return ACTS[act][1](W @ flat.reshape(len(u), -1) + U @ X).reshape(-1)

    z = torch.zeros(len(u) * X.shape[1], dtype=u.dtype)
    with torch.no_grad():
        for _ in range(2000):
            z = z + (image(z) - z) / 50
    for _ in range(5):
        J = torch.autograd.functional.jacobian(image, z)
        z = z + torch.linalg.solve(torch.eye(len(z), dtype=u.dtype) - J, (image(z) - z).detach())
    state = z.detach().requires_grad_()
    loss = (state.reshape(len(u), -1).mT @ u - y).square().sum() / 2
    slope, direct = torch.autograd.grad(loss, [state, u])
    V = torch.linalg.solve(torch.eye(len(z), dtype=u.dtype) - J.mT, slope)
    found = dict(zip(own, torch.autograd.grad(image(z.detach()), [A, B, U], V), strict=False))
    return {**found, "u": direct}


@pytest.mark.parametrize("act", ACTS)
def test_a_monotone_system_is_trained_whatever_its_proximal_activation(act):
    model, X, y = steep(act)
    exact = plain_gradient(model, act, X, y)
    for rtol in (1e-5, 1e-10):
        found = GradientField(model, X, y, rtol=rtol).at(model.parameters(), 0.0)
        assert 0 < found.contraction < 1
        assert apart(found.gradients, exact) <= found.gradient_error + 1e-12 * size(exact)
    run = gradient_descent(model, X, y, step=1e-3, steps=5)
    assert (run.steps, run.error is not None) == (5, True)


def test_a_system_that_is_not_monotone_as_it_says_is_not_trained():
    model, X, y = steep("tanh")
    declared = replace(model.signature, name="untrue", definitions={**model.signature.definitions, "W": "2*I(m) - A"})
    untrue = model_class(declared).from_variables({**model.parameters(), "A": 0 * model.A})
    with pytest.raises(WellPosednessError, match="No certificate that the equilibrium of untrue exists"):
        gradient_descent(untrue, X, y, step=1e-3, steps=5)


def test_a_system_that_names_no_certificate_is_trained_without_error_bounds_where_nothing_is_known():
    sizes = "W:p:m,m U:p:m,d u:p:m X:x:d,N y:y:N"
    declared = system("bare", sizes, "Z", "mN", "tanh(W*Z + U*X)", "norm(W)", yhat="Z'*u")
    model, X, y = drawn(replace(declared, local=True))
    assert gradient_descent(model, X, y, step=1e-3, steps=5).error is not None
    long = model.with_parameters({"W": 1.2 * model.W / torch.linalg.matrix_norm(model.W, 2)})
    found = gradient_descent(long, X, y, step=1e-3, steps=5)
    assert (found.steps, found.error) == (5, None)
    assert "No certificate" in found.detail
    assert gradient_flow(long, X, y, until=0.99).error is None
