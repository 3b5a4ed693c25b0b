"""Derivatives through equilibria: exact rational truths, truths at 2000 bits, and bounds weakened on purpose."""

import random
from dataclasses import replace

import pytest
import torch
from derivative_harness import as_ball, certified, environment, excess, random_matrix, relative_radius, truth
from flint import fmpq, fmpq_mat

from ntk_deq.certified.structured import Structured, lazy_above
from ntk_deq.evaluation import environment as environment_module
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.derivatives import Cotangent
from ntk_deq.evaluation.derivatives import derivative as derivatives
from ntk_deq.evaluation.derivatives import reverse as adjoint
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS, differentiate
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.language.parser import parse

RELU = (
    "grad(L, W)",
    "grad(L, A)",
    "grad(L, b)",
    "grad(L, gamma)",
    "grad(L, X)",
    "grad(L, y)",
    "jac(yhat, W)",
    "jac(yhat, A)",
    "jac(yhat, b)",
    "jac(yhat, gamma)",
    "jac(Z, A)",
    "jac(next(S), A)",
    "jac(fixed_point(S), A)",
    "jac(Z[2], W)",
    "jac(Z[1] - Z, W)",
    "grad(fro(at(Z, A = V*A) - Z)^2, A)",
    "grad(fro(at(Z, A = V*A))^2, V)",
    "grad(sum(at(Z, gamma = gamma^2, W = W*V)), gamma)",
    "jac(at(yhat, b = Z'*y), A)",
    "grad(sigma_max(Z), W)",
)
LINEAR = ("grad(L, W)", "grad(L, U)", "grad(L, b)", "grad(L, y)", "jac(yhat, W)", "jac(Z, X)", "jac(Z*Z', U)")


def relu(n: int, d: int, m: int, seed: int, *, q: float = 0.5, scale: float = 1.0) -> Environment:
    """Return a ReLU network whose map contracts by q."""
    a = random_matrix(m, m, seed)
    return environment(
        {
            "W": random_matrix(d, m, seed + 1),
            "A": a / torch.linalg.matrix_norm(a, 2) * (q / 0.75),
            "b": random_matrix(m, 1, seed + 2),
            "gamma": 0.75,
            "X": random_matrix(n, d, seed + 3) * scale,
            "y": random_matrix(n, 1, seed + 4) * scale,
            "S": random_matrix(n, m, seed + 5) * scale,
            "V": random_matrix(m, m, seed + 6) * 0.1,
        },
        model="implicit-relu",
        sizes={"N": n, "d": d, "m": m},
    )


def linear(n: int, d: int, m: int, seed: int, *, q: float = 0.5, scale: float = 1.0) -> Environment:
    """Return a linear network whose map contracts by q."""
    w = random_matrix(m, m, seed)
    return environment(
        {
            "W": w / torch.linalg.matrix_norm(w, 2) * q,
            "U": random_matrix(m, d, seed + 1) * scale,
            "b": random_matrix(m, 1, seed + 2),
            "X": random_matrix(n, d, seed + 3),
            "y": random_matrix(n, 1, seed + 4),
        },
        model="linear-implicit",
        sizes={"N": n, "d": d, "m": m},
    )


def draws(count: int, texts: tuple[str, ...], build, **options):
    """Yield random environments and derivatives whose activation pattern is certain."""
    generator = random.Random(11)
    for seed in range(count):
        env = build(generator.randint(1, 3), generator.randint(1, 3), generator.randint(2, 4), 10 * seed, **options)
        text = texts[seed % len(texts)]
        try:
            found = certified(text, env)
        except OutsideClaimError:
            continue
        yield text, env, found


@pytest.mark.parametrize("q", [0.1, 0.9, 0.999999])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e60])
def test_relu_derivatives_contain_the_truth(q: float, scale: float) -> None:
    met = 0
    for text, env, found in draws(len(RELU), RELU, relu, q=q, scale=scale):
        met += as_ball(found).is_finite
        assert excess(found, truth(text, env)) <= 1, text
    assert met >= 8


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e60])
def test_linear_derivatives_contain_the_truth(scale: float) -> None:
    for text, env, found in draws(2 * len(LINEAR), LINEAR, linear, q=0.9, scale=scale):
        assert excess(found, truth(text, env)) <= 1, text
        assert relative_radius(found) < 1e-11


