"""Fixed points that are only known to be alone near by: in the ball, no other one near, and nothing claimed beyond."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from flint import arb, fmpq, fmpq_mat
from rational_models import eye, matrix, outside
from verify_harness import informed, randn, truth_of, value_of

from ntk_deq import certified as ct
from ntk_deq.certified.precise import adopt, working_precision
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.existence import existence
from ntk_deq.evaluation.quantity import Matrix, Scalar, Truth
from ntk_deq.language.declaration import ModelSignature, Role, Variable

PAIR = ModelSignature(
    name="pair",
    title="Two layers side by side, in no form that another certificate reads",
    sizes=("m",),
    variables=(
        Variable("W", ("m", "m"), Role.PARAMETER, ""),
        Variable("V", ("m", "m"), Role.PARAMETER, ""),
        Variable("c", ("m",), Role.INPUT, ""),
        Variable("d", ("m",), Role.INPUT, ""),
    ),
    state="z",
    state_shape=("m",),
    map="relu(W*z + c) - relu(V*z + d)",
    contraction="norm(W) + norm(V)",
    local=True,
    definitions={"total": "sum(z)"},
)
NUMBER = replace(
    PAIR,
    name="number",
    sizes=(),
    variables=(Variable("a", (), Role.PARAMETER, ""), Variable("c", (), Role.INPUT, "")),
    state_shape=(),
    map="c - relu(a*z)",
    contraction="abs(a)",
    definitions={},
)


def env_of(model, values, sizes=None):
    known = {
        name: Matrix(ct.ball(v), float(v.norm())) if isinstance(v, torch.Tensor) else Scalar(arb(v), abs(v))
        for name, v in values.items()
    }
    return Environment(model, sizes or {}, known, {}, Notes(), PROVIDERS)


def found(env):
    """Return the ball of the equilibrium, or None where none is known."""
    try:
        z = value_of("z", env)
    except OutsideClaimError as outside:
        if outside.certain:  # nothing shows that there is none
            raise
        return None
    assert informed(z)
    return z


def pair(m, seed):
    scale = 1.5
    values = {"W": scale * randn(m, m, seed=seed), "V": scale * randn(m, m, seed=seed + 1000)}
    return values | {"c": randn(m, 1, seed=seed + 2000), "d": randn(m, 1, seed=seed + 3000)}


def fixed_points(values):
    """Return every fixed point, exactly: pattern by pattern."""
    W, V, c, d = (matrix(values[name]) for name in "WVcd")
    m, found = W.nrows(), []
    for bits in product((0, 1), repeat=2 * m):
        D, E = (fmpq_mat(m, m, [s[i] * int(i == j) for i in range(m) for j in range(m)]) for s in (bits[:m], bits[m:]))
        try:
            z = (eye(m) - D * W + E * V).solve(D * c - E * d)
        except ZeroDivisionError:
            continue
        pre = [*(W * z + c).entries(), *(V * z + d).entries()]
        if all(x >= 0 if on else x <= 0 for x, on in zip(pre, bits, strict=True)) and z not in found:
            found.append(z)
    return found


def square_distance(a, b):
    return sum((x * x for x in (a - b).entries()), fmpq(0))


def whole_pair(m, seed):
    """Return matrices of small whole numbers, which meet kinks."""
    drawn = torch.randint(-2, 3, (2 * m + 2, m), generator=torch.Generator().manual_seed(seed)).double()
    return {"W": drawn[:m], "V": drawn[m:-2], "c": drawn[-2:-1].mT.contiguous(), "d": drawn[-1:].mT.contiguous()}


def test_kinks_at_the_fixed_point():
    met = 0
    for seed in range(80):
        values = whole_pair(1 + seed % 2, seed)
        env = env_of(PAIR, values, {"m": 1 + seed % 2})
        z, truth = found(env), fixed_points(values)
        if z is None or existence(env).gap is not None:
            continue
        (point,) = (point for point in truth if not outside(z, point))
        apart, centre = fmpq(*env.notes.nearby.as_integer_ratio()), matrix(z.ball.centre)
        assert all(square_distance(other, centre) > apart**2 for other in truth if other != point)
        W, V, c, d = (matrix(values[name]) for name in "WVcd")
        met += any(x == 0 for x in [*(W * point + c).entries(), *(V * point + d).entries()])
    assert met >= 3


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_ball_holds_one_fixed_point_and_no_other_is_near(m):
    local = several = 0
    for seed in range(25):
        values = pair(m, seed)
        env = env_of(PAIR, values, {"m": m})
        z, truth = found(env), fixed_points(values)
        if z is None:
            continue
        inside = [point for point in truth if not outside(z, point)]
        assert len(inside) == 1, seed
        if existence(env).gap is not None:
            assert len(truth) == 1
            continue
        local, several = local + 1, several + (len(truth) > 1)
        apart = fmpq(*env.notes.nearby.as_integer_ratio())
        centre = matrix(z.ball.centre)
        assert all(square_distance(point, centre) > apart**2 for point in truth if point != inside[0])
        assert z.ball.radius <= env.notes.nearby
    assert local >= 8
    assert several >= (m > 1)


@pytest.mark.parametrize(
    ("a", "c", "known"),
    [
        (3.0, 0.0, True),  # at the corner, with slopes between -3 and 0
        (3.0, 1.0, True),
        (-2.0, 1.0, True),  # 1 and -1
        (-2.0, -1.0, False),  # none
        (-1.0, 0.0, False),  # every z <= 0
    ],
)
def test_a_state_that_is_a_number(a, c, known):
    env = env_of(NUMBER, {"a": a, "c": c})
    z = found(env)
    assert (z is not None) == known
    if known:
        assert truth_of("z == c - relu(a*z)", env).truth >= Truth.NEAR_ZERO


@pytest.mark.parametrize(
    "text",
    ["z + 1", "z", "relu(z) + 1", "2*relu(z) - z + c*0", "z + exp(z)"],
)
def test_where_there_is_none_or_a_continuum_nothing_is_known(text):
    env = env_of(replace(NUMBER, map=text, contraction="", name=text), {"a": 1.0, "c": 0.0})
    with pytest.raises(OutsideClaimError, match="no certificate") as caught:
        value_of("z", env)
    assert (caught.value.hypothesis, caught.value.certain) == ("equilibrium", False)


def test_what_jumps_must_stay_on_one_side():
    step = replace(NUMBER, map="c + 2*step(z) + relu(a*z)", contraction="", name="step")
    assert informed(value_of("z", env_of(step, {"a": -3.0, "c": 1.0})))  # z = 3
    assert informed(value_of("z", env_of(step, {"a": 0.0, "c": -1.0})))  # z = -1, and 1 is another one
    with pytest.raises(OutsideClaimError, match="zero"):
        value_of("z", env_of(step, {"a": 0.0, "c": 0.0}))


@pytest.mark.parametrize("seed", range(4))
def test_with_more_bits(seed):
    values = pair(2, seed)
    env = env_of(PAIR, values, {"m": 2})
    if found(env) is None:
        return
    with working_precision(128):
        precise = {k: Matrix(adopt(v.ball), v.scale) for k, v in env.variables.items()}
        finer = Environment(env.model, env.sizes, precise, {}, Notes(), PROVIDERS, precision=128)
        z = value_of("z", finer).ball
        assert z.is_finite
        assert z.radius < 1e-30
        assert any(
            all(ball.contains(x) for ball, x in zip(z.flat, point.entries(), strict=True))
            for point in fixed_points(values)
        )


@pytest.mark.parametrize("seed", range(4))
def test_derivatives_by_the_implicit_function_theorem(seed):
    """With the slopes D and E of the units at the exact fixed point: dz/dc = (I - D W + E V)^-1 D."""
    values = pair(2, seed)
    env = env_of(PAIR, values, {"m": 2})
    z = found(env)
    if z is None:
        return
    (point,) = (point for point in fixed_points(values) if not outside(z, point))
    W, V, c, d = (matrix(values[name]) for name in "WVcd")
    D, E = (
        fmpq_mat(2, 2, [int(i == j and pre[i, 0] > 0) for i in range(2) for j in range(2)])
        for pre in (W * point + c, V * point + d)
    )
    slope = (eye(2) - D * W + E * V).inv() * D
    total = fmpq_mat(1, 2, [1, 1]) * slope
    value = value_of("grad(total, c)", env)
    assert informed(value)
    assert not outside(value, total.transpose())


def test_a_smooth_map():
    """z = softplus(2 z) - 3 relu(z) + c, at the only fixed point near the one found."""
    model = replace(NUMBER, map="softplus(2*z) - 3*relu(z) + c", contraction="", name="smooth")
    for c in (-4.0, -1.0, 0.25, 2.0):
        env = env_of(model, {"a": 0.0, "c": c})
        z = found(env)
        if z is not None:
            assert truth_of("z == softplus(2*z) - 3*relu(z) + c", env).truth >= Truth.NEAR_ZERO
            x = float(z.ball.centre if isinstance(z, Matrix) else z.ball.mid())
            slope = 1 / (1 - 2 / (1 + torch.exp(torch.tensor(-2 * x).double())) + 3 * (x > 0))
            assert float(value_of("grad(z + 0, c)", env).ball.mid()) == pytest.approx(float(slope), rel=1e-9)
            return
    pytest.fail("none of these was solved")


@pytest.mark.parametrize("text", ["at(total, c = 2*c)", "total - at(total, W = W)", "fixed_point(c)"])
def test_equilibria_elsewhere_are_not_told_apart_from_others(text):
    values = next(v for v in (pair(2, seed) for seed in range(50)) if _alone(v))
    env = env_of(PAIR, values, {"m": 2})
    assert not informed(value_of(text, env))
    assert any("which one is meant" in reason for reason in env.notes.unsure)


def test_another_equilibrium_is_not_taken_for_zero_where_one_is():
    """z = z z keeps zero at zero, and has the fixed point 1 besides, where relu(a z) has a kink at a = 0."""
    model = replace(NUMBER, map="z*z", contraction="", name="two")
    env = env_of(model, {"a": 0.0, "c": 1.0})
    assert existence(env).gap is None
    env.cache["z"] = Matrix(ct.ball(torch.ones(1, 1, dtype=torch.float64)), 1.0)
    with pytest.raises(OutsideClaimError, match="zero"):
        value_of("grad(relu(a*z), a)", env)


def _alone(values):
    env = env_of(PAIR, values, {"m": 2})
    return found(env) is not None and env.notes.nearby < float("inf")


def test_a_declared_certificate_is_the_only_one():
    """A model that names its contraction factor has no equilibrium where that is not below one."""
    values = next(v for v in (pair(2, seed) for seed in range(50)) if _alone(v))
    env = env_of(replace(PAIR, local=False, name="strict"), values, {"m": 2})
    assert not informed(value_of("z", env))
