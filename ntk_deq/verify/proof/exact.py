"""Exact arguments for one case of a claim: facts are learnt, and statements shown from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import lcm

from flint import fmpz_poly

from ntk_deq.verify.proof import signomial as sg
from ntk_deq.verify.proof.algebra import Algebra
from ntk_deq.verify.proof.enclosure import Derivatives
from ntk_deq.verify.proof.formulas import Atom, Both, Formula, Relation, opposite
from ntk_deq.verify.proof.orthant import Bounds, Orthant
from ntk_deq.verify.proof.positivity import WORK, Fact, Positivity
from ntk_deq.verify.proof.problem import Variable
from ntk_deq.verify.proof.signomial import Poly, TooLargeError
from ntk_deq.verify.proof.terms import Op, Term, Terms
from ntk_deq.verify.proof.univariate import Condition, UndecidedError, first_failure

_RADICALS = 3  # roots that are squared away one after the other
_BOUNDS = 4  # hypotheses that are put in the place of a variable one after the other
_GLANCE = 4_000  # terms written down in a short search for a certificate
_HALVES = 3  # variables of either sign that are looked at on each half of the line


_SIGNED = (Relation.POSITIVE, Relation.NONNEGATIVE)


class Exact:
    """What is known in one case, and what follows from it.

    Args:
        terms: Makes the terms.
        variables: The variables with their ranges.

    Attributes:
        used: Names of the arguments that led to a proof.
    """

    def __init__(self, terms: Terms, variables: Iterable[Variable]) -> None:
        self._terms = terms
        self._halves = _HALVES
        self._derivatives = Derivatives(terms)
        self._bounds = {v.name: Bounds(v.low, v.high, v.low_open, v.high_open) for v in variables}
        self._atoms: list[Atom] = []
        self._facts: list[Fact] = []
        self.used: set[str] = set()
        self._renew()

    def _renew(self) -> None:
        """Make all normal forms anew, after the signs of variables have become known."""
        self._algebra = Algebra(self._sign, self._plainly_positive, self._nonnegative)
        self._facts = []
        for name, bounds in self._bounds.items():
            self._facts += _range_facts(name, bounds)
        self._known: dict[tuple[sg.Key, bool, int], bool] = {}
        for atom in self._atoms:
            self._note(atom)

    def _sign(self, name: str) -> str:
        return self._bounds[name].sign if name in self._bounds else "?"

    @property
    def impossible(self) -> bool:
        """Whether what is known cannot all be true."""
        return any(bounds.empty for bounds in self._bounds.values())

    # What is known

    def learn(self, formula: Formula) -> None:
        """Add a statement to what is known; of a disjunction nothing is learnt."""
        if isinstance(formula, Both):
            for part in formula.parts:
                self.learn(part)
        elif isinstance(formula, Atom):
            self._atoms.append(formula)
            before = dict(self._bounds)
            self._note(formula)
            if self._bounds != before:
                self._renew()

    def _note(self, atom: Atom) -> None:
        try:
            poly = self._cleared(atom.term)
        except TooLargeError:
            return
        if atom.relation is Relation.NONZERO:
            return
        for sign in (1, -1) if atom.relation is Relation.ZERO else (1,):
            fact = Fact(sg.scale(poly, sign), atom.relation is Relation.POSITIVE)
            self._facts += [fact, *self._squared(fact)]
            self._tighten(fact)
        self._known.clear()

    def _squared(self, fact: Fact) -> list[Fact]:
        """Return A^2 - C^2 B >= 0 for a fact A - C r >= 0 in which A, C >= 0 and r is the square root of B."""
        found = []
        for name, rest, factor in self._radicals(fact.poly):
            if self._nonnegative(rest) and self._nonnegative(sg.scale(factor, -1)):
                found.append(Fact(self._gap(name, rest, factor), fact.strict))
        return found

    def _radicals(self, poly: Poly) -> Iterator[tuple[str, Poly, Poly]]:
        """Yield each way of writing a sum as A + C r for the square root r of a sum: the atom of r, A and C."""
        for name in sorted(n for n in sg.atoms_of(poly) if n[0] == "["):
            if not set(sg.exponents(poly, name)) <= {Fraction(0), Fraction(1, 2)}:
                continue
            rest: Poly = {}
            factor: Poly = {}
            for monomial, c in poly.items():
                without = tuple(item for item in monomial if item[0] != name)
                (rest if without == monomial else factor)[without] = c
            yield name, rest, factor

    def _gap(self, name: str, rest: Poly, factor: Poly) -> Poly:
        """Return A^2 - C^2 B."""
        times = self._algebra.times
        return sg.add(times(rest, rest), times(times(factor, factor), self._algebra.bases[name]), -1)

    def _tighten(self, fact: Fact) -> None:
        """Use a fact a + b x >= 0 as a bound of x."""
        names = sg.atoms_of(fact.poly)
        degrees = {monomial for monomial in fact.poly if monomial}
        if len(names) != 1 or len(degrees) != 1 or not names <= self._bounds.keys():
            return
        (monomial,) = degrees
        (name,) = names
        if monomial != ((name, Fraction(1)),):
            return
        slope, offset = fact.poly[monomial], fact.poly.get(sg.UNIT, Fraction(0))
        bounds = self._bounds[name]
        end = -offset / slope
        self._bounds[name] = bounds.above(end, fact.strict) if slope > 0 else bounds.beneath(end, fact.strict)

    # What follows

    def shows(self, formula: Formula) -> bool:
        """Say whether a statement follows from what is known."""
        if self.impossible:
            return True
        if isinstance(formula, Both):
            return all(self.shows(part) for part in formula.parts)
        if isinstance(formula, Atom):
            try:
                return self._shows_atom(formula)
            except TooLargeError:
                return False
        return any(self.shows(part) for part in formula.parts) or any(
            self._shows_without(formula.parts[:k] + formula.parts[k + 1 :], part)
            for k, part in enumerate(formula.parts)
        )

    def _shows_without(self, others: tuple[Formula, ...], part: Formula) -> bool:
        """Show one part of a disjunction where all others fail."""
        child = self._child(self._bounds, self._halves)
        for other in others:
            child.learn(opposite(other, self._terms))
        found = child.shows(part)
        self.used |= child.used
        return found

    def _child(self, bounds: dict[str, Bounds], halves: int) -> Exact:
        child = Exact(self._terms, ())
        child._halves = halves
        child._bounds = dict(bounds)
        child._atoms = list(self._atoms)
        child._renew()
        return child

    def _shows_atom(self, atom: Atom) -> bool:
        poly = self._cleared(atom.term)
        if self._follows(poly, atom.relation) or self._by_bounds(atom, poly, _BOUNDS):
            return True
        if atom.relation in _SIGNED and self._by_certificate(poly, atom.relation is Relation.POSITIVE, WORK):
            return True
        return self._halves > 0 and self._by_halves(atom, poly)

    def _by_bounds(self, atom: Atom, poly: Poly, depth: int) -> bool:
        """Put a bound of a variable in its place where the term only shrinks by it, and show what comes out."""
        if depth == 0 or atom.relation not in _SIGNED:
            return False
        for known in self._atoms:
            for name in sorted(known.term.variables & atom.term.variables) if known.relation in _SIGNED else ():
                bound = self._bound(known.term, name)
                if bound is None or not self._shrinks(atom.term, poly, name, *bound):
                    continue
                value = bound[0]
                reduced = self._terms.substitute(atom.term, {self._terms.variable(name): value})
                smaller = Atom(reduced, atom.relation)
                left = self._cleared(reduced)
                if self._follows(left, atom.relation) or self._by_bounds(smaller, left, depth - 1):
                    self.used.add("bounds put in the place of variables")
                    return True
        return False

    def _bound(self, term: Term, name: str) -> tuple[Term, int] | None:
        """Read a term >= 0 as x >= w (1) or x <= w (-1) for a variable that it contains linearly, alone; return w."""
        terms = self._terms
        slope = self._derivatives.of(term, name)
        if slope is None or slope.op is not Op.CONSTANT or not slope.value:
            return None
        rest = terms.substitute(term, {terms.variable(name): terms.zero})
        return terms.multiply(terms.constant(-1 / slope.value), rest), 1 if slope.value > 0 else -1

    def _shrinks(self, term: Term, poly: Poly, name: str, value: Term, side: int) -> bool:
        """Say whether every term of a sum is least where a variable x >= 0 is moved to a bound >= 0 on one side."""
        quotient = self._algebra.normal(term)
        sums = (poly, *(p for p, _ in quotient.divisors.values()))
        buried = self._algebra.inside_of_sum(*sums) - sg.atoms_of(poly)
        inside = set().union(*(self._algebra.inside(n) for n in sg.atoms_of(poly)))
        if name in buried | inside | self._algebra.inside_of_sum(*sums[1:]) or self._sign(name) == "?":
            return False
        for monomial, c in poly.items():
            exponent = dict(monomial).get(name, Fraction(0))
            rest = tuple(item for item in monomial if item[0] != name)
            if exponent and (self._algebra.monomial_sign(rest) == "?" or (c > 0) != (exponent * side > 0)):
                return False
        lowest = min(sg.exponents(poly, name))
        return self.shows(Atom(value, Relation.POSITIVE if lowest < 0 else Relation.NONNEGATIVE))

    def _by_halves(self, atom: Atom, poly: Poly) -> bool:
        """Show a comparison on each half of the range of a variable of either sign."""
        for name in sorted(self._algebra.inside_of_sum(poly) & self._bounds.keys()):
            bounds = self._bounds[name]
            if bounds.sign != "?" or (bounds.high is not None and bounds.high <= 0):
                continue
            zero = Fraction(0)
            for part in (bounds.above(zero, False), bounds.beneath(zero, False)):
                child = self._child({**self._bounds, name: part}, self._halves - 1)
                if not child.shows(atom):
                    return False
                self.used |= child.used
            return True
        return False

    def _follows(self, poly: Poly, relation: Relation) -> bool:
        match relation:
            case Relation.POSITIVE:
                return self._shows_sum(poly, True)
            case Relation.NONNEGATIVE:
                return self._shows_sum(poly, False)
            case Relation.ZERO:
                if not poly:
                    self.used.add("normal forms")
                    return True
                return all(self._shows_sum(sg.scale(poly, sign), False) for sign in (1, -1))
            case _:
                return any(self._shows_sum(sg.scale(poly, sign), True) for sign in (1, -1))

    def _cleared(self, term: Term) -> Poly:
        """Return a sum that stands to zero as the term does: divisors are multiplied out."""
        quotient = self._algebra.normal(term)
        poly = quotient.numerator
        for divisor, count in quotient.divisors.values():
            if count % 2 == 0 or self._plainly_positive(divisor):
                continue
            if self._plainly_positive(sg.scale(divisor, -1)):
                poly = sg.scale(poly, -1)
            elif self._shows_sum(divisor, True):
                continue
            elif self._shows_sum(sg.scale(divisor, -1), True):
                poly = sg.scale(poly, -1)
            else:
                poly = self._algebra.times(poly, divisor)
        return poly

    def _nonnegative(self, poly: Poly) -> bool:
        return self._plainly(poly, False) or self._shows_sum(poly, False, 0)

    def _plainly_positive(self, poly: Poly) -> bool:
        return self._plainly(poly, True)

    def _plainly(self, poly: Poly, strict: bool) -> bool:
        try:
            orthant = Orthant(self._algebra, self._bounds, [poly])
        except TooLargeError:
            return False
        return Positivity(orthant.sign, ()).plainly(orthant.moved[0], strict)

    def _shows_sum(self, poly: Poly, strict: bool, radicals: int = _RADICALS) -> bool:
        key = (sg.key_of(poly), strict, radicals)
        if key not in self._known:
            self._known[key] = False  # for the time of the search
            self._known[key] = self._search(poly, strict, radicals)
        return self._known[key]

    def _search(self, poly: Poly, strict: bool, radicals: int) -> bool:
        if not poly:
            return not strict
        if self._by_roots(poly, strict) or self._by_certificate(poly, strict, _GLANCE):
            return True
        return radicals > 0 and self._by_squaring(poly, strict, radicals - 1)

    # One variable: the real roots decide

    def _by_roots(self, poly: Poly, strict: bool) -> bool:
        """Show a polynomial in one atom positive from the facts in it alone, which decides that question."""
        names = sg.atoms_of(poly)
        if len(names) != 1:
            return False
        (name,) = names
        if name[0] == "[" or _has_radicals(poly):
            return False
        facts = [f for f in self._facts if sg.atoms_of(f.poly) == names and not _has_radicals(f.poly)]
        polys = [poly, *(fact.poly for fact in facts)]
        unit = lcm(*(e.denominator for p in polys for e in sg.exponents(p, name)))
        sign = self._algebra.sign(name)
        if unit > 1 and sign == "?":
            return False
        conditions: list[Condition] = []
        if sign != "?":
            relation = Relation.POSITIVE if sign == "+" else Relation.NONNEGATIVE
            conditions.append((fmpz_poly([0, 1]), relation))
        goal, *assumed = [_polynomial(p, name, unit) for p in polys]
        conditions += [(p, _relation(fact.strict)) for p, fact in zip(assumed, facts, strict=True)]
        try:
            found = first_failure(conditions, (goal, _relation(strict))) is None
        except UndecidedError:
            return False
        if found:
            self.used.add(f"real roots of polynomials in {name}")
        return found

    # Several variables: certificates

    def _by_certificate(self, poly: Poly, strict: bool, work: int) -> bool:
        names = self._algebra.inside_of_sum(poly)
        facts = [fact for fact in self._facts if self._algebra.inside_of_sum(fact.poly) & names]
        try:
            orthant = Orthant(self._algebra, self._bounds, [poly, *(fact.poly for fact in facts)])
            goal, *moved = orthant.moved
            kept = [Fact(p, f.strict) for p, f in zip(moved, facts, strict=True)]
            search = Positivity(orthant.sign, kept)
            found = search.shows(goal, strict, work)
        except TooLargeError:
            return False
        if found:
            self.used |= search.used
        return found

    # Roots of sums: squared away

    def _by_squaring(self, poly: Poly, strict: bool, radicals: int) -> bool:
        """Show A + C r >= 0 for a square root r = sqrt(B): A, C >= 0; or A >= 0, A^2 >= C^2 B; or C >= 0, C^2 B >= A^2."""
        for name, rest, factor in self._radicals(poly):
            gap = self._gap(name, rest, factor)
            for side, difference in ((rest, gap), (factor, sg.scale(gap, -1))):
                if self._shows_sum(side, False, radicals) and self._shows_sum(difference, strict, radicals):
                    self.used.add("squaring")
                    return True
        return False


def _has_radicals(poly: Poly) -> bool:
    return any(name[0] == "#" for monomial in poly for name, _ in monomial)


def _range_facts(name: str, bounds: Bounds) -> list[Fact]:
    found = []
    if bounds.low is not None and bounds.low != 0:
        found.append(Fact(sg.add(sg.atom(name), sg.constant(bounds.low), -1), bounds.low_open))
    if bounds.high is not None:
        found.append(Fact(sg.add(sg.constant(bounds.high), sg.atom(name), -1), bounds.high_open))
    return found


def _relation(strict: bool) -> Relation:
    return Relation.POSITIVE if strict else Relation.NONNEGATIVE


def _polynomial(poly: Poly, name: str, unit: int) -> fmpz_poly:
    """Return a sum in one atom x as a polynomial in x^(1/unit), up to a positive factor."""
    least = min(sg.exponents(poly, name))
    lift = Fraction(0) if least >= 0 else -least
    if lift and (lift * unit) % 2:  # an even power, which is positive whatever the sign
        lift += Fraction(1, unit)
    denominator = lcm(*(c.denominator for c in poly.values()))
    degrees = {int((e + lift) * unit): c for e, c in zip(sg.exponents(poly, name), poly.values(), strict=True)}
    if max(degrees) > 200:
        raise TooLargeError
    return fmpz_poly([int(degrees.get(k, Fraction(0)) * denominator) for k in range(max(degrees) + 1)])
