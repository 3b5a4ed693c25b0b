"""Inverses: an approximate inverse R with norm2(I - R A) < 1 proves A invertible.

Inverses of small exact matrices in `arb`, for those too ill-conditioned for float arithmetic.

A float inverse of a matrix of condition number above about 1e13 proves nothing. In 192 bits, or 1536 where entries
differ by hundreds of orders of magnitude, elimination in ball arithmetic does: its result contains the truth or fails.

Pseudoinverses. For A of full column rank and a > 0,

    [aI, A; A', 0]^-1 = [(I - A A+)/a, A+'; A+, -a (A'A)^-1],

and the matrix on the left is invertible if and only if the rank is full. So an inverse that is proved is a proof of the
rank, too. A matrix of lower rank has one near it of every higher rank, whose pseudoinverse is as far as may be: it is
computed for small exact matrices alone, in fractions.

References:
    Bjorck, Numerical Methods for Least Squares Problems, 1996, section 2.6.
"""

from __future__ import annotations

import math

import flint
import torch
from flint import arb, arb_mat, fmpq, fmpq_mat
from torch import Tensor

from ntk_deq.certified.arithmetic import enclose, matmul, subtract
from ntk_deq.certified.dense import (
    Ball,
    above,
    beside,
    block,
    identity,
    no_information,
    require_square,
    transpose,
)
from ntk_deq.certified.norms import EXACT_ORDER, entries, whole_matrix
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, root_up, subtract_down
from ntk_deq.certified.scalar import upper

LARGEST_ORDER = 64
"""Up to this order elimination at 1536 bits takes about a tenth of a second."""

_BITS = (192, 1536)

_SHARP = 2.0**-40
# A radius this small relative to the result is within 8192 units of the last place; more bits would not show.


def _whole(tensor: Tensor) -> arb_mat:
    return arb_mat(tensor.shape[0], tensor.shape[1], [arb(value) for value in entries(tensor)])


def nearest_ball(found: arb_mat, like: Tensor) -> Ball:
    """Return the float matrix nearest to the midpoints, with the distance of every matrix in the balls."""
    numbers = found.entries()
    near = [float(number.mid()) for number in numbers]
    centre = torch.tensor(near, dtype=torch.float64, device=like.device).reshape(found.nrows(), found.ncols())
    if not bool(torch.isfinite(centre).all()):
        return Ball(centre)
    gaps = [number - value for number, value in zip(numbers, near, strict=True)]
    if all(gap == 0 for gap in gaps):
        return Ball(centre)
    largest = max(upper(abs(gap)) for gap in gaps)
    bound = upper(sum((gap * gap for gap in gaps), arb(0)).sqrt())
    # The root of a sum that touches zero is NaN; the largest gap always bounds it.
    return Ball(centre, min(bound, multiply_up(root_up(float(len(gaps))), largest)))


def high_precision_inverse(matrix: Tensor) -> Ball | None:
    """Return the inverse of exactly this matrix, or None where it is singular, hopeless or larger than order 64.

    Args:
        matrix: n x n, float64 or float32.

    Returns:
        A float64 ball on the same device.

    Example:
        >>> hilbert = torch.tensor([[1 / (i + j + 1) for j in range(12)] for i in range(12)], dtype=torch.float64)
        >>> found = high_precision_inverse(hilbert)
        >>> found.radius < 1e-12 * found.fro
        True
    """
    if matrix.shape[0] > LARGEST_ORDER:
        return None
    best: Ball | None = None
    for bits in _BITS:
        with flint.ctx.workprec(max(bits, flint.ctx.prec)):
            try:
                found = nearest_ball(_whole(matrix).inv(), matrix)
            except ZeroDivisionError:  # a pivot's ball contains zero
                continue
        if found.is_finite and (best is None or found.radius < best.radius):
            best = found
        if best is not None and best.radius <= _SHARP * best.fro:
            break
    return best


_ILL = 2.0**-10
# Where norm(I - R A) is larger than this, the float inverse has lost all but three digits, and elimination in more bits
# pays.

_NARROW = 2.0**-40
# A radius below this part of the norm is no more than a few thousand units in the last place of the entries.

