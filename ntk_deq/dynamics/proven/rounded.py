"""Ball operations for the steps of a run: rounding is bounded in advance, and counts as none beside a zero matrix only.

The operations of `ntk_deq.certified` also find out whether a result is exact, which decides cases of equality and costs
more than a small product. Thousands of steps need the products and no equality but 0 = 0.
"""

from __future__ import annotations

import torch

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import product_radius
from ntk_deq.certified.ball import Ball, first_reason
from ntk_deq.certified.exactness import sum_error
from ntk_deq.certified.products import summing_error
from ntk_deq.certified.rounding import TINY, add_up, fro_up, largest_entry, multiply_up, root_up


def product(a: Ball, b: Ball, *, norm_a: float | None = None, norm_b: float | None = None) -> Ball:
    """Return a b.

    Truth and product differ by at most norm(A) rB + rA norm(B) + rA rB, and by rounding, g_n fro(|A||B|) + n 2^-1074 an
    entry with g_n = n u/(1 - n u).

    Args:
        a: rows x n.
        b: n x cols.
        norm_a: Upper bound of the spectral norm of a's centre; None: its Frobenius norm serves.
        norm_b: Likewise of b's.

    Example:
        >>> tenth = Ball(torch.full((2, 2), 0.1, dtype=torch.float64))
        >>> product(tenth, tenth).radius < 1e-16, product(tenth, Ball(0 * tenth.centre)).radius
        (True, 0.0)
    """
    centre = a.centre @ b.centre
    size_a, size_b = a.fro if norm_a is None else norm_a, b.fro if norm_b is None else norm_b
    error = product_radius(size_a, a.radius, size_b, b.radius)
    if a.fro and b.fro:
        inner = a.shape[1]
        size = min(multiply_up(a.fro, size_b), multiply_up(size_a, b.fro))
        underflow = multiply_up(2.0 * inner, TINY, root_up(float(centre.numel())))
        error = add_up(error, multiply_up(summing_error(inner), size), underflow)
    return Ball(centre, error, first_reason(a, b))


def multiple(factor: float, a: Ball) -> Ball:
    """Return factor a for a float that counts as exact.

    Example:
        >>> multiple(0.5, Ball(torch.ones(1, 1, dtype=torch.float64), 1.0)).radius >= 0.5
        True
    """
    if factor == 1.0:
        return a
    size = abs(factor)
    rounded = multiply_up(rounding.unit_roundoff(), size, a.fro)
    underflow = multiply_up(float(a.centre.numel()), TINY) if a.fro else 0.0
    return Ball(factor * a.centre, add_up(multiply_up(size, a.radius), rounded, underflow), a.reason)


def longest_row(a: Ball) -> float:
    """Return an upper bound of the length of every row of a centre; zero where all are.

    Example:
        >>> 1.0 <= longest_row(Ball(torch.eye(3, dtype=torch.float64))) < 1.0 + 1e-12
        True
    """
    if not a.fro:
        return 0.0
    cols = a.shape[1]
    length = float(torch.linalg.vector_norm(a.centre, dim=1).amax())
    # The squares of entries below 2^-511 may be lost.
    return add_up(multiply_up(length, 1.0 + (cols + 8) * 2.0**-52), multiply_up(float(cols), 2.0**-511))


def row_multiples(factors: Ball, a: Ball) -> Ball:
    """Return diag(f) A for a column f.

    Truth and product differ by at most max|f| rA + rf max row(A) + rf rA, and by rounding.

    Example:
        >>> eye = torch.eye(2, dtype=torch.float64)
        >>> row_multiples(Ball(eye[:, :1]), Ball(eye)).centre.tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    centre = factors.centre * a.centre
    error = product_radius(largest_entry(factors.centre), factors.radius, longest_row(a), a.radius)
    if factors.fro and a.fro:
        rounded = multiply_up(rounding.unit_roundoff(), fro_up(centre))
        error = add_up(error, rounded, multiply_up(float(centre.numel()), TINY))
    return Ball(centre, error, first_reason(factors, a))


def total(a: Ball, b: Ball) -> Ball:
    """Return a + b, with the rounding error bounded by u norm(a + b).

    Example:
        >>> one = Ball(torch.ones(1, 1, dtype=torch.float64))
        >>> total(one, one).centre.item()
        2.0
    """
    centre = a.centre + b.centre
    rounded = multiply_up(rounding.unit_roundoff(), fro_up(centre))
    return Ball(centre, add_up(a.radius, b.radius, rounded), first_reason(a, b))


def distance(a: Ball, b: Ball) -> float:
    """Return an upper bound of the Frobenius distance of any matrix of one ball from any of the other.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> 3.0 <= distance(Ball(one), Ball(3 * one, 1.0)) < 3.0 + 1e-12
        True
    """
    gap = fro_up(a.centre - b.centre)
    return add_up(gap, multiply_up(rounding.unit_roundoff(), gap), a.radius, b.radius)


def moved(a: Ball, change: Ball) -> Ball:
    """Return a - change, where the rounding error is worked out exactly (Knuth's two-sum).

    A small change of a large matrix is mostly lost to rounding, and by how much matters.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> result = moved(Ball(one), Ball(1e-20 * one))
        >>> result.centre.item(), 1e-20 <= result.radius < 1.01e-20
        (1.0, True)
    """
    step = -change.centre
    centre = a.centre + step
    lost = fro_up(sum_error(a.centre, step, centre))
    return Ball(centre, add_up(a.radius, change.radius, lost), first_reason(a, change))
