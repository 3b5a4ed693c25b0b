"""Cotangents: what reverse mode carries back, for all differentiated outputs at once.

The cotangents of R outputs with respect to one rows x cols quantity are one R x (rows cols) ball, each row holding the
entries row after row. Its Frobenius radius is that of the Jacobian which they end up in, so nothing is lost by keeping
a single one; and a product from the left or the right with all of them is one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import multiply_up, root_up
from ntk_deq.evaluation.quantity import Matrix, Scalar

Shape = tuple[int, int]


@dataclass(frozen=True)
class Cotangent:
    """R cotangents of one quantity.

    Attributes:
        ball: R x (rows cols), entries row after row; in arb where the environment's matrices are.
        scale: Magnitude of what it was computed from, as in `Matrix`.
    """

    ball: ct.Ball
    scale: float

    @property
    def count(self) -> int:
        """How many outputs are differentiated."""
        return self.ball.shape[0]


def rearranged_ball(ball: ct.Ball, move: Callable[[Tensor], Tensor]) -> ct.Ball:
    """Return a matrix with its entries moved, some left out or zeros put between: no error grows by that."""
    if isinstance(ball, PreciseMatrix):
        rows, cols = ball.shape
        places = move(torch.arange(1, rows * cols + 1).reshape(rows, cols))
        entries = [arb(0), *ball.flat]
        moved = [entries[k] for k in places.flatten().tolist()]
        return as_ball(from_rows(places.shape[0], places.shape[1], moved, ball.reason))
    return ct.Ball(move(ball.centre), ball.radius, ball.reason)


def rearranged(cot: Cotangent, move: Callable[[Tensor], Tensor]) -> Cotangent:
    """Return the cotangents with their entries moved; `move` takes and returns a matrix, a row for each cotangent."""
    return Cotangent(rearranged_ball(cot.ball, move), cot.scale)


def plus(left: Cotangent, right: Cotangent) -> Cotangent:
    """Return left + right."""
    return Cotangent(ct.add(left.ball, right.ball), left.scale + right.scale)


def minus(cot: Cotangent) -> Cotangent:
    """Return -cot."""
    return Cotangent(ct.negate(cot.ball), cot.scale)


def scaled(factor: Scalar, cot: Cotangent) -> Cotangent:
    """Return factor C for each cotangent C."""
    return Cotangent(ct.scale(factor.ball, cot.ball), factor.scale * cot.scale)


def times_right(cot: Cotangent, shape: Shape, factor: Matrix) -> Cotangent:
    """Return C B for each cotangent C of a given shape."""
    rows, cols = shape
    stacked = rearranged_ball(cot.ball, lambda c: c.reshape(-1, cols))
    product: ct.Ball = dense_form(ct.matmul(stacked, factor.ball))
    wide = product.shape[1]
    return Cotangent(rearranged_ball(product, lambda c: c.reshape(-1, rows * wide)), cot.scale * factor.scale)


def times_left(factor: Matrix, cot: Cotangent, shape: Shape) -> Cotangent:
    """Return A C for each cotangent C of a given shape."""
    (rows, cols), count = shape, cot.count
    beside = rearranged_ball(cot.ball, lambda c: c.reshape(count, rows, cols).transpose(0, 1).reshape(rows, -1))
    product: ct.Ball = dense_form(ct.matmul(factor.ball, beside))
    flat = rearranged_ball(product, lambda c: c.reshape(-1, count, cols).transpose(0, 1).reshape(count, -1))
    return Cotangent(flat, cot.scale * factor.scale)


def _flat(matrix: Matrix, rows: int) -> ct.Ball:
    return rearranged_ball(dense_form(matrix.ball), lambda c: c.reshape(rows, -1))


def inner(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return the sum of the entries of C .* P for each cotangent C: one number each."""
    column = _flat(matrix, matrix.ball.shape[0] * matrix.ball.shape[1])
    return Cotangent(ct.matmul(cot.ball, column), cot.scale * matrix.scale)


def outer(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return c P for each cotangent c of a number."""
    return Cotangent(ct.matmul(cot.ball, _flat(matrix, 1)), cot.scale * matrix.scale)


def times_entries(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return C .* P for each cotangent C."""
    repeated = rearranged_ball(_flat(matrix, 1), lambda c: c.expand(cot.count, -1).contiguous())
    if isinstance(repeated, ct.Ball) and cot.count > 1:
        spread = multiply_up(root_up(float(cot.count)), repeated.radius)
        repeated = ct.Ball(repeated.centre, spread, repeated.reason)
    return Cotangent(ct.hadamard(cot.ball, repeated), cot.scale * matrix.scale)


def times_signs(cot: Cotangent, signs: Tensor) -> Cotangent:
    """Return C .* S for each cotangent C and a matrix S of -1, 0 and 1, which needs no rounding."""
    row = signs.reshape(1, -1)
    if isinstance(cot.ball, PreciseMatrix):
        return Cotangent(ct.hadamard(cot.ball, ct.ball(row.double().expand(cot.count, -1))), cot.scale)
    return rearranged(cot, lambda c: c * row.to(c))


def transposed(cot: Cotangent, shape: Shape) -> Cotangent:
    """Return C' for each cotangent C of a given shape."""
    rows, cols = shape
    if 1 in shape:
        return cot
    return rearranged(cot, lambda c: c.reshape(-1, rows, cols).mT.reshape(-1, rows * cols))
