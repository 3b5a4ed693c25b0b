"""The sign of a term at a point: in rational arithmetic where that is possible, otherwise in balls."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from flint import arb

from ntk_deq.certified import functions as fn
from ntk_deq.certified.scalar import exact
from ntk_deq.verify.proof.formulas import Formula, truth
from ntk_deq.verify.proof.problem import Problem
from ntk_deq.verify.proof.terms import MAX_BITS, Op, Term, below, bits, rational_power

Point = Mapping[str, Fraction]


def exact_value(term: Term, point: Point) -> Fraction | None:
    """Return the value of a term at a rational point where it is a rational number that can be had, else None.

    Example:
        >>> from ntk_deq.verify.proof.terms import Terms
        >>> terms = Terms()
        >>> root = terms.power(terms.variable("x"), Fraction(1, 2))
        >>> exact_value(root, {"x": Fraction(9, 4)}), exact_value(root, {"x": Fraction(2)})
        (Fraction(3, 2), None)
    """
    values: dict[Term, Fraction | None] = {}
    for node in below(term):
        parts = [values[arg] for arg in node.args]
        known = [part for part in parts if part is not None]
        value = _exact(node, known, point) if len(known) == len(parts) else None
        values[node] = value if value is None or bits(value) <= MAX_BITS else None
    return values[term]


def _exact(node: Term, parts: list[Fraction], point: Point) -> Fraction | None:
    match node.op:
        case Op.CONSTANT:
            return node.value
        case Op.VARIABLE:
            return point[node.name]
        case Op.ADD:
            return parts[0] + parts[1]
        case Op.MULTIPLY:
            return parts[0] * parts[1]
        case Op.INVERSE:
            return 1 / parts[0] if parts[0] else None
        case Op.POWER if node.value is not None:
            return rational_power(parts[0], node.value)
        case Op.EXP:
            return Fraction(1) if parts[0] == 0 else None
        case Op.LOG:
            return Fraction(0) if parts[0] == 1 else None
        case Op.ABS:
            return abs(parts[0])
        case Op.MAX:
            return max(parts)
    return None


def ball_value(term: Term, point: Point) -> arb:
    """Return a ball of the value of a term at a rational point; no information where it is or may be undefined."""
    values: dict[Term, arb] = {}
    for node in below(term):
        parts = [values[arg] for arg in node.args]
        values[node] = _ball(node, parts, point)
    return values[term]


def _ball(node: Term, parts: list[arb], point: Point) -> arb:
    match node.op:
        case Op.CONSTANT if node.value is not None:
            return exact(node.value)
        case Op.VARIABLE:
            return exact(point[node.name])
        case Op.ADD:
            return parts[0] + parts[1]
        case Op.MULTIPLY:
            return fn.multiply(parts[0], parts[1])
        case Op.INVERSE:
            return fn.divide(arb(1), parts[0])
        case Op.POWER if node.value is not None:
            return fn.power(parts[0], node.value)
        case Op.EXP:
            return fn.exponential(parts[0])
        case Op.LOG:
            return fn.logarithm(parts[0])
        case Op.ABS:
            return fn.absolute_value(parts[0])
        case Op.MAX:
            return fn.maximum(*parts)
    return arb("nan")


def sign_at(term: Term, point: Point) -> int | None:
    """Return the sign of a term at a rational point, -1, 0 or 1; None where it is undefined or cannot be told."""
    value = exact_value(term, point)
    if value is not None:
        return (value > 0) - (value < 0)
    ball = ball_value(term, point)
    if not ball.is_finite() or ball.contains(0):
        return None
    return 1 if ball > 0 else -1


def truth_at(formula: Formula, point: Point) -> bool | None:
    """Return whether a statement holds at a rational point, or None where that cannot be told."""
    return truth(formula, lambda term: sign_at(term, point))


def admitted(problem: Problem, point: Point) -> bool:
    """Say whether a point for certain lies in every range, meets every hypothesis, and leaves none undefined."""
    if not all(variable.contains(point[variable.name]) for variable in problem.variables):
        return False
    needed = [f for h in problem.hypotheses for f in (h.defined, h.formula)]
    return all(truth_at(formula, point) is True for formula in needed)
