"""Matrix and Kronecker products of balls, with a-priori rounding bounds.

`|fl(AB) - AB| <= n u |A||B| + n 2^-1074` holds for any order of summation, with or without fused multiply-add; it does
not hold for Strassen-like algorithms or for double-precision products emulated on integer or low-precision units,
which must stay switched off.
"""

from __future__ import annotations

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import enclose, product_radius
from ntk_deq.certified.ball import Ball, first_reason, require_alike
from ntk_deq.certified.bounds import root_up
from ntk_deq.certified.exactness import entry_products_are_exact, may_be_exact, product_is_exact
from ntk_deq.certified.rounding import TINY, add_up, multiply_up, outward
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
