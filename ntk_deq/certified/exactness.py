"""When a float operation makes no rounding error at all, so that a case of equality can be decided for certain.

Every double is an odd integer times a power of two. `length` is the integer's number of bits, `low` the exponent of
the power. A product of two numbers is exact when the lengths add up to at most 53 bits and the lows to at least -1074.
A sum of numbers that are multiples of 2^low, with absolute values adding up to at most 2^(53 + low), is exact in every
order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LOWEST = -1074
"""Exponent of the smallest subnormal double."""

_BITS = 53  # significant bits of a double
_CHEAP = 1 << 13  # entries whose grain takes well below a millisecond
_NONE = 1 << 20  # `low` of a zero: above every exponent, so that a minimum passes over it


def split(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return bit length and exponent of the lowest bit of each entry; a zero has length 0.

    Args:
        tensor: Finite entries of any shape.

    Returns:
        Two int64 tensors of the same shape.

    Example:
        >>> length, low = split(torch.tensor([6.0, 0.5, 0.0]))
        >>> length.tolist(), low[:2].tolist()
        ([2, 1, 0], [1, -1])
    """
    mantissa, exponent = torch.frexp(tensor.double())
    whole = (mantissa.abs() * 2.0**_BITS).to(torch.int64)
    lowest = whole & -whole
    trailing = torch.frexp(lowest.double())[1].to(torch.int64) - 1
    zero = whole == 0
    length = (_BITS - trailing).masked_fill(zero, 0)
    return length, (exponent.to(torch.int64) - _BITS + trailing).masked_fill(zero, _NONE)


@dataclass(frozen=True)
class Grain:
    """What decides whether sums of products of a tensor's entries are exact.

    Attributes:
        low: The largest g such that every entry is a multiple of 2^g.
        top: Largest entry over 2^g, rounded up to an integer of at most 64 bits; None where it is longer.
        longest: Largest bit length of an entry.
    """

    low: int
    top: int | None
    longest: int


def grain(tensor: Tensor) -> Grain:
    """Return the grain of a tensor of finite entries.

    Example:
        >>> grain(torch.tensor([[0.5, 3.0]]))
        Grain(low=-1, top=6, longest=2)
    """
    length, low = split(tensor)
    longest, least = (int(value) for value in torch.stack([length.amax(), low.amin()]).tolist())
    largest = float(tensor.abs().amax())
    if longest == 0:
        return Grain(0, 0, 0)
    too_long = math.frexp(largest)[1] - least > 64
    half = least // 2  # in two steps, as 2^-least alone may overflow
    return Grain(least, None if too_long else int(math.ldexp(math.ldexp(largest, -half), half - least)), longest)


def product_is_exact(left: Tensor, right: Tensor, a: Grain, b: Grain) -> bool:
    """Return whether the product of matrices of given grains is free of rounding in every order, overflow apart.

    Either the sums fit: n max|A| max|B| <= 2^53 grain(A) grain(B); or one side only picks and scales: at most one
    non-zero entry in each row of A (column of B), all of them powers of two.

    Example:
        >>> tenth = torch.full((2, 2), 0.1, dtype=torch.float64)
        >>> product_is_exact(tenth, tenth, grain(tenth), grain(tenth))
        False
    """
    if a.low + b.low < LOWEST:
        return a.longest == 0 or b.longest == 0
    if a.top is not None and b.top is not None and left.shape[1] * a.top * b.top <= 1 << _BITS:
        return True
    picks_rows = a.longest <= 1 and int((left != 0).sum(dim=1).amax()) <= 1
    return picks_rows or (b.longest <= 1 and int((right != 0).sum(dim=0).amax()) <= 1)


def entry_products_are_exact(a: Grain, b: Grain) -> bool:
    """Return whether a product of any entry of one tensor and any entry of another is free of rounding.

    Example:
        >>> entry_products_are_exact(grain(torch.ones(2)), grain(torch.full((2,), 0.1)))
        True
    """
    if a.longest == 0 or b.longest == 0:
        return True
    return a.low + b.low >= LOWEST and (min(a.longest, b.longest) <= 1 or a.longest + b.longest <= _BITS)


