"""Products of structured matrices: Kronecker products, those that come out dense, and those kept as their factors.

A Kronecker product here is one of two matrices neither of which is an identity. A chain keeps its factors until
someone asks for more than a product with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import arithmetic, dense
from ntk_deq.certified.arithmetic import enclose, product_radius
from ntk_deq.certified.dense import Ball
from ntk_deq.certified.exactness import entry_products_are_exact, may_be_exact
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up
from ntk_deq.certified.structured.blocks import Blocks, Diagonal, MatrixBall, Structured, densified, require_room
from ntk_deq.certified.structured.discs import add_each, multiply_each
from ntk_deq.certified.structured.stack import Stack, exact_stack, matmul_rounding, multiply_entries, once_rounded


def transpose(a: MatrixBall) -> MatrixBall:
    """Return the transpose.

    Example:
        >>> transpose(Ball(torch.ones(2, 3))).shape
        (3, 2)
    """
    return a.transposed() if isinstance(a, Structured) else dense.transpose(a)


def scale(factor: arb, a: MatrixBall) -> MatrixBall:
    """Return factor * a.

    Example:
        >>> scale(arb(2), Diagonal(Ball(torch.ones(3, 1)))).is_exact
        True
    """
    return a.multiplied(factor) if isinstance(a, Structured) else arithmetic.scale(factor, a)


def _centred(a: MatrixBall) -> MatrixBall:
    return a.centred() if isinstance(a, Structured) else Ball(a.centre)


@dataclass(frozen=True, eq=False, repr=False)
class Kronecker(Structured):
    """The Kronecker product: block (i, j) is left[i, j] right.

    Attributes:
        left: The slow factor.
        right: The fast factor.

    Example:
        >>> Kronecker(Ball(torch.ones(2, 3)), Ball(torch.ones(4, 5)))
        Kronecker(8 x 15, float32, radius=0)
    """

    left: MatrixBall
    right: MatrixBall

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.left.shape[0] * self.right.shape[0], self.left.shape[1] * self.right.shape[1]

    @property
    def parts(self) -> tuple[MatrixBall, MatrixBall]:
        """The factors."""
        return self.left, self.right

    @cached_property
    def radius(self) -> float:
        """Frobenius distance from the truth to the centre, at most."""
        return product_radius(self.left.fro, self.left.radius, self.right.fro, self.right.radius)

    @cached_property
    def fro(self) -> float:
        """Upper bound of the centre's Frobenius norm."""
        return multiply_up(self.left.fro, self.right.fro)

    @cached_property
    def norm2(self) -> float:
        """Upper bound of the spectral norm of the centre."""
        return multiply_up(self.left.norm2, self.right.norm2)

    @property
    def factors_are_square(self) -> bool:
        """Whether both factors are square."""
        return self.left.shape[0] == self.left.shape[1] and self.right.shape[0] == self.right.shape[1]

    def transposed(self) -> Kronecker:
        """Return the transpose."""
        return Kronecker(transpose(self.left), transpose(self.right))

    def centred(self) -> Kronecker:
        """Return the ball of radius 0 around the same centre."""
        return Kronecker(_centred(self.left), _centred(self.right))

    def multiplied(self, factor: arb) -> Kronecker:
        """Return a multiple by a scalar ball: that of the smaller factor."""
        if self.left.stored <= self.right.stored:
            return Kronecker(scale(factor, self.left), self.right)
        return Kronecker(self.left, scale(factor, self.right))

    def form(self) -> Ball:
        """Return the dense ball."""
        return arithmetic.kron(densified(self.left), densified(self.right))


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
            return arithmetic.matmul(a, x)
    raise TypeError(f"no product with {type(a).__name__}")


def apply_right(x: Ball, a: MatrixBall) -> Ball:
    """Return the dense product x a, as `apply`."""
    return dense.transpose(apply(transpose(a), dense.transpose(x)))


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
    return apply(a, x) if isinstance(a, Structured) else arithmetic.matmul(a, x)


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


@dataclass(frozen=True, eq=False, repr=False)
class Chain(Structured):
    """The product of factors none of which is dense, and no two neighbours of which have a product of simple structure.

    Attributes:
        factors: At least two, none of them a chain.
    """

    factors: tuple[Structured, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.factors[0].shape[0], self.factors[-1].shape[1]

    @property
    def parts(self) -> tuple[Structured, ...]:
        """The factors."""
        return self.factors

    @cached_property
    def radius(self) -> float:
        """Frobenius distance from the truth to the product of the centres, at most."""
        size, spread = self.factors[0].norm2, self.factors[0].radius
        for factor in self.factors[1:]:
            spread = product_radius(size, spread, factor.norm2, factor.radius)
            size = multiply_up(size, factor.norm2)
        return spread

    @cached_property
    def fro(self) -> float:
        """Upper bound of the Frobenius norm of the product of the centres."""
        rest = reduce(multiply_up, (factor.norm2 for factor in self.factors[1:]))
        return multiply_up(self.factors[0].fro, rest)

    @cached_property
    def norm2(self) -> float:
        """Upper bound of the spectral norm of the product of the centres."""
        return reduce(multiply_up, (factor.norm2 for factor in self.factors))

    def form(self) -> Ball:
        """Return the dense ball, multiplied from the end that keeps the intermediate results small."""
        factors = self.factors
        if self.shape[0] <= self.shape[1]:
            start = crossed(factors[0], factors[1])
            if start is None:
                return reduce(apply_right, factors[1:], factors[0].dense)
            return reduce(apply_right, factors[2:], start)
        return dense.transpose(self.transposed().form())

    def transposed(self) -> Chain:
        """Return the transpose."""
        return Chain(tuple(factor.transposed() for factor in reversed(self.factors)))

    def centred(self) -> Chain:
        """Return the ball of radius 0 around the same centre."""
        return Chain(tuple(factor.centred() for factor in self.factors))

    def multiplied(self, factor: arb) -> Chain:
        """Return a multiple by a scalar ball: that of the factor with the fewest numbers."""
        place = min(range(len(self.factors)), key=lambda i: self.factors[i].stored)
        parts = list(self.factors)
        parts[place] = parts[place].multiplied(factor)
        return Chain(tuple(parts))
