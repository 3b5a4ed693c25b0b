"""What values an expression can take, known without evaluating it: from domains, norms and hypotheses.

Interval arithmetic over the rationals with open and closed ends. A matrix has the range of its entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ntk_deq.language.domain import Domain, DomainKind
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.interval import INFINITY, NOT_NEGATIVE, POSITIVE, Range, power_range
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.language.types import Sort


def domain_range(domain: Domain) -> Range:
    """Return the range of the entries of a variable."""
    match domain.kind:
        case DomainKind.NONNEGATIVE:
            return NOT_NEGATIVE
        case DomainKind.POSITIVE:
            return POSITIVE
        case DomainKind.INTERVAL | DomainKind.INTEGER:
            low = -INFINITY if domain.low is None else domain.low
            high = INFINITY if domain.high is None else domain.high
            return Range(low, high, domain.low_open, domain.high_open)
        case DomainKind.ORTHOGONAL | DomainKind.UNIT_ROWS:
            return Range(Fraction(-1), Fraction(1))
        case _:
            return Range()


def _constant(distribution: Expr) -> Range:
    """Return the range of a drawn variable: known where it is a number such as 1/2."""
    if distribution.kind is Kind.NUMBER and distribution.value is not None:
        return Range.point(distribution.value)
    if distribution.kind is Kind.DIVIDE:
        return _constant(distribution.args[0]) * _constant(distribution.args[1]).reciprocal()
    return Range()


@dataclass
class Ranges:
    """The ranges of the expressions of one claim, on the instances on which they have a value.

    Args:
        lets: The claim's definitions.
        variables: Ranges of variables and size letters.

    Attributes:
        facts: Ranges that hypotheses give expressions, by canonical text.
        smaller: Pairs (a, b) of texts with a <= b by hypothesis, and whether a < b.
    """

    lets: Mapping[str, Formula]
    variables: Mapping[str, Range]
    facts: dict[str, Range] = field(default_factory=dict)
    smaller: dict[tuple[str, str], bool] = field(default_factory=dict)
    _known: dict[str, Range] = field(default_factory=dict, init=False, repr=False)

    def suppose(self, hypothesis: Expr) -> None:
        """Take a hypothesis as true: what it says about its sides is used from now on."""
        for left, operator, right in comparisons(hypothesis):
            if operator in (">=", ">"):
                left, right, operator = right, left, {">=": "<=", ">": "<"}[operator]
            if operator in ("<=", "<"):
                self._suppose_smaller(left, right, strict=operator == "<")
        self._known.clear()

    def _suppose_smaller(self, left: Expr, right: Expr, *, strict: bool) -> None:
        low, high = format_expr(left), format_expr(right)
        self.smaller[low, high] = strict or self.smaller.get((low, high), False)
        least, most = self.of(left), self.of(right)
        self._fact(low, Range(high=most.high, high_open=strict or most.high_open))
        self._fact(high, Range(low=least.low, low_open=strict or least.low_open))

    def _fact(self, text: str, known: Range) -> None:
        self.facts[text] = self.facts.get(text, Range()).meet(known)

    def of(self, expr: Expr) -> Range:
        """Return a range that holds every value of a typed expression, of its entries where it is a matrix."""
        text = format_expr(expr)
        if text not in self._known:
            self._known[text] = self._computed(expr).meet(self.facts.get(text, Range()))
        return self._known[text]

    def _computed(self, expr: Expr) -> Range:
        match expr.kind:
            case Kind.NUMBER:
                return Range.point(expr.value or 0)
            case Kind.NAME:
                return self._name(expr)
            case Kind.NEGATE:
                return -self.of(expr.args[0])
            case Kind.TRANSPOSE:
                return self.of(expr.args[0])
            case Kind.ADD:
                return self.of(expr.args[0]) + self.of(expr.args[1])
            case Kind.SUBTRACT:
                return (self.of(expr.args[0]) - self.of(expr.args[1])).meet(self._difference(*expr.args))
            case Kind.MULTIPLY:
                return self._product(*expr.args)
            case Kind.DIVIDE:
                return self.of(expr.args[0]) * self.of(expr.args[1]).without_zero().reciprocal()
            case Kind.POWER:
                return self._power(*expr.args)
            case Kind.CALL:
                values = FUNCTIONS[expr.name].values
                return Range() if values is None else values([self.of(argument) for argument in expr.args])
            case _:
                return Range()

    def _name(self, expr: Expr) -> Range:
        if expr.type is not None and expr.type.sort.is_index:
            return NOT_NEGATIVE
        if expr.name in self.lets:
            return self.of(self.lets[expr.name].expr)
        return self.variables.get(expr.name, Range())

    def _difference(self, left: Expr, right: Expr) -> Range:
        low, high = format_expr(left), format_expr(right)
        below, above = self.smaller.get((high, low)), self.smaller.get((low, high))
        known = Range() if below is None else Range(low=Fraction(0), low_open=below)
        return known if above is None else known.meet(Range(high=Fraction(0), high_open=above))

    def _product(self, left: Expr, right: Expr) -> Range:
        ranges = self.of(left), self.of(right)
        if all(part.type is not None and part.type.sort is Sort.MATRIX for part in (left, right)):
            # Entries of a matrix product are sums of products.
            return NOT_NEGATIVE if all(part.above(0, or_at=True) for part in ranges) else Range()
        product = ranges[0] * ranges[1]
        return product.meet(NOT_NEGATIVE) if format_expr(left) == format_expr(right) else product

    def _power(self, base: Expr, exponent: Expr) -> Range:
        if base.type is not None and base.type.sort is Sort.MATRIX:
            return Range()
        return power_range(self.of(base), self.of(exponent))


def comparisons(statement: Expr) -> Iterator[tuple[Expr, str, Expr]]:
    """Yield the comparisons that a statement is the conjunction of, as far as it is one."""
    if statement.kind is Kind.AND:
        for part in statement.args:
            yield from comparisons(part)
    elif statement.kind is Kind.COMPARE:
        yield from zip(statement.args, statement.operators, statement.args[1:], strict=False)
