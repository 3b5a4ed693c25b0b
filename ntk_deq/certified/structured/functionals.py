"""Where structure comes from, Kronecker products, diagonal matrices and identities; norms, sums and extreme entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce

import torch
from flint import arb

from ntk_deq.certified import arithmetic, dense, norms
from ntk_deq.certified.dense import Ball, require_alike, require_square
from ntk_deq.certified.functions import maximum, minimum, multiply, power, square_root
from ntk_deq.certified.scalar import exact, with_radius
from ntk_deq.certified.structured.blocks import Blocks, Diagonal, MatrixBall, densified, identity_matrix, require_room
from ntk_deq.certified.structured.products import Kronecker, single
from ntk_deq.errors import ArgumentError

LAZY_ENTRIES = 2**12
"""Matrices of at most so many entries are formed: that costs little, and dense functions have more exact cases."""

_lazy: ContextVar[int] = ContextVar("lazy", default=LAZY_ENTRIES)


@contextmanager
def lazy_above(entries: int) -> Iterator[None]:
    """Let structure be kept in matrices of more than so many entries, instead of `LAZY_ENTRIES`.

    Args:
        entries: Number >= 0.

    Example:
        >>> with lazy_above(0):
        ...     identity(3)
        Diagonal(3 x 3, float64, radius=0)
    """
    token = _lazy.set(entries)
    try:
        yield
    finally:
        _lazy.reset(token)


def _is_formed(rows: int, cols: int) -> bool:
    """Return whether a matrix is formed: it is small, or a single row or column."""
    return rows * cols <= _lazy.get() or 1 in (rows, cols)


def is_identity(a: MatrixBall) -> bool:
    """Return whether the truth is an identity for certain.

    Example:
        >>> is_identity(Ball(torch.eye(2))), is_identity(Ball(torch.ones(2, 2)))
        (True, False)
    """
    if isinstance(a, Diagonal):
        return a.is_identity
    if not isinstance(a, Ball) or not a.is_exact or a.shape[0] != a.shape[1]:
        return False
    one = torch.eye(a.shape[0], dtype=a.dtype, device=a.device)
    return bool((a.centre[0] == one[0]).all()) and torch.equal(a.centre, one)


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
    if not _is_formed(rows, cols):
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
        return dense.diag(column) if _is_formed(rows, rows) else Diagonal(column)
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
    if n < 1 or _is_formed(n, n):
        return dense.identity(n, dtype=dtype, device=device)
    require_room(n, 1, "A diagonal")
    return identity_matrix(n, dtype, device)


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
