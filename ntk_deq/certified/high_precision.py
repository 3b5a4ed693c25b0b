"""Inverses and solutions of small exact systems in `arb`, for those too ill-conditioned for float arithmetic.

A float inverse of a matrix of condition number above about 1e13 proves nothing. In 192 bits, or 1536 where entries
differ by hundreds of orders of magnitude, elimination in ball arithmetic does: its result contains the truth or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import flint
import torch
from flint import arb, arb_mat
from torch import Tensor

from ntk_deq.certified.ball import Ball
from ntk_deq.certified.norms import entries
from ntk_deq.certified.rounding import multiply_up, root_up
from ntk_deq.certified.scalar import upper

LARGEST_ORDER = 64
"""Up to this order elimination at 1536 bits takes about a tenth of a second."""

_BITS = (192, 1536)

_SHARP = 2.0**-40
# A radius this small relative to the result is within 8192 units of the last place; more bits would not show.


def _whole(tensor: Tensor) -> arb_mat:
    return arb_mat(tensor.shape[0], tensor.shape[1], [arb(value) for value in entries(tensor)])


def _nearest(found: arb_mat, like: Tensor) -> Ball:
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


def _attempts(compute: Callable[[], arb_mat], like: Tensor) -> Iterator[Ball]:
    for bits in _BITS:
        with flint.ctx.workprec(max(bits, flint.ctx.prec)):
            try:
                yield _nearest(compute(), like)
            except ZeroDivisionError:  # a pivot's ball contains zero
                continue


def _best(compute: Callable[[], arb_mat], like: Tensor) -> Ball | None:
    best: Ball | None = None
    for found in _attempts(compute, like):
        if found.is_finite and (best is None or found.radius < best.radius):
            best = found
        if best is not None and best.radius <= _SHARP * best.fro:
            break
    return best


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
    return _best(lambda: _whole(matrix).inv(), matrix)


def high_precision_solution(matrix: Tensor, right: Tensor) -> Ball | None:
    """Return the solution X of matrix X = right for exactly these, or None as `high_precision_inverse` does.

    Args:
        matrix: n x n.
        right: n x cols with cols <= 64 where the result is to be had.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> high_precision_solution(4 * one, one)
        Ball(1 x 1, float64, radius=0)
    """
    if max(matrix.shape[0], right.shape[1]) > LARGEST_ORDER:
        return None
    return _best(lambda: _whole(matrix).solve(_whole(right)), matrix)
