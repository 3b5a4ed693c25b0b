"""Where structure comes from: Kronecker products, diagonal matrices, identities; products dense and kept as factors.

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
from ntk_deq.certified.dense import Ball, require_alike
from ntk_deq.certified.exactness import entry_products_are_exact, may_be_exact
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up
from ntk_deq.certified.structured.blocks import (
    Blocks,
    Diagonal,
    MatrixBall,
    Structured,
    densified,
    identity_matrix,
    is_formed,
    is_identity,
    require_room,
)
from ntk_deq.certified.structured.bounds import add_each, multiply_each
from ntk_deq.certified.structured.stack import Stack, exact_stack, matmul_rounding, multiply_entries, once_rounded
from ntk_deq.errors import ArgumentError


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


def _kron_with_identity(left: MatrixBall, right: MatrixBall) -> MatrixBall | None:
    """Return the Kronecker product where a factor is an identity, or None where no simple structure comes of it."""
    interleaved = is_identity(right)
    if not interleaved and not is_identity(left):
        return None
    one, other = (right, left) if interleaved else (left, right)
    count = one.shape[0]
    if count == 1:
        return other
    if is_identity(other):
        return identity_matrix(count * other.shape[0], left.dtype, left.device)
    if isinstance(other, Ball):
        return Blocks(single(other), count, interleaved)
    if isinstance(other, Diagonal):
        ones = Ball(torch.ones(count, 1, dtype=left.dtype, device=left.device))
        pair = (other.column, ones) if interleaved else (ones, other.column)
        return Diagonal(arithmetic.kron(*pair))
    return None


def kron_of(left: MatrixBall, right: MatrixBall) -> MatrixBall:
    """Return the Kronecker product with the simplest structure that it has; dense only where a factor is the number 1.

    Example:
        >>> kron_of(Ball(torch.eye(2)), Ball(torch.ones(3, 4)))
        Blocks(6 x 8, float32, radius=0)
    """
    simple = _kron_with_identity(left, right)
    if simple is not None:
        return simple
    if isinstance(left, Diagonal) and isinstance(right, Diagonal):
        return Diagonal(arithmetic.kron(left.column, right.column))
    return Kronecker(left, right)


def as_factors(a: MatrixBall) -> tuple[MatrixBall, MatrixBall] | None:
    """Return a and b of a matrix that is known as a (x) b, or None.

    Example:
        >>> [part.shape for part in as_factors(kron_of(Ball(torch.eye(2)), Ball(torch.ones(3, 4))))]
        [(2, 2), (3, 4)]
    """
    if isinstance(a, Kronecker):
        return a.left, a.right
    if isinstance(a, Blocks) and a.is_shared:
        one, block = identity_matrix(a.count, a.dtype, a.device), a.stack.ball(0)
        return (block, one) if a.interleaved else (one, block)
    return None


def kron(a: MatrixBall, b: MatrixBall) -> MatrixBall:
    """Return the Kronecker product: block (i, j) is a[i, j] b; formed where it is small.

    Args:
        a: rows x cols.
        b: p x q.

    Returns:
        The ball, rows p x cols q; exact where both are and no product was rounded.

    Raises:
        ArgumentError: Element types or devices differ.

    Example:
        >>> kron(Ball(torch.eye(2)), Ball(torch.full((1, 2), 0.1)))
        Ball(2 x 4, float32, radius=0)
        >>> kron(Ball(torch.eye(200)), Ball(torch.full((1, 2), 0.1)))
        Blocks(200 x 400, float32, radius=0)
    """
    require_alike("kron", a, b)
    rows, cols = a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]
    if not is_formed(rows, cols):
        return kron_of(a, b)
    require_room(rows, cols, "A Kronecker product")
    return arithmetic.kron(densified(a), densified(b))


def diag(a: MatrixBall) -> MatrixBall:
    """Return the diagonal matrix of a column, or the diagonal of a square matrix as a column.

    Raises:
        ArgumentError: Neither one column nor square.

    Example:
        >>> diag(Ball(torch.ones(3, 1))).shape, diag(Ball(torch.ones(100, 1)))
        ((3, 3), Diagonal(100 x 100, float32, radius=0))
    """
    rows, cols = a.shape
    if cols == 1:
        column = densified(a)
        return dense.diag(column) if is_formed(rows, rows) else Diagonal(column)
    if rows != cols:
        raise ArgumentError(f"`a` of diag must be one column or a square matrix. Got {rows} x {cols}.")
    match a:
        case Diagonal():
            return a.column
        case Blocks() if a.block_shape[0] == a.block_shape[1]:
            entries = a.each.centre.diagonal(dim1=1, dim2=2)[:, :, None]
            return Ball(a.joined(entries), a.radius, a.reason)
        case Kronecker() if a.factors_are_square:
            return arithmetic.kron(densified(_diag_column(a.left)), densified(_diag_column(a.right)))
    return dense.diag(densified(a))


def _diag_column(a: MatrixBall) -> MatrixBall:
    """Return the diagonal of a square matrix as a column; a 1 x 1 matrix is its own."""
    return a if a.shape == (1, 1) else diag(a)


def identity(n: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None) -> MatrixBall:
    """Return the identity of order n; formed where it is small.

    Raises:
        ArgumentError: n < 1.
        LimitError: Its diagonal does not fit.

    Example:
        >>> identity(2), identity(1000)
        (Ball(2 x 2, float64, radius=0), Diagonal(1000 x 1000, float64, radius=0))
    """
    if n < 1 or is_formed(n, n):
        return dense.identity(n, dtype=dtype, device=device)
    require_room(n, 1, "A diagonal")
    return identity_matrix(n, dtype, device)


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
    moved = apply(a.left, wide)
    turned = moved.centre.reshape(rows, fast_cols, width).permute(1, 0, 2).reshape(fast_cols, rows * width)
    done = apply(a.right, _rearranged(moved, turned))
    return _rearranged(
        done, done.centre.reshape(fast_rows, rows, width).permute(1, 0, 2).reshape(rows * fast_rows, width)
    )


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
    like = Ball(torch.zeros(1, 1, dtype=a.dtype, device=a.device))
    return enclose(product, add_up(*errors), like, a.reason or b.reason)


def _inherited(a: Blocks, b: Blocks) -> float:
    """Bound what the crossed product inherits from the radius of b."""
    if b.is_shared:
        return multiply_up(float(a.stack.fro.amax()), float(b.stack.radii))
    return multiply_up(a.norm2, b.radius)


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
