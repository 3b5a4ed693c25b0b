"""O(...) and Omega(...) in conclusions: a constant for each, positive and the same for all instances."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from ntk_deq.errors import ExpressionError
from ntk_deq.language.application import Definition
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.language.types import SCALAR

ORDERS = ("O", "Omega")
"""How the orders are called; a function of arguments of that name is meant instead, where a claim defines one."""


def has_orders(conclude: Mapping[str, Formula], functions: Iterable[Definition]) -> bool:
    """Whether a conclusion speaks of an order, and no function of the claim is called so."""
    if any(function.name in ORDERS for function in functions):
        return False
    return any(_is_order(node) for formula in conclude.values() for node in formula.expr.walk())


def without_orders(formula: Formula, taken: Container[str], known: dict[str, Free]) -> Formula:
    """Return a conclusion with a constant times what stands in brackets in place of every order.

    Args:
        formula: The conclusion, as it was parsed.
        taken: Names that are used otherwise.
        known: The constants so far, to which those of the formula are added.

    Raises:
        ExpressionError: An order does not stand alone on the side of a comparison that it bounds.

    Example:
        >>> from ntk_deq.errors import Position
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> constants = {}
        >>> text = "norm(A) <= O(sqrt(m))"
        >>> found = without_orders(Formula("c", text, parse(text), Position("a.yaml", 1, 1)), (), constants)
        >>> format_expr(found.expr), list(constants)
        ('norm(A) <= C1*sqrt(m)', ['C1'])
    """
    return replace(formula, expr=_written(formula.expr, taken, known))


def put_constants(
    conclude: dict[str, Formula], exists: dict[str, Free], taken: Container[str]
) -> list[tuple[str, ExpressionError]]:
    """Put constants in the place of the orders of conclusions; return what is wrong, and take that out.

    Args:
        conclude: The conclusions, which are changed.
        exists: Variables that are said to exist, to which the constants are added.
        taken: Names that are used otherwise.
    """
    errors = []
    for name, formula in list(conclude.items()):
        try:
            conclude[name] = without_orders(formula, taken, exists)
        except ExpressionError as error:
            errors.append((name, error))
            del conclude[name]
    return errors


def _is_order(node: Expr) -> bool:
    return node.kind is Kind.CALL and node.name in ORDERS and len(node.args) == 1


def _written(expr: Expr, taken: Container[str], known: dict[str, Free]) -> Expr:
    if expr.kind is not Kind.COMPARE:
        if _is_order(expr) or (expr.kind is Kind.NOT and any(map(_is_order, expr.walk()))):
            raise _misplaced(expr)
        return replace(expr, args=tuple(_written(arg, taken, known) for arg in expr.args)) if expr.args else expr
    sides = list(expr.args)
    for place, side in enumerate(expr.args):
        if not _is_order(side):
            sides[place] = _written(side, taken, known)
            continue
        # A side of a chain is above what stands on either hand, or below it.
        above = [sign in ("<=", "<") for sign in expr.operators[max(place - 1, 0) : place]]
        above += [sign in (">=", ">") for sign in expr.operators[place : place + 1]]
        ordered = all(sign in ("<=", "<", ">=", ">") for sign in expr.operators)
        if not ordered or not all(one == (side.name == "O") for one in above):
            raise _misplaced(side)
        number = next(k for k in range(1, 1000) if f"C{k}" not in taken and f"C{k}" not in known)
        name = f"C{number}"
        known[name] = Free(name, SCALAR, Domain(DomainKind.POSITIVE, text="positive"))
        constant = Expr(Kind.NAME, side.span, name=name)
        sides[place] = Expr(Kind.MULTIPLY, side.span, (constant, _written(side.args[0], taken, known)))
    return replace(expr, args=tuple(sides))


def _misplaced(expr: Expr) -> ExpressionError:
    message = (
        "`O(...)` stands alone on the larger side of `<=`, `<`, `>=` or `>`, `Omega(...)` on the smaller side; "
        "neither is denied."
    )
    return ExpressionError(message, (expr.span.start, expr.span.stop))
