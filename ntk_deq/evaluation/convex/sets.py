"""Minima on sets, `F(u) + indicator(A*u == b)`: what a set is made of, whether a point lies in it, whether it is empty.

A set is a conjunction of affine equations and inequalities. In place of its indicator stands a penalty, a large weight
times relu or abs of what must be at most zero or zero, so that corners are found and held as those of any function. A
minimiser that is proven for the penalty is one on the set: where it lies in the set for certain, each corner's slope
times the weight is a multiplier of the right sign, and zero where its argument is certainly not zero. So the slope is
a subgradient of F plus the indicator, and what follows from its length (`certificate`) follows for both.

References:
    Rockafellar, Convex analysis, 1970, section 28; Nocedal and Wright, Numerical optimization, 2006, section 17.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from flint import arb, fmpq, fmpq_mat

from ntk_deq.language.tree import INDICATOR, Expr, Kind, Span
from ntk_deq.language.types import SCALAR, Sort

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
        for place, sign in enumerate(statement.operators):
            yield replace(statement, args=statement.args[place : place + 2], operators=(sign,))


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
    total = Expr(Kind.NUMBER, _HERE, value=Fraction(0), type=SCALAR) if plain is None else plain
    number = Expr(Kind.NUMBER, _HERE, value=Fraction(weight), type=SCALAR)
    for link in links:
        by = excess(link)
        corner = replace(_made(Kind.CALL, by, name="abs" if link.operators[0] == "==" else "relu"), type=by.type)
        matrix = by.type is not None and by.type.sort is Sort.MATRIX
        total = _made(
            Kind.ADD, total, _made(Kind.MULTIPLY, number, _made(Kind.CALL, corner, name="sum") if matrix else corner)
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
        numbers = [[rational(x) for x in row] for row in exact]
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


def rational(x: arb) -> fmpq:
    """Return the middle of a ball, exactly."""
    mantissa, exponent = x.mid().man_exp()
    return fmpq(int(mantissa)) * fmpq(2) ** int(exponent)


def _made(kind: Kind, *args: Expr, name: str = "") -> Expr:
    return Expr(kind, _HERE, args, name=name, type=SCALAR)
