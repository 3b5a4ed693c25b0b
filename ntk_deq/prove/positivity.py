"""Show that a sum of monomials is positive: signs of coefficients, means, factors, and hypotheses times monomials.

A certificate writes the sum as c_1 m_1 h_1 + ... + c_k m_k h_k plus a sum that is plainly not negative, with numbers
c_i > 0, monomials m_i >= 0 and hypotheses h_i >= 0 (Handelman 1988, with monomials for the products of hypotheses).
Plainly not negative are positive multiples of monomials >= 0, less what a geometric mean takes from two of them.

Take terms that may be negative from weighted means of others: |m| <= w p + (1 - w) q where |m| = p^w q^(1 - w).

On the positive orthant a sum whose coefficients are all positive is positive. Variables that are positive, or not
negative, are carried over: x = a + s, x = (a + b s)/(1 + s), x = s^(1/q). On an interval this is Bernstein's test:
(1 + s)^n p((a + b s)/(1 + s)) has them, up to binomial factors, as its coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from flint import Ordering, fmpq, fmpz, fmpz_mpoly_ctx

from ntk_deq.prove import Side, rational_power
from ntk_deq.prove import signomial as sg
from ntk_deq.prove.algebra import Algebra
from ntk_deq.prove.signomial import Fact, Monomial, Poly, TooLargeError

MOST_NEEDED, MOST_GIVEN = 12, 24
"""Terms to be taken away, and terms that can give; with more, no means are tried."""

_BITS = 30  # to which the share that a geometric mean takes is rounded, upward
_HALF = Fraction(1, 2)


class Pair(NamedTuple):
    """Two terms between which a third one lies: m = p^weight q^(1 - weight)."""

    p: Monomial
    q: Monomial
    weight: Fraction


def after_means(given: Poly, needed: Poly) -> Poly | None:
    """Return what is left of nonnegative terms after others are taken from them, or None where they do not suffice.

    Args:
        given: Terms that are >= 0, with coefficients > 0; no roots of numbers.
        needed: Terms whose absolute values are taken away.

    Example:
        >>> squares = sg.add(sg.atom("x", 2), sg.atom("y", 2))
        >>> product = sg.multiply(sg.atom("x"), sg.atom("y"))
        >>> after_means(squares, sg.scale(product, -2)), after_means(squares, sg.scale(product, 3)) is None
        ({}, True)
    """
    if len(needed) > MOST_NEEDED or len(given) > MOST_GIVEN:
        return None
    pairs: dict[Monomial, list[Pair]] = {}
    for monomial in needed:
        pairs[monomial] = _pairs(monomial, given)
        if not pairs[monomial]:
            return None
    left = dict(given)
    for monomial in sorted(needed, key=lambda m: (len(pairs[m]), m)):
        need = abs(needed[monomial])
        for pair in pairs[monomial]:
            if need and pair.p in left and pair.q in left:
                need = _take(left, pair, need)
        if need:
            return None
    return left


def _pairs(monomial: Monomial, given: Poly) -> list[Pair]:
    found = []
    middle = dict(monomial)
    for p, q in combinations([(p, dict(p)) for p in sorted(given)], 2):
        weight = _weight(middle, p[1], q[1])
        if weight is not None:
            found.append(Pair(p[0], q[0], weight))
    return found


_Exponents = Mapping[str, sg.Exponent]


def _weight(m: _Exponents, p: _Exponents, q: _Exponents) -> Fraction | None:
    """Return w with m = p^w q^(1 - w) and 0 < w < 1, or None."""
    weight: Fraction | None = None
    for name in {**m, **p, **q}:
        low, high, value = q.get(name, 0), p.get(name, 0), m.get(name, 0)
        if low == value == high:
            continue
        if not (low < value < high or high < value < low):
            return None
        here = Fraction(value - low) / (high - low)
        if weight not in (None, here):
            return None
        weight = here
    return weight


def _take(left: Poly, pair: Pair, need: fmpq) -> fmpq:
    """Take need * p^w q^(1 - w) from the terms p and q; return what is still needed."""
    weight = sg.rational(pair.weight)
    shares = {pair.p: weight * need, pair.q: (1 - weight) * need}  # the arithmetic mean with these weights
    still = fmpq(0)
    if any(left[m] < share for m, share in shares.items()):
        if pair.weight != _HALF:
            return need
        square = 4 * left[pair.p] * left[pair.q]  # (2 sqrt(a b))^2: what both can give together, squared
        part = fmpq(1)
        if square <= need * need:
            still = need - _root_down(square)
        else:
            part = min(part, need / _root_down(square))
        shares = {m: left[m] * part for m in shares}
    for monomial, share in shares.items():
        left[monomial] -= share
        if not left[monomial]:
            del left[monomial]
    return still


def _root_down(value: fmpq) -> fmpq:
    """Return a rational number that is at most the square root, and equal to it where that is rational."""
    top, bottom = int(value.numerator * value.denominator), int(value.denominator)
    exact = math.isqrt(top)
    if exact * exact == top:
        return fmpq(exact, bottom)
    return fmpq(math.isqrt(top << (2 * _BITS)), bottom << _BITS)


_TRIED = 8  # rests for which means are tried at once
_FACTOR_TERMS, _FACTOR_DEGREE = 120, 30  # beyond them factoring is not tried
_FACTOR_DEPTH = 3  # multiples of hypotheses in that of a factor
_DEPTH = 12  # multiples of hypotheses in one certificate


class _Step(NamedTuple):
    """What is left after a multiple of a hypothesis, if that is > 0 for sure, and its terms that may be negative."""

    rest: Poly
    surely: bool
    negative: list[Monomial]


class Positivity:
    """Searches for certificates.

    Args:
        sign: Gives the sign of a monomial: `+`, `0` for >= 0, `?`.
        facts: The hypotheses.

    Attributes:
        used: Names of the arguments that led to a proof.
        spent: Terms that the last search wrote down.
    """

    def __init__(self, sign: Callable[[Monomial], str], facts: Sequence[Fact]) -> None:
        self._sign = sign
        self._facts = [(fact, self._negative_terms(fact.poly)) for fact in facts]
        self._left = 0
        self.spent = 0
        self._failed: set[tuple[sg.Key, bool]] = set()
        self.used: set[str] = set()

    def shows(self, poly: Poly, strict: bool, work: int) -> bool:
        """Say whether a sum is >= 0 (> 0 if `strict`) by a certificate that is found while `work` terms are written."""
        self._left = work
        self._failed.clear()
        found = self._shows(poly, strict, _DEPTH, self._negative_terms(poly))
        self.spent = work - self._left
        return found

    def _shows(self, poly: Poly, strict: bool, depth: int, negative: list[Monomial]) -> bool:
        if self._left <= 0 or (key := (sg.key_of(poly), strict)) in self._failed:
            return False
        self._left -= len(poly)
        if self._plainly(poly, strict, negative):
            return True
        steps = self._steps(poly, negative) if depth > 0 else []
        if any(self._plainly(rest, strict and not surely, left) for rest, surely, left in steps[:_TRIED]) or any(
            self._by_signs(rest, strict and not surely, left) for rest, surely, left in steps[_TRIED:]
        ):
            self.used.add("multiples of hypotheses")
            return True
        if depth > 0 and (self._by_factors(poly, strict, depth) or self._by_steps(steps, strict, depth)):
            return True
        self._failed.add(key)
        return False

    def _negative_terms(self, poly: Poly) -> list[Monomial]:
        """Return the terms that are not plainly >= 0."""
        found = []
        for rest, sign, members in sg.collected(poly):
            if sign <= 0 or self._sign(rest) == "?":
                found += list(members)
        return found

    def plainly(self, poly: Poly, strict: bool) -> bool:
        """Say whether a sum is >= 0 (> 0 if `strict`) by the signs of its coefficients and geometric means."""
        return self._plainly(poly, strict, self._negative_terms(poly))

    def _plainly(self, poly: Poly, strict: bool, negative: list[Monomial]) -> bool:
        if self._by_signs(poly, strict, negative):
            return True
        left = self._after_means(poly, negative)
        if left is None or (strict and not any(self._sign(m) == "+" for m in left)):
            return False
        self.used.add("geometric means")
        return True

    def _by_signs(self, poly: Poly, strict: bool, negative: list[Monomial]) -> bool:
        if negative:
            return False
        if strict and not any(self._sign(rest) == "+" for rest, _, _ in sg.collected(poly)):
            return False
        self.used.add("signs of coefficients")
        return True

    def _after_means(self, poly: Poly, negative: list[Monomial]) -> Poly | None:
        """Take each term that may be negative from means of others; return what is left, or None where that fails."""
        if any(name[0] == "#" for monomial in poly for name, _ in monomial):
            return None
        needed = {m: poly[m] for m in negative}
        self._left -= len(poly)
        return after_means({m: c for m, c in poly.items() if m not in needed}, needed)

    def _by_factors(self, poly: Poly, strict: bool, depth: int) -> bool:
        """Show the sign of every factor of the sum."""
        factors = factored(poly)
        if len(factors) < 2 and all(count == 1 for _, count in factors):
            return False
        total = 1
        for factor, count in factors:
            sign = self._factor_sign(factor, strict, min(depth, _FACTOR_DEPTH), even=count % 2 == 0)
            if sign == 0:
                return False
            total *= sign**count
        if total > 0:
            self.used.add("factors")
        return total > 0

    def _factor_sign(self, factor: Poly, strict: bool, depth: int, *, even: bool) -> int:
        if even and not strict:
            return 1
        for sign in (1, -1):
            signed = sg.scale(factor, sign)
            negative = self._negative_terms(signed)
            if self._plainly(signed, strict, negative):
                return sign
            if len(factor) > 1 and self._by_steps(self._steps(signed, negative), strict, depth - 1):
                return sign
        return 0

    def _by_steps(self, steps: Sequence[_Step], strict: bool, depth: int) -> bool:
        for rest, surely, negative in steps:
            if self._shows(rest, strict and not surely, depth - 1, negative):
                self.used.add("multiples of hypotheses")
                return True
        return False

    def _steps(self, poly: Poly, negative: list[Monomial]) -> list[_Step]:
        """Take multiples of hypotheses away that cancel a negative term; return what is left, the simplest first."""
        steps: list[_Step] = []
        for fact, targets in self._facts:
            places = [(goal, target) for goal in negative for target in targets]
            places += [(m, m) for m in fact.poly if m in poly and m not in targets]  # the hypothesis itself
            for goal, target in places:
                self._left -= len(fact.poly)
                step = self._step(poly, fact, goal, target) if self._left > 0 else None
                if step is not None:
                    self._left -= len(step[0])
                    steps.append(_Step(*step, self._negative_terms(step[0])))
        return sorted(steps, key=lambda step: (len(step.negative), len(step.rest)))

    def _step(self, poly: Poly, fact: Fact, goal: Monomial, target: Monomial) -> tuple[Poly, bool] | None:
        """Return poly - c m h so that the goal's term cancels, and whether m h is > 0; None where m is not >= 0."""
        multiplier, _ = sg.times(goal, target, -1)
        sign = self._sign(multiplier)
        product = sg.shift(fact.poly, multiplier)
        if sign == "?" or poly[goal] / product.get(goal, poly[goal] * -1) <= 0:
            return None
        return sg.add(poly, product, -poly[goal] / product[goal]), fact.strict and sign == "+"


