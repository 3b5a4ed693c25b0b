"""Functions with a parameter are what they are written out as; derivatives by name are those of the functions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from flint import arb, fmpq
from verify_harness import distance, environment, informed, randn, value_of

from ntk_deq.certified.precise import as_ball, precise
from ntk_deq.certified.precise.matrix import working_precision
from ntk_deq.errors import ExpressionError
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames
from ntk_deq.evaluation.exact import value_of as exactly
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.entrywise import TWINS
from ntk_deq.evaluation.quantity import Matrix
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.notation.latex import to_latex
from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr
from ntk_deq.language.types import SCALAR, matrix
from ntk_deq.language.typing import infer
from ntk_deq.language.written import differentiated, formula_of
from ntk_deq.verify.formulas import exact_value
from ntk_deq.verify.printer import SLOPE, Code, Printer

F64 = torch.float64
WRITTEN = {
    "leaky_relu": lambda x, a: torch.where(x > 0, x, a * x),
    "softthreshold": lambda x, t: x.sign() * (x.abs() - max(t, 0.0)).clamp_min(0),
    "huber": lambda x, d: torch.where(x.abs() <= abs(d), x * x / 2, abs(d) * (x.abs() - abs(d) / 2)),
    "shift": lambda x, c: x + c,
}
TYPES = {"x": SCALAR, "p": SCALAR, "A": matrix("n", "m"), "B": matrix("n", "m")}
ENTRIES = sorted(name for name, record in FUNCTIONS.items() if record.by_entries)


def typed(text: str) -> Expr:
    return infer(parse(text), TYPES)


def names(**values: torch.Tensor) -> TensorNames:
    return TensorNames(values, {}, {}, None, torch.zeros((), dtype=F64))


def test_every_function_with_a_parameter_is_tested() -> None:
    assert {name for name, record in FUNCTIONS.items() if record.definition is not None} == set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_field_is_set_or_its_absence_explained(name: str) -> None:
    record = FUNCTIONS[name]
    optional = ("values", "above", "mutant", "mathml", "numpy")
    assert record.lacks.keys() >= {field for field in optional if not getattr(record, field)}
    if record.mutant is not None:
        assert record.mutant[1] in FUNCTIONS


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("p", [0.25, 1.0, 3.0, -0.5])
def test_values_everywhere(name: str, p: float) -> None:
    a = randn(3, 4, seed=2) * 2
    a[0, 0], a[1, 1] = 0.0, abs(p)
    truth = WRITTEN[name](a, p)
    found = value_of(f"{name}(A, p)", environment({"A": a, "p": p}))
    assert distance(found, truth) <= 1e-15
    assert found.ball.radius <= 1e-14
    plain = tensor_value(typed(f"{name}(A, p)"), names(A=a, p=torch.tensor(p, dtype=F64)))
    assert torch.allclose(plain, truth, rtol=1e-15, atol=1e-15)
    batch = tensor_value(typed(f"{name}(A, p)"), names(A=torch.stack([a, -a]), p=torch.tensor([p, 2 * p], dtype=F64)))
    assert torch.allclose(batch[1], WRITTEN[name](-a, 2 * p), rtol=1e-15, atol=1e-15)
    for x in (-2.0, -0.25, 0.0, 0.125, 5.0):
        one = value_of(f"{name}(x, p)", environment({"x": x, "p": p}))
        wanted = float(WRITTEN[name](torch.tensor(x, dtype=F64), p))
        assert distance(one, torch.tensor(wanted, dtype=F64)) <= 1e-16
        assert one.ball.rad() < 1e-30


@pytest.mark.parametrize("name", WRITTEN)
def test_balls_hold_the_values_of_everything_within(name: str) -> None:
    a, radius = randn(2, 3, seed=5) * 2, 0.125
    for p in (0.5, 2.0):
        image = value_of(f"{name}(A, p)", environment({"A": a, "p": p}, radius={"A": radius, "p": 2.0**-6}))
        for trial in range(8):
            step = randn(2, 3, seed=trial)
            moved = a + step * (radius * (1 - 1e-9) / float(torch.linalg.vector_norm(step)))
            assert distance(image, WRITTEN[name](moved, p + 2.0**-6 * (-1) ** trial)) <= 1e-15


@pytest.mark.parametrize("name", WRITTEN)
def test_many_bits_and_exact_arithmetic(name: str) -> None:
    a, p = torch.tensor([[0.5, -3.0, 0.0], [0.25, 1.5, -0.125]], dtype=F64), 0.75
    with working_precision(200):
        fine = replace(environment({"p": p}), precision=200)
        fine.variables["A"] = Matrix(as_ball(precise(a)), 4.0)
        image = value_of(f"{name}(A, p)", fine)
        assert all(entry.rad() <= arb(2) ** -190 for entry in image.ball.flat)
    assert distance(image, WRITTEN[name](a, p)) <= 1e-15
    exact = ExactNames({"A": exact_value(a), "p": fmpq(3, 4)}, {})
    found = exactly(parse(f"{name}(A, p)"), exact)
    assert [float(Fraction(int(e.p), int(e.q))) for e in found.entries] == WRITTEN[name](a, p).flatten().tolist()
    assert exactly(parse(f"{name}(-1/3, 1/2)"), exact) == {
        "leaky_relu": fmpq(-1, 6), "softthreshold": fmpq(0), "huber": fmpq(1, 18), "shift": fmpq(1, 6)
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_derivatives_in_the_entry_and_in_the_parameter(name: str) -> None:
    a, p = randn(2, 3, seed=8) * 2, 0.625
    env = environment({"A": a, "p": p})
    for variable in ("A", "p"):
        moving = {"A": a.clone(), "p": torch.tensor(p, dtype=F64)}
        moving[variable].requires_grad_()
        value = WRITTEN[name](moving["A"], moving["p"])
        (plain,) = torch.autograd.grad((value**2).sum(), moving[variable])
        formula = f"grad(sum(hadamard({name}(A, p), {name}(A, p))), {variable})"
        found = derivative(parse(formula), env)
        assert env.notes.estimated == {}
        assert informed(found)
        assert distance(found, plain) <= 1e-13
        floats = tensor_value(typed(formula), names(A=a, p=torch.tensor(p, dtype=F64)))
        assert torch.allclose(floats, plain, rtol=1e-13, atol=1e-13)


def test_a_parameter_may_be_a_matrix_of_one_entry() -> None:
    a, v = randn(2, 3, seed=1), randn(3, 1, seed=2)
    env = environment({"A": a, "v": v})
    found = derivative(parse("grad(sum(softthreshold(A, v'*v/8)), v)"), env)
    v.requires_grad_()
    value = (a.sign() * torch.relu(a.abs() - (v.mT @ v) / 8)).sum()
    assert distance(found, torch.autograd.grad(value, v)[0]) <= 1e-13


def test_kinks_are_met_where_they_are() -> None:
    def gradient(text: str, **values: float):
        return derivative(parse(f"grad({text}, x)"), environment(values))

    for text, values in (
        ("leaky_relu(x, p)", {"x": 0.0, "p": 0.5}),
        ("softthreshold(x, p)", {"x": 0.5, "p": 0.5}),
        ("softthreshold(x, p)", {"x": -0.5, "p": 0.5}),
        ("sign(x)*x", {"x": 0.0}),
    ):
        with pytest.raises(OutsideClaimError) as caught:
            gradient(text, **values)
        assert (caught.value.hypothesis, caught.value.certain) == ("differentiable", True)
    assert gradient("softthreshold(x, p)", x=0.0, p=0.5).ball == 0
    assert gradient("huber(x, p)", x=0.5, p=0.5).ball == arb(0.5)  # huber has a derivative everywhere
    assert gradient("huber(x, p)", x=0.0, p=0.5).ball == 0
    assert gradient("x*sign(x)", x=-3.0).ball == -1
    with pytest.raises(OutsideClaimError) as caught:
        value_of("huber(x, p)", environment({"x": 1.0, "p": 0.0}))
    assert caught.value.hypothesis == "defined"


def test_sign_has_a_value_at_zero_and_step_has_none_that_counts() -> None:
    zero = environment({"x": 0.0})
    assert value_of("sign(x)", zero).ball == 0
    with pytest.raises(OutsideClaimError):
        value_of("step(x)", zero)
    signs = value_of("sign(A)", environment({"A": torch.tensor([[0.0, -2.0, 3.0]], dtype=F64)}))
    assert (signs.ball.centre.tolist(), signs.ball.radius) == ([[0.0, -1.0, 1.0]], 0.0)
    wide = value_of("sign(A)", environment({"A": torch.tensor([[0.0, -2.0, 3.0]], dtype=F64)}, radius={"A": 1.0}))
    for first in (-1.0, 0.0, 1.0):
        assert distance(wide, torch.tensor([[first, -1.0, 1.0]], dtype=F64)) == 0


# --- derivatives by name --------------------------------------------------------------------------------------------


def called(order: str, name: str, argument: str) -> str:
    return f"{order}({name}, {argument}{', p' if FUNCTIONS[name].defined(2) else ''})"


def domain_entry(name: str, x: float) -> float:
    facts = FUNCTIONS[name].entrywise
    return abs(x) / 4 if facts is not None and facts.domain.low != -float("inf") else x


def plain(name: str, x: torch.Tensor) -> torch.Tensor:
    return WRITTEN[name](x, 0.5) if name in WRITTEN else TWINS[name].tensor(x)


@pytest.mark.parametrize("name", ENTRIES)
def test_slopes_and_second_slopes_by_name(name: str) -> None:
    for x in (0.375, -1.5, 2.625, -0.75):
        at = domain_entry(name, x)
        point = torch.tensor(at, dtype=F64, requires_grad=True)
        value = plain(name, point)
        first = torch.autograd.grad(value, point, create_graph=True)[0] if value.requires_grad else point * 0
        second = torch.autograd.grad(first, point)[0] if first.requires_grad else torch.zeros((), dtype=F64)
        for order, wanted in (("slope", first.detach()), ("slope2", second)):
            number = typed(called(order, name, "x"))
            found = evaluate(number, environment({"x": at, "p": 0.5}))
            assert informed(found)
            assert distance(found, wanted) <= 1e-13, (order, x)
            assert format_expr(infer(parse(format_expr(number)), TYPES)) == format_expr(number)
            wide = torch.full((2, 2), at, dtype=F64)
            entries = evaluate(typed(called(order, name, "A")), environment({"A": wide, "p": 0.5}))
            assert distance(entries, wanted.expand(2, 2)) <= 2e-13, (order, x)
            assert "{" not in to_mathml(number)
            assert to_latex(typed(called(order, name, "A")))


@pytest.mark.parametrize("name", ENTRIES)
def test_primitives_by_name(name: str) -> None:
    own = FUNCTIONS[name].definition or FUNCTIONS[name].entrywise
    assert own is not None
    if own.primitive is None:
        with pytest.raises(ExpressionError, match=f"`{name}` has no primitive"):
            typed(called("primitive", name, "x"))
        return
    env = environment({"x": 0.0, "p": 0.5})
    assert abs(evaluate(typed(called("primitive", name, "x")), env).ball) < 1e-30
    for x in (0.375, -1.5, 2.625):
        at = domain_entry(name, x)
        env = environment({"x": at, "p": 0.5})
        back = derivative(typed(f"grad({called('primitive', name, 'x')}, x)"), env)
        assert distance(back, plain(name, torch.tensor(at, dtype=F64))) <= 1e-13, x
        wide = environment({"A": torch.full((1, 2), at, dtype=F64), "p": 0.5})
        both = evaluate(typed(called("primitive", name, "A")), wide)
        single = evaluate(typed(called("primitive", name, "x")), env)
        assert distance(both, torch.full((1, 2), float(single.ball.mid()), dtype=F64)) <= 1e-13


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("slope(tanh, A)", "shift(-hadamard(tanh(A), tanh(A)), 1)"),
        ("slope(relu, 2*x)", "step(2*x)"),
        ("slope(leaky_relu, x, 1/10)", "step(x) + 1/10*step(-x)"),
        ("slope2(sin, A)", "-sin(A)"),
        ("slope(shift, A, p)", "shift(0*A, 1)"),
        ("primitive(tanh, x)", "softplus(2*x) - x - log(2)"),
        ("slope(sigmoid, slope(tanh, x))", "sigmoid(1 - tanh(x)^2)*sigmoid(-(1 - tanh(x)^2))"),
        ("2*pi", "2*pi"),
    ],
)
def test_what_is_written_out(text: str, written: str) -> None:
    assert format_expr(typed(text)) == written


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("slope(x, x)", "takes the name of a function of each entry first", "such functions: abs, arccos"),
        ("slope(norm, A)", "takes the name of a function of each entry first", "such functions"),
        ("slope(2*x, x)", "takes the name of a function of each entry first", "such functions"),
        ("slope(tanh(x), x)", "takes the name of a function of each entry first", "such functions"),
        ("slope(tanh, x, p)", "`tanh` does not take 2 here", "write slope(tanh, x)"),
        ("slope(leaky_relu, x)", "`leaky_relu` does not take 1 here", "write slope(leaky_relu, x, a)"),
        ("slope(tanh)", "`slope` takes 2 or 3 arguments. Got 1.", "write slope(function"),
        ("slope(tanh, x < 1)", "slope needs a scalar or matrix", None),
        ("primitive(log, x)", "`log` has no primitive", None),
        ("tanh", "`tanh` is a function.", "write tanh(scalar or matrix)"),
        ("pi(2)", "`pi` takes no arguments: it is a number. Got 1.", "write pi"),
        ("slope(q, x)", "takes the name of a function", None),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str, hint: str | None) -> None:
    with pytest.raises(ExpressionError) as caught:
        typed(text)
    assert words in caught.value.message
    if hint is not None:
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(hint)


def test_nested_derivatives_are_bounded() -> None:
    text = "x"
    for _ in range(30):
        text = f"slope2(sigmoid, {text})"
    with pytest.raises(ExpressionError, match="has more than 2,000 parts"):
        typed(text)
    text = "x"
    for _ in range(90):
        text = f"slope(arccos, {text})"
    with pytest.raises(ExpressionError, match="has more than 60 levels"):
        typed(text)
    assert typed("slope(exp, slope(exp, slope(exp, x)))").name == "exp"


def test_formulas_of_records_mean_the_functions_and_the_constants() -> None:
    """Not what a claim may have called so."""
    types = {**TYPES, "pi": SCALAR, "step": SCALAR, "exp": SCALAR}
    text = "slope(relu, x) + slope(erf, x) + pi + step*exp"
    tree = infer(parse(text), types)
    env = environment({"x": 0.5, "pi": 3.0, "step": 2.0, "exp": 1.0})
    wanted = 1 + 2 / torch.pi**0.5 * torch.exp(torch.tensor(-0.25, dtype=F64)) + 3 + 2
    assert distance(evaluate(tree, env), wanted) <= 1e-15
    assert differentiated(formula_of("2*pi")) is None


# --- printed --------------------------------------------------------------------------------------------------------


class _Bare(Printer):
    def name(self, name: str) -> Code:
        return Code(name, () if name.islower() else (2, 3))

    def special(self, expr: object) -> Code:
        raise NotImplementedError

    def size(self, name: str) -> int:
        raise NotImplementedError


@pytest.mark.parametrize("name", WRITTEN)
def test_all_printers_answer(name: str) -> None:
    for text in (f"{name}(x, p)", f"{name}(A, p)", f"{name}(A, 1/2)"):
        expr = typed(text)
        assert format_expr(expr) == text
        assert "{" not in to_mathml(expr)
        assert to_latex(expr).count("{") == to_latex(expr).count("}")
    code = _Bare().code(parse(f"{name}(A, p)"))
    assert code.shape == (2, 3)
    slope = parse(f"{name}(A, p)")
    assert re.fullmatch(r"\S.*", _Bare().code(replace(slope, name=SLOPE + name)).text)
    a = randn(2, 3, seed=3) * 2
    for p in (0.75, -0.5):
        found = _run(code.text, a, p)
        assert torch.allclose(found, WRITTEN[name](a, p), rtol=1e-15, atol=1e-15)
        own = _run(_Bare().code(replace(slope, name=SLOPE + name)).text, a, p).expand(2, 3)
        moving = a.clone().requires_grad_()
        assert torch.allclose(own, torch.autograd.grad(WRITTEN[name](moving, p).sum(), moving)[0])


def _run(code: str, a: torch.Tensor, p: float) -> torch.Tensor:
    script = f"import numpy as np\nA, p = np.array({a.tolist()!r}), {p!r}\nprint(np.asarray({code}).tolist())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    return torch.tensor(json.loads(done.stdout), dtype=F64)
