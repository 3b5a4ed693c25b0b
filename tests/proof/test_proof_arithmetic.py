"""Intervals, normal forms and derivatives against exact rational arithmetic and finite differences."""

import math
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
from proof_harness import problem_of

from ntk_deq.prove import Derivatives, Op, Side, Term, Terms, below
from ntk_deq.prove import enclosure as iv
from ntk_deq.prove.box import Box
from ntk_deq.prove.enclosure import Interval, ball_value, exact_value, sign_at
from ntk_deq.prove.exact import Exact

SAMPLES = 4_000


def _number(rng: random.Random) -> float:
    return rng.choice([0.0, 0.0, 1.0, -1.0, 0.5, 2.0, -3.0, rng.uniform(-5, 5), 1e-3, 1e5, 1e-300, -1e200])


def _interval(rng: random.Random) -> Interval:
    low, high = sorted((_number(rng), _number(rng)))
    if low == high:
        return Interval(low, high)
    low = -math.inf if rng.random() < 0.1 else low
    high = math.inf if rng.random() < 0.1 else high
    is_open = rng.random() < 0.5, rng.random() < 0.5
    return Interval(low, high, is_open[0] or low == -math.inf, is_open[1] or high == math.inf)


def _member(rng: random.Random, interval: Interval) -> Fraction:
    low, high = (Fraction(math.copysign(1e250, end) if math.isinf(end) else end) for end in interval[:2])
    share = Fraction(rng.choice([0.0, 1.0, 0.5, rng.random(), 1e-6, 1 - 1e-6]))
    found = low + (high - low) * share
    outside = (found == interval.lo and interval.lo_open) or (found == interval.hi and interval.hi_open)
    return (low + high) / 2 if outside else found


def _inside(value: Fraction, interval: Interval) -> bool:
    above = value > interval.lo or (value == interval.lo and not interval.lo_open)
    return above and (value < interval.hi or (value == interval.hi and not interval.hi_open))


BINARY: list[tuple[Callable[[Interval, Interval], Interval], Callable[[Fraction, Fraction], Fraction]]] = [
    (iv.add, lambda x, y: x + y),
    (iv.multiply, lambda x, y: x * y),
    (iv.maximum, max),
    (iv.hull, lambda x, y: x),
]
UNARY: list[tuple[Callable[[Interval], Interval | None], Callable[[Fraction], Fraction]]] = [
    (iv.negate, lambda x: -x),
    (iv.absolute, abs),
    (lambda a: iv.power(a, Fraction(2)), lambda x: x**2),
    (lambda a: iv.power(a, Fraction(3)), lambda x: x**3),
    (iv.inverse, lambda x: 1 / x),
]


def test_intervals_contain_every_result_and_respect_open_ends() -> None:
    rng = random.Random(3)
    for _ in range(SAMPLES):
        a, b = _interval(rng), _interval(rng)
        x, y = _member(rng, a), _member(rng, b)
        for enclose, exact in BINARY:
            assert _inside(exact(x, y), enclose(a, b)), (enclose, a, b, x, y)
        for enclose_one, exact_one in UNARY:
            found = enclose_one(a)
            assert found is None or _inside(exact_one(x), found), (enclose_one, a, x)


def test_an_operation_that_is_not_defined_everywhere_gives_nothing() -> None:
    touching = Interval(0.0, 1.0)
    assert iv.inverse(touching) is None
    assert iv.inverse(Interval(-1.0, 1.0)) is None
    assert iv.inverse(touching._replace(lo_open=True)) == Interval(1.0, math.inf, False, True)
    assert iv.log(touching) is None
    assert iv.power(Interval(-1.0, 1.0), Fraction(1, 2)) is None
    assert iv.power(touching, Fraction(1, 2)) == touching


def test_enclosures_of_transcendental_functions_are_tight_and_outward() -> None:
    for x in (-30.0, -1.0, 0.0, 0.5, 3.0, 700.0):
        found = iv.exp(Interval(x, x))
        assert found.lo <= math.exp(x) * (1 + 1e-15)
        assert math.exp(x) * (1 - 1e-15) <= found.hi <= found.lo * (1 + 1e-15) + 5e-324
    assert iv.exp(Interval(0.0, 0.0)) == Interval(1.0, 1.0)
    assert iv.exp(Interval(-math.inf, 800.0, True, False)).hi == math.inf
    assert iv.exp(Interval(-math.inf, 0.0, True, False)).positive
    assert iv.log(Interval(1.0, math.inf, False, True)) == Interval(0.0, math.inf, False, True)


