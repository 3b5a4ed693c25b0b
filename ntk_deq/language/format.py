"""Tree to text: the canonical spelling of an expression, which parses back to an equal tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction

from ntk_deq.language.tree import BOUND, CONSTANT_NAMES, RESOLVENT, SUBDIFFERENTIAL, Expr, Kind, Mark, Sign

# How tightly a node binds; a part that binds less tightly than its place demands gets brackets.
QUANTIFIED, DISJUNCTION, CONJUNCTION, NEGATION, COMPARISON, SUM, PRODUCT, SIGN, POWER, ATOM = range(10)
TENSOR = (SUM + PRODUCT) / 2
"""Between a sum and a product: a Kronecker product needs brackets as a factor, not as a summand."""

BINDING = {
    Kind.FOR_ALL: QUANTIFIED,
    Kind.FOR_SOME: QUANTIFIED,
    Kind.EACH: QUANTIFIED,
    Kind.SOME: QUANTIFIED,
    Kind.OVER: QUANTIFIED,
    Kind.FUNCTION: QUANTIFIED,
    Kind.OR: DISJUNCTION,
    Kind.AND: CONJUNCTION,
    Kind.NOT: NEGATION,
    Kind.COMPARE: COMPARISON,
    Kind.ADD: SUM,
    Kind.SUBTRACT: SUM,
    Kind.MULTIPLY: PRODUCT,
    Kind.DIVIDE: PRODUCT,
    Kind.NEGATE: SIGN,
    Kind.POWER: POWER,
}
"""The binding strength of every kind that is not an atom."""

_JOINTS = {
    Kind.OR: " or ",
    Kind.AND: " and ",
    Kind.ADD: " + ",
    Kind.SUBTRACT: " - ",
    Kind.MULTIPLY: "*",
    Kind.DIVIDE: "/",
}


def format_expr(expr: Expr) -> str:
    """Return the canonical text of a tree from `parse`; it parses back to an equal tree, spans aside.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> format_expr(parse("((A*B))' +-1.50*inv( Q ) <=(2)"))
        "(A*B)' + -1.5*inv(Q) <= 2"
    """
    match expr.kind:
        case Kind.NUMBER:
            return format_number(expr.value if expr.value is not None else Fraction(0))
        case Kind.NAME:
            return expr.name
        case Kind.INDEX:
            return expr.name + "".join(f"[{_part(inside, DISJUNCTION)}]" for inside in expr.args)
        case Kind.CALL if expr.name in CONSTANT_NAMES and not expr.args:
            return expr.name
        case Kind.CALL if expr.args and expr.args[0].kind is Kind.OVER:
            return f"{expr.name}({', '.join([format_expr(expr.args[0]), *map(_argument, expr.args[1:])])})"
        case Kind.CALL if expr.name in _SIGNS:
            return _signed(expr)
        case Kind.CALL if not expr.name:
            member, *arguments = expr.args
            return f"{format_expr(member)}({', '.join(_part(argument, DISJUNCTION) for argument in arguments)})"
        case Kind.CALL if expr.name in _MARKS:
            return f"({format_expr(expr.args[0])})"
        case Kind.CALL:
            return f"{expr.name}({', '.join(_argument(argument) for argument in expr.args)})"
        case Kind.AT:
            first, *values = [_part(argument, DISJUNCTION) for argument in expr.args]
            pairs = [f"{name} = {value}" for name, value in zip(expr.names, values, strict=True)]
            return f"at({', '.join([first, *pairs])})"
        case Kind.FUNCTION:
            argument, body = spelled(expr)
            return f"{argument}{_shape(expr)} -> {_part(body, DISJUNCTION)}"
        case Kind.TRANSPOSE:
            return f"{_part(expr.args[0], ATOM)}'"
        case Kind.NEGATE:
            return f"-{_part(expr.args[0], POWER)}"
        case Kind.POWER:
            return f"{_part(expr.args[0], ATOM)}^{_exponent(expr.args[1])}"
        case Kind.NOT:
            return f"not {_part(expr.args[0], NEGATION)}"
        case Kind.COMPARE if (inclusion := inclusion_of(expr)) is not None:
            subgradient, function, point = inclusion
            return f"{_part(subgradient, SUM)} in {SUBDIFFERENTIAL}({_argument(function)}, {_argument(point)})"
        case Kind.COMPARE:
            text = _part(expr.args[0], SUM)
            for operator, operand in zip(expr.operators, expr.args[1:], strict=True):
                text += f" {operator} {_part(operand, SUM)}"
            return text
        case Kind.FOR_ALL | Kind.FOR_SOME:
            condition = f" with {_part(expr.args[1], DISJUNCTION)}" if len(expr.args) > 1 else ""
            return f"{_quantified(expr.args[0])} {expr.kind} {', '.join(expr.names)}{condition}"
        case Kind.EACH | Kind.SOME:
            word = "all" if expr.kind is Kind.EACH else "some"
            return f"{_quantified(expr.args[0])} for {word} {_reach(expr)}"
        case Kind.OVER:
            return f"{_argument(expr.args[0])} for {_reach(expr)}"
        case _:
            strength = BINDING[expr.kind]
            left, right = expr.args
            return f"{_part(left, strength)}{_JOINTS[expr.kind]}{_part(right, strength + 1)}"


def inclusion_of(expr: Expr) -> tuple[Expr, Expr, Expr] | None:
    """Return g, phi and z of a comparison that says that g is a subgradient of phi at z; None: it says something else.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> [part.name for part in inclusion_of(parse("g in subdiff(phi, z)"))]
        ['g', 'phi', 'z']
    """
    if expr.kind is not Kind.COMPARE or expr.operators != ("==",):
        return None
    point, call = expr.args
    if call.kind is not Kind.CALL or call.name != RESOLVENT or len(call.args) != 2 or call.args[1].kind is not Kind.ADD:
        return None
    function, moved = call.args
    same = format_expr(moved.args[0]) == format_expr(point)
    return (moved.args[1], function, point) if same else None


def spelled(function: Expr) -> tuple[str, Expr]:
    """Return a function's argument and its body, the argument by a name that can be written and means nothing else.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.typing import infer
        >>> tree = infer(parse("minimum(u[] -> (u - 1)^2)"), {})
        >>> tree.args[0].names, spelled(tree.args[0])[0], format_expr(tree)
        (('u·0',), 'u', 'minimum(u[] -> (u - 1)^2)')
    """
    name, body = function.names[0], function.args[0]
    taken = {node.name for node in body.walk()}
    base = name.partition(BOUND)[0]
    if base == name:
        return name, body
    free = next(n for n in (base, *(f"{base}{k}" for k in range(1, len(taken) + 2))) if n not in taken)
    return free, _renamed(body, name, free)


_LONGEST = 40  # characters of a function that is written out in a sentence


def function_text(function: Expr) -> str:
    """Return a function as text, of a long one no more than that it is one."""
    name, body = spelled(function)
    text = f"{name} -> {format_expr(body)}"
    return text if len(text) <= _LONGEST else f"a function of {name}"


def unmarked(expr: Expr) -> Expr:
    """Return a tree without the marks that tell where bodies of functions begin and end."""
    if expr.kind is Kind.CALL and expr.name in _MARKS and expr.name != Mark.SHAPE:
        return unmarked(expr.args[0])
    return expr.mapped(unmarked)


def unshaped(expr: Expr) -> Expr:
    """Return a tree to be compared, typed or not: without marks and shapes, arguments of functions called by depth."""
    expr = unmarked(expr)
    args = tuple(map(unshaped, expr.args))
    if expr.kind is not Kind.FUNCTION:
        return replace(expr, args=args)
    name = BOUND * (1 + sum(node.kind is Kind.FUNCTION for node in args[0].walk()))
    return replace(expr, args=(_renamed(args[0], expr.names[0], name),), names=(name,))


def _renamed(expr: Expr, old: str, new: str) -> Expr:
    name = new if expr.kind is Kind.NAME and expr.name == old else expr.name
    return replace(expr, name=name, args=tuple(_renamed(part, old, new) for part in expr.args))


def printed(expr: Expr) -> Expr:
    """Return a tree as it is set in print: arguments of functions by names, a derivative at a point as in `at`."""
    if not any(node.kind is Kind.FUNCTION for node in expr.walk()):
        return expr
    if expr.kind is Kind.CALL and expr.name in ("grad", "jac") and expr.args[0].kind is Kind.FUNCTION:
        function, point = expr.args
        name, body = spelled(function)
        argument = replace(function.args[-1], kind=Kind.NAME, name=name, args=())
        derivative = replace(expr, args=(printed(body), argument))
        if point.kind is Kind.NAME and point.name == name:  # at x = x says nothing
            return derivative
        return replace(expr, kind=Kind.AT, args=(derivative, printed(point)), name="", names=(name,))
    if expr.kind is Kind.FUNCTION:
        name, body = spelled(expr)
        return replace(expr, args=(printed(body), *expr.args[1:]), names=(name,))
    return expr.mapped(printed)


def _shape(function: Expr) -> str:
    """Return the shape of a function's argument in brackets, where it is known."""
    stated = function.args[1] if len(function.args) > 1 else None
    type_ = None if stated is None else stated.type
    if type_ is not None:
        return f"[{', '.join(map(str, type_.sizes))}]"
    if stated is None or stated.kind is not Kind.CALL or stated.names:
        return ""
    return f"[{', '.join(map(format_expr, stated.args))}]"


