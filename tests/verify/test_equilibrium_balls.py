"""The ball of an equilibrium contains the true one, found in rational arithmetic; no contraction, no information."""

import math

import pytest
import torch
from flint import fmpq_mat
from rational_models import MODELS, linear_values, matrix, outside, relu, relu_values, size
from verify_harness import environment, informed, judge_all, number_of, truth_of, value_of

from ntk_deq.claims.claim import Verdict
from ntk_deq.evaluation.equilibria import contraction_factor
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.language.declaration import Role, model_names, model_signature
from ntk_deq.systems.model import model_class
from ntk_deq.verify import trial

SHAPES = [(1, 1, 1), (2, 3, 2), (3, 1, 3), (4, 2, 5)]


def model_env(values, model, **options):
    plain = {name: float(v) if v.ndim == 0 else v for name, v in values.items()}
    m = values["b"].shape[0]
    sizes = {"N": values["X"].shape[0], "d": values["X"].shape[1], "m": m}
    return environment(plain, sizes=sizes, model=model, **options)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", [0.0, 0.3, 0.9, 0.999])
def test_the_ball_contains_the_equilibrium(model, shape, norm):
    draw, solve = MODELS[model]
    for seed in range(3):
        values = draw(*shape, norm=norm, seed=seed)
        truth = solve(values)
        Z = value_of("Z", model_env(values, model))
        assert informed(Z)
        assert not outside(Z, truth.Z), (seed, Z.ball.radius)
        # A thousand round-offs for each step that a perturbation lives on.
        assert Z.ball.radius <= 1e-12 / (1 - norm) * max(1.0, size(truth.Z))


@pytest.mark.parametrize("model", MODELS)
def test_close_to_the_edge_the_ball_is_wide_but_right(model):
    draw, solve = MODELS[model]
    for seed in range(2):
        values = draw(2, 2, 3, norm=1 - 2.0**-20, seed=seed)
        Z = value_of("Z", model_env(values, model))
        if model == "linear-implicit":  # the float iteration that guesses the active set is too slow here
            assert not outside(Z, solve(values).Z)
        assert truth_of("norm(Z - next(Z)) <= 0.001", model_env(values, model)).truth is Truth.TRUE


def test_next_is_the_map_in_balls():
    values = relu_values(3, 2, 4, norm=0.8, seed=5)
    S = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gamma, A, X, W = (matrix(values[n]) for n in ("gamma", "A", "X", "W"))
    image = relu(gamma[0, 0] * matrix(S) * A + relu(X * W))
    value = value_of("next(S)", model_env({**values, "S": S}, "implicit-relu"))
    assert not outside(value, image)
    assert value.ball.radius <= 1e-13


@pytest.mark.parametrize("model", MODELS)
def test_iterates_are_the_iterates(model):
    draw, _ = MODELS[model]
    values = draw(2, 3, 3, norm=0.7, seed=3)
    env = model_env(values, model, steps=4)
    state = fmpq_mat(2, 3, [0] * 6)
    if model == "linear-implicit":
        W, U, X = (matrix(values[n]) for n in ("W", "U", "X"))
        step = lambda Z: Z * W.transpose() + X * U.transpose()  # noqa: E731
    else:
        gamma, A, X, W = (matrix(values[n]) for n in ("gamma", "A", "X", "W"))
        step = lambda Z: relu(gamma[0, 0] * Z * A + relu(X * W))  # noqa: E731
    for k in range(5):
        assert not outside(value_of(f"Z[{k}]", env), state)
        state = step(state)


