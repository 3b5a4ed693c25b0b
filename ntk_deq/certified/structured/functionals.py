"""Norms, sums and extreme entries of structured matrices."""

from __future__ import annotations

from functools import reduce

from flint import arb

from ntk_deq.certified import norms
from ntk_deq.certified.dense import Ball, require_square
from ntk_deq.certified.functions import maximum, minimum, multiply, power, square_root
from ntk_deq.certified.scalar import exact, with_radius
from ntk_deq.certified.structured.blocks import Blocks, Diagonal, MatrixBall, densified
from ntk_deq.certified.structured.creation import diag
from ntk_deq.certified.structured.products import Kronecker


def _beside(a: Blocks) -> Ball:
    """Return the stored blocks beside one another, with the largest radius of one block."""
    wide = a.stack.centre.permute(1, 0, 2).reshape(a.block_shape[0], -1)
    return Ball(wide, a.largest_radius, a.reason)


def _stored(a: Blocks) -> Ball:
    """Return the stored blocks or their transposes below one another, with the radius of all stored blocks together."""
    blocks = a.stack.centre if a.stack.centre.is_contiguous() else a.stack.centre.mT  # an inverse stands in columns
    tall = blocks.reshape(-1, blocks.shape[2])
    return Ball(tall, float(a.stack.radii) if a.is_shared else a.radius, a.reason)


def _copies(a: Blocks) -> arb:
    """Return how often each stored block occurs."""
    return exact(a.count if a.is_shared else 1)


def frobenius(a: MatrixBall) -> arb:
    """Return the Frobenius norm.

    Example:
        >>> import torch
        >>> frobenius(Diagonal(Ball(torch.ones(4, 1)))) == 2
        True
    """
    match a:
        case Diagonal():
            return norms.frobenius(a.column)
        case Blocks():
            return multiply(square_root(_copies(a)), norms.frobenius(_stored(a)))
        case Kronecker():
            return multiply(frobenius(a.left), frobenius(a.right))
    return norms.frobenius(densified(a))


def norm1(a: MatrixBall) -> arb:
    """Return the one-norm, the largest absolute column sum.

    Example:
        >>> import torch
        >>> norm1(Diagonal(Ball(torch.full((4, 1), -3.0)))) == 3
        True
    """
    match a:
        case Diagonal():
            return norms.norminf(a.column)
        case Blocks():
            return norms.norm1(_beside(a))
        case Kronecker():
            return multiply(norm1(a.left), norm1(a.right))
    return norms.norm1(densified(a))


def norminf(a: MatrixBall) -> arb:
    """Return the infinity-norm, the largest absolute row sum.

    Example:
        >>> import torch
        >>> norminf(Diagonal(Ball(torch.full((4, 1), -3.0)))) == 3
        True
    """
    return norm1(a.transposed()) if isinstance(a, Blocks | Kronecker | Diagonal) else norms.norminf(densified(a))


def entry_max(a: MatrixBall) -> arb:
    """Return the largest entry, the zeros of the structure included.

    Example:
        >>> import torch
        >>> entry_max(Diagonal(Ball(-torch.ones(4, 1)))) == 0
        True
    """
    match a:
        case Diagonal():
            largest = norms.entry_max(a.column)
            return maximum(largest, arb(0)) if a.shape[0] > 1 else largest
        case Blocks():
            return maximum(norms.entry_max(_beside(a)), arb(0))
        case Kronecker():
            ends = [(entry_min(side), entry_max(side)) for side in (a.left, a.right)]
            return maximum(*(multiply(x, y) for x in ends[0] for y in ends[1]))
    return norms.entry_max(densified(a))


def entry_min(a: MatrixBall) -> arb:
    """Return the smallest entry, the zeros of the structure included.

    Example:
        >>> import torch
        >>> entry_min(Diagonal(Ball(torch.ones(4, 1)))) == 0
        True
    """
    match a:
        case Diagonal() | Blocks():
            return -entry_max(a.multiplied(arb(-1)))
        case Kronecker():
            ends = [(entry_min(side), entry_max(side)) for side in (a.left, a.right)]
            return minimum(*(multiply(x, y) for x in ends[0] for y in ends[1]))
    return norms.entry_min(densified(a))


def entry_sum(a: MatrixBall) -> arb:
    """Return the sum of the entries.

    Example:
        >>> import torch
        >>> entry_sum(Diagonal(Ball(torch.ones(4, 1)))) == 4
        True
    """
    match a:
        case Diagonal():
            return norms.entry_sum(a.column)
        case Blocks():
            return _copies(a) * norms.entry_sum(_stored(a))
        case Kronecker():
            return entry_sum(a.left) * entry_sum(a.right)
    return norms.entry_sum(densified(a))


def trace(a: MatrixBall) -> arb:
    """Return the sum of the diagonal.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> import torch
        >>> trace(Diagonal(Ball(torch.ones(4, 1)))) == 4
        True
    """
    require_square("trace", a)
    if isinstance(a, Kronecker) and a.factors_are_square:
        return trace(a.left) * trace(a.right)
    return norms.entry_sum(densified(diag(a))) if isinstance(a, Diagonal | Blocks) else norms.trace(densified(a))


def determinant(a: MatrixBall) -> arb:
    """Return the determinant: the product over blocks or factors.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> import torch
        >>> determinant(Diagonal(Ball(torch.full((4, 1), 2.0)))) == 16
        True
    """
    require_square("determinant", a)
    match a:
        case Diagonal():
            values = norms.entries(a.column.work)
            return reduce(multiply, (with_radius(value, a.radius) for value in values), arb(1))
        case Blocks() if a.is_shared:
            return power(norms.determinant(a.stack.ball(0)), a.count)
        case Blocks():
            return reduce(multiply, (norms.determinant(a.stack.ball(i)) for i in range(a.count)), arb(1))
        case Kronecker() if a.factors_are_square:
            orders = a.left.shape[0], a.right.shape[0]
            return multiply(power(determinant(a.left), orders[1]), power(determinant(a.right), orders[0]))
    return norms.determinant(densified(a))
