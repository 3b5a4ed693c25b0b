"""Sums and multiples of structured matrices."""

from __future__ import annotations

from flint import arb

from ntk_deq.certified import arithmetic, structure
from ntk_deq.certified.structured.base import MAX_ENTRIES, MatrixBall, Structured, densified, require_one_shape
from ntk_deq.certified.structured.blocks import Blocks
from ntk_deq.certified.structured.diagonal import Diagonal
from ntk_deq.certified.structured.stack import add_on_diagonals, add_stacks


def add(a: MatrixBall, b: MatrixBall) -> MatrixBall:
    """Return a + b: structured where both share a structure, dense elsewhere.

    Raises:
        ArgumentError: Shapes, element types or devices differ.
        LimitError: The sum is dense and does not fit.

    Example:
        >>> import torch
        >>> from ntk_deq.certified.ball import Ball
        >>> one = Diagonal(Ball(torch.ones(3, 1)))
        >>> add(one, one)
        Diagonal(3 x 3, float32, radius=0)
    """
    require_one_shape("add", a, b)
    match a, b:
        case Diagonal(), Diagonal():
            return Diagonal(arithmetic.add(a.column, b.column))
        case Diagonal(), Blocks() if _fits(b):
            return _on_diagonals(b, a)
        case Blocks(), Diagonal() if _fits(a):
            return _on_diagonals(a, b)
        case Blocks(), Blocks() if (a.layout, a.block_shape) == (b.layout, b.block_shape):
            return a.like(add_stacks(a.stack, b.stack))
    return arithmetic.add(densified(a), densified(b))


def _fits(a: Blocks) -> bool:
    """Return whether something may be added to the diagonal of each block."""
    rows, cols = a.block_shape
    return rows == cols and a.count * rows * cols <= MAX_ENTRIES


def _on_diagonals(a: Blocks, b: Diagonal, *, minus: bool = False) -> Blocks:
    """Return b + a, or b - a."""
    diagonals = b.by_blocks(a.count, interleaved=a.interleaved)
    return a.like(add_on_diagonals(a.stack, diagonals, b.radius, minus=minus))


def negate(a: MatrixBall) -> MatrixBall:
    """Return -a, without any error.

    Example:
        >>> import torch
        >>> from ntk_deq.certified.ball import Ball
        >>> negate(Diagonal(Ball(torch.ones(3, 1)))).is_exact
        True
    """
    return a.multiplied(arb(-1)) if isinstance(a, Structured) else arithmetic.negate(a)


def subtract(a: MatrixBall, b: MatrixBall) -> MatrixBall:
    """Return a - b, as `add` does.

    Raises:
        ArgumentError: Shapes, element types or devices differ.
        LimitError: The difference is dense and does not fit.

    Example:
        >>> import torch
        >>> from ntk_deq.certified.ball import Ball
        >>> one = Diagonal(Ball(torch.ones(3, 1)))
        >>> subtract(one, one).fro
        0.0
    """
    require_one_shape("subtract", a, b)
    if isinstance(a, Diagonal) and isinstance(b, Blocks) and _fits(b):
        return _on_diagonals(b, a, minus=True)
    return add(a, negate(b))


def scale(factor: arb, a: MatrixBall) -> MatrixBall:
    """Return factor * a.

    Example:
        >>> import torch
        >>> from ntk_deq.certified.ball import Ball
        >>> scale(arb(2), Diagonal(Ball(torch.ones(3, 1)))).is_exact
        True
    """
    return a.multiplied(factor) if isinstance(a, Structured) else arithmetic.scale(factor, a)


def transpose(a: MatrixBall) -> MatrixBall:
    """Return the transpose.

    Example:
        >>> import torch
        >>> from ntk_deq.certified.ball import Ball
        >>> transpose(Ball(torch.ones(2, 3))).shape
        (3, 2)
    """
    return a.transposed() if isinstance(a, Structured) else structure.transpose(a)
