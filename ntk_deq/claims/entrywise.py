"""Comparisons of symmetric matrices: entry by entry here, where a reader may think of the order of quadratic forms."""

from __future__ import annotations

from collections.abc import Iterator

from ntk_deq.claims.claim import Claim
from ntk_deq.language.domain import DomainKind
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.language.types import Sort

_SYMMETRIC = frozenset({DomainKind.SYMMETRIC, DomainKind.PSD, DomainKind.DIAGONAL})
_ALWAYS = frozenset({"I", "diag", "ones", "zeros"})


def entrywise_notes(claim: Claim) -> dict[str, str]:
    """Return, for each hypothesis and conclusion that orders symmetric matrices, what to write for the other order.

    Args:
        claim: A claim whose formulas have types.
    """
    found = {}
    for section in (claim.assume, claim.conclude):
        for name, formula in section.items():
            for side, other, relation in _ordered(formula):
                if all(_is_symmetric(expr, claim) or _is_number(expr) for expr in (side, other)):
                    high, low = (side, other) if relation in (">", ">=") else (other, side)
                    found[name] = _note(formula.text, relation, high, low)
    return found


def _ordered(formula: Formula) -> Iterator[tuple[Expr, Expr, str]]:
    """Yield the sides of every order between square matrices, or one and a number."""
    for node in formula.expr.walk():
        if node.kind is Kind.COMPARE:
            for place, relation in enumerate(node.operators):
                sides = node.args[place : place + 2]
                if relation not in ("==", "!=") and any(_is_square(side) for side in sides):
                    yield sides[0], sides[1], relation


def _note(text: str, relation: str, high: Expr, low: Expr) -> str:
    strict = "" if relation in ("<", ">") else "="
    larger, smaller = (text[side.span.start : side.span.stop] for side in (high, low))
    if _is_number(low):
        order = f"lambda_min({larger}) >{strict} {smaller}"
    elif _is_number(high):
        order = f"lambda_max({smaller}) <{strict} {larger}"
    else:
        smaller = f"({smaller})" if low.kind in (Kind.ADD, Kind.SUBTRACT, Kind.NEGATE) else smaller
        order = f"lambda_min({larger} - {smaller}) >{strict} 0"
    return f"`{relation}` compares symmetric matrices entry by entry; the order of quadratic forms is {order}"


def _is_number(expr: Expr) -> bool:
    return expr.type is not None and expr.type.sort is not Sort.MATRIX


def _is_square(expr: Expr) -> bool:
    type_ = expr.type
    return type_ is not None and type_.sort is Sort.MATRIX and type_.rows == type_.cols and str(type_.rows) != "1"


def _is_symmetric(expr: Expr, claim: Claim) -> bool:
    """Return whether a matrix is symmetric by its form, whatever its variables are."""
    if not _is_square(expr):
        return False
    if expr.kind is Kind.NAME:
        return _is_symmetric_name(expr.name, claim)
    if expr.kind in (Kind.NEGATE, Kind.TRANSPOSE, Kind.POWER):
        return _is_symmetric(expr.args[0], claim)
    if expr.kind in (Kind.ADD, Kind.SUBTRACT):
        left, right = expr.args
        pair = expr.kind is Kind.ADD and (_turned(left, right) or _turned(right, left))
        return pair or all(_is_symmetric(arg, claim) for arg in expr.args)
    if expr.kind is Kind.DIVIDE:
        return _is_symmetric(expr.args[0], claim)
    if expr.kind is Kind.MULTIPLY:
        left, right = expr.args
        if _is_number(left) or _is_number(right):
            return _is_symmetric(right if _is_number(left) else left, claim)
        if left.kind is Kind.MULTIPLY and _is_number(left.args[0]):  # c*A*A' is (c*A)*A'
            left = left.args[1]
        return _turned(left, right) or _turned(right, left)
    if expr.kind is not Kind.CALL:
        return False
    # What transposes with its arguments is symmetric where they are.
    keeps = FUNCTIONS[expr.name].transposes
    matrices = [arg for arg in expr.args if not _is_number(arg)]
    return expr.name in _ALWAYS or (keeps and all(_is_symmetric(arg, claim) for arg in matrices))


def _is_symmetric_name(name: str, claim: Claim) -> bool:
    if name in claim.let:
        return _is_symmetric(claim.let[name].expr, claim)
    frees = [claim.given.get(name) or setting.free.get(name) for setting in claim.settings]
    return bool(frees) and all(free is not None and free.domain.kind in _SYMMETRIC for free in frees)


def _turned(plain: Expr, turned: Expr) -> bool:
    return turned.kind is Kind.TRANSPOSE and _alike(plain, turned.args[0])


def _alike(left: Expr, right: Expr) -> bool:
    head = (left.kind, left.name, left.value, left.names, left.operators, len(left.args))
    if head != (right.kind, right.name, right.value, right.names, right.operators, len(right.args)):
        return False
    return all(map(_alike, left.args, right.args))
