"""Intervals of real numbers with rational ends, open or closed: exact arithmetic on what values are possible."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Margin:
    """A ball [lo, hi] that contains rhs - lhs of a comparison; NaN never occurs, infinities may."""

    lo: float
    hi: float


End: TypeAlias = Fraction | float
"""A rational number, or an infinity as a float."""

INFINITY = float("inf")
_LONGEST = 4096  # bits of an end's numerator or denominator: a longer one is given up, so that powers cost no memory


@dataclass(frozen=True, slots=True)
class Range:
    """An interval; an infinite end is always open.

    Example:
        >>> unit = Range(Fraction(0), Fraction(1), low_open=True, high_open=True)
        >>> (Range(Fraction(1), Fraction(1)) - unit).above(0), unit.reciprocal().above(1)
        (True, True)
    """

    low: End = -INFINITY
    high: End = INFINITY
    low_open: bool = False
    high_open: bool = False

    @classmethod
    def point(cls, value: Fraction | int) -> Range:
        """Return the interval of one number."""
        return cls(Fraction(value), Fraction(value))

    def above(self, bound: int, *, or_at: bool = False) -> bool:
        """Whether every number in it is larger than `bound`, or at least as large."""
        return self.low > bound or (self.low == bound and (or_at or self.low_open))

    def below(self, bound: int, *, or_at: bool = False) -> bool:
        """Whether every number in it is smaller than `bound`, or at most as large."""
        return (-self).above(-bound, or_at=or_at)

    def meet(self, other: Range) -> Range:
        """Return what two intervals share; one of them where they share nothing."""
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        high, high_closed = min((self.high, not self.high_open), (other.high, not other.high_open))
        empty = low > high or (low == high and (low_open or not high_closed))
        return self if empty else Range(low, high, low_open, not high_closed)

    def within(self, other: Range) -> bool:
        """Whether every number in it is one of another interval.

        Example:
            >>> POSITIVE.within(NOT_NEGATIVE), NOT_NEGATIVE.within(POSITIVE), UNIT.within(Range())
            (True, False, True)
        """
        low = self.low > other.low or (self.low == other.low and (self.low_open or not other.low_open))
        high = self.high < other.high or (self.high == other.high and (self.high_open or not other.high_open))
        return low and high

    def hull(self, other: Range) -> Range:
        """Return the smallest interval that holds both."""
        low, low_open = min((self.low, self.low_open), (other.low, other.low_open))
        high, high_closed = max((self.high, not self.high_open), (other.high, not other.high_open))
        return Range(low, high, low_open, not high_closed)

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low, self.high_open, self.low_open)

    def __add__(self, other: Range) -> Range:
        low = -INFINITY if -INFINITY in (self.low, other.low) else self.low + other.low
        high = INFINITY if INFINITY in (self.high, other.high) else self.high + other.high
        return _tame(Range(low, high, self.low_open or other.low_open, self.high_open or other.high_open))

    def __sub__(self, other: Range) -> Range:
        return self + -other

    def __mul__(self, other: Range) -> Range:
        corners = [_corner(a, b) for a in self._ends() for b in other._ends()]
        low = min(value for value, _ in corners)
        high = max(value for value, _ in corners)
        low_open = all(is_open for value, is_open in corners if value == low)
        high_open = all(is_open for value, is_open in corners if value == high)
        return _tame(Range(low, high, low_open, high_open))

    def _ends(self) -> tuple[tuple[End, bool], tuple[End, bool]]:
        return (self.low, self.low_open), (self.high, self.high_open)

    def without_zero(self) -> Range:
        """Return it without zero, where zero is an end; everything where nothing else is left."""
        if self.low == self.high == 0:
            return Range()
        return Range(self.low, self.high, self.low_open or self.low == 0, self.high_open or self.high == 0)

    def reciprocal(self) -> Range:
        """Return the range of 1/x; everything where x may be zero or change its sign."""
        if self.below(0):
            return -((-self).reciprocal())
        if not self.above(0):
            return Range()
        low = Fraction(0) if self.high == INFINITY else 1 / self.high
        high = INFINITY if self.low == 0 else 1 / self.low
        return Range(low, high, self.high_open or self.high == INFINITY, self.low_open)


NOT_NEGATIVE = Range(low=Fraction(0))
POSITIVE = Range(low=Fraction(0), low_open=True)
UNIT = Range(Fraction(0), Fraction(1))


def _corner(a: tuple[End, bool], b: tuple[End, bool]) -> tuple[End, bool]:
    """Multiply two ends: a zero that is attained makes the product attained, whatever the other end."""
    if a[0] == 0 or b[0] == 0:
        return Fraction(0), all(is_open for value, is_open in (a, b) if value == 0)
    if abs(a[0]) == INFINITY or abs(b[0]) == INFINITY:
        return (INFINITY if (a[0] > 0) == (b[0] > 0) else -INFINITY), True
    return a[0] * b[0], a[1] or b[1]


def _tame(result: Range) -> Range:
    def long(end: End) -> bool:
        return isinstance(end, Fraction) and max(abs(end.numerator), end.denominator).bit_length() > _LONGEST

    low = -INFINITY if long(result.low) else result.low
    high = INFINITY if long(result.high) else result.high
    return Range(low, high, result.low_open, result.high_open)


def power_range(base: Range, exponent: Range) -> Range:
    """Return a range of base^exponent."""
    if exponent.below(0):
        return power_range(base, -exponent).reciprocal()
    whole = exponent.low if exponent.low == exponent.high and isinstance(exponent.low, Fraction) else None
    if whole is not None and whole.denominator == 1 and 0 <= whole <= 64:
        result = Range.point(1)
        for _ in range(int(whole)):
            result = result * base
        return result.meet(NOT_NEGATIVE) if whole % 2 == 0 else result
    if not base.above(0, or_at=True):
        return Range()
    result = POSITIVE if base.above(0) else NOT_NEGATIVE
    if base.below(1, or_at=True) and exponent.above(0, or_at=True):
        result = result.meet(Range(high=Fraction(1)))
    if base.above(1, or_at=True) and exponent.above(0, or_at=True):
        result = result.meet(Range(low=Fraction(1)))
    return result
