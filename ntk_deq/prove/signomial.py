"""Sums of monomials with rational exponents: the normal form in which exact arguments are made.

A monomial is a product of atoms with exponents. Atoms are text, so that monomials sort and compare: a variable `x`; a
prime `#2`, whose exponent stays in [0, 1) and which carries the roots of whole numbers; `exp{m}`; `log{a}`; and `[p]`,
a polynomial p >= 0 of which a root is taken, whose exponent stays in (0, 1). Radicals of different products of primes
are linearly independent over the rationals (Besicovitch 1940), so a coefficient is zero only where it is written as
zero.

In one variable, inequalities are decided by the signs on the cells between real roots; sums in a single atom are
polynomials in a root of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product, takewhile
from typing import cast

import flint
from flint import acb, arb, fmpq, fmpz, fmpz_poly

from ntk_deq.certified.functions import power
from ntk_deq.certified.scalar import PRECISION
from ntk_deq.prove import simplest
from ntk_deq.prove.problem import Relation, holds

Exponent = int | Fraction  # a whole one is an int
Monomial = tuple[tuple[str, Exponent], ...]
Poly = dict[Monomial, fmpq]
Key = frozenset[tuple[Monomial, fmpz, fmpz]]
Number = int | Fraction | fmpq

UNIT: Monomial = ()
_ONE = fmpq(1)
MAX_TERMS = 1_500
"""Terms of a sum; larger ones are left to branch and bound."""
MAX_DEGREE = 60
"""Whole exponent to which a sum is multiplied out."""
_PRIMES = 10_000  # by so many, up to 104,729, a number is divided
_MOST_PRIME = 10**10  # what is left below this is prime


class TooLargeError(Exception):
    """An expression is too large for its normal form, or has none; or roots could not be told apart."""


def rational(value: Number) -> fmpq:
    """Return a number as a coefficient."""
    return fmpq(value.numerator, value.denominator) if isinstance(value, Fraction) else fmpq(value)


def fraction(value: fmpq) -> Fraction:
    """Return a coefficient as a fraction."""
    return Fraction(int(value.numerator), int(value.denominator))


def _short(exponent: Exponent) -> Exponent:
    return exponent.numerator if exponent.denominator == 1 else exponent


def constant(value: Number) -> Poly:
    """Return a number as a sum."""
    return {UNIT: rational(value)} if value else {}


def atom(name: str, exponent: Exponent = 1) -> Poly:
    """Return a power of an atom as a sum."""
    return {((name, _short(exponent)),): fmpq(1)} if exponent else constant(1)


def key_of(poly: Poly) -> Key:
    """Return a hashable form."""
    return frozenset((m, c.p, c.q) for m, c in poly.items())  # python-flint makes a Fraction to hash a fmpq


def shown(poly: Poly) -> str:
    """Return a sum as text, the same for equal sums.

    Example:
        >>> shown(add(atom("x", 2), constant(-1)))
        '-1+1*x^2'
    """
    return "+".join("*".join([str(c), *(f"{a}^{e}" for a, e in m)]) for m, c in sorted(poly.items())) or "0"


def add(left: Poly, right: Poly, factor: Number = 1) -> Poly:
    """Return left + factor * right."""
    total = dict(left)
    multiple = rational(factor)
    for monomial, coefficient in right.items():
        _accumulate(total, monomial, multiple * coefficient)
    return _limited(total)


def _accumulate(total: Poly, monomial: Monomial, coefficient: fmpq) -> None:
    value = total.get(monomial, 0) + coefficient
    if value:
        total[monomial] = value
    else:
        total.pop(monomial, None)


def scale(poly: Poly, factor: Number) -> Poly:
    """Return factor * poly."""
    multiple = rational(factor)
    return {m: c * multiple for m, c in poly.items()} if factor else {}


def times(left: Monomial, right: Monomial, exponent: Exponent = 1) -> tuple[Monomial, fmpq]:
    """Return the product left * right^exponent: a monomial and a rational factor that primes give off."""
    if not right or not exponent:
        return left, _ONE
    exponents = dict(left)
    factor = _ONE
    for name, e in right:
        e = exponents.get(name, 0) + e * exponent
        if name[0] == "#" and (e >= 1 or e < 0):
            whole = e.numerator // e.denominator
            factor *= fmpq(int(name[1:])) ** whole
            e -= whole
        exponents[name] = e if isinstance(e, int) else _short(e)
    return tuple(sorted([item for item in exponents.items() if item[1]])), factor


def multiply(left: Poly, right: Poly) -> Poly:
    """Return the product; exponents of `[p]` may reach 1, see `Algebra.reduced`."""
    if len(left) * len(right) > 40 * MAX_TERMS:
        raise TooLargeError
    total: Poly = {}
    for (m, c), (n, d) in product(left.items(), right.items()):
        monomial, factor = times(m, n)
        _accumulate(total, monomial, c * d * factor)
    return _limited(total)


def shift(poly: Poly, monomial: Monomial, exponent: Exponent = 1) -> Poly:
    """Return poly * monomial^exponent."""
    moved: Poly = {}
    for m, c in poly.items():
        new, factor = times(m, monomial, exponent)
        _accumulate(moved, new, c * factor)
    return moved


def _limited(poly: Poly) -> Poly:
    if len(poly) > MAX_TERMS:
        raise TooLargeError
    return poly


def whole_power(poly: Poly, exponent: int) -> Poly:
    """Return poly^exponent for a whole exponent >= 0."""
    if len(poly) == 1:
        ((m, c),) = poly.items()
        if exponent * c.height_bits() > 10_000:
            raise TooLargeError
        monomial, factor = times(UNIT, m, exponent)
        return {monomial: c**exponent * factor}
    if exponent > MAX_DEGREE:
        raise TooLargeError
    result = constant(1)
    for _ in range(exponent):
        result = multiply(result, poly)
    return result


def atoms_of(poly: Poly) -> set[str]:
    """Return the atoms of a sum, primes left out."""
    return {name for monomial in poly for name, _ in monomial if name[0] != "#"}


def exponents(poly: Poly, name: str) -> list[Exponent]:
    """Return the exponents with which an atom occurs, 0 included where a term lacks it."""
    return [dict(monomial).get(name, 0) for monomial in poly]


def content(poly: Poly) -> Monomial:
    """Return the largest monomial, without primes, that divides every term."""
    found = []
    for name in sorted(atoms_of(poly)):
        least = min(exponents(poly, name))
        if least:
            found.append((name, least))
    return tuple(found)


def primitive(poly: Poly) -> tuple[Fraction, Poly]:
    """Return a rational factor and a sum with coprime whole coefficients whose first term is positive."""
    if not poly:
        return Fraction(1), {}
    top = math.gcd(*(int(c.numerator) for c in poly.values()))
    bottom = math.lcm(*(int(c.denominator) for c in poly.values()))
    factor = Fraction(top, bottom) * (1 if poly[min(poly)] > 0 else -1)
    return factor, scale(poly, 1 / factor)


def split_primes(monomial: Monomial) -> tuple[Monomial, Monomial]:
    """Return the primes of a monomial, and the rest."""
    primes = tuple(takewhile(lambda item: item[0][0] == "#", monomial))
    return primes, monomial[len(primes) :]


def collected(poly: Poly) -> Iterator[tuple[Monomial, int, tuple[Monomial, ...]]]:
    """Yield each monomial without its primes, the sign of its coefficient, and the terms that make it up."""
    groups: dict[Monomial, list[Monomial]] = {}
    for monomial in sorted(poly):
        groups.setdefault(split_primes(monomial)[1], []).append(monomial)
    for rest, members in groups.items():
        if len(members) == 1:
            yield rest, 1 if poly[members[0]] > 0 else -1, tuple(members)
        else:
            yield rest, _radical_sign({split_primes(m)[0]: poly[m] for m in members}), tuple(members)


def _radical_sign(terms: Poly) -> int:
    """Return the sign of a sum of rational multiples of radicals, which is not zero; 0 where the balls cannot tell."""
    total = arb(0)
    for primes, c in terms.items():
        value = arb(c)
        for name, e in primes:
            value *= power(arb(int(name[1:])), Fraction(e))
        total += value
    return 1 if total > 0 else -1 if total < 0 else 0


def prime_factors(number: int) -> list[tuple[int, int]]:
    """Return the prime factors of a number >= 1 and how often each divides it.

    Raises:
        TooLargeError: One of them is too large to look for.
    """
    found = [(int(prime), count) for prime, count in fmpz(number).factor(trial_limit=_PRIMES)]
    if any(prime > _MOST_PRIME for prime, _ in found):  # it may be a product of primes that were not tried
        raise TooLargeError
    return found


def root_of_rational(value: Fraction, exponent: Fraction) -> Poly:
    """Return value^exponent for a rational value > 0 as a number times roots of primes.

    Example:
        >>> shown(root_of_rational(Fraction(24), Fraction(1, 2)))
        '2*#2^1/2*#3^1/2'
    """
    result = constant(1)
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        for prime, multiplicity in prime_factors(number):
            monomial, factor = times(UNIT, ((f"#{prime}", 1),), sign * multiplicity * exponent)
            result = multiply(result, {monomial: factor})
    return result


def split(poly: Poly, name: str) -> dict[Exponent, Poly]:
    """Return the coefficients of a sum as one in an atom, by its exponents.

    Example:
        >>> parts = split(add(atom("x", 2), constant(3)), "x")
        >>> {str(e): shown(p) for e, p in parts.items()}
        {'2': '1', '0': '3'}
    """
    parts: dict[Exponent, Poly] = {}
    for monomial, c in poly.items():
        exponent = dict(monomial).get(name, 0)
        rest = tuple(item for item in monomial if item[0] != name)
        parts.setdefault(exponent, {})[rest] = c
    return parts


def total(polys: Iterable[Poly]) -> Poly:
    """Return the sum of several sums."""
    result: Poly = {}
    for poly in polys:
        result = add(result, poly)
    return result


@dataclass(frozen=True)
class Fact:
    """A sum known to be >= 0, or > 0."""

    poly: Poly
    strict: bool


MOST_ROOTS = 80
"""Degree of one polynomial; isolating the roots of a larger one takes too long."""

_MAX_BITS = 8_192

Condition = tuple[fmpz_poly, Relation]


@dataclass(frozen=True)
class _Root:
    ball: arb
    factor: fmpz_poly

    @property
    def exact(self) -> Fraction | None:
        """The root where it is rational."""
        if self.factor.degree() != 1:
            return None
        return Fraction(-int(self.factor[0]), int(self.factor[1]))

    def bounds(self) -> tuple[Fraction, Fraction]:
        exact = self.exact
        return (exact, exact) if exact is not None else (_rational(self.ball.lower()), _rational(self.ball.upper()))


def follows(assumed: Sequence[Condition], goal: Condition) -> bool:
    """Say whether a goal holds at every real number at which all conditions hold.

    Args:
        assumed: Polynomials and how they stand to zero.
        goal: The same.

    Raises:
        TooLargeError: A polynomial is too large, or roots could not be told apart.

    Example:
        >>> square = fmpz_poly([1, -2, 1])  # x^2 - 2x + 1
        >>> follows([], (square, Relation.NONNEGATIVE)), follows([], (square, Relation.POSITIVE))
        (True, False)
    """
    conditions = [*assumed, goal]
    if any(poly.degree() > MOST_ROOTS for poly, _ in conditions):
        raise TooLargeError
    factors: list[fmpz_poly] = []
    for poly, _ in conditions:
        if poly.degree() >= 1:
            factors += [factor for factor, _ in poly.factor()[1] if factor not in factors]
    bits = PRECISION
    while bits <= _MAX_BITS:
        with flint.ctx.workprec(bits):
            roots = _separated_roots(factors)
            found = None if roots is None else _scan(conditions, roots)
        if found is not None:
            return found
        bits *= 2
    raise TooLargeError


def _separated_roots(factors: Sequence[fmpz_poly]) -> list[_Root] | None:
    """Return the real roots of irreducible polynomials in order, or None where their balls meet at this precision."""
    roots = []
    for factor in factors:
        found = cast(list[tuple[acb, int]], factor.complex_roots())  # python-flint's stub leaves the pairs out
        for ball, _ in found:
            if ball.imag.is_zero():
                roots.append(_Root(ball.real, factor))
            elif ball.imag.contains(0):
                return None
    roots.sort(key=lambda root: _rational(root.ball.mid()))
    bounds = [root.bounds() for root in roots]
    return None if any(high >= low for (_, high), (low, _) in pairwise(bounds)) else roots


def _scan(conditions: Sequence[Condition], roots: Sequence[_Root]) -> bool | None:
    """Say whether the last condition holds between all roots and at them where the others do; None if that is open."""
    ends: list[Fraction | None] = [None, *(end for root in roots for end in root.bounds()), None]
    cells = [simplest(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True)]
    if any(_fails(conditions, [_sign_at(poly, inside) for poly, _ in conditions]) for inside in cells):
        return False
    for root in roots:
        signs = [_sign_at_root(poly, root) for poly, _ in conditions]
        if None in signs:
            return None
        if _fails(conditions, [sign or 0 for sign in signs]):
            return False
    return True


def _fails(conditions: Sequence[Condition], signs: Sequence[int]) -> bool:
    """Say whether all conditions but the last hold, and the last does not."""
    stands = [holds(relation, sign) for (_, relation), sign in zip(conditions, signs, strict=True)]
    return all(stands[:-1]) and not stands[-1]


def _sign_at(poly: fmpz_poly, point: Fraction) -> int:
    value = poly(fmpq(point.numerator, point.denominator))
    return int(value > 0) - int(value < 0)


def _sign_at_root(poly: fmpz_poly, root: _Root) -> int | None:
    if poly.degree() < 0 or poly % root.factor == 0:
        return 0
    exact = root.exact
    if exact is not None:
        return _sign_at(poly, exact)
    value = poly(root.ball)
    return None if value.contains(0) else 1 if value > 0 else -1


def _rational(value: arb) -> Fraction:
    return fraction(value.fmpq())


def positive_by_roots(poly: Poly, strict: bool, facts: Sequence[Fact], sign: str) -> bool:
    """Say whether a sum in one atom is >= 0 (> 0 if `strict`) wherever those of the facts hold that are in it alone.

    Args:
        poly: The sum.
        strict: Whether it must not be zero.
        facts: What is known; sums in other atoms are left aside.
        sign: What is known of the sign of the atom: `+`, `0` for >= 0, `?`.

    Example:
        >>> target = add(atom("x", 2), constant(-4))
        >>> positive_by_roots(target, False, [Fact(add(atom("x"), constant(-2)), False)], "?")
        True
    """
    names = atoms_of(poly)
    if len(names) != 1 or _has_primes(poly):
        return False
    (name,) = names
    kept = [fact for fact in facts if atoms_of(fact.poly) == names and not _has_primes(fact.poly)]
    unit = math.lcm(*(e.denominator for p in (poly, *(f.poly for f in kept)) for e in exponents(p, name)))
    if unit > 1 and sign == "?":
        return False
    try:
        conditions: list[Condition] = [(_polynomial(f.poly, name, unit), _relation(f.strict)) for f in kept]
        if sign != "?":
            conditions.append((fmpz_poly([0, 1]), _relation(sign == "+")))
        return follows(conditions, (_polynomial(poly, name, unit), _relation(strict)))
    except TooLargeError:
        return False


def _has_primes(poly: Poly) -> bool:
    return any(name[0] == "#" for monomial in poly for name, _ in monomial)


def _relation(strict: bool) -> Relation:
    return Relation.POSITIVE if strict else Relation.NONNEGATIVE


def _polynomial(poly: Poly, name: str, unit: int) -> fmpz_poly:
    """Return a sum in one atom x as a polynomial in x^(1/unit), times a positive number and an even power of x."""
    degrees = exponents(poly, name)
    least = min(degrees)
    lift = 0 if least >= 0 else -2 * (least // 2)
    denominator = math.lcm(*(int(c.denominator) for c in poly.values()))
    terms = {int((e + lift) * unit): c for e, c in zip(degrees, poly.values(), strict=True)}
    if max(terms) > MOST_ROOTS:
        raise TooLargeError
    return fmpz_poly([int(terms.get(k, 0) * denominator) for k in range(max(terms) + 1)])
