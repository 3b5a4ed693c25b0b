"""Upward bounds for many matrices at once, each as the function of one number or matrix that it is called like."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.rounding import (
    SAFE_HIGH,
    SAFE_LOW,
    TINY,
    largest_entry,
    multiply_up,
    outward,
    power_of_two,
    times_power_of_two,
    unit_roundoff,
)

Bounds = Float[Tensor, " k"]


def _up(rounded: Tensor, zero: Tensor) -> Tensor:
    """Move results of one rounded operation outward; exact zeros stay, what is not a number is infinite."""
    moved = torch.nextafter(rounded, torch.full_like(rounded, math.inf))
    return torch.where(zero, torch.zeros_like(moved), moved).nan_to_num(nan=math.inf, posinf=math.inf)


def add_each(*values: Tensor) -> Tensor:
    """Return upper bounds of sums of nonnegative floats.

    Example:
        >>> add_each(torch.zeros(2), torch.tensor([0.0, 0.25])).tolist()
        [0.0, 0.25]
    """
    total = values[0]
    for value in values[1:]:
        rounded = torch.nextafter(total + value, torch.full_like(total + value, math.inf))
        total = torch.where(total == 0, value, torch.where(value == 0, total, rounded))
    return total.nan_to_num(nan=math.inf, posinf=math.inf)


def multiply_each(*values: Tensor) -> Tensor:
    """Return upper bounds of products of nonnegative floats; infinite where a factor is, zero or not.

    Example:
        >>> multiply_each(torch.zeros(2), torch.tensor([3.0, math.inf])).tolist()
        [0.0, inf]
    """
    total = values[0]
    for value in values[1:]:
        known = torch.isfinite(total) & torch.isfinite(value)
        product = _up(total * value, (total == 0) | (value == 0))
        total = torch.where(known, product, torch.full_like(product, math.inf))
    return total


def root_each(values: Tensor) -> Tensor:
    """Return upper bounds of square roots.

    Example:
        >>> root_each(torch.tensor([0.0, 4.0])).tolist()[0]
        0.0
    """
    return _up(values.sqrt(), values == 0)


def divide_each(numerators: Tensor, denominators: Tensor) -> Tensor:
    """Return upper bounds of quotients of nonnegative floats; infinite where the denominator is not positive.

    Example:
        >>> divide_each(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0])).tolist()
        [0.0, inf]
    """
    known = torch.isfinite(numerators) & (denominators > 0)
    quotients = _up(numerators / denominators, numerators == 0)
    return torch.where(known, quotients, torch.full_like(quotients, math.inf))


def product_radii(size_a: Tensor, radius_a: Tensor, size_b: Tensor, radius_b: Tensor) -> Tensor:
    """Return |A| rB + rA |B| + rA rB for each pair: what a bilinear product inherits from its factors' radii.

    Example:
        >>> one = torch.ones(1)
        >>> product_radii(one, 0 * one, one, 0 * one).item()
        0.0
    """
    return add_each(multiply_each(size_a, radius_b), multiply_each(radius_a, size_b), multiply_each(radius_a, radius_b))


def sum_each(computed: Tensor, terms: int) -> Tensor:
    """Return upper bounds of sums of nonnegative doubles that were computed in any order, as `summation_up`.

    Args:
        computed: The rounded sums.
        terms: Number of terms, or of roundings that one term passes through.

    Example:
        >>> sum_each(torch.ones(1, dtype=torch.float64), 3).item() > 1
        True
    """
    slack = terms * unit_roundoff()
    if not slack < 0.5:  # the bound 1/(1 - t) <= 1 + 2 t
        return torch.full_like(computed, math.inf)
    return multiply_each(computed, torch.full_like(computed, outward(1.0 + 2.0 * slack)))


def largest_each(stack: Float[Tensor, "k p q"]) -> Bounds:
    """Return the largest absolute value of an entry of each matrix, exactly.

    Example:
        >>> largest_each(torch.tensor([[[1.0, -2.0]]])).tolist()
        [2.0]
    """
    low, high = stack.flatten(1).aminmax(dim=1)
    return torch.maximum(-low, high) + 0.0  # never minus zero


def fro_each(stack: Float[Tensor, "k p q"]) -> Bounds:
    """Return an upper bound of each matrix's Frobenius norm.

    Where a square may leave the range, one power of two scales them all, so that a matrix far smaller than the largest
    (by 2^-530) gets a bound that is negligible beside the largest, not beside itself.

    Example:
        >>> fro_each(torch.zeros(2, 1, 1)).tolist()
        [0.0, 0.0]
    """
    work = stack.double()
    rounded = torch.linalg.vector_norm(work, dim=(1, 2))
    low, high = (float(end) for end in rounded.aminmax())
    if SAFE_LOW < low and high < SAFE_HIGH:
        return _norms(rounded, work)
    sizes = largest_each(work)
    largest = largest_entry(sizes)
    if largest == 0:
        return sizes
    if not math.isfinite(largest):
        return torch.full_like(sizes, math.inf)
    exponent = power_of_two(largest)
    moved = times_power_of_two(work, -exponent)
    norms = _norms(torch.linalg.vector_norm(moved, dim=(1, 2)), moved)
    lost = multiply_up(float(moved[0].numel()), TINY)  # entries that the scaling pushed below 2^-1074
    norms, half = add_each(norms, torch.full_like(norms, lost)), exponent // 2
    for part in (half, exponent - half):
        norms = multiply_each(norms, torch.full_like(norms, math.ldexp(1.0, part)))
    return torch.where(sizes == 0, torch.zeros_like(norms), norms)


def _norms(rounded: Tensor, work: Tensor) -> Bounds:
    """Bound norms from their rounded values, entries being at most about 2^480."""
    count = work.shape[1] * work.shape[2]
    # A rounded sum of rounded squares, and a rounded root: one rounding more for the square, two for the root.
    squares = sum_each(multiply_each(rounded, rounded), count + 3)
    return root_each(add_each(squares, torch.full_like(squares, multiply_up(float(count), TINY))))


def norm2_each(stack: Float[Tensor, "k p q"], fro: Bounds) -> Bounds:
    """Return an upper bound of the spectral norm of each matrix, and of its entries' absolute values.

    The root of the product of one-norm and infinity-norm, or the Frobenius norm.

    Args:
        stack: The matrices.
        fro: Bounds of their Frobenius norms.

    Example:
        >>> norm2_each(torch.zeros(1, 2, 2), torch.zeros(1, dtype=torch.float64)).item()
        0.0
    """
    work = stack.double()
    # Sums of absolute values without a copy of these, which would cost as much as a product.
    sums = [torch.linalg.vector_norm(work, 1, dim=dim) for dim in (1, 2)]
    columns, rows = (sum_each(sums[dim].amax(dim=1), stack.shape[1 + dim]) for dim in (0, 1))
    return torch.minimum(root_each(multiply_each(columns, rows)), fro)
