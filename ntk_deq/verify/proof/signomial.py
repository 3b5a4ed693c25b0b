"""Sums of monomials with rational exponents: the normal form in which exact arguments are made.

A monomial is a product of atoms with exponents. Atoms are text, so that monomials sort and compare: a variable `x`; a
prime `#2`, whose exponent stays in [0, 1) and which carries the roots of whole numbers; `exp{m}`; `log{a}`; and `[p]`, a
polynomial p >= 0 of which a root is taken, whose exponent stays in (0, 1). Radicals of different products of primes are
linearly independent over the rationals (Besicovitch 1940), and so a coefficient is zero only where it is written as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product

from flint import arb

from ntk_deq.certified.functions import power
from ntk_deq.certified.scalar import exact

Monomial = tuple[tuple[str, Fraction], ...]
Poly = dict[Monomial, Fraction]
Key = tuple[tuple[Monomial, Fraction], ...]

UNIT: Monomial = ()
MAX_TERMS = 1_500
"""Terms of a sum; larger ones are left to branch and bound."""
MAX_DEGREE = 60
"""Whole exponent to which a sum is multiplied out."""


class TooLargeError(Exception):
    """An expression is too large for its normal form, or has none."""


def constant(value: Fraction | int) -> Poly:
    """Return a number as a sum."""
    return {UNIT: Fraction(value)} if value else {}


def atom(name: str, exponent: Fraction | int = 1) -> Poly:
    """Return a power of an atom as a sum."""
    return {((name, Fraction(exponent)),): Fraction(1)} if exponent else constant(1)


def key_of(poly: Poly) -> Key:
    """Return a hashable form: the terms in order."""
    return tuple(sorted(poly.items()))


def shown(poly: Poly) -> str:
    """Return a sum as text, the same for equal sums.

    Example:
        >>> shown(add(atom("x", 2), constant(-1)))
        '-1+1*x^2'
    """
    return "+".join("*".join([str(c), *(f"{a}^{e}" for a, e in m)]) for m, c in key_of(poly)) or "0"


def add(left: Poly, right: Poly, factor: Fraction | int = 1) -> Poly:
    """Return left + factor * right."""
    total = dict(left)
    for monomial, coefficient in right.items():
        value = total.get(monomial, Fraction(0)) + factor * coefficient
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return _limited(total)


def scale(poly: Poly, factor: Fraction | int) -> Poly:
    """Return factor * poly."""
    return {m: c * factor for m, c in poly.items()} if factor else {}


def times(left: Monomial, right: Monomial, exponent: Fraction | int = 1) -> tuple[Monomial, Fraction]:
    """Return the product left * right^exponent: a monomial and a rational factor that primes give off."""
    exponents = dict(left)
    for name, e in right:
        exponents[name] = exponents.get(name, Fraction(0)) + e * exponent
    factor = Fraction(1)
    for name, e in list(exponents.items()):
        if name[0] == "#" and (e >= 1 or e < 0):
            whole = e.numerator // e.denominator
            factor *= Fraction(int(name[1:])) ** whole
            exponents[name] = e - whole
    return tuple(sorted((name, e) for name, e in exponents.items() if e)), factor


def multiply(left: Poly, right: Poly) -> Poly:
    """Return the product; exponents of `[p]` may reach 1, see `Algebra.reduced`."""
    if len(left) * len(right) > 40 * MAX_TERMS:
        raise TooLargeError
    total: Poly = {}
    for (m, c), (n, d) in product(left.items(), right.items()):
        monomial, factor = times(m, n)
        value = total.get(monomial, Fraction(0)) + c * d * factor
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return _limited(total)


def shift(poly: Poly, monomial: Monomial, exponent: Fraction | int = 1) -> Poly:
    """Return poly * monomial^exponent."""
    moved: Poly = {}
    for m, c in poly.items():
        new, factor = times(m, monomial, exponent)
        moved[new] = moved.get(new, Fraction(0)) + c * factor
    return moved


def _limited(poly: Poly) -> Poly:
    if len(poly) > MAX_TERMS:
        raise TooLargeError
    return poly


def whole_power(poly: Poly, exponent: int) -> Poly:
    """Return poly^exponent for a whole exponent >= 0."""
    if len(poly) == 1:
        ((m, c),) = poly.items()
        if abs(exponent) * max(c.numerator.bit_length(), c.denominator.bit_length()) > 10_000:
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


def exponents(poly: Poly, name: str) -> list[Fraction]:
    """Return the exponents with which an atom occurs, 0 included where a term lacks it."""
    return [dict(monomial).get(name, Fraction(0)) for monomial in poly]


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
    top = bottom = 0
    for c in poly.values():
        top = _gcd(top, c.numerator)
        bottom = c.denominator if not bottom else bottom * c.denominator // _gcd(bottom, c.denominator)
    first = key_of(poly)[0][1]
    factor = Fraction(top, bottom) * (1 if first > 0 else -1)
    return factor, scale(poly, 1 / factor)


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return abs(a)


def split_primes(monomial: Monomial) -> tuple[Monomial, Monomial]:
    """Return the primes of a monomial, and the rest."""
    primes = tuple(item for item in monomial if item[0][0] == "#")
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


def _radical_sign(terms: dict[Monomial, Fraction]) -> int:
    """Return the sign of a sum of rational multiples of radicals, which is not zero; 0 where the balls cannot tell."""
    total = arb(0)
    for primes, c in terms.items():
        value = exact(c)
        for name, e in primes:
            value *= power(arb(int(name[1:])), e)
        total += value
    return 1 if total > 0 else -1 if total < 0 else 0


def prime_factors(number: int) -> dict[int, int] | None:
    """Return the prime factors of a number >= 1, or None where one is too large to look for."""
    found: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= number:
        if divisor > 100_000:
            return None
        while number % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            number //= divisor
        divisor += 1
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found


def root_of_rational(value: Fraction, exponent: Fraction) -> Poly:
    """Return value^exponent for a rational value > 0 as a number times roots of primes.

    Example:
        >>> shown(root_of_rational(Fraction(24), Fraction(1, 2)))
        '2*#2^1/2*#3^1/2'
    """
    result = constant(1)
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        primes = prime_factors(number)
        if primes is None:
            raise TooLargeError
        for prime, multiplicity in primes.items():
            monomial, factor = times(UNIT, ((f"#{prime}", Fraction(1)),), sign * multiplicity * exponent)
            result = multiply(result, {monomial: factor})
    return result


def substitute(poly: Poly, name: str, value: Poly) -> Poly:
    """Return a sum with an atom, all of whose exponents are whole and >= 0, replaced by another sum."""
    result: Poly = {}
    powers: dict[int, Poly] = {}
    for monomial, c in poly.items():
        e = dict(monomial).get(name, Fraction(0))
        rest = tuple(item for item in monomial if item[0] != name)
        degree = int(e)
        if degree not in powers:
            powers[degree] = whole_power(value, degree)
        result = add(result, shift({rest: c}, UNIT) if not degree else multiply({rest: c}, powers[degree]))
    return result


def total(polys: Iterable[Poly]) -> Poly:
    """Return the sum of several sums."""
    result: Poly = {}
    for poly in polys:
        result = add(result, poly)
    return result
