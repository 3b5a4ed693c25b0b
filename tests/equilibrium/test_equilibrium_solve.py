"""Models: closed forms, and one conformance suite over every registered model and every solver."""

from dataclasses import dataclass

import pytest
import torch
from beartype import beartype
from jaxtyping import jaxtyped
from torch.func import grad, jacfwd, jacrev, vmap

from ntk_deq.equilibrium import SOLVERS, Status
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.language.declaration import ModelSignature, Role, model_names, model_signature
from ntk_deq.systems import (
    AccuracyWarning,
    LinearImplicit,
    equilibrium_features,
    loss_gradients,
    predict,
    solve_adjoint,
    solve_equilibrium,
)
from ntk_deq.systems.model import EquilibriumModel, model_class

# PyTorch's own forward-mode set-up uses torch.jit.script, which warns since 2.13.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

SIZES = {"N": 4, "d": 3, "m": 5}


@dataclass(frozen=True, eq=False)
class TanhModel(EquilibriumModel):
    """A model without any of the optional methods: Z = tanh(Z W' + X U'), yhat = Z b."""

    signature = ModelSignature("tanh", "tanh network", (), (), "Z", ("N", "m"), "", "")
    W: torch.Tensor
    U: torch.Tensor
    b: torch.Tensor

    @classmethod
    def from_variables(cls, values):
        return cls(values["W"], values["U"], values["b"])

    def parameters(self):
        return {"W": self.W, "U": self.U, "b": self.b}

    def step(self, Z, X, parameters=None):
        p = parameters or self.parameters()
        return torch.tanh(Z @ p["W"].T + X @ p["U"].T)

    def readout(self, Z, parameters=None):
        return Z @ (parameters or self.parameters())["b"]

    def initial_state(self, X):
        return X.new_zeros(X.shape[0], self.W.shape[0])

    def contraction_bound(self, parameters=None):
        return torch.linalg.matrix_norm((parameters or self.parameters())["W"], ord=2)

    def tangent_factors(self, X, Z, adjoint):
        return {}


def variables(name, seed=0):
    """Draw the variables of a registered model so that its map contracts by 0.6 and its kinks are far."""
    generator = torch.Generator().manual_seed(seed)
    values = {
        v.name: torch.randn([SIZES[s] for s in v.shape], generator=generator, dtype=torch.float64)
        for v in model_signature(name).variables
    }
    for v in model_signature(name).variables:
        if v.role is Role.HYPERPARAMETER:
            values[v.name] = torch.tensor(0.5, dtype=torch.float64)
    model = model_class(name).from_variables(values)
    q = model.contraction_bound()
    for key, tensor in values.items():
        if tensor.ndim == 2 and tensor.shape[0] == tensor.shape[1] == SIZES["m"]:
            values[key] = tensor * (0.6 / q)
    return values


def draw_model(name, seed=0):
    if name == "tanh":
        g = torch.Generator().manual_seed(seed)
        W, U, b, X, y = (
            torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((5, 5), (5, 3), (5,), (4, 3), (4,))
        )
        return TanhModel(W * (0.6 / torch.linalg.matrix_norm(W, ord=2)), U, b), X, y
    values = variables(name, seed)
    return model_class(name).from_variables(values), values["X"], values["y"]


WRITTEN = [name for name in model_names() if model_signature(name).implementation]
MODELS = [*WRITTEN, "tanh"]


@pytest.fixture(params=MODELS)
def problem(request):
    return draw_model(request.param)


@pytest.fixture(params=sorted(SOLVERS))
def solver(request):
    return request.param


def test_conformance_equilibrium_is_a_fixed_point_within_its_bound(problem, solver):
    model, X, _ = problem
    found = solve_equilibrium(model, X, solver=solver)
    assert found.all_converged
    assert found.solver == solver
    assert found.contraction == pytest.approx(0.6)
    residual = torch.linalg.vector_norm(model.step(found.value, X) - found.value, dim=1)
    torch.testing.assert_close(residual, found.residual, rtol=1e-6, atol=1e-15)
    Z = model.initial_state(X)
    for _ in range(200):  # 0.6^200 = 1e-44
        Z = model.step(Z, X)
    error = torch.linalg.vector_norm(found.value - Z, dim=1)
    rounding = 50 * torch.finfo(Z.dtype).eps * torch.linalg.vector_norm(Z, dim=1)  # of the reference itself
    assert (error <= found.error_bound + rounding).all()


