"""Scalar balls: python-flint `arb` at 128 bits, with the few helpers that keep a comparison honest.

Importing this module sets `flint.ctx.prec` to 128 bits. The precision is global to the process: a lower one set
elsewhere makes balls wider, never wrong, and a higher one (`certified.precise.working_precision`) narrower. `nan` is
the ball of no information: it compares as undecided with everything.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

import flint
from flint import arb, arf, fmpq

from ntk_deq.errors import ArgumentError

PRECISION = 128
"""Bits of a ball's midpoint: 75 more than a double has, so that scalar rounding never decides a verdict."""

flint.ctx.prec = PRECISION


@contextmanager
def bits_inside(bits: int) -> Iterator[None]:
    """Compute with so many bits inside, and as before afterwards, whatever happens inside.

    Example:
        >>> with bits_inside(256):
        ...     print(flint.ctx.prec)
        256
    """
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before


_RADIUS_BITS = 30  # flint keeps a radius as a 30-bit mantissa
_LARGEST = math.nextafter(math.inf, 0.0)

_OPERATORS: dict[str, tuple[Callable[[arb, arb], bool], Callable[[arb, arb], bool]]] = {
    "<=": (operator.le, operator.gt),
    "<": (operator.lt, operator.ge),
    ">=": (operator.ge, operator.lt),
    ">": (operator.gt, operator.le),
    "==": (operator.eq, operator.ne),
    "!=": (operator.ne, operator.eq),
}


def nan() -> arb:
    """Return the ball of no information."""
    return arb.nan()


def nearest_float(value: Fraction) -> float:
    """Return the float nearest to a fraction, infinity with its sign where it is beyond all floats.

    Example:
        >>> nearest_float(Fraction(1, 4)), nearest_float(Fraction(-(10**400)))
        (0.25, -inf)
    """
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def exact(value: float | int | Fraction) -> arb:
    """Return a ball for a number: floats and integers exactly, fractions to the present bits with their error.

    Args:
        value: Any number; a non-finite float gives the ball of no information.

    Returns:
        The ball.

    Example:
        >>> exact(0.5).is_exact(), exact(Fraction(1, 3)).is_exact()
        (True, False)
    """
    if isinstance(value, Fraction):
        return arb(fmpq(value.numerator, value.denominator))
    if isinstance(value, float) and not math.isfinite(value):
        return nan()
    return arb(value)


def dyadic(number: int, exponent: int) -> arb:
    """Return number 2^exponent as an exact ball.

    Example:
        >>> dyadic(3, -1) == 1.5
        True
    """
    return arb(arf((number, exponent)))


def _radius(wanted: arb) -> arb:
    """Return a ball around 0 whose radius is the least 30-bit number that is >= `wanted`.

    flint adds one unit to the 30-bit mantissa of a radius that it converts; asking for half a unit less undoes that.
    """
    mantissa, exponent = (int(part) for part in wanted.man_exp())
    shift = mantissa.bit_length() - _RADIUS_BITS
    mantissa = -(-mantissa >> shift) if shift > 0 else mantissa << -shift
    ball = arb(0, dyadic(2 * mantissa - 1, exponent + shift - 1))
    return ball if ball.rad() >= wanted else arb(0, wanted)


def _working_bits(*values: arb) -> int:
    """Return a precision at which sums of the given exact numbers are exact."""
    parts = [(int(m).bit_length() + int(e), int(e)) for m, e in (value.man_exp() for value in values) if m]
    least = _present_bits()
    if not parts:
        return least
    return max(least, max(top for top, _ in parts) - min(low for _, low in parts) + 8)


def _present_bits() -> int:
    """Return the bits that scalar bookkeeping keeps: what is set now, but never fewer than `PRECISION`."""
    return max(PRECISION, flint.ctx.prec)


