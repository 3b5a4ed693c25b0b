"""A draw with its distance from an exact one: floats hold no orthogonal matrix, few unit rows or products of low rank.

A claim speaks of the exact draw, of which it may use any property. Every float is a draw from `normal`, and every
symmetric matrix of floats one from `symmetric(normal)`: these are exact whatever they were rounded from. What is
normalised, multiplied, scaled or summed otherwise is a ball around its floats in which an exact draw lies.

How far floats are from the nearest matrix with unit or orthonormal rows: bounds as sharp as the floats are good.

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
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified.arithmetic import kron, matmul
from ntk_deq.certified.dense import Ball
from ntk_deq.certified.exactness import inexact_products, shifts_exactly, sum_error
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    divide_up,
    fro_up,
    multiply_up,
    root_up,
    subtract_down,
    unit_roundoff,
)
from ntk_deq.certified.scalar import upper


class Freedom(IntEnum):
    """Which floats near a draw are draws too."""

    FIXED = 0
    """None need be."""
    TIED = 1
    """Those with the same zeros, and equal (or opposite) entries where its own are: each entry may be rounded."""
    WHOLE = 2
    """All of them."""


class Known(float):
    """A float that stands for a number near it.

    Attributes:
        true: A ball that contains the number.
    """

    true: arb

    def __new__(cls, value: float, true: arb | None = None) -> Known:
        """Return the float with its ball; None: it is the number itself."""
        known = super().__new__(cls, value)
        known.true = arb(value) if true is None else true
        return known

    @property
    def error(self) -> float:
        """Upper bound of the distance from the float to the number."""
        return upper(abs(self.true - float(self)))


def error_of(number: float) -> float:
    """Return how far a float may be from the number that it stands for: 0 unless it is `Known`.

    Example:
        >>> error_of(0.1), 0 < error_of(Known(0.1, arb(1) / 10)) < 1e-17
        (0.0, True)
    """
    return number.error if isinstance(number, Known) else 0.0


@dataclass(frozen=True, eq=False)
class Sample:
    """A drawn tensor.

    Attributes:
        value: Its floats.
        radius: Frobenius distance from them within which an exact draw lies.
        freedom: Which floats near them are exact draws too.
    """

    value: Tensor
    radius: float = 0.0
    freedom: Freedom = Freedom.FIXED

    def at_most(self, freedom: Freedom) -> Sample:
        """Return the sample with no more freedom than that."""
        return replace(self, freedom=min(self.freedom, freedom))


def scaled(sample: Sample, factor: float) -> Sample:
    """Return a sample times a number.

    Args:
        sample: The sample.
        factor: The number; one that is `Known` stands for what its ball holds.

    Example:
        >>> third = Known(1 / 3, arb(1) / 3)
        >>> ones = Sample(torch.ones(2, dtype=torch.float64))
        >>> 0 < scaled(ones, third).radius < 1e-16, scaled(ones, 0.25).radius
        (True, 0.0)
    """
    value, off = sample.value * factor, error_of(factor)
    if sample.freedom and abs(factor) > off:
        return replace(sample, value=value)
    error = add_up(multiply_up(add_up(abs(factor), off), sample.radius), multiply_up(off, _size(sample.value)))
    if value.numel() and not shifts_exactly(sample.value, factor):
        lost = inexact_products(sample.value, torch.full_like(sample.value, factor))
        rounded = multiply_up(unit_roundoff(), _size(torch.where(lost, value, 0.0)))
        error = add_up(error, rounded, multiply_up(float(lost.sum()), TINY))
    return Sample(value, error)


def summed(left: Sample, right: Sample, sign: float) -> Sample:
    """Return left + right, or left - right.

    Args:
        left: A sample.
        right: Another of the same shape.
        sign: 1 or -1.

    Example:
        >>> one = Sample(torch.ones(1, dtype=torch.float64))
        >>> tiny = Sample(torch.full((1,), 1e-20, dtype=torch.float64))
        >>> summed(one, tiny, 1.0).radius >= 1e-20, summed(one, one, -1.0).radius
        (True, 0.0)
    """
    second = sign * right.value
    value = left.value + second
    if Freedom.WHOLE in (left.freedom, right.freedom):
        return Sample(value, freedom=Freedom.WHOLE)
    return Sample(value, add_up(left.radius, right.radius, _size(sum_error(left.value, second, value))))


def halved_sum(sample: Sample, sign: float) -> Sample:
    """Return (R + R')/2, or (R - R')/2, of a square sample: any matrix so symmetric where R is any matrix.

    Args:
        sample: R.
        sign: 1 or -1.

    Example:
        >>> signs = torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
        >>> halved_sum(Sample(signs), -1.0).value.tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    turned = sign * sample.value.T
    total = sample.value + turned
    value = total / 2
    if sample.freedom is Freedom.WHOLE:
        return Sample(value, freedom=Freedom.TIED)
    lost = add_up(_size(sum_error(sample.value, turned, total)), _size(total - 2 * value))
    return Sample(value, add_up(sample.radius, multiply_up(0.5, lost)))


def gram(sample: Sample) -> Sample:
    """Return R'R of a square sample; exact where nothing was rounded.

    Args:
        sample: R.
    """
    # A library product need not be symmetric to the last bit; the truth is, and so no farther from the symmetric part.
    return halved_sum(multiplied(replace(sample, value=sample.value.T), sample), 1.0)


def multiplied(left: Sample, right: Sample) -> Sample:
    """Return the matrix product of two samples; exact where both are and nothing was rounded.

    Args:
        left: rows x n.
        right: n x cols.
    """
    value = left.value @ right.value
    if not value.numel() or not left.value.numel():
        return Sample(value)
    return Sample(value, matmul(Ball(left.value, left.radius), Ball(right.value, right.radius)).radius)


def outer(left: Sample, right: Sample) -> Sample:
    """Return u v' of two vectors; exact where both are and nothing was rounded.

    Args:
        left: u.
        right: v.
    """
    value = torch.outer(left.value, right.value)
    if not value.numel():
        return Sample(value)
    factors = Ball(left.value[:, None], left.radius), Ball(right.value[None], right.radius)
    return Sample(value, kron(*factors).radius)


def constant(value: Tensor, number: float) -> Sample:
    """Return a tensor all of whose entries stand for one number.

    Args:
        value: The tensor.
        number: The number, `Known` or not.
    """
    return Sample(value, multiply_up(error_of(number), root_up(float(value.numel()))))


def _size(tensor: Tensor) -> float:
    return fro_up(tensor) if tensor.numel() else 0.0


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