def may_be_exact(left: Tensor, right: Tensor) -> bool:
    """Return whether a few entries leave open that products of two tensors are exact, which a grain costs much to tell.

    A product is exact only where the entries of one side are powers of two or bit lengths add up to at most 55: the
    largest entry of length l is at least 2^(l-1) grains.

    Example:
        >>> tenths = torch.full((100, 100), 0.1, dtype=torch.float64)
        >>> may_be_exact(tenths, tenths), may_be_exact(tenths, torch.ones(100, 100))
        (False, True)
    """
    if left.numel() + right.numel() <= _CHEAP:
        return True
    longest = sorted(int(split(_sample(side))[0].amax()) for side in (left, right))
    return longest[0] <= 1 or sum(longest) <= _BITS + 2


def _sample(tensor: Tensor) -> Tensor:
    """Return some of the entries: of the first matrix of a stack, at most 31 x 31."""
    matrix = tensor[(0,) * (tensor.dim() - 2)] if tensor.dim() > 1 else tensor[:, None]
    rows, cols = matrix.shape
    return matrix[:: max(1, rows // 16), :: max(1, cols // 16)]


def shifts_exactly(tensor: Tensor, factor: float) -> bool:
    """Return whether a factor is a power of two (with a sign) that pushes no bit of a tensor out of range, or 0.

    Example:
        >>> tenths = torch.full((2, 2), 0.1, dtype=torch.float64)
        >>> shifts_exactly(tenths, -0.5), shifts_exactly(tenths, 3.0), shifts_exactly(tenths, 2.0**-1030)
        (True, False, False)
    """
    mantissa, exponent = math.frexp(factor)
    if abs(mantissa) != 0.5:
        return factor == 0
    if exponent >= 1:
        return True
    smallest = float(torch.where(tensor != 0, tensor.abs(), math.inf).amin())
    # The lowest bit of a double is at most 52 places below the first.
    return not math.isfinite(smallest) or math.frexp(smallest)[1] - _BITS + exponent - 1 >= LOWEST


def inexact_products(left: Tensor, right: Tensor) -> Tensor:
    """Return a mask of the entries whose elementwise product may be rounded.

    Example:
        >>> tenth = torch.tensor([0.1], dtype=torch.float64)
        >>> inexact_products(tenth, tenth).item(), inexact_products(tenth, tenth * 0 + 2).item()
        (True, False)
    """
    (length_a, low_a), (length_b, low_b) = split(left), split(right)
    fits = (length_a + length_b <= _BITS) | (length_a <= 1) | (length_b <= 1)
    fits &= low_a + low_b >= LOWEST
    return ~(fits | (length_a == 0) | (length_b == 0))


def sum_error(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
    """Return left + right - total exactly, for float64 tensors and total = fl(left + right) (Knuth's two-sum).

    References:
        Knuth, The Art of Computer Programming 2, section 4.2.2, theorem B.

    Example:
        >>> one, small = torch.ones(1, dtype=torch.float64), torch.full((1,), 1e-20, dtype=torch.float64)
        >>> sum_error(one, small, one + small).item()
        1e-20
    """
    part = total - left
    return (left - (total - part)) + (right - part)


def is_monomial(tensor: Tensor) -> bool:
    """Return whether every row and column has at most one entry that is not zero.

    Example:
        >>> is_monomial(torch.eye(2)), is_monomial(torch.ones(2, 2))
        (True, False)
    """
    filled = tensor != 0
    return int(filled.sum(dim=0).amax()) <= 1 and int(filled.sum(dim=1).amax()) <= 1


def is_triangular(tensor: Tensor) -> bool:
    """Return whether a square matrix is upper or lower triangular.

    Example:
        >>> is_triangular(torch.tensor([[1.0, 2.0], [0.0, 3.0]])), is_triangular(torch.ones(2, 2))
        (True, False)
    """
    return not bool(tensor.triu(1).any()) or not bool(tensor.tril(-1).any())