def test_conformance_adjoint_solves_its_dense_system(problem, solver):
    model, X, _ = problem
    Z = solve_equilibrium(model, X).value
    found = solve_adjoint(model, X, Z, solver=solver)
    assert found.all_converged
    for n in range(X.shape[0]):
        x, z = X[n : n + 1], Z[n : n + 1]
        J = jacrev(lambda z, x=x: model.step(z, x))(z)[0, :, 0, :]
        source = grad(lambda z: model.readout(z)[0])(z)[0]
        truth = torch.linalg.solve(torch.eye(SIZES["m"], dtype=torch.float64) - J.T, source)
        torch.testing.assert_close(found.value[n], truth, rtol=1e-11, atol=1e-12)


def test_conformance_gradients_agree_with_finite_differences(problem, solver):
    model, X, y = problem
    found = loss_gradients(model, X, y, solver=solver)
    assert list(found) == list(model.parameters())
    loss = lambda p: (predict(model, X, p, solver=solver) - y).square().sum() / 2  # noqa: E731
    step = 1e-6
    generator = torch.Generator().manual_seed(5)
    for name, value in model.parameters().items():
        direction = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        numeric = (loss({name: value + step * direction}) - loss({name: value - step * direction})) / (2 * step)
        assert (found[name] * direction).sum().item() == pytest.approx(numeric.item(), rel=1e-6, abs=1e-8)


def test_conformance_adjoint_gives_the_gradient_of_the_predictions(problem):
    """The implicit gradient from the adjoint and the map's own derivative, by hand, equals autograd's."""
    model, X, _ = problem
    Z = solve_equilibrium(model, X).value
    V = solve_adjoint(model, X, Z).value
    p = model.parameters()
    for name, jacobian in jacrev(lambda p: predict(model, X, p))(p).items():
        own = jacrev(lambda t, name=name: model.readout(Z, {**p, name: t}))(p[name])
        through = jacrev(lambda t, name=name: (V * model.step(Z, X, {**p, name: t})).sum(dim=1))(p[name])
        torch.testing.assert_close(jacobian, own + through, rtol=1e-10, atol=1e-11)


def test_conformance_forward_and_reverse_mode_agree(problem):
    model, X, _ = problem
    p = model.parameters()
    reverse = jacrev(lambda p: equilibrium_features(model, X, p))(p)
    forward = jacfwd(lambda p: equilibrium_features(model, X, p))(p)
    for name in p:
        torch.testing.assert_close(reverse[name], forward[name], rtol=1e-10, atol=1e-11)


def test_conformance_vmap_over_samples_equals_the_batch(problem):
    model, X, _ = problem
    both = jacrev(lambda p: predict(model, X, p))(model.parameters())
    each = vmap(jacrev(lambda p, x: predict(model, x.unsqueeze(0), p)[0]), (None, 0))(model.parameters(), X)
    for name in both:
        torch.testing.assert_close(each[name], both[name], rtol=1e-11, atol=1e-12)


def test_conformance_vmap_over_parameters(problem):
    model, X, _ = problem
    p = model.parameters()
    stacked = {name: torch.stack([value, 0.5 * value]) for name, value in p.items()}
    found = vmap(lambda p: predict(model, X, p))(stacked)
    torch.testing.assert_close(found[0], predict(model, X), rtol=1e-12, atol=1e-13)
    halves = {name: 0.5 * value for name, value in p.items()}
    torch.testing.assert_close(found[1], predict(model, X, halves), rtol=1e-12, atol=1e-13)


