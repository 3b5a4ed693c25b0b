"""Sums in formulas: what they consist of, and how they are put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ntk_deq.language.tree import Expr, Kind, Span


def sum_terms(expr: Expr, sign: int) -> Iterator[tuple[int, Expr]]:
    """Yield what a sum consists of, each with its sign."""
    if expr.kind in (Kind.ADD, Kind.SUBTRACT):
        yield from sum_terms(expr.args[0], sign)
        yield from sum_terms(expr.args[1], sign if expr.kind is Kind.ADD else -sign)
    elif expr.kind is Kind.NEGATE:
        yield from sum_terms(expr.args[0], -sign)
    else:
        yield sign, expr


def total(terms: Sequence[tuple[int, Expr]]) -> Expr:
    """Return a sum of terms with signs."""
    sign, first = terms[0]
    found = first if sign > 0 else negated(first)
    for sign, term in terms[1:]:
        found = _binary(Kind.ADD if sign > 0 else Kind.SUBTRACT, found, term)
    return found


def subtracted(left: Expr, right: Expr) -> Expr:
    """Return left minus right."""
    return _binary(Kind.SUBTRACT, left, right)


def negated(expr: Expr) -> Expr:
    """Return a formula with the other sign."""
    return Expr(Kind.NEGATE, expr.span, (expr,), type=expr.type)


def _binary(kind: Kind, left: Expr, right: Expr) -> Expr:
    return Expr(kind, Span(left.span.start, right.span.stop), (left, right), type=left.type)
