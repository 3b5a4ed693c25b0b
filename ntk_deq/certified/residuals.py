"""Bounds on what a float factorisation leaves over, from one matrix product each; the tests of every float guess."""

from __future__ import annotations

import torch
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.bounds import fro_up
from ntk_deq.certified.rounding import TINY, add_up, multiply_up, outward


def summing_error(terms: int) -> float:
    """Return an upper bound of g_n = n u/(1 - n u), the relative error of a sum of n products in any order.

    Example:
        >>> 1e-13 < summing_error(1000) < 1.2e-13
        True
    """
    slack = terms * rounding.unit_roundoff()
    return outward(outward(slack) * outward(1.0 + 2.0 * slack)) if slack < 0.5 else float("inf")


def residual_up(target: Tensor, left: Tensor, right: Tensor) -> float:
    """Return an upper bound of fro(T - L R) for float64 matrices.

    Each entry is computed as a sum of n + 1 terms in some order, so that the rounding error is at most
    g_{n+1} (fro(T) + fro(L) fro(R)), and 2^-1074 for each product that underflows.

    Args:
        target: T, rows x cols.
        left: L, rows x n.
        right: R, n x cols.

    Example:
        >>> half = torch.full((2, 2), 0.5, dtype=torch.float64)
        >>> residual_up(half, half, half) < 1e-15
        True
    """
    inner = left.shape[1]
    residual = torch.addmm(target, left, right, alpha=-1.0)
    size = add_up(fro_up(target), multiply_up(fro_up(left), fro_up(right)))
    underflow = multiply_up(float(inner), float(max(target.shape)), TINY)
    return add_up(fro_up(residual), multiply_up(summing_error(inner + 1), size), underflow)


def column_multiples(matrix: Tensor, factors: Tensor) -> tuple[Tensor, float]:
    """Return matrix diag(factors), rounded, and an upper bound of the Frobenius norm of what rounding changed.

    Example:
        >>> eye = torch.eye(2, dtype=torch.float64)
        >>> column_multiples(eye, torch.tensor([3.0, 0.1], dtype=torch.float64))[1] < 1e-15
        True
    """
    product = matrix * factors
    rounded = multiply_up(rounding.unit_roundoff(), fro_up(product))
    return product, add_up(rounded, multiply_up(float(product.numel()), TINY))


def orthogonality_up(columns: Tensor) -> float:
    """Return an upper bound of fro(C'C - I).

    Example:
        >>> orthogonality_up(torch.eye(3, dtype=torch.float64)) < 1e-14
        True
    """
    unit = torch.eye(columns.shape[1], dtype=columns.dtype, device=columns.device)
    return residual_up(unit, columns.mT, columns)
