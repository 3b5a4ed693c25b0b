"""Proofs of claims about real numbers: exact arguments first, then branch and bound (docs/design.md, section 1).

problem.py       the claim as hypotheses and a goal in numbers
cases.py, exact.py    equations solved, case distinctions, what hypotheses say, by exact algebra
algebra.py, signomial.py, positivity.py    normal forms, and why a sum has a sign
branch.py, box.py, enclosure.py    boxes of the domain, each decided in balls or cut in two, and a point that meets
                 the hypotheses

Here: real expressions as shared, lightly simplified trees, what a proof computes with. A term is made once: equal terms
are the same object, so that work on a term can be kept in a dictionary. Simplification only folds rational numbers and
the units 0 and 1; it never needs a sign. Where it drops a part that may be undefined, the part's condition is kept
apart (`problem`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

from flint import fmpz

T = TypeVar("T")

MAX_BITS = 4096
"""Bits of a folded rational number; a longer one stays unevaluated."""


MAX_NODES = 2_000
"""Nodes of a derivative that is still worth an evaluation at every box."""


class Op(StrEnum):
    """What a term is."""

    CONSTANT = "constant"  # value
    VARIABLE = "variable"  # name
    ADD = "add"
    MULTIPLY = "multiply"
    INVERSE = "inverse"  # 1/args[0]
    POWER = "power"  # args[0]^value: value > 0, whole or not
    EXP = "exp"
    LOG = "log"
    ABS = "abs"
    MAX = "max"
    PICK = "pick"  # args[2] where args[0] > args[1], args[3] where it is less, a number between them where equal


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A node; made by `Terms` only, and compared by identity.

    Attributes:
        op: What it is.
        args: Its parts.
        value: A number, or an exponent.
        name: A variable's name.
        number: Its place in the order of creation; parts come before the whole.
        variables: Names of the variables below.
    """

    op: Op
    args: tuple[Term, ...]
    value: Fraction | None
    name: str
    number: int
    variables: frozenset[str]

    def applied(self, table: Mapping[Op, Callable[..., T]], parts: Sequence[object]) -> T:
        """Apply what a table has for this kind of term to what stands for its parts, and to the exponent of a power."""
        return table[self.op](*parts, self.value) if self.op is Op.POWER else table[self.op](*parts)


