"""Types of the claim language: scalars, booleans, step indices, matrices of symbolic size; intervals of numbers.

Intervals have rational ends, open or closed: exact arithmetic on what values are possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Size:
    """A polynomial with integer coefficients in size letters, in a normal form that makes equal sizes equal objects.

    Attributes:
        terms: Pairs (sorted letters of a monomial with repetition, non-zero coefficient), sorted by monomial.

    Example:
        >>> n, m = Size.letter("N"), Size.letter("m")
        >>> str(n * m + 1), n * m == m * n, (n * m).evaluate({"N": 2, "m": 3})
        ('N*m + 1', True, 6)
    """

    terms: tuple[tuple[tuple[str, ...], int], ...]

    @classmethod
    def of(cls, value: int | str | Size) -> Size:
        """Return a Size from a number, a letter or a Size."""
        if isinstance(value, Size):
            return value
        if isinstance(value, str):
            return cls.letter(value)
        return cls((((), value),) if value else ())

    @classmethod
    def letter(cls, name: str) -> Size:
        """Return the size that a letter stands for."""
        return cls((((name,), 1),))

    @classmethod
    def _normal(cls, terms: Mapping[tuple[str, ...], int]) -> Size:
        return cls(tuple(sorted(((k, v) for k, v in terms.items() if v), key=lambda t: (-len(t[0]), t[0]))))

    def __add__(self, other: Size | int) -> Size:
        total = dict(self.terms)
        for monomial, coefficient in Size.of(other).terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return Size._normal(total)

    def __sub__(self, other: Size | int) -> Size:
        return self + Size.of(other) * -1

    def __mul__(self, other: Size | int) -> Size:
        total: dict[tuple[str, ...], int] = {}
        for left, a in self.terms:
            for right, b in Size.of(other).terms:
                key = tuple(sorted(left + right))
                total[key] = total.get(key, 0) + a * b
        return Size._normal(total)

    @property
    def constant(self) -> int | None:
        """The number this size is, or None where it has letters."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    @property
    def letters(self) -> frozenset[str]:
        """Every letter that occurs."""
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    def at(self, values: Mapping[str, Size]) -> Size:
        """Return the size with other sizes in the place of letters; members count as letters by their names."""
        total = Size.of(0)
        for monomial, coefficient in self.terms:
            product = Size.of(coefficient)
            for letter in monomial:
                product = product * values.get(letter, Size.letter(letter))
            total = total + product
        return total

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Return the number for given letter values; KeyError where one is missing."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for name in monomial:
                product *= sizes[name]
            total += product
        return total

    def __str__(self) -> str:
        parts, signs = [], []
        for monomial, coefficient in self.terms:
            letters = "*".join(
                name if monomial.count(name) == 1 else f"{name}^{monomial.count(name)}"
                for name in dict.fromkeys(monomial)
            )
            size = abs(coefficient)
            parts.append(str(size) if not letters else letters if size == 1 else f"{size}*{letters}")
            signs.append("-" if coefficient < 0 else "+")
        if not parts:
            return "0"
        first = parts[0] if signs[0] == "+" else f"-{parts[0]}"
        return first + "".join(f" {sign} {part}" for sign, part in zip(signs[1:], parts[1:], strict=True))


ONE = Size.of(1)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a letter runs over, `l in 1..L`; which way is settled by `ntk_deq.language.families.downward`.

    Attributes:
        letter: The letter.
        start, stop: Its first and its last value.
        text: As it is written, in one spelling.
    """

    letter: str
    start: Size
    stop: Size
    text: str


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The values a size letter may take, both ends included.

    Attributes:
        low, high: The ends.
        over: For a family of sizes `n[l]`: its members, each of which has a value of its own.
        depth: Whether it is a depth for which a claim is written out, and so a number wherever it stands in a shape.
    """

    low: int
    high: int
    over: Reach | None = None
    depth: bool = False

    @property
    def fixed(self) -> bool:
        """Whether there is one value only."""
        return self.low == self.high


class Sort(StrEnum):
    """The kinds of value."""

    SCALAR = "scalar"
    MATRIX = "matrix"
    BOOLEAN = "boolean"
    INDEX = "step index"
    TIME = "time"  # the index of a flow

    @property
    def is_index(self) -> bool:
        """Whether a value of this kind may stand in Z[...]; it counts as a number elsewhere."""
        return self in (Sort.INDEX, Sort.TIME)


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an expression. A vector is a matrix with one column; a scalar is not a 1 x 1 matrix."""

    sort: Sort
    rows: Size = ONE
    cols: Size = ONE

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The rows of a vector, rows and columns of another matrix, nothing of what is no matrix."""
        if self.sort is not Sort.MATRIX:
            return ()
        return (self.rows,) if self.cols == ONE else (self.rows, self.cols)

    def __str__(self) -> str:
        if self.sort is not Sort.MATRIX:
            return str(self.sort)
        if self.cols == ONE:
            return f"vector {self.rows}"
        return f"matrix {self.rows} x {self.cols}"


SCALAR = Type(Sort.SCALAR)
BOOLEAN = Type(Sort.BOOLEAN)
STEP = Type(Sort.INDEX)
TIME = Type(Sort.TIME)


def matrix(rows: int | str | Size, cols: int | str | Size = 1) -> Type:
    """Return the type of a rows x cols matrix."""
    return Type(Sort.MATRIX, Size.of(rows), Size.of(cols))


def shape_type(shape: tuple[str | int, ...]) -> Type:
    """Return the type of a variable of a given shape: () scalar, (m,) column vector, (d, m) matrix."""
    if not shape:
        return SCALAR
    return matrix(shape[0], shape[1] if len(shape) == 2 else 1)


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
