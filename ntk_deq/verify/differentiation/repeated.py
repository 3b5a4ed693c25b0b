"""Whether an extreme eigenvalue is simple, so that it has a derivative, or repeated, so that it has none.

For a small exact matrix the characteristic polynomial, in whole numbers, says how often each root occurs. Else
enclosures of all eigenvalues can show that one is simple.
"""

from __future__ import annotations

from collections.abc import Callable

from flint import acb, arb

from ntk_deq import certified as ct
from ntk_deq.certified.eigenvalues import eigenvalue_discs
from ntk_deq.certified.precise import adopt
from ntk_deq.certified.precise.matrix import whole_matrix
from ntk_deq.claims.tree import Kind
from ntk_deq.verify.differentiation.node import Node
from ntk_deq.verify.eigenvalue_slopes import MODULUS_MAX, REAL_PART_MAX, REAL_PART_MIN

_RANKED: dict[str, Callable[[acb], arb]] = {
    REAL_PART_MAX: lambda value: value.real,
    REAL_PART_MIN: lambda value: -value.real,
    MODULUS_MAX: abs,
}

EXTREMES = frozenset(_RANKED)
"""The functions of one extreme eigenvalue."""

_ORDER = 12
"""Up to this order the characteristic polynomial is written out: about a millisecond."""


def is_repeated(matrix: ct.Ball, which: str) -> bool | None:
    """Return whether an extreme eigenvalue is repeated: True or False for certain, None where it is not known.

    An eigenvalue of which only the conjugate is as extreme counts as simple, and the modulus 0 as repeated.

    Args:
        matrix: n x n.
        which: `lambda_max`, `lambda_min` or `rho`.

    Example:
        >>> import torch
        >>> is_repeated(ct.ball(torch.eye(2)), "lambda_max"), is_repeated(ct.ball(torch.diag(torch.arange(2.0))), "rho")
        (True, False)
    """
    if not matrix.is_finite:
        return None
    roots = _exact_roots(matrix) or _discs(matrix)
    if not roots:
        return None
    rank = _RANKED[which]
    top, count = max(roots, key=lambda root: float(rank(root[0]).mid()))
    others = [value for value, _ in roots if value is not top and not _conjugate(value, top)]
    if not all(rank(value) < rank(top) for value in others):
        return None
    if which == MODULUS_MAX and not abs(top) > 0:
        return True if abs(top) == 0 else None
    return count > 1


def _conjugate(value: acb, top: acb) -> bool:
    return not value.imag.contains(0) and bool(value.conjugate().overlaps(top))


def _exact_roots(matrix: ct.Ball) -> list[tuple[acb, int]]:
    """Return the eigenvalues of a small exact matrix and how often each occurs, or nothing."""
    if matrix.shape[0] > _ORDER or not matrix.is_exact:
        return []
    whole = whole_matrix(adopt(matrix))
    if whole is None:
        return []
    found: list[tuple[acb, int]] = whole[0].charpoly().complex_roots()  # type: ignore[assignment]
    return [(acb(root), int(count)) for root, count in found]


def _discs(matrix: ct.Ball) -> list[tuple[acb, int]]:
    """Return balls that hold one eigenvalue each, or nothing where those of some meet."""
    if not isinstance(matrix, ct.Ball):
        return []
    discs = eigenvalue_discs(matrix)
    spread = arb(0, discs.radius)
    balls = [acb(arb(c.real) + spread, arb(c.imag) + spread) for c in discs.centres.tolist()]
    apart = all(not x.overlaps(y) for i, x in enumerate(balls) for y in balls[:i])
    return [(ball, 1) for ball in balls] if apart and all(ball.is_finite() for ball in balls) else []


def moves_freely(node: Node, target: Node) -> bool:
    """Return whether a matrix certainly moves in every (or every symmetric) direction as a variable does."""
    if node is target:
        return not node.is_scalar
    moving = [arg for arg in node.args if target.number in arg.depends]
    if node.operation in (str(Kind.NEGATE), str(Kind.TRANSPOSE)):
        return moves_freely(node.args[0], target)
    if node.operation in (str(Kind.ADD), str(Kind.SUBTRACT)) and len(moving) == 1:
        return moves_freely(moving[0], target)
    if node.operation == str(Kind.ADD) and len(node.args) == 2:
        left, right = node.args
        turned = str(Kind.TRANSPOSE)
        pair = (right.operation == turned and right.args[0] is left) or (
            left.operation == turned and left.args[0] is right
        )
        return pair and moves_freely(left if right.operation == turned else right, target)
    return False
