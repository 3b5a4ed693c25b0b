"""The truth about a matrix of floats, in whole numbers and rationals: no rounding, hence nothing to believe.

A float matrix is a matrix of whole numbers times a power of two. Eigenvalues of a symmetric one are counted exactly on
either side of any number: the characteristic polynomial has real roots only, and then Descartes' rule of signs, applied
to the polynomial moved to that number, is an equality.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import flint
import torch
from flint import acb, arb, arb_mat, arf, fmpz_mat, fmpz_poly
from torch import Tensor

PRECISIONS = (512, 2048, 8192)
"""Bits tried for what is not rational: inverses and complex roots."""


def whole(tensor: Tensor) -> tuple[fmpz_mat, int]:
    """Return whole numbers W and an exponent e with tensor = W 2^e."""
    parts = [value.as_integer_ratio() for value in tensor.double().reshape(-1).tolist()]
    shift = max(bottom for _, bottom in parts).bit_length() - 1
    numbers = [top << (shift - bottom.bit_length() + 1) for top, bottom in parts]
    return fmpz_mat(tensor.shape[0], tensor.shape[1], numbers), -shift


def dyadic(value: float | arb) -> tuple[int, int]:
    """Return an exact number as mantissa and exponent."""
    mantissa, exponent = (value if isinstance(value, arb) else arb(value)).man_exp()
    return int(mantissa), int(exponent)


def distance_exceeds(truth: tuple[fmpz_mat, int], centre: Tensor, radius: float) -> bool:
    """Return whether the Frobenius distance of an exact matrix to a centre is larger than a radius, exactly."""
    (exact, unit), (near, other) = truth, whole(centre)
    low = min(unit, other)
    gap = [
        (int(a) << (unit - low)) - (int(b) << (other - low))
        for a, b in zip(exact.entries(), near.entries(), strict=True)
    ]
    total = sum(value * value for value in gap)
    mantissa, exponent = dyadic(radius)
    return _larger(total, 2 * low, mantissa * mantissa, 2 * exponent)


def _larger(a: int, a_exponent: int, b: int, b_exponent: int) -> bool:
    low = min(a_exponent, b_exponent)
    return a << (a_exponent - low) > b << (b_exponent - low)


class Spectrum:
    """Counts of the eigenvalues of a symmetric matrix W 2^e below and above exact numbers."""

    def __init__(self, matrix: fmpz_mat, exponent: int) -> None:
        self.order = matrix.nrows()
        self.exponent = exponent
        self._coefficients = [int(c) for c in matrix.charpoly().coeffs()]

    def _moved(self, value: float | arb) -> list[int]:
        """Return the coefficients of the polynomial whose roots are (eigenvalue - value) in some positive unit."""
        mantissa, exponent = dyadic(value)
        exponent -= self.exponent
        n = self.order
        if exponent >= 0:
            scaled, shift = self._coefficients, mantissa << exponent
        else:  # p(t 2^exponent) 2^(-n exponent) has whole coefficients
            scaled = [c << (-exponent * (n - k)) for k, c in enumerate(self._coefficients)]
            shift = mantissa
        moved = fmpz_poly(scaled)(fmpz_poly([shift, 1]))
        return [int(c) for c in moved.coeffs()]

    def above(self, value: float | arb) -> int:
        """Return how many eigenvalues are larger than an exact number."""
        return _sign_changes(self._moved(value))

    def below(self, value: float | arb) -> int:
        """Return how many eigenvalues are smaller than an exact number."""
        return _sign_changes([c * (-1) ** k for k, c in enumerate(self._moved(value))])

    def misses(self, ascending: Sequence[arb]) -> int:
        """Count the balls that do not contain the eigenvalue of their place."""
        bad = 0
        for place, ball in enumerate(ascending):
            if ball.is_finite():
                low, high = ends(ball)
                bad += self.below(low) > place or self.above(high) > self.order - 1 - place
        return bad

    def misses_root(self, place: int, ball: arb) -> bool:
        """Return whether a ball does not contain the square root of the eigenvalue of a place, counted upwards."""
        if not ball.is_finite():
            return False
        low, high = ends(ball)
        if high < 0 or self.above(square(high)) > self.order - 1 - place:
            return True
        return bool(low > 0 and self.below(square(low)) > place)


def ends(ball: arb) -> tuple[arb, arb]:
    """Return exact numbers at or beyond the ends of a ball, by less than 2^-400 of its size."""
    with flint.ctx.workprec(512):
        return ball.lower(), ball.upper()


def square(value: arb) -> arb:
    """Return the exact square of an exact number."""
    mantissa, exponent = dyadic(value)
    return arb(arf((mantissa * mantissa, 2 * exponent)))


def _sign_changes(coefficients: Sequence[int]) -> int:
    signs = [c > 0 for c in coefficients if c]
    return sum(a != b for a, b in itertools.pairwise(signs))


def gram_spectrum(tensor: Tensor) -> Spectrum:
    """Return the spectrum of A'A or A A', whichever is smaller."""
    matrix, exponent = whole(tensor if tensor.shape[0] >= tensor.shape[1] else tensor.mT)
    return Spectrum(matrix.transpose() * matrix, 2 * exponent)


def symmetric_spectrum(tensor: Tensor) -> Spectrum:
    """Return the spectrum of a matrix that equals its transpose."""
    return Spectrum(*whole(tensor))


def complex_roots(tensor: Tensor) -> list[acb]:
    """Return balls around the eigenvalues of a square matrix, each as often as its multiplicity."""
    matrix, exponent = whole(tensor)
    unit = arb(arf((1, exponent)))
    with flint.ctx.workprec(PRECISIONS[0]):
        return [root * unit for root, times in matrix.charpoly().complex_roots() for _ in range(int(times))]


def outside(found: arb_mat, centre: Tensor, radius: float) -> bool | None:
    """Return whether every matrix of an arb matrix is farther from a centre than a radius; None: not decided."""
    near = centre.double().reshape(-1).tolist()
    total = sum(((a - b) * (a - b) for a, b in zip(found.entries(), near, strict=True)), arb(0))
    limit = arb(radius) * arb(radius)
    return True if total > limit else False if total <= limit else None


def inverse_outside(matrix: Tensor, centre: Tensor, radius: float) -> bool | None:
    """Return whether the inverse of a matrix is outside a ball; None: not decided."""
    for bits in PRECISIONS:
        with flint.ctx.workprec(bits):
            exact = arb_mat(*matrix.shape, [arb(v) for v in matrix.double().reshape(-1).tolist()])
            try:
                found = exact.inv()
            except ZeroDivisionError:
                continue
            verdict = outside(found, centre, radius)
        if verdict is not None:
            return verdict
    return None if radius else not _inverts(matrix, centre)


def _inverts(matrix: Tensor, centre: Tensor) -> bool:
    """Return whether matrix centre is the identity in whole numbers."""
    (a, low), (x, other) = whole(matrix), whole(centre)
    one, unit = whole(torch.eye(a.nrows()))
    return bool(a * x * (1 << max(0, low + other - unit)) == one * (1 << max(0, unit - low - other)))
