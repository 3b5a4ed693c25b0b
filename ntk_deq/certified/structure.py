"""Rearrangements of a matrix ball and the entrywise maps that do not widen it."""

from __future__ import annotations

import math

import torch

from ntk_deq.certified.ball import Ball, first_reason, no_information, require_alike
from ntk_deq.certified.rounding import add_up, multiply_up, root_up
from ntk_deq.errors import ArgumentError


def transpose(a: Ball) -> Ball:
    """Return the transpose.

    Example:
        >>> transpose(Ball(torch.ones(2, 3))).shape
        (3, 2)
    """
    return Ball(a.centre.mT, a.radius, a.reason)


def vec(a: Ball) -> Ball:
    """Return the columns stacked into one column, as in matrix calculus.

    Example:
        >>> vec(Ball(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))).centre.flatten().tolist()
        [1.0, 3.0, 2.0, 4.0]
    """
    return Ball(a.centre.mT.reshape(-1, 1), a.radius, a.reason)


def block(a: Ball, top: int, bottom: int, left: int, right: int) -> Ball:
    """Return the rows `top` to `bottom` and columns `left` to `right`, counted from 0, the ends excluded.

    Example:
        >>> block(Ball(torch.eye(3)), 0, 1, 0, 3).centre.tolist()
        [[1.0, 0.0, 0.0]]
    """
    return Ball(a.centre[top:bottom, left:right].contiguous(), a.radius, a.reason)


def _together(function: str, dim: int, blocks: tuple[Ball, ...]) -> Ball:
    require_alike(function, *blocks)
    across = {b.shape[1 - dim] for b in blocks}
    if len(across) > 1:
        raise ArgumentError(f"Arguments of {function} must fit together. Got {[b.shape for b in blocks]}.")
    radii = [b.radius for b in blocks if b.radius]
    squares = add_up(*(multiply_up(radius, radius) for radius in radii)) if radii else 0.0
    radius = radii[0] if len(radii) == 1 else root_up(squares)
    return Ball(torch.cat([b.centre for b in blocks], dim), radius, first_reason(*blocks))


def beside(*blocks: Ball) -> Ball:
    """Return matrices of as many rows side by side.

    Raises:
        ArgumentError: Rows, element types or devices differ.

    Example:
        >>> beside(Ball(torch.eye(2)), Ball(torch.ones(2, 1))).shape
        (2, 3)
    """
    return _together("beside", 1, blocks)


def above(*blocks: Ball) -> Ball:
    """Return matrices of as many columns one above the other.

    Raises:
        ArgumentError: Columns, element types or devices differ.

    Example:
        >>> above(Ball(torch.eye(2)), Ball(torch.ones(1, 2))).shape
        (3, 2)
    """
    return _together("above", 0, blocks)


def _require_size(function: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ArgumentError(f"`{name}` of {function} must be an integer >= 1. Got {size}.")


def identity(n: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None) -> Ball:
    """Return the identity of order n.

    Raises:
        ArgumentError: n < 1.

    Example:
        >>> identity(2)
        Ball(2 x 2, float64, radius=0)
    """
    _require_size("identity", n=n)
    return Ball(torch.eye(n, dtype=dtype, device=device))


def commutation(
    rows: int, cols: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None
) -> Ball:
    """Return the permutation K with K vec(A) = vec(A') for every rows x cols matrix A.

    Args:
        rows: Rows of A.
        cols: Columns of A.
        dtype: Element type.
        device: Device.

    Returns:
        The exact ball of order rows cols.

    Raises:
        ArgumentError: A size is below 1.

    References:
        Magnus and Neudecker, Annals of Statistics 7, 1979.

    Example:
        >>> commutation(1, 3).centre.equal(torch.eye(3, dtype=torch.float64))
        True
    """
    _require_size("commutation", rows=rows, cols=cols)
    # vec(A) has A[i, j] at j rows + i; vec(A') has it at i cols + j.
    order = torch.arange(rows * cols, device=device).reshape(cols, rows).mT.reshape(-1)
    return Ball(torch.eye(rows * cols, dtype=dtype, device=device)[order])


def diag(a: Ball) -> Ball:
    """Return the diagonal matrix of a column, or the diagonal of a square matrix as a column.

    Raises:
        ArgumentError: Neither one column nor square.

    Example:
        >>> diag(Ball(torch.ones(3, 1))).shape, diag(Ball(torch.eye(3))).shape
        ((3, 3), (3, 1))
    """
    rows, cols = a.shape
    if cols == 1:
        return Ball(torch.diag(a.centre.flatten()), a.radius, a.reason)
    if rows == cols:
        return Ball(torch.diag(a.centre).reshape(-1, 1), a.radius, a.reason)
    raise ArgumentError(f"`a` of diag must be one column or a square matrix. Got {rows} x {cols}.")


def relu(a: Ball) -> Ball:
    """Return max(a, 0) entrywise; a map with Lipschitz constant 1, so the radius stays.

    Example:
        >>> relu(Ball(torch.tensor([[-1.0, 2.0]]))).centre.tolist()
        [[0.0, 2.0]]
    """
    return Ball(torch.relu(a.centre), a.radius, a.reason)


def absolute(a: Ball) -> Ball:
    """Return |a| entrywise; a map with Lipschitz constant 1, so the radius stays.

    Example:
        >>> absolute(Ball(torch.tensor([[-1.0]]))).centre.item()
        1.0
    """
    return Ball(a.centre.abs(), a.radius, a.reason)


def step(a: Ball) -> Ball:
    """Return 1 where an entry is positive and 0 elsewhere, the derivative of `relu` with value 0 at 0.

    An entry whose sign the ball does not decide may be off by 1, so the radius is the root of their number; 0 where
    there is none.

    Example:
        >>> step(Ball(torch.tensor([[-1.0, 0.0, 2.0]])))
        Ball(1 x 3, float32, radius=0)
        >>> step(Ball(torch.tensor([[-1.0, 0.0, 2.0]]), 0.5)).radius
        1.0
    """
    if not a.is_finite:
        return no_information(a, *a.shape, a.reason)
    centre = a.centre.double()
    unsure = int((centre.abs() <= a.radius).sum()) if a.radius else 0
    root = math.isqrt(unsure)
    return Ball((centre > 0).to(a.centre.dtype), float(root) if root * root == unsure else root_up(float(unsure)))
