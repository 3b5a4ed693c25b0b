"""The limit on the size of a matrix, applied before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Set

from ntk_deq.claims.claim import SizeRange
from ntk_deq.claims.tree import Expr, Kind
from ntk_deq.claims.types import ONE, Sort, Type

MAX_ENTRIES = 2**27  # 1 GiB in float64; a Jacobian or Kronecker product of a claim is far below


def too_large(type_: Type, sizes: Mapping[str, SizeRange], *, structured: bool = False) -> str | None:
    """Return why a value of a type is too large even at the smallest sizes, or None.

    Args:
        type_: The type.
        sizes: Range of every size letter.
        structured: Whether the matrix is not formed, so that only its diagonal and its products with vectors count.

    Example:
        >>> from ntk_deq.claims.types import matrix
        >>> too_large(matrix("n", "n"), {"n": SizeRange(20000, 30000)})
        'a matrix n x n is 20000 x 20000 at the smallest sizes: 400000000 entries; at most 134217728 are allowed'
    """
    if type_.sort is not Sort.MATRIX:
        return None
    least = {letter: bounds.low for letter, bounds in sizes.items()}
    rows, cols = type_.rows.evaluate(least), type_.cols.evaluate(least)
    if (max(rows, cols) if structured else rows * cols) <= MAX_ENTRIES:
        return None
    return (
        f"a {type_} is {rows} x {cols} at the smallest sizes: {rows * cols} entries; at most {MAX_ENTRIES} are allowed"
    )


_SAME = frozenset({Kind.NEGATE, Kind.TRANSPOSE, Kind.DIVIDE, Kind.POWER})
_TOGETHER = frozenset({Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY})


def keeps_structure(typed: Expr, structured: Set[str]) -> bool:
    """Return whether a matrix is kept as Kronecker factors, a diagonal, blocks, or a product of these, and not formed.

    Which sums and inverses stay so is left to the evaluation, which stops where a matrix would have to be formed after
    all.

    Args:
        typed: A typed expression.
        structured: Names of definitions that keep their structure.

    Example:
        >>> from ntk_deq.claims.parser import parse
        >>> keeps_structure(parse("2*I(n)"), set()), keeps_structure(parse("Q + v*v'"), {"Q"})
        (True, False)
    """
    if typed.kind is Kind.NAME:
        return typed.name in structured
    if typed.kind in _SAME:
        return keeps_structure(typed.args[0], structured)
    if typed.kind in _TOGETHER:
        matrices = [arg for arg in typed.args if not _is_scalar(arg)]
        return bool(matrices) and all(keeps_structure(arg, structured) for arg in matrices)
    if typed.kind is not Kind.CALL:
        return False
    if typed.name == "inv":
        return keeps_structure(typed.args[0], structured)
    if typed.name == "hadamard":
        return any(keeps_structure(arg, structured) for arg in typed.args)
    return typed.name in ("I", "kron", "diag") and not _is_vector(typed)


def _is_scalar(expr: Expr) -> bool:
    if expr.type is None:
        return expr.kind is Kind.NUMBER
    return expr.type.sort is Sort.SCALAR


def _is_vector(expr: Expr) -> bool:
    return expr.type is not None and ONE in (expr.type.rows, expr.type.cols)