def from_bounds(lo: float | arb, hi: float | arb) -> arb:
    """Return the ball of an interval.

    The lower end is kept exactly, so that a nonnegative quantity stays so; the upper end moves out by about 1e-9 of the
    width.

    Args:
        lo: Lower end.
        hi: Upper end, >= lo.

    Returns:
        A ball that contains [lo, hi]; no information where an end is not finite.

    Example:
        >>> ball = from_bounds(0.0, 1e-16)
        >>> is_true(">=", ball, exact(0)), is_true(">", ball, exact(0)) is None
        (True, True)
    """
    low = lo.lower() if isinstance(lo, arb) else exact(lo)
    high = hi.upper() if isinstance(hi, arb) else exact(hi)
    if not (low.is_finite() and high.is_finite()):
        return nan()
    if low > high:
        raise ArgumentError(f"`lo` of from_bounds must be at most `hi`. Got {low} and {high}.")
    if low == high:
        return low
    bits = _working_bits(low, high)
    present = _present_bits()
    if bits > 4 * present:  # ends of very different magnitude: an exact midpoint would be long for nothing
        unit = max(int(m).bit_length() + int(e) for m, e in (low.man_exp(), high.man_exp())) - 2 * present
        low, high, bits = _floor(low, unit), -_floor(-high, unit), 4 * present
    with flint.ctx.workprec(bits + 2 * _RADIUS_BITS):
        zero = _radius((high - low) / 2)
        return (low + zero.rad()) + zero


def _floor(value: arb, unit: int) -> arb:
    """Return the largest multiple of 2^unit that is at most an exact value."""
    mantissa, exponent = (int(part) for part in value.man_exp())
    return value if exponent >= unit else dyadic(mantissa >> (unit - exponent), unit)


def with_radius(mid: float | arb, rad: float) -> arb:
    """Return the ball mid +/- rad.

    Args:
        mid: Midpoint; where it is itself a ball, its radius is added.
        rad: Radius >= 0; NaN or infinite means no information.

    Returns:
        A ball that contains every number within `rad` of the midpoint.

    Example:
        >>> upper(with_radius(1.0, 0.25)) >= 1.25
        True
    """
    centre = mid if isinstance(mid, arb) else exact(mid)
    if not (math.isfinite(rad) and centre.is_finite()):
        return nan()
    if rad < 0:
        raise ArgumentError(f"`rad` of with_radius must be a number >= 0. Got {rad}.")
    return centre if rad == 0 else centre + _radius(arb(rad))


def lower(a: arb) -> float:
    """Return the largest float known to be at most every number of the ball; -inf where there is no information."""
    if not a.is_finite():
        return -math.inf
    end = a.lower()
    near = float(end)
    if math.isinf(near):
        return _LARGEST if near > 0 else near
    return near if arb(near) <= end else math.nextafter(near, -math.inf)


def upper(a: arb) -> float:
    """Return a float that is at least every number of the ball; inf where there is no information."""
    return -lower(-a)


def radius(a: arb) -> float:
    """Return a float that bounds the ball's radius; inf where there is no information."""
    return upper(a.rad()) if a.is_finite() else math.inf


def value_and_radius(a: arb) -> tuple[float, float]:
    """Return a float near a scalar ball and a bound on its distance from every number of the ball.

    An `arb` itself gives its midpoint and radius as `a.mid()` and `a.rad()`, in more digits than a float has.

    Returns:
        Value and radius; NaN and infinity where there is no information.

    Example:
        >>> value_and_radius(exact(0.5))
        (0.5, 0.0)
        >>> value, error = value_and_radius(exact(Fraction(1, 3)))
        >>> 0 < error < 1e-16
        True
    """
    if not a.is_finite():
        return math.nan, math.inf
    near = float(a.mid())
    return (near, max(0.0, upper(abs(a - near)))) if math.isfinite(near) else (near, math.inf)


def is_true(op: str, a: arb, b: arb) -> bool | None:
    """Compare two balls.

    Args:
        op: One of <= < >= > == !=.
        a: Left side.
        b: Right side.

    Returns:
        True where it holds for every pair of numbers in the balls, False where it fails for every pair, None where the
        balls do not decide or one holds no information.

    Raises:
        ArgumentError: `op` is no comparison sign.

    Example:
        >>> is_true("<=", exact(1), exact(1)), is_true("<", exact(1), with_radius(1.0, 0.5))
        (True, None)
    """
    if op not in _OPERATORS:
        raise ArgumentError(f"`op` of is_true must be one of {' '.join(_OPERATORS)}. Got {op!r}.")
    if not (a.is_finite() and b.is_finite()):
        return None
    holds, fails = _OPERATORS[op]
    if holds(a, b):
        return True
    return False if fails(a, b) else None
