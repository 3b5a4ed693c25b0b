"""Proofs that the smallest eigenvalue of a symmetric matrix ball lies above or below a number.

Above: a Cholesky factor L of the matrix minus a shift; L L' has no negative eigenvalue whatever the rounding errors in
L, so that the smallest eigenvalue is at least the shift minus norm(matrix - shift I - L L'). Below: a Rayleigh
quotient. Small exact matrices are decided in whole numbers, so that equality is never a matter of rounding.
"""

from __future__ import annotations

import math

import torch
from flint import arb, fmpz_mat
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.ball import Ball, require_square
from ntk_deq.certified.exactness import sum_error
from ntk_deq.certified.norms import EXACT_ORDER, dyadic, entries, frobenius, whole_numbers
from ntk_deq.certified.products import matmul, residual_up
from ntk_deq.certified.rounding import TINY, add_up, largest_entry, multiply_up, outward, subtract_down, summation_up
from ntk_deq.certified.scalar import exact, upper, with_radius
from ntk_deq.certified.spectra import projection
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


def _trace_up(diagonal: Tensor) -> float:
    return summation_up(float(diagonal.clamp(min=0.0).sum()), diagonal.numel())


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
    shift = upper(exact(wanted) + exact(cholesky_shift(matrix.shape[0], _trace_up(above))))
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
