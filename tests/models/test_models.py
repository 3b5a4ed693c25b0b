"""The built-in models: closed forms against autograd, the registry, and what bad input gives."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from ntk_deq.errors import ArgumentError
from ntk_deq.systems import (
    EquilibriumModel,
    ImplicitReLU,
    LinearImplicit,
    Role,
    model_class,
    model_names,
    model_signature,
)

SIZES = [(4, 3, 5), (7, 2, 3), (1, 1, 1), (3, 6, 1), (5, 1, 4)]


def draw(cls, d, m, seed=0, **options):
    return cls.random(d, m, generator=torch.Generator().manual_seed(seed), **options)


def inputs(N, d, seed=1):
    return torch.randn(N, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def iterate(step, start, steps=200):
    for _ in range(steps):
        start = step(start)
    return start


@pytest.fixture(params=[ImplicitReLU, LinearImplicit])
def cls(request):
    return request.param


def test_every_registered_model_has_an_implementation_that_matches_its_signature():
    for name in model_names():
        cls, signature = model_class(name), model_signature(name)
        own = signature.implementation != ""
        sizes = {"d": 3, "m": 2} if own else {letter: 2 for letter in signature.sizes}
        generator = torch.Generator().manual_seed(0)
        numbers = dict.fromkeys(signature.names(Role.HYPERPARAMETER), 0.5)
        model = draw(cls, 3, 2) if own else cls.random(generator=generator, values=numbers, **sizes)
        assert cls.signature is signature
        assert tuple(model.parameters()) == signature.names(Role.PARAMETER)
        for parameter, value in model.parameters().items():
            assert tuple(value.shape) == tuple(sizes[letter] for letter in signature.variable(parameter).shape)


@pytest.mark.parametrize(("N", "d", "m"), SIZES)
def test_maps_are_as_printed(N, d, m):
    X = inputs(N, d)
    Z = inputs(N, m, seed=2)
    relu = draw(ImplicitReLU, d, m, gamma=0.3)
    Phi = (X @ relu.W).clamp(min=0)
    torch.testing.assert_close(relu.step(Z, X), (0.3 * Z @ relu.A + Phi).clamp(min=0), rtol=1e-14, atol=1e-14)
    linear = draw(LinearImplicit, d, m)
    for n in range(N):
        z = linear.W @ Z[n] + linear.U @ X[n]
        torch.testing.assert_close(linear.step(Z, X)[n], z, rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(linear.step(Z[n], X[n]), z, rtol=1e-14, atol=1e-14)


def test_linear_equilibrium_has_its_closed_form():
    model, X = draw(LinearImplicit, 3, 5), inputs(4, 3)
    eye = torch.eye(5, dtype=torch.float64)
    Z = iterate(model.step_at(X), model.initial_state(X))
    torch.testing.assert_close(Z, X @ model.U.T @ torch.linalg.inv(eye - model.W.T), rtol=1e-13, atol=1e-13)
    V = iterate(model.adjoint_step_at(Z, X), torch.zeros_like(Z))
    expected = torch.linalg.solve(eye - model.W.T, model.b)
    torch.testing.assert_close(V, expected.expand(4, 5), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("N", "d", "m"), SIZES)
def test_step_uses_the_parameters_it_is_given(cls, N, d, m):
    model, other, X = draw(cls, d, m), draw(cls, d, m, seed=5), inputs(N, d)
    Z = inputs(N, m, seed=2)
    torch.testing.assert_close(model.step(Z, X, other.parameters()), other.step(Z, X))
    torch.testing.assert_close(model.readout(Z, other.parameters()), other.readout(Z))
    torch.testing.assert_close(model.contraction_bound(other.parameters()), other.contraction_bound())


@pytest.mark.parametrize(("N", "d", "m"), SIZES)
def test_adjoint_step_is_the_vector_jacobian_product(cls, N, d, m):
    model, X = draw(cls, d, m), inputs(N, d)
    Z, V = iterate(model.step_at(X), model.initial_state(X)), inputs(N, m, seed=3)
    _, vjp = torch.func.vjp(lambda Z: model.step(Z, X), Z)
    _, readout_vjp = torch.func.vjp(model.readout, Z)
    expected = vjp(V)[0] + readout_vjp(torch.ones(N, dtype=torch.float64))[0]
    torch.testing.assert_close(model.adjoint_step_at(Z, X)(V), expected, rtol=1e-13, atol=1e-13)
    general = EquilibriumModel.adjoint_step_at(model, Z, X)(V)
    torch.testing.assert_close(general, expected, rtol=1e-13, atol=1e-13)
    assert torch.equal(EquilibriumModel.step_at(model, X)(V), model.step(V, X))


@pytest.mark.parametrize(("N", "d", "m"), SIZES)
def test_contraction_bound_bounds_the_map(cls, N, d, m):
    model, X = draw(cls, d, m), inputs(N, d)
    bound = model.contraction_bound()
    for seed in range(5):
        Z1, Z2 = inputs(N, m, seed=10 + seed), inputs(N, m, seed=20 + seed)
        moved = (model.step(Z1, X) - model.step(Z2, X)).norm()
        assert moved <= bound * (Z1 - Z2).norm() * (1 + 1e-14)  # a few roundings of size u


def test_contraction_bound_of_a_nilpotent_matrix_is_its_norm_not_its_spectral_radius():
    A = torch.tensor([[0.0, 3.0], [0.0, 0.0]], dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)
    assert ImplicitReLU(torch.zeros_like(A), A, zero, 0.5).contraction_bound() == 1.5
    assert LinearImplicit(A, A, zero).contraction_bound() == 3


@pytest.mark.parametrize(("N", "d", "m"), SIZES)
def test_tangent_factors_give_the_inner_products_of_finite_differences(cls, N, d, m):
    model, X = draw(cls, d, m), inputs(N, d)
    Z = iterate(model.step_at(X), model.initial_state(X))
    V = iterate(model.adjoint_step_at(Z, X), torch.zeros_like(Z))
    h = 1e-6  # balances truncation h^2 and rounding u/h
    for name, terms in model.tangent_factors(X, Z, V).items():
        columns = []
        for index in range(model.parameters()[name].numel()):
            sides = []
            for sign in (1, -1):
                moved = {key: value.clone() for key, value in model.parameters().items()}
                moved[name].view(-1)[index] += sign * h
                state = iterate(model.step_at(X, moved), model.initial_state(X))
                sides.append(model.readout(state, moved))
            columns.append((sides[0] - sides[1]) / (2 * h))
        J = torch.stack(columns, dim=1)
        found = torch.zeros(N, *model.parameters()[name].shape, dtype=torch.float64)
        for term in terms:
            left, right = term.left[:, :, None], None if term.right is None else term.right[:, None, :]
            found += term.coefficient * (left * right if right is not None else left).reshape(found.shape)
        torch.testing.assert_close(found.flatten(1), J, rtol=1e-6, atol=1e-8)  # the differences' own accuracy


def test_from_variables_ignores_what_is_not_the_models(cls):
    model = draw(cls, 2, 3)
    values = {**model.parameters(), "gamma": torch.tensor(0.5, dtype=torch.float64), "X": inputs(4, 2), "y": None}
    again = cls.from_variables(values)
    assert all(again.parameters()[name] is value for name, value in model.parameters().items())


def test_from_variables_names_what_is_missing():
    with pytest.raises(ArgumentError, match=r"implicit-relu must include A, gamma\. Got W, b\."):
        ImplicitReLU.from_variables({"W": torch.ones(1, 1), "b": torch.ones(1)})
    with pytest.raises(ArgumentError, match=r"linear-implicit must include U"):
        LinearImplicit.from_variables({"W": torch.ones(1, 1), "b": torch.ones(1)})


def test_random_depends_on_the_generator_alone(cls):
    torch.manual_seed(1)
    first = draw(cls, 3, 4)
    torch.manual_seed(2)
    second, other, single = draw(cls, 3, 4), draw(cls, 3, 4, seed=9), draw(cls, 3, 4, dtype=torch.float32)
    for name, value in first.parameters().items():
        assert torch.equal(value, second.parameters()[name])
        assert not torch.equal(value, other.parameters()[name])
        assert torch.equal(value.float(), single.parameters()[name])


def test_random_has_the_norm_it_was_asked_for():
    generator = torch.Generator().manual_seed(0)
    model = ImplicitReLU.random(3, 6, generator=generator, gamma=0.8, norm_A=1.2)
    assert float(model.contraction_bound()) == pytest.approx(0.96, rel=1e-12)
    assert float(LinearImplicit.random(3, 6, generator=generator, norm_W=0).contraction_bound()) == 0


def test_representations_are_one_line_and_escaped(cls):
    model = draw(cls, 2, 3)
    assert repr(model).startswith(f"{cls.__name__}(d=2, m=3, " if cls is ImplicitReLU else "LinearImplicit(m=3, d=2, ")
    assert "\n" not in repr(model)
    assert "0.5" in model._repr_html_()
    assert "<table>" in model._repr_html_()
    assert "norm" in repr(model)
    assert "norm" not in repr(draw(cls, 1, 513))


ONE = torch.ones(1, 1, dtype=torch.float64)


@pytest.mark.parametrize("gamma", [0, 1, -0.1, 1.5, True, "half", None, torch.tensor(2.0, dtype=torch.float64)])
def test_gamma_outside_its_range_is_refused(gamma):
    with pytest.raises(ArgumentError, match=r"`gamma` of implicit-relu must be a number with 0 < gamma < 1\. Got"):
        ImplicitReLU(ONE, ONE, ONE[0], gamma)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": torch.ones(1, 2, dtype=torch.float64)}, r"`A` .* matrix m x m with m = 1 \(as in `W`\). Got \(1, 2\)"),
        ({"b": torch.ones(2, dtype=torch.float64)}, r"`b` .* vector of length m with m = 1"),
        ({"b": ONE}, r"`b` of implicit-relu must be a vector of length m\. Got shape \(1, 1\)"),
        ({"W": torch.ones(0, 1, dtype=torch.float64)}, r"every size >= 1"),
        ({"A": torch.ones(1, 1)}, r"`A` .* must have the dtype of `W`, torch.float64. Got torch.float32"),
        ({"W": torch.ones(1, 1, dtype=torch.int64)}, r"dtype float64 or float32. Got torch.int64"),
        ({"A": ONE * float("nan")}, r"`A` of implicit-relu must be finite"),
        ({"b": ONE[0] / 0}, r"`b` of implicit-relu must be finite"),
        ({"W": [[1.0]]}, r"`W` of implicit-relu must be a torch tensor. Got list"),
        ({"A": torch.ones(1, 1, dtype=torch.float64, device="meta")}, r"must have the device of `W`, cpu. Got meta"),
        ({"gamma": torch.tensor([0.5], dtype=torch.float64)}, r"`gamma` of implicit-relu must be 0-d"),
        ({"gamma": torch.tensor(0.5)}, r"`gamma` of implicit-relu must have the dtype"),
        ({"gamma": float("nan")}, r"`gamma` of implicit-relu must be finite"),
    ],
)
def test_bad_tensors_are_refused_with_a_reason(change, message):
    values = {"W": ONE, "A": ONE, "b": ONE[0], "gamma": 0.5, **change}
    with pytest.raises(ArgumentError, match=message):
        ImplicitReLU(**values)


def test_bad_sizes_and_norms_are_refused(cls):
    with pytest.raises(ArgumentError, match=r"must be >= 1\. Got d = 0, m = 2"):
        draw(cls, 0, 2)
    with pytest.raises(ArgumentError, match=r"must be a number >= 0\. Got -1"):
        draw(cls, 1, 2, **{"norm_A" if cls is ImplicitReLU else "norm_W": -1})


def test_models_are_frozen(cls):
    with pytest.raises(AttributeError, match="`with_parameters` returns a model with other values"):
        draw(cls, 1, 1).b = ONE[0]


def test_values_may_come_in_the_order_of_the_declaration():
    assert torch.equal(ImplicitReLU(ONE, 2 * ONE, ONE[0], 0.5).A, 2 * ONE)
    with pytest.raises(ArgumentError, match=r"must be those of W, A, b, gamma\. Got 5 of them"):
        ImplicitReLU(ONE, ONE, ONE[0], 0.5, ONE)
    with pytest.raises(ArgumentError, match=r"`W` of implicit-relu is given twice"):
        ImplicitReLU(ONE, W=ONE, A=ONE, b=ONE[0], gamma=0.5)


def test_a_setting_may_go_beyond_the_domain_that_a_model_declares():
    values = {"W": ONE, "A": ONE / 4, "b": ONE[0], "gamma": 2 * ONE[0, 0]}
    assert float(ImplicitReLU.from_variables(values).contraction_bound()) == 0.5


def test_importing_the_package_needs_no_torch():
    code = (
        "import sys, ntk_deq.systems as m; a = 'torch' in sys.modules; m.ImplicitReLU; print(a, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    import ntk_deq.systems

    with pytest.raises(AttributeError, match="ImplicitRelu"):
        ntk_deq.systems.ImplicitRelu  # noqa: B018
    assert "LinearImplicit" in dir(ntk_deq.systems)
