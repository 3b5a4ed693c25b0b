"""Cotangents: what reverse mode carries back, for all differentiated outputs at once.

The cotangents of R outputs with respect to one rows x cols quantity are one R x (rows cols) ball, each row holding the
entries row after row. Its Frobenius radius is that of the Jacobian which they end up in, so nothing is lost by keeping
a single one; and a product from the left or the right with all of them is one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.certified.rounding import multiply_up, root_up
from ntk_deq.verify.quantity import Matrix, Scalar

Shape = tuple[int, int]


@dataclass(frozen=True)
class Cotangent:
    """R cotangents of one quantity.

    Attributes:
        ball: R x (rows cols), entries row after row.
        scale: Magnitude of what it was computed from, as in `Matrix`.
    """

    ball: ct.Ball
    scale: float

    @property
    def count(self) -> int:
        """How many outputs are differentiated."""
        return self.ball.shape[0]


def rearranged(cot: Cotangent, centre: Tensor) -> Cotangent:
    """Return the cotangents with their entries moved, some left out or zeros put between: no error grows by that."""
    return Cotangent(ct.Ball(centre, cot.ball.radius, cot.ball.reason), cot.scale)


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
    stacked = ct.Ball(cot.ball.centre.reshape(-1, cols), cot.ball.radius, cot.ball.reason)
    product: ct.Ball = dense_form(ct.matmul(stacked, factor.ball))
    flat = product.centre.reshape(cot.count, rows * product.shape[1])
    return Cotangent(ct.Ball(flat, product.radius, product.reason), cot.scale * factor.scale)


def times_left(factor: Matrix, cot: Cotangent, shape: Shape) -> Cotangent:
    """Return A C for each cotangent C of a given shape."""
    rows, cols = shape
    beside = cot.ball.centre.reshape(cot.count, rows, cols).transpose(0, 1).reshape(rows, -1)
    product: ct.Ball = dense_form(ct.matmul(factor.ball, ct.Ball(beside, cot.ball.radius, cot.ball.reason)))
    blocks = product.centre.reshape(product.shape[0], cot.count, cols).transpose(0, 1)
    flat = blocks.reshape(cot.count, product.shape[0] * cols)
    return Cotangent(ct.Ball(flat, product.radius, product.reason), cot.scale * factor.scale)


def _flat(matrix: Matrix, rows: int) -> ct.Ball:
    ball: ct.Ball = dense_form(matrix.ball)
    return ct.Ball(ball.centre.reshape(rows, -1), ball.radius, ball.reason)


def inner(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return the sum of the entries of C .* P for each cotangent C: one number each."""
    column = _flat(matrix, matrix.ball.shape[0] * matrix.ball.shape[1])
    return Cotangent(ct.matmul(cot.ball, column), cot.scale * matrix.scale)


def outer(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return c P for each cotangent c of a number."""
    return Cotangent(ct.matmul(cot.ball, _flat(matrix, 1)), cot.scale * matrix.scale)


def times_entries(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return C .* P for each cotangent C."""
    flat = _flat(matrix, 1)
    repeated = flat.centre.expand(cot.count, -1).contiguous()
    spread = multiply_up(root_up(float(cot.count)), flat.radius) if cot.count > 1 else flat.radius
    return Cotangent(ct.hadamard(cot.ball, ct.Ball(repeated, spread, flat.reason)), cot.scale * matrix.scale)


def times_signs(cot: Cotangent, signs: Tensor) -> Cotangent:
    """Return C .* S for each cotangent C and a matrix S of -1, 0 and 1, which needs no rounding."""
    return rearranged(cot, cot.ball.centre * signs.reshape(1, -1).to(cot.ball.centre))


def transposed(cot: Cotangent, shape: Shape) -> Cotangent:
    """Return C' for each cotangent C of a given shape."""
    rows, cols = shape
    if 1 in shape:
        return cot
    return rearranged(cot, cot.ball.centre.reshape(-1, rows, cols).mT.reshape(-1, rows * cols))
