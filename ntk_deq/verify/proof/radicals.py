"""Square roots of sums: a sum written as A + C r with r = sqrt(B), so that it can be compared by its squares."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from ntk_deq.verify.proof import signomial as sg
from ntk_deq.verify.proof.algebra import Algebra
from ntk_deq.verify.proof.signomial import Exponent, Poly

_HALF = Fraction(1, 2)


class Radical(NamedTuple):
    """A sum A + C r: `rest` is A, `factor` is C, `gap` is A^2 - C^2 B."""

    rest: Poly
    factor: Poly
    gap: Poly


def radicals(algebra: Algebra, poly: Poly) -> Iterator[Radical]:
    """Yield each way of writing a sum as A + C r for the square root r of a sum B.

    Args:
        algebra: Knows the atoms of the sum.
        poly: The sum.
    """
    for name in sorted(n for n in sg.atoms_of(poly) if n[0] == "["):
        if not set(sg.exponents(poly, name)) <= {0, _HALF}:
            continue
        parts = split(poly, name)
        rest, factor = parts.get(0, {}), parts[_HALF]
        square = algebra.times(algebra.times(factor, factor), algebra.bases[name])
        yield Radical(rest, factor, sg.add(algebra.times(rest, rest), square, -1))


def split(poly: Poly, name: str) -> dict[Exponent, Poly]:
    """Return the coefficients of a sum as one in an atom, by its exponents.

    Example:
        >>> parts = split(sg.add(sg.atom("x", 2), sg.constant(3)), "x")
        >>> {str(e): sg.shown(p) for e, p in parts.items()}
        {'2': '1', '0': '3'}
    """
    parts: dict[Exponent, Poly] = {}
    for monomial, c in poly.items():
        exponent = dict(monomial).get(name, 0)
        rest = tuple(item for item in monomial if item[0] != name)
        parts.setdefault(exponent, {})[rest] = c
    return parts
