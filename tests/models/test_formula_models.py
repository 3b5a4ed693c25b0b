"""Models compiled from their declarations, against the same models written in plain torch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from declarations import BIASED
from plain_models import PlainLinear, PlainReLU

from ntk_deq.dynamics import GradientField, gradient_descent
from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import IMPLICIT_RELU, LINEAR_IMPLICIT, ModelSignature, Role
from ntk_deq.quantities import KernelMethod, ntk_gram
from ntk_deq.systems import (
    ImplicitReLU,
    LinearImplicit,
    certified_equilibrium,
    equilibrium_features,
    loss_gradients,
    model_class,
    predict,
    solve_adjoint,
    solve_equilibrium,
)

CLASSES = {"implicit-relu": (ImplicitReLU, PlainReLU), "linear-implicit": (LinearImplicit, PlainLinear)}
AGREE = 1e-9


def plain(signature: ModelSignature) -> ModelSignature:
    """The same declaration without a class."""
    return replace(signature, name=f"{signature.name}-formula", implementation="")


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The same maps, written so that they are not seen to be one layer: everything is derived from the formulas then.
UNSEEN = {"implicit-relu": "relu(gamma/2*Z*A + Z*A*gamma/2 + Phi)", "linear-implicit": "2*Z*W' + X*U' - Z*W'"}


@pytest.fixture(params=[(name, seen) for name in CLASSES for seen in (True, False)], ids=str)
def pair(request):
    """A model in plain torch and the compiled one with the same values."""
    name, seen = request.param
    cls, written = CLASSES[name]
    model = cls.random(3, 5, generator=torch.Generator().manual_seed(0))
    if not seen:
        numbers = {name: getattr(model, name) for name in model.signature.names(Role.HYPERPARAMETER)}
        cls = model_class(replace(plain(model.signature), map=UNSEEN[name]))
        model = cls.from_variables({**model.parameters(), **numbers})
    assert (model.single_layer() is not None) == seen
    return written(model), model


def close(left, right):
    torch.testing.assert_close(left, right, rtol=AGREE, atol=AGREE)


def close_each(left, right):
    assert list(left) == list(right)
    for name, value in right.items():
        close(left[name], value)


def test_maps_and_solves_agree(pair):
    written, compiled = pair
    X, Z = normal(4, 3), normal(4, 5, seed=2)
    close(compiled.step(Z, X), written.step(Z, X))
    close(compiled.step(Z[0], X[0]), written.step(Z[0], X[0]))
    close(compiled.readout(Z[0]), written.readout(Z[0]))
    close(compiled.contraction_bound(), written.contraction_bound())
    found, expected = solve_equilibrium(compiled, X), solve_equilibrium(written, X)
    close(found.value, expected.value)
    close(solve_adjoint(compiled, X, found.value).value, solve_adjoint(written, X, expected.value).value)
    close(predict(compiled, X), predict(written, X))


def test_gradients_agree(pair):
    written, compiled = pair
    X, y = normal(4, 3), normal(4, seed=3)
    close_each(loss_gradients(compiled, X, y), loss_gradients(written, X, y))

    def features(model):
        return torch.func.jacrev(lambda values: equilibrium_features(model, X, values))(model.parameters())

    close_each(features(compiled), features(written))


@pytest.mark.parametrize("method", [method.value for method in KernelMethod])
def test_kernels_agree(pair, method):
    written, compiled = pair
    X, other = normal(4, 3), normal(2, 3, seed=4)
    expected = ntk_gram(written, X)
    close_each(ntk_gram(compiled, X, method=method).blocks, expected.blocks)
    close_each(ntk_gram(written, X, method=method).blocks, expected.blocks)
    close(ntk_gram(compiled, X, other, method=method).matrix, ntk_gram(written, X, other).matrix)


def test_descent_agrees_for_50_steps(pair):
    written, compiled = pair
    X, y = normal(4, 3), normal(4, seed=3)
    runs = [gradient_descent(model, X, y, step=0.01, steps=50, rtol=1e-13) for model in (compiled, written)]
    assert runs[0].steps == 50
    close_each(runs[0].parameters, runs[1].parameters)


def test_equilibria_are_certified_where_a_layer_is_seen(pair):
    written, compiled = pair
    X = normal(4, 3)
    found = certified_equilibrium(compiled, X)
    if compiled.single_layer() is None:
        assert "has no form in balls" in found.reason
    else:
        assert found.contraction == pytest.approx(float(written.contraction_bound()), rel=1e-12)
        off = float(torch.linalg.vector_norm(found.value - solve_equilibrium(written, X, rtol=1e-15).value))
        assert off <= found.radius + 1e-14
        assert found.radius < 1e-10


@pytest.mark.parametrize(
    ("image", "factor"),
    [
        ("relu(Z*A + X*W)", 1.0),
        ("relu(X*W + 1/2*Z*A)", 0.5),
        ("relu(1/2*(Z*A) + X*W)", 0.5),
        ("relu(Z*A/2 + X*W)", 0.5),
        ("Z*A + relu(X*W)", 1.0),
        ("relu(1/3*Z*A + X*W)", None),
        ("relu(-1*Z*A + X*W)", None),
        ("relu(0*Z*A + X*W)", None),
        ("relu(Z*A' + X*W)", None),
        ("relu(Z*A + Z*A + X*W)", None),
        ("relu(Z*A*A + X*W)", None),
        ("relu(Z*A + abs(X*W))", None),
        ("relu(Z*A + 2*X*W)", None),
        ("relu(relu(Z*A) + X*W)", None),
    ],
)
def test_a_layer_is_seen_only_where_the_map_is_one(image, factor):
    variables = tuple(variable for variable in BIASED.variables if variable.name != "c")
    cls = model_class(replace(BIASED, variables=variables, map=image))
    values = {"A": 0.1 * normal(4, 4), "W": normal(3, 4, seed=2), "u": normal(4, seed=3)}
    form = cls(**values).single_layer()
    assert (None if form is None else form.factor) == factor


def biased(seed=0):
    A, W, c, u = (normal(*shape, seed=seed + k) for k, shape in enumerate([(4, 4), (3, 4), (4,), (4,)]))
    return model_class(BIASED)(A=0.5 * A / torch.linalg.matrix_norm(A, 2), W=W, c=c, u=u)


def test_a_bias_is_added_to_every_sample():
    model, X = biased(), normal(5, 3)
    Z = torch.zeros(5, 4, dtype=torch.float64)
    for _ in range(100):
        Z = torch.relu(Z @ model.A + X @ model.W + model.c)
    close(solve_equilibrium(model, X).value, Z)
    assert repr(model) == "Biased(m=4, d=3, dtype=float64, device=cpu, norm(A)=0.5)"


def test_gradients_of_a_new_model_are_finite_differences():
    model, X, y = biased(), normal(5, 3), normal(5, seed=9)
    found = loss_gradients(model, X, y)
    h = 1e-6  # balances truncation h^2 and rounding u/h
    for name, value in model.parameters().items():
        direction = normal(*value.shape, seed=20)
        sides = []
        for sign in (1, -1):
            moved = predict(model, X, parameters={name: value + sign * h * direction})
            sides.append((moved - y).square().sum() / 2)
        assert float((sides[0] - sides[1]) / (2 * h)) == pytest.approx(float((found[name] * direction).sum()), rel=1e-6)


def test_the_kernel_of_a_new_model_is_the_same_on_every_route():
    model, X = biased(), normal(5, 3)
    kernels = [ntk_gram(model, X, method=method) for method in KernelMethod]
    for kernel in kernels[1:]:
        close_each(kernel.blocks, kernels[0].blocks)


def test_a_class_is_made_once():
    assert model_class(BIASED) is model_class(replace(BIASED))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"map": "relu(Z*A + X*W + ones(N, N)*Z)"}, r"`ones\(N, N\)\*Z` multiplies samples from the left"),
        ({"map": "relu(Z*A + X*W + X*X'*Z)"}, r"`X\*X'\*Z` multiplies samples from the left"),
        ({"map": "relu(Z*A + (X*W)')"}, r"cannot add|transposes samples"),
        ({"map": "relu(Z*A/N + X*W)"}, r"`N` is the number of all samples"),
        ({"map": "relu(Z*A + X*W)/norm(Z)"}, r"`norm` is not seen to treat samples apart"),
        ({"map": "relu(Z*A + X*W + y*u')"}, r"`y` is the target"),
        ({"map": "relu(Z*A + W)"}, r"cannot add"),
        ({"map": "relu(Z*A + X*W"}, r"biased has no class and cannot be compiled from its map"),
        ({"map": "Z*u"}, r"the map of the state must be matrix N x m"),
        ({"map": "relu(Z*A + X*W + Y)", "definitions": {"Y": "ones(N, N)*X*W"}}, r"must define yhat"),
        ({"definitions": {"yhat": "Z"}}, r"must be a vector N, as its targets are. Got matrix N x m"),
        ({"definitions": {"yhat": "Z*u - y"}}, r"`y` is the target"),
        ({"contraction": "norm(X)"}, r"it must not depend on samples|not seen to treat samples apart"),
        ({"contraction": "A"}, r"a number is needed here"),
        (
            {"state_shape": ("m",)},
            r"one size of state, inputs and targets must be N, the number of samples; `Z` is \[m\]",
        ),
    ],
)
def test_formulas_that_are_not_seen_to_treat_samples_apart_are_refused(change, message):
    with pytest.raises(ArgumentError, match=message):
        model_class(replace(BIASED, **change))


def test_values_are_checked():
    one = torch.ones(1, 1, dtype=torch.float64)
    cls = model_class(BIASED)
    with pytest.raises(ArgumentError, match=r"biased must include c"):
        cls(A=one, W=one, u=one[0])
    with pytest.raises(ArgumentError, match=r"must be among A, W, c, u. Got 'gamma'"):
        cls(A=one, W=one, c=one[0], u=one[0], gamma=0.5)
    with pytest.raises(ArgumentError, match=r"`u` of biased must be a vector of length m"):
        cls(A=one, W=one, c=one[0], u=one)
    renamed = replace(BIASED.variables[2], name="readout")
    with pytest.raises(ArgumentError, match=r"cannot be called 'readout'"):
        model_class(replace(BIASED, variables=(*BIASED.variables[:2], renamed, *BIASED.variables[3:])))


def test_a_number_may_come_as_a_float():
    cls, one = model_class(plain(IMPLICIT_RELU)), torch.ones(1, 1, dtype=torch.float64)
    model = cls(W=one, A=one, b=one[0], gamma=0.5)
    assert model.gamma.dtype == torch.float64
    assert float(model.contraction_bound()) == 0.5
    assert model.with_parameters({"A": 2 * one}).contraction_bound() == 1
    assert model_class(plain(LINEAR_IMPLICIT)) is not cls


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8])
def test_the_estimated_error_of_a_gradient_is_about_its_error(rtol):
    model, X, y = biased(), normal(5, 3), normal(5, seed=9)
    point = GradientField(model, X, y, rtol=rtol).at(model.parameters(), 0.0)
    exact = loss_gradients(model, X, y)
    error = math.hypot(*(float((point.gradients[name] - exact[name]).norm()) for name in exact))
    assert error <= point.gradient_error <= 1e3 * rtol * math.hypot(*(float(value.norm()) for value in exact.values()))


class NoForwardMode(torch.autograd.Function):
    """The identity, with a pullback alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value):
        return value.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, slope):
        return slope


def test_a_class_whose_map_has_no_forward_mode_is_trained_without_an_estimate():
    class Opaque(ImplicitReLU):
        def single_layer(self):
            return None

        def step_at(self, X, parameters=None):
            step = super().step_at(X, parameters)
            return lambda Z: NoForwardMode.apply(step(Z))

    model = Opaque.random(3, 5, generator=torch.Generator().manual_seed(0))
    run = gradient_descent(model, normal(4, 3), normal(4, seed=3), step=0.01, steps=5)
    assert (run.steps, run.error) == (5, None)
