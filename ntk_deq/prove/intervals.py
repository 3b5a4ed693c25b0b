"""Intervals of real numbers with float ends, infinite or not, attained or not: what a term can be over a box.

Half-infinite boxes and excluded ends are why these are not balls: 1/x on (0, 1] is [1, inf), and 1 - x on (0, 1) never
reaches 0. Ends of sums and products move out by one unit in the last place where they are not exact, which bounds the
rounding error of IEEE 754 arithmetic (`ntk_deq.certified.rounding`); powers, exponentials and logarithms are taken of
`arb` balls. An end that has moved is not attained. An operation that is not defined on all of its operand gives None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from flint import arb

from ntk_deq.certified import functions as fn
from ntk_deq.certified.scalar import exact, lower, upper

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


def enclose(low: Fraction | None, high: Fraction | None, low_open: bool, high_open: bool) -> Interval:
    """Return the interval between two rational ends; None is infinity.

    Example:
        >>> enclose(Fraction(0), None, True, True)
        Interval(lo=0.0, hi=inf, lo_open=True, hi_open=True)
    """
    lo, hi = -_INF, _INF
    if low is not None:
        lo = lower(exact(low))
        low_open = low_open or lo != low
    if high is not None:
        hi = upper(exact(high))
        high_open = high_open or hi != high
    return Interval(lo, hi, low_open or lo == -_INF, high_open or hi == _INF)


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
