"""Square roots of symmetric matrices, and pseudoinverses of matrices whose rank is certain.

Roots. For positive semidefinite A and B with square roots X and Y,

    fro(X - Y) <= fro(A - B)/(lambda_min(X) + lambda_min(Y)),    fro(X - Y)^2 <= sqrt(n) fro(A - B),

the first since X (X - Y) + (X - Y) Y = A - B, the second by Powers and Stormer. So a symmetric Y without a negative
eigenvalue, however it was found, is as near to the root of A as Y^2 is to A allows.

Pseudoinverses. For A of full column rank and a > 0,

    [aI, A; A', 0]^-1 = [(I - A A+)/a, A+'; A+, -a (A'A)^-1],

and the matrix on the left is invertible if and only if the rank is full. So an inverse that is proved is a proof of the
rank, too. A matrix of lower rank has one near it of every higher rank, whose pseudoinverse is as far as may be: it is
computed for small exact matrices alone, in fractions.

References:
    Higham, Functions of Matrices, 2008, theorem 6.2; Powers and Stormer, Commun. Math. Phys. 16, 1970; Bjorck,
    Numerical Methods for Least Squares Problems, 1996, section 2.6.
"""

from __future__ import annotations

import math

import torch
from flint import arb_mat, fmpq, fmpq_mat
from torch import Tensor

from ntk_deq.certified.arithmetic import enclose, matmul, scale, subtract
from ntk_deq.certified.dense import Ball, above, beside, block, no_information, require_square, transpose
from ntk_deq.certified.functions import square_root
from ntk_deq.certified.inversion import inverse, nearest_ball
from ntk_deq.certified.norms import EXACT_ORDER, dyadic, whole_matrix
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, root_up, subtract_down
from ntk_deq.certified.scalar import exact, lower
from ntk_deq.certified.spectra import projection, symmetric_discs

_GRID = 2.0**24  # a root whose entries are multiples of 2^-24 is tried as one without any error

UNCERTAIN_RANK = "its rank is not certain"
"""Why a pseudoinverse has no information."""


def root_error(residual: float, order: int, low: float, below: float) -> float:
    """Bound the distance of a symmetric Y >= 0 from the root of a positive semidefinite A.

    Args:
        residual: Upper bound of fro(A - Y^2).
        order: n.
        low: Lower bound, >= 0, of the smallest eigenvalue of Y.
        below: Lower bound, >= 0, of the smallest eigenvalue of A.

    Example:
        >>> root_error(0.0, 3, 0.0, 0.0), root_error(0.5, 1, 1.0, 1.0) < 0.2501
        (0.0, True)
    """
    if residual == 0:
        return 0.0
    rough = root_up(multiply_up(root_up(float(order)), residual))
    gap = lower(exact(low) + square_root(exact(below)))
    return min(rough, divide_up(residual, gap)) if gap > 0 else rough


