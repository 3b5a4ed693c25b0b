"""Equilibria that exist for another reason than a contraction: the bound holds, and nothing is claimed without one."""

from fractions import Fraction
from itertools import product

import pytest
import torch
from flint import fmpq, fmpq_mat
from rational_models import eye, matrix, outside, relu
from test_equilibrium_balls import model_env
from verify_harness import informed, truth_of, value_of

from ntk_deq.certified.precise import adopt, working_precision
from ntk_deq.evaluation.environment import Environment, model_formulas
from ntk_deq.evaluation.existence import existence
from ntk_deq.evaluation.quantity import Matrix, Truth
from ntk_deq.language.fixed_point_map import layer_weight
from ntk_deq.language.format import format_expr
from ntk_deq.language.parser import parse
from ntk_deq.language.types import SCALAR, shape_type
from ntk_deq.language.typing import infer


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def falling(m: int, seed: int) -> torch.Tensor:
    return torch.diag(-2 - 50 * randn(m, seed=seed).abs())


def triangular(m: int, seed: int) -> torch.Tensor:
    return 5 * randn(m, m, seed=seed).triu(1) + falling(m, seed + 100)


def monotone(m: int, seed: int) -> torch.Tensor:
    skew = 4 * randn(m, m, seed=seed)
    return skew - skew.T - torch.eye(m, dtype=torch.float64)


def rows_below_one(m: int, seed: int) -> torch.Tensor:
    A = randn(m, m, seed=seed)
    return 0.99 * A / A.abs().sum(1, keepdim=True)


def columns_below_one(m: int, seed: int) -> torch.Tensor:
    return rows_below_one(m, seed).T.contiguous()


def small_radius(m: int, seed: int) -> torch.Tensor:
    A = randn(m, m, seed=seed)
    scale = torch.diag(10.0 ** torch.arange(m, dtype=torch.float64))
    return scale @ (A / (1.2 * float(torch.linalg.eigvals(A.abs()).abs().max()))) @ torch.linalg.inv(scale)


def principal_minors(m: int, seed: int) -> torch.Tensor:
    """Return L with a P-matrix I - L that is neither dominant nor positive definite, in two of its units."""
    A = torch.zeros(m, m, dtype=torch.float64)
    A[0, 1], A[1, 0] = -4.0, 1.0
    return A + 0.01 * randn(m, m, seed=seed)


KINDS = [falling, triangular, monotone, rows_below_one, columns_below_one, small_radius, principal_minors]


def values_of(L: torch.Tensor, seed: int, N: int = 2) -> dict[str, torch.Tensor]:
    """Values of the ReLU network with gamma A = L; some units are off."""
    m = L.shape[0]
    return {
        "W": randn(2, m, seed=seed + 1),
        "A": 2 * L,
        "b": randn(m, 1, seed=seed + 2),
        "gamma": torch.tensor(0.5, dtype=torch.float64),
        "X": randn(N, 2, seed=seed + 3),
        "y": randn(N, 1, seed=seed + 4),
    }


def solution(values: dict[str, torch.Tensor]) -> fmpq_mat:
    """Return the equilibrium, every row found by trying all patterns; fails unless there is just one."""
    L = matrix(values["A"]) * fmpq(1, 2)
    phi = relu(matrix(values["X"]) * matrix(values["W"]))
    m, entries = L.nrows(), []
    for n in range(phi.nrows()):
        c = fmpq_mat(1, m, [phi[n, j] for j in range(m)])
        found = []
        for pattern in product((0, 1), repeat=m):
            D = fmpq_mat(m, m, [pattern[i] if i == j else 0 for i in range(m) for j in range(m)])
            z = c * D * (eye(m) - L * D).inv()
            pre = z * L + c
            if all((pre[0, j] >= 0) if on else (pre[0, j] <= 0) for j, on in enumerate(pattern)):
                found.append(z)
        assert found
        assert all(z == found[0] for z in found)
        entries += found[0].entries()
    return fmpq_mat(phi.nrows(), m, entries)


