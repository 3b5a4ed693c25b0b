"""The largest and the smallest singular value alone, at the cost of a few matrix products.

Largest: sigma_max^2 is the largest eigenvalue of the Gram matrix of the shorter side. A vector bounds it from below, a
Cholesky factor of t I - Gram from above. Smallest: of a square matrix 1/norm(A^-1), where an approximate inverse R with
norm(I - R A) <= d < 1 gives norm(A^-1) within norm(R)/(1 - d) and norm(R)/(1 + d); of a rectangular one from the Gram
matrix again. Where that is not sharp, and for small matrices, the singular value decomposition serves both.
"""

from __future__ import annotations

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified.ball import Ball
from ntk_deq.certified.definiteness import cholesky_shift, eigenvalues_above
from ntk_deq.certified.functions import maximum, minimum, square_root
from ntk_deq.certified.inversion import approximate_inverse, high_precision_inverse, identity_defect, size_up
from ntk_deq.certified.norms import dyadic, nonnegative
from ntk_deq.certified.products import summing_error
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up
from ntk_deq.certified.scalar import exact, from_bounds, nan, radius, upper, with_radius
from ntk_deq.certified.spectra import (
    exact_singular_values,
    factored_singular_values,
    projection,
    with_exact_rank,
    within_range,
)

_SMALL = 32
"""Up to this many singular values, the decomposition costs less than the Python around it."""

_SHARP, _NARROW = 2.0**-20, 2.0**-28
"""Relative radii of a smallest and a largest singular value; wider ones are worth the SVD."""

_FAINT = 2.0**-500
# More than what underflow changes in sums of products of entries between 2^-200 and 2^200, and of their squares' roots.

_BESIDE = 2.0**-50
# The shift of an inverse iteration stands this far outside the spectrum, relative to the eigenvalue.


def _extreme_vector(matrix: Tensor, place: int) -> tuple[float, Tensor]:
    """Return a float eigenvalue of a symmetric matrix, the first (0) or the last (-1), and a column near its vector."""
    order = matrix.shape[0]
    value = float(torch.linalg.eigvalsh(matrix)[place])
    # Inverse iteration. The eigenvalue is off by its own rounding error, so that one step nearly does.
    shifted = matrix.clone()
    shifted.diagonal().sub_(value + _BESIDE * (abs(value) if place else -abs(value)))
    factors, pivots, _ = torch.linalg.lu_factor_ex(shifted)
    vector = torch.ones(order, 1, dtype=matrix.dtype, device=matrix.device)
    vector[1::2] = -0.5
    for _ in range(2):
        vector = torch.linalg.lu_solve(factors, pivots, vector)
        vector = vector / torch.linalg.vector_norm(vector)
    return value, vector


def _length(column: Tensor) -> arb:
    """Return the Euclidean norm of a column of modest entries; squares that underflow move it by less than 2^-500."""
    norm = float(torch.linalg.vector_norm(column))
    return with_radius(norm, add_up(multiply_up(summing_error(2 * column.numel() + 4), norm), _FAINT))


def _stretch(matrix: Tensor, vector: Tensor) -> arb:
    """Return norm(M x)/norm(x)."""
    rounded = multiply_up(summing_error(matrix.shape[1]), fro_up(matrix), fro_up(vector))
    image = with_radius(_length(matrix @ vector), add_up(rounded, _FAINT))
    length = _length(vector)
    return image / length if length > 0 else nan()


def _gram(wide: Tensor) -> tuple[Tensor, float, arb]:
    """Return the symmetric float Gram matrix of the rows, a bound on its error in that unit, and the unit."""
    size = fro_up(wide)
    error = add_up(multiply_up(summing_error(wide.shape[1]), size, size), _FAINT)
    middle, spread, exponent = projection(Ball(wide @ wide.mT, error))
    return middle, spread, dyadic(1, exponent)


def _slack(matrix: Tensor, value: float) -> float:
    """Return how far beyond an extreme eigenvalue a Cholesky factorisation is sure to see it."""
    order = matrix.shape[0]
    trace = float((matrix.diagonal() - value).abs().sum())
    # Float eigenvalues are off by some n u norm (LAPACK Users' Guide, 4.7); 4 n covers what was seen with room.
    return cholesky_shift(order, trace) + 4.0 * order * 2.0**-53 * float(torch.linalg.matrix_norm(matrix, 1))


def _largest(wide: Tensor) -> arb:
    """Return the largest singular value of a matrix with rows <= cols."""
    middle, spread, unit = _gram(wide)
    value, vector = _extreme_vector(middle, -1)
    top = -eigenvalues_above(-middle, -(value + _slack(middle, value)))
    low = _stretch(wide.mT, vector)
    high = square_root((exact(top) + exact(spread)) * unit)
    return from_bounds(low.lower(), high.upper()) if low.is_finite() and high.is_finite() and high >= low else nan()


