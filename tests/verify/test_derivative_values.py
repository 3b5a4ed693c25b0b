"""`grad` and `jac` against rational arithmetic through the equilibrium, closed forms and differences; kinks."""

import math

import pytest
import torch
from rational_models import MODELS, matrix, outside, size
from verify_harness import environment, generator, informed, judge_all, randn, truth_of, value_of

from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.verify.results import Evidence, Verdict


def model_env(values, model, **options):
    plain = {name: float(v) if v.ndim == 0 else v for name, v in values.items()}
    sizes = {"N": values["X"].shape[0], "d": values["X"].shape[1], "m": values["b"].shape[0]}
    return environment(plain, sizes=sizes, model=model, **options)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(30))
def test_gradients_of_the_loss_through_the_equilibrium(model, seed):
    """Sixty random instances: the exact gradient lies in the ball, and the ball is narrow.

    On nine of them a row of the features is zero, and so is what relu is applied to there, whatever A is near by.
    """
    draw, solve = MODELS[model]
    shape = [1 + int(torch.randint(4, (), generator=generator(100 * seed + k))) for k in range(3)]
    values = draw(*shape, norm=(0.2, 0.5, 0.8, 0.95, 0.99)[seed % 5], seed=seed)
    truth = solve(values)
    env = model_env(values, model)
    for name, gradient in truth.gradients.items():
        value = value_of(f"grad(L, {name})", env)
        assert not outside(value, gradient), name
        assert value.ball.radius <= 1e-7 * max(1e-3, size(gradient))


@pytest.mark.parametrize("model", MODELS)
def test_jacobians_of_the_prediction_give_the_gradient(model):
    draw, solve = MODELS[model]
    for seed in range(6):
        values = draw(3, 2, 3, norm=0.7, seed=seed)
        truth = solve(values)
        if truth.kink:
            continue
        env = model_env(values, model)
        for name, gradient in truth.gradients.items():
            assert truth_of(f"vec(grad(L, {name})) == jac(yhat, {name})'*(yhat - y)", env).truth is Truth.TIGHT
            assert truth_of(f"jac(L, {name}) == vec(grad(L, {name}))'", env).truth in (Truth.TIGHT, Truth.TRUE)
            assert gradient.nrows() * gradient.ncols() == value_of(f"jac(yhat, {name})", env).ball.shape[1]


@pytest.mark.parametrize("model", MODELS)
def test_jacobians_against_differences(model):
    values = MODELS[model][0](2, 2, 3, norm=0.6, seed=11)
    env = model_env(values, model)
    for name in ("W", "X"):
        jacobian = value_of(f"jac(Z, {name})", env)
        origin = values[name]
        for k in range(origin.numel()):
            i, j = k % origin.shape[0], k // origin.shape[0]  # column after column
            step = torch.zeros_like(origin)
            step[i, j] = 1e-6
            high, low = (value_of("vec(Z)", model_env({**values, name: origin + s * step}, model)) for s in (1, -1))
            column = (high.ball.centre - low.ball.centre).flatten() / 2e-6
            # The error of a central difference at this step: about 1e-12 from curvature and 1e-10 from rounding.
            torch.testing.assert_close(jacobian.ball.centre[:, k], column, rtol=1e-6, atol=1e-8)


