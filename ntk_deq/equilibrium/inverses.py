"""Approximate inverses of I - L D, one for each pattern of activation slopes, with proofs of how good they are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.certified.arithmetic import subtract
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.inversion import approximate_inverse, identity_defect, size_up
from ntk_deq.certified.products import column_multiples, matmul
from ntk_deq.certified.rounding import add_up, multiply_up
from ntk_deq.certified.structure import identity, transpose
from ntk_deq.equilibrium.slopes import BallLayer, Slopes

MOST_WORK = 1 << 31
"""Patterns times m^3 up to which inverses are formed: a few seconds on one core."""

_NEWTON_STEPS = 30
# A piecewise linear system ends after as many steps as patterns are passed through; more than this is a cycle.


@dataclass(frozen=True, eq=False)
class PatternInverse:
    """R about the inverse of I - L D on the rows that share bounds on their slopes D.

    Attributes:
        rows: Which.
        inverse: R, an exact ball m x m.
        right_defect: Bound on norm(I - (I - L D) R) for every D between the bounds.
        left_defect: Likewise on norm(I - R (I - L D)).
    """

    rows: Int[Tensor, " k"]
    inverse: Ball
    right_defect: float
    left_defect: float


def transposed(found: PatternInverse) -> PatternInverse:
    """Return the inverse of the transposed system."""
    return PatternInverse(found.rows, transpose(found.inverse), found.left_defect, found.right_defect)


def pattern_inverses(weight: Ball, slopes: Slopes) -> list[PatternInverse] | None:
    """Return an approximate inverse for each pattern of slopes; None where one breaks down or the work is too much.

    Args:
        weight: L, m x m.
        slopes: Bounds on D, N x m.

    Example:
        >>> ones = torch.ones(1, 1, dtype=torch.float64)
        >>> found = pattern_inverses(Ball(3 * ones), Slopes(ones, ones))
        >>> found[0].inverse.centre.item(), found[0].right_defect < 1e-15
        (-0.5, True)
    """
    order = weight.shape[0]
    both = torch.cat([slopes.low, slopes.high], dim=1)
    patterns, belongs = torch.unique(both, dim=0, return_inverse=True)
    if patterns.shape[0] * order**3 > MOST_WORK:
        return None
    result = []
    for index, pattern in enumerate(patterns):
        row = Slopes(pattern[None, :order], pattern[None, order:])
        found = _one_inverse(weight, row, (belongs == index).nonzero().flatten())
        if found is None:
            return None
        result.append(found)
    return result


def _weighted(weight: Ball, factors: Tensor) -> Ball:
    product, rounded = column_multiples(weight.work, factors)
    return Ball(product, add_up(weight.radius, rounded))


def _one_inverse(weight: Ball, row: Slopes, rows: Tensor) -> PatternInverse | None:
    unit = identity(weight.shape[0], device=weight.centre.device)
    system = subtract(unit, _weighted(weight, row.middle))
    inverted = approximate_inverse(system.centre)
    if inverted is None:
        return None
    inverse = Ball(inverted)
    right, left = size_up(identity_defect(system, inverse)), size_up(identity_defect(inverse, system))
    uncertain = (row.spread > 0).to(inverted.dtype)
    if bool(uncertain.any()):
        # D - middle = T spread with diagonal T of norm at most 1, which commutes with the choice of rows of R.
        unsure, picked = _weighted(weight, row.spread), Ball(inverted * uncertain.mT)
        right = add_up(right, multiply_up(size_up(unsure), size_up(picked)))
        left = add_up(left, size_up(matmul(inverse, unsure)))
    return PatternInverse(rows, inverse, right, left)


def newton_steps(layer: BallLayer, start: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
    """Return where Newton's method ends in floating point; nothing is promised of it.

    Each step solves the linear system of the present slopes, row by row: exact for a linear layer, finite for most
    piecewise linear ones.

    Args:
        layer: The map.
        start: Where to start.

    Example:
        >>> from ntk_deq.equilibrium.slopes import IDENTITY
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> newton_steps(BallLayer(Ball(3 * one), Ball(one), Ball(one), IDENTITY), 0 * one).item()
        -0.5
    """
    order = layer.weight.shape[0]
    if start.shape[0] * order**3 > MOST_WORK:
        return start
    unit = torch.eye(order, dtype=start.dtype, device=start.device)
    point, best, least = start, start, float("inf")
    for _ in range(_NEWTON_STEPS):
        pre = Ball(point @ layer.weight.centre + layer.source.centre)
        if not pre.is_finite:
            break
        gap = point - layer.activation.function(pre.centre)
        size = float(torch.linalg.vector_norm(gap))
        if size < least:
            best, least = point, size
        systems = unit - layer.weight.centre * layer.slopes(pre).middle[:, None, :]
        change, info = torch.linalg.solve_ex(systems.mT, gap[:, :, None])
        if bool(info.any()) or size == 0:
            break
        point = point - change[:, :, 0]
    return best


def linear_adjoint(layer: BallLayer, slopes: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
    """Return V with V = b' + (V .* D) L' in floating point by linear systems, or b' where they are too many.

    Args:
        layer: Gives L and b.
        slopes: D.

    Example:
        >>> from ntk_deq.equilibrium.slopes import IDENTITY
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> linear_adjoint(BallLayer(Ball(3 * one), Ball(one), Ball(one), IDENTITY), one).item()
        -0.5
    """
    readout = layer.readout.centre.expand_as(slopes)
    order = slopes.shape[1]
    if slopes.shape[0] * order**3 > MOST_WORK:
        return readout.contiguous()
    unit = torch.eye(order, dtype=slopes.dtype, device=slopes.device)
    systems = unit - layer.weight.centre * slopes[:, None, :]
    return torch.linalg.solve_ex(systems, readout[:, :, None])[0][:, :, 0]