class TestFixedPoint:
    def test_it_does_not_depend_on_the_start(self):
        values = relu_values(2, 2, 3, norm=0.9, seed=2)
        truth = MODELS["implicit-relu"][1](values)
        for start in (0.0, 1.0, -50.0):
            env = model_env({**values, "S": torch.full((2, 3), start, dtype=torch.float64)}, "implicit-relu")
            assert not outside(value_of("fixed_point(S)", env), truth.Z)
            assert truth_of("fixed_point(S) == Z", env).truth in (Truth.TIGHT, Truth.TRUE)

    def test_at_moves_the_equilibrium(self):
        values = linear_values(2, 2, 3, norm=0.6, seed=1)
        env = model_env(values, "linear-implicit")
        moved = {**values, "W": values["W"] / 2, "X": -values["X"]}
        assert not outside(value_of("at(Z, W = W/2, X = -X)", env), MODELS["linear-implicit"][1](moved).Z)
        assert not outside(value_of("Z", env), MODELS["linear-implicit"][1](values).Z)

    def test_at_with_balls_widens_the_equilibrium(self):
        """Every W in the ball has its equilibrium in the ball of Z."""
        values = linear_values(2, 2, 3, norm=0.6, seed=1)
        env = model_env(values, "linear-implicit", radius={"W": 1e-4})
        Z = value_of("Z", env)
        for seed in range(8):
            step = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            moved = {**values, "W": values["W"] + 0.999e-4 * step / torch.linalg.vector_norm(step)}
            assert not outside(Z, MODELS["linear-implicit"][1](moved).Z)


class TestNoContraction:
    @pytest.mark.parametrize("norm", [1.0, 1.0 + 1e-9, 3.0])
    @pytest.mark.parametrize("model", MODELS)
    def test_there_is_no_information_and_a_reason(self, model, norm):
        values = MODELS[model][0](2, 2, 2, norm=1.0, seed=0)
        name = "W" if model == "linear-implicit" else "A"
        values[name] = torch.eye(2, dtype=torch.float64) * norm / float(values.get("gamma", 1.0))
        if norm == 1.0 and model == "implicit-relu":
            values["gamma"] = torch.tensor(0.5, dtype=torch.float64)
            values["A"] = 2 * torch.eye(2, dtype=torch.float64)
        env = model_env(values, model)
        assert not informed(value_of("Z", env))
        assert any("no certificate that the equilibrium exists" in reason for reason in env.notes.unsure)
        assert truth_of("fro(Z) >= 0", env).truth is Truth.UNSURE
        assert truth_of("fro(Z) < 0", env).truth is Truth.UNSURE
        assert truth_of("fro(yhat) < 0", env).truth is Truth.UNSURE

    def test_iterates_exist_all_the_same(self):
        one = torch.ones(1, 1, dtype=torch.float64)
        env = model_env({"W": 2 * one, "U": one, "b": one, "X": one, "y": one}, "linear-implicit", steps=3)
        assert number_of("sum(Z[3])", env) == 7