def test_conformance_second_derivative(problem):
    model, X, y = problem
    name, value = next(iter(model.parameters().items()))
    slope = lambda t: grad(lambda v: (predict(model, X, {name: v}) - y).square().sum() / 2)(t)  # noqa: E731
    direction = torch.randn(value.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    exact = torch.func.jvp(slope, (value,), (direction,))[1]
    step = 1e-6
    numeric = (slope(value + step * direction) - slope(value - step * direction)) / (2 * step)
    torch.testing.assert_close(exact, numeric, rtol=1e-5, atol=1e-6 * float(exact.abs().max()))
    assert exact.abs().max() > 1e-3


def test_conformance_gradient_in_the_inputs(problem):
    model, X, _ = problem
    found = jacrev(lambda X: predict(model, X))(X)
    step = 1e-6
    direction = torch.randn(X.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    numeric = (predict(model, X + step * direction) - predict(model, X - step * direction)) / (2 * step)
    torch.testing.assert_close((found * direction).sum(dim=(1, 2)), numeric, rtol=1e-6, atol=1e-8)


def test_conformance_nan_sample_and_empty_batch(problem, solver):
    model, X, _ = problem
    spoiled = X.clone()
    spoiled[1, 0] = float("nan")
    found = solve_equilibrium(model, spoiled, solver=solver, raise_on_failure=False)
    assert [Status(s) for s in found.status.tolist()] == [
        Status.CONVERGED,
        Status.NON_FINITE,
        Status.CONVERGED,
        Status.CONVERGED,
    ]
    good = solve_equilibrium(model, X, solver=solver).value
    torch.testing.assert_close(found.value[[0, 2, 3]], good[[0, 2, 3]], rtol=1e-12, atol=1e-12)
    with pytest.raises(EquilibriumError, match="1 of 4 non-finite"):
        predict(model, spoiled, solver=solver)
    assert solve_equilibrium(model, X[:0], solver=solver).value.shape == (0, SIZES["m"])


def owned(model):
    numbers = model.signature.names(Role.HYPERPARAMETER)
    return model.parameters() | {name: getattr(model, name) for name in numbers}


@pytest.mark.parametrize("name", MODELS)
def test_conformance_float32(name):
    model, X, _ = draw_model(name)
    values = {k: v.float() for k, v in (owned(model) | {"X": X}).items()}
    small = type(model).from_variables(values)
    found = solve_equilibrium(small, values["X"])
    assert found.value.dtype == torch.float32
    torch.testing.assert_close(found.value.double(), solve_equilibrium(model, X).value, rtol=1e-4, atol=1e-5)


def test_automatic_and_closed_adjoint_maps_agree(problem):
    model, X, _ = problem
    Z = solve_equilibrium(model, X).value
    automatic = solve_adjoint(model, X, Z, parameters=model.parameters())
    torch.testing.assert_close(solve_adjoint(model, X, Z).value, automatic.value, rtol=1e-12, atol=1e-13)


def test_shapes_and_dtypes_are_as_annotated(problem):
    model, X, y = problem
    checked = jaxtyped(typechecker=beartype)
    Z = checked(solve_equilibrium)(model, X).value
    checked(solve_adjoint)(model, X, Z)
    checked(equilibrium_features)(model, X)
    assert checked(predict)(model, X).shape == y.shape
    checked(loss_gradients)(model, X, y)


def test_closed_form_of_the_linear_model():
    model, X, y = draw_model("linear-implicit")
    p = model.parameters()
    inverse = torch.linalg.inv(torch.eye(SIZES["m"], dtype=torch.float64) - p["W"])
    Z = (inverse @ p["U"] @ X.T).T
    torch.testing.assert_close(solve_equilibrium(model, X).value, Z, rtol=1e-12, atol=1e-13)
    adjoint = (inverse.T @ p["b"]).expand(SIZES["N"], -1)
    torch.testing.assert_close(solve_adjoint(model, X, Z).value, adjoint, rtol=1e-12, atol=1e-13)
    residual = Z @ p["b"] - y
    gradients = loss_gradients(model, X, y)
    torch.testing.assert_close(gradients["b"], Z.T @ residual, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(gradients["U"], torch.outer(adjoint[0], residual @ X), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(gradients["W"], torch.outer(adjoint[0], residual @ Z), rtol=1e-11, atol=1e-12)


def test_gradients_follow_given_parameters_and_only_those():
    model, X, y = draw_model("tanh")
    shifted = {"b": 2 * model.b}
    found = loss_gradients(model, X, y, parameters=shifted)
    other = loss_gradients(TanhModel(model.W, model.U, 2 * model.b), X, y)
    for name in found:
        torch.testing.assert_close(found[name], other[name])
    assert set(grad(lambda p: predict(model, X, p).sum())(shifted)) == {"b"}


def test_plain_backward_reaches_the_parameters_of_a_model():
    model, X, y = draw_model("tanh")
    leaf = model.W.clone().requires_grad_()
    loss = (predict(TanhModel(leaf, model.U, model.b), X) - y).square().sum() / 2
    loss.backward()
    torch.testing.assert_close(leaf.grad, loss_gradients(model, X, y)["W"], rtol=1e-12, atol=1e-13)


def test_misspelt_parameter_names_the_nearest_one():
    model, X, _ = draw_model("implicit-relu")
    with pytest.raises(ArgumentError, match=r"implicit-relu has no parameter 'w'. Its parameters: W, A, b"):
        predict(model, X, {"w": model.W})


def test_targets_of_another_shape_are_refused():
    model, X, y = draw_model("tanh")
    with pytest.raises(ArgumentError, match=r"`y` of loss_gradients must have the shape \(4,\). Got \(4, 1\)"):
        loss_gradients(model, X, y.unsqueeze(1))


def test_map_without_contraction_is_reported_and_not_bounded():
    model, X, _ = draw_model("linear-implicit")
    p = model.parameters()
    wild = type(model)(W=10 * p["W"], U=p["U"], b=p["b"])
    found = solve_equilibrium(wild, X, raise_on_failure=False)
    assert found.contraction == pytest.approx(6.0)
    assert (found.error_bound == float("inf")).all()
    assert [Status(s) for s in found.status.tolist()] == [Status.DIVERGED] * SIZES["N"]
    with pytest.raises(EquilibriumError, match="No fixed point found"):
        solve_equilibrium(wild, X)


def test_failing_adjoint_says_adjoint():
    model, X, _ = draw_model("linear-implicit")
    Z = solve_equilibrium(model, X).value
    assert [Status(s) for s in solve_adjoint(model, X, Z, max_steps=2, raise_on_failure=False).status.tolist()] == (
        [Status.MAX_STEPS] * SIZES["N"]
    )
    with pytest.raises(EquilibriumError, match="The adjoint was not found with the solver picard"):
        solve_adjoint(model, X, Z, max_steps=2)


def test_warm_start_saves_every_step():
    model, X, _ = draw_model("implicit-relu")
    cold = solve_equilibrium(model, X)
    warm = solve_equilibrium(model, X, initial=cold.value)
    assert int(warm.steps.max()) <= 1  # an entry at rounding level may be judged afresh
    adjoint = solve_adjoint(model, X, cold.value)
    assert int(solve_adjoint(model, X, cold.value, initial=adjoint.value).steps.max()) == 0


def test_adjoint_reports_reach_the_caller():
    model, X, y = draw_model("tanh")
    seen = []
    loss_gradients(model, X, y, adjoint_solver="anderson", on_adjoint=seen.append)
    assert [result.solver for result in seen] == ["anderson"]
    assert seen[0].value.shape == (SIZES["N"], SIZES["m"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MODELS)
def test_conformance_on_the_gpu(name):
    model, X, y = draw_model(name)
    moved = {k: v.cuda() for k, v in (owned(model) | {"X": X}).items()}
    there = type(model).from_variables(moved)
    found = solve_equilibrium(there, moved["X"])
    assert found.value.device.type == "cuda"
    torch.testing.assert_close(found.value.cpu(), solve_equilibrium(model, X).value, rtol=1e-12, atol=1e-12)
    gradients = loss_gradients(there, moved["X"], y.cuda())
    for key, value in loss_gradients(model, X, y).items():
        torch.testing.assert_close(gradients[key].cpu(), value, rtol=1e-10, atol=1e-10)


def stretched(dtype, large):
    """A model whose prediction is 20 while another feature of its input is large."""
    W = torch.tensor([[0.5, 0.0], [0.0, 0.9]], dtype=dtype)
    b = torch.tensor([0.0, 1.0], dtype=dtype)
    return LinearImplicit(W=W, U=torch.eye(2, dtype=dtype), b=b), torch.tensor([[large, 2.0]], dtype=dtype)


@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, 1e5), (torch.float64, 1e12)])
def test_a_large_feature_does_not_spoil_a_prediction(dtype, large):
    model, X = stretched(dtype, large)
    bounds = []
    found = predict(model, X, on_error=bounds.append)
    assert found.item() == pytest.approx(20, rel=400 * torch.finfo(dtype).eps)
    assert bounds[0].shape == (1,)


def test_a_loose_tolerance_bounds_the_error_and_noise_is_warned_of():
    model, X, y = draw_model("implicit-relu")
    exact, exact_gradient = predict(model, X), loss_gradients(model, X, y)
    bounds = []
    loose = predict(model, X, rtol=1e-4, on_error=bounds.append)
    assert ((loose - exact).abs() <= bounds[0]).all()
    assert (bounds[0] < 1e-2).all()
    found = loss_gradients(model, X, y, rtol=1e-6, on_error=bounds.append)
    error = sum((found[name] - exact_gradient[name]).square().sum() for name in found).sqrt()
    assert error <= bounds[1] < 1e-2
    # The large entry moves by rounding alone, and the bound in one norm cannot tell which entry it is.
    W = torch.tensor([[0.0, 0.7], [0.7, 0.0]], dtype=torch.float32)
    hard = LinearImplicit(W=W, U=torch.eye(2), b=torch.tensor([1e-9, 1.0]))
    with pytest.warns(AccuracyWarning, match=r"The prediction of sample 0 may be off by .*, against a size of"):
        predict(hard, torch.tensor([[-7e5, 1e6]]), max_steps=200, rtol=1e-3, atol=1e3)


def test_a_prediction_that_reads_nothing_has_no_error():
    model, X = stretched(torch.float64, 1.0)
    bounds = []
    predict(
        model, X, {"b": 0 * model.b, "W": 3 * model.W}, initial=0 * X, max_steps=2, atol=1e9, on_error=bounds.append
    )
    assert bounds[0].tolist() == [0.0]


BAD_ARGUMENTS = [
    (lambda m, X: {"model": "implicit-relu"}, "`model` of {} must be an equilibrium model. Got 'implicit-relu'"),
    (lambda m, X: {"X": X.tolist()}, "`X` of {} must be a torch tensor. Got list"),
    (lambda m, X: {"X": X[0]}, r"`X` of {} must be a matrix, one sample a row. Got shape \(3,\)"),
    (lambda m, X: {"X": X[:, :2]}, r"`X` of {} must have 3 columns, as the model has. Got shape \(4, 2\)"),
    (lambda m, X: {"X": X.float()}, "`X` of {} must have the dtype torch.float64. Got torch.float32"),
    (lambda m, X: {"X": X.long()}, "`X` of {} must have the dtype torch.float64. Got torch.int64"),
    (lambda m, X: {"X": X.to_sparse()}, "`X` of {} must be a dense tensor"),
    (lambda m, X: {"parameters": [1]}, "`parameters` of {} must be a mapping of tensors. Got list"),
    (lambda m, X: {"parameters": {"b": 1.0}}, "`b` in `parameters` of {} must be a torch tensor. Got float"),
    (lambda m, X: {"parameters": {"b": m.b[:2]}}, r"`b` in `parameters` of {} must have the shape \(5,\). Got \(2,\)"),
    (lambda m, X: {"initial": X}, r"`initial` of {} must have the shape \(4, 5\). Got \(4, 3\)"),
    (lambda m, X: {"initial": "zeros"}, "`initial` of {} must be a torch tensor. Got str"),
]


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("function", [solve_equilibrium, predict, loss_gradients, equilibrium_features])
@pytest.mark.parametrize(("change", "message"), BAD_ARGUMENTS)
def test_wrong_arguments_are_refused_by_name(name, function, change, message):
    model, X, y = draw_model(name)
    arguments = {"model": model, "X": X, "parameters": None, "initial": None, **change(model, X)}
    if function is loss_gradients:
        arguments["y"] = y
    with pytest.raises(ArgumentError, match=message.format(function.__name__)):
        function(**arguments)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0] * 4, "`y` of loss_gradients must be a torch tensor. Got list"),
        (torch.ones(4), "`y` of loss_gradients must have the dtype torch.float64. Got torch.float32"),
        (torch.ones(3, dtype=torch.float64), r"`y` of loss_gradients must have the shape \(4,\). Got \(3,\)"),
    ],
)
def test_wrong_targets_are_refused(y, message):
    model, X, _ = draw_model("implicit-relu")
    with pytest.raises(ArgumentError, match=message):
        loss_gradients(model, X, y)


@dataclass(frozen=True, eq=False)
class DecayedModel(TanhModel):
    """Declares a loss of more than predictions and targets."""

    signature = ModelSignature("decayed", "m", (), (), "Z", ("N", "m"), "", "", {"L": "norm(yhat - y)^2 + fro(W)^2"})


def test_a_declared_loss_of_more_than_predictions_and_targets_is_refused():
    tanh, X, y = draw_model("tanh")
    with pytest.raises(ArgumentError, match=r"loss_gradients: .* the model decayed declares L = .*, in which W stands"):
        loss_gradients(DecayedModel(tanh.W, tanh.U, tanh.b), X, y)
