"""What a term can be over a box, and its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

from ntk_deq.verify.proof import intervals as iv
from ntk_deq.verify.proof.intervals import Interval
from ntk_deq.verify.proof.terms import Op, Term, Terms, below

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