def rational(tensor: torch.Tensor) -> fmpq_mat:
    """Return a matrix of floats without any rounding."""
    ratios = [x.as_integer_ratio() for x in tensor.flatten().tolist()]
    return fmpq_mat(tensor.shape[0], tensor.shape[1], [fmpq(*ratio) for ratio in ratios])


def test_linear_jacobians_contain_the_exact_rational_ones() -> None:
    """z = W z + U x, yhat = b'z: with g = (I - W')^-1 b, d yhat/dW = g z', d yhat/dU = g x', d yhat/db = z."""
    for seed in range(20):
        env = linear(2, 2, 3, 10 * seed, q=0.9)
        w, u, b, x = (rational(env.variables[name].ball.centre) for name in ("W", "U", "b", "X"))
        unit = fmpq_mat(3, 3, [int(i == j) for i in range(3) for j in range(3)])
        z = (unit - w).solve(u * x.transpose())
        g = (unit - w.transpose()).solve(b)
        for name, right in (("W", z), ("U", x.transpose()), ("b", None)):
            ball = as_ball(certified(f"jac(yhat, {name})", env))
            centre = rational(ball.centre)
            distance = fmpq(0)
            for i in range(2):
                rows = 1 if right is None else right.nrows()
                # vec: column after column, entry (k, c) of the variable at c m + k
                exact = [z[k, i] if right is None else g[k, 0] * right[c, i] for c in range(rows) for k in range(3)]
                distance += sum(((e - centre[i, j]) ** 2 for j, e in enumerate(exact)), fmpq(0))
            assert distance <= fmpq(*ball.radius.as_integer_ratio()) ** 2
            assert ball.radius < 1e-12 * ball.fro


@pytest.mark.parametrize("build", [relu, linear])
def test_agrees_with_automatic_differentiation_through_the_equilibrium(build) -> None:
    texts = tuple(t for t in (RELU if build is relu else LINEAR) if "[" not in t)
    met = 0
    for text, env, found in draws(2 * len(texts), texts, build, q=0.8):
        expr = parse(text)
        other = differentiate(expr.name, expr.args[0], expr.args[1].name, tensor_names(env)).reshape(-1)
        ball = as_ball(found)
        # The other route stops at residuals of 32 round-offs, amplified by 1/(1 - q) = 5 and by the formula.
        assert torch.allclose(ball.centre.reshape(-1), other, rtol=1e-9, atol=1e-10 * max(1.0, ball.fro)), text
        met += 1
    assert met >= len(texts)


def test_large_states_are_solved_by_iteration_and_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("jac(yhat, A)", "jac(Z, W)", "grad(L, A)", "grad(fro(at(Z, A = V*A))^2, V)")
    for text, env, found in draws(20, texts, relu, q=0.7):
        with monkeypatch.context() as patch:
            patch.setattr(adjoint, "DENSE", 0)
            again = certified(text, Environment(env.model, env.sizes, env.variables, {}, env.notes, PROVIDERS))
        assert excess(again, truth(text, env)) <= 1
        if as_ball(found).fro == 0:  # no unit is on
            assert as_ball(again).radius < 1e-20
            continue
        assert relative_radius(again) < 1e-10
        assert as_ball(again).radius != as_ball(found).radius


STRUCTURED = (
    "grad(trace(diag(vec(Z))*kron(A', I(N))), A)",
    "jac(inv(I(N*m) - gamma*kron(A', I(N)))*vec(Z), A)",
    "grad(fro(gamma*kron(b', I(N))*inv(I(N*m) - gamma*kron(A', I(N)))*kron(I(m), Z))^2, b)",
    "grad(sum(kron(I(m), Z)) + fro(diag(vec(Z)))^2, W)",
    "grad(det(kron(I(2), I(m) - gamma*A)), A)",
)


