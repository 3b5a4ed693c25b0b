"""How far floats are from the nearest matrix with unit or orthonormal rows: bounds as sharp as the floats are good.

Where X X' = I + G, the squares of the singular values s_i of X are 1 + g_i for the eigenvalues g_i of G. The nearest
matrix with orthonormal rows is the factor U of the polar decomposition X = P U, and

    fro(X - U)^2 = sum (s_i - 1)^2 = sum (g_i/(1 + s_i))^2 <= (fro(G)/(2 - fro(G)))^2   for fro(G) < 1,

since s_i >= 1 - fro(G). For single rows it is x/norm(x), at the distance |norm(x) - 1|.

G is what is left of numbers near one. A float product alone would bound it by n u fro(X)^2, a hundred times the defect
of a QR decomposition. So X = H + L with H on a grid of 2^-26: products of entries of H are multiples of 2^-52 whose
partial sums stay below 2, hence exact in every order, and what rounding does to the products with L is 2^-26 of that.

References:
    Higham, Functions of Matrices (2008), theorem 8.4 (nearest matrix); Ozaki, Ogita, Oishi and Rump, Numerical
    Algorithms 59 (2012) (products free of rounding by splitting).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ntk_deq.certified.rounding import TINY, add_up, divide_up, fro_up, multiply_up, subtract_down, unit_roundoff

_GRID = 2.0**26
_LONGEST = 1.5  # square of a row's length up to which partial sums stay below 2


def distance_to_orthonormal_rows(matrix: Tensor) -> float:
    """Return an upper bound of the Frobenius distance from a matrix to one with orthonormal rows.

    Args:
        matrix: N x d in float64, on the CPU.

    Returns:
        The bound; 0 for rows that are orthonormal and short binary fractions, infinite for rows far from orthonormal.

    Example:
        >>> distance_to_orthonormal_rows(torch.eye(2, 3, dtype=torch.float64))
        0.0
        >>> distance_to_orthonormal_rows(torch.tensor([[0.6, 0.8]], dtype=torch.float64)) < 1e-16
        True
    """
    if not _near_unit_rows(matrix):
        return math.inf
    high, low = _parts(matrix)
    mixed = high @ low.T
    gram = (high @ high.T - torch.eye(len(matrix), dtype=matrix.dtype)) + (mixed + mixed.T + low @ low.T)
    size = fro_up(low)
    products = multiply_up(size, add_up(multiply_up(2.0, fro_up(high)), size))
    return _from_defect(fro_up(gram), products, matrix.shape[1], matrix.shape[0] ** 2)


def distance_to_unit_rows(matrix: Tensor) -> float:
    """Return an upper bound of the Frobenius distance from a matrix to one with rows of Euclidean norm 1.

    Args:
        matrix: N x d in float64, on the CPU.

    Example:
        >>> distance_to_unit_rows(torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64)) < 1e-16
        True
    """
    if not _near_unit_rows(matrix):
        return math.inf
    defect, products = _row_products(matrix, matrix, 1.0)
    return _from_defect(fro_up(defect), products, matrix.shape[1], len(matrix))


def distance_to_orthonormal_pairs(first: Tensor, second: Tensor) -> float:
    """Return an upper bound of the Frobenius distance from pairs of rows to pairs of orthonormal ones, all together.

    Args:
        first: N x d in float64, on the CPU.
        second: The same; its row i makes a pair with row i of `first`.

    Example:
        >>> one, other = torch.tensor([[[0.6, 0.8]], [[-0.8, 0.6]]], dtype=torch.float64)
        >>> distance_to_orthonormal_pairs(one, other) < 1e-16
        True
    """
    if not (_near_unit_rows(first) and _near_unit_rows(second)):
        return math.inf
    parts = [_row_products(first, first, 1.0), _row_products(second, second, 1.0)]
    parts += 2 * [_row_products(first, second, 0.0)]
    defect = torch.stack([part for part, _ in parts])
    return _from_defect(fro_up(defect), add_up(*(products for _, products in parts)), first.shape[1], defect.numel())


def _near_unit_rows(matrix: Tensor) -> bool:
    return bool(((matrix * matrix).sum(dim=1) < _LONGEST).all())


def _parts(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest matrix on the grid and the rest, which is at most half a step of it; both exactly."""
    high = torch.round(matrix * _GRID) / _GRID
    return high, matrix - high


def _row_products(left: Tensor, right: Tensor, expected: float) -> tuple[Tensor, float]:
    """Return the inner product of each pair of rows less a number, and the size of the products that were rounded."""
    (high, low), (other, rest) = _parts(left), _parts(right)
    defect = ((high * other).sum(dim=1) - expected) + (high * rest + low * other + low * rest).sum(dim=1)
    sizes = [fro_up(part) for part in (high, low, other, rest)]
    products = add_up(multiply_up(sizes[0], sizes[3]), multiply_up(sizes[1], sizes[2]), multiply_up(sizes[1], sizes[3]))
    return defect, products


def _from_defect(defect: float, products: float, terms: int, entries: int) -> float:
    """Return fro(G)/(2 - fro(G)) from the norm of a computed G.

    Args:
        defect: That norm.
        products: A bound on the norm of the sums of absolute values of all products that may have been rounded.
        terms: Number of terms of each sum.
        entries: Number of entries of G.
    """
    u = unit_roundoff()
    # Each product, its sum and the few additions after it round; so does the last one, of parts that nearly cancel.
    rounded = multiply_up(2.0 * (3.0 * terms + 8.0) * u, products)
    underflow = multiply_up(float(entries), 4.0 * terms, TINY) if products else 0.0
    total = add_up(multiply_up(defect, 1.0 + 4.0 * u), rounded, underflow)
    return divide_up(total, subtract_down(2.0, total)) if total < 1.0 else math.inf
