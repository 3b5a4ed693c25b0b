"""The shape rules of the operators: sums, products, powers, transposes, comparisons, connectives."""

from __future__ import annotations

from collections.abc import Container

from ntk_deq.language.shapes import Shapes, fail
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import BOOLEAN, SCALAR, Size, Sort, Type

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
            fail(_inner(where), f"cannot compare {pair} with ==.", f"write c*ones({grown.rows}, {grown.cols}) or zeros")
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
