"""What takes a function to be minimised, as the minimum of one formula: read by balls, floats and derivatives alike.

    prox(phi, x, mu), moreau(phi, x, mu)    phi(u) + |u - x|^2/(2 mu), where and how small
    resolvent(phi, x)                       phi(u) + |u - x|^2/2, where, of a convex phi
    conjugate(phi, y)                       minus the least phi(u) - <y, u>
    argmin, minimum, infimum; supremum      phi; minus the least -phi

References:
    Moreau, Bulletin de la SMF 93, 1965; Rockafellar, Convex analysis, 1970, section 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from ntk_deq.evaluation.convex.sets import WEIGHTS, penalised, taken_apart
from ntk_deq.language.format import format_expr
from ntk_deq.language.tree import BOUND, Expr, Kind, Sign, Span
from ntk_deq.language.types import ONE, SCALAR, Sort, Type

POINTS = ("prox", "resolvent", "argmin")
"""Those whose value is where a function is least; of the others it is how small."""

NEGATED = ("conjugate", "supremum")
"""Those whose value is minus the least value."""

LARGEST = 64
"""Numbers in the argument of a function, up to which its minimum is looked for."""

_HERE = Span(0, 0)


def given_names(expr: Expr) -> list[str]:
    """Return the names under which an operator's objective finds what the operator takes beside the function.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> function = Expr(Kind.FUNCTION, _HERE, (parse("u^2"),), names=("u",))
        >>> given_names(Expr(Kind.CALL, _HERE, (function, parse("1"), parse("2")), name="prox"))
        ['x·u', 'mu·u']
    """
    names = {"prox": ("x", "mu"), "moreau": ("x", "mu"), "resolvent": ("x",), "conjugate": ("y",)}.get(expr.name, ())
    return [given_name(name, expr) for name in names]


def given_name(name: str, expr: Expr) -> str:
    """Return the name under which the objective finds one of them: `x`, `mu` or `y`."""
    return f"{name}{BOUND}{expr.args[0].names[0]}"


def argument_type(expr: Expr) -> Type:
    """Return the type of the argument of an operator's function."""
    function = expr.args[0]
    type_ = function.args[1].type if len(function.args) > 1 else None
    return SCALAR if type_ is None or type_.sort is not Sort.MATRIX else type_


def argument_shape(expr: Expr, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """Return rows and columns of the argument of an operator's function; None for a number."""
    type_ = argument_type(expr)
    return None if type_ == SCALAR else (type_.rows.evaluate(sizes), type_.cols.evaluate(sizes))


@lru_cache(maxsize=4096)
def cache_key(expr: Expr) -> str | None:
    """Return what calls of one operator on one function have in common, wherever they stand; None: they have not.

    Where the function reads the argument of another one around it, its value is not that of a name.
    """
    own = {node.names[0] for node in expr.walk() if node.kind is Kind.FUNCTION}
    if any(BOUND in node.name and node.name not in own for node in expr.walk() if node.kind is Kind.NAME):
        return None
    text = format_expr(expr)
    for place, name in enumerate(sorted(own, key=text.find)):
        text = text.replace(name, f"{BOUND}{place}")
    return text


def is_nested(body: Expr) -> bool:
    """Whether a function is one of minima of others, which floats do not look for again and again."""
    return any(node.kind is Kind.FUNCTION for node in body.walk())


def objective(expr: Expr, weight: int = WEIGHTS[1]) -> Expr:
    """Return what an operator minimises: a formula in the function's argument and what the operator is given.

    Args:
        expr: The call.
        weight: Of the penalty that stands for indicators; 0: without them.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> function = Expr(Kind.FUNCTION, _HERE, (parse("abs(u)"),), names=("u",))
        >>> format_expr(objective(Expr(Kind.CALL, _HERE, (function, parse("1"), parse("2")), name="prox")))
        'abs(u) + (u - x·u)^2/(2*mu·u)'
    """
    function, type_ = expr.args[0], argument_type(expr)
    body = _in_corners(function.args[0])
    plain, links, wrong = taken_apart(body)
    if links and not wrong:
        body = penalised(plain, links if weight else (), weight)
    point = Expr(Kind.NAME, _HERE, name=function.names[0], type=type_)

    def given(name: str, type_: Type) -> Expr:
        return Expr(Kind.NAME, _HERE, name=given_name(name, expr), type=type_)

    if expr.name in ("prox", "resolvent", "moreau"):
        apart = replace(_made(Kind.SUBTRACT, point, given("x", type_)), type=type_)
        size = apart if type_ == SCALAR else _made(Kind.CALL, apart, name="fro")
        square = _made(Kind.POWER, size, _number(2))
        twice = _number(2)
        if expr.name != "resolvent":
            twice = _made(Kind.MULTIPLY, twice, given("mu", SCALAR))
        return _made(Kind.ADD, body, _made(Kind.DIVIDE, square, twice))
    if expr.name == "conjugate":
        slope = given("y", type_)
        scalar = type_ == SCALAR
        product = _made(Kind.MULTIPLY, slope, point) if scalar else _made(Kind.CALL, slope, point, name="dot")
        return _made(Kind.SUBTRACT, body, product)
    return _made(Kind.NEGATE, body) if expr.name in NEGATED else body


def _in_corners(body: Expr) -> Expr:
    """Return a formula in which norms of columns are written in functions whose corners are known, sums and maxima."""
    body = replace(body, args=tuple(map(_in_corners, body.args))) if body.args else body
    column = body.args[0].type if body.kind is Kind.CALL and body.name in ("norm1", "norminf") else None
    if column is None or column.sort is not Sort.MATRIX or column.cols != ONE:
        return body
    vector = body.args[0]
    if body.name == "norm1":
        return _made(Kind.CALL, replace(_made(Kind.CALL, vector, name="abs"), type=column), name="sum")
    opposite = replace(_made(Kind.NEGATE, vector), type=column)
    both = _made(Kind.CALL, vector, opposite, name=Sign.STACK)
    return _made(Kind.CALL, replace(both, type=replace(column, rows=column.rows + column.rows)), name="max")


def _number(value: int) -> Expr:
    return Expr(Kind.NUMBER, _HERE, value=Fraction(value), type=SCALAR)


def _made(kind: Kind, *args: Expr, name: str = "") -> Expr:
    return Expr(kind, _HERE, args, name=name, type=SCALAR)
