"""Enclosures in `arb` of functions of one number and of their slopes: tight on wide balls too, nothing where undefined.

`arb` loses width where an argument occurs twice. A function that rises or falls, or that is even and does so on one
side, is enclosed by its values at the ends.
"""

from __future__ import annotations

from collections.abc import Callable

from flint import arb

from ntk_deq import certified as ct

Enclosure = Callable[[arb], arb]


def rising(function: Enclosure) -> Enclosure:
    """Return the enclosure on balls of a function that nowhere falls, from its values at numbers.

    Example:
        >>> wide, function = ct.from_bounds(-5.0, 5.0), lambda x: x + (-x).exp().log1p()
        >>> function(wide) > 0, 0.006 < rising(function)(wide) < 5.01
        (False, True)
    """

    def enclosed(x: arb) -> arb:
        if not x.is_finite() or x.is_exact():
            return function(x) if x.is_finite() else ct.nan()
        return ct.from_bounds(function(x.lower()), function(x.upper()))

    return enclosed


def falling(function: Enclosure) -> Enclosure:
    """Return the enclosure on balls of a function that nowhere rises, from its values at numbers."""
    negative = rising(lambda x: -function(x))
    return lambda x: -negative(x)


def even(enclosure: Enclosure) -> Enclosure:
    """Return the enclosure of an even function from one for numbers that are not negative.

    Example:
        >>> even(falling(lambda x: 1 / (1 + x * x)))(ct.from_bounds(-1.0, 2.0)) > 0.19
        True
    """

    def enclosed(x: arb) -> arb:
        if not x.is_finite():
            return ct.nan()
        size = abs(x)
        if x.is_exact():
            return enclosure(size)
        low = size.lower()
        return enclosure(ct.from_bounds(low if low > 0 else arb(0), size.upper()))

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


def _arccos(x: arb) -> arb:
    return x.acos() if abs(x) <= 1 else ct.nan()


def _huber(size: arb) -> arb:
    return size * size / 2 if size <= 1 else size - arb(0.5)


def _clipped(x: arb) -> arb:
    return arb(1) if x > 1 else arb(-1) if x < -1 else x


softplus = rising(_softplus)
sigmoid = rising(_sigmoid)
tanh = rising(arb.tanh)
erf = rising(arb.erf)
arctan = rising(arb.atan)
arccos = falling(_arccos)
huber = even(rising(_huber))

sigmoid_slope = even(falling(_bell))
huber_slope = rising(_clipped)
sign = rising(lambda x: arb(1) if x > 0 else arb(-1) if x < 0 else arb(0))
step = rising(lambda x: arb(1) if x > 0 else arb(0))


def sin(x: arb) -> arb:
    """Return the sine; nothing is known of it where nothing is of x, which may have no value."""
    return x.sin() if x.is_finite() else ct.nan()


def cos(x: arb) -> arb:
    """Return the cosine, likewise."""
    return x.cos() if x.is_finite() else ct.nan()


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
    return -even(rising(lambda size: ct.divide(arb(1), ct.square_root((1 - size) * (1 + size)))))(x)
