"""Every function and operator of the language in balls: against plain floating point, closed forms and rationals."""

import itertools
from fractions import Fraction
from typing import ClassVar

import pytest
import torch
from verify_harness import distance, environment, holds_number, informed, number_of, randn, rational, truth_of, value_of

from ntk_deq import certified as ct
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.quantity import Matrix, Scalar, Truth
from ntk_deq.language.calls import Parameter
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import CONSTANT_NAMES
from ntk_deq.language.written import BY_NAME

STRUCTURAL = {"grad", "jac", "fixed_point", "next"}  # they need more than the values of their arguments
SHORT = {name for name, function in FUNCTIONS.items() if function.stands_for}  # they are written out before
OF_FORMULAS = {Parameter.OPERAND, Parameter.STATEMENT}
OPERATORS = {name for name, function in FUNCTIONS.items() if OF_FORMULAS & {*function.parameters}}
EVALUATED = set(FUNCTIONS) - STRUCTURAL - SHORT - BY_NAME.keys() - (OPERATORS - {"grad", "jac"})
# Pieces are in test_matrix_words.py.
PLAIN = sorted(name for name in EVALUATED - CONSTANT_NAMES if FUNCTIONS[name].form is None)
WRITTEN = {name for name, function in FUNCTIONS.items() if function.definition and not function.entrywise}
SHAPES = ((1, 1), (2, 2), (3, 3), (1, 3), (3, 1), (2, 4), (4, 2))
SIZES = {"n": 2, "m": 3}


def arguments(name, shape, seed):
    """Return the text of a call and the values of its arguments, or None where the shape does not fit."""
    function = FUNCTIONS[name]
    rows, cols = shape
    texts, values = [], {}
    for place, parameter in enumerate(function.parameters):
        variable = f"a{place}"
        if parameter is Parameter.SIZE:
            texts.append("n" if place == 0 else "m")
            continue
        texts.append(variable)
        if parameter is Parameter.SCALAR:
            values[variable] = abs(float(randn(1, seed=seed + place))) + 0.1
        elif parameter is Parameter.SQUARE or (name == "diag" and cols != 1):
            if rows != cols:
                return None
            values[variable] = randn(rows, rows, seed=seed + place)
            if function.of_symmetric:
                values[variable] = values[variable] @ values[variable].mT
                values[variable] = values[variable] + values[variable].mT
        elif parameter is Parameter.VECTOR:
            values[variable] = randn(rows, 1, seed=seed + place)
        else:
            values[variable] = randn(rows, cols, seed=seed + place)
    facts = function.entrywise
    if facts is not None and facts.domain.high == 1:
        values["a0"] = values["a0"].tanh() * 0.9
    elif facts is not None and facts.domain.low == 0:
        values["a0"] = values["a0"].abs() + 0.1
    return f"{name}({', '.join(texts)})", values


def plain_names(values, sizes=SIZES):
    like = torch.zeros((), dtype=torch.float64)
    tensors = {k: v if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=torch.float64) for k, v in values.items()}
    return TensorNames(tensors, sizes, {}, None, like)


def test_every_function_of_the_language_has_an_evaluator():
    from ntk_deq.evaluation.functions.twins import BALLS
    from ntk_deq.evaluation.functions.twins import FUNCTIONS as TENSOR_FUNCTIONS

    assert set(BALLS) == EVALUATED | {"indicator"}  # of a statement
    assert set(TENSOR_FUNCTIONS) == EVALUATED - WRITTEN


@pytest.mark.parametrize("name", PLAIN)
def test_a_ball_contains_what_floating_point_gives(name):
    tried = 0
    for shape, seed in itertools.product(SHAPES, range(0, 60, 10)):
        found = arguments(name, shape, seed)
        if found is None:
            continue
        text, values = found
        plain = tensor_value(parse(text), plain_names(values))
        value = value_of(text, environment(values, sizes=SIZES))
        assert informed(value)
        # The plain result carries rounding of its own: at most some hundred round-offs of what it is computed from.
        assert distance(value, plain) <= 1e-13 * (1 + value.scale), (text, shape, seed)
        tried += 1
    assert tried >= 18


