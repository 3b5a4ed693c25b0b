"""Eigenvectors that an equation gives: `S*v == lambda_max(S)*v` says which v it is but for its length.

Such an equation is singular wherever it holds: of its n numbers one follows from the others. For a proof the eigenvalue
is one number more to solve for. The n equations S v = mu v for n + 1 numbers are regular where mu is simple; afterwards
v must not be zero, and mu must be the eigenvalue that the equation names, not another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flint import arb

from ntk_deq.language.domain import Free
from ntk_deq.language.symmetry import parity, sign_by_domain, structure
from ntk_deq.language.tree import Expr, Formula, Kind, sum_terms

_EXTREMES = frozenset({"lambda_min", "lambda_max"})


@dataclass(frozen=True)
class Eigenvalue:
    """The smallest or largest eigenvalue of a symmetric matrix, in an equation that gives its vector.

    Attributes:
        factor: How the equation names it.
        call: What it is: a call of lambda_min or lambda_max.
        vector: The variable that is the vector.
    """

    factor: Expr
    call: Expr
    vector: str

    @property
    def matrix(self) -> Expr:
        """The matrix."""
        return self.call.args[0]

    def is_meant(self, value: arb, spectrum: Sequence[arb], vector: Sequence[arb]) -> bool:
        """Whether a number for which S v = mu v holds is this eigenvalue for certain.

        Args:
            value: The number.
            spectrum: The eigenvalues of the matrix, smallest first.
            vector: The entries of v.
        """
        if not any(entry != 0 for entry in vector):
            return False
        if self.call.name == "lambda_max":
            return all(value > other for other in spectrum[:-1])
        return all(value < other for other in spectrum[1:])


def eigenvalue_in(left: Expr, right: Expr, free: Mapping[str, Free], lets: Mapping[str, Formula]) -> Eigenvalue | None:
    """Return the eigenvalue whose vector an equation gives, if it is of that form.

    Args:
        left: One side of the equation.
        right: The other side.
        free: The variables that equations may give.
        lets: The claim's definitions.
    """
    terms = [(sign, term) for sign, term in (*sum_terms(left, 1), *sum_terms(right, -1)) if not _is_zeros(term)]
    if any(term.kind is not Kind.MULTIPLY or term.args[1].kind is not Kind.NAME for _, term in terms):
        return None
    vectors = {term.args[1].name for _, term in terms}
    factors = [(sign, term.args[0]) for sign, term in terms]
    if len(factors) == 1:  # (S - lambda_max(S)*I(n))*v
        factors = [(sign, _unscaled(factor)) for sign, factor in sum_terms(factors[0][1], 1)]
    if len(factors) != 2 or factors[0][0] == factors[1][0] or len(vectors) != 1 or not vectors <= free.keys():
        return None
    for (_, matrix), (_, factor) in (factors, factors[::-1]):
        call = lets[factor.name].expr if factor.kind is Kind.NAME and factor.name in lets else factor
        if (
            call.kind is Kind.CALL
            and call.name in _EXTREMES
            and structure(call.args[0]) == structure(matrix)
            and parity(matrix, sign_by_domain(free), {name: let.expr for name, let in lets.items()}) == 1
        ):
            return Eigenvalue(factor, call, *vectors)
    return None


def _is_zeros(expr: Expr) -> bool:
    return expr.kind is Kind.CALL and expr.name == "zeros"


def _unscaled(expr: Expr) -> Expr:
    """Return the factor of a multiple of the identity; any other formula as it is."""
    if expr.kind is Kind.MULTIPLY and expr.args[1].kind is Kind.CALL and expr.args[1].name == "I":
        return expr.args[0]
    return expr
