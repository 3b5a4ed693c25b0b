"""Inverses of structured matrices, block by block; an approximate inverse proves each block invertible."""

from __future__ import annotations

from functools import reduce

import torch

from ntk_deq.certified import inversion, rounding
from ntk_deq.certified.arithmetic import enclose
from ntk_deq.certified.ball import Ball, no_information
from ntk_deq.certified.exactness import LOWEST
from ntk_deq.certified.rounding import TINY, add_up, divide_up, fro_up, multiply_up, subtract_down
from ntk_deq.certified.structured.base import MatrixBall, densified, require_square_form
from ntk_deq.certified.structured.blocks import Blocks
from ntk_deq.certified.structured.chain import Chain
from ntk_deq.certified.structured.creation import kron_of
from ntk_deq.certified.structured.diagonal import Diagonal
from ntk_deq.certified.structured.kronecker import Kronecker
from ntk_deq.certified.structured.products import matmul
from ntk_deq.certified.structured.stack import UNPROVED


def _inverse_diagonal(a: Diagonal) -> Diagonal:
    """Return 1/d: for d moved by at most r, |1/d' - 1/d| <= |d' - d|/(m (m - r)) with m the smallest |d|."""
    column = a.column
    if not a.is_finite:
        return Diagonal(no_information(column, *column.shape, a.reason))
    smallest = float(column.work.abs().amin())
    gap = subtract_down(smallest, a.radius)
    found = 1.0 / column.work
    if not gap > 0 or not bool(torch.isfinite(found).all()):
        return Diagonal(no_information(column, *column.shape, UNPROVED))
    error = divide_up(divide_up(a.radius, smallest), gap)
    powers = column.grain.longest <= 1 and column.grain.low > LOWEST
    if not powers:
        underflow = multiply_up(float(found.numel()), TINY)
        error = add_up(error, multiply_up(rounding.unit_roundoff(), fro_up(found)), underflow)
    return Diagonal(enclose(found, error, column))


def inverse(a: MatrixBall) -> MatrixBall:
    """Return the inverse, of the same structure.

    Args:
        a: n x n.

    Returns:
        The ball; no information, with the reason, where a block's invertibility is not certain.

    Raises:
        ArgumentError: The matrix is not square.
        LimitError: Its factors are not square, and it does not fit.

    Example:
        >>> inverse(Diagonal(Ball(torch.full((3, 1), 2.0))))
        Diagonal(3 x 3, float32, radius=0)
    """
    require_square_form("inverse", a)
    match a:
        case Diagonal():
            return _inverse_diagonal(a)
        case Blocks() if a.block_shape[0] == a.block_shape[1]:
            return a.inverted
        case Kronecker() if a.factors_are_square:
            return kron_of(inverse(a.left), inverse(a.right))
        case Chain() if all(factor.shape[0] == factor.shape[1] for factor in a.factors):
            return reduce(matmul, (inverse(factor) for factor in reversed(a.factors)))
    return inversion.inverse(densified(a))


def solve(a: MatrixBall, b: MatrixBall) -> MatrixBall:
    """Return the solution X of a X = b, by the inverse of a structured matrix.

    Args:
        a: n x n.
        b: n x cols.

    Raises:
        ArgumentError: `a` is not square, or rows, element types or devices differ.

    Example:
        >>> solve(Diagonal(Ball(torch.full((3, 1), 2.0))), Ball(torch.ones(3, 1))).centre.flatten().tolist()
        [0.5, 0.5, 0.5]
    """
    if isinstance(a, Ball) and isinstance(b, Ball):
        return inversion.solve(a, b)
    require_square_form("solve", a)
    return matmul(inverse(a), b)
