"""How plain a number is, and plainer numbers to put in its place; all of them exact in binary."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from ntk_deq.claims.claim import Domain
from ntk_deq.falsify.domains import within
from ntk_deq.falsify.scalars import scalar_ladder

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
        >>> from ntk_deq.claims.claim import DomainKind
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