def factored(poly: Poly) -> list[tuple[Poly, int]]:
    """Return irreducible factors and their multiplicities, a number as the first one where it is not 1.

    Roots of atoms count as variables of their own. A sum that is too large is returned whole.

    Example:
        >>> square = sg.total([sg.atom("x", 2), sg.constant(1), sg.scale(sg.atom("x"), -2)])
        >>> [(sg.shown(factor), count) for factor, count in factored(square)]
        [('-1+1*x^1', 2)]
    """
    names = sorted({name for monomial in poly for name, _ in monomial})
    units = {n: math.lcm(*(e.denominator for e in sg.exponents(poly, n))) for n in names}
    below = tuple((n, low) for n in names if (low := min(sg.exponents(poly, n))) < 0)
    if below:
        return [(sg.shift(sg.constant(1), below), 1), *factored(sg.shift(poly, below, -1))]
    degrees = {m: tuple(int(dict(m).get(n, 0) * units[n]) for n in names) for m in poly}
    if len(poly) > _FACTOR_TERMS or not names or max(sum(d) for d in degrees.values()) > _FACTOR_DEGREE:
        return [(poly, 1)]
    number, core = sg.primitive(poly)
    context = fmpz_mpoly_ctx.get([f"v{k}" for k in range(len(names))], Ordering.lex)
    try:
        unit, found = context.from_dict({degrees[m]: int(c) for m, c in core.items()}).factor()
    except OverflowError:  # python-flint 0.9 sorts the factors by coefficients as machine words
        return [(poly, 1)]
    factors = [(_back(dict(f.to_dict()), names, units), count) for f, count in found]
    lead = number * int(unit)
    return factors if lead == 1 else [(sg.constant(lead), 1), *factors]


