"""Numbers to try for a scalar, simplest first, all of them exact in binary; and random ones.

How plain a number is, and plainer numbers to put in its place; all of them exact in binary.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction

import torch

from ntk_deq.errors import ArgumentError
from ntk_deq.falsify.domains import choose, within
from ntk_deq.language.domain import Domain, DomainKind

_SMALL_EXPONENTS = (3, 4, 7, 10, 20, 30)
_DECADES = (1, 2, 3, 6, 9)
_INTEGERS_LISTED = 64  # of a wide or unbounded range of integers, the ones nearest to its simplest end
_ROUND_BITS = 40  # a bound such as 1/3 is approached to 2^-40 of the interval's width


@functools.cache
def scalar_ladder(domain: Domain) -> tuple[float, ...]:
    """Return the exact values to try for a scalar, or an entry, of a domain; simplest first, no value twice.

    Intervals: the middle, the ends where they are closed, the quarters, and distances 2^-k from either end. Half-lines:
    powers of two and of ten beyond the end, and where no double holds the end, whole numbers and what lies next to it.
    Reals: 1, 0, -1, halves, small integers, and far powers of either sign.

    Args:
        domain: The domain; kinds that restrict no single entry count as `real`.

    Raises:
        ArgumentError: The domain is empty, or too narrow to hold an exact number.

    Example:
        >>> scalar_ladder(Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1), True, True))[:5]
        (0.5, 0.25, 0.75, 0.125, 0.875)
    """
    found: list[float] = []
    for candidate in _candidates(domain):
        value = _nearest(candidate)
        if value == candidate and within(domain, candidate) and value not in found:
            found.append(value)
    if not found:
        raise ArgumentError(
            f"No float64 number lies in the domain {domain.text or domain.kind.value!r}; it must hold one."
        )
    return tuple(found)


def _candidates(domain: Domain) -> Iterator[Fraction]:
    """Yield candidates in order; those outside the domain are dropped by the caller."""
    low, high = domain.low, domain.high
    if domain.kind is DomainKind.INTEGER:
        yield from _integer_candidates(low, high)
    elif low is not None and high is not None:
        yield from _interval_candidates(low, high)
    elif low is not None:
        yield from _half_line_candidates(low, 1)
    elif high is not None:
        yield from _half_line_candidates(high, -1)
    else:
        yield from _real_candidates()


def _positive_candidates() -> Iterator[Fraction]:
    """Yield offsets from the end of a half-line: 1, its neighbours, the end itself, far powers."""
    yield from (Fraction(1), Fraction(2), Fraction(1, 2), Fraction(0), Fraction(3), Fraction(4), Fraction(1, 4))
    for k in (3, 5, 10, 20, 30):
        yield from (Fraction(1, 2**k), Fraction(2**k))
    yield from (Fraction(10**k) for k in _DECADES)
    yield from (Fraction(3, 2), Fraction(3, 4), Fraction(5, 4), Fraction(7, 8))


def _half_line_candidates(end: Fraction, sign: int) -> Iterator[Fraction]:
    """Yield points of a half-line that goes up (sign 1) or down (-1) from its end."""
    if _nearest(end) == end:
        yield from (end + sign * offset for offset in _positive_candidates())
        return
    whole = Fraction(math.ceil(end * sign) * sign)
    unit = _spacing(end)
    next_to_it = math.ceil(end * sign / unit) * unit * sign
    yield whole
    yield _short((whole + end) / 2, abs(whole - end))
    yield next_to_it
    yield from (whole + sign * offset for offset in _positive_candidates())
    yield from (next_to_it + sign * unit * 2**k for k in range(0, 80, 8))


def _real_candidates() -> Iterator[Fraction]:
    for positive in _positive_candidates():
        yield positive
        yield -positive


def _interval_candidates(low: Fraction, high: Fraction) -> Iterator[Fraction]:
    """Yield points of a bounded interval; inexact ones are rounded towards the middle to a short binary fraction."""
    width = high - low
    yield _short(low + width / 2, width)
    yield from (low, high)
    yield from (_short(low + width * Fraction(k, 4), width) for k in (1, 3))
    yield from (_short(low + width * Fraction(k, 8), width) for k in (1, 7))
    for k in _SMALL_EXPONENTS[1:]:
        yield _short(low + width / 2**k, width)
        yield _short(high - width / 2**k, width)
    yield from (_short(low + width * Fraction(k, 8), width) for k in (3, 5))
    yield from (Fraction(k) for k in (0, 1, -1, 2))
    unit = _spacing(low + width / 2)  # of the doubles; an interval may hold no more than a few
    yield from (end // unit * unit + k * unit for end in (low, high) for k in (0, 1, -1, 2))


def _nearest(value: Fraction) -> float:
    """Return the double nearest to a number, or an infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _spacing(value: Fraction) -> Fraction:
    """Return the distance of the doubles around a number."""
    nearest = _nearest(value)
    return Fraction(math.ulp(nearest) if math.isfinite(nearest) else math.ulp(sys.float_info.max))


