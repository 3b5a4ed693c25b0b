"""What is written in brackets of its own: pieces of matrices, and matrices put together."""

from __future__ import annotations

from dataclasses import replace

from ntk_deq.errors import ExpressionError
from ntk_deq.language.tree import Expr, Kind, Sign, Span


def piece_of(matrix: Expr, selectors: list[Expr], span: Span) -> Expr:
    """Return the call that takes a piece out of a matrix: of an entry one index each, of a range two."""
    if len(selectors) > 2:
        raise ExpressionError(
            f"a piece of a matrix has at most two indices, as in A{{i, j}}. Got {len(selectors)}.",
            (span.start, span.stop),
        )
    ranges = [selector.args if selector.kind is Kind.AT and not selector.names else None for selector in selectors]
    whole = [selector.kind is Kind.NAME and selector.name == ":" for selector in selectors]
    single = [found is None and not every for found, every in zip(ranges, whole, strict=True)]
    if all(whole):
        return replace(matrix, span=span)
    if all(single):
        return Expr(Kind.CALL, span, (matrix, *selectors), name=Sign.ENTRY)
    ends = [found or (selector, selector) for found, selector in zip(ranges, selectors, strict=True)]
    if len(selectors) == 1:
        return Expr(Kind.CALL, span, (matrix, *ends[0]), name=Sign.SEGMENT)
    if True in whole:
        rows = whole[1]
        return Expr(Kind.CALL, span, (matrix, *ends[0 if rows else 1]), name=Sign.ROWS if rows else Sign.COLUMNS)
    return Expr(Kind.CALL, span, (matrix, *ends[0], *ends[1]), name=Sign.BLOCK)


def literal_of(rows: list[Expr], span: Span) -> Expr:
    """Return the call that puts blocks together; `[A]` alone is A as a matrix."""
    for row in rows:
        if len(row.args) > 1 and all(_is_bare_row(part) for part in row.args):
            raise ExpressionError(
                "rows of a matrix are separated by semicolons.", (span.start, span.stop), "write [1, 2; 3, 4]"
            )
    if len(rows) == 1:
        return replace(rows[0], span=span)
    parts = [row.args[0] if len(row.args) == 1 else row for row in rows]
    parts = [part.args[0] if _is_bare_row(part) and len(part.args) == 1 else part for part in parts]
    return Expr(Kind.CALL, span, tuple(parts), name=Sign.STACK)


def _is_bare_row(expr: Expr) -> bool:
    return expr.kind is Kind.CALL and expr.name == Sign.ROW
