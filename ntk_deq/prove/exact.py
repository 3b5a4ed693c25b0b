"""Exact arguments for one case of a claim: facts are learnt, and statements shown from them.

What is known in a case are ranges, facts, and normal forms that rest on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ntk_deq.prove import Derivatives, Side, Term, Terms, below
from ntk_deq.prove import signomial as sg
from ntk_deq.prove.algebra import Algebra, Quotient, Writer, radicals
from ntk_deq.prove.positivity import Orthant, Positivity
from ntk_deq.prove.problem import Atom, Both, Formula, Relation, opposite
from ntk_deq.prove.signomial import Fact, Poly, TooLargeError, positive_by_roots

TOTAL_WORK = 120_000
"""Terms written down for one case of a goal, about two seconds."""


_GLANCE, _LOOK, _THOROUGH = 400, 2_500, 30_000  # terms written down in one search for a certificate
_STEPS = 3  # roots that are squared away, or bounds that are put in the place of a variable, one after the other
_HALVES = 3  # variables of either sign that are looked at on each half of the line
_SIGNED = (Relation.POSITIVE, Relation.NONNEGATIVE)


class Exact:
    """What follows from what is known in one case: ranges of variables and facts about sums of monomials.

    Args:
        terms: Makes the terms.
        bounds: The ranges of the variables.
        work: Terms that may be written down in all.

    Attributes:
        terms: Makes the terms.
        used: Names of the arguments that led to a proof.

    Example:
        >>> from ntk_deq.prove import Terms
        >>> terms = Terms()
        >>> x = terms.variable("x")
        >>> square = terms.power(terms.subtract(x, terms.one), Fraction(2))
        >>> Exact(terms, {"x": Side(None, None)}).shows(Atom(square, Relation.NONNEGATIVE))
        True
    """

    def __init__(self, terms: Terms, bounds: Mapping[str, Side], work: int = TOTAL_WORK) -> None:
        self.terms = terms
        self._derivatives = Derivatives(terms)
        self._bounds = dict(bounds)
        self._atoms: list[Atom] = []
        self._work = [work]  # what is left; children draw on the same
        self._halves = _HALVES
        self.used: set[str] = set()
        self._renew()

    def _renew(self) -> None:
        """Make all normal forms anew, after the signs of variables have become known."""
        self._algebra = Algebra(self._sign, self._plainly_positive, self._nonnegative)
        self._known: dict[tuple[sg.Key, bool, int], bool] = {}
        self._facts = [fact for name, bounds in self._bounds.items() for fact in _range_facts(name, bounds)]
        for atom in self._atoms:
            self._note(atom)

    def _child(self, bounds: Mapping[str, Side], halves: int) -> Exact:
        """Return a copy with other ranges, which draws on the same work."""
        child = Exact(self.terms, bounds)
        child._work, child._halves = self._work, halves
        child._atoms = list(self._atoms)
        child._renew()
        return child

    def _sign(self, name: str) -> str:
        return self._bounds[name].sign if name in self._bounds else "?"

    def start(self, work: int) -> None:
        """Begin a new question: forget which arguments were used, and allow so much work."""
        self.used.clear()
        self._work[0] = work

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
        if atom.relation is Relation.NONZERO:
            return
        try:
            poly = self._cleared(self._algebra.normal(atom.term))
            for sign in (1, -1) if atom.relation is Relation.ZERO else (1,):
                fact = Fact(sg.scale(poly, sign), atom.relation is Relation.POSITIVE)
                self._facts += [fact, *self._squared(fact)]
                self._tighten(fact)
        except TooLargeError:
            return
        self._known.clear()

    def _squared(self, fact: Fact) -> list[Fact]:
        """Return A^2 - C^2 B >= 0 for a fact A + C r >= 0 in which A >= 0 >= C and r is the square root of B."""
        return [
            Fact(radical.gap, fact.strict)
            for radical in radicals(self._algebra, fact.poly)
            if self._nonnegative(radical.rest) and self._nonnegative(sg.scale(radical.factor, -1))
        ]

    def _tighten(self, fact: Fact) -> None:
        """Use a fact a + b x >= 0 as a bound of x."""
        names = sg.atoms_of(fact.poly)
        if len(names) != 1 or not names <= self._bounds.keys():
            return
        (name,) = names
        line = ((name, 1),)
        if not fact.poly.keys() <= {line, sg.UNIT}:
            return
        slope, bounds = fact.poly[line], self._bounds[name]
        end = sg.fraction(-fact.poly.get(sg.UNIT, sg.rational(0)) / slope)
        self._bounds[name] = bounds.above(end, fact.strict) if slope > 0 else bounds.beneath(end, fact.strict)

    def is_zero(self, term: Term) -> bool:
        """Say whether a term is zero everywhere, as its normal form tells; False where it has none."""
        try:
            return not self._algebra.normal(term).numerator
        except TooLargeError:
            return False

    def rewritten(self, term: Term) -> Term:
        """Return a term in its normal form where that is no longer than it is."""
        try:
            found = Writer(self.terms, self._algebra).quotient(self._algebra.normal(term))
        except TooLargeError:
            return term
        return found if len(below(found)) <= len(below(term)) else term

    def cleared(self, term: Term) -> Term | None:
        """Return a term without divisors and positive factors that stands to zero as a given one does."""
        try:
            poly = self._without_content(self._cleared(self._algebra.normal(term)))
            return Writer(self.terms, self._algebra).sum(poly)
        except TooLargeError:
            return None

    def _cleared(self, quotient: Quotient) -> Poly:
        """Return a sum that stands to zero as the quotient does: divisors are multiplied out."""
        poly = quotient.numerator
        for divisor, count in quotient.divisors.values():
            if count % 2 == 0:
                continue
            for sign in (1, -1):
                if self._shows_sum(sg.scale(divisor, sign), True, 0):
                    poly = sg.scale(poly, sign)
                    break
            else:
                poly = self._algebra.times(poly, divisor)
        return poly

    def _nonnegative(self, poly: Poly) -> bool:
        return self._shows_sum(poly, False, 0)

    def _plainly_positive(self, poly: Poly) -> bool:
        try:
            orthant = Orthant(self._algebra, self._bounds, [poly])
        except TooLargeError:
            return False
        return Positivity(orthant.sign, ()).plainly(orthant.moved[0], True)

    def _without_content(self, poly: Poly) -> Poly:
        """Divide by the positive monomials that all terms have in common."""
        common = tuple(i for i in sg.content(poly) if self._algebra.sign(i[0]) == "+" and i[0][0] != "[")
        return sg.shift(poly, common, -1)

    def shows(self, formula: Formula) -> bool:
        """Say whether a statement follows from what is known."""
        if any(bounds.empty for bounds in self._bounds.values()):
            return True
        if isinstance(formula, Both):
            return all(self.shows(part) for part in formula.parts)
        if isinstance(formula, Atom):
            try:
                return self._shows_atom(formula)
            except TooLargeError:
                return False
        parts = formula.parts
        return any(self.shows(part) for part in parts) or any(
            self._shows_without(parts[:k] + parts[k + 1 :], part) for k, part in enumerate(parts)
        )

    def _shows_without(self, others: tuple[Formula, ...], part: Formula) -> bool:
        """Show one part of a disjunction where all others fail."""
        child = self._child(self._bounds, self._halves)
        for other in others:
            child.learn(opposite(other, self.terms))
        found = child.shows(part)
        self.used |= child.used if found else set()
        return found

    def _shows_atom(self, atom: Atom) -> bool:
        poly = self._cleared(self._algebra.normal(atom.term))
        if self._follows(poly, atom.relation) or self._by_term_bounds(atom, poly, _STEPS):
            return True
        if atom.relation in _SIGNED and self._by_certificate(poly, atom.relation is Relation.POSITIVE, _THOROUGH):
            return True
        return self._halves > 0 and self._by_halves(atom, poly)

    def _follows(self, poly: Poly, relation: Relation) -> bool:
        match relation:
            case Relation.POSITIVE:
                return self._shows_sum(poly, True)
            case Relation.NONNEGATIVE:
                return self._shows_sum(poly, False)
            case Relation.ZERO:
                if not poly:
                    self.used.add("equal normal forms")
                    return True
                return all(self._shows_sum(sg.scale(poly, sign), False) for sign in (1, -1))
            case _:
                return any(self._shows_sum(sg.scale(poly, sign), True) for sign in (1, -1))

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

    def _shows_sum(self, poly: Poly, strict: bool, steps: int = _STEPS) -> bool:
        key = (sg.key_of(poly), strict, steps)
        if key not in self._known:
            self._known[key] = False  # for the time of the search
            self._known[key] = self._search(poly, strict, steps)
        return self._known[key]

    def _search(self, poly: Poly, strict: bool, steps: int) -> bool:
        if not poly:
            return not strict
        poly = self._without_content(poly)
        if self._by_roots(poly, strict) or self._by_certificate(poly, strict, _LOOK if steps else _GLANCE):
            return True
        if steps == 0 or self._work[0] <= 0:
            return False
        return self._by_bounds(poly, strict, steps - 1) or self._by_squaring(poly, strict, steps - 1)

    def _by_roots(self, poly: Poly, strict: bool) -> bool:
        names = sg.atoms_of(poly)
        if len(names) != 1:
            return False
        (name,) = names
        found = name[0] != "[" and positive_by_roots(poly, strict, self._facts, self._algebra.sign(name))
        if found:
            self.used.add("real roots of polynomials")
        return found

    def _by_certificate(self, poly: Poly, strict: bool, work: int) -> bool:
        names = self._algebra.inside_of_sum(poly)
        facts = [fact for fact in self._facts if self._algebra.inside_of_sum(fact.poly) & names]
        self._work[0] -= len(poly) + sum(len(fact.poly) for fact in facts)
        try:
            orthant = Orthant(self._algebra, self._bounds, [poly, *(fact.poly for fact in facts)])
            goal, *moved = orthant.moved
            search = Positivity(orthant.sign, [Fact(p, f.strict) for p, f in zip(moved, facts, strict=True)])
            found = search.shows(goal, strict, min(work, max(self._work[0], 1)))
        except TooLargeError:
            return False
        self._work[0] -= search.spent
        if found:
            self.used |= search.used
        return found

    def _by_squaring(self, poly: Poly, strict: bool, steps: int) -> bool:
        """Show A + C r >= 0 for a root r = sqrt(B) by A >= 0 and A^2 >= C^2 B, or by C >= 0 and C^2 B >= A^2."""
        for radical in radicals(self._algebra, poly):
            for side, gap in ((radical.rest, radical.gap), (radical.factor, sg.scale(radical.gap, -1))):
                if self._shows_sum(side, False, steps) and self._shows_sum(gap, strict, steps):
                    self.used.add("squaring")
                    return True
        return False

    # Bounds in the place of variables

    def _by_bounds(self, poly: Poly, strict: bool, steps: int) -> bool:
        """Put a bound of a power of a variable in its place where the sum only shrinks by it, and show what is left."""
        for fact in list(self._facts):
            for name in sorted(sg.atoms_of(poly) & sg.atoms_of(fact.poly) & self._bounds.keys()):
                left = self._lowered(poly, fact.poly, name)
                if left is not None and left != poly and self._shows_sum(left, strict, steps):
                    self.used.add("bounds in the place of variables")
                    return True
        return False

    def _lowered(self, poly: Poly, fact: Poly, name: str) -> Poly | None:
        """Return a sum with x^e at the bound that A x^e + B >= 0 gives it, or None where it may grow by that."""
        bound = self._bound_that_lowers(poly, fact, name)
        if bound is None:
            return None
        (degree,) = set(sg.exponents(fact, name)) - {0}
        total = Quotient({}, {})
        try:
            for exponent, c in sg.split(poly, name).items():
                raised = self._algebra.raised(bound, Fraction(exponent) / degree)
                total = self._algebra.plus(total, self._algebra.product(Quotient(c, {}), raised))
            return self._cleared(total)
        except TooLargeError:
            return None

    def _bound_that_lowers(self, poly: Poly, fact: Poly, name: str) -> Quotient | None:
        """Return the bound of x^e from a fact A x^e + B >= 0, if each term of the sum is least there."""
        read = self._read(poly, fact, name)
        if read is None:
            return None
        slope, rest = read
        if not self._shows_sum(rest, self._falls(poly, fact, name), 0):
            return None
        return self._algebra.product(Quotient(rest, {}), self._algebra.inverse(Quotient(slope, {})))

    def _falls(self, poly: Poly, fact: Poly, name: str) -> bool:
        """Say whether a power of x^e in the sum is negative, e being the exponent in the fact."""
        (degree,) = set(sg.exponents(fact, name)) - {0}
        return any(e * degree < 0 for e in sg.exponents(poly, name))

    def _read(self, poly: Poly, fact: Poly, name: str) -> tuple[Poly, Poly] | None:
        """Read a fact as x^e >= rest/slope, or <=, where each term of the sum is least at equality; else None."""
        degrees = set(sg.exponents(fact, name)) - {0}
        if len(degrees) != 1 or self._sign(name) == "?" or self._buried(name, poly) or self._buried(name, fact):
            return None
        (degree,) = degrees
        parts = sg.split(fact, name)
        for side in (1, -1):
            slope = sg.scale(parts[degree], side)
            if self._shows_sum(slope, True, 0):
                signed = [sg.scale(c, side if e * degree > 0 else -side) for e, c in sg.split(poly, name).items() if e]
                if not all(map(self._nonnegative, signed)):
                    return None
                return slope, sg.scale(parts.get(0, {}), -side)
        return None

    def _buried(self, name: str, poly: Poly) -> bool:
        """Say whether a variable stands inside of an atom of a sum."""
        return any(name in self._algebra.inside(other) for other in sg.atoms_of(poly))

    def _by_term_bounds(self, atom: Atom, poly: Poly, steps: int) -> bool:
        """Do as `_by_bounds` with the terms as written, whose roots and powers may go together."""
        if steps == 0 or atom.relation not in _SIGNED or self._work[0] <= 0:
            return False
        terms = self.terms
        for known in [a for a in self._atoms if a.relation in _SIGNED]:
            for name in sorted(known.term.variables & atom.term.variables):
                value = self._derivatives.root(known.term, name)
                fact = self._cleared(self._algebra.normal(known.term))
                if value is None or self._read(poly, fact, name) is None or self._falls(poly, fact, name):
                    continue
                if not self._algebra.known_nonnegative(value):
                    continue
                smaller = Atom(terms.substitute(atom.term, {terms.variable(name): value}), atom.relation)
                left = self._cleared(self._algebra.normal(smaller.term))
                if self._follows(left, atom.relation) or self._by_term_bounds(smaller, left, steps - 1):
                    self.used.add("bounds in the place of variables")
                    return True
        return False


def _range_facts(name: str, bounds: Side) -> list[Fact]:
    found = []
    if bounds.low is not None and bounds.low != 0:
        found.append(Fact(sg.add(sg.atom(name), sg.constant(bounds.low), -1), bounds.low_open))
    if bounds.high is not None:
        found.append(Fact(sg.add(sg.constant(bounds.high), sg.atom(name), -1), bounds.high_open))
    return found
