"""Products with structured matrices: by structure where there is a rule, kept as factors where there is none."""

from __future__ import annotations

from functools import reduce

from ntk_deq.certified import arithmetic, products
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.structured.application import apply, apply_right, single
from ntk_deq.certified.structured.base import (
    MAX_ENTRIES,
    MatrixBall,
    Structured,
    densified,
    require_kin,
    require_one_shape,
)
from ntk_deq.certified.structured.blocks import Blocks
from ntk_deq.certified.structured.chain import Chain
from ntk_deq.certified.structured.creation import as_factors, diag, is_identity, kron_of
from ntk_deq.certified.structured.diagonal import Diagonal
from ntk_deq.certified.structured.stack import Stack, matmul_each, multiply_entries
from ntk_deq.errors import ArgumentError


def matmul(a: MatrixBall, b: MatrixBall) -> MatrixBall:
    """Return the matrix product a b.

    Args:
        a: rows x n.
        b: n x cols.

    Returns:
        The ball: dense where a factor is dense, structured where the product has a structure, else a chain of factors.

    Raises:
        ArgumentError: The inner sizes, element types or devices differ.
        LimitError: A dense product does not fit.

    Example:
        >>> import torch
        >>> half = Diagonal(Ball(torch.full((3, 1), 0.5)))
        >>> matmul(half, half)
        Diagonal(3 x 3, float32, radius=0)
    """
    require_kin("matmul", a, b)
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(
            f"`b` of matmul must have as many rows as `a` has columns, {a.shape[1]}. Got {b.shape[0]} x {b.shape[1]}."
        )
    if is_identity(a):
        return b
    if is_identity(b):
        return a
    if isinstance(a, Ball):
        return products.matmul(a, b) if isinstance(b, Ball) else reduce(apply_right, _factors(b), a)
    if isinstance(b, Ball):
        return reduce(lambda x, factor: apply(factor, x), reversed(_factors(a)), b)
    found: list[Structured] = []
    for factor in _factors(a) + _factors(b):
        _push(found, factor)
    return found[0] if len(found) == 1 else Chain(tuple(found))


def _factors(a: Structured) -> tuple[Structured, ...]:
    return a.factors if isinstance(a, Chain) else (a,)


def _push(found: list[Structured], factor: Structured) -> None:
    """Append a factor, merged with the one before it as long as that gives a simple structure."""
    while found:
        merged = _merged(found[-1], factor)
        if merged is None:
            break
        found.pop()
        factor = merged
    found.append(factor)


def _merged(a: Structured, b: Structured) -> Structured | None:
    """Return the product where it has a simple structure and fits."""
    match a, b:
        case Diagonal(), Diagonal():
            return Diagonal(multiply_entries(single(a.column), single(b.column)).ball(0))
        case Diagonal(), Blocks():
            return _scaled_rows(a, b)
        case Blocks(), Diagonal():
            turned = _scaled_rows(b, a.transposed())
            return None if turned is None else turned.transposed()
        case Blocks(), Blocks() if a.layout == b.layout:
            entries = max(a.stack.size, b.stack.size) * a.block_shape[0] * b.block_shape[1]
            return a.like(matmul_each(a.stack, b.stack)) if entries <= MAX_ENTRIES else None
    return _mixed(a, b)


def _scaled_rows(a: Diagonal, b: Blocks) -> Blocks | None:
    if b.count * b.block_shape[0] * b.block_shape[1] > MAX_ENTRIES:
        return None
    columns = a.by_blocks(b.count, interleaved=b.interleaved)[:, :, None]
    radii = columns.new_full((b.count,), a.radius)
    return b.like(multiply_entries(b.stack, Stack(columns, radii, a.reason)))


def _mixed(a: Structured, b: Structured) -> Structured | None:
    """Return (A (x) B)(C (x) D) = AC (x) BD where the sizes agree."""
    left, right = as_factors(a), as_factors(b)
    if left is None or right is None:
        return None
    if left[0].shape[1] != right[0].shape[0] or left[1].shape[1] != right[1].shape[0]:
        return None
    result = kron_of(matmul(left[0], right[0]), matmul(left[1], right[1]))
    return result if isinstance(result, Structured) else None


def hadamard(a: MatrixBall, b: MatrixBall) -> MatrixBall:
    """Return the elementwise product: diagonal where a factor is, blocks where both are.

    Raises:
        ArgumentError: Shapes, element types or devices differ.
        LimitError: It would be dense and does not fit.

    Example:
        >>> import torch
        >>> hadamard(Diagonal(Ball(torch.ones(3, 1))), Ball(torch.ones(3, 3)))
        Diagonal(3 x 3, float32, radius=0)
    """
    require_one_shape("hadamard", a, b)
    if isinstance(a, Diagonal) or isinstance(b, Diagonal):
        columns = [single(densified(diag(side))) for side in (a, b)]
        return Diagonal(multiply_entries(*columns).ball(0))
    if isinstance(a, Blocks) and isinstance(b, Blocks) and (a.layout, a.block_shape) == (b.layout, b.block_shape):
        return a.like(multiply_entries(a.stack, b.stack))
    return arithmetic.hadamard(densified(a), densified(b))