def _short(value: Fraction, width: Fraction) -> Fraction:
    """Return the value where a double holds it, else the nearest multiple of a power of two far below the width."""
    if width == 0 or _nearest(value) == value:
        return value
    unit = Fraction(2) ** (width.numerator.bit_length() - width.denominator.bit_length() - _ROUND_BITS)
    unit = max(unit, _spacing(value))
    return round(value / unit) * unit


def _integer_candidates(low: Fraction | None, high: Fraction | None) -> Iterator[Fraction]:
    """Yield integers: from the lower end up, from the upper end down, or from zero both ways; then the other end."""
    first = None if low is None else math.ceil(low)
    last = None if high is None else math.floor(high)
    if first is not None:
        stop = first + _INTEGERS_LISTED if last is None else min(first + _INTEGERS_LISTED, last + 1)
        yield from (Fraction(k) for k in range(first, stop))
        if last is not None:
            yield from (Fraction((first + last) // 2), Fraction(last))
        else:
            yield from (Fraction(first + 10**k) for k in _DECADES)
    elif last is not None:
        yield from (Fraction(last - k) for k in range(_INTEGERS_LISTED))
    else:
        yield from (Fraction(k * sign) for k in range(1, _INTEGERS_LISTED // 2) for sign in (1, -1))
        yield Fraction(0)


def random_entries(domain: Domain, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Draw entries of a domain that restricts each by itself.

    Bounded intervals: uniform, or for a third of the draws close to an end (log-uniform distance). Half-lines:
    log-normal offsets. Integers: uniform on the range, or on the 64 next to its end. Reals: Gaussian.

    Args:
        domain: The domain.
        shape: Shape of the result.
        generator: Source of randomness.

    Returns:
        A float64 tensor whose every entry lies in the domain exactly.

    Example:
        >>> unit = Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1), True, True)
        >>> x = random_entries(unit, (100,), torch.Generator().manual_seed(0))
        >>> bool(((x > 0) & (x < 1)).all())
        True
    """
    low, high = domain.low, domain.high
    if domain.kind is DomainKind.INTEGER:
        drawn = _random_integers(low, high, shape, generator)
    elif low is not None and high is not None:
        share = torch.rand(shape, generator=generator, dtype=torch.float64)
        if choose(generator, 3) == 0:
            near = torch.exp2(-1 - 29 * share)  # 2^-1 .. 2^-30 of the width away from one end
            share = near if choose(generator, 2) == 0 else 1 - near
        drawn = _nearest(low) + _nearest(high - low) * share
    else:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        if low is not None:
            drawn = _nearest(low) + torch.exp(drawn)
        elif high is not None:
            drawn = _nearest(high) - torch.exp(drawn)
    return _kept(domain, drawn)


def _random_integers(
    low: Fraction | None, high: Fraction | None, shape: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    first = None if low is None else math.ceil(low)
    last = None if high is None else math.floor(high)
    if first is None:
        first = -_INTEGERS_LISTED // 2 if last is None else last - _INTEGERS_LISTED
    if last is None:
        last = first + _INTEGERS_LISTED
    return torch.randint(first, max(last, first) + 1, shape, generator=generator).to(torch.float64)


def _kept(domain: Domain, drawn: torch.Tensor) -> torch.Tensor:
    """Replace the rare entry that rounding put on an open end, or outside, by the simplest value of the domain."""
    low, high = domain.low, domain.high
    near = ~torch.isfinite(drawn)
    if low is not None:
        near |= drawn <= math.nextafter(_nearest(low), math.inf)
    if high is not None:
        near |= drawn >= math.nextafter(_nearest(high), -math.inf)
    simplest = scalar_ladder(domain)[0]
    kept = [entry if within(domain, entry) else simplest for entry in drawn[near].tolist()]
    drawn[near] = torch.tensor(kept, dtype=torch.float64)
    return drawn


ROUNDINGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40)
"""Significant bits that a number is rounded to, in turn."""

_SMALL = 3  # weight up to which every number is listed: 0, 1, 1/2, 2, 3, 1/4, 3/2, 4, 5, 6, 7 and their negatives
_ENDS = 12  # values of the scalar ladder of a domain that count as plain there: its middle, quarters and ends


def weight(number: float) -> int:
    """Return how many bits it takes to write a number: those of p and the size of e, where it is p 2^e with p odd.

    Args:
        number: A finite number.

    Example:
        >>> [weight(x) for x in (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 0.75, 0.1)]
        [0, 1, 1, 2, 2, 2, 4, 107]
    """
    if number == 0:
        return 0
    top, bottom = abs(number).as_integer_ratio()
    exponent = (top & -top).bit_length() - 1
    return (top >> exponent).bit_length() + max(exponent, bottom.bit_length() - 1)


def order(number: float) -> tuple[int, bool, float]:
    """Return a key that sorts numbers from the plainest on: by weight, positive before negative, then by size.

    Example:
        >>> sorted([3.0, -1.0, 0.5, 2.0, 1.0, 0.0, -0.5], key=order)
        [0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -0.5]
    """
    return weight(number), number < 0, abs(number)


@functools.cache
def small_numbers() -> tuple[float, ...]:
    """Return every number of weight 3 at most, the plainest first.

    Example:
        >>> small_numbers()[:7]
        (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -0.5)
    """
    bound = 2**_SMALL
    found = {k * 2.0**e for k in range(-bound, bound + 1) for e in range(-_SMALL, _SMALL + 1)}
    return tuple(sorted((x + 0.0 for x in found if weight(x) <= _SMALL), key=order))


@functools.lru_cache(maxsize=1024)
def plain_numbers(domain: Domain) -> tuple[float, ...]:
    """Return the plain numbers of a domain: small ones, then the middle, quarters and closed ends of its range.

    Example:
        >>> from ntk_deq.language.domain import DomainKind
        >>> plain_numbers(Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1), True, True))[:4]
        (0.5, 0.25, 0.125, 0.75)
    """
    listed = {*small_numbers(), *scalar_ladder(domain)[:_ENDS]}
    return tuple(sorted((x for x in listed if within(domain, x)), key=order))


def rounded(number: float, bits: int) -> tuple[float, ...]:
    """Return the multiples of a power of two nearest to a number, with at most so many significant bits.

    Args:
        number: A finite number.
        bits: Significant bits, at least 1.

    Returns:
        The nearest, then those on either side of the number; without repetition.

    Example:
        >>> rounded(0.7, 2), rounded(-5.0, 1), rounded(0.0, 4)
        ((0.75, 0.5), (-4.0, -8.0), (0.0,))
    """
    if number == 0:
        return (0.0,)
    unit = math.frexp(number)[1] - bits
    scaled = Fraction(number) / Fraction(2) ** unit
    found = (round(scaled), math.floor(scaled), math.ceil(scaled))
    return tuple(dict.fromkeys(x for x in map(lambda k: _scaled(k, unit), found) if math.isfinite(x)))


def _scaled(whole: int, exponent: int) -> float:
    try:
        return math.ldexp(whole, exponent)
    except OverflowError:
        return math.inf


def plainer(numbers: Iterable[float], than: float) -> Iterator[float]:
    """Yield those of the numbers that are plainer than a given one.

    Example:
        >>> list(plainer([0.0, 1.0, 2.0, 3.0], than=2.0))
        [0.0, 1.0]
    """
    limit = order(than)
    return (number for number in numbers if order(number) < limit)
