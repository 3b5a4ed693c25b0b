"""Steps inside formulas: which step an index denotes, and which formulas are the same at given steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat

from ntk_deq.language.tree import QUANTIFIERS, Expr, Kind

Indices = Mapping[str, float]


def step_of(expr: Expr, indices: Indices) -> float:
    """Return the step that an index expression denotes; for gradient flow a time."""
    if expr.kind is Kind.NUMBER and expr.value is not None:
        return int(expr.value)
    if expr.kind is Kind.NAME:
        return indices[expr.name]
    if expr.kind is Kind.NEGATE:
        return -step_of(expr.args[0], indices)
    left, right = (step_of(arg, indices) for arg in expr.args)
    return left + right if expr.kind is Kind.ADD else left - right


def same_at(left: Expr, right: Expr, indices: Indices, still: bool) -> bool:
    """Whether two formulas are the same one at these steps, so that their values are equal whatever they are."""
    if left.kind is Kind.INDEX and right.kind is Kind.INDEX:
        at_one_step = still or step_of(left.args[0], indices) == step_of(right.args[0], indices)
        return left.name == right.name and at_one_step
    if left.name in indices and right.name in indices:
        return indices[left.name] == indices[right.name]
    head = (left.kind, left.name, left.value, left.names, left.operators)
    if head != (right.kind, right.name, right.value, right.names, right.operators) or left.kind in QUANTIFIERS:
        return False
    return len(left.args) == len(right.args) and all(
        map(same_at, left.args, right.args, repeat(indices), repeat(still))
    )


def index_names(expr: Expr) -> set[str]:
    """Return the step indices of an index expression; those of a quantifier further in have no value yet."""
    return {node.name for node in expr.walk() if node.kind is Kind.NAME}


def conjuncts(expr: Expr) -> Iterator[Expr]:
    """Yield the parts of a statement that all have to be true."""
    for part in expr.args if expr.kind is Kind.AND else (expr,):
        yield from conjuncts(part) if part.kind is Kind.AND else (part,)
