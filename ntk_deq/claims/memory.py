"""The limit on the size of a matrix, applied before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping

from ntk_deq.claims.claim import SizeRange
from ntk_deq.claims.types import Sort, Type

MAX_ENTRIES = 2**27  # 1 GiB in float64; a Jacobian or Kronecker product of a claim is far below


def too_large(type_: Type, sizes: Mapping[str, SizeRange]) -> str | None:
    """Return why a value of a type is too large even at the smallest sizes, or None.

    Example:
        >>> from ntk_deq.claims.types import matrix
        >>> too_large(matrix("n", "n"), {"n": SizeRange(20000, 30000)})
        'a matrix n x n is 20000 x 20000 at the smallest sizes: 400000000 entries; at most 134217728 are allowed'
    """
    if type_.sort is not Sort.MATRIX:
        return None
    least = {letter: bounds.low for letter, bounds in sizes.items()}
    rows, cols = type_.rows.evaluate(least), type_.cols.evaluate(least)
    if rows * cols <= MAX_ENTRIES:
        return None
    return (
        f"a {type_} is {rows} x {cols} at the smallest sizes: {rows * cols} entries; at most {MAX_ENTRIES} are allowed"
    )
