"""The derivative of a formula in a direction, as a formula: each name that moves has a tangent, a name of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from ntk_deq.language.calls import Parameter
from ntk_deq.language.functions import FUNCTIONS, entrywise_of
from ntk_deq.language.record import Degree, Kink, Length
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.written import formula_of, put
from ntk_deq.verify.printer import SLOPE, TANGENT, UnwritableError

Shape = tuple[int, ...]

_NOWHERE = Span(0, 0)


def tangent(expr: Expr, moves: Callable[[str], bool], shape: Callable[[Expr], Shape]) -> Expr | None:
    """Return the derivative of a formula in the direction that the tangents of its names give; None where it is zero.

    Args:
        expr: The formula.
        moves: Whether a name moves.
        shape: The shape of a part: `()` for a scalar.

    Raises:
        UnwritableError: A part has no derivative here.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> format_expr(tangent(parse("c*W*W"), lambda name: name == "W", lambda expr: (2, 2)))
        'c*d:W*W + c*W*d:W'
    """
    if expr.kind is Kind.NAME:
        return Expr(Kind.NAME, _NOWHERE, name=TANGENT + expr.name) if moves(expr.name) else None
    if expr.kind is Kind.NUMBER:
        return None
    facts = entrywise_of(expr.name) if expr.kind is Kind.CALL else None
    if facts is not None and facts.kink is Kink.JUMP:
        return None
    if expr.kind is Kind.INDEX and not moves(expr.name):
        return None
    if expr.kind in (Kind.INDEX, Kind.AT, Kind.FUNCTION) or expr.name in ("grad", "jac", "next", "fixed_point"):
        raise UnwritableError(f"the derivative of `{expr.name or expr.kind}` is not written out")
    if _is_square_of_length(expr, shape):  # which has a derivative at zero too, where the length has none
        inside = expr.args[0].args[0]
        moving = tangent(inside, moves, shape)
        return None if moving is None else _times(_number(2), _of("sum", _of("hadamard", inside, moving)))
    moved = [tangent(arg, moves, shape) for arg in expr.args]
    if all(part is None for part in moved):
        return None
    if expr.kind is Kind.CALL:
        return _call(expr, moved, shape)
    rule = _RULES.get(expr.kind)
    if rule is None:
        raise UnwritableError(f"the derivative of `{expr.kind}` is not written out")
    return rule(expr, moved, shape)


def _is_square_of_length(expr: Expr, shape: Callable[[Expr], Shape]) -> bool:
    record = FUNCTIONS.get(expr.args[0].name) if expr.kind is Kind.POWER and expr.args[1].value == 2 else None
    length = None if record is None else record.length
    if length is None:
        return False
    sides = shape(expr.args[0].args[0])
    return bool(sides) and (length is Length.MATRIX or 1 in sides)


def _node(kind: Kind, *args: Expr) -> Expr:
    return Expr(kind, _NOWHERE, args)


def _of(name: str, *args: Expr) -> Expr:
    return Expr(Kind.CALL, _NOWHERE, args, name=name)


def _number(value: int | Fraction) -> Expr:
    return Expr(Kind.NUMBER, _NOWHERE, value=Fraction(value))


def _times(left: Expr, right: Expr) -> Expr:
    return _node(Kind.MULTIPLY, left, right)


def _plus(terms: list[Expr | None]) -> Expr | None:
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else _node(Kind.ADD, total, term)
    return total


def _bilinear(expr: Expr, moved: list[Expr | None], build: Callable[[Expr, Expr], Expr]) -> Expr | None:
    (left, right), (d_left, d_right) = expr.args, moved
    return _plus([None if d_left is None else build(d_left, right), None if d_right is None else build(left, d_right)])


def _linear(expr: Expr, moved: list[Expr | None], shape: Callable[[Expr], Shape]) -> Expr | None:
    assert moved[0] is not None
    return Expr(expr.kind, _NOWHERE, (moved[0],), name=expr.name)


def _subtract(expr: Expr, moved: list[Expr | None], shape: Callable[[Expr], Shape]) -> Expr | None:
    left, right = moved
    if right is None:
        return left
    return _node(Kind.NEGATE, right) if left is None else _node(Kind.SUBTRACT, left, right)


def _divide(expr: Expr, moved: list[Expr | None], shape: Callable[[Expr], Shape]) -> Expr | None:
    d_left, d_right = moved
    right = expr.args[1]
    first = None if d_left is None else _node(Kind.DIVIDE, d_left, right)
    if d_right is None:
        return first
    second = _node(Kind.NEGATE, _times(_node(Kind.DIVIDE, d_right, right), expr))
    return _plus([first, second])


def _power(expr: Expr, moved: list[Expr | None], shape: Callable[[Expr], Shape]) -> Expr | None:
    base, exponent = expr.args
    d_base, d_exponent = moved
    if shape(base) not in ((), (1, 1)):
        raise UnwritableError("the derivative of a matrix power is not written out")
    less = _node(Kind.POWER, base, _node(Kind.SUBTRACT, exponent, _number(1)))
    first = None if d_base is None else _times(_times(exponent, less), d_base)
    second = None if d_exponent is None else _times(_times(expr, _of("log", base)), d_exponent)
    return _plus([first, second])


_RULES: dict[Kind, Callable[[Expr, list[Expr | None], Callable[[Expr], Shape]], Expr | None]] = {
    Kind.NEGATE: _linear,
    Kind.TRANSPOSE: _linear,
    Kind.ADD: lambda expr, moved, shape: _plus(moved),
    Kind.SUBTRACT: _subtract,
    Kind.MULTIPLY: lambda expr, moved, shape: _bilinear(expr, moved, _times),
    Kind.DIVIDE: _divide,
    Kind.POWER: _power,
}


def _call(expr: Expr, moved: list[Expr | None], shape: Callable[[Expr], Shape]) -> Expr | None:
    record = FUNCTIONS[expr.name]
    if record.degree is Degree.LINEAR:
        return _of(expr.name, *_filled(expr, moved, shape))
    if record.degree is Degree.BILINEAR:
        return _bilinear(expr, moved, lambda left, right: _of(expr.name, left, right))
    argument, moving = expr.args[0], moved[0]
    facts = entrywise_of(expr.name)
    written = record.defined(len(expr.args)) is not None
    smooth = written or (facts is not None and facts.slope is not None)
    length = record.length
    outer = _entrywise if smooth else _length if length is not None else _differential if record.differential else None
    alone = len(expr.args) == 1 or (written and all(part is None for part in moved[1:]))
    if outer is None or moving is None or not alone:
        raise UnwritableError(f"the derivative of `{expr.name}` is not written out")
    if length is Length.VECTOR and 1 not in (shape(argument) or (1,)):
        raise UnwritableError("the derivative of a spectral norm is not written out")
    return outer(expr, argument, moving, not shape(argument))


def _filled(expr: Expr, moved: list[Expr | None], shape: Callable[[Expr], Shape]) -> list[Expr]:
    """Return the tangents of the arguments of what is linear in all of them together; sizes and indices stay."""
    record, parts = FUNCTIONS[expr.name], []
    for place, (arg, moving) in enumerate(zip(expr.args, moved, strict=True)):
        if record.parameter(place) in (Parameter.SIZE, Parameter.INDEX):
            parts.append(arg)
        elif moving is not None:
            parts.append(moving)
        else:
            sizes = shape(arg)
            parts.append(_of("zeros", *map(_number, sizes)) if sizes else _number(0))
    return parts


def _entrywise(expr: Expr, a: Expr, da: Expr, scalar: bool) -> Expr:
    """The slope of a function of each entry, as its record has it in NumPy."""
    slope = _of(SLOPE + expr.name, a, *expr.args[1:])
    return _times(slope, da) if scalar else _of("hadamard", slope, da)


def _length(expr: Expr, a: Expr, da: Expr, scalar: bool) -> Expr:
    """The derivative of a Euclidean or Frobenius norm, or of an absolute value."""
    if scalar:
        return _entrywise(_of("abs", a), a, da, scalar)
    return _node(Kind.DIVIDE, _of("sum", _of("hadamard", a, da)), expr)


def _differential(expr: Expr, a: Expr, da: Expr, scalar: bool) -> Expr:
    """What the record says of the change."""
    formula = formula_of(FUNCTIONS[expr.name].differential or "")
    return put(formula, {"Y": expr, "X": a, "D": da}, _number, lambda node, args: replace(node, args=tuple(args)))