class Terms:
    """Makes terms; each only once.

    Example:
        >>> terms = Terms()
        >>> x = terms.variable("x")
        >>> terms.add(x, terms.constant(0)) is x, terms.subtract(x, x).value
        (True, Fraction(0, 1))
    """

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Term] = {}
        self.zero = self.constant(0)
        self.one = self.constant(1)

    def _make(self, op: Op, args: tuple[Term, ...] = (), value: Fraction | None = None, name: str = "") -> Term:
        key = (op, tuple(arg.number for arg in args), value, name)
        found = self._made.get(key)
        if found is None:
            below = frozenset({name}) if name else frozenset().union(*(arg.variables for arg in args))
            found = Term(op, args, value, name, len(self._made), below)
            self._made[key] = found
        return found

    def constant(self, value: int | Fraction) -> Term:
        """Return the term of a rational number."""
        return self._make(Op.CONSTANT, value=Fraction(value))

    def variable(self, name: str) -> Term:
        """Return the term of a variable."""
        return self._make(Op.VARIABLE, name=name)

    def add(self, *parts: Term) -> Term:
        """Return a sum."""
        total = self.zero
        for part in parts:
            total = self._add(total, part)
        return total

    def _add(self, left: Term, right: Term) -> Term:
        if left is self.zero:
            return right
        if right is self.zero:
            return left
        if left.value is not None and right.value is not None and left.op is right.op is Op.CONSTANT:
            return self._folded(left.value + right.value) or self._make(Op.ADD, (left, right))
        if self._opposite(left, right):
            return self.zero
        return self._make(Op.ADD, _ordered(left, right))

    def _opposite(self, left: Term, right: Term) -> bool:
        for one, other in ((left, right), (right, left)):
            if one.op is Op.MULTIPLY and one.args[0].value == -1 and one.args[1] is other:
                return one.args[0].op is Op.CONSTANT
        return False

    def negate(self, part: Term) -> Term:
        """Return -part."""
        return self.multiply(self.constant(-1), part)

    def subtract(self, left: Term, right: Term) -> Term:
        """Return left - right."""
        return self.add(left, self.negate(right))

    def multiply(self, left: Term, right: Term) -> Term:
        """Return left * right; a rational factor stands first."""
        if right.op is Op.CONSTANT:
            left, right = right, left
        if left is self.zero or right is self.zero:
            return self.zero
        if left is self.one:
            return right
        if left.op is Op.CONSTANT and left.value is not None:
            if right.op is Op.CONSTANT and right.value is not None:
                return self._folded(left.value * right.value) or self._make(Op.MULTIPLY, (left, right))
            inner = right.args[0] if right.op is Op.MULTIPLY else None
            if inner is not None and inner.op is Op.CONSTANT and inner.value is not None:
                product = self._folded(left.value * inner.value)
                if product is not None:
                    return self.multiply(product, right.args[1])
            return self._make(Op.MULTIPLY, (left, right))
        return self._make(Op.MULTIPLY, _ordered(left, right))

    def divide(self, left: Term, right: Term) -> Term:
        """Return left / right."""
        return self.multiply(left, self.inverse(right))

    def inverse(self, part: Term) -> Term:
        """Return 1/part; that of the number 0 stays unevaluated."""
        if part.op is Op.CONSTANT and part.value:
            return self._folded(1 / part.value) or self._make(Op.INVERSE, (part,))
        if part.op is Op.INVERSE:
            return part.args[0]
        return self._make(Op.INVERSE, (part,))

    def power(self, base: Term, exponent: Fraction) -> Term:
        """Return base^exponent for a rational exponent; base^0 is 1."""
        if exponent == 0:
            return self.one
        if exponent < 0:
            return self.inverse(self.power(base, -exponent))
        if exponent == 1:
            return base
        if base.op is Op.CONSTANT and base.value is not None:
            folded = rational_power(base.value, exponent)
            if folded is not None:
                return self.constant(folded)
        if base.op is Op.POWER and base.value is not None and base.value.denominator == exponent.denominator == 1:
            return self.power(base.args[0], base.value * exponent)
        return self._make(Op.POWER, (base,), exponent)

    def exp(self, part: Term) -> Term:
        """Apply exp."""
        return self.one if part is self.zero else self._make(Op.EXP, (part,))

    def log(self, part: Term) -> Term:
        """Apply the natural logarithm."""
        return self.zero if part is self.one else self._make(Op.LOG, (part,))

    def absolute(self, part: Term) -> Term:
        """Return |part|."""
        if part.op is Op.CONSTANT and part.value is not None:
            return self.constant(abs(part.value))
        return part if part.op in (Op.ABS, Op.EXP) else self._make(Op.ABS, (part,))

    def maximum(self, left: Term, right: Term) -> Term:
        """Return the larger of two."""
        if left is right:
            return left
        if left.op is right.op is Op.CONSTANT and left.value is not None and right.value is not None:
            return self.constant(max(left.value, right.value))
        return self._make(Op.MAX, _ordered(left, right))

    def minimum(self, left: Term, right: Term) -> Term:
        """Return the smaller of two."""
        return self.negate(self.maximum(self.negate(left), self.negate(right)))

    def pick(self, left: Term, right: Term, above: Term, below: Term) -> Term:
        """Return `above` where left > right and `below` where it is less."""
        return above if above is below else self._make(Op.PICK, (left, right, above, below))

    def _folded(self, value: Fraction) -> Term | None:
        return self.constant(value) if bits(value) <= MAX_BITS else None

    def rebuild(self, term: Term, args: tuple[Term, ...]) -> Term:
        """Return a term of the same kind with other parts."""
        makers: dict[Op, Callable[..., Term]] = {
            Op.ADD: self.add,
            Op.MULTIPLY: self.multiply,
            Op.INVERSE: self.inverse,
            Op.POWER: self.power,
            Op.EXP: self.exp,
            Op.LOG: self.log,
            Op.ABS: self.absolute,
            Op.MAX: self.maximum,
            Op.PICK: self.pick,
        }
        return term.applied(makers, args) if args else term

    def substitute(self, term: Term, replaced: dict[Term, Term]) -> Term:
        """Return a term with some of its parts replaced, wherever they occur."""
        done = dict(replaced)
        for node in below(term, known=replaced):
            args = tuple(done[arg] for arg in node.args)
            done[node] = node if args == node.args else self.rebuild(node, args)
        return done[term]


def _ordered(left: Term, right: Term) -> tuple[Term, Term]:
    return (left, right) if left.number <= right.number else (right, left)


