"""What is written out in other functions: those with a parameter, and derivatives of functions by their names.

A record's formulas are of numbers. A reader that computes puts its own values in them (`put`); where a formula of the
language is wanted, for matrices too, products become `hadamard` and numbers are added by `shift` (`Lift`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TypeVar

from ntk_deq.errors import ExpressionError
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.record import Function
from ntk_deq.language.tree import Expr, Kind, Span, with_constants
from ntk_deq.language.types import Sort

ENTRY = "x"
"""What the formulas of records call the entry."""

_MOST_PARTS = 2000  # of a formula with derivatives by name written out; nested ones multiply
_DEEPEST = 60  # levels of one; what stands around it has at most 100, and the interpreter room for 250
_V = TypeVar("_V")


@cache
def formula_of(text: str) -> Expr:
    """Return the tree of a formula of a record."""
    return with_constants(parse(text))


@cache
def definition_of(name: str, count: int) -> tuple[tuple[str, ...], Expr] | None:
    """Return what a call with so many arguments is written out as: the names of the arguments, and the formula.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> names, formula = definition_of("leaky_relu", 2)
        >>> names, format_expr(formula), definition_of("huber", 1)
        (('x', 'a'), 'relu(x) - a*relu(-x)', None)
    """
    function = FUNCTIONS.get(name)
    definition = None if function is None else function.defined(count)
    return None if definition is None else (definition.names, formula_of(definition.formula))


def put(
    formula: Expr,
    values: Mapping[str, _V],
    number: Callable[[Fraction], _V],
    apply: Callable[[Expr, Sequence[_V]], _V],
) -> _V:
    """Return the value of a formula of a record.

    Args:
        formula: The formula.
        values: What its names stand for.
        number: Makes a value of a number.
        apply: Makes the value of an operator or a call from those of its arguments.

    Example:
        >>> put(parse("2*x"), {"x": 3}, int, lambda node, args: args[0] * args[1])
        6
    """
    if formula.kind is Kind.NAME:
        return values[formula.name]
    if formula.kind is Kind.NUMBER:
        return number(formula.value if formula.value is not None else Fraction(0))
    return apply(formula, [put(arg, values, number, apply) for arg in formula.args])


def written_out(call: Expr) -> Expr | None:
    """Return what a call of numbers is written out as, or None where its function has a value of its own.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> format_expr(written_out(parse("leaky_relu(2*c, 1/10)")))
        'relu(2*c) - 1/10*relu(-(2*c))'
    """
    definition = definition_of(call.name, len(call.args)) if call.kind is Kind.CALL else None
    if definition is None:
        return None
    names, formula = definition
    lift = Lift(call.span, matrix=False)
    return put(formula, dict(zip(names, call.args, strict=True)), lift.number, lift.plain)


@dataclass(frozen=True)
class Lift:
    """Makes formulas of the language from formulas of numbers.

    Attributes:
        span: The place that the parts get.
        matrix: Whether the entry is one of a matrix.
    """

    span: Span
    matrix: bool

    def number(self, value: Fraction) -> Expr:
        """Return a number."""
        return Expr(Kind.NUMBER, self.span, value=value)

    def plain(self, node: Expr, args: Sequence[Expr]) -> Expr:
        """Return an operator or a call of other arguments."""
        return Expr(node.kind, self.span, tuple(args), name=node.name)

    def formula(self, formula: Expr, names: Sequence[str], args: Sequence[Expr]) -> Expr:
        """Return a formula with arguments in the place of its names; the first one may be a matrix."""
        values = {name: (arg, self.matrix and arg is args[0]) for name, arg in zip(names, args, strict=True)}
        found, wide = put(formula, values, lambda value: (self.number(value), False), self._applied)
        if self.matrix and not wide:
            return self._call("shift", self.plain(_PRODUCT, (self.number(Fraction(0)), args[0])), found)
        return found

    def _applied(self, node: Expr, args: Sequence[tuple[Expr, bool]]) -> tuple[Expr, bool]:
        parts, wide = [arg for arg, _ in args], [is_wide for _, is_wide in args]
        if not any(wide) or len(args) == 1 or node.kind in (Kind.CALL, Kind.DIVIDE):
            assert not (node.kind is Kind.DIVIDE and wide[1])  # no formula of a record divides by the entry
            return self.plain(node, parts), any(wide)
        if node.kind is Kind.POWER:
            assert node.args[1].value is not None
            power = parts[0]
            for _ in range(int(node.args[1].value) - 1):
                power = self._call("hadamard", power, parts[0])
            return power, True
        if all(wide):
            return (self._call("hadamard", *parts) if node.kind is Kind.MULTIPLY else self.plain(node, parts)), True
        if node.kind is Kind.MULTIPLY:
            return self.plain(node, parts), True
        minus = node.kind is Kind.SUBTRACT
        moving, moved = (parts[0], parts[1]) if wide[0] else (parts[1], parts[0])
        if minus and wide[0]:
            moved = Expr(Kind.NEGATE, self.span, (moved,))
        elif minus:
            moving = Expr(Kind.NEGATE, self.span, (moving,))
        return self._call("shift", moving, moved), True

    def _call(self, name: str, *args: Expr) -> Expr:
        return Expr(Kind.CALL, self.span, args, name=name)


_PRODUCT = parse("0*x")


def differentiated(formula: Expr) -> Expr | None:
    """Return the derivative of a formula of a record by the entry, or None where it is zero.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> format_expr(differentiated(parse("1 - tanh(x)^2")))
        '-(2*tanh(x)*(1 - tanh(x)^2))'
    """
    if formula.kind is Kind.NAME:
        return _number(1) if formula.name == ENTRY else None
    moved = [differentiated(arg) for arg in formula.args]
    if all(part is None for part in moved):
        return None
    match formula.kind:
        case Kind.NEGATE:
            return _negated(moved[0])
        case Kind.ADD:
            return _sum(moved[0], moved[1])
        case Kind.SUBTRACT:
            return _sum(moved[0], _negated(moved[1]))
        case Kind.MULTIPLY:
            return _sum(_times(moved[0], formula.args[1]), _times(formula.args[0], moved[1]))
        case Kind.DIVIDE:
            assert moved[0] is not None
            assert moved[1] is None  # no formula of a record divides by the entry
            return _node(Kind.DIVIDE, moved[0], formula.args[1])
        case Kind.POWER:
            base, exponent = formula.args
            assert exponent.value is not None  # a whole number, in every formula of a record
            lower = base if exponent.value == 2 else _node(Kind.POWER, base, _number(exponent.value - 1))
            return _times(_times(_number(exponent.value), lower), moved[0])
        case _:
            return _times(_slope_of_call(formula), moved[0])


def _slope_of_call(call: Expr) -> Expr | None:
    """Return the derivative of a function at its argument, or None where it is zero."""
    lift = Lift(call.span, matrix=False)
    slope = slope_formula(FUNCTIONS[call.name], len(call.args))
    return (
        None if slope is None else put(slope[1], dict(zip(slope[0], call.args, strict=True)), lift.number, lift.plain)
    )


def slope_formula(function: Function, count: int) -> tuple[tuple[str, ...], Expr] | None:
    """Return the derivative of a function of each entry as a formula, and what that calls the arguments.

    Args:
        function: Its record.
        count: With how many arguments it is called.
    """
    definition = definition_of(function.name, count)
    if definition is not None:
        slope = differentiated(definition[1])
        return None if slope is None else (definition[0], slope)
    facts = function.entrywise
    assert facts is not None
    assert facts.derivative is not None
    return (ENTRY,), formula_of(facts.derivative)


def _node(kind: Kind, *args: Expr) -> Expr:
    return Expr(kind, Span(0, 0), args)


def _number(value: int | Fraction) -> Expr:
    return Expr(Kind.NUMBER, Span(0, 0), value=Fraction(value))


def _negated(part: Expr | None) -> Expr | None:
    if part is None:
        return None
    return part.args[0] if part.kind is Kind.NEGATE else _node(Kind.NEGATE, part)


def _sum(left: Expr | None, right: Expr | None) -> Expr | None:
    if left is None or right is None:
        return left if right is None else right
    if right.kind is Kind.NEGATE:
        return _node(Kind.SUBTRACT, left, right.args[0])
    return _node(Kind.ADD, left, right)


def _times(left: Expr | None, right: Expr | None) -> Expr | None:
    if left is None or right is None:
        return None
    if Kind.NEGATE in (left.kind, right.kind):
        plain = [part.args[0] if part.kind is Kind.NEGATE else part for part in (left, right)]
        product = _times(*plain)
        return product if left.kind is right.kind else _negated(product)
    if left.kind is Kind.NUMBER and left.value == 1:
        return right
    return left if right.kind is Kind.NUMBER and right.value == 1 else _node(Kind.MULTIPLY, left, right)


def _slope(function: Function, count: int) -> Expr | None:
    found = slope_formula(function, count)
    return None if found is None else found[1]


def _second(function: Function, count: int) -> Expr | None:
    first = _slope(function, count)
    return None if first is None else differentiated(first)


def _integral(function: Function, count: int) -> Expr | None:
    own = function.defined(count) or function.entrywise
    return None if own is None or own.primitive is None else formula_of(own.primitive)


BY_NAME: dict[str, Callable[[Function, int], Expr | None]] = {
    "slope": _slope,
    "slope2": _second,
    "primitive": _integral,
}
"""Functions of functions: what each makes of a record and of how many arguments follow, None where that is zero."""


def by_name(node: Expr) -> Expr:
    """Return what a derivative, or a primitive, of a function by its name is written out as.

    Args:
        node: The call, its second argument typed.

    Raises:
        ExpressionError: Its first argument is no name of a function of each entry, or there is no closed form.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from dataclasses import replace
        >>> from ntk_deq.language.types import SCALAR
        >>> call = parse("slope2(tanh, c)")
        >>> format_expr(by_name(replace(call, args=(call.args[0], replace(call.args[1], type=SCALAR)))))
        '-(2*tanh(c)*(1 - tanh(c)^2))'
    """
    head, *args = node.args
    function = FUNCTIONS.get(head.name) if head.kind is Kind.NAME else None
    if function is None or not function.by_entries:
        known = ", ".join(sorted(name for name, record in FUNCTIONS.items() if record.by_entries))
        what = "the name of a function of each entry"
        raise ExpressionError(f"`{node.name}` takes {what} first.", _ends(head), f"such functions: {known}")
    definition = function.defined(len(args))
    if definition is None and (function.entrywise is None or len(args) > 1):
        usage = f"{node.name}({head.name}, x{', a' if function.entrywise is None else ''})"
        raise ExpressionError(f"`{head.name}` does not take {len(args)} here.", _ends(node), f"write {usage}")
    formula = BY_NAME[node.name](function, len(args))
    if formula is None and BY_NAME[node.name] is _integral:
        raise ExpressionError(f"`{head.name}` has no primitive in functions of the language.", _ends(head))
    names = (ENTRY,) if definition is None else definition.names
    type_ = args[0].type
    lift = Lift(node.span, matrix=type_ is not None and type_.sort is Sort.MATRIX)
    found = lift.formula(formula or _number(0), names, args)
    limits = ((sum(1 for _ in found.walk()), _MOST_PARTS, "parts"), (_depth(found), _DEEPEST, "levels"))
    for count, most, what in limits:
        if count > most:
            hint = "define its parts under `let` and use their names"
            raise ExpressionError(f"written out, `{node.name}` has more than {most:,} {what}.", _ends(node), hint)
    return found


def _depth(expr: Expr) -> int:
    """Return how many levels a tree has."""
    deepest, waiting = 0, [(expr, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((arg, depth + 1) for arg in node.args)
    return deepest


def _ends(node: Expr) -> tuple[int, int]:
    return node.span.start, node.span.stop
