"""The largest and the smallest singular value alone, and bounds on the smallest eigenvalue, each proven.

Largest: sigma_max^2 is the largest eigenvalue of the Gram matrix of the shorter side. A vector bounds it from below, a
Cholesky factor of t I - Gram from above. Smallest: of a square matrix 1/norm(A^-1), where an approximate inverse R
with norm(I - R A) <= d < 1 gives norm(A^-1) within norm(R)/(1 - d) and norm(R)/(1 + d); of a rectangular one from the
Gram matrix again. Where that is not sharp, and for small matrices, the singular value decomposition serves both. All
that costs a few matrix products.

The smallest eigenvalue of a symmetric matrix lies above a number by a Cholesky factor L of the matrix minus a shift; L
L' has no negative eigenvalue whatever the rounding errors in L, so that the eigenvalue is at least the shift minus
norm(matrix - shift I - L L'). Below: by a Rayleigh quotient. Small exact matrices are decided in whole numbers, so
that equality is never a matter of rounding.
"""

from __future__ import annotations

import math

import torch
from flint import arb, fmpz_mat
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import matmul, residual_up, summing_error
from ntk_deq.certified.dense import Ball, require_square
from ntk_deq.certified.exactness import sum_error
from ntk_deq.certified.functions import meet, square_root
from ntk_deq.certified.inversion import approximate_inverse, high_precision_inverse, identity_defect, size_up
from ntk_deq.certified.norms import EXACT_ORDER, entries, frobenius, nonnegative, whole_numbers
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    fro_up,
    largest_entry,
    multiply_up,
    outward,
    subtract_down,
    summation_up,
)
from ntk_deq.certified.scalar import dyadic, exact, from_bounds, nan, radius, upper, with_radius
from ntk_deq.certified.spectra import (
    exact_singular_values,
    factored_singular_values,
    projection,
    with_exact_rank,
    within_range,
)
from ntk_deq.errors import ArgumentError

_LONGEST_EXPONENT = 4096
# Beyond, a number's whole form is longer than any double's, and an exact decision would not be worth its time.


def cholesky_shift(order: int, trace: float) -> float:
    """Return a shift after which a Cholesky factorisation that runs to completion proves definiteness.

    Let L be the computed factor of a symmetric H with trace t, and g_k = k u/(1 - k u). Then:

    1. L L' = H + E with |E| <= g_{n+1} |L||L'| (Demmel; Higham, theorem 10.3);
    2. the diagonal of 1. gives fro(L)^2 = tr(L L') <= t/(1 - g_{n+1}); and fro(|L||L'|) <= fro(L)^2;
    3. the computed residual H - L L' is off by at most g_{n+1} (fro(H) + fro(L)^2), where fro(H) <= t for a definite H.

    So the check finds norm(H - L L') <= 3 g_{n+1} t/(1 - g_{n+1}) <= (3n + 6) u t for n u <= 1/1000, and some numbers
    of 2^-1074 where operations underflow. Rump's constant for 1. and 2. alone, which suffices where the library's
    factorisation is known to be a conventional one, is g_{n+1} t/(1 - g_{n+1}). The proof itself uses the residual that
    was found; the constant only says how much to shift.

    Args:
        order: n.
        trace: Upper bound of the trace of the matrix to be factored, >= 0, with entries of about 1 at most.

    Returns:
        The shift, >= 0.

    References:
        Rump, BIT 46, 2006, theorem 2.3; Higham, Accuracy and Stability of Numerical Algorithms, 2002, theorem 10.3.

    Example:
        >>> cholesky_shift(1000, 1.0) < 4e-13
        True
    """
    relative = outward((3.0 * order + 6.0) * rounding.unit_roundoff())
    return add_up(multiply_up(relative, trace), multiply_up(4.0 * order * (order + 2.0), TINY))


def eigenvalues_above(matrix: Tensor, shift: float) -> float:
    """Return a lower bound of the smallest eigenvalue, about the shift where it is one, -inf where nothing is proved.

    With H = matrix - shift I and a float factor L: lambda_min(matrix) >= shift - norm(H - L L'). It does not matter how
    L was computed.

    Args:
        matrix: n x n, float64, equal to its transpose, entries of about 1 at most.
        shift: The number to prove.

    Example:
        >>> even = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> 0.9 - 1e-14 < eigenvalues_above(even, 0.9) <= 1.0, eigenvalues_above(even, 1.1)
        (True, -inf)
    """
    diagonal = matrix.diagonal()
    moved = diagonal - shift
    lost = largest_entry(sum_error(diagonal, torch.full_like(diagonal, -shift), moved))
    shifted = matrix.clone()
    shifted.diagonal().copy_(moved)
    factor, info = torch.linalg.cholesky_ex(shifted)
    if int(info) != 0:
        return -math.inf
    off = add_up(residual_up(shifted, factor, factor.mT), lost)
    return subtract_down(shift, off) if math.isfinite(off) else -math.inf


def proved_above(matrix: Tensor, bound: arb) -> bool:
    """Return whether a Cholesky factorisation proves that no eigenvalue of a symmetric matrix is below a bound.

    Example:
        >>> proved_above(torch.eye(3, dtype=torch.float64), exact(0.999))
        True
    """
    wanted = upper(bound)
    if not math.isfinite(wanted):
        return False
    above = matrix.diagonal() - wanted
    if not float(above.amin()) > 0:
        return False
    trace = summation_up(float(above.sum()), above.numel())
    shift = upper(exact(wanted) + exact(cholesky_shift(matrix.shape[0], trace)))
    return eigenvalues_above(matrix, shift) >= wanted


