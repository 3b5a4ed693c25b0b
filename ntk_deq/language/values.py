"""Rules for the range of a function's values, from the ranges of its arguments; of a matrix, that of its entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from ntk_deq.language.interval import NOT_NEGATIVE, End, Range

Values = Callable[[Sequence[Range]], Range]


def always(known: Range) -> Values:
    """Return the rule of a function whose values lie in a range, whatever the arguments."""
    return lambda args: known


def positive_part(args: Sequence[Range]) -> Range:
    """Return the range of max(x, 0)."""
    return NOT_NEGATIVE.meet(args[0]) if args[0].high >= 0 else Range.point(0)


def magnitude(args: Sequence[Range]) -> Range:
    """Return the range of the absolute value.

    Example:
        >>> from fractions import Fraction
        >>> found = magnitude([Range(Fraction(-1), Fraction(1), low_open=True, high_open=True)])
        >>> found.low, found.low_open, found.high, found.high_open
        (Fraction(0, 1), False, Fraction(1, 1), True)
    """
    (own,) = args
    if own.low >= 0 or own.high <= 0:
        return own if own.low >= 0 else -own
    high, closed = max((own.high, not own.high_open), (-own.low, not own.low_open))
    return Range(Fraction(0), high, high_open=not closed)


def first(args: Sequence[Range]) -> Range:
    """Return the range of a rearrangement of the argument's entries."""
    return args[0]


def any_of(args: Sequence[Range]) -> Range:
    """Return the range of entries that are each one of an argument's."""
    joined = args[0]
    for other in args[1:]:
        joined = joined.hull(other)
    return joined


def with_zero(args: Sequence[Range]) -> Range:
    """Return the range of the argument's entries among zeros."""
    return args[0].hull(Range.point(0))


def product(args: Sequence[Range]) -> Range:
    """Return the range of products of an entry of each."""
    return args[0] * args[1]


def total(args: Sequence[Range]) -> Range:
    """Return the range of a sum of entries."""
    return NOT_NEGATIVE if args[0].above(0, or_at=True) else Range()


def sum_of_products(args: Sequence[Range]) -> Range:
    """Return the range of a sum of products of an entry of each."""
    return NOT_NEGATIVE if all(arg.above(0, or_at=True) for arg in args) else Range()


def extreme(pick: Callable[[list[tuple[End, bool]]], tuple[End, bool]]) -> Values:
    """Return the rule of the largest or smallest of several numbers; of one matrix, that of its entries."""

    def ranged(args: Sequence[Range]) -> Range:
        low, low_open = pick([(r.low, r.low_open) for r in args])
        high, closed = pick([(r.high, not r.high_open) for r in args])
        return Range(low, high, low_open, not closed)

    return ranged
