"""Signs of polynomials: carried over to the positive orthant, and in one variable between real roots.

On the positive orthant a sum whose coefficients are all positive is positive. Variables that are positive, or not
negative, are carried over: x = a + s, x = (a + b s)/(1 + s), x = s^(1/q). On an interval this is Bernstein's test:
 (1 + s)^n p((a + b s)/(1 + s)) has them, up to binomial factors, as its coefficients.

In one variable, inequalities are decided by the signs on the cells between real roots; sums in a single atom are
polynomials in a root of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import lcm
from typing import cast

import flint
from flint import acb, arb, fmpq, fmpz_poly

from ntk_deq.certified.scalar import PRECISION
from ntk_deq.prove import floor_root, rational_power
from ntk_deq.prove import signomial as sg
from ntk_deq.prove.algebra import Algebra
from ntk_deq.prove.positivity import Fact
from ntk_deq.prove.problem import Relation, holds
from ntk_deq.prove.signomial import Monomial, Poly, TooLargeError

_LARGEST_ROOT = 24
_ROOT_BITS = 40  # to which the root of a bound is rounded, outward


@dataclass(frozen=True)
class Bounds:
    """What is known of the range of a variable; None is infinity."""

    low: Fraction | None = None
    high: Fraction | None = None
    low_open: bool = False
    high_open: bool = False

    @property
    def sign(self) -> str:
        """What is known of its sign: `+`, `0` for >= 0, `?`."""
        if self.low is None or self.low < 0:
            return "?"
        return "+" if self.low > 0 or self.low_open else "0"

    @property
    def empty(self) -> bool:
        """Whether no number is left."""
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def above(self, low: Fraction, is_open: bool) -> Bounds:
        """Return the part that is >= low, or > low."""
        if self.low is not None and (self.low, self.low_open) >= (low, is_open):
            return self
        return Bounds(low, self.high, is_open, self.high_open)

    def beneath(self, high: Fraction, is_open: bool) -> Bounds:
        """Return the part that is <= high, or < high."""
        if self.high is not None and (-self.high, self.high_open) >= (-high, is_open):
            return self
        return Bounds(self.low, high, self.low_open, is_open)


class Orthant:
    """Sums in new variables of known sign.

    Args:
        algebra: Gives the signs of the atoms and what they contain.
        bounds: Ranges of the variables.
        polys: The sums; those of `moved` are positive multiples of them, in the same order.

    Attributes:
        moved: The sums in the new variables, which have the old names and whole exponents >= 0.
        signs: Signs of the new variables.
    """

    def __init__(self, algebra: Algebra, bounds: Mapping[str, Bounds], polys: Sequence[Poly]) -> None:
        self._algebra = algebra
        self.moved = list(polys)
        self.signs: dict[str, str] = {}
        names = sorted(set().union(*(sg.atoms_of(poly) for poly in polys)))
        buried = set().union(*(algebra.inside(name) for name in names if name not in bounds))
        for name in names:
            if name in bounds and name not in buried:
                self._move(name, bounds[name])

    def sign(self, monomial: Monomial) -> str:
        """Return what is known of the sign of a monomial in the new variables."""
        found = "+"
        for name, exponent in monomial:
            sign = self.signs.get(name) or self._algebra.sign(name)
            if sign == "?" and not (exponent.denominator == 1 and exponent.numerator % 2 == 0):
                return "?"
            if sign != "+":
                found = "0"
        return found

    def _move(self, name: str, bounds: Bounds) -> None:
        degrees = [e for poly in self.moved for e in sg.exponents(poly, name)]
        root = reduce(math.lcm, (e.denominator for e in degrees), 1)
        if root > 1:
            if bounds.sign == "?" or root > _LARGEST_ROOT:
                return
            bounds = Bounds(
                _root(bounds.low, root, up=False), _root(bounds.high, root, up=True), bounds.low_open, bounds.high_open
            )
        change = _change(bounds)
        whole = [self._whole(poly, name, root, bounds.sign) for poly in self.moved]
        if change is None:
            self.signs[name] = bounds.sign
            self.moved = whole
            return
        top, bottom, sign = change
        self.moved = [_replaced(poly, name, top, bottom) for poly in whole]
        self.signs[name] = sign

    def _whole(self, poly: Poly, name: str, root: int, sign: str) -> Poly:
        """Multiply every exponent of an atom by `root` and raise all of them to at least 0."""
        raised: Poly = {}
        for monomial, c in poly.items():
            raised[tuple((n, int(e * root) if n == name else e) for n, e in monomial)] = c
        least = min(sg.exponents(raised, name), default=0)
        if least >= 0:
            return raised
        if sign == "?" and least.numerator % 2:
            least -= 1
        return sg.shift(raised, ((name, -least),))


def _root(value: Fraction | None, degree: int, *, up: bool) -> Fraction | None:
    """Return a root of a bound, rounded outward where it is not rational."""
    if value is None:
        return None
    exact = rational_power(value, Fraction(1, degree))
    if exact is not None:
        return exact
    scaled = value * Fraction(2) ** (degree * _ROOT_BITS)
    floor = floor_root(math.floor(scaled), degree)
    return Fraction(floor + up, 2**_ROOT_BITS)


Linear = tuple[Fraction, Fraction]  # a + b s


def _change(bounds: Bounds) -> tuple[Linear, Linear, str] | None:
    """Return x = top/bottom as linear functions of s >= 0 and the sign of s; None where x stays as it is.

    A closed interval stays as it is: its far end would be at infinity (`cases` splits it off).
    """
    low, high = bounds.low, bounds.high
    one = Fraction(1)
    if low is not None and high is not None:
        if bounds.high_open:
            return (low, high), (one, one), "+" if bounds.low_open else "0"
        return ((high, low), (one, one), "0") if bounds.low_open else None
    if low is not None:
        return None if low == 0 else ((low, one), (one, Fraction(0)), "+" if bounds.low_open else "0")
    if high is not None:
        return (high, -one), (one, Fraction(0)), "+" if bounds.high_open else "0"
    return None


def _replaced(poly: Poly, name: str, top: Linear, bottom: Linear) -> Poly:
    """Return bottom^n times poly at name = top/bottom, n being the degree of poly in it."""
    degree = int(max(sg.exponents(poly, name), default=0))
    if degree > sg.MAX_DEGREE:
        raise sg.TooLargeError
    upper = sg.add(sg.constant(top[0]), sg.atom(name), top[1])
    lower = sg.add(sg.constant(bottom[0]), sg.atom(name), bottom[1])
    parts: dict[int, Poly] = {}
    for monomial, c in poly.items():
        exponent = int(dict(monomial).get(name, 0))
        rest = tuple(item for item in monomial if item[0] != name)
        parts.setdefault(exponent, {})[rest] = c
    result: Poly = {}
    for exponent, coefficient in parts.items():
        factor = sg.multiply(sg.whole_power(upper, exponent), sg.whole_power(lower, degree - exponent))
        result = sg.add(result, sg.multiply(coefficient, factor))
    return result


MAX_DEGREE = 80
"""Degree of one polynomial; isolating the roots of a larger one takes too long."""

_MAX_BITS = 8_192


class UndecidedError(Exception):
    """The roots could not be told apart."""


@dataclass(frozen=True)
class Failure:
    """A place where the conditions hold and the goal does not; `point` is None where no short number lies there."""

    point: Fraction | None


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


Condition = tuple[fmpz_poly, Relation]


def first_failure(assumed: Sequence[Condition], goal: Condition, *, whole: bool = False) -> Failure | None:
    """Return a place where every condition holds and the goal does not, or None where there is none on the real line.

    Args:
        assumed: Polynomials and how they stand to zero.
        goal: The same.
        whole: Whether only whole numbers count.

    Raises:
        UndecidedError: A polynomial is too large, or roots could not be told apart.

    Example:
        >>> square = (fmpz_poly([1, -2, 1]), Relation.NONNEGATIVE)  # x^2 - 2x + 1 >= 0
        >>> first_failure([], square) is None
        True
        >>> first_failure([], (square[0], Relation.POSITIVE)).point
        Fraction(1, 1)
    """
    conditions = [*assumed, goal]
    if any(poly.degree() > MAX_DEGREE for poly, _ in conditions):
        raise UndecidedError
    factors = _factors([poly for poly, _ in conditions])
    bits = PRECISION
    while bits <= _MAX_BITS:
        with flint.ctx.workprec(bits):
            roots = _separated_roots(factors, whole=whole)
            if roots is not None:
                failure = _scan(conditions, roots, whole=whole)
                if failure is not _UNCLEAR:
                    return failure
        bits *= 2
    raise UndecidedError


_UNCLEAR = Failure(Fraction(-1))


def _factors(polys: Sequence[fmpz_poly]) -> list[fmpz_poly]:
    found: list[fmpz_poly] = []
    for poly in polys:
        if poly.degree() >= 1:
            found += [factor for factor, _ in poly.factor()[1] if factor not in found]
    return found


def _separated_roots(factors: Sequence[fmpz_poly], *, whole: bool) -> list[_Root] | None:
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
    if any(high >= low for (_, high), (low, _) in pairwise(bounds)):
        return None
    if whole and any(
        low != high and (low.denominator == 1 or math.floor(low) != math.floor(high)) for low, high in bounds
    ):
        return None  # a whole number may lie between a root and an end of its ball
    return roots


def _scan(conditions: Sequence[Condition], roots: Sequence[_Root], *, whole: bool) -> Failure | None:
    ends: list[Fraction | None] = [None, *(end for root in roots for end in root.bounds()), None]
    for low, high in zip(ends[::2], ends[1::2], strict=True):
        inside = _between(low, high, whole=False)
        assert inside is not None
        if _fails(conditions, [_sign_at(poly, inside) for poly, _ in conditions]):
            chosen = _between(low, high, whole=True) if whole else inside
            if chosen is not None:
                return Failure(chosen)
    for root in roots:
        signs = [_sign_at_root(poly, root) for poly, _ in conditions]
        if None in signs:
            return _UNCLEAR
        if _fails(conditions, [sign or 0 for sign in signs]):
            exact = root.exact
            if not whole or (exact is not None and exact.denominator == 1):
                return Failure(exact)
    return None


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


def _between(low: Fraction | None, high: Fraction | None, *, whole: bool) -> Fraction | None:
    """Return the shortest binary fraction strictly between two numbers, or a whole number; None where there is none."""
    if (low is None or low < 0) and (high is None or high > 0):
        return Fraction(0)
    if low is None or low < 0:
        mirrored = _between(-high if high is not None else None, -low if low is not None else None, whole=whole)
        return None if mirrored is None else -mirrored
    step = Fraction(1)
    while True:
        found = math.floor(low / step) * step + step
        if high is None or found < high:
            return found
        if whole:
            return None
        step /= 2


def _rational(value: arb) -> Fraction:
    mantissa, exponent = (int(part) for part in value.man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent


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
