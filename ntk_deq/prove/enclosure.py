"""What a term can be over a box; its value and its sign at a point.

Intervals of real numbers with float ends, infinite or not, attained or not: half-infinite boxes and excluded ends are
why these are not balls: 1/x on (0, 1] is [1, inf), and 1 - x on (0, 1) never reaches 0. Ends of sums and products move
out by one unit in the last place where they are not exact, which bounds the rounding error of IEEE 754 arithmetic
(`ntk_deq.certified.rounding`); powers, exponentials and logarithms are taken of `arb` balls. An end that has moved is
not attained. An operation that is not defined on all of its operand gives None.

At a point: in rational arithmetic where that is possible, otherwise in balls.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from flint import arb

from ntk_deq.certified import functions as fn
from ntk_deq.certified.scalar import exact, lower, upper
from ntk_deq.prove import MAX_BITS, Op, Side, Term, below, bits, rational_power
from ntk_deq.prove.problem import Formula, Problem, truth

_INF = math.inf
_SHORT = 2.0**26  # whole numbers below it have exact products


class Interval(NamedTuple):
    """All numbers between two ends; an open end is not among them."""

    lo: float
    hi: float
    lo_open: bool = False
    hi_open: bool = False

    @property
    def positive(self) -> bool:
        """Whether every number is > 0."""
        return self.lo > 0 or (self.lo == 0 and self.lo_open)

    @property
    def nonnegative(self) -> bool:
        """Whether every number is >= 0."""
        return self.lo >= 0

    @property
    def negative(self) -> bool:
        """Whether every number is < 0."""
        return self.hi < 0 or (self.hi == 0 and self.hi_open)

    @property
    def nonpositive(self) -> bool:
        """Whether every number is <= 0."""
        return self.hi <= 0


def enclose(side: Side) -> Interval:
    """Return the interval between the two ends of a range.

    Example:
        >>> enclose(Side(Fraction(0), None, True))
        Interval(lo=0.0, hi=inf, lo_open=True, hi_open=True)
    """
    lo = -_INF if side.low is None else lower(exact(side.low))
    hi = _INF if side.high is None else upper(exact(side.high))
    return Interval(lo, hi, side.low_open or lo != side.low, side.high_open or hi != side.high)


def _sum_low(x: float, y: float, is_open: bool) -> tuple[float, bool]:
    total = x + y
    if math.isinf(x) or math.isinf(y):
        return total, True
    part = total - x
    if (x - (total - part)) + (y - part) == 0.0:  # Knuth's two-sum: the rounding error itself
        return total, is_open
    return math.nextafter(total, -_INF), True


def add(a: Interval, b: Interval) -> Interval:
    """Return the sums.

    Example:
        >>> add(Interval(0.0, 1.0, True, False), Interval(1.0, 2.0))
        Interval(lo=1.0, hi=3.0, lo_open=True, hi_open=False)
    """
    lo, lo_open = _sum_low(a.lo, b.lo, a.lo_open or b.lo_open)
    hi, hi_open = _sum_low(-a.hi, -b.hi, a.hi_open or b.hi_open)
    return Interval(lo, 0.0 - hi, lo_open, hi_open)


def negate(a: Interval) -> Interval:
    """Return the negatives."""
    return Interval(0.0 - a.hi, 0.0 - a.lo, a.hi_open, a.lo_open)


def _corner(x: float, x_open: bool, y: float, y_open: bool) -> tuple[float, bool, float, bool]:
    """Bound the product of two ends from below and above, each with whether the bound is missed."""
    if x == 0.0 or y == 0.0:
        missed = not ((x == 0.0 and not x_open) or (y == 0.0 and not y_open))
        return 0.0, missed, 0.0, missed
    p = x * y
    missed = x_open or y_open
    if math.isinf(x) or math.isinf(y):
        return p, True, p, True
    if _exact_product(x, y) and 1e-250 < abs(p) < 1e250:
        return p, missed, p, missed
    return math.nextafter(p, -_INF), True, math.nextafter(p, _INF), True


def _exact_product(x: float, y: float) -> bool:
    if math.frexp(x)[0] in (0.5, -0.5) or math.frexp(y)[0] in (0.5, -0.5):
        return True
    return abs(x) < _SHORT and abs(y) < _SHORT and x.is_integer() and y.is_integer()


def multiply(a: Interval, b: Interval) -> Interval:
    """Return the products.

    Example:
        >>> multiply(Interval(0.0, 1.0, True, False), Interval(-2.0, 4.0))
        Interval(lo=-2.0, hi=4.0, lo_open=False, hi_open=False)
    """
    if a.lo >= 0 and b.lo >= 0:
        lo, lo_open, _, _ = _corner(a.lo, a.lo_open, b.lo, b.lo_open)
        _, _, hi, hi_open = _corner(a.hi, a.hi_open, b.hi, b.hi_open)
        return Interval(max(lo, 0.0), hi, lo_open, hi_open)
    ends_a, ends_b = ((a.lo, a.lo_open), (a.hi, a.hi_open)), ((b.lo, b.lo_open), (b.hi, b.hi_open))
    corners = [_corner(*x, *y) for x in ends_a for y in ends_b]
    lo, lo_open = min((corner[0], corner[1]) for corner in corners)
    hi, hi_closed = max((corner[2], not corner[3]) for corner in corners)
    return Interval(lo, hi, lo_open, not hi_closed)


def inverse(a: Interval) -> Interval | None:
    """Return the reciprocals; None where zero is among the numbers.

    Example:
        >>> inverse(Interval(0.0, 2.0, True, False))
        Interval(lo=0.5, hi=inf, lo_open=False, hi_open=True)
        >>> inverse(Interval(0.0, 2.0)) is None
        True
    """
    if a.negative:
        mirrored = inverse(negate(a))
        return None if mirrored is None else negate(mirrored)
    if not a.positive:
        return None
    return _monotone(a, lambda x: fn.divide(arb(1), x), decreasing=True, at_zero=(_INF, True), at_infinity=(0.0, True))


def power(a: Interval, exponent: Fraction) -> Interval | None:
    """Return the powers for an exponent > 0; None where the exponent is not whole and a number is negative."""
    if exponent.denominator == 1 and exponent.numerator % 2 == 0:
        return _power(absolute(a), exponent)
    if a.nonnegative:
        return _power(a, exponent)
    if exponent.denominator > 1:
        return None
    if a.nonpositive:
        return negate(_power(negate(a), exponent))
    below = _power(Interval(0.0, -a.lo, False, a.lo_open), exponent)
    above = _power(Interval(0.0, a.hi, False, a.hi_open), exponent)
    return Interval(-below.hi, above.hi, below.hi_open, above.hi_open)


def _power(a: Interval, exponent: Fraction) -> Interval:
    return _monotone(a, lambda x: fn.power(x, exponent), at_zero=(0.0, False), at_infinity=(_INF, True))


def exp(a: Interval) -> Interval:
    """Return the exponentials."""
    return _monotone(a, fn.exponential, at_minus_infinity=(0.0, True), at_infinity=(_INF, True))


def log(a: Interval) -> Interval | None:
    """Return the logarithms; None where a number is not positive."""
    if not a.positive:
        return None
    return _monotone(a, fn.logarithm, at_zero=(-_INF, True), at_infinity=(_INF, True))


def _monotone(
    a: Interval,
    function: Callable[[arb], arb],
    *,
    decreasing: bool = False,
    at_zero: tuple[float, bool] | None = None,
    at_infinity: tuple[float, bool],
    at_minus_infinity: tuple[float, bool] = (-_INF, True),
) -> Interval:
    """Apply a monotone function to the ends, in balls; its values at special ends are given."""

    def value(x: float, is_open: bool, low: bool) -> tuple[float, bool]:
        if math.isinf(x):
            return at_infinity if x > 0 else at_minus_infinity
        if x == 0.0 and at_zero is not None:
            return at_zero[0], at_zero[1] or is_open
        ball = function(arb(x))
        if not ball.is_finite():
            return (-_INF if low else _INF), True
        return (lower(ball) if low else upper(ball)), is_open

    ends = ((a.lo, a.lo_open), (a.hi, a.hi_open))
    (first, first_open), (second, second_open) = reversed(ends) if decreasing else ends
    lo, lo_open = value(first, first_open, True)
    hi, hi_open = value(second, second_open, False)
    return Interval(lo, hi, lo_open, hi_open)


def absolute(a: Interval) -> Interval:
    """Return the absolute values.

    Example:
        >>> absolute(Interval(-2.0, 1.0, True, False))
        Interval(lo=0.0, hi=2.0, lo_open=False, hi_open=True)
    """
    if a.lo >= 0:
        return a
    if a.hi <= 0:
        return negate(a)
    hi, closed = max((-a.lo, not a.lo_open), (a.hi, not a.hi_open))
    return Interval(0.0, hi, False, not closed)


def maximum(a: Interval, b: Interval) -> Interval:
    """Return the larger ones of pairs."""
    lo, lo_open = max((a.lo, a.lo_open), (b.lo, b.lo_open))
    hi, closed = max((a.hi, not a.hi_open), (b.hi, not b.hi_open))
    return Interval(lo, hi, lo_open, not closed)


def hull(a: Interval, b: Interval) -> Interval:
    """Return the smallest interval around two."""
    lo, lo_open = min((a.lo, a.lo_open), (b.lo, b.lo_open))
    hi, closed = max((a.hi, not a.hi_open), (b.hi, not b.hi_open))
    return Interval(lo, hi, lo_open, not closed)


def _pick(left: Interval, right: Interval, above: Interval, otherwise: Interval) -> Interval:
    difference = add(left, negate(right))
    if difference.positive:
        return above
    return otherwise if difference.negative else hull(above, otherwise)


_INTERVALS: dict[Op, Callable[..., Interval | None]] = {
    Op.ADD: add,
    Op.MULTIPLY: multiply,
    Op.INVERSE: inverse,
    Op.POWER: power,
    Op.EXP: exp,
    Op.LOG: log,
    Op.ABS: absolute,
    Op.MAX: maximum,
    Op.PICK: _pick,
}


class Enclosures:
    """Encloses terms over one box, each once.

    Args:
        ranges: The box: an interval for every variable.

    Example:
        >>> from ntk_deq.prove import Terms
        >>> terms = Terms()
        >>> x = terms.variable("x")
        >>> Enclosures({"x": Interval(0.0, 1.0, False, True)}).of(terms.subtract(terms.one, x))
        Interval(lo=0.0, hi=1.0, lo_open=True, hi_open=False)
    """

    def __init__(self, ranges: Mapping[str, Interval]) -> None:
        self.ranges = ranges
        self._known: dict[Term, Interval | None] = {}

    def of(self, term: Term) -> Interval | None:
        """Return an interval that contains every value of a term, or None where it may be undefined."""
        for node in below(term, known=self._known):
            parts = [self._known[arg] for arg in node.args]
            if node.op is Op.VARIABLE:
                self._known[node] = self.ranges[node.name]
            elif node.op is Op.CONSTANT:
                self._known[node] = _constant(node.value)
            else:
                self._known[node] = None if None in parts else node.applied(_INTERVALS, parts)
        return self._known[term]


@lru_cache(maxsize=4096)
def _constant(value: Fraction | None) -> Interval:
    return enclose(Side(value, value))


Point = Mapping[str, Fraction]

_EXACT: dict[Op, Callable[..., Fraction | None]] = {
    Op.ADD: operator.add,
    Op.MULTIPLY: operator.mul,
    Op.INVERSE: lambda x: 1 / x if x else None,
    Op.POWER: rational_power,
    Op.EXP: lambda x: None if x else Fraction(1),
    Op.LOG: lambda x: Fraction(0) if x == 1 else None,
    Op.ABS: abs,
    Op.MAX: max,
    Op.PICK: lambda *parts: None,
}

_BALLS: dict[Op, Callable[..., arb]] = {
    Op.ADD: operator.add,
    Op.MULTIPLY: fn.multiply,
    Op.INVERSE: lambda x: fn.divide(arb(1), x),
    Op.POWER: fn.power,
    Op.EXP: fn.exponential,
    Op.LOG: fn.logarithm,
    Op.ABS: fn.absolute_value,
    Op.MAX: fn.maximum,
    Op.PICK: lambda *parts: arb("nan"),
}


def exact_value(term: Term, point: Point) -> Fraction | None:
    """Return the value of a term at a rational point where it is a rational number that can be had, else None.

    Example:
        >>> from ntk_deq.prove import Terms
        >>> terms = Terms()
        >>> root = terms.power(terms.variable("x"), Fraction(1, 2))
        >>> exact_value(root, {"x": Fraction(9, 4)}), exact_value(root, {"x": Fraction(2)})
        (Fraction(3, 2), None)
    """
    values: dict[Term, Fraction | None] = {}
    for node in below(term):
        parts = [values[arg] for arg in node.args]
        if parts:
            value = None if None in parts else node.applied(_EXACT, parts)
        else:
            value = _leaf(node, point)
        values[node] = value if value is None or bits(value) <= MAX_BITS else None
    return values[term]


def _leaf(node: Term, point: Point) -> Fraction:
    return point[node.name] if node.value is None else node.value


def ball_value(term: Term, point: Point) -> arb:
    """Return a ball of the value of a term at a rational point; no information where it is or may be undefined."""
    values: dict[Term, arb] = {}
    for node in below(term):
        parts = [values[arg] for arg in node.args]
        values[node] = node.applied(_BALLS, parts) if parts else exact(_leaf(node, point))
    return values[term]


def sign_at(term: Term, point: Point) -> int | None:
    """Return the sign of a term at a rational point, -1, 0 or 1; None where it is undefined or cannot be told."""
    value = exact_value(term, point)
    if value is not None:
        return (value > 0) - (value < 0)
    ball = ball_value(term, point)
    if not ball.is_finite() or ball.contains(0):
        return None
    return 1 if ball > 0 else -1


def truth_at(formula: Formula, point: Point) -> bool | None:
    """Return whether a statement holds at a rational point, or None where that cannot be told."""
    return truth(formula, lambda term: sign_at(term, point))


def admitted(problem: Problem, point: Point) -> bool:
    """Say whether a point for certain lies in every range, meets every hypothesis, and leaves none undefined."""
    if not all(side.contains(point[name]) for name, side in problem.variables.items()):
        return False
    needed = [f for h in problem.hypotheses for f in (h.defined, h.formula)]
    return all(truth_at(formula, point) is True for formula in needed)