@pytest.mark.parametrize("name", [n for n in PLAIN if FUNCTIONS[n].parameters[0] is not Parameter.SIZE])
def test_the_ball_grows_with_the_balls_of_the_arguments(name):
    """The image of every point of the argument's ball lies in the image ball."""
    for seed in (1, 2, 3, 4):
        text, values = arguments(name, (3, 1) if FUNCTIONS[name].parameters[0] is Parameter.VECTOR else (3, 3), seed)
        radius = dict.fromkeys(values, 1e-3)
        if name == "step":  # its ball says nothing where an entry may be zero
            values = {k: v.sign() * (v.abs() + 0.1) for k, v in values.items()}
        value = value_of(text, environment(values, radius=radius))
        for trial in range(6):
            moved = {}
            for key, old in values.items():
                if isinstance(old, torch.Tensor):
                    step = randn(*old.shape, seed=100 * seed + trial)
                    moved[key] = old + 1e-3 * step / torch.linalg.vector_norm(step) * (1 - 1e-9)
                else:
                    moved[key] = old + 1e-3 * (-1) ** trial * (1 - 1e-9)
            plain = tensor_value(parse(text), plain_names(moved))
            assert distance(value, plain) <= 1e-12 * (1 + abs(value.scale)), (text, seed, trial)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trace(A)", 5),
        ("det(A)", -2),
        ("sum(A)", 10),
        ("max(A)", 4),
        ("min(A)", 1),
        ("norm1(A)", 6),
        ("norminf(A)", 7),
        ("fro(A)^2", 30),
        ("rho(A*A - 5*A)", 2),
        ("lambda_max(A - A + I(2))", 1),
        ("lambda_min(2*I(n))", 2),
        ("sigma_min(diag(v))", 3),
        ("sigma_max(diag(v))", 4),
        ("norm(v)", 5),
        ("cond(diag(v))", Fraction(4, 3)),
        ("dot(v, v)", 25),
        ("v'*A*v", 9 * 1 + 12 * 2 + 12 * 3 + 16 * 4),
        ("max(1, 3, 2)", 3),
        ("min(1, -3, 2)", -3),
        ("abs(-2)", 2),
        ("relu(-2) + relu(2)", 2),
        ("step(2) + step(-2)", 1),
        ("sqrt(9/4)", Fraction(3, 2)),
        ("exp(0) + log(1)", 1),
        ("2^-3", Fraction(1, 8)),
        ("4^(3/2)", 8),
        ("-2^2", -4),
        ("(-2)^3", -8),
        ("0^0", 1),
        ("2^3^2", 512),
        ("1 - 2 - 3", -4),
        ("8/4/2", 1),
        ("n*m", 6),
        ("sum(zeros(n, m)) + sum(ones(n, m)) + sum(ones(m))", 9),
        ("sum(kron(A, A))", 100),
        ("sum(hadamard(A, A))", 30),
        ("trace(A^3)", 5 * 29 + 2 * 5),
    ],
)
def test_values_known_by_hand(text, expected):
    variables = {
        "A": torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64),
        "v": torch.tensor([[3.0], [4.0]], dtype=torch.float64),
    }
    ball = number_of(text, environment(variables, sizes=SIZES))
    assert holds_number(ball, expected)
    assert ball.rad() <= 1e-12


def test_exact_arithmetic_stays_exact():
    """Whole numbers go through sums, products, transposes and Kronecker products without any radius."""
    A, B = (torch.randint(-9, 10, (3, 3), generator=torch.Generator().manual_seed(s)).double() for s in (1, 2))
    value = value_of("kron(A*B' - 3*B, I(2))'*kron(A, ones(2, 2))", environment({"A": A, "B": B}))
    assert isinstance(value, Matrix)
    expected = torch.kron(A @ B.T - 3 * B, torch.eye(2).double()).T @ torch.kron(A, torch.ones(2, 2).double())
    assert value.ball.radius == 0
    assert distance(value, expected) == 0.0


def test_decimals_are_the_rationals_that_they_write():
    assert truth_of("0.1 + 0.2 == 0.3").truth is not Truth.FALSE
    assert holds_number(number_of("0.1"), Fraction(1, 10))
    assert not holds_number(number_of("0.1"), 0.1)  # the float next to it is another number
    assert truth_of("0.1 < 0.1000000000000000001").truth is Truth.TRUE


def test_numbers_beyond_the_floats():
    assert truth_of("1e400 > 1e399").truth is Truth.TRUE
    assert truth_of("1e-400 > 0").truth is Truth.TRUE
    assert truth_of("exp(1000) >= 1 + 1000").truth is Truth.TRUE
    assert truth_of("2^2000 < 2^2001").truth is Truth.TRUE
    assert truth_of("x^1000 > 0", environment({"x": 2.0**900})).truth is Truth.TRUE
    assert truth_of("x^1000 <= 1", environment({"x": 2.0**900})).truth is Truth.FALSE


class TestOneByOne:
    """At size 1 a matrix is still a matrix: everything that takes one must take its powers, products and sums."""

    ENV: ClassVar = {"A": torch.tensor([[3.0]], dtype=torch.float64), "v": torch.tensor([[2.0]], dtype=torch.float64)}

    @pytest.mark.parametrize("name", [n for n in PLAIN if FUNCTIONS[n].parameters[0] in ("matrix", "square matrix")])
    @pytest.mark.parametrize("argument", ["A^2", "A^-1", "A*v", "v'*v*A", "A + A", "A/2", "-A", "A'", "2*A", "inv(A)"])
    def test_functions_of_matrices_take_them(self, name, argument):
        if name == "sqrtm" and argument == "-A":  # which has no root
            argument = "-A*-A"
        others = ", A" if len(FUNCTIONS[name].parameters) == 2 else ""
        value = value_of(f"{name}({argument}{others})", environment(self.ENV, sizes={"n": 1}))
        assert informed(value)

    def test_they_stand_for_numbers_too(self):
        env = environment(self.ENV)
        for text, expected in (("v'*v + 1", 5), ("(v'*v)^(1/2)", 2), ("2^(v'*v)", 16), ("1/(v'*v)", Fraction(1, 4))):
            assert holds_number(number_of(text, env), expected)
        assert truth_of("v'*v < 5 and A^2 == 9*I(1)", env).truth is Truth.TRUE


