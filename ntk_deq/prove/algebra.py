"""Turn terms into quotients of sums of monomials.

Write normal forms back as terms.

Square roots of sums: a sum written as A + C r with r = sqrt(B), so that it can be compared by its squares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from flint import fmpq

from ntk_deq.prove import Op, Term, Terms, below
from ntk_deq.prove import signomial as sg
from ntk_deq.prove.signomial import Monomial, Poly, TooLargeError


@dataclass(frozen=True)
class Quotient:
    """numerator / product of divisor^multiplicity; divisors are primitive sums of several terms, by their text."""

    numerator: Poly
    divisors: dict[str, tuple[Poly, int]]


class Algebra:
    """Normal forms of terms, under what is known of the signs of the atoms.

    Args:
        sign: Gives the sign of a variable: `+`, `0` for >= 0, `?`.
        positive: Says whether a sum is known to be > 0 everywhere.
        nonnegative: Says whether a sum is known to be >= 0 everywhere.
    """

    def __init__(
        self, sign: Callable[[str], str], positive: Callable[[Poly], bool], nonnegative: Callable[[Poly], bool]
    ) -> None:
        self._variable_sign = sign
        self._positive = positive
        self._nonnegative = nonnegative
        self.bases: dict[str, Poly] = {}  # of atoms [p]: p
        self.exponents: dict[str, Quotient] = {}  # of atoms exp{q}: q
        self._inside_of: dict[str, frozenset[str]] = {}
        self._known: dict[Term, Quotient] = {}

    def sign(self, name: str) -> str:
        """Return what is known of the sign of an atom."""
        if name[0] == "#" or name.startswith("exp{"):
            return "+"
        if name[0] == "[":
            return "0"
        return "?" if name.startswith("log{") else self._variable_sign(name)

    def normal(self, term: Term) -> Quotient:
        """Return the normal form of a term.

        Raises:
            TooLargeError: It is too large, or has none: a maximum or an absolute value is left in it.
        """
        for node in below(term):
            if node not in self._known:
                self._known[node] = self._convert(node, [self._known[arg] for arg in node.args])
        return self._known[term]

    def _convert(self, node: Term, parts: list[Quotient]) -> Quotient:
        match node.op:
            case Op.CONSTANT if node.value is not None:
                return Quotient(sg.constant(node.value), {})
            case Op.VARIABLE:
                return Quotient(sg.atom(node.name), {})
            case Op.ADD:
                return self.plus(*parts)
            case Op.MULTIPLY:
                return self.product(*parts)
            case Op.INVERSE:
                return self.inverse(*parts)
            case Op.POWER if node.value is not None and node.value.denominator == 1:
                return self.power(parts[0], node.value)
            case Op.POWER if node.value is not None:
                return self._root_of(node.args[0], node.value)
            case Op.EXP:
                return self._exp(*parts)
            case Op.LOG:
                return Quotient(self._log(*parts), {})
        raise TooLargeError

    def reduced(self, poly: Poly) -> Poly:
        """Return a sum in which no exponent of an atom [p] reaches 1: its whole part is multiplied out."""
        if not any(name[0] == "[" and (e >= 1 or e < 0) for monomial in poly for name, e in monomial):
            return poly
        parts = []
        for monomial, c in poly.items():
            part: Poly = {sg.UNIT: c}
            for name, e in monomial:
                whole = e.numerator // e.denominator if name[0] == "[" else 0
                if whole < 0:
                    raise TooLargeError
                if whole:
                    part = sg.multiply(part, sg.whole_power(self.bases[name], whole))
                part = sg.multiply(part, sg.atom(name, e - whole))
            parts.append(part)
        return self.reduced(sg.total(parts))

    def times(self, left: Poly, right: Poly) -> Poly:
        """Return the product of two sums."""
        return self.reduced(sg.multiply(left, right))

    def plus(self, left: Quotient, right: Quotient) -> Quotient:
        """Return the sum over the least common divisor."""
        divisors = dict(left.divisors)
        for key, (poly, count) in right.divisors.items():
            divisors[key] = (poly, max(count, divisors.get(key, (poly, 0))[1]))
        numerator: Poly = {}
        for part in (left, right):
            lifted = part.numerator
            for key, (poly, count) in divisors.items():
                missing = count - part.divisors.get(key, (poly, 0))[1]
                for _ in range(missing):
                    lifted = self.times(lifted, poly)
            numerator = sg.add(numerator, lifted)
        return Quotient(numerator, divisors if numerator else {})

    def product(self, left: Quotient, right: Quotient) -> Quotient:
        """Return the product; equal divisors add up their powers."""
        numerator = self.times(left.numerator, right.numerator)
        return Quotient(numerator, _joined(left.divisors, right.divisors) if numerator else {})

    def inverse(self, part: Quotient) -> Quotient:
        """Return one over a quotient that is not zero."""
        if not part.numerator:
            raise TooLargeError
        result = self._inverse_of_sum(part.numerator)
        for poly, count in part.divisors.values():
            for _ in range(count):
                result = self.product(result, Quotient(poly, {}))
        return result

    def _inverse_of_sum(self, poly: Poly) -> Quotient:
        """Return 1/poly: its monomial content and number go to the numerator, the rest becomes a divisor."""
        monomial = sg.content(poly)
        number, core = sg.primitive(sg.shift(poly, monomial, -1))
        lifted = sg.scale(sg.shift(sg.constant(1), monomial, -1), 1 / number)
        extra: dict[str, tuple[Poly, int]] = {}
        if len(core) == 1:
            ((rest, c),) = core.items()
            lifted = sg.scale(sg.shift(lifted, rest, -1), 1 / c)
        else:
            extra[sg.shown(core)] = (core, 1)
        for name, exponent in sg.content(lifted):
            if name[0] == "[" and exponent < 0:  # 1/p^e = p^(1 - e)/p for a root of a sum
                base = self.bases[name]
                whole = -(exponent.numerator // exponent.denominator)
                lifted = sg.shift(lifted, ((name, whole),))
                for _ in range(whole):
                    inner = self._inverse_of_sum(base)
                    lifted = self.times(lifted, inner.numerator)
                    extra = _joined(extra, inner.divisors)
        return Quotient(self.reduced(lifted), extra)

    def raised(self, base: Quotient, exponent: Fraction) -> Quotient:
        """Return base^exponent for any rational exponent; the base is >= 0, and > 0 for a negative one."""
        if exponent == 0:
            return Quotient(sg.constant(1), {})
        return self.power(base, exponent) if exponent > 0 else self.inverse(self.power(base, -exponent))

    def power(self, base: Quotient, exponent: Fraction) -> Quotient:
        """Return a positive power of a quotient."""
        if exponent.denominator == 1:
            if exponent > sg.MAX_DEGREE and (len(base.numerator) > 1 or base.divisors):
                raise TooLargeError
            divisors = {key: (poly, count * int(exponent)) for key, (poly, count) in base.divisors.items()}
            return Quotient(self.reduced(sg.whole_power(base.numerator, int(exponent))), divisors)
        result = self._root(base.numerator, exponent)
        for poly, count in base.divisors.values():
            if not self._positive(poly):
                raise TooLargeError
            result = self.product(result, self.inverse(self._root(poly, exponent * count)))
        return result

    def _root_of(self, term: Term, exponent: Fraction) -> Quotient:
        """Return term^exponent, taken factor by factor where all of them are known to be >= 0."""
        if term.op is Op.POWER and term.value is not None and self.known_nonnegative(term.args[0]):
            whole = term.value * exponent
            inside = term.args[0]
            return self.power(self._known[inside], whole) if whole.denominator == 1 else self._root_of(inside, whole)
        if term.op is Op.INVERSE:
            return self.inverse(self._root_of(term.args[0], exponent))
        if term.op is Op.MULTIPLY and all(self.known_nonnegative(arg) for arg in term.args):
            return self.product(*(self._root_of(arg, exponent) for arg in term.args))
        return self.power(self._known[term], exponent)

    def known_nonnegative(self, term: Term) -> bool:
        """Say whether a term is known to be >= 0, factor by factor."""
        if term.op is Op.POWER and term.value is not None and (term.value.denominator > 1 or term.value % 2 == 0):
            return True
        if term.op in (Op.MULTIPLY, Op.INVERSE, Op.POWER):
            return all(self.known_nonnegative(arg) for arg in term.args)
        part = self.normal(term)
        return self._nonnegative(part.numerator) and all(self._positive(p) for p, _ in part.divisors.values())

    def _root(self, poly: Poly, exponent: Fraction) -> Quotient:
        """Return poly^exponent, poly being >= 0, as roots of its content times a root of what is left."""
        if not poly:
            return Quotient({}, {})
        number, monomial, core = self._split(poly)
        result = sg.shift(sg.root_of_rational(number, exponent), monomial, exponent)
        if core != sg.constant(1):
            result = sg.shift(result, ((self._base(core), exponent),))
        return Quotient(self.reduced(result), {})

    def _split(self, poly: Poly) -> tuple[Fraction, Monomial, Poly]:
        """Write a sum as number > 0 times a monomial of positive atoms times the rest."""
        signs = {name: self.sign(name) for name, _ in sg.content(poly)}
        moved = {"+", "0"} if len(poly) == 1 and "?" not in signs.values() else {"+"}
        monomial = tuple(item for item in sg.content(poly) if signs[item[0]] in moved)
        number, core = sg.primitive(sg.shift(poly, monomial, -1))
        if number < 0:
            number, core = -number, sg.scale(core, -1)
        if len(core) == 1 and all(name[0] == "#" for name, _ in next(iter(core))) and next(iter(core.values())) == 1:
            return number, tuple(sorted((*monomial, *next(iter(core))))), sg.constant(1)
        if core.keys() == {sg.UNIT}:  # a negative number: the root or logarithm exists nowhere
            raise TooLargeError
        return number, monomial, core

    def _base(self, core: Poly) -> str:
        """Return the atom that stands for a sum of which a root or a logarithm is taken."""
        name = f"[{sg.shown(core)}]"
        self.bases[name] = core
        self._inside_of[name] = self.inside_of_sum(core)
        return name

    def inside(self, name: str) -> frozenset[str]:
        """Return the variables that an atom contains; none where it is one itself."""
        if name.startswith("log{"):
            name = name[4:-1]
            return self._inside_of.get(name, frozenset({name}))
        return self._inside_of.get(name, frozenset())

    def inside_of_sum(self, *polys: Poly) -> frozenset[str]:
        """Return all variables of some sums, those inside of atoms included."""
        names = set().union(*(sg.atoms_of(poly) for poly in polys))
        return frozenset().union(*(self.inside(name) or {name} for name in names))

    def _exp(self, part: Quotient) -> Quotient:
        if part.divisors:
            text = "/".join([sg.shown(part.numerator), *(f"({k})^{n}" for k, (_, n) in sorted(part.divisors.items()))])
            name = f"exp{{{text}}}"
            self.exponents[name] = part
            self._inside_of[name] = self.inside_of_sum(part.numerator, *(p for p, _ in part.divisors.values()))
            return Quotient(sg.atom(name), {})
        result = Quotient(sg.constant(1), {})
        for monomial, c in sorted(part.numerator.items()):
            result = self.product(result, self._exp_of(monomial, c))
        return result

    def _exp_of(self, monomial: Monomial, c: fmpq) -> Quotient:
        """Return exp(c monomial); that of a multiple of a logarithm is a power."""
        if len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].startswith("log{"):
            raised = self.power(Quotient(self._inside(monomial[0][0][4:-1]), {}), abs(sg.fraction(c)))
            return raised if c > 0 else self.inverse(raised)
        single = sg.shift(sg.constant(1), monomial)
        name = f"exp{{{sg.shown(single)}}}"
        self.exponents[name] = Quotient(single, {})
        self._inside_of[name] = self.inside_of_sum(single)
        return Quotient(sg.atom(name, sg.fraction(c)), {})

    def _inside(self, name: str) -> Poly:
        """Return what an atom stands for."""
        if name[0] == "#":
            return sg.constant(int(name[1:]))
        return self.bases[name] if name[0] == "[" else sg.atom(name)

    def _log(self, part: Quotient) -> Poly:
        """Return the logarithm of a product as a sum of logarithms of its positive parts."""
        result = self._log_of_sum(part.numerator)
        for poly, count in part.divisors.values():
            if not self._positive(poly):
                raise TooLargeError
            result = sg.add(result, self._log_of_sum(poly), -count)
        return result

    def _log_of_sum(self, poly: Poly) -> Poly:
        if not poly:
            raise TooLargeError
        number, monomial, core = self._split(poly)
        if any(self.sign(name) != "+" for name, _ in monomial):
            number, monomial, core = Fraction(1), (), poly
        result: Poly = {}
        for whole, sign in ((number.numerator, 1), (number.denominator, -1)):
            for prime, count in sg.prime_factors(whole):
                result = sg.add(result, sg.atom(f"log{{#{prime}}}"), sign * count)
        for name, exponent in monomial:
            inside = self.exponents.get(name)
            whole = inside is not None and not inside.divisors
            result = sg.add(result, inside.numerator if inside and whole else sg.atom(f"log{{{name}}}"), exponent)
        return result if core == sg.constant(1) else sg.add(result, sg.atom(f"log{{{self._base(core)}}}"))


def _joined(left: dict[str, tuple[Poly, int]], right: dict[str, tuple[Poly, int]]) -> dict[str, tuple[Poly, int]]:
    joined = dict(left)
    for key, (poly, count) in right.items():
        joined[key] = (poly, count + joined.get(key, (poly, 0))[1])
    return joined


class Writer:
    """Turns sums and quotients of an algebra into terms.

    Args:
        terms: Makes the terms.
        algebra: Knows what the atoms stand for.
    """

    def __init__(self, terms: Terms, algebra: Algebra) -> None:
        self._terms = terms
        self._algebra = algebra

    def quotient(self, quotient: Quotient) -> Term:
        """Return a quotient as a term."""
        found = self.sum(quotient.numerator)
        for divisor, count in quotient.divisors.values():
            found = self._terms.divide(found, self._terms.power(self.sum(divisor), Fraction(count)))
        return found

    def sum(self, poly: Poly) -> Term:
        """Return a sum as a term, its common monomial as a factor in front."""
        common = sg.content(poly)
        parts = [self._monomial(m, sg.fraction(c)) for m, c in sorted(sg.shift(poly, common, -1).items())]
        return self._terms.multiply(self._monomial(common, Fraction(1)), self._terms.add(*parts))

    def _monomial(self, monomial: Monomial, c: Fraction) -> Term:
        found = self._terms.one
        for name, exponent in monomial:
            found = self._terms.multiply(found, self._terms.power(self._atom(name), Fraction(exponent)))
        return self._terms.multiply(self._terms.constant(c), found)

    def _atom(self, name: str) -> Term:
        if name[0] == "#":
            return self._terms.constant(int(name[1:]))
        if name[0] == "[":
            return self.sum(self._algebra.bases[name])
        if name.startswith("log{"):
            return self._terms.log(self._atom(name[4:-1]))
        if name.startswith("exp{"):
            return self._terms.exp(self.quotient(self._algebra.exponents[name]))
        return self._terms.variable(name)


_HALF = Fraction(1, 2)


class Radical(NamedTuple):
    """A sum A + C r: `rest` is A, `factor` is C, `gap` is A^2 - C^2 B."""

    rest: Poly
    factor: Poly
    gap: Poly


def radicals(algebra: Algebra, poly: Poly) -> Iterator[Radical]:
    """Yield each way of writing a sum as A + C r for the square root r of a sum B.

    Args:
        algebra: Knows the atoms of the sum.
        poly: The sum.
    """
    for name in sorted(n for n in sg.atoms_of(poly) if n[0] == "["):
        if not set(sg.exponents(poly, name)) <= {0, _HALF}:
            continue
        parts = sg.split(poly, name)
        rest, factor = parts.get(0, {}), parts[_HALF]
        square = algebra.times(algebra.times(factor, factor), algebra.bases[name])
        yield Radical(rest, factor, sg.add(algebra.times(rest, rest), square, -1))