_SIGNS, _MARKS = frozenset(Sign), frozenset(Mark)


def _signed(expr: Expr) -> str:
    """Return the text of a call that is written with brackets of its own."""
    if expr.name in (Sign.ROW, Sign.STACK):
        rows = [expr] if expr.name == Sign.ROW else expr.args
        return f"[{'; '.join(', '.join(_part(part, DISJUNCTION) for part in row_parts(row)) for row in rows)}]"
    matrix, *ends = expr.args
    inside = selectors(expr.name, [_part(end, SUM) for end in ends])
    return f"{_part(matrix, ATOM)}{{{', '.join(inside)}}}"


def row_parts(row: Expr) -> tuple[Expr, ...]:
    """Return what stands side by side in a row of a literal; a row of one part may be a literal itself."""
    return row.args if row.kind is Kind.CALL and row.name == Sign.ROW else (row,)


def selectors(name: str, ends: Sequence[str], dots: str = "..") -> list[str]:
    """Return the selectors of a piece of a matrix as text, from the texts of its ends.

    Args:
        name: The kind of piece.
        ends: Its indices, or first and last index of each range.
        dots: What stands between the ends of a range.

    Example:
        >>> selectors(Sign.BLOCK, ["1", "n", "2", "2"]), selectors(Sign.ROWS, ["i", "i"])
        (['1..n', '2'], ['i', ':'])
    """
    if name == Sign.ENTRY:
        return list(ends)
    pairs = [(ends[k], ends[k + 1]) for k in range(0, len(ends), 2)]
    texts = [low if low == high else f"{low}{dots}{high}" for low, high in pairs]
    if name == Sign.SEGMENT or (name == Sign.BLOCK and texts == [low for low, _ in pairs]):
        texts[0] = f"{pairs[0][0]}{dots}{pairs[0][1]}"  # an index alone would be an entry
    return [*texts, ":"] if name == Sign.ROWS else [":", *texts] if name == Sign.COLUMNS else texts


