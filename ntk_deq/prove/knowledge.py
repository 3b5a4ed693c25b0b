"""What is known in one case of a claim: ranges, facts, and normal forms that rest on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Self

from ntk_deq.prove import signomial as sg
from ntk_deq.prove.algebra import Algebra, Quotient, Writer, radicals
from ntk_deq.prove.enclosure import Derivatives
from ntk_deq.prove.orthant import Bounds, Orthant
from ntk_deq.prove.positivity import Fact, Positivity
from ntk_deq.prove.problem import Atom, Both, Formula, Relation, Variable
from ntk_deq.prove.signomial import Poly, TooLargeError
from ntk_deq.prove.terms import Term, Terms, below

TOTAL_WORK = 120_000
"""Terms written down for one case of a goal, about two seconds."""


class Knowledge(ABC):
    """Ranges of variables and facts about sums of monomials; how a sum is shown to be positive is left open.

    Args:
        terms: Makes the terms.
        variables: The variables with their ranges.
        work: Terms that may be written down in all.

    Attributes:
        terms: Makes the terms.
        used: Names of the arguments that led to a proof.
    """

    def __init__(self, terms: Terms, variables: Iterable[Variable], work: int = TOTAL_WORK) -> None:
        self.terms = terms
        self._derivatives = Derivatives(terms)
        self._bounds = {v.name: Bounds(v.low, v.high, v.low_open, v.high_open) for v in variables}
        self._atoms: list[Atom] = []
        self._work = [work]  # what is left; children draw on the same
        self.used: set[str] = set()
        self._renew()

    def _renew(self) -> None:
        """Make all normal forms anew, after the signs of variables have become known."""
        self._algebra = Algebra(self._sign, self._plainly_positive, self._nonnegative)
        self._known: dict[tuple[sg.Key, bool, int], bool] = {}
        self._facts = [fact for name, bounds in self._bounds.items() for fact in _range_facts(name, bounds)]
        for atom in self._atoms:
            self._note(atom)

    def _child(self, bounds: Mapping[str, Bounds]) -> Self:
        """Return a copy with other ranges, which draws on the same work."""
        child = type(self)(self.terms, ())
        child._work = self._work
        child._bounds = dict(bounds)
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

    @abstractmethod
    def _shows_sum(self, poly: Poly, strict: bool, steps: int) -> bool:
        """Say whether a sum is >= 0 (> 0 if `strict`), with at most so many larger steps."""


def _range_facts(name: str, bounds: Bounds) -> list[Fact]:
    found = []
    if bounds.low is not None and bounds.low != 0:
        found.append(Fact(sg.add(sg.atom(name), sg.constant(bounds.low), -1), bounds.low_open))
    if bounds.high is not None:
        found.append(Fact(sg.add(sg.constant(bounds.high), sg.atom(name), -1), bounds.high_open))
    return found