class TestClosedForms:
    A, B, v = randn(3, 3, seed=1), randn(3, 3, seed=2), randn(3, 1, seed=3)

    @pytest.mark.parametrize(
        "text",
        [
            "grad(trace(A*B), A) == B'",
            "grad(sum(A), A) == ones(3, 3)",
            "grad(fro(A)^2, A) == 2*A",
            "grad(fro(A), A) == A/fro(A)",
            "grad(norm(v), v) == v/norm(v)",
            "grad(norm(v)^3, v) == 3*norm(v)*v",
            "grad(v'*A*v, v) == (A + A')*v",
            "grad(v'*A*v, A) == v*v'",
            "grad(det(A), A) == det(A)*inv(A)'",
            "grad(trace(inv(A)), A) == -(inv(A)^2)'",
            "grad(log(fro(A)), A) == A/fro(A)^2",
            "grad(exp(dot(v, v)), v) == 2*exp(dot(v, v))*v",
            "grad(sqrt(trace(A'*A)), A) == A/fro(A)",
            "grad(x^3 + x*y, x) == 3*x^2 + y",
            "grad(1/x, x) == -1/x^2",
            "grad(x^y, y) == log(x)*x^y",
            "grad(sum(relu(A)), A) == step(A)",
            "grad(sum(abs(A)), A) == 2*step(A) - ones(3, 3)",
            "grad(max(x, y), x) == 0",
            "grad(max(x, y), y) == 1",
            "grad(min(x, y), x) == 1",
            "sum(grad(max(A), A)) == 1",
            "grad(lambda_max(A + A'), A) == 2*grad(lambda_max((A + A')/2), A)",
            "trace(grad(lambda_min(A*A'), A)'*A) == 2*lambda_min(A*A')",
            "trace(grad(norm(A), A)'*A) == norm(A)",
            "trace(grad(sigma_min(A), A)'*A) == sigma_min(A)",
            "trace(grad(rho(A), A)'*A) == rho(A)",
            "trace(grad(norm1(A), A)'*A) == norm1(A)",
            "trace(grad(norminf(A), A)'*A) == norminf(A)",
            "trace(grad(cond(A), A)'*A) == 0",
            "jac(A*v, v) == A",
            "jac(A*v, A) == kron(v', I(3))",
            "jac(A*B, A) == kron(B', I(3))",
            "jac(A*B, B) == kron(I(3), A)",
            "jac(A', A) == commutation(3, 3)",
            "jac(vec(A), A) == I(9)",
            "jac(A*A, A) == kron(A', I(3)) + kron(I(3), A)",
            "jac(inv(A), A) == -kron(inv(A)', inv(A))",
            "jac(hadamard(A, B), A) == diag(vec(B))",
            "jac(diag(v), v)*v == vec(diag(v))",
            "jac(kron(v, A), v)*v == vec(kron(v, A))",
            "jac(x*A, x) == vec(A)",
            "jac(A, x) == zeros(9, 1)",
            "grad(at(trace(A*B), A = A*A), B) == (A*A)'",
        ],
    )
    def test_they_agree(self, text):
        env = environment({"A": self.A, "B": self.B, "v": self.v, "x": 0.75, "y": 2.5})
        # Derivatives that vanish compare rounding with zero, which is near zero rather than tight.
        assert truth_of(text, env).truth in (Truth.TRUE, Truth.TIGHT, Truth.NEAR_ZERO)

    @pytest.mark.parametrize(
        "text",
        [
            "grad(trace(A*B), A) == B",
            "grad(fro(A)^2, A) == A",
            "grad(v'*A*v, v) == 2*A*v",
            "jac(A*v, A) == kron(I(3), v')",
            "jac(A', A) == I(9)",
            "grad(rho(A), A) == grad(norm(A), A)",
            "grad(max(x, y), x) == 1",
        ],
    )
    def test_wrong_ones_do_not(self, text):
        env = environment({"A": self.A, "B": self.B, "v": self.v, "x": 0.75, "y": 2.5})
        assert truth_of(text, env).truth is Truth.FALSE


