"""Shapes: comparing symbolic sizes, saying them, limits on their growth, and the rules of the operators.

The operators are sums, products, powers, transposes, comparisons, connectives; the rules of functions are in `calls`.
The limit on the size of a matrix is applied before anything is computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Mapping
from fractions import Fraction
from typing import NoReturn

from ntk_deq.errors import ExpressionError
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import BOOLEAN, ONE, SCALAR, Size, SizeRange, Sort, Type

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
        if not any(size.letters & self._fixed.keys() for size in type_.sizes):
            return str(type_)
        numbers = [str(size) if self.number(size) is None else str(self.number(size)) for size in type_.sizes]
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
            places: Iterable[tuple[int, ...]] = itertools.product(*(range(r.low, r.high + 1) for r in ranges))
        else:
            if _surely_at_least(size, dict(zip(letters, ranges, strict=True)), bound):
                return True
            known = [letter in self.sizes for letter in letters]
            places = (
                itertools.product(*((r.low, r.high) for r in ranges)) if all(known) and len(letters) < _CORNERS else ()
            )
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


# A matrix power costs about log2 of the exponent in products; printed formulas stop at single digits.
MAX_MATRIX_POWER = 1000


def sum_(node: Expr, shapes: Shapes) -> Type:
    """Type a sum, a difference or a negation: scalars, or matrices of one shape."""
    types = _numeric(node, shapes)
    if len(types) == 1:
        return _number_or_matrix(types[0])
    left, right = types
    if left.sort is Sort.MATRIX and right.sort is Sort.MATRIX and shapes.same_shape(left, right):
        return left
    if shapes.is_scalar(left) and shapes.is_scalar(right):
        return SCALAR
    verb = "add" if node.kind is Kind.ADD else "subtract"
    words = (left, right) if node.kind is Kind.ADD else (right, left)
    join = "and" if node.kind is Kind.ADD else "from"
    hint = None
    other = right if left.sort is Sort.MATRIX else left
    if other.sort is not Sort.MATRIX:
        grown = left if left.sort is Sort.MATRIX else right
        hint = f"write c*I({grown.rows}) or c*ones({grown.rows}, {grown.cols}) for the scalar c"
        if not shapes.is_square(grown):
            hint = f"write c*ones({grown.rows}, {grown.cols}) for the scalar c"
    fail(_operator(node), f"cannot {verb} {shapes.show(words[0])} {join} {shapes.show(words[1])}.", hint)


def product(node: Expr, shapes: Shapes) -> Type:
    """Type a product: the matrix product where the inner sizes agree; a scalar or a 1 x 1 matrix scales."""
    left, right = _numeric(node, shapes)
    both = left.sort is Sort.MATRIX and right.sort is Sort.MATRIX
    if both and shapes.same(left.cols, right.rows):
        return Type(Sort.MATRIX, left.rows, right.cols)
    if shapes.is_scalar(left):
        return _number_or_matrix(right)
    if shapes.is_scalar(right):
        return left
    hint = None
    if shapes.same(left.cols, right.cols):
        hint = "transpose the right factor: '"
    elif shapes.same(left.rows, right.rows):
        hint = "transpose the left factor: '"
    message = f"cannot multiply {shapes.show(left)} by {shapes.show(right)}"
    fail(_operator(node), f"{message}: inner sizes {left.cols} and {right.rows} differ.", hint)


def division(node: Expr, shapes: Shapes) -> Type:
    """Type a quotient, whose divisor must be a scalar."""
    left, right = _numeric(node, shapes)
    if not shapes.is_scalar(right):
        fail(
            _operator(node), f"cannot divide {shapes.show(left)} by {shapes.show(right)}.", "write inv(A)*B or B*inv(A)"
        )
    return _number_or_matrix(left)


def power(node: Expr, shapes: Shapes, letters: Container[str] = ()) -> Type:
    """Type a power: scalar ^ scalar, or square matrix ^ whole number (negative: of the inverse).

    Args:
        node: The power, its parts typed.
        shapes: What is known of sizes.
        letters: Letters that run over ranges.
    """
    base, exponent = _numeric(node, shapes)
    if base.sort is Sort.MATRIX and shapes.is_square(base) and is_whole(node.args[1], shapes, letters):
        _check_exponent(node.args[1], shapes)
        return base
    if not shapes.is_scalar(exponent):
        fail(node.args[1].span, f"an exponent must be a scalar. Got {shapes.show(exponent)}.")
    if shapes.is_scalar(base):
        return SCALAR
    if not shapes.is_square(base):
        fail(_operator(node), f"only a square matrix has powers. Got {shapes.show(base)}.", _square_hint(base))
    fail(
        node.args[1].span,
        f"the exponent of {shapes.show(base)} must be a whole number, such as 2 or -1, or be made of size letters, "
        "steps and letters of ranges with + - and *.",
    )


def is_whole(node: Expr, shapes: Shapes, letters: Container[str] = ()) -> bool:
    """Whether a typed expression is a whole number by its form: integers, letters and steps with + - and *."""
    match node.kind:
        case Kind.NUMBER:
            return node.value is not None and node.value.denominator == 1
        case Kind.NAME:
            step = node.type is not None and node.type.sort is Sort.INDEX
            return step or ((node.name in shapes.sizes or node.name in letters) and node.type == SCALAR)
        case Kind.NEGATE | Kind.ADD | Kind.SUBTRACT | Kind.MULTIPLY:
            return all(is_whole(part, shapes, letters) for part in node.args)
        case _:
            return False


def _check_exponent(node: Expr, shapes: Shapes) -> None:
    """Refuse an exponent that is too large for some of the sizes; one with a step in it is looked at when it comes."""
    size = _polynomial(node, shapes)
    if size is None:
        return
    for distance in (size * -1 + MAX_MATRIX_POWER, size + MAX_MATRIX_POWER):
        values = shapes.least(distance, 0)
        if not isinstance(values, bool):
            where = (
                " where " + " and ".join(f"{letter} = {value}" for letter, value in values.items()) if values else ""
            )
            got = f"{size.evaluate(values)}{where}"
            fail(node.span, f"a matrix power goes from -{MAX_MATRIX_POWER} to {MAX_MATRIX_POWER}. Got {got}.")


def _polynomial(node: Expr, shapes: Shapes) -> Size | None:
    """Return a whole number as a polynomial in size letters, or None where another letter or a step stands in it."""
    match node.kind:
        case Kind.NUMBER:
            return Size.of(int(node.value or 0))
        case Kind.NAME:
            return Size.letter(node.name) if node.name in shapes.sizes else None
    parts = [_polynomial(part, shapes) for part in node.args]
    left, right = parts[0], parts[-1]
    if left is None or right is None:
        return None
    match node.kind:
        case Kind.NEGATE:
            return left * -1
        case Kind.MULTIPLY:
            return shapes.times(left, right, node.span)
    return shapes.plus(left, right if node.kind is Kind.ADD else right * -1, node.span)


def transposition(node: Expr, shapes: Shapes) -> Type:
    """Type a transpose."""
    (argument,) = _numeric(node, shapes)
    if argument.sort is not Sort.MATRIX:
        fail(node.span, f"only a matrix or a vector has a transpose. Got {shapes.show(argument)}.")
    return Type(Sort.MATRIX, argument.cols, argument.rows)


def comparison(node: Expr, shapes: Shapes) -> Type:
    """Type a chain of comparisons.

    Scalars take every relation. Matrices of one shape take == and, meant for every entry, <= < >= >; so do a matrix
    and a scalar, in either order, except for ==.
    """
    types = _numeric(node, shapes)
    for k, operator in enumerate(node.operators):
        left, right = types[k], types[k + 1]
        where = Span(node.args[k].span.stop, node.args[k + 1].span.start)
        scalars = shapes.is_scalar(left), shapes.is_scalar(right)
        if all(scalars):
            continue
        pair = f"{shapes.show(left)} and {shapes.show(right)}"
        if operator == "!=":
            fail(_inner(where), f"!= compares scalars only. Got {pair}.")
        if operator == "==" and any(scalars):
            grown = right if scalars[0] else left
            zero = node.args[k if scalars[0] else k + 1].value == 0
            matrix = f"{'zeros' if zero else 'c*ones'}({grown.rows}, {grown.cols})"
            fail(_inner(where), f"cannot compare {pair} with ==.", f"write {matrix}")
        if not any(scalars) and not shapes.same_shape(left, right):
            fail(_inner(where), f"cannot compare {pair}: the shapes differ.")
    return BOOLEAN


def truth(node: Expr, shapes: Shapes) -> Type:
    """Type `and`, `or`, `not` and `for all`, whose parts must be statements."""
    for argument in node.args:
        if argument.type is None or argument.type.sort is not Sort.BOOLEAN:
            got = "an expression without a type" if argument.type is None else shapes.show(argument.type)
            fail(argument.span, f"`{node.kind}` joins statements such as a <= b. Got {got}.")
    return BOOLEAN


def _numeric(node: Expr, shapes: Shapes) -> tuple[Type, ...]:
    """Return the types of a node's parts, none of which may be a statement."""
    types = []
    for argument in node.args:
        if argument.type is None or argument.type.sort is Sort.BOOLEAN:
            hint = (
                "join statements with `and`; a chain a <= b <= c needs no brackets"
                if node.kind is Kind.COMPARE
                else None
            )
            fail(argument.span, "a number or a matrix is needed here. Got a statement.", hint)
        types.append(argument.type)
    return tuple(types)


def _number_or_matrix(type_: Type) -> Type:
    return type_ if type_.sort is Sort.MATRIX else SCALAR


def integer_literal(node: Expr) -> int | None:
    """Return the value of an integer literal with or without a sign, otherwise None."""
    if node.kind is Kind.NEGATE:
        inner = integer_literal(node.args[0]) if node.args[0].kind is Kind.NUMBER else None
        return None if inner is None else -inner
    if node.kind is Kind.NUMBER and node.value is not None and node.value.denominator == 1:
        return node.value.numerator
    return None


def _square_hint(base: Type) -> str | None:
    return "write norm(v)^2 for the squared length of a vector" if str(base).startswith("vector") else None


def _operator(node: Expr) -> Span:
    """Return where the operator between the two parts of a node stands."""
    return _inner(Span(node.args[0].span.stop, node.args[1].span.start))


def _inner(gap: Span) -> Span:
    """Narrow the gap between two operands to the operator, for the usual one blank on either side."""
    return Span(gap.start + 1, gap.stop - 1) if gap.stop - gap.start >= 3 else gap
