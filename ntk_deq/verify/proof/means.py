"""Take terms that may be negative from weighted means of others: |m| <= w p + (1 - w) q where |m| = p^w q^(1 - w)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from flint import fmpq

from ntk_deq.verify.proof import signomial as sg
from ntk_deq.verify.proof.signomial import Monomial, Poly

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
    pairs = {m: _pairs(m, given) for m in needed}
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
    names = sorted(given)
    for index, p in enumerate(names):
        for q in names[index + 1 :]:
            weight = _weight(monomial, p, q)
            if weight is not None:
                found.append(Pair(p, q, weight))
    return found


def _weight(monomial: Monomial, p: Monomial, q: Monomial) -> Fraction | None:
    """Return w with monomial = p^w q^(1 - w) and 0 < w < 1, or None."""
    m, first, second = dict(monomial), dict(p), dict(q)
    weight: Fraction | None = None
    for name in m.keys() | first.keys() | second.keys():
        low, high, value = second.get(name, 0), first.get(name, 0), m.get(name, 0)
        if low == high:
            if value != low:
                return None
            continue
        here = Fraction(value - low) / (high - low)
        if not 0 < here < 1 or weight not in (None, here):
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
