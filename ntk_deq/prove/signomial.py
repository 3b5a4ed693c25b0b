"""Sums of monomials with rational exponents: the normal form in which exact arguments are made.

A monomial is a product of atoms with exponents. Atoms are text, so that monomials sort and compare: a variable `x`; a
prime `#2`, whose exponent stays in [0, 1) and which carries the roots of whole numbers; `exp{m}`; `log{a}`; and `[p]`,
a polynomial p >= 0 of which a root is taken, whose exponent stays in (0, 1). Radicals of different products of primes
are linearly independent over the rationals (Besicovitch 1940), so a coefficient is zero only where it is written as
zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product

from flint import arb, fmpq

from ntk_deq.certified.functions import power

Exponent = int | Fraction  # a whole one is an int
Monomial = tuple[tuple[str, Exponent], ...]
Poly = dict[Monomial, fmpq]
Key = tuple[tuple[Monomial, fmpq], ...]
Number = int | Fraction | fmpq

UNIT: Monomial = ()
MAX_TERMS = 1_500
"""Terms of a sum; larger ones are left to branch and bound."""
MAX_DEGREE = 60
"""Whole exponent to which a sum is multiplied out."""


class TooLargeError(Exception):
    """An expression is too large for its normal form, or has none."""


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
    """Return a hashable form: the terms in order."""
    return tuple(sorted(poly.items()))


def shown(poly: Poly) -> str:
    """Return a sum as text, the same for equal sums.

    Example:
        >>> shown(add(atom("x", 2), constant(-1)))
        '-1+1*x^2'
    """
    return "+".join("*".join([str(c), *(f"{a}^{e}" for a, e in m)]) for m, c in key_of(poly)) or "0"


def add(left: Poly, right: Poly, factor: Number = 1) -> Poly:
    """Return left + factor * right."""
    total = dict(left)
    multiple = rational(factor)
    for monomial, coefficient in right.items():
        _accumulate(total, monomial, multiple * coefficient)
    return _limited(total)


def _accumulate(total: Poly, monomial: Monomial, coefficient: fmpq) -> None:
    value = total.get(monomial)
    value = coefficient if value is None else value + coefficient
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
        return left, fmpq(1)
    exponents = dict(left)
    for name, e in right:
        exponents[name] = _short(exponents.get(name, 0) + e * exponent)
    factor = fmpq(1)
    for name, e in list(exponents.items()):
        if name[0] == "#" and (e >= 1 or e < 0):
            whole = e.numerator // e.denominator
            factor *= fmpq(int(name[1:])) ** whole
            exponents[name] = _short(e - whole)
    return tuple(sorted((name, e) for name, e in exponents.items() if e)), factor


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


def _radical_sign(terms: Poly) -> int:
    """Return the sign of a sum of rational multiples of radicals, which is not zero; 0 where the balls cannot tell."""
    total = arb(0)
    for primes, c in terms.items():
        value = arb(c)
        for name, e in primes:
            value *= power(arb(int(name[1:])), Fraction(e))
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
            monomial, factor = times(UNIT, ((f"#{prime}", 1),), sign * multiplicity * exponent)
            result = multiply(result, {monomial: factor})
    return result


def total(polys: Iterable[Poly]) -> Poly:
    """Return the sum of several sums."""
    result: Poly = {}
    for poly in polys:
        result = add(result, poly)
    return result