def _is_diagonal(a: Ball) -> bool:
    return a.is_exact and not bool((a.centre - torch.diag(a.centre.diagonal())).any())


def _number(function: str, c: float | arb) -> arb:
    value = c if isinstance(c, arb) else exact(float(c))
    if not value.is_finite():
        raise ArgumentError(f"`c` of {function} must be a finite number. Got {c}.")
    return value


def _exactly_above(a: Ball, bound: arb) -> bool | None:
    """Decide lambda_min >= bound in whole numbers for a small exact matrix, or return None.

    The characteristic polynomial of a symmetric matrix has real roots only, and none is negative if and only if its
    coefficients alternate in sign or vanish (Descartes).
    """
    order = a.shape[0]
    if not a.is_exact or order > EXACT_ORDER:
        return None
    mantissa, exponent = (int(part) for part in bound.man_exp())
    if abs(exponent) > _LONGEST_EXPONENT:
        return None
    numbers, unit = whole_numbers(entries(a.centre))
    low = min(unit, exponent)
    matrix = fmpz_mat(order, order, [number << (unit - low) for number in numbers])
    twice = matrix + matrix.transpose()
    for i in range(order):
        twice[i, i] -= mantissa << (exponent - low + 1)
    signs = [int(c) * (-1) ** (order - k) for k, c in enumerate(twice.charpoly().coeffs())]
    return all(value >= 0 for value in signs)


def lambda_min_at_least(G: Ball, c: float | arb) -> bool | None:
    """Return True where the smallest eigenvalue is proved to be at least c, and None otherwise.

    A Cholesky factor L of the symmetric centre minus s I proves lambda_min >= s - norm(centre - s I - L L') - radius.
    The shift s is c plus the radius plus `cholesky_shift`, so that the proof succeeds where lambda_min exceeds c by the
    radius and about 4 n u trace. A product X X' as a ball carries its rounding error in the radius, so a True holds for
    the true product. Exact matrices up to order 16 are decided in whole numbers, equality included.

    Args:
        G: n x n, a ball or a tensor; the true matrix is symmetric (of another, the symmetric part is meant).
        c: The bound, a finite number or a ball, of which the upper end counts.

    Returns:
        True or None; never False, since a failed factorisation proves nothing. `lambda_min_below` proves the opposite.

    Raises:
        ArgumentError: `G` is not square, or `c` is not finite.

    References:
        Rump, BIT 46, 2006.

    Example:
        >>> G = Ball(torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64))
        >>> lambda_min_at_least(G, 0.999), lambda_min_at_least(G, 1.0), lambda_min_at_least(G, 1.001)
        (True, True, None)
    """
    require_square("lambda_min_at_least", G)
    bound = _number("lambda_min_at_least", c).upper()
    if not G.is_finite:
        return None
    if _is_diagonal(G):
        return True if exact(float(G.work.diagonal().amin())) >= bound else None
    middle, spread, exponent = projection(G)
    if proved_above(middle, bound * dyadic(1, -exponent) + exact(spread)):
        return True
    return True if _exactly_above(G, bound) else None


def lambda_min_below(G: Ball, c: float | arb) -> bool | None:
    """Return True where the smallest eigenvalue is proved to be below c, and None otherwise.

    For every vector x, lambda_min <= x'Gx/x'x; x is the float eigenvector. Exact matrices up to order 16 are decided in
    whole numbers, equality included.

    Args:
        G: n x n, a ball or a tensor; the true matrix is symmetric (of another, the symmetric part is meant).
        c: The bound, a finite number or a ball, of which the lower end counts.

    Returns:
        True or None.

    Raises:
        ArgumentError: `G` is not square, or `c` is not finite.

    Example:
        >>> G = Ball(torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64))
        >>> lambda_min_below(G, 0.999), lambda_min_below(G, 1.0), lambda_min_below(G, 1.001)
        (None, None, True)
    """
    require_square("lambda_min_below", G)
    bound = _number("lambda_min_below", c).lower()
    if not G.is_finite:
        return None
    if _is_diagonal(G):
        return True if exact(float(G.work.diagonal().amin())) < bound else None
    middle, spread, exponent = projection(G)
    try:
        vector = torch.linalg.eigh(middle)[1][:, :1].contiguous()
    except torch.linalg.LinAlgError:
        return None
    quotient = rayleigh_up(middle, vector)
    if (exact(quotient) + exact(spread)) * dyadic(1, exponent) < bound:
        return True
    return True if _exactly_above(G, bound) is False else None


def rayleigh_up(matrix: Tensor, vector: Tensor) -> float:
    """Return an upper bound of x'Mx/x'x, infinite where nothing is known.

    Example:
        >>> one = torch.ones(2, 1, dtype=torch.float64)
        >>> 1.0 <= rayleigh_up(torch.eye(2, dtype=torch.float64), one) < 1 + 1e-15
        True
    """
    x = Ball(vector)
    form = matmul(Ball(vector.mT), matmul(Ball(matrix), x))
    length = frobenius(x)
    if not (form.is_finite and length > 0):
        return math.inf
    return upper(with_radius(float(form.centre), form.radius) / (length * length))


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
    return meet(value, factored_singular_values(a)[0])


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
    value = meet(value, with_exact_rank(factored_singular_values(a), a.centre)[-1])
    return value if _is_sharp(value, _SHARP) or value == 0 or not a.is_exact else meet(value, _refined_smallest(a))


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


spectral_norm = sigma_max
"""Of a vector it is the Euclidean norm."""
