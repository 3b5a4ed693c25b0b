"""Proofs of claims about real numbers: exact arguments first, then branch and bound (docs/design.md, section 1).

problem.py       the claim as hypotheses and a goal in numbers
exact.py, algebra.py, cases.py    what hypotheses say, identities and case distinctions, by exact algebra
positivity.py, signomial.py, signs.py, monotone.py    why a term has a sign
branch.py, box.py, intervals.py, enclosure.py    boxes of the domain, each decided in balls or cut in two, and
                 a point that meets the hypotheses

Here: real expressions as shared, lightly simplified trees, what a proof computes with. A term is made once: equal terms
are the same object, so that work on a term can be kept in a dictionary. Simplification only folds rational numbers and
the units 0 and 1; it never needs a sign. Where it drops a part that may be undefined, the part's condition is kept
apart (`problem`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

MAX_BITS = 4096
"""Bits of a folded rational number; a longer one stays unevaluated."""


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
        match term.op:
            case Op.ADD:
                return self.add(*args)
            case Op.MULTIPLY:
                return self.multiply(*args)
            case Op.INVERSE:
                return self.inverse(*args)
            case Op.POWER if term.value is not None:
                return self.power(args[0], term.value)
            case Op.EXP:
                return self.exp(*args)
            case Op.LOG:
                return self.log(*args)
            case Op.ABS:
                return self.absolute(*args)
            case Op.MAX:
                return self.maximum(*args)
            case Op.PICK:
                return self.pick(*args)
        return term

    def substitute(self, term: Term, replaced: dict[Term, Term]) -> Term:
        """Return a term with some of its parts replaced, wherever they occur."""
        done = dict(replaced)
        for node in below(term):
            if node not in done:
                args = tuple(done[arg] for arg in node.args)
                done[node] = node if args == node.args else self.rebuild(node, args)
        return done[term]


def _ordered(left: Term, right: Term) -> tuple[Term, Term]:
    return (left, right) if left.number <= right.number else (right, left)


def below(*roots: Term) -> list[Term]:
    """Return the roots and every term below them, parts before wholes, each once."""
    seen: set[Term] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.args)
    return sorted(seen, key=lambda node: node.number)


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
    root = floor_root(number, degree)
    return root if root**degree == number else None


def floor_root(number: int, degree: int) -> int:
    """Return the largest whole number whose `degree`-th power is at most a number >= 0.

    Example:
        >>> floor_root(26, 3), floor_root(27, 3), floor_root(0, 2)
        (2, 3, 0)
    """
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**degree <= number:
            low = middle
        else:
            high = middle - 1
    return low