EXPRESSIONS = [
    "x*y - (x + y)^2/(1 + x)",
    "sqrt(x + y)*sqrt(x*y)/(x + y^2)",
    "exp(x + 2*y)/exp(y) - exp(x)*exp(y)",
    "log(x*y^2) - log(x)/2",
    "x^(2/3)*y^(-1/2) + sqrt(12*x)",
    "(x^(1/3) - 1)^3 + 1/(x - 3*y)^2",
    "x^y - y^x",
    "1/(1/x + 1/y) + sqrt(sqrt(x) + 1)^3",
]


def _term(text: str) -> tuple[Terms, Term]:
    problem = problem_of(f"{text} > 0", x="positive", y="positive")
    atom = problem.conclusions[0].formula
    return problem.terms, atom.term  # type: ignore[union-attr]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_normal_form_written_back_has_the_same_values(text: str) -> None:
    terms, term = _term(text)
    positive = {name: Side(Fraction(0), None, low_open=True) for name in "xy"}
    cleared = Exact(terms, positive).cleared(term)
    assert cleared is not None
    rewritten = Exact(terms, positive).rewritten(term)
    for x, y in ((Fraction(1, 2), Fraction(3)), (Fraction(7, 3), Fraction(1, 5)), (Fraction(4), Fraction(9, 4))):
        point = {"x": x, "y": y}
        assert abs(ball_value(term, point) - ball_value(rewritten, point)).upper() < 1e-25
        signs = sign_at(term, point), sign_at(cleared, point)
        assert None in signs or signs[0] == signs[1]


@pytest.mark.parametrize("text", [*EXPRESSIONS, "abs(x - y)*max(x, 2*y) - min(x, y)^2"])
def test_derivatives_agree_with_finite_differences(text: str) -> None:
    terms, term = _term(text)
    step = Fraction(1, 10**12)
    x, y = Fraction(5, 4), Fraction(2, 3)
    derivative = Derivatives(terms).of(term, "x")
    assert derivative is not None
    ahead, behind = ball_value(term, {"x": x + step, "y": y}), ball_value(term, {"x": x - step, "y": y})
    slope = (ahead - behind) / (2 * step.numerator) * step.denominator
    box = Box({"x": Side(x, x), "y": Side(y, y)})
    found = box.enclosures.of(derivative)
    assert found is not None
    assert abs(slope - found.lo).upper() < 1e-9
    assert found.hi - found.lo < 1e-9


def test_terms_are_shared_and_folded_exactly() -> None:
    terms = Terms()
    x = terms.variable("x")
    third = terms.constant(Fraction(1, 3))
    assert terms.add(x, third) is terms.add(third, x)
    assert terms.multiply(terms.constant(3), terms.multiply(third, x)) is x
    assert terms.power(terms.constant(Fraction(9, 4)), Fraction(1, 2)).value == Fraction(3, 2)
    assert terms.power(terms.constant(2), Fraction(1, 2)).op is Op.POWER
    huge = terms.power(terms.constant(3), Fraction(10**9))
    assert huge.op is Op.POWER
    assert exact_value(huge, {}) is None
    assert len(below(terms.power(terms.add(x, terms.one), Fraction(50)))) == 4


def test_signs_at_points_are_exact_where_floats_are_not() -> None:
    terms, term = _term("(x - 1/3)*(y + 10^30) - y*(x - 1/3) - (x - 1/3)*10^30")
    assert sign_at(term, {"x": Fraction(2, 7), "y": Fraction(1)}) == 0
    terms, term = _term("sqrt(x) - y")
    assert sign_at(term, {"x": Fraction(4), "y": Fraction(2)}) == 0
    assert sign_at(term, {"x": Fraction(2), "y": Fraction(14142135623730950488, 10**19)}) == 1
    assert sign_at(terms.inverse(terms.zero), {}) is None
