"""Sums in a single atom as polynomials in a root of it, decided by their real roots."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from flint import fmpz_poly

from ntk_deq.verify.proof import signomial as sg
from ntk_deq.verify.proof.formulas import Relation
from ntk_deq.verify.proof.positivity import Fact
from ntk_deq.verify.proof.signomial import Poly, TooLargeError
from ntk_deq.verify.proof.univariate import MAX_DEGREE, Condition, UndecidedError, first_failure


def positive_by_roots(poly: Poly, strict: bool, facts: Sequence[Fact], sign: str) -> bool:
    """Say whether a sum in one atom is >= 0 (> 0 if `strict`) wherever those of the facts hold that are in it alone.

    Args:
        poly: The sum.
        strict: Whether it must not be zero.
        facts: What is known; sums in other atoms are left aside.
        sign: What is known of the sign of the atom: `+`, `0` for >= 0, `?`.

    Example:
        >>> target = sg.add(sg.atom("x", 2), sg.constant(-4))
        >>> positive_by_roots(target, False, [Fact(sg.add(sg.atom("x"), sg.constant(-2)), False)], "?")
        True
    """
    names = sg.atoms_of(poly)
    if len(names) != 1 or _has_primes(poly):
        return False
    (name,) = names
    kept = [fact for fact in facts if sg.atoms_of(fact.poly) == names and not _has_primes(fact.poly)]
    unit = lcm(*(e.denominator for p in (poly, *(f.poly for f in kept)) for e in sg.exponents(p, name)))
    if unit > 1 and sign == "?":
        return False
    try:
        conditions: list[Condition] = [(_polynomial(f.poly, name, unit), _relation(f.strict)) for f in kept]
        if sign != "?":
            conditions.append((fmpz_poly([0, 1]), _relation(sign == "+")))
        return first_failure(conditions, (_polynomial(poly, name, unit), _relation(strict))) is None
    except (UndecidedError, TooLargeError):
        return False


def _has_primes(poly: Poly) -> bool:
    return any(name[0] == "#" for monomial in poly for name, _ in monomial)


def _relation(strict: bool) -> Relation:
    return Relation.POSITIVE if strict else Relation.NONNEGATIVE


def _polynomial(poly: Poly, name: str, unit: int) -> fmpz_poly:
    """Return a sum in one atom x as a polynomial in x^(1/unit), times a positive number and an even power of x."""
    exponents = sg.exponents(poly, name)
    least = min(exponents)
    lift = 0 if least >= 0 else -2 * (least // 2)
    denominator = lcm(*(int(c.denominator) for c in poly.values()))
    degrees = {int((e + lift) * unit): c for e, c in zip(exponents, poly.values(), strict=True)}
    if max(degrees) > MAX_DEGREE:
        raise TooLargeError
    return fmpz_poly([int(degrees.get(k, 0) * denominator) for k in range(max(degrees) + 1)])