def below(*roots: Term, known: Container[Term] = ()) -> list[Term]:
    """Return the roots and every term below them, parts before wholes, each once; none that is known, nor its parts."""
    seen: set[Term] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen and node not in known:
            seen.add(node)
            stack.extend(node.args)
    return sorted(seen, key=lambda node: node.number)


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

    def __init__(self, terms: Terms, simplify: Callable[[Term], Term] = lambda term: term) -> None:
        self._terms = terms
        self._simplify = simplify
        self._known: dict[str, dict[Term, Term | None]] = {}
        self._made: dict[tuple[Term, str], Term | None] = {}

    def of(self, term: Term, name: str) -> Term | None:
        """Return the derivative by a variable; None where it has none, or it would be too large."""
        key, known = (term, name), self._known.setdefault(name, {})
        if key not in self._made:
            for node in below(term, known=known):
                known[node] = self._derive(node, name, [known[arg] for arg in node.args])
            found = known[term]
            if found is not None:
                found = self._simplify(found)
                found = found if len(below(found)) <= MAX_NODES else None
            self._made[key] = found
        return self._made[key]

    def root(self, term: Term, name: str) -> Term | None:
        """Read a term as a number times x - w for a variable x; return w, from which x is gone if that can be seen."""
        terms, slope = self._terms, self.of(term, name)
        if slope is None or slope.op is not Op.CONSTANT or not slope.value:
            return None
        rest = terms.substitute(term, {terms.variable(name): terms.zero})
        return terms.multiply(terms.constant(-1 / slope.value), rest)

    def _derive(self, node: Term, name: str, found: list[Term | None]) -> Term | None:
        terms = self._terms
        if name not in node.variables:
            return terms.zero
        if node.op is Op.VARIABLE:
            return terms.one
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


def bits(value: Fraction) -> int:
    """Return how long a rational number is."""
    return value.numerator.bit_length() + value.denominator.bit_length()


def rational_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """Return base^exponent for an exponent > 0 where it is rational and not too long, else None.

    Example:
        >>> rational_power(Fraction(9, 4), Fraction(3, 2)), rational_power(Fraction(2), Fraction(1, 2))
        (Fraction(27, 8), None)
    """
    whole, degree = exponent.numerator, exponent.denominator
    if bits(base) * whole > MAX_BITS or degree > MAX_BITS:
        return None
    if degree > 1:
        top = _exact_root(base.numerator, degree) if base >= 0 else None
        bottom = _exact_root(base.denominator, degree)
        if top is None or bottom is None:
            return None
        base = Fraction(top, bottom)
    return base**whole


def _exact_root(number: int, degree: int) -> int | None:
    """Return the whole `degree`-th root of a number >= 0, or None where it is not whole."""
    root = int(fmpz(number).root(degree))
    return root if root**degree == number else None


@dataclass(frozen=True, slots=True)
class Side:
    """The range of one variable.

    Attributes:
        low, high: The ends; None is infinity.
        low_open, high_open: Whether an end is excluded.
        whole: Whether it holds whole numbers only.
    """

    low: Fraction | None
    high: Fraction | None
    low_open: bool = False
    high_open: bool = False
    whole: bool = False

    @property
    def single(self) -> bool:
        """Whether it is one number."""
        return self.low is not None and self.low == self.high

    @property
    def sign(self) -> str:
        """What is known of the sign of its numbers: `+`, `0` for >= 0, `?`."""
        if self.low is None or self.low < 0:
            return "?"
        return "+" if self.low > 0 or self.low_open else "0"

    @property
    def empty(self) -> bool:
        """Whether no number is left."""
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def contains(self, value: Fraction) -> bool:
        """Say whether a number is in the range."""
        return (not self.whole or value.denominator == 1) and not self.above(value, False).beneath(value, False).empty

    def above(self, low: Fraction, is_open: bool) -> Side:
        """Return the part that is >= low, or > low."""
        if self.low is not None and (self.low, self.low_open) >= (low, is_open):
            return self
        return replace(self, low=low, low_open=is_open)

    def beneath(self, high: Fraction, is_open: bool) -> Side:
        """Return the part that is <= high, or < high."""
        if self.high is not None and (-self.high, self.high_open) >= (-high, is_open):
            return self
        return replace(self, high=high, high_open=is_open)


def simplest(low: Fraction | None, high: Fraction | None) -> Fraction:
    """Return the fraction with the smallest denominator between two numbers, neither of them; None is infinity.

    Args:
        low: The lower end.
        high: The upper end, above the lower one.

    Example:
        >>> simplest(Fraction(1, 4), Fraction(1, 2)), simplest(None, Fraction(-1, 2)), simplest(Fraction(3), None)
        (Fraction(1, 3), Fraction(-1, 1), Fraction(4, 1))
    """
    if (low is None or low < 0) and (high is None or high > 0):
        return Fraction(0)
    if low is None or low < 0:
        return -simplest(Fraction(0) if high is None else -high, None if low is None else -low)
    partial: list[int] = []  # of the continued fraction that both ends share
    while high is not None and math.floor(low) + 1 >= high:
        whole = math.floor(low)
        partial.append(whole)
        low, high = 1 / (high - whole), None if low == whole else 1 / (low - whole)
    found = Fraction(math.floor(low) + 1)
    for whole in reversed(partial):
        found = whole + 1 / found
    return found
