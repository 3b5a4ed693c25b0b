"""Every record of a function of one number is complete and true, and its twin computes what the record says."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from flint import arb, fmpq
from verify_harness import distance, environment, informed, judge_all, randn, truth_of, value_of

from ntk_deq import certified as ct
from ntk_deq.certified.algebraic import UndecidedError, UndefinedError
from ntk_deq.certified.functions import rising
from ntk_deq.certified.precise import as_ball, precise
from ntk_deq.certified.precise.matrix import working_precision
from ntk_deq.claims.mutation_rules import RULES
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.entrywise import MOST_ENTRIES, TWINS, from_above, matrix_ball, slopes
from ntk_deq.evaluation.quantity import Matrix, Truth
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.notation.latex import to_latex
from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.parser import parse
from ntk_deq.language.record import Change, Entrywise, Function, Kink
from ntk_deq.language.types import SCALAR, Range, matrix
from ntk_deq.language.typing import infer
from ntk_deq.verify.printer import SLOPE, Code, Printer

NAMES = sorted(name for name, function in FUNCTIONS.items() if function.entrywise is not None)
OF_MATRICES = [name for name in NAMES if FUNCTIONS[name].takes_matrices]
SMOOTH = [name for name in NAMES if TWINS[name].slope is not None]
WITH_SLOPES = [name for name in NAMES if FUNCTIONS[name].entrywise.kink is not Kink.JUMP]  # type: ignore[union-attr]
OPTIONAL = ("values", "above", "mutant", "mathml", "numpy")
OPTIONAL_FACTS = ("sides", "slope", "formula", "derivative", "primitive")

NUMBERS = (0.0, 1.0, -1.0, 0.5, -3.25, 20.0, 40.0, -40.0, 1e-300, -1e-300, 5e-324, 700.0, -745.5)
NUMBERS += (21.0, -21.0, 1e5, -1e5, 1e300, -1e300)
NUMBERS += (0.25, -0.25, 0.75, -0.75, 0.984375, -0.999)


def facts_of(name: str) -> Entrywise:
    facts = FUNCTIONS[name].entrywise
    assert facts is not None
    return facts


def draws(name: str, count: int = 40) -> list[float]:
    """Numbers of many sizes in the domain of a function, sorted."""
    spread = [float(x) for x in (randn(count, seed=3) * torch.logspace(-3, 3, count, dtype=torch.float64)).tolist()]
    numbers = [x for x in (*NUMBERS, *spread) if Range.point(Fraction(x)).within(facts_of(name).domain)]
    if facts_of(name).kink is Kink.JUMP:
        numbers = [x for x in numbers if x != 0]
    return sorted(set(numbers))


def near(name: str) -> list[float]:
    """Numbers at which no value leaves the floats."""
    return [x for x in draws(name) if abs(x) <= 700]


def fit(name: str, a: torch.Tensor, radius: float = 0.0) -> torch.Tensor:
    """A matrix near a given one whose entries, and all within a radius of them, lie in the domain of a function."""
    domain = facts_of(name).domain
    if domain.high == 1:
        return a.tanh() * (0.9 * max(0.0, 1 - radius))
    if domain.low == 0:
        return a.abs() + 2 * radius + 0.0625
    return a / 16 if name == "exp" else a


def at(name: str, x: float | arb) -> arb:
    """The value at a number, in 600 bits."""
    with working_precision(600):
        return TWINS[name].number(arb(x))


def names(**values: torch.Tensor) -> TensorNames:
    return TensorNames(values, {}, {}, None, torch.zeros((), dtype=torch.float64))


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- complete -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_set_or_its_absence_explained(name: str) -> None:
    record, facts = FUNCTIONS[name], facts_of(name)
    known = {field.name for kind in (Function, Entrywise) for field in dataclasses.fields(kind)}
    assert set(OPTIONAL) | set(OPTIONAL_FACTS) <= known
    unset = {field for field in OPTIONAL if not getattr(record, field)}
    unset |= {field for field in OPTIONAL_FACTS if getattr(facts, field) is None}
    assert record.lacks.keys() == unset
    assert all(len(reason) > 10 for reason in record.lacks.values())


def test_every_record_has_a_twin() -> None:
    assert set(TWINS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_twin_says_how_steep_it_is(name: str) -> None:
    """By a slope, by the slopes on both sides of a corner, or by having none but zero."""
    ways = (TWINS[name].slope is not None, facts_of(name).sides is not None, facts_of(name).kink is Kink.JUMP)
    assert sum(ways) == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_a_record_names_exists(name: str) -> None:
    record = FUNCTIONS[name]
    assert record.above <= FUNCTIONS.keys() - {name}
    if record.mutant is not None:
        rule, other = record.mutant
        assert rule in RULES
        edited = {e.name for e in RULES[rule](infer(parse(f"{name}(c)"), {"c": SCALAR}))}
        assert edited == {other}


# --- true -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_values_lie_in_the_range(name: str) -> None:
    values = FUNCTIONS[name].values
    assert values is not None
    for x in draws(name):
        point = Fraction(x)
        for around in (Range(), Range.point(point), Range(point - 1, point + 3)):
            known, found = values([around]), at(name, x)
            if math.isfinite(known.low):
                low = ct.exact(known.low)
                assert not (found <= low if known.low_open else found < low), (x, around)
            if math.isfinite(known.high):
                assert not found > ct.exact(known.high), (x, around)


@pytest.mark.parametrize("name", NAMES)
def test_growth_curvature_and_evenness(name: str) -> None:
    facts = facts_of(name)
    numbers = draws(name)
    rises = falls = bends_up = bends_down = uneven = False
    with working_precision(2200):  # the mean of 5e-324 and 1e300 is exact
        for left, right in pairwise(numbers):
            a, b = (TWINS[name].number(arb(x)) for x in (left, right))
            rises, falls = rises or bool(b > a), falls or bool(b < a)
            middle, mean = TWINS[name].number((arb(left) + arb(right)) / 2), (a + b) / 2
            if facts.kink is not Kink.JUMP:
                bends_up, bends_down = bends_up or bool(middle < mean), bends_down or bool(middle > mean)
            if -left in numbers:
                uneven = uneven or bool(TWINS[name].number(arb(-left)) != a)
    assert facts.growth == (1 if not falls else -1 if not rises else 0)
    if facts.kink is not Kink.JUMP:
        assert facts.curvature == (1 if not bends_down else -1 if not bends_up else 0)
    assert (Change.SIGN in FUNCTIONS[name].blind) == (not uneven and -math.inf in (facts.domain.low,))


@pytest.mark.parametrize("name", NAMES)
def test_slopes_bound_every_quotient(name: str) -> None:
    """Of a pair of any two numbers, near zero on both sides too, so that what jumps has no bound."""
    low, high = facts_of(name).slopes
    domain = facts_of(name).domain
    numbers = [x for x in {*draws(name), *(() if domain.low == 0 else (2.0**-70, -(2.0**-70)))}]
    near_by = [k / 32 for k in range(-128, 128) if domain.low < k / 32 and (k + 1) / 32 < domain.high]
    pairs = [(x, z) for x in numbers for z in numbers if x > z] + [(x + 1 / 32, x) for x in near_by]
    for x, z in pairs:
        with working_precision(3000):
            quotient = (at(name, x) - at(name, z)) / (arb(x) - arb(z))
        assert not quotient < low, (x, z)
        assert not quotient > high, (x, z)
    jumps = facts_of(name).kink is Kink.JUMP
    assert jumps <= math.isinf(facts_of(name).lipschitz)
    assert facts_of(name).proximal == (low >= 0 and high <= 1 and facts_of(name).domain == Range())


@pytest.mark.parametrize("name", NAMES)
def test_what_lies_below_is_nowhere_larger(name: str) -> None:
    for other in FUNCTIONS[name].above:
        for x in draws(name):
            assert not at(other, x) > at(name, x), (other, x)


@pytest.mark.parametrize("name", [n for n in NAMES if facts_of(n).formula])
def test_the_formula_is_the_function(name: str) -> None:
    for x in near(name):
        value = value_of(facts_of(name).formula or "", environment({"x": x}))
        assert value.ball.overlaps(at(name, x)), x
        assert informed(value)


@pytest.mark.parametrize("name", NAMES)
def test_the_ends_of_the_domain(name: str) -> None:
    domain = facts_of(name).domain
    for end, is_open, outwards in ((domain.low, domain.low_open, -1), (domain.high, domain.high_open, 1)):
        if math.isinf(end):
            continue
        last, beyond = float(end), float(end) + outwards * 2.0**-40
        mixed = torch.tensor([[float(domain.low) + 0.5, beyond]], dtype=torch.float64)
        for text, value in ((f"{name}(x)", beyond), (f"{name}(x)", mixed)):
            with pytest.raises(OutsideClaimError, match=name) as caught:
                value_of(text, environment({"x": value}))
            assert (caught.value.hypothesis, caught.value.certain) == ("defined", True)
        if name != "sqrt":  # a ball of what is no negative number may reach below zero
            doubtful = environment({"x": last}, radius={"x": 2.0**-30})
            assert not informed(value_of(f"{name}(x)", doubtful))
            assert doubtful.notes.unsure
        at_end = environment({"x": last})
        if is_open:
            with pytest.raises(OutsideClaimError):
                value_of(f"{name}(x)", at_end)
        else:
            assert informed(value_of(f"{name}(x)", at_end))


# --- computed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_floats_lie_in_or_next_to_the_ball_and_the_ball_holds_the_truth(name: str) -> None:
    for x in draws(name):
        value = value_of(f"{name}(x)", environment({"x": x}))
        assert value.ball.overlaps(at(name, x)), x
        plain = float(tensor_value(parse(f"{name}(x)"), names(x=tensor(x)[0])))
        if math.isfinite(plain):
            assert distance(value, tensor(plain)[0]) <= 4e-16 * abs(plain) + 5e-324, x  # two units in the last place


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reach", [2.0**-10, 0.5, 8.0])
def test_the_ball_on_an_interval_holds_the_values_between_its_ends(name: str, reach: float) -> None:
    """Where a function turns, the values at the ends say nothing of those in between."""
    domain, known = facts_of(name).domain, 0
    for step in range(-40, 41):
        low = max(step / 10 - reach, float(domain.low) + 2.0**-20)
        high = min(step / 10 + reach, float(domain.high) - 2.0**-20)
        ball = TWINS[name].number(ct.from_bounds(arb(low), arb(high))) if low < high else arb("nan")
        known += ball.is_finite()
        for part in range(1, 16) if ball.is_finite() else ():
            inside = low + part / 16 * (high - low)
            assert ball.overlaps(at(name, inside)), (step, inside)
    assert known > 8


@pytest.mark.parametrize("name", [n for n in NAMES if TWINS[n].exact is not None])
def test_exact_values_are_values(name: str) -> None:
    exact, known = TWINS[name].exact, 0
    assert exact is not None
    for number in (fmpq(0), fmpq(1), fmpq(-1), fmpq(1, 3), fmpq(-5, 2), fmpq(9, 4), fmpq(70)):
        try:
            value = exact(number)
        except (UndecidedError, OutsideClaimError, UndefinedError):
            continue
        known += 1
        assert not isinstance(value, fmpq) or arb(value).overlaps(TWINS[name].number(arb(number))), number
    assert known


@pytest.mark.parametrize("name", OF_MATRICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("radius", [0.0, 1e-9, 1e-3, 0.5, 4.0])
def test_matrix_balls_hold_the_image_of_every_matrix_in_the_ball(name: str, dtype: torch.dtype, radius: float) -> None:
    for seed in range(4):
        a = fit(name, randn(3, 4, seed=seed) * 10.0 ** (seed - 1), radius).to(dtype)
        if facts_of(name).domain.high == 1 and radius >= 0.5:  # no matrix has room for that
            continue
        if facts_of(name).kink is Kink.JUMP:  # which has no value where an entry may be zero
            a = a.sign() * (a.abs() + 2 * radius)
        image = value_of(f"{name}(A)", environment({"A": a}, radius={"A": radius}))
        assert isinstance(image, Matrix)
        assert image.ball.is_finite
        for trial in range(8):
            step = randn(3, 4, seed=50 + trial)
            if trial % 2:  # all of it in one entry
                step = torch.zeros(12, dtype=torch.float64).index_fill_(0, torch.tensor(trial), 1.0).reshape(3, 4)
            moved = a.double() + step * (radius * (1 - 1e-3) / float(torch.linalg.vector_norm(step)) * (-1) ** trial)
            truth = [at(name, x) for x in moved.flatten().tolist()]
            centre = image.ball.centre.double().flatten().tolist()
            far = sum((t - arb(c)) ** 2 for t, c in zip(truth, centre, strict=True))
            assert far <= arb(image.ball.radius) ** 2 or far.contains(0), (seed, trial)


@pytest.mark.parametrize("name", OF_MATRICES)
def test_many_bits_meet_the_ball(name: str) -> None:
    a = fit(name, randn(2, 3, seed=7) * 5)
    with working_precision(256):
        fine = as_ball(precise(a))
        own = TWINS[name].ball or (ct.step if name == "step" else None)
        image = own(fine) if own is not None else matrix_ball(name, fine)
        for found, x in zip(image.flat, a.flatten().tolist(), strict=True):
            assert found.overlaps(at(name, x))
            assert found.rad() <= arb(2) ** -240 * abs(found)
    assert distance(value_of(f"{name}(A)", environment({"A": a})), image.approximate) <= 1e-15


@pytest.mark.parametrize("name", SMOOTH)
def test_the_slope_is_that_of_the_function(name: str) -> None:
    """Chords between points of an interval have slopes in the ball of slopes."""
    slope = TWINS[name].slope
    assert slope is not None
    for x in near(name):
        for reach in (2.0**-20, 0.5, 3.0):
            domain = facts_of(name).domain
            low = arb(x) if domain.low == 0 else max(arb(x) - reach, arb(-1) if domain.low == -1 else arb("-inf"))
            high = arb(x) + reach if domain.high > 1 else arb(x)
            hull = ct.from_bounds(low, high)
            found = slope(hull, TWINS[name].number(hull))
            if not found.is_finite():
                continue
            for part in (0.0, 0.25, 0.9):
                left = low + part * (high - low) / 2
                with working_precision(600):
                    chord = (TWINS[name].number(left + 2.0**-30) - TWINS[name].number(left)) * 2**30
                assert found.overlaps(chord), (x, reach, part)
            assert ct.lower(abs(found)) <= facts_of(name).lipschitz


@pytest.mark.parametrize("name", WITH_SLOPES)
def test_pull_backs_agree_with_automatic_differentiation(name: str) -> None:
    numbers = [x for x in near(name) if x != 0 and abs(x) <= 50 and abs(x) != facts_of(name).domain.high]
    for x in numbers:
        env = environment({"x": x})
        found = derivative(parse(f"grad({name}(x)*3, x)"), env)
        at_x = tensor(x)[0].requires_grad_()
        (plain,) = torch.autograd.grad(TWINS[name].tensor(at_x) * 3, at_x)
        assert env.notes.estimated == {}
        assert distance(found, plain) <= 1e-13 * abs(float(plain)) + 1e-15, x


@pytest.mark.parametrize("name", WITH_SLOPES)
@pytest.mark.parametrize("radius", [0.0, 1e-4])
def test_pull_backs_of_matrices(name: str, radius: float) -> None:
    a, w = fit(name, randn(2, 3, seed=11) * 3), fit(name, randn(3, 2, seed=12)) / 2
    env = environment({"A": a, "W": w}, radius={"A": radius})
    gradient = derivative(parse(f"grad(sum(hadamard({name}(A*W), {name}(A*W))), A)"), env)
    jacobian = derivative(parse(f"jac({name}(A), A)"), env)
    assert env.notes.estimated == {}
    assert informed(gradient)
    for trial in range(4):
        step = randn(2, 3, seed=trial)
        moved = (a + step * (radius * (1 - 1e-9) / float(torch.linalg.vector_norm(step)))).requires_grad_()
        value = TWINS[name].tensor(moved @ w)
        (plain,) = torch.autograd.grad((value * value).sum(), moved)
        assert distance(gradient, plain) <= 1e-13
        own = torch.autograd.functional.jacobian(TWINS[name].tensor, moved.detach())
        columns = own.permute(1, 0, 3, 2).reshape(6, 6)
        assert distance(jacobian, columns) <= 1e-13


@pytest.mark.parametrize("name", [n for n in NAMES if facts_of(n).kink is Kink.CORNER])
def test_slopes_from_below_and_above_at_a_corner(name: str) -> None:
    sides = facts_of(name).sides
    assert sides is not None
    zero = tensor(0.0).requires_grad_()
    assert torch.autograd.grad(from_above(name, zero).sum(), zero)[0].item() == sides[1]
    for x, side in ((-2.0, sides[0]), (2.0, sides[1])):
        assert float(TWINS[name].tensor(tensor(x))) == float(from_above(name, tensor(x))) == side * x
    with pytest.raises(OutsideClaimError):
        derivative(parse(f"grad({name}(x), x)"), environment({"x": 0.0}))


# --- printed --------------------------------------------------------------------------------------------------------


class _Bare(Printer):
    def name(self, name: str) -> Code:
        return Code(name, () if name.islower() else (2, 3))

    def special(self, expr: object) -> Code:
        raise NotImplementedError

    def size(self, name: str) -> int:
        raise NotImplementedError


@pytest.mark.parametrize("name", NAMES)
def test_all_printers_answer(name: str) -> None:
    for text in (f"{name}(c)", *([f"{name}(A)"] if FUNCTIONS[name].takes_matrices else [])):
        expr = infer(parse(text), {"c": SCALAR, "A": matrix("m", "m")})
        assert format_expr(expr) == text
        assert "{" not in to_mathml(expr)
        assert to_latex(expr).count("{") == to_latex(expr).count("}")


@pytest.mark.parametrize("name", NAMES)
def test_numpy_code_gives_the_values_and_the_slopes(name: str, tmp_path: Path) -> None:
    numbers = [x for x in near(name) if x != 0 and abs(x) != facts_of(name).domain.high]
    code = _Bare().code(parse(f"{name}(c)")).text
    for x, found in zip(numbers, numpy_values(tmp_path, code, numbers), strict=True):
        assert at(name, x).overlaps(arb(found, abs(found) * 1e-15 + 5e-324)), x
    template = facts_of(name).slope
    if template is None:
        return
    for x, own in zip(numbers, numpy_values(tmp_path, template.format("c"), numbers), strict=True):
        point = tensor(x)[0].requires_grad_()
        (plain,) = torch.autograd.grad(TWINS[name].tensor(point), point)
        assert own == pytest.approx(float(plain), rel=1e-13, abs=5e-16)
    assert re.fullmatch(r"\S.*", _Bare().code(parse(f"{name}(c)").__class__(**_call_of(name))).text)


def numpy_values(folder: Path, code: str, numbers: Sequence[float]) -> list[float]:
    """Return what a script, run as a user would run it, makes of numbers c."""
    lines = [f"for c in {numbers!r}:", f"    print(float({code}).hex())"]
    script = folder / "values.py"
    script.write_text(
        "\n".join(["import math", "import numpy as np", "np.seterr(under='ignore', over='ignore')", *lines])
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=True)
    return [float.fromhex(line) for line in done.stdout.split()]


def _call_of(name: str) -> dict[str, object]:
    expr = parse(f"{name}(c)")
    return {"kind": expr.kind, "span": expr.span, "args": expr.args, "name": SLOPE + name}


# --- softplus, which is a record and a twin -------------------------------------------------------------------------

CLAIMS = """
  - {id: above, setting: reals, conclude: softplus(x) >= relu(x)}
  - {id: proved, setting: reals, conclude: softplus(x) - softplus(-x) == x}
  - {id: small, setting: reals, assume: {near: abs(x) <= 3}, conclude: softplus(x) > relu(x)}
  - id: lipschitz
    setting: matrices
    let: {P: softplus(A)}
    conclude: {one: fro(P - softplus(B)) <= fro(A - B), two: P > 0}
  - {id: steep, setting: matrices, expect: refuted, conclude: fro(softplus(A) - softplus(B)) <= fro(A - B)/4}
  - {id: slope, setting: matrices, conclude: "0 < sum(grad(sum(softplus(A)), A)) < n*m"}
  - {id: jacobian, setting: matrices, conclude: "norm(jac(softplus(A), A)) <= 1"}