def _back(terms: Mapping[tuple[int, ...], fmpq | fmpz], names: list[str], units: dict[str, int]) -> Poly:
    poly: Poly = {}
    for degrees, c in terms.items():
        monomial = tuple((n, Fraction(int(d), units[n])) for n, d in zip(names, degrees, strict=True) if d)
        poly = sg.add(poly, sg.shift(sg.constant(1), monomial), fmpq(c))
    return poly


_LARGEST_ROOT = 24
_ROOT_BITS = 40  # to which the root of a bound is rounded, outward


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

    def __init__(self, algebra: Algebra, bounds: Mapping[str, Side], polys: Sequence[Poly]) -> None:
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

    def _move(self, name: str, bounds: Side) -> None:
        degrees = [e for poly in self.moved for e in sg.exponents(poly, name)]
        root = math.lcm(*(e.denominator for e in degrees))
        if root > 1:
            if bounds.sign == "?" or root > _LARGEST_ROOT:
                return
            low, high = _root(bounds.low, root, up=False), _root(bounds.high, root, up=True)
            bounds = replace(bounds, low=low, high=high)
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
        raised = poly
        if root > 1:
            raised = {tuple((n, int(e * root) if n == name else e) for n, e in m): c for m, c in poly.items()}
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
    floor = int(fmpz(math.floor(scaled)).root(degree))
    return Fraction(floor + up, 2**_ROOT_BITS)


Linear = tuple[Fraction, Fraction]  # a + b s


def _change(bounds: Side) -> tuple[Linear, Linear, str] | None:
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
        raise TooLargeError
    upper = sg.add(sg.constant(top[0]), sg.atom(name), top[1])
    lower = sg.add(sg.constant(bottom[0]), sg.atom(name), bottom[1])
    result: Poly = {}
    for exponent, coefficient in sg.split(poly, name).items():
        factor = sg.multiply(sg.whole_power(upper, int(exponent)), sg.whole_power(lower, degree - int(exponent)))
        result = sg.add(result, sg.multiply(coefficient, factor))
    return result