class TestUndefined:
    @pytest.mark.parametrize(
        ("text", "detail"),
        [
            ("1/z", "division by zero"),
            ("A/z", "division by zero"),
            ("z^-1", "a power that is not defined"),
            ("(-2)^(1/2)", "a power that is not defined"),
            ("(-2)^(1/3)", "a power that is not defined"),
            ("log(z)", "log of 0"),
            ("log(-1)", "log of -1"),
            ("sqrt(-1)", "sqrt of -1"),
            ("inv(A)", "an inverse of a singular matrix"),
            ("A^-2", "an inverse of a singular matrix"),
            ("cond(A)", "a condition number of a singular matrix"),
            ("step(z)", "an argument of relu is exactly zero"),
            ("step(A - A)", "an argument of relu is exactly zero"),
        ],
    )
    def test_certainly_undefined_puts_the_instance_outside(self, text, detail):
        env = environment({"z": 0.0, "A": torch.ones(2, 2, dtype=torch.float64)})
        with pytest.raises(OutsideClaimError, match=detail) as raised:
            value_of(text, env)
        assert raised.value.certain

    @pytest.mark.parametrize("text", ["1/z", "z^-1", "log(z)", "z^(1/2)/z", "inv(Z)", "cond(Z)", "det(Z)/z"])
    def test_perhaps_undefined_knows_nothing_and_says_why(self, text):
        env = environment({"z": 0.0, "Z": torch.ones(2, 2, dtype=torch.float64)}, radius={"z": 1e-20, "Z": 1e-20})
        value = value_of(text, env)
        assert not informed(value)
        assert env.notes.unsure
        assert truth_of(f"norm({text}) >= 0", env).truth is Truth.UNSURE
        assert truth_of(f"norm({text}) < 0", env).truth is Truth.UNSURE

    def test_a_kink_that_is_not_certain_stops_without_certainty(self):
        with pytest.raises(OutsideClaimError) as raised:
            value_of("step(z)", environment({"z": 0.0}, radius={"z": 1e-20}))
        assert not raised.value.certain
        assert raised.value.hypothesis == "differentiable"

    def test_a_square_root_is_cut_at_zero(self):
        ball = number_of("sqrt(z)", environment({"z": 0.0}, radius={"z": 1e-20}))
        assert holds_number(ball, 0)
        assert ball >= 0


class TestLimits:
    @pytest.mark.parametrize("text", ["ones(k, k)", "zeros(k, k)", "v*v'", "kron(v, v)*kron(v, v)'", "I(k) + v*v'"])
    def test_matrices_beyond_the_limit_are_refused(self, text):
        env = environment({"v": torch.ones(20_000, 1, dtype=torch.float64)}, sizes={"k": 20_000})
        with pytest.raises(LimitError, match="at most 134,217,728"):
            value_of(text, env)


class TestNames:
    def test_definitions_use_earlier_ones_and_are_evaluated_once(self):
        env = environment({"x": 3.0}, lets={"y": "x + 1", "z": "y*y"})
        assert holds_number(number_of("z - y", env), 12)
        assert set(env.cache) == {"y", "z"}

    def test_at_replaces_variables_in_definitions_too(self):
        env = environment({"x": 3.0, "u": 10.0}, lets={"y": "x + u", "z": "2*y"})
        assert holds_number(number_of("at(z, x = y) - z", env), 2 * (13 + 10) - 26)
        assert holds_number(number_of("z", env), 26)
        assert holds_number(number_of("at(at(z, x = 1), u = x)", env), 2 * (1 + 3))
        assert holds_number(number_of("at(at(z, x = u), u = 0)", env), 0)

    def test_at_takes_a_matrix_with_a_radius(self):
        env = environment({"A": torch.eye(2, dtype=torch.float64)}, radius={"A": 1e-3})
        ball = number_of("at(norm(A), A = 2*A)", env)
        assert holds_number(ball, 2)
        assert ball.rad() >= 1e-3

    def test_sizes_are_numbers(self):
        assert truth_of("n < m and n + 1 == m", environment(sizes=SIZES)).truth is Truth.TRUE


def test_a_scale_shows_cancellation():
    value = value_of("x - y", environment({"x": 1.0, "y": 1.0}))
    assert isinstance(value, Scalar)
    assert value.ball == 0
    assert value.scale == 2.0
    matrix = value_of("sigma_min(A)", environment({"A": torch.diag(torch.tensor([1e8, 1e-8], dtype=torch.float64))}))
    assert matrix.scale >= 1e8


def test_scalars_are_evaluated_to_more_than_double_precision():
    env = environment({"x": 1.0, "e": 2.0**-100})
    assert truth_of("x + e > x", env).truth is Truth.TRUE
    assert number_of("(x + e) - x", env).contains(rational(Fraction(1, 2**100)))
    assert ct.is_true(">", number_of("(x + e) - x", env), ct.exact(0))