def test_structured_matrices_inside_a_derivative() -> None:
    with lazy_above(0):
        for text in STRUCTURED:
            for _, env, found in draws(3, (text,), relu):
                assert isinstance(evaluate(parse("diag(vec(Z))"), env).ball, Structured)
                assert excess(found, truth(text, env)) <= 1
                assert relative_radius(found) < 1e-11


def test_long_jacobians_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derivatives, "CHUNK_ENTRIES", 40)  # two rows of 16 entries at a time
    env = relu(3, 1, 4, 50)
    for name in ("W", "A", "gamma"):
        found = certified(f"jac(Z, {name})", env)
        assert excess(found, truth(f"jac(Z, {name})", env)) <= 1
        assert relative_radius(found) < 1e-12


def test_adjoint_is_solved_once_for_all_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    whole = adjoint.Adjoint.solve
    monkeypatch.setattr(adjoint.Adjoint, "solve", lambda self, cot: solved.append(cot.count) or whole(self, cot))
    env = relu(3, 2, 4, 50)
    for name in ("W", "A", "b", "gamma"):
        certified(f"grad(L, {name})", env)
        certified(f"jac(yhat, {name})", env)
        certified(f"jac(Z*b, {name})", env)  # the same quantity under another name
    assert sorted(solved) == [1, 3]


def test_a_map_that_does_not_see_the_state_needs_no_adjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    formulas = replace(environment_module.model_formulas("linear-implicit"), image=parse("X*U'"))
    monkeypatch.setattr(environment_module, "model_formulas", lambda name: formulas)
    env = linear(2, 2, 3, 90)
    found = as_ball(certified("grad(sum(Z), U)", env))
    sums = env.variables["X"].ball.centre.sum(dim=0)
    assert torch.allclose(found.centre, sums.expand(3, 2), rtol=1e-14, atol=0)
    assert found.radius < 1e-14 * found.fro


def misses(text: str, count: int = 12) -> int:
    """Count the instances at which a derivative's ball misses the truth."""
    return sum(excess(found, truth(text, env)) > 1 for _, env, found in draws(count, (text,), relu, q=0.9))


def test_harness_catches_an_adjoint_without_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    assert misses("jac(Z, W)") == 0
    whole = adjoint.Adjoint.solve

    def bare(self, cot):
        ball = whole(self, cot).ball
        return Cotangent(type(ball)(ball.centre), 1.0)

    monkeypatch.setattr(adjoint.Adjoint, "solve", bare)
    assert misses("jac(Z, W)") > 0


def test_harness_catches_a_phantom_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of the adjoint passed off as its solution."""
    monkeypatch.setattr(adjoint.Adjoint, "solve", lambda self, cot: cot)
    assert misses("grad(L, A)") > 4


def test_harness_catches_a_solve_that_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the right bound a poor candidate gives a wide ball, which still holds the truth; without it, not."""

    def early(self, forcing):
        return forcing

    monkeypatch.setattr(adjoint.Adjoint, "_solve_float", early)
    found = certified("grad(L, A)", relu(2, 2, 4, 20))
    assert relative_radius(found) > 1e-3
    assert misses("grad(L, A)") == 0
    monkeypatch.setattr(adjoint, "multiply_up", lambda *values: 1e-16)
    assert misses("grad(L, A)") > 4


def test_float32_is_certified_too() -> None:
    for text in ("grad(L, A)", "jac(yhat, W)", "jac(Z, A)"):
        env = relu(3, 2, 4, 50)
        values = {
            name: v.ball.centre.float() if hasattr(v.ball, "centre") else float(v.ball.mid())
            for name, v in env.variables.items()
        }
        single = environment(values, model="implicit-relu", sizes=dict(env.sizes))
        found = certified(text, single)
        assert as_ball(found).centre.dtype is torch.float32
        assert excess(found, truth(text, single)) <= 1
        assert 1e-9 < relative_radius(found) < 1e-3
