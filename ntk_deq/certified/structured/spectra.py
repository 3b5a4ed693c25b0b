"""Singular values and extreme eigenvalues of structured matrices: the union over blocks, products over factors."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import torch
from flint import arb

from ntk_deq.certified import eigenvalues, extremes, norms, spectra
from ntk_deq.certified.dense import Ball, require_square
from ntk_deq.certified.extremes import proved_above
from ntk_deq.certified.functions import maximum, minimum, multiply, square_root
from ntk_deq.certified.norms import nonnegative
from ntk_deq.certified.scalar import dyadic, exact, from_bounds, nan, radius, upper, with_radius
from ntk_deq.certified.spectra import projection
from ntk_deq.certified.structured.arithmetic import matmul
from ntk_deq.certified.structured.blocks import Blocks, Diagonal, MatrixBall, densified
from ntk_deq.certified.structured.products import Chain, Kronecker
from ntk_deq.certified.structured.stack import Stack, matmul_each, transpose_each
from ntk_deq.errors import LimitError

_FEW = 2**12
# Up to so many entries in all, every block's singular values cost little.

_NARROW = 2.0**-32
# Singular values that the Gram matrix gives to within this part of the largest need no better bound: a verdict calls
# a margin narrow below 1e-9 of its sides.


def _ordered(values: Iterable[arb], count: int) -> tuple[arb, ...]:
    """Return balls of the largest numbers of a family, largest first, from a ball of each in any order."""
    found = list(values)
    if not all(value.is_finite() for value in found):
        return (nan(),) * count
    lows = sorted((value.lower() for value in found), reverse=True)
    highs = sorted((value.upper() for value in found), reverse=True)
    ordered = [from_bounds(low, high) for low, high in zip(lows, highs, strict=True)]
    return tuple(ordered + [arb(0)] * (count - len(ordered)))


def singular_values(a: MatrixBall) -> tuple[arb, ...]:
    """Return the singular values, largest first.

    Of blocks the union; of a Kronecker product all products, and zeros where one factor is tall and the other wide; of
    a chain the roots of the eigenvalues of its Gram matrix where they are sharp enough.

    Args:
        a: rows x cols.

    Returns:
        min(rows, cols) balls with lower ends >= 0.

    Example:
        >>> [value == 2 for value in singular_values(Diagonal(Ball(torch.full((3, 1), -2.0))))]
        [True, True, True]
    """
    count = min(a.shape)
    if isinstance(a, Ball):
        return spectra.singular_values(a)
    if not a.is_finite:
        return (nan(),) * count
    match a:
        case Diagonal():
            sizes = a.column.work.abs().flatten().sort(descending=True).values.tolist()
            return tuple(nonnegative(exact(size), a.radius) for size in sizes)
        case Blocks():
            each = [spectra.singular_values(a.stack.ball(i)) for i in range(a.stack.size)]
            copies = a.count if a.is_shared else 1
            return _ordered((value for values in each for value in values * copies), count)
        case Kronecker():
            factors = singular_values(a.left), singular_values(a.right)
            return _ordered((multiply(x, y) for x, y in product(*factors)), count)
    roots = _gram_roots(a)
    return roots if roots is not None and _are_narrow(roots, roots[0], a) else _dense_values(a, roots)


def _gram_roots(a: MatrixBall) -> tuple[arb, ...] | None:
    """Return the singular values of a chain from its Gram matrix, or None where that is no smaller than the chain.

    They are those of the product of the centres; by Weyl's inequality the truth's are within the radius of them.
    """
    rows, cols = a.shape
    if not isinstance(a, Chain) or 2 * min(rows, cols) > max(rows, cols):
        return None
    exact_one = a.centred()
    turned = exact_one.transposed()
    gram = matmul(exact_one, turned) if rows < cols else matmul(turned, exact_one)
    squares = reversed(spectra.eigenvalues_symmetric(densified(gram)))
    return tuple(nonnegative(square_root(square), a.radius) for square in squares)


def _are_narrow(values: Iterable[arb], largest: arb, a: MatrixBall) -> bool:
    """Return whether singular values are as sharp as anyone needs, or as the dense form's would be."""
    enough = max(_NARROW * upper(largest), 2.0 * a.radius)
    return all(radius(value) <= enough for value in values)


def _dense_values(a: MatrixBall, otherwise: tuple[arb, ...] | None) -> tuple[arb, ...]:
    try:
        return spectra.singular_values(densified(a))
    except LimitError:
        if otherwise is None:
            raise
        return otherwise


def _extreme_singular(a: Blocks, *, smallest: bool) -> arb:
    """Return the smallest (largest) singular value of blocks that are not all the same.

    One block's is computed; a Cholesky factor of A'A - s I (s I - A'A) proves that another block has none beyond it,
    and where that fails the block's own is computed as well.
    """
    chosen, of_one = (minimum, extremes.sigma_min) if smallest else (maximum, extremes.sigma_max)

    def own(index: int) -> arb:
        return of_one(a.stack.ball(index))

    if a.stack.centre.numel() <= _FEW:
        return nonnegative(chosen(*(own(index) for index in range(a.stack.size))), 0.0)
    rows, cols = a.block_shape
    turned = transpose_each(a.stack)
    grams = matmul_each(a.stack, turned) if rows <= cols else matmul_each(turned, a.stack)
    best = _estimated_extreme(grams, smallest=smallest)
    value = own(best)
    end = value.lower() if smallest else value.upper()
    if not value.is_finite():
        return nan()
    found = [value]
    for index in range(a.stack.size):
        if index != best and not _none_beyond(grams.ball(index), end * end, smallest=smallest):
            found.append(own(index))
    return nonnegative(chosen(*found), 0.0)  # `minimum` may move a lower end of zero outward


