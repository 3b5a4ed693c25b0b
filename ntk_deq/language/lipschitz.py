"""A Lipschitz constant of a map in its state, in the Frobenius norm, as a formula read off the map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from ntk_deq.errors import ExpressionError
from ntk_deq.language.families import quoted
from ntk_deq.language.format import format_expr, format_number
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import Size, Sort
from ntk_deq.language.written import Lift, definition_of, formula_of, put

Factors = tuple[str, ...] | None
"""The factors of a constant as texts; none of them for the constant 1, None where the state does not occur."""


def lipschitz_constant(
    image: Expr, state: str, definitions: Mapping[str, Expr], *, depth: Mapping[str, int] | None = None
) -> str:
    """Return a Lipschitz constant of a map, a formula in its variables.

    Sums add, numbers count with their absolute value, matrices with their norm, and functions of each entry with the
    largest of their slopes, which is 1 for relu and tanh, 1/4 for sigmoid, max(1, abs(a)) for leaky_relu(., a).

    Args:
        image: The map, typed.
        state: Name of the state.
        definitions: The definitions, typed.
        depth: Values of size letters that are known, for a system that is written out for a depth.

    Raises:
        ExpressionError: The state stands where no constant is known; the span is that of the part in `image`.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.types import SCALAR, matrix
        >>> from ntk_deq.language.typing import infer
        >>> names = {"Z": matrix("N", "m"), "A": matrix("m", "m"), "c": SCALAR}
        >>> lipschitz_constant(infer(parse("relu(c*Z*A - Z/2)"), names), "Z", {})
        'abs(c)*norm(A) + 1/2'
    """
    numbers = {letter: Size.of(value) for letter, value in (depth or {}).items()}
    found = _visit(image, state, definitions, numbers)
    return "0" if found is None else _product(found)


def _product(factors: tuple[str, ...]) -> str:
    plain = [f"({factor})" if " + " in factor and len(factors) > 1 else factor for factor in factors]
    return "*".join(plain) or "1"


def _sum(terms: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the sum of products, common last factors taken out: layers with a skip would double at each."""
    if len(terms) == 1:
        return terms[0]
    last: tuple[str, ...] = ()
    while all(terms) and len({term[-1] for term in terms}) == 1:
        last = (terms[0][-1], *last)
        terms = [term[:-1] for term in terms]
    return (" + ".join(map(_product, terms)), *last)


def _visit(expr: Expr, state: str, definitions: Mapping[str, Expr], numbers: Mapping[str, Size]) -> Factors:
    if expr.kind is Kind.NAME:
        if expr.name == state:
            return ()
        try:
            return _visit(definitions[expr.name], state, definitions, numbers) if expr.name in definitions else None
        except ExpressionError as error:  # at a place in the definition
            raise _unknown(expr, f"`{expr.name}`: {error.message}") from error
    found = [_visit(arg, state, definitions, numbers) for arg in expr.args]
    if all(factors is None for factors in found):
        return None
    match expr.kind:
        case Kind.NEGATE | Kind.TRANSPOSE:
            return found[0]
        case Kind.ADD | Kind.SUBTRACT:
            return _sum([factors for factors in found if factors is not None])
        case Kind.MULTIPLY if None in found:
            moving = 0 if found[1] is None else 1
            factors, other = found[moving], expr.args[1 - moving]
            assert factors is not None  # one of the two is, and the other is not
            inner = expr.args[0].type, expr.args[1].type
            meets = (
                inner[0] is not None and inner[1] is not None and inner[0].cols.at(numbers) == inner[1].rows.at(numbers)
            )
            sizes = _sizes(other, "norm" if meets else "fro")
            return (*factors, *sizes) if moving == 0 else (*sizes, *factors)
        case Kind.DIVIDE if found[1] is None and found[0] is not None:
            divisor = _size(expr.args[1], "norm")
            return (f"1/{divisor}", *found[0])
        case Kind.CALL if found[0] is not None and all(factors is None for factors in found[1:]):
            own = _factors(expr)
            if own is not None:
                return (*own, *found[0])
        case Kind.CALL if expr.name == "hadamard" and None in found:
            factors, other = (found[0], expr.args[1]) if found[1] is None else (found[1], expr.args[0])
            assert factors is not None
            return (f"max(abs({format_expr(quoted(other))}))", *factors)
    raise _unknown(expr, "no Lipschitz constant of this part in the state is known.")


def _factors(call: Expr) -> Factors:
    """Return what a function of its first argument multiplies distances by at most; None: that is not known."""
    definition = definition_of(call.name, len(call.args))
    if definition is not None:
        own = FUNCTIONS[call.name].definition
        assert own is not None
        values = dict(zip(definition[0], call.args, strict=True))
        lift = Lift(call.span, matrix=False)
        text = format_expr(quoted(put(formula_of(own.lipschitz), values, lift.number, lift.plain)))
        return () if text == "1" else (text,)
    facts = FUNCTIONS[call.name].entrywise
    bound = FUNCTIONS[call.name].lipschitz if facts is None else facts.lipschitz
    if bound is None or not math.isfinite(bound):
        return None
    return () if bound == 1 else (format_number(Fraction(str(bound))),)


def _sizes(expr: Expr, matrices: str) -> tuple[str, ...]:
    """Return the sizes of the factors of a product with numbers, or that of the whole."""
    if expr.kind is Kind.MULTIPLY and any(
        arg.type is not None and arg.type.sort is not Sort.MATRIX for arg in expr.args
    ):
        return tuple(size for arg in expr.args for size in _sizes(arg, matrices))
    return (_size(expr, matrices),)


def _size(expr: Expr, matrices: str) -> str:
    while expr.kind is Kind.TRANSPOSE:  # which no norm sees
        expr = expr.args[0]
    if expr.kind is Kind.NUMBER and expr.value is not None and expr.value >= 0:
        return format_expr(quoted(expr))
    scalar = expr.type is not None and expr.type.sort is not Sort.MATRIX
    return f"{'abs' if scalar else matrices}({format_expr(quoted(expr))})"


def _unknown(expr: Expr, message: str) -> ExpressionError:
    hint = (
        "sums, products with what is free of the state, and functions of bounded slope such as relu and tanh have one"
    )
    return ExpressionError(message, (expr.span.start, expr.span.stop), hint)