_SINGULAR = "the matrix is singular to working precision"
_UNPROVED = "invertibility is not certain"


def size_up(a: Ball) -> float:
    """Return an upper bound of the spectral norm of every matrix in a ball.

    Example:
        >>> size_up(Ball(torch.eye(2), 1.0)) >= 2.0
        True
    """
    return add_up(a.norm2, a.radius)


def identity_defect(left: Ball, right: Ball) -> Ball:
    """Return the ball of left right - I.

    Example:
        >>> identity_defect(Ball(torch.eye(2)), Ball(torch.eye(2))).radius
        0.0
    """
    product = matmul(left, right)
    return subtract(product, identity(product.shape[0], dtype=product.centre.dtype, device=product.centre.device))


def approximate_inverse(matrix: Tensor) -> Tensor | None:
    """Return a float inverse, or None where the factorisation breaks down.

    Example:
        >>> approximate_inverse(torch.zeros(2, 2)) is None
        True
    """
    inverted, info = torch.linalg.inv_ex(matrix)
    return inverted if int(info) == 0 and bool(torch.isfinite(inverted).all()) else None


def _refinable(a: Ball) -> bool:
    """Return whether more bits can help: the matrix is small, and not the radius spoils its inverse."""
    return a.shape[0] <= LARGEST_ORDER and a.radius <= _NARROW * a.fro


def inverse(a: Ball) -> Ball:
    """Return the inverse.

    With R about the inverse and M = I - R A: norm(A^-1 - R) <= norm(M) norm(R)/(1 - norm(M)), Frobenius in one factor.
    Where norm(M) is not small, up to order 64 the centre is inverted in more bits, and the radius covered by
    `perturbed_inverse`.

    Args:
        a: n x n.

    Returns:
        The ball; exact where R A is the identity without rounding; no information, with the reason, where
        invertibility is not certain.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> inverse(Ball(torch.tensor([[2.0, 1.0], [0.0, 4.0]])))
        Ball(2 x 2, float32, radius=0)
        >>> inverse(Ball(torch.ones(2, 2))).reason
        'the matrix is singular to working precision'
    """
    order = require_square("inverse", a)
    if not a.is_finite:
        return no_information(a, order, order, a.reason)
    work = Ball(a.work, a.radius, a.reason)
    found = approximate_inverse(work.centre)
    plain = _UNPROVED if found is not None else _SINGULAR
    if found is not None:
        approximate = Ball(found)
        defect = identity_defect(approximate, work)
        defect_fro, defect_norm = add_up(defect.fro, defect.radius), size_up(defect)
        gap = subtract_down(1.0, defect_norm)
        product = min(multiply_up(defect_fro, approximate.norm2), multiply_up(defect_norm, approximate.fro))
        bound = divide_up(product, gap)
        if defect_norm <= _ILL or (math.isfinite(bound) and not _refinable(a)):
            return enclose(found, bound, a)
    refined = high_precision_inverse(work.centre) if _refinable(a) else None
    error = math.inf if refined is None else add_up(refined.radius, perturbed_inverse(refined, a.radius))
    if refined is None or not math.isfinite(error):
        return no_information(a, order, order, plain)
    return enclose(refined.centre, error, a)


def perturbed_inverse(inverted: Ball, radius: float) -> float:
    """Bound fro((A + E)^-1 - A^-1) for every E of Frobenius norm at most `radius`, infinite where one is singular.

    With N >= norm(A^-1): N^2 radius/(1 - N radius).

    Args:
        inverted: A ball that contains A^-1.
        radius: Number >= 0.

    Example:
        >>> perturbed_inverse(Ball(torch.eye(2)), 0.0), perturbed_inverse(Ball(torch.eye(2)), 1.0)
        (0.0, inf)
    """
    size = size_up(inverted)
    moved = multiply_up(size, radius)
    return divide_up(multiply_up(size, moved), subtract_down(1.0, moved))


UNCERTAIN_RANK = "its rank is not certain"
"""Why a pseudoinverse has no information."""


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
            found = nearest_ball(arb_mat(rational_pinv(fmpq_mat(numbers)) * fmpq(2) ** -exponent), a.centre)
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
