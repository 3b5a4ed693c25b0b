"""Sums, multiples, products and inverses of structured matrices; norms, sums, extreme entries and determinants.

Products go by structure where there is a rule and are kept as factors where there is none; inverses go block by block,
an approximate inverse proving each block invertible.
"""

from __future__ import annotations

from functools import reduce

import torch
from flint import arb

from ntk_deq.certified import arithmetic, inversion, norms, rounding
from ntk_deq.certified.arithmetic import enclose
from ntk_deq.certified.dense import Ball, no_information, require_alike, require_one_form, require_square
from ntk_deq.certified.exactness import LOWEST
from ntk_deq.certified.functions import maximum, minimum, multiply, power, square_root
from ntk_deq.certified.rounding import TINY, add_up, divide_up, fro_up, multiply_up, subtract_down
from ntk_deq.certified.scalar import exact, with_radius
from ntk_deq.certified.structured.blocks import (
    MAX_ENTRIES,
    Blocks,
    Diagonal,
    MatrixBall,
    Structured,
    densified,
    is_identity,
)
from ntk_deq.certified.structured.products import (
    Chain,
    Kronecker,
    apply,
    apply_right,
    as_factors,
    diag,
    kron_of,
    single,
)
from ntk_deq.certified.structured.stack import (
    UNPROVED,
    Stack,
    add_on_diagonals,
    add_stacks,
    matmul_each,
    multiply_entries,
)
from ntk_deq.errors import ArgumentError


def add(a: MatrixBall, b: MatrixBall) -> MatrixBall:
    """Return a + b: structured where both share a structure, dense elsewhere.

    Raises:
        ArgumentError: Shapes, element types or devices differ.
        LimitError: The sum is dense and does not fit.

    Example:
        >>> one = Diagonal(Ball(torch.ones(3, 1)))
        >>> add(one, one)
        Diagonal(3 x 3, float32, radius=0)
    """
    require_one_form("add", a, b)
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
        >>> one = Diagonal(Ball(torch.ones(3, 1)))
        >>> subtract(one, one).fro
        0.0
    """
    require_one_form("subtract", a, b)
    if isinstance(a, Diagonal) and isinstance(b, Blocks) and _fits(b):
        return _on_diagonals(b, a, minus=True)
    return add(a, negate(b))


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
        >>> half = Diagonal(Ball(torch.full((3, 1), 0.5)))
        >>> matmul(half, half)
        Diagonal(3 x 3, float32, radius=0)
    """
    require_alike("matmul", a, b)
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(
            f"`b` of matmul must have as many rows as `a` has columns, {a.shape[1]}. Got {b.shape[0]} x {b.shape[1]}."
        )
    if is_identity(a):
        return b
    if is_identity(b):
        return a
    if isinstance(a, Ball):
        return arithmetic.matmul(a, b) if isinstance(b, Ball) else reduce(apply_right, _factors(b), a)
    if isinstance(b, Ball):
        return reduce(lambda x, factor: apply(factor, x), reversed(_factors(a)), b)
    found: list[Structured] = []
    for factor in _factors(a) + _factors(b):
        # Merged with the one before it as long as that gives a simple structure.
        while found and (merged := _merged(found[-1], factor)) is not None:
            found.pop()
            factor = merged
        found.append(factor)
    return found[0] if len(found) == 1 else Chain(tuple(found))


def _factors(a: Structured) -> tuple[Structured, ...]:
    return a.factors if isinstance(a, Chain) else (a,)


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
        >>> hadamard(Diagonal(Ball(torch.ones(3, 1))), Ball(torch.ones(3, 3)))
        Diagonal(3 x 3, float32, radius=0)
    """
    require_one_form("hadamard", a, b)
    if isinstance(a, Diagonal) or isinstance(b, Diagonal):
        columns = [single(densified(diag(side))) for side in (a, b)]
        return Diagonal(multiply_entries(*columns).ball(0))
    if isinstance(a, Blocks) and isinstance(b, Blocks) and (a.layout, a.block_shape) == (b.layout, b.block_shape):
        return a.like(multiply_entries(a.stack, b.stack))
    return arithmetic.hadamard(densified(a), densified(b))


def _inverse_diagonal(a: Diagonal) -> Diagonal:
    """Return 1/d: for d moved by at most r, |1/d' - 1/d| <= |d' - d|/(m (m - r)) with m the smallest |d|."""
    column = a.column
    if not a.is_finite:
        return Diagonal(no_information(column, *column.shape, a.reason))
    smallest = float(column.work.abs().amin())
    gap = subtract_down(smallest, a.radius)
    found = 1.0 / column.work
    if not gap > 0 or not bool(torch.isfinite(found).all()):
        return Diagonal(no_information(column, *column.shape, UNPROVED))
    error = divide_up(divide_up(a.radius, smallest), gap)
    powers = column.grain.longest <= 1 and column.grain.low > LOWEST
    if not powers:
        underflow = multiply_up(float(found.numel()), TINY)
        error = add_up(error, multiply_up(rounding.unit_roundoff(), fro_up(found)), underflow)
    return Diagonal(enclose(found, error, column))


def inverse(a: MatrixBall) -> MatrixBall:
    """Return the inverse, of the same structure.

    Args:
        a: n x n.

    Returns:
        The ball; no information, with the reason, where a block's invertibility is not certain.

    Raises:
        ArgumentError: The matrix is not square.
        LimitError: Its factors are not square, and it does not fit.

    Example:
        >>> inverse(Diagonal(Ball(torch.full((3, 1), 2.0))))
        Diagonal(3 x 3, float32, radius=0)
    """
    require_square("inverse", a)
    match a:
        case Diagonal():
            return _inverse_diagonal(a)
        case Blocks() if a.block_shape[0] == a.block_shape[1]:
            return a.inverted
        case Kronecker() if a.factors_are_square:
            return kron_of(inverse(a.left), inverse(a.right))
        case Chain() if all(factor.shape[0] == factor.shape[1] for factor in a.factors):
            return reduce(matmul, (inverse(factor) for factor in reversed(a.factors)))
    return inversion.inverse(densified(a))


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
        >>> norminf(Diagonal(Ball(torch.full((4, 1), -3.0)))) == 3
        True
    """
    return norm1(a.transposed()) if isinstance(a, Blocks | Kronecker | Diagonal) else norms.norminf(densified(a))


def entry_max(a: MatrixBall) -> arb:
    """Return the largest entry, the zeros of the structure included.

    Example:
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