def sqrtm(a: Ball) -> Ball:
    """Return the symmetric square root without negative eigenvalues.

    Args:
        a: n x n; the caller vouches that the true matrix is symmetric and positive semidefinite.

    Returns:
        The ball; exact where Y^2 is the matrix without rounding.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> sqrtm(Ball(torch.tensor([[5.0, 4.0], [4.0, 5.0]]))).centre.tolist()
        [[2.0, 1.0], [1.0, 2.0]]
    """
    order = require_square("sqrtm", a)
    if not a.is_finite:
        return no_information(a, order, order, a.reason)
    middle, apart, exponent = projection(a)
    if exponent % 2:
        middle, exponent = middle * 0.5, exponent + 1  # the entries are near 1, and none underflows that matters
        apart = add_up(apart, multiply_up(float(middle.numel()), 2.0**-1074))
    try:
        values, vectors = torch.linalg.eigh(middle)
    except torch.linalg.LinAlgError:
        return no_information(a, order, order, "the eigenvalues were not found")
    found = (vectors * values.clamp(min=0.0).sqrt()) @ vectors.mT
    found = (found + found.mT) * 0.5
    below = max(0.0, subtract_down(subtract_down(*_least(middle)), apart))
    best, error = found, math.inf
    for candidate in ((found * _GRID).round() / _GRID, found):
        root, low = _without_negative(candidate)
        off = subtract(Ball(middle, apart), matmul(Ball(root), Ball(root)))
        bound = root_error(add_up(off.fro, off.radius), order, low, below)
        if bound < error:
            best, error = root, bound
    unit = dyadic(1, exponent // 2)
    moved = scale(unit, Ball(best, error))
    return enclose(moved.centre, moved.radius, a)


def _least(symmetric: Tensor) -> tuple[float, float]:
    """Return an approximation of the smallest eigenvalue, and its error."""
    values, error = symmetric_discs(symmetric)
    return values[0], error


def _without_negative(symmetric: Tensor) -> tuple[Tensor, float]:
    """Return a symmetric matrix near one, and a lower bound >= 0 of its smallest eigenvalue."""
    unit = torch.eye(len(symmetric), dtype=symmetric.dtype, device=symmetric.device)
    for factor in (-2.0, -8.0, -32.0, 0.0):
        low = subtract_down(*_least(symmetric))
        if low >= 0:
            return symmetric, low
        if not math.isfinite(low):
            break
        symmetric = symmetric + unit * (factor * low)
    return torch.zeros_like(symmetric), 0.0


def pinv(a: Ball) -> Ball:
    """Return the pseudoinverse of Moore and Penrose.

    Args:
        a: rows x cols.

    Returns:
        The ball, cols x rows; no information where the rank is not certain.

    Example:
        >>> pinv(Ball(torch.tensor([[1.0], [1.0]], dtype=torch.float64))).centre.tolist()
        [[0.5, 0.5]]
    """
    rows, cols = a.shape
    if not a.is_finite:
        return no_information(a, cols, rows, a.reason)
    if a.is_exact and max(a.shape) <= EXACT_ORDER:
        numbers, exponent = whole_matrix(a.centre)
        if numbers.rank() < min(a.shape):
            unit = fmpq(1 << -exponent) if exponent <= 0 else fmpq(1, 1 << exponent)
            found = nearest_ball(arb_mat(rational_pinv(fmpq_mat(numbers)) * unit), a.centre)
            return enclose(found.centre, found.radius, a)
    if rows == cols:
        found = inverse(a)
    elif rows < cols:
        found = transpose(pinv(transpose(a)))
    else:
        found = _of_columns(a)
    return found if found.is_finite else no_information(a, cols, rows, UNCERTAIN_RANK)


def _of_columns(a: Ball) -> Ball:
    """Return the pseudoinverse of a matrix with more rows than columns."""
    rows, cols = a.shape
    weight = balance(a.work)
    corner = Ball(torch.eye(rows, dtype=a.dtype, device=a.device) * weight)
    empty = Ball(torch.zeros(cols, cols, dtype=a.dtype, device=a.device))
    system = above(beside(corner, a), beside(transpose(a), empty))
    return block(inverse(system), rows, rows + cols, 0, rows)


def balance(centre: Tensor) -> float:
    """Return a power of two near the smallest singular value, for which the system is conditioned as the matrix is.

    Example:
        >>> balance(torch.eye(2) * 5.0)
        4.0
    """
    try:
        least = float(torch.linalg.svdvals(centre)[-1])
    except torch.linalg.LinAlgError:
        return 1.0
    return math.ldexp(1.0, min(max(math.frexp(least)[1] - 1, -120), 120)) if 0 < least < math.inf else 1.0


def rational_pinv(a: fmpq_mat) -> fmpq_mat:
    """Return the pseudoinverse of a matrix of fractions, whatever its rank.

    With A = C R, C the columns of A at the pivots of its row-reduced form and R the rows of that:
    R'(R R')^-1 (C'C)^-1 C'.

    Example:
        >>> rational_pinv(fmpq_mat(2, 2, [1, 1, 1, 1])).tolist()
        [[1/4, 1/4], [1/4, 1/4]]
    """
    rows, cols = a.nrows(), a.ncols()
    reduced, rank = a.rref()
    if rank == 0:
        return fmpq_mat(cols, rows)
    pivots = [next(j for j in range(cols) if reduced[i, j] != 0) for i in range(rank)]
    left = fmpq_mat(rows, rank, [a[i, j] for i in range(rows) for j in pivots])
    right = fmpq_mat(rank, cols, [reduced[i, j] for i in range(rank) for j in range(cols)])
    inner = (left.transpose() * left).inv() * left.transpose()
    return right.transpose() * ((right * right.transpose()).inv() * inner)