@pytest.mark.parametrize("name", [name for name in model_names() if model_signature(name).implementation])
class TestSignatures:
    """What the claim language reads in a signature is what the torch implementation computes."""

    SIZES = (("N", 3), ("d", 2), ("m", 4))

    def drawn(self, name, seed=0):
        signature, g = model_signature(name), torch.Generator().manual_seed(seed)
        sizes = dict(self.SIZES)
        values = {}
        for variable in signature.variables:
            value = torch.randn([sizes[s] for s in variable.shape], generator=g, dtype=torch.float64)
            values[variable.name] = value.abs() / (1 + value.abs()) if not variable.shape else value / 4
        return signature, values

    def names(self, signature, values, state=None):
        from ntk_deq.evaluation.environment import model_formulas

        shaped = {k: v.reshape(-1, 1) if v.ndim == 1 else v for k, v in values.items()}
        like = torch.zeros((), dtype=torch.float64)
        formulas = model_formulas(signature.name)
        return TensorNames(shaped, dict(self.SIZES), {}, formulas, like, state=state), formulas

    def test_map(self, name):
        signature, values = self.drawn(name)
        model = model_class(name).from_variables(values)
        Z = torch.randn(3, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        names, formulas = self.names(signature, values, Z)
        torch.testing.assert_close(
            tensor_value(formulas.map, names), model.step(Z, values["X"]), rtol=1e-13, atol=1e-14
        )

    def test_readout(self, name):
        signature, values = self.drawn(name)
        model = model_class(name).from_variables(values)
        Z = torch.randn(3, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        names, formulas = self.names(signature, values, Z)
        yhat = tensor_value(formulas.definitions["yhat"], names).reshape(-1)
        torch.testing.assert_close(yhat, model.readout(Z), rtol=1e-13, atol=1e-14)

    def test_contraction(self, name):
        for seed in range(5):
            signature, values = self.drawn(name, seed)
            model = model_class(name).from_variables(values)
            names, formulas = self.names(signature, values)
            bound = tensor_value(formulas.contraction, names)
            torch.testing.assert_close(bound, model.contraction_bound(), rtol=1e-13, atol=1e-14)
            q = contraction_factor(model_env(values, name)).ball
            assert abs(float(q.mid()) - float(bound)) <= 1e-12
            S, T = (torch.randn(3, 4, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in (1, 2))
            moved = torch.linalg.vector_norm(model.step(S, values["X"]) - model.step(T, values["X"]))
            assert float(moved) <= float(q.upper()) * float(torch.linalg.vector_norm(S - T)) * (1 + 1e-12)

    def test_shapes_and_roles(self, name):
        signature, values = self.drawn(name)
        model = model_class(name).from_variables(values)
        parameters = model.parameters()
        assert tuple(parameters) == signature.names(Role.PARAMETER)
        for key, tensor in parameters.items():
            assert tuple(tensor.shape) == tuple(dict(self.SIZES)[s] for s in signature.variable(key).shape)
        assert tuple(model.initial_state(values["X"]).shape) == tuple(
            dict(self.SIZES)[s] for s in signature.state_shape
        )


def test_a_solve_that_stops_early_gives_a_wide_ball_that_is_right():
    values = linear_values(2, 2, 3, norm=0.95, seed=4)
    truth = MODELS["linear-implicit"][1](values)
    env = model_env(values, "linear-implicit")
    env.max_steps = 2
    Z = value_of("Z", env)
    assert math.isfinite(Z.ball.radius)
    assert not outside(Z, truth.Z)


def test_the_rational_reference_itself_is_a_fixed_point():
    for seed in range(3):
        values = relu_values(3, 2, 4, norm=0.9, seed=seed)
        truth = MODELS["implicit-relu"][1](values)
        gamma, A, X, W = (matrix(values[n]) for n in ("gamma", "A", "X", "W"))
        assert relu(gamma[0, 0] * truth.Z * A + relu(X * W)) == truth.Z
        values = linear_values(3, 2, 4, norm=0.9, seed=seed)
        truth = MODELS["linear-implicit"][1](values)
        assert (
            truth.Z * matrix(values["W"]).transpose() + matrix(values["X"]) * matrix(values["U"]).transpose() == truth.Z
        )


def test_a_factor_that_a_float_cannot_tell_from_one(tmp_path, monkeypatch):
    """A rotation shrunk by less than half a round-off: at more bits the hypothesis holds, and then Z must exist too."""
    c, s = 0.6, math.nextafter(0.8, 0.0)
    W = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    assert float(torch.linalg.matrix_norm(W, 2)) == 1.0
    eye = torch.eye(2, dtype=torch.float64)
    values = {"W": W, "U": eye, "b": torch.ones(2, dtype=torch.float64), "X": eye, "y": torch.zeros(2).double()}

    def fixed(setting, given, index, seed):
        return Instance(setting.name, "a rotation", {"N": 2, "d": 2, "m": 2}, values, index)

    monkeypatch.setattr(trial, "instance_at", fixed)
    result = judge_all(
        tmp_path,
        "- {id: c, setting: net, assume: norm(W) < 1, conclude: \"Z == X*U'*inv(I(m) - W')\"}",
        "  net: {model: linear-implicit, sizes: {N: 2, d: 2, m: 2}}",
        instances=1,
    )["c"]
    assert result.met == 1
    assert result.verdict is Verdict.HOLDS
