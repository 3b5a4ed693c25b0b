"""Upward bounds for many matrices at once: the counterparts of `rounding` and `bounds` on tensors of bounds.

Each bound is a float >= 0; a stack of matrices has one per matrix. Zero stays zero, what is not finite becomes
infinite.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.bounds import largest_entry, power_of_two, times_power_of_two
from ntk_deq.certified.rounding import TINY, multiply_up, outward, unit_roundoff

Bounds = Float[Tensor, " k"]

_SAFE = 480  # squares of entries between 2^-480 and 2^480 neither overflow nor vanish


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


def fro_each(stack: Float[Tensor, "k p q"]) -> Bounds:
    """Return an upper bound of each matrix's Frobenius norm.

    One power of two scales them all, so a matrix far smaller than the largest (by 2^-530) gets a bound that is
    negligible beside the largest, not beside itself.

    Example:
        >>> fro_each(torch.zeros(2, 1, 1)).tolist()
        [0.0, 0.0]
    """
    work = stack.double()
    sizes = work.abs().amax(dim=(1, 2))
    largest = largest_entry(sizes)
    if largest == 0:
        return sizes
    if not math.isfinite(largest):
        return torch.full_like(sizes, math.inf)
    exponent = power_of_two(largest)
    exponent = 0 if abs(exponent) < _SAFE else exponent
    if exponent:
        work = times_power_of_two(work, -exponent)
    count = work.shape[1] * work.shape[2]
    squares = sum_each((work * work).sum(dim=(1, 2)), count + 1)
    lost = torch.full_like(squares, multiply_up(float(count), TINY))
    norms = root_each(add_each(squares, lost))
    if exponent:
        half = exponent // 2
        norms = add_each(norms, lost)  # entries that the scaling pushed below 2^-1074
        for part in (half, exponent - half):
            norms = multiply_each(norms, torch.full_like(norms, math.ldexp(1.0, part)))
    return torch.where(sizes == 0, torch.zeros_like(norms), norms)


def columns_each(stack: Float[Tensor, "k p q"]) -> Bounds:
    """Return an upper bound of each matrix's one-norm, the largest absolute column sum.

    Example:
        >>> columns_each(torch.zeros(1, 2, 2)).item()
        0.0
    """
    return sum_each(stack.double().abs().sum(dim=1).amax(dim=1), stack.shape[1])


def norm2_each(stack: Float[Tensor, "k p q"], fro: Bounds) -> Bounds:
    """Return an upper bound of the spectral norm of each matrix, and of its entries' absolute values.

    Args:
        stack: The matrices.
        fro: Bounds of their Frobenius norms.

    Example:
        >>> norm2_each(torch.zeros(1, 2, 2), torch.zeros(1, dtype=torch.float64)).item()
        0.0
    """
    mixed = root_each(multiply_each(columns_each(stack), columns_each(stack.mT)))
    return torch.minimum(mixed, fro)