def format_number(value: Fraction) -> str:
    """Return the shortest plain or scientific literal of a number, exactly; a fraction in brackets where none is exact.

    Example:
        >>> [format_number(Fraction(text)) for text in ("0.001", "1500000000", "-2", "1/3")]
        ['0.001', '15e8', '(-2)', '(1/3)']
    """
    if value < 0:
        return f"(-{format_number(-value)})"
    scale = decimal_places(value)
    if scale is None:
        return f"({value.numerator}/{value.denominator})"
    digits = str(value.numerator * 10**scale // value.denominator)
    plain = digits if scale == 0 else f"{digits.zfill(scale + 1)[:-scale]}.{digits.zfill(scale + 1)[-scale:]}"
    mantissa = digits.rstrip("0")
    power = len(digits) - len(mantissa) - scale
    if power == 0:
        return plain
    scientific = f"{mantissa}e{power}"
    # Up to 8 characters (0 among them) a plain number reads better than a shorter scientific one.
    return plain if len(plain) <= max(8, len(scientific)) else scientific


def short_decimal(value: float, *, digits: int = 10, cut: int = 6) -> str:
    """Return a float so that what is shown is the number, or its first digits with an ellipsis where it has more.

    Nothing is rounded: 1 - 2^-10 is never shown as 0.999, nor 1 - 2^-53 as 1.

    Args:
        value: Any float, infinities and NaN included.
        digits: The most significant digits that are shown in full.
        cut: How many of them are shown of a number that has more.

    Example:
        >>> short_decimal(0.25), short_decimal(1 - 2**-10), short_decimal(1 - 2**-30), short_decimal(1e-17 / 3)
        ('0.25', '0.9990234375', '0.999999…', '3.33333…e-18')
    """
    if not math.isfinite(value):
        return str(float(value))
    if value == int(value) and abs(value) < 1e5:
        return str(int(value))
    text = f"{value:.{digits}g}"
    if float(text) == value:
        mantissa, mark, exponent = text.partition("e")
        return f"{mantissa}e{int(exponent)}" if mark else mantissa
    exact = Decimal(value)
    power = exact.adjusted()
    if -5 <= power < cut - 1:
        return f"{_shortened(exact, power - cut + 1):f}…"
    return f"{_shortened(exact.scaleb(-power), 1 - cut):f}…e{power}"


def _shortened(number: Decimal, place: int) -> Decimal:
    """Return a number without its digits below 10^place."""
    with localcontext(prec=50):  # a float may have hundreds of digits, of which few are kept
        return number.quantize(Decimal(1).scaleb(place), ROUND_DOWN)


def decimal_places(value: Fraction) -> int | None:
    """Return how many decimals write a number exactly, or None where no finite number of them does."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 else None


def binding(expr: Expr) -> int:
    """Return how tightly a tree binds as text; numbers that need brackets bring their own."""
    return BINDING.get(expr.kind, ATOM)


def _part(expr: Expr, wanted: int) -> str:
    text = format_expr(expr)
    return text if binding(expr) >= wanted else f"({text})"


def _argument(expr: Expr) -> str:
    return format_expr(expr) if expr.kind is Kind.FUNCTION else _part(expr, DISJUNCTION)


def _quantified(expr: Expr) -> str:
    """Return a statement before a quantifier: one that runs over a range needs no brackets there."""
    return format_expr(expr) if expr.kind in (Kind.EACH, Kind.SOME) else _part(expr, DISJUNCTION)


def _reach(expr: Expr) -> str:
    start, stop = (_part(bound, SUM) for bound in expr.args[1:])
    return f"{expr.names[0]} in {start}..{stop}"


def _exponent(expr: Expr) -> str:
    signed = expr.kind is Kind.NEGATE and binding(expr.args[0]) == ATOM
    return format_expr(expr) if signed else _part(expr, ATOM)
