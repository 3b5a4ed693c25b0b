"""Functions of scalar balls: tight on wide balls, nothing where undefined, no sign lost where a ball touches zero."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce

from flint import arb

from ntk_deq.certified.scalar import exact, from_bounds, nan
from ntk_deq.errors import ArgumentError


def _larger(a: arb, b: arb) -> arb:
    if not (a.is_finite() and b.is_finite()):
        return nan()
    if a >= b:
        return a
    if b >= a:
        return b
    low = b.lower() if a.lower() <= b.lower() else a.lower()
    high = b.upper() if a.upper() <= b.upper() else a.upper()
    return from_bounds(low, high)


def maximum(*values: arb) -> arb:
    """Return a ball of the largest of the numbers; exact where one ball dominates the others.

    Raises:
        ArgumentError: No value is given.

    Example:
        >>> maximum(exact(3), exact(4)) == 4
        True
    """
    if not values:
        raise ArgumentError("`values` of maximum must be at least one ball. Got none.")
    return reduce(_larger, values)


def minimum(*values: arb) -> arb:
    """Return a ball of the smallest of the numbers; exact where one ball is below the others.

    Raises:
        ArgumentError: No value is given.

    Example:
        >>> minimum(exact(3), exact(4)) == 3
        True
    """
    if not values:
        raise ArgumentError("`values` of minimum must be at least one ball. Got none.")
    return -maximum(*(-value for value in values))


def meet(first: arb, second: arb) -> arb:
    """Return a ball of what two balls of one number have in common.

    Example:
        >>> meet(from_bounds(0.0, 2.0), from_bounds(2.0, 3.0)) == 2
        True
    """
    if not (first.is_finite() and second.is_finite()):
        return first if first.is_finite() else second
    low, high = maximum(first.lower(), second.lower()), minimum(first.upper(), second.upper())
    return from_bounds(low, high) if low <= high else nan()


def absolute_value(a: arb) -> arb:
    """Return a ball of |a| with lower end >= 0.

    Example:
        >>> absolute_value(from_bounds(-1.0, 2.0)) >= 0
        True
    """
    if not a.is_finite():
        return nan()
    if a >= 0:
        return a
    if a <= 0:
        return -a
    low, high = -a.lower(), a.upper()
    return from_bounds(0.0, low if low >= high else high)


def multiply(a: arb, b: arb) -> arb:
    """Return a ball of a b that stays nonnegative where both are; `arb`'s own does not where one touches zero.

    Example:
        >>> ball = from_bounds(0.0, 2.0)
        >>> multiply(ball, ball) >= 0, ball * ball >= 0
        (True, False)
    """
    plain = a * b
    if a >= 0 and b >= 0 and plain.is_finite() and not plain >= 0:
        return from_bounds(a.lower() * b.lower(), a.upper() * b.upper())
    return plain


def divide(a: arb, b: arb) -> arb:
    """Return a ball of a / b; no information where the divisor's ball contains zero.

    Example:
        >>> divide(exact(1), exact(2)) == 0.5, divide(exact(1), from_bounds(-1.0, 1.0)).is_finite()
        (True, False)
    """
    return nan() if not b.is_finite() or b.contains(0) else a / b


def square_root(a: arb) -> arb:
    """Return a ball of the square root.

    A ball that reaches below zero is cut there, since rounding alone puts it there; one that lies below zero
    altogether gives no information.

    Example:
        >>> square_root(exact(25)) == 5, square_root(from_bounds(-1.0, 4.0)) >= 0, square_root(exact(-1)).is_finite()
        (True, True, False)
    """
    if not a.is_finite() or a < 0:
        return nan()
    if a > 0 or a.is_exact():
        return a.sqrt()
    return from_bounds(0.0, a.upper().sqrt())


_LONG = 64  # bits of an exponent; a longer one takes a product for each of its bits, and digits are lost all the same


def _whole_power(base: arb, exponent: int) -> arb:
    if exponent.bit_length() > _LONG and base > 0:
        return (arb(exponent) * base.log()).exp()
    result, factor = arb(1), absolute_value(base) if exponent % 2 == 0 else base
    while exponent:
        if exponent & 1:
            result = multiply(result, factor)
        exponent >>= 1
        if exponent:
            factor = multiply(factor, factor)
    return result


def _real_power(base: arb, exponent: arb) -> arb:
    if base < 0 or not exponent.is_finite():
        return nan()
    if base > 0:
        return (exponent * base.log()).exp()
    if not exponent > 0:
        return nan()
    top = base.upper()
    if top == 0:
        return arb(0)
    return from_bounds(0.0, (exponent * top.log()).exp())


def power(base: arb, exponent: int | Fraction | arb) -> arb:
    """Return a ball of base^exponent.

    Whole exponents by repeated multiplication, for any base; others for a base >= 0 (cut at zero as in `square_root`).
    0^0 is 1.

    Args:
        base: The base.
        exponent: A whole number, a fraction or a ball.

    Returns:
        The ball; no information where the power is not defined on some part of the base's ball.

    Example:
        >>> power(exact(-2), 3) == -8, power(exact(2), -2) == 0.25, power(exact(9), Fraction(1, 2)) == 3
        (True, True, True)
        >>> power(from_bounds(-1.0, 2.0), 2) >= 0
        True
    """
    if not base.is_finite():
        return nan()
    if isinstance(exponent, arb):
        if not (exponent.is_exact() and exponent.is_integer()):
            return _real_power(base, exponent)
        whole = exponent.unique_fmpz()
        exponent = int(whole) if whole is not None else 0
    exponent = Fraction(exponent)
    if exponent.denominator == 1:
        result = _whole_power(base, abs(exponent.numerator))
        return divide(arb(1), result) if exponent < 0 else result
    if exponent.denominator == 2:
        root = square_root(base)
        result = _whole_power(root, abs(exponent.numerator))
        return divide(arb(1), result) if exponent < 0 else result
    return _real_power(base, exact(exponent))


def exponential(a: arb) -> arb:
    """Return a ball of exp(a).

    Example:
        >>> exponential(exact(0)) == 1
        True
    """
    return a.exp()


def logarithm(a: arb) -> arb:
    """Return a ball of the natural logarithm; no information where the ball is not all positive.

    Example:
        >>> logarithm(exact(1)) == 0, logarithm(exact(0)).is_finite()
        (True, False)
    """
    return a.log() if a > 0 else nan()


Enclosure = Callable[[arb], arb]


def rising(function: Enclosure) -> Enclosure:
    """Return the enclosure on balls of a function that nowhere falls, from its values at numbers.

    Example:
        >>> wide, function = from_bounds(-5.0, 5.0), lambda x: x + (-x).exp().log1p()
        >>> function(wide) > 0, 0.006 < rising(function)(wide) < 5.01
        (False, True)
    """

    def enclosed(x: arb) -> arb:
        if not x.is_finite() or x.is_exact():
            return function(x) if x.is_finite() else nan()
        return from_bounds(function(x.lower()), function(x.upper()))

    return enclosed


def falling(function: Enclosure) -> Enclosure:
    """Return the enclosure on balls of a function that nowhere rises, from its values at numbers."""
    negative = rising(lambda x: -function(x))
    return lambda x: -negative(x)


def even(enclosure: Enclosure) -> Enclosure:
    """Return the enclosure of an even function from one for numbers that are not negative.

    Example:
        >>> even(falling(lambda x: 1 / (1 + x * x)))(from_bounds(-1.0, 2.0)) > 0.19
        True
    """

    def enclosed(x: arb) -> arb:
        if not x.is_finite():
            return nan()
        size = abs(x)
        if x.is_exact():
            return enclosure(size)
        low = size.lower()
        return enclosure(from_bounds(low if low > 0 else arb(0), size.upper()))

    return enclosed


def _softplus(x: arb) -> arb:
    """Return log(1 + exp(x)) = x + log(1 + exp(-x)), so that nothing is large that need not be."""
    return x + (-x).exp().log1p() if x > 0 else x.exp().log1p()


def _sigmoid(x: arb) -> arb:
    """Return 1/(1 + exp(-x)) = exp(x)/(1 + exp(x))."""
    small = (-x if x > 0 else x).exp()
    return 1 / (1 + small) if x > 0 else small / (1 + small)


def _bell(x: arb) -> arb:
    """Return exp(-x)/(1 + exp(-x))^2, the slope of the sigmoid, for x >= 0."""
    small = (-x).exp()
    return small / (1 + small) ** 2


def _huber(size: arb) -> arb:
    return size * size / 2 if size <= 1 else size - arb(0.5)


def _clipped(x: arb) -> arb:
    return arb(1) if x > 1 else arb(-1) if x < -1 else x


softplus = rising(_softplus)
sigmoid = rising(_sigmoid)
tanh = rising(arb.tanh)
erf = rising(arb.erf)
arctan = rising(arb.atan)
arccos = falling(lambda x: x.acos() if abs(x) <= 1 else nan())
huber = even(rising(_huber))

sigmoid_slope = even(falling(_bell))
huber_slope = rising(_clipped)
sign = rising(lambda x: arb(1) if x > 0 else arb(-1) if x < 0 else arb(0))
step = rising(lambda x: arb(1) if x > 0 else arb(0))


def sin(x: arb) -> arb:
    """Return the sine; nothing is known of it where nothing is of x, which may have no value."""
    return x.sin() if x.is_finite() else nan()


def cos(x: arb) -> arb:
    """Return the cosine, likewise."""
    return x.cos() if x.is_finite() else nan()


def tanh_slope(x: arb) -> arb:
    """Return 1 - tanh(x)^2 = 4 s(2x), s the slope of the sigmoid."""
    return 4 * sigmoid_slope(2 * x)


def erf_slope(x: arb) -> arb:
    """Return 2/sqrt(pi) exp(-x^2)."""
    return 2 / arb.pi().sqrt() * even(falling(lambda size: (-size * size).exp()))(x)


def arctan_slope(x: arb) -> arb:
    """Return 1/(1 + x^2)."""
    return even(falling(lambda size: 1 / (1 + size * size)))(x)


def arccos_slope(x: arb) -> arb:
    """Return -1/sqrt(1 - x^2); no information where the ends of the domain are in the ball."""
    return -even(rising(lambda size: divide(arb(1), square_root((1 - size) * (1 + size)))))(x)
