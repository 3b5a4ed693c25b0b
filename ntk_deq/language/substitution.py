"""Expressions without types in which names stand for others, nothing captured, and limits on what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ntk_deq.language.shapes import fail
from ntk_deq.language.tree import QUANTIFIERS, RANGED, Expr, Kind, Mark, Span, names_in

MAX_NODES = 20_000
"""Parts of one formula once its functions are written out; each use of a parameter repeats the argument."""

MAX_LEVELS = 160
"""Levels of one; the interpreter has room for 250, and derivatives by name may add 60."""


def substituted(expr: Expr, values: Mapping[str, Expr], span: Span | None = None) -> Expr:
    """Return an expression without types in which names stand for other expressions; nothing is captured.

    A letter, a step or an argument that the expression binds itself is called otherwise where a value uses its name.

    Args:
        expr: The expression.
        values: What the names stand for.
        span: The place that all its parts get, or None: they keep theirs. Values keep theirs.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> format_expr(substituted(parse("sum(u{l} for l in 1..n)"), {"u": parse("v*l")}))
        'sum((v*l){l_} for l_ in 1..n)'
    """
    if expr.kind is Kind.NAME:
        return values.get(expr.name, replace(expr, span=span or expr.span))
    outer = values
    names, body = expr.names, expr.args[:1]
    if expr.kind is Kind.FUNCTION or expr.kind in QUANTIFIERS or expr.kind in RANGED:
        free = names_in(expr)
        values = {name: value for name, value in values.items() if name not in names and name in free}
        taken = set().union(*map(names_in, values.values()))
        if taken & {*names}:
            used = taken | {node.name for node in expr.walk()} | {name for node in expr.walk() for name in node.names}
            renamed = {name: unused_name(name, used) if name in taken else name for name in names}
            names = tuple(renamed.values())
            bound = {old: Expr(Kind.NAME, expr.span, name=new) for old, new in renamed.items()}
            values = {**values, **bound}
        if expr.kind in QUANTIFIERS:
            body = expr.args
        args = (
            *(substituted(part, values, span) for part in body),
            *(substituted(part, outer, span) for part in expr.args[len(body) :]),
        )
        return replace(expr, args=args, names=names, span=span or expr.span)
    args = tuple(substituted(part, values, span) for part in expr.args)
    return replace(expr, args=args, span=span or expr.span)


def unused_name(name: str, used: set[str]) -> str:
    """Return a name that is not used, by adding `_` to one."""
    while name in used:
        name += "_"
    return name


def check_size(expr: Expr) -> None:
    """Refuse what is too large once its functions are written out."""
    count, stack = 0, [(expr, 1)]
    while stack:
        node, level = stack.pop()
        count += 1
        if count > MAX_NODES:
            fail(expr.span, f"with its functions written out, this has more than {MAX_NODES} parts.")
        if level > MAX_LEVELS:
            fail(expr.span, f"with its functions written out, this is nested more than {MAX_LEVELS} levels deep.")
        stack.extend((part, level + (node.name not in _MARKS)) for part in node.args)


_MARKS = frozenset(Mark)