def _estimated_extreme(grams: Stack, *, smallest: bool) -> int:
    """Return the index of the matrix with the smallest (largest) eigenvalue, by a float computation."""
    try:
        values = torch.linalg.eigvalsh(grams.work)
    except torch.linalg.LinAlgError:
        return 0
    return int(values[:, 0].argmin()) if smallest else int(values[:, -1].argmax())


def _none_beyond(gram: Ball, square: arb, *, smallest: bool) -> bool:
    """Return whether no eigenvalue of a Gram matrix is below (above) a square for certain."""
    if not gram.is_finite:
        return False
    if smallest and not square > 0:
        return True
    middle, spread, exponent = projection(gram)
    bound = square * dyadic(1, -exponent)
    return proved_above(middle, bound + spread) if smallest else proved_above(-middle, spread - bound)


def sigma_min(a: MatrixBall) -> arb:
    """Return the smallest of the min(rows, cols) singular values.

    Example:
        >>> sigma_min(Diagonal(Ball(torch.full((3, 1), -2.0)))) == 2
        True
    """
    match a:
        case Diagonal() if a.is_finite:
            return nonnegative(exact(float(a.column.work.abs().amin())), a.radius)
        case Blocks() if a.is_finite and not a.is_shared:
            return _extreme_singular(a, smallest=True)
        case Blocks() if a.is_finite:
            return extremes.sigma_min(a.stack.ball(0))
        case Kronecker() if a.is_finite and min(a.shape) == min(a.left.shape) * min(a.right.shape):
            return multiply(sigma_min(a.left), sigma_min(a.right))
        case Chain() if a.is_finite:
            roots = _gram_roots(a)
            if roots is not None and _are_narrow(roots[-1:], roots[0], a):
                return roots[-1]
            return _dense_values(a, roots)[-1]
    return singular_values(a)[-1]


def sigma_max(a: MatrixBall) -> arb:
    """Return the largest singular value.

    Example:
        >>> sigma_max(Diagonal(Ball(torch.full((3, 1), -2.0)))) == 2
        True
    """
    match a:
        case Diagonal() if a.is_finite:
            return nonnegative(exact(float(a.column.work.abs().amax())), a.radius)
        case Blocks() if a.is_finite and not a.is_shared:
            return _extreme_singular(a, smallest=False)
        case Blocks() if a.is_finite:
            return extremes.sigma_max(a.stack.ball(0))
        case Kronecker() if a.is_finite:
            return multiply(sigma_max(a.left), sigma_max(a.right))
    return singular_values(a)[0]


def eigenvalues_symmetric(a: MatrixBall) -> tuple[arb, ...]:
    """Return the eigenvalues of a matrix whose truth is symmetric, smallest first.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> eigenvalues_symmetric(Diagonal(Ball(torch.tensor([[3.0], [2.0]]))))[0] == 2
        True
    """
    order = require_square("eigenvalues_symmetric", a)
    match a:
        case Diagonal() if a.is_finite:
            return tuple(with_radius(value, a.radius) for value in sorted(norms.entries(a.column.work)))
        case Blocks() if a.is_finite:
            each = [spectra.eigenvalues_symmetric(a.stack.ball(i)) for i in range(a.stack.size)]
            copies = a.count if a.is_shared else 1
            return _ordered((value for values in each for value in values * copies), order)[::-1]
    return spectra.eigenvalues_symmetric(densified(a))


def lambda_max(a: MatrixBall, *, symmetric: bool = False) -> arb:
    """Return the largest real part of an eigenvalue.

    Args:
        a: n x n.
        symmetric: Whether the caller vouches that the true matrix is symmetric.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> lambda_max(Diagonal(Ball(torch.tensor([[3.0], [2.0]])))) == 3
        True
    """
    require_square("lambda_max", a)
    match a:
        case Diagonal():
            return norms.entry_max(a.column)
        case Blocks():
            return maximum(*(eigenvalues.lambda_max(a.stack.ball(i), symmetric=symmetric) for i in range(a.stack.size)))
    return eigenvalues.lambda_max(densified(a), symmetric=symmetric)


def lambda_min(a: MatrixBall, *, symmetric: bool = False) -> arb:
    """Return the smallest real part of an eigenvalue.

    Args:
        a: n x n.
        symmetric: Whether the caller vouches that the true matrix is symmetric.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> lambda_min(Diagonal(Ball(torch.tensor([[3.0], [2.0]])))) == 2
        True
    """
    if isinstance(a, Diagonal | Blocks):
        return -lambda_max(a.multiplied(arb(-1)), symmetric=symmetric)
    return eigenvalues.lambda_min(densified(a), symmetric=symmetric)


def rho(a: MatrixBall) -> arb:
    """Return the spectral radius, the largest modulus of an eigenvalue.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> rho(Diagonal(Ball(torch.tensor([[-3.0], [2.0]])))) == 3
        True
    """
    require_square("rho", a)
    match a:
        case Diagonal():
            return sigma_max(a)
        case Blocks():
            return maximum(*(eigenvalues.rho(a.stack.ball(i)) for i in range(a.stack.size)))
        case Kronecker() if a.factors_are_square:
            return multiply(rho(a.left), rho(a.right))
    return eigenvalues.rho(densified(a))
