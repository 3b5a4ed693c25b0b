"""What values an expression can take, and which of two expressions is larger, without evaluating them.

Ranges come from domains, norms and hypotheses: interval arithmetic over the rationals with open and closed ends; a
matrix has the range of its entries. One of two expressions that is a change of the other is compared with it by
monotonicity, signs and ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from ntk_deq.language.calls import Parameter
from ntk_deq.language.domain import Domain, DomainKind
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS, entrywise_of
from ntk_deq.language.record import Change
from ntk_deq.language.tree import Expr, Formula, Kind, names_in
from ntk_deq.language.types import INFINITY, NOT_NEGATIVE, ONE, Range, Sort, power_range


def domain_range(domain: Domain) -> Range:
    """Return the range of the entries of a variable."""
    match domain.kind:
        case DomainKind.ORTHOGONAL | DomainKind.UNIT_ROWS:
            return Range(Fraction(-1), Fraction(1))
        case _:
            low = -INFINITY if domain.low is None else domain.low
            high = INFINITY if domain.high is None else domain.high
            return Range(low, high, domain.low_open, domain.high_open)


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


def never_equal(left: Expr, right: Expr, operator: str, lets: Mapping[str, Formula]) -> bool:
    """Whether the functions in a strict comparison leave no room for equality: abs(tanh(x)) < 1, however large x is."""
    if operator not in ("<", ">", "!="):
        return False
    low, high = (right, left) if operator == ">" else (left, right)
    ranges = Ranges(lets, {})
    apart = ranges.of(high) - ranges.of(low)
    either = (-apart).above(0, or_at=False) if operator == "!=" else False
    return apart.above(0, or_at=False) or either


def comparisons(statement: Expr) -> Iterator[tuple[Expr, str, Expr]]:
    """Yield the comparisons that a statement is the conjunction of, as far as it is one."""
    if statement.kind is Kind.AND:
        for part in statement.args:
            yield from comparisons(part)
    yield from statement.links


class Order(Enum):
    """How a new value compares with an old one."""

    SAME = auto()
    UP = auto()  # new >= old
    DOWN = auto()  # new <= old
    UNKNOWN = auto()

    @property
    def flipped(self) -> Order:
        """The order of the negatives, or of old against new."""
        return {Order.UP: Order.DOWN, Order.DOWN: Order.UP}.get(self, self)


def joint(orders: Iterable[Order]) -> Order:
    """Return the order of what grows with each of several parts.

    Example:
        >>> joint([Order.SAME, Order.UP]), joint([Order.UP, Order.DOWN])
        (<Order.UP: 2>, <Order.UNKNOWN: 4>)
    """
    found = set(orders) - {Order.SAME}
    if not found:
        return Order.SAME
    return found.pop() if len(found) == 1 else Order.UNKNOWN


class Ordering:
    """Compares expressions of a claim with expressions of a mutant of it, on one and the same instance.

    Args:
        old: Ranges in the claim.
        new: Ranges in the mutant.
        changed: Names of definitions whose meaning differs.
    """

    def __init__(self, old: Ranges, new: Ranges, changed: Set[str]) -> None:
        self.old, self.new, self.changed = old, new, changed
        self._definitions: dict[str, Order] = {}

    def forget(self) -> None:
        """Compare definitions anew, as more has become known about the ranges."""
        self._definitions.clear()

    def unchanged(self, old: Expr, new: Expr) -> bool:
        """Whether two expressions have the same text and the same meaning."""
        return format_expr(old) == format_expr(new) and not names_in(old) & self.changed

    def order(self, old: Expr, new: Expr) -> Order:
        """Return how an expression of the mutant compares with one of the claim, on the same instance."""
        if self.unchanged(old, new):
            return Order.SAME
        found = Order.UNKNOWN
        if old.kind is new.kind:
            found = self._alike(old, new)
        if found is Order.UNKNOWN and not self._is_matrix(old):
            found = self._extended(old, new)
        if found is Order.UNKNOWN and not self._is_matrix(new):
            found = self._extended(new, old, swapped=True).flipped
        if found is Order.UNKNOWN and not self._is_matrix(old):
            found = _apart(self.old.of(old), self.new.of(new))
        return found

    def _alike(self, old: Expr, new: Expr) -> Order:
        """Compare two nodes of the same kind through their parts."""
        match old.kind:
            case Kind.NAME if old.name == new.name and old.name in self.changed:
                return self._definition(old.name)
            case Kind.NEGATE:
                return self.order(old.args[0], new.args[0]).flipped
            case Kind.TRANSPOSE:
                inner = self.order(old.args[0], new.args[0])
                return inner if inner is Order.SAME else Order.UNKNOWN
            case Kind.ADD | Kind.SUBTRACT:
                left, right = (self.order(a, b) for a, b in zip(old.args, new.args, strict=True))
                return joint([left, right if old.kind is Kind.ADD else right.flipped])
            case Kind.MULTIPLY | Kind.DIVIDE:
                return self._product(old, new)
            case Kind.POWER:
                return self._power(old, new)
            case Kind.CALL:
                return self._call(old, new)
        return Order.UNKNOWN

    def _definition(self, name: str) -> Order:
        if name not in self._definitions:
            self._definitions[name] = self.order(self.old.lets[name].expr, self.new.lets[name].expr)
        return self._definitions[name]

    def _product(self, old: Expr, new: Expr) -> Order:
        orders = [self.order(a, b) for a, b in zip(old.args, new.args, strict=True)]
        if set(orders) == {Order.SAME}:
            return Order.SAME
        if self._is_matrix(old) or self._is_matrix(new):
            return Order.UNKNOWN
        ranges = [[self.old.of(a), self.new.of(b)] for a, b in zip(old.args, new.args, strict=True)]
        if old.kind is Kind.DIVIDE:
            divisors = [r.without_zero() for r in ranges[1]]
            if not (all(r.above(0) for r in divisors) or all(r.below(0) for r in divisors)):
                return Order.UNKNOWN
            ranges[1] = [r.reciprocal() for r in divisors]
            orders[1] = orders[1].flipped
        moved: list[Order] = []
        for order, (other_old, other_new) in zip(orders, reversed(ranges), strict=True):
            if order is Order.SAME:
                continue
            if other_old.above(0, or_at=True) and other_new.above(0, or_at=True):
                moved.append(order)
            elif other_old.below(0, or_at=True) and other_new.below(0, or_at=True):
                moved.append(order.flipped)
            else:
                return Order.UNKNOWN
        return joint(moved)

    def _power(self, old: Expr, new: Expr) -> Order:
        bases = self.old.of(old.args[0]), self.new.of(new.args[0])
        exponents = self.old.of(old.args[1]), self.new.of(new.args[1])
        base, exponent = (self.order(a, b) for a, b in zip(old.args, new.args, strict=True))
        if base is exponent is Order.SAME:
            return Order.SAME
        if self._is_matrix(old.args[0]) or not all(b.above(0, or_at=True) for b in bases):
            return Order.UNKNOWN
        if exponent is Order.SAME:
            if exponents[0].above(0, or_at=True):
                return base
            return base.flipped if exponents[0].below(0) and all(b.above(0) for b in bases) else Order.UNKNOWN
        if base is Order.SAME and (bases[0].above(0) or all(e.above(0, or_at=True) for e in exponents)):
            if bases[0].above(1, or_at=True):
                return exponent
            return exponent.flipped if bases[0].below(1, or_at=True) else Order.UNKNOWN
        return Order.UNKNOWN

    def _call(self, old: Expr, new: Expr) -> Order:
        if old.name != new.name:
            return self._other_function(old, new)
        if len(old.args) != len(new.args):
            return Order.UNKNOWN
        orders = [self.order(a, b) for a, b in zip(old.args, new.args, strict=True)]
        if set(orders) <= {Order.SAME}:
            return Order.SAME
        if len(old.args) == 1 and self._equivalent(old.name, old.args[0], new.args[0]):
            return Order.SAME
        if any(self._is_matrix(arg) for arg in (*old.args, *new.args)):
            return Order.UNKNOWN
        name = FUNCTIONS[old.name].of_number or old.name
        facts = entrywise_of(name) if len(old.args) == 1 else None
        if FUNCTIONS[name].grows or (facts is not None and facts.growth > 0):
            return joint(orders)
        if facts is not None and facts.growth < 0:
            return joint(orders).flipped
        if facts is not None and facts.curvature > 0 and Change.SIGN in FUNCTIONS[name].blind:
            return self._size(orders[0], self.old.of(old.args[0]), self.new.of(new.args[0]))
        return Order.UNKNOWN

    def _size(self, order: Order, old: Range, new: Range) -> Order:
        """Compare values that grow with the absolute value of a scalar."""
        if old.above(0, or_at=True) and new.above(0, or_at=True):
            return order
        return order.flipped if old.below(0, or_at=True) and new.below(0, or_at=True) else Order.UNKNOWN

    def _equivalent(self, function: str, old: Expr, new: Expr) -> bool:
        """Whether two matrices differ only by what a function does not see."""
        blind = FUNCTIONS[function].blind
        if Change.SIGN in blind:
            old, new = _unsigned(old), _unsigned(new)
        if Change.TRANSPOSE in blind:
            old, new = _untransposed(old), _untransposed(new)
        if self.unchanged(old, new):
            return True
        same = old.kind is new.kind is Kind.CALL and old.name == new.name
        if same and FUNCTIONS[old.name].reorders and Change.ORDER in blind:
            if FUNCTIONS[function].parameters[0] is Parameter.SQUARE and not all(map(_is_square, old.args)):
                return False  # rows and columns are reordered in different ways
            return all(self.unchanged(a, b) for a, b in zip(old.args, reversed(new.args), strict=True))
        return False

    def _other_function(self, old: Expr, new: Expr) -> Order:
        same = len(old.args) == len(new.args) and all(map(self.unchanged, old.args, new.args))
        if not same:
            return Order.UNKNOWN
        type_ = old.args[0].type
        vector = type_ is not None and type_.sort is Sort.MATRIX and ONE in (type_.rows, type_.cols)
        if vector and _of_a_vector(old.name) == _of_a_vector(new.name):
            return Order.SAME
        if self._is_matrix(old) or self._is_matrix(new):
            return Order.UNKNOWN
        up, down = old.name in FUNCTIONS[new.name].above, new.name in FUNCTIONS[old.name].above
        if up and down:
            return Order.SAME
        return Order.UP if up else Order.DOWN if down else Order.UNKNOWN

    def _extended(self, old: Expr, new: Expr, *, swapped: bool = False) -> Order:
        """Compare a product or a sum with one of its own parts.

        Args:
            old: A sum, product or quotient of scalars.
            new: One of its parts.
            swapped: Whether `old` is the mutant's and `new` the claim's.
        """
        ranges = self.new if swapped else self.old
        if len(old.args) != 2 or self._is_matrix(old):
            return Order.UNKNOWN
        for part, rest in ((0, 1), (1, 0)):
            if not self.unchanged(old.args[part], new):
                continue
            value, other = ranges.of(old.args[part]), ranges.of(old.args[rest])
            if old.kind is Kind.ADD or (old.kind is Kind.SUBTRACT and part == 0):
                return _compared_with(other if old.kind is Kind.ADD else -other, 0).flipped
            if old.kind is Kind.MULTIPLY or (old.kind is Kind.DIVIDE and part == 0):
                factor = other if old.kind is Kind.MULTIPLY else other.without_zero().reciprocal()
                order = _compared_with(factor, 1).flipped
                if value.above(0, or_at=True):
                    return order
                return order.flipped if value.below(0, or_at=True) else Order.UNKNOWN
            if old.kind is Kind.POWER and part == 0 and value.above(0, or_at=True):
                return _apart(power_range(value, other), value)
        return Order.UNKNOWN

    @staticmethod
    def _is_matrix(expr: Expr) -> bool:
        return expr.type is None or expr.type.sort is Sort.MATRIX


def _compared_with(values: Range, bound: int) -> Order:
    """Return whether all values are at least (UP) or at most (DOWN) a number."""
    if values.above(bound, or_at=True):
        return Order.UP
    return Order.DOWN if values.below(bound, or_at=True) else Order.UNKNOWN


def _apart(old: Range, new: Range) -> Order:
    """Return the order of two quantities whose ranges do not overlap."""
    if new.low >= old.high:
        return Order.UP
    return Order.DOWN if new.high <= old.low else Order.UNKNOWN


def _unsigned(expr: Expr) -> Expr:
    return expr.args[0] if expr.kind is Kind.NEGATE else expr


def _untransposed(expr: Expr) -> Expr:
    return expr.args[0] if expr.kind is Kind.TRANSPOSE else expr


def _of_a_vector(function: str) -> str:
    return FUNCTIONS[function].of_vector or function


def _is_square(expr: Expr) -> bool:
    return expr.type is not None and expr.type.rows == expr.type.cols
