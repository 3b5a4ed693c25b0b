"""Matrix and Kronecker products of balls, with a-priori rounding bounds.

`|fl(AB) - AB| <= n u |A||B| + n 2^-1074` holds for any order of summation, with or without fused multiply-add; it does
not hold for Strassen-like algorithms or for double-precision products emulated on integer or low-precision units,
which must stay switched off.

Bounds on what a float factorisation leaves over, from one matrix product each; the tests of every float guess.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import enclose, product_radius
from ntk_deq.certified.ball import Ball, first_reason, require_alike
from ntk_deq.certified.exactness import entry_products_are_exact, may_be_exact, product_is_exact
from ntk_deq.certified.rounding import TINY, add_up, fro_up, multiply_up, outward, root_up
from ntk_deq.errors import ArgumentError


def _usable(a: Ball, b: Ball) -> bool:
    return a.is_finite and b.is_finite


def _matmul_error(a: Ball, b: Ball) -> float:
    """Bound fro(fl(AB) - AB) by gamma_n fro(|A||B|) + n TINY sqrt(entries), zero where no rounding takes place."""
    if may_be_exact(a.work, b.work) and product_is_exact(a.work, b.work, a.grain, b.grain):
        return 0.0
    (rows, inner), cols = a.shape, b.shape[1]
    relative = outward(outward(inner * rounding.unit_roundoff()) * outward(1.0 + 2 * inner * rounding.unit_roundoff()))
    absolute = min(multiply_up(a.fro, b.norm2), multiply_up(a.norm2, b.fro))
    underflow = multiply_up(outward(2.0 * inner), TINY, root_up(float(rows * cols)))
    return add_up(multiply_up(relative, absolute), underflow)


def matmul(a: Ball, b: Ball) -> Ball:
    """Return the matrix product a b.

    Truth and product differ by at most norm2(A) rB + rA norm2(B) + rA rB, and by rounding, n u fro(|A||B|) + n 2^-1074
    an entry.

    Args:
        a: rows x n.
        b: n x cols.

    Returns:
        The ball, rows x cols; exact where both are and no operation was rounded.

    Raises:
        ArgumentError: The inner sizes, element types or devices differ.

    References:
        Jeannerod and Rump, SIAM J. Matrix Anal. Appl. 34, 2013 (constant n u).

    Example:
        >>> import torch
        >>> two = Ball(torch.full((2, 2), 2.0, dtype=torch.float64))
        >>> matmul(two, two).radius
        0.0
    """
    require_alike("matmul", a, b)
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(
            f"`b` of matmul must have as many rows as `a` has columns, {a.shape[1]}. Got {b.shape[0]} x {b.shape[1]}."
        )
    product = a.work @ b.work
    if not _usable(a, b):
        return enclose(product, float("inf"), a, first_reason(a, b))
    inherited = product_radius(a.norm2, a.radius, b.norm2, b.radius)
    return enclose(product, add_up(_matmul_error(a, b), inherited), a)


def kron(a: Ball, b: Ball) -> Ball:
    """Return the Kronecker product: block (i, j) is a[i, j] b.

    Truth and product differ by at most fro(A) rB + rA fro(B) + rA rB, and by rounding, u |a b| + 2^-1074 an entry.

    Args:
        a: rows x cols.
        b: p x q.

    Returns:
        The ball, rows p x cols q; exact where both are and no product was rounded.

    Raises:
        ArgumentError: Element types or devices differ.

    Example:
        >>> import torch
        >>> kron(Ball(torch.eye(2)), Ball(torch.full((1, 2), 0.1)))
        Ball(2 x 4, float32, radius=0)
    """
    require_alike("kron", a, b)
    # torch.kron refuses some strides of matrices with one row or column; this is the same product.
    rows, cols = a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]
    product = (a.work[:, None, :, None] * b.work[None, :, None, :]).reshape(rows, cols)
    if not _usable(a, b):
        return enclose(product, float("inf"), a, first_reason(a, b))
    error = product_radius(a.fro, a.radius, b.fro, b.radius)
    if not (may_be_exact(a.work, b.work) and entry_products_are_exact(a.grain, b.grain)):
        rounded = multiply_up(rounding.unit_roundoff(), a.fro, b.fro)
        error = add_up(error, rounded, multiply_up(float(product.numel()), TINY))
    return enclose(product, error, a)


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