def _smallest_of_rows(wide: Tensor) -> arb:
    """Return the smallest singular value of a matrix with rows < cols; not sharp where its square is about n u."""
    middle, spread, unit = _gram(wide)
    value, vector = _extreme_vector(middle, 0)
    bottom = (exact(eigenvalues_above(middle, value - _slack(middle, value))) - exact(spread)) * unit
    low = square_root(bottom) if bottom > 0 else exact(0)
    high = _stretch(wide.mT, vector)
    return from_bounds(low.lower(), high.upper()) if high.is_finite() and high >= low else nan()


def _smallest_of_square(square: Tensor) -> arb:
    """Return the smallest singular value of a square matrix from the norm of an approximate inverse."""
    inverted = approximate_inverse(square)
    if inverted is None:
        return nan()
    approximate = Ball(inverted)
    defect = size_up(identity_defect(approximate, Ball(square)))
    if not defect < _SHARP:
        return nan()
    norm = largest_alone(approximate)
    if not norm > 0:
        return nan()
    return from_bounds(((1 - exact(defect)) / norm).lower(), ((1 + exact(defect)) / norm).upper())


def _is_sharp(value: arb, width: float) -> bool:
    return value > 0 and radius(value) <= width * upper(value)


def _meet(first: arb, second: arb) -> arb:
    """Return a ball of what two balls of one number have in common."""
    if not (first.is_finite() and second.is_finite()):
        return first if first.is_finite() else second
    low, high = maximum(first.lower(), second.lower()), minimum(first.upper(), second.upper())
    return from_bounds(low, high) if low <= high else nan()


def largest_alone(a: Ball) -> arb:
    """Return the largest singular value of the centre.

    Example:
        >>> largest_alone(Ball(torch.eye(40))) == 1
        True
    """
    known = exact_singular_values(a.centre)
    if known is not None:
        return known[0]
    value = nan()
    if min(a.shape) > _SMALL:
        work, lost, exponent = within_range(a)
        value = nonnegative(_largest(work if a.shape[0] <= a.shape[1] else work.mT), lost) * dyadic(1, exponent)
    if _is_sharp(value, _NARROW):
        return value
    return _meet(value, factored_singular_values(a)[0])


def smallest_alone(a: Ball) -> arb:
    """Return the smallest of the min(rows, cols) singular values of the centre.

    Example:
        >>> smallest_alone(Ball(torch.eye(40))) == 1
        True
    """
    known = exact_singular_values(a.centre)
    if known is not None:
        return known[-1]
    rows, cols = a.shape
    value = nan()
    if min(rows, cols) > _SMALL:
        work, lost, exponent = within_range(a)
        square = rows == cols
        found = _smallest_of_square(work) if square else _smallest_of_rows(work if rows < cols else work.mT)
        value = nonnegative(found, lost) * dyadic(1, exponent)
    if _is_sharp(value, _SHARP):
        return value
    value = _meet(value, with_exact_rank(factored_singular_values(a), a.centre)[-1])
    return value if _is_sharp(value, _SHARP) or value == 0 or not a.is_exact else _meet(value, _refined_smallest(a))


def _refined_smallest(a: Ball) -> arb:
    """Return the smallest singular value of a small ill-conditioned square matrix as 1/norm(A^-1), in more bits."""
    if a.shape[0] != a.shape[1]:
        return nan()
    inverted = high_precision_inverse(a.centre)
    if inverted is None or not inverted.is_finite:
        return nan()
    norm = nonnegative(largest_alone(inverted), inverted.radius)
    return 1 / norm if norm > 0 else nan()


def sigma_max(a: Ball) -> arb:
    """Return the largest singular value.

    Example:
        >>> sigma_max(Ball(torch.tensor([[3.0], [4.0]]))) == 5
        True
    """
    return nonnegative(largest_alone(a), a.radius) if a.is_finite else nan()


def sigma_min(a: Ball) -> arb:
    """Return the smallest of the min(rows, cols) singular values.

    Example:
        >>> sigma_min(Ball(torch.ones(2, 2))) == 0
        True
    """
    return nonnegative(smallest_alone(a), a.radius) if a.is_finite else nan()


def spectral_norm(a: Ball) -> arb:
    """Return the spectral norm; for a vector the Euclidean norm.

    Example:
        >>> spectral_norm(Ball(torch.ones(1, 1))) == 1
        True
    """
    return sigma_max(a)
