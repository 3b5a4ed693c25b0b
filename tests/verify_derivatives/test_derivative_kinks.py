"""Which kinks put a derivative outside of a claim: those that the variable moves and that the value depends on."""

from __future__ import annotations

from itertools import product
from typing import ClassVar

import pytest
import torch
from derivative_harness import as_ball, certified, environment
from flint import fmpq, fmpq_mat

from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.language.parser import parse

Values = dict[str, torch.Tensor | float]


def column(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64).reshape(-1, 1)


def square(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def network(**changes: torch.Tensor | float) -> Environment:
    """Two samples, two units; on the first sample unit 2 is off, on the second unit 1."""
    values: Values = {
        "W": square((1.0, -1.0), (-1.0, 1.0)),
        "A": square((0.5, 0.25), (-0.5, 0.5)),
        "b": column(1.0, 2.0),
        "gamma": 0.5,
        "X": torch.eye(2, dtype=torch.float64),
        "y": column(0.0, 0.0),
        **changes,
    }
    return environment(values, model="implicit-relu", sizes={"N": 2, "d": 2, "m": 2})


ZERO, ONE = torch.zeros(2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)


def stopped(text: str, env: Environment) -> OutsideClaimError:
    with pytest.raises(OutsideClaimError) as raised:
        derivative(parse(text), env)
    assert raised.value.hypothesis == "differentiable"
    return raised.value


class TestNetwork:
    def test_the_readout_passes_no_relu(self) -> None:
        env = network(A=ZERO)
        assert as_ball(certified("jac(yhat, b)", env)).centre.tolist() == [[1.0, 0.0], [0.0, 1.0]]

    @pytest.mark.parametrize("A", [ZERO, ONE, ONE / 2])
    def test_units_that_are_off_stay_off_while_W_moves(self, A: torch.Tensor) -> None:
        """Z[i, i] = 1/(1 - a/2) for A = a I, and nothing else is on."""
        gain = 1 / (1 - float(A[0, 0]) / 2)
        found = as_ball(certified("grad(sum(yhat), W)", network(A=A)))
        assert torch.allclose(found.centre, torch.diag(column(gain, 2 * gain)[:, 0]), rtol=1e-14)

    @pytest.mark.parametrize("A", [ZERO, ONE])
    def test_they_are_switched_on_by_A(self, A: torch.Tensor) -> None:
        assert stopped("grad(sum(yhat), A)", network(A=A)).certain

    def test_they_are_at_no_kink_where_a_unit_drives_them(self) -> None:
        # Unit 2 of the first sample has 0.5 z1 0.25 > 0, unit 1 of the second 0.5 z2 (-0.5) < 0.
        for name in ("W", "A", "b", "X", "gamma"):
            assert as_ball(certified(f"grad(sum(yhat), {name})", network())).is_finite

    def test_without_a_readout_nothing_matters(self) -> None:
        env = network(A=ZERO, b=column(0.0, 0.0))
        for name in ("W", "A", "X"):
            found = as_ball(certified(f"grad(L, {name})", env))
            assert (found.radius, float(found.centre.abs().max())) == (0.0, 0.0)
        assert stopped("grad(sum(Z), A)", env).certain

    def test_a_unit_that_the_readout_leaves_out_does_not_matter(self) -> None:
        # Only unit 1 is read, and unit 2 does not reach it: its kink on the first sample is not met.
        A = square((0.5, 0.0), (0.0, 0.5))
        X = square((1.0, 0.0), (2.0, 1.0))  # unit 1 is on for both samples
        env = network(A=A, X=X, b=column(1.0, 0.0))
        assert as_ball(certified("jac(yhat, W)", env)).is_finite
        coupled = network(A=square((0.5, 0.0), (0.5, 0.5)), X=X, b=column(1.0, 0.0))
        stopped("jac(yhat, A)", coupled)

    def test_kinks_of_the_input_layer(self) -> None:
        assert stopped("grad(L, W)", network(W=ZERO)).certain
        assert stopped("grad(L, X)", network(X=ZERO)).certain
        # No sample, no product: X*W is zero whatever W is.
        found = as_ball(certified("grad(sum(Z), W)", network(X=ZERO)))
        assert (found.radius, float(found.centre.abs().max())) == (0.0, 0.0)

    def test_an_equilibrium_that_is_not_known_may_be_at_a_kink(self) -> None:
        assert not stopped("grad(L, A)", network(A=6 * ONE)).certain


class TestFormulas:
    VARIABLES: ClassVar[Values] = {"v": column(0.0, 1.0), "w": column(0.0, 2.0), "Z": ZERO, "Y": ONE}

    @pytest.mark.parametrize(
        "text",
        [
            "grad(sum(relu(w)) + sum(v), v)",
            "grad(sum(relu(Z*Y)), Y)",
            "grad(sum(hadamard(relu(v), Z*w)), v)",
            "grad(dot(relu(v), 0*w), v)",
            "grad(sum(kron(relu(v), Z)), v)",
            "grad(sum(relu(diag(relu(w)) + diag(relu(v + ones(2))))), v)",
            "grad(sum(abs(Z'*Y)), Y)",
            "grad(sum(abs(hadamard(w, Z*v))), v)",
            "jac(relu(vec(Z*Y)) + vec(Y), Y)",
        ],
    )
    def test_a_zero_that_does_not_move_or_does_not_matter(self, text: str) -> None:
        assert as_ball(certified(text, environment(self.VARIABLES))).is_finite

    @pytest.mark.parametrize(
        "text",
        [
            "grad(sum(relu(v)), v)",
            "grad(sum(hadamard(relu(v), v)), v)",  # the factor is zero, but not near by
            "grad(sum(hadamard(relu(v), w - v)), v)",
            "grad(sum(relu(v*v'*v)), v)",
            "grad(sum(relu(Z*Y)), Z)",
            "grad(sum(Y*relu(v)), v)",
            "grad(sum(step(v)), v)",
            "grad(norm(relu(v)), v)",
        ],
    )
    def test_a_zero_that_does(self, text: str) -> None:
        assert stopped(text, environment(self.VARIABLES)).certain

    def test_only_what_is_zero_for_certain_is_harmless(self) -> None:
        env = environment({"v": column(0.0, 1.0), "Z": ZERO}, radius=1e-12)
        assert not stopped("grad(sum(hadamard(relu(v), Z*v)), v)", env).certain


def rational(x: float) -> fmpq:
    numerator, denominator = float(x).as_integer_ratio()
    return fmpq(numerator, denominator)


def exact(value: torch.Tensor) -> fmpq_mat:
    return fmpq_mat(*value.shape, [rational(x) for x in value.flatten().tolist()])


def prediction(values: dict[str, fmpq_mat], gamma: fmpq) -> list[fmpq]:
    """Return yhat, every row's equilibrium found by trying all patterns of units that are on."""
    X, W, A, b = (values[name] for name in ("X", "W", "A", "b"))
    m, found = A.nrows(), []
    for n in range(X.nrows()):
        row = fmpq_mat(1, X.ncols(), [X[n, j] for j in range(X.ncols())]) * W
        c = fmpq_mat(1, m, [max(x, fmpq(0)) for x in row.entries()])
        found.append((_row(c, A, gamma, m) * b)[0, 0])
    return found


def _row(c: fmpq_mat, A: fmpq_mat, gamma: fmpq, m: int) -> fmpq_mat:
    unit = fmpq_mat(m, m, [int(i == j) for i in range(m) for j in range(m)])
    for pattern in product((0, 1), repeat=m):
        D = fmpq_mat(m, m, [pattern[i] if i == j else 0 for i in range(m) for j in range(m)])
        z = c * D * (unit - gamma * (A * D)).inv()
        pre = gamma * (z * A) + c
        if all((pre[0, j] >= 0) if on else (pre[0, j] <= 0) for j, on in enumerate(pattern)):
            return z
    raise AssertionError("no pattern fits")


STEP = fmpq(1, 2**40)


@pytest.mark.parametrize("name", ["W", "A", "X"])
@pytest.mark.parametrize("seed", range(8))
def test_what_has_a_value_is_a_derivative(name: str, seed: int) -> None:
    """On weights of -1, 0 and 1, most of them at kinks: both one-sided derivatives along random directions agree."""
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, cols: int) -> torch.Tensor:
        return torch.randint(-1, 2, (rows, cols), generator=generator).double()

    known = 0
    for _ in range(25):
        values = {"W": draw(2, 2), "A": draw(2, 2) / 2, "b": draw(2, 1), "X": draw(2, 2)}
        env = network(**values, y=draw(2, 1))
        try:
            slopes = as_ball(derivative(parse(f"jac(yhat, {name})"), env))
        except OutsideClaimError:
            continue
        known += 1
        assert slopes.is_finite
        point = {key: exact(value) for key, value in values.items()}
        here = prediction(point, fmpq(1, 2))
        for _ in range(3):
            direction = torch.randn(2, 2, generator=generator, dtype=torch.float64)
            along = slopes.centre @ direction.mT.reshape(-1, 1)
            for sign in (1, -1):
                moved = {**point, name: point[name] + sign * STEP * exact(direction)}
                there = prediction(moved, fmpq(1, 2))
                for n in range(2):
                    quotient = (there[n] - here[n]) / (sign * STEP)
                    assert abs(int(quotient.p) / int(quotient.q) - float(along[n])) < 1e-8
    assert known > 0
