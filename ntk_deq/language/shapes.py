"""What the shape rules share: comparing symbolic sizes, saying them, and limits on how far they may grow.

The limit on the size of a matrix, applied before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, NoReturn

from ntk_deq.errors import ExpressionError
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import ONE, Size, SizeRange, Sort, Type

if TYPE_CHECKING:
    from ntk_deq.language.types import SizeRange


# `let` definitions that double a size again and again would otherwise make its polynomial explode. Printed formulas
# stay far below: vec of a Kronecker product of Kronecker products has degree 8.
MAX_DEGREE = 24
MAX_TERMS = 64
MAX_COEFFICIENT = 10**12


class Shapes:
    """The size letters in force, and what can be said about sizes because of them.

    Args:
        sizes: Ranges of the size letters; a letter with one value only counts as that number.

    Example:
        >>> from ntk_deq.language.types import SizeRange
        >>> from ntk_deq.language.types import matrix
        >>> shapes = Shapes({"N": SizeRange(8, 8), "m": SizeRange(1, 6)})
        >>> shapes.show(matrix("N", "m")), shapes.same(Size.of("N"), Size.of(8)), shapes.same(Size.of("m"), Size.of(6))
        ('matrix N x m [8 x m]', True, False)
    """

    def __init__(self, sizes: Mapping[str, SizeRange]) -> None:
        self.sizes = sizes
        self._fixed = {letter: bounds.low for letter, bounds in sizes.items() if bounds.fixed}
        self._depths = {letter: Size.of(bounds.low) for letter, bounds in sizes.items() if bounds.depth}

    def number(self, size: Size) -> int | None:
        """Return the number that a size is, or None where it depends on a letter that is not fixed."""
        return size.evaluate(self._fixed) if size.letters <= self._fixed.keys() else None

    def same(self, left: Size, right: Size) -> bool:
        """Whether two sizes agree: as polynomials, or as a number and letters that are fixed to it.

        Two letters stay two sizes where a setting fixes both to one number: a formula that mixes them up is ill-formed
        whatever the setting. A depth is a number where it is known.
        """
        if left == right:
            return True
        if self._depths and (left.letters | right.letters) & self._depths.keys():
            left, right = left.at(self._depths), right.at(self._depths)
            if left == right:
                return True
        number = left.constant if right.letters else right.constant
        return number is not None and number == self.number(left) == self.number(right)

    def same_shape(self, left: Type, right: Type) -> bool:
        """Whether two types have the same sort and the same shape."""
        return left.sort is right.sort and self.same(left.rows, right.rows) and self.same(left.cols, right.cols)

    def is_square(self, type_: Type) -> bool:
        """Whether a type is a square matrix."""
        return type_.sort is Sort.MATRIX and self.same(type_.rows, type_.cols)

    def is_vector(self, type_: Type) -> bool:
        """Whether a type is a matrix of one column."""
        return type_.sort is Sort.MATRIX and self.same(type_.cols, ONE)

    def is_scalar(self, type_: Type) -> bool:
        """Whether a value can stand where a number is needed: a scalar, a step index, or a 1 x 1 matrix."""
        if type_.sort is Sort.SCALAR or type_.sort.is_index:
            return True
        return self.is_vector(type_) and self.same(type_.rows, ONE)

    def show(self, type_: Type) -> str:
        """Return a type for people, with numbers in brackets where letters are fixed."""
        if type_.sort is not Sort.MATRIX:
            return f"a {type_.sort}"
        parts = [type_.rows] if type_.cols == ONE else [type_.rows, type_.cols]
        if not any(part.letters & self._fixed.keys() for part in parts):
            return str(type_)
        numbers = [str(part) if self.number(part) is None else str(self.number(part)) for part in parts]
        return f"{type_} [{' x '.join(numbers)}]"

    def times(self, left: Size, right: Size, span: Span) -> Size:
        """Return the product of two sizes, refusing one whose polynomial grows beyond what a formula needs."""
        degree = _degree(left) + _degree(right)
        if degree > MAX_DEGREE or len(left.terms) * len(right.terms) > MAX_TERMS:
            fail(span, f"the shape ({left}) times ({right}) is larger than the language allows.")
        return self._bounded(left * right, span)

    def plus(self, left: Size, right: Size, span: Span) -> Size:
        """Return the sum of two sizes, within the same limits."""
        return self._bounded(left + right, span)

    @staticmethod
    def _bounded(size: Size, span: Span) -> Size:
        if len(size.terms) > MAX_TERMS or any(abs(c) > MAX_COEFFICIENT for _, c in size.terms):
            fail(span, f"a size may have at most {MAX_TERMS} terms and coefficients up to {MAX_COEFFICIENT:.0e}.")
        return size

    def least(self, size: Size, bound: int) -> bool | Mapping[str, int]:
        """Return whether a size is at least a bound, whatever its letters: True, False where that is open.

        Or values of its letters at which it is not.
        """
        letters = sorted(size.letters)
        ranges = [self.sizes.get(letter, _ANY) for letter in letters]
        count = math.prod(r.high - r.low + 1 for r in ranges)
        if count <= _MOST_SIZES:
            places: Iterable[tuple[int, ...]] = product(*(range(r.low, r.high + 1) for r in ranges))
        else:
            if _surely_at_least(size, dict(zip(letters, ranges, strict=True)), bound):
                return True
            known = [letter in self.sizes for letter in letters]
            places = product(*((r.low, r.high) for r in ranges)) if all(known) and len(letters) < _CORNERS else ()
        for place in places:
            values = dict(zip(letters, place, strict=True))
            if size.evaluate(values) < bound:
                return values
        return count <= _MOST_SIZES

    def size(self, expr: Expr, *, index: bool = False) -> Size:
        """Return the size that a size argument denotes: a sum of products of positive integers and size letters.

        An index may have differences and zeros in it, too; whether it is positive is for others to see.
        """
        if expr.kind is Kind.NUMBER and expr.value is not None:
            if expr.value.denominator != 1 or not (0 if index else 1) <= expr.value <= MAX_COEFFICIENT:
                what = "an index" if index else "a size"
                fail(expr.span, f"{what} must be an integer from 1 to {MAX_COEFFICIENT:.0e}. Got {_shown(expr.value)}.")
            return Size.of(expr.value.numerator)
        if expr.kind is Kind.NAME:
            return Size.letter(expr.name)
        left, right = (self.size(part, index=index) for part in expr.args)
        if expr.kind is Kind.SUBTRACT:
            return self.plus(left, right * -1, expr.span)
        combine = self.plus if expr.kind is Kind.ADD else self.times
        return combine(left, right, expr.span)


_MOST_SIZES = 4096  # values of size letters that are tried one by one
_CORNERS = 10  # letters whose ends are tried
_MOST_FACTORS = 6  # of a term that is multiplied out: 2^6 terms
_ANY = SizeRange(1, 2**31)


def _surely_at_least(size: Size, ranges: Mapping[str, SizeRange], bound: int) -> bool:
    """Whether no coefficient is negative once every letter is written as its least value and what is above that."""
    if _degree(size) > _MOST_FACTORS:
        return False
    moved = Size.of(-bound)
    for monomial, coefficient in size.terms:
        term = Size.of(coefficient)
        for letter in monomial:
            term = term * (Size.letter(letter) + ranges[letter].low)
        moved = moved + term
    return all(coefficient >= 0 for _, coefficient in moved.terms)


def _shown(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{float(value):g}"


def _degree(size: Size) -> int:
    return max((len(monomial) for monomial, _ in size.terms), default=0)


def fail(span: Span, message: str, hint: str | None = None) -> NoReturn:
    """Raise an ExpressionError that points at `span`."""
    raise ExpressionError(message, (span.start, span.stop), hint)


MAX_ENTRIES = 2**27  # 1 GiB in float64; a Jacobian or Kronecker product of a claim is far below


def too_large(type_: Type, sizes: Mapping[str, SizeRange], *, structured: bool = False) -> str | None:
    """Return why a value of a type is too large even at the smallest sizes, or None.

    Args:
        type_: The type.
        sizes: Range of every size letter.
        structured: Whether the matrix is not formed, so that only its diagonal and its products with vectors count.

    Example:
        >>> from ntk_deq.language.types import matrix
        >>> too_large(matrix("n", "n"), {"n": SizeRange(20000, 30000)})
        'a matrix n x n is 20000 x 20000 at the smallest sizes: 400000000 entries; at most 134217728 are allowed'
    """
    if type_.sort is not Sort.MATRIX or not (type_.rows.letters | type_.cols.letters) <= sizes.keys():
        return None  # a member of a family is looked at where its number is known
    least = {letter: bounds.low for letter, bounds in sizes.items()}
    rows, cols = type_.rows.evaluate(least), type_.cols.evaluate(least)
    if (max(rows, cols) if structured else rows * cols) <= MAX_ENTRIES:
        return None
    return (
        f"a {type_} is {rows} x {cols} at the smallest sizes: {rows * cols} entries; at most {MAX_ENTRIES} are allowed"
    )
