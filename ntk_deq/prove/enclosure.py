"""What a term can be over a box, and its derivatives.

The sign of a term at a point: in rational arithmetic where that is possible, otherwise in balls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

from flint import arb

from ntk_deq.certified import functions as fn
from ntk_deq.certified.scalar import exact
from ntk_deq.prove import MAX_BITS, Op, Term, Terms, below, bits, rational_power
from ntk_deq.prove import intervals as iv
from ntk_deq.prove.intervals import Interval
from ntk_deq.prove.problem import Formula, Problem, truth

MAX_NODES = 2_000
"""Nodes of a derivative that is still worth an evaluation at every box."""


class Enclosures:
    """Encloses terms over one box, each once.

    Args:
        ranges: The box: an interval for every variable.

    Example:
        >>> terms = Terms()
        >>> x = terms.variable("x")
        >>> Enclosures({"x": Interval(0.0, 1.0, False, True)}).of(terms.subtract(terms.one, x))
        Interval(lo=0.0, hi=1.0, lo_open=True, hi_open=False)
    """

    def __init__(self, ranges: Mapping[str, Interval]) -> None:
        self.ranges = ranges
        self._known: dict[Term, Interval | None] = {}

    def of(self, term: Term) -> Interval | None:
        """Return an interval that contains every value of a term, or None where it may be undefined."""
        known = self._known
        stack = [term]
        while stack:  # parts first; what is known already is not walked again
            node = stack[-1]
            missing = [arg for arg in node.args if arg not in known]
            if missing:
                stack += missing
                continue
            stack.pop()
            if node not in known:
                parts = [part for arg in node.args if (part := known[arg]) is not None]
                known[node] = self._apply(node, parts) if len(parts) == len(node.args) else None
        return known[term]

    def _apply(self, node: Term, parts: list[Interval]) -> Interval | None:
        match node.op:
            case Op.CONSTANT if node.value is not None:
                return _constant(node.value)
            case Op.VARIABLE:
                return self.ranges[node.name]
            case Op.ADD:
                return iv.add(*parts)
            case Op.MULTIPLY:
                return iv.multiply(*parts)
            case Op.INVERSE:
                return iv.inverse(*parts)
            case Op.POWER if node.value is not None:
                return iv.power(parts[0], node.value)
            case Op.EXP:
                return iv.exp(*parts)
            case Op.LOG:
                return iv.log(*parts)
            case Op.ABS:
                return iv.absolute(*parts)
            case Op.MAX:
                return iv.maximum(*parts)
            case Op.PICK:
                return _pick(*parts)
        return None


@lru_cache(maxsize=4096)
def _constant(value: Fraction) -> Interval:
    return iv.enclose(value, value, False, False)


def _pick(left: Interval, right: Interval, above: Interval, otherwise: Interval) -> Interval:
    difference = iv.add(left, iv.negate(right))
    if difference.positive:
        return above
    return otherwise if difference.negative else iv.hull(above, otherwise)


class Derivatives:
    """Partial derivatives as terms, each made once.

    Where a maximum or an absolute value has a kink, the derivative encloses those of both branches, for which the mean
    value theorem still holds (Clarke 1983, theorem 2.3.7).

    Args:
        terms: Makes the terms.
        simplify: Shortens a finished derivative.

    Example:
        >>> terms = Terms()
        >>> x = terms.variable("x")
        >>> Derivatives(terms).of(terms.multiply(x, x), "x") is terms.add(x, x)
        True
    """

    def __init__(self, terms: Terms, simplify: Callable[[Term], Term] | None = None) -> None:
        self._terms = terms
        self._simplify = simplify
        self._known: dict[tuple[Term, str], Term | None] = {}
        self._made: dict[tuple[Term, str], Term | None] = {}

    def of(self, term: Term, name: str) -> Term | None:
        """Return the derivative by a variable; None where it has none, or it would be too large."""
        key = (term, name)
        if key not in self._made:
            for node in below(term):
                if (node, name) not in self._known:
                    self._known[node, name] = self._derive(node, name)
            found = self._known[key]
            if found is not None and self._simplify is not None:
                found = self._simplify(found)
            self._made[key] = None if found is None or len(below(found)) > MAX_NODES else found
        return self._made[key]

    def _derive(self, node: Term, name: str) -> Term | None:
        terms = self._terms
        if name not in node.variables:
            return terms.zero
        if node.op is Op.VARIABLE:
            return terms.one
        found = [self._known[arg, name] for arg in node.args]
        parts = [part for part in found if part is not None]
        if len(parts) < len(found):
            return None
        args = node.args
        match node.op:
            case Op.ADD:
                return terms.add(*parts)
            case Op.MULTIPLY:
                return terms.add(terms.multiply(parts[0], args[1]), terms.multiply(args[0], parts[1]))
            case Op.INVERSE:
                return terms.negate(terms.multiply(parts[0], terms.power(node, Fraction(2))))
            case Op.POWER if node.value is not None:
                outer = terms.multiply(terms.constant(node.value), terms.power(args[0], node.value - 1))
                return terms.multiply(outer, parts[0])
            case Op.EXP:
                return terms.multiply(node, parts[0])
            case Op.LOG:
                return terms.divide(parts[0], args[0])
            case Op.ABS:
                return terms.pick(args[0], terms.zero, parts[0], terms.negate(parts[0]))
            case Op.MAX:
                return terms.pick(*args, *parts)
        return None


Point = Mapping[str, Fraction]


def exact_value(term: Term, point: Point) -> Fraction | None:
    """Return the value of a term at a rational point where it is a rational number that can be had, else None.

    Example:
        >>> from ntk_deq.prove import Terms
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
