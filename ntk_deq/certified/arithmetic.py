"""Sums, multiples and products of matrix balls: elementwise, of matrices and Kronecker, with a-priori rounding bounds.

`|fl(AB) - AB| <= n u |A||B| + n 2^-1074` holds for any order of summation, with or without fused multiply-add; it does
not hold for Strassen-like algorithms or for double-precision products emulated on integer or low-precision units,
which must stay switched off.

Entrywise comparison of two matrix balls. Bounds on what a float factorisation leaves over, from one matrix product
each; the tests of every float guess.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.dense import Ball, first_reason, no_information, require_alike, require_one_form
from ntk_deq.certified.exactness import (
    entry_products_are_exact,
    inexact_products,
    may_be_exact,
    product_is_exact,
    shifts_exactly,
    sum_error,
)
from ntk_deq.certified.rounding import TINY, add_up, fro_up, largest_entry, multiply_up, outward, root_up
from ntk_deq.certified.scalar import nan, value_and_radius, with_radius
from ntk_deq.errors import ArgumentError


def enclose(work: Tensor, error: float, like: Ball, reason: str = "") -> Ball:
    """Return the ball around a float64 result, rounded to the element type of an input.

    Args:
        work: The computed matrix in float64.
        error: Bound on its Frobenius distance from the truth.
        like: Gives the element type.
        reason: Why `error` is infinite, where it is.

    Example:
        >>> enclose(torch.full((1, 1), 0.1, dtype=torch.float64), 0.0, Ball(torch.zeros(1, 1))).radius > 0
        True
    """
    if like.centre.dtype is torch.float64:
        return Ball(work, error, reason)
    kept = work.to(like.centre.dtype)
    # Both are doubles and differ in the trailing bits only, so this difference is exact.
    return Ball(kept, add_up(error, fro_up(work - kept.double())), reason)


def add(a: Ball, b: Ball) -> Ball:
    """Return a + b.

    The rounding error of each sum is itself a float (Knuth's two-sum), so the radius grows by exactly what was lost.

    Args:
        a: rows x cols.
        b: rows x cols.

    Returns:
        The ball, exact where both are and no sum was rounded.

    Raises:
        ArgumentError: Shapes, element types or devices differ.

    Example:
        >>> one = Ball(torch.ones(2, 2, dtype=torch.float64))
        >>> add(one, one).radius
        0.0
    """
    require_one_form("add", a, b)
    left, right = a.work, b.work
    total = left + right
    lost = sum_error(left, right, total)
    return enclose(total, add_up(a.radius, b.radius, fro_up(lost)), a, first_reason(a, b))


def negate(a: Ball) -> Ball:
    """Return -a, without any error.

    Example:
        >>> negate(Ball(torch.ones(1, 1))).centre.item()
        -1.0
    """
    return Ball(-a.centre, a.radius, a.reason)


def subtract(a: Ball, b: Ball) -> Ball:
    """Return a - b, as `add` does.

    Raises:
        ArgumentError: Shapes, element types or devices differ.

    Example:
        >>> one = Ball(torch.ones(1, 1))
        >>> subtract(one, one)
        Ball(1 x 1, float32, radius=0)
    """
    require_one_form("subtract", a, b)
    return add(a, negate(b))


def elementwise_error(left: Tensor, right: Tensor, product: Tensor) -> float:
    """Bound the Frobenius norm of left .* right - fl(left .* right) in float64, zero where every product is exact.

    Example:
        >>> half = torch.full((1, 1), 0.5, dtype=torch.float64)
        >>> elementwise_error(half, half, half * half)
        0.0
    """
    if may_be_exact(left, right):
        inexact = inexact_products(left, right)
        count = int(inexact.sum())
        if not count:
            return 0.0
        rounded = fro_up(torch.where(inexact, product, torch.zeros_like(product)))
    else:  # the mask costs more than ten products, and would leave out little
        count, rounded = product.numel(), fro_up(product)
    # |fl(x) - x| <= u |fl(x)| + TINY/2 in round-to-nearest.
    return add_up(multiply_up(rounding.unit_roundoff(), rounded), multiply_up(float(count), TINY))


def scale(factor: arb, a: Ball) -> Ball:
    """Return factor * a.

    With factor c +/- r: the radius is |c| a.radius + r (fro(A) + a.radius), and rounding.

    Args:
        factor: A scalar ball.
        a: rows x cols.

    Returns:
        The ball, exact where the factor is a float and no product was rounded.

    Example:
        >>> from ntk_deq.certified.scalar import exact
        >>> scale(exact(0.5), Ball(torch.full((1, 1), 0.3, dtype=torch.float64))).radius
        0.0
    """
    near, spread = value_and_radius(factor)
    if not math.isfinite(near):
        return no_information(a, *a.shape, a.reason or "a scalar factor has no information")
    centre = a.work
    product = near * centre
    error = 0.0 if shifts_exactly(centre, near) else elementwise_error(centre, torch.full_like(centre, near), product)
    inherited = multiply_up(abs(near), a.radius)
    if spread:
        inherited = add_up(inherited, multiply_up(spread, add_up(a.fro, a.radius)))
    return enclose(product, add_up(error, inherited), a, a.reason)


def hadamard(a: Ball, b: Ball) -> Ball:
    """Return the elementwise product.

    With the largest entries |A|, |B|: the radius is |A| b.radius + a.radius |B| + a.radius b.radius, and rounding.

    Args:
        a: rows x cols.
        b: rows x cols.

    Returns:
        The ball, exact where both are and no product was rounded.

    Raises:
        ArgumentError: Shapes, element types or devices differ.

    Example:
        >>> three = Ball(torch.full((1, 1), 3.0))
        >>> hadamard(three, three)
        Ball(1 x 1, float32, radius=0)
    """
    require_one_form("hadamard", a, b)
    left, right = a.work, b.work
    product = left * right
    inherited = product_radius(largest_entry(left), a.radius, largest_entry(right), b.radius)
    return enclose(product, add_up(elementwise_error(left, right, product), inherited), a, first_reason(a, b))


def product_radius(size_a: float, radius_a: float, size_b: float, radius_b: float) -> float:
    """Return |A| rB + rA |B| + rA rB, upwards: what a bilinear product inherits from its factors' radii.

    Example:
        >>> product_radius(1.0, 0.0, 2.0, 0.0)
        0.0
    """
    return add_up(
        multiply_up(size_a, radius_b),
        multiply_up(radius_a, size_b),
        multiply_up(radius_a, radius_b),
    )


OPERATORS = ("<=", "<", ">=", ">", "==", "!=")


class EntryComparison(NamedTuple):
    """What two balls say about a comparison of their entries.

    Attributes:
        all_true: It holds for certain.
        some_false: It fails for certain.
        margin: Ball of the worst entry's margin. For <= and <: the smallest b - a; for >= and >: the smallest a - b;
            for ==: minus the largest |a - b|; for !=, which says that the matrices differ somewhere: the largest |a -
            b|.
    """

    all_true: bool
    some_false: bool
    margin: arb


def compare_entries(op: str, a: Ball, b: Ball) -> EntryComparison:
    """Compare two matrices entry by entry.

    A difference of two floats never rounds across zero, nor across another float, so both answers are decided on the
    rounded difference.

    Args:
        op: One of <= < >= > == !=. All but != must hold at every entry; != says that the matrices are not equal.
        a: rows x cols.
        b: rows x cols.

    Returns:
        Whether it holds for certain, whether it fails for certain, and the worst margin. Neither holds without
        information.

    Raises:
        ArgumentError: `op` is no comparison sign, or shapes, element types or devices differ.

    Example:
        >>> import torch
        >>> compare_entries("<=", Ball(torch.zeros(2, 2)), Ball(torch.eye(2)))[:2]
        (True, False)
    """
    if op not in OPERATORS:
        raise ArgumentError(f"`op` of compare_entries must be one of {' '.join(OPERATORS)}. Got {op!r}.")
    require_one_form("compare_entries", a, b)
    spread = add_up(a.radius, b.radius)
    if not math.isfinite(spread):
        return EntryComparison(False, False, nan())
    left, right = (b, a) if op in ("<=", "<") else (a, b)
    plus, minus = left.centre.double(), -right.centre.double()
    difference = plus + minus
    rounded = largest_entry(sum_error(plus, minus, difference))
    if op in ("==", "!="):
        return _equality(op, largest_entry(difference), spread, rounded)
    worst = float(difference.amin())
    margin = with_radius(worst, add_up(spread, rounded))
    if op in ("<=", ">="):
        return EntryComparison(worst > spread or (spread == 0 and worst >= 0), worst < -spread, margin)
    return EntryComparison(worst > spread, worst < -spread or (spread == 0 and worst <= 0), margin)


def _equality(op: str, largest: float, spread: float, rounded: float) -> EntryComparison:
    equal, differ = spread == 0 and largest == 0, largest > spread
    size = with_radius(largest, add_up(spread, rounded))
    return EntryComparison(equal, differ, -size) if op == "==" else EntryComparison(differ, equal, size)


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
    if not (a.is_finite and b.is_finite):
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
    if not (a.is_finite and b.is_finite):
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
