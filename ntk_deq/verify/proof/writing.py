"""Write normal forms back as terms."""

from __future__ import annotations

from fractions import Fraction

from ntk_deq.verify.proof import signomial as sg
from ntk_deq.verify.proof.algebra import Algebra, Quotient
from ntk_deq.verify.proof.signomial import Monomial, Poly
from ntk_deq.verify.proof.terms import Term, Terms


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
        parts = [self._monomial(m, sg.fraction(c)) for m, c in sg.key_of(sg.shift(poly, common, -1))]
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
