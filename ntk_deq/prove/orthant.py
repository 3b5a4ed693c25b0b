"""Carry sums over to variables that are positive, or not negative: x = a + s, x = (a + b s)/(1 + s), x = s^(1/q).

On the positive orthant a sum whose coefficients are all positive is positive. On an interval this is the test of
Bernstein's coefficients: (1 + s)^n p((a + b s)/(1 + s)) has them, up to binomial factors, as its coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from ntk_deq.prove import signomial as sg
from ntk_deq.prove.algebra import Algebra
from ntk_deq.prove.signomial import Monomial, Poly
from ntk_deq.prove.terms import floor_root, rational_power

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
