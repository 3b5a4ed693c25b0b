"""Products of structured matrices that come out dense."""

from __future__ import annotations

import torch
from torch import Tensor

from ntk_deq.certified import products, structure
from ntk_deq.certified.arithmetic import enclose
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.exactness import entry_products_are_exact, may_be_exact
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up
from ntk_deq.certified.structured.base import MatrixBall, Structured, require_room
from ntk_deq.certified.structured.blocks import Blocks, Diagonal
from ntk_deq.certified.structured.each import add_each, multiply_each
from ntk_deq.certified.structured.kronecker import Kronecker
from ntk_deq.certified.structured.stack import Stack, exact_stack, matmul_rounding, multiply_entries, once_rounded


def single(a: Ball) -> Stack:
    """Return a stack of one matrix.

    Example:
        >>> single(Ball(torch.eye(2))).size
        1
    """
    return Stack(a.centre[None], a.work.new_tensor([a.radius]), a.reason)


def apply(a: MatrixBall, x: Ball) -> Ball:
    """Return the dense product a x, by the structure of a.

    Args:
        a: rows x n; no chain.
        x: n x cols.

    Raises:
        LimitError: The product does not fit.

    Example:
        >>> apply(Diagonal(Ball(torch.full((3, 1), 2.0))), Ball(torch.ones(3, 1))).centre.flatten().tolist()
        [2.0, 2.0, 2.0]
    """
    require_room(a.shape[0], x.shape[1], "A product")
    match a:
        case Diagonal():
            return multiply_entries(single(a.column), single(x)).ball(0)
        case Blocks():
            return _apply_blocks(a, x)
        case Kronecker():
            return _apply_kronecker(a, x)
        case Ball():
            return products.matmul(a, x)
    raise TypeError(f"no product with {type(a).__name__}")


def apply_right(x: Ball, a: MatrixBall) -> Ball:
    """Return the dense product x a, as `apply`."""
    turned = a.transposed() if isinstance(a, Structured) else structure.transpose(a)
    return structure.transpose(apply(turned, structure.transpose(x)))


def _apply_blocks(a: Blocks, x: Ball) -> Ball:
    """Each block meets its rows of x.

    With blocks B_n, rows X_n: the squares of norm2(X_n) rB_n add up over n; the error of x grows by at most the largest
    norm2(B_n) + rB_n.
    """
    parts = exact_stack(a.slices(x.work))
    product = torch.matmul(a.stack.work, parts.work)
    errors = add_each(matmul_rounding(a.stack, parts), multiply_each(a.stack.radii, parts.norm2))
    inherited = multiply_up(add_up(a.norm2, a.largest_radius), x.radius)
    return enclose(a.joined(product), add_up(fro_up(errors), inherited), x, a.reason or x.reason)


def _rearranged(a: Ball, centre: Tensor) -> Ball:
    return Ball(centre, a.radius, a.reason)


def _apply_kronecker(a: Kronecker, x: Ball) -> Ball:
    """Apply the slow factor to the slow row index, then the fast one to the fast: (A (x) B) vec X = vec(B X A')."""
    (rows, cols), (fast_rows, fast_cols), width = a.left.shape, a.right.shape, x.shape[1]
    wide = _rearranged(x, x.centre.reshape(cols, fast_cols * width))
    moved = _product(a.left, wide)
    turned = moved.centre.reshape(rows, fast_cols, width).permute(1, 0, 2).reshape(fast_cols, rows * width)
    done = _product(a.right, _rearranged(moved, turned))
    return _rearranged(
        done, done.centre.reshape(fast_rows, rows, width).permute(1, 0, 2).reshape(rows * fast_rows, width)
    )


def _product(a: MatrixBall, x: Ball) -> Ball:
    return apply(a, x) if isinstance(a, Structured) else products.matmul(a, x)


def crossed(a: Structured, b: Structured) -> Ball | None:
    """Return the dense product of blocks in opposite orders: entry (i n, j s) is A_n[i, j] B_j[n, s].

    An error of B_j[n, s] meets the column j of A_n, whose norm is at most norm2(A_n); where one B serves all j, the
    same error meets all of A_n.

    Args:
        a: count n, blocks p x m.
        b: count m, blocks n x s, in the other order.

    Returns:
        The ball; None where the factors are anything else.

    Raises:
        LimitError: The product does not fit.
    """
    if not (isinstance(a, Blocks) and isinstance(b, Blocks) and a.interleaved != b.interleaved):
        return None
    if a.block_shape[1] != b.count or b.block_shape[0] != a.count:
        return None
    require_room(a.shape[0], b.shape[1], "A product of block-diagonal matrices")
    left, right = a.each.work, b.each.work
    if a.interleaved:
        full = left.permute(1, 0, 2)[:, :, :, None] * right.permute(1, 0, 2)[None]
    else:
        full = left[:, :, None, :] * right.permute(1, 2, 0)[:, None]
    product = full.reshape(a.shape[0], b.shape[1])
    errors = [_inherited(a, b), _inherited(b, a), multiply_up(a.radius, b.radius)]
    usable = a.is_finite and b.is_finite and may_be_exact(a.stack.work, b.stack.work)
    if not (usable and entry_products_are_exact(a.stack.grain, b.stack.grain)):
        errors.append(float(once_rounded(product[None])))
    return enclose(product, add_up(*errors), _sample_ball(a), a.reason or b.reason)


def _inherited(a: Blocks, b: Blocks) -> float:
    """Bound what the crossed product inherits from the radius of b."""
    if b.is_shared:
        return multiply_up(float(a.stack.fro.amax()), float(b.stack.radii))
    return multiply_up(a.norm2, b.radius)


def _sample_ball(a: Structured) -> Ball:
    """Return a small ball of the element type of `a`."""
    return Ball(torch.zeros(1, 1, dtype=a.dtype, device=a.device))