class TestKinks:
    ZERO: torch.Tensor = torch.zeros(2, 2, dtype=torch.float64)

    @pytest.mark.parametrize(
        "text",
        [
            "grad(sum(relu(A)), A)",
            "grad(sum(abs(A)), A)",
            "jac(relu(A), A)",
            "grad(relu(x), x)",
            "grad(sum(relu(B*A)), A)",
        ],
    )
    def test_an_exact_zero_is_outside_for_certain(self, text):
        env = environment({"A": self.ZERO, "B": torch.eye(2, dtype=torch.float64), "x": 0.0})
        with pytest.raises(OutsideClaimError) as raised:
            value_of(text, env)
        assert raised.value.certain
        assert raised.value.hypothesis == "differentiable"

    def test_a_possible_zero_is_outside_without_certainty(self):
        with pytest.raises(OutsideClaimError) as raised:
            value_of("grad(sum(relu(A)), A)", environment({"A": self.ZERO}, radius={"A": 1e-20}))
        assert not raised.value.certain

    def test_a_zero_inside_a_definition_or_the_map_counts(self):
        with pytest.raises(OutsideClaimError):
            value_of("grad(f, A)", environment({"A": self.ZERO}, lets={"f": "sum(g)", "g": "relu(A)"}))
        values = MODELS["implicit-relu"][0](2, 2, 2, norm=0.5, seed=0)
        with pytest.raises(OutsideClaimError):
            value_of("grad(L, W)", model_env({**values, "W": self.ZERO}, "implicit-relu"))

    @pytest.mark.parametrize(
        ("text", "points"),
        [
            ("grad(norm(A), A)", "zero identity"),  # at the identity the largest singular value is double
            ("grad(sigma_max(A), A)", "zero identity"),
            ("grad(sigma_min(A), A)", "zero identity"),
            ("grad(fro(A), A)", "zero"),
            ("grad(norm(v), v)", "zero"),
            ("grad(max(v), v)", "zero identity"),
            ("grad(max(x, x*x), x)", "zero identity"),
            ("grad(norm1(A), A)", "zero identity"),
            ("grad(norminf(A), A)", "zero identity"),
            ("grad(lambda_max(A), A)", "zero identity"),
            ("grad(lambda_min(A), A)", "zero identity"),
            ("grad(rho(A), A)", "zero identity"),
            ("grad(cond(A), A)", "zero identity"),
            ("grad(sqrt(x), x)", "zero"),
        ],
    )
    def test_no_derivative_is_made_up_where_there_is_none(self, text, points):
        for point in points.split():
            A = self.ZERO if point == "zero" else torch.eye(2, dtype=torch.float64)
            x = 0.0 if point == "zero" else 1.0
            v = torch.full((2, 1), x, dtype=torch.float64)
            try:
                value = value_of(text, environment({"A": A, "v": v, "x": x}))
            except OutsideClaimError:
                continue
            assert not informed(value)

    def test_the_square_of_a_norm_is_smooth_at_zero(self):
        env = environment({"A": self.ZERO, "v": torch.zeros(2, 1, dtype=torch.float64)})
        assert truth_of("grad(fro(A)^2, A) == zeros(2, 2) and grad(norm(v)^2, v) == zeros(2)", env).truth is Truth.TRUE


def test_no_contraction_no_derivative():
    values = MODELS["linear-implicit"][0](2, 2, 2, norm=2.0, seed=0)
    env = model_env(values, "linear-implicit")
    assert not informed(value_of("grad(L, b)", env))
    assert any("no certificate that the equilibrium exists" in reason for reason in env.notes.unsure)


def test_a_gradient_that_needs_no_equilibrium_does_without_one():
    values = MODELS["linear-implicit"][0](2, 2, 2, norm=2.0, seed=0)
    assert truth_of("grad(fro(b)^2, b) == 2*b", model_env(values, "linear-implicit")).truth is Truth.TRUE


def test_second_derivatives_are_refused_in_words():
    with pytest.raises(NtkDeqError, match="second derivatives"):
        value_of("grad(fro(grad(fro(A)^2, A)), A)", environment({"A": torch.eye(2, dtype=torch.float64)}))


def test_balls_around_the_variables_reach_the_derivative():
    A, B = randn(2, 2, seed=1), randn(2, 2, seed=2)
    value = value_of("grad(trace(A*A*B), A)", environment({"A": A, "B": B}, radius={"A": 1e-3}))
    for seed in range(6):
        step = randn(2, 2, seed=seed)
        moved = A + 0.999e-3 * step / torch.linalg.vector_norm(step)
        exact = (matrix(moved) * matrix(B) + matrix(B) * matrix(moved)).transpose()
        assert not outside(value, exact)


def test_estimated_derivatives_say_so(tmp_path):
    setting = 'plain: {sizes: {n: 2..3}, domain: {S: "symmetric[n, n]", A: "real[n, n]"}}'
    results = judge_all(
        tmp_path,
        """
- {id: certified, setting: plain, conclude: "grad(fro(A)^2, A) == 2*A"}
- {id: estimated, setting: plain, conclude: "trace(grad(lambda_max(A), A)) <= 1.0001"}
""",
        "  " + setting,
    )
    assert results["certified"].evidence is Evidence.CERTIFIED
    assert results["certified"].verdict is Verdict.HOLDS
    assert results["estimated"].evidence is Evidence.NUMERIC
    assert results["estimated"].estimated
    assert results["estimated"].verdict is not Verdict.REFUTED
    assert math.isfinite(results["certified"].worst_margin.lo)