def square_length(a: fmpq_mat) -> fmpq:
    return sum((x * x for x in a.entries()), fmpq(0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_ball_contains_the_only_equilibrium(kind, m):
    if m == 1 and kind is principal_minors:
        return
    beyond = 0
    for seed in range(4):
        values = values_of(kind(m, seed), seed)
        env = model_env(values, "implicit-relu")
        beyond += not existence(env).contracts
        truth = solution(values)
        Z = value_of("Z", env)
        assert informed(Z)
        assert not outside(Z, truth)
        assert Z.ball.radius <= 1e-12 * max(1.0, Z.scale)
        assert truth_of("fixed_point(Z + ones(N, m)) == Z", env).truth >= Truth.NEAR_ZERO
    if kind in (falling, triangular) or (kind is monotone and m > 1):
        assert beyond == 4


@pytest.mark.parametrize("kind", KINDS)
def test_no_state_is_farther_from_the_equilibrium_than_its_residual_says(kind):
    for seed in range(6):
        values = values_of(kind(3, seed), seed)
        env = model_env(values, "implicit-relu")
        gap = existence(env).gap
        low = matrix(torch.tensor([[float(gap.lower()) * (1 - 2.0**-40)]], dtype=torch.float64))[0, 0]
        truth, L = solution(values), matrix(values["A"]) * fmpq(1, 2)
        phi = relu(matrix(values["X"]) * matrix(values["W"]))
        for trial in range(30):
            spread = 10.0 ** (trial % 5 - 3)
            state = truth + matrix(spread * randn(2, 3, seed=1000 * seed + trial))
            residual = state - relu(state * L + phi)
            assert low**2 * square_length(state - truth) <= square_length(residual)


def test_the_residual_over_the_modulus_is_no_bound():
    """L = a skew matrix plus a multiple of I: with modulus m the distance can be norm(L)/m times the residual."""
    L = torch.tensor([[0.5, 20.0], [-20.0, 0.5]], dtype=torch.float64)
    values = {**values_of(L, 0, N=1), "W": torch.ones(2, 2).double(), "X": torch.tensor([[1.0, 100.0]]).double()}
    truth, exact = solution(values), matrix(L)
    phi = relu(matrix(values["X"]) * matrix(values["W"]))
    modulus, worst = fmpq(1, 2), fmpq(0)
    for trial in range(50):
        state = truth + matrix(1e-3 * randn(1, 2, seed=trial))
        residual = square_length(state - relu(state * exact + phi))
        worst = max(worst, square_length(state - truth) / residual * existence_gap(values) ** 2)
    assert worst <= 1
    assert existence_gap(values) < modulus


def test_the_residual_over_the_modulus_breaks():
    """At a state near the fixed point the distance is more than five times the residual over the modulus 1/2."""
    L = torch.tensor([[0.5, 20.0], [-20.0, 0.5]], dtype=torch.float64)
    values = {**values_of(L, 0, N=1), "W": torch.ones(2, 2).double(), "X": torch.tensor([[1.0, 100.0]]).double()}
    truth, phi = solution(values), relu(matrix(values["X"]) * matrix(values["W"]))
    ratios = []
    for trial in range(50):
        state = truth + matrix(1e-3 * randn(1, 2, seed=trial))
        image = relu(state * matrix(L) + phi)
        distance, residual = square_length(state - truth), square_length(state - image)
        moved = square_length((state - image) * matrix(L))
        ratios.append(float(Fraction(str(distance / residual)) / 4))
        # norm(z1 - z*) <= norm(W (z - z1))/m is one.
        assert square_length(image - truth) <= 4 * moved
    assert max(ratios) > 25


def existence_gap(values: dict[str, torch.Tensor]) -> fmpq:
    gap = existence(model_env(values, "implicit-relu")).gap
    return matrix(torch.tensor([[float(gap.lower())]], dtype=torch.float64))[0, 0]


@pytest.mark.parametrize(
    "L",
    [
        [[1.0]],
        [[3.0]],
        [[0.0, -1.0], [-1.0, 0.0]],  # no two units that switch each other off
        [[0.0, -2.0], [-2.0, 0.0]],
        [[0.0, 2.0], [1.0, 0.0]],
        [[-5.0, -9.0], [-9.0, -5.0]],  # L <= 0 is not enough for two
        [[1.0, 0.0], [0.0, -3.0]],
    ],
)
def test_where_there_may_be_none_or_several_nothing_is_known(L):
    values = values_of(torch.tensor(L, dtype=torch.float64), 0)
    env = model_env(values, "implicit-relu")
    assert existence(env).gap is None
    assert not informed(value_of("Z", env))
    assert any("no certificate that the equilibrium exists" in reason for reason in env.notes.unsure)


def test_a_weight_that_is_known_roughly_only():
    """Around L = 0.999 the ball of A holds matrices without an equilibrium."""
    values = values_of(torch.full((1, 1), 0.999, dtype=torch.float64), 0)
    assert existence(model_env(values, "implicit-relu")).gap is not None
    assert existence(model_env(values, "implicit-relu", radius={"A": 0.01})).gap is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [128, 256])
def test_with_more_bits(kind, bits):
    for seed in range(2):
        values = values_of(kind(2, seed), seed)
        env = model_env(values, "implicit-relu")
        truth = solution(values)
        with working_precision(bits):
            precise = {
                k: Matrix(adopt(v.ball), v.scale) if isinstance(v, Matrix) else v for k, v in env.variables.items()
            }
            finer = Environment(env.model, env.sizes, precise, env.lets, env.notes, env.providers, precision=bits)
            found = value_of("Z", finer).ball
            assert found.radius < 2.0 ** (30 - bits)
            assert all(ball.contains(x) for ball, x in zip(found.flat, truth.entries(), strict=True))


@pytest.mark.parametrize("kind", [falling, triangular, monotone, principal_minors])
def test_derivatives_through_such_an_equilibrium(kind):
    """By the formula with the pattern D of units that are on: dyhat/dphi = (I - D L')^-1 D, transposed, b."""
    for seed in range(4):
        values = values_of(kind(3, seed), seed, N=1)
        env = model_env(values, "implicit-relu")
        truth, L = solution(values), matrix(values["A"]) * fmpq(1, 2)
        pre = truth * L + relu(matrix(values["X"]) * matrix(values["W"]))
        if any(x == 0 for x in pre.entries()):
            continue
        D = fmpq_mat(3, 3, [fmpq(int(i == j and pre[0, i] > 0)) for i in range(3) for j in range(3)])
        adjoint = D * (eye(3) - L * D).inv() * matrix(values["b"])
        value = value_of("grad(sum(yhat), A)", env)
        assert informed(value)
        assert not outside(value, truth.transpose() * adjoint.transpose() * fmpq(1, 2))


@pytest.mark.parametrize(
    ("name", "factors"), [("implicit-relu", ["gamma", "A"]), ("linear-implicit", ["W"]), ("monotone-deq", ["W"])]
)
def test_the_weight_is_read_off_the_map(name, factors):
    formulas = model_formulas(name)
    assert [node.name for node in formulas.weight.walk() if node.name] == factors


TYPES = {name: shape_type(("n", "n")) for name in "ZABP"} | {"g": SCALAR}


def weight_of(text, definitions=None):
    typed = {}
    for name, formula in (definitions or {}).items():
        typed[name] = infer(parse(formula), TYPES | {k: e.type for k, e in typed.items()})
    image = infer(parse(text), TYPES | {k: e.type for k, e in typed.items()})
    found = layer_weight(image, "Z", typed, shape=("n", "n"))
    return None if found is None else format_expr(found)


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("relu(A*Z + P)", "A"),
        ("relu(P - A*Z*g)", "(-1)*g*A"),
        ("relu(Z*A + Z*B)", "(A + B)'"),
        ("softplus(g*Z*A/2 + P)", "(1/2*g*A)'"),
        ("A*Z + B*Z - Z", "A + B + (-1)*I(n)"),
        ("relu((A*Z')' + P)", "A"),
        ("Z/3", "(1/3*I(n))'"),
        ("relu(g*trace(A)*Z*(A + B))", "(g*trace(A)*(A + B))'"),
        *((f"{act}(A*Z + P)", "A") for act in ("tanh", "sigmoid", "softplus")),
        ("softthreshold(A*Z + P, g)", "A"),
        ("tanh(shift(A*Z + P, g^2))", "A"),
    ],
)
def test_a_weight_in_every_orientation(text, weight):
    assert weight_of(text) == weight


def test_a_weight_behind_definitions():
    definitions = {"W": "(1 - g)*A - B'*B", "pre": "W*Z + P", "h": "relu(pre)"}
    assert weight_of("h", definitions) == "W"
    assert weight_of("relu(pre - Z*g)", definitions) == "W + (-1)*g*I(n)"


@pytest.mark.parametrize(
    "text",
    [
        *(f"{act}(A*Z)" for act in ("sign", "step", "sin", "exp", "huber", "erf")),
        "leaky_relu(A*Z, 2)",
        "softthreshold(A*Z, trace(Z))",
        "relu(Z*A*Z + P)",
        "abs(Z*A)",
        "relu(A*Z*B)",
        "relu(A*Z + Z*B)",
        "relu(A*Z')",
        "relu(2*relu(Z))",
        "P",
    ],
)
def test_a_map_of_another_form_has_no_weight(text):
    assert weight_of(text) is None
