"""Inverses and linear systems: an approximate inverse R with norm2(I - R A) < 1 proves A invertible."""

from __future__ import annotations

import torch
from torch import Tensor

from ntk_deq.certified.arithmetic import enclose, subtract
from ntk_deq.certified.ball import Ball, first_reason, no_information, require_alike, require_square
from ntk_deq.certified.products import matmul
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, subtract_down
from ntk_deq.certified.structure import identity
from ntk_deq.errors import ArgumentError

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


def _double(a: Ball) -> Ball:
    return Ball(a.centre.double(), a.radius, a.reason)


def inverse(a: Ball) -> Ball:
    """Return the inverse.

    With R about the inverse and M = I - R A: norm(A^-1 - R) <= norm(M) norm(R)/(1 - norm(M)), Frobenius in one factor.

    Args:
        a: n x n.

    Returns:
        The ball; exact where R A is the identity without rounding; no information, with the reason, where norm(M) < 1
        is not certain.

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
    work = _double(a)
    found = approximate_inverse(work.centre)
    if found is None:
        return no_information(a, order, order, _SINGULAR)
    approximate = Ball(found)
    defect = identity_defect(approximate, work)
    gap = subtract_down(1.0, size_up(defect))
    if not gap > 0:
        return no_information(a, order, order, _UNPROVED)
    defect_fro, defect_norm = add_up(defect.fro, defect.radius), size_up(defect)
    product = min(multiply_up(defect_fro, approximate.norm2), multiply_up(defect_norm, approximate.fro))
    return enclose(found, divide_up(product, gap), a)


def solve(a: Ball, b: Ball) -> Ball:
    """Return the solution X of a X = b.

    With R about the inverse of A: norm(A^-1 B - X) <= norm(R)/(1 - norm(I - R A)) fro(B - A X).

    Args:
        a: n x n.
        b: n x cols.

    Returns:
        The ball; exact where the residual is zero without rounding; no information, with the reason, where
        invertibility is not certain.

    Raises:
        ArgumentError: `a` is not square, or rows, element types or devices differ.

    Example:
        >>> solve(Ball(torch.tensor([[2.0, 1.0], [0.0, 4.0]])), Ball(torch.ones(2, 1))).centre.flatten().tolist()
        [0.375, 0.25]
    """
    require_alike("solve", a, b)
    order = require_square("solve", a)
    if b.shape[0] != order:
        raise ArgumentError(f"`b` of solve must have {order} rows. Got {b.shape[0]} x {b.shape[1]}.")
    if not (a.is_finite and b.is_finite):
        return no_information(a, order, b.shape[1], first_reason(a, b))
    matrix, right = _double(a), _double(b)
    found = approximate_inverse(matrix.centre)
    if found is None:
        return no_information(a, order, b.shape[1], _SINGULAR)
    approximate = Ball(found)
    gap = subtract_down(1.0, size_up(identity_defect(approximate, matrix)))
    solution = torch.linalg.solve_ex(matrix.centre, right.centre)[0]
    if not gap > 0 or not bool(torch.isfinite(solution).all()):
        return no_information(a, order, b.shape[1], _UNPROVED)
    residual = subtract(right, matmul(matrix, Ball(solution)))
    size = add_up(residual.fro, residual.radius)
    return enclose(solution, divide_up(multiply_up(approximate.norm2, size), gap), a)
