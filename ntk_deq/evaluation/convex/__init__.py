"""Minima of formulas: `prox`, `moreau`, `conjugate`, `argmin` and the like, found in floats, then proven.

Here: each of them as the minimum of one formula, and indicators: the affine constraints of a minimum, with the penalty
that stands for them.

tensors.py       where floats find it, for one instance or many, with derivatives
points.py        the formula at a ball of points: value, slopes, corners that are met
shapes.py, curvature.py   what is convex in what, and between which curvatures
certificate.py   from a point to its distance from the minimiser: subgradients over moduli
recession.py     how a function grows along a ray: why it has no minimum
scalars.py       the least value of a function of one number, convex or not, by branch and bound
operators.py     what an environment is handed: the value of an operator, or why there is none
newton.py        Newton's method with corners held, for points.py's conditions; how a minimiser moves
proximal.py      proximal maps, envelopes and conjugates from Python
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from flint import arb, fmpq_mat

from ntk_deq.language.format import format_expr
from ntk_deq.language.tree import BOUND, INDICATOR, Expr, Kind, Sign, Span
from ntk_deq.language.types import ONE, SCALAR, Sort, Type

WEIGHTS = (2**8, 2**16, 2**26)
"""Of the penalty, one after the other; it must be larger than any multiplier."""

_HERE = Span(0, 0)


@lru_cache(maxsize=1024)
def taken_apart(body: Expr) -> tuple[Expr | None, tuple[Expr, ...], str]:
    """Return F, None where it is nothing, and the comparisons of a sum of F and indicators; and what is wrong with it.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.typing import infer
        >>> plain, links, wrong = taken_apart(infer(parse("u^2 + indicator(0 <= u <= 1)"), {"u": SCALAR}))
        >>> format_expr(plain), [format_expr(link) for link in links], wrong
        ('u^2', ['0 <= u', 'u <= 1'], '')
    """
    plain: Expr | None = None
    links: list[Expr] = []
    waiting = [body]
    while waiting:
        part = waiting.pop()
        if part.kind is Kind.ADD and has_indicator(part):
            waiting += [part.args[1], part.args[0]]
        elif part.kind is Kind.CALL and part.name == INDICATOR:
            found = list(_links(part.args[0]))
            if not found:
                return body, (), "a set must be a conjunction of ==, <= and >=, without `or`, `not`, < and quantifiers"
            links += found
        elif has_indicator(part):
            return body, (), "an indicator must be a term of a sum"
        else:
            plain = part if plain is None else replace(_made(Kind.ADD, plain, part), type=SCALAR)
    return plain, tuple(links), ""


def has_indicator(expr: Expr) -> bool:
    """Whether a formula holds an indicator."""
    return any(node.kind is Kind.CALL and node.name == INDICATOR for node in expr.walk())


def _links(statement: Expr) -> Iterator[Expr]:
    """Yield the comparisons of a conjunction; nothing where it is none."""
    if statement.kind is Kind.AND:
        parts = [list(_links(part)) for part in statement.args]
        if all(parts):
            yield from (link for part in parts for link in part)
    elif statement.kind is Kind.COMPARE and all(sign in ("==", "<=", ">=") for sign in statement.operators):
        for left, sign, right in statement.links:
            yield replace(statement, args=(left, right), operators=(sign,))


def excess(link: Expr) -> Expr:
    """Return what is zero, or at most zero, on the set of a comparison.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.typing import infer
        >>> from ntk_deq.language.types import matrix
        >>> format_expr(excess(infer(parse("u >= 1"), {"u": matrix("n", "m")})))
        'shift(-u, 1)'
    """
    small, large = link.args if link.operators[0] != ">=" else link.args[::-1]
    wide = [side for side in (small, large) if side.type is not None and side.type.sort is Sort.MATRIX]
    if len(wide) != 1:
        return replace(_made(Kind.SUBTRACT, small, large), type=small.type if wide else SCALAR)
    if wide[0] is small:
        call = _made(Kind.CALL, small, _made(Kind.NEGATE, large), name="shift")
    else:
        call = _made(Kind.CALL, replace(_made(Kind.NEGATE, large), type=large.type), small, name="shift")
    return replace(call, type=wide[0].type)


def penalised(plain: Expr | None, links: Sequence[Expr], weight: int) -> Expr:
    """Return F plus a weight times what misses the set."""
    total, number = plain or _number(0), _number(weight)
    for link in links:
        by = excess(link)
        corner = replace(_made(Kind.CALL, by, name="abs" if link.operators[0] == "==" else "relu"), type=by.type)
        matrix = by.type is not None and by.type.sort is Sort.MATRIX
        total = _made(
            Kind.ADD,
            total,
            _made(Kind.MULTIPLY, number, _made(Kind.CALL, corner, name="sum") if matrix else corner),
        )
    return total


def contradicts(rows: Sequence[Sequence[arb]], signs: Sequence[str]) -> bool:
    """Whether no point meets affine conditions a u + c == 0 and a u + c <= 0 for certain.

    Equations are looked at together, over the rationals where they are free of error; inequalities alone, with one
    other that bounds the same from the other side.

    Args:
        rows: Coefficients, and c last.
        signs: `==` or `<=` of each.

    Example:
        >>> contradicts([[arb(1), arb(-2)], [arb(-1), arb(1)]], ["<=", "<="])  # u <= 2 and u >= 1
        False
        >>> contradicts([[arb(1), arb(-1)], [arb(-1), arb(2)]], ["<=", "<="])
        True
    """
    exact = [row for row, sign in zip(rows, signs, strict=True) if sign == "==" and all(x.is_exact() for x in row)]
    if exact:
        numbers = [[x.fmpq() for x in row] for row in exact]
        whole = fmpq_mat(len(numbers), len(numbers[0]), [x for row in numbers for x in row])
        alone = fmpq_mat(len(numbers), len(numbers[0]) - 1, [x for row in numbers for x in row[:-1]])
        if whole.rank() > alone.rank():
            return True
    bounds = [list(row) for row in rows] + [[-x for x in row] for row, s in zip(rows, signs, strict=True) if s == "=="]
    for k, row in enumerate(bounds):
        if all(bool(x == 0) for x in row[:-1]) and row[-1] > 0:
            return True
        for other in bounds[:k]:
            if all(bool(a + b == 0) for a, b in zip(row[:-1], other[:-1], strict=True)) and row[-1] + other[-1] > 0:
                return True
    return False


def met(entries: Sequence[arb], held: Sequence[int], sign: str) -> bool:
    """Whether a condition holds for certain at a point: each entry is held at zero there, or has the right sign.

    Args:
        entries: Balls of what must be zero or at most zero.
        held: Places of entries that are zero at the point.
        sign: `==` or `<=`.
    """
    rest = [x for place, x in enumerate(entries) if place not in held]
    return all(bool(x == 0) if sign == "==" else bool(x <= 0) for x in rest)


POINTS = ("prox", "resolvent", "argmin")
"""Those whose value is where a function is least; of the others it is how small."""

NEGATED = ("conjugate", "supremum")
"""Those whose value is minus the least value."""

LARGEST = 64
"""Numbers in the argument of a function, up to which its minimum is looked for."""


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
