"""Norms, sums and determinants of a matrix ball as scalar balls.

Small matrices are summed exactly, in whole numbers over a common power of two, so that an exact ball gives an exact or
correctly rounded result; larger ones carry the a-priori bound of a float sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flint import arb, arb_mat, fmpz_mat
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.dense import Ball, require_square
from ntk_deq.certified.functions import maximum, square_root
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    fro_up,
    largest_entry,
    multiply_up,
    outward,
    power_of_two,
    root_up,
    times_power_of_two,
)
from ntk_deq.certified.scalar import dyadic, from_bounds, nan, with_radius

EXACT_ENTRIES = 4096
"""Up to this many entries are summed exactly on the host: about 5 ms."""

EXACT_ORDER = 16
"""Up to this order determinants and ranks of exact matrices are computed in whole numbers: about 1 ms."""


def whole_numbers(values: Sequence[float]) -> tuple[list[int], int]:
    """Return finite floats as whole numbers times one power of two.

    Args:
        values: The floats.

    Returns:
        The whole numbers and the exponent e, with value = number 2^e.

    Example:
        >>> whole_numbers([0.5, 3.0])
        ([1, 6], -1)
    """
    parts = [value.as_integer_ratio() for value in values]
    shift = max((bottom for _, bottom in parts), default=1).bit_length() - 1
    return [top << (shift - bottom.bit_length() + 1) for top, bottom in parts], -shift


def entries(tensor: Tensor) -> list[float]:
    """Return the entries of a matrix row by row as floats on the host.

    Example:
        >>> import torch
        >>> entries(torch.eye(2))
        [1.0, 0.0, 0.0, 1.0]
    """
    return tensor.double().reshape(-1).tolist()


def exact_sum(values: Sequence[float]) -> arb:
    """Return the sum of floats without any rounding.

    Example:
        >>> exact_sum([1e300, 1.0, -1e300]) == 1
        True
    """
    numbers, exponent = whole_numbers(values)
    return dyadic(sum(numbers), exponent)


def nonnegative(value: arb, spread: float) -> arb:
    """Return value +/- spread, cut at zero, for a quantity that cannot be negative.

    Example:
        >>> nonnegative(arb(1), 2.0) >= 0
        True
    """
    if spread == 0 and value >= 0:
        return value
    wide = with_radius(value, spread) if math.isfinite(spread) else nan()
    if not wide.is_finite() or wide >= 0:
        return wide
    return from_bounds(0.0, wide.upper())


def _large_frobenius(tensor: Tensor) -> arb:
    work = tensor.double()
    exponent = power_of_two(largest_entry(work))
    if abs(exponent) < 480:  # squares stay within 2^-960 to 2^960
        exponent = 0
    work = times_power_of_two(work, -exponent)
    rows = (work * work).sum(dim=1)
    total = math.fsum(rows.tolist())
    # A row's sum passes through at most cols + 1 roundings, and fsum rounds once.
    slack = multiply_up(total, outward(2.0 * (work.shape[1] + 2) * rounding.unit_roundoff()))
    # Each square may underflow, and each entry may have been lost in scaling.
    lost = multiply_up(float(work.numel()), TINY)
    return nonnegative(square_root(with_radius(total, add_up(slack, lost))), lost) * dyadic(1, exponent)


def frobenius(a: Ball) -> arb:
    """Return the Frobenius norm, for a vector the Euclidean norm.

    Args:
        a: rows x cols.

    Returns:
        A ball with lower end >= 0; without radius where the sum of squares has an exact root.

    Example:
        >>> import torch
        >>> frobenius(Ball(torch.tensor([[3.0], [4.0]]))) == 5
        True
    """
    if not a.is_finite:
        return nan()
    if a.centre.numel() > EXACT_ENTRIES:
        return nonnegative(_large_frobenius(a.centre), a.radius)
    numbers, exponent = whole_numbers(entries(a.centre))
    return nonnegative(square_root(dyadic(sum(n * n for n in numbers), 2 * exponent)), a.radius)


def _largest_sum(columns: Tensor, spread: float) -> arb:
    """Return the largest sum of absolute values over the columns of a matrix, +/- spread."""
    if columns.numel() <= EXACT_ENTRIES:
        sums = [exact_sum(column) for column in columns.double().abs().mT.tolist()]
        return nonnegative(maximum(*sums), spread)
    largest = float(columns.double().abs().sum(dim=0).amax())
    slack = multiply_up(largest, outward(2.0 * columns.shape[0] * rounding.unit_roundoff()))
    return nonnegative(with_radius(largest, slack), spread)


def norm1(a: Ball) -> arb:
    """Return the one-norm, the largest absolute column sum.

    Example:
        >>> import torch
        >>> norm1(Ball(torch.tensor([[1.0, 2.0], [-3.0, 1.0]]))) == 4
        True
    """
    return _largest_sum(a.centre, multiply_up(root_up(float(a.shape[0])), a.radius)) if a.is_finite else nan()


def norminf(a: Ball) -> arb:
    """Return the infinity-norm, the largest absolute row sum.

    Example:
        >>> import torch
        >>> norminf(Ball(torch.tensor([[1.0, 2.0], [-3.0, 1.0]]))) == 4
        True
    """
    return _largest_sum(a.centre.mT, multiply_up(root_up(float(a.shape[1])), a.radius)) if a.is_finite else nan()


def entry_max(a: Ball) -> arb:
    """Return the largest entry.

    Example:
        >>> import torch
        >>> entry_max(Ball(torch.tensor([[1.0, -2.0]]))) == 1
        True
    """
    return with_radius(float(a.centre.amax()), a.radius)


def entry_min(a: Ball) -> arb:
    """Return the smallest entry.

    Example:
        >>> import torch
        >>> entry_min(Ball(torch.tensor([[1.0, -2.0]]))) == -2
        True
    """
    return with_radius(float(a.centre.amin()), a.radius)


def entry_sum(a: Ball) -> arb:
    """Return the sum of the entries; it moves by at most sqrt(rows cols) times the radius.

    Example:
        >>> import torch
        >>> entry_sum(Ball(torch.tensor([[1.0, -2.0]]))) == -1
        True
    """
    if not a.is_finite:
        return nan()
    spread = multiply_up(root_up(float(a.centre.numel())), a.radius)
    if a.centre.numel() <= EXACT_ENTRIES:
        return with_radius(exact_sum(entries(a.centre)), spread)
    work = a.centre.double()
    sums = math.fsum(work.sum(dim=1).tolist())
    # Each row's sum passes through cols roundings; the absolute values add up to at most sqrt(entries) fro.
    size = multiply_up(root_up(float(work.numel())), fro_up(work))
    slack = multiply_up(size, outward(2.0 * (work.shape[1] + 2) * rounding.unit_roundoff()))
    return with_radius(with_radius(sums, slack), spread)


def trace(a: Ball) -> arb:
    """Return the sum of the diagonal; it moves by at most sqrt(n) times the radius.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> import torch
        >>> trace(Ball(torch.eye(3))) == 3
        True
    """
    order = require_square("trace", a)
    if not a.is_finite:
        return nan()
    spread = multiply_up(root_up(float(order)), a.radius)
    return with_radius(exact_sum(entries(a.centre.diagonal())), spread)


def whole_matrix(tensor: Tensor) -> tuple[fmpz_mat, int]:
    """Return a matrix of floats as a matrix of whole numbers times one power of two.

    Example:
        >>> import torch
        >>> whole_matrix(torch.eye(2))[0].rank()
        2
    """
    numbers, exponent = whole_numbers(entries(tensor))
    return fmpz_mat(tensor.shape[0], tensor.shape[1], numbers), exponent


def determinant(a: Ball) -> arb:
    """Return the determinant.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> import torch
        >>> determinant(Ball(torch.tensor([[1.0, 2.0], [2.0, 4.0]]))) == 0
        True
    """
    order = require_square("determinant", a)
    if not a.is_finite:
        return nan()
    if a.is_exact and order <= EXACT_ORDER:
        numbers, exponent = whole_matrix(a.centre)
        return dyadic(int(numbers.det()), order * exponent)
    return arb_mat(order, order, [with_radius(value, a.radius) for value in entries(a.centre)]).det()
