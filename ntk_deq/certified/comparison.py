"""Entrywise comparison of two matrix balls."""

from __future__ import annotations

import math
from typing import NamedTuple

from flint import arb

from ntk_deq.certified.ball import Ball, require_alike
from ntk_deq.certified.bounds import largest_entry
from ntk_deq.certified.exactness import sum_error
from ntk_deq.certified.rounding import add_up
from ntk_deq.certified.scalar import nan, with_radius
from ntk_deq.errors import ArgumentError

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
    require_alike("compare_entries", a, b)
    if a.shape != b.shape:
        shapes = " and ".join(f"{rows} x {cols}" for rows, cols in (a.shape, b.shape))
        raise ArgumentError(f"Arguments of compare_entries must have one shape. Got {shapes}.")
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