"""
SETTINGS = """
  reals: {domain: {x: real}}
  matrices: {sizes: {n: 1..2, m: 1..3}, domain: {A: "real[n, m]", B: "real[n, m]"}}
"""


def test_softplus_in_claims(tmp_path: Path) -> None:
    found = judge_all(tmp_path, CLAIMS, SETTINGS)
    verdicts = {name: str(result.verdict) for name, result in found.items()}
    assert verdicts == {
        "above": "holds",
        "proved": "proved",
        "small": "proved",
        "lipschitz": "holds",
        "steep": "refuted",
        "slope": "holds",
        "jacobian": "holds",
    }
    assert {str(result.evidence) for result in found.values()} <= {"certified", "symbolic"}


def test_the_search_finds_where_softplus_breaks_a_claim(tmp_path: Path) -> None:
    claim = '  - {id: a, setting: reals, conclude: "softplus(x) <= relu(x) + 69/100"}'
    found = judge_all(tmp_path, claim, '  reals: {domain: {x: "[-7, 9]"}}', instances=1, search=400)
    assert str(found["a"].verdict) == "refuted"


def test_softplus_of_a_structured_matrix_and_its_limit() -> None:
    v = randn(4, 1, seed=1)
    image = value_of("softplus(diag(v))", environment({"v": v}))
    assert distance(image, torch.nn.functional.softplus(torch.diag(v[:, 0]))) <= 1e-14
    wide = environment({"A": torch.zeros(MOST_ENTRIES + 1, 1, dtype=torch.float64)})
    with pytest.raises(LimitError, match="65,536"):
        value_of("softplus(A)", wide)


def test_softplus_has_a_derivative_at_zero() -> None:
    found = derivative(parse("grad(sum(softplus(A)), A)"), environment({"A": torch.zeros(2, 2, dtype=torch.float64)}))
    assert distance(found, torch.full((2, 2), 0.5)) == 0.0
    assert found.ball.radius <= 1e-15


def test_softplus_beyond_the_floats() -> None:
    assert truth_of("softplus(1e400) > 1e399").truth is Truth.TRUE
    assert truth_of("softplus(-1000) > 0").truth is Truth.TRUE
    assert truth_of("softplus(-1000) < exp(-1000)").truth is not Truth.FALSE
    assert truth_of("softplus(x) > 3/10", environment({"x": 0.0}, radius={"x": 1.0})).truth is Truth.TRUE
    assert informed(value_of("softplus(x)", environment({"x": 0.0}, radius={"x": 1e6})))


def test_no_information_stays_none() -> None:
    unknown = ct.Ball(torch.zeros(2, 2, dtype=torch.float64), math.inf)
    for name in NAMES:
        assert not TWINS[name].number(arb(0, math.inf)).is_finite(), name
        assert not TWINS[name].number(ct.nan()).is_finite(), name
    for name in SMOOTH:
        assert not matrix_ball(name, unknown).is_finite
        assert not slopes(TWINS[name], unknown).is_finite
    assert not rising(lambda x: x)(ct.nan()).is_finite()
    beyond = ct.Ball(torch.full((1, 1), 1000.0, dtype=torch.float64))
    assert not matrix_ball("exp", beyond).is_finite
